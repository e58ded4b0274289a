package load

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"holdfast/bench/peer"
)

// ReportScript has wrk print what Run reads; a script of one's own comes before it.
//
//go:embed report.lua
var ReportScript string

// Result is what wrk says of one run.
type Result struct {
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

func (e Errors) String() string {
	return fmt.Sprintf("%d connect, %d read, %d write, %d status, %d timeout", e.Connect, e.Read, e.Write, e.Status, e.Timeout)
}

// Wrk is a load generator: one thread, closed loop, keep-alive.
type Wrk struct {
	Program     string
	Script      string // path of one that ends with ReportScript
	Connections int
}

// NewWrk finds the program; before is what its script begins with, "" for GETs.
func NewWrk(bench *peer.Bench, before string, connections int) (Wrk, error) {
	program, err := bench.Find(peer.Wrk)
	if err != nil {
		return Wrk{}, err
	}
	file, err := os.CreateTemp(bench.Dir(), "wrk-*.lua")
	if err != nil {
		return Wrk{}, err
	}
	defer file.Close()
	_, err = file.WriteString(before + ReportScript)
	return Wrk{Program: program, Script: file.Name(), Connections: connections}, err
}

// Run loads url for the given time and waits for wrk's end.
func (w Wrk) Run(ctx context.Context, url string, length time.Duration) (Result, error) {
	// wrk takes whole seconds only.
	seconds := max(1, int(length.Round(time.Second).Seconds()))
	command := exec.CommandContext(ctx, w.Program, "--threads=1", fmt.Sprintf("--connections=%d", w.Connections),
		fmt.Sprintf("--duration=%ds", seconds), "--script="+w.Script, url)
	output, err := command.CombinedOutput()
	if ctx.Err() != nil {
		return Result{}, ctx.Err()
	}
	if err != nil {
		return Result{}, fmt.Errorf("wrk: %w: %s", err, bytes.TrimSpace(output))
	}
	return parseLoad(output)
}

func parseLoad(output []byte) (Result, error) {
	for line := range strings.Lines(string(output)) {
		text, ok := strings.CutPrefix(line, "report ")
		if !ok {
			continue
		}
		var result Result
		if err := json.Unmarshal([]byte(text), &result); err != nil {
			return Result{}, fmt.Errorf("wrk's report %q: %w", text, err)
		}
		if result.Requests == 0 || result.Micros == 0 {
			return Result{}, fmt.Errorf("wrk finished no request (%s)", result.Errors)
		}
		return result, nil
	}
	return Result{}, fmt.Errorf("wrk printed no report: %s", bytes.TrimSpace(output))
}
