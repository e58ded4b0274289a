package bus

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain ends what the tests started; no goroutine may be left then.
func TestMain(m *testing.M) {
	code := m.Run()
	stopEngines()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// patience is how long a test waits for what must come.
const patience = 30 * time.Second

// stage is one log in one engine, and what a test does to it.
type stage struct {
	t       *testing.T
	name    string                               // of the log
	url     string                               // of the bus, over the way that can be cut
	address string                               // of that way
	open    func(t *testing.T, query string) Bus // a further node's bus on the same log
	// apart is open, over a way that is not cut.
	apart func(t *testing.T, query string) Bus
	cut   func()          // breaks each connection to the engine
	hold  func(hold bool) // takes what is sent to the engine and hands over nothing
	mute  func(mute bool) // breaks the next connection on which the engine answers
	// flush loses the log, all of it. save keeps a copy, restore brings it back in place.
	flush         func()
	save, restore func()
}

// engine is a kind of bus that the conformance tests run on.
type engine struct {
	name  string
	stage func(t *testing.T) *stage
}

var engines = []engine{{"memory", memoryStage}, {"redis", redisStage}, {"postgres", postgresStage}}

// onEach runs a test on each engine.
func onEach(t *testing.T, test func(t *testing.T, s *stage)) {
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) { test(t, e.stage(t)) })
	}
}

// memoryStage is a log in this process.
func memoryStage(t *testing.T) *stage {
	var first *Memory
	s := &stage{t: t}
	s.open = func(t *testing.T, query string) Bus {
		b, err := Open("memory?"+query, Options{})
		must(t, err)
		m := b.(*Memory)
		if first == nil {
			first = m
		} else {
			m.Close()
			m = first.Another()
		}
		t.Cleanup(func() { m.Close() })
		return m
	}
	s.apart = s.open
	var saved int64
	s.cut = func() { first.Away(true); first.Away(false) }
	s.flush = func() { first.Flush() }
	s.save = func() { saved = stateOf(t, first).Head }
	s.restore = func() { first.Restore(saved) }
	return s
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func ctxOf(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func stateOf(t *testing.T, b Bus) State {
	t.Helper()
	s, err := b.State(ctxOf(t))
	must(t, err)
	if s.Start > s.Floor || s.Floor > s.Head || s.Start%1000 != s.Tag() || s.Floor%1000 != s.Tag() {
		t.Fatalf("state %+v is none: Start ≤ Floor ≤ Head, and one tag", s)
	}
	return s
}

// publish publishes one body for each argument, in one step.
func publishNow(t *testing.T, b Bus, bodies ...string) []int64 {
	t.Helper()
	ids, err := b.Publish(ctxOf(t), byteBodies(bodies))
	must(t, err)
	if len(ids) != len(bodies) {
		t.Fatalf("%d ids for %d bodies", len(ids), len(bodies))
	}
	return ids
}

func byteBodies(bodies []string) (all [][]byte) {
	for _, b := range bodies {
		all = append(all, []byte(b))
	}
	return all
}

// seen is a Follower that remembers, and checks what every follower relies on.
type seen struct {
	mu      sync.Mutex
	changed chan struct{}
	begun   []State
	entries []Entry
	gaps    int // Begin told that entries are missing
	last    int64
	faults  []string
}

func newSeen(after int64) *seen { return &seen{last: after, changed: make(chan struct{})} }

func (f *seen) Begin(s State) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.Floor > f.last {
		f.gaps++
		f.last = s.Floor
	}
	f.begun = append(f.begun, s)
	f.tell()
}

func (f *seen) Take(entries []Entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	bytes := 0
	for _, e := range entries {
		if len(f.begun) == 0 {
			f.faults = append(f.faults, "Take before Begin")
		} else if tag := f.begun[len(f.begun)-1].Tag(); e.ID%1000 != tag {
			f.faults = append(f.faults, fmt.Sprintf("entry %d has not the tag %d", e.ID, tag))
		}
		if e.Prev != f.last || e.ID <= e.Prev {
			f.faults = append(f.faults, fmt.Sprintf("entry %d after %d has prev %d", e.ID, f.last, e.Prev))
		}
		f.last = e.ID
		bytes += len(e.Body)
	}
	if len(entries) == 0 || len(entries) > takeEntries || len(entries) > 1 && bytes > takeBytes {
		f.faults = append(f.faults, fmt.Sprintf("Take of %d entries and %d bytes", len(entries), bytes))
	}
	f.entries = append(f.entries, entries...)
	f.tell()
}

func (f *seen) tell() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// until waits until something is so.
func (f *seen) until(t *testing.T, what string, so func() bool) {
	t.Helper()
	late := time.After(patience)
	for {
		f.mu.Lock()
		changed, ok, n := f.changed, so(), len(f.entries)
		f.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-late:
			t.Fatalf("%s: not so; %d entries, begun %+v, last %d", what, n, f.begun, f.last)
		}
	}
}

