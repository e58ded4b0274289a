package holds

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// quietly lets time pass in seconds and gives when the client was sent
// something, and what.
func (s *stage) quietly(t *testing.T, h *hold, d time.Duration) (at []time.Time, sent clientGets) {
	for range int(d / time.Second) {
		s.pass(time.Second, time.Second)
		for _, f := range s.frames(t, h) {
			at, sent = append(at, s.clock.at), append(sent, f)
		}
	}
	return at, sent
}

// No position: a socket's is in its events.
func TestPing_AQuietSocketGetsOneAfterTheHeartbeatAtLeastAndTwiceThatAtMost(t *testing.T) {
	for _, envelope := range []bool{false, true} {
		s := newStage(Config{Heartbeat: 15 * time.Second})
		h, p := s.openSocket(-1, envelope, "quiet")
		s.rest()
		s.frames(t, h)
		before := s.clock.at
		s.publish("to others", "busy")
		at, sent := s.quietly(t, h, 10*15*time.Second)
		if len(sent) < 5 {
			t.Fatalf("%d pings in ten times the heartbeat", len(sent))
		}
		for i, f := range sent {
			if f != (serverFrame{opPing, "", 0}) {
				t.Errorf("it is sent %v, want a ping", f)
			}
			if quiet := at[i].Sub(before); quiet < 14*time.Second || quiet > 30*time.Second {
				t.Errorf("ping %d comes after %v, with 15s as the heartbeat", i, quiet)
			}
			before = at[i]
			s.say(h, clientSends{}.frame(0x8A, "")) // a pong, which is answered with nothing
		}
		if p.closed || h.outbox != nil {
			t.Error("pongs have ended it, or something waits")
		}
	}
}

func TestPing_ASocketThatGetsEventsGetsNone(t *testing.T) {
	s := newStage(Config{Heartbeat: 15 * time.Second})
	h, _ := s.openSocket(-1, false, "a")
	s.rest()
	for range 100 {
		s.publish("event", "a")
		s.rest()
		if _, sent := s.quietly(t, h, 14*time.Second); !slices.Equal(sent, clientGets{}.text("event")) {
			t.Fatalf("it is sent %v, want the event alone", sent)
		}
	}
}

func TestPing_ThereIsNoneWithoutAHeartbeatNorBehindWhatWaits(t *testing.T) {
	s := newStage(Config{})
	h, _ := s.openSocket(-1, false, "a")
	s.rest()
	if _, sent := s.quietly(t, h, 10*time.Minute); sent != nil {
		t.Errorf("without a heartbeat it is sent %v", sent)
	}
	s = newStage(Config{Heartbeat: time.Second, WriteStall: time.Hour})
	s.openSocket(100, false, "a")
	s.rest()
	s.publish(strings.Repeat("x", 500), "a")
	s.rest()
	before := s.loop.counts.outbox.Load()
	s.pass(time.Minute, time.Second)
	if now := s.loop.counts.outbox.Load(); now != before || before == 0 {
		t.Errorf("%d bytes wait, which were %d", now, before)
	}
}

// event100 is an event of which 100 bytes go to a socket.
func event100(envelope bool) string {
	if envelope {
		return strings.Repeat("x", 98-len(`{"id":0000000000000000,"event":null,"data":""}`))
	}
	return strings.Repeat("x", 98)
}

func TestSlow_ASocketsBoundIsOfWhatIsBehindTheFirstThatWaits(t *testing.T) {
	const bound = 1000
	for _, envelope := range []bool{false, true} {
		for _, first := range []string{event100(envelope), strings.Repeat("y", MaxData)} {
			s := newStage(Config{OutboxBytes: bound})
			h, p := s.openSocket(-1, envelope, "a")
			s.rest()
			s.take(h, 1<<20)
			p.room = 10 // of the first
			s.publish(first, "a")
			for range bound / 100 {
				s.publish(event100(envelope), "a")
			}
			s.rest()
			if p.closed || h.outbox == nil || h.outbox.behind != bound {
				t.Fatalf("envelope %v: closed is %v, with %d bytes behind the first", envelope, p.closed, bound)
			}
			s.publish("x", "a")
			s.rest()
			if !p.closed || !p.reset || s.socketsEnded(EndSlow) != 1 {
				t.Errorf("envelope %v, one more: closed is %v, reset is %v, %d ended slow", envelope, p.closed, p.reset, s.socketsEnded(EndSlow))
			}
			if n := s.loop.counts.outbox.Load(); n != 0 {
				t.Errorf("envelope %v: %d bytes wait still", envelope, n)
			}
		}
	}
}

