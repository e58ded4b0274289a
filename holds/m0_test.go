package holds

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestM0Timeout_IsSecondsOrADurationWithinBounds(t *testing.T) {
	for _, c := range []struct {
		value string
		want  time.Duration
	}{
		{"25", 25 * time.Second},
		{"25s", 25 * time.Second},
		{"025", 25 * time.Second},
		{"2.5", 2500 * time.Millisecond},
		{"55.0", 55 * time.Second},
		{"1500ms", 1500 * time.Millisecond},
		{"1m30s", 90 * time.Second},
		{"24h", 24 * time.Hour},
		{"86400", 24 * time.Hour},
		// Beyond a bound it is the bound.
		{"0", time.Second},
		{"0.2", time.Second},
		{"1ns", time.Second},
		{"86401", 24 * time.Hour},
		{"24h1s", 24 * time.Hour},
		{"9223372036854775807", 24 * time.Hour},
		{"99999999999999999999", 24 * time.Hour},
		// What cannot be read is the default.
		{"", 55 * time.Second},
		{"soon", 55 * time.Second},
		{"-5", 55 * time.Second},
		{"-5s", 55 * time.Second},
		{"+5", 55 * time.Second},
		{"+5s", 55 * time.Second},
		{"5 s", 55 * time.Second},
		{"5, 6", 55 * time.Second},
		{"1h30", 55 * time.Second},
		{"1.2.3", 55 * time.Second},
		{".", 55 * time.Second},
		{"1e3", 55 * time.Second},
		{"0x10", 55 * time.Second},
	} {
		in, err := ParseInstruction(200, fieldsOf(t, "M0-Hold: response", "M0-Channel: a", "M0-Timeout: "+c.value), Dialects{M0: true})
		if err != nil || in.Timeout != c.want {
			t.Errorf("M0-Timeout: %s is %v, %v; want %v", c.value, in.Timeout, err, c.want)
		}
	}
}

func TestParseReply_ReadsWhatTheAnswerAsksFor(t *testing.T) {
	for _, c := range []struct {
		lines []string
		want  Reply
	}{
		{nil, Reply{}},
		{[]string{"Content-Type: text/plain", "X-M0-Reply: text"}, Reply{}},
		{[]string{"M0-Reply: text"}, Reply{Opcode: 1}},
		{[]string{"m0-reply: BINARY"}, Reply{Opcode: 2}},
		{[]string{"M0-Reply: ping"}, Reply{}},
		{[]string{"M0-Reply:"}, Reply{}},
		{[]string{"M0-Reply: text", "M0-Reply: binary"}, Reply{Opcode: 1}},
		{[]string{"M0-Subscribe: a, b", "M0-Unsubscribe: c", "m0-subscribe: b,d%2C"},
			Reply{Subscribe: []string{"a", "b", "d,"}, Unsubscribe: []string{"c"}}},
		{[]string{"M0-Subscribe: a, %", "M0-Unsubscribe: b c, d%00, e"},
			Reply{Subscribe: []string{"a"}, Unsubscribe: []string{"e"}, BadChannels: 3}},
		{[]string{"M0-Channel: a, %", "M0-Hold: stream"}, Reply{}},
		{[]string{"M0-Close: 4404 Document deleted"}, Reply{Close: 4404, CloseReason: "Document deleted"}},
		{[]string{"M0-Reply: text", "M0-Close: 1001", "M0-Close: 1002"}, Reply{Opcode: 1, Close: 1001}},
	} {
		if got := ParseReply(fieldsOf(t, c.lines...)); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q\nis   %+v\nwant %+v", c.lines, got, c.want)
		}
	}
}

func TestParseReply_UnsubscribesFromAsManyAsAreNamed(t *testing.T) {
	list := channelList(200)
	got := ParseReply(fieldsOf(t, "M0-Unsubscribe: "+list, "M0-Unsubscribe: last"))
	if want := append(strings.Split(list, ","), "last"); !slices.Equal(got.Unsubscribe, want) {
		t.Errorf("it leaves %d channels: %q", len(got.Unsubscribe), got.Unsubscribe)
	}
}

func TestParseReply_ClosesWithACodeThatMayBeSent(t *testing.T) {
	for _, c := range []struct {
		value  string
		code   int
		reason string
	}{
		{"", 0, ""},
		{"1000", 1000, ""},
		{"1003 no", 1003, "no"},
		{"1007", 1007, ""},
		{"1014", 1014, ""},
		{"3000", 3000, ""},
		{"4999 \t last words ", 4999, "last words"},
		{"4404\twhy", 4404, "why"},
		// Codes that no server may send.
		{"0", 1000, ""},
		{"999", 1000, ""},
		{"1004 why", 1000, "why"},
		{"1005", 1000, ""},
		{"1006 why", 1000, "why"},
		{"1015", 1000, ""},
		{"1016", 1000, ""},
		{"2999", 1000, ""},
		{"5000", 1000, ""},
		{"9223372036854775808 why", 1000, "why"},
		{"18446744073709555616", 1000, ""}, // 4000, once it has wrapped
		// No number comes first.
		{"-4404 why", 1000, "-4404 why"},
		{"+4404", 1000, "+4404"},
		{"4404: why", 1000, "4404: why"},
		{"document deleted", 1000, "document deleted"},
		// A reason's bytes.
		{"4404 gel\xc3\xb6scht", 4404, "gelöscht"},
		{"4404 gel\xf6scht", 4404, "gelöscht"},
		{"4404 " + strings.Repeat("x", 123), 4404, strings.Repeat("x", 123)},
		{"4404 " + strings.Repeat("x", 124), 4404, strings.Repeat("x", 123)},
		{"4404 " + strings.Repeat("x", 122) + "é", 4404, strings.Repeat("x", 122)},
		{"4404 " + strings.Repeat("x", 120) + "日本", 4404, strings.Repeat("x", 120) + "日"},
		{"4404 " + strings.Repeat("x", 121) + "😀", 4404, strings.Repeat("x", 121)},
		{"4404 " + strings.Repeat("\xe9", 123), 4404, strings.Repeat("é", 61)},
	} {
		got := ParseReply(fieldsOf(t, "M0-Close: "+c.value))
		if got.Close != c.code || got.CloseReason != c.reason {
			t.Errorf("M0-Close: %q closes with %d %q, want %d %q", c.value, got.Close, got.CloseReason, c.code, c.reason)
		}
		checkReply(t, got)
	}
}

// checkReply requires what a Reply promises, whatever it was read from.
func checkReply(t *testing.T, r Reply) {
	t.Helper()
	if r.Opcode < 0 || r.Opcode > 2 {
		t.Fatalf("opcode %d", r.Opcode)
	}
	for _, name := range slices.Concat(r.Subscribe, r.Unsubscribe) {
		if CheckChannel(name) != nil {
			t.Fatalf("channel %q", name)
		}
	}
	never := []int{1004, 1005, 1006, 1015}
	if r.Close != 0 && (r.Close < 1000 || r.Close > 4999 || r.Close > 1015 && r.Close < 3000 || slices.Contains(never, r.Close)) {
		t.Fatalf("close code %d", r.Close)
	}
	if !utf8.ValidString(r.CloseReason) || len(r.CloseReason) > 123 || r.Close == 0 && r.CloseReason != "" {
		t.Fatalf("close %d, reason %q", r.Close, r.CloseReason)
	}
}
