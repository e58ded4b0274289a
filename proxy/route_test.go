package proxy_test

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"holdfast/lanes"
	"holdfast/proxy"
)

// ---- The table.

func TestRoute_TheMostSpecificMatchWins(t *testing.T) {
	var routes []proxy.Route
	for _, match := range []string{"/", "/a", "/a/", "/a/b/", "/a/b/c", "/caf\u00e9/", "/with space", "/a/../x", "//"} {
		routes = append(routes, proxy.Route{Match: match, Respond: &proxy.Respond{Status: 200, Body: []byte(match)}})
	}
	addr := startServer(t, proxy.Config{}, routes)
	c := dialWire(t, addr)
	for target, want := range map[string]string{
		"/": "/", "/x": "/", "/ab": "/", "/?a=/a/b/c": "/",
		"/a": "/a", "/a?x": "/a", "/%61": "/a", "/a%3Fx": "/",
		"/a/": "/a/", "/a/x": "/a/", "/a/b": "/a/", "/a%2Fx": "/a/", "/a//b/": "/a/",
		"/a/b/": "/a/b/", "/a/b/c/": "/a/b/", "/a/b/c": "/a/b/c", "/a/%62/c": "/a/b/c", "/a/b/%2563": "/a/b/",
		"/a/./b/": "/a/", "/a/../x": "/a/../x", "/a/b/../c": "/a/b/", // literal
		"//": "//", "//a": "//",
		"/caf%C3%A9/": "/caf\u00e9/", "/caf\u00e9/x": "/caf\u00e9/", "/with%20space": "/with space", "/with+space": "/",
		"/a%": "/", "/a%2": "/", "/a%zz": "/", // malformed escapes stay as they are
		"http://b.test/a/b/c": "/a/b/c",
	} {
		c.say(t, get(target))
		c.wantAnswer(t, "GET", 200, want)
	}
}

func TestRoute_TheAsteriskGoesWhereTheRootGoes(t *testing.T) {
	p := startOneLane(t, nil, lanes.Config{Slots: 1}, proxy.Config{})
	c := say(t, p.addr, "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n")
	c.wantAnswer(t, "OPTIONS", 200, "0")
	if got := p.upstream.Since(0)[0]; got.Method != "OPTIONS" || got.Target != "*" {
		t.Errorf("the upstream saw %s %s", got.Method, got.Target)
	}
}

func TestRoute_WithoutOneItIsSaidAndTheConnectionGoesOn(t *testing.T) {
	addr := startServer(t, proxy.Config{}, []proxy.Route{{Match: "/a/", Respond: &proxy.Respond{Status: 200, Body: []byte("a")}}})
	c := say(t, addr, get("/b")+"POST /b HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"+get("/a/"))
	c.wantReason(t, 404, "no_route")
	c.wantReason(t, 404, "no_route")
	c.wantAnswer(t, "GET", 200, "a")
}

func TestRoute_ALocalAnswerIsForGETAndHEAD(t *testing.T) {
	near := make(chan bool, 4)
	addr := startServer(t, proxy.Config{}, []proxy.Route{
		{Match: "/fixed", Respond: &proxy.Respond{Status: 418, Fields: []string{"X-a", "1", "X-A", "2"}, Body: []byte("pot")}},
		{Match: "/made", Answer: func(asked *proxy.Asked) proxy.Respond {
			near <- asked.Near
			return proxy.Respond{Status: 204, Fields: []string{"X-B", "3"}}
		}},
	})
	// First by the one writer of local answers, then, behind a POST, by the other.
	c := dialWire(t, addr)
	for range 2 {
		c.say(t, get("/fixed")+"HEAD /fixed HTTP/1.1\r\nHost: a\r\n\r\n"+get("/made"))
		if answer := c.wantAnswer(t, "GET", 418, "pot"); answer.get("X-A") != "1 | 2" || answer.get("Content-Length") != "3" {
			t.Errorf("%q", answer.fields)
		}
		if answer := c.wantAnswer(t, "HEAD", 418, ""); answer.get("X-A") != "1 | 2" || answer.get("Content-Length") != "3" {
			t.Errorf("HEAD: %q", answer.fields)
		}
		if answer := c.wantAnswer(t, "GET", 204, ""); answer.get("X-B") != "3" || answer.get("Content-Length") != "" {
			t.Errorf("204: %q", answer.fields)
		}
		if !take(t, "it is asked for", near) {
			t.Error("this machine is not near")
		}
		c.say(t, "POST /fixed HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello")
		if answer := c.wantReason(t, 405, "method_not_allowed"); answer.get("Allow") != "GET, HEAD" {
			t.Errorf("Allow is %q", answer.get("Allow"))
		}
	}
}

