package upstream

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"

	"holdfast/internal/tcp"
)

// dialer is how connections to targets are made.
var dialer = net.Dialer{KeepAliveConfig: tcp.KeepAlive, Control: tcp.Control}

// Dial opens a connection. It is bounded by ConnectTimeout, the look-up of a
// name and all its addresses included, and by ctx. An error is an *Error of
// ErrUnreachable, nothing sent; ctx's own end is ErrInterrupted and says
// nothing about the target.
func (t *Target) Dial(ctx context.Context) (*Conn, error) {
	within, cancel := context.WithTimeout(ctx, t.config().ConnectTimeout)
	defer cancel()
	var nc net.Conn
	var addr netip.Addr
	var err error
	if t.name == nil {
		nc, err = dialer.DialContext(within, t.address.Network, t.address.Addr)
	} else {
		nc, addr, err = t.name.dial(within)
	}
	if err != nil {
		kind := ErrUnreachable
		switch {
		case ctx.Err() != nil:
			kind = ErrInterrupted
		case isShortage(err):
			kind = ErrResources
		}
		return nil, &Error{Target: t.address.Text, Kind: kind, Cause: err}
	}
	conn := newConn(t, nc)
	conn.addr = addr
	return conn, nil
}

func isShortage(err error) bool {
	var e *nameError
	if errors.As(err, &e) {
		return e.isShortage()
	}
	return tcp.OutOfResources(err)
}

// Addresses gives the name that the target is configured by and the addresses
// it has now, as a dial finds them; err is why there are none. host is "" for an
// IP address or a unix socket, which need no look-up.
func (t *Target) Addresses(ctx context.Context) (host string, addrs []netip.Addr, err error) {
	if t.name == nil {
		return "", nil, nil
	}
	known := t.name.current(ctx, false)
	if len(known.all) == 0 {
		err = &Error{Target: t.address.Text, Kind: ErrUnreachable, Cause: &nameError{host: t.name.host, lookUp: known.err}}
	}
	return t.name.host, slices.Clone(known.all), err
}
