package main

import (
	"fmt"
)

// meta is what filters know of the holds of their cases.
const meta = "\nGrip-Set-Meta: user=\"bob\", name=\"a b\"\nGrip-Set-Meta: id_format=\"v:%($c)s\""

// filtered plays a hold with a channel's filters that items are published to.
func filtered(channel string, items ...string) func(*play) {
	return held("Grip-Hold: stream\nGrip-Link: <$plink>; rel=next; timeout=3600\nGrip-Channel: "+channel+meta, "head\n", func(p *play, c *client) {
		for _, item := range items {
			p.items(item)
			c.settled()
		}
	})
}

// with is an item for streams; rest is more of its JSON.
func with(content, rest string) string {
	return fmt.Sprintf(`{"channel":"$c","formats":{"http-stream":{"content":%s}}%s}`, quoted(content), rest)
}

// begun plays a hold of which the first bytes are looked at.
func begun(fields, text string) func(*play) {
	return held("Grip-Hold: stream\n"+fields, text, func(*play, *client) {})
}

// filterCases are the filters.
func filterCases() []testCase {
	return []testCase{
		{name: "var-subst", play: filtered("$c; filter=var-subst", with("%(user)s %(name)s %%\n", ""))},
		{name: "var-subst-unknown", why: "an item that cannot be rewritten is left out, and the stream goes on", play: filtered("$c; filter=var-subst", with("%(other)s\n", ""), with("later\n", ""))},
		{name: "var-subst-directive", why: "an item that cannot be rewritten is left out, and the stream goes on", play: filtered("$c; filter=var-subst", with("%d\n", ""), with("later\n", ""))},
		{name: "skip-self", play: filtered("$c; filter=skip-self", with("mine\n", `,"meta":{"sender":"bob"}`), with("theirs\n", `,"meta":{"sender":"eve"}`), with("none\n", ""))},
		{name: "skip-users", play: filtered("$c; filter=skip-users", with("1\n", `,"meta":{"skip_users":"eve,bob"}`), with("2\n", `,"meta":{"skip_users":"bobby"}`), with("3\n", `,"meta":{"skip_users":"eve, bob"}`), with("4\n", ""))},
		{name: "require-sub", play: filtered("$c; filter=require-sub", with("1\n", `,"meta":{"require_sub":"$c"}`), with("2\n", `,"meta":{"require_sub":"other"}`), with("3\n", ""))},
		{name: "filter-name-in-capitals", why: "names of parameters are read in any case", play: filtered("$c; FILTER=skip-self; Filter=skip-self", with("mine\n", `,"meta":{"sender":"bob"}`))},
		{name: "filters-skipped-item-counts", play: filtered("$c; prev-id=5; filter=skip-self", with("six\n", `,"id":"6","prev-id":"5","meta":{"sender":"bob"}`), with("seven\n", `,"id":"7","prev-id":"6"`))},
		{name: "build-id", play: filtered("$c; prev-id=5; filter=build-id", with("id: %I\n", `,"id":"6","prev-id":"5"`), with("id: %I %(x\\)y)I %%\n", `,"id":"7","prev-id":"6"`))},
		{name: "build-id-without-prev-id", why: "an item that cannot be rewritten is left out, and the stream goes on", play: filtered("$c; filter=build-id", with("no directive\n", ""), with("id: %I\n", `,"id":"6"`), with("later\n", ""))},
		{name: "build-id-directive", why: "an item that cannot be rewritten is left out, and the stream goes on", play: filtered("$c; prev-id=5; filter=build-id", with("%d\n", `,"id":"6","prev-id":"5"`), with("later\n", `,"id":"7","prev-id":"6"`))},
		{name: "build-id-hex", play: held("Grip-Hold: stream\nGrip-Link: <$plink>; rel=next; timeout=3600\nGrip-Channel: $c; prev-id=5; filter=build-id\nGrip-Set-Meta: id_format=\"%($c)s\", id_encoding=hex", "head\n", func(p *play, c *client) {
			p.items(with("id: %I\n", `,"id":"6","prev-id":"5"`))
		})},
		{name: "build-id-no-format", why: "an item that cannot be rewritten is left out, and the stream goes on", play: held("Grip-Hold: stream\nGrip-Link: <$plink>; rel=next; timeout=3600\nGrip-Channel: $c; prev-id=5; filter=build-id", "head\n", func(p *play, c *client) {
			p.items(with("id: %I\n", `,"id":"6","prev-id":"5"`))
		})},
	}
}

