package mixed

import (
	"bytes"
	"io"
	"testing"

	"holdfast/bench/peer"
)

func TestStreamFigures_AreWhatWasAdded(t *testing.T) {
	values := map[string]float64{}
	before := belongings{memory: peer.Memory{PSS: 50 << 20, RSS: 60 << 20}, threads: 9, connections: 1}
	after := belongings{memory: peer.Memory{PSS: 60 << 20, RSS: 75 << 20}, threads: 209, connections: 201}
	streamFigures(values, before, after, 200, 200)
	for key, want := range map[string]float64{"pss_mib": 50, "rss_mib": 60, "served": 200, "threads": 200, "connections": 200, "stream_kib": 51.2} {
		if values[key] != want {
			t.Errorf("%s is %v, want %v", key, values[key], want)
		}
	}
	values = map[string]float64{}
	if streamFigures(values, before, after, 8, 200); len(values) != 5 {
		t.Errorf("a figure by stream where few were served: %v", values)
	}
}

// Three ways to serve it, in a short run: what eight threads cannot, holds and a
// stream lane can.
func TestRun_AShortRunMeasuresItsRows(t *testing.T) {
	bench, err := peer.New(io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bench.Close)
	if _, err := bench.FindUvicorn(); err != nil || !peer.Installed(peer.Gunicorn) {
		t.Skip("gunicorn or uvicorn is not installed")
	}
	bench.Short, bench.Only = true, []string{rowGunicorn, rowHolds, rowStreams}
	report, err := Run(t.Context(), bench)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	report.Print(&out)
	t.Log(out.String())
	if !report.Valid() {
		t.Fatalf("%s", out.String())
	}
	for name, want := range map[string][2]float64{rowGunicorn: {8, 8}, rowHolds: {20, 0}, rowStreams: {20, 1}} {
		row := report.Tables[0].Row(name)
		served, _, _, _ := row.Figure("served")
		connections, _, _, _ := row.Figure("connections")
		if served != want[0] || connections > want[1] {
			t.Errorf("%s: %v streams served with %v database connections more, want %v with %v at most", name, served, connections, want[0], want[1])
		}
	}
}
