package proxy

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// wire is the connection below a TLS one.
//
// A write of crypto/tls that times out is that connection's last, since half of
// a record may have gone out. So what a client takes slowly is waited for here:
// a write goes on for as long as the client takes anything within the time that
// the deadline gave it.
//
// What is said at the end must not wait at all, as a loop of holds may be the
// one that says it. From part on a write hands the kernel what it takes at
// once; a goroutine of its own brings the rest out.
type wire struct {
	net.Conn

	patient atomic.Bool  // the handshake, which has one bound in all, is over
	written atomic.Int64 // handed to the kernel

	// of the goroutine that reads
	now bool // a read takes what is there, from fd
	fd  int

	mu      sync.Mutex
	wait    time.Duration // what the latest write deadline gave; 0: none is to be renewed
	parting bool          // what is written is the last
	failed  bool          // a write has: nothing can follow it
	rest    []byte        // what the kernel has not taken of the last
	brings  bool          // a goroutine brings that out
	shutIt  bool          // and shuts the sending side, or
	closeIt bool          // closes the connection
}

// errNothingYet: a read that does not wait found nothing. To crypto/tls it is a
// time-out, after which it reads on.
var errNothingYet net.Error = nothingYet{}

type nothingYet struct{}

func (nothingYet) Error() string   { return "nothing has come yet" }
func (nothingYet) Timeout() bool   { return true }
func (nothingYet) Temporary() bool { return true }

func (w *wire) Read(p []byte) (int, error) {
	if !w.now {
		return ended(w.Conn.Read(p))
	}
	for {
		switch n, err := syscall.Read(w.fd, p); {
		case err == syscall.EINTR:
		case err == syscall.EAGAIN:
			return 0, errNothingYet
		case err == nil && n == 0:
			return ended(0, io.EOF)
		default:
			return max(n, 0), err
		}
	}
}

func (w *wire) Write(p []byte) (n int, err error) {
	for waiting := -1; ; {
		w.mu.Lock()
		if w.parting {
			defer w.mu.Unlock()
			if w.failed || n > 0 { // nothing can follow a part of a record
				return n, net.ErrClosed
			}
			return len(p), w.handOver(p)
		}
		w.mu.Unlock()
		took, err := w.Conn.Write(p[n:])
		n += took
		w.written.Add(int64(took))
		if err == nil {
			return n, nil
		}
		before := waiting
		if isTimeout(err) {
			waiting = unacknowledged(w.Conn)
		}
		if took == 0 && (waiting < 0 || before >= 0 && waiting >= before) || !w.renew() {
			w.mu.Lock()
			w.failed = true
			w.mu.Unlock()
			return n, err
		}
	}
}

// renew gives a write that timed out as much time again.
func (w *wire) renew() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.parting || w.wait <= 0 || !w.patient.Load() {
		return false
	}
	return w.Conn.SetWriteDeadline(time.Now().Add(w.wait)) == nil
}

// SetWriteDeadline bounds the wait for the client to take a byte. One that is
// over ends the write that waits.
func (w *wire) SetWriteDeadline(at time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.parting { // crypto/tls would wait, for 5 s
		return nil
	}
	w.wait = 0
	if !at.IsZero() {
		w.wait = time.Until(at)
	}
	return w.Conn.SetWriteDeadline(at)
}

func (w *wire) SetDeadline(at time.Time) error {
	if err := w.SetWriteDeadline(at); err != nil {
		return err
	}
	return w.Conn.SetReadDeadline(at)
}

// part begins the end: a write that waits is given up, and what is written from
// now on is the last.
func (w *wire) part() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.parting {
		w.parting = true
		w.Conn.SetWriteDeadline(past)
	}
}

// handOver gives the kernel what it takes of p without waiting, and keeps the
// rest. w.mu is held.
func (w *wire) handOver(p []byte) error {
	if len(w.rest) == 0 {
		raw, err := descriptorOf(w.Conn)
		if err != nil {
			return err
		}
		var n int
		if e := raw.Control(func(fd uintptr) { n, err = syscall.Write(int(fd), p) }); e != nil {
			return e
		}
		if err != nil && err != syscall.EAGAIN && err != syscall.EINTR {
			w.failed = true
			return err
		}
		p = p[max(n, 0):]
	}
	w.rest = append(w.rest, p...)
	return nil
}

// shut ends the sending side, behind what is left of the last.
func (w *wire) shut() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed = true
	if len(w.rest) > 0 {
		w.shutIt = true
		w.bring()
		return nil
	}
	half, ok := w.Conn.(interface{ CloseWrite() error })
	if !ok {
		return nil
	}
	return half.CloseWrite()
}

// Close closes the connection, behind what is left of the last.
func (w *wire) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed = true
	if len(w.rest) > 0 {
		w.closeIt = true
		w.bring()
		return nil
	}
	return w.Conn.Close()
}

// bring has a goroutine bring out what is left of the last. w.mu is held.
func (w *wire) bring() {
	if !w.brings {
		w.brings = true
		w.Conn.SetWriteDeadline(time.Now().Add(lingerTime))
		go w.bringOut(w.rest)
	}
}

// bringOut ends when the kernel has taken it, or lingerTime has passed.
func (w *wire) bringOut(rest []byte) {
	w.Conn.Write(rest)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rest, w.brings = nil, false
	switch half, ok := w.Conn.(interface{ CloseWrite() error }); {
	case w.closeIt:
		w.Conn.Close()
	case w.shutIt && ok:
		half.CloseWrite()
	}
}

// taken is how much the client's system has acknowledged.
func (w *wire) taken() int64 {
	return w.written.Load() - int64(max(unacknowledged(w.Conn), 0))
}
