package http1

import (
	"errors"
	"strings"
	"testing"
)

func TestToken_TakesTheBytesOfRFC9110AndNoOther(t *testing.T) {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	const tchar = letters + "0123456789!#$%&'*+-.^_`|~"
	for c := range 256 {
		one := []byte{byte(c)}
		if got, want := IsToken(one), strings.IndexByte(tchar, byte(c)) >= 0; got != want {
			t.Errorf("IsToken(%q) is %v", one, got)
		}
		if got, want := IsDigits(one), c >= '0' && c <= '9'; got != want {
			t.Errorf("IsDigits(%q) is %v", one, got)
		}
		if got, want := IsValue(one), c == '\t' || c >= ' ' && c != 0x7f; got != want {
			t.Errorf("IsValue(%q) is %v", one, got)
		}
		inside := []byte{'a', byte(c), 'a'}
		if IsToken(inside) != IsToken(one) || IsValue(inside) != IsValue(one) {
			t.Errorf("%q is judged otherwise inside a word", one)
		}
	}
	if IsToken(nil) || IsDigits(nil) || !IsValue(nil) {
		t.Error("a token and digits have at least one byte, a value may have none")
	}
}

func TestParseField_ReadsALineAsRFC9112HasIt(t *testing.T) {
	for _, c := range []struct {
		line, name, value string
		err               error
	}{
		{line: "Host: a.test", name: "Host", value: "a.test"},
		{line: "Host:a.test", name: "Host", value: "a.test"},
		{line: "X-A: \t b  c \t ", name: "X-A", value: "b  c"},
		{line: "X-A:", name: "X-A"},
		{line: "X-A: \t", name: "X-A"},
		{line: "X-A: b: c", name: "X-A", value: "b: c"},
		{line: "X-A: \xc3\xa9\xff", name: "X-A", value: "\xc3\xa9\xff"},
		{line: "!#$%&'*+-.^_`|~9aZ: v", name: "!#$%&'*+-.^_`|~9aZ", value: "v"},
		{line: "", err: ErrFieldName},
		{line: ": v", err: ErrFieldName},
		{line: "X-A", err: ErrFieldName},
		{line: "X-A : v", err: ErrFieldName},
		{line: "X A: v", err: ErrFieldName},
		{line: "X\x00A: v", err: ErrFieldName},
		{line: "X(A): v", err: ErrFieldName},
		{line: "\xc3\xa9: v", err: ErrFieldName},
		{line: " X-A: v", err: ErrFieldFold},
		{line: "\tX-A: v", err: ErrFieldFold},
		{line: "X-A: a\x00b", err: ErrFieldValue},
		{line: "X-A: a\rb", err: ErrFieldValue},
		{line: "X-A: v\r", err: ErrFieldValue},
		{line: "X-A: a\nb", err: ErrFieldValue},
		{line: "X-A: a\x7fb", err: ErrFieldValue},
		{line: "X-A: \x0bv", err: ErrFieldValue},
	} {
		field, err := ParseField([]byte(c.line))
		if !errors.Is(err, c.err) || string(field.Name) != c.name || string(field.Value) != c.value {
			t.Errorf("ParseField(%q) is %q %q, %v", c.line, field.Name, field.Value, err)
		}
	}
}

func TestContainsFold_FindsItAnywhereInAnyCase(t *testing.T) {
	for _, c := range []struct {
		b, lower string
		want     bool
	}{
		{"text/html, Text/Event-Stream;q=0.5", "text/event-stream", true}, {"text/event-stream", "text/event-stream", true},
		{"text/event-strea", "text/event-stream", false}, {"", "a", false}, {"bA", "a", true}, {"b", "", true},
		{"tetext/event-stream", "text/event-stream", true},
	} {
		if got := ContainsFold([]byte(c.b), c.lower); got != c.want {
			t.Errorf("ContainsFold(%q, %q) is %v", c.b, c.lower, got)
		}
	}
}

func TestEqualFold_FoldsASCIILettersOnly(t *testing.T) {
	for _, c := range []struct {
		b, lower string
		want     bool
	}{
		{"Content-Length", "content-length", true},
		{"CONTENT-LENGTH", "content-length", true},
		{"content-lengt", "content-length", false},
		{"content-length-", "content-length", false},
		{"", "", true},
		{"@", "`", false}, // 0x20 apart, and no letters
		{"[", "{", false},
		{"\x0d", "-", false},
		{"\xe2\x84\xaa", "k", false}, // the Kelvin sign, which unicode folds to k
		{"_a", "-a", false},
	} {
		if got := EqualFold([]byte(c.b), c.lower); got != c.want {
			t.Errorf("EqualFold(%q, %q) is %v", c.b, c.lower, got)
		}
	}
	for _, c := range []struct {
		b, lower string
		want     bool
	}{
		{"X-Forwarded-For", "x-forwarded-", true}, {"x-forwarded-", "x-forwarded-", true},
		{"X-Forwarded", "x-forwarded-", false}, {"Y-Forwarded-For", "x-forwarded-", false}, {"a", "", true},
	} {
		if got := HasPrefixFold([]byte(c.b), c.lower); got != c.want {
			t.Errorf("HasPrefixFold(%q, %q) is %v", c.b, c.lower, got)
		}
	}
}

