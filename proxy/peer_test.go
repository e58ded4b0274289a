package proxy_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"holdfast/lanes"
	"holdfast/proxy"
)

// startLogged is startServer with a log that can be read, and listens on a
// unix socket where network says so.
func startLogged(t *testing.T, network string, cfg proxy.Config, routes []proxy.Route) (addr string, logs *observer.ObservedLogs) {
	t.Helper()
	core, logs := observer.New(zapcore.DebugLevel)
	return startOver(t, network, cfg, routes, zap.New(core), nil), logs
}

func startOver(t *testing.T, network string, cfg proxy.Config, routes []proxy.Route, log, access *zap.Logger) (addr string) {
	t.Helper()
	server, err := proxy.New(cfg, routes, log, access)
	if err != nil {
		t.Fatal(err)
	}
	at := "127.0.0.1:0"
	if network == "unix" {
		at = filepath.Join(t.TempDir(), "s")
	}
	ln, err := net.Listen(network, at)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		server.Shutdown(ctx)
		if err := <-served; err != nil {
			t.Error("serve:", err)
		}
	})
	return ln.Addr().String()
}

// accessLog keeps lines as they would be written to a file.
type accessLog struct {
	mu    sync.Mutex
	lines []map[string]any
}

func (l *accessLog) Write(line []byte) (int, error) {
	fields := map[string]any{}
	err := json.Unmarshal(line, &fields)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fields)
	return len(line), err
}

func (l *accessLog) Sync() error { return nil }

func (l *accessLog) logger() *zap.Logger {
	return zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), l, zapcore.InfoLevel))
}

// wait gives the lines as soon as there are n of them.
func (l *accessLog) wait(t *testing.T, n int) (lines []map[string]any) {
	t.Helper()
	until(t, fmt.Sprintf("%d exchanges are logged", n), func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		lines = slices.Clone(l.lines)
		return len(lines) >= n
	})
	return lines
}

