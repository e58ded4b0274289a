package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// Event streams that are held, from the app's answer to the client's end: the
// real apps, and clients of which every byte is seen.

func TestHold_TheClientGetsTheHeadTheViewsBytesThePositionAndEvents(t *testing.T) {
	for _, server := range holdsServers {
		t.Run(server.name, func(t *testing.T) {
			t.Parallel()
			s := startHolds(t, server, holdsLanes+"holds: {heartbeat: 0}\n")
			f := askEvents(t, s.addr, "/events?channel=a&channel=b%2Cc&body=data:%20hello", eventSource)
			head := f.response.Header
			for name, value := range map[string]string{"Content-Type": "text/event-stream", "Cache-Control": "no-cache, no-transform",
				"X-Accel-Buffering": "no", "Set-Cookie": "seen=yes; Path=/", "X-View": "events", "Content-Length": ""} {
				if got := strings.Join(head.Values(name), " | "); got != value {
					t.Errorf("%s: %q, want %q", name, got, value)
				}
			}
			if fmt.Sprint(f.response.TransferEncoding) != "[chunked]" || f.response.StatusCode != 200 {
				t.Errorf("%s %q", f.response.Status, f.response.TransferEncoding)
			}
			for name := range head {
				if strings.HasPrefix(name, "M0-") {
					t.Errorf("%s reached the client", name)
				}
			}
			if b := f.wantBlock(); b.raw != "data: hello\n\n" {
				t.Errorf("%q, want the view's own bytes and an empty line", b.raw)
			}
			at := f.wantBlock()
			if !at.isPosition() {
				t.Errorf("%q, want the position", at.raw)
			}
			first, reached := publishTo(t, s.publish, "a", "one\ntwo")
			if b := f.wantBlock(); b.raw != fmt.Sprintf("id: %d\ndata: one\ndata: two\n\n", first) || reached != 1 {
				t.Errorf("%q to %d", b.raw, reached)
			}
			if position, err := strconv.ParseInt(at.id, 10, 64); err != nil || position >= first {
				t.Errorf("the position %s is not before the first event, %d", at.id, first)
			}
			// In both channels, and one event; the name is literal here.
			second, _ := wantPublished(t, s.publish, `{"channel": ["a", "b,c"], "data": {"n": 1}, "event": "count", "retry": 1500}`)
			if b := f.wantBlock(); b.id != fmt.Sprint(second) || b.event != "count" || b.data != `{"n":1}` || b.retry != "1500" {
				t.Errorf("%q", b.raw)
			}
			publishTo(t, s.publish, "elsewhere", "not for this one")
			publishTo(t, s.publish, "b,c", "last")
			f.wantEvent("last")
			eventuallyIdle(t, s.holdfast)
		})
	}
}

