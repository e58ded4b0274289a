package proxy

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
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"holdfast/internal/http1"
)

// ---- A client connection without a socket.

// fuzzedConn is a client that sends what it is given, cut where it says, and
// then closes its side.
type fuzzedConn struct {
	sent  []byte
	piece func() int // how much of it the next read gets, at most
	ended bool       // its end was read
}

func (c *fuzzedConn) Read(p []byte) (int, error) {
	if len(c.sent) == 0 {
		c.ended = true
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), c.piece())], c.sent)
	c.sent = c.sent[n:]
	return n, nil
}

func (c *fuzzedConn) Write(p []byte) (int, error)      { return len(p), nil }
func (c *fuzzedConn) Close() error                     { return nil }
func (c *fuzzedConn) LocalAddr() net.Addr              { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }
func (c *fuzzedConn) RemoteAddr() net.Addr             { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9} }
func (c *fuzzedConn) SetDeadline(time.Time) error      { return nil }
func (c *fuzzedConn) SetReadDeadline(time.Time) error  { return nil }
func (c *fuzzedConn) SetWriteDeadline(time.Time) error { return nil }

// The limits are low, so that they are reached.
const (
	fuzzedHeaderBytes = 512
	fuzzedBodyBytes   = 2048
)

func fuzzedServer(f *testing.F) *Server {
	server, err := New(Config{HeaderBytes: fuzzedHeaderBytes, BodyBytes: fuzzedBodyBytes}, nil, zap.NewNop(), nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { server.Shutdown(f.Context()) })
	return server
}

// readRequest is one request as a reader has it.
type readRequest struct{ method, target, host, body string }

// reading is all that was read of a connection.
type reading struct {
	requests  []readRequest
	refused   bool   // the last bytes are no request
	cut       bool   // … because they end too soon
	closes    bool   // the last request says that it is the last
	forwarded []byte // the requests as the app gets them, one behind the other
}

func (r reading) String() string {
	return fmt.Sprintf("%q, refused %v, cut %v, closes %v", r.requests, r.refused, r.cut, r.closes)
}

// read reads a connection as the proxy does, without the app's answers. stream:
// as for a lane of streams, where a body is passed on while it comes.
func (s *Server) read(t *testing.T, sent []byte, stream bool, piece func() int) (r reading) {
	nc := &fuzzedConn{sent: bytes.Clone(sent), piece: piece}
	c := newClientConn(s, nc)
	defer c.Close()
	for at := 0; ; at = len(sent) - len(nc.sent) - (c.w - c.r) {
		err := c.readHead()
		if err == io.EOF {
			return r
		}
		var passed readRequest
		if err == nil {
			wantUnambiguous(t, sent[at:len(sent)-len(nc.sent)-(c.w-c.r)])
			passed = readRequest{method: string(c.req.method), target: string(c.req.target), host: string(c.req.host)}
			if !c.req.hasHost { // HTTP/1.0: the app is told where the client came to
				passed.host = c.localHost()
			}
			passed.body, err = c.pass(&r.forwarded, stream)
		}
		var f *fault
		if err != nil {
			if !errors.As(err, &f) {
				t.Fatalf("neither read nor refused: %v", err)
			}
			r.refused, r.cut = true, nc.ended
			return r
		}
		r.requests = append(r.requests, passed)
		if !c.req.keepAlive {
			r.closes = true
			return r
		}
	}
}

var (
	unambiguousHead = regexp.MustCompile("(?s)\\A(\r\n)?[!#-'*+.0-9A-Z^-z|~-]+ [^\x00-\x20\x7f]+ HTTP/1\\.[0-9]\r\n" +
		"([!#-'*+.0-9A-Z^-z|~-]+:[^\x00-\x08\x0a-\x1f\x7f]*\r\n)*\r\n\\z")
	hostField   = regexp.MustCompile("(?i)\r\nhost:[ \t]*([^\r]*?)[ \t]*\r")
	lengthField = regexp.MustCompile("(?i)\r\ncontent-length:[ \t]*([^\r]*?)[ \t]*\r")
	codingField = regexp.MustCompile("(?i)\r\ntransfer-encoding:[ \t]*([^\r]*?)[ \t]*\r")
	oneNumber   = regexp.MustCompile(`\A[0-9]+\z`)
)

