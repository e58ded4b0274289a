package main

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
)

// Events at clients whose connections fail, whose view's answer fails, and
// whose Holdfast is killed: each comes once and in order, or a gap is told.

const faultHolds = `
upstreams: {app: {targets: ["http://%s"], concurrency: 8, park: 60s}}
lanes: {web: {upstream: app, slots: 6, queue_timeout: 60s}}
routes: [{match: "/", lane: web}]
limits: {spool: {dir: "%s"}}
holds: {heartbeat: 0, journal: {events: 10000}}
log: {access: true}
`

// startEvents is startBench before the app of sockets and polls.
func startEvents(t *testing.T, table *faultTable) (b *bench, restart func()) {
	t.Helper()
	a := newSocketsApp(t, flaskThreads)
	b = &bench{T: t, app: a.app, back: startFaulty(t, a.addr), spool: t.TempDir(), table: table}
	path := fixedConfig(t, faultHolds, b.back.addr, b.spool)
	b.c = runBinary(t, path)
	b.front = startFaulty(t, b.c.addr)
	b.front.tunnels = true
	b.c.serveWith(t, a)
	b.warmUp("/slow?ms=0")
	return b, func() { b.c = startBinary(t, path) }
}

// namedBy are the fields that name a request in the ledger and in the log.
func namedBy(id string) string { return "X-Ledger-Id: " + id + "\r\nX-Request-ID: " + id + "\r\n" }

// faultsUnderEvents cuts clients at each byte of what they follow, and the app
// at each byte of the answer that holds them.
func faultsUnderEvents(t *testing.T, table *faultTable) {
	b, _ := startEvents(t, table)
	from := string(wantGet(t, onceClient(), "http://"+b.c.addr+"/page"))
	p := newPublished()
	for range 5 {
		if n, taken := p.publish(b.c.publishAddr(t)); !taken {
			t.Fatal("not published:", n)
		}
	}
	p.last.Store(4)
	for i, kind := range kinds {
		id := nextFault()
		r := newResumer(kind.once, p, from)
		kind.once(r, b.front.addr, namedBy(id))
		if _, err := r.check(); err != nil {
			t.Fatal("without a fault:", err)
		}
		n := b.front.lengths(id)[toClient]
		if kind.name == "poll" { // the first of five answers
			n = n * 11 / 10
		}
		if n < 200 {
			t.Fatalf("%s: %d bytes passed: this shows nothing", kind.name, n)
		}
		ids, cut := make([]string, n+1), atomic.Int64{}
		b.each(n+1, func(i int) {
			ids[i] = nextFault()
			b.front.play(ids[i], script{then: resets, way: toClient, at: i})
			r := newResumer(kind.once, p, from)
			kind.once(r, b.front.addr, namedBy(ids[i]))
			if !r.done() {
				cut.Add(1)
			}
			r.follow(b.c.addr)
			if gaps, err := r.check(); err != nil || gaps > 0 {
				b.tell("%s cut at %d of %d: %v, %d gaps: %v", kind.name, i, n, err, gaps, r.got)
			}
		})
		if int(cut.Load()) < n/2 {
			t.Errorf("%s: %d of %d were cut: this shows nothing", kind.name, cut.Load(), n)
		}
		b.table.add(60+i, "a client of a "+kind.name+" resets at each byte", fmt.Sprintf("5 events each, once x%d; no gap", n+1),
			fmt.Sprintf("its view x%d", b.viewsOf(ids)), fmt.Sprintf("held x%d", b.endsOf(ids, "held")), b.wantZero())
	}
	b.cutHoldAnswers()
	b.play(66, faultRow{name: "the app resets at each byte of a poll's answer", method: "GET", path: "/poll?timeout=1&body=of+the+view", tries: eachAnswerByte,
		script: at(resets, toClient), ran: twiceAtFirst, ends: []string{"held", "upstream_running", "holdfast_running"},
		may: func(i, n int) []string {
			if i == 0 || i == n-1 {
				return []string{"200"}
			}
			return []string{noAnswer, "502 bad_hold"}
		}})
	b.tried = nil
}

