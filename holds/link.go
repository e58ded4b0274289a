package holds

import (
	"errors"
	"math"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"time"
)

// link serves one hold's connection where there is no descriptor to watch: TLS,
// and systems other than Linux. A goroutine waits for the client's leaving;
// another runs while something is written. To the loop it looks like a
// connection whose buffer takes one write at a time.
type link struct {
	// fixed
	conn net.Conn
	loop *loop

	// the loop's
	busy   bool   // a write is under way
	parted bool   // nothing follows it, and whoever is the later of close and writeOut closes the connection
	shutAt bool   // the sending side is to be shut when it is over
	in     []byte // read and not used yet
	inErr  error  // what ended the reading

	more chan struct{} // in has been used up: the goroutine reads on

	// of the goroutine that reads, until ended is closed
	early []byte // what a long poll's client has sent
	ended chan struct{}

	last    atomic.Int32 // how many of the two of them have come, for the write under way
	left    atomic.Int64 // bytes of the write under way that the client has not taken
	lingers atomic.Bool  // set by the goroutine that reads a stream, at its end, and by part: the second to do so closes the connection
}

// linkPiece is how much is written at once, so that it is seen to go on.
const linkPiece = 16 << 10

// newLink makes the link of a hold's connection.
func newLink(l *loop, conn net.Conn) *link {
	conn.SetDeadline(time.Time{})
	return &link{conn: conn, loop: l, more: make(chan struct{}, 1)}
}

// watchLink begins to wait for what the client sends, and for its leaving.
func (l *loop) watchLink(h *hold) {
	switch {
	case h.socket != nil:
		go h.link.readSocket(h)
	case h.poll != nil:
		h.link.ended = make(chan struct{})
		go h.link.readPoll(h)
	default:
		go h.link.readStream(h)
	}
}

// readStream ends when the client has left, or the connection is closed. What
// a client sends to a stream means nothing.
func (k *link) readStream(h *hold) {
	var scratch [512]byte
	for {
		if _, err := k.conn.Read(scratch[:]); err != nil {
			break
		}
	}
	if k.lingers.Swap(true) {
		k.conn.Close()
		return
	}
	k.loop.hub.call(k.loop, func() { k.loop.hangUp(h) })
}

// readSocket hands on what the client sends, one piece at a time.
func (k *link) readSocket(h *hold) {
	buf := make([]byte, 4<<10)
	for {
		n, err := k.conn.Read(buf)
		k.loop.hub.call(k.loop, func() {
			k.in, k.inErr = buf[:n], err
			k.loop.readable(h)
		})
		if err != nil {
			return
		}
		if _, open := <-k.more; !open {
			return
		}
	}
}

// readPoll keeps what a long poll's client sends: its next request.
func (k *link) readPoll(h *hold) {
	defer close(k.ended)
	var err error
	for err == nil && len(k.early) < linkPiece {
		var n int
		buf := make([]byte, 512)
		n, err = k.conn.Read(buf)
		k.early = append(k.early, buf[:n]...)
	}
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		k.loop.hub.call(k.loop, func() { k.loop.hangUp(h) })
	}
}

// release ends the reading and gives the connection up.
func (k *link) release() (conn net.Conn, read []byte, err error) {
	k.conn.SetReadDeadline(time.Unix(1, 0))
	<-k.ended
	k.conn.SetReadDeadline(time.Time{})
	return k.conn, k.early, nil
}

// read gives what the goroutine has read.
func (k *link) read(into []byte) (n int, err error) {
	if len(k.in) == 0 {
		if k.inErr != nil {
			return 0, k.inErr
		}
		return 0, errAgain
	}
	n = copy(into, k.in)
	if k.in = k.in[n:]; len(k.in) == 0 && k.inErr == nil {
		k.more <- struct{}{}
	}
	return n, nil
}

// write takes all pieces, or none while a write is under way.
func (k *link) write(h *hold, pieces [][]byte) (n int, err error) {
	if k.busy {
		return 0, nil
	}
	for _, b := range pieces {
		n += len(b)
	}
	k.busy = true
	k.last.Store(0)
	k.left.Store(int64(n))
	go k.writeOut(h, slices.Clone(pieces))
	return n, nil
}

// writeOut writes the pieces and tells the loop.
func (k *link) writeOut(h *hold, pieces [][]byte) {
	var err error
	for _, b := range pieces {
		for len(b) > 0 && err == nil {
			k.conn.SetWriteDeadline(time.Now().Add(k.loop.limits.Load().WriteStall))
			var n int
			n, err = k.conn.Write(b[:min(len(b), linkPiece)])
			b = b[n:]
			k.left.Add(-int64(n))
			if n > 0 && errors.Is(err, os.ErrDeadlineExceeded) {
				err = nil // it takes something still
			}
		}
	}
	if k.last.Add(1) == 2 { // and the loop need not be there any more
		k.part(h)
		return
	}
	k.loop.hub.call(k.loop, func() { k.written(h, err) })
}

// written goes on after a write.
func (k *link) written(h *hold, err error) {
	k.busy = false
	switch {
	case k.parted: // close has seen to it
	case k.shutAt:
		k.shut()
	case errors.Is(err, os.ErrDeadlineExceeded) && h.state == ending:
		k.loop.close(h, true)
	case errors.Is(err, os.ErrDeadlineExceeded):
		k.loop.end(h, EndStalled)
	case err != nil && !errors.Is(err, net.ErrClosed):
		k.loop.hangUp(h)
	case h.poll != nil && h.state == ending && h.outbox == nil:
		k.loop.giveBack(h)
	default:
		k.loop.writable(h)
	}
}

// unacknowledged is a number that gets less with what the client takes: by its
// bytes, where the connection counts them, else by the pieces.
func (k *link) unacknowledged() int {
	if counts, ok := k.conn.(interface{ Taken() int64 }); ok {
		return math.MaxInt - int(counts.Taken())
	}
	return int(k.left.Load())
}

// shut ends the sending side, when what was written is out.
func (k *link) shut() {
	if k.busy {
		k.shutAt = true
	} else if half, ok := k.conn.(interface{ CloseWrite() error }); ok {
		half.CloseWrite()
	}
}

// close closes the connection, when what was written is out.
func (k *link) close(h *hold, reset bool, within time.Duration) {
	close(k.more)
	if lingering, ok := k.conn.(interface{ SetLinger(sec int) error }); ok && reset {
		lingering.SetLinger(0)
	}
	if k.busy && !reset && !k.loop.stopped { // a loop that is stopped never hears of its end
		k.parted = true
		k.conn.SetWriteDeadline(time.Now().Add(within))
		if k.last.Add(1) == 2 {
			k.part(h)
		}
		return
	}
	if reset || k.loop.stopped {
		k.conn.Close()
	} else {
		k.part(h)
	}
}

// part closes the connection. What a stream's client has sent is read first, or
// the close would be a reset, which can eat the last bytes on their way.
func (k *link) part(h *hold) {
	half, ok := k.conn.(interface{ CloseWrite() error })
	if h.kind != ModeStream || !ok || half.CloseWrite() != nil {
		k.conn.Close()
		return
	}
	k.conn.SetReadDeadline(time.Now().Add(partingTime))
	if k.lingers.Swap(true) { // nobody reads any more
		k.conn.Close()
	}
}
