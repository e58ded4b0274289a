package holds

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"time"
)

// modelSocket is a held socket, and what the oracle knows of it. What its
// client has to get is one list of frames: the events of the channels that it
// is in, in the order of their ids, and where an answer of the app was obeyed,
// what that answer gives. Which events were before the answer is the hold's
// cursor to say; that it says so truly is what the list shows.
type modelSocket struct {
	hold     *hold
	loop     *loop
	pipe     *pipe
	envelope bool
	rest     []byte // read, and no whole frame yet

	asked   bool // a message of its client is at the app
	askedAt int64

	seats map[string]int64 // its channels, each with the position that it was joined at
	want  []string         // frames, up to the last answer
	upTo  int64            // … and the position of the stream then
	given map[int64]bool   // events in want
	got   int              // frames that its client has read
	ends  string           // why it has to end; "": it need not
	owed  int64            // everything up to here comes before its close frame
}

// modelClientOfSockets opens one socket after the other.
type modelClientOfSockets struct {
	name     string
	channels []string
	socket   *modelSocket
	viewing  bool
	position int64
	last     int64 // the id it comes back with; 0: none
}

// socketWorld is a hub, its loops, clients with sockets, an app, and the oracle.
type socketWorld struct {
	seed    uint64
	rand    *rand.Rand
	clock   fakeClock
	hub     *hub
	loops   []*loop
	names   []string
	events  []published
	clients []*modelClientOfSockets
	asked   []*modelSocket
	opened  int

	joins, frames, answers, late, gaps, refused, slow, orphans, owed int
}

func newSocketWorld(seed uint64) *socketWorld {
	w := &socketWorld{seed: seed, rand: rand.New(rand.NewPCG(seed, 6455))}
	w.clock.at = time.UnixMicro(1_760_000_000_000_000 + int64(w.rand.IntN(1000)))
	names := 2 + w.rand.IntN(4)
	if w.rand.IntN(5) == 0 {
		names = MaxChannels + 16 // where a socket may come to the bound
	}
	for i := range names {
		w.names = append(w.names, fmt.Sprint("channel-", i))
	}
	for i := range 5 {
		w.clients = append(w.clients, &modelClientOfSockets{name: fmt.Sprint("client ", i)})
	}
	limits := JournalLimits{Events: 1 + w.rand.IntN(8), Bytes: 1 << 20, Age: time.Hour}
	if w.rand.IntN(4) == 0 {
		limits.Bytes = int64(4000 + w.rand.IntN(8000))
	}
	w.hub = newHub(limits, int64(seed%1000), w.clock.now)
	w.loops = testLoops(w.hub, 1+w.rand.IntN(2), Config{Journal: limits, OutboxBytes: 100 + w.rand.IntN(4000)})
	for _, l := range w.loops {
		l.pace = pace{slice: 1 + w.rand.IntN(4), walks: 1 + w.rand.IntN(3), catch: 1 + w.rand.IntN(3), events: 2 + w.rand.IntN(8), bytes: 1 << 20}
	}
	return w
}

func (w *socketWorld) failf(t *testing.T, format string, args ...any) {
	t.Helper()
	t.Fatalf("seed %d: "+format, append([]any{w.seed}, args...)...)
}

// step does one random thing.
func (w *socketWorld) step(t *testing.T) {
	c := w.clients[w.rand.IntN(len(w.clients))]
	switch n := w.rand.IntN(100); {
	case n < 25:
		w.publish()
	case n < 37:
		w.advance(c)
	case n < 60:
		w.loops[w.rand.IntN(len(w.loops))].turn()
	case n < 78:
		w.read(t, c, w.rand.IntN(600))
	case n < 86:
		w.ask(c)
	case n < 94 && len(w.asked) > 0:
		w.answer(t, w.rand.IntN(len(w.asked)))
	case n < 95:
		w.disconnect(t, c)
	case n < 96:
		w.clock.at = w.clock.at.Add(time.Duration(w.rand.IntN(5000)) * time.Microsecond)
	case n < 98 && c.socket != nil && c.socket.hold.state > joining:
		c.socket.loop.lookAt(c.socket.hold, true, false)
		c.socket.loop.bury()
	case n < 99 && c.socket != nil:
		w.endByAPI(c.socket)
	}
}

