package holds

import (
	"testing"
)

// openSocket has a socket join, fed from the head, whose messages go nowhere.
func (s *stage) openSocket(room int, envelope bool, channels ...string) (*hold, *pipe) {
	h, p := &hold{kind: ModeWebSocket, descriptor: -1, socket: &socket{envelope: envelope, mute: true}}, &pipe{room: room}
	s.loop.sockets.(*pipes).of[h] = p
	s.hub.join(h, s.loop, channels, &opening{from: s.hub.head.Load(), last: s.hub.head.Load()})
	return h, p
}

// say has a socket's client send frames.
func (s *stage) say(h *hold, frames clientSends) {
	p := s.loop.sockets.(*pipes).of[h]
	p.sent = append(p.sent, frames...)
	s.loop.readable(h)
	s.loop.bury()
	s.rest()
}

// frames has a socket's client read all that it was sent.
func (s *stage) frames(t *testing.T, h *hold) (got clientGets) {
	t.Helper()
	for sent := []byte(s.take(h, 1<<30)); len(sent) > 0; {
		f, size := readServerFrame(t, sent)
		got, sent = append(got, f), sent[size:]
	}
	return got
}

// socketsEnded is how many sockets ended for a reason.
func (s *stage) socketsEnded(reason End) uint64 {
	return s.loop.counts.ended[ModeWebSocket][reason].Load()
}

// answer has the app answer a message of a socket's client.
func (s *stage) answer(h *hold, a Answer) {
	h.socket.delivering, h.socket.underWay = true, 1 // by the test, and not by a goroutine
	s.loop.takeMessage(h, message{opcode: opText, payload: []byte("a message")})
	s.loop.answered(h, a, nil)
	s.loop.bury()
	s.rest()
}
