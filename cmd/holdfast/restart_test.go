package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"
)

// An app that ends connections, workers or all of itself while traffic goes on.

const restartLanes = `
lanes: {web: {upstream: app, slots: 8, queue_timeout: 60s}}
routes: [{match: "/", lane: web}]
`

var eightThreads = shapes[0]

// steady asks fifty times a second, whether what was asked before is answered
// or not; every fifth request is a POST. The returned function ends it and
// gives what was asked.
func steady(base string) (end func() []attempt) {
	stop := make(chan struct{})
	var mu sync.Mutex
	var all []attempt
	var asking, pacing sync.WaitGroup
	pacing.Go(func() {
		pace := time.NewTicker(20 * time.Millisecond)
		defer pace.Stop()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-pace.C:
			}
			how := "GET"
			if i%5 == 4 {
				how = "POST"
			}
			asking.Go(func() {
				a := ask(onceClient(), how, base, "/slow?ms=100")
				mu.Lock()
				all = append(all, a)
				mu.Unlock()
			})
		}
	})
	return func() []attempt {
		close(stop)
		pacing.Wait()
		asking.Wait()
		return all
	}
}

// wantKept holds the requests around a restart to what it may cost: a POST may
// be answered 502 and has run at most once; a GET is answered, but for those
// that lost is true of; none waited for park.
func wantKept(t *testing.T, asked []attempt, views []*view, park time.Duration, lost func(attempt) bool) {
	t.Helper()
	longest := time.Duration(0)
	failed := map[string]int{}
	for _, a := range asked {
		longest = max(longest, a.done-a.sent)
		if a.ok() {
			continue
		}
		failed[a.method]++
		if a.method == "POST" && a.err == nil && a.status == http.StatusBadGateway || a.method == "GET" && lost(a) {
			continue
		}
		t.Errorf("%v; %d times in the ledger", a, len(viewsOf(a.id, views)))
	}
	t.Logf("%d asked, %d GET and %d POST failed, the longest took %v",
		len(asked), failed["GET"], failed["POST"], longest.Round(time.Millisecond))
	if len(asked) < 25 {
		t.Errorf("%d asked: that shows nothing", len(asked))
	}
	if longest > park {
		t.Errorf("a request took %v, want at most park (%v)", longest, park)
	}
	if ids := ranTwice(views); len(ids) > 0 {
		t.Errorf("POSTs that ran twice: %v", ids)
	}
	if n := mostAtOnce(views); n > 8 {
		t.Errorf("the app ran %d views at once, the lane has 8 slots", n)
	}
}

func eventuallyRan(t *testing.T, a *app, least int) {
	t.Helper()
	eventually(t, "traffic", func() bool { return len(a.views()) >= least })
}

func none(attempt) bool { return false }

func TestRestart_GracefulLosesNoGET(t *testing.T) {
	t.Parallel()
	apps := eightThreads.start(t)
	h := startHoldfast(t, eightThreads.config(restartLanes), apps...)
	end := steady(h.url(""))
	eventuallyRan(t, apps[0], 20)
	apps[0].restartGracefully()
	wantKept(t, end(), apps[0].viewsSince(0, 0), time.Minute, none)
	eventuallyIdle(t, h)
}

// Everything of the app is killed, its listener with it: requests wait until it
// is back. A GET that its worker had is sent again at once, and may be lost a
// second time on the listener that is about to go.
func TestRestart_KilledLosesNoGETButThoseThatTheAppHad(t *testing.T) {
	t.Parallel()
	apps := eightThreads.start(t)
	h := startHoldfast(t, eightThreads.config(restartLanes), apps...)
	end := steady(h.url(""))
	eventuallyRan(t, apps[0], 20)
	killed, down := apps[0].killWhileServing(3, 0), h.wiring.Load().upstreams["app"].Targets()[0]
	eventually(t, "the target seen down, and requests waiting for it", func() bool {
		return !down.State().Up && healthLanes(t, h)["web"].Waiting > 5
	})
	old := apps[0].pids()
	apps[0].start()
	apps[0].eventuallyServes(old, 20)
	wantKept(t, end(), apps[0].viewsSince(0, killed), time.Minute, func(a attempt) bool { return a.sent < killed })
	eventuallyIdle(t, h)
}

// The listener outlives the killed app, as it does where systemd holds it or
// where only a worker was killed. Then the second sending finds whoever comes,
// and no GET is lost, whatever its worker was doing.
func TestRestart_KilledUnderAListenerThatStaysLosesNoGET(t *testing.T) {
	t.Parallel()
	a := startGunicorn(t, "-w", "1", "--threads", "8")
	h := startHoldfast(t, eightThreads.config(restartLanes), a)
	end := steady(h.url(""))
	eventuallyRan(t, a, 20)
	killed := a.killWhileServing(3, 0)
	old := a.pids()
	a.start()
	a.eventuallyServes(old, 20)
	wantKept(t, end(), a.viewsSince(0, killed), time.Minute, none)
	eventuallyIdle(t, h)
}

