package holds

import (
	"net"
	"slices"
	"sync/atomic"
	"time"
)

// loop serves a part of the holds. One goroutine runs it, takes turns, and
// alone writes to the holds' connections and closes them.
type loop struct {
	// fixed
	hub     *hub
	index   int
	sockets sockets
	home    *home
	limits  *atomic.Pointer[Config] // home's
	counts  *counts                 // home's
	pace    pace

	// guarded by the hub's mu
	inbox    []item
	events   int // in the inbox
	bytes    int // of them
	overflow bool
	asleep   bool
	nudge    atomic.Bool // it is to be woken

	// the loop's own
	taken       []item // what was in the inbox, of which next is the next
	next        int
	seen        int64 // the head when the inbox was taken
	walks       []walk
	table       []*hold
	generations []uint32
	vacant      []uint32
	queue       []*hold // that catch up and can be written to
	outboxes    []*outbox
	keeping     keeping // what they keep in memory
	ended       []endedHold
	fetched     []*event
	pieces      [][]byte
	offered     uint64
	scratch     []byte  // what is read
	unread      []*hold // sockets that have more to read
	parting     []parting
	alarms      alarms
	orphans     map[*socket]struct{} // that are closed, and whose messages are not delivered yet

	agedAt    time.Time // when the holds' ages were looked at
	scan      int       // how far the present look at the holds has come
	scanFrom  time.Time // when it began
	drainFrom time.Time // zero: no drain
	drained   int
	toDrain   int
	clock     time.Time // born is counted from here
	stopped   bool
}

func newLoop(h *hub, index int, home *home) *loop {
	return &loop{hub: h, index: index, home: home, limits: &home.limits, counts: &home.counts, pace: usualPace,
		clock: h.now(), scanFrom: h.now(), scratch: make([]byte, readBytes), orphans: make(map[*socket]struct{})}
}

// item is one entry of an inbox: an event, a join, or something to run.
type item struct {
	event   *event
	hold    *hold
	opening *opening
	call    func()
}

// walk is an event on its way through the loop's members of its channels. A
// large walk is made in slices, so that other holds need not wait for its end.
type walk struct {
	event *event
	room  int
	at    int // the next member, downwards
}

// sockets is what a loop needs of the system. Its methods are called by the
// loop alone, but for adopt and wake.
type sockets interface {
	// adopt takes a connection over for a hold; any goroutine may call it. After
	// an error the connection is the caller's still.
	adopt(h *hold, conn net.Conn) error
	// watch begins to watch a hold's connection: its client's leaving, and its
	// readiness after a write that took less than all.
	watch(h *hold) error
	// write writes what the connection takes at once. The bytes may be kept, the
	// slice of pieces may not.
	write(h *hold, pieces [][]byte) (n int, err error)
	// read reads what a socket's client has sent: errAgain where there is nothing.
	read(h *hold, into []byte) (n int, err error)
	// shut ends the sending side.
	shut(h *hold)
	// release gives the connection up to the caller, with what was read of it.
	release(h *hold) (conn net.Conn, read []byte, err error)
	// unacknowledged is what the client has not taken of what was written; -1:
	// that is not known.
	unacknowledged(h *hold) int
	// close ends the connection, by a reset if need be.
	close(h *hold, reset bool)
	// wake ends the present wait for readiness.
	wake()
}

// pace bounds what a loop does in one turn, and what its inbox may hold.
type pace struct {
	slice  int // holds that are written to between two looks at the sockets
	walks  int // under way at a time
	catch  int // holds that are fed from the journal
	events int // in the inbox, and their bytes
	bytes  int
}

var usualPace = pace{slice: 64, walks: 16, catch: 8, events: 8 << 10, bytes: 16 << 20}

// push puts an item into the inbox. Over the bound the events are dropped, and
// the holds are fed from the journal again. The hub's mu is held.
func (l *loop) push(i item) {
	if i.event != nil {
		l.events++
		l.bytes += i.event.weight()
	}
	l.inbox = append(l.inbox, i)
	if l.events > l.pace.events || l.bytes > l.pace.bytes {
		l.inbox = slices.DeleteFunc(l.inbox, func(i item) bool { return i.event != nil })
		l.events, l.bytes, l.overflow = 0, 0, true
	}
	if l.asleep {
		l.asleep = false
		l.nudge.Store(true)
	}
}

// take takes over what is in the inbox.
func (l *loop) take() {
	l.hub.mu.Lock()
	l.taken, l.inbox = l.inbox, l.taken[:0]
	l.events, l.bytes = 0, 0
	overflow := l.overflow
	l.overflow, l.asleep = false, false
	l.seen = l.hub.head.Load()
	l.hub.mu.Unlock()
	l.next = 0
	if overflow {
		l.fallBack()
	}
}

