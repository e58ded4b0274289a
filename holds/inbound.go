package holds

import (
	"context"
	"errors"
	"slices"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"

	"holdfast/internal/http1"
)

// inbound is one message of a socket's client that the app has not answered.
type inbound struct {
	opcode  opcode
	payload []byte
}

// Inbound is a message of a held socket on its way to the app.
type Inbound struct {
	// Lane is the name of the lane that approved the socket, and Path where the
	// message is POSTed.
	Lane, Path string
	// Fields are those of the handshake that go along, each line with its CRLF.
	Fields []byte
	// Channels are the socket's, as a header has them; Connection names it.
	Channels, Connection string
	// Binary: the message was one; otherwise Payload is UTF-8.
	Binary  bool
	Payload []byte
}

// Answer is what the app said to an inbound message.
type Answer struct {
	Status int
	// Fields and Body are the answer's; they are the receiver's.
	Fields []http1.Field
	Body   []byte
	// Position is where the events stood when the message was sent to the app.
	Position int64
}

// The errors of a Forward, besides those of an exchange that the app may have
// seen. ErrUnseen: the app has seen no byte of the message, which may be sent
// again. ErrDown: nor will it, the app has been away for too long. ErrStopping:
// nor will it, the process stops.
var (
	ErrUnseen   = errors.New("the app has not seen the message")
	ErrDown     = errors.New("the app is down")
	ErrStopping = errors.New("the process stops")
)

// Forward sends an inbound message to the app through a lane and reads the
// answer whole. It waits for its turn in the lane's queue.
type Forward func(ctx context.Context, message *Inbound) (Answer, error)

// The results of inbound messages: a closed list, for metrics.
const (
	inboundOK       = iota // the app answered 2xx
	inboundFailed          // the app answered, or was cut, after it had seen the message
	inboundOverload        // the app did not get it: it was down, or the process stopped
	inboundResults
)

var inboundWords = [inboundResults]string{"ok", "failed", "overload"}

// takeMessage takes a message in, behind those that the app has not answered yet.
func (l *loop) takeMessage(h *hold, m message) {
	s := h.socket
	s.inbound = append(s.inbound, inbound{m.opcode, m.payload})
	s.pending += len(m.payload) + messageOverhead
	if !s.delivering {
		l.deliverNext(h)
	}
}

// messageOverhead is what a message counts for beside its payload, so that
// empty ones are bounded too.
const messageOverhead = 64

// deliverNext sends the first message to the app, in a goroutine that ends
// with the app's answer: a socket has one only while it has messages.
func (l *loop) deliverNext(h *hold) {
	s := h.socket
	s.delivering = true
	m := &Inbound{Lane: s.lane, Path: s.path, Fields: s.fields, Connection: l.connection(h),
		Channels: EncodeChannels(h.channels()), Binary: s.inbound[0].opcode == opBinary, Payload: s.inbound[0].payload}
	go l.forward(h, m)
}

// failedPause is between a message that was cut and the next: a process that is
// killed loses its connections some milliseconds before its listener, which
// would take the next message along too.
const failedPause = 100 * time.Millisecond

// unseenPause is between two tries of a message that the app has not seen.
const unseenPause = 50 * time.Millisecond

// forward sends a message until the app has seen it, or never will.
func (l *loop) forward(h *hold, m *Inbound) {
	forward := l.limits.Load().Forward
	answer, err := forward(l.home.ctx, m)
	for errors.Is(err, ErrUnseen) && l.home.ctx.Err() == nil {
		<-time.After(unseenPause)
		answer, err = forward(l.home.ctx, m)
	}
	if err != nil && !errors.Is(err, ErrUnseen) && !errors.Is(err, ErrDown) && !errors.Is(err, ErrStopping) {
		<-time.After(failedPause)
	}
	l.hub.call(l, func() { l.answered(h, answer, err) })
}

// answered goes on after the app's answer to a socket's first message.
func (l *loop) answered(h *hold, a Answer, err error) {
	s := h.socket
	s.delivering = false
	s.pending -= len(s.inbound[0].payload) + messageOverhead
	l.account(s)
	s.inbound[0] = inbound{}
	s.inbound = s.inbound[1:]
	switch {
	case errors.Is(err, ErrDown), errors.Is(err, ErrStopping), errors.Is(err, ErrUnseen):
		l.overload(h, err)
		return
	case err != nil:
		l.counts.inbound[inboundFailed].Add(1)
		l.home.log.Warn("an inbound message has no answer of the app", zap.String("hold", l.connection(h)), zap.Error(err))
	case a.Status >= 300: // a redirect to a login page is no answer either
		l.counts.inbound[inboundFailed].Add(1)
		l.home.log.Warn("the app did not take an inbound message", zap.String("hold", l.connection(h)), zap.Int("status", a.Status))
	case h.state < leaving && !l.obey(h, a):
		l.counts.inbound[inboundFailed].Add(1)
	default:
		l.counts.inbound[inboundOK].Add(1)
	}
	if len(s.inbound) > 0 {
		l.deliverNext(h)
	} else {
		s.inbound = nil
		l.orphanDone(s)
	}
	l.unchoke(h)
}

