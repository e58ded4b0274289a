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
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// The kit of the tests of holds: the two apps of testdata/apps/holds, and a
// client of event streams over a plain connection.

// holdsServer is a way to serve one of the two apps.
type holdsServer struct {
	name string
	args []string
}

var (
	flaskThreads  = holdsServer{"FlaskThreads", []string{"flask_app:app", "-w", "1", "--threads", "8"}}
	flaskSync     = holdsServer{"FlaskSync", []string{"flask_app:app", "-w", "4", "--preload"}}
	djangoThreads = holdsServer{"DjangoThreads", []string{"django_app:app", "-w", "1", "--threads", "8"}}
	djangoSync    = holdsServer{"DjangoSync", []string{"django_app:app", "-w", "4", "--preload"}}
	holdsServers  = []holdsServer{flaskThreads, djangoSync, djangoThreads, flaskSync}
)

// holdsLanes has one lane of four for all.
const holdsLanes = `
upstreams: {app: {targets: ["http://%s"], park: 60s}}
lanes: {web: {upstream: app, slots: 4, queue_timeout: 60s}}
routes: [{match: "/", lane: web}]
`

// holdsBase is what writeConfig begins with.
const holdsBase = "listen: \"127.0.0.1:0\"\nadmin: {listen: \"127.0.0.1:0\"}\npublish: {listen: \"127.0.0.1:0\"}\n"

// holdsApp is one of the apps with the folder of the files that its views
// wait for.
type holdsApp struct {
	*app
	gates string
}

// newHoldsApp makes an app that is not started: it is told then where events
// are published.
func newHoldsApp(t *testing.T, server holdsServer) *holdsApp {
	t.Helper()
	client, err := filepath.Abs("../../clients/python")
	if err != nil {
		t.Fatal(err)
	}
	gates := t.TempDir()
	return &holdsApp{newApp(t, "holds", []string{"PYTHONPATH=..:" + client, "GATES=" + gates}, server.args...), gates}
}

// startFor starts the app with its events going to that address.
func (a *holdsApp) startFor(publish string) {
	a.t.Helper()
	a.env = append(a.env, "HOLDFAST_PUBLISH_URL=http://"+publish)
	a.start()
}

// open lets the views go on that wait for the gate.
func (a *holdsApp) open(gate string) {
	a.t.Helper()
	if err := os.WriteFile(filepath.Join(a.gates, gate), nil, 0o600); err != nil {
		a.t.Fatal(err)
	}
}

// holdsSite is Holdfast in this process, before one of the apps.
type holdsSite struct {
	*site
	app     *holdsApp
	addr    string // where clients come
	publish string // where events are published
}

// startHolds serves the app with this configuration until the test ends, which
// may name environment variables besides the process's own, NAME=VALUE.
func startHolds(t *testing.T, server holdsServer, yaml string, env ...string) *holdsSite {
	t.Helper()
	a := newHoldsApp(t, server)
	s := startHoldsAlone(t, yaml, []*app{a.app}, env...)
	s.app = a
	a.startFor(s.publish)
	s.mustBecomeReady()
	return s
}

// mustBecomeReady waits until every target has answered.
func (s *holdsSite) mustBecomeReady() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := s.awaitReady(ctx); err != nil || ctx.Err() != nil {
		s.t.Fatal("not ready:", err, ctx.Err())
	}
}

// startHoldsAlone starts nothing but Holdfast, and does not wait until it is ready.
func startHoldsAlone(t *testing.T, yaml string, apps []*app, env ...string) *holdsSite {
	t.Helper()
	addresses := make([]any, len(apps))
	for i, a := range apps {
		addresses[i] = a.addr
	}
	return startHoldsFile(t, writeConfig(t, yaml, addresses...), env...)
}

// startHoldsFile is startHoldsAlone with a configuration that is a file already.
func startHoldsFile(t *testing.T, path string, env ...string) *holdsSite {
	t.Helper()
	lookup := func(name string) (string, bool) {
		for _, variable := range env {
			if value, ok := strings.CutPrefix(variable, name+"="); ok {
				return value, true
			}
		}
		return os.LookupEnv(name)
	}
	s := &holdsSite{site: &site{t: t, path: path, log: new(syncBuffer), base: holdsBase}}
	load := func() (*fileConfig, error) { return loadConfig(path, lookup) }
	config, err := load()
	if err != nil {
		t.Fatal(err)
	}
	log, access, err := newLoggers(config.Log, s.log)
	if err != nil {
		t.Fatal(err)
	}
	if s.holdfast, err = start(config, load, log, access); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.stopAll(5 * time.Second)
		if t.Failed() {
			t.Logf("holdfast:\n%s", s.log)
		}
	})
	s.addr, s.publish = addrOf(s.holdfast), s.publishLn.Addr().String()
	return s
}

