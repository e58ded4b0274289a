package main

import (
	"strings"
	"time"
)

// echo answers a message with itself.
func (p *play) echo(r request) string {
	head, rest, _ := strings.Cut(string(r.body), "\r\n")
	kind, _, _ := strings.Cut(head, " ")
	return woh("", p.event(kind, "m:"+strings.TrimSuffix(rest, "\r\n")))
}

// echoed plays a client that says something to an app that echoes.
func echoed(say func(*socket), messages int) func(*play) {
	return func(p *play) {
		p.sockets(p.echo)
		s := p.socket("")
		say(s)
		p.note("%s; %s", s.gets(messages), p.bodies())
	}
}

// fromApp plays an app that answers a message with events.
func fromApp(events func(p *play) []string) func(*play) {
	return func(p *play) {
		p.sockets(func(request) string { return woh("", events(p)...) })
		s := p.socket("")
		s.say("x")
		p.note("%s", s.gets(9))
	}
}

// messageCases are messages of clients.
func messageCases() []testCase {
	return []testCase{
		{name: "ws-echo", play: echoed(func(s *socket) { s.say("h\u00e9") }, 1)},
		{name: "ws-echo-binary", play: echoed(func(s *socket) { s.frame(2, "\x00\xff") }, 1)},
		{name: "ws-echo-empty", why: "the form with a length is the one that libraries write", play: echoed(func(s *socket) { s.say("") }, 1)},
		{name: "ws-fragments", play: echoed(func(s *socket) {
			s.part([]byte{0x01, 0x82, 0, 0, 0, 0}, "ab")
			s.part([]byte{0x80, 0x82, 0, 0, 0, 0}, "cd")
		}, 1)},
		{name: "ws-ping", why: "a ping is answered at once, and is not the app's affair", play: echoed(func(s *socket) { s.frame(9, "p") }, 1)},
		{name: "ws-pong", why: "a pong is not the app's affair", play: echoed(func(s *socket) { s.frame(10, "p"); s.say("x") }, 1)},
		{name: "ws-message-with-control-prefix", play: echoed(func(s *socket) { s.say(`c:{"type":"detach"}`) }, 1)},
		{name: "ws-large", play: echoed(func(s *socket) { s.say(strings.Repeat("x", 20000)) }, 1)},
		{name: "ws-batched", play: func(p *play) {
			p.sockets(func(r request) string {
				if len(p.seen()) == 2 {
					time.Sleep(moment) // the others come meanwhile
				}
				return woh("")
			})
			s := p.socket("")
			s.say("one")
			time.Sleep(quiet)
			s.say("two")
			s.frame(2, "three")
			s.say("four")
			p.asked(3, 3*moment)
			time.Sleep(quiet)
			p.note("%s", p.bodies())
		}},
	}
}

// appMessageCases are messages of the app.
func appMessageCases() []testCase {
	return []testCase{
		{name: "ws-from-app", play: fromApp(func(p *play) []string {
			return []string{p.event("TEXT", "m:text"), p.event("BINARY", "m:\x00"), p.event("TEXT", "no prefix"), p.event("BINARY", "none"), p.event("TEXT", "m:"), p.event("TEXT", "M:x")}
		})},
		{name: "ws-from-app-ping", play: fromApp(func(p *play) []string { return []string{p.event("PING", "pi"), "PING\r\n", p.event("PONG", "po")} })},
		{name: "ws-from-app-unknown", play: fromApp(func(p *play) []string { return []string{"NEWS\r\n", p.event("OTHER", "x"), p.event("TEXT", "m:after")} })},
		{name: "ws-from-app-lower-hex", play: fromApp(func(p *play) []string { return []string{"TEXT c\r\nm:0123456789\r\n"} })},
		{name: "ws-from-app-broken", play: fromApp(func(p *play) []string { return []string{p.event("TEXT", "m:before"), "TEXT zz\r\nm:x\r\n"} })},
		{name: "ws-from-app-short", why: "half an event is none", play: fromApp(func(p *play) []string { return []string{p.event("TEXT", "m:before"), "TEXT 9\r\nm:x"} })},
		{name: "ws-from-app-large", play: fromApp(func(p *play) []string { return []string{p.event("TEXT", "m:"+strings.Repeat("x", 40000))} })},
		{name: "ws-prefix", play: func(p *play) {
			p.view(func(r request) string {
				return woh("Sec-WebSocket-Extensions: grip; message-prefix=\"out:\"", "OPEN\r\n", p.event("TEXT", "out:a"), p.event("TEXT", "m:b"), p.event("TEXT", "c"))
			})
			p.note("%s", p.socket("").gets(3))
		}},
		{name: "ws-prefix-empty", play: func(p *play) {
			p.view(func(r request) string {
				return woh("Sec-WebSocket-Extensions: grip; message-prefix=\"\"", "OPEN\r\n", p.event("TEXT", "a"), p.control(`{"type":"nothing"}`), p.event("TEXT", "m:b"))
			})
			p.note("%s", p.socket("").gets(3))
		}},
	}
}

// appFieldCases are fields of the app's answers to events.
func appFieldCases() []testCase {
	return []testCase{
		{name: "ws-meta", why: "Debian's zurl ends the socket on a field without a value", play: func(p *play) {
			p.view(func(r request) string {
				p.note("%q Meta-User: %s; Meta-B: %s", r.body, r.get("Meta-User"), r.get("meta-b"))
				switch len(p.seen()) {
				case 1:
					return woh("Sec-WebSocket-Extensions: grip\nSet-Meta-User: bob\nset-meta-b: 1", "OPEN\r\n")
				case 2:
					return woh("Set-Meta-USER: eve")
				case 3:
					return woh("Set-Meta-B:")
				}
				return woh("")
			})
			s := p.socket("", "Meta-User: forged")
			for n := 2; n < 5; n++ {
				s.say("x")
				p.asked(n, moment)
				time.Sleep(quiet)
			}
			p.note("%s", s)
		}},
		{name: "ws-bytes-accepted", why: "not there; a socket whose app does so is ended", play: func(p *play) {
			p.view(func(r request) string {
				p.note("%q replayed %s", r.body, r.get("Content-Bytes-Replayed"))
				switch len(p.seen()) {
				case 1:
					return woh("Sec-WebSocket-Extensions: grip", "OPEN\r\n")
				case 2:
					return woh("Content-Bytes-Accepted: 2")
				}
				return woh("")
			})
			s := p.socket("")
			s.say("four")
			p.asked(2, moment)
			time.Sleep(quiet)
			s.say("x")
			p.asked(3, moment)
			p.note("%s", s.gets(1))
		}},
		{name: "ws-keep-alive-interval", why: "not there", play: func(p *play) {
			p.view(func(r request) string {
				if len(p.seen()) == 1 {
					return woh("Sec-WebSocket-Extensions: grip\nKeep-Alive-Interval: 1", "OPEN\r\n")
				}
				return woh("")
			})
			begun := time.Now()
			p.socket("")
			ok := p.asked(2, 25*time.Second)
			p.note("%v after about %.0f s: %s", ok, time.Since(begun).Seconds(), p.bodies())
		}},
	}
}
