package holds

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
)

func TestEnd_ASocketGetsTheCodeAndTheReasonAndBeforeThemWhatWasPublished(t *testing.T) {
	eachConnection(t, func(t *testing.T, linked bool) {
		s, app := startApp(t, Config{})
		for _, end := range []struct {
			with   EndRequest
			code   uint16
			reason string
		}{
			{EndRequest{Channel: "room", Code: 4001, Reason: "bye"}, 4001, "bye"},
			{EndRequest{Channel: "room", Code: 1000}, 1000, "published"},
			{EndRequest{Channel: "room", Code: 3000, Reason: strings.Repeat("é", 61)}, 3000, strings.Repeat("é", 61)},
			{EndRequest{Channel: "room"}, 1000, "published"},
			{EndRequest{Connection: "its own", Code: 1008, Reason: "revoked"}, 1008, "revoked"},
		} {
			client, server := s.pair(linked)
			c := s.openSocketOn(client, server, Spec{})
			c.send(clientSends{}.text("who am I"))
			call := app.next()
			call.ok()
			if end.with.Connection != "" {
				end.with.Connection = call.Connection
			}
			s.publish("before it", "room")
			if n := s.End(end.with); n != 1 {
				t.Fatalf("%d were ended, want 1", n)
			}
			s.publish("after it", "room")
			c.wantText("before it")
			c.wantClose(end.code, end.reason)
			c.send(clientSends{}.close(end.code, ""))
			s.until("its answer to the close frame ends it", func() bool { return s.counts.held.Load() == 0 })
		}
		if n := s.ended(ModeWebSocket, EndPublished); n != 5 {
			t.Errorf("%d ended published, want 5", n)
		}
	})
}

func TestDrain_SocketsAreToldToComeBack(t *testing.T) {
	eachConnection(t, func(t *testing.T, linked bool) {
		var left atomic.Int64
		s := startStation(t, Config{Left: func() { left.Add(1) }})
		var clients []*socketClient
		open := func(envelope bool) *socketClient {
			client, server := s.pair(linked)
			return s.openSocketOn(client, server, Spec{Envelope: envelope})
		}
		for i := range 20 {
			clients = append(clients, open(i%2 == 0))
		}
		s.publish("before it", "room")
		s.Drain()
		for i, c := range clients {
			if i%2 == 0 {
				c.wantOpen()
				c.envelope()
			} else {
				c.wantText("before it")
			}
			c.wantClose(1012, "draining")
			c.send(clientSends{}.close(1012, ""))
		}
		late := open(true)
		late.wantOpen()
		late.wantClose(1012, "draining")
		late.conn.Close()
		s.until("all have left", func() bool { return left.Load() == 21 })
		if n := s.ended(ModeWebSocket, EndDraining); n != 21 || s.Snapshot().Sockets != 0 {
			t.Errorf("%d ended draining, want 21; %d are there", n, s.Snapshot().Sockets)
		}
	})
}

// Nothing is written to it that would show it.
func TestEnd_ASocketWhoseClientLeavesIsNoticedWithoutAWrite(t *testing.T) {
	for what, leave := range map[string]func(net.Conn){
		"a close":                     func(c net.Conn) { c.Close() },
		"a FIN":                       func(c net.Conn) { c.(*net.TCPConn).CloseWrite() },
		"a reset":                     func(c net.Conn) { c.(*net.TCPConn).SetLinger(0); c.Close() },
		"a message's half, and a FIN": func(c net.Conn) { c.Write(clientSends{}.text("hello")[:8]); c.(*net.TCPConn).CloseWrite() },
		"pings, and a close": func(c net.Conn) {
			c.Write(clientSends{}.ping("1").ping("2"))
			c.Close()
		},
	} {
		t.Run(what, func(t *testing.T) {
			eachConnection(t, func(t *testing.T, linked bool) {
				var left atomic.Int64
				s := startStation(t, Config{Left: func() { left.Add(1) }})
				client, server := s.pair(linked)
				s.openSocketOn(client, server, Spec{})
				leave(client)
				s.untilSocketEnded(EndClient)
				s.until("its connection is closed", func() bool { return left.Load() == 1 })
				if n := s.Channels()["room"]; n != 0 || s.Snapshot().Sockets != 0 {
					t.Errorf("%d are in its channel still", n)
				}
			})
		})
	}
}

