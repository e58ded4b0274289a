package bus

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

const (
	takeEntries = 256     // in one Take
	takeBytes   = 1 << 20 // of bodies in one Take, or one entry that is larger
)

// leastPoll is the least that pollTime gives; tests set it.
var leastPoll = 4 * time.Second

// pollTime is how long a follower waits without a word before it looks by
// itself: an engine that lost its data, or a word, says nothing. Jittered, so
// that nodes do not look together.
func pollTime() time.Duration { return leastPoll + rand.N(leastPoll/2) }

// look is one look at a log from a position, at one instant.
type look struct {
	state   State
	known   bool    // the position is an entry's, or not above Floor
	entries []Entry // after the position; the first few
}

// source is an engine as one follower sees it.
type source interface {
	read(ctx context.Context, after int64) (look, error)
	// renew makes the log another, if it does not know this position still.
	renew(ctx context.Context, unknown int64) error
	// wait returns when there may be something after a position: with the first
	// of it, where the engine tells that too.
	wait(ctx context.Context, after int64) ([]Entry, error)
}

// following is one Follow.
type following struct {
	from  source
	to    Follower
	last  int64 // position of what was taken last
	begun bool
	start int64 // of the log that was begun with
}

// follow hands over what an engine has until ctx ends or the engine fails.
func follow(ctx context.Context, from source, after int64, to Follower) error {
	f := following{from: from, to: to, last: after}
	for {
		if err := f.catchUp(ctx); err != nil {
			return whyEnded(ctx, downed(err))
		}
		entries, err := f.from.wait(ctx, f.last)
		if err != nil {
			return whyEnded(ctx, downed(err))
		}
		if f.joins(entries) { // else the next look tells what happened
			f.hand(entries)
		}
	}
}

// catchUp hands over what there is, until there is no more.
func (f *following) catchUp(ctx context.Context) error {
	for renewed := false; ; {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		l, err := f.from.read(ctx, f.last)
		switch {
		case err != nil:
			return err
		case !l.known && renewed:
			return fmt.Errorf("the log does not know the position %d, and was not made another", f.last)
		case !l.known:
			// It has lost what this follower saw, so somebody else may have seen more
			// than there is now: no position of before may count.
			if err := f.from.renew(ctx, f.last); err != nil {
				return err
			}
			renewed = true
			continue
		}
		if !f.begun || l.state.Start != f.start || l.state.Floor > f.last {
			f.begin(l.state)
		}
		if len(l.entries) == 0 {
			return nil
		}
		if err := f.take(l); err != nil {
			return err
		}
	}
}

// begin tells the follower where the log stands.
func (f *following) begin(s State) {
	f.to.Begin(s)
	f.begun, f.start = true, s.Start
	f.last = max(f.last, s.Floor)
}

// take hands over what was read. A hole in it was made by hand: it is told as if
// the log began there.
func (f *following) take(l look) error {
	from := 0
	for i, e := range l.entries {
		before := f.last
		if i > from {
			before = l.entries[i-1].ID
		}
		switch {
		case e.Prev == before:
			continue
		case e.Prev < before:
			return fmt.Errorf("entry %d names %d as the one before it, which was %d: the log was changed by hand", e.ID, e.Prev, before)
		}
		f.hand(l.entries[from:i])
		f.begin(State{Start: l.state.Start, Floor: e.Prev, Head: l.state.Head})
		from = i
	}
	f.hand(l.entries[from:])
	return nil
}

// joins reports whether entries follow the last one without a hole.
func (f *following) joins(entries []Entry) bool {
	at := f.last
	for _, e := range entries {
		if e.Prev != at {
			return false
		}
		at = e.ID
	}
	return true
}

// hand hands entries over.
func (f *following) hand(entries []Entry) {
	if len(entries) > 0 {
		f.to.Take(entries)
		f.last = entries[len(entries)-1].ID
	}
}

// errAway is the end of a wait in an engine that went away.
var errAway = errors.New("the engine is away")
