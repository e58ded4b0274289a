package main

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// The dashboard's feed, at the protocol.

func TestFeed_IsInNoChannelNoMetricAndNoJournal(t *testing.T) {
	t.Parallel()
	s := startSite(t, drainLanes, &app{addr: freeAddress(t)})
	publish := s.publishLn.Addr().String()
	before := s.holds.Position()
	f := openFeed(t, s.admin())
	if v := f.wantView(); v.State != "starting" || f.response.Header.Get("Content-Type") != "text/event-stream" || !strings.Contains(f.response.Header.Get("Cache-Control"), "no-store") {
		t.Errorf("%s %s", v.raw, f.response.Header)
	}
	f.wantView()
	if shown := string(wantGet(t, onceClient(), "http://"+publish+"/channels")); !strings.Contains(shown, `"channels":{}`) {
		t.Errorf("the channels are %s", shown)
	}
	for _, channel := range []string{feedNamed, feedBare} {
		if _, reached := publishTo(t, publish, channel, "not for the dashboard"); reached != 0 {
			t.Errorf("an event for the channel %q reached %d", channel, reached)
		}
		if ended := post(t, publish, "/end", fmt.Sprintf(`{"channel": %q}`, channel)); !strings.Contains(ended, `"ended":0`) {
			t.Errorf("/end of %q: %s", channel, ended)
		}
	}
	after := f.wantView()
	if strings.Contains(after.raw, "not for the dashboard") || after.Holds.Open["stream"] != 0 || after.Holds.Channels != 0 {
		t.Errorf("a view after that: %s", after.raw)
	}
	for series, want := range map[string]float64{`holdfast_holds_open{kind="stream"}`: 0, "holdfast_events_published_total": 2, "holdfast_events_offered_total": 0} {
		if got := metric(t, s.admin(), series); got != want {
			t.Errorf("%s is %v, want %v", series, got, want)
		}
	}
	if s.holds.Position() == before {
		t.Error("the two events have no ids: that shows nothing")
	}
}

// post posts JSON and gives the answer's body.
func post(t *testing.T, addr, path, body string) string {
	t.Helper()
	response, err := onceClient().Post("http://"+addr+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(answer)
}

// The page itself is anybody's who can connect: it says nothing of the process.
func TestFeed_NeedsAKeyWhereAWebPageMayAskAndThePageDoesNot(t *testing.T) {
	t.Parallel()
	s := keyedAdmin(t, "localhost:0", &app{addr: freeAddress(t)})
	addr := s.admin()
	for _, c := range []struct {
		fields []string
		status int
	}{
		{nil, 200}, {[]string{"Host", "localhost"}, 200}, {[]string{"Host", "evil.example"}, 401},
		{[]string{"Host", "evil.example", "Authorization", "Bearer second-key"}, 200},
		{[]string{"Host", "evil.example", "Authorization", "Bearer second-ke"}, 401},
		{[]string{"Origin", "http://evil.example"}, 401}, {[]string{"Origin", "http://evil.example", "Authorization", "Bearer first-key"}, 200},
	} {
		f := openFeed(t, addr, c.fields...)
		if got := f.response.StatusCode; got != c.status || got == 401 && f.response.Header.Get("Holdfast-Reason") != "unauthorized" {
			t.Errorf("%q: %d %s, want %d", c.fields, got, f.response.Header, c.status)
		}
		if c.status == 200 {
			f.wantView()
		}
	}
	wantGuarded(t, func() *rawClient { return dialRaw(t, addr) }, []adminRequest{
		{"GET", "/", addr, "", 200}, {"GET", "/", "evil.example", "", 200}, {"HEAD", "/", addr, "", 200}, {"POST", "/", addr, "", 405},
		{"HEAD", "/feed", addr, "", 200}, {"POST", "/feed", addr, "", 405}, {"GET", "/feed/names", addr, "", 404},
	})
}

// From another machine: see TestAdmin_FromAnotherMachineWhatIsLocalNeedsAKey.
func TestFeed_ChannelsAreNamedOnlyToWhoMayAct(t *testing.T) {
	t.Parallel()
	s := startSite(t, drainLanes, &app{addr: freeAddress(t)})
	s.stopAll(0)
	s.base = "listen: \"127.0.0.1:0\"\nadmin: {listen: \"10.77.77.77:0\", keys: [first-key]}\npublish: {listen: \"\"}\n"
	s.write(drainLanes, &app{addr: freeAddress(t)})
	skip, done := "", make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for good: the thread ends with this goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			skip = "no network namespace may be made here: " + err.Error()
			return
		}
		for _, args := range []string{"link set lo up", "addr add 10.77.77.77/32 dev lo"} {
			if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
				skip = fmt.Sprintf("ip %s: %v %s", args, err, out)
				return
			}
		}
		far := restarted(t, s)
		for fields, named := range map[string]bool{"": false, noKey: false, key1: true} {
			client := dialRaw(t, far.admin())
			client.send("GET /feed HTTP/1.1\r\nHost: %s\r\n%s\r\n", far.admin(), fields)
			response, err := http.ReadResponse(client.r, &http.Request{Method: "GET"})
			if err != nil {
				t.Error(err)
				return
			}
			f := &feedClient{t, response, bufio.NewScanner(response.Body)}
			f.lines.Buffer(nil, 1<<20)
			for _, which := range []string{"first", "second"} {
				if v, ok, err := f.next(); !ok || err != nil || v.Holds.Named != named {
					t.Errorf("%q: the %s view has names: %v, want %v (%v)", fields, which, v.Holds.Named, named, err)
				}
			}
			client.Close()
		}
	}()
	<-done
	if skip != "" {
		t.Skip(skip)
	}
}

