package proxy_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/lanes"
	"holdfast/proxy"
)

// wireDeadline is how long anything on loopback may take before it counts as
// not happening. It is shorter than the proxy's own header timeout.
const wireDeadline = 8 * time.Second

// ---- The corpus: testdata/wire/requests.txt, whose head says how it reads.

type wireCase struct {
	name     string
	line     int
	bytes    []byte
	end      bool // the client closes its sending side
	no100    bool
	closes   bool
	mayClose bool
	forwards []wireForward
	refuse   []string // statuses, or "cut"; nil: not refused
	orRefuse []string
}

type wireForward struct {
	method, target string
	optional       bool
	body           []byte
	has            [][2]string
	lacks          []string
	never          [][]byte
	local          []string // statuses on a local route; nil: by the method
}

func readWireCorpus(t *testing.T) []*wireCase {
	t.Helper()
	path := filepath.Join("..", "testdata", "wire", "requests.txt")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var cases []*wireCase
	lets := map[string][]byte{}
	names := map[string]bool{}
	for number, line := range strings.Split(string(text), "\n") {
		at := fmt.Sprintf("%s:%d", path, number+1)
		switch {
		case strings.TrimSpace(line) == "" || line[0] == '#':
		case strings.HasPrefix(line, "let "):
			name, value, ok := strings.Cut(line[len("let "):], " = ")
			if !ok {
				t.Fatalf("%s: a let has a name, = and bytes", at)
			}
			lets[name] = wireBytes(t, at, value, lets)
		case line[0] != ' ':
			name, why, ok := strings.Cut(line, ": ")
			if !ok || why == "" || names[name] {
				t.Fatalf("%s: a case has a name of its own and a reason", at)
			}
			names[name] = true
			cases = append(cases, &wireCase{name: name, line: number + 1})
		case len(cases) == 0:
			t.Fatalf("%s: a line before the first case", at)
		default:
			cases[len(cases)-1].readLine(t, at, strings.TrimLeft(line, " "), lets)
		}
	}
	for _, c := range cases {
		if len(c.bytes) == 0 || len(c.forwards) == 0 && c.refuse == nil {
			t.Fatalf("%s:%d: %s lacks bytes or an expectation", path, c.line, c.name)
		}
	}
	return cases
}

func (c *wireCase) readLine(t *testing.T, at, line string, lets map[string][]byte) {
	t.Helper()
	word, rest, _ := strings.Cut(line, " ")
	var last *wireForward
	if len(c.forwards) > 0 {
		last = &c.forwards[len(c.forwards)-1]
	}
	if last == nil && slices.Contains([]string{"body", "has", "lacks", "never", "local", "closes", "may-close"}, word) {
		t.Fatalf("%s: %q belongs to a forward", at, word)
	}
	switch word {
	case "|":
		c.bytes = append(c.bytes, wireBytes(t, at, rest, lets)...)
	case "end":
		c.end = true
	case "no100":
		c.no100 = true
	case "closes":
		c.closes = true
	case "may-close":
		c.mayClose = true
	case "refuse":
		c.refuse = strings.Split(rest, "|")
	case "or-refuse":
		c.orRefuse = strings.Split(rest, "|")
	case "forward", "forward?":
		method, target, _ := strings.Cut(string(wireBytes(t, at, rest, lets)), " ")
		c.forwards = append(c.forwards, wireForward{method: method, target: target, optional: word == "forward?"})
	case "body":
		last.body = wireBytes(t, at, rest, lets)
	case "has":
		name, value, ok := strings.Cut(string(wireBytes(t, at, rest, lets)), ":")
		if !ok {
			t.Fatalf("%s: has NAME: VALUE", at)
		}
		last.has = append(last.has, [2]string{name, strings.Trim(value, " ")})
	case "lacks":
		last.lacks = append(last.lacks, rest)
	case "never":
		last.never = append(last.never, wireBytes(t, at, rest, lets))
	case "local":
		last.local = strings.Split(rest, "|")
	default:
		t.Fatalf("%s: unknown word %q", at, word)
	}
}

// wireBytes resolves the escapes of text.
func wireBytes(t *testing.T, at, text string, lets map[string][]byte) []byte {
	t.Helper()
	out, rest, err := wireUnescape(text, lets, false)
	if err != nil {
		t.Fatalf("%s: %v before %.20q", at, err, rest)
	}
	return out
}

