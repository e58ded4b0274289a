package holds

import (
	"errors"
	"math/rand/v2"
	"net/url"
	"slices"
	"time"

	"go.uber.org/zap"
)

// grip is what a hold has beside others if its instruction was GRIP's: the
// app numbers the items, says what a quiet client is sent, and knows where to
// ask for what is missing.
type grip struct {
	// fixed
	fields []byte // Host and X-Forwarded-* of the request: they go along with those for links
	host   string
	events bool // it is an event stream: its client can be told when to come back

	// the loop's, and channels the hub's under its lock
	channels  []GripChannel
	meta      map[string]string
	keepAlive *KeepAlive
	next      *Link
	link      *url.URL  // what links are relative to: the request's target, then each link that was followed
	wroteAt   time.Time // when the client was last sent something
	beatAt    time.Time // when a keep-alive of a fixed interval was last due
	heardAt   time.Time // when something of the channels last came
	askAt     time.Time // recovering: when the app is to be asked
	alarmAt   time.Time // when the hold is looked at next; zero: no alarm is set
	early     time.Duration
	asking    bool
	forced    bool // … whatever the journal has
	turn      bool // the next page is wanted as soon as the client has taken this one
	unfit     bool // an item did not fit, and that was told
	tries     int  // links that were followed since an item was given

	delayed   []byte // a socket's frame that the app has had wait; nil: none
	delayedAt time.Time
}

// newGrip makes it of an instruction and its request.
func newGrip(in *Grip, spec *Spec) *grip {
	g := &grip{fields: spec.Fields, host: spec.Host, events: spec.Events}
	g.adopt(in)
	g.link, _ = url.ParseRequestURI(spec.Target)
	return g
}

// adopt takes what an instruction says, in place of what the one before said.
func (g *grip) adopt(in *Grip) {
	g.channels, g.meta, g.next = in.Channels, in.Meta, in.Next
	g.beatWith(in.KeepAlive)
}

// beatWith says what a quiet client is sent; nil: nothing.
func (g *grip) beatWith(k *KeepAlive) {
	if g.keepAlive = k; k != nil {
		g.early = rand.N(min(keepAliveJitter, k.Timeout/4) + 1)
	}
}

// keepAliveJitter is how much sooner than said a keep-alive may come, so that
// clients who came together are not all written to together.
const keepAliveJitter = time.Second

// channel is what a GRIP hold has of a channel; nil: it is not in it.
func (g *grip) channel(name string) *GripChannel {
	for i := range g.channels {
		if g.channels[i].Name == name {
			return &g.channels[i]
		}
	}
	return nil
}

// subscriber is what filters may know of a hold.
func (g *grip) subscriber() *subscriber {
	return &subscriber{
		meta:     g.meta,
		channels: func(name string) bool { return g.channel(name) != nil },
		prevID: func(name string) (string, bool) {
			c := g.channel(name)
			if c == nil || c.PrevID == nil {
				return "", false
			}
			return *c.PrevID, true
		},
	}
}

// giveItem is give where the hold is GRIP's, or the event an item. Each of the
// two dialects has what is published in it; sockets have both.
func (l *loop) giveItem(h *hold, e *event) {
	g := h.grip()
	switch {
	case g == nil && (h.socket == nil || e.item.Socket == nil), g != nil && e.item == nil && h.socket == nil:
		h.pass(e)
		return
	case e.item == nil: // to a socket
		l.giveEvent(h, e)
		return
	}
	var c *GripChannel
	var filters []string
	if g != nil {
		g.heardAt = l.hub.now()
		if c = g.channel(e.rooms[0].name); c == nil { // another instruction has left it out
			h.pass(e)
			return
		}
		filters = c.Filters
	}
	if c != nil && h.socket == nil && e.item.numbered(h.kind) {
		switch {
		case c.PrevID == nil:
		case e.item.ID != nil && *e.item.ID == *c.PrevID: // the answer has it already
			h.pass(e)
			return
		case e.item.PrevID == nil || *e.item.PrevID != *c.PrevID:
			l.miss(h, false)
			return
		default:
			c.PrevID = e.item.ID
			g.tries = 0
		}
	}
	if g != nil && !passes(filters, g.subscriber(), e.item.Meta) {
		h.pass(e)
		return
	}
	switch {
	case h.socket != nil:
		l.giveMessage(h, e, filters)
	case h.poll != nil:
		l.giveAnswer(h, e, filters)
	default:
		l.giveStream(h, e, filters)
	}
}

// numbered reports whether an item is one of those that the app numbers, for
// holds of a kind: one that is only to end or to wake them is not.
func (i *Item) numbered(kind Mode) bool {
	if kind == ModeResponse {
		return i.Answer == nil || i.Answer.Action != ActionHint
	}
	return i.Stream == nil || i.Stream.Action == ActionSend
}

// giveStream gives a GRIP stream an item.
func (l *loop) giveStream(h *hold, e *event, filters []string) {
	f := e.item.Stream
	switch {
	case f == nil:
		h.pass(e)
	case f.Action == ActionClose:
		h.pass(e)
		l.end(h, EndPublished)
	case f.Action == ActionHint:
		h.pass(e)
		l.miss(h, true)
	case !sameContentFilters(filters, f.Filters):
		h.pass(e)
		l.unfit(h, errOtherFilters)
	case len(contentFilters(filters)) == 0:
		l.giveEvent(h, e)
	default:
		content, err := rewrite(filters, h.grip().subscriber(), f.Content)
		if h.cursor = e.id; err != nil {
			l.unfit(h, err)
			return
		}
		l.giveOwn(h, frameStream(content, h.chunked))
	}
}

