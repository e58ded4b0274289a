package holds

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// feed is a channel of the app's. Of one that counts the items have the ids 1,
// 2, 3…, the prev-id of each is the one before, and the app has a history of
// all of them. Of another the items have no ids, and there is no history.
type feed struct {
	name   string
	counts bool
	items  int               // that the app has published
	ids    map[int]int64     // of those that do not count: what the hub gave them, in this run
	cameAt map[int]time.Time // of those that count: when one first came to the hub of this run
	first  int               // of those: which came first
}

// troubles are what can go wrong in a history, and the app's habits. Each
// history has some of them.
type troubles struct {
	lose, delay, double bool // items, on their way to the hub
	mix                 bool // another publisher, that knows nothing of the app's ids
	lag                 bool // the app reads a history without the newest items
	fail                bool // it answers 403, 500 or not at all
	hint                bool // it has clients ask
	timed               bool // its links have a timeout
	tight               bool // the journal and the inboxes are small
	end                 bool // processes end
	pages               int  // items that the app puts into one answer; 0: all
	bare                bool // its pages name no channels
}

// delayed is an item that comes to the hub later.
type delayed struct {
	feed  *feed
	n     int
	again bool // it came before
}

// gripClient is a client of a GRIP stream. It keeps what it has of each
// channel, and comes back with that.
type gripClient struct {
	name     string
	channels []string
	linkless bool           // the app gives it no next link
	blind    bool           // … and says nothing of what it has
	last     map[string]int // the last item that it has of a channel that counts

	visit *gripAsk // nil: none is under way
	hold  *hold
	loop  *loop
	pipe  *pipe
	rest  string           // read, and no whole line yet
	from  int64            // the oracle: items of channels that do not count are given from here on
	given map[string][]int // items that the present hold has given, of channels where they are not counted
	shook bool             // … and it had to look for something: the journal may have let go others meanwhile
}

// gripWorld is a hub with loops, clients of GRIP streams, their app, and the
// oracle.
type gripWorld struct {
	world
	troubles
	feeds   []*feed
	late    []delayed
	clients []*gripClient
	links   []*gripAsk // that are followed, in the order of their keys
	asked   map[string]bool
	coming  chan *gripAsk
	cancel  context.CancelFunc
	quiet   bool // nothing goes wrong any more

	visits, follows, polls, pages, fails, lost, slow int
}

func newGripWorld(seed uint64) *gripWorld {
	w := &gripWorld{world: world{seed: seed, rand: rand.New(rand.NewPCG(seed, 1998))}}
	w.clock.at = time.UnixMicro(1_760_000_000_000_000)
	often := func() bool { return w.rand.IntN(5) < 2 }
	w.troubles = troubles{lose: often(), delay: often(), double: often(), mix: often(), lag: often(), fail: often(),
		hint: w.rand.IntN(8) == 0, timed: w.rand.IntN(8) == 0, tight: often(), end: often(), bare: often()}
	if often() {
		w.troubles.pages = 1 + w.rand.IntN(4)
	}
	for i, name := range []string{"a", "b", "c", "u", "v"} {
		w.feeds = append(w.feeds, &feed{name: name, counts: i < 3})
	}
	for i := range 6 {
		c := &gripClient{name: fmt.Sprint("client ", i), linkless: w.rand.IntN(6) == 0, blind: w.rand.IntN(6) == 0, last: make(map[string]int)}
		if c.channels = w.some(); i > 0 && w.one(2) {
			c.channels = w.clients[0].channels // who follows the same link asks once
		}
		w.clients = append(w.clients, c)
	}
	w.begin()
	return w
}

// some gives some of the channels.
func (w *gripWorld) some() (names []string) {
	for _, i := range w.rand.Perm(len(w.feeds))[:1+w.rand.IntN(3)] {
		names = append(names, w.feeds[i].name)
	}
	return names
}

