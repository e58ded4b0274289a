package lanes_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/lanes"
	"holdfast/upstream"
)

// bubble runs a test in a synctest bubble, with a lane web at n targets that
// have all answered. Time there moves when everybody waits, so that what takes
// ten seconds takes exactly ten seconds, and no time.
func bubble(t *testing.T, n int, cfg lanes.Config, app upstream.Config,
	test func(t *testing.T, lane *lanes.Lane, up *upstream.Upstream)) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		up := nowhere(dir, n, app)
		defer up.Close()
		setUp(up)
		cfg.Name = "web"
		lane := lanes.New(cfg, up.Deal(cfg.Slots))
		defer lane.Close()
		test(t, lane, up)
	})
}

var errGone = errors.New("gone")

// line lets n requests come one after another.
func line(lane *lanes.Lane, n int) []comer {
	var waiting []comer
	for range n {
		waiting = append(waiting, come(lane))
		synctest.Wait()
	}
	return waiting
}

// places are the states of a lane's slots, by number.
func places(lane *lanes.Lane) string {
	var states []string
	for _, s := range lane.Snapshot().SlotStates {
		states = append(states, s.State)
	}
	return strings.Join(states, " ")
}

func TestLane_RefusesTheFirstRequestBeyondItsQueue(t *testing.T) {
	for _, queue := range []int{0, 1, 3} {
		t.Run(fmt.Sprintf("queue=%d", queue), func(t *testing.T) {
			bubble(t, 1, lanes.Config{Slots: 2, Queue: queue}, upstream.Config{}, func(t *testing.T, lane *lanes.Lane, _ *upstream.Upstream) {
				a, b := acquire(t, lane), acquire(t, lane)
				waiting := line(lane, queue)
				for _, c := range waiting {
					c.wantWaiting(t)
				}
				text, after := come(lane).wantRefused(t, lanes.LaneFull)
				if after != 0 {
					t.Errorf("refused after %v, want at once", after)
				}
				want := fmt.Sprintf("lane web: its queue of %d is full (2 in use, %d waiting); raise lanes.web.queue or lower the load", queue, queue)
				if queue == 0 {
					want = "lane web: no slot is free and nobody may wait (2 in use, 0 waiting); raise lanes.web.slots or lower the load"
				}
				if text != want {
					t.Errorf("the refusal says %q, want %q", text, want)
				}
				if got := lane.Snapshot().Refused[lanes.LaneFull]; got != 1 {
					t.Errorf("%d refusals counted, want 1", got)
				}
				a.Release()
				b.Release()
				for _, c := range waiting {
					c.wantSlot(t).Release()
				}
				acquire(t, lane).Release() // the queue is as empty as before
			})
		})
	}
}

func TestLane_ServesInTheOrderOfComing(t *testing.T) {
	bubble(t, 1, lanes.Config{Slots: 1, Queue: 5}, upstream.Config{}, func(t *testing.T, lane *lanes.Lane, _ *upstream.Upstream) {
		slot := acquire(t, lane)
		waiting := line(lane, 5)
		for i, c := range waiting {
			slot.Release()
			synctest.Wait()
			for _, later := range waiting[i+1:] {
				later.wantWaiting(t)
			}
			slot = c.wantSlot(t)
		}
		slot.Release()
	})
}

func TestLane_ASlotThatWasReleasedIsGivenOutAgain(t *testing.T) {
	bubble(t, 1, lanes.Config{Slots: 2}, upstream.Config{}, func(t *testing.T, lane *lanes.Lane, _ *upstream.Upstream) {
		for range 3 {
			a, b := acquire(t, lane), acquire(t, lane)
			if a.Number() == b.Number() {
				t.Fatalf("slot %d was given to two", a.Number())
			}
			a.Release()
			b.Release()
		}
		wantLoad(t, lane, 0, 0)
	})
}

func TestLane_WaitsForQueueTimeoutAndNoLonger(t *testing.T) {
	bubble(t, 1, lanes.Config{Slots: 1, Queue: 2, QueueTimeout: 3 * time.Second}, upstream.Config{}, func(t *testing.T, lane *lanes.Lane, _ *upstream.Upstream) {
		slot := acquire(t, lane)
		first := come(lane)
		time.Sleep(2 * time.Second)
		second := come(lane)
		text, after := first.wantRefused(t, lanes.LaneTimeout)
		if after != 3*time.Second {
			t.Errorf("refused after %v, want 3s", after)
		}
		if want := "lane web: no slot within 3s (1 in use, 1 waiting); raise lanes.web.slots or lower the load"; text != want {
			t.Errorf("the refusal says %q, want %q", text, want)
		}
		second.wantWaiting(t)
		slot.Release()
		second.wantSlot(t).Release()
	})
}

