package proxy_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"holdfast/lanes"
	"holdfast/proxy"
)

// ---- X-Accel-Redirect: an app that names files.

// accelSite is an app whose answers are scripted, and a directory that only it
// leads to.
type accelSite struct {
	addr string
	dir  string
	lane *lanes.Lane
	logs *observer.ObservedLogs
	app  *recordingUpstream
}

// startAccel serves what script answers, on one slot.
func startAccel(t *testing.T, stream bool, script upstreamScript) accelSite {
	t.Helper()
	s := accelSite{dir: fileTree(t), app: newScriptedUpstream(t, script)}
	s.lane = startLane(t, s.app.Addr(), lanes.Config{Name: "web", Slots: 1, Queue: 8, Stream: stream})
	s.addr, s.logs = startLogged(t, "tcp", proxy.Config{AccessLog: true}, []proxy.Route{
		{Match: "/", Lane: s.lane, Stream: stream},
		{Match: "/protected/", Files: &proxy.Files{Dir: s.dir, Internal: true, Fields: []string{"X-Robots-Tag", "none", "Expires", "0"}}},
		filesAt("/static/", s.dir),
	})
	return s
}

// answering is a script that gives one answer to everything, less its body to HEAD.
func answering(head, body string) upstreamScript {
	return func(conn net.Conn, request recordedRequest) bool {
		if request.Method == "HEAD" {
			body = ""
		}
		_, err := io.WriteString(conn, "HTTP/1.1 "+head+"\r\n\r\n"+body)
		return err == nil
	}
}

func TestRedirect_TheClientGetsTheFileWithWhatTheAppSaysOfIt(t *testing.T) {
	const head = "200 OK\r\nX-Accel-Redirect: /protected/app.js\r\nContent-Length: 5\r\nContent-Type: application/x-app\r\nContent-Disposition: attachment; filename=a.js\r\n" +
		"Set-Cookie: a=b; Path=/\r\nSet-Cookie: c=d\r\nCache-Control: private\r\nExpires: Sun, 30 Nov 2025 12:00:00 GMT\r\nX-Request-ID: the-apps\r\n" +
		"ETag: \"apps\"\r\nLast-Modified: Sun, 30 Nov 2025 12:00:00 GMT\r\nContent-Encoding: gzip\r\nContent-Range: bytes 0-1/2\r\nVary: Cookie\r\nX-Frame-Options: DENY\r\n" +
		"X-Accel-Buffering: no\r\nServer: app\r\nDate: Sun, 30 Nov 2025 12:00:00 GMT\r\nConnection: x-hop\r\nX-Hop: 1"
	for _, stream := range []bool{false, true} {
		s := startAccel(t, stream, answering(head, "thrown"[:5]))
		c := say(t, s.addr, get("/view"))
		answer := c.wantAnswer(t, "GET", 200, "let a = 1\n")
		if fmt.Sprint(fieldValues(answer.fields, "Date")) == "[Sun, 30 Nov 2025 12:00:00 GMT]" {
			t.Error("the app's date")
		}
		own := []string{"Date", "Last-Modified", "ETag", "Accept-Ranges", "X-Content-Type-Options", "Content-Length"}
		rest := slices.DeleteFunc(slices.Clone(answer.fields), func(f [2]string) bool { return slices.Contains(own, f[0]) })
		want := [][2]string{{"Content-Disposition", "attachment; filename=a.js"}, {"Set-Cookie", "a=b; Path=/"}, {"Set-Cookie", "c=d"}, {"Cache-Control", "private"},
			{"Expires", "Sun, 30 Nov 2025 12:00:00 GMT"}, {"X-Request-ID", "the-apps"}, {"X-Robots-Tag", "none"}, {"Content-Type", "application/x-app"}}
		if !slices.Equal(rest, want) {
			t.Errorf("stream %v: besides the file's own there are\n%q, want\n%q", stream, rest, want)
		}
		for _, name := range own {
			if values := fieldValues(answer.fields, name); len(values) != 1 || values[0] == `"apps"` {
				t.Errorf("%s: %q", name, values)
			}
		}
		// The connection goes on, and so does the app's.
		c.say(t, "HEAD /view HTTP/1.1\r\nHost: a.test\r\n\r\n"+get("/static/hello.txt")+get("/view"))
		if head := c.wantAnswer(t, "HEAD", 200, ""); head.get("Content-Length") != "10" {
			t.Errorf("HEAD: %q", head.fields)
		}
		c.wantAnswer(t, "GET", 200, "hello, world\n")
		c.wantAnswer(t, "GET", 200, "let a = 1\n")
	}
}

