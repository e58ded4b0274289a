package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"weak"
)

// site is Holdfast in this process, with a file that a test changes.
type site struct {
	*holdfast
	t    *testing.T
	path string
	log  *syncBuffer // everything, the access log too
	base string      // what every version of the file begins with
}

// startSite starts, and does not wait for readiness.
func startSite(t *testing.T, yaml string, apps ...*app) *site {
	t.Helper()
	addresses := make([]any, len(apps))
	for i, a := range apps {
		addresses[i] = a.addr
	}
	s := &site{t: t, path: writeConfig(t, yaml, addresses...), log: new(syncBuffer), base: "listen: \"127.0.0.1:0\"\nadmin: {listen: \"127.0.0.1:0\"}\npublish: {listen: \"127.0.0.1:0\"}\n"}
	load := func() (*fileConfig, error) { return loadServable(s.path) }
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
	t.Cleanup(func() { s.stopAll(5 * time.Second) })
	return s
}

// startReadySite is startSite that waits.
func startReadySite(t *testing.T, yaml string, apps ...*app) *site {
	t.Helper()
	s := startSite(t, yaml, apps...)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := s.awaitReady(ctx); err != nil || ctx.Err() != nil {
		t.Fatal("not ready:", err, ctx.Err())
	}
	return s
}

func (s *site) admin() string { return s.adminLn.Addr().String() }

func (s *site) status() statusShown { return adminStatus(s.t, s.admin()) }

// write replaces the file.
func (s *site) write(yaml string, apps ...*app) {
	s.t.Helper()
	addresses := make([]any, len(apps))
	for i, a := range apps {
		addresses[i] = a.addr
	}
	replaceFile(s.t, s.path, s.base+fmt.Sprintf(yaml, addresses...))
}

// replaceFile changes a file as a whole: nobody reads half of it.
func replaceFile(t *testing.T, path, text string) {
	t.Helper()
	next := path + ".next"
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, path); err != nil {
		t.Fatal(err)
	}
}

// change puts another file in force.
func (s *site) change(yaml string, apps ...*app) {
	s.t.Helper()
	s.write(yaml, apps...)
	if _, err := s.reload(); err != nil {
		s.t.Fatal(err)
	}
}

