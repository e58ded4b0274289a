package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// The drain, at the process itself: signals, exit codes, and what each client
// sees of it.

const drainLanes = `
upstreams: {app: {targets: ["http://%s"]}}
lanes:
  web:  {upstream: app, slots: 4}
  slow: {upstream: app, slots: 2, queue_timeout: 60s}
routes:
  - {match: "/robots.txt", respond: {body: "User-agent: *\n"}}
  - {match: "/hang", lane: slow}
  - {match: "/", lane: web}
`

// startHanging runs an app of sixteen threads; release ends every /hang.
func startHanging(t *testing.T) (a *app, release func()) {
	t.Helper()
	gate := filepath.Join(t.TempDir(), "release")
	a = startOnPort(t, "django", []string{"HANG_RELEASE=" + gate}, "site_wsgi:application", "-w", "1", "--threads", "16")
	return a, func() {
		if err := os.WriteFile(gate, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// startReady starts the command and waits until it says that it is ready.
func startReady(t *testing.T, yaml string, apps ...*app) *command {
	t.Helper()
	addresses := make([]any, len(apps))
	for i, a := range apps {
		addresses[i] = a.addr
	}
	c := startCommand(t, writeConfig(t, yaml, addresses...))
	c.eventuallySays(t, "ready")
	return c
}

// lines are the log's lines with this message; "": all.
func logLines(t *testing.T, log, msg string) (lines []map[string]any) {
	t.Helper()
	for line := range strings.Lines(log) {
		if !strings.HasPrefix(line, "{") || !strings.HasSuffix(line, "\n") {
			continue
		}
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatalf("a log line is not JSON: %v in %q", err, line)
		}
		if msg == "" || fields["msg"] == msg {
			lines = append(lines, fields)
		}
	}
	return lines
}

func (c *command) eventuallySays(t *testing.T, msg string) {
	t.Helper()
	eventually(t, "the log to say "+msg, func() bool { return len(logLines(t, c.log.String(), msg)) > 0 })
}

// admin is the address of /status, from the line that says "started".
func (c *command) admin(t *testing.T) string {
	t.Helper()
	addr, _ := logLines(t, c.log.String(), "started")[0]["admin"].(string)
	return addr
}

func (c *command) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := c.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// eventuallyRefuses waits until nobody accepts at the address.
func eventuallyRefuses(t *testing.T, addr string) {
	t.Helper()
	eventually(t, "connections to be refused", func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
		}
		return errors.Is(err, syscall.ECONNREFUSED)
	})
}

// statusShown is the part of /status that tests look at.
type statusShown struct {
	State string
	Lanes map[string]struct {
		Slots   []struct{ Target, State string }
		Waiting int
	}
	Bytes struct{ Memory int64 }
}

// in counts the slots of a lane that are in a state.
func (s statusShown) in(lane, state string) (n int) {
	for _, slot := range s.Lanes[lane].Slots {
		if slot.State == state {
			n++
		}
	}
	return n
}

func adminStatus(t *testing.T, admin string) (s statusShown) {
	t.Helper()
	body := wantGet(t, onceClient(), "http://"+admin+"/status")
	if err := json.Unmarshal(body, &s); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	return s
}

// rawClient is a connection of which every byte is the test's.
type rawClient struct {
	net.Conn
	t *testing.T
	r *bufio.Reader
}

func dialRaw(t *testing.T, addr string) *rawClient {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(3 * time.Minute))
	return &rawClient{conn, t, bufio.NewReader(conn)}
}

func (c *rawClient) send(format string, args ...any) {
	c.t.Helper()
	if _, err := fmt.Fprintf(c, format, args...); err != nil {
		c.t.Fatal(err)
	}
}

// get sends a whole request.
func (c *rawClient) get(path, id string) {
	c.t.Helper()
	c.send("GET %s HTTP/1.1\r\nHost: localhost\r\nX-Request-ID: %s\r\n\r\n", path, id)
}

// leave resets the connection.
func (c *rawClient) leave() {
	c.Conn.(*net.TCPConn).SetLinger(0)
	c.Close()
}

// read takes the next answer whole.
func (c *rawClient) read() (response *http.Response, body []byte, err error) {
	if response, err = http.ReadResponse(c.r, nil); err != nil {
		return nil, nil, err
	}
	body, err = io.ReadAll(response.Body)
	return response, body, err
}

