package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Holds through restarts, reloads and drains, at the process itself.

func TestHold_ARestartOfHoldfastIsToldAsAGap(t *testing.T) {
	t.Parallel()
	a := newHoldsApp(t, flaskThreads)
	a.start()
	config := writeConfig(t, holdsLanes+"holds: {heartbeat: 0}\n", a.addr)
	c := startCommand(t, config)
	c.eventuallySays(t, "ready")
	quiet := follow(t, c.addr, "/events") // has had no event: only a position
	busy := follow(t, c.addr, "/events?channel=busy")
	publishTo(t, c.publishAddr(t), "busy", "before")
	had := busy.wantEvent("before")
	c.signal(t, syscall.SIGTERM)
	quiet.wantSentAway()
	busy.wantSentAway()
	c.wantExit(t, exitOK)

	c = startCommand(t, config)
	c.eventuallySays(t, "ready")
	for name, id := range map[string]string{"quiet": quiet.id, "busy": had.id} {
		back := askEvents(t, c.addr, "/events?channel="+name, eventSource+"Last-Event-ID: "+id+"\r\n")
		last, head := back.wantGap()
		if fmt.Sprint(last) != id {
			t.Errorf("%s: the gap says that it came back with %d, it was %s", name, last, id)
		}
		if b := back.wantBlock(); !b.isPosition() || b.id != fmt.Sprint(head) {
			t.Errorf("%s: %q behind the gap, want the head %d", name, b.raw, head)
		}
		publishTo(t, c.publishAddr(t), name, "after")
		b := back.wantEvent("after")
		// It is told once: with an id of this run there is nothing to tell.
		publishTo(t, c.publishAddr(t), name, "again")
		followFrom(t, c.addr, "/events?channel="+name, b.id).wantEvent("again")
	}
	if n := metric(t, c.admin(t), "holdfast_gaps_told_total"); n != 2 {
		t.Errorf("%v gaps counted, want 2", n)
	}
}

func TestHold_RestartsOfTheAppAndReloadsTouchNone(t *testing.T) {
	t.Parallel()
	a := newHoldsApp(t, djangoSync)
	a.start()
	config := writeConfig(t, holdsLanes+"holds: {heartbeat: 0}\n", a.addr)
	c := startCommand(t, config)
	c.eventuallySays(t, "ready")
	publish := c.publishAddr(t)
	followers := followMany(t, c.addr, "/events", 20)
	n := 0
	wantAll := func(what string) {
		t.Helper()
		n++
		data := fmt.Sprint(n, " ", what)
		if _, reached := publishTo(t, publish, "news", data); reached != len(followers) {
			t.Fatalf("%s: reached %d, want %d", what, reached, len(followers))
		}
		for _, f := range followers {
			f.wantEvent(data)
		}
	}
	wantAll("at first")
	a.kill()
	wantAll("the app is killed")
	a.start()
	eventually(t, "the app to answer", func() bool { return ask(onceClient(), "GET", "http://"+c.addr, "/fast").ok() })
	wantAll("the app is back")
	syscall.Kill(a.cmd.Process.Pid, syscall.SIGHUP) // gunicorn replaces its workers
	eventually(t, "a new worker to answer", func() bool { return ask(onceClient(), "GET", "http://"+c.addr, "/fast").ok() })
	wantAll("the app's workers are replaced")

	change := func(yaml string) {
		t.Helper()
		before := len(logLines(t, c.log.String(), "reloaded"))
		replaceFile(t, config, holdsBase+fmt.Sprintf(yaml, a.addr))
		c.signal(t, syscall.SIGHUP)
		eventually(t, "the reload", func() bool { return len(logLines(t, c.log.String(), "reloaded")) > before })
	}
	change(holdsLanes + "holds: {heartbeat: 50ms}\n")
	for _, f := range followers {
		f.wantHeartbeats(3)
	}
	wantAll("with a heartbeat")
	// The lane, the upstream and the route that they came by are gone.
	change(`
upstreams: {other: {targets: ["http://%s"]}}
lanes: {other: {upstream: other, slots: 2}}
routes: [{match: "/other/", lane: other}]
holds: {heartbeat: 50ms, limit: 1}
`)
	wantAll("without their lane")
	if got := subscribers(t, c.addr); got != len(followers) {
		t.Errorf("%d subscribers, want %d", got, len(followers))
	}
	if got := metric(t, c.admin(t), `holdfast_holds_ended_total{kind="stream",reason="client"}`); got != 0 {
		t.Errorf("%v have ended", got)
	}
}

