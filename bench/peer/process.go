package peer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	readyWithin = 15 * time.Second // a cold Django is the slowest to its first answer
	stopWithin  = 5 * time.Second  // from SIGTERM to SIGKILL
)

// Process is one running peer, in a process group of its own: an interrupt at
// the terminal reaches the runner alone, which then ends its peers in order.
type Process struct {
	name   string
	cmd    *exec.Cmd
	log    string        // file with what it wrote
	exited chan struct{} // closed when it was waited for
}

// Start runs a program. env is added to the runner's environment. The process
// lives until Stop or Bench.Close.
func (b *Bench) Start(name string, env []string, program string, args ...string) (*Process, error) {
	log, err := os.CreateTemp(b.dir, "log-")
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(program, args...)
	cmd.Dir = b.dir
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	process := &Process{name: name, cmd: cmd, log: log.Name(), exited: make(chan struct{})}
	go process.wait()
	b.started = append(b.started, process)
	return process, nil
}

// wait reaps the process; it ends when the process does.
func (p *Process) wait() {
	p.cmd.Wait()
	close(p.exited)
}

// WaitReady asks url until it answers 200 and returns that answer's body.
func (p *Process) WaitReady(ctx context.Context, url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	last := errors.New("not asked yet")
	for {
		body, err := ask(ctx, client, url)
		if err == nil {
			return body, nil
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-p.exited:
			return nil, fmt.Errorf("%s ended before it served: %s", p.name, p.said())
		case <-ctx.Done():
			return nil, fmt.Errorf("%s did not answer 200 on %s within %s: %w; it wrote: %s", p.name, url, readyWithin, last, p.said())
		case <-tick.C:
		}
	}
}

func ask(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %.200s", response.Status, body)
	}
	return body, nil
}

// CPU is the time that the process and all its descendants have run so far.
func (p *Process) CPU() (time.Duration, error) {
	if err := p.Running(); err != nil {
		return 0, err
	}
	return CPU(p.cmd.Process.Pid)
}

// PID is the process's own.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Memory is what the process and all its descendants have in memory now.
func (p *Process) Memory() (Memory, error) {
	if err := p.Running(); err != nil {
		return Memory{}, err
	}
	return MemoryOf(p.cmd.Process.Pid)
}

// Running is nil while the process is; else an error with what it wrote.
func (p *Process) Running() error {
	select {
	case <-p.exited:
		return fmt.Errorf("%s has ended: %s", p.name, p.said())
	default:
		return nil
	}
}

// Stop ends the process: SIGTERM, and after a while SIGKILL, then SIGKILL for
// children that it left behind. Stopping twice is harmless.
func (p *Process) Stop() {
	select {
	case <-p.exited:
		return
	default:
	}
	pid := p.cmd.Process.Pid
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(stopWithin):
		p.cmd.Process.Kill()
		<-p.exited
	}
	syscall.Kill(-pid, syscall.SIGKILL) // the group that Start made; ESRCH is the usual answer
}

// said is the end of what the process wrote.
func (p *Process) said() string {
	output, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	if len(output) == 0 {
		return "nothing in " + filepath.Base(p.log)
	}
	return lastLines(output, 4)
}

// lastLines puts the last n lines into one.
func lastLines(output []byte, n int) string {
	lines := strings.Split(string(bytes.TrimSpace(output)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], " | ")
}
