package holds

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// What stands behind OPEN is done as it stands: a subscribe gives what was
// published while the view ran.
func TestOverHTTP_WhatTheAppSaysBehindOpenIsDoneInItsOrder(t *testing.T) {
	s, app := gripStage(t, Config{})
	s.message("a", "before the view")
	position := s.hub.head.Load()
	s.message("a", "while the view ran")
	s.publish("in the native form", "a")
	s.message("b", "of a channel that it is not in")
	o := s.openOver(t, app, position, eventsAnswer(t, "OPEN\r\n"+eventOf("TEXT", "m:one")+subscribeTo("a")+eventOf("BINARY", "m:\x00\xff")+
		eventOf("PING", "p")+eventOf("PONG", "q")+"PING\r\n"+eventOf("TEXT", "m:")+eventOf("TEXT", "m:two"), "Sec-WebSocket-Extensions: grip"))
	o.gets(frameBytes(opText, "one"), frameBytes(opText, "while the view ran"), frameBytes(opText, "in the native form"), frameBytes(opBinary, "\x00\xff"),
		frameBytes(opPing, "p"), frameBytes(opPong, "q"), frameBytes(opPing, ""), frameBytes(opText, ""), frameBytes(opText, "two"))
	s.message("a", "after it")
	o.gets(frameBytes(opText, "after it"))
	if o.hold.state != live || o.pipe.closed {
		t.Errorf("state %d", o.hold.state)
	}
	o.unasked()
}

// One request is under way at a time; what comes meanwhile goes with the next.
func TestOverHTTP_MessagesThatComeMeanwhileGoTogetherAndInOrder(t *testing.T) {
	o := startOver(t, Config{}, "", "Set-Meta-User: bob")
	o.says(clientSends{}.text("first"))
	call := o.asked("TEXT 5\r\nfirst\r\n")
	const fields = handshakeFields + eventsFields + "Meta-user: bob\r\n"
	if call.Method != "POST" || call.Target != "/ws?a=1" || call.Lane != "web" || string(call.Fields) != fields || call.Connection != o.loop.connection(o.hold) {
		t.Errorf("the app is asked, for %s on %s, %s %s with %q", call.Connection, call.Lane, call.Method, call.Target, call.Fields)
	}
	o.says(clientSends{}.text("").binary("\x00\r\n\xff").ping("for us").beginText("sec").pong("unasked").end("ond").text(strings.Repeat("é", 10)))
	o.gets(frameBytes(opPong, "for us"))
	o.tells(call, eventOf("TEXT", "m:to the first"), "Set-Meta-Room: a")
	o.gets(frameBytes(opText, "to the first"))
	call = o.asked("TEXT 0\r\n\r\n", "BINARY 4\r\n\x00\r\n\xff\r\n", "TEXT 6\r\nsecond\r\n", "TEXT 14\r\n", strings.Repeat("é", 10), "\r\n")
	if got := string(call.Fields); got != fields+"Meta-room: a\r\n" {
		t.Errorf("the second request has %q", got)
	}
	o.tells(call, "")
	o.unasked()
	o.gets()
	if n := o.loop.counts.inbound[inboundOK].Load(); n != 5 || o.loop.counts.unfinished.Load() != 0 {
		t.Errorf("%d messages are counted, want 5; %d bytes are not finished", n, o.loop.counts.unfinished.Load())
	}
}

func TestOverHTTP_ARequestHas200000BytesOfEventsOrOneMessage(t *testing.T) {
	const small = 60 // messages of 1,000 bytes, which are 1,012 as events
	for large, together := range map[int]bool{batchBytes - small*1012: true, batchBytes - small*1012 + 1: false, 900_000: false} {
		o := startOver(t, Config{}, "")
		o.says(clientSends{}.text("x"))
		call := o.asked("TEXT 1\r\nx\r\n")
		var sends clientSends
		var events string
		for range small {
			sends = sends.text(strings.Repeat("s", 1000))
			events += eventOf("TEXT", strings.Repeat("s", 1000))
		}
		o.says(sends.binary(strings.Repeat("l", large)).text("y"))
		o.tells(call, "")
		rest := []string{eventOf("BINARY", strings.Repeat("l", large)), "TEXT 1\r\ny\r\n"}
		switch {
		case together:
			events, rest = events+rest[0], rest[1:]
		case large < batchBytes:
			rest = []string{rest[0] + rest[1]}
		}
		for _, events := range append([]string{events}, rest...) {
			o.tells(o.asked(events), "")
		}
		o.unasked()
	}
}

