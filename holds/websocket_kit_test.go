package holds

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const socketHead = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"

// asLink has a connection served by goroutines, as a TLS connection is, by
// whichever loop.
type asLink struct{ *net.TCPConn }

// socketClient is a client of a held WebSocket, frame by frame.
type socketClient struct {
	t    testing.TB
	conn net.Conn
	in   *bufio.Reader
}

// pair makes a connection, of which the test closes the client's end. linked:
// the server's is served by a link.
func (s *station) pair(linked bool, shape ...func(client, server net.Conn)) (client, server net.Conn) {
	s.t.Helper()
	client, server, err := s.connect()
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { client.Close() })
	client.SetDeadline(time.Now().Add(deadline))
	for _, f := range shape {
		f(client, server)
	}
	if linked {
		server = asLink{server.(*net.TCPConn)}
	}
	return client, server
}

// openSocket opens a held socket and reads the answer to its handshake. Kind and
// Head are given, a Position that is left out is taken now, and its messages
// are taken where the station has an app.
func (s *station) openSocket(spec Spec, shape ...func(client, server net.Conn)) *socketClient {
	s.t.Helper()
	client, server := s.pair(false, shape...)
	return s.openSocketOn(client, server, spec)
}

func (s *station) openSocketOn(client, server net.Conn, spec Spec) *socketClient {
	s.t.Helper()
	if spec.Position == 0 {
		spec.Position = s.Position()
	}
	if spec.Channels == nil {
		spec.Channels = []string{"room"}
	}
	spec.Kind, spec.Head = ModeWebSocket, []byte(socketHead)
	if s.limits.Load().Forward != nil && spec.Path == "" {
		spec.Lane, spec.Path, spec.Fields = "web", "/ws/message", []byte("Host: app.example\r\nCookie: sessionid=1\r\n")
	}
	if err := s.Open(server, spec); err != nil {
		server.Close()
		s.t.Fatal(err)
	}
	c := &socketClient{t: s.t, conn: client, in: bufio.NewReader(client)}
	c.wantHead()
	return c
}

// wantHead reads the answer to the handshake.
func (c *socketClient) wantHead() {
	c.t.Helper()
	head := make([]byte, len(socketHead))
	if _, err := io.ReadFull(c.in, head); err != nil || string(head) != socketHead {
		c.t.Fatalf("%q, %v; want the answer to the handshake", head, err)
	}
}

// send sends frames.
func (c *socketClient) send(frames clientSends) {
	c.t.Helper()
	if _, err := c.conn.Write(frames); err != nil {
		c.t.Fatalf("the client cannot send %d bytes: %v", len(frames), err)
	}
}

// read reads one frame; payload is all of it, for a close too.
func (c *socketClient) read() (op opcode, payload string, err error) {
	var head [2]byte
	if _, err := io.ReadFull(c.in, head[:]); err != nil {
		return 0, "", err
	}
	if head[0]&0xF0 != 0x80 || head[1]&0x80 != 0 {
		c.t.Fatalf("% x is not the head of a whole, unmasked frame", head)
	}
	length := uint64(head[1])
	var long [8]byte
	switch length {
	case 126:
		_, err = io.ReadFull(c.in, long[6:])
		length = binary.BigEndian.Uint64(long[:])
	case 127:
		_, err = io.ReadFull(c.in, long[:])
		length = binary.BigEndian.Uint64(long[:])
	}
	if err != nil {
		return 0, "", err
	}
	b := make([]byte, length)
	if n, err := io.ReadFull(c.in, b); err != nil {
		return 0, "", fmt.Errorf("behind %d of a frame's %d bytes: %w", n, length, err)
	}
	return opcode(head[0] & 0xF), string(b), nil
}

// want requires a frame to come next.
func (c *socketClient) want(op opcode, payload string) {
	c.t.Helper()
	gotOp, got, err := c.read()
	if err != nil || gotOp != op || got != payload {
		c.t.Fatalf("opcode %X with %.100q, %v; want %X with %.100q", byte(gotOp), got, err, byte(op), payload)
	}
}

