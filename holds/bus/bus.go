// Package bus is how events reach every node: several Holdfast processes share
// one log, in Redis or PostgreSQL. The log is the engine's; this package is no
// engine of its own.
//
//	b, err := bus.Open("redis://127.0.0.1:6379/0?log=holdfast&keep=10m", bus.Options{})
//	ids, err := b.Publish(ctx, bodies)       // when the engine has them
//	err = b.Follow(ctx, last, follower)      // until ctx ends or the connection is lost
//
//	Publish ─► joined with others (batch.go) ─► engine: number, add, trim in one step
//	an app  ─► the engine's own function ─────►    │
//	Follow  ◄─ in order, each once (follow.go) ◄───┘  on every node, the publisher's too
//
// An entry's ID is its position: max(the last + 1000, the engine's clock in µs
// with the log's tag as its last three digits). So IDs increase though the clock
// goes back, and the tag tells the positions of another log. Each entry names
// the one before it, so that a hole is seen. Where the engine was restarted or its
// data put back, the next ID is a leap of 1,000 s away, so that none is given twice.
//
// The log is kept for Options.Keep, and up to Options.Entries. Floor is the last
// position that cannot be read any more; who comes from below it has missed something.
//
// A log may lose what was in it: flushed, restored from an old copy, its
// machine's power cut. Whoever follows from a position that the log does not know
// makes it another one (a new tag, and positions above all that it knows of):
// then no position of before is taken for one of now. Begin says so.
//
// What it will not do: it does not look into bodies, keeps nothing outside the
// engine, never publishes twice by itself, writes no log, and does not come back by
// itself: a Follow that ended is called again by its caller, after a pause of its own.
package bus

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Entry is what was published, at its position.
type Entry struct {
	ID   int64     // its position: greater than all before it; the last three digits are the log's tag
	Prev int64     // the ID of the entry before it; the log's start for the first
	At   time.Time // when the engine took it, by the engine's clock
	Body []byte    // what was published, as it was given; shared, so never changed
}

// State is where a log stands: Start ≤ Floor ≤ Head.
type State struct {
	Start int64 // of this log; another log has another
	Floor int64 // nothing up to and with it can be read any more
	Head  int64 // the last entry's ID; Start as long as there was none
}

// Tag is the last three digits of each position of this log.
func (s State) Tag() int64 { return s.Head % 1000 }

// Follower takes what the log has. Its methods are called one after the other,
// from within Follow; they may call the Bus, but not its Close.
type Follower interface {
	// Begin comes before the first entry of each Follow, and again whenever
	// something was missed. What follows it comes after the greater of the last
	// position and Floor. A Floor above the last position: entries are missing
	// between the two. Another Start: the log has become another.
	Begin(State)
	// Take has entries in order, each once, without a hole since Begin: each Prev
	// is the ID before it. At most 256, and 1 MiB of bodies or one entry. They
	// may be kept.
	Take([]Entry)
}

// Bus is a log that several processes share. Its methods may be called at once.
type Bus interface {
	// Publish adds bodies to the log, all in one step and next to each other, and
	// returns when the engine has them. It keeps them: they are not changed from then
	// on. None: nothing is done. Errors: ErrDown, ErrUnknown, ErrTooLarge, ErrClosed; the
	// error of a ctx that ended is joined to the first two.
	Publish(ctx context.Context, bodies [][]byte) (ids []int64, err error)
	// Follow hands over what is there after a position, then what comes, until ctx
	// ends (its error) or the connection is lost (ErrDown). The position is 0 (all
	// that is there), or one that this node has from the log: one that the log
	// does not know makes it another log.
	Follow(ctx context.Context, after int64, to Follower) error
	// State asks the engine; it is the health check too. Errors: ErrDown, ErrClosed.
	State(ctx context.Context) (State, error)
	// Renew makes the log another, empty one, above seen, if its head is below seen
	// still: somebody has seen what the engine has lost. Follow does this by itself.
	Renew(ctx context.Context, seen int64) error
	// Close ends every call with ErrClosed and returns when none is left.
	// What Publish had on the way may have been added (ErrUnknown). Again: nothing.
	Close() error
}

// Errors, told apart with errors.Is; their texts say more.
var (
	ErrDown     = errors.New("the bus is down") // of Publish: nothing was added
	ErrUnknown  = errors.New("the bus did not answer: what was on the way may have been added")
	ErrTooLarge = errors.New("too large for the bus: nothing was added")
	ErrClosed   = errors.New("the bus is closed") // of Publish: nothing was added

	// ErrUnprepared comes with ErrDown: the engine is there, and what Init makes is not.
	ErrUnprepared = errors.New("run holdfast bus init")
)

const (
	MaxBody   = 8 << 20  // bytes of one body
	MaxBytes  = 32 << 20 // bytes of the bodies of one Publish
	MaxBodies = 10_000   // of one Publish

	maxPosition = 9_000_000_000_000_000 // Redis' functions count exactly up to 2^53; the year 2255

	step = 1000 // between neighbours, at least; exactly, within one Publish
	// leap is the step where the engine may have had more than it has now: behind its
	// restart, a copy that was put back, a replica's promotion. A log that is ahead of
	// the clock would else give the same numbers again, to others, and nobody could
	// tell. It passes over a million that were lost.
	leap = 1_000_000_000
)

// fits checks the bounds of one Publish.
func fits(bodies [][]byte) error {
	if len(bodies) > MaxBodies {
		return fmt.Errorf("%w: %d bodies in one publish, at most %d", ErrTooLarge, len(bodies), MaxBodies)
	}
	bytes := 0
	for i, b := range bodies {
		if len(b) > MaxBody {
			return fmt.Errorf("%w: body %d has %d bytes, at most %d", ErrTooLarge, i, len(b), MaxBody)
		}
		bytes += len(b)
	}
	if bytes > MaxBytes {
		return fmt.Errorf("%w: %d bytes in one publish, at most %d", ErrTooLarge, bytes, MaxBytes)
	}
	return nil
}

// positioned refuses what no log gives as a position.
func positioned(at int64) error {
	if at < 0 || at > maxPosition {
		return fmt.Errorf("%d is no position of a log: 0 to %d are", at, maxPosition)
	}
	return nil
}

// neighbours are the IDs of n entries that were added in one step, by the last of them.
func neighbours(last int64, n int) []int64 {
	ids := make([]int64, n)
	for i := range ids {
		ids[i] = last - int64(n-1-i)*step
	}
	return ids
}

// Open gives the bus of a URL (see Parse). It asks no engine, which may be down
// now and up later: State tells.
func Open(url string, o Options) (Bus, error) {
	c, err := Parse(url, o)
	if err != nil {
		return nil, err
	}
	return c.Open(), nil
}

// Init prepares the engine of a URL, and says in lines what it did. It may be
// done again at any time; for Redis it is done by itself.
func Init(ctx context.Context, url string, o Options) ([]string, error) {
	c, err := Parse(url, o)
	if err != nil {
		return nil, err
	}
	switch c.Kind {
	case "redis":
		return initRedis(ctx, c)
	case "postgres":
		return initPostgres(ctx, c)
	}
	return []string{"bus memory: there is nothing to prepare; it is this process alone"}, nil
}