func TestHold_HTTP10EndsWithTheConnectionAndHEADIsAHead(t *testing.T) {
	t.Parallel()
	s := startHolds(t, flaskThreads, holdsLanes+"holds: {heartbeat: 0}\n")
	old := dialRaw(t, s.addr)
	old.send("GET /events HTTP/1.0\r\nHost: localhost\r\n\r\n")
	response, err := http.ReadResponse(old.r, nil)
	if err != nil || response.StatusCode != 200 || len(response.TransferEncoding) > 0 || response.ContentLength != -1 {
		t.Fatal(response, err)
	}
	f := &follower{Conn: old, t: t, in: old.r, response: response, body: bufio.NewReader(response.Body)}
	f.wantOpen()
	publishTo(t, s.publish, "news", "to the old one")
	f.wantEvent("to the old one")

	head := dialRaw(t, s.addr)
	head.send("HEAD /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
	response, err = http.ReadResponse(head.r, &http.Request{Method: "HEAD"})
	if err != nil || response.StatusCode != 200 || response.Header.Get("Content-Type") != "text/event-stream" || response.Header.Get("M0-Hold") != "" {
		t.Fatal(response, err)
	}
	head.get("/fast", "after the HEAD") // nobody is held by a HEAD
	head.wantAnswer(200)
	if n := subscribers(t, s.addr); n != 1 {
		t.Errorf("%d subscribers, want 1", n)
	}
}

// An instruction that is none is an ordinary answer, without its fields.
func TestHold_AStatusOtherThan200IsServedAsItIs(t *testing.T) {
	t.Parallel()
	s := startHolds(t, djangoThreads, holdsLanes)
	f := askEvents(t, s.addr, "/events?status=404&body=nobody", eventSource)
	body, err := io.ReadAll(f.body)
	if f.response.StatusCode != 404 || string(body) != "nobody" || err != nil || f.response.Header.Get("Content-Type") != "text/plain" {
		t.Errorf("%s %v %q %v", f.response.Status, f.response.Header, body, err)
	}
	for name := range f.response.Header {
		if strings.HasPrefix(name, "M0-") {
			t.Errorf("%s reached the client", name)
		}
	}
	if n := subscribers(t, s.addr); n != 0 {
		t.Errorf("%d subscribers", n)
	}
}

// starts is how often something is done from a fresh start.
func starts() int {
	if os.Getenv("HOLDFAST_FULL") != "" {
		return 20
	}
	return 5
}

func TestHold_SubscribePublishAndDeliveryAreOverBeforeTwoSlowViewsOfTheSameLane(t *testing.T) {
	for i := range starts() {
		server := holdsServers[i%len(holdsServers)]
		t.Run(fmt.Sprint(i, server.name), func(t *testing.T) {
			t.Parallel()
			a := newHoldsApp(t, server)
			a.start()
			c := startBinary(t, writeConfig(t, holdsLanes+"holds: {heartbeat: 100ms}\n", a.addr))
			slow := make(chan []attempt, 1)
			go func() { slow <- askAtOnce("http://"+c.addr, 2, "/slow?ms=1500") }()
			eventually(t, "two slow views", func() bool { return a.running("/slow") == 2 })
			f := follow(t, c.addr, "/events")
			_, reached := publishTo(t, c.publishAddr(t), "news", "in time")
			f.wantEvent("in time")
			f.wantHeartbeats(2)
			seen := monotonic()
			for _, got := range <-slow {
				if !got.ok() {
					t.Error(got)
				}
			}
			for _, v := range on("/slow", a.views()) {
				t.Logf("delivered %v before the view's end", v.end-seen)
				if v.end < seen {
					t.Error("a slow view had ended before the delivery was seen")
				}
			}
			if reached != 1 {
				t.Errorf("reached %d", reached)
			}
			f.wantHeartbeats(2)
		})
	}
}

func TestHold_WithEverySlotTakenAndTheAppStoppedHealthCountsAndEventsFlow(t *testing.T) {
	for _, server := range []holdsServer{flaskSync, djangoThreads} {
		t.Run(server.name, func(t *testing.T) {
			t.Parallel()
			s := startHolds(t, server, holdsLanes+"holds: {heartbeat: 100ms}\n")
			followers := followMany(t, s.addr, "/events", 30)
			for range 4 {
				client := dialRaw(t, s.addr)
				client.get("/hang", "hangs")
			}
			eventually(t, "every slot taken", func() bool { return s.app.running("/hang") == 4 })
			s.app.stop()
			defer s.app.open("release")
			defer s.app.goOn()
			if n := subscribers(t, s.addr); n != 30 {
				t.Errorf("%d subscribers, want 30", n)
			}
			// They leave in the ways of a closed tab, of a killed browser, and of a
			// client that has said all.
			for i, leave := range []func(f *follower){
				func(f *follower) { f.Close() },
				func(f *follower) { f.Conn.(*net.TCPConn).SetLinger(0); f.Close() },
				func(f *follower) { f.Conn.(*net.TCPConn).CloseWrite() },
			} {
				leave(followers[i])
				eventuallySubscribers(t, s.addr, 29-i)
				if _, reached := publishTo(t, s.publish, "news", fmt.Sprint("after ", i)); reached != 29-i {
					t.Errorf("reached %d, want %d", reached, 29-i)
				}
				for _, f := range followers[3:] {
					f.wantEvent(fmt.Sprint("after ", i))
				}
			}
			if lane := healthLanes(t, s.holdfast)["web"]; lane.InUse != 4 {
				t.Errorf("%+v, want every slot taken still", lane)
			}
			if n := metric(t, s.admin(), `holdfast_holds_ended_total{kind="stream",reason="client"}`); n != 3 {
				t.Errorf("%v ended as client, want 3", n)
			}
		})
	}
}

var lastEventID = regexp.MustCompile(`/events\?lastEventId=\d+`)

func TestHold_NothingIsMissedBetweenThePageAndItsStream(t *testing.T) {
	for _, server := range []holdsServer{flaskThreads, djangoThreads} {
		t.Run(server.name, func(t *testing.T) {
			t.Parallel()
			s := startHolds(t, server, holdsLanes+"holds: {heartbeat: 0}\n")
			publishTo(t, s.publish, "news", "before the page")
			page := string(wantGet(t, onceClient(), s.url("/page")))
			path := lastEventID.FindString(page)
			if path == "" {
				t.Fatalf("no position in %q", page)
			}
			for i := range 3 {
				publishTo(t, s.publish, "news", fmt.Sprint("meanwhile ", i))
			}
			f := follow(t, s.addr, path)
			for i := range 3 {
				f.wantEvent(fmt.Sprint("meanwhile ", i))
			}
			publishTo(t, s.publish, "news", "live")
			f.wantEvent("live")
			// The field that the browser sends later counts more than the page's.
			f = askEvents(t, s.addr, path, eventSource+"Last-Event-ID: "+f.id+"\r\n")
			f.wantOpen()
			publishTo(t, s.publish, "news", "later")
			f.wantEvent("later")
		})
	}
}

func TestHold_AClientThatComesBackGetsWhatItMissedOnce(t *testing.T) {
	t.Parallel()
	s := startHolds(t, djangoThreads, holdsLanes+"holds: {heartbeat: 0}\n")
	f := follow(t, s.addr, "/events?channel=a&channel=b")
	f.Close() // it has had no event: the position is enough
	for i := range 100 {
		publishTo(t, s.publish, [...]string{"a", "b", "c"}[i%3], fmt.Sprint(i))
	}
	f = followFrom(t, s.addr, "/events?channel=a&channel=b", f.id)
	for i := range 50 {
		if i%3 < 2 {
			f.wantEvent(fmt.Sprint(i))
		}
	}
	f.Close() // in the middle of it
	f = followFrom(t, s.addr, "/events?channel=a&channel=b", f.id)
	for i := 50; i < 100; i++ {
		if i%3 < 2 {
			f.wantEvent(fmt.Sprint(i))
		}
	}
	publishTo(t, s.publish, "b", "live")
	f.wantEvent("live")
}

func TestHold_WhatTheJournalHasNotIsToldAsAGapAndNoneOfItIsSent(t *testing.T) {
	t.Parallel()
	s := startHolds(t, flaskThreads, holdsLanes+"holds: {heartbeat: 0, journal: {events: 5}}\n")
	f := follow(t, s.addr, "/events")
	f.Close()
	var head int64
	for i := range 6 {
		head, _ = publishTo(t, s.publish, "news", fmt.Sprint(i))
	}
	for name, id := range map[string]string{"one too many": f.id, "ahead of the head": fmt.Sprint(head + 1000), "of another run": fmt.Sprint(head - 1)} {
		back := askEvents(t, s.addr, "/events", eventSource+"Last-Event-ID: "+id+"\r\n")
		last, at := back.wantGap()
		if fmt.Sprint(last) != id || at != head {
			t.Errorf("%s: the gap says %d and %d, want %s and %d", name, last, at, id, head)
		}
		if b := back.wantBlock(); !b.isPosition() || b.id != fmt.Sprint(head) {
			t.Errorf("%s: %q behind the gap, want the head", name, b.raw)
		}
	}
	// One later, all that is missing is there; and what is no number is a first visit.
	for name, id := range map[string]string{"first": "x1", "empty": ""} {
		f := askEvents(t, s.addr, "/events", eventSource+"Last-Event-ID: "+id+"\r\n")
		f.wantOpen()
		publishTo(t, s.publish, "news", name)
		f.wantEvent(name)
	}
	if n := metric(t, s.admin(), "holdfast_gaps_told_total"); n != 3 {
		t.Errorf("%v gaps counted, want 3", n)
	}
}

func TestHold_EventsPublishedWhileItsViewRunsAreDelivered(t *testing.T) {
	for _, server := range holdsServers {
		t.Run(server.name, func(t *testing.T) {
			t.Parallel()
			s := startHolds(t, server, holdsLanes+"holds: {heartbeat: 0}\n")
			// By the view itself.
			f := askEvents(t, s.addr, "/events?publish=by+the+view", eventSource)
			f.wantOpen()
			f.wantEvent("by the view")
			// By others, and the stream has its head first.
			asked := make(chan *follower, 1)
			go func() {
				f, err := dialEvents(s.addr, "/events?gate=go&body=:+first%0A%0A", eventSource)
				if err != nil {
					t.Error(err)
				}
				asked <- f
			}()
			eventually(t, "the view", func() bool { return s.app.running("/events?gate") == 1 })
			for i := range 3 {
				publishTo(t, s.publish, "news", fmt.Sprint("while it ran ", i))
			}
			s.app.open("go")
			if f = <-asked; f == nil {
				t.FailNow()
			}
			defer f.Close()
			f.t = t
			if b := f.wantBlock(); b.raw != ": first\n\n" {
				t.Errorf("%q comes before the view's bytes", b.raw)
			}
			for i := range 3 {
				f.wantEvent(fmt.Sprint("while it ran ", i))
			}
		})
	}
}

func TestHold_TwoSyncWorkersCarryAThousandStreams(t *testing.T) {
	t.Parallel()
	server := holdsServer{"", []string{"django_app:app", "-w", "2"}}
	s := startHolds(t, server, strings.Replace(holdsLanes, "slots: 4", "slots: 2", 1)+"holds: {heartbeat: 5s}\n")
	followers := followMany(t, s.addr, "/events", 1000)
	if n := subscribers(t, s.addr); n != 1000 {
		t.Errorf("%d subscribers", n)
	}
	wantGet(t, onceClient(), s.url("/fast"))
	if _, reached := publishTo(t, s.publish, "news", "to all"); reached != 1000 {
		t.Errorf("reached %d", reached)
	}
	eachAtOnce(t, 1000, func(i int) error {
		if b, err := followers[i].event(); err != nil || b.data != "to all" {
			return fmt.Errorf("%q %w", b.raw, cmpErr(err))
		}
		return nil
	})
	wantGet(t, onceClient(), s.url("/fast"))
	eventuallyIdle(t, s.holdfast)
	for _, f := range followers[:500] {
		f.Close()
	}
	eventuallySubscribers(t, s.addr, 500)
}

// The negative arm: asked directly, the app is done with its answer. Who holds is Holdfast.
func TestHold_WithoutHoldfastTheViewEndsAndNobodyIsHeld(t *testing.T) {
	t.Parallel()
	a := newHoldsApp(t, flaskSync)
	a.start()
	eventuallyListens(t, a.addr)
	f := askEvents(t, a.addr, "/events?body=:+first%0A%0A", eventSource)
	if body, err := io.ReadAll(f.body); string(body) != ": first\n\n" || err != nil || f.response.Header.Get("M0-Hold") != "stream" {
		t.Errorf("%q %v %v", body, err, f.response.Header)
	}
}

const mixedHolds = `
upstreams:
  wsgi: {targets: ["http://%s"], concurrency: 8}
  asgi: {targets: ["http://%s"]}
lanes:
  web:     {upstream: wsgi, slots: 4}
  streams: {upstream: asgi, kind: stream, slots: 100}
routes:
  - {match: "/rt/", lane: streams}
  - {match: "/", lane: web}
holds: {heartbeat: 50ms}
`

func TestHold_BesideAStreamOfAnASGIAppTheHeartbeatIsOfTheHoldAlone(t *testing.T) {
	t.Parallel()
	d := startDesk(t)
	s := startHoldsAlone(t, mixedHolds, []*app{d.wsgi, d.asgi})
	s.mustBecomeReady()
	held := follow(t, s.addr, "/live/feed")
	stream := openStream(t, s.addr, "/rt/gated", eventSource)
	direct := openStream(t, d.asgi.addr, "/rt/gated", eventSource)
	for name := range direct.response.Header {
		if name != "Date" && name != "M0-Note" && stream.response.Header.Get(name) != direct.response.Header.Get(name) {
			t.Errorf("%s is %q, the app's own %q", name, stream.response.Header.Get(name), direct.response.Header.Get(name))
		}
	}
	for number := 1; number <= 3; number++ {
		held.wantHeartbeats(4) // and nothing comes on the other
		d.allow(t, "gate")
		stream.wantEvent(t, "gated", number)
		direct.wantEvent(t, "gated", number)
		publishTo(t, s.publish, "announcements", fmt.Sprint(number))
		if b := held.wantEvent(fmt.Sprint(number)); b.event != "" {
			t.Errorf("%q", b.raw)
		}
	}
	if stream.body.Buffered() > 0 {
		rest, _ := stream.body.Peek(stream.body.Buffered())
		t.Errorf("%q beside the app's own bytes", rest)
	}
	if s := healthLanes(t, s.holdfast); s["streams"].InUse != 1 || s["web"].InUse != 0 {
		t.Errorf("%+v, want a slot for the stream and none for the hold", s)
	}
}

// A hold that is asked for on a stream lane is a hold: the lane's slot is free.
func TestHold_OnAStreamLaneItTakesNoSlot(t *testing.T) {
	t.Parallel()
	d := startDesk(t)
	s := startHoldsAlone(t, strings.Replace(mixedHolds, `"/rt/"`, `"/live/"`, 1), []*app{d.wsgi, d.asgi})
	s.mustBecomeReady()
	f := follow(t, s.addr, "/live/feed")
	eventuallyIdle(t, s.holdfast)
	publishTo(t, s.publish, "announcements", "on the lane of streams")
	f.wantEvent("on the lane of streams")
	f.wantHeartbeats(2)
}

// wantPassing asks as a plain client and as an EventSource: the first is
// refused with the status and the reason, the second sent away with the reason.
func wantPassing(t *testing.T, addr, path string, status int, reason string) {
	t.Helper()
	for _, accept := range []string{"", "Accept: text/event-stream, */*\r\n"} {
		plain := askEvents(t, addr, path, accept)
		if plain.response.StatusCode != status || plain.response.Header.Get("Holdfast-Reason") != reason ||
			plain.response.Header.Get("Content-Type") != "application/problem+json" {
			t.Fatalf("%q: %s %v, want %d %s", accept, plain.response.Status, plain.response.Header, status, reason)
		}
		if body, err := io.ReadAll(plain.body); err != nil || !bytes.HasPrefix(body, []byte(`{"type":"docs/troubleshoot.md#`+reason+`",`)) {
			t.Errorf("%q: %s %v, want the reason %s", accept, body, err, reason)
		}
	}
	source := askEvents(t, addr, path, eventSource)
	head := source.response.Header
	if source.response.StatusCode != 200 || head.Get("Content-Type") != "text/event-stream" || head.Get("Holdfast-Reason") != reason {
		t.Fatalf("an EventSource gets %s %v, want 200 and the reason %s", source.response.Status, head, reason)
	}
	source.wantSentAway()
}

func TestEventSource_GetsPassingReasonsAsAStreamThatAsksItToComeBack(t *testing.T) {
	t.Parallel()
	for _, way := range []struct {
		reason string
		status int
		lane   string
	}{
		{"lane_full", 503, "{upstream: app, slots: 1, queue: 0}"},
		{"lane_timeout", 503, "{upstream: app, slots: 1, queue_timeout: 5ms}"},
		{"upstream_timeout", 504, "{upstream: app, slots: 8, response_timeout: 10ms}"},
	} {
		t.Run(way.reason, func(t *testing.T) {
			t.Parallel()
			s := startHolds(t, flaskThreads, `
upstreams: {app: {targets: ["http://%s"]}}
lanes: {web: `+way.lane+`}
routes: [{match: "/", lane: web}]
`)
			defer s.app.open("release")
			client := dialRaw(t, s.addr)
			client.get("/hang", way.reason)
			eventually(t, "the slot taken", func() bool { return healthLanes(t, s.holdfast)["web"].InUse == 1 })
			wantPassing(t, s.addr, "/hang", way.status, way.reason)
			series := fmt.Sprintf(`holdfast_requests_total{code="%d",route="/"}`, way.status)
			eventually(t, "the three that were refused, and whoever was hung up on, counted", func() bool { return metric(t, s.admin(), series) >= 3 })
			if n := metric(t, s.admin(), `holdfast_requests_total{code="200",route="/"}`); n > 0 {
				t.Errorf("%v counted as 200", n)
			}
		})
	}
}

func TestEventSource_IsSentAwayWhileTheAppIsDown(t *testing.T) {
	t.Parallel()
	s := startHolds(t, flaskThreads, strings.Replace(holdsLanes, "park: 60s", "park: 10ms", 1))
	f := follow(t, s.addr, "/events")
	s.app.kill()
	wantPassing(t, s.addr, "/events", 503, "upstream_down")
	publishTo(t, s.publish, "news", "the app is not needed")
	f.wantEvent("the app is not needed")
	eventually(t, "three counted", func() bool { return metric(t, s.admin(), `holdfast_requests_total{code="503",route="/"}`) == 3 })
}

func TestHold_BeyondTheLimitClientsAreRefusedUntilOneLeaves(t *testing.T) {
	t.Parallel()
	s := startHolds(t, djangoThreads, holdsLanes+"holds: {limit: 2}\n")
	first := follow(t, s.addr, "/events")
	follow(t, s.addr, "/events")
	wantPassing(t, s.addr, "/events", 503, "too_many_holds")
	wantGet(t, onceClient(), s.url("/fast"))
	if n := subscribers(t, s.addr); n != 2 {
		t.Errorf("%d subscribers, want 2", n)
	}
	// A refused client's connection is an ordinary one still.
	kept := dialRaw(t, s.addr)
	kept.get("/events", "refused")
	kept.wantAnswer(503)
	kept.get("/fast", "kept")
	kept.wantAnswer(200)
	first.Close()
	eventuallySubscribers(t, s.addr, 1)
	third := follow(t, s.addr, "/events")
	publishTo(t, s.publish, "news", "to the third")
	third.wantEvent("to the third")
}

func TestHold_InTheLogTheExchangeIsHeldAndASlowEndHasItsReason(t *testing.T) {
	t.Parallel()
	s := startHolds(t, flaskThreads, holdsLanes+"holds: {heartbeat: 0, outbox_bytes: 8KiB}\nlog: {access: true}\n")
	f := follow(t, s.addr, "/events?channel=big")
	var lines []map[string]any
	eventually(t, "the line of the exchange", func() bool {
		lines = nil
		for _, line := range logLines(t, s.log.String(), "exchange") {
			if line["path"] == "/events" {
				lines = append(lines, line)
			}
		}
		return len(lines) > 0
	})
	if line := lines[0]; len(lines) != 1 || line["end"] != "held" || line["status"] != 200.0 || line["lane"] != "web" || line["route"] != "/" {
		t.Errorf("%v, want one exchange that ended as held", lines)
	}
	// It does not read; what the sockets take is not its outbox.
	data := strings.Repeat("x", 200<<10)
	ended := `holdfast_holds_ended_total{kind="stream",reason="slow"}`
	for n := 0; metric(t, s.admin(), ended) == 0; n++ {
		if n == 200 {
			t.Fatal("200 events of 200 KiB and the client is not slow")
		}
		publishTo(t, s.publish, "big", data)
	}
	var said []map[string]any
	eventually(t, "the line of its end", func() bool { said = logLines(t, s.log.String(), "hold ended"); return len(said) > 0 })
	if len(said) != 1 || said[0]["reason"] != "slow" || said[0]["kind"] != "stream" || said[0]["channel"] != "big" {
		t.Errorf("%v, want one hold that ended as slow, and its channels", said)
	}
	if _, err := io.Copy(io.Discard, f.in); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%v, want a reset: a clean end would say that this is all", err)
	}
	if n := metric(t, s.admin(), "holdfast_outbox_bytes"); n != 0 {
		t.Errorf("%v bytes wait for nobody", n)
	}
}

