// Package proxy is a request's way in and out.
//
//	server, err := proxy.New(proxy.Config{}, routes, logger)
//	go server.Serve(listener)
//	err = server.Shutdown(ctx)
//
// The way of a request:
//
//	client connection ─► wire check ─► route ─┬─► answered here (respond, health)
//	                                          └─► body complete ─► lane.Acquire ─► slot.Do
//	client ◄─ written at the client's pace ◄─ read at the upstream's pace ◄────────┘
//
// Nothing is answered, here or by the app, before the head was found
// unambiguous (wire.go). fasthttp.Server accepts connections and writes the
// answers made here, for as long as a connection asks for nothing else. The
// first request that is forwarded, or has a body, an Expect or another method,
// is taken over once: from then on the connection is served by a goroutine of
// this package (client.go), so that no byte of a body or of a pipelined
// request ever enters another parser. What fasthttp is shown is a constant
// head in place of the client's own; its parser decides nothing.
//
// A client that left is seen at its socket while its request waits or runs
// (watch_linux.go): a waiting request is removed, one that runs is abandoned.
//
// What it will not do: HTTP/2, TLS, caching, compression, redirects. It does
// not decode, reorder or rename what is the client's or the app's to say.
package proxy

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
	"go.uber.org/zap"
)

// Config bounds what clients may do. Zero means the default.
type Config struct {
	// HeaderBytes is the largest request head; 431 beyond. Default 16 KiB.
	HeaderBytes int
	// HeaderTimeout bounds the time from a head's first byte to its last; a
	// connection that is later is cut without an answer. Default 10s.
	HeaderTimeout time.Duration
	// BodyBytes is the largest request body; 413 beyond. Default 32 MiB.
	BodyBytes int64
	// BodyTimeout bounds the wait for each further byte of a request body
	// (408), and for a client to take a byte of an answer. Default 30s.
	BodyTimeout time.Duration
	// IdleTimeout bounds the wait for a connection's next request. Default 75s.
	IdleTimeout time.Duration
	// Memory bounds what answers hold that their clients have not taken yet,
	// in all. Beyond it an answer is read at its client's pace. Default 256 MiB.
	Memory int64
}

func (c Config) withDefaults() Config {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&c.HeaderTimeout, 10*time.Second)
	def(&c.BodyTimeout, 30*time.Second)
	def(&c.IdleTimeout, 75*time.Second)
	if c.HeaderBytes == 0 {
		c.HeaderBytes = 16 << 10
	}
	if c.BodyBytes == 0 {
		c.BodyBytes = 32 << 20
	}
	if c.Memory == 0 {
		c.Memory = 256 << 20
	}
	return c
}

// Server serves client connections. Safe for concurrent use.
type Server struct {
	cfg    Config
	log    *zap.Logger
	routes atomic.Pointer[table]
	fast   *fasthttp.Server
	watch  *watch

	memory   budget // of answers waiting for their clients
	draining atomic.Bool
	closed   chan struct{} // closed with the last connection of a drain

	mu        sync.Mutex
	listeners map[net.Listener]struct{}
	conns     map[*clientConn]struct{}
}

// New makes a server. It serves nothing until Serve is called.
func New(cfg Config, routes []Route, log *zap.Logger) (*Server, error) {
	t, err := newTable(routes)
	if err != nil {
		return nil, err
	}
	w, err := newWatch()
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg.withDefaults(), log: log, watch: w, closed: make(chan struct{}),
		listeners: make(map[net.Listener]struct{}), conns: make(map[*clientConn]struct{})}
	s.memory.limit = s.cfg.Memory
	s.routes.Store(t)
	s.fast = &fasthttp.Server{
		Handler:               s.handle,
		KeepHijackedConns:     true, // a connection taken over is ours
		NoDefaultServerHeader: true,
		NoDefaultContentType:  true,
		ReadBufferSize:        512, // it only ever sees our constant heads
		WriteBufferSize:       4 << 10,
		Logger:                silent{},
	}
	return s, nil
}

// silent keeps fasthttp from writing to the log by itself.
type silent struct{}

func (silent) Printf(string, ...any) {}

// Serve accepts connections until Shutdown, when it returns nil, or until the
// listener fails.
func (s *Server) Serve(ln net.Listener) error {
	s.mu.Lock()
	if s.draining.Load() {
		s.mu.Unlock()
		return ln.Close()
	}
	s.listeners[ln] = struct{}{}
	s.mu.Unlock()
	err := s.fast.Serve(&listener{ln, s})
	if s.draining.Load() || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Shutdown stops accepting, closes idle connections, lets requests finish and
// their answers say that the connection ends, until ctx ends: then what is
// left is cut, and ctx's error returned.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.draining.Store(true)
	for ln := range s.listeners {
		ln.Close()
	}
	for c := range s.conns {
		c.drain()
	}
	if len(s.conns) == 0 {
		s.allClosed()
	}
	s.mu.Unlock()
	var err error
	select {
	case <-s.closed:
	case <-ctx.Done():
		err = ctx.Err()
		s.cutAll()
		<-s.closed
	}
	s.watch.close()
	return err
}

func (s *Server) cutAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.interrupt()
	}
}

// allClosed tells Shutdown that no connection is left. s.mu is held.
func (s *Server) allClosed() {
	select {
	case <-s.closed:
	default:
		close(s.closed)
	}
}

// Connections is how many client connections are open.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

func (s *Server) add(c *clientConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[c] = struct{}{}
}

func (s *Server) remove(c *clientConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	if s.draining.Load() && len(s.conns) == 0 {
		s.allClosed()
	}
}

// listener hands fasthttp connections of ours.
type listener struct {
	net.Listener
	server *Server
}

func (l *listener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return newClientConn(l.server, nc), nil
}

// handle is fasthttp's handler: it writes the answer that was made when the
// head was read, or takes the connection over.
func (s *Server) handle(ctx *fasthttp.RequestCtx) {
	c := ctx.Conn().(*clientConn)
	if a := c.answer; a != nil {
		c.answer = nil
		a.fill(&ctx.Response)
		return
	}
	ctx.HijackSetNoResponse(true)
	ctx.Hijack(c.takeOver)
}
