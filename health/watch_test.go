package health

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/internal/histogram"
)

// watched is a process whose counts the test sets, and a Watch of it.
type watched struct {
	*process
	t        *testing.T
	held     Holds
	channels []Channel
	names    int
	drain    time.Time
	looks    int
	watch    *Watch
	now      time.Time
}

// newWatched is a process that started so long ago.
func newWatched(t *testing.T, ago time.Duration) *watched {
	w := &watched{process: &process{state: "ready"}, t: t}
	h := w.health()
	h.cfg.Holds = func() Holds { w.looks++; return w.held }
	h.cfg.Channels = func(most int) ([]Channel, int) { return w.channels[:min(most, len(w.channels))], w.names }
	h.cfg.Drain = func() (time.Time, time.Duration) { return w.drain, 25 * time.Second }
	w.now = h.started.Add(ago)
	w.watch = h.NewWatch()
	return w
}

// look gives the view of the present.
func (w *watched) look() (v view) {
	w.t.Helper()
	line := w.watch.Look(w.now).JSON(true)
	if err := json.Unmarshal(line, &v); err != nil {
		w.t.Fatalf("%v in %s", err, line)
	}
	if slices.Contains(line, '\n') {
		w.t.Errorf("a view has more than one line: %s", line)
	}
	return v
}

func (w *watched) pass(d time.Duration) { w.now = w.now.Add(d) }

func (w *watched) setRefused(n uint64) {
	w.lanes = []Lane{{Name: "web", Slots: 1, Refused: map[string]uint64{"lane_full": n, "draining": 0}}}
}

