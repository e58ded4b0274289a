package holds

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// pipe is a connection of the tests: it takes what there is room for, and
// keeps it until the client reads.
type pipe struct {
	room   int // bytes that it takes before it is full; below 0: any number
	bytes  []byte
	full   bool   // a write took less than all
	sent   []byte // by the client
	shut   bool
	closed bool
	reset  bool
	fail   error // of the next write
}

// pipes are the sockets of one loop. They are used by the loop's goroutine.
type pipes struct {
	of    map[*hold]*pipe
	woken atomic.Int64
}

func (p *pipes) adopt(h *hold, _ net.Conn) error { return nil }
func (p *pipes) watch(*hold) error               { return nil }
func (p *pipes) wake()                           { p.woken.Add(1) }
func (p *pipes) unacknowledged(h *hold) int      { return len(p.of[h].bytes) }

func (p *pipes) shut(h *hold) { p.of[h].shut = true }

func (p *pipes) release(h *hold) (net.Conn, []byte, error) {
	return nil, nil, errors.New("a pipe stays")
}

func (p *pipes) read(h *hold, into []byte) (int, error) {
	k := p.of[h]
	if len(k.sent) == 0 {
		return 0, errAgain
	}
	n := copy(into, k.sent)
	k.sent = k.sent[n:]
	return n, nil
}

func (p *pipes) write(h *hold, pieces [][]byte) (n int, err error) {
	k := p.of[h]
	if k.closed {
		panic("written to after its close")
	}
	if k.fail != nil {
		return 0, k.fail
	}
	for _, b := range pieces {
		take := len(b)
		if k.room >= 0 {
			take = min(take, k.room-len(k.bytes))
		}
		k.bytes = append(k.bytes, b[:take]...)
		if n += take; take < len(b) {
			k.full = true
			return n, nil
		}
	}
	return n, nil
}

func (p *pipes) close(h *hold, reset bool) {
	k := p.of[h]
	if k.closed {
		panic("closed twice")
	}
	for i := range h.seats() {
		for _, member := range h.seatAt(i).room.local[0].holds {
			if member == h {
				panic("closed while it is in a channel")
			}
		}
	}
	k.closed, k.reset = true, reset
}

// streamEvent is what a reader of an event stream makes of a block.
type streamEvent struct {
	id    int64 // the last id that was set, in this block or before
	set   bool  // … in this block
	name  string
	data  string
	fires bool // it has data
}

// streamReader reads an event stream as the HTML standard says (9.2.6).
type streamReader struct {
	rest   []byte
	lastID int64
	retry  string
}

// feed takes bytes in and gives the blocks that are whole.
func (r *streamReader) feed(b []byte) (events []streamEvent) {
	r.rest = append(r.rest, b...)
	for {
		end := bytes.Index(r.rest, []byte("\n\n"))
		if end < 0 {
			return events
		}
		block := string(r.rest[:end])
		r.rest = r.rest[end+2:]
		e := streamEvent{id: r.lastID}
		var data []string
		for _, line := range strings.FieldsFunc(block, func(r rune) bool { return r == '\n' || r == '\r' }) {
			field, value, _ := strings.Cut(line, ":")
			value = strings.TrimPrefix(value, " ")
			switch field {
			case "id":
				if id, err := strconv.ParseInt(value, 10, 64); err == nil {
					r.lastID, e.id, e.set = id, id, true
				}
			case "event":
				e.name = value
			case "data":
				data = append(data, value)
				e.fires = true
			case "retry":
				r.retry = value
			}
		}
		e.data = strings.Join(data, "\n")
		events = append(events, e)
	}
}

// gapOf reads a gap's data.
func gapOf(data string) (last, head int64) {
	var gap struct {
		Last int64 `json:"last_event_id"`
		Head int64 `json:"head"`
	}
	if err := json.Unmarshal([]byte(data), &gap); err != nil {
		panic(err)
	}
	return gap.Last, gap.Head
}

// testLoops makes loops over pipes; the caller takes their turns.
func testLoops(h *hub, n int, cfg Config) []*loop {
	cfg = cfg.withDefaults()
	shared := &home{log: zap.NewNop(), loops: n, run: "test", ctx: context.Background()}
	shared.limits.Store(&cfg)
	for i := range n {
		l := newLoop(h, i, shared)
		l.sockets = &pipes{of: make(map[*hold]*pipe)}
		h.loops = append(h.loops, l)
	}
	return h.loops
}

// text is a publication of text.
func text(data string, channels ...string) Publication {
	return Publication{Channels: channels, Data: []byte(data), Retry: -1}
}

// fakeClock is a clock that stands until it is moved.
type fakeClock struct{ at time.Time }

func (c *fakeClock) now() time.Time { return c.at }

func (c *fakeClock) String() string { return fmt.Sprint(c.at.UnixMicro()) }
