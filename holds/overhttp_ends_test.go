package holds

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// The app has a word in how its client's close is answered; where it says
// nothing, or fails, it is the client's own.
func TestOverHTTP_AClientsCloseIsTheAppsToAnswer(t *testing.T) {
	says := func(events string) Answer { return eventsAnswer(t, events) }
	const said, unsaid = "CLOSE 2\r\n\x0f\xa1\r\n", "CLOSE\r\n" // 4001
	own := closeBytes(4001, "")
	for what, c := range map[string]struct {
		close  clientSends
		asked  string
		answer Answer
		err    error
		gets   string
	}{
		"a code and a reason":        {clientSends{}.close(4001, "bye"), said, says(eventOf("CLOSE", closeContentOf(4002, "ok"))), nil, closeBytes(4002, "ok")},
		"a message before":           {clientSends{}.close(4001, ""), said, says(eventOf("TEXT", "m:x") + eventOf("CLOSE", closeContentOf(1000, ""))), nil, frameBytes(opText, "x") + closeBytes(1000, "")},
		"a code that is none":        {clientSends{}.close(4001, ""), said, says(eventOf("CLOSE", "\x00\x00")), nil, closeBytes(1000, "")},
		"a code that is not sent":    {clientSends{}.close(4001, ""), said, says(eventOf("CLOSE", closeContentOf(1006, "x"))), nil, closeBytes(1000, "x")},
		"no code":                    {clientSends{}.close(4001, ""), said, says("CLOSE\r\n"), nil, closeBytes(1000, "")},
		"what it says behind":        {clientSends{}.close(4001, ""), said, says(eventOf("CLOSE", closeContentOf(4002, "")) + eventOf("TEXT", "m:late")), nil, closeBytes(4002, "")},
		"silence":                    {clientSends{}.close(4001, "bye"), said, says(""), nil, own},
		"a failure":                  {clientSends{}.close(4001, "bye"), said, Answer{Status: 500}, nil, own},
		"another type":               {clientSends{}.close(4001, "bye"), said, Answer{Status: 200, Fields: fieldsOf(t, "Content-Type: text/html"), Body: []byte("x")}, nil, own},
		"a cut":                      {clientSends{}.close(4001, "bye"), said, Answer{}, errors.New("cut after it was sent"), own},
		"silence, and no code":       {clientSends{}.frame(0x88, ""), unsaid, says(""), nil, frameBytes(opClose, "")},
		"a code, where none was":     {clientSends{}.frame(0x88, ""), unsaid, says(eventOf("CLOSE", closeContentOf(4002, ""))), nil, closeBytes(4002, "")},
		"what comes behind a close":  {clientSends{}.close(4001, "").text("late").close(1000, ""), said, says(""), nil, own},
		"an app that is not there":   {clientSends{}.close(4001, ""), said, Answer{}, fmt.Errorf("%w: refused", ErrDown), own},
		"messages before the client": {clientSends{}.text("last").close(4001, ""), "TEXT 4\r\nlast\r\n" + said, says(""), nil, own},
	} {
		o := startOver(t, Config{}, subscribeTo("a"))
		o.says(clientSends{}.text("1"))
		call := o.asked("TEXT 1\r\n1\r\n")
		o.says(c.close)
		o.gets()
		o.tells(call, "")
		o.answers(o.asked(c.asked), c.answer, c.err)
		o.gets(c.gets)
		if o.socketsEnded(EndClient) != 1 || !o.pipe.closed || o.pipe.reset {
			t.Errorf("%s: closed %v, reset %v, %d ended by the client, %d of overload", what, o.pipe.closed, o.pipe.reset, o.socketsEnded(EndClient), o.socketsEnded(EndOverload))
		}
		o.unasked()
		o.wantNothingLeft(t)
	}
}

// Its close is what the app is told, also when it has gone by then.
func TestOverHTTP_AClientThatGoesBehindItsCloseIsNoOtherEnd(t *testing.T) {
	o := startOver(t, Config{}, "")
	o.says(clientSends{}.close(4001, ""))
	call := o.asked("CLOSE 2\r\n\x0f\xa1\r\n")
	o.vanishes()
	o.tells(call, eventOf("CLOSE", closeContentOf(4002, "")))
	o.unasked()
	o.gets()
	o.wantNothingLeft(t)
}

func TestOverHTTP_WhoHasGoneIsToldOfOnceAndBehindItsMessages(t *testing.T) {
	o := startOver(t, Config{}, subscribeTo("a"))
	o.vanishes()
	o.tells(o.asked("DISCONNECT\r\n"), eventOf("TEXT", "m:to nobody")+subscribeTo("b"))
	o.unasked()
	o.wantNothingLeft(t)

	o = startOver(t, Config{}, "")
	o.says(clientSends{}.text("1"))
	call := o.asked("TEXT 1\r\n1\r\n")
	o.says(clientSends{}.text("2"))
	o.vanishes()
	o.tells(call, subscribeTo("a")+controlOf(`{"type": "keep-alive", "content": "k"}`)+eventOf("CLOSE", closeContentOf(4002, "")))
	call = o.asked("TEXT 1\r\n2\r\nDISCONNECT\r\n")
	if o.loop.counts.held.Load() != 1 {
		t.Error("it is not waited for what it sent")
	}
	o.answers(call, Answer{Status: 500}, nil)
	o.unasked()
	if ok, failed := o.loop.counts.inbound[inboundOK].Load(), o.loop.counts.inbound[inboundFailed].Load(); ok != 1 || failed != 1 {
		t.Errorf("%d messages are counted as taken, %d as failed", ok, failed)
	}
	o.wantNothingLeft(t)
}

