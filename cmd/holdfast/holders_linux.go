package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Who listens on a port, as far as /proc of this machine shows.

// listenerInodes gives the inodes of the sockets that listen on a port.
func listenerInodes(port int) map[string]bool {
	inodes := make(map[string]bool)
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		file, err := os.Open(table)
		if err != nil {
			continue
		}
		for lines := bufio.NewScanner(file); lines.Scan(); {
			f := strings.Fields(lines.Text()) // sl local remote st … inode is the tenth
			if len(f) < 10 || f[3] != "0A" {  // LISTEN
				continue
			}
			_, hex, _ := strings.Cut(f[1], ":")
			if n, err := strconv.ParseInt(hex, 16, 32); err == nil && int(n) == port {
				inodes[f[9]] = true
			}
		}
		file.Close()
	}
	return inodes
}

// holders gives the processes that have one of the sockets open.
func holders(inodes map[string]bool) (pids []int) {
	if len(inodes) == 0 {
		return nil
	}
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, process := range processes {
		entries, err := os.ReadDir(process + "/fd")
		if err != nil {
			continue
		}
		for _, entry := range entries {
			link, err := os.Readlink(process + "/fd/" + entry.Name())
			if inode, ok := strings.CutPrefix(link, "socket:["); err == nil && ok && inodes[strings.TrimSuffix(inode, "]")] {
				if pid, err := strconv.Atoi(filepath.Base(process)); err == nil {
					pids = append(pids, pid)
				}
				break
			}
		}
	}
	return pids
}

func portOf(address string) int {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(port)
	return n
}

// workersOn counts the processes behind a port, a parent of others not
// counted: it only watches them. 0: nobody on this machine, or not to be seen.
func workersOn(address string) int {
	return workersAmong(holders(listenerInodes(portOf(address))))
}

// workersAmong counts the processes that are not another's parent.
func workersAmong(pids []int) int {
	parents := make(map[int]bool)
	for _, pid := range pids {
		parents[parentOf(pid)] = true
	}
	workers := 0
	for _, pid := range pids {
		if !parents[pid] {
			workers++
		}
	}
	return workers
}

func parentOf(pid int) int {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	f := strings.Fields(rest)
	if len(f) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(f[1])
	return parent
}

// holderOf words who listens on an address, "" if that cannot be seen.
func holderOf(address string) string {
	pids := holders(listenerInodes(portOf(address)))
	if len(pids) == 0 {
		return ""
	}
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pids[0]))
	if err != nil {
		return ""
	}
	return fmt.Sprintf(" (held by %s, process %d)", strings.TrimSpace(string(name)), pids[0])
}

// sameHolder reports whether one process listens at both addresses.
func sameHolder(a, b string) bool {
	for _, pid := range holders(listenerInodes(portOf(a))) {
		if slices.Contains(holders(listenerInodes(portOf(b))), pid) {
			return true
		}
	}
	return false
}
