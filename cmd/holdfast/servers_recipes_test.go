package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fasthttp/websocket"
)

// What docs/slots.md says of each server, held against that server.

// slotsOf is how many slots a lane of the recipe has.
func (s *recipeSite) slotsOf(lane string) int {
	for _, l := range s.laneCounts() {
		if l.Name == lane {
			return l.Slots
		}
	}
	return 0
}

// waitPaths are views that wait at the gate: one of the slow lane, one of web.
func (s *recipeSite) waitPaths() (slow, web string) {
	if s.async() {
		return "/reports/await", "/await"
	}
	return "/reports/wait", "/wait"
}

// block sends n requests for a view that waits, and wants a 200 for each.
func (s *recipeSite) block(t *testing.T, answers *sync.WaitGroup, path string, n int) {
	for range n {
		client := onceClient()
		answers.Go(func() {
			if status, body, err := get(context.Background(), client, s.url(path)); err != nil || status != 200 {
				t.Errorf("%s: %d %.200q %v", path, status, body, err)
			}
		})
	}
}

// patience is how long an answer is waited for that has nothing to wait for.
const patience = 30 * time.Second

// askFastViews has clients ask a fast view, each so many times, and reports how
// many of them were not answered within the patience that they have.
func (s *recipeSite) askFastViews(t *testing.T, patience time.Duration, clients, each int) (late int) {
	t.Helper()
	var mu sync.Mutex
	var asking sync.WaitGroup
	for range clients {
		client := newClient(t)
		client.Timeout = patience
		asking.Go(func() {
			for range each {
				if status, body, err := get(context.Background(), client, s.url("/fast")); err != nil || status != 200 || string(body) != "fast\n" {
					t.Logf("/fast: %d %.200q %v", status, body, err)
					mu.Lock()
					late++
					mu.Unlock()
					return
				}
			}
		})
	}
	asking.Wait()
	return late
}

// isolates: the slow lane is full and requests wait for it, and fast views are
// answered, all of them before any slow one has ended.
func (s *recipeSite) isolates(t *testing.T) {
	slow, web := s.waitPaths()
	var answers sync.WaitGroup
	s.gate.set(false)
	defer answers.Wait()
	defer s.gate.set(true)
	s.block(t, &answers, slow, s.slotsOf("slow")+3)
	s.gate.wantRunning(t, slow, s.slotsOf("slow"))
	eventually(t, "three to wait", func() bool { return s.status().Lanes["slow"].Waiting == 3 })
	if late := s.askFastViews(t, patience, s.slotsOf("web")+2, 20); late > 0 {
		t.Errorf("%d clients' fast views waited for a slow one", late)
	}
	if _, ended := s.gate.counts(slow); ended > 0 {
		t.Fatalf("%d slow views have ended, though nobody let them: the answers prove nothing", ended)
	}
	// The other lane's slots are the server's too: all run at once.
	s.block(t, &answers, web, s.slotsOf("web")+2)
	s.gate.wantRunning(t, web, s.slotsOf("web"))
	if n := s.gate.running(slow); n != s.slotsOf("slow") {
		t.Errorf("%d slow views run beside them, want %d", n, s.slotsOf("slow"))
	}
	s.wantReady(2) // busy is not sick
	s.gate.set(true)
	answers.Wait()
	for path, want := range map[string]int{slow: s.slotsOf("slow"), web: s.slotsOf("web"), "": s.slotsOf("slow") + s.slotsOf("web")} {
		if most, _ := s.gate.counts(path); most != want {
			t.Errorf("%d views of %q ran at once at most, want %d: the slots", most, path, want)
		}
	}
}

// carriesBodies: an upload in chunks reaches the app with its length, one that
// the view does not read does no harm, and a file comes whole.
func (s *recipeSite) carriesBodies(t *testing.T) {
	body := bytes.Repeat([]byte("all of it "), 40_000) // beyond what is kept in memory
	sum := sha256.Sum256(body)
	client := onceClient()
	response, err := client.Post(s.url("/upload"), "application/octet-stream", io.MultiReader(bytes.NewReader(body))) // of no known length
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var got received
	if err := json.NewDecoder(response.Body).Decode(&got); err != nil || got.Bytes != int64(len(body)) || got.SHA256 != hex.EncodeToString(sum[:]) {
		t.Errorf("the app has %+v (%v), sent were %d bytes", got, err, len(body))
	}
	for range 20 {
		response, err := client.Post(s.url("/fast"), "application/octet-stream", bytes.NewReader(bytes.Repeat([]byte("x"), 1<<20)))
		if err != nil {
			t.Fatal(err)
		}
		if answer, err := io.ReadAll(response.Body); response.StatusCode != 200 || err != nil {
			t.Errorf("an upload that nobody reads: %d %.200q %v", response.StatusCode, answer, err)
		}
		response.Body.Close()
	}
	if got := wantGet(t, client, s.url("/file")); !bytes.Equal(got, s.file) {
		t.Errorf("/file: %d bytes that are not the file's %d", len(got), len(s.file))
	}
}

