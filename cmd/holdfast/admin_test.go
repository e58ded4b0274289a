package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"golang.org/x/sys/unix"
)

// The admin address and the access log.

// wantKeys holds a JSON object to exactly these keys.
func wantKeys(t *testing.T, what string, object any, keys ...string) map[string]any {
	t.Helper()
	fields, ok := object.(map[string]any)
	if !ok {
		t.Fatalf("%s is no object: %v", what, object)
	}
	got := slices.Sorted(maps.Keys(fields))
	slices.Sort(keys)
	if !slices.Equal(got, keys) {
		t.Errorf("%s has %q, want %q", what, got, keys)
	}
	return fields
}

func (s *site) json(path string) any {
	s.t.Helper()
	var value any
	if err := json.Unmarshal(wantGet(s.t, onceClient(), "http://"+s.admin()+path), &value); err != nil {
		s.t.Fatal(err)
	}
	return value
}

func TestAdmin_StatusHasTheFieldsOfItsDescription(t *testing.T) {
	t.Parallel()
	a, _ := startHanging(t)
	s := startReadySite(t, "instance: here\n"+drainLanes, a)
	addr := s.listeners[0].Addr().String()
	left, stays := dialRaw(t, addr), dialRaw(t, addr)
	left.get("/hang", "left")
	stays.get("/hang", "stays")
	eventually(t, "both to run", func() bool { return a.running("/hang") == 2 })
	left.leave()
	waiting := dialRaw(t, addr)
	waiting.get("/hang", "waiting")
	eventually(t, "one of each", func() bool {
		now := s.status()
		return now.in("slow", "abandoned") == 1 && now.in("slow", "busy") == 1 && now.Lanes["slow"].Waiting == 1
	})
	<-time.After(2 * time.Millisecond) // of waiting, to be seen in milliseconds
	top := wantKeys(t, "/status", s.json("/status"), "instance", "version", "state", "uptime_s", "lanes", "targets", "holds", "events", "bytes", "bus")
	if top["instance"] != "here" || top["version"] != version || top["state"] != "ready" {
		t.Errorf("%v", top)
	}
	lanes := wantKeys(t, "lanes", top["lanes"], "web", "slow")
	slow := wantKeys(t, "lanes.slow", lanes["slow"], "slots", "waiting", "oldest_wait_ms", "refused")
	wantKeys(t, "refused", slow["refused"], "lane_full", "lane_timeout", "upstream_down", "draining")
	if slow["oldest_wait_ms"].(float64) < 1 {
		t.Errorf("oldest_wait_ms is %v", slow["oldest_wait_ms"])
	}
	slots := slow["slots"].([]any)
	if len(slots) != 2 {
		t.Errorf("slots: %v", slots)
	}
	for _, slot := range slots {
		fields := wantKeys(t, "a slot", slot, "target", "state", "ms")
		if fields["target"] != "http://"+a.addr || fields["ms"].(float64) < 0 {
			t.Errorf("a slot: %v", fields)
		}
	}
	target := wantKeys(t, "a target", wantKeys(t, "targets", top["targets"], "http://"+a.addr)["http://"+a.addr], "up", "since", "last_error")
	if since, err := time.Parse(time.RFC3339, target["since"].(string)); err != nil || time.Since(since) > 10*time.Minute || target["up"] != true {
		t.Errorf("%v %v", target, err)
	}
	holds := wantKeys(t, "holds", top["holds"], "stream", "websocket", "response", "ended", "gaps_told")
	if _, ok := holds["ended"].(map[string]any); !ok {
		t.Errorf("holds.ended is %v", holds["ended"])
	}
	wantKeys(t, "events", top["events"], "published", "offered", "head")
	wantKeys(t, "bytes", top["bytes"], "outbox", "journal", "memory", "spool")
	wantKeys(t, "bus", top["bus"], "kind", "connected")
	a.kill()
	eventually(t, "its slots to be down", func() bool {
		ask(onceClient(), "GET", s.url(""), "/robots.txt")
		s.ready()
		return s.status().in("web", "down") == 4
	})
	target = s.json("/status").(map[string]any)["targets"].(map[string]any)["http://"+a.addr].(map[string]any)
	if target["up"] != false || target["last_error"] == "" {
		t.Errorf("of a target that is down: %v", target)
	}
}

