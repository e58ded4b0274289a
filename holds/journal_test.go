package holds

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// ring gives the ids that a channel's ring has.
func (s *stage) ring(channel string) (ids []int64) {
	r := s.hub.journal.rooms[channel]
	if r == nil {
		return nil
	}
	for _, e := range r.ring {
		ids = append(ids, e.id)
	}
	return ids
}

// all gives the ids of the events that the journal has, oldest first.
func (s *stage) all() (ids []int64) {
	for e := s.hub.journal.oldest; e != nil; e = e.next {
		ids = append(ids, e.id)
	}
	return ids
}

// gapFrom reports whether a client that comes back to channels from a position
// is told of a gap. It leaves at once.
func (s *stage) gapFrom(position int64, channels ...string) bool {
	o := &opening{from: position, last: position}
	h, _ := s.openFrom(-1, o, channels...)
	s.rest()
	s.loop.hangUp(h)
	s.loop.bury()
	return o.gap
}

func TestJournal_KeepsSoManyEventsOfEachChannel(t *testing.T) {
	s := newStage(Config{Journal: JournalLimits{Events: 3}})
	for range 5 {
		s.publish("to a", "a")
	}
	var both []int64
	for range 5 {
		both = append(both, s.publish("to both", "a", "b"))
	}
	quiet := s.publish("to c", "c")
	for channel, want := range map[string][]int64{"a": both[2:], "b": both[2:], "c": {quiet}} {
		if got := s.ring(channel); !slices.Equal(got, want) {
			t.Errorf("channel %s has %v, want %v", channel, got, want)
		}
	}
	if got, want := s.all(), append(slices.Clone(both[2:]), quiet); !slices.Equal(got, want) {
		t.Errorf("the journal has %v, want %v", got, want)
	}
	if floor := s.hub.journal.rooms["b"].floor; floor != both[1] {
		t.Errorf("the floor of b is %d, want %d", floor, both[1])
	}
}

// An event is in it as long as one of its channels has it.
func TestJournal_AnEventGoesWhenTheLastOfItsChannelsHasLostIt(t *testing.T) {
	s := newStage(Config{Journal: JournalLimits{Events: 2}})
	both := s.publish("to both", "a", "b")
	a := []int64{s.publish("to a", "a"), s.publish("to a", "a")}
	if got := s.all(); !slices.Equal(got, []int64{both, a[0], a[1]}) {
		t.Errorf("when a has lost it the journal has %v", got)
	}
	b := []int64{s.publish("to b", "b"), s.publish("to b", "b")}
	if got := s.all(); !slices.Equal(got, slices.Concat(a, b)) {
		t.Errorf("when both have lost it the journal has %v, want %v", got, slices.Concat(a, b))
	}
}

func TestJournal_ABoundThatIsLoweredIsMetByTheNextEvent(t *testing.T) {
	s := newStage(Config{Journal: JournalLimits{Events: 10}})
	for range 10 {
		s.publish("x", "a")
	}
	s.hub.journal.limits.Events = 3
	s.publish("x", "a")
	if n := len(s.ring("a")); n != 3 {
		t.Errorf("the channel has %d events, and may have 3", n)
	}
}

// With what it takes beside the events' data: small events would otherwise take
// many times the bound. A room that an event makes is counted from the next one on.
func TestJournal_ItsBytesAreBoundedOverheadIncluded(t *testing.T) {
	const bound = 100_000
	for _, size := range []int{0, 1, 100, 10_000} {
		s := newStage(Config{Journal: JournalLimits{Events: 1 << 20, Bytes: bound}})
		most, newest := 0, int64(0)
		for i := range 3000 {
			newest = s.publish(strings.Repeat("x", size), fmt.Sprint(i%20))
			most = max(most, s.hub.journal.bytes)
		}
		n := len(s.all())
		if most > bound+roomOverhead || n == 0 || s.all()[n-1] != newest {
			t.Errorf("events of %d bytes: up to %d bytes, and %d events at the end", size, most, n)
		}
		if least := (size + eventOverhead) * n; s.hub.journal.bytes < least {
			t.Errorf("%d events of %d bytes are counted as %d", n, size, s.hub.journal.bytes)
		}
		if used := s.hub.journal.bytes; used < bound/2 && size < 10_000 {
			t.Errorf("events of %d bytes: %d bytes of %d are used", size, used, bound)
		}
	}
}

func TestJournal_OfAllChannelsTheOldestEventGoesFirst(t *testing.T) {
	s := newStage(Config{Journal: JournalLimits{Bytes: 20_000}})
	for i := range 500 {
		s.publish("x", fmt.Sprint(i%7))
	}
	kept := s.all()
	oldest := kept[0]
	for i := range 7 {
		r := s.hub.journal.rooms[fmt.Sprint(i)]
		if r == nil || r.floor >= oldest || len(r.ring) > 0 && r.ring[0].id < oldest {
			t.Errorf("channel %d: ring %v, and the oldest of all is %d", i, s.ring(fmt.Sprint(i)), oldest)
		}
	}
}

