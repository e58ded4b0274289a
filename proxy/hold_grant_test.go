package proxy_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"holdfast/holds"
	"holdfast/proxy"
)

const grantKey = "the key of grants"

// startGrants has grants below /live/, for pages of the same host.
func startGrants(t *testing.T, limits holds.Config) *holdSite {
	t.Helper()
	return startHolds(t, holdSetup{holds: limits, routes: []proxy.Route{{Match: "/live/", Grant: &proxy.Grant{
		Keys: [][]byte{[]byte(grantKey)}, Cookie: "sessionid", Origins: holds.Origins{SameHost: true}}}}})
}

func goodGrant(session string) string {
	return "/live/stream?g=" + signedGrant(grantKey, time.Now().Add(time.Hour), "news", session)
}

// wantNotAsked requires that the app has had no request.
func (s *holdSite) wantNotAsked(t *testing.T) {
	t.Helper()
	s.wantServed(t, dialWire(t, s.addr))
}

func TestGrantRoute_AGoodGrantIsHeldWithoutAskingTheApp(t *testing.T) {
	s := startGrants(t, holds.Config{})
	position := s.publish("news", "before")
	want := chunk(": open\n\n" + idBlock(position))
	var held []*wireClient
	for name, text := range map[string]string{
		"Open":         askFor(goodGrant("")),
		"Bound":        askFor(goodGrant("s3cret"), "Cookie: a=b; sessionid=s3cret"),
		"SameHost":     askFor(goodGrant(""), "Origin: http://a.test"),
		"Escaped":      askFor(strings.Replace(goodGrant(""), "stream", "s%74ream", 1)),
		"WithABody":    askFor(goodGrant(""), "Content-Length: 5") + "hello",
		"OtherQueries": askFor(strings.Replace(goodGrant(""), "?", "?a=b&", 1) + "&lastEventId="),
	} {
		c := say(t, s.addr, text)
		c.wantHeldHead(t)
		if t.Failed() {
			t.Fatal(name)
		}
		c.wantBytes(t, want)
		held = append(held, c)
	}
	old := say(t, s.addr, strings.Replace(askFor(goodGrant("")), "HTTP/1.1", "HTTP/1.0", 1))
	if fields := old.wantHead(t, 200); len(fieldValues(fields, "Transfer-Encoding")) > 0 {
		t.Errorf("HTTP/1.0 is given %q", fields)
	}
	old.wantBytes(t, ": open\n\n"+idBlock(position))
	id := s.publish("news", "one")
	for _, c := range held {
		c.wantBytes(t, chunk(eventBlock(id, "one")))
	}
	old.wantBytes(t, eventBlock(id, "one"))
	s.wantNotAsked(t)
	if codes := s.server.Routes(); len(codes) == 0 {
		t.Error("nothing is counted")
	}
}

// What is answered here says when it was made (RFC 9110 §6.6.1).
func TestGrantRoute_TheHeadHasADate(t *testing.T) {
	s := startGrants(t, holds.Config{})
	for _, method := range []string{"HEAD", "GET"} {
		c := say(t, s.addr, strings.Replace(askFor(goodGrant("")), "GET", method, 1))
		if dates := fieldValues(c.wantHead(t, 200), "Date"); len(dates) != 1 {
			t.Errorf("%s: the dates are %q", method, dates)
		}
	}
}

func TestGrantRoute_AClientThatComesBackIsGivenWhatItMissed(t *testing.T) {
	s := startGrants(t, holds.Config{})
	one, two := s.publish("news", "one"), s.publish("news", "two")
	for _, c := range []*wireClient{
		say(t, s.addr, askFor(goodGrant(""), fmt.Sprintf("Last-Event-ID: %d", one))),
		say(t, s.addr, askFor(goodGrant("")+fmt.Sprintf("&lastEventId=%d", one))),
	} {
		c.wantHeldHead(t)
		c.wantBytes(t, chunk(": open\n\n"+idBlock(one))+chunk(eventBlock(two, "two")))
	}
}

