package holdfast_test

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The documentation is tested as a newcomer would read it: each command is run,
// each file that a page shows is written, and what is said to be seen is seen.
// docs_page_test.go has the conventions, docs_run_test.go what cannot be run.

// readPages reads the pages that match the patterns.
func readPages(t *testing.T, patterns ...string) (pages []*page) {
	t.Helper()
	for _, pattern := range patterns {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			p, err := parsePage(path, string(text))
			if err != nil {
				t.Fatal(err)
			}
			pages = append(pages, p)
		}
	}
	if len(pages) == 0 {
		t.Fatal("no page was found")
	}
	return pages
}

// userPages are those for users, whose commands are run.
func userPages(t *testing.T) []*page {
	return readPages(t, "README.md", "docs/*.md", "examples/*/README.md", "clients/python/README.md")
}

// dependOnSources has the test's result kept only for as long as the sources of
// the binary and of the client are the same: go test sees which files a
// test looks at, and not what it starts.
func dependOnSources(t *testing.T) {
	t.Helper()
	for _, dir := range []string{"cmd", "health", "holds", "lanes", "proxy", "upstream", "internal", "clients", "examples"} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				_, err = os.Stat(path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// runElsewhere are pages whose commands a test of their own runs, in another way
// than one after the other.
var runElsewhere = map[string]string{
	"docs/slots.md": "TestServers_EachRecipeOfThePageDoesWhatItSays", // each server in its turn, on one port
}

func TestDocs_APageThatIsRunElsewhereHasItsTest(t *testing.T) {
	tests := testNames(t)
	for path, name := range runElsewhere {
		if !slices.Contains(tests["cmd/holdfast"], name) {
			t.Errorf("nothing runs the commands of %s: there is no %s", path, name)
		}
	}
}

func TestDocs_EveryCommandRunsAndShowsWhatThePageShows(t *testing.T) {
	dependOnSources(t)
	k := newKit(t)
	for _, p := range userPages(t) {
		if len(p.steps()) == 0 || runElsewhere[p.path] != "" {
			continue
		}
		t.Run(strings.ReplaceAll(strings.TrimSuffix(p.path, ".md"), "/", "_"), func(t *testing.T) {
			t.Parallel()
			if err := p.run(k, t.TempDir()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestDocs_NoBlockIsLookedAtByNothing(t *testing.T) {
	for _, p := range userPages(t) {
		for _, fault := range p.checkBlocks() {
			t.Error(fault)
		}
	}
}

// A command that cannot be run is the exception, and each of them is in a page.
func TestDocs_EachCommandThatIsNotRunIsInAPage(t *testing.T) {
	var commands []string
	for _, p := range userPages(t) {
		for _, b := range p.blocks {
			if b.lang == "sh" {
				commands = append(commands, strings.Split(b.text, "\n")...)
			}
		}
	}
	for _, rule := range notRun {
		if !slices.ContainsFunc(commands, rule.command.MatchString) {
			t.Errorf("no page has a command %s: take it off the list", rule.command)
		}
	}
}

func TestDocs_EveryLinkAndAnchorResolves(t *testing.T) {
	paths := []string{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() && (d.Name() == "node_modules" || strings.HasPrefix(d.Name(), ".") && path != ".") {
			return filepath.SkipDir
		}
		if err == nil && strings.HasSuffix(path, ".md") {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	pages := readPages(t, paths...)
	for _, p := range pages {
		for _, fault := range p.deadLinks() {
			t.Error(fault)
		}
	}
}

func TestDocs_EveryConfigurationLoads(t *testing.T) {
	dependOnSources(t)
	k := newKit(t)
	found := 0
	for _, p := range userPages(t) {
		for _, b := range p.blocks {
			if b.lang != "yaml" {
				continue
			}
			found++
			if err := k.wantConfiguration(t.TempDir(), b.text); err != nil {
				t.Errorf("%s:%d: %v", p.path, b.line, err)
			}
		}
	}
	if found < 10 {
		t.Errorf("%d configurations: the pages were not read", found)
	}
}

func TestDocs_EveryPythonBlockCompiles(t *testing.T) {
	if _, err := exec.LookPath(debianPython); err != nil {
		t.Skip(err)
	}
	var blocks []namedBlock
	for _, p := range userPages(t) {
		for _, b := range p.blocks {
			if b.lang == "python" {
				blocks = append(blocks, namedBlock{fmt.Sprintf("%s:%d", p.path, b.line), b.text})
			}
		}
	}
	if len(blocks) < 10 {
		t.Errorf("%d blocks of Python: the pages were not read", len(blocks))
	}
	if err := wantPython(blocks); err != nil {
		t.Error(err)
	}
}
