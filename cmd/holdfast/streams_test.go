package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fasthttp/websocket"
)

// Endless answers and upgrade requests on request lanes.

const streamLanes = `
upstreams: {app: {targets: ["http://%%s"], concurrency: 8}}
lanes: {web: {upstream: app, slots: 2, queue_timeout: 60s, streaming: %s}}
routes: [{match: "/", lane: web}]
`

// startLogged is startHoldfast with its log kept.
func startLogged(t *testing.T, yaml string, a *app) (h *holdfast, log *syncBuffer) {
	t.Helper()
	config, err := loadConfig(writeConfig(t, yaml, a.addr), os.LookupEnv)
	if err != nil {
		t.Fatal(err)
	}
	log = new(syncBuffer)
	logger, _, err := newLoggers(config.Log, log)
	if err != nil {
		t.Fatal(err)
	}
	if h, err = start(config, nil, logger, logger); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.stopAll(5 * time.Second) })
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := h.awaitReady(ctx); err != nil || ctx.Err() != nil {
		t.Fatal("not ready:", err, ctx.Err())
	}
	return h, log
}

func TestStream_OnARequestLaneIsRefusedWithTheTwoWaysOut(t *testing.T) {
	t.Parallel()
	a := startGunicorn(t, "-w", "1", "--threads", "8")
	h, log := startLogged(t, fmt.Sprintf(streamLanes, "refuse"), a)
	response, err := onceClient().Get(h.url("/events?ms=100"))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	response.Body.Close()
	if err != nil || response.StatusCode != http.StatusConflict || response.Header.Get("Holdfast-Reason") != "stream_refused" ||
		response.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%d %v %s (%v), want 409 stream_refused", response.StatusCode, response.Header, body, err)
	}
	var problem struct {
		Status         int
		Reason, Detail string
	}
	if err := json.Unmarshal(body, &problem); err != nil || problem.Status != 409 || problem.Reason != "stream_refused" {
		t.Errorf("body %s (%v)", body, err)
	}
	logged := ""
	for line := range strings.Lines(log.String()) {
		var entry struct{ Reason, Lane, Detail string }
		if json.Unmarshal([]byte(line), &entry) == nil && entry.Reason == "stream_refused" {
			logged += entry.Detail
			if entry.Lane != "web" {
				t.Errorf("logged with lane %q", entry.Lane)
			}
		}
	}
	for where, text := range map[string]string{"body": problem.Detail, "log": logged} {
		for _, part := range []string{"route /", "lane web", "hold header", "kind: stream"} {
			if !strings.Contains(text, part) {
				t.Errorf("the %s does not say %q: %q", where, part, text)
			}
		}
	}
	// The negative arm: a stream that ends is not refused.
	if got := ask(onceClient(), "GET", h.url(""), "/stream?n=3&ms=10"); !got.ok() {
		t.Error(got)
	}
}

// closeTab reads a stream up to its first event and closes the connection.
func closeTab(addr, path string) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n", path)
	for lines := bufio.NewReader(conn); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			return err
		}
		if strings.HasPrefix(line, "data:") {
			return nil
		}
	}
}

// atOnce runs n of them at once.
func atOnce(n int, do func() error) error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() { errs[i] = do() })
	}
	all.Wait()
	return errors.Join(errs...)
}

