package http1

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// readOut is what a reader made of a chunked body.
type readOut struct {
	data     []byte
	done     bool
	consumed int // up to the end of the body, where it has one
	err      error
}

// feed gives pieces to a reader, each as often as it takes something of it.
func feed(t testing.TB, c *Chunked, pieces ...[]byte) (out readOut) {
	t.Helper()
	for _, in := range pieces {
		for len(in) > 0 && !out.done && out.err == nil {
			n, data, done, err := c.Next(in)
			if n < 0 || n > len(in) || len(data) > n {
				t.Fatalf("of %d bytes it consumed %d with %d of data", len(in), n, len(data))
			}
			if n == 0 && !done && err == nil {
				t.Fatalf("it takes nothing of %.80q and says nothing", in)
			}
			out.data = append(out.data, data...)
			out.consumed += n
			out.done, out.err = done, err
			in = in[n:]
		}
	}
	return out
}

func (a readOut) same(b readOut) bool {
	return bytes.Equal(a.data, b.data) && a.done == b.done && a.err == b.err && (!a.done || a.consumed == b.consumed)
}

func (a readOut) String() string {
	return fmt.Sprintf("%.80q, done %v, %d consumed, %v", a.data, a.done, a.consumed, a.err)
}

type chunkedCase struct {
	name, in string
	data     string
	rest     string // behind the end, must not be consumed
	err      error
	partial  bool // the body is not at its end
}

