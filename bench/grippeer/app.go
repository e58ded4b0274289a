package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http/httputil"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// app is the scripted upstream: each case has the paths under its own name and
// answers there what it likes, byte for byte.
type app struct {
	listener net.Listener
	mu       sync.Mutex
	views    map[string]view // by the first segment of the path
}

// view answers one request with the whole answer, head and all; "": it closes
// the connection without a byte.
type view func(request) string

// request is one request as it came: names as they were spelled, in order.
type request struct {
	method, target string
	fields         [][2]string
	body           []byte
}

func startApp() (*app, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	a := &app{listener: listener, views: map[string]view{}}
	go a.accept()
	return a, nil
}

func (a *app) addr() string { return a.listener.Addr().String() }

func (a *app) close() { a.listener.Close() }

func (a *app) set(name string, v view) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.views[name] = v
}

func (a *app) view(target string) view {
	name, _, _ := strings.Cut(strings.TrimPrefix(target, "/"), "/")
	name, _, _ = strings.Cut(name, "?")
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.views[name]
}

func (a *app) accept() {
	for {
		conn, err := a.listener.Accept()
		if err != nil {
			return
		}
		go a.serve(conn)
	}
}

func (a *app) serve(conn net.Conn) {
	defer conn.Close()
	reader := bufio.NewReaderSize(conn, 64<<10)
	for {
		r, err := readRequest(reader)
		if err != nil {
			return
		}
		text := answer("200 OK", "", "nobody's\n")
		if v := a.view(r.target); v != nil {
			text = v(r)
		}
		if head, body, ok := strings.Cut(text, "\r\n\r\n"); ok {
			text = strings.Replace(head, "$l", strconv.Itoa(len(body)), 1) + "\r\n\r\n" + body
		}
		if _, err := io.WriteString(conn, text); err != nil || text == "" || strings.Contains(text, "\r\nConnection: close\r\n") {
			return
		}
	}
}

// readRequest reads one request and leaves its head as it was spelled.
func readRequest(reader *bufio.Reader) (r request, err error) {
	var head []byte
	for !bytes.HasSuffix(head, []byte("\r\n\r\n")) {
		line, err := reader.ReadBytes('\n')
		if head = append(head, line...); err != nil {
			return r, err
		}
	}
	lines := strings.Split(strings.TrimSpace(string(head)), "\r\n")
	r.method, r.target, _ = strings.Cut(lines[0], " ")
	r.target, _, _ = strings.Cut(r.target, " ")
	for _, line := range lines[1:] {
		name, value, _ := strings.Cut(line, ":")
		r.fields = append(r.fields, [2]string{name, strings.TrimSpace(value)})
	}
	switch {
	case strings.EqualFold(r.get("Transfer-Encoding"), "chunked"):
		r.body, err = io.ReadAll(httputil.NewChunkedReader(reader))
		if err == nil {
			_, err = reader.Discard(len("\r\n"))
		}
	case r.get("Content-Length") != "":
		size, _ := strconv.Atoi(r.get("Content-Length"))
		r.body = make([]byte, size)
		_, err = io.ReadFull(reader, r.body)
	}
	return r, err
}

// get is the values of a name, sorted: some peers keep no order among fields.
func (r request) get(name string) string {
	var values []string
	for _, f := range r.fields {
		if strings.EqualFold(f[0], name) {
			values = append(values, f[1])
		}
	}
	slices.Sort(values)
	return strings.Join(values, " | ")
}

// names are the fields' names in lower case, sorted, but for those that each
// peer adds for itself.
func (r request) names() (names []string) {
	for _, f := range r.fields {
		switch name := strings.ToLower(f[0]); {
		case name == "accept-encoding", name == "accept" && f[1] == "*/*", strings.HasPrefix(name, "x-forwarded-"), strings.HasPrefix(name, "x-request-"):
		default:
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// answer is an answer's bytes; fields are lines. $l is the length of its body,
// known when what else stands for something is filled in.
func answer(status, fields, body string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP/1.1 %s\r\n", status)
	for line := range strings.SplitSeq(strings.TrimSpace(fields), "\n") {
		if line = strings.TrimSpace(line); line != "" {
			b.WriteString(line + "\r\n")
		}
	}
	b.WriteString("Content-Length: $l\r\n\r\n" + body)
	return b.String()
}

// plain is an answer with a text.
func plain(fields, body string) string {
	return answer("200 OK", "Content-Type: text/plain\n"+fields, body)
}
