package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The help desk of testdata/mixed, one project served by gunicorn and uvicorn
// at once, behind the config.yaml that lies beside it.

const mixedDir = "../../testdata/mixed"

// desk is the help desk's two servers.
type desk struct {
	wsgi, asgi *app
	jobs       string // the folder where jobs and gated streams look for their files
}

// startDesk starts both servers and waits until they listen.
func startDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{jobs: t.TempDir()}
	d.wsgi, d.asgi = d.newWSGI(t, freeAddress(t)), d.newASGI(t, freeAddress(t))
	d.wsgi.start()
	d.asgi.start()
	eventuallyListens(t, d.wsgi.addr)
	eventuallyListens(t, d.asgi.addr)
	return d
}

func (d *desk) newWSGI(t *testing.T, addr string) *app {
	return d.newServer(t, addr, "gunicorn", "-b", addr, "-w", "1", "--threads", "8", "helpdesk.wsgi")
}

func (d *desk) newASGI(t *testing.T, addr string) *app {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return d.newServer(t, addr, "uvicorn", "--host", host, "--port", port, "--log-level", "warning", "helpdesk.asgi:application")
}

func (d *desk) newServer(t *testing.T, addr string, args ...string) *app {
	a := &app{t: t, addr: addr, ledger: filepath.Join(t.TempDir(), "ledger"), dir: mixedDir, args: append([]string{"-m"}, args...)}
	a.env = append(os.Environ(), "LEDGER="+a.ledger, "JOBS_DIR="+d.jobs, "PYTHONDONTWRITEBYTECODE=1")
	t.Cleanup(func() {
		if a.cmd != nil {
			a.kill()
		}
		if t.Failed() && a.output != nil {
			t.Logf("%s:\n%s", args[0], a.output)
		}
	})
	return a
}