func TestFeed_IsMadeOnlyWhileSomebodyWatches(t *testing.T) {
	t.Parallel()
	s := startSite(t, drainLanes, &app{addr: freeAddress(t)})
	running := func() bool {
		s.feed.mu.Lock()
		defer s.feed.mu.Unlock()
		return s.feed.running
	}
	if running() {
		t.Error("it runs, and nobody has come")
	}
	for range 2 {
		one, other := openFeed(t, s.admin()), openFeed(t, s.admin())
		one.wantView()
		other.wantView()
		one.response.Body.Close()
		other.wantView()
		other.wantView()
		if !running() {
			t.Error("it does not run, and one of two watches")
		}
		other.response.Body.Close()
		eventually(t, "the end of what makes the views", func() bool { return !running() })
	}
}

func TestFeed_OneWatcherTooManyIsRefused(t *testing.T) {
	t.Parallel()
	s := startSite(t, drainLanes, &app{addr: freeAddress(t)})
	var all []*feedClient
	for range feedWatchers {
		f := openFeed(t, s.admin())
		f.wantView()
		all = append(all, f)
	}
	late := openFeed(t, s.admin())
	if late.response.StatusCode != 503 || late.response.Header.Get("Holdfast-Reason") != "too_many_holds" {
		t.Errorf("one too many: %d %s", late.response.StatusCode, late.response.Header)
	}
	all[0].response.Body.Close()
	eventually(t, "a place", func() bool {
		f := openFeed(t, s.admin())
		defer f.response.Body.Close()
		return f.response.StatusCode == 200
	})
}

// Watchers are told of the drain as long as it lasts, and then their feed ends, as an answer does that is whole. One
// that reads nothing keeps nobody waiting, and its cut is nothing to tell.
func TestFeed_EndsCleanlyBehindTheDrainAndHoldsNothingUp(t *testing.T) {
	t.Parallel()
	a, release := startHanging(t)
	c := startReady(t, drainLanes, a)
	f, idle := openFeed(t, c.admin(t)), dialRaw(t, c.admin(t))
	idle.send("GET /feed HTTP/1.1\r\nHost: localhost\r\n\r\n")
	f.wantView()
	running := dialRaw(t, c.addr)
	running.get("/hang", "runs")
	f.until("a busy slot", func(v viewShown) bool { return strings.Contains(v.Lanes[1].States, "b1") })
	c.signal(t, syscall.SIGTERM)
	f.until("draining", func(v viewShown) bool { return v.State == "draining" && strings.Contains(v.Lanes[1].States, "b1") })
	release()
	running.wantLast(200)
	var last viewShown
	for {
		v, ok, err := f.next()
		if !ok {
			if err != nil {
				t.Errorf("it ended with %v", err)
			}
			break
		}
		last = v
	}
	if last.State != "draining" || strings.Contains(last.Lanes[1].States, "b") {
		t.Errorf("the last view: %s", last.raw)
	}
	c.wantExit(t, exitOK)
	for _, line := range logLines(t, c.log.String(), "") {
		if line["level"] != "info" {
			t.Errorf("the log has %v", line)
		}
	}
}

// A hundred lanes of a hundred slots, a thousand routes and ten thousand channels: what is beyond the bounds is counted.
func TestFeed_OfALargeConfigurationIsBounded(t *testing.T) {
	t.Parallel()
	s := startLarge(t)
	f := openFeed(t, s.admin())
	v := f.until("all channels", func(v viewShown) bool { return v.Holds.Channels == largeChannels })
	if len(v.Lanes) != largeLanes || len(v.Holds.Top) != 20 || v.Holds.Open["stream"] == 0 || !strings.Contains(v.raw, `"more_routes":953`) {
		t.Errorf("%d lanes, %d channels, %.300s", len(v.Lanes), len(v.Holds.Top), v.raw)
	}
	if most := feedOutbox / 2; len(v.raw) > most {
		t.Errorf("a view has %d bytes, want at most %d", len(v.raw), most)
	}
	t.Logf("a view has %d bytes", len(v.raw))
}
