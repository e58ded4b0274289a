// Package tcp is how Holdfast's connections find out, on either side, that
// their peer is gone without a word: within a minute.
package tcp

import (
	"errors"
	"net"
	"syscall"
	"time"
)

// KeepAlive asks a silent peer after 20 s, and three times in all.
var KeepAlive = net.KeepAliveConfig{Enable: true, Idle: 20 * time.Second, Interval: 10 * time.Second, Count: 3}

// OutOfResources reports whether err is this machine's shortage and no fault
// of a peer: no descriptor, no buffer, no memory, no free port.
func OutOfResources(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// unacknowledged is how long sent bytes may stay unacknowledged, and a
// silent peer's probes unanswered, before the connection is ended (RFC 5482).
const unacknowledged = 50 * time.Second

// NotSent is how much the kernel takes of what it cannot send yet. Without a
// bound it takes 4 MiB for each client that does not read, and some hundreds of
// those use up the memory that all connections of the machine share.
const NotSent = 128 << 10
