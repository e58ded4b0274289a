package main

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// Faults that users of other servers have met, with real apps and the whole of
// Holdfast.

// wsgiApp reads what CONTENT_LENGTH says and nothing else, as WSGI has it, and
// tells what it was told. wsgiref joins fields of which the names are one to it.
const wsgiApp = `
import json, sys
from wsgiref.simple_server import make_server, WSGIRequestHandler

class Quiet(WSGIRequestHandler):
    def log_message(self, *args):
        pass

def app(environ, start_response):
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    told = {k: v for k, v in environ.items() if isinstance(v, str) and (k.startswith("HTTP_") or k.startswith("CONTENT_"))}
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps({"body": body.decode("latin-1"), "told": told}).encode()]

server = make_server("127.0.0.1", 0, app, handler_class=Quiet)
print(server.server_port, flush=True)
server.serve_forever()
`

// startWSGI runs wsgiApp until the test ends.
func startWSGI(t *testing.T) *app {
	t.Helper()
	cmd := exec.Command("/usr/bin/python3", "-c", wsgiApp)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	port, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return &app{t: t, addr: "127.0.0.1:" + strings.TrimSpace(port)}
}

// An app that knows no chunks gets a length, and no names but those that are
// Holdfast's to say.
func TestForward_AWSGIAppGetsChunkedBodiesWithALengthAndNoForgedNames(t *testing.T) {
	t.Parallel()
	h := startHoldfast(t, holdsLanes, startWSGI(t))
	const forged = "X_Forwarded_For: 6.6.6.6\r\nX-Auth_User: admin\r\nRemote_User: admin\r\nContent_Length: 3\r\nHost_: b.test\r\nGrip_Sig: x\r\nM0_Channel: c\r\n" +
		"M0-Channel: c\r\nGrip-Sig: x\r\nX-Forwarded-For: 6.6.6.6\r\nConnection: close, X-Forwarded-For\r\n"
	for framing, body := range map[string]string{"Transfer-Encoding: chunked": "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", "Content-Length: 5": "abcde"} {
		a := askRaw(t, addrOf(h), "POST /echo HTTP/1.1\r\nHost: a.test\r\n"+forged+framing+"\r\n\r\n"+body)
		var said struct {
			Body string
			Told map[string]string
		}
		if err := json.Unmarshal([]byte(a.body), &said); a.code() != 200 || err != nil {
			t.Fatalf("%s: %s %q %v", framing, a.status, a.body, err)
		}
		if said.Body != "abcde" || said.Told["CONTENT_LENGTH"] != "5" || said.Told["HTTP_TRANSFER_ENCODING"] != "" {
			t.Errorf("%s: %+v", framing, said)
		}
		for name, want := range map[string]string{"HTTP_X_FORWARDED_FOR": "127.0.0.1", "HTTP_X_AUTH_USER": "", "HTTP_REMOTE_USER": "", "HTTP_CONTENT_LENGTH": "",
			"HTTP_HOST": "a.test", "HTTP_HOST_": "", "HTTP_M0_CHANNEL": ""} {
			if said.Told[name] != want {
				t.Errorf("%s: %s is %q, want %q", framing, name, said.Told[name], want)
			}
		}
		if sig := said.Told["HTTP_GRIP_SIG"]; strings.Count(sig, ".") != 2 {
			t.Errorf("%s: the signature is %q, want Holdfast's alone", framing, sig)
		}
	}
}