// series are the names and labels of all samples, a histogram's one for all of
// its buckets.
func (s *site) series() map[string]bool {
	s.t.Helper()
	response, err := onceClient().Get("http://" + s.admin() + "/metrics")
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	if kind := response.Header.Get("Content-Type"); response.StatusCode != 200 || !strings.HasPrefix(kind, "text/plain; version=0.0.4") {
		body, _ := io.ReadAll(response.Body)
		s.t.Fatalf("/metrics: %d %s %.300s", response.StatusCode, kind, body)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	all := make(map[string]bool)
	for name, family := range families {
		if family.GetHelp() == "" || family.Type == nil {
			s.t.Errorf("%s has no help or no type", name)
		}
		for _, m := range family.GetMetric() {
			labels := make([]string, 0, len(m.GetLabel()))
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			key := name + "{" + strings.Join(labels, ",") + "}"
			if all[key] {
				s.t.Errorf("%s is there twice", key)
			}
			all[key] = true
		}
	}
	return all
}

const metricLanes = `
instance: here
upstreams: {app: {targets: ["http://%s"]}}
lanes:
  web: {upstream: app, slots: 4}
routes:
  - {match: "/robots.txt", respond: {body: "User-agent: *\n"}}
  - {match: "GET /one/", lane: web}
  - {match: "/echo/", lane: web}
`

func TestAdmin_RandomPathsAddNoSeries(t *testing.T) {
	t.Parallel()
	a := startGunicorn(t, "-w", "1", "--threads", "8")
	s := startReadySite(t, metricLanes, a)
	client := newClient(t)
	send := func(method, path string) {
		request, err := http.NewRequest(method, s.url(path), nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Host = randomText(8) + ".example"
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, response.Body)
		response.Body.Close()
	}
	for _, path := range []string{"/", "/robots.txt", "/robots.txt/x", "/one/x", "/echo/x"} { // one of each outcome
		send("GET", path)
		send(randomText(6), path)
	}
	before := s.series()
	for i := range 5000 {
		path := "/" + randomText(12) + "?" + randomText(5)
		switch {
		case i%40 == 0:
			path = "/echo" + path
		case i%40 == 1:
			path = "/one" + path
		case i%5 == 2:
			path = "/robots.txt" + path
		}
		send([...]string{"GET", randomText(6)}[i%2], path)
	}
	after := s.series()
	for key := range after {
		if !before[key] {
			t.Errorf("%s is new", key)
		}
	}
	want := map[string]bool{}
	for _, name := range []string{"lane_slots", "lane_in_use", "lane_waiting", "lane_abandoned", "lane_wait_seconds", "lane_closed_on_view_total"} {
		want["holdfast_"+name+`{lane="web"}`] = true
	}
	for _, reason := range []string{"lane_full", "lane_timeout", "upstream_down", "draining"} {
		want[`holdfast_lane_refused_total{lane="web",reason="`+reason+`"}`] = true
	}
	for _, name := range []string{"parked", "retried_total", "memory_bytes"} {
		want["holdfast_"+name+"{}"] = true
	}
	want[`holdfast_upstream_up{target="http://`+a.addr+`"}`] = true
	want[`holdfast_reload_total{result="ok"}`], want[`holdfast_reload_total{result="failed"}`] = true, true
	for _, route := range []string{"", "/robots.txt", "GET /one/", "/echo/", "/health", "/ready"} {
		want[fmt.Sprintf("holdfast_request_seconds{route=%q}", route)] = true
	}
	for key := range want {
		if !after[key] {
			t.Errorf("%s is missing", key)
		}
	}
	if n := metric(t, s.admin(), `holdfast_requests_total{code="404",route=""}`); n < 1000 {
		t.Errorf("%v requests without a route are counted", n)
	}
}

func randomText(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = 'A' + byte(rand.IntN(26))
	}
	return string(b)
}

