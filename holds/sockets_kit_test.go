package holds

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
)

// deadline is how long anything on loopback may take before it counts as not
// happening.
const deadline = 30 * time.Second

const (
	plainHead   = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
	chunkedHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
)

// station is Holds, and a listener through which clients come to them.
type station struct {
	*Holds
	t        testing.TB
	listener net.Listener
	coming   sync.Mutex // a dial and its accept belong together
	wraps    bool       // connections come to Open as another type
}

// wrapped is a connection of another type, like one with TLS: no descriptor
// can be taken out of it.
type wrapped struct{ net.Conn }

func (w wrapped) CloseWrite() error { return w.Conn.(*net.TCPConn).CloseWrite() }

// stations are ways to come to a hold.
var stations = map[string]func(testing.TB, Config) *station{
	"tcp":  startStation,
	"unix": startUnixStation,
	"wrapped": func(t testing.TB, cfg Config) *station {
		s := startStation(t, cfg)
		s.wraps = true
		return s
	},
}

// startStation holds clients over TCP until the test ends.
func startStation(t testing.TB, cfg Config) *station {
	t.Helper()
	return startStationAt(t, "tcp", "127.0.0.1:0", cfg)
}

// startUnixStation is startStation over a unix socket.
func startUnixStation(t testing.TB, cfg Config) *station {
	t.Helper()
	dir, err := os.MkdirTemp("", "holds") // a test's own directory has too long a name
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return startStationAt(t, "unix", filepath.Join(dir, "s"), cfg)
}

func startStationAt(t testing.TB, network, addr string, cfg Config) *station {
	t.Helper()
	listener, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	h, err := New(cfg, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return &station{Holds: h, t: t, listener: listener}
}

// connect makes a connection and gives both of its ends.
func (s *station) connect() (client, server net.Conn, err error) {
	s.coming.Lock()
	defer s.coming.Unlock()
	addr := s.listener.Addr()
	if client, err = net.Dial(addr.Network(), addr.String()); err != nil {
		return nil, nil, err
	}
	if server, err = s.listener.Accept(); err != nil {
		client.Close()
	}
	return client, server, err
}

// tight keeps what the kernel takes for a TCP connection small, so that a
// client that does not read is noticed soon.
func tight(client, server net.Conn) {
	client.(*net.TCPConn).SetReadBuffer(4 << 10)
	server.(*net.TCPConn).SetWriteBuffer(4 << 10)
}

// visit opens a hold. Kind and Head are given, and a Position that is left out
// is taken now. Any goroutine may call it; the client is to be closed.
func (s *station) visit(spec Spec, shape ...func(client, server net.Conn)) (*streamClient, error) {
	if spec.Position == 0 {
		spec.Position = s.Position()
	}
	client, server, err := s.connect()
	if err != nil {
		return nil, err
	}
	for _, f := range shape {
		f(client, server)
	}
	client.SetDeadline(time.Now().Add(deadline))
	spec.Kind, spec.Head = ModeStream, []byte(plainHead)
	if spec.Chunked {
		spec.Head = []byte(chunkedHead)
	}
	if s.wraps {
		server = wrapped{server}
	}
	if err := s.Open(server, spec); err != nil {
		client.Close()
		server.Close()
		return nil, err
	}
	return newStreamClient(s.t, client), nil
}

// open is visit for the test's goroutine; the test closes the client.
func (s *station) open(spec Spec, shape ...func(client, server net.Conn)) *streamClient {
	s.t.Helper()
	c, err := s.visit(spec, shape...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.conn.Close() })
	return c
}

// publish publishes text and gives its id.
func (s *station) publish(data string, channels ...string) int64 {
	id, _ := s.Publish(text(data, channels...))
	return id
}

// Publish, PublishItems and End are those of Holds, where nothing can go wrong.
func (s *station) Publish(p Publication) (id int64, reached int) {
	id, reached, err := s.Holds.Publish(p)
	s.must(err)
	return id, reached
}

func (s *station) PublishItems(items []Item) (reached int) {
	reached, err := s.Holds.PublishItems(items, nil)
	s.must(err)
	return reached
}

func (s *station) End(r EndRequest) (ended int) {
	ended, err := s.Holds.End(r)
	s.must(err)
	return ended
}

func (s *station) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Error(err)
	}
}

// until polls for a condition.
func (s *station) until(what string, condition func() bool) {
	s.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(deadline); !condition(); <-tick.C {
		if time.Now().After(end) {
			s.t.Fatalf("not within %v: %s; ended %v", deadline, what, s.Snapshot().Ended[ModeStream])
		}
	}
}

// untilEnded waits until n holds have ended for a reason.
func (s *station) untilEnded(n uint64, reason End) {
	s.t.Helper()
	s.until("holds ended, "+reason.String(), func() bool { return s.Snapshot().Ended[ModeStream][reason.String()] >= n })
}

// handled waits until the loops have taken what was published before.
func (s *station) handled() {
	for _, l := range s.hub.loops {
		s.ask(l, func() {})
	}
}

// untilLive waits until n holds are live: they have what the journal had.
func (s *station) untilLive(n int) {
	s.t.Helper()
	s.until("holds are live", func() bool {
		alive := 0
		for _, l := range s.hub.loops {
			s.ask(l, func() {
				for _, h := range l.table {
					if h != nil && h.state == live {
						alive++
					}
				}
			})
		}
		return alive == n
	})
}

// streamClient is a client of an event stream.
type streamClient struct {
	t      testing.TB
	conn   net.Conn
	in     io.Reader // the connection, or as much of it as is to be read
	body   io.Reader // what comes behind the head, without its chunks
	stream streamReader
	blocks []streamEvent // read, and not yet asked for
}