// What is published comes as it was to each kind of client, whatever in it
// looks like a stream's own words.
func TestPublish_DataOfAnyShapeComesToEachKindAsItWasPublished(t *testing.T) {
	t.Parallel()
	s := startSockets(t, flaskThreads, holdsLanes+"holds: {heartbeat: 0, outbox_bytes: 4MiB}\n")
	stream, bare, wrapped := follow(t, s.addr, "/events"), openSocket(t, s.addr, "/ws"), openSocket(t, s.addr, "/ws?envelope=1")
	wrapped.SetReadLimit(16 << 20)
	wrapped.wantOpen()
	poll := openPoll(t, s.addr)
	for _, data := range []string{
		"", "\n", "a\n", "\n\n", " a", "  ", "\t", "\ufeffa", ":a", "data: x", "id: 1\nevent: m0-gap\ndata: {}", "retry: 1", "\x00a\x00", "\u2028\u2029\u0085", "é😀", "<&>\"\\",
		strings.Repeat("x", 1<<20),
	} {
		poll.ask("/poll")
		eventuallyHolds(t, s.addr, holdsShown{Subscribers: 1, Sockets: 2, Polls: 1})
		id, reached := publishTo(t, s.publish, "news", data)
		if reached != 4 {
			t.Errorf("%.20q reached %d", data, reached)
		}
		if b := stream.wantEvent(data); b.id != fmt.Sprint(id) || b.event != "" || b.retry != "" {
			t.Errorf("%.40q comes as %.100q", data, b.raw)
		}
		bare.want(data)
		e := wrapped.wantEnvelope()
		var text string
		if err := json.Unmarshal(e.Data, &text); err != nil || text != data || *e.ID != id {
			t.Errorf("%.40q comes in an envelope as %.100q", data, e.Data)
		}
		poll.wantAnswer(data)
	}
	// A carriage return ends a line of a stream, which has no way to show which
	// it was; the others get it as it is.
	poll.ask("/poll")
	eventuallyHolds(t, s.addr, holdsShown{Subscribers: 1, Sockets: 2, Polls: 1})
	publishTo(t, s.publish, "news", "a\r\nb\rc")
	stream.wantEvent("a\nb\nc")
	bare.want("a\r\nb\rc")
	wrapped.wantEnvelope()
	poll.wantAnswer("a\r\nb\rc")
	// What is no text is not sent as one to a socket.
	for _, way := range []struct{ path, body string }{
		{"/publish", `{"channel": "news", "base64": "` + base64.StdEncoding.EncodeToString([]byte("\xff\x00\xfe")) + `"}`}, {"/publish/news", "\xff\x00\xfe"},
	} {
		poll.ask("/poll")
		eventuallyHolds(t, s.addr, holdsShown{Subscribers: 1, Sockets: 2, Polls: 1})
		if a := call(t, s.publish, "POST", way.path, "", []byte(way.body)); a.code() != 200 {
			t.Fatalf("%s: %s %s", way.path, a.status, a.body)
		}
		bare.wantBinary("\xff\x00\xfe")
		if e := wrapped.wantEnvelope(); e.Base64 == nil || *e.Base64 != "/wD+" {
			t.Errorf("%v", e)
		}
		stream.wantEvent("\xff\x00\xfe")
		poll.wantAnswer("\xff\x00\xfe")
	}
}

// All that can be open at once, and one signal: each gets its own end, and the
// process goes when the last has.
func TestDrain_EverythingThatIsOpenEndsInItsOwnWay(t *testing.T) {
	for name, signal := range map[string]os.Signal{"SIGTERM": syscall.SIGTERM, "SIGINT": syscall.SIGINT} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, a := startSocketsCommand(t, flaskThreads, holdsLanes+"drain: {bound: 20s}\n")
			streams, sockets := followMany(t, c.addr, "/events", 50), openSockets(t, c.addr, "/ws", 50)
			polls := make([]*pollClient, 20)
			for i := range polls {
				polls[i] = openPoll(t, c.addr)
				polls[i].ask("/poll?body=come+back")
			}
			eventuallyHolds(t, c.addr, holdsShown{Subscribers: 50, Sockets: 50, Polls: 20})
			slow := dialRaw(t, c.addr)
			slow.get("/slow?ms=3000", "slow")
			eventually(t, "the slow view", func() bool { return a.running("/slow") == 1 })
			c.signal(t, signal)
			eachAtOnce(t, 120, func(i int) error {
				switch {
				case i < 50:
					return streams[i].sentAway()
				case i < 100:
					return sockets[i-50].closed(1012, "draining")
				}
				answer, err := polls[i-100].answer()
				if err != nil || answer.code() != 200 || answer.body != "come back" || !answer.has("Connection", "close") {
					return fmt.Errorf("a poll is answered %+v %w", answer, cmpErr(err))
				}
				return nil
			})
			if _, body := slow.wantLast(200); !strings.Contains(string(body), "slow") {
				t.Errorf("%s", body)
			}
			c.wantExit(t, exitOK)
			c.wantNothingNamed(t)
		})
	}
}

