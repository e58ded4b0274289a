// Package bus measures what a bus costs beside one Holdfast by itself: how long a
// publish takes, how long its event is on the way to clients of the same and of
// another node, how many go in a second, and the CPU time of one. README.md says
// how, and what would be unfair.
//
// Order of a turn: the engine, empty; the nodes; events one after the other,
// which are the latencies; then as many as go, to 1, 100 and 1,000 channels. Each
// channel has one client on each node, which reads every event once, or the row is
// invalid.
package bus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"holdfast/bench/crowd"
	"holdfast/bench/peer"
	"holdfast/bench/table"
)

const (
	defaultRounds = 3
	defaultLength = 3 * time.Second // of each of the four spans of a turn
	shortLength   = 200 * time.Millisecond

	eventBytes = 200
	publishers = 32                   // at saturation
	pace       = 5 * time.Millisecond // between events where latency is measured

	readyWithin = 15 * time.Second
	openWithin  = 30 * time.Second
	comeWithin  = 30 * time.Second
)

// span is the length of one: a short run has many, and is to be short.
func span(bench *peer.Bench) time.Duration {
	if bench.Short && bench.Seconds == 0 {
		return shortLength
	}
	return bench.Length(defaultLength)
}

// setup is a row.
type setup struct {
	name, kind string
	nodes      int
}

func setups() []setup {
	return []setup{{memory, memory, 1}, {"redis-1", redis, 1}, {"redis-3", redis, 3}, {"postgres-1", postgres, 1}, {"postgres-3", postgres, 3}}
}

// Rows are the names of all rows: the bus and, with an engine, the number of nodes.
func Rows() []string {
	var names []string
	for _, of := range setups() {
		names = append(names, of.name)
	}
	return names
}

// channelCounts are what events go to by turns at saturation; the last one is
// left out of a short run.
func channelCounts(bench *peer.Bench) []int {
	if bench.Short {
		return []int{1, 100}
	}
	return []int{1, 100, 1000}
}

// Run returns an error if nothing could be measured at all; what befalls one row
// is in it.
func Run(ctx context.Context, bench *peer.Bench) (*table.Report, error) {
	if err := peer.RaiseDescriptors(6000); err != nil {
		return nil, err
	}
	clients, err := crowd.Start(ctx, bench)
	if err != nil {
		return nil, err
	}
	defer clients.Close()
	counts := channelCounts(bench)
	whole := &table.Table{Benchmark: "bus", Case: "all", First: "bus"}
	err = whole.Measure(ctx, bench, bench.Times(defaultRounds), Rows(), func(ctx context.Context, row string) (map[string]float64, error) {
		at := slices.IndexFunc(setups(), func(of setup) bool { return of.name == row })
		return turn(ctx, bench, clients, setups()[at], counts)
	})
	if err != nil {
		return nil, err
	}
	return &table.Report{Tables: []*table.Table{part(whole, latencies()), part(whole, rates(counts))}}, nil
}

// latencies is the table of events one after the other, without figures.
func latencies() *table.Table {
	t := &table.Table{Case: "latency", Title: "One publisher, 200 events a second of 200 bytes: ms until the publish is acknowledged, and until a client has read the event."}
	for _, of := range []struct{ key, heading string }{{"publish", "publish"}, {"same", "client, same node"}, {"other", "client, another node"}} {
		for _, q := range []string{"p50", "p99"} {
			t.Columns = append(t.Columns, table.Column{Key: of.key + "_" + q + "_ms", Heading: of.heading + ", " + q, Decimals: 2})
		}
	}
	return t
}

// rates is the table of as many events as go, without figures.
func rates(counts []int) *table.Table {
	t := &table.Table{Case: "saturation", Title: "32 publishers, each with its next event when the last is acknowledged, to 1, 100 and 1,000 channels: events a second, and CPU µs of one."}
	for _, of := range []struct {
		key, heading string
		spread       bool
	}{{"events_per_s", "events/s", true}, {"holdfast_us", "Holdfast, µs", false}, {"engine_us", "engine, µs", false}} {
		for _, n := range counts {
			t.Columns = append(t.Columns, table.Column{Key: key(of.key, n), Heading: fmt.Sprintf("%s, %d ch.", of.heading, n), Spread: of.spread})
		}
	}
	return t
}

func key(name string, channels int) string { return fmt.Sprintf("%s_%d", name, channels) }

// part gives t those figures of the whole that its columns are of.
func part(whole, t *table.Table) *table.Table {
	t.Benchmark, t.First, t.Notes, t.OtherCores = whole.Benchmark, whole.First, whole.Notes, whole.OtherCores
	for _, row := range whole.Rows {
		of := t.Row(row.Name)
		of.Failure = row.Failure
		for _, round := range row.Rounds {
			values := map[string]float64{}
			for _, column := range t.Columns {
				if value, ok := round[column.Key]; ok {
					values[column.Key] = value
				}
			}
			of.Rounds = append(of.Rounds, values)
		}
	}
	return t
}

// session is one turn.
type session struct {
	bench   *peer.Bench
	clients *crowd.Crowd
	engine  *engine
	nodes   []*node
	app     *peer.Process
	next    int // the first channel that nothing has been published to
}

