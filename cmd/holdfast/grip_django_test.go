package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// Holdfast before a Django app that answers as django-eventstream does.

func TestGripDjango_WhatWasMissedIsReplayedOnceAndThenLive(t *testing.T) {
	withEventstream(t, func(t *testing.T, server holdsServer) {
		s := startEventstream(t, server)
		s.keepMany("news", 1, 4)
		back, fresh := s.openEvents(eventsPath("news"), "news:1", ""), s.openEvents(eventsPath("news"), "", "")
		back.wantNumbers(2, 4)
		for i := 5; i <= 8; i++ {
			s.keep("news", fmt.Sprint(i), "")
		}
		back.wantNumbers(5, 8)
		fresh.wantNumbers(5, 8)
		for _, name := range []string{"Grip-Hold", "Grip-Channel", "Grip-Link", "Grip-Set-Meta", "Grip-Keep-Alive", "Content-Length"} {
			if value := back.response.Header.Get(name); value != "" {
				t.Errorf("the client has %s: %s", name, value)
			}
		}
		s.wantRequests(2, 0, 0)
	})
}

func TestGripDjango_PagesComeInOrderAndThenTheStream(t *testing.T) {
	withEventstream(t, func(t *testing.T, server holdsServer) {
		s := startEventstream(t, server, "PAGE=4")
		s.keepMany("news", 1, 11)
		f := s.openEvents(eventsPath("news"), "news:1", "Cookie: user=alice\r\n")
		f.wantNumbers(2, 11)
		s.keep("news", "12", "")
		f.wantNumbers(12, 12)
		s.wantRequests(1, 2, 0)
	})
}

func TestGripDjango_IDsAreOfAllChannelsOfTheStream(t *testing.T) {
	withEventstream(t, func(t *testing.T, server holdsServer) {
		s := startEventstream(t, server)
		f := s.openEvents(eventsPath("a", "b"), "", "")
		s.keep("a", "one", "")
		f.wantKept("a:1,b:0", "one")
		s.keep("b", "two", "")
		f.wantKept("a:1,b:1", "two")
		s.keep("a", "three", "")
		f.wantKept("a:2,b:1", "three")
		f.Close()
		s.keep("b", "four", "")
		s.keep("a", "five", "")
		f = s.openEvents(eventsPath("a", "b"), f.id, "")
		f.wantKept("a:3,b:1", "five")
		f.wantKept("a:3,b:2", "four")
		s.keep("b", "six", "")
		f.wantKept("a:3,b:3", "six")
	})
}

// quotedName is a channel's name as the app's ids have it: a slash as it is.
func quotedName(channel string) string {
	return strings.NewReplacer("%2F", "/", ":", "%3A", "=", "%3D").Replace(url.PathEscape(channel))
}

func TestGripDjango_NamesThatNeedQuoting(t *testing.T) {
	withEventstream(t, func(t *testing.T, server holdsServer) {
		s := startEventstream(t, server)
		channels := []string{"a b", "a,b", "zurück", "100%", "%I", "a;b=c", `"quoted"`, "a/b:c"}
		clients := make([]*follower, len(channels))
		for i, channel := range channels {
			id := quotedName(channel)
			s.keep(channel, "one", "")
			s.keep(channel, "two", "")
			clients[i] = s.openEvents(eventsPath(channel), id+":1", "")
			clients[i].wantKept(id+":2", "two")
			s.keep(channel, "three", "")
			clients[i].wantKept(id+":3", "three")
		}
		for _, channel := range channels {
			s.keep(channel, "lost", "lose=1")
			s.keep(channel, "five", "")
		}
		for i, channel := range channels {
			clients[i].wantKept(quotedName(channel)+":4", "lost")
			clients[i].wantKept(quotedName(channel)+":5", "five")
		}
		s.wantRequests(8, 0, 8)
	})
}

