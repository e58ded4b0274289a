package holds

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
)

// A GRIP stream that misses something looks into the journal again, after a
// moment in which what it misses may come, and only then has the app asked for
// it, by the link that the instruction gave. The answer's body goes to the
// client, and its instruction takes the place of the one before.

// The time before a hold looks again: long enough for items that overtook each
// other. All who miss the same look at the same time, and ask together.
const (
	missPause   = 200 * time.Millisecond
	missSpan    = 500 * time.Millisecond // of long polls, whose clients all ask the app
	missBackoff = time.Second            // doubled with each link that led to nothing
	missMost    = time.Minute
)

// miss has a hold that misses something wait, and look for it. forced: in any
// case at the app. The client of a long poll gets its view's own answer, and
// asks the app itself.
func (l *loop) miss(h *hold, forced bool) {
	g := h.grip()
	switch {
	case h.state >= leaving:
	case h.poll != nil:
		h.state = recovering
		l.setAlarm(h, l.hub.now().Add(missPause+rand.N(missSpan)))
	case g.next == nil:
		l.home.log.Warn("a hold misses an item and its instruction has no next link, it is ended so that its client asks the app", zap.String("hold", l.connection(h)))
		h.state = recovering // what follows a hole is not owed
		l.end(h, EndExpired)
	default:
		wait := missPause
		if g.tries > 0 {
			wait += min(missBackoff<<min(g.tries-1, 10), missMost)
		}
		h.state, g.forced = recovering, g.forced || forced
		g.askAt = l.hub.now().Add(wait)
		l.wind(h)
	}
}

// seek looks whether the journal has by now what a hold misses, and has the
// app asked where it has not.
func (l *loop) seek(h *hold) {
	g := h.grip()
	if g.forced || l.hub.reseat(h, l, nil, -1, false) {
		l.followLink(h)
		return
	}
	h.state = catching
	l.enqueue(h)
}

// goOn goes on after an instruction's bytes. missing: the journal has not all
// that follows it.
func (l *loop) goOn(h *hold, missing bool) {
	switch g := h.grip(); {
	case h.state >= leaving:
	case g.turn:
		h.state = recovering
		g.asking = true // by turnPage, and by no clock
		if h.outbox == nil {
			l.turnPage(h)
		}
	case missing:
		l.miss(h, false)
	default:
		l.wind(h)
	}
}

// turnPage asks for the next page, whose turn it is when the client has taken
// the one before.
func (l *loop) turnPage(h *hold) {
	if g := h.grip(); g.turn {
		l.followLink(h)
	}
}

// followLink has the app asked for what is at a hold's next link.
func (l *loop) followLink(h *hold) {
	g := h.grip()
	u, err := g.resolve(g.next.URI)
	if err != nil {
		l.home.log.Warn("the next link of a hold is not followed, the hold is ended", zap.String("hold", l.connection(h)), zap.Error(err))
		l.end(h, EndExpired)
		return
	}
	h.state, g.asking, g.forced = recovering, true, false
	g.tries++
	hurried := g.turn // its client waits for the page
	g.turn = false
	request := &Request{Method: "GET", Target: u.RequestURI(), Fields: g.lastFields(), Connection: l.connection(h)}
	l.home.links.ask(l.home, request, hurried, func(a Answer, err error) {
		l.hub.call(l, func() { l.followed(h, u, a, err) })
	})
}

var errElsewhere = errors.New("it leads to another host; links are followed to the host that the client asked")

// resolve makes an address of a link.
func (g *grip) resolve(uri string) (*url.URL, error) {
	if g.link == nil {
		return nil, errors.New("it cannot be resolved, the request's target is no address")
	}
	u, err := g.link.Parse(uri)
	switch {
	case err != nil:
		return nil, err
	case u.Host != "" && !strings.EqualFold(u.Host, g.host), u.Scheme != "" && u.Scheme != "http" && u.Scheme != "https", u.Opaque != "":
		return nil, errElsewhere
	}
	u.RawQuery = strings.ReplaceAll(u.RawQuery, " ", "%20") // which net/url leaves as they are
	return u, nil
}

// lastFields are what goes along with the request for a link: how the client
// came, and for each channel the last item that it has. Nothing else of the
// client's: the link has to be enough.
func (g *grip) lastFields() []byte {
	return appendLast(slices.Clone(g.fields), g.channels)
}

// followed goes on with what the app answered to a link.
func (l *loop) followed(h *hold, u *url.URL, a Answer, err error) {
	g := h.grip()
	g.asking = false
	if h.state >= leaving {
		return
	}
	page, err := readPage(a, err)
	if err != nil {
		l.home.log.Warn("the app did not answer to the next link of a hold, which is ended so that its client asks anew", zap.String("hold", l.connection(h)), zap.Error(err))
		l.end(h, EndExpired)
		return
	}
	joins := l.leaveOthers(h, page.instruction.Channels)
	g.link = u
	g.adopt(page.instruction)
	missing := l.hub.reseat(h, l, joins, a.Position, true)
	for i := h.seats() - len(joins); i < h.seats(); i++ {
		l.enter(h, h.seatAt(i))
	}
	l.endIfRevoked(h, a.Position)
	body, _ := rewriteBody(g.filters(), g.subscriber(), page.body)
	now := l.hub.now()
	g.heardAt = now
	if len(body) > 0 {
		l.send(h, frameStream(body, h.chunked))
	}
	switch {
	case h.state >= leaving:
	case page.mode == ModeNone && g.next == nil: // the app has said all
		l.end(h, EndPublished)
	case page.mode == ModeNone:
		g.tries, g.turn = 0, true
		l.goOn(h, false)
	default:
		h.state = catching
		l.enqueue(h)
		l.goOn(h, missing)
	}
}

