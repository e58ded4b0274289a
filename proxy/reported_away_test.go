package proxy_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"holdfast/lanes"
	"holdfast/proxy"
	"holdfast/upstream"
)

// Faults that users of other proxies have met: apps that are not there, and
// apps that go.

// freePort is where nobody listens yet.
func freePort(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// An upload that comes while nobody listens waits, and arrives whole and once:
// from memory and from the spool.
func TestForward_AnUploadThatComesBeforeItsAppListensArrivesWholeAndOnce(t *testing.T) {
	t.Parallel()
	for _, size := range []int{100 << 10, 600 << 10} {
		for _, framing := range []string{"Length", "Chunked"} {
			t.Run(fmt.Sprintf("%s/%dKiB", framing, size>>10), func(t *testing.T) {
				t.Parallel()
				addr := freePort(t)
				lane := startLane(t, addr, lanes.Config{Name: "web", Slots: 1, Queue: 8, QueueTimeout: patience})
				server := startServer(t, proxy.Config{}, []proxy.Route{{Match: "/", Lane: lane}})
				body := pattern(size)
				text := fmt.Sprintf("POST /up HTTP/1.1\r\nHost: a.test\r\nContent-Length: %d\r\n\r\n%s", size, body)
				if framing == "Chunked" {
					text = fmt.Sprintf("POST /up HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", size, body)
				}
				c := say(t, server, text)
				until(t, "it waits", func() bool { return lane.Snapshot().Waiting == 1 })
				got := make(chan []byte, 8)
				listenAt(t, addr, asApp(func(a *appConn) {
					for line, fields := a.head(); line != ""; line, fields = a.head() {
						body, _ := a.readUpload(fields)
						got <- body
						a.named("/up")
					}
				}))
				c.wantAnswer(t, "POST", 200, "/up")
				if arrived := take(t, "it arrives", got); !bytes.Equal(arrived, body) || len(got) > 0 {
					t.Errorf("%d bytes arrived, and %d more times", len(arrived), len(got))
				}
			})
		}
	}
}

// listenAt is startTCP at an address that was free.
func listenAt(t *testing.T, addr string, script func(*net.TCPConn)) {
	t.Helper()
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		t.Skip("another has taken the port meanwhile:", err)
	}
	ended := make(chan struct{})
	go acceptTCP(listener, script, ended)
	t.Cleanup(func() { listener.Close(); <-ended })
}

// A worker that dies with a POST, however much of it it has read: a 502, the
// app is asked once, and the next request finds the slot.
func TestForward_AnAppThatDiesWithAnUploadIsA502AndIsNotAskedAgain(t *testing.T) {
	body := pattern(300 << 10)
	for _, reads := range []int{0, 150 << 10, 300 << 10} {
		for _, reset := range []bool{false, true} {
			eachKind(t, func(t *testing.T, stream bool) {
				t.Run(fmt.Sprintf("Reads=%d/Reset=%v", reads, reset), func(t *testing.T) {
					var conns atomic.Int32
					s := startRaw(t, lanes.Config{Stream: stream, Queue: 8, QueueTimeout: patience}, proxy.Config{}, func(a *appConn) {
						line, _ := a.head()
						if strings.HasPrefix(line, "GET") {
							a.named("/next")
							return
						}
						if line == "" {
							return
						}
						conns.Add(1)
						io.CopyN(io.Discard, a.reader, int64(reads))
						if reset {
							a.SetLinger(0)
						}
					})
					c := dialWire(t, s.addr)
					c.conn.SetDeadline(time.Now().Add(patience))
					c.Write(append(fmt.Appendf(nil, "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: %d\r\n\r\n", len(body)), body...), 0)
					c.wantUpstreamError(t, "POST")
					s.wantFree(t)
					say(t, s.addr, get("/next")).wantAnswer(t, "GET", 200, "/next")
					if got := conns.Load(); got != 1 {
						t.Errorf("the app was asked %d times", got)
					}
				})
			})
		}
	}
}

// ---- Unix sockets.

