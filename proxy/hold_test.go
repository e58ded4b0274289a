package proxy_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"holdfast/holds"
	"holdfast/lanes"
	"holdfast/proxy"
)

// ---- What the client gets.

// framed are the ways in which an app may frame one and the same answer.
var framed = map[string]func(v *view, fields, body string){
	"ContentLength": func(v *view, fields, body string) { v.answer(ok(fields, body)) },
	"Chunked": func(v *view, fields, body string) {
		half := len(body) / 2
		v.answer("HTTP/1.1 200 OK\r\n" + fields + "Transfer-Encoding: chunked\r\n\r\n" +
			chunk(body[:half]) + fmt.Sprintf("%X;x=y\r\n%s\r\n", len(body)-half, body[half:]) + "0\r\nX-Sum: 1\r\nM0-Hold: response\r\n\r\n")
	},
	"CloseDelimited": func(v *view, fields, body string) {
		v.hangUp("HTTP/1.1 200 OK\r\n" + fields + "\r\n" + body)
	},
	"ConnectionClose": func(v *view, fields, body string) { v.hangUp(ok(fields+"Connection: close\r\n", body)) },
	"HTTP10": func(v *view, fields, body string) {
		v.hangUp("HTTP/1.0 200 OK\r\n" + fields + "\r\n" + body)
	},
	"InPieces": func(v *view, fields, body string) {
		v.say("HTTP/1.1 200 OK\r\n" + fields)
		v.say(fmt.Sprintf("Content-Length: %d\r\n\r\n", len(body)))
		for _, c := range []byte(body) {
			v.say(string(c))
		}
		v.answer("")
	},
}

func TestHold_TheClientGetsTheSameBytesHoweverTheAnswerIsFramed(t *testing.T) {
	const fields = "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\nContent-Type: text/html; charset=utf-8\r\nM0-Hold: stream\r\n" +
		"Set-Cookie: a=1; Path=/\r\nCache-Control: max-age=60\r\nETag: \"x\"\r\nx-accel-buffering: yes\r\nContent-Encoding: identity\r\n" +
		"m0-channel: news, other\r\nKeep-Alive: timeout=2\r\nset-cookie: b=2\r\nM0-Made-Up: 1\r\nX-View: y\r\n"
	const head = "HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nSet-Cookie: a=1; Path=/\r\nset-cookie: b=2\r\nX-View: y\r\nX-Request-ID: r-1\r\n" +
		"Content-Type: text/event-stream\r\nCache-Control: no-cache, no-transform\r\nX-Accel-Buffering: no\r\n"
	for name, answer := range framed {
		t.Run(name, func(t *testing.T) {
			s := startHolds(t, holdSetup{})
			c := say(t, s.addr, askFor("/events"))
			v := s.view(t)
			position := v.position(t)
			answer(v, fields, "retry: 2000\n\ndata: hello\n")
			first, second := s.publish("other", "one"), s.publish("news", "two")
			c.wantBytes(t, head+"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"+
				chunk("retry: 2000\n\ndata: hello\n\n"+idBlock(position))+chunk(eventBlock(first, "one"))+chunk(eventBlock(second, "two")))

			old := say(t, s.addr, strings.Replace(askFor("/events", "Connection: keep-alive"), "HTTP/1.1", "HTTP/1.0", 1))
			v = s.view(t)
			position = v.position(t)
			answer(v, fields, "data: hello")
			first = s.publish("news", "three")
			old.wantBytes(t, head+"Connection: close\r\n\r\n"+"data: hello\n\n"+idBlock(position)+eventBlock(first, "three"))
			c.wantBytes(t, chunk(eventBlock(first, "three")))
			s.wantHeld(t, 2)
		})
	}
}

func TestHold_TheViewsBodyIsFollowedByABlankLineAndThePosition(t *testing.T) {
	s := startHolds(t, holdSetup{})
	for body, want := range map[string]string{
		"": ": open\n\n", "data: a": "data: a\n\n", "data: a\n": "data: a\n\n", "data: a\n\n": "data: a\n\n",
		"data: a\r\n\r\n": "data: a\r\n\r\n", ": a\n\ndata: b": ": a\n\ndata: b\n\n",
		strings.Repeat(":", 1<<20): strings.Repeat(":", 1<<20) + "\n\n", // the largest there may be
	} {
		c := say(t, s.addr, askFor("/events"))
		v := s.view(t)
		position := v.position(t)
		v.answer(ok(joinNews, body))
		c.wantHeldHead(t)
		c.wantBytes(t, chunk(want+idBlock(position)))
	}
}