func TestRoute_ATableThatCannotBeServedIsRefused(t *testing.T) {
	for _, matches := range [][]string{{"a"}, {""}, {"/", "/a", "/"}, {"/a/", "/a/"}} {
		var routes []proxy.Route
		for _, match := range matches {
			routes = append(routes, proxy.Route{Match: match, Respond: &proxy.Respond{Status: 200}})
		}
		if _, err := proxy.New(proxy.Config{}, routes, zap.NewNop(), nil); err == nil || !strings.Contains(err.Error(), strconv.Quote(matches[len(matches)-1])) {
			t.Errorf("%q: %v", matches, err)
		}
	}
}

// ---- Refusals of the lane.

func TestRoute_AFullQueueIsSaidAtOnceWithTheWayOut(t *testing.T) {
	gate := make(chan struct{})
	p := startOneLane(t, echoWhenOpen(t, gate), lanes.Config{Slots: 1, Queue: 1, QueueTimeout: time.Minute}, proxy.Config{})
	holder := say(t, p.addr, get("/held"))
	p.upstream.Wait(t, 0, 1)
	waiter := say(t, p.addr, get("/waits"))
	until(t, "a request waits", func() bool { return p.lane.Snapshot().Waiting == 1 })
	c := say(t, p.addr, get("/full"))
	answer := c.wantReason(t, 503, "lane_full", "lane web", "queue of 1", "1 in use, 1 waiting", "raise lanes.web.queue")
	if answer.get("Retry-After") != "1" || answer.closes() {
		t.Errorf("Retry-After %q, closing is %v", answer.get("Retry-After"), answer.closes())
	}
	close(gate)
	holder.wantAnswer(t, "GET", 200, "/held")
	waiter.wantAnswer(t, "GET", 200, "/waits")
	c.say(t, get("/again")) // on the connection that was refused
	c.wantAnswer(t, "GET", 200, "/again")
	if s := p.lane.Snapshot(); s.Refused[lanes.LaneFull] != 1 || p.targets() != "/held /waits /again" {
		t.Errorf("refused %v, the upstream saw %s", s.Refused, p.targets())
	}
}

func TestRoute_AWaitThatIsTooLongIsSaidWithTheWayOut(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	p := startOneLane(t, echoWhenOpen(t, gate), lanes.Config{Slots: 1, Queue: 5, QueueTimeout: 100 * time.Millisecond}, proxy.Config{})
	holder := say(t, p.addr, get("/held"))
	p.upstream.Wait(t, 0, 1)
	c := say(t, p.addr, get("/late"))
	answer := c.wantReason(t, 503, "lane_timeout", "lane web", "no slot within 100ms", "1 in use, 0 waiting", "raise lanes.web.slots")
	if answer.get("Retry-After") != "1" {
		t.Errorf("Retry-After %q", answer.get("Retry-After"))
	}
	close(gate)
	holder.wantAnswer(t, "GET", 200, "/held")
	if s := p.lane.Snapshot(); s.Refused[lanes.LaneTimeout] != 1 || p.targets() != "/held" {
		t.Errorf("refused %v, the upstream saw %s", s.Refused, p.targets())
	}
}

