package proxy_test

import (
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/holds"
	"holdfast/lanes"
	"holdfast/proxy"
)

// ---- Clients that leave while the view runs.

// wantHungUp waits until the server has seen every hang-up so far: they are
// seen in their order, and that of a request that waits shows.
func (s *holdSite) wantHungUp(t *testing.T) {
	t.Helper()
	waiter := say(t, s.addr, get("/never"))
	until(t, "a request waits", func() bool { return s.lane.Snapshot().Waiting == 1 })
	waiter.conn.CloseWrite()
	until(t, "it has left", func() bool { return s.lane.Snapshot().Waiting == 0 })
}

var leaving = map[string]func(*wireClient){
	"Reset":     (*wireClient).reset,
	"Close":     func(c *wireClient) { c.conn.Close() },
	"HalfClose": func(c *wireClient) { c.conn.CloseWrite() },
}

func TestHold_AClientThatLeftBeforeItsHoldIsNotHeld(t *testing.T) {
	for name, leave := range leaving {
		for _, during := range []string{"", "HTTP/1.1 200 OK\r\n" + joinNews + "Content-Length: 4\r\n\r\n", "HTTP/1.1 200 OK\r\n" + joinNews + "Content-Length: 4\r\n\r\n: a"} {
			t.Run(name+"/"+during[max(0, len(during)-3):], func(t *testing.T) {
				s := startHolds(t, holdSetup{lane: lanes.Config{Queue: 1, QueueTimeout: time.Minute}})
				c := say(t, s.addr, askFor("/events"))
				v := s.view(t)
				v.say(during)
				leave(c)
				s.wantHungUp(t)
				v.answer(strings.TrimPrefix("HTTP/1.1 200 OK\r\n"+joinNews+"Content-Length: 4\r\n\r\n: a\n", during))
				s.wantFree(t)
				if name == "HalfClose" {
					c.wantEnd(t, false) // nothing is said: a stream that begins has one reader, who is gone
				}
				until(t, "no connection is left", func() bool { return s.server.Connections() == 0 })
				s.wantNoHold(t)
				if statuses, _ := s.wantLogged(t, 2); !slices.Equal(statuses, []int64{499, 499}) { // its own and the waiter's
					t.Errorf("logged as %v, want 499: nothing was answered", statuses)
				}
			})
		}
	}
}

// On a lane of streams whoever closes a side has left, and the app sees it.
func TestHold_AClientThatLeftAStreamLaneEndsItsView(t *testing.T) {
	for name, leave := range leaving {
		t.Run(name, func(t *testing.T) {
			s := startHolds(t, holdSetup{lane: lanes.Config{Stream: true}})
			c := say(t, s.addr, askFor("/events"))
			v := s.view(t)
			v.say(withLength + "\r\n: a")
			leave(c)
			v.wantEnded(t)
			s.wantFree(t)
			until(t, "no connection is left", func() bool { return s.server.Connections() == 0 })
			s.wantNoHold(t)
		})
	}
}

// However it falls together, nobody is held who has left.
func TestHold_LeavingAtTheSameMomentLeavesNothingBehind(t *testing.T) {
	s := startHolds(t, holdSetup{lane: lanes.Config{Slots: 4, Queue: 100}})
	answered := make(chan struct{})
	over := make(chan struct{})
	go func() { defer close(answered); s.answerAll(over) }()
	for i := range 60 {
		c := say(t, s.addr, askFor("/events"))
		switch i % 3 {
		case 0:
			c.conn.CloseWrite()
		case 1:
			c.reset()
		case 2:
			c.conn.Close()
		}
	}
	until(t, "no connection is left", func() bool { return s.server.Connections() == 0 })
	s.wantHeld(t, 0)
	s.wantFree(t)
	if left := s.holds.Channels(); len(left) > 0 {
		t.Errorf("there are members: %v", left)
	}
	close(over)
	<-answered
}

// answerAll holds everybody, until over.
func (s *holdSite) answerAll(over <-chan struct{}) {
	for {
		select {
		case v := <-s.views:
			v.answer(ok(joinNews, ""))
		case <-over:
			return
		}
	}
}

func TestHold_AHeldClientThatLeavesIsLeft(t *testing.T) {
	for name, leave := range leaving {
		t.Run(name, func(t *testing.T) {
			s := startHolds(t, holdSetup{})
			c := s.held(t)
			leave(c)
			s.wantHeld(t, 0)
			if ended := s.holds.Snapshot().Ended[holds.ModeStream]; ended["client"] != 1 {
				t.Errorf("the ends are %v", ended)
			}
			if name == "HalfClose" {
				c.wantEnd(t, true)
			}
		})
	}
}

// ---- Bytes that a held client sends.

