package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Faults of all that is there at once: the app stands still, the machine has
// no room or no descriptor left, Holdfast is killed.

// trying has n clients try again and again, by turns POST and GET, until the
// returned function is called, which gives what they saw.
func (b *bench) trying(n int, post, get string) (end func() []try) {
	var mu sync.Mutex
	var all []try
	var clients sync.WaitGroup
	stop := make(chan struct{})
	for range n {
		clients.Go(func() {
			for turn := 0; ; turn++ {
				select {
				case <-stop:
					return
				default:
				}
				f := faultRow{method: "POST", path: post}
				if turn%2 == 1 {
					f = faultRow{method: "GET", path: get}
				}
				a := b.try(nextFault(), b.front.to, f)
				if a.saw == "refused" {
					poll()
				}
				mu.Lock()
				all = append(all, a)
				mu.Unlock()
			}
		})
	}
	return func() []try {
		close(stop)
		clients.Wait()
		b.tried = append(b.tried, all...)
		return all
	}
}

// row words what became of the tries, none of which saw anything else, and
// adds the line.
func (b *bench) row(order int, name string, all []try, zero, also string, may ...string) {
	b.Helper()
	var saw, ran, logged []string
	runs, lines := b.runs(), b.exchanges()
	for _, a := range all {
		saw = append(saw, a.saw)
		if !slices.Contains(may, a.saw) {
			b.tell("%s: its client saw %v, want %v", name, a, may)
		}
		ran = append(ran, [...]string{"nothing", "it once", "it twice"}[min(len(runs[a.id]), 2)])
		for _, line := range lines[a.id] {
			logged = append(logged, fmt.Sprint(line["end"]))
		}
	}
	if also != "" && len(logLines(b.T, b.c.log.String(), also)) == 0 {
		b.Errorf("%s: the log does not say %q", name, also)
	}
	b.table.add(order, name, tally(saw), tally(ran), tally(logged)+"; "+also, zero)
}

func faultsOfAnAppThatStandsStill(t *testing.T, table *faultTable) {
	b := startBench(t, table, strings.NewReplacer("abandon_limit: 3s", "abandon_limit: 60s", "queue_timeout: 60s}", "queue_timeout: 2s, response_timeout: 2s}").Replace(benchConfig))
	end := b.trying(12, "/upload", "/fast")
	healthy := len(b.runs())
	eventually(t, "traffic", func() bool { return len(b.runs()) > healthy+50 })
	b.signalGroup(syscall.SIGSTOP)
	// The fault is its length. Meanwhile Holdfast answers for itself.
	asked := 0
	for stands := time.After(10 * time.Second); ; asked++ {
		wantGet(t, onceClient(), "http://"+b.c.addr+"/health")
		select {
		case <-stands:
		default:
			poll()
			continue
		}
		break
	}
	if n := b.c.lanesOf(t)["web"].Abandoned; n != 6 {
		t.Errorf("%d slots of web are abandoned while the app stands still, want 6", n)
	}
	b.signalGroup(syscall.SIGCONT)
	before := len(b.runs())
	eventually(t, "traffic again", func() bool { return len(b.runs()) > before+50 })
	all := end()
	t.Logf("/health was answered %d times while the app stood still", asked+1)
	b.row(50, "the app stands still for ten seconds (SIGSTOP)", all, b.wantZero(), "request refused",
		"200", "504 upstream_timeout", "503 lane_timeout")
	b.wantLedger()
}

func faultsOfAFullSpool(t *testing.T, table *faultTable) {
	const size = 4 << 20
	b := startBench(t, table, strings.Replace(benchConfig, `spool: {dir: "%s"}}`, `memory: 1MiB, spool: {dir: "%s", bytes: 1MiB}}`, 1))
	body := bytes.Repeat([]byte("x"), size)
	all := make([]try, 8)
	b.atOnce(len(all), len(all), func(i int) {
		id := nextFault()
		all[i] = try{id: id, method: "POST", path: "/upload", saw: "cut"}
		request, _ := http.NewRequest("POST", "http://"+b.c.addr+"/upload", bytes.NewReader(body))
		request.Header.Set("X-Ledger-Id", id)
		request.Header.Set("X-Request-ID", id)
		response, err := onceClient().Do(request)
		if err != nil {
			return
		}
		defer response.Body.Close()
		answer, err := io.ReadAll(response.Body)
		if err == nil && strings.Contains(string(answer), `"body_bytes": `+strconv.Itoa(size)+",") {
			all[i].saw = strconv.Itoa(response.StatusCode)
		}
	})
	b.tried = append(b.tried, all...)
	var said string
	for _, line := range logLines(t, b.c.log.String(), "") {
		if text := fmt.Sprint(line["msg"]); strings.HasPrefix(text, "no room in memory or spool") {
			said = text
		}
	}
	if said == "" {
		t.Error("the log does not say that there is no room")
	}
	b.row(51, "memory and spool are full of uploads", all, b.wantZero(), "", "200")
	for _, a := range all {
		if n := len(b.runs()[a.id]); n != 1 {
			t.Errorf("%v ran %d times", a, n)
		}
	}
}

