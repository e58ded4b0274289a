package main

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// A TCP proxy that fails as a test's script says: between Holdfast and the app
// the app fails, between a client and Holdfast the client does. It counts the
// bytes of each exchange, both ways, so that a fault comes at a byte and not
// at a time.

// way is the direction that bytes go in.
type way int

const (
	toApp way = iota
	toClient
)

// ending is what happens at a script's byte.
type ending int

const (
	passes ending = iota // nothing
	resets               // both sides are reset
	closes               // whom the bytes go to is told that no more come; the other way goes on
	hangs                // no more bytes go this way, until letGo or until a side closes
)

// script is what becomes of one exchange.
type script struct {
	then ending
	way  way
	at   int // so many bytes pass before
	// trickles: every byte is written by itself, both ways.
	trickles bool
}

// faulty is the proxy. Scripts are for requests, by the id of the ledger; what
// has none passes.
type faulty struct {
	t    *testing.T
	addr string // where it listens
	to   string // for whom
	// tunnels: what follows a request to switch protocols is no request.
	tunnels bool

	mu        sync.Mutex
	listener  net.Listener // nil: connections are refused
	scripts   map[string][]script
	passed    map[string][2]int // bytes of its last exchange
	crossings map[*crossing]struct{}
	gate      chan struct{} // closed: who hangs goes on
	done      sync.WaitGroup
}

func startFaulty(t *testing.T, to string) *faulty {
	t.Helper()
	f := &faulty{t: t, addr: freeAddress(t), to: to, scripts: make(map[string][]script),
		passed: make(map[string][2]int), crossings: make(map[*crossing]struct{}), gate: make(chan struct{})}
	f.accept()
	t.Cleanup(func() {
		f.refuse()
		f.cut()
		f.done.Wait()
	})
	return f
}

// accept takes connections, from now on.
func (f *faulty) accept() {
	f.t.Helper()
	ln, err := net.Listen("tcp", f.addr)
	if err != nil {
		f.t.Fatal(err)
	}
	f.mu.Lock()
	f.listener = ln
	f.mu.Unlock()
	f.done.Go(func() { f.serve(ln) })
}

// refuse has the kernel refuse connections from now on. Those there are stay.
func (f *faulty) refuse() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.listener != nil {
		f.listener.Close()
		f.listener = nil
	}
}

// cut resets what is open.
func (f *faulty) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for x := range f.crossings {
		x.reset()
	}
}

// letGo lets what hangs go on where it stopped.
func (f *faulty) letGo() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.gate)
	f.gate = make(chan struct{})
}

// play gives the scripts of a request: for its first sending, its second, ….
func (f *faulty) play(id string, scripts ...script) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.scripts[id] = scripts
}

// lengths are the bytes of a request's last exchange.
func (f *faulty) lengths(id string) [2]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.passed[id]
}

// connections is how many are open.
func (f *faulty) connections() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.crossings)
}

func (f *faulty) serve(ln net.Listener) {
	for {
		in, err := ln.Accept()
		if err != nil {
			return
		}
		f.done.Go(func() { f.cross(in.(*net.TCPConn)) })
	}
}

// cross carries one connection to its end.
func (f *faulty) cross(in *net.TCPConn) {
	out, err := net.Dial("tcp", f.to)
	if err != nil {
		in.SetLinger(0)
		in.Close()
		return
	}
	x := &crossing{f: f, ends: [2]*net.TCPConn{toApp: out.(*net.TCPConn), toClient: in}, over: make(chan struct{})}
	f.mu.Lock()
	f.crossings[x] = struct{}{}
	f.mu.Unlock()
	var ways sync.WaitGroup
	ways.Go(x.requests)
	ways.Go(x.replies)
	ways.Wait()
	x.close()
	f.mu.Lock()
	delete(f.crossings, x)
	f.mu.Unlock()
}

// crossing is one connection and its other half.
type crossing struct {
	f    *faulty
	ends [2]*net.TCPConn // whom the bytes of each way go to
	over chan struct{}   // closed: this is
	once sync.Once

	mu     sync.Mutex
	id     string // of the present exchange's request
	script script
	passed [2]int
	shut   [2]bool // whom the bytes of a way go to has been told that no more come
}

func (x *crossing) close() {
	x.once.Do(func() {
		close(x.over)
		x.ends[toApp].Close()
		x.ends[toClient].Close()
	})
}

func (x *crossing) reset() {
	x.once.Do(func() {
		close(x.over)
		for _, conn := range x.ends {
			conn.SetLinger(0)
			conn.Close()
		}
	})
}

