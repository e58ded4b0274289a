// Package health is what Holdfast says of itself: /health, /ready, /status, the
// metrics and the dashboard (dashboard.go, watch.go).
//
//	h := health.New(health.Config{Instance: "web-1", Version: "v1.0.0", …})
//	body := h.Body(near)           // of /health
//	reasons := h.Ready()           // of /ready; none: ready
//	body = h.Status()              // of the admin address
//
// It is given plain functions that return snapshots, so that it depends on
// nothing that could be busy: /health is answered at any load. Only Ready asks
// the app, and waits a second for it at most.
package health

import (
	"encoding/json"
	"sync"
	"time"

	"holdfast/internal/histogram"
)

// Config is what health speaks of. No function may block, but for Ask.
type Config struct {
	// Instance is this process's name; Version is the binary's.
	Instance, Version string
	// State is starting, ready, draining or stopped.
	State func() string
	// Lanes gives every lane's counts.
	Lanes func() []Lane
	// Targets gives every target of every upstream in use.
	Targets func() []Target
	// Ask asks a target through a free slot whether it answers, and waits as
	// long at most.
	Ask func(target string, wait time.Duration) Answer
	// Interval is how long a target may have been silent before it is asked.
	Interval func(upstream string) time.Duration
	// Routes gives every route's counts.
	Routes func() []Route
	// Memory is what bodies and answers hold in memory, in bytes.
	Memory func() int64
	// Spool is what they hold in temporary files, in bytes, and how often there
	// was no room.
	Spool func() (bytes int64, fails uint64)
	// Limits are the bounds of what is kept, as the configuration in force has
	// them.
	Limits func() Limits
	// Reloads counts the reloads by result.
	Reloads func() (ok, failed uint64)
	// Holds gives the counts of holds and events.
	Holds func() Holds
	// Channels gives the channels with most holds, at most so many, the largest
	// first, and how many channels there are.
	Channels func(most int) (top []Channel, channels int)
	// Bus says how events reach other nodes.
	Bus func() Bus
	// Drain says since when the process drains, and its bound; zero: it does not.
	Drain func() (since time.Time, bound time.Duration)
}

// Bus is how events reach other nodes. Reason says why the process is not ready
// for its sake; "": it is.
type Bus struct {
	Kind      string // memory, redis or postgres
	Connected bool   // always, with the bus in memory
	Entries   uint64 // that came from it, of this node's own too
	Reason    string
}

// Holds are the counts of clients kept on the app's behalf, and of events.
type Holds struct {
	Open                      map[string]int               // by kind: stream, websocket, response
	Ended                     map[string]map[string]uint64 // by kind and reason, every pair there
	GapsTold                  uint64
	Published, Offered        uint64
	Head                      int64 // the last event's id
	OutboxBytes, JournalBytes int64
	Inbound                   map[string]uint64 // messages of sockets' clients, by what became of them
}

// Limits are bounds in bytes, so that who reads the metrics need not know the
// configuration to see how near one is. A Spool of 0: there is none. Holds is
// how many there may be; 0: no bound.
type Limits struct {
	Memory, Spool, Journal int64
	Holds                  int
}

// Lane is a lane's counts.
type Lane struct {
	Name                             string
	Slots, InUse, Waiting, Abandoned int
	Parked                           int // waiting while no target is up
	OldestWait                       time.Duration
	Upstream                         string
	Stream                           bool // it is one of streams
	Queue                            int  // how many may wait, each so long
	QueueTimeout                     time.Duration
	Refused                          map[string]uint64 // by reason, every reason there
	ClosedOnView, Retried            uint64
	Waited                           histogram.Snapshot
	States                           []Slot
}

// Slot is one slot of a lane.
type Slot struct {
	Target string
	State  string // free, busy, abandoned or down
	For    time.Duration
}

// Target is one address of an upstream.
type Target struct {
	Upstream, Name string
	Up             bool
	Since          time.Time
	Err            string
	Heard          time.Time // when its last answer ended
	Asked          bool      // an asking is still out
}

// Answer is what asking a target showed.
type Answer struct {
	Asked    bool // false: every slot is busy, and busy is not sick
	Answered bool
	Silent   bool // nothing came in time
	Err      string
}

// Route is a route's counts. Name is its pattern.
type Route struct {
	Name    string
	Lane    string // "": it is answered by Holdfast, or is no more
	Codes   map[int]uint64
	Refused map[string]uint64 // Holdfast's own answers with a reason, by reason
	Failed  uint64            // the app's own answers of 500 and above
	Took    histogram.Snapshot
}

// Channel is a channel and how many holds are in it.
type Channel struct {
	Name  string
	Holds int
}

// Health answers for the process. Safe for concurrent use.
type Health struct {
	cfg     Config
	started time.Time

	mu     sync.Mutex
	asking chan struct{}        // closed when the asking under way is over; nil: none
	result []string             // of the last asking
	silent map[string]time.Time // since when a target owes an answer
	failed map[string]bool      // the last answer to an asking was a bad one
}

// New starts the uptime.
func New(cfg Config) *Health {
	return &Health{cfg: cfg, started: time.Now(), silent: make(map[string]time.Time), failed: make(map[string]bool)}
}

type report struct {
	Status   string                `json:"status"`
	Instance string                `json:"instance,omitempty"`
	Version  string                `json:"version,omitempty"`
	Uptime   *int64                `json:"uptime_s,omitempty"`
	Streams  *int                  `json:"subscribers,omitempty"`
	Sockets  *int                  `json:"sockets,omitempty"`
	Polls    *int                  `json:"long_polls,omitempty"`
	Lanes    map[string]laneReport `json:"lanes,omitempty"`
}

type laneReport struct {
	Slots     int `json:"slots"`
	InUse     int `json:"in_use"`
	Waiting   int `json:"waiting"`
	Abandoned int `json:"abandoned"`
}

// Body is the JSON of /health. Only who is near is told more than that the
// process is well.
func (h *Health) Body(near bool) []byte {
	r := report{Status: "ok"}
	if near {
		uptime := h.uptime()
		r.Instance, r.Version, r.Uptime = h.cfg.Instance, h.cfg.Version, &uptime
		open := h.cfg.Holds().Open
		streams, sockets, polls := open["stream"], open["websocket"], open["response"]
		r.Streams, r.Sockets, r.Polls = &streams, &sockets, &polls
		r.Lanes = make(map[string]laneReport)
		for _, l := range h.cfg.Lanes() {
			r.Lanes[l.Name] = laneReport{l.Slots, l.InUse, l.Waiting, l.Abandoned}
		}
	}
	return encode(r)
}

func (h *Health) uptime() int64 { return int64(time.Since(h.started) / time.Second) }

// encode renders what has nothing in it that could fail.
func encode(v any) []byte {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return append(body, '\n')
}
