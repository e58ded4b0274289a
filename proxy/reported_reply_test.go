package proxy_test

import (
	"fmt"
	"io"
	"testing"
)

// Faults that users of other servers have met: what an app answers to a
// message of a socket.

// However an app frames its answer to a message, its body is the reply; an
// answer that may have none gives an empty one, and a failing one gives none.
func TestSocket_AReplyIsTheAnswersBodyHoweverItIsFramed(t *testing.T) {
	const reply = "M0-Reply: text\r\n"
	s := startSockets(t)
	c := s.openSocket(t, "")
	for i, answer := range []struct {
		text, want string // want "-": no reply
		hangs      bool
	}{
		{"HTTP/1.1 200 OK\r\n" + reply + "Transfer-Encoding: chunked\r\n\r\n" + chunk("a") + chunk("b") + lastChunk, "ab", false},
		{"HTTP/1.1 200 OK\r\n" + reply + "Content-Length: 2\r\n\r\nab", "ab", false},
		{"HTTP/1.1 200 OK\r\n" + reply + "Connection: close\r\n\r\nab", "ab", true},
		{"HTTP/1.0 200 OK\r\n" + reply + "\r\nab", "ab", true},
		{"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n" + reply + "Content-Length: 2\r\n\r\nab", "ab", false},
		{"HTTP/1.1 204 No Content\r\n" + reply + "\r\n", "", false},
		{"HTTP/1.1 304 Not Modified\r\n" + reply + "\r\n", "-", false},
		{"HTTP/1.1 200 OK\r\n" + reply + "Content-Length: 0\r\n\r\n", "", false},
		{"HTTP/1.1 200 OK\r\n" + reply + "Content-Type: application/websocket-events\r\nContent-Length: 9\r\n\r\nTEXT 5\r\nx", "TEXT 5\r\nx", false},
		{"HTTP/1.1 500 Internal Server Error\r\n" + reply + "Content-Type: text/plain\r\nContent-Length: 4\r\n\r\noops", "-", false},
		{"HTTP/1.1 200 OK\r\n" + reply + "Content-Length: 5\r\n\r\nab", "-", true}, // cut
		{"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab", "-", false},
	} {
		c.say(t, clientText(fmt.Sprint(i)))
		v := s.message(t, fmt.Sprint(i))
		if answer.hangs {
			v.hangUp(answer.text)
		} else {
			v.answer(answer.text)
		}
		if answer.want != "-" {
			c.wantBytes(t, serverFrame(opText, answer.want))
		}
	}
	// The socket has stayed, and nothing was between.
	s.publish("news", "still here")
	c.wantBytes(t, serverFrame(opText, "still here"))
	until(t, "nine messages are taken and three are not", func() bool {
		inbound := s.holds.Snapshot().Inbound
		return inbound["ok"] == 9 && inbound["failed"] == 3
	})
}

// A text frame is UTF-8: a browser ends a connection that sends another.
func TestSocket_AReplyThatIsNoTextIsNotSentAsOne(t *testing.T) {
	s := startSockets(t)
	c := s.openSocket(t, clientText("1")+clientText("2"))
	s.message(t, "1").answer(ok("M0-Reply: text\r\n", "caf\xe9"))
	s.message(t, "2").answer(ok("M0-Reply: text\r\n", "caf\u00e9"))
	head := make([]byte, 2)
	if _, err := io.ReadFull(c.reader, head); err != nil {
		t.Fatal(err)
	}
	payload := make([]byte, head[1])
	if _, err := io.ReadFull(c.reader, payload); err != nil {
		t.Fatal(err)
	}
	if head[0] == 0x80|opText && string(payload) == "caf\xe9" {
		t.Errorf("the client gets % x as text", payload)
	}
}

// A message has one result, whatever its reply was.
func TestSocket_AMessageIsCountedOnce(t *testing.T) {
	s := startSockets(t)
	c := s.openSocket(t, clientText("1")+clientText("2"))
	s.message(t, "1").answer(ok("M0-Reply: text\r\n", "caf\xe9"))
	s.message(t, "2").answer(ok("M0-Reply: text\r\n", "caf\u00e9"))
	c.wantBytes(t, serverFrame(opText, "caf\u00e9"))
	results := func() uint64 {
		inbound := s.holds.Snapshot().Inbound
		return inbound["ok"] + inbound["failed"]
	}
	until(t, "both have their result", func() bool { return results() >= 2 })
	if n := results(); n != 2 {
		t.Errorf("two messages have %d results", n)
	}
}