// wantUnambiguous holds a head that was passed to RFC 9112 as it is written
// there: its grammar (§3, §5), one Host (§3.2), one framing (§6.3).
func wantUnambiguous(t *testing.T, head []byte) {
	t.Helper()
	if !unambiguousHead.Match(head) {
		t.Fatalf("passed: %q", head)
	}
	first, _, _ := bytes.Cut(bytes.TrimPrefix(head, []byte("\r\n")), []byte("\r\n"))
	old := bytes.HasSuffix(first, []byte("/1.0"))
	hosts, lengths, codings := hostField.FindAllSubmatch(head, -1), lengthField.FindAllSubmatch(head, -1), codingField.FindAllSubmatch(head, -1)
	switch {
	case len(hosts) > 1, len(hosts) == 0 && !old, len(hosts) == 1 && len(hosts[0][1]) == 0,
		len(lengths)+len(codings) > 1,
		len(lengths) == 1 && !oneNumber.Match(lengths[0][1]),
		len(codings) == 1 && (old || !strings.EqualFold(string(codings[0][1]), "chunked")):
		t.Fatalf("passed: %q", head)
	}
}

// pass reads the body and appends the request as the app gets it, if it is
// whole; forward and forwardStream say so to a lane.
func (c *clientConn) pass(forwarded *[]byte, stream bool) (body string, err error) {
	c.nameRequest()
	if stream && c.req.hasBody() {
		return c.passUpload(forwarded)
	}
	b, err := c.readBody(c.site.cfg.BodyBytes)
	if err != nil {
		return "", err
	}
	length := int64(-1)
	switch {
	case b != nil:
		defer b.free()
		length = b.length()
		body = string(b.memory)
	case c.req.length == 0 || expectsBody(c.req.method):
		length = 0
	}
	*forwarded = append(c.requestHead(*forwarded, length, true), body...)
	return body, nil
}

func (c *clientConn) passUpload(forwarded *[]byte) (body string, err error) {
	up := &upload{client: c, limit: c.site.cfg.BodyBytes, ended: make(chan struct{})}
	length := c.req.length
	if c.req.chunked {
		length = chunkedBody
	}
	if length > up.limit {
		return "", bodyTooLarge()
	}
	head := c.requestHead(nil, length, true)
	var sent bytes.Buffer
	if err := up.Send(&sent); err != nil {
		if up.whole.Load() {
			return "", errors.New("an upload that failed counts as whole")
		}
		return "", err
	}
	*forwarded = append(append(*forwarded, head...), sent.Bytes()...)
	if !c.req.chunked {
		return sent.String(), nil
	}
	whole := feedAll(&http1.Chunked{}, sent.Bytes())
	return string(whole), nil
}

// feedAll gives the data of a chunked body.
func feedAll(c *http1.Chunked, in []byte) (data []byte) {
	for {
		n, some, done, err := c.Next(in)
		if in = in[n:]; err != nil || n == 0 && !done {
			return []byte("a body that is not whole")
		}
		if data = append(data, some...); done {
			return data
		}
	}
}

// ---- A reader of its own.

// readPlainly reads what the app gets as plainly as that can be done: lines
// that end with CR LF, names that end at the first colon, one framing.
func readPlainly(t *testing.T, sent []byte) (requests []readRequest) {
	t.Helper()
	for len(sent) > 0 {
		head, rest, whole := bytes.Cut(sent, []byte("\r\n\r\n"))
		lines := strings.Split(string(head), "\r\n")
		first := strings.Split(lines[0], " ")
		if !whole || len(first) != 3 || first[2] != "HTTP/1.1" {
			t.Fatalf("the app gets %q", sent)
		}
		r := readRequest{method: first[0], target: first[1]}
		fields := map[string][]string{}
		for _, line := range lines[1:] {
			name, value, ok := strings.Cut(line, ": ")
			if !ok || !http1.IsToken([]byte(name)) || strings.ContainsAny(name, "_") || strings.ContainsFunc(line, isFuzzedControl) {
				t.Fatalf("the app gets the line %q", line)
			}
			name = strings.ToLower(name)
			fields[name] = append(fields[name], value)
		}
		if len(fields["host"]) != 1 || len(fields["content-length"])+len(fields["transfer-encoding"]) > 1 {
			t.Fatalf("the app gets %q", head)
		}
		r.host = fields["host"][0]
		switch {
		case fields["content-length"] != nil:
			n, err := strconv.Atoi(fields["content-length"][0])
			if err != nil || n < 0 || n > len(rest) {
				t.Fatalf("the app gets a length %q of %d bytes", fields["content-length"], len(rest))
			}
			r.body, rest = string(rest[:n]), rest[n:]
		case fields["transfer-encoding"] != nil:
			r.body, rest = readPlainChunks(t, rest)
		}
		requests, sent = append(requests, r), rest
	}
	return requests
}

