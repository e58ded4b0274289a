package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"go.uber.org/zap"

	"holdfast/lanes"
	"holdfast/proxy"
)

// app is an upstream that answers everything with its name, behind a lane of
// its own: who answers shows which route was taken.
type app struct {
	*recordingUpstream
	lane *lanes.Lane
}

func startNamed(t *testing.T, name string) app {
	t.Helper()
	up := newScriptedUpstream(t, func(conn net.Conn, request recordedRequest) bool {
		body := name
		if request.Method == "HEAD" {
			body = ""
		}
		_, err := fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nX-App: %s\r\nContent-Length: %d\r\n\r\n%s", name, len(name), body)
		return err == nil
	})
	return app{up, startLane(t, up.Addr(), lanes.Config{Name: name, Slots: 1, Queue: 8})}
}

// startNamedRoutes serves each pattern by an app of its name. A pattern behind
// "local " is answered here.
func startNamedRoutes(t *testing.T, matches ...string) (addr string) {
	t.Helper()
	var routes []proxy.Route
	for _, match := range matches {
		if local, ok := strings.CutPrefix(match, "local "); ok {
			routes = append(routes, proxy.Route{Match: local, Respond: &proxy.Respond{Status: 200, Fields: []string{"X-App", match}, Body: []byte(match)}})
		} else {
			routes = append(routes, proxy.Route{Match: match, Lane: startNamed(t, match).lane})
		}
	}
	return startServer(t, proxy.Config{}, routes)
}

// matchAsk is "METHOD [HOST]/PATH", and what is to come of it: the pattern,
// "404", or "405 " and what is allowed.
type matchAsk struct{ ask, want string }

