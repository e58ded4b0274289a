package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The events of the soak: what was published, and what each client heard of it
// over all its connections.

// lastEvent is the number of the event behind which nothing comes.
const lastEvent = -1

// soakEvents is what was published, and by whom it was heard.
type soakEvents struct {
	chatters sync.WaitGroup // who sends messages that become events

	mu     sync.Mutex
	number int64
	byID   map[int64]soakEvent
	heard  []*soakClient
}

// soakEvent is one event. What clients of sockets said has its text; the
// publishers' have a number, from which their text is made.
type soakEvent struct {
	number   int64
	text     string
	channels []string
}

func newSoakEvents() *soakEvents { return &soakEvents{byID: map[int64]soakEvent{}} }

// eventText is an event's data: short and long ones, of one line and of several.
func eventText(number int64) string {
	text := strconv.FormatInt(number, 10)
	switch number % 50 {
	case 7:
		return text + "\n\nmore of it\n"
	case 13:
		return text + strings.Repeat(" is a long one", 1500)
	}
	return text + " is short"
}

// channelsOf are those that an event goes to.
func channelsOf(number int64) []string {
	switch {
	case number == lastEvent || number%10 == 0:
		return []string{"announcements", "agents"}
	case number%10 == 5:
		return []string{"announcements", "ticket-3"}
	case number%10 == 9:
		return []string{"ticket-3"}
	}
	return []string{"announcements"}
}

func (s *soak) publishUntil(stop <-chan struct{}) {
	k := &soakConn{s: s, addr: s.publish}
	defer k.close()
	pace := time.NewTicker(20 * time.Millisecond)
	defer pace.Stop()
	for last := int64(0); ; {
		select {
		case <-stop:
			return
		case <-pace.C:
		}
		s.events.mu.Lock()
		s.events.number++
		number := s.events.number
		s.events.mu.Unlock()
		id := s.publishOne(k, number)
		if id <= last {
			s.fail("event %d has the id %d, behind %d", number, id, last)
		}
		last = id
	}
}

// publishOne publishes an event, which is never refused, and notes it.
func (s *soak) publishOne(k *soakConn, number int64) (id int64) {
	e := soakEvent{number, eventText(number), channelsOf(number)}
	call, err := json.Marshal(map[string]any{"channel": e.channels, "data": e.text})
	if err != nil {
		panic(err)
	}
	a, err := k.do(fmt.Sprintf("POST /publish HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", len(call), call))
	var taken struct{ ID int64 }
	if err != nil || a.code() != 200 || json.Unmarshal([]byte(a.body), &taken) != nil {
		s.fail("publish: %+v %v", a, err)
		return 0
	}
	s.events.note(s, taken.ID, e)
	s.count("events published")
	return taken.ID
}

// note keeps an event. Those of sockets are noted by everybody who hears them.
func (ev *soakEvents) note(s *soak, id int64, e soakEvent) {
	ev.mu.Lock()
	known, ok := ev.byID[id]
	ev.byID[id] = e
	ev.mu.Unlock()
	if ok && (known.text != e.text || known.number != e.number || e.number != 0) {
		s.fail("the id %d twice: %.60q and %.60q", id, known.text, e.text)
	}
}

// heardKind is what a listener was told.
type heardKind byte

const (
	heardEvent    heardKind = iota
	heardPosition           // it has had everything up to this id
	heardStart              // the same, for a first visit
	heardGap                // it has missed what is between cursor and id
)

type heardItem struct {
	kind heardKind
	id   int64
	text string
}

// soakClient is a client over all its connections.
type soakClient struct {
	s        *soak
	name     string
	channels []string
	id       string // what it comes back with
	items    []heardItem
	done     bool // it has heard the last event
}

// listens: the last event is yet to come.
func (l *soakClient) listens() bool { return !l.done && !l.s.givenUp.Load() }

func (ev *soakEvents) client(s *soak, name string, channels ...string) *soakClient {
	l := &soakClient{s: s, name: name, channels: channels}
	ev.mu.Lock()
	ev.heard = append(ev.heard, l)
	ev.mu.Unlock()
	return l
}

