package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
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
	// Numbers are those that Found words, for programs: times in ms, sizes in bytes.
	Numbers numbers `json:"numbers,omitempty"`
}

type numbers map[string]float64

// examination is the list of checks, and the exit code that serve would have.
type examination struct {
	Configuration any     `json:"configuration,omitempty"` // resolved, secrets hidden
	Checks        []check `json:"checks"`
	Exit          int     `json:"exit"`

	over clientTLS // how listeners with TLS are asked
}

func (e *examination) ok(name, format string, args ...any) {
	e.Checks = append(e.Checks, check{Name: name, Result: "ok", Found: fmt.Sprintf(format, args...)})
}

func (e *examination) warn(name, fix, format string, args ...any) {
	e.Checks = append(e.Checks, check{Name: name, Result: "warn", Found: fmt.Sprintf(format, args...), Fix: fix})
}

func (e *examination) fail(exit int, name, fix, format string, args ...any) {
	e.Checks = append(e.Checks, check{Name: name, Result: "fail", Found: fmt.Sprintf(format, args...), Fix: fix})
	if e.Exit == exitOK {
		e.Exit = exit
	}
}

// with adds numbers to the latest check.
func (e *examination) with(n numbers) {
	c := &e.Checks[len(e.Checks)-1]
	if c.Numbers == nil {
		c.Numbers = make(numbers)
	}
	maps.Copy(c.Numbers, n)
}

// ms is a time as a number of a check, and as it is worded: as exact as the network is.
func ms(d time.Duration) float64 {
	return float64(d.Round(100*time.Microsecond)) / float64(time.Millisecond)
}

func inMS(d time.Duration) time.Duration {
	if d < 10*time.Millisecond {
		return d.Round(100 * time.Microsecond)
	}
	return d.Round(time.Millisecond)
}

const doctorUsage = `print the configuration as it is understood, and what would go wrong

  holdfast doctor -c config.yaml [--json]
  holdfast doctor --url https://example.com/events [--idle 60s] [--header 'Cookie: ...'] [-c config.yaml --channel CHANNEL] [--json]

The first binds nothing, asks each target once, and exits with the code that serve would have. The second
follows an event stream through whatever is in front of Holdfast: exit 1 if that holds it back or cuts it.

`

// doctorCommand prints the resolved configuration and the checks, or, with
// --url, how an event stream arrives.
func doctorCommand(args []string, stdout, stderr io.Writer) int {
	flags := newFlags("doctor")
	file := flags.StringP("config", "c", "", "the configuration `file`")
	asJSON := flags.Bool("json", false, "print JSON")
	public := newPublicStream(flags)
	over := newClientTLS(flags)
	if done, code := parseFlagsAnd(flags, args, 0, doctorUsage, stdout, stderr); done {
		return code
	}
	if problem := cmp.Or(public.problem(flags.Changed), over.problem()); problem != "" {
		return usageError(stderr, problem)
	}
	needed := public.address == "" || public.channel != ""
	if *file == "" && needed {
		*file = os.Getenv("HOLDFAST_CONFIG")
	}
	if *file == "" && needed {
		if public.address != "" {
			return usageError(stderr, "--channel needs the publish address: give -c config.yaml or HOLDFAST_CONFIG")
		}
		return usageError(stderr, "no configuration: give -c config.yaml or HOLDFAST_CONFIG")
	}
	if _, err := over.config(); err != nil {
		return usageError(stderr, err.Error())
	}
	e := &examination{over: *over}
	var config *fileConfig
	if *file != "" {
		config = e.load(*file)
	}
	switch {
	case e.Exit != exitOK:
	case public.address != "":
		public.examine(e, config)
		config = nil // what it says is not asked for
	default:
		e.examine(config)
	}
	return e.print(config, *asJSON, stdout, stderr)
}

// load reads the configuration as serve would; nil: it cannot be served.
func (e *examination) load(file string) *fileConfig {
	config, err := loadServable(file)
	if err != nil {
		e.fail(exitConfig, "configuration", "correct the file", "%v", err)
		return nil
	}
	e.ok("configuration", "%s is valid", file)
	return config
}

// print writes the configuration, unless that is nil, and the checks.
func (e *examination) print(config *fileConfig, asJSON bool, stdout, stderr io.Writer) int {
	if asJSON {
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
		sync, seen := 0, true
		for _, target := range u.Targets() {
			workers := e.askTarget(name, target)
			sync, seen = sync+workers, seen && workers > 0
		}
		u.Close()
		if !seen {
			sync = 0
		}
		e.compareSlots(config, name, sync)
	}
	for _, address := range config.Listen {
		e.port(config, "listen", address.Address)
	}
	if admin := config.Admin.Listen.Address; admin != "" {
		e.port(config, "admin.listen", admin)
	}
	if publish := config.Publish.Listen.Address; publish != "" {
		e.port(config, "publish.listen", publish)
	}
	e.certificates(config)
	e.ownPaths(config)
	e.messagePaths(config)
	e.directories(config)
	e.descriptors(config)
	e.memory(config)
	e.spool(config)
	e.bus(config)
	e.roundTrip(config)
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
	if admin := config.Admin.Listen.Address; parsed.network == "tcp" && admin != "" {
		at, err := parseListen(admin)
		if err == nil && e.answersHealth(config.Admin) && sameHolder(parsed.address, at.address) {
			e.ok(check, "is held by a Holdfast that answers at %s", admin)
			return
		}
	}
	held := ""
	if parsed.network == "tcp" {
		held = holderOf(parsed.address)
	}
	e.fail(exitFailed, check, "change "+key+", or end what holds it", "is held by another process%s", held)
}

// answersHealth reports whether a Holdfast answers at an admin address. Where TLS asks for a certificate that the doctor
// was not given, that it asks is answer enough.
func (e *examination) answersHealth(l keyedListener) bool {
	admin, err := controlOf(l, "", "--admin", &e.over)
	if err != nil {
		return false
	}
	status, _, err := admin.ask(http.MethodGet, "/health")
	if err != nil {
		return l.Listen.asksClients() && e.over.cert == "" && hintTLS(err) != "" && !errors.Is(err, errOtherCertificate)
	}
	return status == http.StatusOK
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