var errOtherFilters = errors.New("it states other content-filters than the hold's, whose instruction may be from before a deploy")

// unfit tells, once of each hold, of an item that it is not given because it
// cannot be rewritten for it.
func (l *loop) unfit(h *hold, err error) {
	g := h.grip()
	if g != nil && g.unfit {
		return
	}
	if g != nil {
		g.unfit = true
	}
	l.home.log.Warn("an item does not fit a hold, which is not given it; others that do not are not told of", zap.String("hold", l.connection(h)),
		zap.String("channel", EncodeChannels(h.channels())), zap.Error(err))
}

// frameStream makes a piece of a stream of bytes; none of them is nothing.
func frameStream(content []byte, chunked bool) []byte {
	if !chunked || len(content) == 0 { // an empty chunk would be the last
		return content
	}
	chunk, _ := closeChunk(append(make([]byte, chunkSpace, chunkSpace+len(content)+2), content...))
	return chunk
}

// giveOwn gives a hold bytes that are an event's, made for it alone.
func (l *loop) giveOwn(h *hold, b []byte) {
	if l.tooFarBehind(h, len(b)) {
		l.end(h, EndSlow)
		return
	}
	l.offered++
	if len(b) > 0 {
		l.send(h, b)
	}
}

// greetGrip sends a GRIP hold its first bytes and sets its clocks.
func (l *loop) greetGrip(h *hold, o *opening) {
	g := h.grip()
	g.heardAt = l.hub.now()
	switch {
	case h.poll != nil && o.gap: // its client asks the app itself
		l.miss(h, false)
	case h.poll != nil:
		l.setAlarm(h, h.poll.deadline)
	case h.socket != nil:
		l.send(h, o.head)
		if !l.obeyEvents(h, o.over.Answer, true) {
			l.end(h, EndError)
		}
		l.receive(h, o.early)
		l.readable(h)
	default:
		l.greetStream(h, o)
	}
}

func (l *loop) greetStream(h *hold, o *opening) {
	g := h.grip()
	body, warned := rewriteBody(g.filters(), g.subscriber(), o.body)
	if warned {
		l.home.log.Warn("first bytes of a hold have something that its filters do not know, it is left as it is", zap.String("hold", l.connection(h)))
	}
	now := l.hub.now()
	g.wroteAt, g.beatAt, g.heardAt, g.turn = now, now, now, o.paging
	l.send(h, append(o.head, frameStream(body, h.chunked)...))
	l.goOn(h, o.gap)
}

// filters are those of all channels of a hold, each once: what the app's own
// bytes go through.
func (g *grip) filters() []string { return filtersOf(g.channels) }

func filtersOf(channels []GripChannel) (filters []string) {
	for _, c := range channels {
		for _, f := range c.Filters {
			if !slices.Contains(filters, f) {
				filters = append(filters, f)
			}
		}
	}
	return filters
}

func (in *Grip) rewritesBody() bool { return len(contentFilters(filtersOf(in.Channels))) > 0 }

// Rewrite gives the body of an answer that holds nobody, as the filters of its
// channels have it.
func (in *Grip) Rewrite(body []byte) []byte {
	g := grip{channels: in.Channels, meta: in.Meta}
	body, _ = rewriteBody(g.filters(), g.subscriber(), body)
	return body
}

// due is when a GRIP hold wants something of its own; zero: never.
func (g *grip) due(state state) (at time.Time) {
	sooner := func(t time.Time) {
		if at.IsZero() || t.Before(at) {
			at = t
		}
	}
	if state == recovering {
		if !g.asking {
			sooner(g.askAt)
		}
	} else if g.next != nil && g.next.Timeout > 0 {
		sooner(g.heardAt.Add(g.next.Timeout))
	}
	if g.keepAlive != nil {
		sooner(g.beatDue())
	}
	if g.delayed != nil {
		sooner(g.delayedAt)
	}
	return at
}

// beatDue is when a keep-alive is due.
func (g *grip) beatDue() time.Time {
	from := g.wroteAt
	if g.keepAlive.Interval {
		from = g.beatAt
	}
	return from.Add(g.keepAlive.Timeout - g.early)
}

// wind sets the alarm for what a GRIP hold wants next.
func (l *loop) wind(h *hold) {
	g := h.grip()
	at := g.due(h.state)
	if at.IsZero() || h.state >= leaving || !g.alarmAt.IsZero() && !at.Before(g.alarmAt) {
		return
	}
	g.alarmAt = at
	l.setAlarm(h, at)
}

// strike does what a GRIP hold wants by now.
func (l *loop) strike(h *hold, now time.Time) {
	g := h.grip()
	if now.Before(g.alarmAt) {
		return // something was due sooner since this alarm was set, and another one was
	}
	g.alarmAt = time.Time{}
	if h.state == recovering && !g.asking && !now.Before(g.askAt) {
		l.seek(h)
	}
	if h.state < leaving && h.state != recovering && g.next != nil && g.next.Timeout > 0 && !now.Before(g.heardAt.Add(g.next.Timeout)) {
		l.followLink(h)
	}
	if g.keepAlive != nil && h.state < leaving && !now.Before(g.beatDue()) {
		g.wroteAt, g.beatAt = now, now
		if h.outbox == nil { // whoever is behind is not quiet
			l.sendKeepAlive(h)
		}
	}
	if g.delayed != nil && h.state < leaving && !now.Before(g.delayedAt) {
		l.sendDelayed(h)
	}
	l.wind(h)
}

func (l *loop) sendKeepAlive(h *hold) {
	data := h.grip().keepAlive.Data
	if h.socket == nil {
		data = frameStream(data, h.chunked)
	}
	l.send(h, data)
}
