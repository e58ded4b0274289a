// Bench runs Holdfast beside its peers and prints what each costs.
//
//	go run ./bench                        all benchmarks
//	go run ./bench proxied                one of them
//	go run ./bench isolation --rounds 5 --seconds 10
//	go run ./bench fanout held --case 5000,sse-5000 --only holdfast,nchan
//	go run ./bench proxied --only haproxy,holdfast --json >figures.json
//	go run ./bench held --write           put the tables into docs/benchmarks.md as well
//	go run ./bench --short                whether all of it works, in a few minutes
//	go run ./bench --install              have apt-get install the peers
//
//	held       memory and idle CPU of held clients, beside Nchan, Pushpin and bare descriptors
//	fanout     CPU and time of an event's delivery, beside the same
//	proxied    CPU time per proxied request, beside HAProxy, nginx, Caddy and others
//	mixed      a fast view beside slow ones, and what event streams cost, with and without Holdfast
//	setup      holds opened a second, beside Nchan and Pushpin
//	bus        what a bus costs beside one node, with Redis and with PostgreSQL
//	growth     how costs grow with holds, channels, routes and lanes; Holdfast alone
//	isolation  a fast view's latency while a slow view of the same app is busy
//	wirepeers  what each makes of the raw requests of testdata/wire
//
// Last come the figures of make test, its present ones beside those that were
// kept (cp bin/figures.json bench/last.json, before a release).
//
// It builds bin/holdfast from the source it stands in, starts every peer on
// free ports of 127.0.0.1 with a configuration of its own, gives each its turn
// in every round, and ends what it started. A peer that is not installed is a row
// that says what to install. Exit 1 if any row is invalid: a peer that failed, or
// a single request or event that was not answered or delivered as it should be.
//
// What was measured is added, round by round, to bin/bench.jsonl as lines of
// JSON. --write replaces the region of each benchmark in docs/benchmarks.md (that
// of bus is in docs/scale.md), and the pictures beside it, if all of its rows and
// cases ran and are valid.
//
// Figures are only as good as the machine was quiet. How much other work it did
// is printed with them. How each benchmark is made fair is in its README.md.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"holdfast/bench/bus"
	"holdfast/bench/fanout"
	"holdfast/bench/growth"
	"holdfast/bench/held"
	"holdfast/bench/isolation"
	"holdfast/bench/mixed"
	"holdfast/bench/peer"
	"holdfast/bench/proxied"
	"holdfast/bench/setup"
	"holdfast/bench/wirepeers"
)

type report interface {
	Print(io.Writer)
	Valid() bool
}

type benchmark struct {
	name string
	rows []string // what --only may name
	run  func(context.Context, *peer.Bench) (report, error)
}

var errInvalid = errors.New("not every row is valid")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	bench, err := peer.New(stderr)
	if err != nil {
		return err
	}
	defer bench.Close()
	chosen, how, err := choose(args, bench, stderr)
	if err != nil {
		return err
	}
	if how.install {
		return peer.Install(stderr)
	}
	reports, valid := map[string]report{}, true
	for _, b := range chosen {
		r, err := b.run(ctx, bench)
		bench.StopAll()
		if err != nil {
			return fmt.Errorf("%s: %w", b.name, err)
		}
		reports[b.name] = r
		valid = valid && r.Valid()
		// At once: what the next one does cannot take it away.
		if err := keep(bench, how, b, r, stderr); err != nil {
			return err
		}
	}
	if err := printAll(stdout, bench.Environment(), chosen, reports, how.asJSON); err != nil {
		return err
	}
	if !how.asJSON {
		printFigures(stdout, bench.Path("bench/last.json"), bench.Path("bin/figures.json"))
	}
	if !valid {
		return errInvalid
	}
	return nil
}

// output is what becomes of the figures.
type output struct {
	asJSON  bool
	write   bool
	install bool
	results string // file for lines of JSON; "": none
}

