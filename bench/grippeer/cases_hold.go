package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// requestCases are what reaches the app, and answers without a hold.
func requestCases() []testCase {
	return []testCase{
		{name: "request-fields", play: func(p *play) {
			p.says(plain("", "x"))
			p.get("a?b=c", "User-Agent: me", "Cookie: s=1", "Grip-Sig: forged", "grip-last: forged", "Accept: text/plain", "X-Own: 1").head()
			r := p.seen()[0]
			p.note("%s %s %v", r.method, r.target, r.names())
			for _, name := range []string{"User-Agent", "Cookie", "Accept", "X-Own", "Grip-Last"} {
				p.note("%s: %s", name, r.get(name))
			}
		}},
		{name: "request-feature", why: "what is not there is not named", play: func(p *play) {
			p.says(plain("", "x"))
			p.get("").head()
			p.note("%s", p.seen()[0].get("Grip-Feature"))
		}},
		{name: "request-forwarded", why: "only trusted proxies are believed", play: func(p *play) {
			p.says(plain("", "x"))
			p.get("", "X-Forwarded-For: 1.2.3.4", "X-Forwarded-Proto: https").head()
			p.note("For: %s; Proto: %s", p.seen()[0].get("X-Forwarded-For"), p.seen()[0].get("X-Forwarded-Proto"))
		}},
		{name: "request-sig", play: func(p *play) {
			p.says(plain("", "x"))
			p.get("").head()
			p.note("%s", claims(p.seen()[0].get("Grip-Sig")))
		}},
		{name: "grip-fields-without-hold", play: func(p *play) {
			p.says(answer("200 OK", "Content-Type: text/plain\nX-Own: 1\nGrip-Channel: $c\nGrip-Status: 404 Away\nGrip-Other: x", "body"))
			c := p.get("").head()
			p.note("%s; %s", c, c.fields())
		}},
		{name: "status", why: "a status is 200 to 599", play: each(
			plain("Grip-Status: 304", ""), plain("Grip-Status: 999 Odd", "x"), plain("Grip-Status: 1000", "x"), plain("Grip-Status: 600", "x"),
			plain("Grip-Status: x", "x"), plain("Grip-Status:", "x"), plain("Grip-Status: 99", "x"), plain("Grip-Status: 404", "x"))},
		{name: "expose", play: func(p *play) {
			p.says(plain("X-A: a\nX-B: b\nSet-Cookie: c=d\nGrip-Hold: stream\nGrip-Channel: $c\nGrip-Expose-Headers: x-a\nGrip-Expose-Headers: x-c, content-type", "head\n"))
			c := p.get("").head()
			p.note("%s; %s", c, c.fields())
			p.says(plain("X-A: a\nX-B: b\nGrip-Expose-Headers: x-a", "plain\n"))
			c = p.get("").head()
			p.note("%s; %s", c, c.fields())
		}},
	}
}

