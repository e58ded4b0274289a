package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// The fault bench: the built binary between two faulty proxies, gunicorn behind
// them, and what is seen of each try on all sides.

// bench is one Holdfast with its app.
type bench struct {
	*testing.T
	app   *app
	back  *faulty // between Holdfast and the app
	front *faulty // between clients and Holdfast
	c     *command
	spool string // the folder
	table *faultTable

	base sizes
	// settled: base was measured when thousands of faults had been made.
	settled bool
	tried   []try        // of all faults
	told    atomic.Int64 // errors of the present fault
}

// faultTable is what is printed in the end: of each fault what the client saw,
// what the app saw, what is logged, and what is back to zero.
type faultTable struct {
	mu   sync.Mutex
	rows map[int][]string
}

func (f *faultTable) add(order int, cells ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.rows == nil {
		f.rows = map[int][]string{-1: {"fault", "client saw", "app saw", "logged", "back to zero"}}
	}
	f.rows[order] = cells
}

func (f *faultTable) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var widths [5]int
	for _, cells := range f.rows {
		for i, cell := range cells {
			widths[i] = max(widths[i], len(cell))
		}
	}
	var text strings.Builder
	for _, order := range slices.Sorted(maps.Keys(f.rows)) {
		for i, cell := range f.rows[order] {
			fmt.Fprintf(&text, "%-*s", widths[i]+3, cell)
		}
		text.WriteByte('\n')
	}
	return text.String()
}

const benchConfig = `
upstreams: {app: {targets: ["http://%s"], concurrency: 8, park: 60s, abandon_limit: 3s}}
lanes:
  web:   {upstream: app, slots: 6, queue_timeout: 60s}
  short: {upstream: app, slots: 2, queue_timeout: 60s, response_timeout: 500ms}
  live:  {upstream: app, kind: stream, slots: 200}
routes:
  - {match: "/one/echo", lane: live}
  - {match: "/one/", lane: short}
  - {match: "/", lane: web}
limits: {header_timeout: 2s, body_timeout: 2s, spool: {dir: "%s"}}
log: {access: true}
`

// startBench starts it, and warms it up: what is kept for later use, pools,
// connections, is not counted as left behind.
func startBench(t *testing.T, table *faultTable, config string) *bench {
	t.Helper()
	a := startGunicorn(t, "-w", "1", "--threads", "8", "--keep-alive", "60")
	b := &bench{T: t, app: a, back: startFaulty(t, a.addr), spool: t.TempDir(), table: table}
	b.c = startBinary(t, writeConfig(t, config, b.back.addr, b.spool))
	b.front = startFaulty(t, b.c.addr)
	b.warmUp("/upload")
	return b
}

// warmUp serves a crowd, and measures what is there behind it.
func (b *bench) warmUp(path string) {
	b.Helper()
	b.atOnce(400, 48, func(int) {
		if got := b.try(nextFault(), b.front.addr, faultRow{method: "POST", path: path}); got.saw != "200" {
			b.Error("before any fault:", got)
		}
	})
	b.base = b.measure()
}

var faultIDs atomic.Uint64

// nextFault is a request's id, which are all of one length.
func nextFault() string { return fmt.Sprintf("fault-%06d", faultIDs.Add(1)) }

// each does it for 0 to n-1, as many at a time as the larger lane has slots.
func (b *bench) each(n int, do func(i int)) { b.atOnce(n, 6, do) }

