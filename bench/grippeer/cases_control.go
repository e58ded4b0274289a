package main

import (
	"fmt"
	"strings"
	"time"
)

// subscribe is the control message that has a socket join the case's channel.
const subscribe = `{"type":"subscribe","channel":"$c"}`

// subscribed plays a socket in the case's channel that forms are published to.
func subscribed(forms ...string) func(*play) {
	return func(p *play) {
		p.sockets(nil, p.control(subscribe))
		s := p.socket("")
		for _, form := range forms {
			p.items(`{"channel":"$c","formats":{"ws-message":` + form + `}}`)
			time.Sleep(quiet / 2)
		}
		p.note("%s; %s", s.gets(len(forms)), p.bodies())
	}
}

// closed plays a socket that a form closes.
func closed(form string) func(*play) {
	return func(p *play) {
		p.sockets(nil, p.control(subscribe))
		s := p.socket("")
		p.items(`{"channel":"$c","formats":{"ws-message":` + form + `}}`)
		s.gets(1).over(moment)
		p.note("%s", s)
	}
}

// after plays a socket whose app begins with control messages, and to which
// items are published then.
func after(messages []string, items ...string) func(*play) {
	return func(p *play) {
		var events []string
		for _, m := range messages {
			events = append(events, p.control(m))
		}
		p.sockets(nil, events...)
		s := p.socket("")
		for _, item := range items {
			p.items(item)
			time.Sleep(quiet / 2)
		}
		p.note("%s", s.gets(len(items)))
	}
}

// message is an item for sockets; rest is more of its JSON.
func message(text, rest string) string {
	return fmt.Sprintf(`{"channel":"$c","formats":{"ws-message":{"content":%s}}%s}`, quoted(text), rest)
}

// publishedCases are what is published to sockets.
func publishedCases() []testCase {
	return []testCase{
		{name: "ws-subscribe", play: subscribed(`{"content":"text"}`, `{"content-bin":"AP8="}`, `{"type":"binary","content":"b"}`, `{"type":"text","content-bin":"dA=="}`)},
		{name: "ws-published-ping", why: "a ping needs no content", play: subscribed(`{"type":"ping"}`, `{"type":"pong","content":"x"}`)},
		{name: "ws-published-close", play: closed(`{"action":"close","code":4002,"reason":"go"}`)},
		{name: "ws-published-close-bare", why: "a close without a reason says which end it is", play: closed(`{"action":"close"}`)},
		{name: "ws-published-close-text", why: "a close without a reason says which end it is", play: closed(`{"action":"close","code":"4003","content":""}`)},
		{name: "ws-published-close-bad-code", why: "a code that may not be sent is 1000", play: closed(`{"action":"close","code":1005}`)},
		{name: "ws-published-refresh", why: "Debian's version does not have it", play: subscribed(`{"action":"refresh"}`)},
		{name: "ws-published-close-tells-app", why: "the app is told what the client answered", play: func(p *play) {
			p.sockets(nil, p.control(subscribe))
			s := p.socket("")
			p.items(`{"channel":"$c","formats":{"ws-message":{"action":"close","code":4002}}}`)
			s.gets(1).sayClose(4002, "")
			p.asked(2, 2*moment)
			p.note("%s", p.bodies())
		}},
	}
}