// choose reads the command line: names of benchmarks, then flags.
func choose(args []string, bench *peer.Bench, stderr io.Writer) (chosen []benchmark, how output, err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&bench.Rounds, "rounds", 0, "`rounds` that count; 0: the benchmark's default")
	flags.Float64Var(&bench.Seconds, "seconds", 0, "`length` of one measured round; 0: the benchmark's default")
	flags.BoolVar(&bench.Short, "short", false, "few clients and one round: whether it works, not what it costs")
	flags.BoolVar(&how.asJSON, "json", false, "print everything measured, round by round, as one JSON document")
	flags.BoolVar(&how.write, "write", false, "put the tables into docs/benchmarks.md, and pictures beside it")
	flags.BoolVar(&how.install, "install", false, "have apt-get install the peers, and end")
	flags.StringVar(&how.results, "results", bench.Path("bin/bench.jsonl"), "`file` to add each round's figures to; empty: none")
	only := flags.String("only", "", "`rows` to run, separated by commas; empty: all")
	cases := flags.String("case", "", "`cases` to run, separated by commas, of held, fanout, proxied and growth; empty: all")
	all := benchmarks(flags)

	names := args
	for i, arg := range args {
		if strings.HasPrefix(arg, "-") {
			names = args[:i]
			break
		}
	}
	if err := flags.Parse(args[len(names):]); err != nil {
		return nil, how, err
	}
	if flags.NArg() > 0 {
		return nil, how, fmt.Errorf("%q: names of benchmarks come before flags", flags.Arg(0))
	}
	if len(names) == 0 {
		chosen = all
	}
	for _, name := range names {
		at := slices.IndexFunc(all, func(b benchmark) bool { return b.name == name })
		if at < 0 {
			return nil, how, fmt.Errorf("no benchmark %q; there are: %s", name, namesOf(all))
		}
		chosen = append(chosen, all[at])
	}
	if *cases != "" {
		bench.Cases = strings.Split(*cases, ",")
	}
	if *only != "" {
		bench.Only = strings.Split(*only, ",")
		chosen, err = withRows(chosen, bench.Only)
	}
	return chosen, how, err
}

func namesOf(all []benchmark) string {
	var names []string
	for _, b := range all {
		names = append(names, b.name)
	}
	return strings.Join(names, ", ")
}

// withRows leaves out the benchmarks that have none of the rows. A row that no
// benchmark has is a mistake, not an empty table.
func withRows(chosen []benchmark, only []string) ([]benchmark, error) {
	var known []string
	for _, b := range chosen {
		known = append(known, b.rows...)
	}
	for _, row := range only {
		if !slices.Contains(known, row) {
			return nil, fmt.Errorf("no row %q; there are: %s", row, strings.Join(known, ", "))
		}
	}
	return slices.DeleteFunc(slices.Clone(chosen), func(b benchmark) bool {
		return !slices.ContainsFunc(b.rows, func(row string) bool { return slices.Contains(only, row) })
	}), nil
}

// benchmarks is the list of all, with their flags declared.
func benchmarks(flags *flag.FlagSet) []benchmark {
	var cost proxied.Benchmark
	var lanes isolation.Benchmark
	var wire wirepeers.Benchmark
	cost.Flags(flags)
	lanes.Flags(flags)
	wire.Flags(flags)
	return []benchmark{
		{"held", held.Rows(), func(ctx context.Context, bench *peer.Bench) (report, error) { return held.Run(ctx, bench) }},
		{"fanout", fanout.Rows(), func(ctx context.Context, bench *peer.Bench) (report, error) { return fanout.Run(ctx, bench) }},
		{"proxied", proxied.Rows(), func(ctx context.Context, bench *peer.Bench) (report, error) { return cost.Run(ctx, bench) }},
		{"mixed", mixed.Rows(), func(ctx context.Context, bench *peer.Bench) (report, error) { return mixed.Run(ctx, bench) }},
		{"setup", setup.Rows(), func(ctx context.Context, bench *peer.Bench) (report, error) { return setup.Run(ctx, bench) }},
		{"bus", bus.Rows(), func(ctx context.Context, bench *peer.Bench) (report, error) { return bus.Run(ctx, bench) }},
		{"growth", growth.Rows(), func(ctx context.Context, bench *peer.Bench) (report, error) { return growth.Run(ctx, bench) }},
		{"isolation", isolation.Rows(), func(ctx context.Context, bench *peer.Bench) (report, error) { return lanes.Run(ctx, bench) }},
		{"wirepeers", wirepeers.Rows(), func(ctx context.Context, bench *peer.Bench) (report, error) { return wire.Run(ctx, bench) }},
	}
}

func printAll(w io.Writer, environment peer.Environment, chosen []benchmark, reports map[string]report, asJSON bool) error {
	if asJSON {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(struct {
			Environment peer.Environment  `json:"environment"`
			Reports     map[string]report `json:"reports"`
		}{environment, reports})
	}
	environment.Print(w)
	for _, b := range chosen {
		fmt.Fprintln(w)
		reports[b.name].Print(w)
	}
	return nil
}

// printFigures prints what the tests measured when make test ran last, under
// what it was when somebody kept it.
func printFigures(w io.Writer, kept, present string) {
	fmt.Fprint(w, "\nmake test\n")
	for _, of := range []struct{ name, path, missing string }{
		{"kept", kept, "none: cp bin/figures.json bench/last.json"},
		{"now", present, "none: run make test"},
	} {
		line, err := os.ReadFile(of.path)
		if err != nil {
			line = []byte(of.missing)
		}
		fmt.Fprintf(w, "%-5s %s\n", of.name, bytes.TrimSpace(line))
	}
}
