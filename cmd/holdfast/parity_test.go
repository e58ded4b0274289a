package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http/httputil"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The app asked directly and through Holdfast: whatever is not among the
// expected differences is the same, to the byte and in its order.

// rawAnswer is an answer as it was on the wire, its body without framing.
type rawAnswer struct {
	status string // the whole status line
	fields [][2]string
	body   string
}

func (a *rawAnswer) code() int {
	var code int
	fmt.Sscanf(a.status, "HTTP/1.1 %d", &code)
	return code
}

// get gives a field's values.
func (a *rawAnswer) get(name string) (values []string) {
	for _, f := range a.fields {
		if strings.EqualFold(f[0], name) {
			values = append(values, f[1])
		}
	}
	return values
}

func (a *rawAnswer) has(name, part string) bool {
	return slices.ContainsFunc(a.get(name), func(v string) bool { return strings.Contains(v, part) })
}

// readRawHead reads a head up to its empty line.
func readRawHead(in *bufio.Reader) (*rawAnswer, error) {
	a := &rawAnswer{}
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return nil, fmt.Errorf("in the head: %w", err)
		}
		line, whole := strings.CutSuffix(line, "\r\n")
		name, value, isField := strings.Cut(line, ":")
		switch {
		case !whole:
			return nil, fmt.Errorf("a line ends without CR: %q", line)
		case a.status == "":
			a.status = line
		case line == "":
			return a, nil
		case !isField:
			return nil, fmt.Errorf("not a field: %q", line)
		default:
			a.fields = append(a.fields, [2]string{name, strings.TrimSpace(value)})
		}
	}
}

// readRaw reads one answer.
func readRaw(in *bufio.Reader, method string) (*rawAnswer, error) {
	a, err := readRawHead(in)
	if err != nil {
		return nil, err
	}
	var body io.Reader = in // to the connection's end
	switch length := a.get("Content-Length"); {
	case method == "HEAD" || a.code() == 204 || a.code() == 304:
		return a, nil
	case a.has("Transfer-Encoding", "chunked"):
		body = httputil.NewChunkedReader(in)
	case len(length) > 0:
		n, err := strconv.ParseInt(length[0], 10, 64)
		if err != nil {
			return nil, err
		}
		whole := make([]byte, n)
		_, err = io.ReadFull(in, whole)
		a.body = string(whole)
		return a, err
	}
	whole, err := io.ReadAll(body)
	a.body = string(whole)
	return a, err
}

// askRaw sends a request, byte for byte, on a connection of its own.
func askRaw(t *testing.T, addr, request string) *rawAnswer {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	method, _, _ := strings.Cut(request, " ")
	a, err := readRaw(bufio.NewReader(conn), method)
	if err != nil {
		line, _, _ := strings.Cut(request, "\r\n")
		t.Fatalf("%s at %s: %v", line, addr, err)
	}
	return a
}

// difference is one that is expected: what it does to an answer makes both the
// same. It reports whether there was anything to do.
type difference struct {
	why         string
	direct, via func(*rawAnswer) bool
}

// without drops a field.
func without(name string) func(*rawAnswer) bool {
	return func(a *rawAnswer) bool {
		n := len(a.fields)
		a.fields = slices.DeleteFunc(a.fields, func(f [2]string) bool { return strings.EqualFold(f[0], name) })
		return len(a.fields) < n
	}
}

// masked puts dots for what a pattern's groups find in a field, or in the body (name "").
func masked(name, pattern string) func(*rawAnswer) bool {
	find := regexp.MustCompile(pattern)
	return func(a *rawAnswer) (found bool) {
		if name == "" {
			found = find.MatchString(a.body)
			a.body = find.ReplaceAllString(a.body, "$1…")
			return found
		}
		for i, f := range a.fields {
			if strings.EqualFold(f[0], name) && find.MatchString(f[1]) {
				a.fields[i][1], found = find.ReplaceAllString(f[1], "$1…"), true
			}
		}
		return found
	}
}

