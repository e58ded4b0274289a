package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The publish API and the command that speaks it, from the wire to the streams.

// call makes one of the publish API. fields are lines.
func call(t *testing.T, addr, method, path, fields string, body []byte) *rawAnswer {
	t.Helper()
	return askRaw(t, addr, fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\n%sConnection: close\r\nContent-Length: %d\r\n\r\n%s", method, path, addr, fields, len(body), body))
}

// wantJSON reads an answer that must be 200.
func wantJSON(t *testing.T, a *rawAnswer, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.body), into); a.code() != 200 || err != nil || strings.Join(a.get("Content-Type"), "") != "application/json" {
		t.Fatalf("%d %v %s (%v), want 200 and JSON", a.code(), a.fields, a.body, err)
	}
}

func TestPublish_EveryShapeReachesTheStreamAsItWasMeant(t *testing.T) {
	t.Parallel()
	s := startHolds(t, flaskThreads, holdsLanes+"holds: {heartbeat: 0}\n")
	f := follow(t, s.addr, "/events?channel=news&channel=other&channel=a%2Fb%20%C3%A9")
	big := strings.Repeat("x", 1<<20)
	for _, shape := range []struct{ name, path, body, want string }{ // want: behind the line of the id
		{"a text", "/publish", `{"channel": "news", "data": "hello"}`, "data: hello\n"},
		{"with a slash", "/publish/", `{"channel": "news", "data": "hello"}`, "data: hello\n"},
		{"escapes", "/publish", `{"channel": "a/b \u00e9", "data": "\u00e9\ud83d\ude00 \" \\"}`, "data: é😀 \" \\\n"},
		{"an empty text", "/publish", `{"channel": "news", "data": ""}`, "data: \n"},
		{"line endings", "/publish", `{"channel": "news", "data": "one\ntwo\r\nthree\rfour\n"}`, "data: one\ndata: two\ndata: three\ndata: four\ndata: \n"},
		{"lines that look like fields", "/publish", `{"channel": "news", "data": "a\n\nid: 1\nevent: x"}`, "data: a\ndata: \ndata: id: 1\ndata: event: x\n"},
		{"an object", "/publish", `{"channel": "news", "data": { "b" : 1.50, "a" : [ 1e3, null ] }}`, `data: {"b":1.50,"a":[1e3,null]}` + "\n"},
		{"a number", "/publish", `{"channel": "news", "data": 12345678901234567890}`, "data: 12345678901234567890\n"},
		{"null", "/publish", `{"channel": "news", "data": null}`, "data: null\n"},
		{"a name and a time", "/publish", `{"retry": 0, "event": "the name", "channel": "news", "data": "x"}`, "event: the name\nretry: 0\ndata: x\n"},
		{"base64", "/publish", `{"channel": "news", "base64": "` + base64.StdEncoding.EncodeToString([]byte("from base64")) + `"}`, "data: from base64\n"},
		{"both channels", "/publish", `{"channel": ["news", "other", "nobody's", "news"], "data": "once"}`, "data: once\n"},
		{"raw", "/publish/news", "as it\nis {", "data: as it\ndata: is {\n"},
		{"raw with a name", "/publish/news?event=the+name%21", "x", "event: the name!\ndata: x\n"},
		{"raw to an escaped channel", "/publish/a%2fb%20%c3%a9", "x", "data: x\n"},
		{"the largest", "/publish", `{"channel": "news", "data": "` + big + `"}`, "data: " + big + "\n"},
		{"the largest, raw", "/publish/news", big, "data: " + big + "\n"},
		{"the largest, escaped", "/publish", `{"channel": "news", "data": "` + strings.Repeat(`\u0078`, 1<<20) + `"}`, "data: " + big + "\n"},
	} {
		var taken struct{ ID, Reached int64 }
		wantJSON(t, call(t, s.publish, "POST", shape.path, "", []byte(shape.body)), &taken)
		reached := int64(1)
		if shape.name == "both channels" {
			reached = 2 // memberships, of one hold
		}
		if b := f.wantBlock(); b.raw != fmt.Sprintf("id: %d\n%s\n", taken.ID, shape.want) || taken.Reached != reached {
			t.Errorf("%s: %.300q reached %d, want %.300q and %d", shape.name, b.raw, taken.Reached, shape.want, reached)
		}
	}
	// A kind of body that is said or not makes no difference, and chunks neither.
	chunked := `{"channel": "news", "data": "in chunks"}`
	if a := askRaw(t, s.publish, fmt.Sprintf("POST /publish HTTP/1.1\r\nHost: localhost:1\r\nContent-Type: text/plain\r\nConnection: close\r\n"+
		"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(chunked), chunked)); a.code() != 200 {
		t.Errorf("%d %s", a.code(), a.body)
	}
	f.wantEvent("in chunks")
	// Nobody there is no error.
	var taken struct{ ID, Reached int64 }
	wantJSON(t, call(t, s.publish, "POST", "/publish", "", []byte(`{"channel": "empty", "data": "x"}`)), &taken)
	if taken.Reached != 0 || taken.ID == 0 {
		t.Errorf("%+v", taken)
	}
	// And its id is one that can be come back with.
	publishTo(t, s.publish, "empty", "journalled")
	followFrom(t, s.addr, "/events?channel=empty", fmt.Sprint(taken.ID)).wantEvent("journalled")
}

// tooLarge is one byte more than an event may have.
var tooLarge = strings.Repeat("x", 1<<20+1)

// wrongCalls are refused, each with what its answer names.
var wrongCalls = []struct {
	path, body string
	status     int
	names      string // what the answer's sentence names
}{
	{"/publish", ``, 400, "JSON"},
	{"/publish", `channel=news&data=x`, 400, "JSON"},
	{"/publish", `[]`, 400, "object"},
	{"/publish", `{"channel": "news", "data": "x"`, 400, "JSON"},
	{"/publish", `{"channel": "news", "data": "x"} {}`, 400, "one object"},
	{"/publish", "{\"channel\": \"news\", \"data\": \"\xff\"}", 400, "UTF-8"},
	{"/publish", `{"data": "x"}`, 400, "channel"},
	{"/publish", `{"channel": "news"}`, 400, "data"},
	{"/publish", `{"channel": "", "data": "x"}`, 400, "channel"},
	{"/publish", `{"channel": [], "data": "x"}`, 400, "channel"},
	{"/publish", `{"channel": 7, "data": "x"}`, 400, "channel"},
	{"/publish", `{"channel": ["news", null], "data": "x"}`, 400, "channel"},
	{"/publish", `{"channel": ["news", ""], "data": "x"}`, 400, "channel"},
	{"/publish", `{"channel": ["news", "a\u0000b"], "data": "x"}`, 400, "channel"},
	{"/publish", `{"channel": ["news", "a\nb"], "data": "x"}`, 400, "channel"},
	{"/publish", `{"channel": ["news", "a\u007fb"], "data": "x"}`, 400, "channel"},
	{"/publish", `{"channel": ["news", "` + strings.Repeat("c", 256) + `"], "data": "x"}`, 400, "channel"},
	{"/publish", `{"channel": ["news", "` + strings.ReplaceAll(numbered(64), ", ", `", "`) + `"], "data": "x"}`, 400, "channel"},
	{"/publish", `{"channel": "news", "data": "x", "event": "a\nb"}`, 400, "event"},
	{"/publish", `{"channel": "news", "data": "x", "event": "a\rb"}`, 400, "event"},
	{"/publish", `{"channel": "news", "data": "x", "event": "a\u0000b"}`, 400, "event"},
	{"/publish", `{"channel": "news", "data": "x", "event": 7}`, 400, "event"},
	{"/publish", `{"channel": "news", "data": "x", "retry": -1}`, 400, "retry"},
	{"/publish", `{"channel": "news", "data": "x", "retry": "1"}`, 400, "retry"},
	{"/publish", `{"channel": "news", "data": "x", "retry": 1.5}`, 400, "retry"},
	{"/publish", `{"channel": "news", "base64": "not base64!"}`, 400, "base64"},
	{"/publish", `{"channel": "news", "base64": "aGk=", "data": "x"}`, 400, "base64"},
	{"/publish", `{"channel": "news", "data": "x", "data": "y"}`, 400, "data"},
	{"/publish", `{"channel": "news", "data": "x", "evnt": "y"}`, 400, "evnt"},
	{"/publish", `{"items": [{"channel": "news", "formats": {}}]}`, 400, "items"},
	{"/publish/a%00b", `x`, 400, "channel"},
	{"/publish/" + strings.Repeat("c", 256), `x`, 400, "channel"},
	{"/publish/news?event=a%0Ab", `x`, 400, "event"},
	{"/publish", `{"channel": "news", "data": "` + tooLarge + `"}`, 413, "data"},
	{"/publish", `{"channel": "news", "data": ["` + tooLarge + `"]}`, 413, "data"},
	{"/publish", `{"channel": "news", "base64": "` + base64.StdEncoding.EncodeToString([]byte(tooLarge)) + `"}`, 413, "base64"},
	{"/publish/news", tooLarge, 413, "data"},
	{"/publish/news", strings.Repeat("x", 9<<20), 413, "8388608 bytes"},
}

func TestPublish_WhatIsWrongIsRefusedWithItsFieldAndNothingOfItIsPublished(t *testing.T) {
	t.Parallel()
	s := startHolds(t, flaskThreads, holdsLanes+"holds: {heartbeat: 0}\n")
	f := follow(t, s.addr, "/events?channel=news")
	for _, wrong := range wrongCalls {
		answer := call(t, s.publish, "POST", wrong.path, "", []byte(wrong.body))
		var problem struct {
			Status               int
			Type, Reason, Detail string
		}
		reason := map[int]string{400: "bad_request", 413: "body_too_large"}[wrong.status]
		if err := json.Unmarshal([]byte(answer.body), &problem); err != nil || answer.code() != wrong.status || problem.Status != wrong.status ||
			problem.Reason != reason || problem.Type != "docs/troubleshoot.md#"+reason || strings.Join(answer.get("Holdfast-Reason"), "") != reason || !strings.Contains(problem.Detail, wrong.names) {
			t.Errorf("%s %.100q: %d %.300s (%v), want %d %s that names %s", wrong.path, wrong.body, answer.code(), answer.body, err, wrong.status, reason, wrong.names)
		}
	}
	for path, status := range map[string]int{"GET /publish": 405, "POST /publishing": 404, "GET /": 200, "POST /channels": 405, "GET /end": 405} {
		method, path, _ := strings.Cut(path, " ")
		if got := call(t, s.publish, method, path, "", nil).code(); got != status {
			t.Errorf("%s %s: %d, want %d", method, path, got, status)
		}
	}
	if n := metric(t, s.admin(), "holdfast_events_published_total"); n != 0 {
		t.Errorf("%v published", n)
	}
	publishTo(t, s.publish, "news", "the first")
	if b := f.wantBlock(); b.data != "the first" {
		t.Errorf("%.200q, and nothing was published before it", b.raw)
	}
}

// keyedHolds has keys for publishing.
func keyedHolds(t *testing.T, listen string) *holdsSite {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	text := "listen: \"127.0.0.1:0\"\nadmin: {listen: \"127.0.0.1:0\"}\npublish: {listen: \"" + listen + "\", keys: [first-key, second-key]}\n" +
		fmt.Sprintf(holdsLanes, freeAddress(t))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return startHoldsFile(t, path)
}

// publishPaths are all that the publish address serves.
var publishPaths = []struct{ method, path, body string }{
	{"POST", "/publish", `{"channel": "news", "data": "x"}`}, {"POST", "/publish/news", `x`},
	{"POST", "/end", `{"channel": "news"}`}, {"GET", "/channels", ``}, {"GET", "/channels/news", ``},
}

func TestPublish_OnceThereAreKeysEveryCallNeedsOne(t *testing.T) {
	t.Parallel()
	s := keyedHolds(t, "127.0.0.1:0")
	for _, p := range publishPaths {
		for fields, status := range map[string]int{"": 401, noKey: 401, noKey2: 401, key1: 200, key2: 200, origin: 401, origin + key1: 200} {
			answer := call(t, s.publish, p.method, p.path, fields, []byte(p.body))
			if reason := strings.Join(answer.get("Holdfast-Reason"), ""); answer.code() != status || (status == 401) != (reason == "unauthorized") {
				t.Errorf("%s %s %q: %d %s, want %d", p.method, p.path, fields, answer.code(), reason, status)
			}
		}
	}
	if n := metric(t, s.admin(), "holdfast_events_published_total"); n != 6 {
		t.Errorf("%v published, want those six that had a key", n)
	}
}

func TestPublish_WithoutKeysAProgramOfThisMachineMayAndAWebPageMayNot(t *testing.T) {
	t.Parallel()
	s := startHoldsFile(t, writeConfig(t, holdsLanes, freeAddress(t)))
	_, port, _ := net.SplitHostPort(s.publish)
	for _, p := range publishPaths {
		for fields, status := range map[string]int{
			"Host: 127.0.0.1:" + port + "\r\n": 200, "Host: localhost\r\n": 200, "Host: [::1]:80\r\n": 200,
			"Host: evil.example\r\n": 401, "Host: evil.example:" + port + "\r\n": 401,
			"Host: localhost\r\n" + origin: 401, "Host: localhost\r\nOrigin: null\r\n": 401, "Host: localhost\r\nOrigin: http://localhost\r\n": 401,
			"Host: evil.example\r\n" + key1: 401, // there are no keys
		} {
			answer := askRaw(t, s.publish, fmt.Sprintf("%s %s HTTP/1.1\r\n%sConnection: close\r\nContent-Length: %d\r\n\r\n%s", p.method, p.path, fields, len(p.body), p.body))
			if answer.code() != status {
				t.Errorf("%s %s %q: %d %.200s, want %d", p.method, p.path, fields, answer.code(), answer.body, status)
			}
		}
	}
	if n := metric(t, s.admin(), "holdfast_events_published_total"); n != 6 {
		t.Errorf("%v published, want the six that were allowed", n)
	}
}

// channelShown is what GET /channels/NAME says.
type channelShown struct {
	Holds       int
	Connections []string
	Head        int64
}

func (s *holdsSite) channel(name string) (c channelShown) {
	s.t.Helper()
	wantJSON(s.t, call(s.t, s.publish, "GET", "/channels/"+name, "", nil), &c)
	return c
}

func TestEnd_EndsTheHoldsThatMatchAllThatIsGiven(t *testing.T) {
	t.Parallel()
	s := startHolds(t, djangoThreads, holdsLanes+"holds: {heartbeat: 0}\n")
	end := func(body string) int {
		t.Helper()
		var answer struct{ Ended *int }
		wantJSON(t, call(t, s.publish, "POST", "/end", "", []byte(body)), &answer)
		if answer.Ended == nil {
			t.Fatal("how many were ended is not said")
		}
		return *answer.Ended
	}
	one := follow(t, s.addr, "/events?channel=news&channel=user-1")
	connections := s.channel("user-1").Connections
	two := follow(t, s.addr, "/events?channel=news&channel=user-2")
	three := follow(t, s.addr, "/events?channel=news&channel=user-2")
	if len(connections) != 1 || len(s.channel("news").Connections) != 3 {
		t.Fatalf("%q", connections)
	}
	// Nothing matches: another channel, no connection, and one that is not in the channel.
	for _, body := range []string{`{"channel": "user-3"}`, `{"connection": "x"}`, `{"connection": "` + connections[0] + `0"}`,
		`{"channel": "user-2", "connection": "` + connections[0] + `"}`} {
		if n := end(body); n != 0 {
			t.Errorf("%s ended %d", body, n)
		}
	}
	// What was published before the end is delivered before it.
	publishTo(t, s.publish, "news", "first")
	if n := end(`{"channel": "news", "connection": "` + connections[0] + `", "code": 4001, "reason": "out"}`); n != 1 {
		t.Errorf("ended %d", n)
	}
	one.wantEvent("first")
	if err := one.end(); err != nil {
		t.Error(err)
	}
	if _, reached := publishTo(t, s.publish, "news", "second"); reached != 2 {
		t.Errorf("reached %d", reached)
	}
	if n := end(`{"channel": "user-2"}`); n != 2 {
		t.Errorf("ended %d", n)
	}
	for _, f := range []*follower{two, three} {
		f.wantEvent("first")
		f.wantEvent("second")
		if err := f.end(); err != nil {
			t.Error(err)
		}
	}
	eventuallySubscribers(t, s.addr, 0)
	if n := metric(t, s.admin(), `holdfast_holds_ended_total{kind="stream",reason="published"}`); n != 3 {
		t.Errorf("%v ended as published, want 3", n)
	}
	for body, names := range map[string]string{`{}`: "channel", `{"code": 1000}`: "channel", `{"channel": "a\nb"}`: "channel", `{"channel": "a", "code": 1005}`: "code",
		`{"channel": "a", "reason": "a\r\nb"}`: "reason", `{"connection": 1}`: "connection", `{"chanel": "a"}`: "chanel", ``: "JSON"} {
		answer := call(t, s.publish, "POST", "/end", "", []byte(body))
		if answer.code() != 400 || !strings.Contains(answer.body, names) {
			t.Errorf("%s: %d %s, want 400 that names %s", body, answer.code(), answer.body, names)
		}
	}
}

func TestChannels_AreThoseThatAreHeldWithTheirNumbersAndTheHead(t *testing.T) {
	t.Parallel()
	s := startHolds(t, flaskThreads, holdsLanes+"holds: {heartbeat: 0}\n")
	type shown struct {
		Head     int64
		Channels map[string]struct{ Holds int }
	}
	all := func() (c shown) {
		t.Helper()
		wantJSON(t, call(t, s.publish, "GET", "/channels", "", nil), &c)
		return c
	}
	start := all()
	if start.Head == 0 || start.Channels == nil || len(start.Channels) != 0 {
		t.Errorf("at first %+v, want a head and no channel", start)
	}
	f := follow(t, s.addr, "/events?channel=a&channel=b%2F%C3%A9")
	follow(t, s.addr, "/events?channel=a")
	head, _ := publishTo(t, s.publish, "nobody's", "x")
	got := all()
	if got.Head != head || len(got.Channels) != 2 || got.Channels["a"].Holds != 2 || got.Channels["b/é"].Holds != 1 {
		t.Errorf("%+v, want the head %d, a with 2 and b/é with 1", got, head)
	}
	a, b, none := s.channel("a"), s.channel("b%2F%C3%A9"), s.channel("none")
	if a.Holds != 2 || len(a.Connections) != 2 || a.Connections[0] == a.Connections[1] || a.Head != head {
		t.Errorf("%+v", a)
	}
	if b.Holds != 1 || !slices.Contains(a.Connections, b.Connections[0]) {
		t.Errorf("%+v, want one of %q", b, a.Connections)
	}
	if none.Holds != 0 || none.Connections == nil {
		t.Errorf("%+v", none)
	}
	f.Close()
	eventually(t, "the channel forgotten", func() bool { return len(all().Channels) == 1 })
}

// firstSeries are the series of holds and events as a process begins with them.
func firstSeries() map[string]string {
	series := make(map[string]string)
	for _, kind := range []string{"stream", "websocket", "response"} {
		series[fmt.Sprintf(`holdfast_holds_open{kind="%s"}`, kind)] = "0"
		for _, reason := range []string{"client", "slow", "stalled", "protocol", "too_big", "published", "expired", "draining", "overload", "bus_lost", "error"} {
			series[fmt.Sprintf(`holdfast_holds_ended_total{kind="%s",reason="%s"}`, kind, reason)] = "0"
		}
	}
	for _, name := range []string{"gaps_told_total", "events_published_total", "events_offered_total", "outbox_bytes", "journal_bytes"} {
		series["holdfast_"+name] = "0"
	}
	series["holdfast_bus_connected"] = "1"
	return series
}

// wantSeries holds /metrics to these series of holds and events, and no others.
func (s *holdsSite) wantSeries(want map[string]string) {
	s.t.Helper()
	got := make(map[string]string)
	for line := range strings.Lines(string(wantGet(s.t, onceClient(), "http://"+s.admin()+"/metrics"))) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if want[name] != "" || strings.HasPrefix(name, "holdfast_holds_") {
			got[name] = value
		}
	}
	for name, value := range want {
		if got[name] != value {
			s.t.Errorf("%s is %q, want %s", name, got[name], value)
		}
		delete(got, name)
	}
	if len(got) > 0 {
		s.t.Errorf("beyond the closed list: %v", got)
	}
}

