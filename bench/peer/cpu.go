package peer

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of the times in /proc: USER_HZ, which Linux fixes at 100 for
// user space whatever the kernel's own clock does. The kernel scales them from
// its exact run time, so a round of seconds is read to within 10 ms.
const tick = 10 * time.Millisecond

// stat is the part of /proc/PID/stat that accounting needs; see proc(5).
type stat struct {
	parent int
	own    int64 // ticks, user and system, of it
	reaped int64 // ticks of children that it has waited for
}

// CPU is the time that a process, the children it has waited for and all its
// living descendants have run. Two readings are comparable as long as no
// descendant died whose parent did not wait for it.
func CPU(pid int) (time.Duration, error) {
	processes, err := readProcesses()
	if err != nil {
		return 0, err
	}
	family, err := familyOf(pid, processes)
	if err != nil {
		return 0, err
	}
	var ticks int64
	for _, each := range family {
		ticks += processes[each].own + processes[each].reaped
	}
	return time.Duration(ticks) * tick, nil
}

// familyOf is the process itself and all below it.
func familyOf(pid int, processes map[int]stat) ([]int, error) {
	if _, ok := processes[pid]; !ok {
		return nil, fmt.Errorf("process %d is not running", pid)
	}
	children := map[int][]int{}
	for child, s := range processes {
		children[s.parent] = append(children[s.parent], child)
	}
	family := []int{pid}
	for i := 0; i < len(family); i++ {
		family = append(family, children[family[i]]...)
	}
	return family, nil
}

func readProcesses() (map[int]stat, error) {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, errors.New("no /proc: the benchmarks read CPU time there and run on Linux only")
	}
	processes := make(map[int]stat, len(files))
	for _, file := range files {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return nil, err
		}
		line, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended since
		}
		if processes[pid], err = parseStat(line); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	return processes, nil
}

// parseStat counts fields behind the last parenthesis: the command's name
// before it may hold spaces and parentheses itself.
func parseStat(line []byte) (stat, error) {
	end := bytes.LastIndexByte(line, ')')
	fields := strings.Fields(string(line[end+1:]))
	if end < 0 || len(fields) < 15 {
		return stat{}, fmt.Errorf("not a process's status: %q", line)
	}
	var values [5]int64
	for i, field := range []string{fields[1], fields[11], fields[12], fields[13], fields[14]} {
		value, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return stat{}, err
		}
		values[i] = value
	}
	return stat{parent: int(values[0]), own: values[1] + values[2], reaped: values[3] + values[4]}, nil
}

// Others watches what the rest of the machine did while a figure was taken: on
// few cores a compiler beside it makes the figure worthless.
type Others struct {
	began         time.Time
	machine, ours time.Duration
}

// WatchOthers starts the watch.
func WatchOthers() (Others, error) {
	machine, err := machineCPU()
	if err != nil {
		return Others{}, err
	}
	ours, err := CPU(os.Getpid())
	return Others{began: time.Now(), machine: machine, ours: ours}, err
}

// Cores is how many cores, on average since the start of the watch, were busy
// with anything but the runner and its descendants.
func (o Others) Cores() (float64, error) {
	now, err := WatchOthers()
	if err != nil {
		return 0, err
	}
	busy := (now.machine - o.machine) - (now.ours - o.ours)
	return max(0, busy.Seconds()/now.began.Sub(o.began).Seconds()), nil
}

// machineCPU is all time that the machine was busy, stolen time included:
// user, nice, system, irq, softirq and steal, without idle and iowait.
func machineCPU() (time.Duration, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text))
	if len(fields) < 9 || fields[0] != "cpu" {
		return 0, errors.New("/proc/stat does not begin with the machine's total")
	}
	var ticks int64
	for _, at := range []int{1, 2, 3, 6, 7, 8} {
		value, err := strconv.ParseInt(fields[at], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/stat: %w", err)
		}
		ticks += value
	}
	return time.Duration(ticks) * tick, nil
}