func nothing(*rawAnswer) bool { return false }

// expectedDifferences, in order. What only one side has is taken out there
// alone, so that it would be found on the other.
var expectedDifferences = []difference{
	{"X-Request-ID is added where the app has none", nothing, without("X-Request-ID")},
	{"M0 fields are for Holdfast and go no further", func(a *rawAnswer) bool {
		n := len(a.fields)
		a.fields = slices.DeleteFunc(a.fields, func(f [2]string) bool { return strings.HasPrefix(strings.ToLower(f[0]), "m0-") })
		return len(a.fields) < n
	}, nothing},
	{"Connection is of one connection", without("Connection"), without("Connection")},
	{"Transfer-Encoding is of one connection; bodies are compared without it", without("Transfer-Encoding"), without("Transfer-Encoding")},
	{"a 204 has no Content-Length (RFC 9110 §8.6)", func(a *rawAnswer) bool {
		return a.code() == 204 && without("Content-Length")(a)
	}, nothing},
	// Not Holdfast's: what differs between any two answers of the app.
	{"the clock went on", masked("Date", `()^.*$`), masked("Date", `()^.*$`)},
	{"the clock went on in a cookie", masked("Set-Cookie", `(expires=)[^;]*`), masked("Set-Cookie", `(expires=)[^;]*`)},
	{"a token is made for each visitor, a session is signed with its time",
		masked("Set-Cookie", `^((?:csrftoken|sessionid)=)[^;]+`), masked("Set-Cookie", `^((?:csrftoken|sessionid)=)[^;]+`)},
	{"the tag of a page with a token in it", maskedTag, maskedTag},
	{"a token is masked anew in each page", masked("", formToken), masked("", formToken)},
}

const formToken = `(name="csrfmiddlewaretoken" value=")[A-Za-z0-9]{64}`

func maskedTag(a *rawAnswer) bool {
	return strings.Contains(a.body, "csrfmiddlewaretoken") && masked("ETag", `()^.*$`)(a)
}

// wantSame compares two answers but for what is expected, and counts that in seen.
func wantSame(t *testing.T, direct, via *rawAnswer, seen map[string]int) {
	t.Helper()
	if ids := via.get("X-Request-ID"); len(ids) != 1 || len(ids[0]) != 32 {
		t.Errorf("X-Request-ID: %q, want one of ours", ids)
	}
	for _, d := range expectedDifferences {
		a, b := d.direct(direct), d.via(via)
		if a || b {
			seen[d.why]++
		}
	}
	if direct.status != via.status {
		t.Errorf("status line %q, directly %q", via.status, direct.status)
	}
	if !slices.Equal(direct.fields, via.fields) {
		t.Errorf("fields\n%q, directly\n%q", via.fields, direct.fields)
	}
	if direct.body != via.body {
		t.Errorf("body of %d bytes, directly %d:\n%.300q\n%.300q", len(via.body), len(direct.body), via.body, direct.body)
	}
}

// visitor is one who comes with what it was given before.
type visitor struct {
	cookies map[string]string
	token   string // of the last form
	whole   bool   // sends chunked bodies with a length instead
	tag     string // of the last answer that had one
}

// see keeps what an answer gave.
func (v *visitor) see(a *rawAnswer) {
	for _, set := range a.get("Set-Cookie") {
		cookie, _, _ := strings.Cut(set, ";")
		if name, value, _ := strings.Cut(cookie, "="); value == `""` {
			delete(v.cookies, name)
		} else {
			v.cookies[name] = value
		}
	}
	if found := regexp.MustCompile(formToken).FindString(a.body); found != "" {
		v.token = found[len(found)-64:]
	}
	if tags := a.get("ETag"); len(tags) > 0 {
		v.tag = tags[0]
	}
}

