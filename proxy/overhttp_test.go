package proxy_test

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"holdfast/holds"
	"holdfast/lanes"
	"holdfast/proxy"
	"holdfast/upstream"
)

// startOverHTTP is a site whose app speaks WebSocket-over-HTTP.
func startOverHTTP(t *testing.T, setup holdSetup) *holdSite {
	t.Helper()
	s := startGrip(t, setup)
	cfg := proxy.Config{Holds: s.holds, Dialects: holds.Dialects{M0: true, Grip: true}, Origins: holds.Origins{SameHost: true}}
	if err := s.server.Configure(cfg, append([]proxy.Route{{Match: "/", Lane: s.lane, OverHTTP: true}}, setup.routes...)); err != nil {
		t.Fatal(err)
	}
	return s
}

// overHandshake is a handshake with further fields, and the key whose answer is
// acceptKey.
func overHandshake(fields ...string) string {
	return "GET /ws?a=1 HTTP/1.1\r\nHost: a.test\r\n" + lines(fields...) +
		"Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
}

const (
	upgraded   = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
	socketType = "Content-Type: application/websocket-events\r\n"
	extension  = "Sec-WebSocket-Extensions: grip\r\n"
)

// eventOf is an event with content.
func eventOf(kind, content string) string {
	return fmt.Sprintf("%s %x\r\n%s\r\n", kind, len(content), content)
}

var subscribeNews = eventOf("TEXT", `c:{"type":"subscribe","channel":"news"}`)

// events waits for the app to have a request of a socket's, and requires its events.
func (s *holdSite) events(t *testing.T, events string) *view {
	t.Helper()
	v := s.view(t)
	if body, whole := v.readUpload(v.fields); !whole || string(body) != events || v.line != "POST /ws?a=1 HTTP/1.1" {
		t.Fatalf("the app has %s with %q, want the events %q", v.line, body, events)
	}
	return v
}

// openOver opens a socket in channel news. with follows the handshake in the
// same write.
func (s *holdSite) openOver(t *testing.T, with string) *wireClient {
	t.Helper()
	c := say(t, s.addr, overHandshake()+with)
	s.events(t, "OPEN\r\n").answer(ok(socketType+extension, "OPEN\r\n"+subscribeNews))
	c.wantHead(t, 101)
	return c
}

// fieldNames are the names of fields, in lower case and in order.
func fieldNames(fields [][2]string) string {
	var names []string
	for _, f := range fields {
		names = append(names, strings.ToLower(f[0]))
	}
	return strings.Join(names, " ")
}

