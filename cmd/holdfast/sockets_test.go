package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fasthttp/websocket"
)

// WebSockets that are held, from the app's answer to the client's end.

// handshake is a whole request for a socket; the last fields are what a case adds.
func handshake(path, fields string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: desk.example:8080\r\n" + upgradeFields + fields + "\r\n"
}

func TestSocket_AHandshakeThatIsNoneIsRefused(t *testing.T) {
	for _, server := range []holdsServer{flaskThreads, djangoSync} {
		t.Run(server.name, func(t *testing.T) {
			t.Parallel()
			s := startSockets(t, server, holdsLanes)
			key := "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
			for _, ask := range []struct {
				name, old, new string // what stands in the request otherwise
				status         int
				reason         string
				fields         map[string]string
			}{
				{"not an upgrade", "Connection: Upgrade\r\nUpgrade: websocket\r\n", "", 426, "upgrade_required", map[string]string{"Upgrade": "websocket"}},
				{"to something else", "Upgrade: websocket", "Upgrade: h2c", 426, "upgrade_required", map[string]string{"Upgrade": "websocket"}},
				{"without Connection", "Connection: Upgrade\r\n", "", 426, "upgrade_required", map[string]string{"Upgrade": "websocket"}},
				{"version 12", "Version: 13", "Version: 12", 426, "upgrade_required", map[string]string{"Sec-WebSocket-Version": "13"}},
				{"no version", "Sec-WebSocket-Version: 13\r\n", "", 426, "upgrade_required", map[string]string{"Sec-WebSocket-Version": "13"}},
				{"a short key", "ub25jZQ==", "ub25j", 400, "bad_request", nil},
				{"a key that is no base64", "dGhl", "d*hl", 400, "bad_request", nil},
				{"two keys", key, key + key, 400, "bad_request", nil},
				{"no key", key, "", 400, "bad_request", nil},
			} {
				path := "/ws"
				if ask.fields["Upgrade"] != "" { // which is not a socket's to Flask
					path = "/approve"
				}
				c := dialRaw(t, s.addr)
				c.send("%s", strings.Replace(handshake(path, ""), ask.old, ask.new, 1))
				response, body, err := c.read()
				if err != nil || response.StatusCode != ask.status || response.Header.Get("Holdfast-Reason") != ask.reason {
					t.Errorf("%s: %v %q %v, want %d %s", ask.name, response, body, err, ask.status, ask.reason)
					continue
				}
				for name, value := range ask.fields {
					if got := response.Header.Get(name); got != value {
						t.Errorf("%s: %s is %q, want %q", ask.name, name, got, value)
					}
				}
				if ask.status == 426 && response.Header.Get("Upgrade") != "websocket" || response.Header.Get("M0-Hold") != "" || strings.Contains(string(body), "not for sockets") {
					t.Errorf("%s: %v %q", ask.name, response.Header, body)
				}
			}
			// What the view does not approve is its own answer.
			a := askRaw(t, s.addr, handshake("/ws?status=404", ""))
			if a.code() != 404 || a.body != "not for sockets\n" || len(a.get("M0-Hold")) > 0 {
				t.Errorf("%+v", a)
			}
			if n := healthHolds(t, s.addr).Sockets; n != 0 {
				t.Errorf("%d are held", n)
			}
		})
	}
}

