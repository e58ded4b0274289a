package holds

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"holdfast/internal/http1"
)

func TestAppendSocketEvent_WritesWhatAppsRead(t *testing.T) {
	for _, c := range []struct {
		event socketEvent
		want  string
	}{
		{socketEvent{kind: eventOpen, null: true}, "OPEN\r\n"},
		{socketEvent{kind: eventText, content: []byte("hello")}, "TEXT 5\r\nhello\r\n"},
		{socketEvent{kind: eventText}, "TEXT 0\r\n\r\n"},
		{socketEvent{kind: eventText, null: true}, "TEXT\r\n"},
		{socketEvent{kind: eventBinary, content: []byte("\x00\r\n\xff")}, "BINARY 4\r\n\x00\r\n\xff\r\n"},
		{socketEvent{kind: eventBinary, content: bytes.Repeat([]byte("x"), 0xabc)}, "BINARY abc\r\n" + strings.Repeat("x", 0xabc) + "\r\n"},
		{socketEvent{kind: eventPing, null: true}, "PING\r\n"},
		{socketEvent{kind: eventPong, content: []byte("p")}, "PONG 1\r\np\r\n"},
		{socketEvent{kind: eventClose, content: []byte{0x03, 0xe8}}, "CLOSE 2\r\n\x03\xe8\r\n"},
		{socketEvent{kind: eventClose, null: true, content: []byte("none")}, "CLOSE\r\n"},
		{socketEvent{kind: eventDisconnect, null: true}, "DISCONNECT\r\n"},
		{socketEvent{content: []byte("x")}, ""},
	} {
		if got := appendSocketEvent([]byte("OPEN\r\n"), c.event); string(got) != "OPEN\r\n"+c.want {
			t.Errorf("%v %.20q is %.40q, want %.40q behind OPEN", c.event.kind, c.event.content, got, c.want)
		}
	}
}

// said is a list of events as a test writes it.
func said(events []socketEvent) string {
	var b strings.Builder
	for _, e := range events {
		b.WriteString(e.kind.String())
		if !e.null {
			b.WriteString("(" + string(e.content) + ")")
		}
		b.WriteByte(' ')
	}
	return strings.TrimSuffix(b.String(), " ")
}

func TestDecodeSocketEvents_ReadsWhatAppsWrite(t *testing.T) {
	large := strings.Repeat("x", maxSocketContent)
	for _, c := range []struct{ body, want string }{
		{"", ""},
		{"OPEN\r\n", "OPEN"},
		{"OPEN\r\nTEXT 5\r\nhello\r\nTEXT 0\r\n\r\nTEXT\r\nCLOSE 2\r\n\x03\xe8\r\n", "OPEN TEXT(hello) TEXT() TEXT CLOSE(\x03\xe8)"},
		{"BINARY 4\r\n\x00\r\n\xff\r\nPING\r\nPONG 1\r\np\r\nDISCONNECT\r\n", "BINARY(\x00\r\n\xff) PING PONG(p) DISCONNECT"},
		{"TEXT A\r\n0123456789\r\nTEXT a\r\n0123456789\r\n", "TEXT(0123456789) TEXT(0123456789)"},
		{"TEXT 1F\r\n" + strings.Repeat("x", 31) + "\r\n", "TEXT(" + strings.Repeat("x", 31) + ")"},
		{"TEXT 000000000000000000000000001\r\nx\r\n", "TEXT(x)"},
		{"TEXT f4240\r\n" + large + "\r\n", "TEXT(" + large + ")"},
		{"TEXT 8\r\nOPEN\r\n..\r\nPING\r\n", "TEXT(OPEN\r\n..) PING"}, // content is not read
		{"TEXT 3\r\né!\r\n", "TEXT(é!)"},                              // bytes are counted

		// Of unknown kinds.
		{"OPEN\r\nNEWS 3\r\nabc\r\nSUB\r\nTEXT 1\r\nx\r\n", "OPEN TEXT(x)"},
		{"text 1\r\nx\r\nTEXTS\r\n\r\nTEXT\t1\r\nOPEN\r\n", "OPEN"},
		{" 1\r\nx\r\nOPEN\r\n", "OPEN"},

		// A last one that is not whole.
		{"OPEN\r\nTEXT 5\r\nhell", "OPEN"},
		{"OPEN\r\nTEXT 5\r\n", "OPEN"},
		{"TEXT f4240\r\n", ""},
		{"OPEN\r\nTEXT 5\r\nhello", "OPEN TEXT(hello)"}, // it is but for its CRLF
		{"OPEN\r\nTEXT 5\r\nhello\r", "OPEN TEXT(hello)"},
		{"TEXT 0\r\n", "TEXT()"},
	} {
		body := []byte(c.body)
		got, err := decodeSocketEvents(body)
		if said(got) != c.want || err != nil {
			t.Errorf("%.60q is %.200q, %v; want %.200q", c.body, said(got), err, c.want)
		}
		for _, e := range got {
			if len(e.content) > 0 && cap(e.content) != len(e.content) {
				t.Errorf("%.60q: what is behind a content can be written to", c.body)
			}
		}
		for i := range body { // the contents are parts of it
			body[i] = '!'
		}
		if strings.ContainsFunc(said(got), func(r rune) bool { return r >= 'a' && r <= 'z' }) {
			t.Errorf("%.60q: a content was copied", c.body)
		}
	}
}

