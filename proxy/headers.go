package proxy

import (
	"encoding/hex"
	"math/rand/v2"
	"strconv"
	"time"

	"go.uber.org/zap"

	"holdfast/internal/http1"
	"holdfast/upstream"
)

// fieldKind is what a field name is to a proxy: it decides framing, belongs
// to one connection only, or is nobody's but ours to say.
type fieldKind uint8

const (
	kindPlain fieldKind = iota
	kindHost
	kindContentLength
	kindTransferEncoding
	kindConnection
	kindUpgrade
	kindExpect
	kindHop       // of one connection only (RFC 9110 §7.6.1)
	kindForwarded // what an earlier proxy says of the client
	kindRequestID // X-Request-ID
	kindAccept
	kindAcceptEncoding
	kindOurs       // ours to add: M0-*, Grip-*, Meta-*, X-Request-Start
	kindUnderscore // the same environ key as a name with a hyphen in CGI and WSGI
)

// kindOf classifies a field name. The length comes first: most names are done
// with it.
func kindOf(name []byte) fieldKind {
	is := func(s string) bool { return http1.EqualFold(name, s) }
	switch len(name) {
	case 2:
		if is("te") {
			return kindHop
		}
	case 4:
		if is("host") {
			return kindHost
		}
	case 6:
		if is("expect") {
			return kindExpect
		}
		if is("accept") {
			return kindAccept
		}
	case 7:
		switch {
		case is("upgrade"):
			return kindUpgrade
		case is("trailer"):
			return kindHop
		}
	case 9:
		switch {
		case is("forwarded"), is("x-real-ip"):
			return kindForwarded
		}
	case 10:
		switch {
		case is("connection"):
			return kindConnection
		case is("keep-alive"):
			return kindHop
		}
	case 12:
		if is("x-request-id") {
			return kindRequestID
		}
	case 14:
		switch {
		case is("content-length"):
			return kindContentLength
		case is("http2-settings"):
			return kindHop
		}
	case 15:
		if is("x-request-start") {
			return kindOurs
		}
		if is("accept-encoding") {
			return kindAcceptEncoding
		}
	case 16:
		if is("proxy-connection") {
			return kindHop
		}
	case 17:
		if is("transfer-encoding") {
			return kindTransferEncoding
		}
	case 19:
		if is("proxy-authorization") {
			return kindHop
		}
	}
	return kindOfFamily(name)
}

// kindOfFamily knows the names that are known by a part.
func kindOfFamily(name []byte) fieldKind {
	switch name[0] | 0x20 {
	case 'm':
		if http1.HasPrefixFold(name, "m0-") || http1.HasPrefixFold(name, "meta-") {
			return kindOurs
		}
	case 'g':
		if http1.HasPrefixFold(name, "grip-") {
			return kindOurs
		}
	case 'x':
		if http1.HasPrefixFold(name, "x-forwarded-") {
			return kindForwarded
		}
	}
	for _, c := range name {
		if c == '_' {
			return kindUnderscore
		}
	}
	return kindPlain
}

// requestHead builds the head that the app gets: the client's own, byte for
// byte where it is the client's to say, and what the app must know of the way.
// Content-Length comes last; bodyLength -1 means there is none to send, and
// chunkedBody that the body is sent in chunks.
func (c *clientConn) requestHead(dst []byte, bodyLength int64, keepAlive bool) []byte {
	r := &c.req
	dst = append(dst, r.method...)
	dst = append(dst, ' ')
	dst = append(dst, r.target...)
	dst = append(dst, " HTTP/1.1\r\nHost: "...)
	if !r.hasHost { // HTTP/1.0 may leave it out; HTTP/1.1, which we speak, may not
		r.host = []byte(c.localHost())
	}
	dst = append(dst, r.host...)
	dst = append(dst, "\r\n"...)
	switch {
	case r.upgrade:
		dst = append(dst, "Connection: Upgrade\r\nUpgrade: websocket\r\n"...)
	case !keepAlive:
		dst = append(dst, "Connection: close\r\n"...)
	}
	named := r.connectionNames()
	// What is held must not come encoded: it could not be added to.
	noEncoding := r.upgrade || r.acceptsEvents()
	for _, f := range r.fields {
		switch f.kind {
		case kindPlain, kindAccept, kindAcceptEncoding:
			if f.kind == kindAcceptEncoding && noEncoding || named != nil && names(named, f.Name) {
				continue
			}
			dst = appendField(dst, f.Field)
		}
	}
	dst = c.appendForwarded(dst)
	dst = append(append(append(dst, "X-Request-ID: "...), c.requestID...), "\r\nX-Request-Start: t="...)
	began := c.record.started
	if c.req.hasBody() || c.last != nil { // which was waited for, as the first answer was
		began = time.Now()
	}
	dst = strconv.AppendInt(dst, began.UnixMicro(), 10)
	dst = append(c.site.signer.append(append(dst, "\r\n"...)), c.last...)
	if c.positionAt = 0; c.site.cfg.Dialects.M0 && c.site.cfg.Holds != nil {
		dst = append(dst, "M0-Position: "...)
		c.positionAt = len(dst)
		dst = append(dst, "0000000000000000\r\n"...) // Stamp's
	}
	if bodyLength == chunkedBody {
		dst = append(dst, "Transfer-Encoding: chunked\r\n"...)
	} else if bodyLength >= 0 {
		dst = append(dst, "Content-Length: "...)
		dst = strconv.AppendInt(dst, bodyLength, 10)
		dst = append(dst, "\r\n"...)
	}
	return append(dst, "\r\n"...)
}

