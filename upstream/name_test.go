package upstream_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"holdfast/upstream"
)

// lookUpsIn is how many look-ups there may be in a test that has run since
// began, if there may be one in every so often.
func lookUpsIn(began time.Time, every time.Duration) int { return 1 + int(time.Since(began)/every) }

func TestDial_AThousandMakeOneLookUp(t *testing.T) {
	names := startNames(t, "127.0.0.2")
	one, _, port := startTwo(t)
	target := names.named(t, port, upstream.Config{ConnectTimeout: deadline})
	began := time.Now()
	for range 20 {
		var dialling sync.WaitGroup
		for range 50 {
			dialling.Go(func() {
				if conn, err := target.Dial(withDeadline(t)); err != nil {
					t.Error(err)
				} else {
					conn.Close()
				}
			})
		}
		dialling.Wait()
	}
	if asked, most := names.asked(), 2*lookUpsIn(began, upstream.LookUpEvery*4/5); asked > most {
		t.Errorf("a thousand dials made %d questions, want %d", asked, most)
	}
	until(t, "all are taken", func() bool { return one.Accepted() == 1000 })
}

func TestDial_FailingOnesAskTwiceASecondAtMost(t *testing.T) {
	names := startNames(t)
	for _, addresses := range [][]string{{"127.0.0.4", "127.0.0.5"}, nil} {
		names.set(addresses...)
		target, before := names.named(t, "1", upstream.Config{}), names.asked()
		began := time.Now()
		for range 200 {
			wantFrom(t, target, "")
		}
		// A look-up of a name that is not there is not made twice either: there
		// is nothing to lose.
		if asked, most := names.asked()-before, 2*lookUpsIn(began, upstream.AskEvery); asked > most {
			t.Errorf("at %v: 200 dials made %d questions, want %d", addresses, asked, most)
		}
	}
}

func TestDial_AsksAgainOnceAllAddressesHaveFailed(t *testing.T) {
	names := startNames(t, "127.0.0.4")
	_, _, port := startTwo(t)
	target := names.named(t, port, upstream.Config{ConnectTimeout: deadline})
	wantFrom(t, target, "")
	names.set("127.0.0.4", "127.0.0.3")
	target.Age(upstream.AskEvery)
	wantFrom(t, target, "two") // by the same dial
}

func TestDial_TriesEachAddressInOrder(t *testing.T) {
	_, two, port := startTwo(t)
	names := startNames(t)
	all := []string{"127.0.0.4", "127.0.0.5", "127.0.0.3", "127.0.0.2"}
	names.set(all...)
	target := names.named(t, port, upstream.Config{ConnectTimeout: deadline})
	wantFrom(t, target, "two")
	two.Close()
	wantFrom(t, target, "one")
	// The one that answered last is the first to be tried, until it fails.
	startRawAt(t, "tcp", "127.0.0.3:"+port, saying("new"))
	wantFrom(t, target, "one")
}

func TestDial_ItsErrorNamesEachAddressAndTheLookUp(t *testing.T) {
	many := make([]string, upstream.MaxTried+3)
	for i := range many {
		many[i] = fmt.Sprintf("127.0.1.%d", i+1)
	}
	names := startNames(t)
	for name, c := range map[string]struct {
		addresses []string
		code      byte
		want      []string
		not       string
	}{
		"Two":     {addresses: []string{"127.0.0.4", "127.0.0.5"}, want: []string{"app.test.: dial tcp 127.0.0.4:1: connect: connection refused; dial tcp 127.0.0.5:1: connect: connection refused"}, not: "lookup"},
		"Family":  {addresses: []string{"::1", "127.0.0.4"}, want: []string{"dial tcp [::1]:1: ", "dial tcp 127.0.0.4:1: "}},
		"Mapped":  {addresses: []string{"127.0.0.4", "::ffff:127.0.0.4"}, want: []string{"dial tcp 127.0.0.4:1: "}, not: "; "},
		"Many":    {addresses: many, want: []string{many[0] + ":1: ", many[upstream.MaxTried-1] + ":1: ", "; 3 more of its addresses were not tried (16 are at most)"}, not: many[upstream.MaxTried] + ":1: "},
		"None":    {want: []string{"app.test.: lookup app.test. on ", "no such host"}},
		"Failing": {code: serverFailed, want: []string{"app.test.: lookup app.test. on ", "server misbehaving"}},
	} {
		t.Run(name, func(t *testing.T) {
			names.set(c.addresses...)
			names.fail(c.code, 0)
			target := names.named(t, "1", upstream.Config{})
			_, err := target.Dial(withDeadline(t))
			wantKind(t, err, upstream.ErrUnreachable, false)
			for _, want := range append(c.want, "target http://app.test.:1 cannot be reached: app.test.: ") {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("the error is %v; want %q in it", err, want)
				}
			}
			if err != nil && c.not != "" && strings.Contains(err.Error(), c.not) {
				t.Errorf("the error is %v, with %q in it", err, c.not)
			}
		})
	}
}

