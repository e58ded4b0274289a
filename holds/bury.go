package holds

import (
	"time"

	"go.uber.org/zap"
)

type endedHold struct {
	hold   *hold
	reason End
}

// hangUp is called when a hold's client has left.
func (l *loop) hangUp(h *hold) {
	if h.state == ending {
		l.close(h, false)
	} else {
		l.end(h, EndClient)
	}
}

// end ends a hold: it is given nothing more. It leaves its channels when the
// present walk is over, and its connection is closed after that.
func (l *loop) end(h *hold, reason End) {
	if h.state >= leaving {
		return
	}
	if h.poll == nil || h.poll.answer == nil {
		l.settle(h, reason)
	}
	if h.state >= leaving { // what it was owed was too much, or an answer
		return
	}
	h.state = leaving
	l.ended = append(l.ended, endedHold{h, reason})
}

// settle gives a hold, before its end, what was published to it before.
func (l *loop) settle(h *hold, reason End) {
	if !reason.gone() && h.state == live {
		l.owed(h, l.hub.head.Load()+1)
	}
	for reason == EndPublished && h.state == catching && h.outbox == nil {
		l.feed(h)
	}
}

// bury takes holds that have ended out of every table, then says the last word
// to their clients or closes their connections.
func (l *loop) bury() {
	if len(l.ended) == 0 {
		return
	}
	left := make([]*hold, len(l.ended))
	for i, e := range l.ended {
		left[i] = e.hold
		l.depart(e.hold)
		e.hold.state = ending
	}
	l.hub.leave(l, left)
	ended := l.ended
	l.ended = nil
	for _, e := range ended {
		l.counts.end(e.hold.kind, e.reason)
		l.home.tellEnd(l, e.hold, e.reason)
		if e.reason.gone() && (e.hold.socket == nil || e.hold.socket.echo == nil) {
			l.close(e.hold, e.reason.reset())
			continue
		}
		l.send(e.hold, l.farewell(e.hold, e.reason))
		if e.hold.outbox == nil && e.hold.state != closed {
			l.finish(e.hold)
		}
	}
}

// farewell is what a hold's client gets last.
func (l *loop) farewell(h *hold, reason End) []byte {
	switch {
	case h.socket != nil:
		return h.socket.farewellFrame(reason)
	case h.poll != nil && h.poll.answer != nil:
		return h.poll.answer
	case h.poll != nil:
		return l.answerNothing(h, false)
	}
	back := reason != EndPublished && (h.grip() == nil || h.grip().events)
	return farewell(h.chunked, back)
}

// depart takes a hold out of the loop's rooms.
func (l *loop) depart(h *hold) {
	for i := range h.seats() {
		l.leave(h, h.seatAt(i))
	}
}

// finish goes on after a hold's last bytes.
func (l *loop) finish(h *hold) {
	switch {
	case h.socket != nil && h.socket.echo == nil:
		l.part(h)
	case h.poll != nil:
		l.giveBack(h)
	default:
		l.close(h, false)
	}
}

// close ends a hold's connection.
func (l *loop) close(h *hold, reset bool) {
	if h.state == closed {
		return
	}
	l.vacate(h)
	l.sockets.close(h, reset)
	if h.socket != nil {
		h.socket.frames = frames{} // what is not whole never will be
		l.account(h.socket)
	}
	if h.socket != nil && h.socket.over != nil {
		l.lastEvent(h)
	}
	if h.socket != nil && h.socket.delivering { // what it sent before still goes to the app
		h.socket.gone = true
		l.orphans[h.socket] = struct{}{}
		return
	}
	l.left()
}

// vacate takes a hold out of the loop's table.
func (l *loop) vacate(h *hold) {
	if h.outbox != nil {
		l.unbox(h)
	}
	h.state = closed
	l.table[h.slot] = nil
	l.vacant = append(l.vacant, h.slot)
}

// left counts a hold that is no more.
func (l *loop) left() {
	l.counts.held.Add(-1)
	if left := l.limits.Load().Left; left != nil {
		left()
	}
}

// drainSpan is how long the ends of holds are spread over in a drain.
const drainSpan = 2 * time.Second

// drain ends the loop's holds, spread, so that all who come back do not come
// at once; who joins from now on is sent away after the first bytes.
func (l *loop) drain() {
	l.drainFrom = l.hub.now()
	l.toDrain = len(l.table)
}

// stop cuts what is left; the loop takes no turn after this one.
func (l *loop) stop() {
	l.stopped = true
	if cut := len(l.table) - len(l.vacant); cut > 0 {
		l.home.log.Warn("holds were cut, their clients did not take the end in time", zap.Int("holds", cut))
	}
	for _, h := range l.table {
		if h == nil {
			continue
		}
		if h.state == ending {
			l.close(h, true)
		} else {
			l.end(h, EndDraining)
		}
	}
	l.bury()
	for _, h := range l.table {
		if h != nil {
			l.close(h, true)
		}
	}
	messages := 0
	for s := range l.orphans {
		messages += s.messages(len(s.inbound))
		l.left()
	}
	if messages > 0 {
		l.counts.inbound[inboundOverload].Add(uint64(messages))
		l.home.log.Warn("messages of sockets were cut, the app did not take them in time", zap.Int("messages", messages))
	}
}
