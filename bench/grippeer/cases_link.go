package main

import (
	"fmt"
	"strings"
	"time"
)

// linked opens a hold, or a first page, with a next link.
func (p *play) linked(fields string, next func(n int) string) *client {
	c := p.linkedLater(fields, next)
	p.link.Store(true)
	return c.head()
}

// linkedLater opens a hold with a next link. Once p.link is true the app
// answers it as next says; n is how often it was asked from then on, and each
// request for it is noted. Before that there is nothing new.
func (p *play) linkedLater(fields string, next func(n int) string) *client {
	n := 0
	p.view(func(r request) string {
		at := strings.TrimPrefix(r.target, p.text("$p"))
		switch {
		case at == "":
			return plain(fields, "head\n")
		case !p.link.Load():
			return p.nothingNew(fields, r)
		}
		n++
		p.note("%s %s; Grip-Last: %s; Cookie: %s", r.method, at, r.get("Grip-Last"), r.get("Cookie"))
		return next(n)
	})
	return p.get("", "Cookie: a=b")
}

const (
	// atFive is a hold with a next link whose channel is at 5, and another at b1.
	atFive = "Grip-Hold: stream\nGrip-Channel: $c; prev-id=5, $c-b; prev-id=b1, $c-n\nGrip-Link: <next?x=y>; rel=next; timeout=3600"
	// atNine is what the app answers to the link.
	atNine = "Grip-Hold: stream\nGrip-Channel: $c; prev-id=9\nGrip-Link: <later>; rel=next; timeout=3600"
)

// more is the app's answer to a link that was asked for n times.
func more(n int) string { return plain(atNine, fmt.Sprintf("more %d\n", n)) }

// numbered is an item for streams with the app's ids.
func numbered(id, prev, content string) string {
	return fmt.Sprintf(`{"channel":"$c","id":"%s","prev-id":"%s","formats":{"http-stream":{"content":%s}}}`, id, prev, quoted(content))
}

// gap plays items to a hold that is at 5; "" is time for what comes of the last.
func gap(next func(n int) string, items ...string) func(*play) {
	return func(p *play) {
		c := p.linkedLater(atFive, next).head()
		time.Sleep(2 * moment)
		p.link.Store(true)
		for _, item := range items {
			if item != "" {
				p.items(item)
			}
			time.Sleep(moment)
		}
		p.note("%s", c.settled())
	}
}

// page plays a first page whose link is answered by what is given, and by
// "again" if it is asked for once more.
func page(first string) func(*play) {
	return func(p *play) {
		p.note("%s", p.linked("Grip-Link: <page>; rel=next", func(n int) string {
			if n > 1 {
				return plain("", "again\n")
			}
			return first
		}).over(4*time.Second))
	}
}

// linkCases are links for what is missing.
func linkCases() []testCase {
	return []testCase{
		{name: "link-follows", play: gap(func(int) string { return plain(atFive, "") }, numbered("6", "5", "six\n"), numbered("7", "6", "seven\n"))},
		{name: "link-gap", play: gap(more, numbered("9", "8", "nine\n"), numbered("10", "9", "ten\n"))},
		{name: "link-item-without-prev-id", play: gap(more, `{"channel":"$c","id":"9","formats":{"http-stream":{"content":"nine\n"}}}`, `{"channel":"$c","formats":{"http-stream":{"content":"none\n"}}}`, "", "", "")},
		{name: "link-hint", play: gap(more, `{"channel":"$c","formats":{"http-stream":{"action":"hint"}}}`)},
		{name: "link-recover", alone: true, why: "how many are asked for is said", play: func(p *play) {
			c := p.linkedLater(atFive, more).head()
			time.Sleep(2 * moment)
			p.link.Store(true)
			p.note("/recover: %s", p.call("POST", "/recover", "", ""))
			time.Sleep(moment)
			p.note("%s", c)
		}},
		{name: "link-timeout", play: func(p *play) {
			c := p.linkedLater("Grip-Hold: stream\nGrip-Channel: $c\nGrip-Link: <next>; rel=next; timeout=3", func(n int) string {
				return plain("Grip-Hold: stream\nGrip-Channel: $c\nGrip-Link: <next>; rel=next; timeout=3600", "quiet for 3 s\n")
			})
			c.head()
			time.Sleep(2 * moment)
			p.link.Store(true)
			c.has("quiet", 6*time.Second)
			p.note("%s", c)
		}},
		{name: "link-conflict-at-first", why: "Pushpin asks once more when a channel is new to it, Holdfast where something is missing", play: func(p *play) {
			p.says(plain("Grip-Hold: stream\nGrip-Channel: $c", "head\n"))
			p.get("").head()
			p.items(numbered("9", "8", "nine\n"))
			c := p.linked(atFive, more)
			c.has("more", 3*time.Second)
			p.note("%s", c.settled())
		}},
	}
}

