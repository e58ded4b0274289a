package setup

import (
	"bytes"
	"io"
	"slices"
	"testing"

	"holdfast/bench/holders"
	"holdfast/bench/peer"
)

func TestCommas(t *testing.T) {
	for n, want := range map[int]string{50: "50", 999: "999", 4000: "4,000", 15000: "15,000"} {
		if got := commas(n); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
}

// Every row whose programs are installed, in a short run.
func TestRun_AShortRunMeasuresEveryRow(t *testing.T) {
	bench, err := peer.New(io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bench.Close)
	bench.Short = true
	for _, r := range rows {
		if slices.Contains(holders.Available(), r.server) && (!r.gunicorn || peer.Installed(peer.Gunicorn)) {
			bench.Only = append(bench.Only, r.name)
		}
	}
	report, err := Run(t.Context(), bench)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	report.Print(&out)
	if !report.Valid() {
		t.Errorf("%s", out.String())
	}
	t.Log(out.String())
}
