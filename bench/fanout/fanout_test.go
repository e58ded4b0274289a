package fanout

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"holdfast/bench/holders"
	"holdfast/bench/peer"
)

func TestScaled_KeepsHoldsAChannel(t *testing.T) {
	bench := &peer.Bench{Short: true}
	for _, c := range Cases() {
		small := scaled(bench, c)
		if small.Holds > 50 || small.Channels > 10 || small.Holds < small.Channels || small.Holds%small.Channels != 0 {
			t.Errorf("%s: %d holds on %d channels", c.Name, small.Holds, small.Channels)
		}
		if full := scaled(&peer.Bench{}, c); full.Holds != c.Holds || full.Channels != c.Channels {
			t.Errorf("%s: not whole in a run that counts", c.Name)
		}
	}
}

func TestInTurns_CallsEachNumberOnceAndStopsAtAnError(t *testing.T) {
	var seen [1000]atomic.Int32
	if err := inTurns(len(seen), func(n int) error { seen[n].Add(1); return nil }); err != nil {
		t.Fatal(err)
	}
	for n := range seen {
		if seen[n].Load() != 1 {
			t.Fatalf("number %d was called %d times", n, seen[n].Load())
		}
	}
	var calls atomic.Int32
	wrong := errors.New("wrong")
	err := inTurns(1_000_000, func(n int) error {
		calls.Add(1)
		if n == 100 {
			return wrong
		}
		return nil
	})
	if !errors.Is(err, wrong) || calls.Load() == 1_000_000 {
		t.Errorf("%v after %d calls", err, calls.Load())
	}
}

func TestCases_DrawAColumnThatTheyHave(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range Cases() {
		if seen[c.Name] {
			t.Errorf("%s is there twice", c.Name)
		}
		seen[c.Name] = true
		found := false
		for _, column := range c.Columns {
			found = found || column.Key == c.Drawn
		}
		if !found {
			t.Errorf("%s draws %s, which it has not", c.Name, c.Drawn)
		}
	}
}

// Every case with the servers that are installed, in a short run; Pushpin takes
// long, and has its turn in the test of package holders.
func TestRun_AShortRunMeasuresEveryCase(t *testing.T) {
	bench, err := peer.New(io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bench.Close)
	bench.Short, bench.Only = true, slices.DeleteFunc(holders.Available(), func(name string) bool { return name == holders.Pushpin })
	report, err := Run(t.Context(), bench)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	report.Print(&out)
	if !report.Valid() || len(report.Tables) != len(Cases()) || strings.Contains(out.String(), "NaN") {
		t.Errorf("%s", out.String())
	}
	t.Log(out.String())
}
