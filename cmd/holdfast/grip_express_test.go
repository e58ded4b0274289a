package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fasthttp/websocket"
)

// Holdfast before an Express app with the libraries of GRIP's makers.

func TestGripExpress_TheAppSeesThatItIsProxiedAndSigned(t *testing.T) {
	t.Parallel()
	s := startExpress(t)
	for range 2 { // on the first connection, and on one that is used again
		var seen seenRequest
		if err := json.Unmarshal(wantGet(t, newClient(t), "http://"+s.addr+"/"), &seen); err != nil {
			t.Fatal(err)
		}
		if !seen.IsProxied || !seen.IsSigned || !seen.Verified {
			t.Errorf("proxied %v, signed %v, verified %v", seen.IsProxied, seen.IsSigned, seen.Verified)
		}
	}
}

func TestGripExpress_AStreamGetsWhatIsPublishedAsItIs(t *testing.T) {
	t.Parallel()
	s := startExpress(t)
	f := s.followExpress("news")
	for _, name := range []string{"Grip-Hold", "Grip-Channel", "Content-Length"} {
		if value := f.response.Header.Get(name); value != "" {
			t.Errorf("the client has %s: %s", name, value)
		}
	}
	for _, item := range []struct{ text, query string }{
		{"event: message\nid: 7\ndata: one\n\n", ""},
		{"no event at all, %I and 100 % of it, ü€😀 \r\n\x00 as it is", ""},
		{"bytes \xff\xfe\x00\x80 that are no text", "binary=1"},
		{strings.Repeat("large", 20_000), ""},
	} {
		s.mustPublish("elsewhere", "not for this stream", "")
		s.mustPublish("news", item.text, item.query)
		f.wantRaw(item.text)
	}
	s.mustPublish("news", "", "close=1000")
	if err := f.end(); err != nil {
		t.Error("ended by the app:", err)
	}
	eventuallyHolds(t, s.addr, holdsShown{})
}

func TestGripExpress_AnItemThatIsPublishedTwiceIsGivenOnce(t *testing.T) {
	t.Parallel()
	s := startExpress(t)
	f, c := s.followExpress("news"), openSocket(t, s.addr, "/ws-room?channel=news")
	for _, item := range []string{"one", "two", "one", "three", "two"} {
		s.mustPublish("news", item, "id="+item)
	}
	for _, item := range []string{"one", "two", "three"} {
		f.wantRaw(item)
		c.want(item)
	}
	for range 2 { // without an id they are two
		s.mustPublish("news", "the same", "")
		f.wantRaw("the same")
		c.want("the same")
	}
}

func TestGripExpress_ALongPollGetsTheItemOrItsOwnBody(t *testing.T) {
	t.Parallel()
	s := startExpress(t)
	p := openPoll(t, s.addr)
	p.ask("/poll?channel=news&timeout=50")
	eventuallyHolds(t, s.addr, holdsShown{Polls: 1})
	s.mustPublish("news", "the item, ü", "")
	a, err := p.answer()
	if err != nil || a.status != "HTTP/1.1 201 Published" || a.body != "the item, ü" {
		t.Fatalf("%+v %v, want the item", a, err)
	}
	for name, value := range map[string]string{"Content-Type": "text/x-news", "X-Item": "yes", "Content-Length": "12", "Grip-Hold": "", "Grip-Channel": ""} {
		if got := strings.Join(a.get(name), " | "); got != value {
			t.Errorf("%s: %q, want %q", name, got, value)
		}
	}
	// The same connection, and nothing is published: 5 s is the least.
	sent := time.Now()
	p.ask("/poll?channel=quiet&timeout=5")
	own := p.wantAnswer("nothing new\n")
	if took := time.Since(sent); took < 4*time.Second {
		t.Error("its own body came after", took)
	}
	if kind := own.get("Content-Type"); !slices.Equal(kind, []string{"text/plain; charset=utf-8"}) || len(own.get("Grip-Timeout")) > 0 {
		t.Errorf("%+v", own)
	}
	// What the client has already: Express says 304, which its library tells by
	// Grip-Status.
	fmt.Fprintf(p, "GET /poll?channel=quiet&timeout=5 HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: %s\r\n\r\n", own.get("ETag")[0])
	if a, err := p.answer(); err != nil || a.code() != 304 || a.body != "" {
		t.Errorf("%+v %v, want 304", a, err)
	}
	p.ask("/poll?channel=quiet&timeout=5")
	p.wantAnswer("nothing new\n")
}

