package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.uber.org/zap"

	"holdfast/health"
	"holdfast/holds"
	"holdfast/lanes"
	"holdfast/proxy"
	"holdfast/upstream"
)

// holdfast is the wired process: everything that a configuration becomes.
type holdfast struct {
	// fixed
	log          *zap.Logger
	access       *zap.Logger
	load         func() (*fileConfig, error) // reads the configuration again; nil: there is no file
	server       *proxy.Server
	holds        *holds.Holds
	admin        *proxy.Server // nil: off
	publisher    *proxy.Server // nil: off
	listeners    []net.Listener
	adminLn      net.Listener
	publishLn    net.Listener
	health       *health.Health
	feed         *feed           // of the dashboard; nil: admin is off
	certificates []*certificates // of the listeners with TLS
	unwatch      func()          // ends the watching of their files
	first        *fileConfig     // what was read at the start
	busKind      string          // its bus\'s
	rewired      chan struct{}   // a reload was made
	drainNow     chan struct{}   // POST /drain
	broken       chan error      // a listener that cannot go on

	state           atomic.Int32
	drainFrom       atomic.Int64 // unix nanoseconds; 0: no drain
	reloads, failed atomic.Uint64

	reloading sync.Mutex    // one reload at a time; guards retired
	retired   []*lanes.Lane // that no route leads to, and that are not done yet
	wiring    atomic.Pointer[wiring]
}

// wiring is what a reload replaces, all at once.
type wiring struct {
	config    *fileConfig
	upstreams map[string]*upstream.Upstream
	lanes     map[string]*lanes.Lane
}

// start binds the listeners and serves: from here on /health answers, and
// requests wait for targets that have not answered yet. load reads the
// configuration again, for a reload; nil: there is no file.
func start(config *fileConfig, load func() (*fileConfig, error), log, access *zap.Logger) (started *holdfast, err error) {
	h := &holdfast{first: config, rewired: make(chan struct{}, 1), load: load, log: log, access: access, drainNow: make(chan struct{}, 1), broken: make(chan error, 1)}
	defer func() {
		if err != nil {
			h.closeListeners()
			if h.holds != nil {
				h.holds.Close()
			}
			if h.feed != nil {
				h.feed.end()
			}
		}
	}()
	for i, address := range config.Listen {
		if err := h.bind(address, config.listenPath(i), func(ln net.Listener) { h.listeners = append(h.listeners, ln) }); err != nil {
			return nil, err
		}
	}
	if config.Admin.Listen.Address != "" {
		if err := h.bind(config.Admin.Listen, "admin.listen", func(ln net.Listener) { h.adminLn = ln }); err != nil {
			return nil, err
		}
	}
	if config.Publish.Listen.Address != "" {
		if err := h.bind(config.Publish.Listen, "publish.listen", func(ln net.Listener) { h.publishLn = ln }); err != nil {
			return nil, err
		}
	}
	held := h.holdsConfig(config)
	if held.Bus, err = config.openBus(); err != nil {
		return nil, err
	}
	h.busKind = config.busKind()
	if h.holds, err = holds.New(held, log); err != nil {
		return nil, err
	}
	h.health = health.New(health.Config{
		Instance: config.instance(), Version: version, State: h.stateWord, Lanes: h.laneCounts, Targets: h.targets,
		Ask: h.ask, Interval: h.healthInterval, Routes: h.routeCounts, Memory: func() int64 { return h.server.Memory() },
		Spool:   func() (int64, uint64) { return h.server.Spool() },
		Reloads: func() (uint64, uint64) { return h.reloads.Load(), h.failed.Load() },
		Holds:   h.holdCounts, Limits: h.limits, Channels: h.topChannels, Drain: h.drainClock, Bus: h.busCounts,
	})
	w := h.wire(config, nil)
	if h.server, err = proxy.New(h.proxyConfig(config), h.routes(w), log, access); err != nil {
		return nil, err
	}
	h.wiring.Store(w)
	if h.adminLn != nil {
		if h.feed, err = newFeed(h.health.NewWatch(), func() { h.admin.HoldLeft() }, log); err != nil {
			return nil, err
		}
		if h.admin, err = h.newAdmin(config); err != nil {
			return nil, err
		}
		go h.accept(h.admin, h.adminLn)
	}
	if h.publishLn != nil {
		if h.publisher, err = h.newPublisher(config); err != nil {
			return nil, err
		}
		go h.accept(h.publisher, h.publishLn)
	}
	for _, u := range w.upstreams {
		u.Start()
	}
	for _, ln := range h.listeners {
		go h.accept(h.server, ln)
	}
	if len(h.certificates) > 0 {
		ended := make(chan struct{})
		h.unwatch = sync.OnceFunc(func() { close(ended) })
		go h.watchCertificates(ended)
	}
	h.logStart(config)
	return h, nil
}

