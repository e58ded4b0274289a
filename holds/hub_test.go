package holds

import (
	"strconv"
	"testing"
	"time"
)

// However the clock was set: forward, back, or in the same moment.
func TestHub_PositionsOfAnotherRunAreKnownAsSuchWhateverTheClockDid(t *testing.T) {
	for _, step := range []time.Duration{-time.Hour, -time.Millisecond, 0, time.Millisecond, time.Hour} {
		clock := fakeClock{time.UnixMicro(1_760_000_000_000_000)}
		first := newHub(Config{}.withDefaults().Journal, 1, clock.now)
		testLoops(first, 1, Config{})
		var ids []int64
		for range 10 {
			p := text("x", "a")
			id, _ := first.publish(encode(&p), p.Channels)
			ids = append(ids, id)
		}
		clock.at = clock.at.Add(step)
		second := newHub(Config{}.withDefaults().Journal, 2, clock.now)
		testLoops(second, 1, Config{})
		for range 100 {
			p := text("x", "a")
			second.publish(encode(&p), p.Channels)
		}
		for _, id := range append(ids, first.start) {
			if second.known(id) {
				t.Errorf("clock set by %v: position %d of the first run is taken for one of the second", step, id)
			}
		}
	}
}

func TestHub_IdsGrowWhateverTheClockDoes(t *testing.T) {
	clock := fakeClock{time.UnixMicro(1_760_000_000_000_000)}
	h := newHub(Config{}.withDefaults().Journal, 42, clock.now)
	testLoops(h, 1, Config{})
	last := h.start
	for i := range 1000 {
		clock.at = clock.at.Add(time.Duration(i%7-3) * 700 * time.Microsecond)
		p := text("x", "a")
		id, _ := h.publish(encode(&p), p.Channels)
		if id <= last || id%idStep != 42 || len(strconv.FormatInt(id, 10)) != idDigits {
			t.Fatalf("id %d after %d", id, last)
		}
		if now := clock.at.UnixMicro(); id < now/idStep*idStep {
			t.Fatalf("id %d is behind the clock, %d", id, now)
		}
		last = id
	}
}
