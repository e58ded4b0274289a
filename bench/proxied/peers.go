package proxied

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"os"

	"holdfast/bench/peer"
)

// Rows of the table, also the names that --only takes. Holdfast's local route
// is asked of the same process as its proxied one.
const (
	rowHAProxy  = "haproxy"
	rowNginx    = "nginx"
	rowBare     = "bareforwarder"
	rowHoldfast = "holdfast"
	rowLocal    = "holdfast-local"
)

// oneCore holds a Go program to the one core that nginx's one worker and
// HAProxy's one thread have.
var oneCore = []string{"GOMAXPROCS=1"}

var (
	//go:embed haproxy.cfg
	haproxyConfig string
	//go:embed nginx.conf
	nginxConfig string
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

// contestant is a row with a running process.
type contestant struct {
	row     *Row
	process *peer.Process
	url     string
}

// entry says how a peer is started, and which rows it serves under which path.
type entry struct {
	start func(*contest, context.Context, addresses) (*peer.Process, error)
	rows  []path
}

type path struct{ row, path string }

// In the order of the rounds.
var entries = []entry{
	{start: startHAProxy, rows: []path{{rowHAProxy, "/"}}},
	{start: startNginx, rows: []path{{rowNginx, "/"}}},
	{start: startBareforwarder, rows: []path{{rowBare, "/"}}},
	{start: startHoldfast, rows: []path{{rowHoldfast, "/"}, {rowLocal, "/local"}}},
}

// Rows are the names of all rows.
func Rows() []string {
	var names []string
	for _, e := range entries {
		for _, r := range e.rows {
			names = append(names, r.row)
		}
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

// enter starts a peer and appends its rows, each of which must answer as the
// upstream itself does. A peer that cannot be started has failed rows; the
// contest goes on without it.
func (c *contest) enter(ctx context.Context, e entry) error {
	var rows []path
	for _, r := range e.rows {
		if c.bench.Wants(r.row) {
			rows = append(rows, r)
		}
	}
	if len(rows) == 0 {
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
	for _, r := range rows {
		row := &Row{Peer: r.row}
		c.rows = append(c.rows, row)
		url := "http://" + free[0] + r.path
		rowErr := err
		if rowErr == nil {
			rowErr = c.check(ctx, process, url)
		}
		if rowErr != nil {
			row.Failure = rowErr.Error()
			c.bench.Logf("%s: %v", r.row, rowErr)
			continue
		}
		c.contestants = append(c.contestants, contestant{row: row, process: process, url: url})
	}
	return ctx.Err()
}

func (c *contest) check(ctx context.Context, process *peer.Process, url string) error {
	body, err := process.WaitReady(ctx, url)
	if err != nil {
		return err
	}
	if !bytes.Equal(body, c.body) {
		return fmt.Errorf("answers %q instead of the upstream's %q", body, c.body)
	}
	return nil
}
