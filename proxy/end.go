package proxy

import (
	"errors"
	"io"
	"net"
	"os"
	"time"
)

const (
	lingerBytes = 1 << 20         // read and thrown away behind a refusal
	lingerTime  = 2 * time.Second // and for how long
)

// end ends a connection that cannot go on: a fault is answered first.
func (c *clientConn) end(err error) {
	var f *fault
	if errors.As(err, &f) {
		c.logFault(f)
		c.record.status = statusOf[f.reason]
		if c.write(f.answer().append(c.out[:0], c.req.isHEAD(), false, false)) == nil {
			c.linger()
		}
		c.done(f)
	} else if c.record.began {
		c.done(err)
	}
	c.Close()
}

// endAfterAnswer closes after the last answer. What the client sent behind
// its last request would turn the close into a reset, which can eat the answer.
func (c *clientConn) endAfterAnswer() {
	if c.r < c.w || c.req.hasBody() || c.req.expect {
		c.linger()
	}
}

// linger closes our side and reads the client's for a moment.
func (c *clientConn) linger() {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	c.Conn.SetReadDeadline(time.Now().Add(lingerTime))
	io.CopyN(io.Discard, onlyReader{c.Conn}, lingerBytes)
}

// onlyReader hides everything but Read, so that io.CopyN uses no splice.
type onlyReader struct{ r io.Reader }

func (o onlyReader) Read(p []byte) (int, error) { return o.r.Read(p) }

// cut ends the connection with a reset: what was sent is not whole, and must
// not look as if it were.
func (c *clientConn) cut() {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	c.Close()
}

func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }
