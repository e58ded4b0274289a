package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// quiet is how long nothing has to come until a peer has said all, on a machine
// that others use too.
const quiet = 500 * time.Millisecond

// client is one connection with one request on it; a goroutine reads the
// answer, which ends with the connection.
type client struct {
	conn net.Conn

	mu     sync.Mutex
	status string // "" until the head is there
	header http.Header
	body   []byte
	end    string // "open", "ended", "cut", "refused"
	last   time.Time
}

// dial opens a connection; without one the client has ended.
func dial(addr string) *client {
	c := &client{end: "open", last: time.Now()}
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		c.end = "refused"
		return c
	}
	c.conn = conn
	return c
}

// send opens a connection and says text, a whole request.
func send(addr, text string) *client {
	c := dial(addr)
	if c.conn != nil {
		method, _, _ := strings.Cut(text, " ")
		io.WriteString(c.conn, text)
		go c.read(method)
	}
	return c
}

func (c *client) read(method string) {
	response, err := http.ReadResponse(bufio.NewReader(c.conn), &http.Request{Method: method})
	if err != nil {
		c.set(func() { c.end = "cut" })
		return
	}
	c.set(func() { c.status, c.header = response.Status, response.Header })
	c.readBody(response)
}

func (c *client) readBody(response *http.Response) {
	for piece := make([]byte, 4<<10); ; {
		n, err := response.Body.Read(piece)
		c.set(func() {
			c.body = append(c.body, piece[:n]...)
			switch {
			case errors.Is(err, io.EOF):
				c.end = "ended"
			case err != nil:
				c.end = "cut"
			}
		})
		if err != nil {
			return
		}
	}
}

// set changes what the client has seen.
func (c *client) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
	c.last = time.Now()
}

func (c *client) close() {
	if c.conn != nil {
		c.conn.Close()
	}
}

// until waits for a condition of the client, which is asked under its lock.
func (c *client) until(within time.Duration, condition func() bool) bool {
	for end := time.Now().Add(within); ; time.Sleep(5 * time.Millisecond) {
		c.mu.Lock()
		ok := condition()
		c.mu.Unlock()
		if ok || time.Now().After(end) {
			return ok
		}
	}
}

// head waits for the answer's head, and then a moment, in which the peer makes
// a hold of it.
func (c *client) head() *client {
	if c.until(5*time.Second, func() bool { return c.status != "" || c.end != "open" }) {
		time.Sleep(quiet)
	}
	return c
}

// has waits for text in the body.
func (c *client) has(text string, within time.Duration) bool {
	return c.until(within, func() bool { return strings.Contains(string(c.body), text) || c.end != "open" })
}

// settled waits until nothing has come for a moment, from now.
func (c *client) settled() *client {
	c.set(func() {})
	c.until(10*time.Second, func() bool { return c.end != "open" || time.Since(c.last) > quiet })
	return c
}

// over waits for the end.
func (c *client) over(within time.Duration) *client {
	c.until(within, func() bool { return c.end != "open" })
	return c
}

// String is what the client has seen: status, body, and whether it is over. Of
// an error in the peer's own words it is the status.
func (c *client) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.status == "" {
		return "no answer, " + c.end
	}
	if c.status >= "4" && ownWords(c.header.Get("Content-Type"), string(c.body)) {
		return c.status
	}
	return fmt.Sprintf("%s %q %s", c.status, c.body, c.end)
}

// fields is the answer's fields, without those of the framing and of the
// server's own.
func (c *client) fields() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var lines []string
	for name, values := range c.header {
		if slices.Contains([]string{"Date", "Server", "Connection", "X-Request-Id", "Keep-Alive"}, name) {
			continue
		}
		for _, value := range values {
			lines = append(lines, name+": "+value)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "; ")
}

// ownWords reports whether a peer, not the app, wrote the error.
func ownWords(kind, body string) bool {
	for _, text := range []string{"Error while proxying", "Client not allowed", "Method not allowed", "Not Acceptable", "Not Found\n", "Invalid format"} {
		if strings.HasPrefix(body, text) {
			return true
		}
	}
	return kind == "application/problem+json"
}
