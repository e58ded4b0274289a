package holds

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/holds/bus"
)

// startNode starts a station on a bus, and waits until it has what the bus has.
func startNode(t testing.TB, b bus.Bus, cfg Config) *station {
	t.Helper()
	cfg.Bus = b
	s := startStation(t, cfg)
	s.until("the node has what the bus has", func() bool { return s.node.current.Load() })
	return s
}

// gatedBus hands entries over only while its gate is open.
type gatedBus struct {
	bus.Bus
	gate sync.RWMutex
}

func (g *gatedBus) Follow(ctx context.Context, after int64, to bus.Follower) error {
	return g.Bus.Follow(ctx, after, gatedFollower{to, &g.gate})
}

type gatedFollower struct {
	bus.Follower
	gate *sync.RWMutex
}

func (f gatedFollower) Take(entries []bus.Entry) {
	f.gate.RLock()
	defer f.gate.RUnlock()
	f.Follower.Take(entries)
}

func TestNode_AnEventReachesTheHoldsOfEveryNodeUnderOneNumber(t *testing.T) {
	shared := bus.NewMemory(bus.Options{})
	a, b := startNode(t, shared, Config{}), startNode(t, shared.Another(), Config{})
	onA, onB := a.open(Spec{Channels: []string{"news"}}), b.open(Spec{Channels: []string{"news"}})
	first := a.publish("from a", "news")
	second := b.publish("from b", "news")
	for name, c := range map[string]*streamClient{"a": onA, "b": onB} {
		c.wantPosition()
		if got := c.wantEvent("from a"); got != first {
			t.Errorf("on %s it has the number %d, its publisher was told %d", name, got, first)
		}
		if got := c.wantEvent("from b"); got != second {
			t.Errorf("on %s it has the number %d, its publisher was told %d", name, got, second)
		}
	}
	if a.Position() != second || b.Position() != second {
		t.Errorf("the nodes stand at %d and %d, want %d", a.Position(), b.Position(), second)
	}
	if _, reached := a.Publish(text("counted", "news")); reached != 1 {
		t.Errorf("it reached %d here, want 1", reached)
	}
}

func TestNode_AClientComesBackToAnyNodeAndMissesNothing(t *testing.T) {
	shared := bus.NewMemory(bus.Options{})
	a := startNode(t, shared, Config{})
	first := a.publish("1", "news")
	a.publish("other", "others")
	a.publish("2", "news")
	late := startNode(t, shared.Another(), Config{}) // it has the past from the bus
	c := late.open(Spec{Channels: []string{"news"}, Last: fmt.Sprint(first)})
	c.wantPosition()
	c.wantEvent("2")
	a.publish("3", "news")
	c.wantEvent("3")
	if late.Snapshot().GapsTold != 0 {
		t.Error("a gap was told where there is none")
	}
}

func TestNode_AClientThatIsAheadOfTheNodeIsNotToldOfAGap(t *testing.T) {
	shared := bus.NewMemory(bus.Options{})
	slow := &gatedBus{Bus: shared.Another()}
	a, b := startNode(t, shared, Config{}), startNode(t, slow, Config{})
	slow.gate.Lock()
	last := a.publish("seen on a", "news")
	opened := make(chan *streamClient)
	go func() {
		c, err := b.visit(Spec{Channels: []string{"news"}, Last: fmt.Sprint(last), Position: b.Position()})
		if err != nil {
			t.Error(err)
		}
		opened <- c
	}()
	b.until("the client waits for the node", func() bool {
		b.node.mu.Lock()
		defer b.node.mu.Unlock()
		return len(b.node.waiting) == 1
	})
	slow.gate.Unlock()
	c := <-opened
	defer c.conn.Close()
	a.publish("next", "news")
	c.wantPosition()
	c.wantEvent("next")
}

func TestNode_WhileTheBusIsAwayPublishersAreToldAndHoldsGetWhatTheyMissed(t *testing.T) {
	shared := bus.NewMemory(bus.Options{})
	cut := &cutBus{Bus: shared.Another()}
	a, b := startNode(t, shared, Config{}), startNode(t, cut, Config{})
	c := b.open(Spec{Channels: []string{"news"}})
	a.publish("before", "news")
	c.wantPosition()
	c.wantEvent("before")
	cut.off(true)
	b.until("the node has lost the bus", func() bool { return !b.node.connected.Load() })
	if _, _, err := b.Holds.Publish(text("lost", "news")); !errors.Is(err, ErrBusDown) {
		t.Errorf("a publisher is told %v, want %v", err, ErrBusDown)
	}
	if _, err := b.Holds.End(EndRequest{Channel: "news"}); !errors.Is(err, ErrBusDown) {
		t.Errorf("who ends holds is told %v, want %v", err, ErrBusDown)
	}
	a.publish("meanwhile 1", "news")
	a.publish("meanwhile 2", "news")
	cut.off(false)
	c.wantEvent("meanwhile 1", "meanwhile 2")
	b.wantHolds(1)
	if told := b.Snapshot().GapsTold; told != 0 {
		t.Errorf("%d gaps were told where all could be had", told)
	}
}

