package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// What some clients do must not take anything from the others: the built
// binary at its defaults, clients that do their worst, and others meanwhile.
// Every request of the others must be answered; how long that took is told
// beside the same requests without the attack, and held to nothing.

// starvingLanes has nothing that is not a default, but for names.
const starvingLanes = `
upstreams: {app: {targets: ["http://%s"]}}
lanes: {web: {upstream: app, slots: 8}}
routes:
  - {match: "/robots.txt", respond: {body: "User-agent: *\n"}}
  - {match: "/", lane: web}
`

// residentBound is what the process may have in memory at its defaults.
const residentBound = 512 << 10 // KiB

// full gives one number on every run, and another when all is to be shown.
func full(often, seldom int) int {
	if os.Getenv("HOLDFAST_FULL") != "" {
		return seldom
	}
	return often
}

// besieged is the built binary before an app in this process.
type besieged struct {
	*command
	t *testing.T
}

func startBesieged(t *testing.T) *besieged {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(besiegedApp)}
	go server.Serve(ln)
	t.Cleanup(func() { server.Close() })
	return &besieged{startBinary(t, writeConfig(t, starvingLanes, ln.Addr())), t}
}

// besiegedApp answers at once. ?bytes= is how long the answer is; /events and
// /ws are held, in the channel that the query names.
func besiegedApp(w http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body)
	switch r.URL.Path {
	case "/events":
		w.Header().Set("M0-Hold", "stream")
	case "/ws":
		w.Header().Set("M0-Hold", "websocket")
		w.Header().Set("M0-Envelope", r.URL.Query().Get("envelope"))
	}
	w.Header().Set("M0-Channel", strings.Join(r.URL.Query()["channel"], ", "))
	n, _ := strconv.Atoi(r.URL.Query().Get("bytes"))
	w.Header().Set("Content-Length", strconv.Itoa(n))
	for block := bytes.Repeat([]byte("answer \n"), 8<<10); n > 0; n -= len(block) {
		w.Write(block[:min(n, len(block))])
	}
}

// others are eight clients that ask the app, for a file of Holdfast's own and
// with a body, each so many times, and give how long each answer took.
func (b *besieged) others() (took []time.Duration) {
	b.t.Helper()
	var mu sync.Mutex
	var clients sync.WaitGroup
	body := strings.Repeat("x", 2<<10)
	for range 8 {
		client := newClient(b.t)
		clients.Go(func() {
			for range 40 {
				for _, ask := range []struct{ method, path, body string }{{"GET", "/page?bytes=2000", ""}, {"GET", "/robots.txt", ""}, {"POST", "/form", body}} {
					began := time.Now()
					if err := b.ask(client, ask.method, ask.path, ask.body); err != nil {
						b.t.Errorf("one of the others, %s %s: %v", ask.method, ask.path, err)
						return
					}
					mu.Lock()
					took = append(took, time.Since(began))
					mu.Unlock()
				}
			}
		})
	}
	clients.Wait()
	return took
}

func (b *besieged) ask(client *http.Client, method, path, body string) error {
	request, err := http.NewRequest(method, "http://"+b.addr+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil || response.StatusCode != 200 {
		return fmt.Errorf("%d %s %w", response.StatusCode, response.Header.Get("Holdfast-Reason"), cmpErr(err))
	}
	return nil
}

// percentile is of times in no order.
func percentile(took []time.Duration, percent int) time.Duration {
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[min(len(took)*percent/100, len(took)-1)].Round(10 * time.Microsecond)
}

// withstands asks as the others before the attack and during it, and looks at
// the memory.
func (b *besieged) withstands(attack func()) {
	b.t.Helper()
	quiet := b.others()
	before := b.memoryKiB(b.t, "VmRSS")
	attack()
	during := b.others()
	b.t.Logf("the others' median and p99: %v and %v without the attack, %v and %v with it", percentile(quiet, 50), percentile(quiet, 99), percentile(during, 50), percentile(during, 99))
	b.wantResident(before)
}

// wantResident looks at the most that the process has had in memory.
func (b *besieged) wantResident(before int64) {
	b.t.Helper()
	most := b.memoryKiB(b.t, "VmHWM")
	b.t.Logf("resident: %d MiB before, %d MiB now, %d MiB at most", before>>10, b.memoryKiB(b.t, "VmRSS")>>10, most>>10)
	if most > residentBound {
		b.t.Errorf("%d MiB were resident, want at most %d at the defaults", most>>10, residentBound>>10)
	}
}

// metric is a series of /metrics.
func (b *besieged) metric(series string) float64 {
	b.t.Helper()
	return metric(b.t, b.admin(b.t), "holdfast_"+series)
}

// dialAll opens n connections, which are closed with the test.
func (b *besieged) dialAll(n int, first func(i int, conn net.Conn) error) []net.Conn {
	b.t.Helper()
	conns := make([]net.Conn, n)
	eachAtOnce(b.t, n, func(i int) (err error) {
		dialer := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: false}}
		if conns[i], err = dialer.Dial("tcp", b.addr); err != nil {
			return err
		}
		conns[i].SetDeadline(time.Now().Add(5 * time.Minute))
		return first(i, conns[i])
	})
	b.t.Cleanup(func() {
		for _, conn := range conns {
			if conn != nil {
				conn.Close()
			}
		}
	})
	if b.t.Failed() {
		b.t.FailNow()
	}
	return conns
}

