package proxy_test

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"holdfast/lanes"
	"holdfast/proxy"
)

// upload is n bytes that say where they are.
func upload(n int) []byte {
	body := make([]byte, 0, n+16)
	for i := 0; len(body) < n; i++ {
		body = fmt.Appendf(body, "%07d\n", i)
	}
	return body[:n]
}

func sendUpload(t *testing.T, addr string, body []byte) *wireClient {
	t.Helper()
	c := dialWire(t, addr)
	c.Write(append([]byte(fmt.Sprintf("POST /up HTTP/1.1\r\nHost: a.test\r\nContent-Length: %d\r\n\r\n", len(body))), body...), 0)
	return c
}

// Uploads for which there is room in neither memory nor spool wait, take no
// slot meanwhile, and arrive whole, one after the other.
func TestUpload_WithoutRoomEachArrivesWhole(t *testing.T) {
	t.Parallel()
	const clients = 6
	body := upload(600 << 10)
	up := newRecordingUpstream(t)
	lane := startLane(t, up.Addr(), lanes.Config{Name: "web", Slots: 2, Queue: clients})
	addr := startServer(t, proxy.Config{Memory: 1 << 20}, []proxy.Route{{Match: "/", Lane: lane}})
	var senders []*wireClient
	for range clients {
		senders = append(senders, sendUpload(t, addr, body))
	}
	for i, c := range senders {
		answer, err := c.Read("POST")
		if err != nil || answer.status != 200 {
			t.Fatalf("upload %d is answered %d, %v", i, answer.status, err)
		}
	}
	for i, r := range up.Wait(t, 0, clients) {
		if !bytes.Equal(r.Body, body) {
			t.Errorf("upload %d arrives with %d bytes, or others", i, len(r.Body))
		}
	}
}

// A body over 256 KiB is in a file that has no name, and its room is given
// back with its answer.
func TestUpload_GoesToAFileWithoutAName(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	up := newRecordingUpstream(t)
	lane := startLane(t, up.Addr(), lanes.Config{Name: "web", Slots: 1, Queue: 4})
	server, addr := startDrainable(t, proxy.Config{SpoolDir: dir, SpoolBytes: 64 << 20}, []proxy.Route{{Match: "/", Lane: lane}})
	body := upload(3 << 20)
	half := dialWire(t, addr)
	half.Write(append([]byte(fmt.Sprintf("POST /up HTTP/1.1\r\nHost: a.test\r\nContent-Length: %d\r\n\r\n", len(body))), body[:2<<20]...), 0)
	until(t, "half of it is in the spool", func() bool { n, _ := server.Spool(); return n >= 1<<20 })
	if names, err := os.ReadDir(dir); err != nil || len(names) > 0 {
		t.Errorf("the spool's folder has %v, %v", names, err)
	}
	if s := lane.Snapshot(); s.InUse != 0 {
		t.Errorf("%d slots are taken before the body is complete", s.InUse)
	}
	half.Write(body[2<<20:], 0)
	if answer, err := half.Read("POST"); err != nil || answer.status != 200 {
		t.Fatalf("answered %d, %v", answer.status, err)
	}
	if got := up.Wait(t, 0, 1)[0].Body; !bytes.Equal(got, body) {
		t.Errorf("%d bytes arrive, or others", len(got))
	}
	until(t, "its room is given back", func() bool { n, _ := server.Spool(); return n == 0 && server.Memory() == 0 })
}

// A spool that cannot be written is no reason to refuse or to cut.
func TestUpload_WithoutASpoolIsKeptInMemory(t *testing.T) {
	t.Parallel()
	up := newRecordingUpstream(t)
	lane := startLane(t, up.Addr(), lanes.Config{Name: "web", Slots: 1, Queue: 4})
	server, addr := startDrainable(t, proxy.Config{SpoolDir: t.TempDir() + "/missing", SpoolBytes: 64 << 20}, []proxy.Route{{Match: "/", Lane: lane}})
	body := upload(1 << 20)
	if answer, err := sendUpload(t, addr, body).Read("POST"); err != nil || answer.status != 200 {
		t.Fatalf("answered %d, %v", answer.status, err)
	}
	if got := up.Wait(t, 0, 1)[0].Body; !bytes.Equal(got, body) {
		t.Errorf("%d bytes arrive, or others", len(got))
	}
	if _, fails := server.Spool(); fails == 0 {
		t.Error("that there was no file is not counted")
	}
	until(t, "its room is given back", func() bool { return server.Memory() == 0 })
}