// streamCases are stream holds.
func streamCases() []testCase {
	return []testCase{
		{name: "stream", play: held("Grip-Hold: stream\nGrip-Channel: $c", "head\n", func(p *play, c *client) {
			p.stream("event: a\ndata: \u00e9\n\n", "")
			p.stream("not framed", "")
			p.items(`{"channel":"$c","formats":{"http-stream":{"content-bin":"AAEC/w=="}}}`)
		})},
		{name: "stream-fields", play: func(p *play) {
			p.says(answer("200 OK", "Content-Type: text/event-stream\nX-Own: 1\nSet-Cookie: a=b\nGrip-Hold: stream\nGrip-Channel: $c\nETag: \"x\"", "head\n"))
			c := p.get("").head()
			p.note("%s; %s", c, c.fields())
		}},
		{name: "stream-status", play: each(
			answer("201 Made", "Grip-Hold: stream\nGrip-Channel: $c", "head"), answer("404 Not Found", "Grip-Hold: stream\nGrip-Channel: $c", "head"),
			plain("Grip-Hold: stream\nGrip-Channel: $c\nGrip-Status: 203 Mine", "head"))},
		{name: "stream-empty", play: held("Grip-Hold: stream\nGrip-Channel: $c", "", func(p *play, c *client) { p.stream("first\n", "") })},
		{name: "stream-post", play: func(p *play) {
			p.says(plain("Grip-Hold: stream\nGrip-Channel: $c", "head\n"))
			c := p.send("POST", "", "", "body").head()
			p.stream("x\n", "")
			p.note("%s; %q", c.settled(), p.seen()[0].body)
		}},
		{name: "stream-close", play: held("Grip-Hold: stream\nGrip-Channel: $c", "head\n", func(p *play, c *client) {
			p.stream("last\n", "")
			p.items(`{"channel":"$c","formats":{"http-stream":{"action":"close"}}}`)
		})},
		{name: "stream-close-with-content", play: held("Grip-Hold: stream\nGrip-Channel: $c", "head\n", func(p *play, c *client) {
			p.items(`{"channel":"$c","formats":{"http-stream":{"action":"close","content":"bye\n"}}}`)
		})},
		{name: "stream-other-formats", play: held("Grip-Hold: stream\nGrip-Channel: $c", "head\n", func(p *play, c *client) {
			p.items(`{"channel":"$c","formats":{"http-response":{"body":"answer"},"ws-message":{"content":"socket"}}}`)
			p.items(`{"channel":"$c-other","formats":{"http-stream":{"content":"other"}}}`)
		})},
		{name: "stream-http10", play: func(p *play) {
			p.says(plain("Grip-Hold: stream\nGrip-Channel: $c", "head\n"))
			c := send(p.listen, p.text("GET $p HTTP/1.0\r\nHost: $h\r\n\r\n"))
			p.keep(c)
			c.head()
			p.stream("x\n", "")
			p.note("%s; %s", c.settled(), c.fields())
		}},
		{name: "stream-large-body", play: largeBody(200_000)},
		{name: "stream-very-large-body", alone: true, why: "1 MiB is the limit: a hold's first bytes are read before its client is answered", play: largeBody(2_000_000)},
		{name: "stream-large-request", why: "what a request carried does not matter to its hold", play: func(p *play) {
			p.says(plain("Grip-Hold: stream\nGrip-Channel: $c", "head\n"))
			p.note("%s", p.send("POST", "", "", strings.Repeat("x", 200_000)).head().status)
		}},
		{name: "hold-words", play: each(plain("Grip-Hold: Stream\nGrip-Channel: $c", "head\n"))},
		{name: "hold-unknown", play: each(
			plain("Grip-Hold: websocket\nGrip-Channel: $c", "x"), plain("Grip-Hold: forever\nGrip-Channel: $c", "x"), plain("Grip-Hold:\nGrip-Channel: $c", "x"))},
		{name: "zero-channels", play: func(p *play) {
			each(plain("Grip-Hold: stream", "head\n"), answer("200 OK", "Content-Type: application/grip-instruct", `{"hold":{"mode":"stream","channels":[]},"response":{"body":"head\n"}}`))(p)
		}},
	}
}

// largeBody plays a stream that begins with so many bytes.
func largeBody(size int) func(*play) {
	return func(p *play) {
		p.says(plain("Grip-Hold: stream\nGrip-Channel: $c", strings.Repeat("x", size)))
		c := p.get("").head()
		c.settled()
		p.note("%s, all of its bytes: %v", c.status, len(c.body) == size)
	}
}

// channelCases are the forms of Grip-Channel.
func channelCases() []testCase {
	channels := func(field string, names ...string) func(*play) {
		return held("Grip-Hold: stream\n"+field, "head\n", func(p *play, c *client) {
			for i, name := range names {
				p.items(fmt.Sprintf(`{"channel":%s,"formats":{"http-stream":{"content":"%d %s\n"}}}`, quoted(p.text(name)), i, "x"))
				c.settled()
			}
		})
	}
	var many []string
	for i := range 22 {
		many = append(many, fmt.Sprintf("$c-%d", i))
	}
	return []testCase{
		{name: "channel-list", play: channels("Grip-Channel: $c-a, $c-b", "$c-a", "$c-b", "$c-a, $c-b")},
		{name: "channel-repeated", play: channels("Grip-Channel: $c-a\nGrip-Channel: $c-b", "$c-a", "$c-b")},
		{name: "channel-quoted", play: channels(`Grip-Channel: "$c-a"`, "$c-a", `"$c-a"`)},
		{name: "channel-quoted-comma", play: channels(`Grip-Channel: "$c,a", $c-b`, "$c,a", `"$c,a"`, "a\"", "$c-b")},
		{name: "channel-percent", play: channels(`Grip-Channel: $c%20a`, "$c%20a", "$c a")},
		{name: "channel-twice", play: channels("Grip-Channel: $c, $c", "$c")},
		{name: "channel-empty", play: channels("Grip-Channel: , $c", "$c")},
		{name: "channel-unknown-parameter", play: channels("Grip-Channel: $c; other=x; bare", "$c")},
		{name: "channel-22", why: "64 channels a hold are the limit, and more are refused rather than dropped", play: channels("Grip-Channel: "+strings.Join(many, ", "), "$c-0", "$c-19", "$c-20", "$c-21")},
		{name: "channel-6-filters", why: "5 filters a channel are the limit; newer versions of Pushpin have it too", play: channels("Grip-Channel: $c; filter=a; filter=b; filter=c; filter=d; filter=e; filter=f", "$c")},
		{name: "channel-5-unknown-filters", play: channels("Grip-Channel: $c; filter=a; filter=b; filter=c; filter=d; filter=e", "$c")},
	}
}

