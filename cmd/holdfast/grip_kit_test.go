package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fasthttp/websocket"
)

// The kit of the tests of GRIP: an Express app with the libraries of GRIP's
// makers, and a Django app that answers as django-eventstream does.

// The key, as an app's GRIP_URL has it: a text, and bytes in base64.
const (
	gripText  = "the key of the tests"
	gripBytes = "base64:AAH/8PLq+kR0aGUgYnl0ZXM/"
)

// expressLanes says of each path of a socket how its app is spoken to.
const expressLanes = `
grip: {iss: holdfast, key: "` + gripText + `"}
upstreams: {app: {targets: ["http://%s"], park: 60s}}
lanes: {web: {upstream: app, slots: 4, queue_timeout: 60s}}
routes:
  - {match: "/", lane: web}
  - {match: "/ws-echo", lane: web, over_http: true}
  - {match: "/ws-room", lane: web, over_http: true}
  - {match: "/ws-ask", lane: web, over_http: true}
  - {match: "/ws-reject", lane: web, over_http: true}
`

// eventstreamLanes believes what its clients say of where they come from, as
// behind a proxy.
const eventstreamLanes = `
trusted_proxies: ["127.0.0.1/32"]
grip: {iss: holdfast, key: "` + gripBytes + `"}
upstreams: {app: {targets: ["http://%s"], park: 60s}}
lanes: {web: {upstream: app, slots: 4, queue_timeout: 60s}}
routes: [{match: "/", lane: web}]
`

// gripSite is Holdfast in this process, before an app that speaks GRIP.
type gripSite struct{ *holdsSite }

// startGrip serves the app until the test ends, which is told its GRIP_URL.
func startGrip(t *testing.T, a *holdsApp, yaml, key string) *gripSite {
	t.Helper()
	s := startHoldsAlone(t, yaml, []*app{a.app})
	s.app = a
	a.env = append(a.env, "GRIP_URL=http://"+s.publish+"?"+url.Values{"iss": {"holdfast"}, "key": {key}}.Encode())
	a.start()
	s.wantReady()
	return &gripSite{s}
}

// becomesNode has Python, with which apps are started, become the program that
// runs this app: its process is the app's then, and a kill meets it.
const becomesNode = "import os, sys; os.execvp('node', ['node'] + sys.argv[1:])"

// startExpress serves testdata/apps/grip_express, or skips.
func startExpress(t *testing.T) *gripSite {
	t.Helper()
	if path, err := exec.LookPath("node"); err != nil {
		t.Skip("node is not installed: ", path, err)
	}
	if _, err := os.Stat(filepath.Join(appsDir, "grip_express/node_modules")); err != nil {
		t.Skip("the app's libraries are not installed (make setup does it): ", err)
	}
	a := &holdsApp{app: newApp(t, "grip_express", nil)}
	_, port, err := net.SplitHostPort(a.addr)
	if err != nil {
		t.Fatal(err)
	}
	a.args = []string{"-c", becomesNode, "app.js", port}
	return startGrip(t, a, expressLanes, gripText)
}

// eventstreamServers are the ways to serve the Django app.
var eventstreamServers = []holdsServer{
	{"Sync", []string{"django_app:app", "-w", "4", "--preload"}},
	{"Threads", []string{"django_app:app", "-w", "1", "--threads", "8"}},
}

// startEventstream serves testdata/apps/grip_django; env is NAME=VALUE.
func startEventstream(t *testing.T, server holdsServer, env ...string) *gripSite {
	t.Helper()
	gates := t.TempDir()
	env = append(env, "GATES="+gates, "HISTORY="+filepath.Join(gates, "history"))
	a := &holdsApp{newApp(t, "grip_django", env, server.args...), gates}
	return startGrip(t, a, eventstreamLanes, gripBytes)
}

// withEventstream runs a test once with each of the ways.
func withEventstream(t *testing.T, test func(t *testing.T, server holdsServer)) {
	t.Parallel()
	for _, server := range eventstreamServers {
		t.Run(server.name, func(t *testing.T) {
			t.Parallel()
			test(t, server)
		})
	}
}

// post makes a request that must be answered with 200 and JSON.
func (s *gripSite) post(path, body string, into any) {
	s.t.Helper()
	if err := s.tryPost(path, body, into); err != nil {
		s.t.Fatal(err)
	}
}

