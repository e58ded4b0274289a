package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fasthttp/websocket"
)

// The kit of the tests of held sockets and long polls: the two apps of
// testdata/apps/sockets, and clients of both.

// newSocketsApp makes an app that is not started: it is told then where events
// are published.
func newSocketsApp(t *testing.T, server holdsServer) *holdsApp {
	t.Helper()
	client, err := filepath.Abs("../../clients/python")
	if err != nil {
		t.Fatal(err)
	}
	gates := t.TempDir()
	return &holdsApp{newApp(t, "sockets", []string{"PYTHONPATH=..:" + client, "GATES=" + gates}, server.args...), gates}
}

// startSockets serves an app with this configuration until the test ends, which
// may name environment variables besides the process's own, NAME=VALUE.
func startSockets(t *testing.T, server holdsServer, yaml string, env ...string) *holdsSite {
	t.Helper()
	a := newSocketsApp(t, server)
	s := startHoldsAlone(t, yaml, []*app{a.app}, env...)
	s.app = a
	a.startFor(s.publish)
	s.wantReady()
	return s
}

// wantReady waits until every target has answered.
func (s *holdsSite) wantReady() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := s.awaitReady(ctx); err != nil || ctx.Err() != nil {
		s.t.Fatal("not ready:", err, ctx.Err())
	}
}

// startSocketsCommand is startSockets with Holdfast as a process of its own.
func startSocketsCommand(t *testing.T, server holdsServer, yaml string) (*command, *holdsApp) {
	t.Helper()
	a := newSocketsApp(t, server)
	c := startCommand(t, writeConfig(t, yaml, a.addr))
	c.serveWith(t, a)
	return c, a
}

// startSocketsBinary is startSocketsCommand with the built binary.
func startSocketsBinary(t *testing.T, server holdsServer, yaml string) (*command, *holdsApp) {
	t.Helper()
	a := newSocketsApp(t, server)
	c := runBinary(t, writeConfig(t, yaml, a.addr))
	c.serveWith(t, a)
	return c, a
}

// serveWith starts the app and waits until Holdfast is ready.
func (c *command) serveWith(t *testing.T, a *holdsApp) {
	t.Helper()
	a.startFor(c.publishAddr(t))
	c.eventuallySays(t, "ready")
}

// socketClient is a client of a WebSocket.
type socketClient struct {
	*websocket.Conn
	t        *testing.T
	response *http.Response // to the handshake
}

// dialSocket opens a WebSocket. Any goroutine may call it.
func dialSocket(addr, path string, fields http.Header, protocols ...string) (*socketClient, error) {
	dialer := websocket.Dialer{Subprotocols: protocols, HandshakeTimeout: time.Minute, EnableCompression: true}
	conn, response, err := dialer.Dial("ws://"+addr+path, fields)
	if err != nil && response != nil {
		err = fmt.Errorf("%w: %s %s", err, response.Status, response.Header.Get("Holdfast-Reason"))
	}
	if err != nil {
		return nil, err
	}
	conn.SetReadDeadline(time.Now().Add(time.Minute))
	conn.SetWriteDeadline(time.Now().Add(time.Minute))
	return &socketClient{Conn: conn, response: response}, nil
}

// openSocket is dialSocket for a test. fields are names and values by turns.
func openSocket(t *testing.T, addr, path string, fields ...string) *socketClient {
	t.Helper()
	header := make(http.Header)
	for i := 0; i < len(fields); i += 2 {
		header.Add(fields[i], fields[i+1])
	}
	c, err := dialSocket(addr, path, header)
	if err != nil {
		t.Fatal(path, err)
	}
	c.t = t
	t.Cleanup(func() { c.Close() })
	return c
}

