package main

import (
	"fmt"
	"strings"
	"time"
)

// filterCases are the filters and meta.
func filterCases() []testCase {
	const meta = "\nGrip-Set-Meta: user=\"bob\", name=\"a b\"\nGrip-Set-Meta: id_format=\"v:%($c)s\""
	publish := func(channel string, items ...string) func(*play) {
		return held("Grip-Hold: stream\nGrip-Link: <$plink>; rel=next; timeout=3600\nGrip-Channel: "+channel+meta, "head\n", func(p *play, c *client) {
			for _, item := range items {
				p.items(item)
				c.settled()
			}
		})
	}
	with := func(content, rest string) string {
		return fmt.Sprintf(`{"channel":"$c","formats":{"http-stream":{"content":%s}}%s}`, quoted(content), rest)
	}
	rendered := func(channel string) func(*play) {
		return publish(channel, with("id: %I\n", `,"id":"6","prev-id":"5"`), with("id: %I %(x\\)y)I %%\n", `,"id":"7","prev-id":"6"`))
	}
	body := func(fields, text string) func(*play) {
		return held("Grip-Hold: stream\n"+fields, text, func(*play, *client) {})
	}
	return []testCase{
		{name: "var-subst", play: publish("$c; filter=var-subst", with("%(user)s %(name)s %%\n", ""))},
		{name: "var-subst-unknown", why: "an item that cannot be rewritten is left out, and the stream goes on", play: publish("$c; filter=var-subst", with("%(other)s\n", ""), with("later\n", ""))},
		{name: "var-subst-directive", why: "an item that cannot be rewritten is left out, and the stream goes on", play: publish("$c; filter=var-subst", with("%d\n", ""), with("later\n", ""))},
		{name: "skip-self", play: publish("$c; filter=skip-self", with("mine\n", `,"meta":{"sender":"bob"}`), with("theirs\n", `,"meta":{"sender":"eve"}`), with("none\n", ""))},
		{name: "skip-users", play: publish("$c; filter=skip-users", with("1\n", `,"meta":{"skip_users":"eve,bob"}`), with("2\n", `,"meta":{"skip_users":"bobby"}`), with("3\n", `,"meta":{"skip_users":"eve, bob"}`), with("4\n", ""))},
		{name: "require-sub", play: publish("$c; filter=require-sub", with("1\n", `,"meta":{"require_sub":"$c"}`), with("2\n", `,"meta":{"require_sub":"other"}`), with("3\n", ""))},
		{name: "filter-name-in-capitals", why: "names of parameters are read in any case", play: publish("$c; FILTER=skip-self; Filter=skip-self", with("mine\n", `,"meta":{"sender":"bob"}`))},
		{name: "filters-skipped-item-counts", play: publish("$c; prev-id=5; filter=skip-self", with("six\n", `,"id":"6","prev-id":"5","meta":{"sender":"bob"}`), with("seven\n", `,"id":"7","prev-id":"6"`))},
		{name: "build-id", play: rendered("$c; prev-id=5; filter=build-id")},
		{name: "build-id-without-prev-id", why: "an item that cannot be rewritten is left out, and the stream goes on", play: publish("$c; filter=build-id", with("no directive\n", ""), with("id: %I\n", `,"id":"6"`), with("later\n", ""))},
		{name: "build-id-directive", why: "an item that cannot be rewritten is left out, and the stream goes on", play: publish("$c; prev-id=5; filter=build-id", with("%d\n", `,"id":"6","prev-id":"5"`), with("later\n", `,"id":"7","prev-id":"6"`))},
		{name: "build-id-hex", play: held("Grip-Hold: stream\nGrip-Link: <$plink>; rel=next; timeout=3600\nGrip-Channel: $c; prev-id=5; filter=build-id\nGrip-Set-Meta: id_format=\"%($c)s\", id_encoding=hex", "head\n", func(p *play, c *client) {
			p.items(with("id: %I\n", `,"id":"6","prev-id":"5"`))
		})},
		{name: "build-id-no-format", why: "an item that cannot be rewritten is left out, and the stream goes on", play: held("Grip-Hold: stream\nGrip-Link: <$plink>; rel=next; timeout=3600\nGrip-Channel: $c; prev-id=5; filter=build-id", "head\n", func(p *play, c *client) {
			p.items(with("id: %I\n", `,"id":"6","prev-id":"5"`))
		})},
		{name: "body-build-id", play: body("Grip-Channel: $c; filter=build-id"+meta, "id: %(a)I %% end\n")},
		{name: "body-build-id-own", why: "an unknown directive in an answer's body stays as it is", play: body("Grip-Channel: $c; prev-id=5; filter=build-id\nGrip-Link: <$plink>; rel=next; timeout=3600"+meta, "id: %I end\n")},
		{name: "body-unknown-directive", why: "an unknown directive in an answer's body stays as it is", play: body("Grip-Channel: $c; filter=build-id"+meta, "id: a%20b end\n")},
		{name: "body-var-subst", play: body("Grip-Channel: $c; filter=var-subst"+meta, "user %(user)s\n")},
		{name: "body-no-hold", play: func(p *play) {
			each(plain("Grip-Channel: $c; filter=build-id"+meta, "100%% %(a)I\n"), plain("Grip-Channel: $c; filter=build-id", "100%%\n"))(p)
		}},
		{name: "body-two-filters", play: body("Grip-Channel: $c-a; filter=build-id, $c-b; filter=build-id"+meta, "100%% 100%%%%\n")},
		{name: "content-filters", why: "an item for other filters is left out, and the stream goes on, as in newer versions of Pushpin", play: publish("$c; prev-id=5; filter=build-id; filter=skip-users",
			`{"channel":"$c","id":"6","prev-id":"5","formats":{"http-stream":{"content":"one %%\n","content-filters":["build-id"]}}}`,
			`{"channel":"$c","id":"7","prev-id":"6","formats":{"http-stream":{"content":"two %%\n","content-filters":[]}}}`,
			`{"channel":"$c","id":"8","prev-id":"7","formats":{"http-stream":{"content":"three %%\n","content-filters":["build-id","skip-users"]}}}`,
			`{"channel":"$c","id":"9","prev-id":"8","formats":{"http-stream":{"content":"four %%\n"}}}`)},
		{name: "content-filters-none-held", why: "an item for other filters is left out, and the stream goes on, as in newer versions of Pushpin", play: publish("$c",
			`{"channel":"$c","formats":{"http-stream":{"content":"one\n","content-filters":["build-id"]}}}`,
			`{"channel":"$c","formats":{"http-stream":{"content":"two\n","content-filters":[]}}}`)},
		{name: "set-meta-forms", play: held("Grip-Hold: stream\nGrip-Channel: $c; filter=var-subst\nGrip-Set-Meta: a=1, b=\"2,\\\"x\\\"\"; c=3, d\nGrip-Set-Meta: E=5", "head\n", func(p *play, c *client) {
			p.stream("%(a)s %(b)s\n", "")
			p.stream("%(E)s\n", "")
		})},
		{name: "set-meta-second-pair", why: "an item that cannot be rewritten is left out, and the stream goes on", play: held("Grip-Hold: stream\nGrip-Channel: $c; filter=var-subst\nGrip-Set-Meta: a=1; c=3", "head\n", func(p *play, c *client) { p.stream("%(c)s\n", "") })},
	}
}

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

