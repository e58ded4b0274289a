package holds

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

var modelSeeds = flag.Int("seeds", 3000, "how many random histories the model is run through")

// published is what the oracle knows of an event.
type published struct {
	id       int64
	channels []string
}

// modelClient is a browser with an EventSource: it reads what its hold is
// written, keeps the last id, and comes back with it.
type modelClient struct {
	name     string
	channels []string
	hold     *hold
	loop     *loop
	pipe     *pipe
	reader   streamReader
	viewing  bool // its view runs
	position int64
	last     int64 // the id it comes back with; 0: none
	cursor   int64 // the oracle: all its events up to here have been seen, or a gap was told
	run      int   // the run that cursor and last are of
	opened   bool  // the head of the present hold was seen
}

// world is a hub, its loops, its clients, and the oracle.
type world struct {
	seed                                                                  uint64
	rand                                                                  *rand.Rand
	clock                                                                 fakeClock
	hub                                                                   *hub
	loops                                                                 []*loop
	run                                                                   int
	events                                                                []published // of this run
	clients                                                               []*modelClient
	shared                                                                bool  // a bus numbers the events
	next                                                                  int64 // the bus's next number
	lost                                                                  int64 // nothing up to here can be had from the bus
	items                                                                 bool  // some were published: the journal lets go of them too, a gap for who was there
	joins, deliveries, gaps, falseGaps, ends, overflows, restarts, losses int
}

var modelChannels = []string{"a", "b", "c", "d"}

func newWorld(seed uint64) *world {
	w := &world{seed: seed, rand: rand.New(rand.NewPCG(seed, 7))}
	w.clock.at = time.UnixMicro(1_760_000_000_000_000 + int64(w.rand.IntN(1000)))
	for i := range 6 {
		w.clients = append(w.clients, &modelClient{name: fmt.Sprint("client ", i)})
	}
	w.shared = w.rand.IntN(2) == 0
	w.start()
	return w
}

// start begins a run: another tag, another hub.
func (w *world) start() {
	w.run++
	limits := JournalLimits{Events: 1 + w.rand.IntN(8), Bytes: 1 << 20, Age: time.Hour}
	if w.rand.IntN(3) == 0 {
		limits.Bytes = int64(2000 + w.rand.IntN(4000))
	}
	w.hub = newHub(limits, int64((int(w.seed)+w.run*7)%1000), w.clock.now)
	w.loops = testLoops(w.hub, 1+w.rand.IntN(2), Config{Journal: limits, OutboxBytes: 100 + w.rand.IntN(2000)})
	for _, l := range w.loops {
		l.pace = pace{slice: 1 + w.rand.IntN(4), walks: 1 + w.rand.IntN(3), catch: 1 + w.rand.IntN(3), events: 2 + w.rand.IntN(8), bytes: 1 << 20}
	}
	w.events = nil
	if w.shared {
		w.hub.shared = true
		w.next, w.lost = w.hub.head.Load(), w.hub.head.Load()
		w.hub.entries = []int64{w.next}
	}
}

// number is the bus's for a further entry.
func (w *world) number() int64 {
	w.next += idStep * (1 + w.rand.Int64N(3))
	return w.next
}

// lose has the bus lose some of what was published, and be followed again from
// behind that: in some cases as another log.
func (w *world) loseBus() {
	if !w.shared || w.rand.IntN(4) > 0 {
		return
	}
	w.losses++
	for range w.rand.IntN(3) {
		w.events = append(w.events, published{w.number(), modelChannels[:1+w.rand.IntN(4)]})
	}
	if w.rand.IntN(2) == 0 {
		w.next += 1 + w.rand.Int64N(2*idStep) // another tag, mostly
	}
	w.lost = w.next
	w.hub.rebase(w.next, w.next)
}

func (w *world) failf(t *testing.T, format string, args ...any) {
	t.Helper()
	t.Fatalf("seed %d: "+format, append([]any{w.seed}, args...)...)
}

// step does one random thing.
func (w *world) step(t *testing.T) {
	c := w.clients[w.rand.IntN(len(w.clients))]
	switch n := w.rand.IntN(100); {
	case n < 22:
		w.publish()
	case n < 40:
		w.advance(c)
	case n < 65:
		w.loops[w.rand.IntN(len(w.loops))].turn()
	case n < 88:
		w.read(t, c, w.rand.IntN(300))
	case n < 91:
		w.disconnect(t, c)
	case n < 93:
		w.clock.at = w.clock.at.Add(time.Duration(w.rand.IntN(5000)) * time.Microsecond)
	case n < 95 && c.hold != nil && c.hold.state > joining:
		c.loop.lookAt(c.hold, true, c.loop.next == len(c.loop.taken) && len(c.loop.walks) == 0)
		c.loop.bury()
	case n < 96 && c.hold != nil && c.hold.state > joining:
		c.loop.end(c.hold, EndPublished)
		c.loop.bury()
	case n < 97:
		w.restart(t)
	case n < 98:
		w.loseBus()
	}
}

