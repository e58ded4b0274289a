package proxy

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
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
	raw.Control(func(fd uintptr) {
		if waiting, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ); err == nil {
			n = waiting
		}
	})
	return n
}
