package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// What the app really ran, by its own ledger, held against what the lanes
// promise. The apps of these tests run eight requests at once and the lanes
// have six slots: were every slot of the app a lane's, an excess would wait
// inside the app, where the ledger does not see it.

// shape is a way to run eight requests at once in gunicorn.
type shape struct {
	name      string
	processes int // with a target each
	args      []string
}

var shapes = []shape{
	{"OneProcessOfEightThreads", 1, []string{"-w", "1", "--threads", "8"}},
	{"TwoTargetsOfFourThreads", 2, []string{"-w", "1", "--threads", "4"}},
	{"EightSyncWorkers", 1, []string{"-w", "8", "--preload"}},
}

// start runs the shape's processes until the test ends.
func (s shape) start(t *testing.T, env ...string) (apps []*app) {
	t.Helper()
	for range s.processes {
		apps = append(apps, startOnPort(t, "django", env, append([]string{"site_wsgi:application"}, s.args...)...))
	}
	return apps
}

// config is a configuration of the shape's targets and the lanes that are given.
func (s shape) config(lanesAndRoutes string) string {
	targets := strings.Repeat(`, "http://%s"`, s.processes)[2:]
	return fmt.Sprintf("upstreams: {app: {targets: [%s], concurrency: %d, park: 60s}}\n", targets, 8/s.processes) + lanesAndRoutes
}

const (
	webSlots, slowSlots = 4, 2
	ledgerLanes         = `
lanes:
  web:  {upstream: app, slots: 4, queue_timeout: 60s}
  slow: {upstream: app, slots: 2, queue_timeout: 60s}
routes:
  - {match: "/one/", lane: slow}
  - {match: "/", lane: web}
`
)

// startOnPort runs gunicorn on a port that it binds itself, so that nobody
// listens there while it is dead.
func startOnPort(t *testing.T, dir string, env []string, args ...string) *app {
	t.Helper()
	a := newApp(t, dir, env, args...)
	a.start()
	return a
}

// newApp is startOnPort without the start.
func newApp(t *testing.T, dir string, env []string, args ...string) *app {
	t.Helper()
	addr := freeAddress(t)
	a := &app{t: t, addr: addr, ledger: filepath.Join(t.TempDir(), "ledger"), dir: filepath.Join(appsDir, dir),
		args: append([]string{"-m", "gunicorn", "-b", addr}, args...)}
	a.env = append(append(os.Environ(), "LEDGER="+a.ledger, "PYTHONDONTWRITEBYTECODE=1", "PYTHONPATH=.."), env...)
	t.Cleanup(func() {
		if a.cmd != nil {
			a.kill()
		}
		if t.Failed() {
			t.Logf("app:\n%s", a.output)
		}
	})
	return a
}

// freeAddress is one that no other test and no outgoing connection gets: both
// take theirs from the system's range, which begins at 32768.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range 1000 {
		address := fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(10000))
		if _, given := givenAddresses.LoadOrStore(address, true); given {
			continue
		}
		if ln, err := net.Listen("tcp", address); err == nil {
			ln.Close()
			return address
		}
	}
	t.Fatal("no free port found")
	return ""
}

// givenAddresses are those that some test has, whether or not its app listens
// at present.
var givenAddresses sync.Map

// attempt is one request of a client; the times are the ledger's.
type attempt struct {
	id, method, path string
	sent, done       time.Duration
	status           int
	err              error
}

var attempts atomic.Uint64

func nextID() string { return "attempt-" + strconv.FormatUint(attempts.Add(1), 10) }

// onceClient opens a connection for each request: net/http sends a GET again
// by itself where a kept connection fails, and would hide what is looked for.
func onceClient() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 2 * time.Minute}
}

// ask makes one request and reads its whole answer.
func ask(client *http.Client, method, base, path string) attempt {
	return askAs(client, nextID(), method, base, path)
}

func askAs(client *http.Client, id, method, base, path string) attempt {
	a := attempt{id: id, method: method, path: path, sent: monotonic()}
	request, err := http.NewRequest(method, base+path, nil)
	if err != nil {
		panic(err)
	}
	request.Header.Set("X-Ledger-Id", a.id)
	response, err := client.Do(request)
	if err == nil {
		a.status = response.StatusCode
		_, err = io.Copy(io.Discard, response.Body)
		response.Body.Close()
	}
	a.err, a.done = err, monotonic()
	return a
}

