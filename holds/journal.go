package holds

import (
	"hash/maphash"
	"sort"
	"time"
)

// room is a channel: its recent events, and who is in it.
type room struct {
	name string

	// guarded by the hub's mu
	ring    []*event // in id order, oldest first
	floor   int64    // nothing up to and with it can be replayed any more
	members int
	items   *sequence // nil: none was published
	revoked *revoked  // nil: its holds were not ended
	quiet   int64     // its turn among the quiet rooms, which have neither events nor members; 0: it is none

	local []local // by loop
}

// local is one loop's part of a room.
type local struct {
	count int     // members; guarded by the hub's mu: raised before the loop hears of a join, lowered after it has left
	holds []*hold // the loop's own
}

// after is the place in the ring of the first event after a position.
func (r *room) after(position int64) int {
	return sort.Search(len(r.ring), func(i int) bool { return r.ring[i].id > position })
}

// The journal is the events of all rooms, oldest first, in one budget of
// bytes; each is in the ring of every channel that it was published to.
//
// What a ring has lost is remembered as its floor: a client that comes back
// from before it is told of a gap. A room without events and members is kept
// for its floor alone, for quietAge and in bounded number; then the floor goes
// into one of floorSlots numbers by the hash of its name, where the highest
// stays. Another channel of the same hash may be told of a gap that there is
// not, never the other way round. Measured with a channel's client that comes
// back to a quiet channel: a gap that is none in 1.5% of cases after 1,000
// other channels were forgotten, 63% after 65,000; a position that a heartbeat
// has renewed since is above all that.
type journal struct {
	limits         JournalLimits
	bytes          int
	oldest, newest *event
	rooms          map[string]*room
	quiet          []quietRoom // in the order in which they became so
	turns          int64       // given to quiet rooms
	floors         []int64
	seed           maphash.Seed
}

type quietRoom struct {
	room  *room
	turn  int64 // where the room has another, it has been in use since
	since int64
}

// JournalLimits bound the events that can be replayed.
type JournalLimits struct {
	// Events is how many of each channel are kept. Default 256.
	Events int
	// Bytes bounds all of them together, what they take beside their data
	// included. Default 64 MiB.
	Bytes int64
	// Age is how long they are kept. Default 10m.
	Age time.Duration
}

const (
	floorSlots   = 1 << 16
	quietLimit   = 1 << 14
	quietAge     = 10 * time.Minute
	roomOverhead = 512
	bite         = 64 // evictions in one critical section
)

func newJournal(limits JournalLimits) journal {
	return journal{limits: limits, rooms: make(map[string]*room), seed: maphash.MakeSeed()}
}

// room gives a channel's room, made if need be.
func (h *hub) room(name string) *room {
	j := &h.journal
	r := j.rooms[name]
	if r == nil {
		r = &room{name: name, floor: h.floorOf(name), local: make([]local, len(h.loops))}
		j.rooms[name] = r
		j.bytes += roomOverhead
	}
	r.quiet = 0
	return r
}

// floorOf is the floor of a channel that has no room. h.mu is held.
func (h *hub) floorOf(name string) int64 {
	if j := &h.journal; j.floors != nil {
		return max(h.start, j.floors[j.slot(name)])
	}
	return h.start
}

func (j *journal) slot(name string) uint64 { return maphash.String(j.seed, name) % floorSlots }

// add puts an event that has its number and rooms behind all others.
func (j *journal) add(e *event) {
	e.journalled = len(e.rooms)
	j.bytes += e.bytes
	if e.prev = j.newest; e.prev != nil {
		e.prev.next = e
	} else {
		j.oldest = e
	}
	j.newest = e
	for _, r := range e.rooms {
		r.ring = append(r.ring, e)
		for len(r.ring) > j.limits.Events { // more than one, where the bound was lowered
			j.shift(r)
		}
	}
}

// charge counts what an event takes more than when it was added.
func (h *hub) charge(e *event, bytes int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e.journalled > 0 {
		e.bytes += bytes
		h.journal.bytes += bytes
	}
}

// shift takes the oldest event out of a ring.
func (j *journal) shift(r *room) {
	e := r.ring[0]
	r.ring[0] = nil
	r.ring = r.ring[1:]
	if len(r.ring) == 0 {
		r.ring = nil
	}
	r.floor = e.id
	if e.journalled--; e.journalled == 0 {
		j.unlink(e)
	}
}

// empty lets a channel's events go: nothing up to a position can be replayed.
func (j *journal) empty(r *room, position int64) {
	for len(r.ring) > 0 {
		j.shift(r)
	}
	r.floor = position
}

// unlink takes an event that no ring has any more out of the journal.
func (j *journal) unlink(e *event) {
	e.evicted.Store(true)
	j.bytes -= e.bytes
	if e.prev != nil {
		e.prev.next = e.next
	} else {
		j.oldest = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	} else {
		j.newest = e.prev
	}
	e.prev, e.next = nil, nil
}

// evict makes room for an event of so many bytes, and takes out what is too
// old, a bite at most. It reports whether more is to be done.
func (h *hub) evict(room int, now int64) (more bool) {
	j := &h.journal
	for range bite {
		e := j.oldest
		if e == nil || int64(j.bytes+room) <= j.limits.Bytes && now-e.at <= int64(j.limits.Age) {
			return h.forget(now, int64(j.bytes+room) > j.limits.Bytes)
		}
		for _, r := range e.rooms {
			// A ring is in id order, and what is oldest of all is oldest there.
			if len(r.ring) > 0 && r.ring[0] == e {
				j.shift(r)
				h.settle(r, now)
			}
		}
	}
	return true
}

// settle puts a room that has neither events nor members among the quiet ones.
func (h *hub) settle(r *room, now int64) {
	if len(r.ring) > 0 || r.members > 0 || r.quiet != 0 || r.items != nil && r.items.parked != nil {
		return
	}
	j := &h.journal
	j.turns++
	r.quiet = j.turns
	j.quiet = append(j.quiet, quietRoom{r, r.quiet, now})
}

// forget lets rooms go that have been quiet for long, that are too many, or
// whose bytes are needed, a bite at most.
func (h *hub) forget(now int64, full bool) (more bool) {
	j := &h.journal
	for range bite {
		if len(j.quiet) == 0 {
			return false
		}
		q := j.quiet[0]
		if q.room.quiet == q.turn {
			if !full && len(j.quiet) <= quietLimit && now-q.since < int64(quietAge) {
				return false
			}
			h.remove(q.room)
		}
		j.quiet[0] = quietRoom{}
		j.quiet = j.quiet[1:]
	}
	return len(j.quiet) > quietLimit
}

// remove lets a quiet room go, and keeps its floor.
func (h *hub) remove(r *room) {
	j := &h.journal
	delete(j.rooms, r.name)
	j.bytes -= roomOverhead
	if r.floor <= h.start {
		return
	}
	if j.floors == nil {
		j.floors = make([]int64, floorSlots)
	}
	slot := j.slot(r.name)
	j.floors[slot] = max(j.floors[slot], r.floor)
}
