package main

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// The kit of the tests of servers: the recipes of docs/slots.md, the servers
// that they start, and the gate at which a view waits.

const (
	serversDir = "../../testdata/servers"
	slotsPage  = "../../docs/slots.md"
)

// recipe is one way to start the app, and the configuration that goes with it.
type recipe struct {
	name     string   // the section and the command that is its own
	commands []string // a process each
	yaml     string
}

var (
	pageSection = regexp.MustCompile(`(?m)^## (.*)\n`)
	pageBlock   = regexp.MustCompile("(?ms)^```(sh|yaml)\n(.*?)^```$")
)

// recipes reads the page: in a section each block of sh is a variant, and the
// block of yaml is for all of them. What is shown is what is tested.
func recipes(t *testing.T) (all []recipe) {
	t.Helper()
	page, err := os.ReadFile(slotsPage)
	if err != nil {
		t.Fatal(err)
	}
	starts := pageSection.FindAllSubmatchIndex(page, -1)
	for i, at := range starts {
		end := len(page)
		if i+1 < len(starts) {
			end = starts[i+1][0]
		}
		var variants []recipe
		for _, block := range pageBlock.FindAllSubmatch(page[at[1]:end], -1) {
			if text := string(block[2]); string(block[1]) == "sh" {
				commands := strings.Split(strings.TrimSpace(text), "\n")
				name := string(page[at[2]:at[3]]) + ": " + commands[0]
				variants = append(variants, recipe{name: name, commands: commands})
			} else {
				for _, v := range variants {
					v.yaml = text
					all = append(all, v)
				}
				variants = nil
			}
		}
	}
	return all
}

// program is the first word of the recipe's commands.
func (r recipe) program() string { return strings.Fields(r.commands[0])[0] }

// async: the views that wait are async ones, and there are streams.
func (r recipe) async() bool { return strings.Contains(r.yaml, "kind: stream") }

// asgi: Django's streaming answers hold up the whole process there.
func (r recipe) asgi() bool { return strings.Contains(r.commands[0], "asgi") }

// packages are Debian's for each module that a command needs.
var packages = map[string]string{"gunicorn": "gunicorn", "uvicorn": "python3-uvicorn", "waitress": "python3-waitress", "daphne": "daphne",
	"gevent": "python3-gevent", "eventlet": "python3-eventlet", "django": "python3-django",
	"flask": "python3-flask", "wsproto": "python3-wsproto"}

// modules are those of packages that are there.
var modules = sync.OnceValues(func() (map[string]bool, error) {
	out, err := exec.Command("/usr/bin/python3", "-c", `
import importlib.util, sys
print(*[name for name in sys.argv[1:] if importlib.util.find_spec(name)])`,
		"gunicorn", "uvicorn", "waitress", "daphne", "gevent", "eventlet", "django", "flask", "wsproto").Output()
	there := make(map[string]bool)
	for _, name := range strings.Fields(string(out)) {
		there[name] = true
	}
	return there, err
})

// needs skips the test, and names the package, where one is missing.
func (r recipe) needs(t *testing.T) {
	t.Helper()
	if r.program() == "uwsgi" {
		if _, err := exec.LookPath("uwsgi"); err != nil {
			t.Skip("install uwsgi-core uwsgi-plugin-python3")
		}
		if found, _ := filepath.Glob("/usr/lib/uwsgi/plugins/python3*_plugin.so"); len(found) == 0 {
			t.Skip("install uwsgi-plugin-python3")
		}
	}
	there, err := modules()
	if err != nil {
		t.Fatal(err)
	}
	line := strings.Join(r.commands, " ") + " django"
	if strings.Contains(line, "uvicorn") {
		line += " wsproto" // its WebSockets
	}
	for module, debian := range packages {
		if strings.Contains(line, module) && !there[module] {
			t.Skip("install " + debian)
		}
	}
}

// words turns a command of the page into what runs here: Debian's Python runs
// the modules, whatever is first in PATH. flags come behind the program.
func words(command string, flags []string) []string {
	w := strings.Fields(command)
	program := []string{"/usr/bin/python3", "-m", w[0]}
	switch w[0] {
	case "uwsgi":
		program = w[:1]
	case "python3":
		program = []string{"/usr/bin/python3"}
	case "waitress-serve":
		program[2] = "waitress"
	}
	return slices.Concat(program, flags, w[1:])
}

