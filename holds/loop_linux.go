//go:build !holdfast_goroutines

package holds

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/internal/tcp"
)

// epoll runs a loop over descriptors of its own: duplicates of the
// connections', whose originals are closed, so that nothing but the loop ever
// writes to them or closes them, and no finalizer does. What the kernel tells
// of a descriptor carries the hold's slot and generation, never its number, which
// may be another client's by then.
//
// It is edge-triggered: a quiet hold costs no system call, and one that takes
// less than it is written is told of room once.
type epoll struct {
	loop  *loop
	file  *os.File // the epoll descriptor, itself parked in Go's poller
	raw   syscall.RawConn
	fd    int
	waker int // an eventfd
	armed time.Time

	events [128]unix.EpollEvent
	ready  int
	ask    func(uintptr) bool
}

// wakerSlot stands for the eventfd.
const wakerSlot = -1

// notSent is how much the kernel takes that it cannot send yet. Without it a
// client that does not read takes a megabyte of kernel memory before it counts
// as slow; with it, an eighth.
const notSent = 16 << 10

func newRunner(l *loop) (runner, error) {
	p := &epoll{loop: l, waker: -1}
	var err error
	if p.fd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	if err = unix.SetNonblock(p.fd, true); err == nil {
		p.file = os.NewFile(uintptr(p.fd), "epoll")
		p.raw, err = p.file.SyscallConn()
	}
	if err == nil {
		p.waker, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	}
	if err == nil {
		event := unix.EpollEvent{Events: unix.EPOLLIN | edge, Fd: wakerSlot}
		err = unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, p.waker, &event)
	}
	if err != nil {
		p.free()
		return nil, fmt.Errorf("epoll: %w", err)
	}
	p.ask = p.askOnce
	return p, nil
}

const edge = unix.EPOLLET & 0xffffffff

func (p *epoll) free() {
	if p.file != nil {
		p.file.Close()
	} else {
		unix.Close(p.fd)
	}
	if p.waker >= 0 {
		unix.Close(p.waker)
	}
}

// run takes turns until the loop is stopped.
func (p *epoll) run() {
	l := p.loop
	var due time.Time
	for {
		more := l.turn()
		if l.stopped {
			break
		}
		due = l.due(due)
		p.wait(more || !l.sleep(), due)
		for _, event := range p.events[:p.ready] {
			p.tell(&event)
		}
		l.bury()
		due = l.tickIf(due)
	}
	p.free()
}

// wait asks what is ready, and, unless it is only to look, waits for it until due.
func (p *epoll) wait(look bool, due time.Time) {
	p.ready = 0
	if look {
		p.askOnce(uintptr(p.fd))
		return
	}
	if due != p.armed {
		p.armed = due
		p.file.SetReadDeadline(due)
	}
	if err := p.raw.Read(p.ask); errors.Is(err, os.ErrDeadlineExceeded) {
		p.armed = time.Time{}
		p.file.SetReadDeadline(p.armed)
	}
}

// askOnce asks first, and has Go's poller wait where nothing is ready: waiting
// first would miss what came before. It is false where it is to be waited.
func (p *epoll) askOnce(fd uintptr) bool {
	for {
		n, err := unix.EpollWait(int(fd), p.events[:], 0)
		if err == unix.EINTR {
			continue
		}
		p.ready = max(n, 0)
		return n != 0
	}
}

// tell passes on what the kernel says of a hold.
func (p *epoll) tell(event *unix.EpollEvent) {
	if event.Fd == wakerSlot {
		return
	}
	h := p.loop.lookup(uint32(event.Fd), uint32(event.Pad))
	if h == nil { // of a hold that is no more
		return
	}
	if event.Events&(unix.EPOLLHUP|unix.EPOLLERR) != 0 || event.Events&unix.EPOLLRDHUP != 0 && h.socket == nil {
		p.loop.hangUp(h)
		return
	}
	if event.Events&unix.EPOLLOUT != 0 {
		p.loop.writable(h)
	}
	if event.Events&(unix.EPOLLIN|unix.EPOLLRDHUP) != 0 && h.state != closed {
		p.loop.readable(h)
	}
}

func (p *epoll) wake() {
	unix.Write(p.waker, []byte{1, 0, 0, 0, 0, 0, 0, 0})
}

