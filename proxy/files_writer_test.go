package proxy_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/proxy"
)

// ---- Large files.

// The memory of sending a large file is that of sending a small one.
func TestFiles_ALargeOneTakesNoMemory(t *testing.T) {
	addr, dir := startFiles(t, proxy.Config{})
	const size = 64 << 20
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "big"), nil, 0o644), os.Truncate(filepath.Join(dir, "big"), size)); err != nil {
		t.Fatal(err)
	}
	c := dialWire(t, addr)
	scratch := make([]byte, 64<<10)
	fetch := func() {
		c.say(t, get("/big"))
		_, fields, _, err := readStrictHead(c.reader)
		if err != nil || fmt.Sprint(fieldValues(fields, "Content-Length")) != fmt.Sprintf("[%d]", size) {
			t.Fatal(fields, err)
		}
		if n, err := io.CopyBuffer(onlyWriter{}, io.LimitReader(c.reader, size), scratch); n != size || err != nil {
			t.Fatal(n, err)
		}
	}
	fetch() // what lives on is there then
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fetch()
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 1<<20 {
		t.Errorf("64 MiB took %d bytes of memory", grown)
	}
}

// onlyWriter throws away, and has no way of its own to read.
type onlyWriter struct{}

func (onlyWriter) Write(p []byte) (int, error) { return len(p), nil }

// slowClient asks for a file and reads its head alone, with little room for more.
func slowClient(t *testing.T, addr, target string) *wireClient {
	t.Helper()
	c := dialWire(t, addr)
	c.conn.SetReadBuffer(16 << 10)
	c.say(t, get(target))
	if line, _, _, err := readStrictHead(c.reader); err != nil || line != "HTTP/1.1 200 OK" {
		t.Fatal(line, err)
	}
	return c
}

// opens counts the process's descriptors of a file.
func opens(t *testing.T, name string) (n int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("this system does not list descriptors")
	}
	for _, entry := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + entry.Name()); err == nil && strings.HasPrefix(to, name) {
			n++
		}
	}
	return n
}

func TestFiles_AClientThatLeavesInTheMiddleLeavesNothingOpen(t *testing.T) {
	dir := t.TempDir()
	addr, logs := startLogged(t, "tcp", proxy.Config{AccessLog: true}, []proxy.Route{filesAt("/", dir)})
	content := bigFile(t, dir, "big", 32<<20)
	name := filepath.Join(dir, "big")
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // which would close what is forgotten
	var clients []*wireClient
	for range 5 {
		clients = append(clients, slowClient(t, addr, "/big"))
	}
	until(t, "five open files", func() bool { return opens(t, name) == 5 })
	for i, c := range clients {
		if i%2 == 0 {
			c.reset()
		} else {
			c.Close()
		}
	}
	until(t, "none", func() bool { return opens(t, name) == 0 })
	until(t, "five lines", func() bool { return logs.FilterMessage("exchange").Len() == 5 })
	for _, entry := range logs.FilterMessage("exchange").All() {
		if fields := entry.ContextMap(); fields["end"] != "client_answering" || fields["status"] != int64(200) || fields["bytes"].(int64) <= 0 || fields["bytes"].(int64) >= int64(len(content)) {
			t.Errorf("%v", fields)
		}
	}
}

// A small file is read before it is sent: who takes its time keeps none open.
func TestFiles_ASmallOneIsClosedBeforeItIsSent(t *testing.T) {
	addr, dir := startFiles(t, proxy.Config{})
	bigFile(t, dir, "small", 60<<10)
	name := filepath.Join(dir, "small")
	c := dialWire(t, addr)
	c.conn.SetDeadline(time.Now().Add(patience))
	c.Write([]byte(strings.Repeat(get("/small"), 200)), 0) // more than the kernel takes
	c.wantAnswer(t, "GET", 200, "*")
	still := 0
	until(t, "nothing open, again and again", func() bool {
		if still++; opens(t, name) > 0 {
			still = 0
		}
		return still > 50
	})
	for range 199 {
		c.wantAnswer(t, "GET", 200, "*")
	}
}

// What was announced and is not there any more must not look whole, nor be
// filled up with anything else.
func TestFiles_OneThatBecomesShorterCutsItsAnswer(t *testing.T) {
	dir := t.TempDir()
	addr, logs := startLogged(t, "tcp", proxy.Config{AccessLog: true}, []proxy.Route{filesAt("/", dir)})
	bigFile(t, dir, "big", 32<<20)
	c := slowClient(t, addr, "/big")
	if err := os.Truncate(filepath.Join(dir, "big"), 1<<20); err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(io.Discard, c.reader)
	if !errors.Is(err, syscall.ECONNRESET) || n >= 32<<20 {
		t.Errorf("%d bytes, then %v; want a reset", n, err)
	}
	until(t, "a line", func() bool { return logs.FilterMessage("exchange").Len() == 1 })
	if fields := logs.FilterMessage("exchange").All()[0].ContextMap(); fields["end"] != "holdfast_answering" {
		t.Errorf("%v", fields)
	}
	told := logs.FilterMessageSnippet("could not be sent whole").All()
	if len(told) != 1 || told[0].ContextMap()["file"] != "big" || told[0].ContextMap()["route"] != "/" {
		t.Errorf("%v", told)
	}
	if n := opens(t, filepath.Join(dir, "big")); n != 0 {
		t.Errorf("%d are open", n)
	}
}

