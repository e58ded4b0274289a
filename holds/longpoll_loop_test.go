package holds

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// polls is a server of long polls: what it is asked is held, and what comes
// back is served on.
type polls struct {
	*station
	linked  bool
	log     eventLog
	serving sync.WaitGroup
	tide    chan struct{} // an answer has come to the first client: the next event is published
}

func startPolls(t *testing.T, linked bool, cfg Config) *polls {
	p := &polls{linked: linked, tide: make(chan struct{}, 4)}
	cfg.Return = func(conn net.Conn, early []byte) { p.serving.Go(func() { p.serve(conn, early) }) }
	p.station = startStation(t, cfg)
	t.Cleanup(p.serving.Wait)
	return p
}

// serve reads a request and holds its client.
func (p *polls) serve(conn net.Conn, early []byte) {
	in := bufio.NewReader(io.MultiReader(bytes.NewReader(early), conn))
	req, err := http.ReadRequest(in)
	if err != nil { // the client has left
		conn.Close()
		return
	}
	behind, _ := in.Peek(in.Buffered())
	spec := Spec{Channels: strings.Split(req.URL.Query().Get("channels"), ","), Last: req.Header.Get("Last-Event-ID"), KeepAlive: !req.Close,
		Early: bytes.Clone(behind), Timeout: 300 * time.Millisecond}
	if p.Open(conn, p.pollSpec(spec)) != nil {
		conn.Close()
	}
}

// dial gives a client a connection that is served.
func (p *polls) dial() (net.Conn, *bufio.Reader, error) {
	client, server, err := p.connect()
	if err != nil {
		return nil, nil, err
	}
	client.SetDeadline(time.Now().Add(deadline))
	if p.linked {
		server = asLink{server.(*net.TCPConn)}
	}
	p.serving.Go(func() { p.serve(server, nil) })
	return client, bufio.NewReader(client), nil
}

// pollLoop is a browser that polls on and on, with the id of the last answer.
type pollLoop struct {
	*polls
	conn     net.Conn
	in       *bufio.Reader
	channels []string
	last     int64
	got      []int64
	first    bool
}

// run polls until it has got as many events. Every now and then its connection
// is another, and sometimes it leaves without waiting for the answer.
func (c *pollLoop) run(events int) (err error) {
	if c.conn, c.in, err = c.dial(); err != nil {
		return err
	}
	for i := 1; len(c.got) < events; i++ {
		request := fmt.Sprintf("GET /?channels=%s HTTP/1.1\r\nHost: a\r\nLast-Event-ID: %d\r\n", strings.Join(c.channels, ","), c.last)
		closes := i%50 == 0
		if closes {
			request += "Connection: close\r\n"
		}
		if _, err := io.WriteString(c.conn, request+"\r\n"); err != nil {
			return fmt.Errorf("poll %d: %w", i, err)
		}
		if leaves := i%17 == 0; !leaves {
			if err := c.take(); err != nil {
				return fmt.Errorf("poll %d: %w", i, err)
			}
			if !closes {
				continue
			}
		}
		c.conn.Close()
		if c.conn, c.in, err = c.dial(); err != nil {
			return err
		}
	}
	return c.conn.Close()
}

// take reads an answer and notes what it has got.
func (c *pollLoop) take() error {
	res, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.Header.Get("M0-Gap") != "" {
		return fmt.Errorf("a gap, where nothing is lost")
	}
	if c.last, err = strconv.ParseInt(res.Header.Get("M0-Event-Id"), 10, 64); err != nil {
		return err
	}
	if len(body) > 0 {
		c.got = append(c.got, c.last)
	}
	if c.first {
		select {
		case c.tide <- struct{}{}:
		default:
		}
	}
	return nil
}

func TestPoll_InALoopAClientHasEveryEventOfSeveralPublishersOnceInOrder(t *testing.T) {
	eachConnection(t, func(t *testing.T, linked bool) {
		const publishers, events, clients = 4, 500, 6
		p := startPolls(t, linked, Config{Journal: JournalLimits{Events: events}})
		start := p.Position()
		var all []*pollLoop
		failed := make(chan error, clients)
		for i := range clients {
			c := &pollLoop{polls: p, last: start, first: i == 0, channels: [][]string{{"room"}, {"room", "even"}, {"odd", "even"}}[i%3]}
			all = append(all, c)
			go func() { failed <- c.run(events) }()
		}
		var publishing sync.WaitGroup
		for i := range publishers {
			p.tide <- struct{}{}
			publishing.Go(func() {
				for n := range events / publishers {
					<-p.tide
					// Every event is in the room, and in one of two other channels.
					p.log.publish(p.Holds, text(fmt.Sprint("event ", n, " of ", i), "room", []string{"even", "odd"}[n%2]))
				}
			})
		}
		for range clients {
			if err := <-failed; err != nil {
				t.Error(err)
			}
		}
		publishing.Wait()
		for i, c := range all {
			if diff := difference(c.got, p.log.after(start, c.channels)); diff != "" {
				t.Errorf("client %d of %v: %s", i, c.channels, diff)
			}
		}
		p.until("all have left", func() bool { return p.counts.held.Load() == 0 })
		t.Logf("%d clients, %d events, %v of polls ended", clients, events, p.Snapshot().Ended[ModeResponse])
	})
}