func TestRedirect_ConditionsAndRangesAreTheFiles(t *testing.T) {
	for _, c := range []struct {
		says, asks string
		status     int
		body, kind string
	}{
		{"", "", 200, "hello, world\n", "text/plain; charset=utf-8"}, {"Content-Type: \r\n", "", 200, "hello, world\n", "text/plain; charset=utf-8"},
		{"", "Range: bytes=0-4\r\n", 206, "hello", "text/plain; charset=utf-8"}, {"Content-Type: a/b\r\n", "Range: bytes=7-\r\n", 206, "world\n", "a/b"},
		{"Accept-Ranges: none\r\n", "Range: bytes=0-4\r\n", 200, "hello, world\n", "text/plain; charset=utf-8"},
		{"Accept-Ranges: bytes\r\n", "Range: bytes=0-4\r\n", 206, "hello", "text/plain; charset=utf-8"},
		{"Set-Cookie: a=b\r\n", "If-None-Match: *\r\n", 304, "", ""}, {"Set-Cookie: a=b\r\n", "If-Match: \"x\"\r\n", 412, "", ""},
		{"Set-Cookie: a=b\r\n", "Range: bytes=100-\r\n", 416, "*", "application/problem+json"}, {"ETag: \"apps\"\r\n", "If-None-Match: \"apps\"\r\n", 200, "hello, world\n", "text/plain; charset=utf-8"},
	} {
		s := startAccel(t, false, answering("200 OK\r\nX-Accel-Redirect: /protected/hello.txt\r\nContent-Length: 0\r\n"+strings.TrimSuffix("X-A: b\r\n"+c.says, "\r\n"), ""))
		client := say(t, s.addr, getWith("/view", c.asks)+get("/static/app.js"))
		answer := client.wantAnswer(t, "GET", c.status, c.body)
		ranges := map[bool]string{true: "none", false: "bytes"}[strings.Contains(c.says, "none")]
		if answer.get("Content-Type") != c.kind || answer.get("X-Accel-Redirect") != "" || c.status != 416 && answer.get("Accept-Ranges") != ranges {
			t.Errorf("%q, asked %q: %q", c.says, c.asks, answer.fields)
		}
		if strings.Contains(c.says, "Set-Cookie") && answer.get("Set-Cookie") != "a=b" {
			t.Errorf("%d takes the cookie away: %q", c.status, answer.fields)
		}
		if answer.get("X-Request-ID") == "" {
			t.Errorf("%d: %q lacks the request's id", c.status, answer.fields)
		}
		client.wantAnswer(t, "GET", 200, "let a = 1\n")
	}
}

// A POST's answer is the whole file, whatever conditions it brings: those were
// the view's to judge.
func TestRedirect_OfAPOSTIsTheWholeFile(t *testing.T) {
	for _, stream := range []bool{false, true} {
		s := startAccel(t, stream, answering("200 OK\r\nX-Accel-Redirect: /protected/hello.txt\r\nContent-Length: 0", ""))
		c := say(t, s.addr, "POST /view HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\nRange: bytes=0-1\r\nIf-None-Match: *\r\n\r\nhello")
		c.wantAnswer(t, "POST", 200, "hello, world\n")
		c.say(t, get("/static/app.js"))
		c.wantAnswer(t, "GET", 200, "let a = 1\n")
	}
}

// The one slot is free while a slow client takes 64 MiB.
func TestRedirect_ASlowClientKeepsNoSlot(t *testing.T) {
	for _, stream := range []bool{false, true} {
		s := startAccel(t, stream, func(conn net.Conn, request recordedRequest) bool {
			to := ""
			if request.Target == "/big" {
				to = "X-Accel-Redirect: /protected/big.bin\r\n"
			}
			_, err := fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\n%sContent-Length: 2\r\n\r\nok", to)
			return err == nil
		})
		content := bigFile(t, s.dir, "big.bin", 64<<20)
		slow := slowClient(t, s.addr, "/big")
		for range 5 {
			c := say(t, s.addr, get("/other"))
			c.wantAnswer(t, "GET", 200, "ok")
		}
		if n := s.lane.Snapshot(); n.InUse != 0 || n.Abandoned != 0 || opens(t, filepath.Join(s.dir, "big.bin")) != 1 {
			t.Errorf("stream %v: %+v while the file is being sent", stream, n)
		}
		got := make([]byte, len(content))
		if _, err := io.ReadFull(slow.reader, got); err != nil || !bytes.Equal(got, content) {
			t.Errorf("stream %v: not the file: %v", stream, err)
		}
		slow.say(t, get("/other"))
		slow.wantAnswer(t, "GET", 200, "ok")
	}
}

