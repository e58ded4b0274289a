package holds

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
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
	o := &opening{numbered: true, from: c.position, last: c.position}
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

func gapFrame(last, head int64) string {
	return fmt.Sprintf(`{"id":null,"event":"m0-gap","data":{"last_event_id":%d,"head":%d}}`, last, head)
}

// frame is what an event is to a socket.
func (m *modelSocket) frame(i int, e published) string {
	if m.envelope {
		return fmt.Sprintf(`{"id":%d,"event":null,"data":"event %d"}`, e.id, i)
	}
	return fmt.Sprint("event ", i)
}

// due gives the frames of what a socket has to get of its channels from where
// its list ends, up to a position.
func (w *socketWorld) due(m *modelSocket, upTo int64) (frames []string, ids []int64) {
	for i, e := range w.events {
		if e.id <= m.upTo || e.id > upTo || m.given[e.id] {
			continue
		}
		for _, name := range e.channels {
			if from, in := m.seats[name]; in && e.id > from {
				frames, ids = append(frames, m.frame(i, e)), append(ids, e.id)
				break
			}
		}
	}
	return frames, ids
}

// settleUpTo adds to a socket's list what is due up to a position.
func (w *socketWorld) settleUpTo(m *modelSocket, position int64) {
	frames, ids := w.due(m, position)
	m.want = append(m.want, frames...)
	for _, id := range ids {
		m.given[id] = true
	}
	m.upTo = max(m.upTo, position)
}

// hasAll reports whether the journal has all that channels had after a position.
func (w *socketWorld) hasAll(channels []string, after int64) bool {
	for _, e := range w.events {
		for _, name := range e.channels {
			if e.id <= after || !slices.Contains(channels, name) {
				continue
			}
			if r := w.hub.journal.rooms[name]; r == nil || len(r.ring) == 0 || r.ring[0].id > e.id {
				return false
			}
		}
	}
	return true
}