func TestRoute_AViewThatIsTooSlowKeepsItsSlotUntilItAnswers(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	p := startOneLane(t, echoWhenOpen(t, gate), lanes.Config{Slots: 1, Queue: 5, QueueTimeout: time.Minute, ResponseTimeout: 2 * time.Second}, proxy.Config{})
	c := say(t, p.addr, get("/held"))
	c.wantReason(t, 504, "upstream_timeout", "response_timeout", "lanes.web.response_timeout")
	until(t, "the slot is abandoned", func() bool { return p.lane.Snapshot().Abandoned == 1 })
	c.say(t, get("/next")) // the client's connection goes on
	until(t, "its next request waits", func() bool { return p.lane.Snapshot().Waiting == 1 })
	if s := p.lane.Snapshot(); s.InUse != 1 || p.targets() != "/held" {
		t.Errorf("while the view runs: %+v; the upstream saw %s", s, p.targets())
	}
	close(gate)
	c.wantAnswer(t, "GET", 200, "/next")
	if s := p.lane.Snapshot(); s.Abandoned != 0 || s.ClosedOnView != 0 {
		t.Errorf("after all: %+v", s)
	}
}

// ---- What is sent again, and on which connection.

// connsOf numbers the connections of an upstream by the requests they carry.
type connsOf struct {
	mu     sync.Mutex
	number map[string]int // by the peer's address
	seen   []string       // target@number
}

func (c *connsOf) note(conn net.Conn, request recordedRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.number == nil {
		c.number = map[string]int{}
	}
	peer := conn.RemoteAddr().String()
	if _, ok := c.number[peer]; !ok {
		c.number[peer] = len(c.number)
	}
	c.seen = append(c.seen, fmt.Sprintf("%s@%d", request.Target, c.number[peer]))
}

func (c *connsOf) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.seen, " ")
}

func TestRoute_AnUpstreamThatClosesWithoutAnAnswerIsAskedAgainOnlyWhereThatIsSafe(t *testing.T) {
	for method, again := range map[string]bool{
		"GET": true, "HEAD": true, "OPTIONS": true, "POST": false, "PUT": false, "DELETE": false, "PATCH": false, "PROPFIND": false,
	} {
		for _, reused := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/Reused=%v", method, reused), func(t *testing.T) {
				conns := new(connsOf)
				p := startOneLane(t, func(conn net.Conn, request recordedRequest) bool {
					conns.note(conn, request)
					return request.Target != "/gone" && echo(conn, request)
				}, lanes.Config{Slots: 1, Queue: 8}, proxy.Config{})
				c := dialWire(t, p.addr)
				first := 0
				if reused {
					c.say(t, get("/before"))
					c.wantAnswer(t, "GET", 200, "/before")
					first = 1
				}
				c.say(t, method+" /gone HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello")
				c.wantUpstreamError(t, method)
				want := 1
				if again {
					want = 2
				}
				if got := p.upstream.Count() - first; got != want {
					t.Errorf("the upstream saw it %d times, want %d: %s", got, want, conns)
				}
				if again && reused && conns.String() != "/before@0 /gone@0 /gone@1" || again && !reused && conns.String() != "/gone@0 /gone@1" {
					t.Errorf("on its connections the upstream saw %s", conns)
				}
				c.say(t, get("/next"))
				c.wantAnswer(t, "GET", 200, "/next")
				if s := p.lane.Snapshot(); s.Retried != uint64(want-1) || s.InUse != 0 {
					t.Errorf("%+v", s)
				}
			})
		}
	}
}

// wantUpstreamError is wantReason for any method; the answer to HEAD has no body.
func (c *wireClient) wantUpstreamError(t *testing.T, method string) {
	t.Helper()
	answer := c.wantAnswer(t, method, 502, "*")
	if got := answer.get("Holdfast-Reason"); got != "upstream_error" {
		t.Errorf("the reason is %q", got)
	}
}

