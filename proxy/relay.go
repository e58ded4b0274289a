package proxy

import (
	"errors"
	"io"
	"net"
	"strconv"
	"sync"

	"go.uber.org/zap"

	"holdfast/lanes"
	"holdfast/upstream"
)

// backlog is the part of an answer that was read from the upstream and not
// yet taken by the client: a FIFO of bytes with one reader of the upstream
// putting and one writer to the client taking.
type backlog struct {
	memory *budget

	mu     sync.Mutex
	change sync.Cond
	pieces [][]byte
	bytes  int
	ended  bool // nothing more is put
	whole  bool // … because the answer ended as it should
	gone   bool // the writer has given up
}

func newBacklog(memory *budget) *backlog {
	b := &backlog{memory: memory}
	b.change.L = &b.mu
	return b
}

// put adds a copy of p. It waits only where the memory of all answers is used
// up, and then for this client alone. false: the writer has given up.
func (b *backlog) put(p []byte) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for !b.gone && b.bytes > 0 && !b.memory.take(len(p)) {
		b.change.Wait()
	}
	if b.gone {
		return false
	}
	if b.bytes == 0 {
		b.memory.force(len(p)) // one piece a client, whatever the others hold
	}
	if last := len(b.pieces) - 1; last >= 0 && len(b.pieces[last])+len(p) <= cap(b.pieces[last]) {
		b.pieces[last] = append(b.pieces[last], p...)
	} else {
		b.pieces = append(b.pieces, append(make([]byte, 0, max(len(p), pieceBytes)), p...))
	}
	b.bytes += len(p)
	b.change.Signal()
	return true
}

// pieceBytes is the least a piece has room for.
const pieceBytes = 4 << 10

// end says that nothing more comes.
func (b *backlog) end(whole bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended, b.whole = true, whole
	b.change.Signal()
}

// next waits for the next piece; nil: there is none any more.
func (b *backlog) next() (piece []byte, whole bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.pieces) == 0 && !b.ended {
		b.change.Wait()
	}
	if len(b.pieces) == 0 {
		return nil, b.whole
	}
	piece = b.pieces[0]
	b.pieces[0] = nil
	b.pieces = b.pieces[1:]
	return piece, false
}

// written gives a piece's bytes back to the budget.
func (b *backlog) written(n int) {
	b.memory.give(n)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bytes -= n
	b.change.Signal()
}

// giveUp drops what is left: the client takes no more.
func (b *backlog) giveUp() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gone = true
	b.memory.give(b.bytes)
	b.bytes, b.pieces = 0, nil
	b.change.Signal()
}

// relayRest passes on an answer of which out is the beginning. This goroutine
// reads at the upstream's pace, so that the slot is free at the upstream's
// last byte; another writes at the client's.
func (c *clientConn) relayRest(ex *lanes.Exchange, out []byte, f framing, keep bool) (bool, error) {
	b := newBacklog(&c.server.memory)
	written := make(chan error, 1)
	go c.writeBacklog(b, ex, out, f, written)
	scratch := outPool.Get().(*[]byte)
	readErr := readInto(ex, b, *scratch)
	outPool.Put(scratch)
	ex.Close() // what is unfinished is abandoned now, not when the client has taken its part
	b.end(readErr == io.EOF)
	if err := <-written; err != nil {
		return false, errLeft
	}
	if readErr != io.EOF {
		if !errors.Is(readErr, upstream.ErrInterrupted) {
			c.server.log.Warn("answer cut short", zap.Error(readErr))
		}
		c.done(errTruncated)
		c.cut()
		return false, errTruncated
	}
	return keep, nil
}

// readInto reads the answer into the backlog; io.EOF: it ended as it should.
func readInto(ex *lanes.Exchange, b *backlog, scratch []byte) error {
	for {
		n, err := ex.Read(scratch)
		if n > 0 && !b.put(scratch[:n]) {
			return errLeft
		}
		if err != nil {
			return err
		}
	}
}

// writeBacklog writes out, then what comes, until the backlog has ended or
// the client takes no more; then the exchange is interrupted, unless it is
// over already.
func (c *clientConn) writeBacklog(b *backlog, ex *lanes.Exchange, out []byte, f framing, written chan<- error) {
	err := c.writeOnce(out)
	for err == nil {
		piece, whole := b.next()
		if piece == nil {
			if whole && f == framedChunked {
				err = c.writeOnce([]byte(lastChunk))
			}
			break
		}
		err = c.writePiece(piece, f)
		b.written(len(piece))
	}
	if err != nil {
		b.giveUp()
		ex.Interrupt()
	}
	written <- err
}

func (c *clientConn) writePiece(piece []byte, f framing) error {
	if f != framedChunked {
		return c.writeOnce(piece)
	}
	var space [chunkSpace]byte
	size := append(strconv.AppendUint(space[:0], uint64(len(piece)), 16), "\r\n"...)
	c.extendWrite(c.site.cfg.BodyTimeout)
	chunk := net.Buffers{size, piece, []byte("\r\n")}
	n, err := chunk.WriteTo(c.Conn)
	c.record.bytes += n
	if err != nil {
		return errLeft
	}
	return nil
}
