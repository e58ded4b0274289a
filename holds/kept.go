package holds

import "slices"

// kept is what one piece of an outbox keeps in memory: an event, or bytes that
// are the hold's own.
type kept struct {
	event *event // nil: own bytes
	bytes int    // of own
}

// keeping is what all outboxes of a loop keep in memory, each event counted
// once, however many clients wait for it.
type keeping struct {
	events map[*event]share
	own    int // bytes that are no event's
	bytes  int // of all, those included that the journal has anyway
	look   int // at how many bytes it is worth another look
}

// share is one event's.
type share struct{ pieces, bytes int }

// add counts a piece in.
func (k *keeping) add(p kept) {
	if p.event == nil {
		k.own += p.bytes
		k.bytes += p.bytes
		return
	}
	if k.events == nil {
		k.events = make(map[*event]share)
	}
	s := k.events[p.event]
	k.bytes -= s.bytes
	s.pieces++
	s.bytes = p.event.size() // a form may have been rendered since
	k.bytes += s.bytes
	k.events[p.event] = s
}

// drop counts it out again. freed is what nothing keeps any more.
func (k *keeping) drop(p kept) (freed int) {
	if p.event == nil {
		k.own -= p.bytes
		k.bytes -= p.bytes
		return p.bytes
	}
	s := k.events[p.event]
	if s.pieces--; s.pieces > 0 {
		k.events[p.event] = s
		return 0
	}
	delete(k.events, p.event)
	k.bytes -= s.bytes
	if !p.event.evicted.Load() {
		return 0
	}
	return s.bytes
}

// alone is what is in memory for these outboxes alone.
func (k *keeping) alone() int {
	n := k.own
	for e, s := range k.events {
		if e.evicted.Load() {
			n += s.bytes
		}
	}
	return n
}

// keepLeast is what a loop may always keep for clients that are behind.
const keepLeast = 8 << 20

// keepBytes bounds what a loop keeps in memory for its clients that are behind
// and that the journal has not: all loops together as much as the journal, or
// keepLeast each.
func (l *loop) keepBytes() int {
	return max(int(l.limits.Load().Journal.Bytes)/l.home.loops, keepLeast)
}

// relieve ends holds while more than keepBytes is kept, those first whose
// clients have taken nothing for the longest time. Each of them may be within
// its own bound: one large event never counts there, and the clients are many.
func (l *loop) relieve() {
	bound := l.keepBytes()
	if l.keeping.bytes <= max(bound, l.keeping.look) {
		return
	}
	over := l.keeping.alone() - bound
	if over > 0 {
		over += bound / 8 // not one at a time
		order := slices.SortedFunc(slices.Values(l.outboxes), func(a, b *outbox) int { return a.since.Compare(b.since) })
		for _, o := range order {
			if over <= 0 {
				break
			}
			if slices.ContainsFunc(o.keeps, kept.aside) {
				over -= l.cutShort(o)
			}
		}
	}
	l.keeping.look = l.keeping.bytes + bound/8
}

// aside reports whether the journal has not what a piece keeps.
func (p kept) aside() bool { return p.event == nil || p.event.evicted.Load() }

// cutShort ends the hold of an outbox, slow, and lets go what it keeps.
func (l *loop) cutShort(o *outbox) (freed int) {
	switch h := o.hold; {
	case h.state == leaving: // for another reason, and its last bytes go behind these
		return 0
	case h.state == ending:
		freed = l.unbox(h)
		l.close(h, true)
	default:
		l.end(h, EndSlow)
		freed = l.unbox(h) // it is reset, nothing is written to it any more
	}
	return freed
}
