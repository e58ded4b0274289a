package holds

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Nothing is written to it that would show it.
func TestEnd_AClientThatLeavesIsNoticedWithoutAWrite(t *testing.T) {
	leaves := map[string]func(net.Conn){
		"close": func(c net.Conn) { c.Close() },
		"a FIN": func(c net.Conn) { c.(interface{ CloseWrite() error }).CloseWrite() },
		"reset": func(c net.Conn) {
			if tcp, ok := c.(*net.TCPConn); ok {
				tcp.SetLinger(0)
			}
			c.Close()
		},
		"bytes, and a FIN": func(c net.Conn) {
			io.WriteString(c, strings.Repeat("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n", 100))
			c.(interface{ CloseWrite() error }).CloseWrite()
		},
		"bytes, and close": func(c net.Conn) { // a reset, where it has not read all
			io.WriteString(c, "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n")
			c.Close()
		},
	}
	for network, start := range stations {
		for what, leave := range leaves {
			passed := t.Run(network+" "+what, func(t *testing.T) {
				var left atomic.Int64
				s := start(t, Config{Left: func() { left.Add(1) }})
				c := s.open(Spec{Channels: []string{"a"}})
				c.wantPosition()
				s.untilLive(1)
				leave(c.conn)
				s.untilEnded(1, EndClient)
				s.until("its connection is closed", func() bool { return left.Load() == 1 })
				s.wantHolds(0)
			})
			if !passed {
				return // the others would wait as long
			}
		}
	}
}

