package holds

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
)

// clientSends is what a client sends, frame by frame.
type clientSends []byte

// frame adds a masked frame with the first byte as it is given. Each frame of
// a client has another mask.
func (s clientSends) frame(first byte, payload string) clientSends {
	return s.masked(first, payload, uint32(len(s)+1)*0x9E3779B1)
}

func (s clientSends) masked(first byte, payload string, mask uint32) clientSends {
	s = s.head(first, len(payload), mask)
	key := binary.BigEndian.AppendUint32(nil, mask)
	for i := range len(payload) {
		s = append(s, payload[i]^key[i%4])
	}
	return s
}

// head adds the head of a masked frame. Its payload may be left out, or what
// there is of it follow with raw, where the mask is 0.
func (s clientSends) head(first byte, length int, mask uint32) clientSends {
	s = append(s, first)
	switch {
	case length <= 125:
		s = append(s, 0x80|byte(length))
	case length <= 0xFFFF:
		s = binary.BigEndian.AppendUint16(append(s, 0x80|126), uint16(length))
	default:
		s = binary.BigEndian.AppendUint64(append(s, 0x80|127), uint64(length))
	}
	return binary.BigEndian.AppendUint32(s, mask)
}

// raw adds bytes as they are.
func (s clientSends) raw(bytes string) clientSends { return append(s, bytes...) }

func (s clientSends) text(p string) clientSends   { return s.frame(0x81, p) }
func (s clientSends) binary(p string) clientSends { return s.frame(0x82, p) }
func (s clientSends) ping(p string) clientSends   { return s.frame(0x89, p) }
func (s clientSends) pong(p string) clientSends   { return s.frame(0x8A, p) }

// A fragmented message is its first frame, any between, and the last one.
func (s clientSends) beginText(p string) clientSends   { return s.frame(0x01, p) }
func (s clientSends) beginBinary(p string) clientSends { return s.frame(0x02, p) }
func (s clientSends) more(p string) clientSends        { return s.frame(0x00, p) }
func (s clientSends) end(p string) clientSends         { return s.frame(0x80, p) }

// pieces adds a message in frames of at most size bytes.
func (s clientSends) pieces(op opcode, p string, size int) clientSends {
	first := byte(op)
	for len(p) > size {
		s, first, p = s.frame(first, p[:size]), 0x00, p[size:]
	}
	return s.frame(0x80|first, p)
}

func (s clientSends) close(code uint16, reason string) clientSends {
	return s.frame(0x88, string(binary.BigEndian.AppendUint16(nil, code))+reason)
}

// serverFrame is a frame that a client gets. code is a close's, closeNoStatus
// for one without; what its reason says is left open.
type serverFrame struct {
	opcode  opcode
	payload string
	code    uint16
}

func (f serverFrame) String() string {
	if f.opcode == opClose {
		return fmt.Sprintf("close %d", f.code)
	}
	if len(f.payload) > 40 {
		return fmt.Sprintf("%X of %d bytes", byte(f.opcode), len(f.payload))
	}
	return fmt.Sprintf("%X %q", byte(f.opcode), f.payload)
}

// clientGets is what a client gets, frame by frame.
type clientGets []serverFrame

func (g clientGets) text(p string) clientGets   { return append(g, serverFrame{opText, p, 0}) }
func (g clientGets) binary(p string) clientGets { return append(g, serverFrame{opBinary, p, 0}) }
func (g clientGets) pong(p string) clientGets   { return append(g, serverFrame{opPong, p, 0}) }
func (g clientGets) close(code uint16) clientGets {
	return append(g, serverFrame{opClose, "", code})
}

// wantServerFrames takes apart what a server sent, and compares it.
func wantServerFrames(t *testing.T, sent []byte, want clientGets) {
	t.Helper()
	var got clientGets
	for len(sent) > 0 {
		f, size := readServerFrame(t, sent)
		got, sent = append(got, f), sent[size:]
	}
	if !slices.Equal(got, want) {
		t.Fatalf("the client got %v, want %v", got, want)
	}
}

func readServerFrame(t *testing.T, b []byte) (f serverFrame, size int) {
	t.Helper()
	if len(b) < 2 || b[0]&0xF0 != 0x80 || b[1]&0x80 != 0 {
		t.Fatalf("not the head of a whole, unmasked frame: % x", b[:min(len(b), 10)])
	}
	length, at := int(b[1]), 2
	switch {
	case length == 126 && len(b) >= 4:
		length, at = int(binary.BigEndian.Uint16(b[2:])), 4
	case length == 127 && len(b) >= 10:
		length, at = int(binary.BigEndian.Uint64(b[2:])), 10
	}
	if len(b) < at+length {
		t.Fatalf("a frame is cut: % x", b[:min(len(b), 10)])
	}
	payload := b[at : at+length]
	switch f.opcode = opcode(b[0] & 0xF); {
	case f.opcode != opClose:
		f.payload = string(payload)
	case length == 0:
		f.code = closeNoStatus
	default:
		f.code = binary.BigEndian.Uint16(payload)
	}
	return f, at + length
}

// echoServer sends every message back.
type echoServer struct {
	frames frames
	ended  bool // it has sent a close, and sends nothing more
}

// take is one read of the server. It gives what it sends.
func (e *echoServer) take(in []byte, limit int) (out []byte) {
	for len(in) > 0 && !e.ended {
		used, m, fault := e.frames.next(in, limit)
		in = in[used:]
		switch {
		case fault != nil:
			out = appendFrame(out, opClose, closePayload(fault.code, fault.text))
			e.ended = true
		case m.opcode == opClose:
			out = appendFrame(out, opClose, closePayload(m.code, string(m.payload)))
			e.ended = true
		case m.opcode == opPing:
			out = appendFrame(out, opPong, m.payload)
		case m.opcode == opText, m.opcode == opBinary:
			out = appendFrame(out, m.opcode, m.payload)
		}
	}
	return out
}
