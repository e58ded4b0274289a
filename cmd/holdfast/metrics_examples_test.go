package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// The alert rules and the dashboard of examples/, held to what a running Holdfast exposes.

// alertRule is what these tests look at of a rule.
type alertRule struct {
	Alert, Expr         string
	Labels, Annotations map[string]string
}

func alertRules(t *testing.T) (rules []alertRule) {
	t.Helper()
	var file struct{ Groups []struct{ Rules []alertRule } }
	readExample(t, "prometheus/alerts.yaml", &file)
	for _, group := range file.Groups {
		rules = append(rules, group.Rules...)
	}
	if len(rules) == 0 {
		t.Fatal("no rules")
	}
	return rules
}

// dashboardPanel is a panel, or a row.
type dashboardPanel struct {
	ID                  int
	Type, Title, Repeat string
	Targets             []struct{ Expr, LegendFormat string }
	GridPos             struct{ H, W, X, Y int }
	FieldConfig         struct{ Defaults struct{ Unit string } }
}

// dashboard is what these tests look at of a dashboard.
type dashboard struct {
	Panels     []dashboardPanel
	Templating struct {
		List []struct{ Name, Definition string }
	}
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	if err := json.Unmarshal([]byte(readFile(t, filepath.Join(examplesDir, "grafana/holdfast.json"))), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// expressions are those of the dashboard and of its variables' values, by where they stand.
func (d *dashboard) expressions() map[string]string {
	all := make(map[string]string)
	for _, p := range d.Panels {
		for i, target := range p.Targets {
			all[fmt.Sprintf("panel %q, %d", p.Title, i)] = target.Expr
		}
	}
	for _, v := range d.Templating.List {
		if values := labelValues.FindStringSubmatch(v.Definition); values != nil {
			all["variable "+v.Name] = "count by (" + values[2] + ") (" + values[1] + ")"
		}
	}
	return all
}

var (
	labelValues = regexp.MustCompile(`^label_values\((.+), (\w+)\)$`) // Grafana's, and no PromQL
	quotedText  = regexp.MustCompile(`"[^"]*"`)
	aName       = regexp.MustCompile(`holdfast_[a-z_]+`)
	selector    = regexp.MustCompile(`(holdfast_[a-z_]+|up)\{([^}]*)\}`)
	grouping    = regexp.MustCompile(`\b(?:by|on|group_left) \(([^)]*)\)`)
	templated   = regexp.MustCompile(`\{\{ ?(?:\$labels\.)?(\w+) ?\}\}`)
	scrape      = []string{"job", "instance"} // Prometheus' own
)

// labelsIn are the labels that an expression of one language or the other names.
func labelsIn(expr string) (labels []string) {
	for _, list := range grouping.FindAllStringSubmatch(expr, -1) {
		for label := range strings.SplitSeq(list[1], ",") {
			labels = append(labels, strings.TrimSpace(label))
		}
	}
	for _, s := range selector.FindAllStringSubmatch(expr, -1) {
		for matcher := range strings.SplitSeq(s[2], ",") {
			labels = append(labels, strings.TrimRight(strings.TrimSpace(matcher), `=~!"`))
		}
	}
	return slices.DeleteFunc(labels, func(label string) bool { return label == "" })
}

// wantKnown: what an expression, and the texts that are shown with it, name is there. Its own metrics are added to named.
func wantKnown(t *testing.T, where, expr string, texts []string, got map[string]metricShape, named map[string]bool) {
	t.Helper()
	bare := quotedText.ReplaceAllString(expr, `""`)
	known := map[string]bool{"le": false}
	for _, label := range scrape {
		known[label] = true
	}
	for _, full := range aName.FindAllString(bare, -1) {
		name := strings.TrimPrefix(full, "holdfast_")
		for _, part := range []string{"_bucket", "_count", "_sum"} {
			if short, cut := strings.CutSuffix(name, part); cut && got[short].kind == "histogram" {
				name, known["le"] = short, true
			}
		}
		if _, ok := got[name]; !ok {
			t.Errorf("%s: there is no %s", where, full)
		}
		if got[name].kind == "histogram" && "holdfast_"+name == full {
			t.Errorf("%s: %s is a histogram, which has no series of that name", where, full)
		}
		named[name] = true
		for label := range got[name].values {
			known[label] = true
		}
	}
	labels := labelsIn(bare)
	for _, text := range texts {
		for _, m := range templated.FindAllStringSubmatch(text, -1) {
			labels = append(labels, m[1])
		}
	}
	for _, label := range labels {
		if !known[label] {
			t.Errorf("%s: its metrics have no label %q", where, label)
		}
	}
	for _, m := range regexp.MustCompile(`\b(kind|reason|result|code)(=~|!=|=)"([^"]*)"`).FindAllStringSubmatch(expr, -1) {
		for value := range strings.SplitSeq(m[3], "|") {
			if !slices.ContainsFunc(slices.Collect(maps.Values(got)), func(s metricShape) bool { return s.values[m[1]][value] }) && value != "5.." {
				t.Errorf("%s: no metric has %s %q", where, m[1], value)
			}
		}
	}
}

func TestExamples_AlertsAndDashboardNameOnlyWhatThereIsAndTheDashboardAllOfIt(t *testing.T) {
	t.Parallel()
	s, _ := unasked(t)
	got := metricShapes(t, s.exposition())
	for _, rule := range alertRules(t) {
		wantKnown(t, rule.Alert, rule.Expr, slices.Collect(maps.Values(rule.Annotations)), got, map[string]bool{})
		if !slices.Contains([]string{"critical", "warning", "info"}, rule.Labels["severity"]) || rule.Annotations["summary"] == "" ||
			!strings.Contains(rule.Annotations["description"], "docs/metrics.md#"+strings.ToLower(rule.Alert)) {
			t.Errorf("%s: %v %v", rule.Alert, rule.Labels, rule.Annotations)
		}
		if strings.Contains(rule.Expr, "lane_") && !strings.Contains(rule.Annotations["summary"], "$labels.lane") {
			t.Errorf("%s does not name the lane", rule.Alert)
		}
	}
	d, shown := readDashboard(t), make(map[string]bool)
	for where, expr := range d.expressions() {
		wantKnown(t, where, expr, nil, got, shown)
	}
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			wantKnown(t, p.Title, target.Expr, []string{target.LegendFormat}, got, shown)
		}
	}
	for name := range got {
		if !shown[name] {
			t.Errorf("the dashboard does not show %s", name)
		}
	}
}

