package holds

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"io"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"
)

// coded puts a coding on.
func coded(coding, text string) []byte {
	var out bytes.Buffer
	var w io.WriteCloser
	switch coding {
	case "gzip":
		w = gzip.NewWriter(&out)
	case "deflate":
		w = zlib.NewWriter(&out)
	case "raw deflate":
		w, _ = flate.NewWriter(&out, flate.BestSpeed)
	case "br":
		w = brotli.NewWriter(&out)
	}
	io.WriteString(w, text)
	w.Close()
	return out.Bytes()
}

func TestDecode_TakesOffWhatMiddlewarePutsOn(t *testing.T) {
	const text = "first bytes\n\n"
	twice := coded("br", string(coded("gzip", text)))
	for _, c := range []struct {
		lines []string
		body  []byte
	}{
		{nil, []byte(text)},
		{[]string{"Content-Encoding: identity"}, []byte(text)},
		{[]string{"Content-Encoding:"}, []byte(text)},
		{[]string{"content-encoding: gzip"}, coded("gzip", text)},
		{[]string{"Content-Encoding: X-GZIP"}, coded("gzip", text)},
		{[]string{"Content-Encoding: deflate"}, coded("deflate", text)},
		{[]string{"Content-Encoding: deflate"}, coded("raw deflate", text)},
		{[]string{"Content-Encoding: br"}, coded("br", text)},
		{[]string{"Content-Encoding: gzip, br"}, twice},
		{[]string{"Content-Encoding: gzip", "X: y", "Content-Encoding: br"}, twice},
	} {
		if got, err := Decode(fieldsOf(t, c.lines...), c.body); string(got) != text || err != nil {
			t.Errorf("%q: %q, %v", c.lines, got, err)
		}
	}
}

func TestDecode_RefusesWhatItCannotTakeOff(t *testing.T) {
	for _, c := range []struct {
		line string
		body []byte
		says string
	}{
		{"Content-Encoding: zstd", nil, "zstd"},
		{"Content-Encoding: gzip", []byte("no gzip"), "gzip"},
		{"Content-Encoding: gzip", nil, "gzip"},
		{"Content-Encoding: br", []byte{0xff, 0xff, 0xff}, "br"},
		{"Content-Encoding: deflate", []byte{0xff, 0xff}, "deflate"},
		{"Content-Encoding: gzip", coded("gzip", "cut")[:20], "gzip"},
		{"Content-Encoding: br, br, br, br", coded("br", "x"), "more than 3"},
	} {
		if got, err := Decode(fieldsOf(t, c.line), c.body); err == nil || got != nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %q, %v; want an error that names %s", c.line, got, err, c.says)
		}
	}
}

// A small body may stand for a large one.
func TestDecode_IsBoundedWhateverABodyStandsFor(t *testing.T) {
	for _, coding := range []string{"gzip", "deflate", "br"} {
		fields := fieldsOf(t, "Content-Encoding: "+coding)
		if got, err := Decode(fields, coded(coding, strings.Repeat("x", maxDecoded))); len(got) != maxDecoded || err != nil {
			t.Errorf("%s: %d bytes, %v", coding, len(got), err)
		}
		if got, err := Decode(fields, coded(coding, strings.Repeat("x", maxDecoded+1))); got != nil || err == nil {
			t.Errorf("%s: %d bytes, %v; want an error", coding, len(got), err)
		}
	}
}
