package holds

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fasthttp/websocket"

	"holdfast/internal/http1"
)

// What was published, what a bare socket is sent of it, and what stands behind
// the id in an envelope.
var socketForms = []struct {
	publication Publication
	opcode      opcode
	bare        string
	envelope    string
}{
	{Publication{Data: []byte("hello")}, opText, "hello", `"event":null,"data":"hello"}`},
	{Publication{Data: []byte("hello"), Event: "greeting", Retry: 500}, opText, "hello", `"event":"greeting","data":"hello"}`},
	{Publication{Data: []byte("two\nlines\r\nand\rmore\n")}, opText, "two\nlines\r\nand\rmore\n", `"event":null,"data":"two\nlines\r\nand\rmore\n"}`},
	{Publication{Data: []byte("\"\\<b>&é😀\u2028\x00\x1f\x7f")}, opText, "\"\\<b>&é😀\u2028\x00\x1f\x7f", `"event":null,"data":"\"\\<b>&é😀\u2028\u0000\u001f` + "\x7f\"}"},
	{Publication{Data: []byte(""), Event: `"'\`}, opText, "", `"event":"\"'\\","data":""}`},
	{Publication{Data: []byte(`{"b":1.0,"a":[null,"\u00e9"]}`), Kind: DataJSON}, opText, `{"b":1.0,"a":[null,"\u00e9"]}`, `"event":null,"data":{"b":1.0,"a":[null,"\u00e9"]}}`},
	{Publication{Data: []byte("null"), Kind: DataJSON}, opText, "null", `"event":null,"data":null}`},
	{Publication{Data: []byte("\x00\xff\xfebytes\n"), Kind: DataBinary}, opBinary, "\x00\xff\xfebytes\n", `"event":null,"base64":"` + base64.StdEncoding.EncodeToString([]byte("\x00\xff\xfebytes\n")) + `"}`},
	{Publication{Data: nil, Kind: DataBinary}, opBinary, "", `"event":null,"base64":""}`},
}

func TestSocket_AnEventIsItsDataOrAnEnvelopeAroundIt(t *testing.T) {
	s := startStation(t, Config{})
	bare, enveloped := s.openSocket(Spec{}), s.openSocket(Spec{Envelope: true})
	enveloped.wantOpen()
	for _, f := range socketForms {
		f.publication.Channels = []string{"room"}
		id, reached := s.Publish(f.publication)
		if reached != 2 {
			t.Errorf("%q reached %d, want 2", f.bare, reached)
		}
		bare.want(f.opcode, f.bare)
		enveloped.want(opText, fmt.Sprintf(`{"id":%d,`, id)+f.envelope)
	}
	// The lengths between which a frame's head changes (RFC 6455 §5.2).
	for _, n := range []int{125, 126, 127, 0xFFFF, 0x10000, MaxData} {
		data := sentence("long", n)
		id := s.publish(data, "room")
		bare.wantText(data)
		enveloped.wantText(fmt.Sprintf(`{"id":%d,"event":null,"data":"%s"}`, id, data))
	}
}

func TestSocket_AnEventToSeveralOfItsChannelsComesOnce(t *testing.T) {
	s := startStation(t, Config{})
	c := s.openSocket(Spec{Channels: []string{"a", "b", "c"}})
	s.publish("to three", "c", "a", "b")
	s.publish("to one", "b")
	s.publish("to others", "d")
	s.publish("the last", "a", "d")
	c.wantText("to three", "to one", "the last")
}

// The event's bytes are rendered when the first socket needs them, and no more.
func TestSocket_AnEventIsRenderedOnceForAllSocketsOfAForm(t *testing.T) {
	s := newStage(Config{})
	for _, envelope := range []bool{false, true} {
		var held []*hold
		for range 10 {
			h, _ := s.openSocket(200, envelope, "a")
			held = append(held, h)
		}
		s.rest()
		s.publish(strings.Repeat("x", 1000), "a")
		s.rest()
		for i, h := range held {
			if h.outbox == nil || len(h.outbox.pieces) != 1 {
				t.Fatalf("envelope %v, socket %d: nothing waits", envelope, i)
			}
			if piece, first := h.outbox.pieces[0], held[0].outbox.pieces[0]; &piece[len(piece)-1] != &first[len(first)-1] {
				t.Errorf("envelope %v, socket %d has bytes of its own", envelope, i)
			}
		}
	}
}

func TestSocket_WhatIsPublishedWhileTheViewRunsComesAfterTheHandshake(t *testing.T) {
	for _, envelope := range []bool{false, true} {
		s := startStation(t, Config{})
		s.publish("before the view", "room")
		position := s.Position()
		first := s.publish("while the view runs", "room")
		c := s.openSocket(Spec{Position: position, Envelope: envelope})
		second := s.publish("after it", "room")
		if !envelope {
			c.wantText("while the view runs", "after it")
			continue
		}
		if at := c.wantOpen(); at != position {
			t.Errorf("it opens at %d, want the position when the view began, %d", at, position)
		}
		c.wantText(fmt.Sprintf(`{"id":%d,"event":null,"data":"while the view runs"}`, first),
			fmt.Sprintf(`{"id":%d,"event":null,"data":"after it"}`, second))
	}
}

func TestSocket_AnEnvelopesClientThatComesBackGetsWhatItMissed(t *testing.T) {
	s := startStation(t, Config{})
	c := s.openSocket(Spec{Envelope: true})
	opened := c.wantOpen()
	last := s.publish("seen", "room")
	if e := c.envelope(); *e.ID != last {
		t.Fatalf("the event's id is %d, want %d", *e.ID, last)
	}
	c.conn.Close()
	s.untilSocketEnded(EndClient)
	for i := range 100 {
		s.publish(fmt.Sprint("missed ", i), "room")
	}
	for from, missed := range map[int64][]string{last: nil, opened: {"seen"}} {
		c := s.openSocket(Spec{Envelope: true, Last: fmt.Sprint(from)})
		s.publish("live", "room")
		if at := c.wantOpen(); at != from {
			t.Errorf("it opens at %d, want where its client was, %d", at, from)
		}
		for i := range 100 {
			missed = append(missed, fmt.Sprint("missed ", i))
		}
		for _, data := range append(missed, "live") {
			if e := c.envelope(); string(e.Data) != fmt.Sprintf("%q", data) || *e.ID <= from {
				t.Fatalf("%s with id %d, want %q", e.Data, *e.ID, data)
			}
		}
	}
}

// It has no ids to come back with: whatever its client sends means nothing.
func TestSocket_ABareSocketHasNoReplay(t *testing.T) {
	s := startStation(t, Config{})
	last := s.Position()
	s.publish("missed", "room")
	c := s.openSocket(Spec{Last: fmt.Sprint(last)})
	s.publish("live", "room")
	c.wantText("live")
}

func TestSocket_AnEnvelopesClientIsToldOfAGapAndIsFedFromTheHead(t *testing.T) {
	s := startStation(t, Config{Journal: JournalLimits{Events: 2}})
	last := s.Position()
	for i := range 3 {
		s.publish(fmt.Sprint("missed ", i), "room")
	}
	head := s.Position()
	for _, came := range []struct {
		with string
		gap  bool
	}{{fmt.Sprint(last), true}, {fmt.Sprint(head + 1000), true}, {"17", true}, {strings.Repeat("9", 30), true}, {"", false}, {"x", false}, {"-1", false}} {
		c := s.openSocket(Spec{Envelope: true, Last: came.with, Position: head})
		if came.gap {
			told := came.with
			if len(told) > 20 {
				told = fmt.Sprint(int64(1<<63 - 1))
			}
			c.wantText(fmt.Sprintf(`{"id":null,"event":"m0-gap","data":{"last_event_id":%s,"head":%d}}`, told, head))
		}
		if at := c.wantOpen(); at != head {
			t.Errorf("back with %q it opens at %d, want the head, %d", came.with, at, head)
		}
	}
	id := s.publish("after", "room")
	c := s.openSocket(Spec{Envelope: true, Last: fmt.Sprint(head)})
	if at := c.wantOpen(); at != head {
		t.Errorf("it opens at %d, want %d", at, head)
	}
	c.wantText(fmt.Sprintf(`{"id":%d,"event":null,"data":"after"}`, id))
	if n := s.Snapshot().GapsTold; n != 4 {
		t.Errorf("%d gaps are counted, want 4", n)
	}
}

// A view that took so long that the journal has let go what was published
// meanwhile: a bare socket cannot be told, and must not look whole.
func TestSocket_ABareSocketThatHasMissedSomethingIsEndedSlow(t *testing.T) {
	s := startStation(t, Config{Journal: JournalLimits{Events: 2}})
	position := s.Position()
	for i := range 3 {
		s.publish(fmt.Sprint("missed ", i), "room")
	}
	client, server := s.pair(false)
	if err := s.Open(server, Spec{Kind: ModeWebSocket, Channels: []string{"room"}, Head: []byte(socketHead), Position: position}); err != nil {
		t.Fatal(err)
	}
	(&socketClient{t: t, conn: client, in: bufio.NewReader(client)}).wantReset()
	s.untilSocketEnded(EndSlow)
}

// What a client sends behind its handshake comes with it.
func TestSocket_WhatCameWithTheHandshakeIsReadFirst(t *testing.T) {
	whole := clientSends{}.ping("early").text("first").beginText("sec").text("")
	whole = whole[:len(whole)-len(clientSends{}.text(""))].end("ond")
	for cut := range len(whole) + 1 {
		s, app := startApp(t, Config{})
		early := bytes.Clone(whole[:cut])
		c := s.openSocket(Spec{Early: early})
		c.send(whole[cut:].text("third"))
		c.want(opPong, "early")
		for _, message := range []string{"first", "second", "third"} {
			app.wantMessage(message).ok()
		}
		s.Close()
	}
}

func TestSocket_ACloseThatCameWithTheHandshakeIsAnswered(t *testing.T) {
	s, app := startApp(t, Config{})
	c := s.openSocket(Spec{Early: clientSends{}.text("hello and").close(1000, "good bye")})
	app.wantMessage("hello and").ok()
	c.wantClose(1000, "")
	s.untilSocketEnded(EndClient)
}

// libraryClient opens a socket with a client of others' making: the handshake
// too, the way proxy does it.
func (s *station) libraryClient(spec Spec, linked bool) *websocket.Conn {
	s.t.Helper()
	client, server := s.pair(linked)
	server.SetDeadline(time.Now().Add(deadline))
	served := make(chan error, 1)
	go func() { served <- s.serveHandshake(server, spec) }()
	dialer := websocket.Dialer{ReadBufferSize: 512, WriteBufferSize: 512, NetDial: func(string, string) (net.Conn, error) { return client, nil }}
	c, res, err := dialer.Dial("ws://app.example/live/", nil)
	if err := <-served; err != nil {
		s.t.Fatal(err)
	}
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		s.t.Fatalf("%v, %v", res, err)
	}
	return c
}

// serveHandshake answers a client's handshake and holds it.
func (s *station) serveHandshake(server net.Conn, spec Spec) error {
	in := bufio.NewReader(server)
	req, err := http.ReadRequest(in)
	if err != nil {
		return err
	}
	var fields []http1.Field
	for name, values := range req.Header {
		for _, value := range values {
			fields = append(fields, http1.Field{Name: []byte(name), Value: []byte(value)})
		}
	}
	key, err := CheckHandshake(req.Method, req.ProtoMinor, fields)
	if err != nil {
		return err
	}
	spec.Kind, spec.Channels, spec.Position = ModeWebSocket, []string{"room"}, s.Position()
	spec.Lane, spec.Path = "web", "/ws/message"
	spec.Head = fmt.Appendf(nil, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n", AcceptKey(key))
	spec.Early, _ = in.Peek(in.Buffered())
	return s.Open(server, spec)
}

func TestSocket_AnotherLibrarysClientIsServed(t *testing.T) {
	eachConnection(t, func(t *testing.T, linked bool) {
		s, app := startApp(t, Config{Heartbeat: 20 * time.Millisecond})
		c := s.libraryClient(Spec{}, linked)
		pings := make(chan struct{}, 1000)
		pong := c.PingHandler()
		c.SetPingHandler(func(data string) error {
			pings <- struct{}{}
			return pong(data)
		})
		pongs := make(chan string, 1)
		c.SetPongHandler(func(data string) error { pongs <- data; return nil })
		wantMessage := func(kind int, data string) {
			t.Helper()
			if got, b, err := c.ReadMessage(); err != nil || got != kind || string(b) != data {
				t.Fatalf("message %d with %.60q, %v; want %d with %.60q", got, b, err, kind, data)
			}
		}
		s.publish("an event", "room")
		wantMessage(websocket.TextMessage, "an event")
		s.Publish(Publication{Channels: []string{"room"}, Data: []byte{0, 0xff}, Kind: DataBinary})
		wantMessage(websocket.BinaryMessage, "\x00\xff")
		for _, n := range []int{0, 125, 126, 500, 70_000, 1 << 20} { // its writer makes frames of 512 bytes
			w, err := c.NextWriter(websocket.TextMessage)
			if err != nil {
				t.Fatal(err)
			}
			question := strings.Repeat("q", n)
			if _, err := io.WriteString(w, question); err != nil {
				t.Fatal(err)
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			app.wantMessage(question).reply(http.StatusOK, "answer "+question[:n/2], "M0-Reply: text")
			wantMessage(websocket.TextMessage, "answer "+question[:n/2])
		}
		if err := c.WriteControl(websocket.PingMessage, []byte("are you there"), time.Time{}); err != nil {
			t.Fatal(err)
		}
		go s.tickAfter(pings, pongs)
		wantMessage(websocket.TextMessage, "tick, are you there")
		s.End(EndRequest{Channel: "room", Code: 4002, Reason: "the room is closed"})
		_, _, err := c.ReadMessage()
		if closed, ok := err.(*websocket.CloseError); !ok || closed.Code != 4002 || closed.Text != "the room is closed" {
			t.Fatalf("it is ended with %v", err)
		}
		s.untilSocketEnded(EndPublished)
		s.until("its answer to the close frame ends the connection", func() bool { return s.counts.held.Load() == 0 })
	})
}

// tickAfter publishes when a client has been sent a ping, and its own was answered.
func (s *station) tickAfter(pings chan struct{}, pongs chan string) {
	<-pings
	s.publish("tick, "+<-pongs, "room")
}
