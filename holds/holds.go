// Package holds keeps clients on the app's behalf.
//
//	h, err := holds.New(holds.Config{}, log)
//	err = h.Open(conn, holds.Spec{Kind: holds.ModeStream, Channels: names, Head: head, Body: body, Position: at})
//	id, reached := h.Publish(publication)
//	h.Drain(); <-…; h.Close()
//
// A view answers with an instruction (ParseInstruction) and is done; its
// client's connection is handed to Open and is a hold from then on: it costs no
// slot, no goroutine, no timer and no buffer.
//
//	publish ─► hub: number, journal ─► inbox of each loop with a member ─► loop ─► connections
//	open ───► hub: seats, from where ─► inbox of its loop ───────────────► loop ─► head, replay, live
//
// The hub (hub.go) orders everything under one lock and does no I/O. A loop
// (loop.go), one for each processor, owns its holds: it alone writes to their
// connections and closes them. A hold that joins is fed from the journal until
// the journal has no more, and in the step that finds that it becomes live.
//
// What holds:
//
//	H2  only its loop writes to a held connection
//	H3  publishing takes one lock, waits for no client and does no I/O to clients
//	H4  a hold gets the events of its channels once, in the order of their ids,
//	    without holes, or is told of a gap, or ends with a reason
//	H5  a hold ends once, with one reason, and has left all its channels before
//	    its connection is closed
//	H6  joining and the look at what can be replayed are one step
//
// A socket's messages go to the app one after the other (inbound.go), through
// Config.Forward; a long poll is answered with the first event, or with the
// view's own answer, and its connection goes back through Config.Return.
//
// Where the client does not take what it is given, references to the events'
// bytes wait in its outbox (outbox.go): beyond OutboxBytes behind the first it is
// ended, slow; after WriteStall without a byte taken, stalled. What is in memory
// for all of them together, and not for the journal, is bounded too (kept.go).
//
// An idle hold costs about 140 bytes of live heap on a channel that it shares
// and 350 on one of its own, measured with 9,850 over TCP; with 10,000 on one
// channel the process grew by 640 bytes for each. Where a goroutine serves it
// (loop_other.go, TLS) it is 1.7 KiB and 2 KiB of stack. An idle WebSocket costs
// about 300 bytes, and what it keeps of the handshake for its messages: Host,
// Cookie, Authorization, Origin, User-Agent and X-Forwarded-*; 650 bytes with
// 346 of those. A GRIP stream keeps its instruction: 2 KiB with two channels and
// the link of 230 bytes that django-eventstream gives.
//
// GRIP's holds (grip_hold.go) share all this. Its publishers number their items
// themselves, so the hub puts these in order (sequence.go), and a stream that
// misses one looks into the journal again and then has the app asked (next.go).
// A socket whose app speaks WebSocket-over-HTTP is overhttp.go's.
package holds

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"holdfast/holds/bus"
)

// Config bounds what is held. Zero means the default, but where it says otherwise.
type Config struct {
	// Heartbeat is how long a hold may be quiet before it is written a comment,
	// twice that at most. Zero: none.
	Heartbeat time.Duration
	// OutboxBytes is how far a client may be behind, not counting the first
	// event that it has not taken. Default 64 KiB.
	OutboxBytes int
	// WriteStall is how long a client may take no byte of what waits. Default 30s.
	WriteStall time.Duration
	// Limit is how many holds there may be. Zero: no bound.
	Limit int
	// MaxAge ends a hold in the last quarter of it. Zero: none.
	MaxAge time.Duration
	// Journal bounds what can be replayed.
	Journal JournalLimits
	// MessageBytes is the largest message that a socket's client may send.
	// Default 1 MiB.
	MessageBytes int
	// Left is called whenever a hold's connection has been closed, by the loop
	// it was on; nil: nobody asks. It must not wait.
	Left func()
	// Forward takes to the app what holds ask of it; it is needed where sockets
	// are opened with a Path, and where GRIP streams have a next link.
	Forward Forward
	// Return takes back the connections of long polls that were answered; nil:
	// they are closed.
	Return Return
	// Bus is what this process shares its events with others by; nil: it is the
	// only one. It is read by New, and closed by Close.
	Bus bus.Bus
	// Loops is how many goroutines serve the holds; New reads it, Configure
	// does not. Zero: one for each processor.
	Loops int
}

const defaultHeartbeat = 15 * time.Second

func (c Config) withDefaults() Config {
	if c.OutboxBytes == 0 {
		c.OutboxBytes = 64 << 10
	}
	if c.WriteStall == 0 {
		c.WriteStall = 30 * time.Second
	}
	if c.MessageBytes == 0 {
		c.MessageBytes = 1 << 20
	}
	if c.Journal.Events == 0 {
		c.Journal.Events = 256
	}
	if c.Journal.Bytes == 0 {
		c.Journal.Bytes = 64 << 20
	}
	if c.Journal.Age == 0 {
		c.Journal.Age = 10 * time.Minute
	}
	return c
}