// A file that is replaced is sent to its end as it was; one that grows, as far
// as was announced.
func TestFiles_OneThatIsReplacedIsTheOldOneToItsEnd(t *testing.T) {
	addr, dir := startFiles(t, proxy.Config{})
	name := filepath.Join(dir, "big")
	old := bigFile(t, dir, "big", 16<<20)
	c := slowClient(t, addr, "/big")
	next := bytes.ToUpper(bytes.Repeat([]byte("new "), 8<<20/4))
	if err := errors.Join(os.WriteFile(name+".next", next, 0o644), os.Rename(name+".next", name)); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(old))
	if _, err := io.ReadFull(c.reader, got); err != nil || !bytes.Equal(got, old) {
		t.Errorf("not the old one: %v", err)
	}
	c.say(t, get("/big"))
	if answer := c.wantAnswer(t, "GET", 200, "*"); !bytes.Equal(answer.body, next) {
		t.Errorf("not the new one: %d bytes", len(answer.body))
	}
	grows := slowClient(t, addr, "/big")
	file, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	fmt.Fprint(file, "HTTP/1.1 200 OK\r\n\r\nmore")
	got = make([]byte, len(next))
	if _, err := io.ReadFull(grows.reader, got); err != nil || !bytes.Equal(got, next) {
		t.Errorf("not as it was: %v", err)
	}
	grows.say(t, get("/big"))
	if answer := grows.wantAnswer(t, "GET", 200, "*"); len(answer.body) != len(next)+len("HTTP/1.1 200 OK\r\n\r\nmore") {
		t.Errorf("%d bytes now", len(answer.body))
	}
}

// The deadline is of a client's progress, not of the whole: one that is slow
// gets it all, one that takes nothing is cut.
func TestFiles_ASlowClientGetsAllOfItAndOneThatTakesNothingIsCut(t *testing.T) {
	const stall = 400 * time.Millisecond
	addr, dir := startFiles(t, proxy.Config{BodyTimeout: stall})
	content := bigFile(t, dir, "big", 8<<20)
	slow, stalled := slowClient(t, addr, "/big"), slowClient(t, addr, "/big")
	began := time.Now()
	got := make([]byte, 0, len(content))
	piece := make([]byte, 256<<10)
	tick := time.NewTicker(stall / 10)
	defer tick.Stop()
	for len(got) < len(content) {
		<-tick.C
		n, err := slow.reader.Read(piece[:min(len(piece), len(content)-len(got))])
		if got = append(got, piece[:n]...); err != nil {
			t.Fatalf("after %d bytes: %v", len(got), err)
		}
		if len(got) > 2<<20 {
			tick.Reset(time.Microsecond)
		}
	}
	if took := time.Since(began); took < 2*stall || !bytes.Equal(got, content) {
		t.Errorf("%d bytes within %v: not slow, or not the file", len(got), took)
	}
	until(t, "the other to be cut", func() bool { return opens(t, filepath.Join(dir, "big")) == 0 })
	if n, err := io.Copy(io.Discard, stalled.reader); !errors.Is(err, syscall.ECONNRESET) || n >= int64(len(content)) {
		t.Errorf("%d bytes, then %v; want a reset", n, err)
	}
}

// A drain lets what is being sent end, says that it is the last, and at its
// bound cuts it.
func TestFiles_ADrainLetsThemEnd(t *testing.T) {
	dir := t.TempDir()
	content := bigFile(t, dir, "big", 16<<20)
	server, addr := startDrainable(t, proxy.Config{}, []proxy.Route{filesAt("/", dir)})
	c, never := slowClient(t, addr, "/big"), slowClient(t, addr, "/big")
	server.Drain()
	last := say(t, addr, get("/big"))
	if answer := last.wantAnswer(t, "GET", 200, "*"); !answer.closes() {
		t.Error("an answer during the drain does not say that it is the last")
	}
	server.Close()
	got := make([]byte, len(content))
	if _, err := io.ReadFull(c.reader, got); err != nil || !bytes.Equal(got, content) {
		t.Errorf("not whole: %v", err)
	}
	c.wantEnd(t, false)
	server.Cut()
	if n, err := io.Copy(io.Discard, never.reader); !errors.Is(err, syscall.ECONNRESET) || n >= int64(len(content)) {
		t.Errorf("%d bytes, then %v; want a reset", n, err)
	}
	if n := opens(t, dir); n != 0 {
		t.Errorf("%d are open", n)
	}
}
