package holds

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/internal/http1"
)

// fieldsOf makes the fields of "Name: value" lines.
func fieldsOf(t testing.TB, lines ...string) []http1.Field {
	t.Helper()
	var fields []http1.Field
	for _, line := range lines {
		field, err := http1.ParseField([]byte(line))
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		fields = append(fields, field)
	}
	return fields
}

var bothDialects = Dialects{M0: true, Grip: true}

func TestMode_WordsAreThoseOfTheFields(t *testing.T) {
	for mode, word := range map[Mode]string{ModeNone: "", ModeStream: "stream", ModeWebSocket: "websocket", ModeResponse: "response", 9: ""} {
		if mode.String() != word {
			t.Errorf("mode %d is %q, want %q", mode, mode.String(), word)
		}
	}
	if (Instruction{}).Mode != ModeNone {
		t.Error("the zero Instruction is one")
	}
}

func TestParseInstruction_ReadsWhatTheAnswerSays(t *testing.T) {
	for _, c := range []struct {
		lines []string
		want  Instruction
	}{
		{[]string{"M0-Hold: stream", "M0-Channel: news"}, Instruction{Mode: ModeStream, Channels: []string{"news"}}},
		{[]string{"m0-hold: STREAM", "M0-CHANNEL: news"}, Instruction{Mode: ModeStream, Channels: []string{"news"}}},
		{[]string{"M0-Channel: a, b", "Content-Type: text/plain", "M0-Hold: WebSocket", "M0-Channel: c,a"},
			Instruction{Mode: ModeWebSocket, Channels: []string{"a", "b", "c"}}},
		{[]string{"M0-Hold: stream", "M0-Channel: a, %, b c", "M0-Channel: %zz"},
			Instruction{Mode: ModeStream, Channels: []string{"a"}, BadChannels: 3}},
		{[]string{"M0-Hold: stream", "M0-Channel: " + channelList(64)}, Instruction{Mode: ModeStream, Channels: strings.Split(channelList(64), ",")}},
		{[]string{"M0-Hold: stream", "M0-Channel: " + channelList(64), "M0-Channel: c1, c2"},
			Instruction{Mode: ModeStream, Channels: strings.Split(channelList(64), ",")}},

		// Several M0-Hold that agree.
		{[]string{"M0-Hold: stream", "M0-Hold: Stream", "M0-Channel: a"}, Instruction{Mode: ModeStream, Channels: []string{"a"}}},

		// An envelope is a socket's.
		{[]string{"M0-Hold: websocket", "M0-Channel: a", "M0-Envelope: json"}, Instruction{Mode: ModeWebSocket, Channels: []string{"a"}, Envelope: true}},
		{[]string{"M0-Hold: websocket", "M0-Channel: a", "m0-envelope: JSON"}, Instruction{Mode: ModeWebSocket, Channels: []string{"a"}, Envelope: true}},
		{[]string{"M0-Hold: websocket", "M0-Channel: a", "M0-Envelope: xml"}, Instruction{Mode: ModeWebSocket, Channels: []string{"a"}}},
		{[]string{"M0-Hold: websocket", "M0-Channel: a", "M0-Envelope: xml", "M0-Envelope: json"}, Instruction{Mode: ModeWebSocket, Channels: []string{"a"}}},
		{[]string{"M0-Hold: stream", "M0-Channel: a", "M0-Envelope: json"}, Instruction{Mode: ModeStream, Channels: []string{"a"}}},

		// A timeout is a long poll's.
		{[]string{"M0-Hold: response", "M0-Channel: a"}, Instruction{Mode: ModeResponse, Channels: []string{"a"}, Timeout: 55 * time.Second}},
		{[]string{"M0-Hold: response", "M0-Channel: a", "m0-timeout: 20"}, Instruction{Mode: ModeResponse, Channels: []string{"a"}, Timeout: 20 * time.Second}},
		{[]string{"M0-Hold: response", "M0-Channel: a", "M0-Timeout: 20", "M0-Timeout: 30"}, Instruction{Mode: ModeResponse, Channels: []string{"a"}, Timeout: 20 * time.Second}},
		{[]string{"M0-Hold: stream", "M0-Channel: a", "M0-Timeout: 20"}, Instruction{Mode: ModeStream, Channels: []string{"a"}}},

		// An encoding matters to a stream alone, and identity is none.
		{[]string{"M0-Hold: websocket", "M0-Channel: a", "Content-Encoding: gzip"}, Instruction{Mode: ModeWebSocket, Channels: []string{"a"}}},
		{[]string{"M0-Hold: response", "M0-Channel: a", "Content-Encoding: gzip"}, Instruction{Mode: ModeResponse, Channels: []string{"a"}, Timeout: 55 * time.Second}},
		{[]string{"M0-Hold: stream", "M0-Channel: a", "Content-Encoding: Identity", "Content-Encoding: , identity ,"}, Instruction{Mode: ModeStream, Channels: []string{"a"}}},
		{[]string{"M0-Hold: stream", "M0-Channel: a", "Content-Encoding:"}, Instruction{Mode: ModeStream, Channels: []string{"a"}}},
	} {
		got, err := ParseInstruction(200, fieldsOf(t, c.lines...), bothDialects)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%.120q\nis   %+v, %v\nwant %+v", c.lines, got, err, c.want)
		}
	}
}

