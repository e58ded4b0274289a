package load

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"holdfast/bench/peer"
)

const pause = 5 * time.Millisecond // between two requests of a measuring connection

// Failures counts errors by their text, addresses and ports taken out.
type Failures struct {
	mu     sync.Mutex
	counts map[string]int
}

func (f *Failures) add(view string, err error) {
	var network *net.OpError
	if errors.As(err, &network) {
		err = errors.New(network.Op + ": " + network.Err.Error())
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.counts == nil {
		f.counts = map[string]int{}
	}
	f.counts[view+": "+err.Error()]++
}

// Counts are the errors so far, by view and text; nil where there was none.
func (f *Failures) Counts() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.counts)
}

// Measure asks path on several connections until length is over and returns
// what each answer took. A request begun in time is waited for and counted:
// leaving it out would hide just the slow ones.
func Measure(ctx context.Context, address, path string, connections int, length time.Duration, failed *Failures) []time.Duration {
	return MeasureWithin(ctx, address, path, connections, length, answerWithin, failed)
}

// MeasureWithin is Measure where an answer that takes longer than within is an
// error.
func MeasureWithin(ctx context.Context, address, path string, connections int, length, within time.Duration, failed *Failures) []time.Duration {
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	took := make([][]time.Duration, connections)
	var running sync.WaitGroup
	for i := range connections {
		running.Go(func() { took[i] = measureOne(ctx, address, path, within, failed) })
	}
	running.Wait()
	var all []time.Duration
	for _, one := range took {
		all = append(all, one...)
	}
	return all
}

func measureOne(ctx context.Context, address, path string, within time.Duration, failed *Failures) []time.Duration {
	c := client{address: address, within: within}
	defer c.close()
	var all []time.Duration
	tick := time.NewTimer(0)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return all
		case <-tick.C:
		}
		if took, err := c.get(path); err != nil {
			failed.add("fast", err)
		} else {
			all = append(all, took)
		}
		tick.Reset(pause)
	}
}

// Blockers keep the slow view busy: each asks again as soon as it is answered.
type Blockers struct {
	stop    context.CancelFunc
	running sync.WaitGroup
	failed  *Failures

	mu       sync.Mutex
	finished []time.Time // when an answer of the slow view was whole
}

// Block starts them.
func Block(ctx context.Context, address, path string, connections int, failed *Failures) *Blockers {
	ctx, stop := context.WithCancel(ctx)
	b := &Blockers{stop: stop, failed: failed}
	for range connections {
		b.running.Go(func() { b.loop(ctx, address, path) })
	}
	return b
}

func (b *Blockers) loop(ctx context.Context, address, path string) {
	c := client{address: address}
	defer c.close()
	for ctx.Err() == nil {
		if _, err := c.get(path); err != nil {
			b.failed.add("slow", err)
			select { // not a busy loop against a peer that refuses
			case <-ctx.Done():
			case <-time.After(10 * pause):
			}
			continue
		}
		b.mu.Lock()
		b.finished = append(b.finished, time.Now())
		b.mu.Unlock()
	}
}

// Finish lets each blocker have its last answer, so that nothing of this row
// runs in the app when the next one begins.
func (b *Blockers) Finish() {
	b.stop()
	b.running.Wait()
}

// Between counts the slow views that finished in a span.
func (b *Blockers) Between(from, to time.Time) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, at := range b.finished {
		if at.After(from) && !at.After(to) {
			n++
		}
	}
	return n
}

// Millis is a quantile of what answers took, in milliseconds.
func Millis(took []time.Duration, q float64) float64 {
	return float64(peer.Quantile(slices.Sorted(slices.Values(took)), q).Microseconds()) / 1000
}
