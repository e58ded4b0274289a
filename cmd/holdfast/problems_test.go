package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/docs"
)

// Every answer that Holdfast makes itself says where it is explained: walked
// through all reasons at the binary, built as the Makefile builds it, with an
// address of the documentation that has what cannot stand in one.

const (
	walkDocs = `https://docs.example.com/hold fast"<#1`
	walkPage = "https://docs.example.com/hold%20fast%22%3C%231/troubleshoot.md"
	walkKey  = "0123456789abcdef0123456789abcdef"
)

var ldflags = regexp.MustCompile(`(?m)^\tCGO_ENABLED=0 go build -trimpath -ldflags "(.*)" -o bin/holdfast`)

// buildWithDocs builds the binary with the Makefile's flags.
func buildWithDocs(t *testing.T, address string) (path string) {
	t.Helper()
	match := ldflags.FindStringSubmatch(readFile(t, "../../Makefile"))
	if match == nil {
		t.Fatal("the Makefile builds no bin/holdfast")
	}
	path = filepath.Join(t.TempDir(), "holdfast")
	build := exec.Command("go", "build", "-ldflags", strings.NewReplacer("$(VERSION)", "test", "$$DOCS", address).Replace(match[1]), "-o", path, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

// walkApp is an app whose views fail in every way. What asks it for /…/hang is
// told by started and runs until the test ends.
func walkApp(t *testing.T) (addr string, started <-chan string) {
	t.Helper()
	hanging := make(chan string, 8)
	ctx, release := context.WithCancel(context.Background())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch head := w.Header(); filepath.Base(r.URL.Path) {
		case "hang":
			hanging <- r.URL.Path
			<-ctx.Done()
		case "endless":
			head.Set("Content-Type", "text/event-stream")
			w.(http.Flusher).Flush()
		case "vanish":
			panic(http.ErrAbortHandler)
		case "mixed":
			head.Set("M0-Hold", "stream")
			head.Set("Grip-Hold", "stream")
		case "held":
			head.Set("M0-Hold", "stream")
			head.Set("M0-Channel", "news")
		case "socket":
			head.Set("M0-Hold", "websocket")
			head.Set("M0-Channel", "news")
		}
	}))
	t.Cleanup(func() { release(); server.Close() })
	return strings.TrimPrefix(server.URL, "http://"), hanging
}

const walkConfig = `
upstreams:
  app:  {targets: ["http://%s"], start_timeout: 0}
  gone: {targets: ["http://%s"], start_timeout: 0, park: 0s}
lanes:
  web:   {upstream: app, slots: 4}
  full:  {upstream: app, slots: 1, queue: 0}
  late:  {upstream: app, slots: 1, queue_timeout: 10ms}
  brief: {upstream: app, slots: 1, response_timeout: 50ms}
  gone:  {upstream: gone, slots: 1}
routes:
  - {match: /, lane: web, body_bytes: 64}
  - {match: /full/, lane: full}
  - {match: /late/, lane: late}
  - {match: /brief/, lane: brief}
  - {match: /gone/, lane: gone}
  - {match: /live/, grant: {key_env: WALK_KEY}}
  - {match: /files/, files: {dir: "%s"}}
limits: {body_timeout: 100ms}
holds: {limit: 1}
`

// walked is a request that is refused, sent byte for byte.
type walked struct{ reason, request string }

func plainGet(target string, fields ...string) string {
	return "GET " + target + " HTTP/1.1\r\nHost: 127.0.0.1\r\n" + strings.Join(append(fields, ""), "\r\n") + "\r\n"
}

// refusedByAll are requests that every listener refuses at its wire check.
var refusedByAll = []walked{
	{"bad_request", "GET / HTTP/1.1\r\n\r\n"},
	{"headers_too_large", plainGet("/", "X: "+strings.Repeat("x", 17<<10))},
	{"uri_too_long", plainGet("/" + strings.Repeat("x", 17<<10))},
	{"expectation_failed", plainGet("/", "Expect: more")},
	{"misdirected", plainGet("https://a.test/")},
	{"not_implemented", "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n"},
	{"version_not_supported", "PRI * HTTP/2.0\r\n\r\n"},
	{"method_not_allowed", "TRACE / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"},
}

// wantProblem asks, and requires a problem whose type is the section of its
// reason, and whose status is the section's.
func (w *walk) wantProblem(t *testing.T, addr, reason, request string) {
	t.Helper()
	answer := askRaw(t, addr, request)
	var problem struct {
		Type, Reason string
		Status       int
	}
	line, _, _ := strings.Cut(request, "\r\n")
	if err := json.Unmarshal([]byte(answer.body), &problem); err != nil || problem.Type != walkPage+"#"+reason || problem.Status != answer.code() ||
		!slices.Equal(answer.get("Holdfast-Reason"), []string{reason}) || w.statuses[reason] != fmt.Sprint(answer.code()) {
		t.Errorf("%.60s: %s %q %.300s (%v), want %s %s of a type that explains it", line, answer.status, answer.get("Holdfast-Reason"), answer.body, err, w.statuses[reason], reason)
	}
	w.seen[reason] = true
}

// walk is what has been asked.
type walk struct {
	statuses map[string]string // of each reason, as its section has it
	seen     map[string]bool
}

var sectionStatus = regexp.MustCompile(`\A([a-z_]+)\n\n(?:As an answer, )?([45]\d\d)\b`)

