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
// putting and one writer to the client taking. It begins in memory; over
// inMemory, or where the memory of all is used up, what comes goes to a file,
// until the client has caught up.
type backlog struct {
	server *Server
	file   *spooled // the putting side's; nil: none yet

	mu      sync.Mutex
	change  sync.Cond
	pieces  [][]byte // in memory, before what is in the file
	bytes   int      // of them
	written int64    // to the file
	read    int64    // from the file
	ended   bool     // nothing more is put
	whole   bool     // … because the answer ended as it should
	gone    bool     // the writer has given up
}

func newBacklog(s *Server) *backlog {
	b := &backlog{server: s}
	b.change.L = &b.mu
	return b
}

// put adds a copy of p. Where the spool has no room it is memory again, as far
// as that goes. It waits only where neither memory nor spool has room,
// and then for this client alone. false: the writer has given up.
func (b *backlog) put(p []byte) bool {
	b.mu.Lock()
	caughtUp := b.read == b.written
	fits := caughtUp && b.bytes+len(p) <= inMemory && b.server.memory.take(len(p))
	b.mu.Unlock()
	if !fits && b.spool(p, caughtUp) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.written += int64(len(p))
		b.change.Signal()
		return !b.gone
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	room := func() bool { return b.read == b.written && b.server.memory.take(len(p)) }
	for fits = fits || room(); !fits && !b.gone && (b.bytes > 0 || b.read < b.written); fits = room() {
		b.server.tellSpool()
		b.change.Wait()
	}
	if b.gone {
		if fits {
			b.server.memory.give(len(p))
		}
		return false
	}
	if !fits {
		b.server.memory.force(len(p)) // one piece a client, whatever the others hold
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

// spool puts p into the file. Only the putting side calls it.
func (b *backlog) spool(p []byte, caughtUp bool) bool {
	if b.file == nil {
		file, err := b.server.spool.create()
		if err != nil {
			return false
		}
		b.mu.Lock()
		b.file = file
		b.mu.Unlock()
	}
	if caughtUp && b.file.size > 0 {
		// What was written has been read: the room is used again.
		if b.file.clear() != nil {
			return false
		}
		b.mu.Lock()
		b.written, b.read = 0, 0
		b.mu.Unlock()
	}
	return b.file.append(p) == nil
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

// next waits for the next piece; nil: there is none any more. What comes from
// the file is read into scratch.
func (b *backlog) next(scratch []byte) (piece []byte, whole bool, err error) {
	b.mu.Lock()
	for len(b.pieces) == 0 && b.read == b.written && !b.ended {
		b.change.Wait()
	}
	if len(b.pieces) > 0 {
		piece = b.pieces[0]
		b.pieces[0] = nil
		b.pieces = b.pieces[1:]
		b.mu.Unlock()
		return piece, false, nil
	}
	from, n := b.read, min(int64(len(scratch)), b.written-b.read)
	file, whole := b.file, b.whole
	b.mu.Unlock()
	if n == 0 {
		return nil, whole, nil
	}
	if _, err := file.file.ReadAt(scratch[:n], from); err != nil {
		return nil, false, err
	}
	return scratch[:n], false, nil
}

// taken says that the client has taken the last piece.
func (b *backlog) taken(n int, fromFile bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if fromFile {
		b.read += int64(n)
	} else {
		b.bytes -= n
		b.server.memory.give(n)
	}
	b.change.Signal()
}

// giveUp drops what is left: the client takes no more.
func (b *backlog) giveUp() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gone = true
	b.server.memory.give(b.bytes)
	b.bytes, b.pieces = 0, nil
	b.change.Signal()
}

// close gives the file back, when neither side needs it.
func (b *backlog) close() {
	if b.file != nil {
		b.file.close()
	}
}

// relayRest passes on an answer of which out is the beginning. This goroutine
// reads at the upstream's pace, so that the slot is free at the upstream's
// last byte; another writes at the client's.
func (c *clientConn) relayRest(ex *lanes.Exchange, out []byte, f framing, keep bool) (bool, error) {
	b := newBacklog(c.server)
	defer b.close()
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
	if errors.Is(readErr, upstream.ErrInterrupted) {
		return false, errLeft
	}
	if readErr != io.EOF {
		c.server.log.Warn("answer cut short", zap.Error(readErr))
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
	scratch := outPool.Get().(*[]byte)
	defer outPool.Put(scratch)
	err := c.writeOnce(out)
	for err == nil {
		var piece []byte
		var whole bool
		if piece, whole, err = b.next(*scratch); err != nil {
			break
		}
		if piece == nil {
			if whole && f == framedChunked {
				err = c.writeOnce([]byte(lastChunk))
			}
			break
		}
		fromFile := &piece[0] == &(*scratch)[0]
		err = c.writePiece(piece, f)
		b.taken(len(piece), fromFile)
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
	return c.writeAll(net.Buffers{size, piece, []byte("\r\n")})
}