// wireUnescape reads up to the end of text or, inside \(, up to and with *N).
func wireUnescape(text string, lets map[string][]byte, inside bool) (out []byte, rest string, err error) {
	for text != "" {
		if inside && text[0] == '*' {
			if digits, rest, ok := strings.Cut(text[1:], ")"); ok {
				if times, err := strconv.Atoi(digits); err == nil {
					return bytes.Repeat(out, times), rest, nil
				}
			}
		}
		if text[0] != '\\' {
			out, text = append(out, text[0]), text[1:]
			continue
		}
		if len(text) < 2 {
			return nil, text, errors.New("half an escape")
		}
		kind, tail := text[1], text[2:]
		switch kind {
		case 'r', 'n', 't', '\\':
			out = append(out, map[byte]byte{'r': '\r', 'n': '\n', 't': '\t', '\\': '\\'}[kind])
		case 'x':
			value, err := strconv.ParseUint(tail[:min(2, len(tail))], 16, 8)
			if err != nil {
				return nil, text, err
			}
			out, tail = append(out, byte(value)), tail[2:]
		case '<':
			name, after, _ := strings.Cut(tail, ">")
			value, ok := lets[name]
			if !ok {
				return nil, text, errors.New("no such let")
			}
			out, tail = append(out, value...), after
		case '(':
			repeated, after, err := wireUnescape(tail, lets, true)
			if err != nil {
				return nil, after, err
			}
			out, tail = append(out, repeated...), after
		default:
			return nil, text, errors.New("no such escape")
		}
		text = tail
	}
	if inside {
		return nil, text, errors.New("a repetition without its *N)")
	}
	return out, "", nil
}

// ---- The client: raw bytes out, answers read by the letter.

type wireClient struct {
	conn   *net.TCPConn
	reader *bufio.Reader
	wrote  chan error // from the one write under way
}

type wireAnswer struct {
	status  int
	fields  [][2]string
	body    []byte
	interim []int // the 1xx before it
}

func dialWire(t *testing.T, addr string) *wireClient {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.SetDeadline(time.Now().Add(wireDeadline)); err != nil {
		t.Fatal(err)
	}
	c := &wireClient{conn: conn.(*net.TCPConn), reader: bufio.NewReader(conn)}
	t.Cleanup(c.Close)
	return c
}

// Close ends the connection and its write.
func (c *wireClient) Close() {
	c.conn.Close()
	c.Written()
}

// Write writes data while answers are read; piece is the size of one write, 0
// for all in one. Written ends it.
func (c *wireClient) Write(data []byte, piece int) {
	c.wrote = make(chan error, 1)
	go c.writePieces(data, piece, c.wrote)
}

func (c *wireClient) writePieces(data []byte, piece int, wrote chan<- error) {
	if piece == 0 {
		piece = len(data)
	}
	var err error
	for part := range slices.Chunk(data, piece) {
		if _, err = c.conn.Write(part); err != nil {
			break
		}
	}
	wrote <- err
}

// Written waits for the write under way and returns its error.
func (c *wireClient) Written() (err error) {
	if c.wrote != nil {
		err = <-c.wrote
		c.wrote = nil
	}
	return err
}

// Read reads the answer to a request of this method. io.EOF: the connection
// ended before its first byte; any other error: it broke a rule, or was cut.
func (c *wireClient) Read(method string) (wireAnswer, error) {
	var answer wireAnswer
	for {
		line, fields, _, err := readStrictHead(c.reader)
		if err != nil {
			return answer, err
		}
		version, rest, _ := strings.Cut(line, " ")
		status, err := strconv.Atoi(rest[:min(3, len(rest))])
		if err != nil || version != "HTTP/1.1" || status < 100 || len(rest) < 4 || rest[3] != ' ' {
			return answer, breaks("not a status line: %q", line)
		}
		if status < 200 && status != 101 {
			answer.interim = append(answer.interim, status)
			continue
		}
		answer.status, answer.fields = status, fields
		answer.body, err = c.readBody(method, answer)
		return answer, err
	}
}

func (c *wireClient) readBody(method string, answer wireAnswer) ([]byte, error) {
	chunked, length, err := strictFraming(answer.fields)
	switch {
	case err != nil:
		return nil, err
	case method == "HEAD", answer.status == 204, answer.status == 304, answer.status == 101:
		return nil, nil
	case chunked:
		return c.readChunks()
	case length < 0:
		if !answer.closes() {
			return nil, breaks("a body that ends with the connection, but no Connection: close")
		}
		return io.ReadAll(c.reader)
	}
	body := make([]byte, length)
	n, err := io.ReadFull(c.reader, body)
	if err == io.EOF && length > 0 {
		err = io.ErrUnexpectedEOF
	}
	return body[:n], err
}

func (c *wireClient) readChunks() ([]byte, error) {
	var body []byte
	for {
		line, err := c.reader.ReadString('\n')
		if err != nil {
			return body, io.ErrUnexpectedEOF
		}
		size, err := strconv.ParseUint(strings.TrimSuffix(line, "\r\n"), 16, 31)
		if err != nil {
			return body, breaks("a chunk size %q", line)
		}
		data := make([]byte, size+2)
		n, err := io.ReadFull(c.reader, data)
		body = append(body, data[:min(n, int(size))]...)
		if err != nil {
			return body, io.ErrUnexpectedEOF
		}
		if string(data[size:]) != "\r\n" {
			return body, breaks("a chunk ends in %q", data[size:])
		}
		if size == 0 {
			return body, nil
		}
	}
}