// home is what all loops share.
type home struct {
	log    *zap.Logger
	limits atomic.Pointer[Config]
	counts counts
	loops  int
	run    string          // names this process's holds among those of others
	ctx    context.Context // ends with Close
	// lastAnswers: the connections of long polls end with them.
	lastAnswers atomic.Bool
	links       links
}

// Holds keeps clients. Safe for concurrent use.
type Holds struct {
	home
	cancel context.CancelFunc
	hub    *hub
	node   *node // nil: there is no bus
	next   atomic.Uint64

	leftovers leftovers

	stopping sync.RWMutex // read: a hold is opened; written: none will be
	stopped  bool
	running  sync.WaitGroup
}

// New makes the hub and starts its loops. Close ends them.
func New(cfg Config, log *zap.Logger) (*Holds, error) {
	h := &Holds{home: home{log: log, loops: cmp.Or(cfg.Loops, runtime.GOMAXPROCS(0)), run: strconv.FormatUint(rand.Uint64N(1<<40), 36)}}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	h.links.spread = linkSpread
	h.Configure(cfg)
	h.leftovers.give = giveBack
	h.hub = newHub(h.limits.Load().Journal, rand.Int64N(idStep), time.Now)
	for i := range h.loops {
		l := newLoop(h.hub, i, &h.home)
		runner, err := newRunner(l)
		if err != nil {
			h.Close()
			return nil, err
		}
		l.sockets = runner
		h.hub.loops = append(h.hub.loops, l)
		h.running.Add(1)
		go h.runLoop(runner)
	}
	if cfg.Bus != nil {
		h.node = newNode(cfg.Bus, h)
		h.running.Add(1)
		go h.node.follow()
	}
	return h, nil
}

// runner runs a loop over its sockets until the loop is stopped.
type runner interface {
	sockets
	run()
}

func (h *Holds) runLoop(r runner) {
	defer h.running.Done()
	r.run()
}

// Configure puts another configuration in force, for the holds there are too.
func (h *Holds) Configure(cfg Config) {
	cfg = cfg.withDefaults()
	h.limits.Store(&cfg)
	if h.hub != nil {
		h.hub.mu.Lock()
		h.hub.journal.limits = cfg.Journal
		h.hub.mu.Unlock()
	}
}

// Position is where the stream of events stands: the id of the last event, or
// the run's first position. A hold that is opened with it gets every event
// published after this call.
//
// On a bus of which this node has not all yet, it is where the bus stood when it
// was reached: what comes up to there is nothing new.
func (h *Holds) Position() int64 {
	return max(h.hub.shown(h.hub.head.Load()), h.hub.target.Load())
}

// Spec is what becomes of a connection.
type Spec struct {
	// Kind is the hold's: not ModeNone.
	Kind Mode
	// Channels to join, 1 to MaxChannels, each once; with Grip there may be none.
	Channels []string
	// Head is the answer's head with its empty line, and Body the view's body:
	// a stream's first bytes. A socket has no body; of a long poll Head ends
	// before what is said of framing and connection, which has the last line's
	// CRLF. Both are the hold's from here on.
	Head, Body []byte
	// Chunked: a stream's client speaks HTTP/1.1, and Head says so.
	Chunked bool
	// Position is where the events stood when the request was sent to the app.
	Position int64
	// Last is the id the client came back with, its Last-Event-ID; what is no
	// number is none.
	Last string
	// Early is what the client sent behind its request. A stream ignores it.
	Early []byte

	// Envelope: a socket gets JSON objects, with ids and replay.
	Envelope bool
	// Lane, Path and Fields are what a socket's messages are sent to the app
	// with; without a Path a message is a fault.
	Lane, Path string
	Fields     []byte

	// Grip is the instruction if it was GRIP's, whose Channels are Channels.
	// Asked: the app was asked again, with Grip's LastFields, for what the journal
	// has not (Misses), and what it said is all there is. Paging: it holds nothing yet, there is more at its next link first. Events:
	// the stream is an event stream. Target and Host are those of the request;
	// Fields, Host first, go along with requests for links.
	Grip           *Grip
	Asked          bool
	Paging, Events bool
	Target, Host   string
	// OverHTTP: the socket's app speaks WebSocket-over-HTTP; Path is where.
	OverHTTP *OverHTTP

	// BodyFields are lines of a long poll's head that are true of Body alone.
	BodyFields []byte
	// Timeout is how long a long poll waits for an event, KeepAlive whether its
	// connection goes on, and HTTP10 that its client speaks HTTP/1.0.
	Timeout           time.Duration
	KeepAlive, HTTP10 bool
}

// ErrTooMany: Config.Limit is reached. ErrClosed: nothing is held any more.
// ErrConnection: the connection is of a kind that cannot be held, or its
// descriptor could not be had.
var (
	ErrTooMany    = errors.New("too many holds")
	ErrClosed     = errors.New("holds are closed")
	ErrConnection = errors.New("the connection cannot be held")
)

