package main

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fasthttp/websocket"
)

// Messages of held sockets on their way to the app: through which lane, in
// which order, and what becomes of them while the app is full, away or asked to
// stop.

// chat is what an app does with sockets: two come into a room and one into
// another, an event goes to the room, and a message of one of them goes through
// a view to the room.
func chat(t *testing.T, addr, publish string) (took time.Duration) {
	t.Helper()
	began := monotonic()
	one, two := openSocket(t, addr, "/ws?channel=room"), openSocket(t, addr, "/ws?channel=room")
	apart := openSocket(t, addr, "/ws?channel=another")
	if _, reached := publishTo(t, publish, "room", "to the room"); reached != 2 {
		t.Errorf("reached %d, want the two", reached)
	}
	one.want("to the room")
	two.want("to the room")
	said := monotonic() // from one client through a view to the other
	one.say("1?publish=relayed&channel=room&reply=text&answer=done")
	two.want("relayed")
	figure(t, "relay_ms", milliseconds(monotonic()-said))
	for _, text := range []string{"relayed", "done"} { // in the order in which the view did it
		one.want(text)
	}
	publishTo(t, publish, "another", "to the other room")
	apart.want("to the other room") // and nothing before it
	took = monotonic() - began
	for _, c := range []*socketClient{one, two, apart} {
		c.Close()
	}
	eventuallyHolds(t, addr, holdsShown{})
	return took
}

func TestSocket_HandshakeFanOutRelayAndIsolationAreOverBeforeTwoSlowViewsOfTheSameLane(t *testing.T) {
	for i := range starts() {
		server := holdsServers[i%len(holdsServers)]
		t.Run(fmt.Sprint(i, server.name), func(t *testing.T) {
			t.Parallel()
			c, a := startSocketsBinary(t, server, holdsLanes)
			publish := c.publishAddr(t)
			chat(t, c.addr, publish) // the app's first requests take longer
			alone := chat(t, c.addr, publish)
			slow := make(chan []attempt, 1)
			go func() { slow <- askAtOnce("http://"+c.addr, 2, "/slow?ms=1500") }()
			eventually(t, "two slow views", func() bool { return a.running("/slow") == 2 })
			beside := chat(t, c.addr, publish)
			over := monotonic()
			for _, got := range <-slow {
				if !got.ok() {
					t.Error(got)
				}
			}
			for _, v := range on("/slow", a.views()) {
				if v.end < over {
					t.Error("a slow view had ended before all was over")
				}
			}
			t.Logf("alone %v, beside the slow views %v: %v more", alone, beside, beside-alone)
		})
	}
}

const threeLanes = `
upstreams:
  a: {targets: ["http://%[1]s"]}
  b: {targets: ["http://%[2]s"]}
  asgi: {targets: ["http://%[3]s"]}
lanes:
  one: {upstream: a, slots: 2}
  two: {upstream: b, slots: 2}
  streams: {upstream: asgi, kind: stream, slots: 10}
routes:
  - {match: "/a/", lane: one}
  - {match: "/b/", lane: two}
  - {match: "/rt/", lane: streams}
  - {match: "/", lane: one}
`

// Lane two is gone, and with it its upstream; and the routes of lane one are others.
const withoutLaneTwo = `
upstreams:
  a: {targets: ["http://%[1]s"]}
  b: {targets: ["http://%[2]s"]}
  asgi: {targets: ["http://%[3]s"]}
lanes:
  one: {upstream: a, slots: 2}
  other: {upstream: b, slots: 1}
  streams: {upstream: asgi, kind: stream, slots: 10}
routes:
  - {match: "/a/", lane: one}
  - {match: "POST /ws/message", lane: other}
  - {match: "/", lane: streams}
`