// wantEnd requires that nothing follows and the connection ends. A reset counts
// where the proxy cannot have read all that was written.
func (c *wireClient) wantEnd(t *testing.T, resetIsAnEnd bool) {
	t.Helper()
	rest, err := io.ReadAll(c.reader)
	if resetIsAnEnd && errors.Is(err, syscall.ECONNRESET) {
		err = nil
	}
	if err != nil || len(rest) > 0 {
		t.Errorf("after the last answer: %.200q, %v; want the connection closed", rest, err)
	}
}

func (a wireAnswer) closes() bool {
	for _, value := range fieldValues(a.fields, "Connection") {
		for token := range strings.SplitSeq(value, ",") {
			if strings.EqualFold(strings.TrimSpace(token), "close") {
				return true
			}
		}
	}
	return false
}

func (a wireAnswer) get(name string) string { return strings.Join(fieldValues(a.fields, name), " | ") }

// reasonOf is the closed list's word for a status, where there is but one here.
var reasonOf = map[string]string{
	"400": "bad_request", "405": "method_not_allowed", "413": "body_too_large", "414": "uri_too_long",
	"417": "expectation_failed", "421": "misdirected", "431": "headers_too_large",
	"501": "not_implemented", "502": "upstream_error", "505": "version_not_supported",
}

// wantRefusal requires one of these statuses in the form of every refusal.
func (a wireAnswer) wantRefusal(t *testing.T, statuses []string) {
	t.Helper()
	status := strconv.Itoa(a.status)
	if !slices.Contains(statuses, status) {
		t.Fatalf("answered %s %.200q, want %v", status, a.body, statuses)
	}
	if got := a.get("Holdfast-Reason"); got != reasonOf[status] {
		t.Errorf("Holdfast-Reason of %s is %q, want %q", status, got, reasonOf[status])
	}
	if got := a.get("Content-Type"); got != "application/problem+json" {
		t.Errorf("Content-Type of a refusal is %q", got)
	}
	if status == "405" && len(fieldValues(a.fields, "Allow")) != 1 {
		t.Errorf("405 without Allow")
	}
	var problem struct {
		Type, Reason string
		Status       int
	}
	if err := json.Unmarshal(a.body, &problem); err != nil || problem.Reason != reasonOf[status] || problem.Type != "docs/troubleshoot.md#"+reasonOf[status] {
		t.Errorf("the body of %s is %q", status, a.body)
	}
}

// ---- Running the corpus.

// wireRoute is one proxy with its upstream; cases use it one after another.
type wireRoute struct {
	addr     string
	upstream *recordingUpstream
	local    bool // the route answers for itself
}

type wireMode struct {
	local bool
	piece int  // size of one write, 0 for all in one
	after bool // behind a good request on the same connection
	limit int  // only cases of fewer bytes; 0 for all
}

func TestWire_AForwardedRouteSeesEachRequestWholeOrNotAtAll(t *testing.T) {
	runWireCorpus(t, wireMode{})
}

func TestWire_ALocalRouteRefusesWhatAForwardedOneRefuses(t *testing.T) {
	runWireCorpus(t, wireMode{local: true})
}

func TestWire_ByteByByteIsNoOtherRequest(t *testing.T) {
	runWireCorpus(t, wireMode{piece: 1, limit: 400})
}

func TestWire_BehindAGoodRequestIsNoOtherRequest(t *testing.T) {
	runWireCorpus(t, wireMode{after: true})
}

func runWireCorpus(t *testing.T, mode wireMode) {
	cases := readWireCorpus(t)
	routes := make(chan *wireRoute, runtime.GOMAXPROCS(0))
	for range cap(routes) {
		upstream := newRecordingUpstream(t)
		routes <- &wireRoute{startProxy(t, upstream.Addr(), mode.local), upstream, mode.local}
	}
	for _, c := range cases {
		if mode.limit > 0 && len(c.bytes) >= mode.limit {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			route := <-routes
			defer giveBack(routes, route)
			c.run(t, route, mode)
		})
	}
}

func giveBack(routes chan<- *wireRoute, route *wireRoute) { routes <- route }

// run plays the case once. Unless the connection must be over by then, a last
// request on it shows that the proxy stands where the case ended.
func (c *wireCase) run(t *testing.T, route *wireRoute, mode wireMode) {
	data, forwards := c.bytes, c.forwards
	if mode.after {
		data = append([]byte("GET /before HTTP/1.1\r\nHost: a.test\r\n\r\n"), data...)
		forwards = append([]wireForward{{method: "GET", target: "/before"}}, forwards...)
	}
	mark := route.upstream.Count()
	client := dialWire(t, route.addr)
	defer client.Close()
	client.Write(data, mode.piece)

	play := &wirePlay{c: c, route: route, client: client, piecemeal: mode.piece > 0}
	open := play.answers(t, forwards)
	if open && c.refuse != nil && !play.refused {
		open = play.refusal(t)
	}
	if open {
		forward := wireForward{method: "GET", target: "/probe", has: [][2]string{{"Host", "probe.test"}}}
		if err := client.Written(); err != nil {
			t.Fatalf("writing: %v", err)
		}
		client.Write([]byte("GET /probe HTTP/1.1\r\nHost: probe.test\r\n\r\n"), 0)
		play.answers(t, []wireForward{forward})
	}
	play.wantUpstream(t, mark)
}

