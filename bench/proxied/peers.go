package proxied

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"os"
	"slices"

	"holdfast/bench/peer"
)

// Rows of the table, also the names that --only takes. Holdfast's local route
// is asked of the same process as its proxied one.
const (
	rowHAProxy  = "haproxy"
	rowNginx    = "nginx"
	rowCaddy    = "caddy"
	rowBare     = "bareforwarder"
	rowFasthttp = "fasthttp"
	rowHoldfast = "holdfast"
	rowLocal    = "holdfast-local"

	localPath = "/local"
)

// oneCore holds a Go program to the one core that nginx's one worker and
// HAProxy's one thread have.
var oneCore = []string{"GOMAXPROCS=1"}

var (
	//go:embed haproxy.cfg
	haproxyConfig string
	//go:embed nginx.conf
	nginxConfig string
	//go:embed Caddyfile
	caddyConfig string
	//go:embed holdfast.yaml
	holdfastConfig string
)

// addresses is what the configurations are rendered with.
type addresses struct {
	Dir         string
	Root        bool
	Listen      string
	Upstream    string
	Connections int
	Publish     string // Holdfast's two further listeners
	Admin       string
}

// contestant is a row's process, or why there is none.
type contestant struct {
	process *peer.Process
	address string
	failed  error
}

// entry says how a peer is started, and which rows it serves.
type entry struct {
	start func(*contest, context.Context, addresses) (*peer.Process, error)
	rows  []string
}

// In the order of the rounds; Holdfast's local route is the last row.
var entries = []entry{
	{start: startHAProxy, rows: []string{rowHAProxy}},
	{start: startNginx, rows: []string{rowNginx}},
	{start: startCaddy, rows: []string{rowCaddy}},
	{start: startBareforwarder, rows: []string{rowBare}},
	{start: startFasthttp, rows: []string{rowFasthttp}},
	{start: startHoldfast, rows: []string{rowHoldfast, rowLocal}},
}

// Rows are the names of all rows.
func Rows() []string {
	var names []string
	for _, e := range entries {
		names = append(names, e.rows...)
	}
	return names
}

func startHAProxy(c *contest, _ context.Context, at addresses) (*peer.Process, error) {
	program, err := c.bench.Find(peer.HAProxy)
	if err != nil {
		return nil, err
	}
	config, err := c.bench.Config("haproxy.cfg", haproxyConfig, at)
	if err != nil {
		return nil, err
	}
	return c.bench.Start(rowHAProxy, nil, program, "-db", "-f", config)
}

func startNginx(c *contest, _ context.Context, at addresses) (*peer.Process, error) {
	program, err := c.bench.Find(peer.Nginx)
	if err != nil {
		return nil, err
	}
	config, err := c.bench.Config("nginx.conf", nginxConfig, at)
	if err != nil {
		return nil, err
	}
	return c.bench.Start(rowNginx, nil, program, "-e", "stderr", "-c", config)
}

func startBareforwarder(c *contest, ctx context.Context, at addresses) (*peer.Process, error) {
	program, err := c.bench.Build(ctx, "bench/bareforwarder")
	if err != nil {
		return nil, err
	}
	return c.bench.Start(rowBare, oneCore, program, "-listen", at.Listen, "-upstream", at.Upstream)
}

func startFasthttp(c *contest, ctx context.Context, at addresses) (*peer.Process, error) {
	program, err := c.bench.Build(ctx, "bench/fasthttpforwarder")
	if err != nil {
		return nil, err
	}
	return c.bench.Start(rowFasthttp, oneCore, program, "-listen", at.Listen, "-upstream", at.Upstream, "-connections", fmt.Sprint(at.Connections))
}

func startCaddy(c *contest, ctx context.Context, at addresses) (*peer.Process, error) {
	program, err := c.bench.BuildModule(ctx, "bench/caddy")
	if err != nil {
		return nil, err
	}
	config, err := c.bench.Config("Caddyfile", caddyConfig, at)
	if err != nil {
		return nil, err
	}
	c.bench.Note(rowCaddy, program, "version")
	// It keeps what it stores under the home directory otherwise.
	env := append([]string{"XDG_DATA_HOME=" + at.Dir, "XDG_CONFIG_HOME=" + at.Dir}, oneCore...)
	return c.bench.Start(rowCaddy, env, program, "run", "--config", config, "--adapter", "caddyfile")
}

func startHoldfast(c *contest, ctx context.Context, at addresses) (*peer.Process, error) {
	program, err := c.bench.Holdfast(ctx)
	if err != nil {
		return nil, err
	}
	config, err := c.bench.Config("holdfast.yaml", holdfastConfig, at)
	if err != nil {
		return nil, err
	}
	return c.bench.Start(rowHoldfast, oneCore, program, "serve", "-c", config)
}

// enter starts a peer. One that cannot be started, or does not answer as the
// upstream itself does, has failed rows; the contest goes on without it.
func (c *contest) enter(ctx context.Context, e entry) error {
	if !slices.ContainsFunc(e.rows, c.bench.Wants) {
		return nil
	}
	free, err := peer.FreeAddresses(3)
	if err != nil {
		return err
	}
	process, err := e.start(c, ctx, addresses{
		Dir: c.bench.Dir(), Root: os.Geteuid() == 0, Listen: free[0], Upstream: c.upstream,
		Connections: c.connections, Publish: free[1], Admin: free[2],
	})
	if err == nil {
		err = c.check(ctx, process, free[0])
	}
	for _, row := range e.rows {
		c.contestants[row] = contestant{process: process, address: free[0], failed: err}
	}
	if err != nil {
		c.bench.Logf("%s: %v", e.rows[0], err)
	}
	return ctx.Err()
}

// check asks for each of the cases' answers.
func (c *contest) check(ctx context.Context, process *peer.Process, address string) error {
	for _, of := range Cases() {
		want, err := process.WaitReady(ctx, "http://"+c.upstream+of.Path)
		if err != nil {
			return err
		}
		got, err := process.WaitReady(ctx, "http://"+address+of.Path)
		if err != nil {
			return err
		}
		if !bytes.Equal(got, want) {
			return fmt.Errorf("%s is answered with %d bytes (%.40q...) in place of the upstream's %d (%.40q...)", of.Path, len(got), got, len(want), want)
		}
	}
	return nil
}