func TestHold_AClientThatLeftWhileItsViewRanIsNotHeld(t *testing.T) {
	for name, leave := range map[string]func(c *rawClient){
		"reset":  func(c *rawClient) { c.leave() },
		"closed": func(c *rawClient) { c.Close() },
		"FIN":    func(c *rawClient) { c.Conn.(*net.TCPConn).CloseWrite() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startHolds(t, djangoThreads, holdsLanes)
			client := dialRaw(t, s.addr)
			client.get("/events?gate=go", "leaves")
			eventually(t, "the view", func() bool { return s.app.running("/events") == 1 })
			leave(client)
			s.app.open("go")
			eventually(t, "the view's end", func() bool { return s.app.running("/events") == 0 })
			eventuallyIdle(t, s.holdfast)
			eventuallySubscribers(t, s.addr, 0)
			eventually(t, "nobody in the channel", func() bool {
				_, reached := publishTo(t, s.publish, "news", "to nobody")
				return reached == 0
			})
		})
	}
}

func TestHold_AtItsAgeItIsSentAwayAndComesBackWithoutAGap(t *testing.T) {
	t.Parallel()
	s := startHolds(t, flaskThreads, holdsLanes+"holds: {max_age: 500ms}\n")
	f := follow(t, s.addr, "/events")
	f.wantSentAway()
	publishTo(t, s.publish, "news", "missed")
	followFrom(t, s.addr, "/events", f.id).wantEvent("missed")
	ended := `holdfast_holds_ended_total{kind="stream",reason="expired"}`
	if n := metric(t, s.admin(), ended); n < 1 {
		t.Errorf("%s is %v", ended, n)
	}
}

// The clocks of requests are not those of holds.
func TestHold_OutlastsTheLimitsOfRequests(t *testing.T) {
	t.Parallel()
	s := startHolds(t, djangoSync, strings.Replace(holdsLanes, "queue_timeout: 60s", "response_timeout: 400ms", 1)+
		"holds: {heartbeat: 200ms, write_stall: 400ms}\nlimits: {idle_timeout: 400ms, header_timeout: 400ms, body_timeout: 400ms}\n")
	f := follow(t, s.addr, "/events")
	f.wantHeartbeats(8)
	publishTo(t, s.publish, "news", "still here")
	f.wantEvent("still here")
}

// comeAndGo follows a channel whose events count from 0, on one connection
// after another, until the last: each must come once and in order.
func comeAndGo(addr, path string, last int) error {
	id := ""
	for next := 0; next <= last; {
		fields := eventSource
		if id != "" {
			fields += "Last-Event-ID: " + id + "\r\n"
		}
		f, err := dialEvents(addr, path, fields)
		if err != nil {
			return err
		}
		for stay := rand.IntN(200); stay > 0 && next <= last; stay-- {
			b, err := f.event()
			if err != nil && f.response.Header.Get("Holdfast-Reason") != "" {
				break // it was sent away before it was held: the app is down
			}
			if err != nil || b.data != strconv.Itoa(next) {
				return fmt.Errorf("%.200q %w, want %d", b.raw, cmpErr(err), next)
			}
			next++
		}
		if f.id != "" {
			id = f.id
		}
		f.Close()
	}
	return nil
}

