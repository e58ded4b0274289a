package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestForwarder_BringsBodiesOfAnySizeBothWaysOverOneConnection(t *testing.T) {
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Length", fmt.Sprint(2*len(body)+1))
		w.Write(bytes.Repeat([]byte("y"), 2*len(body)+1))
	}))
	defer app.Close()
	client, server := net.Pipe()
	idle := &idleConns{address: app.Listener.Addr().String()}
	go serve(server, idle)
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return client, nil }}
	defer transport.CloseIdleConnections()
	for _, size := range []int{0, 1, 1000, bufferBytes - 1, bufferBytes, bufferBytes + 1, 1 << 20} {
		request, _ := http.NewRequest("POST", "http://app/", bytes.NewReader(make([]byte, size)))
		response, err := transport.RoundTrip(request)
		if err != nil {
			t.Fatalf("%d: %v", size, err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || len(body) != 2*size+1 {
			t.Errorf("%d: %v, %d bytes", size, err, len(body))
		}
	}
	if len(idle.conns) != 1 {
		t.Errorf("%d idle connections, want 1", len(idle.conns))
	}
}

func TestMessageBytes_CountsHeadAndBody(t *testing.T) {
	for _, c := range []struct {
		message   string
		otherwise int
		want      int
		fails     bool
	}{
		{message: "GET / HTTP/1.1\r\n", want: 0},
		{message: "GET / HTTP/1.1\r\n\r\n", want: 18},
		{message: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe", otherwise: -1, want: 43},
		{message: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nA: b\r\n\r\n", otherwise: -1, want: 49},
		{message: "HTTP/1.1 200 OK\r\n\r\n", otherwise: -1, fails: true},
		{message: "HTTP/1.1 200 OK\r\nContent-Length: five\r\n\r\n", fails: true},
	} {
		got, err := messageBytes([]byte(c.message), c.otherwise)
		if (err != nil) != c.fails || !c.fails && got != c.want {
			t.Errorf("%q: %d, %v; want %d", c.message, got, err, c.want)
		}
	}
}