// cutBus can be cut off from its engine.
type cutBus struct {
	bus.Bus
	mu     sync.Mutex
	isOff  bool
	cancel context.CancelFunc
}

func (c *cutBus) off(off bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isOff = off; off && c.cancel != nil {
		c.cancel()
	}
}

func (c *cutBus) Follow(ctx context.Context, after int64, to bus.Follower) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.mu.Lock()
	if c.isOff {
		c.mu.Unlock()
		return bus.ErrDown
	}
	c.cancel = cancel
	c.mu.Unlock()
	return c.Bus.Follow(ctx, after, to)
}

func (c *cutBus) Publish(ctx context.Context, bodies [][]byte) ([]int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isOff {
		return nil, bus.ErrDown
	}
	return c.Bus.Publish(ctx, bodies)
}

// What a bus cannot give back any more is told to everybody whom it may concern.
func TestNode_WhatTheBusHasLostIsAGapForEveryHold(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T, shared *bus.Memory, a *station){
		"let go meanwhile": func(_ *testing.T, _ *bus.Memory, a *station) {
			for i := range 20 {
				a.publish(fmt.Sprint(i), "others")
			}
		},
		"flushed":                   func(_ *testing.T, shared *bus.Memory, _ *station) { shared.Flush() },
		"restored from an old copy": func(_ *testing.T, shared *bus.Memory, a *station) { shared.Restore(a.Position() - idStep) },
	} {
		t.Run(name, func(t *testing.T) {
			shared := bus.NewMemory(bus.Options{Entries: 10})
			cut := &cutBus{Bus: shared.Another()}
			a, b := startNode(t, shared, Config{}), startNode(t, cut, Config{})
			stream := b.open(Spec{Channels: []string{"room"}, Chunked: true})
			envelope := b.openSocket(Spec{Channels: []string{"room"}, Envelope: true})
			bare := b.openSocket(Spec{Channels: []string{"room"}})
			poll := b.openPoll(Spec{Body: []byte("its own"), Timeout: time.Hour}, false)
			b.untilLive(4)
			last := a.publish("before", "room")
			stream.wantPosition()
			stream.wantEvent("before")
			envelope.wantOpen()
			envelope.want(opText, fmt.Sprintf(`{"id":%d,"event":null,"data":"before"}`, last))
			bare.wantText("before")
			poll.wantAnswer("before", fmt.Sprint(last), false)
			poll = b.openPoll(Spec{Body: []byte("its own"), Timeout: time.Hour}, false)
			b.untilLive(4)

			cut.off(true)
			b.until("the node has lost the bus", func() bool { return !b.node.connected.Load() })
			lose(t, shared, a)
			cut.off(false)

			from := stream.wantGap(last)
			envelope.want(opText, fmt.Sprintf(`{"id":null,"event":"m0-gap","data":{"last_event_id":%d,"head":%d}}`, last, from))
			bare.wantClose(1013, "bus_lost")
			if res, body := poll.answer(); body != "its own" || res.Header.Get("M0-Gap") != "true" || res.Header.Get("M0-Event-Id") < fmt.Sprint(from) {
				t.Errorf("the long poll is answered %q with %v, want its own answer, a gap, and %d or what came behind it", body, res.Header, from)
			}
			a.publish("after", "room")
			stream.wantEvent("after")
			if n := b.ended(ModeWebSocket, EndBusLost); n != 1 {
				t.Errorf("%d sockets ended bus_lost, want 1", n)
			}
			back := b.open(Spec{Channels: []string{"room"}, Last: fmt.Sprint(last)})
			back.wantGap(last)
		})
	}
}

// Nobody was there to see that the bus has lost something.
func TestNode_APositionThatTheBusHasLostIsAGapThoughEveryNodeIsNew(t *testing.T) {
	shared := bus.NewMemory(bus.Options{})
	a := startNode(t, shared.Another(), Config{})
	first := a.publish("1", "news")
	lost := a.publish("2", "news")
	a.Close()
	shared.Restore(first)
	b := startNode(t, shared.Another(), Config{})
	b.publish("3", "news")
	c := b.open(Spec{Channels: []string{"news"}, Last: fmt.Sprint(lost)})
	c.wantGap(lost)
	c = b.open(Spec{Channels: []string{"news"}, Last: fmt.Sprint(first)})
	c.wantPosition()
	c.wantEvent("3")
}

func TestNode_AnEndReachesTheHoldsOfEveryNode(t *testing.T) {
	shared := bus.NewMemory(bus.Options{})
	a, b := startNode(t, shared, Config{}), startNode(t, shared.Another(), Config{})
	asked := b.Position()
	onA, onB := a.open(Spec{Channels: []string{"user"}}), b.openSocket(Spec{Channels: []string{"user"}})
	other := b.open(Spec{Channels: []string{"other"}})
	a.publish("before it", "user")
	if n := a.End(EndRequest{Channel: "user", Code: 4003, Reason: "left"}); n != 1 {
		t.Errorf("%d were ended here, want 1", n)
	}
	onA.wantPosition()
	onA.wantEvent("before it")
	onA.wantEnd()
	onB.wantText("before it")
	onB.wantClose(4003, "left")
	late := b.open(Spec{Channels: []string{"user"}, Position: asked}) // its view was asked before
	late.wantPosition()
	late.wantEvent("before it")
	late.wantEnd()
	a.publish("after it", "other")
	other.wantPosition()
	other.wantEvent("after it")
}

func TestNode_AConnectionIsEndedFromAnyNode(t *testing.T) {
	shared := bus.NewMemory(bus.Options{})
	a, b := startNode(t, shared, Config{}), startNode(t, shared.Another(), Config{})
	c := b.open(Spec{Channels: []string{"user"}})
	b.untilLive(1)
	a.End(EndRequest{Connection: b.Connections("user")[0]})
	c.wantPosition()
	c.wantEnd()
}

// Items have numbers of their publisher's. What a native hold is told of
// positions is still what every node knows.
func TestNode_ItemsReachEveryNodeAndPositionsStayOnesThatAllKnow(t *testing.T) {
	shared := bus.NewMemory(bus.Options{})
	a, b := startNode(t, shared, Config{}), startNode(t, shared.Another(), Config{})
	c := b.open(Spec{Channels: []string{"room"}})
	first := c.wantPosition()
	const body = `{"items":[{"channel":"room","id":"1","prev-id":"","formats":{"ws-message":{"content":"one"}}},{"channel":"room","id":"2","prev-id":"1","formats":{"ws-message":{"content":"two"}}},{"channel":"room","id":"4","prev-id":"3","formats":{"ws-message":{"content":"four"}}}]}`
	items, err := DecodeItems([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	socket := b.openSocket(Spec{Channels: []string{"room"}})
	b.untilLive(2)
	if _, err := a.Holds.PublishItems(items, []byte(body)); err != nil {
		t.Fatal(err)
	}
	socket.wantText("one", "two", "four") // the last waits for a third, in vain, and is of no entry
	if at := b.Position(); at%idStep != first%idStep {
		t.Errorf("the node tells %d as a position, the first was %d", at, first)
	}
	last := a.publish("native", "room")
	if got := c.wantEvent("native"); got != last || got%idStep != first%idStep {
		t.Errorf("its number is %d here, %d there; the first position was %d", got, last, first)
	}
	if b.Position() != last {
		t.Errorf("the node stands at %d, want %d", b.Position(), last)
	}
}

func TestNode_AnEntryThatIsNoEventIsLeftOut(t *testing.T) {
	shared := bus.NewMemory(bus.Options{})
	s := startNode(t, shared, Config{})
	c := s.open(Spec{Channels: []string{"a"}})
	for _, body := range []string{"", "x", "{}", `{"channel":"a"}`, `{"channel":"a\n","data":1}`, `{"items":[{}]}`, `{"end":{}}`, `{"end":{"channel":"a"},"data":1}`, "\xff\x00", strings.Repeat("[", 1<<16)} {
		if _, err := shared.Publish(context.Background(), [][]byte{[]byte(body)}); err != nil {
			t.Fatal(err)
		}
	}
	s.publish("an event", "a")
	c.wantPosition()
	c.wantEvent("an event")
}

func TestNode_WhatGoesThroughTheBusComesOutAsItWasPublished(t *testing.T) {
	for _, p := range []Publication{
		{Channels: []string{"a"}, Retry: -1, Data: []byte("text <>&\u2028 \"quoted\"\r\nlines\r"), Kind: DataText},
		{Channels: []string{"a", "b,c %"}, Event: "name \"x\"", Retry: 0, Data: []byte(`{"n":1.0,"s":"\ud83d"}`), Kind: DataJSON},
		{Channels: []string{"a"}, Retry: 2147483647, Data: []byte{0, 0xff, '\n'}, Kind: DataBinary},
		{Channels: []string{"é"}, Retry: -1, Kind: DataText},
	} {
		got, err := DecodePublication(p.appendBody(nil))
		if err != nil {
			t.Fatalf("%+v: %v", p, err)
		}
		if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", p) {
			t.Errorf("%+v came out as %+v", p, got)
		}
	}
	for _, r := range []EndRequest{{Channel: "a", Code: 4001, Reason: "é\""}, {Connection: "x-1-2-3", Code: 1000}} {
		end, ok := endOf(r.appendBody(nil))
		got, err := DecodeEnd(end)
		if !ok || err != nil || got != r {
			t.Errorf("%+v came out as %+v, %v", r, got, err)
		}
	}
}
