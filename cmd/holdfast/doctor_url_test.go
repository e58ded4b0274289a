package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/holds"
)

const doctorGrants = `
upstreams: {app: {targets: ["http://%s"]}}
lanes: {web: {upstream: app, slots: 4}}
routes:
  - {match: "/live/", grant: {key_env: THE_GRANT_KEY}}
  - {match: "/", lane: web}
holds: {heartbeat: %s}
`

// doctorStream is a Holdfast with a grant route, and the path of a stream of
// the channel news there.
func doctorStream(t *testing.T, heartbeat string) (s *holdsSite, path string) {
	t.Helper()
	app := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(app.Close)
	s = startHoldsFile(t, fixedConfig(t, doctorGrants, app.Listener.Addr(), heartbeat), "THE_GRANT_KEY=new")
	return s, "/live/stream?g=" + newGrant("new", "news", time.Now().Add(time.Hour))
}

// runDoctor runs the command as a process, whose environment has the key.
func runDoctor(t *testing.T, key string, args ...string) (e examination) {
	t.Helper()
	c := exec.Command(os.Args[0], append([]string{"doctor", "--json"}, args...)...)
	c.Env = append(os.Environ(), asCommand+"=1", "THE_GRANT_KEY="+key)
	out, err := c.Output()
	if json.Unmarshal(out, &e) != nil || e.Exit != c.ProcessState.ExitCode() {
		t.Fatalf("%v: %s", err, out)
	}
	if bytes.Contains(out, []byte("v1.")) {
		t.Errorf("shows a grant: %s", out)
	}
	return e
}

// startNginx serves with this location until the test ends.
func startNginx(t *testing.T, to, location string) (addr string) {
	t.Helper()
	nginx, err := exec.LookPath("nginx")
	if err != nil {
		if nginx = "/usr/sbin/nginx"; !exists(nginx) {
			t.Skip("nginx is not here: install nginx-light")
		}
	}
	dir, addr := t.TempDir(), freeAddress(t)
	config := filepath.Join(dir, "nginx.conf")
	replaceFile(t, config, fmt.Sprintf(`daemon off; master_process off; pid %[1]s/pid; error_log stderr;
events {}
http {
  access_log off; client_body_temp_path %[1]s/b; proxy_temp_path %[1]s/p; fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;
  server { listen %[2]s; location / { proxy_pass http://%[3]s; %[4]s } }
}
`, dir, addr, to, location))
	c := exec.Command(nginx, "-e", "stderr", "-c", config)
	output := new(bytes.Buffer)
	c.Stderr = output
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
		if t.Failed() {
			t.Logf("nginx: %s", output)
		}
	})
	eventuallyListens(t, addr)
	return addr
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }

func TestDoctorURL_AStreamThatArrivesIsOk(t *testing.T) {
	t.Parallel()
	s, path := doctorStream(t, "15s")
	for name, addr := range map[string]string{"Direct": s.addr, "Nginx": startNginx(t, s.addr, "")} {
		e := runDoctor(t, "new", "--url", "http://"+addr+path, "-c", s.path, "--channel", "news", "--idle", "200ms")
		if e.Exit != exitOK || e.worst() != "ok" {
			t.Errorf("%s: %+v", name, e)
		}
		e.wantCheck(t, "url", "ok", "http://"+addr+"/live/stream")
		e.wantCheck(t, "head", "ok", "HTTP/1.1")
		e.wantCheck(t, "first bytes", "ok", "after the head")
		c := e.wantCheck(t, "events", "ok", "3 came as they were published")
		if c.Numbers["events"] != 3 || c.Numbers["slowest_ms"] <= 0 {
			t.Errorf("%s: %+v", name, c)
		}
		e.wantCheck(t, "idle", "ok", "not cut in 200ms, which is shorter")
		if name == "Nginx" {
			e.wantCheck(t, "in front", "ok", "nginx")
		}
		if e.Configuration != nil {
			t.Errorf("%s: shows the configuration", name)
		}
	}
}

