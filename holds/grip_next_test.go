package holds

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// linked is an instruction with a next link, for a channel of which the app's
// answer has all items up to prev.
func linked(prev string) *Grip {
	return &Grip{Channels: []GripChannel{on("a", prev)}, Next: &Link{URI: "/events/?next=1"}}
}

// wantUnasked lets a second pass and requires that the app is asked nothing.
func (s *stage) wantUnasked(t *testing.T, app *stageApp) {
	t.Helper()
	s.pass(time.Second, 10*time.Millisecond)
	select {
	case c := <-app.asked:
		t.Fatalf("the app is asked %s %s", c.Method, c.Target)
	case <-time.After(10 * time.Millisecond): // nothing would come later: the clock stands
	}
}

func TestNext_AnItemThatIsMissingIsAskedForOnceAndWhatComesMeanwhileFollows(t *testing.T) {
	s, app := gripStage(t, Config{})
	h, p := s.openGrip(linked("5"), "first ")
	p.want(t, "HEAD\nfirst ")
	s.publishItem("a", "6", "5", "6 ")
	p.want(t, "6 ")
	s.publishItem("a", "9", "8", "9 ") // the first of its kind waits for 8
	s.pass(6*time.Second, 100*time.Millisecond)
	call := s.wantAsked(t, app)
	if fields := string(call.Fields); call.Method != "GET" || call.Target != "/events/?next=1" || call.Lane != "" || call.Body != nil ||
		fields != "Host: app.example\r\nGrip-Last: a; last-id=6\r\n" {
		t.Errorf("the app is asked %s %s on lane %q with %q", call.Method, call.Target, call.Lane, call.Fields)
	}
	s.publishItem("a", "10", "9", "10 ")
	p.want(t, "")
	s.reply(t, call, Answer{Fields: fieldsOf(t, "Grip-Hold: stream", "Grip-Channel: a; prev-id=9", "Grip-Link: </events/?next=2>; rel=next"), Body: []byte("7 8 9 ")})
	s.publishItem("a", "11", "10", "11 ")
	p.want(t, "7 8 9 10 11 ")
	if h.state != live || h.grip().next.URI != "/events/?next=2" || h.grip().tries != 0 {
		t.Errorf("state %d, next link %s, %d tries", h.state, h.grip().next.URI, h.grip().tries)
	}
	s.wantUnasked(t, app)
}

func TestNext_WhatTheJournalHasByThenIsNotAskedFor(t *testing.T) {
	s, app := gripStage(t, Config{})
	_, p := s.openGrip(linked("5"), "")
	s.publishItem("a", "x", "5", "x ")
	// The app's answer had one more than has come here.
	h, q := s.openGrip(linked("7"), "")
	if h.state != recovering {
		t.Fatalf("state %d", h.state)
	}
	s.publishItem("a", "7", "x", "7 ")
	s.wantUnasked(t, app)
	s.publishItem("a", "8", "7", "8 ")
	p.want(t, "HEAD\nx 7 8 ")
	q.want(t, "HEAD\n8 ")
}

// The app had published it, and it had not come here, when the answer was made.
func TestNext_WhatTheAnswerHasIsNotGivenAgain(t *testing.T) {
	s, app := gripStage(t, Config{})
	_, p := s.openGrip(linked("7"), "up to 7 ")
	s.publishItem("a", "7", "6", "7 ")
	s.publishItem("a", "8", "7", "8 ")
	p.want(t, "HEAD\nup to 7 8 ")
	s.wantUnasked(t, app)
}

func TestNext_AnIdleHourAsksTheAppNothing(t *testing.T) {
	s, app := gripStage(t, Config{Heartbeat: 15 * time.Second})
	for range 100 {
		s.openGrip(linked("5"), "")
	}
	s.pass(time.Hour, time.Second)
	s.wantUnasked(t, app)
}

func TestNext_AStatedTimeoutIsKept(t *testing.T) {
	s, app := gripStage(t, Config{})
	in := linked("5")
	in.Next.Timeout = 120 * time.Second
	_, p := s.openGrip(in, "")
	for round := range 3 {
		s.pass(110*time.Second, time.Second)
		if round == 1 {
			s.publishItem("a", "6", "5", "6 ") // from here on it counts
			s.pass(110*time.Second, time.Second)
		}
		select {
		case <-app.asked:
			t.Fatal("it asks before its time")
		default:
		}
		s.pass(12*time.Second, time.Second)
		call := s.wantAsked(t, app)
		s.reply(t, call, Answer{Fields: fieldsOf(t, "Grip-Hold: stream", "Grip-Channel: a; prev-id="+fmt.Sprint(5+min(round, 1)), "Grip-Link: </next>; rel=next; timeout=120"), Body: []byte(":")})
	}
	p.want(t, "HEAD\n:6 ::")
}

