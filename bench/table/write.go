package table

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"holdfast/bench/peer"
)

// cells are the table's headings and rows as text; a row that has no figures is
// nil.
func (t *Table) cells() (headings []string, rows [][]string) {
	headings = []string{t.First}
	for _, column := range t.Columns {
		headings = append(headings, column.Heading)
		if column.Ratio {
			headings = append(headings, "x "+t.Base)
		}
	}
	for _, row := range t.Rows {
		if !row.Valid() {
			rows = append(rows, nil)
			continue
		}
		cells := []string{row.Name}
		for _, column := range t.Columns {
			cells = append(cells, column.cell(row))
			if column.Ratio {
				cells = append(cells, t.ratioCell(row, column.Key))
			}
		}
		rows = append(rows, cells)
	}
	return headings, rows
}

func (c Column) cell(row *Row) string {
	median, low, high, ok := row.Figure(c.Key)
	if !ok {
		return "-"
	}
	text := number(median, c.Decimals)
	if c.Spread && len(row.Values(c.Key)) > 1 {
		text += " (" + number(low, c.Decimals) + "–" + number(high, c.Decimals) + ")"
	}
	return text
}

func (t *Table) ratioCell(row *Row, key string) string {
	ratio, ok := t.Ratio(row, key)
	if !ok {
		return "-"
	}
	return number(ratio, 2)
}

// number puts commas between thousands, as the pages do.
func number(value float64, decimals int) string {
	text := strconv.FormatFloat(value, 'f', decimals, 64)
	whole, rest, _ := strings.Cut(strings.TrimPrefix(text, "-"), ".")
	for at := len(whole) - 3; at > 0; at -= 3 {
		whole = whole[:at] + "," + whole[at:]
	}
	if rest != "" {
		whole += "." + rest
	}
	if strings.HasPrefix(text, "-") {
		return "-" + whole
	}
	return whole
}

// Print writes the table for a terminal.
func (t *Table) Print(w io.Writer) {
	fmt.Fprintf(w, "%s %s: %s\n", t.Benchmark, t.Case, t.Title)
	fmt.Fprintf(w, "other work took %.2f cores meanwhile\n\n", peer.Median(t.OtherCores))
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	headings, rows := t.cells()
	fmt.Fprintln(out, strings.Join(headings, "\t")+"\t")
	for i, cells := range rows {
		if cells == nil {
			cells = append([]string{t.Rows[i].Name, "invalid"}, make([]string, len(headings)-2)...)
		}
		fmt.Fprintln(out, strings.Join(cells, "\t")+"\t")
	}
	out.Flush()
	t.printBelow(w)
}

func (t *Table) printBelow(w io.Writer) {
	for _, row := range t.Rows {
		if cause := row.cause(); cause != "" {
			fmt.Fprintf(w, "%s: invalid: %s\n", row.Name, cause)
		}
	}
	for _, note := range t.Notes {
		fmt.Fprintln(w, note)
	}
}

func (r *Row) cause() string {
	switch {
	case r.Failure != "":
		return r.Failure
	case len(r.Rounds) == 0:
		return "nothing was measured"
	}
	return ""
}

// Markdown writes the table for a page. The base's row is in bold.
func (t *Table) Markdown(w io.Writer) {
	fmt.Fprintf(w, "%s\n\n", t.Title)
	headings, rows := t.cells()
	fmt.Fprintf(w, "| %s |\n|%s\n", strings.Join(headings, " | "), strings.Repeat("---|", len(headings)))
	for i, cells := range rows {
		if cells == nil {
			fmt.Fprintf(w, "| %s | %s |%s\n", t.Rows[i].Name, escape(t.Rows[i].cause()), strings.Repeat(" |", len(headings)-2))
			continue
		}
		if t.Rows[i].Name == t.Base {
			cells[0] = "**" + cells[0] + "**"
		}
		fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | "))
	}
	for _, note := range t.Notes {
		fmt.Fprintf(w, "\n%s\n", escape(note))
	}
	fmt.Fprintf(w, "\nOther work took %.2f cores meanwhile.\n", peer.Median(t.OtherCores))
}

// escape keeps a cause, which has what a program wrote, inside its cell.
func escape(text string) string {
	return strings.NewReplacer("|", "\\|", "\n", " ", "\r", " ").Replace(text)
}

// line is one round of one row.
type line struct {
	Benchmark string             `json:"benchmark"`
	Case      string             `json:"case"`
	Row       string             `json:"row"`
	Round     int                `json:"round,omitempty"` // from 1
	Failure   string             `json:"failure,omitempty"`
	Values    map[string]float64 `json:"values,omitempty"`
}

// JSONLines writes a line for each round of each row, and one for a row's failure.
func (t *Table) JSONLines(w io.Writer) error {
	encoder := json.NewEncoder(w)
	for _, row := range t.Rows {
		of := line{Benchmark: t.Benchmark, Case: t.Case, Row: row.Name}
		for i, round := range row.Rounds {
			of.Round, of.Values = i+1, round
			if err := encoder.Encode(of); err != nil {
				return err
			}
		}
		if cause := row.cause(); cause != "" {
			of.Round, of.Values, of.Failure = 0, nil, cause
			if err := encoder.Encode(of); err != nil {
				return err
			}
		}
	}
	return nil
}