func (b *bench) atOnce(n, width int, do func(i int)) {
	var next atomic.Int64
	var workers sync.WaitGroup
	for range width {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	workers.Wait()
}

// try is one request and what its client saw.
type try struct {
	id, method, path string
	saw              string // a status with its reason, cut, or refused
}

func (a try) String() string { return fmt.Sprintf("%s %s %s: %s", a.method, a.path, a.id, a.saw) }

// answered: whole, and with success.
func (a try) answered() bool { return strings.HasPrefix(a.saw, "2") }

// faultBody is what each POST brings.
const faultBody = "forty-eight bytes that the app reads to the end."

// requestOf is a try's request, byte for byte.
func requestOf(id, method, path string) string {
	text := method + " " + path + " HTTP/1.1\r\nHost: localhost\r\n" + namedBy(id)
	if method == "POST" {
		return text + "Content-Length: " + strconv.Itoa(len(faultBody)) + "\r\n\r\n" + faultBody
	}
	return text + "\r\n"
}

// silence is what a client sees whose request nobody ends.
const silence = "no end for half a minute"

// try makes the request on a connection of its own and reads the whole answer.
func (b *bench) try(id, addr string, f faultRow) (a try) {
	a = try{id: id, method: f.method, path: f.path}
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		a.saw = "refused"
		return a
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	io.WriteString(conn, requestOf(id, f.method, f.path))
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err == nil {
		_, err = io.Copy(io.Discard, response.Body)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		a.saw = silence
	} else if err != nil {
		a.saw = "cut"
	} else {
		a.saw = strings.TrimSpace(strconv.Itoa(response.StatusCode) + " " + response.Header.Get("Holdfast-Reason"))
	}
	return a
}

// exchanges are the access log's lines of these requests, by their ids.
func (b *bench) exchanges() map[string][]map[string]any {
	lines := make(map[string][]map[string]any)
	for _, line := range logLines(b.T, b.c.log.String(), "exchange") {
		id, _ := line["request_id"].(string)
		lines[id] = append(lines[id], line)
	}
	return lines
}

// tally counts words: "200 x12, cut".
func tally(words []string) string {
	counts := make(map[string]int)
	for _, word := range words {
		counts[word]++
	}
	var parts []string
	for _, word := range slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(counts[b]-counts[a], strings.Compare(a, b))
	}) {
		if parts = append(parts, word); counts[word] > 1 {
			parts[len(parts)-1] += " x" + strconv.Itoa(counts[word])
		}
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}

// sizes is what a process holds.
type sizes struct {
	descriptors, goroutines int
	heap, resident          int64 // KiB
}

func (s sizes) String() string {
	return fmt.Sprintf("%d fds, %d goroutines, %d KiB live, %d KiB resident", s.descriptors, s.goroutines, s.heap, s.resident)
}

var heapAlloc = regexp.MustCompile(`# HeapAlloc = (\d+)`)

// measure collects garbage first, twice, since pools outlive one time.
func (b *bench) measure() sizes {
	b.Helper()
	var heap int64
	for range 2 {
		body := wantGet(b.T, onceClient(), "http://"+b.c.admin(b.T)+"/debug/pprof/heap?gc=1&debug=1")
		found := heapAlloc.FindSubmatch(body)
		if found == nil {
			b.Fatalf("no heap profile: %.200s", body)
		}
		n, _ := strconv.ParseInt(string(found[1]), 10, 64)
		heap = n >> 10
	}
	return sizes{b.c.descriptors(b.T), b.goroutines(), heap, b.c.memoryKiB(b.T, "VmRSS")}
}

// temporary names the process's files that have no name, and those in the spool's folder.
func (b *bench) temporary() (names []string) {
	b.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", b.c.Process.Pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		b.Fatal(err)
	}
	for _, entry := range entries {
		if to, _ := os.Readlink(filepath.Join(dir, entry.Name())); strings.Contains(to, "(deleted)") {
			names = append(names, to)
		}
	}
	spooled, err := os.ReadDir(b.spool)
	if err != nil {
		b.Fatal(err)
	}
	for _, file := range spooled {
		names = append(names, file.Name())
	}
	return names
}

// What Holdfast keeps for its next requests: a connection at each slot, and in
// its pools what is small change beside ten percent of a process in use. In
// its first minute the collector takes some megabytes as it sees fit.
const (
	descriptorsLeft = 14
	goroutinesLeft  = 4
	heapLeft        = 768     // KiB
	residentLeft    = 4 << 10 // KiB
)

