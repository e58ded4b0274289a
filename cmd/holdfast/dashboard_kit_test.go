package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdfast/holds"
)

// The kit of the tests of the dashboard.

// screenshots names a folder that pictures of the page are written to; docs/dashboard.png is one of them. Unset: none are.
const screenshots = "HOLDFAST_SCREENSHOTS"

const dashboardLanes = `
instance: web-1
drain: {bound: 6s}
upstreams:
  app:  {targets: ["http://%s"], park: 60s}
  live: {targets: ["http://%s"]}
lanes:
  web:  {upstream: app, slots: 6, queue_timeout: 60s}
  slow: {upstream: app, slots: 2, queue: 4, queue_timeout: 60s}
  live: {upstream: live, slots: 4}
routes:
  - {match: "/robots.txt", respond: {body: "User-agent: *\n"}}
  - {match: "/hang", lane: slow}
  - {match: "/events", lane: live}
  - {match: "/", lane: web}
`

// watched is Holdfast as a process of its own, before two gunicorns, with its dashboard in a browser.
type watched struct {
	*command
	t       *testing.T
	app     *app
	release func() // ends every /hang
	page    *tab
	b       *browser
}

func startWatched(t *testing.T) *watched {
	t.Helper()
	w := &watched{t: t}
	w.app, w.release = startHanging(t)
	live := newHoldsApp(t, flaskThreads)
	live.start()
	w.command = startReady(t, dashboardLanes, w.app, live.app)
	w.b = startBrowser(t)
	w.page = w.b.open("the dashboard", "http://"+w.admin(t)+"/")
	w.page.eventually(`document.querySelector("#live").dataset.is === "live"`)
	return w
}

// hang asks for a view that does not end, in so many requests at once; each is one that stays until the test's end.
func (w *watched) hang(n int) {
	w.t.Helper()
	for i := range n {
		c := dialRaw(w.t, w.addr)
		c.get("/hang", fmt.Sprint("hang-", i))
	}
}

// shows waits until an element is there to be seen and its text has a part.
func (p *tab) shows(element, part string) {
	p.t.Helper()
	p.eventually(fmt.Sprintf("((e) => e.checkVisibility() && e.innerText.includes(%q))(document.querySelector(%q))", part, element))
}

// wantSlots waits until a lane's slots are drawn so, one letter for each in the order of the alphabet, and said so in words.
func (p *tab) wantSlots(lane, letters, words string) {
	p.t.Helper()
	p.eventually(fmt.Sprintf(`(() => {
		const lane = document.querySelector("[aria-label='Lane %s']");
		return [...lane.querySelectorAll(".slot")].map((s) => s.className.slice(-1)).sort().join("") === %q &&
			lane.querySelector(".counts").innerText.replace(/ \(longest [^)]*\)/g, "").split(/\s+/).join(" ") === %q;
	})()`, lane, letters, words))
}

// look sets how the page is looked at: its width, and a dark scheme or a light one.
func (p *tab) look(width, height int, dark bool) {
	p.t.Helper()
	p.mustCall(p.session, "Emulation.setDeviceMetricsOverride", params{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}, nil)
	p.mustCall(p.session, "Emulation.setEmulatedMedia", params{"features": []params{{"name": "prefers-color-scheme", "value": map[bool]string{true: "dark", false: "light"}[dark]}}}, nil)
}

// picture writes what the whole page looks like, in every way that it is looked at, where that is asked for.
func (p *tab) picture(name string) {
	p.t.Helper()
	dir := os.Getenv(screenshots)
	if dir == "" {
		return
	}
	for _, way := range []struct {
		name  string
		width int
		dark  bool
	}{{"desktop", 1280, false}, {"desktop-dark", 1280, true}, {"phone", 360, false}, {"phone-dark", 360, true}} {
		p.look(way.width, 800, way.dark)
		p.do("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
		var shot struct{ Data string }
		p.mustCall(p.session, "Page.captureScreenshot", params{"captureBeyondViewport": true, "format": "png"}, &shot)
		png, err := base64.StdEncoding.DecodeString(shot.Data)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name+"-"+way.name+".png"), png, 0o644)
		}
		if err != nil {
			p.t.Fatal(err)
		}
	}
	p.look(1280, 800, false)
}

