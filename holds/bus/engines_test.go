package bus

import (
	"bytes"
	"context"
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
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// server is an engine's process, in a directory of its own, on a unix socket.
type server struct {
	dir     string
	command func() *exec.Cmd // to start it
	socket  string
	alive   func(*server) error // it answers
	owner   *syscall.Credential // nil: whoever runs the tests

	cmd    *exec.Cmd
	ended  chan struct{}
	keeper io.Closer // ends the process when the tests are gone, however they went
}

// running are the servers to be ended behind the last test.
var running struct {
	sync.Mutex
	all []*server
}

func stopEngines() {
	running.Lock()
	defer running.Unlock()
	for _, s := range running.all {
		s.stop()
		os.RemoveAll(s.dir)
	}
}

// sharedRedis and sharedPostgres serve all tests that do not kill them.
var (
	sharedRedis    = sync.OnceValues(func() (*server, error) { return newRedis() })
	sharedPostgres = sync.OnceValues(newPostgres)
	logs           atomic.Int64 // so that each test has a log of its own
)

// shared gives a shared server, or skips the test where its binaries lack.
func shared(t *testing.T, of func() (*server, error)) *server {
	t.Helper()
	s, err := of()
	if lack := (lacking("")); errors.As(err, &lack) {
		t.Skip(err)
	}
	must(t, err)
	return s
}

// lacking is a package that is not installed.
type lacking string

func (l lacking) Error() string { return "install " + string(l) + " (Debian's package) for this test" }

// newServer makes a server's directory, owned by somebody who may run it.
func newServer(name string) (*server, error) {
	dir, err := os.MkdirTemp("/tmp", "holdfast-"+name)
	if err != nil {
		return nil, err
	}
	s := &server{dir: dir}
	running.Lock()
	running.all = append(running.all, s)
	running.Unlock()
	if os.Geteuid() != 0 {
		return s, nil
	}
	for _, who := range []string{"postgres", "nobody"} { // initdb refuses root
		if u, err := user.Lookup(who); err == nil {
			uid, _ := strconv.Atoi(u.Uid)
			gid, _ := strconv.Atoi(u.Gid)
			s.owner = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
			return s, os.Chown(dir, uid, gid)
		}
	}
	return nil, errors.New("there is no user postgres or nobody to run an engine")
}

// as has a command run as the server's owner, in its directory.
func (s *server) as(cmd *exec.Cmd) *exec.Cmd {
	cmd.Dir = s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.owner}
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "HOME="+s.dir)
	return cmd
}

// start starts the server and waits until it answers. One that ends is started
// again a few times: what its last run left behind may still be in use.
func (s *server) start() error {
	late := time.Now().Add(patience)
	for launches := 0; launches < 20 && time.Now().Before(late); launches++ {
		if err := s.launch(); err != nil {
			return err
		}
		for ended := false; !ended && time.Now().Before(late); {
			if s.alive(s) == nil {
				return nil
			}
			select {
			case <-s.ended:
				ended = true
			default:
			}
			pause(context.Background())
		}
	}
	out, _ := os.ReadFile(filepath.Join(s.dir, "out"))
	return fmt.Errorf("%s does not answer: …%s", s.cmd, out[max(0, len(out)-1000):])
}

