package holds

import "sync/atomic"

// counts is what is counted of holds and events.
type counts struct {
	held       atomic.Int64        // connections
	open       [modes]atomic.Int64 // holds that have joined
	ended      [modes][ends]atomic.Uint64
	gaps       atomic.Uint64
	published  atomic.Uint64
	offered    atomic.Uint64
	outbox     atomic.Int64
	unfinished atomic.Int64 // bytes of sockets' messages
	inbound    [inboundResults]atomic.Uint64
}

const modes = 4

// enter counts a connection in; false: there are as many as there may be.
// The hub counts the hold as open, as it joins: what is shown as open is
// reached by what is published.
func (c *counts) enter(limit int) bool {
	if n := c.held.Add(1); limit > 0 && n > int64(limit) {
		c.held.Add(-1)
		return false
	}
	return true
}

// end counts a hold's end.
func (c *counts) end(kind Mode, reason End) {
	c.open[kind].Add(-1)
	c.ended[kind][reason].Add(1)
}

// Snapshot is a copy of what is counted.
type Snapshot struct {
	// Streams, Sockets and Polls are the holds there are, by kind.
	Streams, Sockets, Polls int
	// Ended counts the ends by kind and reason; every pair is there.
	Ended map[Mode]map[string]uint64
	// GapsTold is how many clients were told that events are missing.
	GapsTold uint64
	// Published counts events; Offered counts what was given to holds.
	Published, Offered uint64
	// Inbound counts what became of messages of sockets, by result.
	Inbound map[string]uint64
	// Head is the last event's id, or the run's first position.
	Head int64
	// OutboxBytes wait for clients; JournalBytes can be replayed, with what that takes.
	OutboxBytes, JournalBytes int64
}

// Snapshot copies the counts.
func (h *Holds) Snapshot() Snapshot {
	c := &h.counts
	s := Snapshot{Streams: int(c.open[ModeStream].Load()), Sockets: int(c.open[ModeWebSocket].Load()), Polls: int(c.open[ModeResponse].Load()),
		Ended: make(map[Mode]map[string]uint64), GapsTold: c.gaps.Load(), Published: c.published.Load(), Offered: c.offered.Load(),
		Inbound: make(map[string]uint64), Head: h.Position(), OutboxBytes: c.outbox.Load()}
	for _, mode := range []Mode{ModeStream, ModeWebSocket, ModeResponse} {
		s.Ended[mode] = make(map[string]uint64)
		for reason := range ends {
			s.Ended[mode][reason.String()] = c.ended[mode][reason].Load()
		}
	}
	for result, word := range inboundWords {
		s.Inbound[word] = c.inbound[result].Load()
	}
	h.hub.mu.Lock()
	s.JournalBytes = int64(h.hub.journal.bytes)
	h.hub.mu.Unlock()
	return s
}