func TestSocket_TheAnswerToTheHandshake(t *testing.T) {
	for _, server := range []holdsServer{flaskThreads, djangoThreads} {
		t.Run(server.name, func(t *testing.T) {
			t.Parallel()
			s := startSockets(t, server, holdsLanes)
			c := dialRaw(t, s.addr)
			c.send("%s", handshake("/ws?protocol=desk.v2", "Sec-WebSocket-Protocol: desk.v1, desk.v2\r\n"+
				"Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\nAccept-Encoding: gzip\r\n"))
			head, err := readRawHead(c.r)
			if err != nil || head.status != "HTTP/1.1 101 Switching Protocols" {
				t.Fatal(head, err)
			}
			for name, value := range map[string]string{"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Accept": "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=",
				"Sec-WebSocket-Protocol": "desk.v2", "Set-Cookie": "seen=yes; Path=/", "X-View": "websocket", "Sec-WebSocket-Extensions": "",
				"Content-Length": "", "Content-Type": "", "Transfer-Encoding": "", "M0-Hold": "", "M0-Channel": ""} {
				if got := strings.Join(head.get(name), " | "); got != value {
					t.Errorf("%s: %q, want %q", name, got, value)
				}
			}
			if len(head.get("X-Request-ID")) != 1 {
				t.Errorf("X-Request-ID: %q", head.get("X-Request-ID"))
			}
			publishTo(t, s.publish, "news", "the first bytes")
			if got, err := readFrame(c.r); err != nil || got != "the first bytes" {
				t.Errorf("%q %v behind the head: the view's body is not for sockets", got, err)
			}
			// A browser ends a connection that speaks what it did not offer.
			for _, offered := range []string{"", "Sec-WebSocket-Protocol: desk.v1, Desk.v2\r\n"} {
				a := dialRaw(t, s.addr)
				a.send("%s", handshake("/ws?protocol=desk.v2", offered))
				if head, err := readRawHead(a.r); err != nil || head.code() != 101 || len(head.get("Sec-WebSocket-Protocol")) > 0 {
					t.Errorf("offered %q: %v %v, want no protocol", offered, head, err)
				}
			}
		})
	}
}

func TestSocket_FramesThatComeWithTheHandshakeAreDelivered(t *testing.T) {
	t.Parallel()
	s := startSockets(t, djangoThreads, holdsLanes)
	for i := range 5 {
		c := dialRaw(t, s.addr)
		c.send("%s%s%s", handshake("/ws", ""), clientFrame(0x1, "1?reply=text&echo=1"), clientFrame(0x1, "2?reply=text&echo=1")[:9])
		if head, err := readRawHead(c.r); err != nil || head.code() != 101 {
			t.Fatal(i, head, err)
		}
		if got, err := readFrame(c.r); err != nil || got != "1?reply=text&echo=1" {
			t.Fatalf("%d: %q %v", i, got, err)
		}
		c.send("%s", clientFrame(0x1, "2?reply=text&echo=1")[9:])
		if got, err := readFrame(c.r); err != nil || got != "2?reply=text&echo=1" {
			t.Fatalf("%d: %q %v", i, got, err)
		}
	}
}

func TestSocket_OriginsThatAreLetIn(t *testing.T) {
	const sameHost, other = "http://desk.example:8080", "https://shop.example"
	for name, policy := range map[string]struct {
		origins string
		allowed map[string]bool
	}{
		"SameHost": {"", map[string]bool{"": true, sameHost: true, "https://desk.example:8080": true, "http://DESK.example:8080": true, "http://desk.example": false, "http://desk.example:8081": false,
			other: false, "null": false, "http://evil.desk.example:8080": false}},
		"Any":  {"holds: {origins: any}\n", map[string]bool{"": true, sameHost: true, other: true, "null": false}},
		"List": {"holds: {origins: [\"https://shop.example\", \"http://localhost:3000\"]}\n", map[string]bool{"": true, sameHost: false, other: true, "http://shop.example": false, "http://localhost:3000": true, "http://localhost": false, "null": false}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startSockets(t, flaskThreads, holdsLanes+policy.origins)
			held := 0
			for origin, allowed := range policy.allowed {
				field := ""
				if origin != "" {
					field = "Origin: " + origin + "\r\n"
				}
				c := dialRaw(t, s.addr)
				c.send("%s", handshake("/ws", field))
				head, err := readRawHead(c.r)
				if err != nil {
					t.Fatal(err)
				}
				if allowed {
					held++
				}
				if allowed && head.code() != 101 || !allowed && (head.code() != 403 || !slices.Equal(head.get("Holdfast-Reason"), []string{"origin_denied"})) {
					t.Errorf("origin %q: %s %q; is to be let in: %v", origin, head.status, head.get("Holdfast-Reason"), allowed)
				}
			}
			if n := healthHolds(t, s.addr).Sockets; n != held {
				t.Errorf("%d are held, want %d", n, held)
			}
		})
	}
}

