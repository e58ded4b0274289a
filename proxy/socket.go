package proxy

import (
	"bytes"
	"errors"

	"go.uber.org/zap"

	"holdfast/holds"
	"holdfast/internal/http1"
	"holdfast/upstream"
)

const switching = "HTTP/1.1 101 Switching Protocols\r\n"

// socketHead is the head of an approved handshake, up to what is ours to say:
// the view's own fields but for those of a body and of the handshake.
func (c *clientConn) socketHead(res *upstream.Response) []byte {
	rest := without(res, "content-type", "content-length", "content-encoding", "content-language", "etag", "last-modified", "cache-control", "x-accel-redirect",
		"sec-websocket-accept", "sec-websocket-extensions", "sec-websocket-protocol", "sec-websocket-version")
	rest.Status, rest.Reason = 101, []byte("Switching Protocols")
	head := c.responseHead(nil, rest)
	for _, f := range res.Fields {
		if !http1.EqualFold(f.Name, "sec-websocket-protocol") {
			continue
		}
		// A browser ends a connection whose subprotocol it did not offer.
		if !c.offersProtocol(f.Value) {
			c.server.log.Warn("the view chose a subprotocol that the client did not offer, it is left out",
				zap.String("route", c.record.route.Match), zap.ByteString("protocol", f.Value))
			continue
		}
		return appendField(head, f)
	}
	return head
}

// offersProtocol reports whether the client offers a subprotocol (RFC 6455
// §4.1): their names are compared exactly.
func (c *clientConn) offersProtocol(chosen []byte) bool {
	for _, f := range c.req.fields {
		if !http1.EqualFold(f.Name, "sec-websocket-protocol") {
			continue
		}
		for list := f.Value; ; {
			element, rest, ok := http1.NextElement(list)
			if !ok {
				break
			}
			if list = rest; bytes.Equal(element, chosen) {
				return true
			}
		}
	}
	return false
}

// openSocket makes a held WebSocket of the connection, or says why not. spec's
// head lacks what the handshake says (RFC 6455 §4.2.2).
func (c *clientConn) openSocket(spec holds.Spec, origins holds.Origins) (keep bool, err error) {
	key, err := c.handshakeKey()
	if err != nil {
		return c.answerFault(handshakeFault(err))
	}
	if !c.originAllowed(origins) {
		return c.answerFault(originDenied())
	}
	c.record.status = 101
	spec.Head = append(append(spec.Head, "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "...), holds.AcceptKey(key)...)
	spec.Head = append(spec.Head, "\r\n\r\n"...)
	if spec.OverHTTP == nil {
		spec.Fields = c.messageFields()
	}
	return c.openHold(spec)
}

// handshakeKey checks the client's side of the handshake.
func (c *clientConn) handshakeKey() (key []byte, err error) {
	fields := make([]http1.Field, len(c.req.fields))
	for i, f := range c.req.fields {
		fields[i] = f.Field
	}
	return holds.CheckHandshake(string(c.req.method), c.req.minor, fields)
}

// handshakeFault words what is wrong with a handshake.
func handshakeFault(err error) *fault {
	switch {
	case errors.Is(err, holds.ErrVersion):
		return &fault{reason: reasonUpgradeRequired, text: err.Error(), fields: []string{"Sec-WebSocket-Version", "13", "Upgrade", "websocket", "Connection", "Upgrade"}}
	case errors.Is(err, holds.ErrKey):
		return &fault{reason: reasonBadRequest, text: err.Error()}
	}
	return &fault{reason: reasonUpgradeRequired, text: err.Error(), fields: []string{"Upgrade", "websocket", "Connection", "Upgrade"}}
}

func originDenied() *fault {
	return &fault{reason: reasonOriginDenied, text: "a page of this origin may not open a hold here; name the origin in holds.origins"}
}

// messageFields are those of the handshake that go along with each message,
// so that a view knows whose it is.
func (c *clientConn) messageFields() (lines []byte) {
	lines = append(append(append(lines, "Host: "...), c.req.host...), "\r\n"...)
	named := c.req.connectionNames()
	for _, f := range c.req.fields {
		for _, name := range alongFields {
			if http1.EqualFold(f.Name, name) && (named == nil || !names(named, f.Name)) {
				lines = appendField(lines, f.Field)
			}
		}
	}
	return c.appendForwarded(lines)
}

var alongFields = []string{"cookie", "authorization", "origin", "user-agent"}
