package bus

import (
	"context"
	"errors"
	"slices"
	"testing"
)

// script is a source that answers as written.
type script struct {
	looks   []look
	waits   [][]Entry
	renewed []int64
}

var errEnd = errors.New("the script ends")

func (s *script) read(context.Context, int64) (look, error) {
	if len(s.looks) == 0 {
		return look{}, errEnd
	}
	l := s.looks[0]
	s.looks = s.looks[1:]
	return l, nil
}

func (s *script) renew(_ context.Context, unknown int64) error {
	s.renewed = append(s.renewed, unknown)
	return nil
}

func (s *script) wait(context.Context, int64) ([]Entry, error) {
	if len(s.waits) == 0 {
		return nil, errEnd
	}
	entries := s.waits[0]
	s.waits = s.waits[1:]
	return entries, nil
}

// chain is entries, each after the one before it.
func chain(from int64, ids ...int64) (all []Entry) {
	for _, id := range ids {
		all = append(all, Entry{ID: id, Prev: from})
		from = id
	}
	return all
}

func TestFollow_WhatComesWithTheWakingIsTakenOnlyIfItFollows(t *testing.T) {
	log := State{Start: 1000, Floor: 1000, Head: 5000}
	f := newSeen(1000)
	err := follow(t.Context(), &script{
		looks: []look{{state: log, known: true}, {state: log, known: true}, {state: log, known: true, entries: chain(2000, 3000, 4000)}, {state: log, known: true}},
		waits: [][]Entry{chain(1000, 2000), chain(3000, 4000)}, // the second is not the next
	}, 1000, f)
	if !errors.Is(err, ErrDown) || !errors.Is(err, errEnd) {
		t.Errorf("ended with %v", err)
	}
	f.bodies(t)
	if got := f.ids(); !slices.Equal(got, []int64{2000, 3000, 4000}) || len(f.begun) != 1 {
		t.Errorf("followed %v, begun %v", got, f.begun)
	}
}

func TestFollow_WhoFallsBehindTheFloorIsTold(t *testing.T) {
	f := newSeen(1000)
	first, later := State{Start: 1000, Floor: 1000, Head: 2000}, State{Start: 1000, Floor: 6000, Head: 7000}
	follow(t.Context(), &script{looks: []look{
		{state: first, known: true, entries: chain(1000, 2000)},
		{state: later, known: true}, // all that there was is gone
	}}, 1000, f)
	f.bodies(t)
	if !slices.Equal(f.begun, []State{first, later}) || f.gaps != 1 || !slices.Equal(f.ids(), []int64{2000}) {
		t.Errorf("begun %+v, followed %v", f.begun, f.ids())
	}
}

func TestFollow_AnotherLogThatHasThePositionTooIsTold(t *testing.T) {
	f := newSeen(1000)
	one, other := State{Start: 1000, Floor: 1000, Head: 3000}, State{Start: 2000, Floor: 2000, Head: 4000}
	follow(t.Context(), &script{looks: []look{
		{state: one, known: true, entries: chain(1000, 2000, 3000)},
		{state: other, known: true, entries: chain(3000, 4000)},
		{state: other, known: true},
	}}, 1000, f)
	f.bodies(t)
	if !slices.Equal(f.begun, []State{one, other}) {
		t.Errorf("begun %+v", f.begun)
	}
}

func TestFollow_ALogThatContradictsItselfEndsIt(t *testing.T) {
	log := State{Start: 1000, Floor: 1000, Head: 5000}
	for name, s := range map[string]*script{
		"an entry that names an older one":   {looks: []look{{state: log, known: true, entries: slices.Concat(chain(1000, 2000), chain(1000, 3000))}}},
		"an unknown position that stays one": {looks: []look{{state: log}, {state: log}}},
	} {
		f := newSeen(1000)
		if err := follow(t.Context(), s, 1000, f); !errors.Is(err, ErrDown) || errors.Is(err, errEnd) || len(f.entries) > 0 {
			t.Errorf("%s: %v, %d entries", name, err, len(f.entries))
		}
	}
}

func TestFollow_APositionThatTheLogLostMakesItAnother(t *testing.T) {
	lost, other := State{Start: 1000, Floor: 1000, Head: 9000}, State{Start: 10_001, Floor: 10_001, Head: 10_001}
	s := &script{looks: []look{{state: lost, entries: chain(8000, 9000)}, {state: other, known: true}}}
	f := newSeen(5000)
	follow(t.Context(), s, 5000, f)
	if f.bodies(t); !slices.Equal(s.renewed, []int64{5000}) || !slices.Equal(f.begun, []State{other}) || f.gaps != 1 || len(f.entries) > 0 {
		t.Errorf("renewed %v, begun %+v, followed %v", s.renewed, f.begun, f.ids())
	}
}