// wantAnswer takes the next answer, which must be whole and of this status.
func (c *rawClient) wantAnswer(status int) (*http.Response, []byte) {
	c.t.Helper()
	response, body, err := c.read()
	if err != nil {
		c.t.Fatalf("no whole answer: %v", err)
	}
	if response.StatusCode != status {
		c.t.Fatalf("%d %v %.300q, want %d", response.StatusCode, response.Header, body, status)
	}
	return response, body
}

// wantLast is wantAnswer that says Connection: close, and then the end.
func (c *rawClient) wantLast(status int) (*http.Response, []byte) {
	c.t.Helper()
	response, body := c.wantAnswer(status)
	if !response.Close {
		c.t.Errorf("the answer %v does not say Connection: close", response.Header)
	}
	if b, err := c.r.ReadByte(); err != io.EOF {
		c.t.Errorf("after the last answer %q and %v, want the end", b, err)
	}
	return response, body
}

// hang has n clients ask for /hang on connections of their own, and waits
// until the lane shows them.
func (c *command) hang(t *testing.T, n int, id string, shown func(statusShown) bool) (clients []*rawClient) {
	t.Helper()
	for i := range n {
		client := dialRaw(t, c.addr)
		client.get("/hang?secret=1", id+strconv.Itoa(i))
		clients = append(clients, client)
	}
	eventually(t, id+" to be seen in /status", func() bool { return shown(adminStatus(t, c.admin(t))) })
	return clients
}

func TestDrain_RunningWaitingAndArrivingRequestsAreAnsweredWholeAndSayClose(t *testing.T) {
	t.Parallel()
	a, release := startHanging(t)
	c := startReady(t, drainLanes, a)
	running := c.hang(t, 2, "running", func(s statusShown) bool { return s.in("slow", "busy") == 2 })
	waiting := c.hang(t, 3, "waiting", func(s statusShown) bool { return s.Lanes["slow"].Waiting == 3 })
	// On these a request has arrived in part; before it, each carried a whole one.
	var arriving []*rawClient
	for _, path := range []string{"/robots.txt", "/fast", "/status/404", "/hang"} {
		client := dialRaw(t, c.addr)
		client.get("/fast", "first")
		if response, _ := client.wantAnswer(200); response.Close {
			t.Error("an answer before the drain says close: that a later one does shows nothing")
		}
		client.send("GET %s HTTP/1.1\r\nHo", path)
		arriving = append(arriving, client)
	}
	c.signal(t, syscall.SIGTERM)
	eventuallyRefuses(t, c.addr)
	for _, client := range arriving {
		client.send("st: localhost\r\n\r\n")
	}
	for i, status := range []int{200, 200, 404} {
		arriving[i].wantLast(status)
	}
	eventually(t, "the last to wait, too", func() bool { return adminStatus(t, c.admin(t)).Lanes["slow"].Waiting == 4 })
	release()
	for _, client := range append(append(running, waiting...), arriving[3]) {
		if _, body := client.wantLast(200); !bytes.Contains(body, []byte(`"released": true`)) {
			t.Errorf("%s", body)
		}
	}
	c.wantExit(t, exitOK)
	c.wantNothingNamed(t)
}

// wantNothingNamed: of the drain the log has its beginning and its end.
func (c *command) wantNothingNamed(t *testing.T) {
	t.Helper()
	var said []any
	for _, line := range logLines(t, c.log.String(), "") {
		if len(said) > 0 || line["msg"] == "draining" {
			said = append(said, line["msg"])
		}
	}
	if len(said) != 2 || said[1] != "stopped" {
		t.Errorf("of the drain the log says %v, want that it began and ended", said)
	}
}

// Clients that ask again and again on kept connections, through the signal: no
// request of theirs is left without its answer.
func TestDrain_KeptConnectionsUnderLoadLoseNoRequest(t *testing.T) {
	t.Parallel()
	a, _ := startHanging(t)
	c := startReady(t, drainLanes, a)
	var clients sync.WaitGroup
	answered := make(chan struct{}, 1000)
	for i := range 12 {
		client := dialRaw(t, c.addr)
		path := [...]string{"/robots.txt", "/fast", "/echo"}[i%3]
		clients.Go(func() { client.askUntilClosed(path, answered) })
	}
	for range 60 {
		<-answered
	}
	c.signal(t, syscall.SIGTERM)
	ended := make(chan struct{})
	go func() { clients.Wait(); close(ended) }()
	for {
		select {
		case <-answered:
			continue
		case <-ended:
		}
		break
	}
	c.wantExit(t, exitOK)
	c.wantNothingNamed(t)
}