// What the app has seen no byte of is sent again as it was, before anything
// else; what it may have seen never is.
func TestOverHTTP_WhatTheAppHasNotSeenIsSentAgainOnceAndInOrder(t *testing.T) {
	o := startOver(t, Config{}, "")
	o.says(clientSends{}.text("1"))
	call := o.asked("TEXT 1\r\n1\r\n")
	o.says(clientSends{}.text("2").text("3"))
	for range 2 {
		call.answered <- struct {
			Answer
			error
		}{error: fmt.Errorf("%w: refused", ErrUnseen)}
		if call = o.asked("TEXT 1\r\n1\r\n"); string(call.Fields) != handshakeFields+eventsFields {
			t.Errorf("it is sent again with %q", call.Fields)
		}
	}
	o.tells(call, "")
	o.tells(o.asked("TEXT 1\r\n2\r\nTEXT 1\r\n3\r\n"), eventOf("TEXT", "m:done"))
	o.unasked()
	o.gets(frameBytes(opText, "done"))
}

func TestOverHTTP_AnAppThatStaysAwayEndsTheSocketAndIsToldOnce(t *testing.T) {
	for _, c := range []struct {
		err  error
		code uint16
		end  End
	}{{ErrDown, 1013, EndOverload}, {ErrStopping, 1012, EndDraining}} {
		o := startOver(t, Config{}, "")
		o.says(clientSends{}.text("1"))
		call := o.asked("TEXT 1\r\n1\r\n")
		o.says(clientSends{}.text("2").binary("3"))
		o.answers(call, Answer{}, fmt.Errorf("%w: refused", c.err))
		o.gets(closeBytes(c.code, c.end.String()))
		o.says(clientSends{}.text("late").close(c.code, ""))
		o.answers(o.asked("CLOSE 2\r\n", closeContentOf(c.code, ""), "\r\n"), Answer{}, c.err)
		if o.socketsEnded(c.end) != 1 || o.loop.counts.inbound[inboundOverload].Load() != 3 {
			t.Errorf("%d ended %v, %d messages are counted, want 3", o.socketsEnded(c.end), c.end, o.loop.counts.inbound[inboundOverload].Load())
		}
		o.wantNothingLeft(t)
	}
}

// What the client's close and its going are told with is no message.
func TestOverHTTP_OnlyMessagesAreCountedAsInbound(t *testing.T) {
	o := startOver(t, Config{}, "")
	o.says(clientSends{}.text("1"))
	call := o.asked("TEXT 1\r\n1\r\n")
	o.says(clientSends{}.text("2").close(1000, ""))
	o.answers(call, Answer{}, ErrDown)
	if n := o.loop.counts.inbound[inboundOverload].Load(); n != 2 {
		t.Errorf("of two messages and a close %d are counted as lost", n)
	}
	o = startOver(t, Config{}, "")
	o.says(clientSends{}.text("1"))
	call = o.asked("TEXT 1\r\n1\r\n")
	o.vanishes()
	o.loop.stop()
	if n := o.loop.counts.inbound[inboundOverload].Load(); n != 1 {
		t.Errorf("of one message and the client's going %d are counted as cut", n)
	}
	call.answered <- struct {
		Answer
		error
	}{}
	o = startOver(t, Config{}, "")
	o.vanishes()
	o.tells(o.asked("DISCONNECT\r\n"), "")
	for result := range inboundResults {
		if n := o.loop.counts.inbound[result].Load(); n != 0 {
			t.Errorf("a socket without a message counts %d as %s", n, inboundWords[result])
		}
	}
}

