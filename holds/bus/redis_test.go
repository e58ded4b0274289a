package bus

import (
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestRedis_AnybodyMayPublishWithRedisCLI(t *testing.T) {
	s := redisStage(t)
	b := s.open(t, "")
	f, _ := followNow(t, b, 0)
	f.until(t, "begun", func() bool { return len(f.begun) == 1 })
	server := shared(t, sharedRedis)
	first := server.mustCLI(t, "FCALL", "holdfast_publish", "1", s.name, `{"channel":"news","data":"hi"}`)
	last := server.mustCLI(t, "FCALL", "holdfast_publish", "1", s.name, "two", "three")
	f.untilBody(t, "three")
	f.wantBodies(t, []string{`{"channel":"news","data":"hi"}`, "two", "three"})
	ids := f.ids()
	if strconv.FormatInt(ids[0], 10) != first || strconv.FormatInt(ids[2], 10) != last || ids[1] != ids[2]-1000 {
		t.Errorf("redis-cli was answered %s and %s, followed are %v", first, last, ids)
	}
	// What is in the engine is an interface.
	raw := server.mustCLI(t, "XRANGE", "{"+s.name+"}:events", last+"-0", "+")
	want := last + "-0\nbody\nthree\nprev\n" + strconv.FormatInt(ids[1], 10) + "\nat\n" + strconv.FormatInt(f.entries[2].At.UnixMicro(), 10)
	if raw != want {
		t.Errorf("the stream has %q, want %q", raw, want)
	}
}

func TestRedis_WhatIsNoPublishIsRefusedWithTheWayOut(t *testing.T) {
	s := redisStage(t)
	b := s.open(t, "")
	before := stateOf(t, b)
	server := shared(t, sharedRedis)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"1", s.name}, "give a body"},
		{[]string{"1", "{" + s.name + "}:events", "x"}, "the name of the log"},
		{[]string{"1", "Name", "x"}, "the name of the log"},
		{[]string{"1", strings.Repeat("n", 33), "x"}, "the name of the log"},
		{[]string{"0", "x"}, "the name of the log"},
		{[]string{"2", s.name, s.name, "x"}, "the name of the log"},
	} {
		if out, _ := server.redisCLI(append([]string{"FCALL", "holdfast_publish"}, c.args...)...); !strings.Contains(out, c.want) {
			t.Errorf("FCALL %q: %s, want %q", c.args, out, c.want)
		}
	}
	if after := stateOf(t, b); after != before {
		t.Errorf("state %+v, want %+v as before", after, before)
	}
}

func TestRedis_FunctionsThatAreMissingAreLoaded(t *testing.T) {
	s := redisStage(t)
	b := s.open(t, "")
	f, _ := followNow(t, b, 0)
	server := shared(t, sharedRedis)
	for i := range 3 {
		publishNow(t, b, strconv.Itoa(i))
		f.untilBody(t, strconv.Itoa(i))
		server.mustCLI(t, "FUNCTION", "FLUSH")
		server.mustCLI(t, "SCRIPT", "FLUSH")
	}
	server.mustCLI(t, "FUNCTION", "FLUSH")
	stateOf(t, b)
	if f.wantBodies(t, numbers(0, 2)); f.gaps != 1 {
		t.Errorf("%d gaps were told", f.gaps)
	}
	server.mustCLI(t, "FUNCTION", "FLUSH")
	for range 2 {
		did, err := Init(ctxOf(t), s.url, Options{})
		must(t, err)
		if len(did) != 1 || !strings.Contains(did[0], "functions") {
			t.Errorf("Init did %q", did)
		}
	}
	server.mustCLI(t, "FCALL", "holdfast_publish", "1", s.name, "x")
}

func TestRedis_AReloadedServerKeepsTheLog(t *testing.T) {
	s := redisStage(t)
	b := s.open(t, "")
	f, _ := followNow(t, b, 0)
	publishNow(t, b, numbers(1, 5)...)
	f.untilBody(t, "5")
	shared(t, sharedRedis).mustCLI(t, "DEBUG", "RELOAD")
	publishNow(t, b, "6")
	f.untilBody(t, "6")
	if f.wantBodies(t, numbers(1, 6)); f.gaps != 1 {
		t.Errorf("%d gaps were told", f.gaps)
	}
}