func (h *holdfast) bind(a address, key string, keep func(net.Listener)) error {
	ln, err := listen(a.Address)
	if err != nil {
		return fmt.Errorf("cannot listen on %s: %w; change %s, or end what holds it", a.Address, err, key)
	}
	if a.TLS != nil {
		own, err := newCertificates(key, *a.TLS, h.log)
		if err != nil {
			ln.Close()
			return fmt.Errorf("cannot serve TLS on %s: %s.%w", a.Address, key, err)
		}
		h.certificates = append(h.certificates, own)
		ln = own.listen(ln)
	}
	keep(ln)
	return nil
}

// accept serves a listener until the drain.
func (h *holdfast) accept(server *proxy.Server, ln net.Listener) {
	if err := server.Serve(ln); err != nil {
		h.log.Error("listener failed", zap.String("listen", ln.Addr().String()), zap.Error(err))
		select {
		case h.broken <- fmt.Errorf("the listener on %s failed: %w", ln.Addr(), err):
		default: // one is enough
		}
	}
}

// wire makes what a configuration names. Targets, and lanes that stay on
// their upstream, are taken over from old; nothing of them is changed yet.
func (h *holdfast) wire(config *fileConfig, old *wiring) *wiring {
	w := &wiring{config: config, upstreams: make(map[string]*upstream.Upstream), lanes: make(map[string]*lanes.Lane)}
	for _, name := range config.upstreamNames() {
		cfg := config.upstream(name)
		if old != nil && old.upstreams[name] != nil {
			w.upstreams[name] = old.upstreams[name].Next(cfg, h.targetChanged)
		} else {
			w.upstreams[name] = upstream.New(cfg, h.targetChanged)
		}
	}
	for _, name := range config.laneNames() {
		if old != nil && old.lanes[name] != nil && old.config.Lanes[name].Upstream == config.Lanes[name].Upstream {
			w.lanes[name] = old.lanes[name]
		} else {
			w.lanes[name] = lanes.New(config.lane(name), w.deal(name))
		}
	}
	return w
}

func (w *wiring) deal(lane string) []*upstream.Target {
	cfg := w.config.Lanes[lane]
	return w.upstreams[cfg.Upstream].Deal(cfg.Slots)
}

// reload puts the configuration file in force anew, or keeps the old one. It
// names what changed in the file and cannot change without a restart.
func (h *holdfast) reload() (unchanged []string, err error) {
	h.reloading.Lock()
	defer h.reloading.Unlock()
	defer func() {
		if err != nil {
			h.failed.Add(1)
			h.log.Error("reload refused, the old configuration stays", zap.Error(err))
		}
	}()
	if h.load == nil {
		return nil, errors.New("there is no file to read again: Holdfast was started with --upstream")
	}
	config, err := h.load()
	if err != nil {
		return nil, err
	}
	old := h.wiring.Load()
	w := h.wire(config, old)
	if err := h.server.Configure(h.proxyConfig(config), h.routes(w)); err != nil {
		return nil, err
	}
	h.wiring.Store(w)
	h.holds.Configure(h.holdsConfig(config))
	config.limitMemory()
	h.lookAtCertificates()
	for _, u := range w.upstreams {
		u.Apply()
	}
	for _, name := range config.laneNames() {
		if w.lanes[name] == old.lanes[name] {
			w.lanes[name].Configure(config.lane(name), w.deal(name))
		}
	}
	for name, lane := range old.lanes {
		if w.lanes[name] != lane {
			lane.Retire()
			h.retired = append(h.retired, lane)
		}
	}
	go h.leaveBehind(old, w, slices.Clone(h.retired))
	select {
	case h.rewired <- struct{}{}:
	default:
	}
	h.reloads.Add(1)
	unchanged = fixedChanges(h.first, config)
	h.log.Info("reloaded", zap.Int("lanes", len(w.lanes)), zap.Int("routes", len(config.Routes)),
		zap.Strings("needs_restart", unchanged))
	for _, warning := range config.warnings {
		h.log.Warn("configuration", zap.String("detail", warning))
	}
	return unchanged, nil
}

