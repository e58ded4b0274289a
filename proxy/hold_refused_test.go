package proxy_test

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"holdfast/holds"
	"holdfast/lanes"
	"holdfast/proxy"
	"holdfast/upstream"
)

// ---- Instructions that cannot be followed.

// What becomes of the slot is the lane's to say: it is free where the app
// closed, taken until the view's end where that can be seen, and for a second
// where it cannot.
const (
	slotFreed     = "freed"
	slotAbandoned = "abandoned until the view's end"
	slotClosed    = "closed on the view"
)

const (
	withLength  = "HTTP/1.1 200 OK\r\n" + joinNews + "Content-Length: 100\r\n"
	withChunks  = "HTTP/1.1 200 OK\r\n" + joinNews + "Transfer-Encoding: chunked\r\n"
	withNoLimit = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n" + joinNews
)

// badHold is an answer that cannot be followed, and what ends its view if that
// is still to be seen.
type badHold struct {
	name    string
	answer  func(v *view)
	rest    string
	words   string // in the text
	slot    string
	grip    bool // the GRIP dialect is on, too
	timeout time.Duration
}

func manyChannels(n int) string {
	var names []string
	for i := range n {
		names = append(names, "c"+strconv.Itoa(i))
	}
	return "M0-Hold: stream\r\nM0-Channel: " + strings.Join(names, ", ") + "\r\n"
}

var badHolds = []badHold{
	{name: "CutByReset", answer: func(v *view) { v.reset(withLength + "\r\n" + "half") }, words: "was cut", slot: slotFreed},
	{name: "LengthNotReached", answer: func(v *view) { v.hangUp(withLength + "\r\n" + "half") }, words: "was cut", slot: slotFreed},
	{name: "LastChunkMissing", answer: func(v *view) { v.hangUp(withChunks + "\r\n" + chunk("half")) }, words: "was cut", slot: slotFreed},
	{name: "EndlessChunkMissing", answer: func(v *view) { v.hangUp(withNoLimit + "Transfer-Encoding: chunked\r\n\r\n" + chunk("half")) }, words: "was cut", slot: slotFreed},
	{name: "BadChunk", answer: func(v *view) { v.say(withChunks + "\r\n" + "4\r\nhalfx") }, words: "was cut", slot: slotClosed},
	{name: "TooLarge", answer: func(v *view) {
		v.say("HTTP/1.1 200 OK\r\n" + joinNews + fmt.Sprintf("Content-Length: %d\r\n\r\n", 1<<20+2) + strings.Repeat(":", 1<<20+1))
	}, rest: ":", words: "more than 1 MiB", slot: slotAbandoned},
	{name: "TooLargeInChunks", answer: func(v *view) {
		v.say(withChunks + "\r\n" + chunk(strings.Repeat(":", 1<<20)) + chunk(":"))
	}, rest: "0\r\n\r\n", words: "more than 1 MiB", slot: slotAbandoned},
	{name: "TooLargeEndless", answer: func(v *view) { v.say(withNoLimit + "\r\n" + strings.Repeat(":", 1<<20+1)) }, words: "more than 1 MiB", slot: slotClosed},
	{name: "Late", answer: func(v *view) { v.say(withLength + "\r\n" + "half") }, rest: strings.Repeat(":", 96), words: "response_timeout",
		slot: slotAbandoned, timeout: 100 * time.Millisecond},
	{name: "LateEndless", answer: func(v *view) { v.say(withNoLimit + "\r\n" + "half") }, words: "response_timeout", slot: slotClosed, timeout: 100 * time.Millisecond},
	{name: "Encoded", answer: func(v *view) { v.say(withLength + "Content-Encoding: gzip\r\n\r\n") }, rest: strings.Repeat(":", 100),
		words: "Content-Encoding", slot: slotAbandoned},
	{name: "EncodedTwice", answer: func(v *view) {
		v.hangUp(withLength + "content-encoding: identity, br\r\n\r\n" + strings.Repeat(":", 100))
	},
		words: "Content-Encoding", slot: slotFreed},
	{name: "BothDialects", answer: func(v *view) { v.say(withLength + "Grip-Hold: stream\r\nGrip-Channel: news\r\n\r\n") }, rest: strings.Repeat(":", 100),
		words: "both M0-Hold and Grip-Hold", slot: slotAbandoned, grip: true},
	{name: "Channels", answer: func(v *view) { v.answer(ok(manyChannels(65), "")) }, words: "more than 64 channels", slot: slotFreed},
}

