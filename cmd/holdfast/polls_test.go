package main

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// Long polls that are held, from the app's answer to the next request on the
// same connection.

// oneSlot has one lane of one slot.
var oneSlot = strings.Replace(holdsLanes, "slots: 4", "slots: 1", 1)

// pollUntil polls again and again on one connection, as its client goes on from
// what it has got, until the event last; the events must be the numbers up to it.
func pollUntil(addr, from string, last int) (err error) {
	p, err := dialPoll(addr)
	if err != nil {
		return err
	}
	defer p.Close()
	p.id = from
	for next := 0; next <= last; {
		p.ask("/poll?timeout=1")
		a, err := p.answer()
		switch {
		case err != nil || a.code() != 200 || len(a.get("M0-Gap")) > 0 || len(a.get("M0-Event-Id")) != 1:
			return fmt.Errorf("%+v %w, want %d", a, cmpErr(err), next)
		case a.body == "nothing\n":
		case a.body != strconv.Itoa(next):
			return fmt.Errorf("%q, want %d", a.body, next)
		default:
			next++
		}
	}
	return nil
}

func TestPoll_TwentyThatComeBackMissNoneOfFiveHundredEventsAndGetNoneTwice(t *testing.T) {
	for _, server := range []holdsServer{flaskThreads, djangoSync} {
		t.Run(server.name, func(t *testing.T) {
			t.Parallel()
			const last = 499
			s := startSockets(t, server, holdsLanes+"holds: {heartbeat: 0, journal: {events: 1000}}\n")
			from := string(wantGet(t, onceClient(), s.url("/page")))
			var clients sync.WaitGroup
			for i := range 20 {
				clients.Go(func() {
					if err := pollUntil(s.addr, from, last); err != nil {
						t.Errorf("client %d: %v", i, err)
					}
				})
			}
			eventually(t, "all to wait", func() bool { return healthHolds(t, s.addr).Polls == 20 })
			for n := range last + 1 {
				publishTo(t, s.publish, "news", strconv.Itoa(n))
			}
			clients.Wait()
			eventuallyHolds(t, s.addr, holdsShown{})
			eventuallyIdle(t, s.holdfast)
		})
	}
}

func TestPoll_AnEventIsTheAnswerAndTheConnectionGoesOn(t *testing.T) {
	for _, server := range holdsServers {
		t.Run(server.name, func(t *testing.T) {
			t.Parallel()
			s := startSockets(t, server, oneSlot)
			p := openPoll(t, s.addr)
			for i := range 3 {
				p.ask("/poll?channel=a&channel=b")
				eventuallyHolds(t, s.addr, holdsShown{Polls: 1})
				eventuallyIdle(t, s.holdfast) // its slot is free
				wantGet(t, onceClient(), s.url("/fast"))
				data := fmt.Sprint("event ", i)
				id, reached := publishTo(t, s.publish, "b", data)
				a := p.wantAnswer(data)
				for name, value := range map[string]string{"M0-Event-Id": fmt.Sprint(id), "Content-Length": fmt.Sprint(len(data)), "X-View": "response",
					"Set-Cookie": "seen=yes; Path=/", "Content-Type": "text/plain", "ETag": "", "Connection": "", "Transfer-Encoding": "", "M0-Hold": "", "M0-Channel": "", "M0-Gap": "", "M0-Timeout": ""} {
					got := strings.Join(a.get(name), " | ")
					if name == "Content-Type" {
						got, _, _ = strings.Cut(got, ";")
					}
					if got != value {
						t.Errorf("%s: %q, want %q", name, got, value)
					}
				}
				if reached != 1 {
					t.Errorf("reached %d", reached)
				}
				p.ask("/fast")
				if a, err := p.answer(); err != nil || a.code() != 200 || !strings.Contains(a.body, "fast") {
					t.Fatal(a, err)
				}
			}
		})
	}
}

func TestPoll_WhatIsPipelinedBehindItIsAnsweredAfterIt(t *testing.T) {
	t.Parallel()
	s := startSockets(t, flaskThreads, holdsLanes)
	p := openPoll(t, s.addr)
	for i := range 3 {
		// With the poll, and once it is held.
		io.WriteString(p, "GET /poll HTTP/1.1\r\nHost: localhost\r\n\r\nPOST /slow?ms=1 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello"+
			"GET /poll HTTP/1.1\r\nHost: localhost\r\n\r\nGET /fast HTTP/1.1\r\nHo")
		eventuallyHolds(t, s.addr, holdsShown{Polls: 1})
		io.WriteString(p, "st: localhost\r\n\r\n")
		for _, second := range []bool{false, true} {
			eventually(t, "the poll", func() bool { return healthHolds(t, s.addr).Polls == 1 })
			data := fmt.Sprint(i, second)
			publishTo(t, s.publish, "news", data)
			p.wantAnswer(data)
			want := "slow"
			if second {
				want = "fast"
			}
			if a, err := p.answer(); err != nil || a.code() != 200 || !strings.Contains(a.body, want) {
				t.Fatalf("%+v %v, want the view %s", a, err, want)
			}
		}
	}
}

