package holds

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"holdfast/internal/http1"
)

// FuzzParseGrip: what is read keeps its bounds, an error is one line that says
// so, and the case of the fields' names makes no difference.
func FuzzParseGrip(f *testing.F) {
	for _, head := range []string{
		"", "Grip-Hold: stream\nGrip-Channel: a; prev-id=1; filter=build-id, b\nGrip-Keep-Alive: event: keep-alive\\ndata:\\n\\n; format=cstring; timeout=20",
		"Grip-Hold: response\nGrip-Channel: \"a, b\"; prev-id=\"\\\"\", c\nGrip-Timeout: 99999999999999999999",
		"Grip-Link: </a?b>; rel=next; timeout=0, <>; rel=gone\nGrip-Set-Meta: a=b, c=\"d\\\"\"; e\nGrip-Status: 304 Not Modified\nGrip-Expose-Headers: A, b",
		"Grip-Keep-Alive: b'eA=='; format=base64; mode=interval", "Grip-Keep-Alive: \\x0\\; format=cstring", "Grip-Hold: x", "grip-channel: a;;;=,;=\"",
		"Content-Type: application/grip-instruct; charset=utf-8\nGrip-Hold: stream", "Grip-Channel: " + channelList(65), "Grip-Hold: stream\nGrip-Status: 204",
		"Grip-Channel: a; filter=1; filter=2; filter=3; filter=4; filter=5; filter=6", "Grip-Set-Meta: =\", \"=,;", "Grip-Link: <>;", "Grip-Status: 99",
	} {
		f.Add([]byte(head), uint16(200))
		f.Add([]byte(head), uint16(304))
	}
	f.Fuzz(func(t *testing.T, head []byte, status uint16) {
		before := bytes.Clone(head)
		fields, swapped := fuzzedFields(head)
		for _, line := range bytes.Split(head, []byte("\n")) { // no field of a head, but nothing breaks
			name, value, _ := bytes.Cut(line, []byte(":"))
			g, mode, err := parseGrip(int(status), []http1.Field{{Name: name, Value: value}})
			checkGrip(t, int(status), g, mode, err)
		}
		g, mode, err := parseGrip(int(status), fields)
		checkGrip(t, int(status), g, mode, err)
		again, modeAgain, errAgain := parseGrip(int(status), swapped)
		if !reflect.DeepEqual(again, g) || modeAgain != mode || (errAgain == nil) != (err == nil) {
			t.Fatalf("%+v, %v; with names in another case %+v, %v", g, err, again, errAgain)
		}
		if !isGrip(fields) && (err != nil || !reflect.DeepEqual(g, &Grip{Timeout: 55 * time.Second})) {
			t.Fatalf("it is no GRIP, and yet %+v, %v", g, err)
		}
		if !bytes.Equal(head, before) {
			t.Fatal("it wrote into what it was given")
		}
	})
}

// FuzzDecodeBody: as FuzzParseGrip, for an instruction in JSON; and what it
// would have in a head can be there.
func FuzzDecodeBody(f *testing.F) {
	for _, body := range []string{
		``, `{}`, `[]`, `{"hold":{"mode":"stream","channels":[{"name":"a","prev-id":"1","filters":["build-id"]}],"timeout":1,"keep-alive":{"content":"\n","timeout":0},"meta":{"a":1}}}`,
		`{"response":{"code":404,"reason":"No","headers":{"A":"b","C":["d"]},"body-bin":"/w=="}}`, `{"response":{"headers":[["A","b"],["Content-Length","1"]],"body":"x"}}`,
		`{"hold":{"channels":[]},"hold":null}`, `{"h\u006fld":{"channels":[{"name":"\ud800"}]}}`, `{"response":{"code":304},"hold":{"mode":"stream","channels":[]}}`,
		"{\"response\":{\"headers\":{\"A\":\"\\r\\n\"}}}", `{"hold":{"keep-alive":{}}}`, "{\"hold\" \t: { \"channels\":\r\n[ ] }, \"x\" : [ {\"a\\\"\" : \"\\\\\"} , 1 , true ] } ",
	} {
		f.Add([]byte(body), []byte("Grip-Hold: stream\nGrip-Channel: a\nGrip-Status: 201"))
		f.Add([]byte(body), []byte(""))
	}
	f.Fuzz(func(t *testing.T, body, head []byte) {
		fields, _ := fuzzedFields(head)
		g, _, err := parseGrip(200, append(fields, headField("Content-Type", "application/grip-instruct")))
		if err != nil {
			return
		}
		before := bytes.Clone(body)
		links := g.Next
		mode, err := g.DecodeBody(200, body)
		if !bytes.Equal(body, before) {
			t.Fatal("it wrote into what it was given")
		}
		if err != nil {
			checkGrip(t, 200, nil, mode, err)
			return
		}
		checkGrip(t, 200, g, mode, nil)
		if g.Response == nil || g.Status != 0 || g.Next != links {
			t.Fatalf("%+v", g)
		}
		checkAnswer(t, g.Response.Status, g.Response.Reason, g.Response.Body)
		for _, f := range g.Response.Fields {
			checkHeadField(t, string(f.Name), string(f.Value))
		}
		if mode == ModeStream && bodiless(g.Response.Status) {
			t.Fatalf("a stream with status %d", g.Response.Status)
		}
	})
}