const grantLanes = `
upstreams: {app: {targets: ["http://%s"], park: 60s}}
lanes: {web: {upstream: app, slots: 4, queue_timeout: 60s}}
routes:
  - {match: "/live/", grant: {key_env: THE_GRANT_KEY, cookie: sessionid}}
  - {match: "/", lane: web}
holds: {heartbeat: 0}
`

// issue has the app's own client make a grant's address, with Python's
// arguments of grant.stream_url behind the prefix.
func issue(t *testing.T, key, arguments string) (path string) {
	t.Helper()
	client, err := filepath.Abs("../../clients/python")
	if err != nil {
		t.Fatal(err)
	}
	python := exec.Command("/usr/bin/python3", "-c", "from holdfast import grant; print(grant.stream_url('/live', "+arguments+"), end='')")
	python.Env = append(os.Environ(), "PYTHONPATH="+client, "PYTHONDONTWRITEBYTECODE=1", "M0_GRANT_KEY="+key)
	out, err := python.CombinedOutput()
	if err != nil {
		t.Fatalf("%v %s", err, out)
	}
	return string(out)
}

func TestGrant_HoldsWhileTheAppStandsStill(t *testing.T) {
	t.Parallel()
	s := startHolds(t, flaskThreads, grantLanes, "THE_GRANT_KEY=new", "THE_GRANT_KEY_PREV=old")
	for range 4 {
		client := dialRaw(t, s.addr)
		client.get("/hang", "hangs")
	}
	eventually(t, "every slot taken", func() bool { return s.app.running("/hang") == 4 })
	s.app.stop()
	defer s.app.open("release")
	defer s.app.goOn()
	path := issue(t, "new", "'news'")
	f := askEvents(t, s.addr, path, eventSource)
	head := f.response.Header
	if head.Get("Content-Type") != "text/event-stream" || head.Get("Cache-Control") != "no-cache, no-transform" || head.Get("X-Accel-Buffering") != "no" {
		t.Errorf("%v", head)
	}
	if b := f.wantBlock(); b.raw != ": open\n\n" {
		t.Errorf("%q, want what a hold without a view begins with", b.raw)
	}
	f.wantOpen()
	old := follow(t, s.addr, issue(t, "old", "'news'"))
	bound := askEvents(t, s.addr, issue(t, "new", "'news', session='the session'"), eventSource+"Cookie: theme=dark; sessionid=the session\r\n")
	bound.wantOpen()
	samePage := askEvents(t, s.addr, path, eventSource+"Origin: http://localhost\r\n")
	samePage.wantOpen()
	if _, reached := publishTo(t, s.publish, "news", "to all who have a grant"); reached != 4 {
		t.Errorf("reached %d, want 4", reached)
	}
	for _, f := range []*follower{f, old, bound, samePage} {
		f.wantEvent("to all who have a grant")
	}
	f.Close()
	publishTo(t, s.publish, "news", "missed")
	followFrom(t, s.addr, path, f.id).wantEvent("missed")
	if lane := healthLanes(t, s.holdfast)["web"]; lane.InUse != 4 || lane.Waiting != 0 {
		t.Errorf("%+v, want nobody to wait", lane)
	}
}

