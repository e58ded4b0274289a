package picture

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
)

// wellFormed reads all of it as XML and counts elements.
func wellFormed(t *testing.T, svg []byte) map[string]int {
	t.Helper()
	counts, decoder := map[string]int{}, xml.NewDecoder(bytes.NewReader(svg))
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return counts
		}
		if err != nil {
			t.Fatalf("%v in:\n%s", err, svg)
		}
		if start, ok := token.(xml.StartElement); ok {
			counts[start.Name.Local]++
		}
	}
}

func TestBars_HaveTheirLengthsFromZeroAndWhatIsWrittenIsEscaped(t *testing.T) {
	svg := Bars("a < b & c", "µs", []Bar{{Label: "one", Value: 10, Low: 8, High: 20, Ours: true}, {Label: `"two"`, Value: 20, Low: 20, High: 20}, {Label: "none"}})
	counts := wellFormed(t, svg)
	if counts["rect"] != 4 || counts["path"] != 1 {
		t.Errorf("%d rectangles, want the background and three bars; %d spreads, want one", counts["rect"], counts["path"])
	}
	for _, want := range []string{"a &lt; b &amp; c", `width="220.0"`, `width="440.0"`, `width="0.0"`, "&quot;two&quot;", "10.0 µs"} {
		if !strings.Contains(string(svg), want) {
			t.Errorf("no %s in:\n%s", want, svg)
		}
	}
}

func TestBars_OfNothingButZeroAreDrawn(t *testing.T) {
	if svg := Bars("t", "", []Bar{{Label: "x"}}); bytes.Contains(svg, []byte("NaN")) {
		t.Errorf("%s", svg)
	}
}

func TestLines_AreStraightForAPowerAndLeaveOutWhatHasNoLogarithm(t *testing.T) {
	svg := Lines("t", "x", "y", []Line{{Label: "square", Points: []Point{{10, 100}, {100, 10_000}, {1000, 1_000_000}, {0, 5}, {5, 0}}}, {Label: "empty"}})
	counts := wellFormed(t, svg)
	if counts["circle"] != 3 || bytes.Contains(svg, []byte("NaN")) || bytes.Contains(svg, []byte("Inf")) {
		t.Errorf("%d points, want 3:\n%s", counts["circle"], svg)
	}
	if want := "M70.0 370.0L270.0 207.0L470.0 44.0"; !strings.Contains(string(svg), want) {
		t.Errorf("no straight line %s in:\n%s", want, svg)
	}
}

func TestAxis_OfOneValueHasALength(t *testing.T) {
	for _, values := range [][]float64{nil, {1}, {10}, {7}} {
		a := newAxis(values, 0, 100)
		if a.high <= a.low || math.IsNaN(a.at(5)) {
			t.Errorf("%v: %+v", values, a)
		}
	}
}
