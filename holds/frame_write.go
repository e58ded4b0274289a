package holds

import (
	"encoding/binary"
	"strings"
	"unicode/utf8"
)

// Close codes (RFC 6455 §7.4.1; those from 1012 on: IANA's registry).
const (
	closeNormal      = 1000
	closeProtocol    = 1002
	closeNoStatus    = 1005 // a close without a code; never sent
	closeInvalidUTF8 = 1007
	closePolicy      = 1008
	closeTooBig      = 1009
	closeError       = 1011
	closeRestart     = 1012
	closeTryLater    = 1013
)

// appendFrame appends a frame with its payload, as a server sends it: not
// masked, and a whole message (RFC 6455 §5.1). A control frame's payload has
// at most 125 bytes.
func appendFrame(dst []byte, op opcode, payload []byte) []byte {
	return append(appendFrameHead(dst, op, len(payload)), payload...)
}

// appendFrameHead appends the head of such a frame: 2, 4 or 10 bytes, behind
// which length bytes of payload belong.
func appendFrameHead(dst []byte, op opcode, length int) []byte {
	dst = append(dst, bitFin|byte(op))
	switch {
	case length <= maxControl:
		return append(dst, byte(length))
	case length <= 0xFFFF:
		return binary.BigEndian.AppendUint16(append(dst, length2), uint16(length))
	}
	return binary.BigEndian.AppendUint64(append(dst, length8), uint64(length))
}

// closePayload is what a close frame says. A code that must not be sent,
// closeNoStatus among them, gives an empty one: a close without a code. Of a
// reason, 123 bytes are said, cut before a rune that does not fit; what is not
// UTF-8 in it becomes U+FFFD.
func closePayload(code uint16, reason string) []byte {
	if !closeCodeSendable(int(code)) {
		return nil
	}
	reason = strings.ToValidUTF8(reason, string(utf8.RuneError))
	if end := maxCloseReason; len(reason) > end {
		for !utf8.RuneStart(reason[end]) {
			end--
		}
		reason = reason[:end]
	}
	return append(binary.BigEndian.AppendUint16(nil, code), reason...)
}
