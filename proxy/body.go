package proxy

import (
	"errors"
	"io"

	"holdfast/internal/http1"
)

const firstBodyBytes = 64 << 10

// readBody reads the request's body whole, before anything is asked of a
// lane. A small one that came with the head is not copied. Errors: a *fault,
// or errLeft.
func (c *clientConn) readBody(limit int64) ([]byte, error) {
	r := &c.req
	if r.length > 0 && r.length <= limit && int64(c.w-c.r) >= r.length {
		body := c.buf[c.r : c.r+int(r.length)]
		c.r += int(r.length)
		return body, nil
	}
	var body []byte
	if r.length > 0 { // memory is taken as bytes come, not as they are announced
		body = make([]byte, 0, min(r.length, firstBodyBytes))
	}
	err := c.eachPiece(limit, func(piece []byte) { body = append(body, piece...) })
	return body, err
}

// skipBody reads and checks the body and throws it away.
func (c *clientConn) skipBody() error {
	return c.eachPiece(c.site.cfg.BodyBytes, func([]byte) {})
}

// eachPiece reads the request's body, if there is one, and hands it on piece
// by piece. It says 100 Continue where the client waits for that, but not
// before the length is known to be allowed (RFC 9110 §10.1.1).
func (c *clientConn) eachPiece(limit int64, do func(piece []byte)) error {
	r := &c.req
	if !r.hasBody() {
		return nil
	}
	if r.length > limit {
		return bodyTooLarge()
	}
	if r.expect {
		if err := c.write(append(c.out[:0], "HTTP/1.1 100 Continue\r\n\r\n"...)); err != nil {
			return err
		}
	}
	chunked := http1.Chunked{TrailerBytes: c.site.cfg.HeaderBytes}
	for left := r.length; ; {
		if c.r == c.w {
			c.roomForBody()
			c.extendRead(c.site.cfg.BodyTimeout)
			if err := c.fill(); err != nil {
				return c.bodyError(err)
			}
		}
		in := c.buf[c.r:c.w]
		if !r.chunked {
			in = in[:min(int64(len(in)), left)]
			do(in)
			c.r += len(in)
			if left -= int64(len(in)); left == 0 {
				return nil
			}
			continue
		}
		n, data, done, err := chunked.Next(in)
		switch {
		case errors.Is(err, http1.ErrTrailerTooLarge):
			return &fault{reason: reasonHeadersTooLarge, text: "the trailer section is larger than limits.header_bytes"}
		case err != nil:
			return badRequest("the chunked body is malformed: " + err.Error())
		case chunked.Announced() > uint64(limit):
			return bodyTooLarge()
		}
		c.r += n
		do(data)
		if done {
			return nil
		}
	}
}

// bodyReadBytes is the buffer for a body that did not come with its head.
const bodyReadBytes = 32 << 10

// roomForBody makes room in the buffer, all of which was used, without
// touching the head, whose slices are still needed.
func (c *clientConn) roomForBody() {
	if len(c.buf) < bodyReadBytes || len(c.buf)-c.headEnd < bodyReadBytes/2 {
		c.buf, c.headEnd = make([]byte, bodyReadBytes), 0
	}
	c.r, c.w = c.headEnd, c.headEnd
}

func bodyTooLarge() *fault {
	return &fault{reason: reasonBodyTooLarge, text: "the body is larger than body_bytes allows; raise limits.body_bytes, or body_bytes of its route"}
}

func (c *clientConn) bodyError(err error) error {
	switch {
	case c.gone():
		return errLeft
	case isTimeout(err):
		return &fault{reason: reasonBodyTimeout, text: "no further byte of the body came within limits.body_timeout"}
	case errors.Is(err, io.EOF):
		// The client closed its side only, perhaps: it can be told.
		return badRequest("the body ends before its announced end")
	}
	return errLeft
}
