package health

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"holdfast/internal/histogram"
)

// What a view has. Times are in milliseconds before the view, so that nobody's
// clock matters; null is what is not known yet.
type view struct {
	Page     string `json:"page"`
	Instance string `json:"instance"`
	Version  string `json:"version"`
	State    string `json:"state"`
	Uptime   int64  `json:"uptime_s"`
	// Lately is how far back "lately" goes.
	Lately      *int64       `json:"lately_ms"`
	Drain       *drainView   `json:"drain,omitempty"`
	Requests    *float64     `json:"requests_per_s"`
	Lanes       []laneView   `json:"lanes"`
	MoreLanes   int          `json:"more_lanes,omitempty"`
	Targets     []targetView `json:"targets"`
	MoreTargets int          `json:"more_targets,omitempty"`
	Routes      []routeView  `json:"routes"`
	MoreRoutes  int          `json:"more_routes,omitempty"`
	Holds       holdsView    `json:"holds"`
	Events      eventsView   `json:"events"`
	Bytes       bytesView    `json:"bytes"`
	Bus         *busView     `json:"bus,omitempty"` // nil: it is memory
}

type (
	drainView struct {
		For   int64 `json:"ms"`
		Bound int64 `json:"bound_ms"`
	}
	laneView struct {
		Name     string `json:"name"`
		Upstream string `json:"upstream"`
		Stream   bool   `json:"stream,omitempty"`
		Slots    int    `json:"slots"`
		// States has a letter for each run of slots that are alike, and how long
		// it is: f3b12 is three free ones and twelve busy ones. "": there are
		// more slots than are drawn.
		States    string             `json:"states"`
		Counts    map[string]int     `json:"counts"`
		Longest   map[string]int64   `json:"longest_ms"` // of the busy and the abandoned ones
		Waiting   int                `json:"waiting"`
		Queue     int                `json:"queue"`
		Oldest    int64              `json:"oldest_ms"`
		QueueTime int64              `json:"queue_timeout_ms"`
		Parked    int                `json:"parked,omitempty"`
		Refused   map[string]counter `json:"refused"` // what is 0 is left out
	}
	// counter is a count since the start, and how much of it is of lately.
	counter struct {
		Total  uint64 `json:"n"`
		Lately uint64 `json:"lately,omitempty"`
	}
	targetView struct {
		Name     string `json:"name"`
		Upstream string `json:"upstream"`
		Up       bool   `json:"up"`
		For      *int64 `json:"ms"`
		Err      string `json:"last_error,omitempty"`
	}
	routeView struct {
		Name     string             `json:"name"`
		Lane     string             `json:"lane,omitempty"`
		Rate     *float64           `json:"per_s"`
		Requests counter            `json:"requests"`
		Failed   counter            `json:"failed"` // 500 and above, whoever answered
		P50      *float64           `json:"p50_ms"` // of lately
		P99      *float64           `json:"p99_ms"`
		Beyond   bool               `json:"p99_beyond,omitempty"` // it is more than that
		Errors   map[string]counter `json:"errors"`               // Holdfast's by reason, and the app's: "app"
	}
	holdsView struct {
		Open     map[string]int     `json:"open"`
		Limit    int                `json:"limit"` // 0: none
		Ended    map[string]counter `json:"ended"`
		Gaps     counter            `json:"gaps_told"`
		Channels int                `json:"channels"`
		Named    bool               `json:"named"` // Top may be shown
		Top      []channelView      `json:"top,omitempty"`
	}
	channelView struct {
		Name  string `json:"name"`
		Holds int    `json:"holds"`
	}
	eventsView struct {
		Published counter  `json:"published"`
		Offered   counter  `json:"offered"`
		PerS      *float64 `json:"published_per_s"`
		OfferedS  *float64 `json:"offered_per_s"`
	}
	busView struct {
		Kind      string `json:"kind"`
		Connected bool   `json:"connected"`
	}
	bytesView struct {
		Outbox      int64   `json:"outbox"`
		Journal     int64   `json:"journal"`
		JournalMost int64   `json:"journal_limit"`
		Memory      int64   `json:"memory"`
		MemoryMost  int64   `json:"memory_limit"`
		Spool       int64   `json:"spool"`
		SpoolMost   int64   `json:"spool_limit"`
		NoRoom      counter `json:"no_room"` // how often neither memory nor spool had room
	}
)

