package proxy

import (
	"errors"
	"syscall"
	"time"
)

// eager writes to a client what the kernel takes without waiting.
type eager struct {
	client *clientConn
	raw    syscall.RawConn // nil: every write may wait
	try    func(fd uintptr) (done bool)

	left []byte // of the present write
	err  error
}

// newEager is for a client's connection. Over TLS every write may wait: what
// was made a record must go out whole.
func newEager(c *clientConn) *eager {
	e := &eager{client: c}
	if conn, ok := c.Conn.(syscall.Conn); ok && c.tls == nil {
		e.raw, _ = conn.SyscallConn()
	}
	e.try = e.tryOnce
	return e
}

// write writes the beginning of p, n bytes of it; an error is errLeft.
func (e *eager) write(p []byte) (n int, err error) {
	if e.raw == nil {
		return 0, nil
	}
	e.client.extendWrite(e.client.site.cfg.BodyTimeout) // one that has passed would end this write too
	e.left, e.err = p, nil
	err = e.raw.Write(e.try)
	n = len(p) - len(e.left)
	e.left = nil
	e.client.record.bytes += int64(n)
	if isTimeout(err) && !e.client.cutOff.Load() && !e.client.streamLeft.Load() {
		e.client.writeBy = time.Time{} // it passed just now: who waits sets another
		err = nil
	}
	if err != nil || e.err != nil {
		return n, errLeft
	}
	return n, nil
}

// tryOnce writes until all is written or the kernel takes no more.
func (e *eager) tryOnce(fd uintptr) (done bool) {
	for len(e.left) > 0 {
		n, err := syscall.Write(int(fd), e.left)
		switch {
		case n > 0:
			e.left = e.left[n:]
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EAGAIN):
			return true
		default:
			e.err = err
			return true
		}
	}
	return true
}