func TestHold_ClientsThatComeAndGoMissNothingThroughReloadsAndRestartsOfTheApp(t *testing.T) {
	t.Parallel()
	const last = 4000
	s := startHolds(t, flaskThreads, holdsLanes+"holds: {journal: {events: 10000}}\n")
	from := follow(t, s.addr, "/events?channel=count").id // a page's position, from which all go on
	var clients sync.WaitGroup
	for i := range 8 {
		clients.Go(func() {
			if err := comeAndGo(s.addr, "/events?channel=count&lastEventId="+from, last); err != nil {
				t.Errorf("client %d: %v", i, err)
			}
		})
	}
	ended := make(chan struct{})
	go func() { clients.Wait(); close(ended) }()
	for n := 0; n <= last; n++ {
		publishTo(t, s.publish, "count", strconv.Itoa(n))
		switch n % 500 {
		case 100:
			s.change(holdsLanes+"holds: {journal: {events: "+strconv.Itoa(10000+n)+"}}\n", s.app.app)
		case 300:
			s.app.kill()
		case 350:
			s.app.start()
		}
	}
	<-ended
}

// stuff publishes to a client that does not read, until something waits for it.
func stuff(t *testing.T, s *holdsSite, channel string) {
	t.Helper()
	data := strings.Repeat("x", 1<<20)
	for n := 0; metric(t, s.admin(), "holdfast_outbox_bytes") == 0; n++ {
		if n == 64 {
			t.Fatal("64 MiB published, and nothing waits for the client")
		}
		publishTo(t, s.publish, channel, data)
	}
}

func TestHold_AClientThatTakesNoByteIsEndedAsStalled(t *testing.T) {
	t.Parallel()
	s := startHolds(t, djangoThreads, holdsLanes+"holds: {heartbeat: 0, write_stall: 300ms}\n")
	f, reads := follow(t, s.addr, "/events"), follow(t, s.addr, "/events")
	read := make(chan int, 1)
	go func() { // who reads gets all of it meanwhile
		n := 0
		for {
			if b, err := reads.event(); err != nil || b.data == "last" {
				read <- n
				return
			}
			n++
		}
	}()
	stuff(t, s, "news")
	eventuallySubscribers(t, s.addr, 1)
	publishTo(t, s.publish, "news", "last")
	if n := float64(<-read); n == 0 || n != metric(t, s.admin(), "holdfast_events_published_total")-1 {
		t.Errorf("who reads got %v events", n)
	}
	if n := metric(t, s.admin(), `holdfast_holds_ended_total{kind="stream",reason="stalled"}`); n != 1 {
		t.Errorf("%v ended as stalled, want 1", n)
	}
	if _, err := io.Copy(io.Discard, f.in); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%v, want a reset", err)
	}
	eventually(t, "nothing to wait for it", func() bool { return metric(t, s.admin(), "holdfast_outbox_bytes") == 0 })
}

// Whatever is held, others come and go: what makes room are connections that
// say nothing, and never holds.
func TestHold_NoneMakesRoomForOtherConnections(t *testing.T) {
	t.Parallel()
	s := startHolds(t, flaskThreads, holdsLanes+"holds: {heartbeat: 0}\nlimits: {connections: 10}\n")
	followers := followMany(t, s.addr, "/events", 9)
	wantPassing(t, s.addr, "/events", 503, "too_many_holds")
	for range 20 {
		client := dialRaw(t, s.addr)
		client.get("/fast", "stays open")
		client.wantAnswer(200)
	}
	if _, reached := publishTo(t, s.publish, "news", "to all"); reached != 9 {
		t.Errorf("reached %d, want all nine", reached)
	}
	for _, f := range followers {
		f.wantEvent("to all")
	}
}