// The close frame is ours first; then the app is told of the client's answer to
// it.
func TestOverHTTP_TheAppsCloseIsFollowedByTheClientsCloseEvent(t *testing.T) {
	for content, frame := range map[string]string{
		"":                          closeBytes(1000, "published"),
		"\x00\x00":                  closeBytes(1000, "published"),
		closeContentOf(1005, ""):    closeBytes(1000, "published"),
		closeContentOf(4003, "why"): closeBytes(4003, "why"),
		closeContentOf(4003, strings.Repeat("é", 100)): closeBytes(4003, strings.Repeat("é", 61)),
	} {
		o := startOver(t, Config{}, subscribeTo("a"))
		o.says(clientSends{}.text("1"))
		call := o.asked("TEXT 1\r\n1\r\n")
		o.says(clientSends{}.text("2"))
		o.tells(call, eventOf("TEXT", "m:x")+eventOf("CLOSE", content)+eventOf("TEXT", "m:late")+subscribeTo("b"))
		o.gets(frameBytes(opText, "x"), frame)
		o.message("a", "after the end")
		o.tells(o.asked("TEXT 1\r\n2\r\n"), eventOf("TEXT", "m:late too"))
		o.says(clientSends{}.text("crossed it").close(4004, "client's"))
		o.gets()
		o.tells(o.asked("CLOSE 2\r\n\x0f\xa4\r\n"), eventOf("CLOSE", closeContentOf(1000, "")))
		o.unasked()
		if o.socketsEnded(EndPublished) != 1 || o.pipe.reset {
			t.Errorf("%d ended, reset %v", o.socketsEnded(EndPublished), o.pipe.reset)
		}
		o.wantNothingLeft(t)
	}
}

// Whatever ends a socket, the app is told so once: of its client's close frame
// where one comes, else that it has gone.
func TestOverHTTP_TheAppIsToldOfEachEndOnce(t *testing.T) {
	for what, c := range map[string]struct {
		cfg    Config
		end    func(o *overStage)
		reason End
		frame  string // that the client gets
	}{
		"slow": {Config{OutboxBytes: 100}, func(o *overStage) {
			o.pipe.room = 0
			for range 3 {
				o.message("a", strings.Repeat("x", 90))
			}
		}, EndSlow, ""},
		"stalled": {Config{WriteStall: 30 * time.Second}, func(o *overStage) {
			o.pipe.room = 0
			o.message("a", "x")
			o.pass(31*time.Second, time.Second)
		}, EndStalled, ""},
		"max_age":   {Config{MaxAge: time.Minute}, func(o *overStage) { o.pass(time.Minute, time.Second) }, EndExpired, closeBytes(1001, "expired")},
		"draining":  {Config{}, func(o *overStage) { o.loop.drain(); o.pass(time.Second, 10*time.Millisecond) }, EndDraining, closeBytes(1012, "draining")},
		"published": {Config{}, func(o *overStage) { o.loop.endByAPI(o.hold, EndRequest{Code: 4000, Reason: "bye"}) }, EndPublished, closeBytes(4000, "bye")},
		"an item": {Config{}, func(o *overStage) {
			o.hub.publishItem(encodeItem(&Item{Channel: "a", Socket: &SocketForm{Action: ActionClose, Code: 1000}}))
		}, EndPublished, closeBytes(1000, "published")},
		"protocol": {Config{}, func(o *overStage) { o.says(clientSends{0x81, 0x00}) }, EndProtocol, closeBytes(1002, "protocol")},
		"too_big":  {Config{MessageBytes: 10}, func(o *overStage) { o.says(clientSends{}.text("eleven bytes")) }, EndTooBig, closeBytes(1009, "too_big")},
		"error":    {Config{}, func(o *overStage) { o.loop.end(o.hold, EndError) }, EndError, ""},
	} {
		for _, answers := range []bool{false, true} {
			o := startOver(t, c.cfg, subscribeTo("a"))
			c.end(o)
			o.loop.bury()
			o.rest()
			o.gets(c.frame)
			want := "DISCONNECT\r\n"
			if read := c.reason != EndProtocol && c.reason != EndTooBig; answers && read && c.frame != "" {
				o.says(clientSends{}.close(4009, ""))
				want = "CLOSE 2\r\n\x0f\xa9\r\n"
			} else {
				o.pass(3*time.Second, 10*time.Millisecond) // longer than its client's answer is waited for
			}
			o.tells(o.asked(want), "")
			o.pass(time.Minute, time.Second)
			o.unasked()
			if o.socketsEnded(c.reason) != 1 || o.pipe.reset != c.reason.reset() {
				t.Errorf("%s: %d ended, reset %v", what, o.socketsEnded(c.reason), o.pipe.reset)
			}
			o.wantNothingLeft(t)
		}
	}
}

