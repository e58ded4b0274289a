package holds

import (
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
)

// It is said with the head of the frame that would pass the limit, before
// anything of it has come, and what came before goes to the app.
func TestInbound_AMessageOverTheLimitClosesTheSocket(t *testing.T) {
	const limit = 1000
	over := strings.Repeat("x", limit+1)
	for what, sent := range map[string]clientSends{
		"in one frame":                      clientSends{}.text(over),
		"its head alone":                    clientSends{}.head(0x81, limit+1, 0),
		"announced as larger than memory":   clientSends{}.head(0x82, 1<<62, 0),
		"in many frames":                    clientSends{}.pieces(opBinary, over, 100),
		"its last frame's head":             clientSends{}.beginText(over[:limit]).head(0x80, 1, 0),
		"after one as large as may be":      clientSends{}.text(over[:limit]).text(over),
		"after its own pings and fragments": clientSends{}.beginText(over[:500]).ping("").more(over[:500]).ping("").more("x"),
	} {
		t.Run(what, func(t *testing.T) {
			s, app := startApp(t, Config{MessageBytes: limit})
			c := s.openSocket(Spec{})
			c.send(clientSends{}.text("before").raw(string(sent)))
			app.wantMessage("before").ok()
			if strings.HasPrefix(what, "after one") {
				app.wantMessage(over[:limit]).ok()
			}
			for range strings.Count(what, "pings") * 2 {
				c.want(opPong, "")
			}
			c.wantClose(1009, "too_big")
			c.conn.Write(clientSends{}.text("too late").close(1009, ""))
			c.conn.Close()
			s.until("it has left", func() bool { return s.counts.held.Load() == 0 })
			if n := s.ended(ModeWebSocket, EndTooBig); n != 1 || app.at.Load() != 0 {
				t.Errorf("%d ended too_big, and %d messages are at the app", n, app.at.Load())
			}
		})
	}
}

func TestInbound_AnotherLimitIsInForceForSocketsThereAre(t *testing.T) {
	s, app := startApp(t, Config{})
	c := s.openSocket(Spec{})
	large := strings.Repeat("x", 1<<20)
	c.send(clientSends{}.text(large))
	app.wantMessage(large).ok()
	cfg := *s.limits.Load()
	cfg.MessageBytes = 10
	s.Configure(cfg)
	c.send(clientSends{}.text("0123456789").text("0123456789a"))
	app.wantMessage("0123456789").ok()
	c.wantClose(1009, "too_big")
}

// Nobody is there to get it. All else is as with others.
func TestInbound_ASocketThatOnlyReceivesIsClosedByAMessage(t *testing.T) {
	for what, message := range map[string]clientSends{
		"text": clientSends{}.text("hello"), "binary": clientSends{}.binary("hello"), "empty": clientSends{}.text(""),
		"in pieces": clientSends{}.beginText("hel").end("lo"),
	} {
		s := startStation(t, Config{})
		c := s.openSocket(Spec{})
		c.send(clientSends{}.ping("are you there").frame(0x8A, ""))
		c.want(opPong, "are you there")
		s.publish("an event", "room")
		c.wantText("an event")
		c.send(message)
		c.wantClose(1008, "protocol")
		if n := s.ended(ModeWebSocket, EndProtocol); n != 1 {
			t.Errorf("%s: %d ended protocol, want 1", what, n)
		}
	}
}

// The process must not be gone, nor its connections be counted as gone, before
// what a client has said is with the app.
func TestInbound_ASocketHasLeftOnlyWhenItsMessagesAreDelivered(t *testing.T) {
	leaves := map[string]func(*socketClient){
		"with a close frame": func(c *socketClient) { c.send(clientSends{}.close(1000, "")) },
		"without a word":     func(c *socketClient) { c.conn.Close() },
		"by a half":          func(c *socketClient) { c.conn.(*net.TCPConn).CloseWrite() },
		"by the API":         func(c *socketClient) {},
	}
	for what, leave := range leaves {
		t.Run(what, func(t *testing.T) {
			eachConnection(t, func(t *testing.T, linked bool) {
				var left atomic.Int64
				s, app := startApp(t, Config{Left: func() { left.Add(1) }, Limit: 1})
				client, server := s.pair(linked)
				c := s.openSocketOn(client, server, Spec{})
				c.send(clientSends{}.text("first").text("second").text("third"))
				call := app.wantMessage("first")
				s.until("all are read", func() (read bool) {
					s.onLoop(call.Connection, func(h *hold) { read = len(h.socket.inbound) == 3 })
					return read
				})
				leave(c)
				end := EndClient
				if what == "by the API" {
					end = EndPublished
					s.End(EndRequest{Connection: call.Connection})
					c.wantClose(1000, "published")
					c.send(clientSends{}.close(1000, ""))
				}
				s.untilSocketEnded(end)
				call.ok()
				app.wantMessage("second").reply(500, "")
				call = app.wantMessage("third")
				s.handled()
				if n := left.Load(); n != 0 || s.Snapshot().Sockets != 0 || s.counts.held.Load() != 1 {
					t.Errorf("with a message at the app %d have left, %d sockets are there, %d are held", n, s.Snapshot().Sockets, s.counts.held.Load())
				}
				call.ok()
				s.until("it has left", func() bool { return left.Load() == 1 })
				s.handled()
				if counts := s.Snapshot().Inbound; counts["ok"] != 2 || counts["failed"] != 1 || left.Load() != 1 {
					t.Errorf("counted are %v; %d have left", counts, left.Load())
				}
				again, server := s.pair(linked)
				s.openSocketOn(again, server, Spec{})
			})
		})
	}
}

// In a drain: the socket is told at once, its messages are still delivered.
func TestInbound_ADrainDeliversWhatWasReadBeforeIt(t *testing.T) {
	s, app := startApp(t, Config{})
	c := s.openSocket(Spec{})
	var all clientSends
	for i := range 20 {
		all = all.text(fmt.Sprint(i))
	}
	c.send(all)
	call := app.wantMessage("0")
	s.until("all are read", func() (read bool) {
		s.onLoop(call.Connection, func(h *hold) { read = len(h.socket.inbound) == 20 })
		return read
	})
	s.Drain()
	c.wantClose(1012, "draining")
	c.send(clientSends{}.text("after it").close(1012, ""))
	for i := range 20 {
		if i > 0 {
			call = app.wantMessage(fmt.Sprint(i))
		}
		call.ok("M0-Reply: text")
	}
	s.until("it has left", func() bool { return s.counts.held.Load() == 0 })
	if n := s.Snapshot().Inbound["ok"]; n != 20 {
		t.Errorf("%d were delivered, want 20", n)
	}
}
