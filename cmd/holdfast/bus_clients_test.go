package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// Clients that are held at the nodes of a bus, and come back where they were.

// busGot is what a client got: an event, or for n < 0 a gap between two positions,
// when so many events of the ledger had been begun.
type busGot struct {
	n        int
	id, last int64
	begun    int
}

// busClient holds a stream at some node, and comes back to another where it is cut.
type busClient struct {
	index    int
	path     string
	channels []string
	nodes    []string // their addresses
	begun    func() int

	first  int64 // the position that it was given at first
	id     string
	got    []busGot
	faults []string
	at     atomic.Int64 // its position
	gaps   atomic.Int64
	cuts   int
}

// hold opens streams until ctx ends; then no more is read.
func (c *busClient) hold(ctx context.Context, joined func()) {
	joined = sync.OnceFunc(joined)
	for at := c.index; ctx.Err() == nil; {
		at %= len(c.nodes)
		c.once(ctx, c.nodes[at], joined)
		c.cuts++
		at += 1 + rand.IntN(len(c.nodes)-1) // another one
		if ctx.Err() == nil {
			poll()
		}
	}
}

// once is one connection, to its end.
func (c *busClient) once(ctx context.Context, addr string, joined func()) {
	fields := eventSource
	if c.id != "" {
		fields += "Last-Event-ID: " + c.id + "\r\n"
	}
	f, err := dialEvents(addr, c.path, fields)
	if err != nil {
		return
	}
	defer f.Close()
	defer context.AfterFunc(ctx, func() { f.Close() })()
	if f.response.StatusCode != 200 {
		c.faults = append(c.faults, "answered "+f.response.Status)
		return
	}
	for {
		b, err := f.block()
		if err != nil {
			return
		}
		c.take(b)
		if c.first != 0 {
			joined()
		}
	}
}

// take notes a block of a stream.
func (c *busClient) take(b block) {
	id, _ := strconv.ParseInt(b.id, 10, 64)
	switch {
	case b.event == "m0-gap":
		var told struct {
			Last int64 `json:"last_event_id"`
			Head int64 `json:"head"`
		}
		if err := json.Unmarshal([]byte(b.data), &told); err != nil {
			c.faults = append(c.faults, fmt.Sprintf("a gap of %q", b.data))
		}
		c.got = append(c.got, busGot{-1, told.Head, told.Last, c.begun()})
		c.gaps.Add(1)
	case b.hasData:
		n, err := strconv.Atoi(b.data)
		if err != nil || id == 0 {
			c.faults = append(c.faults, fmt.Sprintf("an event that is none of ours: %q", b.raw))
		}
		c.got = append(c.got, busGot{n: n, id: id})
	}
	if b.id == "" {
		return
	}
	if c.id = b.id; c.first == 0 {
		c.first = id
	}
	c.at.Store(id)
}

// holdMany has clients hold at all nodes, each by a grant, but one in ten by a
// view in more channels than one, until stop is called.
func (l *busLedger) holdMany(nodes []*node, count int) (clients []*busClient, stop func()) {
	t, channels := l.t, l.channels
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	var joined atomic.Int64
	stop = sync.OnceFunc(func() { cancel(); all.Wait() })
	t.Cleanup(stop)
	for i := range count {
		c := &busClient{index: i, begun: l.begun, channels: channels[i%len(channels):][:1]}
		c.path = granted(c.channels[0])
		if i%10 == 9 {
			c.channels = []string{channels[i%len(channels)], channels[(i+1)%len(channels)], channels[(i/10)%len(channels)]}
			c.path = "/events?M0-Hold=stream&M0-Channel=" + strings.Join(c.channels, "%2C") + "&channel=" + strings.Join(c.channels, "&channel=")
		}
		for _, n := range nodes {
			c.nodes = append(c.nodes, n.addr)
		}
		clients = append(clients, c)
		all.Go(func() { c.hold(ctx, func() { joined.Add(1) }) })
	}
	eventually(t, fmt.Sprint(count, " clients to be held"), func() bool { return joined.Load() == int64(count) })
	return clients, stop
}
