package upstream_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"holdfast/upstream"
)

func TestTarget_WaitsForItsFirstAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		health upstream.Health
		want   string
	}{
		"Default": {want: "OPTIONS * HTTP/1.1\r\nHost: localhost\r\n"},
		"Path":    {health: upstream.Health{Path: "/healthz", Host: "app.test"}, want: "GET /healthz HTTP/1.1\r\nHost: app.test\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			asked, answerNow := make(chan string, 1), make(chan struct{})
			server := startRaw(t, func(conn *serverConn) {
				asked <- conn.Head()
				select {
				case <-answerNow:
					conn.WritePieces("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", 0)
				case <-t.Context().Done():
				}
			})
			changes := make(chan upstream.Change, 8)
			up := upstream.New(upstream.Config{Name: "app", Health: c.health,
				Targets: []upstream.Address{{Text: "t", Network: "tcp", Addr: server.Addr()}}}, func(c upstream.Change) { changes <- c })
			t.Cleanup(up.Close)
			target := up.Targets()[0]
			if s := target.State(); s.Up || s.Answered || s.Accepted || s.Asking || s.Err != nil {
				t.Fatalf("before the start: %+v", s)
			}
			up.Start()
			if head := take(t, asked); !strings.HasPrefix(head, c.want) || !strings.Contains(head, "\r\nConnection: close\r\n") {
				t.Errorf("it is asked with %q", head)
			}
			until(t, "it is seen to have accepted", func() bool { return target.State().Asking })
			if s := target.State(); s.Up || s.Answered || !s.Accepted {
				t.Errorf("while it does not answer: %+v", s)
			}
			gone, cancel := context.WithCancel(context.Background())
			cancel()
			if target.AwaitAnswer(gone) {
				t.Error("AwaitAnswer says that it has answered")
			}
			close(answerNow)
			if !target.AwaitAnswer(withDeadline(t)) {
				t.Error("AwaitAnswer says that it has not answered")
			}
			if change := take(t, changes); !change.Up || change.Target != "t" || change.Err != nil {
				t.Errorf("told: %+v", change)
			}
			until(t, "the asking is over", func() bool { return !target.State().Asking })
			if s := target.State(); !s.Up || !s.Answered {
				t.Errorf("after its answer: %+v", s)
			}
		})
	}
}

func TestTarget_WithAHealthPathAnErrorIsNoAnswer(t *testing.T) {
	var asked atomic.Int32
	server := startRaw(t, func(conn *serverConn) {
		conn.Head()
		if asked.Add(1) < 3 {
			conn.WritePieces("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", 0)
			return
		}
		conn.WritePieces("HTTP/1.1 499 Odd\r\nContent-Length: 0\r\n\r\n", 0)
	})
	target := newApp(t, "tcp", server.Addr(), upstream.Config{Health: upstream.Health{Path: "/healthz"}}, nil)
	wantKind(t, target.Ask(t.Context()), upstream.ErrSick, true)
	if target.State().Up {
		t.Error("it is up")
	}
	target.Fail(errors.New("first"))
	if !target.AwaitAnswer(withDeadline(t)) || asked.Load() != 3 {
		t.Errorf("up after %d askings", asked.Load())
	}
	if err := target.State().Err; !errors.Is(err, upstream.ErrSick) || !strings.Contains(err.Error(), "status 503") {
		t.Errorf("the last failure is %v", err)
	}
}

func TestTarget_WithoutAHealthPathAnyAnswerIsOne(t *testing.T) {
	server := startRaw(t, answering("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", 0, true))
	target := newApp(t, "tcp", server.Addr(), upstream.Config{}, nil)
	if err := target.Ask(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestTarget_IsUpAgainWhenItsPortIsBack(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := listener.Addr().String()
	listener.Close()
	changes := make(chan upstream.Change, 8)
	target := newApp(t, "tcp", addr, upstream.Config{}, func(c upstream.Change) { changes <- c })
	target.Answered()
	if change := take(t, changes); !change.Up {
		t.Fatalf("told: %+v", change)
	}
	var watched sync.Mutex
	var seen []bool
	target.Watch(func() {
		watched.Lock()
		defer watched.Unlock()
		seen = append(seen, target.State().Up)
	})

	_, cause := target.Dial(t.Context())
	wantKind(t, cause, upstream.ErrUnreachable, false)
	for range 10 {
		target.Fail(cause) // one failure of each request under way
	}
	if change := take(t, changes); change.Up || !errors.Is(change.Err, upstream.ErrUnreachable) {
		t.Errorf("told: %+v", change)
	}
	if s := target.State(); s.Up || !s.Answered || !errors.Is(s.Err, upstream.ErrUnreachable) {
		t.Errorf("while its port is closed: %+v", s)
	}

	sent := make(chan string, 8)
	server := startRawAt(t, "tcp", addr, func(conn *serverConn) {
		select {
		case sent <- conn.Head():
		case <-t.Context().Done():
		}
	})
	if change := take(t, changes); !change.Up || change.After <= 0 {
		t.Errorf("told: %+v", change)
	}
	if head := take(t, sent); head != "" {
		t.Errorf("a connection is enough, but it was sent %q", head)
	}
	target.Fail(cause) // down again: a new prober, not a second one
	if change := take(t, changes); change.Up {
		t.Errorf("told: %+v", change)
	}
	if change := take(t, changes); !change.Up {
		t.Errorf("told: %+v", change)
	}
	take(t, sent)
	if n := server.Accepted(); n != 2 {
		t.Errorf("two probers were needed, %d connected", n)
	}
	watched.Lock()
	defer watched.Unlock()
	want := []bool{true, false, true, false, true} // the first when watching began
	if len(seen) != len(want) {
		t.Fatalf("the watcher was called %d times: %v", len(seen), seen)
	}
	for i := range want {
		if seen[i] != want[i] {
			t.Fatalf("the watcher saw %v; want %v", seen, want)
		}
	}
}

func TestUpstream_CloseEndsAProberWhateverItWaitsFor(t *testing.T) {
	silent := startRaw(t, func(conn *serverConn) { conn.Head(); conn.Head() })
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	up := upstream.New(upstream.Config{Name: "app", Targets: []upstream.Address{
		{Text: "silent", Network: "tcp", Addr: silent.Addr()}, {Text: "gone", Network: "tcp", Addr: gone.Addr().String()}}}, nil)
	up.Start()
	until(t, "one accepts and the other has failed", func() bool {
		return up.Targets()[0].State().Asking && up.Targets()[1].State().Err != nil
	})
	closed := make(chan struct{})
	go func() { up.Close(); close(closed) }()
	await(t, "Close returns", closed)
	up.Targets()[1].Fail(errors.New("late")) // no prober starts any more: TestMain finds it
	for _, target := range up.Targets() {
		if target.State().Up {
			t.Errorf("%v is up", target)
		}
	}
}

func TestUpstream_DealGoesRoundTheTargets(t *testing.T) {
	up := upstream.New(upstream.Config{Name: "app", Targets: []upstream.Address{{Text: "a"}, {Text: "b"}, {Text: "c"}}}, nil)
	t.Cleanup(up.Close)
	var dealt []string
	for _, n := range []int{4, 1, 0, 2} {
		for _, target := range up.Deal(n) {
			dealt = append(dealt, target.String())
		}
		dealt = append(dealt, "|")
	}
	if got := strings.Join(dealt, ""); got != "abca|b||ca|" {
		t.Errorf("dealt: %s", got)
	}
}
