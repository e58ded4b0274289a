package proxy

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"holdfast/internal/http1"
	"holdfast/lanes"
)

// body is a request's body, complete before anything is asked of a lane: in
// memory, or, over inMemory or where the memory of all is used up, in a file.
// Where neither has room it waits for some, and its client with it; so that
// bodies that wait for each other's room get on, one at a time takes memory
// beyond the total.
type body struct {
	client *clientConn
	memory []byte
	taken  int // of the memory of all
	file   *spooled
	spill  bool // the file took no more: memory behind it
	turn   bool // it may take memory beyond the total
}

// inMemory is the largest body that is kept in memory.
const inMemory = 256 << 10

// length is the whole body's.
func (b *body) length() int64 {
	n := int64(len(b.memory))
	if b.file != nil {
		n += b.file.size
	}
	return n
}

// add takes a piece in: into memory, over inMemory into the spool, and into
// memory again where that has no room. It is false where neither has: the
// piece was not taken, and what follows is better sent as it comes.
func (b *body) add(piece []byte) bool {
	if b.file == nil && len(b.memory)+len(piece) <= inMemory && b.takeMemory(piece) {
		return true
	}
	if !b.spill && b.spool(piece) {
		return true
	}
	b.spill = true
	return b.takeMemory(piece)
}

func (b *body) takeMemory(piece []byte) bool {
	if need := len(b.memory) + len(piece); need > cap(b.memory) {
		size := max(need, 2*cap(b.memory))
		if length := int(b.client.req.length); length > 0 && length <= inMemory {
			size = max(need, min(size, length))
		}
		if !b.client.server.memory.take(size - b.taken) {
			return false
		}
		b.memory, b.taken = append(make([]byte, 0, size), b.memory...), size
	}
	b.memory = append(b.memory, piece...)
	return true
}

func (b *body) spool(piece []byte) bool {
	if b.file == nil {
		file, err := b.client.server.spool.create()
		if err != nil {
			return false
		}
		if len(b.memory) > 0 && file.append(b.memory) != nil {
			file.close()
			return false
		}
		b.file = file
		b.freeMemory()
	}
	return b.file.append(piece) == nil
}

// addOrWait is add that waits for room, as long as the client stays.
func (b *body) addOrWait(piece []byte) error {
	for !b.add(piece) {
		if b.turn {
			b.client.server.memory.force(len(piece))
			b.memory = append(b.memory, piece...)
			b.taken += len(piece)
			return nil
		}
		b.client.server.tellSpool()
		select {
		case b.client.server.beyond <- struct{}{}:
			b.turn = true
		case <-b.client.ctx.Done():
			return errLeft
		case <-time.After(roomPause): // look again
		}
	}
	return nil
}

// roomPause is how often a body that waits looks for room.
const roomPause = 20 * time.Millisecond

func (b *body) freeMemory() {
	b.client.server.memory.give(b.taken)
	b.memory, b.taken = nil, 0
}

// free gives everything back. It may be called more than once.
func (b *body) free() {
	b.freeMemory()
	if b.file != nil {
		b.file.close()
		b.file = nil
	}
	if b.turn {
		b.turn = false
		<-b.client.server.beyond
	}
}

// fill puts the body into a request, and its freeing into the request's end.
func (b *body) fill(request *lanes.Request) {
	if b.file == nil {
		request.Body = b.memory
	} else {
		request.More = b
	}
	if b.taken > 0 || b.file != nil {
		request.Done = b.free
	}
}

// Send writes the file, and what is behind it in memory (upstream.Source).
func (b *body) Send(w io.Writer) error {
	if err := b.file.sendTo(w); err != nil {
		return err
	}
	_, err := w.Write(b.memory)
	return err
}

// Stop does nothing: a Send waits for nobody but the upstream.
func (b *body) Stop() {}

// Progress is none: the app alone decides how fast it goes.
func (b *body) Progress() (sent int64, waits bool) { return 0, false }

// readBody reads the request's body whole. A small one that came with the head
// is not copied. Errors: a *fault, or errLeft. The body is to be freed.
// nil: the request has none.
func (c *clientConn) readBody(limit int64) (*body, error) {
	r := &c.req
	if !r.hasBody() {
		return nil, nil
	}
	b := &body{client: c}
	c.chunked = http1.Chunked{TrailerBytes: c.site.cfg.HeaderBytes}
	if r.length > 0 && r.length <= limit && int64(c.w-c.r) >= r.length {
		b.memory = c.buf[c.r : c.r+int(r.length)]
		c.r += int(r.length)
		return b, nil
	}
	var lost error
	err := c.eachPiece(limit, func(piece []byte) bool {
		lost = b.addOrWait(piece)
		return lost == nil
	})
	if err == nil {
		err = lost
	}
	if err != nil {
		b.free()
		return nil, err
	}
	return b, nil
}