// They would make a close a reset, which eats the last bytes of the stream.
func TestHold_WhatTheClientSendsBehindItsRequestIsIgnored(t *testing.T) {
	s := startHolds(t, holdSetup{})
	c := say(t, s.addr, askFor("/events")+get("/never")+"\x00nonsense\r\n\r\n")
	v := s.view(t)
	v.answer(ok(joinNews, ""))
	c.wantHeldHead(t)
	c.wantBytes(t, chunk(": open\n\n"+idBlock(v.position(t))))
	c.say(t, get("/never")+strings.Repeat("POST / HTTP/1.1\r\n\r\n", 1000))
	id := s.publish("news", "one")
	c.wantBytes(t, chunk(eventBlock(id, "one")))
	s.wantServed(t, dialWire(t, s.addr)) // and /never is not the next that the app has
	s.holds.Drain()
	c.wantFarewell(t)
}

// ---- Clocks of the connection that became a hold.

// The clocks of a connection are not those of a hold. An idle connection that
// came later shows that they are over.
func TestHold_OutlivesTheTimeoutsOfItsConnection(t *testing.T) {
	const short = 200 * time.Millisecond
	s := startHolds(t, holdSetup{proxy: func(cfg *proxy.Config) {
		cfg.IdleTimeout, cfg.HeaderTimeout, cfg.BodyTimeout = short, short, short
	}})
	c := dialWire(t, s.addr)
	s.wantServed(t, c) // with deadlines for reading and writing
	c.say(t, askFor("/events"))
	v := s.view(t)
	v.answer(ok(joinNews, ""))
	c.wantHeldHead(t)
	c.wantBytes(t, chunk(": open\n\n"+idBlock(v.position(t))))
	for range 2 {
		dialWire(t, s.addr).wantEnd(t, false)
	}
	id := s.publish("news", "late")
	c.wantBytes(t, chunk(eventBlock(id, "late")))
	s.wantHeld(t, 1)
}

// ---- The limit of connections.

func TestHold_HeldClientsCountAsConnections(t *testing.T) {
	s := startHolds(t, holdSetup{proxy: func(cfg *proxy.Config) { cfg.Connections = 2 }})
	s.held(t)
	until(t, "it is a hold to the server", func() bool { return s.server.Connections() == 0 })
	idle := dialWire(t, s.addr)
	s.wantServed(t, idle)
	next := say(t, s.addr, get("/next"))
	idle.wantEnd(t, false) // it made room, as there are two already
	s.view(t).answer(ok("", "next"))
	next.wantAnswer(t, "GET", 200, "next")
}

func TestLimit_AnIdleConnectionMakesRoomForTheNext(t *testing.T) {
	s := startHolds(t, holdSetup{proxy: func(cfg *proxy.Config) { cfg.Connections = 1 }})
	var before *wireClient
	for range 10 {
		c := dialWire(t, s.addr)
		s.wantServed(t, c)
		if before != nil {
			before.wantEnd(t, false)
		}
		before = c
	}
}

func TestLimit_NobodyMakesRoomBeforeAnotherComes(t *testing.T) {
	s := startHolds(t, holdSetup{proxy: func(cfg *proxy.Config) { cfg.Connections = 2 }})
	first, second := dialWire(t, s.addr), dialWire(t, s.addr)
	for range 10 {
		s.wantServed(t, first)
		s.wantServed(t, second)
	}
}

func TestHold_AHeldClientThatLeavesMakesRoom(t *testing.T) {
	for name, end := range map[string]func(*holdSite, *wireClient){
		"Left":  func(_ *holdSite, c *wireClient) { c.conn.Close() },
		"Reset": func(_ *holdSite, c *wireClient) { c.reset() },
		"Ended": func(s *holdSite, _ *wireClient) { s.holds.End(holds.EndRequest{Channel: "news"}) },
	} {
		t.Run(name, func(t *testing.T) {
			s := startHolds(t, holdSetup{proxy: func(cfg *proxy.Config) { cfg.Connections = 1 }})
			for range 3 {
				c := s.held(t)
				next := say(t, s.addr, get("/next")) // the kernel has it, and nobody else
				end(s, c)
				s.view(t).answer(ok("Connection: close\r\n", "next"))
				next.wantAnswer(t, "GET", 200, "next")
				next.Close()
			}
		})
	}
}

// ---- The end of the server.

func TestHold_AServerIsClosedWhenItsLastHoldHasLeft(t *testing.T) {
	s := startHolds(t, holdSetup{})
	first, second := s.held(t), s.held(t)
	until(t, "they are holds to the server", func() bool { return s.server.Connections() == 0 })
	s.server.Drain()
	s.server.Close()
	take(t, "nothing is accepted any more", s.served)
	first.Close()
	s.wantHeld(t, 1)
	select {
	case <-s.server.Closed():
		t.Fatal("it is closed, and a client is held")
	default:
	}
	id := s.publish("news", "to the end")
	second.wantBytes(t, chunk(eventBlock(id, "to the end")))
	s.holds.Drain()
	second.wantFarewell(t)
	take(t, "it is closed", s.server.Closed())
	if ended := s.holds.Snapshot().Ended[holds.ModeStream]; ended["draining"] != 1 || ended["client"] != 1 {
		t.Errorf("the ends are %v", ended)
	}
}

