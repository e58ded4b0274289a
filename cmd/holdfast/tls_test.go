package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/proxy"
)

// ---- What is spoken.

func TestTLS_VersionsBelow12AndOtherProtocolsAreRefused(t *testing.T) {
	t.Parallel()
	ca, dir := newCA(t, "ca"), t.TempDir()
	ca.writePair(t, dir, wanted{})
	s := startSecured(t, dir, "", tlsRoutes)
	for name, c := range map[string]struct {
		change  func(*tls.Config)
		version uint16 // 0: refused
		agreed  string
	}{
		"1.0":         {func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS10 }, 0, ""},
		"1.1":         {func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS11 }, 0, ""},
		"1.2":         {func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }, tls.VersionTLS12, ""},
		"1.3":         {func(c *tls.Config) {}, tls.VersionTLS13, ""},
		"WithHTTP2":   {func(c *tls.Config) { c.NextProtos = []string{"h2", "http/1.1"} }, tls.VersionTLS13, "http/1.1"},
		"HTTP2Alone":  {func(c *tls.Config) { c.NextProtos = []string{"h2"} }, 0, ""},
		"HTTP11Alone": {func(c *tls.Config) { c.NextProtos = []string{"http/1.1"} }, tls.VersionTLS13, "http/1.1"},
	} {
		config := ca.believes()
		c.change(config)
		conn, err := tls.Dial("tcp", addrOf(s.holdfast), config)
		if err != nil {
			if c.version != 0 {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if state := conn.ConnectionState(); state.Version != c.version || state.NegotiatedProtocol != c.agreed {
			t.Errorf("%s: version %x and protocol %q", name, state.Version, state.NegotiatedProtocol)
		}
		conn.Close()
	}
}

func TestTLS_AllThreeListenersServeItBesideOneWithout(t *testing.T) {
	t.Parallel()
	ca, dir := newCA(t, "ca"), t.TempDir()
	ca.writePair(t, dir, wanted{})
	s := startSecured(t, dir, "", tlsRoutes)
	client := securedClient(ca.believes())
	for url, want := range map[string]string{
		"https://" + addrOf(s.holdfast) + "/fixed":             "fixed\n",
		"http://" + s.listeners[1].Addr().String() + "/fixed":  "fixed\n",
		"https://" + addrOf(s.holdfast) + "/health":            `"lanes"`, // as near as without TLS
		"https://" + s.admin() + "/status":                     `"lanes"`,
		"https://" + s.publishLn.Addr().String() + "/channels": `"head"`,
	} {
		if status, body, err := askURL(client, "GET", url, ""); status != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %q %v", url, status, body, err)
		}
	}
	if status, body, err := askURL(client, "POST", "https://"+s.publishLn.Addr().String()+"/publish", `{"channel": "news", "data": "x"}`); status != 200 {
		t.Errorf("publish: %d %s %v", status, body, err)
	}
	if status, body, _ := askURL(client, "GET", "http://"+addrOf(s.holdfast)+"/fixed", ""); status != 400 || !strings.Contains(body, "https://") {
		t.Errorf("without TLS: %d %q", status, body)
	}
}

// curl has another TLS than Go's.
func TestTLS_CurlIsServedAndFindsTheEnd(t *testing.T) {
	t.Parallel()
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("there is no curl")
	}
	ca, dir := newCA(t, "ca"), t.TempDir()
	ca.writePair(t, dir, wanted{})
	write(t, dir, map[string][]byte{"ca.crt": ca.pem})
	s := startSecured(t, dir, "", tlsRoutes)
	url := "https://localhost:" + addrOf(s.holdfast)[strings.LastIndexByte(addrOf(s.holdfast), ':')+1:] + "/fixed"
	for _, args := range [][]string{{}, {"--tlsv1.2", "--tls-max", "1.2"}, {"--http2"}, {"--no-alpn", "--http1.0"}} {
		args = append(args, "-sS", "--ipv4", "--cacert", filepath.Join(dir, "ca.crt"), url, url)
		if out, err := exec.Command(curl, args...).CombinedOutput(); err != nil || string(out) != "fixed\nfixed\n" {
			t.Errorf("curl %v: %q %v", args, out, err)
		}
	}
}

