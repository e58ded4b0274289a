package crowd

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/bench/peer"
)

// server holds who asks for /hold, answers /refuse with 503 and never answers
// /never.
type server struct {
	listener net.Listener
	mu       sync.Mutex
	held     []net.Conn
}

func newServer(t *testing.T) *server {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	s := &server{listener: listener}
	go s.accept()
	return s
}

func (s *server) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		go s.serve(conn)
	}
}

func (s *server) serve(conn net.Conn) {
	request, err := http.ReadRequest(bufio.NewReader(conn))
	if err != nil {
		conn.Close()
		return
	}
	switch request.URL.Path {
	case "/hold":
		s.mu.Lock()
		s.held = append(s.held, conn)
		s.mu.Unlock()
		io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n: open\n\n")
	case "/refuse":
		io.WriteString(conn, "HTTP/1.1 503 Busy\r\n\r\n")
		conn.Close()
	}
}

// publish writes one event to n of the held.
func (s *server) publish(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, conn := range s.held[:n] {
		fmt.Fprintf(conn, "data: %s\n\n", Stamp(64))
	}
}

func startCrowd(t *testing.T) *Crowd {
	t.Helper()
	bench, err := peer.New(io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bench.Close)
	c, err := Start(context.Background(), bench)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestCrowd_CountsDeliveriesAndTellsWhatIsMissingTooManyOrLost(t *testing.T) {
	c, s := startCrowd(t), newServer(t)
	open := Open{Group: "all", Address: s.listener.Addr().String(), Path: "/hold?c=%d", Count: 100, Channels: 1, Within: 10 * time.Second, Window: 16}
	if opened, err := c.Open(open); err != nil || opened.Opened != 100 || opened.Took <= 0 {
		t.Fatalf("%+v, %v", opened, err)
	}
	s.publish(100)
	if seen, err := c.Wait("all", 100, 10*time.Second); err != nil || seen.Deliveries != 100 || seen.P50 <= 0 || seen.Max < seen.P99 || seen.P99 < seen.P50 {
		t.Fatalf("%+v, %v", seen, err)
	}
	if _, err := c.Wait("all", 99, time.Second); err == nil || !strings.Contains(err.Error(), "100 deliveries came where 99 were published") {
		t.Errorf("too many: %v", err)
	}
	if err := c.Arm("all"); err != nil {
		t.Fatal(err)
	}
	s.publish(99)
	if _, err := c.Wait("all", 100, 300*time.Millisecond); err == nil || !strings.Contains(err.Error(), "99 of 100 deliveries") {
		t.Errorf("missing: %v", err)
	}
	s.held[0].Close()
	if seen, err := c.Wait("all", 1000, 10*time.Second); err == nil || seen.Closed != 1 || !strings.Contains(err.Error(), "1 clients of all lost their connection") {
		t.Errorf("lost: %+v, %v", seen, err)
	}
	if err := c.Drop("all"); err != nil {
		t.Error(err)
	}
	if err := c.Arm("all"); err == nil {
		t.Error("a group that was dropped is still there")
	}
}

func TestCrowd_WhoIsRefusedOrNotAnsweredHasFailedUnlessThatIsNoFault(t *testing.T) {
	c, s := startCrowd(t), newServer(t)
	open := Open{Group: "all", Address: s.listener.Addr().String(), Path: "/refuse", Count: 3, Channels: 1, Within: 10 * time.Second}
	if opened, err := c.Open(open); err == nil || opened.Failed != 3 || !strings.Contains(err.Error(), "503 Busy") {
		t.Errorf("refused: %+v, %v", opened, err)
	}
	open.Path, open.Within = "/never", 200*time.Millisecond
	if opened, err := c.Open(open); err == nil || opened.Failed != 3 || !strings.Contains(err.Error(), "no answer within 200ms") {
		t.Errorf("not answered: %+v, %v", opened, err)
	}
	open.Waiting = true
	if opened, err := c.Open(open); err != nil || opened.Failed != 3 || opened.Opened != 0 {
		t.Errorf("waiting: %+v, %v", opened, err)
	}
	open.Address = "nowhere"
	if _, err := c.Open(open); err == nil {
		t.Error("an address that is none is taken")
	}
}
