package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"unicode"

	"golang.org/x/sys/unix"
)

// What must not be reached, and what must not be told. That keys are compared
// in constant time (access.hasKey, Grant.checkSignature) no test can show: the
// differences are below what a loopback connection lets one measure.

const (
	secretMark   = "s3cr3t" // in everything that must not be told
	publishKey   = secretMark + "-publish-key"
	adminKey     = secretMark + "-admin-key"
	grantKey     = secretMark + "-grant-key"
	bearer       = "Authorization: Bearer "
	secretsBase  = "listen: \"127.0.0.1:0\"\nadmin: {listen: \"127.0.0.1:0\", keys: [\"${ADMIN_KEY}\"]}\npublish: {listen: \"127.0.0.1:0\", keys: [\"${PUBLISH_KEY}\"]}\n"
	secretsLanes = `
grip: {key: "${GRIP_KEY}"}
upstreams:
  app:  {targets: ["http://%[1]s"]}
  away: {targets: ["http://%[1]s"]}
lanes:
  web:     {upstream: app, slots: 4}
  streams: {upstream: away, kind: stream, slots: 4}
routes:
  - {match: "/robots.txt", respond: {body: "User-agent: *\n"}}
  - {match: "/live/", grant: {key_env: THE_GRANT_KEY, cookie: sessionid}}
  - {match: "/rt/", lane: streams}
  - {match: "POST /only/", lane: web}
  - {match: "/app/", lane: web}
trusted_proxies: []
holds: {heartbeat: 0}
log: {level: debug, access: true}
`
)

// secretsApp answers in the ways that make something to log.
func secretsApp(w http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body)
	path := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	switch path {
	case "hold", "held":
		w.Header().Set("M0-Hold", "stream")
		w.Header().Set("M0-Channel", "news, %zz, a%0Ab") // two of them are none
	case "ws":
		w.Header().Set("M0-Hold", "websocket")
		w.Header().Set("M0-Channel", "news")
	case "bad-hold":
		w.Header().Set("M0-Hold", "stream")
		w.Header().Set("M0-Channel", "news")
		w.Header().Set("Content-Encoding", "gzip")
		io.WriteString(w, "no")
	case "sse":
		w.Header().Set("Content-Type", "text/event-stream")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	case "cut", "broken", "message":
		conn, _, _ := w.(http.Hijacker).Hijack()
		io.WriteString(conn, map[string]string{"cut": "", "broken": "HTTP/1.1 2\x1b[2J\r\n\r\n", "message": "HTTP/1.1 500 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"}[path])
		conn.Close()
	case "echo":
		r.Header.Write(w)
	}
}

// startSecrets serves secretsApp, with keys everywhere.
func startSecrets(t *testing.T, base, yaml string) *holdsSite {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(secretsApp)}
	go server.Serve(ln)
	t.Cleanup(func() { server.Close() })
	path := t.TempDir() + "/config.yaml"
	if err := os.WriteFile(path, fmt.Appendf([]byte(base), yaml, ln.Addr()), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startHoldsFile(t, path, "ADMIN_KEY="+adminKey, "PUBLISH_KEY="+publishKey, "GRIP_KEY="+secretMark+"-grip-key", "THE_GRANT_KEY="+grantKey)
	s.mustBecomeReady()
	return s
}

// ownPaths are those of the admin and the publish address, with what would
// show in an answer that they had been reached.
var ownPaths = []string{"GET /metrics", "GET /status", "GET /", "POST /drain", "POST /reload", "GET /debug/pprof/", "GET /debug/pprof/cmdline",
	"POST /publish", "POST /publish/", "POST /publish/news", "POST /end", "GET /channels", "GET /channels/news"}

