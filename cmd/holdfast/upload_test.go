package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Bodies and answers of any size at any client's pace, on the help desk.

// pattern is n bytes that are not the same anywhere, and are read once.
type pattern struct{ at, n int64 }

func (p *pattern) Read(b []byte) (int, error) {
	if p.at == p.n {
		return 0, io.EOF
	}
	b = b[:min(int64(len(b)), p.n-p.at)]
	for i := range b {
		at := p.at + int64(i)
		b[i] = byte(at ^ at>>8 ^ at>>16)
	}
	p.at += int64(len(b))
	return len(b), nil
}

func hexSum(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }

// received is what files/raw says of a body.
type received struct {
	Bytes  int64
	SHA256 string
}

// trickle is a client that sends its upload as it likes.
type trickle struct {
	net.Conn
	whole string
	sent  int
}

// startTrickle sends a head that announces the whole body.
func startTrickle(t *testing.T, addr string, whole string) *trickle {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(time.Minute))
	fmt.Fprintf(conn, "PUT /files/raw HTTP/1.1\r\nHost: desk.example\r\nContent-Length: %d\r\n\r\n", len(whole))
	return &trickle{conn, whole, 0}
}

// send sends up to n bytes in all.
func (c *trickle) send(t *testing.T, upTo int) {
	t.Helper()
	if _, err := io.WriteString(c, c.whole[c.sent:upTo]); err != nil {
		t.Fatal(err)
	}
	c.sent = upTo
}

// wantTaken reads the answer, which says that the app has all of it.
func (c *trickle) wantTaken(t *testing.T) *http.Response {
	t.Helper()
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Error("no answer:", err)
		return &http.Response{}
	}
	body, err := io.ReadAll(response.Body)
	var got received
	sum := sha256.Sum256([]byte(c.whole))
	if err != nil || response.StatusCode != 200 || json.Unmarshal(body, &got) != nil ||
		got != (received{int64(len(c.whole)), hex.EncodeToString(sum[:])}) {
		t.Errorf("%d %q %v, want the sum of %d bytes", response.StatusCode, body, err, len(c.whole))
	}
	return response
}

// uploadText is a body of its own for each client.
func uploadText(client, n int) string {
	line := fmt.Sprintf("client %d\n", client)
	return strings.Repeat(line, n/len(line)+1)[:n]
}

func TestUpload_FiftyTricklingClientsTakeNoSlotUntilTheyAreDone(t *testing.T) {
	t.Parallel()
	const clients, pieces, piece = 50, 4, 8 << 10
	d := startDesk(t)
	h := d.serve(t)
	var all []*trickle
	for i := range clients {
		all = append(all, startTrickle(t, addrOf(h), uploadText(i, pieces*piece+1)))
	}
	for n := 1; n <= pieces; n++ {
		for _, c := range all {
			c.send(t, n*piece)
		}
		// What is counted is the room that they take, which grows ahead of them.
		eventually(t, "every byte so far to be taken in", func() bool { return h.server.Memory() >= int64(clients*n*piece) })
		lane := h.wiring.Load().lanes["upload"].Snapshot()
		if lane.InUse != 0 || lane.Waiting != 0 || len(on("/files/", d.wsgi.views())) != 0 {
			t.Errorf("with %d of %d bytes: %d slots taken, %d waiting, views %v", n*piece, pieces*piece+1, lane.InUse, lane.Waiting, d.wsgi.views())
		}
		wantGet(t, onceClient(), h.url("/about")) // and the rest of the app is not disturbed
	}
	for _, c := range all {
		c.send(t, pieces*piece+1)
	}
	for _, c := range all {
		c.wantTaken(t)
	}
	views := on("/files/", d.wsgi.views())
	if n := mostAtOnce(views); len(views) != clients || n > 2 {
		t.Errorf("%d views, %d at once; want %d on the lane's two slots", len(views), n, clients)
	}
	eventually(t, "the memory given back", func() bool { return h.server.Memory() == 0 })
	eventuallyIdle(t, h)
}

