package main

import (
	"slices"
	"time"
)

// cases are all cases, in the order of the table.
func cases() []testCase {
	return slices.Concat(requestCases(), streamCases(), keepAliveCases(), jsonCases(), channelCases(), pollCases(),
		filterCases(), linkCases(), orderCases(), socketCases(), messageCases(), controlCases(), publishCases())
}

// each plays a question for several answers of the app and notes what the
// client sees of each.
func each(answers ...string) func(*play) {
	return func(p *play) {
		for _, a := range answers {
			p.says(a)
			p.note("%s", p.get("").head())
		}
	}
}

// held plays a stream hold that is opened by fields and a body, and does more
// with it. What else is asked under the case's path, a next link, has the same
// fields and no body.
func held(fields, body string, more func(*play, *client)) func(*play) {
	return func(p *play) {
		p.view(func(r request) string {
			if r.target != p.text("$p") {
				return plain(fields, "")
			}
			return plain(fields, body)
		})
		c := p.get("").head()
		more(p, c)
		p.note("%s", c.settled())
	}
}

const moment = time.Second