// ---- Who may publish.

func TestTLS_AClientWithoutACertificateOfTheCAIsNotServed(t *testing.T) {
	t.Parallel()
	ca, clients, strangers, dir := newCA(t, "ca"), newCA(t, "clients"), newCA(t, "strangers"), t.TempDir()
	ca.writePair(t, dir, wanted{})
	write(t, dir, map[string][]byte{"clients.crt": clients.pem})
	s := startSecured(t, dir, dir+"/clients.crt", tlsRoutes)
	url := "https://" + s.publishLn.Addr().String() + "/publish"
	const event = `{"channel": "news", "data": "x"}`
	for name, c := range map[string]struct {
		shows  []tls.Certificate
		fields []string
		status int // 0: there is no answer
	}{
		"None":       {nil, nil, 0},
		"WrongCA":    {strangers.shows(t, wanted{}), nil, 0},
		"OfTheOther": {ca.shows(t, wanted{}), nil, 0}, // which signed the server's
		"Expired":    {clients.shows(t, wanted{until: -time.Minute}), nil, 0},
		"NotYet":     {clients.shows(t, wanted{from: 2 * time.Hour}), nil, 0},
		"Right":      {clients.shows(t, wanted{}), nil, 200},
		// A browser that has a certificate must not be made to publish.
		"WithOrigin":       {clients.shows(t, wanted{}), []string{"Origin: https://evil.test"}, 401},
		"OfAnotherName":    {clients.shows(t, wanted{}), []string{"Host: evil.test"}, 401},
		"OfItsOwnName":     {clients.shows(t, wanted{}), []string{"Host: localhost:5561"}, 200},
		"OfItsOwnNameToo":  {clients.shows(t, wanted{}), []string{"Host: holdfast.test"}, 401},
		"OfAnotherAddress": {clients.shows(t, wanted{}), []string{"Host: 10.1.2.3"}, 200},
	} {
		status, body, err := askURL(securedClient(ca.believes(c.shows...)), "POST", url, event, c.fields...)
		if status != c.status || c.status == 0 && err == nil {
			t.Errorf("%s: %d %s %v; want %d", name, status, body, err, c.status)
		}
	}
	// The names of the certificate are the listener's own.
	ca.writePair(t, dir, wanted{names: []string{"localhost", "holdfast.test", "*.pods.test"}})
	s.lookAtCertificates()
	for host, want := range map[string]int{"holdfast.test:5561": 200, "a.pods.test": 200, "a.b.pods.test": 401, "pods.test": 401} {
		client := securedClient(ca.believes(clients.shows(t, wanted{})...))
		if status, body, err := askURL(client, "POST", url, event, "Host: "+host); status != want {
			t.Errorf("as %s: %d %s %v", host, status, body, err)
		}
	}
	if ids := s.holds.Snapshot().Published; ids != 5 {
		t.Errorf("%d events were published", ids)
	}
}

func TestAccess_AVerifiedCertificateStandsWhereThisMachineStands(t *testing.T) {
	yes := func(*proxy.Asked) proxy.Respond { return proxy.Respond{Status: 200} }
	for _, c := range []struct {
		keys           []string
		near, verified bool
		act, publish   int
	}{
		{nil, false, false, 401, 401},
		{nil, true, false, 200, 200},
		{nil, false, true, 200, 200},
		{[]string{"k"}, true, false, 200, 401},
		{[]string{"k"}, false, true, 200, 401}, // a key is a key
	} {
		a := newAccess(c.keys, nil)
		asked := &proxy.Asked{Near: c.near, Verified: c.verified}
		if got := a.guard(true, yes)(asked).Status; got != c.act {
			t.Errorf("%+v: to act is %d", c, got)
		}
		if got := a.guardKeyed(yes)(asked).Status; got != c.publish {
			t.Errorf("%+v: to publish is %d", c, got)
		}
	}
}