// askUntilClosed asks until an answer says that it is the last. A connection
// that was silent for long may be closed instead.
func (c *rawClient) askUntilClosed(path string, answered chan<- struct{}) {
	sent := time.Now()
	for n := 0; ; n++ {
		before := sent
		sent = time.Now()
		request := "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n"
		if path == "/echo" {
			request = "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello"
		}
		_, err := fmt.Fprintf(c, request, path)
		var response *http.Response
		if err == nil {
			response, _, err = c.read()
		}
		switch {
		case err != nil && time.Since(before) > 200*time.Millisecond:
			c.t.Logf("%s: closed after a silence: %v", path, err)
			return
		case err != nil:
			c.t.Errorf("%s: request %d has no whole answer: %v", path, n, err)
			return
		case response.StatusCode != 200:
			c.t.Errorf("%s: request %d: %d", path, n, response.StatusCode)
			return
		case response.Close:
			return
		}
		answered <- struct{}{}
	}
}

func TestDrain_AViewThatEndsAtFourFifthsOfTheBoundIsWhole(t *testing.T) {
	t.Parallel()
	a, _ := startHanging(t)
	c := startReady(t, drainLanes+"drain: {bound: 5s}\n", a)
	client := dialRaw(t, c.addr)
	client.get("/slow?ms=4000", "slow")
	eventually(t, "the view to run", func() bool { return a.running("/slow") == 1 })
	c.signal(t, syscall.SIGTERM)
	if _, body := client.wantLast(200); !bytes.Contains(body, []byte(`"ms": 4000`)) {
		t.Errorf("%s", body)
	}
	c.wantExit(t, exitOK)
	c.wantNothingNamed(t)
}

const cutLine = "cut at the drain's bound"

func TestDrain_AtTheBoundWhoWaitsIsRefusedAndWhatRunsIsCutAndNamed(t *testing.T) {
	t.Parallel()
	a, _ := startHanging(t)
	// The delay is part of the bound.
	c := startReady(t, strings.Replace(drainLanes, "slots: 2", "slots: 12", 1)+"drain: {delay: 3s, bound: 4s}\n", a)
	running := c.hang(t, 12, "running", func(s statusShown) bool { return s.in("slow", "busy") == 12 })
	waiting := c.hang(t, 3, "waiting", func(s statusShown) bool { return s.Lanes["slow"].Waiting == 3 })
	dialRaw(t, c.addr) // has said nothing
	kept := dialRaw(t, c.addr)
	kept.get("/fast", "kept")
	kept.wantAnswer(200)
	part := dialRaw(t, c.addr)
	began := time.Now()
	c.signal(t, syscall.SIGTERM)
	eventuallyRefuses(t, c.addr)
	part.send("GET /fast HTT")
	for _, client := range waiting {
		response, body := client.wantLast(http.StatusServiceUnavailable)
		if response.Header.Get("Holdfast-Reason") != "draining" || response.Header.Get("Retry-After") == "" {
			t.Errorf("%v %s, want the reason draining and Retry-After", response.Header, body)
		}
	}
	for _, client := range running {
		if response, body, err := client.read(); err == nil {
			t.Errorf("a request that ran at the bound was answered %d %s", response.StatusCode, body)
		}
	}
	c.wantExit(t, exitOK)
	if took := time.Since(began); took < 4*time.Second || took > 6*time.Second {
		t.Errorf("ended after %v, want the bound, 4s", took)
	}
	text := c.log.String()
	if strings.Contains(text, "secret") {
		t.Error("the log shows a query")
	}
	t.Run("EachThatRanIsNamedAndNothingElse", func(t *testing.T) {
		named := make(map[any]bool)
		for _, line := range logLines(t, text, cutLine) {
			if line["method"] != "GET" || line["path"] != "/hang" || line["route"] != "/hang" || line["lane"] != "slow" {
				t.Errorf("%v, want method, path, route and lane", line)
			}
			named[line["request_id"]] = true
		}
		for i := range running {
			if id := fmt.Sprint("running", i); !named[id] {
				t.Errorf("%s was cut and is not named", id)
			}
			delete(named, fmt.Sprint("running", i))
		}
		if len(named) > 0 {
			t.Errorf("named, and was not cut: %v", named)
		}
	})
	t.Run("ItWasHoldfastThatEndedThem", func(t *testing.T) {
		for _, line := range logLines(t, text, cutLine) {
			if line["end"] != "holdfast_running" {
				t.Errorf("end %v, want holdfast_running", line["end"])
			}
		}
	})
}