func TestDoctorURL_AProxyThatBuffersFails(t *testing.T) {
	t.Parallel()
	s, path := doctorStream(t, "15s")
	addr := startNginx(t, s.addr, "proxy_buffering on; proxy_ignore_headers X-Accel-Buffering;")
	e := runDoctor(t, "new", "--url", "http://"+addr+path, "-c", s.path, "--channel", "news")
	c := e.wantCheck(t, "head", "fail", "keeps it back")
	if e.Exit != exitFailed || !strings.Contains(c.Fix, "proxy_buffering off") {
		t.Errorf("%+v", e)
	}
	e.wantCheck(t, "head", "fail", "the channel has a stream that is held")
}

func TestDoctorURL_AProxyThatCompressesFails(t *testing.T) {
	t.Parallel()
	s, path := doctorStream(t, "15s")
	addr := startNginx(t, s.addr, "gzip on; gzip_min_length 0; gzip_types text/event-stream;")
	e := runDoctor(t, "new", "--url", "http://"+addr+path)
	c := e.wantCheck(t, "encoding", "fail", "gzip")
	if e.Exit != exitFailed || !strings.Contains(c.Fix, "gzip_types") {
		t.Errorf("%+v", e)
	}
}

// hurried is a proxy that ends a connection on which nothing came for a time,
// and, from the second piece of a body on, holds bytes back until there are enough.
func hurried(t *testing.T, to string, idle time.Duration, least int) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			go carry(client, to, idle, least)
		}
	}()
	return ln.Addr().String()
}

func carry(client net.Conn, to string, idle time.Duration, least int) {
	defer client.Close()
	app, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer app.Close()
	go io.Copy(app, client)
	var kept []byte
	for buf, headSent, pieces := make([]byte, 4<<10), false, 0; ; {
		app.SetReadDeadline(time.Now().Add(idle))
		n, err := app.Read(buf)
		if err != nil {
			return
		}
		kept = append(kept, buf[:n]...)
		if end := bytes.Index(kept, []byte("\r\n\r\n")); !headSent && end >= 0 {
			headSent = true
			client.Write(kept[:end+4])
			kept = kept[end+4:]
		}
		if headSent && len(kept) > 0 && (pieces == 0 || len(kept) >= least) {
			pieces++
			client.Write(kept)
			kept = kept[:0]
		}
	}
}

func TestDoctorURL_AProxyThatCutsQuietStreamsFails(t *testing.T) {
	t.Parallel()
	s, path := doctorStream(t, "15s")
	e := runDoctor(t, "new", "--url", "http://"+hurried(t, s.addr, time.Second, 0)+path, "--idle", "20s")
	c := e.wantCheck(t, "idle", "fail", "of silence")
	if silence := c.Numbers["longest_silence_ms"]; e.Exit != exitFailed || silence < 500 || silence > 10_000 || !strings.Contains(c.Fix, "proxy_read_timeout") {
		t.Errorf("%+v", e)
	}
}

func TestDoctorURL_HeartbeatsKeepTheStream(t *testing.T) {
	t.Parallel()
	s, path := doctorStream(t, "300ms")
	e := runDoctor(t, "new", "--url", "http://"+hurried(t, s.addr, 1500*time.Millisecond, 0)+path, "-c", s.path, "--channel", "news", "--idle", "4s")
	c := e.wantCheck(t, "idle", "ok", "the longest silence was")
	if e.Exit != exitOK || c.Numbers["arrivals"] < 3 {
		t.Errorf("%+v", e)
	}
}

