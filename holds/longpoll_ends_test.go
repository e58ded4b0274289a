package holds

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// openPoll has a long poll join, fed from a position, that is to be answered
// in that time.
func (s *stage) openPoll(in time.Duration, from int64, channels ...string) (*hold, *pipe) {
	h := &hold{kind: ModeResponse, descriptor: -1, poll: &poll{head: []byte(pollHead), body: []byte("its own"), deadline: s.clock.at.Add(in)}}
	p := &pipe{room: -1}
	s.loop.sockets.(*pipes).of[h] = p
	s.loop.counts.enter(0)
	s.hub.join(h, s.loop, channels, &opening{from: from, last: from})
	return h, p
}

// pollSays is an answer to a stage's poll.
func pollSays(body string, id int64, gap string) string {
	return fmt.Sprintf("%sM0-Event-Id: %d%s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", pollHead, id, gap, len(body), body)
}

func TestPoll_IsAnsweredAtItsDeadlineAndNotBefore(t *testing.T) {
	s := newStage(Config{Heartbeat: time.Second})
	_, p := s.openPoll(55*time.Second, s.hub.head.Load(), "a")
	_, sooner := s.openPoll(25*time.Second, s.hub.head.Load(), "a")
	s.rest()
	if next := s.loop.nextTick(s.clock.at); next.Sub(s.clock.at) > time.Second {
		t.Errorf("the next tick is in %v", next.Sub(s.clock.at))
	}
	s.pass(25*time.Second-10*time.Millisecond, 10*time.Millisecond)
	if len(p.bytes) > 0 || len(sooner.bytes) > 0 {
		t.Fatalf("before it is time they are sent %q and %q", p.bytes, sooner.bytes)
	}
	if next := s.loop.nextTick(s.clock.at); next.Sub(s.clock.at) > 10*time.Millisecond {
		t.Errorf("10ms before the first is due, the next tick is in %v", next.Sub(s.clock.at))
	}
	s.pass(10*time.Millisecond, 10*time.Millisecond)
	want := pollSays("its own", s.hub.head.Load(), "")
	if string(sooner.bytes) != want || !sooner.closed || len(p.bytes) > 0 {
		t.Errorf("at 25s they are sent %q and %q", sooner.bytes, p.bytes)
	}
	s.pass(30*time.Second, time.Second)
	if string(p.bytes) != want || !p.closed || p.reset {
		t.Errorf("at 55s it is sent %q", p.bytes)
	}
}

// Events were dropped from its loop's inbox, and the journal has let them go.
func TestPoll_WhatIsLostWhileItWaitsIsAGap(t *testing.T) {
	s := newStage(Config{Journal: JournalLimits{Events: 1}})
	s.loop.pace.events = 2
	h, p := s.openPoll(time.Hour, s.hub.head.Load(), "a")
	s.rest()
	if h.state != live {
		t.Fatalf("it is in state %d", h.state)
	}
	for i := range 5 {
		s.publish(fmt.Sprint(i), "a")
	}
	s.rest()
	if want := pollSays("its own", s.hub.head.Load(), "\r\nM0-Gap: true"); string(p.bytes) != want {
		t.Errorf("it is sent %q, want %q", p.bytes, want)
	}
	if n := s.loop.counts.gaps.Load(); n != 1 {
		t.Errorf("%d gaps are counted, want 1", n)
	}
}

// A poll that is answered leaves its alarm behind: not for its whole time.
func TestPoll_AlarmsOfPollsThatWereAnsweredAreLetGo(t *testing.T) {
	const waiting = 300
	s := newStage(Config{})
	wait := func(i int) time.Duration { return time.Hour + time.Duration(i*7919%waiting)*time.Minute }
	var all []*pipe
	for i := range waiting {
		_, p := s.openPoll(wait(i), s.hub.head.Load(), "waits")
		all = append(all, p)
	}
	most := 0
	for i := range 20_000 {
		s.openPoll(time.Duration(1+i%50)*time.Minute, s.hub.head.Load(), "a")
		s.publish("event", "a")
		s.rest()
		most = max(most, len(s.loop.alarms))
	}
	if bound := 2*(waiting+1) + 2; most > bound {
		t.Errorf("there were up to %d alarms for %d polls, want %d at most", most, waiting+1, bound)
	}
	began := s.clock.at
	for minute := range waiting {
		s.clock.at = began.Add(time.Hour + time.Duration(minute)*time.Minute)
		s.loop.tick(s.clock.at)
		for i, p := range all {
			if due := wait(i) <= s.clock.at.Sub(began); due != strings.HasSuffix(string(p.bytes), "\r\n\r\nits own") {
				t.Fatalf("%v after it began to wait, for %v at most, a poll is answered %q", s.clock.at.Sub(began), wait(i), p.bytes)
			}
		}
	}
	if n := s.loop.counts.held.Load(); n != 0 {
		t.Errorf("%d are held still", n)
	}
}