// nameRequest gives the request its id: the client's own where that is well
// formed, or a new one.
func (c *clientConn) nameRequest() {
	c.requestID = c.requestID[:0]
	for _, f := range c.req.fields {
		if f.kind == kindRequestID && wellFormedID(f.Value) {
			c.requestID = append(c.requestID, f.Value...)
			return
		}
	}
	c.requestID = appendNewID(c.requestID)
}

// acceptsEvents reports whether the client may be an EventSource.
func (r *request) acceptsEvents() bool {
	for _, f := range r.fields {
		if f.kind == kindAccept && http1.ContainsFold(f.Value, "text/event-stream") {
			return true
		}
	}
	return false
}

// isEventSource reports whether the client can read nothing but an event stream.
func (r *request) isEventSource() bool {
	accepts := 0
	for _, f := range r.fields {
		if f.kind == kindAccept {
			if accepts++; !http1.EqualFold(f.Value, "text/event-stream") {
				return false
			}
		}
	}
	return accepts == 1 && r.isGET()
}

// chunkedBody stands for a body whose length is not known.
const chunkedBody = -2

func appendField(dst []byte, f http1.Field) []byte {
	dst = append(dst, f.Name...)
	dst = append(dst, ": "...)
	dst = append(dst, f.Value...)
	return append(dst, "\r\n"...)
}

// appendForwarded says who the client is and how it came. What an untrusted
// peer says of that is not forwarded. Behind a trusted one X-Forwarded-For is
// appended to and the rest kept as it is.
func (c *clientConn) appendForwarded(dst []byte) []byte {
	trusted := c.peer.trusted
	hasProto, hasHost, hasFor := false, false, false
	for _, f := range c.req.fields {
		if f.kind != kindForwarded {
			continue
		}
		switch {
		case !trusted:
			if http1.EqualFold(f.Name, "x-forwarded-proto") {
				c.server.told.Do(c.tellUntrusted)
			}
			continue
		case http1.EqualFold(f.Name, "x-forwarded-for"):
			if !hasFor {
				dst = append(dst, "X-Forwarded-For: "...)
			} else {
				dst = append(dst, ", "...)
			}
			dst, hasFor = append(dst, f.Value...), true
			continue
		}
	}
	if c.peer.text != "" {
		if hasFor {
			dst = append(dst, ", "...)
		} else {
			dst = append(dst, "X-Forwarded-For: "...)
		}
		dst, hasFor = append(dst, c.peer.text...), true
	}
	if hasFor {
		dst = append(dst, "\r\n"...)
	}
	if trusted {
		for _, f := range c.req.fields {
			if f.kind == kindForwarded && !http1.EqualFold(f.Name, "x-forwarded-for") {
				hasProto = hasProto || http1.EqualFold(f.Name, "x-forwarded-proto")
				hasHost = hasHost || http1.EqualFold(f.Name, "x-forwarded-host")
				dst = appendField(dst, f.Field)
			}
		}
	}
	switch {
	case hasProto:
	case c.tls != nil:
		dst = append(dst, "X-Forwarded-Proto: https\r\n"...)
	default:
		dst = append(dst, "X-Forwarded-Proto: http\r\n"...)
	}
	if !hasHost {
		dst = append(append(append(dst, "X-Forwarded-Host: "...), c.req.host...), "\r\n"...)
	}
	return dst
}

// isHTTPS reports whether the client is known to have come by https: TLS ends
// here, and no proxy of ours says that it was otherwise.
func (c *clientConn) isHTTPS() bool {
	if c.tls == nil {
		return false
	}
	for _, f := range c.req.fields {
		if c.peer.trusted && http1.EqualFold(f.Name, "x-forwarded-proto") {
			return false
		}
	}
	return true
}