// A target of two upstreams is a warning, not an end of the metrics.
func TestAdmin_MetricsOfATargetThatTwoUpstreamsHave(t *testing.T) {
	t.Parallel()
	a := startGunicorn(t, "-w", "1", "--threads", "8")
	s := startReadySite(t, `
upstreams: {app: {targets: ["http://%[1]s"]}, same: {targets: ["http://%[1]s"], park: 1s}}
lanes: {web: {upstream: app, slots: 4}, other: {upstream: same, slots: 2}}
routes: [{match: "/", lane: web}, {match: "/one/", lane: other}]
`, a)
	if !s.series()[`holdfast_upstream_up{target="http://`+a.addr+`"}`] {
		t.Error("upstream_up is missing")
	}
	s.status()
}

// adminRequest is one to the admin address, and the status that it is to have.
type adminRequest struct {
	method, path, host, fields string
	status                     int
}

func (r adminRequest) String() string {
	return fmt.Sprintf("%s %s Host %q %q", r.method, r.path, r.host, r.fields)
}

// wantGuarded sends each and holds its status to the table.
func wantGuarded(t *testing.T, dial func() *rawClient, requests []adminRequest) {
	t.Helper()
	for _, r := range requests {
		client := dial()
		host := "Host: " + r.host + "\r\n"
		if r.host == "none" {
			host = ""
		}
		client.send("%s %s HTTP/1.%d\r\n%s%sConnection: close\r\n\r\n", r.method, r.path, map[bool]int{true: 0, false: 1}[host == ""], host, r.fields)
		response, err := http.ReadResponse(client.r, &http.Request{Method: r.method})
		var body []byte
		if err == nil {
			body, err = io.ReadAll(response.Body)
		}
		client.Close()
		if err != nil {
			t.Errorf("%v: %v", r, err)
			continue
		}
		reason := response.Header.Get("Holdfast-Reason")
		if response.StatusCode != r.status || (r.status == 401) != (reason == "unauthorized") {
			t.Errorf("%v: %d %s %.200s, want %d", r, response.StatusCode, reason, body, r.status)
		}
	}
}

const (
	key1   = "Authorization: Bearer first-key\r\n"
	key2   = "Authorization: Bearer second-key\r\n"
	noKey  = "Authorization: Bearer first-ke\r\n"
	noKey2 = "Authorization: Basic first-key\r\n"
	origin = "Origin: http://evil.example\r\n"
)

