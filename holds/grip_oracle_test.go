package holds

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// readLines has a client read up to n bytes and judges what they say.
func (w *gripWorld) readLines(t *testing.T, c *gripClient, n int) {
	if c.hold == nil {
		return
	}
	n = min(n, len(c.pipe.bytes))
	c.rest += string(c.pipe.bytes[:n])
	c.pipe.bytes = c.pipe.bytes[n:]
	for {
		line, rest, whole := strings.Cut(c.rest, "\n")
		if !whole {
			break
		}
		c.rest = rest
		w.judgeLine(t, c, line)
	}
	if c.pipe.full && n > 0 && !c.pipe.closed {
		c.pipe.full = false
		c.loop.writable(c.hold)
		c.loop.bury()
	}
	if c.pipe.closed && len(c.pipe.bytes) == 0 {
		w.ends++
		if c.pipe.reset {
			w.slow++
		}
		c.hold = nil
	}
}

// judgeLine is the oracle: of a channel that counts every item once, in order,
// without holes; of others each once at most, in order, and none left out that
// the journal has.
func (w *gripWorld) judgeLine(t *testing.T, c *gripClient, line string) {
	var n int
	name, rest, item := strings.Cut(line, "=")
	switch {
	case line == "HEAD" || line == "" || strings.HasPrefix(line, "retry: "):
		return
	case !item:
		name, number, _ := strings.Cut(line, "@")
		var err error
		if c.last[name], err = strconv.Atoi(number); err != nil {
			w.failf(t, "%s: it is sent %q", c.name, line)
		}
		return
	case name == "from":
		if w.bare {
			c.from, _ = strconv.ParseInt(rest, 10, 64)
		}
		return
	case name == "x":
		if !c.blind && !slices.ContainsFunc(c.channels, func(name string) bool { return !w.feed(name).counts }) {
			w.failf(t, "%s: got an item that follows nothing", c.name)
		}
		return
	}
	w.deliveries++
	number, _, _ := strings.Cut(rest, " ")
	n, _ = strconv.Atoi(number)
	f := w.feed(name)
	switch {
	case !slices.Contains(c.channels, name):
		w.failf(t, "%s: got %s, which it is not in", c.name, line)
	case line+"\n" != w.line(f, n):
		w.failf(t, "%s: got %q", c.name, line)
	case !f.counts:
		w.judgePlain(t, c, f, n)
	case c.blind:
		if w.tight && w.double { // what the journal has let go of may come again
			return
		}
		for _, m := range c.given[name] {
			if m == n {
				w.failf(t, "%s: got %s %d twice", c.name, name, n)
			}
			if m > n && !w.mayOvertake(f) {
				w.failf(t, "%s: got %s %d after %d", c.name, name, n, m)
			}
		}
		c.given[name] = append(c.given[name], n)
	default:
		last, told := c.last[name]
		if !told || n != last+1 {
			w.failf(t, "%s: got %s %d after %d", c.name, name, n, last)
		}
		c.last[name] = n
	}
}

// judgePlain judges an item of a channel that does not count.
func (w *gripWorld) judgePlain(t *testing.T, c *gripClient, f *feed, n int) {
	last := 0
	if given := c.given[f.name]; len(given) > 0 {
		last = given[len(given)-1]
	}
	if n <= last {
		w.failf(t, "%s: got %s %d after %d", c.name, f.name, n, last)
	}
	c.given[f.name] = append(c.given[f.name], n)
	if f.ids[n] <= c.from {
		w.failf(t, "%s: got %s %d, which is from before it came", c.name, f.name, n)
	}
	for between := last + 1; between < n; between++ {
		if id := f.ids[between]; id > c.from && (!c.shook || id > w.floor(f.name)) {
			w.failf(t, "%s: got %s %d after %d, and %d was there to be given", c.name, f.name, n, last, between)
		}
	}
}

// floor is up to where the journal has let a channel's items go.
func (w *gripWorld) floor(name string) int64 {
	if r := w.hub.journal.rooms[name]; r != nil {
		return r.floor
	}
	return w.hub.floorOf(name)
}