func TestPoll_WithoutAnEventTheViewsOwnAnswerComesWithThePosition(t *testing.T) {
	t.Parallel()
	s := startSockets(t, djangoThreads, oneSlot)
	p := openPoll(t, s.addr)
	head, _ := publishTo(t, s.publish, "news", "before")
	p.ask("/poll?timeout=1&body=nobody+spoke")
	a := p.wantAnswer("nobody spoke")
	if p.id != fmt.Sprint(head) || len(a.get("M0-Gap")) > 0 || !slices.Equal(a.get("ETag"), []string{`"of the view"`}) || len(a.get("Connection")) > 0 {
		t.Errorf("%q, want the position %d and the view's own fields", a.fields, head)
	}
	// What comes between two polls is not missed.
	missed, _ := publishTo(t, s.publish, "news", "between")
	p.ask("/poll")
	if p.wantAnswer("between"); p.id != fmt.Sprint(missed) {
		t.Errorf("id %s, want %d", p.id, missed)
	}
	for reason, n := range map[string]float64{"published": 1, "expired": 1, "client": 0} {
		if got := metric(t, s.admin(), `holdfast_holds_ended_total{kind="response",reason="`+reason+`"}`); got != n {
			t.Errorf("%v ended as %s, want %v", got, reason, n)
		}
	}
}

func TestPoll_AnEventOfItsOwnViewIsItsAnswer(t *testing.T) {
	t.Parallel()
	s := startSockets(t, flaskSync, holdsLanes)
	p := openPoll(t, s.addr)
	p.ask("/poll?publish=by+the+view")
	p.wantAnswer("by the view")
	p.ask("/poll?gate=go")
	eventually(t, "the view", func() bool { return s.app.running("/poll?gate") == 1 })
	publishTo(t, s.publish, "news", "while it ran")
	s.app.open("go")
	p.wantAnswer("while it ran")
}

func TestPoll_WhatIsMissingIsToldAsAGapAtOnce(t *testing.T) {
	t.Parallel()
	s := startSockets(t, djangoSync, holdsLanes+"holds: {heartbeat: 0, journal: {events: 3}}\n")
	p := openPoll(t, s.addr)
	first, _ := publishTo(t, s.publish, "news", "first")
	head := first
	for i := range 4 {
		head, _ = publishTo(t, s.publish, "news", fmt.Sprint(i))
	}
	for name, id := range map[string]int64{"too old": first, "of another run": head - 1, "ahead of the head": head + 1000} {
		p.id = fmt.Sprint(id)
		p.ask("/poll?body=ask+for+all")
		a := p.wantAnswer("ask for all")
		if !slices.Equal(a.get("M0-Gap"), []string{"true"}) || p.id != fmt.Sprint(head) {
			t.Errorf("%s: %q, want a gap and the head %d", name, a.fields, head)
		}
	}
	// With the head there is nothing more to tell.
	p.ask("/poll")
	eventuallyHolds(t, s.addr, holdsShown{Polls: 1})
	publishTo(t, s.publish, "news", "later")
	if a := p.wantAnswer("later"); len(a.get("M0-Gap")) > 0 {
		t.Errorf("%q", a.fields)
	}
	if n := metric(t, s.admin(), "holdfast_gaps_told_total"); n != 3 {
		t.Errorf("%v gaps counted, want 3", n)
	}
}

func TestPoll_ARestartOfHoldfastIsAGap(t *testing.T) {
	t.Parallel()
	c, a := startSocketsCommand(t, flaskThreads, holdsLanes)
	p := openPoll(t, c.addr)
	p.ask("/poll?publish=of+the+first+run")
	p.wantAnswer("of the first run")
	c.signal(t, syscall.SIGTERM)
	c.wantExit(t, exitOK)
	a.kill()

	c = startCommand(t, writeConfig(t, holdsLanes, a.addr))
	c.serveWith(t, a)
	again := openPoll(t, c.addr)
	again.id = p.id
	again.ask("/poll?body=ask+for+all")
	if answer := again.wantAnswer("ask for all"); !slices.Equal(answer.get("M0-Gap"), []string{"true"}) || again.id == p.id {
		t.Errorf("%q, want a gap and a position of this run", answer.fields)
	}
	again.ask("/poll?publish=of+the+second")
	again.wantAnswer("of the second")
}

