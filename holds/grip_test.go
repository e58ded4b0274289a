package holds

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestIsGrip_IsAnyGripFieldOrAnInstructionAsBody(t *testing.T) {
	for _, c := range []struct {
		line string
		want bool
	}{
		{"Grip-Hold: stream", true},
		{"GRIP-CHANNEL: a", true},
		{"grip-x: y", true},
		{"Grip-: y", true},
		{"Grip: y", false},
		{"X-Grip-Hold: stream", false},
		{"M0-Hold: stream", false},
		{"Content-Type: application/grip-instruct", true},
		{"content-type: Application/GRIP-Instruct; charset=utf-8", true},
		{"Content-Type: application/grip-instruct\t; a=b", true},
		{"Content-Type: application/grip-instruction", false},
		{"Content-Type: text/plain; application/grip-instruct", false},
		{"Content-Type:", false},
		{"X-Type: application/grip-instruct", false},
	} {
		if got := isGrip(fieldsOf(t, "Server: x", c.line, "Vary: y")); got != c.want {
			t.Errorf("%q: %v, want %v", c.line, got, c.want)
		}
	}
	if isGrip(nil) {
		t.Error("no fields are GRIP")
	}
}

func TestIsGrip_CostsNoAllocation(t *testing.T) {
	plain := fieldsOf(t, "Server: gunicorn", "Content-Type: text/html; charset=utf-8", "G: h", "Grip: no")
	grip := fieldsOf(t, "Server: gunicorn", "Content-Type: application/grip-instruct; charset=utf-8")
	var is, no bool
	if n := testing.AllocsPerRun(100, func() { is, no = isGrip(grip), isGrip(plain) }); n != 0 || !is || no {
		t.Errorf("%v allocations, %v, %v", n, is, no)
	}
}

// gripCase is an answer's Grip-* fields and what they are read as. Of want the
// default of Timeout need not be said.
type gripCase struct {
	lines string // one field a line
	mode  Mode
	want  Grip
}

func (c gripCase) check(t *testing.T) {
	t.Helper()
	fields := fieldsOf(t, strings.Split(c.lines, "\n")...)
	got, mode, err := parseGrip(200, fields)
	if err != nil {
		t.Errorf("%q: %v", c.lines, err)
		return
	}
	for _, f := range fields { // what was read is no part of the fields
		for i := range f.Value {
			f.Value[i] = '!'
		}
	}
	wantGrip(t, c.lines, got, mode, c.want, c.mode)
}

func wantGrip(t *testing.T, name string, got *Grip, mode Mode, want Grip, wantMode Mode) {
	t.Helper()
	if want.Timeout == 0 {
		want.Timeout = 55 * time.Second
	}
	want.mode = wantMode
	if mode != wantMode || !reflect.DeepEqual(*got, want) {
		is, _ := json.Marshal(got)
		should, _ := json.Marshal(want)
		t.Errorf("%.200q\nis   %q %.600s\nwant %q %.600s", name, mode, is, wantMode, should)
	}
}

func gripChannels(names ...string) (list []GripChannel) {
	for _, name := range names {
		list = append(list, GripChannel{Name: name})
	}
	return list
}

func TestParseGrip_ReadsTheMode(t *testing.T) {
	for _, c := range []gripCase{
		{"Grip-Hold: stream\nGrip-Channel: a", ModeStream, Grip{Channels: gripChannels("a")}},
		{"Grip-Hold: response\nGrip-Channel: a", ModeResponse, Grip{Channels: gripChannels("a")}},
		{"GRIP-HOLD: \t stream \nGRIP-CHANNEL: a", ModeStream, Grip{Channels: gripChannels("a")}},
		{"Grip-Hold: stream\nGrip-Hold: nonsense", ModeStream, Grip{}}, // the first counts
		{"Grip-Hold: response", ModeResponse, Grip{}},                  // no channel
		{"Grip-Channel: a", ModeNone, Grip{Channels: gripChannels("a")}},
		{"Grip-Status: 404 Not Found", ModeNone, Grip{Status: 404, Reason: "Not Found"}},
		{"Grip-Link: </more>; rel=next", ModeNone, Grip{Next: &Link{URI: "/more"}}},
		{"Grip-Session-Id: x\nGrip-Last: y\nGrip-Unknown: \"", ModeNone, Grip{}},
		{"Content-Type: application/grip-instruct", ModeNone, Grip{JSON: true}},
		{"Content-Type: application/grip-instruct; charset=utf-8\nGrip-Hold: stream", ModeStream, Grip{JSON: true}},
	} {
		c.check(t)
	}
}

