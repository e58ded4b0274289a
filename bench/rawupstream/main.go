// Rawupstream is the upstream of the proxied benchmark: it answers every
// request with the same bytes, those of a threaded gunicorn worker.
//
//	rawupstream -listen 127.0.0.1:9000
//
//	GET  /       14 bytes       GET /k   16 KiB       GET /m   1 MiB
//	POST /       reads the body, then 14 bytes
//
// It exists to be cheap: on two cores whatever the upstream burns is taken from
// the proxy under test. Asked directly by wrk it costs 5.0 µs a request, as do
// nginx's `return 200` (5.0) and one epoll loop over bare system calls (5.1):
// the shortest of the three is kept.
//
// It is no web server: chunked bodies are not understood, nor a second request
// sent before the first is answered.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
)

// An answer says Connection: keep-alive because gunicorn does, and because a
// careful proxy reuses only a connection that was offered for it.
func answer(body string) []byte {
	return fmt.Appendf(nil, "HTTP/1.1 200 OK\r\n"+
		"Server: gunicorn\r\n"+
		"Date: Thu, 01 Jan 2026 00:00:00 GMT\r\n"+
		"Connection: keep-alive\r\n"+
		"Content-Type: text/plain\r\n"+
		"Content-Length: %d\r\n"+
		"\r\n%s", len(body), body)
}

var (
	small = answer("Hello, world.\n")
	large = map[byte][]byte{'k': answer(strings.Repeat("k", 16<<10)), 'm': answer(strings.Repeat("m", 1<<20))}

	headEnd       = []byte("\r\n\r\n")
	contentLength = []byte("\r\ncontent-length:")
)

func main() {
	listen := flag.String("listen", "127.0.0.1:9000", "address to serve on")
	flag.Parse()
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		fmt.Fprintln(os.Stderr, "rawupstream:", err)
		os.Exit(1)
	}
	for {
		client, err := listener.Accept()
		if err != nil {
			fmt.Fprintln(os.Stderr, "rawupstream:", err)
			os.Exit(1)
		}
		go serve(client)
	}
}

// serve runs until the client leaves or sends a head over 16 KiB.
func serve(client net.Conn) {
	defer client.Close()
	head := make([]byte, 64<<10)
	n := 0
	for n < 16<<10 {
		k, err := client.Read(head[n:])
		if err != nil {
			return
		}
		n += k
		if head[0] == 'P' {
			done, err := skipBody(client, head, n)
			if err != nil {
				return
			}
			if !done {
				continue
			}
		} else if !bytes.HasSuffix(head[:n], headEnd) {
			continue
		}
		text := small
		if other, ok := large[head[len("GET /")]]; ok && head[0] == 'G' {
			text = other
		}
		n = 0
		if _, err := client.Write(text); err != nil {
			return
		}
	}
}

// skipBody reads the body of a request of which n bytes are there; done is false
// while its head is not whole. Fields' names are compared without regard to case:
// proxies spell them as they like.
func skipBody(client net.Conn, buffer []byte, n int) (done bool, err error) {
	end := bytes.Index(buffer[:n], headEnd)
	if end < 0 {
		return false, nil
	}
	head := bytes.ToLower(buffer[:end])
	at := bytes.Index(head, contentLength)
	if at < 0 {
		return false, errors.New("a body without Content-Length")
	}
	value, _, _ := bytes.Cut(head[at+len(contentLength):], []byte("\r"))
	length, err := strconv.Atoi(string(bytes.TrimSpace(value)))
	if err != nil {
		return false, err
	}
	for left := end + len(headEnd) + length - n; left > 0; left -= n {
		if n, err = client.Read(buffer[:min(left, len(buffer))]); err != nil {
			return false, err
		}
	}
	return true, nil
}