// From another machine, which a network namespace with an address of its own
// stands for: a certificate is what makes the difference.
func TestTLS_FromAnotherMachineACertificateOpensWhatAKeyOpens(t *testing.T) {
	t.Parallel()
	ca, clients, dir := newCA(t, "ca"), newCA(t, "clients"), t.TempDir()
	ca.writePair(t, dir, wanted{})
	write(t, dir, map[string][]byte{"clients.crt": clients.pem})
	s := &site{t: t, path: filepath.Join(dir, "config.yaml"), log: new(syncBuffer)}
	replaceFile(t, s.path, fmt.Sprintf(`
listen: "127.0.0.1:0"
admin: {listen: {address: "10.77.77.79:0", tls: %[1]s}}
publish: {listen: {address: "10.77.77.79:0", tls: %[1]s}}
`, tlsOf(dir, dir+"/clients.crt"))+tlsRoutes)
	skip, done := "", make(chan struct{})
	go onOwnThread(func() {
		defer close(done)
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			skip = "no network namespace may be made here: " + err.Error()
			return
		}
		for _, args := range []string{"link set lo up", "addr add 10.77.77.79/32 dev lo"} {
			if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
				skip = fmt.Sprintf("ip %s: %v %s", args, err, out)
				return
			}
		}
		far := restarted(t, s)
		config := ca.believes(clients.shows(t, wanted{})...)
		for _, c := range []struct {
			ln     net.Listener
			text   string
			status string
		}{
			{far.adminLn, "POST /reload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", "200"},
			{far.adminLn, "POST /reload HTTP/1.1\r\nHost: localhost\r\nOrigin: https://a.test\r\nContent-Length: 0\r\n\r\n", "401"},
			{far.publishLn, "POST /publish/news HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx", "200"},
		} {
			// By this thread: others are in another namespace.
			raw, err := net.Dial("tcp", c.ln.Addr().String())
			if err != nil {
				t.Error(err)
				return
			}
			conn := tls.Client(raw, config)
			io.WriteString(conn, c.text)
			line, err := bufio.NewReader(conn).ReadString('\n')
			conn.Close()
			if !strings.HasPrefix(line, "HTTP/1.1 "+c.status+" ") {
				t.Errorf("%q: %q %v, want %s", c.text, line, err, c.status)
			}
		}
	})
	<-done
	if skip != "" {
		t.Skip(skip)
	}
}

// onOwnThread runs f on a thread that ends with it. It is not the first one,
// which never does, and whose namespace /proc/self/net shows.
func onOwnThread(f func()) {
	runtime.LockOSThread()
	if unix.Gettid() != os.Getpid() {
		f()
		return
	}
	done := make(chan struct{})
	go func() { defer close(done); onOwnThread(f) }()
	<-done
	runtime.UnlockOSThread()
}

// ---- The main behaviours over TLS.

// gatedApp answers /slow when the gate is open, /events with a hold, and the
// rest at once, with what it was told of the way.
func gatedApp(t *testing.T, gate <-chan struct{}) (addr string) {
	t.Helper()
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/slow":
			<-gate
		case "/events":
			w.Header().Set("M0-Hold", "stream")
			w.Header().Set("M0-Channel", "news")
			return
		}
		fmt.Fprint(w, r.URL.Path, " ", r.Header.Get("X-Forwarded-Proto"))
	}))
	t.Cleanup(app.Close)
	return app.Listener.Addr().String()
}

const gatedLanes = `
upstreams: {app: {targets: ["http://%s"]}}
lanes: {web: {upstream: app, slots: 2}, slow: {upstream: app, slots: 2, queue: 64, queue_timeout: 60s}}
routes:
  - {match: /, lane: web}
  - {match: /slow, lane: slow}
`