// mostStartedInASecond is how many views started within the worst second.
// A slot whose connection was closed under its view is free a second later
// and no sooner: so long the view counts, whether it has ended or not.
func mostStartedInASecond(views []*view) (most int) {
	views = slices.SortedFunc(slices.Values(views), func(a, b *view) int { return cmp.Compare(a.start, b.start) })
	for i, first := range views {
		n := 0
		for _, v := range views[i:] {
			if v.start-first.start < time.Second {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// wantCounted holds eight views that were left to two slots: more than two at
// once only where the count says that a slot was freed under a view.
func wantCounted(t *testing.T, a *app, h *holdfast) {
	t.Helper()
	eventuallyIdle(t, h)
	views := on("/events", a.views())
	closed := h.wiring.Load().lanes["web"].Snapshot().ClosedOnView
	t.Logf("%d views, %d at once at most, %d started within a second, %d slots freed under a view",
		len(views), mostAtOnce(views), mostStartedInASecond(views), closed)
	if len(views) != 8 || closed != 8 {
		t.Errorf("%d views, %d counted, want 8 of each", len(views), closed)
	}
	if n := mostStartedInASecond(views); n > 2 {
		t.Errorf("%d views started within a second, the lane has 2 slots", n)
	}
	eventually(t, "every view ended", func() bool { return a.running("/events") == 0 })
}

func TestStream_EightRefusedClientsKeepToTheSlots(t *testing.T) {
	t.Parallel()
	a := startGunicorn(t, "-w", "1", "--threads", "8")
	h, _ := startLogged(t, fmt.Sprintf(streamLanes, "refuse"), a)
	if err := atOnce(8, func() error {
		if status, reason := wantReason(t, h.url("/events?ms=200")); status != 409 || reason != "stream_refused" {
			return fmt.Errorf("%d %s, want 409 stream_refused", status, reason)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	wantCounted(t, a, h)
}

func TestStream_EightClosedTabsKeepToTheSlots(t *testing.T) {
	t.Parallel()
	a := startGunicorn(t, "-w", "1", "--threads", "8")
	h, log := startLogged(t, fmt.Sprintf(streamLanes, "forward"), a)
	if err := atOnce(8, func() error { return closeTab(h.listeners[0].Addr().String(), "/events?ms=200") }); err != nil {
		t.Error(err)
	}
	wantCounted(t, a, h)
	if !strings.Contains(log.String(), "endless answer let through") {
		t.Errorf("no warning in the log:\n%s", log)
	}
}

// A view that takes no notice of its closed connection outlives the second: it
// is the counted exception, and no more than that many are.
func TestStream_AViewThatOutlivesItsSlotIsCounted(t *testing.T) {
	t.Parallel()
	a := startGunicorn(t, "-w", "1", "--threads", "8")
	h, _ := startLogged(t, fmt.Sprintf(streamLanes, "forward"), a)
	if err := atOnce(4, func() error { return closeTab(h.listeners[0].Addr().String(), "/events?ms=3000") }); err != nil {
		t.Error(err)
	}
	eventuallyIdle(t, h)
	views, snapshot := on("/events", a.views()), h.wiring.Load().lanes["web"].Snapshot()
	excess := mostAtOnce(views) - snapshot.Slots
	if excess < 1 || excess > 2 || snapshot.ClosedOnView != 4 {
		t.Errorf("%d views more than slots, %d counted, want 1 or 2, and 4", excess, snapshot.ClosedOnView)
	}
}

// The negative arm: two tabs at a time and no proxy, and there are more.
func TestStream_ClosedTabsWithoutAProxyAreMoreThanTwo(t *testing.T) {
	t.Parallel()
	a := startGunicorn(t, "-w", "1", "--threads", "8")
	if got := ask(onceClient(), "GET", "http://"+a.addr, "/fast"); !got.ok() {
		t.Fatal(got)
	}
	if err := atOnce(2, func() error {
		var errs []error
		for range 4 {
			errs = append(errs, closeTab(a.addr, "/events?ms=200"))
		}
		return errors.Join(errs...)
	}); err != nil {
		t.Error(err)
	}
	eventually(t, "every view ended", func() bool { return a.running("/events") == 0 })
	views := on("/events", a.views())
	if n, at := mostStartedInASecond(views), mostAtOnce(views); n <= 2 || at <= 2 {
		t.Errorf("%d started within a second, %d at once: the check cannot fail", n, at)
	}
}

// dial asks for a WebSocket and gives the answer that came in its place.
func dial(t *testing.T, addr, path string) (response *http.Response, body string, err error) {
	t.Helper()
	conn, response, err := websocket.DefaultDialer.Dial("ws://"+addr+path, nil)
	if conn != nil {
		conn.Close()
	}
	if response == nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(response.Body)
	return response, string(text), err
}

// Flask finds a websocket=True route only for a request whose Upgrade field says websocket.
func TestUpgrade_ARequestLaneForwardsTheFieldsAndThePlainAnswer(t *testing.T) {
	t.Parallel()
	a := startApp(t, "flask", "app:app", "-w", "1", "--threads", "8")
	h := startHoldfast(t, eightThreads.config(restartLanes), a)
	addr := h.listeners[0].Addr().String()
	response, body, err := dial(t, addr, "/ws")
	if !errors.Is(err, websocket.ErrBadHandshake) || response.StatusCode != 200 || body != "the view saw an upgrade request\n" {
		t.Errorf("%d %q (%v), want the view's plain answer", response.StatusCode, body, err)
	}
	// The negative arm: without the fields the same path is not that view.
	if status, _, err := get(context.Background(), onceClient(), h.url("/ws")); err != nil || status == 200 {
		t.Errorf("without an upgrade: %d (%v), so the answer above shows nothing", status, err)
	}
	eventuallyIdle(t, h)
}

// startSwitching is an upstream that says 101 to every upgrade request.
func startSwitching(t *testing.T) *app {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	upgrader := websocket.Upgrader{CheckOrigin: func(*http.Request) bool { return true }}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if websocket.IsWebSocketUpgrade(r) {
			if conn, err := upgrader.Upgrade(w, r, nil); err == nil {
				conn.Close()
			}
			return
		}
		io.WriteString(w, "plain\n")
	})}
	go server.Serve(ln)
	t.Cleanup(func() { server.Close() })
	return &app{t: t, addr: ln.Addr().String()}
}

func TestUpgrade_A101OnARequestLaneIsAnUpstreamError(t *testing.T) {
	t.Parallel()
	a := startSwitching(t)
	h := startHoldfast(t, eightThreads.config(restartLanes), a)
	response, body, err := dial(t, h.listeners[0].Addr().String(), "/ws")
	if !errors.Is(err, websocket.ErrBadHandshake) || response.StatusCode != http.StatusBadGateway ||
		response.Header.Get("Holdfast-Reason") != "upstream_error" {
		t.Errorf("%d %v %q (%v), want 502 upstream_error", response.StatusCode, response.Header, body, err)
	}
	eventuallyIdle(t, h)
	wantGet(t, onceClient(), h.url("/"))
	// The negative arm: the upstream alone does switch.
	if response, _, err := dial(t, a.addr, "/ws"); err != nil || response.StatusCode != http.StatusSwitchingProtocols {
		t.Errorf("asked directly: %d (%v), want 101: the answer above shows nothing", response.StatusCode, err)
	}
}
