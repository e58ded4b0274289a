package holds

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"unicode/utf8"
)

// opcode is what a frame is (RFC 6455 §5.2), and what a message is by its
// first frame.
type opcode byte

const (
	opContinuation opcode = 0x0
	opText         opcode = 0x1
	opBinary       opcode = 0x2
	opClose        opcode = 0x8
	opPing         opcode = 0x9
	opPong         opcode = 0xA
)

func (o opcode) isControl() bool { return o&0x8 != 0 }

const (
	bitFin  = 0x80
	bitsRSV = 0x70 // no extension is ever agreed on, so they have no meaning
	bitMask = 0x80
	length2 = 126 // the length is in the next 2 bytes
	length8 = 127 // the length is in the next 8 bytes

	maxControl   = 125 // payload of a control frame, RFC 6455 §5.5
	maxFrameHead = 14  // of a client's frame: 2, 8 of length, 4 of mask
)

// frameFault is what a client broke; the socket is to be closed with code.
type frameFault struct {
	code uint16
	text string
}

func (f *frameFault) Error() string { return f.text }

// The faults of a client, but for a message over the limit, whose text has
// the numbers (tooBig).
var (
	faultReserved        = &frameFault{closeProtocol, "a frame has a reserved bit set, and no extension was agreed on"}
	faultOpcode          = &frameFault{closeProtocol, "a frame has a reserved opcode"}
	faultUnmasked        = &frameFault{closeProtocol, "a frame is not masked"}
	faultLength          = &frameFault{closeProtocol, "a frame's length is not in its shortest form"}
	faultLengthSign      = &frameFault{closeProtocol, "a frame's length has its top bit set"}
	faultControlFragment = &frameFault{closeProtocol, "a control frame is fragmented"}
	faultControlLength   = &frameFault{closeProtocol, "a control frame has more than 125 bytes"}
	faultNoMessage       = &frameFault{closeProtocol, "a continuation frame has no message to continue"}
	faultInMessage       = &frameFault{closeProtocol, "a message begins before the fragmented one has ended"}
	faultCloseLength     = &frameFault{closeProtocol, "a close frame has half a code"}
	faultCloseCode       = &frameFault{closeProtocol, "a close frame has a code that must not be sent"}
	faultText            = &frameFault{closeInvalidUTF8, "a text message is not UTF-8"}
	faultReason          = &frameFault{closeInvalidUTF8, "a close frame's reason is not UTF-8"}
)

func tooBig(had int, length uint64, limit int) *frameFault {
	return &frameFault{closeTooBig, fmt.Sprintf("a message of %d bytes or more is over the limit of %d; raise holds.message_bytes or send less at once",
		uint64(had)+length, limit)}
}

// message is one whole thing that a client sent. The zero message is none.
type message struct {
	opcode opcode // opText, opBinary, opPing, opPong or opClose
	code   uint16 // of a close; closeNoStatus: it has none
	// payload is unmasked; a close's is its reason. Text and reasons are UTF-8.
	payload []byte
	// owned: payload is the receiver's for good. Otherwise it is a part of what
	// was given to next, and good until that is used again.
	owned bool
}

// frames reads what a client sends over a WebSocket (RFC 6455 §5), in
// whatever pieces it comes. The zero value is ready. It is 8 bytes; between
// messages it has nothing on the heap, however long the client is quiet. It
// serves one goroutine at a time.
//
//	for len(in) > 0 {
//		used, m, fault := f.next(in, limit)
//		if fault != nil { ... } // close with fault.code
//		in = in[used:]
//		if m.opcode == 0 { break } // the rest has to come
//		...
//	}
type frames struct{ partial *partial }

// finished is what frames.partial is after a close or a fault.
var finished = new(partial)

// partial is what has to be kept from one read to the next: 96 bytes, and of
// a message what has come, in at most twice as many bytes (64 or more). What a
// head announces is not taken at its word.
type partial struct {
	// of the frame whose head or payload is not whole
	raw     [maxFrameHead]byte
	rawLen  uint8
	inFrame bool // head is read, head.rest bytes are to come
	head    frameHead
	control []byte

	// of the message that is not whole
	message opcode // 0: none has begun
	data    []byte
	checked int // bytes of data that are whole runes of UTF-8
}

// frameHead is a frame's head, and how far its payload has been read.
type frameHead struct {
	fin    bool
	opcode opcode
	key    uint32 // the mask, little-endian, turned so that the next byte's is the lowest
	rest   int    // bytes of payload to come
}

