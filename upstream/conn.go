package upstream

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"time"

	"holdfast/internal/http1"
)

const (
	readBytes   = 16 << 10 // a connection's read buffer at first
	inlineBytes = 64 << 10 // a request up to this is written before its answer is read
	maxInterim  = 32       // 1xx answers before one exchange's final one
)

// Conn is one connection to a target and carries one exchange at a time:
// Send, Head, Read until io.EOF; then, if Reusable, the next Send. It has one
// owner, who calls all of it but SetReadDeadline and Close; those may come
// from anywhere.
type Conn struct {
	target *Target
	addr   netip.Addr // that was dialled; the zero one where the target has no name
	nc     net.Conn
	peek   func() (alive bool)

	buf      []byte // head first, its slices stay good until the next Send
	r, w     int    // what was read and not yet handed out
	scanned  int    // ScanHead's place
	bodyAt   int    // the end of the head: nothing before it is overwritten
	res      Response
	chunked  http1.Chunked
	left     int64
	done     bool // the whole answer was handed out
	unsure   bool // a body that must not be there may follow it
	received bool // a byte of this exchange's answer has come
	served   int  // exchanges finished
	usedAt   time.Time

	both   [2][]byte   // a small request's head and body, while they are written
	pieces net.Buffers // of them

	sending chan error // the writer of a large request; nil when none
	source  Source     // what it sends from; nil: memory
}

// Source is a request's body, or the rest of one, that is not in memory.
type Source interface {
	// Send writes it whole, framing included. It may be called again, from
	// the beginning, only where the request may be sent again.
	Send(w io.Writer) error
	// Stop ends a Send that waits for more to send. It may come at any time.
	Stop()
	// Progress is how many bytes have come from a client and gone on, and
	// whether more is waited for: until all has come nobody can expect an
	// answer. It may be asked at any time.
	Progress() (sent int64, waits bool)
}

func newConn(target *Target, nc net.Conn) *Conn {
	return &Conn{target: target, nc: nc, peek: peeker(nc), buf: make([]byte, readBytes)}
}

// SetReadDeadline bounds the reads of Head and Read; the zero time means no bound.
func (c *Conn) SetReadDeadline(t time.Time) { c.nc.SetReadDeadline(t) }

// Close ends the connection. A writer still at work is ended first, so that
// nobody reads the request's body afterwards.
func (c *Conn) Close() {
	c.nc.Close()
	if c.sending == nil {
		return
	}
	select {
	case <-c.sending: // it had ended by itself
	default:
		if c.source != nil {
			c.source.Stop()
		}
		<-c.sending
	}
	c.sending = nil
}

// Progress is that of the request's source; none without one.
func (c *Conn) Progress() (sent int64, waits bool) {
	if c.source == nil {
		return 0, false
	}
	return c.source.Progress()
}

// Served is how many exchanges were finished on c.
func (c *Conn) Served() int { return c.served }

// UsedAt is when the last exchange on c ended.
func (c *Conn) UsedAt() time.Time { return c.usedAt }

// Silent reports whether c is open and nothing unasked-for has come on it.
// Ask before every reuse: an app server closes idle connections when it
// likes, and some send a 408 first, which must not answer the next request.
func (c *Conn) Silent() bool { return c.r == c.w && c.peek() }

// Moved reports whether c goes to an address that its target's name does not
// have any more. Ask before every reuse, and before Silent: now and then it
// waits for a look-up, as a dial does.
func (c *Conn) Moved() bool {
	name := c.target.name
	return name != nil && !slices.Contains(name.current(context.Background(), false).all, c.addr)
}

// Kept reports whether the upstream is known to keep c: its last answer said so
// in words, or some connection to the target has carried a second exchange. One
// that neither keeps its connections nor says that it closes them (uWSGI's
// http-socket) closes right behind an answer, which Silent may come too early to see.
func (c *Conn) Kept() bool { return c.res.SaysKeepAlive || c.target.keeps.Load() }

// Buffered reports whether Read has something to hand out, or to say, for
// certain without reading from the connection. What is there of a chunked
// answer may be framing only.
func (c *Conn) Buffered() bool {
	return c.done || c.r < c.w && c.res.Framing != FramingChunked
}

// Received reports whether a byte of the present exchange's answer has come.
func (c *Conn) Received() bool { return c.received }

func (c *Conn) fail(kind, cause error) error {
	return &Error{Target: c.target.String(), Sent: true, Kind: kind, Cause: cause}
}

