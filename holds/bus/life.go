package bus

import (
	"context"
	"errors"
	"sync"
)

// life is a bus's calls, and their common end.
type life struct {
	done context.Context // ended by close
	end  context.CancelFunc

	mu     sync.Mutex
	closed bool
	calls  sync.WaitGroup // raised under mu, so that none comes behind close's look
}

func newLife() *life {
	l := &life{}
	l.done, l.end = context.WithCancel(context.Background())
	return l
}

// enter begins a call: its context ends with the caller's and with the bus.
// leave is called at the call's end.
func (l *life) enter(ctx context.Context) (_ context.Context, leave func(), _ error) {
	if !l.add() {
		return nil, nil, ErrClosed
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(l.done, func() { cancel(ErrClosed) })
	return ctx, func() { stop(); cancel(nil); l.calls.Done() }, nil
}

// add counts a call that ends by itself after close; false: too late.
func (l *life) add() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.calls.Add(1)
	return true
}

// close ends every call and waits for the last; false: it was closed before.
func (l *life) close() bool {
	l.mu.Lock()
	first := !l.closed
	l.closed = true
	l.mu.Unlock()
	l.end()
	l.calls.Wait()
	return first
}

// whyEnded is the error of a call: that its context ended says more than what
// came of it.
func whyEnded(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && err != nil {
		return cause
	}
	return err
}

// downed marks an error of the engine as one that added nothing.
func downed(err error) error {
	if err == nil || errors.Is(err, ErrDown) || errors.Is(err, ErrUnknown) || errors.Is(err, ErrClosed) || errors.Is(err, ErrTooLarge) {
		return err
	}
	return &causedError{ErrDown, err}
}

// causedError is one of this package's errors and what brought it about.
type causedError struct{ kind, cause error }

func (e *causedError) Error() string   { return e.kind.Error() + " (" + e.cause.Error() + ")" }
func (e *causedError) Unwrap() []error { return []error{e.kind, e.cause} }