func TestAdmin_AWebPageNeedsAKeyAndAProgramOfThisMachineDoesNot(t *testing.T) {
	t.Parallel()
	a := startGunicorn(t, "-w", "1", "--threads", "8")
	s := startSite(t, drainLanes, a)
	addr := s.admin()
	dial := func() *rawClient { return dialRaw(t, addr) }
	// Without keys in the configuration nobody has one.
	wantGuarded(t, dial, []adminRequest{
		{"GET", "/status", addr, "", 200}, {"GET", "/status", addr, key1, 200},
		{"GET", "/status", "evil.example", key1, 401}, {"GET", "/status", addr, origin + key1, 401},
		{"GET", "/status", addr, origin + "Authorization: Bearer \r\n", 401},
		{"POST", "/reload", addr, "", 200},
	})
	keyed := keyedAdmin(t, "localhost:0", a)
	addr = keyed.admin()
	_, port, _ := net.SplitHostPort(addr)
	requests := []adminRequest{
		{"POST", "/reload", "evil.example", "", 401}, {"POST", "/drain", addr, origin, 401},
		{"POST", "/reload", addr, origin + noKey, 401}, {"POST", "/reload", addr, origin + key2, 200},
		{"POST", "/reload", addr, "", 200}, {"GET", "/reload", addr, "", 405}, {"GET", "/drain", addr, "", 405},
		{"POST", "/status", addr, "", 405}, {"GET", "/nothing", addr, "", 404},
	}
	for _, path := range []string{"/status", "/metrics", "/health", "/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/goroutine?debug=1"} {
		for _, host := range []string{addr, "localhost", "LOCALHOST:" + port, "localhost:1", "127.0.0.1", "10.1.2.3:80", "[::1]:" + port, "[::1]"} {
			requests = append(requests, adminRequest{"GET", path, host, "", 200})
		}
		for _, host := range []string{"evil.example", "evil.example:" + port, "localhost.evil.example", "127.0.0.1.evil.example", "xlocalhost", "10.1.2"} {
			requests = append(requests, adminRequest{"GET", path, host, "", 401}, adminRequest{"GET", path, host, noKey, 401},
				adminRequest{"GET", path, host, noKey2, 401}, adminRequest{"GET", path, host, key1, 200}, adminRequest{"GET", path, host, key2, 200})
		}
		requests = append(requests, adminRequest{"GET", path, addr, origin, 401}, adminRequest{"GET", path, addr, "Origin: null\r\n", 401},
			adminRequest{"GET", path, addr, origin + key1, 200}, adminRequest{"HEAD", path, addr, "", 200})
	}
	wantGuarded(t, func() *rawClient { return dialRaw(t, addr) }, requests)
	if state := keyed.stateWord(); state == "draining" {
		t.Error("a refused request drained it")
	}
}

// Health checks of load balancers send HTTP/1.0 without a Host; a web page cannot.
func TestAdmin_ARequestWithoutAHostNeedsNoKey(t *testing.T) {
	t.Parallel()
	s := startSite(t, drainLanes, &app{addr: freeAddress(t)})
	wantGuarded(t, func() *rawClient { return dialRaw(t, s.admin()) }, []adminRequest{
		{"GET", "/health", "none", "", 200}, {"GET", "/metrics", "none", "", 200}, {"GET", "/health", "none", origin, 401},
	})
}

// The name that the listener has in the configuration is one that Host may have.
func TestAdmin_TheNameInListenIsAHostOfItsOwn(t *testing.T) {
	t.Parallel()
	s := startSite(t, drainLanes, &app{addr: freeAddress(t)})
	named, err := s.newAdmin(&fileConfig{Admin: keyedListener{Listen: address{Address: "Admin.internal:5562"}}})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go s.accept(named, ln)
	t.Cleanup(func() { named.Shutdown(t.Context()) })
	var requests []adminRequest
	for host, status := range map[string]int{"admin.internal:5562": 200, "ADMIN.INTERNAL": 200, "internal": 401, "x.admin.internal": 401, "admin.internal.": 401} {
		requests = append(requests, adminRequest{"GET", "/status", host, "", status})
	}
	wantGuarded(t, func() *rawClient { return dialRaw(t, ln.Addr().String()) }, requests)
}

// keyedAdmin has two keys and listens as named.
func keyedAdmin(t *testing.T, listen string, a *app) *site {
	t.Helper()
	s := startSite(t, drainLanes, a)
	s.stopAll(0)
	s.base = "listen: \"127.0.0.1:0\"\nadmin: {listen: \"" + listen + "\", keys: [first-key, second-key]}\npublish: {listen: \"\"}\n"
	s.write(drainLanes, a)
	return restarted(t, s)
}

// restarted starts anew what the file says.
func restarted(t *testing.T, s *site) *site {
	t.Helper()
	config, err := loadServable(s.path)
	if err != nil {
		t.Fatal(err)
	}
	next := &site{t: t, path: s.path, log: s.log, base: s.base}
	log, access, err := newLoggers(config.Log, s.log)
	if err != nil {
		t.Fatal(err)
	}
	if next.holdfast, err = start(config, func() (*fileConfig, error) { return loadServable(s.path) }, log, access); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { next.stopAll(time.Second) })
	return next
}

