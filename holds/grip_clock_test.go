package holds

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

const tenth = 10 * time.Millisecond // the grain of these tests' time

// beaten is an instruction whose hold is sent data while it is quiet.
func beaten(timeout time.Duration, interval bool) *Grip {
	in := linked("0")
	in.KeepAlive = &KeepAlive{Data: []byte("k "), Timeout: timeout, Interval: interval}
	return in
}

// keptAlive lets time pass and gives when, from now on, the client was sent want.
func (s *stage) keptAlive(t *testing.T, p *pipe, d time.Duration, want string) (at []time.Duration) {
	t.Helper()
	for passed := tenth; passed <= d; passed += tenth {
		s.pass(tenth, tenth)
		if len(p.bytes) > 0 {
			p.want(t, want)
			at = append(at, passed)
		}
	}
	return at
}

// early is how much before its time a hold's keep-alive comes.
func (h *hold) early() time.Duration { return h.grip().early.Truncate(tenth) }

func TestKeepAlive_AQuietStreamGetsItAtItsTime(t *testing.T) {
	for _, interval := range []bool{false, true} {
		for timeout, most := range map[time.Duration]time.Duration{time.Second: 250 * time.Millisecond, 4 * time.Second: time.Second, 20 * time.Second: time.Second} {
			s, _ := gripStage(t, Config{Heartbeat: 5 * time.Second})
			h, p := s.openGrip(beaten(timeout, interval), "")
			p.want(t, "HEAD\n")
			if h.grip().early < 0 || h.grip().early > most {
				t.Errorf("of %v it comes %v early", timeout, h.grip().early)
			}
			period := timeout - h.early()
			var want []time.Duration
			for n := range time.Duration(5) {
				want = append(want, (n+1)*period)
			}
			if at := s.keptAlive(t, p, 5*period+tenth, "k "); !slices.Equal(at, want) {
				t.Errorf("interval %v: it comes at %v, want %v", interval, at, want)
			}
		}
	}
}

// Who came together is not written to together.
func TestKeepAlive_ThoseOfManyAreSpreadOverASecond(t *testing.T) {
	s, _ := gripStage(t, Config{})
	moments := map[time.Duration]bool{}
	for range 200 {
		h, _ := s.openGrip(beaten(20*time.Second, false), "")
		moments[h.grip().early] = true
	}
	if len(moments) < 100 {
		t.Errorf("200 holds have their keep-alives at %d times", len(moments))
	}
}

// What a stream is sent puts an idle one off, and not one of a fixed interval.
func TestKeepAlive_AnItemPutsOffAnIdleOneAlone(t *testing.T) {
	for _, interval := range []bool{false, true} {
		s, _ := gripStage(t, Config{})
		in := beaten(10*time.Second, interval)
		in.Channels[0].PrevID = nil
		h, p := s.openGrip(in, "")
		p.want(t, "HEAD\n")
		s.pass(6*time.Second, tenth)
		s.publishItem("a", "", "", "item ")
		p.want(t, "item ")
		want := 10*time.Second - h.early()
		if interval {
			want -= 6 * time.Second
		}
		if at := s.keptAlive(t, p, want+tenth, "k "); !slices.Equal(at, []time.Duration{want}) {
			t.Errorf("interval %v: behind the item it comes after %v, want %v", interval, at, want)
		}
		// What the stream is not given puts off neither.
		s.pass(5*time.Second, tenth)
		s.publishItem("a", "", "", "")
		s.message("a", "for sockets")
		s.publish("native", "a")
		p.want(t, "")
		want = 10*time.Second - h.early() - 5*time.Second - tenth
		if at := s.keptAlive(t, p, want+tenth, "k "); len(at) != 1 || at[0] < want-tenth || at[0] > want+tenth {
			t.Errorf("interval %v: behind what it is not given it comes after %v, want %v", interval, at, want)
		}
	}
}

