package lanes_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/lanes"
	"holdfast/upstream"
)

var one = lanes.Config{Slots: 1, Queue: 4}

func TestExchange_TheSlotIsFreeAtTheLastByte(t *testing.T) {
	for name, end := range map[string]string{"Length": "lo", "Chunked": "2\r\nlo\r\n0\r\n\r\n"} {
		t.Run(name, func(t *testing.T) {
			begin := "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel"
			if name == "Chunked" {
				begin = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n"
			}
			rest := make(chan struct{})
			app := startApp(t, func(c *rawConn) {
				for c.read() {
					c.say(begin)
					c.await(rest)
					c.say(end)
				}
			})
			lane := startLane(t, one, upstream.Config{}, app.addr())
			ex := do(t, lane, get)
			defer ex.Close()
			if _, err := ex.Head(nil); err != nil {
				t.Fatal(err)
			}
			var got bytes.Buffer
			if _, err := io.CopyN(&got, ex, 3); err != nil {
				t.Fatal(err)
			}
			wantLoad(t, lane, 1, 0)
			close(rest)
			if _, err := io.Copy(&got, ex); err != nil || got.String() != "hello" {
				t.Fatalf("the body is %q, %v", got.String(), err)
			}
			wantLoad(t, lane, 0, 0) // before Close
			ex.Close()
			ex.Interrupt()
			wantLoad(t, lane, 0, 0)
			wantAnswer(t, do(t, lane, get), 200, "hello")
			if n := app.connections(); n != 1 {
				t.Errorf("%d connections for two requests, one after the other", n)
			}
		})
	}
}

// ---- Abandoned.

// abandonCases are ways in which a client's part ends early.
var abandonCases = []struct {
	name  string
	begin string // what the app says before: the beginning of hello
	part  func(t *testing.T, ex *lanes.Exchange)
}{
	{"BeforeTheHead", "", func(t *testing.T, ex *lanes.Exchange) {
		ex.Interrupt()
		if _, err := ex.Head(nil); !errors.Is(err, upstream.ErrInterrupted) {
			t.Errorf("interrupted, Head gives %v", err)
		}
	}},
	{"AtTheResponseTimeout", "", func(t *testing.T, ex *lanes.Exchange) {
		if _, err := ex.Head(nil); !errors.Is(err, upstream.ErrTimeout) {
			t.Errorf("in time, Head gives %v", err)
		}
	}},
	{"WithoutAsking", "", func(*testing.T, *lanes.Exchange) {}},
	{"InTheHead", "HTTP/1.1 200 OK\r\nContent-Le", func(t *testing.T, ex *lanes.Exchange) {
		ex.Interrupt()
		if _, err := ex.Head(nil); !errors.Is(err, upstream.ErrInterrupted) {
			t.Errorf("interrupted, Head gives %v", err)
		}
	}},
	{"BehindTheHead", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", wantHead},
	{"InTheBody", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel", func(t *testing.T, ex *lanes.Exchange) {
		wantHead(t, ex)
		if _, err := io.CopyN(io.Discard, ex, 3); err != nil {
			t.Error(err)
		}
		ex.Interrupt()
		if _, err := ex.Read(make([]byte, 5)); !errors.Is(err, upstream.ErrInterrupted) {
			t.Errorf("interrupted, Read gives %v", err)
		}
	}},
}

func wantHead(t *testing.T, ex *lanes.Exchange) {
	t.Helper()
	if _, err := ex.Head(nil); err != nil {
		t.Error(err)
	}
}

// What the client does not want any more, the view still does: the slot goes
// to the next only when the app has sent its last byte.
func TestExchange_AnAbandonedSlotStaysTakenUntilTheLastByte(t *testing.T) {
	for _, c := range abandonCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var over atomic.Bool // the app is about to say its last byte
			goOn := make(chan struct{})
			app := startApp(t, func(conn *rawConn) {
				for conn.read() {
					if conn.app.requests.Load() > 1 {
						conn.say(hello)
						continue
					}
					conn.say(c.begin)
					conn.await(goOn)
					conn.say(hello[len(c.begin) : len(hello)-1])
					over.Store(true)
					conn.say("o")
				}
			})
			cfg := one
			if cfg.ResponseTimeout = time.Minute; c.name == "AtTheResponseTimeout" {
				cfg.ResponseTimeout = 20 * time.Millisecond
			}
			lane := startLane(t, cfg, upstream.Config{}, app.addr())
			ex := do(t, lane, get)
			c.part(t, ex)
			ex.Close()
			ex.Close() // and once more, which does nothing
			wantLoad(t, lane, 1, 1)
			if s := lane.Snapshot().SlotStates[0]; s.State != "abandoned" {
				t.Errorf("the slot is %s", s.State)
			}
			next := come(lane)
			next.wantQueued(t, lane)
			close(goOn)
			slot := next.wantSlot(t)
			if !over.Load() {
				t.Error("the slot was given to the next while the view ran")
			}
			wantLoad(t, lane, 1, 0)
			if !slot.HasConn() {
				t.Error("the connection was not kept, though the answer was read whole")
			}
			wantAnswer(t, doOn(t, slot, get), 200, "hello")
			if s := lane.Snapshot(); s.ClosedOnView != 0 || s.Retried != 0 {
				t.Errorf("%d closed on their view, %d sent again", s.ClosedOnView, s.Retried)
			}
		})
	}
}