func channelList(n int) string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("c%d", i)
	}
	return strings.Join(names, ",")
}

func TestParseInstruction_IsNoneWhereTheAnswerIsServedAsItIs(t *testing.T) {
	for _, c := range []struct {
		name     string
		status   int
		dialects Dialects
		lines    []string
		bad      int
	}{
		{"no field of ours", 200, bothDialects, []string{"Content-Type: text/html", "Content-Encoding: gzip"}, 0},
		{"no field at all", 200, bothDialects, nil, 0},
		{"no M0-Hold", 200, bothDialects, []string{"M0-Channel: a"}, 0},
		{"no channel", 200, bothDialects, []string{"M0-Hold: stream"}, 0},
		{"an empty list", 200, bothDialects, []string{"M0-Hold: stream", "M0-Channel: , ,"}, 0},
		{"bad channels only", 200, bothDialects, []string{"M0-Hold: stream", "M0-Channel: %, b c", "Content-Encoding: gzip"}, 2},
		{"unknown mode", 200, bothDialects, []string{"M0-Hold: sse", "M0-Channel: a"}, 0},
		{"unknown mode, bad channel", 200, bothDialects, []string{"M0-Hold: sse", "M0-Channel: a, %"}, 1},
		{"empty mode", 200, bothDialects, []string{"M0-Hold:", "M0-Channel: a"}, 0},
		{"a list is no mode", 200, bothDialects, []string{"M0-Hold: stream, stream", "M0-Channel: a"}, 0},
		{"modes that differ", 200, bothDialects, []string{"M0-Hold: stream", "M0-Hold: websocket", "M0-Channel: a"}, 0},
		{"modes that differ and agree again", 200, bothDialects, []string{"M0-Hold: stream", "M0-Hold: response", "M0-Hold: stream", "M0-Channel: a"}, 0},
		{"one of two modes unknown", 200, bothDialects, []string{"M0-Hold: sse", "M0-Hold: stream", "M0-Channel: a"}, 0},
		{"the other one", 200, bothDialects, []string{"M0-Hold: stream", "M0-Hold: sse", "M0-Channel: a"}, 0},
		{"a name that only begins so", 200, bothDialects, []string{"M0-Holds: stream", "X-M0-Hold: stream", "M0-Channel: a"}, 0},
		{"another 2xx", 201, bothDialects, []string{"M0-Hold: stream", "M0-Channel: a"}, 0},
		{"not modified", 304, bothDialects, []string{"M0-Hold: stream", "M0-Channel: a"}, 0},
		{"a switch", 101, bothDialects, []string{"M0-Hold: websocket", "M0-Channel: a"}, 0},
		{"an error, whatever is wrong with it", 500, bothDialects, []string{"M0-Hold: stream", "Grip-Hold: stream", "Content-Encoding: gzip", "M0-Channel: " + channelList(65)}, 0},
		{"M0 off", 200, Dialects{Grip: true}, []string{"M0-Hold: stream", "M0-Channel: a"}, 0},
		{"both off", 200, Dialects{}, []string{"M0-Hold: stream", "Grip-Hold: stream", "M0-Channel: a"}, 0},
	} {
		got, err := ParseInstruction(c.status, fieldsOf(t, c.lines...), c.dialects)
		if err != nil || !reflect.DeepEqual(got, Instruction{BadChannels: c.bad}) {
			t.Errorf("%s: %+v, %v; want none, and %d bad channels", c.name, got, err, c.bad)
		}
	}
}

