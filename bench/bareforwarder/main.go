// Bareforwarder is the floor of the proxied benchmark: the least that a Go
// program can do and still forward requests to shared upstream connections.
//
//	bareforwarder -listen 127.0.0.1:8006 -upstream 127.0.0.1:9000
//
// For each request: read until the head ends, take an idle upstream connection
// (or open one), write the bytes, read the answer until its head and the
// Content-Length bytes after it are there, give the connection back, write the
// answer. No header is looked at but that one, nothing is checked, added,
// counted, bounded or timed. What a real proxy in Go costs above this is its own.
//
// It is not a proxy to use: requests with a body, answers without
// Content-Length and heads over 16 KiB end the client's connection.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
)

const bufferBytes = 16 << 10

var (
	headEnd       = []byte("\r\n\r\n")
	contentLength = []byte("\r\nContent-Length: ")

	errTooLarge = errors.New("message over 16 KiB")
	errNoLength = errors.New("answer without Content-Length")
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8006", "address to serve on")
	upstream := flag.String("upstream", "127.0.0.1:9000", "address to forward to")
	flag.Parse()
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bareforwarder:", err)
		os.Exit(1)
	}
	idle := &idleConns{address: *upstream}
	for {
		client, err := listener.Accept()
		if err != nil {
			fmt.Fprintln(os.Stderr, "bareforwarder:", err)
			os.Exit(1)
		}
		go serve(client, idle)
	}
}

// serve runs until the client leaves or anything at all goes wrong.
func serve(client net.Conn, idle *idleConns) {
	defer client.Close()
	request, answer := make([]byte, bufferBytes), make([]byte, bufferBytes)
	for {
		n, err := readHead(client, request)
		if err != nil {
			return
		}
		upstream, err := idle.take()
		if err != nil {
			return
		}
		m, err := forward(upstream, request[:n], answer)
		if err != nil {
			upstream.Close()
			return
		}
		idle.put(upstream)
		if _, err := client.Write(answer[:m]); err != nil {
			return
		}
	}
}

func readHead(client net.Conn, request []byte) (int, error) {
	n := 0
	for n < len(request) {
		k, err := client.Read(request[n:])
		if err != nil {
			return 0, err
		}
		n += k
		if bytes.HasSuffix(request[:n], headEnd) {
			return n, nil
		}
	}
	return 0, errTooLarge
}

func forward(upstream net.Conn, request, answer []byte) (int, error) {
	if _, err := upstream.Write(request); err != nil {
		return 0, err
	}
	n, whole := 0, 0
	for n < len(answer) {
		k, err := upstream.Read(answer[n:])
		if err != nil {
			return 0, err
		}
		n += k
		if whole == 0 {
			if whole, err = answerBytes(answer[:n]); err != nil {
				return 0, err
			}
		}
		if whole > 0 && n >= whole {
			return n, nil
		}
	}
	return 0, errTooLarge
}

// answerBytes is the length of head and body together, 0 while the head is not whole.
func answerBytes(answer []byte) (int, error) {
	end := bytes.Index(answer, headEnd)
	if end < 0 {
		return 0, nil
	}
	at := bytes.Index(answer[:end], contentLength)
	if at < 0 {
		return 0, errNoLength
	}
	value := answer[at+len(contentLength) : end]
	if line := bytes.IndexByte(value, '\r'); line >= 0 {
		value = value[:line]
	}
	length, err := strconv.Atoi(string(value))
	return end + len(headEnd) + length, err
}

// idleConns is the one thing that connections share: a stack, so that the
// connection used last, whose memory is warm, is used next.
type idleConns struct {
	address string

	mu    sync.Mutex
	conns []net.Conn
}

func (c *idleConns) take() (net.Conn, error) {
	c.mu.Lock()
	if last := len(c.conns) - 1; last >= 0 {
		conn := c.conns[last]
		c.conns = c.conns[:last]
		c.mu.Unlock()
		return conn, nil
	}
	c.mu.Unlock()
	return net.Dial("tcp", c.address)
}

func (c *idleConns) put(conn net.Conn) {
	c.mu.Lock()
	c.conns = append(c.conns, conn)
	c.mu.Unlock()
}