func TestGrant_ThatIsNotGoodIsRefusedAndHoldsNobody(t *testing.T) {
	t.Parallel()
	s := startHoldsFile(t, writeConfig(t, grantLanes, freeAddress(t)), "THE_GRANT_KEY=new")
	good, bound := issue(t, "new", "'news'"), issue(t, "new", "'news', session='the session'")
	altered := strings.Replace(good, ".news.", ".other.", 1)
	_, port, _ := net.SplitHostPort(s.addr)
	for _, ask := range []struct {
		name, path, fields string
		status             int
		reason, body       string // body: its "error" and its "reason"
	}{
		{"expired", issue(t, "new", "'news', ttl=-1"), "", 401, "grant_expired", "expired"},
		{"of another channel", altered, "", 401, "grant_invalid", "invalid"},
		{"cut", good[:len(good)-1], "", 401, "grant_invalid", "invalid"},
		{"of another key", issue(t, "old", "'news'"), "", 401, "grant_invalid", "invalid"},
		{"missing", "/live/stream", "", 401, "grant_invalid", "invalid"},
		{"without its session", bound, "", 401, "grant_invalid", "invalid"},
		{"with another session", bound, "Cookie: sessionid=another\r\n", 401, "grant_invalid", "invalid"},
		{"with another cookie", bound, "Cookie: session=the session\r\n", 401, "grant_invalid", "invalid"},
		{"from another page", good, "Origin: http://evil.example\r\n", 403, "origin_denied", ""},
		{"from another port", good, "Origin: http://localhost:" + port + "\r\n", 403, "origin_denied", ""},
		{"from a sandboxed page", good, "Origin: null\r\n", 403, "origin_denied", ""},
		{"expired and from another page", altered, "Origin: http://evil.example\r\n", 403, "origin_denied", ""},
		{"to another path", strings.Replace(good, "/stream", "/streams", 1), "", 404, "no_route", ""},
	} {
		// An EventSource must give up: no new try makes it better.
		for _, accept := range []string{"", eventSource} {
			f := askEvents(t, s.addr, ask.path, accept+ask.fields)
			if f.response.StatusCode != ask.status || f.response.Header.Get("Holdfast-Reason") != ask.reason {
				t.Errorf("%s: %s %v, want %d %s", ask.name, f.response.Status, f.response.Header, ask.status, ask.reason)
				continue
			}
			body, err := io.ReadAll(f.body)
			var problem struct{ Error, Reason string }
			if err != nil || json.Unmarshal(body, &problem) != nil {
				t.Errorf("%s: %s %v, want a problem", ask.name, body, err)
			}
			if ask.body != "" && (problem.Error != ask.body || problem.Reason != ask.body) {
				t.Errorf("%s: %s, want error and reason %s", ask.name, body, ask.body)
			}
		}
	}
	if n := subscribers(t, s.addr); n != 0 {
		t.Errorf("%d are held", n)
	}
	follow(t, s.addr, good)
}

