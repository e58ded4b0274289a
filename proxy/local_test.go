package proxy_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.uber.org/zap/zapcore"

	"holdfast/lanes"
	"holdfast/proxy"
)

// ---- A fault of our own making.

func TestLocal_APanicIsAnAnswerAndNamedInTheLog(t *testing.T) {
	var nobody *proxy.Respond
	const hello = " HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nhello"
	asks := []struct{ request, cause string }{
		{get("/text"), "panic: the roof is on fire"},
		{get("/error"), "panic: the cellar is flooded"},
		{get("/nil"), "nil pointer dereference"},
		{"GET /text" + hello, "panic: the roof is on fire"},
		{"POST /body" + hello, "panic: not hello"},
	}
	for _, name := range []string{"Fresh", "TakenOver"} {
		t.Run(name, func(t *testing.T) {
			app := startNamed(t, "app")
			addr, logs := startLogged(t, "tcp", proxy.Config{}, []proxy.Route{
				{Match: "/", Lane: app.lane},
				{Match: "/text", Answer: func(*proxy.Asked) proxy.Respond { panic("the roof is on fire") }},
				{Match: "/error", Answer: func(*proxy.Asked) proxy.Respond { panic(errors.New("the cellar is flooded")) }},
				{Match: "/nil", Answer: func(*proxy.Asked) proxy.Respond { return *nobody }},
				{Match: "POST /body", BodyBytes: 5, Answer: func(asked *proxy.Asked) proxy.Respond { panic("not " + string(asked.Body)) }},
				{Match: "/fine", Answer: func(*proxy.Asked) proxy.Respond { return proxy.Respond{Status: 200, Body: []byte("fine")} }},
			})
			c, other := dialWire(t, addr), say(t, addr, get("/fine"))
			if name == "TakenOver" {
				c.say(t, get("/app"))
				c.wantAnswer(t, "GET", 200, "app")
			}
			for i, ask := range asks {
				c.say(t, ask.request+get("/fine"))
				answer := c.wantReason(t, 500, "internal", "the log names the cause")
				if text := string(answer.body); strings.Contains(text, "roof") || strings.Contains(text, "goroutine") || answer.closes() {
					t.Errorf("the client is shown %s, closing is %v", text, answer.closes())
				}
				c.wantAnswer(t, "GET", 200, "fine") // the connection goes on
				entries := logs.FilterMessage("request refused").All()
				if len(entries) != i+1 {
					t.Fatalf("%d refusals are logged, want %d", len(entries), i+1)
				}
				fields := entries[i].ContextMap()
				cause := fmt.Sprint(fields["error"])
				if entries[i].Level < zapcore.WarnLevel || fields["reason"] != "internal" || fields["route"] == "" ||
					!strings.Contains(cause, ask.cause) || !strings.Contains(cause, "local_test.go") {
					t.Errorf("%s: the log says %v %v", ask.cause, entries[i].Level, fields)
				}
			}
			c.say(t, "HEAD /text HTTP/1.1\r\nHost: a.test\r\n\r\n"+get("/app"))
			if answer := c.wantAnswer(t, "HEAD", 500, ""); answer.get("Holdfast-Reason") != "internal" {
				t.Errorf("HEAD: %q", answer.fields)
			}
			c.wantAnswer(t, "GET", 200, "app")
			other.wantAnswer(t, "GET", 200, "fine")
			other.say(t, get("/app"))
			other.wantAnswer(t, "GET", 200, "app")
			until(t, "no slot is in use", func() bool { return app.lane.Snapshot().InUse == 0 })
		})
	}
}

// ---- Answers without a body.