func turn(ctx context.Context, bench *peer.Bench, clients *crowd.Crowd, of setup, counts []int) (map[string]float64, error) {
	e, err := startEngine(ctx, bench, of.kind)
	if err != nil {
		return nil, err
	}
	defer e.stop()
	s := &session{bench: bench, clients: clients, engine: e}
	defer s.stop()
	if err := s.startNodes(ctx, of.nodes); err != nil {
		return nil, err
	}
	values := map[string]float64{}
	if err := s.playLatency(ctx, values); err != nil {
		return nil, err
	}
	for _, n := range counts {
		if err := s.playSaturation(values, n); err != nil {
			return nil, fmt.Errorf("%d channels: %w", n, err)
		}
	}
	return values, nil
}

// addresses are where the nodes are published to.
func (s *session) addresses() []string {
	var all []string
	for _, n := range s.nodes {
		all = append(all, n.publish)
	}
	return all
}

// held opens a client of each channel on each node, at channels that nobody was
// at, and has each read one event. It gives the first channel.
func (s *session) held(channels int) (first int, err error) {
	first = s.next
	s.next += channels
	for _, n := range s.nodes {
		open := crowd.Open{Group: n.name, Address: n.clients, Path: "/m0/stream?c=%d", Count: channels, Channels: channels, First: first, Within: openWithin}
		if _, err := s.clients.Open(open); err != nil {
			return 0, fmt.Errorf("%s: %w", n.name, err)
		}
	}
	one, err := dial(s.addresses(), 1)
	if err != nil {
		return 0, err
	}
	defer hangUp(one)
	for channel := first; channel < s.next; channel++ {
		if _, err := one[0].publish(channel); err != nil {
			return 0, err
		}
	}
	_, err = s.read(channels)
	return first, errors.Join(err, s.arm())
}

// arm has all clients forget what they have read.
func (s *session) arm() error {
	var err error
	for _, n := range s.nodes {
		err = errors.Join(err, s.clients.Arm(n.name))
	}
	return err
}

// read waits until each node's clients have read so many events.
func (s *session) read(events int) ([]crowd.Seen, error) {
	var all []crowd.Seen
	for _, n := range s.nodes {
		seen, err := s.clients.Wait(n.name, events, comeWithin)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", n.name, err)
		}
		all = append(all, seen)
	}
	return all, nil
}

// drop closes all clients.
func (s *session) drop() {
	for _, n := range s.nodes {
		s.clients.Drop(n.name)
	}
}

// playLatency publishes one event at a time to the first node.
func (s *session) playLatency(ctx context.Context, values map[string]float64) error {
	defer s.drop()
	channel, err := s.held(1)
	if err != nil {
		return err
	}
	one, err := dial(s.addresses(), 1)
	if err != nil {
		return err
	}
	defer hangUp(one)
	var took []time.Duration
	length := span(s.bench)
	for began := time.Now(); time.Since(began) < length && ctx.Err() == nil; {
		time.Sleep(time.Until(began.Add(time.Duration(len(took)) * pace)))
		d, err := one[0].publish(channel)
		if err != nil {
			return err
		}
		took = append(took, d)
	}
	seen, err := s.read(len(took))
	if err != nil {
		return err
	}
	slices.Sort(took)
	values["publish_p50_ms"], values["publish_p99_ms"] = millis(peer.Quantile(took, 0.5)), millis(peer.Quantile(took, 0.99))
	values["same_p50_ms"], values["same_p99_ms"] = millis(seen[0].P50), millis(seen[0].P99)
	if len(seen) > 1 {
		values["other_p50_ms"], values["other_p99_ms"] = millis(seen[1].P50), millis(seen[1].P99)
	}
	return nil
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// playSaturation has all publishers, by turns at the nodes, publish what goes.
func (s *session) playSaturation(values map[string]float64, channels int) error {
	defer s.drop()
	first, err := s.held(channels)
	if err != nil {
		return err
	}
	all, err := dial(s.addresses(), publishers)
	if err != nil {
		return err
	}
	defer hangUp(all)
	before, err := s.cpu()
	if err != nil {
		return err
	}
	events, took, err := atOnce(all, first, channels, span(s.bench))
	if err != nil {
		return err
	}
	if _, err := s.read(events); err != nil {
		return err
	}
	after, err := s.cpu()
	if err != nil {
		return err
	}
	values[key("events_per_s", channels)] = float64(events) / took.Seconds()
	values[key("holdfast_us", channels)] = micros(after.nodes-before.nodes, events)
	if s.engine.process != nil {
		values[key("engine_us", channels)] = micros(after.engine-before.engine, events)
	}
	return nil
}

func micros(used time.Duration, by int) float64 {
	return float64(used.Nanoseconds()) / 1000 / float64(by)
}

// used is the time that processes have run so far.
type used struct{ nodes, engine time.Duration }

// cpu is that of all nodes together, and the engine's.
func (s *session) cpu() (sum used, err error) {
	for _, n := range s.nodes {
		one, err := n.process.CPU()
		if err != nil {
			return used{}, err
		}
		sum.nodes += one
	}
	sum.engine, err = s.engine.cpu()
	return sum, err
}