// leaveOthers has a hold leave the channels that its next instruction does not
// name, and gives those that it is not in yet.
func (l *loop) leaveOthers(h *hold, channels []GripChannel) (joins []string) {
	var leaves []string
	named := func(name string) bool {
		return slices.ContainsFunc(channels, func(c GripChannel) bool { return c.Name == name })
	}
	for _, name := range h.channels() {
		if !named(name) {
			leaves = append(leaves, name)
		}
	}
	l.unsubscribe(h, leaves)
	for _, c := range channels {
		if !h.inChannel(c.Name) {
			joins = append(joins, c.Name)
		}
	}
	return joins
}

// page is what the app answered to a link.
type page struct {
	instruction *Grip
	mode        Mode
	body        []byte
}

func readPage(a Answer, err error) (page, error) {
	if err != nil {
		return page{}, err
	}
	if a.Status < 200 || a.Status > 299 {
		return page{}, fmt.Errorf("it answered %d", a.Status)
	}
	in, mode, err := parseGrip(a.Status, a.Fields)
	if err != nil {
		return page{}, err
	}
	body, err := Decode(a.Fields, a.Body)
	if err != nil {
		return page{}, err
	}
	if in.JSON {
		if mode, err = in.DecodeBody(a.Status, body); err != nil {
			return page{}, err
		}
		body = nil
		if in.Response != nil {
			body = in.Response.Body
		}
	}
	if mode == ModeResponse {
		return page{}, errors.New("it answered with a hold for a long poll")
	}
	return page{in, mode, body}, nil
}

// links are the links that are being followed: the same one once for all who
// ask for it, and few at a time.
type links struct {
	spread time.Duration // fixed: in which different links are asked for, so that they do not come at once

	mu      sync.Mutex
	asked   map[string]*linkAsk
	waiting []*linkAsk
	running int
}

const (
	linksAtOnce = 4
	linkSpread  = 500 * time.Millisecond
	linkTries   = 5
	linkBackoff = time.Second // doubled with each
)

type linkAsk struct {
	key     string
	request *Request
	tell    []func(Answer, error)
	tries   int
}

// ask has the app asked for a link, and tell called with its answer. A hurried
// one is not spread.
func (k *links) ask(home *home, request *Request, hurried bool, tell func(Answer, error)) {
	key := request.Target + "\r\n" + string(request.Fields)
	k.mu.Lock()
	defer k.mu.Unlock()
	if same := k.asked[key]; same != nil {
		same.tell = append(same.tell, tell)
		return
	}
	if k.asked == nil {
		k.asked = make(map[string]*linkAsk)
	}
	ask := &linkAsk{key: key, request: request, tell: []func(Answer, error){tell}}
	k.asked[key] = ask
	if hurried || k.spread == 0 {
		k.begin(home, ask)
	} else {
		time.AfterFunc(rand.N(k.spread), func() { k.later(home, ask) })
	}
}

// begin has a link followed as soon as few enough are. k.mu is held.
func (k *links) begin(home *home, ask *linkAsk) {
	if k.running == linksAtOnce {
		k.waiting = append(k.waiting, ask)
		return
	}
	k.running++
	go k.follow(home, ask)
}

// follow follows one link after the other.
func (k *links) follow(home *home, ask *linkAsk) {
	for ask != nil {
		present := ask
		a, err := home.ask(ask.request)
		ask.tries++
		again := (err != nil || a.Status >= 500) && ask.tries <= linkTries && home.ctx.Err() == nil
		k.mu.Lock()
		if again {
			time.AfterFunc(linkBackoff<<(ask.tries-1)+rand.N(linkBackoff), func() { k.later(home, present) })
		} else {
			delete(k.asked, ask.key)
			for _, tell := range ask.tell { // it hands on to a loop and waits for nobody
				tell(a, err)
			}
		}
		if ask = nil; len(k.waiting) > 0 {
			ask = k.waiting[0]
			k.waiting = slices.Delete(k.waiting, 0, 1)
		} else {
			k.running--
		}
		k.mu.Unlock()
	}
}

func (k *links) later(home *home, ask *linkAsk) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.begin(home, ask)
}

// Recover has the app asked for what follows of every GRIP stream that has a
// next link; asked is how many there are.
func (h *Holds) Recover() (asked int) {
	for _, l := range h.hub.loops {
		h.ask(l, func() {
			for _, hd := range l.table {
				if hd != nil && hd.state < leaving && hd.state != joining && hd.grip() != nil && hd.grip().next != nil {
					if !hd.grip().asking {
						l.miss(hd, true)
					}
					asked++
				}
			}
		})
	}
	return asked
}