func isFuzzedControl(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }

func readPlainChunks(t *testing.T, sent []byte) (body string, rest []byte) {
	t.Helper()
	for {
		line, data, _ := strings.Cut(string(sent), "\r\n")
		n, err := strconv.ParseUint(line, 16, 31)
		if err != nil || len(data) < int(n)+2 {
			t.Fatalf("the app gets the chunk %q", sent)
		}
		if n > 0 {
			body += data[:n]
			if data[n:n+2] != "\r\n" {
				t.Fatalf("the app gets the chunk %q", sent)
			}
			sent = []byte(data[n+2:])
			continue
		}
		for { // the trailer section
			line, behind, ok := strings.Cut(data, "\r\n")
			if data = behind; line == "" && ok {
				return body, []byte(data)
			}
			if name, _, ok := strings.Cut(line, ":"); !ok || !http1.IsToken([]byte(name)) {
				t.Fatalf("the app gets the trailer line %q", line)
			}
		}
	}
}

// ---- The targets.

// fuzzedRequests are the requests of the corpus that are small enough, and
// pairs of what is worth a pair.
func fuzzedRequests(f *testing.F, add func(sent []byte)) {
	path := filepath.Join("..", "testdata", "wire", "requests.txt")
	text, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	lets, sent := map[string]string{}, ""
	flush := func() {
		if sent != "" && len(sent) < 4*fuzzedHeaderBytes {
			add([]byte(sent))
		}
		sent = ""
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if name, value, ok := strings.Cut(strings.TrimPrefix(line, "let "), " = "); ok && strings.HasPrefix(line, "let ") {
			lets[`\<`+name+">"] = unescaped(value)
		}
		if piece, ok := strings.CutPrefix(line, "  | "); ok {
			for name, value := range lets {
				piece = strings.ReplaceAll(piece, name, "\x00"+name)
				piece = strings.ReplaceAll(piece, "\x00"+name, value)
			}
			sent += unescaped(piece)
		} else if line != "" && line[0] != ' ' {
			flush()
		}
	}
	flush()
}

