package proxy_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"holdfast/lanes"
	"holdfast/proxy"
)

// ---- What is said of the way.

func TestTLS_TheAppIsToldThatItsClientCameByHTTPS(t *testing.T) {
	up := newRecordingUpstream(t)
	lane := startLane(t, up.Addr(), lanes.Config{Name: "web", Slots: 1})
	for name, c := range map[string]struct{ fields, want string }{
		"Direct":   {"", "https"},
		"Spoofed":  {"X-Forwarded-Proto: http\r\n", "https"},
		"OurProxy": {"X-Forwarded-Proto: http\r\n", "http"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := proxy.Config{}
			if name == "OurProxy" {
				cfg.Trusted = trust("127.0.0.0/8")
			}
			_, addr := startSecured(t, cfg, []proxy.Route{{Match: "/", Lane: lane}})
			before := up.Count()
			client := saySecured(t, addr, "GET / HTTP/1.1\r\nHost: a.test\r\n"+c.fields+"\r\n")
			client.wantAnswer(t, "GET", 200, "*")
			fields := up.Since(before)[0].Fields
			if got := strings.Join(fieldValues(fields, "X-Forwarded-Proto"), "|"); got != c.want {
				t.Errorf("X-Forwarded-Proto is %q, want %q", got, c.want)
			}
			if got := strings.Join(fieldValues(fields, "X-Forwarded-For"), "|"); got != "127.0.0.1" {
				t.Errorf("X-Forwarded-For is %q", got)
			}
		})
	}
}

func TestTLS_ATargetOfTheOtherSchemeIsMisdirected(t *testing.T) {
	routes := []proxy.Route{{Match: "/", Respond: &proxy.Respond{Status: 200, Body: []byte("local")}}}
	_, addr := startSecured(t, proxy.Config{}, routes)
	c := saySecured(t, addr, "GET https://a.test/x HTTP/1.1\r\nHost: a.test\r\n\r\n")
	c.wantAnswer(t, "GET", 200, "local")
	c.say(t, "GET http://a.test/x HTTP/1.1\r\nHost: a.test\r\n\r\n")
	c.wantReason(t, 421, "misdirected", "http URI")
	c.wantCleanEnd(t)
	plain := say(t, startServer(t, proxy.Config{}, routes), "GET https://a.test/x HTTP/1.1\r\nHost: a.test\r\n\r\n")
	plain.wantReason(t, 421, "misdirected", "https URI")
}

// ---- The handshake.

func TestTLS_PlainHTTPIsToldToUseHTTPSAndNothingIsLoggedOfIt(t *testing.T) {
	core, logs := observer.New(zapcore.InfoLevel)
	server, addr := startSecuredOver(t, "tcp", "127.0.0.1:0", proxy.Config{}, []proxy.Route{{Match: "/", Respond: &proxy.Respond{Status: 200}}}, zap.New(core))
	for _, text := range []string{get("/"), "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("x", 100000), "DELETE /x HTTP/1.1\r\n"} {
		c := say(t, addr, text)
		c.wantReason(t, 400, "bad_request", "https://")
		c.wantEnd(t, false)
	}
	for _, text := range []string{"SSH-2.0-x\r\n", "\x16\x03\x01\x00\x05hello", strings.Repeat("\x00", 64), "\x80\x2e\x01\x00\x02"} {
		c := say(t, addr, text)
		if rest, err := io.ReadAll(c.reader); bytes.Contains(rest, []byte("HTTP")) || err != nil && !isReset(err) {
			t.Errorf("%q is answered %q, %v", text, rest, err)
		}
	}
	until(t, "no connection is left", func() bool { return server.Connections() == 0 })
	if logs.Len() > 0 {
		t.Errorf("logged: %v", logs.All())
	}
}

func TestTLS_SilentHandshakesKeepNobodyOut(t *testing.T) {
	server, addr := startSecured(t, proxy.Config{}, []proxy.Route{{Match: "/", Respond: &proxy.Respond{Status: 200, Body: []byte("ok")}}})
	for range 200 {
		dialWire(t, addr)
	}
	c := saySecured(t, addr, get("/"))
	c.wantAnswer(t, "GET", 200, "ok")
	until(t, "all are there", func() bool { return server.Connections() == 201 })
}

