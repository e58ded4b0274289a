package bus

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

func TestWritePage_ReplacesItsRegionAndNothingElse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.md")
	of := &table.Table{Title: "Few.", First: "bus", Columns: []table.Column{{Key: "n", Heading: "n"}}}
	of.Row("memory").Rounds = []map[string]float64{{"n": 7}}
	environment := peer.Environment{Date: "2026-11-30T10:00:00Z", Cores: 2, CPU: "x", Kernel: "Linux", Go: "go1"}
	want := "a\n<!-- bus-cost -->\n\n2026-11-30. 2 cores (x), Linux, go1.\n\nFew.\n\n| bus | n |\n|---|---|\n| memory | 7 |\n\nOther work took 0.00 cores meanwhile.\n\n<!-- /bus-cost -->\nb\n"
	os.WriteFile(path, []byte("a\n<!-- bus-cost -->\n<!-- /bus-cost -->\nb\n"), 0o600)
	for range 2 {
		if err := WritePage(path, environment, &table.Report{Tables: []*table.Table{of}}); err != nil {
			t.Fatal(err)
		}
		if got, _ := os.ReadFile(path); string(got) != want {
			t.Errorf("got:\n%s\nwant:\n%s", got, want)
		}
	}
	scale, err := os.ReadFile("../../" + Page)
	if err == nil {
		_, err = replace(scale, []byte("new"))
	}
	if err != nil {
		t.Errorf("%s: %v", Page, err)
	}
	for _, page := range []string{"", begin, end, end + "\n" + begin, strings.Repeat(begin+end+"\n", 2)} {
		if got, err := replace([]byte(page), nil); err == nil || !strings.Contains(err.Error(), "<!-- bus-cost -->") {
			t.Errorf("%q: %q, %v; want an error that names the line", page, got, err)
		}
	}
}

func TestPart_HasTheFiguresOfItsColumnsAndEachFailure(t *testing.T) {
	whole := &table.Table{Benchmark: "bus", First: "bus", OtherCores: []float64{0.5}}
	whole.Row("memory").Rounds = []map[string]float64{{"publish_p50_ms": 1, "events_per_s_1": 9}}
	whole.Row("redis-1").Failure = "gone"
	got := part(whole, latencies())
	if values := got.Row("memory").Rounds[0]; len(values) != 1 || values["publish_p50_ms"] != 1 || got.Row("redis-1").Failure != "gone" || got.Valid() {
		t.Errorf("%v, %+v", values, got.Row("redis-1"))
	}
	if values := part(whole, rates([]int{1})).Row("memory").Rounds[0]; len(values) != 1 || values["events_per_s_1"] != 9 {
		t.Errorf("%v", values)
	}
}

func TestRequest_SaysItsLengthAndHasAnEventOf200Bytes(t *testing.T) {
	_, body, _ := strings.Cut(request(7), "\r\n\r\n")
	data, ok := strings.CutPrefix(strings.TrimSuffix(body, `"}`), `{"channel":"7","data":"`)
	if !ok || len(data) != eventBytes || !strings.Contains(request(7), "Content-Length: 225\r\n") {
		t.Errorf("%d bytes: %s", len(data), request(7))
	}
}

// Each kind of bus, in a run that is as short as can be.
func TestRun_MeasuresEveryNumberOfNodes(t *testing.T) {
	for kind, rows := range map[string]string{memory: "memory", redis: "redis-1 redis-3", postgres: "postgres-1 postgres-3"} {
		t.Run(kind, func(t *testing.T) {
			if !installed(kind) {
				t.Skip("its engine is not installed")
			}
			bench, err := peer.New(io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(bench.Close)
			bench.Short, bench.Seconds, bench.Only = true, 0.1, strings.Fields(rows)
			report, err := Run(t.Context(), bench)
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			report.Print(&out)
			t.Log(out.String())
			if !report.Valid() || len(report.Tables) != 2 || len(report.Tables[0].Rows) != len(bench.Only) || strings.Contains(out.String(), "NaN") {
				t.Error("a row is not valid, is missing, or has no number")
			}
		})
	}
}
