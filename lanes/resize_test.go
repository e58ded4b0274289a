package lanes_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/lanes"
	"holdfast/upstream"
)

// dealt is n slots at each target in turn: dealt(a, 2, b, 1).
func dealt(list ...any) (targets []*upstream.Target) {
	for i := 0; i < len(list); i += 2 {
		targets = append(targets, slices.Repeat([]*upstream.Target{list[i].(*upstream.Target)}, list[i+1].(int))...)
	}
	return targets
}

// numbers are those of the lane's slots, with their states.
func numbers(lane *lanes.Lane) string {
	var states []string
	for _, s := range lane.Snapshot().SlotStates {
		states = append(states, fmt.Sprintf("%d:%s", s.Number, s.State))
	}
	return strings.Join(states, " ")
}

// wantNumbers requires the lane's slots to be these, and Slots to count them
// as configured.
func wantNumbers(t *testing.T, lane *lanes.Lane, slots int, want string) {
	t.Helper()
	if got := numbers(lane); got != want || lane.Snapshot().Slots != slots || lane.Config().Slots != slots {
		t.Fatalf("%d slots: %s; want %d: %s", lane.Snapshot().Slots, got, slots, want)
	}
}

var resizable = lanes.Config{Name: "web", Slots: 2, Queue: 8}

func TestConfigure_GrowingServesWhoWaitsInOrder(t *testing.T) {
	bubble(t, 1, resizable, upstream.Config{}, func(t *testing.T, lane *lanes.Lane, up *upstream.Upstream) {
		held := []*lanes.Slot{acquire(t, lane), acquire(t, lane)}
		waiting := line(lane, 4)
		lane.Configure(resizable, up.Deal(4))
		synctest.Wait()
		for _, c := range waiting[:2] {
			held = append(held, c.wantSlot(t))
		}
		waiting[2].wantWaiting(t)
		wantNumbers(t, lane, 4, "0:busy 1:busy 2:busy 3:busy")
		lane.Configure(resizable, up.Deal(7))
		for _, c := range waiting[2:] {
			held = append(held, c.wantSlot(t))
		}
		wantNumbers(t, lane, 7, "0:busy 1:busy 2:busy 3:busy 4:free 5:busy 6:busy") // the last added is the first taken
		for _, slot := range held {
			slot.Release()
		}
		wantLoad(t, lane, 0, 0)
	})
}

func TestConfigure_ShrinkingTakesFreeSlotsAtOnceAndBusyOnesWhenTheyEnd(t *testing.T) {
	bubble(t, 1, lanes.Config{Slots: 4, Queue: 8}, upstream.Config{}, func(t *testing.T, lane *lanes.Lane, up *upstream.Upstream) {
		var held []*lanes.Slot
		for range 3 {
			held = append(held, acquire(t, lane))
		}
		lane.Configure(resizable, up.Deal(2))
		wantLoad(t, lane, 3, 0)
		if s := lane.Snapshot(); s.Slots != 2 || len(s.SlotStates) != 3 {
			t.Fatalf("after the free one went: %+v", s)
		}
		waiting := line(lane, 2)
		gone, left := 0, len(held)
		for _, slot := range held {
			// One of the three is handed to nobody; the others to who waits.
			slot.Release()
			synctest.Wait()
			left--
			if len(lane.Snapshot().SlotStates) == 2 && gone == 0 {
				gone++
			}
			if s := lane.Snapshot(); s.InUse > 3 || s.InUse-left > 2 {
				t.Fatalf("%d of the old are left, and %d are in use", left, s.InUse)
			}
		}
		a, b := waiting[0].wantSlot(t), waiting[1].wantSlot(t)
		if gone != 1 || lane.Snapshot().InUse != 2 || len(lane.Snapshot().SlotStates) != 2 {
			t.Fatalf("in the end %s", numbers(lane))
		}
		next := line(lane, 1)[0]
		next.wantWaiting(t) // there is no third any more
		a.Release()
		b.Release()
		next.wantSlot(t).Release()
		wantLoad(t, lane, 0, 0)
	})
}

