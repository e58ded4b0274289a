package peer

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

func newBench(t *testing.T) *Bench {
	t.Helper()
	bench, err := New(io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bench.Close)
	return bench
}

func within(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 20 s", what)
		}
	}
}

func TestCPU_CountsChildren(t *testing.T) {
	bench := newBench(t)
	// The shell only waits; its child alone burns.
	process, err := bench.Start("burner", nil, "/bin/sh", "-c", "sh -c 'while :; do :; done' & wait")
	if err != nil {
		t.Fatal(err)
	}
	within(t, "100 ms of CPU time", func() bool {
		used, err := process.CPU()
		if err != nil {
			t.Fatal(err)
		}
		return used >= 100*time.Millisecond
	})
}

func TestCPU_OfAnEndedProcessIsAnError(t *testing.T) {
	bench := newBench(t)
	process, err := bench.Start("short", nil, "/bin/sh", "-c", "echo gone >&2")
	if err != nil {
		t.Fatal(err)
	}
	<-process.exited
	if _, err := process.CPU(); err == nil || !strings.Contains(err.Error(), "gone") {
		t.Fatalf("error %v, want one with what the process wrote", err)
	}
}

func TestStop_EndsChildrenToo(t *testing.T) {
	bench := newBench(t)
	process, err := bench.Start("parent", nil, "/bin/sh", "-c", "sleep 600 & wait")
	if err != nil {
		t.Fatal(err)
	}
	var child int
	within(t, "the child's pid", func() bool {
		processes, err := readProcesses()
		if err != nil {
			t.Fatal(err)
		}
		for pid, s := range processes {
			if s.parent == process.cmd.Process.Pid {
				child = pid
			}
		}
		return child != 0
	})
	process.Stop()
	within(t, "the child's end", func() bool {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", child))
		return err != nil || strings.Contains(string(line), ") Z ") // init may be slow to reap
	})
	if err := syscall.Kill(process.cmd.Process.Pid, 0); err != syscall.ESRCH {
		t.Fatalf("the process itself: %v, want no such process", err)
	}
}

func TestWaitReady_SaysWhatTheProcessWroteBeforeItEnded(t *testing.T) {
	bench := newBench(t)
	addresses, err := FreeAddresses(1)
	if err != nil {
		t.Fatal(err)
	}
	process, err := bench.Start("broken", nil, "/bin/sh", "-c", "echo bad configuration >&2; exit 1")
	if err != nil {
		t.Fatal(err)
	}
	_, err = process.WaitReady(context.Background(), "http://"+addresses[0]+"/")
	if err == nil || !strings.Contains(err.Error(), "bad configuration") {
		t.Fatalf("error %v, want one that names the bad configuration", err)
	}
}

func TestParseStat_NameWithParenthesesAndSpaces(t *testing.T) {
	s, err := parseStat([]byte("71 (a) b (c) S 9 71 71 0 -1 4194304 1 0 0 0 11 22 33 44 20 0 1 0 5"))
	if err != nil {
		t.Fatal(err)
	}
	if s != (stat{parent: 9, own: 33, reaped: 77}) {
		t.Fatalf("got %+v", s)
	}
}

func TestFind_SaysWhatToInstall(t *testing.T) {
	_, err := newBench(t).Find(Tool{Program: "no-such-proxy", Package: "some-package"})
	if err == nil || !strings.Contains(err.Error(), "apt-get install some-package") {
		t.Fatalf("error %v, want one that names the package", err)
	}
}

func TestQuantile_IsAMeasuredValue(t *testing.T) {
	values := []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 1000}
	for q, want := range map[float64]int{0.5: 5, 0.9: 9, 0.99: 1000, 1: 1000, 0.001: 1} {
		if got := Quantile(values, q); got != want {
			t.Errorf("quantile %v is %d, want %d", q, got, want)
		}
	}
	if got := Quantile([]int(nil), 0.5); got != 0 {
		t.Errorf("quantile of nothing is %d", got)
	}
}

func TestMedian(t *testing.T) {
	if got := Median([]float64{9, 1, 5}); got != 5 {
		t.Errorf("odd: %v", got)
	}
	if got := Median([]float64{4, 1, 3, 2}); got != 2.5 {
		t.Errorf("even: %v", got)
	}
}
