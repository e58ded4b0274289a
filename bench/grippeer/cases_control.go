package main

import (
	"fmt"
	"strings"
	"time"
)

// controlCases are control messages and what is published to sockets.
func controlCases() []testCase {
	const sub = `{"type":"subscribe","channel":"$c"}`
	subscribed := func(forms ...string) func(*play) {
		return func(p *play) {
			p.sockets(nil, p.control(sub))
			s := p.socket("")
			for _, form := range forms {
				p.items(`{"channel":"$c","formats":{"ws-message":` + form + `}}`)
				time.Sleep(quiet / 2)
			}
			p.note("%s; %s", s.gets(len(forms)), p.bodies())
		}
	}
	closed := func(form string) func(*play) {
		return func(p *play) {
			p.sockets(nil, p.control(sub))
			s := p.socket("")
			p.items(`{"channel":"$c","formats":{"ws-message":` + form + `}}`)
			s.gets(1).over(moment)
			p.note("%s", s)
		}
	}
	after := func(messages []string, forms ...string) func(*play) {
		return func(p *play) {
			var events []string
			for _, m := range messages {
				events = append(events, p.control(m))
			}
			p.sockets(nil, events...)
			s := p.socket("")
			for _, form := range forms {
				p.items(form)
				time.Sleep(quiet / 2)
			}
			p.note("%s", s.gets(len(forms)))
		}
	}
	say := func(text, rest string) string {
		return fmt.Sprintf(`{"channel":"$c","formats":{"ws-message":{"content":%s}}%s}`, quoted(text), rest)
	}
	return []testCase{
		{name: "ws-subscribe", play: subscribed(`{"content":"text"}`, `{"content-bin":"AP8="}`, `{"type":"binary","content":"b"}`, `{"type":"text","content-bin":"dA=="}`)},
		{name: "ws-published-ping", why: "a ping needs no content", play: subscribed(`{"type":"ping"}`, `{"type":"pong","content":"x"}`)},
		{name: "ws-published-close", play: closed(`{"action":"close","code":4002,"reason":"go"}`)},
		{name: "ws-published-close-bare", why: "a close without a reason says which end it is", play: closed(`{"action":"close"}`)},
		{name: "ws-published-close-text", why: "a close without a reason says which end it is", play: closed(`{"action":"close","code":"4003","content":""}`)},
		{name: "ws-published-close-bad-code", why: "a code that may not be sent is 1000", play: closed(`{"action":"close","code":1005}`)},
		{name: "ws-published-refresh", why: "Debian's version does not have it", play: subscribed(`{"action":"refresh"}`)},
		{name: "ws-published-close-tells-app", why: "the app is told what the client answered", play: func(p *play) {
			p.sockets(nil, p.control(sub))
			s := p.socket("")
			p.items(`{"channel":"$c","formats":{"ws-message":{"action":"close","code":4002}}}`)
			s.gets(1).sayClose(4002, "")
			p.asked(2, 2*moment)
			p.note("%s", p.bodies())
		}},
		{name: "ws-subscribe-two", play: after([]string{sub, `{"type":"subscribe","channel":"$c-b"}`}, say("a", ""), strings.Replace(say("b", ""), "$c", "$c-b", 1))},
		{name: "ws-subscribe-twice", play: after([]string{sub, sub}, say("a", ""))},
		{name: "ws-unsubscribe", play: after([]string{sub, `{"type":"unsubscribe","channel":"$c"}`}, say("a", ""))},
		{name: "ws-unsubscribe-later", play: func(p *play) {
			p.sockets(func(request) string { return woh("", p.control(`{"type":"unsubscribe","channel":"$c"}`)) }, p.control(sub))
			s := p.socket("")
			p.items(say("a", ""))
			s.gets(1).say("off")
			p.asked(2, moment)
			time.Sleep(quiet)
			p.items(say("b", ""))
			p.note("%s", s.gets(2))
		}},
		{name: "ws-detach", why: "behind a detach the app is asked nothing", play: func(p *play) {
			p.sockets(func(request) string { return woh("", p.event("TEXT", "m:last"), p.control(`{"type":"detach"}`)) }, p.control(sub))
			s := p.socket("")
			s.say("one")
			s.gets(1).say("two")
			time.Sleep(quiet)
			p.items(say("published", ""))
			s.gets(2).sayClose(1000, "")
			s.over(2 * moment)
			time.Sleep(moment / 2)
			p.note("%s; %s", s, p.bodies())
		}},
		{name: "ws-control-unknown", play: after([]string{`{"type":"ack"}`, `{}`, `[]`, `not json`, `{"type":"subscribe"}`, `{"type":"subscribe","channel":""}`, `{"type":"subscribe","channel":1}`, sub}, say("a", ""))},
		{name: "ws-control-binary", play: func(p *play) {
			p.sockets(nil, p.event("BINARY", `c:{"type":"subscribe","channel":"$c"}`))
			s := p.socket("")
			p.items(say("a", ""))
			p.note("%s", s.gets(1))
		}},
		{name: "ws-filter", play: after([]string{`{"type":"set-meta","name":"user","value":"bob"}`, `{"type":"subscribe","channel":"$c","filters":["skip-self","var-subst"]}`},
			say("mine", `,"meta":{"sender":"bob"}`), say("for %(user)s", ""))},
		{name: "ws-set-meta-delete", play: after([]string{`{"type":"set-meta","name":"user","value":"bob"}`, `{"type":"set-meta","name":"user"}`, `{"type":"subscribe","channel":"$c","filters":["skip-self"]}`},
			say("mine", `,"meta":{"sender":"bob"}`))},
		{name: "ws-6-filters", why: "5 filters a channel are the limit; newer versions of Pushpin have it too", play: after([]string{`{"type":"subscribe","channel":"$c","filters":["a","b","c","d","e","f"]}`}, say("x", ""))},
		{name: "ws-filter-error", play: after([]string{`{"type":"subscribe","channel":"$c","filters":["var-subst"]}`}, say("%(none)s", ""), say("later", ""))},
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
		{name: "ws-order-same-id", play: after([]string{sub}, say("a", `,"id":"1"`), say("b", `,"id":"1"`), say("c", `,"id":"2"`))},
	}
}

