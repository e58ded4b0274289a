package holds

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"
)

// farewellChunked is the clean end of a stream that is asked to come back.
var farewellChunked = regexp.MustCompile(`\r\nd\r\nretry: ([1-4]\d\d\d)\n\n\r\n0\r\n\r\n$`)

var farewellPlain = regexp.MustCompile(`\n\nretry: ([1-4]\d\d\d)\n\n$`)

func TestDrain_EndsAreSpreadOverTwoSecondsAndTellWhenToComeBack(t *testing.T) {
	const holds = 200
	s := newStage(Config{})
	var all []*pipe
	for i := range holds {
		h, p := s.open(-1, "a")
		h.chunked = i%2 == 0
		all = append(all, p)
	}
	s.rest()
	s.hub.call(s.loop, s.loop.drain)
	s.rest()
	was, most := uint64(0), uint64(0)
	for passed := time.Duration(0); passed < 2*time.Second; {
		next := s.loop.nextTick(s.clock.at)
		step := next.Sub(s.clock.at)
		if next.IsZero() || step > 100*time.Millisecond {
			t.Fatalf("after %v the next tick is in %v", passed, step)
		}
		s.pass(step, step)
		passed += step
		now := s.ended(EndDraining)
		was, most = now, max(most, now-was)
		if now == holds {
			break
		}
	}
	if was != holds || most > holds/20 {
		t.Errorf("%d of %d have ended within two seconds, %d at once", was, holds, most)
	}
	retries := map[string]bool{}
	for i, p := range all {
		form := farewellPlain
		if i%2 == 0 {
			form = farewellChunked
		}
		m := form.FindSubmatch(p.bytes)
		if m == nil || !p.closed || p.reset {
			t.Fatalf("hold %d is sent %q; closed is %v, reset is %v", i, p.bytes, p.closed, p.reset)
		}
		retries[string(m[1])] = true
	}
	if len(retries) < holds/4 {
		t.Errorf("%d clients are to come back at %d times", holds, len(retries))
	}
	if n := s.loop.counts.held.Load(); n != -holds { // these were not counted in
		t.Errorf("%d connections are left", n+holds)
	}
}

func TestDrain_EndsAllHoldsClean(t *testing.T) {
	const holds = 100
	clients := map[*station][]*streamClient{} // they drain at the same time
	for _, start := range stations {
		s := start(t, Config{})
		for i := range holds {
			clients[s] = append(clients[s], s.open(Spec{Channels: []string{"a"}, Chunked: i%2 == 0}))
		}
		s.publish("before it", "a")
		s.untilLive(holds)
		s.Drain()
	}
	for s, clients := range clients {
		for _, c := range clients {
			c.wantPosition()
			c.wantEvent("before it")
			c.wantEnd()
			if c.stream.retry == "" {
				t.Error("a client is not told when to come back")
			}
		}
		s.untilEnded(holds, EndDraining)
		s.wantHolds(0)
	}
}

func TestDrain_AHoldOpenedMeanwhileGetsItsFirstBytesAndTheEnd(t *testing.T) {
	s := startStation(t, Config{})
	s.Drain()
	for _, chunked := range []bool{false, true} {
		position := s.Position()
		c := s.open(Spec{Channels: []string{"a"}, Chunked: chunked, Body: []byte("data: hello\n\n"), Position: position})
		sent, err := io.ReadAll(c.conn)
		if err != nil {
			t.Fatal(err)
		}
		first := fmt.Sprintf("data: hello\n\nid: %d\n\n", position)
		head, form := plainHead+first, farewellPlain
		if chunked {
			head, form = fmt.Sprintf("%s%x\r\n%s\r\n", chunkedHead, len(first), first), farewellChunked
		}
		if !strings.HasPrefix(string(sent), head) || !form.Match(sent) {
			t.Errorf("it is sent %q", sent)
		}
	}
	s.untilEnded(2, EndDraining)
}

// One that does not read cannot keep the loop from ending it.
func TestDrain_AClientThatDoesNotReadIsCutAfterWriteStall(t *testing.T) {
	s := newStage(Config{WriteStall: 10 * time.Second})
	h, p := s.open(50, "a")
	s.rest()
	s.publish(strings.Repeat("x", 200), "a")
	s.rest()
	s.hub.call(s.loop, s.loop.drain)
	s.rest()
	s.pass(9*time.Second, time.Second)
	if p.closed || h.state != ending || s.ended(EndDraining) != 1 {
		t.Fatalf("closed is %v, state %d", p.closed, h.state)
	}
	s.pass(2*time.Second, time.Second)
	if !p.closed || !p.reset || s.ended(EndStalled) != 0 {
		t.Errorf("closed is %v, reset is %v, %d ended stalled", p.closed, p.reset, s.ended(EndStalled))
	}
}

func TestMaxAge_EndsHoldsInItsLastQuarterAndNotAllAtOnce(t *testing.T) {
	const holds, age = 400, 16 * time.Hour
	s := newStage(Config{MaxAge: age})
	for range holds {
		s.open(-1, "a")
	}
	s.rest()
	s.pass(age*3/4-time.Minute, time.Minute)
	if n := s.ended(EndExpired); n != 0 {
		t.Fatalf("%d have ended before the last quarter", n)
	}
	was, most, times := uint64(0), uint64(0), 0
	for range int(age / 4 / time.Minute) {
		s.pass(time.Minute, time.Minute)
		if now := s.ended(EndExpired); now > was {
			times++
			was, most = now, max(most, now-was)
		}
	}
	s.pass(time.Minute, time.Minute)
	if was = s.ended(EndExpired); was != holds {
		t.Errorf("%d of %d have ended at the age", was, holds)
	}
	if times < 4 || most > holds/3 {
		t.Errorf("they ended at %d times, %d at once", times, most)
	}
}

func TestMaxAge_ZeroIsNone(t *testing.T) {
	s := newStage(Config{})
	_, p := s.open(-1, "a")
	s.rest()
	s.pass(1000*time.Hour, time.Hour)
	if p.closed {
		t.Error("it was ended")
	}
}
