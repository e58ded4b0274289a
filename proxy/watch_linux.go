package proxy

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// watch sees clients close or reset their connections while nobody reads from
// them, because their requests wait or run. One epoll descriptor watches all:
// edge-triggered, for hang-ups only, so that it costs one system call per
// connection and nothing per request. Entries are kept by ticket, not by
// descriptor: a number is used again by the next connection, a ticket never.
type watch struct {
	file *os.File // the epoll descriptor, itself parked in Go's poller
	fd   int
	done chan struct{}

	mu    sync.Mutex
	last  uint64
	conns map[uint64]*clientConn
}

func newWatch() (*watch, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	w := &watch{file: os.NewFile(uintptr(fd), "epoll"), fd: fd, done: make(chan struct{}),
		conns: make(map[uint64]*clientConn)}
	go w.run()
	return w, nil
}

// add watches c until remove.
func (w *watch) add(c *clientConn) (ticket uint64) {
	w.mu.Lock()
	w.last++
	ticket = w.last
	w.conns[ticket] = c
	w.mu.Unlock()
	raw, err := descriptorOf(c.Conn)
	if err != nil {
		return ticket
	}
	raw.Control(func(fd uintptr) {
		event := unix.EpollEvent{Events: unix.EPOLLRDHUP | unix.EPOLLET&0xffffffff,
			Fd: int32(ticket), Pad: int32(ticket >> 32)}
		unix.EpollCtl(w.fd, unix.EPOLL_CTL_ADD, int(fd), &event)
	})
	return ticket
}

// remove ends the watching. Call it before the descriptor is closed, which is
// what takes it out of the kernel's set.
func (w *watch) remove(ticket uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.conns, ticket)
}

// forget ends the watching of a connection whose descriptor is going to have a
// duplicate: its close alone would not take it out of the kernel's set.
func (w *watch) forget(c *clientConn) {
	w.remove(c.ticket)
	if raw, err := descriptorOf(c.Conn); err == nil {
		raw.Control(func(fd uintptr) { unix.EpollCtl(w.fd, unix.EPOLL_CTL_DEL, int(fd), nil) })
	}
}

// run tells connections of their hang-ups until close.
func (w *watch) run() {
	defer close(w.done)
	raw, err := w.file.SyscallConn()
	if err != nil {
		return
	}
	events := make([]unix.EpollEvent, 128)
	for {
		n := 0
		err := raw.Read(func(fd uintptr) bool {
			// First ask, then park: parking forgets an edge that came before.
			for {
				var err error
				if n, err = unix.EpollWait(int(fd), events, 0); err != unix.EINTR {
					return n > 0 || err != nil
				}
			}
		})
		if err != nil || n < 0 {
			return
		}
		for _, event := range events[:n] {
			ticket := uint64(uint32(event.Fd)) | uint64(uint32(event.Pad))<<32
			w.mu.Lock()
			c := w.conns[ticket]
			w.mu.Unlock()
			if c != nil {
				c.hangUp(event.Events&(unix.EPOLLHUP|unix.EPOLLERR) != 0)
			}
		}
	}
}

func (w *watch) close() {
	w.file.Close()
	<-w.done
}
