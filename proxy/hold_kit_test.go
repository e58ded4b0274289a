package proxy_test

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"holdfast/holds"
	"holdfast/lanes"
	"holdfast/proxy"
	"holdfast/upstream"
)

// ---- The kit of the files that begin with hold_.

// holdSetup is how a holdSite is made. Zero: one slot, M0, no bounds.
type holdSetup struct {
	lane   lanes.Config
	holds  holds.Config
	proxy  func(*proxy.Config) // has the last word
	routes []proxy.Route       // beside /, which is on the lane
}

// holdSite is a proxy, an app whose views are answered by the test, byte for
// byte, and holds.
type holdSite struct {
	addr   string
	lane   *lanes.Lane
	holds  *holds.Holds
	server *proxy.Server
	logs   *observer.ObservedLogs
	served chan struct{} // closed when Serve has returned
	views  chan *view
	stop   sync.Once
}

// view is a request that the app has.
type view struct {
	*appConn
	line   string
	fields [][2]string
	over   chan bool // whether another may follow on its connection
	done   bool      // that was said
}

func startHolds(t *testing.T, setup holdSetup) *holdSite {
	t.Helper()
	s := &holdSite{served: make(chan struct{}), views: make(chan *view)}
	cfg := setup.lane
	cfg.Name = "web"
	if cfg.Slots == 0 {
		cfg.Slots = 1
	}
	ended := t.Context().Done()
	s.lane = startLane(t, startApp(t, s.views, ended), cfg)
	core, logs := observer.New(zapcore.DebugLevel)
	s.logs = logs
	log := zap.New(core)
	var err error
	if s.holds, err = holds.New(setup.holds, log); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.endHolds)
	limits := proxy.Config{Holds: s.holds, Dialects: holds.Dialects{M0: true}, AccessLog: true}
	if setup.proxy != nil {
		setup.proxy(&limits)
	}
	routes := append([]proxy.Route{{Match: "/", Lane: s.lane, Stream: cfg.Stream}}, setup.routes...)
	if s.server, err = proxy.New(limits, routes, log, nil); err != nil {
		t.Fatal(err)
	}
	withLeft := setup.holds
	withLeft.Left = s.server.HoldLeft
	s.holds.Configure(withLeft)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = ln.Addr().String()
	go s.serve(t, ln)
	t.Cleanup(s.shutDown)
	return s
}

func (s *holdSite) serve(t *testing.T, ln net.Listener) {
	defer close(s.served)
	if err := s.server.Serve(ln); err != nil {
		t.Error("serve:", err)
	}
}

func (s *holdSite) endHolds() { s.stop.Do(s.holds.Close) }

// shutDown cuts the holds first: the server waits for them.
func (s *holdSite) shutDown() {
	s.endHolds()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	s.server.Shutdown(ctx)
	<-s.served
}

// startApp is the app: it hands every request to views.
func startApp(t *testing.T, views chan<- *view, ended <-chan struct{}) (addr string) {
	t.Helper()
	return startTCP(t, func(conn *net.TCPConn) {
		a := &appConn{TCPConn: conn, reader: bufio.NewReader(conn)}
		for keep := true; keep; {
			line, fields := a.head()
			if line == "" {
				return
			}
			v := &view{appConn: a, line: line, fields: fields, over: make(chan bool, 1)}
			select {
			case views <- v:
			case <-ended:
				return
			}
			select {
			case keep = <-v.over:
			case <-ended:
				return
			}
		}
	})
}

// startDown makes a lane whose one target, a unix socket at path, is not there.
func startDown(t *testing.T, cfg upstream.Config) (lane *lanes.Lane, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "app")
	cfg.Name = "app"
	cfg.Targets = []upstream.Address{{Text: "unix:" + path, Network: "unix", Addr: path}}
	up := upstream.New(cfg, nil)
	up.Targets()[0].Answered()
	lane = lanes.New(lanes.Config{Name: "down", Slots: 1, Queue: 8, QueueTimeout: time.Minute}, up.Deal(1))
	t.Cleanup(func() { lane.Close(); up.Close() })
	return lane, path
}