// ok: the answer came whole and says that the view ran.
func (a attempt) ok() bool { return a.err == nil && a.status == http.StatusOK }

func (a attempt) String() string {
	return fmt.Sprintf("%s %s %s: %d %v after %v", a.method, a.path, a.id, a.status, a.err, (a.done - a.sent).Round(time.Millisecond))
}

// method is GET and POST by turns.
func method(i int) string { return [...]string{"GET", "POST"}[i%2] }

// keepAsking has n clients ask, each again and again, until the returned
// function is called, which gives what they asked.
func keepAsking(base string, n int, paths ...string) (end func() []attempt) {
	var mu sync.Mutex
	var all []attempt
	var clients sync.WaitGroup
	stop := make(chan struct{})
	for i := range n {
		client := onceClient()
		clients.Go(func() {
			for turn := i; ; turn++ {
				select {
				case <-stop:
					return
				default:
				}
				a := ask(client, method(turn), base, paths[(turn/2)%len(paths)])
				mu.Lock()
				all = append(all, a)
				mu.Unlock()
			}
		})
	}
	return func() []attempt {
		close(stop)
		clients.Wait()
		return all
	}
}

// askAtOnce makes n requests at once and waits for all.
func askAtOnce(base string, n int, paths ...string) []attempt {
	all := make([]attempt, n)
	var asking sync.WaitGroup
	for i := range all {
		asking.Go(func() { all[i] = ask(onceClient(), method(i), base, paths[(i/2)%len(paths)]) })
	}
	asking.Wait()
	return all
}

// leaveMidway sends a request and resets its connection when leave says so.
func leaveMidway(t *testing.T, addr, method, path, id string, leave <-chan time.Time) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Error(err)
		return
	}
	fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: localhost\r\nX-Ledger-Id: %s\r\nContent-Length: 0\r\n\r\n", method, path, id)
	<-leave
	conn.(*net.TCPConn).SetLinger(0)
	conn.Close()
}

// leavingClients has n clients that ask again and again and leave each time
// before the answer, total times in all.
func leavingClients(t *testing.T, n, total int, addr func(client int) string, paths ...string) {
	var left atomic.Int64
	var clients sync.WaitGroup
	for i := range n {
		clients.Go(func() {
			for left.Add(1) <= int64(total) {
				turn := rand.IntN(4)
				leaveMidway(t, addr(i), method(turn), paths[turn%len(paths)], nextID(),
					time.After(time.Duration(rand.IntN(150))*time.Millisecond))
			}
		})
	}
	clients.Wait()
}

// mostAtOnce is how many views ran at once at the worst moment.
func mostAtOnce(views []*view) (most int) {
	type edge struct {
		at time.Duration
		by int
	}
	var edges []edge
	for _, v := range views {
		edges = append(edges, edge{v.start, 1})
		if v.end != 0 {
			edges = append(edges, edge{v.end, -1})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.by, b.by)) })
	running := 0
	for _, e := range edges {
		running += e.by
		most = max(most, running)
	}
	return most
}

// ranTwice names the POSTs that the app ran more than once.
func ranTwice(views []*view) (ids []string) {
	runs := make(map[string]int)
	for _, v := range views {
		if runs[v.ID]++; v.Method == http.MethodPost && runs[v.ID] == 2 {
			ids = append(ids, v.ID)
		}
	}
	return ids
}

// on keeps the views whose path begins so.
func on(prefix string, views []*view) []*view {
	return slices.DeleteFunc(slices.Clone(views), func(v *view) bool { return !strings.HasPrefix(v.Path, prefix) })
}

// viewsSince gives the views that started later. Those that a kill cut short
// ended with it.
func (a *app) viewsSince(since, killed time.Duration) []*view {
	views := a.views()
	for _, v := range views {
		if v.end == 0 && v.start < killed {
			v.end = killed
		}
	}
	return slices.DeleteFunc(views, func(v *view) bool { return v.start < since })
}