func TestGripDjango_APercentSignInDataArrivesAsOne(t *testing.T) {
	withEventstream(t, func(t *testing.T, server holdsServer) {
		s := startEventstream(t, server)
		texts := []string{"100 %", "%", "%%", "%I and %(events-news)s", "%(", "%zz %s", "50 % + 50 % = 100 %"}
		live := s.openEvents(eventsPath("news"), "", "")
		for _, text := range texts {
			s.keep("news", text, "")
		}
		replayed := s.openEvents(eventsPath("news"), "news:0", "")
		for i, text := range texts {
			live.wantKept(fmt.Sprint("news:", i+1), text)
			replayed.wantKept(fmt.Sprint("news:", i+1), text)
		}
	})
}

// openInto opens a stream whose view does not answer at once; nil: it failed.
func (s *gripSite) openInto(opened chan<- *follower, path string) {
	f, err := openEvents(s.addr, path, "", "")
	if err != nil {
		s.t.Error(path, err)
	}
	opened <- f
}

func TestGripDjango_AnEventPublishedWhileItsViewRunsIsDeliveredOnce(t *testing.T) {
	withEventstream(t, func(t *testing.T, server holdsServer) {
		s := startEventstream(t, server)
		s.keep("news", "1", "")
		opened := make(chan *follower, 1)
		go s.openInto(opened, eventsPath("news")+"&gate=go")
		eventually(t, "the view to run", func() bool { return s.app.running("/events/") == 1 })
		s.keep("news", "2", "")
		s.keep("news", "3", "")
		s.app.open("go")
		f := <-opened
		if f == nil {
			return
		}
		defer f.Close()
		f.t = t
		f.wantNumbers(2, 3)
		s.keep("news", "4", "")
		f.wantNumbers(4, 4)
		s.wantRequests(1, 0, 0) // what was published is there still: the app need not be asked
	})
}

func TestGripDjango_ALostPublishIsAskedForOnce(t *testing.T) {
	withEventstream(t, func(t *testing.T, server holdsServer) {
		s := startEventstream(t, server)
		f := s.openEvents(eventsPath("news"), "", "Cookie: user=alice\r\n")
		s.keep("news", "1", "")
		f.wantNumbers(1, 1)
		s.keep("news", "2", "lose=1")
		s.keep("news", "3", "")
		f.wantNumbers(2, 3)
		s.keep("news", "4", "")
		f.wantNumbers(4, 4)
		s.wantRequests(1, 0, 1)
		// What is missing is more than a page.
		s.keepMany("news", 5, 150)
		s.keep("news", "151", "")
		f.wantNumbers(5, 151)
		s.keep("news", "152", "")
		f.wantNumbers(152, 152)
		s.wantRequests(1, 1, 2)
	})
}

func TestGripDjango_PublishesOutOfOrderAreDeliveredInOrder(t *testing.T) {
	withEventstream(t, func(t *testing.T, server holdsServer) {
		s := startEventstream(t, server)
		f := s.openEvents(eventsPath("news"), "", "")
		s.keep("news", "1", "")
		s.keepMany("news", 2, 5)
		for _, number := range []int{4, 3, 5, 2} {
			s.again("news", number)
		}
		f.wantNumbers(1, 5)
		for _, number := range []int{5, 3, 1} { // again, and of no use
			s.again("news", number)
		}
		s.keep("news", "6", "")
		f.wantNumbers(6, 6)
		s.wantRequests(1, 0, 0)
	})
}