// some gives up to n of the channels, at least least.
func (w *socketWorld) some(least, n int) []string {
	names := slices.Clone(w.names)
	w.rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	return names[:min(len(names), least+w.rand.IntN(n-least+1))]
}

func (w *socketWorld) publish() {
	most := 3
	if len(w.names) > MaxChannels {
		most = 20
	}
	channels := w.some(1, most)
	p := text(fmt.Sprint("event ", len(w.events)), channels...)
	id, _ := w.hub.publish(encode(&p), channels)
	w.events = append(w.events, published{id, channels})
}

// advance takes a client one step on the way to a hold.
func (w *socketWorld) advance(c *modelClientOfSockets) {
	switch {
	case c.socket != nil:
	case !c.viewing:
		c.viewing = true
		c.position = w.hub.head.Load()
		c.channels = w.some(1, 2)
		if len(w.names) > MaxChannels {
			c.channels = w.some(40, MaxChannels)
		}
	default:
		w.open(c)
	}
}

func (w *socketWorld) open(c *modelClientOfSockets) {
	w.joins++
	w.opened++
	c.viewing = false
	m := &modelSocket{loop: w.loops[w.rand.IntN(len(w.loops))], pipe: &pipe{room: 200 + w.rand.IntN(2000)},
		envelope: w.rand.IntN(4) > 0, seats: make(map[string]int64), given: make(map[int64]bool)}
	m.hold = &hold{kind: ModeWebSocket, descriptor: -1, socket: &socket{envelope: m.envelope, path: "/ws/message"}}
	m.loop.sockets.(*pipes).of[m.hold] = m.pipe
	o := &opening{from: c.position, last: c.position}
	if m.envelope && c.last != 0 {
		o.from, o.last = c.last, c.last
	}
	gap := !w.hasAll(c.channels, o.from)
	m.upTo = o.from
	if gap {
		m.upTo = w.hub.head.Load()
		w.gaps++
	}
	switch {
	case gap && m.envelope:
		m.want = append(m.want, gapFrame(o.last, m.upTo))
	case gap:
		m.ends = "what it missed cannot be told"
	}
	if m.envelope {
		m.want = append(m.want, fmt.Sprintf(`{"id":%d,"event":"m0-open","data":null}`, m.upTo))
	}
	for _, name := range c.channels {
		m.seats[name] = m.upTo
	}
	c.socket = m
	w.hub.join(m.hold, m.loop, c.channels, o)
}

// ask has a client send a message, which is at the app at once.
func (w *socketWorld) ask(c *modelClientOfSockets) {
	m := c.socket
	if m == nil || m.asked || m.hold.state == joining || m.hold.state >= leaving {
		return
	}
	m.asked, m.askedAt = true, w.hub.head.Load()
	m.hold.socket.delivering, m.hold.socket.underWay = true, 1 // by the model, and not by a goroutine
	m.loop.takeMessage(m.hold, message{opcode: opText, payload: []byte("do something")})
	w.asked = append(w.asked, m)
}

