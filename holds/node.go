package holds

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"holdfast/holds/bus"
)

// node is this process as one of several that share a bus. What is published
// goes to the bus, and what the bus has, from whichever node, goes to the hub
// under the bus's number: the order and the numbers are the same everywhere,
// and the journal is a copy of the bus's end.
//
// While the bus is away holds stay, and are opened where their clients say that
// they were at other nodes. What the bus had meanwhile is fed when it is back;
// where some of it cannot be had any more every hold is told of a gap, or ends,
// bus_lost.
type node struct {
	// fixed
	bus   bus.Bus
	holds *Holds

	connected atomic.Bool
	current   atomic.Bool  // it has had all that the bus had when it was first reached
	followed  atomic.Int64 // entries that came

	// the follower's own
	begun   bool
	settled bool // all is here that the bus had when it was reached

	mu      sync.Mutex
	trouble error     // why the bus was not reached, or was lost, the last time
	last    int64     // the last entry's number
	results []result  // of the last entries, a ring
	at      int       // where the next goes
	waiting []waiting // for entries
}

// result is how many holds an entry reached here, or ended.
type result struct {
	id    int64
	count int
}

type waiting struct {
	id   int64
	come chan struct{}
}

const (
	busBackoff    = 100 * time.Millisecond // before the bus is tried again, doubled each time
	busBackoffMax = 5 * time.Second
	busPatience   = 5 * time.Second // of a publisher, while the bus does not answer
	handPatience  = time.Second     // until what the bus has comes back here
	aheadPatience = 2 * time.Second // of a client that was on another node, which was further
	resultsKept   = 1024
	entriesKept   = 1 << 17 // whose numbers are known as positions: more than a bus keeps by default
	itemsAtOnce   = 500     // of one entry: each needs a number between it and the one before
)

// BusState is how a node stands to its bus. Without one it is the only node, and
// all is well.
type BusState struct {
	Connected bool
	Current   bool   // all has come that the bus had when it was first reached
	Entries   uint64 // that came
	Trouble   error  // why it is not connected; it may name who Holdfast is to the engine
}

// Bus is how this node stands to its bus.
func (h *Holds) Bus() BusState {
	if h.node == nil {
		return BusState{Connected: true, Current: true}
	}
	s := BusState{Connected: h.node.connected.Load(), Current: h.node.current.Load(), Entries: uint64(h.node.followed.Load())}
	if !s.Connected {
		h.node.mu.Lock()
		s.Trouble = h.node.trouble
		h.node.mu.Unlock()
	}
	return s
}

// ErrBusDown: the bus cannot be reached, nothing was published. ErrBusUnknown:
// it stopped answering while it had the event, which may have been published.
var (
	ErrBusDown    = errors.New("nothing was published")
	ErrBusUnknown = errors.New("it may have been published")
)

// newNode makes the node of a hub in which nothing has happened. Until the bus
// is reached the stream of events stands at 0.
func newNode(b bus.Bus, h *Holds) *node {
	h.hub.shared = true
	h.hub.tag.Store(0)
	h.hub.start, h.hub.entries = 0, []int64{0}
	h.hub.head.Store(0)
	return &node{bus: b, holds: h, results: make([]result, resultsKept)}
}

// follow follows the bus until Close.
func (n *node) follow() {
	defer n.holds.running.Done()
	for wait := busBackoff; ; wait = min(2*wait, busBackoffMax) {
		began := time.Now()
		err := n.bus.Follow(n.holds.ctx, n.position(), n)
		if n.holds.ctx.Err() != nil {
			return
		}
		n.mu.Lock()
		again := n.trouble != nil
		n.trouble = err
		n.mu.Unlock()
		if time.Since(began) > busBackoffMax { // what fails as soon as it is reached is not tried all the time
			wait = busBackoff
		}
		switch {
		case n.connected.Swap(false):
			n.holds.log.Warn("bus lost, holds stay and nothing can be published", zap.Error(err))
		case !again:
			n.holds.log.Warn("bus not reached, nothing can be published", zap.Error(err))
		default: // it was said
			n.holds.log.Debug("bus not reached", zap.Error(err))
		}
		select {
		case <-time.After(wait/2 + rand.N(wait)):
		case <-n.holds.ctx.Done():
			return
		}
	}
}

func (n *node) position() int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.last
}

