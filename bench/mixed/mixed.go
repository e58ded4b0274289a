// Package mixed measures a whole application, the help desk of testdata/mixed,
// under several ways of serving it: what a fast view's clients notice of eight
// slow views, and what 200 event streams cost in memory, threads and database
// connections. README.md says how, and what would be unfair.
//
// Order of a turn: the row's processes, fresh; the fast view while nothing else
// runs; the same beside eight clients of a slow view; what the processes have; the
// streams; what they have then; the fast view once more.
package mixed

import (
	"context"
	"errors"
	"fmt"
	"time"

	"holdfast/bench/crowd"
	"holdfast/bench/load"
	"holdfast/bench/peer"
	"holdfast/bench/picture"
	"holdfast/bench/table"
)

const (
	defaultRounds = 5
	quietLength   = 2 * time.Second
	loadedLength  = 6 * time.Second
	settle        = time.Second
	measuring     = 4 // connections that ask the fast view
	blockers      = 8
	streams       = 200
	streamsWithin = 10 * time.Second // until they are counted
	fastWithin    = 5 * time.Second  // beside streams: later is no answer

	fastPath = "/bench/fast"
)

// Run returns an error if nothing could be measured at all; what befalls one
// row is in it.
func Run(ctx context.Context, bench *peer.Bench) (*table.Report, error) {
	if err := peer.RaiseDescriptors(8192); err != nil {
		return nil, err
	}
	clients, err := crowd.Start(ctx, bench)
	if err != nil {
		return nil, err
	}
	defer clients.Close()
	t := newTable(bench)
	err = t.Measure(ctx, bench, bench.Times(defaultRounds), Rows(), func(ctx context.Context, row string) (map[string]float64, error) {
		return turn(ctx, bench, clients, row)
	})
	if err != nil {
		return nil, err
	}
	return &table.Report{Tables: []*table.Table{t}, Pictures: []table.Picture{
		{Name: "bench-mixed-fast.svg", Text: "The fast view's p50 beside eight slow ones", SVG: picture.Bars("The fast view's p50 beside eight slow ones", "ms", t.Bars("loaded_p50_ms"))},
		{Name: "bench-mixed-streams.svg", Text: "Resident memory a stream", SVG: picture.Bars("Resident memory a stream", "KiB", t.Bars("stream_kib"))},
	}}, nil
}

func newTable(bench *peer.Bench) *table.Table {
	return &table.Table{
		Benchmark: "mixed", Case: "help-desk", First: "served by", Base: rowHolds,
		Title: fmt.Sprintf("A fast view quiet and beside %d clients of a view of 1.5 s (milliseconds; slow views finished in %g s), and %d event streams: how many were served, and what they added.",
			blockers, span(bench, loadedLength).Seconds(), bench.Scaled(streams, 20)),
		Columns: []table.Column{
			{Key: "quiet_p50_ms", Heading: "fast, quiet", Decimals: 1},
			{Key: "loaded_p50_ms", Heading: "beside slow, p50", Decimals: 1, Spread: true},
			{Key: "loaded_p99_ms", Heading: "p99", Decimals: 1},
			{Key: "slow_finished", Heading: "slow views"},
			{Key: "pss_mib", Heading: "MiB (PSS)", Decimals: 0},
			{Key: "rss_mib", Heading: "MiB (RSS)", Decimals: 0},
			{Key: "served", Heading: "streams served"},
			{Key: "stream_kib", Heading: "KiB each", Decimals: 1, Spread: true},
			{Key: "threads", Heading: "threads more"},
			{Key: "connections", Heading: "database connections more"},
			{Key: "beside_p50_ms", Heading: "fast beside streams", Decimals: 1},
		},
		Notes: []string{fmt.Sprintf("`-` for the fast view beside streams: no answer within %s. Memory is that of all processes of the row; KiB each (PSS) where all streams were served.", fastWithin)},
	}
}

