package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// doctor runs the command in this process.
func doctor(t *testing.T, path string, flags ...string) (code int, out string) {
	t.Helper()
	stdout, stderr := new(bytes.Buffer), new(bytes.Buffer)
	code = run(append([]string{"doctor", "-c", path}, flags...), stdout, stderr)
	if stderr.Len() > 0 {
		t.Errorf("on stderr: %s", stderr)
	}
	return code, stdout.String()
}

// examined is doctor with --json.
func examined(t *testing.T, path string) (e examination) {
	t.Helper()
	code, out := doctor(t, path, "--json")
	decoder := json.NewDecoder(strings.NewReader(out))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&e); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if e.Exit != code {
		t.Errorf("exit code %d, %d in the JSON", code, e.Exit)
	}
	for _, c := range e.Checks {
		if !slices.Contains([]string{"ok", "warn", "fail"}, c.Result) || c.Name == "" || c.Found == "" {
			t.Errorf("%+v", c)
		}
		if c.Result == "fail" && c.Fix == "" {
			t.Errorf("%+v names no way out", c)
		}
	}
	return e
}

// wantCheck: one of the checks has this name, this result and says this.
func (e examination) wantCheck(t *testing.T, name, result, found string) check {
	t.Helper()
	for _, c := range e.Checks {
		if c.Name == name && c.Result == result && strings.Contains(c.Found, found) {
			return c
		}
	}
	t.Errorf("no check %s: %s %q in %+v", name, result, found, e.Checks)
	return check{}
}

// worst is the checks' worst result.
func (e examination) worst() (worst string) {
	for _, result := range []string{"ok", "warn", "fail"} {
		if slices.ContainsFunc(e.Checks, func(c check) bool { return c.Result == result }) {
			worst = result
		}
	}
	return worst
}

const doctorLanes = `
upstreams: {app: {targets: ["http://%s"], concurrency: %d}}
lanes: {web: {upstream: app, slots: 4}}
routes: [{match: "/", lane: web}]
`

// doctorFile is a configuration with addresses of its own.
func doctorFile(t *testing.T, listen, admin, target string, concurrency int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	const small = "limits: {connections: 200, spool: {bytes: 0}}\n" // whatever limits the machine has
	replaceFile(t, path, fmt.Sprintf("listen: %q\npublish: {listen: \"\"}\nadmin: {listen: %q, keys: [a-secret-key]}\n"+small+doctorLanes, listen, admin, target, concurrency))
	return path
}

// wantServe: the command with this file ends with the code by itself and says
// why in one sentence, or, where the code is 0, is ready.
func wantServe(t *testing.T, path string, code int) {
	t.Helper()
	if code == exitOK {
		startCommand(t, path).eventuallySays(t, "ready")
		return
	}
	c := exec.Command(os.Args[0], "serve", "-c", path)
	c.Env = append(os.Environ(), asCommand+"=1")
	out, err := c.CombinedOutput()
	if got := c.ProcessState.ExitCode(); got != code || bytes.Count(out, []byte("\n")) != 1 {
		t.Errorf("serve: %v, want exit %d and one sentence: %.600s", err, code, out)
	}
}

func TestDoctor_OfWhatServesFindsNothingAndBindsNothing(t *testing.T) {
	t.Parallel()
	a := startOnPort(t, "django", nil, "site_wsgi:application", "-w", "1", "--threads", "4")
	eventually(t, "the app to answer", func() bool { return ask(onceClient(), "GET", "http://"+a.addr, "/fast").ok() })
	listen, admin := freeAddress(t), freeAddress(t)
	path := doctorFile(t, listen, admin, a.addr, 4)
	e := examined(t, path)
	if e.Exit != exitOK || e.worst() != "ok" {
		t.Errorf("%+v, want nothing but ok", e)
	}
	target := "target http://" + a.addr
	e.wantCheck(t, "configuration", "ok", path)
	e.wantCheck(t, target, "ok", "answers")
	e.wantCheck(t, target, "ok", "keep-alive")
	e.wantCheck(t, "upstream app", "ok", "4 slots")
	e.wantCheck(t, "listen "+listen, "ok", "free")
	e.wantCheck(t, "admin.listen "+admin, "ok", "free")
	e.wantCheck(t, "descriptors", "ok", "may be open")
	code, out := doctor(t, path)
	if code != exitOK || !strings.Contains(out, "queue_timeout: 10s") || !strings.Contains(out, "ok    listen "+listen) {
		t.Errorf("exit %d, not the resolved configuration and the checks:\n%s", code, out)
	}
	if strings.Contains(out, "a-secret-key") {
		t.Errorf("shows a key:\n%s", out)
	}
	for _, address := range []string{listen, admin} {
		if conn, err := net.Dial("tcp", address); err == nil {
			conn.Close()
			t.Errorf("%s is listened on after the doctor has ended", address)
		}
	}
	wantServe(t, path, exitOK)
}