// A slot that was taken away is given to nobody, however many wait.
func TestConfigure_ASlotTakenAwayIsNotGivenOutAgain(t *testing.T) {
	bubble(t, 2, lanes.Config{Slots: 4, Queue: 8}, upstream.Config{}, func(t *testing.T, lane *lanes.Lane, up *upstream.Upstream) {
		a, b := up.Targets()[0], up.Targets()[1]
		var atA, atB []*lanes.Slot
		for range 4 {
			if slot := acquire(t, lane); slot.Target() == a {
				atA = append(atA, slot)
			} else {
				atB = append(atB, slot)
			}
		}
		lane.Configure(resizable, dealt(b, 2))
		waiting := line(lane, 3)
		for _, slot := range atA {
			slot.Release()
			synctest.Wait()
			for _, c := range waiting {
				c.wantWaiting(t)
			}
		}
		wantLoad(t, lane, 2, 0)
		for i, slot := range atB {
			slot.Release()
			if got := waiting[i].wantSlot(t); got.Target() != b {
				t.Errorf("a slot at %s, which was taken away", got.Target())
			} else {
				atB[i] = got
			}
		}
		for _, slot := range atB {
			slot.Release()
		}
		waiting[2].wantSlot(t).Release()
		if s := lane.Snapshot(); len(s.SlotStates) != 2 || s.InUse != 0 {
			t.Errorf("in the end %s", numbers(lane))
		}
	})
}

func TestConfigure_WhatWasToGoStaysIfTheLaneGrowsInTime(t *testing.T) {
	bubble(t, 1, lanes.Config{Slots: 3, Queue: 8}, upstream.Config{}, func(t *testing.T, lane *lanes.Lane, up *upstream.Upstream) {
		held := []*lanes.Slot{acquire(t, lane), acquire(t, lane), acquire(t, lane)}
		for range 3 {
			lane.Configure(resizable, up.Deal(1))
			lane.Configure(resizable, up.Deal(3))
		}
		wantNumbers(t, lane, 3, "0:busy 1:busy 2:busy")
		lane.Configure(resizable, up.Deal(1))
		lane.Configure(resizable, up.Deal(2))
		for _, slot := range held {
			slot.Release()
		}
		if s := lane.Snapshot(); s.InUse != 0 || len(s.SlotStates) != 2 {
			t.Errorf("in the end %s", numbers(lane))
		}
		lane.Configure(resizable, up.Deal(4)) // numbers are filled up from below
		wantNumbers(t, lane, 4, "0:free 1:free 2:free 3:free")
	})
}

func TestConfigure_NumbersAreOfOneSlotEach(t *testing.T) {
	bubble(t, 2, lanes.Config{Slots: 4, Queue: 8}, upstream.Config{}, func(t *testing.T, lane *lanes.Lane, up *upstream.Upstream) {
		a, b := up.Targets()[0], up.Targets()[1]
		held := []*lanes.Slot{acquire(t, lane), acquire(t, lane), acquire(t, lane), acquire(t, lane)}
		lane.Configure(resizable, dealt(a, 1))
		lane.Configure(resizable, dealt(a, 2, b, 3))
		seen := map[int]bool{}
		for _, s := range lane.Snapshot().SlotStates {
			if seen[s.Number] {
				t.Errorf("number %d is of two slots: %s", s.Number, numbers(lane))
			}
			seen[s.Number] = true
		}
		for _, slot := range held {
			slot.Release()
		}
		if s := lane.Snapshot(); len(s.SlotStates) != 5 {
			t.Errorf("in the end %s", numbers(lane))
		}
	})
}

func TestConfigure_TargetsComeAndGo(t *testing.T) {
	bubble(t, 3, lanes.Config{Slots: 3, Queue: 8}, upstream.Config{}, func(t *testing.T, lane *lanes.Lane, up *upstream.Upstream) {
		a, b, c := up.Targets()[0], up.Targets()[1], up.Targets()[2]
		wantAt := func(want ...*upstream.Target) {
			t.Helper()
			var got []string
			for _, s := range lane.Snapshot().SlotStates {
				got = append(got, s.Target)
			}
			var texts []string
			for _, target := range want {
				texts = append(texts, target.String())
			}
			slices.Sort(got)
			slices.Sort(texts)
			if !slices.Equal(got, texts) {
				t.Fatalf("slots at %v, want %v", got, texts)
			}
		}
		wantAt(a, b, c)
		lane.Configure(resizable, dealt(a, 2, c, 1))
		wantAt(a, a, c)
		lane.Configure(resizable, dealt(b, 2)) // all others are free: they go at once
		wantAt(b, b)
		first, second := acquire(t, lane), acquire(t, lane)
		waiting := line(lane, 2)
		b.Fail(errGone)
		lane.Configure(resizable, dealt(a, 1, c, 1)) // while it is down, and busy
		for _, w := range waiting {
			if slot := w.wantSlot(t); slot.Target() == b {
				t.Error("a slot at a target that is gone")
			} else {
				slot.Release()
			}
		}
		wantAt(a, b, b, c)
		first.Release()
		wantAt(a, b, c)
		b.Answered() // of no consequence
		synctest.Wait()
		second.Release()
		wantAt(a, c)
		wantLoad(t, lane, 0, 0)

		// One that is down takes its slots out, and brings them when it is up.
		b.Fail(errGone)
		lane.Configure(resizable, dealt(b, 1))
		wantNumbers(t, lane, 1, "0:down")
		parked := line(lane, 1)[0]
		parked.wantWaiting(t)
		b.Answered()
		parked.wantSlot(t).Release()
	})
}