func turn(ctx context.Context, bench *peer.Bench, clients *crowd.Crowd, row string) (map[string]float64, error) {
	s, err := start(ctx, bench, row)
	defer s.stop()
	if err != nil {
		return nil, err
	}
	if err := s.idle(ctx, bench); err != nil {
		return nil, err
	}
	values := map[string]float64{}
	if err := s.besideSlowViews(ctx, bench, values); err != nil {
		return nil, err
	}
	bench.Pause(ctx, settle)
	before, err := s.has()
	if err != nil {
		return nil, err
	}
	wanted := bench.Scaled(streams, 20)
	opened, err := clients.Open(crowd.Open{
		Group: "all", Address: s.address, Path: s.stream, Count: wanted, Channels: 1, Window: wanted,
		Within: shorter(bench, streamsWithin), Waiting: true,
	})
	defer clients.Drop("all")
	if err != nil {
		return nil, err
	}
	bench.Pause(ctx, settle)
	after, err := s.has()
	if err != nil {
		return nil, err
	}
	var failed load.Failures // to be expected: the row has no figure then
	took := load.MeasureWithin(ctx, s.address, fastPath, measuring, span(bench, quietLength), shorter(bench, fastWithin), &failed)
	if len(took) > 0 && len(failed.Counts()) == 0 {
		values["beside_p50_ms"] = load.Millis(took, 0.50)
	}
	streamFigures(values, before, after, opened.Opened, wanted)
	return values, nil
}

// idle waits until the processes have nothing more to do: the first of several
// workers answers while the others are still loading the app.
func (s *system) idle(ctx context.Context, bench *peer.Bench) error {
	last, err := s.cpu()
	for tries := 0; err == nil && ctx.Err() == nil && tries < 100; tries++ {
		bench.Pause(ctx, 300*time.Millisecond)
		now, err := s.cpu()
		if err != nil {
			return err
		}
		if now-last <= 10*time.Millisecond {
			return nil
		}
		last = now
	}
	if err == nil {
		err = errors.New("its processes are still busy after 30 s with nothing to do")
	}
	return err
}

// shorter is a time to wait for what may not come.
func shorter(bench *peer.Bench, d time.Duration) time.Duration {
	if bench.Short {
		return d / 10
	}
	return d
}

// span is a measured length: in short runs, where no figure counts, a moment.
func span(bench *peer.Bench, d time.Duration) time.Duration {
	if bench.Short {
		return 300 * time.Millisecond
	}
	return bench.Length(d)
}

// besideSlowViews asks the fast view, alone and beside the slow one. Any answer
// but 200 is an error.
func (s *system) besideSlowViews(ctx context.Context, bench *peer.Bench, values map[string]float64) error {
	slowMS := bench.Scaled(1500, 200)
	slowPath := fmt.Sprintf("/reports/slow?ms=%d", slowMS)
	var failed load.Failures
	quiet := load.Measure(ctx, s.address, fastPath, measuring, span(bench, quietLength), &failed)
	slow := load.Block(ctx, s.address, slowPath, blockers, &failed)
	bench.Pause(ctx, time.Duration(slowMS)*time.Millisecond) // until as many slow views run as can
	began, length := time.Now(), span(bench, loadedLength)
	loaded := load.Measure(ctx, s.address, fastPath, measuring, length, &failed)
	slow.Finish()
	if counts := failed.Counts(); len(counts) > 0 {
		return fmt.Errorf("errors: %v", counts)
	}
	values["quiet_p50_ms"] = load.Millis(quiet, 0.50)
	values["loaded_p50_ms"], values["loaded_p99_ms"] = load.Millis(loaded, 0.50), load.Millis(loaded, 0.99)
	values["slow_finished"] = float64(slow.Between(began, began.Add(length)))
	return nil
}

// streamFigures are what was added. Memory by stream only where all were served:
// a few that take all threads leave it to what else the processes do.
func streamFigures(values map[string]float64, before, after belongings, served, wanted int) {
	values["pss_mib"] = float64(before.memory.PSS) / (1 << 20)
	values["rss_mib"] = float64(before.memory.RSS) / (1 << 20)
	values["served"] = float64(served)
	values["threads"] = float64(after.threads - before.threads)
	values["connections"] = float64(after.connections - before.connections)
	if served == wanted {
		values["stream_kib"] = float64(after.memory.PSS-before.memory.PSS) / 1024 / float64(served)
	}
}