func TestSecrets_PublishAndAdminAreNotReachedThroughThePublicAddress(t *testing.T) {
	t.Parallel()
	s := startSecrets(t, secretsBase, secretsLanes)
	f := follow(t, s.addr, "/app/hold")
	body := `{"channel": "news", "data": "through the front door"}`
	for _, path := range ownPaths {
		method, path, _ := strings.Cut(path, " ")
		for _, own := range []string{s.admin(), s.publish} {
			for target, fields := range map[string]string{
				path:                                    "Host: " + own + "\r\n",
				"http://" + own + path:                  "Host: " + own + "\r\n",
				"/" + path:                              "Host: " + own + "\r\n",
				"/app/.." + path:                        "Host: " + own + "\r\n",
				"/%2e%2e" + path:                        "Host: " + own + "\r\n",
				path + "?x":                             "Host: localhost\r\nX-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Host: " + own + "\r\nForwarded: for=127.0.0.1;host=\"" + own + "\"\r\n",
				"/app/?" + path:                         "Host: localhost\r\nX-Original-URL: " + path + "\r\nX-Rewrite-URL: " + path + "\r\nX-Accel-Redirect: " + path + "\r\nX-HTTP-Method-Override: " + method + "\r\n",
				strings.Replace(path, "/", "/%2F", 1):   "Host: " + own + "\r\nGrip-Hold: stream\r\nGrip-Channel: news\r\nM0-Hold: stream\r\nM0-Channel: news\r\n",
				strings.Replace(path, "/", "/app/", 1):  "Host: " + own + "\r\n",
				strings.Replace(path, "/", "/live/", 1): "Host: " + own + "\r\n",
			} {
				for _, key := range []string{"", bearer + adminKey + "\r\n", bearer + publishKey + "\r\n"} {
					answer := askRaw(t, s.addr, fmt.Sprintf("%s %s HTTP/1.1\r\n%s%sConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", method, target, fields, key, len(body), body))
					ours := answer.code() == 200 && answer.body != "" || answer.code() == 202 || answer.code() == 401 && !strings.Contains(target, "/live/")
					if ours || strings.Contains(answer.body, "holdfast_") || strings.Contains(answer.body, "pprof") {
						t.Errorf("%s %s %q: %d %.200s", method, target, fields, answer.code(), answer.body)
					}
				}
			}
		}
	}
	key := bearer + adminKey + "\r\n"
	if n := metric(t, s.admin(), "holdfast_events_published_total") + metric(t, s.admin(), `holdfast_reload_total{result="ok"}`); n != 0 || s.stateWord() != "ready" {
		t.Errorf("%v events published and reloads made, state %s", n, s.stateWord())
	}
	// Nor one of them through the other, with its key.
	for _, path := range ownPaths {
		method, path, _ := strings.Cut(path, " ")
		other, with := s.publish, key+bearer+publishKey+"\r\n"
		if strings.HasPrefix(path, "/publish") || strings.HasPrefix(path, "/channels") || path == "/end" {
			other = s.admin()
		}
		want := 404
		if path == "/" {
			want = 401 // both have one, and of two credentials none counts
		}
		if answer := call(t, other, method, path, with, []byte(body)); answer.code() != want {
			t.Errorf("%s %s at the other address: %d %.200s", method, path, answer.code(), answer.body)
		}
	}
	for _, own := range []string{s.admin(), s.publish} {
		if answer := call(t, own, "GET", "/robots.txt", key, nil); answer.code() != 404 {
			t.Errorf("a public route at %s: %d", own, answer.code())
		}
	}
	// The negative arm: all of it is there at its own address, with its key.
	if answer := call(t, s.publish, "POST", "/publish", bearer+publishKey+"\r\n", []byte(body)); answer.code() != 200 {
		t.Fatalf("%d %s", answer.code(), answer.body)
	}
	f.wantEvent("through the front door")
}

