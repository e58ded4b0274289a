package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fasthttp/websocket"
	"go.uber.org/zap"
)

// WebSockets through a stream lane, to uvicorn.

// upgradeFields are those of a client that asks for a WebSocket.
const upgradeFields = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"

// clientFrame is a short frame as a client sends it, masked.
func clientFrame(opcode byte, payload string) []byte {
	frame := []byte{0x80 | opcode, 0x80 | byte(len(payload)), 1, 2, 3, 4}
	for i := range len(payload) {
		frame = append(frame, payload[i]^frame[2+i%4])
	}
	return frame
}

// readFrame reads a short, unmasked frame and gives its payload.
func readFrame(in *bufio.Reader) (payload string, err error) {
	head := make([]byte, 2)
	if _, err := io.ReadFull(in, head); err != nil {
		return "", err
	}
	data := make([]byte, head[1])
	_, err = io.ReadFull(in, data)
	return string(data), err
}

// dialTunnel opens a WebSocket.
func dialTunnel(t *testing.T, addr, path string, protocols ...string) *websocket.Conn {
	t.Helper()
	dialer := websocket.Dialer{Subprotocols: protocols, HandshakeTimeout: 30 * time.Second}
	conn, response, err := dialer.Dial("ws://"+addr+path, nil)
	if err != nil {
		t.Fatalf("ws %s: %v %v", path, response, err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetReadDeadline(time.Now().Add(time.Minute))
	return conn
}

// wantEcho sends a message and wants it back.
func wantEcho(t *testing.T, conn *websocket.Conn, kind int, message []byte) {
	t.Helper()
	if err := conn.WriteMessage(kind, message); err != nil {
		t.Error(err)
		return
	}
	gotKind, got, err := conn.ReadMessage()
	if err != nil || gotKind != kind || !bytes.Equal(got, message) {
		t.Errorf("sent %d bytes of kind %d; %d bytes of kind %d came back (%v)", len(message), kind, len(got), gotKind, err)
	}
}

func TestTunnel_MessagesOfEveryKindPass(t *testing.T) {
	t.Parallel()
	d := startDesk(t)
	h := d.serve(t)
	conn := dialTunnel(t, addrOf(h), "/rt/echo", "none.of.ours", "desk.v1", "desk.v2")
	if got := conn.Subprotocol(); got != "desk.v2" {
		t.Errorf("speaks %q, want the app's choice", got)
	}
	wantEcho(t, conn, websocket.TextMessage, []byte("Grüße"))
	wantEcho(t, conn, websocket.BinaryMessage, []byte{0, 1, 0xff, '\r', '\n'})
	wantEcho(t, conn, websocket.TextMessage, nil)
	large := make([]byte, 1<<20)
	io.ReadFull(&pattern{n: 1 << 20}, large)
	wantEcho(t, conn, websocket.BinaryMessage, large)
	pong := make(chan string, 1)
	conn.SetPongHandler(func(data string) error { pong <- data; return nil })
	conn.WriteControl(websocket.PingMessage, []byte("ping"), time.Now().Add(time.Minute))
	wantEcho(t, conn, websocket.TextMessage, []byte("behind the ping"))
	if len(pong) == 0 || <-pong != "ping" {
		t.Error("no pong")
	}
	if n := inUse(h, "streams"); n != 1 {
		t.Errorf("%d stream slots taken by one tunnel", n)
	}
	eventually(t, "no request slot taken", func() bool { return inUse(h, "web") == 0 })
}

// openRaw sends a handshake and what is to come with it, in one write.
func openRaw(t *testing.T, addr, path, with string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: desk.example\r\n%s\r\n%s", path, upgradeFields, with); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(conn)
	head, err := readRawHead(in)
	if err != nil || head.code() != 101 {
		t.Fatalf("%v %v, want 101", head, err)
	}
	return conn, in
}

func TestTunnel_FramesThatComeWithTheRequestAreNotLost(t *testing.T) {
	t.Parallel()
	d := startDesk(t)
	h := d.serve(t)
	for range 10 {
		with := string(clientFrame(0x1, "first")) + string(clientFrame(0x1, "second"))
		_, in := openRaw(t, addrOf(h), "/rt/echo", with)
		for _, want := range []string{"first", "second"} {
			if got, err := readFrame(in); err != nil || got != want {
				t.Fatalf("%q %v, want %q", got, err, want)
			}
		}
	}
}

// coalescing is a relay that holds the app's first bytes back until its 101
// and what the app sent with it have both come, and passes them in one write.
type coalescing struct{ net.Listener }

func startCoalescing(t *testing.T, addr, until string) *coalescing {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &coalescing{ln}
	var done sync.WaitGroup
	done.Go(func() { c.serve(addr, until, &done) })
	t.Cleanup(func() { ln.Close(); done.Wait() })
	return c
}

func (c *coalescing) serve(addr, until string, done *sync.WaitGroup) {
	for {
		in, err := c.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", addr)
		if err != nil {
			in.Close()
			continue
		}
		done.Go(func() { copyThenClose(out, in) })
		done.Go(func() { copyTogether(in, out, until) })
	}
}

func copyTogether(to, from net.Conn, until string) {
	var first []byte
	for piece := make([]byte, 4<<10); ; {
		n, err := from.Read(piece)
		first = append(first, piece[:n]...)
		if err != nil || !bytes.HasPrefix(first, []byte("HTTP/1.1 101")) || bytes.Contains(first, []byte(until)) {
			break
		}
	}
	to.Write(first)
	copyThenClose(to, from)
}

func TestTunnel_FramesThatComeWithThe101AreNotLost(t *testing.T) {
	t.Parallel()
	d := startDesk(t)
	c := startCoalescing(t, d.asgi.addr, "hello there")
	h, _ := startExample(t, d.wsgi, &app{t: t, addr: c.Addr().String()})
	for range 10 {
		conn, in := openRaw(t, addrOf(h), "/rt/echo?hello=hello+there", "")
		if got, err := readFrame(in); err != nil || got != "hello there" {
			t.Fatalf("%q %v, want what came with the 101", got, err)
		}
		conn.Write(clientFrame(0x1, "and on"))
		if got, err := readFrame(in); err != nil || got != "and on" {
			t.Fatalf("%q %v", got, err)
		}
	}
}

// leftWith waits until the app's view has ended, and gives how it says that it did.
func (d *desk) leftWith(t *testing.T, n int) (last string) {
	t.Helper()
	eventually(t, fmt.Sprintf("the app's view number %d to end", n), func() bool {
		left := on("/left/", d.asgi.views())
		if len(left) == n {
			last = strings.TrimPrefix(left[n-1].Path, "/left/")
		}
		return len(left) == n
	})
	return last
}

func TestTunnel_CloseCodesPassBothWays(t *testing.T) {
	t.Parallel()
	d := startDesk(t)
	h := d.serve(t)
	for i, code := range []int{1000, 4000} {
		conn := dialTunnel(t, addrOf(h), "/rt/echo")
		wantEcho(t, conn, websocket.TextMessage, []byte("hello"))
		if err := conn.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(code, "so long")); err != nil {
			t.Fatal(err)
		}
		if _, _, err := conn.ReadMessage(); !websocket.IsCloseError(err, code) {
			t.Errorf("closed with %d, answered %v", code, err)
		}
		if got := d.leftWith(t, i+1); got != fmt.Sprint(code) {
			t.Errorf("closed with %d, the app heard %s", code, got)
		}
		conn.Close()
	}
	conn := dialTunnel(t, addrOf(h), "/rt/echo")
	if err := conn.WriteMessage(websocket.TextMessage, []byte("bye")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := conn.ReadMessage(); !websocket.IsCloseError(err, 4000) {
		t.Errorf("the app closed with 4000, the client heard %v", err)
	}
	conn.Close()
	eventually(t, "the lane empty", func() bool { return inUse(h, "streams") == 0 })
}

// What the app refuses is its answer.
func TestTunnel_ARefusedHandshakeIsTheAppsAnswer(t *testing.T) {
	t.Parallel()
	d := startDesk(t)
	h := d.serve(t)
	response, _, err := dial(t, addrOf(h), "/rt/none")
	if !errors.Is(err, websocket.ErrBadHandshake) || response.StatusCode != 403 || response.Header.Get("Holdfast-Reason") != "" {
		t.Errorf("%v %v, want the app's 403", response, err)
	}
	eventually(t, "the lane empty", func() bool { return inUse(h, "streams") == 0 })
}

// uvicorn tells its app of a reset, and not of a connection that merely ends
// without a close frame: so a reset must reach it as one.
func TestTunnel_AClientThatVanishesIsNoticedByTheApp(t *testing.T) {
	t.Parallel()
	d := startDesk(t)
	h := d.serve(t)
	// Directly first: that shows what the app can notice.
	for i, addr := range []string{d.asgi.addr, addrOf(h)} {
		conn := dialTunnel(t, addr, "/rt/echo")
		wantEcho(t, conn, websocket.TextMessage, []byte("here"))
		tcp := conn.NetConn().(*net.TCPConn)
		tcp.SetLinger(0)
		tcp.Close()
		if got := d.leftWith(t, i+1); got != "without-a-code" {
			t.Errorf("%s: the app heard %q", addr, got)
		}
	}
	eventually(t, "the lane empty", func() bool { return inUse(h, "streams") == 0 })
}

// A client that closes without a word frees its slot, whatever the app makes of it.
func TestTunnel_AClosedOneFreesItsSlot(t *testing.T) {
	t.Parallel()
	d := startDesk(t)
	h := d.serve(t)
	conn := dialTunnel(t, addrOf(h), "/rt/echo")
	wantEcho(t, conn, websocket.TextMessage, []byte("here"))
	conn.NetConn().Close()
	eventually(t, "the lane empty", func() bool { return inUse(h, "streams") == 0 })
}

func TestTunnel_AnAppThatDiesEndsItsTunnels(t *testing.T) {
	t.Parallel()
	d := startDesk(t)
	h := d.serve(t)
	conn := dialTunnel(t, addrOf(h), "/rt/echo")
	wantEcho(t, conn, websocket.TextMessage, []byte("here"))
	d.asgi.kill()
	if _, message, err := conn.ReadMessage(); err == nil {
		t.Errorf("read %q after the app's death", message)
	} else if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the client still waits")
	}
	conn.Close() // its side was its own to close
	eventually(t, "the lane empty", func() bool { return inUse(h, "streams") == 0 })
}

// switchingApp is an upstream that switches and then does what it is told with the
// bare connection.
func switchingApp(t *testing.T, then func(conn net.Conn, in *bufio.Reader)) *app {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/rt/switch" {
			return
		}
		conn, buffered, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(30 * time.Second))
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		then(conn, buffered.Reader)
	})}
	go server.Serve(ln)
	t.Cleanup(func() { server.Close() })
	return &app{t: t, addr: ln.Addr().String()}
}