// An answer to HTTP/1.0 without a length ends with its connection: cut at the
// bound, it must not look as if it were whole.
func TestDrain_AnAnswerCutAtTheBoundDoesNotLookWhole(t *testing.T) {
	for name, prepare := range map[string]func(c *command, a *app, client *rawClient){
		"ClientReads": func(_ *command, _ *app, client *rawClient) {
			client.send("GET /stream?n=100000&ms=20 HTTP/1.0\r\nHost: localhost\r\n\r\n")
		},
		"ClientDoesNotRead": fillUp,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, _ := startHanging(t)
			c := startReady(t, drainLanes+"drain: {bound: 1s}\n", a)
			client := dialRaw(t, c.addr)
			prepare(c, a, client)
			eventually(t, "the view to run", func() bool { return a.running("/stream") == 1 })
			c.signal(t, syscall.SIGTERM)
			c.wantExit(t, exitOK)
			if len(logLines(t, c.log.String(), cutLine)) != 1 {
				t.Error("it is not named")
			}
			if n, err := io.Copy(io.Discard, client.r); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("after %d bytes %v, want a reset: a clean end would say that this is all", n, err)
			}
		})
	}
}

// fillUp has the client ask for more than the sockets take, and behind it for
// an answer without a length, which then waits in Holdfast.
func fillUp(c *command, a *app, client *rawClient) {
	client.send("GET /big?bytes=16777216 HTTP/1.1\r\nHost: localhost\r\n\r\n")
	response, err := http.ReadResponse(client.r, nil)
	if err != nil {
		client.t.Fatal(err)
	}
	client.send("GET /stream?n=1000000&ms=0 HTTP/1.0\r\nHost: localhost\r\n\r\n")
	for a.running("/stream") == 0 { // it runs when the last byte of the other is written
		if _, err := io.CopyN(io.Discard, response.Body, 64<<10); err != nil {
			client.t.Fatal(err)
		}
		poll()
	}
	eventually(client.t, "an answer beyond what the sockets take", func() bool {
		return adminStatus(client.t, c.admin(client.t)).Bytes.Memory > 64<<10
	})
}

func TestDrain_QuietConnectionsAreClosedSoonAndNamedByNobody(t *testing.T) {
	t.Parallel()
	a, _ := startHanging(t)
	c := startReady(t, drainLanes+"drain: {bound: 25s}\n", a)
	var quiet []*rawClient
	for _, path := range []string{"", "/robots.txt", "/fast"} {
		client := dialRaw(t, c.addr)
		if path != "" {
			client.get(path, "once")
			client.wantAnswer(200)
		}
		quiet = append(quiet, client)
	}
	began := time.Now()
	c.signal(t, syscall.SIGTERM)
	for _, client := range quiet {
		if b, err := client.r.ReadByte(); err != io.EOF {
			t.Errorf("%q %v, want the end", b, err)
		}
	}
	c.wantExit(t, exitOK)
	if took := time.Since(began); took > 12*time.Second {
		t.Errorf("took %v with nothing to do", took)
	}
	c.wantNothingNamed(t)
}

// A client may have sent its request before it heard of the drain: for a moment
// a quiet connection is served. In this process, to be there in time.
func TestDrain_ARequestOnAQuietConnectionIsServedForAMoment(t *testing.T) {
	t.Parallel()
	a, _ := startHanging(t)
	s := startReadySite(t, drainLanes, a)
	var quiet []*rawClient
	for i := range 10 {
		client := dialRaw(t, s.listeners[0].Addr().String())
		client.get([...]string{"/fast", "/robots.txt"}[i%2], "once")
		client.wantAnswer(200)
		quiet = append(quiet, client)
	}
	closed := time.Now()
	s.server.Drain()
	s.server.Close()
	inTime := 0
	for i, client := range quiet {
		_, err := fmt.Fprintf(client, "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello")
		if time.Since(closed) > 200*time.Millisecond {
			break
		}
		if inTime++; err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
	}
	if inTime == 0 {
		t.Skip("too late for every one of them")
	}
	for _, client := range quiet[:inTime] {
		client.wantLast(200)
	}
}

