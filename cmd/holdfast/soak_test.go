package main

import (
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// A soak: everything at once, for as long as HOLDFAST_SOAK says (30m for
// `make soak`, 2m under `make test-full`, 20s otherwise), on the built binary
// before the help desk's real servers, which are killed and started again while
// the configuration is reloaded. What is looked at is the whole: each byte of
// each answer, each event of each client, each POST in the app's own ledger,
// and what is left at the end.

// soakJournal is what holds.journal.events is: a client that stayed away for
// more has a gap, and no other may have one.
const soakJournal = 600

const soakConfig = `
upstreams:
  wsgi: {targets: ["http://%[1]s", "http://%[2]s"], concurrency: 8, park: 60s}
  asgi: {targets: ["http://%[3]s"], park: 60s}
lanes:
  web:     {upstream: wsgi, slots: %[4]d, queue_timeout: 60s}
  slow:    {upstream: wsgi, slots: 2, queue_timeout: 60s}
  upload:  {upstream: wsgi, slots: 2, queue_timeout: 60s}
%[5]s  streams: {upstream: asgi, kind: stream, slots: 100}
routes:
  - {match: "/reports/", lane: %[6]s}
  - {match: "POST /files/", lane: upload, body_bytes: 16MiB}
  - {match: "/rt/", lane: streams}
  - {match: "/robots.txt", respond: {body: "User-agent: *\n"}}
  - {match: "/", lane: web}
limits: {body_bytes: 1MiB}
holds: {heartbeat: 1s, max_age: 15s, journal: {events: 600}}
log: {access: false}
`

// soakVariants are put in force by turns: a lane grows and shrinks, one comes
// and goes, and a route moves.
var soakVariants = []struct {
	slots       int
	lane, route string
}{
	{6, "", "slow"},
	{4, "", "web"},
	{8, "  reports: {upstream: wsgi, slots: 3, queue_timeout: 60s}\n", "reports"},
}

// soak is one run.
type soak struct {
	*testing.T
	c       *command
	admin   string
	publish string
	config  string
	wsgi    [2]*app
	asgi    *app
	events  *soakEvents

	stopped chan struct{} // closed: clients begin nothing new
	givenUp atomic.Bool   // nobody listens any more

	mu     sync.Mutex
	kills  []kill
	posts  map[string]string // what became of each by its id: ok, lost or left
	counts map[string]int
	told   int
}

// soakLength is how long the load goes on.
func soakLength(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("HOLDFAST_SOAK")
	switch {
	case text == "" && os.Getenv("HOLDFAST_FULL") != "":
		return 2 * time.Minute
	case text == "":
		return 20 * time.Second
	}
	length, err := time.ParseDuration(text)
	if err != nil || length < time.Second {
		t.Fatalf("HOLDFAST_SOAK=%s is no length: give one like 30m", text)
	}
	return length
}

func TestSoak_NothingIsLostDoubledOrLeaked(t *testing.T) {
	if os.Getenv("HOLDFAST_SOAK") == "" {
		t.Parallel()
	}
	length := soakLength(t)
	tellIfTCPRanOut(t)
	s := startSoak(t)
	references := s.references()
	before := s.sample()

	var load, listeners, publishers sync.WaitGroup
	s.startLoad(&load, references)
	s.startListeners(&listeners)
	stopPublishing := make(chan struct{})
	for range 2 {
		publishers.Go(func() { s.publishUntil(stopPublishing) })
	}
	samples := s.disturb(length)

	close(s.stopped)
	load.Wait()
	s.awaitChatters(&listeners, stopPublishing, &publishers)
	s.wantEverythingOnce()
	s.wantNothingLeft(before)
	s.wantNoFault()
	if length >= 2*time.Minute {
		wantFlat(t, samples)
	}
	for _, name := range slices.Sorted(maps.Keys(s.counts)) {
		t.Logf("%7d %s", s.counts[name], name)
	}
}

// awaitChatters ends what comes from clients of sockets, then the publishers,
// and then, with the last event, everybody who listens.
func (s *soak) awaitChatters(listeners *sync.WaitGroup, stopPublishing chan struct{}, publishers *sync.WaitGroup) {
	s.events.chatters.Wait()
	close(stopPublishing)
	publishers.Wait()
	s.publishOne(&soakConn{s: s, addr: s.publish}, lastEvent)
	heard := make(chan struct{})
	go func() {
		listeners.Wait()
		close(heard)
	}()
	select {
	case <-heard:
		return
	case <-time.After(time.Minute):
	}
	// Whoever waits still has lost it. What was heard until now says of more.
	s.fail("some have not heard the last event after a minute")
	s.givenUp.Store(true)
	s.c.Process.Kill()
	<-heard
	s.events.verify(s)
	s.FailNow()
}

// startSoak starts the two gunicorns, uvicorn, and Holdfast.
func startSoak(t *testing.T) *soak {
	t.Helper()
	d := &desk{jobs: t.TempDir()}
	s := &soak{T: t, stopped: make(chan struct{}), posts: map[string]string{}, counts: map[string]int{}, events: newSoakEvents()}
	s.wsgi = [2]*app{d.newWSGI(t, freeAddress(t)), newListeningWSGI(t, d)}
	s.asgi = d.newASGI(t, freeAddress(t))
	s.config = filepath.Join(t.TempDir(), "config.yaml")
	s.writeConfig(0)
	s.c = runBinary(t, s.config)
	s.admin, s.publish = s.c.admin(t), s.c.publishAddr(t)
	for _, a := range []*app{s.wsgi[0], s.wsgi[1], s.asgi} {
		a.env = append(a.env, "HOLDFAST_PUBLISH_URL=http://"+s.publish)
		a.start()
	}
	s.c.eventuallySays(t, "ready")
	return s
}

// newListeningWSGI is a gunicorn whose listener is ours and outlives it: what
// comes while it is dead waits in the backlog. The other's goes with it, and is
// refused.
func newListeningWSGI(t *testing.T, d *desk) *app {
	t.Helper()
	a := d.newServer(t, freeAddress(t), "gunicorn", "-b", "fd://3", "-w", "1", "--threads", "8", "helpdesk.wsgi")
	ln, err := net.Listen("tcp", a.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if a.fd, err = ln.(*net.TCPListener).File(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.fd.Close() })
	return a
}

func (s *soak) writeConfig(turn int) {
	s.Helper()
	v := soakVariants[turn%len(soakVariants)]
	text := holdsBase + fmt.Sprintf(soakConfig, s.wsgi[0].addr, s.wsgi[1].addr, s.asgi.addr, v.slots, v.lane, v.route)
	replaceFile(s.T, s.config, text)
}

// fail tells of a fault; of many, the first ones.
func (s *soak) fail(format string, args ...any) {
	s.mu.Lock()
	s.told++
	told := s.told
	s.mu.Unlock()
	if told <= 30 {
		s.Errorf(format, args...)
	} else {
		s.Fail()
	}
}

func (s *soak) count(what string) {
	s.mu.Lock()
	s.counts[what]++
	s.mu.Unlock()
}

// kill is when a server was killed, and from when on it served again. Zero: not yet.
type kill struct {
	app             *app
	from, to, again time.Duration
}

// aKillIn: was something of the app killed between the two?
func (s *soak) aKillIn(from, to time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.kills, func(k kill) bool { return k.from <= to && (k.to == 0 || from <= k.to) })
}

