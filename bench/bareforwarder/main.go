// Bareforwarder is the floor of the proxied benchmark: the least that a Go
// program can do and still forward requests to shared upstream connections.
//
//	bareforwarder -listen 127.0.0.1:8006 -upstream 127.0.0.1:9000
//
// For each request: read until the head ends, take an idle upstream connection
// (or open one), write the bytes as they come, read the answer until its head and
// the Content-Length bytes after it are there, give the connection back, write
// the answer. No header is looked at but that one, nothing is checked, added,
// counted, bounded or timed. What a real proxy in Go costs above this is its own.
//
// It is not a proxy to use: chunked bodies, answers without Content-Length, heads
// over 64 KiB and a second request before the first is answered end the client's
// connection.
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

const bufferBytes = 64 << 10

var (
	headEnd       = []byte("\r\n\r\n")
	contentLength = []byte("\r\nContent-Length: ")

	errTooLarge = errors.New("head over 64 KiB")
	errNoLength = errors.New("answer without Content-Length")
	errTooMuch  = errors.New("more than one message")
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
		n, whole, err := readMessage(client, request, 0)
		if err != nil {
			return
		}
		upstream, err := idle.take()
		if err != nil {
			return
		}
		last, err := forward(client, upstream, request, n, whole)
		if err == nil {
			_, err = upstream.Write(last)
		}
		if err == nil {
			n, whole, err = readMessage(upstream, answer, -1)
		}
		if err == nil {
			last, err = forward(upstream, client, answer, n, whole)
		}
		if err != nil {
			upstream.Close()
			return
		}
		idle.put(upstream)
		if _, err := client.Write(last); err != nil {
			return
		}
	}
}

// readMessage reads until the head is there: n bytes of a message of whole bytes.
// Without a Content-Length the body has otherwise bytes; below 0 that is an error.
func readMessage(from net.Conn, buffer []byte, otherwise int) (n, whole int, err error) {
	for n < len(buffer) {
		k, err := from.Read(buffer[n:])
		if err != nil {
			return 0, 0, err
		}
		n += k
		if whole, err = messageBytes(buffer[:n], otherwise); err != nil {
			return 0, 0, err
		}
		if whole > 0 {
			return n, whole, nil
		}
	}
	return 0, 0, errTooLarge
}

// forward writes a message of whole bytes, of which n are in the buffer, but for
// the last piece, which it returns.
func forward(from, to net.Conn, buffer []byte, n, whole int) (last []byte, err error) {
	for n < whole {
		if _, err := to.Write(buffer[:n]); err != nil {
			return nil, err
		}
		whole -= n
		if n, err = from.Read(buffer[:min(len(buffer), whole)]); err != nil {
			return nil, err
		}
	}
	if n > whole {
		return nil, errTooMuch
	}
	return buffer[:n], nil
}

// messageBytes is the length of head and body together, 0 while the head is not whole.
func messageBytes(message []byte, otherwise int) (int, error) {
	end := bytes.Index(message, headEnd)
	if end < 0 {
		return 0, nil
	}
	at := bytes.Index(message[:end], contentLength)
	if at < 0 && otherwise < 0 {
		return 0, errNoLength
	}
	if at < 0 {
		return end + len(headEnd) + otherwise, nil
	}
	value := message[at+len(contentLength) : end]
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
