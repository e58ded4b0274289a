package proxy

import (
	"errors"
	"io"
	"strconv"
	"sync"

	"go.uber.org/zap"

	"holdfast/lanes"
	"holdfast/upstream"
)

const (
	outBytes   = 64 << 10 // an answer up to this goes out in one write, if it comes at once
	chunkSpace = 10       // in front of a chunk's data: its size in hex and CRLF, for up to 32 bits
	inSend     = 64 << 10 // a request up to this is sent before Do returns (upstream.Conn.Send)
)

var outPool = sync.Pool{New: func() any { b := make([]byte, outBytes); return &b }}

// forward sends the request to the app through the route's lane, and the
// answer to the client. keep: another request may follow.
func (c *clientConn) forward(rt *Route) (keep bool, err error) {
	limit := rt.BodyBytes
	if limit == 0 {
		limit = c.site.cfg.BodyBytes
	}
	c.record.phase = phaseBody
	body, err := c.readBody(limit)
	if err != nil {
		return false, err
	}
	bodyLength := -1
	if c.req.hasBody() || c.req.length == 0 || expectsBody(c.req.method) {
		bodyLength = len(body)
	}
	lane := rt.Lane
	c.head = c.requestHead(c.head[:0], bodyLength, lane.KeepAlive())
	request := lanes.Request{Head: c.head, Body: body, ToHEAD: c.req.isHEAD(), Again: sendableAgain(c.req.method)}
	if len(request.Head)+len(body) > inSend {
		c.head = nil // it may still be read when this request is over
	}
	c.record.phase = phaseWaiting
	slot, err := lane.Acquire(c.ctx)
	if err != nil {
		return c.failed(err, lane)
	}
	c.record.wait = slot.Waited()
	ex, err := slot.Do(c.ctx, request)
	if err != nil {
		return c.failed(err, lane)
	}
	defer ex.Close()
	c.record.phase, c.record.slot = phaseRunning, ex.Slot()
	c.attach(ex)
	defer c.detach()
	res, err := ex.Head(c.interim)
	if err != nil {
		ex.Close() // no slot is held while the client is told
		return c.failed(err, lane)
	}
	if res.Endless && !rt.ForwardStreams {
		ex.Close()
		return c.answerFault(streamRefused(rt))
	}
	if res.Endless {
		c.attachEndless()
		c.server.log.Warn("endless answer let through, its slot is held",
			zap.String("route", rt.Match), zap.String("lane", lane.Config().Name))
	}
	return c.relay(ex, res, lane)
}

// expectsBody: a request of these methods without a body says so (RFC 9110 §8.6).
func expectsBody(method []byte) bool {
	switch string(method) {
	case "POST", "PUT", "PATCH":
		return true
	}
	return false
}

// sendableAgain names the methods of contract and RFC 9110 §9.2.2 that may be
// sent once more after an upstream closed without an answer. PUT and DELETE
// are idempotent as HTTP has it and often are not as views have it.
func sendableAgain(method []byte) bool {
	switch string(method) {
	case "GET", "HEAD", "OPTIONS":
		return true
	}
	return false
}

func streamRefused(rt *Route) *fault {
	lane := rt.Lane.Config().Name
	return &fault{reason: reasonStreamRefused, lane: lane,
		text: "route " + rt.Match + " on lane " + lane + " answered with an endless event stream, which would hold a slot of the lane for as long as the client stays; " +
			"answer with a hold header, or place the route on a lane of kind: stream"}
}

// failed answers for a lane or an upstream that did not. Nothing of the
// answer has gone out yet, and the request was read whole.
func (c *clientConn) failed(err error, lane *lanes.Lane) (keep bool, _ error) {
	err = faultOf(err, lane.Config().Name)
	var f *fault
	if errors.As(err, &f) {
		return c.answerFault(f)
	}
	return false, err
}

// interim passes a 1xx answer on (RFC 9110 §15.2). 100 is between us and the
// app: the client had its own, where it asked. HTTP/1.0 has none.
func (c *clientConn) interim(res *upstream.Response) {
	if c.req.minor == 0 || res.Status == 100 {
		return
	}
	b := append(c.responseHead(c.out[:0], res), "\r\n"...)
	c.write(b) // a client that does not take it is found out at the answer
}

// framing is how an answer is framed for its client.
type framing uint8

const (
	framedNone    framing = iota // no body
	framedLength                 // by the app's Content-Length
	framedChunked                // anew, in chunks
	framedClose                  // by the connection's end: HTTP/1.0 and no length
)

// relay passes the answer to the client. What comes at once goes out in one
// write; for the rest, a second goroutine writes while this one goes on
// reading at the upstream's pace.
func (c *clientConn) relay(ex *lanes.Exchange, res *upstream.Response, lane *lanes.Lane) (keep bool, err error) {
	c.record.phase, c.record.status = phaseAnswering, res.Status
	keep = c.keepAlive()
	f := framedNone
	switch res.Framing {
	case upstream.FramingLength:
		f = framedLength
	case upstream.FramingChunked, upstream.FramingClose:
		if f = framedChunked; c.req.minor == 0 {
			f, keep = framedClose, false
		}
	}
	buffer := outPool.Get().(*[]byte)
	defer outPool.Put(buffer)
	out := c.responseHead((*buffer)[:0], res)
	if f == framedChunked {
		out = append(out, "Transfer-Encoding: chunked\r\n"...)
	}
	out = appendPersistence(out, keep, c.req.minor == 0)
	out = append(out, "\r\n"...)
	// res and its slices are gone with the last byte.
	var readErr error
	for readErr == nil && len(out)+chunkSpace < pieceLimit {
		n := 0
		out, n, readErr = readPiece(ex, out, f)
		if n == 0 && readErr == nil {
			break // the rest comes later
		}
	}
	switch {
	case readErr == io.EOF:
		if f == framedChunked {
			out = append(out, lastChunk...)
		}
		return keep, c.writeOnce(out)
	case readErr != nil:
		ex.Close()
		return c.failed(readErr, lane) // nothing has gone out
	}
	return c.relayRest(ex, out, f, keep)
}

const lastChunk = "0\r\n\r\n"

// pieceLimit is how far pieces fill a buffer of outBytes: behind the last
// there is room for its CRLF and for the end of the body.
const pieceLimit = outBytes - len("\r\n") - len(lastChunk)

// readPiece reads what the upstream has at once behind out, as a chunk if
// need be.
func readPiece(ex *lanes.Exchange, out []byte, f framing) ([]byte, int, error) {
	at := len(out)
	if f != framedChunked {
		n, err := ex.ReadSoon(out[at:pieceLimit])
		return out[:at+n], n, err
	}
	n, err := ex.ReadSoon(out[at+chunkSpace : pieceLimit])
	if n == 0 {
		return out, 0, err
	}
	var size [chunkSpace]byte
	head := append(strconv.AppendUint(size[:0], uint64(n), 16), "\r\n"...)
	out = append(out, head...)
	copy(out[at+len(head):cap(out)], out[at+chunkSpace:at+chunkSpace+n])
	return append(out[:at+len(head)+n], "\r\n"...), n, err
}

// writeOnce writes an answer from a pooled buffer.
func (c *clientConn) writeOnce(out []byte) error {
	c.extendWrite(c.site.cfg.BodyTimeout)
	n, err := c.Conn.Write(out)
	c.record.bytes += int64(n)
	if err != nil {
		return errLeft
	}
	return nil
}