// drip sends each connection one byte a second until the test ends. It is a
// pace and waits for nothing. Who is cut is not sent to any more.
func (b *besieged) drip(conns []net.Conn, next func(round int) byte) {
	ended := make(chan struct{})
	var dripping sync.WaitGroup
	dripping.Go(func() {
		pace := time.NewTicker(time.Second)
		defer pace.Stop()
		for round := 0; ; round++ {
			for _, conn := range conns {
				conn.Write([]byte{next(round)})
			}
			select {
			case <-ended:
				return
			case <-pace.C:
			}
		}
	})
	b.t.Cleanup(func() { close(ended); dripping.Wait() })
}

func TestStarvation_HeadsOfOneByteASecondAreCutAfterTheHeaderTimeout(t *testing.T) {
	b := startBesieged(t)
	b.withstands(func() {
		slow := b.dialAll(full(1000, 10000), func(_ int, conn net.Conn) error {
			_, err := io.WriteString(conn, "GET /page HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
			return err
		})
		b.drip(slow, func(int) byte { return 'x' })
		b.others()
		eachAtOnce(t, len(slow), func(i int) error {
			// Cut without an answer, although a byte came every second: by an end, or
			// by a reset where a byte crossed it.
			if n, err := slow[i].Read(make([]byte, 1)); n != 0 || err == nil || isTimeoutError(err) {
				return fmt.Errorf("a slow head got %d bytes and %w, want the connection's end", n, cmpErr(err))
			}
			return nil
		})
	})
	if n := b.metric("lane_in_use{lane=\"web\"}"); n != 0 {
		t.Errorf("%v slots are in use", n)
	}
}

func isTimeoutError(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// Bodies that are never whole fill the memory that bodies may have, then the
// spool, and none of them has a slot. Who sends them leaves and comes again, so
// that what was thrown away is in memory too until it is collected.
func TestStarvation_BodiesThatAreNeverWholeTakeNoSlotAndNoMoreMemoryThanTheyMay(t *testing.T) {
	const size = 250 << 10
	b := startBesieged(t)
	clients := full(1300, 6000)
	body := strings.Repeat("x", size-60)
	begin := func(_ int, conn net.Conn) error {
		_, err := fmt.Fprintf(conn, "POST /form HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", size, body)
		return err
	}
	kept := func() float64 { return b.metric("memory_bytes") + b.metric("spool_bytes") }
	var slow []net.Conn
	b.withstands(func() {
		slow = b.dialAll(clients, begin)
		eventually(t, "all of it in memory and in the spool", func() bool { return kept() >= float64(clients*len(body)) })
		if n := b.metric("memory_bytes"); n < 255<<20 || n > 256<<20 {
			t.Errorf("%.0f MiB of bodies are in memory, want the 256 that they may have", n/(1<<20))
		}
		for range 6 {
			for _, conn := range slow[:clients/2] {
				conn.Close()
			}
			eventually(t, "what the half that left had sent to be given back", func() bool { return kept() <= float64((clients-clients/2)*size) })
			slow = append(slow[clients/2:], b.dialAll(clients/2, begin)...)
			eventually(t, "all of it again", func() bool { return kept() >= float64(clients*len(body)) })
		}
		b.drip(slow, func(int) byte { return 'x' })
	})
	if n := b.metric("lane_in_use{lane=\"web\"}") + b.metric("lane_waiting{lane=\"web\"}"); n != 0 {
		t.Errorf("%v of them have a slot or wait for one", n)
	}
	for _, conn := range slow {
		conn.Close()
	}
	eventually(t, "memory and spool given back", func() bool { return kept() == 0 })
}

// Answers that nobody takes fill the same memory, then the spool, and their
// slots are free.
func TestStarvation_ClientsThatDoNotReadTheirAnswersTakeNoSlotAndNoMoreMemoryThanTheyMay(t *testing.T) {
	const size = 4 << 20
	b := startBesieged(t)
	clients := full(300, 900) // nearly what the spool takes
	var slow []net.Conn
	b.withstands(func() {
		slow = b.dialAll(clients, func(_ int, conn net.Conn) error {
			conn.(*net.TCPConn).SetReadBuffer(4 << 10)
			if _, err := fmt.Fprintf(conn, "GET /page?bytes=%d HTTP/1.1\r\nHost: localhost\r\n\r\n", size); err != nil {
				return err
			}
			_, err := conn.Read(make([]byte, 1)) // the answer has begun
			return err
		})
		eventually(t, "their slots to be free", func() bool { return b.metric("lane_in_use{lane=\"web\"}") == 0 })
		// Nearly all of it is here, and neither at the clients nor in the kernel,
		// which gives a connection up to 4 MiB: with 900 such clients the machine's
		// TCP memory was used up, and others' connections were reset.
		if kept := b.metric("memory_bytes") + b.metric("spool_bytes"); kept < float64(clients*size)*0.9 {
			t.Errorf("%.0f MiB of %d are kept, want nine tenths: the rest is in the kernel's buffers", kept/(1<<20), clients*size>>20)
		}
	})
	t.Logf("in memory %.0f MiB, in the spool %.0f MiB", b.metric("memory_bytes")/(1<<20), b.metric("spool_bytes")/(1<<20))
	for _, conn := range slow {
		conn.Close()
	}
	eventually(t, "memory and spool given back", func() bool { return b.metric("memory_bytes") == 0 && b.metric("spool_bytes") == 0 })
}

func TestStarvation_IdleConnectionsTakeADescriptorAndLittleElse(t *testing.T) {
	b := startBesieged(t)
	clients := full(2000, 10000)
	b.withstands(func() {
		fds, resident := b.descriptors(t), b.memoryKiB(t, "VmRSS")
		idle := b.dialAll(clients, func(i int, conn net.Conn) error {
			if i%2 == 0 {
				return nil // it has said nothing yet
			}
			// It was served by the app, and is kept open.
			if _, err := io.WriteString(conn, "GET /page?bytes=10 HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
				return err
			}
			_, err := readRaw(bufio.NewReader(conn), "GET")
			return err
		})
		eventually(t, "all to be accepted", func() bool { return b.descriptors(t)-fds >= len(idle) })
		if n := b.descriptors(t) - fds; n > len(idle)+50 {
			t.Errorf("%d descriptors for %d idle connections", n, len(idle))
		}
		t.Logf("%d idle connections: %.1f KiB each", len(idle), float64(b.memoryKiB(t, "VmRSS")-resident)/float64(len(idle)))
	})
}

// Where no more connections may be open, the ones that do nothing make room.
func TestStarvation_AtTheLimitOfConnectionsWhoAsksIsAnswered(t *testing.T) {
	a := startBesieged(t) // for its app
	config := strings.Replace(readFile(t, a.Args[len(a.Args)-1]), "routes:", "limits: {connections: 100}\nroutes:", 1)
	path := t.TempDir() + "/limited.yaml"
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	b := &besieged{startBinary(t, path), t}
	b.withstands(func() {
		fds := b.descriptors(t)
		idle := b.dialAll(full(500, 5000), func(int, net.Conn) error { return nil })
		b.others()
		if n := b.descriptors(t) - fds; n > 100+30 {
			t.Errorf("%d descriptors more, of %d connections that wanted one, want about a hundred", n, len(idle))
		}
	})
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// seriesNames are the names and labels in /metrics, without their values.
func (b *besieged) seriesNames() map[string]bool {
	b.t.Helper()
	names := make(map[string]bool)
	for line := range strings.Lines(string(wantGet(b.t, onceClient(), "http://"+b.admin(b.t)+"/metrics"))) {
		if name := line[:max(strings.LastIndexByte(line, ' '), 0)]; !strings.HasPrefix(line, "#") {
			names[name] = true
		}
	}
	return names
}

// Paths, hosts, methods and names of fields at random, at full speed: what is
// counted is named by the configuration alone.
func TestStarvation_RandomRequestsAddNoSeries(t *testing.T) {
	b := startBesieged(t)
	for _, request := range []string{"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "MAKE / HTTP/1.1\r\nHost: a\r\n\r\n", "GET /robots.txt HTTP/1.1\r\nHost: a\r\n\r\n", "MAKE /robots.txt HTTP/1.1\r\nHost: a\r\n\r\n", "GET /\r\n\r\n"} {
		askRaw(t, b.addr, request) // one of each outcome
	}
	before := b.seriesNames()
	var asking sync.WaitGroup
	requests := full(3000, 50000)
	b.withstands(func() {
		for _, conn := range b.dialAll(4, func(int, net.Conn) error { return nil }) {
			asking.Go(func() {
				in := bufio.NewReader(conn)
				for range requests {
					if err := askAtRandom(conn, in); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	})
	asking.Wait()
	after := b.seriesNames()
	if len(before) < 50 {
		t.Errorf("%d series, which are too few to be all", len(before))
	}
	for name := range maps.Keys(after) {
		if !before[name] {
			t.Errorf("%s is new", name)
		}
	}
}

// askAtRandom asks for something that nobody has thought of.
func askAtRandom(conn net.Conn, in *bufio.Reader) error {
	method := []string{"GET", randomText(1 + rand.IntN(6)), "POST"}[rand.IntN(3)]
	fmt.Fprintf(conn, "%s /%s%s?%s HTTP/1.1\r\nHost: %s.example\r\n%s: %s\r\nContent-Length: 0\r\n\r\n", method,
		[]string{"", "robots.txt/"}[rand.IntN(2)], randomText(rand.IntN(40)), randomText(5), randomText(8), randomText(10), randomText(10))
	_, err := readRaw(in, method)
	return err
}
