package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// socket is a WebSocket client that shows what it is sent; it answers nothing
// by itself.
type socket struct {
	*client
	messages []string // under the client's lock
}

// handshake is what every socket asks with; its key is RFC 6455's own example.
const handshake = "Upgrade: websocket\nConnection: Upgrade\nSec-WebSocket-Version: 13\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\n"

// socket opens a WebSocket; fields are lines. It notes how the handshake was
// answered, unless by a bare 101.
func (p *play) socket(path string, fields ...string) *socket {
	text := fmt.Sprintf("GET $p%s HTTP/1.1\r\nHost: $h\r\n%s\r\n", path, strings.ReplaceAll(handshake+lines(fields), "\n", "\r\n"))
	s := &socket{client: dial(p.listen)}
	p.keep(s)
	if s.conn == nil {
		p.note("no connection")
		return s
	}
	io.WriteString(s.conn, p.text(text))
	go s.readFrames()
	s.head()
	if s.status != "101 Switching Protocols" {
		p.note("handshake: %s", s.client)
	}
	return s
}

func lines(fields []string) (text string) {
	for _, f := range fields {
		text += f + "\n"
	}
	return text
}

// readFrames reads the answer and, behind a 101, frames until the end.
func (s *socket) readFrames() {
	reader := bufio.NewReader(s.conn)
	response, err := http.ReadResponse(reader, &http.Request{Method: http.MethodGet})
	if err != nil {
		s.set(func() { s.end = "cut" })
		return
	}
	s.set(func() { s.status, s.header = response.Status, response.Header })
	if response.StatusCode != http.StatusSwitchingProtocols {
		s.readBody(response)
		return
	}
	for {
		message, err := readMessage(reader)
		if err != nil {
			s.set(func() { s.end = "ended" })
			return
		}
		s.set(func() { s.messages = append(s.messages, message) })
	}
}

var opcodes = map[byte]string{1: "text", 2: "binary", 8: "close", 9: "ping", 10: "pong"}

// readMessage reads a message, in however many frames it comes, or a control
// frame, and shows it.
func readMessage(reader *bufio.Reader) (string, error) {
	var data []byte
	var opcode byte
	for last := false; !last; {
		first, piece, err := readFrame(reader)
		if err != nil {
			return "", err
		}
		if first&0x0f != 0 {
			opcode = first & 0x0f
		}
		data, last = append(data, piece...), first&0x80 != 0
	}
	name := opcodes[opcode]
	switch {
	case name == "":
		return "", fmt.Errorf("a frame with opcode %d", opcode)
	case name == "close" && len(data) >= 2:
		return fmt.Sprintf("close %d %q", binary.BigEndian.Uint16(data), data[2:]), nil
	case len(data) > 100:
		return fmt.Sprintf("%s of %d bytes", name, len(data)), nil
	}
	return fmt.Sprintf("%s %q", name, data), nil
}

// readFrame reads one frame, of a server and so without a mask; first is its
// first byte.
func readFrame(reader *bufio.Reader) (first byte, data []byte, err error) {
	var head [2]byte
	if _, err := io.ReadFull(reader, head[:]); err != nil {
		return 0, nil, err
	}
	size := uint64(head[1] & 0x7f)
	if size >= 126 {
		var long [8]byte
		from := 6
		if size == 127 {
			from = 0
		}
		if _, err := io.ReadFull(reader, long[from:]); err != nil {
			return 0, nil, err
		}
		size = binary.BigEndian.Uint64(long[:])
	}
	if size > 1<<20 {
		return 0, nil, fmt.Errorf("a frame of %d bytes", size)
	}
	data = make([]byte, size)
	_, err = io.ReadFull(reader, data)
	return head[0], data, err
}

// frame sends one whole frame, masked with zeros.
func (s *socket) frame(opcode byte, data string) {
	head := []byte{0x80 | opcode, 0x80 | byte(min(len(data), 126))}
	if len(data) >= 126 {
		head = binary.BigEndian.AppendUint16(head, uint16(len(data)))
	}
	s.part(append(head, 0, 0, 0, 0), data)
}

func (s *socket) part(head []byte, data string) {
	if s.conn != nil {
		s.conn.Write(append(head, data...))
	}
}

func (s *socket) say(text string) { s.frame(1, text) }

func (s *socket) sayClose(code uint16, reason string) {
	s.frame(8, string(binary.BigEndian.AppendUint16(nil, code))+reason)
}

// gets waits for n messages.
func (s *socket) gets(n int) *socket {
	s.until(3*time.Second, func() bool { return len(s.messages) >= n || s.end != "open" })
	time.Sleep(quiet)
	return s
}

// String is what it was sent, and whether it is over.
func (s *socket) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(append(s.messages[:len(s.messages):len(s.messages)], s.end), ", ")
}

// woh is an answer with WebSocket-over-HTTP events.
func woh(fields string, events ...string) string {
	return answer("200 OK", "Content-Type: application/websocket-events\n"+fields, strings.Join(events, ""))
}

// event is one event with content; $c in it is filled in first.
func (p *play) event(kind, content string) string {
	content = p.text(content)
	return fmt.Sprintf("%s %X\r\n%s\r\n", kind, len(content), content)
}

// control is an event with a control message to the proxy.
func (p *play) control(json string) string { return p.event("TEXT", "c:"+json) }

// sockets lets the app accept sockets in GRIP mode, with the events that are
// given, and answer each later request by what more says; nil: by no event.
func (p *play) sockets(more view, events ...string) {
	p.view(func(r request) string {
		switch {
		case strings.HasPrefix(string(r.body), "OPEN\r\n"):
			return woh("Sec-WebSocket-Extensions: grip", append([]string{"OPEN\r\n"}, events...)...)
		case more != nil:
			return more(r)
		}
		return woh("")
	})
}

// bodies are the bodies of the requests of WebSocket-over-HTTP so far.
func (p *play) bodies() string {
	var all []string
	for _, r := range p.seen() {
		body := fmt.Sprintf("%q", r.body)
		if len(body) > 200 {
			body = fmt.Sprintf("%s… (%d bytes)", body[:20], len(r.body))
		}
		all = append(all, body)
	}
	return strings.Join(all, " ")
}
