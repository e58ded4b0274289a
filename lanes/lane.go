// Package lanes bounds who may use an upstream, and when.
//
//	lane := lanes.New(lanes.Config{Name: "slow", Slots: 2}, app.Deal(2))
//	slot, err := lane.Acquire(ctx)            // at once, or after waiting in order
//	exchange, err := slot.Do(ctx, request)    // owns the slot from here on
//	defer exchange.Close()
//	res, err := exchange.Head(nil)
//	n, err := exchange.Read(p)                // io.EOF: the slot is free again
//
// A slot is a place at one target with at most one connection of its own. A
// lane has a fixed number of them; the requests beyond wait in one FIFO queue
// of bounded length, each for a bounded time. A slot is given back when the
// upstream is done with it, which is not when the client is: an exchange that
// is closed early leaves its slot abandoned, and its answer is read and thrown
// away until it ends (a WSGI worker notices nothing of a client that left).
//
// Invariants: at most Slots requests of a lane are at the upstream, the
// abandoned ones included (the one exception is counted, ClosedOnView); a free
// slot and a live waiter never coexist; lanes share no lock, queue or
// connection.
//
// What it will not do: read a request's body, choose a lane, log, or send
// anything twice but as Exchange.Head says.
package lanes

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/internal/histogram"
	"holdfast/upstream"
)

// Config is a lane as configured. Zero durations mean the default.
type Config struct {
	// Name is the lane's key in the configuration.
	Name string
	// Slots is how many requests are at the upstream at once. At least 1.
	Slots int
	// Queue is how many more may wait; 0: none.
	Queue int
	// QueueTimeout bounds the wait for a slot. Default 10s.
	QueueTimeout time.Duration
	// ResponseTimeout bounds the wait for an answer's head, then for each
	// further byte. Default 60s.
	ResponseTimeout time.Duration
	// Stream: the lane's answers are streams. Once a head has come, only Idle
	// bounds the wait for a further byte, and a client that leaves closes the
	// connection at once, which an ASGI server sees.
	Stream bool
	// Idle bounds the silence of a stream; 0: no bound.
	Idle time.Duration

	keepAlive bool
}

// Lane is a bounded share of an upstream. Safe for concurrent use.
type Lane struct {
	cfg    atomic.Pointer[Config] // a reload swaps it
	waited histogram.Histogram

	mu           sync.Mutex
	places       []*place // by target, in dealing order
	dropped      []*place // whose targets are to be told
	queue        queue
	inUse        int // slots given out, the abandoned ones included
	abandoned    int
	closedOnView uint64
	retried      uint64
	refused      map[Reason]uint64
	park         *time.Timer // runs while every target is down and somebody waits
	closed       bool
}

// place is a lane's slots at one target. Guarded by the lane's mu.
type place struct {
	target  *upstream.Target
	unwatch func() // nil: not watching yet
	up      bool
	closing bool // connections are not kept
	slots   []*Slot
	free    []*Slot // the last used is the last, and taken first: its connection is warm
}

// New makes a lane whose slots are at the targets dealt to it, one slot each.
func New(cfg Config, dealt []*upstream.Target) *Lane {
	l := &Lane{refused: make(map[Reason]uint64, len(Reasons))}
	l.Configure(cfg, dealt)
	return l
}

// Config is the configuration in force, defaults filled in.
func (l *Lane) Config() Config { return *l.cfg.Load() }

// KeepAlive reports whether the lane's connections may be used again.
func (l *Lane) KeepAlive() bool { return l.cfg.Load().keepAlive }

// Acquire gives a free slot, or waits for one in order. The error is a
// *Refusal, or ctx's error if the client left first. Whoever gets the slot
// calls Do or Release on it, once.
func (l *Lane) Acquire(ctx context.Context) (*Slot, error) { return l.acquire(ctx, false) }

// Await is Acquire for what must not be refused because others came first: it
// waits in the same queue, in order, without a place of Queue, and for as long
// as it takes. Draining and UpstreamDown end its wait.
func (l *Lane) Await(ctx context.Context) (*Slot, error) { return l.acquire(ctx, true) }

func (l *Lane) acquire(ctx context.Context, patient bool) (*Slot, error) {
	l.mu.Lock()
	if l.closed {
		defer l.mu.Unlock()
		return nil, l.refuse(Draining)
	}
	slot := l.take()
	if slot == nil && !patient && l.queue.counted >= l.cfg.Load().Queue {
		defer l.mu.Unlock()
		if l.isDown() && (l.cfg.Load().Queue == 0 || l.parked()) {
			return nil, l.refuse(UpstreamDown)
		}
		return nil, l.refuse(LaneFull)
	}
	if slot != nil {
		l.mu.Unlock()
		slot.giveUp, slot.waited = time.Time{}, 0
		l.waited.Observe(0)
		return slot, nil
	}
	began := time.Now()
	w := &waiter{since: began, patient: patient}
	giveUp := began.Add(l.cfg.Load().QueueTimeout)
	if patient {
		giveUp = time.Time{}
	}
	slot, err := l.wait(ctx, w, giveUp, false)
	waited := time.Since(began)
	l.waited.Observe(waited)
	if slot != nil {
		slot.waited = waited
	}
	return slot, err
}

