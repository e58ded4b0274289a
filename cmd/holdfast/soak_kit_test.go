package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// The load of the soak that is answered at once. Every client is a goroutine
// that goes on until the load ends.

// soakConn is a client's connection, kept while it works. It sends nothing
// twice, as a client of net/http would.
type soakConn struct {
	s    *soak
	addr string
	conn net.Conn
	in   *bufio.Reader
}

// do sends a request and reads its answer.
func (k *soakConn) do(request string) (*rawAnswer, error) {
	if k.conn == nil {
		conn, err := net.Dial("tcp", k.addr)
		if err != nil {
			return nil, err
		}
		k.conn, k.in = conn, bufio.NewReader(conn)
	}
	k.conn.SetDeadline(time.Now().Add(2 * time.Minute))
	_, err := io.WriteString(k.conn, request)
	var a *rawAnswer
	if err == nil {
		method, _, _ := strings.Cut(request, " ")
		a, err = readRaw(k.in, method)
	}
	if err != nil || a.has("Connection", "close") {
		k.close()
	}
	return a, err
}

func (k *soakConn) close() {
	if k.conn != nil {
		k.conn.Close()
		k.conn = nil
	}
}

// going: the load goes on, after a pause.
func (s *soak) going(pause time.Duration) bool {
	select {
	case <-s.stopped:
		return false
	case <-time.After(pause/2 + rand.N(pause)):
		return true
	}
}

// onStreams are the clients of the stream lane, where nobody waits for an app
// that is down.
var onStreams = []string{"mirror", "ticks", "echo"}

// forgiven: an exchange failed as one may whose app was killed meanwhile, by a
// cut or by a 502, and by nothing else.
func (s *soak) forgiven(what string, sent time.Duration, a *rawAnswer, err error) bool {
	if s.aKillIn(sent, monotonic()) && (err != nil && !isTimeout(err) || err == nil && a.code() == http.StatusBadGateway) {
		s.count(what + " lost to a kill")
		return true
	}
	refused := err == nil && a.code() == http.StatusServiceUnavailable || err != nil && strings.Contains(err.Error(), "503 Service Unavailable")
	if refused && slices.Contains(onStreams, what) && s.streamsDownIn(sent, monotonic()) {
		s.count(what + " refused while uvicorn was down")
		return true
	}
	if err == nil {
		s.fail("%s: %s %v %.300q", what, a.status, a.get("Holdfast-Reason"), a.body)
	} else {
		s.fail("%s: %v, and no server was killed meanwhile", what, err)
	}
	return false
}

func isTimeout(err error) bool {
	var waited net.Error
	return errors.As(err, &waited) && waited.Timeout()
}

// soakPaths are asked for again and again.
var soakPaths = []string{"/files/manual", "/files/big?bytes=700000", "/reports/text", "/reports/export?times=20", "/api/tickets",
	"/api/tickets/17", "/api/tickets/4711", "/api/scan?q=printer&state=open", "/about", "/reports/slow?ms=30", "/robots.txt", "/tickets"}

// soakFields are sent along by turns.
var soakFields = []string{"", "Accept-Encoding: gzip\r\n", "Range: bytes=100-4000\r\n"}

// reference is a request and what the app answers directly.
type reference struct {
	request string
	want    *rawAnswer
}

// references asks the app directly, and Holdfast for what is its own.
func (s *soak) references() (all []reference) {
	s.Helper()
	for _, path := range soakPaths {
		for _, fields := range soakFields {
			for _, method := range []string{"GET", "HEAD"} {
				request := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: desk.example\r\n%s\r\n", method, path, fields)
				addr := s.wsgi[0].addr
				if path == "/robots.txt" {
					addr = s.c.addr
				}
				all = append(all, reference{request, essence(askRaw(s.T, addr, request))})
			}
		}
	}
	return all
}

// essence takes out what no two answers have in common.
func essence(a *rawAnswer) *rawAnswer {
	a.fields = slices.DeleteFunc(a.fields, func(f [2]string) bool {
		return slices.Contains([]string{"x-request-id", "connection", "transfer-encoding", "date"}, strings.ToLower(f[0]))
	})
	return a
}