// The app's own body is thrown away: a short one before the file, a long or late
// one when the client has its file. The slot is taken until the app is done.
func TestRedirect_WhatTheAppSendsBehindItIsThrownAway(t *testing.T) {
	gate := make(chan struct{})
	script := func(conn net.Conn, request recordedRequest) bool {
		const head = "HTTP/1.1 200 OK\r\nX-Accel-Redirect: /protected/hello.txt\r\n"
		switch request.Target {
		case "/chunks":
			io.WriteString(conn, head+"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
		case "/close":
			io.WriteString(conn, head+"Connection: close\r\n\r\nuntil the end")
			return false
		case "/large":
			fmt.Fprintf(conn, "%sContent-Length: %d\r\n\r\n", head, 4<<20)
			if _, err := conn.Write(make([]byte, 4<<20)); err != nil {
				return false
			}
		case "/cut":
			io.WriteString(conn, head+"Content-Length: 10\r\n\r\nhalf")
			return false
		case "/late":
			io.WriteString(conn, head+"Content-Length: 4\r\n\r\n")
			if !opened(t, gate) {
				return false
			}
			io.WriteString(conn, "late")
		default:
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
		return true
	}
	s := startAccel(t, false, script)
	c := dialWire(t, s.addr)
	for _, target := range []string{"/chunks", "/close", "/large", "/cut", "/late"} {
		c.say(t, get(target))
		c.wantAnswer(t, "GET", 200, "hello, world\n")
		if target == "/late" {
			if n := s.lane.Snapshot(); n.InUse+n.Abandoned == 0 {
				t.Errorf("the slot is free before the app is done: %+v", n)
			}
			close(gate)
		}
		c.say(t, get("/other"))
		c.wantAnswer(t, "GET", 200, "ok")
	}
}

// ---- What is not followed.

func TestRedirect_ToWhatIsNotInternalGoesOn(t *testing.T) {
	for _, value := range []string{"/static/hello.txt", "/elsewhere/a", "@named", "protected/hello.txt", "http://a.test/protected/hello.txt", "//protected/hello.txt", "/protected", ""} {
		s := startAccel(t, false, answering("200 OK\r\nX-Accel-Redirect: "+value+"\r\nX-Sendfile: /protected/hello.txt\r\nContent-Length: 4", "view"))
		c := say(t, s.addr, get("/view"))
		answer := c.wantAnswer(t, "GET", 200, "view")
		if got := fieldValues(answer.fields, "X-Accel-Redirect"); !slices.Equal(got, []string{value}) || answer.get("X-Sendfile") == "" {
			t.Errorf("%q: %q", value, answer.fields)
		}
	}
}

// A view that says no has not let its client in, whatever a middleware adds.
func TestRedirect_OfAnAnswerThatIsNot200IsNotFollowed(t *testing.T) {
	for _, status := range []string{"201 Created", "206 Partial Content", "302 Found", "401 Unauthorized", "403 Forbidden", "404 Not Found", "500 Internal Server Error"} {
		for _, stream := range []bool{false, true} {
			s := startAccel(t, stream, answering(status+"\r\nx-accel-redirect: /protected/hello.txt\r\nX-A: b\r\nContent-Length: 2", "no"))
			c := say(t, s.addr, get("/view"))
			number := 0
			fmt.Sscan(status, &number)
			if answer := c.wantAnswer(t, "GET", number, "no"); answer.get("X-Accel-Redirect") != "" || answer.get("X-A") != "b" {
				t.Errorf("%s: %q", status, answer.fields)
			}
			told := s.logs.FilterMessageSnippet("is not 200 is not followed").All()
			if len(told) != 1 || told[0].ContextMap()["route"] != "/" || told[0].ContextMap()["status"] != int64(number) {
				t.Errorf("%s: %v", status, told)
			}
		}
	}
}

func TestRedirect_ToAFileThatIsNotThereIsA404AndTold(t *testing.T) {
	for _, name := range []string{"nobody", "", "sub", "../secret.txt", "%2e%2e/secret.txt", "..%2fsecret.txt", ".env", "out", "out-dir/secret.txt", "absolute", "pipe", "a%00b", "//etc/passwd"} {
		for _, stream := range []bool{false, true} {
			s := startAccel(t, stream, answering("200 OK\r\nX-Accel-Redirect: /protected/"+name+"\r\nSet-Cookie: a=b\r\nContent-Length: 4", "view"))
			c := say(t, s.addr, get("/view"))
			answer := c.wantReason(t, 404, "no_route", "the file is not there")
			if strings.Contains(string(answer.body), secret) || answer.get("X-Accel-Redirect") != "" || answer.get("Set-Cookie") != "a=b" || answer.closes() {
				t.Errorf("%s: %q %s", name, answer.fields, answer.body)
			}
			told := s.logs.FilterMessageSnippet("X-Accel-Redirect that is not there").All()
			if len(told) != 1 || told[0].Level != zapcore.WarnLevel || told[0].ContextMap()["route"] != "/" || told[0].ContextMap()["files"] != "/protected/" {
				t.Errorf("%s: %v", name, told)
			}
			c.say(t, get("/static/app.js"))
			c.wantAnswer(t, "GET", 200, "let a = 1\n")
			if n := s.lane.Snapshot(); n.InUse != 0 {
				t.Errorf("%s: %+v", name, n)
			}
		}
	}
}

// An instruction about a hold goes before it.
func TestRedirect_AHoldIsAHold(t *testing.T) {
	s := startHolds(t, holdSetup{routes: []proxy.Route{{Match: "/protected/", Files: &proxy.Files{Dir: fileTree(t), Internal: true}}}})
	c := say(t, s.addr, askFor("/events"))
	s.view(t).answer(ok(joinNews+"X-Accel-Redirect: /protected/hello.txt\r\n", ""))
	c.wantHeldHead(t)
	s.wantHeld(t, 1)
}

// A client that still sends when the app has answered gets its file, and then
// its connection ends: what it sends is not read.
func TestRedirect_OfAnUploadThatGoesOnEndsTheConnection(t *testing.T) {
	app := startTCP(t, func(conn *net.TCPConn) {
		conn.Read(make([]byte, 64<<10))
		io.WriteString(conn, "HTTP/1.1 200 OK\r\nX-Accel-Redirect: /protected/a.bin\r\nContent-Length: 0\r\n\r\n")
		io.Copy(io.Discard, conn)
	})
	dir := t.TempDir()
	content := string(bigFile(t, dir, "a.bin", 1<<20))
	lane := startLane(t, app, lanes.Config{Name: "streams", Slots: 1, Stream: true})
	addr := startServer(t, proxy.Config{}, []proxy.Route{{Match: "/", Lane: lane, Stream: true}, {Match: "/protected/", Files: &proxy.Files{Dir: dir, Internal: true}}})
	c := say(t, addr, "POST /view HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1000000\r\n\r\nsome of it")
	if answer := c.wantAnswer(t, "POST", 200, content); !answer.closes() {
		t.Errorf("%q does not say that the connection ends", answer.fields)
	}
	c.wantEnd(t, true)
	until(t, "no slot is taken", func() bool { return lane.Snapshot().InUse == 0 })
}

// The line of the access log has the view's route and slot, and the file's bytes.
func TestRedirect_TheLineIsTheViews(t *testing.T) {
	s := startAccel(t, false, answering("200 OK\r\nX-Accel-Redirect: /protected/big.bin\r\nContent-Length: 0", ""))
	bigFile(t, s.dir, "big.bin", 1<<20)
	c := say(t, s.addr, getWith("/view?a=b", "Range: bytes=0-99999\r\n"))
	c.wantAnswer(t, "GET", 206, "*")
	until(t, "a line", func() bool { return s.logs.FilterMessage("exchange").Len() == 1 })
	fields := s.logs.FilterMessage("exchange").All()[0].ContextMap()
	if fields["route"] != "/" || fields["lane"] != "web" || fields["slot"] != int64(0) || fields["status"] != int64(206) || fields["bytes"].(int64) < 100000 || fields["path"] != "/view" || fields["end"] != "done" {
		t.Errorf("%v", fields)
	}
}

func TestRedirect_WithoutInternalRoutesTheFieldGoesOn(t *testing.T) {
	app := newScriptedUpstream(t, answering("200 OK\r\nX-Accel-Redirect: /protected/a\r\nContent-Length: 4", "view"))
	lane := startLane(t, app.Addr(), lanes.Config{Name: "web", Slots: 1})
	dir := t.TempDir()
	os.WriteFile(filepath.Join(dir, "a"), []byte("file"), 0o644)
	c := say(t, startServer(t, proxy.Config{}, []proxy.Route{{Match: "/", Lane: lane}, filesAt("/protected/", dir)}), get("/view"))
	if answer := c.wantAnswer(t, "GET", 200, "view"); answer.get("X-Accel-Redirect") != "/protected/a" {
		t.Errorf("%q", answer.fields)
	}
}