// publishAddr is where the process takes events, from its log.
func (c *command) publishAddr(t *testing.T) string {
	t.Helper()
	addr, _ := logLines(t, c.log.String(), "started")[0]["publish"].(string)
	return addr
}

// publishTo publishes one text and gives its id, and how many holds it reached.
func publishTo(t *testing.T, addr, channel, data string) (id int64, reached int) {
	t.Helper()
	call, err := json.Marshal(map[string]string{"channel": channel, "data": data})
	if err != nil {
		t.Fatal(err)
	}
	return wantPublished(t, addr, string(call))
}

// wantPublished makes a call of the publish API that must be taken.
func wantPublished(t *testing.T, addr, call string) (id int64, reached int) {
	t.Helper()
	response, err := onceClient().Post("http://"+addr+"/publish", "application/json", strings.NewReader(call))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	var taken struct {
		ID      int64
		Reached int
	}
	if err != nil || response.StatusCode != 200 || json.Unmarshal(body, &taken) != nil || taken.ID == 0 {
		t.Fatalf("publish %.200s: %d %s %v", call, response.StatusCode, body, err)
	}
	return taken.ID, taken.Reached
}

// subscribers is how many streams /health says are held.
func subscribers(t *testing.T, addr string) int {
	t.Helper()
	var report struct{ Subscribers *int }
	body := wantGet(t, onceClient(), "http://"+addr+"/health")
	if err := json.Unmarshal(body, &report); err != nil || report.Subscribers == nil {
		t.Fatalf("/health has no subscribers: %s (%v)", body, err)
	}
	return *report.Subscribers
}

func eventuallySubscribers(t *testing.T, addr string, n int) {
	t.Helper()
	eventually(t, fmt.Sprint(n, " subscribers in /health"), func() bool { return subscribers(t, addr) == n })
}

// follower is a client of an event stream.
type follower struct {
	net.Conn
	t        *testing.T
	in       *bufio.Reader // of the connection
	response *http.Response
	body     *bufio.Reader // without its framing
	id       string        // what an EventSource would come back with
}

const eventSource = "Accept: text/event-stream\r\n"