// launch starts the process, and a shell that ends it when the tests are gone.
func (s *server) launch() error {
	out, err := os.OpenFile(filepath.Join(s.dir, "out"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := s.as(s.command())
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		return err
	}
	s.cmd, s.ended = cmd, make(chan struct{})
	go reap(cmd, s.ended)
	if s.keeper != nil {
		s.keeper.Close()
	}
	s.keeper, err = keep(cmd.Process.Pid, s.dir)
	return err
}

func reap(cmd *exec.Cmd, ended chan struct{}) {
	cmd.Wait()
	close(ended)
}

// keep has a process end with this one, and its directory go.
func keep(pid int, dir string) (io.Closer, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	keeper := exec.Command("sh", "-c", `read line && exit; kill -KILL "$0"; sleep 1; rm -rf "$1"`, strconv.Itoa(pid), dir)
	keeper.Stdin = r
	if err := keeper.Start(); err != nil {
		return nil, err
	}
	return &released{w, keeper}, nil
}

// released tells the shell to leave the process alone.
type released struct {
	w      *os.File
	keeper *exec.Cmd
}

func (r *released) Close() error {
	r.w.WriteString("leave\n")
	r.w.Close()
	return r.keeper.Wait()
}

// kill ends the process as a crash does.
func (s *server) kill() { s.end(syscall.SIGKILL) }

// stop ends it in order, so that it leaves no shared memory behind.
func (s *server) stop() { s.end(syscall.SIGINT) }

func (s *server) end(with os.Signal) {
	if s.cmd == nil {
		return
	}
	if s.keeper != nil {
		s.keeper.Close()
		s.keeper = nil
	}
	s.cmd.Process.Signal(with)
	select {
	case <-s.ended:
	case <-time.After(patience):
		s.cmd.Process.Kill()
		<-s.ended
	}
}

func (s *server) dialSocket() (net.Conn, error) {
	return net.DialTimeout("unix", s.socket, 5*time.Second)
}

// direct opens a bus over the server's socket, not over a proxy.
func (s *server) direct(t *testing.T, c *Config) Bus {
	c.dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", s.socket)
	}
	b := c.Open()
	t.Cleanup(func() { b.Close() })
	return b
}

// newRedis starts a Redis.
func newRedis(flags ...string) (*server, error) {
	bin, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, lacking("redis-server")
	}
	s, err := newServer("redis")
	if err != nil {
		return nil, err
	}
	s.socket = filepath.Join(s.dir, "socket")
	s.command = func() *exec.Cmd {
		return exec.Command(bin, append([]string{"--port", "0", "--unixsocket", s.socket, "--unixsocketperm", "777", "--dir", s.dir, "--save", "",
			"--enable-debug-command", "yes", "--proto-max-bulk-len", "64mb"}, flags...)...)
	}
	s.alive = func(s *server) error {
		out, err := s.redisCLI("PING")
		if err == nil && strings.TrimSpace(out) != "PONG" {
			err = errors.New(out)
		}
		return err
	}
	return s, s.start()
}