// view waits for the app to have the next request.
func (s *holdSite) view(t *testing.T) *view {
	t.Helper()
	return take(t, "the app has the request", s.views)
}

// answer is the end of an answer that leaves the connection open.
func (v *view) answer(text string) { v.finish(text, true) }

// hangUp is the end of an answer that closes the connection.
func (v *view) hangUp(text string) { v.finish(text, false) }

// reset ends the connection as a killed worker does.
func (v *view) reset(text string) {
	v.SetLinger(0)
	v.finish(text, false)
}

func (v *view) finish(text string, keep bool) {
	v.say(text)
	v.done = true
	v.over <- keep
}

// wantEnded requires that the proxy ends the connection.
func (v *view) wantEnded(t *testing.T) {
	t.Helper()
	v.SetReadDeadline(time.Now().Add(patience))
	if rest, err := v.end(); rest != "" || err != nil && !isReset(err) {
		t.Errorf("the app reads %q, %v; want the end of its connection", rest, err)
	}
	v.hangUp("")
}

// get is a field of the request, " | " between several.
func (v *view) get(name string) string { return strings.Join(fieldValues(v.fields, name), " | ") }

// position is what the view is told of where the events stand.
func (v *view) position(t *testing.T) int64 {
	t.Helper()
	text := v.get("M0-Position")
	position, err := strconv.ParseInt(text, 10, 64)
	if err != nil || len(text) != 16 {
		t.Fatalf("M0-Position is %q, want 16 digits", text)
	}
	return position
}

// ---- What is said.

const joinNews = "M0-Hold: stream\r\nM0-Channel: news\r\n"

// askFor is a request with a known X-Request-ID, and these fields.
func askFor(target string, fields ...string) string {
	return "GET " + target + " HTTP/1.1\r\nHost: a.test\r\nX-Request-ID: r-1\r\n" + lines(fields...) + "\r\n"
}

// asEventSource is a request as a browser's EventSource makes it.
func asEventSource(method string) string {
	return method + " /events HTTP/1.1\r\nHost: a.test\r\nAccept: text/event-stream\r\n\r\n"
}

// ok is a whole answer; fields end in CR LF each.
func ok(fields, body string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\n%sContent-Length: %d\r\n\r\n%s", fields, len(body), body)
}

func chunk(data string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(data), data) }

// idBlock is the block that a client keeps its position from.
func idBlock(position int64) string { return fmt.Sprintf("id: %d\n\n", position) }

func eventBlock(id int64, data string) string { return fmt.Sprintf("id: %d\ndata: %s\n\n", id, data) }

func gapBlock(last, head int64) string {
	return fmt.Sprintf("event: m0-gap\ndata: {\"last_event_id\":%d,\"head\":%d}\n\n", last, head)
}

// publish publishes text.
func (s *holdSite) publish(channel, text string) (id int64) {
	id, _, _ = s.holds.Publish(holds.Publication{Channels: []string{channel}, Retry: -1, Data: []byte(text)})
	return id
}

// ---- What is to come.

// held opens a hold of channel news and reads its first bytes.
func (s *holdSite) held(t *testing.T) *wireClient {
	t.Helper()
	c := say(t, s.addr, askFor("/events"))
	v := s.view(t)
	position := v.position(t)
	v.answer(ok(joinNews, ""))
	c.wantHeldHead(t)
	c.wantBytes(t, chunk(": open\n\n"+idBlock(position)))
	return c
}

// wantHeldHead requires the head of a stream that is held, to an HTTP/1.1 client.
func (c *wireClient) wantHeldHead(t *testing.T) [][2]string {
	t.Helper()
	fields := c.wantHead(t, 200)
	for name, want := range map[string]string{"Content-Type": "text/event-stream", "Cache-Control": "no-cache, no-transform",
		"X-Accel-Buffering": "no", "Transfer-Encoding": "chunked", "Content-Length": ""} {
		if got := strings.Join(fieldValues(fields, name), " | "); got != want {
			t.Errorf("%s of a held stream is %q, want %q", name, got, want)
		}
	}
	return fields
}

