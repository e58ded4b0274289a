package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What examples/kubernetes and the Dockerfile say is done here with the built
// binary, as far as it can be without a cluster and without Docker.

// inPod is a pod's configuration for this machine: the app elsewhere, ports of
// its own, and a shorter delay.
func inPod(t *testing.T, app, listen, admin, spool string) string {
	t.Helper()
	return replaced(t, podConfig(t), `":8080"`, `"`+listen+`"`, `"127.0.0.1:5561"`, `"127.0.0.1:0"`, `":5562"`, `"`+admin+`"`,
		"http://127.0.0.1:8000", "http://"+app, "dir: /var/spool/holdfast", "dir: "+spool, "delay: 5s", "delay: 2s", "access: true", "access: false")
}

// pod is the deployment's pod on this machine: its sidecar and its app, with
// the kubelet's part played by the test.
type pod struct {
	holdfast, container *exampleContainer
	c                   *command
	a                   *app
	base, config, admin string
}

// startPod starts the sidecar, then the app, and waits until the pod is ready.
func startPod(t *testing.T) *pod {
	t.Helper()
	p := &pod{a: newApp(t, "django", nil), admin: freeAddress(t), config: filepath.Join(t.TempDir(), "config.yaml")}
	_, p.holdfast, p.container = readPod(t)
	p.a.args = append([]string{"-m"}, p.container.Command...)
	p.a.args[slices.Index(p.a.args, "-b")+1] = p.a.addr
	if err := os.WriteFile(p.config, []byte(inPod(t, p.a.addr, "127.0.0.1:0", p.admin, t.TempDir())), 0o600); err != nil {
		t.Fatal(err)
	}
	p.c = runBinary(t, p.config)
	p.base = "http://" + p.c.addr
	wantGet(t, onceClient(), p.base+p.holdfast.StartupProbe.HTTPGet.Path) // the app is started when this is a 200
	p.a.start()
	eventually(t, "the pod to be ready", func() bool { return p.ready(t) == 200 })
	return p
}

// ready is what the readiness probe gets.
func (p *pod) ready(t *testing.T) int {
	t.Helper()
	status, _, err := get(t.Context(), onceClient(), p.base+p.holdfast.ReadinessProbe.HTTPGet.Path)
	if err != nil {
		t.Fatal(err)
	}
	return status
}

// startHook starts the sidecar's hook, and says when it has ended.
func (p *pod) startHook(t *testing.T) <-chan error {
	t.Helper()
	hook := p.holdfast.hook()
	if len(hook) < 2 || hook[0] != "/holdfast" {
		t.Fatalf("the sidecar's hook: %q", hook)
	}
	ended := make(chan error, 1)
	command := builtCommand(t, []string{p.holdfast.Env[0].Name + "=" + p.config}, hook[1:]...)
	go func() { _, err := command.Output(); ended <- err }()
	return ended
}

// startAppHook starts the app's hook, and says when it has ended.
func (p *pod) startAppHook(t *testing.T) <-chan error {
	t.Helper()
	_, port, _ := net.SplitHostPort(p.admin)
	words := strings.ReplaceAll(strings.Join(p.container.hook(), "\x00"), "5562", port)
	script := strings.Split(replaced(t, words, "python3\x00", "/usr/bin/python3\x00"), "\x00")
	ended := make(chan error, 1)
	go func() { _, err := exec.Command(script[0], script[1:]...).Output(); ended <- err }()
	return ended
}

// At the end of a pod the kubelet runs all hooks at once; here the sidecar's is
// first, to see what it does. The app gets SIGTERM when its hook has ended.
func TestExamples_APodThatEndsAnswersAllUntilHoldfastHasDrained(t *testing.T) {
	t.Parallel()
	p := startPod(t)
	long := make(chan attempt, 1)
	go func() { long <- ask(onceClient(), "GET", p.base, "/slow?ms=4000") }()
	eventually(t, "a long request to run", func() bool { return p.a.running("/slow") == 1 })
	hook := p.startHook(t)
	eventually(t, "the sidecar's hook to begin the drain", func() bool { return p.ready(t) == 503 })
	appHook := p.startAppHook(t)
	// A node that has not heard yet: whoever is let in is answered by the app.
	answered := 0
	for ; ; answered++ {
		one := ask(onceClient(), "GET", p.base, "/fast")
		if one.err != nil {
			break
		} else if one.status != 200 {
			t.Fatalf("request %d of the drain: %d", answered, one.status)
		}
		poll()
	}
	if answered < 5 {
		t.Errorf("%d requests answered during the delay", answered)
	}
	select {
	case err := <-appHook:
		t.Fatalf("the app's hook ended (%v) while a request ran", err)
	case one := <-long:
		if one.status != 200 || one.err != nil {
			t.Errorf("the long request: %d %v", one.status, one.err)
		}
	}
	if err := <-appHook; err != nil {
		t.Errorf("the app's hook: %v", err)
	}
	if err := <-hook; err != nil {
		t.Errorf("the sidecar's hook: %v", err)
	}
	syscall.Kill(p.a.cmd.Process.Pid, syscall.SIGTERM)
	if err := <-p.a.ended; err != nil {
		t.Errorf("the app: %v", err)
	}
	p.a.ended <- nil
	p.c.wantExit(t, exitOK)
	p.c.wantNothingNamed(t)
}

// Where Holdfast is not there any more, as in a pod whose sidecar crashes, the
// app's end is not held up.
func TestExamples_TheAppsHookDoesNotWaitForAHoldfastThatIsNotThere(t *testing.T) {
	t.Parallel()
	_, _, container := readPod(t)
	_, port, _ := net.SplitHostPort(freeAddress(t))
	hook := slices.Clone(container.hook())
	hook[2] = strings.ReplaceAll(hook[2], "5562", port)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "/usr/bin/python3", hook[1:]...).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v %s", err, out)
	}
}