func TestDoctorURL_AProxyThatCollectsEventsFails(t *testing.T) {
	t.Parallel()
	s, path := doctorStream(t, "15s")
	addr := hurried(t, s.addr, time.Minute, 4<<10)
	e := runDoctor(t, "new", "--url", "http://"+addr+path, "-c", s.path, "--channel", "news")
	c := e.wantCheck(t, "events", "fail", "event 1 was published to 1 holds and did not come")
	if e.Exit != exitFailed || !strings.Contains(c.Fix, "proxy_buffering off") {
		t.Errorf("%+v", e)
	}
	// Nothing is said against the proxy if nobody has that channel.
	e = runDoctor(t, "new", "--url", "http://"+addr+path, "-c", s.path, "--channel", "other")
	e.wantCheck(t, "events", "warn", "reached nobody")
	if e.Exit != exitOK {
		t.Errorf("%+v", e)
	}
}

// Heartbeats that do not come are kept back too.
func TestDoctorURL_AProxyThatCollectsHeartbeatsFails(t *testing.T) {
	t.Parallel()
	s, path := doctorStream(t, "500ms")
	e := runDoctor(t, "new", "--url", "http://"+hurried(t, s.addr, time.Minute, 4<<10)+path, "-c", s.path, "--channel", "other", "--idle", "3s")
	if e.wantCheck(t, "idle", "fail", "keeps them back"); e.Exit != exitFailed {
		t.Errorf("%+v", e)
	}
}

func TestDoctorURL_AHeadWithoutABodyFails(t *testing.T) {
	t.Parallel()
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer app.Close()
	e := runDoctor(t, "", "--url", app.URL)
	if c := e.wantCheck(t, "first bytes", "fail", "did not come"); e.Exit != exitFailed || !strings.Contains(c.Fix, "proxy_buffering off") {
		t.Errorf("%+v", e)
	}
}

// A stream that ends because Holdfast drains is nobody's in front.
func TestDoctorURL_HoldfastsOwnEndIsToldApart(t *testing.T) {
	t.Parallel()
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, ": open\n\n")
		w.(http.Flusher).Flush()
		io.WriteString(w, "id: 7\n\nretry: 1500\n\n")
	}))
	defer app.Close()
	e := runDoctor(t, "", "--url", app.URL, "--idle", "10s")
	if e.wantCheck(t, "idle", "warn", "Holdfast itself ended the stream"); e.Exit != exitOK {
		t.Errorf("%+v", e)
	}
}

func TestDoctorURL_WhatIsNoStreamFails(t *testing.T) {
	t.Parallel()
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/refused":
			w.Header().Set("Content-Type", "text/event-stream")
			w.Header().Set("Holdfast-Reason", "lane_full")
		case "/login":
			if r.Header.Get("Cookie") != "sessionid=x" {
				w.WriteHeader(403)
				return
			}
			w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
			w.Header().Set("Age", "12")
			io.WriteString(w, ": open\n\n")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
	}))
	defer app.Close()
	for path, found := range map[string]string{"/page": "no event stream", "/refused": "lane_full", "/login": "403"} {
		if e := runDoctor(t, "", "--url", app.URL+path); e.Exit != exitFailed {
			t.Errorf("%s: %+v", path, e)
		} else {
			e.wantCheck(t, "head", "fail", found)
		}
	}
	e := runDoctor(t, "", "--url", app.URL+"/login?v1.secret", "--header", "Cookie: sessionid=x")
	if e.wantCheck(t, "cache", "warn", "12"); e.Exit != exitOK {
		t.Errorf("%+v", e)
	}
	e = runDoctor(t, "", "--url", "http://"+freeAddress(t)+"/?g=v1.secret")
	e.wantCheck(t, "head", "fail", "refused")
}