func TestWatch_LatelyIsTheLastMinuteOrSo(t *testing.T) {
	w := newWatched(t, time.Hour)
	var got []string
	for i := range 12 {
		w.setRefused(uint64(10 * i))
		v := w.look()
		ms := int64(-1)
		if v.Lately != nil {
			ms = *v.Lately / 1000
		}
		got = append(got, fmt.Sprintf("%d of %d in %d", v.Lanes[0].Refused["lane_full"].Lately, v.Lanes[0].Refused["lane_full"].Total, ms))
		w.pass(10 * time.Second)
	}
	want := []string{"0 of 0 in -1", "10 of 10 in 10", "20 of 20 in 20", "30 of 30 in 30", "40 of 40 in 40", "50 of 50 in 50", "60 of 60 in 60", "70 of 70 in 70",
		"70 of 80 in 70", "70 of 90 in 70", "70 of 100 in 70", "70 of 110 in 70"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if n := len(w.watch.marks); n > 8 {
		t.Errorf("%d marks are kept", n)
	}
	// The lane was taken out by a reload, and is back.
	w.setRefused(5)
	if v := w.look(); v.Lanes[0].Refused["lane_full"] != (counter{5, 5}) {
		t.Errorf("a counter that began anew: %v", v.Lanes[0].Refused)
	}
	// Nobody looked for long: what was before is no "lately".
	w.pass(time.Hour)
	w.setRefused(500)
	if v := w.look(); v.Lately != nil || v.Lanes[0].Refused["lane_full"] != (counter{Total: 500}) {
		t.Errorf("after an hour: %v %v", v.Lately, v.Lanes[0].Refused)
	}
}

// A process that has just started has counted nothing before: its first view knows what is of lately.
func TestWatch_OfAYoungProcessCountsFromItsStart(t *testing.T) {
	w := newWatched(t, 20*time.Second)
	w.setRefused(3)
	w.held = Holds{Published: 40, Offered: 100, Ended: map[string]map[string]uint64{"stream": {"slow": 2, "client": 0}, "websocket": {"slow": 1}}}
	v := w.look()
	if *v.Lately != 20_000 || v.Lanes[0].Refused["lane_full"] != (counter{3, 3}) || v.Events.Published != (counter{40, 40}) || *v.Events.PerS != 2 || *v.Events.OfferedS != 5 {
		t.Errorf("%+v", v)
	}
	if !maps.Equal(v.Holds.Ended, map[string]counter{"slow": {3, 3}}) {
		t.Errorf("ends: %v", v.Holds.Ended)
	}
}

func TestWatch_ARouteHasItsRateItsTimesAndItsErrors(t *testing.T) {
	w := newWatched(t, time.Hour)
	var took histogram.Histogram
	took.Observe(20 * time.Second) // before anybody looked
	w.routes = []Route{{Name: "/", Lane: "web", Codes: map[int]uint64{200: 1}, Took: took.Snapshot()}}
	if v := w.look(); v.Routes[0].P50 != nil || v.Routes[0].Rate != nil || v.Routes[0].Requests != (counter{Total: 1}) {
		t.Errorf("at first: %+v", v.Routes[0])
	}
	for range 98 {
		took.Observe(20 * time.Millisecond)
	}
	took.Observe(2 * time.Minute)
	took.Observe(2 * time.Minute)
	w.routes = []Route{{Name: "/", Lane: "web", Codes: map[int]uint64{200: 96, 503: 3, 500: 2}, Refused: map[string]uint64{"lane_full": 3}, Failed: 2, Took: took.Snapshot()}}
	w.pass(10 * time.Second)
	r := w.look().Routes[0]
	if *r.Rate != 10 || r.Requests != (counter{101, 100}) || r.Failed != (counter{5, 5}) || !maps.Equal(r.Errors, map[string]counter{"lane_full": {3, 3}, "app": {2, 2}}) {
		t.Errorf("%+v", r)
	}
	if *r.P50 < 10 || *r.P50 > 25 || *r.P99 != 60_000 || !r.Beyond {
		t.Errorf("p50 is %v, p99 %v beyond %v", *r.P50, *r.P99, r.Beyond)
	}
	w.pass(10 * time.Second)
	w.look()
	w.pass(10 * time.Second)
	if r := w.look().Routes[0]; *r.Rate != 0 {
		t.Errorf("ten seconds without a request are %v a second", *r.Rate)
	}
}

func TestQuantile_LiesInItsBucket(t *testing.T) {
	var before, now histogram.Histogram
	for range 1000 {
		before.Observe(time.Minute)
		now.Observe(time.Minute)
	}
	for i := range 100 {
		now.Observe(time.Duration(i+1) * time.Millisecond)
	}
	for _, c := range []struct{ q, low, high float64 }{{0.01, 0.5, 1}, {0.5, 25, 50}, {0.99, 50, 100}, {1, 50, 100}} {
		ms, beyond := quantile(now.Snapshot(), before.Snapshot(), c.q)
		if beyond || *ms <= c.low || *ms > c.high {
			t.Errorf("%v of 1 to 100 ms is %v (beyond %v), want it in (%v, %v]", c.q, *ms, beyond, c.low, c.high)
		}
	}
	if ms, _ := quantile(now.Snapshot(), now.Snapshot(), 0.5); ms != nil {
		t.Errorf("of nothing it is %v", *ms)
	}
}

func TestWatch_ALaneHasItsSlots(t *testing.T) {
	w := newWatched(t, time.Hour)
	w.lanes = []Lane{{Name: "web", Upstream: "app", Slots: 6, Waiting: 3, Queue: 5, OldestWait: 1500 * time.Millisecond, QueueTimeout: 10 * time.Second, States: []Slot{
		{State: "busy", For: time.Second}, {State: "busy", For: 3 * time.Second}, {State: "free"}, {State: "abandoned", For: time.Minute}, {State: "down"}, {State: "down"}}},
		{Name: "many", Slots: viewSlots + 1, States: slices.Repeat([]Slot{{State: "free"}}, viewSlots+1)}}
	v := w.look()
	l := v.Lanes[0]
	if l.States != "b2f1a1d2" || !maps.Equal(l.Counts, map[string]int{"busy": 2, "free": 1, "abandoned": 1, "down": 2}) ||
		!maps.Equal(l.Longest, map[string]int64{"busy": 3000, "abandoned": 60_000}) || l.Oldest != 1500 || l.QueueTime != 10_000 || l.Waiting != 3 || l.Queue != 5 {
		t.Errorf("%+v", l)
	}
	if l := v.Lanes[1]; l.States != "" || l.Counts["free"] != viewSlots+1 {
		t.Errorf("more slots than are drawn: %+v", l)
	}
}

func TestWatch_NamesOfChannelsAreLeftOutWhereTheyMayNotBeTold(t *testing.T) {
	w := newWatched(t, time.Hour)
	w.channels, w.names = []Channel{{"user-42", 3}}, 7
	v := w.watch.Look(w.now)
	if bare := string(v.JSON(false)); strings.Contains(bare, "user-42") || !strings.Contains(bare, `"channels":7,"named":false`) {
		t.Errorf("without names: %s", bare)
	}
	if named := string(v.JSON(true)); !strings.Contains(named, `"channels":7,"named":true,"top":[{"name":"user-42","holds":3}]`) {
		t.Errorf("with names: %s", named)
	}
}

// Who opens the feed again and again is given what was made already.
func TestWatch_RecentIsTheLastViewAsLongAsItIsFresh(t *testing.T) {
	w := newWatched(t, time.Hour)
	first := w.watch.Recent(w.now)
	if w.pass(freshness - 1); w.watch.Recent(w.now) != first {
		t.Error("another one was made for who came at once")
	}
	if w.pass(1); w.watch.Recent(w.now) == first {
		t.Error("an old one is given")
	}
	if w.pass(-time.Hour); w.watch.Recent(w.now) == first || w.looks != 3 {
		t.Errorf("%d looks", w.looks)
	}
	if w.watch.Look(w.now); w.looks != 4 {
		t.Error("Look gives an old one")
	}
}

// What is wrong has its place, however much there is that is not.
func TestWatch_WhatIsBeyondTheBoundsIsCountedAndTheWorstIsShown(t *testing.T) {
	w := newWatched(t, 30*time.Second)
	long := strings.Repeat("ä", 500)
	reasons := make(map[string]uint64)
	for i := range 30 {
		reasons[fmt.Sprintf("a_reason_of_some_length_%02d", i)] = 1 << 40
	}
	for i := range 150 {
		l := Lane{Name: fmt.Sprintf("lane-%03d", i), Slots: viewSlots, Refused: map[string]uint64{"lane_full": 0}}
		for j := range viewSlots {
			l.States = append(l.States, Slot{State: []string{"free", "busy"}[j%2]})
		}
		w.lanes = append(w.lanes, l)
		w.targets = append(w.targets, Target{Upstream: "app", Name: fmt.Sprint("http://", i), Up: i != 149, Err: long})
	}
	w.lanes[149].Refused = map[string]uint64{"lane_full": 1}
	w.lanes[148].Waiting = 1
	for i := range 1000 {
		w.routes = append(w.routes, Route{Name: fmt.Sprint("/", i, long), Codes: map[int]uint64{200: 1}, Refused: reasons, Took: histogram.Snapshot{Count: 1}})
	}
	w.routes[999].Codes = map[int]uint64{502: 1}
	for i := range 100 {
		w.channels = append(w.channels, Channel{fmt.Sprint(i, long), 1})
	}
	w.names = 10_000
	v := w.look()
	if len(v.Lanes) != viewLanes || v.MoreLanes != 50 || v.Lanes[98].Name != "lane-148" || v.Lanes[99].Name != "lane-149" || v.Lanes[0].Name != "lane-000" {
		t.Errorf("%d lanes and %d more, the last are %s %s", len(v.Lanes), v.MoreLanes, v.Lanes[98].Name, v.Lanes[99].Name)
	}
	if len(v.Targets) != viewTargets || v.MoreTargets != 100 || v.Targets[49].Name != "http://149" || v.Targets[49].Up {
		t.Errorf("%d targets and %d more, the last is %+v", len(v.Targets), v.MoreTargets, v.Targets[49])
	}
	if len(v.Routes) != viewRoutes || v.MoreRoutes != 950 || !strings.HasPrefix(v.Routes[0].Name, "/999ä") {
		t.Errorf("%d routes and %d more, the first is %s", len(v.Routes), v.MoreRoutes, v.Routes[0].Name)
	}
	if len(v.Holds.Top) != viewChannels || v.Holds.Channels != 10_000 {
		t.Errorf("%d channels of %d", len(v.Holds.Top), v.Holds.Channels)
	}
	if name := v.Holds.Top[0].Name; len(name) > viewText+len("…") || !strings.HasSuffix(name, "ä…") {
		t.Errorf("a name of %d bytes: %q", len(name), name)
	}
	size := len(w.watch.Look(w.now).JSON(true))
	if size > 256<<10 {
		t.Errorf("a view has %d bytes", size)
	}
	t.Logf("a view has %d bytes", size)
}

func TestWatch_SaysHowTheDrainIs(t *testing.T) {
	w := newWatched(t, time.Hour)
	if v := w.look(); v.Drain != nil {
		t.Errorf("it drains: %+v", v.Drain)
	}
	w.drain = w.now.Add(-3 * time.Second)
	if v := w.look(); *v.Drain != (drainView{3000, 25_000}) {
		t.Errorf("%+v", v.Drain)
	}
}

func TestShort_CutsBetweenCharacters(t *testing.T) {
	for n := range 8 {
		text := strings.Repeat("x", viewText-4+n) + "äää"
		if got := short(text); strings.ToValidUTF8(got, "?") != got || len(got) > viewText+len("…") {
			t.Errorf("%d: %q", n, got)
		}
	}
	if got := short(strings.Repeat("\x80", 300)); got != "…" {
		t.Errorf("bytes that are no text: %q", got)
	}
}
