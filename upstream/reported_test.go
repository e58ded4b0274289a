package upstream_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"sync"
	"testing"

	"holdfast/upstream"
)

// Faults that users of other proxies have met: a name whose addresses change.

// nameServer answers every question about addresses with those that it has.
type nameServer struct {
	conn    net.PacketConn
	serving sync.WaitGroup

	mu        sync.Mutex
	addresses []netip.Addr // none: there is no such name
}

// useNameServer has every name that is no address looked up at one, until the
// test ends. Such a test does not run beside others.
func useNameServer(t *testing.T) *nameServer {
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
	s.serving.Add(1)
	go s.serve()
	before := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
	t.Cleanup(func() {
		net.DefaultResolver = before
		conn.Close()
		s.serving.Wait()
	})
	return s
}

func (s *nameServer) set(addresses ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addresses = nil
	for _, a := range addresses {
		s.addresses = append(s.addresses, netip.MustParseAddr(a))
	}
}

func (s *nameServer) serve() {
	defer s.serving.Done()
	question := make([]byte, 512)
	for {
		n, from, err := s.conn.ReadFrom(question)
		if err != nil {
			return
		}
		s.conn.WriteTo(s.answer(question[:n]), from)
	}
}

// answer is RFC 1035 §4.1 as far as one question needs it.
func (s *nameServer) answer(question []byte) []byte {
	const head, noSuchName = 12, 3
	name := bytes.IndexByte(question[head:], 0) + 1
	kind := binary.BigEndian.Uint16(question[head+name:])
	s.mu.Lock()
	defer s.mu.Unlock()
	var records []byte
	count := 0
	for _, a := range s.addresses {
		if (kind == 1) != a.Is4() {
			continue
		}
		count++
		records = binary.BigEndian.AppendUint16(append(records, 0xc0, head), kind)
		records = append(records, 0, 1, 0, 0, 0, 0) // of the internet, to be kept for no time
		records = append(binary.BigEndian.AppendUint16(records, uint16(a.BitLen()/8)), a.AsSlice()...)
	}
	code := byte(0)
	if len(s.addresses) == 0 {
		code = noSuchName
	}
	reply := append(bytes.Clone(question[:2]), 0x81, 0x80|code, 0, 1, 0, byte(count), 0, 0, 0, 0)
	return append(append(reply, question[head:head+name+4]...), records...)
}

// A name is looked up for each connection: an app that has moved is found where
// it is, though another listens where it was; and of several addresses the one
// that listens is found.
func TestTarget_ItsNameIsLookedUpForEachConnection(t *testing.T) {
	names := useNameServer(t)
	saying := func(text string) func(*serverConn) {
		return answering("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n"+text, 0, false)
	}
	first := startRawAt(t, "tcp", "127.0.0.2:0", saying("one"))
	_, port, _ := net.SplitHostPort(first.Addr())
	startRawAt(t, "tcp", "127.0.0.3:"+port, saying("two"))
	target := newApp(t, "tcp", "app.test:"+port, upstream.Config{}, nil)
	for _, c := range []struct {
		addresses []string
		want      string // "": it cannot be reached
	}{
		{[]string{"127.0.0.2"}, "one"}, {[]string{"127.0.0.3"}, "two"}, {nil, ""}, {[]string{"127.0.0.4", "127.0.0.3"}, "two"},
		{[]string{"::1", "127.0.0.2"}, "one"}, {[]string{"127.0.0.4", "127.0.0.5"}, ""}, {[]string{"127.0.0.2"}, "one"},
	} {
		names.set(c.addresses...)
		conn, err := target.Dial(withDeadline(t))
		if c.want == "" {
			if err == nil {
				conn.Close()
				t.Errorf("at %v somebody is reached", c.addresses)
			} else {
				wantKind(t, err, upstream.ErrUnreachable, false)
			}
			continue
		}
		if err != nil {
			t.Errorf("at %v: %v", c.addresses, err)
			continue
		}
		if a := ask(t, conn, "GET", 100); a.err != nil || a.body != c.want {
			t.Errorf("at %v %q answers, %v; want %q", c.addresses, a.body, a.err, c.want)
		}
		conn.Close()
	}
}

// A name that is not there yet, as where a container is still to come, is a
// target that is down, and is found when it is there.
func TestTarget_ANameThatIsNotThereYetIsFoundWhenItIs(t *testing.T) {
	names := useNameServer(t)
	app := startRawAt(t, "tcp", "127.0.0.2:0", answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 0, true))
	_, port, _ := net.SplitHostPort(app.Addr())
	up := upstream.New(upstream.Config{Name: "app", Targets: []upstream.Address{{Text: "http://app.test:" + port, Network: "tcp", Addr: "app.test:" + port}}}, nil)
	t.Cleanup(up.Close)
	up.Start()
	target := up.Targets()[0]
	until(t, "it was asked in vain", func() bool { return target.State().Err != nil })
	if target.State().Up {
		t.Error("it is up without an address")
	}
	names.set("127.0.0.2")
	until(t, "it is up", func() bool { return target.State().Up })
}
