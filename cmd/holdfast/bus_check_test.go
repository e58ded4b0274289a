package main

import (
	"fmt"
	"slices"
	"testing"
)

// check compares what the clients got with what was published.
func (l *busLedger) check(clients []*busClient, orders [][]int) {
	l.t.Helper()
	ids, logs := l.oneNumberEach(clients)
	told := 0
	for _, c := range clients {
		for _, fault := range c.check(l.events, ids, logs) {
			if told++; told <= 20 {
				l.t.Errorf("client %d, in %v: %s", c.index, c.channels, fault)
			}
		}
	}
	for p, order := range orders {
		for i := 1; i < len(order); i++ {
			before, after := ids[order[i-1]], ids[order[i]]
			if before >= after && logs[before%1000] && logs[after%1000] {
				l.t.Errorf("publisher %d was told that %d is published, then published %d, and their ids are %d and %d", p, order[i-1], order[i], before, after)
			}
		}
	}
}

// oneNumberEach gives the id of each event: that which its publisher was told,
// and every client was given. logs are the last three digits of those that came.
func (l *busLedger) oneNumberEach(clients []*busClient) (ids map[int]int64, logs map[int64]bool) {
	ids, logs = map[int]int64{}, map[int64]bool{}
	for n, e := range l.events {
		if e.id != 0 {
			ids[n] = e.id
		}
	}
	for _, c := range clients {
		for _, g := range c.got {
			if g.n < 0 {
				continue
			}
			if id, is := ids[g.n]; is && id != g.id {
				l.t.Errorf("event %d has the id %d, and client %d got it with %d", g.n, id, c.index, g.id)
			}
			ids[g.n] = g.id
			logs[g.id%1000] = true
		}
	}
	return ids, logs
}

// check: each event of its channels that was taken, once, in order, or a gap
// between two positions between which it was. Of an event of a log that was lost
// before any of it came, or that has no id, the gap was told behind it.
func (c *busClient) check(events []busEvent, ids map[int]int64, logs map[int64]bool) (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	faults = append(faults, c.faults...)
	got := map[int]bool{}
	last := c.first
	for _, g := range c.got {
		switch {
		case g.n < 0:
		case g.n >= len(events) || events[g.n].fate == never || !shareOne(events[g.n].channels, c.channels):
			fault("it got %d, which is not published in its channels", g.n)
		case got[g.n]:
			fault("it got %d twice", g.n)
		case g.id <= last:
			fault("it got %d with the id %d behind %d", g.n, g.id, last)
		}
		if g.n >= 0 {
			got[g.n], last = true, g.id
		}
	}
	for n, e := range events {
		if e.fate == taken && !got[n] && shareOne(e.channels, c.channels) && !c.wasToldOf(n, ids[n], logs[ids[n]%1000]) {
			fault("it did not get %d with the id %d, and no gap covers it: %v", n, ids[n], c.gapsOf())
		}
	}
	return faults
}

// wasToldOf reports whether a gap covers an event.
func (c *busClient) wasToldOf(n int, id int64, inALogThatCame bool) bool {
	return slices.ContainsFunc(c.gapsOf(), func(g busGot) bool {
		if id == 0 || !inALogThatCame {
			return n < g.begun
		}
		return g.last < id && id <= g.id
	})
}

func (c *busClient) gapsOf() (gaps []busGot) {
	for _, g := range c.got {
		if g.n < 0 {
			gaps = append(gaps, g)
		}
	}
	return gaps
}

func shareOne(a, b []string) bool {
	return slices.ContainsFunc(a, func(name string) bool { return slices.Contains(b, name) })
}

// The check can fail: each line is one fault.
func TestBusLedger_TheCheckSeesEachFault(t *testing.T) {
	events := []busEvent{
		{[]string{"a"}, taken, 10}, {[]string{"b"}, taken, 20}, {[]string{"a", "b"}, taken, 30}, {[]string{"a"}, never, 0}, {[]string{"a"}, maybe, 0}, {[]string{"a"}, taken, 60},
	}
	ids := map[int]int64{0: 10, 1: 20, 2: 30, 4: 50, 5: 60}
	for name, row := range map[string]struct {
		got  []busGot
		want int
	}{
		"all":                        {[]busGot{{n: 0, id: 10}, {n: 2, id: 30}, {n: 5, id: 60}}, 0},
		"and what may be":            {[]busGot{{n: 0, id: 10}, {n: 2, id: 30}, {n: 4, id: 50}, {n: 5, id: 60}}, 0},
		"a hole":                     {[]busGot{{n: 0, id: 10}, {n: 5, id: 60}}, 1},
		"a hole at the end":          {[]busGot{{n: 0, id: 10}, {n: 2, id: 30}}, 1},
		"a hole of which it is told": {[]busGot{{n: 0, id: 10}, {-1, 40, 10, 3}, {n: 5, id: 60}}, 0},
		"a gap elsewhere":            {[]busGot{{-1, 20, 10, 3}, {n: 5, id: 60}}, 2},
		"twice":                      {[]busGot{{n: 0, id: 10}, {n: 2, id: 30}, {n: 2, id: 30}, {n: 5, id: 60}}, 1},
		"another order":              {[]busGot{{n: 0, id: 10}, {n: 5, id: 60}, {n: 2, id: 30}}, 1},
		"what was not published":     {[]busGot{{n: 0, id: 10}, {n: 2, id: 30}, {n: 3, id: 40}, {n: 5, id: 60}}, 1},
		"another channel's":          {[]busGot{{n: 0, id: 10}, {n: 1, id: 20}, {n: 2, id: 30}, {n: 5, id: 60}}, 1},
	} {
		c := &busClient{channels: []string{"a"}, first: 5, got: row.got}
		if faults := c.check(events, ids, map[int64]bool{10: true, 20: true, 30: true, 60: true}); len(faults) != row.want {
			t.Errorf("%s: %q, want %d faults", name, faults, row.want)
		}
	}
	// Of a log that was lost before any of it came it is told behind the event.
	for begun, want := range []int{1, 0} {
		c := &busClient{channels: []string{"a"}, got: []busGot{{-1, 9_000, 8_000, begun}}}
		if faults := c.check(events[:1], ids, map[int64]bool{}); len(faults) != want {
			t.Errorf("a gap before event %d: %q, want %d faults", begun, faults, want)
		}
	}
}
