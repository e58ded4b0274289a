package tcp

import (
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Control is for net.Dialer and net.ListenConfig; connections that a listener
// accepts inherit what it sets.
func Control(network, _ string, c syscall.RawConn) (err error) {
	if !strings.HasPrefix(network, "tcp") {
		return nil
	}
	if e := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(unacknowledged.Milliseconds()))
		if err == nil {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, NotSent)
		}
	}); e != nil {
		return e
	}
	return err
}

// Unacknowledged is how many bytes written to a connection its peer has not
// acknowledged; -1: not to be known.
func Unacknowledged(fd int) int {
	n, err := unix.IoctlGetInt(fd, unix.SIOCOUTQ)
	if err != nil {
		return -1
	}
	return n
}
