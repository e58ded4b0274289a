package proxy

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"holdfast/internal/http1"
	"holdfast/lanes"
)

// Route places the requests that match a pattern: on a lane, or with an
// answer of our own. Exactly one of Lane, Files, Respond, Answer, Grant and
// Feed is set.
type Route struct {
	// Match is a pattern in the syntax of Go's http.ServeMux:
	// [METHOD ][HOST]/PATH, with {name}, {name...} and {$} in the path. GET
	// takes HEAD too. A path that ends with "/" takes everything below it.
	Match string

	// Lane serves the route.
	Lane *lanes.Lane
	// BodyBytes is the largest request body; 0: the server's limit.
	BodyBytes int64
	// Stream: the lane is one of streams. Bytes pass as they come, both ways,
	// and WebSocket upgrades are tunnelled.
	Stream bool
	// ForwardStreams lets an endless answer through, its slot held. Otherwise
	// it is refused.
	ForwardStreams bool

	// OverHTTP: WebSockets of this route are spoken to the app as
	// WebSocket-over-HTTP, GRIP's way. Only on a lane of requests, and with
	// GRIP among Config.Dialects.
	OverHTTP bool

	// MessagePath is where messages of WebSockets go that a view of the route
	// approves; "": such sockets only receive.
	MessagePath string

	// Files serves a directory, to GET and HEAD.
	Files *Files
	// Respond is a fixed answer, for GET and HEAD.
	Respond *Respond
	// Answer makes the answer when asked. Without a method in Match it is for
	// GET and HEAD. With BodyBytes it gets the request's body.
	Answer func(*Asked) Respond
	// Grant holds clients that bring one, below the pattern, without asking the app.
	Grant *Grant
	// Feed holds clients in a channel of the process's own, without asking the app.
	Feed *Feed

	stats  *routeStats
	before int // of Files: how many segments the path has before the file's name
}

// Respond is an answer of our own.
type Respond struct {
	Status int
	Fields []string // name, value, name, value
	Body   []byte
}

// Pattern is a parsed Match.
type Pattern struct {
	Method string // "" = any
	Host   string // "" = any; lower case, without a port
	Path   string
	segs   []segment
}

type segmentKind uint8

const (
	literal segmentKind = iota
	wildcard
	subtree // a final "/" or {name...}: one segment or more
)

type segment struct {
	kind segmentKind
	text string
}

// ParsePattern reads a route's pattern. The errors say what is wrong with it.
func ParsePattern(text string) (p Pattern, err error) {
	rest := text
	if method, after, ok := strings.Cut(text, " "); ok && !strings.Contains(method, "/") {
		if !http1.IsToken([]byte(method)) || method != strings.ToUpper(method) {
			return p, fmt.Errorf("begins with %q, which is not a method in capital letters", method)
		}
		p.Method, rest = method, strings.TrimLeft(after, " ")
	}
	slash := strings.IndexByte(rest, '/')
	if slash < 0 {
		return p, fmt.Errorf("has no path (write /%s)", strings.TrimSpace(rest))
	}
	p.Host, p.Path = strings.ToLower(rest[:slash]), rest[slash:]
	if strings.ContainsAny(p.Host, "{}: ") || p.Host != "" && !validHost([]byte(p.Host)) {
		return p, fmt.Errorf("has the host %q, which is not a host name without a port", rest[:slash])
	}
	return p, p.parsePath()
}

func (p *Pattern) parsePath() error {
	names := make(map[string]bool)
	parts := strings.Split(p.Path[1:], "/")
	for i, part := range parts {
		last := i == len(parts)-1
		switch {
		case part == "" && last:
			p.segs = append(p.segs, segment{kind: subtree})
		case part == "{$}":
			if !last {
				return fmt.Errorf("has {$} before its end")
			}
			p.segs = append(p.segs, segment{kind: literal})
		case strings.HasPrefix(part, "{") && strings.HasSuffix(part, "}"):
			name, many := strings.CutSuffix(part[1:len(part)-1], "...")
			if !validName(name) || names[name] {
				return fmt.Errorf("has %s, which is not a name of its own in braces", part)
			}
			if many && !last {
				return fmt.Errorf("has %s before its end", part)
			}
			names[name] = true
			kind := wildcard
			if many {
				kind = subtree
			}
			p.segs = append(p.segs, segment{kind: kind})
		case string(decodePath([]byte(part))) != part:
			return fmt.Errorf("has an escape in the segment %q (write the path decoded, as the app sees it)", part)
		case strings.ContainsAny(part, "{}"):
			return fmt.Errorf("has a brace inside the segment %q (a wildcard is a whole segment)", part)
		default:
			p.segs = append(p.segs, segment{literal, part})
		}
	}
	return nil
}

