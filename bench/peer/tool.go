package peer

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Tool is a program that has to be installed.
type Tool struct {
	Program string
	Version string // the argument that prints it
	Package string // Debian's name
}

// The programs that the benchmarks use.
var (
	HAProxy  = Tool{Program: "haproxy", Version: "-v", Package: "haproxy"}
	Nginx    = Tool{Program: "nginx", Version: "-v", Package: "nginx-light"}
	Wrk      = Tool{Program: "wrk", Version: "-v", Package: "wrk"}
	Gunicorn = Tool{Program: "gunicorn", Version: "--version", Package: "gunicorn python3-django"}
)

// Find returns the program's path and notes its version. Debian keeps daemons
// in sbin directories, which are not on everyone's PATH.
func (b *Bench) Find(tool Tool) (string, error) {
	candidates := []string{tool.Program, "/usr/sbin/" + tool.Program, "/usr/local/sbin/" + tool.Program}
	for _, candidate := range candidates {
		path, err := exec.LookPath(candidate)
		if err != nil {
			continue
		}
		if path, err = filepath.Abs(path); err != nil {
			return "", err
		}
		b.note(tool.Program, path, tool.Version)
		return path, nil
	}
	return "", fmt.Errorf("%s is not installed: apt-get install %s", tool.Program, tool.Package)
}

// Python notes the versions that a script's interpreter has of itself and of
// Django; the interpreter is the one that the script names in its first line.
func (b *Bench) Python(script string) {
	text, err := os.ReadFile(script)
	if err != nil {
		return
	}
	line, _, _ := strings.Cut(string(text), "\n")
	interpreter := strings.Fields(strings.TrimPrefix(line, "#!"))
	if len(interpreter) == 0 {
		return
	}
	b.note("python", interpreter[0], append(interpreter[1:], "--version")...)
	b.note("django", interpreter[0], append(interpreter[1:], "-m", "django", "--version")...)
}

// note records the first line that the program prints about its version; wrk
// prints it and fails, so the exit code does not count.
func (b *Bench) note(name, program string, args ...string) {
	output, err := exec.Command(program, args...).CombinedOutput()
	line, _, _ := strings.Cut(strings.TrimSpace(string(output)), "\n")
	if line == "" && err != nil {
		line = err.Error()
	}
	b.versions[name] = line
}
