// Package isolation measures what a fast view's clients notice of a slow view
// in the same app process: its latency while the slow view is idle and while
// blockers keep it busy, with and without lanes. README.md says how, and what
// would be unfair.
//
// Order of a run: one gunicorn process, then a proxy per row in front of it;
// then rounds in which each row has its turn: measure, start the blockers, let
// them settle for one slow view, measure, wait for the blockers' last answers.
// One row at a time uses the app.
package isolation

import (
	"context"
	"flag"
	"fmt"
	"time"

	"holdfast/bench/load"
	"holdfast/bench/peer"
)

const (
	defaultRounds  = 5
	defaultSeconds = 6
	unloadedLength = 2 * time.Second

	threads   = 8 // of gunicorn; the configurations divide them up
	measuring = 4 // connections that ask the fast view
)

// Benchmark is this benchmark with its flags.
type Benchmark struct {
	app      string
	module   string
	slowMS   int
	blockers int
}

// Flags declares what can be set.
func (b *Benchmark) Flags(flags *flag.FlagSet) {
	flags.StringVar(&b.app, "app", "testdata/apps/django", "isolation: `directory` of the app in the source tree")
	flags.StringVar(&b.module, "module", "site_wsgi:application", "isolation: the app's WSGI `callable`")
	flags.IntVar(&b.blockers, "blockers", 8, "isolation: `connections` that keep the slow view busy")
	flags.IntVar(&b.slowMS, "slow-ms", 1500, "isolation: `milliseconds` that the slow view takes")
}

// settings of one run.
type settings struct {
	rounds   int
	length   time.Duration
	fast     string // path
	slow     string // path
	slowTime time.Duration
	blockers int
}

// trial is one run.
type trial struct {
	bench       *peer.Bench
	settings    settings
	app         string // gunicorn's address
	rows        []*Row
	contestants []contestant
}

// Run returns an error if nothing could be measured at all; what befalls one
// proxy is in its row.
func (b *Benchmark) Run(ctx context.Context, bench *peer.Bench) (*Report, error) {
	t := &trial{bench: bench, settings: settings{
		rounds:   bench.Times(defaultRounds),
		length:   bench.Length(defaultSeconds * time.Second),
		fast:     "/fast",
		slow:     fmt.Sprintf("/slow?ms=%d", b.slowMS),
		slowTime: time.Duration(b.slowMS) * time.Millisecond,
		blockers: b.blockers,
	}}
	if err := t.startApp(ctx, b.app, b.module); err != nil {
		return nil, err
	}
	for _, e := range entries {
		if err := t.enter(ctx, e); err != nil {
			return nil, err
		}
	}
	for n := range t.settings.rounds {
		bench.Logf("isolation: round %d of %d", n+1, t.settings.rounds)
		for _, each := range t.contestants {
			round, err := t.turn(ctx, each)
			if err != nil {
				return nil, err
			}
			each.row.Rounds = append(each.row.Rounds, round)
		}
	}
	return newReport(t.rows, t.settings), nil
}

func (t *trial) startApp(ctx context.Context, directory, module string) error {
	program, err := t.bench.Find(peer.Gunicorn)
	if err != nil {
		return err
	}
	t.bench.Python(program)
	free, err := peer.FreeAddresses(1)
	if err != nil {
		return err
	}
	t.app = free[0]
	process, err := t.bench.Start("gunicorn", []string{"PYTHONDONTWRITEBYTECODE=1"}, program,
		"--workers", "1", "--threads", fmt.Sprint(threads), "--bind", t.app, "--chdir", t.bench.Path(directory), module)
	if err != nil {
		return err
	}
	_, err = process.WaitReady(ctx, "http://"+t.app+t.settings.fast)
	return err
}

// turn measures one row once. The error is the caller's leaving.
func (t *trial) turn(ctx context.Context, each contestant) (Round, error) {
	others, err := peer.WatchOthers()
	if err != nil {
		return Round{}, err
	}
	var failed load.Failures
	unloaded := load.Measure(ctx, each.address, t.settings.fast, measuring, unloadedLength, &failed)

	slow := load.Block(ctx, each.address, t.settings.slow, t.settings.blockers, &failed)
	select {
	case <-ctx.Done():
	case <-time.After(t.settings.slowTime): // until as many slow views run as can
	}
	began := time.Now()
	loaded := load.Measure(ctx, each.address, t.settings.fast, measuring, t.settings.length, &failed)
	slow.Finish()
	if ctx.Err() != nil {
		return Round{}, ctx.Err()
	}
	cores, err := others.Cores()
	if err != nil {
		return Round{}, err
	}
	return Round{
		Unloaded:     newLatency(unloaded),
		Loaded:       newLatency(loaded),
		SlowFinished: slow.Between(began, began.Add(t.settings.length)),
		Errors:       failed.Counts(),
		OtherCores:   cores,
	}, nil
}