// tryPost is post for any goroutine.
func (s *gripSite) tryPost(path, body string, into any) error {
	response, err := onceClient().Post("http://"+s.addr+path, "text/plain", strings.NewReader(body))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != 200 || json.Unmarshal(text, into) != nil {
		return fmt.Errorf("POST %s: %s %.300s %w", path, response.Status, text, cmpErr(err))
	}
	return nil
}

// wantRaw reads so many bytes of a stream as the text has, which they are.
func (f *follower) wantRaw(text string) {
	f.t.Helper()
	got := make([]byte, len(text))
	if n, err := io.ReadFull(f.body, got); err != nil || string(got) != text {
		f.t.Fatalf("%.300q %v, want %.300q", got[:n], err, text)
	}
}

// ---- The Express app.

// published has the app publish, and gives what the publish address answered.
func (s *gripSite) published(channel, body, query string) (status int) {
	s.t.Helper()
	var answer struct{ Published int }
	s.post("/publish/"+url.PathEscape(channel)+"?"+query, body, &answer)
	return answer.Published
}

func (s *gripSite) mustPublish(channel, body, query string) {
	s.t.Helper()
	if status := s.published(channel, body, query); status != 200 {
		s.t.Fatalf("publishing %q was answered with %d", body, status)
	}
}

// followExpress opens a stream and reads its first bytes.
func (s *gripSite) followExpress(channel string) *follower {
	s.t.Helper()
	f := askEvents(s.t, s.addr, "/stream?channel="+url.QueryEscape(channel), eventSource)
	if kind := f.response.Header.Get("Content-Type"); f.response.StatusCode != 200 || kind != "text/event-stream; charset=utf-8" {
		s.t.Fatal(f.response.Status, kind)
	}
	f.wantRaw("event: open\ndata:\n\n")
	return f
}

// seenRequest is what the app tells of a request.
type seenRequest struct {
	IsProxied, IsSigned, Verified bool
	Headers                       []string // names and values by turns
}

// get gives the values of a field.
func (r seenRequest) get(name string) (values []string) {
	for pair := range slices.Chunk(r.Headers, 2) {
		if strings.EqualFold(pair[0], name) {
			values = append(values, pair[1])
		}
	}
	return values
}

// wantNone: no field's name begins with the prefix, but for those named.
func (r seenRequest) wantNone(t *testing.T, prefix string, but ...string) {
	t.Helper()
	for pair := range slices.Chunk(r.Headers, 2) {
		name := strings.ToLower(pair[0])
		if strings.HasPrefix(name, prefix) && !slices.Contains(but, name) {
			t.Errorf("%s: %s reached the app", pair[0], pair[1])
		}
	}
}

// forgedFields are those that only a proxy may send.
const forgedFields = "Grip-Sig: eyJ0eXAiOiJKV1QiLCJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJob2xkZmFzdCIsImV4cCI6MzAwMDAwMDAwMH0.eA\r\n" +
	"grip-sig: x\r\nGRIP-LAST: news; last-id=1\r\nGrip-Feature: evil\r\nGrip-Else: evil\r\nMeta-User: evil\r\nmeta-role: evil\r\nM0-Channel: evil\r\n"

// ends are how the app saw the sockets of a path end.
func (s *gripSite) ends(path string) []any {
	s.t.Helper()
	var all map[string][]any
	if err := json.Unmarshal(wantGet(s.t, onceClient(), "http://"+s.addr+"/ends"), &all); err != nil {
		s.t.Fatal(err)
	}
	return all[path]
}

func (s *gripSite) eventuallyEnded(path string, how any) {
	s.t.Helper()
	eventually(s.t, fmt.Sprint("the app to see the end of ", path), func() bool { return len(s.ends(path)) > 0 })
	if got := s.ends(path); !slices.Equal(got, []any{how}) {
		s.t.Errorf("%s: the app saw the ends %v, want %v", path, got, how)
	}
}

// closeCode reads on to the end, and gives the close frame's code: 1005 where it
// has none, 1006 where there is no frame.
func (c *socketClient) closeCode() int {
	c.t.Helper()
	for {
		_, _, err := c.ReadMessage()
		var end *websocket.CloseError
		switch {
		case errors.As(err, &end):
			return end.Code
		case err != nil && !isTimeout(err):
			return websocket.CloseAbnormalClosure
		case err != nil:
			c.t.Fatal(err)
		}
	}
}

// sayClose sends a close frame with that payload.
func (c *socketClient) sayClose(payload []byte) {
	c.t.Helper()
	if err := c.WriteControl(websocket.CloseMessage, payload, time.Now().Add(time.Minute)); err != nil {
		c.t.Fatal(err)
	}
}

