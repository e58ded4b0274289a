package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Stream lanes before uvicorn: bytes as they come, both ways, and ends that
// are passed on.

// eventStream is a client that reads a stream of the help desk.
type eventStream struct {
	net.Conn
	in       *bufio.Reader // of the connection
	response *http.Response
	body     *bufio.Reader
}

// openStream asks for a stream and waits for its head.
func openStream(t *testing.T, addr, path, fields string) *eventStream {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(time.Minute))
	s := &eventStream{Conn: conn, in: bufio.NewReader(conn)}
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: desk.example\r\n%s\r\n", path, fields)
	if s.response, err = http.ReadResponse(s.in, nil); err != nil {
		t.Fatal(path, err)
	}
	s.body = bufio.NewReader(s.response.Body)
	if s.response.StatusCode != 200 {
		text, _ := io.ReadAll(s.body)
		t.Fatalf("%s: %s %s", path, s.response.Status, text)
	}
	return s
}

// wantEvent reads one event, which is the numbered one.
func (s *eventStream) wantEvent(t *testing.T, event string, number int) {
	t.Helper()
	want := fmt.Sprintf("id: %d\nevent: %s\ndata: %d\n\n", number, event, number)
	got := make([]byte, len(want))
	if _, err := io.ReadFull(s.body, got); err != nil || string(got) != want {
		t.Fatalf("%q %v, want %q", got, err, want)
	}
}

func TestStreamLane_TheHeadComesBeforeTheFirstEventAndEachEventAtOnce(t *testing.T) {
	t.Parallel()
	d := startDesk(t)
	h := d.serve(t)
	s := openStream(t, addrOf(h), "/rt/gated?gate=events", "Accept: text/event-stream\r\n")
	if r := s.response; r.StatusCode != 200 || r.Header.Get("Content-Type") != "text/event-stream" || r.Header.Get("M0-Note") != "" {
		t.Errorf("%d %v, want the app's head without M0 fields", r.StatusCode, r.Header)
	}
	// The app may send event n+1 only when the client has event n.
	for n := 1; n <= 20; n++ {
		d.allow(t, "events")
		s.wantEvent(t, "gated", n)
	}
}

// An HTTP/1.0 client gets the bytes without chunks, to the connection's end.
func TestStreamLane_AnHTTP10ClientGetsEachEventAtOnce(t *testing.T) {
	t.Parallel()
	d := startDesk(t)
	h := d.serve(t)
	conn, err := net.Dial("tcp", addrOf(h))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	io.WriteString(conn, "GET /rt/gated?gate=old HTTP/1.0\r\n\r\n")
	in := bufio.NewReader(conn)
	head, err := readRawHead(in)
	if err != nil || head.code() != 200 || head.has("Transfer-Encoding", "") || head.has("Connection", "keep-alive") {
		t.Fatalf("%v %v", head, err)
	}
	s := &eventStream{body: in}
	for n := 1; n <= 3; n++ {
		d.allow(t, "old")
		s.wantEvent(t, "gated", n)
	}
}

// The ways to leave a stream: all of them are one.
var leavings = map[string]func(*net.TCPConn){
	"Closed":     func(c *net.TCPConn) { c.Close() },
	"HalfClosed": func(c *net.TCPConn) { c.CloseWrite() },
	"Reset":      func(c *net.TCPConn) { c.SetLinger(0); c.Close() },
}

// The stream is silent: the app cannot find out by sending something.
func TestStreamLane_TheClientsLeavingReachesTheApp(t *testing.T) {
	t.Parallel()
	d := startDesk(t)
	h := d.serve(t)
	for name, leave := range leavings {
		t.Run(name, func(t *testing.T) {
			stays := openStream(t, addrOf(h), "/rt/gated?gate=stays"+name, "")
			leaves := openStream(t, addrOf(h), "/rt/gated?gate=leaves"+name, "")
			eventually(t, "both at the app", func() bool { return d.asgi.running("/rt/gated") == 2 })
			leave(leaves.Conn.(*net.TCPConn))
			eventually(t, "the app to hear of it", func() bool { return d.asgi.running("/rt/gated?gate=leaves"+name) == 0 })
			eventually(t, "its slot free", func() bool { return inUse(h, "streams") == 1 })
			// The negative arm: the other is not disturbed.
			if d.asgi.running("/rt/gated?gate=stays"+name) != 1 {
				t.Error("the stream that nobody left has ended, too")
			}
			d.allow(t, "stays"+name)
			stays.wantEvent(t, "gated", 1)
			stays.Close()
			eventually(t, "the lane empty", func() bool { return inUse(h, "streams") == 0 })
		})
	}
}

