package growth

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"holdfast/bench/crowd"
	"holdfast/bench/holders"
	"holdfast/bench/load"
	"holdfast/bench/peer"
)

const (
	eventBytes = 64
	within     = 60 * time.Second
	alone      = 200_000 // a channel of its own
)

// cpu is whatever can say how long it has run.
type cpu interface{ CPU() (time.Duration, error) }

// cost is the CPU time of n things that f does, of one in microseconds.
func cost(of cpu, n int, f func() error) (float64, error) {
	before, err := of.CPU()
	if err != nil {
		return 0, err
	}
	if err := f(); err != nil {
		return 0, err
	}
	after, err := of.CPU()
	return float64((after - before).Nanoseconds()) / 1000 / float64(n), err
}

// held starts Holdfast and opens n holds on so many channels, and one more on a
// channel of its own, each of which has read an event.
func (r *run) held(ctx context.Context, n, channels int) (*holders.Server, error) {
	server, err := holders.Start(ctx, r.bench, holders.Holdfast, holders.Settings{Holds: n + 1})
	if err != nil {
		return nil, err
	}
	open := crowd.Open{Group: "all", Address: server.Clients, Path: server.Path(false), Count: n, Channels: channels, Within: within}
	one := open
	one.Group, one.Count, one.Channels, one.First = "one", 1, 1, alone
	for _, group := range []crowd.Open{open, one} {
		if _, err = r.clients.Open(group); err == nil {
			err = server.Joined(ctx, r.clients, group.Group, group.Count, group.First, group.Channels)
		}
		if err != nil {
			r.end(server)
			return nil, err
		}
	}
	return server, nil
}

func (r *run) end(server *holders.Server) {
	r.clients.Drop("all")
	r.clients.Drop("one")
	server.Stop()
}

// publishing is the cost of events, each published when the last has reached all
// of its channel's holds.
func (r *run) publishing(ctx context.Context, server *holders.Server, group string, events, holds int, channel func(int) int) (float64, error) {
	if err := r.clients.Arm(group); err != nil {
		return 0, err
	}
	return cost(server, events, func() error {
		for n := range events {
			if err := server.Publish(ctx, channel(n), crowd.Stamp(eventBytes)); err != nil {
				return err
			}
			if _, err := r.clients.Wait(group, (n+1)*holds, within); err != nil {
				return err
			}
		}
		return nil
	})
}

// eventToAll: n holds on one channel. Events are fewer where each has more to do,
// so that all points take about as long.
func eventToAll(ctx context.Context, r *run, n int) (float64, error) {
	server, err := r.held(ctx, n, 1)
	if err != nil {
		return 0, err
	}
	defer r.end(server)
	events := r.bench.Scaled(min(5000, max(20, 200_000/n)), 20)
	return r.publishing(ctx, server, "all", events, n, func(int) int { return 0 })
}

// eventToOne: n holds on one channel, and the event goes to another channel's one.
func eventToOne(ctx context.Context, r *run, n int) (float64, error) {
	server, err := r.held(ctx, n, 1)
	if err != nil {
		return 0, err
	}
	defer r.end(server)
	return r.publishing(ctx, server, "one", r.bench.Scaled(5000, 20), 1, func(int) int { return alone })
}

// eventToChannel: n channels with a hold each, and each event to another.
func eventToChannel(ctx context.Context, r *run, n int) (float64, error) {
	server, err := r.held(ctx, n, n)
	if err != nil {
		return 0, err
	}
	defer r.end(server)
	// 7919 is prime to every n here: all channels have their turn, not in order.
	return r.publishing(ctx, server, "all", r.bench.Scaled(5000, 20), 1, func(event int) int { return event * 7919 % n })
}

// requestBeside: a forwarded request while n holds are there.
func requestBeside(ctx context.Context, r *run, n int) (float64, error) {
	server, err := r.held(ctx, n, 1)
	if err != nil {
		return 0, err
	}
	defer r.end(server)
	return r.requests(ctx, server, server.Clients, 0)
}

//go:embed holdfast.yaml
var config string

// route is one of the configuration's.
type route struct{ Number, Lane int }

// places are what the configuration is filled in with.
type places struct {
	Listen, Upstream string
	Lanes            []int
	Routes           []route
}

// requestWithRoutes: n routes on one lane, asked in turn.
func requestWithRoutes(ctx context.Context, r *run, n int) (float64, error) {
	return r.requestsWith(ctx, n, 1)
}

// requestWithLanes: n lanes with a route each, asked in turn.
func requestWithLanes(ctx context.Context, r *run, n int) (float64, error) {
	return r.requestsWith(ctx, n, n)
}

func (r *run) requestsWith(ctx context.Context, routes, lanes int) (float64, error) {
	free, err := peer.FreeAddresses(2)
	if err != nil {
		return 0, err
	}
	at := places{Listen: free[0], Upstream: free[1]}
	for lane := range lanes {
		at.Lanes = append(at.Lanes, lane)
	}
	for number := range routes {
		at.Routes = append(at.Routes, route{Number: number, Lane: number % lanes})
	}
	upstream, err := r.start(ctx, "bench/rawupstream", "-listen", at.Upstream)
	if err != nil {
		return 0, err
	}
	defer upstream.Stop()
	if _, err := upstream.WaitReady(ctx, "http://"+at.Upstream+"/"); err != nil {
		return 0, err
	}
	program, err := r.bench.Holdfast(ctx)
	if err != nil {
		return 0, err
	}
	file, err := r.bench.Config("growth.yaml", config, at)
	if err != nil {
		return 0, err
	}
	holdfast, err := r.bench.Start("holdfast", oneCore, program, "serve", "-c", file)
	if err != nil {
		return 0, err
	}
	defer holdfast.Stop()
	if _, err := holdfast.WaitReady(ctx, fmt.Sprintf("http://%s/r%d/", at.Listen, routes-1)); err != nil {
		return 0, err
	}
	return r.requests(ctx, holdfast, at.Listen, routes)
}

var oneCore = []string{"GOMAXPROCS=1"}

func (r *run) start(ctx context.Context, directory string, args ...string) (*peer.Process, error) {
	program, err := r.bench.Build(ctx, directory)
	if err != nil {
		return nil, err
	}
	return r.bench.Start(directory, oneCore, program, args...)
}

// requests is the CPU time of one request under load: eight connections, so that
// a lane of eight slots never has one waiting, asking routes in turn.
func (r *run) requests(ctx context.Context, of cpu, address string, routes int) (float64, error) {
	wrk, err := load.NewWrk(r.bench, script(routes), 8)
	if err != nil {
		return 0, err
	}
	var result load.Result
	used, err := cost(of, 1, func() error {
		result, err = wrk.Run(ctx, "http://"+address+"/", r.bench.Length(3*time.Second))
		return err
	})
	if err != nil {
		return 0, err
	}
	if result.Errors != (load.Errors{}) {
		return 0, fmt.Errorf("errors: %s", result.Errors)
	}
	return used / float64(result.Requests), nil
}

// script asks for each of so many routes in turn; 0: always the same.
func script(routes int) string {
	if routes == 0 {
		return ""
	}
	return fmt.Sprintf(`local n, at, requests = %d, 0, {}
init = function()
   for i = 0, n - 1 do requests[i] = wrk.format("GET", "/r" .. i .. "/") end
end
request = function()
   at = (at + 1) %% n
   return requests[at]
end
`, routes)
}
