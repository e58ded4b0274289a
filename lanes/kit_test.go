package lanes_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"holdfast/lanes"
	"holdfast/upstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds what only a fault makes long.
const patience = 30 * time.Second

// eventually polls for a condition.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	for end := time.Now().Add(patience); !condition(); <-poll.C {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// ---- Lanes without an app, for bubbles.

// nowhere makes an upstream of n targets at unix sockets that are not there:
// connecting fails at once and never waits for the network, so that a prober
// may run in a synctest bubble. Nothing but Answered brings a target up.
func nowhere(dir string, n int, cfg upstream.Config) *upstream.Upstream {
	cfg.Name = "app"
	for i := range n {
		cfg.Targets = append(cfg.Targets, upstream.Address{
			Text: fmt.Sprintf("unix:app-%d", i), Network: "unix", Addr: filepath.Join(dir, fmt.Sprintf("app-%d", i)),
		})
	}
	return upstream.New(cfg, nil)
}

// setUp sets every target up.
func setUp(up *upstream.Upstream) {
	for _, target := range up.Targets() {
		target.Answered()
	}
}

// outcome is what Acquire came to.
type outcome struct {
	slot  *lanes.Slot
	err   error
	after time.Duration
}

// comer is a request that asks a lane for a slot.
type comer struct {
	leave   context.CancelFunc
	outcome chan outcome
}

// come asks for a slot in a goroutine.
func come(lane *lanes.Lane) comer {
	ctx, leave := context.WithCancel(context.Background())
	c := comer{leave, make(chan outcome, 1)}
	go c.acquire(ctx, lane)
	return c
}

func (c comer) acquire(ctx context.Context, lane *lanes.Lane) {
	start := time.Now()
	slot, err := lane.Acquire(ctx)
	c.outcome <- outcome{slot, err, time.Since(start)}
}

// wantSlot requires that the comer has a slot or is about to get one.
func (c comer) wantSlot(t *testing.T) *lanes.Slot {
	t.Helper()
	select {
	case got := <-c.outcome:
		if got.err != nil {
			t.Fatalf("no slot: %v", got.err)
		}
		return got.slot
	case <-time.After(patience):
		t.Fatal("neither a slot nor a refusal")
		return nil
	}
}

// wantWaiting requires that nothing has come of it yet; inside a bubble, call
// it after synctest.Wait.
func (c comer) wantWaiting(t *testing.T) {
	t.Helper()
	select {
	case got := <-c.outcome:
		t.Fatalf("it does not wait: slot %v, %v", got.slot != nil, got.err)
	default:
	}
}

// wantQueued requires that it comes to wait in the lane, as the only one.
func (c comer) wantQueued(t *testing.T, lane *lanes.Lane) {
	t.Helper()
	eventually(t, "the request waits", func() bool {
		c.wantWaiting(t)
		return lane.Snapshot().Waiting == 1
	})
}

// wantRefused requires a refusal for this reason and returns its text and how
// long it took.
func (c comer) wantRefused(t *testing.T, reason lanes.Reason) (text string, after time.Duration) {
	t.Helper()
	select {
	case got := <-c.outcome:
		return wantRefusal(t, got.err, reason), got.after
	case <-time.After(patience):
		t.Fatal("neither a slot nor a refusal")
		return "", 0
	}
}

func wantRefusal(t *testing.T, err error, reason lanes.Reason) (text string) {
	t.Helper()
	var refusal *lanes.Refusal
	if !errors.As(err, &refusal) || refusal.Reason != reason || refusal.Lane != "web" {
		t.Fatalf("got %v, want %s of lane web", err, reason)
	}
	return refusal.Text
}

// acquire takes a slot that must be there at once.
func acquire(t *testing.T, lane *lanes.Lane) *lanes.Slot {
	t.Helper()
	before := lane.Snapshot()
	slot, err := lane.Acquire(context.Background())
	if err != nil {
		t.Fatalf("no slot, with %+v: %v", before, err)
	}
	return slot
}

// ---- Apps on loopback sockets that do what the test says.

// rawApp is an app that accepts and, for each connection, runs a script.
type rawApp struct {
	listener net.Listener
	script   func(*rawConn)
	running  sync.WaitGroup
	requests atomic.Int32
	done     chan struct{} // closed when the test ends

	mu     sync.Mutex
	closed bool
	conns  []*rawConn
}

// rawConn is one connection of a rawApp.
type rawConn struct {
	net.Conn
	app    *rawApp
	number int // of the connection, from 0
	reader *bufio.Reader
}

