package bus

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"holdfast/bench/crowd"
)

// answerWithin is how long a publish may take; longer is a failure of the row.
const answerWithin = 10 * time.Second

// publisher is one kept connection.
type publisher struct {
	conn net.Conn
	in   *bufio.Reader
}

// dial opens n publishers, by turns at the addresses.
func dial(addresses []string, n int) ([]*publisher, error) {
	var all []*publisher
	for i := range n {
		conn, err := net.Dial("tcp", addresses[i%len(addresses)])
		if err != nil {
			hangUp(all)
			return nil, err
		}
		all = append(all, &publisher{conn: conn, in: bufio.NewReader(conn)})
	}
	return all, nil
}

func hangUp(all []*publisher) {
	for _, p := range all {
		p.conn.Close()
	}
}

// request is a whole one, whose event's data end with the present time.
func request(channel int) string {
	body := fmt.Sprintf(`{"channel":"%d","data":"%s"}`, channel, crowd.Stamp(eventBytes))
	return fmt.Sprintf("POST /publish HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// publish returns when the event is acknowledged, and says how long that took.
func (p *publisher) publish(channel int) (time.Duration, error) {
	began := time.Now()
	if err := p.conn.SetDeadline(began.Add(answerWithin)); err != nil {
		return 0, err
	}
	if _, err := io.WriteString(p.conn, request(channel)); err != nil {
		return 0, err
	}
	response, err := http.ReadResponse(p.in, nil)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err
	}
	if response.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("publishing was answered %s: %.200s", response.Status, text)
	}
	return time.Since(began), nil
}

// atOnce has all publish as fast as they are answered, to the channels by turns,
// for a length of time. It says how many events were acknowledged in how long.
func atOnce(all []*publisher, first, channels int, length time.Duration) (events int, took time.Duration, err error) {
	var running sync.WaitGroup
	counts, errs := make([]int, len(all)), make([]error, len(all))
	began := time.Now()
	for i, p := range all {
		running.Go(func() {
			for ; errs[i] == nil && time.Since(began) < length; counts[i]++ {
				_, errs[i] = p.publish(first + (i+counts[i]*len(all))%channels)
			}
		})
	}
	running.Wait()
	took = time.Since(began)
	for _, n := range counts {
		events += n
	}
	return events, took, cmp.Or(errs...)
}