// streamsDownIn: was uvicorn down between the two? Nobody waits for it.
func (s *soak) streamsDownIn(from, to time.Duration) bool {
	const seenUp = time.Second // by Holdfast, after us
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.kills, func(k kill) bool {
		return k.app == s.asgi && k.from <= to && (k.again == 0 || from <= k.again+seenUp)
	})
}

// disturb kills, starts and reloads until the time is over, and takes a sample
// each second.
func (s *soak) disturb(length time.Duration) (samples []soakSample) {
	s.Helper()
	pace := time.NewTicker(time.Second)
	defer pace.Stop()
	turn, reloads := 0, 0
	for end := time.Now().Add(length); time.Now().Before(end); {
		<-pace.C
		samples = append(samples, s.sample())
		if turn++; turn%3 != 0 {
			continue
		}
		switch turn / 3 % 5 {
		case 1:
			s.restart(s.wsgi[turn/15%2])
		case 3:
			s.restart(s.asgi)
		case 4:
			s.reloadBroken()
		default:
			reloads++
			s.reload(reloads)
		}
	}
	return samples
}

// restart kills a server with all its processes and starts it again.
func (s *soak) restart(a *app) {
	s.Helper()
	s.mu.Lock()
	n := len(s.kills)
	s.kills = append(s.kills, kill{app: a, from: monotonic()})
	s.mu.Unlock()
	a.kill()
	s.mu.Lock()
	s.kills[n].to = monotonic()
	s.mu.Unlock()
	s.count("kills of a server")
	a.start()
	eventually(s.T, "the killed server to answer", func() bool {
		status, _, err := get(s.Context(), onceClient(), "http://"+a.addr+"/api/tickets/1")
		return err == nil && status == 200
	})
	s.mu.Lock()
	s.kills[n].again = monotonic()
	s.mu.Unlock()
}