func (c *clientConn) tellUntrusted() {
	c.server.log.Warn("X-Forwarded-Proto of an untrusted peer is not forwarded; if it is a proxy of yours, name it in trusted_proxies",
		zap.String("client", c.clientText()))
}

// connectionNames gives the values of Connection fields that name fields; nil
// when they have only options, as nearly always.
func (r *request) connectionNames() (named [][]byte) {
	for _, f := range r.fields {
		if f.kind != kindConnection {
			continue
		}
		named = appendNamed(named, f.Value)
	}
	return named
}

// names reports whether a Connection field names the field.
func names(named [][]byte, name []byte) bool {
	for _, n := range named {
		if len(n) == len(name) && equalFold(n, name) {
			return true
		}
	}
	return false
}

func equalFold(a, b []byte) bool {
	for i := range a {
		x, y := a[i], b[i]
		if x >= 'A' && x <= 'Z' {
			x += 'a' - 'A'
		}
		if y >= 'A' && y <= 'Z' {
			y += 'a' - 'A'
		}
		if x != y {
			return false
		}
	}
	return true
}

const maxIDBytes = 128

// wellFormedID reports whether a client's X-Request-ID may go into headers
// and logs as it is.
func wellFormedID(b []byte) bool {
	if len(b) == 0 || len(b) > maxIDBytes {
		return false
	}
	for _, c := range b {
		if c <= ' ' || c >= 0x7f || c == '"' || c == '\\' || c == ',' {
			return false
		}
	}
	return true
}

func appendNewID(dst []byte) []byte {
	var raw [16]byte
	a, b := rand.Uint64(), rand.Uint64()
	for i := range 8 {
		raw[i], raw[8+i] = byte(a>>(8*i)), byte(b>>(8*i))
	}
	return hex.AppendEncode(dst, raw[:])
}

// responseHead builds the head that the client gets, up to and without the
// empty line. The framing is said by the caller.
func (c *clientConn) responseHead(dst []byte, res *upstream.Response) []byte {
	dst = appendStatusLine(dst, res.Status, res.Reason)
	named := answerNames(res)
	hasID, hasLength := false, false
	for _, f := range res.Fields {
		switch kindOf(f.Name) {
		case kindPlain, kindUnderscore, kindForwarded, kindHost, kindExpect, kindAccept, kindAcceptEncoding:
		case kindRequestID:
			hasID = true
		case kindContentLength:
			// A second one says the same, or the answer was refused.
			if hasLength || res.Status == 204 || res.Status < 200 {
				continue
			}
			hasLength = true
		case kindOurs:
			// An instruction is for us alone; it never reaches a client.
			if http1.HasPrefixFold(f.Name, "m0-") || http1.HasPrefixFold(f.Name, "grip-") {
				continue
			}
		default:
			continue
		}
		if named != nil && names(named, f.Name) {
			continue
		}
		dst = appendField(dst, f)
	}
	if !hasID && len(c.requestID) > 0 {
		dst = append(append(append(dst, "X-Request-ID: "...), c.requestID...), "\r\n"...)
	}
	return dst
}

// answerNames are the fields that an answer's Connection names.
func answerNames(res *upstream.Response) (named [][]byte) {
	for _, f := range res.Fields {
		if http1.EqualFold(f.Name, "connection") {
			named = appendNamed(named, f.Value)
		}
	}
	return named
}

// upgradeHead is the head of a 101: the app's, with the two fields that make
// it one.
func (c *clientConn) upgradeHead(dst []byte, res *upstream.Response) []byte {
	dst = c.responseHead(dst, res)
	return append(dst, "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"...)
}

// appendNamed adds the field names among a Connection field's elements, but
// never those that frame the message.
func appendNamed(named [][]byte, value []byte) [][]byte {
	for list := value; ; {
		element, rest, ok := http1.NextElement(list)
		if !ok {
			return named
		}
		switch list = rest; {
		case http1.EqualFold(element, "close"), http1.EqualFold(element, "keep-alive"),
			http1.EqualFold(element, "upgrade"), http1.EqualFold(element, "content-length"):
		default:
			named = append(named, element)
		}
	}
}

func appendStatusLine(dst []byte, status int, reason []byte) []byte {
	dst = append(dst, "HTTP/1.1 "...)
	dst = strconv.AppendInt(dst, int64(status), 10)
	dst = append(dst, ' ')
	dst = append(dst, reason...)
	return append(dst, "\r\n"...)
}
