package proxy

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"holdfast/internal/histogram"
	"holdfast/lanes"
)

// phase is how far a request has come.
type phase uint8

const (
	phaseHead      phase = iota // its head is read or refused
	phaseBody                   // its body is read
	phaseWaiting                // for a slot
	phaseRunning                // at the app, no answer yet
	phaseAnswering              // its answer is on the way
)

func (p phase) String() string {
	return [...]string{"head", "body", "waiting", "running", "answering"}[p]
}

// statusLeft stands for a client that left before its answer began, in the
// log and the metrics; nothing is ever sent with it.
const statusLeft = 499

// record is what is noted of one exchange, for the log and the metrics.
type record struct {
	began   bool
	over    bool
	route   *Route // nil: none
	started time.Time
	wait    time.Duration // for a slot
	status  int
	bytes   int64 // written to the client
	phase   phase
	slot    *lanes.Slot
	held    bool // it became a hold
	fault   *fault
}

func (r *record) begin(rt *Route) {
	*r = record{began: true, route: rt, started: time.Now()}
}

// end words who ended the exchange, and in which phase.
func (r *record) end(err error, cut bool) string {
	switch {
	case cut && err != nil:
		return "holdfast_" + r.phase.String()
	case r.fault != nil && (r.fault.reason == reasonUpstreamError || r.fault.reason == reasonUpstreamTimeout):
		return "upstream_" + r.phase.String()
	case r.fault != nil:
		return "holdfast_" + r.phase.String()
	case errors.Is(err, errTruncated):
		return "upstream_" + r.phase.String()
	case errors.Is(err, errFileCut):
		return "holdfast_" + r.phase.String()
	case err != nil:
		return "client_" + r.phase.String()
	case r.held:
		return "held"
	}
	return "done"
}

// done counts an exchange that is over, and logs it; only the first call for
// an exchange does anything.
func (c *clientConn) done(err error) {
	r := &c.record
	if r.over || !r.began && r.fault == nil {
		return
	}
	r.over = true
	took := time.Duration(0)
	if r.began {
		took = time.Since(r.started)
	}
	if r.status == 0 {
		r.status = statusLeft
	}
	pattern := ""
	stats := c.server.unrouted
	if r.route != nil {
		pattern, stats = r.route.Match, r.route.stats
	}
	stats.count(r.status, took)
	if r.fault != nil {
		stats.refused[reasonIndex[r.fault.reason]].Add(1)
	}
	if err != nil && c.cutOff.Load() {
		c.server.access.Warn("cut at the drain's bound", c.fields(pattern, took, err)...)
	}
	if c.site.cfg.AccessLog {
		c.server.access.Info("exchange", c.fields(pattern, took, err)...)
	}
}

// fields are those of an access-log line.
func (c *clientConn) fields(pattern string, took time.Duration, err error) []zap.Field {
	r := &c.record
	path, _, _ := bytes.Cut(c.req.target, []byte("?"))
	fields := []zap.Field{
		zap.ByteString("method", c.req.method), zap.ByteString("path", path),
		zap.Int("status", r.status), zap.Int64("bytes", r.bytes),
		zap.Duration("took", took), zap.Duration("wait", r.wait), zap.String("route", pattern),
	}
	if r.slot != nil {
		fields = append(fields, zap.String("lane", r.slot.Lane().Config().Name),
			zap.Int("slot", r.slot.Number()), zap.Stringer("target", r.slot.Target()))
	} else if r.route != nil && r.route.Lane != nil {
		fields = append(fields, zap.String("lane", r.route.Lane.Config().Name))
	}
	return append(fields, zap.String("client", c.clientText()), zap.ByteString("request_id", c.requestID),
		zap.String("end", r.end(err, c.cutOff.Load())))
}

func (c *clientConn) clientText() string {
	if client, _ := c.client(); client.IsValid() {
		return client.String()
	}
	return "unix"
}

// logFault says once, at the edge, why a request was not served. What a
// client did wrong is of interest only to who looks for it.
func (c *clientConn) logFault(f *fault) {
	c.record.fault = f
	log := c.server.log.Warn
	if statusOf[f.reason] < 500 && f.reason != reasonStreamRefused {
		log = c.server.log.Debug
	}
	fields := []zap.Field{zap.String("reason", f.reason), zap.String("detail", f.text), zap.String("client", c.clientText())}
	if c.record.route != nil {
		fields = append(fields, zap.String("route", c.record.route.Match))
	}
	if f.lane != "" {
		fields = append(fields, zap.String("lane", f.lane))
	}
	if f.cause != nil {
		fields = append(fields, zap.Error(f.cause))
	}
	log("request refused", fields...)
}

// routeStats counts a route's exchanges, across reloads.
type routeStats struct {
	codes   [600]atomic.Uint64
	refused []atomic.Uint64 // by the reasons' places in reasons
	took    histogram.Histogram
}

// reasons are all there are, and reasonIndex is each one's place among them.
var (
	reasons     = slices.Sorted(maps.Keys(statusOf))
	reasonIndex = func() map[string]int {
		index := make(map[string]int, len(reasons))
		for i, reason := range reasons {
			index[reason] = i
		}
		return index
	}()
)

func (s *routeStats) count(status int, took time.Duration) {
	s.codes[status].Add(1)
	s.took.Observe(took)
}

// RouteSnapshot is a copy of a route's counts. Route is its pattern; "" takes
// what no route took.
type RouteSnapshot struct {
	Route string
	Codes map[int]uint64
	// Refused counts what was answered here with a reason, by reason; what is 0
	// is left out.
	Refused map[string]uint64
	// Failed counts the app's own answers of 500 and above.
	Failed uint64
	Took   histogram.Snapshot
}

// Routes copies the counts of every route there has been.
func (s *Server) Routes() []RouteSnapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	snapshots := make([]RouteSnapshot, 0, len(s.stats))
	for pattern, stats := range s.stats {
		snapshot := RouteSnapshot{Route: pattern, Codes: make(map[int]uint64), Took: stats.took.Snapshot()}
		for code := range stats.codes {
			if n := stats.codes[code].Load(); n > 0 {
				snapshot.Codes[code] = n
			}
		}
		snapshot.countRefused(stats)
		snapshots = append(snapshots, snapshot)
	}
	return snapshots
}

// countRefused tells Holdfast's own answers from the app's. Codes is there; an
// exchange between the two looks is left out of Failed, never below 0.
func (s *RouteSnapshot) countRefused(stats *routeStats) {
	for code, n := range s.Codes {
		if code >= 500 {
			s.Failed += n
		}
	}
	for i := range stats.refused {
		n := stats.refused[i].Load()
		if n == 0 {
			continue
		}
		if s.Refused == nil {
			s.Refused = make(map[string]uint64)
		}
		s.Refused[reasons[i]] = n
		if statusOf[reasons[i]] >= 500 {
			s.Failed -= min(n, s.Failed)
		}
	}
}

// statsOf gives the counts of a pattern. s.mu is held.
func (s *Server) statsOf(pattern string) *routeStats {
	stats := s.stats[pattern]
	if stats == nil {
		stats = &routeStats{refused: make([]atomic.Uint64, len(reasons))}
		s.stats[pattern] = stats
	}
	return stats
}
