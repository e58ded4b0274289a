package lanes

import "time"

// What the tests need to see, or to bring about exactly, and nobody else may.

// HasConn reports whether the slot kept its connection. Its holder asks.
func (s *Slot) HasConn() bool { return s.conn != nil }

// Silent reports whether the slot's connection is fit to be used again. Its
// holder asks.
func (s *Slot) Silent() bool { return s.conn != nil && s.conn.Silent() }

// ReleaseWhen gives the slot back in the same moment as it calls f: nobody
// who waits can do anything in between.
func (s *Slot) ReleaseWhen(f func()) {
	s.lane.mu.Lock()
	defer s.lane.mu.Unlock()
	f()
	s.lane.put(s, time.Now())
}

// SentEarlier makes the request one that was sent d earlier.
func (ex *Exchange) SentEarlier(d time.Duration) { ex.sentAt = ex.sentAt.Add(-d) }

// The product's own bounds.
const (
	AgainWithin = againWithin
	UsedLately  = usedLately
	ViewEnds    = viewEnds
)