func (a matchAsk) play(t *testing.T, c *wireClient) {
	t.Helper()
	method, rest, _ := strings.Cut(a.ask, " ")
	slash := strings.IndexByte(rest, '/')
	host := rest[:slash]
	if host == "" {
		host = "other.test"
	}
	c.say(t, fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\n\r\n", method, rest[slash:], host))
	answer, err := c.Read(method)
	if err != nil || answer.closes() {
		t.Fatalf("%s: %v, closing is %v", a.ask, err, answer.closes())
	}
	got := fmt.Sprint(answer.status)
	switch answer.status {
	case 200:
		got = answer.get("X-App")
	case 405:
		got += " " + answer.get("Allow") // two of them would show
	}
	if got != a.want {
		t.Errorf("%s: %s, want %s", a.ask, got, a.want)
	}
}

func TestMatch_TheMostSpecificRouteHasIt(t *testing.T) {
	for name, c := range map[string]struct {
		routes []string
		asks   []matchAsk
	}{
		"Segments": {
			[]string{"/", "/a/", "/a/{$}", "/a/b", "GET /a/b", "/a/{x}", "/{x}/b", "/{x}/{y}/c", "/a/{x}/{rest...}", "/d/{$}"},
			[]matchAsk{
				{"GET /a/b", "GET /a/b"}, {"HEAD /a/b", "GET /a/b"}, {"POST /a/b", "/a/b"}, // then a method beats none
				{"GET /a/z", "/a/{x}"}, {"GET /z/b", "/{x}/b"}, {"GET /z/y/c", "/{x}/{y}/c"},
				{"GET /a/", "/a/{$}"}, {"GET /a/b/", "/a/{x}/{rest...}"}, {"GET /a/b/d/e", "/a/{x}/{rest...}"},
				{"GET /a/b/c", "/a/{x}/{rest...}"},                                         // the first segment decides: a literal beats a wildcard
				{"GET /a", "/"}, {"GET /d", "/"}, {"GET /d/", "/d/{$}"}, {"GET /d/e", "/"}, // nothing is redirected
				{"GET //b", "/"}, {"GET /a//b", "/a/"}, // a wildcard takes no empty segment
				{"GET /", "/"}, {"GET /z/y", "/"}, {"GET /b", "/"},
			},
		},
		"Hosts": {
			[]string{"/a/b", "/", "h.test/", "h.test/a/{x}", "GET h.test/a/c", "i.test/only"},
			[]matchAsk{
				{"GET h.test/a/b", "h.test/a/{x}"}, {"GET H.Test/a/b", "h.test/a/{x}"}, {"GET h.test:8080/a/b", "h.test/a/{x}"},
				{"GET h.test/z", "h.test/"}, {"GET /a/b", "/a/b"}, {"GET /z", "/"}, {"GET x.h.test/z", "/"}, {"GET h.test./z", "/"},
				{"GET h.test/a/c", "GET h.test/a/c"}, {"PUT h.test/a/c", "h.test/a/{x}"},
				{"GET i.test/only", "i.test/only"}, {"GET i.test/a/b", "/a/b"}, {"GET [::1]/z", "/"}, {"GET [::1]:80/a/b", "/a/b"},
			},
		},
		"Methods": {
			[]string{"/", "POST /files/", "GET /files/{name}", "local /made", "local POST /done", "local OPTIONS /cors", "GET /cors", "HEAD /head", "GET /head", "/both", "local /both"},
			[]matchAsk{
				{"GET /files/x", "GET /files/{name}"}, {"HEAD /files/x", "GET /files/{name}"}, {"POST /files/x", "POST /files/"},
				{"GET /files/x/y", "/"}, {"DELETE /files/x", "/"}, {"GET /files/", "/"}, {"POST /files/", "POST /files/"},
				{"GET /both", "local /both"}, {"HEAD /both", "local /both"}, {"POST /both", "/both"}, {"OPTIONS /both", "/both"},
				{"GET /made", "local /made"}, {"HEAD /made", "local /made"}, {"OPTIONS /made", "/"},
				{"POST /done", "local POST /done"}, {"GET /done", "/"},
				{"OPTIONS /cors", "local OPTIONS /cors"}, {"GET /cors", "GET /cors"},
				{"HEAD /head", "HEAD /head"}, {"GET /head", "GET /head"}, {"PROPFIND /files/x", "/"},
			},
		},
		"NotAllowed": {
			[]string{"GET /a", "POST /a", "PUT /{x}", "DELETE h.test/a", "local /made", "PATCH /b/", "local /b/c"},
			[]matchAsk{
				{"PATCH /a", "405 GET, HEAD, POST, PUT"}, {"PATCH h.test/a", "405 DELETE, GET, HEAD, POST, PUT"},
				{"GET /z", "405 PUT"}, {"HEAD /z", "405 PUT"}, {"POST /made", "405 GET, HEAD, PUT"}, {"DELETE /b/c", "405 GET, HEAD, PATCH"},
				{"OPTIONS /a", "GET /a"}, {"OPTIONS /z", "PUT /{x}"}, {"OPTIONS /b/c", "PATCH /b/"}, // the app's to answer
				{"GET /", "404"}, {"GET /a/", "404"}, {"PATCH /b", "405 PUT"}, {"OPTIONS /x/y", "404"}, {"get /a", "405 GET, HEAD, POST, PUT"},
			},
		},
		"OnlyHere": {
			[]string{"local /made"},
			[]matchAsk{{"OPTIONS /made", "405 GET, HEAD"}, {"POST /made", "405 GET, HEAD"}, {"GET /made/", "404"}},
		},
		"OnlyAHost": {
			[]string{"h.test/a"},
			[]matchAsk{{"GET h.test/a", "h.test/a"}, {"GET /a", "404"}, {"GET h.test/", "404"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			client := dialWire(t, startNamedRoutes(t, c.routes...))
			for _, ask := range c.asks {
				ask.play(t, client)
			}
		})
	}
}

func TestMatch_ARequestWithoutAHostGoesWhereNoHostIsNamed(t *testing.T) {
	addr := startNamedRoutes(t, "/", "h.test/")
	for _, line := range []string{"GET / HTTP/1.0\r\n\r\n", "GET /x HTTP/1.1\r\nHost: i.test\r\n\r\n", "GET http://i.test/ HTTP/1.1\r\nHost: h.test\r\n\r\n"} {
		say(t, addr, line).wantAnswer(t, "GET", 200, "/")
	}
	say(t, addr, "GET http://h.test/ HTTP/1.1\r\nHost: i.test\r\n\r\n").wantAnswer(t, "GET", 200, "h.test/")
}

func TestMatch_APatternThatIsNoneIsRefusedWithTheReason(t *testing.T) {
	for match, want := range map[string]string{
		"":                "has no path",
		"a/b/":            "", // a host, and a path
		"a":               "has no path (write /a)",
		"GET":             "has no path (write /GET)",
		"GET a":           "has no path (write /a)",
		"get /a":          `begins with "get"`,
		"Get /a":          `begins with "Get"`,
		"G(T /a":          `begins with "G(T"`,
		" /a":             `begins with ""`,
		"a.test:80/":      `has the host "a.test:80"`,
		"a test/":         `begins with "a"`,
		"GET a test/":     `has the host "a test"`,
		"{h}/":            `has the host "{h}"`,
		"a,b/":            `has the host "a,b"`,
		"/{}":             "has {}, which is not a name of its own in braces",
		"/{a b}":          "has {a b}, which is not a name",
		"/{1}":            "has {1}, which is not a name",
		"/{...}":          "has {...}, which is not a name",
		"/{a}/{a}":        "has {a}, which is not a name of its own",
		"/{a...}/b":       "has {a...} before its end",
		"/{$}/b":          "has {$} before its end",
		"/a{b}":           `has a brace inside the segment "a{b}"`,
		"/{b}a":           `has a brace inside the segment "{b}a"`,
		"/a}":             `has a brace inside the segment "a}"`,
		"/{":              `has a brace inside the segment "{"`,
		"/a{$}":           `has a brace inside the segment "a{$}"`,
		"GET  a.test/{_}": "",
		"/{a1}/{b...}":    "",
		"PROPFIND /a":     "",
		"A.Test/x":        "",
	} {
		p, err := proxy.ParsePattern(match)
		switch {
		case want == "" && err != nil:
			t.Errorf("%q: %v", match, err)
		case want == "":
			if p.Host != strings.ToLower(p.Host) || !strings.HasPrefix(p.Path, "/") {
				t.Errorf("%q is read as %+v", match, p)
			}
		case err == nil || !strings.Contains(err.Error(), want):
			t.Errorf("%q: %v, want %q", match, err, want)
		default:
			routes := []proxy.Route{{Match: match, Respond: &proxy.Respond{Status: 200}}}
			if _, err := proxy.New(proxy.Config{}, routes, zap.NewNop(), nil); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("route %q %s", match, want)) {
				t.Errorf("%q in a table: %v", match, err)
			}
		}
	}
}

func TestMatch_TwoRoutesForTheSameRequestsAreRefused(t *testing.T) {
	app := startNamed(t, "app")
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"/a/{x}", "/a/{y}", true}, {"/a/", "/a/{rest...}", true}, {"GET /a", "GET  /a", true}, {"A.test/", "a.test/", true},
		{"local /a", "local GET /a", true}, {"local /a", "GET /a", true}, {"/{a}/b/{c...}", "/{b}/b/", true},
		{"/a/{x}", "/a/{$}", false}, {"/a", "/a/", false}, {"GET /a", "/a", false}, {"a.test/", "/", false}, {"GET /a", "HEAD /a", false},
		{"local /a", "/a", false}, {"/{x}/b", "/a/{x}", false}, {"/a", "/A", false},
	} {
		var routes []proxy.Route
		for _, match := range []string{c.a, c.b} {
			local, ok := strings.CutPrefix(match, "local ")
			if ok {
				routes = append(routes, proxy.Route{Match: local, Respond: &proxy.Respond{Status: 200}})
			} else {
				routes = append(routes, proxy.Route{Match: match, Lane: app.lane})
			}
		}
		server, err := proxy.New(proxy.Config{}, routes, zap.NewNop(), nil)
		if err == nil {
			stop(server)
		}
		if (err != nil) != c.same {
			t.Errorf("%q and %q: %v", c.a, c.b, err)
		}
		if want := fmt.Sprintf("routes %q and %q match the same requests", routes[0].Match, routes[1].Match); c.same && err.Error() != want {
			t.Errorf("%q, want %q", err, want)
		}
	}
}

