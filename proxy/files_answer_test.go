package proxy_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"holdfast/proxy"
)

// ---- Conditions and ranges, on the wire.

// startFiles serves a new directory below /.
func startFiles(t *testing.T, cfg proxy.Config) (addr, dir string) {
	t.Helper()
	dir = t.TempDir()
	return startServer(t, cfg, []proxy.Route{filesAt("/", dir)}), dir
}

func getWith(target, fields string) string {
	return "GET " + target + " HTTP/1.1\r\nHost: a.test\r\n" + fields + "\r\n"
}

func TestFiles_ConditionsDecideTheStatus(t *testing.T) {
	addr, dir := startFiles(t, proxy.Config{})
	bigFile(t, dir, "a.txt", 10)
	setTime(t, filepath.Join(dir, "a.txt"), 1764504000, 0)
	c := say(t, addr, get("/a.txt"))
	whole := c.wantAnswer(t, "GET", 200, "0000000\n00")
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // which would close what is forgotten
	etag, at := whole.get("ETag"), whole.get("Last-Modified")
	if at != "Sun, 30 Nov 2025 12:00:00 GMT" {
		t.Fatalf("modified at %s", at)
	}
	for _, ask := range []struct {
		fields string
		status int
		body   string
	}{
		{"If-None-Match: " + etag + "\r\n", 304, ""}, {"If-None-Match: W/" + etag + "\r\n", 304, ""}, {"If-None-Match: *\r\n", 304, ""}, {"If-None-Match: \"other\"\r\n", 200, "0000000\n00"},
		{"If-Modified-Since: " + at + "\r\n", 304, ""}, {"If-Modified-Since: Sun, 30 Nov 2025 11:59:59 GMT\r\n", 200, "0000000\n00"},
		{"If-Match: " + etag + "\r\n", 200, "0000000\n00"}, {"If-Match: \"other\"\r\n", 412, ""}, {"If-Unmodified-Since: Sun, 30 Nov 2025 11:59:59 GMT\r\n", 412, ""},
		{"Range: bytes=2-4\r\n", 206, "000"}, {"Range: bytes=2-4\r\nIf-Range: " + etag + "\r\n", 206, "000"}, {"Range: bytes=2-4\r\nIf-Range: " + at + "\r\n", 206, "000"},
		{"Range: bytes=2-4\r\nIf-Range: \"other\"\r\n", 200, "0000000\n00"}, {"Range: bytes=2-4\r\nIf-None-Match: " + etag + "\r\n", 304, ""},
		{"Range: bytes=2-4\r\nIf-Match: \"other\"\r\n", 412, ""}, {"Range: bytes=20-\r\nIf-None-Match: " + etag + "\r\n", 304, ""}, {"Range: bytes=20-\r\nIf-Range: \"other\"\r\n", 200, "0000000\n00"},
		{"Range: items=2-4\r\n", 200, "0000000\n00"},
	} {
		for _, method := range []string{"GET", "HEAD"} {
			c.say(t, method+strings.TrimPrefix(getWith("/a.txt", ask.fields), "GET")+get("/a.txt"))
			status, body := ask.status, ask.body
			if method == "HEAD" {
				if body = ""; status == 206 {
					status = 200 // RFC 9110 §14.2: a range is GET's
				}
			}
			answer := c.wantAnswer(t, method, status, body)
			wantLength := map[int]string{200: "10", 206: "3", 304: "", 412: "0"}[status]
			if answer.get("ETag") != etag || answer.get("Content-Length") != wantLength || answer.get("Date") == "" || answer.closes() ||
				(answer.get("Content-Range") != "") != (status == 206) || (answer.get("Content-Type") != "") != (status == 200 || status == 206) {
				t.Errorf("%s with %q: %q", method, ask.fields, answer.fields)
			}
			c.wantAnswer(t, "GET", 200, "0000000\n00") // nothing is left of it on the connection
		}
	}
	until(t, "no open file", func() bool { return opens(t, dir) == 0 })
}

func TestFiles_ARangeIsWhatIsSentOfTheFile(t *testing.T) {
	addr, dir := startFiles(t, proxy.Config{})
	content := bigFile(t, dir, "big.bin", 3<<20)
	bigFile(t, dir, "none", 0)
	size := len(content)
	c := dialWire(t, addr)
	for asked, want := range map[string][2]int{
		"0-0": {0, 1}, "-1": {size - 1, size}, "100-": {100, size}, "0-" + fmt.Sprint(size-1): {0, size}, "1000000-2000000": {1000000, 2000001}, "65000-131072": {65000, 131073},
	} {
		c.say(t, getWith("/big.bin", "Range: bytes="+asked+"\r\n"))
		answer := c.wantAnswer(t, "GET", 206, "*")
		if !bytes.Equal(answer.body, content[want[0]:want[1]]) || answer.get("Content-Range") != fmt.Sprintf("bytes %d-%d/%d", want[0], want[1]-1, size) {
			t.Errorf("%s: %d bytes, %q", asked, len(answer.body), answer.fields)
		}
	}
	c.say(t, getWith("/big.bin", "Range: bytes=3145728-\r\n")+getWith("/none", "Range: bytes=0-\r\n")+getWith("/none", "Range: bytes=-5\r\n"))
	if answer := c.wantReason(t, 416, "range_not_satisfiable"); answer.get("Content-Range") != "bytes */3145728" || answer.closes() {
		t.Errorf("%q", answer.fields)
	}
	c.wantAnswer(t, "GET", 200, "")
	c.wantAnswer(t, "GET", 200, "")
}