// A view that runs as the drain begins may still hold: its client is told
// when to come back.
func TestHold_AHoldOfADrainGetsItsHeadAndTheEnd(t *testing.T) {
	s := startHolds(t, holdSetup{})
	c := say(t, s.addr, askFor("/events"))
	v := s.view(t)
	s.server.Drain()
	s.server.Close()
	s.holds.Drain()
	v.answer(ok(joinNews, "data: hi\n\n"))
	c.wantHeldHead(t)
	c.wantBytes(t, chunk("data: hi\n\n"+idBlock(v.position(t))))
	c.wantFarewell(t)
	take(t, "it is closed", s.server.Closed())
}

// ---- What is noted.

func TestHold_IsLoggedOnceAsItBegins(t *testing.T) {
	s := startHolds(t, holdSetup{})
	c := s.held(t)
	if statuses, ends := s.wantLogged(t, 1); statuses[0] != 200 || ends[0] != "held" {
		t.Errorf("logged as %v %v", statuses, ends)
	}
	c.Close()
	s.wantHeld(t, 0)
	s.wantServed(t, dialWire(t, s.addr))
	if statuses, ends := s.wantLogged(t, 2); len(statuses) != 2 || ends[1] != "done" {
		t.Errorf("logged as %v %v", statuses, ends)
	}
	if codes := s.codes(t); len(codes) != 1 || codes[200] != 2 {
		t.Errorf("the route counts %v", codes)
	}
}

func TestHold_NamesThatAreNoChannelsAreToldInTheLog(t *testing.T) {
	s := startHolds(t, holdSetup{})
	c := say(t, s.addr, askFor("/events"))
	s.view(t).answer(ok("M0-Hold: stream\r\nM0-Channel: a b, news, %0a, %zz\r\n", ""))
	c.wantHeldHead(t)
	entries := s.logs.FilterMessage("channel names that are none were left out of a hold").All()
	if len(entries) != 1 || entries[0].ContextMap()["names"] != int64(3) || entries[0].ContextMap()["route"] != "/" {
		t.Errorf("the log has %v", entries)
	}
	s.wantHeld(t, 1)
}

// ---- Other connections.

func TestHold_AClientOnAUnixSocketIsHeld(t *testing.T) {
	s := startHolds(t, holdSetup{})
	path := t.TempDir() + "/s"
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.server.Serve(ln) }()
	defer func() { ln.Close(); <-ended }()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	io.WriteString(conn, askFor("/events"))
	v := s.view(t)
	v.answer(ok(joinNews, ""))
	id := s.publish("news", "one")
	want := "Connection: close\r\n\r\n" + chunk(": open\n\n"+idBlock(v.position(t))) + chunk(eventBlock(id, "one"))
	got := ""
	for p := make([]byte, 4096); !strings.HasSuffix(got, want); {
		n, err := conn.Read(p)
		if got += string(p[:n]); err != nil {
			t.Fatalf("%q came, %v; want %q", got, err, want)
		}
	}
	conn.Close()
	s.wantHeld(t, 0)
}

// ---- What is left of it all.

func TestHold_NoDescriptorIsLeftBehind(t *testing.T) {
	if _, err := os.ReadDir("/proc/self/fd"); err != nil {
		t.Skip("this system does not list descriptors")
	}
	everything := func(t *testing.T) {
		s := startHolds(t, holdSetup{lane: lanes.Config{Slots: 4, Queue: 4}, holds: holds.Config{Limit: 8}})
		for _, leave := range leaving {
			leave(s.held(t))
		}
		s.wantHeld(t, 0)
		for _, c := range badHolds {
			if c.timeout == 0 && c.slot == slotFreed {
				client := say(t, s.addr, askFor("/events"))
				c.answer(s.view(t))
				client.wantReason(t, 502, "bad_hold")
			}
		}
		s.held(t)
		s.holds.End(holds.EndRequest{Channel: "news"})
		s.wantHeld(t, 0)
		for range 8 {
			s.held(t)
		}
		refused := say(t, s.addr, askFor("/events"))
		s.view(t).answer(ok(joinNews, ""))
		refused.wantReason(t, 503, "too_many_holds")
	}
	t.Run("WarmUp", everything) // what lives as long as the process is there then
	before := descriptors(t)
	t.Run("Once", everything)
	until(t, "as many descriptors as before", func() bool { return descriptors(t) <= before })
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
