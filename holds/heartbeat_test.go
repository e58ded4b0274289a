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
		o := &opening{from: from.position, last: from.position}
		s.openFrom(-1, o, "quiet")
		if o.gap != from.gap {
			t.Errorf("coming back with %d, of %d and %d: a gap is %v, want %v", from.position, opened, renewed, o.gap, from.gap)
		}
	}
}
