package main

import (
	"io"
	"net"
	"strings"
	"testing"
)

func TestAnswer_HasTheInstructionThatThePathAsksFor(t *testing.T) {
	for _, c := range []struct {
		line, body string
		heartbeat  int
		want       []string
	}{
		{line: "GET /m0/stream?c=7 HTTP/1.1", want: []string{"M0-Hold: stream\r\n", "M0-Channel: 7\r\n", "Content-Length: 0\r\n"}},
		{line: "GET /m0/socket?c=7 HTTP/1.1", want: []string{"M0-Hold: websocket\r\n", "M0-Channel: 7\r\n"}},
		{line: "GET /grip/stream?c=7 HTTP/1.1", want: []string{"Grip-Hold: stream\r\n", "Grip-Channel: 7\r\n", "Content-Length: 8\r\n\r\n: open\n\n"}},
		{line: "GET /grip/stream?c=7 HTTP/1.1", heartbeat: 15, want: []string{"Grip-Keep-Alive: : heartbeat\\n\\n; format=cstring; timeout=15\r\n"}},
		{line: "POST /grip/socket?c=7 HTTP/1.1", body: "OPEN\r\n", want: []string{
			"application/websocket-events\r\n", "Sec-WebSocket-Extensions: grip\r\n", "\r\n\r\nOPEN\r\nTEXT 24\r\nc:{\"type\":\"subscribe\",\"channel\":\"7\"}\r\n"}},
		{line: "POST /grip/socket?c=7 HTTP/1.1", body: "OPEN\r\n", heartbeat: 15, want: []string{"c:{\"type\":\"keep-alive\",\"timeout\":15}\r\n"}},
		{line: "POST /grip/socket?c=7 HTTP/1.1", body: "CLOSE 2\r\n", want: []string{"Content-Length: 0\r\n"}},
		{line: "GET / HTTP/1.1", want: []string{"\r\n\r\nHello, world.\n"}},
		{line: "", want: []string{"200 OK"}},
	} {
		got := answer(c.line, c.body, c.heartbeat)
		for _, want := range c.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s %q: no %q in %q", c.line, c.body, want, got)
			}
		}
		if c.heartbeat == 0 && strings.Contains(strings.ToLower(got), "keep-alive:") {
			t.Errorf("%s: a heartbeat that nobody asked for: %q", c.line, got)
		}
	}
}

func TestServe_ReadsBodiesAndClosesWhatItDoesNotUnderstand(t *testing.T) {
	client, server := net.Pipe()
	defer client.Close()
	go serve(server, 0)
	go io.WriteString(client, "POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\nbodyGET /m0/stream?c=1 HTTP/1.1\r\n\r\nPOST / HTTP/1.1\r\nContent-Length: x\r\n\r\n")
	got, err := io.ReadAll(client)
	if err != nil || strings.Count(string(got), "HTTP/1.1 200 OK") != 2 || !strings.Contains(string(got), "M0-Channel: 1") {
		t.Errorf("%v, %q", err, got)
	}
}
