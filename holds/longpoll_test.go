package holds

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// A hundred polls of one channel are walked in slices: two events are under way
// at once. Over pipes, so that they surely are.
func TestPoll_OfTwoEventsAtOnceTheFirstIsTheAnswerWhenAWalkIsInSlices(t *testing.T) {
	clock := fakeClock{}
	hub := newHub(Config{}.withDefaults().Journal, 7, clock.now)
	l := testLoops(hub, 1, Config{})[0]
	position := hub.head.Load()
	var all []*pipe
	for range 3 * l.pace.slice {
		h := &hold{kind: ModeResponse, descriptor: -1, poll: &poll{head: []byte(pollHead), deadline: clock.at}}
		p := &pipe{room: -1}
		l.sockets.(*pipes).of[h] = p
		all = append(all, p)
		hub.join(h, l, []string{"room"}, &opening{from: position, last: position})
	}
	for l.turn() {
	}
	first, second := text("first", "room"), text("second", "room")
	id, _ := hub.publish(encode(&first), first.Channels)
	hub.publish(encode(&second), second.Channels)
	for l.turn() {
	}
	for i, p := range all {
		if answer := string(p.bytes); !strings.HasSuffix(answer, "\r\n\r\nfirst") || !strings.Contains(answer, fmt.Sprintf("\r\nM0-Event-Id: %d\r\n", id)) {
			t.Fatalf("poll %d of %d got %q; want the first event, %d: it would come back behind what it got, and lose it", i, len(all), answer, id)
		}
	}
}

// each runs a test of long polls over a descriptor (or what the build has) and
// over a link.
func eachConnection(t *testing.T, test func(t *testing.T, linked bool)) {
	t.Run("descriptor", func(t *testing.T) { test(t, false) })
	t.Run("link", func(t *testing.T) { test(t, true) })
}

func TestPoll_ItsConnectionComesBackOnlyWhenTheWholeAnswerIsOut(t *testing.T) {
	eachConnection(t, func(t *testing.T, linked bool) {
		back := make(chan struct{})
		s := startStation(t, Config{Return: func(conn net.Conn, _ []byte) {
			conn.Close() // as a server does that drains, or has read its client's last request
			close(back)
		}})
		c := s.openPoll(Spec{KeepAlive: true}, linked, slowly)
		data := sentence("large", MaxData)
		id := s.publish(data, "room")
		s.until("the poll is over", func() bool { return s.ended(ModeResponse, EndPublished) == 1 })
		c.wantAnswer(data, fmt.Sprint(id), false)
		c.wantEnd()
		<-back
	})
}

// It comes back with the id of what it got: whatever it did not get before that
// one is lost.
func TestPoll_OfSeveralEventsThatItMissedTheFirstIsTheAnswer(t *testing.T) {
	s := startStation(t, Config{})
	last := s.Position()
	first := s.publish("first", "room")
	s.publish("second", "room")
	s.publish("third", "room")
	s.openPoll(Spec{Last: fmt.Sprint(last)}, false).wantAnswer("first", fmt.Sprint(first), false)
}

// slowly keeps what the kernel takes on its way far below a large event.
func slowly(client, server net.Conn) {
	for _, end := range []net.Conn{client, server} {
		end.(*net.TCPConn).SetReadBuffer(64 << 10)
		end.(*net.TCPConn).SetWriteBuffer(64 << 10)
	}
}

func TestPoll_GoesOnAsHTTPAndNothingOfWhatItsClientSentIsLost(t *testing.T) {
	eachConnection(t, func(t *testing.T, linked bool) {
		s, back := startReturning(t, Config{})
		c := s.openPoll(Spec{KeepAlive: true, Early: []byte("GET /pipelined ")}, linked)
		if _, err := c.conn.Write([]byte("HTTP/1.1\r\n")); err != nil {
			t.Fatal(err)
		}
		id := s.publish("first", "room")
		c.wantAnswer("first", fmt.Sprint(id), false)
		r := <-back
		if _, err := c.conn.Write([]byte("Host: a\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		r.conn.SetDeadline(time.Now().Add(deadline))
		want := "GET /pipelined HTTP/1.1\r\nHost: a\r\n\r\n"
		rest := make([]byte, len(want)-len(r.early))
		if _, err := io.ReadFull(r.conn, rest); err != nil || string(r.early)+string(rest) != want {
			t.Fatalf("%q and %q, %v; want %q", r.early, rest, err, want)
		}
		last := s.publish("second", "room")
		s.pollOn(r.conn, Spec{Last: fmt.Sprint(id)})
		c.wantAnswer("second", fmt.Sprint(last), false)
		c.wantEnd()
	})
}