// leaveBehind ends what a reload replaced, once the lanes that it took out
// have served who waited and ran: until then their targets are looked for.
func (h *holdfast) leaveBehind(old, now *wiring, retired []*lanes.Lane) {
	for _, lane := range retired {
		for s := lane.Snapshot(); s.InUse > 0 || s.Waiting > 0; s = lane.Snapshot() {
			<-time.After(retiredPause)
		}
		lane.Forget()
	}
	for name, u := range old.upstreams {
		u.CloseReplaced(now.upstreams[name])
	}
	h.reloading.Lock()
	defer h.reloading.Unlock()
	h.retired = slices.DeleteFunc(h.retired, func(lane *lanes.Lane) bool { return slices.Contains(retired, lane) })
}

// retiredPause is how often a lane that was taken out is looked at.
const retiredPause = 200 * time.Millisecond

// fixedChanges names the keys that differ and are read at the start only.
func fixedChanges(old, now *fileConfig) (keys []string) {
	differs := func(key string, a, b any) {
		if fmt.Sprint(a) != fmt.Sprint(b) {
			keys = append(keys, key)
		}
	}
	differs("instance", old.Instance, now.Instance)
	differs("listen", old.Listen, now.Listen)
	differs("publish", old.Publish, now.Publish)
	differs("admin", old.Admin, now.Admin)
	differs("bus", old.Bus.URL, now.Bus.URL)
	differs("log.level", old.Log.Level, now.Log.Level)
	differs("log.format", old.Log.Format, now.Log.Format)
	return keys
}

func (h *holdfast) logStart(config *fileConfig) {
	addresses := make([]string, len(h.listeners))
	for i, ln := range h.listeners {
		addresses[i] = ln.Addr().String()
	}
	fields := []zap.Field{zap.String("version", version), zap.String("instance", config.instance()),
		zap.Strings("listen", addresses), zap.Int("lanes", len(config.Lanes)), zap.Int("routes", len(config.Routes))}
	if h.adminLn != nil {
		fields = append(fields, zap.String("admin", h.adminLn.Addr().String()))
	}
	if h.publishLn != nil {
		fields = append(fields, zap.String("publish", h.publishLn.Addr().String()))
	}
	h.log.Info("started", fields...)
	for _, warning := range config.warnings {
		h.log.Warn("configuration", zap.String("detail", warning))
	}
}

// targetChanged logs a target that went up or down.
func (h *holdfast) targetChanged(change upstream.Change) {
	if change.Up {
		h.log.Info("target up", zap.String("target", change.Target), zap.Duration("after", change.After))
		return
	}
	h.log.Warn("target down", zap.String("target", change.Target), zap.Duration("after", change.After), zap.Error(change.Err))
}

func (h *holdfast) closeListeners() {
	for _, ln := range h.listeners {
		ln.Close()
	}
	for _, ln := range []net.Listener{h.adminLn, h.publishLn} {
		if ln != nil {
			ln.Close()
		}
	}
}

// The configurations of the packages, composed from the file's.

func (c *fileConfig) instance() string {
	if c.Instance != "" {
		return c.Instance
	}
	name, _ := os.Hostname()
	return name
}

func (h *holdfast) proxyConfig(c *fileConfig) proxy.Config {
	limits := c.Limits
	return proxy.Config{
		Grip:  proxy.Grip{Iss: c.Grip.Iss, Key: c.Grip.secret()},
		Holds: h.holds, Origins: c.origins(), Dialects: holds.Dialects{M0: slices.Contains(c.Holds.Dialects, "m0"), Grip: slices.Contains(c.Holds.Dialects, "grip")},
		HeaderBytes: int(limits.HeaderBytes), HeaderTimeout: time.Duration(limits.HeaderTimeout),
		BodyBytes: int64(limits.BodyBytes), BodyTimeout: time.Duration(limits.BodyTimeout),
		IdleTimeout: time.Duration(limits.IdleTimeout), Memory: int64(limits.Memory), Connections: c.connections(),
		SpoolDir: limits.Spool.Dir, SpoolBytes: int64(limits.Spool.Bytes),
		Trusted: c.trusted(), Guarded: c.messagePaths(), AccessLog: c.Log.Access,
	}
}