// request is the bytes of a step as this visitor sends them. TOKEN and TAG
// stand for what it was given.
func (v *visitor) request(s *step) string {
	fill := strings.NewReplacer("TOKEN", v.token, "TAG", v.tag)
	body := fill.Replace(s.body)
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: desk.example:8443\r\nUser-Agent: visitor\r\n", s.method, s.target)
	if !s.stranger && len(v.cookies) > 0 {
		var pairs []string
		for name, value := range v.cookies {
			pairs = append(pairs, name+"="+value)
		}
		slices.Sort(pairs)
		fmt.Fprintf(&b, "Cookie: %s\r\n", strings.Join(pairs, "; "))
	}
	b.WriteString(fill.Replace(s.fields))
	switch {
	case s.chunked && !v.whole:
		fmt.Fprintf(&b, "Transfer-Encoding: chunked\r\n\r\n5\r\n%s\r\n%x;why=not\r\n%s\r\n0\r\n\r\n", body[:5], len(body)-5, body[5:])
	case body != "":
		fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n%s", len(body), body)
	default:
		b.WriteString("\r\n")
	}
	return b.String()
}

// step is one request of the script, and what shows that it does what it is for.
type step struct {
	name, method, target string
	fields               string // further ones, with their CRLFs
	body                 string
	chunked              bool
	stranger             bool // sends no cookie
	status               int
	route, lane          string
	shows                func(*rawAnswer) bool // of the direct answer; nil: the status does
}

const (
	form      = "Content-Type: application/x-www-form-urlencoded\r\n"
	multipart = "Content-Type: multipart/form-data; boundary=bound\r\nX-CSRFToken: TOKEN\r\n"
)

// attachment is a multipart body with a file of some bytes that are not text.
var attachment = "--bound\r\nContent-Disposition: form-data; name=\"ticket\"\r\n\r\n7\r\n" +
	"--bound\r\nContent-Disposition: form-data; name=\"file\"; filename=\"Gr\u00fc\u00dfe.bin\"\r\nContent-Type: application/x-desk\r\n\r\n" +
	strings.Repeat("\x00\r\n\xff--boun", 4000) + "\r\n--bound--\r\n"