// redisCLI runs redis-cli.
func (s *server) redisCLI(args ...string) (string, error) {
	out, err := exec.Command("redis-cli", append([]string{"-s", s.socket}, args...)...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func (s *server) mustCLI(t *testing.T, args ...string) string {
	t.Helper()
	out, err := s.redisCLI(args...)
	if err != nil {
		t.Fatalf("redis-cli %q: %v %s", args, err, out)
	}
	return out
}

// redisStage is a log in the shared Redis, behind a proxy.
func redisStage(t *testing.T) *stage {
	s := shared(t, sharedRedis)
	return redisStageOn(t, s)
}

func redisStageOn(t *testing.T, s *server) *stage {
	name := "log" + strconv.FormatInt(logs.Add(1), 10)
	p := newProxy(t, s.dialSocket)
	st := &stage{t: t, cut: p.cut, hold: p.hold.Store, mute: p.mute.Store, name: name, address: p.address(), url: "redis://" + p.address() + "/0?log=" + name}
	st.open = func(t *testing.T, query string) Bus {
		b, err := Open(st.url+"&"+query, Options{})
		must(t, err)
		t.Cleanup(func() { b.Close() })
		return b
	}
	st.apart = func(t *testing.T, query string) Bus {
		c, err := Parse("redis://redis/0?log="+name+"&"+query, Options{})
		must(t, err)
		return s.direct(t, c)
	}
	events, meta := "{"+name+"}:events", "{"+name+"}:meta"
	st.flush = func() { s.mustCLI(t, "DEL", events, meta) }
	st.save = func() {
		for _, key := range []string{events, meta} {
			s.redisCLI("COPY", key, key+":saved", "REPLACE")
		}
	}
	st.restore = func() {
		s.mustCLI(t, "EVAL", `for _, k in ipairs(KEYS) do redis.call('DEL', k) redis.call('COPY', k .. ':saved', k) end`, "2", events, meta)
	}
	return st
}

// postgresBin finds one of PostgreSQL's programs.
func postgresBin(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if len(found) == 0 {
		return "", lacking("postgresql")
	}
	return found[len(found)-1], nil
}

// newPostgres makes and starts a PostgreSQL.
func newPostgres() (*server, error) {
	initdb, err := postgresBin("initdb")
	if err != nil {
		return nil, err
	}
	bin, err := postgresBin("postgres")
	if err != nil {
		return nil, err
	}
	s, err := newServer("postgres")
	if err != nil {
		return nil, err
	}
	data := filepath.Join(s.dir, "data")
	out, err := s.as(exec.Command(initdb, "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync", "--no-instructions")).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("initdb: %w: %s", err, out)
	}
	s.socket = filepath.Join(s.dir, ".s.PGSQL.5432")
	s.command = func() *exec.Cmd {
		return exec.Command(bin, "-D", data, "-k", s.dir, "-c", "listen_addresses=", "-c", "port=5432", "-c", "fsync=off", "-c", "max_connections=150")
	}
	s.alive = func(s *server) error { _, err := s.tryPSQL("postgres", "SELECT 1"); return err }
	return s, s.start()
}

// tryPSQL runs psql as a role.
func (s *server) tryPSQL(role, sql string) (string, error) {
	bin, err := postgresBin("psql")
	if err != nil {
		return "", err
	}
	cmd := exec.Command(bin, "-h", s.dir, "-p", "5432", "-U", role, "-d", "postgres", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1")
	cmd.Stdin = strings.NewReader(sql)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, errs.String())
	}
	return strings.TrimSpace(string(out)), err
}

func (s *server) psql(t *testing.T, sql string) string {
	t.Helper()
	out, err := s.tryPSQL("postgres", sql)
	must(t, err)
	return out
}

func postgresStage(t *testing.T) *stage {
	return postgresStageOn(t, shared(t, sharedPostgres))
}

// postgresStageOn is a log in a PostgreSQL, behind a proxy.
func postgresStageOn(t *testing.T, s *server) *stage {
	name := "log" + strconv.FormatInt(logs.Add(1), 10)
	p := newProxy(t, s.dialSocket)
	url := "postgres://postgres@" + p.address() + "/postgres?sslmode=disable&log=" + name
	st := &stage{t: t, cut: p.cut, hold: p.hold.Store, mute: p.mute.Store, name: name, address: p.address(), url: url}
	_, err := Init(context.Background(), url, Options{})
	must(t, err)
	st.open = func(t *testing.T, query string) Bus {
		b, err := Open(url+"&"+query, Options{})
		must(t, err)
		t.Cleanup(func() { b.Close() })
		return b
	}
	st.apart = func(t *testing.T, query string) Bus {
		c, err := Parse(url+"&"+query, Options{})
		must(t, err)
		return s.direct(t, c)
	}
	st.flush = func() {
		s.psql(t, "DROP SCHEMA "+name+" CASCADE")
		_, err := Init(context.Background(), url, Options{})
		must(t, err)
	}
	st.save = func() {
		s.psql(t, strings.ReplaceAll("CREATE TABLE @.s_log AS TABLE @.log; CREATE TABLE @.s_meta AS TABLE @.meta;", "@", name))
	}
	st.restore = func() {
		s.psql(t, strings.ReplaceAll(`BEGIN; DELETE FROM @.log; DELETE FROM @.meta; INSERT INTO @.log TABLE @.s_log; INSERT INTO @.meta TABLE @.s_meta; COMMIT;`, "@", name))
	}
	return st
}
