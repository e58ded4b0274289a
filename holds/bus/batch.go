package bus

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

const (
	batchBodies = 1000    // of several publishes that are joined
	batchBytes  = 4 << 20 // of their bodies; one publish alone may have more

	waitingCalls = 10_000   // publishes that wait for the engine; one more is refused
	waitingBytes = 64 << 20 // of their bodies
)

// batcher joins the publishes of this process: while some are on the way to the
// engine, those that come wait, and go together. They go in the order of coming.
type batcher struct {
	// add has the engine add bodies in one step and gives the last one's ID.
	add  func(ctx context.Context, bodies [][]byte) (last int64, err error)
	life *life

	mu      sync.Mutex
	sending bool
	waiting []*publish
	bytes   int // of the bodies that wait
}

// publish is one call that waits, or is on the way.
type publish struct {
	bodies [][]byte
	bytes  int
	done   chan struct{} // closed behind ids and err

	ids []int64
	err error

	onTheWay bool // guarded by the batcher's mu
}

// publish is Bus.Publish.
func (b *batcher) publish(ctx context.Context, bodies [][]byte) ([]int64, error) {
	if err := fits(bodies); err != nil || len(bodies) == 0 {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, downed(err)
	}
	p := &publish{bodies: bodies, done: make(chan struct{})}
	for _, body := range bodies {
		p.bytes += len(body)
	}
	if err := b.enqueue(p); err != nil {
		return nil, err
	}
	select {
	case <-p.done:
		return p.ids, p.err
	case <-ctx.Done():
	}
	if b.withdraw(p) {
		return nil, downed(ctx.Err())
	}
	select {
	case <-p.done: // the answer came at the same time
		return p.ids, p.err
	default:
		return nil, &causedError{ErrUnknown, ctx.Err()}
	}
}

// enqueue has a publish wait, and somebody send it.
func (b *batcher) enqueue(p *publish) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) >= waitingCalls || b.bytes+p.bytes > waitingBytes {
		return downed(fmt.Errorf("%d publishes of %d bytes wait already, at most %d of %d: the engine is slower than they come",
			len(b.waiting), b.bytes, waitingCalls, waitingBytes))
	}
	if !b.sending {
		if !b.life.add() {
			return ErrClosed
		}
		b.sending = true
		go b.send()
	}
	b.waiting = append(b.waiting, p)
	b.bytes += p.bytes
	return nil
}

// withdraw takes a publish back; false: it is on the way, or was answered.
func (b *batcher) withdraw(p *publish) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.onTheWay {
		return false
	}
	for i, w := range b.waiting {
		if w == p {
			b.waiting = append(b.waiting[:i], b.waiting[i+1:]...)
			b.bytes -= p.bytes
			return true
		}
	}
	return false
}

// send sends what waits until nothing does.
func (b *batcher) send() {
	defer b.life.calls.Done()
	for {
		joined := b.next()
		if joined == nil {
			return
		}
		var bodies [][]byte
		for _, p := range joined {
			bodies = append(bodies, p.bodies...)
		}
		last, err := b.round(bodies)
		if err == nil {
			settle(joined, neighbours(last, len(bodies)), nil)
			continue
		}
		settle(joined, nil, err)
		if errors.Is(err, ErrDown) || errors.Is(err, ErrClosed) {
			// Nobody is to wait once more for what has just failed.
			settle(b.giveUp(), nil, err)
		}
	}
}

// round is one way to the engine and back.
func (b *batcher) round(bodies [][]byte) (last int64, err error) {
	if b.life.done.Err() != nil {
		return 0, ErrClosed
	}
	ctx, cancel := context.WithTimeout(b.life.done, answerTime)
	defer cancel()
	return b.add(ctx, bodies)
}

// next takes those that go together; nil: nobody waits, and the sender ends.
func (b *batcher) next() []*publish {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, bodies, bytes := 0, 0, 0
	for _, p := range b.waiting {
		if n > 0 && (bodies+len(p.bodies) > batchBodies || bytes+p.bytes > batchBytes) {
			break
		}
		p.onTheWay = true
		n, bodies, bytes = n+1, bodies+len(p.bodies), bytes+p.bytes
	}
	if n == 0 {
		b.sending, b.waiting = false, nil
		return nil
	}
	joined := b.waiting[:n:n]
	b.waiting = b.waiting[n:]
	b.bytes -= bytes
	return joined
}

// giveUp takes all that wait.
func (b *batcher) giveUp() []*publish {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.waiting
	for _, p := range all {
		p.onTheWay = true
	}
	b.waiting, b.bytes = nil, 0
	return all
}

// settle answers publishes that went together.
func settle(joined []*publish, ids []int64, err error) {
	for _, p := range joined {
		if err == nil {
			p.ids, ids = ids[:len(p.bodies):len(p.bodies)], ids[len(p.bodies):]
		}
		p.err = err
		close(p.done)
	}
}