func TestDrain_DuringTheDelayItServesAsEverAndIsNotReady(t *testing.T) {
	t.Parallel()
	a, _ := startHanging(t)
	c := startReady(t, drainLanes+"drain: {delay: 4s, bound: 25s}\n", a)
	kept := dialRaw(t, c.addr)
	kept.get("/fast", "kept")
	kept.wantAnswer(200)
	c.signal(t, syscall.SIGTERM)
	c.eventuallySays(t, "draining")
	eventually(t, "the drain", func() bool { return adminStatus(t, c.admin(t)).State == "draining" })
	for _, ask := range []struct {
		path   string
		status int
	}{{"/ready", 503}, {"/health", 200}, {"/fast", 200}, {"/robots.txt", 200}} {
		client := dialRaw(t, c.addr)
		client.get(ask.path, "delay")
		if _, body := client.wantLast(ask.status); ask.path == "/ready" && !bytes.Contains(body, []byte(`"draining"`)) {
			t.Errorf("/ready: %s, want the reason", body)
		}
	}
	kept.get("/fast", "kept again")
	kept.wantLast(200)
	eventuallyRefuses(t, c.addr)
	c.wantExit(t, exitOK)
	c.wantNothingNamed(t)
}

// startDrainCommand runs `holdfast drain --wait`, which ends with the process.
func startDrainCommand(t *testing.T, c *command) (stdout *syncBuffer, code <-chan int) {
	t.Helper()
	stdout = new(syncBuffer)
	ended := make(chan int, 1)
	go func() { ended <- run([]string{"drain", "--wait", "--admin", c.admin(t)}, stdout, io.Discard) }()
	c.eventuallySays(t, "draining")
	return stdout, ended
}

func TestDrain_ASignalAfterTheDrainCommandIsNotASecondOne(t *testing.T) {
	t.Parallel()
	a, release := startHanging(t)
	c := startReady(t, drainLanes, a)
	running := c.hang(t, 1, "running", func(s statusShown) bool { return s.in("slow", "busy") == 1 })
	stdout, code := startDrainCommand(t, c)
	eventually(t, "the command to say so", func() bool { return strings.Contains(stdout.String(), "draining") })
	c.signal(t, syscall.SIGTERM)
	eventuallyRefuses(t, c.addr)
	// Asked once more, nothing begins anew.
	if response, err := onceClient().Post("http://"+c.admin(t)+"/drain", "", nil); err != nil || response.StatusCode != 202 {
		t.Error(response, err)
	}
	if len(code) > 0 {
		t.Errorf("--wait returned while a request runs: %s", stdout)
	}
	release()
	running[0].wantLast(200)
	c.wantExit(t, exitOK)
	if got := <-code; got != exitOK || !strings.Contains(stdout.String(), "stopped") {
		t.Errorf("drain --wait: exit %d, %q", got, stdout)
	}
	c.wantNothingNamed(t)
}

// In a container whose first process is Holdfast a command that waits is killed
// with it, if it has not ended before.
func TestDrain_WhoWaitsForItSeesItsEndBeforeTheProcessHasEnded(t *testing.T) {
	first := 0
	for range 3 { // a machine that is busy may be late once
		a, _ := startHanging(t)
		c := startReady(t, drainLanes, a)
		_, code := startDrainCommand(t, c)
		select {
		case <-code:
			first++
		case err := <-c.ended:
			c.ended <- err
		}
		c.wantExit(t, exitOK)
	}
	if first < 2 {
		t.Errorf("the command ended before the process %d times of 3", first)
	}
}

// A drain that goes on is ended by the second signal, whatever began it.
func TestDrain_ASecondSignalStopsAtOnceWithExit1(t *testing.T) {
	for name, begin := range map[string]func(t *testing.T, c *command){
		"SIGTERM":           func(t *testing.T, c *command) { c.signal(t, syscall.SIGTERM) },
		"SIGINT":            func(t *testing.T, c *command) { c.signal(t, syscall.SIGINT) },
		"SIGTERMAfterDrain": func(t *testing.T, c *command) { startDrainCommand(t, c); c.signal(t, syscall.SIGTERM) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, _ := startHanging(t)
			c := startReady(t, drainLanes+"drain: {bound: 10m}\n", a)
			running := c.hang(t, 1, "running", func(s statusShown) bool { return s.in("slow", "busy") == 1 })
			begin(t, c)
			c.eventuallySays(t, "draining")
			eventuallyRefuses(t, c.addr)
			// Signals of a kind that are pending are one: sent until one more has
			// been taken, and two are enough.
			for second := 0; second < 20 && len(c.ended) == 0; second++ {
				c.Process.Signal([...]os.Signal{syscall.SIGTERM, syscall.SIGINT}[second%2])
				poll()
			}
			c.wantExit(t, exitFailed)
			if response, _, err := running[0].read(); err == nil {
				t.Errorf("answered %d", response.StatusCode)
			}
		})
	}
}