// again is Acquire for a request whose slot turned out to be at a target that
// is down: it waits in front, for what is left of its time.
func (l *Lane) again(ctx context.Context, giveUp time.Time) (*Slot, error) {
	l.mu.Lock()
	if slot := l.take(); slot != nil {
		l.mu.Unlock()
		slot.giveUp = giveUp
		return slot, nil
	}
	if l.closed {
		defer l.mu.Unlock()
		return nil, l.refuse(Draining)
	}
	if l.cfg.Load().Stream && l.isDown() { // nobody waits for a stream
		defer l.mu.Unlock()
		return nil, l.refuse(UpstreamDown)
	}
	return l.wait(ctx, &waiter{since: time.Now()}, giveUp, true)
}

// wait queues a request until giveUp at the latest, where that is not zero;
// where every target has been down for too long already, armPark ends the wait
// at once. l.mu is held, and is given back.
func (l *Lane) wait(ctx context.Context, w *waiter, giveUp time.Time, inFront bool) (*Slot, error) {
	w.ready = make(chan *Slot, 1)
	if inFront {
		l.queue.pushFront(w)
	} else {
		l.queue.pushBack(w)
	}
	l.armPark()
	l.mu.Unlock()

	var over <-chan time.Time
	if !giveUp.IsZero() {
		timer := time.NewTimer(time.Until(giveUp))
		defer timer.Stop()
		over = timer.C
	}
	select {
	case slot := <-w.ready:
		return l.accept(ctx, w, slot, giveUp)
	case <-ctx.Done():
	case <-over:
	}
	l.mu.Lock()
	if !w.queued {
		// The outcome came at the same moment; it must not be lost.
		l.mu.Unlock()
		return l.accept(ctx, w, <-w.ready, giveUp)
	}
	l.queue.remove(w)
	defer l.mu.Unlock()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return nil, l.refuse(LaneTimeout)
}

// accept takes a waiter's outcome. A client that left while its slot came
// never reaches the app: the slot goes to the next in line.
func (l *Lane) accept(ctx context.Context, w *waiter, slot *Slot, giveUp time.Time) (*Slot, error) {
	if slot == nil {
		return nil, w.refusal
	}
	if ctx.Err() != nil {
		slot.Release()
		return nil, ctx.Err()
	}
	slot.giveUp = giveUp
	return slot, nil
}

// take takes a free slot at the target that is up and has the least of this
// lane to do, nil if there is none. l.mu is held.
func (l *Lane) take() *Slot {
	var best *place
	for _, p := range l.places {
		if p.up && len(p.free) > 0 &&
			(best == nil || len(p.slots)-len(p.free) < len(best.slots)-len(best.free)) {
			best = p
		}
	}
	if best == nil {
		return nil
	}
	return l.takeFrom(best)
}

// takeFrom takes a place's warmest free slot; it has one. l.mu is held.
func (l *Lane) takeFrom(p *place) *Slot {
	slot := p.free[len(p.free)-1]
	p.free = p.free[:len(p.free)-1]
	slot.state = busy
	slot.since = time.Now()
	l.inUse++
	return slot
}

// put makes a slot free again and serves whoever waits first. l.mu is held.
func (l *Lane) put(slot *Slot, now time.Time) {
	if slot.state == free {
		panic("lanes: slot released twice")
	}
	if slot.state == abandoned {
		l.abandoned--
	}
	slot.state = free
	slot.since = now
	l.inUse--
	if slot.retired {
		l.drop(slot)
		return
	}
	slot.place.free = append(slot.place.free, slot)
	if l.closed || slot.place.closing || !slot.place.up {
		slot.closeConn()
	}
	l.serve()
}

// serve hands free slots to waiters, in order, while there are both. l.mu is held.
func (l *Lane) serve() {
	for l.queue.first != nil {
		slot := l.take()
		if slot == nil {
			return
		}
		w := l.queue.first
		l.queue.remove(w)
		w.ready <- slot
	}
}

// Close refuses who waits and whoever comes. Exchanges go on; the connections
// of free slots are closed, those of the others when they are given back.
func (l *Lane) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.refuseAll(Draining)
	for _, p := range l.places {
		for _, slot := range p.free {
			slot.closeConn()
		}
	}
}

// refuseAll refuses everybody who waits. l.mu is held.
func (l *Lane) refuseAll(reason Reason) {
	for l.queue.first != nil {
		w := l.queue.first
		w.refusal = l.refuse(reason)
		l.queue.remove(w)
		w.ready <- nil
	}
}
