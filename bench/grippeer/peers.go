package main

import (
	"context"
	_ "embed"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"holdfast/bench/peer"
)

const (
	rowPushpin  = "pushpin"
	rowHoldfast = "holdfast"
)

var (
	//go:embed pushpin.conf
	pushpinConfig string
	//go:embed pushpin.routes
	pushpinRoutes string
	//go:embed zurl.conf
	zurlConfig string
	//go:embed holdfast.yaml
	holdfastConfig string

	pushpin = peer.Tool{Program: "pushpin", Version: "--version", Package: "pushpin zurl"}
	zurl    = peer.Tool{Program: "zurl", Version: "--version", Package: "zurl"}
)

// places are what the configurations are filled in with.
type places struct {
	Dir, Listen, Upstream, Publish string
	PublishHost, PublishPort       string
}

// enter starts a peer in front of an app of its own.
func enter(ctx context.Context, bench *peer.Bench, name string) (*site, error) {
	free, err := peer.FreeAddresses(2)
	if err != nil {
		return nil, err
	}
	upstream, err := startApp()
	if err != nil {
		return nil, err
	}
	upstream.set("", func(request) string { return plain("Grip-Channel: ready", "ready\n") })
	at := places{Dir: bench.Dir(), Listen: free[0], Publish: free[1], Upstream: upstream.addr()}
	if at.PublishHost, at.PublishPort, err = net.SplitHostPort(at.Publish); err != nil {
		return nil, err
	}
	if name == rowPushpin {
		err = startPushpin(ctx, bench, at)
	} else {
		err = startHoldfast(ctx, bench, at)
	}
	if err != nil {
		upstream.close()
		return nil, err
	}
	return &site{app: upstream, listen: at.Listen, publish: at.Publish}, nil
}

func startPushpin(ctx context.Context, bench *peer.Bench, at places) error {
	program, err := bench.Find(pushpin)
	if err != nil {
		return err
	}
	fetcher, err := bench.Find(zurl)
	if err != nil {
		return err
	}
	configs := map[string]string{}
	for name, text := range map[string]string{"pushpin.conf": pushpinConfig, "routes": pushpinRoutes, "zurl.conf": zurlConfig} {
		if configs[name], err = bench.Config(name, text, at); err != nil {
			return err
		}
	}
	if _, err := bench.Start("zurl", nil, fetcher, "--config="+configs["zurl.conf"]); err != nil {
		return err
	}
	if err := bound(ctx, at.Dir+"/zurl-in", at.Dir+"/zurl-in-stream", at.Dir+"/zurl-out"); err != nil {
		return err
	}
	process, err := bench.Start(rowPushpin, nil, program, "--config", configs["pushpin.conf"], "-m")
	if err != nil {
		return err
	}
	if _, err = process.WaitReady(ctx, "http://"+at.Publish+"/"); err != nil {
		return err
	}
	return answers(ctx, at.Listen)
}

// bound waits until sockets are there, so that who connects need not try again.
func bound(ctx context.Context, paths ...string) error {
	for _, path := range paths {
		for tries := 0; ; tries++ {
			if _, err := os.Stat(path); err == nil {
				break
			} else if tries > 200 || ctx.Err() != nil {
				return err
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	return nil
}

// answers asks until requests whose answer is an instruction are answered, ten
// in a row: before Pushpin's parts have found each other some never are.
func answers(ctx context.Context, addr string) error {
	var c *client
	good := 0
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
		c = send(addr, "GET / HTTP/1.1\r\nHost: "+addr+"\r\n\r\n").over(time.Second)
		c.close()
		if good++; !strings.HasPrefix(c.String(), "200") {
			good = 0
		}
		if good == 10 {
			return nil
		}
	}
	return fmt.Errorf("requests to %s were not answered by 200 in 20 s: %s", addr, c)
}

func startHoldfast(ctx context.Context, bench *peer.Bench, at places) error {
	program, err := bench.Holdfast(ctx)
	if err != nil {
		return err
	}
	config, err := bench.Config("holdfast.yaml", holdfastConfig, at)
	if err != nil {
		return err
	}
	process, err := bench.Start(rowHoldfast, nil, program, "serve", "-c", config)
	if err != nil {
		return err
	}
	_, err = process.WaitReady(ctx, "http://"+at.Listen+"/ready")
	return err
}
