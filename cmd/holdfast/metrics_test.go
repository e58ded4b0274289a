package main

import (
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// The metrics as Prometheus' own tool sees them, and the page of docs/ that tells of them.

const allMetrics = `
instance: here
upstreams: {app: {targets: ["http://%s"]}, absent: {targets: ["http://127.0.0.1:9"]}}
lanes:
  web: {upstream: app, slots: 4}
  rt: {upstream: absent, kind: stream, slots: 3}
limits: {memory: 64MiB, spool: {bytes: 1GiB}}
holds: {journal: {bytes: 8MiB}}
routes:
  - {match: "/robots.txt", respond: {body: "User-agent: *\n"}}
  - {match: "/rt/", lane: rt}
  - {match: "/", lane: web}
`

// promtool gives Prometheus' own tool, or skips the test: it is Debian's, and
// scripts/setup.sh installs it where it can.
func promtool(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("there is no promtool here: scripts/setup.sh says how to get it")
	}
	return exec.Command(path, args...)
}

// wantNoComplaint runs promtool, which must say nothing but that all is well.
func wantNoComplaint(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %v\n%s", cmd.Args[1:], err, out)
	}
}

// exposition is the text of /metrics.
func (s *site) exposition() string {
	s.t.Helper()
	return string(wantGet(s.t, onceClient(), "http://"+s.admin()+"/metrics"))
}

// metricShape is a metric's type, and which of its labels have which values.
type metricShape struct {
	kind   string
	values map[string]map[string]bool // by label
}

func (s metricShape) labels() []string { return slices.Sorted(maps.Keys(s.values)) }

// metricShapes reads an exposition; names are without holdfast_.
func metricShapes(t *testing.T, exposition string) map[string]metricShape {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(exposition))
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]metricShape)
	for name, family := range families {
		short, ours := strings.CutPrefix(name, "holdfast_")
		if !ours {
			t.Errorf("%s is not one of Holdfast's names", name)
		}
		s := metricShape{strings.ToLower(family.GetType().String()), make(map[string]map[string]bool)}
		for _, m := range family.GetMetric() {
			for _, l := range m.GetLabel() {
				if s.values[l.GetName()] == nil {
					s.values[l.GetName()] = make(map[string]bool)
				}
				s.values[l.GetName()][l.GetValue()] = true
			}
		}
		all[short] = s
	}
	return all
}

// unasked serves allMetrics: one target is away, and nobody has asked for anything.
func unasked(t *testing.T) (*site, *app) {
	t.Helper()
	a := startGunicorn(t, "-w", "1", "--threads", "8")
	return startSite(t, allMetrics, a), a
}

// closedLists are the metrics and all values of their labels before anybody has asked for anything.
func closedLists(target string) map[string]map[string][]string {
	lanes, kinds := []string{"rt", "web"}, []string{"response", "stream", "websocket"}
	routes := []string{"", "/", "/health", "/ready", "/robots.txt", "/rt/"}
	lists := map[string]map[string][]string{
		"lane_refused_total": {"lane": lanes, "reason": {"draining", "lane_full", "lane_timeout", "upstream_down"}},
		"requests_total":     {"route": routes, "code": {"200", "499", "500", "502", "503", "504"}},
		"request_seconds":    {"route": routes},
		"upstream_up":        {"target": {"http://" + target, "http://127.0.0.1:9"}},
		"holds_open":         {"kind": kinds},
		"holds_ended_total": {"kind": kinds, "reason": {"bus_lost", "client", "draining", "error", "expired", "overload", "protocol",
			"published", "slow", "stalled", "too_big"}},
		"inbound_total": {"result": {"failed", "ok", "overload"}},
		"reload_total":  {"result": {"failed", "ok"}},
		"build_info":    {"version": {version}, "instance": {"here"}},
	}
	for _, name := range []string{"slots", "in_use", "waiting", "abandoned", "wait_seconds", "closed_on_view_total"} {
		lists["lane_"+name] = map[string][]string{"lane": lanes}
	}
	for _, name := range []string{"parked", "retried_total", "gaps_told_total", "events_published_total", "events_offered_total", "outbox_bytes",
		"journal_bytes", "memory_bytes", "spool_bytes", "spool_refused_total", "memory_limit_bytes", "spool_limit_bytes", "journal_limit_bytes", "bus_connected", "bus_entries_total"} {
		lists[name] = nil
	}
	return lists
}