func TestKeepAlive_ThereIsNoneBehindWhatWaitsNorBehindTheEnd(t *testing.T) {
	for _, interval := range []bool{false, true} {
		s, _ := gripStage(t, Config{WriteStall: time.Hour})
		in := beaten(2*time.Second, interval)
		in.Channels[0].PrevID = nil
		h, p := s.openGrip(in, "")
		p.want(t, "HEAD\n")
		p.room = 3
		s.publishItem("a", "", "", "item ")
		s.pass(time.Minute, tenth)
		if waits := s.loop.counts.outbox.Load(); waits != 2 || len(s.loop.alarms) > 2 {
			t.Errorf("%d bytes wait, want 2; %d alarms are set", waits, len(s.loop.alarms))
		}
		got := s.take(h, 3) // and there is room for the rest
		if p.room = -1; got+string(p.bytes) != "item " {
			t.Errorf("it gets %q", got+string(p.bytes))
		}
		p.bytes = nil
		if at := s.keptAlive(t, p, 2*time.Second+tenth, "k "); len(at) < 1 || len(at) > 2 {
			t.Errorf("when it has caught up a keep-alive comes after %v", at)
		}
		s.loop.end(h, EndPublished)
		s.rest()
		s.pass(time.Minute, time.Second) // a write to a closed pipe panics
		p.want(t, "")
	}
}

// A stream that waits for the app's answer to a link is quiet too.
func TestKeepAlive_AStreamThatMissesSomethingIsKeptAliveMeanwhile(t *testing.T) {
	s, app := gripStage(t, Config{})
	h, p := s.openGrip(beaten(5*time.Second, false), "")
	p.want(t, "HEAD\n")
	s.publishItem("a", "9", "8", "9 ")
	s.pass(time.Second, tenth)
	call := s.wantAsked(t, app)
	if at := s.keptAlive(t, p, 11*time.Second, "k "); len(at) != 2 && h.grip().early < 500*time.Millisecond {
		t.Errorf("it comes after %v", at)
	}
	s.reply(t, call, Answer{Fields: fieldsOf(t, "Grip-Hold: stream", "Grip-Channel: a; prev-id=9", "Grip-Keep-Alive: new ; timeout=3"), Body: []byte("9 ")})
	p.want(t, "9 ")
	if at, want := s.keptAlive(t, p, 4*time.Second, "new"), 3*time.Second-h.early(); !slices.Equal(at, []time.Duration{want}) {
		t.Errorf("the next instruction's comes after %v, want %v", at, want)
	}
}

func keepAliveOf(rest string) string { return controlOf(`{"type": "keep-alive"` + rest + `}`) }

func TestKeepAlive_ASocketsIsAMessageOfItsType(t *testing.T) {
	for rest, want := range map[string]string{
		`, "content": "k", "timeout": 10`:                                                     frameBytes(opText, "k"),
		`, "content": "", "timeout": 10, "mode": "idle"`:                                      frameBytes(opText, ""),
		`, "content-bin": "AP8=", "message-type": "binary", "timeout": 10`:                    frameBytes(opBinary, "\x00\xff"),
		`, "content": "k", "message-type": "ping", "timeout": 10.9, "mode": "interval"`:       frameBytes(opPing, "k"),
		`, "content": "k", "message-type": "pong", "timeout": 10, "mode": "of another world"`: frameBytes(opPong, "k"),
	} {
		o := startOver(t, Config{}, keepAliveOf(rest))
		period := 10*time.Second - o.hold.early()
		if at := o.keptAlive(t, o.pipe, 2*period+tenth, want); !slices.Equal(at, []time.Duration{period, 2 * period}) {
			t.Errorf("%s comes after %v, want each %v", rest, at, period)
		}
		o.says(clientSends{}.text("1"))
		o.tells(o.asked("TEXT 1\r\n1\r\n"), keepAliveOf("")) // off
		if at := o.keptAlive(t, o.pipe, time.Minute, ""); len(at) > 0 {
			t.Errorf("when it is off it comes after %v", at)
		}
	}
}

