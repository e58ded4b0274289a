package holds

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"go.uber.org/zap"

	"holdfast/internal/http1"
)

// overHTTP is what a socket has beside others if its app speaks
// WebSocket-over-HTTP: what its client sends goes to the app as events in the
// body of a POST to the socket's own address, and the events of the answer go
// to the client.
type overHTTP struct {
	// fixed
	id     string // the Connection-Id
	prefix string // of messages for the client; what begins with "c:" is for us
	grip   bool   // the app has the grip extension: without it everything is for the client

	// the loop's
	meta     []http1.Field // what the app has us keep, and give back with each request
	detached bool          // the app wants nothing of the client any more
	closed   bool          // the client has sent its close frame, with code
	code     uint16
	told     bool // the last event is on its way to the app, or not wanted any more
}

// OverHTTP is what a handshake in WebSocket-over-HTTP has led to.
type OverHTTP struct {
	// Connection is the Connection-Id that the app was told.
	Connection string
	// Answer is the app's, to the OPEN event.
	Answer Answer
}

// What stands among a socket's messages and is none: the client's going without
// a close frame, and nothing, so that the app can say what it has.
const (
	opGone opcode = 0xF
	opPoke opcode = 0xE
)

// batchBytes is how much goes to the app at once, the first message in any case.
const batchBytes = 200_000

// EventsType is the type of bodies that are events of a socket.
const EventsType = "application/websocket-events"

// OpenRequest is the first request of a socket: its fields are the handshake's.
func OpenRequest(dst []byte, connection string) (fields, body []byte) {
	return appendEventsFields(dst, connection, nil), appendSocketEvent(nil, socketEvent{kind: eventOpen, null: true})
}

// GoneRequest tells the app of a socket that it has opened and that nobody holds.
func GoneRequest(spec *Spec) *Request {
	o := overHTTP{id: spec.OverHTTP.Connection}
	o.keep(spec.OverHTTP.Answer.Fields)
	return &Request{Lane: spec.Lane, Method: "POST", Target: spec.Path, Fields: appendEventsFields(slices.Clip(spec.Fields), o.id, o.meta),
		Body: appendSocketEvent(nil, socketEvent{kind: eventDisconnect, null: true})}
}

func appendEventsFields(dst []byte, connection string, meta []http1.Field) []byte {
	dst = fmt.Appendf(dst, "Sec-WebSocket-Extensions: grip\r\nContent-Type: %s\r\nAccept: %s\r\nConnection-Id: %s\r\n", EventsType, EventsType, connection)
	for _, m := range meta {
		dst = fmt.Appendf(dst, "Meta-%s: %s\r\n", m.Name, m.Value)
	}
	return dst
}

// Opens reports whether the app's answer to an OPEN event opens the socket.
// Otherwise the client is to get that answer.
func (a *Answer) Opens() bool {
	if a.Status != 200 || !a.hasEvents() {
		return false
	}
	events, err := decodeSocketEvents(a.Body)
	return err == nil && len(events) > 0 && events[0].kind == eventOpen
}

// hasEvents reports whether an answer's body is events; parameters of the type
// are of no account.
func (a *Answer) hasEvents() bool {
	for _, f := range a.Fields {
		if http1.EqualFold(f.Name, "content-type") {
			kind, _, _ := strings.Cut(string(f.Value), ";")
			return http1.EqualFold(http1.TrimSpace([]byte(kind)), EventsType)
		}
	}
	return false
}

// newOverHTTP makes it of the app's answer to OPEN.
func newOverHTTP(in *OverHTTP) *overHTTP {
	o := &overHTTP{id: in.Connection}
	o.grip, o.prefix = gripExtension(in.Answer.Fields)
	return o
}

// keep keeps what an answer has us keep. Names are compared without case.
func (o *overHTTP) keep(fields []http1.Field) {
	for _, f := range fields {
		if !http1.HasPrefixFold(f.Name, "set-meta-") || len(f.Name) == len("set-meta-") {
			continue
		}
		name := strings.ToLower(string(f.Name[len("set-meta-"):]))
		o.meta = slices.DeleteFunc(o.meta, func(m http1.Field) bool { return string(m.Name) == name })
		if len(f.Value) > 0 && len(o.meta) < metaMost {
			o.meta = append(o.meta, http1.Field{Name: []byte(name), Value: slices.Clone(f.Value)})
		}
	}
}

// metaMost bounds what is kept for the app of one socket.
const metaMost = 64