type wirePlay struct {
	c         *wireCase
	route     *wireRoute
	client    *wireClient
	piecemeal bool          // the client may still write when the connection is closed
	answered  []wireForward // what must have reached the upstream
	seqs      []string      // by whose answers
	refused   bool          // by or-refuse
}

// answers reads one answer for each of forwards; open says that the connection
// is to be open after them.
func (p *wirePlay) answers(t *testing.T, forwards []wireForward) (open bool) {
	t.Helper()
	for i, forward := range forwards {
		last := i == len(forwards)-1
		answer, err := p.client.Read(forward.method)
		if err != nil {
			t.Fatalf("the answer to request %d (%s %.60s): %v", i+1, forward.method, forward.target, err)
		}
		status := strconv.Itoa(answer.status)
		if slices.Contains(p.c.orRefuse, status) {
			p.refused = true
			p.wantRefused(t, answer, p.c.orRefuse)
			return false
		}
		if p.route.local {
			if !p.localAnswer(t, forward, answer, status) {
				return false
			}
		} else {
			if status != "200" {
				t.Fatalf("request %d (%s %.60s) is answered %s %.300q", i+1, forward.method, forward.target, status, answer.body)
			}
			p.answered = append(p.answered, forward)
			p.seqs = append(p.seqs, answer.get("X-Seq"))
			if forward.method != "HEAD" && string(answer.body) != answer.get("X-Seq") {
				t.Errorf("an answer with head %q and body %q", answer.get("X-Seq"), answer.body)
			}
		}
		p.wantInterim(t, answer)
		if last && p.c.closes && forward.target != "/probe" {
			if !answer.closes() && !bytes.Contains(p.c.bytes, []byte("HTTP/1.0\r\n")) {
				t.Errorf("the last answer does not say Connection: close")
			}
			p.client.wantEnd(t, p.piecemeal)
			return false
		}
		if answer.closes() {
			if !p.c.mayClose || !last && !forwards[i+1].optional {
				t.Errorf("the answer to request %d says Connection: close", i+1)
			}
			p.client.wantEnd(t, false)
			return false
		}
	}
	return true
}

// localAnswer checks the answer of a local route; false: it closed the
// connection, as it may behind a 405, whose request it need not have read.
func (p *wirePlay) localAnswer(t *testing.T, forward wireForward, answer wireAnswer, status string) bool {
	t.Helper()
	want := forward.local
	switch {
	case want != nil:
	case forward.method == "GET", forward.method == "HEAD":
		want = []string{"200"}
	default:
		want = []string{"405"}
	}
	if !slices.Contains(want, status) {
		t.Fatalf("%s %.60s is answered %s %.200q here, want %v", forward.method, forward.target, status, answer.body, want)
	}
	if status == "405" {
		if forward.method != "HEAD" {
			answer.wantRefusal(t, want)
		}
		if answer.closes() {
			p.client.wantEnd(t, false)
			return false
		}
	}
	return true
}

// refusal reads the answer that ends the connection; always false.
func (p *wirePlay) refusal(t *testing.T) (open bool) {
	t.Helper()
	if p.c.end {
		if err := p.client.Written(); err != nil {
			t.Fatalf("writing: %v", err)
		}
		if err := p.client.conn.CloseWrite(); err != nil {
			t.Fatal(err)
		}
	}
	answer, err := p.client.Read("GET")
	if err == io.EOF && slices.Contains(p.c.refuse, "cut") {
		return false
	}
	if err != nil {
		t.Fatalf("no refusal: %v", err)
	}
	want := p.c.refuse
	if p.route.local && !bytes.HasPrefix(p.c.bytes, []byte("GET ")) &&
		(slices.Contains(want, "413") || slices.Contains(want, "417")) {
		want = append([]string{"405"}, want...) // a local route needs no body to know that
	}
	p.wantRefused(t, answer, want)
	return false
}

func (p *wirePlay) wantRefused(t *testing.T, answer wireAnswer, statuses []string) {
	t.Helper()
	answer.wantRefusal(t, statuses)
	p.wantInterim(t, answer)
	if !answer.closes() {
		t.Errorf("the refusal does not say Connection: close")
	}
	p.client.wantEnd(t, len(p.c.bytes) > 64<<10)
}

