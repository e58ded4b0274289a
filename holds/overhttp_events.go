package holds

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"

	"holdfast/internal/http1"
)

// WebSocket-over-HTTP: what happens at a socket, and what is to happen there,
// are events in the bodies of requests and answers of the type
// application/websocket-events, one behind the other:
//
//	TYPE CRLF
//	TYPE SP length CRLF content CRLF      the length in hexadecimal

// eventKind is what a socketEvent is.
type eventKind uint8

// The kinds of events. eventUnknown is not written, and not read.
const (
	eventUnknown eventKind = iota
	eventOpen
	eventText
	eventBinary
	eventPing
	eventPong
	eventClose      // content: see closeContent
	eventDisconnect // the client, or the app, has gone without a close
)

var eventNames = [...]string{eventOpen: "OPEN", eventText: "TEXT", eventBinary: "BINARY", eventPing: "PING",
	eventPong: "PONG", eventClose: "CLOSE", eventDisconnect: "DISCONNECT"}

// String is the kind's word in a body; "" for eventUnknown.
func (k eventKind) String() string { return eventNames[k] }

// eventKindOf reads a word of a body: capital letters only, as everybody
// writes them.
func eventKindOf(word []byte) eventKind {
	for kind := eventOpen; kind <= eventDisconnect; kind++ {
		if string(word) == eventNames[kind] {
			return kind
		}
	}
	return eventUnknown
}

// socketEvent is one event of WebSocket-over-HTTP.
type socketEvent struct {
	kind    eventKind
	content []byte
	null    bool // no content, not even an empty one
}

// appendSocketEvent writes an event. An empty content is written (TEXT 0),
// other than null; an event of an unknown kind is not there at all.
func appendSocketEvent(dst []byte, e socketEvent) []byte {
	if e.kind == eventUnknown {
		return dst
	}
	dst = append(dst, e.kind.String()...)
	if e.null {
		return append(dst, "\r\n"...)
	}
	dst = strconv.AppendInt(append(dst, ' '), int64(len(e.content)), 16)
	dst = append(append(dst, "\r\n"...), e.content...)
	return append(dst, "\r\n"...)
}

// The bounds of a body: events in it, those of unknown kinds too, and bytes of
// one content. Beyond them the body is refused.
const (
	maxSocketEvents  = 10_000
	maxSocketContent = 1_000_000
)

// errSocketEvents is inside every error of decodeSocketEvents.
var errSocketEvents = errors.New("the body is no list of WebSocket events")

// decodeSocketEvents reads a body. The contents are parts of it.
//
// An event of an unknown kind is left out: a later version may have more. So
// is a last one that ends with the body before its content does; if it lacks
// no more than its CRLF, it counts.
//
// An error is a line that does not end with CRLF, a length that is no
// hexadecimal number (with a sign or "0x" it is none), content that does not
// end where its length says, or a bound that is passed. Nothing of the body
// counts then.
func decodeSocketEvents(body []byte) (events []socketEvent, err error) {
	for at, n := 0, 0; at < len(body); n++ {
		if n == maxSocketEvents {
			return nil, fmt.Errorf("%w: it has more than %d; send fewer at once", errSocketEvents, maxSocketEvents)
		}
		line, _, ended := bytes.Cut(body[at:], []byte("\n"))
		line, whole := bytes.CutSuffix(line, []byte("\r"))
		if !ended || !whole {
			return nil, fmt.Errorf("%w: the line at byte %d (%.40q) does not end with CRLF", errSocketEvents, at, body[at:])
		}
		word, size, sized := bytes.Cut(line, []byte(" "))
		at += len(line) + len(crlf)
		e := socketEvent{kind: eventKindOf(word), null: !sized}
		if sized {
			length, err := contentLength(size)
			if err != nil {
				return nil, fmt.Errorf("%w: the length of %.40q (%.40q) %w", errSocketEvents, word, size, err)
			}
			if length > len(body)-at {
				break
			}
			e.content = body[at : at+length : at+length]
			at += length
			if !bytes.HasPrefix(crlf, body[at:min(at+len(crlf), len(body))]) {
				return nil, fmt.Errorf("%w: the content of %.40q has no CRLF behind its %d bytes (byte %d); count bytes, not characters", errSocketEvents, word, length, at)
			}
			at += len(crlf)
		}
		if e.kind != eventUnknown {
			events = append(events, e)
		}
	}
	return events, nil
}

var crlf = []byte("\r\n")

// The faults of a length.
var (
	errNotHex       = errors.New("is no hexadecimal number; write its digits alone")
	errContentBytes = fmt.Errorf("is more than %d; send less at once", maxSocketContent)
)

// contentLength reads a content's length, in digits of either case.
func contentLength(digits []byte) (length int, err error) {
	if len(digits) == 0 {
		return 0, errNotHex
	}
	for _, c := range digits {
		digit := unhex(c)
		if digit < 0 {
			return 0, errNotHex
		}
		// Beyond the bound it need not grow, but the digits are still to be read.
		length = min(length<<4|digit, maxSocketContent+1)
	}
	if length > maxSocketContent {
		return 0, errContentBytes
	}
	return length, nil
}

// closeContent reads the content of a CLOSE: two bytes of a code, most
// significant first, and a reason. Apps send what may not be sent, 0 above all
// where a view gave no code: such a code, none and half a one are 1000. The
// reason is made to fit as closeReason says.
func closeContent(content []byte) (code int, reason string) {
	if len(content) < 2 {
		return closeCodeDefault, ""
	}
	code = int(binary.BigEndian.Uint16(content))
	if !closeCodeSendable(code) {
		code = closeCodeDefault
	}
	return code, closeReason(content[2:])
}

// prefixKind is what a text of the app is by its first bytes.
type prefixKind uint8

const (
	prefixNone    prefixKind = iota // for nobody: it is left out
	prefixControl                   // a control message, for decodeControl
	prefixMessage                   // for the client
)

// controlPrefix is what a control message begins with, whatever the prefix of
// messages is.
const controlPrefix = "c:"

// splitPrefix tells what a text that the app sent is, in a socket with the
// extension grip, and gives what is behind its prefix. "c:" comes first: with
// the prefix "", and with one that begins with "c:", such a text is control.
// It is for texts: a binary message is never control, and for the client if
// it begins with the prefix.
func splitPrefix(text []byte, prefix string) (kind prefixKind, rest []byte) {
	if rest, ok := bytes.CutPrefix(text, []byte(controlPrefix)); ok {
		return prefixControl, rest
	}
	if rest, ok := bytes.CutPrefix(text, []byte(prefix)); ok {
		return prefixMessage, rest
	}
	return prefixNone, nil
}

// messagePrefix is the prefix where an app names none.
const messagePrefix = "m:"

// gripExtension reads the Sec-WebSocket-Extensions of an app's answer: whether
// the extension grip is on, and with which prefix (its parameter
// message-prefix; it may be empty, and quoted). Of several grip the first
// counts, and of its parameters the first of that name. Parameters that cannot
// be read are none: the app wants the extension, and does not say a prefix.
func gripExtension(fields []http1.Field) (on bool, prefix string) {
	for _, f := range fields {
		if !http1.EqualFold(f.Name, "sec-websocket-extensions") {
			continue
		}
		for extension := range gripList(f.Value) {
			name, parameters, _ := parseGripValue(extension)
			if !http1.EqualFold(name, "grip") {
				continue
			}
			if prefix, ok := parameters.get("message-prefix"); ok {
				return true, prefix
			}
			return true, messagePrefix
		}
	}
	return false, ""
}
