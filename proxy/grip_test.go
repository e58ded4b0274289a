package proxy_test

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"

	"holdfast/holds"
	"holdfast/lanes"
	"holdfast/proxy"
)

// ---- The kit of this file and overhttp_test.go.

// startGrip is startHolds with both dialects, and with all that holds ask going
// to the app.
func startGrip(t *testing.T, setup holdSetup) *holdSite {
	t.Helper()
	last := setup.proxy
	setup.proxy = func(cfg *proxy.Config) {
		cfg.Dialects.Grip = true
		if last != nil {
			last(cfg)
		}
	}
	s := startHolds(t, setup)
	s.holds.Configure(holds.Config{Journal: setup.holds.Journal, Limit: setup.holds.Limit, Left: s.server.HoldLeft, Forward: s.server.Forward, Return: s.server.Return})
	return s
}

// item publishes an item for streams and long polls that waits for no other; an
// id or prev-id "" is none.
func (s *holdSite) item(channel, id, prev, content string) (reached int) {
	i := holds.Item{Channel: channel, NoSeq: true, Stream: &holds.StreamForm{Content: []byte(content)}, Answer: &holds.AnswerForm{Status: 200, Body: []byte(content)}}
	if id != "" {
		i.ID = &id
	}
	if prev != "" {
		i.PrevID = &prev
	}
	reached, _ = s.holds.PublishItems([]holds.Item{i}, nil)
	return reached
}

// wantHeads requires an answer's head, byte for byte and to its empty line.
func (c *wireClient) wantHeads(t *testing.T, want string) {
	t.Helper()
	var got []byte
	for !bytes.HasSuffix(got, []byte("\r\n\r\n")) {
		line, err := c.reader.ReadBytes('\n')
		if got = append(got, line...); err != nil {
			t.Fatalf("%q came, %v; want %q", got, err, want)
		}
	}
	if string(got) != want {
		t.Errorf("the head is\n%q, want\n%q", got, want)
	}
}

const (
	gripStream = "Grip-Hold: stream\r\nGrip-Channel: news\r\n"
	gripPoll   = "Grip-Hold: response\r\nGrip-Channel: news\r\n"
	eventsType = "Content-Type: text/event-stream\r\n"
	instruct   = "Content-Type: application/grip-instruct\r\n"
)

// eachLane runs a test with a lane of requests, and with one of streams.
func eachLane(t *testing.T, test func(t *testing.T, stream bool)) {
	t.Run("Requests", func(t *testing.T) { test(t, false) })
	t.Run("Streams", func(t *testing.T) { test(t, true) })
}

// ---- What the client gets.

func TestGrip_AHeldStreamHasTheViewsHeadAndBodyAndItemsBehind(t *testing.T) {
	eachLane(t, func(t *testing.T, stream bool) {
		s := startGrip(t, holdSetup{lane: lanes.Config{Stream: stream}})
		const fields = "Date: x\r\nGRIP-HOLD: stream\r\n" + eventsType + "grip-channel: news; prev-id=5, other\r\nSet-Cookie: a=1\r\nCache-Control: max-age=60\r\nETag: \"x\"\r\n" +
			"Grip-Made-Up: 1\r\nKeep-Alive: timeout=2\r\nset-cookie: b=2\r\nM0-Position: 1\r\nX-Secret: y\r\n"
		const head = "Date: x\r\n" + eventsType + "Set-Cookie: a=1\r\nCache-Control: max-age=60\r\nETag: \"x\"\r\nset-cookie: b=2\r\nX-Secret: y\r\nX-Request-ID: r-1\r\n"
		for framing, answer := range framed {
			c := say(t, s.addr, askFor("/events"))
			v := s.view(t)
			s.item("other", "", "", "while the view ran ")
			answer(v, fields, "first\r")
			c.wantHeads(t, "HTTP/1.1 200 OK\r\n"+head+"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n")
			c.wantBytes(t, chunk("first\r")+chunk("while the view ran "))
			old := say(t, s.addr, strings.Replace(askFor("/events", "Connection: keep-alive"), "HTTP/1.1", "HTTP/1.0", 1))
			answer(s.view(t), fields, "")
			old.wantHeads(t, "HTTP/1.1 200 OK\r\n"+head+"Connection: close\r\n\r\n")
			if reached := s.item("other", "", "", "item"); reached != 2 {
				t.Errorf("%s: it reaches %d", framing, reached)
			}
			c.wantBytes(t, chunk("item"))
			old.wantBytes(t, "item")
			c.conn.Close()
			old.conn.Close()
			s.wantHeld(t, 0)
		}
	})
}