func TestFiles_SeveralRangesAreParts(t *testing.T) {
	addr, dir := startFiles(t, proxy.Config{})
	content := bigFile(t, dir, "big.pdf", 1<<20)
	c := dialWire(t, addr)
	for _, asked := range [][][2]int{{{0, 9}, {20, 29}}, {{1 << 19, 1<<20 - 1}, {0, 99}, {200, 200}}, {{0, 99999}, {100000, 299999}, {300000, 300000}, {400000, 499999}}} {
		var specs []string
		for _, r := range asked {
			specs = append(specs, fmt.Sprintf("%d-%d", r[0], r[1]))
		}
		c.say(t, getWith("/big.pdf", "Range: bytes="+strings.Join(specs, ", ")+"\r\n"))
		answer := c.wantAnswer(t, "GET", 206, "*")
		kind, params, err := mime.ParseMediaType(answer.get("Content-Type"))
		if err != nil || kind != "multipart/byteranges" || answer.get("Content-Range") != "" {
			t.Fatalf("%v: %q", asked, answer.fields)
		}
		parts := multipart.NewReader(bytes.NewReader(answer.body), params["boundary"])
		for _, r := range asked {
			part, err := parts.NextPart()
			if err != nil {
				t.Fatal(asked, err)
			}
			data, err := io.ReadAll(part)
			if err != nil || !bytes.Equal(data, content[r[0]:r[1]+1]) || part.Header.Get("Content-Type") != "application/pdf" ||
				part.Header.Get("Content-Range") != fmt.Sprintf("bytes %d-%d/%d", r[0], r[1], len(content)) {
				t.Errorf("%v: %d bytes, %v, %v", r, len(data), part.Header, err)
			}
		}
		if _, err := parts.NextPart(); err != io.EOF {
			t.Errorf("%v: behind the last part %v", asked, err)
		}
	}
	// More than there are to have, or more than 32: the whole, once.
	for _, asked := range []string{"0-,0-", strings.Repeat("0-0,", 32) + "1-1"} {
		c.say(t, getWith("/big.pdf", "Range: bytes="+asked+"\r\n"))
		if answer := c.wantAnswer(t, "GET", 200, "*"); len(answer.body) != len(content) {
			t.Errorf("%.20s: %d bytes", asked, len(answer.body))
		}
	}
}

// ---- The connection.

func TestFiles_OldClientsAndLastRequestsEndTheConnection(t *testing.T) {
	addr, dir := startFiles(t, proxy.Config{})
	content := string(bigFile(t, dir, "a.bin", 300<<10))
	for _, ask := range []struct {
		request, says string
		ends          bool
	}{
		{"GET /a.bin HTTP/1.0\r\n\r\n", "close", true}, {"GET /a.bin HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "keep-alive", false},
		{"GET /a.bin HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "close", true}, {get("/a.bin"), "", false},
	} {
		c := say(t, addr, ask.request)
		if answer := c.wantAnswer(t, "GET", 200, content); answer.get("Connection") != ask.says {
			t.Errorf("%q: Connection %q, want %q", ask.request, answer.get("Connection"), ask.says)
		}
		if ask.ends {
			c.wantEnd(t, false)
			continue
		}
		c.say(t, ask.request)
		c.wantAnswer(t, "GET", 200, content)
	}
	// Who has closed its side still gets all of it.
	c := say(t, addr, get("/a.bin"))
	c.conn.CloseWrite()
	c.wantAnswer(t, "GET", 200, content)
	c.wantEnd(t, false)
}

func TestFiles_AThousandPipelinedAreAnsweredInOrder(t *testing.T) {
	addr, dir := startFiles(t, proxy.Config{})
	const n = 1000
	var all strings.Builder
	for i := range n {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.txt", i)), fmt.Appendf(nil, "file %d\n", i), 0o644); err != nil {
			t.Fatal(err)
		}
		all.WriteString(get(fmt.Sprintf("/%d.txt", i)))
	}
	before := descriptors(t)
	c := dialWire(t, addr)
	c.conn.SetDeadline(time.Now().Add(patience))
	c.Write([]byte(all.String()), 0)
	for i := range n {
		c.wantAnswer(t, "GET", 200, fmt.Sprintf("file %d\n", i))
	}
	if err := c.Written(); err != nil {
		t.Fatal(err)
	}
	c.Close()
	until(t, "as many descriptors as before", func() bool { return descriptors(t) <= before })
}

func TestFiles_AreServedOverAUnixSocketAndToManyAtOnce(t *testing.T) {
	dir := t.TempDir()
	content := bigFile(t, dir, "a.bin", 5<<20)
	want := sha256.Sum256(content)
	for _, network := range []string{"unix", "tcp"} {
		addr, _ := startLogged(t, network, proxy.Config{}, []proxy.Route{filesAt("/", dir)})
		sums := make(chan [sha256.Size]byte)
		for range 8 {
			go func() { sums <- fetchSum(network, addr) }()
		}
		for range 8 {
			if got := take(t, "a file", sums); got != want {
				t.Errorf("over %s another file came", network)
			}
		}
	}
}

// fetchSum is the sum of the body of /a.bin.
func fetchSum(network, addr string) (sum [sha256.Size]byte) {
	conn, err := net.Dial(network, addr)
	if err != nil {
		return sum
	}
	defer conn.Close()
	io.WriteString(conn, "GET /a.bin HTTP/1.0\r\n\r\n")
	whole, _ := io.ReadAll(conn)
	_, body, _ := bytes.Cut(whole, []byte("\r\n\r\n"))
	return sha256.Sum256(body)
}
