package main

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestForwarder_BringsRequestAndAnswerAndFailsAs502(t *testing.T) {
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Seen", r.Method+" "+r.URL.RequestURI()+" "+r.Header.Get("X-Kept"))
		w.WriteHeader(http.StatusAccepted)
		w.Write(bytes.ToUpper(body))
	}))
	defer app.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := newServer(app.Listener.Addr().String(), 2)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	defer func() { server.Shutdown(); <-done }()

	request, _ := http.NewRequest("POST", "http://"+listener.Addr().String()+"/a//b?c", bytes.NewReader(bytes.Repeat([]byte("x"), 1<<20)))
	request.Header.Set("X-Kept", "yes")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	response.Body.Close()
	if err != nil || response.StatusCode != 202 || len(body) != 1<<20 || body[0] != 'X' || response.Header.Get("X-Seen") != "POST /a//b?c yes" {
		t.Errorf("%v, %d, %d bytes, %q", err, response.StatusCode, len(body), response.Header)
	}
	app.Close()
	response, err = http.Get("http://" + listener.Addr().String() + "/")
	if err != nil || response.StatusCode != 502 {
		t.Errorf("%v, %v; want 502 where the app is gone", response, err)
	}
}
