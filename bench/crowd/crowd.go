// Package crowd is many clients that hold event streams or WebSockets open, in
// one process of their own (load), which a benchmark tells what to do.
//
//	c, err := crowd.Start(ctx, bench)
//	defer c.Close()
//	opened, err := c.Open(crowd.Open{Group: "all", Address: server, Path: "/events?c=%d", Count: 5000, Channels: 1})
//	err = c.Arm("all")
//	... publish 10 events whose data is crowd.Stamp(size) ...
//	seen, err := c.Wait("all", 50_000, 30*time.Second)
//
// A delivery counts when its stamp has been read; its time is from the stamp's
// making to that moment, both by this machine's clock. The process has one
// thread that reads sockets and nothing else; it parses no chunks and no frames,
// only the answer's status and stamps. Every call is answered within its time,
// whatever the server does.
package crowd

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"holdfast/bench/peer"
)

// Mark begins a stamp: it and the nanoseconds since 1970 and EndMark.
const (
	Mark    = "T="
	EndMark = ';'
)

// Stamp is data for an event of about size bytes: fill, and a stamp of now at its
// end, so that who has read the stamp has read the event.
func Stamp(size int) string {
	stamp := Mark + strconv.FormatInt(time.Now().UnixNano(), 10) + string(EndMark)
	return strings.Repeat(".", max(0, size-len(stamp))) + stamp
}

// Open says what clients are to be there.
type Open struct {
	Group    string // name for Arm, Wait and Drop
	Address  string
	Path     string // %d in it is the channel's number
	Socket   bool   // WebSockets in place of event streams
	Count    int
	Channels int // client i is at channel First + i % Channels
	First    int
	Within   time.Duration // clients that are not answered by then have failed
	Window   int           // being opened at once; 0: 64
	// Waiting is set where clients that get no answer are no fault: they stay
	// connected, and are not counted as failed.
	Waiting bool
}

// Opened is what became of it.
type Opened struct {
	Opened int           `json:"opened"`
	Failed int           `json:"failed"`
	Error  string        `json:"error,omitempty"` // the first client's that failed
	Took   time.Duration `json:"took"`
}

// Seen is what a group's clients have read since Arm. Times are of deliveries.
type Seen struct {
	Deliveries int           `json:"deliveries"`
	P50        time.Duration `json:"p50"`
	P99        time.Duration `json:"p99"`
	Max        time.Duration `json:"max"`
	Closed     int           `json:"closed"` // clients whose connection has ended since they were opened
}

// Command is a line of JSON for the process, Answer one from it.
type Command struct {
	Do         string        `json:"do"` // open | arm | wait | drop
	Group      string        `json:"group"`
	Open       *Open         `json:"open,omitempty"`
	Deliveries int           `json:"deliveries,omitempty"`
	Within     time.Duration `json:"within,omitempty"`
}

// Answer has one of the two, or an error.
type Answer struct {
	Opened *Opened `json:"opened,omitempty"`
	Seen   *Seen   `json:"seen,omitempty"`
	Error  string  `json:"error,omitempty"`
}

// Crowd is the process. It is used by one goroutine.
type Crowd struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines *bufio.Reader
}

// Start builds the program and starts it. Its descriptors are limited as the
// caller's are: see peer.RaiseDescriptors.
func Start(ctx context.Context, bench *peer.Bench) (*Crowd, error) {
	program, err := bench.Build(ctx, "bench/crowd/load")
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &Crowd{cmd: cmd, stdin: stdin, lines: bufio.NewReader(stdout)}, nil
}

// Close ends the process, and with it every client. It may be called twice.
func (c *Crowd) Close() {
	c.stdin.Close() // at its end the program ends
	c.cmd.Wait()
}

// Open opens clients and returns when all are answered or their time is over.
// Failed clients are an error, unless Waiting is set.
func (c *Crowd) Open(what Open) (Opened, error) {
	answer, err := c.ask(Command{Do: "open", Group: what.Group, Open: &what})
	if err != nil {
		return Opened{}, err
	}
	if answer.Opened == nil {
		return Opened{}, errors.New("the crowd's process did not say what it opened")
	}
	opened := *answer.Opened
	if opened.Failed > 0 && !what.Waiting {
		return opened, fmt.Errorf("%d of %d clients were not held: %s", opened.Failed, what.Count, opened.Error)
	}
	return opened, nil
}

// Arm forgets what the group's clients have read so far.
func (c *Crowd) Arm(group string) error {
	_, err := c.ask(Command{Do: "arm", Group: group})
	return err
}

// Wait returns when the group's clients have read so many events since Arm. Fewer
// within the time, or a connection that ended, is an error; what was seen is
// returned all the same.
func (c *Crowd) Wait(group string, deliveries int, within time.Duration) (Seen, error) {
	answer, err := c.ask(Command{Do: "wait", Group: group, Deliveries: deliveries, Within: within})
	if err != nil {
		return Seen{}, err
	}
	if answer.Seen == nil {
		return Seen{}, errors.New("the crowd's process did not say what it saw")
	}
	seen := *answer.Seen
	switch {
	case seen.Closed > 0:
		return seen, fmt.Errorf("%d clients of %s lost their connection", seen.Closed, group)
	case seen.Deliveries < deliveries:
		return seen, fmt.Errorf("%d of %d deliveries came within %s", seen.Deliveries, deliveries, within)
	case seen.Deliveries > deliveries:
		return seen, fmt.Errorf("%d deliveries came where %d were published", seen.Deliveries, deliveries)
	}
	return seen, nil
}

// Drop closes the group's clients.
func (c *Crowd) Drop(group string) error {
	_, err := c.ask(Command{Do: "drop", Group: group})
	return err
}

func (c *Crowd) ask(command Command) (Answer, error) {
	line, err := json.Marshal(command)
	if err != nil {
		return Answer{}, err
	}
	if _, err := c.stdin.Write(append(line, '\n')); err != nil {
		return Answer{}, fmt.Errorf("the crowd's process has ended: %w", err)
	}
	text, err := c.lines.ReadBytes('\n')
	if err != nil {
		return Answer{}, fmt.Errorf("the crowd's process has ended: %w", err)
	}
	var answer Answer
	if err := json.Unmarshal(text, &answer); err != nil {
		return Answer{}, fmt.Errorf("the crowd's process answered %q: %w", text, err)
	}
	if answer.Error != "" {
		return answer, errors.New(answer.Error)
	}
	return answer, nil
}
