package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// Faults of the app and of clients, one at each byte where bytes are what
// matters. Each has its line in the table that is logged in the end; faults
// that another test shows are named there with it.

// faultRow is one line: what goes wrong, for which requests, and what has to be
// seen of it.
type faultRow struct {
	name         string
	method, path string
	atClient     bool // the client's connection fails, not the app's
	tries        tries
	script       func(i int) []script
	// may are the words that the client of the i-th of n tries may see.
	may func(i, n int) []string
	// ran is how often its view may have run.
	ran func(i, n int) (least, most int)
	// ends are the words of the access log that say who ended it; "-" is no line.
	ends   []string
	before func(b *bench)
	// during is done while the tries wait, all at once.
	during func(b *bench, n int)
	// also is a line that the log must have, with its reason.
	also string
}

// tries is how often a fault is made.
type tries int

const (
	eachRequestByte tries = -1 // and behind the last
	eachAnswerByte  tries = -2
)

func (b *bench) count(f faultRow) int {
	b.Helper()
	if f.tries > 0 {
		return int(f.tries)
	}
	id, at := nextFault(), b.back
	if f.atClient {
		at = b.front
	}
	if got := b.try(id, b.front.addr, f); got.saw != "200" {
		b.Fatal("without a fault:", got)
	}
	n := at.lengths(id)[toApp]
	if f.tries == eachAnswerByte {
		n = at.lengths(id)[toClient]
	}
	if n < 100 {
		b.Fatalf("%d bytes passed: this shows nothing", n)
	}
	return n + 1
}

func always(words ...string) func(i, n int) []string {
	return func(int, int) []string { return words }
}

// unlessWhole: the last try fails behind the last byte.
func unlessWhole(whole []string, words ...string) func(i, n int) []string {
	return func(i, n int) []string {
		if i == n-1 {
			return whole
		}
		return words
	}
}

func runs(least, most int) func(i, n int) (int, int) {
	return func(int, int) (int, int) { return least, most }
}

func at(then ending, w way) func(i int) []script {
	return func(i int) []script { return []script{{then: then, way: w, at: i}} }
}

// play makes a fault and adds its line.
func (b *bench) play(order int, f faultRow) {
	b.Helper()
	n := b.count(f)
	proxy := b.back
	if f.atClient {
		proxy = b.front
	}
	b.told.Store(0)
	if f.before != nil {
		f.before(b)
	}
	since := len(logLines(b.T, b.c.log.String(), ""))
	all := make([]try, n)
	width := 6
	if f.during != nil {
		width = n
	}
	ended, hung := make(chan struct{}), atomic.Bool{} // one is enough to see that
	go func() {
		defer close(ended)
		b.atOnce(n, width, func(i int) {
			id := nextFault()
			if f.script != nil {
				proxy.play(id, f.script(i)...)
			}
			if all[i].saw = silence; !hung.Load() {
				all[i] = b.try(id, b.front.addr, f)
				hung.CompareAndSwap(false, all[i].saw == silence)
			}
		})
	}()
	if f.during != nil {
		f.during(b, n)
	}
	<-ended
	b.tried = append(b.tried, all...)
	zero := b.wantZero()
	b.table.add(order, f.name, b.wantSeen(f, all), b.wantRan(f, all), b.wantLogged(f, all, since), zero)
}

// tell is Errorf for the first of a fault's tries that went wrong: as a rule
// all of them did.
func (b *bench) tell(format string, args ...any) {
	b.Helper()
	if b.told.Add(1) <= 5 {
		b.Errorf(format, args...)
	}
}

func (b *bench) wantSeen(f faultRow, all []try) string {
	b.Helper()
	var words []string
	for i, a := range all {
		words = append(words, a.saw)
		if may := f.may(i, len(all)); !slices.Contains(may, a.saw) {
			b.tell("%s: at %d of %d its client saw %v, want %v", f.name, i, len(all)-1, a, may)
		}
	}
	return tally(words)
}

func (b *bench) wantRan(f faultRow, all []try) string {
	b.Helper()
	ran := b.runs()
	var words []string
	for i, a := range all {
		n := len(ran[a.id])
		words = append(words, [...]string{"nothing", "it once", "it twice", "it three times"}[min(n, 3)])
		if least, most := f.ran(i, len(all)); n < least || n > most {
			b.tell("%s: at %d of %d the view ran %d times, want %d to %d: %v", f.name, i, len(all)-1, n, least, most, a)
		}
	}
	return tally(words)
}

