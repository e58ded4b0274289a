package proxy

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"holdfast/lanes"
	"holdfast/upstream"
)

// tunnelBytes is the buffer for one read of a tunnel, taken when there is
// something to read and given back when it is written: an idle tunnel has
// none. io.Copy between two sockets would hold a pipe for each direction
// while it waits, four descriptors more.
const tunnelBytes = 16 << 10

var tunnelPool = sync.Pool{New: func() any { b := make([]byte, tunnelBytes); return &b }}

// tunnel passes a 101 on, and then bytes both ways until both sides have
// ended. One side's end is passed on as one side's end. The connection is
// handed to goroutines of the tunnel's own: this one's stack has grown, and an
// idle tunnel should cost little.
func (c *clientConn) tunnel(ex *lanes.Exchange, res *upstream.Response, lane *lanes.Lane) error {
	c.record.phase, c.record.status = phaseAnswering, res.Status
	head := c.upgradeHead(nil, res)
	nc, early := ex.Tunnel()
	if err := c.writeOnce(append(head, early...)); err != nil {
		ex.Close()
		return err
	}
	c.endAhead()
	sent := c.buf[c.r:c.w]
	c.forgetRequest()
	c.setReadBy(time.Time{})
	c.Conn.SetWriteDeadline(time.Time{})
	c.stayCut()
	t := &tunnel{client: c.Conn, app: nc, idle: lane.Config().Idle}
	c.setTunnel(t)
	if c.cutOff.Load() {
		t.end(errLeft)
	}
	c.handedOver = true
	go c.runTunnel(t, ex, sent)
	return errHandedOver
}

// errHandedOver: the connection is a tunnel now, or a hold, and not the
// caller's any more.
var errHandedOver = errors.New("the connection is handed over")

// forgetRequest keeps of a request what the log says, and no buffer.
func (c *clientConn) forgetRequest() {
	path, _, _ := bytes.Cut(c.req.target, []byte("?"))
	c.req = request{method: bytes.Clone(c.req.method), target: bytes.Clone(path), length: -1}
	c.buf, c.r, c.w, c.head, c.out = nil, 0, 0, nil, nil
}

// runTunnel ends when both directions have.
func (c *clientConn) runTunnel(t *tunnel, ex *lanes.Exchange, sent []byte) {
	err := t.run(sent)
	c.setTunnel(nil)
	ex.Close()
	c.done(err)
	c.Close()
}

// tunnel is two connections whose bytes pass both ways.
type tunnel struct {
	client, app net.Conn
	idle        time.Duration // 0: no bound

	mu      sync.Mutex
	drained bool
	ended   bool      // by drain, or because one side failed
	last    time.Time // a byte passed, either way
}

// run ends when both directions have ended, or one has failed. sent is what
// the client sent behind its request.
func (t *tunnel) run(sent []byte) error {
	t.touch()
	if _, err := t.app.Write(sent); err != nil {
		return errLeft
	}
	up := make(chan error, 1)
	go func() { up <- t.pass(t.app, t.client) }()
	err := t.pass(t.client, t.app)
	if upErr := <-up; err == nil {
		err = upErr
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil && !t.drained {
		return errLeft
	}
	return nil
}

// drain ends the tunnel because the process stops.
func (t *tunnel) drain() {
	t.mu.Lock()
	t.drained = true
	t.mu.Unlock()
	t.end(nil)
}

// pass copies until from ends, and passes the end on. A failure ends both
// connections, and so the other direction.
func (t *tunnel) pass(to, from net.Conn) error {
	raw, err := descriptorOf(from)
	if err != nil {
		return t.end(err)
	}
	for {
		buffer, n, err := t.read(raw, from)
		if n > 0 {
			_, err = to.Write((*buffer)[:n])
			t.touch()
		}
		if buffer != nil {
			tunnelPool.Put(buffer)
		}
		switch {
		case errors.Is(err, io.EOF):
			if half, ok := to.(interface{ CloseWrite() error }); ok {
				half.CloseWrite()
			}
			return nil
		case err != nil:
			return t.fail(err)
		}
	}
}

// fail ends both connections by a reset: an end that was none must not look
// like one to either side.
func (t *tunnel) fail(err error) error {
	t.mu.Lock()
	ended := t.ended
	t.mu.Unlock()
	if !ended {
		for _, nc := range []net.Conn{t.client, t.app} {
			endByReset(nc)
		}
	}
	return t.end(err)
}

// read waits until there is something to read, and only then takes a buffer.
func (t *tunnel) read(raw syscall.RawConn, from net.Conn) (buffer *[]byte, n int, err error) {
	for {
		t.mu.Lock()
		if t.ended {
			t.mu.Unlock()
			return nil, 0, errLeft
		}
		if t.idle > 0 {
			from.SetReadDeadline(t.last.Add(t.idle))
		}
		t.mu.Unlock()
		var readErr error
		err = raw.Read(func(fd uintptr) bool {
			buffer = tunnelPool.Get().(*[]byte)
			for {
				n, readErr = readNow(from, fd, *buffer)
				if readErr != syscall.EINTR {
					break
				}
			}
			if readErr != syscall.EAGAIN {
				return true
			}
			tunnelPool.Put(buffer)
			buffer = nil
			return false
		})
		switch {
		case isTimeout(err) && t.passedLately():
			continue // the other way
		case err != nil:
			return buffer, 0, err
		case readErr != nil:
			return buffer, 0, readErr
		case n == 0:
			return buffer, 0, io.EOF
		}
		return buffer, n, nil
	}
}

// readNow reads what has come, and does not wait: EAGAIN if nothing has.
func readNow(from net.Conn, fd uintptr, p []byte) (int, error) {
	if s, ok := from.(*secured); ok {
		return s.readNow(fd, p)
	}
	return syscall.Read(int(fd), p)
}

func (t *tunnel) touch() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = time.Now()
}

func (t *tunnel) passedLately() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.ended && t.idle > 0 && time.Since(t.last) < t.idle
}

// end ends both connections.
func (t *tunnel) end(err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	t.client.SetDeadline(past)
	t.app.SetDeadline(past)
	return err
}