// sleep says that the loop waits; false: there is something in the inbox.
func (l *loop) sleep() bool {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	l.asleep = len(l.inbox) == 0 && !l.overflow
	return l.asleep
}

// fallBack has every hold fed from the journal again, from what it has got:
// events for it were dropped.
func (l *loop) fallBack() {
	l.walks = l.walks[:0]
	for _, h := range l.table {
		if h != nil && h.state == live {
			h.state = catching
			l.enqueue(h)
		}
	}
}

// turn does a bounded piece of what there is to do.
func (l *loop) turn() (more bool) {
	if l.next == len(l.taken) {
		l.take()
	}
	for left := l.pace.slice; left > 0 && !l.stopped && l.next < len(l.taken) && len(l.walks) < l.pace.walks; l.next++ {
		i := l.taken[l.next]
		l.taken[l.next] = item{}
		left -= l.handle(i)
	}
	if len(l.walks) > 0 {
		l.walk()
	}
	l.catchUp()
	l.readOn()
	l.relieve()
	l.bury()
	if l.offered > 0 {
		l.counts.offered.Add(l.offered)
		l.offered = 0
	}
	return l.next < len(l.taken) || len(l.walks) > 0 || len(l.queue) > 0 || len(l.unread) > 0
}

// joinCost is what a join counts for, in deliveries.
const joinCost = 8

func (l *loop) handle(i item) (cost int) {
	switch {
	case i.event != nil:
		return l.deliver(i.event)
	case i.hold != nil:
		l.open(i.hold, i.opening)
		return joinCost
	}
	i.call()
	return joinCost
}

// open takes a hold that has joined into the loop's table and rooms, and
// sends its first bytes.
func (l *loop) open(h *hold, o *opening) {
	if n := len(l.vacant); n > 0 {
		h.slot = l.vacant[n-1]
		l.vacant = l.vacant[:n-1]
	} else {
		h.slot = uint32(len(l.table))
		l.table = append(l.table, nil)
		l.generations = append(l.generations, 0)
	}
	l.generations[h.slot]++
	h.generation = l.generations[h.slot]
	l.table[h.slot] = h
	for i := range h.seats() {
		l.enter(h, h.seatAt(i))
	}
	h.state = catching
	h.born = uint32(l.hub.now().Sub(l.clock) / time.Second)
	if o.gap && h.grip() == nil && (h.socket == nil || h.socket.envelope) {
		l.counts.gaps.Add(1)
	}
	if err := l.sockets.watch(h); err != nil {
		l.end(h, EndError)
		return
	}
	l.enqueue(h)
	l.greet(h, o)
	if o.revoked != nil && h.state < leaving {
		l.endByAPI(h, *o.revoked)
	}
	if !l.drainFrom.IsZero() {
		l.end(h, EndDraining)
	}
}

// greet sends a hold's first bytes; to a long poll those are its answer.
func (l *loop) greet(h *hold, o *opening) {
	switch {
	case h.grip() != nil:
		l.greetGrip(h, o)
	case h.poll != nil && o.gap:
		h.poll.answer = l.answerNothing(h, true)
		l.end(h, EndExpired)
	case h.poll != nil:
		l.setAlarm(h, h.poll.deadline)
	case h.socket != nil:
		l.send(h, o.appendSocket(nil, h.socket.envelope, l.hub.shown(h.cursor)))
		if o.gap && !h.socket.envelope { // it cannot be told
			l.end(h, EndSlow)
		}
		l.receive(h, o.early)
		l.readable(h)
	default:
		l.send(h, o.appendStream(nil, h.chunked, l.hub.shown(h.cursor)))
	}
}

// enter puts a hold among the loop's members of a room.
func (l *loop) enter(h *hold, s *seat) {
	here := &s.room.local[l.index]
	s.at = int32(len(here.holds))
	here.holds = append(here.holds, h)
}

// leave takes it out: the last takes its place.
func (l *loop) leave(h *hold, s *seat) {
	here := &s.room.local[l.index]
	last := len(here.holds) - 1
	moved := here.holds[last]
	here.holds[s.at] = moved
	moved.seatIn(s.room).at = s.at
	here.holds[last] = nil
	here.holds = here.holds[:last]
	if last == 0 {
		here.holds = nil
	}
}

// lookup finds the hold that a number of the system's stands for; nil: it is
// another's place by now.
func (l *loop) lookup(slot, generation uint32) *hold {
	if int(slot) >= len(l.table) || l.table[slot] == nil || l.table[slot].generation != generation {
		return nil
	}
	return l.table[slot]
}