// laneShown is a lane in the JSON of /health.
type laneShown struct {
	Slots     int `json:"slots"`
	InUse     int `json:"in_use"`
	Waiting   int `json:"waiting"`
	Abandoned int `json:"abandoned"`
}

// healthLanes asks /health for the lanes' counts.
func healthLanes(t *testing.T, h *holdfast) map[string]laneShown {
	t.Helper()
	var report struct{ Lanes map[string]laneShown }
	body := wantGet(t, onceClient(), h.url("/health"))
	if err := json.Unmarshal(body, &report); err != nil || len(report.Lanes) != len(h.wiring.Load().lanes) {
		t.Fatalf("/health has not every lane: %s (%v)", body, err)
	}
	return report.Lanes
}

// eventuallyIdle waits until /health says that no lane has anything to do.
func eventuallyIdle(t *testing.T, h *holdfast) {
	t.Helper()
	eventually(t, "every slot free, nobody waiting, nothing abandoned", func() bool {
		for _, lane := range healthLanes(t, h) {
			if lane.InUse != 0 || lane.Waiting != 0 || lane.Abandoned != 0 {
				return false
			}
		}
		return true
	})
}

// stage is a shape with Holdfast in front and what a scenario did on it.
type stage struct {
	*testing.T
	shape  shape
	apps   []*app
	h      *holdfast
	gate   string // the file that ends /hang
	since  time.Duration
	killed time.Duration // when the first app was killed; 0: it was not
	asked  []attempt
	// reloaded: the workers were replaced, after they had ended their views.
	reloaded bool
}

func (s *stage) base() string { return s.h.url("") }

func (s *stage) addr(int) string { return s.h.listeners[0].Addr().String() }

func (s *stage) running(path string) (n int) {
	for _, a := range s.apps {
		n += a.running(path)
	}
	return n
}

// views gives those of the scenario, of one app each.
func (s *stage) views() (each [][]*view) {
	for i, a := range s.apps {
		killed := time.Duration(0)
		if i == 0 {
			killed = s.killed
		}
		each = append(each, a.viewsSince(s.since, killed))
	}
	return each
}

var scenarios = []struct {
	name string
	play func(s *stage)
}{
	{"SlowViewsAndMoreWaiting", playSlow},
	{"ClientsThatAbort", playAbort},
	{"HungViewReleasedLater", playHang},
	{"GracefulRestart", playGraceful},
	{"KillAndStartAgain", playKill},
}

func TestLedger_TheAppNeverRunsMoreThanItsLanesHaveSlots(t *testing.T) {
	for _, shape := range shapes {
		t.Run(shape.name, func(t *testing.T) {
			t.Parallel()
			gate := filepath.Join(t.TempDir(), "release")
			apps := shape.start(t, "HANG_RELEASE="+gate)
			h := startHoldfast(t, shape.config(ledgerLanes), apps...)
			// One after another on the same lanes: what one leaves behind, the next shows.
			for _, scenario := range scenarios {
				t.Run(scenario.name, func(t *testing.T) {
					s := &stage{T: t, shape: shape, apps: apps, h: h, gate: gate, since: monotonic()}
					scenario.play(s)
					eventuallyIdle(t, h)
					s.wantBounds()
					s.wantServed()
				})
			}
		})
	}
}

// wantBounds holds the ledger to the lanes and to the targets.
func (s *stage) wantBounds() {
	s.Helper()
	each := s.views()
	all := slices.Concat(each...)
	slow := on("/one/", all)
	web := slices.DeleteFunc(slices.Clone(all), func(v *view) bool { return strings.HasPrefix(v.Path, "/one/") })
	s.Logf("%d views: at once at most %d, web %d, slow %d", len(all), mostAtOnce(all), mostAtOnce(web), mostAtOnce(slow))
	if n := mostAtOnce(web); n > webSlots {
		s.Errorf("the app ran %d views of web at once, which has %d slots", n, webSlots)
	}
	if n := mostAtOnce(slow); n > slowSlots {
		s.Errorf("the app ran %d views of slow at once, which has %d slots", n, slowSlots)
	}
	if n := mostAtOnce(all); n > webSlots+slowSlots {
		s.Errorf("the app ran %d views at once, the lanes have %d slots", n, webSlots+slowSlots)
	}
	for i, views := range each {
		if n, dealt := mostAtOnce(views), (webSlots+slowSlots)/s.shape.processes; n > dealt {
			s.Errorf("target %d ran %d views at once, %d slots were dealt to it", i, n, dealt)
		}
	}
	if ids := ranTwice(all); len(ids) > 0 {
		s.Errorf("POSTs that ran twice: %v", ids)
	}
}