// A client that reads an event that is larger than the journal may be still
// gets it, and comes back to a gap only when there is one.
func TestJournal_AnEventLargerThanItsBytesIsItsOnlyOne(t *testing.T) {
	s := newStage(Config{Journal: JournalLimits{Bytes: 10_000}})
	before := s.publish("x", "a")
	large := s.publish(strings.Repeat("x", 50_000), "b")
	if got := s.all(); !slices.Equal(got, []int64{large}) {
		t.Errorf("the journal has %v, want %d alone", got, large)
	}
	next := s.publish("x", "a")
	if got := s.all(); !slices.Equal(got, []int64{next}) {
		t.Errorf("then it has %v, want %d alone", got, next)
	}
	for _, c := range []struct {
		position int64
		channel  string
		gap      bool
	}{{before, "a", false}, {before, "b", true}, {large, "b", false}, {large, "a", false}} {
		if got := s.gapFrom(c.position, c.channel); got != c.gap {
			t.Errorf("back to %s from %d: a gap is %v, want %v", c.channel, c.position, got, c.gap)
		}
	}
}

func TestJournal_WhatIsTooOldIsLostWhenTheNextEventComes(t *testing.T) {
	s := newStage(Config{Journal: JournalLimits{Age: time.Minute}})
	first := s.publish("first", "a")
	s.clock.at = s.clock.at.Add(40 * time.Second)
	second := s.publish("second", "b")
	s.clock.at = s.clock.at.Add(20 * time.Second)
	third := s.publish("third", "b")
	if got := s.all(); !slices.Equal(got, []int64{first, second, third}) {
		t.Errorf("at its age the journal has %v, want all", got)
	}
	s.clock.at = s.clock.at.Add(time.Millisecond)
	fourth := s.publish("fourth", "b")
	if got := s.all(); !slices.Equal(got, []int64{second, third, fourth}) {
		t.Errorf("beyond its age the journal has %v, want all but the first", got)
	}
}

func TestJournal_AReturnFromBeforeTheFloorIsAGapAndFromTheFloorIsNone(t *testing.T) {
	s := newStage(Config{Journal: JournalLimits{Events: 2}})
	start := s.hub.head.Load()
	elsewhere := s.publish("x", "b")
	var ids []int64
	for range 4 {
		ids = append(ids, s.publish("x", "a"))
	}
	for _, c := range []struct {
		position int64
		gap      bool
	}{{start, true}, {elsewhere, true}, {ids[0], true}, {ids[1], false}, {ids[2], false}, {ids[3], false}} {
		if got := s.gapFrom(c.position, "a"); got != c.gap {
			t.Errorf("from %d, with %v lost: a gap is %v", c.position, ids[:2], got)
		}
		if got := s.gapFrom(c.position, "b", "c", "a"); got != c.gap {
			t.Errorf("in three channels, from %d: a gap is %v", c.position, got)
		}
	}
	if s.gapFrom(start, "b") || s.gapFrom(start, "never published to") {
		t.Error("a channel that has lost nothing has a gap")
	}
}

// First its room is kept for it, then a number by its name's hash.
func TestJournal_FloorsOutliveTheirRooms(t *testing.T) {
	s := newStage(Config{Journal: JournalLimits{Age: time.Minute}})
	start := s.hub.head.Load()
	lost := s.publish("lost", "a")
	s.clock.at = s.clock.at.Add(2 * time.Minute)
	s.publish("x", "elsewhere")
	if r := s.hub.journal.rooms["a"]; r == nil || len(r.ring) != 0 || r.quiet == 0 {
		t.Fatalf("the channel's room is %+v: this proves nothing", r)
	}
	if !s.gapFrom(start, "a") || s.gapFrom(lost, "a") {
		t.Error("while its room is quiet: its floor is wrong")
	}
	for range 3 { // and again, after it was there anew
		s.forgetQuiet("a")
		if !s.gapFrom(start, "a") {
			t.Error("when its room is forgotten: no gap from before what was lost")
		}
		s.forgetQuiet("a")
		if s.gapFrom(lost, "a") {
			t.Error("when its room is forgotten: a gap from what was lost last")
		}
	}
}

// Of the channels that share a number the highest floor stays, in whichever
// order they are forgotten.
func TestJournal_AFloorIsNotLoweredByAnotherChannels(t *testing.T) {
	s := newStage(Config{Journal: JournalLimits{Events: 1, Age: time.Minute}})
	neighbour := s.neighbourOf("a")
	for range 2 { // the first of them is lost
		s.publish("x", neighbour)
	}
	member, _ := s.open(-1, neighbour)
	s.rest()
	var ids []int64
	for range 3 {
		ids = append(ids, s.publish("x", "a"))
	}
	s.forgetQuiet("a")
	s.loop.hangUp(member)
	s.loop.bury()
	s.forgetQuiet("a", neighbour)
	if !s.gapFrom(ids[0], "a") {
		t.Error("no gap from before what was lost")
	}
}

