package health

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestBus_IsToldEverywhere(t *testing.T) {
	w := newWatched(t, time.Hour)
	w.bus = Bus{Kind: "redis", Entries: 7, Reason: "bus: it cannot be reached"}
	h := w.watch.h
	if got, want := h.Ready(), []string{w.bus.Reason}; !slices.Equal(got, want) {
		t.Errorf("ready says %v, want %v", got, want)
	}
	for _, want := range []string{"holdfast_bus_connected 0\n", "holdfast_bus_entries_total 7\n"} {
		if _, got, err := h.Metrics(); err != nil || !strings.Contains(string(got), want) {
			t.Errorf("the metrics lack %q", want)
		}
	}
	var s struct {
		Bus struct {
			Kind      string
			Connected bool
		}
	}
	if err := json.Unmarshal(h.Status(), &s); err != nil || s.Bus.Kind != "redis" || s.Bus.Connected {
		t.Errorf("the status says %+v, %v", s, err)
	}
	if got := w.look().Bus; got == nil || *got != (busView{"redis", false}) {
		t.Errorf("the dashboard is told %+v", got)
	}
	w.bus = Bus{}
	if got := w.look().Bus; got != nil {
		t.Errorf("of the bus in memory the dashboard is told %+v", got)
	}
	if got := h.Ready(); len(got) > 0 {
		t.Errorf("with the bus in memory it is not ready: %v", got)
	}
}