func TestSocket_AMessageComesToTheViewWithWhatTheHandshakeSaid(t *testing.T) {
	for _, server := range holdsServers {
		t.Run(server.name, func(t *testing.T) {
			t.Parallel()
			s := startSockets(t, server, "trusted_proxies: [\"127.0.0.1\"]\n"+holdsLanes+"holds: {origins: any}\n")
			c := openSocket(t, s.addr, "/ws?channel=b&channel=a%2Cb", "Host", "desk.example:8080", "Cookie", "sessionid=abc; theme=dark", "Authorization", "Bearer token",
				"Origin", "https://shop.example", "User-Agent", "a browser", "X-Forwarded-For", "203.0.113.7", "X-Forwarded-Proto", "https", "X-Forwarded-Host", "outer.example",
				"Accept-Language", "de", "M0-Opcode", "9", "Grip-Sig", "forged", "Last-Event-ID", "1")
			connections := s.channel("a,b").Connections
			if len(connections) != 1 {
				t.Fatalf("%q", connections)
			}
			want := map[string]string{"REQUEST_METHOD": "POST", "RAW_URI": "/ws/message", "HTTP_M0_CHANNEL": "b,a%2Cb", "HTTP_M0_CONNECTION": connections[0], "HTTP_M0_SLOT": connections[0],
				"HTTP_HOST": "desk.example:8080", "HTTP_COOKIE": "sessionid=abc; theme=dark", "HTTP_AUTHORIZATION": "Bearer token", "HTTP_ORIGIN": "https://shop.example", "HTTP_USER_AGENT": "a browser",
				"HTTP_X_FORWARDED_FOR": "203.0.113.7, 127.0.0.1", "HTTP_X_FORWARDED_PROTO": "https", "HTTP_X_FORWARDED_HOST": "outer.example",
				"HTTP_ACCEPT_LANGUAGE": "", "HTTP_LAST_EVENT_ID": "", "HTTP_UPGRADE": "", "HTTP_SEC_WEBSOCKET_KEY": ""}
			for number, kind := range map[int]int{1: websocket.TextMessage, 2: websocket.BinaryMessage} {
				text := fmt.Sprintf("%d?reply=text&environ=1", number)
				want["CONTENT_LENGTH"], want["HTTP_M0_OPCODE"], want["CONTENT_TYPE"] = fmt.Sprint(len(text)), "1", "text/plain; charset=utf-8"
				if kind == websocket.BinaryMessage {
					want["HTTP_M0_OPCODE"], want["CONTENT_TYPE"] = "2", "application/octet-stream"
				}
				if err := c.WriteMessage(kind, []byte(text)); err != nil {
					t.Fatal(err)
				}
				_, said, err := c.ReadMessage()
				var environ map[string]string
				if err != nil || json.Unmarshal(said, &environ) != nil {
					t.Fatalf("%s %v", said, err)
				}
				for name, value := range want {
					if environ[name] != value {
						t.Errorf("%s: %q, want %q", name, environ[name], value)
					}
				}
				for _, name := range []string{"HTTP_X_REQUEST_ID", "HTTP_X_REQUEST_START", "HTTP_M0_POSITION", "HTTP_GRIP_SIG"} {
					if environ[name] == "" || environ[name] == "forged" {
						t.Errorf("%s is %q", name, environ[name])
					}
				}
			}
			if n := inboundCount(t, s.admin(), "ok"); n != 2 {
				t.Errorf("%d messages counted, want 2", n)
			}
		})
	}
}