func newWalk() *walk {
	w := &walk{statuses: map[string]string{}, seen: map[string]bool{}}
	for _, s := range explanations(docs.Troubleshoot) {
		if match := sectionStatus.FindStringSubmatch(s.text); match != nil {
			w.statuses[match[1]] = match[2]
		}
	}
	return w
}

func TestProblems_EveryAnswerOfEveryListenerNamesItsSection(t *testing.T) {
	t.Parallel()
	app, started := walkApp(t)
	files := t.TempDir()
	if err := os.WriteFile(filepath.Join(files, "a.txt"), []byte("four"), 0o600); err != nil {
		t.Fatal(err)
	}
	path := buildWithDocs(t, walkDocs)
	c := &command{Cmd: exec.Command(path, "serve", "-c", writeConfig(t, walkConfig, app, freeAddress(t), files)), log: new(syncBuffer), ended: make(chan error, 1)}
	c.Env = append(os.Environ(), "WALK_KEY="+walkKey)
	c.startLogged(t)
	w, addr := newWalk(), c.addr
	for _, own := range []string{addr, c.admin(t), c.publishAddr(t)} {
		for _, r := range refusedByAll {
			w.wantProblem(t, own, r.reason, r.request)
		}
	}
	for _, lane := range []string{"/full/hang", "/late/hang"} {
		client := dialRaw(t, addr)
		client.get(lane, "")
		if got := <-started; got != lane {
			t.Fatalf("the app was asked for %s, want %s", got, lane)
		}
	}
	held := dialRaw(t, addr)
	held.send("%s", plainGet("/live/stream?g="+newGrant(walkKey, "news", time.Now().Add(time.Hour))))
	if _, err := http.ReadResponse(held.r, nil); err != nil {
		t.Fatal(err)
	}
	post := "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n"
	for _, r := range []walked{
		{"no_route", plainGet("/ws/message")}, {"no_route", plainGet("/live/nothing")},
		{"body_too_large", post + "Content-Length: 65\r\n\r\n"},
		{"body_timeout", post + "Content-Length: 2\r\n\r\nx"},
		{"bad_request", post + "Transfer-Encoding: chunked\r\n\r\nx\r\n"},
		{"forbidden", plainGet("/", "Content-Type: application/websocket-events")},
		{"grant_invalid", plainGet("/live/stream")},
		{"grant_expired", plainGet("/live/stream?g=" + newGrant(walkKey, "news", time.Now().Add(-time.Hour)))},
		{"origin_denied", plainGet("/live/stream", "Origin: http://evil.example")},
		{"range_not_satisfiable", plainGet("/files/a.txt", "Range: bytes=9-")},
		{"lane_full", plainGet("/full/x")},
		{"lane_timeout", plainGet("/late/x")},
		{"upstream_down", plainGet("/gone/x")},
		{"upstream_timeout", plainGet("/brief/hang")},
		{"upstream_error", post[:len("POST /")] + "vanish" + post[len("POST /"):] + "Content-Length: 0\r\n\r\n"},
		{"stream_refused", plainGet("/endless")},
		{"bad_hold", plainGet("/mixed")},
		{"upgrade_required", plainGet("/socket")},
		{"too_many_holds", plainGet("/held")},
	} {
		w.wantProblem(t, addr, r.reason, r.request)
	}
	// An EventSource gets no problem, but the same word.
	source := askRaw(t, addr, plainGet("/gone/x", "Accept: text/event-stream"))
	if source.code() != 200 || !slices.Equal(source.get("Holdfast-Reason"), []string{"upstream_down"}) || !strings.HasPrefix(source.body, "retry: ") {
		t.Errorf("an EventSource gets %s %q %q", source.status, source.fields, source.body)
	}
	publish := "POST /publish HTTP/1.1\r\nHost: 127.0.0.1\r\n"
	for _, r := range []walked{
		{"bad_request", publish + "Content-Length: 1\r\n\r\n{"},
		{"body_too_large", publish + fmt.Sprintf("Content-Length: %d\r\n\r\n", 9<<20)},
		{"unauthorized", publish + "Origin: http://evil.example\r\nContent-Length: 2\r\n\r\n{}"},
		{"no_route", plainGet("/nowhere")}, {"method_not_allowed", plainGet("/end")},
	} {
		w.wantProblem(t, c.publishAddr(t), r.reason, r.request)
	}
	for _, r := range []walked{
		{"unauthorized", plainGet("/status", "Origin: http://evil.example")},
		{"no_route", plainGet("/nowhere")}, {"method_not_allowed", plainGet("/drain")},
	} {
		w.wantProblem(t, c.admin(t), r.reason, r.request)
	}
	// A failure of the machine, the drain's end, and a bus, which the tests of
	// proxy provoke.
	unprovoked := []string{"bus_down", "draining", "internal"}
	for _, reason := range slices.Sorted(maps.Keys(w.statuses)) {
		if !w.seen[reason] && !slices.Contains(unprovoked, reason) {
			t.Errorf("nothing was answered with %s", reason)
		}
	}
	help, err := exec.Command(path, "help", "lane_full").Output()
	if err != nil || !strings.HasSuffix(string(help), "\n"+walkPage+"#lane_full\n") {
		t.Errorf("help of this binary: %v %s", err, help)
	}
}
