package holds

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// sequence is what the hub knows of a channel's items, whose publisher gives
// them ids of its own and says which came before. It is guarded by the hub's mu.
type sequence struct {
	known  bool // last is the id of the channel's last item
	last   string
	parked []*event // they wait for others, the first to come first
}

const (
	parkedTime   = 5 * time.Second // that an item waits for the one before it
	parkedItems  = 100             // of one channel
	parkedBytes  = 16 << 20        // of all
	parkedRooms  = 1 << 16         // each once for every item of the last five seconds
	repeatedTime = time.Minute     // in which an id stands for the same item
	repeatedLook = 256             // of the channel's last events
)

// lateRoom is a channel with items that wait, to be looked at then.
type lateRoom struct {
	room  *room
	until int64
}

// publishItem is publish for an item. One that is published twice is taken
// once. One whose predecessor has not come waits for it, but not for long:
// then those who miss something ask the app.
func (h *hub) publishItem(e *event) (reached int) {
	now := h.clock()
	h.makeRoom(e, now)
	h.mu.Lock()
	r := h.room(e.item.Channel)
	e.rooms = append(e.first[:0], r)
	if r.items == nil {
		r.items = &sequence{}
	}
	switch s := r.items; {
	case !e.item.closes() && s.repeated(r, e.item, now.Add(-repeatedTime).Sub(h.epoch)):
		h.settle(r, int64(now.Sub(h.epoch))) // it may have been made for this one
	case s.early(r, e.item) && h.park(e, now):
	default:
		reached = h.enterItem(e, now) + h.follow(r, now)
	}
	h.mu.Unlock()
	h.wake()
	return reached
}

// closes reports whether an item ends holds: such items may share one id.
func (i *Item) closes() bool {
	return i.Stream != nil && i.Stream.Action == ActionClose || i.Socket != nil && i.Socket.Action == ActionClose
}

// repeated reports whether an item of that id was published since, and behind
// the last one that ended holds: what it ended had the ones before it, and
// whoever came after that has not.
func (s *sequence) repeated(r *room, i *Item, since time.Duration) bool {
	if i.ID == nil {
		return false
	}
	same := func(e *event) bool { return e.item != nil && e.item.ID != nil && *e.item.ID == *i.ID }
	for _, e := range s.parked {
		if same(e) {
			return true
		}
	}
	for n := len(r.ring) - 1; n >= max(0, len(r.ring)-repeatedLook) && r.ring[n].at >= int64(since); n-- {
		switch e := r.ring[n]; {
		case same(e):
			return true
		case e.item != nil && e.item.closes():
			return false
		}
	}
	return false
}

// early reports whether the item before this one has not come yet.
func (s *sequence) early(r *room, i *Item) bool {
	if !s.known || i.PrevID == nil || i.NoSeq || *i.PrevID == s.last {
		return false
	}
	for n := len(r.ring) - 1; n >= max(0, len(r.ring)-repeatedLook); n-- {
		if e := r.ring[n]; e.isItem() && e.item.ID != nil && *e.item.ID == *i.PrevID {
			return false // it came, and another behind it that was late itself
		}
	}
	return true
}

// park has an item wait; false: too much waits already. h.mu is held.
func (h *hub) park(e *event, now time.Time) bool {
	s := e.rooms[0].items
	if len(s.parked) == parkedItems || h.parked+e.bytes > parkedBytes || len(h.late) == parkedRooms {
		return false
	}
	e.at = int64(now.Add(parkedTime).Sub(h.epoch)) // until it gets its number
	s.parked = append(s.parked, e)
	h.parked += e.bytes
	h.late = append(h.late, lateRoom{e.rooms[0], e.at})
	h.waits.Store(true)
	h.loops[0].push(item{call: func() {}}) // it has something to tick for
	return true
}

// enterItem is enter for an item. h.mu is held.
func (h *hub) enterItem(e *event, now time.Time) (reached int) {
	s := e.rooms[0].items
	if s.known = e.item.ID != nil; s.known {
		s.last = *e.item.ID
	}
	return h.enter(e, now)
}

// follow enters the items that waited for the channel's last, each in its
// turn: only what has just come frees others. h.mu is held.
func (h *hub) follow(r *room, now time.Time) (reached int) {
	s := r.items
	for i := 0; i < len(s.parked); i++ {
		if e := s.parked[i]; !s.known || *e.item.PrevID == s.last {
			h.unpark(r, i)
			reached += h.enterItem(e, now)
			i = -1 // again from the first
		}
	}
	return reached
}

// unpark takes the item at a place out of those that wait. h.mu is held.
func (h *hub) unpark(r *room, i int) {
	s := r.items
	h.parked -= s.parked[i].bytes
	s.parked = append(s.parked[:i], s.parked[i+1:]...)
	if len(s.parked) == 0 {
		s.parked = nil
	}
}

