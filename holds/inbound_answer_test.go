package holds

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

func TestInbound_TheAppGetsAMessageWithItsSocketsChannelsAndItsHandshakesFields(t *testing.T) {
	s, app := startApp(t, Config{})
	c := s.openSocket(Spec{Channels: []string{"room", "50% off, today"}, Lane: "chat", Path: "/in", Fields: []byte("Host: a\r\nCookie: b\r\n")})
	const own = "room,50%25%20off%2C%20today"
	for _, m := range []struct {
		sent               clientSends
		body               string
		binary             bool
		channels, answered string
	}{
		{clientSends{}.text("hello"), "hello", false, own, "M0-Subscribe: news"},
		{clientSends{}.binary("\x00\xff"), "\x00\xff", true, own + ",news", "M0-Unsubscribe: news"},
		{clientSends{}.text(""), "", false, own, "M0-Subscribe: room"},
		{clientSends{}.pieces(opText, strings.Repeat("é", 5000), 999), strings.Repeat("é", 5000), false, own, ""},
	} {
		c.send(m.sent)
		call := app.wantMessage(m.body)
		kind, opcode := "text/plain; charset=utf-8", 1
		if m.binary {
			kind, opcode = "application/octet-stream", 2
		}
		fields := fmt.Sprintf("Host: a\r\nCookie: b\r\nContent-Type: %s\r\nM0-Channel: %s\r\nM0-Connection: %[3]s\r\nM0-Slot: %[3]s\r\nM0-Opcode: %d\r\n", kind, m.channels, call.Connection, opcode)
		if call.Method != "POST" || call.Lane != "chat" || call.Target != "/in" || string(call.Fields) != fields {
			t.Errorf("the app is asked, with %.20q, lane %s, %s %s, fields %q, want %q", m.body, call.Lane, call.Method, call.Target, call.Fields, fields)
		}
		if names := s.Connections("room"); len(names) != 1 || names[0] != call.Connection {
			t.Errorf("the connection is %q, of %v", call.Connection, names)
		}
		if m.answered != "" {
			call.ok(m.answered)
		} else {
			call.ok()
		}
	}
}

func TestInbound_ASocketsMessagesAreAtTheAppOneAtATimeAndInOrder(t *testing.T) {
	eachConnection(t, func(t *testing.T, linked bool) {
		const messages = 200
		s, app := startApp(t, Config{})
		client, server := s.pair(linked)
		c := s.openSocketOn(client, server, Spec{})
		var all clientSends
		for i := range messages {
			all = all.text(fmt.Sprint("message ", i))
		}
		c.send(all)
		for i := range messages {
			call := app.wantMessage(fmt.Sprint("message ", i))
			s.handled()
			call.ok()
		}
		if most := app.most.Load(); most != 1 {
			t.Errorf("%d messages were at the app at a time, want 1", most)
		}
		s.until("every message is counted", func() bool { return s.Snapshot().Inbound["ok"] == messages })
	})
}

func TestInbound_AnotherSocketDoesNotWaitForTheAppsAnswerToOne(t *testing.T) {
	s, app := startApp(t, Config{})
	slow, fast := s.openSocket(Spec{}), s.openSocket(Spec{})
	slow.send(clientSends{}.text("slow"))
	call := app.wantMessage("slow")
	for i := range 10 {
		fast.send(clientSends{}.text(fmt.Sprint(i)))
		app.wantMessage(fmt.Sprint(i)).reply(http.StatusOK, "done", "M0-Reply: text")
		fast.wantText("done")
	}
	call.reply(http.StatusOK, "done", "M0-Reply: text")
	slow.wantText("done")
}

// One that it has seen is never sent again: what it did is done.
func TestInbound_AMessageThatTheAppHasNotSeenIsSentAgainBeforeTheNext(t *testing.T) {
	s, app := startApp(t, Config{})
	c := s.openSocket(Spec{})
	c.send(clientSends{}.text("first").text("second"))
	for range 3 {
		app.wantMessage("first").fail(fmt.Errorf("%w: connection refused", ErrUnseen))
	}
	position := s.publish("meanwhile", "news")
	call := app.wantMessage("first")
	if call.position != position {
		t.Errorf("it is sent again as of %d, and the head is %d", call.position, position)
	}
	call.ok()
	app.wantMessage("second").fail(errors.New("cut after it was sent"))
	c.send(clientSends{}.text("third"))
	app.wantMessage("third").ok()
	s.until("all are counted", func() bool {
		counts := s.Snapshot().Inbound
		return counts["ok"] == 2 && counts["failed"] == 1 && counts["overload"] == 0
	})
}

func TestInbound_AnAppThatStaysAwayEndsTheSocketAndItsMessagesAreCounted(t *testing.T) {
	for _, end := range []struct {
		err    error
		code   uint16
		reason string
		end    End
	}{{ErrDown, 1013, "overload", EndOverload}, {ErrStopping, 1012, "draining", EndDraining}} {
		s, app := startApp(t, Config{})
		c := s.openSocket(Spec{})
		c.send(clientSends{}.text("first").text("second").text("third"))
		app.wantMessage("first").fail(fmt.Errorf("%w: refused", ErrUnseen))
		app.wantMessage("first").fail(fmt.Errorf("%w: refused", end.err))
		c.wantClose(end.code, end.reason)
		if got := s.Snapshot(); got.Inbound["overload"] != 3 || got.Ended[ModeWebSocket][end.end.String()] != 1 {
			t.Errorf("%v: counted are %v", end.err, got.Inbound)
		}
		c.send(clientSends{}.text("fourth").close(end.code, ""))
		s.until("it has left", func() bool { return s.counts.held.Load() == 0 })
		if n := s.Snapshot().Inbound["overload"]; n != 3 {
			t.Errorf("%d are counted, and the fourth came after the end", n)
		}
	}
}

