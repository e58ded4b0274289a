package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// What waits on a full lane, and what does not wait beside one.

// overtaken counts the blockers that started after the request was sent and
// ended before it was answered: the next round, as the request saw it.
func overtaken(f asked, blockers []*view) (n int) {
	for _, b := range blockers {
		if b.start >= f.sent && b.end != 0 && b.end < f.answered {
			n++
		}
	}
	return n
}

// askFast asks once, on the ledger's clock.
func askFast(t *testing.T, url string) asked {
	f := asked{sent: monotonic()}
	if status, _, err := get(context.Background(), onceClient(), url); err != nil || status != 200 {
		t.Errorf("%s: %d %v", url, status, err)
	}
	f.answered = monotonic()
	return f
}

// saturate has n blockers loop on the lane busy, which has slots slots, and as
// soon as each is at the app or waits, asks for one more view of that lane and
// one of another.
func saturate(t *testing.T, a *app, h *holdfast, n, slots int, blocker string) (same, other asked) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var loops, asking sync.WaitGroup
	for range n {
		client := onceClient()
		loops.Go(func() {
			for ctx.Err() == nil {
				if status, _, err := get(context.Background(), client, h.url(blocker)); err != nil || status != 200 {
					t.Errorf("blocker: %d %v", status, err)
				}
			}
		})
	}
	eventually(t, "every blocker at the app or waiting", func() bool {
		return a.running(blocker) == min(n, slots) && h.wiring.Load().lanes["busy"].Snapshot().Waiting == max(0, n-slots)
	})
	asking.Go(func() { same = askFast(t, h.url("/fast")) })
	other = askFast(t, h.url("/one/fast"))
	asking.Wait()
	cancel()
	loops.Wait()
	return same, other
}

func (f asked) took() time.Duration { return (f.answered - f.sent).Round(time.Millisecond) }

// saturation starts an app of eight threads with a lane of so many slots and another of two.
func saturation(t *testing.T, slots int) (*app, *holdfast) {
	a := startGunicorn(t, "-w", "1", "--threads", "8")
	return a, startHoldfast(t, fmt.Sprintf(`
upstreams: {app: {targets: ["http://%%s"], concurrency: 8}}
lanes:
  busy:  {upstream: app, slots: %d, queue_timeout: 60s}
  other: {upstream: app, slots: 2}
routes:
  - {match: "/one/", lane: other}
  - {match: "/", lane: busy}
`, slots), a)
}

// The further request is answered before this blocker of the next round ends.
var saturations = []struct{ blockers, before int }{{0, 1}, {2, 1}, {4, 2}, {6, 3}}

func TestSaturation_AFurtherRequestWaitsForASlotAndNotForTheQueue(t *testing.T) {
	a, h := saturation(t, 4)
	for _, c := range saturations {
		for range 3 {
			same, other := saturate(t, a, h, c.blockers, 4, "/slow?ms=400")
			blockers := on("/slow", a.views())
			t.Logf("%d blockers: answered after %v; the other lane after %v", c.blockers, same.took(), other.took())
			if n := overtaken(same, blockers); n >= c.before {
				t.Errorf("%d blockers: answered after %d of the next round had ended, want before number %d does", c.blockers, n, c.before)
			}
			if n := overtaken(other, blockers); n > 0 {
				t.Errorf("%d blockers: a request of the other lane was answered after %d of their next round had ended", c.blockers, n)
			}
		}
	}
}

// The negative arm: on a lane of one slot the request waits for the whole queue.
func TestSaturation_OnALaneOfOneSlotAFurtherRequestWaitsForTheQueue(t *testing.T) {
	t.Parallel()
	a, h := saturation(t, 1)
	for _, c := range saturations[1:] {
		same, _ := saturate(t, a, h, c.blockers, 1, "/slow?ms=400")
		if n := overtaken(same, on("/slow", a.views())); n < c.before {
			t.Errorf("%d blockers: answered after %d of the next round: the check cannot fail", c.blockers, n)
		}
	}
}

// What lanes cannot do: views that compute in Python hold the interpreter, for
// every thread of the process. Measured, not held to anything.
func TestSaturation_BlockersThatHoldTheInterpreterAreMeasured(t *testing.T) {
	a, h := saturation(t, 4)
	for _, c := range saturations {
		for range 2 {
			same, other := saturate(t, a, h, c.blockers, 4, "/spin?ms=400")
			blockers := on("/spin", a.views())
			t.Logf("%d spinning: answered after %v, %d of the next round had ended; the other lane after %v, %d",
				c.blockers, same.took(), overtaken(same, blockers), other.took(), overtaken(other, blockers))
		}
	}
}

