package proxy

import (
	"fmt"
	"strings"

	"holdfast/lanes"
)

// Route places the requests of a path: on a lane, or with an answer of our
// own. Exactly one of Lane, Respond and Answer is set.
type Route struct {
	// Match is an absolute path: one that ends with "/" takes everything
	// below it too, any other exactly itself. The most specific wins.
	Match string

	// Lane serves the route.
	Lane *lanes.Lane
	// BodyBytes is the largest request body; 0: the server's limit.
	BodyBytes int64
	// ForwardStreams lets an endless answer through, its slot held. Otherwise
	// it is refused.
	ForwardStreams bool

	// Respond is a fixed answer, for GET and HEAD.
	Respond *Respond
	// Answer makes the answer when asked, for GET and HEAD. It must not
	// block. near: the client is on this machine.
	Answer func(near bool) Respond
}

// Respond is an answer of our own.
type Respond struct {
	Status int
	Fields []string // name, value, name, value
	Body   []byte
}

// table is an immutable set of routes.
type table struct {
	exact    map[string]*Route
	subtrees []*Route // the longest first
}

func newTable(routes []Route) (*table, error) {
	t := &table{exact: make(map[string]*Route)}
	seen := make(map[string]bool)
	for i := range routes {
		rt := &routes[i]
		if !strings.HasPrefix(rt.Match, "/") {
			return nil, fmt.Errorf("route %q does not begin with /", rt.Match)
		}
		if seen[rt.Match] {
			return nil, fmt.Errorf("route %q stands twice", rt.Match)
		}
		seen[rt.Match] = true
		if strings.HasSuffix(rt.Match, "/") {
			t.subtrees = insertByLength(t.subtrees, rt)
		} else {
			t.exact[rt.Match] = rt
		}
	}
	return t, nil
}

func insertByLength(routes []*Route, rt *Route) []*Route {
	i := 0
	for i < len(routes) && len(routes[i].Match) >= len(rt.Match) {
		i++
	}
	routes = append(routes, nil)
	copy(routes[i+1:], routes[i:])
	routes[i] = rt
	return routes
}

// find gives the route of a request target, nil if there is none. The path is
// matched decoded once, as an app sees it in PATH_INFO; empty segments and
// ".." are literal. The target "*" goes where "/" goes.
func (t *table) find(target []byte) *Route {
	path := target
	if string(path) == "*" {
		path = []byte("/")
	}
	for i, c := range target {
		if c == '?' {
			path = target[:i]
			break
		}
	}
	for _, c := range path {
		if c == '%' {
			path = decodePath(path)
			break
		}
	}
	if rt := t.exact[string(path)]; rt != nil {
		return rt
	}
	for _, rt := range t.subtrees {
		if len(path) >= len(rt.Match) && string(path[:len(rt.Match)]) == rt.Match {
			return rt
		}
	}
	return nil
}

// decodePath decodes percent escapes once; a malformed one stays as it is, as
// in Python's unquote.
func decodePath(path []byte) []byte {
	decoded := make([]byte, 0, len(path))
	for i := 0; i < len(path); i++ {
		if path[i] == '%' && i+2 < len(path) {
			hi, ok1 := unhex(path[i+1])
			lo, ok2 := unhex(path[i+2])
			if ok1 && ok2 {
				decoded = append(decoded, hi<<4|lo)
				i += 2
				continue
			}
		}
		decoded = append(decoded, path[i])
	}
	return decoded
}

func unhex(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, true
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}