func TestConfigure_WhoWaitsKeepsTheBoundsThatHeldWhenItCame(t *testing.T) {
	bubble(t, 1, lanes.Config{Slots: 1, Queue: 2, QueueTimeout: 10 * time.Second}, upstream.Config{}, func(t *testing.T, lane *lanes.Lane, up *upstream.Upstream) {
		slot := acquire(t, lane)
		waiting := line(lane, 2)
		lane.Configure(lanes.Config{Name: "web", Queue: 1, QueueTimeout: time.Second}, up.Deal(1))
		come(lane).wantRefused(t, lanes.LaneFull)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		for _, c := range waiting {
			c.wantWaiting(t)
		}
		if _, after := waiting[0].wantRefused(t, lanes.LaneTimeout); after != 10*time.Second {
			t.Errorf("it waited %v", after)
		}
		waiting[1].wantRefused(t, lanes.LaneTimeout)
		if text, after := come(lane).wantRefused(t, lanes.LaneTimeout); after != time.Second || !strings.Contains(text, "no slot within 1s") {
			t.Errorf("one that came later waited %v: %s", after, text)
		}
		slot.Release()
	})
}

// However a lane comes to have only targets that are down, park ends the wait.
func TestConfigure_WhoWaitsForTargetsThatAreDownWaitsForPark(t *testing.T) {
	for _, name := range []string{"AtOnce", "OnceTheOthersHaveEnded"} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 2, lanes.Config{Slots: 2, Queue: 8, QueueTimeout: time.Hour}, upstream.Config{Park: 10 * time.Second}, func(t *testing.T, lane *lanes.Lane, up *upstream.Upstream) {
				a, b := up.Targets()[0], up.Targets()[1]
				b.Fail(errGone)
				slot := acquire(t, lane)
				if slot.Target() != a {
					t.Fatal("a slot at a target that is down")
				}
				if name == "AtOnce" {
					slot.Release()
				}
				lane.Configure(lanes.Config{Name: "web", Queue: 8, QueueTimeout: time.Hour}, dealt(b, 1))
				waiting := line(lane, 1)[0]
				waiting.wantWaiting(t)
				if name != "AtOnce" {
					time.Sleep(time.Second)
					slot.Release()
				}
				if _, after := waiting.wantRefused(t, lanes.UpstreamDown); after != 10*time.Second {
					t.Errorf("it waited %v, want park", after)
				}
			})
		})
	}
}

func TestConfigure_AnAbandonedSlotTakenAwayGoesWithItsAnswer(t *testing.T) {
	answer := make(chan struct{})
	app := startApp(t, func(c *rawConn) {
		for c.read() {
			c.await(answer)
			c.say(hello)
		}
	})
	lane, targets := startAskable(t, 2, upstream.Config{}, app.addr())
	for range 2 {
		do(t, lane, get).Close()
	}
	lane.Configure(lanes.Config{Name: "web", Queue: 8}, dealt(targets[0], 1))
	wantLoad(t, lane, 2, 2)
	waiting := come(lane)
	waiting.wantQueued(t, lane)
	close(answer)
	waiting.wantSlot(t).Release()
	eventually(t, "one slot is left", func() bool { s := lane.Snapshot(); return len(s.SlotStates) == 1 && s.InUse == 0 })
	wantLoad(t, lane, 0, 0)
}