// quick are flags with which a server closes its idle connections after a
// second or two; by default it takes longer, as the page says.
func (r recipe) quick() []string {
	return map[string][]string{"gunicorn": {"--keep-alive", "1"}, "uvicorn": {"--timeout-keep-alive", "1"},
		"waitress-serve": {"--channel-timeout=1", "--cleanup-interval=1"}}[r.program()]
}

// recipeSite is a recipe that runs: the servers, the gate and Holdfast.
type recipeSite struct {
	*site
	recipe
	gate  *gate
	ports []string // the servers'
	file  []byte   // what /file answers
}

// pagePort is a port of the page's commands and configurations.
var pagePort = regexp.MustCompile(`\b800[0-9]\b`)

// serve starts the recipe's servers, on addresses of this test, and Holdfast.
func (r recipe) serve(t *testing.T) *recipeSite {
	t.Helper()
	r.needs(t)
	s := &recipeSite{recipe: r, gate: newGate(t), file: bytes.Repeat([]byte("0123456789abcdef"), 1<<16)}
	dir := shortDir(t)
	if err := os.WriteFile(filepath.Join(dir, "file"), s.file, 0o600); err != nil {
		t.Fatal(err)
	}
	given := make(map[string]string)
	replace := func(text string) string {
		return pagePort.ReplaceAllStringFunc(text, func(port string) string {
			if given[port] == "" {
				_, given[port], _ = net.SplitHostPort(freeAddress(t))
				s.ports = append(s.ports, given[port])
			}
			return given[port]
		})
	}
	for _, command := range r.commands {
		s.start(t, dir, words(replace(command), r.quick()))
	}
	s.site = startReadySite(t, replace(r.yaml))
	return s
}

// start runs one server until the test ends, in a process group of its own.
func (s *recipeSite) start(t *testing.T, dir string, words []string) {
	t.Helper()
	output := new(syncBuffer)
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = serversDir, output, output
	cmd.Env = append(os.Environ(), "GATE="+s.gate.path, "FILE="+filepath.Join(dir, "file"), "PYTHONDONTWRITEBYTECODE=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		cmd.Wait()
		if t.Failed() {
			t.Logf("%s:\n%s", strings.Join(words, " "), output)
		}
	})
}

// gate is where the app's views say that they run, and wait.
type gate struct {
	path string

	mu    sync.Mutex
	open  bool                  // who comes does not wait any more
	runs  map[string][]net.Conn // by the view's path
	most  map[string]int        // the greatest number that ran at once; "": of all
	ended map[string]int
}

// shortDir is a folder whose sockets have room in an address of 108 bytes; those
// of t.TempDir have the test's name in theirs.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "holdfast-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func newGate(t *testing.T) *gate {
	t.Helper()
	g := &gate{path: filepath.Join(shortDir(t), "gate"), runs: make(map[string][]net.Conn), most: make(map[string]int), ended: make(map[string]int)}
	ln, err := net.Listen("unix", g.path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go g.accept(ln)
	return g
}

func (g *gate) accept(ln net.Listener) {
	for {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		go g.watch(conn)
	}
}

// watch counts one view, from its line to the end of its connection.
func (g *gate) watch(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	line, err := in.ReadString('\n')
	if err != nil {
		return
	}
	path, _, _ := strings.Cut(line, " ")
	g.mu.Lock()
	g.runs[path] = append(g.runs[path], conn)
	g.most[path] = max(g.most[path], len(g.runs[path]))
	all := 0
	for _, runs := range g.runs {
		all += len(runs)
	}
	g.most[""] = max(g.most[""], all)
	if g.open {
		conn.Write([]byte{'.'})
	}
	g.mu.Unlock()
	in.ReadByte() // its end: nothing else comes
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, c := range g.runs[path] {
		if c == conn {
			g.runs[path] = append(g.runs[path][:i], g.runs[path][i+1:]...)
			break
		}
	}
	g.ended[path]++
}

// running counts the views of a path that run now.
func (g *gate) running(path string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.runs[path])
}

// counts gives the most that ran at once and how many have ended.
func (g *gate) counts(path string) (most, ended int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.most[path], g.ended[path]
}

// set opens or shuts the gate. Opened, it lets everybody go on.
func (g *gate) set(open bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open = open; !open {
		return
	}
	for _, runs := range g.runs {
		for _, conn := range runs {
			conn.Write([]byte{'.'})
		}
	}
}

// wantRunning waits until so many views of the path run.
func (g *gate) wantRunning(t *testing.T, path string, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d views of %s to run", n, path), func() bool { return g.running(path) == n })
}