// The app and its client may not be of one mind any more.
func TestOverHTTP_AnAnswerThatIsNoneCutsTheSocket(t *testing.T) {
	typed := func(events string, fields ...string) Answer { return eventsAnswer(t, events, fields...) }
	for what, c := range map[string]struct {
		answer Answer
		err    error
		before string // what of the answer is done
	}{
		"a failure":                {Answer{Status: 500}, nil, ""},
		"a redirect":               {Answer{Status: 302, Fields: fieldsOf(t, "Location: /login")}, nil, ""},
		"another 2xx":              {func() Answer { a := typed(eventOf("TEXT", "m:x")); a.Status = 201; return a }(), nil, ""},
		"another type":             {Answer{Status: 200, Fields: fieldsOf(t, "Content-Type: text/html"), Body: []byte("TEXT 1\r\nx\r\n")}, nil, ""},
		"no type":                  {Answer{Status: 200, Body: []byte("x")}, nil, ""},
		"no line end":              {typed(eventOf("TEXT", "m:x") + "TEXT 3\nm:y\r\n"), nil, ""},
		"no length":                {typed(eventOf("TEXT", "m:x") + "TEXT zz\r\nm:y\r\n"), nil, ""},
		"a length that is not met": {typed(eventOf("TEXT", "m:x") + "TEXT 1\r\nm:y\r\n"), nil, ""},
		"a second open":            {typed(eventOf("TEXT", "m:x") + "OPEN\r\n"), nil, frameBytes(opText, "x")},
		"a disconnect":             {typed(eventOf("TEXT", "m:x") + "DISCONNECT\r\n" + eventOf("TEXT", "m:y")), nil, frameBytes(opText, "x")},
		"a part":                   {typed(eventOf("TEXT", "m:x"), "Content-Bytes-Accepted: 0"), nil, ""},
		"a cut":                    {Answer{}, errors.New("cut after it was sent"), ""},
	} {
		o := startOver(t, Config{}, "")
		o.says(clientSends{}.text("1"))
		call := o.asked("TEXT 1\r\n1\r\n")
		o.answers(call, c.answer, c.err)
		o.gets(c.before)
		if !o.pipe.reset || o.socketsEnded(EndError) != 1 {
			t.Errorf("%s: closed %v, reset %v, %d ended", what, o.pipe.closed, o.pipe.reset, o.socketsEnded(EndError))
		}
		o.tells(o.asked("DISCONNECT\r\n"), "")
		o.wantNothingLeft(t)
	}
}

// An empty body is no event, whatever its type; a last event that was cut is
// none; parameters of the type, and kinds that are not known, do not count.
func TestOverHTTP_WhatIsNoFaultOfAnAnswer(t *testing.T) {
	for what, a := range map[string]Answer{
		"nothing":     {Status: 200},
		"a type":      {Status: 200, Fields: fieldsOf(t, "Content-Type: text/html; charset=utf-8")},
		"a parameter": {Status: 200, Fields: fieldsOf(t, "content-type: Application/WebSocket-Events; charset=utf-8"), Body: []byte("NEWS 1\r\nx\r\nLATER\r\nTEXT 9\r\nm:x")},
	} {
		o := startOver(t, Config{}, "")
		for range 2 {
			o.says(clientSends{}.text("1"))
			o.answers(o.asked("TEXT 1\r\n1\r\n"), a, nil)
		}
		if o.gets(); o.hold.state != live {
			t.Errorf("%s: state %d", what, o.hold.state)
		}
	}
}

// A browser ends a connection on which a text comes that is none.
func TestOverHTTP_ATextThatIsNotUTF8IsNotSent(t *testing.T) {
	o := startOver(t, Config{}, eventOf("TEXT", "m:\xff")+eventOf("BINARY", "m:\xff")+eventOf("TEXT", "m:é"))
	o.gets(frameBytes(opBinary, "\xff"), frameBytes(opText, "é"))
}

func TestOverHTTP_WhatTheAppHasKeptComesBackWithEachRequest(t *testing.T) {
	o := startOver(t, Config{}, "", "Set-Meta-A: 1", "SET-META-b: two, three", "Set-Meta-: nameless", "Set-Meta: x")
	many := make([]string, metaMost+2)
	for i := range many {
		many[i] = fmt.Sprintf("Set-Meta-N%02d: %d", i, i)
	}
	var bounded strings.Builder
	for i := range metaMost - 1 {
		fmt.Fprintf(&bounded, "Meta-n%02d: %d\r\n", i, i)
	}
	last := fmt.Sprintf("Set-Meta-N%02d: again", metaMost-2) // the highest that there is room for
	for _, c := range []struct {
		sets []string
		want string
	}{
		{[]string{"set-meta-A: new"}, "Meta-a: 1\r\nMeta-b: two, three\r\n"},
		{[]string{"Set-Meta-B:", "Set-Meta-Never-There:"}, "Meta-b: two, three\r\nMeta-a: new\r\n"},
		{[]string{"Set-Meta-A: x", "Set-Meta-a: y"}, "Meta-a: new\r\n"},
		{many, "Meta-a: y\r\n"},
		{[]string{"Set-Meta-A:", "Set-Meta-More: there is room again", last}, "Meta-a: y\r\n" + bounded.String()},
		{nil, strings.ReplaceAll(bounded.String(), "Meta-n62: 62\r\n", "") + "Meta-more: there is room again\r\nMeta-n62: again\r\n"},
	} {
		o.says(clientSends{}.text("1"))
		call := o.asked("TEXT 1\r\n1\r\n")
		if got := strings.TrimPrefix(string(call.Fields), handshakeFields+eventsFields); got != c.want {
			t.Errorf("the request has %q, want %q", got, c.want)
		}
		o.tells(call, "", c.sets...)
	}
}