func TestSocket_MessagesGoThroughTheLaneThatApprovedItAndFramesOfATunnelAreNotMessages(t *testing.T) {
	t.Parallel()
	a, b := newSocketsApp(t, flaskThreads), newSocketsApp(t, djangoSync)
	d := &desk{jobs: t.TempDir()}
	asgi := d.newASGI(t, freeAddress(t))
	asgi.start()
	s := startHoldsAlone(t, threeLanes, []*app{a.app, b.app, asgi})
	a.startFor(s.publish)
	b.startFor(s.publish)
	s.wantReady()
	ofA, ofB := openSocket(t, s.addr, "/a/ws"), openSocket(t, s.addr, "/b/ws")
	tunnel := dialTunnel(t, s.addr, "/rt/echo")
	for n := range 20 {
		ofA.say("%d?reply=text&answer=a", 100+n)
		ofB.say("%d?reply=text&answer=b", 200+n)
		wantEcho(t, tunnel, websocket.TextMessage, fmt.Appendf(nil, "%d", 300+n))
	}
	for range 20 {
		ofA.want("a")
		ofB.want("b")
	}
	run := func(from, to int) (numbers []int) {
		for n := from; n < to; n++ {
			numbers = append(numbers, n)
		}
		return numbers
	}
	a.wantHeard(run(100, 120)...)
	b.wantHeard(run(200, 220)...)
	if n := inboundCount(t, s.admin(), "ok"); n != 40 {
		t.Errorf("%d messages counted, want 40", n)
	}
	if got := healthHolds(t, s.addr); got.Sockets != 2 {
		t.Errorf("%+v, want two sockets: a tunnel is none", got)
	}

	// A lane that stays is the socket's, wherever its route leads now.
	s.change(threeLanes, a.app, b.app, asgi)
	ofB.say("220?reply=text&answer=b")
	ofB.want("b")
	s.change(withoutLaneTwo, a.app, b.app, asgi)
	ofA.say("120?reply=text&answer=a")
	ofA.want("a")
	ofB.say("221?reply=text&answer=b")
	ofB.want("b")
	a.wantHeard(run(100, 121)...)
	b.wantHeard(run(200, 222)...)
	if lanes := healthLanes(t, s.holdfast); lanes["two"] != (laneShown{}) || lanes["other"].Slots != 1 {
		t.Errorf("%+v: the lane is still there", lanes)
	}
	// Where the path's route leads elsewhere, there they go.
	s.change(strings.Replace(withoutLaneTwo, "lane: other}", "lane: one}", 1), a.app, b.app, asgi)
	ofB.say("222?reply=text&answer=elsewhere")
	ofB.want("elsewhere")
	if heard := a.heard(); len(heard) != 2 {
		t.Errorf("a heard %v, want messages of both", heard)
	}
	b.wantHeard(run(200, 222)...)
	wantEcho(t, tunnel, websocket.TextMessage, []byte("still there"))
	for _, e := range asgi.entries() {
		if e.Method == "POST" {
			t.Errorf("%+v: a frame of a tunnel was POSTed", e)
		}
	}
}

// flood sends numbered messages of so many bytes and reads nothing.
func flood(c *socketClient, n, size int, sent *atomic.Int64) error {
	pad := strings.Repeat("x", size)
	for i := range n {
		c.SetWriteDeadline(time.Now().Add(2 * time.Minute))
		text := fmt.Sprintf("%d?ms=2&reply=text&answer=noted&pad=", i)
		if err := c.WriteMessage(websocket.TextMessage, []byte(text+pad[len(text):])); err != nil {
			return err
		}
		sent.Add(1)
	}
	return nil
}

// eventuallyStill waits until a count has not moved for a while.
func eventuallyStill(t *testing.T, count *atomic.Int64) {
	t.Helper()
	last, looks := int64(-1), 0
	eventually(t, "the client to be held up", func() bool {
		if now := count.Load(); now != last {
			last, looks = now, 0
		}
		looks++
		return looks > 100
	})
}