// startApp runs script for each connection until the test ends; the connection
// is closed when it returns.
func startApp(t *testing.T, script func(*rawConn)) *rawApp {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	app := &rawApp{listener: listener, script: script, done: make(chan struct{})}
	app.running.Add(1)
	go app.accept()
	t.Cleanup(app.close)
	return app
}

func (a *rawApp) accept() {
	defer a.running.Done()
	for {
		nc, err := a.listener.Accept()
		if err != nil {
			return
		}
		a.mu.Lock()
		conn := &rawConn{Conn: nc, app: a, number: len(a.conns), reader: bufio.NewReader(nc)}
		a.conns = append(a.conns, conn)
		if a.closed {
			nc.Close()
		}
		a.running.Add(1)
		a.mu.Unlock()
		go a.serve(conn)
	}
}

func (a *rawApp) serve(conn *rawConn) {
	defer a.running.Done()
	defer conn.Close()
	a.script(conn)
}

func (a *rawApp) close() {
	a.listener.Close()
	a.mu.Lock()
	if !a.closed {
		close(a.done)
	}
	a.closed = true
	for _, conn := range a.conns {
		conn.Close()
	}
	a.mu.Unlock()
	a.running.Wait()
}

func (a *rawApp) addr() string { return a.listener.Addr().String() }

// connections is how many the app has accepted.
func (a *rawApp) connections() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.conns)
}

// readHead reads a request's head and counts it. false: the connection ended.
func (c *rawConn) readHead() (*http.Request, bool) {
	request, err := http.ReadRequest(c.reader)
	if err != nil {
		return nil, false
	}
	c.app.requests.Add(1)
	return request, true
}

// read reads a whole request. false: the connection ended.
func (c *rawConn) read() bool {
	request, ok := c.readHead()
	if !ok {
		return false
	}
	_, err := io.Copy(io.Discard, request.Body)
	return err == nil
}

func (c *rawConn) say(text string) { io.WriteString(c, text) }

// await waits for go-ahead, or the test's end.
func (c *rawConn) await(goOn <-chan struct{}) {
	select {
	case <-goOn:
	case <-c.app.done:
	}
}

// untilClosed waits for the other side to close.
func (c *rawConn) untilClosed() { io.Copy(io.Discard, c.reader) }

const hello = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"

// greet answers every request with hello.
func greet(c *rawConn) {
	for c.read() {
		c.say(hello)
	}
}

// startLane makes the lane web at targets that have all answered.
func startLane(t *testing.T, cfg lanes.Config, app upstream.Config, addrs ...string) *lanes.Lane {
	t.Helper()
	app.Name = "app"
	for _, addr := range addrs {
		app.Targets = append(app.Targets, upstream.Address{Text: "http://" + addr, Network: "tcp", Addr: addr})
	}
	up := upstream.New(app, nil)
	setUp(up)
	cfg.Name = "web"
	if cfg.ResponseTimeout == 0 {
		cfg.ResponseTimeout = patience
	}
	lane := lanes.New(cfg, up.Deal(cfg.Slots))
	t.Cleanup(func() { lane.Close(); up.Close() })
	return lane
}

// get is a GET; post is a POST of hello.
var (
	get  = lanes.Request{Head: []byte("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"), Again: true}
	post = lanes.Request{Head: []byte("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\n"), Body: []byte("hello")}
)

// do sends a request on a slot that is free now.
func do(t *testing.T, lane *lanes.Lane, request lanes.Request) *lanes.Exchange {
	t.Helper()
	return doOn(t, acquire(t, lane), request)
}

func doOn(t *testing.T, slot *lanes.Slot, request lanes.Request) *lanes.Exchange {
	t.Helper()
	ex, err := slot.Do(context.Background(), request)
	if err != nil {
		t.Fatalf("sending: %v", err)
	}
	return ex
}

// wantAnswer requires a whole answer: its status and body.
func wantAnswer(t *testing.T, ex *lanes.Exchange, status int, body string) {
	t.Helper()
	defer ex.Close()
	res, err := ex.Head(nil)
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	if res.Status != status {
		t.Fatalf("answered %d, want %d", res.Status, status)
	}
	got, err := io.ReadAll(ex)
	if err != nil || string(got) != body {
		t.Fatalf("the body is %.100q, %v; want %q", got, err, body)
	}
}

// wantLoad requires these counts of a lane.
func wantLoad(t *testing.T, lane *lanes.Lane, inUse, abandoned int) {
	t.Helper()
	if s := lane.Snapshot(); s.InUse != inUse || s.Abandoned != abandoned {
		t.Fatalf("%d in use, %d abandoned; want %d and %d", s.InUse, s.Abandoned, inUse, abandoned)
	}
}
