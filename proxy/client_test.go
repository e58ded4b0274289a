package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"

	"holdfast/lanes"
	"holdfast/proxy"
)

// ---- The kit of this file, relay_test.go and route_test.go.

// patience is how long a condition may take that has much to do.
const patience = 30 * time.Second

// until polls for a condition.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); !condition(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// take receives what comes next.
func take[T any](t *testing.T, what string, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(patience):
		t.Fatalf("not within %v: %s", patience, what)
	}
	return v
}

// oneLane is a proxy whose every path is on one lane.
type oneLane struct {
	addr     string
	lane     *lanes.Lane
	upstream *recordingUpstream
}

func startOneLane(t *testing.T, script upstreamScript, cfg lanes.Config, server proxy.Config) oneLane {
	t.Helper()
	cfg.Name = "web"
	up := newScriptedUpstream(t, script)
	lane := startLane(t, up.Addr(), cfg)
	return oneLane{startServer(t, server, []proxy.Route{{Match: "/", Lane: lane}}), lane, up}
}

// targets are those of the requests that reached the upstream.
func (p oneLane) targets() string {
	var targets []string
	for _, request := range p.upstream.Since(0) {
		targets = append(targets, request.Target)
	}
	return strings.Join(targets, " ")
}

// echo answers with the target.
func echo(conn net.Conn, request recordedRequest) bool {
	_, err := fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(request.Target), request.Target)
	return err == nil
}

// echoWhenOpen is echo, but a target below /held waits until gate is closed.
func echoWhenOpen(t *testing.T, gate <-chan struct{}) upstreamScript {
	return func(conn net.Conn, request recordedRequest) bool {
		return (!strings.HasPrefix(request.Target, "/held") || opened(t, gate)) && echo(conn, request)
	}
}

// opened waits for gate; false: the test is over.
func opened(t *testing.T, gate <-chan struct{}) bool {
	select {
	case <-gate:
		return true
	case <-t.Context().Done():
		return false
	}
}

func get(target string) string { return "GET " + target + " HTTP/1.1\r\nHost: a.test\r\n\r\n" }

// say opens a connection and writes a request, or several.
func say(t *testing.T, addr, text string) *wireClient {
	t.Helper()
	c := dialWire(t, addr)
	c.say(t, text)
	return c
}

func (c *wireClient) say(t *testing.T, text string) {
	t.Helper()
	c.conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c.conn, text); err != nil {
		t.Fatal(err)
	}
}

// wantAnswer requires this status, and body unless that is "*".
func (c *wireClient) wantAnswer(t *testing.T, method string, status int, body string) wireAnswer {
	t.Helper()
	answer, err := c.Read(method)
	if err != nil || answer.status != status || body != "*" && string(answer.body) != body {
		t.Fatalf("%s is answered %d %.200q, %v; want %d %.100q", method, answer.status, answer.body, err, status, body)
	}
	return answer
}

// wantReason requires a refusal with a reason, and that its text has words.
func (c *wireClient) wantReason(t *testing.T, status int, reason string, words ...string) wireAnswer {
	t.Helper()
	answer := c.wantAnswer(t, "GET", status, "*")
	if got := answer.get("Holdfast-Reason"); got != reason {
		t.Errorf("the reason is %q, want %q", got, reason)
	}
	if got := answer.get("Content-Type"); got != "application/problem+json" || !strings.Contains(string(answer.body), `"reason":"`+reason+`"`) ||
		!strings.HasPrefix(string(answer.body), `{"type":"docs/troubleshoot.md#`+reason+`",`) {
		t.Errorf("the problem is %s %s", got, answer.body)
	}
	for _, word := range words {
		if !strings.Contains(string(answer.body), word) {
			t.Errorf("the text does not name %q: %s", word, answer.body)
		}
	}
	return answer
}

// reset ends the connection as a killed browser does.
func (c *wireClient) reset() {
	c.conn.SetLinger(0)
	c.conn.Close()
}

