package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// What the nodes of a bus do together, for each kind of hold and each way to publish.

// askFor is a path whose answer has these header fields, names and values by turns.
func askFor(fields ...string) string {
	path := "/view?body=nothing"
	for i := 0; i < len(fields); i += 2 {
		path += "&" + fields[i] + "=" + strings.NewReplacer(",", "%2C", ";", "%3B", " ", "%20").Replace(fields[i+1])
	}
	return path
}

func TestBus_EveryKindOfHoldIsReachedAndEndedFromAnotherNode(t *testing.T) {
	onEachEngine(t, func(t *testing.T, e *engine) {
		nodes := startNodes(t, e, 3, quick(t))
		for _, kind := range []struct {
			name string
			test func(t *testing.T, a, b, c *node)
		}{
			{"a GRIP stream, in the order of prev-ids", acrossGrip}, {"a socket", acrossSocket}, {"a long poll", acrossPoll},
			{"ended by its channel", acrossEnd}, {"ended by its connection", acrossConnection},
		} {
			t.Run(kind.name, func(t *testing.T) { kind.test(t, nodes[0], nodes[1], nodes[2]) })
		}
	})
}

// gripItem is a call with an item for streams.
func gripItem(id, prev, text string) string {
	return fmt.Sprintf(`{"items": [{"channel": "grip", "id": %q, "prev-id": %q, "formats": {"http-stream": {"content": "%s\n"}}}]}`, id, prev, text)
}

func acrossGrip(t *testing.T, a, b, c *node) {
	b.mustCall("/publish", gripItem("1", "0", "one"))
	s := askEvents(t, c.addr, askFor("Grip-Hold", "stream", "Grip-Channel", "grip; prev-id=1"), "")
	s.wantRaw("nothing")
	a.mustCall("/publish", gripItem("3", "2", "three")) // waits for what is before it, on every node
	b.mustCall("/publish", gripItem("2", "1", "two"))
	s.wantRaw("two\nthree\n")
	c.mustCall("/publish", gripItem("2", "1", "two"))
	a.mustCall("/publish", gripItem("4", "3", "four"))
	s.wantRaw("four\n")
}

func acrossSocket(t *testing.T, a, b, _ *node) {
	s := openSocket(t, a.addr, askFor("M0-Hold", "websocket", "M0-Channel", "room", "M0-Envelope", "json"))
	s.t = t
	s.wantOpen()
	id, _ := publishTo(t, b.publish, "room", "from another")
	s.wantEvent(id, `"from another"`)
	b.mustCall("/publish", `{"items": [{"channel": "room", "formats": {"ws-message": {"content": "as an item"}}}]}`)
	if kind, text, err := s.ReadMessage(); err != nil || !strings.Contains(string(text), "as an item") {
		t.Errorf("%d %s %v, want the item", kind, text, err)
	}
}

func acrossPoll(t *testing.T, a, b, _ *node) {
	p := openPoll(t, a.addr)
	p.ask(askFor("M0-Hold", "response", "M0-Channel", "poll"))
	eventually(t, "the poll to be held", func() bool { return healthHolds(t, a.addr).Polls == 1 })
	id, _ := publishTo(t, b.publish, "poll", "from another")
	p.wantAnswer("from another")
	if p.id != fmt.Sprint(id) {
		t.Errorf("it is answered with the id %s, and was published with %d", p.id, id)
	}
}

func acrossEnd(t *testing.T, a, b, c *node) {
	atB, atC, other := follow(t, b.addr, granted("user-1")), follow(t, c.addr, granted("user-1")), follow(t, b.addr, granted("user-2"))
	publishTo(t, a.publish, "user-1", "before it")
	if answer := a.mustCall("/end", `{"channel": "user-1"}`); answer != "{\"ended\":0}\n" {
		t.Errorf("%q, want none that ended there", answer)
	}
	atB.wantOnlyThenEnd("before it")
	atC.wantOnlyThenEnd("before it")
	publishTo(t, a.publish, "user-2", "still there")
	other.wantEvent("still there")
}