// A stop cuts what is left: nothing goes to the app any more.
func TestOverHTTP_AStopAsksTheAppNothing(t *testing.T) {
	o := startOver(t, Config{}, "")
	o.loop.stop()
	if o.gets(closeBytes(1012, "draining")); o.hold.socket.delivering || o.loop.counts.held.Load() != 0 {
		t.Errorf("a request is under way: %v, held %d", o.hold.socket.delivering, o.loop.counts.held.Load())
	}
}

// The same over connections of every kind, to the last goroutine and byte.
func TestOverHTTP_ASocketLeavesNothingBehind(t *testing.T) {
	eachConnection(t, func(t *testing.T, linked bool) {
		s, app := startApp(t, Config{})
		ends := []func(c *socketClient){
			func(c *socketClient) { // the client's close
				c.send(clientSends{}.close(4001, "bye"))
				app.wantMessage("CLOSE 2\r\n\x0f\xa1\r\n").events(eventOf("CLOSE", closeContentOf(4002, "ok")))
				c.wantClose(4002, "ok")
			},
			func(c *socketClient) { // the app's
				c.send(clientSends{}.text("close me"))
				app.wantMessage("TEXT 8\r\nclose me\r\n").events(eventOf("CLOSE", closeContentOf(4003, "")))
				c.want(opClose, closeContentOf(4003, "published"))
				c.send(clientSends{}.close(4003, ""))
				app.wantMessage("CLOSE 2\r\n\x0f\xa3\r\n").events("")
				c.wantEOF()
			},
			func(c *socketClient) { // none
				c.conn.Close()
				app.wantMessage("DISCONNECT\r\n").events("")
			},
			func(c *socketClient) { // one with a message under way
				c.send(clientSends{}.text("last"))
				call := app.wantMessage("TEXT 4\r\nlast\r\n")
				c.conn.Close()
				s.until("its going is noticed", func() bool { return s.Snapshot().Sockets == 0 })
				call.events(eventOf("TEXT", "m:late"))
				app.wantMessage("DISCONNECT\r\n").events("")
			},
			func(c *socketClient) { // an answer that is none
				c.send(clientSends{}.text("x"))
				app.wantMessage("TEXT 1\r\nx\r\n").reply(500, "")
				io.Copy(io.Discard, c.in) // a link has no reset to end with
				app.wantMessage("DISCONNECT\r\n").events("")
			},
		}
		for _, end := range ends {
			client, server := s.pair(linked)
			a := eventsAnswer(t, "OPEN\r\n"+eventOf("TEXT", "m:hello")+subscribeTo("room"), "Sec-WebSocket-Extensions: grip")
			a.Position = s.Position()
			c := s.openOverOn(client, server, a, clientSends{}.text("early"))
			c.wantText("hello")
			app.wantMessage("TEXT 5\r\nearly\r\n").events(eventOf("TEXT", "m:early too"))
			c.wantText("early too")
			s.PublishItems([]Item{{Channel: "room", Socket: &SocketForm{Kind: opBinary, Content: []byte("item")}}})
			c.want(opBinary, "item")
			end(c)
			s.until("nothing of it is left", func() bool {
				return s.counts.held.Load() == 0 && s.counts.unfinished.Load() == 0 && s.counts.outbox.Load() == 0 && s.Snapshot().Sockets == 0 && app.at.Load() == 0
			})
		}
		if n := s.Snapshot().Inbound; n["ok"] != uint64(len(ends))+2 || n["failed"] != 1 || n["overload"] != 0 {
			t.Errorf("counted are %v", n)
		}
		if channels := s.Channels(); len(channels) > 0 {
			t.Errorf("members are in %v", channels)
		}
	})
}

// A drain does not wait for an app that is not there any more, nor loses what
// its clients have said before.
func TestOverHTTP_ADrainDeliversWhatWasSaidBefore(t *testing.T) {
	s, app := startApp(t, Config{})
	client, server := s.pair(false)
	a := eventsAnswer(t, "OPEN\r\n", "Sec-WebSocket-Extensions: grip")
	a.Position = s.Position()
	c := s.openOverOn(client, server, a, clientSends{}.text("first").text("second"))
	call := app.wantMessage("TEXT 5\r\nfirst\r\n")
	s.Drain()
	c.want(opClose, closeContentOf(1012, "draining"))
	call.events("")
	app.wantMessage("TEXT 6\r\nsecond\r\n").events("")
	c.send(clientSends{}.close(1012, ""))
	app.wantMessage("CLOSE 2\r\n\x03\xf4\r\n").events("")
	c.wantEOF()
	s.until("nothing is left", func() bool { return s.counts.held.Load() == 0 })
}