// What a page can make a browser of this machine send without asking first: a
// simple form (Fetch Standard, "CORS-safelisted request-header"), always with
// Origin; and anything, to a name of the page's own that was made to resolve
// to this machine (DNS rebinding).
func TestSecrets_APageCannotPublishNorDrainThroughItsReadersBrowser(t *testing.T) {
	t.Parallel()
	s := startSecrets(t, holdsBase, secretsLanes)
	_, port, _ := net.SplitHostPort(s.publish)
	json := `{"channel": "news", "data": "from a page"}`
	forms := map[string]string{
		"text/plain":                        json,
		"text/plain;charset=UTF-8":          json,
		"application/x-www-form-urlencoded": json + "=",
		"multipart/form-data; boundary=x":   "--x\r\nContent-Disposition: form-data; name=\"channel\"\r\n\r\nnews\r\n--x--\r\n",
		"":                                  json,
		"application/json":                  json,
	}
	for _, path := range []string{"/publish", "/publish/", "/publish/news", "/end", "/drain", "/reload"} {
		own := s.publish
		if path == "/drain" || path == "/reload" {
			own = s.admin()
		}
		for kind, body := range forms {
			for _, fields := range []string{
				"Host: " + own + "\r\nOrigin: http://evil.example\r\nSec-Fetch-Site: cross-site\r\n", "Host: " + own + "\r\nOrigin: null\r\n",
				"Host: localhost:" + port + "\r\nOrigin: http://localhost:3000\r\n", "Host: " + own + "\r\nOrigin: http://" + own + "\r\n", // an app at the same address before
				"Host: evil.example:" + port + "\r\n", "Host: evil.example:" + port + "\r\nOrigin: http://evil.example:" + port + "\r\n",
				"Host: 127.0.0.1.evil.example\r\n", "Host: localhost.evil.example:" + port + "\r\n", "Host: localhostevil\r\n",
			} {
				answer := askRaw(t, own, fmt.Sprintf("POST %s HTTP/1.1\r\n%sContent-Type: %s\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", path, fields, kind, len(body), body))
				if answer.code() != 401 || strings.Join(answer.get("Holdfast-Reason"), "") != "unauthorized" {
					t.Errorf("POST %s as %s with %q: %d %.200s, want 401", path, kind, fields, answer.code(), answer.body)
				}
			}
		}
		// Asked first (a preflight), nothing is allowed; and what a link or an image
		// can ask for changes nothing.
		for _, request := range []string{"OPTIONS %s HTTP/1.1\r\nOrigin: http://evil.example\r\nAccess-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization\r\n", "GET %s HTTP/1.1\r\n", "HEAD %s HTTP/1.1\r\n"} {
			answer := askRaw(t, own, fmt.Sprintf(request, path)+"Host: "+own+"\r\nConnection: close\r\n\r\n")
			if answer.code() != 405 && answer.code() != 401 || answer.has("Access-Control-Allow-Origin", "") {
				t.Errorf("%q: %d %v", fmt.Sprintf(request, path), answer.code(), answer.fields)
			}
		}
	}
	if n := metric(t, s.admin(), "holdfast_events_published_total") + metric(t, s.admin(), `holdfast_reload_total{result="ok"}`); n != 0 || s.stateWord() != "ready" {
		t.Errorf("%v events published and reloads made, state %s", n, s.stateWord())
	}
	publishTo(t, s.publish, "news", "by a program") // the negative arm
}

// wantUntold looks for the mark in all that Holdfast tells.
func (s *holdsSite) wantUntold(told map[string]string) {
	s.t.Helper()
	if told == nil {
		told = make(map[string]string)
	}
	told["the log"] = s.log.String()
	for _, path := range []string{"/status", "/metrics", "/health", "/ready", "/", "/debug/pprof/cmdline", "/debug/pprof/goroutine?debug=2"} {
		told["admin's "+path] = string(wantGet(s.t, onceClient(), "http://"+s.admin()+path))
	}
	told["/health"] = string(wantGet(s.t, onceClient(), s.url("/health")))
	for what, text := range told {
		if at := strings.Index(strings.ToLower(text), secretMark); at >= 0 {
			s.t.Errorf("%s tells it: %q", what, text[max(at-150, 0):min(at+80, len(text))])
		}
	}
}