func TestRestart_AKilledWorkerLosesNoGET(t *testing.T) {
	t.Parallel()
	apps := eightThreads.start(t)
	h := startHoldfast(t, eightThreads.config(restartLanes), apps...)
	end := steady(h.url(""))
	eventuallyRan(t, apps[0], 20)
	eventually(t, "views to be killed", func() bool { return apps[0].running("/slow") >= 3 })
	old := apps[0].pids()
	for pid := range old {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	eventuallyGone(t, old)
	killed := monotonic()
	apps[0].eventuallyServes(old, 20)
	var views []*view
	for _, v := range apps[0].viewsSince(0, 0) {
		if old[v.PID] && v.end == 0 {
			v.end = killed
		}
		views = append(views, v)
	}
	wantKept(t, end(), views, time.Minute, none)
	eventuallyIdle(t, h)
}

// A GET that the app had when all of it was killed waits for the app to come
// back, as one that had not been sent yet does.
func TestRestart_AGETThatTheKilledAppHadIsAnsweredByTheNextOne(t *testing.T) {
	for _, shape := range shapes {
		t.Run(shape.name, func(t *testing.T) {
			t.Parallel()
			apps := shape.start(t)
			h := startHoldfast(t, shape.config(restartLanes), apps...)
			for range 2 {
				since, had := monotonic(), make(chan attempt, 8)
				for range cap(had) {
					go func() { had <- ask(onceClient(), "GET", h.url(""), "/slow?ms=1500") }()
				}
				killed := apps[0].killWhileServing(8/shape.processes, since)
				apps[0].start()
				for range cap(had) {
					if a := <-had; !a.ok() {
						t.Errorf("%v; it was killed %v after it was sent", a, (killed - a.sent).Round(time.Millisecond))
					}
				}
			}
		})
	}
}

// An app that stays down: who waits is refused at park, later ones at once, and
// the lane serves again when the app is back.
func TestRestart_WhoWaitsForAnAppThatStaysDownIsRefusedAtPark(t *testing.T) {
	t.Parallel()
	a := startOnPort(t, "django", nil, "site_wsgi:application", "-w", "1", "--threads", "8")
	const park = time.Second
	h := startHoldfast(t, `
upstreams: {app: {targets: ["http://%s"], concurrency: 8, park: 1s}}
lanes: {web: {upstream: app, slots: 8, queue_timeout: 60s, response_timeout: 60s}}
routes: [{match: "/", lane: web}]
`, a)
	if got := ask(onceClient(), "GET", h.url(""), "/fast"); !got.ok() {
		t.Fatal(got)
	}
	a.kill()
	killed := monotonic()
	waited := askAtOnce(h.url(""), 20, "/fast")
	refused := monotonic()
	for _, got := range waited {
		// Between park and the sixty seconds of every other bound.
		if got.err != nil || got.status != http.StatusServiceUnavailable || got.done-killed < park || got.done-got.sent > park+10*time.Second {
			t.Errorf("%v, %v after the kill; want 503 at park (%v)", got, got.done-killed, park)
		}
	}
	t.Logf("refused %v after the kill", (refused - killed).Round(time.Millisecond))
	status, reason := wantReason(t, h.url("/fast"))
	if status != 503 || reason != "upstream_down" {
		t.Errorf("once park is over: %d %s, want 503 upstream_down", status, reason)
	}
	if n := h.wiring.Load().lanes["web"].Snapshot().Refused["upstream_down"]; n != 21 {
		t.Errorf("%d refused as upstream_down, want 21", n)
	}
	a.start()
	eventually(t, "the lane to serve again", func() bool { return ask(onceClient(), "GET", h.url(""), "/fast").ok() })
	eventuallyIdle(t, h)
}

// wantReason asks for an answer that Holdfast makes itself.
func wantReason(t *testing.T, url string) (status int, reason string) {
	t.Helper()
	response, err := onceClient().Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	return response.StatusCode, response.Header.Get("Holdfast-Reason")
}

// One sync worker takes one connection at a time and reads from it until a
// request comes: a connection that Holdfast kept, or opened ahead, would be the
// end of the lane's other three.
func TestSyncWorker_OneServesALaneOfFour(t *testing.T) {
	for name, concurrency := range map[string]string{"Concurrency4": ", concurrency: 4", "ConcurrencyLeftOut": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := startGunicorn(t, "-w", "1", "-k", "sync")
			h := startHoldfast(t, `
upstreams: {app: {targets: ["http://%s"]`+concurrency+`}}
lanes: {web: {upstream: app, slots: 4, queue_timeout: 60s}}
routes: [{match: "/", lane: web}]
`, a)
			client := onceClient()
			for i := range 200 {
				if got := ask(client, method(i), h.url(""), "/fast"); !got.ok() {
					t.Fatalf("request %d: %v", i, got)
				}
			}
			for _, got := range askAtOnce(h.url(""), 40, "/fast") {
				if !got.ok() {
					t.Error(got)
				}
			}
			if ids := ranTwice(a.views()); len(ids) > 0 {
				t.Errorf("POSTs that ran twice: %v", ids)
			}
			eventuallyIdle(t, h)
		})
	}
}

