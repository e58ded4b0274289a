package holds

import (
	"net"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
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

type endedHold struct {
	hold   *hold
	reason End
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
		l.bytes += len(i.event.wire)
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
	if o.gap {
		l.counts.gaps.Add(1)
	}
	if err := l.sockets.watch(h); err != nil {
		l.end(h, EndError)
		return
	}
	l.enqueue(h)
	l.greet(h, o)
	if !l.drainFrom.IsZero() {
		l.end(h, EndDraining)
	}
}

// greet sends a hold's first bytes; to a long poll those are its answer.
func (l *loop) greet(h *hold, o *opening) {
	switch {
	case h.poll != nil && o.gap:
		h.poll.answer = l.answerNothing(h, true)
		l.end(h, EndExpired)
	case h.poll != nil:
		l.setAlarm(h)
	case h.socket != nil:
		l.send(h, o.appendSocket(nil, h.socket.envelope, h.cursor))
		if o.gap && !h.socket.envelope { // it cannot be told
			l.end(h, EndSlow)
		}
		l.receive(h, o.early)
		l.readable(h)
	default:
		l.send(h, o.appendStream(nil, h.chunked, h.cursor))
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

// deliver offers an event to the loop's members of its channels.
func (l *loop) deliver(e *event) (cost int) {
	members := 0
	for _, r := range e.rooms {
		members += len(r.local[l.index].holds)
	}
	if members > l.pace.slice {
		l.walks = append(l.walks, walk{event: e, at: len(e.rooms[0].local[l.index].holds) - 1})
		return 1
	}
	for _, r := range e.rooms {
		for _, h := range r.local[l.index].holds {
			l.offer(h, e)
		}
	}
	return members + 1
}

// walk makes a slice of the oldest walk. Downwards, because a member that
// leaves is replaced by the last: nobody is passed over.
func (l *loop) walk() {
	w := &l.walks[0]
	for range l.pace.slice {
		holds := w.event.rooms[w.room].local[l.index].holds
		w.at = min(w.at, len(holds)-1)
		for w.at < 0 {
			if w.room++; w.room == len(w.event.rooms) {
				l.walks = slices.Delete(l.walks, 0, 1)
				return
			}
			holds = w.event.rooms[w.room].local[l.index].holds
			w.at = len(holds) - 1
		}
		l.offer(holds[w.at], w.event)
		w.at--
	}
}

// offer gives a live hold an event that it has not got. A walk that has not
// come to it yet comes first: nothing overtakes an older event.
func (l *loop) offer(h *hold, e *event) {
	if h.state != live || h.cursor >= e.id {
		return
	}
	l.owed(h, e.id)
	if h.state == live {
		l.give(h, e)
	}
}

// owed gives a hold what walks under way have for it, before the event id.
func (l *loop) owed(h *hold, id int64) {
	for i := range l.walks {
		e := l.walks[i].event
		if e.id >= id {
			return
		}
		if h.state == live && h.cursor < e.id && h.in(e) {
			l.give(h, e)
		}
	}
}

func (l *loop) give(h *hold, e *event) {
	if h.poll != nil {
		l.answerEvent(h, e)
		return
	}
	b := e.bytesFor(h)
	if o := h.outbox; o != nil && o.behind+len(b) > l.limits.Load().OutboxBytes {
		l.end(h, EndSlow)
		return
	}
	h.cursor = e.id
	l.offered++
	l.send(h, b)
}

// send writes b, behind what waits.
func (l *loop) send(h *hold, b []byte) {
	l.pieces = append(l.pieces[:0], b)
	l.sendAll(h, l.pieces, len(b))
}

func (l *loop) sendAll(h *hold, pieces [][]byte, size int) {
	h.wrote = true
	n := 0
	if h.outbox == nil {
		var err error
		if n, err = l.sockets.write(h, pieces); err != nil {
			l.hangUp(h)
			return
		}
		if n == size {
			return
		}
		l.box(h)
	}
	for _, b := range pieces {
		if n >= len(b) {
			n -= len(b)
			continue
		}
		h.outbox.push(b[n:])
		l.counts.outbox.Add(int64(len(b) - n))
		n = 0
	}
}

// box gives a hold an outbox.
func (l *loop) box(h *hold) {
	h.outbox = &outbox{hold: h, at: len(l.outboxes), since: l.hub.now(), unacked: l.sockets.unacknowledged(h)}
	l.outboxes = append(l.outboxes, h.outbox)
}

// unbox takes it away again.
func (l *loop) unbox(h *hold) {
	o := h.outbox
	last := len(l.outboxes) - 1
	l.outboxes[o.at] = l.outboxes[last]
	l.outboxes[o.at].at = o.at
	l.outboxes[last] = nil
	l.outboxes = l.outboxes[:last]
	l.counts.outbox.Add(-int64(o.bytes))
	h.outbox = nil
}

// writable goes on with an outbox.
func (l *loop) writable(h *hold) {
	o := h.outbox
	if o == nil || h.state == closed {
		return
	}
	n, err := l.sockets.write(h, o.pieces)
	if err != nil {
		l.hangUp(h)
		return
	}
	if n > 0 {
		o.took(n)
		o.since, o.unacked = l.hub.now(), -1
		l.counts.outbox.Add(-int64(n))
	}
	if len(o.pieces) > 0 {
		return
	}
	l.unbox(h)
	switch h.state {
	case catching:
		l.enqueue(h)
	case ending:
		l.finish(h)
	}
}

// hangUp is called when a hold's client has left.
func (l *loop) hangUp(h *hold) {
	if h.state == ending {
		l.close(h, false)
	} else {
		l.end(h, EndClient)
	}
}

// enqueue has a hold fed from the journal.
func (l *loop) enqueue(h *hold) {
	if !h.queued {
		h.queued = true
		l.queue = append(l.queue, h)
	}
}

// catchUp feeds some of the holds that catch up.
func (l *loop) catchUp() {
	for range min(len(l.queue), l.pace.catch) {
		h := l.queue[0]
		l.queue[0] = nil
		l.queue = l.queue[1:]
		h.queued = false
		if h.state == catching && h.outbox == nil {
			l.feed(h)
		}
	}
}

func (l *loop) feed(h *hold) {
	events, lost, isLive := l.hub.fetch(h, l.fetched[:0])
	switch {
	case lost && h.poll != nil:
		h.cursor = l.hub.head.Load()
		h.poll.answer = l.answerNothing(h, true)
		l.end(h, EndExpired)
	case lost: // it is told of the gap when it comes back
		l.end(h, EndSlow)
	case isLive:
		h.state = live
	case h.poll != nil:
		l.answerEvent(h, events[0])
	default:
		size := 0
		pieces := l.pieces[:0]
		for _, e := range events {
			b := e.bytesFor(h)
			pieces = append(pieces, b)
			size += len(b)
		}
		h.cursor = events[len(events)-1].id
		l.offered += uint64(len(events))
		l.enqueue(h)
		l.sendAll(h, pieces, size)
		clear(pieces)
		l.pieces = pieces[:0]
	}
	clear(events)
	l.fetched = events[:0]
}

// end ends a hold: it is given nothing more. It leaves its channels when the
// present walk is over, and its connection is closed after that.
func (l *loop) end(h *hold, reason End) {
	if h.state >= leaving {
		return
	}
	if h.poll == nil || h.poll.answer == nil {
		l.settle(h, reason)
	}
	if h.state >= leaving { // what it was owed was too much, or an answer
		return
	}
	h.state = leaving
	l.ended = append(l.ended, endedHold{h, reason})
}

// settle gives a hold, before its end, what was published to it before.
func (l *loop) settle(h *hold, reason End) {
	if !reason.gone() && h.state == live {
		l.owed(h, l.hub.head.Load()+1)
	}
	for reason == EndPublished && h.state == catching && h.outbox == nil {
		l.feed(h)
	}
}

// bury takes holds that have ended out of every table, then says the last word
// to their clients or closes their connections.
func (l *loop) bury() {
	if len(l.ended) == 0 {
		return
	}
	left := make([]*hold, len(l.ended))
	for i, e := range l.ended {
		left[i] = e.hold
		l.depart(e.hold)
		e.hold.state = ending
	}
	l.hub.leave(l, left)
	ended := l.ended
	l.ended = nil
	for _, e := range ended {
		l.counts.end(e.hold.kind, e.reason)
		l.home.tellEnd(l, e.hold, e.reason)
		if e.reason.gone() && (e.hold.socket == nil || e.hold.socket.echo == nil) {
			l.close(e.hold, e.reason.reset())
			continue
		}
		l.send(e.hold, l.farewell(e.hold, e.reason))
		if e.hold.outbox == nil && e.hold.state != closed {
			l.finish(e.hold)
		}
	}
}

// farewell is what a hold's client gets last.
func (l *loop) farewell(h *hold, reason End) []byte {
	switch {
	case h.socket != nil:
		return h.socket.farewellFrame(reason)
	case h.poll != nil && h.poll.answer != nil:
		return h.poll.answer
	case h.poll != nil:
		return l.answerNothing(h, false)
	}
	return farewell(h.chunked, reason != EndPublished)
}

// depart takes a hold out of the loop's rooms.
func (l *loop) depart(h *hold) {
	for i := range h.seats() {
		l.leave(h, h.seatAt(i))
	}
}

// finish goes on after a hold's last bytes.
func (l *loop) finish(h *hold) {
	switch {
	case h.socket != nil && h.socket.echo == nil:
		l.part(h)
	case h.poll != nil:
		l.giveBack(h)
	default:
		l.close(h, false)
	}
}

// close ends a hold's connection.
func (l *loop) close(h *hold, reset bool) {
	if h.state == closed {
		return
	}
	l.vacate(h)
	l.sockets.close(h, reset)
	if h.socket != nil && h.socket.delivering { // what it sent before still goes to the app
		h.socket.gone = true
		l.orphans[h.socket] = struct{}{}
		return
	}
	l.left()
}

// vacate takes a hold out of the loop's table.
func (l *loop) vacate(h *hold) {
	if h.outbox != nil {
		l.unbox(h)
	}
	h.state = closed
	l.table[h.slot] = nil
	l.vacant = append(l.vacant, h.slot)
}

// left counts a hold that is no more.
func (l *loop) left() {
	l.counts.held.Add(-1)
	if left := l.limits.Load().Left; left != nil {
		left()
	}
}

// drainSpan is how long the ends of holds are spread over in a drain.
const drainSpan = 2 * time.Second

// drain ends the loop's holds, spread, so that all who come back do not come
// at once; who joins from now on is sent away after the first bytes.
func (l *loop) drain() {
	l.drainFrom = l.hub.now()
	l.toDrain = len(l.table)
}

// stop cuts what is left; the loop takes no turn after this one.
func (l *loop) stop() {
	l.stopped = true
	if cut := len(l.table) - len(l.vacant); cut > 0 {
		l.home.log.Warn("holds were cut, their clients did not take the end in time", zap.Int("holds", cut))
	}
	for _, h := range l.table {
		if h == nil {
			continue
		}
		if h.state == ending {
			l.close(h, true)
		} else {
			l.end(h, EndDraining)
		}
	}
	l.bury()
	for _, h := range l.table {
		if h != nil {
			l.close(h, true)
		}
	}
	messages := 0
	for s := range l.orphans {
		messages += len(s.inbound)
		l.left()
	}
	if messages > 0 {
		l.counts.inbound[inboundOverload].Add(uint64(messages))
		l.home.log.Warn("messages of sockets were cut, the app did not take them in time", zap.Int("messages", messages))
	}
}

// nextTick says when the loop wants its next tick; zero: nothing is to come.
func (l *loop) nextTick(now time.Time) time.Time {
	if len(l.table) == len(l.vacant) {
		return time.Time{}
	}
	cfg := l.limits.Load()
	every := time.Second
	if cfg.Heartbeat > 0 {
		every = min(every, cfg.Heartbeat/8)
	}
	if cfg.MaxAge > 0 {
		every = min(every, cfg.MaxAge/ageLooks)
	}
	if len(l.outboxes) > 0 {
		every = min(every, cfg.WriteStall/4)
	}
	if l.drained < l.toDrain {
		every = min(every, drainSpan/100)
	}
	if len(l.parting) > 0 {
		every = min(every, partingTime/8)
	}
	if len(l.alarms) > 0 {
		every = min(every, l.alarms[0].at.Sub(now))
	}
	return now.Add(max(every, tickLeast))
}

// due is when the next tick is to be, if it was to be at before; zero: none is.
// What a turn has done may have it be sooner.
func (l *loop) due(before time.Time) time.Time {
	next := l.nextTick(time.Now())
	if before.IsZero() || !next.IsZero() && next.Before(before) {
		return next
	}
	return before
}

// tickIf makes the tick that is due, and gives what is left of that.
func (l *loop) tickIf(due time.Time) time.Time {
	if now := time.Now(); !due.IsZero() && !now.Before(due) {
		l.tick(now)
		return time.Time{}
	}
	return due
}

const tickLeast = 5 * time.Millisecond

// tick does what time asks for.
func (l *loop) tick(now time.Time) {
	cfg := l.limits.Load()
	for i := len(l.outboxes) - 1; i >= 0; i-- { // one that goes is replaced by the last
		l.checkStall(l.outboxes[i], now, cfg.WriteStall)
	}
	if cfg.MaxAge > 0 && now.Sub(l.agedAt) >= cfg.MaxAge/ageLooks {
		l.agedAt = now
		l.expire(now, cfg.MaxAge)
	}
	l.look(now, cfg)
	l.timeOut(now)
	l.partedBy(now)
	if l.drained < l.toDrain {
		due := min(int(float64(l.toDrain)*float64(now.Sub(l.drainFrom))/float64(drainSpan))+1, l.toDrain)
		for ; l.drained < due; l.drained++ {
			if h := l.table[l.drained]; h != nil {
				l.end(h, EndDraining)
			}
		}
	}
	l.bury()
}

// checkStall ends a hold whose client has taken no byte for the bound: the
// kernel tells of room in large steps only, so what the client has
// acknowledged is looked at too.
func (l *loop) checkStall(o *outbox, now time.Time, bound time.Duration) {
	before := o.unacked
	if o.unacked = l.sockets.unacknowledged(o.hold); o.unacked >= 0 && (before < 0 || o.unacked < before) {
		o.since = now
	}
	if now.Sub(o.since) < bound {
		return
	}
	if o.hold.state == ending {
		l.close(o.hold, true)
	} else {
		l.end(o.hold, EndStalled)
	}
}

// look goes on with the look at all holds, which takes as long as a heartbeat
// (15 s where there is none): who was written nothing since the last look gets
// one, so after twice that time at most.
func (l *loop) look(now time.Time, cfg *Config) {
	round := cfg.Heartbeat
	if round == 0 {
		round = defaultHeartbeat
	}
	passed := now.Sub(l.scanFrom)
	if passed > 2*round { // nothing was held for a while
		l.scanFrom, passed, l.scan = now, 0, 0
	}
	due := min(int(float64(len(l.table))*float64(passed)/float64(round)), len(l.table))
	current := l.next == len(l.taken) && len(l.walks) == 0 // every live hold has got all up to seen
	for ; l.scan < due; l.scan++ {
		if h := l.table[l.scan]; h != nil && h.state < leaving {
			l.lookAt(h, cfg.Heartbeat > 0, current)
		}
	}
	if passed >= round {
		l.scanFrom, l.scan = l.scanFrom.Add(round), 0
	}
}

func (l *loop) lookAt(h *hold, beat, current bool) {
	quiet := !h.wrote && h.outbox == nil && h.state == live
	h.wrote = false
	if !quiet || !beat || h.poll != nil {
		return
	}
	if h.beats++; h.socket != nil {
		l.send(h, pingFrame)
	} else if h.beats%positionEvery == 0 && current {
		h.cursor = max(h.cursor, l.seen)
		l.send(h, position(h.cursor, h.chunked))
	} else {
		l.send(h, heartbeat(h.chunked))
	}
	h.wrote = false // by others
}

// ageLooks is how often in MaxAge the holds' ages are looked at.
const ageLooks = 32

// expire ends the holds that are old enough: each in the last quarter of the
// bound, at a time of its own.
func (l *loop) expire(now time.Time, bound time.Duration) {
	for _, h := range l.table {
		if h == nil || h.state >= leaving || h.poll != nil {
			continue
		}
		early := bound/ageLooks + bound*7/32*time.Duration(h.slot*2654435761>>24)/256 // a hash's upper byte
		if now.Sub(l.clock)-time.Duration(h.born)*time.Second >= bound-early {
			l.end(h, EndExpired)
		}
	}
}
