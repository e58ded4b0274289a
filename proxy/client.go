package proxy

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"holdfast/internal/http1"
	"holdfast/lanes"
)

const firstReadBytes = 4 << 10

// clientConn is a client's connection: the buffer, the clock and the strict
// check. At first fasthttp reads from it, through Read; once taken over, serve
// does everything.
type clientConn struct {
	// fixed
	net.Conn
	tls    *secured // the same; nil: there is no TLS
	server *Server
	peer   peer
	ctx    context.Context
	cancel context.CancelFunc
	ended  sync.Once

	// of the goroutine that serves
	site       *site // in force when the present request began
	record     record
	buf        []byte
	r, w       int // what was read and not used yet
	headEnd    int // nothing before it is overwritten while its request lasts
	req        request
	chunked    http1.Chunked
	head       []byte // the request head for the app
	out        []byte // small writes
	requestID  []byte
	positionAt int     // where M0-Position's number is in head; 0: there is none
	position   int64   // of the events, when the request was sent to the app
	last       []byte  // what the app is told of its answer, as it is asked a second time; nil: it is not
	shown      []byte  // what is left of the head that fasthttp is shown
	answer     *answer // what fasthttp is to write; nil: take over
	body       []byte  // of a request that is answered here
	taken      bool
	// handedOver: it is a tunnel, which has goroutines of its own, or a hold.
	handedOver bool
	ahead      *ahead // reads meanwhile; nil: nobody does
	ticket     uint64 // of the watch
	readBy     time.Time
	writeBy    time.Time

	mu       sync.Mutex
	exchange *lanes.Exchange // running for this client
	fin      bool            // the client has closed its side
	left     bool            // the client is gone: reset, or cut by us
	endless  bool            // the exchange's answer is a stream: FIN is leaving
	open     *tunnel         // running on this connection
	idle     bool            // waiting for a request's first byte
	idleAt   time.Time       // since when

	cutOff      atomic.Bool // by the drain's bound
	readStopped atomic.Bool // nothing more of an upload is wanted
	streamLeft  atomic.Bool // nothing more of a stream is wanted
}

func newClientConn(s *Server, nc net.Conn) *clientConn {
	c := &clientConn{Conn: nc, server: s, site: s.site.Load()}
	c.tls, _ = nc.(*secured)
	c.peer = peerOf(nc, c.site.cfg.Trusted)
	c.ctx, c.cancel = context.WithCancel(context.Background())
	s.add(c)
	return c
}

func (c *clientConn) localHost() string {
	if addr, ok := c.Conn.LocalAddr().(*net.TCPAddr); ok {
		return addr.String()
	}
	return "localhost"
}

// SetDeadline does nothing: the clock is this connection's own.
func (c *clientConn) SetDeadline(time.Time) error { return nil }

// SetReadDeadline does nothing.
func (c *clientConn) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline does nothing.
func (c *clientConn) SetWriteDeadline(time.Time) error { return nil }

// Close ends the connection. It may be called more than once.
func (c *clientConn) Close() (err error) {
	c.ended.Do(func() {
		c.done(nil)
		if c.taken {
			c.server.watch.remove(c.ticket)
		}
		c.cancel()
		err = c.Conn.Close()
		c.server.remove(c)
	})
	return err
}

// The heads that fasthttp is shown: what its answer depends on, and no more.
var (
	shownGET       = []byte("GET / HTTP/1.1\r\nHost: holdfast\r\n\r\n")
	shownHEAD      = []byte("HEAD / HTTP/1.1\r\nHost: holdfast\r\n\r\n")
	shownGETClose  = []byte("GET / HTTP/1.1\r\nHost: holdfast\r\nConnection: close\r\n\r\n")
	shownHEADClose = []byte("HEAD / HTTP/1.1\r\nHost: holdfast\r\nConnection: close\r\n\r\n")
)

// Read is what fasthttp reads: for each whole, checked head one of the
// constant heads, and io.EOF when the connection is over; everything that
// there is to say to the client then has been said.
func (c *clientConn) Read(p []byte) (int, error) {
	if len(c.shown) == 0 {
		err := c.secure()
		if err == nil {
			err = c.readHead()
		}
		if err != nil {
			c.end(err)
			return 0, io.EOF
		}
		c.show()
	}
	n := copy(p, c.shown)
	c.shown = c.shown[n:]
	return n, nil
}