func TestHold_AnInstructionThatCannotBeFollowedIsBadHold(t *testing.T) {
	for _, c := range badHolds {
		t.Run(c.name, func(t *testing.T) {
			s := startHolds(t, holdSetup{lane: lanes.Config{ResponseTimeout: c.timeout},
				proxy: func(cfg *proxy.Config) { cfg.Dialects.Grip = c.grip }})
			client := say(t, s.addr, askFor("/events"))
			v := s.view(t)
			c.answer(v)
			answer := client.wantReason(t, 502, "bad_hold", c.words)
			wantNoInstruction(t, answer.fields)
			if answer.closes() {
				t.Error("the client's connection ends")
			}
			switch got := s.lane.Snapshot(); {
			case c.slot == slotAbandoned && (got.Abandoned != 1 || got.InUse != 1):
				t.Errorf("while the view goes on: %d abandoned, %d in use", got.Abandoned, got.InUse)
			case c.slot == slotClosed && got.ClosedOnView != 1:
				t.Errorf("%d slots are closed on their views", got.ClosedOnView)
			}
			if !v.done {
				v.answer(c.rest)
			}
			s.wantFree(t)
			if got := s.lane.Snapshot(); got.Abandoned != 0 || c.slot != slotClosed && got.ClosedOnView != 0 {
				t.Errorf("after the view's end: %d abandoned, %d closed on their views", got.Abandoned, got.ClosedOnView)
			}
			s.wantNoHold(t)
			s.wantServed(t, client)
			if statuses, ends := s.wantLogged(t, 2); statuses[0] != 502 || ends[0] != "holdfast_running" {
				t.Errorf("the exchange is logged as %d %s", statuses[0], ends[0])
			}
		})
	}
}

// On a lane of streams the app sees its connection closed at once.
func TestHold_ABadHoldOfAStreamLaneEndsItsConnection(t *testing.T) {
	for _, c := range badHolds {
		t.Run(c.name, func(t *testing.T) {
			s := startHolds(t, holdSetup{lane: lanes.Config{Stream: true, ResponseTimeout: c.timeout},
				proxy: func(cfg *proxy.Config) { cfg.Dialects.Grip = c.grip }})
			client := say(t, s.addr, askFor("/events"))
			v := s.view(t)
			c.answer(v)
			wantNoInstruction(t, client.wantReason(t, 502, "bad_hold", c.words).fields)
			s.wantFree(t)
			if !v.done {
				v.wantEnded(t)
			}
			s.wantNoHold(t)
			s.wantServed(t, client)
		})
	}
}

// Each byte is in time, the whole is not.
func TestHold_ATrickledBodyGainsNoTime(t *testing.T) {
	for _, stream := range []bool{false, true} {
		s := startHolds(t, holdSetup{lane: lanes.Config{Stream: stream, ResponseTimeout: 200 * time.Millisecond}})
		c := say(t, s.addr, askFor("/events"))
		v := s.view(t)
		v.say("HTTP/1.1 200 OK\r\n" + joinNews + "Content-Length: 100000\r\n\r\n")
		stop, ended := make(chan struct{}), make(chan struct{})
		go v.trickle(stop, ended)
		c.wantReason(t, 502, "bad_hold", "response_timeout")
		close(stop)
		<-ended
		v.hangUp("")
		s.wantFree(t)
		s.wantNoHold(t)
	}
}

// trickle writes a byte every ten milliseconds.
func (v *view) trickle(stop <-chan struct{}, ended chan<- struct{}) {
	defer close(ended)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			v.say(":")
		}
	}
}

func TestHold_SixtyFourChannelsAreJoined(t *testing.T) {
	s := startHolds(t, holdSetup{})
	c := say(t, s.addr, askFor("/events"))
	v := s.view(t)
	v.answer(ok(manyChannels(64), ""))
	c.wantHeldHead(t)
	c.wantBytes(t, chunk(": open\n\n"+idBlock(v.position(t))))
	if n := len(s.holds.Channels()); n != 64 {
		t.Errorf("%d channels have members", n)
	}
	id := s.publish("c63", "to the last")
	c.wantBytes(t, chunk(eventBlock(id, "to the last")))
}

// With one dialect on, what the other says is nothing.
func TestHold_ADialectThatIsOffMixesWithNothing(t *testing.T) {
	s := startHolds(t, holdSetup{})
	c := say(t, s.addr, askFor("/events"))
	s.view(t).answer(ok(joinNews+"Grip-Hold: response\r\nGrip-Channel: news\r\n", ""))
	wantNoInstruction(t, c.wantHeldHead(t))
	s.wantHeld(t, 1)
}

// An app that answers before it has read the request would go on reading: its
// client cannot be handed over.
func TestHold_AnUploadThatIsNotReadIsBadHold(t *testing.T) {
	s := startHolds(t, holdSetup{lane: lanes.Config{Stream: true}})
	c := say(t, s.addr, post("Content-Length: 10")+"hello")
	v := s.view(t)
	v.answer(ok(joinNews, ""))
	if !c.wantReason(t, 502, "bad_hold", "read the body first").closes() {
		t.Error("the rest of the upload is read as a request")
	}
	s.wantFree(t)
	s.wantNoHold(t)
}

