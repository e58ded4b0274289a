package proxy

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"

	"holdfast/holds"
	"holdfast/internal/http1"
	"holdfast/lanes"
	"holdfast/upstream"
)

// forwardHandshake asks the app for a WebSocket in WebSocket-over-HTTP: an OPEN
// event is POSTed to the socket's own address, and the answer opens the socket,
// or is what the client gets in its place.
func (c *clientConn) forwardHandshake(rt *Route) (keep bool, err error) {
	if err := c.skipBody(); err != nil {
		return false, err
	}
	if _, err := c.handshakeKey(); err != nil {
		return c.answerFault(handshakeFault(err))
	}
	if !c.originAllowed(c.site.cfg.Origins) {
		return c.answerFault(originDenied())
	}
	along := c.handshakeFields()
	connection := string(appendNewID(nil))
	fields, body := holds.OpenRequest(slices.Clip(along), connection)
	stamp := &messageStamp{}
	open := &holds.Request{Method: "POST", Target: string(c.req.target), Fields: fields, Body: body}
	c.head = c.site.holdHead(open, c.requestID, rt.Lane.KeepAlive(), stamp)
	c.positionAt = stamp.at
	c.beginAhead()
	c.record.phase = phaseWaiting
	ex, res, keep, err := c.ask(rt.Lane, lanes.Request{Head: c.head, Body: body, Stamp: c}, nil, time.Now())
	if ex == nil {
		return keep, err
	}
	defer ex.Close()
	defer c.detach()
	rejection := *res
	rejection.Reason = append([]byte(nil), res.Reason...)
	rejection.Fields = cloneFields(res.Fields)
	head := c.socketHead(withoutMeta(res))
	answer := holds.Answer{Status: res.Status, Fields: rejection.Fields, Position: c.position}
	switch answer.Body, err = c.readHoldBody(ex, rt.Lane); {
	case errors.Is(err, errLeft):
		return false, err
	case err != nil:
		ex.Close()
		return c.answerFault(badHold(err, rt.Lane))
	case !answer.Opens():
		rejection = *without(&rejection, "content-length")
		return c.answerWhole(&rejection, answer.Body)
	}
	spec := holds.Spec{Kind: holds.ModeWebSocket, Position: c.position, Head: head, Grip: &holds.Grip{},
		Lane: rt.Lane.Config().Name, Path: string(c.req.target), Fields: along, OverHTTP: &holds.OverHTTP{Connection: connection, Answer: answer}}
	keep, err = c.openSocket(spec, c.site.cfg.Origins)
	if !c.handedOver {
		go c.server.tellGone(spec) // the app has opened a socket that there is not
	}
	return keep, err
}

// tellGone tells the app that the client of a socket it has opened has gone. It
// ends with the app's answer, or with the time that one may take.
func (s *Server) tellGone(spec holds.Spec) {
	ctx, cancel := context.WithTimeout(context.Background(), goneTimeout)
	defer cancel()
	if _, err := s.Forward(ctx, holds.GoneRequest(&spec)); err != nil {
		s.log.Debug("the app was not told that a client went before its socket was open", zap.Error(err))
	}
}

// goneTimeout bounds the wait for the app to take that.
const goneTimeout = time.Minute

// handshakeFields are the fields of a handshake that each request of its socket
// repeats: the client's own, but for what is said of this one connection, and
// how it came.
func (c *clientConn) handshakeFields() (lines []byte) {
	lines = append(append(append(lines, "Host: "...), c.req.host...), "\r\n"...)
	named := c.req.connectionNames()
	for _, f := range c.req.fields {
		if f.kind != kindPlain || named != nil && names(named, f.Name) {
			continue
		}
		switch {
		case http1.EqualFold(f.Name, "content-type"), http1.EqualFold(f.Name, "content-encoding"), http1.EqualFold(f.Name, "connection-id"), http1.EqualFold(f.Name, "content-bytes-replayed"), http1.EqualFold(f.Name, "sec-websocket-extensions"):
			continue
		}
		lines = appendField(lines, f.Field)
	}
	return c.appendForwarded(lines)
}

// withoutMeta is an answer to an OPEN event less what is for us.
func withoutMeta(res *upstream.Response) *upstream.Response {
	rest := without(res, "keep-alive-interval")
	rest.Fields = slices.DeleteFunc(rest.Fields, func(f http1.Field) bool { return http1.HasPrefixFold(f.Name, "set-meta-") })
	return rest
}