// bodyCases are filters of a view's own bytes, content-filters and meta.
func bodyCases() []testCase {
	return []testCase{
		{name: "body-build-id", play: begun("Grip-Channel: $c; filter=build-id"+meta, "id: %(a)I %% end\n")},
		{name: "body-build-id-own", why: "an unknown directive in an answer's body stays as it is", play: begun("Grip-Channel: $c; prev-id=5; filter=build-id\nGrip-Link: <$plink>; rel=next; timeout=3600"+meta, "id: %I end\n")},
		{name: "body-unknown-directive", why: "an unknown directive in an answer's body stays as it is", play: begun("Grip-Channel: $c; filter=build-id"+meta, "id: a%20b end\n")},
		{name: "body-var-subst", why: "what is known is filled in there too", play: begun("Grip-Channel: $c; filter=var-subst"+meta, "user %(user)s\n")},
		{name: "body-no-hold", play: each(plain("Grip-Channel: $c; filter=build-id"+meta, "100%% %(a)I\n"))},
		{name: "body-no-format", why: "without an id to fill in nothing is missing", play: each(plain("Grip-Channel: $c; filter=build-id", "100%%\n"))},
		{name: "body-two-filters", play: begun("Grip-Channel: $c-a; filter=build-id, $c-b; filter=build-id"+meta, "100%% 100%%%%\n")},
		{name: "content-filters", why: "an item for other filters is left out, and the stream goes on, as in newer versions of Pushpin", play: filtered("$c; prev-id=5; filter=build-id; filter=skip-users",
			`{"channel":"$c","id":"6","prev-id":"5","formats":{"http-stream":{"content":"one %%\n","content-filters":["build-id"]}}}`,
			`{"channel":"$c","id":"7","prev-id":"6","formats":{"http-stream":{"content":"two %%\n","content-filters":[]}}}`,
			`{"channel":"$c","id":"8","prev-id":"7","formats":{"http-stream":{"content":"three %%\n","content-filters":["build-id","skip-users"]}}}`,
			`{"channel":"$c","id":"9","prev-id":"8","formats":{"http-stream":{"content":"four %%\n"}}}`)},
		{name: "content-filters-none-held", why: "an item for other filters is left out, and the stream goes on, as in newer versions of Pushpin", play: filtered("$c",
			`{"channel":"$c","formats":{"http-stream":{"content":"one\n","content-filters":["build-id"]}}}`,
			`{"channel":"$c","formats":{"http-stream":{"content":"two\n","content-filters":[]}}}`)},
		{name: "set-meta-forms", play: held("Grip-Hold: stream\nGrip-Channel: $c; filter=var-subst\nGrip-Set-Meta: a=1, b=\"2,\\\"x\\\"\"; c=3, d\nGrip-Set-Meta: E=5", "head\n", func(p *play, c *client) {
			p.stream("%(a)s %(b)s\n", "")
			p.stream("%(E)s\n", "")
		})},
		{name: "set-meta-second-pair", why: "an item that cannot be rewritten is left out, and the stream goes on", play: held("Grip-Hold: stream\nGrip-Channel: $c; filter=var-subst\nGrip-Set-Meta: a=1; c=3", "head\n", func(p *play, c *client) { p.stream("%(c)s\n", "") })},
	}
}
