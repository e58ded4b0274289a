//go:build !linux || holdfast_goroutines

package holds

import (
	"net"
	"time"
)

// goroutines runs a loop whose holds' connections are links.
type goroutines struct {
	loop  *loop
	woken chan struct{}
}

func newRunner(l *loop) (runner, error) {
	return &goroutines{loop: l, woken: make(chan struct{}, 1)}, nil
}

// run takes turns until the loop is stopped.
func (g *goroutines) run() {
	l := g.loop
	var due time.Time
	for {
		more := l.turn()
		if l.stopped {
			return
		}
		due = l.due(due)
		if !more && l.sleep() {
			g.wait(due)
		}
		due = l.tickIf(due)
	}
}

// wait waits until the loop is woken, or until due.
func (g *goroutines) wait(due time.Time) {
	if due.IsZero() {
		<-g.woken
		return
	}
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	select {
	case <-g.woken:
	case <-timer.C:
	}
}

func (g *goroutines) wake() {
	select {
	case g.woken <- struct{}{}:
	default: // it is woken already
	}
}

func (g *goroutines) adopt(h *hold, conn net.Conn) error {
	h.link = newLink(g.loop, conn)
	return nil
}

func (g *goroutines) watch(h *hold) error {
	g.loop.watchLink(h)
	return nil
}

func (g *goroutines) write(h *hold, pieces [][]byte) (int, error) { return h.link.write(h, pieces) }

func (g *goroutines) read(h *hold, into []byte) (int, error) { return h.link.read(into) }

func (g *goroutines) shut(h *hold) { h.link.shut() }

func (g *goroutines) release(h *hold) (net.Conn, []byte, error) { return h.link.release() }

func (g *goroutines) unacknowledged(h *hold) int { return h.link.unacknowledged() }

func (g *goroutines) close(h *hold, reset bool) {
	h.link.close(h, reset, g.loop.limits.Load().WriteStall)
}
