package main

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// figure keeps what a test measured for the line of JSON that scripts/test.sh
// ends with, where that asks for it: the last of each key counts. A figure is
// never asserted, so one that cannot be kept is no failure.
func figure(t *testing.T, key string, value float64) {
	t.Helper()
	path := os.Getenv("HOLDFAST_FIGURES")
	if path == "" {
		return
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Log(err)
		return
	}
	defer file.Close()
	fmt.Fprintf(file, "%s %.3f\n", key, value) // one write: others append to it at the same time
}

// milliseconds is how the line gives short times.
func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
