// Package histogram counts durations in fixed buckets, without a lock and
// without an allocation, so that it may stand on a request's path.
package histogram

import (
	"sync/atomic"
	"time"
)

// Bounds are the upper bounds of the buckets; one more takes what is beyond.
var Bounds = [...]time.Duration{
	500 * time.Microsecond, time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
	10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond,
	250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2500 * time.Millisecond,
	5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute,
}

// Histogram counts durations. The zero value is ready.
type Histogram struct {
	buckets [len(Bounds) + 1]atomic.Uint64
	nanos   atomic.Int64
}

// Observe counts d.
func (h *Histogram) Observe(d time.Duration) {
	i := 0
	for i < len(Bounds) && d > Bounds[i] {
		i++
	}
	h.buckets[i].Add(1)
	h.nanos.Add(int64(d))
}

// Snapshot is a copy of the counts.
type Snapshot struct {
	// Below counts, for each of Bounds, the durations up to it.
	Below [len(Bounds)]uint64
	Count uint64
	Sum   time.Duration
}

// Snapshot copies the counts.
func (h *Histogram) Snapshot() (s Snapshot) {
	for i := range Bounds {
		s.Count += h.buckets[i].Load()
		s.Below[i] = s.Count
	}
	s.Count += h.buckets[len(Bounds)].Load()
	s.Sum = time.Duration(h.nanos.Load())
	return s
}