var parityScript = []step{
	{name: "json", method: "GET", target: "/api/tickets", status: 200, route: "/", lane: "web"},
	{name: "not modified by its tag", method: "GET", target: "/api/tickets", fields: "If-None-Match: TAG\r\n", status: 304, route: "/", lane: "web"},
	{name: "scan", method: "GET", target: "/api/scan", status: 200, route: "/", lane: "web",
		shows: func(a *rawAnswer) bool { return strings.Count(a.body, "number") == 40 }},
	{name: "scan with parameters", method: "GET", target: "/api/scan?q=gr%C3%BC%c3%9fe&state=open&state=closed&limit=3&&x=%zz+",
		status: 200, route: "/", lane: "web", shows: func(a *rawAnswer) bool {
			return strings.Contains(a.body, "%c3%9fe&state=open&state=closed&limit=3&&x=%zz+") && strings.Count(a.body, "number") == 3
		}},
	{name: "path with escapes", method: "GET", target: "/api/%74ickets/%33", status: 200, route: "/", lane: "web"},
	{name: "bad parameter", method: "GET", target: "/api/scan?limit=many", status: 400, route: "/", lane: "web"},
	{name: "slow", method: "GET", target: "/reports/slow?ms=300", status: 200, route: "/reports/", lane: "slow"},
	{name: "not found", method: "GET", target: "/nowhere/at/all", status: 404, route: "/", lane: "web"},
	{name: "method not allowed", method: "POST", target: "/api/scan", fields: form, body: "q=x", status: 405, route: "/", lane: "web",
		shows: func(a *rawAnswer) bool { return a.has("Allow", "GET") }},
	{name: "options", method: "OPTIONS", target: "/api/tickets/3", status: 200, route: "/", lane: "web",
		shows: func(a *rawAnswer) bool { return a.has("Allow", "DELETE") }},
	{name: "head", method: "HEAD", target: "/about", status: 200, route: "/", lane: "web",
		shows: func(a *rawAnswer) bool { return len(a.get("Content-Length")) == 1 && a.get("Content-Length")[0] != "0" }},
	{name: "head of what has no length", method: "HEAD", target: "/reports/export", status: 200, route: "/reports/", lane: "slow"},
	{name: "no content", method: "DELETE", target: "/api/tickets/3", status: 204, route: "/", lane: "web"},
	{name: "redirect of a stranger", method: "GET", target: "/tickets", status: 302, route: "/", lane: "web",
		shows: func(a *rawAnswer) bool { return a.has("Location", "/login?next=%2Ftickets") }},
	{name: "form", method: "GET", target: "/login", status: 200, route: "/", lane: "web",
		shows: func(a *rawAnswer) bool { return a.has("Set-Cookie", "csrftoken=") }},
	{name: "form without a token", method: "POST", target: "/login", fields: form, body: "name=ada&password=engine", status: 403, route: "/", lane: "web"},
	{name: "form filled in wrong", method: "POST", target: "/login", fields: form, body: "csrfmiddlewaretoken=TOKEN&name=ada&password=x",
		status: 400, route: "/", lane: "web"},
	{name: "sign in", method: "POST", target: "/login", fields: form, body: "csrfmiddlewaretoken=TOKEN&name=ada&password=engine",
		status: 302, route: "/", lane: "web", shows: func(a *rawAnswer) bool { return a.has("Set-Cookie", "sessionid=") && a.has("Location", "/tickets") }},
	{name: "page of a session", method: "GET", target: "/tickets", status: 200, route: "/", lane: "web",
		shows: func(a *rawAnswer) bool { return strings.Contains(a.body, "Signed in as ada") }},
	{name: "form that goes on elsewhere", method: "POST", target: "/tickets/new", fields: form,
		body: "csrfmiddlewaretoken=TOKEN&subject=Gr%C3%BC%C3%9Fe&text=a%0D%0Ab", status: 303, route: "/", lane: "web"},
	{name: "upload by a form", method: "POST", target: "/files/", fields: multipart, body: attachment, status: 201, route: "POST /files/", lane: "upload",
		shows: func(a *rawAnswer) bool { return strings.Contains(a.body, `"bytes": 40000`) }},
	{name: "upload in chunks", method: "PUT", target: "/files/raw", body: strings.Repeat("chunk after chunk\r\n0\r\n\r\n", 2000), chunked: true,
		status: 200, route: "PUT /files/", lane: "upload", shows: func(a *rawAnswer) bool { return strings.Contains(a.body, `"bytes": 48000`) }},
	{name: "cookies", method: "GET", target: "/preferences", status: 200, route: "/", lane: "web",
		shows: func(a *rawAnswer) bool { return len(a.get("Set-Cookie")) == 3 }},
	{name: "cookies brought back", method: "GET", target: "/preferences", status: 200, route: "/", lane: "web",
		shows: func(a *rawAnswer) bool { return strings.Contains(a.body, "theme dark, warm") }},
	{name: "gzip", method: "GET", target: "/reports/text", fields: "Accept-Encoding: gzip, br\r\n", status: 200, route: "/reports/", lane: "slow",
		shows: func(a *rawAnswer) bool {
			return a.has("Content-Encoding", "gzip") && strings.HasPrefix(a.body, "\x1f\x8b")
		}},
	{name: "not gzip", method: "GET", target: "/reports/text", status: 200, route: "/reports/", lane: "slow",
		shows: func(a *rawAnswer) bool { return !a.has("Content-Encoding", "gzip") }},
	{name: "streamed", method: "GET", target: "/reports/export?times=50", status: 200, route: "/reports/", lane: "slow",
		shows: func(a *rawAnswer) bool {
			return len(a.get("Content-Length")) == 0 && strings.Count(a.body, "\r\n") == 2001
		}},
	{name: "streamed with a length", method: "GET", target: "/files/big?bytes=300001", status: 200, route: "/", lane: "web",
		shows: func(a *rawAnswer) bool { return len(a.body) == 300001 }},
	{name: "whole of what has ranges", method: "GET", target: "/files/manual", status: 200, route: "/", lane: "web"},
	{name: "not modified since", method: "GET", target: "/files/manual", fields: "If-Modified-Since: Tue, 02 Jan 2024 03:04:05 GMT\r\n",
		status: 304, route: "/", lane: "web"},
	{name: "range", method: "GET", target: "/files/manual", fields: "Range: bytes=100-299\r\n", status: 206, route: "/", lane: "web",
		shows: func(a *rawAnswer) bool { return len(a.body) == 200 && a.has("Content-Range", "bytes 100-299/") }},
	{name: "range from the end", method: "GET", target: "/files/manual", fields: "Range: bytes=-7\r\n", status: 206, route: "/", lane: "web"},
	{name: "range beyond", method: "GET", target: "/files/manual", fields: "Range: bytes=999999-\r\n", status: 416, route: "/", lane: "web"},
	{name: "event view of all", method: "GET", target: "/live/feed", status: 200, route: "/", lane: "web", shows: held},
	{name: "event view of one", method: "GET", target: "/live/ticket/7", fields: "Accept: text/event-stream\r\n", status: 200, route: "/", lane: "web", shows: held},
	{name: "event view to poll", method: "GET", target: "/live/poll", status: 200, route: "/", lane: "web", shows: held},
	{name: "event view of sockets", method: "GET", target: "/live/socket", status: 200, route: "/", lane: "web", shows: held},
	{name: "page on the stream lane", method: "GET", target: "/rt/status", status: 200, route: "/rt/", lane: "streams"},
	{name: "head on the stream lane", method: "HEAD", target: "/rt/status", status: 200, route: "/rt/", lane: "streams"},
	{name: "body on the stream lane", method: "POST", target: "/rt/mirror", body: strings.Repeat("mirror ", 5000), status: 200, route: "/rt/", lane: "streams",
		shows: func(a *rawAnswer) bool { return strings.HasSuffix(a.body, "35000 bytes\n") }},
	{name: "chunks on the stream lane", method: "POST", target: "/rt/mirror", body: strings.Repeat("mirror ", 5000), chunked: true, status: 200, route: "/rt/", lane: "streams",
		shows: func(a *rawAnswer) bool { return strings.HasSuffix(a.body, "35000 bytes\n") }},
	{name: "nothing on the stream lane", method: "GET", target: "/rt/nothing", status: 404, route: "/rt/", lane: "streams"},
	{name: "sign out", method: "GET", target: "/tickets", status: 200, route: "/", lane: "web"},
	{name: "signed out", method: "POST", target: "/logout", fields: form, body: "csrfmiddlewaretoken=TOKEN", status: 302, route: "/", lane: "web",
		shows: func(a *rawAnswer) bool { return a.has("Set-Cookie", "sessionid=") }},
}

