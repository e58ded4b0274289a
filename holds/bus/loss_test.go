package bus

import (
	"fmt"
	"slices"
	"testing"
)

func TestBus_OnlySoManyEntriesAreKept(t *testing.T) {
	onEach(t, func(t *testing.T, s *stage) {
		b := s.open(t, "entries=5")
		var ids []int64
		for _, body := range numbers(1, 12) {
			ids = append(ids, publishNow(t, b, body)...)
		}
		state := stateOf(t, b)
		if state.Floor != ids[6] || state.Head != ids[11] {
			t.Errorf("state %+v, want the floor %d and the head %d", state, ids[6], ids[11])
		}
		f, stop := followNow(t, b, ids[2])
		f.untilBody(t, "12")
		stop()
		f.wantBodies(t, numbers(8, 12))
		if f.gaps != 1 || len(f.begun) != 1 || f.begun[0] != state {
			t.Errorf("from below the floor: %d gaps, begun %+v; want one and %+v", f.gaps, f.begun, state)
		}
		f, stop = followNow(t, b, ids[6])
		f.untilBody(t, "12")
		stop()
		f.wantBodies(t, numbers(8, 12))
		if f.gaps != 0 {
			t.Error("from the floor on: nothing is missing, and a gap was told")
		}
	})
}

func TestBus_EntriesAreKeptForSoLong(t *testing.T) {
	onEach(t, func(t *testing.T, s *stage) {
		b := s.open(t, "keep=1s")
		ids := publishNow(t, b, numbers(1, 3)...)
		f := newSeen(0)
		// Ever new ones, until those are older than a second by the engine's clock.
		var last []int64
		for i := 0; stateOf(t, b).Floor < ids[2]; i++ {
			last = publishNow(t, b, "later")
			pause(ctxOf(t))
			if i > 3000 {
				t.Fatal("entries older than keep stay")
			}
		}
		stop := followWith(t, b, f)
		f.until(t, "the last", func() bool { return f.last >= last[0] })
		stop()
		for _, body := range f.bodies(t) {
			if body != "later" {
				t.Errorf("%q is followed, though it is below the floor", body)
			}
		}
		if f.gaps != 1 {
			t.Errorf("%d gaps were told, want one", f.gaps)
		}
	})
}

func TestBus_ALogThatIsLostIsAnotherAndNobodyIsLeftInSilence(t *testing.T) {
	onEach(t, func(t *testing.T, s *stage) {
		one, two := s.open(t, ""), s.open(t, "")
		f, _ := followNow(t, one, 0)
		ids := publishNow(t, one, numbers(1, 50)...) // runs ahead of the clock
		f.untilBody(t, "50")
		s.flush()
		publishNow(t, two, "new") // by whoever does not follow
		f.until(t, "another log", func() bool { return len(f.begun) > 1 && f.begun[len(f.begun)-1].Start != f.begun[0].Start })
		state := f.begun[len(f.begun)-1]
		if state.Start <= ids[0] {
			t.Errorf("the other log begins at %d, not above %d", state.Start, ids[0])
		}
		publishNow(t, two, "newer")
		f.untilBody(t, "newer")
		if got := f.ids(); !slices.IsSorted(got) {
			t.Errorf("ids go back: %v", got)
		}
		f.bodies(t)
		if f.gaps == 0 {
			t.Error("nothing was told")
		}
	})
}

func TestBus_ARestoredLogIsAnotherForWhoeverSawMore(t *testing.T) {
	for _, publishedSince := range []bool{false, true} {
		t.Run(fmt.Sprintf("published since %v", publishedSince), func(t *testing.T) {
			onEach(t, func(t *testing.T, s *stage) {
				one, two := s.open(t, ""), s.open(t, "")
				f, stop := followNow(t, one, 0)
				publishNow(t, one, numbers(1, 5)...)
				s.save()
				ids := publishNow(t, one, numbers(6, 9)...)
				f.untilBody(t, "9")
				stop()
				s.restore()
				if publishedSince { // its head may be above what was seen by now
					for stateOf(t, two).Head <= ids[3] {
						publishNow(t, two, "between")
					}
				}
				before := stateOf(t, one)
				stop = followWith(t, one, f)
				f.until(t, "another log", func() bool { return len(f.begun) > 1 })
				state := f.begun[1]
				if state.Tag() == before.Tag() || state.Start <= ids[3] || state.Floor != state.Start || state.Start <= before.Head {
					t.Errorf("begun with %+v, want another tag than %+v and all above %d", state, before, ids[3])
				}
				publishNow(t, two, "new")
				f.untilBody(t, "new")
				stop()
				f.wantBodies(t, append(numbers(1, 9), "new"))
				if f.gaps != 2 { // at 0, and now
					t.Errorf("%d gaps were told, want 2", f.gaps)
				}
			})
		})
	}
}

func TestBus_RenewMakesAnotherLogOnlyIfTheHeadIsBelow(t *testing.T) {
	onEach(t, func(t *testing.T, s *stage) {
		b := s.open(t, "")
		ids := publishNow(t, b, numbers(1, 3)...)
		before := stateOf(t, b)
		for _, seen := range []int64{0, ids[0], ids[1] - 1, ids[2]} {
			must(t, b.Renew(ctxOf(t), seen))
		}
		if after := stateOf(t, b); after != before {
			t.Errorf("state %+v, want %+v as before", after, before)
		}
		seen := ids[2] + 5_000_123
		must(t, b.Renew(ctxOf(t), seen))
		after := stateOf(t, b)
		if after.Tag() == before.Tag() || after.Start <= seen || after.Floor != after.Start || after.Head != after.Start {
			t.Errorf("state %+v, want another tag than %d and all above %d", after, before.Tag(), seen)
		}
		must(t, b.Renew(ctxOf(t), seen)) // somebody else, late
		if again := stateOf(t, b); again != after {
			t.Errorf("state %+v, want %+v as before", again, after)
		}
		for _, seen := range []int64{-1, maxPosition + 1} {
			if err := b.Renew(ctxOf(t), seen); err == nil {
				t.Errorf("Renew(%d) is done", seen)
			}
		}
		f, _ := followNow(t, b, after.Head)
		publishNow(t, b, "new")
		f.untilBody(t, "new")
		f.wantBodies(t, []string{"new"})
	})
}

func TestBus_SeveralWhoSawTheLostOnesRenewItOnce(t *testing.T) {
	onEach(t, func(t *testing.T, s *stage) {
		b := s.open(t, "")
		publishNow(t, b, numbers(1, 2)...)
		s.save()
		ids := publishNow(t, b, numbers(3, 8)...)
		s.restore()
		var followers []*seen
		for _, id := range ids {
			f := newSeen(id)
			followers = append(followers, f)
			followWith(t, s.open(t, ""), f)
		}
		for _, f := range followers {
			f.until(t, "begun", func() bool { return len(f.begun) > 0 })
		}
		publishNow(t, b, "new")
		state := stateOf(t, b)
		for _, f := range followers {
			f.untilBody(t, "new")
			if last := f.begun[len(f.begun)-1]; last.Start != state.Start {
				t.Errorf("a follower is at the log of %d, the log is of %d", last.Start, state.Start)
			}
		}
	})
}