// A second signal does not wait for anybody who is held.
func TestDrain_ASecondSignalDoesNotWaitForHolds(t *testing.T) {
	t.Parallel()
	c, a := startSocketsCommand(t, djangoThreads, holdsLanes+"drain: {bound: 10m}\n")
	followMany(t, c.addr, "/events", 5)
	openSockets(t, c.addr, "/ws", 5)
	slow := dialRaw(t, c.addr)
	slow.get("/hang", "hangs")
	eventually(t, "the view to hang", func() bool { return a.running("/hang") == 1 })
	c.signal(t, syscall.SIGTERM)
	c.eventuallySays(t, "draining")
	for second := 0; second < 20 && len(c.ended) == 0; second++ {
		c.Process.Signal([...]os.Signal{syscall.SIGINT, syscall.SIGTERM}[second%2])
		poll()
	}
	c.wantExit(t, exitFailed)
	a.open("release")
}

// Twenty reloads, good and bad, with everything open: nobody notices, the counts
// go on, and nothing is left behind.
func TestReload_TwentyLeaveWhatIsOpenAndTheCountsAlone(t *testing.T) {
	t.Parallel()
	a := newSocketsApp(t, flaskThreads)
	base := holdsLanes + "holds: {heartbeat: 0}\n"
	config := writeConfig(t, base, a.addr)
	c := startCommand(t, config)
	c.serveWith(t, a)
	stream, socket, poll := follow(t, c.addr, "/events"), openSocket(t, c.addr, "/ws"), openPoll(t, c.addr)
	poll.ask("/poll")
	eventuallyHolds(t, c.addr, holdsShown{Subscribers: 1, Sockets: 1, Polls: 1})
	upload := dialRaw(t, c.addr)
	upload.send("POST /slow?ms=1 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nfirst")
	running := dialRaw(t, c.addr)
	running.get("/hang", "hangs")
	eventually(t, "the view to hang", func() bool { return a.running("/hang") == 1 })
	publishTo(t, c.publishAddr(t), "elsewhere", "counted")
	change := func(text, result string) {
		t.Helper()
		series := `holdfast_reload_total{result="` + result + `"}`
		before := metric(t, c.admin(t), series)
		replaceFile(t, config, text)
		c.signal(t, syscall.SIGHUP)
		eventually(t, "a reload that is "+result, func() bool { return metric(t, c.admin(t), series) > before })
	}
	reload := func(i int) {
		yaml := strings.Replace(base, "slots: 4", "slots: "+strconv.Itoa(1+i%7), 1) + "log: {level: " + []string{"info", "debug"}[i%2] + "}\n"
		change(holdsBase+fmt.Sprintf(yaml, a.addr), "ok")
	}
	reload(0)
	before := c.goroutines(t)
	for i := range 20 {
		reload(i)
		if i%5 == 4 {
			change("lanse: {}\n"+holdsBase+fmt.Sprintf(base, a.addr), "failed")
		}
	}
	wantSteady(t, "goroutines", before, 2, func() int { return c.goroutines(t) })
	if n := metric(t, c.admin(t), "holdfast_events_published_total"); n != 1 {
		t.Errorf("%v events are counted, want the one from before", n)
	}
	if n := metric(t, c.admin(t), `holdfast_reload_total{result="failed"}`); n != 4 {
		t.Errorf("%v refused reloads are counted, want 4", n)
	}
	if _, reached := publishTo(t, c.publishAddr(t), "news", "to all"); reached != 3 {
		t.Errorf("reached %d, want all three", reached)
	}
	stream.wantEvent("to all")
	socket.want("to all")
	poll.wantAnswer("to all")
	socket.say("1?reply=text&answer=still+here")
	socket.want("still here")
	upload.send("again")
	upload.wantAnswer(200)
	a.open("release")
	running.wantAnswer(200)
}