var farewell = regexp.MustCompile(`\Ad\r\nretry: [1-4][0-9]{3}\n\n\r\n0\r\n\r\n\z`)

// wantFarewell requires a time to come back at and a clean end, and no more.
func (c *wireClient) wantFarewell(t *testing.T) {
	t.Helper()
	if rest, err := io.ReadAll(c.reader); err != nil || !farewell.Match(rest) {
		t.Errorf("the stream ends with %.200q, %v", rest, err)
	}
}

// wantHeld waits until so many streams are held.
func (s *holdSite) wantHeld(t *testing.T, n int) {
	t.Helper()
	until(t, fmt.Sprintf("%d streams are held", n), func() bool { return s.holds.Snapshot().Streams == n })
}

// wantNoHold requires that nothing was ever held.
func (s *holdSite) wantNoHold(t *testing.T) {
	t.Helper()
	snapshot := s.holds.Snapshot()
	ended := uint64(0)
	for _, n := range snapshot.Ended[holds.ModeStream] {
		ended += n
	}
	if snapshot.Streams > 0 || ended > 0 || len(s.holds.Channels()) > 0 {
		t.Errorf("held: %d, ended: %d, channels: %v", snapshot.Streams, ended, s.holds.Channels())
	}
}

// wantFree waits until no slot is taken.
func (s *holdSite) wantFree(t *testing.T) {
	t.Helper()
	until(t, "the slots are free", func() bool { return s.lane.Snapshot().InUse == 0 })
}

// wantServed has a request answered on a connection that goes on.
func (s *holdSite) wantServed(t *testing.T, c *wireClient) {
	t.Helper()
	s.wantFree(t) // an answer that was refused is read to its end
	c.say(t, get("/next"))
	v := s.view(t)
	if !strings.HasPrefix(v.line, "GET /next ") {
		t.Errorf("the app has %q, want /next", v.line)
	}
	v.answer(ok("", "next"))
	c.wantAnswer(t, "GET", 200, "next")
}

// endEach ends the holds of a channel one by one: the channel's end would have a
// position of its own.
func (s *holdSite) endEach(channel string) {
	for _, connection := range s.holds.Connections(channel) {
		s.holds.End(holds.EndRequest{Connection: connection})
	}
}

// wantNoInstruction requires that nothing of an instruction is in the fields.
func wantNoInstruction(t *testing.T, fields [][2]string) {
	t.Helper()
	for _, field := range fields {
		if name := strings.ToLower(field[0]); strings.HasPrefix(name, "m0-") || strings.HasPrefix(name, "grip-") {
			t.Errorf("the client is shown %s: %s", field[0], field[1])
		}
	}
}

// wantLogged waits for n exchanges in the access log and gives their statuses and ends.
func (s *holdSite) wantLogged(t *testing.T, n int) (statuses []int64, ends []string) {
	t.Helper()
	until(t, fmt.Sprintf("%d exchanges are logged", n), func() bool { return s.logs.FilterMessage("exchange").Len() >= n })
	for _, entry := range s.logs.FilterMessage("exchange").All() {
		fields := entry.ContextMap()
		statuses = append(statuses, fields["status"].(int64))
		ends = append(ends, fields["end"].(string))
	}
	return statuses, ends
}

// signedGrant is a grant as an app signs it; session "": of any.
func signedGrant(key string, expires time.Time, channel, session string) string {
	kid := sha256.Sum256([]byte(key))
	bound := "-"
	if session != "" {
		sum := sha256.Sum256([]byte(session))
		bound = base64.RawURLEncoding.EncodeToString(sum[:16])
	}
	signed := fmt.Sprintf("v1.%x.%d.%s.%s", kid[:4], expires.Unix(), channel, bound)
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(signed))
	return signed + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}
