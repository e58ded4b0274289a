package holds

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// delivery is many clients and what is published to them.
type delivery struct {
	*station
	log     eventLog
	names   []string
	readers sync.WaitGroup
	failed  atomic.Int64
}

// finally is the data of the event after which nothing comes.
const finally = "finally"

// read reads a client's stream to the last event, and compares.
func (d *delivery) read(c *streamClient, position int64, channels []string) {
	defer d.readers.Done()
	defer c.conn.Close()
	got, err := c.idsUntil(finally)
	d.compare(got, err, position, channels)
}

// compare requires what was got to be everything after a position.
func (d *delivery) compare(got []int64, err error, position int64, channels []string) {
	if diff := difference(got, d.log.after(position, channels)); diff != "" || err != nil {
		if d.failed.Add(1) <= 5 {
			d.t.Errorf("a client of %v from %d: %s (%v)", channels, position, diff, err)
		}
	}
}

// some gives n of the channels, up to three, from the i-th on: different ones,
// their number being prime.
func (d *delivery) some(i, n int) (channels []string) {
	for k := range n {
		channels = append(channels, d.names[(i+k*(1+i%3))%len(d.names)])
	}
	return channels
}

// publishAtOnce has the publishers publish their next event each time that
// the tide rises, all at the same time.
func (d *delivery) publishAtOnce(publisher, events int, tide <-chan struct{}) {
	for i := range events {
		<-tide
		n := publisher + i*7
		d.log.publish(d.Holds, text(fmt.Sprint("event ", i, " of publisher ", publisher), d.some(n, 1+n%3)...))
	}
}

func TestHolds_EveryClientHasEveryEventAfterItsPositionOnceInOrder(t *testing.T) {
	const holds, publishers, events = 2000, 4, 200
	needDescriptors(t, 2*holds+200)
	d := &delivery{station: startStation(t, Config{}), names: []string{"a", "b", "c", "d", "e", "f", "g"}}

	var publishing sync.WaitGroup
	tides := make([]chan struct{}, publishers)
	for p := range tides {
		tides[p] = make(chan struct{}, events)
		publishing.Go(func() { d.publishAtOnce(p, events/publishers, tides[p]) })
	}
	positions := []int64{d.Position()}
	every := holds / (events / publishers)
	for i := range holds {
		position := d.Position() // as the view begins
		positions = append(positions, position)
		if i%5 == 0 {
			position = positions[i/2] // of a view that took long
		}
		if i%every == every/2 {
			for _, tide := range tides {
				tide <- struct{}{}
			}
		}
		channels := d.some(i, 1+i%3)
		c, err := d.visit(Spec{Channels: channels, Position: position, Chunked: i%2 == 0})
		if err != nil {
			t.Fatal(err)
		}
		d.readers.Add(1)
		go d.read(c, position, channels)
	}
	publishing.Wait()
	_, reached := d.Publish(text(finally, d.names...))
	d.readers.Wait()
	t.Logf("%d holds, %d events, the last to %d members, %d deliveries", holds, events, reached, d.Snapshot().Offered)
}

func TestHolds_AnEventToSeveralChannelsReachesAHoldOnce(t *testing.T) {
	for name, start := range stations {
		t.Run(name, func(t *testing.T) {
			s := start(t, Config{})
			c := s.open(Spec{Channels: []string{"a", "b", "c"}})
			c.wantPosition()
			id, reached := s.Publish(text("to three", "c", "a", "b"))
			if reached != 3 {
				t.Errorf("it reached %d members, want 3: the hold counts in each of its channels", reached)
			}
			if got := c.wantEvent("to three"); got != id {
				t.Errorf("its id is %d, want %d", got, id)
			}
			s.publish("the next", "b")
			c.wantEvent("the next")
		})
	}
}