// adopt takes a connection over. It may be called by any goroutine.
func (p *epoll) adopt(h *hold, conn net.Conn) error {
	switch conn.(type) {
	case *net.TCPConn, *net.UnixConn:
	default:
		h.link = newLink(p.loop, conn)
		return nil
	}
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return err
	}
	fd := -1
	if e := raw.Control(func(original uintptr) {
		fd, err = unix.FcntlInt(original, unix.F_DUPFD_CLOEXEC, 3)
	}); e != nil {
		return e
	}
	if err != nil {
		return os.NewSyscallError("dup", err)
	}
	if _, ok := conn.(*net.TCPConn); ok {
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, notSent) // a saving, no condition
	}
	h.descriptor = int32(fd)
	conn.Close()
	return nil
}

func (p *epoll) watch(h *hold) error {
	if h.link != nil {
		p.loop.watchLink(h)
		return nil
	}
	event := unix.EpollEvent{Events: unix.EPOLLRDHUP | unix.EPOLLOUT | edge, Fd: int32(h.slot), Pad: int32(h.generation)}
	if h.socket != nil {
		event.Events |= unix.EPOLLIN
	}
	return unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, int(h.descriptor), &event)
}

// writePieces is how many pieces go into one system call.
const writePieces = 64

func (p *epoll) write(h *hold, pieces [][]byte) (n int, err error) {
	if h.link != nil {
		return h.link.write(h, pieces)
	}
	for len(pieces) > 0 {
		some := pieces[:min(len(pieces), writePieces)]
		size := 0
		for _, b := range some {
			size += len(b)
		}
		took, err := p.writeSome(int(h.descriptor), some)
		if n += took; err != nil || took < size {
			return n, err
		}
		pieces = pieces[len(some):]
	}
	return n, nil
}

// writeSome writes until all is taken or the kernel takes no more, which is
// when it will tell of room.
func (p *epoll) writeSome(fd int, pieces [][]byte) (n int, err error) {
	first := 0 // bytes of the first piece that are written
	for len(pieces) > 0 {
		var took int
		if first > 0 || len(pieces) == 1 {
			took, err = unix.Write(fd, pieces[0][first:])
		} else {
			took, err = unix.Writev(fd, pieces)
		}
		switch err {
		case nil:
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			return n, nil
		default:
			return n, err
		}
		n += took
		for took += first; len(pieces) > 0 && took >= len(pieces[0]); pieces = pieces[1:] {
			took -= len(pieces[0])
		}
		first = took
	}
	return n, nil
}

func (p *epoll) read(h *hold, into []byte) (n int, err error) {
	if h.link != nil {
		return h.link.read(into)
	}
	for {
		switch n, err = unix.Read(int(h.descriptor), into); {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			return 0, errAgain
		case err == nil && n == 0:
			return 0, io.EOF
		default:
			return n, err
		}
	}
}

func (p *epoll) shut(h *hold) {
	if h.link != nil {
		h.link.shut()
		return
	}
	unix.Shutdown(int(h.descriptor), unix.SHUT_WR)
}

// release makes a connection of Go's of the descriptor.
func (p *epoll) release(h *hold) (conn net.Conn, read []byte, err error) {
	if h.link != nil {
		return h.link.release()
	}
	fd := int(h.descriptor)
	unix.EpollCtl(p.fd, unix.EPOLL_CTL_DEL, fd, nil) // its duplicate keeps it in the set otherwise
	unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, tcp.NotSent)
	file := os.NewFile(uintptr(fd), "hold")
	defer file.Close()
	conn, err = net.FileConn(file)
	return conn, nil, err
}

func (p *epoll) unacknowledged(h *hold) int {
	if h.link != nil {
		return h.link.unacknowledged()
	}
	return tcp.Unacknowledged(int(h.descriptor))
}

// close closes a hold's descriptor. Unread bytes of the client would make a
// clean close a reset, which can eat the last bytes on their way: they are read.
func (p *epoll) close(h *hold, reset bool) {
	if h.link != nil {
		h.link.close(h, reset, p.loop.limits.Load().WriteStall)
		return
	}
	fd := int(h.descriptor)
	if reset {
		unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	} else if unix.Shutdown(fd, unix.SHUT_WR) == nil {
		var scratch [4 << 10]byte
		for range 16 {
			if n, err := unix.Read(fd, scratch[:]); n <= 0 || err != nil {
				break
			}
		}
	}
	unix.Close(fd)
}
