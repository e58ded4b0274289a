package proxy

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"holdfast/lanes"
)

// ---- The rules of routing, told anew and without a tree.

// ruleBook holds patterns as they are written. It answers slowly and plainly:
// every pattern is laid against the path, what matches is put in order, and
// the first whose method fits has it.
type ruleBook struct{ patterns []rulePattern }

type rulePattern struct {
	method, host string
	segs         []string
	route        *Route
}

func (b *ruleBook) add(p Pattern, rt *Route) {
	method := p.Method
	if rt.Lane == nil && method == "" {
		method = "GET"
	}
	b.patterns = append(b.patterns, rulePattern{method, p.Host, strings.Split(p.Path[1:], "/"), rt})
}

// same reports whether two patterns take the same requests.
func (p rulePattern) same(q rulePattern) bool {
	return p.method == q.method && p.host == q.host && slices.EqualFunc(p.segs, q.segs, func(a, b string) bool {
		return ruleKind(a) == ruleKind(b) && (ruleKind(a) != 'a' || a == b)
	})
}

// ruleKind orders segments: a literal, a wildcard, the rest of the path. An
// empty segment is the rest only at the end, but there is no other name for it.
func ruleKind(seg string) byte {
	switch {
	case seg == "{$}":
		return 'a'
	case strings.HasSuffix(seg, "...}"), seg == "":
		return 'c'
	case strings.HasPrefix(seg, "{"):
		return 'b'
	}
	return 'a'
}

// rank says whether the pattern takes the path, and how closely: of two that
// do, the lower rank is the closer one.
func (p rulePattern) rank(path []string) (rank string, takes bool) {
	for i, seg := range p.segs {
		last := i == len(p.segs)-1
		if i == len(path) {
			return "", false
		}
		kind := ruleKind(seg)
		if seg == "" && !last {
			kind = 'a'
		}
		switch {
		case kind == 'c':
			return rank + "c", true
		case kind == 'b' && path[i] == "":
			return "", false
		case kind == 'a' && path[i] != strings.TrimSuffix(seg, "{$}"):
			return "", false
		}
		rank += string(kind)
	}
	return rank, len(path) == len(p.segs)
}

var escape = regexp.MustCompile("%[0-9a-fA-F]{2}")

// decodedOnce is the path of a target, each escape decoded, once.
func decodedOnce(target string) string {
	path, _, _ := strings.Cut(target, "?")
	return escape.ReplaceAllStringFunc(path, func(e string) string {
		n, _ := strconv.ParseUint(e[1:], 16, 8)
		return string([]byte{byte(n)})
	})
}

func (b *ruleBook) find(method, host, target string) (rt *Route, allowed []string) {
	path := decodedOnce(target)
	if target == "*" {
		path = "/"
	}
	type group struct {
		rank    string
		methods map[string]*Route
	}
	groups := map[string]*group{}
	for _, p := range b.patterns {
		rank, takes := p.rank(strings.Split(path[1:], "/"))
		if !takes || p.host != "" && p.host != host {
			continue
		}
		if p.host == "" {
			rank = "z" + rank // a host beats none
		}
		if groups[rank] == nil {
			groups[rank] = &group{rank, map[string]*Route{}}
		}
		groups[rank].methods[p.method] = p.route
	}
	var lane *Route
	for _, rank := range slices.Sorted(maps.Keys(groups)) {
		methods := groups[rank].methods
		fits := []string{method, ""}
		if method == "HEAD" {
			fits = []string{"HEAD", "GET", ""}
		}
		for _, m := range fits {
			if methods[m] != nil {
				return methods[m], nil
			}
		}
		for _, m := range slices.Sorted(maps.Keys(methods)) {
			if methods[m].Lane != nil && lane == nil {
				lane = methods[m]
			}
			if allowed = append(allowed, m); m == "GET" {
				allowed = append(allowed, "HEAD")
			}
		}
	}
	if method == "OPTIONS" && lane != nil {
		return lane, nil
	}
	slices.Sort(allowed)
	return nil, slices.Compact(allowed)
}

// ---- Any routes, any request.

