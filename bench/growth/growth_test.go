package growth

import (
	"bytes"
	"io"
	"math"
	"strings"
	"testing"

	"holdfast/bench/peer"
)

func TestFit_GivesThePowersExponent(t *testing.T) {
	xs := []float64{10, 100, 1000, 10000}
	for _, exponent := range []float64{0, 0.5, 1, 2} {
		ys := make([]float64, len(xs))
		for i, x := range xs {
			ys[i] = 3.7 * math.Pow(x, exponent)
		}
		if got, ok := fit(xs, ys); !ok || math.Abs(got-exponent) > 1e-9 {
			t.Errorf("exponent %v: %v, %v", exponent, got, ok)
		}
	}
}

func TestFit_OfFewerThanTwoPointsWithALogarithmIsNone(t *testing.T) {
	for _, points := range [][2][]float64{{nil, nil}, {{10}, {5}}, {{10, 100}, {0, 5}}, {{10, 10}, {5, 6}}} {
		if got, ok := fit(points[0], points[1]); ok {
			t.Errorf("%v: %v", points, got)
		}
	}
	if got, ok := fit([]float64{10, 100, 1000}, []float64{5, 0, 500}); !ok || math.Abs(got-1) > 1e-9 {
		t.Errorf("with a zero left out: %v, %v", got, ok)
	}
}

func TestScript_AsksEachRouteInTurn(t *testing.T) {
	if script(0) != "" || !strings.Contains(script(12), "= 12, 0, {}") || !strings.Contains(script(12), "% n") {
		t.Errorf("%q, %q", script(0), script(12))
	}
}

// All sweeps, up to 100, in a short run.
func TestRun_AShortRunMeasuresEverySweep(t *testing.T) {
	if !peer.Installed(peer.Wrk) {
		t.Skip("wrk is not installed")
	}
	bench, err := peer.New(io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bench.Close)
	bench.Short = true
	report, err := Run(t.Context(), bench)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	report.Print(&out)
	report.Markdown(&out)
	if !report.Valid() || len(report.Tables[0].Rows) != len(Sweeps()) || strings.Contains(out.String()+string(report.Pictures[0].SVG), "NaN") {
		t.Errorf("%s", out.String())
	}
	t.Log(out.String())
}
