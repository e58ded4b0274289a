package holds

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var beat = regexp.MustCompile(`^(?:d\r\n: heartbeat\n\n\r\n|: heartbeat\n\n)$`)

// beats lets time pass in seconds and gives what was sent in each in which
// something was.
func (s *stage) beats(h *hold, d time.Duration) (at []time.Time, sent []string) {
	for range int(d / time.Second) {
		s.pass(time.Second, time.Second)
		if b := s.take(h, 1<<20); b != "" {
			at = append(at, s.clock.at)
			sent = append(sent, b)
		}
	}
	return at, sent
}

// Whose position is the head, not its channel's: it is above whatever its
// channel's floor may be taken for.
func TestHeartbeat_AQuietHoldGetsACommentAndEveryFourthTimeThePosition(t *testing.T) {
	for _, chunked := range []bool{false, true} {
		s := newStage(Config{Heartbeat: 15 * time.Second})
		h, _ := s.open(-1, "quiet")
		h.chunked = chunked
		s.rest()
		s.take(h, 1<<20)
		opened := s.clock.at
		s.publish("to others", "busy")
		at, sent := s.beats(h, 10*15*time.Second)
		if len(sent) < 9 {
			t.Fatalf("%d heartbeats in ten times the heartbeat", len(sent))
		}
		for i, b := range sent {
			want := string(heartbeat(chunked))
			if i%4 == 3 {
				want = string(position(s.hub.head.Load(), chunked))
			} else if !beat.MatchString(b) {
				t.Errorf("a heartbeat is %q", b)
			}
			if b != want {
				t.Errorf("heartbeat %d is %q, want %q", i, b, want)
			}
			if quiet := at[i].Sub(slices.Concat([]time.Time{opened}, at)[i]); quiet < 14*time.Second || quiet > 30*time.Second {
				t.Errorf("heartbeat %d comes after %v, with 15s as the heartbeat", i, quiet)
			}
		}
	}
}

// All holds of a loop, whatever comes to each of them.
func TestHeartbeat_ComesAfterTheHeartbeatAtLeastAndTwiceThatAtMost(t *testing.T) {
	const holds, every = 40, 15 * time.Second
	s := newStage(Config{Heartbeat: every})
	random := rand.New(rand.NewPCG(3, 3))
	held := make([]*hold, holds)
	wrote := make([]time.Time, holds)
	for i := range held {
		held[i], _ = s.open(-1, fmt.Sprint(i))
		wrote[i] = s.clock.at
	}
	s.rest()
	for _, h := range held {
		s.take(h, 1<<20)
	}
	for range 600 {
		for i := range held {
			if random.IntN(25) == 0 {
				s.publish("event", fmt.Sprint(i))
				wrote[i] = s.clock.at
			}
		}
		s.rest()
		s.pass(time.Second, time.Second)
		for i, h := range held {
			sent := s.take(h, 1<<20)
			if strings.Contains(sent, "event") {
				sent = sent[strings.Index(sent, "\n\n")+2:] // at the second's beginning
			}
			quiet := s.clock.at.Sub(wrote[i])
			if sent != "" && quiet < every-time.Second {
				t.Fatalf("%q after %v", sent, quiet)
			}
			if sent == "" && quiet > 2*every+time.Second {
				t.Fatalf("nothing for %v", quiet)
			}
			if sent != "" {
				wrote[i] = s.clock.at
			}
		}
	}
}

func TestHeartbeat_AHoldThatGetsEventsGetsNone(t *testing.T) {
	s := newStage(Config{Heartbeat: 15 * time.Second})
	h, _ := s.open(-1, "a")
	s.rest()
	s.take(h, 1<<20)
	for range 100 {
		s.publish("event", "a")
		s.rest()
		if _, sent := s.beats(h, 14*time.Second); len(sent) != 1 || !strings.HasSuffix(sent[0], "data: event\n\n") {
			t.Fatalf("it is sent %q, want the event alone", sent)
		}
	}
}

func TestHeartbeat_ZeroIsNone(t *testing.T) {
	s := newStage(Config{})
	h, _ := s.open(-1, "a")
	s.rest()
	s.take(h, 1<<20)
	if _, sent := s.beats(h, 10*time.Minute); sent != nil {
		t.Errorf("it is sent %q", sent)
	}
}

// A heartbeat would only make what waits longer.
func TestHeartbeat_AHoldForWhichSomethingWaitsGetsNone(t *testing.T) {
	s := newStage(Config{Heartbeat: time.Second, WriteStall: time.Hour})
	h, _ := s.open(100, "a")
	s.rest()
	s.publish(strings.Repeat("x", 500), "a")
	s.rest()
	before := s.loop.counts.outbox.Load()
	s.pass(time.Minute, time.Second)
	if now := s.loop.counts.outbox.Load(); now != before {
		t.Errorf("%d bytes wait, which were %d", now, before)
	}
	if h.outbox == nil || h.state != live {
		t.Error("nothing waits: this proves nothing")
	}
}

