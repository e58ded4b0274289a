package proxy_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// recordingUpstream is an HTTP/1.1 upstream on a loopback port that writes down
// every byte it is sent and reads it more strictly than any real one would: a
// head with a bare LF, two framings, a coding or a field without a name is a
// fault, and a fault ends its connection.
//
// Unless a script answers, each request is answered 200 with its number (from
// 0, in the order of their last bytes) as X-Seq and as body, and the connection
// is kept. Health questions ("OPTIONS *" for localhost) are answered and not
// counted.
type recordingUpstream struct {
	listener net.Listener
	script   upstreamScript
	running  sync.WaitGroup

	mu       sync.Mutex // guards what follows
	changed  chan struct{}
	closed   bool
	requests []recordedRequest
	faults   []string
	conns    map[*recordedConn]struct{}
}

// upstreamScript answers one request on its connection; false closes it.
type upstreamScript func(conn net.Conn, request recordedRequest) (keep bool)

// recordedRequest is one whole request as it arrived.
type recordedRequest struct {
	Seq    int
	Method string
	Target string
	Fields [][2]string // names as sent, values without the blanks around them
	Body   []byte
	Head   []byte // with the empty line
}

// recordedConn keeps what was read and is not part of a whole request yet.
type recordedConn struct {
	net.Conn
	upstream *recordingUpstream
	partial  []byte // guarded by upstream.mu
}

func (c *recordedConn) Read(into []byte) (int, error) {
	n, err := c.Conn.Read(into)
	c.upstream.mu.Lock()
	c.partial = append(c.partial, into[:n]...)
	c.upstream.mu.Unlock()
	return n, err
}

// newRecordingUpstream starts one that answers with numbers; the test ends it.
func newRecordingUpstream(t *testing.T) *recordingUpstream {
	return newScriptedUpstream(t, nil)
}

// newScriptedUpstream starts one that answers with script.
func newScriptedUpstream(t *testing.T, script upstreamScript) *recordingUpstream {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u := &recordingUpstream{
		listener: listener,
		script:   script,
		changed:  make(chan struct{}),
		conns:    make(map[*recordedConn]struct{}),
	}
	u.running.Add(1)
	go u.accept()
	t.Cleanup(u.Close)
	return u
}

// Addr is where it listens, host and port.
func (u *recordingUpstream) Addr() string { return u.listener.Addr().String() }

// Close ends the listener and every connection, and waits for both.
func (u *recordingUpstream) Close() {
	u.listener.Close()
	u.mu.Lock()
	u.closed = true
	for conn := range u.conns {
		conn.Close()
	}
	u.mu.Unlock()
	u.running.Wait()
}

// Count is how many whole requests came so far.
func (u *recordingUpstream) Count() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.requests)
}

// Since returns the requests from number seq on.
func (u *recordingUpstream) Since(seq int) []recordedRequest {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]recordedRequest(nil), u.requests[seq:]...)
}

// Wait returns the requests from number seq on as soon as there are n of them.
func (u *recordingUpstream) Wait(t *testing.T, seq, n int) []recordedRequest {
	t.Helper()
	deadline := time.After(wireDeadline)
	for {
		u.mu.Lock()
		have, changed := len(u.requests)-seq, u.changed
		u.mu.Unlock()
		if have >= n {
			return u.Since(seq)
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("the upstream has %d requests, want %d", have, n)
		}
	}
}

// Stray is what arrived and belongs to no whole request, over all open
// connections.
func (u *recordingUpstream) Stray() []byte {
	u.mu.Lock()
	defer u.mu.Unlock()
	var stray []byte
	for conn := range u.conns {
		stray = append(stray, conn.partial...)
	}
	return stray
}

// Faults are the messages that broke a rule, with the rule.
func (u *recordingUpstream) Faults() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]string(nil), u.faults...)
}

func (u *recordingUpstream) accept() {
	defer u.running.Done()
	for {
		raw, err := u.listener.Accept()
		if err != nil {
			return
		}
		conn := &recordedConn{Conn: raw, upstream: u}
		u.mu.Lock()
		if u.closed {
			u.mu.Unlock()
			raw.Close()
			return
		}
		u.conns[conn] = struct{}{}
		u.running.Add(1)
		u.mu.Unlock()
		go u.serve(conn)
	}
}

func (u *recordingUpstream) serve(conn *recordedConn) {
	defer u.running.Done()
	defer u.forget(conn)
	reader := bufio.NewReader(conn)
	for {
		request, err := readRecorded(reader)
		if err != nil {
			u.fault(conn, err)
			return
		}
		probe := u.record(conn, &request)
		if probe || u.script == nil {
			if _, err := conn.Write(numbered(request)); err != nil {
				return
			}
			continue
		}
		if !u.script(conn, request) {
			return
		}
	}
}

// record numbers a whole request; a health question is none.
func (u *recordingUpstream) record(conn *recordedConn, request *recordedRequest) (probe bool) {
	probe = request.Method == "OPTIONS" && request.Target == "*" && request.Get("Host") == "localhost"
	u.mu.Lock()
	defer u.mu.Unlock()
	conn.partial = conn.partial[len(request.Head)+len(request.Body):]
	if len(conn.partial) == 0 {
		conn.partial = nil // so that a large body is not kept twice
	}
	if probe {
		request.Seq = -1
		return true
	}
	request.Seq = len(u.requests)
	u.requests = append(u.requests, *request)
	close(u.changed)
	u.changed = make(chan struct{})
	return false
}

