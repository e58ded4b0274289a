package histogram

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
)

func TestHistogram_ADurationCountsUpToItsBoundAndNotBelow(t *testing.T) {
	for i, bound := range Bounds {
		var h Histogram
		h.Observe(bound) // a bound takes its own
		h.Observe(bound + 1)
		s := h.Snapshot()
		for j := range Bounds {
			want := uint64(2)
			switch {
			case j < i:
				want = 0
			case j == i:
				want = 1
			}
			if s.Below[j] != want {
				t.Errorf("%v and a bit more: %d are up to %v, want %d", bound, s.Below[j], Bounds[j], want)
			}
		}
		if s.Count != 2 || s.Sum != 2*bound+1 {
			t.Errorf("%v and a bit more: %d, %v in all", bound, s.Count, s.Sum)
		}
	}
}

func TestHistogram_BoundsRise(t *testing.T) {
	if !slices.IsSorted(Bounds[:]) || len(slices.Compact(slices.Clone(Bounds[:]))) != len(Bounds) || Bounds[0] <= 0 {
		t.Errorf("bounds %v", Bounds)
	}
}

func TestHistogram_WhatIsBeyondTheLastBoundIsCountedInAll(t *testing.T) {
	var h Histogram
	if s := h.Snapshot(); s != (Snapshot{}) {
		t.Errorf("before anything it has %+v", s)
	}
	h.Observe(24 * time.Hour)
	h.Observe(0)
	s := h.Snapshot()
	if s.Count != 2 || s.Sum != 24*time.Hour || s.Below[0] != 1 || s.Below[len(Bounds)-1] != 1 {
		t.Errorf("%+v", s)
	}
}

func TestHistogram_CountsAreThoseOfWhatWasObserved(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var h Histogram
	var sum time.Duration
	var all []time.Duration
	for range 5000 {
		d := time.Duration(rng.Int64N(int64(time.Millisecond) << rng.IntN(18)))
		h.Observe(d)
		sum += d
		all = append(all, d)
	}
	slices.Sort(all)
	s := h.Snapshot()
	for i, bound := range Bounds {
		n, _ := slices.BinarySearch(all, bound+1)
		if s.Below[i] != uint64(n) {
			t.Errorf("%d are up to %v, want %d", s.Below[i], bound, n)
		}
	}
	if s.Count != 5000 || s.Sum != sum {
		t.Errorf("%d, %v in all; want 5000, %v", s.Count, s.Sum, sum)
	}
}

func TestHistogram_ObserversAtOnceLoseNothing(t *testing.T) {
	const observers, each = 8, 2000
	var h Histogram
	var running sync.WaitGroup
	for i := range observers {
		running.Go(func() {
			for n := range each {
				h.Observe(time.Duration(i*each+n) * time.Microsecond)
			}
		})
	}
	// What is read meanwhile is never more below a bound than below the next.
	for last := uint64(0); last < observers*each; {
		s := h.Snapshot()
		if !slices.IsSorted(s.Below[:]) || s.Count < s.Below[len(Bounds)-1] || s.Count < last {
			t.Fatalf("after %d: %+v", last, s)
		}
		last = s.Count
	}
	running.Wait()
	s := h.Snapshot()
	total := observers * each
	if want := time.Duration(total*(total-1)/2) * time.Microsecond; s.Count != uint64(total) || s.Sum != want {
		t.Errorf("%d, %v in all; want %d, %v", s.Count, s.Sum, total, want)
	}
	if want := uint64(1001); s.Below[1] != want { // up to a millisecond
		t.Errorf("%d are up to %v, want %d", s.Below[1], Bounds[1], want)
	}
}

func TestHistogram_ObservingAllocatesNothing(t *testing.T) {
	var h Histogram
	if n := testing.AllocsPerRun(1000, func() { h.Observe(time.Second) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
