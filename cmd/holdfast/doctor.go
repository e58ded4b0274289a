package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	"go.yaml.in/yaml/v3"

	"holdfast/upstream"
)

// check is one line of the doctor's: what was looked at, what was found, and
// what to change.
type check struct {
	Name   string `json:"name"`
	Result string `json:"result"` // ok, warn or fail
	Found  string `json:"found"`
	Fix    string `json:"fix,omitempty"`
}

// examination is the list of checks, and the exit code that serve would have.
type examination struct {
	Configuration any     `json:"configuration,omitempty"` // resolved, secrets hidden
	Checks        []check `json:"checks"`
	Exit          int     `json:"exit"`
}

func (e *examination) ok(name, format string, args ...any) {
	e.Checks = append(e.Checks, check{name, "ok", fmt.Sprintf(format, args...), ""})
}

func (e *examination) warn(name, fix, format string, args ...any) {
	e.Checks = append(e.Checks, check{name, "warn", fmt.Sprintf(format, args...), fix})
}

func (e *examination) fail(exit int, name, fix, format string, args ...any) {
	e.Checks = append(e.Checks, check{name, "fail", fmt.Sprintf(format, args...), fix})
	if e.Exit == exitOK {
		e.Exit = exit
	}
}

// doctorCommand prints the resolved configuration and the checks. It binds
// nothing, and asks each target once.
func doctorCommand(args []string, stdout, stderr io.Writer) int {
	flags := newFlags("doctor")
	file := flags.StringP("config", "c", "", "the configuration `file`")
	asJSON := flags.Bool("json", false, "print JSON")
	if done, code := parseFlags(flags, args, stdout, stderr); done {
		return code
	}
	if *file == "" {
		*file = os.Getenv("HOLDFAST_CONFIG")
	}
	if *file == "" {
		return usageError(stderr, "no configuration: give -c config.yaml or HOLDFAST_CONFIG")
	}
	e := &examination{}
	config, err := loadServable(*file)
	if err != nil {
		e.fail(exitConfig, "configuration", "correct the file", "%v", err)
	} else {
		e.ok("configuration", "%s is valid", *file)
		e.examine(config)
	}
	if *asJSON {
		if config != nil {
			config.shown().Decode(&e.Configuration)
		}
		json.NewEncoder(stdout).Encode(e)
		return e.Exit
	}
	if config != nil {
		resolved, err := yaml.Marshal(config.shown())
		if err != nil {
			fmt.Fprintln(stderr, "holdfast:", err)
			return exitFailed
		}
		fmt.Fprintf(stdout, "%s\n", resolved)
	}
	for _, c := range e.Checks {
		fmt.Fprintf(stdout, "%-4s  %s: %s\n", c.Result, c.Name, c.Found)
		if c.Fix != "" {
			fmt.Fprintf(stdout, "      %s\n", c.Fix)
		}
	}
	return e.Exit
}

func (e *examination) examine(config *fileConfig) {
	for _, warning := range config.warnings {
		e.warn("configuration", "", "%s", warning)
	}
	for _, name := range config.upstreamNames() {
		u := upstream.New(config.upstream(name), nil)
		for _, target := range u.Targets() {
			e.askTarget(name, target)
		}
		u.Close()
		e.compareSlots(config, name)
	}
	for _, address := range config.Listen {
		e.port(config, "listen", address)
	}
	if config.Admin.Listen != "" {
		e.port(config, "admin.listen", config.Admin.Listen)
	}
	if config.Publish.Listen != "" {
		e.port(config, "publish.listen", config.Publish.Listen)
	}
	e.directories(config)
	e.descriptors(config)
}

// directories says of what is served whether there is anything.
func (e *examination) directories(config *fileConfig) {
	for i, route := range config.Routes {
		if route.Files == nil {
			continue
		}
		check := item("routes", i) + ".files.dir " + route.Files.Dir
		dir, err := os.Open(route.Files.Dir)
		if err == nil {
			_, err = dir.Readdirnames(1)
			dir.Close()
		}
		switch {
		case err == nil:
			e.ok(check, "is a directory with files")
		case errors.Is(err, io.EOF) && route.Files.Internal:
			e.ok(check, "is a directory, empty so far")
		case errors.Is(err, io.EOF):
			e.warn(check, "put the files there (Django: collectstatic), or correct the path", "is empty: whatever is asked for goes to the next route that matches")
		default:
			e.warn(check, "let this user read the directory", "cannot be read: %v", reason(err))
		}
	}
}

