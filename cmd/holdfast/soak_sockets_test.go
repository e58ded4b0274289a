package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/fasthttp/websocket"
)

// The sockets of the soak: clients that chat. What one says is POSTed to the
// app, which publishes it to all of them; "/who" is answered to it alone.

type chatter struct {
	*soakClient
	number, said int
}

// socket chats over many sockets as long as the load goes on, and then listens.
func (l *soakClient) socket(number int) {
	c := &chatter{soakClient: l, number: number}
	for l.s.going(50 * time.Millisecond) {
		c.session(true)
	}
	l.s.events.chatters.Done()
	for l.listens() {
		c.session(false)
	}
}

// session is one socket, to its end.
func (c *chatter) session(chatting bool) {
	path, sent := "/live/socket", monotonic()
	if c.id != "" {
		path += "?lastEventId=" + c.id
	}
	conn, err := dialSocket(c.s.c.addr, path, nil)
	if err != nil {
		c.s.forgiven("sockets opened", sent, nil, err)
		<-time.After(50 * time.Millisecond)
		return
	}
	heard, ended, left := make(chan string, 64), make(chan error, 1), false
	go func() { ended <- c.read(conn, heard) }()
	for n := 10 + rand.IntN(40); chatting && n > 0; n-- {
		if left = n == 1 || !c.s.going(60*time.Millisecond); left || !c.say(conn, heard, ended) {
			break
		}
	}
	if left && rand.IntN(2) == 0 {
		conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(1000, ""), time.Now().Add(time.Minute))
	} else if left {
		conn.Close()
	}
	err = <-ended
	conn.Close()
	var end *websocket.CloseError
	switch {
	case left:
		c.s.count("sockets left")
	case errors.As(err, &end) && end.Code == 1001 && end.Text == "expired":
		c.s.count("sockets ended by max_age")
	case err != nil:
		c.s.fail("sockets: %v", err)
	}
}

// say sends one message and waits for what comes of it; false: the socket has
// ended. One that the app had when it was killed may be lost, any other not.
func (c *chatter) say(conn *socketClient, heard <-chan string, ended chan error) bool {
	c.said++
	text, want := fmt.Sprintf("soak %d %d", c.number, c.said), ""
	if want = text; c.said%4 == 0 {
		text, want = "/who", "You are guest "
	}
	sent := monotonic()
	if err := conn.WriteMessage(websocket.TextMessage, []byte(text)); err != nil {
		return false // the reader knows why
	}
	for {
		select {
		case got := <-heard:
			if strings.HasPrefix(got, want) {
				c.s.count("messages of sockets answered")
				return true
			}
			if strings.HasPrefix(got, "That was not published") {
				c.s.count("messages that the app could not publish")
				return true
			}
		case err := <-ended:
			ended <- err
			return false
		case <-time.After(100 * time.Millisecond):
			const longAfter = 10 * time.Second // for one that is kept until the app is back
			switch now := monotonic(); {
			case now-sent > longAfter && c.s.aKillIn(sent, now-longAfter):
				c.s.count("messages of sockets lost to a kill")
				return true
			case now-sent > 90*time.Second:
				c.s.fail("sockets: nothing came of %q", text)
				return true
			}
		}
	}
}

// read takes all messages until the socket or the soak ends.
func (c *chatter) read(conn *socketClient, heard chan<- string) error {
	for first, before := true, c.id; !c.done; first = false {
		_, text, err := conn.ReadMessage()
		if err != nil {
			return err
		}
		var e envelope
		if json.Unmarshal(text, &e) != nil {
			return fmt.Errorf("%.200q is no event", text)
		}
		id, name := "", ""
		if e.ID != nil {
			id = strconv.FormatInt(*e.ID, 10)
		}
		if e.Event != nil {
			name = *e.Event
		}
		if first {
			if name != "m0-open" || before != "" && id != before {
				return fmt.Errorf("%.200q, want m0-open with the position %s", text, before)
			}
			c.hear(heardPosition, id, "")
			continue
		}
		if err := c.take(id, name, e.Data, heard); err != nil {
			return fmt.Errorf("%w in %.200q", err, text)
		}
	}
	return nil
}

// take is one event, or an answer to this socket alone.
func (c *chatter) take(id, name string, data json.RawMessage, heard chan<- string) error {
	var text string
	var chat struct{ From, Text string }
	switch name {
	case "chat":
		if err := json.Unmarshal(data, &chat); err != nil {
			return err
		}
		n, err := strconv.ParseInt(id, 10, 64)
		if err != nil {
			return err
		}
		text = chat.Text
		c.s.events.note(c.s, n, soakEvent{text: text, channels: []string{"agents"}})
	case "reply", "":
		if err := json.Unmarshal(data, &text); err != nil {
			return err
		}
	default:
		return errors.New("an event that nobody published")
	}
	if name != "reply" {
		c.hear(heardEvent, id, text)
	}
	if name != "" {
		select {
		case heard <- text:
		default: // of others, while nobody waits
		}
	}
	return nil
}
