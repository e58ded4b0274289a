package proxy_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httputil"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/lanes"
	"holdfast/proxy"
)

// pattern is n bytes of which no part looks like another.
func pattern(n int) []byte {
	b := make([]byte, 0, n+8)
	for len(b) < n {
		b = binary.BigEndian.AppendUint64(b, uint64(len(b)))
	}
	return b[:n]
}

// startTCP serves connections with script until the test ends. It is for what
// the strict upstream will not do.
func startTCP(t *testing.T, script func(conn *net.TCPConn)) (addr string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go acceptTCP(listener, script, ended)
	t.Cleanup(func() { listener.Close(); <-ended })
	return listener.Addr().String()
}

// acceptTCP ends with its listener and the connections that it took.
func acceptTCP(listener net.Listener, script func(*net.TCPConn), ended chan<- struct{}) {
	defer close(ended)
	var scripts []chan struct{}
	var conns []net.Conn
	for {
		conn, err := listener.Accept()
		if err != nil {
			break
		}
		done := make(chan struct{})
		scripts, conns = append(scripts, done), append(conns, conn)
		go func() { defer close(done); defer conn.Close(); script(conn.(*net.TCPConn)) }()
	}
	for i, conn := range conns {
		conn.Close()
		<-scripts[i]
	}
}

// ---- Large bodies.

