package proxy_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"holdfast/holds"
	"holdfast/lanes"
	"holdfast/proxy"
)

// secured has a site serve TLS at a further address.
func (s *holdSite) secured(t *testing.T) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.server.Serve(proxy.Secured(ln, serverTLS)) }()
	t.Cleanup(func() {
		s.shutDown()
		if err := <-served; err != nil {
			t.Error("serve:", err)
		}
	})
	return ln.Addr().String()
}

// heldSecured is held over TLS.
func (s *holdSite) heldSecured(t *testing.T, addr string) *tlsClient {
	t.Helper()
	c := saySecured(t, addr, askFor("/events"))
	v := s.view(t)
	position := v.position(t)
	v.answer(ok(joinNews, ""))
	c.wantHeldHead(t)
	c.wantBytes(t, chunk(": open\n\n"+idBlock(position)))
	return c
}

func TestTLSHold_AStreamIsFedAndEndsWithACloseNotify(t *testing.T) {
	for name, end := range map[string]func(*holdSite){
		"Published": func(s *holdSite) { s.holds.End(holds.EndRequest{Channel: "news"}) },
		"Drained":   func(s *holdSite) { s.server.Close(); s.holds.Drain() },
	} {
		t.Run(name, func(t *testing.T) {
			s := startHolds(t, holdSetup{})
			c := s.heldSecured(t, s.secured(t))
			for i := range 50 {
				id := s.publish("news", fmt.Sprint("event ", i))
				c.wantBytes(t, chunk(eventBlock(id, fmt.Sprint("event ", i))))
			}
			c.say(t, "what a held client sends means nothing")
			end(s)
			rest, err := io.ReadAll(c.reader)
			if err != nil || !strings.HasSuffix(string(rest), "0\r\n\r\n") {
				t.Errorf("the stream ends with %q, %v; want its last chunk and a close_notify", rest, err)
			}
			s.wantHeld(t, 0)
		})
	}
}

func TestTLSHold_AClientThatLeavesIsLeft(t *testing.T) {
	for name, leave := range map[string]func(*tlsClient){
		"CloseNotify": func(c *tlsClient) { c.closeNotify(t) },
		"FIN":         func(c *tlsClient) { c.conn.CloseWrite() },
		"Close":       func(c *tlsClient) { c.tls.Close() },
		"Reset":       func(c *tlsClient) { c.reset() },
		"Garbage":     func(c *tlsClient) { c.conn.Write([]byte("\x17\x03\x03\x00\x20" + strings.Repeat("x", 32))) },
	} {
		t.Run(name, func(t *testing.T) {
			s := startHolds(t, holdSetup{})
			c := s.heldSecured(t, s.secured(t))
			leave(c)
			s.wantHeld(t, 0)
			if ended := s.holds.Snapshot().Ended[holds.ModeStream]; ended["client"] != 1 {
				t.Errorf("the ends are %v", ended)
			}
		})
	}
}

func TestTLSHold_ASocketSpeaksBothWaysAndCloses(t *testing.T) {
	s := startSockets(t)
	c := saySecured(t, s.secured(t), handshake+clientText("early"))
	s.view(t).answer(ok(approve, ""))
	c.wantHead(t, 101)
	s.message(t, "early").answer(ok("M0-Reply: text\r\n", "one"))
	c.wantBytes(t, serverFrame(opText, "one"))
	s.publish("news", "two")
	c.wantBytes(t, serverFrame(opText, "two"))
	c.say(t, clientText("late"))
	v := s.message(t, "late")
	if got := v.get("X-Forwarded-Proto"); got != "https" {
		t.Errorf("the message came by %q", got)
	}
	v.answer(ok("M0-Close: 4001 bye\r\n", ""))
	c.wantBytes(t, serverFrame(opClose, closing(4001, "bye")))
	c.say(t, clientClose(4001, "bye"))
	c.wantCleanEnd(t)
}

