package holdfast_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The tests of the documentation are tested themselves, with small pages:
// whatever a page may get wrong has to be seen.

// pageOf makes a page of lines, in which ”' stands for a fence.
func pageOf(t *testing.T, lines ...string) *page {
	t.Helper()
	p, err := parsePage("page.md", strings.ReplaceAll(strings.Join(lines, "\n"), "'''", "```"))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// wantFault: err says want, or there is none where want is "".
func wantFault(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("a page that is right fails: %v", err)
	case want != "" && err == nil:
		t.Errorf("it is not seen: %s", want)
	case want != "" && !strings.Contains(err.Error(), want):
		t.Errorf("%v\nwant: %s", err, want)
	}
}

var smallPages = []struct {
	name  string
	lines []string
	fault string // "": the page is right
}{
	{"a command that works", []string{"'''sh", "true", "'''"}, ""},
	{"a command that fails", []string{"'''sh", "echo before", "false", "echo behind", "'''"}, "page.md:1: a command failed"},
	{"a command that is not there", []string{"text", "", "'''sh", "no-such-command", "'''"}, "page.md:3: a command failed"},
	{"one that fails in a pipe", []string{"'''sh", "false | cat", "'''"}, "a command failed"},
	{"a variable that is not set", []string{"'''sh", "echo $nobody", "'''"}, "a command failed"},
	{"what is no command at all", []string{"'''sh", "if true", "'''"}, "a command failed"},
	{"what is set in one block is there in the next", []string{"'''sh", "x=1; cd bin", "'''", "'''sh", "echo $x; basename $PWD", "'''", "'''text", "1", "bin", "'''"}, ""},
	{"the binary is on PATH and in bin/", []string{"'''sh", "holdfast version | cut -c1-8; bin/holdfast version | cut -c1-8", "'''", "'''text", "holdfast", "holdfast", "'''"}, ""},

	{"another output", []string{"'''sh", "echo one", "'''", "'''text", "two", "'''"}, "page.md:4: is not what the page shows"},
	{"more output", []string{"'''sh", "echo one; echo two", "'''", "'''text", "one", "'''"}, "is not what the page shows"},
	{"less output", []string{"'''sh", "echo one", "'''", "'''text", "one", "two", "'''"}, "is not what the page shows"},
	{"no output", []string{"'''sh", "true", "'''", "'''text", "one", "'''"}, "is not what the page shows"},
	{"output in another order", []string{"'''sh", "echo one; echo two", "'''", "'''text", "two", "one", "'''"}, "is not what the page shows"},
	{"a part of a line", []string{"'''sh", "echo one two", "'''", "'''text", "one", "'''"}, "is not what the page shows"},
	{"ids and times are not compared", []string{"'''sh", "echo id 1795996459946518 2026-11-30T05:20:25.6Z dv2p7j5j-1-0-5", "'''", "'''text", "id 1795996485050715 2020-01-01T00:00:00Z aaaaaaaa-3-0-1", "'''"}, ""},
	{"other numbers are", []string{"'''sh", "echo id 1795996459946518 reached 1", "'''", "'''text", "id 1795996459946518 reached 2", "'''"}, "is not what the page shows"},
	{"… is whatever stands there", []string{"'''sh", "echo one two three; echo; echo four; echo five", "'''", "'''text", "one … three", "…", "five", "'''"}, ""},
	{"… is not another line", []string{"'''sh", "echo one; echo two", "'''", "'''text", "one…two", "'''"}, "is not what the page shows"},
	{"errors are shown where there is nothing else", []string{"'''sh", "echo one >&2", "'''", "'''text", "one", "'''"}, ""},

	{"a file that a page shows is there", []string{"'''python", "# sub/say.py", "print('hello')", "'''", "'''sh", "python3 sub/say.py", "'''", "'''text", "hello", "'''"}, ""},
	{"one whose program fails", []string{"'''python", "# say.py", "print(hello)", "'''", "'''sh", "python3 say.py", "'''"}, "NameError"},
	{"one that comes later", []string{"'''sh", "cat say.py", "'''", "'''python", "# say.py", "'''"}, "a command failed"},
	{"a comment that names no file", []string{"'''python", "# say it", "print(hello)", "'''", "'''sh", "ls", "'''", "'''text", "bin", "clients", "config.yaml.example", "examples", "'''"}, ""},

	{"what comes from the background is waited for", []string{"'''sh", "mkfifo say", "cat say &", "'''", "'''sh", "echo hello >say", "'''"}, ""},
	{"what does not come from it", []string{"'''sh", "echo one; cat /dev/zero | cat >/dev/null &", "'''", "'''text", "two", "'''"}, "did not come"},
	{"it is shown beside what the commands write", []string{"'''sh", "mkfifo say; exec 9<>say", "echo one; cat <&9 &", "'''", "'''text", "one", "'''", "'''sh", "echo two; echo hello >&9", "'''", "'''text", "two", "'''", "'''text", "hello", "'''"}, ""},
	{"or alone", []string{"'''sh", "mkfifo say; exec 9<>say", "echo one; cat <&9 &", "'''", "'''text", "one", "'''", "'''sh", "echo hello >&9", "'''", "'''text", "hello", "'''"}, ""},
	{"and what is wrong in it", []string{"'''sh", "mkfifo say; exec 9<>say", "echo one; cat <&9 &", "'''", "'''text", "one", "'''", "'''sh", "echo hello >&9", "'''", "'''text", "goodbye", "'''"}, "did not come"},
	{"there is none", []string{"'''sh", "echo one", "'''", "'''text", "one", "'''", "'''text", "hello", "'''"}, "nothing in the background writes this"},

	{"a command that cannot be run is left out", []string{"'''sh", "docker run \\", "  no-such-command", "echo behind", "'''", "'''text", "behind", "'''"}, ""},
	{"but not its name elsewhere", []string{"'''sh", "true && docker-is-not-this", "'''"}, "a command failed"},
	{"a page that hangs", []string{"'''sh", "tail -f /dev/null", "'''"}, "did not end within"},
	{"ports are its own, and the machine is reached at none", []string{"'''sh", "python3 -m http.server --bind 127.0.0.1 8080 >log 2>&1 &", "curl -s --retry 5 --retry-connrefused http://127.0.0.1:8080/log -o seen", "'''"}, ""},
}

