package holds

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"io"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/andybalholm/brotli"

	"holdfast/internal/http1"
)

// coders put a coding on, as an app's middleware does.
var coders = map[string]func(io.Writer) io.WriteCloser{
	"gzip":    func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
	"x-gzip":  func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
	"deflate": func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) },
	"raw deflate": func(w io.Writer) io.WriteCloser { // by the name of deflate, as some send it
		f, _ := flate.NewWriter(w, flate.BestSpeed)
		return f
	},
	"br": func(w io.Writer) io.WriteCloser { return brotli.NewWriter(w) },
}

func coded(coding string, body []byte) []byte {
	var out bytes.Buffer
	w := coders[coding](&out)
	w.Write(body)
	w.Close()
	return out.Bytes()
}

// codingWord is how a coding is named in a field.
func codingWord(coding string) string { return strings.TrimPrefix(coding, "raw ") }

func TestDecode_TakesOffWhatTheAppPutOn(t *testing.T) {
	for coding := range coders {
		for _, body := range []string{"", "hello", strings.Repeat("data: x\n\n", 1000), "\x00\xff"} {
			for _, name := range []string{codingWord(coding), strings.ToUpper(codingWord(coding)), " identity ," + codingWord(coding)} {
				got, err := Decode([]http1.Field{headField("X-A", "b"), headField("content-ENCODING", name)}, coded(coding, []byte(body)))
				if err != nil || string(got) != body {
					t.Errorf("%s (%s): %.40q, %v; want %.40q", coding, name, got, err, body)
				}
			}
		}
	}
}

// The last was put on last, in one field or several.
func TestDecode_SeveralAreTakenOffFromTheLast(t *testing.T) {
	body := coded("br", coded("gzip", coded("raw deflate", []byte("hello"))))
	for _, fields := range [][]http1.Field{
		{headField("Content-Encoding", "deflate, gzip, br")},
		{headField("Content-Encoding", "deflate"), headField("X-A", "gzip"), headField("Content-Encoding", "gzip,br")},
	} {
		if got, err := Decode(fields, body); err != nil || string(got) != "hello" {
			t.Errorf("%q, %v", got, err)
		}
	}
	if got, err := Decode([]http1.Field{headField("Content-Encoding", "br, gzip, deflate")}, body); err == nil {
		t.Errorf("from the first it gives %q", got)
	}
	// Three at most: each costs as much as the largest body there may be.
	for range 4 {
		body = coded("gzip", body)
	}
	if got, err := Decode([]http1.Field{headField("Content-Encoding", "gzip, gzip"), headField("Content-Encoding", "gzip, gzip")}, body); err == nil || got != nil || !strings.Contains(err.Error(), "more than 3") {
		t.Errorf("four are %.40q, %v", got, err)
	}
}

func TestDecode_ABodyWithoutACodingIsItself(t *testing.T) {
	body := []byte("hello")
	for _, fields := range [][]http1.Field{nil, {headField("Content-Encoding", "")}, {headField("Content-Encoding", "identity, Identity")}, {headField("Transfer-Encoding", "gzip")}} {
		if got, err := Decode(fields, body); err != nil || &got[0] != &body[0] || len(got) != len(body) {
			t.Errorf("%v: %q, %v", fields, got, err)
		}
	}
}

// 1 MiB is what an answer may have, with its codings or without them: a small
// body that would become a large one is not let become it.
func TestDecode_MoreThan1MiBIsRefused(t *testing.T) {
	for coding := range coders {
		for _, size := range []int{maxDecoded, maxDecoded + 1, 4 * maxDecoded} {
			got, err := Decode([]http1.Field{headField("Content-Encoding", codingWord(coding))}, coded(coding, make([]byte, size)))
			if size == maxDecoded && (err != nil || len(got) != size) {
				t.Errorf("%s: of 1 MiB come %d bytes, %v", coding, len(got), err)
			}
			if size > maxDecoded && (err == nil || got != nil || !strings.Contains(err.Error(), "more than 1 MiB")) {
				t.Errorf("%s: of %d come %d bytes, %v", coding, size, len(got), err)
			}
		}
	}
}

