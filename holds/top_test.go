package holds

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"go.uber.org/zap"
)

func TestTopChannels_AreTheLargestInOrder(t *testing.T) {
	s := newStage(Config{})
	h := &Holds{hub: s.hub}
	if top, n := h.TopChannels(3); len(top) != 0 || n != 0 {
		t.Errorf("of none: %v of %d", top, n)
	}
	var all []ChannelCount
	for i, members := range rand.Perm(40) {
		name := fmt.Sprintf("channel-%02d", i)
		for range members/2 + 1 { // two and two have as many
			s.open(-1, name)
		}
		all = append(all, ChannelCount{name, members/2 + 1})
	}
	s.publish("x", "nobody-is-here")
	slices.SortFunc(all, func(a, b ChannelCount) int {
		if a.Holds != b.Holds {
			return b.Holds - a.Holds
		}
		return map[bool]int{true: -1, false: 1}[a.Name < b.Name]
	})
	for _, most := range []int{0, 1, 7, 40, 100} {
		top, n := h.TopChannels(most)
		if n != 40 || !slices.Equal(top, all[:min(most, 40)]) {
			t.Errorf("the %d largest of %d: %v, want %v", most, n, top, all[:min(most, 40)])
		}
	}
}

func TestHolds_HasAsManyLoopsAsItIsToldTo(t *testing.T) {
	for _, n := range []int{1, 3} {
		h, err := New(Config{Loops: n}, zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		if got := len(h.hub.loops); got != n {
			t.Errorf("%d loops, want %d", got, n)
		}
		h.Close()
	}
}
