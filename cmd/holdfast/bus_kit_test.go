package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The kit of the tests of a bus: real engines, each in a directory and on a
// port of its own, and processes of the built binary that share one.

// engine is the process of a Redis or a PostgreSQL.
type engine struct {
	t       *testing.T
	kind    string // redis or postgres
	dir     string
	addr    string
	url     string // of the bus
	command func() *exec.Cmd
	asks    func() error // it answers
	owner   *syscall.Credential

	cmd    *exec.Cmd
	ended  chan struct{}
	keeper *keeper
}

// engineKinds start each engine so that it keeps what it acknowledges: PostgreSQL
// writes it down, of which everysec may lose two seconds also where only Redis is killed.
var engineKinds = []struct {
	name  string
	start func(t *testing.T) *engine
}{
	{"redis", func(t *testing.T) *engine { return startRedis(t, "--appendonly", "yes", "--appendfsync", "always") }},
	{"postgres", func(t *testing.T) *engine { return startPostgres(t) }},
}

// onEachEngine runs a test on each, at the same time.
func onEachEngine(t *testing.T, test func(t *testing.T, e *engine)) {
	t.Parallel()
	for _, kind := range engineKinds {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			test(t, kind.start(t))
		})
	}
}

// newEngine makes an engine's directory, whose owner may run it.
func newEngine(t *testing.T, kind, addr string) *engine {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "holdfast-"+kind)
	if err != nil {
		t.Fatal(err)
	}
	e := &engine{t: t, kind: kind, dir: dir, addr: addr}
	t.Cleanup(func() {
		e.stop()
		if t.Failed() {
			out, _ := os.ReadFile(filepath.Join(dir, "out"))
			t.Logf("%s:\n%s", kind, out)
		}
		os.RemoveAll(dir)
	})
	if os.Geteuid() != 0 {
		return e
	}
	for _, who := range []string{"postgres", "nobody"} { // initdb refuses root
		if u, err := user.Lookup(who); err == nil {
			uid, _ := strconv.Atoi(u.Uid)
			gid, _ := strconv.Atoi(u.Gid)
			e.owner = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
			if err := os.Chown(dir, uid, gid); err != nil {
				t.Fatal(err)
			}
			return e
		}
	}
	t.Skip("there is no user postgres or nobody to run an engine")
	return nil
}

// as has a command run as the engine's owner, in its directory.
func (e *engine) as(cmd *exec.Cmd) *exec.Cmd {
	cmd.Dir = e.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: e.owner}
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "HOME="+e.dir)
	return cmd
}

// start starts the engine and waits until it answers.
func (e *engine) start() {
	e.t.Helper()
	e.launch()
	eventually(e.t, e.kind+" to answer", func() bool {
		select {
		case <-e.ended: // what its last run left behind is still in use: again
			e.launch()
		default:
		}
		return e.asks() == nil
	})
}

