package holds

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func gapFrame(last, head int64) string {
	return fmt.Sprintf(`{"id":null,"event":"m0-gap","data":{"last_event_id":%d,"head":%d}}`, last, head)
}

// frame is what an event is to a socket.
func (m *modelSocket) frame(i int, e published) string {
	if m.envelope {
		return fmt.Sprintf(`{"id":%d,"event":null,"data":"event %d"}`, e.id, i)
	}
	return fmt.Sprint("event ", i)
}

// due gives the frames of what a socket has to get of its channels from where
// its list ends, up to a position.
func (w *socketWorld) due(m *modelSocket, upTo int64) (frames []string, ids []int64) {
	for i, e := range w.events {
		if e.id <= m.upTo || e.id > upTo || m.given[e.id] {
			continue
		}
		for _, name := range e.channels {
			if from, in := m.seats[name]; in && e.id > from {
				frames, ids = append(frames, m.frame(i, e)), append(ids, e.id)
				break
			}
		}
	}
	return frames, ids
}

// settleUpTo adds to a socket's list what is due up to a position.
func (w *socketWorld) settleUpTo(m *modelSocket, position int64) {
	frames, ids := w.due(m, position)
	m.want = append(m.want, frames...)
	for _, id := range ids {
		m.given[id] = true
	}
	m.upTo = max(m.upTo, position)
}

// hasAll reports whether the journal has all that channels had after a position.
func (w *socketWorld) hasAll(channels []string, after int64) bool {
	for _, e := range w.events {
		for _, name := range e.channels {
			if e.id <= after || !slices.Contains(channels, name) {
				continue
			}
			if r := w.hub.journal.rooms[name]; r == nil || len(r.ring) == 0 || r.ring[0].id > e.id {
				return false
			}
		}
	}
	return true
}

// foresee says what an answer has to do, before it is obeyed. before is the
// head as the app answered.
func (w *socketWorld) foresee(m *modelSocket, joins, leaves []string, reply string, before int64) (joined bool) {
	w.settleUpTo(m, m.hold.cursor)
	if reply != "" {
		m.want = append(m.want, reply)
	}
	leaves = slices.DeleteFunc(slices.Clone(leaves), func(name string) bool {
		_, in := m.seats[name]
		return !in || slices.Contains(joins, name)
	})
	joins = slices.DeleteFunc(slices.Clone(joins), func(name string) bool {
		_, in := m.seats[name]
		return in
	})
	if len(m.seats)-len(leaves)+len(joins) > MaxChannels {
		joins = nil
		w.refused++
	}
	cursor := m.hold.cursor
	if _, ids := w.due(m, before); len(leaves) > 0 && m.hold.state == live && len(ids) > 0 { // what was published before it leaves
		cursor = ids[len(ids)-1]
		w.settleUpTo(m, cursor)
	}
	if len(joins) > 0 {
		w.foreseeJoin(m, joins, cursor)
	}
	for _, name := range leaves {
		delete(m.seats, name)
	}
	return len(joins) > 0
}

func (w *socketWorld) foreseeJoin(m *modelSocket, joins []string, cursor int64) {
	from := m.askedAt
	if !w.hasAll(joins, from) {
		w.gaps++
		from = w.hub.head.Load()
		m.want = append(m.want, gapFrame(m.askedAt, from))
		if !m.envelope {
			m.ends = "what it missed of what it joined cannot be told"
		}
	}
	for i, e := range w.events { // what its cursor has passed
		if e.id > from && e.id <= cursor && !m.given[e.id] && slices.ContainsFunc(e.channels, func(name string) bool { return slices.Contains(joins, name) }) {
			m.want, m.given[e.id] = append(m.want, m.frame(i, e)), true
			w.late++
		}
	}
	for _, name := range joins {
		m.seats[name] = from
	}
}

// wholeFrame is the size of the first frame in b; 0: it is not whole.
func wholeFrame(b []byte) int {
	if len(b) < 4 {
		if len(b) >= 2 && len(b) >= 2+int(b[1]) {
			return 2 + int(b[1])
		}
		return 0
	}
	size := 2 + int(b[1])
	if b[1] == 126 {
		size = 4 + int(binary.BigEndian.Uint16(b[2:]))
	}
	if len(b) < size {
		return 0
	}
	return size
}

// judge compares what a client reads with what is due.
func (w *socketWorld) judge(t *testing.T, c *modelClientOfSockets, f serverFrame) {
	m := c.socket
	switch f.opcode {
	case opPing:
		return
	case opClose:
		if m.owed != 0 {
			w.owed++
			frames, _ := w.due(m, m.owed)
			if due := append(slices.Clone(m.want), frames...); m.got < len(due) {
				w.failf(t, "%s: it is closed before %s", c.name, due[m.got])
			}
		}
		return
	}
	w.frames++
	due := m.want
	if m.got >= len(due) {
		frames, _ := w.due(m, w.hub.head.Load())
		due = append(slices.Clone(due), frames...)
	}
	if m.got >= len(due) || f.opcode != opText || f.payload != due[m.got] {
		w.failf(t, "%s: frame %d is %s, due is %s; behind %s", c.name, m.got, f, strings.Join(due[min(m.got, len(due)):], " "), strings.Join(due[:min(m.got, len(due))], " "))
	}
	m.got++
	var id int64
	if fmt.Sscanf(f.payload, `{"id":%d,`, &id); id != 0 {
		c.last = id
	}
}

// settle lets everything come to rest, and asks for what is still owed.
func (w *socketWorld) settle(t *testing.T) {
	for len(w.asked) > 0 {
		w.answer(t, 0)
	}
	for busy := true; busy; {
		busy = false
		for _, l := range w.loops {
			for l.turn() || !l.sleep() {
				busy = true
			}
		}
		for _, c := range w.clients {
			if c.socket != nil && (len(c.socket.pipe.bytes) > 0 || c.socket.pipe.closed) {
				busy = true
				w.read(t, c, 1<<20)
			}
		}
	}
	held := 0
	for _, c := range w.clients {
		m := c.socket
		if m == nil {
			continue
		}
		held++
		if m.hold.state != live || m.ends != "" {
			w.failf(t, "%s: at rest its hold is in state %d. %s", c.name, m.hold.state, m.ends)
		}
		w.settleUpTo(m, w.hub.head.Load())
		if m.got != len(m.want) {
			w.failf(t, "%s: at rest it has not got %s", c.name, m.want[m.got])
		}
	}
	w.checkRest(t, held)
}

// checkRest compares what the hub and the loops count with what there is.
// Holds whose clients are gone without a sign are there until they are written to.
func (w *socketWorld) checkRest(t *testing.T, held int) {
	there, unseen := 0, 0
	for _, l := range w.loops {
		there += len(l.table) - len(l.vacant)
		for _, h := range l.table {
			if h != nil && l.sockets.(*pipes).of[h].fail != nil {
				unseen++
			}
		}
		if len(l.orphans) > 0 {
			w.failf(t, "%d sockets whose messages were all answered are still waited for", len(l.orphans))
		}
	}
	left := -w.loops[0].counts.held.Load() // whoever opened them counted nobody in
	if there != held+unseen || int(left) != w.opened-there {
		w.failf(t, "%d sockets are there, want %d; %d have left, want %d", there, held+unseen, left, w.opened-there)
	}
	if unseen == 0 {
		(&world{seed: w.seed, hub: w.hub, loops: w.loops}).checkCounts(t)
	}
}