// keepAliveCases are Grip-Keep-Alive: what comes first behind the head.
func keepAliveCases() []testCase {
	first := func(value string) func(*play) {
		return func(p *play) {
			p.says(plain("Grip-Hold: stream\nGrip-Channel: $c\nGrip-Keep-Alive: "+value, "head\n"))
			c := p.get("")
			c.until(4*time.Second, func() bool { return len(c.body) > len("head\n") || c.end != "open" })
			p.note("%s", c)
		}
	}
	busy := func(more string) func(*play) {
		return func(p *play) {
			p.says(plain("Grip-Hold: stream\nGrip-Channel: $c\nGrip-Keep-Alive: KA; timeout=3"+more, "head\n"))
			c := p.get("").head()
			for range 16 {
				p.stream(".", "")
				time.Sleep(moment / 2)
			}
			p.note("while items came: %v", strings.Contains(c.String(), "KA"))
			c.has("KA", 4*time.Second)
			p.note("afterwards: %v", strings.Contains(c.String(), "KA"))
		}
	}
	all := []testCase{
		{name: "keep-alive-idle", play: busy("")},
		{name: "keep-alive-interval", play: busy("; mode=interval")},
		{name: "keep-alive-twice", play: first("one; timeout=2\nGrip-Keep-Alive: two; timeout=2")},
	}
	for _, c := range []struct{ name, value, why string }{
		{"raw", `a\n b,"c"; format=raw; timeout=2`, ""},
		{"default", `a\n; timeout=2`, ""},
		{"cstring", `a\r\n\x41\x0a\\; format=cstring; timeout=2`, ""},
		{"base64", `OmthCgo=; format=base64; timeout=2`, ""},
		{"base64-bytes", `b'OmthCgo='; format=base64; timeout=2`, "what Python 3's libraries send by mistake is understood"},
		{"bad-base64", `!!!; format=base64; timeout=2`, "what cannot be decoded is an error"},
		{"unknown-escape", `a\qb; format=cstring; timeout=2`, ""},
		{"tab-escape", `a\tb; format=cstring; timeout=2`, `\t is a tab`},
		{"trailing-backslash", `a\; format=cstring; timeout=2`, ""},
		{"bad-hex", `a\xZZ; format=cstring; timeout=2`, ""},
		{"short-hex", `a\x4; format=cstring; timeout=2`, ""},
		{"empty", `; timeout=2`, ""},
		{"timeout-0", `ka; timeout=0`, ""},
		{"timeout-negative", `ka; timeout=-1`, ""},
		{"timeout-word", `ka; timeout=x`, ""},
		{"mode-unknown", `ka; timeout=2; mode=often`, ""},
		{"format-unknown", `ka; timeout=2; format=hex`, ""},
	} {
		all = append(all, testCase{name: "keep-alive-" + c.name, why: c.why, play: first(c.value)})
	}
	return all
}

func instruct(body string) string {
	return answer("200 OK", "Content-Type: application/grip-instruct\nX-Own: 1", body)
}