// Slower than they are published: what waits goes out in order, too.
func TestHolds_ManyEventsComeInOrderOverAnyConnection(t *testing.T) {
	const events = 2000
	data := strings.Repeat(" padding", 100)
	for name, start := range stations {
		t.Run(name, func(t *testing.T) {
			s := start(t, Config{OutboxBytes: 8 << 20, Journal: JournalLimits{Events: events}})
			c := s.open(Spec{Channels: []string{"a"}, Chunked: true})
			first := s.publish("while it is opened", "a")
			c.wantPosition()
			if id := c.wantEvent("while it is opened"); id != first {
				t.Errorf("the event's id is %d, want %d", id, first)
			}
			for i := range events {
				s.publish(fmt.Sprint(i, data), "a")
			}
			for i := range events {
				c.wantEvent(fmt.Sprint(i, data))
			}
			s.End(EndRequest{Channel: "a"})
			c.wantEnd()
		})
	}
}

// A connection's finalizer closes its descriptor: nothing may be left that has one.
func TestHolds_GarbageCollectionClosesNoHold(t *testing.T) {
	const holds = 1000
	needDescriptors(t, 2*holds+200)
	s := startStation(t, Config{})
	clients := make([]*streamClient, holds)
	for i := range clients {
		clients[i] = s.open(Spec{Channels: []string{"a"}})
	}
	for range 5 {
		runtime.GC()
	}
	s.publish("still there", "a")
	for _, c := range clients {
		c.wantPosition()
		c.wantEvent("still there")
	}
	if n := s.Snapshot().Streams; n != holds {
		t.Errorf("%d holds are left of %d", n, holds)
	}
}

// visitor opens one hold after the other, each on a channel of its own.
type visitor struct {
	visit  atomic.Int64 // the one it is on
	credit atomic.Int64 // events that may be on their way to it
}

