package upstream

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Target is one address of an upstream, and one process behind it.
type Target struct {
	// fixed
	address Address
	name    *hostName // how the address is found; nil: it is one already
	changed func(Change)
	ctx     context.Context // ends the prober
	cancel  context.CancelFunc
	prober  sync.WaitGroup
	first   chan struct{} // closed at the first answer

	cfg   atomic.Pointer[Config] // a reload swaps it
	asked atomic.Int32           // askings that are still out
	keeps atomic.Bool            // a connection of it has carried two exchanges
	heard atomic.Int64           // when the last answer ended, in Unix nanoseconds

	mu       sync.Mutex
	up       bool
	answered bool // it has answered one exchange
	accepted bool // it has taken a connection
	asking   bool // it has taken one and was asked, and has not answered yet
	probing  bool
	since    time.Time // of the present state
	err      error     // the last failure
	watchers map[int]func()
	watched  int // how many there have been
}

func newTarget(address Address, cfg Config, changed func(Change)) *Target {
	t := &Target{address: address, changed: changed, first: make(chan struct{}), since: time.Now()}
	t.cfg.Store(&cfg)
	t.name = newHostName(address, &t.cfg)
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

func (t *Target) config() *Config { return t.cfg.Load() }

// Heard is when the target's last answer ended; zero before the first.
func (t *Target) Heard() time.Time {
	if nanos := t.heard.Load(); nanos > 0 {
		return time.Unix(0, nanos)
	}
	return time.Time{}
}

// Addr is where the target listens: host:port, or a path.
func (t *Target) Addr() string { return t.address.Addr }

// Asked notes that an asking is out, until over is called, once.
func (t *Target) Asked() (over func()) {
	t.asked.Add(1)
	return func() { t.asked.Add(-1) }
}

// IsAsked reports whether an asking is still out.
func (t *Target) IsAsked() bool { return t.asked.Load() > 0 }

// String is the target as configured.
func (t *Target) String() string { return t.address.Text }

// Park is how long requests wait for the target while it is down.
func (t *Target) Park() time.Duration { return t.config().Park }

// AbandonLimit is after how long an abandoned slot at the target is freed.
func (t *Target) AbandonLimit() time.Duration { return t.config().AbandonLimit }

// KeepAlive reports whether connections to the target may be used again.
func (t *Target) KeepAlive() bool { return !t.config().KeepAliveOff }

// State is a copy of what is known of a target.
type State struct {
	Up       bool
	Answered bool      // it has answered an exchange since we started
	Accepted bool      // it has taken a connection since we started
	Asking   bool      // it has been asked, and has not answered yet
	Since    time.Time // of the present state; of the start, before the first answer
	Err      error     // the last failure; nil if there was none
}

// State says whether the target is up, and since when.
func (t *Target) State() State {
	t.mu.Lock()
	defer t.mu.Unlock()
	return State{Up: t.up, Answered: t.answered, Accepted: t.accepted, Asking: t.asking, Since: t.since, Err: t.err}
}

// Watch calls f after each change, with no lock of the target held, and once
// now. Two calls may overlap or come late, so f asks State what is true. It is
// called until unwatch, and perhaps once more at that moment.
func (t *Target) Watch(f func()) (unwatch func()) {
	t.mu.Lock()
	t.watched++
	id := t.watched
	if t.watchers == nil {
		t.watchers = make(map[int]func())
	}
	t.watchers[id] = f
	t.mu.Unlock()
	f()
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.watchers, id)
	}
}

// Fail says that a connection could not be had: the target is down, and its
// prober looks when it is back. A target that is down already stays as it is.
func (t *Target) Fail(err error) {
	t.set(false, err)
	t.startProber()
}

// Answered says that the target is known to answer, so that it need not be
// asked first.
func (t *Target) Answered() { t.set(true, nil) }

// set changes the state and tells who watches.
func (t *Target) set(up bool, err error) {
	t.mu.Lock()
	if err != nil {
		t.err = err
	}
	first := up && !t.answered
	t.answered = t.answered || up
	if first {
		defer close(t.first) // when all who watch know
	}
	if t.up == up {
		t.mu.Unlock()
		return
	}
	now := time.Now()
	change := Change{Target: t.address.Text, Up: up, After: now.Sub(t.since), Err: err}
	t.up, t.since = up, now
	watchers := slices.Collect(maps.Values(t.watchers))
	t.mu.Unlock()
	for _, f := range watchers {
		f()
	}
	if t.changed != nil {
		t.changed(change)
	}
}

func (t *Target) close() {
	t.mu.Lock()
	t.cancel() // no prober starts from here on
	t.mu.Unlock()
	t.prober.Wait()
}

// AwaitAnswer waits until the target has answered once; false: ctx ended first.
func (t *Target) AwaitAnswer(ctx context.Context) bool {
	select {
	case <-t.first:
		return true
	case <-ctx.Done():
		return false
	}
}