// pageCases are pages, and links that lead to nothing.
func pageCases() []testCase {
	return []testCase{
		{name: "link-pages", play: func(p *play) {
			c := p.linked("Grip-Link: <page>; rel=next", func(n int) string {
				if n < 4 {
					return plain("Grip-Link: <page>; rel=next", fmt.Sprintf("page %d\n", n))
				}
				return plain("Grip-Hold: stream\nGrip-Channel: $c", "held\n")
			})
			c.has("held", 3*time.Second)
			time.Sleep(quiet)
			p.stream("item\n", "")
			p.note("%s", c.settled())
		}},
		{name: "link-pages-end", play: func(p *play) {
			p.note("%s", p.linked("Grip-Link: <page>; rel=next", func(int) string { return plain("X-Later: 1", "last\n") }).settled())
		}},
		{name: "link-response-hold", why: "nothing of an answer that cannot be followed is shown", play: page(plain("Grip-Hold: response\nGrip-Channel: $c", "poll\n"))},
		{name: "link-bad-instruction", why: "nothing of an answer that cannot be followed is shown", play: page(plain("Grip-Hold: odd\nGrip-Channel: $c", "bad\n"))},
		{name: "link-fails-then-works", play: linkFails(3)},
		{name: "link-fails", play: linkFails(100)},
		{name: "link-redirect", why: "only no answer and a 5xx are asked again", play: page(answer("302 Found", "Location: $pother", "moved\n"))},
		{name: "link-until-close", play: page("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nto the end\n")},
		{name: "link-forms", play: each(
			plain("Grip-Hold: stream\nGrip-Channel: $c\nGrip-Link: page; rel=next", "x\n"), plain("Grip-Hold: stream\nGrip-Channel: $c\nGrip-Link: <page>", "x\n"),
			plain("Grip-Hold: stream\nGrip-Channel: $c\nGrip-Link: <page>; rel=other", "x\n"), plain("Grip-Hold: stream\nGrip-Channel: $c\nGrip-Link: <page>; rel=next; timeout=x", "x\n"),
			plain("Grip-Hold: stream\nGrip-Channel: $c\nGrip-Link: <page>; rel=next; timeout=-1", "x\n"), plain("Grip-Hold: stream\nGrip-Channel: $c\nGrip-Link: <>; rel=next", "x\n"))},
		{name: "link-without-prev-id-link", why: "what is missing comes from the journal, without a link", play: func(p *play) {
			p.says(plain("Grip-Hold: stream\nGrip-Channel: $c; prev-id=5", "head\n"))
			p.note("%s", p.get("").over(2*moment))
		}},
		{name: "link-absolute", play: func(p *play) {
			p.note("%s", p.linked("Grip-Link: <http://$h$pabsolute>; rel=next", func(int) string { return plain("", "own\n") }).over(3*time.Second))
		}},
		{name: "link-other-host", why: "links are followed to our own address only", play: func(p *play) {
			p.note("%s", p.linked("Grip-Link: <http://$a$pabsolute>; rel=next", func(int) string { return plain("", "other\n") }).over(5*time.Second))
		}},
		{name: "link-request-fields", play: func(p *play) {
			p.linked("Grip-Link: <page>; rel=next", func(int) string { return plain("", "last\n") }).settled()
			p.note("%v", p.seen()[len(p.seen())-1].names())
		}},
	}
}

func linkFails(times int) func(*play) {
	return func(p *play) {
		begun := time.Now()
		c := p.linked("Grip-Link: <page>; rel=next", func(n int) string {
			if n <= times {
				return answer("500 Odd", "", "odd")
			}
			return plain("", "worked\n")
		}).over(60 * time.Second)
		p.note("%s after about %d s", c, int(time.Since(begun).Seconds()/10+0.5)*10)
	}
}
