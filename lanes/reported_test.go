package lanes_test

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/lanes"
	"holdfast/upstream"
)

// Faults that users of other proxies have met: places in a queue that are lost,
// and apps that no longer accept.

// Two hundred times everybody who waits gives up, each in one of the ways there
// are: the queue is as empty as before, and the next is served.
func TestLane_HoweverWhoWaitsGivesUpItsPlaceComesBack(t *testing.T) {
	const queue, rounds = 8, 200
	bubble(t, 1, lanes.Config{Slots: 1, Queue: queue, QueueTimeout: 3 * time.Second}, upstream.Config{Park: time.Second},
		func(t *testing.T, lane *lanes.Lane, up *upstream.Upstream) {
			for round := range rounds {
				slot := acquire(t, lane)
				waiting := line(lane, queue)
				come(lane).wantRefused(t, lanes.LaneFull)
				for i, c := range waiting {
					if (round+i)%3 == 0 {
						c.leave()
					}
				}
				if round%5 == 0 { // the app goes while they wait, and comes back
					up.Targets()[0].Fail(errGone)
				}
				for i, c := range waiting {
					got := <-c.outcome
					var refusal *lanes.Refusal
					switch {
					case (round+i)%3 == 0 && errors.Is(got.err, context.Canceled):
					case (round+i)%3 != 0 && errors.As(got.err, &refusal) && refusal.Reason == map[bool]lanes.Reason{true: lanes.UpstreamDown, false: lanes.LaneTimeout}[round%5 == 0]:
					default:
						t.Fatalf("round %d: number %d got %v, %v", round, i, got.slot, got.err)
					}
				}
				if n := lane.Snapshot().Waiting; n != 0 {
					t.Fatalf("round %d: %d wait, and nobody is there", round, n)
				}
				slot.Release()
				setUp(up)
				synctest.Wait()
				next := line(lane, 2) // one that is served, and one that waits for it
				served := next[0].wantSlot(t)
				next[1].wantWaiting(t)
				served.Release()
				next[1].wantSlot(t).Release()
				wantLoad(t, lane, 0, 0)
			}
		})
}

// An app whose backlog is full answers no connection: nothing was sent, so
// whoever comes waits for it as for one that is down, whatever the method, is
// told in time, and is served when it accepts again.
func TestLane_AnAppWhoseBacklogIsFullIsWaitedFor(t *testing.T) {
	t.Parallel()
	listener, addr := listenWithoutBacklog(t)
	var filling []net.Conn
	t.Cleanup(func() {
		for _, conn := range filling {
			conn.Close()
		}
	})
	dialer := net.Dialer{Timeout: 300 * time.Millisecond}
	for {
		conn, err := dialer.Dial("tcp", addr)
		if errors.Is(err, os.ErrDeadlineExceeded) || err != nil && strings.Contains(err.Error(), "timeout") {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if filling = append(filling, conn); len(filling) > 10 {
			t.Skip("this system's backlog has no end")
		}
	}
	lane := startLane(t, lanes.Config{Slots: 1, Queue: 4, QueueTimeout: patience},
		upstream.Config{ConnectTimeout: 200 * time.Millisecond, Park: time.Second}, addr)
	refused := func() {
		t.Helper()
		slot, err := lane.Acquire(context.Background())
		if err == nil {
			_, err = slot.Do(context.Background(), post)
		}
		wantRefusal(t, err, lanes.UpstreamDown)
	}
	refused() // when it was known to be down for park
	refused() // and from then on at once
	wantLoad(t, lane, 0, 0)
	app := &rawApp{listener: listener, script: greet, done: make(chan struct{})}
	app.running.Add(1)
	go app.accept()
	t.Cleanup(app.close)
	eventually(t, "it is served", func() bool {
		slot, err := lane.Acquire(context.Background())
		if err != nil {
			return false
		}
		ex, err := slot.Do(context.Background(), post)
		if err != nil {
			return false
		}
		wantAnswer(t, ex, 200, "hello")
		return true
	})
	if n := app.requests.Load(); n != 1 {
		t.Errorf("the app was asked %d times", n)
	}
}

// listenWithoutBacklog listens for one connection that waits to be accepted.
func listenWithoutBacklog(t *testing.T) (listener net.Listener, addr string) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err == nil {
		err = errors.Join(syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), syscall.Listen(fd, 0))
	}
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "listener")
	defer file.Close()
	if listener, err = net.FileListener(file); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return listener, listener.Addr().String()
}