func TestTLS_FastViewsAreAnsweredBeforeAnySlowOneEnds(t *testing.T) {
	t.Parallel()
	ca, dir, gate := newCA(t, "ca"), t.TempDir(), make(chan struct{})
	ca.writePair(t, dir, wanted{})
	s := startSecured(t, dir, "", fmt.Sprintf(gatedLanes, gatedApp(t, gate)))
	base := "https://" + addrOf(s.holdfast)
	slow := make(chan string, 8)
	for range 8 {
		go func() {
			_, body, _ := askURL(securedClient(ca.believes()), "GET", base+"/slow", "")
			slow <- body
		}()
	}
	eventually(t, "the slow lane to be full", func() bool {
		lane := s.wiring.Load().lanes["slow"].Snapshot()
		return lane.InUse == 2 && lane.Waiting == 6
	})
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: ca.believes()}, Timeout: time.Minute}
	defer client.CloseIdleConnections()
	for i := range 50 {
		if status, body, err := askURL(client, "GET", base+"/fast", ""); status != 200 || body != "/fast https" {
			t.Fatalf("fast view %d: %d %q %v", i, status, body, err)
		}
	}
	if len(slow) > 0 {
		t.Errorf("%d slow views ended before the gate was open", len(slow))
	}
	close(gate)
	for range 8 {
		if body := <-slow; body != "/slow https" {
			t.Errorf("a slow view: %q", body)
		}
	}
}

func TestTLS_ADrainEndsStreamsCleanlyAndTheProcessWithThem(t *testing.T) {
	t.Parallel()
	ca, dir := newCA(t, "ca"), t.TempDir()
	ca.writePair(t, dir, wanted{})
	s := startSecured(t, dir, "", fmt.Sprintf(gatedLanes, gatedApp(t, nil)))
	var streams []*bufio.Reader
	for range 20 {
		conn, err := tls.Dial("tcp", addrOf(s.holdfast), ca.believes())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		conn.SetDeadline(time.Now().Add(time.Minute))
		io.WriteString(conn, "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
		streams = append(streams, bufio.NewReader(conn))
	}
	eventually(t, "all to be held", func() bool { return s.holds.Snapshot().Streams == len(streams) })
	publishOver := securedClient(ca.believes())
	if status, body, err := askURL(publishOver, "POST", "https://"+s.publishLn.Addr().String()+"/publish/news", "hello"); status != 200 || !strings.Contains(body, `"reached": 20`) {
		t.Errorf("%d %s %v", status, body, err)
	}
	s.drainNow <- struct{}{}
	ended := make(chan int, 1)
	go func() { ended <- s.run(&signalSource{}, io.Discard) }()
	for _, stream := range streams {
		rest, err := io.ReadAll(stream)
		if err != nil || !strings.Contains(string(rest), "data: hello\n") || !strings.HasSuffix(string(rest), "0\r\n\r\n") {
			t.Errorf("a stream ends with %q, %v", rest, err)
		}
	}
	if code := <-ended; code != exitOK {
		t.Errorf("exit code %d", code)
	}
}

// ---- The commands.

// commanded serves a file with fixed ports, and TLS on admin and publish.
func commanded(t *testing.T, dir, clients string) (s *site, admin, publish string) {
	t.Helper()
	admin, publish = freeAddress(t), freeAddress(t)
	return startText(t, fmt.Sprintf("listen: \"127.0.0.1:0\"\nlog: {level: debug}\nadmin: {listen: {address: %q, tls: %s}}\npublish: {listen: {address: %q, tls: %s}}\n",
		admin, tlsOf(dir, clients), publish, tlsOf(dir, clients))+tlsRoutes), admin, publish
}

func TestTLS_CommandsFindTheListenerOfTheirFile(t *testing.T) {
	t.Parallel()
	ca, dir := newCA(t, "ca"), t.TempDir()
	ca.writePair(t, dir, wanted{names: []string{"elsewhere.test"}}) // whatever name it is for
	s, admin, publish := commanded(t, dir, "")
	path := s.path
	write(t, dir, map[string][]byte{"ca.crt": ca.pem})
	other := newCA(t, "other")
	write(t, dir, map[string][]byte{"other.crt": other.pem})
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"publish", "news", "x", "-c", path}, 0, "reached 0"},
		{[]string{"reload", "-c", path}, 0, "reloaded"},
		{[]string{"ready", "-c", path}, 1, "not ready"},
		{[]string{"publish", "news", "x", "--url", "https://" + publish, "--ca", dir + "/ca.crt"}, 0, "reached 0"},
		{[]string{"publish", "news", "x", "--url", publish, "--ca", dir + "/ca.crt"}, 0, "reached 0"},
		{[]string{"reload", "--admin", "https://" + admin, "--ca", dir + "/ca.crt"}, 0, "reloaded"},
		{[]string{"reload", "--admin", "https://" + admin, "--ca", dir + "/other.crt"}, 1, "name the CA that has signed its certificate with --ca"},
		{[]string{"reload", "--admin", "https://" + admin}, 1, "name the CA that has signed its certificate with --ca"},
		{[]string{"reload", "--admin", admin}, 1, "https://"}, // what a TLS address says to who has none
		{[]string{"reload", "--admin", "http://" + admin, "--ca", dir + "/ca.crt"}, 2, "write https://"},
		{[]string{"reload", "-c", path, "--cert", dir + "/tls.crt"}, 2, "give --cert-key"},
		{[]string{"reload", "-c", path, "--cert-key", dir + "/tls.key"}, 2, "give --cert"},
		{[]string{"reload", "-c", path, "--ca", dir + "/tls.key"}, 2, "holds no certificate in PEM"},
		{[]string{"reload", "-c", path, "--ca", dir + "/none.crt"}, 2, "cannot be read: no such file"},
		{[]string{"reload", "-c", path, "--cert", dir + "/ca.crt", "--cert-key", dir + "/tls.key"}, 2, "is not the key of the certificate"},
		{[]string{"drain", "-c", path}, 0, "draining"},
	} {
		wantCommand(t, c.args, c.code, c.says)
	}
}