func TestDecodeSocketEvents_RefusesWhatCannotBeFollowed(t *testing.T) {
	for _, c := range []struct{ body, says string }{
		{"OPEN", `the line at byte 0 ("OPEN") does not end with CRLF`},
		{"OPEN\n", "does not end"},
		{"OPEN\r", "does not end"},
		{"OPEN\r\nTEXT 5", `byte 6 ("TEXT 5") does not end with CRLF`},
		{"OPEN\nTEXT 5\r\nhello\r\n", `("OPEN\nTEXT 5\r\nhello\r\n") does not end with CRLF`},
		{"OPEN\r\n\nPING\r\n", "the line at byte 6"},
		{strings.Repeat("x", 100), strings.Repeat("x", 40) + `")`},
		{"TEXT \r\n\r\n", `the length of "TEXT" ("") is no hexadecimal number`},
		{"TEXT  5\r\nhello\r\n", "is no hexadecimal number"},
		{"TEXT 5 \r\nhello\r\n", "is no hexadecimal number"},
		{"TEXT g\r\n", "is no hexadecimal number"},
		{"TEXT 0x5\r\nhello\r\n", "is no hexadecimal number; write its digits alone"},
		{"TEXT -1\r\n", "is no hexadecimal number"},
		{"TEXT +5\r\nhello\r\n", "is no hexadecimal number"},
		{"TEXT 5.0\r\nhello\r\n", "is no hexadecimal number"},
		{"NEWS 5x\r\nhello\r\n", "is no hexadecimal number"},
		{"TEXT f4241\r\n", "is more than 1000000; send less at once"},
		{"NEWS f4241\r\n", "is more than 1000000"},
		{"TEXT 10000000000000005\r\nhello\r\n", "is more than 1000000"},
		{"TEXT " + strings.Repeat("f", 1000) + "g\r\n", "is no hexadecimal number"},
		{"TEXT 4\r\nhello\r\n", `the content of "TEXT" has no CRLF behind its 4 bytes (byte 12)`},
		{"TEXT 5\r\nhelloOPEN\r\n", "has no CRLF behind its 5 bytes"},
		{"TEXT 5\r\nhello\n", "has no CRLF"},
		{"TEXT 5\r\nhello\rx", "has no CRLF"},
		{"NEWS 4\r\nhello\r\n", "has no CRLF"},
		{"TEXT 2\r\né!\r\nOPEN\r\n", "count bytes, not characters"},
	} {
		got, err := decodeSocketEvents([]byte(c.body))
		if got != nil || !errors.Is(err, errSocketEvents) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%.60q is %q, %v; want an error that says %q", c.body, said(got), err, c.says)
		} else if hasControl(err.Error()) || len(err.Error()) > 300 {
			t.Errorf("%.60q: %q cannot be shown", c.body, err)
		}
	}
}

func TestDecodeSocketEvents_TakesTenThousandAndNotOneMore(t *testing.T) {
	for _, line := range []string{"PING\r\n", "NEWS\r\n", "\r\n"} {
		body := strings.Repeat(line, 10_000)
		if got, err := decodeSocketEvents([]byte(body)); err != nil || len(got) != 10_000 && len(got) != 0 {
			t.Errorf("10,000 times %q: %d events, %v", line, len(got), err)
		}
		if got, err := decodeSocketEvents([]byte(body + line)); got != nil || !errors.Is(err, errSocketEvents) || !strings.Contains(err.Error(), "10000") {
			t.Errorf("once more: %d events, %v", len(got), err)
		}
	}
}

func TestCloseContent_IsACodeThatMayBeSent(t *testing.T) {
	code := func(n int) string { return string([]byte{byte(n >> 8), byte(n)}) }
	for _, c := range []struct {
		content string
		code    int
		reason  string
	}{
		{"", 1000, ""},
		{"\x03", 1000, ""},
		{code(1000), 1000, ""},
		{code(1001) + "going away", 1001, "going away"},
		{code(1011) + "é", 1011, "é"},
		{code(3000), 3000, ""},
		{code(4999) + "mine", 4999, "mine"},
		{code(0), 1000, ""},
		{code(0) + "why", 1000, "why"},
		{code(999), 1000, ""},
		{code(1004), 1000, ""},
		{code(1005), 1000, ""},
		{code(1006), 1000, ""},
		{code(1015), 1000, ""},
		{code(2999), 1000, ""},
		{code(5000), 1000, ""},
		{code(65535) + "x", 1000, "x"},
		{code(4000) + "\xe9", 4000, "é"}, // Latin-1
		{code(4000) + strings.Repeat("é", 62), 4000, strings.Repeat("é", 61)},
	} {
		if got, reason := closeContent([]byte(c.content)); got != c.code || reason != c.reason {
			t.Errorf("%.20q is %d %q, want %d %q", c.content, got, reason, c.code, c.reason)
		}
	}
}

