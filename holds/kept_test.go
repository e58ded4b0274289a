package holds

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// keepStage is a stage whose journal keeps one event of each of these tests'
// sizes, so that what waits for clients is kept for them alone, and a loop that
// may keep keepLeast.
func keepStage() *stage {
	return newStage(Config{Journal: JournalLimits{Bytes: 1 << 20}, WriteStall: time.Hour})
}

func TestRelieve_OfClientsThatAreBehindThoseThatTookNothingForTheLongestAreEnded(t *testing.T) {
	s := keepStage()
	const clients = 40
	data := strings.Repeat("x", 1<<20-512)
	var holds []*hold
	for i := range clients {
		h, _ := s.open(100, fmt.Sprint(i))
		holds = append(holds, h)
	}
	s.rest()
	took := holds[3]
	for i := range clients {
		s.clock.at = s.clock.at.Add(time.Second)
		s.publish(data, fmt.Sprint(i))
		s.rest()
		if took.outbox != nil {
			s.take(took, 1)
		}
		if alone, bound := s.loop.keeping.alone(), s.loop.keepBytes(); alone > bound+bound/8+2<<20 {
			t.Fatalf("after %d events %d bytes are kept for those behind, the bound is %d", i+1, alone, bound)
		}
	}
	if took.state != live {
		t.Errorf("the one that takes a byte with each event was ended: state %d", took.state)
	}
	for i := clients - 3; i < clients; i++ {
		if holds[i].state != live {
			t.Errorf("the client %d, whose event is one of the last, was ended", i)
		}
	}
	ended := int(s.ended(EndSlow))
	for i, h := range holds {
		if gone := h.state == closed; h != took && gone != (i < ended+1 && i != 3) {
			t.Errorf("client %d is ended: %v, of %d that are", i, gone, ended)
		}
	}
	if ended < clients-12 {
		t.Errorf("%d were ended, and 8 MiB is kept at most", ended)
	}
}

func TestRelieve_WhatManyWaitForCountsOnce(t *testing.T) {
	s := keepStage()
	for range 100 {
		s.open(100, "all")
	}
	s.rest()
	for i := range 4 {
		s.publish(strings.Repeat("x", 10<<10), "all")
		s.rest()
		s.publish(strings.Repeat("y", 1<<20-1024), fmt.Sprint("others ", i)) // evicts it
		s.pass(time.Second, time.Second)
	}
	if n := s.ended(EndSlow); n != 0 {
		t.Errorf("%d were ended", n)
	}
	if alone := s.loop.keeping.alone(); alone < 40<<10 || alone > 50<<10 {
		t.Errorf("%d bytes are kept for 100 clients, want those of four events", alone)
	}
}

func TestRelieve_WhatTheJournalHasIsNotKeptForClients(t *testing.T) {
	s := newStage(Config{Journal: JournalLimits{Bytes: 64 << 20}})
	s.loop.home.loops = 8
	bound := s.loop.keepBytes()
	for i := range 40 {
		s.open(100, fmt.Sprint(i))
	}
	s.rest()
	for i := range 40 {
		s.publish(strings.Repeat("x", 1<<20), fmt.Sprint(i))
		s.rest()
	}
	if s.loop.keeping.bytes < 4*bound || s.loop.keeping.alone() > 1<<20 {
		t.Errorf("%d bytes wait and %d are kept for them alone", s.loop.keeping.bytes, s.loop.keeping.alone())
	}
}

func TestRelieve_NothingIsCountedForHoldsThatAreGoneOrHaveTakenAll(t *testing.T) {
	s := keepStage()
	var holds []*hold
	for i := range 8 {
		h, _ := s.open(100, fmt.Sprint(i%4))
		holds = append(holds, h)
	}
	s.rest()
	for i := range 12 {
		s.publish(strings.Repeat("x", 20<<10), fmt.Sprint(i%4))
		s.rest()
	}
	if s.loop.keeping.bytes == 0 {
		t.Fatal("nothing waits")
	}
	for i, h := range holds {
		if i%2 == 0 {
			s.loop.end(h, EndPublished)
			s.rest()
		}
		for range 1 << 20 {
			if h.outbox == nil {
				break
			}
			s.take(h, 1<<10)
		}
	}
	if k := s.loop.keeping; k.bytes != 0 || k.own != 0 || len(k.events) != 0 {
		t.Errorf("%d bytes of %d events and %d own are counted, and nothing waits", k.bytes, len(k.events), k.own)
	}
}

// What holds are sent of their own counts as well: a view's answer, a reply.
func TestRelieve_TheFirstBytesOfStreamsThatNobodyReadsAreBounded(t *testing.T) {
	s := keepStage()
	var holds []*hold
	for range 40 {
		from := s.hub.head.Load()
		h, _ := s.openFrom(100, &opening{head: []byte("head"), body: []byte(strings.Repeat("b", 1<<20)), from: from, last: from}, "a")
		holds = append(holds, h)
		s.clock.at = s.clock.at.Add(time.Second)
		s.rest()
	}
	if n := s.loop.keeping.alone(); n > s.loop.keepBytes()*9/8+2<<20 {
		t.Errorf("%d bytes are kept", n)
	}
	if holds[0].state != closed || holds[len(holds)-1].state == closed {
		t.Errorf("the first is in state %d, the last in %d", holds[0].state, holds[len(holds)-1].state)
	}
}