func TestDial_ABlackHoleLeavesTimeForTheOthers(t *testing.T) {
	names := startNames(t, "127.0.0.2", "127.0.0.3")
	port := blackHole(t)
	startRawAt(t, "tcp", "127.0.0.3:"+port, saying("two"))
	wantFrom(t, names.named(t, port, upstream.Config{ConnectTimeout: 2 * time.Second}), "two")

	names.set("127.0.0.2")
	_, err := names.named(t, port, upstream.Config{ConnectTimeout: 100 * time.Millisecond}).Dial(withDeadline(t))
	wantKind(t, err, upstream.ErrUnreachable, false)
	if err == nil || !strings.Contains(err.Error(), "app.test.: dial tcp 127.0.0.2:"+port+": i/o timeout") {
		t.Errorf("where nobody answers: %v", err)
	}
}

func TestDial_TheLastAddressesStayWhileTheResolverFails(t *testing.T) {
	for name, c := range map[string]struct {
		fail   func(*nameServer)
		within time.Duration // half of it is waited for an answer
	}{
		"Failure":        {func(names *nameServer) { names.fail(serverFailed, 0) }, deadline},
		"Silence":        {(*nameServer).hush, time.Second},
		"NoSuchNameOnce": {func(names *nameServer) { names.fail(noSuchName, 2) }, deadline},
	} {
		t.Run(name, func(t *testing.T) {
			names := startNames(t, "127.0.0.2")
			_, _, port := startTwo(t)
			target := names.named(t, port, upstream.Config{ConnectTimeout: c.within})
			conn := wantFrom(t, target, "one")
			c.fail(names)
			for range 2 {
				target.Age(upstream.LookUpEvery)
				wantFrom(t, target, "one")
			}
			if conn.Moved() {
				t.Error("its connection is said to go elsewhere")
			}
			if names.asked() < 4 {
				t.Errorf("%d questions: it did not ask again", names.asked())
			}
			names.set("127.0.0.3") // it answers again
			target.Age(upstream.LookUpEvery)
			until(t, "the new address is seen", conn.Moved)
			wantFrom(t, target, "two")
		})
	}
}

// What a name has lost for good may be somebody else's by now.
func TestDial_ANameThatIsGoneIsNotDialled(t *testing.T) {
	names := startNames(t, "127.0.0.2")
	one, _, port := startTwo(t)
	target := names.named(t, port, upstream.Config{ConnectTimeout: deadline})
	conn := wantFrom(t, target, "one")
	names.set()
	target.Age(upstream.LookUpEvery)
	wantFrom(t, target, "")
	if !conn.Moved() {
		t.Error("its connection may be used again")
	}
	names.fail(serverFailed, 0) // what is gone does not come back by a failure
	target.Age(upstream.LookUpEvery)
	wantFrom(t, target, "")
	if n := one.Accepted(); n != 1 {
		t.Errorf("%d connections went to the old address", n-1)
	}
	names.set("127.0.0.3")
	target.Age(upstream.AskEvery)
	wantFrom(t, target, "two")
}

func TestConn_HasMovedWhenItsNameHasLostItsAddress(t *testing.T) {
	_, _, port := startTwo(t)
	for _, c := range []struct {
		name  string
		now   []string
		moved bool
	}{
		{"Same", []string{"127.0.0.2", "127.0.0.3", "::1"}, false},
		{"Turned", []string{"::1", "127.0.0.3", "127.0.0.2"}, false},
		{"Fewer", []string{"127.0.0.2"}, false},
		{"More", []string{"127.0.0.4", "127.0.0.3", "127.0.0.5", "127.0.0.2"}, false},
		{"Lost", []string{"127.0.0.3", "::1"}, true},
		{"None", nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			names := startNames(t, "127.0.0.2", "127.0.0.3", "::1")
			target := names.named(t, port, upstream.Config{ConnectTimeout: deadline, LookUp: inOrder(names)})
			conn := wantFrom(t, target, "one")
			names.set(c.now...)
			if conn.Moved() {
				t.Error("it has moved before the answer was old")
			}
			target.Age(upstream.LookUpEvery)
			if got := conn.Moved(); got != c.moved {
				t.Errorf("moved: %v, want %v", got, c.moved)
			}
			if !conn.Silent() {
				t.Error("it was touched")
			}
		})
	}
}

// inOrder is s.lookUp without the resolver's own order: that of the server, IPv4
// first.
func inOrder(s *nameServer) upstream.LookUp {
	return func(ctx context.Context, host string) ([]netip.Addr, error) {
		four, err := s.resolver().LookupNetIP(ctx, "ip4", host)
		if err != nil {
			return nil, err
		}
		six, _ := s.resolver().LookupNetIP(ctx, "ip6", host)
		return append(four, six...), nil
	}
}

