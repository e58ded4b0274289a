package holds

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"holdfast/internal/http1"
)

// gripAsk is a request on its way to the app and back: a client's visit, or
// that of a link. At each step it waits until its turn comes.
type gripAsk struct {
	key      string
	target   string
	fields   string
	again    bool // a visit: the app is told what its first answer had
	stage    int
	answer   Answer
	answered chan Answer // a link's
}

// The steps of a request: it waits for a slot, is at the app, was answered.
const (
	gripWaits = iota
	gripAsked
	gripAnswered
)

// forwardAsk is the Forward of a run's links: each waits until the test has its
// answer.
func forwardAsk(ctx context.Context, r *Request, coming chan<- *gripAsk) (Answer, error) {
	a := &gripAsk{key: r.Target + "\r\n" + string(r.Fields), target: r.Target, fields: string(r.Fields), answered: make(chan Answer, 1)}
	select {
	case coming <- a:
	case <-ctx.Done():
		return Answer{}, ErrStopping
	}
	select {
	case answer := <-a.answered:
		if answer.Status == 0 {
			return answer, ErrDown
		}
		return answer, nil
	case <-ctx.Done():
		return Answer{}, ErrStopping
	}
}

// carry takes a request one step further.
func (w *gripWorld) carry(t *testing.T, a *gripAsk) {
	if a.stage == gripWaits {
		a.answer.Position = w.hub.head.Load()
	} else {
		w.say(t, a)
	}
	a.stage++
}

// say has the app answer: what its history has behind the last items that it is
// told of, as much of that as it puts into one answer, and where the rest is.
func (w *gripWorld) say(t *testing.T, a *gripAsk) {
	a.answer.Status = 200
	if w.fail && !w.quiet && w.one(5) {
		w.fails++
		a.answer.Status = []int{403, 500, 0}[w.rand.IntN(3)]
		return
	}
	_, query, _ := strings.Cut(a.target, "?")
	q, err := url.ParseQuery(query)
	if err != nil {
		t.Fatal(err)
	}
	lag, left, more := 0, 1<<30, false
	if w.lag && !w.quiet && w.one(3) {
		lag = 1 + w.rand.IntN(3)
	}
	if w.troubles.pages > 0 && q.Get("linkless") == "" {
		left = w.troubles.pages
	}
	var channels []string
	var body strings.Builder
	for name := range strings.SplitSeq(q.Get("on"), ",") {
		f := w.feed(name)
		if !f.counts || q.Get("blind") != "" {
			channels = append(channels, name)
			continue
		}
		last, known := lastOf(a, q, name)
		upTo := max(last, f.items-lag)
		if !known {
			last = upTo
		}
		if a.answered == nil && !q.Has("last-"+name) { // a first visit
			fmt.Fprintf(&body, "%s@%d\n", name, last)
		}
		for ; last < upTo && left > 0; left-- {
			last++
			body.WriteString(w.line(f, last))
		}
		more = more || last < upTo
		q.Set("last-"+name, fmt.Sprint(last))
		channels = append(channels, fmt.Sprintf("%s; prev-id=%d", name, last))
	}
	if !more && a.answered != nil && q.Has("paged") { // who has left all channels comes into them here
		fmt.Fprintf(&body, "from=%d\n", a.answer.Position)
	}
	a.answer.Body = []byte(body.String())
	a.answer.Fields = w.instruct(t, q, channels, more)
}

// gripPoll is how often clients ask where the app has them do so.
const gripPoll = 2 * time.Minute

// instruct is the instruction of an answer.
func (w *gripWorld) instruct(t *testing.T, q url.Values, channels []string, more bool) []http1.Field {
	list := "Grip-Channel: " + strings.Join(channels, ", ")
	if more {
		w.pages++
		q.Set("paged", "1")
		link := "Grip-Link: </events?" + q.Encode() + ">; rel=next"
		if w.bare {
			return fieldsOf(t, link)
		}
		return fieldsOf(t, list, link)
	}
	if q.Get("linkless") != "" {
		return fieldsOf(t, "Grip-Hold: stream", list)
	}
	for _, f := range w.feeds {
		q.Del("last-" + f.name)
	}
	q.Del("paged")
	link := "Grip-Link: </events?" + q.Encode() + ">; rel=next"
	if w.timed {
		link += fmt.Sprintf("; timeout=%d", gripPoll/time.Second)
	}
	return fieldsOf(t, "Grip-Hold: stream", list, link)
}

// lastOf is the last item of a channel that a request tells of: what its client
// says itself comes first.
func lastOf(a *gripAsk, q url.Values, name string) (n int, known bool) {
	value := q.Get("last-" + name)
	if _, told, ok := strings.Cut(a.fields, "Grip-Last: "+name+"; last-id="); ok && value == "" {
		value, _, _ = strings.Cut(told, "\r\n")
	}
	n, err := strconv.Atoi(value)
	return n, err == nil
}

func (w *gripWorld) feed(name string) *feed {
	return w.feeds[slices.IndexFunc(w.feeds, func(f *feed) bool { return f.name == name })]
}

// collect takes over the links that are being followed since.
func (w *gripWorld) collect(t *testing.T) {
	k := &w.loops[0].home.links
	k.mu.Lock()
	running := k.running
	var keys []string
	if len(k.asked) > len(w.asked) {
		keys = slices.Sorted(maps.Keys(k.asked))
	}
	k.mu.Unlock()
	for _, key := range keys {
		if !w.asked[key] {
			w.asked[key] = true
			if w.timed {
				w.polls++
			} else {
				w.follows++
			}
			w.checkAsk(t, key)
		}
	}
	for len(w.links) < running {
		a := <-w.coming
		at, _ := slices.BinarySearchFunc(w.links, a, func(a, b *gripAsk) int { return strings.Compare(a.key, b.key) })
		w.links = slices.Insert(w.links, at, a)
	}
}

// goOnWith takes a link one step further.
func (w *gripWorld) goOnWith(t *testing.T, a *gripAsk) {
	if a.stage < gripAnswered {
		w.carry(t, a)
		return
	}
	w.noteMisses()
	k := &w.loops[0].home.links
	k.mu.Lock()
	k.asked[a.key].tries = linkTries // so many seconds are not waited for
	k.mu.Unlock()
	a.answered <- a.answer
	for told := false; !told; runtime.Gosched() {
		k.mu.Lock()
		told = k.asked[a.key] == nil
		k.mu.Unlock()
	}
	delete(w.asked, a.key)
	w.links = slices.DeleteFunc(w.links, func(b *gripAsk) bool { return a == b })
	w.collect(t)
}