// startDrainable is startServer for a test that shuts the server down.
func startDrainable(t *testing.T, cfg proxy.Config, routes []proxy.Route) (*proxy.Server, string) {
	t.Helper()
	server, err := proxy.New(cfg, routes, zap.NewNop(), nil)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		server.Shutdown(ctx)
		if err := <-served; err != nil {
			t.Error("serve:", err)
		}
	})
	return server, ln.Addr().String()
}

// ---- Order and persistence.

// localAndForwarded has /local/… answered here and the rest by the app.
func localAndForwarded(t *testing.T) (string, *recordingUpstream) {
	t.Helper()
	up := newScriptedUpstream(t, echo)
	routes := []proxy.Route{{Match: "/", Lane: startLane(t, up.Addr(), lanes.Config{Name: "web", Slots: 4, Queue: 64})}}
	for i := range 4 {
		path := fmt.Sprintf("/local/%d", i)
		routes = append(routes, proxy.Route{Match: path, Respond: &proxy.Respond{Status: 200, Body: []byte(path)}})
	}
	return startServer(t, proxy.Config{}, routes), up
}

func TestClient_PipelinedRequestsAreAnsweredInOrder(t *testing.T) {
	addr, _ := localAndForwarded(t)
	for name, targets := range map[string][]string{
		"Forwarded":      {"/app/0", "/app/1", "/app/2"},
		"Local":          {"/local/0", "/local/1", "/local/2"},
		"LocalFirst":     {"/local/0", "/app/1", "/local/2", "/app/3", "/local/3"},
		"ForwardedFirst": {"/app/0", "/local/1", "/app/2", "/local/2"},
		"Many":           strings.Fields(strings.Repeat("/app/0 /app/1 /local/0 /app/2 /local/1 /local/2 ", 50)),
	} {
		t.Run(name, func(t *testing.T) {
			var all strings.Builder
			for _, target := range targets {
				all.WriteString(get(target))
			}
			for _, piece := range []int{0, 1, 50} {
				c := dialWire(t, addr)
				c.conn.SetDeadline(time.Now().Add(patience))
				c.Write([]byte(all.String()), piece)
				for _, target := range targets {
					c.wantAnswer(t, "GET", 200, target)
				}
				if err := c.Written(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestClient_PipelinedBodiesAndHeadsStayApart(t *testing.T) {
	addr, up := localAndForwarded(t)
	c := say(t, addr, "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 19\r\n\r\nGET /b HTTP/1.1\r\n\r\n"+get("/local/1")+
		"POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"+"HEAD /d HTTP/1.1\r\nHost: a\r\n\r\n"+get("/e"))
	c.wantAnswer(t, "POST", 200, "/a")
	c.wantAnswer(t, "GET", 200, "/local/1")
	c.wantAnswer(t, "POST", 200, "/c")
	head, err := c.Read("HEAD")
	if err != nil || head.status != 200 {
		t.Fatal(head, err)
	}
	// echo gives HEAD a body, which no client may see.
	c.wantAnswer(t, "GET", 200, "/e")
	requests := up.Since(0)
	if len(requests) != 4 || string(requests[0].Body) != "GET /b HTTP/1.1\r\n\r\n" || string(requests[1].Body) != "hello" {
		t.Errorf("the upstream saw %+v", requests)
	}
}

func TestClient_ConnectionCloseIsHonoured(t *testing.T) {
	addr, up := localAndForwarded(t)
	for _, first := range []string{"/app/0", "/local/0"} {
		for _, method := range []string{"GET", "HEAD"} {
			before := up.Count()
			c := say(t, addr, method+" "+first+" HTTP/1.1\r\nHost: a\r\nConnection: Close\r\n\r\n"+get("/app/never")+get("/local/1"))
			answer, err := c.Read(method)
			if err != nil || answer.status != 200 || !answer.closes() {
				t.Errorf("%s %s: %+v, %v", method, first, answer, err)
			}
			c.wantEnd(t, false)
			for _, request := range up.Since(before) {
				if request.Target == "/app/never" {
					t.Errorf("%s %s: a request behind Connection: close was served", method, first)
				}
			}
		}
	}
}

func TestClient_HTTP10IsClosedUnlessItAsksToBeKept(t *testing.T) {
	addr, _ := localAndForwarded(t)
	for _, target := range []string{"/app/0", "/local/0"} {
		c := say(t, addr, "GET "+target+" HTTP/1.0\r\n\r\n"+get("/local/1"))
		if answer := c.wantAnswer(t, "GET", 200, target); !answer.closes() {
			t.Errorf("%s: Connection is %q", target, answer.get("Connection"))
		}
		c.wantEnd(t, false)

		c = dialWire(t, addr)
		for range 3 {
			c.say(t, "GET "+target+" HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
			if answer := c.wantAnswer(t, "GET", 200, target); answer.get("Connection") != "keep-alive" {
				t.Errorf("%s: Connection is %q", target, answer.get("Connection"))
			}
		}
	}
}

// ---- Clients that leave.

func TestClient_AHalfClosedClientIsAnsweredWhenASlotIsFree(t *testing.T) {
	addr, up := localAndForwarded(t)
	for i := range 100 {
		targets := []string{fmt.Sprintf("/app/%d", i), "/local/1", fmt.Sprintf("/app/more%d", i)}
		c := say(t, addr, get(targets[0])+get(targets[1])+get(targets[2]))
		if err := c.conn.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		for _, target := range targets {
			c.wantAnswer(t, "GET", 200, target)
		}
		c.wantEnd(t, false)
	}
	if got := up.Count(); got != 200 {
		t.Errorf("the upstream saw %d requests, want 200", got)
	}
}

func TestClient_AHalfCloseWhileItsRequestRunsChangesNothing(t *testing.T) {
	gate := make(chan struct{})
	p := startOneLane(t, echoWhenOpen(t, gate), lanes.Config{Slots: 1, Queue: 1, QueueTimeout: time.Minute}, proxy.Config{})
	c := say(t, p.addr, get("/held"))
	p.upstream.Wait(t, 0, 1)
	waiter := say(t, p.addr, get("/never"))
	until(t, "another waits", func() bool { return p.lane.Snapshot().Waiting == 1 })
	c.conn.CloseWrite()
	waiter.conn.CloseWrite()
	// Hang-ups are seen in their order: with the second, the first was seen.
	until(t, "the other is removed", func() bool { return p.lane.Snapshot().Waiting == 0 })
	if s := p.lane.Snapshot(); s.InUse != 1 || s.Abandoned != 0 {
		t.Errorf("after the half-close: %+v", s)
	}
	close(gate)
	c.wantAnswer(t, "GET", 200, "/held")
	c.wantEnd(t, false)
}

func TestClient_LeavingWhileWaitingRemovesTheRequest(t *testing.T) {
	for name, leave := range map[string]func(*wireClient){
		"Reset":     (*wireClient).reset,
		"Close":     func(c *wireClient) { c.conn.Close() },
		"HalfClose": func(c *wireClient) { c.conn.CloseWrite() },
	} {
		for _, first := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/First=%v", name, first), func(t *testing.T) {
				gate := make(chan struct{})
				p := startOneLane(t, echoWhenOpen(t, gate), lanes.Config{Slots: 1, Queue: 8, QueueTimeout: time.Minute}, proxy.Config{})
				leaver := dialWire(t, p.addr)
				if !first { // on a connection that has served a request already
					leaver.say(t, get("/before"))
					leaver.wantAnswer(t, "GET", 200, "/before")
				}
				before := p.upstream.Count()
				holder := say(t, p.addr, get("/held"))
				p.upstream.Wait(t, before, 1)
				leaver.say(t, get("/never"))
				until(t, "its request waits", func() bool { return p.lane.Snapshot().Waiting == 1 })
				stayer := say(t, p.addr, get("/next"))
				until(t, "another waits behind it", func() bool { return p.lane.Snapshot().Waiting == 2 })
				leave(leaver)
				until(t, "it is removed", func() bool { return p.lane.Snapshot().Waiting == 1 })
				if s := p.lane.Snapshot(); s.InUse != 1 || s.Abandoned != 0 {
					t.Errorf("while the slot is held: %+v", s)
				}
				close(gate)
				holder.wantAnswer(t, "GET", 200, "/held")
				stayer.wantAnswer(t, "GET", 200, "/next")
				if name == "HalfClose" {
					leaver.wantEnd(t, false)
				}
				if got := strings.TrimPrefix(p.targets(), "/before "); got != "/held /next" {
					t.Errorf("the upstream saw %s", got)
				}
			})
		}
	}
}

func TestClient_AResetWhileRunningAbandonsTheSlotUntilTheUpstreamAnswers(t *testing.T) {
	gate := make(chan struct{})
	p := startOneLane(t, echoWhenOpen(t, gate), lanes.Config{Slots: 1, Queue: 8, QueueTimeout: time.Minute}, proxy.Config{})
	leaver := say(t, p.addr, get("/held"))
	p.upstream.Wait(t, 0, 1)
	leaver.reset()
	until(t, "the slot is abandoned", func() bool { return p.lane.Snapshot().Abandoned == 1 })
	next := say(t, p.addr, get("/next"))
	until(t, "the next request waits", func() bool { return p.lane.Snapshot().Waiting == 1 })
	if s := p.lane.Snapshot(); s.InUse != 1 || s.SlotStates[0].State != "abandoned" {
		t.Errorf("while the upstream works: %+v", s)
	}
	if got := p.targets(); got != "/held" {
		t.Errorf("while the slot is abandoned the upstream sees %s", got)
	}
	close(gate)
	next.wantAnswer(t, "GET", 200, "/next")
	until(t, "the slot is free", func() bool { s := p.lane.Snapshot(); return s.InUse == 0 && s.Abandoned == 0 })
	if s := p.lane.Snapshot(); s.ClosedOnView != 0 || s.Retried != 0 {
		t.Errorf("after all: %+v", s)
	}
}

// 500 requests run and 500 wait when all their clients go at once.
func TestClient_AThousandAbortsLeaveNobodyAnothersAnswer(t *testing.T) {
	gate := make(chan struct{})
	p := startOneLane(t, echoWhenOpen(t, gate), lanes.Config{Slots: 500, Queue: 600, QueueTimeout: time.Minute}, proxy.Config{})
	var leavers []*wireClient
	for i := range 1000 {
		leavers = append(leavers, say(t, p.addr, get("/held/"+strconv.Itoa(i))))
	}
	until(t, "500 run and 500 wait", func() bool {
		return p.lane.Snapshot().Waiting == 500 && p.upstream.Count() == 500
	})
	for _, c := range leavers {
		c.reset()
	}
	until(t, "500 are abandoned and none waits", func() bool {
		s := p.lane.Snapshot()
		return s.Abandoned == 500 && s.Waiting == 0
	})
	// 500 new ones wait already while the answers to nobody come in.
	var wait sync.WaitGroup
	for i := range 1000 {
		if i == 500 {
			until(t, "500 new ones wait", func() bool { return p.lane.Snapshot().Waiting == 500 })
			close(gate)
		}
		c := say(t, p.addr, get("/new/"+strconv.Itoa(i)))
		wait.Go(func() {
			want := "/new/" + strconv.Itoa(i)
			answer, err := c.Read("GET")
			if err != nil || answer.status != 200 || string(answer.body) != want {
				t.Errorf("%s is answered %d %q, %v", want, answer.status, answer.body, err)
			}
		})
	}
	wait.Wait()
	until(t, "all slots are free", func() bool { return p.lane.Snapshot().InUse == 0 })
	if got := p.upstream.Count(); got != 1500 {
		t.Errorf("the upstream saw %d requests, want the 500 that ran and the 1,000 new ones", got)
	}
	for _, fault := range p.upstream.Faults() {
		t.Error(fault)
	}
}

// ---- Clients that are slow, or say too much.

func TestClient_APartialHeadIsCutWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	up := newRecordingUpstream(t)
	lane := startLane(t, up.Addr(), lanes.Config{Name: "web", Slots: 4})
	addr := startServer(t, proxy.Config{HeaderTimeout: 200 * time.Millisecond, IdleTimeout: time.Minute}, []proxy.Route{
		{Match: "/", Lane: lane}, {Match: "/local", Respond: &proxy.Respond{Status: 200}}})
	for _, partial := range []string{"G", "GET / HTTP/1.1\r\nHost: a.test\r\n", "GET / HTTP/1.1\r\nHost: a.test\r\n\r"} {
		say(t, addr, partial).wantEnd(t, false)
		for _, before := range []string{"/local", "/app"} {
			c := say(t, addr, get(before)+partial)
			c.wantAnswer(t, "GET", 200, "*")
			c.wantEnd(t, false)
		}
	}
	if got := string(up.Stray()); got != "" {
		t.Errorf("the upstream was sent %q", got)
	}
}

func TestClient_ATrickledHeadGainsNoTime(t *testing.T) {
	t.Parallel()
	addr := startServer(t, proxy.Config{HeaderTimeout: 200 * time.Millisecond, IdleTimeout: time.Minute},
		[]proxy.Route{{Match: "/", Respond: &proxy.Respond{Status: 200}}})
	c := say(t, addr, "GET / HTTP/1.1\r\nX-A: ")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for range tick.C {
			if _, err := io.WriteString(c.conn, "v"); err != nil {
				return
			}
		}
	}()
	c.wantEnd(t, true)
	c.conn.Close()
	<-ended
}

// The clock of a head begins with the head, not with the request before it.
func TestClient_AHalfHeadBehindASlowRequestIsWaitedFor(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	p := startOneLane(t, echoWhenOpen(t, gate), lanes.Config{Slots: 1}, proxy.Config{IdleTimeout: time.Second, HeaderTimeout: time.Minute})
	second := get("/second")
	c := say(t, p.addr, get("/held")+second[:20])
	p.upstream.Wait(t, 0, 1)
	dialWire(t, p.addr).wantEnd(t, false) // by then the idle timeout of c is over, too
	close(gate)
	c.wantAnswer(t, "GET", 200, "/held")
	c.say(t, second[20:])
	c.wantAnswer(t, "GET", 200, "/second")
}

// An idle timeout below the header timeout does not shorten the latter.
func TestClient_TheHeaderTimeoutBeginsAtTheFirstByte(t *testing.T) {
	t.Parallel()
	addr := startServer(t, proxy.Config{IdleTimeout: time.Second, HeaderTimeout: time.Minute},
		[]proxy.Route{{Match: "/", Respond: &proxy.Respond{Status: 200, Body: []byte("ok")}}})
	c := say(t, addr, get("/")[:20])
	dialWire(t, addr).wantEnd(t, false) // a connection as old that was idle
	c.say(t, get("/")[20:])
	c.wantAnswer(t, "GET", 200, "ok")
}

func TestClient_AnIdleConnectionIsClosedInSilence(t *testing.T) {
	t.Parallel()
	up := newRecordingUpstream(t)
	lane := startLane(t, up.Addr(), lanes.Config{Name: "web", Slots: 4})
	addr := startServer(t, proxy.Config{IdleTimeout: time.Second}, []proxy.Route{
		{Match: "/", Lane: lane}, {Match: "/local", Respond: &proxy.Respond{Status: 200}}})
	dialWire(t, addr).wantEnd(t, false) // no unsolicited 408, which would answer a request on its way
	for _, before := range []string{"/local", "/app"} {
		c := say(t, addr, get(before))
		c.wantAnswer(t, "GET", 200, "*")
		c.wantEnd(t, false)
	}
}

func TestClient_ABodyThatStopsIsToldSo(t *testing.T) {
	t.Parallel()
	p := startOneLane(t, nil, lanes.Config{Slots: 1}, proxy.Config{BodyTimeout: 200 * time.Millisecond})
	for _, text := range []string{
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
	} {
		c := say(t, p.addr, text)
		if answer := c.wantReason(t, 408, "body_timeout", "limits.body_timeout"); !answer.closes() {
			t.Error("408 without Connection: close")
		}
		c.wantEnd(t, false)
	}
	if s := p.lane.Snapshot(); p.upstream.Count() != 0 || len(p.upstream.Stray()) > 0 || s.InUse != 0 {
		t.Errorf("a body that is not whole asked for a slot: %+v", s)
	}
}

func TestClient_ABodyOverTheLimitIsRefusedBeforeItIsSent(t *testing.T) {
	up := newRecordingUpstream(t)
	lane := startLane(t, up.Addr(), lanes.Config{Name: "web", Slots: 1})
	addr := startServer(t, proxy.Config{BodyBytes: 1000}, []proxy.Route{{Match: "/", Lane: lane}, {Match: "/large", Lane: lane, BodyBytes: 2000}})
	for target, limit := range map[string]int{"/": 1000, "/large": 2000} {
		post := "POST " + target + " HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: "
		c := say(t, addr, post+strconv.Itoa(limit+1)+"\r\n\r\n")
		if answer := c.wantReason(t, 413, "body_too_large", "body_bytes"); len(answer.interim) > 0 || !answer.closes() {
			t.Errorf("%s: 413 after %v, closing is %v", target, answer.interim, answer.closes())
		}
		c.wantEnd(t, false)

		before := up.Count()
		c = say(t, addr, post+strconv.Itoa(limit)+"\r\n\r\n")
		if line, _, _, err := readStrictHead(c.reader); err != nil || !strings.HasPrefix(line, "HTTP/1.1 100 ") {
			t.Fatalf("%s: %q, %v", target, line, err)
		}
		c.say(t, strings.Repeat("x", limit))
		c.wantAnswer(t, "POST", 200, "*")
		if got := up.Since(before); len(got) != 1 || len(got[0].Body) != limit {
			t.Errorf("%s: the upstream saw %d requests", target, len(got))
		}

		// Chunked, the length shows only as it comes.
		c = say(t, addr, fmt.Sprintf("POST %s HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n", target, limit+1))
		c.wantReason(t, 413, "body_too_large")
	}
}

func TestClient_AnExpectOfARefusedRouteIsToldNotToSend(t *testing.T) {
	up := newRecordingUpstream(t)
	lane := startLane(t, up.Addr(), lanes.Config{Name: "web", Slots: 1})
	addr := startServer(t, proxy.Config{}, []proxy.Route{{Match: "/app/", Lane: lane}})
	c := say(t, addr, "POST /none HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 10\r\n\r\n")
	if answer := c.wantReason(t, 404, "no_route"); len(answer.interim) > 0 || !answer.closes() {
		t.Errorf("404 after %v, closing is %v", answer.interim, answer.closes())
	}
	c.wantEnd(t, false)
	c = say(t, addr, "GET /none HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n"+get("/app/"))
	c.wantReason(t, 404, "no_route")
	c.wantAnswer(t, "GET", 200, "0")
}

func TestClient_TheHeadLimitIsExact(t *testing.T) {
	addr, _ := localAndForwarded(t)
	head := func(target string, size int) string {
		begin, end := "GET "+target+" HTTP/1.1\r\nHost: a.test\r\nX-Long: ", "\r\n\r\n"
		return begin + strings.Repeat("v", size-len(begin)-len(end)) + end
	}
	for _, target := range []string{"/app/0", "/local/0"} {
		for _, piece := range []int{0, 1, 16383} {
			c := dialWire(t, addr)
			c.Write([]byte(head(target, 16384)+head(target, 16384)+get(target)), piece)
			for range 3 {
				c.wantAnswer(t, "GET", 200, target)
			}
			c = dialWire(t, addr)
			c.Write([]byte(head(target, 16385)), piece)
			if answer := c.wantReason(t, 431, "headers_too_large", "limits.header_bytes"); !answer.closes() {
				t.Error("431 without Connection: close")
			}
			c.wantEnd(t, false)
			c = dialWire(t, addr)
			c.Write([]byte(head(target, 1<<20)), piece)
			c.wantReason(t, 431, "headers_too_large", "limits.header_bytes")
			c = dialWire(t, addr)
			c.Write([]byte("GET /"+strings.Repeat("v", 16<<10)), piece)
			c.wantReason(t, 414, "uri_too_long", "limits.header_bytes")
		}
	}
}

// ---- The end of the server.

func TestShutdown_ClosesIdleConnectionsInSilence(t *testing.T) {
	up := newScriptedUpstream(t, echo)
	lane := startLane(t, up.Addr(), lanes.Config{Name: "web", Slots: 1})
	server, addr := startDrainable(t, proxy.Config{}, []proxy.Route{{Match: "/", Lane: lane}, {Match: "/local", Respond: &proxy.Respond{Status: 200}}})
	idle := []*wireClient{dialWire(t, addr)}
	for _, before := range []string{"/local", "/app"} {
		c := say(t, addr, get(before))
		c.wantAnswer(t, "GET", 200, "*")
		idle = append(idle, c)
	}
	until(t, "all are accepted", func() bool { return server.Connections() == len(idle) })
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	for _, c := range idle {
		c.wantEnd(t, false)
	}
	if n := server.Connections(); n != 0 {
		t.Errorf("%d connections are left", n)
	}
	if conn, err := net.Dial("tcp", addr); err == nil {
		conn.Close()
		t.Error("it still listens")
	}
}

// beginShutdown starts a Shutdown, and returns when it has begun: when it has
// closed an idle connection.
func beginShutdown(t *testing.T, server *proxy.Server, addr string, ctx context.Context) <-chan error {
	t.Helper()
	n := server.Connections()
	idle := dialWire(t, addr)
	until(t, "an idle connection is accepted", func() bool { return server.Connections() == n+1 })
	ended := make(chan error, 1)
	go func() { ended <- server.Shutdown(ctx) }()
	idle.wantEnd(t, false)
	return ended
}

func TestShutdown_ARunningAndAWaitingRequestAreAnsweredWhole(t *testing.T) {
	gate := make(chan struct{})
	up := newScriptedUpstream(t, echoWhenOpen(t, gate))
	lane := startLane(t, up.Addr(), lanes.Config{Name: "web", Slots: 1, Queue: 8, QueueTimeout: time.Minute})
	server, addr := startDrainable(t, proxy.Config{}, []proxy.Route{{Match: "/", Lane: lane}})
	running := say(t, addr, get("/held"))
	up.Wait(t, 0, 1)
	waiting := say(t, addr, get("/waiting"))
	until(t, "the second request waits", func() bool { return lane.Snapshot().Waiting == 1 })
	ended := beginShutdown(t, server, addr, context.Background())
	select {
	case err := <-ended:
		t.Fatal("Shutdown did not wait:", err)
	default:
	}
	close(gate)
	for target, c := range map[string]*wireClient{"/held": running, "/waiting": waiting} {
		if answer := c.wantAnswer(t, "GET", 200, target); !answer.closes() {
			t.Errorf("%s: an answer of the drain without Connection: close", target)
		}
		c.wantEnd(t, false)
	}
	if err := take(t, "Shutdown returns", ended); err != nil {
		t.Error(err)
	}
}

func TestShutdown_AtTheDeadlineTheRestIsCut(t *testing.T) {
	gate := make(chan struct{})
	large := strings.Repeat("0123456789abcdef", 4<<20)
	up := newScriptedUpstream(t, func(conn net.Conn, request recordedRequest) bool {
		if request.Target != "/large" {
			return echoWhenOpen(t, gate)(conn, request)
		}
		_, err := fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(large), large)
		return err == nil
	})
	lane := startLane(t, up.Addr(), lanes.Config{Name: "web", Slots: 3, Queue: 8, QueueTimeout: time.Minute})
	server, addr := startDrainable(t, proxy.Config{}, []proxy.Route{{Match: "/", Lane: lane}})
	taker := say(t, addr, get("/large")) // of an answer that it does not take
	until(t, "the large answer is read", func() bool { return up.Count() == 1 && lane.Snapshot().InUse == 0 })
	var cut []*wireClient
	for i := range 3 {
		cut = append(cut, say(t, addr, get("/held/"+strconv.Itoa(i))))
	}
	up.Wait(t, 1, 3)
	cut = append(cut, say(t, addr, get("/waits")))
	until(t, "a request waits", func() bool { return lane.Snapshot().Waiting == 1 })
	cut = append(cut, say(t, addr, "GET / HTT"))
	until(t, "all are accepted", func() bool { return server.Connections() == len(cut)+1 })

	ctx, cancel := context.WithCancel(context.Background())
	ended := beginShutdown(t, server, addr, ctx)
	cancel()
	if err := take(t, "Shutdown returns", ended); err != context.Canceled {
		t.Errorf("Shutdown returns %v, not the context's error", err)
	}
	if n := server.Connections(); n != 0 {
		t.Errorf("%d connections are left", n)
	}
	for _, c := range cut {
		c.wantEnd(t, true)
	}
	if answer, err := taker.Read("GET"); err == nil {
		t.Errorf("the large answer came whole: %d bytes", len(answer.body))
	}
	if s := lane.Snapshot(); s.Abandoned != 3 || s.Waiting != 0 {
		t.Errorf("the views go on, their slots are taken: %+v", s)
	}
	close(gate)
	until(t, "the slots are free", func() bool { return lane.Snapshot().InUse == 0 })
	if got := up.Count(); got != 4 {
		t.Errorf("the upstream saw %d requests, want 4", got)
	}
}

// A client that was cut by us did not fail to send.
func TestShutdown_AnUploadCutAtTheDeadlineIsNotToldThatItStopped(t *testing.T) {
	up := newRecordingUpstream(t)
	lane := startLane(t, up.Addr(), lanes.Config{Name: "web", Slots: 1})
	for range 50 {
		server, addr := startDrainable(t, proxy.Config{}, []proxy.Route{{Match: "/", Lane: lane}})
		c := say(t, addr, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello") // and no more
		until(t, "it is accepted", func() bool { return server.Connections() == 1 })
		ctx, cancel := context.WithCancel(context.Background())
		ended := beginShutdown(t, server, addr, ctx)
		cancel()
		if err := take(t, "Shutdown returns", ended); err == nil {
			continue // the head had not been read yet: an idle connection
		}
		if answer, err := c.Read("POST"); err == nil && answer.get("Holdfast-Reason") == "body_timeout" {
			t.Errorf("it is told %s", answer.body)
		} else if err != nil && err != io.EOF && !isReset(err) {
			t.Error(err)
		}
		return
	}
	t.Error("the upload was never read as far as its body")
}

func isReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET)
}
