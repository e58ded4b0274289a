package main

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// While the engine is away nothing can be published, and nothing else is lost.

// busDown is what is said of an event that the bus did not take: nothing was
// sent, or no answer came.
var busDown = []string{"nothing was published", "it may have been published"}

func TestBus_WhileTheEngineIsAwayPublishersAreToldAndHoldsStayAndGetWhatTheyMissed(t *testing.T) {
	onEachEngine(t, func(t *testing.T, e *engine) {
		if e.kind == "postgres" {
			e.prepare()
		}
		quick := quick(t)
		started := newNode(t, fmt.Sprintf("%q", e.url), quick)
		always := newNode(t, fmt.Sprintf("{url: %q, ready: always}", e.url), quick)
		never := newNode(t, fmt.Sprintf("{url: %q, ready: never}", e.url), quick)
		nodes := []*node{started, always, never}
		var streams []*follower
		for _, n := range nodes {
			n.run()
			n.eventuallyReady()
			n.eventuallyConnected(true)
			streams = append(streams, follow(t, n.addr, granted("news")))
		}
		publishTo(t, started.publish, "news", "before")
		for _, s := range streams {
			s.wantEvent("before")
		}

		e.kill()
		for _, n := range nodes {
			n.eventuallyConnected(false)
			n.wantConnected(false)
		}
		started.wantBusDown("/publish", `{"channel": "elsewhere", "data": "on the way"}`, busDown...)
		for path, body := range map[string]string{
			"/publish":      `{"channel": "news", "data": "refused"}`,
			"/publish/news": "refused",
			"/publish/":     `{"items": [{"channel": "news", "formats": {"ws-message": {"content": "refused"}}}]}`,
			"/end":          `{"channel": "news"}`,
		} {
			started.wantBusDown(path, body, busDown[0])
		}
		started.wantReady(200)
		always.wantReady(503, "bus")
		never.wantReady(200)
		for _, s := range streams {
			s.wantHeartbeats(2)
		}
		back := followFrom(t, always.addr, granted("news"), streams[0].id)
		late := newNode(t, fmt.Sprintf("%q", e.url), quick)
		late.run()
		late.eventuallyUnready("bus")
		late.wantConnected(false)
		late.wantBusDown("/publish", `{"channel": "news", "data": "refused"}`, busDown[0])
		atLate := follow(t, late.addr, granted("news"))
		atLate.wantHeartbeats(2)
		moved := followFrom(t, late.addr, granted("news"), streams[0].id)
		moved.wantHeartbeats(2)
		if string(wantGet(t, onceClient(), "http://"+late.addr+"/view?body=served")) != "served" {
			t.Error("a node without a bus does not serve requests")
		}

		e.start()
		eventually(t, "the engine to take an event", func() bool { return e.publish("news", "meanwhile") == nil })
		streams = append(streams, back, moved)
		for i, s := range streams {
			if b, err := s.event(); err != nil || b.data != "meanwhile" {
				t.Errorf("stream %d: %q %v, want what was published meanwhile", i, b.raw, err)
			}
		}
		for _, n := range append(nodes, late) {
			n.eventuallyReady()
			n.eventuallyConnected(true)
			n.wantConnected(true)
		}
		for i, n := range append(nodes, late) {
			publishTo(t, n.publish, "news", fmt.Sprint("after ", i))
			for _, s := range streams {
				s.wantEvent(fmt.Sprint("after ", i))
			}
		}
		atLate.wantGap() // it was held by a node that knew nothing
		atLate.wantOnce("after 0", nil, []string{"meanwhile"})
		for i := range nodes {
			atLate.wantEvent(fmt.Sprint("after ", i+1))
		}
		for _, n := range nodes {
			n.wantGaps(0)
		}
		late.wantGaps(1)
	})
}

// publish publishes past every node.
func (e *engine) publish(channel, data string) error {
	if e.kind == "redis" {
		_, err := e.resp("FCALL", "holdfast_publish", "1", "holdfast", fmt.Sprintf(`{"channel": %q, "data": %q}`, channel, data))
		return err
	}
	_, err := e.psql(fmt.Sprintf("SELECT holdfast.holdfast_publish('%s', '%s')", channel, data))
	return err
}

// hole is a way to an engine that can stop to pass bytes, without a word to either side.
type hole struct {
	net.Listener
	to   string
	done sync.WaitGroup

	mu   sync.Mutex
	gate chan struct{} // closed: bytes pass
	open map[net.Conn]bool
}

func startHole(t *testing.T, to string) *hole {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &hole{Listener: ln, to: to, gate: make(chan struct{}), open: map[net.Conn]bool{}}
	close(h.gate)
	h.done.Go(h.serve)
	t.Cleanup(func() {
		ln.Close()
		h.pass()
		h.mu.Lock()
		for conn := range h.open {
			conn.Close()
		}
		h.mu.Unlock()
		h.done.Wait()
	})
	return h
}

// swallow: from now on nothing passes. What is on the way waits.
func (h *hole) swallow() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gate = make(chan struct{})
}

// pass lets all go on, also what waited.
func (h *hole) pass() {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-h.gate:
	default:
		close(h.gate)
	}
}