func TestTunnel_AClosedSideIsPassedOnAndTheOtherStaysOpen(t *testing.T) {
	t.Parallel()
	d := startDesk(t)
	t.Run("TheClients", func(t *testing.T) {
		heard := make(chan string, 1)
		a := switchingApp(t, func(conn net.Conn, in *bufio.Reader) {
			all, err := io.ReadAll(in) // to the client's end
			heard <- fmt.Sprintf("%s %v", all, err)
			io.WriteString(conn, "and the answer comes afterwards")
		})
		h, _ := startExample(t, d.wsgi, a)
		conn, in := openRaw(t, addrOf(h), "/rt/switch", "all that I have")
		conn.(*net.TCPConn).CloseWrite()
		rest, err := io.ReadAll(in)
		if got := <-heard; got != "all that I have <nil>" || string(rest) != "and the answer comes afterwards" || err != nil {
			t.Errorf("the app heard %q, the client %q %v", got, rest, err)
		}
		eventually(t, "the lane empty", func() bool { return inUse(h, "streams") == 0 })
	})
	t.Run("TheApps", func(t *testing.T) {
		heard := make(chan string, 1)
		a := switchingApp(t, func(conn net.Conn, in *bufio.Reader) {
			io.WriteString(conn, "all that I have")
			conn.(*net.TCPConn).CloseWrite()
			all, err := io.ReadAll(in)
			heard <- fmt.Sprintf("%s %v", all, err)
		})
		h, _ := startExample(t, d.wsgi, a)
		conn, in := openRaw(t, addrOf(h), "/rt/switch", "")
		rest, err := io.ReadAll(in) // to the app's end
		io.WriteString(conn, "and the client goes on")
		conn.(*net.TCPConn).CloseWrite()
		if got := <-heard; got != "and the client goes on <nil>" || string(rest) != "all that I have" || err != nil {
			t.Errorf("the app heard %q, the client %q %v", got, rest, err)
		}
		eventually(t, "the lane empty", func() bool { return inUse(h, "streams") == 0 })
	})
}

