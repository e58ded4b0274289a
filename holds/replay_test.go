package holds

import (
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// returning is a client that comes back with the last id that it has seen.
type returning struct {
	*delivery
	rand     *rand.Rand
	channels []string
	first    int64 // the position of its first visit
	last     string
	got      []int64
}

// returningData is the size of each event's data.
const returningData = 300

// come visits, reads any number of bytes of what is there for it, and leaves.
// cut: it left before it had all of that.
func (r *returning) come() (cut bool, err error) {
	due := len(r.log.after(r.seen(), r.channels))
	c, err := r.open()
	if err != nil {
		return false, err
	}
	defer c.conn.Close()
	some := &io.LimitedReader{R: c.conn, N: int64(r.rand.IntN(len(plainHead) + due*returningData))}
	c.in = some
	before := len(r.got)
	if err := r.read(c); some.N > 0 {
		return false, err
	}
	if r.rand.IntN(2) == 0 {
		c.reset()
	}
	return len(r.got)-before < due, nil
}

// stay visits and reads to the end.
func (r *returning) stay() error {
	c, err := r.open()
	if err != nil {
		return err
	}
	defer c.conn.Close()
	return r.read(c)
}

// seen is the position up to which it has everything.
func (r *returning) seen() int64 {
	if at, ok := parsePosition(r.last); ok {
		return at
	}
	return r.first
}

func (r *returning) open() (*streamClient, error) {
	spec := Spec{Channels: r.channels, Position: r.first, Last: r.last, Chunked: r.rand.IntN(2) == 0}
	if r.rand.IntN(2) == 0 {
		return r.visit(spec, tight)
	}
	return r.visit(spec)
}

// read does what an EventSource does, with blocks that come whole.
func (r *returning) read(c *streamClient) error {
	got, err := c.idsUntil(finally)
	r.got = append(r.got, got...)
	if c.stream.lastID != 0 {
		r.last = strconv.FormatInt(c.stream.lastID, 10)
	}
	return err
}

// Clients leave at any byte, most of them while they are fed from the journal,
// and come back with what they have seen.
func TestReplay_AThousandClientsThatComeBackMissNothingAndGetNothingTwice(t *testing.T) {
	const clients, visits, before, every = 1000, 3, 60, 20
	needDescriptors(t, 2*clients+200)
	d := &delivery{station: startStation(t, Config{}), names: []string{"a", "b", "c", "d", "e"}}
	data := strings.Repeat("x", returningData)
	start := d.Position()
	for i := range before {
		d.log.publish(d.Holds, text(data, d.some(i, 1+i%2)...))
	}
	var coming, staying sync.WaitGroup
	var came, cut, gone atomic.Int64
	coming.Add(clients)
	for i := range clients {
		r := &returning{delivery: d, rand: rand.New(rand.NewPCG(1, uint64(i))), channels: d.some(i, 1+i%2), first: start}
		if i%3 == 0 {
			r.first = d.Position()
		}
		staying.Go(func() {
			for range visits {
				wasCut, err := r.come()
				if err != nil {
					t.Errorf("client %d: %v", i, err)
				}
				if wasCut {
					cut.Add(1)
				}
				if n := came.Add(1); n%every == 0 {
					d.log.publish(d.Holds, text(data, d.some(int(n/every), 1+int(n)%3)...))
				}
			}
			coming.Done()
			err := r.stay()
			d.compare(r.got, err, r.first, r.channels)
			gone.Add(1)
		})
	}
	coming.Wait()
	d.Publish(text(finally, d.names...))
	staying.Wait()
	t.Logf("%d visits, %d of them cut before all was read, %d events, %d deliveries", came.Load(), cut.Load(), before+came.Load()/every, d.Snapshot().Offered)
	if cut.Load() < clients {
		t.Errorf("only %d visits were cut in their replay: this proves little", cut.Load())
	}
}

// The client leaves while its hold is fed from the journal: most of the replay
// has not been written then.
func TestReplay_AClientThatLeavesInTheMiddleOfItMissesNothing(t *testing.T) {
	const events = 200
	s := startStation(t, Config{})
	start := s.Position()
	for i := range events {
		s.publish(strconv.Itoa(i)+strings.Repeat(" padding", 2<<10), "a")
	}
	first := s.open(Spec{Channels: []string{"a"}, Position: start}, func(_, server net.Conn) {
		server.(*net.TCPConn).SetWriteBuffer(4 << 10)
	})
	if at := first.wantPosition(); at != start {
		t.Fatalf("it is told position %d, want %d", at, start)
	}
	var got int
	for ; got < 10; got++ {
		wantNumbered(t, first, got)
	}
	first.reset()
	s.untilEnded(1, EndClient)
	if n := s.Snapshot().Offered; n >= events {
		t.Fatalf("all %d events had been written when it left: this proves nothing", n)
	}
	second := s.open(Spec{Channels: []string{"a"}, Position: s.Position(), Last: strconv.FormatInt(first.stream.lastID, 10)})
	if at := second.wantPosition(); at != first.stream.lastID {
		t.Fatalf("it is told position %d, want that of the last event, %d", at, first.stream.lastID)
	}
	for ; got < events; got++ {
		wantNumbered(t, second, got)
	}
	s.publish("live", "a")
	second.wantEvent("live")
}

func wantNumbered(t *testing.T, c *streamClient, n int) {
	t.Helper()
	if e := c.said(); !strings.HasPrefix(e.data, strconv.Itoa(n)+" ") {
		t.Fatalf("event with %.20q, where %d was due", e.data, n)
	}
}

// What is published while a client is fed from the journal is behind that.
func TestReplay_WhatIsPublishedMeanwhileComesAfterIt(t *testing.T) {
	const events, more = 100, 100
	s := startStation(t, Config{})
	start := s.Position()
	for i := range events {
		s.publish(strconv.Itoa(i)+strings.Repeat(" padding", 2<<10), "a")
	}
	c := s.open(Spec{Channels: []string{"b", "a"}, Position: start}, func(_, server net.Conn) {
		server.(*net.TCPConn).SetWriteBuffer(4 << 10)
	})
	s.until("its replay has begun", func() bool { return s.Snapshot().Offered > 0 })
	for i := range more {
		s.publish(strconv.Itoa(events+i)+" ", []string{"a", "b"}[i%2])
	}
	if n := s.Snapshot().Offered; n >= events {
		t.Fatalf("its replay is over, %d events: this proves nothing", n)
	}
	c.wantPosition()
	for i := range events + more {
		wantNumbered(t, c, i)
	}
}

// It has got the position block alone, and keeps its number.
func TestReplay_AClientThatHasReceivedNothingYetMissesNothing(t *testing.T) {
	s := startStation(t, Config{})
	s.publish("before its view", "a")
	position := s.Position()
	s.publish("while its view runs", "b")
	first := s.open(Spec{Channels: []string{"a"}, Position: position})
	if at := first.wantPosition(); at != position {
		t.Fatalf("it is told position %d, want %d, from where it is fed", at, position)
	}
	first.conn.Close()
	s.untilEnded(1, EndClient)
	s.publish("while it was away", "a")
	s.publish("to others", "b")

	second := s.open(Spec{Channels: []string{"a"}, Position: s.Position(), Last: strconv.FormatInt(first.stream.lastID, 10)})
	if at := second.wantPosition(); at != position {
		t.Errorf("it is told position %d, want the one it came with, %d", at, position)
	}
	second.wantEvent("while it was away")
	second.conn.Close()

	// And once more, when it has left before it was told a position anew.
	third := s.open(Spec{Channels: []string{"a", "b"}, Position: s.Position(), Last: strconv.FormatInt(position, 10)})
	third.wantPosition()
	third.wantEvent("while its view runs", "while it was away", "to others")
}

func TestReplay_TenMegabytesReachAClientThatReads(t *testing.T) {
	const events, size = 160, 64 << 10
	s := startStation(t, Config{Journal: JournalLimits{Bytes: 32 << 20}})
	start := s.Position()
	for i := range events {
		s.publish(strconv.Itoa(i)+" "+strings.Repeat("x", size), "a")
	}
	large := strings.Repeat("y", MaxData)
	s.publish(large, "a")
	for _, chunked := range []bool{false, true} {
		c := s.open(Spec{Channels: []string{"a"}, Position: start, Chunked: chunked})
		c.wantPosition()
		for i := range events {
			c.wantEvent(strconv.Itoa(i) + " " + strings.Repeat("x", size))
		}
		c.wantEvent(large)
	}
}

// Its replay never counts as too far behind: it is not slow but stalled, and
// what waits for it is one fetch.
func TestReplay_AClientThatNeverReadsItIsStalledAndLittleWaitsForIt(t *testing.T) {
	const events, size = 160, 64 << 10
	s := startStation(t, Config{Journal: JournalLimits{Bytes: 32 << 20}, WriteStall: 50 * time.Millisecond, OutboxBytes: 1})
	start := s.Position()
	for i := range events {
		s.publish(strconv.Itoa(i)+" "+strings.Repeat("x", size), "a")
	}
	c := s.open(Spec{Channels: []string{"a"}, Position: start}, tight)
	most := int64(0)
	s.until("it is ended", func() bool {
		n := s.Snapshot()
		most = max(most, n.OutboxBytes)
		return n.Ended[ModeStream]["stalled"] == 1
	})
	if bound := int64(fetchBytes + size + 1000); most > bound || most == 0 {
		t.Errorf("up to %d bytes waited; one fetch is %d at most", most, bound)
	}
	c.wantReset()
}

func TestReplay_WhatTheJournalHasNotAllOfIsAGapAndNothingElse(t *testing.T) {
	s := startStation(t, Config{Journal: JournalLimits{Events: 4}})
	start := s.Position()
	var ids []int64
	for i := range 6 {
		ids = append(ids, s.publish(strconv.Itoa(i), "a"))
	}
	// The second is the newest that was lost: from there on all is there.
	whole := s.open(Spec{Channels: []string{"a"}, Position: s.Position(), Last: strconv.FormatInt(ids[1], 10)})
	if at := whole.wantPosition(); at != ids[1] {
		t.Errorf("it is told position %d, want %d", at, ids[1])
	}
	whole.wantEvent("2", "3", "4", "5")

	for _, from := range []int64{ids[0], start} {
		c := s.open(Spec{Channels: []string{"b", "a"}, Position: s.Position(), Last: strconv.FormatInt(from, 10)})
		if head := c.wantGap(from); head != ids[5] {
			t.Errorf("the gap says that the head is %d, want %d", head, ids[5])
		}
		s.publish("live", "b")
		c.wantEvent("live")
		ids[5] = s.Position()
	}
	if n := s.Snapshot().GapsTold; n != 2 {
		t.Errorf("%d gaps were counted, want 2", n)
	}
}

// Of a position that the client brings, and one that its view took.
func TestReplay_ASlowViewWhosePositionIsTooOldIsTold(t *testing.T) {
	s := startStation(t, Config{Journal: JournalLimits{Events: 1}})
	start := s.Position()
	s.publish("0", "a")
	head := s.publish("1", "a")
	c := s.open(Spec{Channels: []string{"a"}, Position: start})
	if got := c.wantGap(start); got != head {
		t.Errorf("the gap says that the head is %d, want %d", got, head)
	}
}

func TestReplay_APositionThatIsNoNumberIsAFirstVisit(t *testing.T) {
	s := startStation(t, Config{})
	for _, last := range []string{"", "abc", "-1", "+17", "1e15", "0x10", " 17", "17 ", "1.5", "１７", "\xff"} {
		position := s.Position()
		c := s.open(Spec{Channels: []string{"a"}, Position: position, Last: last})
		s.publish("after its view began", "a")
		if at := c.wantPosition(); at != position {
			t.Errorf("Last-Event-ID %q: it is told position %d, want %d", last, at, position)
		}
		c.wantEvent("after its view began")
		c.conn.Close()
	}
	if n := s.Snapshot().GapsTold; n != 0 {
		t.Errorf("%d gaps were told", n)
	}
}

func TestReplay_APositionThatIsNoneOfThisRunIsAGap(t *testing.T) {
	s := startStation(t, Config{})
	start := s.Position()
	head := s.publish("known", "a")
	for what, last := range map[string]int64{
		"ahead of the head":        head + idStep,
		"far ahead":                head + 1_000_000*idStep,
		"before the run":           start - idStep,
		"with another tag":         head + 1,
		"with another tag, behind": head - 1,
		"0":                        0,
		"the highest there may be": 1<<63 - 1,
	} {
		c := s.open(Spec{Channels: []string{"a"}, Position: head, Last: strconv.FormatInt(last, 10)})
		if got := c.wantGap(last); got != head {
			t.Errorf("%s: the gap says that the head is %d, want %d", what, got, head)
		}
		c.conn.Close()
	}
	c := s.open(Spec{Channels: []string{"a"}, Position: head, Last: "99999999999999999999999"})
	if got := c.wantGap(1<<63 - 1); got != head {
		t.Errorf("beyond all numbers: the gap says that the head is %d, want %d", got, head)
	}
}

// startAnother is a station whose ids have another tag than those of s.
func startAnother(t *testing.T, s *station) *station {
	t.Helper()
	for {
		another := startStation(t, Config{})
		if another.hub.tag.Load() != s.hub.tag.Load() {
			return another
		}
	}
}

func TestReplay_AClientOfAnEarlierRunIsToldOfAGap(t *testing.T) {
	first := startStation(t, Config{})
	position := first.Position()
	id := first.publish("of the first run", "a")
	first.Close()

	second := startAnother(t, first)
	for _, last := range []int64{id, position} {
		head := second.publish("of the second run", "a")
		c := second.open(Spec{Channels: []string{"a"}, Position: second.Position(), Last: strconv.FormatInt(last, 10)})
		if got := c.wantGap(last); got != head {
			t.Errorf("the gap says that the head is %d, want %d", got, head)
		}
		second.publish("live", "a")
		c.wantEvent("live")
	}
	// The position of a page that the first run rendered is one of its too.
	c := second.open(Spec{Channels: []string{"a"}, Position: position})
	c.wantGap(position)
}
