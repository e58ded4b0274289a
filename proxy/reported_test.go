package proxy_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"holdfast/lanes"
	"holdfast/proxy"
)

// Faults that users of other proxies have met: answers that end otherwise than
// they should, and clients that leave in the middle of one.

// eachKind runs a test on a lane for requests and on one for streams.
func eachKind(t *testing.T, test func(t *testing.T, stream bool)) {
	t.Run("Request", func(t *testing.T) { t.Parallel(); test(t, false) })
	t.Run("Stream", func(t *testing.T) { t.Parallel(); test(t, true) })
}

// asked counts the requests that an app has read whole, and answers with script.
func asked(count *atomic.Int32, script func(a *appConn, target string) (keep bool)) func(*appConn) {
	return func(a *appConn) {
		for {
			line, fields := a.head()
			if line == "" {
				return
			}
			if chunked, length, _ := strictFraming(fields); chunked || length > 0 {
				if _, whole := a.readUpload(fields); !whole {
					return
				}
			}
			count.Add(1)
			target := strings.Fields(line)[1]
			if !script(a, target) {
				return
			}
		}
	}
}

// asApp has a script for an app's connections run on bare ones.
func asApp(script func(*appConn)) func(*net.TCPConn) {
	return func(conn *net.TCPConn) { script(&appConn{TCPConn: conn, reader: bufio.NewReader(conn)}) }
}

// named answers with the target.
func (a *appConn) named(target string) bool {
	_, err := fmt.Fprintf(a, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(target), target)
	return err == nil
}

// ---- Bodies that end with their connection.

// The client gets each piece before the app sends the next. What looks like a
// last chunk is data.
func TestForward_ABodyThatEndsWithItsConnectionIsFramedAnewAndTheConnectionIsNotUsedAgain(t *testing.T) {
	pieces := []string{"one", "0\r\n\r\n", "three"}
	eachKind(t, func(t *testing.T, stream bool) {
		for name, head := range map[string]string{
			"Close": "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", "HTTP10": "HTTP/1.0 200 OK\r\n\r\n", "Silent": "HTTP/1.1 200 OK\r\n\r\n",
		} {
			for _, version := range []string{"1.1", "1.0"} {
				t.Run(name+"/To"+version, func(t *testing.T) {
					var conns atomic.Int32
					taken := make(chan struct{})
					s := startRaw(t, lanes.Config{Stream: stream}, proxy.Config{}, func(a *appConn) {
						if line, _ := a.head(); line == "" {
							return
						}
						conns.Add(1)
						a.say(head)
						for _, piece := range pieces {
							a.say(piece)
							select {
							case <-taken:
							case <-t.Context().Done():
								return
							}
						}
					})
					client := dialWire(t, s.addr)
					for n := range 2 {
						client.say(t, "GET / HTTP/"+version+"\r\nHost: a.test\r\n\r\n")
						fields := client.wantHead(t, 200)
						chunked, length, err := strictFraming(fields)
						if err != nil || length >= 0 || chunked != (version == "1.1") || (wireAnswer{fields: fields}).closes() == chunked {
							t.Fatalf("framed as %q, %v", fields, err)
						}
						for _, piece := range pieces {
							if chunked {
								piece = chunk(piece)
							}
							client.wantBytes(t, piece)
							taken <- struct{}{}
						}
						if chunked {
							client.wantBytes(t, lastChunk)
						} else {
							client.wantEnd(t, false)
							client = dialWire(t, s.addr)
						}
						if got := conns.Load(); got != int32(n+1) {
							t.Errorf("%d connections for %d answers", got, n+1)
						}
					}
				})
			}
		}
	})
}

const lastChunk = "0\r\n\r\n"

// ---- Answers that stop.

