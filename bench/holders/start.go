package holders

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"holdfast/bench/peer"
)

func (s *Server) startHoldfast(ctx context.Context, bench *peer.Bench, at places) error {
	program, err := bench.Holdfast(ctx)
	if err != nil {
		return err
	}
	config, err := bench.Config(inDir(bench, at, "holdfast.yaml"), holdfastConfig, at)
	if err != nil {
		return err
	}
	process, err := s.add(bench, oneCore, program, "serve", "-c", config)
	if err != nil {
		return err
	}
	s.stream, s.socket = "/m0/stream?c=%d", "/m0/socket?c=%d"
	if at.AppPath != "" {
		s.stream = at.AppPath + "?c=%d"
	}
	s.publish = func(channel int, data string) (string, string) {
		return fmt.Sprintf("http://%s/publish/%d", at.Publish, channel), data
	}
	_, err = process.WaitReady(ctx, "http://"+at.Clients+"/ready")
	return err
}

func (s *Server) startNchan(ctx context.Context, bench *peer.Bench, at places) error {
	program, err := bench.FindNchan()
	if err != nil {
		return err
	}
	config, err := bench.Config(inDir(bench, at, "nchan.conf"), nchanConfig, at)
	if err != nil {
		return err
	}
	process, err := s.add(bench, nil, program, "-e", "stderr", "-c", config)
	if err != nil {
		return err
	}
	s.stream, s.socket = "/stream?c=%d", "/socket?c=%d"
	s.publish = func(channel int, data string) (string, string) {
		return fmt.Sprintf("http://%s/publish?c=%d", at.Publish, channel), data
	}
	_, err = process.WaitReady(ctx, "http://"+at.Clients+"/")
	return err
}

func (s *Server) startBarewrites(ctx context.Context, bench *peer.Bench, at places) error {
	program, err := bench.Build(ctx, "bench/barewrites")
	if err != nil {
		return err
	}
	if _, err = s.add(bench, oneCore, program, "-listen", at.Clients, "-publish", at.Publish); err != nil {
		return err
	}
	s.stream, s.socket = "/stream?c=%d", "/stream?c=%d"
	s.publish = func(channel int, data string) (string, string) {
		return fmt.Sprintf("http://%s/publish?c=%d", at.Publish, channel), data
	}
	return nil
}

func (s *Server) startPushpin(ctx context.Context, bench *peer.Bench, socket bool, at places) error {
	program, err := bench.Find(peer.Pushpin)
	if err != nil {
		return err
	}
	fetcher, err := bench.Find(peer.Zurl)
	if err != nil {
		return err
	}
	configs := map[string]string{}
	for name, text := range map[string]string{"pushpin.conf": pushpinConfig, "routes": pushpinRoutes, "zurl.conf": zurlConfig} {
		if configs[name], err = bench.Config(inDir(bench, at, name), text, at); err != nil {
			return err
		}
	}
	// At its usual level it logs each request.
	if _, err := s.add(bench, nil, fetcher, "--loglevel=1", "--config="+configs["zurl.conf"]); err != nil {
		return err
	}
	if err := bound(ctx, at.Dir+"/zurl-in", at.Dir+"/zurl-in-stream", at.Dir+"/zurl-out"); err != nil {
		return err
	}
	process, err := s.add(bench, nil, program, "--config", configs["pushpin.conf"], "-m")
	if err != nil {
		return err
	}
	s.stream, s.socket = "/grip/stream?c=%d", "/grip/socket?c=%d"
	if at.AppPath != "" {
		s.stream = at.AppPath + "?c=%d"
	}
	s.publish = func(channel int, data string) (string, string) {
		return "http://" + at.Publish + "/publish/", gripItem(channel, data, socket)
	}
	_, err = process.WaitReady(ctx, "http://"+at.Publish+"/")
	return err
}

// inDir is a file's name in the server's own directory, as Bench.Config takes it.
func inDir(bench *peer.Bench, at places, name string) string {
	relative, err := filepath.Rel(bench.Dir(), filepath.Join(at.Dir, name))
	if err != nil {
		return name
	}
	return relative
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

// holdsTen opens holds one after the other until ten in a row were held: before
// Pushpin's parts have found each other some never are.
func (s *Server) holdsTen(ctx context.Context, socket bool) error {
	good, last := 0, errNotHeld
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end) && ctx.Err() == nil; {
		if last = s.holdOne(socket); last != nil {
			good = 0
			time.Sleep(50 * time.Millisecond)
		} else if good++; good == 10 {
			return nil
		}
	}
	return fmt.Errorf("no ten holds in a row within 20 s: %w", last)
}

func (s *Server) holdOne(socket bool) error {
	conn, err := net.Dial("tcp", s.Clients)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(2 * time.Second))
	fields := "Accept: text/event-stream\r\n"
	if socket {
		fields = "Connection: Upgrade\r\nUpgrade: websocket\r\nOrigin: http://" + s.Clients +
			"\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
	}
	// A channel that no client of a benchmark is at.
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\n%s\r\n", strings.Replace(s.Path(socket), "%d", "999999", 1), s.Clients, fields)
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return err
	}
	if !strings.HasPrefix(line, "HTTP/1.1 200") && !strings.HasPrefix(line, "HTTP/1.1 101") {
		return fmt.Errorf("%w: %q", errNotHeld, strings.TrimSpace(line))
	}
	return nil
}
