// Package fanout measures what a published event costs a server that holds
// clients, and how long it takes to reach them. README.md says how, and what
// would be unfair.
//
// Order of a turn: the server, fresh; its clients; one event to each, not
// counted; events to a channel without a client, which is what publishing costs
// by itself; then the case. One server runs at a time.
package fanout

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"holdfast/bench/crowd"
	"holdfast/bench/holders"
	"holdfast/bench/peer"
	"holdfast/bench/picture"
	"holdfast/bench/table"
)

const (
	defaultRounds = 5
	eventBytes    = 64
	openWithin    = 120 * time.Second
	comeWithin    = 60 * time.Second

	// Channels, by their numbers. Those of a case that has many begin at 0.
	everybody = 0
	alone     = 200_000 // the one client that events are to reach on their own
	nobody    = 300_000
)

// Case is one pattern of clients and events.
type Case struct {
	Name     string
	Title    string
	Holds    int // on Channels, by turns
	Channels int
	Single   bool // and one more at a channel of its own
	Columns  []table.Column
	Drawn    string // the column that the picture shows
	play     func(context.Context, *session) (map[string]float64, error)
}

var (
	perDelivery = table.Column{Key: "cpu_us_delivery", Heading: "CPU µs a delivery", Decimals: 2, Spread: true, Ratio: true}
	perEvent    = table.Column{Key: "cpu_us_event", Heading: "CPU µs an event", Decimals: 1, Spread: true, Ratio: true}
	publishing  = table.Column{Key: "publish_us", Heading: "of that publishing", Decimals: 1}
	lost        = table.Column{Key: "lost_percent", Heading: "lost, %", Decimals: 2}
	p50         = table.Column{Key: "p50_ms", Heading: "p50 ms", Decimals: 2}
	p99         = table.Column{Key: "p99_ms", Heading: "p99 ms", Decimals: 2}
)

// Cases are all.
func Cases() []Case {
	return []Case{
		{Name: "5000", Title: "One event at a time to 5,000 event streams on one channel.", Holds: 5000, Channels: 1,
			Columns: []table.Column{perDelivery, perEvent, publishing, p50, p99, lost}, Drawn: "cpu_us_delivery", play: playFanout},
		{Name: "beside-5000", Title: "An event to one client while events go out to 5,000 others: the one's latency.", Holds: 5000, Channels: 1, Single: true,
			Columns: []table.Column{
				{Key: "alone_p50_ms", Heading: "quiet, p50 ms", Decimals: 2},
				{Key: "p50_ms", Heading: "beside, p50 ms", Decimals: 2, Spread: true, Ratio: true}, {Key: "p99_ms", Heading: "beside, p99 ms", Decimals: 2, Spread: true},
				{Key: "all_p99_ms", Heading: "the 5,000's p99 ms", Decimals: 1}, lost,
			}, Drawn: "p99_ms", play: playBeside},
		{Name: "1000x5", Title: "1,000 channels of five event streams, an event to each channel in turn.", Holds: 5000, Channels: 1000,
			Columns: []table.Column{perDelivery, perEvent, publishing, p50, p99}, Drawn: "cpu_us_delivery", play: playChannels},
		{Name: "one-of-15000", Title: "One event at a time to one of 15,000 event streams.", Holds: 14_999, Channels: 1, Single: true,
			Columns: []table.Column{perEvent, publishing, p50, p99}, Drawn: "cpu_us_event", play: playSingle},
		{Name: "rate-1000", Title: "1,000 events a second to 100 event streams on one channel.", Holds: 100, Channels: 1,
			Columns: []table.Column{perDelivery, {Key: "events_per_s", Heading: "events/s"}, lost, p50, p99}, Drawn: "cpu_us_delivery", play: playRate},
	}
}

// Rows are the names of all rows.
func Rows() []string { return holders.All() }

// session is one turn.
type session struct {
	bench   *peer.Bench
	clients *crowd.Crowd
	server  *holders.Server
	of      Case
}

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
	report, names := &table.Report{}, []string{}
	for _, c := range Cases() {
		names = append(names, c.Name)
		if !bench.WantsCase(c.Name) {
			continue
		}
		c = scaled(bench, c)
		t := &table.Table{Benchmark: "fanout", Case: c.Name, Title: c.Title, First: "server", Base: holders.Holdfast, Columns: c.Columns}
		err := t.Measure(ctx, bench, bench.Times(defaultRounds), holders.All(), func(ctx context.Context, row string) (map[string]float64, error) {
			return turn(ctx, bench, clients, c, row)
		})
		if err != nil {
			return nil, err
		}
		report.Tables = append(report.Tables, t)
		report.Pictures = append(report.Pictures, drawn(t, c))
	}
	if len(report.Tables) == 0 {
		return nil, fmt.Errorf("none of its cases was asked for; there are: %s", strings.Join(names, ", "))
	}
	return report, nil
}

// scaled makes a case small in a short run; channels keep their share of holds.
func scaled(bench *peer.Bench, c Case) Case {
	perChannel := c.Holds / c.Channels
	c.Channels = bench.Scaled(c.Channels, 10)
	c.Holds = bench.Scaled(c.Holds, min(50, perChannel*c.Channels))
	return c
}

func drawn(t *table.Table, c Case) table.Picture {
	at := slices.IndexFunc(c.Columns, func(column table.Column) bool { return column.Key == c.Drawn })
	heading := c.Columns[at].Heading
	return table.Picture{
		Name: "bench-fanout-" + c.Name + ".svg",
		Text: heading + ": " + c.Title,
		SVG:  picture.Bars(heading+": "+c.Title, "", t.Bars(c.Drawn)),
	}
}

func turn(ctx context.Context, bench *peer.Bench, clients *crowd.Crowd, c Case, row string) (map[string]float64, error) {
	server, err := holders.Start(ctx, bench, row, holders.Settings{Holds: c.Holds + 1})
	if err != nil {
		return nil, err
	}
	defer server.Stop()
	s := &session{bench: bench, clients: clients, server: server, of: c}
	defer clients.Drop("all")
	defer clients.Drop("one")
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	values, err := s.of.play(ctx, s)
	if err != nil {
		return nil, err
	}
	// Who lost its connection meanwhile is an error here.
	if err := clients.Arm("all"); err != nil {
		return nil, err
	}
	_, err = clients.Wait("all", 0, 0)
	return values, err
}

// open opens the case's clients and has each read one event.
func (s *session) open(ctx context.Context) error {
	open := crowd.Open{Group: "all", Address: s.server.Clients, Path: s.server.Path(false), Count: s.of.Holds, Channels: s.of.Channels, Within: openWithin}
	if _, err := s.clients.Open(open); err != nil {
		return err
	}
	if err := s.server.Joined(ctx, s.clients, "all", s.of.Holds, 0, s.of.Channels); err != nil {
		return err
	}
	if !s.of.Single {
		return nil
	}
	open.Group, open.Count, open.First, open.Channels = "one", 1, alone, 1
	if _, err := s.clients.Open(open); err != nil {
		return err
	}
	return s.server.Joined(ctx, s.clients, "one", 1, alone, 1)
}