func TestConfigure_AConnectionGoesWithItsSlot(t *testing.T) {
	var open atomic.Int32
	app := startApp(t, func(c *rawConn) {
		open.Add(1)
		defer open.Add(-1)
		greet(c)
	})
	lane, targets := startAskable(t, 3, upstream.Config{}, app.addr())
	warm := func() (exchanges []*lanes.Exchange) {
		for range 3 {
			exchanges = append(exchanges, do(t, lane, get))
		}
		return exchanges
	}
	for _, ex := range warm() {
		wantAnswer(t, ex, 200, "hello")
	}
	eventually(t, "three connections are kept", func() bool { return open.Load() == 3 })
	lane.Configure(lanes.Config{Name: "web", Queue: 8}, dealt(targets[0], 1))
	eventually(t, "two of them are closed", func() bool { return open.Load() == 1 })
	wantAnswer(t, do(t, lane, get), 200, "hello")
	if n := app.connections(); n != 3 {
		t.Errorf("the one that is left was not used: %d connections", n)
	}

	lane.Configure(lanes.Config{Name: "web", Queue: 8}, dealt(targets[0], 3))
	running := warm()
	lane.Configure(lanes.Config{Name: "web", Queue: 8}, dealt(targets[0], 1))
	for _, ex := range running {
		wantAnswer(t, ex, 200, "hello") // whole, although their slots are to go
	}
	eventually(t, "one connection is left", func() bool { return open.Load() == 1 })
}

func TestConfigure_AClosedLaneStaysClosed(t *testing.T) {
	bubble(t, 1, resizable, upstream.Config{}, func(t *testing.T, lane *lanes.Lane, up *upstream.Upstream) {
		slot := acquire(t, lane)
		lane.Close()
		lane.Configure(resizable, up.Deal(4))
		come(lane).wantRefused(t, lanes.Draining)
		slot.Release()
	})
}

// A request that found its route before the reload is served by a lane that
// no route leads to any more.
func TestRetire_WhatWaitsRunsAndComesLateIsServedAndNothingIsKept(t *testing.T) {
	var open atomic.Int32
	app := startApp(t, func(c *rawConn) {
		open.Add(1)
		defer open.Add(-1)
		greet(c)
	})
	lane, _ := startAskable(t, 2, upstream.Config{}, app.addr())
	first, second := do(t, lane, get), do(t, lane, get)
	wantAnswer(t, second, 200, "hello") // its connection is kept, and free
	third := acquire(t, lane)
	waiting := come(lane)
	waiting.wantQueued(t, lane)
	third.Release()
	running := doOn(t, waiting.wantSlot(t), get)
	waiting = come(lane)
	waiting.wantQueued(t, lane)
	lane.Retire()
	wantAnswer(t, first, 200, "hello")
	wantAnswer(t, doOn(t, waiting.wantSlot(t), get), 200, "hello")
	wantAnswer(t, running, 200, "hello")
	wantAnswer(t, do(t, lane, get), 200, "hello")
	eventually(t, "no connection is left", func() bool { return open.Load() == 0 })
	wantLoad(t, lane, 0, 0)
}

// Requests that find every target exchanged for others that are up wait for a
// slot at most: none is told that the upstream is down, or that a lane with
// room is full.
func TestConfigure_ExchangingTargetsRefusesNobody(t *testing.T) {
	rounds := 500
	if os.Getenv("HOLDFAST_FULL") != "" {
		rounds = 10000
	}
	bubble(t, 2, lanes.Config{Slots: 2, Queue: 64}, upstream.Config{}, func(t *testing.T, lane *lanes.Lane, up *upstream.Upstream) {
		time.Sleep(time.Hour) // park, counted from when a target changed last, is long over
		var over atomic.Bool
		var running sync.WaitGroup
		for range 4 {
			running.Go(func() { useUntil(t, lane, &over) })
		}
		for i := range rounds {
			lane.Configure(lanes.Config{Name: "web", Queue: 64}, dealt(up.Targets()[i%2], 2))
		}
		over.Store(true)
		running.Wait()
		wantLoad(t, lane, 0, 0)
		if s := lane.Snapshot(); len(s.SlotStates) != 2 {
			t.Errorf("in the end %s", numbers(lane))
		}
	})
}