func (w *world) publish() {
	channels := slices.Clone(modelChannels)
	w.rand.Shuffle(len(channels), func(i, j int) { channels[i], channels[j] = channels[j], channels[i] })
	channels = channels[:1+w.rand.IntN(3)]
	p := text(fmt.Sprint("event ", len(w.events), []string{"", "\nof two lines", "\r\nand\rmore"}[w.rand.IntN(3)]), channels...)
	if !w.shared {
		id, _ := w.hub.publish(encode(&p), channels)
		w.events = append(w.events, published{id, channels})
		return
	}
	entry := w.number()
	w.hub.begin(entry, w.clock.at)
	if w.items = w.items || w.seed%4 == 0; w.items && w.rand.IntN(4) == 0 { // items have numbers of this node's own
		for range w.rand.IntN(3) {
			w.hub.publishItem(encodeItem(&Item{Channel: channels[0], Stream: &StreamForm{Action: ActionHint}}))
		}
	} else {
		w.hub.publish(encode(&p), channels)
		w.events = append(w.events, published{entry, channels})
	}
	w.hub.done(entry)
	if w.items && w.rand.IntN(8) == 0 { // as one that was late
		w.hub.publishItem(encodeItem(&Item{Channel: channels[0], Stream: &StreamForm{Action: ActionHint}}))
	}
}

// advance takes a client one step on the way to a hold.
func (w *world) advance(c *modelClient) {
	switch {
	case c.hold != nil:
	case !c.viewing:
		if c.channels == nil {
			c.channels = modelChannels[w.rand.IntN(3):]
			c.channels = c.channels[:1+w.rand.IntN(len(c.channels))]
		}
		c.viewing = true
		c.position = w.hub.shown(w.hub.head.Load())
	default:
		w.open(c)
	}
}

func (w *world) open(c *modelClient) {
	w.joins++
	c.viewing, c.opened = false, false
	c.reader = streamReader{lastID: c.last}
	c.loop = w.loops[w.rand.IntN(len(w.loops))]
	c.pipe = &pipe{room: 200 + w.rand.IntN(1000)}
	c.hold = &hold{kind: ModeStream, descriptor: -1}
	c.loop.sockets.(*pipes).of[c.hold] = c.pipe
	o := &opening{from: c.position, last: c.position}
	if c.last != 0 {
		o.from, o.last = c.last, c.last
	} else {
		c.cursor, c.run = c.position, w.run
	}
	w.hub.join(c.hold, c.loop, c.channels, o)
}

// read has a client read up to n bytes and judges what they say.
func (w *world) read(t *testing.T, c *modelClient, n int) {
	if c.hold == nil {
		return
	}
	n = min(n, len(c.pipe.bytes))
	for _, e := range c.reader.feed(c.pipe.bytes[:n]) {
		w.judge(t, c, e)
	}
	c.pipe.bytes = c.pipe.bytes[n:]
	if c.pipe.full && n > 0 && !c.pipe.closed {
		c.pipe.full = false
		c.loop.writable(c.hold)
		c.loop.bury()
	}
	if c.pipe.closed && len(c.pipe.bytes) == 0 {
		w.ends++
		c.hold = nil
	}
}

// judge is the oracle: every event once, in order, without holes, or a gap.
func (w *world) judge(t *testing.T, c *modelClient, e streamEvent) {
	switch {
	case e.name == "m0-gap":
		last, head := gapOf(e.data)
		if e.set {
			w.failf(t, "%s: the gap has an id of its own", c.name)
		}
		w.gaps++
		if c.run == w.run && last == c.cursor && last >= w.lost && !w.items && w.hasAll(c, last) {
			w.falseGaps++
		}
		c.cursor, c.run = head, w.run
	case e.fires:
		w.deliveries++
		if c.run != w.run {
			w.failf(t, "%s: event %d of another run, and no gap", c.name, e.id)
		}
		if next := w.nextFor(c, c.cursor); next != e.id {
			w.failf(t, "%s: got %d after %d, but %d was due", c.name, e.id, c.cursor, next)
		}
		c.cursor, c.last = e.id, e.id
	case e.set:
		if c.run != w.run {
			w.failf(t, "%s: position %d of another run, and no gap", c.name, e.id)
		}
		if next := w.nextFor(c, c.cursor); next != 0 && next <= e.id {
			w.failf(t, "%s: told position %d, but %d was not given", c.name, e.id, next)
		}
		if c.opened && e.id < c.cursor {
			w.failf(t, "%s: told position %d after %d", c.name, e.id, c.cursor)
		}
		c.opened = true
		c.cursor, c.last = e.id, e.id
	}
}

// nextFor is the first event of a client's channels after a position; 0: none.
func (w *world) nextFor(c *modelClient, after int64) int64 {
	for _, e := range w.events {
		if e.id > after && slices.ContainsFunc(e.channels, func(name string) bool { return slices.Contains(c.channels, name) }) {
			return e.id
		}
	}
	return 0
}