func TestLane_AClientThatLeavesGivesItsPlaceInTheQueueUp(t *testing.T) {
	bubble(t, 1, lanes.Config{Slots: 1, Queue: 3}, upstream.Config{}, func(t *testing.T, lane *lanes.Lane, _ *upstream.Upstream) {
		for leaver := range 3 { // the first, the middle one, the last
			slot := acquire(t, lane)
			waiting := line(lane, 3)
			waiting[leaver].leave()
			if got := <-waiting[leaver].outcome; !errors.Is(got.err, context.Canceled) {
				t.Fatalf("it left and got %v, %v", got.slot, got.err)
			}
			waiting = append(slices.Delete(waiting, leaver, leaver+1), come(lane))
			synctest.Wait()
			come(lane).wantRefused(t, lanes.LaneFull)
			for _, c := range waiting {
				slot.Release()
				slot = c.wantSlot(t)
			}
			slot.Release()
		}
		if s := lane.Snapshot(); s.InUse != 0 || s.Waiting != 0 || s.Refused[lanes.LaneTimeout] != 0 {
			t.Errorf("afterwards: %+v", s)
		}
	})
}

// The client leaves in the very moment in which its slot comes.
func TestLane_TheSlotOfAClientThatLeftGoesToTheNext(t *testing.T) {
	bubble(t, 1, lanes.Config{Slots: 1, Queue: 2}, upstream.Config{}, func(t *testing.T, lane *lanes.Lane, _ *upstream.Upstream) {
		slot := acquire(t, lane)
		waiting := line(lane, 2)
		slot.ReleaseWhen(waiting[0].leave)
		if got := <-waiting[0].outcome; !errors.Is(got.err, context.Canceled) || got.slot != nil {
			t.Errorf("the client left, and it got a slot (%v), %v", got.slot != nil, got.err)
		}
		waiting[1].wantSlot(t).Release()
		wantLoad(t, lane, 0, 0)
	})
}

func TestSlot_ReleasedTwicePanics(t *testing.T) {
	bubble(t, 1, lanes.Config{Slots: 2}, upstream.Config{}, func(t *testing.T, lane *lanes.Lane, _ *upstream.Upstream) {
		slot := acquire(t, lane)
		slot.Release()
		defer func() {
			if recover() == nil {
				t.Error("the second release went unnoticed")
			}
			wantLoad(t, lane, 0, 0)
		}()
		slot.Release()
	})
}

func TestLane_CloseRefusesWhoWaitsAndWhoeverComes(t *testing.T) {
	bubble(t, 1, lanes.Config{Slots: 1, Queue: 2}, upstream.Config{}, func(t *testing.T, lane *lanes.Lane, _ *upstream.Upstream) {
		slot := acquire(t, lane)
		waiting := line(lane, 2)
		lane.Close()
		for _, c := range append(waiting, come(lane)) {
			text, after := c.wantRefused(t, lanes.Draining)
			if after != 0 || text != "lane web: draining, it takes no more requests" {
				t.Errorf("refused after %v with %q", after, text)
			}
		}
		wantLoad(t, lane, 1, 0)
		slot.Release()
		wantLoad(t, lane, 0, 0)
		come(lane).wantRefused(t, lanes.Draining) // although a slot is free
	})
}

// ---- Targets.

func TestUpstream_DealsOnWhereItStopped(t *testing.T) {
	up := nowhere(t.TempDir(), 3, upstream.Config{})
	defer up.Close()
	var dealt []string
	for _, slots := range []int{2, 2, 1, 4} {
		lane := lanes.New(lanes.Config{Name: "web", Slots: slots}, up.Deal(slots))
		defer lane.Close()
		states := lane.Snapshot().SlotStates
		if len(states) != slots {
			t.Fatalf("a lane of %d slots has %d", slots, len(states))
		}
		for _, s := range states {
			dealt = append(dealt, strings.TrimPrefix(s.Target, "unix:app-"))
		}
	}
	if got, want := strings.Join(dealt, ""), "012012012"; got != want {
		t.Errorf("dealt %s, want %s", got, want)
	}
}