func TestGripDjango_ManyOnOneLinkAskTheAppLittle(t *testing.T) {
	withEventstream(t, func(t *testing.T, server holdsServer) {
		s := startEventstream(t, server, fmt.Sprint("LINK_EXPIRES=", time.Now().Unix()+3600))
		clients := make([]*follower, 20)
		for i := range clients { // each from elsewhere, as proxies in front tell it
			clients[i] = s.openEvents(eventsPath("news"), "", fmt.Sprintf("X-Forwarded-For: 192.0.2.%[1]d\r\nX-Real-IP: 192.0.2.%[1]d\r\n"+
				"Forwarded: for=192.0.2.%[1]d\r\nUser-Agent: client %[1]d\r\nX-Request-ID: request-%[1]d\r\n", i))
		}
		s.keep("news", "1", "")
		s.keep("news", "2", "lose=1")
		s.keep("news", "3", "")
		for _, f := range clients {
			f.wantNumbers(1, 3)
		}
		s.keep("news", "4", "")
		for _, f := range clients {
			f.wantNumbers(4, 4)
		}
		if n := s.requests()["recover"]; n < 1 || n > 5 {
			t.Errorf("the app was asked %d times for what twenty clients missed, want 5 times at most", n)
		}
	})
}

func TestGripDjango_SomeoneWhoIsSkippedMissesNothingElse(t *testing.T) {
	withEventstream(t, func(t *testing.T, server holdsServer) {
		s := startEventstream(t, server)
		alice := s.openEvents(eventsPath("news"), "", "Cookie: user=alice\r\n")
		bob := s.openEvents(eventsPath("news"), "", "Cookie: user=bob\r\n")
		s.keep("news", "1", "")
		s.keep("news", "2", "skip=carol,alice")
		s.keep("news", "3", "")
		bob.wantNumbers(1, 3)
		alice.wantNumbers(1, 1)
		alice.wantNumbers(3, 3)
		s.wantRequests(2, 0, 0)
	})
}

// wantKicked reads on to what the app says to a client that may no longer
// follow, and to the end.
func (f *follower) wantKicked() {
	f.t.Helper()
	b, err := f.kept()
	if err != nil || b.event != "stream-error" || b.id != "error" || !strings.Contains(b.data, `"condition": "forbidden"`) {
		f.t.Fatalf("%q %v, want the word that the client is sent away with", b.raw, err)
	}
	if err := f.end(); err != nil {
		f.t.Error(err)
	}
}

func TestGripDjango_AKickEndsTheStreamsOfItsUserThatHaveTheChannel(t *testing.T) {
	withEventstream(t, func(t *testing.T, server holdsServer) {
		s := startEventstream(t, server)
		const alice, bob = "Cookie: user=alice\r\n", "Cookie: user=bob\r\n"
		elsewhere, other := s.openEvents(eventsPath("sports"), "", alice), s.openEvents(eventsPath("news"), "", bob)
		for turn := 1; turn <= 2; turn++ { // twice within a minute: both have the same ids
			one, two := s.openEvents(eventsPath("news"), "", alice), s.openEvents(eventsPath("weather", "news"), "", alice)
			s.post("/kick?user=alice&channel=news", "", &struct{}{})
			one.wantKicked()
			two.wantKicked()
			s.keep("news", fmt.Sprint(turn), "")
			s.keep("sports", fmt.Sprint(turn), "")
			other.wantNumbers(turn, turn)
			elsewhere.wantKept(fmt.Sprint("sports:", turn), fmt.Sprint(turn))
		}
	})
}

// ended reads on to the stream's end, whatever its form, and tells whether
// nothing but comments and a time to come back at stands before it.
func (f *follower) ended() error {
	for {
		b, err := f.block()
		switch {
		case err != nil && isTimeout(err):
			return fmt.Errorf("the stream goes on: %w", err)
		case err != nil && (errors.Is(err, io.ErrUnexpectedEOF) && b.raw == "" || !errors.Is(err, io.ErrUnexpectedEOF)):
			return nil
		case err != nil || b.hasData && b.event != "keep-alive":
			return fmt.Errorf("%q and %w, want the end", b.raw, cmpErr(err))
		}
	}
}

