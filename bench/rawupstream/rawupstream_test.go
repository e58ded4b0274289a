package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"testing"
)

func TestUpstream_AnswersByPathAndReadsBodies(t *testing.T) {
	client, server := net.Pipe()
	go serve(server)
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return client, nil }, DisableCompression: true}
	defer transport.CloseIdleConnections()
	for _, c := range []struct {
		method, path string
		body, want   int
	}{
		{"GET", "/", 0, 14}, {"GET", "/k", 0, 16 << 10}, {"POST", "/", 1 << 20, 14}, {"GET", "/m", 0, 1 << 20},
		{"POST", "/m", 3, 14}, {"POST", "/", 70_000, 14}, {"GET", "/other", 0, 14},
	} {
		var body io.Reader
		if c.method == "POST" {
			body = bytes.NewReader(make([]byte, c.body))
		}
		request, _ := http.NewRequest(c.method, "http://app"+c.path, body)
		response, err := transport.RoundTrip(request)
		if err != nil {
			t.Fatalf("%s %s: %v", c.method, c.path, err)
		}
		got, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || len(got) != c.want {
			t.Errorf("%s %s with %d bytes: %d bytes, %v; want %d", c.method, c.path, c.body, len(got), err, c.want)
		}
	}
}