// sayNumbers sends numbers from 0 on. What is lost is missed by who reads.
func (c *socketClient) sayNumbers(n int) {
	for i := range n {
		c.WriteMessage(websocket.TextMessage, fmt.Append(nil, i))
	}
}

// ---- The Django app.

// eventsPath is where the stream of the channels is.
func eventsPath(channels ...string) string {
	return "/events/?" + url.Values{"channel": channels}.Encode()
}

// keep has the app keep an event and publish it, and gives its number.
func (s *gripSite) keep(channel, data, query string) (number int) {
	s.t.Helper()
	var answer struct{ ID int }
	s.post("/publish?channel="+url.QueryEscape(channel)+"&"+query, data, &answer)
	return answer.ID
}

// keepMany has events kept that nobody follows yet.
func (s *gripSite) keepMany(channel string, from, to int) {
	s.t.Helper()
	for i := from; i <= to; i++ {
		if number := s.keep(channel, fmt.Sprint(i), "lose=1"); number != i {
			s.t.Fatalf("the event %d is number %d", i, number)
		}
	}
}

// again has the app publish an event that it has kept.
func (s *gripSite) again(channel string, number int) {
	s.t.Helper()
	s.post(fmt.Sprintf("/republish?channel=%s&id=%d", url.QueryEscape(channel), number), "", &struct{}{})
}

// eventstreamHead is what each new stream begins with.
var eventstreamHead = ":" + strings.Repeat(" ", 2048) + "\n\nevent: stream-open\ndata:\n\n"

// openEvents opens a stream, from an id where one is given, and reads its first
// bytes. It gives no failure to a test, for clients in goroutines.
func openEvents(addr, path, id, fields string) (*follower, error) {
	if id != "" {
		fields += "Last-Event-ID: " + id + "\r\n"
	}
	f, err := dialEvents(addr, path, eventSource+fields)
	if err != nil {
		return nil, err
	}
	f.id = id
	head := make([]byte, len(eventstreamHead))
	if n, err := io.ReadFull(f.body, head); err != nil || string(head) != eventstreamHead || f.response.StatusCode != 200 {
		f.Close()
		return nil, fmt.Errorf("%s, %.100q %w, want the head of a stream", f.response.Status, head[:n], cmpErr(err))
	}
	return f, nil
}

// openEvents is the same for a test.
func (s *gripSite) openEvents(path, id, fields string) *follower {
	s.t.Helper()
	f, err := openEvents(s.addr, path, id, fields)
	if err != nil {
		s.t.Fatal(path, err)
	}
	s.t.Cleanup(func() { f.Close() })
	f.t = s.t
	return f
}

// kept reads on to the next event that the app has made.
func (f *follower) kept() (block, error) {
	for {
		if b, err := f.event(); err != nil || b.event != "keep-alive" {
			return b, err
		}
	}
}

// wantKept reads on to the next event, which has this id and, as JSON, this data.
func (f *follower) wantKept(id, data string) {
	f.t.Helper()
	b, err := f.kept()
	want := fmt.Sprintf("event: message\nid: %s\ndata: \"%s\"\n\n", id, data)
	if err != nil || b.raw != want {
		f.t.Fatalf("%q %v, want %q", b.raw, err, want)
	}
}

// wantNumbers reads the events of news, whose data are their numbers.
func (f *follower) wantNumbers(from, to int) {
	f.t.Helper()
	for i := from; i <= to; i++ {
		f.wantKept(fmt.Sprint("news:", i), fmt.Sprint(i))
	}
}

// requests counts what the app has begun, by kind. Those of Holdfast's own,
// which ask whether it is there, are not among them.
func (s *gripSite) requests() (counts map[string]int) {
	s.t.Helper()
	status, body, err := get(context.Background(), onceClient(), "http://"+s.app.addr+"/requests")
	if err != nil || status != http.StatusOK || json.Unmarshal(body, &counts) != nil {
		s.t.Fatalf("/requests: %d %s %v", status, body, err)
	}
	return counts
}

// wantRequests is how often the app was asked for new streams, further pages,
// and for what a stream missed.
func (s *gripSite) wantRequests(events, page, missed int) {
	s.t.Helper()
	if n := s.requests(); n["events"] != events || n["page"] != page || n["recover"] != missed {
		s.t.Errorf("the app was asked for %d streams, %d pages, %d times for what was missed; want %d, %d and %d",
			n["events"], n["page"], n["recover"], events, page, missed)
	}
}
