package peer

import (
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Environment is where figures were taken: without it they say nothing.
type Environment struct {
	Date     string            `json:"date"`
	Go       string            `json:"go"`
	Kernel   string            `json:"kernel"`
	CPU      string            `json:"cpu"`
	Cores    int               `json:"cores"`
	Load     string            `json:"load"` // of the machine before the run, over 1, 5 and 15 minutes
	Versions map[string]string `json:"versions"`
}

// Environment describes the machine and all programs found so far.
func (b *Bench) Environment() Environment {
	return Environment{
		Date:     time.Now().Format(time.RFC3339),
		Go:       runtime.Version(),
		Kernel:   firstLine("/proc/sys/kernel/ostype") + " " + firstLine("/proc/sys/kernel/osrelease") + " " + runtime.GOARCH,
		CPU:      processorName(),
		Cores:    runtime.NumCPU(),
		Load:     b.load,
		Versions: maps.Clone(b.versions),
	}
}

// Print writes one line per fact.
func (e Environment) Print(w io.Writer) {
	fmt.Fprintf(w, "date      %s\n", e.Date)
	fmt.Fprintf(w, "machine   %d cores, %s\n", e.Cores, e.CPU)
	fmt.Fprintf(w, "kernel    %s\n", e.Kernel)
	fmt.Fprintf(w, "load      %s before the run (1, 5, 15 minutes)\n", e.Load)
	fmt.Fprintf(w, "go        %s\n", e.Go)
	for _, name := range slices.Sorted(maps.Keys(e.Versions)) {
		fmt.Fprintf(w, "%-9s %s\n", name, e.Versions[name])
	}
}

// Sentence is the same in one line for a page, with the versions in order.
func (e Environment) Sentence() string {
	date, _, _ := strings.Cut(e.Date, "T")
	parts := []string{fmt.Sprintf("%s. %d cores (%s), %s, %s", date, e.Cores, e.CPU, e.Kernel, e.Go)}
	for _, name := range slices.Sorted(maps.Keys(e.Versions)) {
		text := e.Versions[name]
		if !strings.Contains(strings.ToLower(text), name) {
			text = name + " " + text
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ") + "."
}

func processorName() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown processor"
}

func firstLine(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return "unknown"
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return line
}

func loadAverages() string {
	fields := strings.Fields(firstLine("/proc/loadavg"))
	return strings.Join(fields[:min(3, len(fields))], " ")
}