func TestSocket_TheMessagePathIsNotThereForTheNetwork(t *testing.T) {
	t.Parallel()
	s := startSockets(t, djangoThreads, `
upstreams: {app: {targets: ["http://%s"]}}
lanes: {web: {upstream: app, slots: 4}}
routes:
  - {match: "/b/", lane: web, message_path: /chat/message}
  - {match: "/", lane: web}
`)
	for _, path := range []string{"/ws/message", "/ws/message?a=b", "/ws/%6dessage", "//ws/message", "/ws/./message", "/ws/x/../message", "/ws//message",
		"/chat/message", "/%63hat/message", "/chat/./message"} {
		a := askRaw(t, s.addr, "POST "+path+" HTTP/1.1\r\nHost: localhost\r\nM0-Connection: forged\r\nContent-Length: 1\r\nConnection: close\r\n\r\n9")
		if a.code() != 404 || !slices.Equal(a.get("Holdfast-Reason"), []string{"no_route"}) {
			t.Errorf("%s: %s %q, want 404 no_route", path, a.status, a.get("Holdfast-Reason"))
		}
	}
	for i, ask := range []struct{ path, messages string }{{"/ws", "/ws/message"}, {"/b/ws", "/chat/message"}} {
		c := openSocket(t, s.addr, ask.path)
		c.say("%d?reply=text&environ=1", i)
		var environ map[string]string
		if _, said, err := c.ReadMessage(); err != nil || json.Unmarshal(said, &environ) != nil || environ["RAW_URI"] != ask.messages {
			t.Errorf("%s: a message went to %q, want %s (%v)", ask.path, environ["RAW_URI"], ask.messages, err)
		}
	}
	for _, v := range s.app.views() {
		if v.Method == "POST" {
			t.Errorf("POST %s reached the app from the network", v.Path)
		}
	}
}

func TestSocket_TheAnswerToAMessageRepliesSubscribesUnsubscribesAndCloses(t *testing.T) {
	for _, server := range holdsServers {
		t.Run(server.name, func(t *testing.T) {
			t.Parallel()
			s := startSockets(t, server, holdsLanes)
			c, beside := openSocket(t, s.addr, "/ws?channel=room"), openSocket(t, s.addr, "/ws?channel=room")
			c.say("1?reply=text&answer=Gr%%C3%%BC%%C3%%9Fe")
			c.want("Grüße")
			c.say("2?reply=binary&answer=Gr%%C3%%BC%%C3%%9Fe")
			c.wantBinary("Grüße")
			if err := c.WriteMessage(websocket.BinaryMessage, []byte("3?reply=text&echo=1")); err != nil {
				t.Fatal(err)
			}
			c.want("3?reply=text&echo=1")
			c.say("4?reply=text") // an empty answer is an empty message
			c.want("")
			c.say("5?answer=not+asked+for")
			// Published by the view itself, before its answer said subscribe.
			c.say("6?publish=by+the+view&channel=a,b&subscribe=a%%252Cb,+second&reply=text&answer=subscribed")
			c.want("subscribed")
			c.want("by the view")
			publishTo(t, s.publish, "second", "to the second")
			c.want("to the second")
			c.say("7?unsubscribe=room,+second&reply=text&answer=unsubscribed")
			c.want("unsubscribed")
			for _, channel := range []string{"room", "second"} {
				publishTo(t, s.publish, channel, "not for the one")
			}
			publishTo(t, s.publish, "a,b", "still in this")
			c.want("still in this")
			beside.want("not for the one") // the replies were the one's alone
			c.say("8?close=4001+so+long&reply=text&answer=last")
			c.want("last")
			c.wantClose(4001, "so long")
			if n := metric(t, s.admin(), `holdfast_holds_ended_total{kind="websocket",reason="published"}`); n != 1 {
				t.Errorf("%v ended as published, want 1", n)
			}
			eventuallyHolds(t, s.addr, holdsShown{Sockets: 1})
			s.app.wantHeard(1, 2, 3, 4, 5, 6, 7, 8)
		})
	}
}