func wantCommand(t *testing.T, args []string, code int, says string) {
	t.Helper()
	var out syncBuffer
	if got := run(args, &out, &out); got != code || !strings.Contains(out.String(), says) {
		t.Errorf("%v: exit code %d, %q; want %d and %q", args, got, out.String(), code, says)
	}
}

func TestTLS_CommandsShowACertificateWhereOneIsAskedFor(t *testing.T) {
	t.Parallel()
	ca, clients, dir := newCA(t, "ca"), newCA(t, "clients"), t.TempDir()
	ca.writePair(t, dir, wanted{})
	cert, key := clients.issue(t, wanted{})
	write(t, dir, map[string][]byte{"clients.crt": clients.pem, "me.crt": cert, "me.key": key})
	s, _, _ := commanded(t, dir, dir+"/clients.crt")
	path := s.path
	mine := []string{"--cert", dir + "/me.crt", "--cert-key", dir + "/me.key"}
	wantCommand(t, []string{"reload", "-c", path}, 1, "give --cert and --cert-key")
	wantCommand(t, []string{"publish", "news", "x", "-c", path}, 1, "give --cert and --cert-key")
	wantCommand(t, append([]string{"reload", "-c", path}, mine...), 0, "reloaded")
	wantCommand(t, append([]string{"publish", "news", "x", "-c", path}, mine...), 0, "reached 0")
}