// show decides what fasthttp is to do with the request just read.
func (c *clientConn) show() {
	c.answer = nil
	c.shown = shownGET
	r := &c.req
	if (!r.isGET() && !r.isHEAD()) || r.minor == 0 || r.hasBody() || r.expect {
		return
	}
	rt, _ := c.site.routes.find(r)
	if rt == nil || rt.Lane != nil || rt.Grant != nil || rt.Files != nil || rt.Feed != nil {
		return
	}
	c.record.begin(rt)
	c.answer = c.local(rt)
	switch keep := c.keepAlive(); {
	case r.isHEAD() && keep:
		c.shown = shownHEAD
	case r.isHEAD():
		c.shown = shownHEADClose
	case !keep:
		c.shown = shownGETClose
	}
}

// takeOver is fasthttp's hijack handler. The connection is served by a
// goroutine of ours, because fasthttp's keeps its request context.
func (c *clientConn) takeOver(net.Conn) {
	c.taken = true
	c.ticket = c.server.watch.add(c)
	go c.serve()
}

// serve serves the connection to its end. The first head is read already.
func (c *clientConn) serve() {
	defer c.closeUnlessHanded()
	defer c.recover()
	for c.serveOne() {
		if err := c.readHead(); err != nil {
			c.end(err)
			return
		}
	}
}

// serveOn serves a connection that a long poll was answered on.
func (c *clientConn) serveOn() {
	defer c.closeUnlessHanded()
	defer c.recover()
	for {
		if err := c.readHead(); err != nil {
			c.end(err)
			return
		}
		if !c.serveOne() {
			return
		}
	}
}

// serveOne answers the request whose head was read; false: the connection has
// ended, or is not this goroutine's any more.
func (c *clientConn) serveOne() bool {
	keep, err := c.handle()
	switch {
	case c.handedOver:
		return false
	case err != nil:
		c.end(err)
		return false
	case !keep:
		c.linger()
		return false
	}
	return true
}

// closeUnlessHanded closes the connection, if it is still this goroutine's.
func (c *clientConn) closeUnlessHanded() {
	if !c.handedOver {
		c.Close()
	}
}

// recover ends this connection, and no other, when our own code panicked.
func (c *clientConn) recover() {
	if p := recover(); p != nil {
		c.server.log.Error("panic while serving a connection, it was cut",
			zap.String("reason", reasonInternal), zap.Any("panic", p), zap.ByteString("stack", debug.Stack()))
		c.cut()
	}
}

// handle answers the request whose head was read. keep: another may follow.
func (c *clientConn) handle() (keep bool, err error) {
	rt, allowed := c.site.routes.find(&c.req)
	c.record.begin(rt)
	c.last = nil
	var file *servedFile
	var unread *fault
	if rt != nil && rt.Files != nil {
		rt, file, unread = c.findFile(rt)
	}
	switch {
	case unread != nil:
		keep, err = c.refuse(unread)
	case file != nil:
		keep, err = c.serveFile(rt, file)
	case rt == nil && allowed == nil:
		keep, err = c.refuse(&fault{reason: reasonNoRoute, text: "no route of the configuration takes this path"})
	case rt == nil:
		keep, err = c.refuse(&fault{reason: reasonMethodNotAllowed, allow: strings.Join(allowed, ", "),
			text: "the path has routes, but none for this method"})
	case rt.Lane != nil && c.site.signer != nil && c.req.hasSocketEvents():
		keep, err = c.refuse(forbiddenEvents())
	case rt.Lane != nil:
		keep, err = c.forward(rt)
	case rt.Grant != nil:
		keep, err = c.openGrant(rt)
	case rt.Feed != nil:
		keep, err = c.openFeed(rt)
	default:
		keep, err = c.answerLocal(rt)
	}
	if err == nil || !isLate(err) {
		c.done(err)
	}
	return keep, err
}

// isLate reports whether an exchange is noted later than when its request was
// handled: a fault is answered first, and a connection may be another's now.
func isLate(err error) bool {
	var f *fault
	return errors.As(err, &f) || errors.Is(err, errHandedOver)
}