func TestSplitPrefix_TellsControlFromWhatIsForTheClient(t *testing.T) {
	for _, c := range []struct {
		text, prefix string
		kind         prefixKind
		rest         string
	}{
		{"m:hello", "m:", prefixMessage, "hello"},
		{"m:", "m:", prefixMessage, ""},
		{"m:m:x", "m:", prefixMessage, "m:x"},
		{"m:c:x", "m:", prefixMessage, "c:x"},
		{"hello", "m:", prefixNone, ""},
		{"M:hello", "m:", prefixNone, ""},
		{"m", "m:", prefixNone, ""},
		{"", "m:", prefixNone, ""},
		{`c:{"type":"detach"}`, "m:", prefixControl, `{"type":"detach"}`},
		{"c:", "m:", prefixControl, ""},
		{"c", "m:", prefixNone, ""},
		{"c:x", "", prefixControl, "x"}, // control comes first
		{"c:x", "c:", prefixControl, "x"},
		{"c:x", "c", prefixControl, "x"},
		{"cx", "c", prefixMessage, "x"},
		{"hello", "", prefixMessage, "hello"},
		{"", "", prefixMessage, ""},
		{"é:x", "é:", prefixMessage, "x"},
	} {
		if kind, rest := splitPrefix([]byte(c.text), c.prefix); kind != c.kind || string(rest) != c.rest {
			t.Errorf("%q with the prefix %q is %d %q, want %d %q", c.text, c.prefix, kind, rest, c.kind, c.rest)
		}
	}
}

func TestGripExtension_IsFoundWithItsPrefix(t *testing.T) {
	const name = "Sec-WebSocket-Extensions"
	field := func(name, value string) http1.Field { return http1.Field{Name: []byte(name), Value: []byte(value)} }
	for _, c := range []struct {
		values []string
		on     bool
		prefix string
	}{
		{nil, false, ""},
		{[]string{""}, false, ""},
		{[]string{"grip"}, true, "m:"},
		{[]string{"GRIP"}, true, "m:"},
		{[]string{"grip;"}, true, "m:"},
		{[]string{`grip; message-prefix="!"`}, true, "!"},
		{[]string{"grip;message-prefix=x:"}, true, "x:"},
		{[]string{"grip ; Message-Prefix = x: "}, true, "x:"},
		{[]string{"grip; message-prefix=a=b"}, true, "a=b"},
		{[]string{`grip; message-prefix=""`}, true, ""},
		{[]string{"grip; message-prefix="}, true, ""},
		{[]string{"grip; message-prefix"}, true, ""},
		{[]string{`grip; message-prefix=" m, ;=: "`}, true, " m, ;=: "},
		{[]string{`grip; message-prefix="a\"b\\c"`}, true, `a"b\c`},
		{[]string{`grip; message-prefix="a\"; message-prefix=b`}, true, "m:"}, // no quoted string
		{[]string{`grip; message-prefix="a`}, true, "m:"},
		{[]string{`grip; message-prefix="a\`}, true, "m:"},
		{[]string{`grip; message-prefix="a"b`}, true, "m:"},
		{[]string{"grip; other=1; message-prefix=x; message-prefix=y"}, true, "x"},
		{[]string{`grip; other="; message-prefix=x"`}, true, "m:"},
		{[]string{"grip; message-prefixes=x"}, true, "m:"},
		{[]string{"permessage-deflate, grip; message-prefix=x, other"}, true, "x"},
		{[]string{"permessage-deflate; message-prefix=y,grip"}, true, "m:"},
		{[]string{`other; a="x, grip"`}, false, ""},
		{[]string{"grips, x-grip"}, false, ""},
		{[]string{"permessage-deflate", "grip; message-prefix=x"}, true, "x"},
		{[]string{"grip; message-prefix=x", "grip; message-prefix=y"}, true, "x"},
		{[]string{",, grip"}, true, "m:"},
	} {
		fields := []http1.Field{field("X-Extensions", "grip; message-prefix=no"), field("Grip-Hold", "stream")}
		for i, value := range c.values {
			fields = append(fields, field([]string{name, strings.ToLower(name)}[i], value))
		}
		if on, prefix := gripExtension(fields); on != c.on || prefix != c.prefix {
			t.Errorf("%q is %v %q, want %v %q", c.values, on, prefix, c.on, c.prefix)
		}
	}
}

func TestEventKind_HasOneWordForEach(t *testing.T) {
	words := map[string]bool{}
	for kind := eventUnknown; kind <= eventDisconnect; kind++ {
		words[kind.String()] = true
		if got := eventKindOf([]byte(kind.String())); got != kind {
			t.Errorf("%q is read as %d, was %d", kind, got, kind)
		}
	}
	want := map[string]bool{"": true, "OPEN": true, "TEXT": true, "BINARY": true, "PING": true, "PONG": true, "CLOSE": true, "DISCONNECT": true}
	if !reflect.DeepEqual(words, want) {
		t.Errorf("the words are %v", words)
	}
}
