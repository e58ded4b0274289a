package holds

import (
	"fmt"
	"strconv"
	"strings"
)

// connection names a hold, to the app, in the publish API and in logs: this
// run, the hold's loop, its place there, and which hold of that place it is.
func (l *loop) connection(hd *hold) string {
	return fmt.Sprintf("%s-%d-%x-%x", l.home.run, l.index, hd.slot, hd.generation)
}

// find gives what a connection's name stands for; nil: nothing of this run.
func (h *Holds) find(connection string) (l *loop, slot, generation uint32) {
	parts := strings.Split(connection, "-")
	if len(parts) != 4 || parts[0] != h.run {
		return nil, 0, 0
	}
	index, err := strconv.Atoi(parts[1])
	place, placeErr := strconv.ParseUint(parts[2], 16, 32)
	which, whichErr := strconv.ParseUint(parts[3], 16, 32)
	if err != nil || placeErr != nil || whichErr != nil || index < 0 || index >= len(h.hub.loops) {
		return nil, 0, 0
	}
	return h.hub.loops[index], uint32(place), uint32(which)
}

// ask has a loop run f between two events and waits for it; false: the loops
// are stopped.
func (h *Holds) ask(l *loop, f func()) bool {
	done := make(chan struct{})
	h.stopping.RLock()
	stopped := h.stopped
	if !stopped {
		h.hub.call(l, func() {
			f()
			close(done)
		})
	}
	h.stopping.RUnlock()
	if stopped {
		return false
	}
	<-done
	return true
}

// End ends the holds that match all that is given, a channel or a connection
// or both, once they have been given what was published to them before. ended is how
// many there were here.
func (h *Holds) End(r EndRequest) (ended int) {
	if r.Connection != "" {
		l, slot, generation := h.find(r.Connection)
		if l == nil {
			return 0
		}
		h.ask(l, func() {
			hd := l.lookup(slot, generation)
			if hd != nil && hd.state < leaving && (r.Channel == "" || hd.inChannel(r.Channel)) {
				l.endByAPI(hd, r)
				ended++
			}
		})
		return ended
	}
	h.eachMember(r.Channel, func(l *loop, hd *hold) {
		if hd.state < leaving {
			l.endByAPI(hd, r)
			ended++
		}
	})
	return ended
}

func (l *loop) endByAPI(hd *hold, r EndRequest) {
	if hd.socket != nil {
		l.endSocket(hd, EndPublished, uint16(r.Code), r.Reason)
	} else {
		l.end(hd, EndPublished)
	}
}

// eachMember runs f for every hold in a channel, on the hold's loop, one loop
// after the other.
func (h *Holds) eachMember(channel string, f func(*loop, *hold)) {
	h.hub.mu.Lock()
	r := h.hub.journal.rooms[channel]
	var loops []*loop
	for _, l := range h.hub.loops {
		if r != nil && r.local[l.index].count > 0 {
			loops = append(loops, l)
		}
	}
	h.hub.mu.Unlock()
	for _, l := range loops {
		h.ask(l, func() {
			for _, hd := range r.local[l.index].holds {
				f(l, hd)
			}
		})
	}
}

// inChannel reports whether a hold is in the channel of that name.
func (hd *hold) inChannel(name string) bool {
	for i := range hd.seats() {
		if hd.seatAt(i).room.name == name {
			return true
		}
	}
	return false
}

// Channels gives the channels that have members here, and how many each has.
func (h *Holds) Channels() map[string]int {
	h.hub.mu.Lock()
	defer h.hub.mu.Unlock()
	members := make(map[string]int)
	for name, r := range h.hub.journal.rooms {
		if r.members > 0 {
			members[name] = r.members
		}
	}
	return members
}

// Connections names the holds that are in a channel.
func (h *Holds) Connections(channel string) []string {
	connections := []string{}
	h.eachMember(channel, func(l *loop, hd *hold) { connections = append(connections, l.connection(hd)) })
	return connections
}