// Nobody can say what is missing: the client must not take what it has for all.
func TestForward_AnAnswerThatStallsBehindItsBeginningIsCut(t *testing.T) {
	const limit = 300 * time.Millisecond
	for name, c := range map[string]struct{ head, version, begin string }{
		"Chunked":      {"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", "1.1", "5\r\nhello\r\n"},
		"Length":       {"Content-Length: 10\r\n\r\nhello", "1.1", "hello"},
		"UntilClose":   {"\r\nhello", "1.1", "5\r\nhello\r\n"},
		"ChunkedToOld": {"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", "1.0", "hello"},
	} {
		for _, cfg := range []lanes.Config{{ResponseTimeout: limit}, {Stream: true, Idle: limit}} {
			t.Run(fmt.Sprintf("%s/Stream=%v", name, cfg.Stream), func(t *testing.T) {
				t.Parallel()
				gate := make(chan struct{})
				addr := startTCP(t, asApp(func(a *appConn) {
					if line, _ := a.head(); line != "" {
						a.say("HTTP/1.1 200 OK\r\n" + c.head)
						opened(t, gate)
					}
				}))
				cfg.Name, cfg.Slots = "web", 1
				lane := startLane(t, addr, cfg)
				log := new(accessLog)
				server := startOver(t, "tcp", proxy.Config{AccessLog: true}, []proxy.Route{{Match: "/", Lane: lane, Stream: cfg.Stream}}, zap.NewNop(), log.logger())
				client := say(t, server, "GET / HTTP/"+c.version+"\r\nHost: a.test\r\n\r\n")
				client.wantHead(t, 200)
				client.wantBytes(t, c.begin)
				rest, err := io.ReadAll(client.reader)
				if len(rest) > 0 || err != nil && !isReset(err) || err == nil && c.version == "1.0" {
					t.Errorf("it goes on with %q, %v; want it cut", rest, err)
				}
				if line := log.wait(t, 1)[0]; line["end"] != "upstream_answering" || line["status"] != 200.0 {
					t.Errorf("logged as %v", line)
				}
				if !cfg.Stream { // the view may still run
					until(t, "the slot is abandoned", func() bool { return lane.Snapshot().Abandoned == 1 })
				}
				close(gate)
				until(t, "the slot is free", func() bool { return lane.Snapshot().InUse == 0 })
			})
		}
	}
}

// A head alone, and then the end, is no empty answer; and whatever has come of
// it, nothing is asked twice.
func TestForward_AHeadWithoutItsBodyIsNoAnswerAndNothingIsAskedAgain(t *testing.T) {
	eachKind(t, func(t *testing.T, stream bool) {
		for _, method := range []string{"GET", "POST"} {
			for name, body := range map[string]string{"Nothing": "", "Half": "hello"} {
				t.Run(method+"/"+name, func(t *testing.T) {
					var count atomic.Int32
					s := startRaw(t, lanes.Config{Stream: stream}, proxy.Config{}, asked(&count, func(a *appConn, target string) bool {
						if target != "/cut" {
							return a.named(target)
						}
						a.say("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n" + body)
						return false
					}))
					client := say(t, s.addr, method+" /cut HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nhello")
					answer, err := client.Read(method)
					refused := err == nil && answer.status == 502 && answer.get("Holdfast-Reason") == "upstream_error"
					cut := answer.status == 200 && (errors.Is(err, io.ErrUnexpectedEOF) || isReset(err))
					if !refused && !cut {
						t.Errorf("answered %d %q, %v; want 502, or 200 that is cut", answer.status, answer.body, err)
					}
					if got := count.Load(); got != 1 {
						t.Errorf("the app was asked %d times", got)
					}
					s.wantFree(t)
					say(t, s.addr, get("/next")).wantAnswer(t, "GET", 200, "/next")
				})
			}
		}
	})
}

// ---- Clients that leave in the middle of an answer.

// What the one did not take is nobody else's: fifty times, on one slot.
func TestForward_WhoComesBehindAClientThatLeftHalfWayGetsItsOwnAnswer(t *testing.T) {
	piece := strings.Repeat("x", 100<<10)
	eachKind(t, func(t *testing.T, stream bool) {
		for name, leave := range leaving {
			t.Run(name, func(t *testing.T) {
				var count atomic.Int32
				s := startRaw(t, lanes.Config{Stream: stream, Queue: 8, QueueTimeout: patience}, proxy.Config{}, asked(&count, func(a *appConn, target string) bool {
					if target != "/large" {
						return a.named(target)
					}
					a.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
					for range 10 {
						a.say(chunk(piece))
					}
					_, err := io.WriteString(a, lastChunk)
					return err == nil
				}))
				for i := range 50 {
					c := say(t, s.addr, get("/large"))
					if _, err := io.CopyN(io.Discard, c.reader, int64(1+i*2<<10)); err != nil {
						t.Fatal(err)
					}
					leave(c)
					target := fmt.Sprint("/own/", i)
					say(t, s.addr, get(target)).wantAnswer(t, "GET", 200, target)
					c.Close()
				}
				s.wantFree(t)
				if got := count.Load(); got != 100 {
					t.Errorf("the app was asked %d times for 100 requests", got)
				}
			})
		}
	})
}

