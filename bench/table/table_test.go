package table

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"holdfast/bench/peer"
)

func example() *Table {
	t := &Table{
		Benchmark: "held", Case: "few", Title: "Four holds.", First: "server", Base: "holdfast",
		Columns: []Column{
			{Key: "bytes", Heading: "bytes", Spread: true, Ratio: true},
			{Key: "ms", Heading: "ms", Decimals: 1},
		},
		Notes: []string{"A note."}, OtherCores: []float64{0.25},
	}
	t.Row("holdfast").Rounds = []map[string]float64{{"bytes": 1000, "ms": 2}, {"bytes": 2000, "ms": 2.26}, {"bytes": 1000, "ms": 2.4}}
	t.Row("other").Rounds = []map[string]float64{{"bytes": 3000}, {"bytes": 6000}, {"bytes": 3000}}
	t.Row("broken").Failure = "it | ended"
	return t
}

func TestTable_ARatioIsTakenWithinARound(t *testing.T) {
	// The machine is half as good in the middle round; the ratio is 3 throughout.
	of := example()
	if got, ok := of.Ratio(of.Row("other"), "bytes"); !ok || got != 3 {
		t.Fatalf("ratio %v, %v", got, ok)
	}
	for _, name := range []string{"holdfast", "broken"} {
		if got, ok := of.Ratio(of.Row(name), "bytes"); ok {
			t.Errorf("%s has a ratio of %v", name, got)
		}
	}
	if _, ok := of.Ratio(of.Row("other"), "ms"); ok {
		t.Error("a ratio of what the row does not have")
	}
}

func TestTable_PrintsFiguresSpreadsAndCauses(t *testing.T) {
	var out bytes.Buffer
	example().Print(&out)
	want := `held few: Four holds.
other work took 0.25 cores meanwhile

    server                bytes  x holdfast   ms
  holdfast  1,000 (1,000–2,000)           -  2.3
     other  3,000 (3,000–6,000)        3.00    -
    broken              invalid                 
broken: invalid: it | ended
A note.
`
	if out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", out.String(), want)
	}
}

func TestTable_MarkdownHasTheSameAndNoCellIsLeft(t *testing.T) {
	var out bytes.Buffer
	example().Markdown(&out)
	want := `Four holds.

| server | bytes | x holdfast | ms |
|---|---|---|---|
| **holdfast** | 1,000 (1,000–2,000) | - | 2.3 |
| other | 3,000 (3,000–6,000) | 3.00 | - |
| broken | it \| ended | | |

A note.

Other work took 0.25 cores meanwhile.
`
	if out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", out.String(), want)
	}
}

func TestTable_JSONLinesHaveEachRoundAndEachFailure(t *testing.T) {
	var out bytes.Buffer
	if err := example().JSONLines(&out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 7 || lines[1] != `{"benchmark":"held","case":"few","row":"holdfast","round":2,"values":{"bytes":2000,"ms":2.26}}` ||
		lines[6] != `{"benchmark":"held","case":"few","row":"broken","failure":"it | ended"}` {
		t.Errorf("got %d lines:\n%s", len(lines), out.String())
	}
}

func TestTable_OneFailureMakesItInvalid(t *testing.T) {
	of := example()
	if of.Valid() || (&Report{Tables: []*Table{of}}).Valid() || (&Report{}).Valid() {
		t.Error("valid although a row failed, or there is nothing")
	}
	of.Rows = of.Rows[:2]
	if !of.Valid() {
		t.Error("not valid although no row failed")
	}
	of.Row("empty")
	if of.Valid() {
		t.Error("valid although a row has no rounds")
	}
}

func TestNumber_HasCommasBetweenThousands(t *testing.T) {
	for want, value := range map[string]float64{"0": 0, "999": 999, "1,000": 1000, "1,234,567": 1234567, "-12,345": -12345} {
		if got := number(value, 0); got != want {
			t.Errorf("%v: %s, want %s", value, got, want)
		}
	}
	if got := number(1234.56, 1); got != "1,234.6" {
		t.Error(got)
	}
}

func TestReplace_ChangesItsRegionAndNothingElse(t *testing.T) {
	page := "# Page\n\n<!-- bench held -->\nold\n<!-- end of bench held -->\n\nmine\n"
	want := "# Page\n\n<!-- bench held -->\n\nnew\n\n<!-- end of bench held -->\n\nmine\n"
	got, err := Replace([]byte(page), "held", []byte("new\n"))
	if err != nil || string(got) != want {
		t.Fatalf("%v, %q", err, got)
	}
	if again, err := Replace(got, "held", []byte("new")); err != nil || string(again) != want {
		t.Errorf("a second time: %v, %q", err, again)
	}
	for _, page := range []string{
		"", "<!-- bench held -->\n", "<!-- end of bench held -->\n",
		"<!-- end of bench held -->\n<!-- bench held -->\n",
		strings.Repeat("<!-- bench held -->\n<!-- end of bench held -->\n", 2),
	} {
		if got, err := Replace([]byte(page), "held", nil); err == nil || !strings.Contains(err.Error(), "<!-- bench held -->") {
			t.Errorf("%q: %q, %v; want an error that names the line", page, got, err)
		}
	}
}

func TestMeasure_EachRowHasItsTurnAPeerUpToFourTimesAndHoldfastOnce(t *testing.T) {
	bench, err := peer.New(io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer bench.Close()
	bench.Only = []string{"a", "b", "holdfast-x", "c"}
	of, turns := &Table{}, ""
	fails := []int{5, 11, 12, 13, 14, 15} // by the number of the turn, from 0
	err = of.Measure(t.Context(), bench, 3, []string{"a", "b", "left-out", "holdfast-x", "c"}, func(_ context.Context, row string) (map[string]float64, error) {
		number := len(turns)
		turns += row[:1]
		if slices.Contains(fails, number) {
			return nil, errors.New("it ended")
		}
		return map[string]float64{"n": float64(number)}, nil
	})
	if want := "abhc" + "abbhc" + "abhcccc"; err != nil || turns != want {
		t.Fatalf("%v, turns %q, want %q", err, turns, want)
	}
	for name, want := range map[string]string{"a": "", "b": "", "holdfast-x": "it ended", "c": "it ended"} {
		if got := of.Row(name).Failure; got != want || want == "" && len(of.Row(name).Rounds) != 3 {
			t.Errorf("%s: failure %q, %d rounds", name, got, len(of.Row(name).Rounds))
		}
	}
	want := append([]string{"b had its turn of round 2 once more: it ended."}, slices.Repeat([]string{"c had its turn of round 3 once more: it ended."}, 3)...)
	if !slices.Equal(of.Notes, want) {
		t.Errorf("notes %q, want %q", of.Notes, want)
	}
}

func TestMeasure_EndsWhenItsCallerLeaves(t *testing.T) {
	bench, err := peer.New(io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer bench.Close()
	gone, leave := context.WithCancel(t.Context())
	calls := 0
	err = (&Table{}).Measure(gone, bench, 3, []string{"a"}, func(context.Context, string) (map[string]float64, error) {
		leave()
		calls++
		return nil, errors.New("of the leaving")
	})
	if !errors.Is(err, context.Canceled) || calls != 1 {
		t.Errorf("%v after %d calls, want the caller's leaving after one", err, calls)
	}
}
