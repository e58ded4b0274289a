// Package wirepeers sends the corpus of raw requests (testdata/wire) to nginx,
// HAProxy and Holdfast, each in front of a recording upstream of its own, and
// counts what each lets through that must be refused, and refuses that should
// pass. Nothing is timed.
//
// The peers run with their defaults, but for limits, which are set to Holdfast's
// so that size decides nothing; cases that are refused for size are left out. A
// request that never becomes whole is judged when nothing has moved for a
// moment: nobody may have forwarded any of it by then.
package wirepeers

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"holdfast/bench/peer"
)

const (
	rowNginx    = "nginx"
	rowHAProxy  = "haproxy"
	rowHoldfast = "holdfast"

	quiet   = 300 * time.Millisecond // without a byte from the peer: it has said all
	longest = 5 * time.Second        // one case
)

var (
	//go:embed nginx.conf
	nginxConfig string
	//go:embed haproxy.cfg
	haproxyConfig string
	//go:embed holdfast.yaml
	holdfastConfig string
)

// Benchmark is this comparison with its flags.
type Benchmark struct{ names bool }

// Flags declares what can be set.
func (b *Benchmark) Flags(flags *flag.FlagSet) {
	flags.BoolVar(&b.names, "names", false, "wirepeers: print the `cases` too in which a peer differs")
}

// Rows are the names of all rows.
func Rows() []string { return []string{rowNginx, rowHAProxy, rowHoldfast} }

type addresses struct {
	Dir      string
	Root     bool
	Listen   string
	Upstream string
}

// Run returns an error if the corpus cannot be read; what befalls one peer is
// in its row.
func (b *Benchmark) Run(ctx context.Context, bench *peer.Bench) (*Report, error) {
	cases, err := readCorpus(bench.Path("testdata/wire/requests.txt"))
	if err != nil {
		return nil, err
	}
	report := &Report{names: b.names}
	for _, c := range cases {
		switch {
		case c.limit:
			report.LeftOut++
		case c.refused:
			report.MustRefuse++
		default:
			report.ShouldPass++
		}
	}
	var all sync.WaitGroup
	for _, name := range Rows() {
		if !bench.Wants(name) {
			continue
		}
		row := &Row{Peer: name}
		report.Rows = append(report.Rows, row)
		contest, err := enter(ctx, bench, name)
		if err != nil {
			row.Failure = err.Error()
			continue
		}
		defer contest.upstream.close()
		all.Go(func() { contest.run(ctx, row, cases) })
	}
	all.Wait()
	return report, ctx.Err()
}

// contestant is a peer that runs, in front of an upstream of its own.
type contestant struct {
	upstream *recorder
	addr     string
}

func enter(ctx context.Context, bench *peer.Bench, name string) (*contestant, error) {
	free, err := peer.FreeAddresses(1)
	if err != nil {
		return nil, err
	}
	upstream, err := startRecorder()
	if err != nil {
		return nil, err
	}
	at := addresses{Dir: bench.Dir(), Root: os.Geteuid() == 0, Listen: free[0], Upstream: upstream.addr()}
	process, err := start(ctx, bench, name, at)
	if err == nil {
		_, err = process.WaitReady(ctx, "http://"+at.Listen+"/ready")
	}
	if err != nil {
		upstream.close()
		return nil, err
	}
	return &contestant{upstream, at.Listen}, nil
}

// run sends every case, one after the other, so that what the upstream sees is
// the case's.
func (c *contestant) run(ctx context.Context, row *Row, cases []*testCase) {
	for _, each := range cases {
		if each.limit {
			continue
		}
		c.upstream.take()
		if err := each.send(c.addr); err != nil {
			row.Failure = err.Error()
		}
		if row.Failure != "" || ctx.Err() != nil {
			return
		}
		row.judge(each, c.upstream.take())
	}
}

func start(ctx context.Context, bench *peer.Bench, name string, at addresses) (*peer.Process, error) {
	switch name {
	case rowNginx:
		program, err := bench.Find(peer.Nginx)
		if err != nil {
			return nil, err
		}
		config, err := bench.Config("wirepeers-nginx.conf", nginxConfig, at)
		if err != nil {
			return nil, err
		}
		return bench.Start(name, nil, program, "-e", "stderr", "-c", config)
	case rowHAProxy:
		program, err := bench.Find(peer.HAProxy)
		if err != nil {
			return nil, err
		}
		config, err := bench.Config("wirepeers-haproxy.cfg", haproxyConfig, at)
		if err != nil {
			return nil, err
		}
		return bench.Start(name, nil, program, "-db", "-f", config)
	}
	program, err := bench.Holdfast(ctx)
	if err != nil {
		return nil, err
	}
	config, err := bench.Config("wirepeers-holdfast.yaml", holdfastConfig, at)
	if err != nil {
		return nil, err
	}
	return bench.Start(name, nil, program, "serve", "-c", config)
}

// send plays the client: it writes, and reads until the peer has said all.
func (c *testCase) send(addr string) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetWriteDeadline(time.Now().Add(longest))
	written := make(chan struct{})
	go c.write(conn.(*net.TCPConn), written)
	scratch := make([]byte, 64<<10)
	for end := time.Now().Add(longest); time.Now().Before(end); {
		conn.SetReadDeadline(time.Now().Add(quiet))
		_, err := conn.Read(scratch)
		var timeout net.Error
		switch {
		case errors.As(err, &timeout) && timeout.Timeout():
			select {
			case <-written:
				return nil
			default: // a large one is under way
			}
		case err == io.EOF, err != nil:
			return nil
		}
	}
	return nil
}

func (c *testCase) write(conn *net.TCPConn, written chan<- struct{}) {
	defer close(written)
	if _, err := conn.Write(c.sent); err == nil && c.end {
		conn.CloseWrite()
	}
}
