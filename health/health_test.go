package health

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"go.uber.org/goleak"

	"holdfast/internal/histogram"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// process is what a process says of itself: snapshots that the test sets. The
// lanes, targets and questions themselves are tested where they are, on real
// apps in cmd/holdfast.
type process struct {
	state   string
	lanes   []Lane
	targets []Target
	routes  []Route
	bus     Bus
	answer  func(target string) Answer
	asked   atomic.Int32
}

func (p *process) health() *Health {
	return New(Config{
		Instance: "here", Version: "v1",
		State:   func() string { return p.state },
		Lanes:   func() []Lane { return p.lanes },
		Targets: func() []Target { return p.targets },
		Routes:  func() []Route { return p.routes },
		Ask: func(target string, wait time.Duration) Answer {
			p.asked.Add(1)
			return p.answer(target)
		},
		Bus: func() Bus {
			if p.bus == (Bus{}) {
				return Bus{Kind: "memory", Connected: true}
			}
			return p.bus
		},
		Interval: func(string) time.Duration { return time.Second },
		Memory:   func() int64 { return 7 },
		Spool:    func() (int64, uint64) { return 8, 9 },
		Limits:   func() Limits { return Limits{Memory: 100, Spool: 200, Journal: 300} },
		Reloads:  func() (ok, failed uint64) { return 3, 1 },
		Holds: func() Holds {
			return Holds{Open: map[string]int{"stream": 4, "websocket": 5, "response": 6}, GapsTold: 2, Published: 10, Offered: 40, Head: 1760000000000123,
				OutboxBytes: 11, JournalBytes: 12, Inbound: map[string]uint64{"ok": 13, "failed": 0}, Ended: map[string]map[string]uint64{"stream": {"client": 3, "slow": 0}, "websocket": {"client": 1}}}
		},
	})
}

func answered(string) Answer { return Answer{Asked: true, Answered: true} }
func silent(string) Answer   { return Answer{Asked: true, Silent: true} }
func busy(string) Answer     { return Answer{} }
func failed(string) Answer   { return Answer{Asked: true, Err: "it answered 500"} }

func up(upstream, name string, heard time.Duration) Target {
	return Target{Upstream: upstream, Name: name, Up: true, Heard: time.Now().Add(-heard)}
}

// wantReasons: as many reasons as words, each with its own.
func wantReasons(t *testing.T, h *Health, words ...string) {
	t.Helper()
	reasons := h.Ready()
	if len(reasons) != len(words) {
		t.Errorf("%q, want %d reasons", reasons, len(words))
		return
	}
	for i, word := range words {
		if !strings.Contains(reasons[i], word) {
			t.Errorf("%q does not name %s", reasons[i], word)
		}
	}
}

func TestReady_InNoStateButReadyIsAnybodyAsked(t *testing.T) {
	p := &process{answer: answered, targets: []Target{up("app", "a", time.Hour)}}
	h := p.health()
	for _, p.state = range []string{"starting", "draining", "stopped"} {
		wantReasons(t, h, p.state)
	}
	if n := p.asked.Load(); n != 0 {
		t.Errorf("asked %d times", n)
	}
	p.state = "ready"
	wantReasons(t, h)
	if n := p.asked.Load(); n != 1 {
		t.Errorf("asked %d times, want once", n)
	}
}

func TestReady_ATargetThatWasHeardLatelyIsNotAsked(t *testing.T) {
	p := &process{state: "ready", answer: silent, targets: []Target{up("app", "a", 0)}}
	h := p.health()
	wantReasons(t, h)
	if n := p.asked.Load(); n != 0 {
		t.Errorf("asked %d times", n)
	}
	p.targets = []Target{up("app", "a", 2*time.Second)}
	wantReasons(t, h, "upstream app")
}

func TestReady_OneTargetOfAnUpstreamIsEnoughAndEachUpstreamNeedsOne(t *testing.T) {
	down := Target{Upstream: "app", Name: "down", Since: time.Now(), Err: "connection refused"}
	p := &process{state: "ready", answer: answered}
	h := p.health()
	p.targets = []Target{down, up("app", "a", time.Hour)}
	wantReasons(t, h)
	p.targets = []Target{down, up("other", "b", time.Hour)}
	wantReasons(t, h, "upstream app: no target is up and answering; target down")
	p.answer = silent
	wantReasons(t, h, "connection refused", "target b")
	p.answer = busy
	p.targets = []Target{up("app", "c", time.Hour)}
	wantReasons(t, h)
	p.answer = failed
	wantReasons(t, h, "it answered 500")
}