// What Grafana would put right without a word, or show as an empty panel.
func TestExamples_TheDashboardIsWhole(t *testing.T) {
	d := readDashboard(t)
	variables, repeated := map[string]bool{"__rate_interval": true}, ""
	for _, v := range d.Templating.List {
		variables[v.Name] = true
	}
	ids, taken := make(map[int]bool), make(map[[2]int]string)
	for _, p := range d.Panels {
		if ids[p.ID] || p.ID == 0 {
			t.Errorf("%q: its id %d is not its own", p.Title, p.ID)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("%q lies on %q, or beyond the width", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			repeated = p.Repeat
			continue
		}
		if len(p.Targets) == 0 || p.FieldConfig.Defaults.Unit == "" {
			t.Errorf("%q has no query or no unit", p.Title)
		}
		for _, target := range p.Targets {
			for _, m := range regexp.MustCompile(`\$(\w+)`).FindAllStringSubmatch(target.Expr, -1) {
				if !variables[m[1]] {
					t.Errorf("%q: there is no variable $%s", p.Title, m[1])
				}
				if m[1] == "lane" && repeated != "lane" {
					t.Errorf("%q: outside the row of a lane $lane is all of them", p.Title)
				}
			}
		}
	}
	if !slices.ContainsFunc(d.Panels, func(p dashboardPanel) bool { return p.Type == "row" && p.Repeat == "lane" }) {
		t.Error("no row for each lane")
	}
}

func TestExamples_PromtoolTakesTheAlertRulesAndTheirTestsPass(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(examplesDir, "prometheus")
	wantNoComplaint(t, promtool(t, "check", "rules", filepath.Join(dir, "alerts.yaml")))
	wantNoComplaint(t, promtool(t, "test", "rules", filepath.Join(dir, "alerts_test.yaml")))
	tests := readFile(t, filepath.Join(dir, "alerts_test.yaml"))
	for _, rule := range alertRules(t) {
		if !strings.Contains(tests, "alertname: "+rule.Alert+"\n") || !strings.Contains(tests, "alertname: "+rule.Alert+", ") {
			t.Errorf("no test sees %s fire, or none sees it not fire", rule.Alert)
		}
	}
}

// The dashboard's expressions are PromQL: promtool reads them as rules.
func TestExamples_PromtoolTakesTheDashboardsExpressions(t *testing.T) {
	t.Parallel()
	type record struct {
		Record string `yaml:"record"`
		Expr   string `yaml:"expr"`
	}
	var records []record
	d := readDashboard(t)
	for _, expr := range d.expressions() {
		records = append(records, record{fmt.Sprintf("dashboard:%d", len(records)), strings.ReplaceAll(expr, "$__rate_interval", "5m")})
	}
	text, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": records}}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	wantNoComplaint(t, promtool(t, "check", "rules", path))
}