func TestDocs_AWrongPageFailsAndARightOneDoesNot(t *testing.T) {
	dependOnSources(t)
	k := newKit(t)
	for _, small := range smallPages {
		t.Run(strings.ReplaceAll(small.name, "/", ""), func(t *testing.T) {
			t.Parallel()
			k := *k
			if k.shown = 10 * time.Second; small.fault == "did not come" {
				k.shown = 100 * time.Millisecond // nothing will
			}
			if k.bound = time.Minute; small.fault == "did not end within" {
				k.bound = time.Second
			}
			wantFault(t, pageOf(t, small.lines...).run(&k, t.TempDir()), small.fault)
		})
	}
}

// A process that a page left is gone when its test is over: nobody has the
// pipe open any more.
func TestDocs_NothingOfAPageIsLeftRunning(t *testing.T) {
	k := newKit(t)
	pipe, end := filepath.Join(t.TempDir(), "pipe"), filepath.Join(t.TempDir(), "end")
	if err := errors.Join(syscall.Mkfifo(pipe, 0o600), syscall.Mkfifo(end, 0o600)); err != nil {
		t.Fatal(err)
	}
	read, err := os.OpenFile(pipe, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	p := pageOf(t, "'''sh", "exec 8<>"+end+" 9>"+pipe, "(trap '' TERM HUP INT; read -r <&8) &", "'''")
	if err := p.run(k, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	read.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.ReadAll(read); err != nil {
		t.Error("a process of the page still has the pipe open:", err)
		os.WriteFile(end, []byte("\n"), 0) // it has been waiting for a line
	}
}

func TestDocs_ABlockThatNothingReadsIsNamed(t *testing.T) {
	for _, test := range []struct {
		fault string
		lines []string
	}{
		{"", []string{"'''sh", "true", "'''", "'''text", "one", "'''", "'''", "app ──► holdfast   waits", "holdfast   waits", "'''"}},
		{"page.md:1: no test reads ```bash", []string{"'''bash", "true", "'''"}},
		{"no test reads ```console", []string{"'''console", "$ true", "'''"}},
		{"no test reads ```shell", []string{"  '''shell", "  true", "  '''"}},
		{"page.md:1: it sleeps", []string{"'''sh", "true & sleep 1", "'''"}},
		{`"$" is a command`, []string{"'''", "$ curl localhost", "'''"}},
		{`"curl -" is a command`, []string{"'''text", "curl -s localhost", "'''"}},
		{`"bin/holdfast p" is a command`, []string{"text", "'''", "bin/holdfast publish news", "'''"}},
	} {
		got := strings.Join(pageOf(t, test.lines...).checkBlocks(), "\n")
		if test.fault == "" && got != "" || !strings.Contains(got, test.fault) {
			t.Errorf("%q: %q, want %q", test.lines, got, test.fault)
		}
	}
	if _, err := parsePage("page.md", "```sh\ntrue\n"); err == nil || !strings.Contains(err.Error(), "page.md:1: this block is never closed") {
		t.Errorf("a block without an end: %v", err)
	}
}

func TestDocs_ADeadLinkIsNamed(t *testing.T) {
	for _, test := range []struct{ fault, text string }{
		{"", "# What it is: `a` & b?\n\n[up](#what-it-is-a--b) [file](docs/holds.md) [part](docs/holds.md#long-polls) [dir](examples/systemd) [far](https://example.com/x)"},
		{"", "# Twice\n# Twice\n[second](#twice-1)\n`[code](nowhere.md)`\n```text\n[code](nowhere.md)\n```"},
		{"page.md:3: the link (docs/nowhere.md) leads nowhere: there is no docs/nowhere.md", "one\n\n[x](docs/nowhere.md)"},
		{"no heading there has the anchor #nowhere", "[x](docs/holds.md#nowhere)"},
		{"no heading there has the anchor #twice-2", "# Twice\n# Twice\n[x](#twice-2)"},
		{"there is no docs/nowhere.png", "| [x](docs/holds.md) | ![a picture](docs/nowhere.png) |"},
		{"there is no nowhere.md", "[![a picture](docs/demo.png)](nowhere.md)"},
	} {
		p, err := parsePage("page.md", test.text)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(p.deadLinks(), "\n")
		if test.fault == "" && got != "" || !strings.Contains(got, test.fault) {
			t.Errorf("%q: %q, want %q", test.text, got, test.fault)
		}
	}
}

func TestDocs_AWrongConfigurationIsNamed(t *testing.T) {
	dependOnSources(t)
	k := newKit(t)
	for _, test := range []struct{ fault, text string }{
		{"", "holds: {max_age: 1h}\n"},
		{"", "routes:\n  - {match: /x/, files: {dir: /srv/static}}\n  - {match: /y/, files: {dir: y}}\n  - {match: /z/, grant: {key_env: SOME_KEY}}\n  - {match: /, lane: slow}\n"},
		{"", "publish: {listen: \":5561\", keys: [\"${PUBLISH_KEY}\"]}\n"},
		{"", "scrape_configs: [{job_name: holdfast}]\n"},
		{"yaml:", "routes: [{match: /, lane: web}\n"},
		{"is no mapping", "just text\n"},
		{`unknown key \"rout\"`, "rout: []\n"},
		{"has no unit", "holds: {max_age: 1}\n"},
		{"no_such_lane", "routes: [{match: /, lane: no_such_lane}]\n"},
		{"more than", "upstreams: {app: {targets: [\"http://127.0.0.1:8000\"], concurrency: 1}}\nlanes: {web: {upstream: app, slots: 2}}\nroutes: [{match: /, lane: web}]\n"},
	} {
		err := k.wantConfiguration(t.TempDir(), test.text)
		wantFault(t, err, strings.ReplaceAll(test.fault, `\"`, `"`))
	}
}

func TestDocs_PythonThatDoesNotCompileIsNamed(t *testing.T) {
	if _, err := os.Stat(debianPython); err != nil {
		t.Skip(err)
	}
	wantFault(t, wantPython([]namedBlock{{"page.md:1", "    indented = 1\n"}, {"page.md:5", "async def f():\n    await g()\n"}}), "")
	wantFault(t, wantPython([]namedBlock{{"page.md:1", "x = 1\n"}, {"page.md:5", "\ndef f(:\n"}}), "page.md:5: line 2 of the block")
}