// grown: now is more than there was before the faults.
func (b *bench) grown(now sizes) bool {
	resident := b.base.resident / 10
	if !b.settled {
		resident = max(resident, residentLeft)
	}
	return now.descriptors > b.base.descriptors+descriptorsLeft || now.goroutines > b.base.goroutines+goroutinesLeft ||
		now.heap > b.base.heap+max(b.base.heap/10, heapLeft) || now.resident > b.base.resident+resident
}

// wantZero waits until nothing of a fault is left, and words what there is.
func (b *bench) wantZero() string {
	b.Helper()
	admin := b.c.admin(b.T)
	eventuallyQuiet(b.T, admin)
	eventuallyHolds(b.T, b.c.addr, holdsShown{})
	eventually(b.T, "no file and no body left", func() bool {
		return len(b.temporary()) == 0 && metric(b.T, admin, "holdfast_memory_bytes") == 0 &&
			metric(b.T, admin, "holdfast_spool_bytes") == 0
	})
	now := b.measure()
	for end := time.Now().Add(30 * time.Second); b.grown(now) && time.Now().Before(end); now = b.measure() {
		poll()
	}
	if b.grown(now) {
		b.Errorf("%v, before any fault %v: not given back\n%s", now, b.base, b.profile())
		return "NO: " + now.String()
	}
	return fmt.Sprintf("all; fds %+d, goroutines %+d, heap %+d KiB, resident %+d KiB", now.descriptors-b.base.descriptors,
		now.goroutines-b.base.goroutines, now.heap-b.base.heap, now.resident-b.base.resident)
}

// profile are the process's goroutines, as text.
func (b *bench) profile() string {
	b.Helper()
	return string(wantGet(b.T, onceClient(), "http://"+b.c.admin(b.T)+"/debug/pprof/goroutine?debug=1"))
}

var goroutineGroup = regexp.MustCompile(`(?m)^(\d+) @ `)

// goroutines counts them without fasthttp's, which wait ten seconds for
// another connection.
func (b *bench) goroutines() (n int) {
	b.Helper()
	for group := range strings.SplitSeq(b.profile(), "\n\n") {
		if strings.Contains(group, "fasthttp.(*workerPool).workerFunc") && !strings.Contains(group, "holdfast/") {
			continue
		}
		if found := goroutineGroup.FindStringSubmatch(group); found != nil {
			of, _ := strconv.Atoi(found[1])
			n += of
		}
	}
	if n == 0 {
		b.Fatal("no goroutine profile")
	}
	return n
}

// wantLedger: of all that was tried no POST ran twice, and none that was
// answered with success is missing.
func (b *bench) wantLedger() {
	b.Helper()
	runs := b.runs()
	posts, answered := 0, 0
	for _, a := range b.tried {
		n := len(runs[a.id])
		if a.method == http.MethodPost {
			posts++
			if n > 1 {
				b.Errorf("%v ran %d times", a, n)
			}
		}
		if a.answered() {
			answered++
			if n == 0 || runs[a.id][n-1].end == 0 {
				b.Errorf("%v is not in the ledger", a)
			}
		}
	}
	if posts < 20 || answered < 10 {
		b.Errorf("%d POSTs, %d answers: this shows nothing", posts, answered)
	}
	b.Logf("%d tries, %d of them POSTs: none ran twice; none of the %d answered with success is missing", len(b.tried), posts, answered)
}

// runs are the app's views, by the ids of their requests.
func (b *bench) runs() map[string][]*view {
	runs := make(map[string][]*view)
	for _, v := range b.app.views() {
		runs[v.ID] = append(runs[v.ID], v)
	}
	return runs
}

// signalGroup is for faults of the app's own processes.
func (b *bench) signalGroup(s syscall.Signal) { syscall.Kill(-b.app.cmd.Process.Pid, s) }