// Clients leave, others come, whose descriptors have the same numbers, and to
// each one's channel is published while it comes and leaves.
func TestHolds_ADescriptorUsedAgainNeverGetsAnothersBytes(t *testing.T) {
	const visits, atOnce = 80, 8
	s := startStation(t, Config{})
	var stop atomic.Bool
	var visitors [8]visitor
	var publishing, visiting sync.WaitGroup
	for range 2 {
		publishing.Go(func() {
			for i := 0; !stop.Load(); i++ {
				v := &visitors[i%len(visitors)]
				if v.credit.Add(-1) < 0 {
					v.credit.Add(1)
					runtime.Gosched()
					continue
				}
				name := ownChannel(i%len(visitors), v.visit.Load())
				s.publish(name, name)
			}
		})
	}
	for i := range visitors {
		v := &visitors[i]
		visiting.Go(func() {
			for visit := range int64(visits) {
				spec := Spec{Channels: []string{ownChannel(i, visit)}, Position: s.Position()}
				v.visit.Store(visit)
				v.credit.Store(atOnce)
				if err := v.come(s, spec, 1+int(visit)%4, visit%2 == 0); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	visiting.Wait()
	stop.Store(true)
	publishing.Wait()
}

func ownChannel(visitor int, visit int64) string {
	return fmt.Sprint("visitor ", visitor, " visit ", visit)
}

// come opens a hold, reads some events and leaves, by a FIN or by a reset,
// while more of them are on their way.
func (v *visitor) come(s *station, spec Spec, events int, reset bool) error {
	name := spec.Channels[0]
	c, err := s.visit(spec)
	if err != nil {
		return err
	}
	defer c.conn.Close()
	for events > 0 {
		e, err := c.block()
		if err != nil {
			return fmt.Errorf("%s: its connection ended before it left: %w", name, err)
		}
		if !e.fires {
			continue
		}
		if e.data != name {
			return fmt.Errorf("%s was given an event of %s", name, e.data)
		}
		events--
		v.credit.Add(1)
	}
	if reset {
		c.reset()
	}
	return nil
}

func TestLoop_LookupFindsNothingByThePlaceOfAHoldThatLeft(t *testing.T) {
	s := newStage(Config{})
	first, _ := s.open(-1, "a")
	s.rest()
	slot, generation := first.slot, first.generation
	if s.loop.lookup(slot, generation) != first {
		t.Fatal("the hold is not found by its own place")
	}
	s.loop.hangUp(first)
	s.loop.bury()
	if got := s.loop.lookup(slot, generation); got != nil {
		t.Errorf("the vacant place gives %v", got)
	}
	second, _ := s.open(-1, "a")
	s.rest()
	if second.slot != slot {
		t.Fatalf("the next hold has place %d, not %d again: this proves nothing", second.slot, slot)
	}
	if s.loop.lookup(slot, generation) != nil {
		t.Error("the new hold is found by the old one's generation")
	}
	if s.loop.lookup(slot, second.generation) != second {
		t.Error("the new hold is not found by its own")
	}
	if s.loop.lookup(slot+1, 1) != nil {
		t.Error("a place beyond the table gives a hold")
	}
}

// narrow gives the loops another pace.
func (s *station) narrow(p pace) {
	for _, l := range s.hub.loops {
		s.ask(l, func() {
			s.hub.mu.Lock() // push reads it under mu
			l.pace = p
			s.hub.mu.Unlock()
		})
	}
}

// stopLoops stops all loops until they are released.
func (s *station) stopLoops() (release func()) {
	stopped, released := make(chan struct{}), make(chan struct{})
	for _, l := range s.hub.loops {
		s.hub.call(l, func() {
			stopped <- struct{}{}
			<-released
		})
		<-stopped
	}
	return func() { close(released) }
}

func TestHolds_AnInboxThatOverflowsLosesNothing(t *testing.T) {
	s := startStation(t, Config{})
	s.narrow(pace{slice: 4, walks: 2, catch: 2, events: 8, bytes: 1 << 20})
	var clients []*streamClient
	for range 40 {
		c := s.open(Spec{Channels: []string{"a", "b"}})
		c.wantPosition()
		clients = append(clients, c)
	}
	const rounds, events = 5, 40
	for round := range rounds {
		release := s.stopLoops()
		for i := range events {
			s.publish(fmt.Sprint("round ", round, " event ", i), []string{"a", "b"}[i%2])
		}
		overflows := 0
		s.hub.mu.Lock()
		for _, l := range s.hub.loops {
			if l.overflow {
				overflows++
			}
		}
		s.hub.mu.Unlock()
		release()
		if overflows != len(s.hub.loops) {
			t.Fatalf("%d of %d inboxes have overflowed: this proves nothing", overflows, len(s.hub.loops))
		}
	}
	for _, c := range clients {
		for n := range rounds * events {
			c.wantEvent(fmt.Sprint("round ", n/events, " event ", n%events))
		}
	}
}

func TestHolds_ALargeEventReachesAClientThatReads(t *testing.T) {
	s := startStation(t, Config{})
	data := strings.Repeat("0123456789abcdef", MaxData/16)
	for _, chunked := range []bool{false, true} {
		c := s.open(Spec{Channels: []string{"a"}, Chunked: chunked})
		c.wantPosition()
		s.publish(data, "a")
		c.wantEvent(data)
		s.publish("after it", "a")
		c.wantEvent("after it")
	}
}

// The whole of what goes over the wire: nothing is read into it by a parser.
func TestHolds_BytesOnTheWire(t *testing.T) {
	s := startStation(t, Config{})
	for _, chunked := range []bool{false, true} {
		position := s.Position()
		id := s.publish("while the view ran", "a")
		c := s.open(Spec{Channels: []string{"a"}, Position: position, Chunked: chunked, Body: []byte("data: hello\n\n")})
		first := fmt.Sprintf("data: hello\n\nid: %d\n\n", position)
		second := fmt.Sprintf("id: %d\ndata: while the view ran\n\n", id)
		want := plainHead + first + second
		if chunked {
			want = chunkedHead + fmt.Sprintf("%x\r\n%s\r\n%x\r\n%s\r\n", len(first), first, len(second), second)
		}
		got := make([]byte, len(want))
		if _, err := io.ReadFull(c.conn, got); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, []byte(want)) {
			t.Errorf("it is sent\n%q, want\n%q", got, want)
		}
		end := ""
		if chunked {
			end = "0\r\n\r\n"
		}
		s.End(EndRequest{Channel: "a"})
		if rest, err := io.ReadAll(c.conn); err != nil || string(rest) != end {
			t.Errorf("the end is %q, %v; want %q", rest, err, end)
		}
	}
}
