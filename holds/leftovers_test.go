package holds

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestLeftovers_GoBackOnceManyHoldsWereOpenedAndNoMoreAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var given atomic.Int32
		l := leftovers{give: func() { given.Add(1) }}
		open := func(n int, then time.Duration) {
			for range n {
				l.add()
			}
			time.Sleep(then)
			synctest.Wait()
		}
		for _, c := range []struct {
			open int
			then time.Duration
			want int
		}{
			{leftoversOf - 1, time.Minute, 0}, // too few
			{1, leftoversCalm / 2, 0},         // more may follow
			{1, leftoversCalm - time.Millisecond, 0},
			{0, 2 * leftoversCalm, 1},
			{leftoversOf - 1, time.Hour, 1}, // counted anew, and once
			{5 * leftoversOf, 2*leftoversCalm + time.Millisecond, 2},
		} {
			if open(c.open, c.then); int(given.Load()) != c.want {
				t.Fatalf("%d opened, then %v: memory went back %d times, want %d", c.open, c.then, given.Load(), c.want)
			}
		}
	})
}
