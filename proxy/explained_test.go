package proxy

import (
	"strings"
	"testing"

	"holdfast/health"
)

// Each reason has its sentence on the dashboard.
func TestReasons_EachIsExplainedOnTheDashboard(t *testing.T) {
	page := string(health.Dashboard().HTML)
	for _, reason := range reasons {
		if !strings.Contains(page, "\n  "+reason+": \"") {
			t.Errorf("health/dashboard/words.js says nothing of %s", reason)
		}
	}
}
