package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/lanes"
	"holdfast/proxy"
)

// ---- The kit of this file, tunnel_test.go and upload_test.go.

// streamLane is a proxy whose every path is on one lane, and an app that does
// what a script says with the bytes themselves.
type streamLane struct {
	addr   string
	lane   *lanes.Lane
	server *proxy.Server
}

// startStreams makes one whose lane is of streams.
func startStreams(t *testing.T, cfg lanes.Config, server proxy.Config, script func(*appConn)) streamLane {
	t.Helper()
	cfg.Stream = true
	return startRaw(t, cfg, server, script)
}

// startRaw makes one of the kind that cfg says.
func startRaw(t *testing.T, cfg lanes.Config, server proxy.Config, script func(*appConn)) streamLane {
	t.Helper()
	cfg.Name = "web"
	if cfg.Slots == 0 {
		cfg.Slots = 1
	}
	addr := startTCP(t, func(conn *net.TCPConn) {
		script(&appConn{TCPConn: conn, reader: bufio.NewReader(conn)})
	})
	lane := startLane(t, addr, cfg)
	s, addr := startDrainable(t, server, []proxy.Route{{Match: "/", Lane: lane, Stream: cfg.Stream}})
	return streamLane{addr, lane, s}
}

// wantFree waits until no slot is taken.
func (s streamLane) wantFree(t *testing.T) {
	t.Helper()
	until(t, "the slot is free", func() bool { return s.lane.Snapshot().InUse == 0 })
}

// appConn is a connection as the app has it.
type appConn struct {
	*net.TCPConn
	reader *bufio.Reader
}

// head reads a request's head; "" at the end of the connection.
func (a *appConn) head() (line string, fields [][2]string) {
	line, fields, _, err := readStrictHead(a.reader)
	if err != nil {
		return "", nil
	}
	return line, fields
}

// say writes, and gives up where nobody reads.
func (a *appConn) say(text string) { io.WriteString(a, text) }

// read reads exactly n bytes, fewer where the connection ends before.
func (a *appConn) read(n int) string {
	p := make([]byte, n)
	n, _ = io.ReadFull(a.reader, p)
	return string(p[:n])
}

// end reads what is left, until the other side ends the connection: nil for
// an orderly end.
func (a *appConn) end() (rest string, err error) {
	b, err := io.ReadAll(a.reader)
	return string(b), err
}

// wantBytes requires these to come next.
func (c *wireClient) wantBytes(t *testing.T, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(c.reader, got); err != nil || string(got) != want {
		t.Fatalf("%q came, %v; want %q", got[:n], err, want)
	}
}

// wantHead reads an answer's head.
func (c *wireClient) wantHead(t *testing.T, status int) [][2]string {
	t.Helper()
	line, fields, _, err := readStrictHead(c.reader)
	if err != nil || !strings.HasPrefix(line, "HTTP/1.1 "+strconv.Itoa(status)+" ") {
		t.Fatalf("the head is %q, %v; want %d", line, err, status)
	}
	return fields
}

// post is the head of an upload.
func post(framing string) string {
	return "POST /up HTTP/1.1\r\nHost: a.test\r\n" + framing + "\r\n\r\n"
}

// readUpload reads a body that is framed as fields say; whole: it came to its end.
func (a *appConn) readUpload(fields [][2]string) (body []byte, whole bool) {
	chunked, length, err := strictFraming(fields)
	if err != nil || !chunked && length < 0 {
		return nil, false
	}
	if !chunked {
		body = make([]byte, length)
		n, err := io.ReadFull(a.reader, body)
		return body[:n], err == nil
	}
	body, err = (&wireClient{reader: a.reader}).readChunks()
	return body, err == nil
}

// ---- Uploads on stream lanes.