// Every request of a socket has the handshake's fields, less what is said of
// that one request and what is ours to say.
func TestOverHTTP_TheHandshakeGoesAsOpenToItsOwnAddress(t *testing.T) {
	s := startOverHTTP(t, holdSetup{})
	c := say(t, s.addr, overHandshake("Cookie: a=1", "Authorization: Basic x", "X-Custom: 1", "x-custom: 2", "User-Agent: x", "Origin: http://a.test", "X-Request-ID: r-1",
		"Sec-WebSocket-Protocol: chat, other", // and what does not go along:
		"Accept: */*", "Accept-Encoding: gzip", "Content-Type: application/json", "Content-Encoding: gzip", "Content-Length: 0", "Content-Bytes-Replayed: 1", "Connection-Id: forged", "Meta-User: forged",
		"Grip-Last: x", "Grip-Sig: x", "M0-Channel: x", "Sec-WebSocket-Extensions: permessage-deflate", "Cook_ie: x", "X-Hop: x", "Connection: X-Hop", "TE: trailers", "X-Forwarded-For: 1.2.3.4", "Upgrade: h2c"))
	v := s.events(t, "OPEN\r\n")
	const names = "host cookie authorization x-custom x-custom user-agent origin sec-websocket-protocol sec-websocket-version sec-websocket-key x-forwarded-for x-forwarded-proto x-forwarded-host " +
		"sec-websocket-extensions content-type accept connection-id x-request-id x-request-start grip-sig grip-feature content-length m0-position"
	if got := fieldNames(v.fields); got != names {
		t.Errorf("the app has the fields\n%s, want\n%s", got, names)
	}
	connection := v.get("Connection-Id")
	for name, want := range map[string]string{"Content-Type": "application/websocket-events", "Accept": "application/websocket-events", "Sec-WebSocket-Extensions": "grip", "Host": "a.test",
		"X-Custom": "1 | 2", "Content-Length": "6", "X-Forwarded-For": "127.0.0.1", "X-Forwarded-Host": "a.test", "Sec-WebSocket-Protocol": "chat, other", "X-Request-ID": "r-1"} {
		if got := v.get(name); got != want {
			t.Errorf("the app has %s: %q, want %q", name, got, want)
		}
	}
	if len(connection) < 16 || connection == "forged" {
		t.Errorf("the Connection-Id is %q", connection)
	}
	v.answer(ok(socketType+extension+"Set-Cookie: b=2\r\nX-View: y\r\nSec-WebSocket-Protocol: chat\r\nSet-Meta-User: bob\r\nKeep-Alive-Interval: 30\r\nGrip-Other: x\r\nM0-Hold: websocket\r\nETag: x\r\n",
		"OPEN\r\n"+eventOf("TEXT", "m:hello")))
	c.wantHeads(t, "HTTP/1.1 101 Switching Protocols\r\nSet-Cookie: b=2\r\nX-View: y\r\nX-Request-ID: r-1\r\nSec-WebSocket-Protocol: chat\r\n"+upgraded)
	c.wantBytes(t, serverFrame(opText, "hello"))
	c.say(t, clientText("hi"))
	v = s.events(t, "TEXT 2\r\nhi\r\n")
	if got, want := fieldNames(v.fields), strings.Replace(names, "connection-id", "connection-id meta-user", 1); got != want || v.get("Connection-Id") != connection || v.get("Meta-User") != "bob" || v.get("X-Request-ID") == "r-1" {
		t.Errorf("then the app has the fields\n%s, want\n%s, of %s", got, want, v.get("Connection-Id"))
	}
	v.answer(ok(socketType, eventOf("CLOSE", closing(4000, "bye"))))
	c.wantBytes(t, serverFrame(opClose, closing(4000, "bye")))
	c.say(t, clientClose(4000, ""))
	s.events(t, "CLOSE 2\r\n\x0f\xa0\r\n").answer(ok(socketType, ""))
	c.wantEnd(t, true)
}

// However the answer to OPEN is framed, or put into a coding, it opens.
func TestOverHTTP_TheAnswerToOpenMayBeFramedInAnyWay(t *testing.T) {
	s := startOverHTTP(t, holdSetup{})
	for framing, answer := range framed {
		c := say(t, s.addr, overHandshake())
		answer(s.events(t, "OPEN\r\n"), "Content-Type: application/websocket-events; charset=utf-8\r\n"+extension, "OPEN\r\n"+eventOf("TEXT", "m:"+framing))
		c.wantHead(t, 101)
		c.wantBytes(t, serverFrame(opText, framing))
		c.say(t, clientClose(1000, ""))
		answer(s.events(t, "CLOSE 2\r\n\x03\xe8\r\n"), socketType, "")
		c.wantBytes(t, serverFrame(opClose, closing(1000, "")))
	}
}

func TestOverHTTP_WhatIsPublishedWhileTheViewRunsIsDelivered(t *testing.T) {
	s := startOverHTTP(t, holdSetup{})
	s.publish("news", "before")
	c := say(t, s.addr, overHandshake())
	v := s.events(t, "OPEN\r\n")
	s.publish("news", "while the view runs")
	v.say("HTTP/1.1 200 OK\r\n" + socketType + extension + fmt.Sprintf("Content-Length: %d\r\n\r\nOPEN\r\n", len("OPEN\r\n"+subscribeNews)))
	s.publish("news", "between its head and its end")
	v.answer(subscribeNews)
	c.wantHead(t, 101)
	s.publish("news", "after")
	c.wantBytes(t, serverFrame(opText, "while the view runs")+serverFrame(opText, "between its head and its end")+serverFrame(opText, "after"))
}

// A client need not wait for the answer to its handshake.
func TestOverHTTP_WhatIsSentBehindTheHandshakeGoesToTheApp(t *testing.T) {
	s := startOverHTTP(t, holdSetup{})
	c := s.openOver(t, clientText("early")+masked(0x80|0x9, "p")+clientText("too"))
	s.events(t, "TEXT 5\r\nearly\r\n").answer(ok(socketType, eventOf("TEXT", "m:one")))
	s.events(t, "TEXT 3\r\ntoo\r\n").answer(ok(socketType, eventOf("BINARY", "m:two")))
	c.wantBytes(t, serverFrame(0xA, "p")+serverFrame(opText, "one")+serverFrame(opBinary, "two"))
}

