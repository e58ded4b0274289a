package holds

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// A subscribe holds from when its view was asked: what the view has published
// itself, or what came meanwhile, is given; what was there before is not.
func TestOverHTTP_ASubscribeIsFromWhenTheAppWasAsked(t *testing.T) {
	o := startOver(t, Config{}, subscribeTo("own"))
	for _, channel := range []string{"a", "own"} { // the second one it is in already
		o.says(clientSends{}.text("1"))
		o.message(channel, "before")
		position := o.hub.head.Load()
		o.message(channel, "meanwhile 1")
		o.message("own", "between")
		o.message(channel, "meanwhile 2")
		if channel == "own" {
			o.gets(frameBytes(opText, "before"), frameBytes(opText, "meanwhile 1"), frameBytes(opText, "between"), frameBytes(opText, "meanwhile 2"))
		} else {
			o.gets(frameBytes(opText, "between"))
		}
		call := o.asked("TEXT 1\r\n1\r\n")
		a := eventsAnswer(t, eventOf("TEXT", "m:joined")+subscribeTo(channel))
		a.Position = position
		o.answers(call, a, nil)
		o.message(channel, "after")
		if channel == "own" {
			o.gets(frameBytes(opText, "joined"), frameBytes(opText, "after"))
		} else {
			o.gets(frameBytes(opText, "joined"), frameBytes(opText, "meanwhile 1"), frameBytes(opText, "meanwhile 2"), frameBytes(opText, "after"))
		}
	}
}

// What the journal has not any more cannot be given, and the client cannot be
// told: it comes back instead.
func TestOverHTTP_ASubscribeThatComesTooLateEndsTheSocket(t *testing.T) {
	o := startOver(t, Config{Journal: JournalLimits{Events: 2}}, "")
	position := o.hub.head.Load()
	for i := range 3 {
		o.message("a", fmt.Sprint(i))
	}
	o.says(clientSends{}.text("1"))
	a := eventsAnswer(t, subscribeTo("a"))
	a.Position = position
	o.answers(o.asked("TEXT 1\r\n1\r\n"), a, nil)
	if o.gets(); !o.pipe.reset || o.socketsEnded(EndSlow) != 1 {
		t.Errorf("reset %v, %d ended slow", o.pipe.reset, o.socketsEnded(EndSlow))
	}
	o.tells(o.asked("DISCONNECT\r\n"), "")
	o.wantNothingLeft(t)
}

func TestOverHTTP_WhatWasPublishedBeforeAnUnsubscribeIsGivenAndNothingAfter(t *testing.T) {
	for _, subscribe := range []string{"", subscribeTo("c")} { // which has it catch up
		s, app := gripStage(t, Config{})
		s.loop.pace.slice = 1 // one hold in each step, the last one first
		answer := eventsAnswer(t, "OPEN\r\n"+subscribeTo("b"), "Sec-WebSocket-Extensions: grip")
		first := s.openOver(t, app, s.hub.head.Load(), answer)
		for range 3 {
			s.openOver(t, app, s.hub.head.Load(), answer)
		}
		first.says(clientSends{}.text("1"))
		call := first.asked("TEXT 1\r\n1\r\n")
		s.hub.publishItem(encodeItem(&Item{Channel: "b", Socket: &SocketForm{Kind: opText, Content: []byte("before")}}))
		first.tells(call, subscribe+controlOf(`{"type": "unsubscribe", "channel": "b"}`))
		first.gets(frameBytes(opText, "before"))
		s.message("b", "after")
		first.gets()
		if n := s.hub.journal.rooms["b"].members; n != 3 {
			t.Errorf("%d are in the channel, want 3", n)
		}
	}
}

