package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/bench/peer"
	"holdfast/bench/table"
)

func newBench(t *testing.T) *peer.Bench {
	t.Helper()
	bench, err := peer.New(io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bench.Close)
	return bench
}

func TestChoose_TakesNamesThenFlagsAndNamesWhatThereIs(t *testing.T) {
	for _, c := range []struct{ args, want, err string }{
		{args: "held fanout --short", want: "held fanout"},
		{args: "--only nchan", want: "held fanout setup"},
		{args: "proxied --only nginx,holdfast", want: "proxied"},
		{args: "no-such", err: `no benchmark "no-such"; there are: held, fanout,`},
		{args: "held --only no-such", err: `no row "no-such"`},
		{args: "--short held", err: `"held": names of benchmarks come before flags`},
	} {
		chosen, _, err := choose(strings.Fields(c.args), newBench(t), io.Discard)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v, want %s", c.args, err, c.err)
			}
			continue
		}
		var names []string
		for _, b := range chosen {
			names = append(names, b.name)
		}
		if got := strings.Join(names, " "); err != nil || got != c.want {
			t.Errorf("%s: %q, %v; want %q", c.args, got, err, c.want)
		}
	}
}

func report1(name string) *table.Report {
	of := &table.Table{Benchmark: name, Case: "few", Title: "Few.", First: "server", Columns: []table.Column{{Key: "n", Heading: "n"}}}
	of.Row("holdfast").Rounds = []map[string]float64{{"n": 7}}
	return &table.Report{Tables: []*table.Table{of}, Pictures: []table.Picture{{Name: "bench-few.svg", Text: "few", SVG: []byte("<svg/>")}}}
}

func TestWritePage_ReplacesItsRegionAndPutsPicturesBeside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.md")
	os.WriteFile(path, []byte("before\n<!-- bench held -->\nold\n<!-- end of bench held -->\nafter\n"), 0o600)
	environment := peer.Environment{Date: "2026-11-30T10:00:00Z", Cores: 2, CPU: "x", Kernel: "Linux", Go: "go1", Versions: map[string]string{"b": "the B 2", "a": "1"}}
	if err := writePage(path, "held", environment, report1("held")); err != nil {
		t.Fatal(err)
	}
	got, _ := os.ReadFile(path)
	want := "before\n<!-- bench held -->\n\n2026-11-30. 2 cores (x), Linux, go1; a 1; the B 2.\n\nFew.\n\n| server | n |\n|---|---|\n| holdfast | 7 |\n\nOther work took 0.00 cores meanwhile.\n\n![few](bench-few.svg)\n\n<!-- end of bench held -->\nafter\n"
	if string(got) != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	if svg, err := os.ReadFile(filepath.Join(filepath.Dir(path), "bench-few.svg")); err != nil || string(svg) != "<svg/>" {
		t.Errorf("%q, %v", svg, err)
	}
	if err := writePage(path, "fanout", environment, report1("fanout")); err == nil || !strings.Contains(err.Error(), "<!-- bench fanout -->") {
		t.Errorf("%v, want an error that names the missing line", err)
	}
}

func TestKeep_WritesNothingOfAPartOfAShortRunOrOfWhatFailed(t *testing.T) {
	failed := report1("held")
	failed.Tables[0].Row("nchan").Failure = "gone"
	for name, c := range map[string]struct {
		change func(*peer.Bench)
		report *table.Report
		want   string
	}{
		"short":   {func(b *peer.Bench) { b.Short = true }, report1("held"), "a short run"},
		"part":    {func(b *peer.Bench) { b.Only = []string{"nchan"} }, report1("held"), "only a part"},
		"case":    {func(b *peer.Bench) { b.Cases = []string{"few"} }, report1("held"), "only a part"},
		"invalid": {func(*peer.Bench) {}, failed, "not every row"},
	} {
		bench := newBench(t)
		c.change(bench)
		var said bytes.Buffer
		if err := keep(bench, output{write: true}, benchmark{name: "held"}, c.report, &said); err != nil || !strings.Contains(said.String(), c.want) {
			t.Errorf("%s: %v, said %q, want %q", name, err, said.String(), c.want)
		}
	}
}

func TestKeep_AddsLinesToTheResults(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "results.jsonl")
	for range 2 {
		if err := keep(newBench(t), output{results: path}, benchmark{name: "held"}, report1("held"), io.Discard); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if err != nil || len(lines) != 4 || !strings.HasPrefix(lines[0], `{"benchmark":"held","environment":{`) || lines[3] != `{"benchmark":"held","case":"few","row":"holdfast","round":1,"values":{"n":7}}` {
		t.Errorf("%v:\n%s", err, text)
	}
}