func held(a *rawAnswer) bool { return len(a.get("M0-Hold")) == 1 && a.body != "" }

// links are where the index leads, and the lane that each is on.
var links = map[string]string{
	"/about": "web", "/login": "web", "/tickets": "web", "/tickets/new": "web", "/api/scan?q=printer&limit=3": "web",
	"/reports/text": "slow", "/reports/export": "slow", "/files/manual": "web", "/live/feed": "web", "/demo/": "web",
}

// parity is a script asked of both, each with a visitor of its own.
type parity struct {
	direct map[string]string // the address by lane
	via    string
	log    *syncBuffer
	seen   map[string]int
	one    *visitor
	other  *visitor
}

func (p *parity) run(t *testing.T, s *step) *rawAnswer {
	t.Helper()
	direct := askRaw(t, p.direct[s.lane], p.one.request(s))
	via := askRaw(t, p.via, p.other.request(s))
	if direct.code() != s.status || s.shows != nil && !s.shows(direct) {
		t.Errorf("the app answered %s %q %.300q: that shows nothing", direct.status, direct.fields, direct.body)
	}
	p.one.see(direct)
	p.other.see(via)
	p.wantLogged(t, via, s)
	shown := *direct
	wantSame(t, direct, via, p.seen)
	return &shown
}

