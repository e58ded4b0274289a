package bus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// numbers are the bodies "from" to "to".
func numbers(from, to int) (all []string) {
	for i := from; i <= to; i++ {
		all = append(all, strconv.Itoa(i))
	}
	return all
}

func TestBus_WhatIsPublishedIsFollowedInOrderWithItsIDs(t *testing.T) {
	onEach(t, func(t *testing.T, s *stage) {
		b := s.open(t, "")
		before := stateOf(t, b)
		f, _ := followNow(t, b, before.Head)
		f.until(t, "begun", func() bool { return len(f.begun) == 1 })
		var ids []int64
		for _, body := range numbers(1, 20) {
			ids = append(ids, publishNow(t, b, body)...)
		}
		together := publishNow(t, b, numbers(21, 40)...)
		for i := 1; i < len(together); i++ {
			if together[i] != together[i-1]+1000 {
				t.Fatalf("ids of one publish are no neighbours: %v", together)
			}
		}
		ids = append(ids, together...)
		f.untilBody(t, "40")
		f.wantBodies(t, numbers(1, 40))
		if got := f.ids(); !slices.Equal(got, ids) {
			t.Errorf("followed the ids %v, want %v", got, ids)
		}
		if !slices.IsSorted(ids) || ids[0] <= before.Head {
			t.Errorf("ids %v do not increase from %d on", ids, before.Head)
		}
		if after := stateOf(t, b); after.Head != ids[39] || after.Start != before.Start || after.Floor != before.Floor {
			t.Errorf("state %+v, want the head %d and the rest of %+v", after, ids[39], before)
		}
		for _, e := range f.entries {
			if d := f.entries[0].At.Sub(e.At); e.At.UnixMicro() < before.Start-1000 || d > 0 {
				t.Errorf("entry %d was taken at %v", e.ID, e.At)
			}
		}
	})
}

func TestBus_FollowedFromEveryPosition(t *testing.T) {
	onEach(t, func(t *testing.T, s *stage) {
		b := s.open(t, "")
		start := stateOf(t, b).Start
		ids := append([]int64{start}, publishNow(t, b, numbers(1, 10)...)...)
		for i, id := range ids {
			f, stop := followNow(t, b, id)
			if i < 10 {
				f.untilBody(t, "10")
			}
			f.until(t, "begun", func() bool { return len(f.begun) == 1 })
			stop()
			f.wantBodies(t, numbers(i+1, 10))
			if f.gaps != 0 {
				t.Errorf("from %d: a gap was told", id)
			}
		}
		f, _ := followNow(t, b, 0)
		f.untilBody(t, "10")
		f.wantBodies(t, numbers(1, 10))
	})
}

func TestBus_AnEmptyLogBeginsAndWaits(t *testing.T) {
	onEach(t, func(t *testing.T, s *stage) {
		b := s.open(t, "")
		state := stateOf(t, b)
		if state.Start != state.Floor || state.Floor != state.Head || state.Start < 1e15 {
			t.Errorf("an empty log's state is %+v", state)
		}
		f, stop := followNow(t, b, 0)
		f.until(t, "begun", func() bool { return len(f.begun) == 1 })
		stop()
		if f.begun[0] != state || len(f.entries) != 0 {
			t.Errorf("begun with %+v, %d entries; want %+v", f.begun, len(f.entries), state)
		}
	})
}

func TestBus_ABrokenConnectionIsResumedWhereItBroke(t *testing.T) {
	onEach(t, func(t *testing.T, s *stage) {
		b, publisher := s.open(t, ""), s.apart(t, "")
		f, _ := followNow(t, b, stateOf(t, b).Head)
		f.until(t, "begun", func() bool { return len(f.begun) == 1 })
		n := 0
		for round := range 5 {
			for range 10 {
				n++
				publishNow(t, publisher, strconv.Itoa(n))
			}
			if round == 2 {
				f.untilBody(t, strconv.Itoa(n)) // once, cut while it waits
			}
			s.cut()
		}
		f.untilBody(t, "50")
		f.wantBodies(t, numbers(1, 50))
		if f.gaps != 0 {
			t.Errorf("%d gaps were told, nothing was missing", f.gaps)
		}
	})
}

