package holds

import (
	"fmt"
	"testing"
)

// What was published while the view ran is given as anything else: what is for
// sockets, through the filters, and an action is done.
func TestOverHTTP_WhatASubscribeFindsIsGivenAsAnyItem(t *testing.T) {
	form := func(f SocketForm) *Item { return &Item{Channel: "a", Socket: &f} }
	text := func(content string, meta map[string]string, filters ...string) *Item {
		return &Item{Channel: "a", Meta: meta, Socket: &SocketForm{Kind: opText, Content: []byte(content), Filters: filters}}
	}
	for what, c := range map[string]struct {
		item    *Item
		filters string
		want    string
	}{
		"a text":            {text("x", nil), `[]`, frameBytes(opText, "x")},
		"a binary":          {form(SocketForm{Kind: opBinary, Content: []byte{0xff}}), `[]`, frameBytes(opBinary, "\xff")},
		"a ping":            {form(SocketForm{Kind: opPing, Content: []byte("p")}), `[]`, frameBytes(opPing, "p")},
		"one for streams":   {&Item{Channel: "a", Stream: &StreamForm{Content: []byte("x")}}, `[]`, ""},
		"one for polls":     {&Item{Channel: "a", Answer: &AnswerForm{Status: 200, Body: []byte("x")}}, `[]`, ""},
		"its own":           {text("x", map[string]string{"sender": "bob"}), `["skip-self"]`, ""},
		"one for its name":  {text("for %(user)s", nil, "var-subst"), `["var-subst"]`, frameBytes(opText, "for bob")},
		"of other filters":  {text("100%%", nil, "build-id"), `["var-subst"]`, ""},
		"without a filter":  {text("100%%", nil), `[]`, frameBytes(opText, "100%%")},
		"a close":           {form(SocketForm{Action: ActionClose, Code: 4003, Reason: "why"}), `[]`, closeBytes(4003, "why")},
		"one that is empty": {text("", nil), `[]`, frameBytes(opText, "")},
	} {
		events := controlOf(`{"type": "set-meta", "name": "user", "value": "bob"}`) + controlOf(fmt.Sprintf(`{"type": "subscribe", "channel": "a", "filters": %s}`, c.filters))
		// Behind OPEN, and in a later answer.
		s, app := gripStage(t, Config{})
		position := s.hub.head.Load()
		s.hub.publishItem(encodeItem(c.item))
		o := s.openOver(t, app, position, eventsAnswer(t, "OPEN\r\n"+events, "Sec-WebSocket-Extensions: grip"))
		if got := o.take(o.hold, 1<<20); got != c.want {
			t.Errorf("%s, behind OPEN: it gets %q, want %q", what, got, c.want)
		}
		o = startOver(t, Config{}, subscribeTo("own"))
		o.says(clientSends{}.text("1"))
		a := eventsAnswer(t, events)
		a.Position = o.hub.head.Load()
		o.hub.publishItem(encodeItem(c.item))
		o.message("own", "which it has by then")
		o.gets(frameBytes(opText, "which it has by then"))
		o.answers(o.asked("TEXT 1\r\n1\r\n"), a, nil)
		if got := o.take(o.hold, 1<<20); got != c.want {
			t.Errorf("%s: it gets %q, want %q", what, got, c.want)
		}
	}
}

// The same for M0 sockets, which have no filters.
func TestInbound_WhatASubscribeFindsIsGivenAsAnyItem(t *testing.T) {
	for what, c := range map[string]struct {
		item *Item
		want string
	}{
		"a text":          {&Item{Channel: "a", Socket: &SocketForm{Kind: opText, Content: []byte("x")}}, frameBytes(opText, "x")},
		"one for streams": {&Item{Channel: "a", Stream: &StreamForm{Content: []byte("x")}}, ""},
		"one for polls":   {&Item{Channel: "a", Answer: &AnswerForm{Status: 200, Body: []byte("x")}}, ""},
		"a pong":          {&Item{Channel: "a", Socket: &SocketForm{Kind: opPong, Content: []byte("p")}}, frameBytes(opPong, "p")},
		"a close":         {&Item{Channel: "a", Socket: &SocketForm{Action: ActionClose, Code: 4003, Reason: "why"}}, closeBytes(4003, "why")},
	} {
		s := newStage(Config{})
		h, _ := s.openSocket(-1, false, "own")
		s.rest()
		position := s.hub.head.Load()
		s.hub.publishItem(encodeItem(c.item))
		s.publish("which it has by then", "own")
		s.rest()
		if got := s.take(h, 1<<20); got != frameBytes(opText, "which it has by then") {
			t.Errorf("%s: it gets %q", what, got)
		}
		s.answer(h, Answer{Status: 200, Position: position, Fields: fieldsOf(t, "M0-Subscribe: a")})
		if got := s.take(h, 1<<20); got != c.want {
			t.Errorf("%s: it gets %q, want %q", what, got, c.want)
		}
	}
}