var chunkedCases = []chunkedCase{
	{name: "Empty", in: "0\r\n\r\n"},
	{name: "OneChunk", in: "5\r\nhello\r\n0\r\n\r\n", data: "hello"},
	{name: "TwoChunks", in: "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n", data: "hello world"},
	{name: "DataLooksLikeFraming", in: "9\r\n0\r\n\r\n1\r\nx\r\n0\r\n\r\n", data: "0\r\n\r\n1\r\nx"},
	{name: "CapitalAndSmallDigits", in: "A\r\n0123456789\r\nb\r\n0123456789a\r\n0\r\n\r\n", data: "01234567890123456789a"},
	{name: "LeadingZeros", in: "0000000000000005\r\nhello\r\n0000\r\n\r\n", data: "hello"},
	{name: "NextRequestStays", in: "5\r\nhello\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n", data: "hello", rest: "GET / HTTP/1.1\r\n\r\n"},
	{name: "EmptyLineBehindStays", in: "0\r\n\r\n\r\n", rest: "\r\n"},
	{name: "Extensions", in: "5;a;b=c ; d\t= \"e;\\\"f\"\r\nhello\r\n0;last\r\n\r\n", data: "hello"},
	{name: "Trailer", in: "1\r\nx\r\n0\r\nX-Sum: 1\r\nX-B:\r\n\r\n", data: "x"},

	{name: "NoSize", in: "\r\nhello\r\n0\r\n\r\n", err: ErrChunkSize},
	{name: "SizeSigned", in: "+5\r\nhello\r\n0\r\n\r\n", err: ErrChunkSize},
	{name: "SizeNegative", in: "-5\r\nhello\r\n0\r\n\r\n", err: ErrChunkSize},
	{name: "SizePrefixed", in: "0x5\r\nhello\r\n0\r\n\r\n", err: ErrChunkExtension},
	{name: "SizeUnderscored", in: "1_0\r\nhello\r\n0\r\n\r\n", err: ErrChunkExtension},
	{name: "SizeIndented", in: " 5\r\nhello\r\n0\r\n\r\n", err: ErrChunkSize},
	{name: "SizeAndBlank", in: "5 \r\nhello\r\n0\r\n\r\n", err: ErrChunkExtension},
	{name: "SizeOf17Digits", in: "00000000000000005\r\nhello\r\n0\r\n\r\n", err: ErrChunkSize},
	{name: "SizeWraps", in: "10000000000000005\r\nhello\r\n0\r\n\r\n", err: ErrChunkSize},
	{name: "SizeBeyondInt64", in: "8000000000000000\r\nhello", err: ErrChunkSize},
	{name: "SumBeyondInt64", in: "1\r\nx\r\n7fffffffffffffff\r\nx", data: "x", err: ErrChunkSize},
	{name: "SizeLineEndsInLF", in: "5\nhello\r\n0\r\n\r\n", err: ErrBareLF},
	{name: "LFAlone", in: "\n", err: ErrBareLF},
	{name: "DataTooLong", in: "5\r\nhello!\r\n0\r\n\r\n", data: "hello", err: ErrChunkEnd},
	{name: "DataEndsInLF", in: "5\r\nhello\n0\r\n\r\n", data: "hello", err: ErrChunkEnd},
	{name: "DataEndsInCR", in: "5\r\nhello\r0\r\n\r\n", data: "hello", err: ErrChunkEnd},
	{name: "ExtensionWithoutName", in: "5;\r\nhello\r\n0\r\n\r\n", err: ErrChunkExtension},
	{name: "ExtensionWithoutValue", in: "5;a=\r\nhello\r\n0\r\n\r\n", err: ErrChunkExtension},
	{name: "ExtensionQuoteOpen", in: "5;a=\"b\r\nhello\r\n0\r\n\r\n", err: ErrChunkExtension},
	{name: "ExtensionQuotesACR", in: "5;a=\"\\\r\"\r\nhello\r\n0\r\n\r\n", err: ErrChunkExtension},
	{name: "ExtensionHasCR", in: "5;a\rb\r\nhello\r\n0\r\n\r\n", err: ErrChunkExtension},
	{name: "TrailerLineEndsInLF", in: "0\r\nX-Sum: 1\n\r\n", err: ErrBareLF},
	{name: "EndsInLF", in: "0\r\n\n", err: ErrBareLF},
	{name: "TrailerFolded", in: "0\r\nX-Sum: 1\r\n 2\r\n\r\n", err: ErrFieldFold},
	{name: "TrailerWithoutColon", in: "0\r\nX-Sum\r\n\r\n", err: ErrFieldName},
	{name: "TrailerHasCR", in: "0\r\nX-Sum: 1\r2\r\n\r\n", err: ErrFieldValue},
	{name: "TrailerFrames", in: "0\r\nContent-Length: 5\r\n\r\n", err: ErrTrailerField},
	{name: "TrailerFramesInCapitals", in: "0\r\nTRANSFER-ENCODING: chunked\r\n\r\n", err: ErrTrailerField},
	{name: "TrailerAuthorizes", in: "0\r\nAuthorization: x\r\n\r\n", err: ErrTrailerField},

	{name: "CutInTheSize", in: "5", partial: true},
	{name: "CutInTheData", in: "5\r\nhel", data: "hel", partial: true},
	{name: "CutBehindTheData", in: "5\r\nhello\r", data: "hello", partial: true},
	{name: "CutInTheLastLine", in: "5\r\nhello\r\n0\r\n\r", data: "hello", partial: true},
	{name: "CutInTheTrailer", in: "0\r\nX-Sum: 1\r\n", partial: true},
}

func (c chunkedCase) want() readOut {
	return readOut{data: []byte(c.data), done: c.err == nil && !c.partial, consumed: len(c.in) - len(c.rest), err: c.err}
}

func TestChunked_ReadsTheSameHoweverItsBytesCome(t *testing.T) {
	for _, c := range chunkedCases {
		t.Run(c.name, func(t *testing.T) {
			in, want := []byte(c.in), c.want()
			if got := feed(t, new(Chunked), in); !got.same(want) {
				t.Errorf("whole: %v; want %v", got, want)
			}
			if got := feed(t, new(Chunked), bytes.SplitAfter(in, nil)...); !got.same(want) {
				t.Errorf("byte by byte: %v; want %v", got, want)
			}
			for split := range in {
				if got := feed(t, new(Chunked), in[:split], in[split:]); !got.same(want) {
					t.Errorf("split at %d: %v; want %v", split, got, want)
				}
			}
		})
	}
}

