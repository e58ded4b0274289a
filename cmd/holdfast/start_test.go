package main

import (
	"bufio"
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
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
)

// All lanes or none: what serve does until every target has answered once.

// asCommand set, the test binary is the holdfast binary.
const asCommand = "HOLDFAST_TEST_AS_COMMAND"

func init() {
	if os.Getenv(asCommand) != "" {
		os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
	}
}

// syncBuffer is what a command writes, also from several goroutines.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

const startConfig = `
upstreams: {app: {targets: [%s], start_timeout: %s, park: 60s}}
lanes: {web: {upstream: app, slots: 4, queue_timeout: 60s}}
routes: [{match: "/", lane: web}]
`

// startServe runs the command in this process; the returned channel gives its exit code.
func startServe(t *testing.T, targets, startTimeout string) (code <-chan int, stderr *syncBuffer) {
	t.Helper()
	stderr = new(syncBuffer)
	ended := make(chan int, 1)
	path := writeConfig(t, startConfig, targets, startTimeout)
	go func() { ended <- run([]string{"serve", "-c", path}, io.Discard, stderr) }()
	return ended, stderr
}

// exitSentence waits for the command to refuse, and gives the one line that
// is not of the log.
func exitSentence(t *testing.T, code <-chan int, stderr *syncBuffer) string {
	t.Helper()
	select {
	case got := <-code:
		if got != exitConfig {
			t.Errorf("exit code %d, want %d", got, exitConfig)
		}
	case <-time.After(time.Minute):
		t.Fatalf("serves on:\n%s", stderr)
	}
	var sentences []string
	for line := range strings.Lines(stderr.String()) {
		if !strings.HasPrefix(line, "{") {
			sentences = append(sentences, strings.TrimRight(line, "\n"))
		}
	}
	if len(sentences) != 1 {
		t.Fatalf("want one sentence, got %q", sentences)
	}
	t.Log(sentences[0])
	return sentences[0]
}