func TestPoll_OfHTTP10IsAnsweredAndHEADIsAHead(t *testing.T) {
	t.Parallel()
	s := startSockets(t, flaskThreads, holdsLanes)
	for persistence, keeps := range map[string]bool{"": false, "Connection: keep-alive\r\n": true} {
		p := openPoll(t, s.addr)
		fmt.Fprintf(p, "GET /poll HTTP/1.0\r\nHost: localhost\r\n%s\r\n", persistence)
		eventuallyHolds(t, s.addr, holdsShown{Polls: 1})
		publishTo(t, s.publish, "news", "to the old one")
		a := p.wantAnswer("to the old one")
		if got := a.has("Connection", "keep-alive"); got != keeps {
			t.Errorf("%q: %q", persistence, a.fields)
		}
		if !keeps {
			if b, err := p.in.ReadByte(); err != io.EOF {
				t.Errorf("%q %v, want the end", b, err)
			}
			continue
		}
		p.ask("/fast")
		if a, err := p.answer(); err != nil || a.code() != 200 {
			t.Error(a, err)
		}
	}
	p := openPoll(t, s.addr)
	io.WriteString(p, "HEAD /poll HTTP/1.1\r\nHost: localhost\r\n\r\n")
	response, err := http.ReadResponse(p.in, &http.Request{Method: "HEAD"})
	if err != nil || response.StatusCode != 200 || response.Header.Get("M0-Hold") != "" {
		t.Fatal(response, err)
	}
	p.ask("/fast") // nobody is held by a HEAD
	if a, err := p.answer(); err != nil || a.code() != 200 {
		t.Error(a, err)
	}
	io.WriteString(p, "GET /poll HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
	eventuallyHolds(t, s.addr, holdsShown{Polls: 1})
	publishTo(t, s.publish, "news", "the last")
	if a := p.wantAnswer("the last"); !a.has("Connection", "close") {
		t.Errorf("%q", a.fields)
	}
	if b, err := p.in.ReadByte(); err != io.EOF {
		t.Errorf("%q %v, want the end", b, err)
	}
}

func TestPoll_WhoLeavesIsLetGo(t *testing.T) {
	t.Parallel()
	s := startSockets(t, djangoThreads, oneSlot)
	polls := make([]*pollClient, 30)
	for i := range polls {
		polls[i] = openPoll(t, s.addr)
		polls[i].ask("/poll")
	}
	eventuallyHolds(t, s.addr, holdsShown{Polls: 30})
	for _, p := range polls[:29] {
		p.Close()
	}
	eventuallyHolds(t, s.addr, holdsShown{Polls: 1})
	if _, reached := publishTo(t, s.publish, "news", "to the last"); reached != 1 {
		t.Errorf("reached %d", reached)
	}
	polls[29].wantAnswer("to the last")
	if n := metric(t, s.admin(), `holdfast_holds_ended_total{kind="response",reason="client"}`); n != 29 {
		t.Errorf("%v ended as client, want 29", n)
	}
}

func TestDrain_PollsGetTheirTimeoutAnswerAndTheConnectionEnds(t *testing.T) {
	for _, server := range []holdsServer{flaskThreads, djangoSync} {
		t.Run(server.name, func(t *testing.T) {
			t.Parallel()
			c, a := startSocketsCommand(t, server, holdsLanes)
			polls := make([]*pollClient, 20)
			for i := range polls {
				polls[i] = openPoll(t, c.addr)
				polls[i].ask("/poll?body=come+back")
			}
			eventuallyHolds(t, c.addr, holdsShown{Polls: 20})
			late := openPoll(t, c.addr) // its view answers in the drain
			late.ask("/poll?gate=go&body=come+back")
			eventually(t, "the view", func() bool { return a.running("/poll?gate") == 1 })
			c.signal(t, syscall.SIGTERM)
			wantLast := func(p *pollClient) {
				t.Helper()
				answer := p.wantAnswer("come back")
				if !answer.has("Connection", "close") || len(answer.get("M0-Event-Id")) != 1 || len(answer.get("M0-Gap")) > 0 {
					t.Errorf("%q", answer.fields)
				}
				if b, err := p.in.ReadByte(); err != io.EOF {
					t.Errorf("%q %v, want the end", b, err)
				}
			}
			for _, p := range polls {
				wantLast(p)
			}
			a.open("go")
			wantLast(late)
			c.wantExit(t, exitOK)
			c.wantNothingNamed(t)
		})
	}
}