// hasAll reports whether the journal has all of a client's events after a
// position, now: whoever was told of a gap before may have been told rightly.
func (w *world) hasAll(c *modelClient, after int64) bool {
	for _, e := range w.events {
		for _, name := range e.channels {
			if e.id <= after || !slices.Contains(c.channels, name) {
				continue
			}
			r := w.hub.journal.rooms[name]
			if r == nil || len(r.ring) == 0 || r.ring[0].id > e.id {
				return false
			}
		}
	}
	return true
}

func (w *world) disconnect(t *testing.T, c *modelClient) {
	if c.hold == nil {
		c.viewing = false
		return
	}
	if w.rand.IntN(2) == 0 {
		w.read(t, c, w.rand.IntN(2000)) // at any prefix
	}
	if c.hold == nil {
		return
	}
	if w.rand.IntN(2) == 0 {
		c.pipe.fail = errors.New("reset by the client")
	}
	if c.hold.state != joining && c.hold.state != closed {
		c.loop.hangUp(c.hold)
		c.loop.bury()
	} else if c.hold.state == joining {
		c.pipe.fail = errors.New("reset by the client") // seen at the first write
	}
	c.hold = nil
}

// restart ends the process: what clients have not read is lost, and the clock
// may be another.
func (w *world) restart(t *testing.T) {
	if w.rand.IntN(10) > 0 {
		return
	}
	w.restarts++
	for _, c := range w.clients {
		if c.hold != nil {
			w.read(t, c, w.rand.IntN(400))
		}
		c.hold, c.viewing = nil, false
	}
	w.clock.at = w.clock.at.Add(time.Duration(w.rand.IntN(4_000_000)-2_000_000) * time.Microsecond)
	w.start()
}

// settle lets everything come to rest, and asks for what is still owed.
func (w *world) settle(t *testing.T) {
	for busy := true; busy; {
		busy = false
		for _, l := range w.loops {
			for l.turn() || !l.sleep() {
				busy = true
			}
		}
		for _, c := range w.clients {
			if c.hold != nil && (len(c.pipe.bytes) > 0 || c.pipe.closed) {
				busy = true
				w.read(t, c, 1<<20)
			}
		}
	}
	for _, c := range w.clients {
		if c.hold == nil {
			continue
		}
		if c.hold.state != live {
			w.failf(t, "%s: at rest its hold is in state %d", c.name, c.hold.state)
		}
		if next := w.nextFor(c, c.cursor); next != 0 {
			w.failf(t, "%s: at rest it has not got %d", c.name, next)
		}
	}
	w.checkCounts(t)
}

// checkCounts compares what the hub counts with what the loops have.
func (w *world) checkCounts(t *testing.T) {
	bytes := 0
	for e := w.hub.journal.oldest; e != nil; e = e.next {
		bytes += e.bytes
	}
	for _, r := range w.hub.journal.rooms {
		if r.members == 0 {
			bytes += roomOverhead
		}
	}
	if want := bytes; w.hub.journal.bytes != want {
		w.failf(t, "the journal counts %d bytes, but has %d", w.hub.journal.bytes, want)
	}
	for name, r := range w.hub.journal.rooms {
		members := 0
		for _, l := range w.loops {
			here := &r.local[l.index]
			members += here.count
			if here.count != len(here.holds) {
				w.failf(t, "channel %s: the hub counts %d members on loop %d, which has %d", name, here.count, l.index, len(here.holds))
			}
		}
		if members != r.members {
			w.failf(t, "channel %s: %d members, but %d on the loops", name, r.members, members)
		}
	}
	for _, l := range w.loops {
		if n := l.counts.outbox.Load(); n != 0 {
			w.failf(t, "at rest %d bytes wait in outboxes", n)
		}
	}
}

// Whatever the order of publishes, joins, turns, reads, ends, reconnects,
// overflows, evictions and restarts: every client has every event of its
// channels once, in order, or was told of a gap.
func TestHub_EveryHistoryGivesEveryEventOnceInOrderOrAGap(t *testing.T) {
	t.Parallel()
	var all world
	for seed := range uint64(*modelSeeds) {
		w := newWorld(seed)
		for range 300 {
			w.step(t)
			for _, l := range w.loops {
				if l.overflow {
					all.overflows++
				}
			}
		}
		w.settle(t)
		all.joins += w.joins
		all.deliveries += w.deliveries
		all.gaps += w.gaps
		all.falseGaps += w.falseGaps
		all.ends += w.ends
		all.restarts += w.restarts
		all.losses += w.losses
	}
	t.Logf("%d seeds: %d joins, %d deliveries, %d gaps told, %d holds ended, %d turns with an inbox that had overflowed, %d restarts",
		*modelSeeds, all.joins, all.deliveries, all.gaps, all.ends, all.overflows, all.restarts)
	if all.falseGaps > 0 {
		t.Errorf("%d gaps were told although the journal had everything", all.falseGaps)
	}
	for what, n := range map[string]int{"join": all.joins, "delivery": all.deliveries, "gap": all.gaps, "end": all.ends, "overflow": all.overflows, "restart": all.restarts, "loss on the bus": all.losses} {
		if n == 0 {
			t.Errorf("not one %s in all histories: they prove little", what)
		}
	}
}
