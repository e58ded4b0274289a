package main

import (
	"strings"
	"time"
)

// A socket's case begins with ws-: Pushpin is told by the path that its app
// speaks WebSocket-over-HTTP.

// socketCases are handshakes.
func socketCases() []testCase {
	opened := func(answers ...string) func(*play) {
		return func(p *play) {
			for _, a := range answers {
				p.says(a)
				s := p.socket("")
				p.note("%s", s.gets(1))
				s.close()
			}
		}
	}
	const grip = "Sec-WebSocket-Extensions: grip"
	return []testCase{
		{name: "ws-request", play: func(p *play) {
			p.sockets(nil)
			p.socket("a?b=c", "Origin: http://$h", "Cookie: s=1", "Authorization: Basic x", "User-Agent: me", "Sec-WebSocket-Protocol: p1, p2", "Sec-WebSocket-Extensions: permessage-deflate",
				"Accept: text/plain", "Accept-Encoding: gzip", "Grip-Last: forged", "Meta-User: forged", "Connection-Id: forged", "X-Own: 1").gets(1)
			r := p.seen()[0]
			p.note("%s %s %q %v", r.method, r.target, r.body, r.names())
			for _, name := range []string{"Origin", "Cookie", "Authorization", "Sec-WebSocket-Protocol", "Sec-WebSocket-Version", "Sec-WebSocket-Key", "Sec-WebSocket-Extensions", "Accept", "Content-Type", "Meta-User", "Grip-Last", "Upgrade", "Connection-Id"} {
				value := r.get(name)
				if name == "Connection-Id" {
					value = map[bool]string{true: "one of its own", false: value}[value != "" && value != "forged"]
				}
				p.note("%s: %s", name, value)
			}
		}},
		{name: "ws-answer-fields", why: "Grip-* never reach a client", play: func(p *play) {
			p.says(woh(grip+"\nX-Own: 1\nSet-Cookie: a=b\nSec-WebSocket-Protocol: p2\nSet-Meta-User: bob\nKeep-Alive-Interval: 30\nGrip-Other: x", "OPEN\r\n"))
			s := p.socket("", "Sec-WebSocket-Protocol: p1, p2")
			p.note("%s; %s", s.status, s.fields())
		}},
		{name: "ws-rejected", why: "the view's own answer shows what is wrong with it", play: opened(
			answer("403 Forbidden", "Content-Type: text/plain\nX-Own: 1", "no"), answer("200 OK", "Content-Type: text/html", "a page"), answer("302 Found", "Location: /login", ""),
			woh(grip), woh(grip, "TEXT 1\r\nx\r\n"), answer("200 OK", "Content-Type: application/websocket-events", "not events"),
			answer("201 Made", "Content-Type: application/websocket-events", "OPEN\r\n"))},
		{name: "ws-content-type-charset", why: "a parameter of the content type is no fault", play: opened(answer("200 OK", "Content-Type: application/websocket-events; charset=utf-8\n"+grip, "OPEN\r\n"))},
		{name: "ws-open-later", why: "not there; a view opens at once or not at all", play: func(p *play) {
			p.says(woh(grip + "\nKeep-Alive-Interval: 20"))
			s := p.socket("")
			p.note("%s; %s", s.status, s)
		}},
		{name: "ws-open-and-close", why: "a close without a reason says which end it is", play: opened(woh(grip, "OPEN\r\n", "CLOSE 2\r\n\x0f\xa0\r\n"))},
		{name: "ws-open-disconnect", play: opened(woh(grip, "OPEN\r\n", "DISCONNECT\r\n"))},
		{name: "ws-open-twice", play: opened(woh(grip, "OPEN\r\nOPEN\r\n"))},
		{name: "ws-no-extension", play: func(p *play) {
			p.view(func(r request) string {
				if string(r.body) == "OPEN\r\n" {
					return woh("", "OPEN\r\n", p.event("TEXT", "m:plain"), p.control(`{"type":"subscribe","channel":"$c"}`))
				}
				return woh("")
			})
			s := p.socket("")
			p.items(`{"channel":"$c","formats":{"ws-message":{"content":"x"}}}`)
			p.note("%s", s.gets(2))
		}},
		{name: "ws-foreign-origin", why: "a page of another origin is refused unless holds.origins lets it in", play: func(p *play) {
			p.sockets(nil)
			s := p.socket("", "Origin: http://elsewhere.test")
			p.note("%s; asked %d", s, len(p.seen()))
		}},
		{name: "ws-bad-handshake", why: "it is said why", play: func(p *play) {
			p.sockets(nil)
			for _, fields := range []string{
				"Upgrade: websocket\nConnection: Upgrade\nSec-WebSocket-Version: 12\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
				"Upgrade: websocket\nConnection: Upgrade\nSec-WebSocket-Version: 13",
			} {
				p.note("%s; asked %d", p.send("GET", "", fields, "").head(), len(p.seen()))
			}
		}},
	}
}

