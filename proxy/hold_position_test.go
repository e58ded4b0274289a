package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"holdfast/holds"
	"holdfast/lanes"
	"holdfast/proxy"
	"holdfast/upstream"
)

// ---- The position.

func TestHold_AnEventPublishedWhileTheViewRunsIsDelivered(t *testing.T) {
	s := startHolds(t, holdSetup{})
	before := s.publish("news", "before")
	c := say(t, s.addr, askFor("/events"))
	v := s.view(t)
	if got := v.position(t); got != before {
		t.Errorf("the view is told %d, want %d, the last event's", got, before)
	}
	during := s.publish("news", "during")
	s.publish("other", "not for it")
	v.say("HTTP/1.1 200 OK\r\n" + joinNews + "Content-Length: 10\r\n\r\ndata:")
	between := s.publish("news", "between head and body")
	v.answer(" hi\n\n")
	c.wantHeldHead(t)
	c.wantBytes(t, chunk("data: hi\n\n"+idBlock(before))+chunk(eventBlock(during, "during"))+chunk(eventBlock(between, "between head and body")))
	after := s.publish("news", "after")
	c.wantBytes(t, chunk(eventBlock(after, "after")))
}

// A request that waits is not at the app yet: what is published meanwhile is
// for the view to see.
func TestHold_ThePositionIsTakenWhenTheRequestIsSent(t *testing.T) {
	for _, method := range []string{"GET", "POST"} {
		s := startHolds(t, holdSetup{lane: lanes.Config{Queue: 1, QueueTimeout: time.Minute}})
		running := say(t, s.addr, get("/running"))
		first := s.view(t)
		c := say(t, s.addr, method+" /events HTTP/1.1\r\nHost: a.test\r\nX-Long: "+strings.Repeat("x", 8000)+"\r\nM0-Position: 1\r\nm0-hold: stream\r\nContent-Length: 0\r\n\r\n")
		until(t, "a request waits", func() bool { return s.lane.Snapshot().Waiting == 1 })
		id := s.publish("news", "while it waits")
		first.answer(ok("", "done"))
		running.wantAnswer(t, "GET", 200, "done")
		v := s.view(t)
		if got := v.position(t); got != id || first.position(t) >= id { // and the client's own is gone
			t.Errorf("the view is told %d after %d; want %d", got, first.position(t), id)
		}
		if got := v.get("M0-Hold"); got != "" {
			t.Errorf("the app has the client's M0-Hold: %s", got)
		}
		v.answer(ok(joinNews, ""))
		c.wantHeldHead(t)
		c.wantBytes(t, chunk(": open\n\n"+idBlock(id)))
		next := s.publish("news", "next")
		c.wantBytes(t, chunk(eventBlock(next, "next")))
	}
}

// A target that turns out to be down has been sent nothing: its request goes
// out when it is back.
func TestHold_ThePositionIsTakenAnewWhereTheTargetWasDown(t *testing.T) {
	lane, path := startDown(t, upstream.Config{Park: time.Minute})
	s := startHolds(t, holdSetup{routes: []proxy.Route{{Match: "/down/", Lane: lane}}})
	c := say(t, s.addr, askFor("/down/"))
	until(t, "its request waits", func() bool { return lane.Snapshot().Waiting == 1 })
	id := s.publish("news", "while it waits")
	app, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer app.Close()
	for asked := false; !asked; {
		conn, err := app.Accept()
		if err != nil {
			t.Fatal(err)
		}
		line, fields, _, _ := readStrictHead(bufio.NewReader(conn))
		if asked = strings.HasPrefix(line, "GET /down/ "); asked {
			if got := fieldValues(fields, "M0-Position"); len(got) != 1 || got[0] != fmt.Sprint(id) {
				t.Errorf("the view is told %v, want %d", got, id)
			}
		}
		io.WriteString(conn, ok(joinNews+"Connection: close\r\n", ""))
		conn.Close()
	}
	c.wantHeldHead(t)
	c.wantBytes(t, chunk(": open\n\n"+idBlock(id)))
}

func TestHold_WithoutItsDialectNobodyIsToldAPosition(t *testing.T) {
	for name, change := range map[string]func(*proxy.Config){
		"DialectOff": func(cfg *proxy.Config) { cfg.Dialects = holds.Dialects{Grip: true} },
		"HoldsOff":   func(cfg *proxy.Config) { cfg.Holds = nil },
	} {
		t.Run(name, func(t *testing.T) {
			s := startHolds(t, holdSetup{proxy: change})
			c := say(t, s.addr, askFor("/a", "M0-Position: 1234567890123456"))
			v := s.view(t)
			if got := v.get("M0-Position"); got != "" {
				t.Errorf("M0-Position is %q", got)
			}
			v.answer(ok("", "a"))
			c.wantAnswer(t, "GET", 200, "a")
		})
	}
}