// allow leaves a job's file, or lets a gated stream send one event more.
func (d *desk) allow(t *testing.T, name string) {
	t.Helper()
	file, err := os.OpenFile(filepath.Join(d.jobs, name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteString("."); err != nil {
		t.Fatal(err)
	}
}

// environment is what config.yaml is told: where the two servers are.
func environment(wsgi, asgi *app) map[string]string {
	return map[string]string{"MIXED_PORT": "0", "MIXED_ADMIN_PORT": "0", "MIXED_PUBLISH_PORT": "0", "MIXED_WSGI": wsgi.addr, "MIXED_ASGI": asgi.addr}
}

func (d *desk) environ() (env []string) {
	for name, value := range environment(d.wsgi, d.asgi) {
		env = append(env, name+"="+value)
	}
	return env
}

// startExample serves the example's own config.yaml until the test ends.
// more are further variables of it, NAME=VALUE.
func startExample(t *testing.T, wsgi, asgi *app, more ...string) (h *holdfast, log *syncBuffer) {
	t.Helper()
	env := environment(wsgi, asgi)
	for _, variable := range more {
		name, value, _ := strings.Cut(variable, "=")
		env[name] = value
	}
	config, err := loadConfig(filepath.Join(mixedDir, "config.yaml"), func(name string) (string, bool) {
		value, ok := env[name]
		return value, ok
	})
	if err != nil {
		t.Fatal(err)
	}
	log = new(syncBuffer)
	logger, access, err := newLoggers(config.Log, log)
	if err != nil {
		t.Fatal(err)
	}
	if h, err = start(config, nil, logger, access); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		h.stopAll(5 * time.Second)
		if t.Failed() {
			lines := strings.SplitAfter(log.String(), "\n")
			t.Logf("the end of holdfast's log:\n%s", strings.Join(lines[max(0, len(lines)-30):], ""))
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := h.awaitReady(ctx); err != nil || ctx.Err() != nil {
		t.Fatal("not ready:", err, ctx.Err())
	}
	return h, log
}

func (d *desk) serve(t *testing.T) *holdfast {
	t.Helper()
	h, _ := startExample(t, d.wsgi, d.asgi)
	return h
}

// inUse is how many slots of a lane are taken.
func inUse(h *holdfast, lane string) int { return h.wiring.Load().lanes[lane].Snapshot().InUse }

// addrOf is where Holdfast listens.
func addrOf(h *holdfast) string { return h.listeners[0].Addr().String() }

// builtBinary is the binary as it is built for use: static, and without the
// race detector, whose memory would be measured in its place. Its file has no
// name any more; the descriptor is open as long as the tests run.
var builtBinary = sync.OnceValues(func() (*os.File, error) {
	dir, err := os.MkdirTemp("", "holdfast-built-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "holdfast")
	build := exec.Command("go", "build", "-o", path, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	return os.Open(path)
})

// startBinary starts the built binary, and waits until it is ready.
func startBinary(t *testing.T, config string, env ...string) *command {
	t.Helper()
	c := runBinary(t, config, env...)
	eventually(t, "holdfast to be ready", func() bool {
		status, _, err := get(context.Background(), onceClient(), "http://"+c.addr+"/ready")
		return err == nil && status == 200
	})
	return c
}

// runBinary starts the built binary, and waits until it listens.
func runBinary(t *testing.T, config string, env ...string) *command {
	t.Helper()
	binary, err := builtBinary()
	if err != nil {
		t.Fatal(err)
	}
	c := &command{Cmd: exec.Command(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), binary.Fd()), "serve", "-c", config),
		log: new(syncBuffer), ended: make(chan error, 1)}
	c.Env = append(os.Environ(), env...)
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
	return c
}

// memoryKiB is a figure of /proc/PID/status, in KiB: VmRSS, or VmHWM, the most
// that VmRSS has been.
func (c *command) memoryKiB(t *testing.T, name string) (kib int64) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(status), "\n"+name+":")
	if _, err := fmt.Sscan(rest, &kib); !found || err != nil {
		t.Fatalf("no %s: %v", name, err)
	}
	return kib
}

// descriptors is how many descriptors the process has open.
func (c *command) descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", c.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// Dead peers: a network in which a link can be cut.

// netns is a network namespace of this test.
type netns struct {
	name string
	file *os.File
}

func ip(args ...string) error {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// newNetns makes a namespace with a loopback of its own, or skips.
func newNetns(t *testing.T, role string) *netns {
	t.Helper()
	n := &netns{name: fmt.Sprintf("holdfast-%d-%s", os.Getpid(), role)}
	if err := ip("netns", "add", n.name); err != nil {
		t.Skip("no network namespaces here:", err)
	}
	t.Cleanup(func() { ip("netns", "del", n.name) })
	var err error
	if n.file, err = os.Open("/run/netns/" + n.name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.file.Close() })
	n.ip(t, "link", "set", "lo", "up")
	return n
}

func (n *netns) ip(t *testing.T, args ...string) {
	t.Helper()
	if err := ip(append([]string{"-n", n.name}, args...)...); err != nil {
		t.Fatal(err)
	}
}

// link joins n and peer by a cable: n is .1 of the network, the peer .2.
func (n *netns) link(t *testing.T, peer *netns, network, name string) {
	t.Helper()
	n.ip(t, "link", "add", name, "type", "veth", "peer", "name", name, "netns", peer.name)
	for i, end := range []*netns{n, peer} {
		end.ip(t, "addr", "add", fmt.Sprintf("%s.%d/24", network, i+1), "dev", name)
		end.ip(t, "link", "set", name, "up")
	}
}

// run runs do on a thread of the namespace: what it opens and starts is there.
func (n *netns) run(t *testing.T, do func()) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer home.Close()
	if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
		t.Skip("namespaces cannot be entered here:", err)
	}
	defer func() { // also where do ends the test
		if err := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); err != nil {
			panic(err) // this thread would go on in the wrong network
		}
	}()
	do()
}

// dial connects from within the namespace.
func (n *netns) dial(t *testing.T, addr string) (conn net.Conn, err error) {
	n.run(t, func() { conn, err = net.DialTimeout("tcp", addr, 2*time.Second) })
	return conn, err
}

// get asks from within the namespace.
func (n *netns) get(t *testing.T, url string) (status int, body []byte, err error) {
	address := strings.TrimPrefix(url, "http://")
	address, _, _ = strings.Cut(address, "/")
	conn, err := n.dial(t, address)
	if err != nil {
		return 0, nil, err
	}
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil }}}
	return get(context.Background(), client, url)
}

// deadPeers is a desk and a Holdfast of which one client and one of two apps
// are behind cables.
type deadPeers struct {
	near, client, far *netns // Holdfast's own, the client's, the app's
	nearApp, farApp   *app
	holdfast          *command
}

const deadPeersConfig = `
listen: "0.0.0.0:20080"
admin: {listen: ""}
publish: {listen: ""}
upstreams:
  near: {targets: ["http://127.0.0.1:20081"]}
  far:  {targets: ["http://10.231.2.2:20082"]}
lanes:
  near: {upstream: near, kind: stream, slots: 10}
  far:  {upstream: far, kind: stream, slots: 10}
routes:
  - {match: near/, lane: near}
  - {match: far/, lane: far}
`

