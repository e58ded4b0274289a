package proxied

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

//go:embed report.lua
var reportScript string

// Load is what wrk says of one run.
type Load struct {
	Requests  int64   `json:"requests"`
	Micros    int64   `json:"micros"` // length of the run
	P50Micros float64 `json:"p50_micros"`
	P99Micros float64 `json:"p99_micros"`
	Errors    Errors  `json:"errors"`
}

// Errors counts what makes a row invalid. Status is anything of 400 and above;
// that the answer is the upstream's own was seen before the first round.
type Errors struct {
	Connect int64 `json:"connect"`
	Read    int64 `json:"read"`
	Write   int64 `json:"write"`
	Status  int64 `json:"status"`
	Timeout int64 `json:"timeout"`
}

func (e *Errors) add(other Errors) {
	e.Connect += other.Connect
	e.Read += other.Read
	e.Write += other.Write
	e.Status += other.Status
	e.Timeout += other.Timeout
}

func (e Errors) String() string {
	return fmt.Sprintf("%d connect, %d read, %d write, %d status, %d timeout", e.Connect, e.Read, e.Write, e.Status, e.Timeout)
}

// wrk is the load generator: one thread, closed loop, keep-alive.
type wrk struct {
	program     string
	script      string // path of report.lua
	connections int
}

// run loads url for the given time and waits for wrk's end.
func (w wrk) run(ctx context.Context, url string, length time.Duration) (Load, error) {
	// wrk takes whole seconds only.
	seconds := max(1, int(length.Round(time.Second).Seconds()))
	command := exec.CommandContext(ctx, w.program, "--threads=1", fmt.Sprintf("--connections=%d", w.connections),
		fmt.Sprintf("--duration=%ds", seconds), "--script="+w.script, url)
	output, err := command.CombinedOutput()
	if ctx.Err() != nil {
		return Load{}, ctx.Err()
	}
	if err != nil {
		return Load{}, fmt.Errorf("wrk: %w: %s", err, bytes.TrimSpace(output))
	}
	return parseLoad(output)
}

func parseLoad(output []byte) (Load, error) {
	for line := range strings.Lines(string(output)) {
		text, ok := strings.CutPrefix(line, "report ")
		if !ok {
			continue
		}
		var load Load
		if err := json.Unmarshal([]byte(text), &load); err != nil {
			return Load{}, fmt.Errorf("wrk's report %q: %w", text, err)
		}
		if load.Requests == 0 || load.Micros == 0 {
			return Load{}, fmt.Errorf("wrk finished no request (%s)", load.Errors)
		}
		return load, nil
	}
	return Load{}, fmt.Errorf("wrk printed no report: %s", bytes.TrimSpace(output))
}