func TestSocket_AnAnswerThatFailsIsCountedAndTheSocketStays(t *testing.T) {
	t.Parallel()
	s := startSockets(t, flaskThreads, holdsLanes)
	c := openSocket(t, s.addr, "/ws")
	for n, status := range []int{500, 404, 302, 200, 201} {
		c.say("%d?status=%d&reply=text&answer=of+%d", n, status, status)
	}
	c.want("of 200") // what an answer says that fails has no effect
	c.want("of 201")
	if ok, failed := inboundCount(t, s.admin(), "ok"), inboundCount(t, s.admin(), "failed"); ok != 2 || failed != 3 {
		t.Errorf("%d ok and %d failed, want 2 and 3", ok, failed)
	}
	s.app.wantHeard(0, 1, 2, 3, 4)
}

func TestSocket_IsEndedByThePublishAPIWithItsCodeAndReason(t *testing.T) {
	t.Parallel()
	s := startSockets(t, djangoSync, holdsLanes)
	one, two := openSocket(t, s.addr, "/ws?channel=user-1&channel=news"), openSocket(t, s.addr, "/ws?channel=user-2&channel=news")
	publishTo(t, s.publish, "news", "before the end")
	call(t, s.publish, "POST", "/end", "", []byte(`{"channel": "user-1", "code": 4003, "reason": "signed out"}`))
	one.want("before the end")
	one.wantClose(4003, "signed out")
	call(t, s.publish, "POST", "/end", "", []byte(`{"connection": "`+s.channel("news").Connections[0]+`"}`))
	two.want("before the end")
	two.wantClose(1000, "published")
	eventuallyHolds(t, s.addr, holdsShown{})
}

func TestSocket_InAnEnvelopeEventsHaveTheirIDsAndAreReplayed(t *testing.T) {
	for _, server := range []holdsServer{flaskSync, djangoThreads} {
		t.Run(server.name, func(t *testing.T) {
			t.Parallel()
			s := startSockets(t, server, holdsLanes+"holds: {heartbeat: 0, journal: {events: 5}}\n")
			before, _ := publishTo(t, s.publish, "news", "before")
			c := openSocket(t, s.addr, "/ws?envelope=1")
			if at := c.wantOpen(); at != before {
				t.Errorf("the position is %d, want %d", at, before)
			}
			text, _ := publishTo(t, s.publish, "news", "a \"text\"\n<&>")
			c.wantEvent(text, `"a \"text\"\n<&>"`)
			object, _ := wantPublished(t, s.publish, `{"channel": ["news", "other"], "data": {"n": 1.50}}`)
			c.wantEvent(object, `{"n":1.50}`)
			wantPublished(t, s.publish, `{"channel": "news", "base64": "AP8=", "event": "blob"}`)
			if e := c.wantEnvelope(); e.Base64 == nil || *e.Base64 != "AP8=" || e.Event == nil || *e.Event != "blob" {
				t.Errorf("%v", e)
			}
			c.Close()
			missed, _ := publishTo(t, s.publish, "news", "missed")
			publishTo(t, s.publish, "unheard", "not of its channel")
			back := openSocket(t, s.addr, fmt.Sprint("/ws?envelope=1&lastEventId=", text))
			if at := back.wantOpen(); at != text {
				t.Errorf("the position is %d, want that from which it is fed, %d", at, text)
			}
			back.wantEvent(object, `{"n":1.50}`)
			back.wantEnvelope()
			back.wantEvent(missed, `"missed"`)
			live, _ := publishTo(t, s.publish, "news", "live")
			back.wantEvent(live, `"live"`)
			// Beyond the journal: a gap, and none of what is there.
			var head int64
			for i := range 6 {
				head, _ = publishTo(t, s.publish, "news", fmt.Sprint(i))
			}
			for _, from := range []int64{text, head - 1, head + 1000} {
				back := openSocket(t, s.addr, fmt.Sprint("/ws?envelope=1&lastEventId=", from))
				e := back.wantEnvelope()
				if want := fmt.Sprintf(`{"last_event_id":%d,"head":%d}`, from, head); e.ID != nil || e.Event == nil || *e.Event != "m0-gap" || string(e.Data) != want {
					t.Errorf("%v, want a gap with %s", e, want)
				}
				if at := back.wantOpen(); at != head {
					t.Errorf("the position behind the gap is %d, want %d", at, head)
				}
				back.Close()
			}
			// Without an envelope there is no replay, and nothing to tell.
			bare := openSocket(t, s.addr, "/ws?lastEventId=1")
			publishTo(t, s.publish, "news", "bare")
			bare.want("bare")
			if n := metric(t, s.admin(), "holdfast_gaps_told_total"); n != 3 {
				t.Errorf("%v gaps counted, want 3", n)
			}
		})
	}
}