// Channels are named by whoever asks for them: none of them becomes a series,
// and none of them breaks a line of the metrics or of the log.
func TestAdmin_ChannelsAddNoSeriesAndBreakNoLine(t *testing.T) {
	t.Parallel()
	s := startHolds(t, flaskThreads, holdsLanes+"holds: {heartbeat: 0}\nlog: {level: debug, access: true}\n")
	use := func(i int) {
		name := fmt.Sprintf("%s\"\\{}é\u2028%d", randomText(4), i)
		text, err := json.Marshal(name)
		if err != nil {
			t.Fatal(err)
		}
		wantPublished(t, s.publish, `{"channel": `+string(text)+`, "data": "x"}`)
		if i%20 == 0 {
			f := follow(t, s.addr, "/events?channel="+strings.NewReplacer("\"", "%22", "\\", "%5C", "{", "%7B", "}", "%7D", "é", "%C3%A9", "\u2028", "%E2%80%A8").Replace(name))
			call(t, s.publish, "POST", "/end", "", []byte(`{"channel": `+string(text)+`}`))
			if err := f.end(); err != nil {
				t.Error(err)
			}
		}
		call(t, s.publish, "POST", "/publish", "", []byte(`{"channel": "a\nb`+strconv.Itoa(i)+`", "data": "x"}`))
	}
	use(0)
	before := s.series()
	for i := range 500 {
		use(i)
	}
	for key := range s.series() {
		if !before[key] {
			t.Errorf("%s is new", key)
		}
	}
	for line := range strings.Lines(s.log.String()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("not a line of JSON: %q", line)
		}
	}
}

// An answer that is none is told of in one line, whatever bytes it had.
func TestLog_WhatAnAppSaysInsteadOfAnAnswerIsOneLine(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			request, _ := bufio.NewReader(conn).ReadString('\n')
			if strings.HasPrefix(request, "OPTIONS") {
				io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			} else {
				io.WriteString(conn, "HTTP/1.1 2\x1b[2J \"\\\x00\xff{\"level\":\"error\"}\r\nX: \x9b\r\n\r\n")
			}
			conn.Close()
		}
	}()
	s := startHoldsAlone(t, holdsLanes+"log: {access: true}\n", []*app{{t: t, addr: ln.Addr().String()}})
	s.wantReady()
	for i := range 3 {
		client := dialRaw(t, s.addr)
		client.send("POST /%%0d%%0aFAKE HTTP/1.1\r\nHost: localhost\r\nUser-Agent: \x9b\x1b\r\n\r\n")
		client.wantAnswer(400) // a control byte
		client = dialRaw(t, s.addr)
		client.send("POST /%%0d%%0aFAKE HTTP/1.1\r\nHost: localhost\r\nUser-Agent: \x9b\xff\r\n\r\n")
		client.wantAnswer(502)
		eventually(t, "both exchanges to be logged", func() bool { return len(logLines(t, s.log.String(), "exchange")) == 2*(i+1) })
	}
	refused := logLines(t, s.log.String(), "request refused")
	if len(refused) != 3 || refused[0]["reason"] != "upstream_error" {
		t.Errorf("the log says %v", refused)
	}
	for line := range strings.Lines(s.log.String()) {
		if !json.Valid([]byte(line)) || strings.ContainsFunc(strings.TrimSuffix(line, "\n"), func(r rune) bool { return r < ' ' }) {
			t.Errorf("not a line of JSON without control bytes: %q", line)
		}
	}
}