func TestMetrics_EverySeriesOfTheClosedListsIsThereBeforeAnybodyAsks(t *testing.T) {
	t.Parallel()
	s, a := unasked(t)
	text := s.exposition()
	got, want := metricShapes(t, text), closedLists(a.addr)
	if names, wanted := slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)); !slices.Equal(names, wanted) {
		t.Errorf("there is %q, want %q", names, wanted)
	}
	for name, labels := range want {
		if have := got[name].labels(); !slices.Equal(have, slices.Sorted(maps.Keys(labels))) {
			t.Errorf("%s has the labels %q, want %q", name, have, slices.Sorted(maps.Keys(labels)))
		}
		pairs := 1
		for label, values := range labels {
			slices.Sort(values)
			if have := slices.Sorted(maps.Keys(got[name].values[label])); !slices.Equal(have, values) {
				t.Errorf("%s: %s is %q, want %q", name, label, have, values)
			}
			pairs *= len(values)
		}
		if name == "build_info" {
			continue
		}
		sample := "\nholdfast_" + name
		if got[name].kind == "histogram" {
			sample += "_count"
		}
		if n := strings.Count(text, sample+"{") + strings.Count(text, sample+" "); n != pairs {
			t.Errorf("%s has %d series, want all %d", name, n, pairs)
		}
	}
	for name, want := range map[string]float64{"memory": 64 << 20, "spool": 1 << 30, "journal": 8 << 20} {
		if n := metric(t, s.admin(), "holdfast_"+name+"_limit_bytes"); n != want {
			t.Errorf("the limit of %s is %v, the configuration says %v", name, n, want)
		}
	}
}

// The bounds are those in force.
func TestMetrics_AReloadChangesTheBounds(t *testing.T) {
	t.Parallel()
	s, a := unasked(t)
	s.write(strings.Replace(allMetrics, "memory: 64MiB", "memory: 32MiB", 1), a)
	if _, err := s.reload(); err != nil {
		t.Fatal(err)
	}
	if n := metric(t, s.admin(), "holdfast_memory_limit_bytes"); n != 32<<20 {
		t.Errorf("%v bytes", n)
	}
}

func TestMetrics_PromtoolHasNoComplaint(t *testing.T) {
	t.Parallel()
	cmd := promtool(t, "check", "metrics")
	s, _ := unasked(t)
	client := newClient(t)
	for _, path := range []string{"/robots.txt", "/fast", "/fast?x=1", "/no-such-view", "/health"} {
		if _, _, err := get(t.Context(), client, s.url(path)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.reload(); err != nil {
		t.Fatal(err)
	}
	publishTo(t, s.publishLn.Addr().String(), "news", "an event")
	eventually(t, "the traffic to be counted", func() bool {
		return metric(t, s.admin(), `holdfast_requests_total{code="404",route="/"}`) == 1 &&
			metric(t, s.admin(), `holdfast_requests_total{code="200",route="/robots.txt"}`) == 1
	})
	cmd.Stdin = strings.NewReader(s.exposition())
	wantNoComplaint(t, cmd)
}

var metricRow = regexp.MustCompile("(?m)^\\| `holdfast_([a-z_]+)(?:\\{([a-z,]+)\\})?` \\| ([a-z]+) \\| (.+) \\| (.+) \\|$")

func TestMetricsPage_HasEachMetricWithItsTypeAndLabels(t *testing.T) {
	t.Parallel()
	s, _ := unasked(t)
	got := metricShapes(t, s.exposition())
	page := readFile(t, "../../docs/metrics.md")
	told := make(map[string]bool)
	for _, row := range metricRow.FindAllStringSubmatch(page, -1) {
		name, have := row[1], got[row[1]]
		told[name] = true
		labels := strings.Split(row[2], ",")
		if row[2] == "" {
			labels = nil
		}
		slices.Sort(labels)
		if have.kind != row[3] || !slices.Equal(have.labels(), labels) {
			t.Errorf("%s is a %s of %q on the page, and a %s of %q in the answer", name, row[3], labels, have.kind, have.labels())
		}
		for _, label := range labels {
			if label == "reason" && name == "holds_ended_total" || !slices.Contains([]string{"reason", "kind", "result", "code"}, label) {
				continue // holds.md has the reasons; the others' values are the configuration's
			}
			for value := range have.values[label] {
				if !strings.Contains(row[4], value) {
					t.Errorf("%s: the page does not name %s %q", name, label, value)
				}
			}
		}
	}
	for name := range got {
		if !told[name] {
			t.Errorf("the page does not have %s", name)
		}
	}
	headings := regexp.MustCompile(`(?m)^### (\w+)$`).FindAllStringSubmatch(page, -1)
	rules := alertRules(t)
	if len(headings) != len(rules) {
		t.Errorf("%d headings for %d rules", len(headings), len(rules))
	}
	for _, rule := range rules {
		if !strings.Contains(page, "\n### "+rule.Alert+"\n\n") {
			t.Errorf("the page does not say what to do about %s", rule.Alert)
		}
	}
	for _, link := range regexp.MustCompile(`\[(Holdfast\w+)\]\(#(\w+)\)`).FindAllStringSubmatch(page, -1) {
		if !strings.Contains(page, "\n### "+link[1]+"\n") || link[2] != strings.ToLower(link[1]) {
			t.Errorf("%s leads nowhere", link[0])
		}
	}
}