func (c *socketClient) wantText(payloads ...string) {
	c.t.Helper()
	for _, p := range payloads {
		c.want(opText, p)
	}
}

// wantClose requires a close frame with this code and reason to come next, and
// the end of the server's side behind it.
func (c *socketClient) wantClose(code uint16, reason string) {
	c.t.Helper()
	payload := string(binary.BigEndian.AppendUint16(nil, code)) + reason
	if code == closeNoStatus {
		payload = ""
	}
	c.want(opClose, payload)
	c.wantEOF()
}

// wantEOF requires that the server sends nothing more, and no reset.
func (c *socketClient) wantEOF() {
	c.t.Helper()
	if b, err := c.in.ReadByte(); err != io.EOF {
		c.t.Fatalf("%x, %v; want the end of the connection", b, err)
	}
}

// wantReset requires that the connection ends by a reset, whatever comes before.
func (c *socketClient) wantReset() {
	c.t.Helper()
	if _, err := io.Copy(io.Discard, c.in); !errors.Is(err, syscall.ECONNRESET) {
		c.t.Fatalf("the connection ends with %v, want a reset", err)
	}
}

// enveloped is an event as an envelope has it.
type enveloped struct {
	ID    *int64          `json:"id"`
	Event *string         `json:"event"`
	Data  json.RawMessage `json:"data"`
}

// envelope reads the next message as an envelope.
func (c *socketClient) envelope() (e enveloped) {
	c.t.Helper()
	op, payload, err := c.read()
	if err != nil || op != opText {
		c.t.Fatalf("opcode %X with %.100q, %v; want an envelope", byte(op), payload, err)
	}
	if err := json.Unmarshal([]byte(payload), &e); err != nil {
		c.t.Fatalf("%.100q is no envelope: %v", payload, err)
	}
	return e
}

// wantOpen requires the envelope's first message, and gives its position.
func (c *socketClient) wantOpen() (position int64) {
	c.t.Helper()
	e := c.envelope()
	if e.ID == nil || e.Event == nil || *e.Event != "m0-open" || string(e.Data) != "null" {
		c.t.Fatalf("%+v, want m0-open with the position", e)
	}
	return *e.ID
}

// app answers the messages of a station's sockets, one call of the test at a
// time.
type app struct {
	t       testing.TB
	station *station
	calls   chan *appCall
	at      atomic.Int64 // how many messages it has now
	most    atomic.Int64
}

// appCall is a message that the app has been sent.
type appCall struct {
	*Request
	t        testing.TB
	position int64
	done     chan appResult
}

type appResult struct {
	answer Answer
	err    error
}

// startApp is a station whose sockets' messages go to an app.
func startApp(t testing.TB, cfg Config) (*station, *app) {
	t.Helper()
	a := &app{t: t, calls: make(chan *appCall)}
	cfg.Forward = a.forward
	a.station = startStation(t, cfg)
	return a.station, a
}

func (a *app) forward(ctx context.Context, m *Request) (Answer, error) {
	for at, most := a.at.Add(1), a.most.Load(); at > most && !a.most.CompareAndSwap(most, at); most = a.most.Load() {
	}
	defer a.at.Add(-1)
	c := &appCall{Request: m, t: a.t, position: a.station.Position(), done: make(chan appResult, 1)}
	select {
	case a.calls <- c:
	case <-ctx.Done():
		return Answer{}, ErrStopping
	}
	select {
	case r := <-c.done:
		return r.answer, r.err
	case <-ctx.Done():
		return Answer{}, ErrStopping
	}
}

// next is the next message that the app gets.
func (a *app) next() *appCall {
	a.t.Helper()
	timer := time.NewTimer(deadline)
	defer timer.Stop()
	select {
	case c := <-a.calls:
		return c
	case <-timer.C:
		a.t.Fatal("the app gets no message")
		return nil
	}
}

// wantMessage is next, and requires its payload.
func (a *app) wantMessage(payload string) *appCall {
	a.t.Helper()
	c := a.next()
	if string(c.Body) != payload {
		a.t.Fatalf("the app gets %.100q, want %.100q", c.Body, payload)
	}
	return c
}