// answerLocal answers a route of our own.
func (c *clientConn) answerLocal(rt *Route) (keep bool, err error) {
	if rt.BodyBytes > 0 {
		c.body, err = c.readSmallBody(rt.BodyBytes)
	} else {
		err = c.skipBody()
	}
	if err != nil {
		return false, err
	}
	a := c.local(rt)
	c.body = nil
	keep = c.keepAlive()
	return keep, c.write(a.append(c.out[:0], c.req.isHEAD(), keep, c.req.minor == 0))
}

// keepAlive reports whether the connection goes on after the present answer.
func (c *clientConn) keepAlive() bool {
	return c.req.keepAlive && c.server.state.Load() == serving
}

// refuse answers with a fault that was found at the head. The body is read
// and checked first, and thrown away; a client that asks whether to send it
// is told not to.
func (c *clientConn) refuse(f *fault) (keep bool, err error) {
	if c.req.expect && c.req.hasBody() {
		return false, f
	}
	if err := c.skipBody(); err != nil {
		return false, err
	}
	return c.answerFault(f)
}

// answerFault answers with a fault and goes on.
func (c *clientConn) answerFault(f *fault) (keep bool, err error) {
	c.logFault(f)
	c.record.status = statusOf[f.reason]
	keep = c.keepAlive()
	return keep, c.write(f.answerTo(&c.req).append(c.out[:0], c.req.isHEAD(), keep, c.req.minor == 0))
}

// setIdle marks the wait for a request's first byte, and sets its clock.
func (c *clientConn) setIdle(idle bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idle = idle; !idle {
		if c.server.state.Load() == closing {
			c.readBy = time.Time{} // endIdle has moved the deadline
		}
		// What comes next is judged by the configuration in force now.
		c.site = c.server.site.Load()
		return
	}
	if c.server.state.Load() == closing {
		c.setReadBy(time.Now().Add(silence))
		return
	}
	c.idleAt = time.Now()
	c.extendReadFrom(c.idleAt, c.site.cfg.IdleTimeout)
}

// idleSince says whether the connection waits for a request, and since when.
func (c *clientConn) idleSince() (since time.Time, idle bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.idleAt, c.idle
}

// makeRoom ends the connection if it is still idle.
func (c *clientConn) makeRoom() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idle {
		c.Conn.SetReadDeadline(past)
	}
}

// silence is how long a connection may say nothing once nothing is accepted
// any more: a client may have sent its request before it heard of that.
const silence = 250 * time.Millisecond

// endIdle ends the connection if it stays idle for a moment, or tunnels.
func (c *clientConn) endIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idle {
		c.Conn.SetReadDeadline(time.Now().Add(silence))
	}
	if t := c.open; t != nil {
		// Spread, so that all who come back do not come at once.
		time.AfterFunc(rand.N(tunnelsEnd), t.drain)
	}
}

// tunnelsEnd is how long the ends of tunnels are spread over in a drain.
const tunnelsEnd = 2 * time.Second

// cutUnlessAnswering cuts the connection if no request of it is being served,
// or its exchange is running; a request that waited and was refused is
// answered first.
func (c *clientConn) cutUnlessAnswering() {
	c.mu.Lock()
	running := c.exchange != nil || c.idle || c.open != nil
	c.mu.Unlock()
	if running {
		c.interrupt()
	}
}

// interrupt cuts the connection.
func (c *clientConn) interrupt() {
	c.cutOff.Store(true)
	c.hangUp(true)
	c.mu.Lock()
	if c.open != nil {
		c.open.end(errLeft)
	}
	c.mu.Unlock()
	c.Conn.SetDeadline(past)
}

// hangUp is called by the watch: the client has closed its side, or is gone.
func (c *clientConn) hangUp(gone bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fin = true
	c.left = c.left || gone
	c.cancel() // of a wait for a slot
	if c.exchange != nil && (c.left || c.endless) {
		c.leave()
	}
}

// gone reports whether the client is gone, or was cut.
func (c *clientConn) gone() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.left
}

// attach makes the client's leaving end the exchange's reads, until detach.
func (c *clientConn) attach(ex *lanes.Exchange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.exchange, c.endless = ex, false
	if c.left {
		ex.Interrupt()
	}
}

