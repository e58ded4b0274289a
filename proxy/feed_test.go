package proxy_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"holdfast/holds"
	"holdfast/proxy"
)

// startFeed has a feed at /feed that is refused to who brings no key, and counts whom it holds.
func startFeed(t *testing.T, limits holds.Config) (s *holdSite, opened *atomic.Int32) {
	t.Helper()
	opened = new(atomic.Int32)
	feed := &proxy.Feed{Opened: func() { opened.Add(1) }, Open: func(asked *proxy.Asked) (string, proxy.Respond) {
		switch asked.Field("authorization") {
		case "":
			return "", proxy.Refuse("unauthorized", "this needs a key")
		case "fault":
			panic("of the feed")
		}
		return "own", proxy.Respond{Status: 200, Body: []byte("data: first\n\n"), Fields: []string{"Content-Type", "text/event-stream", "X-Feed", asked.Query}}
	}}
	return startHolds(t, holdSetup{holds: limits, routes: []proxy.Route{{Match: "GET /feed", Feed: feed}}}), opened
}

func TestFeed_HoldsWithoutAskingTheApp(t *testing.T) {
	s, opened := startFeed(t, holds.Config{})
	position := s.publish("own", "before")
	c := say(t, s.addr, askFor("/feed?a=b", "Authorization: key"))
	fields := c.wantHead(t, 200)
	for name, want := range map[string]string{"Content-Type": "text/event-stream", "X-Feed": "a=b", "Transfer-Encoding": "chunked", "Connection": "close", "Content-Length": "", "Cache-Control": ""} {
		if got := strings.Join(fieldValues(fields, name), " | "); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	c.wantBytes(t, chunk("data: first\n\n"+idBlock(position)))
	c.wantBytes(t, chunk(eventBlock(s.publish("own", "next"), "next")))
	old := say(t, s.addr, strings.Replace(askFor("/feed", "Authorization: key"), "HTTP/1.1", "HTTP/1.0", 1))
	if fields := old.wantHead(t, 200); len(fieldValues(fields, "Transfer-Encoding")) > 0 {
		t.Errorf("HTTP/1.0 is given %q", fields)
	}
	s.wantHeld(t, 2)
	until(t, "both were told of", func() bool { return opened.Load() == 2 })
	s.wantNotAsked(t)
}

func TestFeed_WhatIsNotHeldIsAnAnswer(t *testing.T) {
	s, opened := startFeed(t, holds.Config{Limit: 1})
	c := dialWire(t, s.addr)
	for range 2 { // the connection goes on
		c.say(t, askFor("/feed"))
		c.wantReason(t, 401, "unauthorized", "this needs a key")
	}
	c.say(t, askFor("/feed", "Authorization: fault"))
	c.wantReason(t, 500, "internal")
	c.say(t, strings.Replace(askFor("/feed", "Authorization: key"), "GET", "HEAD", 1))
	if fields := c.wantHead(t, 200); strings.Join(fieldValues(fields, "Content-Type"), "") != "text/event-stream" {
		t.Errorf("HEAD: %q", fields)
	}
	s.wantNoHold(t)
	if n := opened.Load(); n != 0 {
		t.Errorf("%d were told of", n)
	}
	say(t, s.addr, askFor("/feed", "Authorization: key")).wantHead(t, 200)
	s.wantHeld(t, 1)
	c.say(t, askFor("/feed", "Authorization: key"))
	c.wantReason(t, 503, "too_many_holds")
	until(t, "one was told of", func() bool { return opened.Load() == 1 })
}

// What Holdfast answers with a reason is told apart from what the app answers.
func TestRoutes_CountRefusalsByReasonAndTheAppsFailures(t *testing.T) {
	s := startHolds(t, holdSetup{})
	for range 3 {
		say(t, s.addr, "GET / HTTP/1.1\r\n\r\n").wantReason(t, 400, "bad_request")
	}
	c := dialWire(t, s.addr)
	for _, status := range []int{500, 503, 200} {
		c.say(t, get("/x"))
		s.view(t).answer(fmt.Sprintf("HTTP/1.1 %d X\r\nContent-Length: 2\r\n\r\nok", status))
		c.wantAnswer(t, "GET", status, "ok")
	}
	c.say(t, get("/x"))
	s.view(t).hangUp("nothing of HTTP\r\n\r\n")
	c.wantReason(t, 502, "upstream_error")
	until(t, "all are counted", func() bool {
		n := uint64(0)
		for _, r := range s.server.Routes() {
			n += r.Took.Count
		}
		return n == 7
	})
	for _, r := range s.server.Routes() {
		switch {
		case r.Route == "" && (len(r.Refused) != 1 || r.Refused["bad_request"] != 3 || r.Failed != 0),
			r.Route == "/" && (len(r.Refused) != 1 || r.Refused["upstream_error"] != 1 || r.Failed != 2 || r.Codes[502] != 1):
			t.Errorf("%+v", r)
		}
	}
}
