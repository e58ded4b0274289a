package main

import (
	"io"
	"strings"
	"time"
)

// poll opens a response hold and gives the peer a moment to make it.
func (p *play) poll(fields, body string) *client {
	p.says(plain("Grip-Hold: response\nGrip-Channel: $c\n"+fields, body))
	c := p.get("")
	p.asked(1, moment)
	time.Sleep(quiet)
	return c
}

// answered publishes an item until the client has its answer: when a peer has
// made the hold cannot be seen, and one more does not reach an answered one.
func (p *play) answered(c *client, item string) {
	for tries := 0; tries < 3; tries++ {
		if p.items(item); c.over(moment).String() != "no answer, open" {
			return
		}
	}
}

// polled plays a response hold that an item is published to.
func polled(fields, form string) func(*play) {
	return func(p *play) {
		c := p.poll(fields, "late\n")
		p.answered(c, `{"channel":"$c","formats":{"http-response":`+form+`}}`)
		p.note("%s; %s", c, c.fields())
	}
}

// timed plays a response hold that nothing is published to.
func timed(field string, least int) func(*play) {
	return func(p *play) {
		begun := time.Now()
		p.says(plain("X-Own: 1\nGrip-Hold: response\nGrip-Channel: $c\n"+field, "late\n"))
		c := p.get("").over(10 * time.Second)
		took := time.Since(begun)
		p.note("%s; %s", c, c.fields())
		p.note("after %d s or a little more: %v", least, took >= time.Duration(least)*time.Second && took < time.Duration(least+3)*time.Second)
	}
}

// pollCases are response holds that an item answers.
func pollCases() []testCase {
	return []testCase{
		{name: "poll", play: polled("X-A: a\nX-B: b\nETag: \"x\"", `{"code":201,"reason":"Mine","headers":{"x-a":"new","X-C":"c"},"body":"now\n"}`)},
		{name: "poll-bare", play: polled("X-A: a", `{"body":"now\n"}`)},
		{name: "poll-header-list", play: polled("X-A: a\nX-A: b", `{"headers":[["X-A","1"],["X-A","2"],["Set-Cookie","a=b"]],"body":"now\n"}`)},
		{name: "poll-code-text", play: polled("", `{"code":"202","body":"now\n"}`)},
		{name: "poll-code-404", play: polled("", `{"code":404,"body":"now\n"}`)},
		{name: "poll-code-unknown", why: "a reason is not made up", play: polled("", `{"code":299,"body":"now\n"}`)},
		{name: "poll-code-204", play: polled("", `{"code":204,"body":""}`)},
		{name: "poll-body-bin", play: polled("", `{"body":"text","body-bin":"AAE="}`)},
		{name: "poll-status-of-view", play: polled("Grip-Status: 404", `{"body":"now\n"}`)},
		{name: "poll-expose-headers", why: "Pushpin takes the listed fields away, which looks like a fault; it is a field like others", play: polled("X-A: a", `{"headers":{"X-C":"c","Grip-Expose-Headers":"X-C"},"body":"now"}`)},
		{name: "poll-content-length", play: polled("", `{"headers":{"Content-Length":"99","Transfer-Encoding":"chunked"},"body":"now"}`)},
	}
}

