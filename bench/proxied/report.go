package proxied

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"holdfast/bench/peer"
)

// Report is the outcome; times are in microseconds.
type Report struct {
	Rounds      int     `json:"rounds"`
	Seconds     float64 `json:"seconds"`
	Connections int     `json:"connections"`
	OtherCores  float64 `json:"other_cores"` // busy with other work while measuring: median
	Rows        []*Row  `json:"rows"`
}

// Row is one peer. Failure empty and no errors: it is valid.
type Row struct {
	Peer    string `json:"peer"`
	Failure string `json:"failure,omitempty"`
	Errors  Errors `json:"errors"`

	// Medians over the rounds, and for CPU the smallest and the largest.
	CPUMicros         float64 `json:"cpu_micros"`
	CPUMicrosLow      float64 `json:"cpu_micros_low"`
	CPUMicrosHigh     float64 `json:"cpu_micros_high"`
	RequestsPerSecond float64 `json:"requests_per_second"`
	P50Micros         float64 `json:"p50_micros"`
	P99Micros         float64 `json:"p99_micros"`

	// CPU per request over that of the other peer in the same round: median.
	// 0 where there is none.
	ToBare    float64 `json:"to_bareforwarder,omitempty"`
	ToHAProxy float64 `json:"to_haproxy,omitempty"`

	Rounds []Round `json:"rounds"`
}

// Round is one turn of one peer.
type Round struct {
	Load
	CPUMicros         float64 `json:"cpu_micros"`
	RequestsPerSecond float64 `json:"requests_per_second"`
	OtherCores        float64 `json:"other_cores"`
}

func newReport(rows []*Row, rounds int, length time.Duration, connections int) *Report {
	report := &Report{Rounds: rounds, Seconds: length.Seconds(), Connections: connections, Rows: rows}
	var others []float64
	for _, row := range rows {
		row.sum()
		for _, round := range row.Rounds {
			others = append(others, round.OtherCores)
		}
	}
	report.OtherCores = peer.Median(others)
	for _, row := range rows {
		row.ToBare = row.ratio(report.row(rowBare))
		row.ToHAProxy = row.ratio(report.row(rowHAProxy))
	}
	return report
}

func (r *Report) row(name string) *Row {
	for _, row := range r.Rows {
		if row.Peer == name {
			return row
		}
	}
	return nil
}

func (r *Row) sum() {
	for _, round := range r.Rounds {
		r.Errors.add(round.Errors)
	}
	if len(r.Rounds) == 0 {
		return
	}
	cpu := r.each(func(round Round) float64 { return round.CPUMicros })
	r.CPUMicros, r.CPUMicrosLow, r.CPUMicrosHigh = peer.Median(cpu), slices.Min(cpu), slices.Max(cpu)
	r.RequestsPerSecond = peer.Median(r.each(func(round Round) float64 { return round.RequestsPerSecond }))
	r.P50Micros = peer.Median(r.each(func(round Round) float64 { return round.P50Micros }))
	r.P99Micros = peer.Median(r.each(func(round Round) float64 { return round.P99Micros }))
}

func (r *Row) each(value func(Round) float64) []float64 {
	values := make([]float64, 0, len(r.Rounds))
	for _, round := range r.Rounds {
		values = append(values, value(round))
	}
	return values
}

// ratio compares round by round, so that what slows the machine for a while
// counts on both sides.
func (r *Row) ratio(to *Row) float64 {
	if to == nil || to == r || !r.Valid() || !to.Valid() {
		return 0
	}
	var ratios []float64
	for i := range min(len(r.Rounds), len(to.Rounds)) {
		if to.Rounds[i].CPUMicros > 0 {
			ratios = append(ratios, r.Rounds[i].CPUMicros/to.Rounds[i].CPUMicros)
		}
	}
	return peer.Median(ratios)
}

// Valid says whether the row's figures may be used.
func (r *Row) Valid() bool {
	return r.Failure == "" && r.Errors == Errors{} && len(r.Rounds) > 0
}

// Valid says whether every row is.
func (r *Report) Valid() bool {
	return len(r.Rows) > 0 && !slices.ContainsFunc(r.Rows, func(row *Row) bool { return !row.Valid() })
}

// Print writes the table. A row that is not valid has its cause instead of figures.
func (r *Report) Print(w io.Writer) {
	fmt.Fprintf(w, "proxied: %d rounds of %gs, %d connections, one core a proxy; other work took %.2f cores meanwhile\n\n",
		r.Rounds, r.Seconds, r.Connections, r.OtherCores)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "peer\tCPU us/request\tlow\thigh\tx bare\tx haproxy\trequests/s\tp50 ms\tp99 ms\t")
	for _, row := range r.Rows {
		if !row.Valid() {
			fmt.Fprintf(table, "%s\tinvalid\t\t\t\t\t\t\t\t\n", row.Peer)
			continue
		}
		fmt.Fprintf(table, "%s\t%.1f\t%.1f\t%.1f\t%s\t%s\t%.0f\t%.2f\t%.2f\t\n", row.Peer, row.CPUMicros, row.CPUMicrosLow, row.CPUMicrosHigh,
			times(row.ToBare), times(row.ToHAProxy), row.RequestsPerSecond, row.P50Micros/1000, row.P99Micros/1000)
	}
	table.Flush()
	for _, row := range r.Rows {
		if row.Failure != "" {
			fmt.Fprintf(w, "%s: invalid: %s\n", row.Peer, row.Failure)
		} else if !row.Valid() {
			fmt.Fprintf(w, "%s: invalid: errors: %s\n", row.Peer, row.Errors)
		}
	}
}

func times(ratio float64) string {
	if ratio == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", ratio)
}
