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
)

// Bench is one invocation of the runner. It is used by one goroutine.
type Bench struct {
	// What the user asked for.
	Rounds  int      // 0: the benchmark's own default
	Seconds float64  // length of one measured round; 0: the benchmark's own default
	Only    []string // names of the rows to run; empty: all

	root     string // of the module
	dir      string // scratch
	load     string // of the machine before we began
	progress io.Writer
	started  []*Process
	versions map[string]string
	holdfast string // path of the binary, once built
	failed   error  // why it could not be built
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
	return &Bench{root: root, dir: dir, load: loadAverages(), progress: progress, versions: map[string]string{}}, nil
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

// Build compiles a program of ours, by its directory in the source tree, into
// the scratch directory and returns the binary's path.
func (b *Bench) Build(ctx context.Context, directory string) (string, error) {
	binary := filepath.Join(b.dir, filepath.Base(directory))
	return binary, b.build(ctx, directory, binary)
}

// Holdfast compiles bin/holdfast, once, and returns its path.
func (b *Bench) Holdfast(ctx context.Context) (string, error) {
	if b.holdfast == "" && b.failed == nil {
		binary := b.Path("bin/holdfast")
		if b.failed = b.build(ctx, "cmd/holdfast", binary); b.failed == nil {
			b.holdfast = binary
			b.note("holdfast", binary, "version")
		}
	}
	return b.holdfast, b.failed
}

func (b *Bench) build(ctx context.Context, directory, binary string) error {
	b.Logf("building %s", directory)
	command := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", binary, "./"+directory)
	command.Dir = b.root
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s does not build: %w: %s", directory, err, lastLines(output, 4))
	}
	return nil
}