// noteMisses notes which clients' holds look for something. One that counts
// nothing has nothing to look for.
func (w *gripWorld) noteMisses() {
	for _, c := range w.clients {
		counts := !c.blind && slices.ContainsFunc(c.channels, func(name string) bool { return w.feed(name).counts })
		c.shook = c.shook || c.hold != nil && c.hold.state == recovering && (counts || w.hint || w.timed)
	}
}

// mayOvertake reports whether an item of a channel may go out before one that
// comes before it: where what it waits for does not come soon.
func (w *gripWorld) mayOvertake(f *feed) bool {
	if w.lose || w.mix || w.hint || w.tight || w.run > 1 {
		return true
	}
	for n := 1; n <= f.items; n++ {
		came := f.cameAt[n]
		switch {
		case came.IsZero():
			came = w.clock.at
		case n < f.first:
			return true
		}
		for m, before := range f.cameAt {
			if m > n && n > f.first && came.Sub(before) >= parkedTime {
				return true
			}
		}
	}
	return false
}

// checkAsk requires that the app is asked only for what the journal has not.
func (w *gripWorld) checkAsk(t *testing.T, key string) {
	target, fields, _ := strings.Cut(key, "\r\n")
	if strings.Contains(target, "paged") || w.hint || w.timed { // the next page, or asked for without a need
		return
	}
	has := true
	for line := range strings.SplitSeq(fields, "\r\n") {
		if told, ok := strings.CutPrefix(line, "Grip-Last: "); ok {
			name, last, _ := strings.Cut(told, "; last-id=")
			has = has && w.hasAllItems(name, last)
		}
	}
	if has {
		w.failf(t, "the app is asked %q, and the journal has all that follows", key)
	}
}

// hasAllItems reports whether the journal has all of a channel's items that
// follow one, and nothing else behind it.
func (w *gripWorld) hasAllItems(name, last string) bool {
	r := w.hub.journal.rooms[name]
	if r == nil || r.items == nil {
		return false
	}
	found, newest := false, ""
	for _, e := range r.ring {
		switch i := e.item; {
		case i == nil:
		case i.PrevID != nil && i.ID != nil && *i.PrevID == last:
			found, last, newest = true, *i.ID, *i.ID
		case found:
			return false
		default:
			newest = "another"
			if i.ID != nil {
				newest = *i.ID
			}
		}
	}
	return found || newest == last || newest == "" && r.items.known && r.items.last == last
}

// checkParked requires that no item waits for one that has come.
func (w *gripWorld) checkParked(t *testing.T) {
	for _, f := range w.feeds {
		r := w.hub.journal.rooms[f.name]
		if r == nil || r.items == nil {
			continue
		}
		for _, e := range r.items.parked {
			before := e.item.PrevID
			came := func(e *event) bool { return e.isItem() && e.item.ID != nil && *e.item.ID == *before }
			others := strings.HasPrefix(*e.item.ID, "x") // of which two may follow the same one
			if before == nil || !r.items.known || *before == r.items.last || !others && slices.ContainsFunc(r.ring, came) {
				w.failf(t, "%s %s waits, and what it waits for has come", f.name, *e.item.ID)
			}
		}
	}
}

// rest has everybody do what is to be done without time passing.
func (w *gripWorld) rest(t *testing.T) {
	for rounds, busy := 0, true; busy; rounds++ {
		if rounds == 1000 {
			w.failf(t, "it does not come to rest")
		}
		busy = false
		for _, l := range w.loops {
			for l.turn() || !l.sleep() {
				busy = true
			}
		}
		w.collect(t)
		for len(w.links) > 0 {
			busy = true
			w.goOnWith(t, w.links[0])
		}
		for _, c := range w.clients {
			if c.hold == nil || len(c.pipe.bytes) > 0 || c.pipe.closed {
				busy = true
				w.goOn(t, c)
				w.readLines(t, c, 1<<20)
			}
		}
	}
}