// holdsStatus is the part of /status that is of holds and events.
type holdsStatus struct {
	Holds struct {
		Stream, WebSocket, Response int
		Ended                       map[string]int
		GapsTold                    int `json:"gaps_told"`
	}
	Events struct{ Published, Offered, Head int64 }
	Bytes  struct{ Outbox, Journal int64 }
	Bus    struct {
		Kind      string
		Connected bool
	}
}

func (s *holdsSite) holdsStatus() (shown holdsStatus) {
	s.t.Helper()
	if err := json.Unmarshal(wantGet(s.t, onceClient(), "http://"+s.admin()+"/status"), &shown); err != nil {
		s.t.Fatal(err)
	}
	return shown
}

func TestCounts_OfHoldsAndEventsAreThereFromTheStartAndTrue(t *testing.T) {
	t.Parallel()
	s := startHolds(t, djangoThreads, holdsLanes+"holds: {heartbeat: 0, journal: {events: 2}}\n")
	want := firstSeries()
	s.wantSeries(want)
	first := follow(t, s.addr, "/events?channel=a")
	second := follow(t, s.addr, "/events?channel=a&channel=b")
	for i := range 3 {
		publishTo(t, s.publish, "a", fmt.Sprint(i))
		first.wantEvent(fmt.Sprint(i))
		second.wantEvent(fmt.Sprint(i))
	}
	head, _ := publishTo(t, s.publish, "b", "to the second")
	second.wantEvent("to the second")
	first.Close()
	eventuallySubscribers(t, s.addr, 1)
	askEvents(t, s.addr, "/events?channel=a", eventSource+"Last-Event-ID: 1\r\n").wantGap()
	eventuallySubscribers(t, s.addr, 2)
	// A loop counts what it has offered when its turn is over.
	eventually(t, "seven offered", func() bool { return s.holdsStatus().Events.Offered == 7 })

	shown := s.holdsStatus()
	if h := shown.Holds; h.Stream != 2 || h.WebSocket != 0 || h.Response != 0 || h.GapsTold != 1 || h.Ended["client"] != 1 || len(h.Ended) != 11 {
		t.Errorf("holds in /status: %+v", h)
	}
	if e := shown.Events; e.Published != 4 || e.Head != head {
		t.Errorf("events in /status: %+v, want 4 published and the head %d", e, head)
	}
	if shown.Bytes.Journal <= 0 || shown.Bytes.Outbox != 0 || shown.Bus.Kind != "memory" || !shown.Bus.Connected {
		t.Errorf("%+v", shown)
	}
	want[`holdfast_holds_open{kind="stream"}`] = "2"
	want[`holdfast_holds_ended_total{kind="stream",reason="client"}`] = "1"
	want["holdfast_gaps_told_total"] = "1"
	want["holdfast_events_published_total"] = "4"
	want["holdfast_events_offered_total"] = "7"
	want["holdfast_journal_bytes"] = fmt.Sprint(shown.Bytes.Journal)
	s.wantSeries(want)
}