// A status replaces the view's, with a hold and without one; one that has no
// body goes without the view's, and the connection goes on.
func TestGrip_AStatusReplacesTheViews(t *testing.T) {
	eachLane(t, func(t *testing.T, stream bool) {
		for status, want := range map[string]string{
			"404":                     "404 Not Found",
			"404 Not Here":            "404 Not Here",
			"299":                     "299 ",
			"304":                     "304 Not Modified",
			"204  Nothing ":           "204 Nothing",
			"201\r\nGrip-Status: 500": "201 Created",
		} {
			s := startGrip(t, holdSetup{lane: lanes.Config{Stream: stream}})
			c := say(t, s.addr, askFor("/a")+askFor("/b"))
			length, body := "Content-Length: 4\r\n", "body"
			if want[:3] == "304" || want[:3] == "204" {
				length, body = "", ""
			}
			for range 2 { // the second was sent along with the first
				s.view(t).answer(ok("Grip-Status: "+status+"\r\nX-View: y\r\n", "body"))
				c.wantHeads(t, "HTTP/1.1 "+want+"\r\nX-View: y\r\nX-Request-ID: r-1\r\n"+length+"\r\n")
				c.wantBytes(t, body)
			}
			s.wantServed(t, c)
			if body == "" { // the same, as it is answered after a wait; a stream is refused
				c.say(t, askFor("/poll"))
				s.view(t).answer(ok("Grip-Status: "+status+"\r\nX-View: y\r\n"+gripPoll, "body"))
				until(t, "it is held", func() bool { return s.holds.Snapshot().Polls == 1 })
				s.holds.PublishItems([]holds.Item{{Channel: "news", Answer: &holds.AnswerForm{Action: holds.ActionHint}}}, nil)
				c.wantHeads(t, "HTTP/1.1 "+want+"\r\nX-View: y\r\nX-Request-ID: r-1\r\n"+length+"\r\n")
				s.wantServed(t, c)
				continue
			}
			c.say(t, askFor("/events"))
			s.view(t).answer(ok("Grip-Status: "+status+"\r\n"+gripStream, "body"))
			c.wantHeads(t, "HTTP/1.1 "+want+"\r\nX-Request-ID: r-1\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n")
			c.wantBytes(t, chunk("body"))
		}
	})
}

// What a view says of its own status stands, without one of GRIP's.
func TestGrip_AnyStatusMayHold(t *testing.T) {
	s := startGrip(t, holdSetup{})
	c := say(t, s.addr, askFor("/events"))
	s.view(t).answer("HTTP/1.1 404 Not Yet\r\n" + gripStream + "Content-Length: 1\r\n\r\nx")
	c.wantHeads(t, "HTTP/1.1 404 Not Yet\r\nX-Request-ID: r-1\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n")
	c.wantBytes(t, chunk("x"))
	s.item("news", "", "", "item")
	c.wantBytes(t, chunk("item"))
	if statuses, _ := s.wantLogged(t, 1); statuses[0] != 404 {
		t.Errorf("it is logged as %d", statuses[0])
	}
}