func (p *wirePlay) wantInterim(t *testing.T, answer wireAnswer) {
	t.Helper()
	for _, status := range answer.interim {
		if status != 100 || p.c.no100 || !bytes.Contains(bytes.ToLower(p.c.bytes), []byte("expect")) {
			t.Errorf("a %d that nobody asked for", status)
		}
	}
}

// wantUpstream compares what the upstream recorded with what was answered.
func (p *wirePlay) wantUpstream(t *testing.T, mark int) {
	t.Helper()
	got := p.route.upstream.Since(mark)
	if len(got) != len(p.answered) {
		var lines []string
		for _, request := range got {
			lines = append(lines, fmt.Sprintf("%.80q", request.Head))
		}
		t.Fatalf("the upstream saw %d requests, want %d: %s", len(got), len(p.answered), strings.Join(lines, ", "))
	}
	if stray := p.route.upstream.Stray(); len(stray) > 0 {
		t.Errorf("the upstream saw bytes of no request: %.200q", stray)
	}
	for _, fault := range p.route.upstream.Faults() {
		t.Errorf("the upstream found a fault: %s", fault)
	}
	for i, request := range got {
		if seq := strconv.Itoa(request.Seq); p.seqs[i] != seq {
			t.Errorf("request %d got the answer of %s, not of %s", i+1, p.seqs[i], seq)
		}
		p.answered[i].want(t, request)
	}
}

// want compares one request as it reached the upstream.
func (f wireForward) want(t *testing.T, got recordedRequest) {
	t.Helper()
	if got.Method != f.method || got.Target != f.target {
		t.Errorf("the upstream saw %s %.100q, want %s %.100q", got.Method, got.Target, f.method, f.target)
	}
	if !bytes.Equal(got.Body, f.body) {
		t.Errorf("the upstream saw a body of %d bytes %.100q, want %d, %.100q", len(got.Body), got.Body, len(f.body), f.body)
	}
	next := 0
	for _, want := range f.has {
		found := slices.Index(got.Fields[next:], want)
		if found < 0 {
			t.Errorf("the upstream did not see %.100q (from field %d on) in %.2000q", want, next, got.Head)
			continue
		}
		next += found + 1
	}
	for _, name := range f.lacks {
		if values := fieldValues(got.Fields, name); len(values) > 0 {
			t.Errorf("the upstream saw %s: %q", name, values)
		}
	}
	for _, data := range f.never {
		if got.Has(data) {
			t.Errorf("the upstream saw %q in %.2000q", data, got.Head)
		}
	}
	wantForwardedMarks(t, got)
}

// wantForwardedMarks checks what holds for every forwarded request: what
// Holdfast adds is there once and its own, what it takes off is gone.
func wantForwardedMarks(t *testing.T, got recordedRequest) {
	t.Helper()
	for name, value := range map[string]string{
		"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Proto": "http", "X-Forwarded-Host": got.Get("Host"),
	} {
		if values := fieldValues(got.Fields, name); !slices.Equal(values, []string{value}) {
			t.Errorf("the upstream saw %s %q, want %q once", name, values, value)
		}
	}
	for _, name := range []string{"X-Request-ID", "X-Request-Start"} {
		if got.Get(name) == "" {
			t.Errorf("the upstream saw %s %q, want one", name, fieldValues(got.Fields, name))
		}
	}
	for _, field := range got.Fields {
		name := strings.ToLower(field[0])
		switch {
		case slices.Contains([]string{
			"transfer-encoding", "te", "keep-alive", "proxy-connection", "proxy-authorization", "http2-settings", "expect",
			"forwarded", "x-real-ip",
		}, name):
			t.Errorf("the upstream saw %s: %q", field[0], field[1])
		case strings.Contains(name, "_"):
			t.Errorf("the upstream saw the name %s", field[0])
		case strings.HasPrefix(name, "m0-") && name != "m0-position", strings.HasPrefix(name, "meta-"),
			strings.HasPrefix(name, "grip-") && name != "grip-sig":
			t.Errorf("the upstream saw %s: %q", field[0], field[1])
		}
	}
}

// ---- What the corpus cannot say: a client that waits.

func TestWire_ContinueComesBeforeTheBodyAndTheUpstreamAfterIt(t *testing.T) {
	upstream := newRecordingUpstream(t)
	client := dialWire(t, startProxy(t, upstream.Addr(), false))
	for i := range 3 {
		client.Write([]byte("POST /in HTTP/1.1\r\nHost: a.test\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"), 0)
		line, fields, _, err := readStrictHead(client.reader)
		if err != nil || !strings.HasPrefix(line, "HTTP/1.1 100 ") || len(fields) > 0 {
			t.Fatalf("before the body: %q %q, %v", line, fields, err)
		}
		if got := upstream.Count(); got != i || len(upstream.Stray()) > 0 {
			t.Fatalf("the upstream knows of %d requests before the body of number %d", got, i+1)
		}
		client.Write([]byte("hello"), 0)
		answer, err := client.Read("POST")
		if err != nil || answer.status != 200 || string(answer.body) != strconv.Itoa(i) || len(answer.interim) > 0 {
			t.Fatalf("answer %+v, %v", answer, err)
		}
		if got := upstream.Since(i)[0]; string(got.Body) != "hello" || got.Get("Content-Length") != "5" {
			t.Fatalf("the upstream saw %q %q", got.Head, got.Body)
		}
	}
}

