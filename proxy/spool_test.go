package proxy_test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"

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