// view renders a reading beside what was counted before. Either mark may be nil.
func (r *reading) view(since, rate *mark) *view {
	c := &r.h.cfg
	v := &view{Instance: short(c.Instance), Version: c.Version, State: c.State(), Uptime: r.h.uptime(), Lately: r.age(since)}
	if b := c.Bus(); b.Kind != "memory" {
		v.Bus = &busView{b.Kind, b.Connected}
	}
	if begun, bound := c.Drain(); !begun.IsZero() {
		v.Drain = &drainView{r.now.Sub(begun).Milliseconds(), bound.Milliseconds()}
	}
	v.Lanes, v.MoreLanes = r.laneViews(since)
	v.Targets, v.MoreTargets = r.targetViews()
	v.Routes, v.MoreRoutes = r.routeViews(since, rate)
	v.Requests = r.perSecond(rate, func(m *mark) (n uint64) {
		for _, route := range r.routes {
			n += more(route.Took.Count, m.routes[route.Name].Took.Count)
		}
		return n
	})
	v.Holds = r.holdsView(since)
	before := since.orZero()
	v.Events = eventsView{Published: lately(r.held.Published, before.held.Published, since), Offered: lately(r.held.Offered, before.held.Offered, since),
		PerS:     r.perSecond(rate, func(m *mark) uint64 { return more(r.held.Published, m.held.Published) }),
		OfferedS: r.perSecond(rate, func(m *mark) uint64 { return more(r.held.Offered, m.held.Offered) })}
	v.Bytes = bytesView{Outbox: r.held.OutboxBytes, Journal: r.held.JournalBytes, JournalMost: r.limits.Journal, Memory: r.memory, MemoryMost: r.limits.Memory,
		Spool: r.spool, SpoolMost: r.limits.Spool, NoRoom: lately(r.fails, before.fails, since)}
	return v
}

func (m *mark) orZero() mark {
	if m == nil {
		return mark{}
	}
	return *m
}

// age is how old a mark is, in milliseconds; nil: there is none.
func (r *reading) age(m *mark) *int64 {
	if m == nil {
		return nil
	}
	ms := r.now.Sub(m.at).Milliseconds()
	return &ms
}

func (r *reading) perSecond(m *mark, grown func(*mark) uint64) *float64 {
	if m == nil {
		return nil
	}
	rate := math.Round(float64(grown(m))/r.now.Sub(m.at).Seconds()*100) / 100
	return &rate
}

// lately is a counter beside what it was at a mark; without one nothing is of lately.
func lately(now, before uint64, since *mark) counter {
	if since == nil {
		return counter{Total: now}
	}
	return counter{now, more(now, before)}
}

// counters are those that are not 0.
func counters(now, before map[string]uint64, since *mark) map[string]counter {
	all := make(map[string]counter)
	for word, n := range now {
		if n > 0 {
			all[word] = lately(n, before[word], since)
		}
	}
	return all
}

// worst keeps so many of what there is, those with most trouble, in the order
// that they had.
func worst[T any](all []T, most int, trouble func(*T) int) (kept []T, left int) {
	if len(all) <= most {
		return all, 0
	}
	places := make([]int, len(all))
	for i := range places {
		places[i] = i
	}
	slices.SortStableFunc(places, func(a, b int) int { return cmp.Compare(trouble(&all[b]), trouble(&all[a])) })
	for _, i := range slices.Sorted(slices.Values(places[:most])) {
		kept = append(kept, all[i])
	}
	return kept, len(all) - most
}

func (r *reading) laneViews(since *mark) ([]laneView, int) {
	before := since.orZero()
	views := make([]laneView, len(r.lanes))
	for i, l := range r.lanes {
		v := laneView{Name: short(l.Name), Upstream: short(l.Upstream), Stream: l.Stream, Slots: l.Slots, Counts: make(map[string]int), Longest: make(map[string]int64),
			Waiting: l.Waiting, Queue: l.Queue, Oldest: l.OldestWait.Milliseconds(), QueueTime: l.QueueTimeout.Milliseconds(), Parked: l.Parked,
			Refused: counters(l.Refused, before.lanes[l.Name], since)}
		for _, slot := range l.States {
			v.Counts[slot.State]++
			if slot.State == "busy" || slot.State == "abandoned" {
				v.Longest[slot.State] = max(v.Longest[slot.State], slot.For.Milliseconds())
			}
		}
		if len(l.States) <= viewSlots {
			v.States = runs(l.States)
		}
		views[i] = v
	}
	return worst(views, viewLanes, (*laneView).trouble)
}

// trouble is more the more there is to see about a lane.
func (v *laneView) trouble() (n int) {
	for _, c := range v.Refused {
		if c.Lately > 0 {
			n |= 8
		}
	}
	if v.Counts["down"] > 0 {
		n |= 4
	}
	if v.Waiting > 0 {
		n |= 2
	}
	if v.Counts["abandoned"] > 0 {
		n |= 1
	}
	return n
}