func TestGrantRoute_BelowItThereIsNothingElse(t *testing.T) {
	s := startGrants(t, holds.Config{})
	grant := strings.TrimPrefix(goodGrant(""), "/live/stream")
	for _, path := range []string{"/live/", "/live/other", "/live/stream/", "/live/stream/x", "/live/Stream", "/live/xstream", "/live/streams",
		"/live//stream", "/live/x/stream", "/live/x%2Fstream", "/live/%2573tream"} {
		c := say(t, s.addr, askFor(path+grant))
		line, _, _, err := readStrictHead(c.reader)
		if err != nil || !strings.HasPrefix(line, "HTTP/1.1 404 ") {
			t.Errorf("%s is answered %q, %v", path, line, err)
		}
	}
	c := say(t, s.addr, askFor("/live/other"+grant))
	c.wantReason(t, 404, "no_route")
	s.wantNoHold(t)
}

func TestGrantRoute_OtherMethodsAreNotItsOwn(t *testing.T) {
	s := startGrants(t, holds.Config{})
	c := say(t, s.addr, strings.Replace(askFor(goodGrant(""), "Content-Length: 0"), "GET", "POST", 1))
	s.view(t).answer(ok(joinNews, "")) // of the route that takes all methods
	c.wantHeldHead(t)
	s.wantHeld(t, 1)
	route := proxy.Route{Match: "/live/", Grant: &proxy.Grant{Keys: [][]byte{[]byte(grantKey)}}}
	if err := s.server.Configure(proxy.Config{Holds: s.holds}, []proxy.Route{route}); err != nil {
		t.Fatal(err)
	}
	c = say(t, s.addr, strings.Replace(askFor(goodGrant(""), "Content-Length: 0"), "GET", "POST", 1))
	if got := c.wantReason(t, 405, "method_not_allowed").get("Allow"); got != "GET, HEAD" {
		t.Errorf("Allow is %q", got)
	}
	s.wantHeld(t, 1)
}

// wantGrantRefused requires a refusal that says whether to ask for a new one.
func (c *wireClient) wantGrantRefused(t *testing.T, method, word string) {
	t.Helper()
	answer := c.wantAnswer(t, method, 401, "*")
	if got := answer.get("Holdfast-Reason"); got != "grant_"+word {
		t.Errorf("the reason is %q", got)
	}
	if got := answer.get("Content-Type"); got != "application/problem+json" {
		t.Errorf("the type is %q", got)
	}
	if method == "HEAD" {
		return
	}
	var problem struct {
		Type, Error, Reason, Detail string
		Status                      int
	}
	if err := json.Unmarshal(answer.body, &problem); err != nil || problem.Type != "docs/troubleshoot.md#grant_"+word || problem.Error != word || problem.Reason != word || problem.Status != 401 || problem.Detail == "" {
		t.Errorf("the body is %s", answer.body)
	}
}

