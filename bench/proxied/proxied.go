// Package proxied measures what one proxied request costs: CPU time per
// request of Holdfast beside HAProxy, nginx and a forwarder that does nothing
// else. README.md says how, and what would be unfair.
//
// Order of a run: the upstream, then every peer, each checked to answer with
// the upstream's own body; then, case by case, one round that is not counted and
// rounds in which every peer has its turn, so that a machine that gets slower gets
// slower for all of them. All peers run all the time; only one is loaded.
package proxied

import (
	"context"
	_ "embed"
	"flag"
	"fmt"
	"time"

	"holdfast/bench/load"
	"holdfast/bench/peer"
	"holdfast/bench/picture"
	"holdfast/bench/table"
)

const (
	defaultRounds  = 5
	defaultSeconds = 4
	warmUp         = 2 * time.Second
)

//go:embed upload.lua
var uploadScript string

// Benchmark is this benchmark with its flags.
type Benchmark struct {
	connections int
}

// Flags declares what can be set.
func (b *Benchmark) Flags(flags *flag.FlagSet) {
	flags.IntVar(&b.connections, "connections", 64, "proxied: keep-alive `connections` of the load, and slots of Holdfast's lane")
}

// contest is one run.
type contest struct {
	bench       *peer.Bench
	connections int
	upstream    string // its address
	gets        load.Wrk
	uploads     load.Wrk
	contestants map[string]contestant // by row
}

// Run returns an error if nothing could be measured at all; what befalls one
// peer is in its row.
func (b *Benchmark) Run(ctx context.Context, bench *peer.Bench) (*table.Report, error) {
	if err := peer.RaiseDescriptors(8192); err != nil {
		return nil, err
	}
	c := &contest{bench: bench, connections: b.connections, contestants: map[string]contestant{}}
	if err := c.prepare(ctx); err != nil {
		return nil, err
	}
	for _, e := range entries {
		if err := c.enter(ctx, e); err != nil {
			return nil, err
		}
	}
	report := &table.Report{}
	for _, of := range Cases() {
		if !bench.WantsCase(of.Name) {
			continue
		}
		t, err := c.measure(ctx, of)
		if err != nil {
			return nil, err
		}
		report.Tables = append(report.Tables, t)
		report.Pictures = append(report.Pictures, table.Picture{
			Name: "bench-proxied-" + of.Name + ".svg",
			Text: "CPU time a request: " + of.Title,
			SVG:  picture.Bars("CPU µs a request: "+of.Title, "µs", t.Bars("cpu_us")),
		})
	}
	if len(report.Tables) == 0 {
		return nil, fmt.Errorf("none of its cases was asked for; there are: %s", caseNames())
	}
	return report, nil
}

// prepare finds wrk and starts the upstream.
func (c *contest) prepare(ctx context.Context) error {
	var err error
	if c.gets, err = load.NewWrk(c.bench, "", c.connections); err != nil {
		return err
	}
	if c.uploads, err = load.NewWrk(c.bench, uploadScript, c.connections); err != nil {
		return err
	}
	upstream, err := c.bench.Build(ctx, "bench/rawupstream")
	if err != nil {
		return err
	}
	free, err := peer.FreeAddresses(1)
	if err != nil {
		return err
	}
	c.upstream = free[0]
	process, err := c.bench.Start("rawupstream", oneCore, upstream, "-listen", c.upstream)
	if err != nil {
		return err
	}
	_, err = process.WaitReady(ctx, "http://"+c.upstream+"/")
	return err
}

// measure is one case: the warm-up, of one second for each, and its rounds.
func (c *contest) measure(ctx context.Context, of Case) (*table.Table, error) {
	if of.Connections == 0 || of.Connections > c.connections {
		of.Connections = c.connections // the peers keep no more to the upstream
	}
	of.Idle = c.bench.Scaled(of.Idle, 20)
	length := c.bench.Length(defaultSeconds * time.Second)
	t := newTable(of, of.Connections, length)
	rows := Rows()
	if !of.Local {
		rows = rows[:len(rows)-1] // the last one is that row
	}
	if !c.bench.Short {
		warm := newTable(of, of.Connections, warmUp)
		err := warm.Measure(ctx, c.bench, 1, rows, func(ctx context.Context, row string) (map[string]float64, error) {
			return c.turn(ctx, of, row, warmUp)
		})
		if err != nil {
			return nil, err
		}
	}
	return t, t.Measure(ctx, c.bench, c.bench.Times(defaultRounds), rows, func(ctx context.Context, row string) (map[string]float64, error) {
		return c.turn(ctx, of, row, length)
	})
}

func (c *contest) turn(ctx context.Context, of Case, row string, length time.Duration) (map[string]float64, error) {
	each := c.contestants[row]
	if each.failed != nil {
		return nil, each.failed
	}
	path := of.Path
	if row == rowLocal {
		path = localPath
	}
	closeIdle, err := idleConns(each.address, path, of.Idle)
	defer closeIdle()
	if err != nil {
		return nil, err
	}
	wrk := c.gets
	if of.Upload {
		wrk = c.uploads
	}
	wrk.Connections = of.Connections
	before, err := each.process.CPU()
	if err != nil {
		return nil, err
	}
	result, err := wrk.Run(ctx, "http://"+each.address+path, length)
	if err != nil {
		return nil, err
	}
	after, err := each.process.CPU()
	if err != nil {
		return nil, fmt.Errorf("under load: %w", err)
	}
	return figures(result, after-before)
}

// figures are those of one turn; one request that was not answered as it should
// be is an error.
func figures(of load.Result, used time.Duration) (map[string]float64, error) {
	if of.Errors != (load.Errors{}) {
		return nil, fmt.Errorf("errors: %s", of.Errors)
	}
	return map[string]float64{
		"cpu_us":         float64(used.Microseconds()) / float64(of.Requests),
		"requests_per_s": float64(of.Requests) / (float64(of.Micros) / 1e6),
		"p50_ms":         of.P50Micros / 1000,
		"p99_ms":         of.P99Micros / 1000,
	}, nil
}