func TestLane_TakesTheTargetThatHasLeastToDo(t *testing.T) {
	bubble(t, 3, lanes.Config{Slots: 6}, upstream.Config{}, func(t *testing.T, lane *lanes.Lane, _ *upstream.Upstream) {
		held := map[string][]*lanes.Slot{}
		take := func() string {
			slot := acquire(t, lane)
			name := slot.Target().String()
			held[name] = append(held[name], slot)
			return name
		}
		for i := range 6 {
			take()
			for name, slots := range held {
				if len(slots) != 1+i/3 && len(slots) != i/3 {
					t.Fatalf("after %d slots, %s has %d", i+1, name, len(slots))
				}
			}
		}
		// One target loses both, another one: the next three fill them evenly.
		for _, slot := range held["unix:app-1"] {
			slot.Release()
		}
		held["unix:app-2"][0].Release()
		held["unix:app-1"], held["unix:app-2"] = nil, held["unix:app-2"][1:]
		if got := take(); got != "unix:app-1" {
			t.Errorf("took %s with one to do, not unix:app-1 with nothing", got)
		}
		take()
		take()
		for name, slots := range held {
			if len(slots) != 2 {
				t.Errorf("%s has %d of its 2 slots in use", name, len(slots))
			}
			for _, slot := range slots {
				slot.Release()
			}
		}
	})
}

func TestLane_ATargetThatIsDownTakesItsSlotsOut(t *testing.T) {
	bubble(t, 2, lanes.Config{Slots: 4, Queue: 4}, upstream.Config{}, func(t *testing.T, lane *lanes.Lane, up *upstream.Upstream) {
		first, second := up.Targets()[0], up.Targets()[1]
		atFirst, atSecond := acquire(t, lane), acquire(t, lane)
		if atFirst.Target() != first {
			atFirst, atSecond = atSecond, atFirst
		}
		first.Fail(errGone)
		if got := places(lane); strings.Count(got, "busy") != 2 || strings.Count(got, "down") != 1 || strings.Count(got, "free") != 1 {
			t.Errorf("the slots are %s; want two busy, one down, one free", got)
		}
		other := acquire(t, lane)
		if other.Target() != second {
			t.Fatalf("a slot at %s, which is down", other.Target())
		}
		waiting := line(lane, 3)
		atFirst.Release() // of no use to anybody now
		synctest.Wait()
		for _, c := range waiting {
			c.wantWaiting(t)
		}
		atSecond.Release()
		got := waiting[0].wantSlot(t)
		if got.Target() != second {
			t.Fatalf("a slot at %s, which is down", got.Target())
		}
		waiting[1].wantWaiting(t)
		first.Answered()
		for _, c := range waiting[1:] {
			slot := c.wantSlot(t)
			if slot.Target() != first {
				t.Errorf("the target that is back gives no slot")
			}
			slot.Release()
		}
		got.Release()
		other.Release()
		if got := places(lane); got != "free free free free" {
			t.Errorf("the slots are %s", got)
		}
	})
}

// ---- Parking.

func TestLane_ParksUntilTheTargetIsBack(t *testing.T) {
	bubble(t, 1, lanes.Config{Slots: 2, Queue: 3}, upstream.Config{}, func(t *testing.T, lane *lanes.Lane, up *upstream.Upstream) {
		up.Targets()[0].Fail(errGone)
		waiting := line(lane, 3)
		time.Sleep(9 * time.Second)
		synctest.Wait()
		for _, c := range waiting {
			c.wantWaiting(t)
		}
		up.Targets()[0].Answered()
		a, b := waiting[0].wantSlot(t), waiting[1].wantSlot(t)
		waiting[2].wantWaiting(t)
		a.Release()
		waiting[2].wantSlot(t).Release()
		b.Release()
	})
}

func TestLane_UpstreamDownAtParkAndFromThenOnAtOnce(t *testing.T) {
	cfg := lanes.Config{Slots: 2, Queue: 3, QueueTimeout: time.Minute}
	bubble(t, 2, cfg, upstream.Config{Park: 4 * time.Second}, func(t *testing.T, lane *lanes.Lane, up *upstream.Upstream) {
		up.Targets()[0].Fail(errGone)
		time.Sleep(time.Hour) // one of two is not the upstream
		up.Targets()[1].Fail(errGone)
		early := come(lane)
		time.Sleep(3 * time.Second)
		late := come(lane)
		if _, after := early.wantRefused(t, lanes.UpstreamDown); after != 4*time.Second {
			t.Errorf("refused after %v, want 4s", after)
		}
		text, after := late.wantRefused(t, lanes.UpstreamDown)
		if after != time.Second {
			t.Errorf("refused after %v, want 1s: park counts from when the last target went down", after)
		}
		if !strings.HasPrefix(text, "lane web: no target has been up for 4s (") || !strings.HasSuffix(text, "); start the app") {
			t.Errorf("the refusal says %q", text)
		}
		if _, after := come(lane).wantRefused(t, lanes.UpstreamDown); after != 0 {
			t.Errorf("refused after %v, want at once", after)
		}
		up.Targets()[0].Answered()
		acquire(t, lane).Release()
		up.Targets()[0].Fail(errGone)
		if _, after := come(lane).wantRefused(t, lanes.UpstreamDown); after != 4*time.Second {
			t.Errorf("down again, refused after %v, want 4s", after)
		}
	})
}

