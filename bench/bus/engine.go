package bus

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"holdfast/bench/peer"
)

// The kinds of bus.
const (
	memory   = "memory"
	redis    = "redis"
	postgres = "postgres"

	redisServer = "redis-server"
)

// engine is what keeps the log.
type engine struct {
	url     string        // of the bus
	process *peer.Process // nil: there is none
	dir     string        // its data; "": none
}

// startEngine starts one with nothing in it, on a free port.
func startEngine(ctx context.Context, bench *peer.Bench, kind string) (*engine, error) {
	if kind == memory {
		return &engine{url: memory}, nil
	}
	free, err := peer.FreeAddresses(1)
	if err != nil {
		return nil, err
	}
	e := &engine{}
	if e.dir, err = os.MkdirTemp("", "holdfast-"+kind+"-"); err != nil {
		return nil, err
	}
	start := e.startRedis
	if kind == postgres {
		start = e.startPostgres
	}
	if err = start(bench, free[0]); err == nil {
		err = e.listens(ctx, free[0])
	}
	if err != nil {
		e.stop()
		return nil, err
	}
	return e, nil
}

func (e *engine) startRedis(bench *peer.Bench, address string) error {
	program, err := exec.LookPath(redisServer)
	if err != nil {
		return fmt.Errorf("%s is not installed: apt-get install redis-server", redisServer)
	}
	// The rest of the line is of its build.
	bench.Note(redis, "/bin/sh", "-c", `"$0" --version | cut -d ' ' -f 1-3`, program)
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	e.url = "redis://" + address
	e.process, err = bench.Start(redis, nil, program, "--bind", "127.0.0.1", "--port", port, "--dir", e.dir,
		"--save", "", "--appendonly", "yes", "--appendfsync", "everysec")
	return err
}

func (e *engine) startPostgres(bench *peer.Bench, address string) error {
	initdb, err := postgresProgram("initdb")
	if err != nil {
		return err
	}
	server, err := postgresProgram(postgres)
	if err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	bench.Note(postgres, server, "--version")
	as, err := e.owner()
	if err != nil {
		return err
	}
	data := filepath.Join(e.dir, "data")
	// --no-sync is initdb's own haste; the server that follows does sync.
	args := append(slices.Clone(as), initdb, "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale", "C.UTF-8", "--no-sync", "--no-instructions")
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %.400s", err, out)
	}
	e.url = "postgres://postgres@" + address + "/postgres?sslmode=disable"
	args = append(as, server, "-D", data, "-k", e.dir, "-c", "listen_addresses=127.0.0.1", "-c", "port="+port)
	e.process, err = bench.Start(postgres, nil, args[0], args[1:]...)
	return err
}

// owner is what a command begins with to run in the engine's directory: initdb
// refuses root, for which user postgres or nobody does it.
func (e *engine) owner() ([]string, error) {
	inDir := []string{"/bin/sh", "-c", `cd "$0" && exec "$@"`, e.dir}
	if os.Geteuid() != 0 {
		return inDir, nil
	}
	for _, name := range []string{postgres, "nobody"} {
		who, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.Atoi(who.Uid)
		if err != nil {
			return nil, err
		}
		gid, err := strconv.Atoi(who.Gid)
		if err != nil {
			return nil, err
		}
		as := []string{"setpriv", "--reuid=" + who.Uid, "--regid=" + who.Gid, "--clear-groups"}
		return append(as, inDir...), os.Chown(e.dir, uid, gid)
	}
	return nil, errors.New("there is no user postgres or nobody, and root may not run PostgreSQL")
}

// postgresProgram finds one of PostgreSQL's, which Debian does not put on PATH.
func postgresProgram(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if err != nil || len(found) == 0 {
		return "", fmt.Errorf("%s is not installed: apt-get install postgresql", name)
	}
	return found[len(found)-1], nil
}

// installed says whether an engine can be started.
func installed(kind string) bool {
	switch kind {
	case redis:
		_, err := exec.LookPath(redisServer)
		return err == nil
	case postgres:
		_, err := postgresProgram("initdb")
		return err == nil
	}
	return true
}

// listens waits until the engine takes connections.
func (e *engine) listens(ctx context.Context, address string) error {
	for end := time.Now().Add(readyWithin); ; time.Sleep(20 * time.Millisecond) {
		if err := e.process.Running(); err != nil {
			return err
		}
		conn, err := net.Dial("tcp", address)
		if err == nil {
			return conn.Close()
		}
		if ctx.Err() != nil || time.Now().After(end) {
			return fmt.Errorf("the engine does not listen: %w", err)
		}
	}
}

// cpu is the time that the engine has run, with all its processes; 0 for none.
func (e *engine) cpu() (time.Duration, error) {
	if e.process == nil {
		return 0, nil
	}
	return e.process.CPU()
}

func (e *engine) stop() {
	if e.process != nil {
		e.process.Stop()
	}
	if e.dir != "" {
		os.RemoveAll(e.dir)
	}
}