// wantLogged finds the access-log line of an answer.
func (p *parity) wantLogged(t *testing.T, a *rawAnswer, s *step) {
	t.Helper()
	ids := a.get("X-Request-ID")
	if len(ids) == 0 {
		t.Error("no X-Request-ID")
		return
	}
	var line string
	eventually(t, "the access-log line of "+s.name, func() bool {
		for line = range strings.Lines(p.log.String()) {
			if strings.Contains(line, ids[0]) && strings.Contains(line, `"exchange"`) {
				return true
			}
		}
		return false
	})
	var got struct {
		Method, Path, Route, Lane, Target, End string
		Status                                 int
	}
	path, _, _ := strings.Cut(s.target, "?")
	if err := json.Unmarshal([]byte(line), &got); err != nil || got.Method != s.method || got.Path != path || got.Status != s.status ||
		got.Route != s.route || got.Lane != s.lane || got.Target != "http://"+p.direct[s.lane] || got.End != "done" {
		t.Errorf("logged %s, want route %q, lane %s, target %s and end done", line, s.route, s.lane, p.direct[s.lane])
	}
}

func TestParity_TheAppDirectlyAndThroughHoldfast(t *testing.T) {
	t.Parallel()
	d := startDesk(t)
	seen := map[string]int{}
	for _, kind := range []struct {
		name string
		app  *app
	}{{"WSGI", d.wsgi}, {"ASGI", d.asgi}} {
		// The dialect of the event views is off: they answer as they would directly.
		h, log := startExample(t, kind.app, d.asgi, "MIXED_DIALECT=grip")
		p := &parity{via: addrOf(h), log: log, seen: seen,
			direct: map[string]string{"web": kind.app.addr, "slow": kind.app.addr, "upload": kind.app.addr, "streams": d.asgi.addr},
			// Django on WSGI takes no body without a length. Holdfast gives it one, so
			// that a client may send chunks; directly the same body comes with its length.
			one: &visitor{cookies: map[string]string{}, whole: kind.name == "WSGI"}, other: &visitor{cookies: map[string]string{}}}
		t.Run(kind.name, func(t *testing.T) {
			p.followIndex(t)
			for _, s := range parityScript {
				t.Run(s.name, func(t *testing.T) { p.run(t, &s) })
			}
		})
	}
	for _, d := range expectedDifferences {
		if seen[d.why] == 0 {
			t.Errorf("%q is expected and never seen: it is to be taken out", d.why)
		}
	}
}

// followIndex asks for the index and everything that it links to.
func (p *parity) followIndex(t *testing.T) {
	index := p.run(t, &step{name: "index", method: "GET", target: "/", status: 200, route: "/", lane: "web"})
	found := regexp.MustCompile(`href="([^"]+)"`).FindAllStringSubmatch(index.body, -1)
	if len(found) != len(links) {
		t.Errorf("%d links in the index, want %d", len(found), len(links))
	}
	for _, link := range found {
		target := strings.ReplaceAll(link[1], "&amp;", "&")
		lane, known := links[target]
		if !known {
			t.Errorf("nothing is known of the link %s", target)
			continue
		}
		s := &step{name: "link", method: "GET", target: target, stranger: true, status: 200, route: "/", lane: lane}
		if lane == "slow" {
			s.route = "/reports/"
		}
		if target == "/tickets" {
			s.status = 302
		}
		t.Run("link "+target, func(t *testing.T) { p.run(t, s) })
	}
}

