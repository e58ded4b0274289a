package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
)

// The dashboard, in a real browser and at its feed.

// One page from an idle process to its end: it is never loaded anew.
func TestDashboard_ShowsWhatLanesTargetsAndTheProcessDo(t *testing.T) {
	w := startWatched(t)
	page := w.page
	page.do("window.marked = true")
	page.shows("#state", "Ready")
	page.shows("#instance", "web-1")
	page.shows("#nothing", "every lane has a free one; all 2 targets are up")
	page.wantSlots("web", "ffffff", "6 free")
	page.wantSlots("slow", "ff", "2 free")
	page.eventually(`document.querySelectorAll("#problems li").length === 0`)
	page.picture("1-empty")

	// Busy: one slot of each lane, holds, events, an answer of 500.
	w.hang(1)
	follow(t, w.addr, "/events?channel=news")
	follow(t, w.addr, "/events?channel=news&channel=user-42")
	follow(t, w.addr, "/events?channel=prices")
	publishTo(t, w.publishAddr(t), "news", "one")
	for i := range 40 {
		wantGet(t, onceClient(), "http://"+w.addr+"/slow?ms="+fmt.Sprint(i%9*7))
	}
	ask(onceClient(), "GET", "http://"+w.addr, "/status/500")
	page.wantSlots("slow", "bf", "1 free 1 busy")
	page.shows("#channels", "news")
	page.eventually(`[...document.querySelectorAll("#channels tbody tr")].map((r) => r.innerText.trim().split(/\s+/).join(" ")).join() === "news 2,prices 1,user-42 1"`)
	page.shows("#holds", "Streams\n3")
	page.shows("#routes", "app 1")
	page.shows("#problems", "1 of 41 requests failed on /")
	page.picture("2-busy")

	// Full: its queue is full too, and what is beyond is refused.
	w.hang(5)
	eventually(t, "a queue of four", func() bool { return adminStatus(t, w.admin(t)).Lanes["slow"].Waiting == 4 })
	if a := ask(onceClient(), "GET", "http://"+w.addr, "/hang"); a.status != 503 {
		t.Errorf("beyond the queue: %v", a)
	}
	page.wantSlots("slow", "bb", "2 busy")
	page.shows("[aria-label='Lane slow'] .queue", "4 waiting, 4 may · oldest ")
	page.shows("[aria-label='Lane slow'] .refused", "lane_full 1 lately, 1 since the start. The lane's queue has no place")
	page.shows("#problems", "Lane slow refused 1 request")
	page.shows("#problems", "Lane slow is full: 4 requests wait for 2 busy slots")
	page.eventually(`document.title.startsWith("(3) web-1")`)
	page.eventually(`!document.querySelector("#tiles").innerText.includes("not known yet")`) // rates, too
	page.picture("3-full")

	// Down: the app is killed, its holds are not its own and stay.
	w.app.kill()
	ask(onceClient(), "HEAD", "http://"+w.addr, "/robots.txt")
	parked := dialRaw(t, w.addr)
	parked.get("/fast", "parked")
	page.shows("#targets", "✕ down")
	page.shows("#problems", "Target http://"+w.app.addr+" is down for ")
	page.wantSlots("web", "dddddd", "6 down")
	page.shows("#holds", "Streams\n3")
	page.picture("4-down")

	// Draining, to its end.
	w.signal(t, syscall.SIGTERM)
	page.shows("#state", "Draining")
	page.shows("#problems", "Draining for ")
	page.picture("5-draining")
	w.wantExit(t, exitOK)
	page.shows("#lost", "Holdfast has drained and stopped.")
	page.shows("#lost", "No word for ")
	page.picture("6-stopped")
	if got, _ := page.evaluate("window.marked === true"); got != "true" {
		t.Error("the page was loaded anew")
	}
	if lines := logLines(t, w.log.String(), ""); strings.Contains(fmt.Sprint(lines), "dashboard") {
		t.Errorf("the log speaks of the dashboard: %v", lines)
	}
}