// FuzzRoutes: the table finds what the rules say, refuses what they make
// ambiguous, and is not put off by any target that the wire check lets through.
// A route is a line; "local " in front makes it one of our own.
func FuzzRoutes(f *testing.F) {
	for _, routes := range []string{
		"/", "/a", "/a/\n/a\n/", "/{x}\n/a/{x...}", "/a/{$}\n/a/\nlocal /a/b", "GET /a\nPOST /a\n/",
		"a.test/\n/a/b", "POST /{x}/b\n/a/{y}\nGET /a/b\n/", "//\n/a//b", "local OPTIONS /a\nGET /a", "local /x\n/x", "/{$}",
		"/{x...}\n/{y}/{z...}", "a.test/{x}/c\nb.test/a/", "local /health\n/\n/ws/message", "/a\n/a", "HEAD /a\nlocal GET /a", "/$a\n/a",
	} {
		for _, target := range []string{"/", "/a", "/a/b", "/a//b", "/%61/b", "/a%2Fb", "/a/../b", "//", "/a%", "/%2561", "*", "/a?/b", "/ws/message/"} {
			f.Add(routes, "GET", "A.test:80", target)
			f.Add(routes, "OPTIONS", "c.test", target)
			f.Add(routes, "HEAD", "", target)
		}
	}
	f.Fuzz(func(t *testing.T, lines, method, host, target string) {
		routes, book, again := readRules(lines)
		table, err := newTable(routes, nil)
		if again != (err != nil) {
			t.Fatalf("%q: two take the same requests: %v; the table says %v", lines, again, err)
		}
		var r request
		fault := r.parseRequestLine([]byte(method + " " + target + " HTTP/1.1"))
		if again || fault != nil || host != "" && !validHost([]byte(host)) {
			return
		}
		if !r.formerTarget {
			r.host = []byte(host)
		}
		name := strings.ToLower(string(r.host))
		if at := strings.LastIndexByte(name, ':'); at > strings.LastIndexByte(name, ']') {
			name = name[:at]
		}
		sent := bytes.Clone(r.target)
		got, allowed := table.find(&r)
		want, wantAllowed := book.find(method, name, string(r.target))
		if got != want || !slices.Equal(allowed, wantAllowed) {
			t.Fatalf("%s %s at %q of %q is found at %v %q, want %v %q", method, r.target, name, lines, matchOf(got), allowed, matchOf(want), wantAllowed)
		}
		if !bytes.Equal(r.target, sent) {
			t.Fatalf("looking for %q left %q", sent, r.target)
		}
	})
}

func matchOf(rt *Route) string {
	if rt == nil {
		return "nothing"
	}
	return strconv.Quote(rt.Match)
}

// readRules makes routes, and the rules for them, of the lines that are
// patterns; again: two of them take the same requests.
func readRules(lines string) (routes []Route, book ruleBook, again bool) {
	lane := new(lanes.Lane)
	var parsed []Pattern
	for line := range strings.Lines(lines) {
		match, local := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "local ")
		rt := Route{Match: match, Lane: lane}
		if local {
			rt.Lane, rt.Respond = nil, &Respond{Status: 200}
		}
		if p, err := ParsePattern(match); err == nil {
			parsed, routes = append(parsed, p), append(routes, rt)
		}
	}
	for i, p := range parsed {
		book.add(p, &routes[i])
	}
	for i, p := range book.patterns {
		again = again || slices.ContainsFunc(book.patterns[:i], p.same)
	}
	return routes, book, again
}

// FuzzGuarded: a guarded path is found in no spelling that means it, and takes
// no other path along.
func FuzzGuarded(f *testing.F) {
	for _, target := range []string{"/ws/message", "//ws/message", "/ws/./message", "/ws/message/", "/%77s/message", "/ws/x/../message",
		"/ws/message/.", "/ws%2fmessage", "/ws/%2e/message", "/ws/messages", "/ws", "/ws/message/x", "/WS/message", "/%2577s/message", "/ws/message;", "/?/ws/message"} {
		f.Add(target)
	}
	f.Fuzz(func(t *testing.T, target string) {
		var r request
		if r.parseRequestLine([]byte("GET "+target+" HTTP/1.1")) != nil {
			return
		}
		table, err := newTable([]Route{{Match: "/", Lane: new(lanes.Lane)}}, []string{"/ws/message/"})
		if err != nil {
			t.Fatal(err)
		}
		var steps []string
		for seg := range strings.SplitSeq(decodedOnce(string(r.target)), "/") {
			switch {
			case seg == "..":
				steps = steps[:max(0, len(steps)-1)]
			case seg != "" && seg != ".":
				steps = append(steps, seg)
			}
		}
		means := slices.Equal(steps, []string{"ws", "message"})
		if rt, allowed := table.find(&r); (rt == nil) != means || allowed != nil {
			t.Fatalf("%q: found is %v, and that it means the guarded path is %v", r.target, rt != nil, means)
		}
	})
}

// ---- The same as net/http, where the two mean to agree.