// startGated starts an app that goes on importing until the returned function is called.
func startGated(t *testing.T, env ...string) (a *app, open func()) {
	t.Helper()
	gate := filepath.Join(t.TempDir(), "gate")
	a = startOnPort(t, "starting", append(env, "GATE="+gate), "app:application", "-w", "1", "--threads", "4")
	return a, func() {
		if err := os.WriteFile(gate, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// eventuallyListens waits until the app takes connections.
func eventuallyListens(t *testing.T, addr string) {
	t.Helper()
	eventually(t, "the app to listen", func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
}

func quoted(addr string) string { return `"http://` + addr + `"` }

// wantSentence holds the sentence to the lane, the target, and what happened
// to it: of the three kinds this one and no other.
func wantSentence(t *testing.T, sentence, addr, kind string) {
	t.Helper()
	if !strings.Contains(sentence, "lane web") || !strings.Contains(sentence, "http://"+addr) {
		t.Errorf("%q does not name lane web and target http://%s", sentence, addr)
	}
	for of, text := range map[string]string{
		"refused": "refused every connection", "silent": "accepted a connection but has not answered", "failed": "and then failed",
	} {
		if strings.Contains(sentence, text) != (of == kind) {
			t.Errorf("%q: contains %q: %v, want the sentence of an app that %s", sentence, text, of != kind, kind)
		}
	}
}

func TestStart_AnAppThatFailsAtImportIs78(t *testing.T) {
	t.Parallel()
	a, open := startGated(t, "FAIL=1")
	eventuallyListens(t, a.addr)
	code, stderr := startServe(t, quoted(a.addr), "5s")
	eventually(t, "the app asked", func() bool { return connectionsTo(t, a.addr) > 0 })
	open()
	wantSentence(t, exitSentence(t, code, stderr), a.addr, "failed")
}

// Ten seconds is also how long the app is given for one answer before it is
// asked again: between two askings it still is an app that has not answered.
func TestStart_AnAppStillImportingAtStartTimeoutIs78(t *testing.T) {
	for _, timeout := range []string{"2s", "10s"} {
		t.Run(timeout, func(t *testing.T) {
			t.Parallel()
			a, _ := startGated(t)
			eventuallyListens(t, a.addr)
			code, stderr := startServe(t, quoted(a.addr), timeout)
			wantSentence(t, exitSentence(t, code, stderr), a.addr, "silent")
		})
	}
}

func TestStart_AnAppThatNeverListensIs78(t *testing.T) {
	t.Parallel()
	addr := freeAddress(t)
	code, stderr := startServe(t, quoted(addr), "1s")
	wantSentence(t, exitSentence(t, code, stderr), addr, "refused")
}

// All or none: one of two targets is not enough, and the sentence names the one that is missing.
func TestStart_OneTargetOfTwoIsNotEnough(t *testing.T) {
	t.Parallel()
	a, open := startGated(t)
	open()
	eventually(t, "the first target to answer", func() bool { return ask(onceClient(), "GET", "http://"+a.addr, "/").ok() })
	missing := freeAddress(t)
	code, stderr := startServe(t, quoted(a.addr)+", "+quoted(missing), "2s")
	sentence := exitSentence(t, code, stderr)
	wantSentence(t, sentence, missing, "refused")
	if strings.Contains(sentence, a.addr) {
		t.Errorf("%q names the target that is up", sentence)
	}
}

// connectionsTo counts the established connections whose one end is addr.
func connectionsTo(t *testing.T, addr string) (n int) {
	t.Helper()
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	var number int
	fmt.Sscan(port, &number)
	established := regexp.MustCompile(fmt.Sprintf(`(?m)^ *\d+: [0-9A-F]{8}:%04X \S+ 01 `, number))
	return len(established.FindAll(table, -1))
}

// command is Holdfast as a process of its own.
type command struct {
	*exec.Cmd
	addr  string // where it listens
	log   *syncBuffer
	ended chan error
}

// startCommand starts `holdfast serve` and waits until it listens.
func startCommand(t *testing.T, config string) *command {
	t.Helper()
	c := &command{Cmd: exec.Command(os.Args[0], "serve", "-c", config), log: new(syncBuffer), ended: make(chan error, 1)}
	c.Env = append(os.Environ(), asCommand+"=1")
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

// readLog reads the log until the process ends, and waits for it.
func (c *command) readLog(stderr io.Reader) {
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		c.log.Write(append(lines.Bytes(), '\n'))
	}
	c.ended <- c.Wait()
	close(c.ended)
}

// listening takes the address from the log line "started".
func (c *command) listening() string {
	for line := range strings.Lines(c.log.String()) {
		var entry struct {
			Msg    string
			Listen []string
		}
		if json.Unmarshal([]byte(line), &entry) == nil && entry.Msg == "started" && len(entry.Listen) == 1 {
			return entry.Listen[0]
		}
	}
	return ""
}

// wantExit waits for the process's end.
func (c *command) wantExit(t *testing.T, code int) {
	t.Helper()
	select {
	case <-c.ended:
		if got := c.ProcessState.ExitCode(); got != code {
			t.Errorf("exit code %d, want %d", got, code)
		}
	case <-time.After(30 * time.Second):
		t.Error("does not end")
	}
}

func TestStart_SIGTERMBeforeReadyIs0(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) (addr string){
		"NobodyListens": freeAddress,
		"TheAppImports": func(t *testing.T) string { a, _ := startGated(t); eventuallyListens(t, a.addr); return a.addr },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startCommand(t, writeConfig(t, startConfig, quoted(start(t)), "60s"))
			wantGet(t, onceClient(), "http://"+c.addr+"/health")
			c.Process.Signal(syscall.SIGTERM)
			c.wantExit(t, exitOK)
			if strings.Contains(c.log.String(), `"ready"`) {
				t.Error("it was ready before the signal: the exit code shows nothing")
			}
		})
	}
}

// The negative arm: before its signal the same process ends by itself, and not with 0.
func TestStart_WithoutTheSIGTERMTheSameProcessEndsWith78(t *testing.T) {
	t.Parallel()
	c := startCommand(t, writeConfig(t, startConfig, quoted(freeAddress(t)), "1s"))
	c.wantExit(t, exitConfig)
}

// From nobody listening over an app that imports to one that answers: /health
// is there from the first moment, and requests wait instead of failing.
func TestStart_BeforeReadyHealthAnswersAndRequestsWait(t *testing.T) {
	t.Parallel()
	gate := filepath.Join(t.TempDir(), "gate")
	a := newApp(t, "starting", []string{"GATE=" + gate}, "app:application", "-w", "1", "--threads", "4")
	config, err := loadConfig(writeConfig(t, startConfig, quoted(a.addr), "60s"), os.LookupEnv)
	if err != nil {
		t.Fatal(err)
	}
	h, err := start(config, nil, zap.NewNop(), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.stopAll(5 * time.Second) })
	waiting := make(chan []attempt, 1)
	go func() { waiting <- askAtOnce(h.url(""), 6, "/") }()
	wantWaiting := func(phase string) {
		t.Helper()
		eventually(t, "six waiting while "+phase, func() bool { return healthLanes(t, h)["web"].Waiting == 6 })
		if len(waiting) > 0 {
			t.Errorf("answered while %s: %v", phase, <-waiting)
		}
		// The negative arm: asked directly, the app does not answer.
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		defer cancel()
		if status, _, err := get(ctx, onceClient(), "http://"+a.addr+"/"); err == nil {
			t.Errorf("the app answered %d while %s: that anybody waits shows nothing", status, phase)
		}
		if h.wiring.Load().upstreams["app"].Targets()[0].State().Answered {
			t.Errorf("ready while %s", phase)
		}
	}
	wantWaiting("nobody listens")
	a.start()
	eventuallyListens(t, a.addr)
	wantWaiting("the app imports")
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, got := range <-waiting {
		if got.err != nil || got.status != http.StatusOK {
			t.Error(got)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := h.awaitReady(ctx); err != nil || ctx.Err() != nil {
		t.Error("not ready:", err, ctx.Err())
	}
	eventuallyIdle(t, h)
}
