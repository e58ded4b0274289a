package proxy

import (
	"bytes"
	"io"
	"time"

	"holdfast/internal/http1"
)

// readHead reads the next request's head into c.req. Its errors are a *fault
// (to be answered, then closed) or anything else (closed without an answer).
func (c *clientConn) readHead() error {
	c.done(nil) // of an answer that fasthttp wrote
	c.endAhead()
	c.r, c.w = 0, copy(c.buf, c.buf[c.r:c.w])
	if c.w == 0 && len(c.buf) > firstReadBytes {
		c.buf = nil // what a large body needed is not kept for an idle connection
	}
	c.req = request{fields: c.req.fields[:0], length: -1, secure: c.tls != nil}
	c.record = record{}
	c.requestID = c.requestID[:0]
	var p headProgress
	for {
		if c.w > c.r {
			if done, f := c.parseHead(&p); f != nil {
				return f
			} else if done {
				return nil
			}
			if c.w-c.r >= c.site.cfg.HeaderBytes {
				return c.headTooLarge(p)
			}
		}
		if err := c.fillHead(&p); err != nil {
			if err == io.EOF && c.w > c.r {
				return badRequest("the request ends in the middle of its head")
			}
			return err
		}
	}
}

// headProgress is how far a head was looked at.
type headProgress struct {
	timed   bool // HeaderTimeout runs
	blank   bool // an empty line before it was passed (RFC 9112 §2.2)
	scanned int  // offset from c.r
	line    int  // the length of the request line with its CRLF; 0: not whole yet
}

// parseHead parses as much of the head as is there. A line is judged when it
// is whole, not when the head is: what can never become a request need not
// be waited for.
func (c *clientConn) parseHead(p *headProgress) (done bool, f *fault) {
	end, next, err := http1.ScanHead(c.buf[c.r:c.w], p.scanned)
	if err != nil {
		return false, badRequest("the head is malformed: " + err.Error())
	}
	p.scanned = next
	if next == 0 {
		return false, nil
	}
	if p.line == 0 {
		if c.buf[c.r] == '\r' && c.buf[c.r+1] == '\n' { // an empty line in front
			if p.blank {
				return false, badRequest("there is more than one empty line before the request")
			}
			p.blank, p.scanned = true, 0
			c.r += 2
			return c.parseHead(p)
		}
		p.line = bytes.IndexByte(c.buf[c.r:c.w], '\n') + 1
		if f := c.req.parseRequestLine(c.buf[c.r : c.r+p.line-2]); f != nil {
			return false, f
		}
	}
	if end == 0 {
		if bytes.Count(c.buf[c.r:c.r+next], []byte("\n")) > maxFields+1 {
			return false, tooManyFields()
		}
		return false, nil
	}
	if end > c.site.cfg.HeaderBytes {
		return false, c.headTooLarge(*p)
	}
	fields := c.buf[c.r+p.line : c.r+end]
	c.r += end
	c.headEnd = c.r
	return true, c.req.parseFields(fields)
}

func (c *clientConn) headTooLarge(p headProgress) *fault {
	if p.line == 0 || p.line > c.site.cfg.HeaderBytes {
		return &fault{reason: reasonURITooLong, text: "the request line is larger than limits.header_bytes"}
	}
	return &fault{reason: reasonHeadersTooLarge, text: "the head is larger than limits.header_bytes"}
}

// fillHead reads once. It waits IdleTimeout for a head's first byte and
// HeaderTimeout from there.
func (c *clientConn) fillHead(p *headProgress) error {
	if c.w == len(c.buf) {
		grown := make([]byte, min(max(2*len(c.buf), firstReadBytes), c.site.cfg.HeaderBytes))
		c.w = copy(grown, c.buf[c.r:c.w])
		c.r = 0
		c.buf = grown
	}
	if c.w > c.r {
		if !p.timed { // the clock of a partial head is not moved by further bytes
			p.timed = true
			c.setReadBy(time.Now().Add(c.site.cfg.HeaderTimeout))
		}
		return c.fill()
	}
	c.setIdle(true)
	c.server.becameIdle()
	err := c.fill()
	c.setIdle(false)
	return err
}

// fill reads once into the buffer.
func (c *clientConn) fill() error {
	n, err := c.Conn.Read(c.buf[c.w:])
	c.w += n
	if n > 0 {
		return nil
	}
	return err
}
