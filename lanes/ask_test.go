package lanes_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/lanes"
	"holdfast/upstream"
)

// briefly is a wait that an app here outlasts.
const briefly = 50 * time.Millisecond

// startAskable is startLane that gives the targets, too.
func startAskable(t *testing.T, slots int, app upstream.Config, addrs ...string) (*lanes.Lane, []*upstream.Target) {
	t.Helper()
	app.Name = "app"
	for _, addr := range addrs {
		app.Targets = append(app.Targets, upstream.Address{Text: "http://" + addr, Network: "tcp", Addr: addr})
	}
	up := upstream.New(app, nil)
	setUp(up)
	lane := lanes.New(lanes.Config{Name: "web", Queue: 8, ResponseTimeout: patience}, up.Deal(slots))
	t.Cleanup(func() { lane.Close(); up.Close() })
	return lane, up.Targets()
}

func wantAsked(t *testing.T, lane *lanes.Lane, target *upstream.Target, wait time.Duration, want lanes.Answer) (err error) {
	t.Helper()
	got, err := lane.Ask(target, wait)
	if got != want || (err == nil) != (want == lanes.Answered || want == lanes.NotAsked) {
		t.Fatalf("asking shows %d, %v; want %d", got, err, want)
	}
	return err
}

// wantFree requires that every slot comes to be free.
func wantFree(t *testing.T, lane *lanes.Lane) {
	t.Helper()
	eventually(t, "no slot is in use", func() bool { return lane.Snapshot().InUse == 0 })
	wantLoad(t, lane, 0, 0)
}

func TestAsk_AnyAnswerIsOneAndThePathsBelow500(t *testing.T) {
	for _, c := range []struct {
		path   string
		status int
		want   lanes.Answer
	}{
		{"", 200, lanes.Answered}, {"", 404, lanes.Answered}, {"", 501, lanes.Answered}, {"*", 503, lanes.Answered},
		{"/up", 200, lanes.Answered}, {"/up", 302, lanes.Answered}, {"/up", 404, lanes.Answered}, {"/up", 500, lanes.Failed}, {"/up", 503, lanes.Failed},
	} {
		t.Run(fmt.Sprintf("%s=%d", strings.Trim(c.path, "/"), c.status), func(t *testing.T) {
			asked := make(chan string, 4)
			app := startApp(t, func(conn *rawConn) {
				for {
					request, ok := conn.readHead()
					if !ok {
						return
					}
					asked <- request.Method + " " + request.RequestURI + " " + request.Host
					conn.say(fmt.Sprintf("HTTP/1.1 %d x\r\nContent-Length: 5\r\n\r\nhello", c.status))
				}
			})
			lane, targets := startAskable(t, 1, upstream.Config{Health: upstream.Health{Path: c.path, Host: "app.test"}}, app.addr())
			want := "OPTIONS * app.test"
			if c.path == "/up" {
				want = "GET /up app.test"
			}
			for range 2 {
				wantAsked(t, lane, targets[0], patience, c.want)
				wantFree(t, lane)
				if got := <-asked; got != want {
					t.Errorf("it is asked %s, want %s", got, want)
				}
			}
			if !targets[0].State().Up {
				t.Error("an app that answers is down")
			}
		})
	}
}

func TestAsk_AQuestionCountsAsARequestWhileItRuns(t *testing.T) {
	answer := make(chan struct{})
	app := startApp(t, func(c *rawConn) {
		for c.read() {
			c.await(answer)
			c.say(hello)
		}
	})
	lane, targets := startAskable(t, 1, upstream.Config{}, app.addr())
	asked := make(chan lanes.Answer, 1)
	go func() { got, _ := lane.Ask(targets[0], patience); asked <- got }()
	eventually(t, "the app is asked", func() bool { return app.requests.Load() == 1 })
	wantLoad(t, lane, 1, 0)
	next := come(lane)
	next.wantQueued(t, lane)
	close(answer)
	next.wantSlot(t).Release()
	if got := <-asked; got != lanes.Answered {
		t.Errorf("asking shows %d", got)
	}
	wantFree(t, lane)
}

func TestAsk_WithoutAFreeSlotThereNobodyIsAsked(t *testing.T) {
	a, b := startApp(t, greet), startApp(t, greet)
	lane, targets := startAskable(t, 2, upstream.Config{}, a.addr(), b.addr())
	first, second := acquire(t, lane), acquire(t, lane)
	for _, target := range targets {
		wantAsked(t, lane, target, patience, lanes.NotAsked)
	}
	if first.Target() == second.Target() {
		t.Fatal("both slots are at one target")
	}
	first.Release()
	wantAsked(t, lane, second.Target(), patience, lanes.NotAsked) // a slot is free, and elsewhere
	wantAsked(t, lane, first.Target(), patience, lanes.Answered)
	wantLoad(t, lane, 1, 0)
	second.Release()

	targets[0].Fail(errGone)
	if !targets[0].State().Up { // its prober may have been quick
		got, err := lane.Ask(targets[0], patience)
		if got != lanes.NotAsked && !targets[0].State().Up {
			t.Errorf("a target that is down is asked: %d, %v", got, err)
		}
	}
	other, others := startAskable(t, 1, upstream.Config{}, a.addr())
	wantAsked(t, other, targets[0], patience, lanes.NotAsked) // of another upstream
	wantAsked(t, other, others[0], patience, lanes.Answered)
	if got := a.requests.Load() + b.requests.Load(); got != 2 {
		t.Errorf("the apps were asked %d times, want twice", got)
	}
}