// answer has the app answer one of the messages that it has.
func (w *socketWorld) answer(t *testing.T, i int) {
	m := w.asked[i]
	w.asked = slices.Delete(w.asked, i, i+1)
	most := 2
	if len(w.names) > MaxChannels {
		most = 30
	}
	joins, leaves := w.some(0, most), w.some(0, most)
	fields := []string{"M0-Subscribe: " + EncodeChannels(joins), "M0-Unsubscribe: " + EncodeChannels(leaves)}
	w.rand.Shuffle(2, func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
	reply := ""
	if w.rand.IntN(3) == 0 {
		reply = fmt.Sprint("reply ", w.answers)
		fields = append(fields, "M0-Reply: text")
	}
	closes := w.rand.IntN(15) == 0
	if closes {
		fields = append(fields, "M0-Close: 4000 over")
	}
	a := Answer{Status: http.StatusOK, Fields: fieldsOf(t, fields...), Body: []byte(reply), Position: m.askedAt}
	before := w.hub.head.Load()
	w.hub.call(m.loop, func() {
		w.answers++
		m.asked = false
		if m.hold.state < leaving {
			joined := w.foresee(m, joins, leaves, reply, before)
			if closes && m.hold.state == live && !joined { // otherwise it is fed from the journal, at its client's pace
				m.owed = before
			}
		}
		m.loop.answered(m.hold, a, nil)
	})
}

// endByAPI ends a socket as the publish API does.
func (w *socketWorld) endByAPI(m *modelSocket) {
	before := w.hub.head.Load()
	w.hub.call(m.loop, func() {
		if m.hold.state < leaving {
			if m.hold.state == live {
				m.owed = before
			}
			m.loop.endByAPI(m.hold, EndRequest{Code: 4001, Reason: "over"})
		}
	})
}

// read has a client read up to n bytes, and judges them.
func (w *socketWorld) read(t *testing.T, c *modelClientOfSockets, n int) {
	m := c.socket
	if m == nil {
		return
	}
	n = min(n, len(m.pipe.bytes))
	m.rest = append(m.rest, m.pipe.bytes[:n]...)
	m.pipe.bytes = m.pipe.bytes[n:]
	for size := wholeFrame(m.rest); size > 0; size = wholeFrame(m.rest) {
		f, _ := readServerFrame(t, m.rest[:size])
		m.rest = m.rest[size:]
		w.judge(t, c, f)
	}
	if m.pipe.full && n > 0 && !m.pipe.closed {
		m.pipe.full = false
		m.loop.writable(m.hold)
		m.loop.bury()
	}
	if m.pipe.shut && !m.pipe.closed && len(m.pipe.bytes) == 0 { // the client answers the close frame, and leaves
		m.loop.hangUp(m.hold)
		m.loop.bury()
	}
	if m.pipe.closed && len(m.pipe.bytes) == 0 {
		w.left(c)
	}
}

// left is when a client has read the last of a socket.
func (w *socketWorld) left(c *modelClientOfSockets) {
	if c.socket.pipe.reset {
		w.slow++
	}
	c.socket = nil
}

func (w *socketWorld) disconnect(t *testing.T, c *modelClientOfSockets) {
	m := c.socket
	if m == nil {
		c.viewing = false
		return
	}
	if w.rand.IntN(2) == 0 {
		w.read(t, c, w.rand.IntN(2000)) // at any prefix
	}
	switch {
	case c.socket == nil || m.pipe.closed:
		return
	case m.hold.state == joining || w.rand.IntN(2) == 0:
		m.pipe.fail = errors.New("reset by the client") // seen at the next write
	default:
		m.loop.hangUp(m.hold)
		m.loop.bury()
	}
	if m.asked {
		w.orphans++
	}
	c.socket = nil
}

// Whatever the order of publishes, joins, turns, reads, messages, answers,
// ends, overflows and evictions: a socket is given every event of its channels
// once, what it joins from where its message was at the app, or it is told of
// a gap, or it ends.
func TestSocket_EveryHistoryOfSubscriptionsGivesEveryEventOnceOrAGap(t *testing.T) {
	t.Parallel()
	var all socketWorld
	for seed := range uint64(*modelSeeds) {
		w := newSocketWorld(seed)
		for range 300 {
			w.step(t)
		}
		w.settle(t)
		for sum, n := range map[*int]int{&all.joins: w.joins, &all.frames: w.frames, &all.answers: w.answers, &all.late: w.late, &all.gaps: w.gaps,
			&all.refused: w.refused, &all.slow: w.slow, &all.orphans: w.orphans, &all.owed: w.owed} {
			*sum += n
		}
	}
	t.Logf("%d seeds: %d sockets, %d frames, %d answers, %d events that the cursor had passed, %d gaps, %d answers with too many channels, %d ended slow, %d left with a message at the app, %d ended after what they were owed",
		*modelSeeds, all.joins, all.frames, all.answers, all.late, all.gaps, all.refused, all.slow, all.orphans, all.owed)
	for what, n := range map[string]int{"join": all.joins, "frame": all.frames, "answer": all.answers, "late event": all.late, "gap": all.gaps,
		"refusal": all.refused, "slow end": all.slow, "orphan": all.orphans, "owed event": all.owed} {
		if n == 0 {
			t.Errorf("not one %s in all histories: they prove little", what)
		}
	}
}
