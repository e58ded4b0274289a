package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The page of `make demo` in a real browser: what an EventSource and a
// WebSocket of Chromium do when the app or Holdfast goes away.

// The page's two panels.
var panels = []string{"#feed", "#chat"}

func (p *tab) eventuallyIs(panel, state string, gaps int) {
	p.t.Helper()
	p.eventually(fmt.Sprintf("(({dataset: d}) => d.state === %q && d.gaps === '%d')(document.querySelector(%q))", state, gaps, panel))
}

// eventuallyShows waits until the panel has this text in a line, once.
func (p *tab) eventuallyShows(panel, text string) {
	p.t.Helper()
	p.eventually(fmt.Sprintf("[...document.querySelectorAll('%s li span')].filter((s) => s.textContent === %q).length === 1", panel, text))
}

// demo is what `make demo` starts, but for its ports, with pages in a browser.
type demo struct {
	t       *testing.T
	desk    *desk
	serving *command
	publish string
	pages   []*tab
}

// startDemo serves the help desk on ports that a second Holdfast can take
// over, and opens so many pages of it.
func startDemo(t *testing.T, pages int) *demo {
	t.Helper()
	b := startBrowser(t)
	d := &demo{t: t, desk: &desk{jobs: t.TempDir()}, publish: freeAddress(t)}
	addr := freeAddress(t)
	d.desk.wsgi, d.desk.asgi = d.desk.newWSGI(t, freeAddress(t)), d.desk.newASGI(t, freeAddress(t))
	d.desk.wsgi.env = append(d.desk.wsgi.env, "HOLDFAST_PUBLISH_URL=http://"+d.publish)
	d.desk.wsgi.start()
	d.desk.asgi.start()
	_, port, _ := strings.Cut(addr, ":")
	_, publishPort, _ := strings.Cut(d.publish, ":")
	for name, value := range environment(d.desk.wsgi, d.desk.asgi) {
		t.Setenv(name, value)
	}
	t.Setenv("MIXED_PORT", port)
	t.Setenv("MIXED_PUBLISH_PORT", publishPort)
	d.serve()
	for i := range pages {
		d.pages = append(d.pages, b.open(fmt.Sprint("page ", i+1), "http://"+addr+"/demo/"))
	}
	d.wantAll("connected", 0)
	return d
}

// serve starts Holdfast, on the ports that it had before.
func (d *demo) serve() {
	d.t.Helper()
	d.serving = startCommand(d.t, filepath.Join(mixedDir, "config.yaml"))
	d.serving.eventuallySays(d.t, "ready")
}

// wantAll waits until both connections of every page are in that state.
func (d *demo) wantAll(state string, gaps int) {
	d.t.Helper()
	for _, page := range d.pages {
		for _, panel := range panels {
			page.eventuallyIs(panel, state, gaps)
		}
	}
}

// wantPublished publishes once and waits until every panel of every page shows it.
func (d *demo) wantPublished(text string) {
	d.t.Helper()
	_, reached := wantPublished(d.t, d.publish, fmt.Sprintf(`{"channel": ["announcements", "agents"], "data": %q}`, text))
	if want := len(d.pages) * len(panels); reached != want {
		d.t.Errorf("%q reached %d holds, want %d", text, reached, want)
	}
	d.wantShown(text)
}

func (d *demo) wantShown(text string) {
	d.t.Helper()
	for _, page := range d.pages {
		for _, panel := range panels {
			page.eventuallyShows(panel, text)
		}
	}
}

// mark leaves something on each page that loading it again would wipe away.
func (d *demo) mark() {
	for _, page := range d.pages {
		page.do("window.marked = true")
	}
}

func (d *demo) wantMarks() {
	d.t.Helper()
	for _, page := range d.pages {
		if got, err := page.evaluate("window.marked === true"); got != "true" {
			d.t.Errorf("%s was loaded anew (%v)", page.name, err)
		}
	}
}

func TestBrowser_PagesStayWhenTheAppIsKilledAndComeBackWithAGapWhenHoldfastIs(t *testing.T) {
	d := startDemo(t, 2)
	d.mark()
	d.wantPublished("both are there")

	d.desk.wsgi.kill()
	d.wantPublished("the app is killed")
	d.wantAll("connected", 0)
	if n := metric(t, d.serving.admin(t), `holdfast_holds_ended_total{kind="stream",reason="client"}`); n != 0 {
		t.Errorf("%v streams have ended with the app", n)
	}
	d.desk.wsgi.start()
	eventuallyListens(t, d.desk.wsgi.addr)
	d.wantPublished("the app is back")

	d.serving.Process.Kill()
	<-d.serving.ended
	d.wantAll("reconnecting", 0)
	d.serve()
	d.wantAll("connected", 1)
	d.wantPublished("holdfast is back")
	d.wantMarks()
	if n := metric(t, d.serving.admin(t), "holdfast_gaps_told_total"); n != 4 {
		t.Errorf("%v gaps told, want one for each connection", n)
	}
}

