package main

import (
	"bufio"
	"math"
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// What limits a process, and who listens on a unix socket, as far as /proc and
// the cgroups show.

// workersOnSocket is workersOn for a unix socket.
func workersOnSocket(address string) int {
	inodes := make(map[string]bool)
	file, err := os.Open("/proc/net/unix")
	if err != nil {
		return 0
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		f := strings.Fields(lines.Text())                                             // Num RefCount Protocol Flags Type St Inode Path
		if len(f) >= 8 && f[3] == "00010000" && strings.Join(f[7:], " ") == address { // it listens
			inodes[f[6]] = true
		}
	}
	return workersAmong(holders(inodes))
}

// memoryLimit is what the process may use: what its cgroup allows (hard: it is
// killed beyond), or what this machine has available. root is "/".
func memoryLimit(root string) (bytes int64, hard bool) {
	bytes = math.MaxInt64
	groups, _ := os.ReadFile(path.Join(root, "proc/self/cgroup"))
	for line := range strings.Lines(string(groups)) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3) // hierarchy, controllers, path
		if len(f) < 3 {
			continue
		}
		mount, name := "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		if f[0] == "0" {
			mount, name = "sys/fs/cgroup", "memory.max"
		} else if !strings.Contains(","+f[1]+",", ",memory,") {
			continue
		}
		// Each group above has a limit of its own.
		for group := path.Join("/", f[2]); ; group = path.Dir(group) {
			text, err := os.ReadFile(path.Join(root, mount, group, name))
			limit, parseErr := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
			if err == nil && parseErr == nil && limit < 1<<60 { // "max", or the largest number of pages: none
				bytes, hard = min(bytes, limit), true
			}
			if group == "/" {
				break
			}
		}
	}
	available := availableMemory(path.Join(root, "proc/meminfo"))
	if hard {
		return bytes, true
	}
	return available, false
}

// availableMemory is MemAvailable; 0: not known.
func availableMemory(file string) int64 {
	text, _ := os.ReadFile(file)
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == "MemAvailable:" {
			kib, _ := strconv.ParseInt(f[1], 10, 64)
			return kib << 10
		}
	}
	return 0
}

// roomIn is how much this user may still write in a directory, and whether
// that takes memory (tmpfs).
func roomIn(dir string) (free int64, inMemory bool, err error) {
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return 0, false, err
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, false, err
	}
	return int64(fs.Bavail) * int64(fs.Bsize), fs.Type == unix.TMPFS_MAGIC, nil
}

// descriptorLimits are the soft and the hard limit of open files; 0: not known.
func descriptorLimits() (soft, hard int) {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0, 0
	}
	return descriptorLimit(), int(min(limit.Max, math.MaxInt32))
}
