package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"holdfast/bench/bus"
	"holdfast/bench/peer"
	"holdfast/bench/table"
)

const page = "docs/benchmarks.md"

// keep adds a benchmark's figures to the results, and its tables to the page
// where that was asked for.
func keep(bench *peer.Bench, how output, b benchmark, r report, stderr io.Writer) error {
	if how.results != "" {
		if err := appendResults(how.results, bench, b.name, r); err != nil {
			return err
		}
	}
	if !how.write {
		return nil
	}
	tables, ok := r.(*table.Report)
	if !ok {
		fmt.Fprintf(stderr, "%s: its part of %s is written by hand\n", b.name, page)
		return nil
	}
	if cause := whyNotWritten(bench, tables); cause != "" {
		fmt.Fprintf(stderr, "%s: not written to %s: %s\n", b.name, page, cause)
		return nil
	}
	if b.name == "bus" {
		return bus.WritePage(bench.Path(bus.Page), bench.Environment(), tables)
	}
	return writePage(bench.Path(page), b.name, bench.Environment(), tables)
}

// whyNotWritten says why figures are not for the page; "": they are.
func whyNotWritten(bench *peer.Bench, r *table.Report) string {
	switch {
	case bench.Short:
		return "a short run measures nothing"
	case len(bench.Only) > 0 || len(bench.Cases) > 0:
		return "only a part of it was run (--only, --case)"
	case !r.Valid():
		return "not every row is valid"
	}
	return ""
}

// appendResults adds a line that says where and when, and then the figures. A
// report that has no lines of its own is one line.
func appendResults(path string, bench *peer.Bench, name string, r report) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	err := encoder.Encode(struct {
		Benchmark   string           `json:"benchmark"`
		Short       bool             `json:"short,omitempty"`
		Environment peer.Environment `json:"environment"`
	}{name, bench.Short, bench.Environment()})
	if tables, ok := r.(*table.Report); ok {
		err = errors.Join(err, tables.JSONLines(&out))
	} else {
		err = errors.Join(err, encoder.Encode(map[string]any{"benchmark": name, "report": r}))
	}
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = file.Write(out.Bytes())
	return err
}

// writePage replaces the benchmark's region of the page and writes its pictures
// beside it; the page first, so that one that lacks the region leaves nothing.
func writePage(path, name string, environment peer.Environment, r *table.Report) error {
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, "%s\n\n", environment.Sentence())
	r.Markdown(&text)
	changed, err := table.Replace(old, name, text.Bytes())
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := os.WriteFile(path, changed, 0o644); err != nil {
		return err
	}
	for _, picture := range r.Pictures {
		if err := os.WriteFile(filepath.Join(filepath.Dir(path), picture.Name), picture.SVG, 0o644); err != nil {
			return err
		}
	}
	return nil
}