// ask has a client send a message, which is at the app at once.
func (w *socketWorld) ask(c *modelClientOfSockets) {
	m := c.socket
	if m == nil || m.asked || m.hold.state == joining || m.hold.state >= leaving {
		return
	}
	m.asked, m.askedAt = true, w.hub.head.Load()
	m.hold.socket.delivering = true // by the model, and not by a goroutine
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

// foresee says what an answer has to do, before it is obeyed. before is the
// head as the app answered.
func (w *socketWorld) foresee(m *modelSocket, joins, leaves []string, reply string, before int64) (joined bool) {
	w.settleUpTo(m, m.hold.cursor)
	if reply != "" {
		m.want = append(m.want, reply)
	}
	leaves = slices.DeleteFunc(slices.Clone(leaves), func(name string) bool {
		_, in := m.seats[name]
		return !in || slices.Contains(joins, name)
	})
	joins = slices.DeleteFunc(slices.Clone(joins), func(name string) bool {
		_, in := m.seats[name]
		return in
	})
	if len(m.seats)-len(leaves)+len(joins) > MaxChannels {
		joins = nil
		w.refused++
	}
	cursor := m.hold.cursor
	if _, ids := w.due(m, before); len(leaves) > 0 && m.hold.state == live && len(ids) > 0 { // what was published before it leaves
		cursor = ids[len(ids)-1]
		w.settleUpTo(m, cursor)
	}
	if len(joins) > 0 {
		w.foreseeJoin(m, joins, cursor)
	}
	for _, name := range leaves {
		delete(m.seats, name)
	}
	return len(joins) > 0
}

func (w *socketWorld) foreseeJoin(m *modelSocket, joins []string, cursor int64) {
	from := m.askedAt
	if !w.hasAll(joins, from) {
		w.gaps++
		from = w.hub.head.Load()
		m.want = append(m.want, gapFrame(m.askedAt, from))
		if !m.envelope {
			m.ends = "what it missed of what it joined cannot be told"
		}
	}
	for i, e := range w.events { // what its cursor has passed
		if e.id > from && e.id <= cursor && !m.given[e.id] && slices.ContainsFunc(e.channels, func(name string) bool { return slices.Contains(joins, name) }) {
			m.want, m.given[e.id] = append(m.want, m.frame(i, e)), true
			w.late++
		}
	}
	for _, name := range joins {
		m.seats[name] = from
	}
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

// wholeFrame is the size of the first frame in b; 0: it is not whole.
func wholeFrame(b []byte) int {
	if len(b) < 4 {
		if len(b) >= 2 && len(b) >= 2+int(b[1]) {
			return 2 + int(b[1])
		}
		return 0
	}
	size := 2 + int(b[1])
	if b[1] == 126 {
		size = 4 + int(binary.BigEndian.Uint16(b[2:]))
	}
	if len(b) < size {
		return 0
	}
	return size
}

// judge compares what a client reads with what is due.
func (w *socketWorld) judge(t *testing.T, c *modelClientOfSockets, f serverFrame) {
	m := c.socket
	switch f.opcode {
	case opPing:
		return
	case opClose:
		if m.owed != 0 {
			w.owed++
			frames, _ := w.due(m, m.owed)
			if due := append(slices.Clone(m.want), frames...); m.got < len(due) {
				w.failf(t, "%s: it is closed before %s", c.name, due[m.got])
			}
		}
		return
	}
	w.frames++
	due := m.want
	if m.got >= len(due) {
		frames, _ := w.due(m, w.hub.head.Load())
		due = append(slices.Clone(due), frames...)
	}
	if m.got >= len(due) || f.opcode != opText || f.payload != due[m.got] {
		w.failf(t, "%s: frame %d is %s, due is %s; behind %s", c.name, m.got, f, strings.Join(due[min(m.got, len(due)):], " "), strings.Join(due[:min(m.got, len(due))], " "))
	}
	m.got++
	var id int64
	if fmt.Sscanf(f.payload, `{"id":%d,`, &id); id != 0 {
		c.last = id
	}
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

// settle lets everything come to rest, and asks for what is still owed.
func (w *socketWorld) settle(t *testing.T) {
	for len(w.asked) > 0 {
		w.answer(t, 0)
	}
	for busy := true; busy; {
		busy = false
		for _, l := range w.loops {
			for l.turn() || !l.sleep() {
				busy = true
			}
		}
		for _, c := range w.clients {
			if c.socket != nil && (len(c.socket.pipe.bytes) > 0 || c.socket.pipe.closed) {
				busy = true
				w.read(t, c, 1<<20)
			}
		}
	}
	held := 0
	for _, c := range w.clients {
		m := c.socket
		if m == nil {
			continue
		}
		held++
		if m.hold.state != live || m.ends != "" {
			w.failf(t, "%s: at rest its hold is in state %d. %s", c.name, m.hold.state, m.ends)
		}
		w.settleUpTo(m, w.hub.head.Load())
		if m.got != len(m.want) {
			w.failf(t, "%s: at rest it has not got %s", c.name, m.want[m.got])
		}
	}
	w.checkRest(t, held)
}

// checkRest compares what the hub and the loops count with what there is.
// Holds whose clients are gone without a sign are there until they are written to.
func (w *socketWorld) checkRest(t *testing.T, held int) {
	there, unseen := 0, 0
	for _, l := range w.loops {
		there += len(l.table) - len(l.vacant)
		for _, h := range l.table {
			if h != nil && l.sockets.(*pipes).of[h].fail != nil {
				unseen++
			}
		}
		if len(l.orphans) > 0 {
			w.failf(t, "%d sockets whose messages were all answered are still waited for", len(l.orphans))
		}
	}
	left := -w.loops[0].counts.held.Load() // whoever opened them counted nobody in
	if there != held+unseen || int(left) != w.opened-there {
		w.failf(t, "%d sockets are there, want %d; %d have left, want %d", there, held+unseen, left, w.opened-there)
	}
	if unseen == 0 {
		(&world{seed: w.seed, hub: w.hub, loops: w.loops}).checkCounts(t)
	}
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