// press presses a key, as a keyboard does.
func (p *tab) press(key string) {
	p.t.Helper()
	text := map[string]string{"Enter": "\r", " ": " "}[key]
	code := map[string]string{" ": "Space"}[key]
	if code == "" {
		code = key
	}
	number := map[string]int{"Tab": 9, "Enter": 13, " ": 32}[key]
	for _, kind := range []string{"keyDown", "keyUp"} {
		p.mustCall(p.session, "Input.dispatchKeyEvent", params{"type": kind, "key": key, "code": code, "text": text, "windowsVirtualKeyCode": number}, nil)
	}
}

// viewShown is the part of a view that tests look at.
type viewShown struct {
	State    string
	Instance string
	Lanes    []struct{ Name, States string }
	Holds    struct {
		Open     map[string]int
		Channels int
		Named    bool
		Top      []struct {
			Name  string
			Holds int
		}
	}
	raw string
}

// feedClient reads a feed.
type feedClient struct {
	t        *testing.T
	response *http.Response
	lines    *bufio.Scanner
}

// openFeed opens the feed of an admin address, fields being NAME, VALUE, ...; Host is the request's own.
func openFeed(t *testing.T, addr string, fields ...string) *feedClient {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // so that a feed that stops is seen
	t.Cleanup(cancel)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/feed", nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(fields); i += 2 {
		if fields[i] == "Host" {
			request.Host = fields[i+1]
		}
		request.Header.Set(fields[i], fields[i+1])
	}
	transport := &http.Transport{DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	f := &feedClient{t, response, bufio.NewScanner(response.Body)}
	f.lines.Buffer(nil, 1<<20)
	return f
}

// next gives the next view; false: the feed has ended, and how.
func (f *feedClient) next() (v viewShown, ok bool, err error) {
	for f.lines.Scan() {
		if data, is := strings.CutPrefix(f.lines.Text(), "data: "); is {
			v.raw = data
			return v, true, json.Unmarshal([]byte(data), &v)
		}
	}
	return v, false, f.lines.Err()
}

func (f *feedClient) wantView() viewShown {
	f.t.Helper()
	v, ok, err := f.next()
	if err != nil || !ok {
		f.t.Fatalf("no view: %v, %d %s", err, f.response.StatusCode, f.response.Header)
	}
	return v
}

// until reads views until one is so.
func (f *feedClient) until(what string, is func(viewShown) bool) viewShown {
	f.t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		if v := f.wantView(); is(v) {
			return v
		}
	}
	f.t.Fatal("no view is so: ", what)
	return viewShown{}
}

// A large configuration.
const (
	largeLanes    = 100
	largeSlots    = 100
	largeRoutes   = 1000
	largeChannels = 10_000
)

// startLarge serves a large configuration, with as many channels, before an app that is not there.
func startLarge(t *testing.T) *site {
	t.Helper()
	var yaml strings.Builder
	yaml.WriteString("instance: large\nupstreams: {app: {targets: [\"http://%s\"]}}\nlanes:\n")
	for i := range largeLanes {
		fmt.Fprintf(&yaml, "  lane-%03d: {upstream: app, slots: %d}\n", i, largeSlots)
	}
	yaml.WriteString("routes:\n")
	for i := range largeRoutes {
		fmt.Fprintf(&yaml, "  - {match: \"/route/%d/\", lane: lane-%03d}\n", i, i%largeLanes)
	}
	s := startSite(t, yaml.String(), &app{addr: freeAddress(t)})
	for i := 0; i < largeChannels; i += holds.MaxChannels {
		var names []string
		for j := i; j < min(i+holds.MaxChannels, largeChannels); j++ {
			names = append(names, fmt.Sprintf("user-%05d", j))
		}
		ours, theirs := net.Pipe()
		t.Cleanup(func() { theirs.Close() })
		go io.Copy(io.Discard, theirs)
		spec := holds.Spec{Kind: holds.ModeStream, Channels: names, Position: s.holds.Position(), Head: []byte("HTTP/1.1 200 OK\r\n\r\n")}
		if err := s.holds.Open(ours, spec); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func urlQuery(name, value string) string { return url.Values{name: {value}}.Encode() }

func urlPath(path string) string { return (&url.URL{Path: path}).EscapedPath() }