func TestHold_OfAClientOnAUnixSocket(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "holdfast-hold-*") // a socket's path has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	a := newHoldsApp(t, flaskThreads)
	a.start()
	path := filepath.Join(t.TempDir(), "config.yaml")
	text := strings.Replace(holdsBase, "\"127.0.0.1:0\"", "\"unix:"+dir+"/hold.sock\"", 1) + fmt.Sprintf(holdsLanes, a.addr) + "holds: {heartbeat: 50ms}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startHoldsFile(t, path)
	conn, err := net.Dial("unix", dir+"/hold.sock")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(time.Minute))
	fmt.Fprintf(conn, "GET /events HTTP/1.1\r\nHost: localhost\r\n%s\r\n", eventSource)
	f := &follower{Conn: conn, t: t, in: bufio.NewReader(conn)}
	if f.response, err = http.ReadResponse(f.in, nil); err != nil {
		t.Fatal(err)
	}
	f.body = bufio.NewReader(f.response.Body)
	f.wantOpen()
	f.wantHeartbeats(2)
	publishTo(t, s.publish, "news", "through the socket")
	f.wantEvent("through the socket")
	f.Close()
	eventually(t, "the client's leaving", func() bool {
		return metric(t, s.admin(), `holdfast_holds_ended_total{kind="stream",reason="client"}`) == 1
	})
}

// manyHolds is how many are drained: both ends of each are descriptors of this
// machine, in two processes.
func manyHolds() int {
	if os.Getenv("HOLDFAST_FULL") == "" {
		return 2000
	}
	if limit := descriptorLimit(); limit > 0 {
		return min(10_000, limit/2)
	}
	return 10_000
}

func TestDrain_ManyHoldsAHungAppAndHalfAnUploadEndWithinTheBound(t *testing.T) {
	const bound = 5 * time.Second
	a := newHoldsApp(t, djangoThreads)
	a.start()
	c := startBinary(t, writeConfig(t, holdsLanes+"drain: {bound: 5s}\n", a.addr))
	followers := followMany(t, c.addr, "/events", manyHolds())
	hung := dialRaw(t, c.addr)
	hung.get("/hang?secret=1", "hung")
	upload := dialRaw(t, c.addr)
	upload.send("POST /upload?secret=1 HTTP/1.1\r\nHost: localhost\r\nX-Request-ID: half\r\nExpect: 100-continue\r\nContent-Length: 1000\r\n\r\n")
	if response, err := http.ReadResponse(upload.r, nil); err != nil || response.StatusCode != 100 {
		t.Fatal(response, err)
	}
	upload.send("the first of it")
	late := dialRaw(t, c.addr)
	late.get("/events?gate=go", "late")
	eventually(t, "the views to run", func() bool { return a.running("/hang") == 1 && a.running("/events?gate") == 1 })

	began := time.Now()
	c.signal(t, syscall.SIGTERM)
	tooLate := time.After(bound + 500*time.Millisecond)
	eachAtOnce(t, len(followers), func(i int) error { return followers[i].sentAway() })
	figure(t, "drain_s", time.Since(began).Seconds()) // until the last hold has left: what hangs here lasts to the bound
	a.open("go")                                      // whoever runs still has the time that is left
	late.wantLast(200)
	select {
	case <-c.ended:
		t.Logf("%d holds drained, exit after %v, the bound is %v", len(followers), time.Since(began).Round(time.Millisecond), bound)
	case <-tooLate:
		t.Errorf("serves on %v after the bound", time.Since(began)-bound)
	}
	c.wantExit(t, exitOK)
	named := make(map[any]any)
	for _, line := range logLines(t, c.log.String(), cutLine) {
		named[line["path"]] = line["end"]
	}
	if len(named) != 2 || named["/hang"] != "holdfast_running" || named["/upload"] != "holdfast_body" {
		t.Errorf("named as cut: %v, want the request that hung and the upload", named)
	}
	if strings.Contains(c.log.String(), "secret") {
		t.Error("the log shows a query")
	}
	var said []any
	for _, line := range logLines(t, c.log.String(), "") {
		if len(said) > 0 || line["msg"] == "draining" {
			said = append(said, line["msg"])
		}
	}
	if len(said) != 4 || said[3] != "stopped" {
		t.Errorf("of the drain the log says %v, want its beginning, the two that were cut, and its end", said)
	}
}