func startDeadPeers(t *testing.T) *deadPeers {
	t.Helper()
	p := &deadPeers{near: newNetns(t, "near"), client: newNetns(t, "client"), far: newNetns(t, "far")}
	p.near.link(t, p.client, "10.231.1", "toclient")
	p.near.link(t, p.far, "10.231.2", "tofar")
	d := &desk{jobs: t.TempDir()}
	p.nearApp, p.farApp = d.newASGI(t, "127.0.0.1:20081"), d.newASGI(t, "10.231.2.2:20082")
	p.near.run(t, p.nearApp.start)
	p.far.run(t, p.farApp.start)
	config := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(config, []byte(deadPeersConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	p.near.run(t, func() { p.holdfast = runBinary(t, config) })
	eventually(t, "holdfast to be ready", func() bool {
		status, _, err := p.near.get(t, "http://127.0.0.1:20080/ready")
		return err == nil && status == 200
	})
	return p
}

// open opens a stream or a tunnel from one namespace and waits for its first bytes.
func (p *deadPeers) open(t *testing.T, from *netns, addr, host, path, fields string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := from.dial(t, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\n%s\r\n", path, host, fields)
	reader := bufio.NewReader(conn)
	line, err := reader.ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "HTTP/1.1 200") && !strings.HasPrefix(line, "HTTP/1.1 101") {
		t.Fatalf("%s%s: %q %v", host, path, line, err)
	}
	for line != "\r\n" {
		if line, err = reader.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	return conn, reader
}

// The three ways in which a connection can be silent: nobody sends anything,
// the app sends to a client that is gone, and a tunnel.
var deadPeerPaths = map[string]struct{ path, fields string }{
	"quiet stream":   {"/rt/gated", ""},
	"ticking stream": {"/rt/ticks?ms=100", ""},
	"tunnel":         {"/rt/echo", upgradeFields},
}

func TestDeadPeer_ASilentOneOnEitherSideIsGoneWithinAMinute(t *testing.T) {
	if os.Getenv("HOLDFAST_FULL") == "" {
		t.Skip("takes a minute: set HOLDFAST_FULL=1")
	}
	t.Parallel()
	p := startDeadPeers(t)
	const slack = 5 * time.Second // of this machine, not of Holdfast
	type side struct {
		name string
		conn net.Conn
		in   *bufio.Reader
	}
	var ofFar []side // clients whose app will be cut off
	for name, way := range deadPeerPaths {
		p.open(t, p.client, "10.231.1.1:20080", "near", way.path, way.fields) // will be cut off
		conn, in := p.open(t, p.near, "127.0.0.1:20080", "far", way.path, way.fields)
		ofFar = append(ofFar, side{name, conn, in})
	}
	// The negative arm: a tunnel of which nothing is cut.
	whole, wholeIn := p.open(t, p.near, "127.0.0.1:20080", "near", "/rt/echo?whole", upgradeFields)
	gone := func() int { return len(deadPeerPaths) + 1 - p.nearApp.running("/rt/") }
	eventually(t, "the app to run them", func() bool { return gone() == 0 })

	cut := time.Now()
	p.client.ip(t, "link", "set", "toclient", "down")
	p.far.ip(t, "link", "set", "tofar", "down")
	var ends sync.WaitGroup
	for _, s := range ofFar {
		ends.Go(func() {
			s.conn.SetReadDeadline(cut.Add(time.Minute + slack))
			_, err := io.Copy(io.Discard, s.in)
			t.Logf("%s: the client of the dead app was told after %v (%v)", s.name, time.Since(cut).Round(time.Second), err)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: its app is dead, and the client still waits", s.name)
			}
		})
	}
	for gone() < len(deadPeerPaths) && time.Since(cut) < time.Minute+slack {
		poll()
	}
	ends.Wait()
	for name, way := range deadPeerPaths {
		if p.nearApp.running(way.path) > 0 && way.path != "/rt/echo" || way.path == "/rt/echo" && p.nearApp.running("/rt/echo") > 1 {
			t.Errorf("%s: its client is dead, and the app still runs it %v later", name, time.Since(cut).Round(time.Second))
		}
	}
	t.Logf("the app was told of its dead clients within %v", time.Since(cut).Round(time.Second))
	if _, err := whole.Write(clientFrame(0x1, "still here")); err != nil {
		t.Fatal(err)
	}
	if got, err := readFrame(wholeIn); err != nil || got != "still here" {
		t.Errorf("the tunnel that was not cut: %q %v", got, err)
	}
}
