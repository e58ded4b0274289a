package holds

import "slices"

// hold is a client kept on the app's behalf. From its join on its loop alone
// touches it, but for its seats' rooms and its cursor, which the hub reads for
// the loop under its lock.
//
//	joining ─► catching ⇄ live ⇄ recovering
//	              └────────┴────────┴──► leaving ─► ending ─► closed
//
// joining: its join is in the inbox. catching: it is fed from the journal, at
// its client's pace. live: it is fed as events come. leaving: it has ended, and
// is in its rooms until the present turn is over. ending: it is in none, and its
// last bytes are on the way.
type hold struct {
	// fixed
	descriptor int32  // of its loop's own; -1: none
	slot       uint32 // its place in the loop's table
	generation uint32 // which hold at that place it is
	kind       Mode
	chunked    bool

	// the loop's
	state  state
	queued bool // in the loop's queue of holds that catch up
	wrote  bool // since the last look at it
	beats  uint8
	born   uint32 // in seconds of the loop's clock
	cursor int64  // every event of its channels up to here was given to it
	claim  int64  // where its client was at another node, which this one cannot know yet; 0: nowhere (node.go)
	seat   seat
	more   *beyond // nil: it has one seat at most, and is no GRIP hold
	outbox *outbox // nil: nothing waits
	link   *link   // of a connection that a goroutine serves; nil: a descriptor
	socket *socket // of a WebSocket
	poll   *poll   // of a long poll
}

type state uint8

const (
	joining state = iota
	catching
	live
	recovering
	leaving
	ending
	closed
)

// seat is a hold's membership of a room.
type seat struct {
	room *room
	from int64 // nothing of the room up to here is the hold's, if its cursor is before
	at   int32 // its place among the loop's holds of the room
}

// beyond is what few holds have.
type beyond struct {
	seats []seat // beyond the first
	grip  *grip  // nil: the instruction was M0's
}

// grip is what a hold has beside others if its instruction was GRIP's.
func (h *hold) grip() *grip {
	if h.more == nil {
		return nil
	}
	return h.more.grip
}

// start is from where a hold is fed of the seat's room.
func (h *hold) start(s *seat) int64 { return max(h.cursor, s.from) }

// pass notes that a hold has what an event has for it.
func (h *hold) pass(e *event) { h.cursor = max(h.cursor, e.id) }

func (h *hold) seats() int {
	switch {
	case h.seat.room == nil:
		return 0
	case h.more == nil:
		return 1
	}
	return 1 + len(h.more.seats)
}

// sit adds a seat in a room.
func (h *hold) sit(r *room) *seat {
	switch {
	case h.seat.room == nil:
		h.seat.room = r
	case h.more == nil:
		h.more = &beyond{seats: []seat{{room: r}}}
	default:
		h.more.seats = append(h.more.seats, seat{room: r})
	}
	return h.seatAt(h.seats() - 1)
}

// vacate takes a seat away.
func (h *hold) vacate(i int) {
	last := h.seats() - 1
	*h.seatAt(i) = *h.seatAt(last)
	if last == 0 {
		h.seat = seat{}
	} else {
		h.more.seats = h.more.seats[:last-1]
	}
}

// channels are the names of a hold's channels.
func (h *hold) channels() []string {
	names := make([]string, h.seats())
	for i := range names {
		names[i] = h.seatAt(i).room.name
	}
	return names
}

func (h *hold) seatAt(i int) *seat {
	if i == 0 {
		return &h.seat
	}
	return &h.more.seats[i-1]
}

// seatIn is the hold's seat in a room; nil: it is not there.
func (h *hold) seatIn(r *room) *seat {
	for i := range h.seats() {
		if s := h.seatAt(i); s.room == r {
			return s
		}
	}
	return nil
}

// has reports whether one of a hold's first n seats is in a channel of an event's.
func (h *hold) has(e *event, n int) bool {
	for i := range n {
		if slices.Contains(e.rooms, h.seatAt(i).room) {
			return true
		}
	}
	return false
}

// in reports whether a hold is in one of an event's channels.
func (h *hold) in(e *event) bool {
	for _, r := range e.rooms {
		if h.seatIn(r) != nil {
			return true
		}
	}
	return false
}