func TestSocket_AFloodFromAClientThatDoesNotReadComesInOrderThroughAFullLaneAndRestartsOfTheApp(t *testing.T) {
	servers := []holdsServer{flaskThreads, djangoSync}
	if os.Getenv("HOLDFAST_FULL") != "" {
		servers = holdsServers
	}
	for _, server := range servers {
		t.Run(server.name, func(t *testing.T) {
			t.Parallel()
			const messages, kills = 3000, 2
			s := startSockets(t, server, strings.Replace(holdsLanes, "slots: 4", "slots: 2", 1)+"holds: {heartbeat: 0, outbox_bytes: 4MiB, write_stall: 5m}\n")
			c := openSocket(t, s.addr, "/ws")
			var sent atomic.Int64
			flooding := make(chan error, 1)
			for range 2 {
				client := dialRaw(t, s.addr)
				client.get("/hang", "hangs")
			}
			eventually(t, "the lane full", func() bool { return s.app.running("/hang") == 2 })
			go func() { flooding <- flood(c, messages, 4<<10, &sent) }()
			eventually(t, "a message to wait", func() bool { return healthLanes(t, s.holdfast)["web"].Waiting == 1 })
			eventuallyStill(t, &sent)
			if n := sent.Load(); n == messages {
				t.Error("a client whose messages nobody takes has sent all of them")
			} else {
				t.Logf("held up after %d messages", n)
			}
			if n := len(s.app.heardOfOne()); n != 0 {
				t.Errorf("the app heard %d messages through a full lane", n)
			}
			s.app.open("release")
			for n := 500; n <= messages; n += 500 {
				eventually(t, fmt.Sprint(n, " messages"), func() bool {
					inbound := s.holds.Snapshot().Inbound
					return inbound["ok"]+inbound["failed"] >= uint64(n)
				})
				if n <= kills*500 {
					s.app.kill()
					s.app.start()
				}
			}
			if err := <-flooding; err != nil {
				t.Error("the socket did not last:", err)
			}
			wantInOrder(t, s.app.heardOfOne(), messages, kills)
			if n := metric(t, s.admin(), `holdfast_holds_open{kind="websocket"}`); n != 1 {
				t.Errorf("%v sockets", n)
			}
			// It reads at last: what the app answered is there, once each.
			noted := inboundCount(t, s.admin(), "ok")
			for range noted {
				c.want("noted")
			}
			// Of a message that is sent once its app is dead, the app can see no byte.
			if failed := inboundCount(t, s.admin(), "failed"); noted+failed != messages || failed > kills {
				t.Errorf("%d answered and %d failed of %d, want one for each of %d kills to fail", noted, failed, messages, kills)
			}
		})
	}
}

// wantInOrder holds what the app heard to what was sent: none twice, none before
// one that was sent earlier, and missing only what was under way at a kill.
func wantInOrder(t *testing.T, heard []int, sent, kills int) {
	t.Helper()
	for i := 1; i < len(heard); i++ {
		if heard[i] <= heard[i-1] {
			t.Errorf("%d was heard after %d", heard[i], heard[i-1])
		}
	}
	var missing []int
	for n := range sent {
		if _, found := slices.BinarySearch(heard, n); !found {
			missing = append(missing, n)
		}
	}
	if len(missing) > kills {
		t.Errorf("missing: %v, want one for each of %d kills at most", missing, kills)
	}
	t.Logf("%d of %d heard, missing %v", len(heard), sent, missing)
}

