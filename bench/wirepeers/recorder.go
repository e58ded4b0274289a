package wirepeers

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http/httputil"
	"strconv"
	"strings"
	"sync"
)

// recorder is an upstream that writes down which requests it was sent. It reads
// as a lenient app would, so that what a peer lets through is counted and not
// refused once more: lines may end with LF alone, the first Transfer-Encoding
// or Content-Length that it can use frames the body.
type recorder struct {
	listener net.Listener

	mu    sync.Mutex
	seen  []forward
	conns map[net.Conn]struct{}
}

func startRecorder() (*recorder, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &recorder{listener: listener, conns: map[net.Conn]struct{}{}}
	go r.accept()
	return r, nil
}

func (r *recorder) addr() string { return r.listener.Addr().String() }

// close ends the listener and the connections.
func (r *recorder) close() {
	r.listener.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	for conn := range r.conns {
		conn.Close()
	}
}

// take returns what came since the last call.
func (r *recorder) take() []forward {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := r.seen
	r.seen = nil
	return seen
}

func (r *recorder) accept() {
	for {
		conn, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.mu.Lock()
		r.conns[conn] = struct{}{}
		r.mu.Unlock()
		go r.serve(conn)
	}
}

func (r *recorder) serve(conn net.Conn) {
	defer func() {
		conn.Close()
		r.mu.Lock()
		delete(r.conns, conn)
		r.mu.Unlock()
	}()
	in := bufio.NewReaderSize(conn, 128<<10)
	for {
		request, probe, err := readRequest(in)
		if err != nil {
			return
		}
		if !probe {
			r.mu.Lock()
			r.seen = append(r.seen, request)
			r.mu.Unlock()
		}
		body := "seen"
		if request.method == "HEAD" {
			body = ""
		}
		if _, err := fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n%s", body); err != nil {
			return
		}
	}
}

// readRequest reads one; probe: it is a question of the peer's own.
func readRequest(in *bufio.Reader) (f forward, probe bool, err error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return f, false, err
	}
	f.method, f.target, _ = strings.Cut(strings.TrimRight(line, "\r\n"), " ")
	if at := strings.LastIndexByte(f.target, ' '); at >= 0 {
		f.target = f.target[:at]
	}
	length, chunked, host := 0, false, ""
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return f, false, err
		}
		name, value, _ := strings.Cut(strings.TrimRight(line, "\r\n"), ":")
		value = strings.TrimSpace(value)
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "":
			if strings.TrimRight(line, "\r\n") != "" {
				continue
			}
			probe = f.method == "OPTIONS" && f.target == "*" && host == "localhost"
			f.body, err = readBody(in, length, chunked)
			return f, probe, err
		case "content-length":
			if n, err := strconv.Atoi(value); err == nil && n >= 0 {
				length = n
			}
		case "transfer-encoding":
			chunked = chunked || strings.Contains(strings.ToLower(value), "chunked")
		case "host":
			host = value
		}
	}
}

func readBody(in *bufio.Reader, length int, chunked bool) ([]byte, error) {
	if !chunked {
		body := make([]byte, length)
		_, err := io.ReadFull(in, body)
		return body, err
	}
	body, err := io.ReadAll(httputil.NewChunkedReader(in))
	if err != nil {
		return body, err
	}
	for { // the trailer section
		line, err := in.ReadString('\n')
		if err != nil || strings.TrimRight(line, "\r\n") == "" {
			return body, err
		}
	}
}