// begin begins a run: another hub, and nobody is held.
func (w *gripWorld) begin() {
	w.start()
	home := w.loops[0].home
	home.ctx, w.cancel = context.WithCancel(context.Background())
	coming := make(chan *gripAsk, linksAtOnce)
	cfg := *home.limits.Load()
	cfg.OutboxBytes = 20 + w.rand.IntN(400)
	cfg.Forward = func(ctx context.Context, r *Request) (Answer, error) { return forwardAsk(ctx, r, coming) }
	home.limits.Store(&cfg)
	w.coming, w.links, w.asked = coming, nil, make(map[string]bool)
	if !w.tight {
		w.hub.journal.limits = Config{}.withDefaults().Journal
		for _, l := range w.loops {
			l.pace.events = usualPace.events
		}
	}
	for _, f := range w.feeds {
		f.ids, f.cameAt, f.first = make(map[int]int64), make(map[int]time.Time), 0
	}
}

func (w *gripWorld) one(in int) bool { return w.rand.IntN(in) == 0 }

// step does one random thing.
func (w *gripWorld) step(t *testing.T) {
	c := w.clients[w.rand.IntN(len(w.clients))]
	switch n := w.rand.IntN(100); {
	case n < 20:
		w.publishNext(w.feeds[w.rand.IntN(len(w.feeds))])
	case n < 24 && len(w.late) > 0:
		w.arrive(w.rand.IntN(len(w.late)))
	case n < 38:
		w.goOn(t, c)
	case n < 46 && len(w.links) > 0:
		w.goOnWith(t, w.links[w.rand.IntN(len(w.links))])
	case n < 68:
		w.loops[w.rand.IntN(len(w.loops))].turn()
	case n < 86:
		w.readLines(t, c, w.rand.IntN(300))
	case n < 88:
		w.leave(t, c)
	case n < 97:
		d := time.Duration(w.rand.IntN(100)) * time.Millisecond
		if w.one(6) {
			d *= 30
		}
		w.pass(t, d)
	case n < 98 && c.hold != nil && c.hold.state > joining:
		c.loop.end(c.hold, EndPublished)
		c.loop.bury()
	case n < 99 && w.end && w.one(4):
		w.endProcess(t)
	}
	w.collect(t)
}

// pass lets time pass.
func (w *gripWorld) pass(t *testing.T, d time.Duration) {
	w.noteMisses()
	w.clock.at = w.clock.at.Add(d)
	for _, l := range w.loops {
		l.tick(w.clock.at)
		w.collect(t)
	}
}

// publishNext has the app publish an item, and others what is theirs.
func (w *gripWorld) publishNext(f *feed) {
	f.items++
	d := delayed{feed: f, n: f.items}
	switch {
	case w.quiet || !f.counts:
		w.offer(d)
	case w.lose && w.one(6):
		w.lost++
	case w.delay && w.one(3):
		w.late = append(w.late, d)
	default:
		w.offer(d)
		if w.double && w.one(3) {
			d.again = true
			w.late = append(w.late, d)
		}
	}
	if w.quiet || !w.one(2) && !w.one(4) {
		return
	}
	other := w.feeds[w.rand.IntN(len(w.feeds))].name
	switch {
	case w.hint && w.one(4):
		w.hub.publishItem(encodeItem(&Item{Channel: other, Stream: &StreamForm{Action: ActionHint}}))
	case w.mix && w.one(2):
		i := &Item{Channel: other, Stream: &StreamForm{Content: []byte("x=1\n")}}
		if w.one(2) {
			i.ID, i.PrevID = id(fmt.Sprint("x", w.rand.IntN(50))), id(fmt.Sprint("x", w.rand.IntN(50)))
		}
		w.hub.publishItem(encodeItem(i))
	default:
		p := text("native", other)
		w.hub.publish(encode(&p), p.Channels)
	}
}

// offer has an item come to the hub.
func (w *gripWorld) offer(d delayed) {
	f := d.feed
	i := &Item{Channel: f.name, Stream: &StreamForm{Content: []byte(w.line(f, d.n))}}
	if f.counts {
		i.ID, i.PrevID = id(strconv.Itoa(d.n)), id(strconv.Itoa(d.n-1))
		if f.cameAt[d.n].IsZero() {
			f.cameAt[d.n] = w.clock.at
			if f.first == 0 {
				f.first = d.n
			}
		}
	}
	e := encodeItem(i)
	w.hub.publishItem(e)
	if !f.counts {
		f.ids[d.n] = e.id
	}
}