func acrossConnection(t *testing.T, a, b, _ *node) {
	gone, other := follow(t, b.addr, granted("user-3")), follow(t, a.addr, granted("user-3"))
	var shown struct{ Connections []string }
	body := wantGet(t, onceClient(), "http://"+b.publish+"/channels/user-3")
	if err := json.Unmarshal(body, &shown); err != nil || len(shown.Connections) != 1 {
		t.Fatalf("%s, want one connection", body)
	}
	a.mustCall("/end", fmt.Sprintf(`{"connection": %q}`, shown.Connections[0]))
	gone.wantOnlyThenEnd()
	publishTo(t, b.publish, "user-3", "still there")
	other.wantEvent("still there")
}

// wantOnlyThenEnd reads these events and no others, and then the stream's clean end.
func (f *follower) wantOnlyThenEnd(data ...string) {
	f.t.Helper()
	for _, want := range data {
		f.wantEvent(want)
	}
	if b, err := f.event(); err != io.EOF {
		f.t.Errorf("%q %v, want the end", b.raw, err)
	}
}

// streamsOf opens a stream at each node.
func streamsOf(t *testing.T, nodes []*node, channel string) (all []*follower) {
	for _, n := range nodes {
		all = append(all, follow(t, n.addr, granted(channel)))
	}
	return all
}

func wantEach(all []*follower, data ...string) {
	for _, f := range all {
		f.t.Helper()
		for _, want := range data {
			f.wantEvent(want)
		}
	}
}

// pythonPublish needs no library.
const pythonPublish = `
import json, socket, sys
host, port = sys.argv[1].split(":")
words = ["FCALL", "holdfast_publish", "1", "holdfast", json.dumps({"channel": "news", "data": {"from": "python"}})]
with socket.create_connection((host, int(port))) as redis:
    redis.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word.encode()) for word in words))
    print(redis.recv(100).decode().strip(":\r\n"))
`

func TestBus_WhatAnyProgramPublishesToRedisReachesEveryHold(t *testing.T) {
	t.Parallel()
	e := startRedis(t)
	nodes := startNodes(t, e, 2, quick(t))
	streams := streamsOf(t, nodes, "news")
	out, err := exec.Command("/usr/bin/python3", "-c", pythonPublish, e.addr).CombinedOutput()
	if err != nil {
		t.Fatalf("%v %s", err, out)
	}
	for _, s := range streams {
		if b := s.wantEvent(`{"from":"python"}`); b.id != strings.TrimSpace(string(out)) {
			t.Errorf("it came with the id %s, its publisher was told %s", b.id, out)
		}
	}
	_, port, _ := net.SplitHostPort(e.addr)
	shell := exec.Command("redis-cli", "-p", port, "-x", "FCALL", "holdfast_publish", "1", "holdfast")
	shell.Stdin = strings.NewReader(`{"channel": ["news", "others"], "event": "note", "data": "from a shell"}`)
	if out, err := shell.CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	for _, s := range streams {
		if b := s.wantEvent("from a shell"); b.event != "note" {
			t.Errorf("%q, want the event's name", b.raw)
		}
	}
	for _, body := range []string{"", "no JSON", `{"channel": "news"}`, `{"channel": "a\u0000b", "data": 1}`} {
		e.mustAsk("FCALL", "holdfast_publish", "1", "holdfast", body) // the nodes leave it out
	}
	e.mustAsk("FCALL", "holdfast_publish", "1", "holdfast", `{"end": {"channel": "others"}}`, `{"channel": "news", "data": "behind it"}`)
	wantEach(streams, "behind it")
	for _, n := range nodes {
		eventually(t, "the log names the four entries that are no events", func() bool { // it comes by a pipe
			return len(logLines(t, n.log.String(), "an entry of the bus is not an event, it is left out")) == 4
		})
		if came := metric(t, n.admin, "holdfast_bus_entries_total"); came != 8 {
			t.Errorf("%v entries are counted, want 8", came)
		}
	}
}