// A target that said nothing has a slot of ours until it has: it is not asked
// again, which would cost another.
func TestReady_ASilentTargetIsAskedOnceUntilItHasAnswered(t *testing.T) {
	p := &process{state: "ready", answer: silent, targets: []Target{up("app", "a", time.Hour)}}
	h := p.health()
	wantReasons(t, h, "target a")
	p.targets[0].Asked = true
	for range 4 {
		wantReasons(t, h, "target a")
	}
	if n := p.asked.Load(); n != 1 {
		t.Errorf("asked %d times, want once", n)
	}
	p.targets[0].Heard, p.targets[0].Asked = time.Now(), false // the old question's answer
	wantReasons(t, h)
	p.targets[0].Heard = time.Now().Add(-time.Hour)
	p.answer = answered
	wantReasons(t, h)
	if n := p.asked.Load(); n != 2 {
		t.Errorf("asked %d times, want twice", n)
	}
}

// However many ask for /ready at once, each target is asked once, and all wait
// for the same answer.
func TestReady_ManyAtOnceAreOneQuestion(t *testing.T) {
	release := make(chan struct{})
	p := &process{state: "ready", targets: []Target{up("app", "a", time.Hour), up("app", "b", time.Hour)}}
	p.answer = func(string) Answer { <-release; return Answer{Asked: true, Err: "bad"} }
	h := p.health()
	var callers sync.WaitGroup
	var told atomic.Int32
	call := func() {
		if reasons := h.Ready(); len(reasons) == 1 && strings.Contains(reasons[0], "bad") {
			told.Add(1)
		}
	}
	callers.Go(call)
	for p.asked.Load() < 2 {
		<-time.After(time.Millisecond)
	}
	for range 20 {
		callers.Go(call)
	}
	close(release)
	callers.Wait()
	if told.Load() != 21 {
		t.Errorf("%d of 21 were told why", told.Load())
	}
	// Who came when the first question was over may have begun a second.
	if n := p.asked.Load(); n%2 != 0 || n > 42 {
		t.Errorf("asked %d times", n)
	}
}

func TestReady_ALaneWithNothingButAbandonedSlotsIsLost(t *testing.T) {
	p := &process{state: "ready", answer: answered, targets: []Target{up("app", "a", 0)}}
	h := p.health()
	p.lanes = []Lane{{Name: "web", Slots: 2, Abandoned: 1}, {Name: "slow", Slots: 2, Abandoned: 2}, {Name: "shrunk", Slots: 1, Abandoned: 3}}
	wantReasons(t, h, "lane slow", "lane shrunk")
}

func TestReadyBody_Is200Or503WithTheReasons(t *testing.T) {
	if status, body := ReadyBody(nil); status != 200 || string(body) != `{"status":"ready"}`+"\n" {
		t.Errorf("%d %s", status, body)
	}
	if status, body := ReadyBody([]string{"x"}); status != 503 || string(body) != `{"status":"not ready","reasons":["x"]}`+"\n" {
		t.Errorf("%d %s", status, body)
	}
}

// Whoever is far is told that the process is well, and nothing about it.
func TestBody_TellsOnlyWhoIsNear(t *testing.T) {
	p := &process{state: "ready", lanes: []Lane{{Name: "web", Slots: 4, InUse: 3, Waiting: 2, Abandoned: 1}}}
	h := p.health()
	if body := h.Body(false); string(body) != `{"status":"ok"}`+"\n" {
		t.Errorf("%s", body)
	}
	var near map[string]any
	if err := json.Unmarshal(h.Body(true), &near); err != nil {
		t.Fatal(err)
	}
	want := []string{"instance", "lanes", "long_polls", "sockets", "status", "subscribers", "uptime_s", "version"}
	if got := slices.Sorted(maps.Keys(near)); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	lane := near["lanes"].(map[string]any)["web"].(map[string]any)
	if !maps.Equal(lane, map[string]any{"slots": 4.0, "in_use": 3.0, "waiting": 2.0, "abandoned": 1.0}) {
		t.Errorf("%v", lane)
	}
}

