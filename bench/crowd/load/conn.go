package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/bench/crowd"
)

// A client's states, in their order.
type state uint8

const (
	connecting state = iota
	asked            // its request is out
	held             // its answer's head was 200 or 101
)

// sources are how many of the loopback's addresses clients come from, one after
// the other, so that ports do not run out: from 127.0.0.2 on.
const sources = 8

const longestHead = 16 << 10

// conn is one client.
type conn struct {
	fd    int
	state state
	group *group
	from  *opening // until it is held or has failed
	path  int      // channel's number
	rest  []byte   // of the head, or of a stamp, that is not whole yet
}

// opening is an open command that is not answered yet.
type opening struct {
	crowd.Open
	target   unix.Sockaddr
	began    time.Time
	deadline time.Time
	started  int // connections begun
	inFlight int // of those, neither held nor failed
	held     int
	failed   int
	why      string // of the first that failed
}

func (l *loop) open(what crowd.Open) error {
	target, err := sockaddr(what.Address)
	if err != nil {
		return answer(crowd.Answer{Error: err.Error()})
	}
	if what.Count < 1 || what.Channels < 1 {
		return answer(crowd.Answer{Error: "count and channels must be at least 1"})
	}
	if what.Window == 0 {
		what.Window = 64
	}
	if l.groups[what.Group] == nil {
		l.groups[what.Group] = &group{conns: map[*conn]struct{}{}}
	}
	now := time.Now()
	l.opening = &opening{Open: what, target: target, began: now, deadline: now.Add(what.Within)}
	return nil // goOn begins
}

func sockaddr(address string) (unix.Sockaddr, error) {
	tcp, err := net.ResolveTCPAddr("tcp4", address)
	if err != nil {
		return nil, err
	}
	return &unix.SockaddrInet4{Port: tcp.Port, Addr: [4]byte(tcp.IP.To4())}, nil
}

// goOnOpening begins connections while there is room in the window, and answers
// at the end.
func (l *loop) goOnOpening(now time.Time) error {
	o := l.opening
	for o.started < o.Count && o.inFlight < o.Window {
		l.dial(o, o.started)
		o.started++
	}
	if o.held+o.failed < o.Count && now.Before(o.deadline) {
		return nil
	}
	if left := o.Count - o.held - o.failed; left > 0 {
		o.fail(fmt.Errorf("no answer within %s", o.Within))
		o.failed = o.Count - o.held
		l.giveUp(o)
	}
	l.opening = nil
	return answer(crowd.Answer{Opened: &crowd.Opened{Opened: o.held, Failed: o.failed, Error: o.why, Took: time.Since(o.began)}})
}

// giveUp closes who was not answered in time, unless that is no fault.
func (l *loop) giveUp(o *opening) {
	for _, c := range l.conns {
		if c.from != o {
			continue
		}
		c.from = nil
		if !o.Waiting {
			l.close(c)
		}
	}
}

func (o *opening) fail(err error) {
	o.failed++
	if o.why == "" {
		o.why = err.Error()
	}
}

func (l *loop) dial(o *opening, number int) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		o.fail(err)
		return
	}
	// The port is chosen at connect, by both ends: many clients may share one.
	unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
	err = unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, byte(2 + number%sources)}})
	if err == nil {
		err = unix.Connect(fd, o.target)
	}
	if err == nil || errors.Is(err, unix.EINPROGRESS) {
		err = unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLOUT, Fd: int32(fd)})
	}
	if err != nil {
		unix.Close(fd)
		o.fail(err)
		return
	}
	o.inFlight++
	c := &conn{fd: fd, group: l.groups[o.Group], from: o, path: o.First + number%o.Channels}
	l.conns[fd] = c
	c.group.conns[c] = struct{}{}
}

// progress does what a client's descriptor is ready for.
func (l *loop) progress(c *conn, events uint32) {
	if c.state == connecting {
		if err := l.ask(c); err != nil {
			l.lost(c, err)
		}
		return
	}
	if events&(unix.EPOLLIN|unix.EPOLLHUP|unix.EPOLLERR) == 0 {
		return
	}
	n, err := unix.Read(c.fd, l.buffer)
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		return
	case err == nil && n == 0:
		err = errors.New("the connection was closed")
	}
	if err == nil {
		err = l.received(c, l.buffer[:n], time.Now())
	}
	if err != nil {
		l.lost(c, err)
	}
}

// ask sends the request of a client that is connected.
func (l *loop) ask(c *conn) error {
	if code, err := unix.GetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_ERROR); err != nil || code != 0 {
		return fmt.Errorf("connect: %w", errors.Join(err, unix.Errno(code)))
	}
	if c.from == nil {
		return errors.New("connected too late")
	}
	request := []byte(requestText(c.from.Open, c.path))
	if n, err := unix.Write(c.fd, request); err != nil || n != len(request) {
		return fmt.Errorf("request: %d of %d bytes went out: %w", n, len(request), err)
	}
	c.state = asked
	return unix.EpollCtl(l.epoll, unix.EPOLL_CTL_MOD, c.fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(c.fd)})
}

func requestText(o crowd.Open, channel int) string {
	path := strings.Replace(o.Path, "%d", fmt.Sprint(channel), 1)
	head := "GET " + path + " HTTP/1.1\r\nHost: " + o.Address + "\r\n"
	if o.Socket {
		return head + "Connection: Upgrade\r\nUpgrade: websocket\r\nOrigin: http://" + o.Address +
			"\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
	}
	return head + "Accept: text/event-stream\r\n\r\n"
}

// received takes bytes of an answer: its head, then events.
func (l *loop) received(c *conn, data []byte, now time.Time) error {
	if len(c.rest) > 0 {
		data = append(c.rest, data...)
		c.rest = nil
	}
	if c.state == asked {
		head, rest, whole := bytes.Cut(data, []byte("\r\n\r\n"))
		if !whole {
			if len(data) > longestHead {
				return fmt.Errorf("a head over %d bytes", longestHead)
			}
			c.rest = bytes.Clone(data)
			return nil
		}
		line, _, _ := bytes.Cut(head, []byte("\r\n"))
		if !bytes.HasPrefix(line, []byte("HTTP/1.1 200")) && !bytes.HasPrefix(line, []byte("HTTP/1.1 101")) {
			return fmt.Errorf("answered %q", line)
		}
		c.state = held
		if c.from != nil {
			c.from.held++
			c.from.inFlight--
			c.from = nil
		}
		data = rest
	}
	c.rest = bytes.Clone(stamps(data, func(nanoseconds int64) {
		c.group.took = append(c.group.took, now.Sub(time.Unix(0, nanoseconds)))
	}))
	return nil
}

// lost closes a client that failed: before it was held that is its opening's
// failure, afterwards the group's.
func (l *loop) lost(c *conn, err error) {
	if c.from != nil {
		c.from.inFlight--
		c.from.fail(err)
		c.from = nil
	} else if c.state == held {
		c.group.closed++
	}
	l.close(c)
}

func (l *loop) close(c *conn) {
	unix.Close(c.fd) // takes it out of epoll too
	delete(l.conns, c.fd)
	delete(c.group.conns, c)
}