// Send writes a request: head whole, its empty line included, then body, then
// what source has. A request of more than 64 KiB, or with a source, is written
// while the answer is read, since an app may answer before it has read
// everything; all of it must then stay as it is until the exchange has ended
// or c is closed. A source that fails ends the connection: what was sent must
// not look whole.
//
// A failed write is an error only if no byte went out (Sent is false);
// otherwise the answer may be there all the same, and Head says.
func (c *Conn) Send(head, body []byte, source Source) error {
	c.r, c.w, c.scanned, c.bodyAt = 0, 0, 0, 0
	c.left, c.done, c.received = 0, false, false
	c.source = source
	if source != nil || len(head)+len(body) > inlineBytes {
		c.sending = make(chan error, 1)
		go c.sendLarge(head, body)
		return nil
	}
	var n int64
	var err error
	if len(body) == 0 {
		var m int
		m, err = c.nc.Write(head)
		n = int64(m)
	} else {
		c.both = [2][]byte{head, body}
		c.pieces = c.both[:]
		n, err = c.pieces.WriteTo(c.nc)
		c.both = [2][]byte{}
	}
	if err != nil && n == 0 {
		return &Error{Target: c.target.String(), Kind: ErrClosed, Cause: err}
	}
	return nil
}

// sendLarge ends when everything is written, when its source fails or is
// stopped, or when c is closed.
func (c *Conn) sendLarge(head, body []byte) {
	both := net.Buffers{head, body}
	_, err := both.WriteTo(c.nc)
	if err == nil && c.source != nil {
		if err = c.source.Send(c.nc); err != nil && !isWriteError(err) {
			c.nc.Close()
		}
	}
	c.sending <- err
}

// isWriteError reports whether err is the upstream's: it takes no more, and
// its answer may be there all the same.
func isWriteError(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}

// Head reads up to the head of the final answer and returns it. Each interim
// answer (1xx) on the way is given to interim, unless that is nil. toHEAD
// says that the request was a HEAD, whose answer has no body. After an
// ErrTimeout, Head may be called again and goes on where it was.
func (c *Conn) Head(toHEAD bool, interim func(*Response)) (*Response, error) {
	return c.head(toHEAD, false, interim)
}

// HeadOrSwitch is Head for a request that asks to switch protocols: a 101 is
// a final answer too, and Tunnel comes next.
func (c *Conn) HeadOrSwitch(interim func(*Response)) (*Response, error) {
	return c.head(false, true, interim)
}

// Tunnel gives the connection up to its caller after a 101: the connection,
// and what was read from it already. Close is still c's.
func (c *Conn) Tunnel() (nc net.Conn, early []byte) {
	early = append([]byte(nil), c.buf[c.r:c.w]...)
	c.buf, c.r, c.w, c.res = nil, 0, 0, Response{} // an idle tunnel needs no buffer
	return c.nc, early
}

func (c *Conn) head(toHEAD, maySwitch bool, interim func(*Response)) (*Response, error) {
	for n := 0; ; n++ {
		if err := c.readHead(toHEAD); err != nil {
			return nil, err
		}
		if c.res.Status >= 200 {
			break
		}
		if c.res.Status == 101 && maySwitch {
			return &c.res, nil
		}
		if c.res.Status == 101 {
			return nil, c.fail(ErrMalformed, errors.New("it switched protocols (101) on a lane that does not tunnel"))
		}
		if n == maxInterim {
			return nil, c.fail(ErrMalformed, errors.New("it sent too many 1xx answers"))
		}
		if interim != nil {
			interim(&c.res)
		}
	}
	c.bodyAt = c.r
	c.left = c.res.Length
	switch c.res.Framing {
	case FramingNone:
		c.done, c.unsure = true, mayBringBody(&c.res, toHEAD)
	case FramingLength:
		c.done = c.left == 0
	case FramingChunked:
		c.chunked.Reset()
	}
	if c.done {
		c.finish()
	}
	return &c.res, nil
}

// mayBringBody reports whether an answer without a body may be followed by one
// all the same: gunicorn 20.1 sends to a HEAD what the view made, and to a 204
// or 304 as much as its Content-Length says. It may come after the head, and
// would be taken for the next answer.
func mayBringBody(res *Response, toHEAD bool) bool {
	for _, f := range res.Fields {
		if http1.EqualFold(f.Name, "content-length") {
			return string(f.Value) != "0"
		}
	}
	return toHEAD
}

// readHead reads one head, of a final or an interim answer, into c.res.
func (c *Conn) readHead(toHEAD bool) error {
	for {
		end, next, err := http1.ScanHead(c.buf[c.r:c.w], c.scanned)
		if err != nil {
			return c.fail(ErrMalformed, err)
		}
		c.scanned = next
		if end > maxResponseHead || end == 0 && c.w-c.r >= maxResponseHead {
			return c.fail(ErrMalformed, errors.New("its head is over 64 KiB"))
		}
		if end > 0 {
			head := c.buf[c.r : c.r+end]
			c.r, c.scanned = c.r+end, 0
			c.res = Response{Fields: c.res.Fields[:0]}
			if err := c.res.parse(head, toHEAD); err != nil {
				return c.fail(ErrMalformed, err)
			}
			return nil
		}
		if err := c.fill(); err != nil {
			return err
		}
	}
}