// Each of these is sent, or is not, when half of the time has passed.
func TestKeepAlive_WhatASocketIsSentPutsOffAnIdleOne(t *testing.T) {
	answered := func(events string) func(o *overStage) {
		return func(o *overStage) {
			o.says(clientSends{}.text("1"))
			o.tells(o.asked("TEXT 1\r\n1\r\n"), events)
		}
	}
	for what, c := range map[string]struct {
		act  func(o *overStage)
		sent bool
	}{
		"an item":                  {func(o *overStage) { o.message("a", "x") }, true},
		"a native event":           {func(o *overStage) { o.publish("x", "a"); o.rest() }, true},
		"a message of the app":     {answered(eventOf("TEXT", "m:x")), true},
		"an answer without one":    {answered(""), false},
		"a text for nobody":        {answered(eventOf("TEXT", "x")), false},
		"a delayed one":            {answered(controlOf(`{"type": "send-delayed", "content": "x"}`) + controlOf(`{"type": "flush-delayed"}`)), true},
		"a pong":                   {func(o *overStage) { o.says(clientSends{}.ping("x")) }, true},
		"an item for streams":      {func(o *overStage) { o.publishItem("a", "", "", "x") }, false},
		"an item of other filters": {func(o *overStage) { o.message("a", "x", "build-id") }, false},
		"a refresh": {func(o *overStage) {
			o.hub.publishItem(encodeItem(&Item{Channel: "a", Socket: &SocketForm{Action: ActionRefresh}}))
			o.rest()
			o.tells(o.asked(), "")
		}, false},
	} {
		for _, interval := range []bool{false, true} {
			rest := `, "content": "k", "timeout": 10`
			if interval {
				rest += `, "mode": "interval"`
			}
			o := startOver(t, Config{}, subscribeTo("a")+keepAliveOf(rest))
			o.pass(5*time.Second, tenth)
			o.gets()
			c.act(o)
			if sent := len(o.pipe.bytes) > 0; sent != c.sent {
				t.Errorf("%s: something is sent: %v", what, sent)
			}
			o.pipe.bytes = nil
			want := 10*time.Second - o.hold.early()
			if !c.sent || interval {
				want -= 5 * time.Second
			}
			if at := o.keptAlive(t, o.pipe, want+tenth, frameBytes(opText, "k")); !slices.Equal(at, []time.Duration{want}) {
				t.Errorf("%s, interval %v: it comes after %v, want %v", what, interval, at, want)
			}
		}
	}
}

// The heartbeat of ours is for sockets alone: what a quiet stream is sent is
// its instruction's to say.
func TestHeartbeat_AGripStreamHasNoneAndItsSocketHas(t *testing.T) {
	s, _ := gripStage(t, Config{Heartbeat: 5 * time.Second})
	_, p := s.openGrip(linked("5"), "")
	_, q := s.openGripPoll(&Grip{Channels: []GripChannel{on("a", "")}}, 24*time.Hour)
	s.pass(time.Hour, time.Second)
	p.want(t, "HEAD\n")
	q.want(t, "")
	o := startOver(t, Config{Heartbeat: 5 * time.Second}, "")
	o.pass(11*time.Second, time.Second)
	if got := o.take(o.hold, 1<<20); !strings.HasPrefix(got, frameBytes(opPing, "")) {
		t.Errorf("a quiet socket is sent %q, want pings", got)
	}
}

// What has a hold looked at sooner, again and again, leaves no alarms behind.
func TestAlarms_DoNotPileUp(t *testing.T) {
	for _, timeout := range []int{55, 7200} {
		o := startOver(t, Config{}, subscribeTo("a")+keepAliveOf(fmt.Sprintf(`, "content": "k", "timeout": %d`, timeout)))
		for range 400 {
			o.says(clientSends{}.text("1"))
			o.tells(o.asked("TEXT 1\r\n1\r\n"), controlOf(`{"type": "send-delayed", "content": "x"}`))
			o.pass(time.Second, 100*time.Millisecond)
			o.message("a", "x")
			o.pipe.bytes = nil
		}
		if n := len(o.loop.alarms); n > alarmsLeast+2 {
			t.Errorf("with a keep-alive of %d s one socket has %d alarms after so many seconds", timeout, n)
		}
	}
	s, app := gripStage(t, Config{})
	in := beaten(time.Hour, true)
	in.Next.Timeout = 2 * time.Hour
	_, p := s.openGrip(in, "")
	for n := range 400 {
		s.hub.publishItem(encodeItem(&Item{Channel: "a", ID: id(fmt.Sprint("x", n)), PrevID: id("of another history"), NoSeq: true, Stream: &StreamForm{Content: []byte("x ")}}))
		s.pass(300*time.Millisecond, 100*time.Millisecond)
		s.reply(t, s.wantAsked(t, app), Answer{Fields: fieldsOf(t, "Grip-Hold: stream", fmt.Sprintf("Grip-Channel: a; prev-id=x%d", n), "Grip-Link: </next>; rel=next; timeout=7200",
			"Grip-Keep-Alive: k; timeout=3600; mode=interval")})
		s.publishItem("a", fmt.Sprint("x", n, "b"), fmt.Sprint("x", n), "x ") // the link has led to something
		s.rest()
		p.bytes = nil
	}
	if n := len(s.loop.alarms); n > alarmsLeast+2 {
		t.Errorf("one stream has %d alarms", n)
	}
}