// The path is dialled anew each time: a socket that is made again is the app's,
// and Host is the client's all along.
func TestForward_AUnixSocketThatIsMadeAgainIsUsedAgain(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/app.sock"
	hosts := make(chan string, 4)
	serve := func() (stop func()) {
		listener, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		app := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			hosts <- r.Host
			io.WriteString(w, r.URL.Path)
		})}
		ended := make(chan struct{})
		go func() { defer close(ended); app.Serve(listener) }()
		return func() { app.Close(); <-ended }
	}
	stop := serve()
	up := upstream.New(upstream.Config{Name: "app", Park: 100 * time.Millisecond, Targets: []upstream.Address{{Text: "unix:" + path, Network: "unix", Addr: path}}}, nil)
	up.Targets()[0].Answered()
	lane := lanes.New(lanes.Config{Name: "web", Slots: 1, Queue: 8, QueueTimeout: patience}, up.Deal(1))
	t.Cleanup(func() { lane.Close(); up.Close() })
	addr := startServer(t, proxy.Config{}, []proxy.Route{{Match: "/", Lane: lane}})
	asks := func() {
		t.Helper()
		say(t, addr, get("/one")).wantAnswer(t, "GET", 200, "/one")
		say(t, addr, "GET /old HTTP/1.0\r\n\r\n").wantAnswer(t, "GET", 200, "/old")
		if first, second := <-hosts, <-hosts; first != "a.test" || second != addr {
			t.Errorf("Host is %q, and %q where the client named none", first, second)
		}
	}
	asks()
	stop() // which takes the file away
	say(t, addr, get("/gone")).wantReason(t, 503, "upstream_down", "lane web")
	again := serve()
	until(t, "it is up", func() bool { return up.Targets()[0].State().Up })
	asks()
	again()
}

// ---- Which fault it was.

// Each way to get no answer has its own status, reason and one line in the log,
// with the lane; and the exchange's line says how long it took and who ended it.
func TestForward_EachWayToGetNoAnswerHasItsOwnWord(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	app := startTCP(t, asApp(func(a *appConn) {
		for {
			line, fields := a.head()
			if line == "" {
				return
			}
			a.readUpload(fields)
			switch strings.Fields(line)[1] {
			case "/reset":
				a.SetLinger(0)
				return
			case "/malformed":
				a.say("HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\n")
			case "/stalls":
				a.say("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello")
				opened(t, gate)
				return
			case "/silent", "/held":
				opened(t, gate)
				return
			}
		}
	}))
	const limit = 200 * time.Millisecond
	down, _ := startDown(t, upstream.Config{Park: time.Millisecond})
	full := startLane(t, app, lanes.Config{Name: "full", Slots: 1, Queue: 1, QueueTimeout: limit})
	closed := startLane(t, app, lanes.Config{Name: "closed", Slots: 1})
	closed.Close()
	web := startLane(t, app, lanes.Config{Name: "web", Slots: 8, ResponseTimeout: limit})
	addr, logs := startLogged(t, "tcp", proxy.Config{AccessLog: true}, []proxy.Route{
		{Match: "/", Lane: web}, {Match: "/refused", Lane: down}, {Match: "/late", Lane: full}, {Match: "/held", Lane: full}, {Match: "/closed", Lane: closed}})
	say(t, addr, get("/held"))
	until(t, "its slot is taken", func() bool { return full.Snapshot().InUse == 1 })
	for i, c := range []struct {
		path   string
		status int // 0: the answer is cut
		reason string
		lane   string
		end    string
	}{
		{"/refused", 503, "upstream_down", "down", "holdfast_waiting"}, {"/reset", 502, "upstream_error", "web", "upstream_running"},
		{"/malformed", 502, "upstream_error", "web", "upstream_running"}, {"/silent", 504, "upstream_timeout", "web", "upstream_running"},
		{"/stalls", 0, "", "", "upstream_answering"}, {"/late", 503, "lane_timeout", "full", "holdfast_waiting"}, {"/closed", 503, "draining", "closed", "holdfast_waiting"},
	} {
		before := logs.FilterLevelExact(zap.WarnLevel).Len()
		client := say(t, addr, "POST "+c.path+" HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\n\r\n")
		if c.status == 0 {
			if answer, err := client.Read("POST"); err == nil {
				t.Errorf("%s is answered %d %q, whole", c.path, answer.status, answer.body)
			}
		} else {
			client.wantReason(t, c.status, c.reason)
		}
		until(t, "the exchange is logged", func() bool { return logs.FilterMessage("exchange").Len() == i+1 })
		exchange := logs.FilterMessage("exchange").All()[i].ContextMap()
		if exchange["end"] != c.end || exchange["took"] == nil || exchange["wait"] == nil {
			t.Errorf("%s: the exchange is logged as %v", c.path, exchange)
		}
		warned := logs.FilterLevelExact(zap.WarnLevel).All()[before:]
		if len(warned) != 1 {
			t.Fatalf("%s: the log has %v", c.path, warned)
		}
		if fields := warned[0].ContextMap(); c.status > 0 && (fields["reason"] != c.reason || fields["lane"] != c.lane) || c.status == 0 && !strings.Contains(warned[0].Message, "cut short") {
			t.Errorf("%s: the log says %s %v", c.path, warned[0].Message, fields)
		}
	}
	close(gate)
}