// The doctor asks a target once: a health path may be dear, and an app that is
// slow to answer has a queue of its own.
func TestDoctor_AsksEachTargetOnce(t *testing.T) {
	t.Parallel()
	a := startOnPort(t, "django", nil, "site_wsgi:application", "-w", "3", "--threads", "2")
	eventually(t, "the app to answer", func() bool { return ask(onceClient(), "GET", "http://"+a.addr, "/fast").ok() })
	before := len(a.views())
	examined(t, doctorFile(t, freeAddress(t), freeAddress(t), a.addr, 4))
	if n := len(a.views()) - before; n != 1 {
		t.Errorf("asked %d times", n)
	}
}

func TestDoctor_LeavesUnixSocketsAsTheyAre(t *testing.T) {
	t.Parallel()
	listen := filepath.Join(t.TempDir(), "listen.sock")
	path := doctorFile(t, "unix:"+listen, freeAddress(t), freeAddress(t), 4)
	if e := examined(t, path); e.Exit != exitOK {
		t.Errorf("%+v", e)
	}
	if _, err := os.Lstat(listen); err == nil {
		t.Error("a socket is left")
	}
	// One that a process left behind: serve replaces it, the doctor looks.
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: listen, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	ln.Close()
	if e := examined(t, path); e.Exit != exitOK {
		t.Errorf("%+v", e)
	}
	if _, err := os.Lstat(listen); err != nil {
		t.Errorf("the socket that was there is gone: %v", err)
	}
}

func TestDoctor_AnInvalidFileIs78AsForServe(t *testing.T) {
	t.Parallel()
	for name, yaml := range map[string]string{
		"Invalid":   strings.Replace(doctorLanes, "slots", "slotz", 1),
		"NotServed": doctorLanes + "admin: {listen: {address: \"127.0.0.1:0\", tls: {cert: /no/such/file, key: /no/such/file}}}\n",
		"Missing":   "",
	} {
		path := filepath.Join(t.TempDir(), "config.yaml")
		if yaml != "" {
			replaceFile(t, path, fmt.Sprintf(yaml, "127.0.0.1:1", 4))
		}
		e := examined(t, path)
		if c := e.wantCheck(t, "configuration", "fail", path); e.Exit != exitConfig || len(e.Checks) != 1 {
			t.Errorf("%s: %+v %+v", name, e, c)
		}
		wantServe(t, path, exitConfig)
		if code, out := doctor(t, path); code != exitConfig || !strings.HasPrefix(out, "fail  configuration: ") {
			t.Errorf("%s: exit %d %q", name, code, out)
		}
	}
}

func TestDoctor_APortThatSomebodyHoldsIs1AsForServe(t *testing.T) {
	t.Parallel()
	a := startOnPort(t, "django", nil, "site_wsgi:application", "-w", "1", "--threads", "4")
	eventuallyListens(t, a.addr)
	for _, key := range []string{"listen", "admin.listen"} {
		listen, admin := a.addr, freeAddress(t)
		if key == "admin.listen" {
			listen, admin = admin, listen
		}
		path := doctorFile(t, listen, admin, a.addr, 4)
		e := examined(t, path)
		c := e.wantCheck(t, key+" "+a.addr, "fail", "held by python3")
		if c.Found != "" && !strings.Contains(c.Found, fmt.Sprint("process ", a.cmd.Process.Pid)) {
			t.Errorf("%q does not name the process %d", c.Found, a.cmd.Process.Pid)
		}
		if e.Exit != exitFailed {
			t.Errorf("exit %d", e.Exit)
		}
		wantServe(t, path, exitFailed)
	}
}