var fuzzedEscapes = strings.NewReplacer(`\r`, "\r", `\n`, "\n", `\t`, "\t", `\\`, `\`, `\x00`, "\x00", `\x0b`, "\x0b", `\x20`, " ", `\x7f`, "\x7f", `\xff`, "\xff")

// unescaped takes the escapes that most seeds have; the others stand for
// themselves, which is as good a seed.
func unescaped(text string) string { return fuzzedEscapes.Replace(text) }

// cuts are the ways to read the same bytes.
func cuts(sent []byte, seed uint64) map[string]func() int {
	random := rand.New(rand.NewPCG(seed, 0))
	return map[string]func() int{
		"byte by byte": func() int { return 1 },
		"in bits":      func() int { return 1 + random.IntN(9) },
		"in pieces":    func() int { return 1 + random.IntN(len(sent)+1) },
	}
}

func atOnce() int { return 1 << 20 }

// FuzzRequests: whatever a client sends, and however it is cut, it is the same
// requests, and refused at the same one; and what the app gets is these
// requests, to a reader that knows nothing of ours and to net/http.
//
// For which fault bytes are refused may depend on the cut, where they have two:
// a line is judged when it is there, and a fault further on is seen only if it
// is there as well. That they are refused, and after which request, may not.
func FuzzRequests(f *testing.F) {
	server := fuzzedServer(f)
	fuzzedRequests(f, func(sent []byte) {
		f.Add(sent, uint64(len(sent)), false)
		f.Add(sent, uint64(len(sent)), true)
	})
	f.Fuzz(func(t *testing.T, sent []byte, seed uint64, stream bool) {
		whole := server.read(t, sent, stream, atOnce)
		for name, piece := range cuts(sent, seed) {
			got := server.read(t, sent, stream, piece)
			if got.String() != whole.String() {
				t.Fatalf("%q\n%s: %v\nwhole: %v", sent, name, got, whole)
			}
		}
		if got := readPlainly(t, whole.forwarded); !slices.Equal(got, whole.requests) {
			t.Fatalf("%q\nis read as %q\nthe app gets %q\nwhich is %q", sent, whole.requests, whole.forwarded, got)
		}
		compareRequests(t, "the app gets", whole.forwarded, whole.requests, true)
		compareRequests(t, "the client sends", sent, whole.requests, false)
	})
}

// compareRequests has net/http read the same bytes. Where it finds no fault it
// must find the same requests, all: every one that it would take for another is
// one that an app behind us could.
//
// It differs by intention and is not compared where
//   - a target has a malformed escape, which is the app's to judge; net/http
//     refuses it. Nor is anything behind it;
//   - an empty line stands before the first request line (RFC 9112 §2.2), which
//     its server does not take;
//   - in what clients send: net/http takes a bare LF, and more than one request
//     that is refused here, so that only what both have read is compared.
func compareRequests(t *testing.T, what string, sent []byte, want []readRequest, all bool) {
	t.Helper()
	reader := bufio.NewReader(bytes.NewReader(sent))
	for i, w := range want {
		if ahead, err := reader.Peek(2); err == nil && string(ahead) == "\r\n" {
			reader.Discard(2)
		}
		got, err := http.ReadRequest(reader)
		if err != nil {
			if all && !refusedEscape(w.target) {
				t.Fatalf("%s %q: net/http reads request %d as %v", what, sent, i, err)
			}
			return
		}
		body, err := io.ReadAll(got.Body)
		if err != nil {
			if all {
				t.Fatalf("%s %q: net/http reads the body of request %d as %v", what, sent, i, err)
			}
			return
		}
		g := readRequest{got.Method, got.RequestURI, got.Host, string(body)}
		if !all && got.URL.IsAbs() { // it is forwarded in origin form
			g.target = w.target
		}
		if !all && got.Host == "" { // HTTP/1.0; the app is told where the client came to
			g.host = w.host
		}
		if g != w {
			t.Fatalf("%s %q: request %d is %q, and to net/http %q", what, sent, i, w, g)
		}
	}
	if rest, _ := io.ReadAll(reader); all && len(rest) > 0 {
		t.Fatalf("%s %q: net/http has %q left", what, sent, rest)
	}
}

// refusedEscape reports whether net/http refuses the target for an escape.
func refusedEscape(target string) bool {
	for rest := target; ; {
		_, after, ok := strings.Cut(rest, "%")
		if !ok {
			return false
		}
		if _, err := strconv.ParseUint(after[:min(2, len(after))], 16, 8); err != nil || len(after) < 2 {
			return true
		}
		rest = after
	}
}

// FuzzPipeline: a request behind others is read as itself, or as no request:
// it is never part of one that was whole, and nothing is read behind a request
// that was refused or said it was the last.
func FuzzPipeline(f *testing.F) {
	server := fuzzedServer(f)
	fuzzedRequests(f, func(sent []byte) {
		f.Add(sent, uint64(len(sent)), false)
		f.Add(sent[:len(sent)-1], uint64(len(sent)), true)
	})
	const second = "DELETE /second HTTP/1.1\r\nHost: second.test\r\n\r\n"
	f.Fuzz(func(t *testing.T, first []byte, seed uint64, stream bool) {
		alone := server.read(t, first, stream, atOnce)
		both := append(bytes.Clone(first), second...)
		for name, piece := range cuts(both, seed) {
			got := server.read(t, both, stream, piece)
			want := alone
			switch {
			case alone.closes, alone.refused && !alone.cut: // nothing behind it is read
			case !alone.refused:
				want.requests = append(slices.Clone(want.requests), readRequest{method: "DELETE", target: "/second", host: "second.test"})
			case len(got.requests) < len(alone.requests) || !slices.Equal(got.requests[:len(alone.requests)], alone.requests):
				t.Fatalf("%q\nalone: %v\n%s, with a second one: %v", first, alone, name, got)
			default:
				continue // the second is the rest of one that was not whole
			}
			if !slices.Equal(got.requests, want.requests) || got.refused != want.refused || got.closes != want.closes {
				t.Fatalf("%q\nalone: %v\n%s, with a second one: %v\nwant %v", first, alone, name, got, want)
			}
		}
	})
}