func useUntil(t *testing.T, lane *lanes.Lane, over *atomic.Bool) {
	for !over.Load() {
		slot, err := lane.Acquire(context.Background())
		if err != nil {
			t.Errorf("refused: %v", err)
			return
		}
		slot.Release()
	}
}

// ---- The property, for a lane whose size and targets change.

// Whatever is configured while requests come, end and leave and targets go and
// come back, in whatever order and at once: as soon as nothing more happens by
// itself, no slot is free at a target that is up while a request waits (L4);
// at each target no more slots are there than there were or are configured,
// and no more than are configured once the requests of that time have ended
// (L1); no two slots have one number; whoever was served came before whoever
// waits; nobody is refused for a reload; and in the end the lane is what was
// configured last.
//
// Each seed is a play of its own, as in TestLane_NoLostWakeUp.
func TestLane_NoLostWakeUpWhileItIsResized(t *testing.T) {
	seeds := 200
	if os.Getenv("HOLDFAST_FULL") != "" {
		seeds = 5000
	}
	dir := t.TempDir()
	for seed := range seeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newResizing(t, uint64(seed), dir).run() })
		})
	}
}

// resizing is a play in which the lane is configured anew. Of the play it has
// the guests and the books; nothing is ever sent, and nobody waits too long.
type resizing struct {
	*play
	dealt []*upstream.Target // in force
	old   []*guest           // that held a slot when it was configured last
}

func newResizing(t *testing.T, seed uint64, dir string) *resizing {
	rng := rand.New(rand.NewPCG(seed, 3))
	p := &play{t: t, seed: seed, rng: rng, refused: map[lanes.Reason]uint64{}, park: time.Hour}
	p.cfg = lanes.Config{Name: "web", Queue: 1000, QueueTimeout: time.Hour}
	p.up = nowhere(dir, 3, upstream.Config{Park: p.park})
	p.targets = p.up.Targets()
	setUp(p.up)
	r := &resizing{play: p}
	r.dealt = r.draw()
	p.lane = lanes.New(p.cfg, r.dealt)
	return r
}

// draw draws what to configure: some targets, some slots at each.
func (r *resizing) draw() (targets []*upstream.Target) {
	for len(targets) == 0 {
		for _, target := range r.up.Targets() {
			if r.rng.IntN(3) > 0 {
				targets = append(targets, slices.Repeat([]*upstream.Target{target}, r.rng.IntN(4))...)
			}
		}
	}
	r.rng.Shuffle(len(targets), func(i, j int) { targets[i], targets[j] = targets[j], targets[i] })
	return targets
}

func (r *resizing) run() {
	defer r.up.Close()
	defer r.leaveNobody()
	r.notef("%v", r.dealt)
	for r.step = 1; r.step <= playSteps; r.step++ {
		r.begin()
		configured := r.actAtOnce()
		r.settleResized(configured)
	}
	r.clearOutResized()
}

// actAtOnce does up to five things at once, one of them perhaps a reload.
func (r *resizing) actAtOnce() (configured bool) {
	var actions []func()
	if configured = r.rng.IntN(3) == 0; configured {
		r.dealt = r.draw()
		r.notef("configured: %v", r.dealt)
		targets := r.dealt
		actions = append(actions, func() { r.lane.Configure(r.cfg, targets) })
	}
	for range r.rng.IntN(atOnce) {
		if action := r.chooseResizing(); action != nil {
			actions = append(actions, action)
		}
	}
	r.rng.Shuffle(len(actions), func(i, j int) { actions[i], actions[j] = actions[j], actions[i] })
	for _, action := range actions {
		go perform(action, r.rng.IntN(4))
	}
	return configured
}

func (r *resizing) chooseResizing() func() {
	switch at := r.rng.IntN(100); {
	case at < 45:
		return r.come()
	case at < 80:
		if g := r.pick(func(g *guest) bool { return g.holds != nil }); g != nil {
			r.notef("#%d releases slot %d", g.number, g.holds.Number())
			slot := g.holds
			r.forget(g)
			return slot.Release
		}
	case at < 88:
		if g := r.pick(func(g *guest) bool { return g.pending && !g.left }); g != nil {
			r.notef("#%d leaves", g.number)
			g.left = true
			return g.leave
		}
	case at < 92:
		target := r.target()
		r.notef("%s goes down", target)
		return func() { target.Fail(errGone) }
	default:
		target := r.target()
		r.notef("%s is up", target)
		return target.Answered
	}
	return nil
}