// next reads the next message, or as much of it as there is. in is unmasked
// in place as far as it is used. used is how many bytes were: all of them if
// m is the zero message, and then nothing of in is kept.
//
// limit is for the payload of one message, in bytes; 0 lets only empty ones
// through. It is applied to what heads announce, before it has come, and not
// to control frames. It may change from call to call; what has come stays.
//
// After a close and after a fault, everything is used and means nothing
// (RFC 6455 §5.5.1, §7.1.7).
func (f *frames) next(in []byte, limit int) (used int, m message, fault *frameFault) {
	for used < len(in) && f.partial != finished {
		head, n, fault := f.readHead(in[used:], limit)
		used += n
		if fault == nil && f.partial.headIsPartial() {
			break
		}
		if fault == nil {
			m, n, fault = f.readPayload(head, in[used:])
			used += n
		}
		if fault != nil {
			f.partial = finished
			return len(in), message{}, fault
		}
		if m.opcode == opClose {
			f.partial = finished
		}
		if m.opcode != 0 {
			return used, m, nil
		}
	}
	return len(in), message{}, nil
}

// held is how many bytes of a message that is not whole are kept.
func (f *frames) held() int {
	if f.partial == nil {
		return 0
	}
	return cap(f.partial.data) + cap(f.partial.control)
}

// keep gives the place for what has to be kept.
func (f *frames) keep() *partial {
	if f.partial == nil {
		f.partial = new(partial)
	}
	return f.partial
}

func (p *partial) headIsPartial() bool { return p != nil && p.rawLen > 0 }
func (p *partial) inMessage() bool     { return p != nil && p.message != 0 }

// readHead gives the head of the frame being read, which may have come
// before. Of one that is not whole, all of in is kept in raw.
func (f *frames) readHead(in []byte, limit int) (head frameHead, used int, fault *frameFault) {
	p := f.partial
	if p != nil && p.inFrame {
		return p.head, 0, nil
	}
	if !p.headIsPartial() {
		head, used, fault = p.parseHead(in, limit)
		if used == 0 && fault == nil {
			p = f.keep()
			used = copy(p.raw[:], in)
			p.rawLen = uint8(used)
		}
		return head, used, fault
	}
	before := int(p.rawLen)
	taken := copy(p.raw[before:], in)
	head, size, fault := p.parseHead(p.raw[:before+taken], limit)
	if size == 0 {
		p.rawLen += uint8(taken)
		return head, taken, fault
	}
	p.rawLen = 0
	return head, size - before, fault
}

// parseHead reads a head from the start of b, which is not empty. size is the
// head's, 0 if it is not whole. A fault is found with the first byte that
// makes it certain. p may be nil.
func (p *partial) parseHead(b []byte, limit int) (head frameHead, size int, fault *frameFault) {
	head = frameHead{fin: b[0]&bitFin != 0, opcode: opcode(b[0] & 0xF)}
	if fault := head.judge(b[0]&bitsRSV != 0, p.inMessage()); fault != nil || len(b) < 2 {
		return head, 0, fault
	}
	if b[1]&bitMask == 0 {
		return head, 0, faultUnmasked
	}
	length, size, fault := parseLength(b, head.opcode.isControl())
	if fault != nil || size == 0 {
		return head, 0, fault
	}
	if !head.opcode.isControl() {
		had := 0
		if p != nil {
			had = len(p.data)
		}
		if length > uint64(max(limit-had, 0)) {
			return head, 0, tooBig(had, length, limit)
		}
	}
	if len(b) < size+4 {
		return head, 0, nil
	}
	head.key, head.rest = binary.LittleEndian.Uint32(b[size:]), int(length)
	return head, size + 4, nil
}

// judge is what a head's first byte decides (RFC 6455 §5.2, §5.4, §5.5).
func (h frameHead) judge(reserved, inMessage bool) *frameFault {
	switch {
	case reserved:
		return faultReserved
	case h.opcode > opPong || h.opcode > opBinary && h.opcode < opClose:
		return faultOpcode
	case h.opcode.isControl() && !h.fin:
		return faultControlFragment
	case h.opcode == opContinuation && !inMessage:
		return faultNoMessage
	case (h.opcode == opText || h.opcode == opBinary) && inMessage:
		return faultInMessage
	}
	return nil
}

// parseLength reads the payload's length from a head of at least 2 bytes
// (RFC 6455 §5.2). size is the head's without the mask's 4, 0 if the length
// is not whole.
func parseLength(b []byte, control bool) (length uint64, size int, fault *frameFault) {
	switch short := b[1] &^ bitMask; {
	case short <= maxControl:
		return uint64(short), 2, nil
	case control:
		return 0, 0, faultControlLength
	case short == length2 && len(b) >= 4:
		if length = uint64(binary.BigEndian.Uint16(b[2:])); length <= maxControl {
			return 0, 0, faultLength
		}
		return length, 4, nil
	case short == length8 && len(b) >= 10:
		length = binary.BigEndian.Uint64(b[2:])
		if length>>63 != 0 {
			return 0, 0, faultLengthSign
		}
		if length <= 0xFFFF {
			return 0, 0, faultLength
		}
		return length, 10, nil
	}
	return 0, 0, nil
}