func TestRelay_ALargeAnswerFreesItsSlotBeforeItsClientHasReadIt(t *testing.T) {
	large := pattern(8 << 20)
	for name, head := range map[string]string{
		"Length":  fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", len(large)),
		"Chunked": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
		"Close":   "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			p := startOneLane(t, largeAnswer(name, head, large), lanes.Config{Slots: 1}, proxy.Config{})
			c := say(t, p.addr, get("/large"))
			p.upstream.Wait(t, 0, 1)
			until(t, "the slot is free", func() bool { return p.lane.Snapshot().InUse == 0 })
			// The slot serves another while nobody has read the answer.
			say(t, p.addr, get("/small")).wantAnswer(t, "GET", 200, "/small")
			c.wantLarge(t, large)
			c.say(t, get("/next"))
			c.wantAnswer(t, "GET", 200, "/next")
			if s := p.lane.Snapshot(); s.ClosedOnView != 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// largeAnswer answers /large with head and body, and the rest with the target.
func largeAnswer(framing, head string, body []byte) upstreamScript {
	return func(conn net.Conn, request recordedRequest) bool {
		if request.Target != "/large" {
			return echo(conn, request)
		}
		io.WriteString(conn, head)
		if framing != "Chunked" {
			conn.Write(body)
			return framing != "Close"
		}
		for len(body) > 0 {
			n := min(len(body), 50_000)
			fmt.Fprintf(conn, "%x\r\n%s\r\n", n, body[:n])
			body = body[n:]
		}
		_, err := io.WriteString(conn, "0\r\n\r\n")
		return err == nil
	}
}

func (c *wireClient) wantLarge(t *testing.T, want []byte) {
	t.Helper()
	answer, err := c.Read("GET")
	if err != nil || !bytes.Equal(answer.body, want) {
		at := 0
		for at < min(len(want), len(answer.body)) && want[at] == answer.body[at] {
			at++
		}
		t.Fatalf("status %d, %d of %d bytes, the first %d right, %v", answer.status, len(answer.body), len(want), at, err)
	}
}

// Beyond the memory for all answers, the client's pace is the upstream's: what
// does not fit into the sockets between them is not written by the upstream.
func TestRelay_BeyondTheMemoryAnAnswerIsReadAtItsClientsPace(t *testing.T) {
	large := pattern(64 << 20)
	stalled := make(chan bool, 1)
	p := startOneLane(t, func(conn net.Conn, request recordedRequest) bool {
		if request.Target != "/large" {
			return echo(conn, request)
		}
		fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", len(large))
		left := large
		for len(left) > 0 {
			// It takes no byte for this long, or it takes them all.
			conn.SetWriteDeadline(time.Now().Add(time.Second))
			n, err := conn.Write(left[:min(len(left), 64<<10)])
			left = left[n:]
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			} else if err != nil {
				return false
			}
		}
		stalled <- len(left) > 0
		conn.SetWriteDeadline(time.Time{})
		_, err := conn.Write(left)
		return err == nil
	}, lanes.Config{Slots: 1}, proxy.Config{Memory: 1 << 20})
	c := say(t, p.addr, get("/large"))
	if !take(t, "the upstream stops or is done", stalled) {
		t.Error("the upstream could write all of it")
	}
	if s := p.lane.Snapshot(); s.InUse != 1 || s.Abandoned != 0 {
		t.Errorf("while the client does not read: %+v", s)
	}
	c.wantLarge(t, large)
	until(t, "the slot is free", func() bool { return p.lane.Snapshot().InUse == 0 })
	c.say(t, get("/next"))
	c.wantAnswer(t, "GET", 200, "/next")
}

// A client that stops reading and goes on: what comes while something waits for
// it goes behind that, and what comes later goes to it at once.
func TestRelay_WhatGoesAtOnceGoesBehindWhatWaited(t *testing.T) {
	t.Parallel()
	const large, small, pieces = 8 << 20, 40_000, 50
	answer := pattern(large + pieces*small)
	for name, framing := range map[string]struct {
		field string
		piece func(conn net.Conn, p []byte)
		body  func(r io.Reader) io.Reader
	}{
		"Length": {fmt.Sprintf("Content-Length: %d", len(answer)), func(conn net.Conn, p []byte) { conn.Write(p) }, func(r io.Reader) io.Reader { return r }},
		"Chunked": {"Transfer-Encoding: chunked", func(conn net.Conn, p []byte) { fmt.Fprintf(conn, "%x\r\n%s\r\n", len(p), p) },
			httputil.NewChunkedReader},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			next := make(chan struct{})
			up := newScriptedUpstream(t, func(conn net.Conn, _ recordedRequest) bool {
				fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\n%s\r\n\r\n", framing.field)
				framing.piece(conn, answer[:large])
				for rest := answer[large:]; len(rest) > 0; rest = rest[small:] {
					if _, more := <-next; !more {
						return false
					}
					framing.piece(conn, rest[:small])
				}
				if name == "Chunked" {
					io.WriteString(conn, "0\r\n\r\n")
				}
				return true
			})
			t.Cleanup(sync.OnceFunc(func() { close(next) }))
			lane := startLane(t, up.Addr(), lanes.Config{Name: "web", Slots: 1})
			server, addr := startDrainable(t, proxy.Config{SpoolDir: t.TempDir(), SpoolBytes: 64 << 20}, []proxy.Route{{Match: "/", Lane: lane}})
			c := say(t, addr, get("/large"))
			c.conn.SetDeadline(time.Now().Add(patience))
			until(t, "something waits for the client", func() bool { n, _ := server.Spool(); return n > 0 })
			c.readUntil(t, func() bool { return true })
			body, got := framing.body(c.reader), make([]byte, large)
			if _, err := io.ReadFull(body, got); err != nil {
				t.Fatal(err)
			}
			for range pieces {
				next <- struct{}{}
				piece := make([]byte, small)
				if _, err := io.ReadFull(body, piece); err != nil {
					t.Fatal(err)
				}
				got = append(got, piece...)
			}
			if !bytes.Equal(got, answer) {
				t.Errorf("the bytes come in another order than the app's")
			}
			if n, err := body.Read(make([]byte, 1)); name == "Chunked" && (n > 0 || err != io.EOF) {
				t.Errorf("%d bytes more, %v; want the end", n, err)
			}
			until(t, "everything is given back", func() bool {
				n, _ := server.Spool()
				return n == 0 && server.Memory() == 0 && lane.Snapshot().InUse == 0
			})
		})
	}
}

