package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// The kit of the end-to-end tests: real app servers, and Holdfast wired as in
// the binary, in this process.

const appsDir = "../../testdata/apps"

// monotonic is the clock that the apps' ledger uses (CLOCK_MONOTONIC).
func monotonic() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return time.Duration(ts.Nano())
}

// app is an app server that runs for a test.
type app struct {
	t      *testing.T
	addr   string
	cmd    *exec.Cmd
	ended  chan error
	ledger string
	output *bytes.Buffer
	fd     *os.File
	args   []string
	dir    string
	env    []string
}

// startGunicorn serves testdata/apps/django until the test ends. The listener
// is ours and handed over, so that its port is free for certain.
func startGunicorn(t *testing.T, args ...string) *app {
	t.Helper()
	return startApp(t, "django", append([]string{"site_wsgi:application"}, args...)...)
}

func startApp(t *testing.T, dir string, args ...string) *app {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	fd, err := ln.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	a := &app{t: t, addr: ln.Addr().String(), fd: fd, ledger: filepath.Join(t.TempDir(), "ledger"),
		dir: filepath.Join(appsDir, dir), args: append([]string{"-m", "gunicorn", "-b", "fd://3"}, args...)}
	a.env = append(os.Environ(), "LEDGER="+a.ledger, "PYTHONDONTWRITEBYTECODE=1", "PYTHONPATH=..")
	a.start()
	t.Cleanup(func() {
		a.kill()
		fd.Close()
		if t.Failed() {
			t.Logf("app:\n%s", a.output)
		}
	})
	return a
}

// start runs the app server, in a process group of its own.
func (a *app) start() {
	a.t.Helper()
	a.output = new(bytes.Buffer)
	a.cmd = exec.Command("/usr/bin/python3", a.args...)
	a.cmd.Dir, a.cmd.Env, a.cmd.Stdout, a.cmd.Stderr = a.dir, a.env, a.output, a.output
	a.cmd.ExtraFiles = []*os.File{a.fd}
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := a.cmd.Start(); err != nil {
		a.t.Fatal(err)
	}
	a.ended = make(chan error, 1)
	go func() { a.ended <- a.cmd.Wait() }()
}

// kill ends the whole process group at once and waits for it.
func (a *app) kill() {
	syscall.Kill(-a.cmd.Process.Pid, syscall.SIGKILL)
	<-a.ended
	a.ended <- nil
}

// entry is one line of the app's ledger.
type entry struct {
	Ev     string `json:"ev"` // start or end
	ID     string `json:"id"`
	Method string `json:"method"`
	Path   string `json:"path"`
	PID    int    `json:"pid"`
	Thread int64  `json:"thread"`
	T      int64  `json:"t"`
}

// entries reads what the app has written to its ledger so far.
func (a *app) entries() (entries []entry) {
	a.t.Helper()
	data, err := os.ReadFile(a.ledger)
	if err != nil {
		return nil
	}
	// The last line may be half written.
	for line := range bytes.Lines(data[:bytes.LastIndexByte(data, '\n')+1]) {
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			a.t.Fatalf("ledger: %v in %q", err, line)
		}
		entries = append(entries, e)
	}
	return entries
}

// view is one run of a view, from the ledger.
type view struct {
	entry
	start, end time.Duration // end 0: it has not ended
}

// views pairs the ledger's lines.
func (a *app) views() (views []*view) {
	a.t.Helper()
	type key struct {
		id     string
		pid    int
		thread int64
	}
	open := make(map[key]*view)
	for _, e := range a.entries() {
		k := key{e.ID, e.PID, e.Thread}
		if e.Ev == "start" {
			v := &view{entry: e, start: time.Duration(e.T)}
			open[k] = v
			views = append(views, v)
		} else if v := open[k]; v != nil {
			v.end = time.Duration(e.T)
			delete(open, k)
		}
	}
	return views
}

// running counts the views on a path that run now.
func (a *app) running(path string) (n int) {
	for _, v := range a.views() {
		if v.end == 0 && strings.HasPrefix(v.Path, path) {
			n++
		}
	}
	return n
}

// writeConfig writes a configuration whose listeners are on free ports.
func writeConfig(t *testing.T, yaml string, addresses ...any) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "config.yaml")
	text := "listen: \"127.0.0.1:0\"\nadmin: {listen: \"127.0.0.1:0\"}\npublish: {listen: \"127.0.0.1:0\"}\n" + fmt.Sprintf(yaml, addresses...)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// startHoldfast serves a configuration until the test ends. %s stands for the
// apps' addresses, in order; the listener is on a free port.
func startHoldfast(t *testing.T, yaml string, apps ...*app) *holdfast {
	t.Helper()
	addresses := make([]any, len(apps))
	for i, a := range apps {
		addresses[i] = a.addr
	}
	path := writeConfig(t, yaml, addresses...)
	config, err := loadConfig(path, os.LookupEnv)
	if err != nil {
		t.Fatal(err)
	}
	h, err := start(config, func() (*fileConfig, error) { return loadServable(path) }, zap.NewNop(), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.stopAll(5 * time.Second) })
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := h.awaitReady(ctx); err != nil || ctx.Err() != nil {
		t.Fatal("not ready:", err, ctx.Err())
	}
	return h
}

func (h *holdfast) url(path string) string {
	return "http://" + h.listeners[0].Addr().String() + path
}

// newClient is a client with connections of its own.
func newClient(t *testing.T) *http.Client {
	transport := &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: time.Minute}
}

// get asks for a path and reads the whole answer.
func get(ctx context.Context, client *http.Client, url string) (status int, body []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	body, err = io.ReadAll(response.Body)
	return response.StatusCode, body, err
}

// wantGet is get that must be a 200.
func wantGet(t *testing.T, client *http.Client, url string) []byte {
	t.Helper()
	status, body, err := get(context.Background(), client, url)
	if err != nil || status != 200 {
		t.Fatalf("GET %s: %d %.200q %v", url, status, body, err)
	}
	return body
}

// eventually waits until ok, half a minute at most.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("waited half a minute for: %s", what)
		}
		poll()
	}
}

// poll is the pause between two looks at something that cannot be waited on.
func poll() { <-time.After(5 * time.Millisecond) }
