package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// What was published on several ways at once, what became of each, and what
// every client got of it, while nodes and the engine are killed.

// fate is what its publisher was told of an event.
type fate int

const (
	taken fate = iota // it has been published
	maybe             // it may have been, once at most
	never             // it has not been
)

// busEvent is an event of the ledger; its data is its place there.
type busEvent struct {
	channels []string
	fate     fate
	id       int64 // that its publisher was told; 0: none
}

// busLedger is what was published.
type busLedger struct {
	t        *testing.T
	channels []string
	ways     []publishWay

	mu     sync.Mutex
	events []busEvent
	done   []int // by the way: how many were taken, and
	failed []int // how many were not
}

// publishWay publishes one event.
type publishWay func(n int, channels []string) (id int64, f fate)

// newBusLedger has a way over each node, and one straight to the engine.
func newBusLedger(t *testing.T, e *engine, nodes []*node, channels []string) *busLedger {
	l := &busLedger{t: t, channels: channels}
	for _, n := range nodes {
		l.ways = append(l.ways, n.publishOne)
	}
	straight := e.publishRedis
	if e.kind == "postgres" {
		straight = e.publishPostgres
	}
	l.ways = append(l.ways, straight)
	l.done, l.failed = make([]int, len(l.ways)), make([]int, len(l.ways))
	return l
}

// eventBody is an event as the publish API and the engines' functions take it.
func eventBody(n int, channels []string) string {
	body, err := json.Marshal(map[string]any{"channel": channels, "data": strconv.Itoa(n)})
	if err != nil {
		panic(err)
	}
	return string(body)
}

func (n *node) publishOne(number int, channels []string) (id int64, f fate) {
	path, body := "/publish", eventBody(number, channels)
	if len(channels) == 1 && number%2 == 0 {
		path, body = "/publish/"+channels[0], strconv.Itoa(number)
	}
	response, text, err := n.call(path, body)
	var answer struct {
		ID     int64
		Detail string
	}
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return 0, never
	case err != nil:
		return 0, maybe
	case json.Unmarshal(text, &answer) == nil && response.StatusCode == 200 && answer.ID > 0:
		return answer.ID, taken
	case response.Header.Get("Holdfast-Reason") == "bus_down" && strings.HasPrefix(answer.Detail, "nothing was published"):
		return 0, never
	case response.Header.Get("Holdfast-Reason") == "bus_down" && strings.HasPrefix(answer.Detail, "it may have been published"):
		return 0, maybe
	}
	n.t.Errorf("POST %s: %s %s", path, response.Status, text)
	return 0, maybe
}

func (e *engine) publishRedis(n int, channels []string) (id int64, f fate) {
	answer, err := e.resp("FCALL", "holdfast_publish", "1", "holdfast", eventBody(n, channels))
	switch {
	case errors.Is(err, errNotAsked):
		return 0, never
	case err != nil:
		return 0, maybe
	}
	if id, err = strconv.ParseInt(answer, 10, 64); err != nil {
		e.t.Errorf("FCALL holdfast_publish: %q", answer)
	}
	return id, taken
}

// publishPostgres is told no id: the event gets it behind the commit.
func (e *engine) publishPostgres(n int, channels []string) (id int64, f fate) {
	ctx, cancel := context.WithTimeout(context.Background(), straightPatience)
	defer cancel()
	conn, err := pgx.Connect(ctx, e.url)
	if err != nil {
		return 0, never
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, "SELECT holdfast.holdfast_publish($1::jsonb)", eventBody(n, channels))
	var refused *pgconn.PgError
	switch {
	case err == nil:
		return 0, taken
	case errors.As(err, &refused) && refused.Severity == "ERROR":
		return 0, never
	}
	return 0, maybe
}

// publish publishes the next event on a way.
func (l *busLedger) publish(way int, channels ...string) (n int, f fate) {
	l.mu.Lock()
	n = len(l.events)
	l.events = append(l.events, busEvent{channels: channels, fate: maybe})
	l.mu.Unlock()
	id, f := l.ways[way](n, channels)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events[n].id, l.events[n].fate = id, f
	if f == taken {
		l.done[way]++
	} else {
		l.failed[way]++
	}
	return n, f
}

// publishSteadily has publishers go round the ways until stop is called. What
// one of them is told of comes before what it publishes next.
func (l *busLedger) publishSteadily(publishers int) (orders *[][]int, stop func()) {
	orders = new([][]int)
	*orders = make([][]int, publishers)
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for p := range publishers {
		all.Go(func() {
			for way := p; ctx.Err() == nil; way++ {
				channels := []string{l.channels[rand.IntN(len(l.channels))]}
				if other := l.channels[rand.IntN(len(l.channels))]; way%7 == 0 && other != channels[0] {
					channels = append(channels, other)
				}
				if n, f := l.publish(way%len(l.ways), channels...); f == taken {
					(*orders)[p] = append((*orders)[p], n)
				}
				for range 6 { // steadily, and no faster than a slow machine's clients read
					poll()
				}
			}
		})
	}
	stop = sync.OnceFunc(func() { cancel(); all.Wait() })
	l.t.Cleanup(stop)
	return orders, stop
}

// begun is how many events there are.
func (l *busLedger) begun() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.events)
}

// untilTaken waits until so many more were taken on each of the ways, without those left out.
func (l *busLedger) untilTaken(more int, without ...int) {
	l.t.Helper()
	l.until("to take", l.done, more, without...)
}

// untilRefused waits until so many more were not taken on the way over each node.
func (l *busLedger) untilRefused(more int) {
	l.t.Helper()
	l.until("to refuse", l.failed, more, len(l.ways)-1)
}