// rawHolds answers each path with the bytes that stand here, then closes, or
// waits where they end in "...".
var rawHolds = map[string]string{
	"/length":   "M0-Hold: stream\r\nM0-Channel: news\r\nContent-Length: 7\r\n\r\n: whole",
	"/chunked":  "M0-Hold: stream\r\nM0-Channel: news\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n: wh\r\n3\r\nole\r\n0\r\n\r\n",
	"/close":    "M0-Hold: stream\r\nM0-Channel: news\r\n\r\n: whole",
	"/sse":      "Content-Type: text/event-stream\r\nM0-Hold: stream\r\nM0-Channel: news\r\n\r\n: whole\n\n",
	"/case":     "m0-hold: Stream\r\nM0-CHANNEL:news\r\nContent-Length: 9\r\n\r\n: whole\n\n",
	"/identity": "M0-Hold: stream\r\nM0-Channel: ,, news ,%zz\r\nContent-Encoding: identity\r\nContent-Length: 8\r\n\r\n: whole\n",

	"/gzip":    "M0-Hold: stream\r\nM0-Channel: news\r\nContent-Encoding: gzip\r\nContent-Length: 7\r\n\r\n: whole",
	"/cut":     "M0-Hold: stream\r\nM0-Channel: news\r\nContent-Length: 8\r\n\r\n: whole",
	"/broken":  "M0-Hold: stream\r\nM0-Channel: news\r\nTransfer-Encoding: chunked\r\n\r\n7\r\n: whole\r\n",
	"/large":   "M0-Hold: stream\r\nM0-Channel: news\r\n\r\n" + strings.Repeat("x", 1<<20+1),
	"/endless": "Content-Type: text/event-stream\r\nM0-Hold: stream\r\nM0-Channel: news\r\n\r\n: whole\n\n...",
	"/mixed":   "M0-Hold: stream\r\nM0-Channel: news\r\nGrip-Hold: stream\r\nGrip-Channel: news\r\nContent-Length: 7\r\n\r\n: whole",
	"/many":    "M0-Hold: stream\r\nM0-Channel: " + numbered(40) + "\r\nM0-Channel: a, b, " + numbered(63) + "\r\nContent-Length: 7\r\n\r\n: whole",

	"/nowhere": "M0-Hold: stream\r\nContent-Length: 7\r\n\r\n: whole",
	"/unknown": "M0-Hold: for ever\r\nM0-Channel: news\r\nContent-Length: 7\r\n\r\n: whole",
	"/escapes": "M0-Hold: stream\r\nM0-Channel: %zz, a%00b\r\nContent-Length: 7\r\n\r\n: whole",
	"/both":    "M0-Hold: stream\r\nM0-Hold: response\r\nM0-Channel: news\r\nContent-Length: 7\r\n\r\n: whole",
}

