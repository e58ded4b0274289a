package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"go.uber.org/zap"

	"holdfast/health"
	"holdfast/lanes"
	"holdfast/proxy"
	"holdfast/upstream"
)

// holdfast is the wired process: everything that a configuration becomes.
type holdfast struct {
	config    *fileConfig
	log       *zap.Logger
	upstreams map[string]*upstream.Upstream
	lanes     map[string]*lanes.Lane
	server    *proxy.Server
	listeners []net.Listener
}

// serve runs a configuration until a signal ends it, and gives the exit code.
func serve(config *fileConfig, stderr io.Writer) int {
	log, err := newLogger(config.Log, stderr)
	if err != nil {
		fmt.Fprintln(stderr, "holdfast:", err)
		return exitFailed
	}
	defer log.Sync()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	h, err := start(config, log)
	if err != nil {
		fmt.Fprintln(stderr, "holdfast:", err)
		return exitFailed
	}
	return h.run(signals, stderr)
}

// start binds the listeners and serves: from here on /health answers, and
// requests wait for targets that have not answered yet.
func start(config *fileConfig, log *zap.Logger) (*holdfast, error) {
	h := &holdfast{config: config, log: log,
		upstreams: make(map[string]*upstream.Upstream), lanes: make(map[string]*lanes.Lane)}
	for _, address := range config.Listen {
		ln, err := listen(address)
		if err != nil {
			h.closeListeners()
			return nil, fmt.Errorf("cannot listen on %s: %w; change listen, or end what holds it", address, err)
		}
		h.listeners = append(h.listeners, ln)
	}
	for _, name := range config.upstreamNames() {
		h.upstreams[name] = upstream.New(config.upstream(name), h.targetChanged)
	}
	for _, name := range config.laneNames() {
		lane := config.Lanes[name]
		h.lanes[name] = lanes.New(lanes.Config{
			Name: name, Slots: lane.Slots, Queue: lane.Queue,
			QueueTimeout: time.Duration(lane.QueueTimeout), ResponseTimeout: time.Duration(lane.ResponseTimeout),
		}, h.upstreams[lane.Upstream].Deal(lane.Slots))
	}
	limits := config.Limits
	server, err := proxy.New(proxy.Config{
		HeaderBytes: int(limits.HeaderBytes), HeaderTimeout: time.Duration(limits.HeaderTimeout),
		BodyBytes: int64(limits.BodyBytes), BodyTimeout: time.Duration(limits.BodyTimeout),
		IdleTimeout: time.Duration(limits.IdleTimeout), Memory: int64(limits.Memory),
	}, h.routes(), log)
	if err != nil {
		h.closeListeners()
		return nil, err
	}
	h.server = server
	for _, u := range h.upstreams {
		u.Start()
	}
	for _, ln := range h.listeners {
		go h.accept(ln)
	}
	h.logStart()
	return h, nil
}

// accept serves a listener until the drain.
func (h *holdfast) accept(ln net.Listener) {
	if err := h.server.Serve(ln); err != nil {
		h.log.Error("listener failed", zap.String("listen", ln.Addr().String()), zap.Error(err))
	}
}

func (h *holdfast) logStart() {
	addresses := make([]string, len(h.listeners))
	for i, ln := range h.listeners {
		addresses[i] = ln.Addr().String()
	}
	h.log.Info("started", zap.String("version", version), zap.String("instance", h.instance()),
		zap.Strings("listen", addresses), zap.Int("lanes", len(h.lanes)), zap.Int("routes", len(h.config.Routes)))
	for _, warning := range h.config.warnings {
		h.log.Warn("configuration", zap.String("detail", warning))
	}
}

func (h *holdfast) instance() string {
	if h.config.Instance != "" {
		return h.config.Instance
	}
	name, _ := os.Hostname()
	return name
}

// targetChanged logs a target that went up or down.
func (h *holdfast) targetChanged(change upstream.Change) {
	if change.Up {
		h.log.Info("target up", zap.String("target", change.Target), zap.Duration("after", change.After))
		return
	}
	h.log.Warn("target down", zap.String("target", change.Target), zap.Duration("after", change.After), zap.Error(change.Err))
}