func TestExchange_AnAbandonedSlotIsFreeWhenTheAppCloses(t *testing.T) {
	for name, begin := range map[string]string{"WithoutAnAnswer": "", "InTheBody": "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel"} {
		t.Run(name, func(t *testing.T) {
			goOn := make(chan struct{})
			app := startApp(t, func(c *rawConn) {
				c.read()
				c.say(begin)
				c.await(goOn)
			})
			lane := startLane(t, one, upstream.Config{}, app.addr())
			do(t, lane, get).Close()
			wantLoad(t, lane, 1, 1)
			next := come(lane)
			next.wantQueued(t, lane)
			close(goOn)
			next.wantSlot(t).Release()
			if s := lane.Snapshot(); s.ClosedOnView != 0 || s.Retried != 0 || app.requests.Load() != 1 {
				t.Errorf("%d closed on their view, %d sent again, %d requests", s.ClosedOnView, s.Retried, app.requests.Load())
			}
		})
	}
}

// unseenCases are ends of a view that nobody can see: the connection is
// closed, and the slot is free a second later.
var unseenCases = []struct {
	name   string
	script func(*rawConn)
	limit  time.Duration // of abandoned slots; 0: none that matters
	part   func(t *testing.T, ex *lanes.Exchange)
}{
	{"AbandonLimit", func(*rawConn) {}, 50 * time.Millisecond, func(*testing.T, *lanes.Exchange) {}},
	{"AbandonLimitInTheBody", say("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel"), 50 * time.Millisecond, wantHead},
	{"MalformedHead", say("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"), 0, wantMalformedHead},
	{"NotHTTP", say("220 mail.test ESMTP\r\n\r\n"), 0, wantMalformedHead},
	{"MalformedChunk", say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n"), 0, func(t *testing.T, ex *lanes.Exchange) {
		wantHead(t, ex)
		if _, err := ex.Read(make([]byte, 5)); !errors.Is(err, upstream.ErrMalformed) {
			t.Errorf("a malformed chunk, Read gives %v", err)
		}
	}},
	{"MalformedAfterTheClientLeft", say("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"), 0, func(*testing.T, *lanes.Exchange) {}},
	{"Endless", say("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"), 0, wantHead},
	{"EndlessAfterTheClientLeft", say("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"), 0, func(*testing.T, *lanes.Exchange) {}},
}

func say(text string) func(*rawConn) { return func(c *rawConn) { c.say(text) } }

func wantMalformedHead(t *testing.T, ex *lanes.Exchange) {
	t.Helper()
	if _, err := ex.Head(nil); !errors.Is(err, upstream.ErrMalformed) {
		t.Errorf("a malformed head, Head gives %v", err)
	}
}

func TestExchange_AViewWhoseEndIsNotSeenKeepsItsSlotForASecondAfterTheClose(t *testing.T) {
	for _, c := range unseenCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			closed := make(chan struct{})
			app := startApp(t, func(conn *rawConn) {
				if conn.number > 0 {
					greet(conn)
					return
				}
				conn.read()
				c.script(conn)
				conn.untilClosed()
				close(closed)
			})
			lane := startLane(t, one, upstream.Config{AbandonLimit: c.limit}, app.addr())
			ex := do(t, lane, get)
			c.part(t, ex)
			start := time.Now()
			ex.Close()
			wantLoad(t, lane, 1, 1)
			next := come(lane)
			select {
			case <-closed:
			case <-time.After(patience):
				t.Fatal("the connection was not closed")
			}
			slot := next.wantSlot(t)
			if took := time.Since(start); took < c.limit+lanes.ViewEnds {
				t.Errorf("the slot was free after %v, want %v at the earliest", took, c.limit+lanes.ViewEnds)
			}
			if s := lane.Snapshot(); s.ClosedOnView != 1 || s.Abandoned != 0 || s.Retried != 0 {
				t.Errorf("%d closed on their view, %d abandoned, %d sent again; want 1, 0, 0", s.ClosedOnView, s.Abandoned, s.Retried)
			}
			wantAnswer(t, doOn(t, slot, post), 200, "hello")
		})
	}
}