// wantLogged: one line for each exchange, which says what the client saw and
// who ended it, and the line that the fault itself has to have.
func (b *bench) wantLogged(f faultRow, all []try, since int) string {
	b.Helper()
	var words []string
	lines := b.exchanges()
	for i, a := range all {
		end := "-"
		if len(lines[a.id]) > 0 {
			end, _ = lines[a.id][0]["end"].(string)
		}
		words = append(words, end)
		if len(lines[a.id]) > 1 || !slices.Contains(f.ends, end) {
			b.tell("%s: at %d of %d the log has %v, want one line that ends as %v: %v", f.name, i, len(all)-1, lines[a.id], f.ends, a)
		}
		if a.saw != "cut" && end != "-" && !strings.HasPrefix(a.saw, fmt.Sprint(lines[a.id][0]["status"])) {
			b.tell("%s: the log says %v: %v", f.name, lines[a.id][0]["status"], a)
		}
	}
	if f.also == "" {
		return tally(words)
	}
	for _, line := range logLines(b.T, b.c.log.String(), "")[since:] {
		text := fmt.Sprint(line["msg"])
		if reason, ok := line["reason"].(string); ok {
			text += " " + reason
		}
		if text == f.also {
			return tally(words) + "; " + f.also
		}
	}
	b.Errorf("%s: the log does not say %q", f.name, f.also)
	return tally(words)
}

const noAnswer, noUse = "502 upstream_error", "request refused upstream_error"

// appFaults are those of the app, in the order in which they are made.
var appFaults = []faultRow{
	{name: "the app trickles, and is trickled to", method: "POST", path: "/upload", tries: 12, script: byteByByte,
		may: always("200"), ran: runs(1, 1), ends: []string{"done"}},
	{name: "POST: the app resets at each byte of it", method: "POST", path: "/upload", tries: eachRequestByte, script: at(resets, toApp),
		may: always(noAnswer), ran: runs(0, 1), ends: []string{"upstream_running"}, also: noUse},
	{name: "GET: the same", method: "GET", path: "/fast", tries: eachRequestByte, script: at(resets, toApp),
		may: always("200"), ran: runs(1, 2), ends: []string{"done"}},
	{name: "POST: the app resets at each byte of the answer", method: "POST", path: "/upload", tries: eachAnswerByte, script: at(resets, toClient),
		may: unlessWhole([]string{"200"}, noAnswer, "cut"), ran: runs(1, 1), ends: []string{"upstream_running", "upstream_answering", "done"}, also: noUse},
	{name: "GET: the same", method: "GET", path: "/fast", tries: eachAnswerByte, script: at(resets, toClient), may: sentAgainAtFirst,
		ran: twiceAtFirst, ends: []string{"upstream_running", "upstream_answering", "done"}, also: noUse},
	{name: "POST: the app half-closes at each byte of it", method: "POST", path: "/upload", tries: eachAnswerByte, script: at(closes, toClient),
		may: unlessWhole([]string{"200"}, noAnswer, "cut"), ran: runs(1, 1), ends: []string{"upstream_running", "upstream_answering", "done"}, also: noUse},
	{name: "GET: the same", method: "GET", path: "/fast", tries: eachAnswerByte, script: at(closes, toClient), may: sentAgainAtFirst,
		ran: twiceAtFirst, ends: []string{"upstream_running", "upstream_answering", "done"}, also: noUse},
	{name: "GET: the app resets at each byte of chunks", method: "GET", path: "/stream?n=3&ms=0", tries: eachAnswerByte, script: at(resets, toClient),
		may: sentAgainAtFirst, ran: twiceAtFirst, ends: []string{"upstream_running", "upstream_answering", "done"}, also: noUse},
	{name: "GET: the app half-closes at each byte of chunks", method: "GET", path: "/stream?n=3&ms=0", tries: eachAnswerByte, script: at(closes, toClient),
		may: sentAgainAtFirst, ran: twiceAtFirst, ends: []string{"upstream_running", "upstream_answering", "done"}, also: noUse},
	{name: "stream lane, POST: the app resets at each byte of it", method: "POST", path: "/one/echo", tries: eachRequestByte, script: at(resets, toApp),
		may: always(noAnswer), ran: runs(0, 1), ends: []string{"upstream_body", "upstream_running"}, also: noUse},
	{name: "stream lane, POST: the app resets at each byte of the answer", method: "POST", path: "/one/echo", tries: eachAnswerByte, script: at(resets, toClient),
		may: unlessWhole([]string{"200"}, noAnswer, "cut"), ran: runs(1, 1), ends: []string{"upstream_running", "upstream_answering", "done"}, also: noUse},
	{name: "stream lane, POST: the app half-closes at each byte of it", method: "POST", path: "/one/echo", tries: eachAnswerByte, script: at(closes, toClient),
		may: unlessWhole([]string{"200"}, noAnswer, "cut"), ran: runs(1, 1), ends: []string{"upstream_running", "upstream_answering", "done"}, also: noUse},
	{name: "the app refuses connections, and is back", method: "POST", path: "/upload", tries: 24,
		before: func(b *bench) { b.back.refuse(); b.back.cut() },
		during: func(b *bench, n int) {
			eventually(b.T, "all to wait", func() bool { return b.c.lanesOf(b.T)["web"].Waiting == n })
			b.back.accept()
		},
		may: always("200"), ran: runs(1, 1), ends: []string{"done"}, also: "target down"},
	{name: "the app accepts and reads nothing", method: "POST", path: "/one/upload", tries: 2, script: hang(toApp, 0), during: besideHung,
		may: always("504 upstream_timeout"), ran: runs(0, 0), ends: []string{"upstream_running"}, also: "request refused upstream_timeout"},
	{name: "the app hangs in the request, then resets", method: "POST", path: "/one/upload", tries: 2, script: hang(toApp, 150),
		during: func(b *bench, n int) { besideHung(b, n); b.back.cut() },
		may:    always("504 upstream_timeout"), ran: runs(0, 1), ends: []string{"upstream_running"}, also: "request refused upstream_timeout"},
	{name: "the app hangs before it answers, then does", method: "POST", path: "/one/upload", tries: 2, script: hang(toClient, 0),
		during: func(b *bench, n int) { besideHung(b, n); b.back.letGo() },
		may:    always("504 upstream_timeout"), ran: runs(1, 1), ends: []string{"upstream_running"}, also: "request refused upstream_timeout"},
	{name: "the app hangs in the answer's body", method: "GET", path: "/one/big?bytes=1000", tries: 2, script: hang(toClient, 800),
		during: besideHung,
		may:    always("cut"), ran: runs(1, 1), ends: []string{"upstream_answering"}, also: "answer cut short"},
}