// A view that answers a POST holds its client too: not every reader of events
// is an EventSource.
func TestHold_APostIsHeldToo(t *testing.T) {
	for _, stream := range []bool{false, true} {
		s := startHolds(t, holdSetup{lane: lanes.Config{Stream: stream}})
		c := say(t, s.addr, post("Content-Length: 5")+"hello")
		v := s.view(t)
		if body, _ := v.readUpload(v.fields); string(body) != "hello" {
			t.Errorf("the app has the body %q", body)
		}
		v.answer(ok(joinNews, ""))
		c.wantHeldHead(t)
		c.wantBytes(t, chunk(": open\n\n"+idBlock(v.position(t))))
	}
}

// An instruction is one whatever the answer would be without it: its end is
// waited for, where an endless answer is refused.
func TestHold_AnEventStreamWithoutALengthIsWaitedFor(t *testing.T) {
	for _, stream := range []bool{false, true} {
		for _, framing := range []string{"", "Transfer-Encoding: chunked\r\n"} {
			t.Run(fmt.Sprintf("Stream=%v/%s", stream, framing), func(t *testing.T) {
				s := startHolds(t, holdSetup{lane: lanes.Config{Stream: stream}})
				c := say(t, s.addr, askFor("/events"))
				v := s.view(t)
				half := func(text string) string {
					if framing == "" {
						return text
					}
					return chunk(text)
				}
				v.say("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n" + framing + joinNews + "\r\n" + half("data: first\n\n"))
				id := s.publish("news", "meanwhile")
				s.wantNoHold(t)
				if framing == "" {
					v.hangUp(half("data: rest\n\n"))
				} else {
					v.answer(half("data: rest\n\n") + "0\r\n\r\n")
				}
				c.wantHeldHead(t)
				c.wantBytes(t, chunk("data: first\n\ndata: rest\n\n"+idBlock(v.position(t)))+chunk(eventBlock(id, "meanwhile")))
			})
		}
	}
}

func TestHold_HEADIsAnsweredByTheHeadAlone(t *testing.T) {
	for _, stream := range []bool{false, true} {
		s := startHolds(t, holdSetup{lane: lanes.Config{Stream: stream}})
		c := say(t, s.addr, strings.Replace(askFor("/events"), "GET", "HEAD", 1))
		v := s.view(t)
		v.answer("HTTP/1.1 200 OK\r\nX-View: y\r\nContent-Length: 100\r\n" + joinNews + "\r\n")
		c.wantBytes(t, "HTTP/1.1 200 OK\r\nX-View: y\r\nX-Request-ID: r-1\r\nContent-Type: text/event-stream\r\n"+
			"Cache-Control: no-cache, no-transform\r\nX-Accel-Buffering: no\r\n\r\n")
		s.wantServed(t, c)
		s.wantNoHold(t)
	}
}

// The head of a drain says that the connection ends, and it does.
func TestHold_HEADInADrainSaysThatItsConnectionEnds(t *testing.T) {
	s := startHolds(t, holdSetup{})
	s.server.Drain()
	c := say(t, s.addr, strings.Replace(askFor("/events"), "GET", "HEAD", 1))
	s.view(t).answer("HTTP/1.1 200 OK\r\n" + joinNews + "\r\n")
	if answer := c.wantAnswer(t, "HEAD", 200, ""); !answer.closes() {
		t.Errorf("the fields are %q", answer.fields)
	}
	c.wantEnd(t, false)
}

// ---- What an instruction is, and what is left of it.

