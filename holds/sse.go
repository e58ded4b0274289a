package holds

import (
	"bytes"
	"math/rand/v2"
	"strconv"
	"time"
)

// opening is what a hold's client gets first, rendered when the hold has
// joined: only then it is known from where the hold is fed.
type opening struct {
	head    []byte      // of the answer, its empty line included
	body    []byte      // of the view: the stream's first bytes
	from    int64       // the position to be fed from
	asked   int64       // when the app was asked
	last    int64       // the one the client came back with; what a gap is told with
	away    uint64      // the bus is: 1 more than how often it had been reached; 0: it is not
	gap     bool        // the journal has not all of it
	early   []byte      // what a socket's client sent behind its handshake
	trust   bool        // GRIP: the app was asked for what the journal has not
	paging  bool        // a GRIP stream's next link comes before anything else
	revoked *EndRequest // the end of one of its channels' holds since the app was asked
	over    *OverHTTP   // what the app had to say as it opened the socket
}

// appendStream renders the head and the first bytes of an event stream: the
// view's own; where something is missing, the gap, unnumbered, so that it
// replaces no position before it was read; then the position.
func (o *opening) appendStream(dst []byte, chunked bool, position int64) []byte {
	dst = append(dst, o.head...)
	buf := make([]byte, chunkSpace, chunkSpace+len(o.body)+128)
	if len(o.body) == 0 {
		buf = append(buf, ": open\n\n"...)
	} else {
		buf = appendBlank(append(buf, o.body...))
	}
	if o.gap {
		buf = o.appendGapEvent(buf, position)
	}
	buf = appendPosition(buf, position)
	chunk, data := closeChunk(buf)
	if chunked {
		return append(dst, chunk...)
	}
	return append(dst, data...)
}

// appendGapEvent renders the event that tells a stream of a gap.
func (o *opening) appendGapEvent(dst []byte, position int64) []byte {
	return append(appendGapData(append(dst, "event: m0-gap\ndata: "...), o.last, position), "\n\n"...)
}

// appendGapData is what a gap's data says: where the client was, and from
// where it is fed now.
func appendGapData(dst []byte, last, head int64) []byte {
	dst = strconv.AppendInt(append(dst, `{"last_event_id":`...), last, 10)
	return append(strconv.AppendInt(append(dst, `,"head":`...), head, 10), '}')
}

// appendPosition writes a block that a client keeps the number of, and that
// fires nothing.
func appendPosition(dst []byte, position int64) []byte {
	dst = append(dst, "id: "...)
	return append(strconv.AppendInt(dst, position, 10), "\n\n"...)
}

// appendBlank ends what a view sent with an empty line, if it lacks one. Lines
// end with LF, CR or CRLF.
func appendBlank(b []byte) []byte {
	rest, ended := cutLineEnd(b)
	if !ended {
		return append(b, "\n\n"...)
	}
	if _, blank := cutLineEnd(rest); blank {
		return b
	}
	if b[len(b)-1] == '\r' { // a single LF behind it would be a part of that line's end
		b = append(b, '\n')
	}
	return append(b, '\n')
}

func cutLineEnd(b []byte) (rest []byte, ended bool) {
	for _, end := range []string{"\r\n", "\n", "\r"} {
		if rest, ended := bytes.CutSuffix(b, []byte(end)); ended {
			return rest, true
		}
	}
	return b, false
}

var (
	heartbeatChunk = []byte("d\r\n: heartbeat\n\n\r\n")
	heartbeatPlain = []byte(": heartbeat\n\n")
	lastChunk      = []byte("0\r\n\r\n")
)

// positionEvery is how many heartbeats there are to one that renews the
// client's position.
const positionEvery = 4

// heartbeat is what goes to a quiet stream.
func heartbeat(chunked bool) []byte {
	if chunked {
		return heartbeatChunk
	}
	return heartbeatPlain
}

// position is the block that renews a client's position.
func position(at int64, chunked bool) []byte {
	chunk, data := closeChunk(appendPosition(make([]byte, chunkSpace, 48), at))
	if chunked {
		return chunk
	}
	return data
}

// farewell is the clean end of a stream. back: the client is asked to come
// back, not all at the same time.
func farewell(chunked, back bool) []byte {
	buf := make([]byte, chunkSpace, 48)
	if back {
		buf = AppendRetry(buf)
	}
	chunk, data := closeChunk(buf)
	switch {
	case !chunked:
		return data
	case back:
		return append(chunk, lastChunk...)
	}
	return lastChunk
}

// The span over which clients that were sent away come back.
const (
	retryLeast = time.Second
	retrySpan  = 4 * time.Second
)

// AppendRetry tells an EventSource when to come back: one to five seconds from
// now, each at another time (the retry field of an event stream).
func AppendRetry(dst []byte) []byte {
	dst = append(dst, "retry: "...)
	dst = strconv.AppendInt(dst, (retryLeast + rand.N(retrySpan)).Milliseconds(), 10)
	return append(dst, "\n\n"...)
}