// numbered lists so many channels.
func numbered(n int) string {
	names := make([]string, n)
	for i := range names {
		names[i] = strconv.Itoa(i)
	}
	return strings.Join(names, ", ")
}

// startRawHolds runs an app that answers with rawHolds.
func startRawHolds(t *testing.T) *app {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		answer, waits := strings.CutSuffix(rawHolds[r.URL.Path], "...")
		io.WriteString(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\n"+answer)
		if waits {
			<-ended
		}
	})}
	go server.Serve(ln)
	t.Cleanup(func() { close(ended); server.Close() })
	return &app{addr: ln.Addr().String()}
}

// startRaw serves the app that answers with rawHolds.
func startRaw(t *testing.T) *holdsSite {
	t.Helper()
	s := startHoldsAlone(t, `
upstreams: {app: {targets: ["http://%s"]}}
lanes: {web: {upstream: app, slots: 4, response_timeout: 500ms}}
routes: [{match: "/", lane: web}]
holds: {heartbeat: 0}
`, []*app{startRawHolds(t)})
	s.mustBecomeReady()
	return s
}

func TestHold_IsMadeWhateverTheAppFramesItsAnswerWith(t *testing.T) {
	t.Parallel()
	s := startRaw(t)
	held := []string{"/length", "/chunked", "/close", "/sse", "/case", "/identity"}
	var followers []*follower
	for _, path := range held {
		f := askEvents(t, s.addr, path, eventSource)
		if f.response.StatusCode != 200 {
			t.Errorf("%s: %s, want a hold", path, f.response.Status)
			continue
		}
		if b := f.wantBlock(); b.raw != ": whole\n\n" {
			t.Errorf("%s begins with %q", path, b.raw)
		}
		followers = append(followers, f)
	}
	// By another method, after a body, on a connection that was used before.
	post := dialRaw(t, s.addr)
	post.get("/nowhere", "first")
	post.wantAnswer(200)
	post.send("POST /length HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nbody")
	response, err := http.ReadResponse(post.r, nil)
	if err != nil || response.StatusCode != 200 {
		t.Fatal(response, err)
	}
	f := &follower{Conn: post, t: t, in: post.r, response: response, body: bufio.NewReader(response.Body)}
	f.wantOpen()
	followers = append(followers, f)
	if _, reached := publishTo(t, s.publish, "news", "to all"); reached != len(followers) {
		t.Errorf("reached %d, want %d", reached, len(followers))
	}
	for _, f := range followers {
		f.wantEvent("to all")
	}
	eventuallyIdle(t, s.holdfast)
}