// Before the head, and before a byte: the app is not asked again, and the slot
// comes back. A lane of requests waits for the view; one of streams need not.
func TestForward_AClientThatLeavesBeforeTheHeadLeavesNothingTaken(t *testing.T) {
	eachKind(t, func(t *testing.T, stream bool) {
		for name, leave := range leaving {
			for _, method := range []string{"GET", "POST"} {
				t.Run(name+"/"+method, func(t *testing.T) {
					t.Parallel()
					var count atomic.Int32
					gate, running, ended := make(chan struct{}), make(chan struct{}, 1), make(chan struct{}, 1)
					addr := startTCP(t, asApp(asked(&count, func(a *appConn, target string) bool {
						if target != "/slow" {
							return a.named(target)
						}
						running <- struct{}{}
						if stream { // what it sees of its client
							a.end()
							ended <- struct{}{}
							return false
						}
						return opened(t, gate) && a.named(target)
					})))
					lane := startLane(t, addr, lanes.Config{Name: "web", Slots: 1, Queue: 8, QueueTimeout: patience, Stream: stream})
					log := new(accessLog)
					server := startOver(t, "tcp", proxy.Config{AccessLog: true}, []proxy.Route{{Match: "/", Lane: lane, Stream: stream}}, zap.NewNop(), log.logger())
					c := say(t, server, method+" /slow HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nhello")
					take(t, "the app is asked", running)
					leave(c)
					if stream {
						take(t, "the app sees the end", ended)
					} else if name == "Reset" {
						until(t, "the slot is abandoned", func() bool { return lane.Snapshot().Abandoned == 1 })
					}
					close(gate)
					until(t, "the slot is free", func() bool { return lane.Snapshot().InUse == 0 })
					if line := log.wait(t, 1)[0]; line["status"].(float64) >= 500 {
						t.Errorf("a client that left counts as %v", line)
					}
					say(t, server, get("/next")).wantAnswer(t, "GET", 200, "/next")
					if got := count.Load(); got != 2 {
						t.Errorf("the app was asked %d times, want twice", got)
					}
					c.Close()
				})
			}
		}
	})
}

// A client may close its side behind a request with a body, too.
func TestForward_AHalfCloseBehindAnUploadChangesNothing(t *testing.T) {
	gate := make(chan struct{})
	p := startOneLane(t, echoWhenOpen(t, gate), lanes.Config{Slots: 2}, proxy.Config{})
	var clients []*wireClient
	for i, framing := range []string{"Content-Length: 5\r\n\r\nhello", "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"} {
		c := say(t, p.addr, "POST /held HTTP/1.1\r\nHost: a.test\r\n"+framing)
		if err := c.conn.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		p.upstream.Wait(t, i, 1)
		clients = append(clients, c)
	}
	close(gate)
	for _, c := range clients {
		c.wantAnswer(t, "POST", 200, "/held")
		c.wantEnd(t, false)
	}
}

// A silent stream that nobody reads any more leaves nothing behind, however
// often: no slot, no descriptor.
func TestForward_StreamsThatAreLeftInSilenceLeaveNothingBehind(t *testing.T) {
	var count atomic.Int32
	s := startStreams(t, lanes.Config{Slots: 8, Queue: 8, QueueTimeout: patience}, proxy.Config{}, asked(&count, func(a *appConn, target string) bool {
		a.say("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
		a.end()
		return false
	}))
	cycle := func(i int) {
		c := say(t, s.addr, get("/events"))
		c.wantHead(t, 200)
		[]func(*wireClient){(*wireClient).reset, (*wireClient).Close, func(c *wireClient) { c.conn.CloseWrite(); c.wantEnd(t, true); c.Close() }}[i%3](c)
	}
	for i := range 9 { // what stays for good is there then
		cycle(i)
	}
	s.wantFree(t)
	until(t, "no connection is left", func() bool { return s.server.Connections() == 0 })
	before := descriptors(t)
	for i := range 200 {
		cycle(i)
	}
	s.wantFree(t)
	until(t, "no connection is left", func() bool { return s.server.Connections() == 0 })
	until(t, "as many descriptors as before", func() bool { return descriptors(t) <= before })
}
