package isolation

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"holdfast/bench/peer"
)

// Report is the outcome; latencies are in milliseconds.
type Report struct {
	Rounds     int     `json:"rounds"`
	Seconds    float64 `json:"seconds"`
	Threads    int     `json:"threads"`
	Measuring  int     `json:"measuring"`
	Blockers   int     `json:"blockers"`
	SlowMS     int64   `json:"slow_ms"`
	OtherCores float64 `json:"other_cores"` // busy with other work while measuring: median
	Rows       []*Row  `json:"rows"`
}

// Row is one way to the app. Failure empty and no errors: it is valid.
type Row struct {
	Name         string         `json:"name"`
	Failure      string         `json:"failure,omitempty"`
	Errors       map[string]int `json:"errors,omitempty"`
	Unloaded     Latency        `json:"unloaded"` // of all rounds' answers together
	Loaded       Latency        `json:"loaded"`
	SlowFinished float64        `json:"slow_finished"` // in a round's loaded seconds: mean
	Rounds       []Round        `json:"rounds"`
}

// Round is one turn of one row.
type Round struct {
	Unloaded     Latency        `json:"unloaded"`
	Loaded       Latency        `json:"loaded"`
	SlowFinished int            `json:"slow_finished"`
	Errors       map[string]int `json:"errors,omitempty"`
	OtherCores   float64        `json:"other_cores"`
}

// Latency of the fast view's answers.
type Latency struct {
	Count int     `json:"count"`
	P50   float64 `json:"p50_ms"`
	P99   float64 `json:"p99_ms"`
	Max   float64 `json:"max_ms"`

	took []time.Duration // ascending
}

func newLatency(took []time.Duration) Latency {
	took = slices.Sorted(slices.Values(took))
	return Latency{
		Count: len(took),
		P50:   milliseconds(peer.Quantile(took, 0.50)),
		P99:   milliseconds(peer.Quantile(took, 0.99)),
		Max:   milliseconds(peer.Quantile(took, 1)),
		took:  took,
	}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func newReport(rows []*Row, s settings) *Report {
	report := &Report{
		Rounds: s.rounds, Seconds: s.length.Seconds(), Threads: threads, Measuring: measuring,
		Blockers: s.blockers, SlowMS: s.slowTime.Milliseconds(), Rows: rows,
	}
	var others []float64
	for _, row := range rows {
		row.sum()
		for _, round := range row.Rounds {
			others = append(others, round.OtherCores)
		}
	}
	report.OtherCores = peer.Median(others)
	return report
}

func (r *Row) sum() {
	var unloaded, loaded []time.Duration
	r.Errors = map[string]int{}
	for _, round := range r.Rounds {
		unloaded = append(unloaded, round.Unloaded.took...)
		loaded = append(loaded, round.Loaded.took...)
		r.SlowFinished += float64(round.SlowFinished) / float64(len(r.Rounds))
		for text, n := range round.Errors {
			r.Errors[text] += n
		}
	}
	r.Unloaded, r.Loaded = newLatency(unloaded), newLatency(loaded)
}

// Valid says whether the row's figures may be used.
func (r *Row) Valid() bool {
	return r.Failure == "" && len(r.Errors) == 0 && r.Unloaded.Count > 0 && r.Loaded.Count > 0
}

// Valid says whether every row is.
func (r *Report) Valid() bool {
	return len(r.Rows) > 0 && !slices.ContainsFunc(r.Rows, func(row *Row) bool { return !row.Valid() })
}

// Print writes the table. A row that is not valid has its cause instead of figures.
func (r *Report) Print(w io.Writer) {
	fmt.Fprintf(w, "isolation: %d rounds of %gs, one gunicorn process of %d threads, %d connections on the fast view,\n"+
		"%d on a slow view of %d ms while loaded; other work took %.2f cores meanwhile\n\n",
		r.Rounds, r.Seconds, r.Threads, r.Measuring, r.Blockers, r.SlowMS, r.OtherCores)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "\tunloaded\t\t\tloaded\t\t\t\tslow views\t")
	fmt.Fprintln(table, "fast view, ms\tp50\tp99\tmax\tp50\tp99\tmax\tanswers\tfinished/round\t")
	for _, row := range r.Rows {
		if !row.Valid() {
			fmt.Fprintf(table, "%s\tinvalid\t\t\t\t\t\t\t\t\n", row.Name)
			continue
		}
		fmt.Fprintf(table, "%s\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%d\t%.1f\t\n", row.Name,
			row.Unloaded.P50, row.Unloaded.P99, row.Unloaded.Max,
			row.Loaded.P50, row.Loaded.P99, row.Loaded.Max, row.Loaded.Count, row.SlowFinished)
	}
	table.Flush()
	for _, row := range r.Rows {
		if row.Valid() {
			continue
		}
		var cause []string
		if row.Failure != "" {
			cause = append(cause, row.Failure)
		}
		for _, text := range slices.Sorted(maps.Keys(row.Errors)) {
			cause = append(cause, fmt.Sprintf("%d x %s", row.Errors[text], text))
		}
		fmt.Fprintf(w, "%s: invalid: %s\n", row.Name, strings.Join(cause, "; "))
	}
}
