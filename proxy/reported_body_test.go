package proxy_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/lanes"
	"holdfast/proxy"
)

// Faults that users of other proxies have met: bodies of requests, and apps
// that do not wait for them.

// ---- Framing.

// A sender says one framing, never two (RFC 9112 §6.2); and where a body may be
// expected it says so even of none (RFC 9110 §8.6).
func TestForward_ABodyIsFramedOnceAndAnEmptyOneIsSaidToBe(t *testing.T) {
	eachKind(t, func(t *testing.T, stream bool) {
		heads := make(chan [][2]string, 1)
		s := startRaw(t, lanes.Config{Stream: stream}, proxy.Config{}, func(a *appConn) {
			for {
				line, fields := a.head()
				if line == "" {
					return
				}
				heads <- fields
				a.readUpload(fields)
				a.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			}
		})
		c := dialWire(t, s.addr)
		for _, ask := range []struct{ request, length string }{
			{"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 2000\r\n\r\n" + strings.Repeat("x", 2000), "2000"},
			{"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\n\r\n", "0"},
			{"PUT / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\n\r\n", "0"},
			{"GET / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\n\r\n", "0"},
			{"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n", ""},
			{"DELETE / HTTP/1.1\r\nHost: a.test\r\n\r\n", ""},
			{"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", "5"},
			{"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "0"},
		} {
			c.say(t, ask.request)
			c.wantAnswer(t, "POST", 200, "ok")
			fields := <-heads
			lengths, codings := strings.Join(fieldValues(fields, "Content-Length"), " | "), strings.Join(fieldValues(fields, "Transfer-Encoding"), " | ")
			wantLength, wantCoding := ask.length, ""
			if stream && strings.Contains(ask.request, "chunked") { // its length is not known when it begins
				wantLength, wantCoding = "", "chunked"
			}
			if lengths != wantLength || codings != wantCoding {
				t.Errorf("%.60q is framed by lengths %q and codings %q, want %q and %q", ask.request, lengths, codings, wantLength, wantCoding)
			}
		}
	})
}

func TestForward_AMethodThatMayHaveABodySaysThatItHasNone(t *testing.T) {
	eachKind(t, func(t *testing.T, stream bool) {
		addr, up := startRecorded(t, stream, proxy.Config{})
		for i, method := range []string{"POST", "PUT", "PATCH"} {
			say(t, addr, method+" / HTTP/1.1\r\nHost: a.test\r\n\r\n").wantAnswer(t, method, 200, fmt.Sprint(i))
			if got := fieldValues(up.Since(i)[0].Fields, "Content-Length"); len(got) != 1 || got[0] != "0" {
				t.Errorf("%s without a body reaches the app with the lengths %q, want 0", method, got)
			}
		}
	})
}

// Trailers are no fields of the head, in either direction, and the connections
// go on behind them.
func TestForward_TrailersAreNoFieldsAndTheConnectionsGoOn(t *testing.T) {
	eachKind(t, func(t *testing.T, stream bool) {
		heads := make(chan [][2]string, 1)
		conns := new(atomic.Int32)
		s := startRaw(t, lanes.Config{Stream: stream}, proxy.Config{}, func(a *appConn) {
			conns.Add(1)
			for {
				line, fields := a.head()
				if line == "" {
					return
				}
				heads <- fields
				if chunked, _, _ := strictFraming(fields); chunked {
					for last := ""; last != "\r\n" && last != "0\r\n\r\n"; { // the whole body, trailers included
						text, err := a.reader.ReadString('\n')
						if err != nil {
							return
						}
						last = text
					}
				} else {
					a.readUpload(fields)
				}
				announced := map[bool]string{true: "Trailer: X-Checksum\r\n"}[strings.Contains(line, "/announced")]
				a.say("HTTP/1.1 200 OK\r\nConnection: keep-alive\r\n" + announced + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Checksum: abc\r\nServer-Timing: db\r\n\r\n")
			}
		})
		c := dialWire(t, s.addr)
		for _, target := range []string{"/announced", "/plain"} {
			for _, announced := range []string{"", "Trailer: X-Forwarded-For\r\n"} {
				c.say(t, "POST "+target+" HTTP/1.1\r\nHost: a.test\r\n"+announced+"Transfer-Encoding: chunked\r\n\r\n5\r\nHELLO\r\n0\r\nX-Forwarded-For: 6.6.6.6\r\nX-Sum: 1\r\n\r\n")
				fields := c.wantHead(t, 200)
				if len(fieldValues(fields, "X-Checksum")) > 0 || len(fieldValues(fields, "Server-Timing")) > 0 {
					t.Errorf("a trailer of the app's is a field of its head: %q", fields)
				}
				if got := <-heads; strings.Join(fieldValues(got, "X-Forwarded-For"), " | ") != "127.0.0.1" || len(fieldValues(got, "X-Sum")) > 0 {
					t.Errorf("a trailer of the client's is a field of the head: %q", got)
				}
				body, rest := "", ""
				for rest != "\r\n" { // the last chunk, its trailers, the empty line
					text, err := c.reader.ReadString('\n')
					if err != nil {
						t.Fatal(err)
					}
					if body += text; strings.HasSuffix(body, "0\r\n") || rest != "" {
						rest = text
					}
				}
				if !strings.HasPrefix(body, "5\r\nhello\r\n0\r\n") {
					t.Errorf("the body came as %q", body)
				}
			}
		}
		if got := conns.Load(); got != 1 {
			t.Errorf("%d connections to the app for 4 requests", got)
		}
	})
}

// A chunk that is none is refused, and no slot was ever asked for: the one there
// is stays another's.
func TestForward_AMalformedChunkIsRefusedWithoutASlot(t *testing.T) {
	gate := make(chan struct{})
	p := startOneLane(t, echoWhenOpen(t, gate), lanes.Config{Slots: 1}, proxy.Config{}) // and nobody may wait
	holder := say(t, p.addr, get("/held"))
	p.upstream.Wait(t, 0, 1)
	for _, body := range []string{
		"1\r0\r\n", "0x5\r\nhello\r\n0\r\n\r\n", "-1\r\n", "5;ext=\nhello\r\n0\r\n\r\n", "ffffffffffffffff1\r\n", "5\r\nhello0\r\n\r\n", "5\r\nhello\n0\r\n\r\n", " 5\r\nhello\r\n",
	} {
		c := say(t, p.addr, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"+body)
		if answer := c.wantReason(t, 400, "bad_request"); !answer.closes() {
			t.Errorf("%q: the connection goes on", body)
		}
		c.wantEnd(t, true)
	}
	if s := p.lane.Snapshot(); p.upstream.Count() != 1 || len(p.upstream.Stray()) > 0 || s.Refused[lanes.LaneFull] > 0 || s.InUse != 1 {
		t.Errorf("%+v, the app has %d requests and %q", s, p.upstream.Count(), p.upstream.Stray())
	}
	close(gate)
	holder.wantAnswer(t, "GET", 200, "/held")
}

// ---- Bodies that are too large.

// What the head shows is answered before the client is told to send, whatever
// state the lane and the process are in.
func TestForward_ABodyThatIsTooLargeIsRefusedUnsentWhateverTheState(t *testing.T) {
	const huge = "POST /huge HTTP/1.1\r\nHost: a.test\r\nExpect: 100-continue\r\nContent-Length: 10737418240\r\n\r\n"
	eachKind(t, func(t *testing.T, stream bool) {
		gate := make(chan struct{})
		up := newScriptedUpstream(t, echoWhenOpen(t, gate))
		lane := startLane(t, up.Addr(), lanes.Config{Name: "web", Slots: 1, Stream: stream}) // and nobody may wait
		server, addr := startDrainable(t, proxy.Config{BodyBytes: 1 << 20}, []proxy.Route{{Match: "/", Lane: lane, Stream: stream}})
		refused := func(state string) {
			t.Helper()
			c := say(t, addr, huge)
			if answer := c.wantReason(t, 413, "body_too_large"); len(answer.interim) > 0 || !answer.closes() {
				t.Errorf("%s: after %v, closing is %v", state, answer.interim, answer.closes())
			}
			c.wantEnd(t, false)
		}
		refused("at rest")
		holder := say(t, addr, get("/held"))
		up.Wait(t, 0, 1)
		say(t, addr, get("/full")).wantReason(t, 503, "lane_full")
		refused("full")
		server.Drain()
		refused("draining")
		close(gate)
		holder.wantAnswer(t, "GET", 200, "/held")
		if got := up.Count(); got != 1 {
			t.Errorf("the app has %d requests", got)
		}
	})
}

// A client that writes before it reads finds the refusal all the same: a reset
// would have eaten it. What it sends behind is no request.
func TestForward_WhoWritesFourMegabytesTooManyReadsTheRefusalAndNothingBehindIsServed(t *testing.T) {
	const times = 25
	sent := bytes.Repeat([]byte("x"), 4<<20)
	for name, head := range map[string]string{
		"Length": "Content-Length: 10485760\r\n\r\n", "Chunked": "Transfer-Encoding: chunked\r\n\r\nA00000\r\n",
	} {
		eachKind(t, func(t *testing.T, stream bool) {
			t.Run(name, func(t *testing.T) {
				var count atomic.Int32
				s := startRaw(t, lanes.Config{Slots: 4, Queue: 8, Stream: stream}, proxy.Config{BodyBytes: 1 << 20}, asked(&count, (*appConn).named))
				for range times {
					c := dialWire(t, s.addr)
					c.conn.SetDeadline(time.Now().Add(patience))
					if _, err := c.conn.Write(append([]byte("POST / HTTP/1.1\r\nHost: a.test\r\n"+head), sent...)); err != nil {
						t.Fatal("it cannot write:", err)
					}
					if answer := c.wantReason(t, 413, "body_too_large"); !answer.closes() {
						t.Error("413 without Connection: close")
					}
					io.WriteString(c.conn, "\r\n0\r\n\r\n"+get("/behind"))
					c.conn.CloseWrite()
					c.wantEnd(t, false)
				}
				if got := count.Load(); got != 0 {
					t.Errorf("the app has %d whole requests", got)
				}
			})
		})
	}
}

// ---- Apps that do not wait for the body.

// The app answers by the head and closes with most of the body unread, which
// resets the connection: its answer is the answer, every time, and it was asked
// once.
func TestForward_AnAnswerThatComesBeforeTheUploadSurvivesTheReset(t *testing.T) {
	const times = 50
	body := pattern(2 << 20)
	eachKind(t, func(t *testing.T, stream bool) {
		for _, framing := range []string{fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body), fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body)} {
			var conns atomic.Int32
			s := startRaw(t, lanes.Config{Queue: 8, QueueTimeout: patience, Stream: stream}, proxy.Config{}, func(a *appConn) {
				if line, _ := a.head(); line != "" {
					conns.Add(1)
					a.say("HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno")
				}
			})
			for range times {
				c := dialWire(t, s.addr)
				c.conn.SetDeadline(time.Now().Add(patience))
				c.Write([]byte("POST / HTTP/1.1\r\nHost: a.test\r\n"+framing), 0)
				c.wantAnswer(t, "POST", 401, "no")
				c.Close()
			}
			s.wantFree(t)
			if got := conns.Load(); got != times {
				t.Errorf("the app was asked %d times for %d requests", got, times)
			}
		}
	})
}

// ---- Methods.

// Methods that few use, with bodies and without, and answers without a body:
// the app sees them as the client sent them, and the client the answer.
func TestForward_MethodsAndBodiesOfAnyKindPass(t *testing.T) {
	eachKind(t, func(t *testing.T, stream bool) {
		type seen struct {
			line   string
			fields [][2]string
			body   [32]byte
		}
		requests := make(chan seen, 1)
		s := startRaw(t, lanes.Config{Stream: stream}, proxy.Config{}, func(a *appConn) {
			for {
				line, fields := a.head()
				if line == "" {
					return
				}
				body, _ := a.readUpload(fields)
				requests <- seen{line, fields, sha256.Sum256(body)}
				if strings.HasPrefix(line, "HEAD") {
					a.say("HTTP/1.1 200 OK\r\nUpload-Offset: 7\r\nContent-Length: 7\r\n\r\n")
				} else {
					a.say("HTTP/1.1 204 No Content\r\nUpload-Offset: 7\r\nTus-Resumable: 1.0.0\r\n\r\n")
				}
			}
		})
		c := dialWire(t, s.addr)
		large := string(pattern(64 << 10))
		for _, ask := range []struct{ method, fields, body string }{
			{"OPTIONS", "", ""}, {"POST", "Upload-Length: 100\r\nContent-Length: 0\r\n", ""}, {"HEAD", "", ""},
			{"PATCH", "Content-Type: application/offset+octet-stream\r\nUpload-Offset: 0\r\nContent-Length: 65536\r\n", large},
			{"PROPFIND", "Depth: 1\r\nContent-Length: 5\r\n", "hello"}, {"QUERY", "Content-Length: 5\r\n", "hello"},
			{"DELETE", "Content-Length: 5\r\n", "hello"}, {"GET", "Content-Length: 5\r\n", "hello"}, {"GET", "Content-Length: 65536\r\n", large},
			{"OPTIONS", "Content-Length: 5\r\n", "hello"}, {"LINK", "", ""}, {"M-SEARCH", "Content-Length: 5\r\n", "hello"},
		} {
			c.say(t, ask.method+" /files/1 HTTP/1.1\r\nHost: a.test\r\n"+ask.fields+"\r\n"+ask.body)
			status := 204
			if ask.method == "HEAD" {
				status = 200
			}
			if answer := c.wantAnswer(t, ask.method, status, ""); answer.get("Upload-Offset") != "7" || answer.closes() {
				t.Errorf("%s is answered %q", ask.method, answer.fields)
			}
			got := <-requests
			if got.line != ask.method+" /files/1 HTTP/1.1" || got.body != sha256.Sum256([]byte(ask.body)) {
				t.Errorf("the app has %q, want %s and its body of %d bytes", got.line, ask.method, len(ask.body))
			}
			for line := range strings.SplitSeq(strings.TrimSuffix(ask.fields, "\r\n"), "\r\n") {
				if name, value, ok := strings.Cut(line, ": "); ok && strings.Join(fieldValues(got.fields, name), " | ") != value {
					t.Errorf("%s: the app has %s: %q, want %s", ask.method, name, fieldValues(got.fields, name), value)
				}
			}
		}
	})
}