func (h *holdfast) holdsConfig(c *fileConfig) holds.Config {
	limits := c.Holds
	return holds.Config{
		Heartbeat: time.Duration(limits.Heartbeat), OutboxBytes: int(limits.OutboxBytes), WriteStall: time.Duration(limits.WriteStall),
		Limit: c.holdLimit(), MaxAge: time.Duration(limits.MaxAge),
		Journal:      holds.JournalLimits{Events: limits.Journal.Events, Bytes: int64(limits.Journal.Bytes), Age: time.Duration(limits.Journal.Age)},
		MessageBytes: int(limits.MessageBytes), Left: func() { h.server.HoldLeft() },
		Forward: func(ctx context.Context, r *holds.Request) (holds.Answer, error) { return h.server.Forward(ctx, r) },
		Return:  func(conn net.Conn, early []byte) { h.server.Return(conn, early) },
	}
}

// limitMemory has the garbage collector work harder near what the
// configuration lets the process hold, unless the environment says otherwise
// (GOMEMLIMIT). Without it what is garbage may be as much as what is held.
func (c *fileConfig) limitMemory() {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(int64(c.Limits.Memory) + int64(c.Holds.Journal.Bytes) + ownMemory)
	}
}

// ownMemory is for all that no limit counts.
const ownMemory = 64 << 20

// holdLimit is holds.limit, or nine tenths of all connections: whatever is
// held, others can come and go.
func (c *fileConfig) holdLimit() int {
	if c.Holds.Limit > 0 {
		return c.Holds.Limit
	}
	if connections := c.connections(); connections > 0 {
		return max(connections*9/10, 1)
	}
	return 0
}

func (c *fileConfig) origins() holds.Origins {
	switch list := c.Holds.Origins; list[0] {
	case "any":
		return holds.Origins{Any: true}
	case "same-host":
		return holds.Origins{SameHost: true}
	default:
		return holds.Origins{List: list}
	}
}

// connections is limits.connections, or what the descriptor limit leaves.
func (c *fileConfig) connections() int {
	if c.Limits.Connections > 0 {
		return c.Limits.Connections
	}
	limit := descriptorLimit()
	if limit == 0 {
		return 0
	}
	return max(limit-c.descriptorReserve(), 1)
}

// descriptorReserve is what is needed beside clients' own: a connection for
// each slot, listeners, logs, and a tenth of all for temporary files and the
// admin address.
func (c *fileConfig) descriptorReserve() int {
	reserve := 64 + descriptorLimit()/10
	for _, lane := range c.Lanes {
		reserve += lane.Slots
	}
	return reserve
}

// descriptorLimit is how many files the process may have open; 0: not known.
// Go raises the soft limit to the hard one at start.
func descriptorLimit() int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil || limit.Cur > 1<<30 {
		return 0
	}
	return int(limit.Cur)
}

func (c *fileConfig) trusted() (t proxy.Trusted) {
	for _, text := range c.TrustedProxies {
		if text == "unix" {
			t.Unix = true
		} else if prefix, err := netip.ParsePrefix(text); err == nil {
			t.Networks = append(t.Networks, prefix.Masked())
		} else if addr, err := netip.ParseAddr(text); err == nil { // checked with the configuration
			t.Networks = append(t.Networks, netip.PrefixFrom(addr, addr.BitLen()))
		}
	}
	return t
}

// messagePaths are the paths that only Holdfast itself asks.
func (c *fileConfig) messagePaths() (paths []string) {
	if c.Holds.MessagePath != "" {
		paths = append(paths, c.Holds.MessagePath)
	}
	for _, route := range c.Routes {
		if route.MessagePath != "" {
			paths = append(paths, route.MessagePath)
		}
	}
	return paths
}

func (c *fileConfig) lane(name string) lanes.Config {
	lane := c.Lanes[name]
	if lane.Kind == "stream" {
		return lanes.Config{Name: name, Stream: true, Idle: time.Duration(lane.Idle), ResponseTimeout: time.Duration(lane.ResponseTimeout)}
	}
	return lanes.Config{Name: name, Queue: lane.Queue, QueueTimeout: time.Duration(lane.QueueTimeout),
		ResponseTimeout: time.Duration(lane.ResponseTimeout)}
}