// fill reads once into the buffer, behind what is there.
func (c *Conn) fill() error {
	if c.bodyAt > 0 && c.r == c.w {
		c.r, c.w = c.bodyAt, c.bodyAt
	}
	if len(c.buf)-c.w < 1<<10 {
		// A new array, so that slices of the head stay good.
		grown := make([]byte, 2*len(c.buf))
		copy(grown, c.buf[:c.w])
		c.buf = grown
	}
	n, err := c.nc.Read(c.buf[c.w:])
	c.w += n
	return c.readError(n, err)
}

// readError says what a read's error means; nil if it read something.
func (c *Conn) readError(n int, err error) error {
	if n > 0 {
		c.received = true
		return nil
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return c.fail(ErrTimeout, nil)
	case errors.Is(err, net.ErrClosed):
		return c.fail(ErrInterrupted, nil)
	case !c.received:
		return c.fail(ErrClosed, err)
	}
	return c.fail(ErrTruncated, err)
}

// Read hands out the answer's body, without its framing; io.EOF comes with or
// after the last byte. It blocks only while it has nothing to hand out.
func (c *Conn) Read(p []byte) (n int, err error) {
	if c.done {
		return 0, io.EOF
	}
	if c.res.Framing == FramingChunked {
		n, err = c.readChunked(p)
	} else {
		n, err = c.readPlain(p)
	}
	if err == nil && c.done {
		c.finish()
		err = io.EOF
	}
	return n, err
}

func (c *Conn) readPlain(p []byte) (n int, err error) {
	if c.res.Framing == FramingLength && int64(len(p)) > c.left {
		p = p[:c.left]
	}
	if c.r < c.w {
		n = copy(p, c.buf[c.r:c.w])
		c.r += n
	} else {
		n, err = c.nc.Read(p)
		if n == 0 && err == io.EOF && c.res.Framing == FramingClose {
			c.done = true
			return 0, nil
		}
		if err = c.readError(n, err); err != nil {
			return n, err
		}
	}
	if c.res.Framing == FramingLength {
		c.left -= int64(n)
		c.done = c.left == 0
	}
	return n, nil
}

func (c *Conn) readChunked(p []byte) (n int, err error) {
	for n < len(p) && !c.done {
		if c.r == c.w {
			if n > 0 {
				return n, nil
			}
			if err := c.fill(); err != nil {
				return 0, err
			}
		}
		in := c.buf[c.r:c.w]
		if room := len(p) - n; len(in) > room {
			in = in[:room]
		}
		used, data, done, err := c.chunked.Next(in)
		if err != nil {
			return n, c.fail(ErrMalformed, err)
		}
		c.r += used
		n += copy(p[n:], data)
		c.done = done
	}
	return n, nil
}

func (c *Conn) finish() {
	if c.served++; c.served == 2 {
		c.target.keeps.Store(true)
	}
	c.usedAt = time.Now()
	c.target.heard.Store(c.usedAt.UnixNano())
}

// Trailer is the trailer section of a chunked answer that was read whole, its
// lines with their CRLFs; only if KeepTrailer was called before Head.
func (c *Conn) Trailer() []byte { return c.chunked.Trailer() }

// KeepTrailer keeps the trailer sections of answers from now on.
func (c *Conn) KeepTrailer() { c.chunked.KeepTrailer = true }

// Finished reports whether the whole answer was read.
func (c *Conn) Finished() bool { return c.done }

// Reusable reports whether another exchange may follow: exactly one whole
// answer was read, nothing is behind it, the upstream offered to keep the
// connection, and the request went out whole.
func (c *Conn) Reusable() bool {
	if !c.done || c.unsure || !c.res.KeepAlive || c.r != c.w {
		return false
	}
	if c.sending != nil {
		select {
		case err := <-c.sending:
			c.sending = nil
			// Written is not read: an app that refuses an upload may be about
			// to close the connection with what it did not read.
			return err == nil && c.res.Status < 300
		default:
			return false
		}
	}
	return true
}

// peeker makes the check behind Silent: one recv that takes nothing and does
// not wait (about half a microsecond).
func peeker(nc net.Conn) func() bool {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return func() bool { return false }
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return func() bool { return false }
	}
	var silent bool
	var one [1]byte
	check := func(fd uintptr) {
		_, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		silent = err == syscall.EAGAIN
	}
	return func() bool {
		silent = false
		if raw.Control(check) != nil {
			return false
		}
		return silent
	}
}
