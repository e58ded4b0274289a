// Package health is what Holdfast says of itself.
//
//	h := health.New(health.Config{Instance: "web-1", Version: "v1.0.0", Lanes: snapshot})
//	body := h.Body(near)   // of GET /health
//
// It is given plain functions that return snapshots, so that it depends on
// nothing that could be busy: /health is answered at any load.
package health

import (
	"encoding/json"
	"time"
)

// Config is what health speaks of. Everything but Lanes may be left empty.
type Config struct {
	// Instance is this process's name.
	Instance string
	// Version is the binary's.
	Version string
	// Lanes gives the present counts of every lane by name. It must not block.
	Lanes func() map[string]Lane
}

// Lane is a lane's counts as /health shows them.
type Lane struct {
	Slots     int `json:"slots"`
	InUse     int `json:"in_use"`
	Waiting   int `json:"waiting"`
	Abandoned int `json:"abandoned"`
}

// Health answers for the process. Safe for concurrent use.
type Health struct {
	cfg     Config
	started time.Time
}

// New starts the uptime.
func New(cfg Config) *Health { return &Health{cfg: cfg, started: time.Now()} }

type report struct {
	Status   string          `json:"status"`
	Instance string          `json:"instance,omitempty"`
	Version  string          `json:"version,omitempty"`
	Uptime   *int64          `json:"uptime_s,omitempty"`
	Lanes    map[string]Lane `json:"lanes,omitempty"`
}

// Body is the JSON of /health. Only who is near is told more than that the
// process is well.
func (h *Health) Body(near bool) []byte {
	r := report{Status: "ok"}
	if near {
		uptime := int64(time.Since(h.started) / time.Second)
		r.Instance, r.Version, r.Uptime, r.Lanes = h.cfg.Instance, h.cfg.Version, &uptime, h.cfg.Lanes()
	}
	body, err := json.Marshal(r)
	if err != nil { // there is nothing in it that could fail
		return []byte(`{"status":"ok"}`)
	}
	return append(body, '\n')
}
