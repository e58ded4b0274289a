package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	mimeparts "mime/multipart"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/internal/http1"
)

// ---- Names.

func TestFileName_IsWhatIsBelowThePatternOrTheLastSegment(t *testing.T) {
	for _, c := range []struct{ match, path, want string }{
		{"/", "/a.txt", "a.txt"}, {"/", "/a/b/c.txt", "a/b/c.txt"},
		{"/static/", "/static/a.css", "a.css"}, {"/static/", "/static/a/b.css", "a/b.css"},
		{"/static/{rest...}", "/static/a/b.css", "a/b.css"}, {"/u/{name}/files/", "/u/ann/files/a/b", "a/b"},
		{"/robots.txt", "/robots.txt", "robots.txt"}, {"/a/b/favicon.ico", "/a/b/favicon.ico", "favicon.ico"}, {"/docs/{name}", "/docs/x.pdf", "x.pdf"},
		{"/.well-known/", "/.well-known/security.txt", "security.txt"}, // what is hidden is asked of the name alone
		{"/", "/a b%41", "a b%41"}, {"/", "/\xff\xfe", "\xff\xfe"}, {"/", "/a:b;c", "a:b;c"}, {"/", "/a..b", "a..b"}, {"/", "/a.", "a."},
		// None:
		{"/static/", "/static/", ""}, {"/static/", "/static/a/", ""}, {"/static/", "/static//a", ""}, {"/static/", "/static/a//b", ""},
		{"/static/", "/static/.", ""}, {"/static/", "/static/..", ""}, {"/static/", "/static/a/../b", ""}, {"/static/", "/static/a/..", ""},
		{"/static/", "/static/.env", ""}, {"/static/", "/static/.git/config", ""}, {"/static/", "/static/a/.b/c", ""}, {"/static/", "/static/...", ""},
		{"/static/", "/static/a\x00", ""}, {"/static/", "/static/a\x00.css", ""}, {"/static/", `/static/a\b`, ""}, {"/static/", `/static/..\a`, ""},
		{"/static/{$}", "/static/", ""}, {"/docs/{name}", "/docs/.x", ""},
	} {
		routes := []Route{{Match: c.match, Files: &Files{}}}
		if _, err := newTable(routes, nil); err != nil {
			t.Fatal(err)
		}
		name, ok := routes[0].fileName([]byte(c.path))
		if ok != (c.want != "") || ok && name != c.want {
			t.Errorf("%s on %q names %q, %v; want %q", c.match, c.path, name, ok, c.want)
		}
	}
}

// FuzzFileName holds that whatever a target says, what is looked for is a plain
// name below the directory: joined to it, it is still there.
func FuzzFileName(f *testing.F) {
	for _, path := range []string{"/static/a.css", "/static/../x", "/static/%2e%2e/x", "/static/%2e%2e%2fx", "/static/..%5cx", "/static/a%00", "/static//etc", "/static/%252e", "/", "/static", "/static/%"} {
		f.Add([]byte(path))
	}
	routes := []Route{{Match: "/static/", Files: &Files{}}, {Match: "/u/{name}/f/{rest...}", Files: &Files{}}, {Match: "/one/{name}", Files: &Files{}}, {Match: "/", Files: &Files{}}}
	table, err := newTable(routes, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, target []byte) {
		if len(target) == 0 || target[0] != '/' {
			return
		}
		decoded := decodePath(target)
		rt, _ := table.match([]byte("GET"), nil, decoded)
		name, ok := rt.fileName(decoded)
		if !ok {
			return
		}
		joined := filepath.Join("/srv/static", name)
		if !filepath.IsLocal(name) || joined != "/srv/static/"+name || !bytes.HasSuffix(decoded, []byte("/"+name)) ||
			strings.Contains("/"+name, "/.") || strings.ContainsAny(name, "\x00\\") {
			t.Errorf("%q names %q, which is %q", target, name, joined)
		}
	})
}

// ---- Opening.