func TestPoll_AClientThatLeavesIsNoticedWithoutAWrite(t *testing.T) {
	for what, leave := range map[string]func(net.Conn){
		"close":            func(c net.Conn) { c.Close() },
		"a FIN":            func(c net.Conn) { c.(*net.TCPConn).CloseWrite() },
		"a reset":          func(c net.Conn) { c.(*net.TCPConn).SetLinger(0); c.Close() },
		"bytes, and a FIN": func(c net.Conn) { io.WriteString(c, "GET /"); c.(*net.TCPConn).CloseWrite() },
	} {
		t.Run(what, func(t *testing.T) {
			eachConnection(t, func(t *testing.T, linked bool) {
				var left, returned atomic.Int64
				s := startStation(t, Config{Left: func() { left.Add(1) }, Return: func(net.Conn, []byte) { returned.Add(1) }})
				c := s.openPoll(Spec{KeepAlive: true}, linked)
				leave(c.conn)
				s.until("its connection is closed", func() bool { return left.Load() == 1 })
				if _, reached := s.Publish(text("too late", "room")); reached != 0 || s.ended(ModeResponse, EndClient) != 1 || returned.Load() != 0 {
					t.Errorf("an event reaches %d; %d ended client; %d connections came back", reached, s.ended(ModeResponse, EndClient), returned.Load())
				}
			})
		})
	}
}

// For longer than it may take nothing: it would be held for ever.
func TestPoll_AClientThatDoesNotReadItsAnswerIsEnded(t *testing.T) {
	eachConnection(t, func(t *testing.T, linked bool) {
		var left atomic.Int64
		s := startStation(t, Config{WriteStall: 50 * time.Millisecond, Left: func() { left.Add(1) }})
		s.openPoll(Spec{KeepAlive: true}, linked, slowly)
		s.publish(sentence("large", MaxData), "room")
		s.until("its connection is closed", func() bool { return left.Load() == 1 })
	})
}

func TestPoll_AnEndGivesTheViewsOwnAnswer(t *testing.T) {
	s, back := startReturning(t, Config{})
	c := s.openPoll(Spec{KeepAlive: true, Body: []byte("its own")}, false)
	s.untilLive(1)
	position := s.Position()
	if n := s.End(EndRequest{Channel: "room", Code: 4000, Reason: "for sockets"}); n != 1 {
		t.Fatalf("%d were ended, want 1", n)
	}
	c.wantAnswer("its own", fmt.Sprint(position), false)
	(<-back).conn.Close()
	c = s.openPoll(Spec{KeepAlive: true, Last: fmt.Sprint(position)}, false)
	id := s.publish("before the end", "room")
	s.publish("before it too", "room")
	s.End(EndRequest{Channel: "room"})
	c.wantAnswer("before the end", fmt.Sprint(id), false)
	if n := s.ended(ModeResponse, EndPublished); n != 2 {
		t.Errorf("%d ended published, want 2", n)
	}
}

func TestPoll_ADrainGivesTheViewsOwnAnswerAndTheLastAnswersEndTheirConnections(t *testing.T) {
	eachConnection(t, func(t *testing.T, linked bool) {
		const polls = 20
		s, back := startReturning(t, Config{})
		open := func() *pollClient { return s.openPoll(Spec{KeepAlive: true, Body: []byte("its own")}, linked) }
		var clients []*pollClient
		for range polls {
			clients = append(clients, open())
		}
		first := open()
		s.untilLive(polls + 1)
		s.Drain()
		if res := first.wantAnswer("its own", fmt.Sprint(s.Position()), false); res.Close { // HTTP goes on: whoever drains says when not
			t.Errorf("it is answered %v", res.Header)
		}
		for _, c := range clients {
			c.wantAnswer("its own", fmt.Sprint(s.Position()), false)
		}
		late := open()
		late.wantAnswer("its own", fmt.Sprint(s.Position()), false)
		for range polls + 2 {
			(<-back).conn.Close()
		}
		s.EndConnections()
		last := open()
		if res := last.wantAnswer("its own", fmt.Sprint(s.Position()), false); !res.Close {
			t.Errorf("the last is answered %v, want Connection: close", res.Header)
		}
		last.wantEnd()
		if n := s.ended(ModeResponse, EndDraining); n != polls+3 || len(back) != 0 {
			t.Errorf("%d ended draining, want %d; %d more connections came back", n, polls+3, len(back))
		}
	})
}

func TestPoll_EndConnectionsIsInForceForPollsThatWait(t *testing.T) {
	s, back := startReturning(t, Config{})
	byEvent, byTime := s.openPoll(Spec{KeepAlive: true}, false), s.openPoll(Spec{KeepAlive: true, Channels: []string{"quiet"}}, false)
	s.untilLive(2)
	s.EndConnections()
	id := s.publish("event", "room")
	s.End(EndRequest{Channel: "quiet"})
	for c, body := range map[*pollClient]string{byEvent: "event", byTime: ""} {
		res, got := c.answer()
		if got != body || !res.Close {
			t.Errorf("it is answered %v with %q; want %q, event %d", res.Header, got, body, id)
		}
		c.wantEnd()
	}
	if len(back) != 0 {
		t.Errorf("%d connections came back", len(back))
	}
}

func TestPoll_CloseAnswersThoseThatWait(t *testing.T) {
	eachConnection(t, func(t *testing.T, linked bool) {
		var left atomic.Int64
		s := startStation(t, Config{Left: func() { left.Add(1) }})
		var clients []*pollClient
		for range 10 {
			clients = append(clients, s.openPoll(Spec{Body: []byte("its own")}, linked))
		}
		s.untilLive(10)
		s.Close()
		for _, c := range clients {
			if _, err := io.Copy(io.Discard, c.conn); err != nil && !strings.Contains(err.Error(), "reset") {
				t.Fatalf("its connection ends with %v", err)
			}
		}
		if left.Load() != 10 || s.Snapshot().Polls != 0 {
			t.Errorf("%d have left, want 10; %d are there", left.Load(), s.Snapshot().Polls)
		}
	})
}