func TestDoctor_APortThatTheRunningHoldfastHoldsIsOk(t *testing.T) {
	t.Parallel()
	a := startOnPort(t, "django", nil, "site_wsgi:application", "-w", "1", "--threads", "4")
	listen, admin := freeAddress(t), freeAddress(t)
	path := doctorFile(t, listen, admin, a.addr, 4)
	c := startCommand(t, path)
	c.eventuallySays(t, "ready")
	e := examined(t, path)
	e.wantCheck(t, "listen "+listen, "ok", "Holdfast")
	e.wantCheck(t, "admin.listen "+admin, "ok", "Holdfast")
	if e.Exit != exitOK || e.worst() != "ok" {
		t.Errorf("%+v", e)
	}
	// The negative arm: a Holdfast elsewhere does not excuse a port that
	// somebody else holds.
	e = examined(t, doctorFile(t, a.addr, admin, a.addr, 4))
	e.wantCheck(t, "listen "+a.addr, "fail", "held by python3")
	if e.Exit != exitFailed {
		t.Errorf("exit %d although gunicorn holds %s", e.Exit, a.addr)
	}
	if !ask(onceClient(), "GET", "http://"+listen, "/fast").ok() {
		t.Error("the running one does not serve any more")
	}
}

func TestDoctor_SuspectsSeveralProcessesBehindOnePort(t *testing.T) {
	t.Parallel()
	for name, shape := range map[string]struct {
		args    []string
		suspect bool
	}{
		"ThreeProcessesWithThreads": {[]string{"-w", "3", "--threads", "2"}, true},
		"OneProcessWithThreads":     {[]string{"-w", "1", "--threads", "6"}, false},
		"ThreeSyncWorkers":          {[]string{"-w", "3"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := startOnPort(t, "django", nil, append([]string{"site_wsgi:application"}, shape.args...)...)
			eventually(t, "all to be there", func() bool {
				want := 1
				if name != "OneProcessWithThreads" {
					want = 3
				}
				return workersOn(a.addr) == want && ask(onceClient(), "GET", "http://"+a.addr, "/fast").ok()
			})
			e := examined(t, doctorFile(t, freeAddress(t), freeAddress(t), a.addr, 4))
			if e.Exit != exitOK {
				t.Errorf("exit %d: a warning is no failure", e.Exit)
			}
			target := "target http://" + a.addr
			if shape.suspect {
				if c := e.wantCheck(t, target, "warn", "3 worker processes"); !strings.Contains(c.Fix, "upstreams.app.targets") {
					t.Errorf("the fix is %q", c.Fix)
				}
				return
			}
			for _, c := range e.Checks { // three workers have less than its four slots: that alone is said
				if c.Result != "ok" && (name != "ThreeSyncWorkers" || c.Name != "upstream app") {
					t.Errorf("%+v", c)
				}
			}
			if name == "ThreeSyncWorkers" {
				e.wantCheck(t, "upstream app", "warn", "4 slots on 3 sync workers")
				e.wantCheck(t, target, "ok", "sync workers")
			}
		})
	}
}

func TestDoctor_ATargetThatIsDownIsAWarningAndIsNotAwaited(t *testing.T) {
	t.Parallel()
	target := freeAddress(t)
	path := doctorFile(t, freeAddress(t), freeAddress(t), target, 8)
	began := time.Now()
	e := examined(t, path)
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("took %v", took)
	}
	if c := e.wantCheck(t, "target http://"+target, "warn", "refused"); !strings.Contains(c.Fix, "upstreams.app.targets") {
		t.Errorf("the fix is %q", c.Fix)
	}
	e.wantCheck(t, "upstream app", "warn", "4 slots") // of 8
	if e.Exit != exitOK {
		t.Errorf("exit %d", e.Exit)
	}
}

// Neither is one that takes connections and says nothing.
func TestDoctor_ATargetThatStandsStillIsAWarning(t *testing.T) {
	t.Parallel()
	a := startOnPort(t, "django", nil, "site_wsgi:application", "-w", "1", "--threads", "4")
	eventually(t, "the app to answer", func() bool { return ask(onceClient(), "GET", "http://"+a.addr, "/fast").ok() })
	a.stop()
	defer a.goOn()
	e := examined(t, doctorFile(t, freeAddress(t), freeAddress(t), a.addr, 4))
	if c := e.wantCheck(t, "target http://"+a.addr, "warn", "did not answer"); e.Exit != exitOK || c.Fix == "" {
		t.Errorf("%+v", e)
	}
}
