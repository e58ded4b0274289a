package isolation

import (
	"context"
	_ "embed"
	"os"

	"holdfast/bench/peer"
)

var (
	//go:embed nginx.conf
	nginxConfig string
	//go:embed haproxy.cfg
	haproxyConfig string
	//go:embed one-lane.yaml
	oneLaneConfig string
	//go:embed two-lanes.yaml
	twoLanesConfig string
)

// addresses is what the configurations are rendered with.
type addresses struct {
	Dir     string
	Root    bool
	App     string
	Listen  string
	Publish string // Holdfast's two further listeners
	Admin   string
}

// entry is a row: its name, also for --only, and how its proxy is started; nil
// where the app is asked directly.
type entry struct {
	name  string
	start func(*trial, context.Context, addresses) (*peer.Process, error)
}

// In the order of the rounds.
var entries = []entry{
	{name: "direct"},
	{name: "nginx", start: startNginx},
	{name: "holdfast-one-lane", start: startOneLane},
	{name: "haproxy-two-backends", start: startHAProxy},
	{name: "holdfast-two-lanes", start: startTwoLanes},
}

// Rows are the names of all rows.
func Rows() []string {
	var names []string
	for _, e := range entries {
		names = append(names, e.name)
	}
	return names
}

func startNginx(t *trial, _ context.Context, at addresses) (*peer.Process, error) {
	program, err := t.bench.Find(peer.Nginx)
	if err != nil {
		return nil, err
	}
	config, err := t.bench.Config("isolation-nginx.conf", nginxConfig, at)
	if err != nil {
		return nil, err
	}
	return t.bench.Start("nginx", nil, program, "-e", "stderr", "-c", config)
}

func startHAProxy(t *trial, _ context.Context, at addresses) (*peer.Process, error) {
	program, err := t.bench.Find(peer.HAProxy)
	if err != nil {
		return nil, err
	}
	config, err := t.bench.Config("isolation-haproxy.cfg", haproxyConfig, at)
	if err != nil {
		return nil, err
	}
	return t.bench.Start("haproxy", nil, program, "-db", "-f", config)
}

func startOneLane(t *trial, ctx context.Context, at addresses) (*peer.Process, error) {
	return t.startHoldfast(ctx, "one-lane.yaml", oneLaneConfig, at)
}

func startTwoLanes(t *trial, ctx context.Context, at addresses) (*peer.Process, error) {
	return t.startHoldfast(ctx, "two-lanes.yaml", twoLanesConfig, at)
}

func (t *trial) startHoldfast(ctx context.Context, name, text string, at addresses) (*peer.Process, error) {
	program, err := t.bench.Holdfast(ctx)
	if err != nil {
		return nil, err
	}
	config, err := t.bench.Config(name, text, at)
	if err != nil {
		return nil, err
	}
	return t.bench.Start("holdfast", nil, program, "serve", "-c", config)
}

// contestant is a row with an address that is ready to be asked.
type contestant struct {
	row     *Row
	address string
}

// enter starts a row's proxy. One that cannot be started is a failed row; the
// others go on without it.
func (t *trial) enter(ctx context.Context, e entry) error {
	if !t.bench.Wants(e.name) {
		return nil
	}
	row := &Row{Name: e.name}
	t.rows = append(t.rows, row)
	if e.start == nil {
		t.contestants = append(t.contestants, contestant{row: row, address: t.app})
		return nil
	}
	free, err := peer.FreeAddresses(3)
	if err != nil {
		return err
	}
	process, err := e.start(t, ctx, addresses{
		Dir: t.bench.Dir(), Root: os.Geteuid() == 0, App: t.app,
		Listen: free[0], Publish: free[1], Admin: free[2],
	})
	if err == nil {
		_, err = process.WaitReady(ctx, "http://"+free[0]+t.settings.fast)
	}
	if err != nil {
		row.Failure = err.Error()
		t.bench.Logf("%s: %v", e.name, err)
		return ctx.Err()
	}
	t.contestants = append(t.contestants, contestant{row: row, address: free[0]})
	return nil
}