func newStreamClient(t testing.TB, conn net.Conn) *streamClient {
	return &streamClient{t: t, conn: conn, in: conn}
}

// block reads the next block of the stream. io.EOF is a clean end: with the
// last chunk, where there are chunks.
func (c *streamClient) block() (streamEvent, error) {
	var scratch [4 << 10]byte
	for len(c.blocks) == 0 {
		if c.body == nil {
			res, err := http.ReadResponse(bufio.NewReader(c.in), nil)
			if err != nil {
				return streamEvent{}, err
			}
			c.body = res.Body
		}
		n, err := c.body.Read(scratch[:])
		if c.blocks = c.stream.feed(scratch[:n]); len(c.blocks) == 0 && err != nil {
			return streamEvent{}, err
		}
	}
	e := c.blocks[0]
	c.blocks = c.blocks[1:]
	return e, nil
}

// said reads the next block that means something: an event, or a position.
func (c *streamClient) said() streamEvent {
	c.t.Helper()
	for {
		e, err := c.block()
		if err != nil {
			c.t.Fatalf("%v, where an event or a position was to come", err)
		}
		if e.fires || e.set {
			return e
		}
	}
}

// wantPosition requires a position to come next, and gives it.
func (c *streamClient) wantPosition() int64 {
	c.t.Helper()
	e := c.said()
	if e.fires {
		c.t.Fatalf("event %q with %.60q, where a position was to come", e.name, e.data)
	}
	return e.id
}

// wantEvent requires these events to come next, each by its data, and gives
// the last one's id.
func (c *streamClient) wantEvent(data ...string) (id int64) {
	c.t.Helper()
	for _, want := range data {
		e := c.said()
		if !e.fires || e.name != "" || e.data != want {
			c.t.Fatalf("event %q with %.60q (position %d); want %.60q", e.name, e.data, e.id, want)
		}
		id = e.id
	}
	return id
}

// wantGap requires a gap to come next, told for the position last, and behind
// it the position that it names.
func (c *streamClient) wantGap(last int64) (head int64) {
	c.t.Helper()
	e := c.said()
	if e.name != "m0-gap" || e.set {
		c.t.Fatalf("event %q with %.60q, id set: %v; want a gap without an id", e.name, e.data, e.set)
	}
	told, head := gapOf(e.data)
	if told != last {
		c.t.Fatalf("the gap is told for %d, want %d", told, last)
	}
	if at := c.wantPosition(); at != head {
		c.t.Fatalf("the gap says that the head is %d, and the position is %d", head, at)
	}
	return head
}

// wantEnd requires that nothing more is said and that the stream ends clean.
func (c *streamClient) wantEnd() {
	c.t.Helper()
	for {
		e, err := c.block()
		if err == io.EOF {
			break
		}
		if err != nil || e.fires || e.set {
			c.t.Fatalf("event %q with %.60q (position %d), %v; want a clean end", e.name, e.data, e.id, err)
		}
	}
	if n, err := c.conn.Read(make([]byte, 1)); n > 0 || err != io.EOF {
		c.t.Fatalf("behind the end of the stream %d bytes and %v; want the end of the connection", n, err)
	}
}

// wantReset requires that the connection ends by a reset, whatever comes before.
func (c *streamClient) wantReset() {
	c.t.Helper()
	if _, err := io.Copy(io.Discard, c.conn); !errors.Is(err, syscall.ECONNRESET) {
		c.t.Fatalf("the connection ends with %v, want a reset", err)
	}
}

// idsUntil reads up to the event with this data and gives the ids of the
// events before it.
func (c *streamClient) idsUntil(data string) (ids []int64, err error) {
	for {
		e, err := c.block()
		switch {
		case err != nil:
			return ids, err
		case e.name == "m0-gap":
			return ids, errors.New("a gap: " + e.data)
		case e.fires && e.data == data:
			return ids, nil
		case e.fires:
			ids = append(ids, e.id)
		}
	}
}

// reset ends the client's connection by a reset.
func (c *streamClient) reset() {
	c.conn.(*net.TCPConn).SetLinger(0)
	c.conn.Close()
}

// eventLog is what was published; publishers share it.
type eventLog struct {
	mu     sync.Mutex
	events []published
}

// publish publishes, and notes it.
func (l *eventLog) publish(h *Holds, p Publication) {
	id, _, _ := h.Publish(p)
	l.mu.Lock()
	l.events = append(l.events, published{id, p.Channels})
	l.mu.Unlock()
}

// after gives the ids, in order, that a member of the channels has to get after
// a position.
func (l *eventLog) after(position int64, channels []string) (ids []int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events {
		if e.id > position && slices.ContainsFunc(e.channels, func(name string) bool { return slices.Contains(channels, name) }) {
			ids = append(ids, e.id)
		}
	}
	slices.Sort(ids)
	return ids
}

// difference says where two lists of ids part; "" where they are the same.
func difference(got, want []int64) string {
	if slices.Equal(got, want) {
		return ""
	}
	i := 0
	for i < min(len(got), len(want)) && got[i] == want[i] {
		i++
	}
	return strings.Join([]string{"got", idAt(got, i), "where", idAt(want, i), "was due"}, " ")
}

func idAt(ids []int64, i int) string {
	if i == len(ids) {
		return "nothing"
	}
	var b bytes.Buffer
	b.Write(appendPosition(nil, ids[i]))
	return strings.TrimSpace(b.String())
}

// needDescriptors skips a test for which too few files may be open.
func needDescriptors(t testing.TB, n int) {
	t.Helper()
	if most := descriptors(t); most < n {
		t.Skipf("%d files may be open, and this needs %d: raise the limit (ulimit -n)", most, n)
	}
}

// descriptors is how many files may be open.
func descriptors(t testing.TB) int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	return int(min(limit.Cur, 1<<20))
}