// line is an item's content: different ones are of different length.
func (w *gripWorld) line(f *feed, n int) string {
	const dots = "......................................."
	return f.name + "=" + strconv.Itoa(n) + " " + dots[:n*7%len(dots)] + "\n"
}

// arrive has an item come that was late. A second time it comes within a
// minute or not at all.
func (w *gripWorld) arrive(i int) {
	d := w.late[i]
	w.late = slices.Delete(w.late, i, i+1)
	if came := d.feed.cameAt[d.n]; !d.again || came.IsZero() || w.clock.at.Sub(came) < repeatedTime {
		w.offer(d)
	}
}

// goOn takes a client one step on the way to a hold.
func (w *gripWorld) goOn(t *testing.T, c *gripClient) {
	switch {
	case c.hold != nil:
	case c.visit == nil:
		w.visits++
		q := url.Values{"on": {strings.Join(c.channels, ",")}}
		if c.blind {
			q.Set("blind", "1")
		} else {
			for name, n := range c.last {
				q.Set("last-"+name, fmt.Sprint(n))
			}
		}
		if c.linkless {
			q.Set("linkless", "1")
		}
		c.visit = &gripAsk{target: "/events?" + q.Encode()}
	case c.visit.stage < gripAnswered:
		w.carry(t, c.visit)
	case c.visit.answer.Status != 200:
		c.visit = nil
	default:
		w.hold(t, c)
	}
}

// hold holds a client, as its answer says.
func (w *gripWorld) hold(t *testing.T, c *gripClient) {
	a := c.visit
	in, mode, err := parseGrip(a.answer.Status, a.answer.Fields)
	if err != nil {
		t.Fatal(err)
	}
	if in.Next == nil && !a.again && (&Holds{hub: w.hub}).Misses(in, a.answer.Position) {
		w.visits++
		c.visit = &gripAsk{target: a.target, fields: string(in.LastFields()), again: true}
		return
	}
	w.joins++
	spec := &Spec{Fields: []byte("Host: app.example\r\n"), Target: a.target, Host: "app.example", Events: true}
	c.visit, c.rest, c.from, c.given = nil, "", a.answer.Position, make(map[string][]int)
	c.loop, c.pipe = w.loops[w.rand.IntN(len(w.loops))], &pipe{room: 30 + w.rand.IntN(400)}
	c.hold = &hold{kind: ModeStream, descriptor: -1, more: &beyond{grip: newGrip(in, spec)}}
	c.loop.sockets.(*pipes).of[c.hold] = c.pipe
	c.shook = false
	var names []string
	for _, channel := range in.Channels {
		names = append(names, channel.Name)
		c.shook = c.shook || w.floor(channel.Name) > c.from
	}
	w.hub.join(c.hold, c.loop, names, &opening{head: []byte("HEAD\n"), body: a.answer.Body, paging: mode == ModeNone, trust: a.again, from: a.answer.Position})
}

// leave has a client leave.
func (w *gripWorld) leave(t *testing.T, c *gripClient) {
	c.visit = nil
	if w.one(2) {
		w.readLines(t, c, w.rand.IntN(2000)) // at any prefix
	}
	if c.hold == nil {
		return
	}
	if c.hold.state == joining || w.one(2) {
		c.pipe.fail = errors.New("reset by the client") // seen at the first write
	}
	if c.hold.state != joining && c.hold.state != closed {
		c.loop.hangUp(c.hold)
		c.loop.bury()
	}
	c.hold = nil
}

// endProcess ends the process, and begins another.
func (w *gripWorld) endProcess(t *testing.T) {
	w.restarts++
	w.cancel()
	for _, c := range w.clients {
		w.readLines(t, c, w.rand.IntN(400))
		c.hold, c.visit = nil, nil
	}
	w.begin()
}
