package proxied

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func newWrk(t *testing.T) wrk {
	t.Helper()
	program, err := exec.LookPath("wrk")
	if err != nil {
		t.Skip("wrk is not installed")
	}
	script := filepath.Join(t.TempDir(), "report.lua")
	if err := os.WriteFile(script, []byte(reportScript), 0o600); err != nil {
		t.Fatal(err)
	}
	return wrk{program: program, script: script, connections: 2}
}

func TestLoad_CountsRefusals(t *testing.T) {
	load := newWrk(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/refuse") {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		io.WriteString(w, "x")
	}))
	defer server.Close()
	for path, wantErrors := range map[string]bool{"/": false, "/refuse": true} {
		got, err := load.run(context.Background(), server.URL+path, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if (got.Errors.Status > 0) != wantErrors || got.Requests == 0 || got.P50Micros <= 0 || got.P99Micros < got.P50Micros {
			t.Errorf("%s: %+v", path, got)
		}
	}
}

func TestLoad_NothingAnsweredIsAnError(t *testing.T) {
	load := newWrk(t)
	server := httptest.NewServer(http.NotFoundHandler())
	url := server.URL
	server.Close()
	if got, err := load.run(context.Background(), url, time.Second); err == nil {
		t.Fatalf("got %+v from a port where nothing listens", got)
	}
}

func rounds(cpu ...float64) []Round {
	var all []Round
	for _, micros := range cpu {
		all = append(all, Round{CPUMicros: micros, RequestsPerSecond: 1000})
	}
	return all
}

func TestReport_RatioIsTakenWithinARound(t *testing.T) {
	// The machine is twice as slow in the middle round; the ratio is 1.5 throughout.
	report := newReport([]*Row{
		{Peer: rowHAProxy, Rounds: rounds(10, 20, 10)},
		{Peer: rowHoldfast, Rounds: rounds(15, 30, 15)},
	}, 3, time.Second, 64)
	holdfast := report.row(rowHoldfast)
	if holdfast.ToHAProxy != 1.5 || holdfast.CPUMicros != 15 || holdfast.CPUMicrosHigh != 30 {
		t.Fatalf("got %+v", holdfast)
	}
	if holdfast.ToBare != 0 {
		t.Fatalf("a ratio of %v to a row that is not there", holdfast.ToBare)
	}
}

func TestReport_OneErrorInvalidatesTheRow(t *testing.T) {
	failing := rounds(10, 10)
	failing[1].Errors.Read = 1
	report := newReport([]*Row{
		{Peer: rowHAProxy, Rounds: failing},
		{Peer: rowHoldfast, Rounds: rounds(15, 15)},
	}, 2, time.Second, 64)
	if report.Valid() || report.row(rowHAProxy).Valid() {
		t.Fatal("valid in spite of a read error")
	}
	if !report.row(rowHoldfast).Valid() || report.row(rowHoldfast).ToHAProxy != 0 {
		t.Fatal("the other row is to stay valid, without a ratio to an invalid one")
	}
	var out bytes.Buffer
	report.Print(&out)
	if !strings.Contains(out.String(), "haproxy: invalid: errors: 0 connect, 1 read") {
		t.Fatalf("the error is not shown:\n%s", out.String())
	}
}