func validName(name string) bool {
	for i, c := range name {
		if c != '_' && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}

// key is the same for two patterns that match the same requests, whatever
// their wildcards are called.
func (p Pattern) key() string {
	var b strings.Builder
	b.WriteString(p.Method + " " + p.Host)
	for _, s := range p.segs {
		b.WriteString([...]string{"/" + s.text, "/{}", "/{...}"}[s.kind])
	}
	return b.String()
}

// table is an immutable set of routes: a tree of segments for each host. A
// host beats none; then, segment by segment, a literal beats a wildcard beats
// a subtree; then a method beats none.
type table struct {
	hosts map[string]*node // by host, lower case; "" = any
	// guarded are paths that the network never reaches.
	guarded []string
	// internal: one of them is of files that only the app leads to.
	internal bool
}

type node struct {
	literals map[string]*node
	wildcard *node
	leaf     methods // of patterns that end here
	subtree  methods // of patterns that take everything below
}

// methods are the routes of one path by method; "" = any.
type methods map[string]*Route

func newTable(routes []Route, guarded []string) (*table, error) {
	t := &table{hosts: make(map[string]*node)}
	for _, g := range guarded {
		t.guarded = append(t.guarded, path.Clean(g))
	}
	seen := make(map[string]string)
	for i := range routes {
		p, err := ParsePattern(routes[i].Match)
		if err != nil {
			return nil, fmt.Errorf("route %q %w", routes[i].Match, err)
		}
		files := routes[i].Files
		switch {
		case files != nil && files.Internal:
			t.internal = true // and closed to every method
		case routes[i].Lane == nil && p.Method == "":
			p.Method = "GET" // what is answered here is answered to GET and HEAD
		}
		routes[i].before = len(p.segs) - 1
		if other, ok := seen[p.key()]; ok {
			return nil, fmt.Errorf("routes %q and %q match the same requests", other, routes[i].Match)
		}
		seen[p.key()] = routes[i].Match
		t.add(p, &routes[i])
	}
	return t, nil
}

func (t *table) add(p Pattern, rt *Route) {
	n := t.hosts[p.Host]
	if n == nil {
		n = &node{}
		t.hosts[p.Host] = n
	}
	for _, s := range p.segs {
		switch s.kind {
		case subtree:
			n.subtree = n.subtree.with(p.Method, rt)
			return
		case wildcard:
			if n.wildcard == nil {
				n.wildcard = &node{}
			}
			n = n.wildcard
		case literal:
			next := n.literals[s.text]
			if next == nil {
				next = &node{}
				if n.literals == nil {
					n.literals = make(map[string]*node)
				}
				n.literals[s.text] = next
			}
			n = next
		}
	}
	n.leaf = n.leaf.with(p.Method, rt)
}

func (m methods) with(method string, rt *Route) methods {
	if m == nil {
		m = make(methods)
	}
	m[method] = rt
	return m
}

// of gives the route of a method: its own, GET's for HEAD, then any's. missed
// are passed over.
func (m methods) of(method []byte, missed []*Route) *Route {
	if m == nil {
		return nil
	}
	if rt := m[string(method)]; rt != nil && !slices.Contains(missed, rt) {
		return rt
	}
	if string(method) == "HEAD" {
		if rt := m["GET"]; rt != nil && !slices.Contains(missed, rt) {
			return rt
		}
	}
	if rt := m[""]; rt != nil && !slices.Contains(missed, rt) {
		return rt
	}
	return nil
}

// find gives the route of a request; without one, the methods that the path
// does have, for a 405, nil if it has none at all. The path is matched
// decoded once, as an app sees it in PATH_INFO; empty segments and ".." are
// literal. The target "*" goes where "/" goes.
func (t *table) find(r *request) (rt *Route, allowed []string) {
	decoded := r.target
	if i := bytes.IndexByte(decoded, '?'); i >= 0 {
		decoded = decoded[:i]
	}
	if string(decoded) == "*" {
		decoded = []byte("/")
	}
	raw := decoded
	if bytes.IndexByte(decoded, '%') >= 0 {
		decoded = decodePath(decoded)
	}
	if t.isGuarded(raw, decoded) {
		return nil, nil
	}
	return t.match(r.method, r.host, decoded)
}

// match is find for a path that is decoded and may be guarded.
func (t *table) match(method, host, decoded []byte) (rt *Route, allowed []string) {
	return t.matchBeyond(method, host, decoded, nil)
}

// matchBeyond is match as if some of the routes were not there.
func (t *table) matchBeyond(method, host, decoded []byte, missed []*Route) (rt *Route, allowed []string) {
	search := search{method: method, missed: missed}
	if len(t.hosts) > 1 || t.hosts[""] == nil {
		if n := t.hosts[hostName(host)]; n != nil {
			if rt := search.in(n, decoded[1:]); rt != nil {
				return rt, nil
			}
		}
	}
	if n := t.hosts[""]; n != nil {
		if rt := search.in(n, decoded[1:]); rt != nil {
			return rt, nil
		}
	}
	if search.options != nil {
		return search.options, nil
	}
	return nil, search.allowed()
}

// hostName is a Host without its port, lower case.
func hostName(host []byte) string {
	if i := bytes.LastIndexByte(host, ':'); i >= 0 && bytes.IndexByte(host[i:], ']') < 0 {
		host = host[:i]
	}
	return strings.ToLower(string(host))
}

// isGuarded compares raw, decoded and cleaned: no spelling of a guarded path
// gets through. t.guarded is cleaned.
func (t *table) isGuarded(raw, decoded []byte) bool {
	for _, guarded := range t.guarded {
		if string(raw) == guarded || string(decoded) == guarded {
			return true
		}
		// Cleaning costs; most paths show that it would change nothing.
		if (bytes.Contains(decoded, []byte("//")) || bytes.Contains(decoded, []byte("/.")) || decoded[len(decoded)-1] == '/') &&
			path.Clean(string(decoded)) == guarded {
			return true
		}
	}
	return false
}

// search looks for one request's route and notes what it passes on the way.
type search struct {
	method  []byte
	missed  []*Route // that do not count
	options *Route   // the most specific lane on the path: OPTIONS is the app's to answer
	passed  []methods
}

// in searches below n for the rest of a path, without its leading slash.
func (s *search) in(n *node, rest []byte) *Route {
	seg, after, more := rest, []byte(nil), false
	if i := bytes.IndexByte(rest, '/'); i >= 0 {
		seg, after, more = rest[:i], rest[i+1:], true
	}
	if next := n.literals[string(seg)]; next != nil {
		if rt := s.at(next, after, more); rt != nil {
			return rt
		}
	}
	if n.wildcard != nil && len(seg) > 0 {
		if rt := s.at(n.wildcard, after, more); rt != nil {
			return rt
		}
	}
	return s.take(n.subtree)
}

func (s *search) at(n *node, after []byte, more bool) *Route {
	if more {
		return s.in(n, after)
	}
	return s.take(n.leaf)
}

func (s *search) take(m methods) *Route {
	if rt := m.of(s.method, s.missed); rt != nil {
		return rt
	}
	if len(m) == 0 {
		return nil
	}
	s.passed = append(s.passed, m)
	if s.options == nil && string(s.method) == "OPTIONS" {
		for _, method := range slices.Sorted(maps.Keys(m)) {
			if m[method].Lane != nil {
				s.options = m[method]
				break
			}
		}
	}
	return nil
}

// allowed lists the methods of the path, each once.
func (s *search) allowed() (list []string) {
	for _, m := range s.passed {
		for method := range m {
			list = append(list, method)
			if method == "GET" {
				list = append(list, "HEAD")
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// decodePath decodes percent escapes once; a malformed one stays as it is, as
// in Python's unquote.
func decodePath(path []byte) []byte {
	decoded := make([]byte, 0, len(path))
	for i := 0; i < len(path); i++ {
		if path[i] == '%' && i+2 < len(path) {
			if b, ok := unhex(path[i+1], path[i+2]); ok {
				decoded = append(decoded, b)
				i += 2
				continue
			}
		}
		decoded = append(decoded, path[i])
	}
	return decoded
}

func unhex(hi, lo byte) (b byte, ok bool) {
	var out [1]byte
	_, err := hex.Decode(out[:], []byte{hi, lo})
	return out[0], err == nil
}