// forget closes conn; what it left unfinished stays a fault.
func (u *recordingUpstream) forget(conn *recordedConn) {
	conn.Close()
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.conns, conn)
	if len(conn.partial) > 0 && !u.closed {
		u.faults = append(u.faults, fmt.Sprintf("the connection ended within a request: %.200q", conn.partial))
	}
}

func (u *recordingUpstream) fault(conn *recordedConn, err error) {
	var broken *brokenRule
	if !errors.As(err, &broken) {
		return // the peer closed, or reset, the connection
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.faults = append(u.faults, fmt.Sprintf("%v: %.200q", err, conn.partial))
	conn.partial = nil
}

// numbered is the answer that carries the request's number.
func numbered(request recordedRequest) []byte {
	body := strconv.Itoa(request.Seq)
	head := "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nX-Seq: " + body +
		"\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n"
	if request.Method == "HEAD" {
		body = ""
	}
	return []byte(head + body)
}

// Get returns the value of the only field of this name, "" if there is none or
// more than one.
func (r recordedRequest) Get(name string) string {
	values := fieldValues(r.Fields, name)
	if len(values) != 1 {
		return ""
	}
	return values[0]
}

// Has says whether data stands anywhere in the request.
func (r recordedRequest) Has(data []byte) bool {
	return bytes.Contains(r.Head, data) || bytes.Contains(r.Body, data)
}

// brokenRule is a fault of the message, not of the connection.
type brokenRule struct{ rule string }

func (b *brokenRule) Error() string { return b.rule }

func breaks(format string, values ...any) error {
	return &brokenRule{fmt.Sprintf(format, values...)}
}

func readRecorded(reader *bufio.Reader) (recordedRequest, error) {
	var request recordedRequest
	line, fields, raw, err := readStrictHead(reader)
	if err != nil {
		return request, err
	}
	method, rest, _ := strings.Cut(line, " ")
	target, version, _ := strings.Cut(rest, " ")
	if !isToken(method) || target == "" || version != "HTTP/1.1" {
		return request, breaks("not a request line: %q", line)
	}
	request = recordedRequest{Method: method, Target: target, Fields: fields, Head: raw}
	if hosts := fieldValues(fields, "Host"); len(hosts) != 1 {
		return request, breaks("%d Host fields", len(hosts))
	}
	chunked, length, err := strictFraming(fields)
	if err != nil {
		return request, err
	}
	if chunked {
		return request, breaks("the body is not framed by Content-Length")
	}
	request.Body = make([]byte, max(length, 0))
	_, err = io.ReadFull(reader, request.Body)
	return request, err
}

// readStrictHead reads a first line and fields, each of which ends in CR LF, and
// the empty line. io.EOF means that not one byte came.
func readStrictHead(reader *bufio.Reader) (first string, fields [][2]string, raw []byte, err error) {
	for number := 0; ; number++ {
		line, err := reader.ReadBytes('\n')
		raw = append(raw, line...)
		if err == io.EOF && len(raw) > 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return "", nil, raw, err
		}
		text, ok := strings.CutSuffix(string(line), "\r\n")
		if !ok || strings.ContainsAny(text, "\r\x00") {
			return "", nil, raw, breaks("a line does not end in CR LF: %q", line)
		}
		switch {
		case number == 0:
			first = text
		case text == "":
			return first, fields, raw, nil
		default:
			name, value, ok := strings.Cut(text, ":")
			if !ok || !isToken(name) {
				return "", nil, raw, breaks("not a field: %q", line)
			}
			value = strings.Trim(value, " \t")
			if at := strings.IndexFunc(value, isControl); at >= 0 {
				return "", nil, raw, breaks("a control byte in a value: %q", line)
			}
			fields = append(fields, [2]string{name, value})
		}
	}
}

// strictFraming reads the framing of a message: chunked, or a length, -1 for
// none.
func strictFraming(fields [][2]string) (chunked bool, length int, err error) {
	lengths, codings := fieldValues(fields, "Content-Length"), fieldValues(fields, "Transfer-Encoding")
	switch {
	case len(lengths)+len(codings) > 1:
		return false, 0, breaks("two framings: lengths %q, codings %q", lengths, codings)
	case len(codings) == 1:
		if codings[0] != "chunked" {
			return false, 0, breaks("a coding %q", codings[0])
		}
		return true, -1, nil
	case len(lengths) == 1:
		length, err = strconv.Atoi(lengths[0])
		if err != nil || strconv.Itoa(length) != lengths[0] || length < 0 {
			return false, 0, breaks("a length %q", lengths[0])
		}
		return false, length, nil
	}
	return false, -1, nil
}

func fieldValues(fields [][2]string, name string) []string {
	var values []string
	for _, field := range fields {
		if strings.EqualFold(field[0], name) {
			values = append(values, field[1])
		}
	}
	return values
}

func isToken(text string) bool {
	for i := 0; i < len(text); i++ {
		c := text[i] | 0x20
		if (c < 'a' || c > 'z') && (text[i] < '0' || text[i] > '9') &&
			!strings.ContainsRune("!#$%&'*+-.^_`|~", rune(text[i])) {
			return false
		}
	}
	return text != ""
}

func isControl(c rune) bool { return c < 0x20 && c != '\t' || c == 0x7f }
