package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The kit of the tests in a browser.

// browser is a Chromium without a window. It is spoken to over a pair of pipes
// (the DevTools protocol, messages end with a NUL), so that no port is open and
// it ends when this process does.
type browser struct {
	t        *testing.T
	home     string // its profile, and where it writes whatever else
	cmd      *exec.Cmd
	commands *os.File
	answers  *os.File
	rest     []byte // of what was read, behind the last whole message
	calls    int
	output   *syncBuffer
	keep     bool     // events are kept
	events   [][]byte // that came while calls were answered
}

// startBrowser starts Chromium until the test ends, or skips.
func startBrowser(t *testing.T) *browser {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("chromium is not installed (Debian's package has that name): ", err)
	}
	itsCommands, commands, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	answers, itsAnswers, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	home, err := os.MkdirTemp("", "holdfast-browser-*")
	if err != nil {
		t.Fatal(err)
	}
	// Its sandbox does not work for root, nor in most containers; it opens
	// nothing but our own page. /dev/shm is small in containers.
	b := &browser{t: t, home: home, commands: commands, answers: answers, output: new(syncBuffer),
		cmd: exec.Command(path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe",
			"--user-data-dir="+home, "--no-first-run", "--disable-background-networking", "--disable-component-update",
			"--disable-breakpad", "--no-proxy-server", "about:blank")}
	b.cmd.Env = append(os.Environ(), "HOME="+home)
	b.cmd.ExtraFiles = []*os.File{itsCommands, itsAnswers} // 3 and 4
	b.cmd.Stdout, b.cmd.Stderr = b.output, b.output
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	b.cmd.WaitDelay = 10 * time.Second
	err = b.cmd.Start()
	itsCommands.Close()
	itsAnswers.Close()
	if err != nil {
		os.RemoveAll(home)
		t.Fatal(err)
	}
	t.Cleanup(b.end)
	return b
}

// end ends it with all its processes, but for those that watch for its crash:
// they are in sessions of their own and end when they see its end, and one may
// write into its folder until then. So that is no t.TempDir.
func (b *browser) end() {
	syscall.Kill(-b.cmd.Process.Pid, syscall.SIGKILL)
	b.cmd.Wait()
	b.commands.Close()
	b.answers.Close()
	os.RemoveAll(b.home)
	if b.t.Failed() {
		b.t.Logf("chromium:\n%s", b.output)
	}
}

// call makes a call of the protocol, of the browser itself or of a page's
// session, and leaves its result in result.
func (b *browser) call(session, method string, params, result any) error {
	b.calls++
	id := b.calls
	message, err := json.Marshal(struct {
		ID      int    `json:"id"`
		Session string `json:"sessionId,omitempty"`
		Method  string `json:"method"`
		Params  any    `json:"params,omitempty"`
	}{id, session, method, params})
	if err != nil {
		return err
	}
	until := time.Now().Add(browserTime)
	b.commands.SetWriteDeadline(until)
	b.answers.SetReadDeadline(until)
	if _, err := b.commands.Write(append(message, 0)); err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	for {
		message, err := b.next()
		if err != nil {
			return fmt.Errorf("%s: %w", method, err)
		}
		var answer struct {
			ID     int
			Result json.RawMessage
			Error  *struct{ Message string }
		}
		if err := json.Unmarshal(message, &answer); err != nil {
			return fmt.Errorf("%s: %w in %.200q", method, err, message)
		}
		switch {
		case answer.ID != id: // an event
			if b.keep {
				b.events = append(b.events, message)
			}
		case answer.Error != nil:
			return fmt.Errorf("%s: %s", method, answer.Error.Message)
		case result != nil:
			return json.Unmarshal(answer.Result, result)
		default:
			return nil
		}
	}
}

// next reads one message.
func (b *browser) next() ([]byte, error) {
	for {
		if message, rest, whole := bytes.Cut(b.rest, []byte{0}); whole {
			b.rest = rest
			return message, nil
		}
		piece := make([]byte, 64<<10)
		n, err := b.answers.Read(piece)
		b.rest = append(b.rest, piece[:n]...)
		if errors.Is(err, io.EOF) {
			return nil, errors.New("chromium has ended")
		}
		if err != nil {
			return nil, err
		}
	}
}

func (b *browser) mustCall(session, method string, params, result any) {
	b.t.Helper()
	if err := b.call(session, method, params, result); err != nil {
		b.t.Fatal(err)
	}
}

// browserTime bounds an answer of the browser, and what a page is waited for:
// far more than either takes, so that only what never comes is missed.
const browserTime = 2 * time.Minute

// tab is a page in a tab of its own.
type tab struct {
	*browser
	name    string
	session string
}

type params map[string]any

func (b *browser) open(name, url string) *tab {
	b.t.Helper()
	var created struct{ TargetID string }
	b.mustCall("", "Target.createTarget", params{"url": url}, &created)
	var attached struct{ SessionID string }
	b.mustCall("", "Target.attachToTarget", params{"targetId": created.TargetID, "flatten": true}, &attached)
	return &tab{b, name, attached.SessionID}
}

// evaluate gives what a JavaScript expression has for value, as JSON has it.
func (p *tab) evaluate(expression string) (string, error) {
	var got struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct {
			Exception struct{ Description string }
		}
	}
	if err := p.call(p.session, "Runtime.evaluate", params{"expression": expression, "returnByValue": true}, &got); err != nil {
		return "", err
	}
	if got.ExceptionDetails != nil {
		return "", errors.New(got.ExceptionDetails.Exception.Description)
	}
	return string(got.Result.Value), nil
}

// do runs a script that must not fail.
func (p *tab) do(script string) {
	p.t.Helper()
	if _, err := p.evaluate(script); err != nil {
		p.t.Fatalf("%s: %s: %v", p.name, script, err)
	}
}

// eventually waits until a JavaScript condition holds. One that fails does not
// hold yet: the page may still be on its way.
func (p *tab) eventually(condition string) {
	p.t.Helper()
	var last string
	for end := time.Now().Add(browserTime); ; poll() {
		got, err := p.evaluate(condition)
		if err == nil && got == "true" {
			return
		}
		if last = got; err != nil {
			last = err.Error()
		}
		if time.Now().After(end) {
			text, _ := p.evaluate("document.body.innerText")
			p.t.Fatalf("%s: waited %v for %s, at last it was %s; the page:\n%s", p.name, browserTime, condition, last, strings.ReplaceAll(text, `\n`, "\n"))
		}
	}
}

// fill puts a text into a field and presses Enter there.
func (p *tab) fill(field, text string) {
	p.t.Helper()
	p.do(fmt.Sprintf("document.querySelector(%q).focus()", field))
	p.mustCall(p.session, "Input.insertText", params{"text": text}, nil)
	for _, kind := range []string{"keyDown", "keyUp"} {
		p.mustCall(p.session, "Input.dispatchKeyEvent", params{"type": kind, "key": "Enter", "code": "Enter", "text": "\r", "windowsVirtualKeyCode": 13}, nil)
	}
}
