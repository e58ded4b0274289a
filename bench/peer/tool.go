package peer

import (
	"fmt"
	"io"
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
	Pushpin  = Tool{Program: "pushpin", Version: "--version", Package: "pushpin zurl"}
	Zurl     = Tool{Program: "zurl", Version: "--version", Package: "zurl"}
)

// NchanModule is where Debian puts Nchan's module for nginx.
const NchanModule = "/usr/lib/nginx/modules/ngx_nchan_module.so"

// Packages are Debian's names of all that a benchmark may need.
var Packages = []string{
	"gunicorn", "haproxy", "libnginx-mod-nchan", "nginx-light", "postgresql", "pushpin", "python3-django",
	"python3-uvicorn", "redis-server", "wrk", "zurl",
}

// Installed says whether the program is there.
func Installed(tool Tool) bool {
	_, err := find(tool)
	return err == nil
}

// Install installs what is missing, on Debian and its kin, as root; elsewhere
// the error says what to install.
func Install(output io.Writer) error {
	args := append([]string{"install", "-y", "--no-install-recommends"}, Packages...)
	if _, err := exec.LookPath("apt-get"); err != nil || os.Geteuid() != 0 {
		return fmt.Errorf("only root on Debian can have it done; install these by hand: %s", strings.Join(Packages, " "))
	}
	for _, step := range [][]string{{"update"}, args} {
		command := exec.Command("apt-get", step...)
		command.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		command.Stdout, command.Stderr = output, output
		if err := command.Run(); err != nil {
			return fmt.Errorf("apt-get %s: %w", strings.Join(step, " "), err)
		}
	}
	return nil
}

// Find returns the program's path and notes its version.
func (b *Bench) Find(tool Tool) (string, error) {
	path, err := find(tool)
	if err == nil {
		b.note(tool.Program, path, tool.Version)
	}
	return path, err
}

// FindNchan returns nginx's path if its module for Nchan is there too.
func (b *Bench) FindNchan() (string, error) {
	if _, err := os.Stat(NchanModule); err != nil {
		return "", fmt.Errorf("%s is not there: apt-get install nginx-light libnginx-mod-nchan", NchanModule)
	}
	// The module does not say its version; the package that it came in does.
	b.note("nchan", "dpkg-query", "-W", "-f", "${Package} ${Version}", "libnginx-mod-nchan")
	return b.Find(Nginx)
}

// systemPython is the interpreter that Debian's gunicorn and uvicorn are for,
// whatever python3 comes first on PATH.
const systemPython = "/usr/bin/python3"

// FindUvicorn returns the interpreter to run -m uvicorn with.
func (b *Bench) FindUvicorn() (string, error) {
	if err := exec.Command(systemPython, "-c", "import uvicorn").Run(); err != nil {
		return "", fmt.Errorf("uvicorn is not installed for %s: apt-get install python3-uvicorn", systemPython)
	}
	b.note("uvicorn", systemPython, "-m", "uvicorn", "--version")
	return systemPython, nil
}

// find looks in sbin directories as well: Debian keeps daemons there, and they
// are not on everyone's PATH.
func find(tool Tool) (string, error) {
	for _, candidate := range []string{tool.Program, "/usr/sbin/" + tool.Program, "/usr/local/sbin/" + tool.Program} {
		if path, err := exec.LookPath(candidate); err == nil {
			return filepath.Abs(path)
		}
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

// Note records what a program of ours says of its version.
func (b *Bench) Note(name, program string, args ...string) { b.note(name, program, args...) }

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