func TestBus_WhatIsPublishedInATransactionReachesEveryHoldWhenThatCommitsAndNeverOtherwise(t *testing.T) {
	t.Parallel()
	e := startPostgres(t)
	nodes := startNodes(t, e, 2, quick(t))
	streams := streamsOf(t, nodes, "orders")
	e.mustSQL("CREATE TABLE orders (id int)")
	e.mustSQL(`SELECT holdfast.holdfast_publish('orders', 'by itself')`)
	e.mustSQL(`BEGIN; INSERT INTO orders VALUES (1); SELECT holdfast.holdfast_publish('orders', 'rolled back'); ROLLBACK`)
	e.mustSQL(`BEGIN; INSERT INTO orders VALUES (2); SAVEPOINT s; SELECT holdfast.holdfast_publish('orders', 'to a savepoint'); ROLLBACK TO s;
		SELECT holdfast.holdfast_publish('{"channel": "orders", "data": {"id": 2}}'::jsonb); COMMIT`)
	wantEach(streams, "by itself", `{"id":2}`)
	if _, err := e.psql(`BEGIN; SELECT holdfast.holdfast_publish('orders', 'with an error'); INSERT INTO nowhere VALUES (1); COMMIT`); err == nil {
		t.Fatal("there is no table nowhere")
	}

	// One that commits late is published late, and takes nobody's place.
	conn, err := pgx.Connect(t.Context(), e.url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	late, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := late.Exec(t.Context(), "SELECT holdfast.holdfast_publish('orders', 'late')"); err != nil {
		t.Fatal(err)
	}
	publishTo(t, nodes[0].publish, "orders", "while it is open")
	wantEach(streams, "while it is open")
	if err := late.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantEach(streams, "late")
	publishTo(t, nodes[1].publish, "orders", "behind it")
	wantEach(streams, "behind it")
}

const busPassword = "s3cret-of-the-bus"

// withPassword is the engine's URL with one, which its server does not ask for.
func (e *engine) withPassword() string {
	return strings.NewReplacer("redis://", "redis://default:"+busPassword+"@", "postgres@", "postgres:"+busPassword+"@").Replace(e.url)
}

// wantInit runs holdfast bus init, which prints each of these words and no password.
func wantInit(t *testing.T, code int, words []string, args ...string) {
	t.Helper()
	got, stdout, stderr := runHoldfast(t, []string{"BUS_GRANT_KEY=" + busGrantKey}, append([]string{"bus", "init"}, args...)...)
	if got != code || (code != 0) != (strings.Count(stderr, "\n") > 0) {
		t.Errorf("bus init %q: exit %d, want %d:\n%s%s", args, got, code, stdout, stderr)
	}
	for _, word := range words {
		if !strings.Contains(stdout+stderr, word) {
			t.Errorf("bus init %q: exit %d, without %q:\n%s%s", args, got, word, stdout, stderr)
		}
	}
	if strings.Contains(stdout+stderr, busPassword) {
		t.Errorf("bus init %q shows the password:\n%s%s", args, stdout, stderr)
	}
}

func TestBusInit_SaysWhatItDidAndMayBeDoneAgain(t *testing.T) {
	t.Parallel()
	first := map[string][]string{"redis": {"functions loaded", "keeps 10m"}, "postgres": {"schema holdfast made", "keeps 10m"}}
	again := map[string][]string{"redis": {"the functions were there"}, "postgres": {"was there"}}
	for _, kind := range engineKinds {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			e := kind.start(t)
			if e.kind == "redis" {
				e.mustAsk("CONFIG", "SET", "requirepass", busPassword)
			}
			url := e.withPassword()
			wantInit(t, exitOK, first[e.kind], "--url", url)
			wantInit(t, exitOK, again[e.kind], "--url", url)
			wantInit(t, exitOK, again[e.kind], "-c", newNode(t, fmt.Sprintf("%q", url), quick(t)).config)
			e.kill()
			wantInit(t, exitFailed, []string{"the bus is down"}, "--url", url)
		})
	}
	t.Run("a URL that is none", func(t *testing.T) {
		for _, url := range []string{"redis://:" + busPassword + "@h?x=1", "redis://:" + busPassword + "#@h", "postgres://u:" + busPassword + "%@h/d",
			"mysql://u:" + busPassword + "@h", "redis://:" + busPassword + "@h/x", "postgres://u:" + busPassword + "@h/d?keep=1"} {
			wantInit(t, exitConfig, nil, "--url", url)
		}
	})
}