func TestEnd_AClientThatNeverReadsIsResetAndTheOthersGetAll(t *testing.T) {
	s := startStation(t, Config{OutboxBytes: 16 << 10, WriteStall: deadline})
	never := s.openSocket(Spec{}, tight)
	reads := s.openSocket(Spec{})
	most := int64(0)
	for i := 0; s.ended(ModeWebSocket, EndSlow) == 0; i++ {
		if i == 10_000 {
			t.Fatal("it is not ended")
		}
		data := sentence(fmt.Sprint(i), 1<<10)
		s.publish(data, "room")
		reads.wantText(data)
		most = max(most, s.Snapshot().OutboxBytes)
	}
	if most > 18<<10 {
		t.Errorf("up to %d bytes waited, of %d", most, 16<<10)
	}
	never.wantReset()
	s.publish("the last", "room")
	reads.wantText("the last")
}

// A flood that is read is served, and others with it; one that is not ends.
func TestEnd_AFloodOfPingsIsServedAsLongAsItsPongsAreRead(t *testing.T) {
	const pings = 20_000
	s := startStation(t, Config{WriteStall: deadline})
	var flood clientSends
	for i := range pings {
		flood = flood.ping(fmt.Sprintf("%05d", i))
	}
	reads, never, other := s.openSocket(Spec{}), s.openSocket(Spec{}, tight), s.openSocket(Spec{Channels: []string{"other"}})
	sent, read := make(chan error, 1), make(chan struct{}, 4+pings/1000)
	for range 4 { // thousands that may be under way: their pongs are less than the bound
		read <- struct{}{}
	}
	go func() { sent <- sendAsRead(reads.conn, flood, 1000*11, read) }()
	for i := range pings {
		reads.want(opPong, fmt.Sprintf("%05d", i))
		if i%1000 == 999 {
			s.publish("event", "other")
			other.wantText("event")
			read <- struct{}{}
		}
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	most := int64(0)
	for s.ended(ModeWebSocket, EndSlow) == 0 {
		if _, err := never.conn.Write(flood[:5000*11]); err != nil {
			break
		}
		most = max(most, s.Snapshot().OutboxBytes)
	}
	s.untilSocketEnded(EndSlow)
	if most > 80<<10 {
		t.Errorf("up to %d bytes waited for the client that reads no pong", most)
	}
	if _, err := io.Copy(io.Discard, never.conn); err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("its connection ends with %v", err)
	}
	s.publish("event", "other")
	other.wantText("event")
}

// sendAsRead sends a piece whenever something has been read.
func sendAsRead(conn net.Conn, b []byte, piece int, read <-chan struct{}) error {
	for ; len(b) > 0; b = b[min(piece, len(b)):] {
		<-read
		if _, err := conn.Write(b[:min(piece, len(b))]); err != nil {
			return err
		}
	}
	return nil
}

func TestClose_CutsSocketsAndSaysThatTheyLeft(t *testing.T) {
	eachConnection(t, func(t *testing.T, linked bool) {
		var left atomic.Int64
		s, app := startApp(t, Config{Left: func() { left.Add(1) }})
		var clients []*socketClient
		for range 10 {
			client, server := s.pair(linked)
			clients = append(clients, s.openSocketOn(client, server, Spec{}))
		}
		clients[0].send(clientSends{}.text("under way").text("behind it"))
		app.wantMessage("under way") // which it never answers
		s.Close()
		for _, c := range clients {
			if _, err := io.Copy(io.Discard, c.conn); err != nil && !errors.Is(err, syscall.ECONNRESET) {
				t.Fatalf("its connection ends with %v", err)
			}
		}
		if n := left.Load(); n != 10 {
			t.Errorf("%d have left, want 10", n)
		}
		if n := s.Snapshot().Inbound["overload"]; n < 1 || n > 2 {
			t.Errorf("%d messages are counted as not delivered, want those that were read", n)
		}
		if n := s.Snapshot().Sockets; n != 0 {
			t.Errorf("%d sockets are counted still", n)
		}
	})
}
