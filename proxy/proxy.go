// Package proxy is a request's way in and out.
//
//	server, err := proxy.New(proxy.Config{}, routes, logger)
//	go server.Serve(listener)
//	err = server.Configure(cfg, routes) // later, while it serves
//	err = server.Shutdown(ctx)
//
// The way of a request:
//
//	client connection ─► wire check ─► route ─┬─► answered here (respond, health, files)
//	                                          └─► body complete ─► lane.Acquire ─► slot.Do
//	client ◄─ written at the client's pace ◄─ read at the upstream's pace ◄────────┘
//	hold   ◄─ connection handed over, slot given back ◄─ an instruction ◄──────────┘
//
// An answer with an instruction is read whole, and its client becomes a hold
// (hold.go): nothing of the connection is this package's any more. What sockets'
// clients send comes back as Forward (inbound.go), and a connection that a long
// poll was answered on as Return.
//
// A file is sent by the goroutine of its connection, without passing through
// memory (files_answer.go); one that is not there leaves the request to the next
// route that matches. An answer that names a file gives its slot back before the
// file is sent (redirect.go).
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
// A connection may be a TLS one (tls.go, tls_wire.go, ahead.go): its handshake is
// part of what its own goroutine does, and what is said above holds for it as well.
//
// What it will not do: HTTP/2, caching, compression, redirects. It does
// not decode, reorder or rename what is the client's or the app's to say.
package proxy

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
	"go.uber.org/zap"

	"holdfast/holds"
	"holdfast/internal/tcp"
	"holdfast/lanes"
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
	// Memory bounds, in all, the bodies and answers that are in memory. One over
	// 256 KiB, or beyond the total, goes to the spool; where that has no room,
	// it goes at its client's pace, its slot held. Default 256 MiB.
	Memory int64
	// SpoolDir is where bodies and answers go that memory has no room for;
	// "" = the system's folder for temporary files. The files have no name.
	SpoolDir string
	// SpoolBytes bounds them, in all; 0: there is no spool.
	SpoolBytes int64
	// Connections is how many client connections may be open; 0: no bound. At
	// the limit the one that has been idle longest makes room for the next.
	Connections int
	// Trusted are the proxies in front whose X-Forwarded-* are believed.
	Trusted Trusted
	// Guarded are paths that the network never reaches, in any spelling: 404.
	Guarded []string
	// AccessLog writes one line per exchange.
	AccessLog bool
	// Holds keeps the clients of views that say so; nil: nobody does. It stays
	// the same as long as the server.
	Holds *holds.Holds
	// Dialects are those of the instructions that are heeded.
	Dialects holds.Dialects
	// Grip signs requests to the app while GRIP is among Dialects.
	Grip Grip
	// Origins are the pages that may open a held WebSocket.
	Origins holds.Origins
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
	log   *zap.Logger
	site  atomic.Pointer[site]
	fast  *fasthttp.Server
	watch *watch

	access   *zap.Logger // log, without its sampling
	unrouted *routeStats // of what no route took

	memory budget // of bodies, and of answers waiting for their clients
	spool  spool
	beyond chan struct{} // full: a body takes memory beyond the total
	full   sync.Once     // that memory and spool have no room was told
	told   sync.Once     // that an untrusted peer sent X-Forwarded-Proto
	state  atomic.Int32
	closed chan struct{} // closed with the last connection of a drain
	// crowded is how many listeners wait for room.
	crowded atomic.Int32

	mu        sync.Mutex
	room      sync.Cond // a connection was closed
	listeners map[net.Listener]struct{}
	conns     map[*clientConn]struct{}
	guarded   []string               // paths, of all configurations so far
	held      int                    // connections that became holds; for a moment one less than there are
	stats     map[string]*routeStats // by pattern; what a reload removed stays
}

// site is a configuration in force: swapped whole, never changed.
type site struct {
	cfg    Config
	routes *table
	lanes  map[string]*lanes.Lane // of the routes, by name
	signer *signer                // nil: GRIP is off
}