// Begin takes up the bus where this node stands, or where it can: bus.Follower.
func (n *node) Begin(s bus.State) {
	back := !n.connected.Swap(true) // before the hub hears of it: catchUp
	n.holds.hub.reached(s.Head)
	if last := n.position(); !n.begun || s.Floor > last {
		goOn := s.Floor
		if !n.begun {
			goOn = s.Head // what it has is old to whoever is held
		} else {
			n.holds.log.Warn("the bus has not all that was published, holds are told of a gap", zap.Int64("from", last), zap.Int64("to", s.Floor))
		}
		n.holds.hub.rebase(s.Floor, goOn)
		n.moveTo(s.Floor)
	}
	n.begun, n.settled = true, false
	if back {
		n.holds.log.Info("bus connected")
	}
	n.settle()
}

// settle notes when all is here that the bus had when it was reached.
func (n *node) settle() {
	if !n.settled && n.position() >= n.holds.hub.target.Load() {
		n.settled = true
		n.current.Store(true)
		n.holds.hub.judge()
	}
}

// Take takes what the bus has: bus.Follower.
func (n *node) Take(entries []bus.Entry) {
	for _, e := range entries {
		n.followed.Add(1)
		n.came(result{e.ID, n.enter(e)})
	}
	n.settle()
}

// enter hands an entry to the hub, or does what it asks.
func (n *node) enter(e bus.Entry) (count int) {
	h := n.holds
	h.hub.begin(e.ID, e.At)
	defer h.hub.done(e.ID)
	if end, ok := endOf(e.Body); ok {
		r, err := DecodeEnd(end)
		if err != nil {
			n.refuse(e, err)
			return 0
		}
		return h.end(r)
	}
	if IsItems(e.Body) {
		items, err := DecodeItems(e.Body)
		if err != nil {
			n.refuse(e, err)
			return 0
		}
		return h.publishItems(items)
	}
	p, err := DecodePublication(e.Body)
	if err != nil {
		n.refuse(e, err)
		return 0
	}
	_, count = h.hub.publish(encode(&p), p.Channels)
	return count
}

// refuse tells of an entry that somebody added to the bus past the publish API
// and that says nothing.
func (n *node) refuse(e bus.Entry, err error) {
	n.holds.log.Warn("an entry of the bus is not an event, it is left out", zap.Int64("id", e.ID), zap.Error(err))
}

// came notes an entry, and wakes who waits for it.
func (n *node) came(r result) {
	n.mu.Lock()
	n.results[n.at] = r
	n.at = (n.at + 1) % len(n.results)
	n.mu.Unlock()
	n.moveTo(r.id)
}

func (n *node) moveTo(id int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last = id
	kept := n.waiting[:0]
	for _, w := range n.waiting {
		if w.id <= id {
			close(w.come)
		} else {
			kept = append(kept, w)
		}
	}
	clear(n.waiting[len(kept):])
	n.waiting = kept
}

// await waits until an entry has come, for so long at most.
func (n *node) await(id int64, patience time.Duration) bool {
	n.mu.Lock()
	if n.last >= id {
		n.mu.Unlock()
		return true
	}
	w := waiting{id, make(chan struct{})}
	n.waiting = append(n.waiting, w)
	n.mu.Unlock()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-w.come:
		return true
	case <-timer.C:
	case <-n.holds.ctx.Done():
	}
	return false
}

// catchUp waits, for a client that comes back from a node that was further,
// until this one has what it had. away: it cannot, the bus is away; then the hold
// may be opened without it, and is looked at when the bus is back (judge). A
// position that the bus has not either is a gap.
func (n *node) catchUp(position int64) (away uint64) {
	hub := n.holds.hub
	for {
		begins := hub.begins.Load()
		if begins > 0 && (position%idStep != hub.tag.Load() || position <= hub.head.Load()) {
			return 0
		}
		if !n.connected.Load() {
			return begins + 1
		}
		if n.await(position, aheadPatience) || n.holds.ctx.Err() != nil {
			return 0
		}
		ctx, cancel := context.WithTimeout(n.holds.ctx, aheadPatience)
		s, err := n.bus.State(ctx)
		cancel()
		if err == nil && s.Head < position {
			return 0
		}
	}
}

// publish publishes bodies, in one step, and waits until this node has handed
// them on, as long as that takes no time. reached is how many holds they reached here.
func (n *node) publish(bodies ...[]byte) (id int64, reached int, err error) {
	ctx, cancel := context.WithTimeout(n.holds.ctx, busPatience)
	defer cancel()
	ids, err := n.bus.Publish(ctx, bodies)
	switch {
	case errors.Is(err, bus.ErrUnknown):
		return 0, 0, fmt.Errorf("%w: %w", ErrBusUnknown, err)
	case err != nil:
		return 0, 0, fmt.Errorf("%w: %w", ErrBusDown, err)
	}
	id = ids[len(ids)-1]
	n.await(id, handPatience)
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, r := range n.results {
		if r.id >= ids[0] && r.id <= id {
			reached += r.count
		}
	}
	return id, reached, nil
}

