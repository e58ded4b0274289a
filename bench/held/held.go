// Package held measures what a held client costs while nothing happens: resident
// memory, and CPU time of an idle server. README.md says how, and what would be
// unfair.
//
// Order of a turn: the server, fresh; ten holds opened and closed; its memory;
// the clients; a pause; its memory again; its CPU time over a span in which
// nothing is published. One server runs at a time.
package held

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
	idleLength    = 10 * time.Second
	settle        = 3 * time.Second // between the last hold and the memory
	openWithin    = 120 * time.Second
)

// Case is one kind and number of clients.
type Case struct {
	Name      string
	Title     string
	Holds     int
	Socket    bool
	Heartbeat int // seconds; 0: none
	Idle      time.Duration
	Rows      []string
}

// Cases are all.
func Cases() []Case {
	all, beating := holders.All(), []string{holders.Holdfast, holders.Nchan, holders.Pushpin}
	return []Case{
		{Name: "sse-5000", Title: "5,000 event streams on one channel, no heartbeat.", Holds: 5000, Idle: idleLength, Rows: all},
		{Name: "sse-15000", Title: "15,000 event streams on one channel, no heartbeat.", Holds: 15000, Idle: idleLength, Rows: all},
		{Name: "ws-5000", Title: "5,000 WebSockets on one channel, no heartbeat.", Holds: 5000, Socket: true, Idle: idleLength, Rows: all},
		// Over several heartbeats, so that where in their period the span begins does not count.
		{Name: "sse-5000-heartbeat", Title: "5,000 event streams on one channel, a heartbeat every 15 s.", Holds: 5000, Heartbeat: 15, Idle: 30 * time.Second, Rows: beating},
	}
}

// Rows are the names of all rows.
func Rows() []string { return holders.All() }

// Run returns an error if nothing could be measured at all; what befalls one
// server is in its row.
func Run(ctx context.Context, bench *peer.Bench) (*table.Report, error) {
	if err := peer.RaiseDescriptors(uint64(holders.Descriptors(bench.Scaled(15000, 50)))); err != nil {
		return nil, err
	}
	clients, err := crowd.Start(ctx, bench)
	if err != nil {
		return nil, err
	}
	defer clients.Close()
	report := &table.Report{}
	for _, c := range Cases() {
		if !bench.WantsCase(c.Name) {
			continue
		}
		c.Holds = bench.Scaled(c.Holds, 50)
		t := newTable(c)
		err := t.Measure(ctx, bench, bench.Times(defaultRounds), c.Rows, func(ctx context.Context, row string) (map[string]float64, error) {
			return turn(ctx, bench, clients, c, row)
		})
		if err != nil {
			return nil, err
		}
		report.Tables = append(report.Tables, t)
		report.Pictures = append(report.Pictures, table.Picture{
			Name: "bench-held-" + c.Name + ".svg",
			Text: "Bytes of resident memory a hold: " + c.Title,
			SVG:  picture.Bars("Resident bytes a hold: "+c.Title, "bytes", t.Bars("bytes")),
		})
	}
	if len(report.Tables) == 0 {
		return nil, fmt.Errorf("none of its cases was asked for; there are: %s", caseNames())
	}
	return report, nil
}

func caseNames() (names string) {
	for i, c := range Cases() {
		if i > 0 {
			names += ", "
		}
		names += c.Name
	}
	return names
}

func newTable(c Case) *table.Table {
	return &table.Table{
		Benchmark: "held", Case: c.Name, Title: c.Title, First: "server", Base: holders.Holdfast,
		Columns: []table.Column{
			{Key: "bytes", Heading: "bytes a hold (PSS)", Spread: true, Ratio: true},
			{Key: "rss_bytes", Heading: "bytes a hold (RSS)"},
			{Key: "base_mib", Heading: "before, MiB (PSS)", Decimals: 1},
			{Key: "idle_ms_per_s", Heading: "idle CPU, ms/s", Decimals: 2, Spread: true},
		},
	}
}

func turn(ctx context.Context, bench *peer.Bench, clients *crowd.Crowd, c Case, row string) (map[string]float64, error) {
	server, err := holders.Start(ctx, bench, row, holders.Settings{Holds: c.Holds, Heartbeat: c.Heartbeat, Socket: c.Socket})
	if err != nil {
		return nil, err
	}
	defer server.Stop()
	bench.Pause(ctx, settle)
	before, err := server.Memory()
	if err != nil {
		return nil, err
	}
	open := crowd.Open{Group: "held", Address: server.Clients, Path: server.Path(c.Socket), Socket: c.Socket, Count: c.Holds, Channels: 1, Within: openWithin}
	if _, err := clients.Open(open); err != nil {
		return nil, err
	}
	defer clients.Drop("held")
	bench.Pause(ctx, settle)
	after, err := server.Memory()
	if err != nil {
		return nil, err
	}
	cpuBefore, err := server.CPU()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	bench.Pause(ctx, c.Idle)
	cpuAfter, err := server.CPU()
	if err != nil {
		return nil, err
	}
	idle := time.Since(began)
	// Who lost its connection meanwhile is an error here.
	if _, err := clients.Wait("held", 0, 0); err != nil {
		return nil, err
	}
	return figures(before, after, c.Holds, cpuAfter-cpuBefore, idle), nil
}

func figures(before, after peer.Memory, holds int, used, idle time.Duration) map[string]float64 {
	return map[string]float64{
		"bytes":         float64(after.PSS-before.PSS) / float64(holds),
		"rss_bytes":     float64(after.RSS-before.RSS) / float64(holds),
		"base_mib":      float64(before.PSS) / (1 << 20),
		"idle_ms_per_s": float64(used.Microseconds()) / 1000 / idle.Seconds(),
	}
}