func TestDoctorURL_FlagsThatMakeNoSenseAreUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"--url", "example.com/events"},
		{"--url", ""},
		{"--url", "ftp://example.com/"},
		{"--url", "http://example.com/", "--idle", "-1s"},
		{"--url", "http://example.com/", "--header", "no field"},
		{"--url", "http://example.com/", "--header", "Cookie: a\r\nb"},
		{"--url", "http://example.com/", "--channel", ""},
		{"--url", "http://example.com/", "--channel", "news"}, // and no file
		{"-c", "config.yaml", "--idle", "60s"},
		{"-c", "config.yaml", "--channel", "news"},
	} {
		stdout, stderr := new(bytes.Buffer), new(bytes.Buffer)
		if code := run(append([]string{"doctor"}, args...), stdout, stderr); code != exitUsage || strings.Count(stderr.String(), "\n") != 1 || stdout.Len() > 0 {
			t.Errorf("%q: exit %d, %s%s", args, code, stdout, stderr)
		}
	}
}

func TestDoctor_MeasuresARoundTripThroughAHoldAndLeavesNone(t *testing.T) {
	t.Parallel()
	s, _ := doctorStream(t, "15s")
	e := runDoctor(t, "new", "-c", s.path)
	c := e.wantCheck(t, "round trip", "ok", "an event reached a held stream")
	if c.Numbers["arrived_ms"] <= 0 || e.Exit != exitOK {
		t.Errorf("%+v", e)
	}
	eventually(t, "its stream to be gone", func() bool { return s.holds.Snapshot().Streams == 0 })
	if ended := s.holds.Snapshot().Ended[holds.ModeStream]; ended["published"] != 1 {
		t.Errorf("ended: %v, want the doctor to end what it opened", ended)
	}
	// With another key than the one that runs, it says so.
	e = runDoctor(t, "other", "-c", s.path)
	if c := e.wantCheck(t, "round trip", "warn", "401"); !strings.Contains(c.Fix, "environment") || e.Exit != exitOK {
		t.Errorf("%+v", e)
	}
}

func TestDoctor_MeasuresNoRoundTripWithoutAGrantRouteOrAHoldfast(t *testing.T) {
	t.Parallel()
	s, _ := doctorStream(t, "15s")
	text, err := os.ReadFile(s.path)
	if err != nil {
		t.Fatal(err)
	}
	bare := filepath.Join(t.TempDir(), "config.yaml")
	lines := slices.DeleteFunc(strings.Split(string(text), "\n"), func(line string) bool { return strings.Contains(line, "grant:") })
	replaceFile(t, bare, strings.Join(lines, "\n"))
	runDoctor(t, "new", "-c", bare).wantCheck(t, "round trip", "ok", "a grant route")
	gone := fixedConfig(t, doctorGrants, freeAddress(t), "15s")
	runDoctor(t, "new", "-c", gone).wantCheck(t, "round trip", "ok", "no Holdfast answers")
}

// Whoever else listens at the publish address is asked once and told nothing.
func TestDoctor_PublishesToNobodyButAHoldfast(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 16)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Method
		io.WriteString(w, "{}")
	}))
	defer other.Close()
	path := filepath.Join(t.TempDir(), "config.yaml")
	replaceFile(t, path, fmt.Sprintf("listen: %q\nadmin: {listen: \"\"}\npublish: {listen: %q}\n", freeAddress(t), other.Listener.Addr())+fmt.Sprintf(doctorGrants, freeAddress(t), "15s"))
	runDoctor(t, "new", "-c", path).wantCheck(t, "round trip", "ok", "is no Holdfast")
	close(asked)
	for method := range asked {
		if method != http.MethodGet {
			t.Errorf("asked with %s", method)
		}
	}
}

func TestGrant_OfTheDoctorIsThatOfThePythonClient(t *testing.T) {
	t.Parallel()
	expires := time.Now().Add(time.Minute)
	python := issue(t, "a key", fmt.Sprintf("'news', ttl=%d", int(time.Until(expires).Seconds())))
	_, token, _ := strings.Cut(python, "?g=")
	parts := strings.Split(token, ".")
	var unix int64
	fmt.Sscan(parts[2], &unix)
	if own := newGrant("a key", "news", time.Unix(unix, 0)); own != token {
		t.Errorf("%s, the client makes %s", own, token)
	}
}
