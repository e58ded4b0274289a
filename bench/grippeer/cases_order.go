package main

import (
	"fmt"
	"time"
)

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