// doctorBus is what holdfast doctor finds of a node's bus.
func (n *node) doctorBus(t *testing.T) (c check) {
	t.Helper()
	_, stdout, stderr := runHoldfast(t, []string{"BUS_GRANT_KEY=" + busGrantKey}, "doctor", "--json", "-c", n.config)
	var e examination
	if err := json.Unmarshal([]byte(stdout), &e); err != nil {
		t.Fatalf("%v: %s%s", err, stdout, stderr)
	}
	if strings.Contains(stdout+stderr, busPassword) {
		t.Errorf("doctor shows the password: %s%s", stdout, stderr)
	}
	for _, c := range e.Checks {
		if c.Name == "bus" {
			return c
		}
	}
	t.Fatalf("no check of the bus: %s", stdout)
	return c
}

func TestDoctor_AsksTheBus(t *testing.T) {
	onEachEngine(t, func(t *testing.T, e *engine) {
		n := newNode(t, fmt.Sprintf("%q", e.withPassword()), quick(t))
		if e.kind == "redis" {
			e.mustAsk("CONFIG", "SET", "requirepass", busPassword)
		} else {
			if c := n.doctorBus(t); c.Result == "ok" || !strings.Contains(c.Found, "run holdfast bus init") {
				t.Errorf("%+v of a PostgreSQL that is not prepared, want the way out", c)
			}
			e.prepare()
		}
		if c := n.doctorBus(t); c.Result == "fail" || !strings.Contains(c.Found, "answers in") {
			t.Errorf("%+v, want how long it takes", c)
		}
		e.kill()
		if c := n.doctorBus(t); c.Result == "ok" || c.Fix == "" || !strings.Contains(c.Found, e.addr) {
			t.Errorf("%+v of an engine that is away, want its address and what to do", c)
		}
	})
}

func TestBus_ANodeOnAPostgresThatIsNotPreparedSaysHowAndGoesOnOnceItIs(t *testing.T) {
	t.Parallel()
	e := startPostgres(t)
	for _, ready := range []string{"start", "always"} {
		n := newNode(t, fmt.Sprintf("{url: %q, ready: %s}", e.url, ready), quick(t))
		n.run()
		n.eventuallyUnready("bus: it is not prepared, run holdfast bus init")
		n.wantBusDown("/publish", `{"channel": "news", "data": "x"}`, busDown[0])
		unreached := func() []map[string]any {
			return logLines(t, n.log.String(), "bus not reached, nothing can be published")
		}
		eventually(t, "the log says that the bus was not reached", func() bool { return len(unreached()) > 0 })
		if got := unreached(); len(got) != 1 || !strings.Contains(fmt.Sprint(got[0]["error"]), "run holdfast bus init") {
			t.Errorf("the log says %v, want once what to do", got)
		}
		s := follow(t, n.addr, granted("news"))
		e.prepare()
		n.eventuallyReady()
		s.wantGap()
		publishTo(t, n.publish, "news", "prepared")
		s.wantEvent("prepared")
		e.mustSQL("DROP SCHEMA holdfast CASCADE")
	}
}