func TestTLSHold_APollIsAnsweredAndItsConnectionGoesOn(t *testing.T) {
	s := startHolds(t, holdSetup{})
	s.takeBack()
	c := dialSecured(t, s.secured(t))
	for i := range 3 {
		c.say(t, askFor("/poll"))
		s.view(t).answer(ok("M0-Hold: response\r\nM0-Channel: news\r\nM0-Timeout: 3600\r\n", "nothing"))
		until(t, "it is held", func() bool { return s.holds.Snapshot().Polls == 1 })
		if i == 1 { // the next request may come early
			c.say(t, get("/early"))
		}
		s.publish("news", fmt.Sprint("event ", i))
		c.wantAnswer(t, "GET", 200, fmt.Sprint("event ", i))
		if i == 1 {
			s.view(t).answer(ok("", "early"))
			c.wantAnswer(t, "GET", 200, "early")
		}
	}
	c.say(t, get("/next"))
	s.view(t).answer(ok("", "next"))
	c.wantAnswer(t, "GET", 200, "next")
	c.closeNotify(t)
	c.wantCleanEnd(t)
}

// The bound is of a client's progress here, too: one that takes a little is
// kept, one that takes nothing is cut, and not as if it had come to its end.
func TestTLSHold_AClientThatTakesLittleIsKeptAndOneThatTakesNothingIsCut(t *testing.T) {
	const stall = 600 * time.Millisecond
	s := startHolds(t, holdSetup{holds: holds.Config{WriteStall: stall, OutboxBytes: 64 << 20, Heartbeat: time.Hour}})
	addr := s.secured(t)
	slow, stalled := s.heldSecured(t, addr), s.heldSecured(t, addr)
	for _, c := range []*tlsClient{slow, stalled} {
		c.conn.SetReadBuffer(32 << 10)
	}
	data := strings.Repeat("x", 1<<20)
	var want strings.Builder
	for range 8 {
		want.WriteString(chunk(eventBlock(s.publish("news", data), data)))
	}
	tick := time.NewTicker(stall / 12)
	defer tick.Stop()
	got := make([]byte, want.Len())
	n := 0
	for s.holds.Snapshot().Streams > 1 {
		<-tick.C
		m, err := slow.reader.Read(got[n:min(n+(32<<10), len(got))])
		if n += m; err != nil {
			t.Fatalf("the slow one, after %d bytes: %v", n, err)
		}
	}
	if ended := s.holds.Snapshot().Ended[holds.ModeStream]; ended["stalled"] != 1 {
		t.Errorf("the ends are %v", ended)
	}
	if _, err := io.ReadFull(slow.reader, got[n:]); err != nil || string(got) != want.String() {
		t.Errorf("the slow one did not get all: %v", err)
	}
	if rest, err := io.ReadAll(stalled.reader); err == nil || len(rest) >= want.Len() {
		t.Errorf("the other got %d bytes, and %v", len(rest), err)
	}
}

// A page is of the same host only if it came the same way.
func TestTLSHold_APageWithoutTLSIsNotOfTheSameHost(t *testing.T) {
	s := startHolds(t, holdSetup{lane: lanes.Config{Slots: 8}, proxy: func(cfg *proxy.Config) { cfg.Origins = holds.Origins{SameHost: true} }})
	addr := s.secured(t)
	for _, c := range []struct {
		over   string
		origin string
		proto  string
		status int
	}{
		{"tls", "https://a.test", "", 101},
		{"tls", "http://a.test", "", 403},
		{"tls", "https://b.test", "", 403},
		{"tls", "null", "", 403},
		{"tls", "http://a.test", "http", 403}, // whoever says so is nobody that is trusted
		{"tcp", "https://a.test", "", 101},    // where TLS ends in front of us
		{"tcp", "http://a.test", "", 101},
	} {
		fields := "Origin: " + c.origin + "\r\n"
		if c.proto != "" {
			fields += "X-Forwarded-Proto: " + c.proto + "\r\n"
		}
		text := strings.TrimSuffix(handshake, "\r\n") + fields + "\r\n"
		var client *wireClient
		if c.over == "tls" {
			client = saySecured(t, addr, text).wireClient
		} else {
			client = say(t, s.addr, text)
		}
		s.view(t).answer(ok(approve, ""))
		client.wantHead(t, c.status)
	}
}
