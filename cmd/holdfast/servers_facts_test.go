package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// What the page says of the servers themselves, and the shapes that it warns of.

var serverRow = regexp.MustCompile("(?m)^\\| `([^`]+)`[^|]*\\|([^|]*)\\|([^|]*)\\|([^|]*)\\|([^|]*)\\|$")

// row gives the row of the page's table for the recipe's server: the one with
// most of the words in its first cell, all of which the command has.
func (r recipe) row(t *testing.T) (cells []string) {
	t.Helper()
	page, err := os.ReadFile(slotsPage)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range serverRow.FindAllStringSubmatch(string(page), -1) {
		if (cells == nil || len(row[1]) > len(cells[1])) && hasWords(r.commands[0], row[1]) {
			cells = row
		}
	}
	if cells == nil {
		t.Fatalf("no row of %s is for %q", slotsPage, r.commands[0])
	}
	return cells
}

func TestServers_EachServerOfTheTableHasARecipe(t *testing.T) {
	used := make(map[string]bool)
	for _, r := range recipes(t) {
		used[r.row(t)[1]] = true
	}
	page, err := os.ReadFile(slotsPage)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range serverRow.FindAllStringSubmatch(string(page), -1) {
		if !used[row[1]] {
			t.Errorf("no recipe of %s is for `%s`", slotsPage, row[1])
		}
	}
}

func hasWords(command, words string) bool {
	for _, word := range strings.Fields(words) {
		if !strings.Contains(" "+command+" ", " "+word+" ") {
			return false
		}
	}
	return true
}

// isAsTheTableHasIt asks the server itself: what /ready asks, and whether its
// connection stays.
func (s *recipeSite) isAsTheTableHasIt(t *testing.T) {
	row := s.row(t)
	first := dialRaw(t, "127.0.0.1:"+s.ports[0])
	first.send("OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n")
	first.wantAnswer(404)
	conn := dialRaw(t, "127.0.0.1:"+s.ports[0])
	conn.get("/fast", "first")
	answer, _ := conn.wantAnswer(200)
	keeps, says := false, !answer.Close
	if _, err := fmt.Fprint(conn, "GET /fast HTTP/1.1\r\nHost: localhost\r\n\r\n"); err == nil {
		_, _, err = conn.read()
		keeps = err == nil
	}
	got := map[[2]bool]string{{true, true}: "yes", {false, false}: "no", {false, true}: "no, unsaid"}[[2]bool{keeps, says}]
	if want := strings.TrimSpace(row[4]); got != want {
		t.Errorf("keep-alive of `%s`: the page says %q, the server %q (kept %v, said %v)", row[1], want, got, keeps, says)
	}
}

// Shapes in which there are more slots than the server runs at once: what is
// beyond waits where Holdfast cannot see it, fast views behind slow ones. They
// are the negative arm of the recipes' first check as well.
var tooManySlots = map[string]recipe{
	"ThreadsFewerThanSlots": {commands: []string{"gunicorn -w 1 --threads 2 -b 127.0.0.1:8000 mysite.wsgi"}},
	"FlaskThreads":          {commands: []string{"waitress-serve --listen=127.0.0.1:8000 --threads=2 flasksite:app"}},
	"SyncViewsOfUvicorn":    {commands: []string{"uvicorn --port 8000 mysite.asgi:application"}},
	"SyncViewsOfDaphne":     {commands: []string{"daphne -p 8000 mysite.asgi:application"}},
}

func TestServers_WithMoreSlotsThanTheServerRunsAFastViewWaitsForASlowOne(t *testing.T) {
	t.Parallel()
	for name, r := range tooManySlots {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r.yaml = `
upstreams: {app: {targets: ["http://127.0.0.1:8000"], concurrency: 4}}
lanes: {web: {upstream: app, slots: 2}, slow: {upstream: app, slots: 2}}
routes: [{match: "/reports/", lane: slow}, {match: "/", lane: web}]
`
			runs := 2
			if r.asgi() {
				runs = 1 // Django 3.2 has one thread for all sync views
			}
			s := r.serve(t)
			var answers sync.WaitGroup
			defer answers.Wait()
			defer s.gate.set(true)
			s.block(t, &answers, "/reports/wait", 2)
			s.gate.wantRunning(t, "/reports/wait", runs)
			eventually(t, "both slow views to be at the server", func() bool { return s.status().in("slow", "busy") == 2 })
			fast := make(chan int, 1)
			answers.Go(func() {
				if status, _, err := get(context.Background(), onceClient(), s.url("/fast")); err != nil || status != 200 {
					t.Errorf("/fast: %d %v", status, err)
				}
				_, ended := s.gate.counts("/reports/wait")
				fast <- ended
			})
			eventually(t, "the fast view to be at the server", func() bool { return s.status().in("web", "busy") == 1 })
			s.gate.set(true)
			if ended := <-fast; ended == 0 {
				t.Error("a fast view was answered before a slow one had ended: the check cannot fail")
			}
			answers.Wait()
			if most, _ := s.gate.counts("/reports/wait"); most != runs {
				t.Errorf("%d slow views ran at once, want %d", most, runs)
			}
		})
	}
}

// Several processes with threads on one port. The kernel picks the process, so
// it is a matter of luck who waits: measured, not held to anything. That none
// waits with a target for each process is held by the recipe of that name.
func TestServers_SeveralProcessesWithThreadsOnOnePortAreMeasured(t *testing.T) {
	t.Parallel()
	r := recipe{commands: []string{"gunicorn -w 4 --threads 2 -b 127.0.0.1:8000 mysite.wsgi"}, yaml: `
upstreams: {app: {targets: ["http://127.0.0.1:8000"], concurrency: 8}}
lanes: {web: {upstream: app, slots: 4}, slow: {upstream: app, slots: 4}}
routes: [{match: "/reports/", lane: slow}, {match: "/", lane: web}]
`}
	s := r.serve(t)
	var answers sync.WaitGroup
	s.block(t, &answers, "/reports/wait", 4)
	eventually(t, "four slow views at the servers", func() bool { return s.status().in("slow", "busy") == 4 })
	late := s.askFastViews(t, time.Second, 4, 20)
	t.Logf("-w 4 --threads 2 on one port: %d of 4 slow views run, and %d of 4 clients waited a second for a fast view", s.gate.running("/reports/wait"), late)
	s.gate.set(true)
	answers.Wait()
}

// uWSGI does not say that a connection ends with its answer, which the recipe
// heeds by keepalive: off. Without that no POST goes out on a connection that is
// being closed.
func TestServers_NoPOSTIsLostToAServerThatClosesWithoutAWord(t *testing.T) {
	t.Parallel()
	for _, r := range recipes(t) {
		if r.program() != "uwsgi" {
			continue
		}
		if !strings.Contains(r.yaml, ", keepalive: off") {
			t.Fatal("the recipe does not switch keep-alive off")
		}
		r.yaml = strings.Replace(r.yaml, ", keepalive: off", "", 1)
		s := r.serve(t)
		var asking sync.WaitGroup
		answered := make(chan attempt, 200)
		for range 4 {
			asking.Go(func() {
				for range cap(answered) / 4 {
					answered <- ask(onceClient(), http.MethodPost, s.url(""), "/fast")
				}
			})
		}
		asking.Wait()
		close(answered)
		failed := 0
		for a := range answered {
			if !a.ok() {
				failed++
			}
		}
		if failed > 0 {
			t.Errorf("keepalive: auto before uWSGI: %d of %d POSTs failed", failed, cap(answered))
		}
		return
	}
}
