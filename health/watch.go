package health

import (
	"bytes"
	"encoding/json"
	"slices"
	"sync"
	"time"
)

// The bounds of one view: what is beyond is counted ("and 12 more") and left
// out, what is wrong is taken first. A hundred lanes of a hundred slots, a
// thousand routes and ten thousand channels make 26 KB where all is well; with
// every refusal, the longest names and no two slots alike it is 190 KB.
const (
	viewLanes    = 100
	viewSlots    = 128 // of a lane, drawn one by one
	viewTargets  = 50
	viewRoutes   = 50
	viewChannels = 20
	viewText     = 200 // bytes of a name or an error
)

// How far back a view looks. Marks are what was counted at a time: the oldest
// one is what "lately" is counted from. Rates are counted from the newest one
// that is old enough for it.
const (
	markEvery = 10 * time.Second
	markAge   = 70 * time.Second
	rateLeast = 5 * time.Second
)

// freshness is how long a view is good for whoever asks next.
const freshness = 500 * time.Millisecond

// Watch makes the views that the dashboard is fed with: what /status and the
// metrics have, in bounds, and how it changed lately. Nothing is counted for it,
// and nothing is kept but what the last minute of looks has found. Safe for
// concurrent use.
type Watch struct {
	h    *Health
	page string // names the page that knows how to read the views

	mu    sync.Mutex
	marks []mark // oldest first, the one that is now being looked at not included
	last  *View
	at    time.Time // of last
}

// mark is what was counted at a time. A lane or route that is not there has
// counted nothing yet.
type mark struct {
	at     time.Time
	lanes  map[string]map[string]uint64
	routes map[string]Route
	held   Holds
	fails  uint64
}

// NewWatch makes a Watch. As long as the process is young it counts from the
// process's start, later from its first view on.
func (h *Health) NewWatch() *Watch {
	return &Watch{h: h, page: Dashboard().Name}
}

// View is one look at everything. It is not changed any more.
type View struct {
	named, bare []byte
}

// JSON is the view in one line; without names it has no channels', only how
// many there are.
func (v *View) JSON(names bool) []byte {
	if names {
		return v.named
	}
	return v.bare
}

// Recent gives the last view if it is hardly older than the present, or else
// another one: who asks again and again costs nothing.
func (w *Watch) Recent(now time.Time) *View {
	w.mu.Lock()
	defer w.mu.Unlock()
	if age := now.Sub(w.at); w.last != nil && age >= 0 && age < freshness {
		return w.last
	}
	return w.look(now)
}

// Look gives a view of the present.
func (w *Watch) Look(now time.Time) *View {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.look(now)
}

// look makes a view. w.mu is held.
func (w *Watch) look(now time.Time) *View {
	r := w.read(now)
	w.forget(now)
	if len(w.marks) == 0 && now.Sub(w.h.started) < markAge {
		w.marks = []mark{{at: w.h.started}}
	}
	shown := r.view(w.since(), w.rateSince(now))
	shown.Page = w.page
	v := &View{named: encodeLine(shown)}
	shown.Holds.Top, shown.Holds.Named = nil, false
	v.bare = encodeLine(shown)
	if n := len(w.marks); n == 0 || now.Sub(w.marks[n-1].at) >= markEvery {
		w.marks = append(w.marks, r.mark())
	}
	w.last, w.at = v, now
	return v
}

// forget lets marks go that are too old. A clock that was set back forgets all.
func (w *Watch) forget(now time.Time) {
	w.marks = slices.DeleteFunc(w.marks, func(m mark) bool { return now.Sub(m.at) > markAge || m.at.After(now) })
}

// since is the mark that "lately" is counted from; nil: there is none yet.
func (w *Watch) since() *mark {
	if len(w.marks) == 0 {
		return nil
	}
	return &w.marks[0]
}

// rateSince is the mark that rates are counted from; nil: none is old enough.
func (w *Watch) rateSince(now time.Time) *mark {
	for i := len(w.marks) - 1; i >= 0; i-- {
		if now.Sub(w.marks[i].at) >= rateLeast {
			return &w.marks[i]
		}
	}
	return nil
}

// reading is what one look has found.
type reading struct {
	h       *Health
	now     time.Time
	lanes   []Lane
	targets []Target
	routes  []Route
	held    Holds
	limits  Limits
	memory  int64
	spool   int64
	fails   uint64
	top     []Channel
	names   int // of channels
}

func (w *Watch) read(now time.Time) *reading {
	c := &w.h.cfg
	r := &reading{h: w.h, now: now, lanes: c.Lanes(), targets: c.Targets(), routes: c.Routes(), held: c.Holds(), limits: c.Limits(), memory: c.Memory()}
	r.spool, r.fails = c.Spool()
	r.top, r.names = c.Channels(viewChannels)
	return r
}

func (r *reading) mark() mark {
	m := mark{at: r.now, lanes: make(map[string]map[string]uint64, len(r.lanes)), routes: make(map[string]Route, len(r.routes)), held: r.held, fails: r.fails}
	for _, l := range r.lanes {
		m.lanes[l.Name] = l.Refused
	}
	for _, route := range r.routes {
		m.routes[route.Name] = route
	}
	return m
}

// encodeLine renders what has nothing in it that could fail, in one line. The
// line is data of an event, where < and > are themselves.
func encodeLine(v any) []byte {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		panic(err)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}

// short cuts a text to viewText bytes, between characters.
func short(text string) string {
	if len(text) <= viewText {
		return text
	}
	cut := viewText
	for cut > 0 && text[cut]&0xc0 == 0x80 {
		cut--
	}
	return text[:cut] + "…"
}

// more is how much a counter has grown; one that began anew counts from 0.
func more(now, before uint64) uint64 {
	if now < before {
		return now
	}
	return now - before
}
