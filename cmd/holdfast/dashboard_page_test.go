package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"holdfast/lanes"
)

// The dashboard's page in a browser: what becomes of it, and what it may not do.

func (p *tab) wantTrue(condition string) {
	p.t.Helper()
	if got, err := p.evaluate(condition); got != "true" {
		p.t.Errorf("%s: %s is %s %v", p.name, condition, got, err)
	}
}

// openDashboard opens a page and waits until it shows something.
func openDashboard(t *testing.T, addr string) *tab {
	t.Helper()
	page := startBrowser(t).open("the dashboard", "http://"+addr+"/")
	page.isLive()
	return page
}

func (p *tab) is(live string) {
	p.t.Helper()
	p.eventually(fmt.Sprintf(`document.querySelector("#live").dataset.is === %q`, live))
}

func (p *tab) isLive() { p.t.Helper(); p.is("live") }

// fixedPorts is a configuration whose listeners a second process can take over.
func fixedPorts(t *testing.T, admin string) (config string) {
	t.Helper()
	config = filepath.Join(t.TempDir(), "config.yaml")
	text := fmt.Sprintf("instance: %%s\nlisten: %q\nadmin: {listen: %q}\npublish: {listen: \"\"}\n", freeAddress(t), admin) +
		fmt.Sprintf(drainLanes, freeAddress(t))
	if err := os.WriteFile(config, []byte(strings.Replace(text, "%s", "first", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	return config
}

func TestDashboard_SaysWhenThereIsNoWordAndComesBackByItself(t *testing.T) {
	admin := freeAddress(t)
	config := fixedPorts(t, admin)
	serving := startCommand(t, config)
	page := openDashboard(t, admin)
	page.do("window.marked = true")
	page.shows("#problems", "Starting: not every target has answered yet")

	// Its connection stays open and is silent.
	serving.signal(t, syscall.SIGSTOP)
	page.is("lost")
	page.shows("#lost", "No word from Holdfast.")
	page.eventually(`/No word for \d+ s\./.test(document.querySelector("#lost").innerText) && document.body.classList.contains("stale")`)
	serving.signal(t, syscall.SIGCONT)
	page.isLive()
	page.wantTrue(`document.querySelector("#lost").hidden && !document.body.classList.contains("stale")`)

	// The process is killed, and another one takes its place.
	serving.Process.Kill()
	<-serving.ended
	page.is("lost")
	page.shows("#instance", "first") // what it said last stays
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	replaceFile(t, config, strings.Replace(string(text), "instance: first", "instance: second", 1))
	startCommand(t, config)
	page.isLive()
	page.shows("#instance", "second")
	page.wantTrue("window.marked === true && document.querySelector('#other').hidden")
}

func TestDashboard_PausesAndIsUsedByKeyboard(t *testing.T) {
	s := startHolds(t, flaskThreads, holdsLanes)
	page := openDashboard(t, s.admin())
	focused := func(what string) {
		t.Helper()
		page.eventually(fmt.Sprintf("document.activeElement.matches(%q)", what))
	}
	page.press("Tab")
	focused(".skip")
	page.press("Tab")
	focused("#pause")
	page.wantTrue(`getComputedStyle(document.activeElement).outlineStyle !== "none"`)
	page.press(" ")
	page.is("paused")
	page.wantTrue(`document.querySelector("#pause").getAttribute("aria-pressed") === "true"`)
	follow(t, s.addr, "/events?channel=late")
	f := openFeed(t, s.admin())
	f.until("the hold", func(v viewShown) bool { return v.Holds.Open["stream"] == 1 })
	f.wantView()
	f.wantView()
	page.wantTrue(`!document.querySelector("#channels").innerText.includes("late")`)
	page.press("Enter")
	page.isLive()
	page.shows("#channels", "late")
	page.press("Tab")
	focused("summary")
	page.press("Enter")
	page.eventually(`document.querySelector("details").open`)
	page.do(`document.querySelector(".skip").focus()`)
	page.press("Enter")
	focused("#wrong")
}

// Whoever listens to the page is told what the shapes and colours say.
func TestDashboard_HasRolesAndNames(t *testing.T) {
	s := startHolds(t, flaskThreads, holdsLanes)
	follow(t, s.addr, "/events?channel=a")
	page := openDashboard(t, s.admin())
	page.shows("#channels", "a")
	page.mustCall(page.session, "Accessibility.enable", params{}, nil)
	var tree struct {
		Nodes []struct {
			Ignored          bool
			Role, Name       struct{ Value any }
			BackendDOMNodeID int
		}
	}
	for _, width := range []int{1280, 360} {
		page.look(width, 800, false)
		page.mustCall(page.session, "Accessibility.getFullAXTree", params{}, &tree)
		there := map[string]bool{}
		for _, n := range tree.Nodes {
			if !n.Ignored { // a narrow page writes a column's title into its cells
				there[fmt.Sprint(n.Role.Value, " ", strings.TrimPrefix(fmt.Sprint(n.Name.Value), "State "))] = true
			}
		}
		for _, want := range []string{"heading What is wrong", "heading Lanes", "listitem Lane web", "meter Queue of lane web", "table Targets", "columnheader Route", "rowheader a",
			"cell ● up", "button Pause", "region Lanes", "status ", "main ", "banner "} {
			if !there[want] {
				t.Errorf("at %d pixels there is no %q", width, want)
			}
		}
	}
	page.wantTrue(`document.documentElement.lang === "en" && [...document.querySelectorAll("[id]")].length === new Set([...document.querySelectorAll("[id]")].map((e) => e.id)).size`)
}

// Names of channels, routes and instances are anybody's, and are shown as they are.
func TestDashboard_ShowsHostileNamesAsText(t *testing.T) {
	const hostile = `<img src=x onerror="window.hit=1"></script><script>window.hit=2</script>`
	route := "/" + strings.ReplaceAll(hostile, "/", "") // a path's segment has no slash
	yaml := fmt.Sprintf("instance: %q\n", hostile) + `upstreams: {app: {targets: ["http://%s"], park: 60s}}
lanes: {web: {upstream: app, slots: 4, queue_timeout: 60s}}
routes: [{match: "/", lane: web}, {match: ` + strings.ReplaceAll(strings.ReplaceAll(fmt.Sprintf("%q", route), "%", "%%"), "\\u003c", "<") + `, respond: {body: "x"}}]
`
	s := startHolds(t, flaskThreads, yaml)
	for _, channel := range []string{hostile, strings.Repeat("wide", 60), "__proto__", "constructor"} {
		follow(t, s.addr, "/events?"+urlQuery("channel", channel))
	}
	ask(onceClient(), "GET", s.url(""), urlPath(route))
	page := openDashboard(t, s.admin())
	page.shows("#instance", hostile)
	page.shows("#channels", hostile)
	page.shows("#channels", "__proto__")
	page.shows("#routes", route)
	page.wantTrue(`window.hit === undefined && document.querySelectorAll("img").length === 0 && document.scripts.length === 1`)
	page.wantTrue("document.title.includes('<img src=x')")
	for _, width := range []int{320, 360, 1280} {
		page.look(width, 800, false)
		page.eventually(fmt.Sprintf("window.innerWidth === %[1]d && document.documentElement.scrollWidth <= %[1]d", width))
	}
	page.picture("hostile")
}

// Everything that the page asks for is of its own origin, and nothing else could be.
func TestDashboard_AsksForItsFeedAndForNothingElse(t *testing.T) {
	s := startHolds(t, flaskThreads, holdsLanes)
	var asked []string
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked = append(asked, r.URL.Path) }))
	t.Cleanup(elsewhere.Close)
	b := startBrowser(t)
	page := b.open("the dashboard", "about:blank")
	b.keep = true
	page.mustCall(page.session, "Network.enable", params{}, nil)
	page.mustCall(page.session, "Page.navigate", params{"url": "http://" + s.admin() + "/"}, nil)
	page.isLive()
	page.shows("#instance", s.first.instance())
	page.do(fmt.Sprintf(`window.violations = []; document.addEventListener("securitypolicyviolation", (e) => violations.push(e.effectiveDirective));
		fetch(%[1]q + "/fetched").catch(() => {});
		for (const [tag, where] of [["img", "src"], ["script", "src"], ["iframe", "src"], ["link", "href"]]) {
			const node = document.createElement(tag);
			if (tag === "link") node.rel = "stylesheet";
			try { node[where] = %[1]q + "/" + tag; document.head.append(node) } catch (error) { violations.push(tag) }
		}
		try { document.body.insertAdjacentHTML("beforeend", "<b>x</b>") } catch (error) { violations.push("html") }`, elsewhere.URL))
	page.eventually(`["connect-src", "img-src", "frame-src", "style-src-elem", "html"].every((v) => violations.includes(v)) && violations.some((v) => v.startsWith("script"))`)
	if len(asked) > 0 {
		t.Errorf("elsewhere was asked for %q", asked)
	}
	// Before the test itself asked.
	own := map[string]int{}
	for _, event := range b.events {
		var e struct {
			Method string
			Params struct {
				Request struct{ URL string }
			}
		}
		if err := json.Unmarshal(event, &e); err != nil {
			t.Fatal(err)
		}
		if e.Method != "Network.requestWillBeSent" || strings.HasPrefix(e.Params.Request.URL, "data:") {
			continue
		}
		path, ok := strings.CutPrefix(e.Params.Request.URL, "http://"+s.admin())
		if !ok && !strings.HasPrefix(e.Params.Request.URL, elsewhere.URL) {
			t.Errorf("the page asks for %s", e.Params.Request.URL)
		}
		if ok {
			own[path]++
		}
	}
	if len(own) != 2 || own["/"] != 1 || own["/feed"] != 1 {
		t.Errorf("of its own origin it asks for %v", own)
	}
	response, err := onceClient().Get("http://" + s.admin() + "/")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer", "Content-Type": "text/html; charset=utf-8"} {
		if got := response.Header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	for _, part := range []string{"default-src 'none'", "frame-ancestors 'none'", "connect-src 'self'", "base-uri 'none'", "form-action 'none'"} {
		if policy := response.Header.Get("Content-Security-Policy"); !strings.Contains(policy, part) || strings.Contains(policy, "unsafe") {
			t.Errorf("the policy is %q, want %s in it", policy, part)
		}
	}
}