// untilBody waits for an entry with a body.
func (f *seen) untilBody(t *testing.T, body string) {
	t.Helper()
	f.until(t, "body "+body, func() bool {
		return slices.ContainsFunc(f.entries, func(e Entry) bool { return string(e.Body) == body })
	})
}

// bodies gives what was taken; it fails the test if a rule was broken.
func (f *seen) bodies(t *testing.T) (all []string) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, fault := range f.faults {
		t.Error(fault)
	}
	for _, e := range f.entries {
		all = append(all, string(e.Body))
	}
	return all
}

// ids gives the positions that were taken.
func (f *seen) ids() (all []int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.entries {
		all = append(all, e.ID)
	}
	return all
}

// position is the last that was taken or told.
func (f *seen) position() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

// wantBodies compares what was taken.
func (f *seen) wantBodies(t *testing.T, want []string) {
	t.Helper()
	if got := f.bodies(t); !slices.Equal(got, want) {
		t.Errorf("followed %s, want %s", short(got), short(want))
	}
}

func short(all []string) string {
	cut := slices.Clone(all)
	for i := range cut {
		if len(cut[i]) > 20 {
			cut[i] = cut[i][:20] + "…"
		}
	}
	if len(cut) > 30 {
		return fmt.Sprintf("%q… (%d)", cut[:30], len(cut))
	}
	return fmt.Sprintf("%q", cut)
}

// follow follows until the test's end or stop; a broken connection is come back
// from, as a node does.
func followNow(t *testing.T, b Bus, after int64) (f *seen, stop func()) {
	f = newSeen(after)
	return f, followWith(t, b, f)
}

func followWith(t *testing.T, b Bus, f *seen) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			err := b.Follow(ctx, f.position(), f)
			if ctx.Err() == nil && !errors.Is(err, ErrDown) {
				t.Errorf("Follow: %v", err)
				return
			}
			pause(ctx)
		}
	}()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(stop)
	return stop
}

// pause is a node's back-off.
func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(10 * time.Millisecond):
	}
}

// pollSoon has followers look by themselves after a moment, in this test.
func pollSoon(t *testing.T) {
	poll, answer := leastPoll, answerTime
	leastPoll, answerTime = 50*time.Millisecond, time.Second
	t.Cleanup(func() { leastPoll, answerTime = poll, answer })
}

// freePort is a port that is free now.
func freePort() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "0"
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// proxy is a way to an engine that can be cut.
type proxy struct {
	to   func() (net.Conn, error)
	l    net.Listener
	mu   sync.Mutex
	open map[net.Conn]bool
	hold atomic.Bool // forward nothing to the engine
	mute atomic.Bool // break a connection instead of forwarding from it
	all  sync.WaitGroup
}

func newProxy(t *testing.T, to func() (net.Conn, error)) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	p := &proxy{to: to, l: l, open: map[net.Conn]bool{}}
	p.all.Go(p.accept)
	t.Cleanup(func() { l.Close(); p.cut(); p.all.Wait() })
	return p
}

func (p *proxy) accept() {
	for {
		c, err := p.l.Accept()
		if err != nil {
			return
		}
		p.all.Go(func() { p.serve(c) })
	}
}

func (p *proxy) serve(c net.Conn) {
	defer c.Close()
	far, err := p.to()
	if err != nil {
		return
	}
	defer far.Close()
	p.mu.Lock()
	p.open[c], p.open[far] = true, true
	p.mu.Unlock()
	p.all.Go(func() { p.copy(c, far, &p.mute, true); c.Close(); far.Close() })
	p.copy(far, c, &p.hold, false)
	p.mu.Lock()
	delete(p.open, c)
	delete(p.open, far)
	p.mu.Unlock()
}

// copy forwards; while not is set it throws away what comes, or ends once.
func (p *proxy) copy(to, from net.Conn, not *atomic.Bool, ends bool) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		switch {
		case err != nil || ends && not.CompareAndSwap(true, false): // once
			return
		case not.Load():
			continue
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// cut breaks each connection, with a reset.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.open {
		if tcp, ok := c.(*net.TCPConn); ok {
			tcp.SetLinger(0)
		}
		c.Close()
	}
}

func (p *proxy) address() string { return p.l.Addr().String() }