func TestSecrets_KeysAreToldNowhere(t *testing.T) {
	t.Parallel()
	s := startSecrets(t, secretsBase, secretsLanes)
	told := make(map[string]string)
	tell := func(addr, request string) {
		answer := askRaw(t, addr, request)
		told[fmt.Sprintf("the answer %d to %.80q", answer.code(), request)] = fmt.Sprint(answer.fields) + answer.body
	}
	for _, key := range []string{adminKey, publishKey, adminKey + "x", secretMark + "\x7f", secretMark + " x"} {
		for _, scheme := range []string{"Bearer ", "Basic ", "bearer ", ""} {
			field := "Authorization: " + scheme + key + "\r\nCookie: sessionid=" + secretMark + "\r\nConnection: close\r\n"
			for _, path := range ownPaths {
				addr := s.publish
				if strings.HasPrefix(path, "GET /") && !strings.Contains(path, "channels") || strings.Contains(path, "reload") {
					addr = s.admin()
				}
				if strings.Contains(path, "drain") || strings.Contains(path, "pprof") {
					continue
				}
				tell(addr, path+" HTTP/1.1\r\nHost: evil.example\r\n"+field+"Content-Length: 2\r\n\r\n{}")
			}
			for _, path := range []string{"/app/cut", "/app/broken", "/app/bad-hold", "/app/sse", "/nowhere", "/robots.txt", "/live/stream", "/health", "/rt/cut"} {
				tell(s.addr, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\n"+field+"\r\n")
			}
		}
	}
	// A socket whose messages fail: each goes with the handshake's fields.
	c := openSocket(t, s.addr, "/app/ws", "Authorization", "Bearer "+secretMark, "Cookie", "sessionid="+secretMark)
	if err := c.WriteMessage(1, []byte(secretMark+" in a message")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the app to fail", func() bool { return inboundCount(t, s.admin(), "failed") == 1 })
	// A file that cannot be put in force, once for what a key is and once for its line.
	good := readFile(t, s.path)
	for name, bad := range map[string]string{"a key that no header carries": "admin: {listen: \"127.0.0.1:0\", keys: [\"" + secretMark + " key\"]}\n", "a broken line": "admin: {listen: \"127.0.0.1:0\", keys: [\"" + secretMark + "]}\n",
		"a key of another type": "grip: {key: [" + secretMark + "]}\n", "an unset variable": "grip: {key: \"" + secretMark + "${NOT_SET_ANYWHERE}\"}\n"} {
		replaceFile(t, s.path, bad+good)
		answer := call(t, s.admin(), "POST", "/reload", "", nil)
		told[name] = answer.body
		if answer.code() != 400 {
			t.Errorf("%s: %d %s", name, answer.code(), answer.body)
		}
		told["doctor, "+name], _ = secretsDoctor(t, s.path)
	}
	replaceFile(t, s.path, good)
	for _, args := range [][]string{nil, {"--json"}} {
		out, shown := secretsDoctor(t, s.path, args...)
		told[fmt.Sprint("doctor", args)] = out
		if !shown {
			t.Errorf("doctor did not print the configuration: %.300s", out)
		}
	}
	_, out, errs := publishAs(t, "", "news", "x", "--url", s.publish, "--key", secretMark+"-wrong")
	told["the publish command"] = out + errs
	s.wantUntold(told)
	if len(told) < 100 || len(logLines(t, s.log.String(), "exchange")) < 100 {
		t.Errorf("%d answers and texts: too few to show anything", len(told))
	}
}

// secretsDoctor examines a file as a process; shown: it printed the configuration.
func secretsDoctor(t *testing.T, path string, args ...string) (out string, shown bool) {
	t.Helper()
	command := exec.Command(os.Args[0], append([]string{"doctor", "-c", path}, args...)...)
	command.Env = append(os.Environ(), asCommand+"=1", "ADMIN_KEY="+adminKey, "PUBLISH_KEY="+publishKey, "GRIP_KEY="+secretMark+"-grip-key", "THE_GRANT_KEY="+grantKey)
	b, _ := command.CombinedOutput() // its exit code is not what is looked at
	return string(b), bytes.Contains(b, []byte("(hidden)"))
}

// A query may hold a grant, a session or a position. It is for the app alone.
func TestSecrets_AQueryIsInNoLogMetricOrError(t *testing.T) {
	t.Parallel()
	s := startSecrets(t, holdsBase, secretsLanes)
	told := make(map[string]string)
	query := "?g=v1.00000000.9999999999.news.-." + secretMark + "&lastEventId=" + secretMark
	upgrade := "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
	for _, path := range []string{"/app/", "/app/cut", "/app/broken", "/app/bad-hold", "/app/sse", "/robots.txt", "/nowhere", "/only/", "/live/stream", "/live/ws", "/live/x", "/rt/", "/rt/cut", "/health", "/ready", "/ws/message"} {
		for _, target := range []string{path + query, "http://localhost" + path + query, path + query + "#" + secretMark, path + query + " x", path + query + "\x01", path + query + "\\%zz", path + query + strings.Repeat("x", 20000)} {
			for _, fields := range []string{"", "Origin: http://evil.example\r\n", upgrade, "Host: x\r\n", "Accept: text/event-stream\r\n", "Transfer-Encoding: gzip\r\n", "Expect: nothing\r\n"} {
				if path == "/app/sse" && fields != "" {
					continue // each takes its slot for a second longer
				}
				for _, method := range []string{"GET", "POST", "TRACE"} {
					answer := askFirst(t, s.addr, method+" "+target+" HTTP/1.1\r\nHost: localhost\r\n"+fields+"Content-Length: 0\r\n\r\n")
					told[fmt.Sprintf("the answer %s to %s %.100q %.20q", answer.status, method, target, fields)] = answer.status + fmt.Sprint(answer.fields) + answer.body
				}
			}
		}
	}
	for _, own := range []string{s.admin(), s.publish} {
		for _, path := range ownPaths {
			if strings.Contains(path, "drain") || strings.Contains(path, "pprof") {
				continue
			}
			for _, query := range []string{query, "?event=%zz" + secretMark, "?%" + secretMark} {
				answer := askFirst(t, own, path+query+" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}")
				told[fmt.Sprintf("the answer %s to %s", answer.status, path+query)] = answer.status + fmt.Sprint(answer.fields) + answer.body
			}
		}
	}
	granted := issue(t, grantKey, "'news', session='"+secretMark+"'")
	for _, fields := range []string{"", "Cookie: sessionid=" + secretMark + "\r\n", "Cookie: sessionid=" + secretMark + "x\r\n"} {
		askEvents(t, s.addr, granted+"&lastEventId="+secretMark, eventSource+fields)
	}
	for _, path := range []string{"/app/hold", "/app/held"} {
		askEvents(t, s.addr, path+query, eventSource).Close()
	}
	eventually(t, "holds to be seen", func() bool { return len(logLines(t, s.log.String(), "exchange")) > 1000 })
	if strings.Contains(s.log.String(), "v1.") {
		t.Error("the log has a grant")
	}
	s.wantUntold(told)
}

// askFirst reads one answer, or its head where it does not end; none is an
// answer too.
func askFirst(t *testing.T, addr, request string) *rawAnswer {
	t.Helper()
	c := dialRaw(t, addr)
	defer c.Close()
	io.WriteString(c, request)
	head, err := readRawHead(c.r)
	if err != nil {
		return &rawAnswer{status: "none"}
	}
	if length := head.get("Content-Length"); len(length) == 1 && !strings.HasPrefix(request, "HEAD") {
		var n int64
		fmt.Sscan(length[0], &n)
		body, _ := io.ReadAll(io.LimitReader(c.r, n))
		head.body = string(body)
	}
	return head
}

// What is in a line of the log, whoever sent it, begins no line of its own and
// does nothing to a terminal: C0 and C1 control characters, DEL, and what some
// programs take for an end of line (U+0085, U+2028, U+2029).
func TestSecrets_NoLineOfTheLogIsForged(t *testing.T) {
	for _, format := range []string{"json", "console"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			s := startSecrets(t, holdsBase, strings.Replace(secretsLanes, "access: true", "access: true, format: "+format, 1))
			forged := []string{"%0d%0a", "%0A{\"level\":\"error\",\"msg\":\"forged\"}", "\u0085FORGED", "\u2028FORGED", "\u2029FORGED", "\u009b2JFORGED", "\u009d0;title\u009cFORGED", "\xff\xfe", "\x9b31m", "\x85"}
			for _, bad := range append(forged, "\x1b[2J", "\r", "\n2026-01-01T00:00:00Z\tinfo\tFORGED", "\x7f", "\x00") {
				for _, path := range []string{"/app/", "/app/broken", "/app/hold", "/nowhere/", "/robots.txt", "/live/"} {
					askFirst(t, s.addr, "GET "+path+bad+" HTTP/1.1\r\nHost: localhost\r\nX-Request-ID: "+bad+"\r\nUser-Agent: "+bad+"\r\nX-Forwarded-For: "+bad+"\r\nLast-Event-ID: "+bad+"\r\n\r\n")
					askFirst(t, s.addr, bad+" "+path+" HTTP/1.1\r\nHost: "+bad+"\r\n\r\n")
				}
				for _, call := range []map[string]string{{"channel": bad, "data": bad}, {"channel": "news", "event": bad, "data": bad}, {bad: bad}} {
					body, _ := json.Marshal(call)
					askFirst(t, s.publish, fmt.Sprintf("POST /publish HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
				}
				askFirst(t, s.publish, "POST /publish/"+bad+" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
			}
			eventually(t, "the log", func() bool { return strings.Count(s.log.String(), "exchange") > 100 })
			for line := range strings.SplitSeq(strings.TrimSuffix(s.log.String(), "\n"), "\n") {
				whole := json.Valid([]byte(line))
				if format == "console" {
					whole = len(line) > 4 && line[:2] == "20" && strings.Count(line, "\t") >= 2 && !strings.HasSuffix(line, "FORGED")
				}
				if !whole {
					t.Fatalf("not a line of its own: %q", line)
				}
				if at := strings.IndexFunc(line, func(r rune) bool {
					return unicode.IsControl(r) && r != '\t' || r == '\u2028' || r == '\u2029' || r == '\t' && format == "json"
				}); at >= 0 {
					t.Fatalf("a character that is not for lines: %q", line)
				}
			}
		})
	}
}

// What a client says of its address is not believed, and an app is not told it.
func TestSecrets_AForgedAddressIsNotBelieved(t *testing.T) {
	t.Parallel()
	s := startSecrets(t, holdsBase, secretsLanes)
	forged := "X-Forwarded-For: 203.0.113.9\r\nx-forwarded-FOR: 127.0.0.1\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: evil.example\r\nX-Forwarded-Port: 1\r\nX-Forwarded-Prefix: /x\r\n" +
		"X-Forwarded-Anything: evil\r\nX-Real-IP: 203.0.113.9\r\nForwarded: for=203.0.113.9;proto=https;host=evil.example\r\nX_Forwarded_For: 203.0.113.9\r\nX_Real_IP: 203.0.113.9\r\n" +
		"M0-Position: 1\r\nM0-Channel: evil\r\nMeta-User: evil\r\nGrip-Sig: evil\r\n"
	saw := askRaw(t, s.addr, "GET /app/echo HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"+forged+"\r\n").body
	if saw == "" || strings.Contains(saw, "203.0.113.9") || strings.Contains(saw, "evil") || strings.Contains(saw, "https") ||
		!strings.Contains(saw, "X-Forwarded-For: 127.0.0.1\r\n") || !strings.Contains(saw, "X-Forwarded-Proto: http\r\n") || !strings.Contains(saw, "X-Forwarded-Host: localhost\r\n") {
		t.Errorf("the app saw %q", saw)
	}
	seen := 0
	if line := s.exchange(&seen); line["client"] != "127.0.0.1" {
		t.Errorf("the log has the client %v", line["client"])
	}
	// Behind a proxy that is believed, its last word counts, and one that is none is no word.
	s.base = holdsBase
	s.change(strings.Replace(secretsLanes, "trusted_proxies: []", "trusted_proxies: [127.0.0.0/8]", 1), &app{addr: s.targetAddr()})
	for field, detailed := range map[string]bool{"": true, "X-Forwarded-For: 203.0.113.9\r\n": false, "X-Forwarded-For: 127.0.0.1, 203.0.113.9\r\n": false, "X-Forwarded-For: 127.0.0.1\r\nX-Forwarded-For: 203.0.113.9\r\n": false,
		"X-Forwarded-For: localhost\r\n": false, "X-Forwarded-For: 127.0.0.1 203.0.113.9\r\n": false, "X-Forwarded-For: 203.0.113.9, 127.0.0.1\r\n": false, "X-Forwarded-For: 127.0.0.1\r\n": true, "X-Real-IP: 203.0.113.9\r\n": true} {
		body := askRaw(t, s.addr, "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"+field+"\r\n").body
		if strings.Contains(body, "version") != detailed {
			t.Errorf("/health with %q: %s; details are to be told: %v", field, body, detailed)
		}
	}
}

func (s *holdsSite) targetAddr() string {
	return strings.TrimPrefix(s.wiring.Load().config.Upstreams["app"].Targets[0], "http://")
}

// From another machine, which a network namespace with an address of its own
// stands for: who says to be this one gets no more than others.
func TestSecrets_FromAnotherMachineNobodyIsNear(t *testing.T) {
	t.Parallel()
	s := startSite(t, drainLanes, &app{addr: freeAddress(t)})
	s.stopAll(0)
	s.base = "listen: \"10.77.77.78:0\"\nadmin: {listen: \"10.77.77.78:0\"}\npublish: {listen: \"10.77.77.78:0\", keys: [first-key]}\n"
	s.write(drainLanes, &app{addr: freeAddress(t)})
	skip, done := "", make(chan struct{})
	go onOwnThread(func() {
		defer close(done)
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			skip = "no network namespace may be made here: " + err.Error()
			return
		}
		for _, args := range []string{"link set lo up", "addr add 10.77.77.78/32 dev lo"} {
			if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
				skip = fmt.Sprintf("ip %s: %v %s", args, err, out)
				return
			}
		}
		far := restarted(t, s)
		for _, forged := range []string{"", "X-Forwarded-For: 127.0.0.1\r\n", "X-Real-IP: 127.0.0.1\r\n", "Forwarded: for=127.0.0.1\r\n"} {
			dial := func(ln net.Listener) func() *rawClient {
				return func() *rawClient { return dialRaw(t, ln.Addr().String()) }
			}
			wantGuarded(t, dial(far.adminLn), []adminRequest{{"POST", "/drain", "localhost", forged, 401}, {"POST", "/reload", "127.0.0.1", forged, 401}, {"GET", "/debug/pprof/", "localhost", forged, 401}})
			wantGuarded(t, dial(far.publishLn), []adminRequest{{"GET", "/channels", "localhost", forged, 401}, {"GET", "/channels", "localhost", forged + key1, 200}})
			c := dialRaw(t, far.listeners[0].Addr().String())
			c.send("GET /health HTTP/1.1\r\nHost: localhost\r\n%s\r\n", forged)
			if _, body := c.wantAnswer(200); string(body) != `{"status":"ok"}`+"\n" && string(body) != `{"status":"ok"}` {
				t.Errorf("/health with %q: %s", forged, body)
			}
		}
		if len(far.drainNow) > 0 {
			t.Error("a refused request drained it")
		}
	})
	<-done
	if skip != "" {
		t.Skip(skip)
	}
}

// Origins that are like the one that is let in.
func TestSecrets_AnOriginThatIsLikeTheHostIsNotLetIn(t *testing.T) {
	t.Parallel()
	s := startSecrets(t, holdsBase, secretsLanes)
	grant := issue(t, grantKey, "'news'")
	paths := map[string]string{"a socket": "/app/ws", "a grant's socket": strings.Replace(grant, "/stream", "/ws", 1), "a grant's stream": grant}
	for name, path := range paths {
		for fields, allowed := range map[string]bool{
			"": true, "Origin: http://desk.example:8080\r\n": true,
			"Origin: http://desk.example:8080.evil.example\r\n": false, "Origin: http://evil.example/desk.example:8080\r\n": false, "Origin: http://evil.example#desk.example:8080\r\n": false,
			"Origin: http://desk.example:8080@evil.example\r\n": false, "Origin: http://evil@desk.example:8080\r\n": false, "Origin: desk.example:8080\r\n": false, "Origin: //desk.example:8080\r\n": false,
			"Origin: http://desk.example:8080/\r\n": false, "Origin: http://desk.example:80800\r\n": false, "Origin: http://desk.example.:8080\r\n": false,
			"Origin: null\r\n": false, "Origin: http://desk.example:8080 http://evil.example\r\n": false,
			"Origin: http://desk.example:8080\r\nOrigin: http://evil.example\r\n": false, "Origin: http://evil.example\r\nOrigin: http://desk.example:8080\r\n": false,
			"X-Forwarded-Host: evil.example\r\nOrigin: http://evil.example\r\n": false,
		} {
			upgrade := upgradeFields
			if name == "a grant's stream" {
				upgrade = eventSource
			}
			answer := askFirst(t, s.addr, "GET "+path+" HTTP/1.1\r\nHost: desk.example:8080\r\n"+upgrade+fields+"\r\n")
			if in := answer.code() == 101 || answer.code() == 200; in != allowed || !in && answer.code() != 403 && answer.code() != 400 {
				t.Errorf("%s with %q: %s; is to be let in: %v", name, fields, answer.status, allowed)
			}
		}
	}
}

// One grant, each of its bytes another: none of them opens anything.
func TestSecrets_AGrantOfWhichAByteIsAnotherIsRefused(t *testing.T) {
	t.Parallel()
	s := startSecrets(t, holdsBase, secretsLanes)
	good := issue(t, grantKey, "'news', session='the session'")
	cookie := "Cookie: sessionid=the session\r\n"
	at := strings.Index(good, "g=") + len("g=")
	for ; at < len(good); at++ {
		for _, other := range []byte{good[at] ^ 1, '.', 'A', '-'} {
			if other == good[at] || other < '!' || strings.IndexByte("%&+#\"<>", other) >= 0 {
				continue
			}
			altered := good[:at] + string(other) + good[at+1:]
			if answer := askFirst(t, s.addr, "GET "+altered+" HTTP/1.1\r\nHost: localhost\r\n"+eventSource+cookie+"\r\n"); answer.code() != 401 {
				t.Errorf("%s, byte %d as %q: %s", good, at, other, answer.status)
			}
		}
	}
	if n := subscribers(t, s.addr); n != 0 {
		t.Errorf("%d are held", n)
	}
	askEvents(t, s.addr, good, eventSource+cookie).wantOpen()
}

// startCaged runs the built binary as nobody, in a root of its own that has
// nothing but it and its configuration, and that cannot be written to: what an
// image from scratch with a read-only root is.
func startCaged(t *testing.T, yaml string, addresses ...any) *command {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("a root of its own needs root here")
	}
	binary, err := builtBinary()
	if err != nil {
		t.Fatal(err)
	}
	cage := t.TempDir()
	text := readFile(t, writeConfig(t, yaml, addresses...))
	for name, put := range map[string]func(*os.File) error{
		"holdfast":    func(f *os.File) error { _, err := io.Copy(f, io.NewSectionReader(binary, 0, 1<<40)); return err },
		"config.yaml": func(f *os.File) error { _, err := f.WriteString(text); return err },
	} {
		f, err := os.OpenFile(cage+"/"+name, os.O_CREATE|os.O_WRONLY, 0o755)
		if err == nil {
			err = put(f)
		}
		if err = errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(cage, 0o777); err != nil { // it is the mount that forbids
		t.Fatal(err)
	}
	// The mounts are those of the process alone, and end with it.
	script := `mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec chroot --userspec=65534:65534 --groups= "$0" /holdfast serve -c /config.yaml`
	if out, err := exec.Command("unshare", "--mount", "sh", "-c", `mount --bind "$0" "$0" && mount -o remount,bind,ro "$0"`, cage).CombinedOutput(); err != nil {
		t.Skipf("nothing may be mounted here: %v %s", err, out)
	}
	c := &command{Cmd: exec.Command("unshare", "--mount", "sh", "-c", script, cage), log: new(syncBuffer), ended: make(chan error, 1)}
	c.Env = []string{} // an image from scratch has none
	stderr, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Process.Kill()
		<-c.ended
		if t.Failed() {
			t.Logf("holdfast:\n%s", c.log)
		}
	})
	go c.readLog(stderr)
	eventually(t, "holdfast to listen", func() bool { c.addr = c.listening(); return c.addr != "" })
	return c
}