func TestWire_ABodyOverTheLimitIsRefusedToAClientThatReadsLast(t *testing.T) {
	upstream := newRecordingUpstream(t)
	addr := startProxy(t, upstream.Addr(), false)
	for range 20 {
		client := dialWire(t, addr)
		head := "POST /in HTTP/1.1\r\nHost: a.test\r\nContent-Length: 50000000\r\n\r\n"
		client.Write(append([]byte(head), bytes.Repeat([]byte("x"), 512<<10)...), 0)
		client.Written() // the refusal may end it; what counts is that it can be read
		answer, err := client.Read("POST")
		if err != nil {
			t.Fatalf("the refusal: %v", err)
		}
		answer.wantRefusal(t, []string{"413"})
	}
	if got := upstream.Count(); got != 0 || len(upstream.Stray()) > 0 {
		t.Errorf("the upstream saw %d requests and %q", got, upstream.Stray())
	}
}

// ---- Answers of the upstream.

// desyncCase is one answer that is not what it should be. The client gets the
// right answer, or 502, or is cut; what it must not get is another that looks
// whole. The requests after it get their own answers.
type desyncCase struct {
	name   string
	method string // "" = GET
	script string // what the upstream writes
	late   string // what it writes once the client has its answer
	close  bool   // it closes then
	status int    // of the right answer; 0: there is none
	body   string
	field  [2]string // that the right answer has
}

var longValue = strings.Repeat("v", 65<<10)