func TestSocket_ARestartOfHoldfastIsAGap(t *testing.T) {
	t.Parallel()
	c, a := startSocketsCommand(t, djangoThreads, holdsLanes)
	socket := openSocket(t, c.addr, "/ws?envelope=1")
	from := socket.wantOpen()
	c.signal(t, syscall.SIGTERM)
	socket.wantClose(1012, "draining")
	c.wantExit(t, exitOK)
	a.kill()

	c = startCommand(t, writeConfig(t, holdsLanes, a.addr))
	c.serveWith(t, a)
	back := openSocket(t, c.addr, fmt.Sprint("/ws?envelope=1&lastEventId=", from))
	if e := back.wantEnvelope(); e.Event == nil || *e.Event != "m0-gap" || !strings.Contains(string(e.Data), fmt.Sprint(from)) {
		t.Errorf("%v, want a gap since %d", e, from)
	}
	at := back.wantOpen()
	if id, _ := publishTo(t, c.publishAddr(t), "news", "of this run"); id <= at || at == from {
		t.Errorf("the position %d is not before %d and of this run", at, id)
	}
}

func TestHold_OnePublishReachesEveryKindAlike(t *testing.T) {
	for _, server := range holdsServers {
		t.Run(server.name, func(t *testing.T) {
			t.Parallel()
			s := startSockets(t, server, holdsLanes+"holds: {heartbeat: 0}\n")
			stream := follow(t, s.addr, "/events")
			bare, wrapped := openSocket(t, s.addr, "/ws"), openSocket(t, s.addr, "/ws?envelope=1")
			wrapped.wantOpen()
			poll := openPoll(t, s.addr)
			for i, data := range []string{"Grüße", "two\nlines", ""} {
				poll.ask("/poll")
				eventuallyHolds(t, s.addr, holdsShown{Subscribers: 1, Sockets: 2, Polls: 1})
				for kind, n := range map[string]float64{"stream": 1, "websocket": 2, "response": 1} {
					if got := metric(t, s.admin(), `holdfast_holds_open{kind="`+kind+`"}`); got != n {
						t.Errorf("%v open of kind %s, want %v", got, kind, n)
					}
				}
				id, reached := publishTo(t, s.publish, "news", data)
				if reached != 4 {
					t.Errorf("%d: reached %d, want all four", i, reached)
				}
				if b := stream.wantEvent(data); b.id != fmt.Sprint(id) {
					t.Errorf("%q, want the id %d", b.raw, id)
				}
				bare.want(data)
				text, _ := json.Marshal(data)
				wrapped.wantEvent(id, string(text))
				if poll.wantAnswer(data); poll.id != fmt.Sprint(id) {
					t.Errorf("the poll's id is %s, want %d", poll.id, id)
				}
			}
			wantPublished(t, s.publish, `{"channel": "news", "base64": "AP8="}`)
			bare.wantBinary("\x00\xff")
			if e := wrapped.wantEnvelope(); e.Base64 == nil || *e.Base64 != "AP8=" {
				t.Errorf("%v", e)
			}
		})
	}
}