func TestRedis_AnIdleFollowerSeesThatTheLogWasFlushed(t *testing.T) {
	pollSoon(t)
	server := shared(t, sharedRedis)
	s := redisStage(t)
	f, stop := followNow(t, s.open(t, ""), 0)
	f.until(t, "begun", func() bool { return len(f.begun) == 1 })
	server.mustCLI(t, "FLUSHALL")
	f.until(t, "another log", func() bool { return len(f.begun) == 2 && f.begun[1].Start > f.begun[0].Head })
	stop()
}

func TestRedis_AReplicaTakesNothing(t *testing.T) {
	s := redisStage(t)
	b := s.open(t, "")
	ids := publishNow(t, b, "1")
	host, port, _ := net.SplitHostPort(s.address)
	replica := shared(t, func() (*server, error) {
		return newRedis("--replicaof", host+" "+port, "--repl-diskless-sync-delay", "0")
	})
	c, err := Parse(s.url, Options{})
	must(t, err)
	r := replica.direct(t, c)
	for ctx := ctxOf(t); ; pause(ctx) {
		if state, err := r.State(ctx); err == nil && state.Head == ids[0] {
			break
		} else if ctx.Err() != nil {
			t.Fatalf("the replica does not get there: %+v, %v", state, err)
		}
	}
	_, err = r.Publish(ctxOf(t), byteBodies([]string{"never"}))
	if !errors.Is(err, ErrDown) || !strings.Contains(err.Error(), "READONLY") {
		t.Errorf("Publish to a replica: %v", err)
	}
	replica.stop()
	if state := stateOf(t, b); state.Head != ids[0] {
		t.Errorf("the head is %d, want %d", state.Head, ids[0])
	}
}

func TestRedis_AFullServerTakesNothing(t *testing.T) {
	server := shared(t, func() (*server, error) { return newRedis() })
	s := redisStageOn(t, server)
	b := s.open(t, "")
	ids := publishNow(t, b, "1")
	server.mustCLI(t, "CONFIG", "SET", "maxmemory", "1")
	_, err := b.Publish(ctxOf(t), byteBodies([]string{"never"}))
	if !errors.Is(err, ErrDown) || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("Publish to a full server: %v", err)
	}
	server.mustCLI(t, "CONFIG", "SET", "maxmemory", "0")
	if state := stateOf(t, b); state.Head != ids[0] {
		t.Errorf("the head is %d, want %d", state.Head, ids[0])
	}
	server.stop()
}

func TestRedis_AllOfALogIsInOneSlotOfACluster(t *testing.T) {
	server := shared(t, func() (*server, error) { return newRedis("--cluster-enabled", "yes", "--port", freePort()) })
	server.mustCLI(t, "CLUSTER", "ADDSLOTSRANGE", "0", "16383")
	for ctx := ctxOf(t); !strings.Contains(server.mustCLI(t, "CLUSTER", "INFO"), "cluster_state:ok"); pause(ctx) {
		must(t, ctx.Err())
	}
	s := redisStageOn(t, server)
	b := s.open(t, "entries=2")
	f, _ := followNow(t, b, 0)
	publishNow(t, b, "1")
	server.mustCLI(t, "FCALL", "holdfast_publish", "1", s.name, "2")
	f.untilBody(t, "2")
	must(t, b.Renew(ctxOf(t), f.position()+5000))
	publishNow(t, b, "3", "4", "5")
	f.untilBody(t, "5")
	server.stop()
}

func TestRedis_ARoleNeedsNoMoreThanIsSaid(t *testing.T) {
	server := shared(t, sharedRedis)
	s := redisStage(t)
	b := s.open(t, "")
	f, _ := followNow(t, b, 0)
	publishNow(t, b, "1")
	f.untilBody(t, "1")
	rules := []string{"ACL", "SETUSER", "app", "on", ">se?ret@/:", "~" + s.name, "~{" + s.name + "}:*"}
	server.mustCLI(t, append(rules, strings.Fields("+fcall +time +hmget +hset +xadd +xlen +xtrim +xrange +xdel +unlink")...)...)
	out := server.mustCLI(t, "--no-auth-warning", "--user", "app", "--pass", "se?ret@/:", "FCALL", "holdfast_publish", "1", s.name, "2")
	if _, err := strconv.Atoi(out); err != nil {
		t.Errorf("the role publishes: %s", out)
	}
	f.untilBody(t, "2")
	if out, _ := server.redisCLI("--no-auth-warning", "--user", "app", "--pass", "se?ret@/:", "FCALL", "holdfast_publish", "1", "other", "2"); !strings.Contains(out, "NOPERM") {
		t.Errorf("the role publishes elsewhere: %s", out)
	}
	// And as a node, whose password has every sign that a URL takes otherwise.
	server.mustCLI(t, append(rules, strings.Fields("+fcall +fcall_ro +time +hmget +hset +xadd +xlen +xtrim +xrange +xdel +unlink +xread +ping +function|load +client +hello +select")...)...)
	node, err := Open("redis://app:se%3Fret%40%2F%3A@"+s.address+"/0?log="+s.name, Options{})
	must(t, err)
	defer node.Close()
	publishNow(t, node, "3")
	g, stop := followNow(t, node, 0)
	g.untilBody(t, "3")
	stop()
	wrong, err := Open("redis://app:wr0ng@"+s.address+"/0?log="+s.name, Options{})
	must(t, err)
	defer wrong.Close()
	_, err = wrong.Publish(ctxOf(t), byteBodies([]string{"x"}))
	if !errors.Is(err, ErrDown) || strings.Contains(err.Error(), "wr0ng") {
		t.Errorf("Publish with another password: %v", err)
	}
}