// It is refused before it has become large.
func TestDecode_ASmallBodyDoesNotTakeTheMemoryOfALargeOne(t *testing.T) {
	bomb := coded("gzip", make([]byte, 64*maxDecoded))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := Decode([]http1.Field{headField("Content-Encoding", "gzip")}, bomb); err == nil {
		t.Error("it is taken")
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 16*maxDecoded {
		t.Errorf("%d bytes were taken for it", took)
	}
}

// What is not in its coding, to its end, is refused, and the text says which.
func TestDecode_WhatIsNotInItsCodingIsRefused(t *testing.T) {
	refused := func(what, coding string, body []byte, word string) {
		t.Helper()
		got, err := Decode([]http1.Field{headField("Content-Encoding", coding)}, body)
		if err == nil || got != nil {
			t.Errorf("%s: %.40q, %v", what, got, err)
		} else if text := err.Error(); !strings.Contains(text, word) || hasControl(text) || !utf8.ValidString(text) || len(text) > 300 {
			t.Errorf("%s: the text is %q", what, text)
		}
	}
	for coding := range coders {
		whole := coded(coding, []byte(strings.Repeat("some words of it, ", 50)))
		for _, size := range []int{1, len(whole) / 2, len(whole) - 1} {
			refused(coding+" cut", codingWord(coding), whole[:size], codingWord(coding))
		}
		refused(coding+" of words", codingWord(coding), []byte("some words, which are in no coding at all"), codingWord(coding))
		other := "gzip"
		if codingWord(coding) == "gzip" || coding == "x-gzip" {
			other = "br"
		}
		refused(coding+" by another name", other, whole, other)
	}
	flipped := coded("gzip", []byte("hello"))
	flipped[len(flipped)-5] ^= 1 // its sum
	refused("gzip with a wrong sum", "gzip", flipped, "gzip")
	for _, coding := range []string{"zstd", "compress", "gzip;q=1", "*", "\xff\x1b[0m", strings.Repeat("x", 1000)} {
		refused("unknown", coding, []byte("x"), "Content-Encoding")
	}
}

// An answer without a body, as one to HEAD, has nothing to take off.
func TestDecode_NoBytesAreNoBodyWhateverTheCoding(t *testing.T) {
	for coding := range coders {
		if got, err := Decode([]http1.Field{headField("Content-Encoding", codingWord(coding))}, nil); err != nil || len(got) != 0 {
			t.Errorf("%s: %q, %v", coding, got, err)
		}
	}
}

// FuzzDecode: nothing breaks, what comes is bounded, an error is a line that
// says what to do, and what was put on is taken off.
func FuzzDecode(f *testing.F) {
	for coding := range coders {
		f.Add(codingWord(coding), coded(coding, []byte("hello")))
		f.Add(codingWord(coding)+", "+codingWord(coding), coded(coding, coded(coding, []byte("hello"))))
	}
	f.Add("gzip", coded("gzip", make([]byte, 2<<20)))
	f.Add("zstd,\x00", []byte("x"))
	f.Fuzz(func(t *testing.T, names string, body []byte) {
		before := bytes.Clone(body)
		got, err := Decode([]http1.Field{headField("Content-Encoding", names)}, body)
		if err != nil && (got != nil || hasControl(err.Error()) || !utf8.ValidString(err.Error()) || len(err.Error()) > 300) {
			t.Fatalf("%q with %d bytes", err, len(got))
		}
		if !bytes.Equal(body, before) {
			t.Fatal("it wrote into what it was given")
		}
		if len(got) > max(maxDecoded, len(body)) {
			t.Fatalf("%d bytes", len(got))
		}
		if len(body) > maxDecoded {
			return
		}
		for coding := range coders {
			if got, err := Decode([]http1.Field{headField("Content-Encoding", codingWord(coding))}, coded(coding, body)); err != nil || !bytes.Equal(got, body) {
				t.Fatalf("%s: %v", coding, err)
			}
		}
	})
}
