package bus

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"
)

// redisLibrary is the functions that do each step in the engine. What is in the
// stream and the hash, and holdfast_publish, are an interface for others.
//
//go:embed publish.lua
var redisLibrary string

// redisBus is a log in Redis 7 or later: a single node's stream, which the
// functions of publish.lua number, add to and trim.
type redisBus struct {
	config *Config
	life   *life
	batch  *batcher

	publishing redisLink // the sender's alone
	askMu      sync.Mutex
	asking     redisLink // State's and Renew's
}

// quiet keeps the driver from writing to standard error: what it says there is in
// the errors that it returns.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

var silence = sync.OnceFunc(func() { redis.SetLogger(quiet{}) })

func openRedis(c *Config) *redisBus {
	silence()
	r := &redisBus{config: c, life: newLife()}
	r.publishing.config, r.asking.config = c, c
	r.batch = &batcher{life: r.life, add: r.add}
	return r
}

// initRedis loads the functions and makes the log.
func initRedis(ctx context.Context, c *Config) ([]string, error) {
	link := redisLink{config: c}
	defer link.drop()
	if err := link.ready(ctx); err != nil {
		return nil, downed(err)
	}
	did := "the functions were there"
	if link.loaded {
		did = "functions loaded"
	}
	s, err := link.open(ctx)
	if err != nil {
		return nil, downed(err)
	}
	return []string{fmt.Sprintf("bus %s: %s; keeps %s and %d entries; its head is %d", c, did, c.Keep, c.Entries, s.Head)}, nil
}

// Publish is Bus.Publish.
func (r *redisBus) Publish(ctx context.Context, bodies [][]byte) ([]int64, error) {
	return r.batch.publish(ctx, bodies)
}

// add is the batcher's.
func (r *redisBus) add(ctx context.Context, bodies [][]byte) (int64, error) {
	if err := r.publishing.ready(ctx); err != nil {
		return 0, downed(err)
	}
	args := append(make([]any, 0, len(bodies)+2), r.config.Keep.Microseconds(), r.config.Entries)
	for _, b := range bodies {
		args = append(args, b)
	}
	answer, err := r.publishing.call(ctx, "holdfast_add", args...)
	if err != nil {
		if errors.Is(err, ErrDown) || isReply(err) {
			return 0, downed(err) // the function is one step, and it was not done
		}
		return 0, &causedError{ErrUnknown, err}
	}
	last, ok := answer.(int64)
	if !ok {
		return 0, &causedError{ErrUnknown, fmt.Errorf("holdfast_add answered %T", answer)}
	}
	return last, nil
}

// Follow is Bus.Follow.
func (r *redisBus) Follow(ctx context.Context, after int64, to Follower) error {
	if err := positioned(after); err != nil {
		return err
	}
	ctx, leave, err := r.life.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	f := &redisFollower{redisLink: redisLink{config: r.config}}
	defer f.drop()
	if err := f.ready(ctx); err != nil {
		return whyEnded(ctx, downed(err))
	}
	return follow(ctx, f, after, to)
}

// State is Bus.State.
func (r *redisBus) State(ctx context.Context) (s State, err error) {
	err = r.ask(ctx, func(ctx context.Context, link *redisLink) error {
		l, err := link.read(ctx, 0, 0)
		s = l.state
		return err
	})
	return s, err
}

// Renew is Bus.Renew.
func (r *redisBus) Renew(ctx context.Context, seen int64) error {
	if err := positioned(seen); err != nil {
		return err
	}
	return r.ask(ctx, func(ctx context.Context, link *redisLink) error {
		_, err := link.call(ctx, "holdfast_renew", seen, 0)
		return err
	})
}

// ask asks the engine on the connection for that, one after the other.
func (r *redisBus) ask(ctx context.Context, what func(context.Context, *redisLink) error) error {
	ctx, leave, err := r.life.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	r.askMu.Lock()
	defer r.askMu.Unlock()
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	if err := r.asking.ready(ctx); err != nil {
		return whyEnded(ctx, downed(err))
	}
	return whyEnded(ctx, downed(what(ctx, &r.asking)))
}

// Close is Bus.Close.
func (r *redisBus) Close() error {
	if r.life.close() {
		r.publishing.drop()
		r.asking.drop()
	}
	return nil
}
