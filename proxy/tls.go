package proxy

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"go.uber.org/zap"
)

// Secured makes the connections of a listener TLS ones, for Serve. The handshake
// is made by the goroutine that serves the connection: a client that is silent
// in it keeps nobody else out, and HeaderTimeout bounds it.
func Secured(ln net.Listener, config *tls.Config) net.Listener {
	return &securedListener{ln, config}
}

type securedListener struct {
	net.Listener
	config *tls.Config
}

func (l *securedListener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return newSecured(nc, l.config), nil
}

// SetDeadline bounds Accept, where the listener below can.
func (l *securedListener) SetDeadline(at time.Time) error {
	timed, ok := l.Listener.(interface{ SetDeadline(time.Time) error })
	if !ok {
		return errors.ErrUnsupported
	}
	return timed.SetDeadline(at)
}

// secured is a client's connection with TLS. It keeps the promises of a TCP
// connection that crypto/tls does not: Close and CloseWrite wait for nobody, a
// write fails only if the client takes nothing, a connection that is cut does
// not end with a close_notify, and one that its client has cut ends with
// errTruncatedByClient and not with io.EOF.
type secured struct {
	*tls.Conn
	wire *wire

	shaken   bool // the handshake is over
	verified bool // the client has shown a certificate that was verified

	plain atomic.Bool // what came was HTTP, and the answer is in the same
	reset atomic.Bool // the end is to be a reset
}

func newSecured(nc net.Conn, config *tls.Config) *secured {
	w := &wire{Conn: nc}
	return &secured{Conn: tls.Server(w, config), wire: w}
}

// shake makes the handshake, within the deadlines that are set.
func (s *secured) shake() error {
	if err := s.Handshake(); err != nil {
		return err
	}
	s.wire.patient.Store(true)
	s.shaken, s.verified = true, len(s.ConnectionState().VerifiedChains) > 0
	return nil
}

func (s *secured) Read(p []byte) (int, error) {
	if s.plain.Load() {
		return s.wire.Conn.Read(p)
	}
	return s.Conn.Read(p)
}

func (s *secured) Write(p []byte) (int, error) {
	if s.plain.Load() {
		return s.wire.Conn.Write(p)
	}
	return s.Conn.Write(p)
}

// readNow reads what has come, into p: EAGAIN if nothing has. Call it from
// within a read of the descriptor.
func (s *secured) readNow(fd uintptr, p []byte) (int, error) {
	s.wire.now, s.wire.fd = true, int(fd)
	n, err := s.Conn.Read(p)
	s.wire.now = false
	if n > 0 {
		return n, nil
	}
	if errors.Is(err, errNothingYet) {
		return 0, syscall.EAGAIN
	}
	return 0, err
}

// SetLinger with 0 makes the end a reset, without a close_notify before it.
func (s *secured) SetLinger(sec int) error {
	s.reset.Store(sec == 0)
	if tcp, ok := s.wire.Conn.(*net.TCPConn); ok {
		return tcp.SetLinger(sec)
	}
	return nil
}

// CloseWrite says that nothing more comes: a close_notify, then a FIN.
func (s *secured) CloseWrite() error {
	if s.plain.Load() {
		return s.wire.shut()
	}
	s.wire.part()
	if err := s.Conn.CloseWrite(); err != nil {
		return err
	}
	return s.wire.shut()
}

// Close ends the connection, with a close_notify where the client can take it
// at once, or soon.
func (s *secured) Close() error {
	if s.plain.Load() || s.reset.Load() {
		return s.wire.Conn.Close()
	}
	s.wire.part()
	return s.Conn.Close()
}

// Taken is how many bytes the client's system has acknowledged, as they were
// on the wire.
func (s *secured) Taken() int64 { return s.wire.taken() }

// descriptorOf is the descriptor below a connection.
func descriptorOf(nc net.Conn) (syscall.RawConn, error) {
	if s, ok := nc.(*secured); ok {
		nc = s.wire.Conn
	}
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return sc.SyscallConn()
}

// endByReset has a connection's close be a reset, where it has such a thing.
func endByReset(nc net.Conn) {
	if lingering, ok := nc.(interface{ SetLinger(sec int) error }); ok {
		lingering.SetLinger(0)
	}
}

// errHandshake: the client and we did not agree on how to speak.
var errHandshake = errors.New("the TLS handshake failed")

// secure makes the handshake of a connection that is to have one. Until it is
// over the connection is as idle as one whose client has said nothing: it makes
// room for others, and a drain ends it.
func (c *clientConn) secure() error {
	if c.tls == nil || c.tls.shaken {
		return nil
	}
	c.mu.Lock()
	within := c.site.cfg.HeaderTimeout
	if c.server.state.Load() == closing {
		within = silence
	}
	c.idle, c.idleAt = true, time.Now()
	c.Conn.SetWriteDeadline(c.idleAt.Add(within))
	c.setReadBy(c.idleAt.Add(within))
	c.mu.Unlock()
	c.server.becameIdle()
	err := c.tls.shake()
	c.setIdle(false)
	c.readBy, c.writeBy = time.Time{}, time.Time{} // those that follow are longer
	if err == nil {
		return nil
	}
	if isHTTP(err) {
		c.tls.plain.Store(true)
		return badRequest("this address speaks TLS: ask it with https://")
	}
	c.server.log.Debug("handshake failed", zap.String("client", c.clientText()), zap.Error(err))
	return errHandshake
}

// isHTTP reports whether a handshake failed because the client speaks HTTP
// without TLS.
func isHTTP(err error) bool {
	var header tls.RecordHeaderError
	if !errors.As(err, &header) || header.Conn == nil { // nil: it was in the middle of one
		return false
	}
	switch string(header.RecordHeader[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "PATCH", "DELET", "OPTIO":
		return true
	}
	return false
}

// errTruncatedByClient: the client's side of a TLS connection ended without a
// close_notify. Whoever is in between can do that, so that it is no end.
var errTruncatedByClient = errors.New("the connection ended without a close_notify")

// ended makes of the end of a descriptor what it means under TLS.
func ended(n int, err error) (int, error) {
	if n <= 0 && err == io.EOF {
		return 0, errTruncatedByClient
	}
	return n, err
}