// releaseLate enters the items that have waited for too long.
func (h *hub) releaseLate(now time.Time) {
	at := int64(now.Sub(h.epoch))
	h.mu.Lock()
	for len(h.late) > 0 && h.late[0].until <= at {
		r := h.late[0].room
		h.late[0] = lateRoom{}
		h.late = h.late[1:]
		for s := r.items; len(s.parked) > 0 && s.parked[0].at <= at; {
			i := s.forerunner(0)
			e := s.parked[i]
			h.unpark(r, i)
			h.enterItem(e, now)
			h.follow(r, now)
		}
	}
	h.waits.Store(len(h.late) > 0)
	h.mu.Unlock()
	h.wake()
}

// forerunner is the place of the first of those that a parked item waits for,
// one after the other, and that are parked too: its own, where there is none.
func (s *sequence) forerunner(at int) int {
	for range s.parked {
		before := slices.IndexFunc(s.parked, func(e *event) bool { return e.item.ID != nil && *e.item.ID == *s.parked[at].item.PrevID })
		if before < 0 {
			break
		}
		at = before
	}
	return at
}

// place is from where a hold is fed of a channel of which it has all items up
// to the one with the id prev. Where nothing is known of the channel's items
// it is position, the one at which the app was asked; false: it misses something
// that is not there any more. h.mu is held.
func (h *hub) place(r *room, prev string, position int64) (from int64, found bool) {
	if r.items == nil {
		return position, position >= r.floor
	}
	last := true // no item of the ring comes after the one that is looked at
	for n := len(r.ring) - 1; n >= 0; n-- {
		e := r.ring[n]
		switch {
		case e.item == nil:
			continue
		case e.item.PrevID != nil && *e.item.PrevID == prev:
			return e.id - 1, true
		case last && e.item.ID != nil && *e.item.ID == prev:
			return e.id, true
		}
		last = false
	}
	switch {
	case last && r.items.known && r.items.last == prev: // it is not in the ring any more
		return h.head.Load(), true
	case last && !r.items.known:
		return position, position >= r.floor
	}
	return max(position, r.floor), false
}

// seatItems says of each seat of a GRIP hold from where it is fed. missing: of
// some channel it misses something. trust: the app was asked for that just now,
// at position, and what it said is all there was up to there. A position below 0
// is each seat's own start. h.mu is held.
func (h *hub) seatItems(hd *hold, position int64, trust bool) (missing bool) {
	hd.cursor = h.head.Load()
	for i := range hd.seats() {
		s := hd.seatAt(i)
		at := position
		if at < 0 {
			at = s.from
		}
		s.from = max(s.from, s.room.floor) // without a prev-id nobody can tell what is missing
		if c := hd.grip().channel(s.room.name); c != nil && c.PrevID != nil {
			from, found := h.place(s.room, *c.PrevID, at)
			s.from = from
			missing = missing || !found && !(trust && at >= s.room.floor)
		}
		hd.cursor = min(hd.cursor, s.from)
	}
	return missing
}

// lostUncounted reports whether the journal has let go what a GRIP hold was to be
// fed of a channel without prev-ids: a second look at the journal cannot tell.
func (h *hub) lostUncounted(hd *hold) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range hd.seats() {
		s := hd.seatAt(i)
		if c := hd.grip().channel(s.room.name); (c == nil || c.PrevID == nil) && hd.start(s) < s.room.floor {
			return true
		}
	}
	return false
}

// reseat gives a GRIP hold seats in further channels and says anew from where
// it is fed of all that it is in.
func (h *hub) reseat(hd *hold, l *loop, names []string, position int64, trust bool) (missing bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range hd.seats() { // of what has no numbers of the app's it has got all up to here
		s := hd.seatAt(i)
		s.from = hd.start(s)
	}
	for _, name := range names {
		h.sit(hd, l, name).from = position
	}
	return h.seatItems(hd, position, trust)
}

// Misses reports whether the journal has not all that follows an instruction's
// prev-ids, of an answer whose request was sent at a position.
func (h *Holds) Misses(in *Grip, position int64) bool {
	h.hub.mu.Lock()
	defer h.hub.mu.Unlock()
	for _, c := range in.Channels {
		switch r := h.hub.journal.rooms[c.Name]; {
		case c.PrevID == nil:
		case r == nil && position < h.hub.floorOf(c.Name):
			return true
		case r != nil:
			if _, found := h.hub.place(r, *c.PrevID, position); !found {
				return true
			}
		}
	}
	return false
}

// LastFields are the fields that tell the app, of each channel of an
// instruction, the last item that its answer had.
func (in *Grip) LastFields() []byte { return appendLast(nil, in.Channels) }

func appendLast(dst []byte, channels []GripChannel) []byte {
	for _, c := range channels {
		if c.PrevID != nil && !strings.ContainsAny(*c.PrevID, "\r\n") {
			dst = fmt.Appendf(dst, "Grip-Last: %s; last-id=%s\r\n", c.Name, *c.PrevID)
		}
	}
	return dst
}
