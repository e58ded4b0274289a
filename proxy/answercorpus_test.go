package proxy_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/lanes"
	"holdfast/proxy"
)

// ---- The corpus: testdata/wire/answers.txt, whose head says how it reads.

type answerCase struct {
	name   string
	line   int
	sent   []byte
	later  []byte
	closes bool
	resets bool
	method string
	want   *answerWant
	stream *answerWant // on a lane of streams; nil: the same
}

// answerWant is what the client is to see.
type answerWant struct {
	word    string // answer, refuse or cut
	status  int    // of answer
	body    []byte
	has     [][2]string
	lacks   []string
	interim []int
	reused  bool
}

func readAnswerCorpus(t *testing.T) []*answerCase {
	t.Helper()
	path := filepath.Join("..", "testdata", "wire", "answers.txt")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var cases []*answerCase
	lets := map[string][]byte{}
	names := map[string]bool{}
	for number, line := range strings.Split(string(text), "\n") {
		at := fmt.Sprintf("%s:%d", path, number+1)
		switch {
		case strings.TrimSpace(line) == "" || line[0] == '#':
		case strings.HasPrefix(line, "let "):
			name, value, _ := strings.Cut(line[len("let "):], " = ")
			lets[name] = wireBytes(t, at, value, lets)
		case line[0] != ' ':
			name, why, ok := strings.Cut(line, ": ")
			if !ok || why == "" || names[name] {
				t.Fatalf("%s: a case has a name of its own and a reason", at)
			}
			names[name] = true
			cases = append(cases, &answerCase{name: name, line: number + 1, method: "GET"})
		case len(cases) == 0:
			t.Fatalf("%s: a line before the first case", at)
		default:
			cases[len(cases)-1].readLine(t, at, strings.TrimLeft(line, " "), lets)
		}
	}
	for _, c := range cases {
		if c.want == nil || len(c.sent) == 0 && !c.closes && !c.resets {
			t.Fatalf("%s:%d: %s lacks bytes or an expectation", path, c.line, c.name)
		}
	}
	return cases
}

func (c *answerCase) readLine(t *testing.T, at, line string, lets map[string][]byte) {
	t.Helper()
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "|":
		c.sent = append(c.sent, wireBytes(t, at, rest, lets)...)
	case "close":
		c.closes = true
	case "reset":
		c.resets = true
	case "later":
		c.later = wireBytes(t, at, rest, lets)
	case "to":
		c.method = rest
	case "stream":
		if c.stream = readAnswerWant(t, at, rest); c.want == nil {
			t.Fatalf("%s: a lane of streams comes second", at)
		}
	case "answer", "refuse", "cut":
		c.want = readAnswerWant(t, at, line)
	default:
		want := c.want
		if c.stream != nil {
			want = c.stream
		}
		if want == nil {
			t.Fatalf("%s: %q belongs to an expectation", at, word)
		}
		want.readLine(t, at, word, string(wireBytes(t, at, rest, lets)))
	}
}

func readAnswerWant(t *testing.T, at, line string) *answerWant {
	t.Helper()
	word, rest, _ := strings.Cut(line, " ")
	w := &answerWant{word: word}
	if word == "answer" {
		status, err := strconv.Atoi(rest)
		if err != nil {
			t.Fatalf("%s: %v", at, err)
		}
		w.status = status
	} else if word != "refuse" && word != "cut" {
		t.Fatalf("%s: unknown expectation %q", at, word)
	}
	return w
}

func (w *answerWant) readLine(t *testing.T, at, word, rest string) {
	t.Helper()
	switch word {
	case "body":
		w.body = []byte(rest)
	case "has":
		name, value, ok := strings.Cut(rest, ":")
		if !ok {
			t.Fatalf("%s: has NAME: VALUE", at)
		}
		w.has = append(w.has, [2]string{name, strings.Trim(value, " ")})
	case "lacks":
		w.lacks = append(w.lacks, rest)
	case "interim":
		for text := range strings.FieldsSeq(rest) {
			status, err := strconv.Atoi(text)
			if err != nil {
				t.Fatalf("%s: %v", at, err)
			}
			w.interim = append(w.interim, status)
		}
	case "reused":
		w.reused = true
	default:
		t.Fatalf("%s: unknown word %q", at, word)
	}
}

