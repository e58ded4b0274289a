package main

import (
	"regexp"
	"slices"
	"time"
)

// cases are all cases, in the order of the table.
func cases() []testCase {
	return slices.Concat(requestCases(), streamCases(), keepAliveCases(), jsonCases(), channelCases(),
		pollCases(), pollEndCases(), pollGapCases(), filterCases(), bodyCases(), linkCases(), pageCases(), orderCases(),
		socketCases(), endCases(), messageCases(), appMessageCases(), appFieldCases(),
		publishedCases(), controlCases(), socketFilterCases(), publishCases())
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
// with it. What else is asked under the case's path, a next link, changes
// nothing.
func held(fields, body string, more func(*play, *client)) func(*play) {
	return func(p *play) {
		p.view(func(r request) string {
			if r.target != p.text("$p") {
				return p.nothingNew(fields, r)
			}
			return plain(fields, body)
		})
		c := p.get("").head()
		more(p, c)
		p.note("%s", c.settled())
	}
}

var lastID = regexp.MustCompile(`([^| ]+); last-id=([^ |]+)`)

// nothingNew answers a next link with the fields that the hold began with, at
// the positions where it is, and no body. Pushpin asks a second after a channel
// is new to it, also where nothing is missing.
func (p *play) nothingNew(fields string, r request) string {
	fields = p.text(fields)
	for _, last := range lastID.FindAllStringSubmatch(r.get("Grip-Last"), -1) {
		at := regexp.MustCompile(regexp.QuoteMeta(last[1]) + `; prev-id=[^,;\s]+`)
		fields = at.ReplaceAllLiteralString(fields, last[1]+"; prev-id="+last[2])
	}
	return plain(fields, "")
}

const moment = time.Second