// upstream composes an upstream's configuration.
func (c *fileConfig) upstream(name string) upstream.Config {
	u := c.Upstreams[name]
	config := upstream.Config{
		Name: name, Park: time.Duration(u.Park), AbandonLimit: time.Duration(u.AbandonLimit),
		ConnectTimeout: time.Duration(u.ConnectTimeout), KeepAliveOff: u.Keepalive == "off",
		Health: upstream.Health{Path: u.Health.Path, Host: u.Health.Host},
	}
	if u.Concurrency != nil {
		config.Concurrency = *u.Concurrency
	}
	for _, text := range u.Targets {
		e, _ := parseTarget(text) // checked with the configuration
		config.Targets = append(config.Targets, upstream.Address{Text: text, Network: e.network, Addr: e.address})
	}
	return config
}

// routes composes the route table, the process's own paths first.
func (h *holdfast) routes() []proxy.Route {
	var routes []proxy.Route
	taken := make(map[string]bool)
	for _, r := range h.config.Routes {
		route := proxy.Route{Match: r.Match}
		if r.BodyBytes != nil {
			route.BodyBytes = int64(*r.BodyBytes)
		}
		if r.Lane != nil {
			route.Lane = h.lanes[*r.Lane]
			route.ForwardStreams = h.config.Lanes[*r.Lane].Streaming == "forward"
		} else {
			route.Respond = r.Respond.respond()
		}
		taken[r.Match] = true
		routes = append(routes, route)
	}
	if path := h.config.Health.Path; path != "" && !taken[path] {
		routes = append(routes, proxy.Route{Match: path, Answer: h.healthAnswer()})
	}
	return routes
}

func (r *respondConfig) respond() *proxy.Respond {
	respond := &proxy.Respond{Status: r.Status, Body: []byte(r.Body)}
	typed := false
	for name, value := range r.Headers {
		respond.Fields = append(respond.Fields, name, value)
		typed = typed || strings.EqualFold(name, "content-type")
	}
	if !typed {
		respond.Fields = append(respond.Fields, "Content-Type", "text/plain; charset=utf-8")
	}
	return respond
}

// healthAnswer answers /health from counters alone.
func (h *holdfast) healthAnswer() func(near bool) proxy.Respond {
	report := health.New(health.Config{Instance: h.instance(), Version: version, Lanes: h.laneCounts})
	return func(near bool) proxy.Respond {
		return proxy.Respond{Status: 200, Body: report.Body(near),
			Fields: []string{"Content-Type", "application/json", "Cache-Control", "no-store"}}
	}
}

func (h *holdfast) laneCounts() map[string]health.Lane {
	counts := make(map[string]health.Lane, len(h.lanes))
	for name, lane := range h.lanes {
		s := lane.Snapshot()
		counts[name] = health.Lane{Slots: s.Slots, InUse: s.InUse, Waiting: s.Waiting, Abandoned: s.Abandoned}
	}
	return counts
}

// run waits for readiness and for the signal that ends the process.
func (h *holdfast) run(signals <-chan os.Signal, stderr io.Writer) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ready := make(chan error, 1)
	go func() { ready <- h.awaitTargets(ctx) }()
	for {
		select {
		case err := <-ready:
			if err != nil {
				h.stop(0)
				fmt.Fprintln(stderr, "holdfast:", err)
				return exitConfig
			}
			h.log.Info("ready")
			ready = nil
		case s := <-signals:
			h.log.Info("draining", zap.String("signal", s.String()))
			return h.drain(signals)
		}
	}
}

// drain stops within the configured bound; a second signal ends it at once.
func (h *holdfast) drain(signals <-chan os.Signal) int {
	stopped := make(chan error, 1)
	go func() { stopped <- h.stop(time.Duration(h.config.Drain.Bound)) }()
	select {
	case err := <-stopped:
		if errors.Is(err, context.DeadlineExceeded) {
			h.log.Warn("stopped at drain.bound, what was running was cut", zap.Duration("bound", time.Duration(h.config.Drain.Bound)))
		} else {
			h.log.Info("stopped")
		}
		return exitOK
	case s := <-signals:
		h.log.Warn("stopped at once by a second signal", zap.String("signal", s.String()))
		return exitFailed
	}
}

// stop ends serving within bound and gives everything back.
func (h *holdfast) stop(bound time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	err := h.server.Shutdown(ctx)
	for _, lane := range h.lanes {
		lane.Close()
	}
	for _, u := range h.upstreams {
		u.Close()
	}
	return err
}

func (h *holdfast) closeListeners() {
	for _, ln := range h.listeners {
		ln.Close()
	}
}
