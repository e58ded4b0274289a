package holds

import (
	"context"
	"errors"
	"fmt"
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

// Request is what holds ask of the app: a socket's messages, what is missing
// of a GRIP stream.
type Request struct {
	// Lane is the name of the lane that it goes through; "", or one that is
	// gone: that of the route which takes it.
	Lane           string
	Method, Target string
	// Fields are lines with their CRLF, Host first. Framing, and what every
	// request to the app is told, is the sender's to add.
	Fields []byte
	// Body is sent with its length; nil: there is none.
	Body []byte
	// Connection names the hold, for the log.
	Connection string
}

// Answer is what the app said to a Request.
type Answer struct {
	Status int
	// Fields and Body are the answer's; they are the receiver's.
	Fields []http1.Field
	Body   []byte
	// Position is where the events stood when the request was sent to the app.
	Position int64
}

// The errors of a Forward, besides those of an exchange that the app may have
// seen. ErrUnseen: the app has seen no byte of the request, which may be sent
// again. ErrDown: nor will it, the app has been away for too long. ErrStopping:
// nor will it, the process stops.
var (
	ErrUnseen   = errors.New("the app has not seen the request")
	ErrDown     = errors.New("the app is down")
	ErrStopping = errors.New("the process stops")
)

// Forward sends a request to the app through a lane and reads the answer
// whole. It waits for its turn in the lane's queue.
type Forward func(ctx context.Context, request *Request) (Answer, error)

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

// deliverNext sends what the client has sent to the app, in a goroutine that
// ends with the app's answer: a socket has one only while it has messages.
func (l *loop) deliverNext(h *hold) {
	s := h.socket
	s.delivering = true
	var request *Request
	if s.over != nil {
		request, s.underWay = l.eventsRequest(h)
	} else {
		request, s.underWay = l.messageRequest(h), 1
	}
	go l.forward(h, request)
}

// messageRequest is the POST of a socket's first message.
func (l *loop) messageRequest(h *hold) *Request {
	s, m := h.socket, &h.socket.inbound[0]
	kind := "text/plain; charset=utf-8"
	if m.opcode == opBinary {
		kind = "application/octet-stream"
	}
	name := l.connection(h)
	fields := fmt.Appendf(slices.Clip(s.fields), "Content-Type: %s\r\nM0-Channel: %s\r\nM0-Connection: %s\r\nM0-Slot: %s\r\nM0-Opcode: %d\r\n",
		kind, EncodeChannels(h.channels()), name, name, m.opcode)
	return &Request{Lane: s.lane, Method: "POST", Target: s.path, Fields: fields, Body: body(m.payload), Connection: name}
}

// body is a request's body, which is there although it may be empty.
func body(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// failedPause is between a message that was cut and the next: a process that is
// killed loses its connections some milliseconds before its listener, which
// would take the next message along too.
const failedPause = 100 * time.Millisecond

// unseenPause is between two tries of a request that the app has not seen.
const unseenPause = 50 * time.Millisecond

// ask sends a request until the app has seen it, or never will.
func (hm *home) ask(request *Request) (Answer, error) {
	forward := hm.limits.Load().Forward
	answer, err := forward(hm.ctx, request)
	for errors.Is(err, ErrUnseen) && hm.ctx.Err() == nil {
		<-time.After(unseenPause)
		answer, err = forward(hm.ctx, request)
	}
	return answer, err
}

// forward sends a socket's message.
func (l *loop) forward(h *hold, request *Request) {
	answer, err := l.home.ask(request)
	if err != nil && !errors.Is(err, ErrUnseen) && !errors.Is(err, ErrDown) && !errors.Is(err, ErrStopping) {
		<-time.After(failedPause)
	}
	l.hub.call(l, func() { l.answered(h, answer, err) })
}

// answered goes on after the app's answer to what a socket has sent first.
func (l *loop) answered(h *hold, a Answer, err error) {
	s := h.socket
	s.delivering = false
	n, messages, closing := s.underWay, s.messages(s.underWay), false
	for i := range n {
		closing = closing || s.inbound[i].opcode == opClose
		s.pending -= len(s.inbound[i].payload) + messageOverhead
		s.inbound[i] = inbound{}
	}
	s.inbound = s.inbound[n:]
	l.account(s)
	result := inboundOK
	switch {
	case errors.Is(err, ErrDown), errors.Is(err, ErrStopping), errors.Is(err, ErrUnseen):
		l.overload(h, messages, err)
		return
	case err != nil:
		result = inboundFailed
		l.home.log.Warn("an inbound message has no answer of the app", zap.String("hold", l.connection(h)), zap.Error(err))
	case a.Status >= 300: // a redirect to a login page is no answer either
		result = inboundFailed
		l.home.log.Warn("the app did not take an inbound message", zap.String("hold", l.connection(h)), zap.Int("status", a.Status))
	case h.state < leaving && !l.obeyAny(h, a):
		result = inboundFailed
	}
	l.counts.inbound[result].Add(uint64(messages))
	if closing {
		l.closeAnswered(h)
	}
	if result == inboundFailed && s.over != nil { // the app and its client may not be of one mind any more
		l.end(h, EndError)
	}
	if len(s.inbound) > 0 {
		l.deliverNext(h)
	} else {
		s.inbound = nil
		l.orphanDone(s)
	}
	l.unchoke(h)
}

// messages is how many of the first n that wait are messages of the client, and
// not only to tell the app of its coming and going.
func (s *socket) messages(n int) (messages int) {
	for _, m := range s.inbound[:n] {
		if m.opcode == opText || m.opcode == opBinary {
			messages++
		}
	}
	return messages
}

// obeyAny does what the app's answer says; false: it could not be done.
func (l *loop) obeyAny(h *hold, a Answer) bool {
	if h.socket.over != nil {
		return l.obeyAnswer(h, a)
	}
	return l.obey(h, a)
}

// overload drops a socket's messages, which the app will not get, and says so.
func (l *loop) overload(h *hold, underWay int, err error) {
	s := h.socket
	l.counts.inbound[inboundOverload].Add(uint64(underWay + s.messages(len(s.inbound))))
	s.inbound, s.pending = nil, 0
	l.account(s)
	end := EndOverload
	if errors.Is(err, ErrStopping) {
		end = EndDraining
	}
	l.orphanDone(s)
	if s.over != nil && s.over.closed { // its client ended it, and waits for the answer to that
		l.closeAnswered(h)
		return
	}
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
		l.tellGap(h, position, h.seatAt(before).from)
	}
	if h.state == live {
		h.state = catching
		l.enqueue(h)
	}
	l.endIfRevoked(h, position)
	for _, e := range missed { // the hold's cursor is beyond all of these
		if h.state < leaving {
			l.give(h, e)
		}
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
