package main

import "strings"

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
