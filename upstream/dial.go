package upstream

import (
	"context"
	"net"
	"time"
)

// Dial opens a connection. It is bounded by ConnectTimeout and by ctx. An
// error is an *Error of ErrUnreachable, nothing sent; ctx's own end is
// ErrInterrupted and says nothing about the target.
func (t *Target) Dial(ctx context.Context) (*Conn, error) {
	d := net.Dialer{Timeout: t.config().ConnectTimeout, KeepAlive: 15 * time.Second}
	nc, err := d.DialContext(ctx, t.address.Network, t.address.Addr)
	if err != nil {
		kind := ErrUnreachable
		if ctx.Err() != nil {
			kind = ErrInterrupted
		}
		return nil, &Error{Target: t.address.Text, Kind: kind, Cause: err}
	}
	return newConn(t, nc), nil
}