func TestGrantRoute_ABadGrantIsRefused(t *testing.T) {
	s := startGrants(t, holds.Config{})
	c := dialWire(t, s.addr)
	hour := time.Now().Add(time.Hour)
	good := signedGrant(grantKey, hour, "news", "")
	for _, refused := range []struct {
		name, query, word string
		fields            []string
	}{
		{"Missing", "", "invalid", nil},
		{"Empty", "?g=", "invalid", nil},
		{"Malformed", "?g=v1.x", "invalid", nil},
		{"UnknownKey", "?g=" + signedGrant("another", hour, "news", ""), "invalid", nil},
		{"BadSignature", "?g=" + strings.Replace(good, ".news.", ".newz.", 1), "invalid", nil},
		{"Expired", "?g=" + signedGrant(grantKey, time.Now().Add(-time.Second), "news", ""), "expired", nil},
		{"ExpiredBeforeSession", "?g=" + signedGrant(grantKey, time.Now().Add(-time.Second), "news", "s3cret"), "expired", nil},
		{"NoSession", "?g=" + signedGrant(grantKey, hour, "news", "s3cret"), "invalid", nil},
		{"OtherSession", "?g=" + signedGrant(grantKey, hour, "news", "s3cret"), "invalid", []string{"Cookie: sessionid=other"}},
		{"EventSource", "?g=" + signedGrant(grantKey, time.Now().Add(-time.Second), "news", ""), "expired", []string{"Accept: text/event-stream"}},
	} {
		t.Run(refused.name, func(t *testing.T) {
			c.say(t, askFor("/live/stream"+refused.query, refused.fields...))
			c.wantGrantRefused(t, "GET", refused.word)
			c.say(t, strings.Replace(askFor("/live/stream"+refused.query, refused.fields...), "GET", "HEAD", 1))
			c.wantGrantRefused(t, "HEAD", refused.word)
		})
	}
	s.wantNoHold(t)
	s.wantNotAsked(t)
}

// The origin is looked at first, so that no page learns what a grant is worth.
func TestGrantRoute_APageOfAnotherOriginIsDenied(t *testing.T) {
	s := startGrants(t, holds.Config{})
	c := dialWire(t, s.addr)
	for _, origin := range []string{"http://evil.test", "http://a.test:81", "http://a.test.evil.test", "null", "https://b.test"} {
		for _, target := range []string{goodGrant(""), "/live/stream", "/live/stream?g=" + signedGrant(grantKey, time.Now().Add(-time.Hour), "news", "")} {
			c.say(t, askFor(target, "Origin: "+origin))
			c.wantReason(t, 403, "origin_denied", "holds.origins")
		}
	}
	c.say(t, askFor(goodGrant(""), "Origin: http://a.test", "Origin: http://evil.test"))
	c.wantReason(t, 403, "origin_denied")
	c.say(t, strings.Replace(askFor(goodGrant(""), "Origin: http://evil.test"), "GET", "HEAD", 1))
	c.wantAnswer(t, "HEAD", 403, "*")
	s.wantNoHold(t)
	s.wantNotAsked(t)
}

func TestGrantRoute_HEADIsAnsweredByTheHeadAlone(t *testing.T) {
	s := startGrants(t, holds.Config{})
	c := dialWire(t, s.addr)
	for range 3 {
		c.say(t, strings.Replace(askFor(goodGrant("")), "GET", "HEAD", 1))
		answer := c.wantAnswer(t, "HEAD", 200, "")
		if answer.get("Content-Type") != "text/event-stream" || answer.closes() {
			t.Errorf("the fields are %q", answer.fields)
		}
	}
	s.wantNoHold(t)
	s.wantServed(t, c)
}

// A grant is no way round the limit, and works when the app is dead.
func TestGrantRoute_AnEventSourceBeyondTheLimitIsAskedToComeBack(t *testing.T) {
	s := startGrants(t, holds.Config{Limit: 1})
	s.lane.Close()
	first := say(t, s.addr, askFor(goodGrant("")))
	first.wantHeldHead(t)
	c := say(t, s.addr, askFor(goodGrant(""), "Accept: text/event-stream"))
	c.wantRetry(t, "too_many_holds")
	c.say(t, askFor(goodGrant("")))
	c.wantReason(t, 503, "too_many_holds")
	first.Close()
	s.wantHeld(t, 0)
}

// The first request of a connection and a later one are served by different
// goroutines.
func TestGrantRoute_IsReachedOnAConnectionThatServedBefore(t *testing.T) {
	s := startGrants(t, holds.Config{})
	c := dialWire(t, s.addr)
	s.wantServed(t, c)
	position := s.publish("other", "x")
	c.say(t, askFor(goodGrant("")))
	c.wantHeldHead(t)
	c.wantBytes(t, chunk(": open\n\n"+idBlock(position)))
}
