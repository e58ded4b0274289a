package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// Clients of each kind that come back where they were, and what has to be true
// of all that they get.

// published are the numbers that were published, and what is known of each.
type published struct {
	mu    sync.Mutex
	taken map[int]bool // answered with success
	next  int
	last  atomic.Int64 // whoever has it is done; below 0: there is none yet
}

func newPublished() *published {
	p := &published{taken: make(map[int]bool)}
	p.last.Store(-1)
	return p
}

// publish publishes the next number once. What fails may have been published.
func (p *published) publish(addr string) (n int, taken bool) {
	p.mu.Lock()
	n = p.next
	p.next++
	p.mu.Unlock()
	call := fmt.Sprintf(`{"channel": "news", "data": "%d"}`, n)
	response, err := onceClient().Post("http://"+addr+"/publish", "application/json", strings.NewReader(call))
	if err != nil {
		return n, false
	}
	response.Body.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken[n] = response.StatusCode == 200
	return n, p.taken[n]
}

// resumer is a client that comes back where it was.
type resumer struct {
	once func(r *resumer, addr, fields string) // one connection, to its end
	from *published
	id   string
	got  []int // numbers, and gap
	seen atomic.Int64
}

const gap = -1

func newResumer(once func(r *resumer, addr, fields string), from *published, id string) *resumer {
	r := &resumer{once: once, from: from, id: id}
	r.seen.Store(-1)
	return r
}

// follow comes back until it has the last.
func (r *resumer) follow(addr string) {
	for !r.done() {
		if r.once(r, addr, ""); !r.done() {
			poll()
		}
	}
}

func (r *resumer) done() bool {
	last := r.from.last.Load()
	return last >= 0 && r.seen.Load() >= last
}

func (r *resumer) see(event, data string) {
	if event == "m0-gap" {
		r.got = append(r.got, gap)
		return
	}
	n, err := strconv.Atoi(data)
	if err != nil {
		n = 1 << 30 // is found to be out of order
	}
	r.got = append(r.got, n)
	r.seen.Store(int64(n))
}

// check: no number twice or out of order, and between two without a gap none
// is missing that was taken.
func (r *resumer) check() (gaps int, err error) {
	r.from.mu.Lock()
	defer r.from.mu.Unlock()
	before, told := -1, false
	for _, n := range r.got {
		if n == gap {
			gaps++
			told = true
			continue
		}
		if n <= before || n > r.from.next {
			return gaps, fmt.Errorf("%d after %d", n, before)
		}
		for lost := before + 1; lost < n && !told; lost++ {
			if r.from.taken[lost] {
				return gaps, fmt.Errorf("%d is missing between %d and %d, and no gap was told", lost, before, n)
			}
		}
		before, told = n, false
	}
	if last := int(r.from.last.Load()); before < last {
		return gaps, fmt.Errorf("%d is missing behind %d", last, before)
	}
	return gaps, nil
}

// kinds are the three ways to follow a channel.
var kinds = []struct {
	name string
	once func(r *resumer, addr, fields string)
}{{"stream", streamOnce}, {"socket", socketOnce}, {"poll", pollOnce}}

func streamOnce(r *resumer, addr, fields string) {
	f, err := dialEvents(addr, "/events", eventSource+fields+"Last-Event-ID: "+r.id+"\r\n")
	if err != nil {
		return
	}
	defer f.Close()
	for !r.done() {
		b, err := f.event()
		if f.id != "" {
			r.id = f.id
		}
		if err != nil {
			return
		}
		r.see(b.event, b.data)
	}
}

func socketOnce(r *resumer, addr, fields string) {
	header := make(http.Header)
	for line := range strings.Lines(fields) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		header.Set(name, value)
	}
	c, err := dialSocket(addr, "/ws?envelope=1&lastEventId="+r.id, header)
	if err != nil {
		return
	}
	defer c.Close()
	for !r.done() {
		_, text, err := c.ReadMessage()
		var e struct {
			ID    *int64
			Event string
			Data  json.RawMessage
		}
		if err != nil || json.Unmarshal(text, &e) != nil {
			return
		}
		if e.ID != nil {
			r.id = strconv.FormatInt(*e.ID, 10)
		}
		if e.Event != "m0-open" {
			r.see(e.Event, strings.Trim(string(e.Data), `"`))
		}
	}
}

func pollOnce(r *resumer, addr, fields string) {
	p, err := dialPoll(addr)
	if err != nil {
		return
	}
	defer p.Close()
	for p.id = r.id; !r.done(); fields = "" {
		fmt.Fprintf(p, "GET /poll?timeout=2 HTTP/1.1\r\nHost: localhost\r\n%sLast-Event-ID: %s\r\n\r\n", fields, p.id)
		a, err := p.answer()
		if err != nil || a.code() != 200 || len(a.get("M0-Event-Id")) != 1 {
			return
		}
		r.id = p.id
		if len(a.get("M0-Gap")) > 0 {
			r.see("m0-gap", "")
		} else if a.body != "nothing\n" {
			r.see("", a.body)
		}
	}
}