// startLoad starts the clients whose requests are answered at once.
func (s *soak) startLoad(load *sync.WaitGroup, references []reference) {
	for range 4 {
		load.Go(func() { s.readPages(references) })
	}
	for size, n := range map[int]int{8 << 10: 3, 3 << 20: 1} {
		for range n {
			load.Go(func() { s.post(size) })
		}
	}
	for _, client := range []func(){s.postSlowly, s.postSlowly, s.leaveUploads, s.leaveViews, s.mirror, s.readSlowly, s.followTicks, s.followTicks, s.echo, s.echo} {
		load.Go(client)
	}
}

func (s *soak) readPages(references []reference) {
	k := &soakConn{s: s, addr: s.c.addr}
	defer k.close()
	for s.going(20 * time.Millisecond) {
		r, sent := references[rand.IntN(len(references))], monotonic()
		a, err := k.do(r.request)
		if err != nil || a.code() == http.StatusBadGateway {
			s.forgiven("GET", sent, a, err)
			continue
		}
		if essence(a); a.status != r.want.status || !slices.Equal(a.fields, r.want.fields) || a.body != r.want.body {
			s.fail("%.60q: %s %q and %d bytes, want %s %q and %d", r.request, a.status, a.fields, len(a.body), r.want.status, r.want.fields, len(r.want.body))
		}
		s.count("GETs and HEADs compared")
	}
}

// became keeps what came of a POST.
func (s *soak) became(id, what string) {
	s.mu.Lock()
	s.posts[id] = what
	s.mu.Unlock()
}

// soakBody is a body of up to size bytes with its head.
func soakBody(id string, size int) (request string, body []byte) {
	body = bytes.Repeat([]byte(id+"\n"), 1+rand.IntN(size)/(len(id)+1))
	head := fmt.Sprintf("POST /files/raw HTTP/1.1\r\nHost: desk.example\r\nX-Ledger-Id: %s\r\n", id)
	if rand.IntN(2) == 0 {
		return fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", head, len(body), body), body
	}
	half := len(body) / 2
	if half == 0 {
		half = len(body)
	}
	request = head + "Transfer-Encoding: chunked\r\n\r\n"
	for piece := range slices.Chunk(body, half) {
		request += fmt.Sprintf("%x\r\n%s\r\n", len(piece), piece)
	}
	return request + "0\r\n\r\n", body
}

func (s *soak) post(size int) {
	k := &soakConn{s: s, addr: s.c.addr}
	defer k.close()
	for s.going(50 * time.Millisecond) {
		id := nextID()
		request, body := soakBody(id, size)
		sent := monotonic()
		a, err := k.do(request)
		if err != nil || a.code() != 200 {
			s.forgiven("POST", sent, a, err)
			s.became(id, "lost")
			continue
		}
		sum := sha256.Sum256(body)
		var got received
		if json.Unmarshal([]byte(a.body), &got) != nil || got.Bytes != int64(len(body)) || got.SHA256 != hex.EncodeToString(sum[:]) {
			s.fail("POST of %d bytes: the app took %.200q", len(body), a.body)
		}
		s.became(id, "ok")
		s.count("POSTs answered")
	}
}

// postSlowly has views run that a kill is likely to meet: what they answered is
// what they ran, once. The token is its own cookie, which is all that Django
// asks for.
func (s *soak) postSlowly() {
	k := &soakConn{s: s, addr: s.c.addr}
	defer k.close()
	token := strings.Repeat("soakTokn", 8)
	for s.going(20 * time.Millisecond) {
		id, sent := nextID(), monotonic()
		a, err := k.do(fmt.Sprintf("POST /reports/slow?ms=200 HTTP/1.1\r\nHost: desk.example\r\nX-Ledger-Id: %s\r\n"+
			"Cookie: csrftoken=%s\r\nX-CSRFToken: %s\r\nContent-Length: 0\r\n\r\n", id, token, token))
		switch {
		case err != nil || a.code() != 200:
			s.forgiven("slow POST", sent, a, err)
			s.became(id, "lost")
		case a.body != `{"report": "slow", "ms": 200}`:
			s.fail("slow POST: %.200q", a.body)
		default:
			s.became(id, "ok")
			s.count("slow POSTs answered")
		}
	}
}

// leaveUploads sends a part of each and leaves: the app never hears of them.
func (s *soak) leaveUploads() {
	for s.going(200 * time.Millisecond) {
		id := nextID()
		request, _ := soakBody(id, 600<<10)
		if conn, err := net.Dial("tcp", s.c.addr); err != nil {
			s.fail("upload: %v", err)
		} else {
			io.WriteString(conn, request[:len(request)-1-rand.IntN(len(request)/2)])
			conn.Close()
			s.became(id, "left")
			s.count("uploads left")
		}
	}
}