func TestSocket_ManyThatSendAtOnceAreAllServedAndPagesOfTheirLaneGetTheirTurns(t *testing.T) {
	for _, server := range []holdsServer{djangoThreads, flaskSync} {
		t.Run(server.name, func(t *testing.T) {
			// The queue takes as many pages as there will be; messages take no place in it, and need none.
			const many, each, pages = 2000, 2, 14
			c, a := startSocketsBinary(t, server, `
upstreams: {app: {targets: ["http://%s"]}}
lanes: {web: {upstream: app, slots: 2, queue: 14, queue_timeout: 60s}}
routes: [{match: "/", lane: web}]
`)
			clients := openSockets(t, c.addr, "/ws", many)
			var hanging sync.WaitGroup
			for range 2 {
				hanging.Go(func() { ask(onceClient(), "GET", "http://"+c.addr, "/hang") })
			}
			eventually(t, "the lane full", func() bool { return a.running("/hang") == 2 })
			for i, client := range clients {
				for n := range each {
					client.say("%d?reply=text&answer=%d", i*each+n, i*each+n)
				}
			}
			eventually(t, "all to wait", func() bool {
				return adminStatus(t, c.admin(t)).Lanes["web"].Waiting == len(clients)
			})
			end := keepAsking("http://"+c.addr, pages, "/fast")
			eventually(t, "the pages to wait with them", func() bool {
				return adminStatus(t, c.admin(t)).Lanes["web"].Waiting == len(clients)+pages
			})
			a.open("release")
			eachAtOnce(t, len(clients), func(i int) error {
				texts, err := readAll(clients[i], each)
				if err != nil || !slices.Equal(texts, []string{fmt.Sprint(i * each), fmt.Sprint(i*each + 1)}) {
					return fmt.Errorf("%q %w", texts, cmpErr(err))
				}
				return nil
			})
			asked := end()
			hanging.Wait()
			if n := metric(t, c.admin(t), `holdfast_lane_refused_total{lane="web",reason="lane_full"}`); n != 0 {
				t.Errorf("%v messages or pages were refused", n)
			}
			for _, page := range asked {
				if page.method == "GET" && !page.ok() || page.err != nil || page.status == http.StatusServiceUnavailable {
					t.Error(page)
				}
			}
			// Each of the first pages came before the last message of all: it had its turn.
			var last time.Duration
			for _, v := range on("/message/", a.views()) {
				last = max(last, v.start)
			}
			turns := 0
			for _, v := range on("/fast", a.views()) {
				if v.start < last {
					turns++
				}
			}
			if turns < pages {
				t.Errorf("%d pages had a turn before the last message, want the %d that waited", turns, pages)
			}
			heard := a.heard()
			if len(heard) != len(clients) {
				t.Errorf("messages of %d sockets, want %d", len(heard), len(clients))
			}
			for connection, numbers := range heard {
				if len(numbers) != each || numbers[0]%each != 0 || numbers[1] != numbers[0]+1 {
					t.Errorf("%s: %v", connection, numbers)
				}
			}
			t.Logf("%d messages, %d pages, %d of them before the last message", len(clients)*each, len(asked), turns)
		})
	}
}