func TestNext_WhoAsksForTheSameAsksOnce(t *testing.T) {
	s, app := gripStage(t, Config{})
	var pipes []*pipe
	for range 50 {
		_, p := s.openGrip(linked("5"), "")
		pipes = append(pipes, p)
	}
	s.publishItem("a", "9", "8", "9 ")
	s.pass(time.Second, 10*time.Millisecond)
	call := s.wantAsked(t, app)
	s.reply(t, call, Answer{Fields: fieldsOf(t, "Grip-Hold: stream", "Grip-Channel: a; prev-id=9", "Grip-Link: </next>; rel=next"), Body: []byte("6 7 8 9 ")})
	for _, p := range pipes {
		p.want(t, "HEAD\n6 7 8 9 ")
	}
	s.wantUnasked(t, app)
}

// The request's credentials do not go along: the link has to be enough. And it
// leads nowhere else.
func TestNext_ALinkLeadsToTheSameHostOnly(t *testing.T) {
	for uri, want := range map[string]string{
		"":                            "/events/?channel=a",
		"?x=%20%25":                   "/events/?x=%20%25",
		"next":                        "/events/next",
		"/a/../b?c":                   "/b?c",
		"http://app.example/x":        "/x",
		"https://APP.example/x":       "/x",
		"//app.example/x":             "/x",
		"http://app.example:81/x":     "",
		"http://evil.example/x":       "",
		"//evil.example/x":            "",
		"http:next":                   "",
		"file:///etc/passwd":          "",
		"gopher://app.example/x":      "",
		"http://app.example@evil.a/x": "",
		"%zz":                         "",
	} {
		s, app := gripStage(t, Config{})
		in := linked("5")
		in.Next.URI = uri
		h, _ := s.openGrip(in, "")
		s.publishItem("a", "9", "8", "9 ")
		s.pass(time.Second, 10*time.Millisecond)
		if want == "" {
			if h.state != closed || s.ended(EndExpired) != 1 {
				t.Errorf("%s: state %d, %d ended", uri, h.state, s.ended(EndExpired))
			}
			continue
		}
		if call := s.wantAsked(t, app); call.Target != want {
			t.Errorf("%s leads to %s, want %s", uri, call.Target, want)
		}
	}
}

// A stream whose link is of no use ends cleanly, so that its browser comes back.
func TestNext_ALinkThatIsNoUseEndsTheStream(t *testing.T) {
	for what, a := range map[string]Answer{
		"expired":       {Status: 403},
		"a redirect":    {Status: 302},
		"a long poll":   {Fields: fieldsOf(t, "Grip-Hold: response", "Grip-Channel: a")},
		"no sense":      {Fields: fieldsOf(t, "Grip-Hold: nonsense")},
		"encoded badly": {Fields: fieldsOf(t, "Content-Encoding: gzip"), Body: []byte("no gzip")},
	} {
		s, app := gripStage(t, Config{})
		h, p := s.openGrip(linked("5"), "")
		h.chunked = true
		p.bytes = nil
		s.publishItem("a", "9", "8", "9 ")
		s.pass(time.Second, 10*time.Millisecond)
		s.reply(t, s.wantAsked(t, app), a)
		if got := string(p.bytes); !p.closed || p.reset || !strings.HasPrefix(got[strings.Index(got, "\n")+1:], "retry: ") || !strings.HasSuffix(got, "0\r\n\r\n") || s.ended(EndExpired) != 1 {
			t.Errorf("%s: closed %v, reset %v, it is sent %q", what, p.closed, p.reset, got)
		}
	}
}

func TestNext_AHoldThatMissesSomethingAndHasNoLinkEnds(t *testing.T) {
	s, _ := gripStage(t, Config{})
	h, p := s.openGrip(&Grip{Channels: []GripChannel{on("a", "5")}}, "")
	s.publishItem("a", "9", "8", "9 ")
	if h.state != closed || p.reset || strings.Contains(string(p.bytes), "9 ") {
		t.Errorf("state %d, reset %v, it is sent %q", h.state, p.reset, p.bytes)
	}
	// Who comes back after the app was asked is held.
	h, _ = s.openGrip(&Grip{Channels: []GripChannel{on("a", "5")}}, "")
	if h.state == live {
		t.Error("it is held though the journal knows of a later item")
	}
	if h, _ = s.openGripSpec(&Grip{Channels: []GripChannel{on("a", "5")}}, Spec{Asked: true}); h.state != live {
		t.Errorf("an app that counts otherwise is never held: state %d", h.state)
	}
}