// The negative arm: with nothing missing nobody is told of a gap, and what
// came while a page was away is there when it is back, once.
func TestBrowser_APageThatWasAwayGetsWhatItMissedAndIsToldOfNoGap(t *testing.T) {
	d := startDemo(t, 1)
	d.mark()
	d.wantPublished("before")
	page := d.pages[0]
	// Its connections are ended by Holdfast; what ends a stream's lets it come back.
	for i, channel := range []string{"announcements", "agents"} {
		page.do(fmt.Sprintf(`window.left = 0; new MutationObserver(() => { if (document.querySelector(%[1]q).dataset.state !== "connected") left++; })
			.observe(document.querySelector(%[1]q), {attributes: true})`, panels[i]))
		response, err := onceClient().Post("http://"+d.publish+"/end", "application/json", strings.NewReader(fmt.Sprintf(`{"channel": %q}`, channel)))
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		publishTo(t, d.publish, channel, "meanwhile")
		page.eventually("window.left > 0")
		page.eventuallyIs(panels[i], "connected", 0)
		page.eventuallyShows(panels[i], "meanwhile")
	}
	d.wantPublished("after")
	page.eventuallyShows("#feed", "meanwhile")
	page.eventuallyShows("#chat", "meanwhile")
	d.wantMarks()
}

func TestBrowser_ThePagesOwnFormsReachEveryTab(t *testing.T) {
	d := startDemo(t, 2)
	one, other := d.pages[0], d.pages[1]
	one.fill("#publish-text", "an announcement, <b>as text</b>")
	d.wantShown("an announcement, <b>as text</b>")

	other.fill("#say-text", "/who")
	other.eventually(`/^You are guest \d+\.$/.test(document.querySelector("#chat li.reply span").textContent)`)
	other.fill("#say-text", "hello there")
	for _, page := range d.pages {
		page.eventually(`[...document.querySelectorAll("#chat li span")].filter((s) => /^guest \d+: hello there$/.test(s.textContent)).length === 1`)
	}
	for _, condition := range []string{`document.querySelector("#chat li.reply") === null`, `!document.querySelector("#feed").innerText.includes("hello there")`} {
		if got, err := one.evaluate(condition); got != "true" {
			t.Errorf("%s is %s %v", condition, got, err)
		}
	}
}

func TestBrowser_UploadsAndSlowViewsLeaveTheFastViewItsSlots(t *testing.T) {
	d := startDemo(t, 1)
	page := d.pages[0]
	page.do(`document.querySelector("#start").click()`)
	page.eventually(`document.querySelector("#flight").textContent === "6"`)
	eventually(t, "the slow lane full", func() bool { return d.desk.wsgi.running("/reports/slow") == 2 })
	page.do("window.had = fast.length")
	page.eventually("fast.filter((p) => p.ms !== null).length > window.had + 5")
	page.eventually(`Number(document.querySelector("#finished").firstChild.data) >= 2`)

	file := filepath.Join(t.TempDir(), "two megabytes.bin")
	if err := os.WriteFile(file, bytes.Repeat([]byte("upload\r\n"), 250_000), 0o600); err != nil {
		t.Fatal(err)
	}
	var found struct{ Result struct{ ObjectID string } }
	page.mustCall(page.session, "Runtime.evaluate", params{"expression": `document.querySelector("#file")`}, &found)
	page.mustCall(page.session, "DOM.setFileInputFiles", params{"files": []string{file}, "objectId": found.Result.ObjectID}, nil)
	page.do(`document.querySelector("#upload").requestSubmit()`)
	page.eventually(`/^two megabytes\.bin: the app got 2\.0 MB after .* SHA-256 [0-9a-f]{16}…$/.test(document.querySelector("#uploaded").textContent)`)
	if got, err := page.evaluate(`document.querySelector("#finished").textContent.includes("failed") || document.querySelector("#trouble").textContent`); got != `""` {
		t.Errorf("something failed: %s %v", got, err)
	}
	if n := mostAtOnce(on("/reports/slow", d.desk.wsgi.views())); n != 2 {
		t.Errorf("the app ran %d slow views at once, their lane has 2 slots", n)
	}
}
