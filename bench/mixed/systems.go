package mixed

import (
	"context"
	_ "embed"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"holdfast/bench/peer"
)

// Rows of the table.
const (
	rowGunicorn = "gunicorn-8-threads"
	rowMany     = "gunicorn-208-threads"
	rowSync     = "gunicorn-16-sync-workers"
	rowUvicorn  = "uvicorn"
	rowNginx    = "nginx-gunicorn-8-threads"
	rowHolds    = "holdfast-holds"
	rowStreams  = "holdfast-stream-lane"
)

// Rows are the names of all rows, in the order of the rounds.
func Rows() []string {
	return []string{rowGunicorn, rowMany, rowSync, rowUvicorn, rowNginx, rowHolds, rowStreams}
}

// Paths of the event streams.
const (
	viewThatStays = "/bench/stream"
	viewThatHolds = "/bench/hold"
	asgiStream    = "/rt/bench"
)

//go:embed nginx.conf
var nginxConfig string

// system is one way of serving the application: the processes of it.
type system struct {
	bench     *peer.Bench
	dir       string
	database  string
	address   string // that clients ask
	stream    string // path of an event stream
	processes []*peer.Process
}

// start starts a row's system. It is to be stopped even if that is an error.
func start(ctx context.Context, bench *peer.Bench, row string) (*system, error) {
	s := &system{bench: bench, stream: viewThatStays}
	var err error
	if s.dir, err = os.MkdirTemp(bench.Dir(), "mixed"); err != nil {
		return s, err
	}
	s.database = filepath.Join(s.dir, "db.sqlite3")
	switch row {
	case rowGunicorn:
		s.address, err = s.gunicorn(ctx, "--workers", "1", "--threads", "8")
	case rowMany:
		s.address, err = s.gunicorn(ctx, "--workers", "1", "--threads", fmt.Sprint(streams+8))
	case rowSync:
		s.address, err = s.gunicorn(ctx, "--workers", "16")
	case rowUvicorn:
		s.stream = asgiStream
		s.address, err = s.uvicorn(ctx)
	case rowNginx:
		err = s.nginx(ctx)
	case rowHolds:
		s.stream = viewThatHolds
		err = s.holdfast(ctx)
	case rowStreams:
		s.stream = asgiStream
		err = s.holdfast(ctx)
	default:
		err = fmt.Errorf("no row %q", row)
	}
	return s, err
}

func (s *system) stop() {
	for _, process := range slices.Backward(s.processes) {
		process.Stop()
	}
}

// add starts one of the system's processes and waits until it answers.
func (s *system) add(ctx context.Context, address string, env []string, program string, args ...string) error {
	process, err := s.bench.Start(filepath.Base(program), env, program, args...)
	if err != nil {
		return err
	}
	s.processes = append(s.processes, process)
	_, err = process.WaitReady(ctx, "http://"+address+fastPath)
	return err
}

func (s *system) environment() []string {
	return []string{
		"PYTHONDONTWRITEBYTECODE=1", "DJANGO_SETTINGS_MODULE=benchsettings", "BENCH_DB=" + s.database, "JOBS_DIR=" + s.dir,
		"PYTHONPATH=" + strings.Join([]string{s.bench.Path("testdata/mixed"), s.bench.Path("bench/mixed/site")}, ":"),
	}
}

func (s *system) gunicorn(ctx context.Context, shape ...string) (address string, err error) {
	program, err := s.bench.Find(peer.Gunicorn)
	if err != nil {
		return "", err
	}
	s.bench.Python(program)
	free, err := peer.FreeAddresses(1)
	if err != nil {
		return "", err
	}
	// A view that stays would keep it from ending for 30 s.
	args := append(shape, "--graceful-timeout", "1", "--bind", free[0], "--chdir", s.dir, "helpdesk.wsgi:application")
	return free[0], s.add(ctx, free[0], s.environment(), program, args...)
}

func (s *system) uvicorn(ctx context.Context) (address string, err error) {
	python, err := s.bench.FindUvicorn()
	if err != nil {
		return "", err
	}
	free, err := peer.FreeAddresses(1)
	if err != nil {
		return "", err
	}
	host, port, err := net.SplitHostPort(free[0])
	if err != nil {
		return "", err
	}
	return free[0], s.add(ctx, free[0], s.environment(), python, "-m", "uvicorn", "--host", host, "--port", port, "--no-access-log", "benchasgi:application")
}

func (s *system) nginx(ctx context.Context) error {
	app, err := s.gunicorn(ctx, "--workers", "1", "--threads", "8")
	if err != nil {
		return err
	}
	program, err := s.bench.Find(peer.Nginx)
	if err != nil {
		return err
	}
	free, err := peer.FreeAddresses(1)
	if err != nil {
		return err
	}
	s.address = free[0]
	name, err := filepath.Rel(s.bench.Dir(), filepath.Join(s.dir, "nginx.conf"))
	if err != nil {
		return err
	}
	config, err := s.bench.Config(name, nginxConfig, struct {
		Dir, App, Listen string
		Root             bool
	}{s.dir, app, s.address, os.Geteuid() == 0})
	if err != nil {
		return err
	}
	return s.add(ctx, s.address, nil, program, "-e", "stderr", "-c", config)
}

// holdfast is the help desk's own configuration: gunicorn and uvicorn at once.
func (s *system) holdfast(ctx context.Context) error {
	wsgi, err := s.gunicorn(ctx, "--workers", "1", "--threads", "8")
	if err != nil {
		return err
	}
	asgi, err := s.uvicorn(ctx)
	if err != nil {
		return err
	}
	program, err := s.bench.Holdfast(ctx)
	if err != nil {
		return err
	}
	free, err := peer.FreeAddresses(3)
	if err != nil {
		return err
	}
	env := []string{"MIXED_WSGI=" + wsgi, "MIXED_ASGI=" + asgi}
	for i, name := range []string{"MIXED_PORT", "MIXED_ADMIN_PORT", "MIXED_PUBLISH_PORT"} {
		_, port, err := net.SplitHostPort(free[i])
		if err != nil {
			return err
		}
		env = append(env, name+"="+port)
	}
	s.address = free[0]
	return s.add(ctx, s.address, env, program, "serve", "-c", s.bench.Path("testdata/mixed/config.yaml"))
}

// cpu is the time that all processes have run so far.
func (s *system) cpu() (time.Duration, error) {
	var sum time.Duration
	for _, process := range s.processes {
		used, err := process.CPU()
		if err != nil {
			return 0, err
		}
		sum += used
	}
	return sum, nil
}

// belongings are what the system's processes have at a moment.
type belongings struct {
	memory      peer.Memory
	threads     int
	connections int // descriptors of the database's file: SQLite has one a connection
}

func (s *system) has() (belongings, error) {
	var sum belongings
	for _, process := range s.processes {
		memory, err := process.Memory()
		if err != nil {
			return sum, err
		}
		threads, err := peer.Threads(process.PID())
		if err != nil {
			return sum, err
		}
		connections, err := peer.OpenFiles(process.PID(), s.database)
		if err != nil {
			return sum, err
		}
		sum.memory.PSS += memory.PSS
		sum.memory.RSS += memory.RSS
		sum.threads += threads
		sum.connections += connections
	}
	return sum, nil
}