// Which text is for whom: "c:" is for us, whatever the prefix; a binary one
// never is. Without the extension everything is for the client.
func TestOverHTTP_ThePrefixSaysForWhomATextIs(t *testing.T) {
	all := eventOf("TEXT", "m:one") + eventOf("TEXT", "two") + controlOf(`{"type": "subscribe", "channel": "a"}`) + eventOf("BINARY", "m:b") +
		eventOf("BINARY", "c:b") + eventOf("BINARY", "b") + eventOf("TEXT", "p:three") + eventOf("TEXT", "") + controlOf("no JSON")
	text, binary := func(p string) string { return frameBytes(opText, p) }, func(p string) string { return frameBytes(opBinary, p) }
	everything := []string{text("m:one"), text("two"), text(`c:{"type": "subscribe", "channel": "a"}`), binary("m:b"), binary("c:b"), binary("b"), text("p:three"), text(""), text("c:no JSON")}
	for extension, want := range map[string][]string{
		"grip":                            {text("one"), binary("b"), text("published")},
		"foo, GRIP; x=y":                  {text("one"), binary("b"), text("published")},
		"grip; message-prefix=p:":         {text("three"), text("published")},
		`grip; message-prefix=""`:         {text("m:one"), text("two"), binary("m:b"), binary("c:b"), binary("b"), text("p:three"), text(""), text("published")},
		`grip; message-prefix="c:"`:       {binary("b"), text("published")},
		"":                                everything,
		"permessage-deflate":              everything,
		"grips; message-prefix=p:, grip2": everything,
	} {
		s, app := gripStage(t, Config{})
		o := s.openOver(t, app, s.hub.head.Load(), eventsAnswer(t, "OPEN\r\n"+all, "Sec-WebSocket-Extensions: "+extension))
		s.message("a", "published")
		if got := s.take(o.hold, 1<<20); got != strings.Join(want, "") || o.hold.state != live {
			t.Errorf("%q: state %d, the client gets %q, want %q", extension, o.hold.state, got, want)
		}
	}
}

func TestOverHTTP_ASendDelayedIsSentAtItsTimeOrWhenItIsFlushed(t *testing.T) {
	delayed := func(content string) string {
		return controlOf(fmt.Sprintf(`{"type": "send-delayed", "content": %q, "timeout": 3}`, content))
	}
	o := startOver(t, Config{}, delayed("one"))
	o.pass(2990*time.Millisecond, 10*time.Millisecond)
	o.gets()
	o.pass(10*time.Millisecond, 10*time.Millisecond)
	o.gets(frameBytes(opText, "one"))
	o.says(clientSends{}.text("1"))
	o.tells(o.asked("TEXT 1\r\n1\r\n"), delayed("replaced")+delayed("two")+eventOf("TEXT", "m:now")+controlOf(`{"type": "flush-delayed"}`)+controlOf(`{"type": "flush-delayed"}`)+
		controlOf(`{"type": "send-delayed", "message-type": "binary", "content-bin": "AP8="}`))
	o.gets(frameBytes(opText, "now"), frameBytes(opText, "two"))
	o.pass(990*time.Millisecond, 10*time.Millisecond)
	o.gets()
	o.pass(10*time.Millisecond, 10*time.Millisecond)
	o.gets(frameBytes(opBinary, "\x00\xff"))
	o.pass(time.Hour, time.Second)
	o.gets()
}

