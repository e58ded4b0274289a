package holds

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strconv"
	"time"
)

// socket is what a hold has beside others if it is a WebSocket (RFC 6455).
type socket struct {
	// fixed
	envelope bool      // events as JSON objects, with their ids
	mute     bool      // a message of the client is a fault: nobody is there to get it
	lane     string    // that approved the socket
	path     string    // where its messages are POSTed
	fields   []byte    // of the handshake: they go along with each message
	over     *overHTTP // WebSocket-over-HTTP; nil: M0

	// the loop's
	frames     frames
	choked     bool // the client has sent more than is taken before the app has taken some
	queued     bool // in the loop's list of sockets that have more to read
	code       uint16
	reason     string    // … of the close frame that is to be sent
	echo       []byte    // … that answers the client's
	inbound    []inbound // messages that the app has not answered yet
	underWay   int       // how many of them, from the first, have been sent to it
	pending    int       // bytes of them
	accounted  int       // what is counted of this socket among the unfinished bytes of all
	delivering bool
	gone       bool // the connection is closed; what is left are messages
}

const (
	pendingBytes = 64 << 10 // of messages of one socket; beyond, it is not read
	readBytes    = 16 << 10 // read at once, into a buffer of the loop
	readTimes    = 4        // before others get their turn
	// partingTime is how long a client may take to answer a close frame: a
	// connection that is closed before is reset by what is on its way, which can
	// eat the frame.
	partingTime = 2 * time.Second
)

// errAgain: there is nothing to read at present.
var errAgain = errors.New("nothing to read")

// closeCode is the code of a close frame for an end of our own.
func (e End) closeCode() uint16 {
	switch e {
	case EndProtocol:
		return closeProtocol
	case EndTooBig:
		return closeTooBig
	case EndPublished:
		return closeNormal
	case EndExpired:
		return closeGoingAway
	case EndDraining:
		return closeRestart
	case EndOverload, EndBusLost:
		return closeTryLater
	}
	return closeError
}

const closeGoingAway = 1001

// readable reads what a socket's client has sent, as far as its turn goes.
func (l *loop) readable(h *hold) {
	s := h.socket
	for range readTimes {
		if h.state == closed || s.choked {
			return
		}
		if h.state < leaving && s.pending >= pendingBytes {
			s.choked = true
			return
		}
		n, err := l.sockets.read(h, l.scratch)
		switch {
		case err == errAgain:
			return
		case err != nil:
			l.hangUp(h)
			return
		}
		l.receive(h, l.scratch[:n])
	}
	if !s.queued {
		s.queued = true
		l.unread = append(l.unread, h)
	}
}

// unchoke has a socket read again, where what held that up is less by half.
func (l *loop) unchoke(h *hold) {
	if s := h.socket; s.choked && s.pending < pendingBytes/2 {
		s.choked = false
		l.readable(h)
	}
}

// readOn goes on with the sockets that had more to read.
func (l *loop) readOn() {
	unread := l.unread
	l.unread = nil
	for _, h := range unread {
		h.socket.queued = false
		if h.state != closed {
			l.readable(h)
		}
	}
}

// receive takes in what a client has sent. in is used up.
func (l *loop) receive(h *hold, in []byte) {
	s := h.socket
	for len(in) > 0 && h.state != closed {
		used, m, fault := s.frames.next(in, l.limits.Load().MessageBytes)
		in = in[used:]
		if !l.account(s) && fault == nil && m.opcode == 0 {
			s.frames = frames{partial: finished} // nothing more of it is kept
			l.account(s)
			l.endSocket(h, EndOverload, closeTryLater, "")
			return
		}
		switch {
		case fault != nil && fault.code == closeTooBig:
			l.endSocket(h, EndTooBig, fault.code, "")
		case fault != nil:
			l.endSocket(h, EndProtocol, fault.code, "")
		case m.opcode == opClose:
			l.closeHeard(h, m.code)
		case h.state >= leaving: // our close frame is on its way: nothing else counts
		case m.opcode == opPing:
			l.sendBounded(h, appendFrame(nil, opPong, m.payload))
		case m.opcode == opText || m.opcode == opBinary:
			if s.over != nil && (s.over.detached || s.over.closed) {
				continue
			}
			if s.mute {
				l.endSocket(h, EndProtocol, closePolicy, "")
				continue
			}
			if !m.owned {
				m.payload = bytes.Clone(m.payload)
			}
			l.takeMessage(h, m)
		}
		if m.opcode == 0 {
			return
		}
	}
}

// unfinishedBytes bounds, of all sockets together, the messages that are not
// whole yet and those that the app has not answered.
const unfinishedBytes = 64 << 20

// account counts what a socket has of messages; false: all together have too
// much, and a message that is not whole is not waited for.
func (l *loop) account(s *socket) (fits bool) {
	now := s.frames.held() + s.pending
	total := l.counts.unfinished.Add(int64(now - s.accounted))
	s.accounted = now
	return total <= unfinishedBytes
}

