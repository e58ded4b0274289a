package proxy

import (
	"errors"
	"io"
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
	resting bool     // the writer waits for more
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
		b.file.clear()
		b.mu.Lock()
		b.written, b.read = 0, 0
		b.mu.Unlock()
	}
	return b.file.append(p) == nil
}

// pieceBytes is the least a piece has room for.
const pieceBytes = 4 << 10

// end says that nothing more comes.
func (b *backlog) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	b.change.Signal()
}

// rests reports whether the client has taken all there was: its writer does
// nothing until more is put.
func (b *backlog) rests() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.resting && b.isEmpty()
}

// isEmpty reports whether there is nothing to take. b.mu is held.
func (b *backlog) isEmpty() bool { return len(b.pieces) == 0 && b.read == b.written }

// next waits for the next piece; nil: there is none any more. What comes from
// the file is read into scratch.
func (b *backlog) next(scratch []byte) (piece []byte, err error) {
	b.mu.Lock()
	for b.isEmpty() && !b.ended {
		b.resting = true
		b.change.Wait()
	}
	b.resting = false
	if len(b.pieces) > 0 {
		piece = b.pieces[0]
		b.pieces[0] = nil
		b.pieces = b.pieces[1:]
		b.mu.Unlock()
		return piece, nil
	}
	from, n := b.read, min(int64(len(scratch)), b.written-b.read)
	file := b.file
	b.mu.Unlock()
	if n == 0 {
		return nil, nil
	}
	if _, err := file.file.ReadAt(scratch[:n], from); err != nil {
		return nil, err
	}
	return scratch[:n], nil
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
// last byte, and writes what the client takes at once; what it does not take at
// once goes to a backlog, and another goroutine writes that at the client's pace.
func (c *clientConn) relayRest(ex *lanes.Exchange, out []byte, f framing, keep bool) (bool, error) {
	r := &rest{client: c, ex: ex, framing: f, backlog: newBacklog(c.server), eager: newEager(c)}
	defer r.backlog.close()
	defer r.backlog.end() // or its writer would wait for ever, if this goroutine panicked
	readErr := r.pass(out)
	ex.Close() // what is unfinished is abandoned now, not when the client has taken its part
	if r.finish() != nil || errors.Is(readErr, errLeft) || errors.Is(readErr, upstream.ErrInterrupted) {
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

// rest is an answer on its way from the upstream to its client.
type rest struct {
	client  *clientConn
	ex      *lanes.Exchange
	framing framing
	backlog *backlog
	eager   *eager
	written chan error // of the goroutine that writes the backlog; nil: there is none yet
}

// pass sends out, then what comes; io.EOF: it ended as it should.
func (r *rest) pass(out []byte) error {
	if err := r.send(out); err != nil {
		return err
	}
	scratch := outPool.Get().(*[]byte)
	defer outPool.Put(scratch)
	for {
		piece, err := readFramed(r.ex, *scratch, r.framing)
		if err == io.EOF && r.framing == framedChunked {
			piece = append(piece, lastChunk...)
		}
		if len(piece) > 0 {
			if err := r.send(piece); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
	}
}

// send gives p to the client, or keeps a copy of what it does not take at once.
// While something is kept, all that follows is kept behind it.
func (r *rest) send(p []byte) error {
	if r.written == nil || r.backlog.rests() {
		n, err := r.eager.write(p)
		if err != nil {
			return errLeft
		}
		if p = p[n:]; len(p) == 0 {
			return nil
		}
	}
	if r.written == nil {
		r.written = make(chan error, 1)
		go r.writeBacklog()
	}
	if !r.backlog.put(p) {
		return errLeft
	}
	return nil
}

// finish waits until the client has taken everything, or takes no more.
func (r *rest) finish() error {
	r.backlog.end()
	if r.written == nil {
		return nil
	}
	return <-r.written
}

// writeBacklog writes what is kept until the backlog has ended or the client
// takes no more; then the exchange is interrupted, unless it is over already.
func (r *rest) writeBacklog() {
	scratch := outPool.Get().(*[]byte)
	defer outPool.Put(scratch)
	var err error
	for err == nil {
		var piece []byte
		if piece, err = r.backlog.next(*scratch); err != nil || piece == nil {
			break
		}
		fromFile := &piece[0] == &(*scratch)[0]
		err = r.client.writeOnce(piece)
		r.backlog.taken(len(piece), fromFile)
	}
	if err != nil {
		r.backlog.giveUp()
		r.ex.Interrupt()
	}
	r.written <- err
}
