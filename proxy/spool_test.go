package proxy_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"holdfast/lanes"
	"holdfast/proxy"
)

// spoolSite is a server with one slot, in front of an app whose answer is
// large and comes as fast as it is taken.
type spoolSite struct {
	server *proxy.Server
	lane   *lanes.Lane
	addr   string
	answer []byte
}

func startSpool(t *testing.T, cfg proxy.Config, size int) *spoolSite {
	t.Helper()
	s := &spoolSite{answer: upload(size)}
	up := newScriptedUpstream(t, func(conn net.Conn, _ recordedRequest) bool {
		fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", size)
		_, err := conn.Write(s.answer)
		return err == nil
	})
	s.lane = startLane(t, up.Addr(), lanes.Config{Name: "web", Slots: 1, Queue: 8})
	s.server, s.addr = startDrainable(t, cfg, []proxy.Route{{Match: "/", Lane: s.lane}})
	return s
}

// wantWhole reads the answer and sees that everything is given back.
func (s *spoolSite) wantWhole(t *testing.T, c *wireClient) {
	t.Helper()
	answer, err := c.Read("GET")
	if err != nil || answer.status != 200 || !bytes.Equal(answer.body, s.answer) {
		t.Fatalf("%d with %d bytes, %v; want 200 with all %d", answer.status, len(answer.body), err, len(s.answer))
	}
	until(t, "its room is given back", func() bool {
		n, _ := s.server.Spool()
		return n == 0 && s.server.Memory() == 0 && s.lane.Snapshot().InUse == 0
	})
}

func TestSpool_TakesWhatItsClientDoesNot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := startSpool(t, proxy.Config{SpoolDir: dir, SpoolBytes: 64 << 20}, 20<<20)
	c := say(t, s.addr, get("/large"))
	until(t, "the app is done", func() bool { n, _ := s.server.Spool(); return n > 8<<20 && s.lane.Snapshot().InUse == 0 })
	if n := s.server.Memory(); n > 512<<10 {
		t.Errorf("%d bytes are in memory, which is for the first 256 KiB", n)
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) > 0 {
		t.Errorf("the spool's folder has %v, %v", names, err)
	}
	s.wantWhole(t, c)
}

// While a part of the answer is in the file, what comes later goes behind it,
// though its client has made room in memory.
func TestSpool_WhatComesLaterGoesBehindIt(t *testing.T) {
	t.Parallel()
	answer := upload(17 << 20)
	first, later := answer[:16<<20], answer[16<<20:]
	sent, goOn := make(chan struct{}, 1), make(chan struct{})
	up := newScriptedUpstream(t, func(conn net.Conn, _ recordedRequest) bool {
		fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", len(answer))
		conn.Write(first)
		sent <- struct{}{}
		<-goOn
		_, err := conn.Write(later)
		return err == nil
	})
	lane := startLane(t, up.Addr(), lanes.Config{Name: "web", Slots: 1, Queue: 8})
	server, addr := startDrainable(t, proxy.Config{SpoolDir: t.TempDir(), SpoolBytes: 64 << 20}, []proxy.Route{{Match: "/", Lane: lane}})
	c := say(t, addr, get("/large"))
	resume := sync.OnceFunc(func() { close(goOn) })
	t.Cleanup(resume)
	take(t, "the app has sent the first part", sent)
	until(t, "a part of it is spooled", func() bool { n, _ := server.Spool(); return n > 4<<20 })
	got := c.readUntil(t, func() bool { return server.Memory() == 0 })
	if len(got) > 12<<20 {
		t.Fatalf("%d bytes were read until what is in memory was taken: too little is left in the file to see the order", len(got))
	}
	resume()
	c.conn.SetDeadline(time.Now().Add(patience))
	rest, err := io.ReadAll(io.LimitReader(c.reader, int64(len(answer)-len(got))))
	if got = append(got, rest...); err != nil || !bytes.Equal(got, answer) {
		t.Errorf("%d bytes in another order than the app's, or not all, %v; want %d", len(got), err, len(answer))
	}
}

// readUntil reads the head of an answer, then its body until it is enough.
func (c *wireClient) readUntil(t *testing.T, enough func() bool) (body []byte) {
	t.Helper()
	for line := ""; line != "\r\n"; {
		var err error
		if line, err = c.reader.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	for piece := make([]byte, 64<<10); !enough(); {
		n, err := c.reader.Read(piece)
		if body = append(body, piece[:n]...); err != nil {
			t.Fatal(err)
		}
	}
	return body
}

// A spool that has no more room, by its limit or on its disk, makes the
// answer go at its client's pace. Nothing is cut.
func TestSpool_FullIsSlowerAndNothingElse(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]proxy.Config{
		"Limit":    {Memory: 1 << 20, SpoolDir: t.TempDir(), SpoolBytes: 1 << 20},
		"Disk":     {Memory: 1 << 20, SpoolDir: smallDisk(t, "rw"), SpoolBytes: 64 << 20},
		"ReadOnly": {Memory: 1 << 20, SpoolDir: smallDisk(t, "ro"), SpoolBytes: 64 << 20},
		"Missing":  {Memory: 1 << 20, SpoolDir: t.TempDir() + "/missing", SpoolBytes: 64 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if cfg.SpoolDir == "" {
				t.Skip("a file system of a megabyte cannot be mounted here")
			}
			s := startSpool(t, cfg, 20<<20)
			c := say(t, s.addr, get("/large"))
			until(t, "there is no room", func() bool { _, fails := s.server.Spool(); return fails > 0 })
			if n := s.lane.Snapshot().InUse; n != 1 {
				t.Errorf("%d slots are taken while the answer waits for its client", n)
			}
			if n := s.server.Memory(); n > 1<<20+256<<10 {
				t.Errorf("%d bytes are in memory, of which there is 1 MiB", n)
			}
			s.wantWhole(t, c)
			if names, _ := os.ReadDir(cfg.SpoolDir); len(names) > 0 {
				t.Errorf("the spool's folder has %v", names)
			}
			s.wantWhole(t, say(t, s.addr, get("/again")))
		})
	}
}

// smallDisk is a file system of one megabyte, rw or ro; "" where none can be mounted.
func smallDisk(t *testing.T, mode string) string {
	dir := t.TempDir()
	if exec.Command("mount", "-t", "tmpfs", "-o", "size=1m,"+mode, "tmpfs", dir).Run() != nil {
		return ""
	}
	t.Cleanup(func() { exec.Command("umount", "-l", dir).Run() })
	return dir
}