// ---- Sent again.

// closing is an app that closes its first n connections with a request read
// and no answer, and greets on later ones.
func closing(n int) func(*rawConn) {
	return func(c *rawConn) {
		if c.number < n {
			c.read()
			return
		}
		greet(c)
	}
}

func TestExchange_AGETIsSentOnceMoreOnANewConnection(t *testing.T) {
	app := startApp(t, closing(1))
	lane := startLane(t, one, upstream.Config{}, app.addr())
	ex := do(t, lane, get)
	defer ex.Close()
	res, err := ex.Head(nil)
	if err != nil || res.Status != 200 || !ex.Resent() {
		t.Fatalf("sent again: %v; %v", ex.Resent(), err)
	}
	wantLoad(t, lane, 1, 0) // by one slot, for all that
	if _, err := io.Copy(io.Discard, ex); err != nil {
		t.Fatal(err)
	}
	if s := lane.Snapshot(); s.Retried != 1 || s.InUse != 0 || app.requests.Load() != 2 || app.connections() != 2 {
		t.Errorf("%d sent again, %d in use; the app saw %d requests on %d connections", s.Retried, s.InUse, app.requests.Load(), app.connections())
	}
}

// wantClosed requires that the exchange comes to nothing, because the app
// closed without an answer, and leaves its slot free.
func wantClosed(t *testing.T, lane *lanes.Lane, app *rawApp, ex *lanes.Exchange, requests int32) {
	t.Helper()
	res, err := ex.Head(nil)
	if !errors.Is(err, upstream.ErrClosed) {
		t.Errorf("answered %+v, %v; want none", res, err)
	}
	ex.Close()
	wantLoad(t, lane, 0, 0)
	if got := app.requests.Load(); got != requests {
		t.Errorf("the app saw %d requests, want %d", got, requests)
	}
}

func TestExchange_AGETIsNotSentAThirdTime(t *testing.T) {
	app := startApp(t, closing(2))
	lane := startLane(t, one, upstream.Config{}, app.addr())
	wantClosed(t, lane, app, do(t, lane, get), 2)
}

func TestExchange_APOSTIsNeverSentAgain(t *testing.T) {
	app := startApp(t, closing(1))
	lane := startLane(t, one, upstream.Config{}, app.addr())
	wantClosed(t, lane, app, do(t, lane, post), 1)
	if n := lane.Snapshot().Retried; n != 0 {
		t.Errorf("%d counted as sent again", n)
	}
}

func TestExchange_AGETThatRanForLongIsNotSentAgain(t *testing.T) {
	app := startApp(t, closing(1))
	lane := startLane(t, one, upstream.Config{}, app.addr())
	ex := do(t, lane, get)
	ex.SentEarlier(lanes.AgainWithin)
	wantClosed(t, lane, app, ex, 1)
}

func TestExchange_AGETOfWhichSomeAnswerCameIsNotSentAgain(t *testing.T) {
	for name, begin := range map[string]string{"OneByte": "H", "Interim": "HTTP/1.1 103 Early Hints\r\n\r\n", "Body": hello[:len(hello)-1]} {
		t.Run(name, func(t *testing.T) {
			app := startApp(t, func(c *rawConn) {
				if c.number > 0 {
					greet(c)
					return
				}
				c.read()
				c.say(begin)
			})
			lane := startLane(t, one, upstream.Config{}, app.addr())
			ex := do(t, lane, get)
			_, err := ex.Head(nil)
			if name == "Body" && err == nil {
				_, err = io.Copy(io.Discard, ex)
			}
			if !errors.Is(err, upstream.ErrTruncated) {
				t.Errorf("an answer that was cut: %v", err)
			}
			ex.Close() // the app has ended it: nothing runs there any more
			wantLoad(t, lane, 0, 0)
			if s := lane.Snapshot(); s.Retried != 0 || s.ClosedOnView != 0 || app.requests.Load() != 1 {
				t.Errorf("%d sent again, %d closed on their view, %d requests", s.Retried, s.ClosedOnView, app.requests.Load())
			}
		})
	}
}

