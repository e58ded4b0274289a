// Package proxied measures what one proxied request costs: CPU time per
// request of Holdfast beside HAProxy, nginx and a forwarder that does nothing
// else. README.md says how, and what would be unfair.
//
// Order of a run: the upstream, then every peer, each checked to answer with
// the upstream's own body; one round that is not counted; then rounds in which
// every peer has its turn, so that a machine that gets slower gets slower for
// all of them. All peers run all the time; only one is loaded.
package proxied

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"holdfast/bench/peer"
)

const (
	defaultRounds  = 5
	defaultSeconds = 4
	warmUp         = 2 * time.Second
)

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
	body        []byte // its answer's
	load        wrk
	rows        []*Row
	contestants []contestant
}

// Run returns an error if nothing could be measured at all; what befalls one
// peer is in its row.
func (b *Benchmark) Run(ctx context.Context, bench *peer.Bench) (*Report, error) {
	c := &contest{bench: bench, connections: b.connections}
	if err := c.prepare(ctx); err != nil {
		return nil, err
	}
	for _, e := range entries {
		if err := c.enter(ctx, e); err != nil {
			return nil, err
		}
	}
	rounds, length := bench.Rounds, time.Duration(bench.Seconds*float64(time.Second))
	if rounds == 0 {
		rounds = defaultRounds
	}
	if length == 0 {
		length = defaultSeconds * time.Second
	}
	bench.Logf("proxied: a round of %s to warm up", warmUp)
	if err := c.round(ctx, warmUp, false); err != nil {
		return nil, err
	}
	for n := range rounds {
		bench.Logf("proxied: round %d of %d", n+1, rounds)
		if err := c.round(ctx, length, true); err != nil {
			return nil, err
		}
	}
	return newReport(c.rows, rounds, length, b.connections), nil
}

// prepare finds wrk and starts the upstream.
func (c *contest) prepare(ctx context.Context) error {
	program, err := c.bench.Find(peer.Wrk)
	if err != nil {
		return err
	}
	script := filepath.Join(c.bench.Dir(), "report.lua")
	if err := os.WriteFile(script, []byte(reportScript), 0o600); err != nil {
		return err
	}
	c.load = wrk{program: program, script: script, connections: c.connections}

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
	c.body, err = process.WaitReady(ctx, "http://"+c.upstream+"/")
	return err
}

// round gives every contestant its turn; the error is the caller's leaving.
func (c *contest) round(ctx context.Context, length time.Duration, counted bool) error {
	for _, each := range c.contestants {
		if each.row.Failure != "" {
			continue
		}
		round, err := c.turn(ctx, each, length)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			each.row.Failure = err.Error()
			c.bench.Logf("%s: %v", each.row.Peer, err)
			continue
		}
		if counted {
			each.row.Rounds = append(each.row.Rounds, round)
		}
	}
	return nil
}

func (c *contest) turn(ctx context.Context, each contestant, length time.Duration) (Round, error) {
	others, err := peer.WatchOthers()
	if err != nil {
		return Round{}, err
	}
	before, err := each.process.CPU()
	if err != nil {
		return Round{}, err
	}
	load, err := c.load.run(ctx, each.url, length)
	if err != nil {
		return Round{}, err
	}
	after, err := each.process.CPU()
	if err != nil {
		return Round{}, fmt.Errorf("under load: %w", err)
	}
	cores, err := others.Cores()
	if err != nil {
		return Round{}, err
	}
	return Round{
		Load:              load,
		CPUMicros:         float64((after - before).Microseconds()) / float64(load.Requests),
		RequestsPerSecond: float64(load.Requests) / (float64(load.Micros) / 1e6),
		OtherCores:        cores,
	}, nil
}
