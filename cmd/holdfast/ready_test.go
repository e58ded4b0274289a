package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"syscall"
	"testing"
)

const readyLanes = `
upstreams: {app: {targets: ["http://%s"], health: {interval: 10ms}}}
lanes:
  web:  {upstream: app, slots: 4}
  slow: {upstream: app, slots: 2, queue_timeout: 60s}
routes:
  - {match: "/one/", lane: slow}
  - {match: "/", lane: web}
`

// ready asks /ready on the public listener.
func (s *site) ready() (ok bool, reasons []string) {
	s.t.Helper()
	status, body, err := get(s.t.Context(), onceClient(), s.url("/ready"))
	if err != nil || status != 200 && status != 503 {
		s.t.Fatal(status, string(body), err)
	}
	var report struct {
		Status  string
		Reasons []string
	}
	if err := json.Unmarshal(body, &report); err != nil {
		s.t.Fatalf("%v in %s", err, body)
	}
	if (status == 200) != (report.Status == "ready") || (status == 200) != (len(report.Reasons) == 0) {
		s.t.Errorf("%d with %s", status, body)
	}
	return status == 200, report.Reasons
}

func (s *site) wantReady(times int) {
	s.t.Helper()
	for range times {
		if ok, reasons := s.ready(); !ok {
			s.t.Errorf("not ready: %q", reasons)
		}
	}
}

// wantNotReady asks once, and wants a reason with each of the words.
func (s *site) wantNotReady(words ...string) {
	s.t.Helper()
	ok, reasons := s.ready()
	if ok {
		s.t.Error("ready")
		return
	}
	for _, word := range words {
		if !strings.Contains(strings.Join(reasons, "\n"), word) {
			s.t.Errorf("%q does not name %s", reasons, word)
		}
	}
}

func (s *site) eventuallyReady(is bool) {
	s.t.Helper()
	eventually(s.t, "ready to be "+map[bool]string{true: "200", false: "503"}[is], func() bool { ok, _ := s.ready(); return ok == is })
}

// stop and goOn stop and continue the app's processes.
func (a *app) stop() { syscall.Kill(-a.cmd.Process.Pid, syscall.SIGSTOP) }
func (a *app) goOn() { syscall.Kill(-a.cmd.Process.Pid, syscall.SIGCONT) }

func TestReady_AnAppThatStandsStillIsNotReadyAndHealthAnswers(t *testing.T) {
	t.Parallel()
	a := startGunicorn(t, "-w", "1", "--threads", "8")
	s := startReadySite(t, readyLanes, a)
	s.wantReady(3)
	a.stop()
	s.eventuallyReady(false)
	for range 10 {
		s.wantNotReady("upstream app", "http://"+a.addr, "answer")
		if body := wantGet(t, onceClient(), s.url("/health")); !bytes.Contains(body, []byte(`"status":"ok"`)) {
			t.Errorf("/health: %s", body)
		}
		if now := s.status(); now.in("web", "abandoned")+now.in("slow", "abandoned") != 1 || now.in("web", "free")+now.in("slow", "free") != 5 {
			t.Fatalf("%+v, want the one slot through which it was asked, and no more", now.Lanes)
		}
	}
	var stderr strings.Builder
	if code := run([]string{"ready", "--admin", s.admin()}, &strings.Builder{}, &stderr); code != exitFailed || !strings.Contains(stderr.String(), a.addr) {
		t.Errorf("holdfast ready: exit %d, %q", code, stderr.String())
	}
	a.goOn()
	s.eventuallyReady(true)
	s.wantReady(3)
	eventuallyQuiet(t, s.admin())
	if code := run([]string{"ready", "--admin", s.admin()}, &strings.Builder{}, &stderr); code != exitOK {
		t.Errorf("holdfast ready: exit %d, %q", code, stderr.String())
	}
}

// The app that stood still is ended and started anew, by hand or by what
// watches it. Nobody sends a request to a Holdfast that is not ready, so it has
// to find out by itself.
func TestReady_AnAppThatStoodStillAndWasReplacedIsReadyAgain(t *testing.T) {
	t.Parallel()
	a := startOnPort(t, "django", nil, "site_wsgi:application", "-w", "1", "--threads", "8")
	s := startReadySite(t, readyLanes, a)
	a.stop()
	s.eventuallyReady(false)
	a.kill()
	a.start()
	eventually(t, "the new one to answer", func() bool { return ask(onceClient(), "GET", "http://"+a.addr, "/fast").ok() })
	eventuallyQuiet(t, s.admin())
	s.eventuallyReady(true)
}

