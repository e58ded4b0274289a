package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/proxy"
)

// configured is a configuration from text that must be good.
func configured(t *testing.T, text string) *fileConfig {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	replaceFile(t, path, text)
	config, err := loadConfig(path, os.LookupEnv)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

const doctorApp = "upstreams: {app: {targets: [\"http://127.0.0.1:1\"]}}\nlanes: {web: {upstream: app, slots: 2}, live: {upstream: app, kind: stream, slots: 2}}\n"

func TestDoctor_KnowsAppServersByTheirAnswer(t *testing.T) {
	for _, c := range []struct {
		server    string
		keepAlive bool
		says      string
		warned    bool
	}{
		{"gunicorn", false, "sync workers", false},
		{"gunicorn/19.9.0", true, "threads or greenlets", false},
		{"uvicorn", true, "uvicorn", false},
		{"uvicorn", false, "uvicorn", false},
		{"daphne", true, "daphne", false},
		{"hypercorn-h11", true, "hypercorn", false},
		{"waitress", true, "waitress", false},
		{"Werkzeug/2.2.2 Python/3.11.2", false, "development server", true},
		{"WSGIServer/0.2 CPython/3.11.2", true, "development server", true},
		{"nginx/1.22.1", true, "not the app itself", true},
		{"Apache", true, "", false},
		{"", false, "", false},
	} {
		says, fix := kindOf(c.server, c.keepAlive)
		if !strings.Contains(says, c.says) || (says == "") != (c.says == "") || (fix != "") != c.warned {
			t.Errorf("%q, kept %v: %q, fix %q", c.server, c.keepAlive, says, fix)
		}
	}
}

// oneAnswer is an app that gives one answer to each connection and keeps it open.
func oneAnswer(t *testing.T, answer string) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			conn.Read(make([]byte, 4<<10))
			conn.Write([]byte(answer))
			defer conn.Close()
		}
	}()
	return ln.Addr().String()
}

func TestDoctor_SaysWhatServesATarget(t *testing.T) {
	t.Parallel()
	addr := oneAnswer(t, "HTTP/1.1 200 OK\r\nServer: Werkzeug/2.2.2\r\nContent-Length: 0\r\n\r\n")
	e := examined(t, doctorFile(t, freeAddress(t), freeAddress(t), addr, 4))
	if c := e.wantCheck(t, "target http://"+addr, "warn", "development server"); c.Fix == "" || e.Exit != exitOK {
		t.Errorf("%+v", e)
	}
}

func TestDoctor_WarnsOfMoreSlotsThanSyncWorkers(t *testing.T) {
	t.Parallel()
	config := configured(t, strings.Replace(doctorApp, "slots: 2}", "slots: 4}", 1)+"routes: [{match: /, lane: web}, {match: /live/, lane: live}]\n")
	for sync, result := range map[int]string{0: "ok", 3: "warn", 4: "ok"} {
		e := &examination{}
		e.compareSlots(config, "app", sync)
		if c := e.wantCheck(t, "upstream app", result, "4 slots"); c.Numbers["slots"] != 4 || len(e.Checks) != 1 {
			t.Errorf("%d workers: %+v", sync, e)
		}
	}
}

func TestDoctor_CountsWorkersOfThisMachineOnly(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	for host, want := range map[string]int{"127.0.0.1": 1, "localhost": 1, "192.0.2.1": 0, "2001:db8::1": 0} {
		if got := workersAt(net.JoinHostPort(host, port)); got != want {
			t.Errorf("%s: %d, want %d", host, got, want)
		}
	}
	socket := filepath.Join(t.TempDir(), "app.sock")
	if got := workersAt(socket); got != 0 {
		t.Errorf("%d behind a socket that is not there", got)
	}
	if ln, err = net.Listen("unix", socket); err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if got := workersAt(socket); got != 1 {
		t.Errorf("%d behind a socket of ours", got)
	}
}