// Of the view's fields the client sees those that are named; what frames the
// answer is not the view's to hide.
func TestGrip_OnlyExposedFieldsReachTheClient(t *testing.T) {
	eachLane(t, func(t *testing.T, stream bool) {
		s := startGrip(t, holdSetup{lane: lanes.Config{Stream: stream}})
		for expose, want := range map[string]string{
			"X-A":                             "x-a: 1\r\nX-A: 2\r\n",
			"x-b, content-type, Grip-X":       "X-B: 3\r\nContent-Type: text/plain\r\n",
			"none-of-them":                    "",
			"":                                "",
			"X-B\r\ngrip-expose-headers: x-a": "x-a: 1\r\nX-B: 3\r\nX-A: 2\r\n",
		} {
			fields := "x-a: 1\r\nX-B: 3\r\nGrip-X: 4\r\nX-A: 2\r\nContent-Type: text/plain\r\nGrip-Expose-Headers: " + expose + "\r\n"
			c := say(t, s.addr, askFor("/a"))
			s.view(t).answer(ok(fields, "body"))
			c.wantHeads(t, "HTTP/1.1 200 OK\r\n"+want+"X-Request-ID: r-1\r\nContent-Length: 4\r\n\r\n")
			c.wantBytes(t, "body")
			c.say(t, askFor("/events"))
			s.view(t).answer(ok(fields+gripStream, ""))
			c.wantHeads(t, "HTTP/1.1 200 OK\r\n"+want+"X-Request-ID: r-1\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n")
			c.conn.Close()
			c = say(t, s.addr, askFor("/poll"))
			s.view(t).answer(ok(fields+gripPoll, "own"))
			until(t, "it is held", func() bool { return s.holds.Snapshot().Polls == 1 })
			s.item("news", "", "", "item")
			c.wantHeads(t, "HTTP/1.1 200 OK\r\n"+want+"X-Request-ID: r-1\r\nContent-Length: 4\r\n\r\n")
			c.wantBytes(t, "item")
			s.wantServed(t, c)
		}
	})
}

// An instruction that is the body leaves nothing of the answer that it came in.
func TestGrip_AnInstructionInJSONHasTheAnswerInIt(t *testing.T) {
	const response = `"response": {"code": 203, "reason": "Said", "headers": [["X-A", "1"], ["x-a", "2"], ["Content-Length", "99"], ["Connection", "close"], ["Grip-Hold", "x"]], "body": "body"}`
	const head = "HTTP/1.1 203 Said\r\nX-A: 1\r\nx-a: 2\r\nX-Request-ID: r-1\r\n"
	eachLane(t, func(t *testing.T, stream bool) {
		s := startGrip(t, holdSetup{lane: lanes.Config{Stream: stream}})
		answer := func(v *view, json string) {
			v.answer(ok("Content-Type: Application/Grip-Instruct; charset=utf-8\r\nX-Not: shown\r\nSet-Cookie: not=shown\r\nETag: \"x\"\r\n", json))
		}
		c := say(t, s.addr, askFor("/a"))
		answer(s.view(t), "{"+response+"}")
		c.wantHeads(t, head+"Content-Length: 4\r\n\r\n")
		c.wantBytes(t, "body")
		c.say(t, askFor("/poll"))
		answer(s.view(t), `{"hold": {"channels": [{"name": "news"}]}, `+response+"}")
		until(t, "it is held", func() bool { return s.holds.Snapshot().Polls == 1 })
		s.item("news", "", "", "item")
		c.wantHeads(t, strings.Replace(head, "203 Said", "200 OK", 1)+"Content-Length: 4\r\n\r\n")
		c.wantBytes(t, "item")
		s.wantServed(t, c)
		c.say(t, askFor("/events"))
		answer(s.view(t), `{"hold": {"mode": "stream", "channels": [{"name": "news", "filters": ["var-subst"]}], "meta": {"user": "bob"}}, `+response+"}")
		c.wantHeads(t, head+"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n")
		c.wantBytes(t, chunk("body"))
		s.item("news", "", "", "for %(user)s")
		c.wantBytes(t, chunk("for bob"))
		c = say(t, s.addr, askFor("/a"))
		answer(s.view(t), `{"response": {"headers": {"X-A": "1"}}}`)
		c.wantHeads(t, "HTTP/1.1 200 OK\r\nX-A: 1\r\nX-Request-ID: r-1\r\nContent-Length: 0\r\n\r\n")
		for _, bad := range []string{"", "[]", "{", `{"hold": {"mode": "x", "channels": []}}`, `{"response": {"code": 99}}`, `{"hold": {"mode": "stream", "channels": []}, "response": {"code": 304}}`} {
			s.wantFree(t)
			c.say(t, askFor("/a"))
			answer(s.view(t), bad)
			wantNoInstruction(t, c.wantReason(t, 502, "bad_hold", "GRIP").fields)
		}
		s.wantFree(t)
		c.say(t, askFor("/a"))
		s.view(t).answer("HTTP/1.1 201 Created\r\n" + instruct + "Content-Length: 2\r\n\r\n{}")
		c.wantReason(t, 502, "bad_hold", "201")
		s.wantServed(t, c)
	})
}