func TestDrain_AnUploadInProgressIsAnsweredWhole(t *testing.T) {
	const half = 300 << 10
	for name, framing := range map[string]struct{ head, before, after string }{
		"Length":  {fmt.Sprint("Content-Length: ", 2*half), strings.Repeat("a", half), strings.Repeat("b", half)},
		"Chunked": {"Transfer-Encoding: chunked", fmt.Sprintf("%x\r\n%s\r\n", half, strings.Repeat("a", half)), fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", half, strings.Repeat("b", half))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, _ := startHanging(t)
			c := startReady(t, drainLanes, a)
			client := dialRaw(t, c.addr)
			client.send("POST /upload HTTP/1.1\r\nHost: localhost\r\n%s\r\n\r\n%s", framing.head, framing.before)
			c.signal(t, syscall.SIGTERM)
			eventuallyRefuses(t, c.addr)
			if a.running("/upload") != 0 {
				t.Error("the view ran before the body was whole")
			}
			client.send("%s", framing.after)
			if _, body := client.wantLast(200); !bytes.Contains(body, []byte(fmt.Sprintf(`"body_bytes": %d`, 2*half))) {
				t.Errorf("%s", body)
			}
			c.wantExit(t, exitOK)
		})
	}
}

// A kept connection is closed after a quarter of a second of silence. A request
// that has begun by then has the time that any request has.
func TestDrain_AnUploadThatBeginsOnAQuietConnectionHasItsTime(t *testing.T) {
	t.Parallel()
	a, _ := startHanging(t)
	c := startReady(t, drainLanes+"limits: {idle_timeout: 30s, body_timeout: 30s}\n", a)
	client := dialRaw(t, c.addr)
	for range 20 {
		client.get("/fast", "first")
		client.wantAnswer(200)
	}
	c.signal(t, syscall.SIGTERM)
	c.eventuallySays(t, "draining")
	eventuallyRefuses(t, c.addr)
	if _, err := fmt.Fprintf(client, "POST /upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nfirst"); err != nil {
		t.Skip("closed for its silence before the request was sent:", err)
	}
	// Longer than the silence after which a connection is closed.
	client.SetReadDeadline(time.Now().Add(700 * time.Millisecond))
	response, body, err := client.read()
	if err == io.EOF || errors.Is(err, syscall.ECONNRESET) {
		t.Skip("closed for its silence before the request came")
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("answered before its body was whole: %v %s %v", response, body, err)
	}
	client.SetReadDeadline(time.Now().Add(time.Minute))
	client.send("again")
	client.wantLast(200)
	c.wantExit(t, exitOK)
}

// As in a container, where nobody but the process itself ends it: the first of
// a process namespace has no default action for any signal.
func TestDrain_AsProcessOneOfAContainer(t *testing.T) {
	t.Parallel()
	if out, err := exec.Command("unshare", "--fork", "--pid", "--mount-proc", "true").CombinedOutput(); err != nil {
		t.Skipf("no process namespace may be made here: %v %s", err, out)
	}
	a, release := startHanging(t)
	c := &command{log: new(syncBuffer), ended: make(chan error, 1), Cmd: exec.Command("unshare", "--fork", "--pid", "--mount-proc",
		"--kill-child", os.Args[0], "serve", "-c", writeConfig(t, drainLanes, a.addr))}
	c.Env = append(os.Environ(), asCommand+"=1")
	stderr, err := c.StderrPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Process.Kill(); <-c.ended })
	go c.readLog(stderr)
	c.eventuallySays(t, "ready")
	c.addr = c.listening()
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", c.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	one, err := strconv.Atoi(strings.TrimSpace(string(children)))
	if err != nil {
		t.Fatal(err)
	}
	if status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", one)); err != nil || !strings.Contains(string(status), fmt.Sprintf("NSpid:\t%d\t1\n", one)) {
		t.Fatalf("it is not process 1: %v\n%s", err, status)
	}
	running := c.hang(t, 1, "running", func(s statusShown) bool { return s.in("slow", "busy") == 1 })
	syscall.Kill(one, syscall.SIGTERM)
	eventuallyRefuses(t, c.addr)
	release()
	running[0].wantLast(200)
	c.wantExit(t, exitOK)
}
