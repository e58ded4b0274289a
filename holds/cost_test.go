package holds

import (
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// publishCost is how often a publish to so many holds, and its delivery,
// allocate.
func publishCost(holds int, data string, channels ...string) float64 {
	s := newStage(Config{})
	all := make([]*pipe, holds)
	for i := range all {
		_, all[i] = s.open(-1, channels[i%len(channels)])
	}
	s.rest()
	for _, p := range all {
		p.bytes = make([]byte, 0, 4<<10)
	}
	e := text(data, channels...)
	run := func() {
		for _, p := range all { // read, and its room used again
			p.bytes = p.bytes[:0]
		}
		s.hub.publish(encode(&e), e.Channels)
		s.rest()
	}
	for range 600 { // rings are full, and what grows has grown
		run()
	}
	return testing.AllocsPerRun(1000, run)
}

func TestCost_APublishAllocatesNothingForAHold(t *testing.T) {
	for _, c := range []struct {
		data     string
		channels []string
	}{
		{"one line", []string{"a"}},
		{"two\nlines", []string{"a"}},
		{"one line", []string{"a", "b", "c"}},
	} {
		few, many := publishCost(10, c.data, c.channels...), publishCost(200, c.data, c.channels...)
		t.Logf("%q to %d channels: %v allocations with 10 holds, %v with 200", c.data, len(c.channels), few, many)
		if few != many || few > 4 {
			t.Errorf("%q to %d channels: %v allocations with 10 holds, %v with 200; want the event and its bytes, whoever gets it",
				c.data, len(c.channels), few, many)
		}
	}
}

// Whatever becomes of a client that does not read: the bytes are the event's.
func TestCost_WhatWaitsIsNotCopied(t *testing.T) {
	s := newStage(Config{})
	var held []*hold
	for range 10 {
		h, _ := s.open(100, "a")
		held = append(held, h)
	}
	s.rest()
	s.publish(string(make([]byte, 1000)), "a")
	s.rest()
	for i, h := range held {
		if h.outbox == nil || len(h.outbox.pieces) != 1 {
			t.Fatalf("hold %d: nothing waits", i)
		}
		if piece, first := h.outbox.pieces[0], held[0].outbox.pieces[0]; &piece[len(piece)-1] != &first[len(first)-1] {
			t.Errorf("hold %d has bytes of its own", i)
		}
	}
}

// bareClients opens holds of so many clients, which have nothing of Go's about
// them that would be measured too.
func bareClients(t *testing.T, s *station, n int, spec func(i int) Spec) {
	t.Helper()
	fds := make([]int, 0, n)
	t.Cleanup(func() {
		for _, fd := range fds {
			syscall.Close(fd)
		}
	})
	addr := s.listener.Addr()
	to := &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}
	fmt.Sscanf(addr.String(), "127.0.0.1:%d", &to.Port)
	for i := range n {
		fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		fds = append(fds, fd)
		if err := syscall.Connect(fd, to); err != nil {
			t.Fatal(err)
		}
		server, err := s.listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		spec := spec(i)
		spec.Kind, spec.Head, spec.Chunked, spec.Position = ModeStream, []byte(chunkedHead), true, s.Position()
		if err := s.Open(server, spec); err != nil {
			t.Fatal(err)
		}
	}
}

// liveMemory is the heap that is in use, and the goroutines' stacks.
func liveMemory() (heap, stacks int64) {
	var m runtime.MemStats
	for range 3 { // finalizers, and what they let go of
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc), int64(m.StackInuse)
}

// eventstreamSpec is a GRIP hold as django-eventstream's answers make it: two
// channels, a link with a token, what its ids are built of, a keep-alive.
func eventstreamSpec(t testing.TB, i int) Spec {
	in, err := ParseInstruction(200, fieldsOf(t, "Grip-Hold: stream", fmt.Sprintf("Grip-Channel: events-news; prev-id=5; filter=build-id; filter=skip-users, user-%d; filter=require-sub", i),
		"Grip-Link: </events/?channel=news&link=next&recover=true&es-meta="+strings.Repeat("t", 180)+">; rel=next",
		fmt.Sprintf(`Grip-Set-Meta: id_format="news:%%(events-news)s", user="%d"`, i), `Grip-Keep-Alive: event: keep-alive\ndata:\n\n; format=cstring; timeout=20`), Dialects{Grip: true})
	if err != nil {
		t.Fatal(err)
	}
	return Spec{Channels: in.Channels, Grip: in.Grip, Target: "/events/?channel=news", Host: "app.example", Fields: []byte("Host: app.example\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: app.example\r\n"), Events: true}
}

// The package comment names what it measures.
func TestCost_AnIdleHold(t *testing.T) {
	if testing.Short() {
		t.Skip("10,000 connections, in a short run")
	}
	const reserve = 300
	holds := min(10_000, (descriptors(t)-reserve)/2)
	needDescriptors(t, 2*1000+reserve)
	for _, c := range []struct {
		what string
		most int64 // bytes of live heap
		spec func(i int) Spec
	}{
		{"on a channel with others", 400, func(int) Spec { return Spec{Channels: []string{"a"}} }},
		{"on a channel of its own", 1000, func(i int) Spec { return Spec{Channels: []string{fmt.Sprint("user-", i)}} }},
		{"of django-eventstream's", 4000, func(i int) Spec { return eventstreamSpec(t, i) }},
	} {
		t.Run(c.what, func(t *testing.T) {
			s := startStation(t, Config{})
			heap, stacks := liveMemory()
			bareClients(t, s, holds, c.spec)
			s.untilLive(holds)
			nowHeap, nowStacks := liveMemory()
			each, eachStack := (nowHeap-heap)/int64(holds), (nowStacks-stacks)/int64(holds)
			t.Logf("%d idle holds, each %s: %d bytes of live heap each, and %d of stacks; %d goroutines",
				holds, c.what, each, eachStack, runtime.NumGoroutine())
			if c.what == "on a channel with others" {
				figure(t, "bytes_per_hold", float64(each))
			}
			if runtime.NumGoroutine() > holds { // it has a goroutine where descriptors are not watched
				c.most = 4 << 10
			}
			if each > c.most {
				t.Errorf("an idle hold %s costs %d bytes, want %d at most", c.what, each, c.most)
			}
		})
	}
}