// overload drops a socket's messages, which the app will not get, and says so.
func (l *loop) overload(h *hold, err error) {
	s := h.socket
	l.counts.inbound[inboundOverload].Add(uint64(1 + len(s.inbound)))
	s.inbound, s.pending = nil, 0
	l.account(s)
	end := EndOverload
	if errors.Is(err, ErrStopping) {
		end = EndDraining
	}
	l.orphanDone(s)
	l.end(h, end)
}

// orphanDone counts a socket that is no more, now that its messages are not either.
func (l *loop) orphanDone(s *socket) {
	if s.gone {
		delete(l.orphans, s)
		l.left()
	}
}

// obey does what the app's answer to a message says; false: its reply could
// not be sent.
func (l *loop) obey(h *hold, a Answer) (sent bool) {
	sent = true
	reply := ParseReply(a.Fields)
	if reply.BadChannels > 0 {
		l.home.log.Warn("channel names that are none were left out", zap.String("hold", l.connection(h)), zap.Int("names", reply.BadChannels))
	}
	switch {
	case opcode(reply.Opcode) == opText && !utf8.Valid(a.Body): // a browser would end the connection
		sent = false
		l.home.log.Warn("a reply of text is not UTF-8, it is not sent", zap.String("hold", l.connection(h)))
	case reply.Opcode != 0:
		l.sendBounded(h, appendFrame(nil, opcode(reply.Opcode), a.Body))
	}
	if h.state < leaving {
		l.resubscribe(h, &reply, a.Position)
	}
	if reply.Close != 0 {
		l.endSocket(h, EndPublished, uint16(reply.Close), reply.CloseReason)
	}
	return sent
}

// resubscribe has a socket leave channels and join others, at a position.
// What it joins is looked at while it is still in what it leaves: of an event
// that both have it is known then whether it had it.
func (l *loop) resubscribe(h *hold, reply *Reply, position int64) {
	leaves := slices.DeleteFunc(reply.Unsubscribe, func(name string) bool {
		return !h.inChannel(name) || slices.Contains(reply.Subscribe, name)
	})
	if len(leaves) > 0 && h.state == live {
		l.owed(h, l.hub.head.Load()+1) // what was published before is on its way
	}
	joins := slices.DeleteFunc(reply.Subscribe, h.inChannel)
	if h.seats()-len(leaves)+len(joins) > MaxChannels {
		l.home.log.Warn("a socket would be in more than 64 channels, it joins none of these", zap.String("hold", l.connection(h)), zap.Int("channels", len(joins)))
		joins = nil
	}
	if len(joins) > 0 {
		l.subscribe(h, joins, position)
	}
	l.unsubscribe(h, leaves)
}

// subscribe has a socket join channels that it is not in, at a position. It is
// fed from the journal again then, which has what its inbox has not.
func (l *loop) subscribe(h *hold, names []string, position int64) {
	before := h.seats()
	missed, gap := l.hub.subscribe(h, l, names, position)
	for i := before; i < h.seats(); i++ {
		l.enter(h, h.seatAt(i))
	}
	if gap && !h.socket.envelope { // it cannot be told
		l.end(h, EndSlow)
		return
	}
	if gap {
		l.counts.gaps.Add(1)
		o := opening{last: position}
		l.send(h, appendFrame(nil, opText, o.appendGap(nil, h.seatAt(before).from)))
	}
	if len(missed) > 0 {
		l.sendEvents(h, missed...)
	}
	if h.state == live {
		h.state = catching
		l.enqueue(h)
	}
}

// unsubscribe has a socket leave channels.
func (l *loop) unsubscribe(h *hold, names []string) {
	for _, name := range names {
		for i := range h.seats() {
			s := h.seatAt(i)
			if s.room.name != name {
				continue
			}
			l.leave(h, s)
			l.hub.leaveRoom(l, s.room)
			h.vacate(i)
			break
		}
	}
}