func TestHold_NothingOfAnInstructionReachesAClient(t *testing.T) {
	off := func(cfg *proxy.Config) { cfg.Dialects = holds.Dialects{} }
	for name, c := range map[string]struct {
		proxy          func(*proxy.Config)
		status, fields string
		body           string
	}{
		"NoChannel":        {nil, "200 OK", "M0-Hold: stream\r\n", "served"},
		"EmptyChannel":     {nil, "200 OK", "M0-Hold: stream\r\nM0-Channel: , ,\r\n", "served"},
		"NoneThatIsOne":    {nil, "200 OK", "M0-Hold: stream\r\nM0-Channel: a%zz, %00\r\n", "served"},
		"UnknownMode":      {nil, "200 OK", "M0-Hold: sream\r\nM0-Channel: news\r\n", "served"},
		"ModesThatDiffer":  {nil, "200 OK", "M0-Hold: stream\r\nM0-Hold: sream\r\nM0-Channel: news\r\n", "served"},
		"NoHold":           {nil, "200 OK", "M0-Channel: news\r\nM0-Timeout: 1\r\nM0-Envelope: json\r\nM0-Reply: text\r\n", "served"},
		"Created":          {nil, "201 Created", joinNews, "served"},
		"NotFound":         {nil, "404 Not Found", joinNews, "served"},
		"ServerError":      {nil, "500 No", joinNews, "served"},
		"Encoded404":       {nil, "404 Not Found", joinNews + "Content-Encoding: gzip\r\n", "served"},
		"DialectsOff":      {off, "200 OK", joinNews + "Grip-Hold: stream\r\nGrip-Channel: news\r\n", "served"},
		"HoldsOff":         {func(cfg *proxy.Config) { cfg.Holds = nil }, "200 OK", joinNews, "served"},
		"OtherDialect":     {nil, "200 OK", "Grip-Hold: stream\r\nGrip-Channel: news\r\n", "served"},
		"NotModified":      {nil, "304 Not Modified", joinNews, ""},
		"NoContent":        {nil, "204 No Content", joinNews, ""},
		"OffAndManyFields": {off, "200 OK", joinNews + "m0-anything: 1\r\nM0-Close: 1000\r\ngrip-sig: x\r\n", "served"},
	} {
		for _, method := range []string{"GET", "HEAD"} {
			for _, stream := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/Stream=%v", name, method, stream), func(t *testing.T) {
					s := startHolds(t, holdSetup{lane: lanes.Config{Stream: stream}, proxy: c.proxy})
					client := say(t, s.addr, method+" /a HTTP/1.1\r\nHost: a.test\r\n\r\n")
					body := c.body
					if method == "HEAD" {
						body = ""
					}
					length := fmt.Sprintf("Content-Length: %d\r\n", len(c.body))
					if c.body == "" {
						length = ""
					}
					s.view(t).answer("HTTP/1.1 " + c.status + "\r\nETag: \"x\"\r\n" + c.fields + length + "\r\n" + body)
					var status int
					fmt.Sscan(c.status, &status)
					answer := client.wantAnswer(t, method, status, body)
					wantNoInstruction(t, answer.fields)
					if answer.get("ETag") != `"x"` || answer.closes() || answer.get("Content-Type") != "" {
						t.Errorf("it is not served as it is: %q", answer.fields)
					}
					s.wantNoHold(t)
				})
			}
		}
	}
}

// Fields can come before the answer and behind it, too.
func TestHold_NothingOfAnInstructionReachesAClientAroundTheAnswer(t *testing.T) {
	s := startHolds(t, holdSetup{lane: lanes.Config{Stream: true}})
	c := say(t, s.addr, askFor("/a"))
	s.view(t).answer("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n" + joinNews + "\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 1\r\n" + joinNews + "\r\n")
	c.wantBytes(t, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nX-Request-ID: r-1\r\n\r\nHTTP/1.1 200 OK\r\nX-Request-ID: r-1\r\nTransfer-Encoding: chunked\r\n\r\n"+
		chunk("ok")+"0\r\nX-Sum: 1\r\n\r\n")
	s.wantNoHold(t)
}

func TestHold_AnEndlessAnswerWithoutAnInstructionIsWhatItWas(t *testing.T) {
	const endless = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nM0-Hold: stream\r\n\r\ndata: a\n\n" // and no channel
	s := startHolds(t, holdSetup{})
	c := say(t, s.addr, askFor("/events"))
	v := s.view(t)
	v.say(endless)
	wantNoInstruction(t, c.wantReason(t, 409, "stream_refused", "a hold header").fields)
	v.hangUp("")

	s = startHolds(t, holdSetup{lane: lanes.Config{Stream: true}})
	c = say(t, s.addr, askFor("/events"))
	v = s.view(t)
	v.say(endless)
	wantNoInstruction(t, c.wantHead(t, 200))
	c.wantBytes(t, chunk("data: a\n\n"))
	v.say("data: b\n\n")
	c.wantBytes(t, chunk("data: b\n\n"))
	v.hangUp("")
	c.wantBytes(t, "0\r\n\r\n")
	s.wantNoHold(t)
}

// ---- The slot.

// H1: whoever is held has no slot.
func TestHold_ASlotServesOthersWhileItsClientIsHeld(t *testing.T) {
	for _, stream := range []bool{false, true} {
		s := startHolds(t, holdSetup{lane: lanes.Config{Stream: stream}})
		for i := range 5 {
			s.held(t)
			s.wantHeld(t, i+1)
			if n := s.lane.Snapshot().InUse; n != 0 {
				t.Fatalf("%d slots are taken by %d holds", n, i+1)
			}
			s.wantServed(t, dialWire(t, s.addr))
		}
	}
}

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
			s.holds.End(holds.EndRequest{Channel: "news"})
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
