package proxy_test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"holdfast/holds"
	"holdfast/lanes"
	"holdfast/proxy"
)

// allocationApp answers by the request's path, and allocates nothing itself. A
// request with a body has "body" for one.
func allocationApp(t *testing.T) (addr string) {
	answers := map[byte][]byte{
		's': []byte("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nSet-Cookie: a=b\r\nContent-Length: 5\r\n\r\nhello"),
		'c': []byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
		'k': fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", 16<<10, strings.Repeat("k", 16<<10)),
		'n': []byte("HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n"),
	}
	headEnd, bodyEnd := []byte("\r\n\r\n"), []byte("\r\n\r\nbody")
	return startTCP(t, func(conn *net.TCPConn) {
		buf := make([]byte, 4<<10)
		for n := 0; ; {
			m, err := conn.Read(buf[n:])
			if err != nil {
				return
			}
			n += m
			if !bytes.HasSuffix(buf[:n], headEnd) && !bytes.HasSuffix(buf[:n], bodyEnd) {
				continue
			}
			answer := answers[buf[bytes.IndexByte(buf, '/')+1]]
			n = 0
			if _, err := conn.Write(answer); err != nil {
				return
			}
		}
	})
}

// Each kind of request is sent again and again on one connection. What the
// process then allocates a request is the proxy's: app and client allocate
// nothing. Beyond what a budget says is a change for the worse in what most
// requests cost.
func TestAllocations_EachKindOfRequestStaysWithinItsBudget(t *testing.T) {
	const browser = "User-Agent: test\r\nAccept: text/html\r\nAccept-Encoding: gzip\r\nCookie: a=b\r\nX-Forwarded-For: 10.0.0.1\r\n\r\n"
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	kept, err := holds.New(holds.Config{}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kept.Close)
	lane := startLane(t, allocationApp(t), lanes.Config{Name: "web", Slots: 1})
	routes := []proxy.Route{
		{Match: "/", Lane: lane},
		{Match: "/here", Respond: &proxy.Respond{Status: 200, Body: []byte("hello")}},
		{Match: "/files/", Files: &proxy.Files{Dir: dir}},
	}
	plain := startServer(t, proxy.Config{}, routes)
	asServed := startServer(t, proxy.Config{Holds: kept, Dialects: holds.Dialects{M0: true, Grip: true}}, routes)
	for _, c := range []struct {
		kind, request, ends string
		most                float64
	}{
		{"a GET", "GET /s?query=1 HTTP/1.1\r\nHost: a.test\r\n" + browser, "\r\n\r\nhello", 1},
		{"a GET with a chunked answer", "GET /c HTTP/1.1\r\nHost: a.test\r\n" + browser, "0\r\n\r\n", 1},
		{"a GET of 16 KiB", "GET /k HTTP/1.1\r\nHost: a.test\r\n" + browser, strings.Repeat("k", 16<<10), 1},
		{"a GET that is not modified", "GET /n HTTP/1.1\r\nHost: a.test\r\n" + browser, "\r\n\r\n", 1},
		{"a POST", "POST /s HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\n" + browser + "body", "\r\n\r\nhello", 2},
		{"a GET answered here", "GET /here HTTP/1.1\r\nHost: a.test\r\n" + browser, "\r\n\r\nhello", 1},
		{"a file", "GET /files/a.txt HTTP/1.1\r\nHost: a.test\r\n" + browser, "\r\n\r\nhello", 24},
	} {
		for as, server := range map[string]string{"plain": plain, "with holds and a signature": asServed} {
			t.Run(c.kind+", "+as, func(t *testing.T) {
				got := allocations(t, server, []byte(c.request), []byte(c.ends))
				t.Logf("%.1f allocations", got)
				if got > c.most {
					t.Errorf("%.1f allocations, more than %v", got, c.most)
				}
			})
		}
	}
}

// allocations is how many there are when a request is sent and its answer read,
// up to the bytes that it ends with.
func allocations(t *testing.T, server string, request, ends []byte) float64 {
	c := dialWire(t, server)
	c.conn.SetDeadline(time.Now().Add(patience))
	buf := make([]byte, 32<<10)
	exchange := func() {
		if _, err := c.conn.Write(request); err != nil {
			t.Fatal(err)
		}
		for n := 0; !bytes.HasSuffix(buf[:n], ends); {
			m, err := c.conn.Read(buf[n:])
			if err != nil {
				t.Fatalf("%v behind %.200q", err, buf[:n])
			}
			n += m
		}
	}
	for range 100 {
		exchange()
	}
	return testing.AllocsPerRun(1000, exchange)
}
