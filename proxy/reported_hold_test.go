package proxy_test

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/holds"
	"holdfast/lanes"
	"holdfast/proxy"
)

// Faults that users of other servers have met: streams, held and forwarded.

// ---- Coming back.

// Whatever a client comes back with, the outcome is one of three: what it
// missed, a gap, or a first visit. Of twenty-five events ten are kept.
func TestHold_OfWhateverAClientComesBackWithTheOutcomeIsKnown(t *testing.T) {
	s := startHolds(t, holdSetup{holds: holds.Config{Journal: holds.JournalLimits{Events: 10}}})
	ids := make([]int64, 26) // by their number
	other := int64(0)
	for n := 1; n <= 25; n++ {
		if ids[n] = s.publish("news", fmt.Sprint("event ", n)); n == 23 {
			other = s.publish("other", "not of its channel")
		}
	}
	head := ids[25]
	missed := func(from int) (text string) {
		for n := from + 1; n <= 25; n++ {
			text += chunk(eventBlock(ids[n], fmt.Sprint("event ", n)))
		}
		return text
	}
	field := func(id any) string { return fmt.Sprint("Last-Event-ID: ", id) }
	resumed := func(from int) string { return chunk(": open\n\n"+idBlock(ids[from])) + missed(from) }
	gap := func(from int) string { return chunk(": open\n\n" + gapBlock(ids[from], head) + idBlock(head)) }
	first := chunk(": open\n\n" + idBlock(head))
	for name, c := range map[string]struct {
		query  string
		fields []string
		want   string
	}{
		"TheFirst":          {"", []string{field(ids[1])}, gap(1)},
		"TheLastThatIsGone": {"", []string{field(ids[14])}, gap(14)},
		"JustBeforeTheRest": {"", []string{field(ids[15])}, resumed(15)},
		"NextToLast":        {"", []string{field(ids[24])}, resumed(24)},
		"Last":              {"", []string{field(ids[25])}, resumed(25)},
		"Word":              {"", []string{field("nope")}, first},
		"Empty":             {"", []string{field("")}, first},
		"None":              {"", nil, first},
		"Two":               {"", []string{field(ids[24]), field(ids[16])}, resumed(24)},
		"FieldAndQuery":     {fmt.Sprint("?lastEventId=", ids[16]), []string{field(ids[24])}, resumed(24)},
		"Query":             {fmt.Sprint("?lastEventId=", ids[24]), nil, resumed(24)},
		"UTF8":              {"", []string{field("\u0661\u0662\u00e9")}, first},
		"NotUTF8":           {"", []string{field("\xff\xfe")}, first},
		"NumberAndMore":     {"", []string{field(fmt.Sprint(ids[16], "x"))}, first},
		"Signed":            {"", []string{field(fmt.Sprint("+", ids[16]))}, first},
		"Padded":            {"", []string{field(fmt.Sprint(" ", ids[24], "\t "))}, resumed(24)},
		"Digits":            {"", []string{field(strings.Repeat("9", 4000))}, chunk(": open\n\n" + gapBlock(1<<63-1, head) + idBlock(head))},
		"OfAnotherChannel":  {"", []string{field(other)}, chunk(": open\n\n"+idBlock(other)) + missed(23)},
	} {
		t.Run(name, func(t *testing.T) {
			client := say(t, s.addr, askFor("/events"+c.query, c.fields...))
			s.view(t).answer(ok(joinNews, ""))
			client.wantHeldHead(t)
			client.wantBytes(t, c.want)
			s.endEach("news")
			client.wantBytes(t, lastChunk)
		})
	}
	large := dialWire(t, s.addr)
	large.Write([]byte(askFor("/events", field(strings.Repeat("1", 100<<10)))), 0)
	large.wantReason(t, 431, "headers_too_large")
}