func (b *bench) viewsOf(ids []string) (n int) {
	runs := b.runs()
	for _, id := range ids {
		n += len(runs[id])
	}
	return n
}

// openStream opens a stream and words what came: held, or what else.
func (b *bench) openStream(id string) string {
	f, err := dialEvents(b.c.addr, "/events", eventSource+namedBy(id))
	if err != nil {
		return "cut"
	}
	defer f.Close()
	if reason := f.response.Header.Get("Holdfast-Reason"); reason != "" {
		return strconv.Itoa(f.response.StatusCode) + " " + reason
	}
	if err := f.open(); err != nil {
		return err.Error()
	}
	return "held"
}

func (b *bench) endsOf(ids []string, end string) (n int) {
	lines := b.exchanges()
	for _, id := range ids {
		for _, line := range lines[id] {
			n += oneIf(line["end"] == end)
		}
	}
	return n
}

func (b *bench) cutHoldAnswers() {
	b.Helper()
	id := nextFault()
	if got := b.openStream(id); got != "held" {
		b.Fatal("without a fault:", got)
	}
	n := b.back.lengths(id)[toClient]
	for order, then := range map[int]ending{63: resets, 64: closes} {
		all := make([]try, n+1)
		b.each(n+1, func(i int) {
			id := nextFault()
			b.back.play(id, script{then: then, way: toClient, at: i})
			all[i] = try{id: id, method: "GET", path: "/events", saw: b.openStream(id)}
			if held := all[i].saw == "held"; held != (i == 0 || i == n) {
				b.tell("an answer that holds, cut at %d of %d: %s", i, n, all[i].saw)
			}
		})
		name := map[ending]string{resets: "resets", closes: "half-closes"}[then]
		b.row(order, "the app "+name+" at each byte of an answer that holds", all, b.wantZero(), "",
			"held", "200 upstream_error", "502 bad_hold")
	}
}

// faultsOfAKilledHub kills Holdfast under clients of every kind while events
// are published.
func faultsOfAKilledHub(t *testing.T, table *faultTable) {
	rounds := 3
	if os.Getenv("HOLDFAST_FULL") != "" {
		rounds = 20
	}
	b, restart := startEvents(t, table)
	addr, publish := b.c.addr, b.c.publishAddr(t)
	from := string(wantGet(t, onceClient(), "http://"+addr+"/page"))
	p := newPublished()
	var all []*resumer
	var clients, publisher sync.WaitGroup
	for i := range 12 {
		r := newResumer(kinds[i%len(kinds)].once, p, from)
		all = append(all, r)
		clients.Go(func() { r.follow(addr) })
	}
	stop := make(chan struct{})
	publisher.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				p.publish(publish)
				poll()
			}
		}
	})
	everyoneGets := func(more int64) {
		p.mu.Lock()
		mark := int64(p.next) + more
		p.mu.Unlock()
		eventually(t, "everyone to get more events", func() bool {
			for _, r := range all {
				if r.seen.Load() < mark {
					return false
				}
			}
			return true
		})
	}
	for range rounds {
		everyoneGets(20)
		b.c.Process.Kill()
		<-b.c.ended
		restart()
	}
	everyoneGets(20)
	close(stop)
	publisher.Wait()
	p.last.Store(int64(p.next))
	if n, taken := p.publish(publish); !taken {
		t.Fatal("not published:", n)
	}
	clients.Wait()
	events, told := 0, 0
	for i, r := range all {
		gaps, err := r.check()
		if err != nil {
			t.Errorf("client %d, a %s: %v", i, kinds[i%len(kinds)].name, err)
		}
		if gaps < rounds {
			t.Errorf("client %d, a %s: %d gaps told of %d kills", i, kinds[i%len(kinds)].name, gaps, rounds)
		}
		events += len(r.got) - gaps
		told += gaps
	}
	taken := 0
	for _, ok := range p.taken {
		taken += oneIf(ok)
	}
	b.table.add(65, fmt.Sprintf("Holdfast is killed under clients, %d times (kill -9)", rounds), fmt.Sprintf("%d events, once or a gap (%d)", events, told),
		"their views anew", fmt.Sprintf("%d of %d calls of publish were taken", taken, p.next), b.wantZero())
}