// wantServed: every request was answered by its view, but for what a restart
// may cost: a POST at a worker that ends, and a GET whose own worker was
// killed, if it was sent again and lost again (or a part of its answer had
// left already). A request that waited is never lost.
func (s *stage) wantServed() {
	s.Helper()
	all := slices.Concat(s.views()...)
	failed := 0
	for _, a := range s.asked {
		runs := viewsOf(a.id, all)
		switch {
		case a.ok() && (a.method == "GET" && len(runs) > 0 || len(runs) == 1):
		case a.method == "POST" && a.err == nil && a.status == http.StatusBadGateway && (s.killed != 0 || s.reloaded),
			a.method == "GET" && a.sent < s.killed && s.killedAllOf(runs):
			failed++
		default:
			s.Errorf("%v; %d times in the ledger", a, len(runs))
		}
	}
	if served := len(s.asked) - failed; served < 10 {
		s.Errorf("%d of %d requests served: the scenario shows nothing", served, len(s.asked))
	}
	s.Logf("%d asked, %d lost to a restart", len(s.asked), failed)
}

func viewsOf(id string, views []*view) []*view {
	return slices.DeleteFunc(slices.Clone(views), func(v *view) bool { return v.ID != id })
}

// killedAllOf: no view started after the kill. There may be none at all: the
// connection was still in the killed listener's backlog.
func (s *stage) killedAllOf(views []*view) bool {
	return !slices.ContainsFunc(views, func(v *view) bool { return v.start > s.killed })
}

func playSlow(s *stage) {
	s.asked = askAtOnce(s.base(), 24, "/slow?ms=300", "/slow?ms=300", "/one/slow?ms=300")
	all := slices.Concat(s.views()...)
	if n := mostAtOnce(all); n != webSlots+slowSlots {
		s.Errorf("the app ran %d views at once at most, want every one of the %d slots used", n, webSlots+slowSlots)
	}
}

func playAbort(s *stage) {
	end := keepAsking(s.base(), 4, "/slow?ms=20", "/one/slow?ms=20")
	leavingClients(s.T, 12, 80, s.addr, "/slow?ms=200", "/one/slow?ms=200")
	s.asked = end()
}

func playHang(s *stage) {
	leave := make(chan time.Time)
	var clients sync.WaitGroup
	for range slowSlots {
		clients.Go(func() { leaveMidway(s.T, s.addr(0), "POST", "/one/hang", nextID(), leave) })
	}
	eventually(s.T, "every slot of slow hung", func() bool { return s.running("/one/hang") == slowSlots })
	var neverRun []string
	for i := range 6 {
		id := nextID()
		neverRun = append(neverRun, id)
		clients.Go(func() { leaveMidway(s.T, s.addr(0), method(i), "/one/slow?ms=1", id, leave) })
	}
	eventually(s.T, "six waiting", func() bool { return healthLanes(s.T, s.h)["slow"].Waiting == 6 })
	close(leave)
	clients.Wait()
	eventually(s.T, "the hung slots abandoned, nobody waiting", func() bool {
		lane := healthLanes(s.T, s.h)["slow"]
		return lane.InUse == slowSlots && lane.Abandoned == slowSlots && lane.Waiting == 0
	})
	later := make(chan []attempt, 1)
	go func() { later <- askAtOnce(s.base(), 4, "/one/slow?ms=1") }()
	eventually(s.T, "four waiting", func() bool { return healthLanes(s.T, s.h)["slow"].Waiting == 4 })
	s.asked = askAtOnce(s.base(), 8, "/fast", "/slow?ms=1")
	if n := s.running("/one/hang"); n != slowSlots {
		s.Errorf("%d views hang, want %d", n, slowSlots)
	}
	if err := os.WriteFile(s.gate, nil, 0o600); err != nil {
		s.Fatal(err)
	}
	s.asked = append(s.asked, <-later...)
	for _, v := range slices.Concat(s.views()...) {
		if slices.Contains(neverRun, v.ID) {
			s.Errorf("%s %s reached the app, and its client had left while it waited", v.Method, v.Path)
		}
	}
}