// pollEndCases are other ends of response holds.
func pollEndCases() []testCase {
	return []testCase{
		{name: "poll-close", play: func(p *play) {
			c := p.poll("Grip-Timeout: 5", "late\n")
			p.items(`{"channel":"$c","formats":{"http-stream":{"action":"close"}}}`)
			p.note("%s", c.settled())
			p.note("%s", c.over(9*time.Second))
		}},
		{name: "poll-hint", why: "the client gets the answer of its view and asks again by itself", play: func(p *play) {
			c := p.poll("Grip-Timeout: 5", "late\n")
			p.says(plain("", "asked again\n"))
			p.items(`{"channel":"$c","formats":{"http-response":{"action":"hint"}}}`)
			p.note("%s; asked %d", c.over(2*moment), len(p.seen()))
		}},
		{name: "poll-stream-item", play: func(p *play) {
			c := p.poll("", "late\n")
			p.stream("stream", "")
			p.note("%s", c.settled())
		}},
		{name: "poll-keeps-connection", play: func(p *play) {
			c := p.poll("", "late\n")
			p.answered(c, `{"channel":"$c","formats":{"http-response":{"body":"now"}}}`)
			io.WriteString(c.conn, p.text("GET $pagain HTTP/1.1\r\nHost: $h\r\n\r\n"))
			p.note("%s; asked again: %v", c, p.asked(2, moment))
		}},
		{name: "poll-client-leaves", play: func(p *play) {
			c := p.poll("", "late\n")
			c.close()
			time.Sleep(moment)
			p.items(`{"channel":"$c","formats":{"http-response":{"body":"now"}}}`)
			p.note("asked %d", len(p.seen()))
		}},
		{name: "poll-timeout-5", play: timed("Grip-Timeout: 5", 5)},
		{name: "poll-timeout-6-status", play: timed("Grip-Timeout: 6\nGrip-Status: 304", 6)},
		{name: "poll-timeout-0", play: timed("Grip-Timeout: 0", 5)},
		{name: "poll-timeout-bad", play: each(plain("Grip-Hold: response\nGrip-Channel: $c\nGrip-Timeout: x", "x"), plain("Grip-Hold: response\nGrip-Channel: $c\nGrip-Timeout: -1", "x"))},
		{name: "poll-status-404", play: func(p *play) {
			p.says(answer("404 None", "Grip-Hold: response\nGrip-Channel: $c\nGrip-Timeout: 5", "late\n"))
			p.note("%s", p.get("").over(9*time.Second))
		}},
	}
}

// pollGapCases are response holds that miss something.
func pollGapCases() []testCase {
	return []testCase{
		{name: "poll-prev-id-follows", play: func(p *play) {
			p.says(plain("Grip-Hold: response\nGrip-Channel: $c; prev-id=5", "late\n"))
			c := p.get("")
			time.Sleep(quiet)
			p.items(`{"channel":"$c","id":"6","prev-id":"5","formats":{"http-response":{"body":"six"}}}`)
			p.note("%s; asked %d", c.over(moment), len(p.seen()))
		}},
		{name: "poll-prev-id-gap", why: "the client gets the answer of its view and asks again by itself", play: pollGap(`"id":"9","prev-id":"8",`)},
		{name: "poll-prev-id-without", why: "the client gets the answer of its view and asks again by itself", play: pollGap("")},
		{name: "poll-prev-id-known", play: func(p *play) {
			p.says(plain("Grip-Hold: response\nGrip-Channel: $c", "late\n"))
			first := p.get("")
			time.Sleep(quiet)
			p.items(`{"channel":"$c","id":"7","formats":{"http-response":{"body":"seven"}}}`)
			p.note("%s", first.over(moment))
			p.view(func(r request) string {
				p.note("%s; Grip-Last: %s; Cookie: %s", r.method, r.get("Grip-Last"), r.get("Cookie"))
				if len(p.seen()) > 2 {
					return plain("", "what is missing\n")
				}
				return plain("Grip-Hold: response\nGrip-Channel: $c; prev-id=5\nGrip-Timeout: 5", "late\n")
			})
			p.note("%s", p.get("", "Cookie: a=b").over(3*moment))
		}},
	}
}

// pollGap plays an item that does not follow what the hold has.
func pollGap(ids string) func(*play) {
	return func(p *play) {
		p.view(func(r request) string {
			p.note("%s %s %q; Grip-Last: %s; Cookie: %s", r.method, strings.TrimPrefix(r.target, p.text("$p")), r.body, r.get("Grip-Last"), r.get("Cookie"))
			if len(p.seen()) > 1 {
				return plain("", "what is missing\n")
			}
			return plain("Grip-Hold: response\nGrip-Channel: $c; prev-id=5\nGrip-Channel: $c-b; prev-id=1\nGrip-Channel: $c-n\nGrip-Timeout: 5", "late\n")
		})
		c := p.send("POST", "x?y=z", "Cookie: a=b", "the question")
		p.asked(1, moment)
		time.Sleep(quiet)
		p.items(`{"channel":"$c",` + ids + `"formats":{"http-response":{"body":"nine"}}}`)
		p.note("%s", c.over(9*time.Second))
	}
}