func TestDrain_AViewThatAnswersWithAHoldIsGivenItsHeadARetryAndTheEnd(t *testing.T) {
	for _, server := range []holdsServer{flaskThreads, djangoSync} {
		t.Run(server.name, func(t *testing.T) {
			t.Parallel()
			a := newHoldsApp(t, server)
			a.start()
			c := startCommand(t, writeConfig(t, holdsLanes+"drain: {bound: 10m}\n", a.addr)) // nothing is owed to the bound
			c.eventuallySays(t, "ready")
			before := follow(t, c.addr, "/events")
			late := dialRaw(t, c.addr)
			late.send("GET /events?gate=go&body=data:%%20late HTTP/1.1\r\nHost: localhost\r\n%s\r\n", eventSource)
			eventually(t, "the view", func() bool { return a.running("/events?gate") == 1 })
			c.signal(t, syscall.SIGTERM)
			before.wantSentAway() // so whoever is held now is held in the drain
			eventuallyRefuses(t, c.addr)
			publishTo(t, c.publishAddr(t), "news", "in the drain")
			a.open("go")
			response, body := late.wantAnswer(200)
			text := string(body)
			if response.Header.Get("Content-Type") != "text/event-stream" || response.Header.Get("X-View") != "events" || !response.Close {
				t.Errorf("%v", response.Header)
			}
			if !strings.HasPrefix(text, "data: late\n\nid: ") || !strings.Contains(text, "\n\nretry: ") || !strings.HasSuffix(text, "\n\n") {
				t.Errorf("%q, want the view's bytes, the position, a retry and the end", text)
			}
			if b, err := late.r.ReadByte(); err != io.EOF {
				t.Errorf("%q %v, want the end", b, err)
			}
			c.wantExit(t, exitOK)
			c.wantNothingNamed(t)
		})
	}
}

func TestDrain_DuringTheDelayHoldsAreOpenedAndFed(t *testing.T) {
	t.Parallel()
	a := newHoldsApp(t, flaskSync)
	a.start()
	c := startCommand(t, writeConfig(t, holdsLanes+"drain: {delay: 3s, bound: 10m}\n", a.addr))
	c.eventuallySays(t, "ready")
	before := follow(t, c.addr, "/events")
	c.signal(t, syscall.SIGTERM)
	c.eventuallySays(t, "draining")
	during := follow(t, c.addr, "/events")
	if _, reached := publishTo(t, c.publishAddr(t), "news", "in the delay"); reached != 2 {
		t.Errorf("reached %d, want both", reached)
	}
	for _, f := range []*follower{before, during} {
		f.wantEvent("in the delay")
		f.wantSentAway()
	}
	c.wantExit(t, exitOK)
	c.wantNothingNamed(t)
}

func TestEventSource_ThatWaitsAtTheDrainsBoundIsSentAway(t *testing.T) {
	t.Parallel()
	a := newHoldsApp(t, flaskThreads)
	a.start()
	c := startCommand(t, writeConfig(t, strings.Replace(holdsLanes, "slots: 4", "slots: 1", 1)+"drain: {bound: 2s}\n", a.addr))
	c.eventuallySays(t, "ready")
	c.hang(t, 1, "running", func(s statusShown) bool { return s.in("web", "busy") == 1 })
	plain, source := dialRaw(t, c.addr), dialRaw(t, c.addr)
	plain.get("/events", "plain")
	source.send("GET /events HTTP/1.1\r\nHost: localhost\r\n%s\r\n", eventSource)
	eventually(t, "both to wait", func() bool { return adminStatus(t, c.admin(t)).Lanes["web"].Waiting == 2 })
	c.signal(t, syscall.SIGTERM)
	if response, _ := plain.wantLast(503); response.Header.Get("Holdfast-Reason") != "draining" {
		t.Errorf("%v", response.Header)
	}
	response, body := source.wantLast(200)
	if response.Header.Get("Holdfast-Reason") != "draining" || response.Header.Get("Content-Type") != "text/event-stream" ||
		!strings.HasPrefix(string(body), "retry: ") || !strings.HasSuffix(string(body), "\n\n") {
		t.Errorf("%v %q, want an event stream that says when to come back", response.Header, body)
	}
	c.wantExit(t, exitOK)
}

