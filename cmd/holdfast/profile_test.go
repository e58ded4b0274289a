package main

import (
	"bytes"
	"compress/gzip"
	"io"
	"runtime"
	"sync"
	"testing"

	"holdfast/proxy"
)

// Without being told to the runtime notes no wait, and both profiles would be
// empty files that look like good news.
func TestProfile_WaitsAreNotedWhileTheyAreAskedForAndNoLonger(t *testing.T) {
	var contended sync.Mutex
	ended := make(chan struct{})
	var running sync.WaitGroup
	for range 4 {
		running.Go(func() {
			for {
				select {
				case <-ended:
					return
				default:
					waitInTurns(&contended)
				}
			}
		})
	}
	t.Cleanup(func() { close(ended); running.Wait() })
	for _, seconds := range []string{"0", "61", "x", "-1"} {
		if answer := profileAnswer(&proxy.Asked{Method: "GET", Path: "/debug/pprof/block", Query: "seconds=" + seconds}); answer.Status != 400 {
			t.Errorf("seconds=%s is %d", seconds, answer.Status)
		}
	}
	for _, name := range []string{"mutex", "block"} {
		answer := profileAnswer(&proxy.Asked{Method: "GET", Path: "/debug/pprof/" + name, Query: "seconds=1"})
		if answer.Status != 200 {
			t.Fatalf("%s: %d %s", name, answer.Status, answer.Body)
		}
		unpacked, err := gzip.NewReader(bytes.NewReader(answer.Body))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		profile, err := io.ReadAll(unpacked)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !bytes.Contains(profile, []byte("waitInTurns")) {
			t.Errorf("%s: who waited is not in the profile of %d bytes", name, len(profile))
		}
		if rate := runtime.SetMutexProfileFraction(-1); rate != 0 {
			t.Errorf("%s: mutexes are still watched, one wait in %d", name, rate)
		}
	}
}

// waitInTurns is the function that the profiles are to name.
func waitInTurns(contended *sync.Mutex) {
	contended.Lock()
	runtime.Gosched() // the others come, and wait
	contended.Unlock()
}