// Where a hook of what renews certificates asks for a reload, Holdfast may not
// have read the new one yet.
func TestTLS_ACommandWaitsUntilTheNewCertificateIsServed(t *testing.T) {
	t.Parallel()
	ca, dir := newCA(t, "ca"), t.TempDir()
	ca.writePair(t, dir, wanted{})
	s, _, _ := commanded(t, dir, "")
	s.unwatch() // it reads them when the test says so
	ca.writePair(t, dir, wanted{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		wantCommand(t, []string{"reload", "-c", s.path}, 0, "reloaded")
	}()
	eventually(t, "the old certificate not to be believed", func() bool { return len(logLines(t, s.log.String(), "handshake failed")) > 0 })
	s.lookAtCertificates()
	<-done
}

// Whoever has taken the port is not told the key.
func TestTLS_ACommandBelievesNoOtherCertificateThanItsFiles(t *testing.T) {
	t.Parallel()
	ca, dir := newCA(t, "ca"), t.TempDir()
	ca.writePair(t, dir, wanted{})
	s, _, _ := commanded(t, dir, "")
	s.unwatch()
	ca.writePair(t, dir, wanted{}) // of the same CA, for the same name
	wantCommand(t, []string{"reload", "-c", s.path}, 1, "is not the one in the file of the configuration")
}

// ---- The doctor.

func TestTLS_TheDoctorSaysHowLongACertificateIsGoodFor(t *testing.T) {
	t.Parallel()
	ca := newCA(t, "ca")
	const day = 24 * time.Hour
	for name, c := range map[string]struct {
		until  time.Duration
		result string
		found  string
		exit   int
	}{
		"Long":    {100*day + time.Hour, "ok", "is good for 100 days, until ", 0},
		"Soon":    {13*day + time.Hour, "warn", "is good for 13 days, until ", 0},
		"OneDay":  {day + time.Hour, "warn", "is good for 1 day, until ", 0},
		"Expired": {-time.Minute, "fail", "has expired, on ", 0},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			ca.writePair(t, dir, wanted{until: c.until, names: []string{"a.test", "b.test"}})
			path := filepath.Join(dir, "config.yaml")
			replaceFile(t, path, fmt.Sprintf("listen: {address: \"127.0.0.1:0\", tls: %s}\nadmin: {listen: \"\"}\npublish: {listen: \"\"}\nlimits: {connections: 200, spool: {bytes: 0}}\n", tlsOf(dir, ""))+tlsRoutes)
			e := examined(t, path)
			e.wantCheck(t, "listen.tls.cert "+dir+"/tls.crt", c.result, c.found)
			if name == "Long" {
				e.wantCheck(t, "listen.tls.cert "+dir+"/tls.crt", "ok", "for a.test, b.test")
			}
			if e.Exit != c.exit {
				t.Errorf("exit code %d: %+v", e.Exit, e.Checks)
			}
			if e.Configuration == nil || !strings.Contains(fmt.Sprint(e.Configuration), "tls.crt") {
				t.Errorf("the configuration is %v", e.Configuration)
			}
		})
	}
}

// The doctor follows a stream of a listener with TLS, and asks the others.
func TestTLS_TheDoctorAsksWhatRunsOverTLS(t *testing.T) {
	ca, clients, dir := newCA(t, "ca"), newCA(t, "clients"), t.TempDir()
	ca.writePair(t, dir, wanted{})
	cert, key := clients.issue(t, wanted{})
	write(t, dir, map[string][]byte{"clients.crt": clients.pem, "me.crt": cert, "me.key": key, "ca.crt": ca.pem})
	t.Setenv("TLS_GRANT_KEY", "k")
	path, public := filepath.Join(dir, "config.yaml"), freeAddress(t)
	replaceFile(t, path, fmt.Sprintf("listen: {address: %q, tls: %s}\nadmin: {listen: {address: %q, tls: %s}}\npublish: {listen: {address: %q, tls: %s}}\n",
		public, tlsOf(dir, ""), freeAddress(t), tlsOf(dir, dir+"/clients.crt"), freeAddress(t), tlsOf(dir, dir+"/clients.crt"))+
		fmt.Sprintf(gatedLanes, gatedApp(t, nil))+"  - {match: /live/, grant: {key_env: TLS_GRANT_KEY}}\nlimits: {connections: 200, spool: {bytes: 0}}\n")
	s := restarted(t, &site{t: t, path: path, log: new(syncBuffer)})
	mine := []string{"--cert", dir + "/me.crt", "--cert-key", dir + "/me.key"}
	doctorWith := func(flags ...string) (e examination) {
		code, out := doctor(t, path, append(flags, "--json")...)
		if err := json.Unmarshal([]byte(out), &e); err != nil || code != e.Exit {
			t.Fatalf("%d %v %s", code, err, out)
		}
		return e
	}
	e := doctorWith(mine...)
	e.wantCheck(t, "round trip", "ok", "an event reached a held stream")
	e.wantCheck(t, "listen "+public, "ok", "is held by a Holdfast that answers at")
	if e.Exit != exitOK {
		t.Errorf("%+v", e)
	}
	e = doctorWith()
	e.wantCheck(t, "listen "+public, "ok", "is held by a Holdfast that answers at")
	if e.Exit != exitOK {
		t.Errorf("without a certificate: %+v", e)
	}
	e = runDoctor(t, "", append(mine, "--url", "https://"+public+"/events", "--ca", dir+"/ca.crt", "--json")...)
	e.wantCheck(t, "head", "ok", "over HTTP/1.1")
	e = runDoctor(t, "", "--url", "https://"+public+"/events", "--json")
	if fix := e.wantCheck(t, "head", "fail", "certificate").Fix; !strings.Contains(fix, "--ca") {
		t.Errorf("the way out is %q", fix)
	}
	_ = s
}