func TestParseGrip_ReadsChannelsAsAList(t *testing.T) {
	for _, c := range []struct {
		lines string
		want  []GripChannel
		bad   int
	}{
		{"Grip-Channel: a, b,c", gripChannels("a", "b", "c"), 0},
		{"Grip-Channel: b\nX: y\ngrip-channel: a", gripChannels("b", "a"), 0},
		{"Grip-Channel: , a ,, b,", gripChannels("a", "b"), 0},
		{"Grip-Channel:", nil, 0}, // what @fanoutio/grip writes for no channel
		{"Grip-Channel: a, a, b, a; prev-id=2", gripChannels("a", "b"), 0},
		{"Grip-Channel: a%20b, a b, é\xff, 日本", gripChannels("a%20b", "a b", "é\xff", "日本"), 0}, // literal
		{`Grip-Channel: "a, b", c`, gripChannels(`"a, b"`, "c"), 0},                             // quotes are of the name, and keep a comma
		{`Grip-Channel: "a\", b", c`, gripChannels(`"a\", b"`, "c"), 0},
		{`Grip-Channel: a\, b`, gripChannels(`a\`, "b"), 0}, // a backslash is none outside of quotes
		{`Grip-Channel: a"b, c"d, e`, gripChannels(`a"b, c"d`, "e"), 0},
		{`Grip-Channel: "a, b`, gripChannels(`"a, b`), 0},

		{"Grip-Channel: a; prev-id=7", []GripChannel{{Name: "a", PrevID: new("7")}}, 0},
		{"Grip-Channel: a;PREV-ID = 7 ; other=x;;", []GripChannel{{Name: "a", PrevID: new("7")}}, 0},
		{"Grip-Channel: a; prev-id=, b", []GripChannel{{Name: "a", PrevID: new("")}, {Name: "b"}}, 0},
		{"Grip-Channel: a; prev-id", []GripChannel{{Name: "a", PrevID: new("")}}, 0},
		{"Grip-Channel: a; prev-id=1; prev-id=2", []GripChannel{{Name: "a", PrevID: new("1")}}, 0},
		{`Grip-Channel: a; prev-id="x, \"y\"; \\z\q"; filter=f, b`, []GripChannel{{Name: "a", PrevID: new(`x, "y"; \zq`), Filters: []string{"f"}}, {Name: "b"}}, 0},
		{"Grip-Channel: a; prev-id=x=y=z", []GripChannel{{Name: "a", PrevID: new("x=y=z")}}, 0},
		{"Grip-Channel: a; prev-id=" + strings.Repeat("x", 1024), []GripChannel{{Name: "a", PrevID: new(strings.Repeat("x", 1024))}}, 0},
		{`Grip-Channel: a; filter=skip-self; prev-id=1; Filter="build-id"; filter=unknown`,
			[]GripChannel{{Name: "a", PrevID: new("1"), Filters: []string{"skip-self", "build-id", "unknown"}}}, 0},
		{"Grip-Channel: a; filter=1; filter=2; filter=3; filter=4; filter=5", []GripChannel{{Name: "a", Filters: []string{"1", "2", "3", "4", "5"}}}, 0},

		// No channels, and values that cannot be read.
		{"Grip-Channel: a, ; prev-id=1, b", gripChannels("a", "b"), 1},
		{"Grip-Channel: x\ty, " + strings.Repeat("x", 256) + ", " + strings.Repeat("y", 255), gripChannels(strings.Repeat("y", 255)), 2},
		{`Grip-Channel: b` + "\n" + `Grip-Channel: a; prev-id="1, c`, gripChannels("b"), 1},
		{`Grip-Channel: a; prev-id="1"x, b`, gripChannels("b"), 1},
		{`Grip-Channel: a; prev-id="1\`, nil, 1},
		{"Grip-Channel: a; =1, b", gripChannels("b"), 1},
		{"Grip-Channel: x\ty; filter=1; filter=2; filter=3; filter=4; filter=5; filter=6", nil, 1}, // of no channel nothing counts
	} {
		gripCase{"Grip-Hold: stream\n" + c.lines, ModeStream, Grip{Channels: c.want, BadChannels: c.bad}}.check(t)
	}
}

func TestParseGrip_BoundsTheChannels(t *testing.T) {
	most := strings.ReplaceAll(channelList(64), ",", "; filter=x, ")
	fields := fieldsOf(t, "Grip-Hold: stream", "Grip-Channel: "+most, "Grip-Channel: "+most)
	if g, _, err := parseGrip(200, fields); err != nil || len(g.Channels) != 64 {
		t.Errorf("64 channels, twice: %v", err)
	}
	for _, lines := range [][]string{{"Grip-Channel: " + channelList(65)}, {"Grip-Channel: " + channelList(64), "Grip-Channel: more"}} {
		g, mode, err := parseGrip(200, fieldsOf(t, append(lines, "Grip-Hold: stream")...))
		if g != nil || mode != ModeNone || !errors.Is(err, ErrTooManyChannels) {
			t.Errorf("65 channels: %+v, %v", g, err)
		}
	}
}

func TestParseGrip_ReadsTheTimeoutOfALongPoll(t *testing.T) {
	for value, want := range map[string]time.Duration{
		"30": 30 * time.Second, "5": 5 * time.Second, "4": 5 * time.Second, "0": 5 * time.Second, "007": 7 * time.Second,
		"86400": 24 * time.Hour, "86401": 24 * time.Hour, "99999999999999999999": 24 * time.Hour,
	} {
		gripCase{"Grip-Hold: response\nGrip-Timeout: " + value + "\nGrip-Timeout: x", ModeResponse, Grip{Timeout: want}}.check(t)
	}
}

func TestParseGrip_ReadsTheKeepAlive(t *testing.T) {
	for _, c := range []struct {
		value string
		want  KeepAlive
	}{
		{`a`, KeepAlive{Data: []byte("a")}},
		{`a, b "c`, KeepAlive{Data: []byte(`a, b "c`)}}, // no list
		{`\n; format=raw`, KeepAlive{Data: []byte(`\n`)}},
		{`a;`, KeepAlive{Data: []byte("a")}},
		{`event: keep-alive\ndata:\n\n; format=cstring; timeout=20`, KeepAlive{Data: []byte("event: keep-alive\ndata:\n\n"), Timeout: 20 * time.Second}},
		{`\\\r\n\t\x00\xfF\qa\"; FORMAT=cstring`, KeepAlive{Data: []byte("\\\r\n\t\x00\xffa")}}, // \q and \" are dropped
		{`a\x3bb; format="cstring"`, KeepAlive{Data: []byte("a;b")}},
		{`/+8A; format=base64`, KeepAlive{Data: []byte{0xff, 0xef, 0}}},
		{`eA==; format=base64`, KeepAlive{Data: []byte("x")}},
		{`eA; format=base64`, KeepAlive{Data: []byte("x")}},
		{`b'eA=='; format=base64`, KeepAlive{Data: []byte("x")}}, // what Python 3 makes of bytes
		{`a; mode=idle`, KeepAlive{Data: []byte("a")}},
		{`a; mode=interval; mode=x`, KeepAlive{Data: []byte("a"), Interval: true}},
		{`a; timeout=0`, KeepAlive{Data: []byte("a"), Timeout: time.Second}},
		{`a; timeout=1; unknown=2; timeout=3`, KeepAlive{Data: []byte("a"), Timeout: time.Second}},
		{`a; timeout=99999999999`, KeepAlive{Data: []byte("a"), Timeout: 24 * time.Hour}},
		{strings.Repeat("x", 64<<10), KeepAlive{Data: bytes.Repeat([]byte("x"), 64<<10)}},
	} {
		if c.want.Timeout == 0 {
			c.want.Timeout = 55 * time.Second
		}
		gripCase{"Grip-Hold: stream\nGrip-Keep-Alive: " + c.value + "\nGrip-Keep-Alive: ; format=x", ModeStream, Grip{KeepAlive: &c.want}}.check(t)
	}
}

func TestParseGrip_ReadsTheNextLink(t *testing.T) {
	for _, c := range []struct {
		lines string
		want  *Link
	}{
		{"Grip-Link: </more?a=b%2Cc>; rel=next", &Link{URI: "/more?a=b%2Cc"}},
		{"Grip-Link: <http://h/x>; rel=next; timeout=30", &Link{URI: "http://h/x", Timeout: 30 * time.Second}},
		{`Grip-Link: <y>;timeout="0"; REL="next"`, &Link{URI: "y"}},
		{"Grip-Link: <x>; rel=next; timeout=999999", &Link{URI: "x", Timeout: 24 * time.Hour}},
		{"Grip-Link: </gone>; rel=gone, </more>; rel=next", &Link{URI: "/more"}},
		{"Grip-Link: </gone>; rel=gone; timeout=x", nil}, // gone is read, and that is all
		{"Grip-Link: </a>; rel=next, </b>; rel=next; timeout=5\nGrip-Link: </c>; rel=next", &Link{URI: "/a"}},
		{"Grip-Link: nothing, </a>, </b>; x=y, </c>; rel=prev", nil},
		{`Grip-Link: </a>; rel="next`, nil},
		{"Grip-Link:", nil},
	} {
		gripCase{c.lines, ModeNone, Grip{Next: c.want}}.check(t)
	}
}

func TestParseGrip_ReadsStatusMetaAndWhatIsExposed(t *testing.T) {
	for _, c := range []gripCase{
		{"Grip-Status: 200", ModeNone, Grip{Status: 200}},
		{"Grip-Status: 599  Own, \"reason\"; é\xff \nGrip-Status: x", ModeNone, Grip{Status: 599, Reason: "Own, \"reason\"; é\xff"}},
		{"Grip-Status: 304\nGrip-Hold: response", ModeResponse, Grip{Status: 304}},

		{"Grip-Set-Meta: user=7", ModeNone, Grip{Meta: map[string]string{"user": "7"}}},
		{`Grip-Set-Meta: id_format="chan:%(events-a)s,b:%(\"b\\)s", user="x; y"`, ModeNone,
			Grip{Meta: map[string]string{"id_format": `chan:%(events-a)s,b:%("b\)s`, "user": "x; y"}}},
		{"Grip-Set-Meta: a=1; b=2, c, d= , User=8\nGrip-Set-Meta: a=3,,;x=1;y", ModeNone, // of an entry the first pair; of a name the last
			Grip{Meta: map[string]string{"a": "3", "d": "", "User": "8", "x": "1"}}},
		{`Grip-Set-Meta: =1, a="x"y, ;, d, e; f=1, b="c`, ModeNone, Grip{}},
		{"Grip-Set-Meta: a=" + strings.Repeat("x", 64<<10-1), ModeNone, Grip{Meta: map[string]string{"a": strings.Repeat("x", 64<<10-1)}}},

		{"Grip-Expose-Headers: X-One, x-two; q=1\nGrip-Expose-Headers: Three,a b,\"d\"", ModeNone, Grip{Expose: []string{"x-one", "x-two", "three"}}},
		{"Grip-Expose-Headers:", ModeNone, Grip{Expose: []string{}}},
	} {
		c.check(t)
	}
}

func TestParseGrip_RefusesWithTheFieldAndTheWayOut(t *testing.T) {
	long := strings.Repeat("x", 64<<10)
	for _, c := range []struct {
		lines string
		says  []string
	}{
		{"Grip-Hold: Stream", []string{`Grip-Hold is "Stream"`, "stream or response"}},
		{"Grip-Hold: websocket", []string{`Grip-Hold is "websocket"`, "stream or response"}},
		{"Grip-Hold: stream, response", []string{"Grip-Hold"}},
		{"Grip-Hold: stream; a=b", []string{"Grip-Hold"}},
		{"Grip-Hold:\nGrip-Hold: stream", []string{`Grip-Hold is ""`}},
		{"Grip-Hold: " + long, []string{`"` + long[:40] + `"`}},
		{"Grip-Hold: \xff\xff", []string{`"\xff\xff"`}},

		{"Grip-Channel: room; filter=1; filter=2; filter=3; filter=4; filter=5; filter=6", []string{"Grip-Channel", `"room"`, "6 filters", "at most 5"}},
		{"Grip-Channel: room; filter=" + strings.Repeat("f", 256), []string{`"room"`, "255 bytes"}},
		{"Grip-Channel: room; prev-id=" + strings.Repeat("7", 1025), []string{`"room"`, "1025", "1024"}},
		{"Grip-Channel: room; prev-id=a\tb", []string{`"room"`, "control byte"}},

		{"Grip-Timeout: -1", []string{"Grip-Timeout", `"-1"`, "whole seconds"}},
		{"Grip-Timeout:", []string{"Grip-Timeout", "whole seconds"}},
		{"Grip-Timeout: 5.0", []string{`"5.0"`}},
		{"Grip-Timeout: +5", []string{`"+5"`}},
		{"Grip-Timeout: 30s", []string{`"30s"`}},

		{"Grip-Keep-Alive:", []string{"Grip-Keep-Alive", "no data"}},
		{"Grip-Keep-Alive: ; format=raw", []string{"Grip-Keep-Alive", "no data"}},
		{`Grip-Keep-Alive: \q; format=cstring`, []string{`"\\q; format=cstring"`, "no data"}},
		{"Grip-Keep-Alive: =; format=base64", []string{"no data"}},
		{"Grip-Keep-Alive: a; format=json", []string{`format is "json"`, "raw, cstring or base64"}},
		{"Grip-Keep-Alive: a; format", []string{`format is ""`}},
		{"Grip-Keep-Alive: a; mode=always", []string{`mode is "always"`, "idle or interval"}},
		{"Grip-Keep-Alive: a; mode=", []string{`mode is ""`}},
		{"Grip-Keep-Alive: a; timeout=-1", []string{`timeout is "-1"`, "whole seconds"}},
		{"Grip-Keep-Alive: a; timeout=NaN", []string{`timeout is "NaN"`}},
		{`Grip-Keep-Alive: a; format="raw`, []string{"Grip-Keep-Alive", "parameters"}},
		{`Grip-Keep-Alive: a; b"; ="x`, []string{"parameters", `\x3b`}},
		{`Grip-Keep-Alive: a\; format=cstring`, []string{"cstring", `"a\\"`}},
		{`Grip-Keep-Alive: \x; format=cstring`, []string{"cstring"}},
		{`Grip-Keep-Alive: \x0; format=cstring`, []string{"cstring"}},
		{`Grip-Keep-Alive: \x0g; format=cstring`, []string{"cstring"}},
		{"Grip-Keep-Alive: b'eA; format=base64", []string{"base64"}},
		{"Grip-Keep-Alive: b'; format=base64", []string{"base64"}},
		{"Grip-Keep-Alive: _-8A; format=base64", []string{"base64"}},
		{"Grip-Keep-Alive: x" + long, []string{"65537 bytes", "65536"}},

		{"Grip-Link: /more; rel=next", []string{"Grip-Link", `"/more; rel=next"`, "<URI>; rel=next"}},
		{"Grip-Link: </a,b>; rel=next", []string{`"b>; rel=next"`, "%2C"}},
		{"Grip-Link: <; rel=gone", []string{"Grip-Link"}},
		{"Grip-Link: <>; rel=next", []string{`"<>; rel=next"`}},
		{"Grip-Link: </a>; rel=next; timeout=soon", []string{`timeout is "soon"`, "whole seconds"}},

		{"Grip-Status: 199", []string{"Grip-Status", `"199"`, "200 to 599"}},
		{"Grip-Status: 600", []string{"200 to 599"}},
		{"Grip-Status: 99999999999999999999", []string{"200 to 599"}},
		{"Grip-Status: OK", []string{`"OK"`}},
		{"Grip-Status:", []string{"200 to 599"}},
		{"Grip-Status: 200;x", []string{`"200;x"`}},
		{"Grip-Status: 200 a\tb", []string{"control byte"}},
		{"Grip-Status: 200 " + strings.Repeat("x", 256), []string{"255"}},

		{"Grip-Set-Meta: a=" + long, []string{"Grip-Set-Meta", "65537 bytes", "65536"}},
		{"Grip-Set-Meta: a=" + long[:40000] + "\nGrip-Set-Meta: b=" + long[:40000], []string{"Grip-Set-Meta", "80002"}},

		{"Grip-Hold: stream\nGrip-Status: 304", []string{"304", "no body"}},
		{"Grip-Status: 204\nGrip-Hold: stream", []string{"204", "no body"}},
	} {
		g, mode, err := parseGrip(200, fieldsOf(t, strings.Split(c.lines, "\n")...))
		checkGripError(t, c.lines, g != nil || mode != ModeNone, err, c.says...)
	}
}

// checkGripError requires of an error what holds for all of them.
func checkGripError(t *testing.T, name string, more bool, err error, says ...string) {
	t.Helper()
	if more || !errors.Is(err, errGrip) {
		t.Errorf("%.100q: error %v, and more: %v", name, err, more)
		return
	}
	text := err.Error()
	if len(text) > 600 || !utf8.ValidString(text) || hasControl(text) {
		t.Errorf("%.100q: text %q", name, text)
	}
	for _, word := range says {
		if !strings.Contains(text, word) {
			t.Errorf("%.100q: %q does not say %q", name, text, word)
		}
	}
}

func TestParseGrip_LooksAtTheStatusThatTheClientWillSee(t *testing.T) {
	for _, c := range []struct {
		status int
		lines  string
		ok     bool
	}{
		{200, "Grip-Hold: stream", true},
		{404, "Grip-Hold: stream", true},
		{204, "Grip-Hold: stream", false},
		{304, "Grip-Hold: stream", false},
		{101, "Grip-Hold: stream", false},
		{204, "Grip-Hold: stream\nGrip-Status: 200", true},
		{204, "Grip-Hold: response", true},
		{304, "Grip-Channel: a", true},
		{200, "Content-Type: application/grip-instruct", true},
		{201, "Content-Type: application/grip-instruct", false},
		{404, "Content-Type: application/grip-instruct\nGrip-Status: 200", false},
		{200, "Content-Type: application/grip-instruct\nGrip-Hold: stream\nGrip-Status: 204", true}, // the body may say another
	} {
		g, _, err := parseGrip(c.status, fieldsOf(t, strings.Split(c.lines, "\n")...))
		if c.ok != (err == nil) || c.ok != (g != nil) {
			t.Errorf("%d %q: %v", c.status, c.lines, err)
		}
		if err != nil {
			checkGripError(t, c.lines, false, err, fmt.Sprint(c.status), "answer 200")
		}
	}
}

// decodeBody reads a body beside other fields, one a line.
func decodeBody(t *testing.T, lines, body string) (*Grip, Mode, error) {
	t.Helper()
	g, _, err := parseGrip(200, fieldsOf(t, append(strings.Split(lines, "\n"), "Content-Type: application/grip-instruct")...))
	if err != nil {
		t.Fatalf("%q: %v", lines, err)
	}
	before := *g
	in := []byte(body)
	mode, err := g.DecodeBody(200, in)
	if err != nil && (mode != ModeNone || !reflect.DeepEqual(*g, before)) {
		t.Errorf("%.100q: %v, and mode %q, %+v", body, err, mode, g)
	}
	for i := range in { // what was decoded is no part of it
		in[i] = '!'
	}
	return g, mode, err
}

// channelObjects are n channels as an instruction in JSON lists them.
func channelObjects(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf(`{"name":"c%d"}`, i)
	}
	return strings.Join(list, ",")
}