// dockerfile finds the one line of the Dockerfile that begins with an instruction, in its last stage.
func dockerfile(t *testing.T, instruction string) string {
	t.Helper()
	text := readFile(t, "../../Dockerfile")
	last := text[strings.LastIndex(text, "\nFROM "):]
	_, rest, found := strings.Cut(last, "\n"+instruction+" ")
	line, after, _ := strings.Cut(rest, "\n")
	if !found || strings.Contains(after, "\n"+instruction+" ") {
		t.Fatalf("want one %s in\n%s", instruction, last)
	}
	return line
}

// imageRoot lays out the root of the image, with what the deployment mounts in
// it: the image itself cannot be built here.
func imageRoot(t *testing.T, app string) (root, entry, variable string) {
	t.Helper()
	binary, err := builtBinary()
	if err != nil {
		t.Fatal(err)
	}
	_, holdfast, _ := readPod(t)
	name, config, _ := strings.Cut(dockerfile(t, "ENV"), "=")
	if e := holdfast.Env; len(e) != 1 || e[0].Name != name || e[0].Value != config {
		t.Errorf("the deployment's variables are %v, the image's %s=%s", e, name, config)
	}
	var entries []string
	if err := json.Unmarshal([]byte(dockerfile(t, "ENTRYPOINT")), &entries); err != nil || len(entries) != 1 {
		t.Fatalf("ENTRYPOINT %q: %v", entries, err)
	}
	root, entry = t.TempDir(), entries[0]
	text := inPod(t, app, "127.0.0.1:0", "127.0.0.1:0", "/var/spool/holdfast")
	program, err := io.ReadAll(io.NewSectionReader(binary, 0, 1<<30))
	for path, content := range map[string][]byte{entry: program, config: []byte(text), "/var/spool/holdfast/x": nil} {
		err = errors.Join(err, os.MkdirAll(filepath.Dir(root+path), 0o755), os.WriteFile(root+path, content, 0o755))
	}
	if err != nil {
		t.Fatal(err)
	}
	return root, entry, name + "=" + config
}

func TestExamples_TheImageServesAsItsUserOnARootThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("a root of its own needs root here")
	}
	app := httptest.NewServer(http.HandlerFunc(besiegedApp))
	t.Cleanup(app.Close)
	root, entry, variable := imageRoot(t, app.Listener.Addr().String())
	// The mounts are those of the process alone, and end with it.
	mounts := `mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && mount -t tmpfs -o mode=1777 tmpfs "$0/var/spool/holdfast"`
	if out, err := exec.Command("unshare", "--mount", "sh", "-c", mounts, root).CombinedOutput(); err != nil {
		t.Skipf("nothing may be mounted here: %v %s", err, out)
	}
	script := mounts + ` && exec chroot --userspec="$1" --groups= "$0" "$2"`
	c := &command{Cmd: exec.Command("unshare", "--mount", "sh", "-c", script, root, dockerfile(t, "USER"), entry), log: new(syncBuffer), ended: make(chan error, 1)}
	c.Env = []string{variable}
	c.startLogged(t)
	c.eventuallySays(t, "ready")
	status := readFile(t, fmt.Sprintf("/proc/%d/status", c.Process.Pid))
	for _, line := range []string{"\nUid:\t65532\t65532\t65532\t65532\n", "\nCapEff:\t0000000000000000\n"} {
		if !strings.Contains(status, line) {
			t.Errorf("it does not run as the deployment's user, without privileges: %q is not in %s", line, status)
		}
	}
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/root/x", c.Process.Pid), nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("its root can be written to: %v", err)
	}
	// More than is kept in memory of one: the spool is there and may be written to.
	if err := (&besieged{c, t}).ask(newClient(t), "POST", "/form", strings.Repeat("x", 2<<20)); err != nil {
		t.Error(err)
	}
	if n := metric(t, c.admin(t), "holdfast_spool_refused_total"); n != 0 {
		t.Errorf("the spool refused %v times", n)
	}
	c.signal(t, unix.SIGTERM)
	c.wantExit(t, exitOK)
}

// startLogged starts a command that serves, and waits until it listens.
func (c *command) startLogged(t *testing.T) {
	t.Helper()
	stderr, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Process.Kill()
		<-c.ended
		if t.Failed() {
			t.Logf("holdfast:\n%s", c.log)
		}
	})
	go c.readLog(stderr)
	eventually(t, "holdfast to listen", func() bool { c.addr = c.listening(); return c.addr != "" })
}

var buildFlags = regexp.MustCompile(`CGO_ENABLED=0 GOOS=\S+ GOARCH=\S+\s+\\\s+go build (.*) -o \S+ \./cmd/holdfast`)

func TestExamples_TheImagesBinaryIsBuiltAsTheReleases(t *testing.T) {
	found := map[string]string{}
	for _, name := range []string{"Makefile", "Dockerfile"} {
		match := buildFlags.FindStringSubmatch(readFile(t, "../../"+name))
		if match == nil {
			t.Fatalf("%s builds nothing", name)
		}
		found[name] = strings.NewReplacer("$(VERSION)", "$VERSION", "$$", "$").Replace(match[1])
	}
	if found["Makefile"] != found["Dockerfile"] {
		t.Errorf("built with different flags: %q", found)
	}
	language := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(readFile(t, "../../go.mod"))
	if language == nil || !strings.Contains(readFile(t, "../../Dockerfile"), " golang:"+language[1]+" AS build\n") {
		t.Errorf("the image is not built with go.mod's Go %q", language)
	}
}