// What is half sent to the publish and admin addresses, or kept open there,
// does not outlast the bound either.
func TestDrain_TheOtherAddressesDoNotOutlastTheBound(t *testing.T) {
	const bound = time.Second
	a := newHoldsApp(t, flaskThreads)
	a.start()
	c := startBinary(t, writeConfig(t, holdsLanes+"drain: {bound: 1s}\n", a.addr))
	upload := dialRaw(t, c.addr)
	upload.send("POST /upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nhalf")
	for _, addr := range []string{c.publishAddr(t), c.admin(t)} {
		kept, half := dialRaw(t, addr), dialRaw(t, addr)
		kept.get("/health", "kept")
		if _, _, err := kept.read(); err != nil {
			t.Fatal(err)
		}
		half.send("POST /publish HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nhalf")
	}
	began := time.Now()
	c.signal(t, syscall.SIGTERM)
	select {
	case <-c.ended:
		t.Logf("exit after %v, the bound is %v", time.Since(began).Round(time.Millisecond), bound)
	case <-time.After(bound + 500*time.Millisecond):
		<-c.ended
		t.Errorf("exit %v after the bound", (time.Since(began) - bound).Round(time.Millisecond))
	}
	c.wantExit(t, exitOK)
}

// Who asks while the drain begins is held and sent away, or told why not, or
// not taken at all; nobody's stream is cut.
func TestDrain_HoldsThatAreOpenedAsItBeginsEndCleanly(t *testing.T) {
	t.Parallel()
	a := newHoldsApp(t, flaskThreads)
	a.start()
	c := startCommand(t, writeConfig(t, holdsLanes+"drain: {bound: 10m}\n", a.addr))
	c.eventuallySays(t, "ready")
	var mu sync.Mutex
	var opened []*follower
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for {
				f, err := dialEvents(c.addr, "/events", eventSource)
				if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
					return // it was not accepted
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				opened = append(opened, f)
				mu.Unlock()
			}
		})
	}
	eventually(t, "many", func() bool { return subscribers(t, c.addr) > 100 })
	c.signal(t, syscall.SIGTERM)
	clients.Wait()
	if ran := len(on("/events", a.views())); ran != len(opened) {
		t.Errorf("%d views ran, and %d clients got an answer", ran, len(opened))
	}
	for i, f := range opened {
		if err := f.sentAway(); err != nil {
			t.Errorf("%d of %d: %v", i, len(opened), err)
		}
		f.Close()
	}
	c.wantExit(t, exitOK)
	c.wantNothingNamed(t)
}

// A client that does not read cannot be given its end: the drain does not go
// beyond its bound for it, and takes no longer for the others.
func TestDrain_AHoldThatTakesNothingDoesNotOutlastTheBound(t *testing.T) {
	t.Parallel()
	a := newHoldsApp(t, djangoThreads)
	a.start()
	c := startCommand(t, writeConfig(t, holdsLanes+"holds: {heartbeat: 0, outbox_bytes: 64MiB}\ndrain: {bound: 4s}\n", a.addr))
	c.eventuallySays(t, "ready")
	stuck, reads := follow(t, c.addr, "/events?channel=stuck"), follow(t, c.addr, "/events")
	data := strings.Repeat("x", 1<<20)
	for n := 0; metric(t, c.admin(t), "holdfast_outbox_bytes") == 0; n++ {
		if n == 64 {
			t.Fatal("64 MiB published, and nothing waits for the client")
		}
		publishTo(t, c.publishAddr(t), "stuck", data)
	}
	c.signal(t, syscall.SIGTERM)
	reads.wantSentAway()
	c.wantExit(t, exitOK)
	if n, err := io.Copy(io.Discard, stuck.in); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("after %d bytes %v, want a reset: a clean end would say that this is all", n, err)
	}
}