// ---- The app: it says at /N/odd what case N has it say, and elsewhere the target.

// answerPlay is one case under way.
type answerPlay struct {
	*answerCase
	stream bool
	path   string // "/N"
	lane   *lanes.Lane
	addr   string

	asked    chan struct{} // the first /odd is at the app
	release  chan struct{} // closed: the app answers
	answered chan struct{} // closed: the client has its answer
	written  chan struct{} // closed: what comes later was written
	times    atomic.Int32  // that /odd was asked
	conns    [2]atomic.Pointer[recordedConn]

	client, neighbour *wireClient
	answer            wireAnswer
	err               error
}

func (p *answerPlay) app(conn net.Conn, target string) (keep bool) {
	switch strings.TrimPrefix(target, p.path) {
	case "/odd":
	case "/neighbour":
		p.conns[1].Store(conn.(*recordedConn))
		fallthrough
	default:
		_, err := fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(target), target)
		return err == nil
	}
	if p.times.Add(1) == 1 {
		p.conns[0].Store(conn.(*recordedConn))
		close(p.asked)
	}
	<-p.release
	conn.Write(p.sent) // it may be refused before all of it was taken
	if p.later != nil {
		<-p.answered
		conn.Write(p.later)
		close(p.written)
	}
	if p.resets {
		conn.(*recordedConn).Conn.(*net.TCPConn).SetLinger(0)
	}
	return !p.closes && !p.resets
}

// startAnswers makes a lane with one slot for each case, all at one app.
func startAnswers(t *testing.T, cases []*answerCase, stream bool) (plays []*answerPlay, upstream *recordingUpstream) {
	t.Helper()
	byPath := map[string]*answerPlay{}
	upstream = newScriptedUpstream(t, func(conn net.Conn, request recordedRequest) bool {
		path, _, _ := strings.Cut(request.Target[1:], "/")
		return byPath["/"+path].app(conn, request.Target)
	})
	var routes []proxy.Route
	for i, c := range cases {
		p := &answerPlay{answerCase: c, stream: stream, path: fmt.Sprintf("/%d", i),
			asked: make(chan struct{}), release: make(chan struct{}), answered: make(chan struct{}), written: make(chan struct{})}
		p.lane = startLane(t, upstream.Addr(), lanes.Config{Name: c.name, Slots: 1, Queue: 8, Stream: stream})
		routes = append(routes, proxy.Route{Match: p.path + "/", Lane: p.lane, Stream: stream})
		byPath[p.path] = p
		plays = append(plays, p)
	}
	addr := startServer(t, proxy.Config{}, routes)
	for _, p := range plays {
		p.addr = addr
	}
	return plays, upstream
}

// begin has the odd answer given, with the neighbour waiting for the slot. What
// comes later comes on a connection at rest: what comes while the next request
// is on its way already, HTTP/1.1 cannot tell from its answer.
func (p *answerPlay) begin(t *testing.T) {
	t.Helper()
	p.client, p.neighbour = dialWire(t, p.addr), dialWire(t, p.addr)
	p.client.Write(fmt.Appendf(nil, "%s %s/odd HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\n\r\n", p.method, p.path), 0)
	take(t, p.name+" is asked", p.asked)
	if p.later == nil {
		p.askNeighbour()
		until(t, "the neighbour waits", func() bool { return p.lane.Snapshot().Waiting == 1 })
	}
	close(p.release)
	p.answer, p.err = p.client.Read(p.method)
	close(p.answered)
	if p.later != nil {
		take(t, p.name+" is over", p.written)
		p.askNeighbour()
	}
}

func (p *answerPlay) askNeighbour() {
	p.neighbour.Write([]byte("GET "+p.path+"/neighbour HTTP/1.1\r\nHost: a.test\r\n\r\n"), 0)
}

// ---- What is to be seen.

func (p *answerPlay) expectation() *answerWant {
	if p.stream && p.answerCase.stream != nil {
		return p.answerCase.stream
	}
	return p.answerCase.want
}