// postReload asks the admin address.
func postReload(t *testing.T, admin string) (status int, body []byte) {
	t.Helper()
	response, err := onceClient().Post("http://"+admin+"/reload", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err = io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, body
}

// metric gives the value of one series; -1: there is none.
func metric(t *testing.T, admin, series string) float64 {
	t.Helper()
	for line := range strings.Lines(string(wantGet(t, onceClient(), "http://"+admin+"/metrics"))) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	return -1
}

// reloadFiles are put in force by turns: each moves a route, changes slots, and
// has a lane and a target that another has not.
var reloadFiles = []string{`
upstreams: {app: {targets: ["http://%[1]s"], concurrency: 16, park: 60s}}
lanes:
  web:  {upstream: app, slots: 6, queue_timeout: 60s}
  slow: {upstream: app, slots: 2, queue_timeout: 60s}
routes:
  - {match: "/one/", lane: slow}
  - {match: "/robots.txt", respond: {body: "first"}}
  - {match: "/", lane: web}
`, `
upstreams: {app: {targets: ["http://%[2]s", "http://%[1]s"], concurrency: 16, park: 60s}}
lanes:
  web:   {upstream: app, slots: 2, queue_timeout: 60s}
  slow:  {upstream: app, slots: 4, queue_timeout: 60s}
  extra: {upstream: app, slots: 3, queue_timeout: 60s}
routes:
  - {match: "/one/slow", lane: extra}
  - {match: "/robots.txt", respond: {body: "second"}}
  - {match: "/", lane: web}
  - {match: "/one/", lane: web}
`, `
upstreams:
  app:   {targets: ["http://%[2]s"], concurrency: 16, park: 60s}
  other: {targets: ["http://%[1]s"], concurrency: 16, park: 60s}
lanes:
  web:  {upstream: app, slots: 5, queue_timeout: 60s}
  slow: {upstream: other, slots: 3, queue_timeout: 60s}
routes:
  - {match: "/one/", lane: slow}
  - {match: "/robots.txt", respond: {body: "third"}}
  - {match: "POST /slow", lane: slow}
  - {match: "/", lane: web}
`}

// 200 reloads, by POST and by SIGHUP, while clients ask on new and on kept
// connections. The process is one of its own, so that what it holds can be counted.
func TestReload_TwoHundredUnderLoadFailNoRequest(t *testing.T) {
	t.Parallel()
	first, _ := startHanging(t)
	second, _ := startHanging(t)
	file := func(turn int) string {
		return "listen: \"127.0.0.1:0\"\nadmin: {listen: \"127.0.0.1:0\"}\npublish: {listen: \"127.0.0.1:0\"}\n" +
			fmt.Sprintf(reloadFiles[turn%len(reloadFiles)]+"# %[1]s %[2]s\n", first.addr, second.addr)
	}
	path := filepath.Join(t.TempDir(), "config.yaml")
	replaceFile(t, path, file(0))
	c := startCommand(t, path)
	c.eventuallySays(t, "ready")
	admin := c.admin(t)
	done := 0
	turn := func() {
		done++
		replaceFile(t, path, file(done))
		if done%2 == 0 {
			if status, body := postReload(t, admin); status != 200 {
				t.Fatalf("reload %d: %d %s", done, status, body)
			}
		} else {
			c.signal(t, syscall.SIGHUP)
		}
		eventually(t, "the reload", func() bool { return metric(t, admin, `holdfast_reload_total{result="ok"}`) == float64(done) })
	}
	paths := []string{"/fast", "/one/fast", "/slow?ms=20", "/one/slow?ms=10", "/robots.txt"}
	load := func(turns int) {
		endOnce := keepAsking("http://"+c.addr, 4, paths[:4]...)
		endKept := keepAskingKept(t, "http://"+c.addr, 4, paths)
		for range turns {
			turn()
		}
		asked := append(endOnce(), endKept()...)
		for _, a := range asked {
			if !a.ok() {
				t.Error(a)
			}
		}
		if len(asked) < turns {
			t.Errorf("%d requests during %d reloads: this shows nothing", len(asked), turns)
		}
		eventuallyQuiet(t, admin)
	}
	load(20)
	goroutines, descriptors := c.goroutines(t), c.descriptors(t)
	load(180)
	wantSteady(t, "goroutines", goroutines, 8, func() int { return c.goroutines(t) })
	wantSteady(t, "descriptors", descriptors, 8, func() int { return c.descriptors(t) })
	replaceFile(t, path, file(0))
	postReload(t, admin)
	status := adminStatus(t, admin)
	if len(status.Lanes) != 2 || len(status.Lanes["web"].Slots) != 6 || len(status.Lanes["slow"].Slots) != 2 {
		t.Errorf("%+v, want web with 6 slots and slow with 2", status.Lanes)
	}
	for _, msg := range []string{"panic", "goroutine "} {
		if strings.Contains(c.log.String(), msg) {
			t.Errorf("the log has a %s", msg)
		}
	}
	c.signal(t, syscall.SIGTERM)
	c.wantExit(t, exitOK)
}

// keepAskingKept is keepAsking on kept connections. A client of net/http sends a GET
// again where its connection failed: it is told apart by having been sent anew.
func keepAskingKept(t *testing.T, base string, n int, paths []string) (end func() []attempt) {
	var mu sync.Mutex
	var all []attempt
	var clients sync.WaitGroup
	stop := make(chan struct{})
	addr := strings.TrimPrefix(base, "http://")
	for i := range n {
		client := dialRaw(t, addr)
		clients.Go(func() {
			for turn := i; ; turn++ {
				select {
				case <-stop:
					return
				default:
				}
				a := attempt{id: nextID(), method: http.MethodGet, path: paths[turn%len(paths)], sent: monotonic()}
				_, err := fmt.Fprintf(client, "GET %s HTTP/1.1\r\nHost: localhost\r\nX-Ledger-Id: %s\r\n\r\n", a.path, a.id)
				if err == nil {
					var response *http.Response
					if response, _, err = client.read(); err == nil {
						a.status = response.StatusCode
					}
				}
				a.err, a.done = err, monotonic()
				mu.Lock()
				all = append(all, a)
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	return func() []attempt {
		close(stop)
		clients.Wait()
		return all
	}
}

// eventuallyQuiet waits until every slot of every lane is free.
func eventuallyQuiet(t *testing.T, admin string) {
	t.Helper()
	eventually(t, "every slot free and nobody waiting", func() bool {
		for _, lane := range adminStatus(t, admin).Lanes {
			for _, slot := range lane.Slots {
				if slot.State != "free" {
					return false
				}
			}
			if lane.Waiting > 0 {
				return false
			}
		}
		return true
	})
}

// wantSteady: what is counted comes back to what it was, give or take.
func wantSteady(t *testing.T, what string, before, margin int, count func() int) {
	t.Helper()
	now := 0
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); poll() {
		if now = count(); now <= before+margin {
			return
		}
	}
	t.Errorf("%d %s, %d before: they are not given back", now, what, before)
}

var goroutineTotal = regexp.MustCompile(`goroutine profile: total (\d+)`)

func (c *command) goroutines(t *testing.T) int {
	t.Helper()
	body := wantGet(t, onceClient(), "http://"+c.admin(t)+"/debug/pprof/goroutine?debug=1")
	found := goroutineTotal.FindSubmatch(body)
	if found == nil {
		t.Fatalf("no goroutine profile: %.200s", body)
	}
	n, _ := strconv.Atoi(string(found[1]))
	return n
}

const reloadLanes = `
upstreams: {app: {targets: ["http://%s"]}}
lanes:
  web:  {upstream: app, slots: 4}
  slow: {upstream: app, slots: 3, queue_timeout: 60s}
routes:
  - {match: "/robots.txt", respond: {body: "old"}}
  - {match: "/one/", lane: slow}
  - {match: "/", lane: web}
`

func TestReload_AnInvalidFileKeepsTheOldOneAndSaysWhy(t *testing.T) {
	t.Parallel()
	a := startGunicorn(t, "-w", "1", "--threads", "8")
	s := startReadySite(t, reloadLanes, a)
	faults := map[string]string{ // what is wrong, and what must be said of it
		strings.Replace(reloadLanes, "slots: 4", "slotz: 4", 1):                        "slotz",
		strings.Replace(reloadLanes, "lane: slow", "lane: slaw", 1):                    "slaw",
		strings.Replace(reloadLanes, `match: "/one/"`, `match: "/{x}{y}/"`, 1):         "/{x}{y}/",
		strings.Replace(reloadLanes, "slots: 3", "kind: stream, slots: 3", 1):          "stream",
		"upstreams: {app: {targets: [\"http://%s\"]}\n":                                "config.yaml",
		strings.Replace(reloadLanes, `body: "old"`, `body: "new", lane: web`, 1) + "#": "config.yaml",
	}
	failed := 0.0
	for yaml, says := range faults {
		s.write(yaml, a)
		status, body := postReload(t, s.admin())
		if status != 400 || !strings.Contains(string(body), says) || !strings.Contains(string(body), "config.yaml:") {
			t.Errorf("%d %s, want 400 with %q and the place", status, body, says)
		}
		refused := logLines(t, s.log.String(), "reload refused, the old configuration stays")
		if failed++; len(refused) != int(failed) || !strings.Contains(fmt.Sprint(refused[len(refused)-1]["error"]), says) {
			t.Errorf("the log says %v, want %q", refused, says)
		}
		if n := metric(t, s.admin(), `holdfast_reload_total{result="failed"}`); n != failed {
			t.Errorf("reload_total failed is %v, want %v", n, failed)
		}
	}
	if n := metric(t, s.admin(), `holdfast_reload_total{result="ok"}`); n != 0 {
		t.Errorf("reload_total ok is %v", n)
	}
	if body := wantGet(t, onceClient(), s.url("/robots.txt")); string(body) != "old" {
		t.Errorf("%q: the old configuration does not stay", body)
	}
	var stderr strings.Builder
	if code := run([]string{"reload", "--admin", s.admin()}, io.Discard, &stderr); code != exitFailed || !strings.Contains(stderr.String(), "config.yaml:") {
		t.Errorf("holdfast reload: exit %d, %q", code, stderr.String())
	}
	// The negative arm: the file put right is taken.
	s.write(strings.Replace(reloadLanes, `"old"`, `"new"`, 1), a)
	var stdout strings.Builder
	if code := run([]string{"reload", "--admin", s.admin()}, &stdout, io.Discard); code != exitOK || stdout.String() != "reloaded\n" {
		t.Errorf("holdfast reload: exit %d, %q", code, stdout.String())
	}
	if body := wantGet(t, onceClient(), s.url("/robots.txt")); string(body) != "new" {
		t.Errorf("%q after the reload", body)
	}
}

// What only a restart changes is named for as long as what is in force differs
// from the file.
func TestReload_WhatNeedsARestartIsNamedUntilItIsInForce(t *testing.T) {
	t.Parallel()
	a := startGunicorn(t, "-w", "1", "--threads", "8")
	s := startReadySite(t, reloadLanes, a)
	started := s.base
	wantNamed := func(step string, want ...string) {
		t.Helper()
		s.write(reloadLanes, a)
		status, body := postReload(t, s.admin())
		var answer struct {
			Result       string
			NeedsRestart []string `json:"needs_restart"`
		}
		if err := json.Unmarshal(body, &answer); err != nil || status != 200 || answer.Result != "ok" {
			t.Fatalf("%s: %d %s %v", step, status, body, err)
		}
		if !slices.Equal(answer.NeedsRestart, want) {
			t.Errorf("%s: needs a restart: %q, want %q", step, answer.NeedsRestart, want)
		}
	}
	wantNamed("nothing changed")
	s.base = "listen: [\"127.0.0.1:0\", \"127.0.0.1:" + strings.Split(freeAddress(t), ":")[1] + "\"]\nadmin: {listen: \"127.0.0.1:0\", keys: [k]}\npublish: {listen: \"127.0.0.1:0\"}\n"
	wantNamed("listen and admin changed", "listen", "admin")
	if n := len(s.listeners); n != 1 {
		t.Errorf("%d listeners", n)
	}
	wantNamed("read once more", "listen", "admin")
	s.base = started
	wantNamed("changed back")
}

// hang makes n requests that last until the app is released.
func (s *site) hang(n int, path string) (done chan []attempt) {
	s.t.Helper()
	done = make(chan []attempt, 1)
	go func() { done <- askAtOnce(s.url(""), n, path) }()
	return done
}

func wantAllOK(t *testing.T, asked []attempt) {
	t.Helper()
	for _, a := range asked {
		if !a.ok() {
			t.Error(a)
		}
	}
}

func TestReload_LeavesWhatRunsAndWaitsAlone(t *testing.T) {
	t.Parallel()
	a, release := startHanging(t)
	s := startReadySite(t, reloadLanes, a)
	done := s.hang(5, "/one/hang")
	eventually(t, "three to run and two to wait", func() bool {
		return a.running("/one/hang") == 3 && s.status().Lanes["slow"].Waiting == 2
	})
	s.change(strings.Replace(reloadLanes, "slots: 3", "slots: 1", 1), a)
	if s := s.status(); s.in("slow", "busy") != 3 || s.Lanes["slow"].Waiting != 2 || a.running("/one/hang") != 3 {
		t.Errorf("%+v, want three at work and two waiting as before", s.Lanes["slow"])
	}
	since := monotonic()
	release()
	wantAllOK(t, <-done)
	eventuallyQuiet(t, s.admin())
	if n := len(s.status().Lanes["slow"].Slots); n != 1 {
		t.Errorf("%d slots, want the one that is configured", n)
	}
	wantAllOK(t, askAtOnce(s.url(""), 6, "/one/slow?ms=50"))
	if n := mostAtOnce(on("/one/slow", a.viewsSince(since, 0))); n != 1 {
		t.Errorf("%d at once on the lane of one slot", n)
	}
}

func TestReload_SlotsThatAreAddedServeWhoWaits(t *testing.T) {
	t.Parallel()
	a, release := startHanging(t)
	s := startReadySite(t, strings.Replace(reloadLanes, "slots: 3", "slots: 1", 1), a)
	done := s.hang(4, "/one/hang")
	eventually(t, "one to run and three to wait", func() bool {
		return a.running("/one/hang") == 1 && s.status().Lanes["slow"].Waiting == 3
	})
	s.change(reloadLanes, a)
	eventually(t, "three to run and one to wait", func() bool {
		return a.running("/one/hang") == 3 && s.status().Lanes["slow"].Waiting == 1
	})
	release()
	wantAllOK(t, <-done)
	if n := mostAtOnce(a.views()); n != 3 {
		t.Errorf("%d at once on the lane of three slots", n)
	}
}

// withoutSlow has one lane, and its route on the other.
const withoutSlow = `
upstreams: {app: {targets: ["http://%s"]}}
lanes: {web: {upstream: app, slots: 4}}
routes: [{match: "/", lane: web}]
`

func TestReload_ALaneThatIsTakenOutServesWhoHasCome(t *testing.T) {
	t.Parallel()
	a, release := startHanging(t)
	s := startReadySite(t, reloadLanes, a)
	done := s.hang(5, "/one/hang")
	eventually(t, "three to run and two to wait", func() bool {
		return a.running("/one/hang") == 3 && s.status().Lanes["slow"].Waiting == 2
	})
	s.change(withoutSlow, a)
	if got := ask(onceClient(), "GET", s.url(""), "/one/fast"); !got.ok() {
		t.Error(got)
	}
	if n := metric(t, s.admin(), `holdfast_lane_slots{lane="slow"}`); n != -1 {
		t.Errorf("the lane is still shown, with %v slots", n)
	}
	release()
	wantAllOK(t, <-done)
}

// Who waits for a target that is not there yet is not touched either, where a
// reload takes lane and target out: it is served when the target comes.
func TestReload_WhoWaitsForATargetThatIsTakenOutIsServedWhenItComes(t *testing.T) {
	t.Parallel()
	a := startGunicorn(t, "-w", "1", "--threads", "8")
	late := newApp(t, "django", nil, "site_wsgi:application", "-w", "1", "--threads", "8")
	const withLate = `
upstreams: {app: {targets: ["http://%s"]}, late: {targets: ["http://%s"], park: 5m}}
lanes:
  web:  {upstream: app, slots: 4}
  late: {upstream: late, slots: 2, queue_timeout: 5m}
routes:
  - {match: "/one/", lane: late}
  - {match: "/", lane: web}
`
	s := startReadySite(t, withoutSlow, a)
	s.change(withLate, a, late)
	waiting := s.hang(3, "/one/fast")
	eventually(t, "three to wait", func() bool { return s.status().Lanes["late"].Waiting == 3 })
	s.change(withoutSlow, a)
	late.start()
	eventually(t, "the target to answer", func() bool { return ask(onceClient(), "GET", "http://"+late.addr, "/fast").ok() })
	select {
	case asked := <-waiting:
		wantAllOK(t, asked)
	case <-time.After(15 * time.Second): // it is looked for ten times a second
		t.Error("they wait on although the target is there")
	}
}

// Who waits on a lane that a reload took out is refused at the bound of a
// drain like everybody else.
func TestReload_WhoWaitsOnALaneTakenOutIsToldOfTheDrain(t *testing.T) {
	t.Parallel()
	a, _ := startHanging(t)
	s := startReadySite(t, reloadLanes+"drain: {bound: 1s}\n", a)
	for range 3 {
		dialRaw(t, s.listeners[0].Addr().String()).get("/one/hang", "running")
	}
	eventually(t, "three to run", func() bool { return a.running("/one/hang") == 3 })
	waiting := dialRaw(t, s.listeners[0].Addr().String())
	waiting.get("/one/hang", "waiting")
	eventually(t, "one to wait", func() bool { return s.status().Lanes["slow"].Waiting == 1 })
	s.change(withoutSlow+"drain: {bound: 1s}\n", a)
	stopped := make(chan struct{})
	s.stopGently(stopped)
	<-stopped
	response, body := waiting.wantLast(http.StatusServiceUnavailable)
	if response.Header.Get("Holdfast-Reason") != "draining" {
		t.Errorf("%v %s, want the reason draining", response.Header, body)
	}
}

// Nothing of a lane stays when its routes are gone: a file that is changed each
// minute must not cost memory each minute.
func TestReload_ALaneThatWasTakenOutIsForgotten(t *testing.T) {
	t.Parallel()
	a := startGunicorn(t, "-w", "1", "--threads", "8")
	s := startReadySite(t, reloadLanes, a)
	lane := weak.Make(s.wiring.Load().lanes["slow"])
	s.change(withoutSlow, a)
	for end := time.Now().Add(5 * time.Second); lane.Value() != nil && time.Now().Before(end); poll() {
		runtime.GC()
	}
	if lane.Value() != nil {
		t.Error("the lane is still held")
	}
}

func TestReload_WithoutAFileItIsRefusedAndLogged(t *testing.T) {
	t.Parallel()
	config, err := quickConfig("http://"+freeAddress(t), []string{"127.0.0.1:0"}, 2)
	if err != nil {
		t.Fatal(err)
	}
	config.Admin.Listen.Address = "127.0.0.1:0"
	config.Publish.Listen.Address = "127.0.0.1:0"
	out := new(syncBuffer)
	log, access, err := newLoggers(config.Log, out)
	if err != nil {
		t.Fatal(err)
	}
	h, err := start(config, nil, log, access)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.stopAll(time.Second) })
	status, body := postReload(t, h.adminLn.Addr().String())
	if status != 400 || !strings.Contains(string(body), "--upstream") {
		t.Errorf("%d %s, want it refused by name", status, body)
	}
	// A SIGHUP has nothing but the log and the count to tell of it.
	if !strings.Contains(out.String(), "reload") {
		t.Errorf("the log says nothing of it:\n%s", out)
	}
	if n := metric(t, h.adminLn.Addr().String(), `holdfast_reload_total{result="failed"}`); n != 1 {
		t.Errorf("reload_total failed is %v, want 1", n)
	}
}

// Who sees in the log of a start that the address is wrong puts the file right.
func TestReload_WhileStartingItIsTheNewTargetsThatAreAwaited(t *testing.T) {
	t.Parallel()
	a := startGunicorn(t, "-w", "1", "--threads", "8")
	const yaml = `
upstreams: {app: {targets: ["http://%s"], start_timeout: 5s}}
lanes: {web: {upstream: app, slots: 4}}
routes: [{match: "/", lane: web}]
`
	path := writeConfig(t, yaml, freeAddress(t))
	c := startCommand(t, path)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	replaceFile(t, path, string(regexp.MustCompile(`http://[0-9.:]+`).ReplaceAll(text, []byte("http://"+a.addr))))
	c.signal(t, syscall.SIGHUP)
	c.eventuallySays(t, "reloaded")
	if got := ask(onceClient(), "GET", "http://"+c.addr, "/fast"); !got.ok() {
		t.Fatal(got)
	}
	eventually(t, "ready, or the end", func() bool {
		return len(c.ended) > 0 || len(logLines(t, c.log.String(), "ready")) > 0
	})
	if len(c.ended) > 0 {
		t.Error("it ended although its one target answers")
	}
}