// openTunnels opens n and waits until each has echoed.
func openTunnels(t *testing.T, addr string, n int) (conns []*websocket.Conn) {
	t.Helper()
	for range n {
		conn := dialTunnel(t, addr, "/rt/echo")
		wantEcho(t, conn, websocket.TextMessage, []byte("hello"))
		conns = append(conns, conn)
	}
	return conns
}

func TestTunnel_AnIdleOneCostsTwoDescriptorsAndLittleMemory(t *testing.T) {
	t.Parallel()
	const tunnels, target, bound = 200, 8, 16 // KiB each: what it is meant to be, and what is held here
	d := startDesk(t)
	config := writeConfig(t, `
upstreams: {asgi: {targets: ["http://%s"]}}
lanes: {streams: {upstream: asgi, kind: stream, slots: 1000}}
routes: [{match: /, lane: streams}]
`, d.asgi.addr)
	c := startBinary(t, config)
	admin := c.adminAddress()
	// What the first tunnels make grow for good is not counted.
	for _, conn := range openTunnels(t, c.addr, 50) {
		conn.Close()
	}
	eventually(t, "the lane empty", func() bool { return c.lanesOf(t)["streams"].InUse == 0 })
	settled := func() (fds int, kib int64) {
		// Garbage is not the tunnels'; the profile asks for a collection first.
		for range 2 {
			wantGet(t, onceClient(), "http://"+admin+"/debug/pprof/heap?gc=1")
		}
		eventually(t, "the connections of the questions closed", func() bool {
			fds, kib = c.descriptors(t), c.memoryKiB(t, "VmRSS")
			<-time.After(50 * time.Millisecond)
			return fds == c.descriptors(t)
		})
		return fds, kib
	}
	fds, kib := settled()
	conns := openTunnels(t, c.addr, tunnels)
	fdsAfter, kibAfter := settled()
	each := float64(kibAfter-kib) / tunnels
	t.Logf("%d idle tunnels: %d descriptors more, %.1f KiB resident each (meant: %d)", tunnels, fdsAfter-fds, each, target)
	if fdsAfter-fds != 2*tunnels {
		t.Errorf("%d descriptors for %d tunnels, want 2 each", fdsAfter-fds, tunnels)
	}
	if each > bound {
		t.Errorf("%.1f KiB each, want at most %d", each, bound)
	}
	for _, conn := range conns[:10] {
		wantEcho(t, conn, websocket.TextMessage, []byte("still here"))
	}
}