// ok answers with field lines, as of when the app was asked.
func (c *appCall) ok(fields ...string) { c.reply(http.StatusOK, "", fields...) }

func (c *appCall) reply(status int, body string, fields ...string) {
	c.done <- appResult{answer: Answer{Status: status, Fields: fieldsOf(c.t, fields...), Body: []byte(body), Position: c.position}}
}

func (c *appCall) fail(err error) { c.done <- appResult{err: err} }

// ended counts the ends of a kind for a reason.
func (s *station) ended(kind Mode, reason End) uint64 {
	return s.Snapshot().Ended[kind][reason.String()]
}

// untilSocketEnded waits until a socket has ended for a reason.
func (s *station) untilSocketEnded(reason End) {
	s.t.Helper()
	s.until("a socket ended, "+reason.String(), func() bool { return s.ended(ModeWebSocket, reason) > 0 })
}

// pollHead is a long poll's head as far as the view has a say in it.
const pollHead = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nSet-Cookie: a=1\r\n"

// pollClient is a client that polls over one connection.
type pollClient struct {
	t    testing.TB
	conn net.Conn
	in   *bufio.Reader
}

// openPoll opens a long poll on a new connection. Kind, Head and Timeout (an
// hour) are given, and a Position that is left out is taken now.
func (s *station) openPoll(spec Spec, linked bool, shape ...func(client, server net.Conn)) *pollClient {
	s.t.Helper()
	client, server := s.pair(linked, shape...)
	s.pollOn(server, spec)
	return &pollClient{t: s.t, conn: client, in: bufio.NewReader(client)}
}

// pollOn makes a long poll of the server's end of a connection.
func (s *station) pollOn(server net.Conn, spec Spec) {
	s.t.Helper()
	if err := s.Open(server, s.pollSpec(spec)); err != nil {
		server.Close()
		s.t.Fatal(err)
	}
}

func (s *station) pollSpec(spec Spec) Spec {
	if spec.Position == 0 {
		spec.Position = s.Position()
	}
	if spec.Channels == nil {
		spec.Channels = []string{"room"}
	}
	if spec.Timeout == 0 {
		spec.Timeout = time.Hour
	}
	spec.Kind, spec.Head = ModeResponse, []byte(pollHead)
	return spec
}

// answer reads an answer whole.
func (c *pollClient) answer() (res *http.Response, body string) {
	c.t.Helper()
	res, err := http.ReadResponse(c.in, nil)
	if err != nil {
		c.t.Fatalf("%v, where an answer was to come", err)
	}
	b, err := io.ReadAll(res.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return res, string(b)
}

// wantAnswer reads an answer and requires its body and id. gap: and that it
// tells of a gap.
func (c *pollClient) wantAnswer(body, id string, gap bool) *http.Response {
	c.t.Helper()
	res, got := c.answer()
	if got != body || res.Header.Get("M0-Event-Id") != id || (res.Header.Get("M0-Gap") == "true") != gap || res.StatusCode != http.StatusOK {
		c.t.Fatalf("%d %v %.100q, want %.100q with the id %s, gap %v", res.StatusCode, res.Header, got, body, id, gap)
	}
	return res
}

// wantEnd requires the end of the connection.
func (c *pollClient) wantEnd() {
	c.t.Helper()
	if b, err := c.in.ReadByte(); err != io.EOF {
		c.t.Fatalf("%x, %v; want the end of the connection", b, err)
	}
}

// returned is a connection that came back from a long poll.
type returned struct {
	conn  net.Conn
	early []byte
}

// startReturning is a station whose long polls' connections come back.
func startReturning(t testing.TB, cfg Config) (*station, chan returned) {
	t.Helper()
	back := make(chan returned, 1000)
	cfg.Return = func(conn net.Conn, early []byte) { back <- returned{conn, early} }
	s := startStation(t, cfg)
	t.Cleanup(func() {
		s.Close()
		for len(back) > 0 {
			(<-back).conn.Close()
		}
	})
	return s, back
}

// sentence makes a text of n bytes that begins with a word.
func sentence(word string, n int) string { return word + " " + strings.Repeat("x", n-len(word)-1) }
