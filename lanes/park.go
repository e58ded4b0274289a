package lanes

import "time"

// Parking: while a target is down its slots are out; while every target of a
// lane is down, requests wait in the lane's queue, until a target is back, or
// the queue's own bounds or the upstream's Park end the wait.

// targetChanged is called after each change of the target.
func (l *Lane) targetChanged(p *place) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p.up = p.target.State().Up
	if !p.up {
		for _, slot := range p.free {
			slot.closeConn() // to a process that is gone
		}
	}
	l.serve()
	l.armPark()
}

// isDown reports whether no target of the lane is up. l.mu is held.
func (l *Lane) isDown() bool {
	for _, p := range l.places {
		if p.up {
			return false
		}
	}
	return true
}

// parkEnd is when waiting for the lane's targets ends: Park after the last of
// them went down. l.mu is held, and no target is up.
func (l *Lane) parkEnd() time.Time {
	return l.downSince().Add(l.places[0].target.Park())
}

// parked reports whether the time for waiting is over. l.mu is held, and no
// target is up.
func (l *Lane) parked() bool { return !time.Now().Before(l.parkEnd()) }

// downSince is when the last target that was up went down. l.mu is held.
func (l *Lane) downSince() (since time.Time) {
	for _, p := range l.places {
		if s := p.target.State().Since; s.After(since) {
			since = s
		}
	}
	return since
}

// lastError words why the lane's targets are down. l.mu is held.
func (l *Lane) lastError() string {
	for _, p := range l.places {
		if err := p.target.State().Err; err != nil {
			return err.Error()
		}
	}
	return "not asked yet"
}

// armPark starts the clock that ends parking, while somebody waits for
// targets that are all down. l.mu is held.
func (l *Lane) armPark() {
	if l.queue.first == nil || !l.isDown() {
		return
	}
	wait := time.Until(l.parkEnd())
	if l.park == nil {
		l.park = time.AfterFunc(wait, l.parkOver)
	} else {
		l.park.Reset(wait)
	}
}

// parkOver refuses whoever waits, if the targets are still down.
func (l *Lane) parkOver() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.isDown() {
		return
	}
	if !l.parked() {
		l.armPark() // it was up in between
		return
	}
	l.refuseAll(UpstreamDown)
}