// adminAddress takes the admin listener's address from the log line "started".
func (c *command) adminAddress() string {
	_, rest, _ := strings.Cut(c.log.String(), `"admin":"`)
	address, _, _ := strings.Cut(rest, `"`)
	return address
}

func TestTunnel_ADrainEndsThemAndNamesNothingAsCut(t *testing.T) {
	t.Parallel()
	d := startDesk(t)
	c := startBinary(t, mixedDir+"/config.yaml", d.environ()...)
	conns := openTunnels(t, c.addr, 20)
	// One whose first frame came with its request.
	early, in := openRaw(t, c.addr, "/rt/echo", string(clientFrame(0x1, "early")))
	if got, err := readFrame(in); err != nil || got != "early" {
		t.Fatal(got, err)
	}
	began := time.Now()
	c.Process.Signal(syscall.SIGTERM)
	for _, conn := range conns {
		if _, _, err := conn.ReadMessage(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a tunnel in a drain: %v, want its end", err)
		}
	}
	early.SetReadDeadline(time.Now().Add(30 * time.Second))
	if _, err := in.ReadByte(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the early one: %v, want its end", err)
	}
	c.wantExit(t, exitOK)
	took := time.Since(began)
	t.Logf("21 tunnels ended and the process with them after %v", took.Round(10*time.Millisecond))
	// Spread over two seconds; the bound, at which they would be cut, is 25 s.
	if took > 10*time.Second {
		t.Errorf("took %v, want about two seconds", took)
	}
	if strings.Contains(c.log.String(), "cut at the drain") {
		t.Error("named as cut")
	}
	if n := strings.Count(c.log.String(), `"end":"done"`); n < 21 {
		t.Errorf("%d exchanges logged as done, want the 21 tunnels among them", n)
	}
}