func TestRedis_WhatOthersPutIntoTheStreamIsPassedOver(t *testing.T) {
	server := shared(t, sharedRedis)
	s := redisStage(t)
	b := s.open(t, "")
	f, _ := followNow(t, b, 0)
	f.until(t, "begun", func() bool { return len(f.begun) == 1 })
	events := "{" + s.name + "}:events"
	server.mustCLI(t, "XADD", events, "1-1", "x", "y") // below all, and first
	publishNow(t, b, "1")
	f.untilBody(t, "1")
	top := strconv.FormatInt(f.position()+1, 10)
	server.mustCLI(t, "XADD", events, top+"-0", "body", "forged")
	server.mustCLI(t, "XADD", events, top+"-7", "body", "forged", "prev", "x", "at", "1")
	publishNow(t, b, "2")
	f.untilBody(t, "2")
	if f.wantBodies(t, []string{"1", "2"}); f.gaps != 1 {
		t.Errorf("%d gaps were told", f.gaps)
	}
	server.mustCLI(t, "XADD", events, "*", "body", "from a clock far ahead")
	server.mustCLI(t, "XADD", events, strconv.FormatInt(maxPosition, 10)+"-0", "body", "above all")
	_, err := b.Publish(ctxOf(t), byteBodies([]string{"3"}))
	if !errors.Is(err, ErrDown) || !strings.Contains(err.Error(), "delete both") {
		t.Errorf("Publish below what others put there: %v", err)
	}
}

func TestRedis_AnEntryThatWasTakenOutByHandIsToldAsAGap(t *testing.T) {
	server := shared(t, sharedRedis)
	s := redisStage(t)
	b := s.open(t, "")
	ids := publishNow(t, b, numbers(1, 6)...)
	server.mustCLI(t, "XDEL", "{"+s.name+"}:events", strconv.FormatInt(ids[2], 10)+"-0")
	f, _ := followNow(t, b, ids[0])
	f.untilBody(t, "6")
	f.wantBodies(t, []string{"2", "4", "5", "6"})
	if f.gaps != 1 || len(f.begun) != 2 || f.begun[1].Floor != ids[2] {
		t.Errorf("%d gaps were told, begun %+v", f.gaps, f.begun)
	}
}

func TestParseLook_RefusesWhatIsNone(t *testing.T) {
	good := []any{int64(1000), int64(1000), int64(2000), int64(1), "2000", "1000", "5", "body"}
	l, err := parseLook(good)
	if err != nil || len(l.entries) != 1 || l.entries[0].ID != 2000 || !l.known || l.state != (State{1000, 1000, 2000}) {
		t.Errorf("%+v, %v", l, err)
	}
	for _, answer := range []any{
		nil, "x", int64(1), []any{}, []any{int64(1)}, []any{int64(1), "2", int64(3)}, good[:5], good[:7],
		slices.Concat(good[:4], []any{"x", "1000", "5", "body"}), slices.Concat(good[:4], []any{"2000", "", "5", "body"}),
		slices.Concat(good[:4], []any{int64(2000), "1000", "5", "body"}), slices.Concat(good[:4], []any{"99999999999999999999", "1000", "5", "body"}),
	} {
		if l, err := parseLook(answer); err == nil {
			t.Errorf("%v is understood as %+v", answer, l)
		}
	}
}