func (l *busLedger) until(what string, counts []int, more int, without ...int) {
	l.t.Helper()
	l.mu.Lock()
	before := slices.Clone(counts)
	l.mu.Unlock()
	for way := range before {
		if !slices.Contains(without, way) {
			eventually(l.t, fmt.Sprintf("way %d %s %d more", way, what, more), func() bool {
				l.mu.Lock()
				defer l.mu.Unlock()
				return counts[way] >= before[way]+more
			})
		}
	}
}

// report says what was seen.
func (l *busLedger) report(clients []*busClient) {
	fates := map[fate]int{}
	for _, e := range l.events {
		fates[e.fate]++
	}
	events, gaps, cuts := 0, 0, 0
	for _, c := range clients {
		events, gaps, cuts = events+len(c.got), gaps+int(c.gaps.Load()), cuts+c.cuts
	}
	l.t.Logf("%d events were taken, %d may have been, %d were not; %d clients got %d, were cut %d times and told of %d gaps",
		fates[taken], fates[maybe], fates[never], len(clients), events, cuts, gaps)
}

// barrier publishes an event to every channel, and waits until every client has
// it, or was told of a gap that goes beyond it.
func (l *busLedger) barrier(clients []*busClient) (gaps int) {
	l.t.Helper()
	n := 0
	eventually(l.t, "a barrier to be taken", func() bool {
		var f fate
		n, f = l.publish(rand.IntN(3), l.channels...)
		return f == taken
	})
	l.mu.Lock()
	id := l.events[n].id
	l.mu.Unlock()
	for _, c := range clients {
		eventually(l.t, fmt.Sprintf("client %d to be at %d, which is event %d", c.index, id, n), func() bool { return c.at.Load() >= id })
		gaps += int(c.gaps.Load())
	}
	return gaps
}

// busSite is the nodes of a bus, and what is published and held there.
type busSite struct {
	*busLedger
	e       *engine
	nodes   []*node
	clients []*busClient
}

// wantNoGap waits until every client has all that was published, of which
// nothing was lost.
func (s *busSite) wantNoGap(what string) {
	s.t.Helper()
	s.untilTaken(3)
	if gaps := s.barrier(s.clients); gaps != 0 {
		s.t.Errorf("%d gaps were told up to where %s, and nothing was lost", gaps, what)
	}
}

// killNodes kills one node after the other, each when the last is back.
func (s *busSite) killNodes() {
	for i, n := range s.nodes {
		n.killNow()
		s.untilTaken(3, i)
		n.run()
		n.eventuallyReady()
		s.untilTaken(3)
	}
	s.wantNoGap("one node after the other was killed")
}

// restartOne stops a node in order.
func (s *busSite) restartOne() {
	n := s.nodes[0]
	n.signal(s.t, syscall.SIGTERM)
	n.wantExit(s.t, 0)
	n.run()
	n.eventuallyReady()
	s.wantNoGap("a node was stopped in order")
}

// killEngine kills the engine, and while it is away all nodes but one: those
// that are started then know nothing of what their clients have had.
func (s *busSite) killEngine() {
	s.e.kill()
	s.untilRefused(1)
	for _, n := range s.nodes[1:] {
		n.killNow()
		n.run()
	}
	eventually(s.t, "every client to be held again", func() bool {
		held := 0
		for _, n := range s.nodes {
			held += subscribers(s.t, n.addr)
		}
		return held == len(s.clients)
	})
	s.e.start()
	for _, n := range s.nodes {
		n.eventuallyReady()
	}
	s.wantNoGap("the engine and two nodes were killed")
}

// freezeEngine has the engine stand still.
func (s *busSite) freezeEngine() {
	s.e.freeze()
	s.untilRefused(1)
	s.e.thaw()
	s.wantNoGap("the engine stood still")
}

func TestBus_EveryClientHasEveryEventOnceInOneOrderWhileNodesAndTheEngineAreKilled(t *testing.T) {
	count := 300
	if os.Getenv("HOLDFAST_FULL") != "" {
		count = 3000
	}
	onEachEngine(t, func(t *testing.T, e *engine) {
		a := newSocketsApp(t, flaskThreads)
		a.start()
		s := &busSite{e: e, nodes: startNodes(t, e, 3, fmt.Sprintf(busRoutes, "http://"+a.addr))}
		s.busLedger = newBusLedger(t, e, s.nodes, []string{"a", "b", "c", "d", "e"})
		clients, leave := s.holdMany(s.nodes, count)
		s.clients = clients
		orders, stop := s.publishSteadily(4)
		s.untilTaken(3)
		s.killNodes()
		s.restartOne()
		s.killEngine()
		s.freezeEngine()
		stop()
		s.barrier(clients)
		leave()
		s.check(clients, *orders)
		s.report(clients)
	})
}

func TestBus_ARedisThatHasLostWhatItHadIsToldOfToEveryHold(t *testing.T) {
	t.Parallel()
	e := startRedis(t) // which keeps nothing
	nodes := startNodes(t, e, 3, quick(t))
	l := newBusLedger(t, e, nodes, []string{"a", "b", "c"})
	clients, leave := l.holdMany(nodes, 60)
	orders, stop := l.publishSteadily(4)
	l.untilTaken(3)
	for times, lose := range []func(){
		func() { e.mustAsk("FLUSHALL") },
		func() { e.kill(); e.start() },
		func() { e.mustAsk("FLUSHALL"); e.mustAsk("FUNCTION", "FLUSH") },
	} {
		lose()
		for _, c := range clients {
			eventually(t, fmt.Sprintf("client %d to be told of gap %d", c.index, times+1), func() bool { return c.gaps.Load() > int64(times) })
		}
		l.untilTaken(3)
		l.barrier(clients)
	}
	stop()
	l.barrier(clients)
	leave()
	l.check(clients, *orders)
	l.report(clients)
}
