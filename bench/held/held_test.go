package held

import (
	"bytes"
	"io"
	"testing"
	"time"

	"holdfast/bench/holders"
	"holdfast/bench/peer"
)

func TestFigures_AreByHoldAndBySecond(t *testing.T) {
	got := figures(peer.Memory{PSS: 8 << 20, RSS: 10 << 20}, peer.Memory{PSS: 8<<20 + 5000*600, RSS: 10<<20 + 5000*700}, 5000, 30*time.Millisecond, 10*time.Second)
	for key, want := range map[string]float64{"bytes": 600, "rss_bytes": 700, "base_mib": 8, "idle_ms_per_s": 3} {
		if got[key] != want {
			t.Errorf("%s is %v, want %v", key, got[key], want)
		}
	}
}

// Streams and sockets of every server that is installed, in a short run.
func TestRun_AShortRunMeasuresEveryRow(t *testing.T) {
	bench, err := peer.New(io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bench.Close)
	bench.Short, bench.Only, bench.Cases = true, holders.Available(), []string{"ws-5000", "sse-5000-heartbeat"}
	report, err := Run(t.Context(), bench)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	report.Print(&out)
	if !report.Valid() || len(report.Tables) != 2 || len(report.Tables[1].Rows) > 3 {
		t.Errorf("%s", out.String())
	}
	t.Log(out.String())
}