// ---- What it costs.

// Held streams over TLS beside those without: printed, not asserted.
func TestTLS_PrintsWhatAHeldStreamCosts(t *testing.T) {
	if testing.Short() || os.Getenv("HOLDFAST_MEASURE") == "" {
		t.Skip("a measurement: HOLDFAST_MEASURE=1")
	}
	const streams = 2000
	ca, dir := newCA(t, "ca"), t.TempDir()
	ca.writePair(t, dir, wanted{})
	binary, err := builtBinary()
	if err != nil {
		t.Fatal(err)
	}
	for _, secured := range []bool{false, true} {
		public, admin := freeAddress(t), freeAddress(t)
		path := filepath.Join(t.TempDir(), "config.yaml")
		listen := fmt.Sprintf("%q", public)
		if secured {
			listen = fmt.Sprintf("{address: %q, tls: %s}", public, tlsOf(dir, ""))
		}
		replaceFile(t, path, fmt.Sprintf("listen: %s\nadmin: {listen: %q}\npublish: {listen: \"\"}\n", listen, admin)+fmt.Sprintf(gatedLanes, gatedApp(t, nil)))
		c := exec.Command(fmt.Sprintf("/proc/self/fd/%d", binary.Fd()), "serve", "-c", path)
		c.Stderr = io.Discard
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it to be ready", func() bool {
			status, _, _ := get(context.Background(), onceClient(), "http://"+admin+"/ready")
			return status == 200
		})
		before, goroutines := residentBytes(t, c.Process.Pid), goroutinesAt(t, admin)
		for range streams {
			var conn net.Conn
			if secured {
				conn, err = tls.Dial("tcp", public, ca.believes())
			} else {
				conn, err = net.Dial("tcp", public)
			}
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			io.WriteString(conn, "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
			if _, err := conn.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
		}
		after, now := residentBytes(t, c.Process.Pid), goroutinesAt(t, admin)
		t.Logf("TLS %v: %d streams, %.1f KiB and %.2f goroutines each", secured, streams, float64(after-before)/streams/1024, float64(now-goroutines)/streams)
		c.Process.Kill()
		c.Wait()
	}
}

func residentBytes(t *testing.T, pid int) int {
	t.Helper()
	var pages, resident int
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Sscan(string(data), &pages, &resident)
	return resident * os.Getpagesize()
}

func goroutinesAt(t *testing.T, admin string) (n int) {
	t.Helper()
	fmt.Sscanf(string(wantGet(t, onceClient(), "http://"+admin+"/debug/pprof/goroutine?debug=1")), "goroutine profile: total %d", &n)
	return n
}
