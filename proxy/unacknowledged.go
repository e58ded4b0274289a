package proxy

import (
	"net"

	"holdfast/internal/tcp"
)

// unacknowledged is how many bytes written to a connection its peer has not
// acknowledged; -1: not to be known.
func unacknowledged(nc net.Conn) int {
	raw, err := descriptorOf(nc)
	if err != nil {
		return -1
	}
	n := -1
	raw.Control(func(fd uintptr) { n = tcp.Unacknowledged(int(fd)) })
	return n
}
