package holds

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// The whole of what goes over the wire: nothing is read into it by a parser.
func TestPoll_AnEventIsItsBodyBehindTheViewsOwnFields(t *testing.T) {
	s, back := startReturning(t, Config{})
	own := Spec{Body: []byte(`{"event": null}`), BodyFields: []byte("ETag: \"view\"\r\nContent-Encoding: gzip\r\n")}
	for _, c := range []struct {
		what             string
		keep, old        bool
		says, connection string
	}{
		{"HTTP/1.1", true, false, "", ""},
		{"HTTP/1.1, to be closed", false, false, "", "\r\nConnection: close"},
		{"HTTP/1.0", false, true, "", "\r\nConnection: close"},
		{"HTTP/1.0, to be kept", true, true, "", "\r\nConnection: keep-alive"},
	} {
		for _, p := range []Publication{text("hello"), {Data: []byte(`{"a":1}`), Kind: DataJSON, Event: "named", Retry: 7}, {Data: []byte("\x00\xff\r\n"), Kind: DataBinary}, {}, text("two\nlines")} {
			spec := own
			spec.KeepAlive, spec.HTTP10 = c.keep, c.old
			poll := s.openPoll(spec, false)
			p.Channels = []string{"room"}
			id, reached := s.Publish(p)
			if reached != 1 {
				t.Errorf("it reached %d, want 1", reached)
			}
			want := pollHead + fmt.Sprintf("M0-Event-Id: %d\r\nContent-Length: %d%s\r\n\r\n%s", id, len(p.Data), c.connection, p.Data)
			got := make([]byte, len(want))
			if n, err := io.ReadFull(poll.in, got); err != nil || string(got) != want {
				t.Fatalf("%s: it is answered %q, %v; want %q", c.what, got[:n], err, want)
			}
			if !c.keep {
				poll.wantEnd()
				continue
			}
			(<-back).conn.Close()
			poll.wantEnd() // and nothing behind the answer
		}
	}
	if n := s.Snapshot().Offered; n != 20 {
		t.Errorf("%d events are counted as offered, want 20", n)
	}
}

// It comes back with the id of its answer, whichever that was.
func TestPoll_WithoutAnEventInTimeItGetsTheViewsOwnAnswerAndMissesNothing(t *testing.T) {
	eachConnection(t, func(t *testing.T, linked bool) {
		s := startStation(t, Config{})
		s.publish("before it", "room")
		spec := Spec{Body: []byte(`{"event": null}`), BodyFields: []byte("ETag: \"view\"\r\n"), Timeout: 100 * time.Millisecond}
		c := s.openPoll(spec, linked)
		res, body := c.answer()
		if body != `{"event": null}` || res.Header.Get("ETag") != `"view"` || res.Header.Get("M0-Gap") != "" || res.StatusCode != 200 || res.Header.Get("Set-Cookie") != "a=1" {
			t.Fatalf("it is answered %v with %q", res.Header, body)
		}
		c.wantEnd()
		s.publish("to others", "news")
		id := s.publish("after it", "room")
		s.openPoll(Spec{Last: res.Header.Get("M0-Event-Id")}, linked).wantAnswer("after it", fmt.Sprint(id), false)
		if n := s.ended(ModeResponse, EndExpired); n != 1 {
			t.Errorf("%d ended expired, want 1", n)
		}
	})
}

func TestPoll_WhatIsPublishedWhileTheViewRunsIsTheAnswer(t *testing.T) {
	s := startStation(t, Config{})
	s.publish("before the view", "room")
	position := s.Position()
	id := s.publish("while the view runs", "room")
	s.publish("and another", "room")
	s.openPoll(Spec{Position: position}, false).wantAnswer("while the view runs", fmt.Sprint(id), false)
	c := s.openPoll(Spec{}, false)
	id = s.publish("after it", "room")
	c.wantAnswer("after it", fmt.Sprint(id), false)
}

// The view's body is the page's present state, which has what was missed.
func TestPoll_WhatTheJournalHasNotAllOfIsAGapAndTheViewsOwnAnswerAtOnce(t *testing.T) {
	eachConnection(t, func(t *testing.T, linked bool) {
		s, back := startReturning(t, Config{Journal: JournalLimits{Events: 2}})
		last := s.Position()
		for i := range 3 {
			s.publish(fmt.Sprint("missed ", i), "room")
		}
		head := s.Position()
		for _, came := range []string{fmt.Sprint(last), fmt.Sprint(head + 1000), "17", strings.Repeat("9", 30)} {
			c := s.openPoll(Spec{Last: came, Position: head, KeepAlive: true, Body: []byte("state"), BodyFields: []byte("ETag: \"view\"\r\n")}, linked)
			if etag := c.wantAnswer("state", fmt.Sprint(head), true).Header.Get("ETag"); etag != `"view"` {
				t.Errorf("the ETag of the view's body is %q", etag)
			}
			(<-back).conn.Close()
		}
		c := s.openPoll(Spec{Last: fmt.Sprint(head)}, linked)
		id := s.publish("after it", "room")
		c.wantAnswer("after it", fmt.Sprint(id), false)
		if n := s.Snapshot().GapsTold; n != 4 {
			t.Errorf("%d gaps are counted, want 4", n)
		}
	})
}

func TestPoll_APositionThatIsNoNumberIsAFirstVisit(t *testing.T) {
	s := startStation(t, Config{})
	s.publish("before it", "room")
	for _, came := range []string{"", "x", "-1", "1e3", " 17"} {
		c := s.openPoll(Spec{Last: came}, false)
		id := s.publish("after it", "room")
		c.wantAnswer("after it", fmt.Sprint(id), false)
	}
}

func TestPoll_OfSeveralChannelsItIsAnsweredOnceByTheFirstEventOfAnyOfThem(t *testing.T) {
	s, back := startReturning(t, Config{})
	c := s.openPoll(Spec{Channels: []string{"a", "b", "c"}, KeepAlive: true}, false)
	s.publish("to others", "d")
	id := s.publish("to two", "c", "a")
	s.publish("to one", "b")
	c.wantAnswer("to two", fmt.Sprint(id), false)
	r := <-back
	for _, name := range []string{"a", "b", "c"} {
		s.until("it has left", func() bool { return s.Channels()[name] == 0 })
	}
	s.pollOn(r.conn, Spec{Channels: []string{"a", "c", "b"}, Last: fmt.Sprint(id)})
	if res, body := c.answer(); body != "to one" || res.Header.Get("Connection") != "close" && !res.Close {
		t.Fatalf("then it is answered %v with %q", res.Header, body)
	}
	c.wantEnd()
}