// coders put a coding on, as an app's middleware does.
var coders = map[string]func(io.Writer) io.WriteCloser{
	"gzip":    func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
	"deflate": func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) },
	"br":      func(w io.Writer) io.WriteCloser { return brotli.NewWriter(w) },
}

func coded(coding, body string) string {
	var out bytes.Buffer
	w := coders[coding](&out)
	io.WriteString(w, body)
	w.Close()
	return out.String()
}

// What is held must not come encoded to the client: it could not be added to.
func TestGrip_ACodingIsTakenOffAnInstruction(t *testing.T) {
	eachLane(t, func(t *testing.T, stream bool) {
		s := startGrip(t, holdSetup{lane: lanes.Config{Stream: stream}})
		for coding := range coders {
			fields := "X-View: y\r\nContent-Encoding: " + coding + "\r\n"
			c := say(t, s.addr, askFor("/a", "Accept-Encoding: gzip, deflate, br"))
			s.view(t).answer(ok(fields+"Grip-Status: 404\r\n", coded(coding, "body")))
			c.wantHeads(t, "HTTP/1.1 404 Not Found\r\nX-View: y\r\nX-Request-ID: r-1\r\nContent-Length: 4\r\n\r\n")
			c.wantBytes(t, "body")
			c.say(t, askFor("/poll"))
			s.view(t).answer(ok(fields+gripPoll, coded(coding, "own")))
			until(t, "it is held", func() bool { return s.holds.Snapshot().Polls == 1 })
			s.holds.PublishItems([]holds.Item{{Channel: "news", Answer: &holds.AnswerForm{Action: holds.ActionHint}}}, nil)
			c.wantHeads(t, "HTTP/1.1 200 OK\r\nX-View: y\r\nX-Request-ID: r-1\r\nContent-Length: 3\r\n\r\n")
			c.wantBytes(t, "own")
			c.say(t, askFor("/json"))
			s.view(t).answer(ok(fields+instruct, coded(coding, `{"response": {"body": "in it"}}`)))
			c.wantHeads(t, "HTTP/1.1 200 OK\r\nX-Request-ID: r-1\r\nContent-Length: 5\r\n\r\n")
			c.wantBytes(t, "in it")
			for _, bad := range []string{"no " + coding, coded(coding, "body")[:5]} {
				c.say(t, askFor("/a"))
				s.view(t).answer(ok(fields+gripStream, bad))
				wantNoInstruction(t, c.wantReason(t, 502, "bad_hold", "Content-Encoding").fields)
			}
			c.say(t, askFor("/a"))
			s.view(t).answer(ok(fields+gripStream, coded(coding, strings.Repeat(" ", 1<<20+1))))
			c.wantReason(t, 502, "bad_hold", "1 MiB")
			c.say(t, askFor("/events"))
			s.view(t).answer(ok(fields+gripStream, coded(coding, "first")))
			c.wantHeads(t, "HTTP/1.1 200 OK\r\nX-View: y\r\nX-Request-ID: r-1\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n")
			c.wantBytes(t, chunk("first"))
		}
		c := say(t, s.addr, askFor("/a"))
		s.view(t).answer(ok("Content-Encoding: zstd\r\n"+gripStream, "x"))
		wantNoInstruction(t, c.wantReason(t, 502, "bad_hold", "zstd").fields)
		// Without an instruction it is the client's.
		c.say(t, askFor("/a"))
		s.view(t).answer(ok("Content-Encoding: gzip\r\nGrip-Set-Meta: a=b\r\n", "any bytes"))
		answer := c.wantAnswer(t, "GET", 200, "any bytes")
		if wantNoInstruction(t, answer.fields); answer.get("Content-Encoding") != "gzip" {
			t.Errorf("its fields are %v", answer.fields)
		}
	})
}

