package proxied

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"holdfast/bench/load"
	"holdfast/bench/peer"
)

func TestFigures_OneErrorIsAFailure(t *testing.T) {
	result := load.Result{Requests: 1000, Micros: 2_000_000, P50Micros: 1500, P99Micros: 3000}
	got, err := figures(result, 20*time.Millisecond)
	if err != nil || got["cpu_us"] != 20 || got["requests_per_s"] != 500 || got["p50_ms"] != 1.5 || got["p99_ms"] != 3 {
		t.Errorf("%v, %v", got, err)
	}
	result.Errors.Read = 1
	if got, err := figures(result, time.Millisecond); err == nil || !strings.Contains(err.Error(), "0 connect, 1 read") {
		t.Errorf("%v, %v; want an error that counts it", got, err)
	}
}

func TestIdleConns_AreAnsweredOnceAndStay(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/refuse" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	address := server.Listener.Addr().String()
	closeAll, err := idleConns(address, "/", 5)
	defer closeAll()
	if err != nil {
		t.Fatal(err)
	}
	closeRefused, err := idleConns(address, "/refuse", 5)
	defer closeRefused()
	if err == nil || !strings.Contains(err.Error(), "idle connection 1") {
		t.Errorf("%v, want an error that names the connection", err)
	}
}

// A short run of what can go wrong by itself: idle connections beside, uploads,
// the local route, a peer's configuration.
func TestRun_AShortRunMeasuresItsRows(t *testing.T) {
	if !peer.Installed(peer.Wrk) || !peer.Installed(peer.HAProxy) {
		t.Skip("wrk or haproxy is not installed")
	}
	bench, err := peer.New(io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bench.Close)
	bench.Short, bench.Only = true, []string{rowHAProxy, rowHoldfast, rowLocal}
	bench.Cases = []string{"idle-1000", "upload-1m"}
	report, err := (&Benchmark{connections: 4}).Run(t.Context(), bench)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	report.Print(&out)
	if !report.Valid() || len(report.Tables) != 2 || len(report.Tables[0].Rows) != len(bench.Only) || len(report.Tables[1].Rows) != len(bench.Only)-1 {
		t.Errorf("%s", out.String())
	}
}