// runs writes slots as their states' first letters, each with how many follow
// one another.
func runs(slots []Slot) string {
	var out []byte
	for i := 0; i < len(slots); {
		j := i
		for j < len(slots) && slots[j].State == slots[i].State {
			j++
		}
		out = strconv.AppendInt(append(out, slots[i].State[0]), int64(j-i), 10)
		i = j
	}
	return string(out)
}

func (r *reading) targetViews() ([]targetView, int) {
	views := make([]targetView, len(r.targets))
	for i, t := range r.targets {
		views[i] = targetView{Name: short(t.Name), Upstream: short(t.Upstream), Up: t.Up, Err: short(t.Err)}
		if !t.Since.IsZero() {
			ms := r.now.Sub(t.Since).Milliseconds()
			views[i].For = &ms
		}
	}
	return worst(views, viewTargets, func(v *targetView) int {
		if v.Up {
			return 0
		}
		return 1
	})
}

// routeViews are those of the routes that fail most, then of those that are
// asked most.
func (r *reading) routeViews(since, rate *mark) ([]routeView, int) {
	before := since.orZero()
	routes := slices.Clone(r.routes)
	failed := make(map[string]counter, len(routes))
	asked := make(map[string]counter, len(routes))
	for _, route := range routes {
		old := before.routes[route.Name]
		failed[route.Name] = lately(failures(route.Codes), failures(old.Codes), since)
		asked[route.Name] = lately(route.Took.Count, old.Took.Count, since)
	}
	slices.SortFunc(routes, func(a, b Route) int {
		return cmp.Or(cmp.Compare(failed[b.Name].Lately, failed[a.Name].Lately), cmp.Compare(asked[b.Name].Lately, asked[a.Name].Lately),
			cmp.Compare(asked[b.Name].Total, asked[a.Name].Total), cmp.Compare(a.Name, b.Name))
	})
	left := max(len(routes)-viewRoutes, 0)
	views := make([]routeView, 0, viewRoutes)
	for _, route := range routes[:len(routes)-left] {
		old := before.routes[route.Name]
		v := routeView{Name: short(route.Name), Lane: short(route.Lane), Requests: asked[route.Name], Failed: failed[route.Name],
			Errors: counters(route.Refused, old.Refused, since),
			Rate:   r.perSecond(rate, func(m *mark) uint64 { return more(route.Took.Count, m.routes[route.Name].Took.Count) })}
		if route.Failed > 0 {
			v.Errors["app"] = lately(route.Failed, old.Failed, since)
		}
		if since != nil {
			v.P50, _ = quantile(route.Took, old.Took, 0.5)
			v.P99, v.Beyond = quantile(route.Took, old.Took, 0.99)
		}
		views = append(views, v)
	}
	return views, left
}

func failures(codes map[int]uint64) (n uint64) {
	for code, count := range codes {
		if code >= 500 {
			n += count
		}
	}
	return n
}

// quantile estimates the time that a part q of the requests between two looks
// took at most, in milliseconds: within its bucket evenly, as Prometheus does.
// beyond: it is more than the last bound, which is then given. nil: there were none.
func quantile(now, before histogram.Snapshot, q float64) (ms *float64, beyond bool) {
	count := more(now.Count, before.Count)
	if count == 0 {
		return nil, false
	}
	rank := q * float64(count)
	low, under := time.Duration(0), 0.0
	for i, bound := range histogram.Bounds {
		n := float64(more(now.Below[i], before.Below[i]))
		if n >= rank {
			part := 1.0
			if n > under {
				part = (rank - under) / (n - under)
			}
			at := float64(low) + part*float64(bound-low)
			value := math.Round(at/float64(time.Millisecond)*100) / 100
			return &value, false
		}
		low, under = bound, n
	}
	value := float64(low) / float64(time.Millisecond)
	return &value, true
}

func (r *reading) holdsView(since *mark) holdsView {
	before := since.orZero()
	v := holdsView{Open: maps.Clone(r.held.Open), Limit: r.limits.Holds, Gaps: lately(r.held.GapsTold, before.held.GapsTold, since),
		Ended: counters(byReason(r.held.Ended), byReason(before.held.Ended), since), Channels: r.names, Named: true}
	for _, c := range r.top {
		v.Top = append(v.Top, channelView{short(c.Name), c.Holds})
	}
	return v
}

// byReason adds up the ends of all kinds.
func byReason(kinds map[string]map[string]uint64) map[string]uint64 {
	sums := make(map[string]uint64)
	for _, reasons := range kinds {
		for reason, n := range reasons {
			sums[reason] += n
		}
	}
	return sums
}