// Nothing was sent: any method goes to another target.
func TestExchange_APOSTGoesToAnotherTargetIfItsOwnIsGone(t *testing.T) {
	app := startApp(t, greet)
	gone := startApp(t, greet)
	gone.close()
	lane := startLane(t, lanes.Config{Slots: 2, Queue: 4}, upstream.Config{}, gone.addr(), app.addr())
	a, b := acquire(t, lane), acquire(t, lane)
	if a.Target().String() != "http://"+gone.addr() {
		a, b = b, a
	}
	b.Release()
	ex := doOn(t, a, post)
	if got := ex.Slot().Target().String(); got != "http://"+app.addr() {
		t.Errorf("sent to %s", got)
	}
	wantAnswer(t, ex, 200, "hello")
	if ex.Resent() || lane.Snapshot().Retried != 0 {
		t.Error("counted as sent again, and it was not sent before")
	}
	wantLoad(t, lane, 0, 0)
}

// ---- Connections that are used again, and that are not.

func TestExchange_ADeadConnectionIsNotUsedAgain(t *testing.T) {
	for name, last := range map[string]string{"Closed": "", "ClosedWithA408": "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"} {
		t.Run(name, func(t *testing.T) {
			goOn := make(chan struct{})
			app := startApp(t, func(c *rawConn) {
				if c.number > 0 {
					greet(c)
					return
				}
				c.read()
				c.say(hello)
				c.await(goOn)
				c.say(last)
			})
			lane := startLane(t, one, upstream.Config{}, app.addr())
			wantAnswer(t, do(t, lane, post), 200, "hello")
			slot := acquire(t, lane)
			if !slot.HasConn() {
				t.Fatal("the connection was not kept")
			}
			close(goOn)
			eventually(t, "the connection is seen to be no good", func() bool { return !slot.Silent() })
			wantAnswer(t, doOn(t, slot, post), 200, "hello")
			if n := app.connections(); n != 2 {
				t.Errorf("%d connections, want a second one", n)
			}
		})
	}
}

