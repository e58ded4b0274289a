// Barewrites is the floor of the benchmarks of held clients: the least that a
// program can do and still bring an event to each of them.
//
//	barewrites -listen 127.0.0.1:8020 -publish 127.0.0.1:8021
//	curl -N 127.0.0.1:8020/stream?c=7
//	curl -d hello 127.0.0.1:8021/publish?c=7
//
// A client is a number in a slice: its descriptor. An event is one loop of
// write(2) over its channel's descriptors, none of which blocks, on one thread,
// without epoll: clients are never read after their request. There are no ids,
// no journal, no outbox and no heartbeat, and a client that left is noticed at
// the next write and forgotten. An event that a client's socket does not take
// whole is lost, and the publisher told how many were ("lost").
//
// What of a request is looked at is its path's end behind "c=", whether it has
// Sec-WebSocket-Key (then events are text frames), and Content-Length. At its end
// (SIGTERM) it prints the CPU time that it has used.
package main

import (
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8020", "address for clients")
	publish := flag.String("publish", "127.0.0.1:8021", "address for publishers")
	flag.Parse()
	runtime.LockOSThread()
	go reportAtEnd()
	fmt.Fprintln(os.Stderr, "barewrites:", run(*listen, *publish))
	os.Exit(1)
}

// reportAtEnd waits for the signal; it ends the process.
func reportAtEnd() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	<-signals
	var used unix.Rusage
	unix.Getrusage(unix.RUSAGE_SELF, &used)
	fmt.Printf("user %d.%06d s, system %d.%06d s\n", used.Utime.Sec, used.Utime.Usec, used.Stime.Sec, used.Stime.Usec)
	os.Exit(0)
}

// server is all state. Descriptors that are polled are the two listeners and the
// publishers' connections: a handful, however many clients there are.
type server struct {
	clients, publishers int // listening descriptors
	polled              []unix.PollFd
	channels            map[string][]client
	buffer              []byte
	frames              frames
}

// client is a held one.
type client struct {
	fd     int32
	socket bool
}

// run serves until something fails.
func run(listen, publish string) error {
	s := &server{channels: map[string][]client{}, buffer: make([]byte, 64<<10)}
	var err error
	if s.clients, err = listenOn(listen); err != nil {
		return err
	}
	if s.publishers, err = listenOn(publish); err != nil {
		return err
	}
	s.polled = []unix.PollFd{{Fd: int32(s.clients), Events: unix.POLLIN}, {Fd: int32(s.publishers), Events: unix.POLLIN}}
	for {
		if _, err := unix.Poll(s.polled, -1); err != nil && err != unix.EINTR {
			return err
		}
		s.turn()
	}
}

func listenOn(address string) (int, error) {
	tcp, err := net.ResolveTCPAddr("tcp4", address)
	if err != nil {
		return 0, err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: tcp.Port, Addr: [4]byte(tcp.IP.To4())}); err != nil {
		return 0, fmt.Errorf("listen on %s: %w", address, err)
	}
	return fd, unix.Listen(fd, 4096)
}

// turn serves what is ready: all of it once.
func (s *server) turn() {
	ready := s.polled
	if ready[0].Revents != 0 {
		s.accept()
	}
	if ready[1].Revents != 0 {
		if fd, _, err := unix.Accept4(s.publishers, unix.SOCK_CLOEXEC); err == nil {
			unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
			s.polled = append(s.polled, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
		}
	}
	for i := len(ready) - 1; i >= 2; i-- {
		if ready[i].Revents != 0 && !s.servePublisher(int(ready[i].Fd)) {
			unix.Close(int(ready[i].Fd))
			s.polled = append(s.polled[:i], s.polled[i+1:]...)
		}
	}
}

// accept takes one client, reads its request, which is waited for, and answers.
func (s *server) accept() {
	fd, _, err := unix.Accept4(s.clients, unix.SOCK_CLOEXEC)
	if err != nil {
		return
	}
	unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1})
	unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	head, _, ok := s.read(fd)
	if !ok {
		unix.Close(fd)
		return
	}
	key := field(head, "Sec-WebSocket-Key")
	if _, err := unix.Write(fd, answerTo(key)); err != nil || unix.SetNonblock(fd, true) != nil {
		unix.Close(fd)
		return
	}
	name := channelOf(head)
	s.channels[name] = append(s.channels[name], client{fd: int32(fd), socket: key != ""})
}

// servePublisher serves one request; false: the connection is done.
func (s *server) servePublisher(fd int) bool {
	head, body, ok := s.read(fd)
	if !ok {
		return false
	}
	reached, lost := s.publish(channelOf(head), body)
	text := fmt.Sprintf(`{"reached":%d,"lost":%d}`+"\n", reached, lost)
	_, err := unix.Write(fd, fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(text), text))
	return err == nil
}

func (s *server) publish(name string, data []byte) (reached, lost int) {
	s.frames.encode(data)
	members := s.channels[name]
	for i := len(members) - 1; i >= 0; i-- {
		frame := s.frames.event
		if members[i].socket {
			frame = s.frames.message
		}
		switch n, err := unix.Write(int(members[i].fd), frame); {
		case err == unix.EAGAIN || err == nil && n < len(frame):
			lost++
		case err != nil:
			unix.Close(int(members[i].fd))
			members[i] = members[len(members)-1]
			members = members[:len(members)-1]
		default:
			reached++
		}
	}
	s.channels[name] = members
	return reached, lost
}
