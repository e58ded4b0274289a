package proxy

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"holdfast/internal/http1"
	"holdfast/lanes"
	"holdfast/upstream"
)

// Stream lanes: bytes pass as they come, both ways, unbuffered. The client's
// leaving closes the upstream connection at once, which an ASGI server sees,
// and a fault in either body cuts both sides.

// upload is a request body that is passed on while it comes (upstream.Source).
type upload struct {
	client *clientConn
	limit  int64
	named  [][]byte      // fields that the request's Connection names
	ended  chan struct{} // closed when Send has returned
	sent   atomic.Int64
	writes atomic.Bool // to the app, this moment
	whole  atomic.Bool // all of it was passed on
	fault  error       // of the client's: what to answer, if it can still be said
}

// Send passes the body on, in chunks where its length is not known.
func (u *upload) Send(w io.Writer) (err error) {
	defer close(u.ended)
	c := u.client
	var writeErr error
	var framed []byte
	c.chunked = http1.Chunked{TrailerBytes: c.site.cfg.HeaderBytes, KeepTrailer: true}
	err = c.eachPiece(u.limit, func(piece []byte) bool {
		if len(piece) == 0 {
			return true
		}
		if c.req.chunked {
			framed = strconv.AppendUint(framed[:0], uint64(len(piece)), 16)
			framed = append(append(append(framed, "\r\n"...), piece...), "\r\n"...)
			piece = framed
		}
		u.writes.Store(true)
		_, writeErr = w.Write(piece)
		u.writes.Store(false)
		u.sent.Add(int64(len(piece)))
		return writeErr == nil
	})
	switch {
	case writeErr != nil:
		return writeErr
	case err != nil:
		u.fault = err
		return err
	}
	if c.req.chunked {
		framed = append(appendTrailer(append(framed[:0], "0\r\n"...), c.chunked.Trailer(), u.named, true), "\r\n"...)
		if _, err := w.Write(framed); err != nil {
			return err
		}
	}
	u.whole.Store(true)
	return nil
}

// Stop ends a Send that waits for the client.
func (u *upload) Stop() { u.client.stopRead() }

// Progress is how much of the body has come and gone, and whether more is
// waited for.
func (u *upload) Progress() (sent int64, waits bool) {
	select {
	case <-u.ended:
		return u.sent.Load(), false
	default:
		return u.sent.Load(), !u.writes.Load()
	}
}

// isWhole reports whether all of the body was passed on. The app's answer can
// overtake the last word about that by a moment, so it waits as long.
func (u *upload) isWhole() bool {
	select {
	case <-u.ended:
	case <-time.After(wholePause):
	}
	return u.whole.Load()
}

const wholePause = 5 * time.Millisecond

// forwardStream is forward for a lane of streams.
func (c *clientConn) forwardStream(rt *Route, limit int64) (keep bool, err error) {
	lane := rt.Lane
	if c.req.length > limit {
		return false, bodyTooLarge()
	}
	bodyLength := c.req.length
	if bodyLength < 0 && expectsBody(c.req.method) {
		bodyLength = 0
	}
	var up *upload
	if c.req.hasBody() {
		up = &upload{client: c, limit: limit, named: c.req.connectionNames(), ended: make(chan struct{})}
		defer c.resumeRead()
		if c.req.chunked {
			bodyLength = chunkedBody
		}
	}
	c.head = c.requestHead(c.head[:0], bodyLength, lane.KeepAlive())
	request := lanes.Request{Head: c.head, Stamp: c, ToHEAD: c.req.isHEAD(), Upgrade: c.req.upgrade,
		Again: sendableAgain(c.req.method) && up == nil}
	if up != nil {
		request.More = up
		c.head = nil // it may still be read when this request is over
	}
	if up == nil {
		c.beginAhead()
	}
	c.record.phase = phaseWaiting
	slot, err := lane.Acquire(c.ctx)
	if err != nil {
		return c.failedStream(err, lane, up)
	}
	c.record.wait = slot.Waited()
	if c.req.expect && up != nil { // by this goroutine: it alone writes before the answer
		c.req.expect = false
		if err := c.write(append(c.out[:0], continueHead...)); err != nil {
			slot.Release()
			return false, err
		}
	}
	ex, err := slot.Do(c.ctx, request)
	if err != nil {
		return c.failedStream(err, lane, up)
	}
	tunnelled := false
	defer func() {
		if !tunnelled {
			ex.Close()
		}
	}()
	c.record.phase, c.record.slot = phaseRunning, ex.Slot()
	c.attach(ex)
	defer c.detach()
	c.attachEndless() // whoever closes its side has left a stream
	res, err := ex.Head(c.interim)
	if err != nil {
		ex.Close()
		return c.failedStream(err, lane, up)
	}
	if res.Status == 101 {
		c.detach() // from here on a closed side is passed on
		tunnelled = true
		return false, c.tunnel(ex, res, lane)
	}
	in, err := c.instruction(res)
	if err == nil && in.Whole() {
		if up == nil || up.isWhole() {
			return c.hold(ex, res, rt, in)
		}
		err = errUnread
	}
	if err != nil {
		ex.Close()
		if up == nil {
			return c.answerFault(badHold(err, lane))
		}
		return false, badHold(err, lane) // what is still sent is not read
	}
	to, res := c.redirected(res)
	if to != nil {
		return c.follow(ex, to, up)
	}
	return c.relayStream(ex, res, up)
}