func TestStall_ASocketWhoseClientTakesNoByteForTheBoundIsReset(t *testing.T) {
	s := newStage(Config{WriteStall: 30 * time.Second, Heartbeat: time.Second})
	h, p := s.openSocket(100, false, "a")
	s.rest()
	s.publish(strings.Repeat("x", 500), "a")
	s.rest()
	s.pass(29*time.Second, time.Second)
	s.say(h, clientSends{}.ping("that it speaks does not count").frame(0x8A, ""))
	if p.closed || h.outbox == nil {
		t.Fatalf("after 29s: closed is %v, something waits is %v", p.closed, h.outbox != nil)
	}
	s.pass(time.Second, time.Second)
	if !p.closed || !p.reset || s.socketsEnded(EndStalled) != 1 {
		t.Errorf("after 30s: closed is %v, reset is %v, %d ended stalled", p.closed, p.reset, s.socketsEnded(EndStalled))
	}
}

// Its pongs wait for it as events do, up to the same bound.
func TestSlow_AClientThatSendsPingsAndReadsNoPongIsEnded(t *testing.T) {
	const bound = 10_000
	s := newStage(Config{OutboxBytes: bound})
	h, p := s.openSocket(50, false, "a")
	s.rest()
	flood := clientSends{}
	for range 10 {
		flood = flood.ping(strings.Repeat("p", maxControl))
	}
	most := 0
	for i := 0; !p.closed; i++ {
		if i > 2*bound/len(flood) {
			t.Fatalf("%d bytes wait, and it is not ended", h.outbox.bytes)
		}
		s.say(h, slices.Clone(flood))
		if h.outbox != nil {
			most = max(most, h.outbox.bytes)
		}
	}
	if most > bound+2*maxControl || most < bound/2 {
		t.Errorf("up to %d bytes waited, of %d", most, bound)
	}
	if !p.reset || s.socketsEnded(EndSlow) != 1 {
		t.Errorf("reset is %v, %d ended slow", p.reset, s.socketsEnded(EndSlow))
	}
}

// An answer of the app, too.
func TestSlow_AClientThatAsksAndReadsNoAnswerIsEnded(t *testing.T) {
	const bound = 10_000
	s := newStage(Config{OutboxBytes: bound})
	h, p := s.openSocket(50, false, "a")
	s.rest()
	reply := Answer{Status: 200, Fields: fieldsOf(t, "M0-Reply: text"), Body: []byte(strings.Repeat("x", 996))}
	for i := range 1 + bound/1000 {
		s.answer(h, reply)
		if p.closed {
			t.Fatalf("it is ended after %d answers", i+1)
		}
	}
	s.answer(h, reply)
	if !p.closed || !p.reset || s.socketsEnded(EndSlow) != 1 {
		t.Errorf("closed is %v, reset is %v, %d ended slow", p.closed, p.reset, s.socketsEnded(EndSlow))
	}
}

// endSocket ends a socket by the API and requires its close frame.
func (s *stage) endSocket(t *testing.T, h *hold, p *pipe) {
	t.Helper()
	s.loop.endByAPI(h, EndRequest{Code: 4001, Reason: "over"})
	s.rest()
	if got := s.frames(t, h); !slices.Equal(got, clientGets{}.close(4001)) || !p.shut || p.closed {
		t.Fatalf("it is sent %v, its sending side is shut: %v, closed: %v", got, p.shut, p.closed)
	}
}

func TestParting_AClientHasTwoSecondsToAnswerACloseFrame(t *testing.T) {
	s := newStage(Config{})
	h, p := s.openSocket(-1, false, "a")
	s.rest()
	s.endSocket(t, h, p)
	if n := s.loop.nextTick(s.clock.at).Sub(s.clock.at); n > partingTime/4 {
		t.Errorf("the loop looks after it in %v", n)
	}
	s.say(h, clientSends{}.ping("anybody there").text("hello").frame(0x8A, ""))
	s.publish("too late", "a")
	s.pass(partingTime-100*time.Millisecond, 100*time.Millisecond)
	if got := s.frames(t, h); got != nil || p.closed {
		t.Fatalf("before two seconds are over it is sent %v; closed is %v", got, p.closed)
	}
	s.pass(100*time.Millisecond, 100*time.Millisecond)
	if !p.closed || p.reset || s.socketsEnded(EndPublished) != 1 {
		t.Errorf("after them: closed is %v, reset is %v", p.closed, p.reset)
	}
	if len(s.loop.parting) != 0 {
		t.Errorf("%d are waited for still", len(s.loop.parting))
	}
}