// An upload that is whole leaves both connections open, whether its last byte
// or its answer is first noticed.
func TestStream_AWholeUploadLeavesTheConnectionOpen(t *testing.T) {
	s := startStreams(t, lanes.Config{}, proxy.Config{}, func(a *appConn) {
		for {
			_, fields := a.head()
			body, whole := a.readUpload(fields)
			if !whole {
				return
			}
			a.say(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
		}
	})
	c := dialWire(t, s.addr)
	for i := range 200 {
		c.say(t, post("Content-Length: 5")+"hello"+post("Transfer-Encoding: chunked")+"5\r\nhello\r\n0\r\n\r\n")
		for range 2 {
			if answer := c.wantAnswer(t, "POST", 200, "hello"); answer.closes() {
				t.Fatalf("the answer to upload %d ends the connection", i)
			}
		}
	}
}

// Whoever waits for 100 Continue and gets his answer first is not told to
// continue behind it.
func TestStream_NothingIsSaidBehindAnAnswerThatComesBeforeTheBody(t *testing.T) {
	const answered = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno"
	s := startStreams(t, lanes.Config{Slots: 4, Queue: 8}, proxy.Config{}, func(a *appConn) {
		if line, _ := a.head(); line != "" {
			a.say(answered)
			a.end()
		}
	})
	for i := range 100 {
		c := say(t, s.addr, post("Content-Length: 5\r\nExpect: 100-continue"))
		answer := c.wantAnswer(t, "POST", 401, "no")
		c.conn.CloseWrite()
		rest, err := io.ReadAll(c.reader)
		if len(rest) > 0 || err != nil && !isReset(err) {
			t.Fatalf("connection %d: %q, %v behind the answer (before it: %v)", i, rest, err, answer.interim)
		}
	}
}

// The end of an answer that its connection's end frames cannot be told from a
// cut: where the upload fails meanwhile, the connection is cut with a reset.
func TestStream_AFaultInTheUploadIsNoCleanEndOfTheAnswer(t *testing.T) {
	ended := make(chan string, 1)
	s := startStreams(t, lanes.Config{}, proxy.Config{BodyTimeout: 500 * time.Millisecond}, func(a *appConn) {
		if line, _ := a.head(); line != "" {
			a.say("HTTP/1.1 200 OK\r\n\r\nhello")
			rest, _ := a.end()
			ended <- rest
		}
	})
	c := say(t, s.addr, "POST /up HTTP/1.0\r\nContent-Length: 10\r\n\r\n01234")
	c.wantHead(t, 200)
	c.wantBytes(t, "hello")
	// No further byte of the body comes.
	if rest, err := io.ReadAll(c.reader); !isReset(err) || len(rest) > 0 {
		t.Errorf("the answer ends with %q, %v; want a reset", rest, err)
	}
	if got := take(t, "the upstream's connection ends", ended); got != "01234" {
		t.Errorf("the upstream got %q of the body", got)
	}
	s.wantFree(t)
}

// An upload that still comes is not an app that is late.
func TestStream_ASlowUploadIsNotALateAnswer(t *testing.T) {
	const limit = 500 * time.Millisecond
	got := make(chan string, 2)
	s := startStreams(t, lanes.Config{ResponseTimeout: limit}, proxy.Config{}, func(a *appConn) {
		a.head()
		got <- a.read(3)
		got <- a.read(3)
		a.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	})
	c := say(t, s.addr, post("Content-Length: 6")+"abc")
	take(t, "the first half arrives", got)
	<-time.After(2 * limit)
	c.say(t, "def")
	c.wantAnswer(t, "POST", 200, "ok")
	if half := take(t, "the second half arrives", got); half != "def" {
		t.Errorf("the second half is %q", half)
	}
}

// An upstream that closes behind its answer takes no client along.
func TestStream_AnUpstreamThatClosesLeavesItsClientOpen(t *testing.T) {
	same := 30 * time.Second
	s := startStreams(t, lanes.Config{}, proxy.Config{BodyTimeout: same, IdleTimeout: same}, func(a *appConn) {
		line, fields := a.head()
		if strings.HasPrefix(line, "POST") {
			a.readUpload(fields)
		}
		a.say("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")
	})
	c := say(t, s.addr, post("Content-Length: 5"))
	c.say(t, "hello") // behind the head, so that it is waited for
	if c.wantAnswer(t, "POST", 200, "ok").closes() {
		return // said so: fair, but not what TestStream_AWholeUploadLeavesTheConnectionOpen wants
	}
	s.wantFree(t)
	c.say(t, get("/next"))
	c.wantAnswer(t, "GET", 200, "ok")
}

// Fields that no client may set are not set by a trailer either.
func TestStream_ATrailerIsNoWayAroundTheFieldsThatAreOurs(t *testing.T) {
	got := make(chan string, 1)
	s := startStreams(t, lanes.Config{}, proxy.Config{}, func(a *appConn) {
		a.head()
		var text strings.Builder
		for !strings.HasSuffix(text.String(), "\r\n\r\n") {
			line, err := a.reader.ReadString('\n')
			if text.WriteString(line); err != nil {
				break
			}
		}
		got <- text.String()
		a.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 2\r\nM0-Hold: stream\r\nGrip-Hold: stream\r\n\r\n")
	})
	c := say(t, s.addr, post("Transfer-Encoding: chunked")+
		"5\r\nhello\r\n0\r\nX-Sum: 1\r\nM0-Connection: 1\r\nGrip-Sig: x\r\nMeta-A: b\r\nX_Sum: 2\r\nX-Forwarded-For: 9.9.9.9\r\nForwarded: for=9.9.9.9\r\nX-Real-IP: 9.9.9.9\r\n\r\n")
	if text, want := take(t, "the body arrives", got), "5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n"; text != want {
		t.Errorf("the upstream got %q, want %q", text, want)
	}
	c.wantHead(t, 200)
	c.wantBytes(t, "2\r\nok\r\n0\r\nX-Sum: 2\r\n\r\n")
}

// ---- Leaving.

// A client that has left is not waited for because it reads nothing.
func TestStream_AClientThatLeavesWithoutReadingIsLeft(t *testing.T) {
	for name, leave := range map[string]func(*wireClient){
		"Reset": (*wireClient).reset,
		"FIN":   func(c *wireClient) { c.conn.CloseWrite() },
	} {
		t.Run(name, func(t *testing.T) {
			var sent atomic.Int64
			ended := make(chan struct{})
			s := startStreams(t, lanes.Config{}, proxy.Config{BodyTimeout: time.Hour}, func(a *appConn) {
				if line, _ := a.head(); line == "" {
					return
				}
				defer close(ended)
				a.say("HTTP/1.1 200 OK\r\n\r\n")
				piece := pattern(64 << 10)
				for {
					n, err := a.Write(piece)
					if sent.Add(int64(n)); err != nil {
						return
					}
				}
			})
			c := say(t, s.addr, get("/flood"))
			c.wantHead(t, 200)
			until(t, "nothing moves any more", stands(&sent))
			leave(c)
			take(t, "the upstream's connection is closed", ended)
			s.wantFree(t)
		})
	}
}

// stands reports whether a counter has not moved for half a second.
func stands(counter *atomic.Int64) func() bool {
	last, since := int64(-1), time.Now()
	return func() bool {
		if now := counter.Load(); now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) > time.Second/2
	}
}