// Another protocol is not tunnelled: its fields go no further, and the app
// answers a plain request.
func TestTunnel_OnlyWebSocketsAreTunnelled(t *testing.T) {
	t.Parallel()
	d := startDesk(t)
	h := d.serve(t)
	for name, fields := range map[string]string{
		"h2c":     "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n",
		"another": "Connection: Upgrade\r\nUpgrade: irc/6.9\r\n",
	} {
		request := "GET /rt/status HTTP/1.1\r\nHost: desk.example\r\n" + fields + "\r\n"
		if a := askRaw(t, addrOf(h), request); a.code() != 200 || !strings.Contains(a.body, `"upgrade": ""`) {
			t.Errorf("%s: %s %q, want a plain answer, without Upgrade at the app", name, a.status, a.body)
		}
		// The negative arm: uvicorn itself refuses what asks for that.
		if a := askRaw(t, d.asgi.addr, request); a.code() == 200 && strings.Contains(a.body, `"upgrade": ""`) {
			t.Errorf("%s: asked directly %q: the check cannot fail", name, a.body)
		}
	}
}

// An app that switches although nobody asked has not answered.
func TestTunnel_A101ThatNobodyAskedForIsAnUpstreamError(t *testing.T) {
	t.Parallel()
	d := startDesk(t)
	a := switchingApp(t, func(net.Conn, *bufio.Reader) {})
	h, _ := startExample(t, d.wsgi, a)
	got := askRaw(t, addrOf(h), "GET /rt/switch HTTP/1.1\r\nHost: desk.example\r\nConnection: Upgrade\r\nUpgrade: irc/6.9\r\n\r\n")
	if got.code() != 502 || !got.has("Holdfast-Reason", "upstream_error") {
		t.Errorf("%s %q, want 502 upstream_error", got.status, got.fields)
	}
	eventually(t, "the lane empty", func() bool { return inUse(h, "streams") == 0 })
}

// startReloadable serves the example from a copy that can be changed.
func startReloadable(t *testing.T, d *desk) (h *holdfast, path string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(mixedDir, "config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	env := environment(d.wsgi, d.asgi)
	load := func() (*fileConfig, error) {
		return loadConfig(path, func(name string) (string, bool) { value, ok := env[name]; return value, ok })
	}
	config, err := load()
	if err != nil {
		t.Fatal(err)
	}
	if h, err = start(config, load, zap.NewNop(), zap.NewNop()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.stopAll(5 * time.Second) })
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := h.awaitReady(ctx); err != nil || ctx.Err() != nil {
		t.Fatal("not ready:", err, ctx.Err())
	}
	return h, path
}

func TestTunnel_AReloadTouchesNone(t *testing.T) {
	t.Parallel()
	for name, change := range map[string][2]string{
		"NothingChanges":  {"", ""},
		"FewerSlots":      {"slots: 1000", "slots: 1"},
		"TheLaneIsGone":   {" streams", " renamed"},
		"TheRouteIsOther": {`"/rt/", lane: streams`, `"/rt/", lane: web`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := startDesk(t)
			h, path := startReloadable(t, d)
			conns := openTunnels(t, addrOf(h), 3)
			stream := openStream(t, addrOf(h), "/rt/gated?gate=reload", "")
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Contains(text, []byte(change[0])) {
				t.Fatalf("%q is not in config.yaml", change[0])
			}
			if change[0] != "" {
				text = bytes.ReplaceAll(text, []byte(change[0]), []byte(change[1]))
			}
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := h.reload(); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				for _, conn := range conns {
					wantEcho(t, conn, websocket.TextMessage, []byte("after the reload"))
				}
			}
			d.allow(t, "reload")
			stream.wantEvent(t, "gated", 1)
		})
	}
}