func TestGripExpress_ASocketIsEchoed(t *testing.T) {
	t.Parallel()
	s := startExpress(t)
	c := openSocket(t, s.addr, "/ws-echo")
	if got := c.response.Header.Values("Sec-WebSocket-Extensions"); len(got) > 0 {
		t.Errorf("the client is told of %q", got)
	}
	for _, text := range []string{"hello", "", "ü€😀 \r\n TEXT 5\r\n", "m:with a prefix", "c:{\"type\":\"detach\"}", strings.Repeat("large", 20_000)} {
		c.say("%s", text)
		c.want(text)
	}
	for _, data := range []string{"bytes \xff\xfe\x00\r\n", "", "c:m:", strings.Repeat("\x00\xff\x80 ", 25_000)} {
		if err := c.WriteMessage(websocket.BinaryMessage, []byte(data)); err != nil {
			t.Fatal(err)
		}
		c.wantBinary(data)
	}
	// What comes while the app answers waits for it, in order.
	const many = 500
	go c.sayNumbers(many)
	for i := range many {
		c.want(fmt.Sprint(i))
	}
}

func TestGripExpress_WhatIsSaidInARoomIsHeardByAllInItAndNobodyElse(t *testing.T) {
	t.Parallel()
	s := startExpress(t)
	a, b := openSocket(t, s.addr, "/ws-room?channel=tea"), openSocket(t, s.addr, "/ws-room?channel=tea")
	other := openSocket(t, s.addr, "/ws-room?channel=coffee")
	for i := range 10 {
		from, text := []*socketClient{a, b}[i%2], fmt.Sprint("said ", i, " ü")
		from.say("%s", text)
		a.want(text)
		b.want(text)
	}
	other.say("only here")
	other.want("only here")
	b.Close()
	eventuallyHolds(t, s.addr, holdsShown{Sockets: 2})
	a.say("alone")
	a.want("alone")
}

func TestGripExpress_ASocketJoinsAndLeavesChannelsAndIsLetGo(t *testing.T) {
	t.Parallel()
	s := startExpress(t)
	c := openSocket(t, s.addr, "/ws-ask")
	asks := func(text string) {
		t.Helper()
		c.say("%s", text)
		c.want("done: " + text)
	}
	asks("subscribe a")
	s.mustPublish("a", "one", "")
	c.want("one")
	s.mustPublish("a", "\x00\xff", "binary=1")
	c.wantBinary("\x00\xff")
	asks("subscribe b")
	asks("unsubscribe a")
	s.mustPublish("a", "not for it", "")
	s.mustPublish("b", "two", "")
	c.want("two")
	// Let go by the app: what it says is for nobody, what is published is for it.
	asks("detach")
	c.say("headers")
	s.mustPublish("b", "three", "")
	c.want("three")
	s.mustPublish("b", "", "close=4005")
	if code := c.closeCode(); code != 4005 {
		t.Errorf("ended with %d, want 4005", code)
	}
}

func TestGripExpress_WhatTheAppSaysToTheLastMessageComesBeforeTheClose(t *testing.T) {
	t.Parallel()
	s := startExpress(t)
	for range 20 { // the app is asked with both at once, or with one after the other
		c := openSocket(t, s.addr, "/ws-echo")
		c.say("first")
		c.say("last words")
		c.sayClose(websocket.FormatCloseMessage(4001, ""))
		c.want("first")
		c.want("last words")
		c.wantClose(4001, "")
	}
}

func TestGripExpress_TheAppSeesHowItsClientLeaves(t *testing.T) {
	t.Parallel()
	s := startExpress(t)
	for name, end := range map[string]struct {
		frame []byte
		app   any
		codes []int // of the close frame that comes back
	}{
		"going-away": {websocket.FormatCloseMessage(1001, ""), 1001.0, []int{1001}},
		"own":        {websocket.FormatCloseMessage(4001, ""), 4001.0, []int{4001}},
		"reason":     {websocket.FormatCloseMessage(4999, "because, ü"), 4999.0, []int{4999}},
		"no-code":    {nil, nil, []int{1000, 1005}},
	} {
		path := "/ws-echo?end=" + name
		c := openSocket(t, s.addr, path)
		c.say("words")
		c.want("words")
		c.sayClose(end.frame)
		if code := c.closeCode(); !slices.Contains(end.codes, code) {
			t.Errorf("%s: the client was answered with %d, want one of %v", name, code, end.codes)
		}
		s.eventuallyEnded(path, end.app)
	}
	c := openSocket(t, s.addr, "/ws-echo?end=vanished")
	c.say("words")
	c.want("words")
	c.NetConn().Close()
	s.eventuallyEnded("/ws-echo?end=vanished", "disconnect")
	eventuallyHolds(t, s.addr, holdsShown{})
}

