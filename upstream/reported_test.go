package upstream_test

import (
	"net"
	"testing"

	"holdfast/upstream"
)

// Faults that users of other proxies have met: a name whose addresses change.

// useNameServer has every name that is no address looked up at a server of the
// test's, until it ends. Such a test does not run beside others.
func useNameServer(t *testing.T) *nameServer {
	t.Helper()
	s := startNames(t)
	before := net.DefaultResolver
	net.DefaultResolver = s.resolver()
	t.Cleanup(func() { net.DefaultResolver = before })
	return s
}

// A name is looked up again when its answer is old: an app that has moved is
// found where it is, though another listens where it was; and of several
// addresses the one that listens is found.
func TestTarget_ItsNameIsLookedUpAgain(t *testing.T) {
	names := useNameServer(t)
	_, _, port := startTwo(t)
	target := newApp(t, "tcp", "app.test.:"+port, upstream.Config{ConnectTimeout: deadline}, nil)
	for _, c := range []struct {
		addresses []string
		want      string // "": it cannot be reached
	}{
		{[]string{"127.0.0.2"}, "one"}, {[]string{"127.0.0.3"}, "two"}, {nil, ""}, {[]string{"127.0.0.4", "127.0.0.3"}, "two"},
		{[]string{"::1", "127.0.0.2"}, "one"}, {[]string{"127.0.0.4", "127.0.0.5"}, ""}, {[]string{"127.0.0.2"}, "one"},
	} {
		names.set(c.addresses...)
		target.Age(upstream.LookUpEvery)
		wantFrom(t, target, c.want)
	}
}

// A name that is not there yet, as where a container is still to come, is a
// target that is down, and is found when it is there.
func TestTarget_ANameThatIsNotThereYetIsFoundWhenItIs(t *testing.T) {
	names := useNameServer(t)
	app := startRawAt(t, "tcp", "127.0.0.2:0", answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 0, true))
	_, port, _ := net.SplitHostPort(app.Addr())
	up := upstream.New(upstream.Config{Name: "app", Targets: []upstream.Address{{Text: "http://app.test:" + port, Network: "tcp", Addr: "app.test:" + port}}}, nil)
	t.Cleanup(up.Close)
	up.Start()
	target := up.Targets()[0]
	until(t, "it was asked in vain", func() bool { return target.State().Err != nil })
	if target.State().Up {
		t.Error("it is up without an address")
	}
	names.set("127.0.0.2")
	until(t, "it is up", func() bool { return target.State().Up })
}