func TestFiles_OpenGivesRegularFilesOfTheDirectoryAndNothingElse(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "site")
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(filepath.Join(dir, "sub"), 0o755))
	must(os.WriteFile(filepath.Join(top, "secret"), []byte("secret"), 0o644))
	must(os.WriteFile(filepath.Join(dir, "a"), []byte("hello"), 0o644))
	must(os.WriteFile(filepath.Join(dir, "sub", "b"), []byte("below"), 0o644))
	for link, to := range map[string]string{
		"in": "a", "in-dir": "sub", "in-chain": "in", "back": "sub/../a", "out": "../secret", "out-dir": "..", "out-far": "sub/../../secret",
		"absolute": filepath.Join(dir, "a"), "root": "/", "loop": "loop", "dangling": "nobody",
	} {
		must(os.Symlink(to, filepath.Join(dir, link)))
	}
	must(syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o644))
	must(syscall.Mknod(filepath.Join(dir, "socket"), syscall.S_IFSOCK|0o644, 0))
	files := &Files{Dir: dir}
	for name, want := range map[string]string{
		"a": "hello", "sub/b": "below", "in": "hello", "in-dir/b": "below", "in-chain": "hello", "back": "hello",
		"out": "", "out-dir/secret": "", "out-far": "", "absolute": "", "root": "", "root/etc/passwd": "", "loop": "", "dangling": "",
		"pipe": "", "socket": "", "sub": "", "nobody": "", "a/b": "", strings.Repeat("x", 300): "", strings.Repeat("x/", 3000) + "x": "",
	} {
		file, err := files.open(name)
		if want == "" {
			if err == nil {
				t.Errorf("%.40s is opened, %d bytes", name, file.size)
				file.Close()
			}
			told := strings.HasPrefix(name, "out") || strings.HasPrefix(name, "root") || name == "absolute"
			if isMiss(err) == told {
				t.Errorf("%.40s: an ordinary miss: %v (%v)", name, isMiss(err), err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if data, err := io.ReadAll(file); err != nil || string(data) != want || file.size != int64(len(want)) {
			t.Errorf("%s has %q (%d), %v; want %q", name, data, file.size, err, want)
		}
		file.Close()
	}
	if _, err := (&Files{Dir: filepath.Join(top, "gone")}).open("a"); !errors.Is(err, errNoDirectory) || isMiss(err) {
		t.Errorf("in a directory that is not there: %v", err)
	}
	if _, err := (&Files{Dir: filepath.Join(dir, "a")}).open("a"); !errors.Is(err, errNoDirectory) {
		t.Errorf("in a directory that is a file: %v", err)
	}
}

// ---- What a client has.

func TestValidators_TellContentsApartAndAreTheSameOnEveryMachine(t *testing.T) {
	at := time.Date(2026, 11, 30, 12, 0, 0, 123456789, time.UTC)
	now := at.Add(time.Hour)
	v := validatorsOf(5, at, now)
	if want := fmt.Sprintf(`"%x-5"`, at.UnixNano()); v.etag != want || !v.modified.Equal(at.Truncate(time.Second)) {
		t.Errorf("%+v, want the tag %s and whole seconds", v, want)
	}
	if again := validatorsOf(5, at.In(time.FixedZone("x", 3600)), now); again != v {
		t.Errorf("%+v in another zone, %+v", again, v)
	}
	for name, other := range map[string]validators{
		"a byte more": validatorsOf(6, at, now), "a nanosecond later": validatorsOf(5, at.Add(1), now), "an hour earlier": validatorsOf(5, at.Add(-time.Hour), now),
	} {
		if other.etag == v.etag {
			t.Errorf("%s has the same tag", name)
		}
	}
	if v := validatorsOf(5, now.Add(time.Hour), now); v.modified.After(now) {
		t.Errorf("modified at %v, which is yet to come", v.modified)
	}
	for _, never := range []time.Time{time.Unix(0, 0), time.Unix(-5, 0), {}} {
		if v := validatorsOf(5, never, now); !v.modified.IsZero() || len(v.etag) < 4 {
			t.Errorf("%v is said as %+v", never, v)
		}
	}
}

func TestConditions_AreJudgedInTheOrderOfTheRFC(t *testing.T) {
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	ours := validators{`"a-1"`, at}
	const before, same, after = "Mon, 30 Nov 2026 11:59:59 GMT", "Mon, 30 Nov 2026 12:00:00 GMT", "Mon, 30 Nov 2026 12:00:01 GMT"
	for _, c := range []struct {
		fields string
		want   int
	}{
		{"", 0},
		{`If-Match: "a-1"`, 0}, {`If-Match: *`, 0}, {`If-Match: "b", "a-1"`, 0}, {"If-Match: \"b\"\nIf-Match: \"a-1\"", 0},
		{`If-Match: "b"`, 412}, {`If-Match: W/"a-1"`, 412}, {`If-Match: `, 412}, {`If-Match: a-1`, 412}, {`If-Match: "b" "a-1"`, 412}, {`If-Match: "b, "a-1"`, 412},
		{"If-Unmodified-Since: " + before, 412}, {"If-Unmodified-Since: " + same, 0}, {"If-Unmodified-Since: " + after, 0},
		{"If-Unmodified-Since: nonsense", 0}, {"If-Unmodified-Since: " + before + "\nIf-Unmodified-Since: " + before, 0},
		{"If-Match: \"a-1\"\nIf-Unmodified-Since: " + before, 0}, // with a tag the date does not count
		{`If-None-Match: "a-1"`, 304}, {`If-None-Match: W/"a-1"`, 304}, {`If-None-Match: *`, 304}, {`If-None-Match: "b" , , W/"c,d", "a-1"`, 304},
		{`If-None-Match: "b"`, 0}, {`If-None-Match: "A-1"`, 0}, {`If-None-Match: a-1`, 0}, {`If-None-Match: "a-1`, 0}, {`If-None-Match: w/"a-1"`, 0}, {`If-None-Match: "*"`, 0},
		{`If-None-Match: *, "b"`, 0}, {"If-None-Match: \"b\"\nIf-None-Match: \"a-1\"", 304},
		{"If-Modified-Since: " + before, 0}, {"If-Modified-Since: " + same, 304}, {"If-Modified-Since: " + after, 304},
		{"If-Modified-Since: Monday, 30-Nov-26 12:00:00 GMT", 304}, {"If-Modified-Since: Mon Nov 30 12:00:00 2026", 304},
		{"If-Modified-Since: 2026-11-30T12:00:00Z", 0}, {"If-Modified-Since: " + same + "\nIf-Modified-Since: " + same, 0},
		{"If-None-Match: \"b\"\nIf-Modified-Since: " + same, 0}, {"If-None-Match: \"a-1\"\nIf-Modified-Since: " + before, 304},
		{"If-Match: \"b\"\nIf-None-Match: \"a-1\"", 412}, {"If-Match: \"a-1\"\nIf-None-Match: \"a-1\"", 304},
		{"If-Unmodified-Since: " + before + "\nIf-Modified-Since: " + same, 412}, {"If-Unmodified-Since: " + same + "\nIf-Modified-Since: " + same, 304},
	} {
		k := requestWith(c.fields).conditions()
		if got := k.judge(ours); got != c.want {
			t.Errorf("%q is judged %d, want %d", c.fields, got, c.want)
		}
	}
	// A file whose time nobody has set has no date to compare.
	for _, fields := range []string{"If-Unmodified-Since: " + before, "If-Modified-Since: " + after} {
		k := requestWith(fields).conditions()
		if got := k.judge(validators{etag: `"a-1"`}); got != 0 {
			t.Errorf("%q of a file without a date is judged %d", fields, got)
		}
	}
}

// requestWith is a request with these fields, a line each.
func requestWith(lines string) *request {
	r := &request{method: []byte("GET"), length: -1}
	for line := range strings.Lines(lines) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		f := http1.Field{Name: []byte(name), Value: []byte(strings.TrimSpace(value))}
		r.fields = append(r.fields, field{f, kindOf(f.Name)})
	}
	return r
}

func TestConditions_IfRangeHoldsForWhatIsExactlyOurs(t *testing.T) {
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	ours := validators{`"a-1"`, at}
	for fields, want := range map[string]bool{
		"": true, `If-Range: "a-1"`: true, "If-Range: Mon, 30 Nov 2026 12:00:00 GMT": true,
		`If-Range: "b"`: false, `If-Range: W/"a-1"`: false, "If-Range: Mon, 30 Nov 2026 12:00:01 GMT": false, "If-Range: Mon, 30 Nov 2026 11:59:59 GMT": false,
		`If-Range: *`: false, "If-Range: ": false, `If-Range: "a-1", "a-1"`: false, "If-Range: \"a-1\"\nIf-Range: \"a-1\"": false,
	} {
		k := requestWith("Range: bytes=0-1\n" + fields).conditions()
		if ranges, ok := k.ranges(ours, 10); ok != want || ok && !slices.Equal(ranges, []byteRange{{0, 2}}) {
			t.Errorf("%q: %v %v, want a range: %v", fields, ranges, ok, want)
		}
	}
	k := requestWith("Range: bytes=0-1\nIf-Range: Thu, 01 Jan 1970 00:00:00 GMT").conditions()
	if _, ok := k.ranges(validators{etag: `"a-1"`}, 10); ok {
		t.Error("a date holds for a file that has none")
	}
	for _, fields := range []string{"Range: bytes=0-1\nRange: bytes=0-1", ""} {
		k := requestWith(fields).conditions()
		if _, ok := k.ranges(ours, 10); ok {
			t.Errorf("%q asks for a range", fields)
		}
	}
	k = requestWith("Range: bytes=0-").conditions()
	if _, ok := k.ranges(ours, 0); ok {
		t.Error("a file of no bytes has a range")
	}
}

func FuzzConditions(f *testing.F) {
	for _, seed := range []string{`"a-1"`, `W/"a-1", "b"`, "*", `"`, `,,"a`, "Mon, 30 Nov 2026 12:00:00 GMT", "bytes=0-"} {
		f.Add([]byte(seed), []byte("Mon, 30 Nov 2026 12:00:00 GMT"))
	}
	ours := validators{`"a-1"`, time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}
	f.Fuzz(func(t *testing.T, tags, date []byte) {
		r := &request{}
		for name, value := range map[string][]byte{"If-Match": tags, "If-None-Match": tags, "If-Range": tags, "Range": date, "If-Modified-Since": date, "If-Unmodified-Since": date} {
			r.fields = append(r.fields, field{http1.Field{Name: []byte(name), Value: value}, kindPlain})
		}
		k := r.conditions()
		k.judge(ours)
		k.ranges(ours, 10)
		// What is in a list is in it word for word, or the list is a star.
		for _, weakly := range []bool{true, false} {
			if ours.in([][]byte{tags}, weakly) && !bytes.Contains(tags, []byte(ours.etag)) && string(tags) != "*" {
				t.Errorf("%q has our tag (weakly: %v)", tags, weakly)
			}
		}
		if ours.in([][]byte{tags}, false) && !ours.in([][]byte{tags}, true) {
			t.Errorf("%q has our tag strongly and not weakly", tags)
		}
	})
}

// ---- Ranges.

func TestRange_IsReadAsTheRFCHasIt(t *testing.T) {
	const huge = "99999999999999999999999"
	ignored := []byteRange{{-1, -1}}
	for value, want := range map[string][]byteRange{
		"bytes=0-0": {{0, 1}}, "bytes=0-9": {{0, 10}}, "bytes=3-5": {{3, 3}}, "bytes=9-9": {{9, 1}}, "bytes=3-": {{3, 7}}, "bytes=0-": {{0, 10}},
		"bytes=-1": {{9, 1}}, "bytes=-10": {{0, 10}}, "bytes=-11": {{0, 10}}, "bytes=-" + huge: {{0, 10}}, "bytes=8-" + huge: {{8, 2}}, "bytes=8-100": {{8, 2}},
		"BYTES=0-1": {{0, 2}}, "bytes=00-01": {{0, 2}}, "bytes=0-1, 4-5": {{0, 2}, {4, 2}}, "bytes=4-5,0-1": {{4, 2}, {0, 2}}, "bytes= ,0-1 ,, 4-5 ,": {{0, 2}, {4, 2}},
		"bytes=0-4,5-9": {{0, 5}, {5, 5}}, "bytes=0-1,20-30": {{0, 2}}, "bytes=0-0,0-0,0-0": {{0, 1}, {0, 1}, {0, 1}},
		// Not in the file: 416.
		"bytes=10-": {}, "bytes=10-20": {}, "bytes=-0": {}, "bytes=" + huge + "-": {}, "bytes=" + huge + "-" + huge: {}, "bytes=10-,-0,11-12": {},
		// Not heeded: the whole file.
		"": ignored, "bytes": ignored, "bytes=": ignored, "bytes=,": ignored, "bytes=-": ignored, "bytes=a-b": ignored, "bytes=1": ignored, "bytes=5-3": ignored,
		"bytes=" + huge + "-3": ignored, "bytes=+1-2": ignored, "bytes=1-+2": ignored, "bytes=1--2": ignored, "bytes=--1": ignored, "bytes=0x1-2": ignored,
		"bytes=1-2-3": ignored, "bytes=1 - 2": ignored, "bytes =1-2": ignored, "bytes: 1-2": ignored, "items=0-1": ignored, "bytes=0-1;4-5": ignored,
		"bytes=0-1,x": ignored, "bytes=x,0-1": ignored, "bytes=5-3,0-1": ignored, "bytes=0-,0-0": ignored, "bytes=0-5,5-9": ignored,
	} {
		got, ok := parseRange([]byte(value), 10)
		if !ok {
			got = ignored
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q of 10 bytes: %v, want %v", value, got, want)
		}
	}
}

func TestRange_SoManyAtOnceAndNoMore(t *testing.T) {
	many := func(n int) []byte { return []byte("bytes=" + strings.Repeat("0-0,", n-1) + "5-5") }
	if got, ok := parseRange(many(32), 1000); !ok || len(got) != 32 {
		t.Errorf("32 ranges: %d, %v", len(got), ok)
	}
	if _, ok := parseRange(many(33), 1000); ok {
		t.Error("33 ranges are heeded")
	}
	if _, ok := parseRange([]byte("bytes="+strings.Repeat("1000-,", 33)+"0-0"), 1000); ok {
		t.Error("33 ranges that are not in the file and one that is are heeded")
	}
}

func FuzzRange(f *testing.F) {
	for _, seed := range []string{"bytes=0-0", "bytes=-5", "bytes=5-,0-1", "bytes=0-,0-", "bytes=99999999999999999999-", "bytes=", "bytes=1-0", "bytes=,,,1-2"} {
		f.Add([]byte(seed), int64(10))
	}
	f.Fuzz(func(t *testing.T, value []byte, size int64) {
		if size < 1 {
			return
		}
		ranges, ok := parseRange(value, size)
		sum := int64(0)
		for _, r := range ranges {
			if !ok || r.at < 0 || r.length < 1 || r.length > size || r.at > size-r.length {
				t.Fatalf("%q of %d bytes: %v, %v", value, size, ranges, ok)
			}
			sum += r.length
		}
		if sum < 0 || sum > size || len(ranges) > rangesAtOnce {
			t.Errorf("%q of %d bytes: %d ranges with %d bytes", value, size, len(ranges), sum)
		}
	})
}

// Another reader of the form finds the parts, and the length is that of it all.
func TestMultipart_IsReadByAnotherReaderAndHasItsLength(t *testing.T) {
	const content = "0123456789"
	ranges := []byteRange{{8, 2}, {0, 1}, {3, 3}}
	parts, tail, length := multipart(ranges, "limit", "text/x; a=b", int64(len(content)))
	var whole bytes.Buffer
	for _, p := range parts {
		whole.Write(p.head)
		whole.WriteString(content[p.at : p.at+p.length])
	}
	whole.Write(tail)
	if int64(whole.Len()) != length {
		t.Errorf("%d bytes, %d are announced", whole.Len(), length)
	}
	reader := mimeparts.NewReader(&whole, "limit")
	for _, r := range ranges {
		part, err := reader.NextPart()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(part)
		want := "bytes " + strconv.FormatInt(r.at, 10) + "-" + strconv.FormatInt(r.at+r.length-1, 10) + "/10"
		if err != nil || string(data) != content[r.at:r.at+r.length] || part.Header.Get("Content-Range") != want || part.Header.Get("Content-Type") != "text/x; a=b" {
			t.Errorf("%q %v %v, want %s", data, part.Header, err, want)
		}
	}
	if _, err := reader.NextPart(); err != io.EOF {
		t.Errorf("after the last part: %v", err)
	}
}

// ---- Types.

func TestType_IsTheNamesAndDoesNotDependOnTheMachine(t *testing.T) {
	for name, want := range map[string]string{
		"a.html": "text/html; charset=utf-8", "a/b.CSS": "text/css; charset=utf-8", "a.min.js": "text/javascript; charset=utf-8", "a.mjs": "text/javascript; charset=utf-8",
		"a.json": "application/json", "a.svg": "image/svg+xml", "a.png": "image/png", "a.woff2": "font/woff2", "a.wasm": "application/wasm", "a.pdf": "application/pdf",
		"a.tar.gz": "application/gzip", "a.mp4": "video/mp4", "a.webp": "image/webp", "a.ico": "image/x-icon", "a.txt": "text/plain; charset=utf-8",
		"a": "application/octet-stream", "a.": "application/octet-stream", "a.nobody-has-this": "application/octet-stream", "html": "application/octet-stream",
	} {
		if got := typeOf(name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	for end, kind := range fileTypes {
		if end != strings.ToLower(end) || !http1.IsValue([]byte(kind)) || !strings.Contains(kind, "/") {
			t.Errorf("%s: %q", end, kind)
		}
	}
}

// ---- X-Accel-Redirect.

func redirectTable(t testing.TB) *table {
	table, err := newTable([]Route{
		{Match: "/protected/", Files: &Files{Internal: true}}, {Match: "h.test/only/", Files: &Files{Internal: true}}, {Match: "/one.bin", Files: &Files{Internal: true}},
		{Match: "/static/", Files: &Files{}}, {Match: "/", Respond: &Respond{Status: 200}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func TestRedirect_NamesAFileOfAnInternalRouteOrNothing(t *testing.T) {
	table := redirectTable(t)
	for _, c := range []struct {
		value, host string
		follows     bool
		name        string
	}{
		{"/protected/a.bin", "", true, "a.bin"}, {"/protected/a/b.bin", "", true, "a/b.bin"}, {"/protected/a%20b", "", true, "a b"}, {"/protected/caf%C3%A9", "", true, "café"},
		{"/protected/a+b", "", true, "a+b"}, {"/protected/a%2Fb", "", true, "a/b"}, {"/protected/a?b=c", "", true, "a"}, {"/protected/a%3Fb", "", true, "a?b"}, {"/protected/a#b", "", true, "a#b"},
		{"/protected/100%", "", true, "100%"}, {"/one.bin", "", true, "one.bin"}, {"/only/a", "h.test:80", true, "a"}, {"/%70rotected/a", "", true, "a"},
		{"/protected/", "", true, ""}, {"/protected/../secret", "", true, ""}, {"/protected/%2e%2e/secret", "", true, ""}, {"/protected/..%2fsecret", "", true, ""},
		{"/protected/.env", "", true, ""}, {"/protected/a%00", "", true, ""}, {"/protected//a", "", true, ""},
		{"/only/a", "other.test", false, ""}, {"/static/a", "", false, ""}, {"/a", "", false, ""}, {"/protected", "", false, ""}, {"protected/a", "", false, ""},
		{"", "", false, ""}, {"?", "", false, ""}, {"?/protected/a", "", false, ""}, {"@named", "", false, ""}, {"http://h.test/protected/a", "", false, ""}, {"//protected/a", "", false, ""},
	} {
		to := table.redirect([]byte(c.value), []byte(c.host))
		if (to != nil) != c.follows || to != nil && to.name != c.name {
			t.Errorf("%q on %q: %+v, want it followed: %v, to %q", c.value, c.host, to, c.follows, c.name)
		}
	}
}

func FuzzRedirect(f *testing.F) {
	for _, seed := range []string{"/protected/a", "/protected/../a", "/protected/%2e%2e%2fa", "", "?", "@a", "/", "*", "/protected/\xff"} {
		f.Add([]byte(seed), []byte("h.test"))
	}
	table := redirectTable(f)
	f.Fuzz(func(t *testing.T, value, host []byte) {
		to := table.redirect(value, host)
		if to == nil {
			return
		}
		if !to.route.Files.Internal || to.name != "" && !filepath.IsLocal(to.name) || strings.Contains("/"+to.name, "/.") {
			t.Errorf("%q leads to %q of %s", value, to.name, to.route.Match)
		}
	})
}