// The negative arm: eight such clients are enough for gunicorn alone.
func TestUpload_WithoutHoldfastEightTricklingClientsTakeEveryThread(t *testing.T) {
	t.Parallel()
	d := startDesk(t)
	wantGet(t, onceClient(), "http://"+d.wsgi.addr+"/about")
	var all []*trickle
	for i := range 8 {
		c := startTrickle(t, d.wsgi.addr, uploadText(i, 8<<10+1))
		c.send(t, 8<<10)
		all = append(all, c)
	}
	eventually(t, "eight views that read", func() bool { return d.wsgi.running("/files/raw") == 8 })
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if status, _, err := get(ctx, onceClient(), "http://"+d.wsgi.addr+"/about"); err == nil {
		t.Errorf("answered %d meanwhile: the check above cannot fail", status)
	}
	for _, c := range all {
		c.send(t, 8<<10+1)
		c.wantTaken(t)
	}
}

// lanesOf asks a command's /health for its lanes.
func (c *command) lanesOf(t *testing.T) map[string]laneShown {
	t.Helper()
	var report struct{ Lanes map[string]laneShown }
	if body := wantGet(t, onceClient(), "http://"+c.addr+"/health"); json.Unmarshal(body, &report) != nil || len(report.Lanes) == 0 {
		t.Fatalf("/health: %s", body)
	}
	return report.Lanes
}

func TestUpload_BodiesOfAnySizeStayOutOfMemory(t *testing.T) {
	t.Parallel()
	const up, down, bound = 64 << 20, 256 << 20, 64 << 10 // the bound in KiB
	d := startDesk(t)
	c := startBinary(t, mixedDir+"/config.yaml", d.environ()...)
	wantGet(t, onceClient(), "http://"+c.addr+"/about")
	before := c.memoryKiB(t, "VmRSS")
	for name, length := range map[string]int64{"with a length": up, "in chunks": -1} {
		sum := sha256.New()
		request, err := http.NewRequest("PUT", "http://"+c.addr+"/files/raw", io.TeeReader(&pattern{n: up}, sum))
		if err != nil {
			t.Fatal(err)
		}
		request.ContentLength = length
		response, err := onceClient().Do(request)
		if err != nil {
			t.Fatal(name, err)
		}
		var got received
		if err := json.NewDecoder(response.Body).Decode(&got); err != nil || got != (received{up, hexSum(sum)}) {
			t.Errorf("%s: the app has %v (%v), want %d bytes %s", name, got, err, up, hexSum(sum))
		}
		response.Body.Close()
	}
	afterUp := c.memoryKiB(t, "VmHWM")
	// Nothing of the answer is read until the app is done with it: all of it is
	// somewhere in between.
	response, err := onceClient().Get(fmt.Sprintf("http://%s/files/big?bytes=%d", c.addr, down))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	eventually(t, "the app to be done", func() bool { return c.lanesOf(t)["web"].InUse == 0 })
	if n := d.wsgi.running("/files/big"); n != 0 {
		t.Errorf("%d views still send: that the slot is free shows nothing", n)
	}
	n, err := io.Copy(io.Discard, response.Body)
	if n != down || err != nil {
		t.Errorf("%d bytes down, want %d (%v)", n, down, err)
	}
	most := c.memoryKiB(t, "VmHWM")
	t.Logf("resident: %d KiB before, %d KiB more at most after 2 x 64 MiB up, %d KiB more after 256 MiB down",
		before, afterUp-before, most-before)
	if most-before > bound {
		t.Errorf("grew by %d KiB, want at most %d", most-before, bound)
	}
}

