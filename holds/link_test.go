package holds

import (
	"io"
	"math"
	"net"
	"sync/atomic"
	"testing"
	"time"
)

// counting is a connection that knows what its client has taken, as one with TLS.
type counting struct {
	net.Conn
	taken int64
}

func (c *counting) Taken() int64 { return c.taken }

// A client that takes less than a piece within WriteStall takes something
// nevertheless, where the connection can tell.
func TestLink_WhatIsLeftGetsLessWithEachByteThatTheConnectionCounts(t *testing.T) {
	conn := &counting{taken: 5}
	k := &link{conn: conn}
	k.left.Store(linkPiece)
	before := k.unacknowledged()
	conn.taken++
	if after := k.unacknowledged(); before != math.MaxInt-5 || after != before-1 {
		t.Errorf("it was %d and is %d", before, after)
	}
	plain := &link{conn: wrapped{}}
	plain.left.Store(7)
	if n := plain.unacknowledged(); n != 7 {
		t.Errorf("without a count it is %d", n)
	}
}

// A loop may be stopped between the last write of a connection and its being
// told of it: the connection is closed nevertheless.
func TestLink_AConnectionIsClosedBehindItsLastWriteThoughItsLoopIsGone(t *testing.T) {
	client, server := net.Pipe()
	client.SetDeadline(time.Now().Add(deadline))
	l := &loop{limits: new(atomic.Pointer[Config])} // without a hub, which nothing may be asked of
	l.limits.Store(&Config{WriteStall: time.Minute})
	h := &hold{kind: ModeStream}
	h.link = newLink(l, server)
	if n, err := h.link.write(h, [][]byte{[]byte("la"), []byte("st")}); n != 4 || err != nil {
		t.Fatal(n, err)
	}
	h.link.close(h, false, time.Minute)
	if got, err := io.ReadAll(client); string(got) != "last" || err != nil {
		t.Errorf("%q came, %v; want the last bytes and the end", got, err)
	}
}