// HEAD is answered by the head that GET would have, as far as that can be known.
func TestGrip_HEADHoldsNobody(t *testing.T) {
	eachLane(t, func(t *testing.T, stream bool) {
		s := startGrip(t, holdSetup{lane: lanes.Config{Stream: stream}})
		c := say(t, s.addr, "")
		for fields, want := range map[string]string{
			"X-View: y\r\n" + gripStream:                                          "HTTP/1.1 200 OK\r\nX-View: y\r\n",
			"X-View: y\r\n" + gripPoll:                                            "HTTP/1.1 200 OK\r\nX-View: y\r\n",
			"X-View: y\r\nGrip-Status: 410\r\n" + gripStream:                      "HTTP/1.1 410 Gone\r\nX-View: y\r\n",
			"X-View: y\r\nContent-Encoding: gzip\r\n" + gripStream:                "HTTP/1.1 200 OK\r\nX-View: y\r\n",
			"X-View: y\r\nContent-Encoding: br\r\nGrip-Status: 404\r\n":           "HTTP/1.1 404 Not Found\r\nX-View: y\r\n",
			"X-View: y\r\nGrip-Link: </next>; rel=next\r\nContent-Length: 99\r\n": "HTTP/1.1 200 OK\r\nX-View: y\r\n",
		} {
			c.say(t, strings.Replace(askFor("/a"), "GET", "HEAD", 1))
			s.view(t).answer("HTTP/1.1 200 OK\r\n" + fields + "\r\n")
			answer := c.wantAnswer(t, "HEAD", must(t, want), "")
			if wantNoInstruction(t, answer.fields); answer.get("X-View") != "y" || answer.get("Content-Encoding") != "" {
				t.Errorf("the head is %d %v, want %q", answer.status, answer.fields, want)
			}
		}
		s.wantServed(t, c)
		s.wantNoHold(t)
		statuses, _ := s.wantLogged(t, 7)
		for _, status := range []int64{410, 404} {
			if n := strings.Count(fmt.Sprint(statuses), fmt.Sprint(status)); n != 1 {
				t.Errorf("logged are %v", statuses)
			}
		}
	})
}

// must is the status of a status line.
func must(t *testing.T, line string) (status int) {
	t.Helper()
	if _, err := fmt.Sscanf(line, "HTTP/1.1 %d", &status); err != nil {
		t.Fatal(err)
	}
	return status
}

// A HEAD to a view whose instruction is the body that is not sent.
func TestGrip_HEADOfAnInstructionInJSONIsNoFailure(t *testing.T) {
	s := startGrip(t, holdSetup{})
	c := say(t, s.addr, strings.Replace(askFor("/a"), "GET", "HEAD", 1))
	s.view(t).answer("HTTP/1.1 200 OK\r\n" + instruct + "Content-Length: 50\r\n\r\n")
	wantNoInstruction(t, c.wantAnswer(t, "HEAD", 200, "").fields)
	s.wantServed(t, c)
}

// ---- What does not reach the client.