func playGraceful(s *stage) {
	end := keepAsking(s.base(), 12, "/slow?ms=50", "/one/slow?ms=50")
	eventually(s.T, "traffic", func() bool { return s.running("/") > 2 })
	for _, a := range s.apps {
		a.restartGracefully()
	}
	s.reloaded = true
	s.asked = end()
}

// restartGracefully has the gunicorn master replace its workers, and waits
// until none of the old ones is left and a new one has answered.
func (a *app) restartGracefully() {
	a.t.Helper()
	old := a.pids()
	syscall.Kill(a.cmd.Process.Pid, syscall.SIGHUP)
	eventuallyGone(a.t, old)
	a.eventuallyServes(old, 5)
}

// pids are the processes that have run a view so far.
func (a *app) pids() map[int]bool {
	seen := make(map[int]bool)
	for _, v := range a.views() {
		seen[v.PID] = true
	}
	return seen
}

func eventuallyGone(t *testing.T, pids map[int]bool) {
	t.Helper()
	eventually(t, "the old workers gone", func() bool {
		for pid := range pids {
			if syscall.Kill(pid, 0) == nil {
				return false
			}
		}
		return true
	})
}

// eventuallyServes waits until so many views of processes other than these have ended.
func (a *app) eventuallyServes(old map[int]bool, least int) {
	a.t.Helper()
	eventually(a.t, "views in a new process", func() bool {
		ended := 0
		for _, v := range a.views() {
			if !old[v.PID] && v.end != 0 {
				ended++
			}
		}
		return ended >= least
	})
}

func playKill(s *stage) {
	end := keepAsking(s.base(), 12, "/slow?ms=100", "/one/slow?ms=100")
	s.killed = s.apps[0].killWhileServing(2, s.since)
	old := s.apps[0].pids()
	s.apps[0].start()
	s.apps[0].eventuallyServes(old, 5)
	s.asked = end()
}

// killWhileServing ends the whole process group when at least so many views
// run that started since.
func (a *app) killWhileServing(least int, since time.Duration) (killed time.Duration) {
	a.t.Helper()
	eventually(a.t, "views to be killed", func() bool {
		ended := func(v *view) bool { return v.end != 0 }
		return len(slices.DeleteFunc(a.viewsSince(since, 0), ended)) >= least
	})
	a.kill()
	return monotonic()
}

// The negative arm: bounded by its clients alone, six at a time, the same app
// runs more than six. A client that leaves does not end its view.
func TestLedger_ABoundKeptByClientsThatAbortIsNone(t *testing.T) {
	for _, shape := range shapes {
		t.Run(shape.name, func(t *testing.T) {
			t.Parallel()
			apps := shape.start(t)
			for _, a := range apps {
				eventually(t, "the app to answer", func() bool {
					status, _, err := get(context.Background(), newClient(t), "http://"+a.addr+"/fast")
					return err == nil && status == 200
				})
			}
			since := monotonic()
			bound := webSlots + slowSlots
			leavingClients(t, bound, 40, func(client int) string { return apps[client%len(apps)].addr }, "/slow?ms=200", "/one/slow?ms=200")
			var all []*view
			for _, a := range apps {
				eventually(t, "every view ended", func() bool { return a.running("/") == 0 })
				all = append(all, a.viewsSince(since, 0)...)
			}
			if n := mostAtOnce(all); n <= bound {
				t.Errorf("the app ran %d views at once: the check cannot fail", n)
			}
		})
	}
}

