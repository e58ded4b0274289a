package proxy

import (
	"errors"
	"os"
	"time"
)

const (
	lingerPause = 2 * time.Second  // without a byte
	lingerTime  = 30 * time.Second // in all
)

// end ends a connection that cannot go on: a fault is answered first.
func (c *clientConn) end(err error) {
	var f *fault
	if errors.As(err, &f) {
		c.logFault(f)
		c.record.status = statusOf[f.reason]
		err := c.write(f.answerTo(&c.req).append(c.out[:0], c.req.isHEAD(), false, false))
		c.done(f)
		if err == nil {
			c.linger()
		}
	} else if c.record.began {
		c.done(err)
		if c.record.phase == phaseAnswering {
			c.cut()
		}
	}
	c.Close()
}

// linger closes our side and reads the client's for a while: a client that
// writes all before it reads must still find the answer, and a close with
// unread bytes would be a reset, which can eat it.
func (c *clientConn) linger() {
	c.endAhead()
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	scratch := outPool.Get().(*[]byte)
	defer outPool.Put(scratch)
	for end := time.Now().Add(lingerTime); time.Now().Before(end); {
		c.setReadBy(time.Now().Add(lingerPause))
		if _, err := c.Conn.Read(*scratch); err != nil {
			return
		}
	}
}

// cut ends the connection with a reset: what was sent is not whole, and must
// not look as if it were.
func (c *clientConn) cut() {
	endByReset(c.Conn)
	c.Close()
}

func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }
