package holds

import (
	"fmt"
	"testing"

	"holdfast/holds/bus"
)

// A node without its bus holds all the same. What its clients have had from
// other nodes is looked at when the bus is there.

// startAway starts a station whose bus is away, until off(false).
func startAway(t *testing.T, b bus.Bus) (*station, *cutBus) {
	t.Helper()
	cut := &cutBus{Bus: b}
	cut.off(true)
	s := startStation(t, Config{Bus: cut})
	s.until("the bus was not reached", func() bool { return s.Bus().Trouble != nil })
	return s, cut
}

func (s *station) untilCurrent() {
	s.t.Helper()
	s.until("the node has what the bus has", func() bool { return s.node.current.Load() })
}

func TestNode_AHoldThatIsOpenedBeforeTheBusIsReachedGetsWhatItsClientHasNotHad(t *testing.T) {
	shared := bus.NewMemory(bus.Options{})
	a := startNode(t, shared, Config{})
	had := a.publish("had", "news")
	a.publish("not had", "news")
	lost := a.publish("not had either", "others") + idStep
	b, cut := startAway(t, shared.Another())
	back := b.open(Spec{Channels: []string{"news"}, Last: fmt.Sprint(had), Chunked: true})
	first := b.open(Spec{Channels: []string{"news"}, Position: b.Position(), Chunked: true})
	unknown := b.open(Spec{Channels: []string{"news"}, Last: fmt.Sprint(lost), Chunked: true})
	if at := back.wantPosition(); at != had {
		t.Errorf("it is told to be at %d, and was at %d", at, had)
	}
	cut.off(false)
	b.untilCurrent()
	back.wantEvent("not had")
	first.wantPosition()
	first.wantGap(0)
	unknown.wantPosition()
	unknown.wantGap(lost)
	b.publish("new", "news")
	for _, c := range []*streamClient{back, first, unknown} {
		c.wantEvent("new")
	}
}

func TestNode_AHoldThatIsOpenedAheadOfItsNodeWhileTheBusIsAwayGetsNothingTwice(t *testing.T) {
	shared := bus.NewMemory(bus.Options{})
	cut := &cutBus{Bus: shared.Another()}
	a, b := startNode(t, shared, Config{}), startNode(t, cut, Config{})
	cut.off(true)
	b.until("the node has lost the bus", func() bool { return !b.node.connected.Load() })
	a.publish("had too", "news")
	had := a.publish("had", "news")
	a.publish("not had", "news")
	c := b.open(Spec{Channels: []string{"news"}, Last: fmt.Sprint(had), Position: b.Position()})
	c.wantPosition()
	cut.off(false)
	c.wantEvent("not had")
	if told := b.Snapshot().GapsTold; told != 0 {
		t.Errorf("%d gaps were told where all could be had", told)
	}
}

func TestNode_APositionThatTheBusHasNotIsAGapAlsoWhereTheNodeWasBehind(t *testing.T) {
	shared := bus.NewMemory(bus.Options{})
	cut := &cutBus{Bus: shared.Another()}
	a, b := startNode(t, shared, Config{}), startNode(t, cut, Config{})
	last := a.publish("1", "news")
	b.until("it has come", func() bool { return b.Position() == last })
	cut.off(true)
	b.until("the node has lost the bus", func() bool { return !b.node.connected.Load() })
	c := b.open(Spec{Channels: []string{"news"}, Last: fmt.Sprint(last + idStep), Chunked: true})
	c.wantPosition()
	cut.off(false)
	c.wantGap(last + idStep)
	a.publish("2", "news")
	c.wantEvent("2")
}

func TestNode_AHoldIsFedNothingBeforeItIsKnownWhetherItMissesSomething(t *testing.T) {
	shared := bus.NewMemory(bus.Options{})
	a := startNode(t, shared.Another(), Config{})
	first := a.publish("1", "news")
	lost := a.publish("2", "news")
	a.Close()
	shared.Restore(first) // and nobody was there to see it
	a = startNode(t, shared.Another(), Config{})
	a.publish("3", "news")
	b, cut := startAway(t, shared.Another())
	c := b.open(Spec{Channels: []string{"news"}, Last: fmt.Sprint(lost), Chunked: true})
	c.wantPosition()
	cut.off(false)
	c.wantGap(lost)
	a.publish("4", "news")
	c.wantEvent("4")
}

func TestNode_APositionAheadOfTheBusIsAGap(t *testing.T) {
	shared := bus.NewMemory(bus.Options{})
	a := startNode(t, shared, Config{})
	made := a.publish("1", "news") + idStep
	c := a.open(Spec{Channels: []string{"news"}, Last: fmt.Sprint(made)})
	c.wantGap(made)
}

func TestNode_WhoComesWhileItStillReadsGetsNothingThatWasPublishedBefore(t *testing.T) {
	shared := bus.NewMemory(bus.Options{})
	a := startNode(t, shared, Config{})
	had := a.publish("had", "news")
	last := a.publish("old", "news")
	slow := &gatedBus{Bus: shared.Another()}
	slow.gate.Lock()
	b := startStation(t, Config{Bus: slow})
	b.until("the bus is reached", func() bool { return b.Position() == last })
	visit := func(last string) <-chan *streamClient {
		opened := make(chan *streamClient, 1)
		spec := Spec{Channels: []string{"news"}, Position: b.Position(), Last: last}
		go func() {
			c, err := b.visit(spec)
			if err != nil {
				t.Error(err)
			}
			opened <- c
		}()
		return opened
	}
	first, back := visit(""), visit(fmt.Sprint(had))
	b.until("both wait for the node", func() bool {
		b.node.mu.Lock()
		defer b.node.mu.Unlock()
		return len(b.node.waiting) == 2
	})
	slow.gate.Unlock()
	atFirst, atBack := <-first, <-back
	defer atFirst.conn.Close()
	defer atBack.conn.Close()
	a.publish("new", "news")
	atFirst.wantPosition()
	atFirst.wantEvent("new")
	atBack.wantPosition()
	atBack.wantEvent("old", "new")
}

// Whether the bus is away is asked before the hold joins. If it is reached in
// between, nobody would look at the hold again.
func TestHub_AHoldOfANodeThatHasReachedItsBusSinceIsNotOpenedAheadOfIt(t *testing.T) {
	s := newStage(Config{})
	for _, row := range []struct {
		begins, away uint64
		gap          bool
	}{{0, 1, false}, {1, 1, true}, {1, 2, false}, {1, 0, true}, {0, 0, true}} {
		s.hub.begins.Store(row.begins)
		ahead := s.hub.head.Load() + idStep
		o := &opening{from: ahead, last: ahead, away: row.away}
		h, _ := s.openFrom(-1, o, "news")
		if o.gap != row.gap || h.claim > 0 == row.gap {
			t.Errorf("reached %d times, asked behind %d: a gap is %v, its claim %d; want a gap: %v", row.begins, int64(row.away)-1, o.gap, h.claim, row.gap)
		}
	}
}
