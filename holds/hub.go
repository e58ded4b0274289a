package holds

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// hub orders everything: one lock under which an event gets its number, goes
// into the journal, and is handed to every loop that has a member of one of
// its channels. So each loop's inbox is in the order of the numbers, and one
// number per hold, its cursor, says what it has got of all its channels. With
// a lock for each channel event 101 could overtake 100; a client would come
// back after 101, and 100 would be lost in silence.
//
// Nothing under the lock waits, does I/O, or takes another lock.
type hub struct {
	// fixed
	loops  []*loop
	now    func() time.Time
	epoch  time.Time
	shared bool // a bus numbers the events (node.go)

	tag  atomic.Int64 // the last three digits of all ids; written under mu
	head atomic.Int64 // the last id given; written under mu

	// of a shared hub; written under mu
	begins atomic.Uint64 // how often the bus was reached
	target atomic.Int64  // its head then

	mu      sync.Mutex
	start   int64     // nothing was published before; the first position of this run
	entry   int64     // the number of the bus's entry that is under way; 0: none
	entryAt time.Time // when the bus got it
	entries []int64   // the last numbers of entries, and start
	journal journal
	late    []lateRoom  // with items that wait for others, the first to be looked at first
	parked  int         // bytes of them
	waits   atomic.Bool // there are some; written under mu
}

const (
	idStep   = 1000
	earliest = 1e15 // ids have 16 digits, even where a clock begins in 1970
)

// newHub makes a hub whose ids end with tag, 0 to 999.
func newHub(limits JournalLimits, tag int64, now func() time.Time) *hub {
	h := &hub{now: now, epoch: now(), journal: newJournal(limits)}
	h.tag.Store(tag)
	h.start = h.stamp(h.epoch)
	h.head.Store(h.start)
	return h
}

// stamp is the id that a clock's time gives.
func (h *hub) stamp(t time.Time) int64 {
	return max(t.UnixMicro(), earliest)/idStep*idStep + h.tag.Load()
}

// nextID numbers an event; 0: there is no number for it. h.mu is held.
//
// On a bus an event has the number of its entry, which is the same on every
// node. An item has one of the 999 between its entry's and the one before:
// it may wait here for another that every node has, so its place is this node's
// own, and so is its number, which no client ever sees.
func (h *hub) nextID(e *event, now time.Time) int64 {
	head := h.head.Load()
	switch {
	case !h.shared:
		return max(head+idStep, h.stamp(now))
	case !e.isItem():
		return h.entry
	case h.entry > 0 && head+1 < h.entry, h.entry == 0 && head+1 < h.shown(head)+idStep:
		return head + 1
	}
	return 0
}

// shown is what a client is told of a position: the last number up to there
// that means the same on every node.
func (h *hub) shown(position int64) int64 {
	if h.head.Load() == 0 { // the bus was never reached: what is told is what a client said
		return position
	}
	return shown(position, h.tag.Load())
}

func shown(position, tag int64) int64 { return position - (position-tag)%idStep }

// clock is when what is published now was published.
func (h *hub) clock() time.Time {
	if h.entry > 0 {
		return h.entryAt
	}
	return h.now()
}

// known reports whether a position is one of this run's.
//
// On a bus a position is the number of an entry, or start. One between two
// entries is of one that the bus has lost, while nobody followed it.
func (h *hub) known(position int64) bool {
	if h.shared {
		_, found := slices.BinarySearch(h.entries, position)
		return found
	}
	return position%idStep == h.tag.Load() && position >= h.start && position <= h.head.Load()
}

// publish numbers an event, puts it into the journal and hands it to the
// loops. It waits for nobody. reached is how many members its channels have
// here; a hold in two of them counts twice.
func (h *hub) publish(e *event, channels []string) (id int64, reached int) {
	now := h.clock()
	h.makeRoom(e, now)
	h.mu.Lock()
	e.rooms = e.first[:0]
	for _, name := range channels {
		e.rooms = append(e.rooms, h.room(name))
	}
	reached = h.enter(e, now)
	h.mu.Unlock()
	h.wake()
	return e.id, reached
}

// makeRoom has the journal let go what an event needs, and what is too old, in
// small bites.
func (h *hub) makeRoom(e *event, now time.Time) {
	for more := true; more; {
		h.mu.Lock()
		more = h.evict(e.bytes, int64(now.Sub(h.epoch)))
		h.mu.Unlock()
	}
}

// enter numbers an event that has its rooms, journals it and hands it to the
// loops. h.mu is held.
func (h *hub) enter(e *event, now time.Time) (reached int) {
	id := h.nextID(e, now)
	if id == 0 { // an item: those who miss it see that by the next one, and ask the app
		for _, r := range e.rooms {
			h.journal.empty(r, h.head.Load())
		}
		return 0
	}
	e.setID(id)
	e.at = int64(now.Sub(h.epoch))
	h.journal.add(e)
	h.head.Store(id)
	for i, l := range h.loops {
		members := 0
		for _, r := range e.rooms {
			members += r.local[i].count
		}
		if members > 0 {
			reached += members
			l.push(item{event: e})
		}
	}
	return reached
}