// A member's channel is never forgotten, however long nothing comes.
func TestJournal_ARoomWithMembersIsKept(t *testing.T) {
	for _, was := range []string{"new", "quiet"} {
		s := newStage(Config{Journal: JournalLimits{Age: time.Minute}})
		if was == "quiet" {
			s.gapFrom(s.hub.head.Load(), "a")
		}
		h, p := s.open(-1, "a")
		s.publish("x", "a")
		s.rest()
		s.forgetQuiet()
		s.take(h, 1<<20)
		s.publish("still there", "a")
		s.rest()
		if got := string(p.bytes); !strings.HasSuffix(got, "data: still there\n\n") {
			t.Errorf("in a room that was %s: its member is sent %q", was, got)
		}
	}
}

// How often a client that comes back to a quiet channel is told of a gap that
// is none, after n other channels were forgotten: the comment on journal has
// these figures.
func TestJournal_FalseGapsAreAsRareAsItsCommentSays(t *testing.T) {
	const probes = 20_000
	for n, percent := range map[int][2]float64{1_000: {1.2, 1.9}, 65_000: {61.5, 64.5}} {
		s := newStage(Config{Journal: JournalLimits{Age: time.Minute}})
		start := s.hub.head.Load()
		names := make([]string, n)
		for i := range names {
			names[i] = fmt.Sprint("other ", i)
			s.publish("x", names[i])
		}
		s.forgetQuiet(names...)
		head := s.hub.head.Load()
		gaps := 0
		for i := range probes {
			name := fmt.Sprint("quiet ", i)
			if s.gapFrom(start, name) {
				gaps++
			}
			if i%100 == 0 && s.gapFrom(head, name) {
				t.Errorf("%s: a gap from the head", name)
			}
		}
		got := 100 * float64(gaps) / probes
		t.Logf("%d other channels forgotten: %.2f%% of returns to a quiet channel are a gap that is none", n, got)
		if got < percent[0] || got > percent[1] {
			t.Errorf("%d others: %.2f%%, want %v", n, got, percent)
		}
	}
}

func TestJournal_QuietRoomsAreBounded(t *testing.T) {
	const channels = 60_000
	s := newStage(Config{Journal: JournalLimits{Age: time.Second, Bytes: 1 << 30}})
	most := 0
	for i := range channels {
		s.clock.at = s.clock.at.Add(time.Millisecond)
		s.publish("x", fmt.Sprint(i))
		most = max(most, len(s.hub.journal.rooms))
	}
	t.Logf("%d channels: up to %d rooms", channels, most)
	if bound := quietLimit + 1000 + 2*bite; most > bound {
		t.Errorf("up to %d rooms, want no more than the quiet ones there may be and those with events, %d", most, bound)
	}
	s.forgetQuiet()
	if n := len(s.hub.journal.rooms); n > 2 {
		t.Errorf("%d rooms are left after a long time", n)
	}
	bytes := len(s.hub.journal.rooms) * roomOverhead
	for e := s.hub.journal.oldest; e != nil; e = e.next {
		bytes += e.bytes
	}
	if n := s.hub.journal.bytes; n != bytes {
		t.Errorf("%d bytes are counted for what is left, which has %d", n, bytes)
	}
}

// Clients make rooms too, by coming: a channel of each page that is seen, and
// nothing is published.
func TestJournal_RoomsThatClientsLeaveAreBoundedThoughNothingIsPublished(t *testing.T) {
	const channels = 3 * quietLimit
	s := newStage(Config{})
	for i := range channels {
		s.gapFrom(s.hub.head.Load(), fmt.Sprint(i))
	}
	if n, most := len(s.hub.journal.rooms), quietLimit+2*bite; n > most {
		t.Errorf("%d rooms of channels that nobody is in, want %d at most", n, most)
	}
}

// A publisher makes room before its turn, and does only so much with others waiting.
func TestJournal_EvictsInBites(t *testing.T) {
	s := newStage(Config{Journal: JournalLimits{Events: 1 << 20}})
	for range 10 * bite {
		s.publish("x", "a")
	}
	s.hub.journal.limits.Bytes = 1
	turns := 0
	for more := true; more; turns++ {
		before := len(s.ring("a"))
		more = s.hub.evict(1, 0)
		if after := len(s.ring("a")); before-after > bite {
			t.Fatalf("%d events went at once", before-after)
		}
	}
	if turns < 10 || len(s.all()) != 0 {
		t.Errorf("%d turns, and %d events are left", turns, len(s.all()))
	}
}
