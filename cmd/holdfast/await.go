package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"holdfast/upstream"
)

// awaitTargets returns nil when every target of every upstream in use has
// answered once, or ctx has ended. A target that has not within its
// upstream's start_timeout is the error: all lanes or none.
func (w *wiring) awaitTargets(ctx context.Context) error {
	failed := make(chan error, len(w.upstreams))
	waiting := 0
	for _, name := range w.config.upstreamNames() {
		if lane := w.config.laneOn(name); lane != "" {
			waiting++
			go w.awaitUpstream(ctx, name, lane, failed)
		}
	}
	for ; waiting > 0; waiting-- {
		if err := <-failed; err != nil {
			return err
		}
	}
	return nil
}

// laneOn names the first lane on an upstream; "" if there is none.
func (c *fileConfig) laneOn(upstream string) string {
	for _, name := range c.laneNames() {
		if c.Lanes[name].Upstream == upstream {
			return name
		}
	}
	return ""
}

// awaitUpstream waits for one upstream's targets and reports once.
func (w *wiring) awaitUpstream(ctx context.Context, name, lane string, report chan<- error) {
	if limit := time.Duration(w.config.Upstreams[name].StartTimeout); limit > 0 {
		timed, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		for _, target := range w.upstreams[name].Targets() {
			if !target.AwaitAnswer(timed) && ctx.Err() == nil {
				report <- startError(name, lane, target, limit)
				return
			}
		}
	} else {
		for _, target := range w.upstreams[name].Targets() {
			target.AwaitAnswer(ctx)
		}
	}
	report <- nil
}

// startError says which target did not come up, and how.
func startError(name, lane string, target *upstream.Target, limit time.Duration) error {
	state := target.State()
	where := fmt.Sprintf("lane %s: target %s", lane, target)
	switch {
	case state.Asking, errors.Is(state.Err, upstream.ErrTimeout), errors.Is(state.Err, upstream.ErrInterrupted):
		return fmt.Errorf("%s accepted a connection but has not answered within %v; is the app still starting? raise upstreams.%s.start_timeout, or see the app's own log", where, limit, name)
	case state.Accepted:
		return fmt.Errorf("%s accepted connections and then failed, within %v (%v); the app ended while starting: see its own log", where, limit, state.Err)
	}
	return fmt.Errorf("%s refused every connection for %v (%v); start the app, or correct upstreams.%s.targets", where, limit, state.Err, name)
}
