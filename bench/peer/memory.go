package peer

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Memory is what a process and its living descendants have in memory, in bytes,
// from /proc/PID/smaps_rollup. What the kernel keeps for their sockets is in
// neither figure.
type Memory struct {
	PSS int64 // a page that several processes share is counted in parts: the sum over a family counts it once
	RSS int64 // such a page is counted in each of them
}

// MemoryOf sums over the process and its living descendants.
func MemoryOf(pid int) (Memory, error) {
	family, err := descendants(pid)
	if err != nil {
		return Memory{}, err
	}
	var sum Memory
	for _, each := range family {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", each))
		if err != nil {
			if each == pid {
				return Memory{}, err
			}
			continue // it has ended since
		}
		one, err := parseRollup(text)
		if err != nil {
			if each == pid {
				return Memory{}, fmt.Errorf("process %d: %w", pid, err)
			}
			continue // a child that is ending has no memory left
		}
		sum.PSS += one.PSS
		sum.RSS += one.RSS
	}
	return sum, nil
}

// parseRollup reads the two sums, which are there in kB.
func parseRollup(text []byte) (Memory, error) {
	values := map[string]int64{}
	for line := range bytes.Lines(text) {
		fields := strings.Fields(string(line))
		if len(fields) != 3 || fields[2] != "kB" {
			continue
		}
		value, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			return Memory{}, fmt.Errorf("smaps_rollup: %w", err)
		}
		values[fields[0]] = value << 10
	}
	if values["Pss:"] == 0 || values["Rss:"] == 0 {
		return Memory{}, fmt.Errorf("smaps_rollup has no Pss or no Rss: %.80q", text)
	}
	return Memory{PSS: values["Pss:"], RSS: values["Rss:"]}, nil
}

// Threads counts the threads of a process and its living descendants.
func Threads(pid int) (int, error) {
	family, err := descendants(pid)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, each := range family {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/[0-9]*", each))
		if err != nil {
			return 0, err
		}
		n += len(tasks)
	}
	return n, nil
}

// OpenFiles counts the descriptors of path that a process and its living
// descendants have open.
func OpenFiles(pid int, path string) (int, error) {
	family, err := descendants(pid)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, each := range family {
		descriptors, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/[0-9]*", each))
		if err != nil {
			return 0, err
		}
		for _, descriptor := range descriptors {
			if target, err := os.Readlink(descriptor); err == nil && target == path {
				n++
			}
		}
	}
	return n, nil
}

func descendants(pid int) ([]int, error) {
	processes, err := readProcesses()
	if err != nil {
		return nil, err
	}
	return familyOf(pid, processes)
}
