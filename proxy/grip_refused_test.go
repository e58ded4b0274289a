package proxy_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"holdfast/lanes"
)

// ---- What cannot be followed.

func TestGrip_AnInstructionThatCannotBeFollowedIsBadHold(t *testing.T) {
	length := func(fields string) string {
		return "HTTP/1.1 200 OK\r\n" + fields + "Content-Length: 100\r\n\r\nhalf"
	}
	large := strings.Repeat(" ", 1<<20+1)
	for _, c := range []badHold{
		{name: "Word", answer: func(v *view) { v.answer(ok("Grip-Hold: websocket\r\nGrip-Channel: a\r\n", "x")) }, words: "Grip-Hold"},
		{name: "Status", answer: func(v *view) { v.answer(ok("Grip-Status: 99\r\n", "x")) }, words: "Grip-Status"},
		{name: "StreamWithoutABody", answer: func(v *view) { v.answer(ok("Grip-Status: 304\r\n"+gripStream, "x")) }, words: "304"},
		{name: "Filters", answer: func(v *view) {
			v.answer(ok("Grip-Channel: a"+strings.Repeat("; filter=x", 6)+"\r\nGrip-Hold: stream\r\n", "x"))
		}, words: "filters"},
		{name: "Channels", answer: func(v *view) { v.answer(ok(strings.ReplaceAll(manyChannels(65), "M0-", "Grip-"), "")) }, words: "more than 64"},
		{name: "BothDialects", answer: func(v *view) { v.answer(ok(gripStream+joinNews, "x")) }, words: "both M0-Hold and Grip-Hold"},
		{name: "CutStream", answer: func(v *view) { v.hangUp(length(gripStream)) }, words: "was cut"},
		{name: "CutPoll", answer: func(v *view) { v.reset(length(gripPoll)) }, words: "was cut"},
		{name: "CutJSON", answer: func(v *view) { v.hangUp(length(instruct)) }, words: "was cut"},
		{name: "CutPage", answer: func(v *view) { v.hangUp(length("Grip-Link: </n>; rel=next\r\n")) }, words: "was cut"},
		{name: "CutStatus", answer: func(v *view) { v.hangUp(length("Grip-Status: 404\r\n")) }, words: "was cut"},
		{name: "LargeStream", answer: func(v *view) { v.answer(ok(gripStream, large)) }, words: "more than 1 MiB"},
		{name: "LargePoll", answer: func(v *view) { v.answer(ok(gripPoll, large)) }, words: "more than 1 MiB"},
		{name: "LargeJSON", answer: func(v *view) { v.answer(ok(instruct, large)) }, words: "more than 1 MiB"},
		{name: "Late", answer: func(v *view) { v.say(length(gripStream)) }, words: "response_timeout", timeout: 100 * time.Millisecond},
		{name: "LateJSON", answer: func(v *view) { v.say(length(instruct)) }, words: "response_timeout", timeout: 100 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachLane(t, func(t *testing.T, stream bool) {
				s := startGrip(t, holdSetup{lane: lanes.Config{Stream: stream, ResponseTimeout: c.timeout}})
				client := say(t, s.addr, askFor("/events"))
				v := s.view(t)
				c.answer(v)
				answer := client.wantReason(t, 502, "bad_hold", c.words)
				if wantNoInstruction(t, answer.fields); answer.closes() {
					t.Error("the client's connection ends")
				}
				if !v.done {
					v.answer(strings.Repeat(" ", 96))
				}
				s.wantFree(t)
				s.wantNoHold(t)
				s.wantServed(t, client)
			})
		})
	}
}

// ---- What the journal has not.

// Of a stream the first answer is thrown away: the next is to be as good.
func TestGrip_TheAppIsAskedOnceMoreForWhatIsMissedAndThenItsWordIsTaken(t *testing.T) {
	for kind, instruction := range map[string]string{"stream": "Grip-Hold: stream\r\n" + eventsType, "response": "Grip-Hold: response\r\n"} {
		eachLane(t, func(t *testing.T, stream bool) {
			s := startGrip(t, holdSetup{lane: lanes.Config{Stream: stream}})
			s.item("news", "9", "8", "9 ")
			c := say(t, s.addr, askFor("/events?a=1", "Cookie: a=1", "Grip-Last: news; last-id=1"))
			v := s.view(t)
			if last := v.get("Grip-Last"); last != "" {
				t.Errorf("the app has the client's Grip-Last: %s", last)
			}
			v.answer(ok(instruction+"Grip-Channel: news; prev-id=5, other; prev-id=x, third\r\nX-View: first\r\n", "5 "))
			v = s.view(t)
			want := map[string]string{"stream": "", "response": "news; last-id=5 | other; last-id=x"}[kind]
			if got := v.get("Grip-Last"); got != want || v.line != "GET /events?a=1 HTTP/1.1" || v.get("Cookie") != "a=1" || v.get("X-Request-ID") != "r-1" || v.get("Grip-Sig") == "" {
				t.Errorf("the app is asked again, %s with %v", v.line, v.fields)
			}
			v.answer(ok(instruction+"Grip-Channel: news; prev-id=7\r\nX-View: second\r\n", "5 6 7 ")) // and this is all there is
			if kind == "stream" {
				fields := c.wantHead(t, 200)
				if wantNoInstruction(t, fields); strings.Join(fieldValues(fields, "X-View"), "") != "second" {
					t.Errorf("the head is %v", fields)
				}
				c.wantBytes(t, chunk("5 6 7 "))
				s.item("news", "8", "7", "8 ")
				c.wantBytes(t, chunk("8 "))
			} else {
				until(t, "it is held", func() bool { return s.holds.Snapshot().Polls == 1 })
				s.item("news", "8", "7", "8 ")
				if got := c.wantAnswer(t, "GET", 200, "8 ").get("X-View"); got != "second" {
					t.Errorf("it is answered with the fields of the %s", got)
				}
				// The next request on this connection is another one.
				c.say(t, get("/next"))
				v := s.view(t)
				if v.get("Grip-Last") != "" {
					t.Errorf("it has Grip-Last: %s", v.get("Grip-Last"))
				}
				v.answer(ok("", "next"))
				c.wantAnswer(t, "GET", 200, "next")
			}
			if statuses, _ := s.wantLogged(t, 1); statuses[0] != 200 {
				t.Errorf("logged are %v", statuses)
			}
		})
	}
}

