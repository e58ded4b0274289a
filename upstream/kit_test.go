package upstream_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"holdfast/upstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// deadline is how long anything on loopback may take before it counts as not
// happening.
const deadline = 20 * time.Second

// rawServer is a TCP server whose connections are served by a script.
type rawServer struct {
	listener net.Listener
	script   func(*serverConn)
	running  sync.WaitGroup

	mu       sync.Mutex
	accepted int
	conns    []net.Conn
	closed   bool
}

// serverConn is a connection as the server has it.
type serverConn struct {
	net.Conn
	reader *bufio.Reader
}

// startRaw serves on a free port until the test ends; a connection is closed
// when script returns.
func startRaw(t *testing.T, script func(*serverConn)) *rawServer {
	t.Helper()
	return startRawAt(t, "tcp", "127.0.0.1:0", script)
}

func startRawAt(t *testing.T, network, addr string, script func(*serverConn)) *rawServer {
	t.Helper()
	listener, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	s := &rawServer{listener: listener, script: script}
	s.running.Add(1)
	go s.accept()
	t.Cleanup(s.Close)
	return s
}

// Addr is where it listens.
func (s *rawServer) Addr() string { return s.listener.Addr().String() }

// Accepted is how many connections it took.
func (s *rawServer) Accepted() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.accepted
}

// Close ends the listener and all connections, and waits for both.
func (s *rawServer) Close() {
	s.listener.Close()
	s.mu.Lock()
	s.closed = true
	for _, conn := range s.conns {
		conn.Close()
	}
	s.mu.Unlock()
	s.running.Wait()
}

func (s *rawServer) accept() {
	defer s.running.Done()
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.accepted++
		s.conns = append(s.conns, conn)
		if s.closed {
			conn.Close()
		}
		s.running.Add(1)
		s.mu.Unlock()
		go s.serve(conn)
	}
}

func (s *rawServer) serve(conn net.Conn) {
	defer s.running.Done()
	defer conn.Close()
	s.script(&serverConn{conn, bufio.NewReader(conn)})
}

// Head reads a request head; "" at the end of the connection.
func (c *serverConn) Head() string {
	var head strings.Builder
	for {
		line, err := c.reader.ReadString('\n')
		head.WriteString(line)
		if err != nil {
			return ""
		}
		if line == "\r\n" {
			return head.String()
		}
	}
}

// answering answers every request of a connection with text, piece bytes a
// write (0: all in one), and closes behind the first if it is told to.
func answering(text string, piece int, closes bool) func(*serverConn) {
	return func(conn *serverConn) {
		for conn.Head() != "" {
			conn.WritePieces(text, piece)
			if closes {
				return
			}
		}
	}
}

// WritePieces writes text, piece bytes at a time.
func (c *serverConn) WritePieces(text string, piece int) {
	if piece == 0 {
		piece = max(len(text), 1)
	}
	for len(text) > 0 {
		n := min(piece, len(text))
		if _, err := io.WriteString(c, text[:n]); err != nil {
			return
		}
		text = text[n:]
	}
}

// newApp is an upstream of one target.
func newApp(t *testing.T, network, addr string, cfg upstream.Config, changed func(upstream.Change)) *upstream.Target {
	t.Helper()
	cfg.Name = "app"
	cfg.Targets = []upstream.Address{{Text: "http://" + addr, Network: network, Addr: addr}}
	up := upstream.New(cfg, changed)
	t.Cleanup(up.Close)
	return up.Targets()[0]
}

// dial opens a connection to a server; the test closes it.
func dial(t *testing.T, server *rawServer) *upstream.Conn {
	t.Helper()
	target := newApp(t, server.listener.Addr().Network(), server.Addr(), upstream.Config{}, nil)
	conn, err := target.Dial(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	conn.SetReadDeadline(time.Now().Add(deadline))
	t.Cleanup(conn.Close)
	return conn
}

// answer is what one exchange gave.
type answer struct {
	res  upstream.Response
	body string
	err  error
}

// ask makes one exchange and reads its body in pieces of n bytes.
func ask(t *testing.T, conn *upstream.Conn, method string, n int) (a answer) {
	t.Helper()
	if err := conn.Send([]byte(method+" / HTTP/1.1\r\nHost: a.test\r\n\r\n"), nil, nil); err != nil {
		t.Fatal(err)
	}
	res, err := conn.Head(method == "HEAD", nil)
	if err != nil {
		return answer{err: err}
	}
	a.res = *res
	a.body, a.err = readBody(conn, n)
	return a
}

// readBody reads to the end of the answer.
func readBody(conn *upstream.Conn, n int) (string, error) {
	var body strings.Builder
	p := make([]byte, n)
	for {
		n, err := conn.Read(p)
		body.Write(p[:n])
		if err == io.EOF {
			return body.String(), nil
		}
		if err != nil {
			return body.String(), err
		}
	}
}

// wantKind requires an *upstream.Error of this kind.
func wantKind(t *testing.T, err, kind error, sent bool) {
	t.Helper()
	var e *upstream.Error
	if !errors.As(err, &e) || !errors.Is(err, kind) || e.Sent != sent {
		t.Errorf("error %v; want %v, sent %v", err, kind, sent)
	}
}

// until polls for a condition.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(deadline); !condition(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", deadline, what)
		}
	}
}

// await waits for an event.
func await(t *testing.T, what string, event <-chan struct{}) {
	t.Helper()
	select {
	case <-event:
	case <-time.After(deadline):
		t.Fatalf("not within %v: %s", deadline, what)
	}
}

// take receives what comes next.
func take[T any](t *testing.T, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(deadline):
		t.Fatalf("nothing within %v", deadline)
	}
	return v
}

// withDeadline is a context that ends when waiting has no sense any more.
func withDeadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	t.Cleanup(cancel)
	return ctx
}
