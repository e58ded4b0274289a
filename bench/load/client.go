// Package load asks views over keep-alive connections, as clients of an app do:
// some measure how long a fast one takes, some keep a slow one busy.
//
//	slow := load.Block(ctx, address, "/slow", 8, &failed)
//	took := load.Measure(ctx, address, "/fast", 4, 6*time.Second, &failed)
//	slow.Finish()
//
// Nothing is asked twice, a request begun in time is counted however late its
// answer, and whatever is not 200 is an error that is counted by its text.
package load

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// answerWithin bounds one request, so that a peer that hangs ends the run.
const answerWithin = 60 * time.Second

// client is one keep-alive connection. Unlike net/http's it never asks twice:
// an answer that did not come is an error of the row.
type client struct {
	address string
	within  time.Duration // one request; 0: answerWithin
	conn    net.Conn      // nil: opened by the next request
	reader  *bufio.Reader
}

// get returns when the whole answer is there, and how long that took,
// connecting included where the peer had closed.
func (c *client) get(path string) (time.Duration, error) {
	began, within := time.Now(), c.within
	if within == 0 {
		within = answerWithin
	}
	if err := c.exchange(path, began.Add(within)); err != nil {
		c.close()
		return 0, err
	}
	return time.Since(began), nil
}

func (c *client) exchange(path string, deadline time.Time) error {
	if c.conn == nil {
		conn, err := net.Dial("tcp", c.address)
		if err != nil {
			return err
		}
		c.conn, c.reader = conn, bufio.NewReader(conn)
	}
	if err := c.conn.SetDeadline(deadline); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(c.conn, "GET %s HTTP/1.1\r\nHost: localhost\r\nUser-Agent: holdfast-bench\r\nAccept: */*\r\n\r\n", path); err != nil {
		return err
	}
	response, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	if response.Close {
		c.close()
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d %s", response.StatusCode, response.Header.Get("Holdfast-Reason"))
	}
	return nil
}

func (c *client) close() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}