// endKey is what an entry has that ends holds: {"end": {…}}, with what POST /end takes.
const endKey = "end"

func endOf(body []byte) (end []byte, ok bool) {
	if !bytes.Contains(body, []byte(`"`+endKey+`"`)) {
		return nil, false
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(body, &members) != nil || len(members) != 1 || members[endKey] == nil {
		return nil, false
	}
	return members[endKey], true
}

// reached notes that the bus is there, and its head.
func (h *hub) reached(head int64) {
	h.mu.Lock()
	h.begins.Add(1)
	h.target.Store(head)
	h.mu.Unlock()
}

// rebase has the stream of events begin anew at a position: nothing up to there
// can be replayed, and who is held is told so, and goes on from goOn.
func (h *hub) rebase(position, goOn int64) {
	now := int64(h.now().Sub(h.epoch))
	h.mu.Lock()
	was := h.tag.Swap(position % idStep)
	h.start = position
	h.entries = append(h.entries[:0], position)
	h.head.Store(position)
	for _, r := range h.journal.rooms {
		h.journal.empty(r, position)
		r.items = nil
		h.settle(r, now)
	}
	h.late, h.parked = nil, 0
	h.waits.Store(false)
	h.journal.floors = nil
	for _, l := range h.loops {
		l.push(item{call: func() { l.breakAll(position, goOn, was) }})
	}
	h.mu.Unlock()
	h.wake()
}

// judge has the loops look at the holds that were opened while the bus was away.
func (h *hub) judge() {
	h.mu.Lock()
	for _, l := range h.loops {
		l.push(item{call: l.judge})
	}
	h.mu.Unlock()
	h.wake()
}

// begin has what is published until done have an entry's number.
func (h *hub) begin(id int64, at time.Time) {
	h.mu.Lock()
	h.entry, h.entryAt = id, at
	if len(h.entries) == 2*entriesKept {
		h.entries = append(h.entries[:0], h.entries[entriesKept:]...)
	}
	h.entries = append(h.entries, id) // before head is: what is told as a position is known
	h.mu.Unlock()
}

// done: all of an entry is in the journal.
func (h *hub) done(id int64) {
	h.mu.Lock()
	h.entry = 0
	h.head.Store(id)
	h.mu.Unlock()
}

// breakAll tells every hold that something is missing before a position, and
// from where it goes on. tag is the one of before.
func (l *loop) breakAll(position, goOn, tag int64) {
	for _, h := range l.table {
		if h != nil && h.state < leaving && h.cursor < position && h.claim == 0 {
			l.breakOff(h, shown(h.cursor, tag), goOn)
		}
	}
}

// judge feeds every hold that was opened while the bus was away from where its
// client was, or tells it of a gap, if the bus does not know of that.
func (l *loop) judge() {
	for _, h := range l.table {
		if h == nil || h.claim == 0 || h.state >= leaving {
			continue
		}
		l.hub.mu.Lock()
		known, head := l.hub.known(h.claim), l.hub.shown(l.hub.head.Load())
		l.hub.mu.Unlock()
		last := h.claim
		h.claim = 0
		if !known {
			l.breakOff(h, last, head)
		}
		if h.state == catching {
			l.enqueue(h)
		}
	}
}

func (l *loop) breakOff(h *hold, last, position int64) {
	switch {
	case h.state == recovering: // it asks the app, and looks at the journal again then
	case h.grip() != nil:
		l.lost(h, EndBusLost)
	case h.poll != nil:
		l.counts.gaps.Add(1)
		h.cursor = position // not the head, which goes on meanwhile
		h.poll.answer = l.answerNothing(h, true)
		l.end(h, EndExpired)
	case h.socket != nil && !h.socket.envelope: // it cannot be told
		h.state = recovering // what follows is not owed
		l.end(h, EndBusLost)
	default:
		h.cursor = position
		l.tellGap(h, last, position)
	}
}

// tellGap tells a hold that something is missing between where it was and from
// where it goes on: a stream, or a socket with an envelope.
func (l *loop) tellGap(h *hold, last, from int64) {
	l.counts.gaps.Add(1)
	o := opening{last: last}
	if h.socket != nil {
		l.send(h, appendFrame(nil, opText, o.appendGap(nil, from)))
		return
	}
	chunk, data := closeChunk(appendPosition(o.appendGapEvent(make([]byte, chunkSpace, 160), from), from))
	if !h.chunked {
		chunk = data
	}
	l.send(h, chunk)
}