// stop ends a server that serves nothing.
func stop(server *proxy.Server) { server.Shutdown(context.Background()) }

// ---- Path confusion.

// pathInfo is what gunicorn 20.1 with Django 3.2 gives as PATH_INFO for each
// raw target, as asked by hand; decoded bytes that are no UTF-8 are written as
// Go writes them. Bytes above 0x7f that are not escaped are left out: app
// servers do not agree on them (gunicorn takes each for a Latin-1 character).
var pathInfo = map[string]string{
	"/slow/": "/slow/", "/%73low/": "/slow/", "/%73%6C%6f%77%2F": "/slow/", "/slow%2f": "/slow/", "/slow%2Fx": "/slow/x",
	"/slow/..": "/slow/..", "/slow/../": "/slow/../", "/slow/%2e%2e/fast": "/slow/../fast", "/slow/.": "/slow/.", "/slow//x": "/slow//x",
	"/slow/?/fast/": "/slow/", "/slow/%3f": "/slow/?", "/slow/%00": "/slow/\x00", "/slow/%": "/slow/%", "/slow/%zz": "/slow/%zz", "/slow/%0a": "/slow/\n",

	"//slow/": "//slow/", "///slow/": "///slow/", "//a.test/slow/": "//a.test/slow/", "/%2fslow/": "//slow/",
	"/./slow/": "/./slow/", "/%2e/slow/": "/./slow/", "/x/../slow/": "/x/../slow/", "/x/%2e%2e/slow/": "/x/../slow/", "/x/..%2fslow/": "/x/../slow/",
	"/slow": "/slow", "/slow;a/": "/slow;a/", "/slow;/x": "/slow;/x", "/slow%3b/x": "/slow;/x", "/slow%3fx": "/slow?x", "/slow%23x": "/slow#x",
	"/slow%5c": `/slow\`, "/slow:80/x": "/slow:80/x", "/slow%00/": "/slow\x00/", "/slow%20/": "/slow /", "/slow+/": "/slow+/", "/slow%09/": "/slow\t/",
	"/SLOW/": "/SLOW/", "/Slow/": "/Slow/", "/%53%4c%4f%57/": "/SLOW/", "/%2573low/": "/%73low/", "/slow%252f": "/slow%2f", "/slow%25%32%66": "/slow%2f",
	"/slow%": "/slow%", "/slow%2": "/slow%2", "/slow%zz/": "/slow%zz/",
	"/slow%c0%af": "/slow\xc0\xaf", "/s%c1%ac%6fw/": "/s\xc1\xacow/", "/%e2%80%aeslow/": "/\u202eslow/", "/slow%ef%bc%8f": "/slow\uff0f",
	"/?/slow/": "/", "/x?a=/slow/": "/x", "/@/slow/": "/@/slow/", "/a:b//slow/": "/a:b//slow/", "/http://slow/": "/http://slow/", "//[x/slow/": "//[x/slow/",

	"/caf%c3%a9/": "/caf\u00e9/", "/caf%C3%A9/x": "/caf\u00e9/x", "/caf%e9/": "/caf\xe9/", "/cafe%cc%81/": "/cafe\u0301/", "/caf%c3%83%c2%a9/": "/caf\u00c3\u00a9/",
	"/health": "/health", "/%68ealth": "/health", "//health": "//health", "/health/": "/health/", "/health%3f": "/health?", "/health;": "/health;", "/HEALTH": "/HEALTH",
}

// Whichever way a path is written: it is on the lane of what the app will see,
// and the app sees it as it was written.
func TestMatch_APathIsOnTheLaneOfWhatTheAppSees(t *testing.T) {
	apps := map[string]app{}
	for _, name := range []string{"fast", "slow", "caf\u00e9"} {
		apps[name] = startNamed(t, name)
	}
	addr := startServer(t, proxy.Config{}, []proxy.Route{
		{Match: "/", Lane: apps["fast"].lane}, {Match: "/slow/", Lane: apps["slow"].lane}, {Match: "/caf\u00e9/", Lane: apps["caf\u00e9"].lane},
		{Match: "/health", Respond: &proxy.Respond{Status: 200, Body: []byte("here")}},
	})
	c := dialWire(t, addr)
	for target, path := range pathInfo {
		want := "fast"
		switch {
		case strings.HasPrefix(path, "/slow/"):
			want = "slow"
		case strings.HasPrefix(path, "/caf\u00e9/"):
			want = "caf\u00e9"
		case path == "/health":
			want = "here"
		}
		for _, form := range []string{target, "http://a.test" + target} {
			before := apps[want].Count
			seen := 0
			if want != "here" {
				seen = before()
			}
			c.say(t, get(form))
			answer := c.wantAnswer(t, "GET", 200, "*")
			if got := string(answer.body); got != want {
				t.Errorf("%q is on %s, and the app sees %q: want %s", form, got, path, want)
				continue
			}
			if want == "here" {
				continue
			}
			if got := apps[want].Since(seen)[0].Target; got != target {
				t.Errorf("%q reached the app as %q", form, got)
			}
		}
	}
}

// ---- Guarded paths.

func TestMatch_AGuardedPathIsReachedInNoSpelling(t *testing.T) {
	app := startNamed(t, "app")
	here := proxy.Route{Match: "/ws/", Respond: &proxy.Respond{Status: 200, Body: []byte("here")}}
	addr := startServer(t, proxy.Config{Guarded: []string{"/ws/message", "/in/box/"}},
		[]proxy.Route{{Match: "/", Lane: app.lane}, {Match: "POST /ws/message", Lane: app.lane}, {Match: "a.test/ws/message", Lane: app.lane}, here})
	spellings := []string{
		"/ws/message", "/ws/message?x=1", "/ws/message/", "//ws/message", "/ws//message", "/ws/message//", "/./ws/message", "/ws/./message",
		"/ws/message/.", "/x/../ws/message", "/ws/x/../message", "/ws/message/x/..", "/../ws/message", "/%77s/message", "/ws/%6dessage", "/ws%2fmessage",
		"/ws%2Fmessage%2f", "/%2e/ws/message", "/ws/%2e%2E/ws/message", "/%2f%77%73%2f%6d%65%73%73%61%67%65", "http://a.test/ws/message", "http://b.test//ws/message?",
		"/in/box/", "/in/box", "/in/%62ox", "//in/box//", "/in/./box",
	}
	open := []string{
		"/ws/messages", "/ws/message/x", "/ws", "/ws/", "/WS/message", "/ws/Message", "/ws/%256dessage", "/ws/message;", "/ws/message;x=1", "/ws/message%3f", "/ws/message%00",
		"/message", "/ws/message/../x", "/?/ws/message", "/in", "/in/box/x",
	}
	methods := []string{"GET", "POST", "HEAD", "OPTIONS", "PUT"}
	taken := dialWire(t, addr)
	taken.say(t, "POST /before HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\n\r\n")
	taken.wantAnswer(t, "POST", 200, "app")
	before := app.Count()
	for _, target := range spellings {
		for _, method := range methods {
			for name, c := range map[string]*wireClient{"taken over": taken, "fresh": dialWire(t, addr)} {
				c.say(t, method+" "+target+" HTTP/1.1\r\nHost: a.test\r\n\r\n")
				answer := c.wantAnswer(t, method, 404, "*")
				if answer.get("Holdfast-Reason") != "no_route" || answer.get("Allow") != "" {
					t.Errorf("%s %s on a connection %s: %q", method, target, name, answer.fields)
				}
			}
		}
		old := say(t, addr, "POST "+target+" HTTP/1.0\r\nContent-Length: 5\r\n\r\nhello")
		old.wantReason(t, 404, "no_route")
	}
	if got := app.Since(before); len(got) > 0 {
		t.Errorf("the app was asked %s", got[0].Head)
	}
	for _, target := range open {
		for name, c := range map[string]*wireClient{"taken over": taken, "fresh": dialWire(t, addr)} {
			c.say(t, get(target))
			if answer := c.wantAnswer(t, "GET", 200, "*"); !slices.Contains([]string{"app", "here"}, string(answer.body)) {
				t.Errorf("%s on a connection %s: %q", target, name, answer.body)
			}
		}
	}
}

// ---- A new configuration.

func TestConfigure_WhatIsRefusedChangesNothing(t *testing.T) {
	app := startNamed(t, "app")
	routes := []proxy.Route{{Match: "/", Lane: app.lane}}
	server, addr := startDrainable(t, proxy.Config{BodyBytes: 5, Guarded: []string{"/guarded"}}, routes)
	wantOld := func(c *wireClient) {
		t.Helper()
		c.say(t, get("/guarded"))
		c.wantReason(t, 404, "no_route")
		c.say(t, get("/made")) // the first is on the app in both
		c.wantAnswer(t, "GET", 200, "app")
		c.say(t, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello")
		c.wantAnswer(t, "POST", 200, "app")
		c.say(t, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nhello!")
		c.wantReason(t, 413, "body_too_large")
	}
	open := say(t, addr, get("/"))
	open.wantAnswer(t, "GET", 200, "app")
	wantOld(dialWire(t, addr))

	made := proxy.Route{Match: "/made", Respond: &proxy.Respond{Status: 200, Body: []byte("here")}}
	for _, bad := range [][]proxy.Route{{made, made}, {made, {Match: "no path", Lane: app.lane}}, {made, {Match: "/{}", Lane: app.lane}}} {
		if err := server.Configure(proxy.Config{BodyBytes: 100}, bad); err == nil {
			t.Fatalf("%q is taken", bad[1].Match)
		}
		wantOld(dialWire(t, addr))
	}
	wantOld(open)

	if err := server.Configure(proxy.Config{BodyBytes: 100}, []proxy.Route{made, {Match: "POST /", Lane: app.lane}}); err != nil {
		t.Fatal(err)
	}
	c := say(t, addr, get("/made")+get("/guarded")+"POST /made HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nhello!")
	c.wantAnswer(t, "GET", 200, "here")
	c.wantReason(t, 404, "no_route") // once guarded, always: held sockets may still send there
	c.wantAnswer(t, "POST", 200, "app")
}

// While it serves, each request has one configuration: the old one or the new.
func TestConfigure_UnderLoadNoRequestSeesTwo(t *testing.T) {
	a, b := startNamed(t, "a"), startNamed(t, "b")
	of := func(app app, body string) []proxy.Route {
		return []proxy.Route{{Match: "/app", Lane: app.lane}, {Match: "/here", Respond: &proxy.Respond{Status: 200, Body: []byte(body)}}}
	}
	server, addr := startDrainable(t, proxy.Config{}, of(a, "a"))
	over, done := make(chan struct{}), make(chan error, 4)
	for i := range cap(done) {
		go askUntil(dialWire(t, addr), []string{"/app", "/here"}[i%2], over, done)
	}
	for i := range 200 {
		next, name := a, "a"
		if i%2 == 0 {
			next, name = b, "b"
		}
		if err := server.Configure(proxy.Config{}, of(next, name)); err != nil {
			t.Error(err)
		}
		// One that comes now has the new one, on an open connection too.
		c := say(t, addr, get("/app")+get("/here"))
		c.wantAnswer(t, "GET", 200, name)
		c.wantAnswer(t, "GET", 200, name)
	}
	close(over)
	for range cap(done) {
		if err := take(t, "a client ends", done); err != nil {
			t.Error(err)
		}
	}
	counted := uint64(0)
	for _, route := range server.Routes() { // counts go on across configurations
		if route.Route == "/here" {
			counted = route.Codes[200]
		}
	}
	if counted < 200 {
		t.Errorf("%d of /here are counted", counted)
	}
}

// askUntil asks for target on one connection until over, each answered by a or b.
func askUntil(c *wireClient, target string, over <-chan struct{}, done chan<- error) {
	for asked := 0; ; asked++ {
		select {
		case <-over:
			if asked == 0 {
				done <- errors.New("a client was never answered")
			}
			done <- nil
			return
		default:
		}
		if _, err := c.conn.Write([]byte(get(target))); err != nil {
			done <- err
			return
		}
		answer, err := c.Read("GET")
		if err != nil || answer.status != 200 || string(answer.body) != "a" && string(answer.body) != "b" {
			done <- fmt.Errorf("%s is answered %d %q, %v", target, answer.status, answer.body, err)
			return
		}
	}
}