// sentAgainAtFirst: a GET of which no byte of answer came is sent again.
func sentAgainAtFirst(i, n int) []string {
	if i == 0 || i == n-1 {
		return []string{"200"}
	}
	return []string{noAnswer, "cut"}
}

func twiceAtFirst(i, n int) (int, int) { return 1 + oneIf(i == 0), 1 + oneIf(i == 0) }

func byteByByte(int) []script { return []script{{trickles: true}} }

func hang(w way, at int) func(int) []script {
	return func(int) []script { return []script{{then: hangs, way: w, at: at}} }
}

// besideHung waits until n slots are abandoned: the other lane does not mind.
func besideHung(b *bench, n int) {
	b.Helper()
	eventually(b.T, "the slots to be abandoned", func() bool { return b.c.lanesOf(b.T)["short"].Abandoned == n })
	b.each(24, func(int) {
		a := b.try(nextFault(), b.front.addr, faultRow{method: "POST", path: "/upload"})
		if a.saw != "200" {
			b.Error("beside a hung lane:", a)
		}
	})
}

func oneIf(is bool) int {
	if is {
		return 1
	}
	return 0
}

// clientFaults are those of clients.
var clientFaults = []faultRow{
	{name: "a client trickles, and is trickled to", atClient: true, method: "POST", path: "/upload", tries: 12, script: byteByByte,
		may: always("200"), ran: runs(1, 1), ends: []string{"done"}},
	{name: "a client resets at each byte of its POST", atClient: true, method: "POST", path: "/upload", tries: eachRequestByte, script: at(resets, toApp),
		may: always("cut"), ran: func(i, n int) (int, int) { return 0, oneIf(i == n-1) }, ends: []string{"-", "client_body", "client_running", "client_answering", "done"}},
	{name: "a client resets at each byte of the answer", atClient: true, method: "POST", path: "/upload", tries: eachAnswerByte, script: at(resets, toClient),
		may: unlessWhole([]string{"200"}, "cut"), ran: runs(1, 1), ends: []string{"client_answering", "done"}},
	{name: "a client half-closes at each byte of its POST", atClient: true, method: "POST", path: "/upload", tries: eachRequestByte, script: at(closes, toApp),
		may: unlessWhole([]string{"200"}, "400 bad_request", "cut"), ran: func(i, n int) (int, int) { return oneIf(i == n-1), oneIf(i == n-1) }, ends: []string{"-", "holdfast_body", "done"}},
	{name: "stream lane: a client resets at each byte of its POST", atClient: true, method: "POST", path: "/one/echo", tries: eachRequestByte, script: at(resets, toApp),
		may: always("cut"), ran: runs(0, 1), ends: []string{"-", "client_body", "client_running", "client_answering", "done"}},
	{name: "stream lane: a client resets at each byte of the answer", atClient: true, method: "POST", path: "/one/echo", tries: eachAnswerByte, script: at(resets, toClient),
		may: unlessWhole([]string{"200"}, "cut"), ran: runs(1, 1), ends: []string{"client_answering", "done"}},
	{name: "a client hangs in its POST", atClient: true, method: "POST", path: "/upload", tries: 24,
		script: func(i int) []script { return []script{{then: hangs, way: toApp, at: 1 + 6*i}} }, during: func(*bench, int) {},
		may: func(i, n int) []string {
			if 1+6*i < len(requestOf("fault-000000", "POST", "/upload"))-len(faultBody) {
				return []string{"cut"}
			}
			return []string{"408 body_timeout"}
		},
		ran: runs(0, 0), ends: []string{"-", "holdfast_body"}},
	{name: "a client hangs in a large answer", atClient: true, method: "GET", path: "/big?bytes=16777216", tries: 4, script: hang(toClient, 1000),
		during: func(b *bench, n int) {
			eventually(b.T, "the rest in the spool", func() bool { return metric(b.T, b.c.admin(b.T), "holdfast_spool_bytes") > 1<<20 })
			eventually(b.T, "the slots to be free", func() bool { return b.c.lanesOf(b.T)["web"].InUse == 0 })
			eventually(b.T, "the clients to be cut", func() bool { return metric(b.T, b.c.admin(b.T), "holdfast_spool_bytes") == 0 })
			b.front.cut()
		},
		may: always("cut"), ran: runs(1, 1), ends: []string{"client_answering"}},
	// The answer comes in pieces: its reading is interrupted, not its writing.
	{name: "a client resets between two pieces of an answer", atClient: true, method: "GET", path: "/stream?n=20&ms=50", tries: 6,
		script: func(int) []script { return []script{{then: resets, way: toClient, at: 260}} },
		may:    always("cut"), ran: runs(1, 1), ends: []string{"client_answering"}},
}