func TestLane_BeforeTheFirstAnswerParkCountsFromTheStart(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		up := nowhere(dir, 1, upstream.Config{Park: 4 * time.Second})
		defer up.Close()
		up.Start()
		lane := lanes.New(lanes.Config{Name: "web", Slots: 1, Queue: 1}, up.Deal(1))
		defer lane.Close()
		time.Sleep(time.Second)
		if _, after := come(lane).wantRefused(t, lanes.UpstreamDown); after != 3*time.Second {
			t.Errorf("refused after %v, want 3s", after)
		}
	})
}

func TestLane_WhileParkedItsOwnBoundsCountToo(t *testing.T) {
	cfg := lanes.Config{Slots: 1, Queue: 1, QueueTimeout: 3 * time.Second}
	bubble(t, 1, cfg, upstream.Config{Park: 4 * time.Second}, func(t *testing.T, lane *lanes.Lane, up *upstream.Upstream) {
		up.Targets()[0].Fail(errGone)
		first := line(lane, 1)[0]
		if _, after := come(lane).wantRefused(t, lanes.LaneFull); after != 0 {
			t.Errorf("refused after %v, want at once", after)
		}
		if _, after := first.wantRefused(t, lanes.LaneTimeout); after != 3*time.Second {
			t.Errorf("refused after %v, want 3s", after)
		}
		if _, after := come(lane).wantRefused(t, lanes.UpstreamDown); after != time.Second {
			t.Errorf("refused after %v, want 1s", after)
		}
	})
}

func TestLane_WithoutAQueueNobodyParks(t *testing.T) {
	bubble(t, 1, lanes.Config{Slots: 1}, upstream.Config{}, func(t *testing.T, lane *lanes.Lane, up *upstream.Upstream) {
		up.Targets()[0].Fail(errGone)
		if _, after := come(lane).wantRefused(t, lanes.UpstreamDown); after != 0 {
			t.Errorf("refused after %v, want at once", after)
		}
	})
}

// A request whose target turns out to be gone had its turn already.
func TestSlot_WhoseTargetIsGoneWaitsInFront(t *testing.T) {
	cfg := lanes.Config{Slots: 1, Queue: 1, QueueTimeout: 3 * time.Second}
	bubble(t, 1, cfg, upstream.Config{Park: time.Minute}, func(t *testing.T, lane *lanes.Lane, up *upstream.Upstream) {
		slot := acquire(t, lane)
		behind := line(lane, 1)[0]
		done := make(chan error, 1)
		start := time.Now()
		go func() {
			_, err := slot.Do(context.Background(), post)
			done <- err
		}()
		synctest.Wait()
		behind.wantWaiting(t)
		if s := lane.Snapshot(); s.InUse != 0 || s.Waiting != 2 || places(lane) != "down" {
			t.Fatalf("with one in front: %d in use, %d waiting, slots %s", s.InUse, s.Waiting, places(lane))
		}
		// Back for a moment: who is in front has its turn, and finds it gone.
		up.Targets()[0].Answered()
		synctest.Wait()
		behind.wantWaiting(t)
		behind.leave()
		wantRefusal(t, <-done, lanes.LaneTimeout)
		if after := time.Since(start); after != 3*time.Second {
			t.Errorf("refused after %v, want 3s", after)
		}
		wantLoad(t, lane, 0, 0)
	})
}

// Exchanges go on in a lane that was closed, but nobody waits there.
func TestSlot_WhoseTargetIsGoneIsRefusedByAClosedLane(t *testing.T) {
	bubble(t, 1, lanes.Config{Slots: 1, Queue: 1}, upstream.Config{}, func(t *testing.T, lane *lanes.Lane, _ *upstream.Upstream) {
		slot := acquire(t, lane)
		lane.Close()
		start := time.Now()
		_, err := slot.Do(context.Background(), get)
		wantRefusal(t, err, lanes.Draining)
		if after := time.Since(start); after != 0 {
			t.Errorf("refused after %v, want at once", after)
		}
	})
}
