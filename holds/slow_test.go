package holds

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

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
	h, p := s.openFrom(50, &opening{head: []byte(strings.Repeat("h", 5000)), body: []byte(strings.Repeat(":", 5000)), from: start, last: start}, "a")
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

// One that never reads is ended, and the others of its channel notice nothing.
func TestHolds_AClientThatNeverReadsIsEndedAndAThousandOthersDoNotNotice(t *testing.T) {
	const others, events = 1000, 128
	const size, window, outbox = 1 << 10, 8, 16 << 10
	needDescriptors(t, 2*others+200)
	s := startStation(t, Config{OutboxBytes: outbox, WriteStall: deadline})
	never := s.open(Spec{Channels: []string{"a"}}, tight)

	var got [events]atomic.Int64 // how many have each event
	var reading sync.WaitGroup
	failed := make(chan string, others)
	for range others {
		c, err := s.visit(Spec{Channels: []string{"a"}})
		if err != nil {
			t.Fatal(err)
		}
		reading.Go(func() {
			defer c.conn.Close()
			if err := c.count(got[:]); err != nil {
				failed <- err.Error()
			}
		})
	}
	s.untilLive(others + 1)
	for i := range events {
		s.publish(fmt.Sprintf("%04d %s", i, strings.Repeat("x", size)), "a")
		s.until("the others have what was published", func() bool {
			return i < window || got[i-window].Load() == others || len(failed) > 0
		})
	}
	reading.Wait()
	for range min(len(failed), 5) {
		t.Error("one that reads:", <-failed)
	}
	s.untilEnded(1, EndSlow)
	never.wantReset()
	t.Logf("%d others, %d events", others, events)
}

// count reads events that begin with their numbers, and counts each.
func (c *streamClient) count(got []atomic.Int64) error {
	for i := 0; i < len(got); {
		e, err := c.block()
		if err != nil {
			return err
		}
		if !e.fires {
			continue
		}
		if !strings.HasPrefix(e.data, fmt.Sprintf("%04d ", i)) {
			return fmt.Errorf("%.20q where %d was due", e.data, i)
		}
		got[i].Add(1)
		i++
	}
	return nil
}

// What waits for one that never reads is bounded by the bound and one event,
// however much is published.
func TestHolds_WhatWaitsForAClientThatNeverReadsIsBounded(t *testing.T) {
	const outbox, large = 16 << 10, 1 << 20
	s := startStation(t, Config{OutboxBytes: outbox, WriteStall: deadline})
	c := s.open(Spec{Channels: []string{"a"}}, tight)
	s.untilLive(1)
	s.publish(strings.Repeat("x", large), "a") // alone larger than the kernel takes
	most := int64(0)
	for i := 0; s.Snapshot().Ended[ModeStream]["slow"] == 0; i++ {
		if i == 10*outbox/500 {
			t.Fatalf("%d bytes wait, and it is not ended", s.Snapshot().OutboxBytes)
		}
		s.publish(strings.Repeat("y", 500), "a")
		s.handled()
		most = max(most, s.Snapshot().OutboxBytes)
	}
	if bound := int64(outbox + large + 1000); most > bound || most < outbox/2 {
		t.Errorf("up to %d bytes waited; the bound with the one large event is %d", most, bound)
	}
	s.until("nothing waits", func() bool { return s.Snapshot().OutboxBytes == 0 })
	c.wantReset()
}