// Before its hold was opened: the loop never sees the change.
func TestEnd_AClientThatLeftBeforeItsHoldWasOpenedIsNoticed(t *testing.T) {
	s := startStation(t, Config{})
	for _, bytes := range []string{"", "GET / HTTP/1.1\r\n\r\n"} {
		_, err := s.visit(Spec{Channels: []string{"a"}}, func(client, _ net.Conn) {
			io.WriteString(client, bytes)
			client.Close()
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	s.untilEnded(2, EndClient)
	s.wantHolds(0)
}

// wantHolds requires so many holds, and the channels' members to agree.
func (s *station) wantHolds(n int) {
	s.t.Helper()
	members := 0
	for _, m := range s.Channels() {
		members += m
	}
	if got := s.Snapshot().Streams; got != n || n == 0 && members != 0 {
		s.t.Errorf("%d holds and %d members of channels, want %d holds", got, members, n)
	}
}

func TestEnd_ByChannelEndsItsMembersAndNoOthers(t *testing.T) {
	s := startStation(t, Config{})
	var inA, inB []*streamClient
	for i := range 20 {
		inA = append(inA, s.open(Spec{Channels: []string{"a", "c"}, Chunked: i%2 == 0}))
		inB = append(inB, s.open(Spec{Channels: []string{"b", "c"}, Chunked: i%2 == 0}))
	}
	want := map[string]int{"a": 20, "b": 20, "c": 40}
	if got := s.Channels(); !maps.Equal(got, want) {
		t.Errorf("channels %v, want %v", got, want)
	}
	s.untilLive(40)
	s.publish("before it", "c")
	if n := s.End(EndRequest{Channel: "a"}); n != 20 {
		t.Errorf("%d were ended, want 20", n)
	}
	s.publish("after it", "c")
	for i := range inA {
		inA[i].wantPosition()
		inA[i].wantEvent("before it")
		inA[i].wantEnd()
		inB[i].wantPosition()
		inB[i].wantEvent("before it", "after it")
	}
	s.untilEnded(20, EndPublished)
	s.wantHolds(20)
	if got, want := s.Channels(), map[string]int{"b": 20, "c": 20}; !maps.Equal(got, want) {
		t.Errorf("channels %v, want %v", got, want)
	}
	if n := s.End(EndRequest{Channel: "nobody's"}); n != 0 {
		t.Errorf("%d were ended in a channel that nobody is in", n)
	}
}

func TestEnd_ByConnectionEndsThatOne(t *testing.T) {
	s := startStation(t, Config{})
	clients := map[string]*streamClient{} // by connection
	for _, channel := range []string{"a", "b"} {
		for range 3 {
			known := s.Connections(channel)
			c := s.open(Spec{Channels: []string{channel}})
			s.untilLive(len(clients) + 1)
			for _, name := range s.Connections(channel) {
				if !slices.Contains(known, name) {
					clients[name] = c
				}
			}
		}
	}
	if len(clients) != 6 {
		t.Fatalf("%d connections of 6 have a name", len(clients))
	}
	names := s.Connections("a")
	for _, r := range []EndRequest{
		{Connection: "nonsense"}, {Connection: names[0] + "0"}, {Connection: "x" + names[0]}, {Connection: names[0], Channel: "b"},
		{Connection: strings.Replace(names[0], "-", "-9", 1)}, {Connection: "----"},
	} {
		if n := s.End(r); n != 0 {
			t.Errorf("%+v ended %d", r, n)
		}
	}
	for _, r := range []EndRequest{{Connection: names[0]}, {Connection: names[1], Channel: "a"}} {
		s.publish("before it", "a")
		if n := s.End(r); n != 1 {
			t.Errorf("%+v ended %d, want 1", r, n)
		}
		if n := s.End(r); n != 0 {
			t.Errorf("%+v ended %d once more", r, n)
		}
	}
	clients[names[0]].wantPosition()
	clients[names[0]].wantEvent("before it")
	clients[names[0]].wantEnd()
	clients[names[1]].wantPosition()
	clients[names[1]].wantEvent("before it", "before it")
	clients[names[1]].wantEnd()
	s.publish("after it", "a", "b")
	clients[names[2]].wantPosition()
	clients[names[2]].wantEvent("before it", "before it", "after it")
	if got := s.Connections("a"); !slices.Equal(got, names[2:]) {
		t.Errorf("connections %v, want %v", got, names[2:])
	}
	s.wantHolds(4)
}

// A connection's name is of one hold: its place may be another's by then.
func TestEnd_TheNameOfAConnectionThatLeftEndsNoOther(t *testing.T) {
	s := startStation(t, Config{})
	for range 4 {
		c := s.open(Spec{Channels: []string{"a"}})
		c.wantPosition()
		was := s.Connections("a")[0]
		ended := s.Snapshot().Ended[ModeStream]["client"]
		c.conn.Close()
		s.untilEnded(ended+1, EndClient)
		var next []*streamClient
		for range s.hub.loops {
			next = append(next, s.open(Spec{Channels: []string{"a"}}))
		}
		if n := s.End(EndRequest{Connection: was}); n != 0 {
			t.Errorf("%s, which had left, ended %d", was, n)
		}
		s.publish("still there", "a")
		for _, c := range next {
			c.wantPosition()
			c.wantEvent("still there")
			c.conn.Close()
		}
		s.untilEnded(ended+1+uint64(len(next)), EndClient)
	}
}

// It has not become live yet: what was published to it before is in the journal.
func TestEnd_ComesAfterWhatWasPublishedBeforeToAHoldJustOpened(t *testing.T) {
	s := startStation(t, Config{})
	for range 50 {
		release := s.stopLoops() // so that all comes in one turn
		c := s.open(Spec{Channels: []string{"a"}})
		s.publish("before it", "a")
		ended := make(chan int)
		go s.endInto("a", ended)
		s.until("the loop is asked", func() bool { return s.waiting() == 3 })
		release()
		if n := <-ended; n != 1 {
			t.Fatalf("%d were ended, want 1", n)
		}
		c.wantPosition()
		c.wantEvent("before it")
		c.wantEnd()
	}
}

func (s *station) endInto(channel string, ended chan<- int) {
	ended <- s.End(EndRequest{Channel: channel})
}

// waiting is how much is in all inboxes.
func (s *station) waiting() (n int) {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	for _, l := range s.hub.loops {
		n += len(l.inbox)
	}
	return n
}

// What it sent before is unread; that must not make a reset of the end.
func TestEnd_IsCleanForAClientThatHasSentBytes(t *testing.T) {
	for network, start := range stations {
		t.Run(network, func(t *testing.T) {
			s := start(t, Config{})
			c := s.open(Spec{Channels: []string{"a"}, Chunked: true})
			c.wantPosition()
			if _, err := io.WriteString(c.conn, strings.Repeat("GET / HTTP/1.1\r\n\r\n", 500)); err != nil {
				t.Fatal(err)
			}
			data := strings.Repeat("x", 32<<10)
			s.publish(data, "a")
			s.End(EndRequest{Channel: "a"})
			c.wantEvent(data)
			c.wantEnd()
		})
	}
}

// Holds whose turn in the walk has not come have not got the event yet.
func TestEnd_ComesAfterAnEventThatIsOnItsWay(t *testing.T) {
	const holds = 20
	s := newStage(Config{})
	s.loop.pace.slice = 4
	var held []*hold
	for range holds {
		h, _ := s.open(-1, "a", "b")
		held = append(held, h)
	}
	s.rest()
	first := s.publish("first", "a")
	second := s.publish("second", "b")
	s.loop.turn()
	without := 0
	for _, h := range held {
		s.hub.call(s.loop, func() { s.loop.end(h, EndPublished) })
		if h.cursor < first {
			without++
		}
	}
	if without == 0 {
		t.Fatal("all have got it: this proves nothing")
	}
	s.publish("after it", "a")
	s.rest()
	want := fmt.Sprintf("id: %d\ndata: first\n\nid: %d\ndata: second\n\n", first, second)
	for i, h := range held {
		p := s.loop.sockets.(*pipes).of[h]
		if sent := string(p.bytes); !strings.HasSuffix(sent, want) || !p.closed || p.reset {
			t.Errorf("hold %d is sent %q; closed is %v, reset is %v", i, sent, p.closed, p.reset)
		}
	}
}

// In one turn, too.
func TestEnd_AHoldEndsOnceForTheFirstReason(t *testing.T) {
	s := newStage(Config{})
	h, p := s.open(-1, "a", "b")
	s.rest()
	s.hub.call(s.loop, func() {
		s.loop.end(h, EndPublished)
		s.loop.end(h, EndDraining)
		s.loop.hangUp(h)
		s.loop.end(h, EndSlow)
	})
	s.rest()
	s.loop.hangUp(h)
	s.loop.bury()
	if n := s.ended(EndPublished); n != 1 || !p.closed || p.reset {
		t.Errorf("%d ended published; closed is %v, reset is %v", n, p.closed, p.reset)
	}
	all := uint64(0)
	for reason := range ends {
		all += s.ended(reason)
	}
	if all != 1 {
		t.Errorf("%d ends of one hold", all)
	}
}

func TestClose_CutsEveryHoldAndNothingCanBeOpenedAfterIt(t *testing.T) {
	for network, start := range stations {
		t.Run(network, func(t *testing.T) {
			var left atomic.Int64
			s := start(t, Config{Left: func() { left.Add(1) }})
			var clients []*streamClient
			for range 20 {
				clients = append(clients, s.open(Spec{Channels: []string{"a"}}))
			}
			clients[0].wantPosition()
			s.Close()
			for _, c := range clients {
				c.conn.SetDeadline(time.Now().Add(deadline / 6))
				if _, err := io.Copy(io.Discard, c.conn); err != nil && !errors.Is(err, syscall.ECONNRESET) {
					t.Fatalf("its connection does not end: %v", err)
				}
			}
			if n := left.Load(); n != 20 {
				t.Errorf("%d of 20 connections were said to be closed", n)
			}
			client, server, err := s.connect()
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			if err := s.Open(server, Spec{Kind: ModeStream, Channels: []string{"a"}}); err != ErrClosed {
				t.Errorf("opened after it: %v, want ErrClosed", err)
			}
			if err := server.Close(); err != nil {
				t.Errorf("the connection is not the caller's: %v", err)
			}
			if n := s.End(EndRequest{Channel: "a"}); n != 0 {
				t.Errorf("%d were ended after it", n)
			}
			s.Publish(text("after it", "a"))
			s.Close()
		})
	}
}

func TestOpen_OverTheLimitTheConnectionStaysTheCallers(t *testing.T) {
	s := startStation(t, Config{Limit: 2})
	first := s.open(Spec{Channels: []string{"a"}})
	s.open(Spec{Channels: []string{"a"}})
	client, server, err := s.connect()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	spec := Spec{Kind: ModeStream, Channels: []string{"a"}, Head: []byte(plainHead), Position: s.Position()}
	if err := s.Open(server, spec); err != ErrTooMany {
		t.Fatalf("a third hold: %v, want ErrTooMany", err)
	}
	first.conn.Close()
	s.until("there is room", func() bool { return s.counts.held.Load() == 1 })
	if err := s.Open(server, spec); err != nil {
		t.Errorf("when there is room: %v", err)
	}
	c := newStreamClient(t, client)
	c.wantPosition()
}

func TestOpen_WhatIsShownAsOpenIsReachedByWhatIsPublished(t *testing.T) {
	s := startStation(t, Config{})
	client, server, err := s.connect()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	s.hub.mu.Lock() // it cannot join yet
	opened := make(chan error)
	go func() {
		opened <- s.Open(server, Spec{Kind: ModeStream, Channels: []string{"a"}, Head: []byte(plainHead), Position: s.Position()})
	}()
	s.until("its connection is counted", func() bool { return s.counts.held.Load() == 1 })
	if n := s.counts.open[ModeStream].Load(); n != 0 {
		t.Errorf("%d are shown as open before they have joined", n)
	}
	s.hub.mu.Unlock()
	if err := <-opened; err != nil {
		t.Fatal(err)
	}
	if n := s.Snapshot().Streams; n != 1 {
		t.Errorf("%d are shown as open, want 1", n)
	}
	if _, reached := s.Publish(text("for all", "a")); reached != 1 {
		t.Errorf("%d reached, want 1", reached)
	}
}

func TestConfigure_IsInForceForHoldsThereAre(t *testing.T) {
	s := startStation(t, Config{})
	c := s.open(Spec{Channels: []string{"a"}})
	c.wantPosition()
	s.untilLive(1)
	s.Configure(Config{Heartbeat: 20 * time.Millisecond, Limit: 1})
	if _, err := s.visit(Spec{Channels: []string{"a"}}); err != ErrTooMany {
		t.Errorf("a second hold: %v, want ErrTooMany", err)
	}
	s.publish("wakes the loop", "a")
	want := []byte(": heartbeat\n\n: heartbeat\n\n: heartbeat\n\nid: ")
	c.wantEvent("wakes the loop")
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c.body, got); err != nil || string(got) != string(want) {
		t.Errorf("it is sent %q, %v; want heartbeats", got, err)
	}
}