// From another machine: a network namespace with an address that is not a
// loopback one. Sockets belong to the namespace in which they were made.
func TestAdmin_FromAnotherMachineWhatIsLocalNeedsAKey(t *testing.T) {
	t.Parallel()
	s := startSite(t, drainLanes, &app{addr: freeAddress(t)})
	s.stopAll(0)
	s.base = "listen: \"127.0.0.1:0\"\nadmin: {listen: \"10.77.77.77:0\", keys: [first-key]}\npublish: {listen: \"\"}\n"
	s.write(drainLanes, &app{addr: freeAddress(t)})
	skip, done := "", make(chan struct{})
	go onOwnThread(func() {
		defer close(done)
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			skip = "no network namespace may be made here: " + err.Error()
			return
		}
		for _, args := range []string{"link set lo up", "addr add 10.77.77.77/32 dev lo"} {
			if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
				skip = fmt.Sprintf("ip %s: %v %s", args, err, out)
				return
			}
		}
		far := restarted(t, s)
		wantGuarded(t, func() *rawClient { return dialRaw(t, far.admin()) }, []adminRequest{
			{"GET", "/metrics", far.admin(), "", 200}, {"GET", "/status", far.admin(), "", 200},
			{"GET", "/health", far.admin(), "", 200}, {"GET", "/ready", far.admin(), "", 503},
			{"POST", "/reload", far.admin(), "", 401}, {"POST", "/drain", far.admin(), "", 401}, {"POST", "/drain", far.admin(), noKey, 401},
			{"GET", "/debug/pprof/", far.admin(), "", 401}, {"GET", "/debug/pprof/heap", far.admin(), "", 401},
			{"GET", "/debug/pprof/", far.admin(), key1, 200}, {"POST", "/reload", far.admin(), key1, 200},
			{"GET", "/metrics", "evil.example", "", 401},
			{"POST", "/reload", far.admin(), "X-Forwarded-For: 127.0.0.1\r\n", 401},
		})
		if len(far.drainNow) > 0 {
			t.Error("a refused request drained it")
		}
	})
	<-done
	if skip != "" {
		t.Skip(skip)
	}
}

// The access log.

const accessLanes = `
upstreams: {app: {targets: ["http://%s"]}}
lanes:
  web:   {upstream: app, slots: 4}
  slow:  {upstream: app, slots: 1, queue: 1, queue_timeout: 60s}
  brief: {upstream: app, slots: 1, queue_timeout: 150ms}
routes:
  - {match: "/robots.txt", respond: {body: "User-agent: *\n"}}
  - {match: "/hang", lane: slow}
  - {match: "/one/", lane: brief}
  - {match: "/", lane: web}
log: {access: true}
`

// exchange waits for the next line of the access log that is not one of a
// question that the test itself asked.
func (s *site) exchange(seen *int) map[string]any {
	s.t.Helper()
	var lines []map[string]any
	eventually(s.t, "a line for the exchange", func() bool {
		lines = logLines(s.t, s.log.String(), "exchange")
		return len(lines) > *seen
	})
	*seen++
	return lines[*seen-1]
}

