// Rawupstream is the upstream of the proxied benchmark: it answers every
// request with the same bytes, those of a threaded gunicorn worker.
//
//	rawupstream -listen 127.0.0.1:9000
//
// It exists to be cheap: on two cores whatever the upstream burns is taken from
// the proxy under test. Asked directly by wrk it costs 5.0 µs a request, as do
// nginx's `return 200` (5.0) and one epoll loop over bare system calls (5.1):
// the shortest of the three is kept.
//
// It is no web server: bodies are not understood, nor a second request sent
// before the first is answered.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"net"
	"os"
)

// answer says Connection: keep-alive because gunicorn does, and because a
// careful proxy reuses only a connection that was offered for it.
var answer = []byte("HTTP/1.1 200 OK\r\n" +
	"Server: gunicorn\r\n" +
	"Date: Thu, 01 Jan 2026 00:00:00 GMT\r\n" +
	"Connection: keep-alive\r\n" +
	"Content-Type: text/plain\r\n" +
	"Content-Length: 14\r\n" +
	"\r\n" +
	"Hello, world.\n")

var headEnd = []byte("\r\n\r\n")

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
	head := make([]byte, 16<<10)
	n := 0
	for n < len(head) {
		k, err := client.Read(head[n:])
		if err != nil {
			return
		}
		n += k
		if !bytes.HasSuffix(head[:n], headEnd) {
			continue
		}
		n = 0
		if _, err := client.Write(answer); err != nil {
			return
		}
	}
}