// closeHeard answers a client's close frame, or ends what our own began.
func (l *loop) closeHeard(h *hold, code uint16) {
	if h.state >= leaving {
		h.socket.heard(code)
		if h.outbox == nil { // otherwise our own is still on its way
			l.hangUp(h)
		}
		return
	}
	if l.askForClose(h, code) {
		return // the app has a word in how it ends
	}
	h.socket.echo = appendFrame(nil, opClose, closePayload(code, ""))
	l.end(h, EndClient)
}

// sendBounded is send for what a client can ask for as often as it likes.
func (l *loop) sendBounded(h *hold, b []byte) {
	if o := h.outbox; o != nil && o.behind+len(b) > l.limits.Load().OutboxBytes {
		l.end(h, EndSlow)
		return
	}
	l.send(h, b)
}

// endSocket ends a socket with a close frame of its own; reason "" is the end's word.
func (l *loop) endSocket(h *hold, end End, code uint16, reason string) {
	if h.state < leaving {
		h.socket.code, h.socket.reason = code, reason
	}
	l.end(h, end)
}

// farewellFrame is the close frame of a socket that has ended.
func (s *socket) farewellFrame(end End) []byte {
	if s.echo != nil {
		return s.echo
	}
	code, reason := s.code, s.reason
	if code == 0 {
		code = end.closeCode()
	}
	if reason == "" {
		reason = end.String()
	}
	return appendFrame(nil, opClose, closePayload(code, reason))
}

// message is what goes to a socket of an event: rendered once for all of them,
// and charged to the journal, which keeps it with the event.
func (h *hub) message(e *event, envelope bool) []byte {
	form := &e.bare
	if envelope {
		form = &e.envelope
	}
	if b := form.Load(); b != nil {
		return *b
	}
	var b []byte
	if envelope {
		b = appendFrame(nil, opText, e.appendEnvelope(nil))
	} else {
		op := opText
		if e.kind == DataBinary {
			op = opBinary
		}
		b = appendFrame(make([]byte, 0, len(e.data)+maxFrameHead), op, e.data)
	}
	if form.CompareAndSwap(nil, &b) {
		h.charge(e, cap(b))
	}
	return b
}

// appendEnvelope renders the JSON object of an event.
func (e *event) appendEnvelope(dst []byte) []byte {
	dst = append(strconv.AppendInt(append(dst, `{"id":`...), e.id, 10), `,"event":`...)
	if e.name == "" {
		dst = append(dst, "null"...)
	} else {
		dst = appendJSON(dst, e.name)
	}
	switch e.kind {
	case DataBinary:
		dst = base64.StdEncoding.AppendEncode(append(dst, `,"base64":"`...), e.data)
		return append(dst, `"}`...)
	case DataJSON:
		dst = append(append(dst, `,"data":`...), e.data...)
	default:
		dst = appendJSON(append(dst, `,"data":`...), string(e.data))
	}
	return append(dst, '}')
}

// appendJSON appends a text, or a list or an object of texts and numbers, as
// JSON has it.
func appendJSON(dst []byte, v any) []byte {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		panic(err) // these have no error
	}
	return append(dst, bytes.TrimSuffix(out.Bytes(), []byte("\n"))...)
}

// appendSocket renders the answer to the handshake and, in an envelope, the
// first words: a gap before the position, so that the position does not
// replace the client's before the gap was read.
func (o *opening) appendSocket(dst []byte, envelope bool, position int64) []byte {
	dst = append(dst, o.head...)
	if !envelope {
		return dst
	}
	if o.gap {
		dst = appendFrame(dst, opText, o.appendGap(nil, position))
	}
	first := append(strconv.AppendInt([]byte(`{"id":`), position, 10), `,"event":"m0-open","data":null}`...)
	return appendFrame(dst, opText, first)
}

// appendGap renders the object that tells of a gap.
func (o *opening) appendGap(dst []byte, position int64) []byte {
	dst = append(dst, `{"id":null,"event":"m0-gap","data":`...)
	return append(appendGapData(dst, o.last, position), '}')
}

// part shuts the sending side of a socket whose close frame is out, and waits
// for the client's, for a while.
func (l *loop) part(h *hold) {
	l.sockets.shut(h)
	h.socket.choked = false // what comes now is thrown away
	l.parting = append(l.parting, parting{h.slot, h.generation, l.hub.now().Add(partingTime)})
	l.readable(h)
}

type parting struct {
	slot, generation uint32
	until            time.Time
}

// partedBy closes the sockets whose clients have not answered a close frame.
func (l *loop) partedBy(now time.Time) {
	for len(l.parting) > 0 && !now.Before(l.parting[0].until) {
		if h := l.lookup(l.parting[0].slot, l.parting[0].generation); h != nil {
			l.close(h, false)
		}
		l.parting = l.parting[1:]
	}
}

var pingFrame = appendFrame(nil, opPing, nil)