// What does not open the socket is the client's answer: with its status, fields
// and body, and the connection goes on.
func TestOverHTTP_ARejectedHandshakeIsTheAppsAnswer(t *testing.T) {
	s := startOverHTTP(t, holdSetup{})
	c := say(t, s.addr, "")
	for answer, want := range map[string]string{
		"403 Not You\r\nContent-Type: text/plain\r\nSet-Cookie: a=1\r\n":              "",
		"401 Unauthorized\r\nWWW-Authenticate: Basic\r\nGrip-Hold: stream\r\n":        "401 Unauthorized\r\nWWW-Authenticate: Basic\r\n",
		"302 Found\r\nLocation: /login\r\nSet-Cookie: a=1\r\nset-cookie: b=2\r\n":     "",
		"200 OK\r\nContent-Type: text/html\r\n":                                       "",
		"200 OK\r\nContent-Type: application/websocket-events\r\n":                    "",
		"201 Created\r\nContent-Type: application/websocket-events\r\n":               "",
		"500 Internal Server Error\r\nContent-Encoding: gzip\r\n":                     "",
		"426 Upgrade Required\r\nUpgrade: websocket\r\nM0-Hold: websocket\r\n":        "426 Upgrade Required\r\n",
		"299 \r\nX-Forwarded-For: x\r\nX-A: 1\r\nx-a: 2\r\nMeta-A: b\r\n":             "",
		"200 OK\r\nX-View: y\r\nContent-Type: application/grip-instruct\r\n":          "",
		"404 Not Found\r\nSet-Meta-A: b\r\nKeep-Alive-Interval: 3\r\nGrip-Sig: x\r\n": "404 Not Found\r\nSet-Meta-A: b\r\nKeep-Alive-Interval: 3\r\n",
	} {
		if want == "" {
			want = answer
		}
		for _, chunked := range []bool{false, true} {
			c.say(t, overHandshake("X-Request-ID: r-1"))
			v := s.events(t, "OPEN\r\n")
			if chunked {
				v.answer("HTTP/1.1 " + answer + "Transfer-Encoding: chunked\r\n\r\n" + chunk("TEXT 3\r\n") + chunk("m:x\r\n") + "0\r\n\r\n")
			} else {
				v.answer("HTTP/1.1 " + answer + "Content-Length: 13\r\n\r\nTEXT 3\r\nm:x\r\n")
			}
			c.wantHeads(t, "HTTP/1.1 "+want+"X-Request-ID: r-1\r\nContent-Length: 13\r\n\r\n")
			c.wantBytes(t, "TEXT 3\r\nm:x\r\n")
		}
	}
	for _, status := range []string{"204 No Content", "304 Not Modified"} {
		c.say(t, overHandshake("X-Request-ID: r-1"))
		s.events(t, "OPEN\r\n").answer("HTTP/1.1 " + status + "\r\nX-View: y\r\n\r\n")
		c.wantHeads(t, "HTTP/1.1 "+status+"\r\nX-View: y\r\nX-Request-ID: r-1\r\n\r\n")
	}
	s.wantServed(t, c)
	if n := s.holds.Snapshot().Sockets; n != 0 || len(s.holds.Channels()) > 0 {
		t.Errorf("%d sockets are held", n)
	}
}

func TestOverHTTP_AnAnswerThatIsNotWholeOpensNothing(t *testing.T) {
	for name, c := range map[string]struct {
		answer  func(v *view)
		words   string
		timeout time.Duration
	}{
		"Cut": {func(v *view) { v.hangUp("HTTP/1.1 200 OK\r\n" + socketType + "Content-Length: 100\r\n\r\nOPEN\r\n") }, "was cut", 0},
		"Large": {func(v *view) {
			v.answer(ok(socketType, "OPEN\r\n"+strings.Repeat(eventOf("TEXT", strings.Repeat("x", 1000)), 1100)))
		}, "1 MiB", 0},
		"Late": {func(v *view) { v.say("HTTP/1.1 200 OK\r\n" + socketType + "Content-Length: 100\r\n\r\nOPEN\r\n") }, "response_timeout", 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			s := startOverHTTP(t, holdSetup{lane: lanes.Config{ResponseTimeout: c.timeout}})
			client := say(t, s.addr, overHandshake())
			v := s.events(t, "OPEN\r\n")
			c.answer(v)
			client.wantReason(t, 502, "bad_hold", c.words)
			if !v.done {
				v.answer(strings.Repeat("x", 94))
			}
			s.wantFree(t)
			s.wantServed(t, client)
		})
	}
}