// The app has let its client go: it hears nothing of it any more, and the
// client still gets what is published.
func TestOverHTTP_ADetachedSocketIsTheClientsAlone(t *testing.T) {
	refresh := &Item{Channel: "a", Socket: &SocketForm{Action: ActionRefresh}}
	for what, end := range map[string]func(*overStage){
		"its client closes":   func(o *overStage) { o.says(clientSends{}.close(4001, "bye")); o.gets(closeBytes(4001, "")) },
		"its client vanishes": (*overStage).vanishes,
	} {
		o := startOver(t, Config{}, subscribeTo("a"))
		o.says(clientSends{}.text("1"))
		o.tells(o.asked("TEXT 1\r\n1\r\n"), eventOf("TEXT", "m:bye")+controlOf(`{"type": "detach"}`)+eventOf("TEXT", "m:still"))
		o.gets(frameBytes(opText, "bye"), frameBytes(opText, "still"))
		o.says(clientSends{}.text("2").ping("p"))
		o.unasked()
		o.message("a", "published")
		o.gets(frameBytes(opPong, "p"), frameBytes(opText, "published"))
		o.hub.publishItem(encodeItem(refresh))
		o.unasked()
		end(o)
		o.unasked()
		if o.socketsEnded(EndClient) != 1 {
			t.Errorf("%s: %d ended", what, o.socketsEnded(EndClient))
		}
		o.wantNothingLeft(t)
	}
}

func TestOverHTTP_TheActionsOfItemsForSockets(t *testing.T) {
	form := func(f SocketForm) *Item { return &Item{Channel: "a", Socket: &f} }
	for _, c := range []struct {
		item *Item
		want string
	}{
		{form(SocketForm{Kind: opText, Content: []byte("text")}), frameBytes(opText, "text")},
		{form(SocketForm{Kind: opBinary, Content: []byte{0, 0xff}}), frameBytes(opBinary, "\x00\xff")},
		{form(SocketForm{Kind: opText}), frameBytes(opText, "")},
		{form(SocketForm{Kind: opPing, Content: []byte("p")}), frameBytes(opPing, "p")},
		{form(SocketForm{Kind: opPong}), frameBytes(opPong, "")},
		{form(SocketForm{Kind: opText, Content: []byte(strings.Repeat("x", 70000))}), frameBytes(opText, strings.Repeat("x", 70000))},
		{&Item{Channel: "a", Stream: &StreamForm{Content: []byte("for streams")}, Answer: &AnswerForm{Status: 200, Body: []byte("for polls")}}, ""},
		{&Item{Channel: "a", Stream: &StreamForm{Action: ActionClose}}, ""},
		{&Item{Channel: "a", Stream: &StreamForm{Action: ActionHint}, Answer: &AnswerForm{Action: ActionHint}}, ""},
		{form(SocketForm{Action: ActionClose, Code: 4003, Reason: "why"}), closeBytes(4003, "why")},
	} {
		o := startOver(t, Config{}, subscribeTo("a"))
		m0, _ := o.openSocket(-1, false, "a")
		o.rest()
		o.take(m0, 1<<20)
		o.hub.publishItem(encodeItem(c.item))
		o.rest()
		o.gets(c.want)
		if got := o.take(m0, 1<<20); got != c.want {
			t.Errorf("an M0 socket gets %.100q, want %.100q", got, c.want)
		}
		if ended := c.item.Socket != nil && c.item.Socket.Action == ActionClose; ended != (o.hold.state >= leaving) || ended != (o.socketsEnded(EndPublished) == 2) {
			t.Errorf("state %d, %d ended", o.hold.state, o.socketsEnded(EndPublished))
		}
		o.unasked()
	}
}

// The app is asked for what it has to say: by a request without an event. It
// may have been asked before it had that.
func TestOverHTTP_ARefreshAsksTheApp(t *testing.T) {
	o := startOver(t, Config{}, subscribeTo("a"))
	refresh := func() {
		o.hub.publishItem(encodeItem(&Item{Channel: "a", Socket: &SocketForm{Action: ActionRefresh}}))
		o.rest()
	}
	refresh()
	o.tells(o.asked(), eventOf("TEXT", "m:news"))
	o.gets(frameBytes(opText, "news"))
	o.unasked()
	o.says(clientSends{}.text("1"))
	call := o.asked("TEXT 1\r\n1\r\n")
	refresh()
	refresh()
	o.says(clientSends{}.text("2"))
	o.tells(call, "")
	o.tells(o.asked("TEXT 1\r\n2\r\n"), "")
	o.unasked() // the second has told it
	o.says(clientSends{}.text("3"))
	call = o.asked("TEXT 1\r\n3\r\n")
	refresh()
	refresh()
	o.tells(call, "")
	o.tells(o.asked(), "")
	o.unasked()
	if n := o.loop.counts.inbound[inboundOK].Load(); n != 3 {
		t.Errorf("%d are counted as messages, want 3", n)
	}
}