func TestNext_PagesComeAtTheClientsPace(t *testing.T) {
	s, app := gripStage(t, Config{})
	spec := Spec{Body: []byte("page 0 "), Target: "/pages", Host: "h", Paging: true}
	h, p := s.openGripSpec(&Grip{Next: &Link{URI: "?1"}}, spec)
	for n := 1; n <= 3; n++ {
		call := s.wantAsked(t, app)
		if call.Target != fmt.Sprintf("/pages?%d", n) {
			t.Fatalf("page %d is asked for at %s", n, call.Target)
		}
		if n == 2 {
			p.room = len(p.bytes) + 1
		}
		s.reply(t, call, Answer{Fields: fieldsOf(t, fmt.Sprintf("Grip-Link: <?%d>; rel=next", n+1)), Body: []byte(fmt.Sprint("page ", n, " "))})
		if n == 2 {
			s.wantUnasked(t, app)
			p.room = -1
			p.full = false
			s.loop.writable(h)
		}
	}
	s.reply(t, s.wantAsked(t, app), Answer{Fields: fieldsOf(t, "Grip-Hold: stream", "Grip-Channel: a; prev-id=5"), Body: []byte("last ")})
	s.publishItem("a", "6", "5", "6 ")
	p.want(t, "HEAD\npage 0 page 1 page 2 page 3 last 6 ")
}

func TestNext_AnAnswerWithoutHoldAndLinkIsTheEnd(t *testing.T) {
	s, app := gripStage(t, Config{})
	h, p := s.openGripSpec(&Grip{Next: &Link{URI: "?1"}}, Spec{Body: []byte("0 "), Target: "/pages", Host: "h", Paging: true})
	s.reply(t, s.wantAsked(t, app), Answer{Body: []byte("all")})
	if p.want(t, "HEAD\n0 all"); h.state != closed || s.ended(EndPublished) != 1 {
		t.Errorf("state %d, %d ended", h.state, s.ended(EndPublished))
	}
}

// The next instruction may name other channels; what is published to both while
// the app is asked is given once.
func TestNext_TheNextInstructionTakesThePlaceOfTheFirst(t *testing.T) {
	s, app := gripStage(t, Config{})
	in := &Grip{Channels: []GripChannel{on("a", "5"), on("user", ""), on("old", "")}, Next: &Link{URI: "/next"}}
	h, p := s.openGrip(in, "")
	p.bytes = nil
	s.publishItem("user", "", "", "u1 ")
	s.publishItem("a", "9", "8", "9 ")
	s.publishItem("user", "", "", "u2 ")
	s.pass(time.Second, 10*time.Millisecond)
	call := s.wantAsked(t, app)
	position := s.hub.head.Load()
	s.publishItem("new", "", "", "n1 ")
	s.publishItem("user", "", "", "u3 ")
	s.publishItem("old", "", "", "of a channel that was left")
	s.reply(t, call, Answer{Position: position, Body: []byte("6 7 8 9 "),
		Fields: fieldsOf(t, "Grip-Hold: stream", "Grip-Channel: a; prev-id=9, user, new", "Grip-Link: </later>; rel=next")})
	s.publishItem("a", "10", "9", "10 ")
	p.want(t, "u1 6 7 8 9 u2 n1 u3 10 ")
	if s.hub.journal.rooms["old"].members != 0 || s.hub.journal.rooms["new"].members != 1 || h.seats() != 3 {
		t.Errorf("it is in %v", h.channels())
	}
}

func TestNext_AHintAsksTheApp(t *testing.T) {
	s, app := gripStage(t, Config{})
	_, p := s.openGrip(linked("5"), "")
	s.hub.publishItem(encodeItem(&Item{Channel: "a", Stream: &StreamForm{Action: ActionHint}}))
	s.rest()
	s.pass(time.Second, 10*time.Millisecond)
	s.reply(t, s.wantAsked(t, app), Answer{Fields: fieldsOf(t, "Grip-Hold: stream", "Grip-Channel: a; prev-id=6", "Grip-Link: </later>; rel=next"), Body: []byte("6 ")})
	s.publishItem("a", "7", "6", "7 ")
	p.want(t, "HEAD\n6 7 ")
}

func TestNext_AnAppThatNeverFillsTheGapIsAskedMoreAndMoreSeldom(t *testing.T) {
	s, app := gripStage(t, Config{})
	h, _ := s.openGrip(linked("5"), "")
	asked := 0
	for n := range 60 * 60 {
		s.publishItem("a", fmt.Sprint("x", n), fmt.Sprint("y", n), "x ")
		s.pass(time.Second, 500*time.Millisecond)
		if !h.grip().asking {
			continue
		}
		asked++
		s.reply(t, s.wantAsked(t, app), Answer{Fields: fieldsOf(t, "Grip-Hold: stream", "Grip-Channel: a; prev-id=5", "Grip-Link: </later>; rel=next")})
	}
	if asked < 10 || asked > 90 {
		t.Errorf("in an hour it is asked %d times", asked)
	}
}