// readSmallBody is readBody for a route of our own, which has a small limit.
func (c *clientConn) readSmallBody(limit int64) ([]byte, error) {
	var whole []byte
	c.chunked = http1.Chunked{TrailerBytes: c.site.cfg.HeaderBytes}
	err := c.eachPiece(limit, func(piece []byte) bool {
		whole = append(whole, piece...)
		return true
	})
	if large := new(fault); errors.As(err, &large) && large.reason == reasonBodyTooLarge {
		large.text = fmt.Sprintf("the body has more than %d bytes, the bound of this call; send less at once", limit)
	}
	return whole, err
}

// skipBody reads and checks the body and throws it away.
func (c *clientConn) skipBody() error {
	c.chunked = http1.Chunked{TrailerBytes: c.site.cfg.HeaderBytes}
	return c.eachPiece(c.site.cfg.BodyBytes, func([]byte) bool { return true })
}

// eachPiece reads the request's body, if there is one, and hands it on piece
// by piece, until do is false. c.chunked is set by the caller. It says 100 Continue where the client waits for that, but not
// before the length is known to be allowed (RFC 9110 §10.1.1).
func (c *clientConn) eachPiece(limit int64, do func(piece []byte) (more bool)) error {
	r := &c.req
	if !r.hasBody() {
		return nil
	}
	if r.length > limit {
		return bodyTooLarge()
	}
	if r.expect && c.r == c.w { // otherwise it did not wait
		if err := c.write(append(c.out[:0], continueHead...)); err != nil {
			return err
		}
	}
	flows := c.r < c.w
	room := bodyRoom{client: c}
	defer room.giveBack()
	for left := r.length; ; {
		if c.r == c.w {
			room.make(flows)
			c.extendRead(c.site.cfg.BodyTimeout)
			if err := c.fill(); err != nil {
				return c.bodyError(err)
			}
			flows = c.w == len(c.buf)
		}
		in := c.buf[c.r:c.w]
		if !r.chunked {
			in = in[:min(int64(len(in)), left)]
			c.r += len(in)
			if left -= int64(len(in)); !do(in) || left == 0 {
				return nil
			}
			continue
		}
		n, data, done, err := c.chunked.Next(in)
		switch {
		case errors.Is(err, http1.ErrTrailerTooLarge):
			return &fault{reason: reasonHeadersTooLarge, text: "the trailer section is larger than limits.header_bytes"}
		case err != nil:
			return badRequest("the chunked body is malformed: " + err.Error())
		case c.chunked.Announced() > uint64(limit):
			return bodyTooLarge()
		}
		c.r += n
		if !do(data) || done {
			return nil
		}
	}
}

const continueHead = "HTTP/1.1 100 Continue\r\n\r\n"

// The buffer for a body that did not come with its head: while it flows, and
// while it is waited for. Thousands may be waited for at a time.
const (
	bodyReadBytes = 32 << 10
	bodyWaitBytes = 4 << 10
)

var bodyPool = sync.Pool{New: func() any { b := make([]byte, bodyReadBytes); return &b }}

// bodyRoom is the connection's buffer while a body is read: a large one that
// many share, and a small one whenever the last read did not fill what it had.
type bodyRoom struct {
	client *clientConn
	large  *[]byte // nil: it has the small one
}

// make makes room in the buffer, all of which was used, without touching the
// head, whose slices are still needed.
func (m *bodyRoom) make(flows bool) {
	c := m.client
	switch {
	case flows && m.large == nil:
		m.large = bodyPool.Get().(*[]byte)
		c.buf, c.headEnd = *m.large, 0
	case !flows && m.large != nil:
		m.giveBack()
	case !flows && len(c.buf)-c.headEnd < bodyWaitBytes/2:
		c.buf, c.headEnd = make([]byte, bodyWaitBytes), 0
	}
	c.r, c.w = c.headEnd, c.headEnd
}

// giveBack ends the use of the large buffer; what is unread of it is kept.
func (m *bodyRoom) giveBack() {
	if m.large == nil {
		return
	}
	c := m.client
	unread := c.buf[c.r:c.w]
	c.buf, c.headEnd = make([]byte, max(bodyWaitBytes, len(unread))), 0
	c.r, c.w = 0, copy(c.buf, unread)
	bodyPool.Put(m.large)
	m.large = nil
}

func bodyTooLarge() *fault {
	return &fault{reason: reasonBodyTooLarge, text: "the body is larger than body_bytes allows; raise limits.body_bytes, or body_bytes of its route"}
}

func (c *clientConn) bodyError(err error) error {
	switch {
	case c.gone(), c.readStopped.Load():
		return errLeft
	case isTimeout(err):
		return &fault{reason: reasonBodyTimeout, text: "no further byte of the body came within limits.body_timeout"}
	case errors.Is(err, io.EOF):
		// The client closed its side only, perhaps: it can be told.
		return badRequest("the body ends before its announced end")
	}
	return errLeft
}