// The negative arm: one idle connection, and a sync worker serves nobody else
// until it ends.
func TestSyncWorker_AnIdleConnectionStopsItForEverybody(t *testing.T) {
	t.Parallel()
	a := startGunicorn(t, "-w", "1", "-k", "sync")
	base := "http://" + a.addr
	if got := ask(onceClient(), "GET", base, "/fast"); !got.ok() {
		t.Fatal(got)
	}
	idle, err := net.Dial("tcp", a.addr)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if status, _, err := get(ctx, onceClient(), base+"/fast"); err == nil {
		t.Errorf("answered %d beside an idle connection: the check cannot fail", status)
	}
	idle.Close()
	if got := ask(onceClient(), "GET", base, "/fast"); !got.ok() {
		t.Error(got)
	}
}

// rounds is traffic whose connections rest about a second between two uses,
// which is when gunicorn with --keep-alive 1 closes them: in each round all
// clients ask once, not quite together.
func rounds(n, clients int, ask func(client, turn int) attempt) (all []attempt) {
	answers := make([]attempt, clients)
	for turn := range n {
		var asking sync.WaitGroup
		for i := range clients {
			start := time.After(time.Duration(rand.IntN(30)) * time.Millisecond)
			asking.Go(func() {
				<-start
				answers[i] = ask(i, turn)
			})
		}
		asking.Wait()
		all = append(all, answers...)
		<-time.After(950*time.Millisecond + time.Duration(rand.IntN(150))*time.Millisecond)
	}
	return all
}

func startShortKeepAlive(t *testing.T) *app {
	return startGunicorn(t, "-w", "1", "--threads", "8", "--keep-alive", "1")
}

func TestKeepAlive_ConnectionsThatTheAppIsAboutToCloseLoseNothing(t *testing.T) {
	t.Parallel()
	a := startShortKeepAlive(t)
	h := startHoldfast(t, eightThreads.config(restartLanes), a)
	asked := rounds(9, 8, func(client, turn int) attempt {
		return ask(onceClient(), method(client+turn), h.url(""), "/slow?ms=10")
	})
	for _, got := range asked {
		if !got.ok() {
			t.Error(got)
		}
	}
	views := a.views()
	for _, got := range asked {
		if n := len(viewsOf(got.id, views)); got.method == "POST" && n != 1 {
			t.Errorf("%v: %d times in the ledger", got, n)
		}
	}
	t.Logf("%d asked, %d GETs sent twice", len(asked), h.wiring.Load().lanes["web"].Snapshot().Retried)
	eventuallyIdle(t, h)
}

// The negative arm: a client that keeps its connection and asks nothing of it
// before it uses it again loses requests to the same app.
func TestKeepAlive_ReusedWithoutACheckTheSameTrafficLosesRequests(t *testing.T) {
	t.Parallel()
	a := startShortKeepAlive(t)
	blind := make([]blindConn, 8)
	asked := rounds(5, len(blind), func(client, turn int) attempt {
		return blind[client].ask(a.addr, method(client+turn), "/slow?ms=10")
	})
	failed := 0
	for _, got := range asked {
		if !got.ok() {
			failed++
		}
	}
	t.Logf("%d asked, %d lost", len(asked), failed)
	if failed == 0 {
		t.Error("nothing lost: the check cannot fail")
	}
}

// blindConn is a client's one connection, used again as long as it seems to work.
type blindConn struct {
	conn   net.Conn
	reader *bufio.Reader
}

func (b *blindConn) ask(addr, method, path string) (a attempt) {
	a = attempt{id: nextID(), method: method, path: path, sent: monotonic()}
	if b.conn == nil {
		if b.conn, a.err = net.Dial("tcp", addr); a.err != nil {
			return a
		}
		b.reader = bufio.NewReader(b.conn)
	}
	fmt.Fprintf(b.conn, "%s %s HTTP/1.1\r\nHost: localhost\r\nX-Ledger-Id: %s\r\nContent-Length: 0\r\n\r\n", method, path, a.id)
	response, err := http.ReadResponse(b.reader, nil)
	if err == nil {
		a.status = response.StatusCode
		_, err = io.Copy(io.Discard, response.Body)
	}
	if a.err = err; err != nil {
		b.conn.Close()
		b.conn = nil
	}
	return a
}
