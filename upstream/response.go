package upstream

import (
	"bytes"
	"errors"
	"fmt"

	"holdfast/internal/http1"
)

// Framing is how an answer's body ends (RFC 9112 §6.3).
type Framing uint8

// The ways a body ends.
const (
	FramingNone    Framing = iota // there is none: HEAD, 1xx, 204, 304
	FramingLength                 // after Length bytes
	FramingChunked                // with the last chunk
	FramingClose                  // when the upstream closes
)

// Response is the head of an answer. Its slices belong to the connection and
// are good until the exchange ends.
type Response struct {
	Status  int
	Reason  []byte
	Fields  []http1.Field
	Framing Framing
	// Length of the body where Framing is FramingLength.
	Length int64
	// KeepAlive: the upstream offers to use the connection again (RFC 9112 §9.3).
	KeepAlive bool
	// SaysKeepAlive: it says so in words, which HTTP/1.1 does not ask for.
	SaysKeepAlive bool
	// Endless: an event stream of no stated length, which no reader sees the
	// end of before the view ends.
	Endless bool
}

// maxResponseHead bounds an answer's head. nginx stops at 4 or 8 KiB by
// default, which large sets of cookies pass; 64 KiB is Go's net/http order
// of magnitude without letting an app fill memory by head alone.
const maxResponseHead = 64 << 10

// parse reads a whole head, its empty line included. It is as strict as the
// request side: whatever two readers could take for two different answers is
// an error, because the next client on this connection would get the rest.
func (res *Response) parse(head []byte, toHEAD bool) error {
	line, rest := cutLine(head)
	minor, err := res.parseStatusLine(line)
	if err != nil {
		return err
	}
	var f framingFields
	f.length = -1
	for {
		line, rest = cutLine(rest)
		if len(line) == 0 {
			break
		}
		field, err := http1.ParseField(line)
		if err != nil {
			return err
		}
		res.Fields = append(res.Fields, field)
		if err := f.note(field); err != nil {
			return err
		}
	}
	if f.chunked && (f.length >= 0 || minor == 0) {
		return errors.New("chunked together with Content-Length or HTTP/1.0")
	}
	res.KeepAlive = !f.close && (minor > 0 || f.keepAlive)
	res.SaysKeepAlive = res.KeepAlive && f.keepAlive
	switch {
	case toHEAD || res.Status < 200 || res.Status == 204 || res.Status == 304:
		res.Framing = FramingNone
	case f.chunked:
		res.Framing = FramingChunked
	case f.length >= 0:
		res.Framing, res.Length = FramingLength, f.length
	default:
		res.Framing, res.KeepAlive = FramingClose, false
	}
	res.Endless = f.events && (res.Framing == FramingChunked || res.Framing == FramingClose)
	return nil
}

// cutLine takes a line that ends with CRLF off b.
func cutLine(b []byte) (line, rest []byte) {
	i := bytes.IndexByte(b, '\n')
	return b[:i-1], b[i+1:]
}

// parseStatusLine reads HTTP/1.x SP 3DIGIT [ SP reason ] (RFC 9112 §4). The
// space before an empty reason may be missing, as many servers leave it out.
func (res *Response) parseStatusLine(line []byte) (minor int, err error) {
	if len(line) < 12 || !bytes.HasPrefix(line, []byte("HTTP/1.")) || !http1.IsDigits(line[7:8]) ||
		line[8] != ' ' || !http1.IsDigits(line[9:12]) || (len(line) > 12 && line[12] != ' ') {
		return 0, fmt.Errorf("its status line is %.40q", line)
	}
	res.Status = int(line[9]-'0')*100 + int(line[10]-'0')*10 + int(line[11]-'0')
	if res.Status < 100 || res.Status > 599 {
		return 0, fmt.Errorf("its status is %d", res.Status)
	}
	res.Reason = nil
	if len(line) > 13 {
		res.Reason = line[13:]
	}
	if !http1.IsValue(res.Reason) {
		return 0, errors.New("its reason phrase has a control byte")
	}
	return int(line[7] - '0'), nil
}

// framingFields collects what decides where the body ends.
type framingFields struct {
	length                            int64 // -1: none given
	chunked, close, keepAlive, events bool
}

func (f *framingFields) note(field http1.Field) error {
	switch {
	case http1.EqualFold(field.Name, "content-length"):
		length, tooLarge, ok := http1.ParseLength(field.Value)
		if !ok || tooLarge || (f.length >= 0 && f.length != length) {
			return fmt.Errorf("its Content-Length is %.40q", field.Value)
		}
		f.length = length
	case http1.EqualFold(field.Name, "transfer-encoding"):
		if f.chunked || !http1.EqualFold(field.Value, "chunked") {
			return fmt.Errorf("its Transfer-Encoding is %.40q", field.Value)
		}
		f.chunked = true
	case http1.EqualFold(field.Name, "connection"):
		f.close = f.close || http1.HasElement(field.Value, "close")
		f.keepAlive = f.keepAlive || http1.HasElement(field.Value, "keep-alive")
	case http1.EqualFold(field.Name, "content-type"):
		f.events = http1.HasPrefixFold(field.Value, "text/event-stream")
	}
	return nil
}
