package proxy

import (
	"errors"
	"io"
	"time"
)

// ahead reads what a client sends over TLS while its request waits or runs.
// The watch sees a connection's end at its descriptor, but a close_notify is
// bytes like any others there: only who reads it knows that the client has
// closed its side. A request that is answered soon has none of this.
type ahead struct {
	timer *time.Timer
	on    bool // from beginAhead to endAhead
	done  chan struct{}
	got   []byte // of the goroutine that reads, until done is closed
}

const (
	aheadAfter = 20 * time.Millisecond // requests that are answered sooner pay for no goroutine
	aheadBytes = 4 << 10               // of further requests, before no more is read
)

// beginAhead begins to read ahead. Nothing else reads until endAhead.
func (c *clientConn) beginAhead() {
	if c.tls == nil {
		return
	}
	c.setReadBy(time.Time{})
	if a := c.ahead; a != nil { // the timer of an earlier request
		a.on = true
		a.timer.Reset(aheadAfter)
		return
	}
	a := &ahead{on: true, done: make(chan struct{})}
	a.timer = time.AfterFunc(aheadAfter, func() { c.readAhead(a) })
	c.ahead = a
}

// readAhead ends with the client's side, when there is much, or by endAhead.
func (c *clientConn) readAhead(a *ahead) {
	defer close(a.done)
	var piece [512]byte
	for len(a.got) < aheadBytes {
		n, err := c.Conn.Read(piece[:])
		a.got = append(a.got, piece[:n]...)
		switch {
		case err == nil:
		case errors.Is(err, io.EOF), errors.Is(err, errTruncatedByClient):
			c.hangUp(false)
			return
		case isTimeout(err):
			return
		default:
			c.hangUp(true)
			return
		}
	}
}

// endAhead puts what was read ahead behind what was read before it.
func (c *clientConn) endAhead() {
	a := c.ahead
	if a == nil || !a.on {
		return
	}
	if a.on = false; a.timer.Stop() {
		return
	}
	c.ahead = nil
	c.Conn.SetReadDeadline(past)
	<-a.done
	c.setReadBy(time.Time{})
	// Into memory of its own: slices of the request may still be in use.
	c.buf = append(c.buf[:c.w:c.w], a.got...)
	c.w = len(c.buf)
}
