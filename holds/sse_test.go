package holds

import (
	"bytes"
	"fmt"
	"io"
	"net/http/httputil"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// browser is an EventSource, by the letter of the HTML standard (9.2.5 and
// 9.2.6): it takes all three line endings, and is told of each event.
type browser struct {
	data, name string // their buffers
	hasData    bool
	id, last   string
	retry      string
	events     []browserEvent
}

type browserEvent struct{ name, data, id string }

// browse interprets a stream, to its end.
func browse(stream []byte) *browser {
	b := &browser{}
	stream = bytes.TrimPrefix(stream, []byte("\xef\xbb\xbf"))
	for len(stream) > 0 {
		end := bytes.IndexAny(stream, "\r\n")
		if end < 0 {
			break // a line without an end counts for nothing
		}
		b.line(string(stream[:end]))
		if bytes.HasPrefix(stream[end:], []byte("\r\n")) {
			end++
		}
		stream = stream[end+1:]
	}
	return b
}

func (b *browser) line(line string) {
	if line == "" {
		b.dispatch()
		return
	}
	field, value, _ := strings.Cut(line, ":")
	value = strings.TrimPrefix(value, " ")
	switch field {
	case "event":
		b.name = value
	case "data":
		b.data += value + "\n"
		b.hasData = true
	case "id":
		if !strings.Contains(value, "\x00") {
			b.id = value
		}
	case "retry":
		if value != "" && strings.Trim(value, "0123456789") == "" {
			b.retry = value
		}
	}
}

func (b *browser) dispatch() {
	b.last = b.id
	if b.hasData {
		name := b.name
		if name == "" {
			name = "message"
		}
		b.events = append(b.events, browserEvent{name, strings.TrimSuffix(b.data, "\n"), b.last})
	}
	b.data, b.name, b.hasData = "", "", false
}

// frameOf is the frame of a publication with the number 1760000000000007.
func frameOf(p Publication) *event {
	e := encode(&p)
	e.setID(1760000000000007)
	return e
}

const frameID = "id: 1760000000000007\n"

func TestFrame_IsThePublicationInLines(t *testing.T) {
	for _, c := range []struct {
		p    Publication
		want string
	}{
		{text("hello"), "data: hello\n\n"},
		{text("two\nlines"), "data: two\ndata: lines\n\n"},
		{text("two\rlines"), "data: two\ndata: lines\n\n"},
		{text("two\r\nlines"), "data: two\ndata: lines\n\n"},
		{text("a\nb\rc\r\nd\n\re"), "data: a\ndata: b\ndata: c\ndata: d\ndata: \ndata: e\n\n"},
		{text("ends\n"), "data: ends\ndata: \n\n"},
		{text("ends\r"), "data: ends\ndata: \n\n"},
		{text("ends\r\n"), "data: ends\ndata: \n\n"},
		{text("ends\n\n"), "data: ends\ndata: \ndata: \n\n"},
		{text("ends\r\r\n"), "data: ends\ndata: \ndata: \n\n"},
		{text(""), "data: \n\n"},
		{text("\n"), "data: \ndata: \n\n"},
		{text("\r\n\r\n"), "data: \ndata: \ndata: \n\n"},
		{text("\n\nid: 5\n\ndata: x"), "data: \ndata: \ndata: id: 5\ndata: \ndata: data: x\n\n"},
		{text("\xef\xbb\xbfbom"), "data: \xef\xbb\xbfbom\n\n"},
		{text("nul \x00 in it"), "data: nul \x00 in it\n\n"},
		{text(": no comment\n:\n: neither"), "data: : no comment\ndata: :\ndata: : neither\n\n"},
		{text(" a space\n  two"), "data:  a space\ndata:   two\n\n"},
		{text("\u2028 and \u2029 and \u0085 and \v are no line ends"), "data: \u2028 and \u2029 and \u0085 and \v are no line ends\n\n"},
		{Publication{Data: []byte("x"), Event: "name", Retry: -1}, "event: name\ndata: x\n\n"},
		{Publication{Data: []byte("x"), Event: " with: space ", Retry: -1}, "event:  with: space \ndata: x\n\n"},
		{Publication{Data: []byte("x"), Retry: 0}, "retry: 0\ndata: x\n\n"},
		{Publication{Data: []byte("x\ny"), Event: "name", Retry: 2147483647}, "event: name\nretry: 2147483647\ndata: x\ndata: y\n\n"},
		{Publication{Data: []byte(`{"a": [1, 2]}`), Kind: DataJSON, Retry: -1}, "data: {\"a\": [1, 2]}\n\n"},
	} {
		e := frameOf(c.p)
		if got := string(e.frame); got != frameID+c.want {
			t.Errorf("%q, event %q, retry %d is\n%q, want\n%q", c.p.Data, c.p.Event, c.p.Retry, got, frameID+c.want)
		}
		checkFrame(t, c.p, e)
	}
}

// checkFrame requires a browser to get back what was published, and nothing
// else, with and without chunks.
func checkFrame(t *testing.T, p Publication, e *event) {
	t.Helper()
	if want := fmt.Sprintf("%x\r\n%s\r\n", len(e.frame), e.frame); string(e.wire) != want {
		t.Fatalf("as a chunk it is %q, want %q", e.wire, want)
	}
	if string(e.data) != string(p.Data) {
		t.Fatalf("the event's data is %q, and %q was published", e.data, p.Data)
	}
	lines := strings.NewReplacer("\r\n", "\n", "\r", "\n")
	want := browserEvent{"message", lines.Replace(string(p.Data)), "1760000000000007"}
	if p.Event != "" {
		want.name = p.Event
	}
	retry := ""
	if p.Retry >= 0 {
		retry = fmt.Sprint(p.Retry)
	}
	// Something comes before it and behind it: it spills into neither.
	stream := slices.Concat([]byte("data: before\n\n"), e.frame, []byte("data: after\n\n"))
	got := browse(stream)
	if !slices.Equal(got.events, []browserEvent{{"message", "before", ""}, want, {"message", "after", want.id}}) || got.retry != retry {
		t.Fatalf("%q, event %q, retry %d: a browser gets %q, retry %q", p.Data, p.Event, p.Retry, got.events, got.retry)
	}
}

func TestFrame_HasItsNumberInItsPlaceWhateverItIs(t *testing.T) {
	for _, id := range []int64{earliest, 1760000000000007, 9999999999999999} {
		p := text("x")
		e := encode(&p)
		e.setID(id)
		if want := fmt.Sprintf("id: %d\ndata: x\n\n", id); string(e.frame) != want {
			t.Errorf("%q, want %q", e.frame, want)
		}
	}
}

// Nothing is copied once more for being counted too low.
func TestFrame_IsWhereItWasEncoded(t *testing.T) {
	for _, data := range []string{"", "x", "a\nb", "\r\n\r\n", strings.Repeat("\n", 1000), strings.Repeat("\r\n", 1000), strings.Repeat("x\r", 1000)} {
		p := Publication{Data: []byte(data), Event: strings.Repeat("e", 100), Retry: 2147483647}
		if n := testing.AllocsPerRun(20, func() { encode(&p) }); n > 2 {
			t.Errorf("%.20q costs %v allocations, want the event and its bytes", data, n)
		}
		if e := encode(&p); e.bytes < len(e.wire)+eventOverhead {
			t.Errorf("%.20q is charged as %d bytes, and its frame alone has %d", data, e.bytes, len(e.wire))
		}
	}
}

// openingOf is what a stream begins with, head and all.
func openingOf(o opening, chunked bool, position int64) string {
	o.head = []byte("HEAD\r\n\r\n")
	return string(o.appendStream(nil, chunked, position))
}

func TestOpening_IsTheBodyTheGapAndThePosition(t *testing.T) {
	const last, at = 1750000000000001, 1760000000000007
	const gap = "event: m0-gap\ndata: {\"last_event_id\":1750000000000001,\"head\":1760000000000007}\n\n"
	const id = "id: 1760000000000007\n\n"
	for _, c := range []struct {
		o    opening
		want string
	}{
		{opening{}, ": open\n\n" + id},
		{opening{gap: true}, ": open\n\n" + gap + id},
		{opening{body: []byte("data: x\n\n")}, "data: x\n\n" + id},
		{opening{body: []byte("data: x\n\n"), gap: true}, "data: x\n\n" + gap + id},
		{opening{body: []byte("data: x\n")}, "data: x\n\n" + id},
		{opening{body: []byte("data: x")}, "data: x\n\n" + id},
		{opening{body: []byte("data: x\r\n\r\n")}, "data: x\r\n\r\n" + id},
		{opening{body: []byte("data: x\r\r")}, "data: x\r\r" + id},
		{opening{body: []byte("data: x\n\r\n")}, "data: x\n\r\n" + id},
		{opening{body: []byte("data: x\r\n\n")}, "data: x\r\n\n" + id},
		{opening{body: []byte("data: x\n\n\n\n")}, "data: x\n\n\n\n" + id},
	} {
		c.o.last = last
		if got := openingOf(c.o, false, at); got != "HEAD\r\n\r\n"+c.want {
			t.Errorf("body %q, gap %v is\n%q, want\n%q", c.o.body, c.o.gap, got, c.want)
		}
		if got, want := openingOf(c.o, true, at), fmt.Sprintf("HEAD\r\n\r\n%x\r\n%s\r\n", len(c.want), c.want); got != want {
			t.Errorf("body %q, gap %v is, in chunks,\n%q, want\n%q", c.o.body, c.o.gap, got, want)
		}
	}
}

// Whatever ends its last line, or whether anything does.
func TestOpening_TheBodysLastBlockIsEndedBeforeTheGap(t *testing.T) {
	const last, at = 1750000000000001, 1760000000000007
	wantGap := browserEvent{"m0-gap", `{"last_event_id":1750000000000001,"head":1760000000000007}`, ""}
	for _, end := range []string{"", "\n", "\r", "\r\n", "\n\n", "\r\r", "\n\r", "\r\n\r", "\r\n\n", "\n\r\n", "\r\n\r\n", "\r\r\n", "\n\n\r", "\r\n: comment", "\n: comment\r"} {
		body := "event: first\ndata: x" + end
		got := browse([]byte(openingOf(opening{body: []byte(body), gap: true, last: last}, false, at)))
		if want := []browserEvent{{"first", "x", ""}, wantGap}; !slices.Equal(got.events, want) {
			t.Errorf("body %q: a browser gets %q, want %q", body, got.events, want)
		}
		if got.last != "1760000000000007" {
			t.Errorf("body %q: a browser's position is %q", body, got.last)
		}
	}
}

// A client that leaves between the two comes back from where it was, and is
// told again.
func TestOpening_AGapThatWasNotReadReplacesNoPosition(t *testing.T) {
	stream := openingOf(opening{gap: true, last: 1750000000000001}, false, 1760000000000007)
	for n := range len(stream) {
		b := browse([]byte(stream[:n]))
		if b.last != "" && len(b.events) == 0 {
			t.Fatalf("after %q a browser has position %s, and was told of no gap", stream[:n], b.last)
		}
	}
}

func TestFarewell_IsTheEndOfTheChunksAndAskedForATimeToComeBackAt(t *testing.T) {
	if got := string(farewell(true, false)); got != "0\r\n\r\n" {
		t.Errorf("in chunks, for good: %q", got)
	}
	if got := string(farewell(false, false)); got != "" {
		t.Errorf("for good: %q", got)
	}
	for range 100 {
		if got := farewell(false, true); !farewellPlain.Match(append([]byte("\n\n"), got...)) {
			t.Fatalf("%q", got)
		}
		if got := farewell(true, true); !farewellChunked.Match(append([]byte("\r\n"), got...)) {
			t.Fatalf("in chunks: %q", got)
		}
	}
}

func TestHeartbeat_IsOneWholeChunk(t *testing.T) {
	for _, b := range [][]byte{heartbeat(true), position(1760000000000007, true)} {
		data, err := io.ReadAll(httputil.NewChunkedReader(io.MultiReader(bytes.NewReader(b), strings.NewReader("0\r\n\r\n"))))
		if err != nil || !bytes.HasSuffix(data, []byte("\n\n")) {
			t.Errorf("%q holds %q, %v", b, data, err)
		}
	}
	if got := string(heartbeat(false)) + string(position(1760000000000007, false)); got != ": heartbeat\n\nid: 1760000000000007\n\n" {
		t.Errorf("without chunks %q", got)
	}
}

func FuzzFrame(f *testing.F) {
	f.Add([]byte("a\nb\r\nc\rd"), "name", 3000)
	f.Add([]byte("\n\nid: 1\n\nretry: 1\n\nevent: x\ndata"), "", -1)
	f.Add([]byte("\xef\xbb\xbf:\x00 "), " id: 7", 0)
	f.Fuzz(func(t *testing.T, data []byte, name string, retry int) {
		if strings.ContainsAny(name, "\r\n\x00") || !utf8.ValidString(name) || !utf8.Valid(data) || int64(retry) > 1<<31-1 {
			t.Skip("it cannot be published")
		}
		p := Publication{Data: data, Event: name, Retry: max(retry, -1)}
		checkFrame(t, p, frameOf(p))
	})
}

// Whatever bytes a view's own are, they end before ours begin.
func FuzzOpening(f *testing.F) {
	f.Add([]byte("event: a\ndata: b\r\n"), true)
	f.Add([]byte("\xef\xbb\xbfid: 7\n\nid: 8"), false)
	f.Add([]byte("data\n\r\nid"), true)
	f.Fuzz(func(t *testing.T, body []byte, gap bool) {
		o := opening{body: body, gap: gap, last: 5}
		got := browse(o.appendStream(nil, false, 1760000000000007))
		own := browse(slices.Concat(body, []byte("\n"), []byte("\n"))).events
		if gap && (len(got.events) == 0 || got.events[len(got.events)-1].name != "m0-gap") {
			t.Fatalf("body %q: a browser gets %q, without the gap", body, got.events)
		}
		if gap {
			got.events = got.events[:len(got.events)-1]
		}
		if got.last != "1760000000000007" || !slices.Equal(got.events, own) {
			t.Fatalf("body %q: a browser has position %q and gets %q, where it would get %q of the body alone", body, got.last, got.events, own)
		}
	})
}
