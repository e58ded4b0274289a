package wirepeers

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// Report is the outcome.
type Report struct {
	MustRefuse int    `json:"must_refuse"`
	ShouldPass int    `json:"should_pass"`
	LeftOut    int    `json:"left_out"` // refused for size
	Rows       []*Row `json:"rows"`

	names bool
}

// Row is one peer; Failure empty: it is valid. Cases are by name.
type Row struct {
	Peer    string `json:"peer"`
	Failure string `json:"failure,omitempty"`

	Through []string `json:"let_through"` // must be refused, and its upstream saw a request of it
	Refused []string `json:"refused"`     // should pass, and its upstream did not see it
	Other   []string `json:"seen_otherwise"`
}

// judge compares what the upstream saw with what it should see.
func (r *Row) judge(c *testCase, seen []forward) {
	least := 0
	for _, f := range c.forwards {
		if !f.optional {
			least++
		}
	}
	switch {
	case c.refused && len(seen) > len(c.forwards), !c.refused && len(seen) > len(c.forwards):
		if c.refused {
			r.Through = append(r.Through, c.Name)
		} else {
			r.Other = append(r.Other, c.Name)
		}
	case len(seen) < least && !c.either:
		r.Refused = append(r.Refused, c.Name)
	case !same(seen, c.forwards):
		r.Other = append(r.Other, c.Name)
	}
}

// same reports whether seen is a beginning of want.
func same(seen, want []forward) bool {
	for i, f := range seen {
		if f.method != want[i].method || f.target != want[i].target || !bytes.Equal(f.body, want[i].body) {
			return false
		}
	}
	return true
}

// Valid reports whether every row is.
func (r *Report) Valid() bool {
	return !slices.ContainsFunc(r.Rows, func(row *Row) bool { return row.Failure != "" })
}

// Print writes a table, and under it the kinds of cases.
func (r *Report) Print(w io.Writer) {
	fmt.Fprintf(w, "wirepeers: %d requests that must be refused, %d that should pass; %d refused for size left out\n\n", r.MustRefuse, r.ShouldPass, r.LeftOut)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "peer\tlet through\trefused\tseen otherwise")
	for _, row := range r.Rows {
		if row.Failure != "" {
			fmt.Fprintf(table, "%s\t%s\n", row.Peer, row.Failure)
			continue
		}
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\n", row.Peer, len(row.Through), len(row.Refused), len(row.Other))
	}
	table.Flush()
	for _, row := range r.Rows {
		for _, list := range []struct {
			what  string
			cases []string
		}{{"let through", row.Through}, {"refused", row.Refused}, {"seen otherwise", row.Other}} {
			if len(list.cases) == 0 {
				continue
			}
			fmt.Fprintf(w, "\n%s, %s: %s\n", row.Peer, list.what, kinds(list.cases))
			if r.names {
				fmt.Fprintf(w, "  %s\n", strings.Join(list.cases, "\n  "))
			}
		}
	}
}

// kinds counts cases by the first word of their names.
func kinds(names []string) string {
	counts := map[string]int{}
	for _, name := range names {
		kind, _, _ := strings.Cut(name, "-")
		counts[kind]++
	}
	var words []string
	for _, kind := range slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		if counts[a] != counts[b] {
			return counts[b] - counts[a]
		}
		return strings.Compare(a, b)
	}) {
		words = append(words, fmt.Sprintf("%s %d", kind, counts[kind]))
	}
	return strings.Join(words, ", ")
}
