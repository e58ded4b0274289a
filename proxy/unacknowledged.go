package proxy

import (
	"net"
	"syscall"

	"holdfast/internal/tcp"
)

// unacknowledged is how many bytes written to a connection its peer has not
// acknowledged; -1: not to be known.
func unacknowledged(nc net.Conn) int {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return -1
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return -1
	}
	n := -1
	raw.Control(func(fd uintptr) { n = tcp.Unacknowledged(int(fd)) })
	return n
}
