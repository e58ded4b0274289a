package load

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

func serve(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

func TestClient_NeverAsksTwice(t *testing.T) {
	var asked atomic.Int32
	address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) == 2 {
			panic(http.ErrAbortHandler) // a reused connection ends without an answer
		}
		io.WriteString(w, "x")
	})
	c := client{address: address}
	defer c.close()
	if _, err := c.get("/"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.get("/"); err == nil {
		t.Fatal("no error although the connection was cut")
	}
	if asked.Load() != 2 {
		t.Fatalf("asked %d times, want 2", asked.Load())
	}
	if _, err := c.get("/"); err != nil {
		t.Fatalf("after an error: %v, want a new connection", err)
	}
}

func TestClient_RefusalIsAnErrorWithItsReason(t *testing.T) {
	address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Holdfast-Reason", "lane_full")
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	c := client{address: address}
	defer c.close()
	if _, err := c.get("/"); err == nil || err.Error() != "status 503 lane_full" {
		t.Fatalf("error %v", err)
	}
}

func TestMeasure_CountsTheAnswerThatCameAfterTheEnd(t *testing.T) {
	address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(200 * time.Millisecond) // the view's own time, four times the measured span
		io.WriteString(w, "x")
	})
	var failed Failures
	took := Measure(context.Background(), address, "/", 2, 50*time.Millisecond, &failed)
	if len(took) != 2 || slices.Min(took) < 200*time.Millisecond || len(failed.Counts()) > 0 {
		t.Fatalf("took %v, failed %v; want one answer a connection, of 200 ms or more", took, failed.Counts())
	}
}

func TestBlockers_FinishWaitsForTheLastAnswers(t *testing.T) {
	var running atomic.Int32
	arrived := make(chan struct{}, 8)
	address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		running.Add(1)
		defer running.Add(-1)
		arrived <- struct{}{}
		time.Sleep(100 * time.Millisecond) // the view's own time
		io.WriteString(w, "x")
	})
	var failed Failures
	began := time.Now()
	b := Block(context.Background(), address, "/", 3, &failed)
	for range 3 {
		<-arrived
	}
	b.Finish()
	if n := b.Between(began, time.Now()); n != 3 {
		t.Fatalf("%d slow views finished, want 3; failed %v", n, failed.Counts())
	}
	if n := b.Between(began, began.Add(50*time.Millisecond)); n != 0 {
		t.Fatalf("%d slow views finished before they could", n)
	}
}
