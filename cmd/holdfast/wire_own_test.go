package main

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The corpus of testdata/wire/requests.txt, sent to Holdfast's own listeners.
// What it says of an upstream does not matter here: a request that would be
// forwarded has an answer of ours, and one that would be refused is refused.

// ownCase is a case of the corpus as far as it matters here.
type ownCase struct {
	name     string
	sent     []byte
	end      bool     // the client closes its side
	closes   bool     // the connection ends with the last answer
	methods  []string // of the requests that are fine
	optional bool     // the last of them may find the connection closed
	refuse   []string // statuses, or "cut"
	orRefuse []string
}

// readOwnCorpus reads the corpus aimed at a path: what goes to /in goes there
// instead, and the host is as long and an address, which needs no key.
func readOwnCorpus(t *testing.T, path string) (cases []*ownCase) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "testdata", "wire", "requests.txt"))
	if err != nil {
		t.Fatal(err)
	}
	aimed := strings.NewReplacer(" /in ", " "+path+" ", `: a.test\r`, `: [::ab]\r`).Replace(string(text))
	lets := map[string]string{}
	for line := range strings.Lines(aimed) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case line == "" || line[0] == '#':
			continue
		case strings.HasPrefix(line, "let "):
			name, value, _ := strings.Cut(line[len("let "):], " = ")
			lets[name] = value
			continue
		case line[0] != ' ':
			name, _, _ := strings.Cut(line, ": ")
			cases = append(cases, &ownCase{name: name})
			continue
		}
		c := cases[len(cases)-1]
		switch word, rest, _ := strings.Cut(strings.TrimLeft(line, " "), " "); word {
		case "|":
			c.sent = append(c.sent, corpusBytes(t, rest, lets)...)
		case "end":
			c.end = true
		case "closes":
			c.closes = true
		case "forward", "forward?":
			method, _, _ := strings.Cut(string(corpusBytes(t, rest, lets)), " ")
			c.methods = append(c.methods, method)
			c.optional = word == "forward?"
		case "refuse":
			c.refuse = strings.Split(rest, "|")
		case "or-refuse":
			c.orRefuse = strings.Split(rest, "|")
		}
	}
	if len(cases) < 300 {
		t.Fatalf("the corpus has %d cases only", len(cases))
	}
	return cases
}

// corpusBytes resolves the escapes of the corpus.
func corpusBytes(t *testing.T, text string, lets map[string]string) []byte {
	t.Helper()
	var out []byte
	var begun []int // where the repetitions under way begin
	for at := 0; at < len(text); at++ {
		if text[at] == '*' && len(begun) > 0 {
			if digits, _, ok := strings.Cut(text[at+1:], ")"); ok {
				if times, err := strconv.Atoi(digits); err == nil {
					from := begun[len(begun)-1]
					begun = begun[:len(begun)-1]
					out = append(out[:from], bytes.Repeat(bytes.Clone(out[from:]), times)...)
					at += len(digits) + 1
					continue
				}
			}
		}
		if text[at] != '\\' {
			out = append(out, text[at])
			continue
		}
		at++
		switch text[at] {
		case '(':
			begun = append(begun, len(out))
		case '<':
			name, _, _ := strings.Cut(text[at+1:], ">")
			out = append(out, corpusBytes(t, lets[name], lets)...)
			at += len(name) + 1
		case 'x':
			value, err := strconv.ParseUint(text[at+1:at+3], 16, 8)
			if err != nil {
				t.Fatalf("%q: %v", text, err)
			}
			out = append(out, byte(value))
			at += 2
		default:
			plain, err := strconv.Unquote(`"\` + text[at:at+1] + `"`)
			if err != nil {
				t.Fatalf("%q: %v", text, err)
			}
			out = append(out, plain...)
		}
	}
	return out
}

// ownAnswers are the statuses of a request that is fine: done, a key is needed,
// no such path, another method. One that is larger than any event may be 413.
var ownAnswers = []int{200, 401, 404, 405}

// play sends the case and returns how many of its requests were carried out.
// Where the connection is open then, a GET of behind is answered 200.
func (c *ownCase) play(t *testing.T, addr, behind string) (done int) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(8 * time.Second))
	written := make(chan struct{})
	go c.write(conn, written)
	defer func() { conn.Close(); <-written }()
	in := bufio.NewReader(conn)
	for i, method := range c.methods {
		a, err := readFinal(in, method)
		switch {
		case err == io.EOF && c.optional && i == len(c.methods)-1:
			return done
		case err != nil:
			t.Fatalf("request %d has no answer: %v", i+1, err)
		case slices.Contains(c.orRefuse, strconv.Itoa(a.code())):
			c.wantEnd(t, in)
			return done
		case !slices.Contains(ownAnswers, a.code()) && (a.code() != 413 || len(c.sent) <= 1<<20), a.code() != 200 && len(a.get("Holdfast-Reason")) != 1:
			t.Errorf("request %d is answered %s %q %.300q", i+1, a.status, a.fields, a.body)
		case a.code() == 200 && method == "POST":
			done++
		}
		if a.has("Connection", "close") || c.closes && i == len(c.methods)-1 {
			c.wantEnd(t, in)
			return done
		}
	}
	if c.refuse != nil {
		c.wantRefused(t, in)
		return done
	}
	<-written
	if _, err := io.WriteString(conn, "GET "+behind+" HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if a, err := readFinal(in, "GET"); err != nil || a.code() != 200 || in.Buffered() > 0 {
		t.Errorf("a request behind it is answered %v, %v", a, err)
	}
	return done
}