// Before the head, too: an app that takes its time is left at once.
func TestStreamLane_LeavingBeforeTheHeadReachesTheApp(t *testing.T) {
	t.Parallel()
	d := startDesk(t)
	h := d.serve(t)
	conn, err := net.Dial("tcp", addrOf(h))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "POST /rt/mirror HTTP/1.1\r\nHost: desk.example\r\nContent-Length: 100\r\n\r\n")
	eventually(t, "the app to wait for the body", func() bool { return d.asgi.running("/rt/mirror") == 1 })
	conn.Close()
	eventually(t, "the app to hear of it", func() bool { return d.asgi.running("/rt/mirror") == 0 })
	eventually(t, "the lane empty", func() bool { return inUse(h, "streams") == 0 })
	if left := on("/left/", d.asgi.views()); len(left) != 1 || left[0].Path != "/left/disconnect" {
		t.Errorf("the app was told %v, want a disconnect: half a body must not look whole", left)
	}
}

// A body goes up as it comes while its answer comes down.
func TestStreamLane_BodyAndAnswerPassPieceByPiece(t *testing.T) {
	t.Parallel()
	d := startDesk(t)
	h := d.serve(t)
	for _, framing := range []string{"Content-Length: 60", "Transfer-Encoding: chunked"} {
		conn, err := net.Dial("tcp", addrOf(h))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(time.Minute))
		fmt.Fprintf(conn, "POST /rt/mirror HTTP/1.1\r\nHost: desk.example\r\n%s\r\n\r\n", framing)
		in := bufio.NewReader(conn)
		response, err := http.ReadResponse(in, nil) // the app answers before it has read anything
		if err != nil || response.StatusCode != 200 {
			t.Fatal(response, err)
		}
		chunked := strings.HasSuffix(framing, "chunked")
		for n := range 10 {
			piece := fmt.Sprintf("piece%d", n)
			if chunked {
				fmt.Fprintf(conn, "%x\r\n%s\r\n", len(piece), piece)
			} else {
				io.WriteString(conn, piece)
			}
			got := make([]byte, len(piece))
			if _, err := io.ReadFull(response.Body, got); err != nil || string(got) != piece {
				t.Fatalf("%s: %q %v, want %q before the next piece is sent", framing, got, err, piece)
			}
		}
		if chunked {
			io.WriteString(conn, "0\r\n\r\n")
		}
		if rest, err := io.ReadAll(response.Body); err != nil || string(rest) != "\n60 bytes\n" {
			t.Errorf("%s: ends with %q %v", framing, rest, err)
		}
		// It had not heard all of the request when it said whether the connection goes on.
		if _, err := in.ReadByte(); !response.Close || err != io.EOF {
			t.Errorf("%s: close said %v, then %v", framing, response.Close, err)
		}
	}
}

const deskLanes = `
upstreams:
  wsgi: {targets: ["http://%s"], concurrency: 8}
  asgi: {targets: ["http://%s"], concurrency: 2}
lanes:
  web:     {upstream: wsgi, slots: 8, queue_timeout: 60s}
  pages:   {upstream: asgi, slots: 2, queue_timeout: 60s}
  streams: {upstream: asgi, kind: stream, slots: 12}
  few:     {upstream: asgi, kind: stream, slots: 2}
routes:
  - {match: few.example/, lane: few}
  - {match: pages.example/, lane: pages}
  - {match: /rt/, lane: streams}
  - {match: /, lane: web}
`

func TestStreamLane_TicksWhileEveryWorkerOfTheAppIsBusy(t *testing.T) {
	t.Parallel()
	d := startDesk(t)
	h := startHoldfast(t, deskLanes, d.wsgi, d.asgi)
	s := openStream(t, addrOf(h), "/rt/ticks?ms=10", "")
	s.wantEvent(t, "tick", 1)
	slow := make(chan attempt, 8)
	for range 8 {
		go func() { slow <- ask(onceClient(), "GET", h.url(""), "/reports/job/slow") }()
	}
	eventually(t, "eight slow views", func() bool { return d.wsgi.running("/reports/job") == 8 })
	waits := make(chan attempt, 1)
	go func() { waits <- ask(onceClient(), "GET", h.url(""), "/about") }()
	eventually(t, "a page that waits", func() bool { return h.wiring.Load().lanes["web"].Snapshot().Waiting == 1 })
	for n := 2; n <= 50; n++ {
		s.wantEvent(t, "tick", n)
	}
	// The negative arm: what needs a worker has waited all the time.
	if len(waits) != 0 || d.wsgi.running("/reports/job") != 8 {
		t.Errorf("%d slow views run, and the page was answered: %d; that the stream ticks shows nothing", d.wsgi.running("/reports/job"), len(waits))
	}
	d.allow(t, "slow")
	for range 8 {
		if got := <-slow; !got.ok() {
			t.Error(got)
		}
	}
	if got := <-waits; !got.ok() {
		t.Error(got)
	}
}