// What is wrong with the handshake is said before the app is asked.
func TestOverHTTP_ABadHandshakeDoesNotReachTheApp(t *testing.T) {
	good := overHandshake()
	for name, c := range map[string]struct {
		request string
		status  int
		reason  string
	}{
		"NoKey":       {strings.Replace(good, "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n", "", 1), 400, "bad_request"},
		"ShortKey":    {strings.Replace(good, "dGhlIHNhbXBsZSBub25jZQ==", "dGhl", 1), 400, "bad_request"},
		"Version":     {strings.Replace(good, "Version: 13", "Version: 8", 1), 426, "upgrade_required"},
		"HEAD":        {strings.Replace(good, "GET", "HEAD", 1), 400, "bad_request"},
		"POST":        {strings.Replace(good, "GET", "POST", 1), 400, "bad_request"},
		"WithABody":   {strings.Replace(strings.Replace(good, "GET", "POST", 1), "\r\n\r\n", "\r\nContent-Length: 4\r\n\r\nbody", 1), 400, "bad_request"},
		"HTTP10":      {strings.Replace(good, "HTTP/1.1", "HTTP/1.0", 1), 400, "bad_request"},
		"OtherOrigin": {overHandshake("Origin: http://evil.test"), 403, "origin_denied"},
		"NullOrigin":  {overHandshake("Origin: null"), 403, "origin_denied"},
		"OtherPort":   {overHandshake("Origin: http://a.test:81"), 403, "origin_denied"},
	} {
		t.Run(name, func(t *testing.T) {
			s := startOverHTTP(t, holdSetup{})
			client := say(t, s.addr, c.request)
			method, _, _ := strings.Cut(c.request, " ")
			answer := client.wantAnswer(t, method, c.status, "*")
			if got := answer.get("Holdfast-Reason"); got != c.reason {
				t.Errorf("the reason is %q", got)
			}
			if c.status == 426 && (answer.get("Upgrade") != "websocket" || answer.closes() != strings.Contains(answer.get("Connection"), "close")) {
				t.Errorf("its fields are %v", answer.fields)
			}
			if answer.closes() {
				client = say(t, s.addr, "")
			}
			s.wantServed(t, client) // the first that the app is asked
		})
	}
}

// What is no upgrade to WebSocket is forwarded as any request.
func TestOverHTTP_WhatIsNoUpgradeIsARequest(t *testing.T) {
	s := startOverHTTP(t, holdSetup{})
	for _, fields := range [][]string{{}, {"Upgrade: websocket"}, {"Connection: Upgrade", "Upgrade: h2c"}} {
		c := say(t, s.addr, askFor("/ws?a=1", fields...))
		v := s.view(t)
		if v.line != "GET /ws?a=1 HTTP/1.1" || v.get("Upgrade") != "" || v.get("Connection-Id") != "" {
			t.Errorf("the app has %s with %v", v.line, v.fields)
		}
		v.answer(ok("", "x"))
		c.wantAnswer(t, "GET", 200, "x")
	}
}

func TestOverHTTP_AHandshakeWaitsInTheLaneAndIsRefusedAsAnyRequest(t *testing.T) {
	down, _ := startDown(t, upstream.Config{Park: time.Millisecond})
	s := startOverHTTP(t, holdSetup{lane: lanes.Config{Queue: 1, QueueTimeout: patience}, routes: []proxy.Route{{Match: "/down/", Lane: down, OverHTTP: true}}})
	c := say(t, s.addr, strings.Replace(overHandshake(), "/ws", "/down/ws", 1))
	answer := c.wantReason(t, 503, "upstream_down")
	if answer.get("Retry-After") == "" {
		t.Error("it has no Retry-After")
	}
	running := say(t, s.addr, get("/running"))
	first := s.view(t)
	waiting := say(t, s.addr, overHandshake())
	until(t, "a handshake waits", func() bool { return s.lane.Snapshot().Waiting == 1 })
	c.say(t, overHandshake())
	c.wantReason(t, 503, "lane_full")
	first.answer(ok("", "done"))
	running.wantAnswer(t, "GET", 200, "done")
	s.events(t, "OPEN\r\n").answer(ok(socketType+extension, "OPEN\r\n"))
	waiting.wantHead(t, 101)
	s.wantFree(t)
	s.wantServed(t, c)
}

