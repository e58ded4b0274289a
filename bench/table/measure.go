package table

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"holdfast/bench/peer"
)

// holdfast is what the names of its rows begin with.
const holdfast = "holdfast"

// turnsAgain is how often a peer's turn is taken again.
const turnsAgain = 3

// Turn measures one row once.
type Turn func(ctx context.Context, row string) (map[string]float64, error)

// Measure gives every wanted row its turn in each round, A B A B, so that a
// machine that gets slower gets slower for all. A peer whose turn fails has it
// again, three times at most, which notes tell; then, and Holdfast at once, its row has failed and
// has no further turn. The error is the caller's leaving.
func (t *Table) Measure(ctx context.Context, bench *peer.Bench, rounds int, rows []string, turn Turn) error {
	rows = slices.DeleteFunc(slices.Clone(rows), func(name string) bool { return !bench.Wants(name) })
	for _, name := range rows {
		t.Row(name)
	}
	for n := range rounds {
		for _, name := range rows {
			row := t.Row(name)
			if row.Failure != "" {
				continue
			}
			bench.Logf("%s %s: round %d of %d, %s", t.Benchmark, t.Case, n+1, rounds, name)
			others, err := peer.WatchOthers()
			if err != nil {
				return err
			}
			values, err := turn(ctx, name)
			for again := 0; err != nil && again < turnsAgain && ctx.Err() == nil && !strings.HasPrefix(name, holdfast); again++ {
				bench.Logf("%s: once more: %v", name, err)
				t.Notes = append(t.Notes, fmt.Sprintf("%s had its turn of round %d once more: %v.", name, n+1, err))
				values, err = turn(ctx, name)
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				row.Failure = err.Error()
				bench.Logf("%s: %v", name, err)
				continue
			}
			cores, err := others.Cores()
			if err != nil {
				return err
			}
			row.Rounds = append(row.Rounds, values)
			t.OtherCores = append(t.OtherCores, cores)
		}
	}
	return nil
}