// appendTrailer passes on of a trailer section what may be passed on of a head:
// a trailer is no way round its rules. named are the fields that the message's
// Connection names. fromClient: it is a request's.
func appendTrailer(dst, lines []byte, named [][]byte, fromClient bool) []byte {
	for len(lines) > 0 {
		line, rest, _ := bytes.Cut(lines, []byte("\r\n"))
		lines = rest
		name, _, _ := bytes.Cut(line, []byte(":"))
		switch kindOf(name) {
		case kindPlain, kindAccept, kindAcceptEncoding:
		case kindUnderscore:
			if fromClient {
				continue
			}
		default:
			continue
		}
		if names(named, name) {
			continue
		}
		dst = append(append(dst, line...), "\r\n"...)
	}
	return dst
}

// failedStream answers for a stream that did not begin. What the client is
// still sending is not read, so that its connection ends.
func (c *clientConn) failedStream(err error, lane *lanes.Lane, up *upload) (keep bool, _ error) {
	if up == nil {
		return c.failed(err, lane)
	}
	// Where the app hung up, the upload was stopped; its end is not the client's leaving.
	if up.fault != nil && (!errors.Is(up.fault, errLeft) || c.gone()) {
		return false, up.fault
	}
	return false, faultOf(err, lane.Config().Name)
}

// relayStream passes an answer on as it comes: the head before the first byte
// of the body, each piece as it was read, the trailers at the end.
func (c *clientConn) relayStream(ex *lanes.Exchange, res *upstream.Response, up *upload) (keep bool, err error) {
	c.record.phase, c.record.status = phaseAnswering, res.Status
	f, keep := c.frame(res)
	var named [][]byte
	for _, name := range answerNames(res) {
		named = append(named, bytes.Clone(name)) // res is gone with its last byte
	}
	if up != nil {
		keep = keep && up.isWhole()
	}
	buffer := outPool.Get().(*[]byte)
	defer outPool.Put(buffer)
	if err := c.writeOnce(c.answerHead((*buffer)[:0], res, f, keep)); err != nil {
		return false, err
	}
	for {
		piece, readErr := readFramed(ex, (*buffer)[:readPieceBytes], f)
		if len(piece) > 0 {
			if err := c.writeOnce(piece); err != nil {
				return false, err
			}
		}
		switch {
		case readErr == io.EOF:
			if f == framedChunked {
				err = c.writeOnce(append(appendTrailer([]byte("0\r\n"), ex.Trailer(), named, false), "\r\n"...))
			}
			return keep && (up == nil || up.whole.Load()), err
		case errors.Is(readErr, upstream.ErrInterrupted):
			return false, errLeft
		case readErr != nil:
			c.server.log.Warn("stream cut short", zap.Error(readErr))
			c.done(errTruncated)
			c.cut()
			return false, errTruncated
		}
	}
}

const readPieceBytes = 16 << 10
