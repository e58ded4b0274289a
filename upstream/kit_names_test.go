package upstream_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	"holdfast/upstream"
)

// nameServer answers every question about addresses with those that it has, over
// UDP on loopback.
type nameServer struct {
	conn    net.PacketConn
	serving sync.WaitGroup

	mu        sync.Mutex
	addresses []netip.Addr // none: there is no such name
	code      byte         // instead of an answer; 0: answer
	only      int          // how many questions code is for; 0: all
	silent    bool
	questions int // a look-up makes two, for IPv4 and for IPv6
	askers    []net.Conn
}

const (
	serverFailed = 2
	noSuchName   = 3
)

// startNames serves names until the test ends.
func startNames(t *testing.T, addresses ...string) *nameServer {
	t.Helper()
	if ln, err := net.Listen("tcp", "127.0.0.2:0"); err != nil {
		t.Skip("this system has one loopback address:", err)
	} else {
		ln.Close()
	}
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &nameServer{conn: conn}
	s.set(addresses...)
	s.serving.Add(1)
	go s.serve()
	t.Cleanup(func() {
		conn.Close()
		s.serving.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, asker := range s.askers {
			asker.Close()
		}
	})
	return s
}

// resolver is Go's own, and asks this server alone.
func (s *nameServer) resolver() *net.Resolver { return &net.Resolver{PreferGo: true, Dial: s.dial} }

// dial keeps the connection until the test's end: a resolver reads from it for
// seconds after whoever asked has left.
func (s *nameServer) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	asker, err := new(net.Dialer).DialContext(ctx, "udp", s.conn.LocalAddr().String())
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.askers = append(s.askers, asker)
	}
	return asker, err
}

// lookUp is for an upstream's configuration.
func (s *nameServer) lookUp(ctx context.Context, host string) ([]netip.Addr, error) {
	return s.resolver().LookupNetIP(ctx, "ip", host)
}

// set has it answer with addresses from now on.
func (s *nameServer) set(addresses ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addresses, s.code, s.only, s.silent = nil, 0, 0, false
	for _, a := range addresses {
		s.addresses = append(s.addresses, netip.MustParseAddr(a))
	}
}

// fail has it answer the next questions with a code; only 0: all of them.
func (s *nameServer) fail(code byte, only int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.code, s.only = code, only
}

// hush has it take questions and say nothing.
func (s *nameServer) hush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent = true
}

// asked is how many questions there were.
func (s *nameServer) asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.questions
}

func (s *nameServer) serve() {
	defer s.serving.Done()
	question := make([]byte, 512)
	for {
		n, from, err := s.conn.ReadFrom(question)
		if err != nil {
			return
		}
		if reply := s.answer(question[:n]); reply != nil {
			s.conn.WriteTo(reply, from)
		}
	}
}

// answer is RFC 1035 §4.1 as far as one question needs it; nil: none.
func (s *nameServer) answer(question []byte) []byte {
	const head = 12
	name := bytes.IndexByte(question[head:], 0) + 1
	kind := binary.BigEndian.Uint16(question[head+name:])
	s.mu.Lock()
	defer s.mu.Unlock()
	s.questions++
	if s.silent {
		return nil
	}
	code, addresses := s.code, s.addresses
	switch {
	case code != 0:
		addresses = nil
		if s.only--; s.only == 0 {
			s.code = 0
		}
	case len(addresses) == 0:
		code = noSuchName
	}
	var records []byte
	count := 0
	for _, a := range addresses {
		if (kind == 1) != a.Is4() {
			continue
		}
		count++
		records = binary.BigEndian.AppendUint16(append(records, 0xc0, head), kind)
		records = append(records, 0, 1, 0, 0, 0, 0) // of the internet, to be kept for no time
		records = append(binary.BigEndian.AppendUint16(records, uint16(a.BitLen()/8)), a.AsSlice()...)
	}
	reply := append(bytes.Clone(question[:2]), 0x81, 0x80|code, 0, 1, 0, byte(count), 0, 0, 0, 0)
	return append(append(reply, question[head:head+name+4]...), records...)
}

// named is a target of this name at a port, whose name is looked up at s.
func (s *nameServer) named(t *testing.T, port string, cfg upstream.Config) *upstream.Target {
	t.Helper()
	if cfg.LookUp == nil {
		cfg.LookUp = s.lookUp
	}
	return newApp(t, "tcp", "app.test.:"+port, cfg, nil)
}

// saying is an app that answers everything with three letters.
func saying(text string) func(*serverConn) {
	return answering("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n"+text, 0, false)
}

// startTwo are two apps at one port of two addresses.
func startTwo(t *testing.T) (one, two *rawServer, port string) {
	t.Helper()
	for range 20 {
		one = startRawAt(t, "tcp", "127.0.0.2:0", saying("one"))
		_, port, _ = net.SplitHostPort(one.Addr())
		if ln, err := net.Listen("tcp", "127.0.0.3:"+port); err == nil {
			ln.Close()
			return one, startRawAt(t, "tcp", "127.0.0.3:"+port, saying("two")), port
		}
	}
	t.Fatal("no port is free at two addresses")
	return nil, nil, ""
}

// wantFrom requires that a new connection to target reaches the app that says
// text; "": that nobody is reached. The connection is the caller's to close.
func wantFrom(t *testing.T, target *upstream.Target, text string) *upstream.Conn {
	t.Helper()
	conn, err := target.Dial(withDeadline(t))
	if text == "" {
		if err == nil {
			conn.Close()
			t.Fatal("somebody is reached")
		}
		wantKind(t, err, upstream.ErrUnreachable, false)
		return nil
	}
	if err != nil {
		t.Fatalf("%q is not reached: %v", text, err)
	}
	t.Cleanup(conn.Close)
	if a := ask(t, conn, "GET", 100); a.err != nil || a.body != text {
		t.Fatalf("%q answers, %v; want %q", a.body, a.err, text)
	}
	return conn
}

// blackHole is an address where nobody answers: a listener whose backlog is
// full takes no further connection and refuses none.
func blackHole(t *testing.T) (port string) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 2}}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	port = fmt.Sprint(name.(*syscall.SockaddrInet4).Port)
	for range 64 {
		conn, err := net.DialTimeout("tcp", "127.0.0.2:"+port, 200*time.Millisecond)
		if err != nil {
			return port
		}
		t.Cleanup(func() { conn.Close() })
	}
	t.Skip("this system's backlogs are never full")
	return ""
}

// heldBack is a resolver that answers when it is let.
type heldBack struct {
	asked   chan struct{}
	answers chan string // an address; "": it fails
	ended   chan error  // how the look-up's context stands when it answers
}

func holdBack() *heldBack {
	return &heldBack{make(chan struct{}, 8), make(chan string), make(chan error, 8)}
}

func (h *heldBack) lookUp(ctx context.Context, host string) ([]netip.Addr, error) {
	h.asked <- struct{}{}
	select {
	case answer := <-h.answers:
		h.ended <- ctx.Err()
		if answer == "" {
			return nil, errors.New("the resolver failed")
		}
		return []netip.Addr{netip.MustParseAddr(answer)}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// answer lets the look-up that is out end so; that there is one is required.
func (h *heldBack) answer(t *testing.T, answer string) {
	t.Helper()
	select {
	case h.answers <- answer:
	case <-time.After(deadline):
		t.Fatal("no look-up is out")
	}
}