// openSockets opens n, so many at a time as an app's backlog takes.
func openSockets(t *testing.T, addr, path string, n int) []*socketClient {
	t.Helper()
	clients := make([]*socketClient, n)
	eachAtOnce(t, n, func(i int) (err error) {
		clients[i], err = dialSocket(addr, path, nil)
		return err
	})
	t.Cleanup(func() {
		for _, c := range clients {
			if c != nil {
				c.Close()
			}
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	for _, c := range clients {
		c.t = t
	}
	return clients
}

// say sends a text.
func (c *socketClient) say(format string, args ...any) {
	c.t.Helper()
	if err := c.WriteMessage(websocket.TextMessage, fmt.Appendf(nil, format, args...)); err != nil {
		c.t.Fatal(err)
	}
}

// want reads the next message, which is this text.
func (c *socketClient) want(text string) {
	c.t.Helper()
	if kind, got, err := c.ReadMessage(); err != nil || kind != websocket.TextMessage || string(got) != text {
		c.t.Fatalf("%.300q of kind %d, %v; want the text %.300q", got, kind, err, text)
	}
}

// wantBinary reads the next message, which are these bytes.
func (c *socketClient) wantBinary(data string) {
	c.t.Helper()
	if kind, got, err := c.ReadMessage(); err != nil || kind != websocket.BinaryMessage || string(got) != data {
		c.t.Fatalf("%.300q of kind %d, %v; want the bytes %.300q", got, kind, err, data)
	}
}

// wantClose reads the close frame, which comes next, and behind it the end.
func (c *socketClient) wantClose(code int, reason string) {
	c.t.Helper()
	if err := c.closed(code, reason); err != nil {
		c.t.Error(err)
	}
}

func (c *socketClient) closed(code int, reason string) error {
	_, got, err := c.ReadMessage()
	var end *websocket.CloseError
	if !errors.As(err, &end) || end.Code != code || end.Text != reason {
		return fmt.Errorf("%.300q, %w; want the close %d %q", got, cmpErr(err), code, reason)
	}
	if n, err := c.NetConn().Read(make([]byte, 1)); err != io.EOF {
		return fmt.Errorf("behind the close %d bytes and %w, want the end", n, cmpErr(err))
	}
	return nil
}

// envelope is an event as a socket gets it that asked for ids.
type envelope struct {
	ID     *int64
	Event  *string
	Data   json.RawMessage
	Base64 *string
}

func (e envelope) String() string {
	text, _ := json.Marshal(e)
	return string(text)
}

// wantEnvelope reads the next message, which has exactly the keys of an event.
func (c *socketClient) wantEnvelope() (e envelope) {
	c.t.Helper()
	kind, text, err := c.ReadMessage()
	var keys map[string]json.RawMessage
	if err != nil || kind != websocket.TextMessage || json.Unmarshal(text, &keys) != nil || json.Unmarshal(text, &e) != nil {
		c.t.Fatalf("%.300q of kind %d, %v; want an event as JSON", text, kind, err)
	}
	data := "data"
	if e.Base64 != nil {
		data = "base64"
	}
	if len(keys) != 3 || keys["id"] == nil || keys["event"] == nil || keys[data] == nil {
		c.t.Fatalf("%.300q, want id, event and data", text)
	}
	return e
}

// wantOpen reads the first words, which are the position.
func (c *socketClient) wantOpen() (position int64) {
	c.t.Helper()
	e := c.wantEnvelope()
	if e.ID == nil || e.Event == nil || *e.Event != "m0-open" || string(e.Data) != "null" {
		c.t.Fatalf("%v, want m0-open with its position", e)
	}
	return *e.ID
}

// wantEvent reads the next event, which has this data and no name.
func (c *socketClient) wantEvent(id int64, data string) {
	c.t.Helper()
	if e := c.wantEnvelope(); e.ID == nil || *e.ID != id || e.Event != nil || string(e.Data) != data {
		c.t.Fatalf("%v, want the event %d with %s", e, id, data)
	}
}

// heard gives the numbers of the messages that the app has begun to answer, in
// its order, by the socket that they came from.
func (a *app) heard() map[string][]int {
	a.t.Helper()
	numbers := make(map[string][]int)
	for _, e := range a.entries() {
		if text, ok := strings.CutPrefix(e.Path, "/message/"); ok && e.Ev == "start" {
			n, err := strconv.Atoi(text)
			if err != nil {
				a.t.Fatalf("a message that is none of ours: %q", text)
			}
			numbers[e.ID] = append(numbers[e.ID], n)
		}
	}
	return numbers
}

// heardOfOne is heard where there is one socket at most.
func (a *app) heardOfOne() (numbers []int) {
	a.t.Helper()
	all := a.heard()
	if len(all) > 1 {
		a.t.Fatalf("messages of %d sockets, want one's", len(all))
	}
	for _, numbers = range all {
	}
	return numbers
}

// wantHeard waits until the one socket's messages have come, and nothing else.
func (a *app) wantHeard(numbers ...int) {
	a.t.Helper()
	eventually(a.t, fmt.Sprint("the app to hear the messages ", numbers), func() bool { return len(a.heardOfOne()) >= len(numbers) })
	if got := a.heardOfOne(); !slices.Equal(got, numbers) {
		a.t.Errorf("the app heard %v, want %v", got, numbers)
	}
}

// holdsShown are the holds in the JSON of /health.
type holdsShown struct {
	Subscribers int
	Sockets     int
	Polls       int `json:"long_polls"`
}

func healthHolds(t *testing.T, addr string) (h holdsShown) {
	t.Helper()
	body := wantGet(t, onceClient(), "http://"+addr+"/health")
	if err := json.Unmarshal(body, &h); err != nil || !strings.Contains(string(body), `"sockets"`) || !strings.Contains(string(body), `"long_polls"`) {
		t.Fatalf("/health does not count holds: %s (%v)", body, err)
	}
	return h
}

func eventuallyHolds(t *testing.T, addr string, want holdsShown) {
	t.Helper()
	eventually(t, fmt.Sprintf("%+v in /health", want), func() bool { return healthHolds(t, addr) == want })
}

// inboundCount is what became of so many messages.
func inboundCount(t *testing.T, admin, result string) int {
	t.Helper()
	return int(metric(t, admin, `holdfast_inbound_total{result="`+result+`"}`))
}

// pollClient is a client that polls on one connection.
type pollClient struct {
	net.Conn
	t  *testing.T // nil: it is not a test's goroutine that polls
	in *bufio.Reader
	id string // what it comes back with
}

func dialPoll(addr string) (*pollClient, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	conn.SetDeadline(time.Now().Add(2 * time.Minute))
	return &pollClient{Conn: conn, in: bufio.NewReader(conn)}, nil
}

func openPoll(t *testing.T, addr string) *pollClient {
	t.Helper()
	p, err := dialPoll(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	p.t = t
	return p
}

// ask sends a request.
func (p *pollClient) ask(path string) {
	request := "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n"
	if p.id != "" {
		request += "Last-Event-ID: " + p.id + "\r\n"
	}
	io.WriteString(p, request+"\r\n")
}

// answer reads the next answer, and keeps its id.
func (p *pollClient) answer() (a *rawAnswer, err error) {
	if a, err = readRaw(p.in, "GET"); err != nil {
		return nil, err
	}
	if id := a.get("M0-Event-Id"); len(id) > 0 {
		p.id = id[0]
	}
	return a, nil
}

// wantAnswer reads the next answer, a 200 with this body.
func (p *pollClient) wantAnswer(body string) *rawAnswer {
	p.t.Helper()
	a, err := p.answer()
	if err != nil || a.code() != 200 || a.body != body {
		p.t.Fatalf("%+v %v, want 200 with %q", a, err, body)
	}
	return a
}

// readAll reads so many messages.
func readAll(c *socketClient, n int) (texts []string, err error) {
	for range n {
		_, text, err := c.ReadMessage()
		if err != nil {
			return texts, err
		}
		texts = append(texts, string(text))
	}
	return texts, nil
}