func TestDoctor_SuspectsSeveralProcessesBehindOneSocket(t *testing.T) {
	t.Parallel()
	a := newApp(t, "django", nil, "site_wsgi:application", "-w", "3", "--threads", "2")
	socket := filepath.Join(t.TempDir(), "app.sock")
	a.args[3] = "unix:" + socket // what follows -b
	a.start()
	eventually(t, "all to be there", func() bool { return workersAt(socket) == 3 })
	path := filepath.Join(t.TempDir(), "config.yaml")
	replaceFile(t, path, fmt.Sprintf("listen: %q\nadmin: {listen: \"\"}\npublish: {listen: \"\"}\n", freeAddress(t))+strings.Replace(fmt.Sprintf(doctorLanes, "x", 4), "http://x", "unix:"+socket, 1))
	eventually(t, "the app to answer", func() bool {
		e := examined(t, path)
		return len(e.Checks) > 1 && e.Checks[1].Result == "ok"
	})
	c := examined(t, path).wantCheck(t, "target unix:"+socket, "warn", "3 worker processes")
	if c.Numbers["workers"] != 3 {
		t.Errorf("%+v", c)
	}
}

func TestDoctor_KnowsTheMemoryThatACgroupAllows(t *testing.T) {
	const meminfo = "MemTotal: 2048 kB\nMemAvailable:    1024 kB\n"
	for name, c := range map[string]struct {
		files map[string]string
		bytes int64
		hard  bool
	}{
		"None":        {map[string]string{"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "max\n"}, 1 << 20, false},
		"V2":          {map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "4096\n"}, 4096, true},
		"V2Above":     {map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "8192\n", "sys/fs/cgroup/a/memory.max": "4096"}, 4096, true},
		"V2Namespace": {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "4096\n"}, 4096, true},
		"V1":          {map[string]string{"proc/self/cgroup": "4:cpu,memory:/a\n0::/\n", "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "4096\n"}, 4096, true},
		"V1None":      {map[string]string{"proc/self/cgroup": "4:memory:/a\n", "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "9223372036854771712\n"}, 1 << 20, false},
		"NotKnown":    {map[string]string{"proc/self/cgroup": "nonsense\n::\n0::/../..\n", "proc/meminfo": "MemAvailable:"}, 0, false},
	} {
		root := t.TempDir()
		if _, set := c.files["proc/meminfo"]; !set {
			c.files["proc/meminfo"] = meminfo
		}
		for file, text := range c.files {
			os.MkdirAll(filepath.Dir(filepath.Join(root, file)), 0o700)
			replaceFile(t, filepath.Join(root, file), text)
		}
		if bytes, hard := memoryLimit(root); bytes != c.bytes || hard != c.hard {
			t.Errorf("%s: %d %v, want %d %v", name, bytes, hard, c.bytes, c.hard)
		}
	}
}

func TestDoctor_HoldsTheBudgetAgainstTheMemory(t *testing.T) {
	const fixed = 256<<20 + 2*64<<20 + ownMemory
	for name, c := range map[string]struct {
		holds  string
		limit  int64
		hard   bool
		result string
		found  string
	}{
		"TooMuch":          {"100", fixed - 1, false, "warn", "448MiB of"},
		"RoomForAll":       {"100", fixed + 100*holdCost, true, "ok", "room for 100 quiet holds"},
		"RoomForFewer":     {"100", fixed + 99*holdCost, false, "warn", "there may be 100"},
		"ByDescriptors":    {"0", fixed + holdCost, false, "ok", "room for 1 quiet"},
		"AndKilledByLimit": {"0", fixed + holdCost, true, "warn", "that the cgroup allows"},
	} {
		e := &examination{}
		e.memoryWithin(configured(t, doctorApp+"routes: [{match: /, lane: web}]\nlimits: {connections: 200}\nholds: {limit: "+c.holds+"}\n"), c.limit, c.hard)
		got := e.wantCheck(t, "memory", c.result, c.found)
		if got.Numbers["fixed"] != fixed || (got.Fix != "") != (c.result == "warn") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestDoctor_HoldsLimitsAgainstDescriptors(t *testing.T) {
	t.Parallel()
	limit := descriptorLimit()
	if limit == 0 {
		t.Skip("no limit here")
	}
	for name, c := range map[string]struct{ limits, result, found string }{
		"MoreThanMayBeOpen": {fmt.Sprintf("limits: {connections: %d}", limit), "warn", "there is room for"},
		"MoreHeldThanThere": {"limits: {connections: 50}\nholds: {limit: 60}", "warn", "more than the 50 clients"},
		"FewByChoice":       {"limits: {connections: 50}\nholds: {limit: 40}", "ok", "50 clients at once, 40 of them held"},
	} {
		e := &examination{}
		e.descriptors(configured(t, doctorApp+"routes: [{match: /, lane: web}]\n"+c.limits+"\n"))
		if got := e.wantCheck(t, "descriptors", c.result, c.found); got.Numbers["soft"] != float64(limit) || (got.Fix != "") != (c.result == "warn") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestDoctor_SaysWhetherTheSpoolHasRoom(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, c := range map[string]struct{ spool, result, found string }{
		"Room":    {"{dir: " + dir + ", bytes: 1}", "", ""},
		"Little":  {"{dir: " + dir + ", bytes: 1024TiB}", "warn", ""},
		"Missing": {"{dir: " + dir + "/missing}", "warn", "no such file"},
		"Off":     {"{bytes: 0}", "ok", "off"},
	} {
		e := &examination{}
		e.spool(configured(t, doctorApp+"routes: [{match: /, lane: web}]\nlimits: {spool: "+c.spool+"}\n"))
		got := e.Checks[0]
		if len(e.Checks) != 1 || c.result != "" && got.Result != c.result || !strings.Contains(got.Found, c.found) {
			t.Errorf("%s: %+v", name, e)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
			t.Errorf("%s leaves %v %v", name, entries, err)
		}
	}
}

func TestDoctor_PatternsCoverWhatTheyMatch(t *testing.T) {
	for _, c := range []struct {
		match, path, rank string
		ok                bool
	}{
		{"/", "/health", "0", true},
		{"/health", "/health", "2", true},
		{"/health", "/health/", "", false},
		{"/health/", "/health", "", false},
		{"/health/", "/health/", "20", true},
		{"/ws/", "/ws/message", "20", true},
		{"/ws/{$}", "/ws/message", "", false},
		{"/{name}", "/health", "1", true},
		{"/{name}/message", "/ws/message", "12", true},
		{"/{all...}", "/ws/message", "0", true},
		{"/ws/message/more", "/ws/message", "", false},
	} {
		p, err := proxy.ParsePattern(c.match)
		if err != nil {
			t.Fatal(err)
		}
		if rank, ok := covers(p, c.path); ok != c.ok || ok && rank != c.rank {
			t.Errorf("%s on %s: %q %v, want %q %v", c.match, c.path, rank, ok, c.rank, c.ok)
		}
	}
}

func TestDoctor_SaysWhoAnswersUnderHoldfastsOwnPaths(t *testing.T) {
	const health, message = "health.path /health", "message_path /ws/message"
	for _, c := range []struct {
		routes, more         string
		check, result, found string
	}{
		{"{match: /, lane: web}", "", health, "ok", "also where the app has a view"},
		{"{match: /, lane: web}", "", message, "ok", "to clients it is 404"},
		{"{match: /health, lane: web}", "", health, "warn", "is answered by the app"},
		{"{match: GET /health, lane: web}", "", health, "warn", "is answered by the app"},
		{"{match: POST /health, lane: web}", "", health, "ok", "is answered by Holdfast"},
		{"{match: example.com/health, lane: web}", "", health, "ok", "is answered by Holdfast"},
		{"{match: /health, respond: {body: yes}}", "", health, "ok", "and not by Holdfast"},
		{"{match: /, lane: web}, {match: /api/, lane: web}", "health: {path: /api/health}", "health.path /api/health", "warn", `lies under routes[1] "/api/"`},
		{"{match: /ws/, lane: live}, {match: /, lane: web}", "", message, "warn", "whose lane is of streams"},
		{"{match: /ws/, respond: {body: no}}, {match: /, lane: web}", "", message, "warn", "takes no messages"},
		{"{match: /app/, lane: web}", "", message, "ok", "no route has it"},
		{"{match: /ws/message, lane: web}", "", message, "ok", "although routes[0] is exactly it"},
		{"{match: /, lane: web}, {match: /chat/, lane: web, message_path: /chat/in}", "", "message_path /chat/in", "ok", "404"},
	} {
		config := configured(t, doctorApp+"routes: ["+c.routes+"]\n"+c.more+"\n")
		e := &examination{}
		e.ownPaths(config)
		e.messagePaths(config)
		got := e.wantCheck(t, c.check, c.result, c.found)
		if (got.Fix != "") != (c.result == "warn") {
			t.Errorf("%s: %+v", c.routes, got)
		}
	}
	e := &examination{}
	e.ownPaths(configured(t, doctorApp+"routes: [{match: /, lane: web}]\nhealth: {path: \"\", ready_path: \"\"}\n"))
	if len(e.Checks) != 0 {
		t.Errorf("%+v of paths that are not there", e.Checks)
	}
}
