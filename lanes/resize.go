package lanes

import (
	"slices"
	"time"

	"holdfast/upstream"
)

// Configure puts a configuration in force, at any time: slots are added, or
// taken away, a slot in use once its request has ended. Who waits goes on
// waiting, by the bounds that held when it came.
func (l *Lane) Configure(cfg Config, dealt []*upstream.Target) {
	if cfg.QueueTimeout == 0 {
		cfg.QueueTimeout = 10 * time.Second
	}
	if cfg.ResponseTimeout == 0 {
		cfg.ResponseTimeout = time.Minute
	}
	cfg.Slots, cfg.keepAlive = len(dealt), dealt[0].KeepAlive()
	l.mu.Lock()
	l.cfg.Store(&cfg)
	wanted := make(map[*upstream.Target]int)
	for _, target := range dealt {
		wanted[target]++
	}
	byTarget := make(map[*upstream.Target]*place)
	for _, p := range slices.Clone(l.places) {
		byTarget[p.target] = p
		wanted[p.target] -= l.keep(p, wanted[p.target])
	}
	var added []*place
	for _, target := range dealt { // in the order of dealing, so that numbers go round
		if wanted[target] == 0 {
			continue
		}
		wanted[target]--
		p := byTarget[target]
		if p == nil {
			p = &place{target: target, up: target.State().Up}
			byTarget[target] = p
			l.places = append(l.places, p)
			added = append(added, p)
		}
		slot := &Slot{lane: l, place: p, number: l.freeNumber(), since: time.Now()}
		p.slots = append(p.slots, slot)
		p.free = append(p.free, slot)
	}
	l.places = slices.DeleteFunc(l.places, func(p *place) bool {
		if len(p.slots) > 0 {
			return false
		}
		l.dropped = append(l.dropped, p)
		return true
	})
	l.serve()
	l.armPark()
	l.mu.Unlock()
	for _, p := range added {
		unwatch := p.target.Watch(func() { l.targetChanged(p) })
		l.mu.Lock()
		p.unwatch = unwatch
		l.mu.Unlock()
	}
	l.unwatchDropped()
}

// unwatchDropped ends the watching for places that are gone.
func (l *Lane) unwatchDropped() {
	l.mu.Lock()
	dropped := l.dropped
	l.dropped = slices.DeleteFunc(slices.Clone(dropped), func(p *place) bool { return p.unwatch != nil })
	l.mu.Unlock()
	for _, p := range dropped {
		if p.unwatch != nil {
			p.unwatch()
		}
	}
}

// Forget ends a retired lane that has nothing left to do: its targets do not
// know it any more.
func (l *Lane) Forget() {
	l.mu.Lock()
	l.dropped = append(l.dropped, l.places...)
	l.mu.Unlock()
	l.unwatchDropped()
}

// keep brings a place down to n slots, where it has more: free ones go at
// once, the others when they are given back. It gives how many stay. l.mu is held.
func (l *Lane) keep(p *place, n int) (staying int) {
	for _, slot := range p.slots {
		if !slot.retired {
			staying++
		}
	}
	for _, slot := range p.slots { // rather keep one that was to go than add one
		if staying < n && slot.retired {
			slot.retired = false
			staying++
		}
	}
	for ; staying > n && len(p.free) > 0; staying-- {
		slot := p.free[0] // the one that was used least lately
		p.free = p.free[1:]
		l.drop(slot)
	}
	for i := len(p.slots) - 1; i >= 0 && staying > n; i-- {
		if slot := p.slots[i]; !slot.retired {
			slot.retired = true
			staying--
		}
	}
	return staying
}

// freeNumber is the lowest number that no slot has. l.mu is held.
func (l *Lane) freeNumber() int {
	taken := make(map[int]bool)
	for _, p := range l.places {
		for _, slot := range p.slots {
			taken[slot.number] = true
		}
	}
	n := 0
	for taken[n] {
		n++
	}
	return n
}

// drop takes a slot that is not in use out of its place. l.mu is held.
func (l *Lane) drop(slot *Slot) {
	slot.closeConn()
	p := slot.place
	p.slots = slices.DeleteFunc(p.slots, func(s *Slot) bool { return s == slot })
	if len(p.slots) == 0 && len(l.places) > 1 {
		l.places = slices.DeleteFunc(l.places, func(q *place) bool { return q == p })
		l.dropped = append(l.dropped, p)
		l.armPark()
	}
}

// Retire ends a lane that no route leads to any more: what waits and runs is
// served, and then its connections are closed.
func (l *Lane) Retire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.places {
		p.closing = true
		for _, slot := range p.free {
			slot.closeConn()
		}
	}
}