// readPayload takes what in has of a frame's payload, which may be none.
func (f *frames) readPayload(head frameHead, in []byte) (m message, used int, fault *frameFault) {
	used = min(head.rest, len(in))
	part := in[:used:used]
	head.key = unmask(part, head.key)
	head.rest -= used
	if head.opcode.isControl() {
		m, fault = f.takeControl(head, part)
	} else {
		m, fault = f.takeData(head, part)
	}
	p := f.partial
	switch {
	case head.rest > 0:
		p.head, p.inFrame = head, true
	case p.inMessage():
		p.inFrame = false
	default:
		f.partial = nil
	}
	return m, used, fault
}

// takeControl takes a part of a control frame.
func (f *frames) takeControl(head frameHead, part []byte) (m message, fault *frameFault) {
	m = message{opcode: head.opcode, payload: part}
	if p := f.partial; head.rest > 0 || p != nil && p.control != nil {
		p = f.keep()
		p.control = appendPart(p.control, part, head)
		if head.rest > 0 {
			return message{}, nil
		}
		m.payload, m.owned, p.control = p.control, true, nil
	}
	if head.opcode == opClose {
		m.code, m.payload, fault = readClose(m.payload)
	}
	return m, fault
}

// readClose takes a close frame's payload apart (RFC 6455 §5.5.1).
func readClose(b []byte) (code uint16, reason []byte, fault *frameFault) {
	if len(b) == 0 {
		return closeNoStatus, nil, nil
	}
	if len(b) == 1 {
		return 0, nil, faultCloseLength
	}
	code, reason = binary.BigEndian.Uint16(b), b[2:]
	if !closeCodeSendable(int(code)) {
		return 0, nil, faultCloseCode
	}
	if !utf8.Valid(reason) {
		return 0, nil, faultReason
	}
	return code, reason, nil
}

// takeData takes a part of a text, binary or continuation frame.
func (f *frames) takeData(head frameHead, part []byte) (message, *frameFault) {
	last := head.fin && head.rest == 0
	p := f.partial
	if !p.inMessage() {
		if last { // all of it in one piece
			if head.opcode == opText && !utf8.Valid(part) {
				return message{}, faultText
			}
			return message{opcode: head.opcode, payload: part}, nil
		}
		p = f.keep()
		p.message = head.opcode
	}
	p.data = appendPart(p.data, part, head)
	if p.message == opText && !p.checkText(last) {
		return message{}, faultText
	}
	if !last {
		return message{}, nil
	}
	m := message{opcode: p.message, payload: p.data, owned: true}
	p.message = 0
	return m, nil
}

// checkText checks what has come of a text since the last check, as far as
// its runes are whole: a rune that cannot become valid is not waited for.
// last: nothing more comes.
func (p *partial) checkText(last bool) bool {
	fresh := p.data[p.checked:]
	whole := len(fresh)
	for i := len(fresh) - 1; !last && i >= max(0, len(fresh)-utf8.UTFMax+1); i-- {
		if utf8.RuneStart(fresh[i]) {
			if !utf8.FullRune(fresh[i:]) {
				whole = i
			}
			break
		}
	}
	p.checked += whole
	return utf8.Valid(fresh[:whole])
}

// appendPart appends a part of a frame's payload to what has come. Space is
// doubled, so that a long message is not copied for every read of it, but is
// never more than what the last frame completes.
func appendPart(b, part []byte, head frameHead) []byte {
	if need := len(b) + len(part); need > cap(b) {
		size := max(2*cap(b), 64)
		if head.fin {
			size = min(size, need+head.rest)
		}
		b = append(make([]byte, 0, max(size, need)), b...)
	}
	return append(b, part...)
}

// unmask takes a mask off b, in place (RFC 6455 §5.3), and gives the mask as
// it goes on behind b.
func unmask(b []byte, key uint32) uint32 {
	next := bits.RotateLeft32(key, -8*(len(b)%4))
	wide := uint64(key)<<32 | uint64(key)
	for len(b) >= 8 {
		binary.LittleEndian.PutUint64(b, binary.LittleEndian.Uint64(b)^wide)
		b = b[8:]
	}
	for i := range b {
		b[i] ^= byte(wide >> (8 * i))
	}
	return next
}
