package holdfast_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// notRun are the commands of the pages that no test can run, and why. A command
// is here by its first words; whatever else a page says is run.
var notRun = []struct {
	command *regexp.Regexp
	reason  string
}{
	{regexp.MustCompile(`^make (build|demo|test|bench|release|sabotage)\b`), "the binary is there already, and the rest would run these tests in themselves, or for very long"},
	{regexp.MustCompile(`^docker `), "builds and runs images, which needs a daemon and the network"},
	{regexp.MustCompile(`^kubectl `), "needs a cluster"},
	{regexp.MustCompile(`^(sudo )?(systemctl|apt-get|install) `), "changes the reader's machine, as root"},
	{regexp.MustCompile(`^(python3 -m )?pip install `), "needs the network; Django, Flask and the servers are the machine's, the client is in PYTHONPATH"},
	{regexp.MustCompile(`^holdfast doctor --url https://`), "asks a site of the reader's"},
}

// withoutNotRun leaves the commands out that no test can run, and marks each.
func withoutNotRun(text string) string {
	var kept []string
	skipping := false
	for line := range strings.SplitSeq(text, "\n") {
		if !skipping {
			for _, rule := range notRun {
				if rule.command.MatchString(line) {
					skipping = true
				}
			}
		}
		if !skipping {
			kept = append(kept, line)
			continue
		}
		kept = append(kept, ": # not run")
		skipping = strings.HasSuffix(strings.TrimSpace(line), `\`)
	}
	return strings.Join(kept, "\n")
}

// inBackground: the block has a command that goes on behind it.
var inBackground = regexp.MustCompile(`(?m)(^|[^&>|<\d])&(\s|$)`)

// kit is what all pages are run with.
type kit struct {
	bin   string        // the directory of holdfast
	root  string        // of the sources
	shown time.Duration // how long what comes from the background is waited for
	bound time.Duration // how long a page may take: it is there for what hangs
}

// step is one thing that a page has a reader do.
type step struct {
	block
	file         string // to be written; "": commands
	shown        []block
	out, err     *output
	inBackground bool
}

// steps are a page's in their order.
func (p *page) steps() (steps []*step) {
	for i, b := range p.blocks {
		switch file := b.file(); {
		case b.lang == "sh":
			s := &step{block: b, out: newOutput(), err: newOutput(), inBackground: inBackground.MatchString(b.text)}
			for _, next := range p.blocks[i+1:] {
				if next.lang != "text" {
					break
				}
				s.shown = append(s.shown, next)
			}
			steps = append(steps, s)
		case file != "":
			steps = append(steps, &step{block: b, file: file})
		}
	}
	return steps
}

// session is a page that is being run.
type session struct {
	kit   *kit
	page  *page
	dir   string // where the steps are
	steps []*step
	last  *step // of those in the background whose output was shown
}

// run does what the page says, in an empty directory and a network of its own, in
// which each port is free. What a page leaves behind ends with it: its
// shell is the first process of its own process namespace.
func (p *page) run(k *kit, dir string) error {
	s := &session{kit: k, page: p, dir: filepath.Join(dir, "steps"), steps: p.steps()}
	home := filepath.Join(dir, "home")
	if err := errors.Join(os.Mkdir(s.dir, 0o755), os.MkdirAll(filepath.Join(home, "bin"), 0o755), os.Symlink(filepath.Join(k.bin, "holdfast"), filepath.Join(home, "bin", "holdfast"))); err != nil {
		return err
	}
	for _, name := range []string{"clients", "examples", "config.yaml.example"} {
		if err := os.Symlink(filepath.Join(k.root, name), filepath.Join(home, name)); err != nil {
			return err
		}
	}
	for i, step := range s.steps {
		text := step.text
		if step.file == "" {
			text = withoutNotRun(text)
		}
		if err := os.WriteFile(s.path(i, "step"), []byte(text), 0o644); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), k.bound)
	defer cancel()
	shell := exec.CommandContext(ctx, "unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c", "ip link set lo up && exec bash -euo pipefail "+s.path(-1, "all"))
	shell.WaitDelay = time.Second // for whoever still has its standard error, which nobody should
	shell.Dir = home
	shell.Env = []string{"PATH=" + k.bin + ":/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + home, "TMPDIR=" + dir, "LANG=C.UTF-8", "SECRET=",
		"PYTHONPATH=" + filepath.Join(k.root, "clients/python"), "PYTHONDONTWRITEBYTECODE=1"}
	return s.follow(ctx, shell)
}

func (s *session) path(i int, what string) string {
	return filepath.Join(s.dir, fmt.Sprintf("%d.%s", i, what))
}

// script is the page as one shell sees it: it says when a step is done, and
// waits to be told to go on.
func (s *session) script() string {
	var script strings.Builder
	for i, step := range s.steps {
		if step.file != "" {
			fmt.Fprintf(&script, "mkdir -p %s\ncp %s %s\n", filepath.Dir(step.file), s.path(i, "step"), step.file)
		} else {
			fmt.Fprintf(&script, "source %s >%s 2>%s </dev/null\n", s.path(i, "step"), s.path(i, "out"), s.path(i, "err"))
			fmt.Fprintf(&script, `printf '\0' >%s; printf '\0' >%s`+"\n", s.path(i, "out"), s.path(i, "err"))
		}
		script.WriteString("echo done\nread -r\n")
	}
	return script.String()
}

// follow runs the shell and compares what each step writes.
func (s *session) follow(ctx context.Context, shell *exec.Cmd) error {
	if err := os.WriteFile(s.path(-1, "all"), []byte(s.script()), 0o644); err != nil {
		return err
	}
	for i, step := range s.steps {
		if step.file != "" {
			continue
		}
		for what, to := range map[string]*output{"out": step.out, "err": step.err} {
			if err := syscall.Mkfifo(s.path(i, what), 0o600); err != nil {
				return err
			}
			from, err := os.OpenFile(s.path(i, what), os.O_RDWR, 0)
			if err != nil {
				return err
			}
			defer from.Close()
			go io.Copy(to, from) // ends when it is closed
		}
	}
	goOn, err := shell.StdinPipe()
	if err != nil {
		return err
	}
	said, err := shell.StdoutPipe()
	if err != nil {
		return err
	}
	var unshare bytes.Buffer
	shell.Stderr = &unshare
	if err := shell.Start(); err != nil {
		return err
	}
	defer shell.Wait()
	defer shell.Process.Kill() // and with it all of its namespace
	lines := bufio.NewScanner(said)
	for i, step := range s.steps {
		if !lines.Scan() {
			shell.Wait() // its standard error is whole then
			return fmt.Errorf("%s:%d: %s", s.page.path, step.line, s.stopped(ctx, i, unshare.String()))
		}
		if step.file == "" {
			if err := s.compare(step); err != nil {
				return err
			}
		}
		io.WriteString(goOn, "\n")
	}
	return nil
}

// stopped says why a page went no further than to a step.
func (s *session) stopped(ctx context.Context, i int, unshare string) string {
	if ctx.Err() != nil {
		return fmt.Sprintf("these commands, or those before them, did not end within %v", s.kit.bound)
	}
	step := s.steps[i]
	if step.file != "" {
		return "the file could not be written: " + unshare
	}
	written := ""
	for n, to := range []*output{step.out, step.err} {
		if end, err := os.OpenFile(s.path(i, []string{"out", "err"}[n]), os.O_WRONLY, 0); err == nil {
			end.Write([]byte{endOfBlock})
			end.Close()
			written += to.awaitWhole()
		}
	}
	return "a command failed:\n" + step.text + "It wrote:\n" + written + unshare
}

// compare holds what a step wrote against what the page shows of it.
func (s *session) compare(step *step) error {
	for n, shown := range step.shown {
		if err := s.compareOne(step, n, shown.text); err != nil {
			return fmt.Errorf("%s:%d: %w", s.page.path, shown.line, err)
		}
	}
	return nil
}

func (s *session) compareOne(step *step, n int, shown string) error {
	switch {
	case n == 0 && step.inBackground:
		s.last = step
		return step.out.awaitShown(shown, s.kit.shown)
	case n == 0:
		text := step.out.awaitWhole()
		if strings.Trim(text, "\n") == "" {
			text = step.err.awaitWhole()
		}
		if text == "" && s.last != nil { // then it is what they have brought about
			return s.last.out.awaitShown(shown, s.kit.shown)
		}
		return wantShown(shown, text)
	case n == 1 && s.last != nil:
		return s.last.out.awaitShown(shown, s.kit.shown)
	}
	return errors.New("nothing in the background writes this")
}

// newKit builds the binary, and skips where pages cannot be run.
func newKit(t *testing.T) *kit {
	t.Helper()
	for _, tool := range []string{"unshare", "ip", "bash", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("pages are run with a tool that is not here:", err)
		}
	}
	if out, err := exec.Command("unshare", "--net", "--pid", "--fork", "--mount-proc", "ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		t.Skipf("pages are run in namespaces of their own, which may not be made here: %v %s", err, out)
	}
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	k := &kit{bin: t.TempDir(), root: root, shown: 15 * time.Second, bound: 90 * time.Second}
	build := exec.Command("go", "build", "-o", filepath.Join(k.bin, "holdfast"), "./cmd/holdfast")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return k
}
