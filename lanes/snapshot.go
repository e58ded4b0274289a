package lanes

import (
	"slices"
	"time"

	"holdfast/internal/histogram"
)

// Snapshot is a copy of a lane's counters at one moment.
type Snapshot struct {
	Name         string
	Slots        int
	InUse        int // at the upstream, the abandoned ones included
	Abandoned    int // their client is gone, their view is not
	Waiting      int
	OldestWait   time.Duration      // of the first in the queue
	Parked       int                // waiting while no target is up
	Waited       histogram.Snapshot // waits for a slot, refused ones too
	Refused      map[Reason]uint64
	ClosedOnView uint64 // slots freed although the view's end could not be seen
	Retried      uint64
	SlotStates   []SlotState
}

// SlotState is one slot at the moment of a Snapshot.
type SlotState struct {
	Number int
	Target string
	State  string // free, busy, abandoned or down
	For    time.Duration
}

// Snapshot copies the lane's counters.
func (l *Lane) Snapshot() Snapshot {
	l.mu.Lock()
	defer l.mu.Unlock()
	cfg := l.cfg.Load()
	s := Snapshot{
		Name: cfg.Name, Slots: cfg.Slots, InUse: l.inUse, Abandoned: l.abandoned, Waiting: l.queue.len,
		ClosedOnView: l.closedOnView, Retried: l.retried,
		Refused: make(map[Reason]uint64, len(Reasons)), Waited: l.waited.Snapshot(),
	}
	if first := l.queue.first; first != nil {
		s.OldestWait = time.Since(first.since)
		if l.isDown() {
			s.Parked = l.queue.len
		}
	}
	for _, reason := range Reasons {
		s.Refused[reason] = l.refused[reason]
	}
	for _, p := range l.places {
		for _, slot := range p.slots {
			state := slot.state.String()
			if slot.state == free && !p.up {
				state = "down"
			}
			s.SlotStates = append(s.SlotStates, SlotState{slot.number, p.target.String(), state, time.Since(slot.since)})
		}
	}
	slices.SortFunc(s.SlotStates, func(a, b SlotState) int { return a.Number - b.Number })
	return s
}
