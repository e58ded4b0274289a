// Package peer runs the programs that a benchmark compares.
//
//	bench, err := peer.New(os.Stderr)
//	defer bench.Close()                         // ends all it started, by pid
//	nginx, err := bench.Find(peer.Nginx)        // or an error that says what to install
//	process, err := bench.Start("nginx", nil, nginx, "-c", config)
//	err = process.WaitReady(ctx, url)
//	used, err := process.CPU()                  // it and its children
//
// A Bench owns a scratch directory, the processes it started and the versions
// of what it found; nothing is left of it after Close. Peers serve on 127.0.0.1
// and on ports that were free a moment before. CPU time comes from /proc, so
// the benchmarks run on Linux only. It measures nothing by itself and keeps no
// figures: that is each benchmark's own part.
package peer

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
	"time"
)

// Bench is one invocation of the runner. It is used by one goroutine.
type Bench struct {
	// What the user asked for.
	Rounds  int      // 0: the benchmark's own default
	Seconds float64  // length of one measured round; 0: the benchmark's own default
	Only    []string // names of the rows to run; empty: all
	Cases   []string // names of the cases to run, of those benchmarks that have several; empty: all
	Short   bool     // few clients and one round: whether it works, not what it costs

	root     string // of the module
	dir      string // scratch
	load     string // of the machine before we began
	progress io.Writer
	started  []*Process
	versions map[string]string
	built    map[string]string // programs of ours, by their directory
	holdfast string            // path of the binary, once built
	failed   error             // why it could not be built
}

// New finds the module's root and makes the scratch directory; lines about
// what is going on are written to progress.
func New(progress io.Writer) (*Bench, error) {
	gomod, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return nil, fmt.Errorf("go env GOMOD: %w", err)
	}
	root := filepath.Dir(strings.TrimSpace(string(gomod)))
	if _, err := os.Stat(filepath.Join(root, "bench", "bareforwarder")); err != nil {
		return nil, fmt.Errorf("run the benchmarks from a directory of Holdfast's source: %w", err)
	}
	dir, err := os.MkdirTemp("", "holdfast-bench-")
	if err != nil {
		return nil, err
	}
	return &Bench{root: root, dir: dir, load: loadAverages(), progress: progress, versions: map[string]string{}, built: map[string]string{}}, nil
}

// Close ends every process that is still running and removes the scratch
// directory.
func (b *Bench) Close() {
	b.StopAll()
	os.RemoveAll(b.dir)
}

// StopAll ends every process that is still running, newest first: between two
// benchmarks, so that the first one's peers are not in the second's way.
func (b *Bench) StopAll() {
	for _, process := range slices.Backward(b.started) {
		process.Stop()
	}
	b.started = nil
}

// Dir is the scratch directory; it is removed by Close.
func (b *Bench) Dir() string { return b.dir }

// Path is a file of the source tree, by its slash-separated name in it.
func (b *Bench) Path(name string) string {
	return filepath.Join(b.root, filepath.FromSlash(name))
}

// Wants says whether the user asked for the row.
func (b *Bench) Wants(row string) bool {
	return len(b.Only) == 0 || slices.Contains(b.Only, row)
}

// WantsCase says whether the user asked for the case.
func (b *Bench) WantsCase(name string) bool {
	return len(b.Cases) == 0 || slices.Contains(b.Cases, name)
}

// Logf tells the user what is going on.
func (b *Bench) Logf(format string, values ...any) {
	fmt.Fprintf(b.progress, format+"\n", values...)
}

// Config renders a peer's configuration into the scratch directory and returns
// the file's path. A key that data lacks is an error.
func (b *Bench) Config(name, text string, data any) (string, error) {
	parsed, err := template.New(name).Option("missingkey=error").Parse(text)
	if err != nil {
		return "", err
	}
	path := filepath.Join(b.dir, name)
	file, err := os.Create(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	return path, parsed.Execute(file, data)
}

// Times is how many rounds count: what the user asked for, one in short runs,
// else the benchmark's default.
func (b *Bench) Times(otherwise int) int {
	switch {
	case b.Rounds > 0:
		return b.Rounds
	case b.Short:
		return 1
	}
	return otherwise
}

// Scaled is n, or in short runs few.
func (b *Bench) Scaled(n, few int) int {
	if b.Short {
		return min(n, few)
	}
	return n
}

// Pause waits for d, a moment in short runs, or until the caller leaves.
func (b *Bench) Pause(ctx context.Context, d time.Duration) {
	if b.Short {
		d = min(d, 100*time.Millisecond)
	}
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// Length is that of a measured span: what the user asked for, a second in short
// runs, else the benchmark's default.
func (b *Bench) Length(otherwise time.Duration) time.Duration {
	switch {
	case b.Seconds > 0:
		return time.Duration(b.Seconds * float64(time.Second))
	case b.Short:
		return time.Second
	}
	return otherwise
}

// Build compiles a program of ours, by its directory in the source tree, into
// the scratch directory and returns the binary's path.
func (b *Bench) Build(ctx context.Context, directory string) (string, error) {
	binary, ok := b.built[directory]
	if ok {
		return binary, nil
	}
	binary = filepath.Join(b.dir, filepath.Base(directory))
	if err := b.build(ctx, b.root, "./"+directory, binary); err != nil {
		return "", err
	}
	b.built[directory] = binary
	return binary, nil
}

// BuildModule compiles the program of a directory that is a module of its own,
// so that what it needs is not in the product's go.sum.
func (b *Bench) BuildModule(ctx context.Context, directory string) (string, error) {
	binary, ok := b.built[directory]
	if ok {
		return binary, nil
	}
	binary = filepath.Join(b.dir, filepath.Base(directory))
	if err := b.build(ctx, b.Path(directory), ".", binary); err != nil {
		return "", err
	}
	b.built[directory] = binary
	return binary, nil
}

// Holdfast compiles bin/holdfast, once, and returns its path. A short run has a
// binary of its own: it may run in a test, beside somebody's use of that one.
func (b *Bench) Holdfast(ctx context.Context) (string, error) {
	if b.holdfast == "" && b.failed == nil {
		binary := b.Path("bin/holdfast")
		if b.Short {
			binary = filepath.Join(b.dir, "holdfast")
		}
		if b.failed = b.build(ctx, b.root, "./cmd/holdfast", binary); b.failed == nil {
			b.holdfast = binary
			b.note("holdfast", binary, "version")
		}
	}
	return b.holdfast, b.failed
}

func (b *Bench) build(ctx context.Context, module, directory, binary string) error {
	b.Logf("building %s", filepath.Base(binary))
	command := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", binary, directory)
	command.Dir = module
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s does not build: %w: %s", filepath.Base(binary), err, lastLines(output, 4))
	}
	return nil
}