func (c *fileConfig) upstream(name string) upstream.Config {
	u := c.Upstreams[name]
	config := upstream.Config{
		Name: name, Park: time.Duration(u.Park), AbandonLimit: time.Duration(u.AbandonLimit),
		ConnectTimeout: time.Duration(u.ConnectTimeout), KeepAliveOff: u.Keepalive == "off",
		Health: upstream.Health{Path: u.Health.Path, Host: u.Health.Host},
	}
	for _, text := range u.Targets {
		e, _ := parseTarget(text) // checked with the configuration
		config.Targets = append(config.Targets, upstream.Address{Text: text, Network: e.network, Addr: e.address})
	}
	return config
}

// routes composes the route table, the process's own paths last, where no
// route has them.
func (h *holdfast) routes(w *wiring) []proxy.Route {
	var routes []proxy.Route
	taken := make(map[string]bool)
	for _, r := range w.config.Routes {
		route := proxy.Route{Match: r.Match, MessagePath: cmp.Or(r.MessagePath, w.config.Holds.MessagePath)}
		if r.Lane != nil {
			route.Lane = w.lanes[*r.Lane]
			route.Stream = w.config.Lanes[*r.Lane].Kind == "stream"
			route.ForwardStreams = w.config.Lanes[*r.Lane].Streaming == "forward"
			route.OverHTTP = r.OverHTTP != nil && *r.OverHTTP
			if r.BodyBytes != nil {
				route.BodyBytes = int64(*r.BodyBytes)
			}
		} else if r.Files != nil {
			route.Files = r.Files.files()
		} else if r.Grant != nil {
			route.Grant = w.config.grant(r.Grant)
		} else {
			route.Respond = r.Respond.respond()
		}
		if p, err := proxy.ParsePattern(r.Match); err == nil && p.Host == "" && (p.Method == "" || p.Method == "GET") {
			taken[p.Path] = true
		}
		routes = append(routes, route)
	}
	own := map[string]func(*proxy.Asked) proxy.Respond{w.config.Health.Path: h.healthAnswer, w.config.Health.ReadyPath: h.readyAnswer}
	for path, answer := range own {
		if path != "" && !taken[path] {
			routes = append(routes, proxy.Route{Match: path, Answer: answer})
		}
	}
	return routes
}

// files composes a files route, its headers in the order of their names.
func (f *filesConfig) files() *proxy.Files {
	files := &proxy.Files{Dir: f.Dir, CacheControl: f.CacheControl, Internal: f.Internal}
	for _, name := range slices.Sorted(maps.Keys(f.Headers)) {
		files.Fields = append(files.Fields, name, f.Headers[name])
	}
	return files
}

// grant composes a grant route: the present key first, then the one before it.
func (c *fileConfig) grant(g *grantConfig) *proxy.Grant {
	grant := &proxy.Grant{Cookie: g.Cookie, Origins: c.origins()}
	for _, name := range []string{g.KeyEnv, g.KeyEnv + "_PREV"} {
		if key, _ := c.source.env(name); key != "" {
			grant.Keys = append(grant.Keys, []byte(key))
		}
	}
	return grant
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

// awaitReady waits until every target has answered and says so. A reload
// meanwhile changes which targets those are.
func (h *holdfast) awaitReady(ctx context.Context) error {
	for {
		w := h.wiring.Load()
		attempt, cancel := context.WithCancel(ctx)
		answered := make(chan error, 1)
		go func() { answered <- w.awaitTargets(attempt) }()
		var err error
		select {
		case err = <-answered:
		case <-h.rewired:
			cancel()
			<-answered
		}
		cancel()
		if h.wiring.Load() != w {
			continue
		}
		if err != nil || ctx.Err() != nil {
			return err
		}
		if h.state.CompareAndSwap(stateStarting, stateReady) {
			h.log.Info("ready")
		}
		return nil
	}
}

// serve runs a configuration until a signal ends it, and gives the exit code.
func serve(config *fileConfig, load func() (*fileConfig, error), stderr io.Writer) int {
	log, access, err := newLoggers(config.Log, stderr)
	if err != nil {
		fmt.Fprintln(stderr, "holdfast:", err)
		return exitFailed
	}
	defer log.Sync()
	config.limitMemory()
	signals := watchSignals()
	defer signals.stop()
	h, err := start(config, load, log, access)
	if err != nil {
		fmt.Fprintln(stderr, "holdfast:", err)
		return exitFailed
	}
	return h.run(signals, stderr)
}