func (h *hole) serve() {
	for {
		in, err := h.Accept()
		if err != nil {
			return
		}
		h.done.Go(func() { h.cross(in) })
	}
}

func (h *hole) cross(in net.Conn) {
	h.await()
	out, err := net.Dial("tcp", h.to)
	if err != nil {
		in.Close()
		return
	}
	h.mu.Lock()
	h.open[in], h.open[out] = true, true
	h.mu.Unlock()
	var ways sync.WaitGroup
	ways.Go(func() { h.copy(out, in) })
	ways.Go(func() { h.copy(in, out) })
	ways.Wait()
	h.mu.Lock()
	delete(h.open, in)
	delete(h.open, out)
	h.mu.Unlock()
}

func (h *hole) await() {
	h.mu.Lock()
	gate := h.gate
	h.mu.Unlock()
	<-gate
}

func (h *hole) copy(to, from net.Conn) {
	defer to.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		h.await()
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// through is the engine's URL over another address.
func (e *engine) through(addr string) string { return strings.Replace(e.url, e.addr, addr, 1) }

func TestBus_ALinkThatPassesNothingIsFoundAndWhatWasMissedIsFed(t *testing.T) {
	onEachEngine(t, func(t *testing.T, e *engine) {
		h := startHole(t, e.addr)
		quick := quick(t)
		near := startNodes(t, e, 1, quick)[0]
		far := newNode(t, fmt.Sprintf("{url: %q, ready: always}", e.through(h.Addr().String())), quick)
		far.run()
		far.eventuallyReady()
		s := follow(t, far.addr, granted("news"))
		publishTo(t, far.publish, "news", "before")
		s.wantEvent("before")
		h.swallow()
		since := time.Now()
		far.wantBusDown("/publish", `{"channel": "news", "data": "unsure"}`, busDown...)
		t.Logf("%s: a publisher was told after %v", e.kind, time.Since(since).Round(time.Second/10))
		far.eventuallyConnected(false)
		t.Logf("%s: the link was found to be dead after %v", e.kind, time.Since(since).Round(time.Second/10))
		far.wantReady(503, "bus")
		far.wantConnected(false)
		atNear := follow(t, near.addr, granted("news"))
		publishTo(t, near.publish, "news", "meanwhile")
		atNear.wantEvent("meanwhile")
		moved := followFrom(t, far.addr, granted("news"), atNear.id) // which is not as far
		s.wantHeartbeats(2)
		h.pass()
		far.eventuallyReady()
		t.Logf("%s: it was back after %v in all", e.kind, time.Since(since).Round(time.Second/10))
		publishTo(t, far.publish, "news", "after")
		s.wantOnce("after", []string{"meanwhile"}, []string{"unsure"})
		moved.wantOnce("after", nil, []string{"unsure"})
		far.wantGaps(0)
	})
}

// wantOnce reads on to an event, before which each of some comes once, and each
// of others once at most, and nothing else.
func (f *follower) wantOnce(last string, each, may []string) {
	f.t.Helper()
	var got []string
	for {
		b, err := f.event()
		if err != nil {
			f.t.Fatal(err)
		}
		if b.data == last {
			break
		}
		got = append(got, b.data)
		if b.event == "m0-gap" || !slices.Contains(each, b.data) && !slices.Contains(may, b.data) {
			f.t.Errorf("%q, which is not expected", b.raw)
		}
	}
	slices.Sort(got)
	if len(slices.Compact(slices.Clone(got))) != len(got) {
		f.t.Errorf("%q: some came twice", got)
	}
	for _, data := range each {
		if !slices.Contains(got, data) {
			f.t.Errorf("%q: %q did not come", got, data)
		}
	}
}

func TestBus_ACutLinkIsFoundAndWhatWasMissedIsFed(t *testing.T) {
	t.Parallel()
	const address = "10.233.1.1:20379"
	home, away := newNetns(t, "bus-engine"), newNetns(t, "bus-node")
	home.link(t, away, "10.233.1", "tobus")
	e := newRedis(t, address)
	home.run(t, e.start)
	n := newNode(t, fmt.Sprintf("{url: %q, ready: always}", e.url), quick(t))
	away.run(t, n.run)
	ready := func(want int) func() bool {
		return func() bool {
			status, _, err := away.get(t, "http://"+n.addr+"/ready")
			return err == nil && status == want
		}
	}
	eventually(t, "the node to be ready", ready(200))
	var s *follower
	away.run(t, func() { s = follow(t, n.addr, granted("news")) })
	home.run(t, func() { must(t, e.publish("news", "before")) })
	s.wantEvent("before")
	cut := time.Now()
	home.ip(t, "link", "set", "tobus", "down")
	eventually(t, "the node to find it", ready(503))
	t.Logf("the cut link was found after %v", time.Since(cut).Round(time.Second/10))
	home.run(t, func() { must(t, e.publish("news", "meanwhile")) }) // over its own loopback
	s.wantHeartbeats(2)
	home.ip(t, "link", "set", "tobus", "up")
	eventually(t, "the node to be ready again", ready(200))
	t.Logf("it was back after %v in all", time.Since(cut).Round(time.Second/10))
	s.wantEvent("meanwhile")
	home.run(t, func() { must(t, e.publish("news", "after")) })
	s.wantEvent("after")
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