// wake wakes the loops that have something in their inbox and sleep.
func (h *hub) wake() {
	for _, l := range h.loops {
		if l.nudge.Load() && l.nudge.Swap(false) {
			l.sockets.wake()
		}
	}
}

// join gives a hold its seats and tells its loop. From position on it gets
// every event of its channels: what the journal has, then what comes. Where the
// journal has not all of them it gets none of them, but is told of a gap, and
// is fed from the head. Joining and the look at the journal are one step.
func (h *hub) join(hd *hold, l *loop, channels []string, o *opening) {
	h.mu.Lock()
	if o.away == h.begins.Load()+1 && o.from > h.head.Load() {
		hd.claim = o.from
	}
	o.gap = hd.claim == 0 && !h.known(o.from)
	for _, name := range channels {
		s := h.sit(hd, l, name)
		o.gap = o.gap || o.from < s.room.floor
		if hd.grip() != nil {
			s.from = o.from
		}
	}
	switch hd.cursor = o.from; {
	case hd.grip() != nil:
		o.gap = h.seatItems(hd, o.from, o.trust)
	case o.gap:
		hd.cursor = h.head.Load()
	}
	o.revoked = hd.revokedSince(o.asked)
	l.counts.open[hd.kind].Add(1)
	l.push(item{hold: hd, opening: o})
	h.mu.Unlock()
	h.wake()
}

// sit gives a hold a seat in a channel's room. h.mu is held.
func (h *hub) sit(hd *hold, l *loop, name string) *seat {
	r := h.room(name)
	h.count(r, l, 1)
	return hd.sit(r)
}

// subscribe gives a hold that has joined before seats in more channels, each
// of which it is not in, from a position on. missed is what they had since then
// and the hold's cursor has passed; what comes after its cursor is for fetch.
// gap: not all of that is there any more; then none of it is given, and the
// seats are from the head.
func (h *hub) subscribe(hd *hold, l *loop, names []string, position int64) (missed []*event, gap bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	own := hd.seats()
	gap = !h.known(position)
	for _, name := range names {
		s := h.sit(hd, l, name)
		s.from = position
		gap = gap || position < s.room.floor
	}
	for i := own; i < hd.seats(); i++ {
		s := hd.seatAt(i)
		if gap {
			s.from = h.head.Load()
			continue
		}
		for _, e := range s.room.ring[s.room.after(position):] {
			if e.id <= hd.cursor && !hd.has(e, own) && !slices.Contains(missed, e) {
				missed = append(missed, e)
			}
		}
	}
	slices.SortFunc(missed, func(a, b *event) int { return cmp.Compare(a.id, b.id) })
	return missed, gap
}

// leaveRoom lowers the count of a room that a hold has left alone.
func (h *hub) leaveRoom(l *loop, r *room) {
	now := int64(h.now().Sub(h.epoch))
	h.mu.Lock()
	defer h.mu.Unlock()
	h.count(r, l, -1)
	h.settle(r, now)
}

// count counts a member of a loop's in or out. While a room has members it is
// theirs, and no part of the journal. h.mu is held.
func (h *hub) count(r *room, l *loop, n int) {
	if r.members == 0 {
		h.journal.bytes -= roomOverhead
	}
	r.local[l.index].count += n
	if r.members += n; r.members == 0 {
		h.journal.bytes += roomOverhead
	}
}

// leave lowers the counts of holds that their loop has taken out of its rooms.
func (h *hub) leave(l *loop, left []*hold) {
	now := int64(h.now().Sub(h.epoch))
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, hd := range left {
		for i := range hd.seats() {
			r := hd.seatAt(i).room
			h.count(r, l, -1)
			h.settle(r, now)
		}
		h.forget(now, false) // also where nothing is published
	}
}

// call has a loop run f between two events.
func (h *hub) call(l *loop, f func()) {
	h.mu.Lock()
	l.push(item{call: f})
	h.mu.Unlock()
	h.wake()
}

// The bounds of one fetch.
const (
	fetchEvents = 32
	fetchBytes  = 64 << 10
)

// fetch gives the next events of a hold that is catching up, oldest first. It
// says lost where the journal has let some of them go since, and live where
// there are no more: then the hold's cursor is the head, and from here on its
// loop's inbox has all that comes.
func (h *hub) fetch(hd *hold, into []*event) (events []*event, lost, live bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := hd.seats()
	var places [MaxChannels]int
	for i := range n {
		s := hd.seatAt(i)
		if hd.start(s) < s.room.floor {
			return into, true, false
		}
		places[i] = s.room.after(hd.start(s))
	}
	for bytes := 0; len(into) < fetchEvents && bytes < fetchBytes; {
		var next *event
		for i := range n {
			r := hd.seatAt(i).room
			if places[i] < len(r.ring) && (next == nil || r.ring[places[i]].id < next.id) {
				next = r.ring[places[i]]
			}
		}
		if next == nil {
			break
		}
		for i := range n {
			r := hd.seatAt(i).room
			if places[i] < len(r.ring) && r.ring[places[i]] == next {
				places[i]++
			}
		}
		into = append(into, next)
		bytes += next.weight()
	}
	if len(into) == 0 {
		hd.cursor = h.head.Load()
		return into, false, true
	}
	return into, false, false
}
