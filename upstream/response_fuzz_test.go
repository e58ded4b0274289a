package upstream

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

// fuzzedApp is an app's side of a connection: it sends what it is given, cut
// where it says, and then closes, or stays silent.
type fuzzedApp struct {
	sent    []byte
	piece   func() int // how much of it the next read gets, at most; 0: none in time
	closes  bool
	written bytes.Buffer
}

func (a *fuzzedApp) Read(p []byte) (int, error) {
	if len(a.sent) == 0 && a.closes {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), a.piece())], a.sent)
	a.sent = a.sent[n:]
	if n == 0 && len(p) > 0 {
		return 0, os.ErrDeadlineExceeded
	}
	return n, nil
}

func (a *fuzzedApp) Write(p []byte) (int, error)      { return a.written.Write(p) }
func (a *fuzzedApp) Close() error                     { return nil }
func (a *fuzzedApp) LocalAddr() net.Addr              { return nil }
func (a *fuzzedApp) RemoteAddr() net.Addr             { return nil }
func (a *fuzzedApp) SetDeadline(time.Time) error      { return nil }
func (a *fuzzedApp) SetReadDeadline(time.Time) error  { return nil }
func (a *fuzzedApp) SetWriteDeadline(time.Time) error { return nil }

// fuzzedAnswer is what was read of one answer.
type fuzzedAnswer struct {
	interim  string // the answers before it, with their fields
	before   int    // how many they are
	status   int
	head     string // its reason and fields
	framing  Framing
	keep     bool // the connection may carry another exchange
	endless  bool
	body     string
	trailer  string
	consumed int // bytes up to its end
	kind     error
}

func (a fuzzedAnswer) whole() bool { return a.kind == nil }

func (a fuzzedAnswer) String() string {
	return fmt.Sprintf("%s%d %s, framing %d, keep %v, endless %v, body %q, trailer %q, %d bytes, %v",
		a.interim, a.status, a.head, a.framing, a.keep, a.endless, a.body, a.trailer, a.consumed, a.kind)
}

func fuzzedHead(res *Response) string {
	text := string(res.Reason)
	for _, f := range res.Fields {
		text += fmt.Sprintf(" %q: %q", f.Name, f.Value)
	}
	return text
}

// fuzzedAsk makes one exchange on a connection whose app has sent total bytes.
// A timeout with bytes still to come is no end: the caller asks on.
func fuzzedAsk(t *testing.T, c *Conn, app *fuzzedApp, total int, method string, into func() int) (a fuzzedAnswer) {
	t.Helper()
	if err := c.Send([]byte(method+" / HTTP/1.1\r\nHost: a.test\r\n\r\n"), nil, nil); err != nil {
		t.Fatal(err)
	}
	late := func(err error) bool { return errors.Is(err, ErrTimeout) && len(app.sent) > 0 }
	interim := func(res *Response) {
		a.interim += fmt.Sprintf("%d %s, ", res.Status, fuzzedHead(res))
		a.before++
	}
	res, err := (*Response)(nil), error(nil)
	for res == nil && (err == nil || late(err)) {
		if method == "UPGRADE" {
			res, err = c.HeadOrSwitch(interim)
		} else {
			res, err = c.Head(method == "HEAD", interim)
		}
	}
	if err == nil {
		a.status, a.head, a.framing, a.endless = res.Status, fuzzedHead(res), res.Framing, res.Endless
		var body []byte
		for p := make([]byte, 4096); err == nil || late(err); {
			if a.status == 101 {
				break
			}
			var n int
			n, err = c.Read(p[:into()])
			body = append(body, p[:n]...)
		}
		if a.body = string(body); err == io.EOF {
			a.trailer, err = string(c.Trailer()), nil
		}
	}
	a.consumed = total - len(app.sent) - (c.w - c.r)
	if err != nil {
		var e *Error
		if !errors.As(err, &e) || !e.Sent {
			t.Fatalf("%v", err)
		}
		a.kind, a.consumed = e.Kind, 0
		if a.framing != FramingChunked {
			return a
		}
		a.body = "" // a chunk that turns out to be none takes with it what was read at once
	}
	return a
}