// The memory of an answer that its client did not take is there for others.
func TestRelay_AClientThatLeavesGivesItsMemoryBack(t *testing.T) {
	large := pattern(8 << 20)
	up := newScriptedUpstream(t, largeAnswer("Length", fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", len(large)), large))
	lane := startLane(t, up.Addr(), lanes.Config{Name: "web", Slots: 1, Queue: 8})
	server, addr := startDrainable(t, proxy.Config{Memory: 10 << 20}, []proxy.Route{{Match: "/", Lane: lane}})
	// Were the memory of one still taken, the slot of the next but one would
	// not be freed unread.
	for i := range 6 {
		c := say(t, addr, get("/large"))
		up.Wait(t, i, 1)
		until(t, "the slot is free with the answer in memory", func() bool { return lane.Snapshot().InUse == 0 })
		if i == 5 {
			c.wantLarge(t, large)
			return
		}
		c.reset()
		until(t, "the client is gone", func() bool { return server.Connections() == 0 })
	}
}

func TestRelay_ALargeUploadArrivesWhole(t *testing.T) {
	large := pattern(8 << 20)
	p := startOneLane(t, echo, lanes.Config{Slots: 1}, proxy.Config{})
	c := dialWire(t, p.addr)
	c.conn.SetDeadline(time.Now().Add(patience))
	for i, text := range [][]byte{
		append(fmt.Appendf(nil, "POST /length HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", len(large)), large...),
		append(fmt.Appendf(nil, "PUT /chunked HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n%x\r\n", 5<<20, large[:5<<20], 3<<20),
			append(bytes.Clone(large[5<<20:]), "\r\n0\r\n\r\n"...)...),
	} {
		c.Write(text, 0)
		answer, err := c.Read("POST")
		if err != nil || answer.status != 200 || c.Written() != nil {
			t.Fatalf("answer %+v, %v", answer, err)
		}
		got := p.upstream.Since(i)[0]
		if !bytes.Equal(got.Body, large) || got.Get("Content-Length") != fmt.Sprint(len(large)) {
			t.Errorf("%s arrived otherwise than it was sent: %d bytes", got.Target, len(got.Body))
		}
	}
}

func TestRelay_AnAnswerThatComesBeforeTheUploadIsReadReachesTheClient(t *testing.T) {
	var conns atomic.Int32
	addr := startTCP(t, func(conn *net.TCPConn) {
		conns.Add(1)
		head := make([]byte, 0, 1<<10)
		for one := make([]byte, 1); !bytes.HasSuffix(head, []byte("\r\n\r\n")); head = append(head, one[0]) {
			if _, err := conn.Read(one); err != nil {
				return
			}
		}
		io.WriteString(conn, "HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")
	})
	lane := startLane(t, addr, lanes.Config{Name: "web", Slots: 1})
	server := startServer(t, proxy.Config{}, []proxy.Route{{Match: "/", Lane: lane}})
	body := pattern(8 << 20)
	const times = 10
	c := dialWire(t, server)
	c.conn.SetDeadline(time.Now().Add(patience))
	for range times {
		c.Write(append(fmt.Appendf(nil, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", len(body)), body...), 0)
		c.wantAnswer(t, "POST", 401, "no")
		if err := c.Written(); err != nil {
			t.Fatal(err)
		}
	}
	if got := conns.Load(); got != times {
		t.Errorf("the upstream was asked %d times for %d requests", got, times)
	}
	if s := lane.Snapshot(); s.InUse != 0 || s.ClosedOnView != 0 {
		t.Errorf("%+v", s)
	}
}

// ---- Answers that are not whole.

const cutBody = "0123456789abcdefghijklmnopqrstuvwxyz"

// cutPad brings the answers to 300 bytes and more.
var cutPad = "X-Pad: " + strings.Repeat("p", 130) + "\r\n"

var cutAnswers = map[string]string{
	"Length": "HTTP/1.1 200 OK\r\n" + cutPad + "Content-Type: text/plain\r\nX-Request-ID: 0123456789\r\nSet-Cookie: a=b; Path=/; HttpOnly\r\n" +
		"Cache-Control: no-store\r\nContent-Length: 36\r\n\r\n" + cutBody,
	"Chunked": "HTTP/1.1 200 OK\r\n" + cutPad + "Content-Type: text/plain\r\nSet-Cookie: a=b; Path=/\r\nTransfer-Encoding: chunked\r\n\r\n" +
		"a\r\n0123456789\r\n1;a=b\r\na\r\n19\r\nbcdefghijklmnopqrstuvwxyz\r\n0\r\nX-Sum: 1\r\n\r\n",
	"Close": "HTTP/1.1 200 OK\r\n" + cutPad + "Content-Type: text/plain\r\nSet-Cookie: a=b; Path=/; HttpOnly\r\nX-Request-ID: 0123456789\r\n\r\n" + cutBody,
}

func TestRelay_AnAnswerCutAtAnyByteNeverLooksWhole(t *testing.T) {
	for framing, whole := range cutAnswers {
		for _, end := range []string{"FIN", "Reset"} {
			t.Run(framing+"/"+end, func(t *testing.T) {
				var cut atomic.Int64
				p := startOneLane(t, func(conn net.Conn, request recordedRequest) bool {
					if request.Target != "/cut" {
						return echo(conn, request)
					}
					io.WriteString(conn, whole[:cut.Load()])
					if end == "Reset" {
						conn.(*recordedConn).Conn.(*net.TCPConn).SetLinger(0)
					}
					return false
				}, lanes.Config{Slots: 1, Queue: 8}, proxy.Config{})
				for at := range whole {
					cut.Store(int64(at))
					// A POST, which is not sent again where not a byte came.
					c := say(t, p.addr, "POST /cut HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
					answer, err := c.Read("POST")
					wantCut(t, whole, at, framing == "Close" && end == "FIN", answer, err)
					say(t, p.addr, get("/next")).wantAnswer(t, "GET", 200, "/next")
				}
				if s := p.lane.Snapshot(); s.InUse != 0 || s.ClosedOnView != 0 || s.Retried != 0 {
					t.Errorf("%+v", s)
				}
			})
		}
	}
}

// wantCut requires that the answer cut at a byte was a refusal, or cut too;
// or, if its end is the connection's, all the bytes that there were.
func wantCut(t *testing.T, whole string, at int, endsAnywhere bool, answer wireAnswer, err error) {
	t.Helper()
	body := strings.Index(whole, "\r\n\r\n") + 4
	var broken *brokenRule
	switch {
	case errors.As(err, &broken), errors.Is(err, os.ErrDeadlineExceeded):
		t.Errorf("cut at %d: %v", at, err)
	case err != nil && endsAnywhere:
		t.Errorf("cut at %d, which may be its end: %v", at, err)
	case err != nil: // cut
	case answer.status == 502 && answer.get("Holdfast-Reason") == "upstream_error":
		if endsAnywhere && at >= body {
			t.Errorf("cut at %d, which may be its end, it is refused", at)
		}
	case !endsAnywhere || at < body || answer.status != 200 || string(answer.body) != whole[body:at]:
		t.Errorf("cut at %d: answered %d %q as if it were whole", at, answer.status, answer.body)
	}
}

// What was shown to the client already cannot be taken back: its connection
// ends with a reset, or in the middle of what was announced.
func TestRelay_AnAnswerCutBehindItsBeginningIsCut(t *testing.T) {
	for name, c := range map[string]struct{ head, version string }{
		"Length":       {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello", "1.1"},
		"Chunked":      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", "1.1"},
		"LengthToOld":  {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello", "1.0"},
		"ChunkedToOld": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", "1.0"},
		"Malformed":    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", "1.0"},
	} {
		t.Run(name, func(t *testing.T) {
			shown := make(chan struct{})
			p := startOneLane(t, func(conn net.Conn, request recordedRequest) bool {
				if request.Target != "/cut" {
					return echo(conn, request)
				}
				io.WriteString(conn, c.head)
				if name == "Malformed" && opened(t, shown) {
					io.WriteString(conn, "x\r\n")
				}
				opened(t, shown)
				return false
			}, lanes.Config{Slots: 1, Queue: 8}, proxy.Config{})
			client := say(t, p.addr, "GET /cut HTTP/"+c.version+"\r\nHost: a\r\n\r\n")
			if _, _, _, err := readStrictHead(client.reader); err != nil {
				t.Fatal(err)
			}
			begin, err := client.reader.Peek(5)
			if err != nil {
				t.Fatal(err)
			}
			close(shown)
			rest, err := io.ReadAll(client.reader)
			switch {
			case err == nil && c.version == "1.0" && !strings.Contains(c.head, "Length"):
				t.Errorf("a body that ends with the connection ended in order: %q", rest)
			case err == nil && strings.HasSuffix(string(rest), "0\r\n\r\n"):
				t.Errorf("it has a last chunk: %q", rest)
			case err == nil && !bytes.HasPrefix(rest, begin), strings.Contains(c.head, "Length") && len(rest) >= 10:
				t.Errorf("it goes on with %q", rest)
			case err != nil && !isReset(err):
				t.Error(err)
			}
			say(t, p.addr, get("/next")).wantAnswer(t, "GET", 200, "/next")
		})
	}
}

// The buffer of a first write is as good for a head that all but fills it.
func TestRelay_AHeadOfAlmostTheBuffersSizeIsRelayed(t *testing.T) {
	var pad atomic.Int64
	p := startOneLane(t, func(conn net.Conn, request recordedRequest) bool {
		head := "HTTP/1.1 200 OK\r\nX-Request-ID: 1\r\nX-Pad: " + strings.Repeat("p", int(pad.Load())) + "\r\n"
		if request.Target == "/chunked" {
			_, err := io.WriteString(conn, head+"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")
			return err == nil
		}
		_, err := io.WriteString(conn, head+"Content-Length: 5\r\n\r\nhello")
		return err == nil
	}, lanes.Config{Slots: 1}, proxy.Config{})
	c := dialWire(t, p.addr)
	for n := 65380; n <= 65460; n++ { // the head with all of it stays below 64 KiB
		pad.Store(int64(n))
		for _, target := range []string{"/length", "/chunked"} {
			c.say(t, get(target))
			if answer := c.wantAnswer(t, "GET", 200, "hello"); len(answer.get("X-Pad")) != n {
				t.Fatalf("X-Pad came with %d of %d bytes", len(answer.get("X-Pad")), n)
			}
		}
	}
}

func TestRelay_AnAnswerOfAnySizeAboutTheBuffersIsWhole(t *testing.T) {
	body := pattern(200 << 10)
	var size atomic.Int64
	p := startOneLane(t, func(conn net.Conn, request recordedRequest) bool {
		b := body[:size.Load()]
		if request.Target == "/length" {
			_, err := fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(b), b)
			return err == nil
		}
		_, err := fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(b), b)
		return err == nil
	}, lanes.Config{Slots: 1}, proxy.Config{})
	c := dialWire(t, p.addr)
	for _, about := range []int{16 << 10, 32 << 10, 64 << 10, 128 << 10} {
		for n := about - 220; n < about+60; n += 7 {
			size.Store(int64(n))
			for _, target := range []string{"/length", "/chunked"} {
				c.say(t, get(target))
				c.wantLarge(t, body[:n])
			}
		}
	}
}

// ---- Streams.

const eventHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"

func TestRelay_AnEndlessAnswerIsRefusedWithBothWaysOut(t *testing.T) {
	t.Parallel()
	closed := make(chan struct{}, 8)
	p := startOneLane(t, func(conn net.Conn, request recordedRequest) bool {
		if request.Target != "/events" {
			return echo(conn, request)
		}
		io.WriteString(conn, eventHead+"7\r\ndata: 1\r\n")
		io.Copy(io.Discard, conn) // until the connection is closed
		closed <- struct{}{}
		return false
	}, lanes.Config{Slots: 1, Queue: 8}, proxy.Config{})
	began := time.Now()
	c := say(t, p.addr, get("/events"))
	c.wantReason(t, 409, "stream_refused", "route / ", "lane web", "hold header", "kind: stream")
	take(t, "the upstream's connection is closed", closed)
	c.say(t, get("/next"))
	c.wantAnswer(t, "GET", 200, "/next")
	// Its view may go on for a moment, so its slot was not free at once.
	if took := time.Since(began); took < time.Second {
		t.Errorf("the slot was free %v after the refusal", took)
	}
	if s := p.lane.Snapshot(); s.ClosedOnView != 1 || s.Abandoned != 0 {
		t.Errorf("%+v", s)
	}
}

func TestRelay_AnEndlessAnswerThatIsForwardedComesAsItIsSent(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(*wireClient){
		"Close":     func(c *wireClient) { c.conn.Close() },
		"Reset":     (*wireClient).reset,
		"HalfClose": func(c *wireClient) { c.conn.CloseWrite() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			events, closed := make(chan string), make(chan struct{})
			up := newScriptedUpstream(t, func(conn net.Conn, request recordedRequest) bool {
				if request.Target != "/events" {
					return echo(conn, request)
				}
				io.WriteString(conn, eventHead)
				for event := range events {
					fmt.Fprintf(conn, "%x\r\n%s\r\n", len(event), event)
				}
				io.Copy(io.Discard, conn)
				close(closed)
				return false
			})
			lane := startLane(t, up.Addr(), lanes.Config{Name: "web", Slots: 1, Queue: 8})
			addr := startServer(t, proxy.Config{}, []proxy.Route{{Match: "/", Lane: lane, ForwardStreams: true}})
			c := say(t, addr, get("/events"))
			_, fields, _, err := readStrictHead(c.reader)
			if chunked, _, err2 := strictFraming(fields); err != nil || err2 != nil || !chunked {
				t.Fatalf("the head: %q, %v", fields, err)
			}
			for i := range 5 { // each before the next is sent
				event := fmt.Sprintf("data: %d\n\n", i)
				events <- event
				want := fmt.Sprintf("%x\r\n%s\r\n", len(event), event)
				got := make([]byte, len(want))
				if _, err := io.ReadFull(c.reader, got); err != nil || string(got) != want {
					t.Fatalf("event %d came as %q, %v", i, got, err)
				}
			}
			if s := lane.Snapshot(); s.InUse != 1 || s.ClosedOnView != 0 {
				t.Errorf("while the client listens: %+v", s)
			}
			close(events)
			left := time.Now()
			leave(c)
			take(t, "the upstream's connection is closed", closed)
			until(t, "the slot is free", func() bool { return lane.Snapshot().InUse == 0 })
			if took := time.Since(left); took < time.Second {
				t.Errorf("the slot was free %v after the client left", took)
			}
			if s := lane.Snapshot(); s.ClosedOnView != 1 || s.Abandoned != 0 {
				t.Errorf("%+v", s)
			}
			say(t, addr, get("/next")).wantAnswer(t, "GET", 200, "/next")
		})
	}
}

func TestRelay_AForwardedStreamThatEndsIsOrdinary(t *testing.T) {
	up := newScriptedUpstream(t, func(conn net.Conn, request recordedRequest) bool {
		if request.Target != "/events" {
			return echo(conn, request)
		}
		_, err := io.WriteString(conn, eventHead+"7\r\ndata: 1\r\n0\r\n\r\n")
		return err == nil
	})
	lane := startLane(t, up.Addr(), lanes.Config{Name: "web", Slots: 1})
	addr := startServer(t, proxy.Config{}, []proxy.Route{{Match: "/", Lane: lane, ForwardStreams: true}})
	c := say(t, addr, get("/events"))
	c.wantAnswer(t, "GET", 200, "data: 1")
	c.say(t, get("/next"))
	c.wantAnswer(t, "GET", 200, "/next")
	if s := lane.Snapshot(); s.InUse != 0 || s.ClosedOnView != 0 {
		t.Errorf("%+v", s)
	}
}

// ---- Heads.

func TestRelay_InterimAnswersPassToWhoKnowsThem(t *testing.T) {
	p := startOneLane(t, func(conn net.Conn, request recordedRequest) bool {
		_, err := io.WriteString(conn, "HTTP/1.1 100 Continue\r\n\r\n"+
			"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\nLink: </b.js>\r\n\r\n"+
			"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
		return err == nil
	}, lanes.Config{Slots: 1}, proxy.Config{})
	c := say(t, p.addr, get("/"))
	line, fields, _, err := readStrictHead(c.reader)
	if err != nil || line != "HTTP/1.1 103 Early Hints" || len(fieldValues(fields, "Link")) != 2 || len(fieldValues(fields, "Content-Length")) != 0 {
		t.Errorf("the interim answer: %q %q, %v", line, fields, err)
	}
	if answer := c.wantAnswer(t, "GET", 200, "hello"); len(answer.interim) > 0 {
		t.Errorf("more interim answers: %v", answer.interim)
	}
	c = say(t, p.addr, "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
	if answer := c.wantAnswer(t, "GET", 200, "hello"); len(answer.interim) > 0 {
		t.Errorf("HTTP/1.0 was sent interim answers: %v", answer.interim)
	}
}

func TestRelay_FieldsOfOneConnectionStayThere(t *testing.T) {
	p := startOneLane(t, func(conn net.Conn, request recordedRequest) bool {
		_, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\nConnection: X-Internal, keep-alive\r\nX-Internal: 1\r\nX-Internal: 2\r\nKeep-Alive: timeout=5\r\n"+
			"Proxy-Connection: keep-alive\r\nX-Shown: 1\r\nConnection: x-other\r\nX-Other: 3\r\nContent-Length: 2\r\n\r\nok")
		return err == nil
	}, lanes.Config{Slots: 1}, proxy.Config{})
	c := say(t, p.addr, "GET / HTTP/1.1\r\nHost: a\r\nX-Secret: 1\r\nConnection: x-secret, Host, Content-Length\r\nX-SECRET: 2\r\nKeep-Alive: 5\r\nTE: trailers\r\n"+
		"Proxy-Connection: keep-alive\r\nProxy-Authorization: Basic x\r\nX-Plain: 1\r\nConnection: X-Also\r\nX-Also: 3\r\nContent-Length: 2\r\n\r\nhi")
	answer := c.wantAnswer(t, "GET", 200, "ok")
	for _, name := range []string{"X-Internal", "X-Other", "Keep-Alive", "Proxy-Connection", "Connection"} {
		if got := answer.get(name); got != "" {
			t.Errorf("the client got %s: %s", name, got)
		}
	}
	if answer.get("X-Shown") != "1" {
		t.Errorf("the client got %q", answer.fields)
	}
	request := p.upstream.Since(0)[0]
	for _, name := range []string{"X-Secret", "X-Also", "Keep-Alive", "TE", "Proxy-Connection", "Proxy-Authorization", "Connection"} {
		if got := fieldValues(request.Fields, name); len(got) > 0 {
			t.Errorf("the upstream got %s: %q", name, got)
		}
	}
	if request.Get("X-Plain") != "1" || request.Get("Host") != "a" || string(request.Body) != "hi" {
		t.Errorf("the upstream got %q %q", request.Head, request.Body)
	}
}

func TestRelay_RepeatedFieldsKeepTheirOrderAndCase(t *testing.T) {
	cookies := []string{"a=1; Path=/", "b=2; HttpOnly", "a=3; Expires=Thu, 01 Jan 2026 00:00:00 GMT", "c=4"}
	p := startOneLane(t, func(conn net.Conn, request recordedRequest) bool {
		_, err := io.WriteString(conn, "HTTP/1.1 299 Made Up\r\nSet-Cookie: "+cookies[0]+"\r\nX-one: 1\r\nSet-Cookie: "+cookies[1]+
			"\r\nset-cookie: "+cookies[2]+"\r\nX-ONE: 2\r\nSet-Cookie: "+cookies[3]+"\r\nContent-Length: 0\r\n\r\n")
		return err == nil
	}, lanes.Config{Slots: 1}, proxy.Config{})
	c := say(t, p.addr, "GET / HTTP/1.1\r\nhOST: a\r\nCookie: x=1\r\nX-two: 1\r\ncookie: y=2\r\nX-TWO: 2\r\nX-Forwarded-For: 9.9.9.9\r\nM0-Hold: x\r\nX_Under: 1\r\n\r\n")
	line, fields, _, err := readStrictHead(c.reader)
	if err != nil || line != "HTTP/1.1 299 Made Up" {
		t.Errorf("%q, %v", line, err)
	}
	if got := fieldValues(fields, "Set-Cookie"); strings.Join(got, "|") != strings.Join(cookies, "|") {
		t.Errorf("the cookies came as %q", got)
	}
	if got := namesOf(fields, "X-ONE", "Set-Cookie"); got != "Set-Cookie X-one Set-Cookie set-cookie X-ONE Set-Cookie" {
		t.Errorf("the names came as %s", got)
	}
	request := p.upstream.Since(0)[0]
	if got := namesOf(request.Fields, "Cookie", "X-TWO"); got != "Cookie X-two cookie X-TWO" {
		t.Errorf("the names went as %s", got)
	}
	if request.Get("X-Forwarded-For") != "127.0.0.1" || request.Get("M0-Hold") != "" || request.Get("X_Under") != "" {
		t.Errorf("the upstream got %q", request.Head)
	}
}

// namesOf gives the names as they are written, of these fields.
func namesOf(fields [][2]string, names ...string) string {
	var got []string
	for _, field := range fields {
		for _, name := range names {
			if strings.EqualFold(field[0], name) {
				got = append(got, field[0])
			}
		}
	}
	return strings.Join(got, " ")
}