func TestFaults_EachIsToldLosesNothingAndLeavesNothing(t *testing.T) {
	table := new(faultTable)
	for name, bench := range map[string]func(*testing.T, *faultTable){
		"App": faultsOfTheApp, "Client": faultsOfClients, "StandsStill": faultsOfAnAppThatStandsStill,
		"Spool": faultsOfAFullSpool, "Descriptors": faultsOfDescriptors, "Killed": faultsOfAKilledHoldfast,
		"Events": faultsUnderEvents, "KilledUnderEvents": faultsOfAKilledHub,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bench(t, table)
		})
	}
	t.Cleanup(func() {
		for i, other := range elsewhere {
			table.add(100+i, other.fault, "see "+other.test)
		}
		t.Log("\n" + table.String())
	})
}

// inTurns makes the faults, five times where there is time: what the first
// turns leave behind, the others make more of.
func (b *bench) inTurns(order int, faults []faultRow) {
	turns := 1
	if os.Getenv("HOLDFAST_FULL") != "" {
		turns = 5
	}
	for turn := range turns {
		if turn == 2 {
			b.settled, b.base = true, b.measure()
		}
		for i, f := range faults {
			b.play(order+i, f)
		}
	}
}

func faultsOfTheApp(t *testing.T, table *faultTable) {
	b := startBench(t, table, benchConfig)
	b.inTurns(0, appFaults)
	b.wantLedger()
}

func faultsOfClients(t *testing.T, table *faultTable) {
	b := startBench(t, table, benchConfig)
	b.inTurns(30, clientFaults)
	b.wantLedger()
}