// eventsRequest is the POST of what a socket's client has sent: as many
// messages as go into one request. n is how many they are.
func (l *loop) eventsRequest(h *hold) (request *Request, n int) {
	s := h.socket
	events := []byte{}
	for ; n < len(s.inbound) && (n == 0 || len(events)+len(s.inbound[n].payload) <= batchBytes); n++ {
		m := s.inbound[n]
		e := socketEvent{content: m.payload}
		switch m.opcode {
		case opText:
			e.kind = eventText
		case opBinary:
			e.kind = eventBinary
		case opClose:
			e.kind, e.null = eventClose, len(m.payload) == 0
		case opGone:
			e.kind, e.null = eventDisconnect, true
		default: // opPoke
			continue
		}
		events = appendSocketEvent(events, e)
	}
	fields := appendEventsFields(slices.Clip(s.fields), s.over.id, s.over.meta)
	return &Request{Lane: s.lane, Method: "POST", Target: s.path, Fields: fields, Body: events, Connection: l.connection(h)}, n
}

// poke asks the app for what it has to say, with no event.
func (l *loop) poke(h *hold) {
	s := h.socket
	if s.over == nil || s.over.told || s.over.detached || len(s.inbound) > s.underWay && s.delivering {
		return // what waits asks as well
	}
	l.takeMessage(h, message{opcode: opPoke})
}

// heard notes a client's close frame.
func (s *socket) heard(code uint16) {
	if o := s.over; o != nil && !o.closed {
		o.closed, o.code = true, code
	}
}

// askForClose tells the app of its client's close frame, which is answered when
// the app has answered; false: there is no app to ask.
func (l *loop) askForClose(h *hold, code uint16) bool {
	o := h.socket.over
	if o == nil || o.detached || o.told {
		return o != nil && o.told
	}
	h.socket.heard(code)
	o.told = true
	l.takeMessage(h, o.closing())
	return true
}

// closing is the client's close frame as a message for the app. A reason would
// cost the app's libraries the code.
func (o *overHTTP) closing() message {
	m := message{opcode: opClose}
	if o.code != 0 {
		m.payload = closePayload(o.code, "")
	}
	return m
}

// closeAnswered answers a client's close frame, as the app has it: with its
// close event or, where it has none, with the client's own code.
func (l *loop) closeAnswered(h *hold) {
	if h.state < leaving {
		h.socket.echo = appendFrame(nil, opClose, closePayload(h.socket.over.code, ""))
		l.end(h, EndClient)
	}
}

// lastEvent tells the app of a socket's end: of its client's close frame, or
// that the client has gone.
func (l *loop) lastEvent(h *hold) {
	o := h.socket.over
	if o.told || o.detached || l.stopped {
		return
	}
	o.told = true
	m := message{opcode: opGone}
	if o.closed {
		m = o.closing()
	}
	l.takeMessage(h, m)
}

// obeyAnswer does what the app's answer to a socket's events says; false: it
// is no answer.
func (l *loop) obeyAnswer(h *hold, a Answer) bool {
	return l.obeyEvents(h, a, false)
}

// obeyEvents is obeyAnswer; opening: it is the answer that opened the socket.
func (l *loop) obeyEvents(h *hold, a Answer, opening bool) bool {
	o := h.socket.over
	events, err := decodeSocketEvents(a.Body)
	switch {
	case a.Status != 200 || len(a.Body) > 0 && !a.hasEvents():
		l.home.log.Warn("the app's answer to a socket's events is none", zap.String("hold", l.connection(h)), zap.Int("status", a.Status))
		return false
	case err != nil:
		l.home.log.Warn("events of the app cannot be read", zap.String("hold", l.connection(h)), zap.Error(err))
		return false
	case acceptsPart(a.Fields):
		l.home.log.Warn("the app took a part of a socket's events (Content-Bytes-Accepted), which is not in this version", zap.String("hold", l.connection(h)))
		return false
	}
	o.keep(a.Fields)
	if opening {
		events = events[1:] // OPEN
	}
	for _, e := range events {
		if h.state >= leaving {
			return true
		}
		if !l.obeyEvent(h, e, a.Position) {
			return false
		}
	}
	return true
}

// acceptsPart reports whether an answer says that not all was taken.
func acceptsPart(fields []http1.Field) bool {
	return slices.ContainsFunc(fields, func(f http1.Field) bool { return http1.EqualFold(f.Name, "content-bytes-accepted") })
}

func (l *loop) obeyEvent(h *hold, e socketEvent, position int64) bool {
	switch e.kind {
	case eventText, eventBinary:
		return l.obeyMessage(h, e, position)
	case eventPing:
		l.sendBounded(h, appendFrame(nil, opPing, e.content[:min(len(e.content), maxControl)]))
	case eventPong:
		l.sendBounded(h, appendFrame(nil, opPong, e.content[:min(len(e.content), maxControl)]))
	case eventClose:
		code, reason := closeContent(e.content)
		if h.socket.over.closed { // the client's is answered
			h.socket.echo = appendFrame(nil, opClose, closePayload(uint16(code), reason))
			l.end(h, EndClient)
		} else {
			l.endSocket(h, EndPublished, uint16(code), reason)
		}
	case eventDisconnect:
		l.end(h, EndError)
	case eventOpen:
		l.home.log.Warn("the app opened a socket that is open", zap.String("hold", l.connection(h)))
		return false
	}
	return true
}

