package isolation

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestReport_OneErrorInvalidatesTheRow(t *testing.T) {
	some := newLatency([]time.Duration{time.Millisecond})
	report := newReport([]*Row{
		{Name: "direct", Rounds: []Round{{Unloaded: some, Loaded: some}}},
		{Name: "nginx", Rounds: []Round{{Unloaded: some, Loaded: some, Errors: map[string]int{"fast: status 502": 2}}}},
	}, settings{rounds: 1})
	if report.Valid() || !report.Rows[0].Valid() || report.Rows[1].Valid() {
		t.Fatal("want the second row alone invalid")
	}
	var out bytes.Buffer
	report.Print(&out)
	if !strings.Contains(out.String(), "2 x fast: status 502") {
		t.Fatalf("the error is not shown:\n%s", out.String())
	}
}