// publishAs runs the command in this process.
func publishAs(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = publishCommand(args, strings.NewReader(stdin), &out, &errs)
	return code, out.String(), errs.String()
}

func TestPublishCommand_PublishesWhatItIsGivenAndPrintsWhatCameOfIt(t *testing.T) {
	t.Parallel()
	s := startHolds(t, flaskThreads, holdsLanes+"holds: {heartbeat: 0}\n")
	f := follow(t, s.addr, "/events")
	for _, ask := range []struct {
		stdin string
		args  []string
		want  string
	}{
		{"not read", []string{"news", "an argument", "--url", s.publish}, "data: an argument\n"},
		{"not read", []string{"--url", "http://" + s.publish + "/", "--event", "the name", "news", "named"}, "event: the name\ndata: named\n"},
		{"from\nstandard input", []string{"news", "--url", s.publish}, "data: from\ndata: standard input\n"},
		{"", []string{"news", "--url", s.publish}, "data: \n"},
		{"not read", []string{"news", "", "--url", s.publish}, "data: \n"},
		{"{\"n\": 1}", []string{"news", "--url", s.publish}, "data: {\"n\": 1}\n"}, // a text as it is
		{"\xff\xfe", []string{"news", "--url", s.publish}, "data: \xff\xfe\n"},
	} {
		code, stdout, stderr := publishAs(t, ask.stdin, ask.args...)
		b := f.wantBlock()
		if code != exitOK || stdout != fmt.Sprintf("id %s reached 1\n", b.id) || stderr != "" {
			t.Errorf("%q: exit %d, %q, %q, want the id %s", ask.args, code, stdout, stderr, b.id)
		}
		if b.raw != "id: "+b.id+"\n"+ask.want+"\n" {
			t.Errorf("%q: %q, want %q", ask.args, b.raw, ask.want)
		}
	}
	if code, stdout, _ := publishAs(t, "", "nobody's", "x", "--url", s.publish); code != exitOK || !strings.HasSuffix(stdout, " reached 0\n") {
		t.Errorf("exit %d, %q", code, stdout)
	}
	// As a process, with the file named by the environment.
	config := filepath.Join(t.TempDir(), "config.yaml")
	text := strings.Replace(holdsBase, "publish: {listen: \"127.0.0.1:0\"}", "publish: {listen: \""+s.publish+"\"}", 1) + fmt.Sprintf(holdsLanes, s.app.addr)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.Command(os.Args[0], "publish", "news")
	command.Env = append(os.Environ(), asCommand+"=1", "HOLDFAST_CONFIG="+config)
	command.Stdin = strings.NewReader("by a process")
	if out, err := command.CombinedOutput(); err != nil || !strings.Contains(string(out), "reached 1") {
		t.Errorf("%v %s", err, out)
	}
	f.wantEvent("by a process")
	if code, _, stderr := publishAs(t, "", "news", "by a file", "-c", config); code != exitOK {
		t.Errorf("exit %d, %s", code, stderr)
	}
	f.wantEvent("by a file")
}