func TestOverHTTP_OneHoldTooManyIsRefused(t *testing.T) {
	s := startOverHTTP(t, holdSetup{holds: holds.Config{Limit: 1}})
	s.openOver(t, "")
	c := say(t, s.addr, overHandshake())
	s.events(t, "OPEN\r\n").answer(ok(socketType+extension, "OPEN\r\n"+subscribeNews))
	c.wantReason(t, 503, "too_many_holds")
	if n := s.holds.Channels()["news"]; n != 1 || s.holds.Snapshot().Sockets != 1 {
		t.Errorf("%d are in the channel", n)
	}
	s.events(t, "DISCONNECT\r\n").answer(ok(socketType, "")) // of the one that it has opened
	s.wantFree(t)
}

// An app that ends the connection without an answer may have seen the OPEN: it
// is not sent again.
func TestOverHTTP_AHandshakeIsNotSentTwice(t *testing.T) {
	s := startOverHTTP(t, holdSetup{})
	c := say(t, s.addr, overHandshake())
	s.events(t, "OPEN\r\n").reset("")
	c.wantReason(t, 502, "upstream_error")
	s.wantServed(t, c)
}

// A client that goes while its socket is being opened leaves nothing behind;
// an app that has opened it is told, and so it is of one that goes later.
func TestOverHTTP_AClientThatLeavesIsLeft(t *testing.T) {
	for name, leave := range leaving {
		t.Run(name, func(t *testing.T) {
			s := startOverHTTP(t, holdSetup{lane: lanes.Config{Queue: 1, QueueTimeout: time.Minute}})
			c := say(t, s.addr, overHandshake())
			v := s.events(t, "OPEN\r\n")
			leave(c)
			s.wantHungUp(t)
			v.answer(ok(socketType+extension, "OPEN\r\n"))
			if name != "Reset" { // after which nobody reads the answer
				s.events(t, "DISCONNECT\r\n").answer(ok(socketType, ""))
			}
			s.wantFree(t)
			c = s.openOver(t, "")
			leave(c)
			s.events(t, "DISCONNECT\r\n").answer(ok(socketType, ""))
			s.wantFree(t)
			until(t, "nothing is held", func() bool { return s.holds.Snapshot().Sockets == 0 && s.server.Connections() == 0 })
		})
	}
}

// A socket that says nothing of the extension gets everything as it stands.
func TestOverHTTP_WithoutTheExtensionEverythingIsTheClients(t *testing.T) {
	s := startOverHTTP(t, holdSetup{})
	c := say(t, s.addr, overHandshake())
	s.events(t, "OPEN\r\n").answer(ok(socketType, "OPEN\r\n"+subscribeNews+eventOf("TEXT", "m:x")))
	c.wantHead(t, 101)
	c.wantBytes(t, serverFrame(opText, `c:{"type":"subscribe","channel":"news"}`)+serverFrame(opText, "m:x"))
	if len(s.holds.Channels()) > 0 {
		t.Errorf("it is in %v", s.holds.Channels())
	}
}

// Once the app is not there, its sockets end as those of M0 do: 1013 after the
// lane's patience.
func TestOverHTTP_AnAppThatGoesAwayEndsItsSockets(t *testing.T) {
	s := startOverHTTP(t, holdSetup{})
	c := s.openOver(t, "")
	c.say(t, clientText("x"))
	s.events(t, "TEXT 1\r\nx\r\n").answer("HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n")
	if rest, err := io.ReadAll(c.reader); len(rest) > 0 || err != nil && !isReset(err) {
		t.Errorf("a socket whose app fails is sent %q, %v", rest, err)
	}
	s.events(t, "DISCONNECT\r\n").answer(ok(socketType, ""))
	s.wantFree(t)
	until(t, "it is gone", func() bool {
		got := s.holds.Snapshot()
		return got.Sockets == 0 && got.Ended[holds.ModeWebSocket]["error"] == 1 && got.Inbound["failed"] == 1
	})
}
