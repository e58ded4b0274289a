package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// Targets that are configured by name. These tests put a name server of their
// own in place of the system's, so they do not run beside others.

// nameServer answers every question about addresses with those that it has.
type nameServer struct {
	conn    net.PacketConn
	serving sync.WaitGroup

	mu        sync.Mutex
	addresses []netip.Addr // none: there is no such name
}

// useNameServer has every name looked up at one of the test's own.
func useNameServer(t *testing.T, addresses ...string) *nameServer {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &nameServer{conn: conn}
	s.set(addresses...)
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

// namedApp answers every GET with its own name, and counts them.
type namedApp struct {
	server *http.Server
	addr   string
	gets   atomic.Int32
}

func startNamed(t *testing.T, name, addr string) *namedApp {
	t.Helper()
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Skip("this system has one loopback address, or the port is taken:", err)
	}
	a := &namedApp{addr: ln.Addr().String()}
	a.server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "GET" {
			a.gets.Add(1)
		}
		io.WriteString(w, name)
	})}
	go a.server.Serve(ln)
	t.Cleanup(func() { a.server.Close() })
	return a
}

// crowd is clients that ask one after the other, all the time.
type crowd struct {
	running sync.WaitGroup
	over    chan struct{}
	once    sync.Once
	latest  atomic.Int32 // place in order of the last that answered
}

// startCrowd has clients ask until the test ends. The apps answer in order: once
// one has, none before it gets another request, and no request fails.
func startCrowd(t *testing.T, url string, order ...string) *crowd {
	t.Helper()
	c := &crowd{over: make(chan struct{})}
	for range 4 {
		client := newClient(t)
		c.running.Go(func() {
			for {
				select {
				case <-c.over:
					return
				default:
				}
				began := int(c.latest.Load())
				status, body, err := get(context.Background(), client, url)
				at := -1
				for i, name := range order {
					if name == string(body) {
						at = i
					}
				}
				if err != nil || status != 200 || at < began {
					t.Errorf("after %q answered: %d %.300q %v", order[began], status, body, err)
					return
				}
				for now := c.latest.Load(); int32(at) > now && !c.latest.CompareAndSwap(now, int32(at)); now = c.latest.Load() {
				}
				poll()
			}
		})
	}
	t.Cleanup(c.leave)
	return c
}

// leave ends them, before the apps end.
func (c *crowd) leave() {
	c.once.Do(func() { close(c.over) })
	c.running.Wait()
}

const namedLanes = `
upstreams: {app: {targets: ["http://app.test.:PORT"], park: 60s}}
lanes: {web: {upstream: app, slots: 3, queue_timeout: 60s}}
routes: [{match: "/", lane: web}]
`

// An app whose container is recreated has another address, and its old one may
// be somebody else's: it is found without a restart, nothing fails, and nobody
// else gets a request.
func TestName_AnAppThatMovesIsFoundAndNobodyElseGetsARequest(t *testing.T) {
	names := useNameServer(t, "127.0.0.2")
	first := startNamed(t, "first", "127.0.0.2:0")
	_, port, _ := net.SplitHostPort(first.addr)
	second := startNamed(t, "second", "127.0.0.3:"+port)
	s := startReadySite(t, strings.ReplaceAll(namedLanes, "PORT", port))
	clients := startCrowd(t, s.url("/"), "first", "second", "third")
	eventually(t, "the first to answer", func() bool { return first.gets.Load() > 10 })

	// It moves while the old one still answers.
	names.set("127.0.0.3")
	eventually(t, "the second to answer", func() bool { return clients.latest.Load() == 1 })
	old := first.gets.Load()

	// It is gone, and its name with it, and somebody else gets its address.
	names.set()
	second.server.Shutdown(t.Context())
	lastError := func() string {
		targets := s.json("/status").(map[string]any)["targets"].(map[string]any)
		return fmt.Sprint(targets["http://app.test.:"+port].(map[string]any)["last_error"])
	}
	eventually(t, "there to be nothing to dial", func() bool {
		text := lastError()
		return strings.Contains(text, "cannot be reached: app.test.: lookup app.test.") && strings.Contains(text, "no such host")
	})
	stranger := startNamed(t, "stranger", "127.0.0.3:"+port)
	startNamed(t, "third", "127.0.0.4:"+port)
	names.set("127.0.0.4")
	eventually(t, "the third to answer", func() bool { return clients.latest.Load() == 2 })
	clients.leave()
	if n := first.gets.Load() - old; n > 4 { // one that each client had out
		t.Errorf("%d requests went to the first after the second had answered", n)
	}
	if n := stranger.gets.Load(); n != 0 {
		t.Errorf("%d requests went to a stranger", n)
	}
}

func TestName_TheStatusNamesEachAddressThatWasTried(t *testing.T) {
	useNameServer(t, "127.0.0.5", "127.0.0.6")
	s := startSite(t, strings.ReplaceAll(namedLanes, "PORT", "1"))
	eventually(t, "both to be told", func() bool {
		targets := s.json("/status").(map[string]any)["targets"].(map[string]any)
		text := fmt.Sprint(targets["http://app.test.:1"].(map[string]any)["last_error"])
		return strings.Contains(text, "app.test.: dial tcp 127.0.0.") && strings.Contains(text, "127.0.0.5:1: ") && strings.Contains(text, "127.0.0.6:1: ")
	})
}

func TestDoctor_SaysWhereATargetsNameLeads(t *testing.T) {
	names := useNameServer(t)
	app := startNamed(t, "app", "127.0.0.2:0")
	_, port, _ := net.SplitHostPort(app.addr)
	target := "target http://app.test.:" + port
	for name, c := range map[string]struct {
		addresses []string
		result    string
		says      string
	}{
		"One":      {[]string{"127.0.0.2"}, "ok", "app.test. is 127.0.0.2 now"},
		"Families": {[]string{"127.0.0.2", "::1"}, "ok", "127.0.0.2"},
		"Several":  {[]string{"127.0.0.2", "127.0.0.3"}, "warn", "app.test. has 2 addresses now: 127.0.0."},
		"None":     {nil, "warn", "app.test.: lookup app.test."},
	} {
		t.Run(name, func(t *testing.T) {
			names.set(c.addresses...)
			e := examined(t, doctorFile(t, freeAddress(t), freeAddress(t), "app.test.:"+port, 4))
			if found := e.wantCheck(t, target, c.result, c.says); e.Exit != exitOK || (found.Fix != "") != (c.result == "warn") {
				t.Errorf("exit %d, %+v", e.Exit, found)
			}
			if c.result == "ok" {
				e.wantCheck(t, target, "ok", "answers within")
			}
		})
	}
	for _, c := range examined(t, doctorFile(t, freeAddress(t), freeAddress(t), app.addr, 4)).Checks {
		if strings.Contains(c.Found, "looked up") {
			t.Errorf("of an address that needs no look-up: %+v", c)
		}
	}
}
