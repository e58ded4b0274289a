package bus

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"time"

	"holdfast/bench/peer"
)

//go:embed node.yaml
var nodeConfig string

// oneCore: each Go process that is measured, or that answers one, has one.
var oneCore = []string{"GOMAXPROCS=1"}

// node is one Holdfast.
type node struct {
	name             string // and its clients' group
	clients, publish string // addresses
	process          *peer.Process
}

// startNodes starts the app, prepares the bus and starts the nodes, each when
// the one before it is ready.
func (s *session) startNodes(ctx context.Context, n int) error {
	program, err := s.bench.Holdfast(ctx)
	if err != nil {
		return err
	}
	app, err := s.startApp(ctx)
	if err != nil {
		return err
	}
	if err := s.prepare(ctx, program); err != nil {
		return err
	}
	free, err := peer.FreeAddresses(2 * n)
	if err != nil {
		return err
	}
	for i := range n {
		if err := s.startNode(ctx, program, node{name: fmt.Sprintf("node-%d", i+1), clients: free[2*i], publish: free[2*i+1]}, app); err != nil {
			return err
		}
	}
	return nil
}

// startApp starts the null app and gives its address.
func (s *session) startApp(ctx context.Context) (string, error) {
	program, err := s.bench.Build(ctx, "bench/holdapp")
	if err != nil {
		return "", err
	}
	free, err := peer.FreeAddresses(1)
	if err != nil {
		return "", err
	}
	if s.app, err = s.bench.Start("holdapp", oneCore, program, "-listen", free[0]); err != nil {
		return "", err
	}
	_, err = s.app.WaitReady(ctx, "http://"+free[0]+"/")
	return free[0], err
}

func (s *session) startNode(ctx context.Context, program string, n node, app string) error {
	config, err := s.bench.Config(n.name+".yaml", nodeConfig, map[string]string{"Name": n.name, "Clients": n.clients, "Publish": n.publish, "Bus": s.engine.url, "App": app})
	if err != nil {
		return err
	}
	if n.process, err = s.bench.Start("holdfast "+n.name, oneCore, program, "serve", "-c", config); err != nil {
		return err
	}
	s.nodes = append(s.nodes, &n)
	_, err = n.process.WaitReady(ctx, "http://"+n.clients+"/ready")
	return err
}

// stop ends the nodes and their app.
func (s *session) stop() {
	for _, n := range slices.Backward(s.nodes) {
		n.process.Stop()
	}
	if s.app != nil {
		s.app.Stop()
	}
}

// prepare is holdfast bus init, again until the engine is there for it.
func (s *session) prepare(ctx context.Context, program string) error {
	if s.engine.process == nil {
		return nil
	}
	for end := time.Now().Add(readyWithin); ; time.Sleep(50 * time.Millisecond) {
		out, err := exec.CommandContext(ctx, program, "bus", "init", "--url", s.engine.url).CombinedOutput()
		if err == nil || ctx.Err() != nil || time.Now().After(end) {
			if err != nil {
				err = fmt.Errorf("holdfast bus init: %w: %.400s", err, out)
			}
			return errors.Join(err, s.engine.process.Running())
		}
	}
}