func TestGrip_WithoutAHoldTheAnswerIsTheViewsLessWhatIsForUs(t *testing.T) {
	eachLane(t, func(t *testing.T, stream bool) {
		s := startGrip(t, holdSetup{lane: lanes.Config{Stream: stream}})
		for framing, answer := range framed {
			if stream && framing == "Chunked" {
				continue // its trailer is the client's, too
			}
			c := say(t, s.addr, askFor("/a"))
			v := s.view(t)
			answer(v, "Grip-Channel: news\r\nX-View: y\r\nGRIP-SET-META: a=b\r\nGrip-Timeout: 3\r\nGrip-Sig: x\r\nGrip-Last: x\r\ngrip-: x\r\n", "body")
			got := c.wantAnswer(t, "GET", 200, "body")
			if wantNoInstruction(t, got.fields); got.get("X-View") != "y" {
				t.Errorf("%s: its fields are %v", framing, got.fields)
			}
		}
		s.wantNoHold(t)
	})
}

// Pages come one after the other, each through its own link, before the stream
// is fed.
func TestGrip_PagesAreAskedForUntilOneHolds(t *testing.T) {
	s := startGrip(t, holdSetup{})
	c := say(t, s.addr, askFor("/pages/?a=1", "Cookie: a=1", "X-Forwarded-For: 1.2.3.4"))
	s.view(t).answer(ok(eventsType+"Grip-Link: <?page=1>; rel=next\r\n", "page 0 "))
	c.wantHeads(t, "HTTP/1.1 200 OK\r\n"+eventsType+"X-Request-ID: r-1\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n")
	c.wantBytes(t, chunk("page 0 "))
	for n := 1; n <= 3; n++ {
		v := s.view(t)
		if v.line != fmt.Sprintf("GET /pages/?page=%d HTTP/1.1", n) || v.get("Host") != "a.test" || v.get("Cookie") != "" || v.get("Grip-Sig") == "" || v.get("X-Forwarded-Proto") != "http" || v.get("X-Forwarded-For") != "" {
			t.Errorf("page %d is asked for with %s %v", n, v.line, v.fields)
		}
		if n < 3 {
			v.answer(ok(fmt.Sprintf("Grip-Link: <?page=%d>; rel=next\r\nContent-Encoding: gzip\r\n", n+1), coded("gzip", fmt.Sprintf("page %d ", n))))
		} else {
			v.answer(ok(gripStreamAt("5"), "page 3 "))
		}
		c.wantBytes(t, chunk(fmt.Sprintf("page %d ", n)))
	}
	s.item("news", "6", "5", "6 ")
	c.wantBytes(t, chunk("6 "))
	s.wantFree(t)
}

// What its client has sent behind a long poll is its next request.
func TestGrip_APollsConnectionGoesOnWithWhatWasSentBehindIt(t *testing.T) {
	eachLane(t, func(t *testing.T, stream bool) {
		s := startGrip(t, holdSetup{lane: lanes.Config{Stream: stream}})
		c := say(t, s.addr, askFor("/poll")+strings.Replace(askFor("/poll", "Connection: keep-alive"), "HTTP/1.1", "HTTP/1.0", 1)+strings.Replace(askFor("/poll"), "HTTP/1.1", "HTTP/1.0", 1)+get("/never"))
		for _, connection := range []string{"", "Connection: keep-alive\r\n", "Connection: close\r\n"} {
			s.view(t).answer(ok(gripPoll+"X-View: y\r\n", "own"))
			until(t, "it is held", func() bool { return s.holds.Snapshot().Polls == 1 })
			s.publish("news", "a native event")
			s.item("news", "", "", "item")
			c.wantHeads(t, "HTTP/1.1 200 OK\r\nX-View: y\r\nX-Request-ID: r-1\r\nContent-Length: 4\r\n"+connection+"\r\n")
			c.wantBytes(t, "item")
		}
		if rest, err := io.ReadAll(c.reader); len(rest) > 0 || err != nil && !isReset(err) {
			t.Errorf("behind the last answer comes %q, %v", rest, err)
		}
	})
}