// settleResized waits until nothing more happens by itself, and checks everything.
func (r *resizing) settleResized(configured bool) {
	r.t.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	var served []*guest
	for _, g := range slices.Clone(r.requests) {
		if !g.ended {
			continue
		}
		g.ended, g.pending = false, false
		if g.slot != nil {
			r.notef("  #%d has slot %d at %s", g.number, g.slot.Number(), g.slot.Target())
			g.holds, g.slot = g.slot, nil
			served = append(served, g)
			continue
		}
		if !g.left || !errors.Is(g.err, context.Canceled) {
			r.fail("#%d (left: %v) ended with %v", g.number, g.left, g.err)
		}
		r.forget(g)
	}
	holders := r.those(func(g *guest) bool { return g.holds != nil })
	if configured {
		r.old = holders
	}
	r.old = slices.DeleteFunc(r.old, func(g *guest) bool { return !slices.Contains(holders, g) })
	r.checkOrder(served)
	r.checkBooks(holders)
	r.checkSize(holders)
}

// checkBooks: the lane counts what there is, and nobody waits beside a free slot.
func (r *resizing) checkBooks(holders []*guest) {
	r.t.Helper()
	s := r.lane.Snapshot()
	waiting := r.those(func(g *guest) bool { return g.pending })
	if s.InUse != len(holders) || s.Waiting != len(waiting) || s.Abandoned != 0 || s.Slots != len(r.dealt) {
		r.fail("%d in use, %d waiting of %d slots; %d hold, %d wait, %d are configured", s.InUse, s.Waiting, s.Slots, len(holders), len(waiting), len(r.dealt))
	}
	states, held := map[int]string{}, map[int]bool{}
	for _, slot := range s.SlotStates {
		if states[slot.Number] != "" {
			r.fail("two slots have number %d", slot.Number)
		}
		states[slot.Number] = slot.State
		if slot.State == "free" && s.Waiting > 0 {
			r.fail("slot %d at %s is free, and %d wait", slot.Number, slot.Target, s.Waiting)
		}
	}
	for _, g := range holders {
		if held[g.holds.Number()] || states[g.holds.Number()] != "busy" {
			r.fail("#%d holds slot %d, which is %q, held by another: %v", g.number, g.holds.Number(), states[g.holds.Number()], held[g.holds.Number()])
		}
		held[g.holds.Number()] = true
	}
}

// checkSize: at each target, what is configured, and what is to go, which is in
// use and never grows.
func (r *resizing) checkSize(holders []*guest) {
	r.t.Helper()
	had, has, want, busy := map[string]int{}, map[string]int{}, map[string]int{}, map[string]int{}
	for _, slot := range r.before.SlotStates {
		had[slot.Target]++
	}
	for _, slot := range r.lane.Snapshot().SlotStates {
		has[slot.Target]++
	}
	for _, target := range r.dealt {
		want[target.String()]++
	}
	for _, g := range holders {
		busy[g.holds.Target().String()]++
	}
	for _, target := range r.up.Targets() {
		at := target.String()
		if has[at] < want[at] || has[at] > max(had[at], want[at]) {
			r.fail("%d slots at %s, where there were %d and %d are configured", has[at], at, had[at], want[at])
		}
		if toGo := has[at] - want[at]; toGo > busy[at] || toGo > 0 && len(r.old) == 0 {
			r.fail("%d slots at %s are to go, and %d are in use; of the time they were taken away, %d requests run", toGo, at, busy[at], len(r.old))
		}
	}
}

// clearOutResized: the targets are up, whoever has a slot gives it back, and so
// everybody is served, and what was configured last is there and free.
func (r *resizing) clearOutResized() {
	r.t.Helper()
	for round := 0; ; round++ {
		r.begin()
		setUp(r.up)
		r.settleResized(false)
		if len(r.requests) == 0 {
			break
		}
		if round > r.guests {
			r.fail("%d requests are left", len(r.requests))
		}
		for _, g := range r.those(func(g *guest) bool { return g.holds != nil }) {
			slot := g.holds
			r.forget(g)
			slot.Release()
		}
	}
	if s := r.lane.Snapshot(); s.InUse != 0 || s.Waiting != 0 || len(s.SlotStates) != len(r.dealt) {
		r.fail("in the end %+v", s)
	}
}
