package peer

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestParseRollup_ReadsBothSums(t *testing.T) {
	text := "55d0-7fff ---p 00000000 00:00 0 [rollup]\nRss:    2048 kB\nPss:     1536 kB\nPss_Dirty:  100 kB\nLocked:  0 kB\n"
	got, err := parseRollup([]byte(text))
	if err != nil || got != (Memory{PSS: 1536 << 10, RSS: 2048 << 10}) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"", "Rss: 10 kB\n", "Rss: 10 kB\nPss: x kB\n"} {
		if got, err := parseRollup([]byte(bad)); err == nil {
			t.Errorf("%q: %+v", bad, got)
		}
	}
}

func TestMemoryThreadsAndFiles_AreThoseOfTheWholeFamily(t *testing.T) {
	bench := newBench(t)
	path := filepath.Join(bench.Dir(), "open")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// The shell and its child, with the file open in both.
	process, err := bench.Start("family", nil, "/bin/sh", "-c", "exec 7<"+path+"; sleep 600 & wait")
	if err != nil {
		t.Fatal(err)
	}
	within(t, "the file open twice", func() bool {
		n, err := OpenFiles(process.PID(), path)
		if err != nil {
			t.Fatal(err)
		}
		return n == 2
	})
	if n, err := Threads(process.PID()); err != nil || n != 2 {
		t.Errorf("%d threads, %v; want one each", n, err)
	}
	both, err := process.Memory()
	if err != nil || both.PSS <= 0 || both.RSS < both.PSS {
		t.Errorf("%+v, %v", both, err)
	}
	process.Stop()
	if _, err := process.Memory(); err == nil {
		t.Error("memory of a process that has ended")
	}
	for _, err := range []error{second(MemoryOf(process.PID())), second(Threads(process.PID())), second(OpenFiles(process.PID(), path))} {
		if err == nil || !strings.Contains(err.Error(), "is not running") {
			t.Errorf("%v, want that it is not running", err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestRaiseDescriptors_NeverLowersAndSaysWhatToDo(t *testing.T) {
	var before, after syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if err := RaiseDescriptors(16); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &after); err != nil || after.Cur < before.Cur || after.Max < before.Max {
		t.Errorf("%+v before, %+v after, %v", before, after, err)
	}
	if err := RaiseDescriptors(1 << 40); err == nil || !strings.Contains(err.Error(), "ulimit -Hn 1099511627776") {
		t.Errorf("%v, want an error that says what to do", err)
	}
}

func TestBench_TakesWhatTheUserAskedForThenWhatIsShort(t *testing.T) {
	for _, c := range []struct {
		bench  Bench
		times  int
		length time.Duration
		scaled int
	}{
		{Bench{}, 5, 4 * time.Second, 1000},
		{Bench{Short: true}, 1, time.Second, 10},
		{Bench{Short: true, Rounds: 3, Seconds: 0.5}, 3, 500 * time.Millisecond, 10},
		{Bench{Rounds: 7, Seconds: 2}, 7, 2 * time.Second, 1000},
	} {
		if got := c.bench.Times(5); got != c.times {
			t.Errorf("%+v: %d rounds", c.bench, got)
		}
		if got := c.bench.Length(4 * time.Second); got != c.length {
			t.Errorf("%+v: %s", c.bench, got)
		}
		if got := c.bench.Scaled(1000, 10); got != c.scaled || c.bench.Scaled(3, 10) != 3 {
			t.Errorf("%+v: %d", c.bench, got)
		}
	}
	some := Bench{Cases: []string{"a"}}
	if !some.WantsCase("a") || some.WantsCase("b") || !(&Bench{}).WantsCase("b") {
		t.Error("cases that were not asked for, or not the one that was")
	}
}

func TestBuild_CompilesOnce(t *testing.T) {
	bench := newBench(t)
	first, err := bench.Build(context.Background(), "bench/barewrites")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(first, []byte("kept"), 0o700); err != nil {
		t.Fatal(err)
	}
	again, err := bench.Build(context.Background(), "bench/barewrites")
	text, _ := os.ReadFile(again)
	if err != nil || again != first || string(text) != "kept" {
		t.Errorf("%s, then %s with %.10q, %v", first, again, text, err)
	}
}

func TestPackages_HaveEveryToolsOwn(t *testing.T) {
	for _, tool := range []Tool{HAProxy, Nginx, Wrk, Gunicorn, Pushpin, Zurl} {
		for name := range strings.FieldsSeq(tool.Package) {
			if !strings.Contains(" "+strings.Join(Packages, " ")+" ", " "+name+" ") {
				t.Errorf("%s of %s is not among those that are installed", name, tool.Program)
			}
		}
	}
}