func (s *soak) reload(turn int) {
	s.Helper()
	s.writeConfig(turn)
	s.count("reloads")
	if turn%2 == 0 {
		if status, body := postReload(s.T, s.admin); status != 200 {
			s.fail("reload: %d %s", status, body)
		}
		return
	}
	const done = `holdfast_reload_total{result="ok"}`
	before := metric(s.T, s.admin, done)
	s.c.signal(s.T, syscall.SIGHUP)
	eventually(s.T, "the reload", func() bool { return metric(s.T, s.admin, done) == before+1 })
}

// reloadBroken has a file that cannot be served refused.
func (s *soak) reloadBroken() {
	s.Helper()
	replaceFile(s.T, s.config, holdsBase+"lanes: {web: {upstream: nobody, slots: 1}}\n")
	if status, body := postReload(s.T, s.admin); status == 200 {
		s.fail("a broken file was taken: %s", body)
	}
	s.count("refused reloads")
}

// wantNoFault: no lane refused anybody, no answer was "internal", holds ended
// as the clients and max_age had it, and the log has no word of a panic.
func (s *soak) wantNoFault() {
	s.Helper()
	for line := range strings.Lines(string(wantGet(s.T, onceClient(), "http://"+s.admin+"/metrics"))) {
		line = strings.TrimSpace(line)
		at := strings.LastIndexByte(line, ' ') // a route may have a space
		name, value := line[:at], line[at+1:]
		switch {
		case value == "0", strings.HasPrefix(line, "#"):
		case name == `holdfast_lane_refused_total{lane="streams",reason="upstream_down"}`,
			name == `holdfast_holds_ended_total{kind="response",reason="published"}`: // polls that an event answered
		case strings.HasPrefix(name, "holdfast_lane_refused_total{"),
			strings.HasPrefix(name, "holdfast_requests_total{") && strings.Contains(name, `code="500"`),
			strings.HasPrefix(name, "holdfast_holds_ended_total{") && !strings.Contains(name, `"client"`) && !strings.Contains(name, `"expired"`):
			s.fail("%s is %s, want 0", name, value)
		case strings.HasPrefix(name, "holdfast_holds_ended_total{"), strings.HasPrefix(name, "holdfast_inbound_total{"),
			name == "holdfast_retried_total", strings.HasPrefix(name, "holdfast_gaps_told"), strings.HasPrefix(name, "holdfast_events_"):
			s.Log(name, value)
		}
	}
	if log := s.c.log.String(); strings.Contains(log, "panic") {
		s.fail("the log tells of a panic")
	}
}

// wantEverythingOnce holds what clients were told to what the app and the
// publishers did.
func (s *soak) wantEverythingOnce() {
	s.Helper()
	s.events.verify(s)
	runs := map[string]int{}
	for _, a := range []*app{s.wsgi[0], s.wsgi[1], s.asgi} {
		for _, e := range a.entries() {
			if e.Ev == "start" {
				runs[e.ID]++
			}
		}
	}
	for id, became := range s.posts {
		n := runs[id]
		if n > 1 || n == 0 && became == "ok" || n > 0 && became == "left" {
			s.fail("the POST %s (%s) ran %d times", id, became, n)
		}
	}
}