// Patterns and paths are drawn at random. Not compared, because the two differ
// by intention:
//
//   - net/http redirects /a to /a/ and cleans paths: here neither is done, and
//     empty segments, "." and ".." are literal. Only clean paths are drawn, and
//     a redirect is compared with nothing.
//   - net/http decodes escapes segment by segment, so that %2F divides nothing;
//     here the path is decoded once and then divided, as WSGI has it.
//   - net/http refuses two patterns of which neither is the more specific. Here
//     the earlier segment decides, then the method.
//   - OPTIONS goes to the app where net/http answers 405.
//   - A route of our own without a method is for GET and HEAD only.
//   - Hosts are compared in lower case.
func TestMatch_AgreesWithNetHTTP(t *testing.T) {
	compared, refused, redirected := 0, 0, 0
	for seed := range uint64(2000) {
		d := draw{rand.New(rand.NewPCG(seed, 2))}
		mux, here := http.NewServeMux(), http.NotFoundHandler()
		var routes []Route
		for range 1 + d.IntN(8) {
			match := d.pattern()
			if !register(mux, match, here) {
				refused++
				continue
			}
			routes = append(routes, Route{Match: match, Lane: new(lanes.Lane)})
		}
		table, err := newTable(routes, nil)
		if err != nil {
			t.Fatalf("seed %d: net/http takes what is refused here: %v", seed, err)
		}
		for range 40 {
			switch compareMatch(t, mux, table, routes, d.of("GET", "HEAD", "POST", "PUT", "DELETE"), d.of("a.test", "b.test", "c.test"), d.path()) {
			case true:
				compared++
			case false:
				redirected++
			}
		}
	}
	t.Logf("%d compared, %d patterns refused by net/http, %d redirects", compared, refused, redirected)
	if compared < 40000 || refused < 100 {
		t.Errorf("only %d compared, %d refused: the draw has gone wrong", compared, refused)
	}
}

// compareMatch asks both; false: net/http would redirect.
func compareMatch(t *testing.T, mux *http.ServeMux, table *table, routes []Route, method, host, path string) bool {
	t.Helper()
	asked := httptest.NewRequest(method, "http://"+host+path, nil)
	handler, pattern := mux.Handler(asked)
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, asked)
	if answer.Code/100 == 3 {
		return false
	}
	var r request
	if fault := r.parseRequestLine([]byte(method + " " + path + " HTTP/1.1")); fault != nil {
		t.Fatalf("%s %s: %v", method, path, fault)
	}
	r.host = []byte(host)
	rt, allowed := table.find(&r)
	say := func(what string, values ...any) {
		t.Helper()
		var matches []string
		for _, rt := range routes {
			matches = append(matches, rt.Match)
		}
		t.Fatalf("%s %s%s among %q: %s", method, host, path, matches, fmt.Sprintf(what, values...))
	}
	found := ""
	if rt != nil {
		found = rt.Match
	}
	if found != pattern {
		say("found at %q, by net/http at %q", found, pattern)
	}
	theirs := answer.Header().Get("Allow")
	if pattern != "" {
		return true
	}
	if !strings.HasSuffix(path, "/") { // net/http counts what it would redirect to
		for _, m := range allowed {
			if !slices.Contains(strings.Split(theirs, ", "), m) {
				say("%q are allowed, by net/http %q", allowed, theirs)
			}
		}
		return true
	}
	if got := strings.Join(allowed, ", "); got != theirs {
		say("%q are allowed, by net/http %q", got, theirs)
	}
	return true
}

// register reports whether net/http takes the pattern beside the others.
func register(mux *http.ServeMux, match string, handler http.Handler) (ok bool) {
	defer func() { ok = recover() == nil }()
	mux.Handle(match, handler)
	return true
}

// draw draws from few words, so that much collides.
type draw struct{ *rand.Rand }

func (d draw) of(words ...string) string { return words[d.IntN(len(words))] }

func (d draw) pattern() string {
	match := d.of("", "", "", "GET ", "POST ", "HEAD ", "PUT ") + d.of("", "", "", "a.test", "b.test")
	for i := range d.IntN(4) {
		match += "/" + d.of("a", "b", "c", fmt.Sprintf("{x%d}", i))
	}
	return match + d.of("/", "/", "/{$}", "/{rest...}", "/a", "/{x}")
}

func (d draw) path() (path string) {
	for range d.IntN(5) {
		path += "/" + d.of("a", "b", "c", "d")
	}
	return path + d.of("/", "/a", "/b")
}

// ---- Parts that no request shows alone.

func TestTrusted_ANetworkHasItsAddressesWithAZoneToo(t *testing.T) {
	trusted := Trusted{Networks: []netip.Prefix{netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("10.1.0.0/16")}}
	for text, want := range map[string]bool{
		"10.1.2.3": true, "10.2.2.3": false, "fe80::1": true, "fe80::1%eth0": true, "fec0::1%eth0": false,
	} {
		if got := trusted.has(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s is trusted: %v, want %v", text, got, want)
		}
	}
}