// endCases are ends of sockets, and what is no socket.
func endCases() []testCase {
	return []testCase{
		{name: "ws-close-by-client", why: "libraries read a code only if nothing is behind it", play: closedByClient(func(s *socket) { s.sayClose(4001, "why") }, woh("", "CLOSE 2\r\n\x0f\xa1\r\n"))},
		{name: "ws-close-by-client-empty", play: closedByClient(func(s *socket) { s.frame(8, "") }, woh("", "CLOSE\r\n"))},
		{name: "ws-close-by-client-other-code", why: "libraries read a code only if nothing is behind it", play: closedByClient(func(s *socket) { s.sayClose(4001, "why") }, woh("", "CLOSE 5\r\n\x0f\xa5bye\r\n"))},
		{name: "ws-close-by-client-unanswered", why: "a client that closes is answered, whatever the app does", play: closedByClient(func(s *socket) { s.sayClose(1001, "") }, woh(""))},
		{name: "ws-close-by-client-500", why: "a client that closes is answered, whatever the app does", play: closedByClient(func(s *socket) { s.sayClose(1001, "") }, answer("500 Odd", "", "x"))},
		{name: "ws-client-vanishes", play: closedByClient(func(s *socket) { s.close() }, woh(""))},
		{name: "ws-close-by-app", play: closedByApp("CLOSE 5\r\n\x0f\xa0bye\r\n")},
		{name: "ws-close-by-app-empty", why: "a close without a reason says which end it is", play: closedByApp("CLOSE\r\n")},
		{name: "ws-close-by-app-0", why: "0 is what libraries say where a view gives no code; it is not one that may be sent", play: closedByApp("CLOSE 2\r\n\x00\x00\r\n")},
		{name: "ws-close-by-app-1005", why: "1005 may not be sent", play: closedByApp("CLOSE 2\r\n\x03\xed\r\n")},
		{name: "ws-disconnect-by-app", why: "the app is told of every socket that ends without a close", play: closedByApp("DISCONNECT\r\n")},
		{name: "ws-app-fails-later", why: "the app is told of every socket that ends without a close", play: func(p *play) {
			p.sockets(func(request) string { return answer("500 Odd", "", "x") })
			s := p.socket("")
			s.say("x")
			s.over(3 * moment)
			p.note("%s; %s", s, p.bodies())
		}},
		{name: "ws-app-other-type-later", play: otherType("text")},
		{name: "ws-app-other-type-empty", why: "no event is none, of whatever type", play: otherType("")},
		{name: "ws-events-from-a-client", why: "Pushpin lets it through if the type is spelled otherwise", play: func(p *play) {
			p.sockets(nil)
			p.note("%s; asked %d", p.send("POST", "", "Content-Type: application/websocket-events\nConnection-Id: x", "OPEN\r\n").head(), len(p.seen()))
			p.note("%s; asked %d", p.send("POST", "", "Content-Type: Application/WebSocket-Events; charset=utf-8\nConnection-Id: x", "OPEN\r\n").head(), len(p.seen()))
		}},
		{name: "ws-plain-get", play: func(p *play) {
			p.says(plain("", "a page"))
			p.note("%s; %s", p.get("").head(), p.seen()[0].method)
		}},
	}
}

// otherType plays an app that answers a message with what is no events.
func otherType(body string) func(*play) {
	return func(p *play) {
		p.sockets(func(request) string { return plain("", body) })
		s := p.socket("")
		s.say("x")
		s.gets(1)
		p.note("%s; %s", s, strings.TrimSuffix(p.bodies(), ` "DISCONNECT\r\n"`))
	}
}

// closedByClient plays a client that goes, and what the app answers to it.
func closedByClient(goes func(*socket), then string) func(*play) {
	return func(p *play) {
		p.sockets(func(request) string { return then })
		s := p.socket("")
		goes(s)
		p.asked(2, 2*moment)
		s.over(3 * moment)
		time.Sleep(moment)
		p.note("%s; %s", s, p.bodies())
	}
}

// closedByApp plays an app that goes on the first message.
func closedByApp(event string) func(*play) {
	return func(p *play) {
		p.sockets(func(r request) string {
			if len(p.seen()) > 2 {
				return woh("", "CLOSE\r\n")
			}
			return woh("", event)
		})
		s := p.socket("")
		s.say("x")
		s.gets(1)
		if len(s.messages) > 0 {
			s.sayClose(4000, "")
		}
		s.over(2 * moment)
		time.Sleep(moment / 2)
		p.note("%s; %s", s, p.bodies())
	}
}