// obeyMessage sends a message of the app's to the client, or does what it says
// to us.
func (l *loop) obeyMessage(h *hold, e socketEvent, position int64) bool {
	o := h.socket.over
	op := opText
	if e.kind == eventBinary {
		op = opBinary
	}
	content := e.content
	switch kind, rest := splitPrefix(content, o.prefix); {
	case !o.grip:
	case op == opBinary: // which says nothing to us
		var named bool
		if content, named = bytes.CutPrefix(content, []byte(o.prefix)); !named {
			return true
		}
	case kind == prefixControl:
		return l.control(h, rest, position)
	case kind == prefixMessage:
		content = rest
	default:
		return true
	}
	if op == opText && !utf8.Valid(content) { // a browser would end the connection
		l.home.log.Warn("a message of text is not UTF-8, it is not sent", zap.String("hold", l.connection(h)))
		return true
	}
	l.sendBounded(h, appendFrame(nil, op, content))
	return true
}

// control does what a control message says; false: the socket cannot go on.
func (l *loop) control(h *hold, text []byte, position int64) bool {
	c, err := decodeControl(text)
	if err != nil {
		l.home.log.Warn("a control message of the app cannot be followed", zap.String("hold", l.connection(h)), zap.Error(err))
		return !errors.Is(err, errTooManyFilters)
	}
	g := h.grip()
	switch c.kind {
	case controlSubscribe:
		l.subscribeItems(h, GripChannel{Name: c.channel, Filters: c.filters}, position)
	case controlUnsubscribe:
		if h.state == live {
			l.owed(h, l.hub.head.Load()+1) // what was published before is on its way
		}
		g.channels = slices.DeleteFunc(g.channels, func(other GripChannel) bool { return other.Name == c.channel })
		l.unsubscribe(h, []string{c.channel})
	case controlDetach:
		h.socket.over.detached = true
	case controlSetMeta:
		g.setMeta(c.name, c.value)
	case controlKeepAlive:
		g.beatWith(nil)
		if c.content != nil {
			g.beatWith(&KeepAlive{Data: appendFrame(nil, c.opcode, c.content), Interval: c.interval, Timeout: c.timeout})
			g.wroteAt = l.hub.now()
			g.beatAt = g.wroteAt
		}
		l.wind(h)
	case controlSendDelayed:
		g.delayed, g.delayedAt = appendFrame(nil, c.opcode, c.content), l.hub.now().Add(c.timeout)
		l.wind(h)
	case controlFlushDelayed:
		l.sendDelayed(h)
	}
	return true
}

// sendDelayed sends what the app has had wait.
func (l *loop) sendDelayed(h *hold) {
	g := h.grip()
	b := g.delayed
	if g.delayed = nil; b != nil {
		l.sendBounded(h, b)
	}
}

// setMeta sets what filters know of a hold; no value takes it away.
func (g *grip) setMeta(name string, value *string) {
	_, there := g.meta[name]
	switch {
	case value == nil:
		delete(g.meta, name)
	case g.meta == nil:
		g.meta = map[string]string{name: *value}
	case there || len(g.meta) < metaMost:
		g.meta[name] = *value
	}
}

// subscribeItems has a socket join a channel, or be in it with other filters.
func (l *loop) subscribeItems(h *hold, channel GripChannel, position int64) {
	g := h.grip()
	if c := g.channel(channel.Name); c != nil {
		c.Filters = channel.Filters
		return
	}
	if h.seats() == MaxChannels {
		l.home.log.Warn("a socket would be in more than 64 channels, it does not join this one", zap.String("hold", l.connection(h)), zap.String("channel", channel.Name))
		return
	}
	if h.state == live {
		l.owed(h, l.hub.head.Load()+1) // a channel that it leaves next may have something on its way
	}
	g.channels = append(g.channels, channel)
	l.subscribe(h, []string{channel.Name}, position)
}

// giveMessage gives a socket what an item has for sockets.
func (l *loop) giveMessage(h *hold, e *event, filters []string) {
	f := e.item.Socket
	if f == nil {
		h.pass(e)
		return
	}
	switch {
	case f.Action == ActionClose:
		h.pass(e)
		l.endSocket(h, EndPublished, uint16(f.Code), f.Reason)
	case f.Action == ActionRefresh:
		h.pass(e)
		l.poke(h)
	case !sameContentFilters(filters, f.Filters):
		h.pass(e)
		l.unfit(h, errOtherFilters)
	case f.Kind == opPing || f.Kind == opPong:
		h.pass(e)
		l.giveOwn(h, appendFrame(nil, f.Kind, f.Content))
	case len(contentFilters(filters)) == 0:
		l.giveEvent(h, e)
	default:
		h.pass(e)
		content, err := rewrite(filters, h.grip().subscriber(), f.Content)
		if err != nil {
			l.unfit(h, err)
			return
		}
		l.giveOwn(h, appendFrame(nil, f.Kind, content))
	}
}
