package holds

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
)

// behind gives an envelope's client that has missed n events of 4 KiB in the
// channel "news", and reads nothing of them yet.
func behind(s *station, n int) *socketClient {
	s.t.Helper()
	last := s.Position()
	for i := range n {
		s.publish(sentence(fmt.Sprint("event ", i), 4<<10), "news")
	}
	c := s.openSocket(Spec{Channels: []string{"news"}, Envelope: true, Last: fmt.Sprint(last)}, slowly)
	s.until("the client is behind", func() bool { return s.Snapshot().OutboxBytes > 0 })
	return c
}

// wantSentences reads events up to the one with this data; of the numbered ones
// each has to follow the one before. told: a gap was, or the connection was reset.
func (c *socketClient) wantSentences(until string) (n int, told bool) {
	c.t.Helper()
	for {
		op, payload, err := c.read()
		switch {
		case errors.Is(err, syscall.ECONNRESET):
			return n, true
		case err != nil || op != opText:
			c.t.Fatalf("after %d events opcode %X with %.60q, %v", n, byte(op), payload, err)
		case strings.Contains(payload, `"m0-gap"`):
			return n, true
		case strings.Contains(payload, `"`+until+`"`):
			return n, false
		}
		_, numbered, ok := strings.Cut(payload, `"data":"event `)
		if !ok {
			continue
		}
		var at int
		fmt.Sscan(numbered, &at)
		if at != n {
			c.t.Fatalf("event %d comes where event %d was due: what is between is lost, and nothing said", at, n)
		}
		n++
	}
}

func TestSubscribe_ASocketThatIsBehindIsStillGivenAllAtItsClientsPace(t *testing.T) {
	s, app := startApp(t, Config{})
	c := behind(s, 200)
	c.send(clientSends{}.text("more"))
	app.wantMessage("more").ok("M0-Subscribe: more")
	s.until("the socket joins", func() bool { return s.Channels()["more"] == 1 || s.ended(ModeWebSocket, EndSlow) > 0 })
	s.publish("the last", "more")
	if n, told := c.wantSentences("the last"); n != 200 || told {
		t.Fatalf("the client gets %d of 200 events, and then is ended %q; replay does not count", n, EndSlow)
	}
}

func TestSubscribe_WhatTheJournalHasLetGoOfASocketsOwnChannelsIsNotPassedOverInSilence(t *testing.T) {
	s, app := startApp(t, Config{})
	c := behind(s, 200)
	for i := range 400 { // 256 are kept
		s.publish(fmt.Sprint("event ", 200+i), "news")
	}
	// It may be ended before its message comes: then it is told by that.
	if _, err := c.conn.Write(clientSends{}.text("more")); err != nil && s.ended(ModeWebSocket, EndSlow) == 1 {
		return
	}
	s.until("the socket joins, or has ended", func() bool {
		select {
		case call := <-app.calls:
			call.ok("M0-Subscribe: more")
		default:
		}
		return s.Channels()["more"] == 1 || s.ended(ModeWebSocket, EndSlow) > 0
	})
	s.publish("the last", "more")
	if n, told := c.wantSentences("the last"); n != 600 && !told {
		t.Fatalf("the client gets %d of 600 events, and is not told", n)
	}
}

// None rather than some: which ones it is in would be known to nobody.
func TestSubscribe_WhatWouldBeMoreThanSixtyFourChannelsIsNotJoinedAtAll(t *testing.T) {
	s, app := startApp(t, Config{})
	c := s.openSocket(Spec{Channels: []string{"room", "lobby"}})
	names := make([]string, MaxChannels)
	for i := range names {
		names[i] = fmt.Sprint("extra-", i)
	}
	c.send(clientSends{}.text("one too many"))
	call := app.next()
	s.publish("between", "extra-0")
	s.publish("to the room", "room")
	c.wantText("to the room")
	call.ok("M0-Subscribe: "+strings.Join(names, ","), "M0-Unsubscribe: lobby")
	c.send(clientSends{}.text("as many as there may be"))
	call = app.next()
	if got := s.Channels(); len(got) != 1 || got["room"] != 1 {
		t.Errorf("with one channel too many it is in %v; want to be in none of those, and out of the one that it was to leave", got)
	}
	s.publish("between", "extra-0")
	s.publish("to the room", "room")
	c.wantText("to the room")
	call.ok("M0-Subscribe: " + strings.Join(names[:MaxChannels-1], ","))
	c.wantText("between")
	s.publish("to the last", names[MaxChannels-2])
	s.publish("to the room", "room")
	c.wantText("to the last", "to the room")
}