func TestPublishCommand_OverAUnixSocketAndWithAKey(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "holdfast-publish-*") // a socket's path has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := keyedHolds(t, "unix:"+dir+"/publish.sock?mode=0600")
	for _, ask := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--url", "unix:" + dir + "/publish.sock", "--key", "second-key"}, exitOK, "reached 0"},
		{[]string{"-c", s.path}, exitOK, "reached 0"}, // with the file's first key
		{[]string{"-c", s.path, "--key", "wrong"}, exitFailed, "unauthorized"},
		{[]string{"--url", "unix:" + dir + "/publish.sock"}, exitFailed, "unauthorized"},
	} {
		code, stdout, stderr := publishAs(t, "", append([]string{"news", "x"}, ask.args...)...)
		if code != ask.code || !strings.Contains(stdout+stderr, ask.says) {
			t.Errorf("%q: exit %d, %q, %q, want %d and %s", ask.args, code, stdout, stderr, ask.code, ask.says)
		}
	}
}

func TestPublishCommand_SaysInOneSentenceWhyItDidNot(t *testing.T) {
	t.Parallel()
	s := startHoldsFile(t, writeConfig(t, holdsLanes, freeAddress(t)))
	missing := freeAddress(t)
	broken := filepath.Join(t.TempDir(), "broken.yaml")
	off := filepath.Join(t.TempDir(), "off.yaml")
	for path, text := range map[string]string{broken: "lanse: {}\n" + fmt.Sprintf(holdsLanes, missing), off: "publish: {listen: \"\"}\n" + fmt.Sprintf(holdsLanes, missing)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, ask := range []struct {
		stdin string
		args  []string
		code  int
		says  string
	}{
		{"", nil, exitUsage, "channel"},
		{"", []string{"news", "one", "two"}, exitUsage, `"two"`},
		{"", []string{"news", "x", "--topic", "y"}, exitUsage, "topic"},
		{"", []string{"", "x", "--url", s.publish}, exitUsage, "channel"},
		{"", []string{"a\nb", "x", "--url", s.publish}, exitUsage, "channel"},
		{"", []string{"news", "x", "--event", "a\nb", "--url", s.publish}, exitFailed, "event"},
		{tooLarge, []string{"news", "--url", s.publish}, exitFailed, "body_too_large"},
		{"", []string{"news", "x", "--url", missing}, exitFailed, missing},
		{"", []string{"news", "x", "--url", s.admin()}, exitFailed, ""},
		{"", []string{"news", "x", "-c", broken}, exitConfig, "lanse"},
		{"", []string{"news", "x", "-c", off}, exitConfig, "publish.listen"},
		{"", []string{"news", "x", "-c", broken + ".not"}, exitConfig, broken + ".not"},
	} {
		code, stdout, stderr := publishAs(t, ask.stdin, ask.args...)
		if code != ask.code || stdout != "" || !strings.Contains(stderr, ask.says) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%.100q: exit %d, %q, %q, want %d and one sentence that names %q", ask.args, code, stdout, stderr, ask.code, ask.says)
		}
	}
	if n := metric(t, s.admin(), "holdfast_events_published_total"); n != 0 {
		t.Errorf("%v published", n)
	}
	if code, stdout, _ := publishAs(t, "", "--help"); code != exitOK || !strings.Contains(stdout, "holdfast publish CHANNEL") {
		t.Errorf("--help: exit %d, %q", code, stdout)
	}
	// Another server on that port, which answers 200 to anything.
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	other := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "welcome\n") })}
	go other.Serve(ln)
	t.Cleanup(func() { other.Close() })
	if code, stdout, stderr := publishAs(t, "", "news", "x", "--url", ln.Addr().String()); code != exitFailed || stdout != "" || strings.Count(stderr, "\n") != 1 {
		t.Errorf("a server that is no Holdfast: exit %d, %q, %q", code, stdout, stderr)
	}
}
