// Package table keeps what a benchmark measured, round by round, and writes it:
// for the terminal, as Markdown, and as lines of JSON.
//
//	t := &table.Table{Benchmark: "held", Case: "sse-5000", Base: "holdfast", Columns: ...}
//	row := t.Row("nchan")
//	row.Rounds = append(row.Rounds, map[string]float64{"bytes": 3411})
//	t.Print(os.Stdout)
//
// A figure is the median over the rounds, its spread the lowest and the highest
// of them. A ratio is taken within each round, so that what slows the machine
// for a while counts on both sides, then the median of those. A row that failed
// has its cause in place of figures; a value that a row does not have is "-". It
// measures nothing and knows no benchmark.
package table

import (
	"slices"

	"holdfast/bench/peer"
)

// Table is what one case of a benchmark measured.
type Table struct {
	Benchmark string   `json:"benchmark"`
	Case      string   `json:"case"`
	Title     string   `json:"title"` // one line above it
	First     string   `json:"first"` // heading of the rows' names
	Base      string   `json:"base"`  // the row that ratios are taken to
	Columns   []Column `json:"columns"`
	Rows      []*Row   `json:"rows"`
	Notes     []string `json:"notes,omitempty"` // lines below it

	OtherCores []float64 `json:"other_cores"` // busy with other work, one for each turn
}

// Column is one figure of each row.
type Column struct {
	Key      string `json:"key"`     // in Row.Rounds and in the lines of JSON
	Heading  string `json:"heading"` // with the unit
	Decimals int    `json:"decimals"`
	Spread   bool   `json:"spread"` // show lowest and highest too
	Ratio    bool   `json:"ratio"`  // a further column: this row's over the base's
}

// Row is one of what is compared.
type Row struct {
	Name    string               `json:"name"`
	Failure string               `json:"failure,omitempty"` // why it has no figures
	Rounds  []map[string]float64 `json:"rounds"`
}

// Row is the row of that name, made if it is not there.
func (t *Table) Row(name string) *Row {
	if row := t.find(name); row != nil {
		return row
	}
	row := &Row{Name: name}
	t.Rows = append(t.Rows, row)
	return row
}

func (t *Table) find(name string) *Row {
	at := slices.IndexFunc(t.Rows, func(row *Row) bool { return row.Name == name })
	if at < 0 {
		return nil
	}
	return t.Rows[at]
}

// Valid says whether the row's figures may be used.
func (r *Row) Valid() bool { return r.Failure == "" && len(r.Rounds) > 0 }

// Valid says whether every row's may be, and there is one.
func (t *Table) Valid() bool {
	return len(t.Rows) > 0 && !slices.ContainsFunc(t.Rows, func(row *Row) bool { return !row.Valid() })
}

// Values are the rounds' values of a column, those that the row has.
func (r *Row) Values(key string) []float64 {
	var values []float64
	for _, round := range r.Rounds {
		if value, ok := round[key]; ok {
			values = append(values, value)
		}
	}
	return values
}

// Figure is a column's median with its spread; ok: the row has one.
func (r *Row) Figure(key string) (median, low, high float64, ok bool) {
	values := r.Values(key)
	if len(values) == 0 || !r.Valid() {
		return 0, 0, 0, false
	}
	return peer.Median(values), slices.Min(values), slices.Max(values), true
}

// Ratio is a column's value over the base's, in the same round: the median of
// the rounds that both have. ok is false for the base itself, and where a side
// has no figures or nothing to divide by.
func (t *Table) Ratio(row *Row, key string) (ratio float64, ok bool) {
	base := t.find(t.Base)
	if base == nil || base == row || !base.Valid() || !row.Valid() {
		return 0, false
	}
	var ratios []float64
	for i := range min(len(base.Rounds), len(row.Rounds)) {
		value, has := row.Rounds[i][key]
		by, hasBase := base.Rounds[i][key]
		if has && hasBase && by > 0 {
			ratios = append(ratios, value/by)
		}
	}
	return peer.Median(ratios), len(ratios) > 0
}
