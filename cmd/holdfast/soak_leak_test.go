package main

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// What can leak in the soak: it is flat while the load goes on, and given back
// when the clients are gone.

// soakSample is what the process has of what can leak.
type soakSample struct{ kib, descriptors, goroutines int }

func (s *soak) sample() soakSample {
	s.Helper()
	found := goroutineTotal.FindSubmatch(wantGet(s.T, onceClient(), "http://"+s.admin+"/debug/pprof/goroutine?debug=1"))
	if found == nil {
		s.Fatal("no goroutine profile")
	}
	n, _ := strconv.Atoi(string(found[1]))
	return soakSample{int(s.c.memoryKiB(s.T, "VmRSS")), s.c.descriptors(s.T), n}
}

// wantFlat holds the last quarter's mean to the second's. A tenth and a little
// more is the noise of a heap that is collected at twice its size, and of a
// load that is not the same twice.
func wantFlat(t *testing.T, samples []soakSample) {
	t.Helper()
	quarter := len(samples) / 4
	for _, figure := range []struct {
		name  string
		slack float64
		of    func(soakSample) int
	}{
		{"KiB resident", 4096, func(s soakSample) int { return s.kib }},
		{"descriptors", 8, func(s soakSample) int { return s.descriptors }},
		{"goroutines", 8, func(s soakSample) int { return s.goroutines }},
	} {
		mean := func(samples []soakSample) (m float64) {
			for _, s := range samples {
				m += float64(figure.of(s)) / float64(len(samples))
			}
			return m
		}
		second, last := mean(samples[quarter:2*quarter]), mean(samples[3*quarter:])
		t.Logf("%s: %.0f in the second quarter, %.0f in the last", figure.name, second, last)
		if last > second*1.1+figure.slack {
			t.Errorf("%s: %.0f in the second quarter, %.0f in the last: they grow", figure.name, second, last)
		}
	}
}

// wantNothingLeft: once the clients are gone, nothing of them is left.
func (s *soak) wantNothingLeft(before soakSample) {
	s.Helper()
	eventuallyQuiet(s.T, s.admin)
	eventuallyHolds(s.T, s.c.addr, holdsShown{})
	for _, name := range []string{"holdfast_memory_bytes", "holdfast_spool_bytes", "holdfast_outbox_bytes", "holdfast_parked"} {
		eventually(s.T, name+" back to zero", func() bool { return metric(s.T, s.admin, name) == 0 })
	}
	// A slot keeps its connection until it is used again, closed by the app or
	// not: 15 at most of the request lanes, and as many as there were streams.
	const connections = 32
	wantSteady(s.T, "descriptors", before.descriptors, connections, func() int { return s.sample().descriptors })
	wantSteady(s.T, "goroutines", before.goroutines, connections, func() int { return s.sample().goroutines })
}

// tellIfTCPRanOut says of a failure that the kernel reset connections because
// all of TCP had no memory left, which other load on the machine can bring
// about: answers that were written whole are cut then.
func tellIfTCPRanOut(t *testing.T) {
	before := tcpAborts()
	t.Cleanup(func() {
		if n := tcpAborts() - before; t.Failed() && n > 0 {
			t.Logf("the kernel ran out of memory for TCP and reset %d connections meanwhile (net.ipv4.tcp_mem): see what else runs here", n)
		}
	})
}

// tcpAborts is the kernel's count of that, since its start.
func tcpAborts() (n int) {
	text, _ := os.ReadFile("/proc/net/netstat") // a line of names, and one of values
	names, rest, _ := strings.Cut(string(text), "\n")
	values, _, _ := strings.Cut(rest, "\n")
	if i := slices.Index(strings.Fields(names), "TCPAbortOnMemory"); i >= 0 && i < len(strings.Fields(values)) {
		n, _ = strconv.Atoi(strings.Fields(values)[i])
	}
	return n
}
