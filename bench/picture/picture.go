// Package picture draws a benchmark's figures as SVG: bars with their spread,
// and lines over logarithmic axes.
//
//	svg := picture.Bars("Bytes a hold", "bytes", bars)
//	svg := picture.Lines("Cost of an event", "holds", "µs", lines)
//
// What is drawn depends on nothing but the values. No scripts, styles or fonts
// from elsewhere; the background is white, so that it can be read on a dark page.
package picture

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

const (
	width = 720
	font  = `font-family="sans-serif" font-size="13"`

	ours  = "#1f5fae" // Holdfast's
	other = "#9aa5b1"
)

// Bar is one figure with its spread.
type Bar struct {
	Label            string
	Value, Low, High float64
	Ours             bool // drawn in the colour of Holdfast
}

// Bars draws a bar for each figure, all from zero. Values below zero are drawn
// as zero.
func Bars(title, unit string, bars []Bar) []byte {
	const left, right, top, step, thick = 190, 90, 44, 30, 18
	most := 0.0
	for _, bar := range bars {
		most = max(most, bar.Value, bar.High)
	}
	if most == 0 {
		most = 1
	}
	at := func(value float64) float64 { return left + max(0, value)/most*(width-left-right) }

	var out bytes.Buffer
	begin(&out, top+step*len(bars)+8, title)
	for i, bar := range bars {
		y := top + step*i
		colour := other
		if bar.Ours {
			colour = ours
		}
		fmt.Fprintf(&out, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", left-8, y+14, escape(bar.Label))
		fmt.Fprintf(&out, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>`+"\n", left, y, at(bar.Value)-left, thick, colour)
		if bar.High > bar.Low {
			fmt.Fprintf(&out, `<path d="M%.1f %dH%.1f" stroke="#333" stroke-width="1.5"/>`+"\n", at(bar.Low), y+thick/2, at(bar.High))
		}
		fmt.Fprintf(&out, `<text x="%.1f" y="%d">%s</text>`+"\n", at(max(bar.Value, bar.High))+6, y+14, escape(short(bar.Value)+" "+unit))
	}
	return end(&out)
}

func begin(out *bytes.Buffer, height int, title string) {
	fmt.Fprintf(out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" %s fill="#222">`+"\n", width, height, width, height, font)
	fmt.Fprintf(out, `<title>%s</title>`+"\n"+`<rect width="100%%" height="100%%" fill="#fff"/>`+"\n", escape(title))
	// A long title is set smaller, to fit.
	size := min(15, max(9, 1300/max(1, len([]rune(title)))))
	fmt.Fprintf(out, `<text x="12" y="24" font-size="%d" font-weight="bold">%s</text>`+"\n", size, escape(title))
}

func end(out *bytes.Buffer) []byte {
	out.WriteString("</svg>\n")
	return out.Bytes()
}

// short is a value in three digits, or whole.
func short(value float64) string {
	switch {
	case value >= 100:
		return strconv.FormatFloat(value, 'f', 0, 64)
	case value >= 10:
		return strconv.FormatFloat(value, 'f', 1, 64)
	}
	return strconv.FormatFloat(value, 'f', 2, 64)
}

func escape(text string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;").Replace(text)
}
