package holds

import (
	"bytes"
	"strconv"
	"sync/atomic"
)

// event is what was published, encoded once for all holds. Apart from what is
// marked it never changes once it has its number, and its bytes are shared by
// every hold that they go to.
type event struct {
	id    int64
	name  string
	kind  DataKind
	data  []byte
	wire  []byte // the frame of an event stream, as one chunk (RFC 9112 §7.1)
	frame []byte // the frame alone: a part of wire
	item  *Item  // nil: it was published in the native form
	rooms []*room
	first [1]*room // what rooms is of in nearly every event
	// Rendered when the first hold needs them.
	bare, envelope atomic.Pointer[[]byte]
	evicted        atomic.Bool // the journal has let it go

	// guarded by the hub's mu
	journalled int // rings that it is in
	bytes      int // charged to the journal
	at         int64
	prev, next *event
}

const (
	idDigits   = 16 // of every id from 2001 to 2286
	chunkSpace = 10 // in front of a chunk's data: its size in hex and CRLF, for up to 32 bits
	// eventOverhead is what an event takes beside its bytes: itself, its places
	// in a ring, its share of allocation's rounding.
	eventOverhead = 256
)

// encode makes an event of a publication, all but its number, for which the
// frame has a place.
func encode(p *Publication) *event {
	e := &event{name: p.Event, kind: p.Kind}
	plain := bytes.IndexByte(p.Data, '\n') < 0 && bytes.IndexByte(p.Data, '\r') < 0
	size := chunkSpace + len("id: \nevent: \nretry: \ndata: \n\n\r\n") + idDigits + len(p.Event) + 20 + len(p.Data)
	if !plain {
		size += len("data: ") * (bytes.Count(p.Data, []byte("\n")) + bytes.Count(p.Data, []byte("\r")))
	}
	buf := append(make([]byte, chunkSpace, size), "id: 0000000000000000\n"...)
	if p.Event != "" {
		buf = append(append(append(buf, "event: "...), p.Event...), '\n')
	}
	if p.Retry >= 0 {
		buf = append(strconv.AppendInt(append(buf, "retry: "...), int64(p.Retry), 10), '\n')
	}
	if plain {
		at := len(buf) + len("data: ")
		buf = append(append(append(buf, "data: "...), p.Data...), '\n')
		e.data = buf[at : at+len(p.Data) : at+len(p.Data)]
	} else {
		buf = appendData(buf, p.Data)
		e.data = p.Data
		size += len(p.Data)
	}
	buf = append(buf, '\n')
	e.wire, e.frame = closeChunk(buf)
	e.bytes = size + eventOverhead
	return e
}

// encodeItem makes an event of an item of GRIP's: its stream's bytes go out as
// they were published, sockets get its message, and its answer is for each long
// poll to make of its own.
func encodeItem(i *Item) *event {
	e := &event{item: i, kind: DataText, bytes: eventOverhead}
	if f := i.Stream; f != nil && len(f.Content) > 0 {
		e.wire, e.frame = closeChunk(append(make([]byte, chunkSpace, chunkSpace+len(f.Content)+2), f.Content...))
	}
	if f := i.Socket; f != nil {
		if e.data = f.Content; f.Kind == opBinary {
			e.kind = DataBinary
		}
	}
	if f := i.Answer; f != nil {
		e.bytes += len(f.Body)
		for _, field := range f.Fields {
			e.bytes += len(field[0]) + len(field[1]) + 32
		}
	}
	for name, value := range i.Meta {
		e.bytes += len(name) + len(value) + 64
	}
	e.bytes += cap(e.wire) + len(e.data) + len(i.Channel)
	return e
}

// appendData writes data as one line each for what its line endings part:
// LF, CR and CRLF, which a stream's reader takes for the same.
func appendData(dst, data []byte) []byte {
	for {
		dst = append(dst, "data: "...)
		end := bytes.IndexAny(data, "\r\n")
		if end < 0 {
			return append(append(dst, data...), '\n')
		}
		dst = append(append(dst, data[:end]...), '\n')
		if data[end] == '\r' && end+1 < len(data) && data[end+1] == '\n' {
			end++
		}
		data = data[end+1:]
	}
}

// closeChunk makes a chunk of what stands in buf behind chunkSpace bytes.
func closeChunk(buf []byte) (chunk, data []byte) {
	end := len(buf)
	var size [chunkSpace]byte
	head := append(strconv.AppendUint(size[:0], uint64(end-chunkSpace), 16), "\r\n"...)
	start := chunkSpace - len(head)
	copy(buf[start:], head)
	buf = append(buf, "\r\n"...)
	return buf[start:], buf[chunkSpace:end:end]
}

// setID writes the number into its place.
func (e *event) setID(id int64) {
	e.id = id
	if e.item != nil {
		return // its bytes are the publisher's
	}
	strconv.AppendInt(e.frame[len("id: "):len("id: ")], id, 10)
}

func (e *event) isItem() bool { return e.item != nil }

// weight is what an event was published with.
func (e *event) weight() int {
	n := len(e.wire)
	if e.item != nil {
		n += len(e.data)
		if e.item.Answer != nil {
			n += len(e.item.Answer.Body)
		}
	}
	return n
}

// size is what an event takes in memory, with all its forms.
func (e *event) size() int {
	n := e.weight() + eventOverhead
	if e.bare.Load() != nil {
		n += cap(*e.bare.Load())
	}
	if e.envelope.Load() != nil {
		n += cap(*e.envelope.Load())
	}
	return n
}

// bytesFor is what goes to a hold. A hold on an HTTP/1.0 connection has no chunks.
func (l *loop) bytesFor(h *hold, e *event) []byte {
	switch {
	case h.socket != nil:
		return l.hub.message(e, h.socket.envelope)
	case h.chunked:
		return e.wire
	}
	return e.frame
}
