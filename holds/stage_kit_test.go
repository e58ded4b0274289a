package holds

import (
	"fmt"
	"time"
)

// stage is a hub and one loop over pipes, whose turns the test takes, and a
// clock that stands until the test moves it.
type stage struct {
	clock fakeClock
	hub   *hub
	loop  *loop
}

func newStage(cfg Config) *stage {
	s := &stage{clock: fakeClock{time.UnixMicro(1_760_000_000_000_000)}}
	s.hub = newHub(cfg.withDefaults().Journal, 7, s.clock.now)
	s.loop = testLoops(s.hub, 1, cfg)[0]
	return s
}

// open has a hold join, fed from the head, whose client has room for so many
// bytes until it reads; below 0: any number.
func (s *stage) open(room int, channels ...string) (*hold, *pipe) {
	return s.openFrom(room, &opening{from: s.hub.head.Load(), last: s.hub.head.Load()}, channels...)
}

func (s *stage) openFrom(room int, o *opening, channels ...string) (*hold, *pipe) {
	h, p := &hold{kind: ModeStream, descriptor: -1}, &pipe{room: room}
	s.loop.sockets.(*pipes).of[h] = p
	s.hub.join(h, s.loop, channels, o)
	return h, p
}

// publish publishes text and gives its id.
func (s *stage) publish(data string, channels ...string) int64 {
	p := text(data, channels...)
	id, _ := s.hub.publish(encode(&p), channels)
	return id
}

// rest takes turns until there is nothing to do.
func (s *stage) rest() {
	for s.loop.turn() || !s.loop.sleep() {
	}
}

// pass lets time pass, in steps at whose ends the loop ticks.
func (s *stage) pass(d, step time.Duration) {
	for ; d > 0; d -= step {
		s.clock.at = s.clock.at.Add(step)
		s.loop.tick(s.clock.at)
		s.rest()
	}
}

// take has a client take up to n bytes of what it was sent, and tells the
// loop of the room.
func (s *stage) take(h *hold, n int) string {
	p := s.loop.sockets.(*pipes).of[h]
	n = min(n, len(p.bytes))
	taken := string(p.bytes[:n])
	p.bytes = p.bytes[n:]
	if p.full && n > 0 && !p.closed {
		p.full = false
		s.loop.writable(h)
		s.loop.bury()
	}
	return taken
}

// ended is how many holds ended for a reason.
func (s *stage) ended(reason End) uint64 { return s.loop.counts.ended[ModeStream][reason].Load() }

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