func TestTLS_SilentHandshakesMakeRoom(t *testing.T) {
	server, addr := startSecured(t, proxy.Config{Connections: 4, HeaderTimeout: time.Hour}, []proxy.Route{{Match: "/", Respond: &proxy.Respond{Status: 200, Body: []byte("ok")}}})
	for range 4 {
		dialWire(t, addr)
	}
	until(t, "all are there", func() bool { return server.Connections() == 4 })
	c := saySecured(t, addr, get("/"))
	c.wantAnswer(t, "GET", 200, "ok") // one of them was ended for it
	if n := server.Connections(); n > 4 {
		t.Errorf("%d connections are open", n)
	}
}

func TestTLS_AHandshakeIsBoundedByHeaderTimeout(t *testing.T) {
	hour := proxy.Config{HeaderTimeout: 100 * time.Millisecond, IdleTimeout: time.Hour, BodyTimeout: time.Hour}
	_, addr := startSecured(t, hour, []proxy.Route{{Match: "/", Respond: &proxy.Respond{Status: 200}}})
	for name, sent := range map[string]string{"Silent": "", "Partial": "\x16\x03\x01\x02\x00\x01"} {
		t.Run(name, func(t *testing.T) {
			c := say(t, addr, sent)
			if rest, err := io.ReadAll(c.reader); len(rest) > 0 || err != nil && !isReset(err) {
				t.Errorf("it ends with %q, %v", rest, err)
			}
		})
	}
	t.Run("Trickled", func(t *testing.T) {
		c := dialWire(t, addr)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for sent := 0; ; sent++ {
			if _, err := c.conn.Write([]byte{"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[min(sent, 10)]}); err != nil {
				break // it was closed
			}
			if sent > 1000 {
				t.Fatal("each byte gains it time")
			}
			<-tick.C
		}
	})
}

// ---- Ends.

func TestTLS_EachConnectionEndsWithACloseNotify(t *testing.T) {
	up := newScriptedUpstream(t, echo)
	lane := startLane(t, up.Addr(), lanes.Config{Name: "web", Slots: 1})
	cfg := proxy.Config{IdleTimeout: 100 * time.Millisecond, BodyBytes: 10}
	_, addr := startSecured(t, cfg, []proxy.Route{{Match: "/", Lane: lane}, {Match: "/local", Respond: &proxy.Respond{Status: 200}}})
	for name, text := range map[string]string{
		"Local":     get("/local"), // idle
		"Forwarded": get("/app"),
		"Close":     "GET /app HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n",
		"LocalLast": "GET /local HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n",
		"HTTP10":    "GET /app HTTP/1.0\r\n\r\n",
		"Refused":   "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			c := saySecured(t, addr, text)
			c.wantAnswer(t, "GET", map[bool]int{true: 400, false: 200}[name == "Refused"], "*")
			c.wantCleanEnd(t)
		})
	}
}

