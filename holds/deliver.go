package holds

import "slices"

// deliver offers an event to the loop's members of its channels.
func (l *loop) deliver(e *event) (cost int) {
	members := 0
	for _, r := range e.rooms {
		members += len(r.local[l.index].holds)
	}
	if members > l.pace.slice {
		l.walks = append(l.walks, walk{event: e, at: len(e.rooms[0].local[l.index].holds) - 1})
		return 1
	}
	for _, r := range e.rooms {
		for _, h := range r.local[l.index].holds {
			l.offer(h, e)
		}
	}
	return members + 1
}

// walk makes a slice of the oldest walk. Downwards, because a member that
// leaves is replaced by the last: nobody is passed over.
func (l *loop) walk() {
	w := &l.walks[0]
	for range l.pace.slice {
		holds := w.event.rooms[w.room].local[l.index].holds
		w.at = min(w.at, len(holds)-1)
		for w.at < 0 {
			if w.room++; w.room == len(w.event.rooms) {
				l.walks = slices.Delete(l.walks, 0, 1)
				return
			}
			holds = w.event.rooms[w.room].local[l.index].holds
			w.at = len(holds) - 1
		}
		l.offer(holds[w.at], w.event)
		w.at--
	}
}

// offer gives a live hold an event that it has not got. A walk that has not
// come to it yet comes first: nothing overtakes an older event.
func (l *loop) offer(h *hold, e *event) {
	if h.state != live || h.cursor >= e.id {
		return
	}
	l.owed(h, e.id)
	if h.state == live {
		l.give(h, e)
	}
}

// owed gives a hold what walks under way have for it, before the event id.
func (l *loop) owed(h *hold, id int64) {
	for i := range l.walks {
		e := l.walks[i].event
		if e.id >= id {
			return
		}
		if h.state == live && h.cursor < e.id && h.in(e) {
			l.give(h, e)
		}
	}
}

// give gives a hold an event: what of it is for holds of its kind.
func (l *loop) give(h *hold, e *event) {
	switch {
	case e.item != nil || h.grip() != nil:
		l.giveItem(h, e)
	case h.poll != nil:
		l.answerEvent(h, e)
	default:
		l.giveEvent(h, e)
	}
}

// giveEvent gives a hold an event as it goes to all of its kind.
func (l *loop) giveEvent(h *hold, e *event) {
	if l.tooFarBehind(h, len(l.bytesFor(h, e))) {
		l.end(h, EndSlow)
		return
	}
	h.pass(e)
	l.sendEvents(h, e)
}

// tooFarBehind reports whether so many bytes more are too much for a live hold.
// One that is fed from the journal is given more only when it has taken all.
func (l *loop) tooFarBehind(h *hold, more int) bool {
	return h.state == live && h.outbox != nil && h.outbox.behind+more > l.limits.Load().OutboxBytes
}

// sendEvents writes events, behind what waits.
func (l *loop) sendEvents(h *hold, events ...*event) {
	pieces := l.pieces[:0]
	for _, e := range events {
		pieces = append(pieces, l.bytesFor(h, e))
	}
	l.offered += uint64(len(events))
	l.sendAll(h, pieces, events)
	clear(pieces)
	l.pieces = pieces[:0]
}

// send writes bytes that are the hold's own, behind what waits.
func (l *loop) send(h *hold, b []byte) {
	l.pieces = append(l.pieces[:0], b)
	l.sendAll(h, l.pieces, nil)
}

// sendAll writes pieces: those of events, or own ones.
func (l *loop) sendAll(h *hold, pieces [][]byte, events []*event) {
	size := 0
	for _, b := range pieces {
		size += len(b)
	}
	if size == 0 {
		return
	}
	h.wrote = true
	if g := h.grip(); g != nil {
		g.wroteAt = l.hub.now()
	}
	n := 0
	if h.outbox == nil {
		var err error
		if n, err = l.sockets.write(h, pieces); err != nil {
			l.hangUp(h)
			return
		}
		if n == size {
			return
		}
		l.box(h)
	}
	for i, b := range pieces {
		if n >= len(b) {
			n -= len(b)
			continue
		}
		k := kept{bytes: cap(b)}
		if events != nil {
			k = kept{event: events[i]}
		}
		h.outbox.push(b[n:], k)
		l.keeping.add(k)
		l.counts.outbox.Add(int64(len(b) - n))
		n = 0
	}
}