func TestBus_SeveralPublishersHaveOneOrderForAllFollowers(t *testing.T) {
	onEach(t, func(t *testing.T, s *stage) {
		one, two := s.open(t, ""), s.open(t, "")
		head := stateOf(t, one).Head
		var followers []*seen
		for _, b := range []Bus{one, one, two} {
			f, _ := followNow(t, b, head)
			followers = append(followers, f)
		}
		var all sync.WaitGroup
		var mu sync.Mutex
		ids := map[int64]string{}
		for p, b := range []Bus{one, two, one, two} {
			all.Go(func() {
				for i := range 50 {
					body := fmt.Sprintf("%d %d", p, i)
					got := publishNow(t, b, body)
					mu.Lock()
					ids[got[0]] = body
					mu.Unlock()
				}
			})
		}
		all.Wait()
		for _, f := range followers {
			f.until(t, "all", func() bool { return len(f.entries) >= 200 })
			bodies := f.bodies(t)
			if !slices.Equal(bodies, followers[0].bodies(t)) || len(bodies) != 200 {
				t.Errorf("another order for another follower")
			}
			for i, id := range f.ids() {
				if ids[id] != bodies[i] {
					t.Errorf("the id %d was given to %q and followed with %q", id, ids[id], bodies[i])
				}
			}
			next := [4]int{}
			for _, body := range bodies {
				p, n, _ := strings.Cut(body, " ")
				at, _ := strconv.Atoi(p)
				if n != strconv.Itoa(next[at]) {
					t.Fatalf("publisher %d: %s followed, want %d", at, n, next[at])
				}
				next[at]++
			}
		}
	})
}

func TestBus_BodiesComeAsTheyWereGiven(t *testing.T) {
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // 1 MiB
	random := make([]byte, 100_000)
	for i := range random {
		random[i] = byte(rand.Uint32())
	}
	bodies := [][]byte{
		{}, nil, []byte("\x00"), []byte("a\r\nb\n\nc"), []byte(`{"channel":"news"`), []byte("\xff\xfe\xc0\x80"), []byte("'; DROP TABLE log; --"),
		[]byte(`\x00 $1 %s ${x}`), []byte("ünï \u2028 𝄞"), bytes.Repeat([]byte{0}, 9000), big, random, big, []byte("end"),
	}
	onEach(t, func(t *testing.T, s *stage) {
		b := s.open(t, "")
		f, _ := followNow(t, b, 0)
		_, err := b.Publish(ctxOf(t), bodies)
		must(t, err)
		f.untilBody(t, "end")
		f.bodies(t)
		for i, e := range f.entries {
			if !bytes.Equal(e.Body, bodies[i]) {
				t.Errorf("body %d: %d bytes, want %d, or others", i, len(e.Body), len(bodies[i]))
			}
		}
	})
}

func TestBus_WhatIsTooLargeIsRefusedWhole(t *testing.T) {
	onEach(t, func(t *testing.T, s *stage) {
		b := s.open(t, "")
		before := stateOf(t, b)
		for name, bodies := range map[string][][]byte{
			"one body":    {[]byte("small"), make([]byte, MaxBody+1)},
			"together":    slices.Repeat([][]byte{make([]byte, MaxBody)}, 5),
			"too many":    make([][]byte, MaxBodies+1),
			"none at all": nil,
		} {
			ids, err := b.Publish(ctxOf(t), bodies)
			if bodies != nil && !errors.Is(err, ErrTooLarge) || bodies == nil && err != nil || ids != nil {
				t.Errorf("%s: %v, %v", name, ids, err)
			}
		}
		if after := stateOf(t, b); after != before {
			t.Errorf("state %+v, want %+v as before", after, before)
		}
	})
}

func TestBus_AnEngineThatIsGoneAddsNothingAndIsComeBackTo(t *testing.T) {
	onEach(t, func(t *testing.T, s *stage) {
		b := s.open(t, "")
		f, _ := followNow(t, b, 0)
		publishNow(t, b, "1")
		f.untilBody(t, "1")
		for range 3 {
			s.cut()
			_, err := b.Publish(ctxOf(t), byteBodies([]string{"maybe"}))
			if err != nil && !errors.Is(err, ErrDown) && !errors.Is(err, ErrUnknown) {
				t.Errorf("Publish on a broken connection: %v", err)
			}
		}
		for {
			if _, err := b.Publish(ctxOf(t), byteBodies([]string{"2"})); err == nil {
				break
			}
			pause(ctxOf(t))
		}
		f.untilBody(t, "2")
		f.bodies(t)
		stateOf(t, b)
	})
}

