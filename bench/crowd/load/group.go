package main

import (
	"slices"
	"time"

	"holdfast/bench/crowd"
	"holdfast/bench/peer"
)

// group is clients that are counted together.
type group struct {
	conns  map[*conn]struct{}
	took   []time.Duration // of each delivery since it was armed
	closed int             // connections that ended after they were opened
}

func (g *group) seen() crowd.Seen {
	sorted := slices.Sorted(slices.Values(g.took))
	return crowd.Seen{
		Deliveries: len(sorted),
		P50:        peer.Quantile(sorted, 0.50),
		P99:        peer.Quantile(sorted, 0.99),
		Max:        peer.Quantile(sorted, 1),
		Closed:     g.closed,
	}
}

func (l *loop) drop(g *group) {
	for c := range g.conns {
		l.close(c)
	}
}
