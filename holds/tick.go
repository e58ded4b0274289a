package holds

import "time"

// nextTick says when the loop wants its next tick; zero: nothing is to come.
func (l *loop) nextTick(now time.Time) time.Time {
	every := time.Second
	if len(l.table) == len(l.vacant) {
		if l.index == 0 && l.hub.waits.Load() {
			return now.Add(every)
		}
		return time.Time{}
	}
	cfg := l.limits.Load()
	if cfg.Heartbeat > 0 {
		every = min(every, cfg.Heartbeat/8)
	}
	if cfg.MaxAge > 0 {
		every = min(every, cfg.MaxAge/ageLooks)
	}
	if len(l.outboxes) > 0 {
		every = min(every, cfg.WriteStall/4)
	}
	if l.drained < l.toDrain {
		every = min(every, drainSpan/100)
	}
	if len(l.parting) > 0 {
		every = min(every, partingTime/8)
	}
	if len(l.alarms) > 0 {
		every = min(every, l.alarms[0].at.Sub(now))
	}
	return now.Add(max(every, tickLeast))
}

// due is when the next tick is to be, if it was to be at before; zero: none is.
// What a turn has done may have it be sooner.
func (l *loop) due(before time.Time) time.Time {
	next := l.nextTick(time.Now())
	if before.IsZero() || !next.IsZero() && next.Before(before) {
		return next
	}
	return before
}

// tickIf makes the tick that is due, and gives what is left of that.
func (l *loop) tickIf(due time.Time) time.Time {
	if now := time.Now(); !due.IsZero() && !now.Before(due) {
		l.tick(now)
		return time.Time{}
	}
	return due
}

const tickLeast = 5 * time.Millisecond

// tick does what time asks for.
func (l *loop) tick(now time.Time) {
	cfg := l.limits.Load()
	if l.index == 0 && l.hub.waits.Load() {
		l.hub.releaseLate(now)
	}
	for i := len(l.outboxes) - 1; i >= 0; i-- { // one that goes is replaced by the last
		l.checkStall(l.outboxes[i], now, cfg.WriteStall)
	}
	l.keeping.look = 0 // the journal may have let go more of it
	l.relieve()
	if cfg.MaxAge > 0 && now.Sub(l.agedAt) >= cfg.MaxAge/ageLooks {
		l.agedAt = now
		l.expire(now, cfg.MaxAge)
	}
	l.look(now, cfg)
	l.timeOut(now)
	l.partedBy(now)
	if l.drained < l.toDrain {
		due := min(int(float64(l.toDrain)*float64(now.Sub(l.drainFrom))/float64(drainSpan))+1, l.toDrain)
		for ; l.drained < due; l.drained++ {
			if h := l.table[l.drained]; h != nil {
				l.end(h, EndDraining)
			}
		}
	}
	l.bury()
}

// checkStall ends a hold whose client has taken no byte for the bound: the
// kernel tells of room in large steps only, so what the client has
// acknowledged is looked at too.
func (l *loop) checkStall(o *outbox, now time.Time, bound time.Duration) {
	before := o.unacked
	if o.unacked = l.sockets.unacknowledged(o.hold); o.unacked >= 0 && (before < 0 || o.unacked < before) {
		o.since = now
	}
	if now.Sub(o.since) < bound {
		return
	}
	if o.hold.state == ending {
		l.close(o.hold, true)
	} else {
		l.end(o.hold, EndStalled)
	}
}

// look goes on with the look at all holds, which takes as long as a heartbeat
// (15 s where there is none): who was written nothing since the last look gets
// one, so after twice that time at most.
func (l *loop) look(now time.Time, cfg *Config) {
	round := cfg.Heartbeat
	if round == 0 {
		round = defaultHeartbeat
	}
	passed := now.Sub(l.scanFrom)
	if passed > 2*round { // nothing was held for a while
		l.scanFrom, passed, l.scan = now, 0, 0
	}
	due := min(int(float64(len(l.table))*float64(passed)/float64(round)), len(l.table))
	current := l.next == len(l.taken) && len(l.walks) == 0 // every live hold has got all up to seen
	for ; l.scan < due; l.scan++ {
		if h := l.table[l.scan]; h != nil && h.state < leaving {
			l.lookAt(h, cfg.Heartbeat > 0, current)
		}
	}
	if passed >= round {
		l.scanFrom, l.scan = l.scanFrom.Add(round), 0
	}
}

func (l *loop) lookAt(h *hold, beat, current bool) {
	quiet := !h.wrote && h.outbox == nil && (h.state == live || h.claim > 0)
	h.wrote = false
	if !quiet || !beat || h.poll != nil || h.grip() != nil && h.socket == nil { // which is sent what its instruction says
		return
	}
	if h.beats++; h.socket != nil {
		l.send(h, pingFrame)
	} else if h.beats%positionEvery == 0 && current && h.state == live {
		h.cursor = max(h.cursor, l.seen)
		l.send(h, position(l.hub.shown(h.cursor), h.chunked))
	} else {
		l.send(h, heartbeat(h.chunked))
	}
	h.wrote = false // by others
}

// ageLooks is how often in MaxAge the holds' ages are looked at.
const ageLooks = 32

// expire ends the holds that are old enough: each in the last quarter of the
// bound, at a time of its own.
func (l *loop) expire(now time.Time, bound time.Duration) {
	for _, h := range l.table {
		if h == nil || h.state >= leaving || h.poll != nil {
			continue
		}
		early := bound/ageLooks + bound*7/32*time.Duration(h.slot*2654435761>>24)/256 // a hash's upper byte
		if now.Sub(l.clock)-time.Duration(h.born)*time.Second >= bound-early {
			l.end(h, EndExpired)
		}
	}
}