func (p *answerPlay) check(t *testing.T) {
	want := p.expectation()
	switch {
	case want.word == "answer":
		p.wantAnswer(t, want)
	case want.word == "refuse", !p.stream && p.err == nil:
		p.wantRefused(t)
	default:
		p.wantCut(t, want)
	}
	if !slices.Equal(p.answer.interim, want.interim) {
		t.Errorf("before the answer: %v, want %v", p.answer.interim, want.interim)
	}
	p.wantNeighbour(t, want)
	asked := int32(1)
	if len(p.sent) == 0 && p.method == "GET" {
		asked = 2 // once more, as not a byte of an answer came
	}
	if got := p.times.Load(); got != asked {
		t.Errorf("the app was asked %d times, want %d", got, asked)
	}
}

func (p *answerPlay) wantAnswer(t *testing.T, want *answerWant) {
	t.Helper()
	if p.err != nil || p.answer.status != want.status || !bytes.Equal(p.answer.body, want.body) {
		t.Fatalf("the client is answered %d %.200q, %v; want %d %.200q", p.answer.status, p.answer.body, p.err, want.status, want.body)
	}
	next := 0
	for _, field := range want.has {
		found := slices.Index(p.answer.fields[next:], field)
		if found < 0 {
			t.Fatalf("the answer lacks %q (from field %d on): %.1000q", field, next, p.answer.fields)
		}
		next += found + 1
	}
	for _, name := range want.lacks {
		if values := fieldValues(p.answer.fields, name); len(values) > 0 {
			t.Errorf("the answer has %s: %q", name, values)
		}
	}
}

func (p *answerPlay) wantRefused(t *testing.T) {
	t.Helper()
	if p.err != nil {
		t.Fatalf("no refusal: %v", p.err)
	}
	p.answer.wantRefusal(t, []string{"502"})
}

// wantCut requires that the answer began and does not look whole.
func (p *answerPlay) wantCut(t *testing.T, want *answerWant) {
	t.Helper()
	var broken *brokenRule
	switch {
	case p.err == nil, errors.As(p.err, &broken), errors.Is(p.err, os.ErrDeadlineExceeded):
		t.Errorf("the client is answered %d %.200q, %v; want it cut", p.answer.status, p.answer.body, p.err)
	case !bytes.HasPrefix(want.body, p.answer.body):
		t.Errorf("the client is given %.200q of %.200q", p.answer.body, want.body)
	}
}

// wantNeighbour requires that whoever comes behind gets its own answer.
func (p *answerPlay) wantNeighbour(t *testing.T, want *answerWant) {
	t.Helper()
	p.neighbour.conn.SetDeadline(time.Now().Add(wireDeadline))
	answer, err := p.neighbour.Read("GET")
	if err != nil || answer.status != 200 || string(answer.body) != p.path+"/neighbour" || len(answer.interim) > 0 {
		t.Fatalf("the neighbour is answered %d %v %.200q, %v", answer.status, answer.interim, answer.body, err)
	}
	if reused := p.conns[0].Load() == p.conns[1].Load(); reused != want.reused {
		t.Errorf("the app's connection is used again: %v", reused)
	}
	p.neighbour.ask(t, p.path+"/other", p.name)
	if p.err == nil {
		if p.answer.closes() {
			t.Fatal("the client's connection ends")
		}
		p.client.conn.SetDeadline(time.Now().Add(wireDeadline))
		p.client.ask(t, p.path+"/next", p.name)
	} else if rest, _ := io.ReadAll(p.client.reader); len(rest) > 0 {
		t.Errorf("behind what was cut comes %.200q", rest)
	}
}

// A slot whose app connection was given up under its view is free only a second
// later, so that all odd answers come first.
func TestAnswers_AHostileAppPoisonsNeitherItsSlotNorItsNeighbour(t *testing.T) {
	cases := readAnswerCorpus(t)
	for _, stream := range []bool{false, true} {
		t.Run(map[bool]string{false: "Request", true: "Stream"}[stream], func(t *testing.T) {
			plays, upstream := startAnswers(t, cases, stream)
			for _, p := range plays {
				p.begin(t)
			}
			for _, p := range plays {
				t.Run(p.name, p.check)
			}
			for _, fault := range upstream.Faults() {
				t.Errorf("the app found a fault: %s", fault)
			}
		})
	}
}
