package main

import (
	"bytes"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// read reads one request with its body; false: there is none, or it does not fit
// into the buffer. What it returns is good until the next read.
func (s *server) read(fd int) (head string, body []byte, ok bool) {
	n := 0
	for {
		k, err := unix.Read(fd, s.buffer[n:])
		if err != nil || k == 0 {
			return "", nil, false
		}
		n += k
		at := bytes.Index(s.buffer[:n], []byte("\r\n\r\n"))
		if at < 0 {
			continue
		}
		head := string(s.buffer[:at])
		length, _ := strconv.Atoi(field(head, "Content-Length"))
		if length < 0 || at+4+length > len(s.buffer) {
			return "", nil, false
		}
		if n >= at+4+length {
			return head, s.buffer[at+4 : at+4+length], true
		}
	}
}

// field is a field's value, "" where there is none.
func field(head, name string) string {
	for line := range strings.SplitSeq(head, "\r\n") {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.EqualFold(key, name) {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// channelOf is what stands behind c= in the request line.
func channelOf(head string) string {
	line, _, _ := strings.Cut(head, "\r\n")
	_, name, _ := strings.Cut(line, "?c=")
	name, _, _ = strings.Cut(name, " ")
	return name
}

// answerTo is the head of a held client's answer: a socket's where there is a key.
func answerTo(key string) []byte {
	if key == "" {
		return []byte("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n\r\n: open\n\n")
	}
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")) // RFC 6455, 4.2.2
	return []byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
		"Sec-WebSocket-Accept: " + base64.StdEncoding.EncodeToString(sum[:]) + "\r\n\r\n")
}

// frames are one event in both forms, in memory that is used again.
type frames struct {
	event, message []byte
}

func (f *frames) encode(data []byte) {
	f.event = append(append(append(f.event[:0], "data: "...), data...), "\n\n"...)
	f.message = append(f.message[:0], 0x81) // RFC 6455, 5.2: a text message in one frame
	switch n := len(data); {
	case n < 126:
		f.message = append(f.message, byte(n))
	case n < 1<<16:
		f.message = binary.BigEndian.AppendUint16(append(f.message, 126), uint16(n))
	default:
		f.message = binary.BigEndian.AppendUint64(append(f.message, 127), uint64(n))
	}
	f.message = append(f.message, data...)
}