// fuzzedExchange reads sent as the answer to one request, and, where the
// connection may be used again, has it answer another one.
func fuzzedExchange(t *testing.T, target *Target, sent []byte, method string, closes bool, piece, into func() int) fuzzedAnswer {
	t.Helper()
	app := &fuzzedApp{sent: bytes.Clone(sent), piece: piece, closes: closes}
	c := newConn(target, app)
	c.KeepTrailer()
	a := fuzzedAsk(t, c, app, len(sent), method, into)
	reusable := c.Reusable()
	switch {
	case a.status == 101 && a.whole():
		if _, early := c.Tunnel(); !bytes.Equal(append(early, app.sent...), sent[a.consumed:]) {
			t.Fatalf("%q: the tunnel begins with %q", sent, early)
		}
		return a
	case reusable && !a.whole(), reusable && c.r != c.w, reusable && a.framing == FramingClose, c.Finished() != a.whole():
		t.Fatalf("%q is %v, finished %v, reusable %v", sent, a, c.Finished(), reusable)
	}
	a.keep = a.whole() && c.res.KeepAlive
	if !reusable || len(app.sent) > 0 { // Silent sees what has come unasked
		return a
	}
	for _, own := range []struct{ sent, head, trailer string }{
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nown\r\n0\r\nX-T: 1\r\n\r\n", `OK "Transfer-Encoding": "chunked"`, "X-T: 1\r\n"},
		{"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nX-Own: 1\r\n\r\nown", `OK "Content-Length": "3" "X-Own": "1"`, ""},
	} {
		app.sent = []byte(own.sent)
		next := fuzzedAsk(t, c, app, len(own.sent), "GET", into)
		if !next.whole() || next.interim != "" || next.head != own.head || next.body != "own" ||
			next.framing == FramingChunked && next.trailer != own.trailer || next.consumed != len(own.sent) {
			t.Fatalf("%q\nan exchange behind it is answered %v", sent, next)
		}
	}
	return a
}

var (
	unambiguousAnswer = regexp.MustCompile("(?s)\\AHTTP/1\\.[0-9] [1-5][0-9][0-9]( [^\x00-\x08\x0a-\x1f\x7f]*)?\r\n" +
		"([!#-'*+.0-9A-Z^-z|~-]+:[^\x00-\x08\x0a-\x1f\x7f]*\r\n)*\r\n")
	answerLength = regexp.MustCompile("(?i)\ncontent-length:[ \t]*([^\r]*?)[ \t]*\r")
	answerCoding = regexp.MustCompile("(?i)\ntransfer-encoding:[ \t]*([^\r]*?)[ \t]*\r")
	oneNumber    = regexp.MustCompile(`\A[0-9]+\z`)
)

// wantUnambiguous holds the heads that were taken to RFC 9112 as it is written
// there: its grammar (§4, §5), one framing (§6.3).
func wantUnambiguous(t *testing.T, sent []byte, heads int) {
	t.Helper()
	for rest := sent; heads > 0; heads-- {
		head := unambiguousAnswer.Find(rest)
		if rest = rest[len(head):]; head == nil {
			t.Fatalf("%q is taken", sent)
		}
		lengths, codings := answerLength.FindAllSubmatch(head, -1), answerCoding.FindAllSubmatch(head, -1)
		for _, l := range lengths {
			if !oneNumber.Match(l[1]) || len(strings.TrimLeft(string(l[1]), "0")) > 19 || !sameNumber(l[1], lengths[0][1]) {
				t.Fatalf("%q is taken", sent)
			}
		}
		if len(codings) > 1 || len(codings) == 1 && (len(lengths) > 0 || !strings.EqualFold(string(codings[0][1]), "chunked") || bytes.HasPrefix(head, []byte("HTTP/1.0"))) {
			t.Fatalf("%q is taken", sent)
		}
	}
}

func sameNumber(a, b []byte) bool {
	return bytes.Equal(bytes.TrimLeft(a, "0"), bytes.TrimLeft(b, "0"))
}

// compareAnswer has net/http read the same bytes. It must find the same answer,
// and its end at the same byte: what one of two readers takes for the body's
// end and the other does not is the beginning of somebody else's answer.
//
// It differs by intention, and is not compared, where it finds a fault in what
// is taken here: then nobody is told another answer. Those are
//   - two equal Content-Lengths written differently, as 5 and 05;
//   - a 204, 304 or answer to a HEAD with a Content-Length that it dislikes;
//   - a trailer section over its own limit.
//
// What it takes and is refused here (a bare LF, a folded line, chunked beside a
// length) is on purpose too and is held by wantUnambiguous.
func compareAnswer(t *testing.T, sent []byte, method string, a fuzzedAnswer) {
	t.Helper()
	all := bytes.NewReader(sent)
	reader := bufio.NewReader(all)
	var res *http.Response
	for {
		var err error
		if res, err = http.ReadResponse(reader, &http.Request{Method: strings.Replace(method, "UPGRADE", "GET", 1)}); err != nil {
			if !knownDifference(err) {
				t.Fatalf("%q is %v\nnet/http: %v", sent, a, err)
			}
			return
		}
		if res.StatusCode >= 200 || res.StatusCode == 101 {
			break
		}
	}
	if res.StatusCode == 101 {
		return // what follows is no body
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		if !knownDifference(err) {
			t.Fatalf("%q is %v\nnet/http: %v", sent, a, err)
		}
		return
	}
	consumed := len(sent) - all.Len() - reader.Buffered()
	if res.StatusCode != a.status || string(body) != a.body || consumed != a.consumed {
		t.Fatalf("%q is %v\nnet/http: %d, body %q, %d bytes", sent, a, res.StatusCode, body, consumed)
	}
}