// dialEvents asks for a path and reads the answer's head. fields are lines.
func dialEvents(addr, path, fields string) (*follower, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	f := &follower{Conn: conn, in: bufio.NewReader(conn)}
	conn.SetDeadline(time.Now().Add(time.Minute))
	_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n", path, fields)
	if err == nil {
		f.response, err = http.ReadResponse(f.in, nil)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	f.body = bufio.NewReader(f.response.Body)
	return f, nil
}

// askEvents is dialEvents for a test, whatever the answer's status.
func askEvents(t *testing.T, addr, path, fields string) *follower {
	t.Helper()
	f, err := dialEvents(addr, path, fields)
	if err != nil {
		t.Fatal(path, err)
	}
	f.t = t
	t.Cleanup(func() { f.Close() })
	return f
}

// follow opens a stream as an EventSource does, and reads up to the position,
// which comes behind the first bytes: the hold has joined then.
func follow(t *testing.T, addr, path string) *follower {
	t.Helper()
	f := askEvents(t, addr, path, eventSource)
	f.wantOpen()
	return f
}

// followFrom is follow for a client that comes back with an id.
func followFrom(t *testing.T, addr, path, id string) *follower {
	t.Helper()
	f := askEvents(t, addr, path, eventSource+"Last-Event-ID: "+id+"\r\n")
	f.wantOpen()
	return f
}

func (f *follower) wantOpen() {
	f.t.Helper()
	if err := f.open(); err != nil {
		f.t.Fatal(err)
	}
}

func (f *follower) open() error {
	if kind := f.response.Header.Get("Content-Type"); f.response.StatusCode != 200 || kind != "text/event-stream" {
		text, _ := io.ReadAll(f.body)
		return fmt.Errorf("%s %q %.300s, want an event stream", f.response.Status, kind, text)
	}
	for {
		b, err := f.block()
		if err != nil {
			return fmt.Errorf("before the position: %w", err)
		}
		if b.isPosition() {
			return nil
		}
	}
}

// block is what stands between two empty lines of a stream.
type block struct {
	raw                    string
	id, event, data, retry string
	hasData                bool
}

// isPosition: it renews the client's id and fires nothing.
func (b block) isPosition() bool { return b.id != "" && !b.hasData && b.event == "" && b.retry == "" }

func (b block) isHeartbeat() bool { return b.raw == ": heartbeat\n\n" }

// block reads the next one and keeps its id as an EventSource does.
func (f *follower) block() (b block, err error) {
	for {
		line, err := f.body.ReadString('\n')
		b.raw += line
		if err != nil {
			if b.raw != "" {
				err = fmt.Errorf("%w in %q", errors.Join(io.ErrUnexpectedEOF, err), b.raw)
			}
			return b, err
		}
		if line == "\n" {
			break
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "id":
			b.id = value
		case "event":
			b.event = value
		case "retry":
			b.retry = value
		case "data":
			if b.hasData {
				b.data += "\n"
			}
			b.data += value
			b.hasData = true
		}
	}
	if b.id != "" {
		f.id = b.id
	}
	return b, nil
}

// wantBlock reads the next block, whatever it is.
func (f *follower) wantBlock() block {
	f.t.Helper()
	b, err := f.block()
	if err != nil {
		f.t.Fatal(err)
	}
	return b
}

// event reads on to what an EventSource would fire.
func (f *follower) event() (block, error) {
	for {
		if b, err := f.block(); err != nil || b.hasData {
			return b, err
		}
	}
}

// wantEvent reads on to the next event, which has this data.
func (f *follower) wantEvent(data string) block {
	f.t.Helper()
	b, err := f.event()
	if err != nil || b.data != data || b.event == "m0-gap" {
		f.t.Fatalf("%q %v, want the event %q", b.raw, err, data)
	}
	return b
}

// wantGap reads on to the next event, which must tell of a gap.
func (f *follower) wantGap() (last, head int64) {
	f.t.Helper()
	b, err := f.event()
	var told struct {
		Last int64 `json:"last_event_id"`
		Head int64 `json:"head"`
	}
	if err != nil || b.event != "m0-gap" || b.id != "" || json.Unmarshal([]byte(b.data), &told) != nil {
		f.t.Fatalf("%q %v, want the event m0-gap without an id", b.raw, err)
	}
	return told.Last, told.Head
}

// wantHeartbeats reads so many, of which some may be positions.
func (f *follower) wantHeartbeats(n int) {
	f.t.Helper()
	for range n {
		if b := f.wantBlock(); !b.isHeartbeat() && !b.isPosition() {
			f.t.Fatalf("%q, want a heartbeat", b.raw)
		}
	}
}

// wantSentAway reads on to the end: a time to come back at, and nothing that
// is cut short.
func (f *follower) wantSentAway() {
	f.t.Helper()
	if err := f.sentAway(); err != nil {
		f.t.Error(err)
	}
}

func (f *follower) sentAway() error {
	for {
		b, err := f.block()
		if err != nil {
			return fmt.Errorf("before a retry: %w", err)
		}
		if b.retry == "" {
			continue
		}
		if ms, err := strconv.Atoi(b.retry); err != nil || ms < 1 || b.hasData || b.id != "" {
			return fmt.Errorf("%q, want a retry alone", b.raw)
		}
		return f.end()
	}
}

// end reads the clean end: of the body, then of the connection.
func (f *follower) end() error {
	if rest, err := io.ReadAll(f.body); err != nil || len(rest) > 0 {
		return fmt.Errorf("%.200q and %w, want the stream's clean end", rest, cmpErr(err))
	}
	if f.response.Close {
		if b, err := f.in.ReadByte(); err != io.EOF {
			return fmt.Errorf("%q and %w behind the end, want the connection's", b, cmpErr(err))
		}
	}
	return nil
}

// cmpErr is an error that can be wrapped where there is none.
func cmpErr(err error) error {
	if err == nil {
		return errors.New("no error")
	}
	return err
}

// followMany opens n streams, so many at a time as an app's backlog takes.
func followMany(t *testing.T, addr, path string, n int) []*follower {
	t.Helper()
	followers := make([]*follower, n)
	eachAtOnce(t, n, func(i int) error {
		f, err := dialEvents(addr, path, eventSource)
		if err != nil {
			return err
		}
		f.t = t
		followers[i] = f
		return f.open()
	})
	t.Cleanup(func() {
		for _, f := range followers {
			if f != nil {
				f.Close()
			}
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	return followers
}

// eachAtOnce does it for 0 to n-1, sixteen at a time, and tells a few of the errors.
func eachAtOnce(t *testing.T, n int, do func(i int) error) {
	t.Helper()
	var told, next int
	var mu sync.Mutex
	var workers sync.WaitGroup
	work := func() {
		for {
			mu.Lock()
			i := next
			next++
			mu.Unlock()
			if i >= n {
				return
			}
			if err := do(i); err != nil {
				mu.Lock()
				if told++; told <= 5 {
					t.Errorf("%d of %d: %v", i, n, err)
				}
				mu.Unlock()
			}
		}
	}
	for range 16 {
		workers.Go(work)
	}
	workers.Wait()
}
