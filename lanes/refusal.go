package lanes

import (
	"fmt"
	"time"
)

// Reason is why a lane refuses a request: a closed list, the same words in
// answers, logs and metrics.
type Reason string

// The reasons of a lane.
const (
	LaneFull     Reason = "lane_full"     // the queue has no place
	LaneTimeout  Reason = "lane_timeout"  // no slot within QueueTimeout
	UpstreamDown Reason = "upstream_down" // every target of the lane has been down for Park
	Draining     Reason = "draining"      // the lane takes no more work
)

// Reasons are all of them, for counters that exist from the start.
var Reasons = [...]Reason{LaneFull, LaneTimeout, UpstreamDown, Draining}

// Refusal is the error of a request that a lane does not serve. Its text
// names the limit, its value and the way out.
type Refusal struct {
	Lane   string
	Reason Reason
	Text   string
}

func (r *Refusal) Error() string { return r.Text }

// refuse counts a refusal and words it. l.mu is held.
func (l *Lane) refuse(reason Reason) *Refusal {
	cfg := l.cfg.Load()
	r := &Refusal{Lane: cfg.Name, Reason: reason}
	load := fmt.Sprintf("%d in use, %d waiting", l.inUse, l.queue.len)
	if l.abandoned > 0 {
		load += fmt.Sprintf(", %d abandoned by their clients and still running", l.abandoned)
	}
	switch reason {
	case LaneFull:
		if cfg.Queue == 0 {
			r.Text = fmt.Sprintf("lane %s: no slot is free and nobody may wait (%s); raise lanes.%s.slots or lower the load",
				cfg.Name, load, cfg.Name)
			break
		}
		r.Text = fmt.Sprintf("lane %s: its queue of %d is full (%s); raise lanes.%s.queue or lower the load",
			cfg.Name, cfg.Queue, load, cfg.Name)
	case LaneTimeout:
		if l.isDown() {
			r.Text = fmt.Sprintf("lane %s: no target was up within %v (%s); start the app, or raise lanes.%s.queue_timeout",
				cfg.Name, cfg.QueueTimeout, l.lastError(), cfg.Name)
			break
		}
		r.Text = fmt.Sprintf("lane %s: no slot within %v (%s); raise lanes.%s.slots or lower the load",
			cfg.Name, cfg.QueueTimeout, load, cfg.Name)
	case UpstreamDown:
		r.Text = fmt.Sprintf("lane %s: no target has been up for %v (%s); start the app",
			cfg.Name, time.Since(l.downSince()).Round(time.Millisecond), l.lastError())
	case Draining:
		r.Text = fmt.Sprintf("lane %s: draining, it takes no more requests", cfg.Name)
	}
	l.refused[reason]++
	return r
}
