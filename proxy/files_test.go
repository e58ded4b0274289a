package proxy_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/zap/zapcore"

	"holdfast/lanes"
	"holdfast/proxy"
)

// ---- The kit of the tests about files.

// secret is what no answer may have in it.
const secret = "this is nobody's to read"

// fileTree writes a directory to serve, with what must not be served in it and
// beside it.
func fileTree(t *testing.T) (dir string) {
	t.Helper()
	top := t.TempDir()
	dir = filepath.Join(top, "site")
	for name, content := range map[string]string{
		"secret.txt": secret, "site/hello.txt": "hello, world\n", "site/app.js": "let a = 1\n", "site/empty.css": "", "site/sub/deep/page.html": "<p>deep</p>\n",
		"site/a b.txt": "blank\n", "site/café.txt": "coffee\n", "site/100%.txt": "all\n", "site/%2e%2e": "escaped\n", "site/noend": "bytes\n",
		"site/.env": secret, "site/.git/config": secret, "site/sub/.hidden": secret, "site/..two": secret,
	} {
		name = filepath.Join(top, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"in": "hello.txt", "in-dir": "sub", "out": "../secret.txt", "out-dir": "..", "absolute": filepath.Join(top, "secret.txt"), "root": "/"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// bigFile writes a file that says where each of its bytes is.
func bigFile(t *testing.T, dir, name string, size int) (content []byte) {
	t.Helper()
	content = upload(size)
	if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
		t.Fatal(err)
	}
	return content
}

func filesAt(match, dir string) proxy.Route {
	return proxy.Route{Match: match, Files: &proxy.Files{Dir: dir}}
}

// ---- Which file.

func TestFiles_AreServedByTheirNameWithTheirType(t *testing.T) {
	dir := fileTree(t)
	addr := startServer(t, proxy.Config{}, []proxy.Route{filesAt("/static/", dir), filesAt("/hello.txt", dir), filesAt("/only/{name}", dir)})
	c := dialWire(t, addr)
	for _, ask := range []struct{ target, body, kind string }{
		{"/static/hello.txt", "hello, world\n", "text/plain; charset=utf-8"}, {"/static/app.js?v=1", "let a = 1\n", "text/javascript; charset=utf-8"},
		{"/static/empty.css", "", "text/css; charset=utf-8"}, {"/static/sub/deep/page.html", "<p>deep</p>\n", "text/html; charset=utf-8"},
		{"/static/a%20b.txt", "blank\n", "text/plain; charset=utf-8"}, {"/static/caf%c3%a9.txt", "coffee\n", "text/plain; charset=utf-8"}, {"/static/café.txt", "coffee\n", "text/plain; charset=utf-8"},
		{"/static/100%.txt", "all\n", "text/plain; charset=utf-8"}, {"/static/100%25.txt", "all\n", "text/plain; charset=utf-8"}, {"/static/%252e%252e", "escaped\n", "application/octet-stream"},
		{"/static/sub%2Fdeep%2Fpage.html", "<p>deep</p>\n", "text/html; charset=utf-8"}, {"/%73tatic/noend", "bytes\n", "application/octet-stream"},
		{"/static/in", "hello, world\n", "application/octet-stream"}, {"/static/in-dir/deep/page.html", "<p>deep</p>\n", "text/html; charset=utf-8"},
		{"/hello.txt", "hello, world\n", "text/plain; charset=utf-8"}, {"/only/hello.txt", "hello, world\n", "text/plain; charset=utf-8"},
		{"http://b.test/static/hello.txt", "hello, world\n", "text/plain; charset=utf-8"},
	} {
		c.say(t, get(ask.target))
		answer := c.wantAnswer(t, "GET", 200, ask.body)
		if got := answer.get("Content-Type"); got != ask.kind || answer.get("X-Content-Type-Options") != "nosniff" || answer.closes() {
			t.Errorf("%s: %q, want the type %s", ask.target, answer.fields, ask.kind)
		}
		c.say(t, "HEAD "+ask.target+" HTTP/1.1\r\nHost: a.test\r\n\r\n")
		head := c.wantAnswer(t, "HEAD", 200, "")
		if want, got := withoutDate(answer.fields), withoutDate(head.fields); !slices.Equal(got, want) {
			t.Errorf("HEAD %s has\n%q, GET has\n%q", ask.target, got, want)
		}
	}
}

func withoutDate(fields [][2]string) [][2]string {
	return slices.DeleteFunc(slices.Clone(fields), func(f [2]string) bool { return f[0] == "Date" })
}

func TestFiles_FieldsOfTheRouteGoOutWithItsFiles(t *testing.T) {
	dir := fileTree(t)
	at := "Sun, 30 Nov 2025 12:00:00 GMT"
	setTime(t, filepath.Join(dir, "hello.txt"), 1764504000, 5)
	addr := startServer(t, proxy.Config{}, []proxy.Route{
		{Match: "/static/", Files: &proxy.Files{Dir: dir, CacheControl: "public, max-age=60", Fields: []string{"X-Frame-Options", "DENY", "Link", "</a>; rel=b"}}},
		{Match: "/plain/", Files: &proxy.Files{Dir: dir, Fields: []string{"content-type", "text/plain; charset=koi8-r"}}},
	})
	c := say(t, addr, get("/static/hello.txt"))
	answer := c.wantAnswer(t, "GET", 200, "hello, world\n")
	etag := fmt.Sprintf(`"%x-%x"`, int64(1764504000*1e9+5), len("hello, world\n"))
	want := [][2]string{{"Last-Modified", at}, {"ETag", etag}, {"Accept-Ranges", "bytes"}, {"X-Content-Type-Options", "nosniff"}, {"Cache-Control", "public, max-age=60"},
		{"X-Frame-Options", "DENY"}, {"Link", "</a>; rel=b"}, {"Content-Type", "text/plain; charset=utf-8"}, {"Content-Length", "13"}}
	if got := withoutDate(answer.fields); !slices.Equal(got, want) || answer.get("Date") == "" {
		t.Errorf("%q, want\n%q and a date", answer.fields, want)
	}
	c.say(t, get("/plain/app.js"))
	if got := fieldValues(c.wantAnswer(t, "GET", 200, "let a = 1\n").fields, "Content-Type"); !slices.Equal(got, []string{"text/plain; charset=koi8-r"}) {
		t.Errorf("a route with a type of its own sends %q", got)
	}
}

func setTime(t *testing.T, name string, seconds, nanoseconds int64) {
	t.Helper()
	ts := []syscall.Timespec{{Sec: seconds, Nsec: nanoseconds}, {Sec: seconds, Nsec: nanoseconds}}
	if err := syscall.UtimesNano(name, ts); err != nil {
		t.Fatal(err)
	}
}

// traversals are targets that name nothing, however they are written. None may
// leave the directory, show what is hidden, or block.
var traversals = []string{
	"/static/", "/static", "/static/.", "/static/..", "/static/./hello.txt", "/static/../secret.txt", "/static/sub/../hello.txt", "/static/sub/../../../secret.txt", "/../secret.txt",
	"/static/%2e%2e/secret.txt", "/static/%2e%2e%2fsecret.txt", "/static/..%2fsecret.txt", "/static/..%2Fsecret.txt", "/static/.%2e/secret.txt", "/static/%2E./secret.txt",
	"/static/%2e/hello.txt", "/static/sub/%2e%2e/%2e%2e/secret.txt", "/static%2f..%2fsecret.txt", "/static/..;/secret.txt", "/static/%252e%252e/secret.txt", "/static/%c0%ae%c0%ae/secret.txt",
	"/static/%ef%bc%8e%ef%bc%8e/secret.txt", "/static/..%5csecret.txt", "/static/%5c..%5csecret.txt", "/static/hello.txt%00", "/static/hello.txt%00.js", "/static/%00", "/static/..%00/secret.txt",
	"/static//hello.txt", "/static///etc/passwd", "/static//etc/passwd", "/static/%2fetc/passwd", "/static/%2f%2fetc%2fpasswd", "//static/hello.txt", "/static/hello.txt/", "/static/hello.txt/x",
	"/static/hello.txt%2f", "/static/sub", "/static/sub/", "/static/sub/deep/", "/static/.env", "/static/%2eenv", "/static/.git/config", "/static/sub/.hidden", "/static/..two", "/static/sub/..%2f.env",
	"/static/out", "/static/out-dir/secret.txt", "/static/out-dir/site/hello.txt", "/static/absolute", "/static/root/etc/passwd", "/static/root", "/static/pipe", "/static/in-dir/../out",
	"/static/nobody", "/static/HELLO.TXT", "/static/hello.tx", "/static/%", "/static/%2", "/static/?hello.txt", "/STATIC/hello.txt", "/static/~root", "/static/file:///etc/passwd",
	"/static/" + strings.Repeat("x", 400), "/static/" + strings.Repeat("a/", 2000), "/static/" + strings.Repeat("../", 100) + "etc/passwd", "/static/" + strings.Repeat("%2e%2e%2f", 100) + "etc/passwd",
}

func TestFiles_NoTargetLeavesTheDirectoryOrShowsWhatIsHidden(t *testing.T) {
	dir := fileTree(t)
	addr := startServer(t, proxy.Config{}, []proxy.Route{filesAt("/static/", dir), {Match: "/fine", Respond: &proxy.Respond{Status: 200, Body: []byte("fine")}}})
	c := dialWire(t, addr)
	for _, target := range traversals {
		for _, method := range []string{"GET", "HEAD"} {
			c.say(t, method+" "+target+" HTTP/1.1\r\nHost: a.test\r\n\r\n")
			answer := c.wantAnswer(t, method, 404, "*")
			if answer.get("Holdfast-Reason") != "no_route" || strings.Contains(string(answer.body), secret) || answer.get("ETag") != "" || answer.closes() {
				t.Errorf("%s %.60s: %q %s", method, target, answer.fields, answer.body)
			}
		}
	}
	c.say(t, get("/fine"))
	c.wantAnswer(t, "GET", 200, "fine")
	// What the wire check refuses names nothing either.
	for _, target := range []string{`/static/..\secret.txt`, "/static/\x00", "/static/hello.txt\x00", "static/hello.txt", "/static/#", "../secret.txt"} {
		c := say(t, addr, get(target))
		if answer := c.wantAnswer(t, "GET", 400, "*"); strings.Contains(string(answer.body), secret) {
			t.Errorf("%q: %s", target, answer.body)
		}
	}
}

// The rest of the name is what is below the pattern: from the root, from a
// wildcard, and from a single path.
func TestFiles_NoPatternLeavesTheDirectory(t *testing.T) {
	dir := fileTree(t)
	addr := startServer(t, proxy.Config{}, []proxy.Route{filesAt("a.test/", dir), filesAt("b.test/{any}/{rest...}", dir), filesAt("c.test/{name}", dir), filesAt("d.test/{$}", dir)})
	for host, targets := range map[string][]string{
		"a.test": {"/", "/..", "/../secret.txt", "/%2e%2e/secret.txt", "//secret.txt", "/.env", "/out", "/pipe", "/./hello.txt"},
		"b.test": {"/x", "/x/", "/../secret.txt", "/x/../secret.txt", "/x/../../secret.txt", "/x/%2e%2e%2fsecret.txt", "/x/.env", "/x//hello.txt", "/%2e%2e/%2e%2e/secret.txt"},
		"c.test": {"/", "/..", "/%2e%2e", "/.env", "/sub", "/out", "/sub%2fdeep", "/..%2fsecret.txt"},
		"d.test": {"/", "/hello.txt"},
	} {
		c := dialWire(t, addr)
		for _, target := range targets {
			c.say(t, "GET "+target+" HTTP/1.1\r\nHost: "+host+"\r\n\r\n")
			if answer := c.wantAnswer(t, "GET", 404, "*"); strings.Contains(string(answer.body), secret) {
				t.Errorf("%s%s: %s", host, target, answer.body)
			}
		}
	}
	c := dialWire(t, addr)
	for _, ask := range []string{"a.test /hello.txt", "b.test /../hello.txt", "b.test /x/hello.txt", "c.test /hello.txt"} {
		host, target, _ := strings.Cut(ask, " ")
		c.say(t, "GET "+target+" HTTP/1.1\r\nHost: "+host+"\r\n\r\n")
		c.wantAnswer(t, "GET", 200, "hello, world\n")
	}
}

// A pipe that nobody writes to would block whoever opens it for good.
func TestFiles_WhatIsNoRegularFileIsAMissAndNobodyWaits(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("unix", filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	os.Mkdir(filepath.Join(dir, "folder.html"), 0o755)
	names := []string{"pipe", "socket", "folder.html"}
	if err := syscall.Mknod(filepath.Join(dir, "null"), syscall.S_IFCHR|0o666, 1<<8|3); err == nil { // needs rights
		names = append(names, "null")
	}
	c := dialWire(t, startServer(t, proxy.Config{}, []proxy.Route{filesAt("/", dir)}))
	for range 3 {
		for _, name := range names {
			c.say(t, get("/"+name))
			c.wantReason(t, 404, "no_route")
		}
	}
}

// A directory that is replaced, or a link that is turned to the next release,
// is seen by the next request, and a lost one is told once.
func TestFiles_TheDirectoryIsTheOneThatIsThereNow(t *testing.T) {
	top := t.TempDir()
	for _, release := range []string{"one", "two"} {
		os.Mkdir(filepath.Join(top, release), 0o755)
		if err := os.WriteFile(filepath.Join(top, release, "a"), []byte(release), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	now := filepath.Join(top, "now")
	turn := func(to string) {
		if err := os.Symlink(to, now+".next"); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(now+".next", now); err != nil {
			t.Fatal(err)
		}
	}
	turn("one")
	addr, logs := startLogged(t, "tcp", proxy.Config{}, []proxy.Route{filesAt("/", now)})
	c := say(t, addr, get("/a"))
	c.wantAnswer(t, "GET", 200, "one")
	turn("two")
	c.say(t, get("/a"))
	c.wantAnswer(t, "GET", 200, "two")
	os.Remove(now)
	for range 3 {
		c.say(t, get("/a"))
		c.wantReason(t, 404, "no_route")
	}
	if told := logs.FilterMessageSnippet("directory of a files route cannot be opened").All(); len(told) != 1 || told[0].Level != zapcore.WarnLevel || told[0].ContextMap()["route"] != "/" {
		t.Errorf("told %d times: %v", len(told), told)
	}
	turn("one")
	c.say(t, get("/a"))
	c.wantAnswer(t, "GET", 200, "one")
}

func TestFiles_OneThatMayNotBeServedIsToldOnce(t *testing.T) {
	addr, logs := startLogged(t, "tcp", proxy.Config{}, []proxy.Route{filesAt("/static/", fileTree(t))})
	c := dialWire(t, addr)
	for range 3 {
		c.say(t, get("/static/out")+get("/static/nobody")+get("/static/sub"))
		for range 3 {
			c.wantReason(t, 404, "no_route")
		}
	}
	if told := logs.FilterMessageSnippet("cannot be read").All(); len(told) != 1 || told[0].Level != zapcore.WarnLevel ||
		told[0].ContextMap()["route"] != "/static/" || !strings.Contains(fmt.Sprint(told[0].ContextMap()["error"]), "out") {
		t.Errorf("told %d times: %v", len(told), told)
	}
}

// ---- A miss, and methods.

func TestFiles_AMissGoesToTheNextRouteThatMatches(t *testing.T) {
	dir, more := fileTree(t), t.TempDir()
	bigFile(t, more, "more.txt", 10)
	site, api := startNamed(t, "site"), startNamed(t, "api")
	addr := startServer(t, proxy.Config{}, []proxy.Route{
		filesAt("/static/", dir), filesAt("/static/{sub}/", more), filesAt("/{rest...}", more), {Match: "GET h.test/", Files: &proxy.Files{Dir: dir}},
		{Match: "POST /static/", Lane: api.lane}, {Match: "h.test/{$}", Respond: &proxy.Respond{Status: 200, Body: []byte("home")}},
		{Match: "h.test/more.txt", Lane: site.lane}, {Match: "/app/", Lane: site.lane}, {Match: "GET /app/img/", Files: &proxy.Files{Dir: dir}},
	})
	for _, ask := range []struct {
		ask, body string
		status    int
	}{
		{"GET a.test/static/hello.txt", "hello, world\n", 200}, {"GET a.test/static/more.txt", "", 404}, {"GET a.test/static/x/more.txt", "0000000\n00", 200},
		{"GET a.test/static/sub/deep/page.html", "<p>deep</p>\n", 200}, // of the second directory there is none below sub
		{"GET a.test/more.txt", "0000000\n00", 200}, {"GET h.test/more.txt", "site", 200}, {"GET h.test/hello.txt", "hello, world\n", 200}, {"GET h.test/", "home", 200},
		{"GET h.test/static/hello.txt", "hello, world\n", 200}, // the host's own has none, the next has it
		{"GET a.test/app/img/hello.txt", "hello, world\n", 200}, {"GET a.test/app/img/x", "site", 200}, {"GET a.test/app/img/../x", "site", 200},
		{"POST a.test/static/hello.txt", "api", 200}, {"GET a.test/static/nobody", "", 404}, {"POST a.test/app/img/hello.txt", "site", 200},
	} {
		method, rest, _ := strings.Cut(ask.ask, " ")
		host, target, _ := strings.Cut(rest, "/")
		c := say(t, addr, fmt.Sprintf("%s /%s HTTP/1.1\r\nHost: %s\r\nContent-Length: 0\r\n\r\n", method, target, host))
		if ask.status == 404 {
			c.wantReason(t, 404, "no_route")
			continue
		}
		c.wantAnswer(t, method, ask.status, ask.body)
	}
}

// What a missing file leaves to the app is the request as it came, its body too.
func TestFiles_AMissIsForwardedAsIfTheFileRouteWereNotThere(t *testing.T) {
	app := startNamed(t, "app")
	addr, logs := startLogged(t, "tcp", proxy.Config{AccessLog: true}, []proxy.Route{{Match: "GET /", Files: &proxy.Files{Dir: fileTree(t)}}, {Match: "/", Lane: app.lane}})
	c := say(t, addr, "GET /nobody?a=b HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\nX-A: b\r\n\r\nhello")
	c.wantAnswer(t, "GET", 200, "app")
	c.say(t, "HEAD /nobody HTTP/1.1\r\nHost: a.test\r\n\r\n")
	c.wantAnswer(t, "HEAD", 200, "")
	c.say(t, "GET /slow HTTP/1.1\r\nHost: a.test\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
	if line, _, _, err := readStrictHead(c.reader); err != nil || !strings.HasPrefix(line, "HTTP/1.1 100 ") {
		t.Fatalf("%q %v, want to be asked for the body", line, err)
	}
	c.say(t, "later")
	c.wantAnswer(t, "GET", 200, "app")
	c.say(t, get("/hello.txt"))
	c.wantAnswer(t, "GET", 200, "hello, world\n")
	got := app.Since(0)
	if len(got) != 3 || got[0].Target != "/nobody?a=b" || string(got[0].Body) != "hello" || got[0].Get("X-A") != "b" || got[1].Method != "HEAD" || string(got[2].Body) != "later" {
		t.Errorf("the app saw %+v", got)
	}
	until(t, "four lines", func() bool { return logs.FilterMessage("exchange").Len() == 4 })
	for i, entry := range logs.FilterMessage("exchange").All() {
		route, lane := "/", "app"
		if i == 3 {
			route, lane = "GET /", ""
		}
		if fields := entry.ContextMap(); fields["route"] != route || lane != "" && fields["lane"] != lane || fields["end"] != "done" {
			t.Errorf("line %d: %v", i, fields)
		}
	}
}

func TestFiles_OtherMethodsAreNotAllowedUnlessARouteTakesThem(t *testing.T) {
	dir := fileTree(t)
	c := dialWire(t, startServer(t, proxy.Config{}, []proxy.Route{filesAt("/static/", dir)}))
	for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "PROPFIND", "get"} {
		c.say(t, method+" /static/hello.txt HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\n\r\n")
		if answer := c.wantReason(t, 405, "method_not_allowed"); answer.get("Allow") != "GET, HEAD" {
			t.Errorf("%s: Allow %q", method, answer.get("Allow"))
		}
	}
	c.say(t, "GET /static/hello.txt HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nhello"+get("/static/app.js"))
	c.wantAnswer(t, "GET", 200, "hello, world\n") // its body is read and thrown away
	c.wantAnswer(t, "GET", 200, "let a = 1\n")
	c.say(t, "GET /static/hello.txt HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n")
	c.wantReason(t, 400, "bad_request")
	c.wantEnd(t, false)
}

// ---- Internal routes, as the network sees them.

func TestFiles_InternalOnesAreNotThereForTheNetwork(t *testing.T) {
	dir, app := fileTree(t), startNamed(t, "app")
	routes := []proxy.Route{{Match: "/protected/", Files: &proxy.Files{Dir: dir, Internal: true}}, {Match: "/", Lane: app.lane}, filesAt("/pub/", dir),
		{Match: "/pub/sub/", Files: &proxy.Files{Dir: filepath.Join(dir, "sub"), Internal: true}}}
	c := dialWire(t, startServer(t, proxy.Config{}, routes))
	for _, method := range []string{"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"} {
		for _, target := range []string{"/protected/hello.txt", "/protected/nobody", "/protected/", "/%70rotected/hello.txt", "/protected%2fhello.txt", "/protected/../hello.txt", "http://x.test/protected/hello.txt", "/pub/sub/deep/page.html", "/pub/sub%2fdeep/page.html"} {
			c.say(t, method+" "+target+" HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\nX-Accel-Redirect: /protected/hello.txt\r\n\r\n")
			answer := c.wantAnswer(t, method, 404, "*")
			if answer.get("Holdfast-Reason") != "no_route" || method != "HEAD" && !strings.Contains(string(answer.body), "no route of the configuration takes this path") {
				t.Errorf("%s %s: %q %s", method, target, answer.fields, answer.body)
			}
		}
	}
	for _, target := range []string{"//protected/hello.txt", "/x/../protected/hello.txt", "/Protected/hello.txt", "/protected"} {
		c.say(t, get(target))
		c.wantAnswer(t, "GET", 200, "app") // other paths, and the app's to answer
	}
	if got := app.Count(); got != 4 {
		t.Errorf("the app saw %d requests", got)
	}
}

// ---- The wire, and the app that is not there.

// A file route that has nothing changes nothing of what becomes of a request.
func TestWire_ARouteBehindMissingFilesSeesEachRequestWholeOrNotAtAll(t *testing.T) {
	dir := fileTree(t)
	routes := make(chan *wireRoute, runtime.GOMAXPROCS(0))
	for range cap(routes) {
		up := newRecordingUpstream(t)
		lane := startLane(t, up.Addr(), lanes.Config{Name: "web", Slots: 8, Queue: 512})
		addr := startServer(t, proxy.Config{}, []proxy.Route{{Match: "GET /", Files: &proxy.Files{Dir: dir}}, {Match: "/", Lane: lane}})
		routes <- &wireRoute{addr, up, false}
	}
	for _, c := range readWireCorpus(t) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			route := <-routes
			defer giveBack(routes, route)
			c.run(t, route, wireMode{after: true})
		})
	}
}

func TestFiles_AreServedWhileEveryLaneIsFullAndTheAppIsGone(t *testing.T) {
	dir := fileTree(t)
	gate := make(chan struct{})
	p := newScriptedUpstream(t, echoWhenOpen(t, gate))
	full := startLane(t, p.Addr(), lanes.Config{Name: "full", Slots: 1})
	gone := startLane(t, freePort(t), lanes.Config{Name: "gone", Slots: 1, Queue: 1})
	addr := startServer(t, proxy.Config{}, []proxy.Route{filesAt("/static/", dir), {Match: "/held", Lane: full}, {Match: "/gone", Lane: gone}})
	held := say(t, addr, get("/held"))
	p.Wait(t, 0, 1)
	waits := say(t, addr, get("/gone"))
	until(t, "the app to be missed", func() bool { return gone.Snapshot().Waiting == 1 })
	for range 20 {
		c := say(t, addr, get("/static/hello.txt")+get("/static/app.js"))
		c.wantAnswer(t, "GET", 200, "hello, world\n")
		c.wantAnswer(t, "GET", 200, "let a = 1\n")
	}
	refused := say(t, addr, get("/held"))
	refused.wantReason(t, 503, "lane_full")
	refused.say(t, get("/static/hello.txt"))
	refused.wantAnswer(t, "GET", 200, "hello, world\n")
	close(gate)
	held.wantAnswer(t, "GET", 200, "/held")
	waits.reset()
}