func TestChunked_ResetMakesItReadyForAnotherBody(t *testing.T) {
	c := &Chunked{TrailerBytes: 20}
	for _, c1 := range chunkedCases {
		feed(t, c, []byte(c1.in))
		c.Reset()
		got := feed(t, c, []byte("5;a=b\r\nhel"), []byte("lo\r\n0\r\nX-A: 1\r\n\r\n"))
		if got.err != nil || !got.done || string(got.data) != "hello" || c.Announced() != 5 {
			t.Errorf("after %s: %v, %d announced", c1.name, got, c.Announced())
		}
		c.Reset()
	}
	if c.TrailerBytes != 20 {
		t.Error("Reset changed TrailerBytes")
	}
}

func TestChunked_AnnouncesAChunkBeforeItsData(t *testing.T) {
	c := new(Chunked)
	feed(t, c, []byte("3\r\nabc\r\nfffffff\r\n"))
	if got := c.Announced(); got != 3+0xfffffff {
		t.Errorf("announced: %d", got)
	}
}

func TestChunked_LimitsAreExact(t *testing.T) {
	sizeLine := func(n int) string { return "1;" + strings.Repeat("a", n-4) + "\r\n" } // n bytes with CRLF
	fields := func(n int) string { return strings.Repeat("X-A: b\r\n", n) }
	trailer := func(n int) string { return "X: " + strings.Repeat("v", n-5) + "\r\n" } // n bytes with CRLF
	// Six lines of 2,732 bytes have 6 x 2,729 bytes of extension with 6 bytes of
	// data: 16,374 of the 16,390 allowed. The seventh's are the rest.
	many := strings.Repeat(sizeLine(2732)+"x\r\n", 6)
	for _, c := range []struct {
		name, in string
		trailer  int
		err      error
	}{
		{name: "SizeLineOf4KiB", in: sizeLine(4096) + "x\r\n0\r\n\r\n"},
		{name: "SizeLineLonger", in: sizeLine(4097) + "x\r\n0\r\n\r\n", err: ErrChunkLine},
		{name: "SizeLineWithoutEnd", in: "1;" + strings.Repeat("a", 5000), err: ErrChunkLine},
		{name: "ExtensionsInAll", in: many + "1;" + strings.Repeat("a", 16) + "\r\nx\r\n0\r\n\r\n"},
		{name: "ExtensionsInAllLonger", in: many + "1;" + strings.Repeat("a", 17) + "\r\nx\r\n0\r\n\r\n", err: ErrChunkLine},
		{name: "ExtensionsThatDataPaysFor", in: strings.Repeat("1000;"+strings.Repeat("a", 4000)+"\r\n"+strings.Repeat("x", 4096)+"\r\n", 40) + "0\r\n\r\n"},
		{name: "TrailerOf16KiB", in: "0\r\n" + trailer(8192) + trailer(8190) + "\r\n"},
		{name: "TrailerLonger", in: "0\r\n" + trailer(8192) + trailer(8191) + "\r\n", err: ErrTrailerTooLarge},
		{name: "TrailerBytesSet", in: "0\r\n" + trailer(98) + "\r\n", trailer: 100},
		{name: "TrailerBytesSetLonger", in: "0\r\n" + trailer(99) + "\r\n", trailer: 100, err: ErrTrailerTooLarge},
		{name: "TrailerWithoutEnd", in: "0\r\n" + strings.Repeat("v", 101), trailer: 100, err: ErrTrailerTooLarge},
		{name: "TrailerOf64Fields", in: "0\r\n" + fields(64) + "\r\n"},
		{name: "TrailerOf65Fields", in: "0\r\n" + fields(65) + "\r\n", err: ErrTrailerTooLarge},
	} {
		in := []byte(c.in)
		for how, pieces := range map[string][][]byte{"whole": {in}, "byte by byte": bytes.SplitAfter(in, nil), "halved": {in[:len(in)/2], in[len(in)/2:]}} {
			got := feed(t, &Chunked{TrailerBytes: c.trailer}, pieces...)
			if !errors.Is(got.err, c.err) || got.done != (c.err == nil) {
				t.Errorf("%s, %s: %v; want %v", c.name, how, got, c.err)
			}
		}
	}
}