// controlCases are control messages.
func controlCases() []testCase {
	return []testCase{
		{name: "ws-subscribe-two", play: after([]string{subscribe, `{"type":"subscribe","channel":"$c-b"}`}, message("a", ""), strings.Replace(message("b", ""), "$c", "$c-b", 1))},
		{name: "ws-subscribe-twice", play: after([]string{subscribe, subscribe}, message("a", ""))},
		{name: "ws-unsubscribe", play: after([]string{subscribe, `{"type":"unsubscribe","channel":"$c"}`}, message("a", ""))},
		{name: "ws-unsubscribe-later", play: func(p *play) {
			p.sockets(func(request) string { return woh("", p.control(`{"type":"unsubscribe","channel":"$c"}`)) }, p.control(subscribe))
			s := p.socket("")
			p.items(message("a", ""))
			s.gets(1).say("off")
			p.asked(2, moment)
			time.Sleep(quiet)
			p.items(message("b", ""))
			p.note("%s", s.gets(2))
		}},
		{name: "ws-detach", why: "behind a detach the app is asked nothing", play: func(p *play) {
			p.sockets(func(request) string { return woh("", p.event("TEXT", "m:last"), p.control(`{"type":"detach"}`)) }, p.control(subscribe))
			s := p.socket("")
			s.say("one")
			s.gets(1).say("two")
			time.Sleep(quiet)
			p.items(message("published", ""))
			s.gets(2).sayClose(1000, "")
			s.over(2 * moment)
			time.Sleep(moment / 2)
			p.note("%s; %s", s, p.bodies())
		}},
		{name: "ws-control-unknown", play: after([]string{`{"type":"ack"}`, `{}`, `[]`, `not json`, `{"type":"subscribe"}`, `{"type":"subscribe","channel":""}`, `{"type":"subscribe","channel":1}`, subscribe}, message("a", ""))},
		{name: "ws-control-binary", play: func(p *play) {
			p.sockets(nil, p.event("BINARY", `c:{"type":"subscribe","channel":"$c"}`))
			s := p.socket("")
			p.items(message("a", ""))
			p.note("%s", s.gets(1))
		}},
	}
}

// socketFilterCases are filters, meta and clocks of sockets.
func socketFilterCases() []testCase {
	return []testCase{
		{name: "ws-filter", play: after([]string{`{"type":"set-meta","name":"user","value":"bob"}`, `{"type":"subscribe","channel":"$c","filters":["skip-self","var-subst"]}`},
			message("mine", `,"meta":{"sender":"bob"}`), message("for %(user)s", ""))},
		{name: "ws-set-meta-delete", play: after([]string{`{"type":"set-meta","name":"user","value":"bob"}`, `{"type":"set-meta","name":"user"}`, `{"type":"subscribe","channel":"$c","filters":["skip-self"]}`},
			message("mine", `,"meta":{"sender":"bob"}`))},
		{name: "ws-6-filters", why: "5 filters a channel are the limit; newer versions of Pushpin have it too", play: after([]string{`{"type":"subscribe","channel":"$c","filters":["a","b","c","d","e","f"]}`}, message("x", ""))},
		{name: "ws-filter-error", play: after([]string{`{"type":"subscribe","channel":"$c","filters":["var-subst"]}`}, message("%(none)s", ""), message("later", ""))},
		{name: "ws-content-filters", play: after([]string{`{"type":"subscribe","channel":"$c","filters":["var-subst"]}`},
			`{"channel":"$c","formats":{"ws-message":{"content":"1","content-filters":["var-subst"]}}}`, `{"channel":"$c","formats":{"ws-message":{"content":"2","content-filters":[]}}}`)},
		{name: "ws-keep-alive", play: func(p *play) {
			p.sockets(nil, p.control(`{"type":"keep-alive","message-type":"text","content":"ka","timeout":2}`))
			s := p.socket("")
			s.until(4*time.Second, func() bool { return len(s.messages) > 0 })
			p.note("%s", s)
		}},
		{name: "ws-send-delayed", play: func(p *play) {
			p.sockets(nil, p.control(`{"type":"send-delayed","message-type":"text","content":"late","timeout":2}`))
			s := p.socket("")
			p.note("%s", s)
			s.until(4*time.Second, func() bool { return len(s.messages) > 0 })
			p.note("%s", s)
		}},
		{name: "ws-flush-delayed", play: func(p *play) {
			p.sockets(nil, p.control(`{"type":"send-delayed","content":"late","timeout":60}`), p.control(`{"type":"flush-delayed"}`))
			p.note("%s", p.socket("").gets(1))
		}},
		{name: "ws-order-same-id", play: after([]string{subscribe}, message("a", `,"id":"1"`), message("b", `,"id":"1"`), message("c", `,"id":"2"`))},
	}
}
