// Package setup measures how fast holds are opened, and what one costs the server
// and the app. README.md says how, and what would be unfair.
//
// Order of a turn: the app and the server, fresh; ten holds opened and closed; then
// all clients, so many at a time, from the first connection to the last answer.
package setup

import (
	"context"
	"fmt"
	"time"

	"holdfast/bench/crowd"
	"holdfast/bench/holders"
	"holdfast/bench/peer"
	"holdfast/bench/picture"
	"holdfast/bench/table"
)

const (
	defaultRounds = 5
	holds         = 10000
	threads       = 8 // of gunicorn, and slots
	window        = 64
	openWithin    = 120 * time.Second
)

// row is a server and what it asks.
type row struct {
	name, server string
	gunicorn     bool
	path         string // of the app's view; "": the null app's
	authorize    bool
}

var rows = []row{
	{name: "holdfast", server: holders.Holdfast},
	{name: "nchan", server: holders.Nchan, authorize: true, path: "/"},
	{name: "nchan-asks-nobody", server: holders.Nchan},
	{name: "pushpin", server: holders.Pushpin},
	{name: "holdfast-gunicorn", server: holders.Holdfast, gunicorn: true, path: "/m0"},
	{name: "nchan-gunicorn", server: holders.Nchan, gunicorn: true, authorize: true, path: "/authorize"},
	{name: "pushpin-gunicorn", server: holders.Pushpin, gunicorn: true, path: "/grip"},
}

// Rows are the names of all rows.
func Rows() []string {
	var names []string
	for _, r := range rows {
		names = append(names, r.name)
	}
	return names
}

// Run returns an error if nothing could be measured at all; what befalls one
// server is in its row.
func Run(ctx context.Context, bench *peer.Bench) (*table.Report, error) {
	n := bench.Scaled(holds, 50)
	if err := peer.RaiseDescriptors(uint64(holders.Descriptors(n))); err != nil {
		return nil, err
	}
	clients, err := crowd.Start(ctx, bench)
	if err != nil {
		return nil, err
	}
	defer clients.Close()
	report := &table.Report{}
	for _, gunicorn := range []bool{false, true} {
		t, of := newTable(gunicorn, n), map[string]row{}
		var names []string
		for _, r := range rows {
			if r.gunicorn == gunicorn && bench.Wants(r.name) {
				of[r.name], names = r, append(names, r.name)
			}
		}
		if len(names) == 0 {
			continue
		}
		err := t.Measure(ctx, bench, bench.Times(defaultRounds), names, func(ctx context.Context, name string) (map[string]float64, error) {
			return turn(ctx, bench, clients, of[name], n)
		})
		if err != nil {
			return nil, err
		}
		report.Tables = append(report.Tables, t)
		report.Pictures = append(report.Pictures, table.Picture{
			Name: "bench-setup-" + t.Case + ".svg", Text: "Holds opened a second, " + t.Case,
			SVG: picture.Bars("Holds opened a second, "+t.Case, "holds/s", t.Bars("holds_per_s")),
		})
	}
	return report, nil
}

func newTable(gunicorn bool, n int) *table.Table {
	name, base, title := "null-app", "holdfast", "an app that does nothing else"
	if gunicorn {
		name, base, title = "gunicorn", "holdfast-gunicorn", "Django under gunicorn, one process of 8 threads"
	}
	return &table.Table{
		Benchmark: "setup", Case: name, First: "server", Base: base,
		Title: fmt.Sprintf("%s event streams, %d at a time, in front of %s.", commas(n), window, title),
		Columns: []table.Column{
			{Key: "holds_per_s", Heading: "holds/s", Spread: true, Ratio: true},
			{Key: "cpu_us", Heading: "CPU µs a hold, server", Decimals: 1, Spread: true},
			{Key: "app_us", Heading: "CPU µs a hold, app", Decimals: 1},
		},
	}
}

func commas(n int) string {
	text := fmt.Sprint(n)
	if len(text) > 3 {
		text = text[:len(text)-3] + "," + text[len(text)-3:]
	}
	return text
}

func turn(ctx context.Context, bench *peer.Bench, clients *crowd.Crowd, of row, n int) (map[string]float64, error) {
	settings := holders.Settings{Holds: n, AppPath: of.path, Authorize: of.authorize}
	if of.gunicorn {
		app, address, err := startGunicorn(ctx, bench)
		if err != nil {
			return nil, err
		}
		defer app.Stop()
		settings.App, settings.AppProcess, settings.Slots = address, app, threads
	}
	server, err := holders.Start(ctx, bench, of.server, settings)
	if err != nil {
		return nil, err
	}
	defer server.Stop()
	defer clients.Drop("all")
	before, appBefore, err := cpus(server)
	if err != nil {
		return nil, err
	}
	opened, err := clients.Open(crowd.Open{
		Group: "all", Address: server.Clients, Path: server.Path(false), Count: n, Channels: 1, Within: openWithin, Window: window,
	})
	if err != nil {
		return nil, err
	}
	after, appAfter, err := cpus(server)
	if err != nil {
		return nil, err
	}
	return map[string]float64{
		"holds_per_s": float64(n) / opened.Took.Seconds(),
		"cpu_us":      float64((after - before).Microseconds()) / float64(n),
		"app_us":      float64((appAfter - appBefore).Microseconds()) / float64(n),
	}, nil
}

func cpus(server *holders.Server) (own, app time.Duration, err error) {
	if own, err = server.CPU(); err != nil {
		return 0, 0, err
	}
	app, err = server.AppCPU()
	return own, app, err
}

func startGunicorn(ctx context.Context, bench *peer.Bench) (*peer.Process, string, error) {
	program, err := bench.Find(peer.Gunicorn)
	if err != nil {
		return nil, "", err
	}
	bench.Python(program)
	free, err := peer.FreeAddresses(1)
	if err != nil {
		return nil, "", err
	}
	process, err := bench.Start("gunicorn", []string{"PYTHONDONTWRITEBYTECODE=1"}, program,
		"--workers", "1", "--threads", fmt.Sprint(threads), "--bind", free[0], "--chdir", bench.Path("bench/setup"), "app:app")
	if err != nil {
		return nil, "", err
	}
	_, err = process.WaitReady(ctx, "http://"+free[0]+"/authorize")
	return process, free[0], err
}
