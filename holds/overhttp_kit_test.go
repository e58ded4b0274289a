package holds

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

// overStage is a stage with a socket whose app speaks WebSocket-over-HTTP.
type overStage struct {
	*stage
	t    *testing.T
	app  *stageApp
	hold *hold
	pipe *pipe
}

const (
	handshakeFields = "Host: app.example\r\nCookie: a=1\r\n"
	eventsFields    = "Sec-WebSocket-Extensions: grip\r\nContent-Type: application/websocket-events\r\nAccept: application/websocket-events\r\nConnection-Id: c-1\r\n"
)

// startOver has the app open a socket with OPEN and what else it says, and with
// the extension grip. Its client has been sent what follows the head.
func startOver(t *testing.T, cfg Config, events string, fields ...string) *overStage {
	t.Helper()
	s, app := gripStage(t, cfg)
	return s.openOver(t, app, s.hub.head.Load(), eventsAnswer(t, "OPEN\r\n"+events, append(fields, "Sec-WebSocket-Extensions: grip")...))
}

// openOver opens a socket with the app's answer to a handshake that was sent to
// it at a position.
func (s *stage) openOver(t *testing.T, app *stageApp, position int64, a Answer) *overStage {
	t.Helper()
	a.Position = position
	over := &OverHTTP{Connection: "c-1", Answer: a}
	h, p := &hold{kind: ModeWebSocket, descriptor: -1}, &pipe{room: -1}
	h.more = &beyond{grip: newGrip(&Grip{}, &Spec{Target: "/ws?a=1", Host: "app.example"})}
	h.socket = &socket{lane: "web", path: "/ws?a=1", fields: []byte(handshakeFields), over: newOverHTTP(over)}
	s.loop.sockets.(*pipes).of[h] = p
	s.loop.counts.held.Add(1)
	s.hub.join(h, s.loop, nil, &opening{head: []byte("HEAD\n"), over: over, from: position, last: position})
	s.rest()
	o := &overStage{s, t, app, h, p}
	if got := s.take(h, len("HEAD\n")); got != "HEAD\n" {
		t.Fatalf("the first bytes are %q, want the head", got)
	}
	return o
}

// eventsAnswer is an answer whose body is events.
func eventsAnswer(t *testing.T, events string, fields ...string) Answer {
	t.Helper()
	return Answer{Status: 200, Fields: fieldsOf(t, append(fields, "Content-Type: application/websocket-events")...), Body: []byte(events)}
}

// eventOf is an event with content; controlOf one that is for us.
func eventOf(kind, content string) string {
	return fmt.Sprintf("%s %x\r\n%s\r\n", kind, len(content), content)
}

func controlOf(json string) string { return eventOf("TEXT", "c:"+json) }

func subscribeTo(channel string) string {
	return controlOf(fmt.Sprintf(`{"type": "subscribe", "channel": %q}`, channel))
}

// frameBytes is a whole frame as a client gets it.
func frameBytes(op opcode, payload string) string {
	f := []byte{0x80 | byte(op)}
	switch n := len(payload); {
	case n <= 125:
		f = append(f, byte(n))
	case n <= 0xFFFF:
		f = binary.BigEndian.AppendUint16(append(f, 126), uint16(n))
	default:
		f = binary.BigEndian.AppendUint64(append(f, 127), uint64(n))
	}
	return string(f) + payload
}

// closeBytes is a close frame, or with closeContentOf what it says.
func closeBytes(code uint16, reason string) string {
	return frameBytes(opClose, closeContentOf(code, reason))
}

func closeContentOf(code uint16, reason string) string {
	return string(binary.BigEndian.AppendUint16(nil, code)) + reason
}

// says has the client send frames.
func (o *overStage) says(frames clientSends) { o.say(o.hold, frames) }

// gets requires what the client was sent since the last time, and takes it.
func (o *overStage) gets(frames ...string) {
	o.t.Helper()
	if got, want := o.take(o.hold, 1<<30), strings.Join(frames, ""); got != want {
		o.t.Errorf("the client gets %.300q, want %.300q", got, want)
	}
}