func TestParseInstruction_RefusesWhatCannotBeFollowed(t *testing.T) {
	for _, c := range []struct {
		name     string
		dialects Dialects
		lines    []string
		want     error
	}{
		{"both dialects", bothDialects, []string{"M0-Hold: stream", "M0-Channel: a", "Grip-Hold: stream", "Grip-Channel: a"}, ErrMixed},
		{"both, and neither known", bothDialects, []string{"grip-hold: x", "M0-HOLD: y"}, ErrMixed},
		{"both, and more wrong", bothDialects, []string{"M0-Hold: stream", "M0-Channel: " + channelList(65), "GRIP-HOLD: stream", "Content-Encoding: gzip"}, ErrMixed},
		{"both, Grip off", Dialects{M0: true}, []string{"M0-Hold: stream", "M0-Channel: a", "Grip-Hold: stream"}, nil},
		{"Grip-Channel is no hold field", bothDialects, []string{"M0-Hold: stream", "M0-Channel: a", "Grip-Channel: a"}, nil},
		{"65 channels", bothDialects, []string{"M0-Hold: response", "M0-Channel: " + channelList(65)}, ErrTooManyChannels},
		{"65 in two fields", bothDialects, []string{"M0-Hold: stream", "M0-Channel: " + channelList(64), "M0-Channel: more"}, ErrTooManyChannels},
		{"65 and an encoding", bothDialects, []string{"M0-Hold: stream", "M0-Channel: " + channelList(65), "Content-Encoding: gzip"}, ErrTooManyChannels},
		{"an encoded stream", bothDialects, []string{"M0-Hold: stream", "M0-Channel: a", "content-encoding: gzip"}, ErrEncoded},
		{"encoded after identity", bothDialects, []string{"M0-Hold: stream", "M0-Channel: a", "Content-Encoding: identity, br"}, ErrEncoded},
		{"encoded in a second field", bothDialects, []string{"Content-Encoding: identity", "Content-Encoding: GZIP", "M0-Hold: stream", "M0-Channel: a"}, ErrEncoded},
	} {
		got, err := ParseInstruction(200, fieldsOf(t, c.lines...), c.dialects)
		if !errors.Is(err, c.want) || err != nil && !reflect.DeepEqual(got, Instruction{}) || err == nil && got.Mode == ModeNone {
			t.Errorf("%s: %+v, %v; want %v", c.name, got, err, c.want)
		}
	}
}

func TestParseInstruction_ReadsGripWhereItIsOnAndNoHoldOfM0IsThere(t *testing.T) {
	lines := []string{"Grip-Hold: stream", "Grip-Channel: a; prev-id=5, b", "M0-Channel: c"}
	for _, c := range []struct {
		status   int
		dialects Dialects
		more     string
		want     Mode
		err      error
	}{
		{200, bothDialects, "X: y", ModeStream, nil},
		{404, bothDialects, "X: y", ModeStream, nil},
		{200, Dialects{Grip: true}, "M0-Hold: stream", ModeStream, nil},
		{200, Dialects{M0: true}, "X: y", ModeNone, nil},
		{200, Dialects{}, "X: y", ModeNone, nil},
		{500, bothDialects, "M0-Hold: stream", ModeNone, nil},
		{200, bothDialects, "M0-Hold: stream", ModeNone, ErrMixed},
		{200, bothDialects, "Grip-Timeout: soon", ModeNone, errGrip},
	} {
		got, err := ParseInstruction(c.status, fieldsOf(t, append(lines, c.more)...), c.dialects)
		if !errors.Is(err, c.err) || got.Mode != c.want || (got.Grip != nil) != (c.want != ModeNone) {
			t.Errorf("%d %+v with %s: %+v, %v", c.status, c.dialects, c.more, got, err)
		}
		if got.Grip != nil && (!slices.Equal(got.Channels, []string{"a", "b"}) || !got.Whole()) {
			t.Errorf("channels %v, read whole: %v", got.Channels, got.Whole())
		}
	}
}

func TestParseInstruction_CostsNoAllocationWithoutAHoldField(t *testing.T) {
	plain := fieldsOf(t, "Server: gunicorn", "Date: Mon, 02 Jan 2006 15:04:05 GMT", "Content-Type: text/html; charset=utf-8", "Content-Length: 5",
		"Content-Encoding: gzip", "X-Frame-Options: DENY", "Vary: Cookie", "Set-Cookie: a=b; Path=/", "X-Max: 1", "G: h", "M: n", "Metadata: x")
	var in Instruction
	var reply Reply
	var err error
	if n := testing.AllocsPerRun(100, func() { in, err = ParseInstruction(200, plain, bothDialects) }); n != 0 || in.Mode != ModeNone || err != nil {
		t.Errorf("%v allocations, %+v, %v", n, in, err)
	}
	if n := testing.AllocsPerRun(100, func() { reply = ParseReply(plain) }); n != 0 || !reflect.DeepEqual(reply, Reply{}) {
		t.Errorf("%v allocations for a reply, %+v", n, reply)
	}
}