// Open makes a hold of a connection, which is the hold's from then on: it is
// written to, read and closed by the hold alone. After an error it is the
// caller's still.
func (h *Holds) Open(conn net.Conn, spec Spec) error {
	last, cameBack := parsePosition(spec.Last)
	away := uint64(0)
	if h.node != nil {
		away = h.node.catchUp(max(last, spec.Position))
	}
	h.stopping.RLock()
	defer h.stopping.RUnlock()
	if h.stopped {
		return ErrClosed
	}
	if !h.counts.enter(h.limits.Load().Limit) {
		return ErrTooMany
	}
	l := h.hub.loops[h.next.Add(1)%uint64(len(h.hub.loops))]
	hd := &hold{kind: spec.Kind, chunked: spec.Chunked, descriptor: -1}
	if spec.Grip != nil {
		hd.more = &beyond{grip: newGrip(spec.Grip, &spec)}
	}
	switch spec.Kind {
	case ModeWebSocket:
		hd.socket = &socket{envelope: spec.Envelope, mute: spec.Path == "", lane: spec.Lane, path: spec.Path, fields: spec.Fields}
		if spec.OverHTTP != nil {
			hd.socket.over = newOverHTTP(spec.OverHTTP)
		}
	case ModeResponse:
		hd.poll = &poll{head: spec.Head, body: spec.Body, bodyFields: spec.BodyFields, early: spec.Early, keep: spec.KeepAlive, old: spec.HTTP10, bare: spec.Grip != nil, deadline: time.Now().Add(spec.Timeout)}
	}
	if err := l.sockets.adopt(hd, conn); err != nil {
		h.counts.held.Add(-1)
		return errors.Join(ErrConnection, err)
	}
	o := &opening{head: spec.Head, body: spec.Body, early: spec.Early, trust: spec.Asked, paging: spec.Paging, over: spec.OverHTTP, asked: spec.Position, from: spec.Position, last: spec.Position, away: away}
	if cameBack && spec.Grip == nil && (hd.socket == nil || hd.socket.envelope) {
		o.from, o.last = last, last
	}
	h.hub.join(hd, l, spec.Channels, o)
	h.leftovers.add()
	return nil
}

// parsePosition reads a position as a client sends it: decimal digits. One
// beyond all ids is one of which something is missing.
func parsePosition(text string) (position int64, ok bool) {
	if text == "" {
		return 0, false
	}
	for _, c := range []byte(text) {
		if c < '0' || c > '9' {
			return 0, false
		}
	}
	position, _ = strconv.ParseInt(text, 10, 64) // the highest, where it is beyond
	return position, true
}

// Publish numbers an event, journals it and hands it to the loops; it waits
// for no client. reached is how many members its channels have here: a hold in
// two of them counts twice. On a bus it waits for the bus, five seconds at most:
// ErrBusDown, ErrBusUnknown.
func (h *Holds) Publish(p Publication) (id int64, reached int, err error) {
	if h.node != nil {
		id, reached, err = h.node.publish(p.appendBody(nil))
	} else {
		id, reached = h.hub.publish(encode(&p), p.Channels)
	}
	if err == nil {
		h.counts.published.Add(1)
	}
	return id, reached, err
}

// PublishItems publishes items in GRIP's form, in their order. One that was
// published before is left out; one that comes too early waits for the item
// before it, five seconds at most. reached counts as Publish does; who waits
// reaches nobody yet. body is what the items were decoded from: it goes to the
// bus, where there is one. Errors as of Publish.
func (h *Holds) PublishItems(items []Item, body []byte) (reached int, err error) {
	if h.node != nil {
		_, reached, err = h.node.publish(portions(body)...)
	} else {
		reached = h.publishItems(items)
	}
	if err == nil {
		h.counts.published.Add(uint64(len(items)))
	}
	return reached, err
}

func (h *Holds) publishItems(items []Item) (reached int) {
	for i := range items {
		reached += h.hub.publishItem(encodeItem(&items[i]))
	}
	return reached
}

// Drain ends all holds within two seconds, with a clean end and a time to come
// back at; whoever is opened from now on gets its first bytes and the same end.
func (h *Holds) Drain() {
	for _, l := range h.hub.loops {
		h.hub.call(l, l.drain)
	}
}

// EndConnections has the connections of long polls end with their answers.
func (h *Holds) EndConnections() { h.lastAnswers.Store(true) }

// Close cuts the holds that are left and stops the loops. Nothing can be
// opened any more.
func (h *Holds) Close() {
	h.stopping.Lock()
	h.stopped = true
	h.stopping.Unlock()
	h.cancel()
	for _, l := range h.hub.loops {
		h.hub.call(l, l.stop)
	}
	h.running.Wait()
	if h.node != nil {
		h.node.bus.Close()
	}
}

// tellEnd says that a hold has ended: what is usual only to who looks for it.
func (h *home) tellEnd(l *loop, hd *hold, reason End) {
	level := zap.DebugLevel
	switch reason {
	case EndSlow, EndStalled, EndOverload:
		level = zap.InfoLevel
	case EndBusLost, EndError:
		level = zap.WarnLevel
	}
	if entry := h.log.Check(level, "hold ended"); entry != nil {
		entry.Write(zap.String("hold", l.connection(hd)), zap.Stringer("kind", hd.kind), zap.Stringer("reason", reason),
			zap.String("channel", EncodeChannels(hd.channels())))
	}
}