// linkCases are next links: what is missing, pages and failures.
func linkCases() []testCase {
	const first = "Grip-Hold: stream\nGrip-Channel: $c; prev-id=5, $c-b; prev-id=b1, $c-n\nGrip-Link: <next?x=y>; rel=next; timeout=3600"
	const again = "Grip-Hold: stream\nGrip-Channel: $c; prev-id=9\nGrip-Link: <later>; rel=next; timeout=3600"
	gap := func(next func(n int) string, items ...string) func(*play) {
		return func(p *play) {
			c := p.linkedLater(first, next).head()
			time.Sleep(2 * moment)
			p.link.Store(true)
			for _, item := range items {
				p.items(item)
				time.Sleep(moment)
			}
			p.note("%s", c.settled())
		}
	}
	more := func(n int) string { return plain(again, fmt.Sprintf("more %d\n", n)) }
	item := func(id, prev, content string) string {
		return fmt.Sprintf(`{"channel":"$c","id":"%s","prev-id":"%s","formats":{"http-stream":{"content":%s}}}`, id, prev, quoted(content))
	}
	return []testCase{
		{name: "link-follows", play: gap(func(int) string { return plain(first, "") }, item("6", "5", "six\n"), item("7", "6", "seven\n"))},
		{name: "link-gap", play: gap(more, item("9", "8", "nine\n"), item("10", "9", "ten\n"))},
		{name: "link-item-without-prev-id", why: "it asks again after a while, which doubles", play: gap(more, `{"channel":"$c","id":"9","formats":{"http-stream":{"content":"nine\n"}}}`, `{"channel":"$c","formats":{"http-stream":{"content":"none\n"}}}`)},
		{name: "link-hint", play: gap(more, `{"channel":"$c","formats":{"http-stream":{"action":"hint"}}}`)},
		{name: "link-recover", alone: true, why: "how many are asked for is said", play: func(p *play) {
			c := p.linkedLater(first, more).head()
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
			p.items(item("9", "8", "nine\n"))
			c := p.linked(first, more)
			c.has("more", 3*time.Second)
			p.note("%s", c.settled())
		}},
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
		{name: "link-response-hold", why: "nothing of an answer that cannot be followed is shown", play: func(p *play) {
			p.note("%s", p.linked("Grip-Link: <page>; rel=next", func(n int) string {
				if n > 1 {
					return plain("", "again\n")
				}
				return plain("Grip-Hold: response\nGrip-Channel: $c", "poll\n")
			}).over(3*time.Second))
		}},
		{name: "link-bad-instruction", why: "nothing of an answer that cannot be followed is shown", play: func(p *play) {
			p.note("%s", p.linked("Grip-Link: <page>; rel=next", func(n int) string {
				if n > 1 {
					return plain("", "again\n")
				}
				return plain("Grip-Hold: odd\nGrip-Channel: $c", "bad\n")
			}).over(3*time.Second))
		}},
		{name: "link-fails-then-works", play: linkFails(3)},
		{name: "link-fails", play: linkFails(100)},
		{name: "link-redirect", why: "only no answer and a 5xx are asked again", play: func(p *play) {
			p.note("%s", p.linked("Grip-Link: <page>; rel=next", func(n int) string {
				if n > 1 {
					return plain("", "again\n")
				}
				return answer("302 Found", "Location: $pother", "moved\n")
			}).over(4*time.Second))
		}},
		{name: "link-cut", play: func(p *play) {
			p.note("%s", p.linked("Grip-Link: <page>; rel=next", func(n int) string {
				if n > 1 {
					return plain("", "again\n")
				}
				return "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" // its end is the connection's
			}).over(4*time.Second))
		}},
		{name: "link-forms", why: "an empty reference is one to the address itself (RFC 3986)", play: each(
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

// orderCases are the order of items, and items that come twice.
func orderCases() []testCase {
	list := func(wait time.Duration, items ...string) func(*play) {
		return held("Grip-Hold: stream\nGrip-Channel: $c", "head\n", func(p *play, c *client) {
			for _, item := range items {
				p.items(item)
				p.note("%s", c.settled())
			}
			time.Sleep(wait)
		})
	}
	item := func(id, prev, rest string) string {
		ids := ""
		if id != "" {
			ids += fmt.Sprintf(`"id":%q,`, id)
		}
		if prev != "" {
			ids += fmt.Sprintf(`"prev-id":%q,`, prev)
		}
		return fmt.Sprintf(`{"channel":"$c",%s"formats":{"http-stream":{"content":"%s\n"}}%s}`, ids, id, rest)
	}
	closing := `{"channel":"$c","id":"kick","formats":{"http-stream":{"action":"close"}}}`
	return []testCase{
		{name: "order-same-id", play: list(0, item("1", "", ""), item("1", "", ""), item("2", "1", ""), item("1", "", ""))},
		{name: "order-same-id-no-seq", play: list(0, item("1", "", ""), item("1", "", `,"no-seq":true`))},
		{name: "order-same-close", why: "an item that closes is never taken for a repeated one", play: func(p *play) {
			p.says(plain("Grip-Hold: stream\nGrip-Channel: $c", "head\n"))
			one := p.get("").head()
			p.items(closing)
			p.note("%s", one.settled())
			two := p.get("").head()
			p.items(closing)
			p.note("%s", two.settled())
		}},
		{name: "order-swapped", play: list(0, item("1", "", ""), item("3", "2", ""), item("2", "1", ""))},
		{name: "order-missing", play: list(6*time.Second, item("1", "", ""), item("3", "2", ""))},
		{name: "order-no-id-between", play: list(0, item("1", "", ""), item("", "", ""), item("3", "2", ""))},
		{name: "order-no-seq", play: list(0, item("1", "", ""), item("3", "2", `,"no-seq":true`))},
		{name: "order-first-with-prev", play: list(0, item("9", "8", ""))},
	}
}