func TestGripExpress_TheClientSeesHowTheAppEndsASocket(t *testing.T) {
	t.Parallel()
	s := startExpress(t)
	for say, end := range map[string]struct {
		codes []int
		app   any // what the app hears then: the client's answer to the close
	}{
		"close 1001": {[]int{1001}, 1001.0},
		"close 4002": {[]int{4002}, 4002.0},
		// Those that must not stand in a frame; 0 is the library's "none".
		"close 0":    {[]int{1000, 1005}, "any"},
		"close 1005": {[]int{1000, 1005}, "any"},
		"close 1006": {[]int{1000, 1005}, "any"},
		"close 5000": {[]int{1000, 1005}, "any"},
		"disconnect": {[]int{1006}, nil},
	} {
		path := "/ws-ask?end=" + url.QueryEscape(say)
		c := openSocket(t, s.addr, path)
		c.say("%s", say)
		if say != "disconnect" {
			c.want("done: " + say)
		}
		if code := c.closeCode(); !slices.Contains(end.codes, code) {
			t.Errorf("%s: the client sees %d, want one of %v", say, code, end.codes)
		}
		switch end.app {
		case "any":
			eventually(t, "the app to see the end after "+say, func() bool { return len(s.ends(path)) == 1 })
		case nil:
		default:
			s.eventuallyEnded(path, end.app)
		}
	}
	eventuallyHolds(t, s.addr, holdsShown{})
}

func TestGripExpress_ARejectedHandshakeShowsTheAppsAnswer(t *testing.T) {
	t.Parallel()
	s := startExpress(t)
	a := askRaw(t, s.addr, handshake("/ws-reject", ""))
	if a.code() != 401 || a.body != "who are you?\n" || !slices.Equal(a.get("WWW-Authenticate"), []string{"Cookie"}) || len(a.get("Holdfast-Reason")) > 0 {
		t.Errorf("%+v, want the app's 401", a)
	}
	if n := healthHolds(t, s.addr).Sockets; n != 0 {
		t.Errorf("%d sockets are held", n)
	}
}

func TestGripExpress_MetaThatTheAppSetsComesBackWithEachRequest(t *testing.T) {
	t.Parallel()
	s := startExpress(t)
	c, other := openSocket(t, s.addr, "/ws-ask", "Meta-Role", "forged"), openSocket(t, s.addr, "/ws-ask")
	for _, step := range []struct{ say, meta string }{
		{"meta", `{}`},
		{"remember role admin", `{"role":"admin"}`},
		{"remember Team red", `{"role":"admin","team":"red"}`},
		{"remember role none", `{"role":"none","team":"red"}`},
		{"forget role", `{"team":"red"}`},
	} {
		c.say("%s", step.say)
		if step.say != "meta" {
			c.want("done: " + step.say)
			c.say("meta")
		}
		_, text, err := c.ReadMessage()
		var got, want map[string]string
		if err != nil || json.Unmarshal(text, &got) != nil || json.Unmarshal([]byte(step.meta), &want) != nil || !maps.Equal(got, want) {
			t.Errorf("after %q: %s %v, want %s", step.say, text, err, step.meta)
		}
		c.want("done: meta")
	}
	other.say("meta")
	other.want("{}")
}

func TestGripExpress_OnlyTheRightKeyPublishes(t *testing.T) {
	t.Parallel()
	s := startExpress(t)
	f, c, p := s.followExpress("news"), openSocket(t, s.addr, "/ws-room?channel=news"), openPoll(t, s.addr)
	p.ask("/poll?channel=news&timeout=50")
	eventuallyHolds(t, s.addr, holdsShown{Subscribers: 1, Sockets: 1, Polls: 1})
	for _, as := range []string{"wrong key", "wrong bearer", "no key"} {
		if status := s.published("news", "published with "+as, "as="+url.QueryEscape(as)); status != 401 {
			t.Errorf("with %s: %d, want 401", as, status)
		}
	}
	for _, as := range []string{"configured", "key as bearer", "other issuer"} {
		s.mustPublish("news", as, "as="+url.QueryEscape(as))
		f.wantRaw(as)
		c.want(as)
	}
	if a, err := p.answer(); err != nil || a.body != "configured" {
		t.Errorf("%+v %v, want what was published first", a, err)
	}
}

