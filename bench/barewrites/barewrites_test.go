package main

import (
	"bytes"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// pair is a connected pair; what one end writes the other reads.
func pair(t *testing.T, kind int) (ours, theirs int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|kind, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fds[0]); unix.Close(fds[1]) })
	return fds[0], fds[1]
}

func readAll(t *testing.T, fd int) string {
	t.Helper()
	buffer := make([]byte, 64<<10)
	n, err := unix.Read(fd, buffer)
	if err != nil {
		t.Fatal(err)
	}
	return string(buffer[:n])
}

func TestPublish_WritesEachClientItsFormAndForgetsWhoLeft(t *testing.T) {
	s := &server{channels: map[string][]client{}}
	stream, streamEnd := pair(t, unix.SOCK_NONBLOCK)
	socket, socketEnd := pair(t, unix.SOCK_NONBLOCK)
	gone, goneEnd := pair(t, unix.SOCK_NONBLOCK)
	other, otherEnd := pair(t, unix.SOCK_NONBLOCK)
	unix.Close(goneEnd)
	s.channels["7"] = []client{{fd: int32(stream)}, {fd: int32(gone)}, {fd: int32(socket), socket: true}}
	s.channels["8"] = []client{{fd: int32(other)}}
	if reached, lost := s.publish("7", []byte("hello")); reached != 2 || lost != 0 || len(s.channels["7"]) != 2 {
		t.Errorf("reached %d, lost %d, %d left; want 2, 0, 2", reached, lost, len(s.channels["7"]))
	}
	if got := readAll(t, streamEnd); got != "data: hello\n\n" {
		t.Errorf("stream %q", got)
	}
	if got := readAll(t, socketEnd); got != "\x81\x05hello" {
		t.Errorf("socket %q", got)
	}
	if n, err := unix.Read(otherEnd, make([]byte, 1)); err != unix.EAGAIN {
		t.Errorf("another channel's client read %d bytes, %v", n, err)
	}
}

func TestPublish_CountsWhatASocketDidNotTake(t *testing.T) {
	s := &server{channels: map[string][]client{}}
	full, _ := pair(t, unix.SOCK_NONBLOCK)
	s.channels["7"] = []client{{fd: int32(full)}}
	data, lost := make([]byte, 1<<20), 0
	for range 8 { // more than a socket's buffer has room for
		_, n := s.publish("7", data)
		lost += n
	}
	if lost == 0 {
		t.Error("nothing was lost although nobody read")
	}
}

func TestRead_TakesTheBodyHoweverItComesAndRefusesWhatDoesNotFit(t *testing.T) {
	for sent, want := range map[string]string{
		"POST /publish?c=7 HTTP/1.1\r\ncontent-length: 5\r\n\r\nhello":     "7 hello",
		"POST /publish?c=a HTTP/1.1\r\n\r\n":                               "a ",
		"POST /publish?c=7 HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n":   "refused",
		"POST /publish?c=7 HTTP/1.1\r\nContent-Length: -1\r\n\r\n":         "refused",
		"POST /publish?c=7 HTTP/1.1\r\nX: " + strings.Repeat("x", 2000):    "refused",
		"POST /publish?c=7 HTTP/1.1\r\nContent-Length: 5\r\n\r\nhe":        "refused",
		"GET /stream?c=12 HTTP/1.1\r\nSec-WebSocket-Key: dGhl\r\nA: 1\r\n": "refused",
	} {
		s := &server{buffer: make([]byte, 1024)}
		ours, theirs := pair(t, 0)
		for _, piece := range []string{sent[:10], sent[10:]} {
			unix.Write(theirs, []byte(piece))
		}
		unix.Shutdown(theirs, unix.SHUT_WR)
		head, body, ok := s.read(ours)
		got := "refused"
		if ok {
			got = channelOf(head) + " " + string(body)
		}
		if got != want {
			t.Errorf("%.60q: %q, want %q", sent, got, want)
		}
	}
}

func TestFrames_HaveTheirLengths(t *testing.T) {
	var f frames
	for size, want := range map[int]string{
		125: "\x81\x7d", 126: "\x81\x7e\x00\x7e", 65535: "\x81\x7e\xff\xff", 65536: "\x81\x7f\x00\x00\x00\x00\x00\x01\x00\x00",
	} {
		f.encode(bytes.Repeat([]byte("x"), size))
		if !strings.HasPrefix(string(f.message), want) || len(f.message) != len(want)+size {
			t.Errorf("%d: %q..., %d bytes", size, f.message[:10], len(f.message))
		}
	}
}

func TestAnswerTo_AcceptsTheKeyOfTheRFC(t *testing.T) {
	if got := string(answerTo("dGhlIHNhbXBsZSBub25jZQ==")); !strings.Contains(got, "\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n") {
		t.Error(got)
	}
}