// ---- Coming back.

func TestHold_AClientThatComesBackIsGivenWhatItMissed(t *testing.T) {
	s := startHolds(t, holdSetup{})
	one, two, three := s.publish("news", "one"), s.publish("news", "two"), s.publish("news", "three")
	event := map[int64]string{one: chunk(eventBlock(one, "one")), two: chunk(eventBlock(two, "two")), three: chunk(eventBlock(three, "three"))}
	for _, c := range []struct {
		name, query, field string
		from               int64
		replayed           string
	}{
		{"Field", "", fmt.Sprint(one), one, event[two] + event[three]},
		{"Query", fmt.Sprintf("?a=b&lastEventId=%d&c", two), "", two, event[three]},
		{"QueryEscaped", fmt.Sprintf("?last%%45ventId=%%3%c%s", fmt.Sprint(two)[0], fmt.Sprint(two)[1:]), "", two, event[three]},
		{"FieldBeforeQuery", fmt.Sprintf("?lastEventId=%d", one), fmt.Sprint(two), two, event[three]},
		{"UpToDate", "", fmt.Sprint(three), three, ""},
		{"NoNumber", "", "abc", three, ""},
		{"NoNumberBeforeQuery", fmt.Sprintf("?lastEventId=%d", one), "-5", three, ""},
		{"NoNumberInQuery", "?lastEventId=1e15", "", three, ""},
		{"EmptyField", "", " ", three, ""},
		{"EmptyFieldAndQuery", fmt.Sprintf("?lastEventId=%d", one), " ", one, event[two] + event[three]},
		{"EmptyQuery", "?lastEventId=", "", three, ""},
		{"OtherCase", fmt.Sprintf("?lasteventid=%d", one), "", three, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var fields []string
			if c.field != "" {
				fields = append(fields, "last-event-ID: "+c.field)
			}
			client := say(t, s.addr, askFor("/events"+c.query, fields...))
			v := s.view(t)
			if got := v.get("Last-Event-ID"); got != strings.TrimSpace(c.field) {
				t.Errorf("the app has the Last-Event-ID %q", got)
			}
			v.answer(ok(joinNews, ""))
			client.wantHeldHead(t)
			client.wantBytes(t, chunk(": open\n\n"+idBlock(c.from))+c.replayed)
			s.endEach("news")
			client.wantBytes(t, "0\r\n\r\n")
			client.wantEnd(t, false)
		})
	}
}

// What was published while the view ran comes behind what was missed.
func TestHold_WhatWasMissedComesBeforeWhatIsPublishedMeanwhile(t *testing.T) {
	s := startHolds(t, holdSetup{})
	one, two := s.publish("news", "one"), s.publish("news", "two")
	c := say(t, s.addr, askFor("/events", fmt.Sprintf("Last-Event-ID: %d", one)))
	v := s.view(t)
	three := s.publish("news", "three")
	v.answer(ok(joinNews, ""))
	c.wantHeldHead(t)
	c.wantBytes(t, chunk(": open\n\n"+idBlock(one))+chunk(eventBlock(two, "two"))+chunk(eventBlock(three, "three")))
}

func TestHold_APositionThatIsNotKnownIsAGap(t *testing.T) {
	s := startHolds(t, holdSetup{holds: holds.Config{Journal: holds.JournalLimits{Events: 1}}})
	first := s.publish("news", "one")
	s.publish("news", "two")
	head := s.publish("news", "three")
	for name, last := range map[string]func() int64{
		"Ahead":        func() int64 { return head + 1000 },
		"OfAnotherRun": func() int64 { return head/1000*1000 + (head+1)%1000 },
		"Old":          func() int64 { return 5 },
		"LetGo":        func() int64 { return first },
		"Highest":      func() int64 { return 1<<63 - 1 },
	} {
		t.Run(name, func(t *testing.T) {
			last := last()
			c := say(t, s.addr, askFor("/events", fmt.Sprintf("Last-Event-ID: %d", last)))
			s.view(t).answer(ok(joinNews, "data: hi"))
			c.wantHeldHead(t)
			c.wantBytes(t, chunk("data: hi\n\n"+gapBlock(last, head)+idBlock(head)))
			head = s.publish("news", "next") // and nothing is replayed before it
			c.wantBytes(t, chunk(eventBlock(head, "next")))
		})
	}
}