func checkGrip(t *testing.T, status int, g *Grip, mode Mode, err error) {
	t.Helper()
	if err != nil {
		text := err.Error()
		if g != nil || mode != ModeNone || !errors.Is(err, errGrip) && err != ErrTooManyChannels ||
			!utf8.ValidString(text) || hasControl(text) || len(text) > 1000 {
			t.Fatalf("%q, with %+v", text, g)
		}
		return
	}
	bad := mode != ModeNone && mode != ModeStream && mode != ModeResponse || mode != g.mode ||
		g.Timeout < 5*time.Second || g.Timeout > 24*time.Hour || len(g.Channels) > MaxChannels || g.BadChannels < 0 || metaBytes(g.Meta) > 64<<10
	if k := g.KeepAlive; k != nil {
		bad = bad || len(k.Data) == 0 || len(k.Data) > 64<<10 || k.Timeout < time.Second || k.Timeout > 24*time.Hour
	}
	if g.Next != nil {
		bad = bad || g.Next.Timeout < 0 || g.Next.Timeout > 24*time.Hour
	}
	if g.Status != 0 {
		checkAnswer(t, g.Status, g.Reason, nil)
		status = g.Status
	}
	bad = bad || g.Status == 0 && g.Reason != "" || mode == ModeStream && !g.JSON && (status < 200 || status == 204 || status == 304)
	for i, c := range g.Channels {
		bad = bad || CheckChannel(c.Name) != nil || len(c.Filters) > 5 ||
			slices.ContainsFunc(g.Channels[:i], func(o GripChannel) bool { return o.Name == c.Name }) ||
			c.PrevID != nil && (len(*c.PrevID) > 1024 || hasControl(*c.PrevID))
		for _, name := range c.Filters {
			bad = bad || len(name) > 255
		}
	}
	for _, name := range g.Expose {
		bad = bad || name != strings.ToLower(name) || !http1.IsToken([]byte(name))
	}
	if bad {
		t.Fatalf("%+v, mode %q", g, mode)
	}
}

// checkAnswer requires what holds for the status, the reason and the body that
// an answer is given.
func checkAnswer(t *testing.T, status int, reason string, body []byte) {
	t.Helper()
	if status < 200 || status > 599 || hasControl(reason) || len(reason) > 255 || len(body) > 0 && (status == 204 || status == 304) {
		t.Fatalf("status %d, reason %q, %d bytes", status, reason, len(body))
	}
}

// checkHeadField requires that a field is read as it was written, and does not
// touch how the answer is framed.
func checkHeadField(t *testing.T, name, value string) {
	t.Helper()
	read, err := http1.ParseField([]byte(name + ": " + value))
	if err != nil || string(read.Name) != name || string(read.Value) != value {
		t.Fatalf("%q: %q is read as %q, %v", name, value, read, err)
	}
	switch strings.ToLower(name) {
	case "connection", "content-length", "transfer-encoding", "keep-alive", "content-encoding", "grip-hold", "m0-hold":
		t.Fatalf("%q: %q", name, value)
	}
}
