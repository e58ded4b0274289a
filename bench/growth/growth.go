// Package growth measures how Holdfast's costs grow: an event's with the holds
// and channels that there are, a request's with holds, routes and lanes. README.md
// says how, and what would be unfair.
//
// What is measured at 10, 100, 1,000 and 10,000 is fitted by a power of the number:
// the exponent is the slope of the straight line through the logarithms. 0: it
// does not grow; 1: it grows as the number does.
package growth

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"

	"holdfast/bench/crowd"
	"holdfast/bench/holders"
	"holdfast/bench/peer"
	"holdfast/bench/picture"
	"holdfast/bench/table"
)

const defaultRounds = 5

// Sweep is one row: what is varied, and the cost that is measured.
type Sweep struct {
	Name   string
	Points []int
	cost   func(ctx context.Context, r *run, n int) (microseconds float64, err error)
}

// Sweeps are all.
func Sweeps() []Sweep {
	tens, lanes := []int{10, 100, 1000, 10000}, []int{1, 10, 100}
	return []Sweep{
		{Name: "event-to-all-of-n-holds", Points: tens, cost: eventToAll},
		{Name: "event-to-one-beside-n-holds", Points: tens, cost: eventToOne},
		{Name: "event-to-one-of-n-channels", Points: tens, cost: eventToChannel},
		{Name: "request-beside-n-holds", Points: tens, cost: requestBeside},
		{Name: "request-with-n-routes", Points: tens, cost: requestWithRoutes},
		{Name: "request-with-n-lanes", Points: lanes, cost: requestWithLanes},
	}
}

// Rows are the names of all rows.
func Rows() []string {
	var names []string
	for _, sweep := range Sweeps() {
		names = append(names, sweep.Name)
	}
	return names
}

// run is what the sweeps share.
type run struct {
	bench   *peer.Bench
	clients *crowd.Crowd
}

// Run returns an error if nothing could be measured at all; what befalls one
// sweep is in its row.
func Run(ctx context.Context, bench *peer.Bench) (*table.Report, error) {
	if err := peer.RaiseDescriptors(uint64(holders.Descriptors(bench.Scaled(10000, 100)))); err != nil {
		return nil, err
	}
	clients, err := crowd.Start(ctx, bench)
	if err != nil {
		return nil, err
	}
	defer clients.Close()
	t, r := newTable(), &run{bench: bench, clients: clients}
	sweeps := map[string]Sweep{}
	for _, sweep := range Sweeps() {
		sweeps[sweep.Name] = sweep
	}
	err = t.Measure(ctx, bench, bench.Times(defaultRounds), Rows(), func(ctx context.Context, row string) (map[string]float64, error) {
		return r.sweep(ctx, sweeps[row])
	})
	if err != nil {
		return nil, err
	}
	return &table.Report{Tables: []*table.Table{t}, Pictures: []table.Picture{{
		Name: "bench-growth.svg",
		Text: "CPU time of an event or a request over the number of holds, channels, routes or lanes, both axes logarithmic",
		SVG:  picture.Lines("CPU time of one event or request", "n", "µs", lines(t)),
	}}}, nil
}

func newTable() *table.Table {
	t := &table.Table{
		Benchmark: "growth", Case: "holdfast", First: "CPU µs of one",
		Title: "Holdfast alone: CPU time of one event or request at n holds, channels, routes or lanes. Exponent: of the power of n that fits it best; 0 is no growth, 1 as n.",
	}
	for _, n := range []int{1, 10, 100, 1000, 10000} {
		t.Columns = append(t.Columns, table.Column{Key: strconv.Itoa(n), Heading: fmt.Sprintf("n = %d", n), Decimals: 1})
	}
	t.Columns = append(t.Columns, table.Column{Key: "exponent", Heading: "exponent", Decimals: 2, Spread: true})
	return t
}

// sweep measures a row once: every point, and the exponent through them.
func (r *run) sweep(ctx context.Context, of Sweep) (map[string]float64, error) {
	values := map[string]float64{}
	var xs, ys []float64
	for _, n := range of.Points {
		if r.bench.Short && n > 10 {
			continue
		}
		cost, err := of.cost(ctx, r, n)
		if err != nil {
			return nil, fmt.Errorf("n = %d: %w", n, err)
		}
		values[strconv.Itoa(n)] = cost
		xs, ys = append(xs, float64(n)), append(ys, cost)
	}
	if exponent, ok := fit(xs, ys); ok {
		values["exponent"] = exponent
	}
	return values, nil
}

// fit is the slope of the least-squares line through the points' logarithms.
// Points without a logarithm are left out; ok is false for fewer than two.
func fit(xs, ys []float64) (slope float64, ok bool) {
	var n, sumX, sumY, sumXX, sumXY float64
	for i := range xs {
		if xs[i] <= 0 || ys[i] <= 0 {
			continue
		}
		x, y := math.Log(xs[i]), math.Log(ys[i])
		n, sumX, sumY, sumXX, sumXY = n+1, sumX+x, sumY+y, sumXX+x*x, sumXY+x*y
	}
	below := n*sumXX - sumX*sumX
	if n < 2 || below <= 0 {
		return 0, false
	}
	return (n*sumXY - sumX*sumY) / below, true
}

func lines(t *table.Table) []picture.Line {
	var lines []picture.Line
	for _, row := range t.Rows {
		line := picture.Line{Label: strings.ReplaceAll(row.Name, "-", " ")}
		for _, column := range t.Columns {
			n, err := strconv.Atoi(column.Key)
			if err != nil {
				continue // the exponent's
			}
			if median, _, _, ok := row.Figure(column.Key); ok {
				line.Points = append(line.Points, picture.Point{X: float64(n), Y: median})
			}
		}
		lines = append(lines, line)
	}
	return lines
}