// jsonCases are instructions in the body.
func jsonCases() []testCase {
	shapes := func(bodies ...string) func(*play) {
		return func(p *play) {
			for _, body := range bodies {
				p.says(instruct(body))
				p.note("%-50s %s", strings.ReplaceAll(body, "$c", "C"), p.get("").head())
			}
		}
	}
	const ch = `"channels":[{"name":"$c"}]`
	return []testCase{
		{name: "json-stream", play: func(p *play) {
			p.says(instruct(`{"hold":{"mode":"stream",` + ch + `},"response":{"code":201,"reason":"Mine","headers":{"X-A":"a"},"body":"head\n"}}`))
			c := p.get("").head()
			p.stream("x\n", "")
			p.note("%s; %s", c.settled(), c.fields())
		}},
		{name: "json-response", play: func(p *play) {
			p.says(instruct(`{"hold":{` + ch + `,"timeout":5},"response":{"headers":[["X-A","a"],["X-A","b"]],"body-bin":"aGVhZAo="}}`))
			c := p.get("").over(8 * time.Second)
			p.note("%s; %s", c, c.fields())
		}},
		{name: "json-response-published", play: func(p *play) {
			p.says(instruct(`{"hold":{` + ch + `},"response":{"headers":{"X-A":"a","X-B":"b"},"body":"late"}}`))
			c := p.get("")
			p.asked(1, moment)
			time.Sleep(quiet)
			p.answered(c, `{"channel":"$c","formats":{"http-response":{"headers":{"x-a":"new"},"body":"now"}}}`)
			p.note("%s; %s", c, c.fields())
		}},
		{name: "json-only-response", play: shapes(`{"response":{"code":404,"body":"none"}}`, `{}`)},
		{name: "json-keep-alive", play: func(p *play) {
			p.says(instruct(`{"hold":{"mode":"stream",` + ch + `,"keep-alive":{"content-bin":"a2EK","timeout":2}},"response":{"body":"head\n"}}`))
			c := p.get("")
			c.has("ka", 4*time.Second)
			p.note("%s", c)
		}},
		{name: "json-keep-alive-busy", why: "JSON has no mode; a heartbeat is for a quiet stream, as in the header", play: func(p *play) {
			p.says(instruct(`{"hold":{"mode":"stream",` + ch + `,"keep-alive":{"content":"KA","timeout":2}},"response":{"body":"head\n"}}`))
			c := p.get("").head()
			for range 8 {
				p.stream(".", "")
				time.Sleep(moment / 2)
			}
			p.note("while items came: %v", strings.Contains(c.String(), "KA"))
		}},
		{name: "json-with-fields", why: "what the body says stands in place of what the fields say", play: func(p *play) {
			p.says(answer("200 OK", "Content-Type: application/grip-instruct; charset=utf-8\nGrip-Channel: $c-field\nGrip-Hold: response", `{"hold":{"mode":"stream",`+ch+`},"response":{"body":"head\n"}}`))
			c := p.get("").head()
			p.stream("json\n", "")
			p.items(`{"channel":"$c-field","formats":{"http-stream":{"content":"field\n"}}}`)
			p.note("%s", c.settled())
		}},
		{name: "json-bad", why: "numbers are read as text where that is meant, and what cannot be used is an error", play: shapes(
			`not json`, `[]`, `{"hold":{"mode":"stream"}}`, `{"hold":{"mode":"other",`+ch+`}}`, `{"hold":[]}`,
			`{"hold":{"mode":"stream","channels":{}}}`, `{"hold":{"mode":"stream","channels":[{}]}}`, `{"hold":{"mode":"stream","channels":["$c"]}}`,
			`{"hold":{"mode":"stream","channels":[{"name":1}]}}`, `{"hold":{"mode":"stream","channels":[{"name":""}]}}`,
			`{"hold":{"mode":"stream","channels":[{"name":"$c","prev-id":1}]}}`, `{"hold":{"mode":"stream","channels":[{"name":"$c","filters":"x"}]}}`,
			`{"hold":{`+ch+`,"timeout":-1}}`, `{"hold":{`+ch+`,"timeout":"5"}}`, `{"hold":{"mode":"stream",`+ch+`,"meta":{"a":1}}}`,
			`{"hold":{"mode":"stream",`+ch+`,"keep-alive":{}}}`, `{"hold":{"mode":"stream",`+ch+`,"keep-alive":{"content":"k","timeout":-1}}}`,
			`{"hold":{"mode":"stream",`+ch+`},"response":{"code":"201","body":"head"}}`, `{"hold":{"mode":"stream",`+ch+`},"response":{"code":1000,"body":"head"}}`,
			`{"hold":{"mode":"stream",`+ch+`},"response":{"headers":{"X-A":1},"body":"head"}}`, `{"hold":{"mode":"stream",`+ch+`},"response":{"headers":{"X A":"b\r\nX-C: d"},"body":"head"}}`,
			`{"hold":{"mode":"stream",`+ch+`},"response":{"body":1}}`, `{"hold":{"mode":"stream",`+ch+`},"response":{"body-bin":"!"}}`,
			`{"hold":{"mode":"stream",`+ch+`},"other":1,"response":{"body":"head"}}`)},
		{name: "json-status-201", play: each(answer("201 Made", "Content-Type: application/grip-instruct", `{"hold":{"mode":"stream",`+ch+`},"response":{"body":"head"}}`))},
	}
}

// claims is the payload of a token, with the time replaced by how far it is.
func claims(token string) string {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return "no token: " + token
	}
	head, payload := decoded(parts[0]), decoded(parts[1])
	exp, _ := payload["exp"].(float64)
	payload["exp"] = fmt.Sprintf("in %.0f min", time.Until(time.Unix(int64(exp), 0)).Minutes())
	return fmt.Sprint(head, " ", payload)
}

// decoded is one part of a token.
func decoded(part string) map[string]any {
	values := map[string]any{}
	text, err := base64.RawURLEncoding.DecodeString(part)
	if err == nil {
		err = json.Unmarshal(text, &values)
	}
	if err != nil {
		values["error"] = err.Error()
	}
	return values
}