// A client that writes all before it reads finds its refusal, and then the end.
func TestTLS_ARefusalIsFoundByWhoWritesAllFirst(t *testing.T) {
	_, addr := startSecured(t, proxy.Config{BodyBytes: 10}, []proxy.Route{{Match: "/", Respond: &proxy.Respond{Status: 200}}})
	body := strings.Repeat("x", 4<<20)
	c := saySecured(t, addr, fmt.Sprintf("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
	c.wantReason(t, 413, "body_too_large")
	c.wantCleanEnd(t)
}

func TestTLS_AnAnswerThatIsCutDoesNotEndWithACloseNotify(t *testing.T) {
	for name, head := range map[string]string{
		"Length":  "HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n",
		"Chunked": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n100000\r\n",
	} {
		for _, version := range []string{"HTTP/1.1", "HTTP/1.0"} {
			t.Run(name+version[5:], func(t *testing.T) {
				begun := make(chan struct{})
				up := newScriptedUpstream(t, func(conn net.Conn, _ recordedRequest) bool {
					io.WriteString(conn, head+strings.Repeat("x", 100000))
					<-begun
					return false
				})
				lane := startLane(t, up.Addr(), lanes.Config{Name: "web", Slots: 1})
				_, addr := startSecured(t, proxy.Config{}, []proxy.Route{{Match: "/", Lane: lane}})
				c := saySecured(t, addr, "GET / "+version+"\r\nHost: a.test\r\n\r\n")
				c.wantHead(t, 200)
				close(begun)
				c.wantCut(t)
			})
		}
	}
}

// What ends without a close_notify may have been cut by anybody on the way.
func TestTLS_ARequestWithoutACloseNotifyBehindItIsNoWholeOne(t *testing.T) {
	up := newScriptedUpstream(t, echo)
	lane := startLane(t, up.Addr(), lanes.Config{Name: "web", Slots: 1})
	server, addr := startSecured(t, proxy.Config{}, []proxy.Route{{Match: "/", Lane: lane}})
	for name, text := range map[string]string{
		"Head": "GET / HTTP/1.1\r\nHost: a.test\r\n",
		"Body": "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 10\r\n\r\n12345",
	} {
		t.Run(name+"/Cut", func(t *testing.T) {
			c := saySecured(t, addr, text)
			c.conn.CloseWrite()
			c.wantCleanEnd(t) // and no answer
		})
		t.Run(name+"/Ended", func(t *testing.T) {
			c := saySecured(t, addr, text)
			c.closeNotify(t)
			c.wantReason(t, 400, "bad_request")
			c.wantCleanEnd(t)
		})
	}
	until(t, "no connection is left", func() bool { return server.Connections() == 0 })
	if n := up.Count(); n != 0 {
		t.Errorf("the app has %d requests", n)
	}
}

// A close of a client that takes nothing does not wait for it, and is still an
// orderly one once it takes what there is.
func TestTLS_ASlowClientFindsTheCloseNotifyBehindTheLastByte(t *testing.T) {
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
	_, addr := startSecured(t, proxy.Config{}, []proxy.Route{{Match: "/", Respond: &proxy.Respond{Status: 200, Body: big}}})
	c := dialSecured(t, addr)
	c.say(t, "GET / HTTP/1.0\r\n\r\n")
	c.wantHead(t, 200)
	got, err := io.ReadAll(c.reader)
	if err != nil || !bytes.Equal(got, big) {
		t.Errorf("%d bytes came, %v; want %d and a close_notify", len(got), err, len(big))
	}
}

// ---- Clients that leave.

// occupied is a lane of one slot, which is taken until the test ends.
func occupied(t *testing.T, cfg lanes.Config) (lane *lanes.Lane, addr string, release chan<- struct{}) {
	t.Helper()
	gate := make(chan struct{})
	up := newScriptedUpstream(t, echoWhenOpen(t, gate))
	cfg.Name, cfg.Slots = "web", 1
	lane = startLane(t, up.Addr(), cfg)
	_, addr = startSecured(t, proxy.Config{}, []proxy.Route{{Match: "/", Lane: lane}})
	return lane, addr, gate
}

func TestTLS_LeavingWhileWaitingRemovesTheRequest(t *testing.T) {
	lane, addr, release := occupied(t, lanes.Config{Queue: 8, QueueTimeout: time.Minute})
	running := saySecured(t, addr, get("/held"))
	until(t, "one runs", func() bool { return lane.Snapshot().InUse == 1 })
	for name, leave := range map[string]func(*tlsClient){
		"CloseNotify": func(c *tlsClient) { c.closeNotify(t) }, // and no FIN
		"FIN":         func(c *tlsClient) { c.conn.CloseWrite() },
		"Close":       func(c *tlsClient) { c.tls.Close() },
		"Reset":       func(c *tlsClient) { c.reset() },
		"Garbage":     func(c *tlsClient) { c.conn.Write([]byte("\x17\x03\x03\x00\x20" + strings.Repeat("x", 32))) },
	} {
		c := saySecured(t, addr, get("/never/"+name))
		until(t, name+" waits", func() bool { return lane.Snapshot().Waiting == 1 })
		leave(c)
		until(t, name+" has left", func() bool { return lane.Snapshot().Waiting == 0 })
	}
	close(release)
	running.wantAnswer(t, "GET", 200, "/held")
}

func TestTLS_ACloseNotifyEndsAStreamsView(t *testing.T) {
	left := make(chan error, 1)
	addr := startTCP(t, func(conn *net.TCPConn) {
		a := &appConn{TCPConn: conn, reader: bufio.NewReader(conn)}
		if line, _ := a.head(); line == "" {
			return
		}
		a.say("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n")
		_, err := a.end()
		left <- err
	})
	lane := startLane(t, addr, lanes.Config{Name: "streams", Slots: 1, Stream: true})
	_, at := startSecured(t, proxy.Config{}, []proxy.Route{{Match: "/", Lane: lane, Stream: true}})
	c := saySecured(t, at, get("/"))
	c.wantHead(t, 200)
	c.closeNotify(t)
	take(t, "the view has ended", left)
	until(t, "the slot is free", func() bool { return lane.Snapshot().InUse == 0 })
}

// What comes while a request runs is read ahead, and is still the next request.
func TestTLS_WhatIsReadAheadIsTheNextRequest(t *testing.T) {
	_, addr, release := occupied(t, lanes.Config{Queue: 8, QueueTimeout: time.Minute})
	c := saySecured(t, addr, get("/held"))
	until(t, "it is read ahead", func() bool { return isRunning("(*clientConn).readAhead") })
	for i := range 3 {
		body := strings.Repeat(fmt.Sprint(i), 3000)
		c.say(t, fmt.Sprintf("POST /next/%d HTTP/1.1\r\nHost: a.test\r\nContent-Length: %d\r\n\r\n%s", i, len(body), body))
	}
	until(t, "it has read what it may", func() bool { return !isRunning("(*clientConn).readAhead") })
	close(release)
	for _, want := range []string{"/held", "/next/0", "/next/1", "/next/2"} {
		c.wantAnswer(t, "GET", 200, want)
	}
	c.say(t, get("/last"))
	c.wantAnswer(t, "GET", 200, "/last")
}

// ---- Much, and slowly.

func TestTLS_FilesAndUploadsArriveWhole(t *testing.T) {
	dir := t.TempDir()
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
	if err := os.WriteFile(filepath.Join(dir, "big"), content, 0o644); err != nil {
		t.Fatal(err)
	}
	up := newScriptedUpstream(t, func(conn net.Conn, request recordedRequest) bool {
		fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n", len(request.Body))
		conn.Write(request.Body)
		_, err := io.WriteString(conn, "\r\n0\r\n\r\n")
		return err == nil
	})
	lane := startLane(t, up.Addr(), lanes.Config{Name: "web", Slots: 1})
	_, addr := startSecured(t, proxy.Config{SpoolBytes: 1 << 30}, []proxy.Route{{Match: "/", Lane: lane}, {Match: "/files/", Files: &proxy.Files{Dir: dir}}})
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer client.CloseIdleConnections()
	for range 2 {
		for name, ask := range map[string]func() (*http.Response, error){
			"File": func() (*http.Response, error) { return client.Get("https://" + addr + "/files/big") },
			"Upload": func() (*http.Response, error) {
				return client.Post("https://"+addr+"/up", "x/y", bytes.NewReader(content))
			},
			"Chunked": func() (*http.Response, error) {
				return client.Post("https://"+addr+"/up", "x/y", io.LimitReader(bytes.NewReader(content), 1<<30))
			},
		} {
			response, err := ask()
			if err != nil {
				t.Fatal(name, err)
			}
			got, err := io.ReadAll(response.Body)
			response.Body.Close()
			if err != nil || response.StatusCode != 200 || !bytes.Equal(got, content) {
				t.Errorf("%s: %d, %d bytes, %v", name, response.StatusCode, len(got), err)
			}
		}
	}
}

// The bound is of a client's progress, as without TLS: a write that took longer
// is no reason to cut a client that takes something.
func TestTLS_ASlowClientGetsAllOfItAndOneThatTakesNothingIsCut(t *testing.T) {
	const stall = 400 * time.Millisecond
	dir := t.TempDir()
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<19)
	if err := os.WriteFile(filepath.Join(dir, "big"), content, 0o644); err != nil {
		t.Fatal(err)
	}
	server, addr := startSecured(t, proxy.Config{BodyTimeout: stall}, []proxy.Route{{Match: "/", Files: &proxy.Files{Dir: dir}}})
	begin := func() *tlsClient {
		c := dialSecured(t, addr)
		c.conn.SetReadBuffer(64 << 10)
		c.say(t, get("/big"))
		c.wantHead(t, 200)
		return c
	}
	slow, stalled := begin(), begin()
	tick := time.NewTicker(stall / 8)
	defer tick.Stop()
	got := make([]byte, 0, len(content))
	piece := make([]byte, 128<<10)
	for len(got) < len(content) {
		<-tick.C
		n, err := slow.reader.Read(piece[:min(len(piece), len(content)-len(got))])
		if got = append(got, piece[:n]...); err != nil {
			t.Fatalf("after %d bytes: %v", len(got), err)
		}
		if len(got) > 1<<20 {
			tick.Reset(time.Microsecond)
		}
	}
	if !bytes.Equal(got, content) {
		t.Error("not the file")
	}
	until(t, "the other is cut", func() bool { return server.Connections() == 1 })
	if n, err := io.Copy(io.Discard, stalled.reader); err == nil || errors.Is(err, os.ErrDeadlineExceeded) || n >= int64(len(content)) {
		t.Errorf("%d bytes, then %v; want a cut", n, err)
	}
}

// ---- Tunnels.

// openSecuredTunnel makes one, and both its ends.
func openSecuredTunnel(t *testing.T, early string) (lane *lanes.Lane, c *tlsClient, app *appConn) {
	t.Helper()
	apps := make(chan *appConn, 1)
	addr := startTCP(t, func(conn *net.TCPConn) {
		a := &appConn{TCPConn: conn, reader: bufio.NewReader(conn)}
		if line, _ := a.head(); line == "" {
			return
		}
		a.say(switched)
		apps <- a
		<-t.Context().Done()
	})
	lane = startLane(t, addr, lanes.Config{Name: "ws", Slots: 1, Stream: true, Idle: time.Hour})
	_, at := startSecured(t, proxy.Config{}, []proxy.Route{{Match: "/", Lane: lane, Stream: true}})
	c = saySecured(t, at, handshake+early)
	c.wantHead(t, 101)
	app = take(t, "the app has its end", apps)
	app.SetDeadline(time.Now().Add(patience))
	return lane, c, app
}

func TestTLS_ATunnelPassesBytesAndEndsBothWays(t *testing.T) {
	lane, c, app := openSecuredTunnel(t, "early")
	app.wantBytes(t, "early")
	much := strings.Repeat("0123456789abcdef", 64<<10)
	go app.say(much)
	c.wantBytes(t, much)
	go io.WriteString(c.tls, much)
	app.wantBytes(t, much)
	c.say(t, "last")
	c.closeNotify(t)
	if rest, err := app.end(); rest != "last" || err != nil {
		t.Errorf("the app reads %q, %v; want the client's last, and its end", rest, err)
	}
	app.say("after")
	app.CloseWrite()
	c.wantBytes(t, "after")
	c.wantCleanEnd(t)
	until(t, "the slot is free", func() bool { return lane.Snapshot().InUse == 0 })
}

func TestTLS_ATunnelThatIsCutIsNotEnded(t *testing.T) {
	t.Run("Client", func(t *testing.T) {
		lane, c, app := openSecuredTunnel(t, "")
		c.say(t, "up")
		app.wantBytes(t, "up")
		c.conn.Close() // a FIN, and no close_notify
		if rest, err := app.end(); rest != "" || !isReset(err) {
			t.Errorf("the app reads %q, %v; want a reset", rest, err)
		}
		until(t, "the slot is free", func() bool { return lane.Snapshot().InUse == 0 })
	})
	t.Run("App", func(t *testing.T) {
		lane, c, app := openSecuredTunnel(t, "")
		c.say(t, "up")
		app.wantBytes(t, "up")
		app.SetLinger(0)
		app.Close()
		c.wantCut(t)
		until(t, "the slot is free", func() bool { return lane.Snapshot().InUse == 0 })
	})
}

// ---- Over a unix socket.

func TestTLS_IsServedOverAUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	startSecuredOver(t, "unix", path, proxy.Config{}, []proxy.Route{{Match: "/", Respond: &proxy.Respond{Status: 200, Body: []byte("ok")}}}, zap.NewNop())
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	c := &tlsClient{wireClient: &wireClient{}}
	c.secure(t, conn)
	io.WriteString(c.tls, "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n")
	if answer, err := c.Read("GET"); err != nil || answer.status != 200 || string(answer.body) != "ok" {
		t.Errorf("%v %v", answer, err)
	}
	if rest, err := io.ReadAll(c.reader); len(rest) > 0 || err != nil && !errors.Is(err, syscall.EPIPE) {
		t.Errorf("it ends with %q, %v", rest, err)
	}
}