func TestGrant_OpensASocketThatOnlyReceives(t *testing.T) {
	t.Parallel()
	s := startHoldsFile(t, writeConfig(t, grantLanes, freeAddress(t)), "THE_GRANT_KEY=new")
	path := strings.Replace(issue(t, "new", "'news'"), "/live/stream", "/live/ws", 1)
	c, talks := openSocket(t, s.addr, path), openSocket(t, s.addr, path, "Origin", "http://"+s.addr)
	if _, reached := publishTo(t, s.publish, "news", "to both"); reached != 2 {
		t.Errorf("reached %d", reached)
	}
	c.want("to both")
	talks.want("to both")
	talks.say("a message")
	talks.wantClose(1008, "protocol")
	publishTo(t, s.publish, "news", "to the other")
	c.want("to the other")
	for name, ask := range map[string]struct {
		path, fields string
		status       int
		reason       string
	}{
		"another page":   {path, "Origin: http://evil.example\r\n", 403, "origin_denied"},
		"a sandbox":      {path, "Origin: null\r\n", 403, "origin_denied"},
		"another key":    {strings.Replace(issue(t, "old", "'news'"), "/live/stream", "/live/ws", 1), "", 401, "grant_invalid"},
		"no grant":       {"/live/ws", "", 401, "grant_invalid"},
		"not an upgrade": {path, "", 426, "upgrade_required"},
	} {
		request := handshake(ask.path, ask.fields)
		if ask.status == 426 {
			request = strings.Replace(request, upgradeFields, "", 1)
		}
		if a := askRaw(t, s.addr, request); a.code() != ask.status || !slices.Equal(a.get("Holdfast-Reason"), []string{ask.reason}) {
			t.Errorf("%s: %s %q, want %d %s", name, a.status, a.get("Holdfast-Reason"), ask.status, ask.reason)
		}
	}
	eventuallyHolds(t, s.addr, holdsShown{Sockets: 1})
}

func TestSocket_ItsEndsAreThoseOfTheProtocol(t *testing.T) {
	t.Parallel()
	s := startSockets(t, flaskThreads, holdsLanes+"holds: {message_bytes: 1KiB}\n")
	for name, end := range map[string]struct {
		frame  []byte
		code   int
		reason string
		word   string
	}{
		"too big":    {append([]byte{0x81, 0xFE, 0x04, 0x01, 0, 0, 0, 0}, make([]byte, 1025)...), 1009, "too_big", "too_big"},
		"not masked": {[]byte{0x81, 1, 'a'}, 1002, "protocol", "protocol"},
		"not UTF-8":  {clientFrame(0x1, "\xff"), 1007, "protocol", "protocol"},
		"its own":    {clientFrame(0x8, "\x0f\xa0bye"), 4000, "", "client"},
	} {
		series := `holdfast_holds_ended_total{kind="websocket",reason="` + end.word + `"}`
		before := metric(t, s.admin(), series)
		c := openSocket(t, s.addr, "/ws")
		if _, err := c.NetConn().Write(end.frame); err != nil {
			t.Fatal(err)
		}
		if err := c.closed(end.code, end.reason); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if after := metric(t, s.admin(), series); after != before+1 {
			t.Errorf("%s: %s went from %v to %v", name, series, before, after)
		}
	}
}

func TestSocket_IsPingedWhenItIsQuietAndItsPingsAreAnswered(t *testing.T) {
	t.Parallel()
	s := startSockets(t, djangoThreads, holdsLanes+"holds: {heartbeat: 50ms}\n")
	c := openSocket(t, s.addr, "/ws")
	heard := make(chan string, 100)
	c.SetPingHandler(func(string) error { heard <- "a ping"; return nil })
	c.SetPongHandler(func(text string) error { heard <- "a pong: " + text; return nil })
	if err := c.WriteControl(websocket.PingMessage, []byte("here"), time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		if _, text, err := c.ReadMessage(); err == nil {
			t.Errorf("%q came", text)
		}
		close(heard)
	})
	for pings, pongs := 0, 0; pings < 3 || pongs < 1; {
		switch word := <-heard; word {
		case "a ping":
			pings++
		case "a pong: here":
			pongs++
		default:
			t.Fatalf("%q", word)
		}
	}
	c.NetConn().Close() // without a word
	reading.Wait()
	eventuallyHolds(t, s.addr, holdsShown{})
	if n := metric(t, s.admin(), `holdfast_holds_ended_total{kind="websocket",reason="client"}`); n != 1 {
		t.Errorf("%v ended as client, want 1", n)
	}
}