var desyncCases = []desyncCase{
	{name: "SurplusAfterTheLength", script: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloworld", status: 200, body: "hello"},
	{name: "SurplusAnswerAfterTheLength", script: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong", status: 200, body: "hello"},
	{name: "SurplusAnswerAfterTheLastChunk", script: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong", status: 200, body: "hello"},
	{name: "SurplusLater", script: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", late: "world", status: 200, body: "hello"},
	{name: "SurplusLineEnd", script: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello\r\n", status: 200, body: "hello"},
	{name: "UnsolicitedTimeout", script: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
		late: "HTTP/1.1 408 Request Timeout\r\nContent-Length: 5\r\nConnection: close\r\n\r\nwrong", close: true, status: 200, body: "hello"},
	{name: "UnsolicitedTimeoutAtOnce",
		script: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n", close: true, status: 200, body: "hello"},

	{name: "BodyOnHead", method: "HEAD", script: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", status: 200},
	{name: "BodyOnHeadLater", method: "HEAD", script: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", late: "hello", status: 200},
	{name: "ChunksOnHead", method: "HEAD", script: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", status: 200},
	{name: "AnswerOnHead", method: "HEAD", script: "HTTP/1.1 200 OK\r\nContent-Length: 42\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong", status: 200},
	{name: "BodyOn204", script: "HTTP/1.1 204 No Content\r\n\r\nx", status: 204},
	{name: "LengthOn204", script: "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello", status: 204},
	{name: "ChunksOn204", script: "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", status: 204},
	{name: "BodyOn304", script: "HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\nContent-Length: 5\r\n\r\nhello", status: 304, field: [2]string{"ETag", `"x"`}},
	{name: "AnswerOn304", script: "HTTP/1.1 304 Not Modified\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong", status: 304},

	{name: "Continue", script: "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", status: 200, body: "hello"},
	{name: "Processing", script: "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", status: 200, body: "hello"},
	{name: "EarlyHints", script: "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", status: 200, body: "hello"},
	{name: "EarlyHintsFive", script: strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n", 5) + "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", status: 200, body: "hello"},
	{name: "InterimOfEveryKind", script: "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\nX-A: 1\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 199 x\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", status: 200, body: "hello"},
	{name: "InterimOnHead", method: "HEAD", script: "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", status: 200},
	{name: "InterimAlone", script: "HTTP/1.1 103 Early Hints\r\n\r\n", close: true},
	{name: "InterimWithABody", script: "HTTP/1.1 103 Early Hints\r\nContent-Length: 5\r\n\r\nwrongHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", close: true},
	{name: "SwitchingProtocolsUnasked", script: "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"},

	{name: "TwoLengths", script: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", close: true},
	{name: "TwoLengthsListed", script: "HTTP/1.1 200 OK\r\nContent-Length: 5, 6\r\n\r\nhello", close: true},
	{name: "TwoLengthsSame", script: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello", status: 200, body: "hello"},
	{name: "LengthSigned", script: "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nhello"},
	{name: "LengthNegative", script: "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello", close: true},
	{name: "LengthHex", script: "HTTP/1.1 200 OK\r\nContent-Length: 0x5\r\n\r\nhello"},
	{name: "LengthWraps", script: "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551621\r\n\r\nhello"},
	{name: "LengthAndChunks", script: "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", status: 200, body: "hello"},
	{name: "ChunksAndLength", script: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 300\r\n\r\n5\r\nhello\r\n0\r\n\r\n", status: 200, body: "hello"},
	{name: "OldVersionWithChunks", script: "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", close: true, status: 200, body: "hello"},
	{name: "ChunksTwice", script: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", close: true},
	{name: "ChunksNotLast", script: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, gzip\r\n\r\n5\r\nhello\r\n0\r\n\r\n"},
	{name: "CodingUnknown", script: "HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"},
	{name: "CodingAfterVerticalTab", script: "HTTP/1.1 200 OK\r\nTransfer-Encoding: \x0bchunked\r\nContent-Length: 5\r\n\r\nhello"},

	{name: "LineFeedsOnly", script: "HTTP/1.1 200 OK\nContent-Length: 5\n\nhello", status: 200, body: "hello"},
	{name: "LineFeedHidesALength", script: "HTTP/1.1 200 OK\r\nX-A: b\nContent-Length: 3\r\nContent-Length: 5\r\n\r\nhello", close: true},
	{name: "CarriageReturnInAValue", script: "HTTP/1.1 200 OK\r\nX-A: b\rContent-Length: 3\r\nContent-Length: 5\r\n\r\nhello"},
	{name: "Folded", script: "HTTP/1.1 200 OK\r\nX-A: b\r\n c\r\nContent-Length: 5\r\n\r\nhello", status: 200, body: "hello", field: [2]string{"X-A", "b c"}},
	{name: "FoldedLength", script: "HTTP/1.1 200 OK\r\nX-A: b\r\n Content-Length: 3\r\nContent-Length: 5\r\n\r\nhello", status: 200, body: "hello"},
	{name: "BlankInAName", script: "HTTP/1.1 200 OK\r\nX A: b\r\nContent-Length: 5\r\n\r\nhello", status: 200, body: "hello"},
	{name: "BlankBeforeTheColon", script: "HTTP/1.1 200 OK\r\nX-A : b\r\nContent-Length: 5\r\n\r\nhello", status: 200, body: "hello"},
	{name: "BlankBeforeTheColonOfALength", script: "HTTP/1.1 200 OK\r\nContent-Length : 3\r\nContent-Length: 5\r\n\r\nhello"},
	{name: "NoColon", script: "HTTP/1.1 200 OK\r\nX-A\r\nContent-Length: 5\r\n\r\nhello", status: 200, body: "hello"},
	{name: "NULInAValue", script: "HTTP/1.1 200 OK\r\nX-A: a\x00b\r\nContent-Length: 5\r\n\r\nhello"},
	{name: "NotHTTP", script: "220 mail.test ESMTP\r\n", close: true},
	{name: "BodyWithoutAHead", script: "<h1>hello</h1>", close: true},
	{name: "StatusOfTwoDigits", script: "HTTP/1.1 20 OK\r\nContent-Length: 5\r\n\r\nhello"},
	{name: "StatusOfFourDigits", script: "HTTP/1.1 2000 OK\r\nContent-Length: 5\r\n\r\nhello"},
	{name: "StatusZero", script: "HTTP/1.1 000 OK\r\nContent-Length: 5\r\n\r\nhello"},
	{name: "VersionTwo", script: "HTTP/2.0 200 OK\r\nContent-Length: 5\r\n\r\nhello"},
	{name: "NoReason", script: "HTTP/1.1 200\r\nContent-Length: 5\r\n\r\nhello", status: 200, body: "hello"},

	{name: "CutInTheHead", script: "HTTP/1.1 200 OK\r\nContent-Le", close: true},
	{name: "CutBeforeTheEmptyLine", script: "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n", close: true},
	{name: "CutBeforeTheBody", script: "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n", close: true},
	{name: "CutInTheBody", script: "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello", close: true},
	{name: "CutInALargeBody", script: "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + strings.Repeat("x", 900000), close: true},
	{name: "CutInAChunk", script: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\na\r\nhello", close: true},
	{name: "CutAfterAChunk", script: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", close: true},
	{name: "CutInTheLastChunk", script: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n", close: true},
	{name: "CutInTheTrailer", script: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: ", close: true},
	{name: "CutAtOnce", method: "POST", script: "", close: true},
	{name: "ChunkSizeBad", script: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nx\r\nhello\r\n0\r\n\r\n"},
	{name: "ChunkSizeWraps", script: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n10000000000000000\r\n\r\n0\r\n\r\n"},
	{name: "ChunkDataTooLong", script: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello!\r\n0\r\n\r\n"},

	{name: "UntilTheClose", script: "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello", close: true, status: 200, body: "hello"},
	{name: "UntilTheCloseOldVersion", script: "HTTP/1.0 200 OK\r\n\r\nhello", close: true, status: 200, body: "hello"},
	{name: "UntilTheCloseLooksLikeAnswers", script: "HTTP/1.0 200 OK\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", close: true, status: 200, body: "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"},
	{name: "OldVersionWithALength", script: "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", close: true, status: 200, body: "hello"},
	{name: "ClosesAfterAKeptAnswer", script: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", close: true, status: 200, body: "hello"},
	{name: "ChunksWithTrailer", script: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n", status: 200, body: "hello"},
	{name: "HeadOf65KiB", script: "HTTP/1.1 200 OK\r\nX-Long: " + longValue + "\r\nContent-Length: 5\r\n\r\nhello", status: 200, body: "hello", field: [2]string{"X-Long", longValue}},
	{name: "HeadWithoutEnd", script: "HTTP/1.1 200 OK\r\n" + strings.Repeat("X-A: b\r\n", 200000), close: true},
}

// desyncPlay is a case whose odd answer was given; the next requests are to be
// made.
type desyncPlay struct {
	desyncCase
	upstream *recordingUpstream
	addr     string
	client   *wireClient
	answer   wireAnswer
	err      error
}

// All odd answers come first: a slot whose upstream connection was given up is
// free only a second later, and the cases need not wait one after another.
func TestDesync_AnOddAnswerStaysWithItsRequest(t *testing.T) {
	plays := make([]desyncPlay, 0, len(desyncCases))
	for _, c := range desyncCases {
		plays = append(plays, c.start(t))
	}
	for _, play := range plays {
		t.Run(play.name, play.wantOwnAnswers)
	}
}

func (c desyncCase) start(t *testing.T) desyncPlay {
	if c.method == "" {
		c.method = "GET"
	}
	answered, lateWritten := make(chan struct{}), make(chan struct{})
	upstream := newScriptedUpstream(t, c.answers(answered, lateWritten))
	lane := startLane(t, upstream.Addr(), lanes.Config{Name: "web", Slots: 1, Queue: 64})
	addr := startServer(t, proxy.Config{}, []proxy.Route{{Match: "/", Lane: lane}})
	client := dialWire(t, addr)
	client.ask(t, "/before", c.name)
	client.Write([]byte(c.method+" /odd HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\n\r\n"), 0)
	answer, err := client.Read(c.method)
	close(answered)
	if c.late != "" {
		<-lateWritten
	}
	return desyncPlay{c, upstream, addr, client, answer, err}
}

// answers is the script of an upstream that is odd at /odd and elsewhere answers
// with the target.
func (c desyncCase) answers(answered <-chan struct{}, lateWritten chan<- struct{}) upstreamScript {
	return func(conn net.Conn, request recordedRequest) bool {
		if request.Target != "/odd" {
			_, err := fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(request.Target), request.Target)
			return err == nil
		}
		if _, err := io.WriteString(conn, c.script); err != nil {
			return false
		}
		if c.late != "" {
			<-answered
			io.WriteString(conn, c.late)
			if c.close {
				conn.Close()
			}
			close(lateWritten)
		}
		return !c.close
	}
}

func (p desyncPlay) wantOwnAnswers(t *testing.T) {
	right := p.err == nil && p.status != 0 && p.answer.status == p.status && string(p.answer.body) == p.body &&
		(p.field[0] == "" || p.answer.get(p.field[0]) == p.field[1])
	refused := p.answer.status == 502 && p.answer.get("Holdfast-Reason") == "upstream_error"
	var broken *brokenRule
	switch {
	case errors.As(p.err, &broken):
		t.Errorf("the client is shown a fault: %v", p.err)
	case errors.Is(p.err, os.ErrDeadlineExceeded):
		t.Errorf("neither answered nor cut")
	case p.err == nil && !right && !refused:
		t.Errorf("the client is answered %d %.100q", p.answer.status, p.answer.body)
	}
	client := p.client
	client.conn.SetDeadline(time.Now().Add(wireDeadline))
	if p.err != nil || p.answer.closes() {
		client = dialWire(t, p.addr)
	}
	for i := range 3 {
		client.ask(t, fmt.Sprintf("/next/%d", i), p.name)
		dialWire(t, p.addr).ask(t, fmt.Sprintf("/other/%d", i), p.name)
	}
	for _, fault := range p.upstream.Faults() {
		t.Errorf("the upstream found a fault: %s", fault)
	}
}

// ask requires that a GET of target is answered with the target.
func (c *wireClient) ask(t *testing.T, target, after string) {
	t.Helper()
	c.Write([]byte("GET "+target+" HTTP/1.1\r\nHost: a.test\r\n\r\n"), 0)
	answer, err := c.Read("GET")
	if err != nil || answer.status != 200 || string(answer.body) != target || len(answer.interim) > 0 {
		t.Fatalf("%s after %q is answered %d %v %.100q, %v", target, after, answer.status, answer.interim, answer.body, err)
	}
}