func TestAsk_WhatIsNoAnswerHasFailedAndItsSlotIsFree(t *testing.T) {
	for name, c := range map[string]struct {
		script func(*rawConn)
		says   string
	}{
		"Closes":  {func(c *rawConn) { c.read() }, ""},
		"Cut":     {func(c *rawConn) { c.read(); c.say("HTTP/1.1 200 OK\r\nConte") }, ""},
		"NotHTTP": {func(c *rawConn) { c.read(); c.say("220 mail.test ESMTP\r\n") }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			app := startApp(t, c.script)
			lane, targets := startAskable(t, 1, upstream.Config{}, app.addr())
			wantAsked(t, lane, targets[0], patience, lanes.Failed)
			wantFree(t, lane)
			if app.requests.Load() != 1 {
				t.Errorf("it was asked %d times", app.requests.Load())
			}
		})
	}
	t.Run("Unreachable", func(t *testing.T) {
		app := startApp(t, greet)
		lane, targets := startAskable(t, 1, upstream.Config{}, app.addr())
		app.close()
		wantAsked(t, lane, targets[0], patience, lanes.Failed)
		wantFree(t, lane)
		if targets[0].State().Up {
			t.Error("a target that refuses connections is up")
		}
	})
}

func TestAsk_SilenceKeepsTheSlotUntilTheAnswer(t *testing.T) {
	answer := make(chan struct{})
	app := startApp(t, func(c *rawConn) {
		for c.read() {
			c.await(answer)
			c.say(hello)
		}
	})
	lane, targets := startAskable(t, 2, upstream.Config{}, app.addr())
	for n := 1; n <= 2; n++ {
		wantAsked(t, lane, targets[0], briefly, lanes.Silent)
		wantLoad(t, lane, n, n)
	}
	wantAsked(t, lane, targets[0], briefly, lanes.NotAsked)
	if got := app.requests.Load(); got != 2 {
		t.Errorf("the app was asked %d times with two slots", got)
	}
	next := come(lane)
	next.wantQueued(t, lane)
	close(answer)
	wantAnswer(t, doOn(t, next.wantSlot(t), get), 200, "hello")
	wantFree(t, lane)
	if s := lane.Snapshot(); s.ClosedOnView != 0 {
		t.Errorf("%+v", s)
	}
	wantAsked(t, lane, targets[0], patience, lanes.Answered)
}

// The head is the answer; what is slow to come behind it holds up the slot and
// not the question.
func TestAsk_AHeadIsAnAnswerAndItsBodyIsLeftToItself(t *testing.T) {
	rest := make(chan struct{})
	app := startApp(t, func(c *rawConn) {
		for c.read() {
			c.say("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello")
			c.await(rest)
			c.say("world")
		}
	})
	lane, targets := startAskable(t, 1, upstream.Config{}, app.addr())
	wantAsked(t, lane, targets[0], patience, lanes.Answered)
	wantLoad(t, lane, 1, 1)
	close(rest)
	wantFree(t, lane)
	wantAnswer(t, do(t, lane, get), 200, "helloworld")
	if s := lane.Snapshot(); s.ClosedOnView != 0 {
		t.Errorf("%+v", s)
	}
}

// Whoever says Connection: close sends nothing more (RFC 9112 §9.6): an app
// that does not say so too closes all the same, under the next request.
func TestAsk_NothingFollowsOnAConnectionThatWasToClose(t *testing.T) {
	var followed atomic.Int32
	app := startApp(t, func(c *rawConn) {
		for closing := false; ; {
			request, ok := c.readHead()
			if !ok {
				return
			}
			if closing {
				followed.Add(1)
			}
			closing = request.Close
			c.say(hello)
		}
	})
	lane, targets := startAskable(t, 1, upstream.Config{}, app.addr())
	for range 2 {
		wantAsked(t, lane, targets[0], patience, lanes.Answered)
		wantFree(t, lane)
		wantAnswer(t, do(t, lane, get), 200, "hello")
	}
	if n := followed.Load(); n > 0 {
		t.Errorf("%d requests followed on a connection that was to close", n)
	}
}
