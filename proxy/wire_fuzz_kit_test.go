package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
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
	hostField   = regexp.MustCompile("(?i)\nhost:[ \t]*([^\r]*?)[ \t]*\r")
	lengthField = regexp.MustCompile("(?i)\ncontent-length:[ \t]*([^\r]*?)[ \t]*\r")
	codingField = regexp.MustCompile("(?i)\ntransfer-encoding:[ \t]*([^\r]*?)[ \t]*\r")
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
