package holdfast_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "holdfast"

// arrows are the imports that there may be between the packages of this
// module; a package that is not named imports none of them.
var arrows = map[string][]string{
	// docs: the binary prints the page that its answers name (holdfast help WORD).
	"cmd/holdfast": {"proxy", "lanes", "upstream", "health", "holds", "holds/bus", "internal/tcp", "docs"},
	"proxy":        {"lanes", "holds", "internal/http1", "internal/histogram", "internal/tcp", "upstream"},
	"lanes":        {"upstream", "internal/histogram"},
	"health":       {"internal/histogram"},
	"upstream":     {"internal/http1", "internal/tcp"},
	"holds":        {"holds/bus", "internal/http1", "internal/tcp"},
}

// outside are directories that are not part of the binary.
var outside = []string{"bench", "testdata", "bin"}

func TestArchitecture_PackagesImportOnlyWhatTheyMay(t *testing.T) {
	files := ourImports(t)
	for _, file := range slices.Sorted(maps.Keys(files)) {
		from := path.Dir(file)
		for _, to := range files[file] {
			if !slices.Contains(arrows[from], to) {
				t.Errorf("%s imports %s, which %s may not: it may import %v", file, to, from, arrows[from])
			}
		}
	}
	// So that the walk is known to see what there is.
	for _, arrow := range [][2]string{{"cmd/holdfast", "proxy"}, {"proxy", "lanes"}, {"lanes", "upstream"}, {"upstream", "internal/http1"}} {
		found := false
		for file, imports := range files {
			found = found || path.Dir(file) == arrow[0] && slices.Contains(imports, arrow[1])
		}
		if !found {
			t.Errorf("no file of %s was found to import %s", arrow[0], arrow[1])
		}
	}
}

// ourImports gives, by file, which packages of this module it imports: every
// file that is no test, for whatever system it is built.
func ourImports(t *testing.T) map[string][]string {
	t.Helper()
	files := map[string][]string{}
	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name != "." && (slices.Contains(outside, name) || entry.Name() == "testdata" || strings.HasPrefix(entry.Name(), ".")) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		imports := []string{}
		for _, spec := range parsed.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if to, ok := strings.CutPrefix(imported+"/", module+"/"); ok {
				imports = append(imports, strings.TrimSuffix(to, "/"))
			}
		}
		files[filepath.ToSlash(name)] = imports
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
