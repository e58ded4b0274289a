package http1

import (
	"bytes"
	"testing"
)

// FuzzChunked: however the bytes are split, they are read alike; nothing is
// consumed behind the end, and a body that has ended ends again where it did.
func FuzzChunked(f *testing.F) {
	for _, c := range chunkedCases {
		f.Add([]byte(c.in), uint16(len(c.in)/2), uint16(0))
		f.Add([]byte(c.in+"5\r\nhello\r\n0\r\n\r\n"), uint16(1), uint16(40))
	}
	f.Fuzz(func(t *testing.T, in []byte, split, trailerBytes uint16) {
		fresh := func() *Chunked { return &Chunked{TrailerBytes: int(trailerBytes)} }
		before := bytes.Clone(in)
		whole := feed(t, fresh(), in)
		if got := feed(t, fresh(), bytes.SplitAfter(in, nil)...); !got.same(whole) {
			t.Fatalf("whole: %v; byte by byte: %v", whole, got)
		}
		at := int(split) % (len(in) + 1)
		if got := feed(t, fresh(), in[:at], in[at:]); !got.same(whole) {
			t.Fatalf("whole: %v; split at %d: %v", whole, at, got)
		}
		if !bytes.Equal(in, before) {
			t.Fatal("it wrote into what it was given")
		}
		if !whole.done {
			return
		}
		if got := feed(t, fresh(), in[:whole.consumed]); !got.same(whole) {
			t.Fatalf("whole: %v; without what is behind its end: %v", whole, got)
		}
		if got := feed(t, fresh(), in[:whole.consumed-1]); got.done || got.err != nil {
			t.Fatalf("without its last byte: %v", got)
		}
		c := fresh()
		feed(t, c, in[:whole.consumed])
		if n, data, done, err := c.Next([]byte("0\r\n\r\n")); n != 0 || data != nil || !done || err != nil {
			t.Fatalf("behind its end: %d, %q, %v, %v", n, data, done, err)
		}
	})
}

// FuzzParseField: what is taken has a token for a name and no control byte in
// its value, and means the same when it is written out and read again.
func FuzzParseField(f *testing.F) {
	for _, line := range []string{"Host: a.test", "X-A:", "X-A: \t b\tc ", "X-A : v", " X-A: v", "X-A: a\x00b", "X-A: v\r",
		": v", "", "X A: v", "X-A: \xff", "a:\x7f", "a:b:c", "a: \x0b"} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		field, err := ParseField(line)
		if err != nil {
			if field.Name != nil || field.Value != nil {
				t.Fatalf("an error and a field: %q %q", field.Name, field.Value)
			}
			return
		}
		if !IsToken(field.Name) || !IsValue(field.Value) || bytes.ContainsAny(field.Value, "\r\n\x00") {
			t.Fatalf("%q is taken as %q %q", line, field.Name, field.Value)
		}
		if !bytes.HasPrefix(line, append(bytes.Clone(field.Name), ':')) || !bytes.Equal(TrimSpace(line[len(field.Name)+1:]), field.Value) {
			t.Fatalf("%q is taken as %q %q", line, field.Name, field.Value)
		}
		again, err := ParseField([]byte(string(field.Name) + ": " + string(field.Value)))
		if err != nil || !bytes.Equal(again.Name, field.Name) || !bytes.Equal(again.Value, field.Value) {
			t.Fatalf("written out, %q is %q %q, %v", line, again.Name, again.Value, err)
		}
	})
}