// The negative arm: two answers that differ in one thing are not the same.
func TestParity_ADifferenceThatIsNotExpectedIsFound(t *testing.T) {
	same := func() *rawAnswer {
		return &rawAnswer{status: "HTTP/1.1 200 OK", body: "b", fields: [][2]string{
			{"X-Request-ID", strings.Repeat("a", 32)}, {"A", "1"}, {"B", "2"}, {"Content-Length", "1"}}}
	}
	for name, change := range map[string]func(*rawAnswer){
		"reason":   func(a *rawAnswer) { a.status = "HTTP/1.1 200 Ok" },
		"case":     func(a *rawAnswer) { a.fields[1][0] = "a" },
		"value":    func(a *rawAnswer) { a.fields[1][1] = "one" },
		"order":    func(a *rawAnswer) { a.fields[1], a.fields[2] = a.fields[2], a.fields[1] },
		"lost":     func(a *rawAnswer) { a.fields = a.fields[:3] },
		"added":    func(a *rawAnswer) { a.fields = append(a.fields, [2]string{"C", "3"}) },
		"M0 field": func(a *rawAnswer) { a.fields = append(a.fields, [2]string{"M0-Hold", "stream"}) },
		"body":     func(a *rawAnswer) { a.body = "B" },
	} {
		direct, via := same(), same()
		direct.fields = direct.fields[1:]
		change(via)
		for _, d := range expectedDifferences {
			d.direct(direct)
			d.via(via)
		}
		if direct.status == via.status && slices.Equal(direct.fields, via.fields) && direct.body == via.body {
			t.Errorf("%s: not found", name)
		}
	}
}

// An endless answer and a handshake have heads, too.
func TestParity_HeadsOfStreamsAndHandshakes(t *testing.T) {
	t.Parallel()
	d := startDesk(t)
	h := d.serve(t)
	for name, request := range map[string]string{
		"stream":     "GET /rt/ticks?ms=50 HTTP/1.1\r\nHost: desk.example\r\nAccept: text/event-stream\r\n\r\n",
		"handshake":  "GET /rt/echo?hello=there HTTP/1.1\r\nHost: desk.example\r\nSec-WebSocket-Protocol: desk.v1, other\r\n" + upgradeFields + "\r\n",
		"no such ws": "GET /rt/none HTTP/1.1\r\nHost: desk.example\r\n" + upgradeFields + "\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			var answers []*rawAnswer
			for _, addr := range []string{d.asgi.addr, addrOf(h)} {
				conn, err := net.Dial("tcp", addr)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				conn.SetDeadline(time.Now().Add(30 * time.Second))
				io.WriteString(conn, request)
				in := bufio.NewReader(conn)
				a, err := readRawHead(in)
				if err != nil {
					t.Fatal(err)
				}
				switch name {
				case "stream":
					piece := make([]byte, len("id: 1\nevent: tick\ndata: 1\n\nid: 2\nevent: tick\n"))
					if _, err := io.ReadFull(httputil.NewChunkedReader(in), piece); err != nil {
						t.Fatal(err)
					}
					a.body = string(piece)
				case "handshake":
					if a.body, err = readFrame(in); err != nil || a.body != "there" {
						t.Errorf("first message %q %v", a.body, err)
					}
				}
				answers = append(answers, a)
			}
			// Where the two stand does not matter: uvicorn's are among the other fields.
			if up := answers[1].get("Upgrade"); name == "handshake" && (len(up) != 1 || up[0] != "websocket" || !answers[1].has("Connection", "pgrade")) {
				t.Errorf("the 101 through Holdfast: %q", answers[1].fields)
			}
			without("Upgrade")(answers[0])
			without("Upgrade")(answers[1])
			wantSame(t, answers[0], answers[1], map[string]int{})
		})
	}
}