func TestParting_IsOverWithTheClientsCloseFrameOrItsEnd(t *testing.T) {
	for what, part := range map[string]func(s *stage, h *hold){
		"a close frame": func(s *stage, h *hold) { s.say(h, clientSends{}.text("and").close(4001, "")) },
		"its end":       func(s *stage, h *hold) { s.loop.hangUp(h) },
	} {
		s := newStage(Config{})
		h, p := s.openSocket(-1, false, "a")
		s.rest()
		s.endSocket(t, h, p)
		part(s, h)
		if !p.closed || p.reset {
			t.Errorf("%s: closed is %v, reset is %v", what, p.closed, p.reset)
		}
		s.openSocket(-1, false, "a") // at its place: it is not meant
		s.rest()
		s.pass(2*partingTime, time.Second)
		if n := len(s.loop.table) - len(s.loop.vacant); n != 1 {
			t.Errorf("%s: %d holds are there, want the one that came after it", what, n)
		}
	}
}

// What waits comes first; until the close frame is out its time does not run.
func TestParting_BeginsWhenTheCloseFrameIsOut(t *testing.T) {
	s := newStage(Config{WriteStall: 30 * time.Second})
	h, p := s.openSocket(100, false, "a")
	s.rest()
	s.publish(strings.Repeat("x", 500), "a")
	s.rest()
	s.loop.endByAPI(h, EndRequest{Code: 4001, Reason: "over"})
	s.rest()
	s.pass(20*time.Second, time.Second)
	if p.shut || p.closed {
		t.Fatalf("shut is %v, closed is %v, and the close frame is not out", p.shut, p.closed)
	}
	p.room = -1
	sent := s.take(h, 1<<20) + s.take(h, 1<<20)
	if !strings.HasSuffix(sent, "xx\x88\x06\x0f\xa1over") || !p.shut || p.closed {
		t.Fatalf("it is sent %.20q…%q; shut is %v, closed is %v", sent, sent[max(0, len(sent)-12):], p.shut, p.closed)
	}
	s.pass(partingTime, 100*time.Millisecond)
	if !p.closed || p.reset {
		t.Errorf("two seconds later: closed is %v, reset is %v", p.closed, p.reset)
	}
}

func TestParting_AClientThatTakesNoCloseFrameIsReset(t *testing.T) {
	s := newStage(Config{WriteStall: 30 * time.Second})
	h, p := s.openSocket(100, false, "a")
	s.rest()
	s.publish(strings.Repeat("x", 500), "a")
	s.rest()
	s.loop.endByAPI(h, EndRequest{Code: 4001, Reason: "over"})
	s.rest()
	s.pass(31*time.Second, time.Second)
	if !p.closed || !p.reset || s.socketsEnded(EndPublished) != 1 || s.socketsEnded(EndStalled) != 0 {
		t.Errorf("closed is %v, reset is %v, %d ended published, %d stalled", p.closed, p.reset, s.socketsEnded(EndPublished), s.socketsEnded(EndStalled))
	}
}

func TestMaxAge_ASocketIsToldToComeBackInItsLastQuarter(t *testing.T) {
	const age = 400 * time.Second
	s := newStage(Config{MaxAge: age})
	h, p := s.openSocket(-1, false, "a")
	s.rest()
	s.pass(age*3/4-10*time.Second, time.Second)
	if p.shut {
		t.Fatal("it was ended before")
	}
	s.pass(age/4+10*time.Second, time.Second)
	if got := s.take(h, 1<<20); got != "\x88\x09\x03\xe9expired" {
		t.Errorf("it is sent %q, want a close frame with 1001 and why", got)
	}
	if !p.closed || p.reset || s.socketsEnded(EndExpired) != 1 {
		t.Errorf("closed is %v, reset is %v, %d ended expired", p.closed, p.reset, s.socketsEnded(EndExpired))
	}
}