func TestHold_IsNotMadeOfAnAnswerThatIsNotWholeOrSaysNothingThatCanBeFollowed(t *testing.T) {
	t.Parallel()
	s := startRaw(t)
	for _, path := range []string{"/gzip", "/cut", "/broken", "/large", "/endless", "/mixed", "/many"} {
		f := askEvents(t, s.addr, path, eventSource) // it gives up: a new try makes it no better
		if f.response.StatusCode != 502 || f.response.Header.Get("Holdfast-Reason") != "bad_hold" {
			t.Errorf("%s: %s %v, want 502 bad_hold", path, f.response.Status, f.response.Header)
		}
	}
	for _, path := range []string{"/nowhere", "/unknown", "/escapes", "/both"} {
		f := askEvents(t, s.addr, path, eventSource)
		if f.response.StatusCode != 200 || f.response.ContentLength != 7 || f.response.Header.Get("Holdfast-Reason") != "" {
			t.Errorf("%s: %s %v, want the answer as it is", path, f.response.Status, f.response.Header)
			continue
		}
		if body, err := io.ReadAll(f.body); string(body) != ": whole" || err != nil {
			t.Errorf("%s: %q %v", path, body, err)
		}
		for name := range f.response.Header {
			if strings.HasPrefix(name, "M0-") {
				t.Errorf("%s: %s reached the client", path, name)
			}
		}
	}
	if n := subscribers(t, s.addr); n != 0 {
		t.Errorf("%d subscribers", n)
	}
	eventuallyIdle(t, s.holdfast)
}