// Both writers of local answers say the same: the first serves a fresh
// connection, the second one that was taken over.
func TestLocal_HEADAndStatusesWithoutABodyEndAtTheHead(t *testing.T) {
	answer := func(status int, body string) func(*proxy.Asked) proxy.Respond {
		return func(*proxy.Asked) proxy.Respond {
			return proxy.Respond{Status: status, Fields: []string{"ETag", `"x"`}, Body: []byte(body)}
		}
	}
	addr := startServer(t, proxy.Config{}, []proxy.Route{
		{Match: "/ok", Answer: answer(200, "hello")}, {Match: "/empty", Answer: answer(200, "")}, {Match: "/none", Answer: answer(204, "hidden")},
		{Match: "/same", Answer: answer(304, "hidden")}, {Match: "/fixed", Respond: &proxy.Respond{Status: 404, Body: []byte("gone")}},
		{Match: "POST /take", Answer: answer(200, "taken")}, {Match: "HEAD /head", Answer: answer(200, "never shown")},
	})
	for _, taken := range []bool{false, true} {
		c := dialWire(t, addr)
		if taken {
			c.say(t, "POST /take HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
			c.wantAnswer(t, "POST", 200, "taken")
		}
		for _, ask := range []struct {
			target string
			status int
			body   string
			length string // of GET and HEAD alike
		}{
			{"/ok", 200, "hello", "5"}, {"/empty", 200, "", "0"}, {"/none", 204, "", ""}, {"/same", 304, "", ""}, {"/fixed", 404, "gone", "4"},
		} {
			for _, method := range []string{"GET", "HEAD", "GET"} {
				c.say(t, method+" "+ask.target+" HTTP/1.1\r\nHost: a\r\n\r\n")
				body := ask.body
				if method == "HEAD" {
					body = ""
				}
				got := c.wantAnswer(t, method, ask.status, body)
				// What is empty need not be announced to HEAD (RFC 9110 §9.3.2).
				if length := got.get("Content-Length"); length != ask.length && !(method == "HEAD" && ask.length == "0" && length == "") {
					t.Errorf("%s %s, taken over: %v: Content-Length %q, want %q", method, ask.target, taken, length, ask.length)
				}
				if got.get("Transfer-Encoding") != "" || got.closes() || got.get("ETag") == "" && ask.target != "/fixed" {
					t.Errorf("%s %s, taken over: %v: %q", method, ask.target, taken, got.fields)
				}
			}
		}
		c.say(t, "HEAD /head HTTP/1.1\r\nHost: a\r\n\r\n"+get("/head"))
		c.wantAnswer(t, "HEAD", 200, "")
		if got := c.wantReason(t, 405, "method_not_allowed"); got.get("Allow") != "HEAD" {
			t.Errorf("Allow %q", got.get("Allow"))
		}
	}
}

// ---- What is asked.

func TestLocal_AnAnswerSeesWhatWasAsked(t *testing.T) {
	var seen []proxy.Asked
	note := func(asked *proxy.Asked) proxy.Respond {
		seen = append(seen, proxy.Asked{Method: asked.Method, Path: asked.Path, Query: asked.Query, Body: append([]byte(nil), asked.Body...)})
		return proxy.Respond{Status: 200, Body: []byte(asked.Field("x-a") + "|" + asked.Field("x-none"))}
	}
	addr := startServer(t, proxy.Config{}, []proxy.Route{{Match: "/in/{x}", Answer: note}, {Match: "POST /in/{x}", Answer: note, BodyBytes: 10}})
	const hello = "HTTP/1.1\r\nHost: a\r\nX-A: b\r\nx-a: c\r\nContent-Length: 5\r\n\r\nhello"
	for _, ask := range []struct {
		request, answer string
		want            proxy.Asked
	}{
		{"GET /in/a%2Fb HTTP/1.1\r\nHost: a\r\n\r\n", "", proxy.Asked{}}, // one segment more: no route
		{"GET /in/%61?q=%61?&b HTTP/1.1\r\nHost: a\r\nX-A: b\r\nX-A: c\r\n\r\n", "b|", proxy.Asked{Method: "GET", Path: "/in/%61", Query: "q=%61?&b"}},
		{"GET http://a/in/a? HTTP/1.1\r\nHost: a\r\n\r\n", "|", proxy.Asked{Method: "GET", Path: "/in/a"}},
		{"POST /in/a " + hello, "b|", proxy.Asked{Method: "POST", Path: "/in/a", Body: []byte("hello")}},
		{"POST /in/a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n5\r\nworld\r\n0\r\n\r\n", "|", proxy.Asked{Method: "POST", Path: "/in/a", Body: []byte("helloworld")}},
		{"POST /in/a HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", "|", proxy.Asked{Method: "POST", Path: "/in/a"}},
		{"GET /in/a " + hello, "b|", proxy.Asked{Method: "GET", Path: "/in/a"}}, // a body that nobody wants is read, and nothing more
		{"POST /in/a HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello", "|", proxy.Asked{Method: "POST", Path: "/in/a", Body: []byte("hello")}},
		{"HEAD /in/a HTTP/1.1\r\nHost: a\r\n\r\n", "", proxy.Asked{Method: "HEAD", Path: "/in/a"}},
	} {
		method, _, _ := strings.Cut(ask.request, " ")
		seen = nil
		c := say(t, addr, ask.request+get("/next"))
		if ask.want.Method == "" {
			c.wantReason(t, 404, "no_route")
		} else if answer := c.wantAnswer(t, method, 200, ask.answer); len(answer.interim) > 0 {
			t.Errorf("%q: 1xx %v", ask.request, answer.interim)
		}
		c.wantReason(t, 404, "no_route") // of /next: nothing is left of the body
		var got proxy.Asked
		if len(seen) == 1 {
			got = seen[0]
		}
		if got.Method != ask.want.Method || got.Path != ask.want.Path || got.Query != ask.want.Query || string(got.Body) != string(ask.want.Body) {
			t.Errorf("%q is asked as %+v", ask.request, seen)
		}
	}
	seen = nil
	c := say(t, addr, "POST /in/a HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
	if line, _, _, err := readStrictHead(c.reader); err != nil || !strings.HasPrefix(line, "HTTP/1.1 100 ") || len(seen) > 0 {
		t.Errorf("before the body: %q, %v, asked %d times", line, err, len(seen))
	}
	c.say(t, "hello")
	c.wantAnswer(t, "POST", 200, "|")
	if len(seen) != 1 || string(seen[0].Body) != "hello" {
		t.Errorf("it was asked with %+v", seen)
	}
	seen = nil
	for _, request := range []string{
		"POST /in/a HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\nhello world",
		"POST /in/a HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 11\r\n\r\n",
		"POST /in/a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nb\r\nhello world\r\n0\r\n\r\n",
	} {
		c := say(t, addr, request)
		if answer := c.wantReason(t, 413, "body_too_large"); len(answer.interim) > 0 || !answer.closes() {
			t.Errorf("%q: 1xx %v, closing is %v", request, answer.interim, answer.closes())
		}
		c.wantEnd(t, false)
	}
	c = say(t, addr, "POST /in/a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloX")
	c.wantReason(t, 400, "bad_request")
	if len(seen) > 0 {
		t.Errorf("it was asked with %q", seen[0].Body)
	}
}

func TestLocal_AnExpectOfARouteThatTakesNoBodyIsToldNotToSend(t *testing.T) {
	addr := startServer(t, proxy.Config{}, []proxy.Route{
		{Match: "/fixed", Respond: &proxy.Respond{Status: 200, Body: []byte("fixed")}},
		{Match: "/made", Answer: func(*proxy.Asked) proxy.Respond { return proxy.Respond{Status: 200, Body: []byte("made")} }},
	})
	for _, target := range []string{"/fixed", "/made"} {
		for _, framing := range []string{"Content-Length: 5", "Transfer-Encoding: chunked"} {
			for _, taken := range []bool{false, true} {
				c := dialWire(t, addr)
				if taken {
					c.say(t, "PUT /fixed HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
					c.wantReason(t, 405, "method_not_allowed")
				}
				c.say(t, "POST "+target+" HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n"+framing+"\r\n\r\n")
				answer := c.wantReason(t, 405, "method_not_allowed")
				if len(answer.interim) > 0 || !answer.closes() || answer.get("Allow") != "GET, HEAD" {
					t.Errorf("POST %s with %s, taken over: %v: 1xx %v, %q", target, framing, taken, answer.interim, answer.fields)
				}
				c.wantEnd(t, false)
			}
		}
	}
}

// ---- Draining.

// From the beginning of a drain on, every answer says that it is the last of
// its connection, and is: whoever makes it, and whenever the connection came.
func TestDrain_EveryAnswerIsTheLastOfItsConnection(t *testing.T) {
	app := startNamed(t, "app")
	gate := make(chan struct{})
	held := newScriptedUpstream(t, echoWhenOpen(t, gate))
	heldLane := startLane(t, held.Addr(), lanes.Config{Name: "held", Slots: 1, Queue: 1})
	server, addr := startDrainable(t, proxy.Config{BodyBytes: 5}, []proxy.Route{
		{Match: "/app", Lane: app.lane}, {Match: "/held", Lane: heldLane},
		{Match: "/fixed", Respond: &proxy.Respond{Status: 200, Body: []byte("here")}},
		{Match: "/none", Answer: func(*proxy.Asked) proxy.Respond { return proxy.Respond{Status: 204} }},
		{Match: "/panic", Answer: func(*proxy.Asked) proxy.Respond { panic("at last") }},
		{Match: "POST /in", BodyBytes: 5, Answer: func(asked *proxy.Asked) proxy.Respond { return proxy.Respond{Status: 200, Body: asked.Body} }},
	})
	asks := []struct {
		request string
		status  int
		body    string
	}{
		{get("/fixed"), 200, "here"}, {"HEAD /fixed HTTP/1.1\r\nHost: a\r\n\r\n", 200, ""}, {get("/none"), 204, ""}, {get("/panic"), 500, "*"},
		{"POST /in HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello", 200, "hello"}, {get("/app"), 200, "app"},
		{"POST /app HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello", 200, "app"}, {"HEAD /app HTTP/1.1\r\nHost: a\r\n\r\n", 200, ""},
		{get("/nowhere"), 404, "*"}, {"POST /fixed HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello", 405, "*"},
		{"GET /fixed HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", 200, "here"}, {"GET /app HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", 200, "app"},
		{"POST /in HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nhello!", 413, "*"}, {"GET /\r\n\r\n", 400, "*"},
	}
	var fresh, taken []*wireClient
	for range asks {
		c := say(t, addr, get("/fixed"))
		c.wantAnswer(t, "GET", 200, "here")
		fresh = append(fresh, c)
		c = say(t, addr, get("/app"))
		if c.wantAnswer(t, "GET", 200, "app").closes() {
			t.Fatal("it closes before the drain")
		}
		taken = append(taken, c)
	}
	running, waiting := say(t, addr, get("/held")), dialWire(t, addr)
	held.Wait(t, 0, 1)
	waiting.say(t, get("/held"))
	until(t, "a request waits", func() bool { return heldLane.Snapshot().Waiting == 1 })

	server.Drain()
	for i, ask := range asks {
		method, _, _ := strings.Cut(ask.request, " ")
		for name, c := range map[string]*wireClient{"fresh": fresh[i], "taken over": taken[i], "new": dialWire(t, addr)} {
			c.say(t, ask.request)
			if answer := c.wantAnswer(t, method, ask.status, ask.body); !answer.closes() {
				t.Fatalf("%q on a connection %s: it does not say that it closes: %q", ask.request, name, answer.fields)
			}
			c.wantEnd(t, false)
		}
	}
	close(gate)
	for _, c := range []*wireClient{running, waiting} {
		if !c.wantAnswer(t, "GET", 200, "/held").closes() {
			t.Error("what ran as the drain began does not say that it closes")
		}
		c.wantEnd(t, false)
	}
}
