// Load is the process of package crowd: it reads commands as lines of JSON on
// standard input, answers each with a line on standard output, and ends at the
// input's end.
//
// One goroutine on one thread does everything: commands, connecting, reading. A
// client costs a descriptor and about 150 bytes; there is one buffer for all.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/bench/crowd"
)

func main() {
	runtime.LockOSThread()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

// loop is the process's whole state.
type loop struct {
	epoll  int
	conns  map[int]*conn // by descriptor
	groups map[string]*group
	buffer []byte
	input  []byte // of commands, not yet a whole line
	ended  bool   // standard input has

	// What is being waited for; at most one of the two.
	opening *opening
	waiting *waiting
}

// waiting is a wait command that is not answered yet.
type waiting struct {
	group      *group
	deliveries int
	deadline   time.Time
}

func run() error {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return err
	}
	l := &loop{epoll: epoll, conns: map[int]*conn{}, groups: map[string]*group{}, buffer: make([]byte, 256<<10)}
	if err := unix.SetNonblock(0, true); err != nil {
		return err
	}
	if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, 0, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: 0}); err != nil {
		return err
	}
	events := make([]unix.EpollEvent, 512)
	for !l.ended {
		n, err := unix.EpollWait(epoll, events, l.patience(time.Now()))
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		for _, event := range events[:max(n, 0)] {
			if err := l.happened(event); err != nil {
				return err
			}
		}
		if err := l.goOn(time.Now()); err != nil {
			return err
		}
	}
	return nil
}

// patience is how many milliseconds the next wait may take.
func (l *loop) patience(now time.Time) int {
	var deadline time.Time
	switch {
	case l.opening != nil:
		deadline = l.opening.deadline
	case l.waiting != nil:
		deadline = l.waiting.deadline
	default:
		return -1
	}
	return int(max(0, deadline.Sub(now).Milliseconds()+1))
}

func (l *loop) happened(event unix.EpollEvent) error {
	if event.Fd == 0 {
		return l.readCommands()
	}
	if c := l.conns[int(event.Fd)]; c != nil {
		l.progress(c, event.Events)
	}
	return nil
}

func (l *loop) readCommands() error {
	for {
		n, err := unix.Read(0, l.buffer)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return nil
		case err != nil && !errors.Is(err, unix.EINTR):
			return err
		case n == 0:
			l.ended = true
			return nil
		}
		l.input = append(l.input, l.buffer[:max(n, 0)]...)
		for {
			line, rest, ok := bytes.Cut(l.input, []byte("\n"))
			if !ok {
				break
			}
			if err := l.command(line); err != nil {
				return err
			}
			l.input = rest
		}
	}
}

func (l *loop) command(line []byte) error {
	var command crowd.Command
	if err := json.Unmarshal(line, &command); err != nil {
		return answer(crowd.Answer{Error: fmt.Sprintf("command %q: %v", line, err)})
	}
	if l.opening != nil || l.waiting != nil {
		return answer(crowd.Answer{Error: "a command before the last one was answered"})
	}
	g := l.groups[command.Group]
	if command.Do == "open" && command.Open != nil {
		return l.open(*command.Open)
	}
	if g == nil {
		return answer(crowd.Answer{Error: fmt.Sprintf("no group %q to %s", command.Group, command.Do)})
	}
	switch command.Do {
	case "arm":
		g.took = g.took[:0]
		return answer(crowd.Answer{})
	case "wait":
		l.waiting = &waiting{group: g, deliveries: command.Deliveries, deadline: time.Now().Add(command.Within)}
		return nil
	case "drop":
		l.drop(g)
		delete(l.groups, command.Group)
		return answer(crowd.Answer{})
	}
	return answer(crowd.Answer{Error: fmt.Sprintf("no command %q", command.Do)})
}

// goOn answers what was waited for, once it is there or its time is over.
func (l *loop) goOn(now time.Time) error {
	if l.opening != nil {
		return l.goOnOpening(now)
	}
	w := l.waiting
	if w == nil || len(w.group.took) < w.deliveries && w.group.closed == 0 && now.Before(w.deadline) {
		return nil
	}
	l.waiting = nil
	seen := w.group.seen()
	return answer(crowd.Answer{Seen: &seen})
}

func answer(a crowd.Answer) error {
	line, err := json.Marshal(a)
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(append(line, '\n'))
	return err
}
