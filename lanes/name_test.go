package lanes_test

import (
	"context"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"holdfast/lanes"
	"holdfast/upstream"
)

// moving is a name that has one address.
type moving struct {
	mu   sync.Mutex
	addr string // "": there is no such name
}

func (m *moving) to(addr string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.addr = addr
}

func (m *moving) lookUp(_ context.Context, host string) ([]netip.Addr, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.addr == "" {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return []netip.Addr{netip.MustParseAddr(m.addr)}, nil
}

// startAppAt is startApp at an address.
func startAppAt(t *testing.T, addr string, script func(*rawConn)) *rawApp {
	t.Helper()
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		t.Skip("this system has one loopback address, or the port is taken:", err)
	}
	app := &rawApp{listener: listener, script: script, done: make(chan struct{})}
	app.running.Add(1)
	go app.accept()
	t.Cleanup(app.close)
	return app
}

// saying answers every request with three letters.
func saying(text string) func(*rawConn) {
	return func(c *rawConn) {
		for c.read() {
			c.say("HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: 3\r\n\r\n" + text)
		}
	}
}

// startMoving is a lane at a name whose address is looked up for each use.
func startMoving(t *testing.T, slots int, port string) (*lanes.Lane, *moving) {
	t.Helper()
	name := &moving{addr: "127.0.0.2"}
	lane := startLane(t, lanes.Config{Slots: slots, Queue: 64},
		upstream.Config{LookUp: name.lookUp, LookUpEvery: time.Nanosecond, ConnectTimeout: patience, Park: patience}, "app.test:"+port)
	return lane, name
}

func TestExchange_AConnectionToWhereTheNameWasIsNotUsedAgain(t *testing.T) {
	for name, request := range map[string]lanes.Request{"GET": get, "POST": post} {
		t.Run(name, func(t *testing.T) {
			old := startAppAt(t, "127.0.0.2:0", saying("old"))
			_, port, _ := net.SplitHostPort(old.addr())
			fresh := startAppAt(t, "127.0.0.3:"+port, saying("new"))
			lane, name := startMoving(t, 1, port)
			for range 3 {
				wantAnswer(t, do(t, lane, request), 200, "old")
			}
			if n := old.connections(); n != 1 {
				t.Fatalf("%d connections, want one that is used again", n)
			}
			name.to("127.0.0.3")
			for range 3 {
				wantAnswer(t, do(t, lane, request), 200, "new")
			}
			if n := fresh.connections(); n != 1 {
				t.Errorf("%d connections to the new address, want one that is used again", n)
			}
			if n := old.requests.Load(); n != 3 {
				t.Errorf("%d requests reached the old address once it was given up", n-3)
			}
		})
	}
}

func TestExchange_ThatRunsStaysWhereItIsWhenTheNameMoves(t *testing.T) {
	goOn := make(chan struct{})
	old := startAppAt(t, "127.0.0.2:0", func(c *rawConn) {
		if c.read() {
			c.say("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfirst")
			c.await(goOn)
			c.say(" last")
			c.untilClosed()
		}
	})
	_, port, _ := net.SplitHostPort(old.addr())
	startAppAt(t, "127.0.0.3:"+port, saying("new"))
	lane, name := startMoving(t, 2, port)
	running := do(t, lane, get)
	if _, err := running.Head(nil); err != nil {
		t.Fatal(err)
	}
	first := make([]byte, 5)
	if _, err := io.ReadFull(running, first); err != nil {
		t.Fatal(err)
	}
	name.to("127.0.0.3")
	wantAnswer(t, do(t, lane, get), 200, "new")
	close(goOn)
	rest, err := io.ReadAll(running)
	if string(first)+string(rest) != "first last" || err != nil {
		t.Errorf("the answer that ran is %q%q, %v", first, rest, err)
	}
	wantAnswer(t, do(t, lane, get), 200, "new")
	wantAnswer(t, do(t, lane, get), 200, "new")
}

// An app that is recreated: its name is gone, somebody else has its address, and
// it comes back at another one. Requests wait; not one goes to a stranger.
func TestLane_WhileANameIsGoneRequestsWaitAndNoneGoesToItsOldAddress(t *testing.T) {
	old := startAppAt(t, "127.0.0.2:0", saying("old"))
	_, port, _ := net.SplitHostPort(old.addr())
	startAppAt(t, "127.0.0.3:"+port, saying("new"))
	lane, name := startMoving(t, 1, port)
	wantAnswer(t, do(t, lane, get), 200, "old")
	name.to("")
	sent := make(chan *lanes.Exchange)
	slot := acquire(t, lane)
	go func() {
		ex, err := slot.Do(context.Background(), post)
		if err != nil {
			t.Error("the request that waits: ", err)
		}
		sent <- ex
	}()
	eventually(t, "the request waits", func() bool { return lane.Snapshot().Waiting == 1 })
	later := come(lane)
	eventually(t, "another waits behind it", func() bool { return lane.Snapshot().Waiting == 2 })
	name.to("127.0.0.3")
	if ex := <-sent; ex != nil {
		wantAnswer(t, ex, 200, "new")
	}
	wantAnswer(t, doOn(t, later.wantSlot(t), get), 200, "new")
	if n := old.requests.Load(); n != 1 {
		t.Errorf("%d requests went to the old address after the name was gone", n-1)
	}
}

func TestLane_NoRequestFailsOrGoesBackWhileANameMoves(t *testing.T) {
	const clients, each = 8, 200
	old := startAppAt(t, "127.0.0.2:0", saying("old"))
	_, port, _ := net.SplitHostPort(old.addr())
	startAppAt(t, "127.0.0.3:"+port, saying("new"))
	lane, name := startMoving(t, 4, port)
	moved := make(chan struct{})
	var running sync.WaitGroup
	for range clients {
		running.Go(func() {
			for i := range each {
				if i == each/2 {
					<-moved
				}
				slot, err := lane.Acquire(context.Background())
				if err != nil {
					t.Error(err)
					return
				}
				ex, err := slot.Do(context.Background(), post)
				if err != nil {
					t.Error(err)
					return
				}
				var body []byte
				if _, err = ex.Head(nil); err == nil {
					body, err = io.ReadAll(ex)
				}
				ex.Close()
				// The first after the move may have asked together with one before it.
				if got := string(body); err != nil || got != "new" && (got != "old" || i > each/2) {
					t.Errorf("request %d: %q, %v", i, got, err)
				}
			}
		})
	}
	eventually(t, "requests run", func() bool { return old.requests.Load() > each })
	name.to("127.0.0.3")
	close(moved)
	running.Wait()
}