func TestBus_AnEngineThatDoesNotAnswerIsGivenUp(t *testing.T) {
	for _, e := range engines[1:] {
		t.Run(e.name, func(t *testing.T) {
			pollSoon(t)
			s := e.stage(t)
			b := s.open(t, "")
			publishNow(t, b, "1")
			f, result := newSeen(0), make(chan error, 1)
			go func() { result <- b.Follow(t.Context(), 0, f) }()
			f.untilBody(t, "1")
			s.hold(true)
			if _, err := b.Publish(ctxOf(t), byteBodies([]string{"2"})); !errors.Is(err, ErrUnknown) && !errors.Is(err, ErrDown) {
				t.Errorf("Publish: %v", err)
			}
			if err := <-result; !errors.Is(err, ErrDown) {
				t.Errorf("Follow: %v", err)
			}
			if _, err := b.State(ctxOf(t)); !errors.Is(err, ErrDown) {
				t.Errorf("State: %v", err)
			}
			s.hold(false)
			publishNow(t, b, "3")
			stateOf(t, b)
		})
	}
}

func TestBus_APublishWhoseAnswerIsLostMayHaveBeenAddedAndIsNotRepeated(t *testing.T) {
	for _, e := range engines[1:] {
		t.Run(e.name, func(t *testing.T) {
			before := trustTime
			trustTime = patience // so that it is the publish that is not answered
			t.Cleanup(func() { trustTime = before })
			s := e.stage(t)
			b := s.open(t, "")
			publishNow(t, b, "1")
			f, _ := followNow(t, s.apart(t, ""), 0)
			s.mute(true)
			if _, err := b.Publish(ctxOf(t), byteBodies([]string{"2"})); !errors.Is(err, ErrUnknown) {
				t.Errorf("Publish: %v", err)
			}
			s.mute(false)
			publishNow(t, b, "3")
			f.untilBody(t, "3")
			f.wantBodies(t, numbers(1, 3))
		})
	}
}

func TestBus_ACallEndsWithItsContext(t *testing.T) {
	onEach(t, func(t *testing.T, s *stage) {
		b := s.open(t, "")
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := b.Publish(ended, byteBodies([]string{"never"})); !errors.Is(err, context.Canceled) || !errors.Is(err, ErrDown) {
			t.Errorf("Publish: %v", err)
		}
		if _, err := b.State(ended); !errors.Is(err, context.Canceled) {
			t.Errorf("State: %v", err)
		}
		if err := b.Renew(ended, 1); !errors.Is(err, context.Canceled) {
			t.Errorf("Renew: %v", err)
		}
		if err := b.Follow(ended, 0, newSeen(0)); !errors.Is(err, context.Canceled) {
			t.Errorf("Follow: %v", err)
		}
		// And while it waits.
		ctx, cancel := context.WithCancel(t.Context())
		f, result := newSeen(0), make(chan error, 1)
		go func() { result <- b.Follow(ctx, 0, f) }()
		f.until(t, "begun", func() bool { return len(f.begun) == 1 })
		cancel()
		if err := <-result; !errors.Is(err, context.Canceled) {
			t.Errorf("Follow that waits: %v", err)
		}
		publishNow(t, b, "1")
		f, _ = followNow(t, b, 0)
		f.untilBody(t, "1")
		f.wantBodies(t, []string{"1"})
	})
}

func TestBus_CloseEndsEveryCall(t *testing.T) {
	onEach(t, func(t *testing.T, s *stage) {
		b := s.open(t, "")
		f, result := newSeen(0), make(chan error, 1)
		go func() { result <- b.Follow(context.Background(), 0, f) }()
		f.until(t, "begun", func() bool { return len(f.begun) == 1 })
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				for {
					_, err := b.Publish(context.Background(), byteBodies([]string{"x"}))
					switch {
					case errors.Is(err, ErrClosed):
						return
					case err != nil && !errors.Is(err, ErrUnknown):
						t.Errorf("Publish while it is closed: %v", err)
						return
					}
				}
			})
		}
		f.until(t, "some", func() bool { return len(f.entries) > 5 })
		must(t, b.Close())
		must(t, b.Close())
		all.Wait()
		if err := <-result; !errors.Is(err, ErrClosed) {
			t.Errorf("Follow: %v", err)
		}
		_, err := b.State(t.Context())
		for call, err := range map[string]error{"State": err, "Renew": b.Renew(t.Context(), 0), "Follow": b.Follow(t.Context(), 0, f)} {
			if !errors.Is(err, ErrClosed) {
				t.Errorf("%s: %v", call, err)
			}
		}
	})
}

func TestBus_ALateFollowerCatchesUpWithMuchInSmallBatches(t *testing.T) {
	onEach(t, func(t *testing.T, s *stage) {
		b := s.open(t, "")
		for i := range 4 {
			publishNow(t, b, numbers(i*500+1, i*500+500)...)
		}
		f, _ := followNow(t, b, 0)
		f.untilBody(t, "2000")
		f.wantBodies(t, numbers(1, 2000))
	})
}