// asked takes what the app is asked, and requires its events.
func (o *overStage) asked(events ...string) *stageCall {
	o.t.Helper()
	if !o.hold.socket.delivering {
		o.t.Fatalf("the app is sent nothing, want %.300q", events)
	}
	c := o.wantAsked(o.t, o.app)
	if got, want := string(c.Body), strings.Join(events, ""); got != want || c.Body == nil {
		o.t.Fatalf("the app is sent %d bytes, %.300q, want %d, %.300q", len(got), got, len(want), want)
	}
	return c
}

// unasked requires that nothing more goes to the app: a request would be made
// in this very turn, and its goroutine needs no more than to run.
func (o *overStage) unasked() {
	o.t.Helper()
	o.rest()
	if o.hold.socket.delivering {
		c := o.wantAsked(o.t, o.app)
		o.t.Fatalf("the app is sent %.300q", c.Body)
	}
}

// tells has the app answer with events, and the loop go on.
func (o *overStage) tells(c *stageCall, events string, fields ...string) {
	o.t.Helper()
	o.answers(c, eventsAnswer(o.t, events, fields...), nil)
}

// answers has the app answer, as of now where it does not say when it was
// asked, and the loop go on with that.
func (o *overStage) answers(c *stageCall, a Answer, err error) {
	o.t.Helper()
	if a.Position == 0 {
		a.Position = o.hub.head.Load()
	}
	c.answered <- struct {
		Answer
		error
	}{a, err}
	for end := time.Now().Add(deadline); !o.called(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			o.t.Fatal("the answer does not come to the loop")
		}
	}
	o.rest()
}

// called reports whether something to run waits for the loop.
func (s *stage) called() bool {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	return slices.ContainsFunc(s.loop.inbox, func(i item) bool { return i.call != nil })
}

// vanishes has the client go without a close frame.
func (o *overStage) vanishes() {
	o.loop.hangUp(o.hold)
	o.loop.bury()
	o.rest()
}

// message publishes an item for sockets.
func (s *stage) message(channel, content string, filters ...string) {
	s.hub.publishItem(encodeItem(&Item{Channel: channel, Socket: &SocketForm{Kind: opText, Content: []byte(content), Filters: filters}}))
	s.rest()
}

// wantNothingLeft requires that the sockets are gone, with all that was counted
// of them.
func (s *stage) wantNothingLeft(t *testing.T) {
	t.Helper()
	members := 0
	for _, r := range s.hub.journal.rooms {
		members += r.members + len(r.local[0].holds)
	}
	c := s.loop.counts
	if c.held.Load() != 0 || c.open[ModeWebSocket].Load() != 0 || c.unfinished.Load() != 0 || c.outbox.Load() != 0 || len(s.loop.orphans) > 0 ||
		members > 0 || len(s.loop.table) != len(s.loop.vacant) || s.loop.keeping.bytes != 0 || len(s.loop.outboxes) > 0 {
		t.Errorf("left are: held %d, open %d, unfinished %d, outbox %d, orphans %d, members %d, table %d of %d, keeping %d",
			c.held.Load(), c.open[ModeWebSocket].Load(), c.unfinished.Load(), c.outbox.Load(), len(s.loop.orphans), members,
			len(s.loop.table)-len(s.loop.vacant), len(s.loop.table), s.loop.keeping.bytes)
	}
}

// openOverOn opens a socket on a station's connection, and reads the answer to
// its handshake. early is what the client sent behind that.
func (s *station) openOverOn(client, server net.Conn, a Answer, early clientSends) *socketClient {
	s.t.Helper()
	spec := Spec{Kind: ModeWebSocket, Head: []byte(socketHead), Position: a.Position, Lane: "web", Path: "/ws?a=1", Fields: []byte(handshakeFields), Early: early,
		Grip: &Grip{}, Target: "/ws?a=1", Host: "app.example", OverHTTP: &OverHTTP{Connection: "c-1", Answer: a}}
	if err := s.Open(server, spec); err != nil {
		server.Close()
		s.t.Fatal(err)
	}
	c := &socketClient{t: s.t, conn: client, in: bufio.NewReader(client)}
	c.wantHead()
	return c
}

// events answers with events.
func (c *appCall) events(events string) {
	c.reply(200, events, "Content-Type: application/websocket-events")
}