func TestSubscribe_AnEventOfAChannelThatIsLeftAndOneThatIsJoinedComesOnce(t *testing.T) {
	for _, fields := range [][]string{
		{"M0-Unsubscribe: room", "M0-Subscribe: next"},
		{"M0-Unsubscribe: room", "M0-Subscribe: room"},
		{"M0-Subscribe: room", "M0-Unsubscribe: room"},
	} {
		t.Run(strings.Join(fields, ", "), func(t *testing.T) {
			s, app := startApp(t, Config{})
			c := s.openSocket(Spec{Channels: []string{"room", "next door"}})
			c.send(clientSends{}.text("switch"))
			call := app.next()
			s.publish("to both", "room", "next")
			c.wantText("to both")
			call.ok(fields...)
			c.send(clientSends{}.text("done"))
			app.wantMessage("done").ok()
			s.publish("after", "next door")
			c.wantText("after")
		})
	}
}

func TestSocket_AClientsCloseIsAnsweredAlsoBehindWhatItHasNotRead(t *testing.T) {
	s, app := startApp(t, Config{})
	_ = app
	c := behind(s, 200)
	c.send(clientSends{}.close(1000, "enough"))
	s.untilSocketEnded(EndClient)
	for {
		op, payload, err := c.read()
		if err != nil {
			t.Fatalf("the connection ends with %v, without a close frame", err)
		}
		if op == opClose {
			if payload != "\x03\xe8" {
				t.Fatalf("the close frame says %q", payload)
			}
			break
		}
	}
	if _, err := c.in.ReadByte(); err != io.EOF {
		t.Fatalf("%v, want the end of the connection", err)
	}
}

// onLoop runs f with a hold on its loop; it has to be there.
func (s *station) onLoop(connection string, f func(h *hold)) {
	s.t.Helper()
	l, slot, generation := s.find(connection)
	found := false
	s.ask(l, func() {
		if h := l.lookup(slot, generation); h != nil {
			found = true
			f(h)
		}
	})
	if !found {
		s.t.Fatalf("there is no hold %s", connection)
	}
}

func (s *station) untilChoked(connection string) {
	s.t.Helper()
	s.until("the socket is not read any more", func() (choked bool) {
		s.onLoop(connection, func(h *hold) { choked = h.socket.choked })
		return choked
	})
}

func TestSocket_IsNotReadWhileTheAppIsSlowAndLosesNothing(t *testing.T) {
	eachConnection(t, func(t *testing.T, linked bool) {
		const messages, size = 3000, 4 << 10
		s, app := startApp(t, Config{})
		client, server := s.pair(linked, slowly)
		c := s.openSocketOn(client, server, Spec{})
		var accepted atomic.Int64
		sent := make(chan error, 1)
		go func() {
			for i := range messages {
				if _, err := client.Write(clientSends{}.binary(sentence(fmt.Sprint(i), size))); err != nil {
					sent <- err
					return
				}
				accepted.Add(size)
			}
			_, err := client.Write(clientSends{}.close(1000, ""))
			sent <- err
		}()
		first := app.next()
		s.untilChoked(first.Connection)
		s.onLoop(first.Connection, func(h *hold) {
			if most := pendingBytes + readBytes + size + messageOverhead; h.socket.pending > most {
				t.Errorf("%d bytes are pending, %d may be", h.socket.pending, most)
			}
		})
		if n := accepted.Load(); n > messages*size/8 {
			t.Errorf("%d bytes were taken from the client while the app is at its first message", n)
		}
		call := first
		for i := range messages {
			if i > 0 {
				call = app.next()
			}
			if want := sentence(fmt.Sprint(i), size); string(call.Body) != want {
				t.Fatalf("message %d is %.20q", i, call.Body)
			}
			call.ok()
		}
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
		c.wantClose(1000, "")
		s.until("every message is counted", func() bool { return s.Snapshot().Inbound["ok"] == messages })
	})
}

// A client that waits for room to write reads our close frame after it: what it
// still sends must not make our close a reset.
func TestSocket_OfAnAppThatIsDownEndsCleanWhateverItsClientStillSends(t *testing.T) {
	eachConnection(t, func(t *testing.T, linked bool) {
		s, app := startApp(t, Config{})
		client, server := s.pair(linked, slowly)
		c := s.openSocketOn(client, server, Spec{})
		sent := make(chan error, 1)
		go func() {
			for range 1000 {
				if _, err := client.Write(clientSends{}.binary(sentence("message", 4<<10))); err != nil {
					sent <- err
					return
				}
			}
			sent <- nil
		}()
		first := app.next()
		s.untilChoked(first.Connection)
		first.fail(fmt.Errorf("%w: refused", ErrDown))
		if err := <-sent; err != nil {
			t.Fatalf("the client cannot send: %v", err)
		}
		c.wantClose(1013, "overload")
		if n := s.Snapshot().Inbound["overload"]; n < 16 {
			t.Errorf("%d messages are counted as dropped, want all that were pending", n)
		}
	})
}