// hear keeps what it was told, with the id as it came.
func (l *soakClient) hear(kind heardKind, id, text string) {
	n, err := strconv.ParseInt(id, 10, 64)
	if err != nil {
		l.s.fail("%s: the id %q of %.60q", l.name, id, text)
		return
	}
	if kind == heardPosition && l.id == "" {
		kind = heardStart
	}
	l.items, l.id = append(l.items, heardItem{kind, n, text}), id
	if kind == heardEvent {
		l.s.count("events heard by " + l.name)
		l.done = l.done || text == eventText(lastEvent)
	}
}

// startListeners starts the clients that hear events.
func (s *soak) startListeners(all *sync.WaitGroup) {
	for _, ticket := range []string{"", "3", "3", "17"} {
		l := s.events.client(s, "streams", "announcements")
		path := "/live/feed"
		if ticket != "" {
			l.channels, path = append(l.channels, "ticket-"+ticket), "/live/ticket/"+ticket
		}
		all.Go(func() { l.stream(path, false) })
	}
	late := s.events.client(s, "streams that stay away", "announcements")
	all.Go(func() { late.stream("/live/feed", true) })
	for range 2 {
		l := s.events.client(s, "polls", "announcements")
		all.Go(l.poll)
	}
	for i := range 3 {
		l := s.events.client(s, "sockets", "agents")
		s.events.chatters.Add(1)
		all.Go(func() { l.socket(i) })
	}
}

// stream follows a stream over many connections. One that stays away does so
// until the journal cannot supply all that it has missed.
func (l *soakClient) stream(path string, staysAway bool) {
	for l.listens() {
		sent := monotonic()
		events := 20 + rand.IntN(200)
		if rand.IntN(4) == 0 {
			events = math.MaxInt // until max_age ends it
		}
		if err := l.session(path, events); err != nil {
			l.s.forgiven(l.name, sent, nil, err)
			<-time.After(50 * time.Millisecond)
		}
		if staysAway && l.id != "" {
			l.stayAway()
		}
	}
}

func (l *soakClient) stayAway() {
	l.s.events.mu.Lock()
	until := l.s.events.number + 2*soakJournal
	l.s.events.mu.Unlock()
	for l.s.going(50 * time.Millisecond) {
		l.s.events.mu.Lock()
		now := l.s.events.number
		l.s.events.mu.Unlock()
		if now >= until {
			return
		}
	}
}

// session is one connection, which is left after so many events.
func (l *soakClient) session(path string, events int) error {
	fields := eventSource
	if l.id != "" {
		fields += "Last-Event-ID: " + l.id + "\r\n"
	}
	f, err := dialEvents(l.s.c.addr, path, fields)
	if err != nil {
		return err
	}
	defer f.Close()
	if f.response.StatusCode != 200 || f.response.Header.Get("Content-Type") != "text/event-stream" {
		return fmt.Errorf("%s %v", f.response.Status, f.response.Header)
	}
	if reason := f.response.Header.Get("Holdfast-Reason"); reason != "" {
		return errors.New(reason)
	}
	before, positions, sentAway := l.id, 0, false
	for events > 0 && !l.done {
		b, err := f.block()
		if err == io.EOF && sentAway {
			l.s.count("streams ended by max_age")
			return nil
		}
		if err != nil {
			return err
		}
		sentAway = sentAway || b.retry != ""
		switch {
		case b.event == "m0-gap":
			l.gap(b)
			before = ""
		case b.hasData:
			l.hear(heardEvent, b.id, b.data)
			events--
		case b.isPosition():
			if positions++; positions == 1 && before != "" && b.id != before {
				l.s.fail("%s: came back with %s, and the stream begins at %s", l.name, before, b.id)
			}
			l.hear(heardPosition, b.id, "")
		}
	}
	if rand.IntN(2) == 0 {
		f.Conn.(*net.TCPConn).SetLinger(0)
	}
	l.s.count("streams left")
	return nil
}