// What a failing answer says is not the view's word.
func TestInbound_AFailingAnswerIsNotObeyedAndTheSocketStays(t *testing.T) {
	s, app := startApp(t, Config{})
	c := s.openSocket(Spec{})
	for _, status := range []int{302, 400, 403, 404, 500, 503, 599} {
		c.send(clientSends{}.text("x"))
		app.wantMessage("x").reply(status, "Server Error", "M0-Reply: text", "M0-Subscribe: news", "M0-Unsubscribe: room", "M0-Close: 1000")
	}
	for _, status := range []int{200, 201, 202, 204} {
		c.send(clientSends{}.text("x"))
		app.wantMessage("x").reply(status, fmt.Sprint(status), "M0-Reply: text")
		c.wantText(fmt.Sprint(status))
	}
	s.publish("not its own", "news")
	s.publish("still its own", "room")
	c.wantText("still its own")
	if got := s.Snapshot().Inbound; got["failed"] != 7 || got["ok"] != 4 {
		t.Errorf("counted are %v", got)
	}
}

func TestInbound_AReplyGoesToTheSocketThatAskedAlone(t *testing.T) {
	s, app := startApp(t, Config{})
	for _, envelope := range []bool{false, true} {
		asks, other := s.openSocket(Spec{Envelope: envelope}), s.openSocket(Spec{Envelope: envelope})
		if envelope {
			asks.wantOpen()
			other.wantOpen()
		}
		for _, r := range []struct {
			field, body string
			opcode      opcode
		}{
			{"M0-Reply: text", "hé", opText}, {"M0-Reply: TEXT", "", opText}, {"M0-Reply: binary", "\x00\xff", opBinary}, {"M0-Reply: binary", "", opBinary},
			{"M0-Reply: text", sentence("large", MaxData), opText}, {"M0-Reply: json", "none", 0}, {"X-Else: text", "none", 0},
		} {
			asks.send(clientSends{}.text("?"))
			app.wantMessage("?").reply(http.StatusOK, r.body, r.field)
			if r.opcode != 0 {
				asks.want(r.opcode, r.body)
			}
		}
		s.until("the last answer is obeyed", func() bool { return s.Snapshot().Inbound["ok"]%7 == 0 })
		id := s.publish("to both", "room")
		for _, c := range []*socketClient{asks, other} {
			if envelope {
				c.wantText(fmt.Sprintf(`{"id":%d,"event":null,"data":"to both"}`, id))
			} else {
				c.wantText("to both")
			}
		}
	}
}

func TestInbound_ACloseComesAfterTheReplyAndWhatWasPublishedBefore(t *testing.T) {
	for field, want := range map[string]struct {
		code   uint16
		reason string
	}{
		"M0-Close: 4001 you are out":    {4001, "you are out"},
		"M0-Close: 1000":                {1000, "published"},
		"M0-Close: 1006 not to be sent": {1000, "not to be sent"},
		"M0-Close: go away":             {1000, "go away"},
	} {
		s, app := startApp(t, Config{})
		c := s.openSocket(Spec{})
		c.send(clientSends{}.text("I leave").text("behind it"))
		call := app.wantMessage("I leave")
		s.publish("one has left", "room")
		call.reply(http.StatusOK, "good bye", "M0-Reply: text", field)
		c.wantText("one has left", "good bye")
		c.wantClose(want.code, want.reason)
		app.wantMessage("behind it").ok("M0-Reply: text", "M0-Subscribe: news", "M0-Close: 1000") // there is nobody any more
		c.send(clientSends{}.text("too late").close(want.code, ""))
		s.until("it has left", func() bool { return s.counts.held.Load() == 0 })
		if got := s.Snapshot(); got.Inbound["ok"] != 2 || got.Ended[ModeWebSocket]["published"] != 1 || s.Channels()["news"] != 0 {
			t.Errorf("%s: %v, %v", field, got.Inbound, got.Ended[ModeWebSocket])
		}
	}
}

// A view publishes, and then takes its client out: as it would be in a small room.
func TestInbound_WhatAViewPublishedBeforeItsAnswerTookAChannelAwayIsGiven(t *testing.T) {
	for _, fields := range [][]string{{"M0-Unsubscribe: room"}, {"M0-Unsubscribe: room", "M0-Subscribe: next"}} {
		s := newStage(Config{})
		var held []*hold
		for range 3 * s.loop.pace.slice { // a walk in slices
			h, _ := s.openSocket(-1, false, "room")
			held = append(held, h)
		}
		s.rest()
		a := Answer{Status: http.StatusOK, Fields: fieldsOf(t, fields...), Position: s.hub.head.Load()}
		s.publish("one leaves", "room")
		for _, h := range held {
			h.socket.delivering, h.socket.underWay = true, 1 // by the test, and not by a goroutine
			s.loop.takeMessage(h, message{opcode: opText, payload: []byte("I leave")})
			s.hub.call(s.loop, func() { s.loop.answered(h, a, nil) })
		}
		s.rest()
		missed := 0
		for _, h := range held {
			if !slices.Equal(s.frames(t, h), clientGets{}.text("one leaves")) {
				missed++
			}
		}
		if missed > 0 {
			t.Errorf("%s: %d of %d have not got what was published before", fields, missed, len(held))
		}
	}
}