// Channels may stand in one field or several; what is published to one does
// not hide what is published to another, though only two events of each are kept.
func TestHold_OfSeveralChannelsAllComesOnceAndInOrder(t *testing.T) {
	s := startHolds(t, holdSetup{holds: holds.Config{Journal: holds.JournalLimits{Events: 2}}})
	c := say(t, s.addr, askFor("/events"))
	v := s.view(t)
	v.answer(ok("M0-Hold: stream\r\nM0-Channel: a, a\r\nm0-channel: b\r\nM0-Channel: a\r\n", ""))
	c.wantHeldHead(t)
	c.wantBytes(t, chunk(": open\n\n"+idBlock(v.position(t))))
	for i, channel := range []string{"a", "b", "a", "b", "a"} {
		id := s.publish(channel, fmt.Sprint(i))
		c.wantBytes(t, chunk(eventBlock(id, fmt.Sprint(i))))
	}
	both, _, _ := s.holds.Publish(holds.Publication{Channels: []string{"b", "a"}, Retry: -1, Data: []byte("to both")})
	last := s.publish("b", "last")
	c.wantBytes(t, chunk(eventBlock(both, "to both"))+chunk(eventBlock(last, "last")))
}

// ---- What an app answers to an event source itself.

// The app's own answers are the app's, whatever their status: only what we say
// ourselves is put as a stream.
func TestPassing_WhatTheAppItselfAnswersReachesAnEventSourceAsItIs(t *testing.T) {
	eachKind(t, func(t *testing.T, stream bool) {
		s := startHolds(t, holdSetup{lane: lanes.Config{Stream: stream}})
		c := dialWire(t, s.addr)
		for _, answer := range []struct{ line, fields, body string }{
			{"500 Internal Server Error", "Content-Type: text/html\r\n", "<h1>500</h1>"}, {"204 No Content", "", ""},
			{"200 OK", "Content-Type: text/html\r\n", "<h1>sign in</h1>"}, {"307 Temporary Redirect", "Location: /login?next=/events\r\n", ""},
			{"401 Unauthorized", "WWW-Authenticate: Basic\r\n", "no"}, {"403 Forbidden", "", "no"}, {"404 Not Found", "", "no"},
			{"503 Service Unavailable", "Retry-After: 7\r\n", "later"}, {"502 Bad Gateway", "", "bad"}, {"504 Gateway Timeout", "", "late"},
			{"200 OK", "Content-Type: text/event-stream\r\n", "data: one\n\n"}, // of a stated length: it has an end
		} {
			c.say(t, asEventSource("GET"))
			v := s.view(t)
			length := fmt.Sprintf("Content-Length: %d\r\n", len(answer.body))
			if answer.line == "204 No Content" {
				length = ""
			}
			v.answer("HTTP/1.1 " + answer.line + "\r\n" + answer.fields + length + "\r\n" + answer.body)
			var status int
			fmt.Sscan(answer.line, &status)
			got := c.wantAnswer(t, "GET", status, answer.body)
			if len(fieldValues(got.fields, "Holdfast-Reason")) > 0 || got.closes() {
				t.Errorf("%s comes as %q", answer.line, got.fields)
			}
			for line := range strings.SplitSeq(strings.TrimSuffix(answer.fields, "\r\n"), "\r\n") {
				if name, value, ok := strings.Cut(line, ": "); ok && got.get(name) != value {
					t.Errorf("%s: %s is %q, want %q", answer.line, name, got.get(name), value)
				}
			}
		}
		s.wantNoHold(t)
	})
}

// ---- Streams that are forwarded.