// The app's end is told although the client is still sending.
func TestHold_AnAppThatHangsUpOnAnUploadIsUpstreamError(t *testing.T) {
	s := startHolds(t, holdSetup{lane: lanes.Config{Stream: true}})
	c := say(t, s.addr, post("Content-Length: 10")+"hello")
	s.view(t).hangUp("")
	if !c.wantReason(t, 502, "upstream_error").closes() {
		t.Error("the rest of the upload is read as a request")
	}
	s.wantFree(t)
}

// ---- Refusals that pass by themselves, as an EventSource can read them.

// passing is a reason, how it comes about, and what the app does to a request.
type passing struct {
	reason string
	status int
	setup  holdSetup
	before func(t *testing.T, s *holdSite)
	app    func(v *view)
}

func runOne(t *testing.T, s *holdSite) {
	say(t, s.addr, get("/running"))
	s.view(t)
}

var passings = []passing{
	{reason: "lane_full", status: 503, before: runOne},
	{reason: "lane_timeout", status: 503, setup: holdSetup{lane: lanes.Config{Queue: 8, QueueTimeout: 20 * time.Millisecond}}, before: runOne},
	{reason: "draining", status: 503, before: func(_ *testing.T, s *holdSite) { s.lane.Close() }},
	{reason: "upstream_error", status: 502, app: func(v *view) { v.hangUp("HTTP/1.1 200 OK\r\nX") }},
	{reason: "upstream_timeout", status: 504, setup: holdSetup{lane: lanes.Config{Slots: 8, ResponseTimeout: 50 * time.Millisecond}}, app: func(*view) {}},
	{reason: "too_many_holds", status: 503, setup: holdSetup{holds: holds.Config{Limit: 1}}, before: func(t *testing.T, s *holdSite) { s.held(t) },
		app: func(v *view) { v.answer(ok(joinNews, "")) }},
	{reason: "draining", status: 503, before: func(_ *testing.T, s *holdSite) { s.endHolds() }, app: func(v *view) { v.answer(ok(joinNews, "")) }},
}

// wantRetry requires what makes an EventSource come back, and gives when.
func (c *wireClient) wantRetry(t *testing.T, reason string) (milliseconds int) {
	t.Helper()
	answer := c.wantAnswer(t, "GET", 200, "*")
	_, err := fmt.Sscanf(string(answer.body), "retry: %d\n\n", &milliseconds)
	if err != nil || string(answer.body) != fmt.Sprintf("retry: %d\n\n", milliseconds) || milliseconds < 1000 || milliseconds > 5000 {
		t.Errorf("%s: the stream is %q", reason, answer.body)
	}
	for name, want := range map[string]string{"Content-Type": "text/event-stream", "Holdfast-Reason": reason,
		"Content-Length": strconv.Itoa(len(answer.body)), "Cache-Control": "no-store", "Retry-After": ""} {
		if got := answer.get(name); got != want {
			t.Errorf("%s: %s is %q, want %q", reason, name, got, want)
		}
	}
	if answer.closes() {
		t.Errorf("%s: the connection ends", reason)
	}
	return milliseconds
}

func TestPassing_AnEventSourceIsAskedToComeBack(t *testing.T) {
	for i, c := range passings {
		t.Run(fmt.Sprint(c.reason, i), func(t *testing.T) {
			s := startHolds(t, c.setup)
			if c.before != nil {
				c.before(t, s)
			}
			earlier := s.codes(t)[c.status]
			client := dialWire(t, s.addr)
			ask := func(text string) {
				client.say(t, text)
				if c.app != nil {
					c.app(s.view(t))
				}
			}
			asked := 0
			for _, accept := range []string{"text/event-stream", "Text/Event-Stream"} {
				ask(askFor("/events", "Accept: "+accept))
				client.wantRetry(t, c.reason)
				asked++
			}
			for _, text := range []string{
				askFor("/events", "Accept: text/event-stream, */*"), askFor("/events", "Accept: text/event-stream;q=1"), askFor("/events"),
				askFor("/events", "Accept: text/event-stream", "Accept: text/html"),
				strings.Replace(askFor("/events", "Accept: text/event-stream", "Content-Length: 0"), "GET", "POST", 1),
			} {
				ask(text)
				answer := client.wantReason(t, c.status, c.reason)
				if wait := answer.get("Retry-After"); c.status == 503 && wait == "" {
					t.Error("503 without Retry-After")
				}
				asked++
			}
			if c.reason != "too_many_holds" && (c.app == nil || i != len(passings)-1) { // a HEAD is never held
				ask(asEventSource("HEAD"))
				if answer := client.wantAnswer(t, "HEAD", c.status, "*"); answer.get("Holdfast-Reason") != c.reason {
					t.Errorf("HEAD: %q", answer.fields)
				}
				asked++
			}
			// What is counted and logged is the refusal, however it was told.
			until(t, "all are counted", func() bool { return int(s.codes(t)[c.status]-earlier) == asked })
			until(t, "all are logged", func() bool {
				n := 0
				for _, entry := range s.logs.FilterMessage("exchange").All() {
					if entry.ContextMap()["status"] == int64(c.status) {
						n++
					}
				}
				return n == asked
			})
			if n := s.codes(t)[200]; n > 1 || n == 1 && c.reason != "too_many_holds" {
				t.Errorf("%d are counted as 200", n)
			}
		})
	}
}

