package main

import (
	"time"

	"holdfast/health"
	"holdfast/lanes"
	"holdfast/proxy"
)

// The snapshots that health is given.

func (h *holdfast) laneCounts() []health.Lane {
	w := h.wiring.Load()
	counts := make([]health.Lane, 0, len(w.lanes))
	for _, name := range w.config.laneNames() {
		s := w.lanes[name].Snapshot()
		lane := health.Lane{Name: name, Slots: s.Slots, InUse: s.InUse, Waiting: s.Waiting, Abandoned: s.Abandoned,
			Parked: s.Parked, OldestWait: s.OldestWait, Refused: make(map[string]uint64),
			ClosedOnView: s.ClosedOnView, Retried: s.Retried, Waited: s.Waited,
			Upstream: w.config.Lanes[name].Upstream, Stream: w.config.Lanes[name].Kind == "stream",
			Queue: w.config.Lanes[name].Queue, QueueTimeout: time.Duration(w.config.Lanes[name].QueueTimeout)}
		for reason, n := range s.Refused {
			lane.Refused[string(reason)] = n
		}
		for _, slot := range s.SlotStates {
			lane.States = append(lane.States, health.Slot{Target: slot.Target, State: slot.State, For: slot.For})
		}
		counts = append(counts, lane)
	}
	return counts
}

func (h *holdfast) targets() (targets []health.Target) {
	w := h.wiring.Load()
	for _, name := range w.config.upstreamNames() {
		if w.config.laneOn(name) == "" {
			continue // nobody uses it
		}
		for _, target := range w.upstreams[name].Targets() {
			state := target.State()
			t := health.Target{Upstream: name, Name: target.String(), Up: state.Up, Since: state.Since, Heard: target.Heard(), Asked: target.IsAsked()}
			if state.Err != nil {
				t.Err = state.Err.Error()
			}
			targets = append(targets, t)
		}
	}
	return targets
}

// ask asks a target through the first lane that has a free slot there.
func (h *holdfast) ask(name string, wait time.Duration) (answer health.Answer) {
	w := h.wiring.Load()
	for _, u := range w.upstreams {
		for _, target := range u.Targets() {
			if target.String() != name {
				continue
			}
			for _, lane := range w.lanes {
				result, err := lane.Ask(target, wait)
				if result == lanes.NotAsked {
					continue
				}
				answer = health.Answer{Asked: true, Answered: result == lanes.Answered, Silent: result == lanes.Silent}
				if err != nil {
					answer.Err = err.Error()
				}
				return answer
			}
		}
	}
	return answer
}

func (h *holdfast) healthInterval(upstream string) time.Duration {
	return time.Duration(h.wiring.Load().config.Upstreams[upstream].Health.Interval)
}

func (h *holdfast) holdCounts() health.Holds {
	s := h.holds.Snapshot()
	counts := health.Holds{
		Open:  map[string]int{"stream": s.Streams, "websocket": s.Sockets, "response": s.Polls},
		Ended: make(map[string]map[string]uint64), GapsTold: s.GapsTold, Published: s.Published, Offered: s.Offered, Head: s.Head,
		OutboxBytes: s.OutboxBytes, JournalBytes: s.JournalBytes, Inbound: s.Inbound,
	}
	for kind, reasons := range s.Ended {
		counts.Ended[kind.String()] = reasons
	}
	return counts
}

func (h *holdfast) limits() health.Limits {
	c := h.wiring.Load().config
	return health.Limits{Memory: int64(c.Limits.Memory), Spool: int64(c.Limits.Spool.Bytes), Journal: int64(c.Holds.Journal.Bytes), Holds: c.holdLimit()}
}

func (h *holdfast) routeCounts() []health.Route {
	on := make(map[string]string) // lanes by pattern
	for _, route := range h.wiring.Load().config.Routes {
		if route.Lane != nil {
			on[route.Match] = *route.Lane
		}
	}
	snapshots := h.server.Routes()
	counts := make([]health.Route, len(snapshots))
	for i, s := range snapshots {
		counts[i] = health.Route{Name: s.Route, Lane: on[s.Route], Codes: s.Codes, Refused: s.Refused, Failed: s.Failed, Took: s.Took}
	}
	return counts
}

func (h *holdfast) topChannels(most int) (top []health.Channel, channels int) {
	largest, channels := h.holds.TopChannels(most)
	for _, c := range largest {
		top = append(top, health.Channel(c))
	}
	return top, channels
}

// drainClock says since when the process drains, and its bound.
func (h *holdfast) drainClock() (since time.Time, bound time.Duration) {
	if nanos := h.drainFrom.Load(); nanos != 0 {
		since, bound = time.Unix(0, nanos), time.Duration(h.wiring.Load().config.Drain.Bound)
	}
	return since, bound
}

func jsonAnswer(status int, body []byte) proxy.Respond {
	return proxy.Respond{Status: status, Body: body,
		Fields: []string{"Content-Type", "application/json", "Cache-Control", "no-store"}}
}

func (h *holdfast) healthAnswer(asked *proxy.Asked) proxy.Respond {
	return jsonAnswer(200, h.health.Body(asked.Near))
}

func (h *holdfast) readyAnswer(*proxy.Asked) proxy.Respond {
	return jsonAnswer(health.ReadyBody(h.health.Ready()))
}
