package holds

import (
	"cmp"
	"fmt"
	"slices"
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
//
// On a bus those of every node end; ended counts those that end here. Errors as
// of Publish.
func (h *Holds) End(r EndRequest) (ended int, err error) {
	if h.node != nil {
		_, ended, err = h.node.publish(r.appendBody(nil))
		return ended, err
	}
	return h.end(r), nil
}

func (h *Holds) end(r EndRequest) (ended int) {
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
	h.hub.revoke(r)
	h.eachMember(r.Channel, func(l *loop, hd *hold) {
		if hd.state < leaving {
			l.endByAPI(hd, r)
			ended++
		}
	})
	return ended
}

// revoked is that a channel's holds were ended. Whoever was let in by a view
// that was asked before is ended as it joins: the view may have decided by what
// is not true any more. It is known as long as the channel is, and for ten
// minutes after its last member has left (quietAge).
type revoked struct {
	at   int64
	with EndRequest
}

// revoke notes that a channel's holds are ended, at a position of its own.
func (h *hub) revoke(r EndRequest) {
	now := h.clock()
	h.mu.Lock()
	defer h.mu.Unlock()
	at := h.entry
	if !h.shared {
		at = h.nextID(&event{}, now)
		h.head.Store(at)
	}
	room := h.room(r.Channel)
	room.revoked = &revoked{at, r}
	h.settle(room, int64(now.Sub(h.epoch)))
}

// revokedSince gives the end of one of the hold's channels that came behind a
// position; nil: there was none. h.mu is held.
func (hd *hold) revokedSince(position int64) *EndRequest {
	for i := range hd.seats() {
		if r := hd.seatAt(i).room.revoked; r != nil && r.at > position {
			return &r.with
		}
	}
	return nil
}

// endIfRevoked ends a hold that has joined channels by what the app said to a
// request that was sent at a position, if the holds of one were ended since.
func (l *loop) endIfRevoked(h *hold, position int64) {
	l.hub.mu.Lock()
	r := h.revokedSince(position)
	l.hub.mu.Unlock()
	if r != nil && h.state < leaving {
		l.endByAPI(h, *r)
	}
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

// ChannelCount is a channel and how many members it has here.
type ChannelCount struct {
	Name  string
	Holds int
}

// TopChannels gives the channels with most members here, at most so many, the
// largest first, and how many channels there are. It looks at each channel
// under the hub's lock and copies none: 10,000 take a fraction of a millisecond.
func (h *Holds) TopChannels(most int) (top []ChannelCount, channels int) {
	h.hub.mu.Lock()
	for name, r := range h.hub.journal.rooms {
		if r.members == 0 {
			continue
		}
		channels++
		top = insertChannel(top, ChannelCount{name, r.members}, most)
	}
	h.hub.mu.Unlock()
	return top, channels
}

// insertChannel puts a channel where it belongs among the largest, and lets the
// last go that is one too many. Of two with as many members the name decides.
func insertChannel(top []ChannelCount, c ChannelCount, most int) []ChannelCount {
	larger := func(a, b ChannelCount) int { return cmp.Or(cmp.Compare(b.Holds, a.Holds), cmp.Compare(a.Name, b.Name)) }
	if len(top) == most && (most == 0 || larger(top[most-1], c) < 0) {
		return top
	}
	at, _ := slices.BinarySearchFunc(top, c, larger)
	if len(top) == most {
		top = top[:most-1]
	}
	return slices.Insert(top, at, c)
}

// Connections names the holds that are in a channel.
func (h *Holds) Connections(channel string) []string {
	connections := []string{}
	h.eachMember(channel, func(l *loop, hd *hold) { connections = append(connections, l.connection(hd)) })
	return connections
}
