package holds

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Faults that users of other servers have met: one client's trouble that
// became everybody's.

// counter reads numbered events of a hold of either kind, and counts each.
type counter interface {
	countAll(got []atomic.Int64) error
	hangUp(reset bool)
}

func (c *streamClient) countAll(got []atomic.Int64) error { return c.count(got) }

func (c *streamClient) hangUp(reset bool) { hangUp(c.conn, reset) }

func (c *socketClient) countAll(got []atomic.Int64) error {
	for i := 0; i < len(got); {
		op, payload, err := c.read()
		switch {
		case err != nil:
			return err
		case op == opPing:
		case op != opText || !strings.HasPrefix(payload, fmt.Sprintf("%04d ", i)):
			return fmt.Errorf("opcode %X with %.20q where %d was due", byte(op), payload, i)
		default:
			got[i].Add(1)
			i++
		}
	}
	return nil
}

func (c *socketClient) hangUp(reset bool) { hangUp(c.conn, reset) }

func hangUp(conn net.Conn, reset bool) {
	if reset {
		conn.(*net.TCPConn).SetLinger(0)
	}
	conn.Close()
}

// openMany opens streams and sockets in turn.
func (s *station) openMany(n int, shape ...func(client, server net.Conn)) (clients []counter) {
	s.t.Helper()
	for i := range n {
		if i%2 == 0 {
			clients = append(clients, s.open(Spec{Channels: []string{"a"}, Chunked: i%4 == 0}, shape...))
		} else {
			clients = append(clients, s.openSocket(Spec{Channels: []string{"a"}}, shape...))
		}
	}
	return clients
}

// numberedEvent has a number in front and is so long.
func numberedEvent(i, size int) string { return fmt.Sprintf("%04d %s", i, strings.Repeat("x", size)) }

// Streams and sockets of one channel, with heartbeats between: three stop
// reading and are ended, the others have everything.
func TestHolds_WhoStopsReadingIsEndedAndNobodyOfEitherKindMissesAnything(t *testing.T) {
	const others, silent, events, size, window = 96, 3, 200, 4 << 10, 4
	s := startStation(t, Config{OutboxBytes: 32 << 10, WriteStall: deadline, Heartbeat: 50 * time.Millisecond})
	s.openMany(silent, tight)
	var got [events]atomic.Int64
	var reading sync.WaitGroup
	failed := make(chan error, others)
	for _, c := range s.openMany(others) {
		reading.Go(func() {
			if err := c.countAll(got[:]); err != nil {
				failed <- err
			}
		})
	}
	for i := range events {
		s.publish(numberedEvent(i, size), "a")
		s.until("the others have what was published", func() bool {
			return i < window || got[i-window].Load() == others || len(failed) > 0
		})
	}
	reading.Wait()
	for range min(len(failed), 5) {
		t.Error("one that reads:", <-failed)
	}
	s.until("the three are ended", func() bool {
		ended := s.Snapshot().Ended
		return ended[ModeStream][EndSlow.String()] == 2 && ended[ModeWebSocket][EndSlow.String()] == 1
	})
	if snapshot := s.Snapshot(); snapshot.Streams+snapshot.Sockets != others {
		t.Errorf("%d streams and %d sockets are held, want %d in all", snapshot.Streams, snapshot.Sockets, others)
	}
}

// Half of all are reset while events are on their way to them: each of the
// others has all of them.
func TestHolds_WhoIsResetInABurstTakesNothingFromTheOthers(t *testing.T) {
	const clients, events, from = 200, 500, 100
	s := startStation(t, Config{OutboxBytes: 64 << 20, WriteStall: deadline})
	all := s.openMany(clients)
	s.untilLive(clients) // who is not may be slow: the journal has 256 of the events
	leavers, stayers := all[:clients/2], all[clients/2:]
	var got [events]atomic.Int64
	var reading sync.WaitGroup
	failed := make(chan error, clients)
	for _, c := range stayers {
		reading.Go(func() {
			if err := c.countAll(got[:]); err != nil {
				failed <- err
			}
		})
	}
	begin := make(chan struct{})
	reading.Go(func() {
		<-begin
		for _, c := range leavers {
			c.hangUp(true)
		}
	})
	for i := range events {
		if i == from {
			close(begin)
		}
		s.publish(numberedEvent(i, 100), "a")
	}
	reading.Wait()
	for range min(len(failed), 5) {
		t.Error("one that stayed:", <-failed)
	}
	s.until("those that left are no members", func() bool { return s.Channels()["a"] == len(stayers) })
	for i := range got {
		if n := got[i].Load(); n != int64(len(stayers)) {
			t.Fatalf("event %d came to %d of %d", i, n, len(stayers))
		}
	}
}