func TestAccessLog_HasALineForEachExchangeWithItsFields(t *testing.T) {
	t.Parallel()
	a, release := startHanging(t)
	s := startReadySite(t, accessLanes, a)
	addr := s.listeners[0].Addr().String()
	seen := 0
	type want struct {
		method, path, route, end string
		status                   float64
		lane                     string // "": none
		placed                   bool   // it had a slot
		waited                   float64
	}
	check := func(name string, w want) (line map[string]any) {
		t.Helper()
		line = s.exchange(&seen)
		keys := []string{"level", "msg", "time", "method", "path", "status", "bytes", "took", "wait", "route", "client", "request_id", "end"}
		if w.lane != "" {
			keys = append(keys, "lane")
		}
		if w.placed {
			keys = append(keys, "slot", "target")
			if line["target"] != "http://"+a.addr {
				t.Errorf("%s: target %v", name, line["target"])
			}
		}
		wantKeys(t, name, any(line), keys...)
		if line["method"] != w.method || line["path"] != w.path || line["route"] != w.route || line["status"] != w.status ||
			line["client"] != "127.0.0.1" || w.lane != "" && line["lane"] != w.lane {
			t.Errorf("%s: %v, want %+v", name, line, w)
		}
		if line["end"] != w.end {
			t.Errorf("%s: end %v, want %s", name, line["end"], w.end)
		}
		if wait := line["wait"].(float64); wait < w.waited {
			t.Errorf("%s: wait %v, want %v at least", name, wait, w.waited)
		}
		return line
	}
	kept := dialRaw(t, addr)
	kept.get("/fast?secret=1", "the-client-s")
	_, body := kept.wantAnswer(200)
	line := check("forwarded", want{"GET", "/fast", "/", "done", 200, "web", true, 0})
	if line["request_id"] != "the-client-s" || line["bytes"].(float64) <= float64(len(body)) || line["took"].(float64) <= 0 {
		t.Errorf("%v", line)
	}
	kept.send("GET /robots.txt?secret=1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
	kept.wantAnswer(200)
	line = check("local, behind a forwarded one", want{"GET", "/robots.txt", "/robots.txt", "done", 200, "", false, 0})
	if line["request_id"] == "the-client-s" {
		t.Error("a request has the id of the one before it")
	}
	fresh := dialRaw(t, addr)
	fresh.send("GET /robots.txt HTTP/1.1\r\nHost: localhost\r\n\r\n")
	fresh.wantAnswer(200)
	check("local", want{"GET", "/robots.txt", "/robots.txt", "done", 200, "", false, 0})

	running, waiting, refused := dialRaw(t, addr), dialRaw(t, addr), dialRaw(t, addr)
	running.get("/hang?secret=1", "running")
	eventually(t, "one to run", func() bool { return a.running("/hang") == 1 })
	waiting.get("/hang?secret=1", "waiting")
	eventually(t, "one to wait", func() bool { return s.status().Lanes["slow"].Waiting == 1 })
	refused.get("/hang?secret=1", "refused")
	refused.wantAnswer(503)
	line = check("refused by the lane", want{"GET", "/hang", "/hang", "holdfast_waiting", 503, "slow", false, 0})
	if line["request_id"] != "refused" {
		t.Errorf("request_id %v", line["request_id"])
	}
	waiting.leave()
	check("left while waiting", want{"GET", "/hang", "/hang", "client_waiting", statusLeftShown, "slow", false, 0.000001})
	running.leave()
	check("left while running", want{"GET", "/hang", "/hang", "client_running", statusLeftShown, "slow", true, 0})

	brief, late := dialRaw(t, addr), dialRaw(t, addr)
	brief.get("/one/hang", "brief")
	eventually(t, "one to run", func() bool { return a.running("/one/hang") == 1 })
	late.get("/one/fast", "late")
	late.wantAnswer(503)
	check("refused after its wait", want{"GET", "/one/fast", "/one/", "holdfast_waiting", 503, "brief", false, 0.15})
	release()
	brief.wantAnswer(200)
	check("released", want{"GET", "/one/hang", "/one/", "done", 200, "brief", true, 0})

	for _, bad := range []struct{ head, method, path string }{
		{"GET /x?secret=1 HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "GET", "/x"},
		{"GET /x HTTP/1.1\nHost: a\n\n", "", ""},
		{"\x00\xff\"\\ garbage\r\n\r\n", "", ""},
	} {
		client := dialRaw(t, addr)
		client.send("%s", bad.head)
		client.wantLast(400)
		client.Close()
		check("bad request", want{bad.method, bad.path, "", "holdfast_head", 400, "", false, 0})
	}
	kept.get("/status/404", "404")
	kept.wantAnswer(404)
	check("the app's 404", want{"GET", "/status/404", "/", "done", 404, "web", true, 0})

	lost := dialRaw(t, addr)
	lost.send("POST /slow?ms=60000 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
	eventually(t, "it to run", func() bool { return a.running("/slow") == 1 })
	a.killWhileServing(1, 0)
	lost.wantAnswer(502)
	check("upstream error", want{"POST", "/slow", "/", "upstream_running", 502, "web", true, 0})
	if strings.Contains(s.log.String(), "secret") {
		t.Error("the log shows a query")
	}
	if lines := logLines(t, s.log.String(), "exchange"); len(lines) != seen {
		t.Errorf("%d lines for %d exchanges", len(lines), seen)
	}
}

// statusLeftShown stands for a client that left before its answer.
const statusLeftShown = 499

// Whatever a client sends, a line is one line of JSON, and the path is in it as
// it came. A byte that is no UTF-8 cannot be in JSON.
func TestAccessLog_IsJSONWhateverIsSent(t *testing.T) {
	t.Parallel()
	a := startGunicorn(t, "-w", "1", "--threads", "8")
	s := startReadySite(t, accessLanes, a)
	addr := s.listeners[0].Addr().String()
	seen := 0
	for _, path := range []string{
		`/echo/%00%0a%0d%1b[31m`, `/echo/"quoted"`, `/echo/\u0022,"end":"x"`, `/echo/<script>&'`, `/echo/{"a":1}`, "/echo/\u00e4\u4e16",
		"/echo/%e2%80%a8\u2028", "/echo/\xff\xfe\x80", "/robots.txt/\xff", `/robots.txt?"` + "\xff", "/echo/" + strings.Repeat(`"`, 4000),
	} {
		client := dialRaw(t, addr)
		client.send("GET %s HTTP/1.1\r\nHost: localhost\r\nX-Request-ID: \"\\\xff\r\nUser-Agent: \"\xff\\\r\n\r\n", path)
		response, _, err := client.read()
		if err != nil {
			t.Fatalf("%q: %v", path, err)
		}
		client.Close()
		line := s.exchange(&seen)
		want := strings.ToValidUTF8(path, "\ufffd")
		want, _, _ = strings.Cut(want, "?")
		got, _ := line["path"].(string)
		// Each byte that is no UTF-8 may have a mark of its own. A request line
		// that is none has no path.
		if squeeze(got) != squeeze(want) && !(got == "" && line["status"] == 400.0) || line["status"] != float64(response.StatusCode) {
			t.Errorf("sent %q (%d): %v", path, response.StatusCode, line)
		}
	}
	for line := range bytes.Lines([]byte(s.log.String())) {
		if !json.Valid(line) {
			t.Errorf("not JSON: %q", line)
		}
	}
}

func squeeze(s string) string {
	for strings.Contains(s, "\ufffd\ufffd") {
		s = strings.ReplaceAll(s, "\ufffd\ufffd", "\ufffd")
	}
	return s
}

// A line for each exchange, however many come in a second, and none where the
// log is not asked for.
func TestAccessLog_LeavesNoneOutAndIsOffUnlessAskedFor(t *testing.T) {
	t.Parallel()
	a := startGunicorn(t, "-w", "1", "--threads", "8")
	s := startReadySite(t, accessLanes, a)
	client := dialRaw(t, s.listeners[0].Addr().String())
	for i := range 300 {
		client.get([...]string{"/robots.txt", "/fast"}[i%2], "x")
		client.wantAnswer(200)
	}
	eventually(t, "300 lines", func() bool { return len(logLines(t, s.log.String(), "exchange")) == 300 })
	s.change(strings.Replace(accessLanes, "access: true", "access: false", 1), a)
	client.get("/fast", "x")
	client.wantAnswer(200)
	client.Close()
	eventually(t, "the connection's end", func() bool { return s.server.Connections() == 0 })
	if n := len(logLines(t, s.log.String(), "exchange")); n != 300 {
		t.Errorf("%d lines", n)
	}
}
