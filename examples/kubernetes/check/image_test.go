package check

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
)

const root = "../../.."

// stages parses the Dockerfile; what BuildKit's own checks have to say is an error.
func stages(t *testing.T) []instructions.Stage {
	t.Helper()
	parsed, err := parser.Parse(bytes.NewReader(read(t, root, "Dockerfile")))
	if err != nil {
		t.Fatal(err)
	}
	for _, warning := range parsed.Warnings {
		t.Error(warning.Short)
	}
	lint := linter.New(&linter.Config{Warn: func(rule, _, _, message string, _ []parser.Range) { t.Errorf("%s: %s", rule, message) }})
	all, _, err := instructions.Parse(parsed.AST, lint)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// imageUser is the number of the user that the image runs as.
func imageUser(t *testing.T) int64 {
	t.Helper()
	all := stages(t)
	for _, command := range slices.Backward(all[len(all)-1].Commands) {
		if user, ok := command.(*instructions.UserCommand); ok {
			name, _, _ := strings.Cut(user.User, ":")
			// A cluster with runAsNonRoot cannot tell whether a name is root's.
			uid, err := strconv.ParseInt(name, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return uid
		}
	}
	return 0
}

func TestImage_IsTheBinaryAloneAndRunsAsNobody(t *testing.T) {
	all := stages(t)
	last := all[len(all)-1]
	if len(all) != 2 || last.BaseName != "scratch" {
		t.Fatalf("%d stages, the last from %s", len(all), last.BaseName)
	}
	if imageUser(t) <= 0 {
		t.Error("it runs as root")
	}
	copies, entry := 0, false
	for _, command := range last.Commands {
		switch command := command.(type) {
		case *instructions.CopyCommand:
			if copies++; command.From != all[0].Name {
				t.Errorf("%s is not of the build", command)
			}
		case *instructions.AddCommand, *instructions.RunCommand, *instructions.VolumeCommand:
			t.Errorf("%s has no place in an image from scratch", command)
		case *instructions.EntrypointCommand:
			entry = !command.PrependShell && slices.Equal(command.CmdLine, []string{"/holdfast"})
		}
	}
	if copies != 1 || !entry {
		t.Errorf("%d copies, the entry point is the binary without a shell: %v", copies, entry)
	}
}

// What is sent to the builder is what the binary is made of.
func TestImage_TheBuilderGetsTheSourcesAndNothingElse(t *testing.T) {
	patterns, err := ignorefile.ReadAll(bytes.NewReader(read(t, root, ".dockerignore")))
	if err != nil {
		t.Fatal(err)
	}
	matcher, err := patternmatcher.New(patterns)
	if err != nil {
		t.Fatal(err)
	}
	ignored := func(path string) bool {
		t.Helper()
		is, err := matcher.MatchesOrParentMatches(path)
		if err != nil {
			t.Fatal(err)
		}
		return is
	}
	list := exec.Command("go", "list", "-deps", "-f", `{{if .Module}}{{if .Module.Main}}{{$dir := .Dir}}{{range .GoFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}{{range .IgnoredGoFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}{{range .EmbedFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}{{end}}{{end}}`, "./cmd/holdfast")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	top, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	sources := strings.Fields(string(out))
	for _, source := range sources {
		path, err := filepath.Rel(top, source)
		if err != nil || ignored(path) {
			t.Errorf("%s is kept from the builder (%v)", path, err)
		}
	}
	if len(sources) < 50 || ignored("go.mod") || ignored("go.sum") {
		t.Errorf("%d files make the binary", len(sources))
	}
	for _, path := range []string{".git/config", ".env", "config.yaml", "dist/SHA256SUMS", "bin/holdfast", "cmd/holdfast/holdfast", "cmd/holdfast/kit_test.go", "holds/testdata/fuzz/x", "testdata/apps/ledger.py", "docs/life.md"} {
		if !ignored(path) {
			t.Errorf("%s is sent to the builder", path)
		}
	}
}