func (c *ownCase) write(conn net.Conn, written chan<- struct{}) {
	defer close(written)
	if _, err := conn.Write(c.sent); err == nil && c.end {
		conn.(*net.TCPConn).CloseWrite()
	}
}

// readFinal reads an answer, and passes 100 by.
func readFinal(in *bufio.Reader, method string) (*rawAnswer, error) {
	if _, err := in.Peek(1); err != nil {
		return nil, err
	}
	for {
		head, err := readRaw(in, method)
		if err != nil || head.code() != 100 {
			return head, err
		}
	}
}

// wantRefused requires the refusal, and then the end.
func (c *ownCase) wantRefused(t *testing.T, in *bufio.Reader) {
	t.Helper()
	a, err := readFinal(in, "GET")
	if err == io.EOF && slices.Contains(c.refuse, "cut") {
		return
	}
	if err != nil {
		t.Fatalf("no refusal: %v", err)
	}
	want := c.refuse
	if slices.Contains(want, "413") || slices.Contains(want, "417") {
		want = append([]string{"404", "405"}, want...) // that it goes nowhere is known before its body
	}
	if !slices.Contains(want, strconv.Itoa(a.code())) || len(a.get("Holdfast-Reason")) != 1 || !a.has("Connection", "close") {
		t.Errorf("answered %s %q %.300q, want %v", a.status, a.fields, a.body, want)
	}
	c.wantEnd(t, in)
}

// wantEnd requires that nothing follows.
func (c *ownCase) wantEnd(t *testing.T, in *bufio.Reader) {
	t.Helper()
	rest, err := io.ReadAll(in)
	if len(rest) > 0 || err != nil && len(c.sent) < 64<<10 { // of a large one not all is read: a reset
		t.Errorf("after the last answer %.200q, %v", rest, err)
	}
}

func TestWire_OwnListenersRefuseWhatAForwardedRouteRefuses(t *testing.T) {
	s := startHoldsAlone(t, "upstreams: {app: {targets: [\"http://127.0.0.1:1\"]}}\nlanes: {web: {upstream: app, slots: 1}}\nroutes: [{match: \"/\", lane: web}]\nlog: {level: error}\n", nil)
	const reloads = `holdfast_reload_total{result="ok"}`
	for _, own := range []struct {
		name, addr, path, behind, counter string
		least                             int // requests that are carried out and counted
	}{
		{"Publish", s.publish, "/publish/in", "/channels", "holdfast_events_published_total", 50},
		{"Admin", s.admin(), "/reload", "/health", reloads, 50},
		{"AdminReads", s.admin(), "/status", "/health", reloads, 0}, // GETs with bodies among them
	} {
		t.Run(own.name, func(t *testing.T) {
			done := 0
			for _, c := range readOwnCorpus(t, own.path) {
				t.Run(c.name, func(t *testing.T) {
					before := metric(t, s.admin(), own.counter)
					n := c.play(t, own.addr, own.behind)
					done += n
					if after := metric(t, s.admin(), own.counter); after != before+float64(n) {
						t.Errorf("%s went from %v to %v, and %d were carried out", own.counter, before, after, n)
					}
				})
			}
			if done < own.least {
				t.Errorf("only %d requests were carried out: the corpus is not aimed well", done)
			}
		})
	}
}