// FuzzParseInstruction: an instruction can be followed as it is, an error is
// one of the set, and neither the names' case nor the dialect that is off
// makes a difference.
func FuzzParseInstruction(f *testing.F) {
	for _, head := range []string{
		"", "M0-Hold: stream\nM0-Channel: a, b", "m0-hold: websocket\nm0-channel: a\nm0-envelope: json",
		"M0-Hold: response\nM0-Channel: a\nM0-Timeout: 25s", "M0-Hold: response\nM0-Channel: a\nM0-Timeout: 99999999999999999999",
		"M0-Hold: stream\nM0-Hold: response\nM0-Channel: a", "M0-Hold: stream\nGrip-Hold: stream\nM0-Channel: a",
		"M0-Hold: stream\nM0-Channel: a\nContent-Encoding: gzip, identity", "M0-Hold: stream\nM0-Channel: %,a%20b,%00,c\nM0-Channel: a",
		"M0-Hold: stream\nM0-Channel: " + channelList(65), "M0-Hold: sse\nM0-Channel: a", "M0-Reply: text\nM0-Close: 4404 gone\nM0-Subscribe: a\nM0-Unsubscribe: b",
		"M0-Close: caf\xe9", "M0-Close: 1005", "M0-Hold:\nM0-Timeout:\nM0-Close:\nM0-Channel:",
	} {
		f.Add([]byte(head), uint16(200), uint8(3))
		f.Add([]byte(head), uint16(404), uint8(1))
	}
	f.Fuzz(func(t *testing.T, head []byte, status uint16, on uint8) {
		dialects := Dialects{M0: on&1 != 0, Grip: on&2 != 0}
		fields, swapped := fuzzedFields(head)
		before := bytes.Clone(head)
		in, err := ParseInstruction(int(status), fields, dialects)
		checkInstruction(t, in, err)
		if in.Mode != ModeNone && (status != 200 || !dialects.M0) {
			t.Fatalf("status %d, %+v: %+v", status, dialects, in)
		}
		if again, errAgain := ParseInstruction(int(status), swapped, dialects); !reflect.DeepEqual(again, in) || errAgain != err {
			t.Fatalf("%+v, %v; with names in another case %+v, %v", in, err, again, errAgain)
		}
		reply := ParseReply(fields)
		checkReply(t, reply)
		if again := ParseReply(swapped); !reflect.DeepEqual(again, reply) {
			t.Fatalf("%+v; with names in another case %+v", reply, again)
		}
		if !bytes.Equal(head, before) {
			t.Fatal("it wrote into what it was given")
		}
	})
}

// fuzzedFields are the fields that are in head, a line each, and the same
// with the case of their names swapped.
func fuzzedFields(head []byte) (fields, swapped []http1.Field) {
	for line := range bytes.SplitSeq(head, []byte("\n")) {
		field, err := http1.ParseField(line)
		if err != nil {
			continue
		}
		fields = append(fields, field)
		other := bytes.Clone(field.Name)
		for i, c := range other {
			if c|0x20 >= 'a' && c|0x20 <= 'z' {
				other[i] ^= 0x20
			}
		}
		swapped = append(swapped, http1.Field{Name: other, Value: field.Value})
	}
	return fields, swapped
}

func checkInstruction(t *testing.T, in Instruction, err error) {
	t.Helper()
	if err != nil {
		if err != ErrMixed && err != ErrEncoded && err != ErrTooManyChannels || !reflect.DeepEqual(in, Instruction{}) {
			t.Fatalf("%v, with %+v", err, in)
		}
		return
	}
	if in.Mode == ModeNone {
		if !reflect.DeepEqual(in, Instruction{BadChannels: in.BadChannels}) {
			t.Fatalf("none, and yet %+v", in)
		}
		return
	}
	if len(in.Channels) < 1 || len(in.Channels) > MaxChannels {
		t.Fatalf("%d channels", len(in.Channels))
	}
	for _, name := range in.Channels {
		if CheckChannel(name) != nil {
			t.Fatalf("channel %q", name)
		}
	}
	polls := in.Mode == ModeResponse
	if polls != (in.Timeout != 0) || polls && (in.Timeout < time.Second || in.Timeout > 24*time.Hour) || in.Envelope && in.Mode != ModeWebSocket {
		t.Fatalf("%+v", in)
	}
}
