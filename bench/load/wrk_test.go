package load

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"holdfast/bench/peer"
)

func newWrk(t *testing.T) Wrk {
	t.Helper()
	if !peer.Installed(peer.Wrk) {
		t.Skip("wrk is not installed")
	}
	bench, err := peer.New(io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bench.Close)
	wrk, err := NewWrk(bench, "", 2)
	if err != nil {
		t.Fatal(err)
	}
	return wrk
}

func TestWrk_CountsRefusals(t *testing.T) {
	wrk := newWrk(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/refuse") {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		io.WriteString(w, "x")
	}))
	defer server.Close()
	for path, wantErrors := range map[string]bool{"/": false, "/refuse": true} {
		got, err := wrk.Run(context.Background(), server.URL+path, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if (got.Errors.Status > 0) != wantErrors || got.Requests == 0 || got.P50Micros <= 0 || got.P99Micros < got.P50Micros {
			t.Errorf("%s: %+v", path, got)
		}
	}
}

func TestWrk_NothingAnsweredIsAnError(t *testing.T) {
	wrk := newWrk(t)
	server := httptest.NewServer(http.NotFoundHandler())
	url := server.URL
	server.Close()
	if got, err := wrk.Run(context.Background(), url, time.Second); err == nil {
		t.Fatalf("got %+v from a port where nothing listens", got)
	}
}