func knownDifference(err error) bool {
	for _, text := range []string{"Content-Length", "http: suspiciously long trailer"} {
		if strings.Contains(err.Error(), text) {
			return true
		}
	}
	return false
}

var fuzzedMethods = []string{"GET", "HEAD", "UPGRADE"}

// FuzzAnswers: whatever an app sends, and however it is cut and delayed, it is
// the same answer, or no answer; it ends where net/http ends it; and an
// exchange behind it on its connection gets its own answer.
func FuzzAnswers(f *testing.F) {
	up := New(Config{Name: "app", Targets: []Address{{Text: "http://app.test", Network: "tcp", Addr: "app.test:80"}}}, nil)
	f.Cleanup(up.Close)
	for i, sent := range fuzzedAnswers {
		f.Add([]byte(sent), uint64(i), uint8(i))
		f.Add([]byte(sent), uint64(i), uint8(len(fuzzedMethods)))
	}
	f.Fuzz(func(t *testing.T, sent []byte, seed uint64, how uint8) {
		method, closes := fuzzedMethods[int(how)%len(fuzzedMethods)], int(how)/len(fuzzedMethods)%2 == 0
		exchange := func(piece, into func() int) fuzzedAnswer {
			return fuzzedExchange(t, up.Targets()[0], sent, method, closes, piece, into)
		}
		one, most := func() int { return 1 }, func() int { return 4096 }
		whole := exchange(most, most)
		random := rand.New(rand.NewPCG(seed, 0))
		for name, got := range map[string]fuzzedAnswer{
			"byte by byte":        exchange(one, most),
			"into single bytes":   exchange(most, one),
			"in pieces, delayed":  exchange(func() int { return random.IntN(9) }, func() int { return 1 + random.IntN(9) }),
			"in large pieces":     exchange(func() int { return 1 + random.IntN(len(sent)+1) }, most),
			"a byte at a time":    exchange(one, one),
			"delayed every other": exchange(func() int { return random.IntN(2) }, most),
		} {
			if got.String() != whole.String() {
				t.Fatalf("%q\n%s: %v\nwhole: %v", sent, name, got, whole)
			}
		}
		if !whole.whole() {
			return
		}
		wantUnambiguous(t, sent, whole.before+1)
		compareAnswer(t, sent, method, whole)
	})
}

const fuzzedHello = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"

// fuzzedAnswers are the seeds, by what they are about.
var fuzzedAnswers = []string{
	fuzzedHello, fuzzedHello + "world", fuzzedHello + fuzzedHello, fuzzedHello[:40], fuzzedHello[:20], "",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n" + fuzzedHello,
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello!\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\nhello\n0\n\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 5\r\n\r\nhello",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
	"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 05\r\n\r\nhello",
	"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
	"HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\nhello", "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nhello",
	"HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551621\r\n\r\nhello",
	"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello", "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello",
	"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello", "HTTP/1.1 304 Not Modified\r\n\r\n" + fuzzedHello,
	"HTTP/1.1 100 Continue\r\n\r\n" + fuzzedHello, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nContent-Length: 5\r\n\r\n" + fuzzedHello,
	"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\x81\x01x",
	"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: x\n\n",
	"HTTP/1.1 200 OK\nContent-Length: 5\n\nhello", "HTTP/1.1 200 OK\r\nX-A: bc\nContent-Length: 3\r\nContent-Length: 5\r\n\r\nhello", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\nhello",
	"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: b\n\r\nhello", "HTTP/1.1 200 OK\r\nX-A: b\rContent-Length: 3\r\nContent-Length: 5\r\n\r\nhello",
	"HTTP/1.1 200 OK\r\nX-A: b\r\n c\r\nContent-Length: 5\r\n\r\nhello", "HTTP/1.1 200 OK\r\nContent-Length : 3\r\nContent-Length: 5\r\n\r\nhello",
	"HTTP/1.1 200 O\x00K\r\n\r\n", "HTTP/1.1 200\r\n\r\n", "HTTP/1.1 099 x\r\n\r\n", "HTTP/1.1 2000 x\r\n\r\n", "HTTP/2.0 200 OK\r\n\r\n", "ICY 200 OK\r\n\r\n", "\r\n" + fuzzedHello,
	"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
}