func TestSocket_MessagesWaitWhileTheAppIsAwayAndComeWhenItIsBack(t *testing.T) {
	for _, server := range []holdsServer{flaskThreads, flaskSync} {
		t.Run(server.name, func(t *testing.T) {
			t.Parallel()
			s := startSockets(t, server, holdsLanes)
			c := openSocket(t, s.addr, "/ws")
			c.say("1?reply=text&answer=before")
			c.want("before")
			s.app.kill()
			for n := 2; n <= 10; n++ {
				c.say("%d?reply=text&answer=%d", n, n)
			}
			eventually(t, "the first to wait", func() bool { return healthLanes(t, s.holdfast)["web"].Waiting == 1 })
			publishTo(t, s.publish, "news", "an event meanwhile")
			c.want("an event meanwhile")
			s.app.start()
			for n := 2; n <= 10; n++ {
				c.want(fmt.Sprint(n))
			}
			s.app.wantHeard(1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
			if ok, failed := inboundCount(t, s.admin(), "ok"), inboundCount(t, s.admin(), "failed"); ok != 10 || failed != 0 {
				t.Errorf("%d ok, %d failed", ok, failed)
			}
		})
	}
}

func TestSocket_WhoseAppStaysAwayEndsWithOverload(t *testing.T) {
	for _, server := range []holdsServer{flaskThreads, djangoSync} {
		t.Run(server.name, func(t *testing.T) {
			t.Parallel()
			s := startSockets(t, server, strings.Replace(holdsLanes, "park: 60s", "park: 1s", 1))
			c, quiet := openSocket(t, s.addr, "/ws"), openSocket(t, s.addr, "/ws")
			s.app.kill()
			for n := range 3 {
				c.say("%d", n)
			}
			c.wantClose(1013, "overload")
			// Beyond park there is nothing to wait for.
			eventuallyHolds(t, s.addr, holdsShown{Sockets: 1})
			publishTo(t, s.publish, "news", "to who said nothing")
			quiet.want("to who said nothing")
			quiet.say("3")
			quiet.wantClose(1013, "overload")
			for series, want := range map[string]float64{`holdfast_holds_ended_total{kind="websocket",reason="overload"}`: 2, `holdfast_inbound_total{result="overload"}`: 4,
				`holdfast_inbound_total{result="ok"}`: 0, `holdfast_inbound_total{result="failed"}`: 0} {
				if n := metric(t, s.admin(), series); n != want {
					t.Errorf("%s is %v, want %v", series, n, want)
				}
			}
			s.app.start()
			eventually(t, "the app to answer", func() bool { return ask(onceClient(), "GET", s.url(""), "/fast").ok() })
			if heard := s.app.heard(); len(heard) != 0 {
				t.Errorf("the app heard %v of sockets that were told overload", heard)
			}
		})
	}
}

func TestSocket_WhatAClientSentBeforeItLeftIsDelivered(t *testing.T) {
	t.Parallel()
	s := startSockets(t, djangoThreads, holdsLanes)
	c := openSocket(t, s.addr, "/ws?channel=a")
	c.say("1?gate=go")
	eventually(t, "the first message", func() bool { return s.app.running("/message/1") == 1 })
	c.say("2")
	c.say("3?subscribe=b")
	if err := c.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(1000, "")); err != nil {
		t.Fatal(err)
	}
	c.wantClose(1000, "")
	eventuallyHolds(t, s.addr, holdsShown{})
	s.app.open("go")
	s.app.wantHeard(1, 2, 3)
	eventually(t, "all to be counted", func() bool { return inboundCount(t, s.admin(), "ok") == 3 })
	if _, reached := publishTo(t, s.publish, "b", "to nobody"); reached != 0 {
		t.Errorf("reached %d: who left has joined", reached)
	}
}

func TestDrain_SocketsAreSentAwayAndMessagesThatWereReadAreDelivered(t *testing.T) {
	for _, server := range []holdsServer{flaskThreads, djangoSync} {
		t.Run(server.name, func(t *testing.T) {
			t.Parallel()
			c, a := startSocketsCommand(t, server, holdsLanes)
			quiet := openSockets(t, c.addr, "/ws", 20)
			talks := openSocket(t, c.addr, "/ws")
			var frames bytes.Buffer
			for n := 1; n <= 5; n++ {
				text := fmt.Sprint(n)
				if n == 1 {
					text += "?gate=go"
				}
				frames.Write(clientFrame(0x1, text))
			}
			if _, err := talks.NetConn().Write(frames.Bytes()); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the first message", func() bool { return a.running("/message/1") == 1 })
			late := dialRaw(t, c.addr) // its view answers in the drain
			late.send("%s", handshake("/ws?gate=late", ""))
			eventually(t, "the late view", func() bool { return a.running("/ws?gate") == 1 })
			c.signal(t, syscall.SIGTERM)
			for _, client := range append(quiet, talks) {
				client.wantClose(1012, "draining")
			}
			a.open("late")
			if head, err := readRawHead(late.r); err != nil || head.code() != 101 {
				t.Errorf("%v %v, want its head", head, err)
			}
			if got, err := readFrame(late.r); err != nil || got != "\x03\xf4draining" {
				t.Errorf("%q %v, want the close 1012", got, err)
			}
			late.send("%s", clientFrame(0x8, "\x03\xf4"))
			if len(c.ended) > 0 {
				t.Error("the process has ended, and a message is under way")
			}
			a.open("go")
			c.wantExit(t, exitOK)
			c.wantNothingNamed(t)
			a.wantHeard(1, 2, 3, 4, 5)
		})
	}
}