// The head comes before there is any body, and each piece before the next is
// sent, however it is cut and framed; encoded bytes are the app's, untouched.
func TestForward_AStreamPassesPieceByPieceAsItIsCut(t *testing.T) {
	pieces := []string{"d", "ata: o", "ne\n", "\nid: 2\ndata: tw", "o\n\n: ", "hi\n\n", "\x1f\x8b\x08\x00\xff\x00"}
	for name, lane := range map[string]struct{ stream, forward bool }{"StreamLane": {true, false}, "ForwardedOnARequestLane": {false, true}} {
		for framing, fields := range map[string]string{"Chunked": "Transfer-Encoding: chunked\r\n", "UntilClose": "", "HTTP10": ""} {
			for _, version := range []string{"1.1", "1.0"} {
				t.Run(name+"/"+framing+"/To"+version, func(t *testing.T) {
					t.Parallel()
					next, served := make(chan string), make(chan string, 1)
					addr := startTCP(t, asApp(func(a *appConn) {
						if line, _ := a.head(); line == "" {
							return
						}
						a.say(map[bool]string{true: "HTTP/1.0", false: "HTTP/1.1"}[framing == "HTTP10"] + " 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip\r\n" + fields + "\r\n")
						for piece := range next {
							if framing == "Chunked" {
								piece = chunk(piece)
							}
							a.say(piece)
						}
						if framing == "Chunked" {
							a.say(lastChunk)
						}
						served <- ""
					}))
					on := startLane(t, addr, lanes.Config{Name: "web", Slots: 1, Stream: lane.stream})
					server := startServer(t, proxy.Config{}, []proxy.Route{{Match: "/", Lane: on, Stream: lane.stream, ForwardStreams: lane.forward}})
					c := say(t, server, "GET /events HTTP/"+version+"\r\nHost: a.test\r\nAccept-Encoding: gzip, br\r\n\r\n")
					head := c.wantHead(t, 200) // and nothing of the body was sent yet
					if got := fieldValues(head, "Content-Encoding"); !slices.Equal(got, []string{"gzip"}) {
						t.Errorf("Content-Encoding came as %q", got)
					}
					chunked := len(fieldValues(head, "Transfer-Encoding")) > 0
					if chunked != (version == "1.1") {
						t.Errorf("framed as %q", head)
					}
					for _, piece := range pieces {
						next <- piece
						if chunked {
							piece = chunk(piece)
						}
						c.wantBytes(t, piece)
					}
					close(next)
					take(t, "the app is done", served)
					if chunked {
						c.wantBytes(t, lastChunk)
					} else {
						c.wantEnd(t, false)
					}
				})
			}
		}
	}
}

// On a lane that refuses them, it is the missing length that makes a stream
// endless: both framings without one are refused, and one of a stated length is
// an answer like any other.
func TestForward_WhereStreamsAreRefusedOneOfAStatedLengthIsServed(t *testing.T) {
	s := startHolds(t, holdSetup{})
	c := dialWire(t, s.addr)
	for _, framing := range []string{"Transfer-Encoding: chunked\r\n\r\n" + chunk("data: a\n\n"), "\r\ndata: a\n\n"} {
		c.say(t, askFor("/events"))
		v := s.view(t)
		v.say("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n" + framing)
		c.wantReason(t, 409, "stream_refused", "lane web", "a hold header", "kind: stream")
		v.wantEnded(t)
		s.wantFree(t)
	}
	c.say(t, askFor("/events"))
	s.view(t).answer(ok("Content-Type: text/event-stream\r\n", "data: a\n\n"))
	c.wantAnswer(t, "GET", 200, "data: a\n\n")
}

// What a client accepts does not make a held stream an encoded one.
func TestHold_AStreamIsNeverEncodedWhateverItsClientAccepts(t *testing.T) {
	s := startHolds(t, holdSetup{})
	c := say(t, s.addr, askFor("/events", "Accept: text/event-stream", "Accept-Encoding: gzip, br"))
	v := s.view(t)
	if got := v.get("Accept-Encoding"); got != "" {
		t.Errorf("the view is told that its client accepts %s", got)
	}
	v.answer(ok(joinNews, ""))
	if got := fieldValues(c.wantHeldHead(t), "Content-Encoding"); len(got) > 0 {
		t.Errorf("it is encoded: %q", got)
	}
	c.wantBytes(t, chunk(": open\n\n"+idBlock(v.position(t))))
	id := s.publish("news", "plain")
	c.wantBytes(t, chunk(eventBlock(id, "plain")))
}

// ---- Clocks.

const short = 200 * time.Millisecond

// shortClocks are those of a client's connection.
func shortClocks(cfg *proxy.Config) {
	cfg.IdleTimeout, cfg.HeaderTimeout, cfg.BodyTimeout = short, short, 5*short
}

// pass waits until the clocks of connections that are older have run out: an
// idle one that came later is closed.
func pass(t *testing.T, addr string) {
	t.Helper()
	for range 3 {
		dialWire(t, addr).wantEnd(t, false)
	}
}