// leaveViews leaves while the view runs.
func (s *soak) leaveViews() {
	for s.going(300 * time.Millisecond) {
		leaveMidway(s.T, s.c.addr, "GET", "/reports/slow?ms=200", nextID(), time.After(rand.N(200*time.Millisecond)))
		s.count("views left")
	}
}

// mirror sends pieces to a stream lane and has each back.
func (s *soak) mirror() {
	for s.going(100 * time.Millisecond) {
		id, size, sent := nextID(), int64(1+rand.IntN(300<<10)), monotonic()
		request, err := http.NewRequest("POST", "http://"+s.c.addr+"/rt/mirror", &pattern{n: size})
		if err != nil {
			panic(err)
		}
		request.Header.Set("X-Ledger-Id", id)
		response, err := onceClient().Do(request)
		a := &rawAnswer{}
		if err == nil {
			var text []byte
			text, err = io.ReadAll(response.Body)
			response.Body.Close()
			a.status, a.body = "HTTP/1.1 "+response.Status, string(text)
		}
		want, _ := io.ReadAll(&pattern{n: size})
		switch {
		case err != nil || a.code() != 200:
			s.forgiven("mirror", sent, a, err)
			s.became(id, "lost")
		case a.body != fmt.Sprintf("%s\n%d bytes\n", want, size):
			s.fail("mirror of %d bytes: %d came back", size, len(a.body))
		default:
			s.became(id, "ok")
			s.count("bodies mirrored")
		}
	}
}

// readSlowly takes three megabytes in small pieces.
func (s *soak) readSlowly() {
	const size = 3 << 20
	for s.going(500 * time.Millisecond) {
		sent := monotonic()
		response, err := onceClient().Get(fmt.Sprintf("http://%s/files/big?bytes=%d", s.c.addr, size))
		if err != nil || response.StatusCode != 200 {
			a := &rawAnswer{}
			if err == nil {
				a.status = "HTTP/1.1 " + response.Status
				response.Body.Close()
			}
			s.forgiven("slow reader", sent, a, err)
			continue
		}
		var got bytes.Buffer
		for err == nil {
			<-time.After(10 * time.Millisecond)
			_, err = io.CopyN(&got, response.Body, 64<<10)
		}
		response.Body.Close()
		switch {
		case err != io.EOF:
			s.forgiven("slow reader", sent, nil, err)
		case !bytes.Equal(got.Bytes(), bytes.Repeat(block256(), size/256)):
			s.fail("slow reader: %d bytes, not the app's %d", got.Len(), size)
		default:
			s.count("slow readers served")
		}
	}
}

// followTicks reads some of an endless answer of uvicorn.
func (s *soak) followTicks() {
	for s.going(100 * time.Millisecond) {
		sent := monotonic()
		f, err := dialEvents(s.c.addr, "/rt/ticks?ms=15", "")
		if err == nil && f.response.StatusCode != 200 {
			err = errors.New(f.response.Status)
		}
		for n, last := 1, 20+rand.IntN(200); err == nil && n <= last; n++ {
			want := fmt.Sprintf("id: %d\nevent: tick\ndata: %d\n\n", n, n)
			var b block
			if b, err = f.block(); err == nil && b.raw != want {
				s.fail("ticks: %q, want %q", b.raw, want)
				break
			}
			s.count("ticks")
		}
		if err != nil {
			s.forgiven("ticks", sent, nil, err)
		}
		if f != nil {
			f.Close()
		}
	}
}

// echo talks to uvicorn through a tunnel.
func (s *soak) echo() {
	for s.going(100 * time.Millisecond) {
		sent := monotonic()
		c, err := dialSocket(s.c.addr, "/rt/echo", nil)
		for n, last := 0, 20+rand.IntN(100); err == nil && n < last && s.going(10*time.Millisecond); n++ {
			text := strings.Repeat(fmt.Sprint(n, "."), 1+rand.IntN(1000))
			if err = c.WriteMessage(1, []byte(text)); err != nil {
				break
			}
			var got []byte
			if _, got, err = c.ReadMessage(); err == nil && string(got) != text {
				s.fail("echo: %.100q, want %.100q", got, text)
			}
			s.count("messages echoed")
		}
		if err != nil {
			s.forgiven("echo", sent, nil, err)
		}
		if c != nil {
			c.Close()
		}
	}
}