// Twelve streams at an app of concurrency 2, and both of its request slots are free.
func TestStreamLane_ItsSlotsAreNoRequestSlots(t *testing.T) {
	t.Parallel()
	d := startDesk(t)
	h := startHoldfast(t, deskLanes, d.wsgi, d.asgi)
	for range 12 {
		openStream(t, addrOf(h), "/rt/ticks?ms=100", "").wantEvent(t, "tick", 1)
	}
	if n, pages := inUse(h, "streams"), inUse(h, "pages"); n != 12 || pages != 0 {
		t.Errorf("%d stream slots and %d request slots taken, want 12 and 0", n, pages)
	}
	request, err := http.NewRequest("GET", h.url("/about"), nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Host = "pages.example"
	response, err := onceClient().Do(request)
	if err != nil || response.StatusCode != 200 {
		t.Errorf("a page of the same app: %v %v", response, err)
	}
}

func TestStreamLane_AFullOneRefusesAtOnce(t *testing.T) {
	t.Parallel()
	d := startDesk(t)
	h := startHoldfast(t, deskLanes, d.wsgi, d.asgi)
	open := func() *eventStream { return openStream(t, addrOf(h), "http://few.example/rt/ticks?ms=100", "") }
	first, second := open(), open()
	first.wantEvent(t, "tick", 1)
	second.wantEvent(t, "tick", 1)
	third := askRaw(t, addrOf(h), "GET /rt/ticks HTTP/1.1\r\nHost: few.example\r\n\r\n")
	if third.code() != 503 || !third.has("Holdfast-Reason", "lane_full") || !third.has("Retry-After", "") {
		t.Errorf("the third of two: %s %q, want 503 lane_full", third.status, third.fields)
	}
	lane := h.wiring.Load().lanes["few"].Snapshot()
	if lane.InUse != 2 || lane.Waiting != 0 || lane.Refused["lane_full"] != 1 {
		t.Errorf("%+v, want two taken, nobody waiting, one refused", lane)
	}
	// When one has left, the next is served.
	first.Close()
	eventually(t, "a slot free", func() bool { return inUse(h, "few") == 1 })
	open().wantEvent(t, "tick", 1)
}

// An app that dies amid a stream: its client is cut, and sees no clean end.
func TestStreamLane_AStreamWhoseAppDiesIsCut(t *testing.T) {
	t.Parallel()
	d := startDesk(t)
	h := d.serve(t)
	s := openStream(t, addrOf(h), "/rt/gated?gate=dies", "")
	d.allow(t, "dies")
	s.wantEvent(t, "gated", 1)
	d.asgi.kill()
	if rest, err := io.ReadAll(s.body); err == nil || len(rest) > 0 {
		t.Errorf("%q and %v: it looks as if the stream had ended", rest, err)
	}
	eventually(t, "the lane empty", func() bool { return inUse(h, "streams") == 0 })
}

// A stream lane has no queue: who comes as soon as it is ready finds it so.
func TestStreamLane_OnceReadyItServes(t *testing.T) {
	t.Parallel()
	d := startDesk(t)
	for range 100 {
		h := startHoldfast(t, deskLanes, d.wsgi, d.asgi)
		if a := askRaw(t, addrOf(h), "GET /rt/status HTTP/1.1\r\nHost: desk.example\r\n\r\n"); a.code() != 200 {
			t.Fatalf("at once after ready: %s %q", a.status, a.body)
		}
		h.stopAll(5 * time.Second)
	}
}

// Nobody waits for an app that is down, neither the one who finds that out nor who comes later.
func TestStreamLane_AnAppThatIsDownIsSaidToBe(t *testing.T) {
	t.Parallel()
	d := startDesk(t)
	h := d.serve(t)
	openStream(t, addrOf(h), "/rt/ticks?ms=10", "").wantEvent(t, "tick", 1)
	d.asgi.kill()
	for _, who := range []string{"first", "second"} {
		began := time.Now()
		a := askRaw(t, addrOf(h), "GET /rt/ticks HTTP/1.1\r\nHost: desk.example\r\n\r\n")
		if a.code() != 503 || !a.has("Holdfast-Reason", "upstream_down") {
			t.Errorf("the %s: %s %q %s, want 503 upstream_down", who, a.status, a.get("Holdfast-Reason"), a.body)
		}
		// Ten seconds are the defaults of queue_timeout and park.
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("the %s was told after %v, want at once", who, took)
		}
	}
	d.asgi.start()
	eventually(t, "the lane to serve again", func() bool {
		return askRaw(t, addrOf(h), "GET /rt/status HTTP/1.1\r\nHost: desk.example\r\n\r\n").code() == 200
	})
}