// attachEndless makes a closed side count as leaving, too.
func (c *clientConn) attachEndless() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endless = true
	if c.fin {
		c.leave()
	}
}

// leave ends the exchange's reads and the writes to the client. c.mu is held.
func (c *clientConn) leave() {
	c.exchange.Interrupt()
	c.streamLeft.Store(true)
	c.Conn.SetWriteDeadline(past)
}

// setTunnel notes the tunnel that runs, so that a drain can end it.
func (c *clientConn) setTunnel(t *tunnel) {
	c.mu.Lock()
	c.open = t
	c.mu.Unlock()
	if t != nil && c.server.state.Load() == closing {
		c.endIdle() // it came too late to be seen
	}
}

func (c *clientConn) detach() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.exchange = nil
}

// extendRead moves the read deadline to d from now, unless it is near enough.
func (c *clientConn) extendRead(d time.Duration) { c.extendReadFrom(time.Now(), d) }

func (c *clientConn) extendReadFrom(now time.Time, d time.Duration) {
	at := now.Add(d)
	if stale := at.Sub(c.readBy); stale < 0 || stale > min(time.Second, d/8) {
		c.setReadBy(at)
	}
}

func (c *clientConn) setReadBy(at time.Time) {
	c.readBy = at
	c.Conn.SetReadDeadline(at)
	c.stayCut()
}

// past is a deadline that ends reads and writes at once.
var past = time.Unix(1, 0)

// stayCut undoes a deadline that was moved while the connection was cut.
func (c *clientConn) stayCut() {
	if c.cutOff.Load() {
		c.Conn.SetDeadline(past)
	}
	if c.readStopped.Load() {
		c.Conn.SetReadDeadline(past)
	}
	if c.streamLeft.Load() {
		c.Conn.SetWriteDeadline(past)
	}
}

// stopRead ends the reading of a body, until resumeRead.
func (c *clientConn) stopRead() {
	c.readStopped.Store(true)
	c.Conn.SetReadDeadline(past)
}

// resumeRead lets the next reader set its own deadline.
func (c *clientConn) resumeRead() {
	if c.readStopped.Swap(false) {
		c.readBy = time.Time{}
	}
}

// extendWrite moves the write deadline to d from now, unless it is near enough.
func (c *clientConn) extendWrite(d time.Duration) {
	at := time.Now().Add(d)
	if stale := at.Sub(c.writeBy); stale < 0 || stale > min(time.Second, d/8) {
		c.writeBy = at
		c.Conn.SetWriteDeadline(at)
		c.stayCut()
	}
}

// write writes b, which becomes the connection's buffer for small writes. An
// error is errLeft: the client does not take it.
func (c *clientConn) write(b []byte) error {
	if cap(b) <= outBytes {
		c.out = b
	}
	return c.writeOnce(b)
}

// writeOnce writes an answer, or a part of one, from whatever buffer, until
// all is written or the client has taken no byte for BodyTimeout.
func (c *clientConn) writeOnce(b []byte) error {
	for waiting := -1; ; {
		c.extendWrite(c.site.cfg.BodyTimeout)
		n, err := c.Conn.Write(b)
		c.record.bytes += int64(n)
		if err == nil {
			return nil
		}
		b = b[n:]
		if !c.takesStill(int64(n), err, &waiting) {
			return errLeft
		}
	}
}

// takesStill reports whether a write that timed out, after n bytes, is to go
// on: the kernel tells of room in large steps only, so that what the client has
// not acknowledged yet is looked at; it must have got less since the last time.
func (c *clientConn) takesStill(n int64, err error, waiting *int) bool {
	if !isTimeout(err) || c.cutOff.Load() || c.streamLeft.Load() || c.tls != nil { // the wire has waited
		return false
	}
	c.writeBy = time.Time{} // the next wait is a whole one
	before := *waiting
	*waiting = unacknowledged(c.Conn)
	return n > 0 || *waiting >= 0 && (before < 0 || *waiting < before)
}

// Write is fasthttp's: one answer made here.
func (c *clientConn) Write(p []byte) (int, error) {
	if c.writeOnce(p) != nil {
		return 0, errLeft
	}
	return len(p), nil
}
