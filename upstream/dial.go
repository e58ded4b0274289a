package upstream

import (
	"context"
	"net"

	"holdfast/internal/tcp"
)

// Dial opens a connection. It is bounded by ConnectTimeout and by ctx. An
// error is an *Error of ErrUnreachable, nothing sent; ctx's own end is
// ErrInterrupted and says nothing about the target.
func (t *Target) Dial(ctx context.Context) (*Conn, error) {
	d := net.Dialer{Timeout: t.config().ConnectTimeout, KeepAliveConfig: tcp.KeepAlive, Control: tcp.Control}
	nc, err := d.DialContext(ctx, t.address.Network, t.address.Addr)
	if err != nil {
		kind := ErrUnreachable
		switch {
		case ctx.Err() != nil:
			kind = ErrInterrupted
		case tcp.OutOfResources(err):
			kind = ErrResources
		}
		return nil, &Error{Target: t.address.Text, Kind: kind, Cause: err}
	}
	return newConn(t, nc), nil
}