func (l *soakClient) gap(b block) {
	var told struct {
		Last int64 `json:"last_event_id"`
		Head int64 `json:"head"`
	}
	if json.Unmarshal([]byte(b.data), &told) != nil || b.id != "" || strconv.FormatInt(told.Last, 10) != l.id {
		l.s.fail("%s: came back with %s and was told %q", l.name, l.id, b.raw)
	}
	l.items = append(l.items, heardItem{heardGap, told.Head, ""})
	l.s.count("gaps told")
}

// poll asks again and again on one connection.
func (l *soakClient) poll() {
	k := &soakConn{s: l.s, addr: l.s.c.addr}
	defer k.close()
	for l.listens() {
		request, sent := "GET /live/poll HTTP/1.1\r\nHost: desk.example\r\n", monotonic()
		if l.id != "" {
			request += "Last-Event-ID: " + l.id + "\r\n"
		}
		a, err := k.do(request + "\r\n")
		if err != nil || a.code() != 200 {
			l.s.forgiven(l.name, sent, a, err)
			<-time.After(50 * time.Millisecond)
			continue
		}
		id := strings.Join(a.get("M0-Event-Id"), " ")
		switch {
		case a.has("M0-Gap", "true"):
			n, _ := strconv.ParseInt(id, 10, 64)
			l.items, l.id = append(l.items, heardItem{heardGap, n, ""}), id
			l.s.count("gaps told")
		case a.body == "nothing new\n":
			l.hear(heardPosition, id, "")
		default:
			if l.id == "" { // a first visit's place is told with its first answer
				l.items = append(l.items, heardItem{heardStart, -1, ""})
			}
			l.hear(heardEvent, id, a.body)
		}
	}
}

// verify holds what each listener was told to what was published: every event
// of its channels behind the place where it began, once and in order, and a gap
// only where the journal could not supply them.
func (ev *soakEvents) verify(s *soak) {
	ev.mu.Lock()
	defer ev.mu.Unlock()
	said := map[string]int64{} // the number of the last message of each socket
	for _, id := range ev.on("agents") {
		var who string
		var n int64
		if _, err := fmt.Sscanf(ev.byID[id].text, "soak %s %d", &who, &n); err == nil && n <= said[who] {
			s.fail("the message %d of socket %s behind its message %d", n, who, said[who])
		} else if err == nil {
			said[who] = n
		}
	}
	for _, l := range ev.heard {
		if err := ev.verifyOne(l); err != nil {
			s.fail("%s of %v: %v", l.name, l.channels, err)
		}
	}
}

// on gives the ids of all events of these channels, in order.
func (ev *soakEvents) on(channels ...string) (ids []int64) {
	for id, e := range ev.byID {
		if slices.ContainsFunc(e.channels, func(name string) bool { return slices.Contains(channels, name) }) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

func (ev *soakEvents) verifyOne(l *soakClient) error {
	due := ev.on(l.channels...)
	upTo := func(id int64) int { // how many are due with ids up to this one
		at, found := slices.BinarySearch(due, id)
		if found {
			at++
		}
		return at
	}
	var at int // so many of due are told or behind it
	for n, item := range l.items {
		first := n == 0 || l.items[n-1].kind == heardStart && l.items[n-1].id < 0
		switch reached := upTo(item.id); {
		case item.kind == heardStart:
			at = reached
		case item.kind == heardGap:
			if missed := reached - at; missed <= soakJournal {
				return fmt.Errorf("a gap of %d events, which the journal has", missed)
			}
			at = reached
		case item.kind == heardPosition && reached != at:
			return fmt.Errorf("item %d: the position %d is %d events behind what it has had", n, item.id, reached-at)
		case item.kind == heardPosition:
		case ev.byID[item.id].text != item.text:
			return fmt.Errorf("item %d: the event %d is %.60q, want %.60q", n, item.id, item.text, ev.byID[item.id].text)
		case reached != at+1 && !first:
			return fmt.Errorf("item %d: the event %d is the %d. of its channels, behind the %d.: lost, doubled or out of order", n, item.id, reached, at)
		default:
			at = reached
		}
	}
	if at != len(due) {
		return fmt.Errorf("%d of %d events", at, len(due))
	}
	return nil
}