// Unsubscribing from what it is not in, and subscribing to no channel, is
// nothing; the 65th channel is not joined.
func TestOverHTTP_ASocketIsIn64ChannelsAtMost(t *testing.T) {
	var events string
	for i := range MaxChannels + 1 {
		events += subscribeTo(fmt.Sprint("c", i))
	}
	o := startOver(t, Config{}, controlOf(`{"type": "unsubscribe", "channel": "x"}`)+controlOf(`{"type": "subscribe", "channel": ""}`)+controlOf(`{"type": "unknown"}`)+events+subscribeTo("c0"))
	o.message("c63", "the last")
	o.message("c64", "one too many")
	if o.gets(frameBytes(opText, "the last")); o.hold.seats() != MaxChannels || len(o.hold.grip().channels) != MaxChannels {
		t.Errorf("it is in %d", o.hold.seats())
	}
}

func TestOverHTTP_MoreThanFiveFiltersEndTheSocket(t *testing.T) {
	filters := func(n int) string {
		return controlOf(fmt.Sprintf(`{"type": "subscribe", "channel": "a", "filters": [%s"x"]}`, strings.Repeat(`"x", `, n-1)))
	}
	o := startOver(t, Config{}, filters(5)+eventOf("TEXT", "m:x"))
	o.gets(frameBytes(opText, "x"))
	o.says(clientSends{}.text("1"))
	o.tells(o.asked("TEXT 1\r\n1\r\n"), filters(6)+eventOf("TEXT", "m:y"))
	if o.gets(); !o.pipe.reset || o.socketsEnded(EndError) != 1 {
		t.Errorf("reset %v, %d ended", o.pipe.reset, o.socketsEnded(EndError))
	}
	s, app := gripStage(t, Config{})
	o = s.openOver(t, app, s.hub.head.Load(), eventsAnswer(t, "OPEN\r\n"+filters(6), "Sec-WebSocket-Extensions: grip"))
	if !o.pipe.reset || o.socketsEnded(EndError) != 1 {
		t.Errorf("behind OPEN: reset %v, %d ended", o.pipe.reset, o.socketsEnded(EndError))
	}
}

// Filters are those of the last subscribe.
func TestOverHTTP_FiltersSayWhatASocketIsGivenAndHow(t *testing.T) {
	filtered := func(filters ...string) string {
		return controlOf(fmt.Sprintf(`{"type": "subscribe", "channel": "a", "filters": [%s]}`, strings.Join(filters, ", ")))
	}
	o := startOver(t, Config{}, controlOf(`{"type": "set-meta", "name": "user", "value": "bob"}`)+filtered(`"skip-self"`))
	send := func(content string, meta map[string]string, filters ...string) {
		o.hub.publishItem(encodeItem(&Item{Channel: "a", Meta: meta, Socket: &SocketForm{Kind: opText, Content: []byte(content), Filters: filters}}))
		o.rest()
	}
	tell := func(events string) {
		o.says(clientSends{}.text("1"))
		o.tells(o.asked("TEXT 1\r\n1\r\n"), events)
	}
	by := map[string]string{"sender": "bob", "skip_users": "alice, bob"}
	send("by itself", by)
	send("by others", map[string]string{"sender": "alice"})
	send("%(user)s", nil)
	o.gets(frameBytes(opText, "by others"), frameBytes(opText, "%(user)s"))
	tell(filtered(`"var-subst"`, `"skip-users"`))
	send("not to bob", by)
	send("for %(user)s: 100%%", nil)
	send("%(user)s too", nil, "var-subst")
	send("written for other filters", nil, "build-id")
	send("%(nobody)s", nil)
	o.gets(frameBytes(opText, "for bob: 100%"), frameBytes(opText, "bob too"))
	tell(filtered() + controlOf(`{"type": "set-meta", "name": "user"}`))
	send("by itself", by)
	send("100%%", nil)
	o.gets(frameBytes(opText, "by itself"), frameBytes(opText, "100%%"))
	tell(filtered(`"var-subst"`))
	send("%(user)s is not known any more", nil)
	o.publish("100%% native: %(user)s", "a")
	o.rest()
	o.gets(frameBytes(opText, "100%% native: %(user)s"))
	if !slices.Equal(o.hold.channels(), []string{"a"}) || o.hold.state != live {
		t.Errorf("state %d, it is in %q", o.hold.state, o.hold.channels())
	}
}