func TestUpload_ASlowReaderHoldsNoSlotOnceTheAppIsDone(t *testing.T) {
	t.Parallel()
	const size = 20 << 20
	d := startDesk(t)
	h := d.serve(t)
	conn, err := net.Dial("tcp", addrOf(h))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.(*net.TCPConn).SetReadBuffer(16 << 10)
	fmt.Fprintf(conn, "GET /files/big?bytes=%d HTTP/1.1\r\nHost: desk.example\r\n\r\n", size)
	eventually(t, "the app to be done", func() bool {
		views := on("/files/big", d.wsgi.views())
		return len(views) == 1 && views[0].end != 0
	})
	eventually(t, "its slot to be free", func() bool { return inUse(h, "web") == 0 })
	// The negative arm: nobody has taken the answer meanwhile.
	spooled, _ := h.server.Spool()
	if spooled < size/2 {
		t.Errorf("%d bytes spooled of %d: the client was not slow, or the answer is in memory", spooled, size)
	}
	conn.SetDeadline(time.Now().Add(time.Minute))
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	want, got := sha256.New(), sha256.New()
	for block := bytes.Repeat(block256(), 256); ; {
		n, err := io.ReadFull(response.Body, block)
		got.Write(block[:n])
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for range size / 256 {
		want.Write(block256())
	}
	if hexSum(got) != hexSum(want) {
		t.Error("the answer is not the app's")
	}
	eventually(t, "the spool given back", func() bool { spooled, _ := h.server.Spool(); return spooled == 0 && h.server.Memory() == 0 })
}

func block256() []byte {
	b := make([]byte, 256)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}

func TestUpload_InProgressAtSIGTERMIsAnsweredWhole(t *testing.T) {
	t.Parallel()
	const size = 600 << 10 // more than is kept in memory
	d := startDesk(t)
	c := startBinary(t, mixedDir+"/config.yaml", d.environ()...)
	var all []*trickle
	for i := range 10 {
		u := startTrickle(t, c.addr, uploadText(i, size))
		u.send(t, size/2)
		all = append(all, u)
	}
	c.Process.Signal(syscall.SIGTERM)
	eventually(t, "nobody listens any more", func() bool {
		conn, err := net.Dial("tcp", c.addr)
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
	if n := len(on("/files/", d.wsgi.views())); n != 0 {
		t.Errorf("%d uploads reached the app before the signal: that they are answered shows nothing", n)
	}
	var sending sync.WaitGroup
	for _, u := range all {
		sending.Go(func() {
			u.send(t, size)
			if response := u.wantTaken(t); !response.Close {
				t.Error("an answer in a drain does not say that its connection ends")
			}
			if n, err := u.Read(make([]byte, 1)); n != 0 || err != io.EOF {
				t.Errorf("after the answer: %d bytes, %v; want the connection's end", n, err)
			}
		})
	}
	sending.Wait()
	c.wantExit(t, exitOK)
	if strings.Contains(c.log.String(), "cut at the drain") {
		t.Error("named as cut")
	}
}

func TestUpload_ARouteMayTakeMoreThanTheOthers(t *testing.T) {
	t.Parallel()
	const size = 2 << 20 // limits.body_bytes is 1 MiB, the upload routes' 1 GiB
	d := startDesk(t)
	h := d.serve(t)
	for _, chunked := range []bool{false, true} {
		for path, want := range map[string]int{"/files/raw": 200, "/api/scan": 413} {
			method := map[int]string{200: "PUT", 413: "POST"}[want]
			request, err := http.NewRequest(method, h.url(path), &pattern{n: size})
			if err != nil {
				t.Fatal(err)
			}
			if request.ContentLength = size; chunked {
				request.ContentLength = -1
			}
			response, err := onceClient().Do(request)
			if err != nil {
				t.Errorf("%s, chunked %v: %v", path, chunked, err)
				continue
			}
			body, _ := io.ReadAll(response.Body)
			response.Body.Close()
			reason := response.Header.Get("Holdfast-Reason")
			if response.StatusCode != want || want == 413 && reason != "body_too_large" {
				t.Errorf("%s, chunked %v: %d %s %s, want %d", path, chunked, response.StatusCode, reason, body, want)
			}
		}
	}
	for _, v := range d.wsgi.views() {
		if v.Path == "/api/scan" {
			t.Error("a body that is too large reached the app")
		}
	}
	// Who asks first is told before anything is sent.
	for path, want := range map[string]string{"/files/raw": "HTTP/1.1 100 ", "/about": "HTTP/1.1 413 "} {
		conn, err := net.Dial("tcp", addrOf(h))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(30 * time.Second))
		fmt.Fprintf(conn, "PUT %s HTTP/1.1\r\nHost: desk.example\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", path, size)
		line, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil || !strings.HasPrefix(line, want) {
			t.Errorf("%s: %q %v, want %s", path, line, err, want)
		}
	}
}