func TestConn_HasNeverMovedWhereTheTargetIsAnAddress(t *testing.T) {
	ask := func(context.Context, string) ([]netip.Addr, error) {
		return nil, errors.New("nobody is to be asked")
	}
	for network, addr := range map[string]string{"tcp": "127.0.0.1:0", "unix": t.TempDir() + "/app.sock"} {
		server := startRawAt(t, network, addr, saying("one"))
		target := newApp(t, network, server.Addr(), upstream.Config{LookUp: ask}, nil)
		if conn := wantFrom(t, target, "one"); conn.Moved() {
			t.Errorf("%s: it has moved", network)
		}
		if host, addrs, err := target.Addresses(withDeadline(t)); host != "" || addrs != nil || err != nil {
			t.Errorf("%s: %q %v %v", network, host, addrs, err)
		}
	}
}

func TestDial_WhoLeavesDoesNotEndTheLookUpThatOthersWaitFor(t *testing.T) {
	names, resolver := startNames(t), holdBack()
	_, _, port := startTwo(t)
	target := names.named(t, port, upstream.Config{ConnectTimeout: deadline, LookUp: resolver.lookUp})
	leaving, leave := context.WithCancel(context.Background())
	left, stayed := make(chan error, 1), make(chan error, 1)
	go func() { _, err := target.Dial(leaving); left <- err }()
	take(t, resolver.asked)
	go func() {
		conn, err := target.Dial(withDeadline(t))
		if err == nil {
			conn.Close()
		}
		stayed <- err
	}()
	leave()
	err := take(t, left)
	wantKind(t, err, upstream.ErrInterrupted, false)
	if err == nil || !strings.Contains(err.Error(), "app.test.: no answer yet") {
		t.Errorf("who left is told %v", err)
	}
	resolver.answer(t, "127.0.0.2")
	if err := take(t, resolver.ended); err != nil {
		t.Errorf("the look-up had ended: %v", err)
	}
	if err := take(t, stayed); err != nil {
		t.Error(err)
	}
	if n := len(resolver.asked); n != 0 {
		t.Errorf("%d more look-ups", n)
	}
}

func TestDial_UnderSteadyUseNobodyWaitsForALookUp(t *testing.T) {
	names, resolver := startNames(t), holdBack()
	_, _, port := startTwo(t)
	// Who waits for an answer waits for longer than the test does.
	target := names.named(t, port, upstream.Config{ConnectTimeout: 10 * deadline, LookUp: resolver.lookUp})
	dialled := make(chan struct{})
	go func() { defer close(dialled); wantFrom(t, target, "one") }()
	resolver.answer(t, "127.0.0.2")
	await(t, "the first is served", dialled)
	take(t, resolver.asked)
	target.Age(upstream.LookUpEvery * 4 / 5)
	for range 3 {
		wantFrom(t, target, "one") // the question is out
	}
	take(t, resolver.asked)
	resolver.answer(t, "127.0.0.3")
	until(t, "the new address is seen", func() bool { _, addrs, _ := target.Addresses(t.Context()); return addrs[0].String() == "127.0.0.3" })
	wantFrom(t, target, "two").Close()

	// Nor while the resolver fails, however long it takes to.
	target.Age(upstream.LookUpEvery * 4 / 5)
	wantFrom(t, target, "two")
	take(t, resolver.asked)
	resolver.answer(t, "") // in vain
	target.Age(upstream.AskEvery)
	wantFrom(t, target, "two")
	take(t, resolver.asked)
	resolver.answer(t, "")
	if n := len(resolver.asked); n != 0 {
		t.Errorf("%d more look-ups", n)
	}
}

func TestDial_FindsLocalhostAsTheSystemDoes(t *testing.T) {
	server := startRaw(t, saying("one"))
	_, port, _ := net.SplitHostPort(server.Addr())
	target := newApp(t, "tcp", "localhost:"+port, upstream.Config{}, nil)
	if host, addrs, err := target.Addresses(withDeadline(t)); host != "localhost" || len(addrs) == 0 || err != nil {
		t.Fatalf("%q %v %v", host, addrs, err)
	}
	wantFrom(t, target, "one")
}

func TestDial_ShortageHereIsOnlyWhatEveryAddressMet(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	short := &net.OpError{Op: "dial", Err: syscall.EMFILE}
	for _, c := range []struct {
		dials []error
		want  bool
	}{{nil, false}, {[]error{short}, true}, {[]error{short, short}, true}, {[]error{short, refused}, false}, {[]error{refused, short}, false}} {
		if got := upstream.IsShortage(c.dials...); got != c.want {
			t.Errorf("%v: %v", c.dials, got)
		}
	}
}
