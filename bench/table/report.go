package table

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"holdfast/bench/picture"
)

// Report is a benchmark's outcome: its tables, and pictures of them.
type Report struct {
	Tables   []*Table  `json:"tables"`
	Pictures []Picture `json:"-"`
}

// Picture is an SVG file for a page.
type Picture struct {
	Name string // of the file, in docs/
	Text string // what is to be seen, for who cannot see it
	SVG  []byte
}

// Valid says whether all tables are.
func (r *Report) Valid() bool {
	return len(r.Tables) > 0 && !slices.ContainsFunc(r.Tables, func(t *Table) bool { return !t.Valid() })
}

// Print writes the tables for a terminal.
func (r *Report) Print(w io.Writer) {
	for i, t := range r.Tables {
		if i > 0 {
			fmt.Fprintln(w)
		}
		t.Print(w)
	}
}

// Markdown writes tables and pictures for a page.
func (r *Report) Markdown(w io.Writer) {
	for i, t := range r.Tables {
		if i > 0 {
			fmt.Fprintln(w)
		}
		t.Markdown(w)
	}
	for _, picture := range r.Pictures {
		fmt.Fprintf(w, "\n![%s](%s)\n", picture.Text, picture.Name)
	}
}

// JSONLines writes each round of each row.
func (r *Report) JSONLines(w io.Writer) error {
	for _, t := range r.Tables {
		if err := t.JSONLines(w); err != nil {
			return err
		}
	}
	return nil
}

// Bars are the rows' figures of a column for a picture, those that there are.
func (t *Table) Bars(key string) []picture.Bar {
	var bars []picture.Bar
	for _, row := range t.Rows {
		if median, low, high, ok := row.Figure(key); ok {
			bars = append(bars, picture.Bar{Label: row.Name, Value: median, Low: low, High: high, Ours: strings.HasPrefix(row.Name, holdfast)})
		}
	}
	return bars
}