// The same where the slot through which it was asked is freed by abandon_limit.
func TestReady_AnAppThatWentOnAfterTheAbandonLimitIsReadyAgain(t *testing.T) {
	t.Parallel()
	a := startGunicorn(t, "-w", "1", "--threads", "8")
	s := startReadySite(t, strings.Replace(readyLanes, "health:", "abandon_limit: 1500ms, health:", 1), a)
	a.stop()
	s.eventuallyReady(false)
	eventuallyQuiet(t, s.admin())
	a.goOn()
	s.eventuallyReady(true)
}

func TestReady_BusyIsNotSick(t *testing.T) {
	t.Parallel()
	a, release := startHanging(t)
	s := startReadySite(t, readyLanes, a)
	slow, web := s.hang(3, "/one/hang"), s.hang(5, "/hang")
	eventually(t, "every slot busy and two waiting", func() bool {
		now := s.status()
		return now.in("web", "busy") == 4 && now.in("slow", "busy") == 2 && now.Lanes["web"].Waiting == 1 && now.Lanes["slow"].Waiting == 1
	})
	s.wantReady(5)
	a.stop() // nobody can know: there is no slot to ask through
	s.wantReady(2)
	a.goOn()
	release()
	wantAllOK(t, append(<-slow, <-web...))
}

func TestReady_OneTargetOfTwoIsEnough(t *testing.T) {
	t.Parallel()
	args := []string{"site_wsgi:application", "-w", "1", "--threads", "8"}
	first, second := startOnPort(t, "django", nil, args...), startOnPort(t, "django", nil, args...)
	s := startReadySite(t, strings.Replace(readyLanes, `"http://%s"`, `"http://%s", "http://%s"`, 1), first, second)
	first.kill()
	s.wantReady(5)
	second.kill()
	eventually(t, "both to be down", func() bool {
		now := s.status()
		s.ready()
		return now.in("web", "down")+now.in("slow", "down") == 6
	})
	s.wantNotReady("upstream app", "http://"+first.addr, "http://"+second.addr, "down")
	first.start()
	s.eventuallyReady(true)
}

func TestReady_ALaneLostToAbandonedSlotsIsNamed(t *testing.T) {
	t.Parallel()
	a, release := startHanging(t)
	s := startReadySite(t, readyLanes, a)
	addr := s.listeners[0].Addr().String()
	first, second := dialRaw(t, addr), dialRaw(t, addr)
	first.get("/one/hang", "first")
	second.get("/one/hang", "second")
	eventually(t, "both to run", func() bool { return a.running("/one/hang") == 2 })
	first.leave()
	eventually(t, "one to be abandoned", func() bool { return s.status().in("slow", "abandoned") == 1 })
	s.wantReady(2) // the lane still has a slot
	second.leave()
	eventually(t, "both to be abandoned", func() bool { return s.status().in("slow", "abandoned") == 2 })
	s.wantNotReady("lane slow")
	if ok, reasons := s.ready(); !ok && strings.Contains(strings.Join(reasons, ""), "upstream") {
		t.Errorf("%q: the upstream answers", reasons)
	}
	release()
	s.eventuallyReady(true)
}

func TestReady_StartingIsNotReady(t *testing.T) {
	t.Parallel()
	a := newApp(t, "django", nil, "site_wsgi:application", "-w", "1", "--threads", "8")
	s := startSite(t, readyLanes, a)
	s.wantNotReady("starting")
	wantGet(t, onceClient(), s.url("/health"))
	awaited := make(chan error, 1)
	go func() { awaited <- s.awaitReady(t.Context()) }()
	s.wantNotReady("starting")
	a.start()
	if err := <-awaited; err != nil {
		t.Fatal(err)
	}
	s.wantReady(1)
}

// With a path, any answer below 500 is good. A bad one stays bad until a good
// one has come.
func TestReady_OfAHealthPath500IsNotReadyAnd404Is(t *testing.T) {
	t.Parallel()
	a := startGunicorn(t, "-w", "1", "--threads", "8")
	path := func(path string) string {
		return strings.Replace(readyLanes, "health: {interval: 10ms}", `health: {path: "`+path+`", host: example.org, interval: 2s}`, 1)
	}
	s := startReadySite(t, path("/status/404"), a)
	eventually(t, "the path to be asked", func() bool { s.wantReady(1); return len(on("/status/404", a.views())) > 1 })
	s.change(path("/status/500"), a)
	s.eventuallyReady(false)
	for range 5 {
		s.wantNotReady("upstream app", "500")
	}
	s.change(path("/status/403"), a)
	s.eventuallyReady(true)
	s.wantReady(5)
}