func TestMetrics_AreTheSnapshots(t *testing.T) {
	var waits histogram.Histogram
	waits.Observe(0)
	waits.Observe(30 * time.Millisecond)
	waits.Observe(time.Hour)
	p := &process{state: "ready", answer: answered, targets: []Target{up("app", "http://a", 0), {Upstream: "app", Name: "http://b"}}}
	p.lanes = []Lane{{Name: "web", Slots: 4, InUse: 3, Waiting: 2, Abandoned: 1, Parked: 2, ClosedOnView: 5, Retried: 6, Waited: waits.Snapshot(),
		Refused: map[string]uint64{"lane_full": 8, "draining": 0}}, {Name: "slow", Slots: 1, Parked: 1, Retried: 1}}
	p.routes = []Route{{Name: `/quote"\`, Codes: map[int]uint64{200: 9, 404: 3, 499: 1}, Took: waits.Snapshot()}}
	kind, body, err := p.health().Metrics()
	if err != nil || !strings.HasPrefix(kind, "text/plain; version=0.0.4") {
		t.Fatal(kind, err)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	if _, err := parser.TextToMetricFamilies(bytes.NewReader(body)); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		`holdfast_lane_slots{lane="web"} 4`, `holdfast_lane_in_use{lane="web"} 3`, `holdfast_lane_waiting{lane="web"} 2`,
		`holdfast_lane_abandoned{lane="web"} 1`, `holdfast_lane_closed_on_view_total{lane="web"} 5`,
		`holdfast_lane_refused_total{lane="web",reason="lane_full"} 8`, `holdfast_lane_refused_total{lane="web",reason="draining"} 0`,
		`holdfast_lane_wait_seconds_bucket{lane="web",le="0.025"} 1`, `holdfast_lane_wait_seconds_bucket{lane="web",le="0.05"} 2`,
		`holdfast_lane_wait_seconds_bucket{lane="web",le="60"} 2`, `holdfast_lane_wait_seconds_bucket{lane="web",le="+Inf"} 3`,
		`holdfast_lane_wait_seconds_sum{lane="web"} 3600.03`, `holdfast_lane_wait_seconds_count{lane="web"} 3`,
		`holdfast_holds_open{kind="stream"} 4`, `holdfast_holds_open{kind="websocket"} 5`, `holdfast_holds_open{kind="response"} 6`,
		`holdfast_holds_ended_total{kind="stream",reason="client"} 3`, `holdfast_holds_ended_total{kind="stream",reason="slow"} 0`,
		`holdfast_gaps_told_total 2`, `holdfast_events_published_total 10`, `holdfast_events_offered_total 40`,
		`holdfast_inbound_total{result="ok"} 13`, `holdfast_outbox_bytes 11`, `holdfast_journal_bytes 12`, `holdfast_bus_connected 1`, `holdfast_parked 3`, `holdfast_retried_total 7`, `holdfast_memory_bytes 7`,
		`holdfast_requests_total{code="200",route="/quote\"\\"} 9`, `holdfast_requests_total{code="499",route="/quote\"\\"} 1`,
		`holdfast_request_seconds_count{route="/quote\"\\"} 3`,
		`holdfast_upstream_up{target="http://a"} 1`, `holdfast_upstream_up{target="http://b"} 0`,
		`holdfast_reload_total{result="ok"} 3`, `holdfast_reload_total{result="failed"} 1`,
		`holdfast_spool_bytes 8`, `holdfast_spool_refused_total 9`,
		`holdfast_memory_limit_bytes 100`, `holdfast_spool_limit_bytes 200`, `holdfast_journal_limit_bytes 300`,
		`holdfast_requests_total{code="404",route="/quote\"\\"} 3`, `holdfast_requests_total{code="503",route="/quote\"\\"} 0`,
		`holdfast_build_info{instance="here",version="v1"} 1`,
	} {
		if !strings.Contains("\n"+string(body), "\n"+line+"\n") {
			t.Errorf("missing: %s", line)
		}
	}
	if t.Failed() {
		t.Logf("%s", body)
	}
}

// A target that two upstreams have is one series.
func TestMetrics_OfATargetThatTwoUpstreamsHave(t *testing.T) {
	p := &process{state: "ready", targets: []Target{up("app", "http://a", 0), up("other", "http://a", 0)}}
	if _, body, err := p.health().Metrics(); err != nil || !strings.Contains(string(body), `holdfast_upstream_up{target="http://a"} 1`) {
		t.Errorf("%v %s", err, body)
	}
}