// It would say that the client has what is still on its way to it.
func TestHeartbeat_NoPositionGoesOutWhileAnEventIsOnItsWay(t *testing.T) {
	const holds = 10
	s := newStage(Config{Heartbeat: time.Second})
	s.loop.pace.slice = 2
	held := make([]*hold, holds)
	for i := range held {
		held[i], _ = s.open(-1, "a")
	}
	s.rest()
	id := s.publish("event", "a")
	s.loop.turn() // two of ten get it
	got := 0
	for _, h := range held {
		s.take(h, 1<<20)
		if h.cursor == id {
			got++
		}
		h.beats, h.wrote = positionEvery-1, false
	}
	if got == 0 || got == holds {
		t.Fatalf("%d of %d have the event: this proves nothing", got, holds)
	}
	s.clock.at = s.clock.at.Add(time.Second)
	s.loop.tick(s.clock.at)
	for i, h := range held {
		if sent := s.take(h, 1<<20); strings.Contains(sent, "id:") {
			t.Errorf("hold %d is sent %q, and has got events up to %d of %d", i, sent, h.cursor, id)
		}
	}
}

// The floors of channels that were forgotten share their places. A quiet
// client's position is renewed, or another channel's floor would be its gap.
func TestHeartbeat_ItsPositionMakesAQuietClientsReturnNoGap(t *testing.T) {
	const every = 15 * time.Second
	s := newStage(Config{Heartbeat: every, Journal: JournalLimits{Events: 1, Age: time.Minute}})
	h, _ := s.open(-1, "quiet")
	s.rest()
	var reader streamReader
	reader.feed([]byte(s.take(h, 1<<20)))
	opened := reader.lastID

	neighbour := s.neighbourOf("quiet")
	s.clock.at = s.clock.at.Add(time.Millisecond)
	s.publish("one", neighbour)
	floor := s.publish("two", neighbour) // and the first is lost
	s.rest()
	s.pass(6*every, time.Second)
	reader.feed([]byte(s.take(h, 1<<20)))
	renewed := reader.lastID
	if renewed < floor {
		t.Fatalf("its position is %d after six heartbeats, and the head was %d", renewed, floor)
	}
	s.loop.hangUp(h)
	s.loop.bury()
	s.forgetQuiet("quiet", neighbour)

	for _, from := range []struct {
		position int64
		gap      bool
	}{{opened, true}, {renewed, false}} {
		o := &opening{numbered: true, from: from.position, last: from.position}
		s.openFrom(-1, o, "quiet")
		if o.gap != from.gap {
			t.Errorf("coming back with %d, of %d and %d: a gap is %v, want %v", from.position, opened, renewed, o.gap, from.gap)
		}
	}
}

// neighbourOf is a channel whose floor, when it was forgotten, has the same
// place as that of another.
func (s *stage) neighbourOf(name string) string {
	slot := s.hub.journal.slot(name)
	for i := 0; ; i++ {
		if other := fmt.Sprint("neighbour ", i); s.hub.journal.slot(other) == slot {
			return other
		}
	}
}

// forgetQuiet has the journal forget these channels: their events grow old,
// then they have been quiet for long, and each event lets a bite of them go.
func (s *stage) forgetQuiet(names ...string) {
	for range 2 {
		s.clock.at = s.clock.at.Add(s.hub.journal.limits.Age + quietAge + time.Second)
		s.publish("somewhere", "elsewhere")
	}
	for range len(s.hub.journal.quiet)/bite + 1 {
		s.publish("somewhere", "elsewhere")
	}
	for _, name := range names {
		if s.hub.journal.rooms[name] != nil {
			panic(name + " is not forgotten")
		}
	}
}

func TestStall_AClientThatTakesNoByteForTheBoundIsReset(t *testing.T) {
	s := newStage(Config{WriteStall: 30 * time.Second})
	h, p := s.open(100, "a")
	s.rest()
	s.publish(strings.Repeat("x", 500), "a")
	s.rest()
	s.pass(29*time.Second, time.Second)
	if p.closed || h.outbox == nil {
		t.Fatalf("after 29s: closed is %v, something waits is %v", p.closed, h.outbox != nil)
	}
	s.pass(time.Second, time.Second)
	if !p.closed || !p.reset || s.ended(EndStalled) != 1 {
		t.Errorf("after 30s: closed is %v, reset is %v, %d ended stalled", p.closed, p.reset, s.ended(EndStalled))
	}
	if n := s.loop.counts.outbox.Load(); n != 0 {
		t.Errorf("%d bytes wait still", n)
	}
}