// askTarget asks a target once, without waiting for it to come up.
func (e *examination) askTarget(name string, target *upstream.Target) {
	check := "target " + target.String()
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	began := time.Now()
	keepAlive, err := target.Examine(ctx)
	took := time.Since(began).Round(time.Millisecond)
	workers := workersOn(target.Addr())
	switch {
	case errors.Is(err, upstream.ErrUnreachable):
		e.warn(check, "start the app, or correct upstreams."+name+".targets; serve waits for it for start_timeout and then exits 78", "%v", err)
		return
	case errors.Is(err, upstream.ErrTimeout), errors.Is(err, upstream.ErrInterrupted):
		e.warn(check, "see the app's own log: its workers may all be busy, or still starting", "accepts connections and did not answer within %v", took)
		return
	case err != nil:
		e.warn(check, "see the app's own log", "%v", err)
		return
	case !keepAlive:
		e.ok(check, "answers within %v, and closes each connection after its answer, as gunicorn's sync workers do", took)
	default:
		e.ok(check, "answers within %v, and offers keep-alive: a slot uses its connection again", took)
	}
	switch {
	case workers < 2:
	case !keepAlive:
		e.ok(check, "%d worker processes share it, and take only what they can run", workers)
	default:
		e.warn(check, "start one process for each target and list them under upstreams."+name+".targets, or use sync workers",
			"%d worker processes share it: the kernel picks one for each connection, however busy it is, so that a fast view can wait behind a slow one while others are free", workers)
	}
}

// askTimeout is how long the doctor waits for a target's answer.
const askTimeout = 5 * time.Second

// compareSlots says how the slots that lanes have on an upstream compare with
// what it is said to run at once.
func (e *examination) compareSlots(config *fileConfig, name string) {
	slots, _ := config.slotsOf(name)
	u := config.Upstreams[name]
	switch {
	case slots == 0:
	case u.Concurrency == nil:
		e.ok("upstream "+name, "%d slots on %d targets; set concurrency to what one process runs at once (gunicorn: --threads) to have the sum checked", slots, len(u.Targets))
	case slots < *u.Concurrency*len(u.Targets):
		e.warn("upstream "+name, "raise lanes' slots", "%d slots on targets that run %d at once: the rest of the app stays idle", slots, *u.Concurrency*len(u.Targets))
	default:
		e.ok("upstream "+name, "%d slots, all that its targets run at once", slots)
	}
}

// port says whether an address can be listened on, and who holds it if not.
// It does not listen: it asks whether somebody answers there.
func (e *examination) port(config *fileConfig, key, address string) {
	check := key + " " + address
	parsed, err := parseListen(address)
	if err != nil {
		e.fail(exitConfig, check, "correct "+key, "%v", err)
		return
	}
	if !isHeld(parsed) {
		e.ok(check, "is free")
		return
	}
	if parsed.network == "tcp" && config.Admin.Listen != "" {
		admin, err := parseListen(config.Admin.Listen)
		status, _, askErr := newControl(config.Admin.Listen, firstKey(config.Admin.Keys), "--admin").ask("GET", "/health")
		if err == nil && askErr == nil && status == 200 && sameHolder(parsed.address, admin.address) {
			e.ok(check, "is held by a Holdfast that answers at %s", config.Admin.Listen)
			return
		}
	}
	held := ""
	if parsed.network == "tcp" {
		held = holderOf(parsed.address)
	}
	e.fail(exitFailed, check, "change "+key+", or end what holds it", "is held by another process%s", held)
}

// isHeld reports whether somebody listens at an address.
func isHeld(e endpoint) bool {
	address := e.address
	if host, port, err := net.SplitHostPort(address); err == nil && e.network == "tcp" {
		if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
			address = net.JoinHostPort("localhost", port)
		}
		if port == "0" {
			return false
		}
	}
	conn, err := net.DialTimeout(e.network, address, time.Second)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

func firstKey(keys []string) string {
	if len(keys) == 0 {
		return ""
	}
	return keys[0]
}

// descriptors says how many clients the limit of open files leaves room for.
func (e *examination) descriptors(config *fileConfig) {
	limit := descriptorLimit()
	if limit == 0 {
		return
	}
	reserve := config.descriptorReserve()
	clients := config.connections()
	if clients < 1000 {
		e.warn("descriptors", "raise the limit (ulimit -n, LimitNOFILE=)", "%d may be open, %d of them for lanes and files: %d clients at once", limit, reserve, clients)
		return
	}
	e.ok("descriptors", "%d may be open, %d of them for lanes and files: %d clients at once", limit, reserve, clients)
}
