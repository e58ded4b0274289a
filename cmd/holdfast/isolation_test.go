package main

import (
	"context"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

const twoLanes = `
upstreams: {app: {targets: ["http://%s"], concurrency: 8}}
lanes:
  web:  {upstream: app, slots: 6}
  slow: {upstream: app, slots: 2, queue: 64, queue_timeout: 60s}
routes:
  - {match: "/slow", lane: slow}
  - {match: "/hang", lane: slow}
  - {match: "/robots.txt", respond: {body: "User-agent: *\n"}}
  - {match: "/", lane: web}
`

const oneLane = `
upstreams: {app: {targets: ["http://%s"], concurrency: 8}}
lanes: {all: {upstream: app, slots: 8}}
routes: [{match: "/", lane: all}]
`

// asked is one fast request, on the ledger's clock.
type asked struct{ sent, answered time.Duration }

// late counts the fast requests that were answered only after a slow view of
// their time had ended, among those sent while every slow view at the app had
// at least half a second to go.
func late(fast []asked, slow []*view, length time.Duration) (late, counted int) {
	for _, f := range fast {
		beside, fair, overtaken := 0, true, false
		for _, s := range slow {
			if s.start <= f.sent && (s.end == 0 || s.end > f.sent) {
				beside++
				fair = fair && s.start+length-f.sent > 500*time.Millisecond
				overtaken = overtaken || (s.end != 0 && s.end < f.answered)
			}
		}
		if beside > 0 && fair {
			counted++
			if overtaken {
				late++
			}
		}
	}
	return late, counted
}

// measureIsolation keeps eight clients looping a 1.5 s view and asks a fast
// one meanwhile.
func measureIsolation(t *testing.T, config string) (lateOnes, counted int, took []time.Duration) {
	const blockers, rounds, length = 8, 4, 1500 * time.Millisecond
	a := startGunicorn(t, "-w", "1", "--threads", "8")
	h := startHoldfast(t, config, a)
	ctx, cancel := context.WithCancel(context.Background())
	var loops sync.WaitGroup
	for range blockers {
		client := newClient(t)
		loops.Go(func() {
			for ctx.Err() == nil {
				if status, _, err := get(ctx, client, h.url("/slow?ms=1500")); ctx.Err() == nil && (err != nil || status != 200) {
					t.Errorf("slow view: %d %v", status, err)
				}
			}
		})
	}
	eventually(t, "slow views at the app", func() bool { return a.running("/slow") > 0 })
	// Asked at a steady rate, whether the one before is answered or not: who
	// waits for an answer before asking again asks least when it is slowest.
	client := newClient(t)
	answers := make(chan asked, 10000)
	var asking sync.WaitGroup
	for end := monotonic() + rounds*length; monotonic() < end; poll() {
		asking.Go(func() {
			f := asked{sent: monotonic()}
			if status, _, err := get(context.Background(), client, h.url("/fast")); err != nil || status != 200 {
				t.Errorf("fast view: %d %v", status, err)
			}
			f.answered = monotonic()
			answers <- f
		})
	}
	asking.Wait()
	close(answers)
	var fast []asked
	for f := range answers {
		fast = append(fast, f)
		took = append(took, f.answered-f.sent)
	}
	var slow []*view
	for _, v := range a.views() {
		if strings.HasPrefix(v.Path, "/slow") {
			slow = append(slow, v)
		}
	}
	cancel()
	loops.Wait()
	lateOnes, counted = late(fast, slow, length)
	return lateOnes, counted, took
}

func TestIsolation_FastViewsAreAnsweredBeforeAnySlowViewOfTheirTimeEnds(t *testing.T) {
	t.Parallel()
	lateOnes, counted, took := measureIsolation(t, twoLanes)
	figure(t, "isolation_p50_ms", milliseconds(percentile(took, 50)))
	figure(t, "isolation_p99_ms", milliseconds(percentile(took, 99)))
	t.Logf("%d fast requests beside slow views, %d late", counted, lateOnes)
	if counted < 50 || lateOnes > 0 {
		t.Errorf("%d of %d fast requests waited for a slow view", lateOnes, counted)
	}
}

// The negative arm: the same check does not hold where slow and fast views
// share one lane.
func TestIsolation_OneLaneForAllDoesNotIsolate(t *testing.T) {
	t.Parallel()
	lateOnes, counted, _ := measureIsolation(t, oneLane)
	t.Logf("%d fast requests beside slow views, %d late", counted, lateOnes)
	if counted == 0 || lateOnes == 0 {
		t.Errorf("%d of %d fast requests waited for a slow view: the check cannot fail", lateOnes, counted)
	}
}

// holdEverySlot keeps all slots of all lanes busy with views that end when
// the returned function is called, and gives the wanted number of them.
func holdEverySlot(t *testing.T, config string, paths map[string]int) (h *holdfast, a *app, release func()) {
	t.Helper()
	gate := filepath.Join(t.TempDir(), "release")
	t.Setenv("HANG_RELEASE", gate)
	a = startGunicorn(t, "-w", "1", "--threads", "8")
	h = startHoldfast(t, config, a)
	var held sync.WaitGroup
	total := 0
	for path, n := range paths {
		total += n
		for range n {
			client := newClient(t)
			held.Go(func() {
				if status, _, err := get(context.Background(), client, h.url(path)); err != nil || status != 200 {
					t.Errorf("held view: %d %v", status, err)
				}
			})
		}
	}
	eventually(t, "every slot held", func() bool { return a.running("/") == total })
	return h, a, sync.OnceFunc(func() {
		if err := os.WriteFile(gate, nil, 0o600); err != nil {
			t.Error(err)
		}
		held.Wait()
	})
}

// ask24 asks a path 24 times at random gaps and reports how many were
// answered within the two seconds for which each is waited for, and how long
// the worst of those took.
func ask24(client *http.Client, url string) (answered int, worst time.Duration) {
	for range 24 {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		asked := monotonic()
		if status, _, err := get(ctx, client, url); err == nil && status == 200 {
			answered++
			worst = max(worst, monotonic()-asked)
		}
		cancel()
		<-time.After(time.Duration(rand.IntN(20)) * time.Millisecond)
		if answered == 0 {
			break // a lane that is full stays full: no need to wait 24 times
		}
	}
	return answered, worst
}

func TestLoop_HealthAndFixedAnswersWhileEverySlotIsHeld(t *testing.T) {
	h, a, release := holdEverySlot(t, twoLanes, map[string]int{"/hang": 2, "/one/hang": 6})
	defer release()
	for _, path := range []string{"/health", "/robots.txt"} {
		n, worst := ask24(newClient(t), h.url(path))
		if n != 24 {
			t.Errorf("%s answered %d of 24 times", path, n)
		}
		if path == "/health" {
			figure(t, "health_worst_ms", milliseconds(worst))
		}
	}
	if n := a.running("/"); n != 8 {
		t.Fatalf("%d views still held, want all 8: the answers prove nothing", n)
	}
	for _, lane := range h.laneCounts() {
		if lane.InUse != lane.Slots {
			t.Errorf("lane %s: %d of %d slots in use", lane.Name, lane.InUse, lane.Slots)
		}
	}
}

// The negative arm: asked of a lane, the same paths are not answered.
func TestLoop_RoutedToAFullLaneTheSamePathsWait(t *testing.T) {
	config := `
upstreams: {app: {targets: ["http://%s"], concurrency: 8}}
lanes: {all: {upstream: app, slots: 8}}
health: {path: ""}
routes:
  - {match: "/", lane: all}
`
	h, _, release := holdEverySlot(t, config, map[string]int{"/hang": 8})
	defer release()
	for _, path := range []string{"/health", "/robots.txt"} {
		if n, _ := ask24(newClient(t), h.url(path)); n != 0 {
			t.Errorf("%s answered %d times through a full lane: the check cannot fail", path, n)
		}
	}
}
