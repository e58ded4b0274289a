package health

import "time"

type status struct {
	Instance string                  `json:"instance"`
	Version  string                  `json:"version"`
	State    string                  `json:"state"`
	Uptime   int64                   `json:"uptime_s"`
	Lanes    map[string]laneStatus   `json:"lanes"`
	Targets  map[string]targetStatus `json:"targets"`
	Holds    holdStatus              `json:"holds"`
	Events   eventStatus             `json:"events"`
	Bytes    byteStatus              `json:"bytes"`
	Bus      busStatus               `json:"bus"`
}

type laneStatus struct {
	Slots      []slotStatus      `json:"slots"`
	Waiting    int               `json:"waiting"`
	OldestWait int64             `json:"oldest_wait_ms"`
	Refused    map[string]uint64 `json:"refused"`
}

type slotStatus struct {
	Target string `json:"target"`
	State  string `json:"state"`
	For    int64  `json:"ms"`
}

type targetStatus struct {
	Up    bool      `json:"up"`
	Since time.Time `json:"since"`
	Err   string    `json:"last_error"`
}

// What holds say.
type (
	holdStatus struct {
		Stream    int               `json:"stream"`
		WebSocket int               `json:"websocket"`
		Response  int               `json:"response"`
		Ended     map[string]uint64 `json:"ended"`
		GapsTold  uint64            `json:"gaps_told"`
	}
	eventStatus struct {
		Published uint64 `json:"published"`
		Offered   uint64 `json:"offered"`
		Head      int64  `json:"head"`
	}
	byteStatus struct {
		Outbox  int64 `json:"outbox"`
		Journal int64 `json:"journal"`
		Memory  int64 `json:"memory"`
		Spool   int64 `json:"spool"`
	}
	busStatus struct {
		Kind      string `json:"kind"`
		Connected bool   `json:"connected"`
	}
)

// Status is the JSON of /status.
func (h *Health) Status() []byte {
	s := status{
		Instance: h.cfg.Instance, Version: h.cfg.Version, State: h.cfg.State(), Uptime: h.uptime(),
		Lanes: make(map[string]laneStatus), Targets: make(map[string]targetStatus),
		Bytes: byteStatus{Memory: h.cfg.Memory()},
	}
	b := h.cfg.Bus()
	s.Bus = busStatus{Kind: b.Kind, Connected: b.Connected}
	s.Bytes.Spool, _ = h.cfg.Spool()
	held := h.cfg.Holds()
	s.Holds = holdStatus{Stream: held.Open["stream"], WebSocket: held.Open["websocket"], Response: held.Open["response"],
		Ended: make(map[string]uint64), GapsTold: held.GapsTold}
	for _, reasons := range held.Ended {
		for reason, n := range reasons {
			s.Holds.Ended[reason] += n
		}
	}
	s.Events = eventStatus{Published: held.Published, Offered: held.Offered, Head: held.Head}
	s.Bytes.Outbox, s.Bytes.Journal = held.OutboxBytes, held.JournalBytes
	for _, l := range h.cfg.Lanes() {
		lane := laneStatus{Slots: []slotStatus{}, Waiting: l.Waiting, OldestWait: l.OldestWait.Milliseconds(), Refused: l.Refused}
		for _, slot := range l.States {
			lane.Slots = append(lane.Slots, slotStatus{slot.Target, slot.State, slot.For.Milliseconds()})
		}
		s.Lanes[l.Name] = lane
	}
	for _, t := range h.cfg.Targets() {
		s.Targets[t.Name] = targetStatus{t.Up, t.Since, t.Err}
	}
	return encode(s)
}