// codes are the counts of the route.
func (s *holdSite) codes(t *testing.T) map[int]uint64 {
	t.Helper()
	for _, route := range s.server.Routes() {
		if route.Route == "/" {
			return route.Codes
		}
	}
	t.Fatal("the route is not counted")
	return nil
}

// A crowd that was sent away must not come back at the same moment.
func TestPassing_EachIsAskedToComeBackAtAnotherTime(t *testing.T) {
	s := startHolds(t, holdSetup{})
	runOne(t, s)
	c := dialWire(t, s.addr)
	var times []int
	for range 20 {
		c.say(t, asEventSource("GET"))
		times = append(times, c.wantRetry(t, "lane_full"))
	}
	if slices.Sort(times); len(slices.Compact(times)) < 10 {
		t.Errorf("the times are %v", times)
	}
}

func TestPassing_AnAppThatIsDownIsOneOfThem(t *testing.T) {
	lane, _ := startDown(t, upstream.Config{Park: time.Millisecond})
	s := startHolds(t, holdSetup{routes: []proxy.Route{{Match: "/down/", Lane: lane}}})
	c := say(t, s.addr, strings.Replace(asEventSource("GET"), "/events", "/down/", 1))
	c.wantRetry(t, "upstream_down")
	c.say(t, get("/down/"))
	c.wantReason(t, 503, "upstream_down")
}

// An EventSource gives up for good on what will not pass, as it should.
func TestPassing_WhatStaysIsToldAsItIs(t *testing.T) {
	s := startHolds(t, holdSetup{routes: []proxy.Route{{Match: "GET /nowhere/{$}", Respond: &proxy.Respond{Status: 200}}}})
	c := say(t, s.addr, asEventSource("GET"))
	s.view(t).answer(ok(manyChannels(65), ""))
	c.wantReason(t, 502, "bad_hold")
	c.say(t, asEventSource("GET"))
	s.view(t).hangUp("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
	c.wantReason(t, 409, "stream_refused")

	only := startHolds(t, holdSetup{}) // no route takes it
	if err := only.server.Configure(proxy.Config{}, []proxy.Route{{Match: "/here", Respond: &proxy.Respond{Status: 200}}}); err != nil {
		t.Fatal(err)
	}
	c = say(t, only.addr, asEventSource("GET"))
	c.wantReason(t, 404, "no_route")
	if _, err := io.WriteString(c.conn, asEventSource("POST")); err != nil {
		t.Fatal(err)
	}
	c.wantReason(t, 404, "no_route")
}

// Where there are as many holds as there may be, the next is told so, and is
// held when one has left.
func TestHold_TheLimitOfHoldsIsExact(t *testing.T) {
	s := startHolds(t, holdSetup{holds: holds.Config{Limit: 2}})
	first, second := s.held(t), s.held(t)
	third := say(t, s.addr, askFor("/events"))
	s.view(t).answer(ok(joinNews, ""))
	third.wantReason(t, 503, "too_many_holds", "holds.limit")
	s.wantFree(t)
	first.Close()
	s.wantHeld(t, 1)
	until(t, "there is room for another", func() bool { // its connection is closed a moment after it is counted
		third.say(t, askFor("/events"))
		s.view(t).answer(ok(joinNews, ""))
		_, fields, _, err := readStrictHead(third.reader)
		if err != nil {
			t.Fatal(err)
		}
		if length := fieldValues(fields, "Content-Length"); len(length) > 0 {
			n, _ := strconv.Atoi(length[0])
			io.CopyN(io.Discard, third.reader, int64(n))
			return false
		}
		return true
	})
	s.wantHeld(t, 2)
	id := s.publish("news", "to both")
	second.wantBytes(t, chunk(eventBlock(id, "to both")))
}