// askOver opens a connection, sends a request and reads the body of its answer.
func askOver(t *testing.T, network, addr, text string) (status int, body string) {
	t.Helper()
	conn, err := net.Dial(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	all, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(all)
}

// lines writes header fields, each "Name: value".
func lines(fields ...string) string {
	text := ""
	for _, field := range fields {
		text += field + "\r\n"
	}
	return text
}

func trust(networks ...string) (trusted proxy.Trusted) {
	for _, network := range networks {
		if network == "unix" {
			trusted.Unix = true
		} else {
			trusted.Networks = append(trusted.Networks, netip.MustParsePrefix(network))
		}
	}
	return trusted
}

// ---- Who the client is.

func TestPeer_TheClientIsTheLastAddressThatIsNoProxyOfOurs(t *testing.T) {
	const loopback, inner = "127.0.0.0/8", "10.0.0.0/8"
	type seen struct {
		network string
		trusted []string
		fields  []string
		client  string
		near    bool
	}
	forwarded := func(lists ...string) (fields []string) {
		for _, list := range lists {
			fields = append(fields, "X-Forwarded-For: "+list)
		}
		return fields
	}
	for name, c := range map[string]seen{
		"Untrusted":          {"tcp", nil, forwarded("203.0.113.9"), "127.0.0.1", true},
		"UntrustedAmongMany": {"tcp", []string{inner, "unix", "127.0.0.2/32", "::/0"}, forwarded("203.0.113.9"), "127.0.0.1", true},
		"NothingSaid":        {"tcp", []string{loopback}, nil, "127.0.0.1", true},
		"One":                {"tcp", []string{loopback}, forwarded("203.0.113.9"), "203.0.113.9", false},
		"ByThePeersOwn":      {"tcp", []string{"127.0.0.1/32"}, forwarded("203.0.113.9"), "203.0.113.9", false},
		"BehindTwo":          {"tcp", []string{loopback, inner}, forwarded("203.0.113.9, 10.0.0.1"), "203.0.113.9", false},
		"BehindOneUnknown":   {"tcp", []string{loopback}, forwarded("203.0.113.9, 10.0.0.1"), "10.0.0.1", false},
		"SpoofedLoopback":    {"tcp", []string{loopback}, forwarded("127.0.0.1, 203.0.113.9"), "203.0.113.9", false},
		"SpoofedTrusted":     {"tcp", []string{loopback, inner}, forwarded("10.0.0.9,203.0.113.9 , 10.0.0.1"), "203.0.113.9", false},
		"OnlyOurs":           {"tcp", []string{loopback, inner}, forwarded("10.0.0.7, 10.0.0.1"), "10.0.0.7", true},
		"LinesAreOneList":    {"tcp", []string{loopback, inner}, forwarded("198.51.100.1", "203.0.113.9, 10.0.0.1", "10.0.0.2"), "203.0.113.9", false},
		"CaseOfTheName":      {"tcp", []string{loopback}, []string{"x-FORWARDED-for: 203.0.113.9"}, "203.0.113.9", false},
		"OtherFieldsDoNot":   {"tcp", []string{loopback}, []string{"X-Real-IP: 203.0.113.9", "Forwarded: for=203.0.113.9", "X-Forwarded-Host: 203.0.113.9"}, "127.0.0.1", true},

		"Port":             {"tcp", []string{loopback}, forwarded("203.0.113.9:5050"), "203.0.113.9", false},
		"IPv6":             {"tcp", []string{loopback}, forwarded("2001:db8::7"), "2001:db8::7", false},
		"IPv6Port":         {"tcp", []string{loopback}, forwarded("[2001:db8::7]:443"), "2001:db8::7", false},
		"IPv6InBrackets":   {"tcp", []string{loopback}, forwarded("[2001:db8::7]"), "2001:db8::7", false},
		"IPv6Trusted":      {"tcp", []string{loopback, "2001:db8::/32"}, forwarded("203.0.113.9, 2001:db8::7, [2001:db8::8]:1"), "203.0.113.9", false},
		"IPv4InIPv6":       {"tcp", []string{loopback}, forwarded("::ffff:203.0.113.9"), "203.0.113.9", false},
		"IPv4InIPv6IsOurs": {"tcp", []string{loopback, inner}, forwarded("203.0.113.9, ::ffff:10.0.0.1"), "203.0.113.9", false},
		"IPv6Loopback":     {"tcp", []string{loopback}, forwarded("::1"), "::1", true},

		// What cannot be read is nobody's address: not the next proxy's.
		"Unknown":          {"tcp", []string{loopback}, forwarded("unknown"), "*", false},
		"UnknownBehindTwo": {"tcp", []string{loopback, inner}, forwarded("203.0.113.9, unknown, 10.0.0.1"), "*", false},
		"UnknownInFront":   {"tcp", []string{loopback}, forwarded("unknown, 203.0.113.9"), "203.0.113.9", false},
		"NoPort":           {"tcp", []string{loopback}, forwarded("203.0.113.9:99999"), "*", false},
		"Script":           {"tcp", []string{loopback}, forwarded("<script>"), "*", false},
		"EmptyElements":    {"tcp", []string{loopback, inner}, forwarded(" , 203.0.113.9,, 10.0.0.1, ,"), "203.0.113.9", false}, // RFC 9110 §5.6.1
		"Empty":            {"tcp", []string{loopback}, forwarded(""), "127.0.0.1", true},

		"UnixUntrusted": {"unix", []string{loopback}, forwarded("203.0.113.9"), "invalid IP", true},
		"Unix":          {"unix", []string{"unix"}, forwarded("203.0.113.9"), "203.0.113.9", false},
		"UnixBehindTwo": {"unix", []string{"unix", inner}, forwarded("198.51.100.1, 203.0.113.9, 10.0.0.1"), "203.0.113.9", false},
		"UnixSaysNone":  {"unix", []string{"unix"}, nil, "invalid IP", true},
	} {
		t.Run(name, func(t *testing.T) {
			who := func(asked *proxy.Asked) proxy.Respond {
				return proxy.Respond{Status: 200, Body: fmt.Appendf(nil, "%v %v", asked.Client, asked.Near)}
			}
			addr, _ := startLogged(t, c.network, proxy.Config{Trusted: trust(c.trusted...)}, []proxy.Route{{Match: "/", Answer: who}})
			_, got := askOver(t, c.network, addr, "GET / HTTP/1.1\r\nHost: a.test\r\n"+lines(c.fields...)+"\r\n")
			client, near, _ := strings.Cut(got, " ")
			if client == "invalid" {
				client, near = "invalid IP", strings.TrimPrefix(near, "IP ")
			}
			if c.client != "*" && client != c.client || near != strconv.FormatBool(c.near) {
				t.Errorf("it is %s, near: %s; want %s, near: %v", client, near, c.client, c.near)
			}
		})
	}
}

// ---- What the app is told of the way.

var saysAll = []string{
	"X-Forwarded-For: 198.51.100.1", "X-Forwarded-Proto: https", "x-forwarded-host: public.test", "X-Forwarded-Port: 443",
	"X-Forwarded-For: 203.0.113.9 , 10.0.0.1", "X-Forwarded-Prefix: /app", "Forwarded: for=203.0.113.9;proto=https", "X-Real-IP: 203.0.113.9",
	"Connection: X-Forwarded-For, X-Forwarded-Proto, keep-alive",
}

func TestPeer_WhatIsSaidOfTheWayIsBelievedOfTrustedPeersOnly(t *testing.T) {
	for name, c := range map[string]struct {
		network string
		trusted []string
		says    []string
		want    [][2]string // all fields of the family, by name and order
	}{
		"Untrusted": {"tcp", nil, saysAll, [][2]string{
			{"X-Forwarded-For", "127.0.0.1"}, {"X-Forwarded-Proto", "http"}, {"X-Forwarded-Host", "a.test"}}},
		"UntrustedSaysNothing": {"tcp", nil, nil, [][2]string{
			{"X-Forwarded-For", "127.0.0.1"}, {"X-Forwarded-Proto", "http"}, {"X-Forwarded-Host", "a.test"}}},
		"Trusted": {"tcp", []string{"127.0.0.1/32"}, saysAll, [][2]string{
			{"X-Forwarded-For", "198.51.100.1, 203.0.113.9 , 10.0.0.1, 127.0.0.1"},
			{"X-Forwarded-Proto", "https"}, {"x-forwarded-host", "public.test"}, {"X-Forwarded-Port", "443"},
			{"X-Forwarded-Prefix", "/app"}, {"Forwarded", "for=203.0.113.9;proto=https"}, {"X-Real-IP", "203.0.113.9"}}},
		"TrustedSaysNothing": {"tcp", []string{"127.0.0.1/32"}, nil, [][2]string{
			{"X-Forwarded-For", "127.0.0.1"}, {"X-Forwarded-Proto", "http"}, {"X-Forwarded-Host", "a.test"}}},
		"UnixUntrusted": {"unix", []string{"0.0.0.0/0", "::/0"}, saysAll, [][2]string{
			{"X-Forwarded-Proto", "http"}, {"X-Forwarded-Host", "a.test"}}},
		"UnixTrusted": {"unix", []string{"unix"}, saysAll, [][2]string{
			{"X-Forwarded-For", "198.51.100.1, 203.0.113.9 , 10.0.0.1"},
			{"X-Forwarded-Proto", "https"}, {"x-forwarded-host", "public.test"}, {"X-Forwarded-Port", "443"},
			{"X-Forwarded-Prefix", "/app"}, {"Forwarded", "for=203.0.113.9;proto=https"}, {"X-Real-IP", "203.0.113.9"}}},
	} {
		t.Run(name, func(t *testing.T) {
			app := startNamed(t, "app")
			addr, logs := startLogged(t, c.network, proxy.Config{Trusted: trust(c.trusted...)}, []proxy.Route{{Match: "/", Lane: app.lane}})
			if status, body := askOver(t, c.network, addr, "GET / HTTP/1.1\r\nHost: a.test\r\n"+lines(c.says...)+"\r\n"); status != 200 {
				t.Fatalf("%d %s", status, body)
			}
			request := app.Since(0)[0]
			var got [][2]string
			for _, field := range request.Fields {
				name := strings.ToLower(field[0])
				if strings.HasPrefix(name, "x-forwarded-") || name == "forwarded" || name == "x-real-ip" {
					got = append(got, field)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("the app was told\n%q, want\n%q", got, c.want)
			}
			told := 0
			if c.says != nil && strings.HasSuffix(name, "ntrusted") {
				told = 1
			}
			if got := logs.FilterMessageSnippet("X-Forwarded-Proto").Len(); got != told {
				t.Errorf("said %d times in the log, want %d", got, told)
			}
		})
	}
}

func TestPeer_AnUntrustedPeersProtoIsSaidOnceInTheLog(t *testing.T) {
	app := startNamed(t, "app")
	addr, logs := startLogged(t, "tcp", proxy.Config{Trusted: trust("10.0.0.0/8", "unix")}, []proxy.Route{{Match: "/", Lane: app.lane}})
	told := func() int { return logs.FilterMessageSnippet("trusted_proxies").Len() }
	for _, fields := range []string{"", "X-Forwarded-For: 203.0.113.9\r\n", "X-Forwarded-Port: 443\r\nForwarded: proto=https\r\n"} {
		say(t, addr, "GET / HTTP/1.1\r\nHost: a.test\r\n"+fields+"\r\n").wantAnswer(t, "GET", 200, "app")
	}
	if told() != 0 {
		t.Errorf("without X-Forwarded-Proto it is said: %v", logs.All())
	}
	for range 3 {
		c := dialWire(t, addr)
		for range 2 {
			c.say(t, "GET / HTTP/1.1\r\nHost: a.test\r\nx-forwarded-PROTO: https\r\n\r\n")
			c.wantAnswer(t, "GET", 200, "app")
		}
	}
	entries := logs.FilterMessageSnippet("X-Forwarded-Proto").FilterMessageSnippet("trusted_proxies").All()
	if len(entries) != 1 || entries[0].Level != zapcore.WarnLevel || entries[0].ContextMap()["client"] != "127.0.0.1" {
		t.Errorf("in the log it is said %d times: %v", len(entries), entries)
	}
}

// ---- Request ids.

func TestRequestID_AWellFormedOneIsKeptAndAnyOtherMadeAnew(t *testing.T) {
	made := regexp.MustCompile("^[0-9a-f]{32}$")
	app := startNamed(t, "app")
	c := dialWire(t, startServer(t, proxy.Config{}, []proxy.Route{{Match: "/", Lane: app.lane}}))
	long := strings.Repeat("x", 128)
	seen := map[string]bool{}
	for i, ask := range []struct {
		sent []string
		kept string // "": made anew
	}{
		{nil, ""}, {nil, ""}, {[]string{"a"}, "a"}, {[]string{"7f3c-AB:c/d+e=f~{}()<>"}, "7f3c-AB:c/d+e=f~{}()<>"}, {[]string{long}, long}, {[]string{" \tpadded "}, "padded"},
		{[]string{""}, ""}, {[]string{long + "x"}, ""}, {[]string{"a b"}, ""}, {[]string{"a\tb"}, ""}, {[]string{"a,b"}, ""}, {[]string{`a"b`}, ""},
		{[]string{`a\b`}, ""}, {[]string{"caf\u00e9"}, ""}, {[]string{"\xff"}, ""},
		{[]string{"first", "second"}, "first"}, {[]string{"not one", "second"}, "second"}, {[]string{"", ""}, ""},
	} {
		text := "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: keep-alive, X-Request-ID\r\n"
		for n, id := range ask.sent {
			text += []string{"X-Request-ID: ", "x-request-id: "}[n] + id + "\r\n"
		}
		c.say(t, text+"\r\n")
		answer := c.wantAnswer(t, "GET", 200, "app")
		ids := fieldValues(app.Since(i)[0].Fields, "X-Request-ID")
		if len(ids) != 1 || ask.kept != "" && ids[0] != ask.kept || ask.kept == "" && !made.MatchString(ids[0]) {
			t.Errorf("of %q the app gets %q", ask.sent, ids)
			continue
		}
		if seen[ids[0]] {
			t.Errorf("%s is not the only one", ids[0])
		}
		seen[ids[0]] = true
		if got := answer.get("X-Request-ID"); got != ids[0] {
			t.Errorf("the answer has %q, and the app had %q", got, ids[0])
		}
	}
}

func TestRequestID_TheAppsOwnInAnAnswerIsTheOnlyOne(t *testing.T) {
	cases := []struct{ says, want string }{
		{"200 OK\r\nContent-Length: 0\r\nX-Request-ID: apps", "apps"},
		{"200 OK\r\nx-request-id: apps\r\nContent-Length: 0", "apps"},
		{"204 No Content\r\nX-REQUEST-ID: apps", "apps"},
		{"200 OK\r\nContent-Length: 0", "clients"},
		{"204 No Content", "clients"},
		{"304 Not Modified\r\nETag: \"a\"", "clients"},
	}
	p := startOneLane(t, func(conn net.Conn, request recordedRequest) bool {
		_, err := io.WriteString(conn, "HTTP/1.1 "+cases[request.Seq].says+"\r\n\r\n")
		return err == nil
	}, lanes.Config{Slots: 1}, proxy.Config{})
	c := dialWire(t, p.addr)
	for _, ask := range cases {
		c.say(t, "GET / HTTP/1.1\r\nHost: a.test\r\nX-Request-ID: clients\r\n\r\n")
		answer, err := c.Read("GET")
		if got := answer.get("X-Request-ID"); err != nil || got != ask.want {
			t.Errorf("of %q the client gets %q, %v; want %q", ask.says, got, err, ask.want)
		}
	}
}

func TestRequestStart_IsOursAndOfNow(t *testing.T) {
	app := startNamed(t, "app")
	c := dialWire(t, startServer(t, proxy.Config{Trusted: trust("127.0.0.0/8")}, []proxy.Route{{Match: "/", Lane: app.lane}}))
	before := time.Now().UnixMicro()
	c.say(t, "GET / HTTP/1.1\r\nHost: a.test\r\nX-Request-Start: t=1\r\nx-request-start: 2\r\n\r\n")
	c.wantAnswer(t, "GET", 200, "app")
	text, ok := strings.CutPrefix(app.Since(0)[0].Get("X-Request-Start"), "t=")
	at, err := strconv.ParseInt(text, 10, 64)
	if !ok || err != nil || at < before || at > time.Now().UnixMicro() {
		t.Errorf("the app was told %q", fieldValues(app.Since(0)[0].Fields, "X-Request-Start"))
	}
}

// ---- The access log.

// Each line is of its own exchange, whatever came before on the connection.
func TestAccessLog_SaysWhoAskedAndUnderWhichID(t *testing.T) {
	app := startNamed(t, "app")
	log := new(accessLog)
	addr := startOver(t, "tcp", proxy.Config{AccessLog: true, Trusted: trust("127.0.0.0/8")}, []proxy.Route{
		{Match: "/app/", Lane: app.lane}, {Match: "/here", Respond: &proxy.Respond{Status: 200, Body: []byte("here")}},
	}, zap.NewNop(), log.logger())
	asks := []struct {
		line, fields string
		status       int
		route, lane  string
		client, id   string // id "*": one that was made
	}{
		{"GET /here?secret", "X-Forwarded-For: 203.0.113.9\r\n", 200, "/here", "", "203.0.113.9", ""},
		{"GET /app/a?secret", "X-Request-ID: one\r\nX-Forwarded-For: 203.0.113.9, 203.0.113.8\r\n", 200, "/app/", "app", "203.0.113.8", "one"},
		{"GET /here", "", 200, "/here", "", "127.0.0.1", ""},
		{"GET /app/b", "", 200, "/app/", "app", "127.0.0.1", "*"},
		{"GET /none", "", 404, "", "", "127.0.0.1", ""},
		{"POST /here", "", 405, "", "", "127.0.0.1", ""},
	}
	c := dialWire(t, addr)
	for i, ask := range asks {
		c.say(t, ask.line+" HTTP/1.1\r\nHost: a.test\r\n"+ask.fields+"\r\n")
		c.wantAnswer(t, "GET", ask.status, "*")
		if i == len(asks)-1 {
			c.Close()
		}
	}
	lines := log.wait(t, len(asks))
	for i, ask := range asks {
		got := lines[i]
		method, target, _ := strings.Cut(ask.line, " ")
		path, _, _ := strings.Cut(target, "?")
		lane, _ := got["lane"].(string)
		for name, want := range map[string]any{
			"method": method, "path": path, "status": float64(ask.status), "route": ask.route, "client": ask.client,
		} {
			if got[name] != want {
				t.Errorf("of %q the log says %s %v, want %v", ask.line, name, got[name], want)
			}
		}
		if lane != ask.lane {
			t.Errorf("of %q the log says lane %q, want %q", ask.line, lane, ask.lane)
		}
		if id, _ := got["request_id"].(string); ask.id == "*" && len(id) != 32 || ask.id != "*" && id != ask.id {
			t.Errorf("of %q the log says request_id %q, want %q", ask.line, id, ask.id)
		}
		if strings.Contains(fmt.Sprint(got), "secret") {
			t.Errorf("of %q the log has the query: %v", ask.line, got)
		}
	}
}
