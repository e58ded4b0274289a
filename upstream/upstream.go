// Package upstream is the application behind us, at its addresses (targets).
//
//	up := upstream.New(upstream.Config{Name: "app", Targets: addresses}, changed)
//	up.Start()                        // probes each target until it has answered once
//	conn, err := up.Targets()[0].Dial(ctx)
//	err = conn.Send(head, nil)
//	res, err := conn.Head(false, nil)
//	n, err := conn.Read(p)            // until io.EOF
//	if conn.Reusable() { … }          // else conn.Close()
//
// A target is one process. It is waited for at first (nobody knows yet whether
// it answers), then up or down: down when a connection could not be had, up
// again when its one prober has connected. A target that is configured by name
// is looked up again while it is in use: no connection goes, and none is used
// again, to an address that the name lost longer than LookUpEvery ago, unless
// the resolver fails, when the last answer stays in use. A connection carries one HTTP/1.1
// exchange at a time, strictly: an answer that could be read in two ways is an
// error, and a connection is only used again if exactly one whole answer was
// read from it (RFC 9112 §9.3, §11.2).
//
// What it will not do: choose who may use a connection or when (package
// lanes), send a request again by itself, or log: errors are returned, and
// state changes are given to the function passed to New.
package upstream

import (
	"sync"
	"time"
)

// Config is an upstream as configured. Zero durations and counts mean the
// default named beside each field, where there is one.
type Config struct {
	// Name is the upstream's key in the configuration.
	Name string
	// Targets are where the app listens, in file order. At least one.
	Targets []Address
	// Concurrency is what one target runs at once; 0: what is dealt to it.
	Concurrency int
	// Park bounds how long requests wait for a target that is down, counted
	// from when it went down. Default 10s.
	Park time.Duration
	// AbandonLimit frees an abandoned slot at the latest. Default 10m.
	AbandonLimit time.Duration
	// ConnectTimeout of one connection, the look-up of a target's name and all
	// its addresses included. Default 2s.
	ConnectTimeout time.Duration
	// KeepAliveOff: a connection carries one exchange and is closed.
	KeepAliveOff bool
	// Health is what the prober asks until a target has answered once.
	Health Health
	// LookUp finds the addresses of a target's name. Default: the system's
	// resolver.
	LookUp LookUp
	// LookUpEvery is how old a name's addresses may be that are used without
	// waiting for a look-up. Default 5s.
	LookUpEvery time.Duration
}

// Address is where a target listens, as net.Dial takes it.
type Address struct {
	// Text is the address as configured: the target's name in logs and metrics.
	Text string
	// Network is "tcp" or "unix"; Addr is host:port or a path.
	Network, Addr string
}

// Health is the request that asks a target whether it answers.
type Health struct {
	// Path is "*" (OPTIONS *, the default) or a path that is asked with GET.
	Path string
	// Host is the Host field. Default localhost.
	Host string
}

func (c Config) withDefaults() Config {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&c.Park, 10*time.Second)
	def(&c.AbandonLimit, 10*time.Minute)
	def(&c.ConnectTimeout, 2*time.Second)
	def(&c.LookUpEvery, lookUpEvery)
	if c.Health.Path == "" {
		c.Health.Path = "*"
	}
	if c.Health.Host == "" {
		c.Health.Host = "localhost"
	}
	if c.LookUp == nil {
		c.LookUp = systemLookUp
	}
	return c
}

// Change is a target going up or down, as told to the function given to New.
type Change struct {
	Target string
	Up     bool
	After  time.Duration // how long it was in the state before
	Err    error         // why it went down; nil when up
}

// Upstream is a set of targets that run the same application.
type Upstream struct {
	cfg     Config
	targets []*Target

	mu   sync.Mutex
	next int // the target at which dealing goes on
}

// New makes an upstream whose targets wait for their first answer. changed is
// called, from a goroutine of the target's, when one goes up or down; nil: nobody.
func New(cfg Config, changed func(Change)) *Upstream {
	cfg = cfg.withDefaults()
	u := &Upstream{cfg: cfg}
	for _, address := range cfg.Targets {
		u.targets = append(u.targets, newTarget(address, cfg, changed))
	}
	return u
}

// Next makes the upstream that follows u after a reload. A target that has the
// same address stays the one it is, with the new settings; Close what was not
// taken over with CloseReplaced.
func (u *Upstream) Next(cfg Config, changed func(Change)) *Upstream {
	cfg = cfg.withDefaults()
	next := &Upstream{cfg: cfg}
	for _, address := range cfg.Targets {
		target := u.targetAt(address)
		if target == nil {
			target = newTarget(address, cfg, changed)
		}
		next.targets = append(next.targets, target)
	}
	return next
}

func (u *Upstream) targetAt(address Address) *Target {
	for _, t := range u.targets {
		if t.address == address {
			return t
		}
	}
	return nil
}

// Apply puts the upstream's settings in force at the targets that it took
// over, and starts asking the new ones.
func (u *Upstream) Apply() {
	for _, t := range u.targets {
		t.cfg.Store(&u.cfg)
	}
	u.Start()
}

// CloseReplaced ends the probers of u's targets that next does not have; with
// next nil, of all.
func (u *Upstream) CloseReplaced(next *Upstream) {
	for _, t := range u.targets {
		if next == nil || next.targetAt(t.address) == nil {
			t.close()
		}
	}
}

// Name is the upstream's key in the configuration.
func (u *Upstream) Name() string { return u.cfg.Name }

// Config is the configuration in force, defaults filled in.
func (u *Upstream) Config() Config { return u.cfg }

// Targets are the upstream's targets in file order.
func (u *Upstream) Targets() []*Target { return u.targets }

// Deal gives out n slots, one target each, round the targets in file order,
// going on where the last call stopped.
func (u *Upstream) Deal(n int) []*Target {
	u.mu.Lock()
	defer u.mu.Unlock()
	dealt := make([]*Target, n)
	for i := range dealt {
		dealt[i] = u.targets[u.next]
		u.next = (u.next + 1) % len(u.targets)
	}
	return dealt
}

// Start probes every target until it has answered once. Call it once.
func (u *Upstream) Start() {
	for _, t := range u.targets {
		t.startProber()
	}
}

// Close ends the probers. Connections are their owners' to close.
func (u *Upstream) Close() { u.CloseReplaced(nil) }