// surplusCases are answers behind which a connection must not be used again.
var surplusCases = []struct {
	name, answer, body string
	request            lanes.Request
}{
	{"BehindTheLength", hello + "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong", "hello", get},
	{"BehindTheLastChunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\nx", "hello", get},
	{"BodyOfAHEAD", hello, "", lanes.Request{Head: []byte("HEAD / HTTP/1.1\r\nHost: a.test\r\n\r\n"), ToHEAD: true, Again: true}},
	{"NotOffered", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello", "hello", get},
	{"OldVersion", "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", "hello", get},
}

func TestExchange_AConnectionWithMoreThanItsAnswerIsNotKept(t *testing.T) {
	for _, c := range surplusCases {
		t.Run(c.name, func(t *testing.T) {
			closed := make(chan struct{})
			app := startApp(t, func(conn *rawConn) {
				if conn.number > 0 {
					greet(conn)
					return
				}
				conn.read()
				conn.say(c.answer)
				conn.untilClosed()
				close(closed)
			})
			lane := startLane(t, one, upstream.Config{}, app.addr())
			wantAnswer(t, do(t, lane, c.request), 200, c.body)
			slot := acquire(t, lane)
			if slot.HasConn() {
				t.Fatal("the connection was kept")
			}
			wantAnswer(t, doOn(t, slot, get), 200, "hello")
			select {
			case <-closed:
			case <-time.After(patience):
				t.Error("the connection was not closed")
			}
		})
	}
}

func TestExchange_KeepAliveOffMeansOneConnectionEach(t *testing.T) {
	app := startApp(t, greet)
	lane := startLane(t, one, upstream.Config{KeepAliveOff: true}, app.addr())
	for range 3 {
		wantAnswer(t, do(t, lane, get), 200, "hello")
	}
	if n := app.connections(); n != 3 {
		t.Errorf("%d connections, want 3", n)
	}
}

// App servers close idle connections, and a POST that meets the close is lost.
func TestExchange_APOSTDoesNotGoOutOnAConnectionThatRestedForLong(t *testing.T) {
	app := startApp(t, greet)
	lane := startLane(t, one, upstream.Config{}, app.addr())
	wantAnswer(t, do(t, lane, get), 200, "hello")
	<-time.After(lanes.UsedLately) // the connection's age is the point
	wantAnswer(t, do(t, lane, get), 200, "hello")
	if n := app.connections(); n != 1 {
		t.Errorf("%d connections, and a GET may use an old one", n)
	}
	<-time.After(lanes.UsedLately)
	wantAnswer(t, do(t, lane, post), 200, "hello")
	if n := app.connections(); n != 2 {
		t.Errorf("%d connections, want a new one for the POST", n)
	}
}

// An app that closes behind each answer and does not say so is met by no POST
// on the way out.
func TestExchange_APOSTGoesOnAUsedConnectionOnlyWhereTheAppIsKnownToKeepOne(t *testing.T) {
	says := func(words string) func(*rawConn) {
		return func(c *rawConn) {
			for c.read() {
				c.say("HTTP/1.1 200 OK\r\n" + words + "Content-Length: 5\r\n\r\nhello")
			}
		}
	}
	for _, c := range []struct {
		words       string
		sent        []lanes.Request
		connections int
	}{
		{"", []lanes.Request{post, post, post}, 3},
		{"Connection: keep-alive\r\n", []lanes.Request{post, post, post}, 1},
		{"", []lanes.Request{get, get, post, post}, 1},
		{"", []lanes.Request{get, post, get, post}, 2}, // the second GET shows it
	} {
		app := startApp(t, says(c.words))
		lane := startLane(t, one, upstream.Config{}, app.addr())
		for _, request := range c.sent {
			wantAnswer(t, do(t, lane, request), 200, "hello")
		}
		if n := app.connections(); n != c.connections {
			t.Errorf("%q, %d requests: %d connections, want %d", c.words, len(c.sent), n, c.connections)
		}
	}
}

// ---- Requests that are written while their answer is read.

func TestExchange_ALargeRequestMayBeAnsweredEarly(t *testing.T) {
	body := bytes.Repeat([]byte("x"), 16<<20) // more than the sockets take
	large := lanes.Request{Head: []byte("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 16777216\r\n\r\n"), Body: body}
	app := startApp(t, func(c *rawConn) {
		if c.number > 0 {
			greet(c)
			return
		}
		c.readHead()
		c.say("HTTP/1.1 413 Content Too Large\r\nContent-Length: 5\r\n\r\nlarge")
		c.await(nil) // and reads no more of it
	})
	lane := startLane(t, one, upstream.Config{}, app.addr())
	wantAnswer(t, do(t, lane, large), 413, "large")
	wantLoad(t, lane, 0, 0)
	slot := acquire(t, lane)
	if slot.HasConn() {
		t.Fatal("a connection on which half a request went out was kept")
	}
	wantAnswer(t, doOn(t, slot, large), 200, "hello") // read whole, then answered
}

func TestExchange_ALargeRequestThatIsAbandonedEndsWithItsView(t *testing.T) {
	body := bytes.Repeat([]byte("x"), 16<<20)
	large := lanes.Request{Head: []byte("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 16777216\r\n\r\n"), Body: body}
	goOn := make(chan struct{})
	app := startApp(t, func(c *rawConn) {
		if _, ok := c.readHead(); !ok {
			return
		}
		c.await(goOn) // the view does not read its input, and fails
	})
	lane := startLane(t, one, upstream.Config{}, app.addr())
	ex := do(t, lane, large)
	eventually(t, "the app has the head", func() bool { return app.requests.Load() == 1 })
	ex.Interrupt()
	if _, err := ex.Head(nil); !errors.Is(err, upstream.ErrInterrupted) {
		t.Errorf("interrupted, Head gives %v", err)
	}
	ex.Close()
	wantLoad(t, lane, 1, 1)
	close(goOn)
	slot, err := lane.Acquire(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	slot.Release()
	wantLoad(t, lane, 0, 0)
}

// ReadSoon does not wait for what comes later.
func TestExchange_ReadSoonGivesWhatIsThere(t *testing.T) {
	goOn := make(chan struct{})
	app := startApp(t, func(c *rawConn) {
		c.read()
		c.say(hello[:len(hello)-2])
		c.await(goOn)
		c.say("lo")
		c.untilClosed()
	})
	lane := startLane(t, one, upstream.Config{}, app.addr())
	ex := do(t, lane, get)
	defer ex.Close()
	wantHead(t, ex)
	p := make([]byte, 8)
	if n, err := io.ReadFull(ex, p[:3]); n != 3 || err != nil {
		t.Fatalf("%d bytes, %v", n, err)
	}
	if n, err := ex.ReadSoon(p); n != 0 || err != nil {
		t.Fatalf("nothing is there: %d bytes, %v", n, err)
	}
	wantLoad(t, lane, 1, 0)
	close(goOn)
	if got, err := io.ReadAll(ex); err != nil || string(got) != "lo" {
		t.Fatalf("after ReadSoon: %q, %v", got, err)
	}
}