func TestRoute_ASecondSendingThatIsAnsweredIsTheAnswer(t *testing.T) {
	p := startOneLane(t, func(conn net.Conn, request recordedRequest) bool {
		return request.Seq != 0 && echo(conn, request)
	}, lanes.Config{Slots: 1}, proxy.Config{})
	c := say(t, p.addr, "GET /once HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello")
	c.wantAnswer(t, "GET", 200, "/once")
	requests := p.upstream.Since(0)
	if len(requests) != 2 || string(requests[0].Head) != string(requests[1].Head) || string(requests[1].Body) != "hello" {
		t.Errorf("the upstream saw %d requests: %+v", len(requests), requests)
	}
	if s := p.lane.Snapshot(); s.Retried != 1 {
		t.Errorf("%+v", s)
	}
}

func TestRoute_AfterAByteOfAnswerNothingIsSentAgain(t *testing.T) {
	p := startOneLane(t, func(conn net.Conn, request recordedRequest) bool {
		conn.Write([]byte("H"))
		return false
	}, lanes.Config{Slots: 1}, proxy.Config{})
	c := say(t, p.addr, get("/"))
	c.wantReason(t, 502, "upstream_error")
	if got := p.upstream.Count(); got != 1 {
		t.Errorf("it was sent %d times", got)
	}
}

// A POST does not go out on a connection that the app may be closing.
func TestRoute_APOSTGoesOutOnAConnectionUsedLately(t *testing.T) {
	t.Parallel()
	conns := new(connsOf)
	p := startOneLane(t, func(conn net.Conn, request recordedRequest) bool {
		conns.note(conn, request)
		return echo(conn, request)
	}, lanes.Config{Slots: 1}, proxy.Config{})
	c := dialWire(t, p.addr)
	ask := func(method, target string) {
		t.Helper()
		c.say(t, method+" "+target+" HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
		c.wantAnswer(t, method, 200, target)
	}
	idle := func() {
		t.Helper()
		until(t, "the slot has been free for over 500ms", func() bool {
			s := p.lane.Snapshot().SlotStates[0]
			return s.State == "free" && s.For > 510*time.Millisecond
		})
	}
	ask("GET", "/a")
	idle()
	ask("GET", "/b") // may be sent again, so it may try
	idle()
	ask("POST", "/c")
	idle()
	ask("PUT", "/d")
	idle()
	ask("OPTIONS", "/e")
	if got := conns.String(); got != "/a@0 /b@0 /c@1 /d@2 /e@2" {
		t.Errorf("on its connections the upstream saw %s", got)
	}
}

func TestRoute_AnUnsolicitedTimeoutOfAnIdleConnectionReachesNobody(t *testing.T) {
	answered, written := make(chan struct{}), make(chan struct{})
	p := startOneLane(t, func(conn net.Conn, request recordedRequest) bool {
		if request.Target != "/first" {
			return echo(conn, request)
		}
		echo(conn, request)
		if !opened(t, answered) {
			return false
		}
		fmt.Fprint(conn, "HTTP/1.1 408 Request Timeout\r\nContent-Length: 5\r\nConnection: close\r\n\r\nwrong")
		conn.(*recordedConn).Conn.(*net.TCPConn).CloseWrite()
		close(written)
		return true
	}, lanes.Config{Slots: 1}, proxy.Config{})
	c := say(t, p.addr, get("/first"))
	c.wantAnswer(t, "GET", 200, "/first")
	close(answered)
	take(t, "the 408 is written", written)
	for _, method := range []string{"POST", "GET"} {
		c.say(t, method+" /next HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
		c.wantAnswer(t, method, 200, "/next")
	}
	if s := p.lane.Snapshot(); s.Retried != 0 {
		t.Errorf("it was found out only by sending: %+v", s)
	}
}
