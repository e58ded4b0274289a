package proxy_test

import (
	"fmt"
	"strings"
	"testing"

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