func TestSecrets_AsNobodyOnARootThatCannotBeWrittenItServes(t *testing.T) {
	t.Parallel()
	app := &http.Server{Handler: http.HandlerFunc(besiegedApp)}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go app.Serve(ln)
	t.Cleanup(func() { app.Close() })
	c := startCaged(t, starvingLanes, ln.Addr())
	c.eventuallySays(t, "ready")
	status := readFile(t, fmt.Sprintf("/proc/%d/status", c.Process.Pid))
	for _, line := range []string{"\nUid:\t65534\t65534\t65534\t65534\n", "\nGroups:\t \n", "\nCapEff:\t0000000000000000\n"} {
		if !strings.Contains(status, line) {
			t.Errorf("it does not run as nobody: %q is not in %s", line, status)
		}
	}
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/root/x", c.Process.Pid), nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("its root can be written to: %v", err)
	}
	b := &besieged{c, t}
	// Larger than what is kept in memory of one: there is no folder for the spool.
	client := newClient(t)
	if err := b.ask(client, "POST", "/form", strings.Repeat("x", 2<<20)); err != nil {
		t.Error(err)
	}
	if body := wantGet(t, client, "http://"+c.addr+"/page?bytes=3000000"); len(body) != 3000000 {
		t.Errorf("%d bytes", len(body))
	}
	f := follow(t, c.addr, "/events?channel=news")
	publishTo(t, c.publishAddr(t), "news", "from a cage")
	f.wantEvent("from a cage")
	wantGet(t, client, "http://"+c.admin(t)+"/metrics")
	c.signal(t, unix.SIGTERM)
	c.wantExit(t, exitOK)
}