// settle ends all trouble, and lets everything come to rest. One more item of
// each channel then shows to everybody what they miss.
func (w *gripWorld) settle(t *testing.T) {
	w.quiet = true
	for len(w.late) > 0 {
		w.arrive(0)
	}
	w.rest(t)
	w.span(t, settleTime, 2*time.Second)
	if !w.lag && !w.delay && !w.double {
		w.checkCame(t)
	}
	for _, f := range w.feeds { // those that count come first
		w.publishNext(f)
		w.span(t, settleTime, 2*time.Second)
	}
	for _, c := range w.clients {
		switch {
		case c.hold == nil:
			w.failf(t, "%s: at rest it is not held", c.name)
		case c.hold.state != live:
			w.failf(t, "%s: at rest its hold is in state %d", c.name, c.hold.state)
		}
		for _, name := range c.channels {
			f := w.feed(name)
			switch {
			case f.counts && !c.blind:
				if c.last[name] != f.items {
					w.failf(t, "%s: at rest it has %s up to %d of %d", c.name, name, c.last[name], f.items)
				}
			case !slices.Contains(c.given[name], f.items) && !(f.counts && w.tight && w.double):
				w.failf(t, "%s: at rest it has not got %s %d", c.name, name, f.items)
			}
		}
	}
	w.checkCounts(t)
	asked, polled := w.follows+w.visits, w.polls
	w.span(t, time.Hour, 30*time.Second)
	if w.follows+w.visits > asked || w.polls-polled > len(w.clients)*int(time.Hour/gripPoll) {
		w.failf(t, "in an hour without items the app is asked %d times, and %d times as its links say", w.follows+w.visits-asked, w.polls-polled)
	}
	if smooth := !(w.lose || w.delay || w.double && w.end || w.mix || w.lag || w.hint || w.tight || w.troubles.pages > 0); smooth && w.follows > 0 {
		w.failf(t, "nothing is missing, and %d links are followed", w.follows)
	}
	w.cancel()
}

// settleTime is as long as anything may wait, and a little more.
const settleTime = parkedTime + missPause + missMost + 2*time.Second

// checkCame requires that clients have what has come to the hub: they need no
// further item to show them that they miss something.
func (w *gripWorld) checkCame(t *testing.T) {
	for _, c := range w.clients {
		for _, name := range c.channels {
			for n := range w.feed(name).cameAt {
				if !c.blind && c.last[name] < n {
					w.failf(t, "%s: at rest it has %s up to %d, and %d has come", c.name, name, c.last[name], n)
				}
			}
		}
	}
}

// span lets time pass in steps, and everybody do what is to be done.
func (w *gripWorld) span(t *testing.T, d, step time.Duration) {
	for ; d > 0; d -= step {
		w.pass(t, step)
		w.rest(t)
		w.checkParked(t)
	}
}

// Whatever is lost on the way, late, doubled, out of order or another's;
// however the app answers, and clients read, leave and come back: who stays has
// every item of the app's history once, in order, without holes.
func TestGrip_EveryHistoryIsWholeForWhoStays(t *testing.T) {
	t.Parallel()
	var all gripWorld
	seeds := *modelSeeds / 2 // its histories are the longest
	for seed := range uint64(seeds) {
		w := newGripWorld(seed)
		for range 300 {
			w.step(t)
			w.checkParked(t)
		}
		w.settle(t)
		for sum, n := range map[*int]int{&all.joins: w.joins, &all.deliveries: w.deliveries, &all.visits: w.visits, &all.follows: w.follows,
			&all.pages: w.pages, &all.fails: w.fails, &all.lost: w.lost, &all.slow: w.slow, &all.ends: w.ends, &all.restarts: w.restarts} {
			*sum += n
		}
	}
	t.Logf("%d seeds: %d visits, %d holds, %d items given, %d lost on the way, %d links followed, %d pages, %d failures of the app, %d holds ended, %d of them slow, %d restarts",
		seeds, all.visits, all.joins, all.deliveries, all.lost, all.follows, all.pages, all.fails, all.ends, all.slow, all.restarts)
	if all.follows > all.joins {
		t.Errorf("%d links are followed for %d holds: the app is asked too often", all.follows, all.joins)
	}
	for what, n := range map[string]int{"hold": all.joins, "item": all.deliveries, "loss": all.lost, "link": all.follows, "page": all.pages,
		"failure": all.fails, "slow end": all.slow, "restart": all.restarts} {
		if n == 0 {
			t.Errorf("not one %s in all histories: they prove little", what)
		}
	}
}