// launch starts the process.
func (e *engine) launch() {
	e.t.Helper()
	out, err := os.OpenFile(filepath.Join(e.dir, "out"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		e.t.Fatal(err)
	}
	defer out.Close()
	e.keeper.release()
	e.cmd, e.ended = e.as(e.command()), make(chan struct{})
	e.cmd.Stdout, e.cmd.Stderr = out, out
	if err := e.cmd.Start(); err != nil {
		e.t.Fatal(err)
	}
	go reapEngine(e.cmd, e.ended)
	e.keeper = keepWithTests(e.t, e.cmd.Process.Pid)
}

func reapEngine(cmd *exec.Cmd, ended chan struct{}) {
	cmd.Wait()
	close(ended)
}

// kill ends it as a crash does; stop in order, so that it leaves no shared memory behind.
func (e *engine) kill() { e.end(syscall.SIGKILL) }
func (e *engine) stop() { e.end(syscall.SIGINT) }

func (e *engine) end(with syscall.Signal) {
	if e.cmd == nil {
		return
	}
	e.keeper.release()
	e.keeper = nil
	e.cmd.Process.Signal(with)
	select {
	case <-e.ended:
	case <-time.After(30 * time.Second):
		e.cmd.Process.Kill()
		<-e.ended
	}
	e.cmd = nil
}

// freeze has it stand still, thaw go on: it keeps its connections and answers nothing.
func (e *engine) freeze() { e.signalAll(syscall.SIGSTOP) }
func (e *engine) thaw()   { e.signalAll(syscall.SIGCONT) }

// signalAll signals the process and its children: PostgreSQL has one for each connection.
func (e *engine) signalAll(s syscall.Signal) {
	e.t.Helper()
	pid := e.cmd.Process.Pid
	if err := syscall.Kill(pid, s); err != nil {
		e.t.Fatal(err)
	}
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", pid))
	if err != nil {
		e.t.Fatal(err)
	}
	for child := range strings.FieldsSeq(string(children)) {
		if n, err := strconv.Atoi(child); err == nil {
			syscall.Kill(n, s)
		}
	}
}

// keeper is a shell that ends a process when the tests are gone, however they went.
type keeper struct {
	in    io.WriteCloser
	shell *exec.Cmd
}

func keepWithTests(t *testing.T, pid int) *keeper {
	t.Helper()
	k := &keeper{shell: exec.Command("sh", "-c", `read line && exit; kill -KILL "$0"`, strconv.Itoa(pid))}
	var err error
	if k.in, err = k.shell.StdinPipe(); err == nil {
		err = k.shell.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// release has the shell leave the process alone.
func (k *keeper) release() {
	if k == nil {
		return
	}
	io.WriteString(k.in, "leave\n")
	k.in.Close()
	k.shell.Wait()
}

// newRedis is a Redis that is not started.
func newRedis(t *testing.T, addr string, flags ...string) *engine {
	t.Helper()
	bin, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("install redis-server (Debian's package) for this test")
	}
	e := newEngine(t, "redis", addr)
	host, port, _ := net.SplitHostPort(addr)
	e.url = "redis://" + addr
	e.command = func() *exec.Cmd {
		return exec.Command(bin, append([]string{"--bind", host, "--port", port, "--protected-mode", "no", "--dir", e.dir, "--save", ""}, flags...)...)
	}
	e.asks = func() error { _, err := e.resp("PING"); return err }
	return e
}

func startRedis(t *testing.T, flags ...string) *engine {
	t.Helper()
	e := newRedis(t, freeAddress(t), flags...)
	e.start()
	return e
}

// straightPatience is how long who asks the engine itself waits for it.
const straightPatience = 5 * time.Second

// errNotAsked: nothing was sent, or what was is refused.
var errNotAsked = errors.New("nothing was done")

// resp sends one command over a plain connection and gives the answer's first
// line, or its text.
func (e *engine) resp(words ...string) (string, error) {
	conn, err := net.DialTimeout("tcp", e.addr, straightPatience)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errNotAsked, err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(straightPatience))
	command := fmt.Sprintf("*%d\r\n", len(words))
	for _, word := range words {
		command += fmt.Sprintf("$%d\r\n%s\r\n", len(word), word)
	}
	if _, err := io.WriteString(conn, command); err != nil {
		return "", err
	}
	in := bufio.NewReader(conn)
	line, err := in.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSpace(line)
	if line[0] == '-' {
		return "", fmt.Errorf("%w: %s", errNotAsked, line)
	}
	if line[0] == '$' {
		line, err = in.ReadString('\n')
		return strings.TrimSpace(line), err
	}
	return line[1:], nil
}

// mustAsk is resp that must be answered.
func (e *engine) mustAsk(words ...string) string {
	e.t.Helper()
	answer, err := e.resp(words...)
	if err != nil {
		e.t.Fatalf("redis, %q: %v", words, err)
	}
	return answer
}

// postgresProgram finds one of PostgreSQL's programs, or skips the test.
func postgresProgram(t *testing.T, name string) string {
	t.Helper()
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if len(found) == 0 {
		t.Skip("install postgresql (Debian's package) for this test")
	}
	return found[len(found)-1]
}

// startPostgres makes and starts a PostgreSQL in which nothing is prepared.
func startPostgres(t *testing.T) *engine {
	t.Helper()
	initdb, bin := postgresProgram(t, "initdb"), postgresProgram(t, "postgres")
	e := newEngine(t, "postgres", freeAddress(t))
	data := filepath.Join(e.dir, "data")
	out, err := e.as(exec.Command(initdb, "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync", "--no-instructions")).CombinedOutput()
	if err != nil {
		t.Fatalf("initdb: %v: %s", err, out)
	}
	_, port, _ := net.SplitHostPort(e.addr)
	e.url = "postgres://postgres@" + e.addr + "/postgres?sslmode=disable"
	e.command = func() *exec.Cmd {
		return exec.Command(bin, "-D", data, "-k", e.dir, "-c", "listen_addresses=127.0.0.1", "-c", "port="+port)
	}
	e.asks = func() error { _, err := e.psql("SELECT 1"); return err }
	e.start()
	return e
}

// psql runs statements as psql -c does: a list is one transaction, unless it says otherwise.
func (e *engine) psql(sql string) (string, error) {
	_, port, _ := net.SplitHostPort(e.addr)
	cmd := exec.Command(postgresProgram(e.t, "psql"), "-h", e.dir, "-p", port, "-U", "postgres", "-d", "postgres", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", sql)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, errs.String())
	}
	return strings.TrimSpace(string(out)), err
}

// mustSQL is psql that must be done.
func (e *engine) mustSQL(sql string) string {
	e.t.Helper()
	out, err := e.psql(sql)
	if err != nil {
		e.t.Fatalf("psql -c %q: %v", sql, err)
	}
	return out
}

// prepare is `holdfast bus init`, which PostgreSQL needs.
func (e *engine) prepare() {
	e.t.Helper()
	if code, _, stderr := runHoldfast(e.t, nil, "bus", "init", "--url", e.url); code != 0 {
		e.t.Fatalf("holdfast bus init: exit %d: %s", code, stderr)
	}
}

// runHoldfast runs the built binary to its end.
func runHoldfast(t *testing.T, env []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	binary, err := builtBinary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), binary.Fd()), args...)
	cmd.Env = append(os.Environ(), env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}
