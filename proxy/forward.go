package proxy

import (
	"errors"
	"io"
	"strconv"
	"sync"
	"time"

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
	c.nameRequest()
	limit := rt.BodyBytes
	if limit == 0 {
		limit = c.site.cfg.BodyBytes
	}
	if rt.Stream {
		return c.forwardStream(rt, limit)
	}
	if rt.OverHTTP && c.req.upgrade && c.site.cfg.Holds != nil {
		return c.forwardHandshake(rt)
	}
	c.record.phase = phaseBody
	body, err := c.readBody(limit)
	if err != nil {
		return false, err
	}
	lane := rt.Lane
	bodyLength := int64(-1)
	if body != nil {
		bodyLength = body.length()
	} else if c.req.hasBody() || c.req.length == 0 || expectsBody(c.req.method) {
		bodyLength = 0
	}
	c.head = c.requestHead(c.head[:0], bodyLength, lane.KeepAlive())
	request := lanes.Request{Head: c.head, Stamp: c, ToHEAD: c.req.isHEAD(), Again: sendableAgain(c.req.method)}
	if body != nil {
		body.fill(&request)
	}
	if request.More != nil || len(request.Head)+len(request.Body) > inSend {
		c.giveUpBuffers()
	}
	c.beginAhead()
	c.record.phase = phaseWaiting
	began := c.record.started
	if body != nil {
		began = time.Now()
	}
	ex, res, keep, err := c.ask(lane, request, body, began)
	if ex == nil {
		return keep, err
	}
	defer ex.Close()
	defer c.detach()
	if in, err := c.instruction(res); err != nil {
		ex.Close()
		return c.answerFault(badHold(err, lane))
	} else if in.Whole() {
		return c.hold(ex, res, rt, in)
	}
	to, res := c.redirected(res)
	if to != nil {
		return c.follow(ex, to, nil)
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

// ask sends the request and waits for the head of the app's answer; began is
// when it was complete. The exchange is the caller's to close, and then to
// detach from. Where there is none the client has been answered.
func (c *clientConn) ask(lane *lanes.Lane, request lanes.Request, body *body, began time.Time) (ex *lanes.Exchange, res *upstream.Response, keep bool, err error) {
	slot, err := lane.Acquire(c.ctx)
	if err != nil {
		c.record.wait = time.Since(began)
		if body != nil {
			body.free()
		}
		keep, err = c.failed(err, lane)
		return nil, nil, keep, err
	}
	c.record.wait = slot.Waited()
	if ex, err = slot.Do(c.ctx, request); err != nil {
		c.record.wait = time.Since(began)
		keep, err = c.failed(err, lane)
		return nil, nil, keep, err
	}
	c.record.phase, c.record.slot = phaseRunning, ex.Slot()
	c.attach(ex)
	res, err = ex.Head(c.interim)
	c.record.slot = ex.Slot() // another, if it was sent again elsewhere
	if err != nil {
		ex.Close() // no slot is held while the client is told
		keep, err = c.failed(err, lane)
		c.detach()
		return nil, nil, keep, err
	}
	return ex, res, false, nil
}

// giveUpBuffers leaves the request's bytes to the exchange, which may still
// send them when this request is over.
func (c *clientConn) giveUpBuffers() {
	c.head = nil
	c.buf = append([]byte(nil), c.buf[c.r:c.w]...)
	c.r, c.w, c.headEnd = 0, len(c.buf), 0
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
	if c.write(b) != nil { // half of it may have gone out: nothing can follow
		c.record.phase = phaseAnswering
		c.hangUp(true)
	}
}

// framing is how an answer is framed for its client.
type framing uint8

const (
	framedNone    framing = iota // no body
	framedLength                 // by the app's Content-Length
	framedChunked                // anew, in chunks
	framedClose                  // by the connection's end: HTTP/1.0 and no length
)

// frame decides how an answer is framed for its client, and whether the
// connection goes on after it.
func (c *clientConn) frame(res *upstream.Response) (f framing, keep bool) {
	keep = c.keepAlive()
	switch res.Framing {
	case upstream.FramingLength:
		return framedLength, keep
	case upstream.FramingChunked, upstream.FramingClose:
		if c.req.minor == 0 {
			return framedClose, false
		}
		return framedChunked, keep
	}
	return framedNone, keep
}

// answerHead is the whole head that the client gets.
func (c *clientConn) answerHead(dst []byte, res *upstream.Response, f framing, keep bool) []byte {
	dst = c.responseHead(dst, res)
	if f == framedChunked {
		dst = append(dst, "Transfer-Encoding: chunked\r\n"...)
	}
	return append(appendPersistence(dst, keep, c.req.minor == 0), "\r\n"...)
}

// relay passes the answer to the client. What comes at once goes out in one
// write; for the rest, a second goroutine writes while this one goes on
// reading at the upstream's pace.
func (c *clientConn) relay(ex *lanes.Exchange, res *upstream.Response, lane *lanes.Lane) (keep bool, err error) {
	c.record.phase, c.record.status = phaseAnswering, res.Status
	f, keep := c.frame(res)
	buffer := outPool.Get().(*[]byte)
	defer outPool.Put(buffer)
	out := c.answerHead((*buffer)[:0], res, f, keep)
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

// readFramed waits for the next piece and gives it as its client gets it: as it
// is, or as a chunk. It is in scratch.
func readFramed(ex *lanes.Exchange, scratch []byte, f framing) (piece []byte, err error) {
	if f != framedChunked {
		n, err := ex.Read(scratch)
		return scratch[:n], err
	}
	n, err := ex.Read(scratch[chunkSpace : len(scratch)-len("\r\n")])
	if n == 0 {
		return nil, err
	}
	var space [chunkSpace]byte
	size := append(strconv.AppendUint(space[:0], uint64(n), 16), "\r\n"...)
	begin, end := chunkSpace-len(size), chunkSpace+n+len("\r\n")
	copy(scratch[begin:], size)
	copy(scratch[chunkSpace+n:], "\r\n")
	return scratch[begin:end], err
}
