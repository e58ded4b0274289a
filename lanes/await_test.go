package lanes_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/lanes"
	"holdfast/upstream"
)

// Whoever awaits a slot must not be refused because others came first: the
// messages of held sockets.

// comePatiently awaits a slot in a goroutine.
func comePatiently(lane *lanes.Lane) comer {
	ctx, leave := context.WithCancel(context.Background())
	c := comer{leave, make(chan outcome, 1)}
	go func() {
		start := time.Now()
		slot, err := lane.Await(ctx)
		c.outcome <- outcome{slot, err, time.Since(start)}
	}()
	return c
}

// awaitLane is a lane of one slot whose target is up.
func awaitLane(t *testing.T, cfg lanes.Config, app upstream.Config) (*lanes.Lane, *upstream.Upstream) {
	t.Helper()
	up := nowhere(t.TempDir(), 1, app)
	setUp(up)
	cfg.Name, cfg.Slots = "web", 1
	lane := lanes.New(cfg, up.Deal(1))
	t.Cleanup(func() { lane.Close(); up.Close() })
	return lane, up
}

func TestAwait_TakesNoPlaceOfTheQueueAndWaitsInItsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lane, _ := awaitLane(t, lanes.Config{Queue: 1, QueueTimeout: time.Hour}, upstream.Config{})
		held := acquire(t, lane)
		var patient []comer
		for range 3 {
			patient = append(patient, comePatiently(lane))
			synctest.Wait()
		}
		page := come(lane)
		synctest.Wait()
		page.wantWaiting(t)
		come(lane).wantRefused(t, lanes.LaneFull)
		last := comePatiently(lane)
		synctest.Wait()
		if n := lane.Snapshot().Waiting; n != 5 {
			t.Fatalf("%d wait, want 5", n)
		}
		held.Release()
		for _, c := range append(patient, page, last) {
			c.wantSlot(t).Release()
		}
	})
}

func TestAwait_WaitsLongerThanTheQueueTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lane, _ := awaitLane(t, lanes.Config{Queue: 1, QueueTimeout: time.Second}, upstream.Config{})
		held := acquire(t, lane)
		c := comePatiently(lane)
		<-time.After(time.Hour)
		synctest.Wait()
		c.wantWaiting(t)
		held.Release()
		c.wantSlot(t).Release()
	})
}

func TestAwait_EndsWithParkWithTheLaneAndWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lane, up := awaitLane(t, lanes.Config{Queue: 0}, upstream.Config{Park: 10 * time.Second})
		up.Targets()[0].Fail(context.DeadlineExceeded)
		if _, after := comePatiently(lane).wantRefused(t, lanes.UpstreamDown); after > 11*time.Second {
			t.Errorf("refused after %v, want 10 s at most", after)
		}
		setUp(up)
		held := acquire(t, lane)
		left := comePatiently(lane)
		synctest.Wait()
		left.leave()
		if got := <-left.outcome; got.err != context.Canceled {
			t.Errorf("left with %v", got.err)
		}
		closed := comePatiently(lane)
		synctest.Wait()
		lane.Close()
		closed.wantRefused(t, lanes.Draining)
		comePatiently(lane).wantRefused(t, lanes.Draining)
		held.Release()
	})
}
