package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Files: a directory beside a real Django app, and downloads that its views
// allow and Holdfast sends.

const filesYAML = `
upstreams: {app: {targets: ["http://%s"], concurrency: 2}}
lanes:
  web:  {upstream: app, slots: 1, queue_timeout: 60s}
  slow: {upstream: app, slots: 1, queue: 0}
routes:
  - {match: /static/, files: {dir: DIR/static, cache_control: "public, max-age=60", headers: {X-Frame-Options: DENY, Link: "</a>"}}}
  - {match: /protected/, files: {dir: DIR/private, internal: true}}
  - {match: /hang, lane: slow}
  - {match: /, lane: web}
`

// filesTree writes a directory of files to serve and one of files that only the
// app leads to.
func filesTree(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range map[string]string{"static/app.js": "let a = 1\n", "static/echo/a": "a file\n", "private/report 1.pdf": "%PDF\n", "secret": "nobody's"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// startFiles serves filesYAML before a worker of two threads.
func startFiles(t *testing.T) (h *holdfast, a *app, dir string) {
	t.Helper()
	a, dir = startGunicorn(t, "-w", "1", "--threads", "2"), filesTree(t)
	return startHoldfast(t, strings.ReplaceAll(filesYAML, "DIR", dir), a), a, dir
}

// answered asks for a path, with fields, and gives the answer with its body.
func answered(t *testing.T, h *holdfast, path string, fields ...string) (*http.Response, string) {
	t.Helper()
	request, err := http.NewRequest("GET", h.url(path), nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(fields); i += 2 {
		request.Header.Set(fields[i], fields[i+1])
	}
	response, err := onceClient().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(path, err)
	}
	return response, string(body)
}

func TestFiles_BesideAnAppAreServedAndWhatIsMissingIsTheApps(t *testing.T) {
	t.Parallel()
	h, a, _ := startFiles(t)
	r, body := answered(t, h, "/static/app.js")
	if r.StatusCode != 200 || body != "let a = 1\n" || r.Header.Get("Cache-Control") != "public, max-age=60" || r.Header.Get("X-Frame-Options") != "DENY" ||
		r.Header.Get("Content-Type") != "text/javascript; charset=utf-8" || r.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%d %q %v", r.StatusCode, body, r.Header)
	}
	if r, body = answered(t, h, "/static/app.js", "If-None-Match", r.Header.Get("ETag")); r.StatusCode != 304 || body != "" {
		t.Errorf("%d %q to who has it", r.StatusCode, body)
	}
	if r, body = answered(t, h, "/static/app.js", "Range", "bytes=4-"); r.StatusCode != 206 || body != "a = 1\n" {
		t.Errorf("%d %q for a range", r.StatusCode, body)
	}
	// Django has no such view: the 404 is its own.
	r, body = answered(t, h, "/static/nobody.js")
	if r.StatusCode != 404 || r.Header.Get("Holdfast-Reason") != "" || !strings.Contains(body, "Not Found") {
		t.Errorf("%d %v %q, want the app's 404", r.StatusCode, r.Header, body)
	}
	if views := a.views(); len(on("/static/nobody.js", views)) != 1 || len(on("/static/app.js", views)) != 0 {
		t.Errorf("the app saw %v", views)
	}
}

func TestFiles_ADownloadThatAViewAllowsIsSentByHoldfast(t *testing.T) {
	t.Parallel()
	h, a, _ := startFiles(t)
	r, body := answered(t, h, "/download/report%201.pdf")
	if r.StatusCode != 403 || body != "not for you\n" {
		t.Errorf("%d %q to a stranger", r.StatusCode, body)
	}
	r, body = answered(t, h, "/download/report%201.pdf", "Cookie", "who=ann")
	if r.StatusCode != 200 || body != "%PDF\n" || r.Header.Get("Content-Type") != "application/pdf" || r.Header.Get("Content-Disposition") != "attachment" ||
		r.Header.Get("Cache-Control") != "private, no-cache" || !strings.HasPrefix(r.Header.Get("Set-Cookie"), "seen=1") || r.Header.Get("X-Accel-Redirect") != "" {
		t.Errorf("%d %q %v", r.StatusCode, body, r.Header)
	}
	// The view is asked each time, whatever the client has.
	if r, body = answered(t, h, "/download/report%201.pdf", "Cookie", "who=ann", "If-None-Match", r.Header.Get("ETag")); r.StatusCode != 304 || body != "" {
		t.Errorf("%d %q to who has it", r.StatusCode, body)
	}
	if r, body = answered(t, h, "/download/report%201.pdf", "If-None-Match", r.Header.Get("ETag")); r.StatusCode != 403 {
		t.Errorf("%d %q to a stranger who has it", r.StatusCode, body)
	}
	for _, path := range []string{"/protected/report%201.pdf", "/%70rotected/report%201.pdf"} {
		if r, body = answered(t, h, path, "Cookie", "who=ann"); r.StatusCode != 404 || r.Header.Get("Holdfast-Reason") != "no_route" {
			t.Errorf("%s: %d %q", path, r.StatusCode, body)
		}
	}
	for _, name := range []string{"nobody", "../secret", "%2e%2e/secret", "..%2Fsecret", "%252e%252e%252fsecret"} {
		if r, body = answered(t, h, "/download/"+name, "Cookie", "who=ann"); r.StatusCode != 404 || strings.Contains(body, "nobody's") {
			t.Errorf("%s: %d %q", name, r.StatusCode, body)
		}
	}
	if n := len(on("/download/", a.views())); n < 4 {
		t.Errorf("%d views ran", n)
	}
}

// While a client takes its 64 MiB at its own pace, the one slot of its lane
// serves the others, and no view runs.
func TestFiles_ASlowDownloadKeepsNoWorker(t *testing.T) {
	t.Parallel()
	h, a, dir := startFiles(t)
	want := sha256.New()
	file, err := os.Create(filepath.Join(dir, "private", "big.bin"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := io.Copy(io.MultiWriter(file, want), &pattern{n: 64 << 20}); err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", addrOf(h))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	fmt.Fprint(conn, "GET /download/big.bin HTTP/1.1\r\nHost: localhost\r\nCookie: who=ann\r\n\r\n")
	in := bufio.NewReader(conn)
	response, err := http.ReadResponse(in, nil)
	if err != nil || response.StatusCode != 200 || response.ContentLength != 64<<20 {
		t.Fatal(response, err)
	}
	for range 10 {
		wantGet(t, onceClient(), h.url("/fast"))
	}
	if n := a.running("/download/"); n != 0 {
		t.Errorf("%d views still run", n)
	}
	if s := h.wiring.Load().lanes["web"].Snapshot(); s.InUse != 0 || s.Abandoned != 0 {
		t.Errorf("%+v while the file is being sent", s)
	}
	got := sha256.New()
	if n, err := io.Copy(got, response.Body); n != 64<<20 || err != nil || !bytes.Equal(got.Sum(nil), want.Sum(nil)) {
		t.Errorf("%d bytes, %v, or others", n, err)
	}
}

func TestFiles_AreServedWhenTheAppHangsAndWhenItIsGone(t *testing.T) {
	t.Parallel()
	h, a, _ := startFiles(t)
	hung, err := net.Dial("tcp", addrOf(h))
	if err != nil {
		t.Fatal(err)
	}
	defer hung.Close()
	fmt.Fprint(hung, "GET /hang HTTP/1.1\r\nHost: localhost\r\n\r\n")
	eventually(t, "the view to hang", func() bool { return a.running("/hang") == 1 })
	asFiles := func() {
		t.Helper()
		for range 10 {
			if body := wantGet(t, onceClient(), h.url("/static/app.js")); string(body) != "let a = 1\n" {
				t.Errorf("%q", body)
			}
		}
	}
	asFiles()
	a.kill()
	asFiles()
}

// A reload puts another directory in force, and refuses one that is not there.
func TestFiles_AReloadServesAnotherDirectory(t *testing.T) {
	t.Parallel()
	dir := filesTree(t)
	for _, name := range []string{"one", "two"} {
		os.Mkdir(filepath.Join(dir, name), 0o755)
		if err := os.WriteFile(filepath.Join(dir, name, "a"), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	yaml := "upstreams: {app: {targets: [\"http://" + freeAddress(t) + "\"], start_timeout: 0}}\nlanes: {web: {upstream: app, slots: 1}}\nroutes: [{match: /app, lane: web}, {match: /, files: {dir: \"%s\"}}]\n"
	path := writeConfig(t, yaml, filepath.Join(dir, "one"))
	c := startCommand(t, path)
	wantA := func(want string) {
		t.Helper()
		if got := wantGet(t, onceClient(), "http://"+c.addr+"/a"); string(got) != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	wantA("one")
	admin := c.admin(t)
	put := func(dir string) (int, string) {
		t.Helper()
		text, err := os.ReadFile(writeConfig(t, yaml, dir))
		if err != nil {
			t.Fatal(err)
		}
		replaceFile(t, path, string(text))
		status, body := postReload(t, admin)
		return status, string(body)
	}
	if status, body := put(filepath.Join(dir, "two")); status != 200 {
		t.Fatal(status, body)
	}
	wantA("two")
	if status, body := put(filepath.Join(dir, "three")); status == 200 || !strings.Contains(body, "three") {
		t.Errorf("a directory that is not there: %d %s", status, body)
	}
	wantA("two")
}

func TestFiles_ADirectoryThatCannotBeOpenedIsRefusedAtTheStart(t *testing.T) {
	t.Parallel()
	dir := filesTree(t)
	work, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for written, want := range map[string]string{
		filepath.Join(dir, "gone"):             fmt.Sprintf("%q cannot be opened: no such file or directory", filepath.Join(dir, "gone")),
		filepath.Join(dir, "static", "app.js"): fmt.Sprintf("%q cannot be opened: not a directory", filepath.Join(dir, "static", "app.js")),
		"gone":                                 fmt.Sprintf("\"gone\" cannot be opened in %s: no such file or directory", work),
		"${FILES_GONE:-/nowhere}/static":       "\"/nowhere/static\" cannot be opened: no such file or directory",
	} {
		path := writeConfig(t, minimalYAML+"  - {match: /s/, files: {dir: \"%s\"}}\n", written)
		want = fmt.Sprintf("%s:8:31: routes[1].files.dir %s (make the directory, or correct its path)", path, want)
		if _, err := loadServable(path); err == nil || err.Error() != want {
			t.Errorf("%v\nwant\n%s", err, want)
			continue
		}
		wantServe(t, path, exitConfig)
		if e := examined(t, path); e.Exit != exitConfig {
			t.Errorf("the doctor exits with %d", e.Exit)
		} else {
			e.wantCheck(t, "configuration", "fail", "cannot be opened")
		}
	}
	// One relative to the working directory, and one of a variable, are found.
	for _, good := range []string{"../../testdata", "${FILES_GONE:-" + dir + "/static}"} {
		if _, err := loadServable(writeConfig(t, minimalYAML+"  - {match: /s/, files: {dir: \"%s\"}}\n", good)); err != nil {
			t.Error(err)
		}
	}
}

func TestDoctor_LooksIntoDirectories(t *testing.T) {
	t.Parallel()
	dir := filesTree(t)
	os.Mkdir(filepath.Join(dir, "empty"), 0o755)
	path := writeConfig(t, minimalYAML+"  - {match: /a/, files: {dir: \"%[1]s/static\"}}\n  - {match: /b/, files: {dir: \"%[1]s/empty\"}}\n  - {match: /c/, files: {dir: \"%[1]s/empty\", internal: true}}\n", dir)
	e := examined(t, path)
	e.wantCheck(t, "routes[1].files.dir "+dir+"/static", "ok", "is a directory with files")
	if c := e.wantCheck(t, "routes[2].files.dir "+dir+"/empty", "warn", "is empty"); !strings.Contains(c.Fix, "collectstatic") {
		t.Errorf("%+v", c)
	}
	e.wantCheck(t, "routes[3].files.dir "+dir+"/empty", "ok", "empty so far")
}