func TestNextElement_CutsAListAtItsCommas(t *testing.T) {
	for _, c := range []struct {
		list string
		want []string
	}{
		{"", nil},
		{"close", []string{"close"}},
		{"close, X-A ,\tY", []string{"close", "X-A", "Y"}},
		{",a", []string{"", "a"}},
		{"a,,b", []string{"a", "", "b"}},
		{" ", []string{""}},
		{"a b,c", []string{"a b", "c"}},
	} {
		var got []string
		for list := []byte(c.list); ; {
			element, rest, ok := NextElement(list)
			if !ok {
				break
			}
			got, list = append(got, string(element)), rest
		}
		if strings.Join(got, "|") != strings.Join(c.want, "|") || len(got) != len(c.want) {
			t.Errorf("the elements of %q are %q", c.list, got)
		}
	}
	if !HasElement([]byte("keep-alive , Close"), "close") || HasElement([]byte("closed, not close"), "close") {
		t.Error("an element is compared whole, in any case")
	}
}

func TestParseLength_IsDigitsAndKnowsWhatIsTooLarge(t *testing.T) {
	for _, c := range []struct {
		text     string
		length   int64
		tooLarge bool
		ok       bool
	}{
		{"0", 0, false, true},
		{"5", 5, false, true},
		{"007", 7, false, true},
		{"9223372036854775807", 1<<63 - 1, false, true},
		{"9223372036854775808", 0, true, true},
		{"18446744073709551621", 0, true, true}, // 5, once it has wrapped
		{strings.Repeat("9", 400), 0, true, true},
		{strings.Repeat("0", 400) + "5", 5, false, true},
		{text: ""}, {text: "+5"}, {text: "-5"}, {text: "0x5"}, {text: "5 "}, {text: "5,5"}, {text: "5_0"}, {text: "5\x00"}, {text: "\xd9\xa5"},
	} {
		length, tooLarge, ok := ParseLength([]byte(c.text))
		if length != c.length || tooLarge != c.tooLarge || ok != c.ok {
			t.Errorf("ParseLength(%.40q) is %d, %v, %v", c.text, length, tooLarge, ok)
		}
	}
}

var heads = []struct {
	text string
	end  int // offset behind the empty line; 0: it has none
	err  error
}{
	{text: "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n", end: 32},
	{text: "GET / HTTP/1.1\r\nHost: a.test\r\n\r\nGET /b HTTP/1.1\r\n\r\n", end: 32},
	{text: "GET / HTTP/1.1\r\n\r\n\n", end: 18}, // what is behind the head is not looked at
	{text: "\r\n", end: 2},
	{text: "\r\nGET", end: 2},
	{text: ""},
	{text: "GET / HTTP/1.1\r\nHost: a.test\r\n\r"},
	{text: "GET / HTTP/1.1\r\nHost: a.test\r\n"},
	{text: "GET / HTTP/1.1\rHost: a.test\r\r"},
	{text: "GET / HTTP/1.1\nHost: a.test\r\n\r\n", err: ErrBareLF},
	{text: "GET / HTTP/1.1\r\nHost: a.test\n\r\n", err: ErrBareLF},
	{text: "GET / HTTP/1.1\r\n\n", err: ErrBareLF},
	{text: "\n", err: ErrBareLF},
}

func TestScanHead_FindsTheEmptyLineWhereverReadsAreSplit(t *testing.T) {
	for _, head := range heads {
		for split := range len(head.text) + 1 {
			end, next, err := ScanHead([]byte(head.text[:split]), 0)
			if end == 0 && err == nil {
				end, next, err = ScanHead([]byte(head.text), next)
			}
			if end != head.end || err != head.err {
				t.Errorf("%q, split at %d: end %d, %v; want %d, %v", head.text, split, end, err, head.end, head.err)
			}
			if end > 0 && next != end {
				t.Errorf("%q, split at %d: next is %d behind the end %d", head.text, split, next, end)
			}
		}
		end, next := 0, 0
		var err error
		for i := 0; i <= len(head.text) && end == 0 && err == nil; i++ {
			end, next, err = ScanHead([]byte(head.text[:i]), next)
			if next > i {
				t.Fatalf("%q: next is %d of %d bytes", head.text, next, i)
			}
		}
		if end != head.end || err != head.err {
			t.Errorf("%q, byte by byte: end %d, %v; want %d, %v", head.text, end, err, head.end, head.err)
		}
	}
}