// A stream's first byte ends the wait for an answer, and nothing else of a
// request's clocks runs on: neither for events, nor for a tunnel that is idle.
func TestStream_OnceItsHeadHasComeNoClockOfARequestRuns(t *testing.T) {
	t.Parallel()
	limits := proxy.Config{}
	shortClocks(&limits)
	goOn := make(chan struct{})
	s := startStreams(t, lanes.Config{Slots: 2, ResponseTimeout: short}, limits, func(a *appConn) {
		line, _ := a.head()
		switch {
		case strings.Contains(line, "/ws"):
			a.say(switched)
			io.Copy(a, a.reader)
		case line != "":
			a.say("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
			if opened(t, goOn) {
				a.say("data: late\n\n")
				a.end()
			}
		}
	})
	events, socket := say(t, s.addr, get("/events")), say(t, s.addr, handshake)
	events.wantHead(t, 200)
	socket.wantHead(t, 101)
	pass(t, s.addr)
	close(goOn)
	events.wantBytes(t, chunk("data: late\n\n"))
	socket.say(t, "late")
	socket.wantBytes(t, "late")
	if n := s.lane.Snapshot().InUse; n != 2 {
		t.Errorf("%d slots are taken, want both", n)
	}
}

// A long poll has no clock but its own; and when it is answered its connection
// has fresh ones, for an upload that takes its time as for any request.
func TestHold_APollOutlivesTheClocksOfItsConnectionWhichAreFreshBehindIt(t *testing.T) {
	t.Parallel()
	s := startHolds(t, holdSetup{proxy: shortClocks})
	s.takeBack()
	c := dialWire(t, s.addr)
	s.wantServed(t, c) // with deadlines for reading and writing
	for range 2 {
		c.say(t, askFor("/poll"))
		s.view(t).answer(ok("M0-Hold: response\r\nM0-Channel: news\r\nM0-Timeout: 3600\r\n", "nothing"))
		until(t, "it is held", func() bool { return s.holds.Snapshot().Polls == 1 })
		pass(t, s.addr)
		s.publish("news", "late")
		c.wantAnswer(t, "GET", 200, "late")
		// A byte within each bound, and more than one bound in all.
		c.say(t, post("Content-Length: 8"))
		pause := time.NewTicker(short)
		for range 8 {
			<-pause.C
			c.say(t, "x")
		}
		pause.Stop()
		v := s.view(t)
		if body, _ := v.readUpload(v.fields); string(body) != "xxxxxxxx" {
			t.Errorf("the app has %q", body)
		}
		v.answer(ok("", "taken"))
		c.wantAnswer(t, "POST", 200, "taken")
	}
}

// takeBack has the connections of long polls come back to the server.
func (s *holdSite) takeBack() {
	s.holds.Configure(holds.Config{Left: s.server.HoldLeft, Forward: s.server.Forward, Return: s.server.Return})
}

// ---- Leaving.

// Of a hold a closed side is leaving, of a poll as of a stream.
func TestHold_APollWhoseClientLeavesIsLeft(t *testing.T) {
	for name, leave := range leaving {
		t.Run(name, func(t *testing.T) {
			s := startHolds(t, holdSetup{})
			s.takeBack()
			c := say(t, s.addr, askFor("/poll"))
			s.view(t).answer(ok("M0-Hold: response\r\nM0-Channel: news\r\n", "nothing"))
			until(t, "it is held", func() bool { return s.holds.Snapshot().Polls == 1 })
			leave(c)
			until(t, "it is left", func() bool { return s.holds.Snapshot().Polls == 0 })
			if ended := s.holds.Snapshot().Ended[holds.ModeResponse]; ended["client"] != 1 {
				t.Errorf("the ends are %v", ended)
			}
			if _, reached, _ := s.holds.Publish(holds.Publication{Channels: []string{"news"}, Retry: -1}); reached != 0 {
				t.Errorf("an event reaches %d", reached)
			}
			if name == "HalfClose" {
				c.wantEnd(t, true)
			}
		})
	}
}
