package holdfast_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// docs/guarantees.md names a test for each promise, and a rule of sabotage that
// shows the test to bite. What it names must be there; a rule whose text is no
// more in its file shows nothing.

// sabotageRule is a rule as it stands in the tables of testdata/sabotage.
type sabotageRule struct{ name, file, find, pkg, run string }

// sabotageRules reads the tables, which are no package of this module's tests.
func sabotageRules(t *testing.T) (rules []sabotageRule) {
	t.Helper()
	paths, err := filepath.Glob("testdata/sabotage/*.go")
	if err != nil || len(paths) == 0 {
		t.Fatal("no tables:", err)
	}
	consts, found := map[string]string{}, []*ast.CompositeLit{}
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ValueSpec:
				if len(n.Values) == 1 {
					if literal, ok := n.Values[0].(*ast.BasicLit); ok && literal.Kind == token.STRING {
						consts[n.Names[0].Name], _ = strconv.Unquote(literal.Value)
					}
				}
			case *ast.CompositeLit:
				found = append(found, n)
			}
			return true
		})
	}
	for _, literal := range found {
		if r := ruleOf(literal, consts); r.name != "" {
			rules = append(rules, r)
		}
	}
	return rules
}

func ruleOf(literal *ast.CompositeLit, consts map[string]string) (r sabotageRule) {
	for _, element := range literal.Elts {
		pair, ok := element.(*ast.KeyValueExpr)
		if !ok {
			return sabotageRule{}
		}
		value := textOf(pair.Value, consts)
		switch fmt.Sprint(pair.Key) {
		case "name":
			r.name = value
		case "file":
			r.file = value
		case "find":
			r.find = value
		case "pkg":
			r.pkg = value
		case "run":
			r.run = value
		}
	}
	return r
}

// textOf is what a constant of the tables is.
func textOf(e ast.Expr, consts map[string]string) (value string) {
	switch e := e.(type) {
	case *ast.BasicLit:
		value, _ = strconv.Unquote(e.Value)
	case *ast.Ident:
		value = consts[e.Name]
	case *ast.BinaryExpr:
		value = textOf(e.X, consts) + textOf(e.Y, consts)
	case *ast.CallExpr: // corpus("…")
		if len(e.Args) != 1 {
			return ""
		}
		value = "^TestWire_AForwardedRouteSeesEachRequestWholeOrNotAtAll$/^" + textOf(e.Args[0], consts) + "$"
	}
	return value
}

var testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Za-z0-9_]+)\(`)

// testNames are the tests of each package of the module.
func testNames(t *testing.T) map[string][]string {
	t.Helper()
	names := map[string][]string{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, found := range testFunction.FindAllStringSubmatch(string(text), -1) {
			pkg := filepath.ToSlash(filepath.Dir(path))
			names[pkg] = append(names[pkg], found[1])
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestSabotage_EachRuleFindsItsTextAndItsTest(t *testing.T) {
	tests, seen := testNames(t), map[string]bool{}
	corpus, err := os.ReadFile("testdata/wire/requests.txt")
	if err != nil {
		t.Fatal(err)
	}
	cases := string(corpus)
	rules := sabotageRules(t)
	if len(rules) < 100 {
		t.Fatalf("%d rules: the tables were not read", len(rules))
	}
	for _, r := range rules {
		text, err := os.ReadFile(r.file)
		if err != nil {
			t.Errorf("%s: %v", r.name, err)
		} else if n := strings.Count(string(text), r.find); n != 1 {
			t.Errorf("%s: in %s its text stands %d times, want once: %q", r.name, r.file, n, r.find)
		}
		if seen[r.name] {
			t.Errorf("%s is there twice", r.name)
		}
		seen[r.name] = true
		top, part, _ := strings.Cut(r.run, "/")
		if run, err := regexp.Compile(top); err != nil || !slices.ContainsFunc(tests[r.pkg], run.MatchString) {
			t.Errorf("%s: no test of %s is %s (%v)", r.name, r.pkg, top, err)
		}
		// A subtest that is not there fails nothing: the rest of its test passes.
		if name := strings.Trim(part, "^$"); strings.HasPrefix(top, "^TestWire_") && !strings.Contains(cases, "\n"+name+":") {
			t.Errorf("%s: there is no case %s in testdata/wire/requests.txt", r.name, name)
		}
	}
}

var quoted = regexp.MustCompile("`([^`]+)`")

// TestGuarantees_NamesTestsAndRulesThatThereAre reads the rows of three
// columns: a promise, the tests that hold it, and the rules, or why there is none.
func TestGuarantees_NamesTestsAndRulesThatThereAre(t *testing.T) {
	text, err := os.ReadFile("docs/guarantees.md")
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]bool{}
	for _, names := range testNames(t) {
		for _, name := range names {
			tests[name] = true
		}
	}
	known, told := map[string]bool{}, map[string]bool{}
	for _, r := range sabotageRules(t) {
		known[r.name] = true
	}
	rows := 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if !strings.HasPrefix(line, "|") || len(cells) != 3 || strings.Contains(line, "---") || strings.TrimSpace(cells[1]) == "held by" {
			continue
		}
		rows++
		named := quoted.FindAllStringSubmatch(cells[1], -1)
		for _, name := range named {
			if !tests[name[1]] {
				t.Errorf("there is no test %s", name[1])
			}
		}
		rules := quoted.FindAllStringSubmatch(cells[2], -1)
		for _, name := range rules {
			if told[name[1]] = true; !known[name[1]] {
				t.Errorf("there is no rule %s", name[1])
			}
		}
		if len(named) == 0 || len(rules) == 0 && len(strings.TrimSpace(cells[2])) < 10 {
			t.Errorf("without a test, or without a rule and a reason: %s", strings.TrimSpace(line))
		}
	}
	if rows < 50 {
		t.Errorf("%d rows: the tables were not read", rows)
	}
	for name := range known {
		if !told[name] {
			t.Errorf("the rule %s is not in docs/guarantees.md", name)
		}
	}
}