// The states of a server, never back.
const (
	serving  int32 = iota
	draining       // every answer says that its connection ends
	closing        // and no connection is accepted any more
)

// New makes a server. It serves nothing until Serve is called.
//
// access gets the access log's lines; nil: log does.
func New(cfg Config, routes []Route, log, access *zap.Logger) (*Server, error) {
	if access == nil {
		access = log
	}
	w, err := newWatch()
	if err != nil {
		return nil, err
	}
	s := &Server{log: log, access: access, watch: w, closed: make(chan struct{}), beyond: make(chan struct{}, 1), listeners: make(map[net.Listener]struct{}),
		conns: make(map[*clientConn]struct{}), stats: make(map[string]*routeStats)}
	s.room.L = &s.mu
	if err := s.Configure(cfg, routes); err != nil {
		w.close()
		return nil, err
	}
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

// Configure puts a configuration in force by one pointer, or refuses it and
// leaves the old one. What is being served goes on with the one it began with.
func (s *Server) Configure(cfg Config, routes []Route) error {
	cfg = cfg.withDefaults()
	s.mu.Lock()
	defer s.mu.Unlock()
	// A path that was guarded once stays so: sockets may still send there.
	guarded := slices.Compact(slices.Sorted(slices.Values(append(cfg.Guarded, s.guarded...))))
	t, err := newTable(routes, guarded)
	if err != nil {
		return err
	}
	s.guarded = guarded
	byName := make(map[string]*lanes.Lane)
	for i := range routes {
		routes[i].stats = s.statsOf(routes[i].Match)
		if lane := routes[i].Lane; lane != nil {
			byName[lane.Config().Name] = lane
		}
	}
	if s.unrouted == nil {
		s.unrouted = s.statsOf("")
	}
	s.memory.setLimit(cfg.Memory)
	s.spool.configure(cfg.SpoolDir, cfg.SpoolBytes)
	s.site.Store(&site{cfg, t, byName, newSigner(cfg)})
	return nil
}

// silent keeps fasthttp from writing to the log by itself.
type silent struct{}

func (silent) Printf(string, ...any) {}

// Serve accepts connections until Close, when it returns nil, or until the
// listener fails.
func (s *Server) Serve(ln net.Listener) error {
	s.mu.Lock()
	if s.state.Load() == closing {
		s.mu.Unlock()
		return ln.Close()
	}
	s.listeners[ln] = struct{}{}
	s.mu.Unlock()
	err := s.fast.Serve(&listener{ln, s})
	s.mu.Lock()
	delete(s.listeners, ln)
	s.closedIfDone()
	s.mu.Unlock()
	if s.state.Load() == closing || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Drain makes every answer from now on say that its connection ends.
// Connections are accepted and served as ever.
func (s *Server) Drain() { s.state.CompareAndSwap(serving, draining) }

// Close stops accepting. A connection is closed once it was silent for 250 ms;
// a request that comes on it before is served.
func (s *Server) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.Store(closing)
	s.room.Broadcast()
	for ln := range s.listeners {
		// Connections that the kernel has taken already are accepted first: a
		// close would reset them, and the requests that they brought.
		if timed, ok := ln.(interface{ SetDeadline(time.Time) error }); !ok || timed.SetDeadline(time.Now().Add(acceptRest)) != nil {
			ln.Close()
		}
	}
	for c := range s.conns {
		c.endIdle()
	}
	s.closedIfDone()
}

// acceptRest is how long connections are still accepted that were there
// before Close.
const acceptRest = 20 * time.Millisecond

// Closed is closed when, after Close, no connection is left.
func (s *Server) Closed() <-chan struct{} { return s.closed }

// cutGrace is for requests that were refused at the bound to be told so.
const cutGrace = 250 * time.Millisecond

// Cut ends what is left after Close: requests that have just been refused get
// their answers, running ones are cut and named in the log. It returns when no
// connection is left, and then nothing of the server is.
func (s *Server) Cut() {
	s.mu.Lock()
	for c := range s.conns {
		c.cutUnlessAnswering()
	}
	s.mu.Unlock()
	select {
	case <-s.closed:
	case <-time.After(cutGrace):
		s.mu.Lock()
		for c := range s.conns {
			c.interrupt()
		}
		s.mu.Unlock()
		<-s.closed
	}
	s.watch.close()
}

// Shutdown is Drain and Close, then a wait for what runs until ctx ends, then
// Cut. The error is ctx's, if something had to be cut.
func (s *Server) Shutdown(ctx context.Context) error {
	s.Drain()
	s.Close()
	var err error
	select {
	case <-s.closed:
	case <-ctx.Done():
		err = ctx.Err()
	}
	s.Cut()
	return err
}

// closedIfDone tells who waits for the end that no connection is left, and
// none can come. s.mu is held.
func (s *Server) closedIfDone() {
	if s.state.Load() != closing || len(s.conns) > 0 || s.held > 0 || len(s.listeners) > 0 {
		return
	}
	select {
	case <-s.closed:
	default:
		close(s.closed)
	}
}

// Memory is what answers hold that their clients have not taken yet, in bytes.
func (s *Server) Memory() int64 { return s.memory.Used() }

// Spool is how many bytes are in temporary files, and how often there was no
// room, or no file to be had.
func (s *Server) Spool() (bytes int64, fails uint64) { return s.spool.counts() }

// tellSpool says once that what memory has no room for goes at its client's
// pace, with its slot held.
func (s *Server) tellSpool() {
	s.full.Do(func() {
		s.log.Warn("no room in memory or spool: uploads wait, and answers go at their clients' pace, slots held; raise limits.memory or limits.spool.bytes, or give spool.dir room")
	})
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
	s.room.Signal()
	s.closedIfDone()
}

// becomeHold takes a connection out that is a hold now, and counts that.
func (s *Server) becomeHold(c *clientConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	s.held++
	s.closedIfDone()
}

// HoldLeft says that a hold's connection has been closed: call it once for
// each.
func (s *Server) HoldLeft() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held--
	s.room.Signal()
	s.closedIfDone()
}

