package holds

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// An app that is there again after a moment has its streams go on: what fails
// is asked for again, after one second to two.
func TestLink_OneThatFailsIsAskedForAgain(t *testing.T) {
	s, app := gripStage(t, Config{})
	h, p := s.openGrip(linked("5"), "")
	p.bytes = nil
	s.publishItem("a", "9", "8", "9 ")
	s.pass(time.Second, tenth)
	call := s.wantAsked(t, app)
	began := time.Now()
	call.answered <- struct {
		Answer
		error
	}{error: errors.New("cut")}
	again := s.wantAsked(t, app)
	if took := time.Since(began); took < linkBackoff || again.Target != call.Target || string(again.Fields) != string(call.Fields) {
		t.Errorf("after %v it is asked again for %s with %q", took, again.Target, again.Fields)
	}
	s.reply(t, again, Answer{Fields: fieldsOf(t, "Grip-Hold: stream", "Grip-Channel: a; prev-id=9", "Grip-Link: </next>; rel=next"), Body: []byte("9 ")})
	if p.want(t, "9 "); h.state != live || s.loop.home.links.running != 0 {
		t.Errorf("state %d, %d links are being followed", h.state, s.loop.home.links.running)
	}
	select {
	case c := <-app.asked:
		t.Errorf("it is asked again for %s", c.Target)
	default:
	}
}

// More than linksAtOnce wait for their turn, and each gets it.
func TestLink_FewAreFollowedAtATime(t *testing.T) {
	s, app := gripStage(t, Config{})
	const streams = 3 * linksAtOnce
	var pipes []*pipe
	for i := range streams {
		in := linked("5")
		in.Next.URI = fmt.Sprint("/next?", i)
		_, p := s.openGrip(in, "")
		pipes = append(pipes, p)
	}
	s.publishItem("a", "9", "8", "9 ")
	s.pass(time.Second, tenth)
	for i := range streams {
		links := &s.loop.home.links
		links.mu.Lock()
		running, waiting := links.running, len(links.waiting)
		links.mu.Unlock()
		if running > linksAtOnce || running+waiting != streams-i {
			t.Fatalf("%d links are followed, %d wait, want %d in all", running, waiting, streams-i)
		}
		s.reply(t, s.wantAsked(t, app), Answer{Fields: fieldsOf(t, "Grip-Hold: stream", "Grip-Channel: a; prev-id=9"), Body: []byte("9 ")})
	}
	for _, p := range pipes {
		p.want(t, "HEAD\n9 ")
	}
}

// What an app writes into a link's query goes into a request line, where a space
// would end it.
func TestLink_ItsAddressFitsIntoARequestLine(t *testing.T) {
	for uri, want := range map[string]string{
		"/x y?q=a b":           "/x%20y?q=a%20b",
		"?a HTTP/1.1":          "/events/?a%20HTTP/1.1",
		"?a=%20+&b#fragment x": "/events/?a=%20+&b",
	} {
		s, app := gripStage(t, Config{})
		in := linked("5")
		in.Next.URI = uri
		s.openGrip(in, "")
		s.publishItem("a", "9", "8", "9 ")
		s.pass(time.Second, tenth)
		if call := s.wantAsked(t, app); call.Target != want {
			t.Errorf("%s is asked for as %q, want %q", uri, call.Target, want)
		}
	}
}