// Nor is it asked again for what may have done something, for a HEAD, where the
// instruction has a link, or where the journal has all.
func TestGrip_TheAppIsNotAskedAgainForNothing(t *testing.T) {
	for what, c := range map[string]struct{ request, instruction string }{
		"POST":          {post("Content-Length: 0"), gripStreamAt("5")},
		"POSTWithABody": {post("Content-Length: 1") + "x", gripStreamAt("5")},
		"GETWithABody":  {strings.Replace(askFor("/events"), "\r\n\r\n", "\r\nContent-Length: 1\r\n\r\nx", 1), gripStreamAt("5")},
		"HEAD":          {strings.Replace(askFor("/events"), "GET", "HEAD", 1), gripStreamAt("5")},
		"Link":          {askFor("/events"), gripStreamAt("5") + "Grip-Link: </next>; rel=next\r\n"},
		"NothingMissed": {askFor("/events"), gripStreamAt("8")},
		"NothingKnown":  {askFor("/events"), "Grip-Hold: stream\r\nGrip-Channel: other; prev-id=5\r\n"},
		"NothingSaid":   {askFor("/events"), gripStream},
	} {
		t.Run(what, func(t *testing.T) {
			s := startGrip(t, holdSetup{})
			s.item("news", "9", "8", "9 ")
			client := say(t, s.addr, c.request)
			v := s.view(t)
			v.readUpload(v.fields)
			body := "first "
			if what == "HEAD" {
				body = ""
			}
			v.answer("HTTP/1.1 200 OK\r\n" + c.instruction + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len("first "), body))
			client.wantHead(t, 200)
			if body != "" {
				client.wantBytes(t, chunk(body))
			}
			if what == "Link" { // the stream asks there, after its pause
				v := s.view(t)
				if v.line != "GET /next HTTP/1.1" || v.get("Grip-Last") != "news; last-id=5" || v.get("Cookie") != "" || v.get("Host") != "a.test" {
					t.Errorf("at its link the app is asked %s with %v", v.line, v.fields)
				}
				v.answer(ok(gripStreamAt("9"), "6 7 8 9 "))
				client.wantBytes(t, chunk("6 7 8 9 "))
			}
			select {
			case v := <-s.views:
				t.Errorf("the app is asked again: %s", v.line)
			case <-time.After(50 * time.Millisecond):
			}
		})
	}
}

func gripStreamAt(prev string) string {
	return "Grip-Hold: stream\r\nGrip-Channel: news; prev-id=" + prev + "\r\n"
}

// Whatever the app says the second time, the next request on the connection is
// another one: it may be asked twice too.
func TestGrip_AnAppThatHoldsNobodyTheSecondTimeIsTakenAtItsWord(t *testing.T) {
	s := startGrip(t, holdSetup{})
	s.item("news", "9", "8", "9 ")
	c := say(t, s.addr, "")
	const poll = "Grip-Hold: response\r\nGrip-Channel: news; prev-id=5\r\n"
	for _, answer := range []string{ok("", "6 7 8 9"), "HTTP/1.1 500 Oops\r\nContent-Length: 7\r\n\r\n6 7 8 9", ok("Grip-Hold: x\r\n", "")} {
		c.say(t, get("/events"))
		v := s.view(t)
		if last := v.get("Grip-Last"); last != "" {
			t.Errorf("another request has Grip-Last: %s", last)
		}
		v.answer(ok(poll, ""))
		if v = s.view(t); v.get("Grip-Last") != "news; last-id=5" {
			t.Errorf("asked again it has Grip-Last: %s", v.get("Grip-Last"))
		}
		v.answer(answer)
		switch {
		case strings.Contains(answer, "Grip-Hold"):
			c.wantReason(t, 502, "bad_hold")
		case strings.Contains(answer, "500"):
			c.wantAnswer(t, "GET", 500, "6 7 8 9")
		default:
			c.wantAnswer(t, "GET", 200, "6 7 8 9")
		}
	}
	s.wantNoHold(t)
}