// isolation keeps eight clients looping a 1.5 s view and asks a fast one at a
// steady rate meanwhile, over so many lengths of the view.
func isolation(t *testing.T, h *holdfast, apps []*app, rounds int, every time.Duration) (lateOnes, counted int) {
	const blockers, length = 8, 1500 * time.Millisecond
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
	eventually(t, "slow views at the app", func() bool {
		return slices.ContainsFunc(apps, func(a *app) bool { return a.running("/slow") > 0 })
	})
	client := newClient(t)
	answers := make(chan asked, 10000)
	var asking sync.WaitGroup
	pace := time.NewTicker(every)
	defer pace.Stop()
	for end := monotonic() + time.Duration(rounds)*length; monotonic() < end; <-pace.C {
		asking.Go(func() {
			f := asked{sent: monotonic()}
			if status, _, err := get(context.Background(), client, h.url("/fast")); err != nil || status != http.StatusOK {
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
	}
	var slow []*view
	for _, a := range apps {
		slow = append(slow, on("/slow", a.views())...)
	}
	cancel()
	loops.Wait()
	return late(fast, slow, length)
}

const isolationLanes = `
lanes:
  web:  {upstream: app, slots: 6, queue_timeout: 60s}
  slow: {upstream: app, slots: 2, queue: 64, queue_timeout: 60s}
routes:
  - {match: "/slow", lane: slow}
  - {match: "/", lane: web}
`

const isolationOneLane = `
lanes: {all: {upstream: app, slots: 8, queue_timeout: 60s}}
routes: [{match: "/", lane: all}]
`

func TestIsolation_HoldsInEveryShape(t *testing.T) {
	for _, shape := range shapes {
		t.Run(shape.name, func(t *testing.T) {
			t.Parallel()
			apps := shape.start(t)
			lateOnes, counted := isolation(t, startHoldfast(t, shape.config(isolationLanes), apps...), apps, 4, 5*time.Millisecond)
			t.Logf("%d fast requests beside slow views, %d late", counted, lateOnes)
			if counted < 50 || lateOnes > 0 {
				t.Errorf("%d of %d fast requests waited for a slow view", lateOnes, counted)
			}
		})
	}
}

// The negative arm, in each shape.
func TestIsolation_InNoShapeDoesOneLaneForAllIsolate(t *testing.T) {
	for _, shape := range shapes {
		t.Run(shape.name, func(t *testing.T) {
			t.Parallel()
			apps := shape.start(t)
			lateOnes, counted := isolation(t, startHoldfast(t, shape.config(isolationOneLane), apps...), apps, 2, 5*time.Millisecond)
			t.Logf("%d fast requests beside slow views, %d late", counted, lateOnes)
			if lateOnes == 0 {
				t.Errorf("0 of %d fast requests waited for a slow view: the check cannot fail", counted)
			}
		})
	}
}

// The shape that lanes cannot help: several processes of several threads on
// one port. The kernel picks the process, and a gthread worker takes
// connections while all its threads are busy. Measured, not held to anything.
func TestIsolation_SeveralProcessesBehindOnePortAreMeasured(t *testing.T) {
	if os.Getenv("HOLDFAST_FULL") == "" {
		t.Skip("long: set HOLDFAST_FULL=1")
	}
	shared := shape{name: "FourProcessesOfTwoThreadsOnOnePort", processes: 1, args: []string{"-w", "4", "--threads", "2"}}
	lanes := strings.NewReplacer("slots: 6", "slots: 4", "slots: 2", "slots: 4").Replace(isolationLanes)
	lateOnes, counted := 0, 0
	for start := 1; start <= 20 && lateOnes == 0; start++ {
		t.Run(fmt.Sprintf("Start%d", start), func(t *testing.T) {
			apps := shared.start(t)
			lateOnes, counted = isolation(t, startHoldfast(t, shared.config(lanes), apps...), apps, 2, 100*time.Millisecond)
			t.Logf("-w 4 --threads 2 on one port, slow lane of 4: %d of %d fast requests waited for a slow view (%.1f %%)",
				lateOnes, counted, 100*float64(lateOnes)/float64(max(1, counted)))
		})
	}
}