// Under a name that the listener does not have, the page loads and asks for a key.
func TestDashboard_AsksForAKeyWhereItsFeedNeedsOne(t *testing.T) {
	s := keyedAdmin(t, "127.0.0.1:0", &app{addr: freeAddress(t)})
	_, port, _ := strings.Cut(s.admin(), ":")
	page := startBrowser(t).open("the dashboard", "http://named.localhost:"+port+"/")
	page.is("key")
	page.shows("#key", "This address needs a key")
	page.wantTrue(`document.querySelector("#main").hidden && document.querySelector("#lost").hidden`)
	page.eventually(`document.activeElement.id === "key-text"`)
	page.fill("#key-text", "no key")
	page.shows("#key", "That is none of them.")
	page.fill("#key-text", "second-key")
	page.isLive()
	page.wantTrue(`document.querySelector("#key").hidden && !location.href.includes("key")`)
	page.mustCall(page.session, "Page.reload", params{}, nil)
	page.isLive() // it is kept for this tab
	page.do(`document.querySelector("#forget").click()`)
	page.is("key")
	page.wantTrue("sessionStorage.length === 0")
}

func TestDashboard_ALargeConfigurationIsDrawnInBounds(t *testing.T) {
	s := startLarge(t)
	page := openDashboard(t, s.admin())
	page.eventually(fmt.Sprintf(`document.querySelectorAll(".lane").length === %d && document.querySelectorAll(".lane .slot").length === %d`, largeLanes, largeLanes*largeSlots))
	page.shows("#more-routes", "1,003 routes have not been asked yet")
	page.shows("#channels-about", "The 20 with the most holds, and 9,980 more.")
	page.eventually(`document.querySelectorAll("#channels tbody tr").length === 20`)
	page.do(`window.longest = 0; new PerformanceObserver((list) => list.getEntries().forEach((e) => { longest = Math.max(longest, e.duration) })).observe({type: "longtask", buffered: true})`)
	f := openFeed(t, s.admin())
	for range 4 {
		f.wantView()
	}
	page.picture("large")
	longest, _ := page.evaluate("window.longest")
	t.Logf("the longest task of the page took %s ms, its first drawing included", longest)
}

// Each word of the closed lists has its sentence.
func TestDashboard_ExplainsEveryRefusalOfLanesAndEveryEnd(t *testing.T) {
	s := startSite(t, drainLanes, &app{addr: freeAddress(t)})
	page := wantGet(t, onceClient(), "http://"+s.admin()+"/")
	words := map[string]bool{}
	for _, reason := range lanes.Reasons {
		words[string(reason)] = true
	}
	for _, reasons := range s.holdCounts().Ended {
		for reason := range reasons {
			words[reason] = true
		}
	}
	for word := range words {
		if !bytes.Contains(page, []byte("\n  "+word+": \"")) {
			t.Errorf("the page does not explain %s", word)
		}
	}
}
