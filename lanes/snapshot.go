package lanes

import "time"

// Snapshot is a copy of a lane's counters at one moment.
type Snapshot struct {
	Name         string
	Slots        int
	InUse        int // at the upstream, the abandoned ones included
	Abandoned    int // their client is gone, their view is not
	Waiting      int
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
	s := Snapshot{
		Name: l.cfg.Name, Slots: l.cfg.Slots, InUse: l.inUse, Abandoned: l.abandoned, Waiting: l.queue.len,
		ClosedOnView: l.closedOnView, Retried: l.retried,
		Refused: make(map[Reason]uint64, len(Reasons)), SlotStates: make([]SlotState, l.cfg.Slots),
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
			s.SlotStates[slot.number] = SlotState{slot.number, p.target.String(), state, time.Since(slot.since)}
		}
	}
	return s
}