// streams: a piece is with the client while the view waits to make the next.
func (s *recipeSite) streams(t *testing.T) {
	s.gate.set(false)
	defer s.gate.set(true)
	response, err := onceClient().Get(s.url("/stream"))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	in := bufio.NewReader(response.Body)
	if line, err := in.ReadString('\n'); line != "first\n" || err != nil {
		t.Fatalf("%q %v", line, err)
	}
	s.gate.wantRunning(t, "/stream", 1)
	s.gate.set(true)
	if rest, err := io.ReadAll(in); string(rest) != "second\n" || err != nil {
		t.Errorf("%q %v", rest, err)
	}
}

// keepsASlotUntilItsViewEnds: the app does not notice that a client left, so
// its slot is abandoned, and free when the view has ended.
func (s *recipeSite) keepsASlotUntilItsViewEnds(t *testing.T) {
	slow, _ := s.waitPaths()
	s.gate.set(false)
	defer s.gate.set(true)
	_, before := s.gate.counts(slow)
	client := dialRaw(t, addrOf(s.holdfast))
	client.get(slow, "leaves")
	s.gate.wantRunning(t, slow, 1)
	client.leave()
	eventually(t, "its slot to be abandoned", func() bool { return s.status().in("slow", "abandoned") == 1 })
	if n := s.gate.running(slow); n != 1 {
		t.Errorf("%d views run, want the one of the client that left", n)
	}
	s.gate.set(true)
	eventuallyQuiet(t, s.admin())
	if _, ended := s.gate.counts(slow); ended != before+1 {
		t.Errorf("%d views have ended, want 1", ended-before)
	}
}

// toServer counts this process's connections to a port that are in a state
// (see /proc/net/tcp).
func toServer(t *testing.T, port, state string) (n int) {
	t.Helper()
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Skip(err)
	}
	var number int
	fmt.Sscan(port, &number)
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); len(f) > 3 && strings.HasSuffix(f[2], fmt.Sprintf(":%04X", number)) && f[3] == state {
			n++
		}
	}
	return n
}

const established, closeWait = "01", "08"

// count is that of toServer, over the recipe's servers.
func (s *recipeSite) count(t *testing.T, state string) (n int) {
	for _, port := range s.ports {
		n += toServer(t, port, state)
	}
	return n
}

// failsNothingAsConnectionsClose: some 200 requests, GET and POST, in rounds. After
// each the server closes what it keeps, and the next round begins when it has
// closed the first connection: the others are about to be closed.
func (s *recipeSite) failsNothingAsConnectionsClose(t *testing.T) {
	const rounds, each = 3, 70
	for round := range rounds {
		var asking sync.WaitGroup
		clients := min(s.slotsOf("web"), 5)
		for c := range clients {
			client := onceClient()
			asking.Go(func() {
				for i := range each / clients {
					method := [...]string{http.MethodGet, http.MethodPost}[(i+c)%2]
					if a := ask(client, method, s.url(""), "/fast"); !a.ok() {
						t.Errorf("round %d: %v", round, a)
					}
				}
			})
		}
		asking.Wait()
		if closed := s.count(t, closeWait); s.quick() != nil && s.count(t, established) > 0 {
			eventually(t, "the server to close an idle connection", func() bool { return s.count(t, closeWait) > closed })
		}
	}
}

// passesStreams: on the lane for it, streams and sockets of any number beside
// the fast views; and the app sees that a client left.
func (s *recipeSite) passesStreams(t *testing.T) {
	const streams = 60
	s.gate.set(false)
	defer s.gate.set(true)
	var clients []*rawClient
	for range streams {
		client := dialRaw(t, addrOf(s.holdfast))
		client.get("/rt/events", "")
		for line := ""; line != "data: first\n"; {
			var err error
			if line, err = client.r.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
		clients = append(clients, client)
	}
	s.gate.wantRunning(t, "/rt/events", streams)
	if late := s.askFastViews(t, patience, 4, 5); late > 0 {
		t.Errorf("%d clients' fast views were not answered beside %d streams", late, streams)
	}
	wantEcho(t, dialTunnel(t, addrOf(s.holdfast), "/rt/ws"), websocket.TextMessage, []byte("to the app and back"))
	for _, client := range clients {
		client.leave()
	}
	s.gate.wantRunning(t, "/rt/events", 0)
}

func TestServers_EachRecipeOfThePageDoesWhatItSays(t *testing.T) {
	t.Parallel()
	all := recipes(t)
	if len(all) < 15 {
		t.Fatalf("%d recipes on %s", len(all), slotsPage)
	}
	for _, r := range all {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			s := r.serve(t)
			t.Run("TheServerIsAsTheTableHasIt", s.isAsTheTableHasIt)
			t.Run("FastViewsAreAnsweredBeforeAnySlowOneEnds", s.isolates)
			t.Run("BodiesAreWholeBothWays", s.carriesBodies)
			if !r.asgi() {
				t.Run("PiecesComeAsTheyAreMade", s.streams)
			}
			t.Run("ASlotWhoseClientLeftIsFreeWhenItsViewHasEnded", s.keepsASlotUntilItsViewEnds)
			t.Run("NoRequestFailsAsKeptConnectionsClose", s.failsNothingAsConnectionsClose)
			if r.async() {
				t.Run("StreamsAndSocketsPass", s.passesStreams)
			}
		})
	}
}