// In the last quarter of the bound, and cleanly; who is an event stream is told
// when to come back, others could not read that.
func TestGripEnds_MaxAgeAndDrainAreCleanAndNameATimeForEventStreamsAlone(t *testing.T) {
	retry := regexp.MustCompile(`\A(?:d\r\n)?retry: [1-4][0-9]{3}\n\n(?:\r\n0\r\n\r\n)?\z`)
	for reason, end := range map[End]func(s *stage){
		EndExpired:  func(s *stage) { s.pass(time.Hour, 10*time.Second) },
		EndDraining: func(s *stage) { s.loop.drain(); s.pass(drainSpan+tenth, tenth) },
	} {
		for _, chunked := range []bool{false, true} {
			for _, events := range []bool{false, true} {
				s, _ := gripStage(t, Config{MaxAge: time.Hour})
				var holds []*hold
				var pipes []*pipe
				for range 20 {
					h, p := s.openGripSpec(linked("5"), Spec{Target: "/", Host: "h", Events: events})
					h.chunked = chunked
					p.bytes = nil
					holds, pipes = append(holds, h), append(pipes, p)
				}
				_, poll := s.openGripPoll(&Grip{Channels: []GripChannel{on("a", "")}}, 2*time.Hour)
				if reason == EndExpired {
					s.pass(44*time.Minute, 10*time.Second)
				}
				for _, h := range holds {
					if h.state != live {
						t.Fatalf("%v: it ends too early", reason)
					}
				}
				end(s)
				for i, p := range pipes {
					got, clean := string(p.bytes), ""
					if chunked {
						clean = "0\r\n\r\n"
					}
					if events && (!retry.MatchString(got) || chunked != strings.HasSuffix(got, "\r\n")) || !events && got != clean || !p.closed || p.reset {
						t.Errorf("%v, events %v, chunked %v: closed %v, reset %v, state %d, %q", reason, events, chunked, p.closed, p.reset, holds[i].state, got)
					}
				}
				if s.ended(reason) != 20 {
					t.Errorf("%d ended %v", s.ended(reason), reason)
				}
				if want := map[End]string{EndDraining: ownAnswer}[reason]; string(poll.bytes) != want {
					t.Errorf("%v: a long poll is answered %q, want %q", reason, poll.bytes, want)
				}
			}
		}
	}
}

// What misses something for good as the process stops is not waited for.
func TestGripEnds_AStreamThatWaitsForALinkEndsWithTheDrain(t *testing.T) {
	s, app := gripStage(t, Config{})
	_, p := s.openGrip(linked("5"), "")
	s.publishItem("a", "9", "8", "9 ")
	s.pass(time.Second, tenth)
	call := s.wantAsked(t, app)
	s.loop.drain()
	s.pass(drainSpan+tenth, tenth)
	if !p.closed || p.reset || s.ended(EndDraining) != 1 {
		t.Errorf("closed %v, reset %v", p.closed, p.reset)
	}
	before := string(p.bytes)
	s.reply(t, call, Answer{Fields: fieldsOf(t, "Grip-Hold: stream", "Grip-Channel: a, b; prev-id=9"), Body: []byte("late")})
	p.want(t, before)
	if r := s.hub.journal.rooms["b"]; r != nil {
		t.Errorf("it has %d members", r.members)
	}
}

// Of a channel without prev-ids nobody can say what is missing, and the app
// cannot be asked for it: the hold is not fed on as if nothing were.
func TestGripEnds_OfWhatNobodyCountsAHoleEndsTheStream(t *testing.T) {
	for _, next := range []*Link{nil, {URI: "/next"}} {
		s, _ := gripStage(t, Config{Journal: JournalLimits{Events: 2}})
		s.loop.pace.events = 2 // more than that in one turn are fetched from the journal
		_, p := s.openGrip(&Grip{Channels: []GripChannel{on("a", "")}, Next: next}, "")
		p.want(t, "HEAD\n")
		for n := range 5 {
			s.hub.publishItem(encodeItem(&Item{Channel: "a", Stream: &StreamForm{Content: []byte(fmt.Sprint(n, " "))}}))
		}
		s.rest()
		if !p.closed || s.ended(EndSlow) != 1 || strings.Contains(string(p.bytes), "3 ") {
			t.Errorf("with the link %v: closed %v, it is sent %q", next, p.closed, p.bytes)
		}
	}
}