func TestStall_AClientThatTakesAByteNowAndThenIsNotEnded(t *testing.T) {
	takes := map[string]func(*stage, *hold){
		"and there is room": func(s *stage, h *hold) { s.take(h, 1) },
		// The kernel tells of room in large steps only.
		"and nothing is told of it": func(s *stage, h *hold) {
			p := s.loop.sockets.(*pipes).of[h]
			p.bytes = p.bytes[1:]
			p.room--
		},
	}
	for what, take := range takes {
		s := newStage(Config{WriteStall: 30 * time.Second})
		h, p := s.open(100, "a")
		s.rest()
		s.publish(strings.Repeat("x", 500), "a")
		s.rest()
		for range 60 {
			s.pass(28*time.Second, time.Second)
			take(s, h)
		}
		if p.closed {
			t.Errorf("it takes a byte every 28s, %s: it was ended", what)
		}
		s.pass(32*time.Second, time.Second)
		if !p.reset {
			t.Errorf("%s: it is not ended when it takes no more", what)
		}
	}
}

func TestStall_AClientForWhichNothingWaitsIsNotEnded(t *testing.T) {
	s := newStage(Config{WriteStall: time.Second})
	_, p := s.open(-1, "a")
	s.rest()
	s.pass(time.Hour, time.Second)
	if p.closed {
		t.Error("a quiet hold was ended")
	}
}

// frame100 is an event of which 100 bytes go to a stream without chunks.
func frame100() string { return strings.Repeat("x", 100-len("id: 0000000000000000\ndata: \n\n")) }

func TestSlow_TheBoundIsOfWhatIsBehindTheFirstThatWaits(t *testing.T) {
	const bound = 1000
	for what, first := range map[string]string{
		"a small event": frame100(),
		"a large event": strings.Repeat("y", MaxData),
	} {
		s := newStage(Config{OutboxBytes: bound})
		h, p := s.open(100, "a")
		s.rest()
		s.take(h, 1<<20)
		p.room = 10 // of the first
		s.publish(first, "a")
		for range bound / 100 {
			s.publish(frame100(), "a")
		}
		s.rest()
		if p.closed || h.outbox == nil || h.outbox.behind != bound {
			t.Fatalf("first %s: closed is %v with %d bytes behind it", what, p.closed, bound)
		}
		if n := s.loop.counts.outbox.Load(); n != int64(h.outbox.bytes) || n < bound {
			t.Errorf("first %s: %d bytes are counted, and %d wait", what, n, h.outbox.bytes)
		}
		s.publish("x", "a")
		s.rest()
		if !p.closed || !p.reset || s.ended(EndSlow) != 1 {
			t.Errorf("first %s: one more: closed is %v, reset is %v, %d ended slow", what, p.closed, p.reset, s.ended(EndSlow))
		}
		if n := s.loop.counts.outbox.Load(); n != 0 {
			t.Errorf("first %s: %d bytes wait still", what, n)
		}
	}
}

// What the client takes makes room, also where it takes the first only.
func TestSlow_AClientThatTakesTheFirstIsOneEventLessBehind(t *testing.T) {
	const bound = 1000
	s := newStage(Config{OutboxBytes: bound})
	h, p := s.open(200, "a")
	s.rest()
	s.take(h, 1<<20)
	p.room = 100
	for range 1 + 1 + bound/100 { // taken, the first, behind it
		s.publish(frame100(), "a")
	}
	s.rest()
	for range 50 {
		s.take(h, 100)
		s.publish(frame100(), "a")
		s.rest()
	}
	if p.closed {
		t.Fatal("it takes as much as is published, and was ended")
	}
	s.take(h, 99)
	s.publish(frame100(), "a")
	s.rest()
	if !p.closed {
		t.Errorf("it is not ended with %d bytes behind the first", h.outbox.behind)
	}
}

func TestSlow_HeadAndReplayDoNotCount(t *testing.T) {
	const events = 200
	s := newStage(Config{OutboxBytes: 1, Journal: JournalLimits{Events: 2 * events}})
	start := s.hub.head.Load()
	for range events {
		s.publish(frame100(), "a")
	}
	h, p := s.openFrom(50, &opening{head: []byte(strings.Repeat("h", 5000)), body: []byte(strings.Repeat(":", 5000)), numbered: true, from: start, last: start}, "a")
	s.rest()
	for range events { // its client has not yet taken the head
		s.publish(frame100(), "a")
	}
	s.rest()
	if p.closed {
		t.Fatal("it was ended before it took the head")
	}
	var reader streamReader
	got := 0
	for !p.closed && got < 2*events && len(p.bytes) > 0 {
		for _, e := range reader.feed([]byte(s.take(h, 50))) {
			if e.fires {
				got++
			}
		}
		s.rest()
	}
	if got != 2*events {
		t.Errorf("it has %d events of %d; closed is %v", got, 2*events, p.closed)
	}
}