// requests carries one request after another.
func (x *crossing) requests() {
	in := bufio.NewReaderSize(x.ends[toClient], 64<<10)
	for {
		head, err := readHeadOf(in)
		if len(head) > 0 {
			x.begin(head)
			if !x.pass(toApp, head) {
				return
			}
		}
		if err == nil {
			err = x.copy(toApp, in, x.f.bodyOf(head))
		}
		if err != nil {
			x.sourceEnded(toApp, err)
			return
		}
	}
}

// replies carries whatever comes back.
func (x *crossing) replies() {
	if err := x.copy(toClient, x.ends[toApp], -1); err != nil {
		x.sourceEnded(toClient, err)
	}
}

// copy carries n bytes, all for -1.
func (x *crossing) copy(w way, from io.Reader, n int64) error {
	buf := make([]byte, 64<<10)
	for n != 0 {
		part := buf
		if n > 0 {
			part = buf[:min(n, int64(len(buf)))]
		}
		got, err := from.Read(part)
		if got > 0 && !x.pass(w, part[:got]) {
			return net.ErrClosed
		}
		if n > 0 {
			n -= int64(got)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sourceEnded passes on that a side has closed its half, or is gone.
func (x *crossing) sourceEnded(w way, err error) {
	if err != io.EOF {
		x.reset()
		return
	}
	x.mu.Lock()
	x.shut[w] = true
	x.mu.Unlock()
	x.ends[w].CloseWrite()
	if w == toApp && x.stuck() {
		x.reset() // nobody else sees that who waits has left
	}
}

// stuck reports whether the reply hangs.
func (x *crossing) stuck() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.script.then == hangs
}

// begin is called with each request's head, before a byte of it has passed.
func (x *crossing) begin(head []byte) {
	id := fieldOf(head, "X-Ledger-Id")
	x.f.mu.Lock()
	s := script{}
	if left := x.f.scripts[id]; len(left) > 0 {
		s, x.f.scripts[id] = left[0], left[1:]
	}
	x.f.mu.Unlock()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.id, x.script, x.passed = id, s, [2]int{}
}

// pass carries p as far as the script says. false: this way is over.
func (x *crossing) pass(w way, p []byte) bool {
	x.mu.Lock()
	s, done := x.script, x.passed[w]
	if x.shut[w] {
		x.mu.Unlock()
		return true // nobody wants it
	}
	var rest []byte
	ends := s.then != passes && s.way == w && done+len(p) >= s.at
	if ends {
		p, rest = p[:s.at-done], p[s.at-done:]
	}
	x.passed[w] += len(p)
	id, passed := x.id, x.passed
	x.mu.Unlock()
	x.f.mu.Lock()
	x.f.passed[id] = passed
	gate := x.f.gate
	x.f.mu.Unlock()
	if !x.write(w, p, s.trickles) {
		return false
	}
	if !ends {
		return true
	}
	switch s.then {
	case resets:
		x.reset()
		return false
	case closes:
		x.mu.Lock()
		x.shut[w] = true
		x.mu.Unlock()
		x.ends[w].CloseWrite()
		return true
	}
	if w == toApp { // what comes is read, so that leaving is seen, and kept from everybody
		x.mu.Lock()
		x.shut[w] = true
		x.mu.Unlock()
		return true
	}
	select {
	case <-gate:
	case <-x.over:
		return false
	}
	x.mu.Lock()
	x.script = script{}
	x.mu.Unlock()
	return x.pass(w, rest)
}

func (x *crossing) write(w way, p []byte, trickles bool) bool {
	for step := len(p); len(p) > 0; p = p[step:] {
		if trickles {
			step = 1
		}
		if _, err := x.ends[w].Write(p[:step]); err != nil {
			x.reset()
			return false
		}
	}
	return true
}

// readHeadOf reads up to the empty line, or gives what there is of it.
func readHeadOf(in *bufio.Reader) (head []byte, err error) {
	for !bytes.HasSuffix(head, []byte("\r\n\r\n")) {
		line, err := in.ReadBytes('\n')
		if head = append(head, line...); err != nil {
			return head, err
		}
	}
	return head, nil
}

// bodyOf is how many bytes follow a request's head; -1: it does not say.
func (f *faulty) bodyOf(head []byte) int64 {
	if f.tunnels && fieldOf(head, "Upgrade") != "" || fieldOf(head, "Transfer-Encoding") != "" {
		return -1
	}
	n, _ := strconv.ParseInt(fieldOf(head, "Content-Length"), 10, 64)
	return n
}

// fieldOf is the value of a head's field; "" where it has none.
func fieldOf(head []byte, name string) string {
	for line := range strings.Lines(string(head)) {
		if field, value, ok := strings.Cut(line, ":"); ok && strings.EqualFold(field, name) {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