// leaveDescriptors lowers the process's limit so that it can open n more.
// What it returns puts the old limit back.
func (b *bench) leaveDescriptors(n int) (restore func()) {
	b.Helper()
	taken := make(map[int]bool)
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", b.c.Process.Pid))
	if err != nil {
		b.Fatal(err)
	}
	for _, entry := range entries {
		number, _ := strconv.Atoi(entry.Name())
		taken[number] = true
	}
	limit := uint64(0)
	for ; n >= 0; limit++ { // the first number that may not be used any more
		if !taken[int(limit)] {
			n--
		}
	}
	var old unix.Rlimit
	if err := unix.Prlimit(b.c.Process.Pid, unix.RLIMIT_NOFILE, nil, &old); err != nil {
		b.Fatal(err)
	}
	if err := unix.Prlimit(b.c.Process.Pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: limit - 1, Max: old.Max}, nil); err != nil {
		b.Fatal(err)
	}
	return func() {
		if err := unix.Prlimit(b.c.Process.Pid, unix.RLIMIT_NOFILE, &old, nil); err != nil {
			b.Error(err)
		}
	}
}

func faultsOfDescriptors(t *testing.T, table *faultTable) {
	b := startBench(t, table, strings.Replace(benchConfig, "park: 60s", "park: 60s, keepalive: off", 1))
	quiet := func() {
		eventually(t, "its connections to be closed", func() bool { return b.front.connections() == 0 && b.back.connections() == 0 })
		b.wantZero()
		eventually(t, "its connections to be closed", func() bool { return len(b.sockets()) == listening })
	}
	quiet()
	restore := b.leaveDescriptors(0)
	all := make([]try, 12)
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		b.atOnce(len(all), len(all), func(i int) { all[i] = b.try(nextFault(), b.front.addr, faultRow{method: "POST", path: "/upload"}) })
	}()
	b.c.eventuallySays(t, "no connection can be accepted")
	restore()
	<-answered
	b.tried = append(b.tried, all...)
	b.row(52, "no descriptor is left to accept with, for a moment", all, b.wantZero(), "no connection can be accepted", "200")

	quiet()
	restore = b.leaveDescriptors(1)
	all = b.oneByOne(12)
	restore()
	b.tried = append(b.tried, all...)
	b.row(53, "no descriptor is left to ask the app with", all, b.wantZero(), "request refused", "500 internal")
	for _, a := range all {
		if n := len(b.runs()[a.id]); n != 0 {
			t.Errorf("%v ran %d times", a, n)
		}
	}
	if n := len(logLines(t, b.c.log.String(), "target down")); n != 0 {
		t.Errorf("the target was said to be down %d times: it was not asked", n)
	}
	all = b.oneByOne(12)
	b.tried = append(b.tried, all...)
	b.row(54, "and there are descriptors again", all, b.wantZero(), "", "200")
	b.wantLedger()
}

// oneByOne makes n tries, straight to Holdfast.
func (b *bench) oneByOne(n int) (all []try) {
	b.Helper()
	for range n {
		a := b.try(nextFault(), b.c.addr, faultRow{method: "POST", path: "/upload"})
		if all = append(all, a); a.saw == silence {
			b.Fatal(a)
		}
	}
	return all
}

// sockets are the process's descriptors that are sockets.
func (b *bench) sockets() (names []string) {
	b.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", b.c.Process.Pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		b.Fatal(err)
	}
	for _, entry := range entries {
		if to, _ := os.Readlink(filepath.Join(dir, entry.Name())); strings.HasPrefix(to, "socket:") {
			names = append(names, to)
		}
	}
	return names
}

// listening is how many sockets the process listens on.
const listening = 3

func faultsOfAKilledHoldfast(t *testing.T, table *faultTable) {
	rounds := 3
	if os.Getenv("HOLDFAST_FULL") != "" {
		rounds = 20
	}
	a := startGunicorn(t, "-w", "1", "--threads", "8", "--keep-alive", "60")
	b := &bench{T: t, app: a, back: startFaulty(t, a.addr), spool: t.TempDir(), table: table}
	path := fixedConfig(t, benchConfig, b.back.addr, b.spool)
	b.c = startBinary(t, path)
	b.front = startFaulty(t, b.c.addr)
	b.warmUp("/upload")
	end := b.trying(8, "/upload", "/slow?ms=20")
	for range rounds {
		before := len(b.runs())
		eventually(t, "traffic", func() bool { return len(b.runs()) > before+60 })
		b.c.Process.Kill()
		<-b.c.ended
		b.c = startBinary(t, path)
	}
	before := len(b.runs())
	eventually(t, "traffic", func() bool { return len(b.runs()) > before+60 })
	all := end()
	cut := slices.ContainsFunc(all, func(a try) bool { return a.saw == "cut" })
	if !cut {
		t.Error("no request was cut by a kill: this shows nothing")
	}
	b.row(55, fmt.Sprintf("Holdfast is killed under load, %d times (kill -9)", rounds), all, b.wantZero(), "", "200", "cut", "refused", "502 upstream_error")
	b.wantLedger()
}

// fixedConfig is writeConfig with addresses that a second process listens on
// again.
func fixedConfig(t *testing.T, yaml string, values ...any) (path string) {
	t.Helper()
	path = writeConfig(t, yaml, values...)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		text = bytes.Replace(text, []byte(`"127.0.0.1:0"`), []byte(strconv.Quote(freeAddress(t))), 1)
	}
	replaceFile(t, path, string(text))
	return path
}
