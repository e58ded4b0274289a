package lanes

import (
	"context"
	"time"

	"holdfast/upstream"
)

// slotState is what a slot is doing. Guarded by the lane's mu.
type slotState uint8

const (
	free slotState = iota
	busy
	abandoned // its client's part is over, the upstream's is not
)

func (s slotState) String() string { return [...]string{"free", "busy", "abandoned"}[s] }

// usedLately is how long after its last exchange a connection may still carry
// a request that must not be sent twice: app servers close idle connections
// after one second at the earliest (gunicorn's default is two).
const usedLately = 500 * time.Millisecond

// viewEnds is how long a slot stays taken after its connection was closed
// under a view whose end cannot be seen.
const viewEnds = time.Second

// Slot is one place at one target, with at most one connection of its own.
type Slot struct {
	// fixed
	lane   *Lane
	place  *place
	number int

	// guarded by the lane's mu
	state   slotState
	since   time.Time
	retired bool // taken away by a reload, once it is given back

	// the holder's, while it is not free
	conn     *upstream.Conn
	deadline time.Time // the read deadline that conn has
	waited   time.Duration
	giveUp   time.Time // when the holder's request would have stopped waiting; zero: it did not wait
}

// Lane is the lane the slot is of.
func (s *Slot) Lane() *Lane { return s.lane }

// Waited is how long its holder waited for it.
func (s *Slot) Waited() time.Duration { return s.waited }

// Number is the slot's number in its lane, from 0.
func (s *Slot) Number() int { return s.number }

// Target is the target the slot is at.
func (s *Slot) Target() *upstream.Target { return s.place.target }

// Release gives the slot back unused. Do takes that duty over.
func (s *Slot) Release() { s.releaseAt(time.Now()) }

// releaseAt gives it back where the time is known.
func (s *Slot) releaseAt(now time.Time) {
	s.lane.mu.Lock()
	defer s.lane.mu.Unlock()
	s.lane.put(s, now)
}

// abandon marks the slot: its client's part is over.
func (s *Slot) abandon() {
	s.lane.mu.Lock()
	defer s.lane.mu.Unlock()
	s.state = abandoned
	s.since = time.Now()
	s.lane.abandoned++
}

// closeUnderView closes the connection although the view may go on: its end
// cannot be seen any more, so the slot is free a second later, and that is counted.
func (s *Slot) closeUnderView() {
	s.closeConn()
	s.lane.mu.Lock()
	s.lane.closedOnView++
	s.lane.mu.Unlock()
	time.AfterFunc(viewEnds, s.Release)
}

func (s *Slot) closeConn() {
	if s.conn != nil {
		s.conn.Close()
		s.conn = nil
	}
}

// connect gives the slot's connection: the one it has, if that may carry this
// request, or a new one. again: the request may be sent a second time; any
// other goes on a used one only where that is all but certain to be open.
func (s *Slot) connect(again bool) (*upstream.Conn, error) {
	if s.conn != nil {
		if !s.conn.Moved() && (again || s.conn.Kept() && time.Since(s.conn.UsedAt()) < usedLately) && s.conn.Silent() {
			return s.conn, nil
		}
		s.closeConn()
	}
	// Not bound to the client: a client that only half-closed is still answered.
	conn, err := s.place.target.Dial(context.Background())
	if err != nil {
		return nil, err
	}
	if s.lane.cfg.Load().Stream {
		conn.KeepTrailer()
	}
	s.conn, s.deadline = conn, time.Time{}
	return conn, nil
}

// Request is what a slot sends.
type Request struct {
	// Head is whole, its empty line included; Body is the body, or the part
	// of it that is in memory, and More the rest. All stay as they are until
	// Done is called.
	Head, Body []byte
	More       upstream.Source
	// Done is called once, when nothing of the request is needed any more;
	// nil: nobody asks.
	Done func()
	// Stamp, unless it is nil, is given the head each time it is sent, right
	// before: what depends on that moment is written into it then.
	Stamp Stamper
	// Upgrade: the request asks to switch protocols, and the lane tunnels.
	Upgrade bool
	// ToHEAD: the method is HEAD, the answer has no body.
	ToHEAD bool
	// Again: the method is GET, HEAD or OPTIONS, which may be sent once more
	// if the upstream closed without a byte of answer.
	Again bool
}

// Stamper writes into a request's head what is known only when it is sent.
type Stamper interface{ Stamp(head []byte) }

// Do sends a request and gives the exchange, which owns the slot from then
// on; close it. Where the target cannot be reached, nothing was sent: Do
// waits for another slot, in front of the lane's queue, for what is left of
// the request's time. After an error the slot is given back already: a
// *Refusal, ctx's error, or an *upstream.Error.
func (s *Slot) Do(ctx context.Context, request Request) (*Exchange, error) {
	ex := &Exchange{slot: s, ctx: ctx, request: request}
	if err := ex.send(); err != nil {
		ex.requestDone()
		return nil, err
	}
	return ex, nil
}