func TestGripExpress_WhatAClientForgesDoesNotReachTheApp(t *testing.T) {
	t.Parallel()
	s := startExpress(t)
	a := askRaw(t, s.addr, "GET / HTTP/1.1\r\nHost: localhost\r\n"+forgedFields+"\r\n")
	var seen seenRequest
	if err := json.Unmarshal([]byte(a.body), &seen); err != nil || !seen.Verified || len(seen.get("Grip-Sig")) != 1 {
		t.Errorf("%+v %v, want one signature, Holdfast's", a, err)
	}
	seen.wantNone(t, "grip-", "grip-sig", "grip-feature")
	seen.wantNone(t, "meta-")
	if features := strings.Join(seen.get("Grip-Feature"), ", "); features == "" || strings.Contains(features, "evil") {
		t.Errorf("Grip-Feature: %q", features)
	}
	// Nor with a socket, at the handshake and later.
	header := http.Header{"Cookie": {"session=1"}, "Connection-Id": {"evil"}, "Content-Bytes-Replayed": {"5"}}
	for line := range strings.Lines(forgedFields) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		header[name] = append(header[name], value)
	}
	c, err := dialSocket(s.addr, "/ws-ask", header)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.t = t
	for range 2 {
		c.say("headers")
		_, text, err := c.ReadMessage()
		seen = seenRequest{}
		if err != nil || json.Unmarshal(text, &seen.Headers) != nil {
			t.Fatalf("%s %v", text, err)
		}
		c.want("done: headers")
		seen.wantNone(t, "grip-", "grip-sig", "grip-feature")
		seen.wantNone(t, "meta-")
		seen.wantNone(t, "content-bytes-")
		for name, value := range map[string]string{"Content-Type": "application/websocket-events", "Accept": "application/websocket-events",
			"Cookie": "session=1", "Sec-WebSocket-Extensions": "grip", "Upgrade": ""} {
			if got := strings.Join(seen.get(name), " | "); got != value {
				t.Errorf("%s: %q, want %q", name, got, value)
			}
		}
		if id := seen.get("Connection-Id"); len(id) != 1 || id[0] == "evil" || len(seen.get("Grip-Sig")) != 1 {
			t.Errorf("Connection-Id: %q, Grip-Sig: %q", id, seen.get("Grip-Sig"))
		}
	}
}

func TestGripExpress_AClientsOwnSocketEventsAreForbidden(t *testing.T) {
	t.Parallel()
	s := startExpress(t)
	for _, path := range []string{"/ws-echo", "/", "/publish/news"} {
		for _, kind := range []string{"application/websocket-events", "Application/WebSocket-Events; charset=utf-8"} {
			a := askRaw(t, s.addr, "POST "+path+" HTTP/1.1\r\nHost: localhost\r\nContent-Type: "+kind+"\r\nAccept: application/websocket-events\r\n"+
				"Connection-Id: 1\r\nMeta-User: evil\r\nX-Ledger-Id: forged\r\nContent-Length: 6\r\n\r\nOPEN\r\n")
			if a.code() != 403 || !slices.Equal(a.get("Holdfast-Reason"), []string{"forbidden"}) {
				t.Errorf("POST %s of %s: %+v, want 403 forbidden", path, kind, a)
			}
		}
	}
	for _, e := range s.app.entries() {
		if e.ID == "forged" {
			t.Errorf("the app was asked: %s %s", e.Method, e.Path)
		}
	}
}

func TestGripExpress_HoldsOutliveTheApp(t *testing.T) {
	t.Parallel()
	s := startExpress(t)
	f, c := s.followExpress("news"), openSocket(t, s.addr, "/ws-echo")
	room := openSocket(t, s.addr, "/ws-room?channel=news")
	c.say("before")
	c.want("before")
	s.app.kill()
	c.say("while it is down")
	if got, want := healthHolds(t, s.addr), (holdsShown{Subscribers: 1, Sockets: 2}); got != want {
		t.Errorf("while the app is down %+v are held, want %+v", got, want)
	}
	s.app.start()
	c.want("while it is down")
	c.say("after")
	c.want("after")
	s.mustPublish("news", "published after", "")
	f.wantRaw("published after")
	room.want("published after")
}
