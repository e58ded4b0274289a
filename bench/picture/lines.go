package picture

import (
	"bytes"
	"fmt"
	"math"
)

// Line is one series.
type Line struct {
	Label  string
	Points []Point // by X
}

// Point is above zero in both, or it is left out: a logarithm has no place for it.
type Point struct{ X, Y float64 }

// Colours and dashes of the lines, in their order; from the seventh on they
// begin anew.
var (
	colours = []string{"#1f5fae", "#b3541e", "#2d7d46", "#7a3e9d", "#555555", "#a8860b"}
	dashes  = []string{"", "6 3", "2 3", "8 3 2 3", "4 4", "1 4"}
)

const (
	plotLeft, plotRight = 70, 250
	plotTop, plotBottom = 44, 50
	plotHeight          = 420
)

// axis is a logarithmic one, from one power of ten to another.
type axis struct {
	low, high int // exponents
	from, to  float64
}

func newAxis(values []float64, from, to float64) axis {
	low, high := math.Inf(1), math.Inf(-1)
	for _, value := range values {
		low, high = min(low, math.Log10(value)), max(high, math.Log10(value))
	}
	if len(values) == 0 {
		low, high = 0, 1
	}
	a := axis{low: int(math.Floor(low)), high: int(math.Ceil(high)), from: from, to: to}
	if a.high == a.low {
		a.high++
	}
	return a
}

func (a axis) at(value float64) float64 {
	return a.from + (math.Log10(value)-float64(a.low))/float64(a.high-a.low)*(a.to-a.from)
}

// Lines draws series over logarithmic axes: what grows like a power is a
// straight line there, and its slope the exponent.
func Lines(title, x, y string, lines []Line) []byte {
	var xs, ys []float64
	drawn := make([][]Point, len(lines))
	for i, line := range lines {
		for _, point := range line.Points {
			if point.X > 0 && point.Y > 0 {
				drawn[i] = append(drawn[i], point)
				xs, ys = append(xs, point.X), append(ys, point.Y)
			}
		}
	}
	across := newAxis(xs, plotLeft, width-plotRight)
	up := newAxis(ys, plotHeight-plotBottom, plotTop)

	var out bytes.Buffer
	begin(&out, plotHeight, title)
	grid(&out, across, up)
	fmt.Fprintf(&out, `<text x="%d" y="%d" text-anchor="middle">%s</text>`+"\n", (plotLeft+width-plotRight)/2, plotHeight-10, escape(x))
	fmt.Fprintf(&out, `<text x="16" y="%d" text-anchor="middle" transform="rotate(-90 16 %d)">%s</text>`+"\n", plotHeight/2, plotHeight/2, escape(y))
	for i, line := range lines {
		drawLine(&out, i, line.Label, drawn[i], across, up)
	}
	return end(&out)
}

func grid(out *bytes.Buffer, across, up axis) {
	for exponent := across.low; exponent <= across.high; exponent++ {
		at := across.at(math.Pow10(exponent))
		fmt.Fprintf(out, `<path d="M%.1f %.0fV%.0f" stroke="#ddd"/>`+"\n", at, up.from, up.to)
		fmt.Fprintf(out, `<text x="%.1f" y="%.0f" text-anchor="middle">%s</text>`+"\n", at, up.from+18, power(exponent))
	}
	for exponent := up.low; exponent <= up.high; exponent++ {
		at := up.at(math.Pow10(exponent))
		fmt.Fprintf(out, `<path d="M%.0f %.1fH%.0f" stroke="#ddd"/>`+"\n", across.from, at, across.to)
		fmt.Fprintf(out, `<text x="%.0f" y="%.1f" text-anchor="end">%s</text>`+"\n", across.from-6, at+4, power(exponent))
	}
}

func power(exponent int) string {
	return fmt.Sprintf("%g", math.Pow10(exponent))
}

func drawLine(out *bytes.Buffer, number int, label string, points []Point, across, up axis) {
	colour, dash := colours[number%len(colours)], dashes[number%len(dashes)]
	path := ""
	for i, point := range points {
		command := "L"
		if i == 0 {
			command = "M"
		}
		path += fmt.Sprintf("%s%.1f %.1f", command, across.at(point.X), up.at(point.Y))
		fmt.Fprintf(out, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`+"\n", across.at(point.X), up.at(point.Y), colour)
	}
	if path != "" {
		fmt.Fprintf(out, `<path d="%s" fill="none" stroke="%s" stroke-width="2" stroke-dasharray="%s"/>`+"\n", path, colour, dash)
	}
	y := plotTop + 8 + 20*number
	fmt.Fprintf(out, `<path d="M%d %dH%d" stroke="%s" stroke-width="2" stroke-dasharray="%s"/>`+"\n", width-plotRight+14, y, width-plotRight+40, colour, dash)
	fmt.Fprintf(out, `<text x="%d" y="%d" font-size="12">%s</text>`+"\n", width-plotRight+46, y+4, escape(label))
}