// box gives a hold an outbox.
func (l *loop) box(h *hold) {
	h.outbox = &outbox{hold: h, at: len(l.outboxes), since: l.hub.now(), unacked: l.sockets.unacknowledged(h)}
	l.outboxes = append(l.outboxes, h.outbox)
}

// unbox takes it away again. freed is what nothing keeps in memory any more.
func (l *loop) unbox(h *hold) (freed int) {
	o := h.outbox
	for _, k := range o.keeps {
		freed += l.keeping.drop(k)
	}
	last := len(l.outboxes) - 1
	l.outboxes[o.at] = l.outboxes[last]
	l.outboxes[o.at].at = o.at
	l.outboxes[last] = nil
	l.outboxes = l.outboxes[:last]
	l.counts.outbox.Add(-int64(o.bytes))
	h.outbox = nil
	return freed
}

// writable goes on with an outbox.
func (l *loop) writable(h *hold) {
	o := h.outbox
	if o == nil || h.state == closed {
		return
	}
	n, err := l.sockets.write(h, o.pieces)
	if err != nil {
		l.hangUp(h)
		return
	}
	if n > 0 {
		gone := o.took(n)
		for _, k := range o.keeps[:gone] {
			l.keeping.drop(k)
		}
		o.keeps = o.keeps[gone:]
		o.since, o.unacked = l.hub.now(), -1
		l.counts.outbox.Add(-int64(n))
	}
	if len(o.pieces) > 0 {
		return
	}
	l.unbox(h)
	switch h.state {
	case catching:
		l.enqueue(h)
	case recovering:
		l.turnPage(h)
	case ending:
		l.finish(h)
	}
}

// enqueue has a hold fed from the journal.
func (l *loop) enqueue(h *hold) {
	if !h.queued {
		h.queued = true
		l.queue = append(l.queue, h)
	}
}

// catchUp feeds some of the holds that catch up.
func (l *loop) catchUp() {
	for range min(len(l.queue), l.pace.catch) {
		h := l.queue[0]
		l.queue[0] = nil
		l.queue = l.queue[1:]
		h.queued = false
		if h.state == catching && h.outbox == nil && h.claim == 0 {
			l.feed(h)
		}
	}
}

func (l *loop) feed(h *hold) {
	events, lost, isLive := l.hub.fetch(h, l.fetched[:0])
	switch {
	case lost:
		l.lost(h, EndSlow)
	case isLive:
		h.state = live
	case h.poll != nil || h.grip() != nil || slices.ContainsFunc(events, (*event).isItem):
		l.enqueue(h)
		for _, e := range events {
			if h.state != catching { // it was answered, has ended, or misses something
				break
			}
			l.give(h, e)
		}
	default:
		h.cursor = events[len(events)-1].id
		l.enqueue(h)
		l.sendEvents(h, events...)
	}
	clear(events)
	l.fetched = events[:0]
}

// lost goes on with a hold of which the journal has let go what it was not fed
// yet. reason is why it ends, if it can neither be told nor ask.
func (l *loop) lost(h *hold, reason End) {
	switch {
	case h.grip() != nil && h.poll == nil && h.socket == nil && !l.hub.lostUncounted(h):
		l.miss(h, false)
	case h.poll != nil:
		if h.grip() == nil {
			l.counts.gaps.Add(1)
		}
		h.cursor = l.hub.head.Load()
		h.poll.answer = l.answerNothing(h, true)
		l.end(h, EndExpired)
	default: // it is told of the gap when it comes back; of items without prev-ids nobody could ask
		h.state = recovering // what follows a hole is not owed
		l.end(h, reason)
	}
}