// Return serves a connection that a long poll was answered on (holds.Return):
// early is what its client has sent since.
func (s *Server) Return(nc net.Conn, early []byte) {
	c := newClientConn(s, nc)
	c.taken = true
	c.buf, c.w = early, len(early)
	c.ticket = s.watch.add(c)
	go c.serveOn()
}

// awaitRoom returns when one more connection may be served. At the limit it
// ends the connection that has been idle longest, or waits until one is.
func (s *Server) awaitRoom() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.crowded.Add(1)
	defer s.crowded.Add(-1)
	for {
		limit := s.site.Load().cfg.Connections
		if limit == 0 || len(s.conns)+s.held < limit || s.state.Load() == closing {
			return
		}
		var longest *clientConn
		var since time.Time
		for c := range s.conns {
			if at, idle := c.idleSince(); idle && (longest == nil || at.Before(since)) {
				longest, since = c, at
			}
		}
		if longest != nil {
			longest.makeRoom()
		}
		s.room.Wait()
	}
}

// becameIdle tells who waits for room that another connection may make it.
func (s *Server) becameIdle() {
	if s.crowded.Load() > 0 {
		s.mu.Lock()
		s.room.Broadcast()
		s.mu.Unlock()
	}
}

// listener hands fasthttp connections of ours.
type listener struct {
	net.Listener
	server *Server
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		nc, err := l.Listener.Accept()
		if err == nil {
			l.server.awaitRoom()
			return newClientConn(l.server, nc), nil
		}
		if l.server.state.Load() == closing {
			l.Listener.Close()
			return nil, net.ErrClosed
		}
		if !tcp.OutOfResources(err) {
			return nil, err
		}
		l.server.log.Error("no connection can be accepted", zap.String("listen", l.Addr().String()), zap.Error(err))
		<-time.After(acceptPause)
	}
}

// acceptPause is how long a listener waits for descriptors that have run out.
const acceptPause = 50 * time.Millisecond

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