func TestGripDjango_WhereALinkIsRefusedTheStreamEndsAndTheClientComesBack(t *testing.T) {
	withEventstream(t, func(t *testing.T, server holdsServer) {
		for _, status := range []string{"403", "404"} {
			t.Run(status, func(t *testing.T) {
				t.Parallel()
				s := startEventstream(t, server)
				f := s.openEvents(eventsPath("news"), "", "")
				s.keep("news", "1", "")
				f.wantNumbers(1, 1)
				s.app.open("links-" + status)
				s.keep("news", "2", "lose=1")
				s.keep("news", "3", "")
				if err := f.ended(); err != nil {
					t.Fatal(err)
				}
				if n := s.requests()["recover"]; n < 1 || n > 6 {
					t.Errorf("the app refused the link %d times", n)
				}
				f = s.openEvents(eventsPath("news"), f.id, "")
				f.wantNumbers(2, 3)
				s.keep("news", "4", "")
				f.wantNumbers(4, 4)
			})
		}
	})
}

func TestGripDjango_AQuietStreamIsSentTheAppsOwnText(t *testing.T) {
	withEventstream(t, func(t *testing.T, server holdsServer) {
		s := startEventstream(t, server, "KEEP_ALIVE=1")
		f := s.openEvents(eventsPath("news"), "", "")
		for range 3 {
			f.wantRaw("event: keep-alive\ndata:\n\n")
		}
		s.keep("news", "1", "")
		f.wantNumbers(1, 1)
		f.wantRaw("event: keep-alive\ndata:\n\n")
		s.wantRequests(1, 0, 0)
	})
}

func TestGripDjango_StreamsOutliveTheApp(t *testing.T) {
	withEventstream(t, func(t *testing.T, server holdsServer) {
		s := startEventstream(t, server)
		f := s.openEvents(eventsPath("news"), "", "")
		s.keep("news", "1", "")
		f.wantNumbers(1, 1)
		s.app.kill()
		s.app.start()
		s.keep("news", "2", "")
		f.wantNumbers(2, 2)
		s.app.kill()
		s.app.start()
		s.keep("news", "3", "lose=1")
		s.keep("news", "4", "")
		f.wantNumbers(3, 4)
		s.wantRequests(1, 0, 1)
	})
}

// comingAndGoing follows news until it has the last number: it leaves after a
// few events, by a reset, and comes back with its id.
func comingAndGoing(s *gripSite, last int) (seen []string, err error) {
	id := "news:0"
	for until := fmt.Sprint("news:", last); id != until; {
		f, err := openEvents(s.addr, eventsPath("news"), id, "")
		if err != nil {
			return seen, err
		}
		for range 1 + rand.IntN(12) {
			b, err := f.kept()
			if err != nil {
				return seen, fmt.Errorf("behind %s: %w", f.id, err)
			}
			seen = append(seen, b.id+" "+b.data)
			if f.id == until {
				break
			}
		}
		id = f.id
		f.Close()
	}
	return seen, nil
}

// wantAll: each event from 1 to the last was seen once, in order.
func wantAll(seen []string, last int) error {
	for i := range max(last, len(seen)) {
		got := "nothing"
		if i < len(seen) {
			got = seen[i]
		}
		if want := fmt.Sprintf("news:%[1]d \"text %[1]d %%\"", i+1); got != want {
			return fmt.Errorf("%s behind %q, want %s of %d", got, seen[max(0, i-9):i], want, last)
		}
	}
	return nil
}

func TestGripDjango_ClientsThatComeAndGoUnderAPublisherMissAndDoubleNothing(t *testing.T) {
	withEventstream(t, func(t *testing.T, server holdsServer) {
		s := startEventstream(t, server, "PAGE=7")
		const old, last = 30, 100
		text := func(i int) string { return fmt.Sprintf("text %d %%", i) }
		for i := range old { // some pages of it
			s.keep("news", text(i+1), "lose=1")
		}
		var following sync.WaitGroup
		for range 10 {
			following.Go(func() {
				seen, err := comingAndGoing(s, last)
				if err := errors.Join(err, wantAll(seen, last)); err != nil {
					t.Error(err)
				}
			})
		}
		for i := old; i < last; i++ {
			s.keep("news", text(i+1), "")
		}
		following.Wait()
		t.Log(s.requests())
	})
}