// The negative arm: sent again by its client, a POST whose worker was killed
// is twice in the ledger.
func TestLedger_APOSTSentAgainAfterAKillIsSeenToRunTwice(t *testing.T) {
	t.Parallel()
	a := startOnPort(t, "django", nil, "site_wsgi:application", "-w", "1", "--threads", "8")
	base, client, id := "http://"+a.addr, onceClient(), nextID()
	eventually(t, "the app to answer", func() bool { return ask(client, "GET", base, "/fast").ok() })
	first := make(chan attempt, 1)
	go func() { first <- askAs(client, id, "POST", base, "/slow?ms=60000") }()
	killed := a.killWhileServing(1, 0)
	if got := <-first; got.ok() {
		t.Fatal(got)
	}
	a.start()
	eventually(t, "the app to answer", func() bool { return ask(client, "GET", base, "/fast").ok() })
	if got := askAs(client, id, "POST", base, "/slow?ms=1"); !got.ok() {
		t.Fatal(got)
	}
	if ids := ranTwice(a.viewsSince(0, killed)); !slices.Equal(ids, []string{id}) {
		t.Errorf("ran twice: %v, want %s: the check cannot fail", ids, id)
	}
}

// relay forwards TCP connections to an app and counts them.
type relay struct {
	net.Listener
	count atomic.Int64
}

func startRelay(t *testing.T, addr string) *relay {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{Listener: ln}
	var done sync.WaitGroup
	done.Go(func() { r.serve(addr, &done) })
	t.Cleanup(func() { ln.Close(); done.Wait() })
	return r
}

// serve ends with the listener; each connection with its two sides.
func (r *relay) serve(addr string, done *sync.WaitGroup) {
	for {
		in, err := r.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", addr)
		if err != nil {
			in.Close()
			continue
		}
		r.count.Add(1)
		done.Go(func() { copyThenClose(out, in) })
		done.Go(func() { copyThenClose(in, out) })
	}
}

func copyThenClose(to, from net.Conn) {
	io.Copy(to, from)
	to.Close()
	from.Close()
}

// fourThenOne runs four views at once on a lane of four, then one more, and
// gives what each of the two steps used.
func fourThenOne(t *testing.T, keepalive string) (slots, threads int, connections, afterFifth int64) {
	gate := filepath.Join(t.TempDir(), "release")
	a := startOnPort(t, "django", []string{"HANG_RELEASE=" + gate},
		"site_wsgi:application", "-w", "1", "--threads", "8", "--keep-alive", "120")
	r := startRelay(t, a.addr)
	h := startHoldfast(t, fmt.Sprintf(`
upstreams: {app: {targets: ["http://%s"], concurrency: 8, keepalive: %s}}
lanes: {web: {upstream: app, slots: 4}}
routes: [{match: "/", lane: web}]
`, r.Addr(), keepalive))
	before := r.count.Load() // the readiness question's
	four := make(chan []attempt, 1)
	go func() { four <- askAtOnce(h.url(""), 4, "/hang") }()
	eventually(t, "four views", func() bool { return a.running("/hang") == 4 })
	slots = healthLanes(t, h)["web"].InUse
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	seen := make(map[int64]bool)
	for _, v := range on("/hang", a.views()) {
		seen[v.Thread] = true
	}
	for _, got := range <-four {
		if !got.ok() {
			t.Error(got)
		}
	}
	eventuallyIdle(t, h)
	connections = r.count.Load() - before
	if got := ask(onceClient(), "GET", h.url(""), "/fast"); !got.ok() {
		t.Error(got)
	}
	return slots, len(seen), connections, r.count.Load() - before
}

func TestLedger_FourViewsUseFourSlotsConnectionsAndThreadsAndAFifthReusesOne(t *testing.T) {
	t.Parallel()
	slots, threads, connections, after := fourThenOne(t, "auto")
	if slots != 4 || threads != 4 || connections != 4 || after != 4 {
		t.Errorf("%d slots, %d threads, %d connections, %d after the fifth view; want 4 of each", slots, threads, connections, after)
	}
}

// The negative arm: where connections are not kept, the fifth view is seen to open one.
func TestLedger_WithoutKeepAliveTheFifthViewOpensAConnection(t *testing.T) {
	t.Parallel()
	if _, _, connections, after := fourThenOne(t, "off"); connections != 4 || after != 5 {
		t.Errorf("%d connections, %d after the fifth view, want 4 and 5: the check cannot fail", connections, after)
	}
}