// publishCases are calls of the publishing address.
func publishCases() []testCase {
	calls := func(bodies ...string) func(*play) {
		return func(p *play) {
			p.says(plain("Grip-Hold: stream\nGrip-Channel: $c", "head\n"))
			held := p.get("").head()
			for _, body := range bodies {
				c := p.call("POST", "/publish/", "Content-Type: application/json\r\n", body)
				p.note("%-60s %s", strings.ReplaceAll(body, "$c", "C"), strings.SplitN(c.String(), " ", 2)[0])
			}
			p.note("%s", held.settled())
		}
	}
	const ok = `"formats":{"http-stream":{"content":"x"}}`
	item := func(inner string) string { return `{"items":[{` + inner + `}]}` }
	return []testCase{
		{name: "publish-inline", play: calls(item(`"channel":"$c","http-stream":{"content":"inline\n"}`))},
		{name: "publish-formats", play: calls(item(`"channel":"$c","formats":{"http-stream":{"content":"nested\n"}}`))},
		{name: "publish-two", play: calls(`{"items":[{"channel":"$c","http-stream":{"content":"1\n"}},{"channel":"$c","http-stream":{"content":"2\n"}}]}`, `{"items":[]}`)},
		{name: "publish-one-bad", play: calls(`{"items":[{"channel":"$c","http-stream":{"content":"1\n"}},{"channel":"$c"}]}`)},
		{name: "publish-fields", play: calls(item(`"channel":"$c","other":1,`+ok), item(`"channel":"$c","size":3,"code":"x","type":"y",`+ok))},
		{name: "publish-bad", why: "what cannot be delivered as it says is refused, and numbers are read as text where that is meant", play: calls(`not json`, `[]`, `{}`, `{"items":{}}`, `{"items":[1]}`, item(ok), item(`"channel":"",`+ok), item(`"channel":1,`+ok), item(`"channel":"$c"`),
			item(`"channel":"$c","formats":{}`), item(`"channel":"$c","formats":[]`), item(`"channel":"$c","formats":{"other":{}}`),
			item(`"channel":"$c","formats":{"http-stream":{}}`), item(`"channel":"$c","formats":{"http-stream":"x"}`), item(`"channel":"$c","formats":{"http-stream":{"content":1}}`),
			item(`"channel":"$c","formats":{"http-stream":{"content-bin":"!!"}}`), item(`"channel":"$c","formats":{"http-stream":{"action":"odd","content":"x"}}`),
			item(`"channel":"$c","formats":{"http-stream":{"content":"x","content-filters":"a"}}`), item(`"channel":"$c","formats":{"http-response":{}}`),
			item(`"channel":"$c","formats":{"http-response":{"code":"x","body":""}}`), item(`"channel":"$c","formats":{"http-response":{"code":1000,"body":""}}`),
			item(`"channel":"$c","formats":{"http-response":{"headers":"x","body":""}}`), item(`"channel":"$c","formats":{"ws-message":{}}`),
			item(`"channel":"$c","formats":{"ws-message":{"type":"odd","content":"x"}}`), item(`"channel":"$c","formats":{"ws-message":{"action":"close","code":"x"}}`),
			item(`"channel":"$c","meta":{"a":1},`+ok), item(`"channel":"$c","meta":[],`+ok), item(`"channel":"$c","no-seq":"x",`+ok), item(`"channel":"$c","prev-id":1,`+ok))},
		{name: "publish-number-id", why: "a number is read as its digits", play: calls(item(`"channel":"$c","id":1,` + ok))},
		{name: "publish-response-without-body", why: "an answer without a body has an empty one", play: calls(item(`"channel":"$c","formats":{"http-response":{"code":200}}`))},
		{name: "publish-answers", why: "with a key publishing needs it, and the answer is text unless JSON is asked for", play: func(p *play) {
			body := item(`"channel":"$c",` + ok)
			p.note("%s", p.call("POST", "/publish/", "", body))
			p.note("%s", p.call("POST", "/publish", "", body))
			p.note("json %s", p.call("POST", "/publish/", "Accept: application/json\r\n", body))
			p.note("html %s", p.call("POST", "/publish/", "Accept: text/html\r\n", body))
			p.note("text type %s", p.call("POST", "/publish/", "Content-Type: text/plain\r\n", body))
			c := p.call("GET", "/publish/", "", "")
			p.note("GET %s Allow %s", c, c.header.Get("Allow"))
			p.note("other %s", p.call("POST", "/other", "", body))
			p.note("subscriptions %s", p.call("GET", "/subscriptions/items/", "", ""))
			p.note("without a key %s", p.call("POST", "/publish/", "Authorization: \r\n", body))
			p.note("with a key %s", p.call("POST", "/publish/", "Authorization: Bearer "+key+"\r\n", body))
		}},
	}
}
