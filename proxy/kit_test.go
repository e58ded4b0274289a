package proxy_test

import (
	"context"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"holdfast/lanes"
	"holdfast/proxy"
	"holdfast/upstream"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// fasthttp's worker pools and date clock live as long as the process.
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).workerFunc"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"))
}

// startProxy serves every path until the test ends: on a lane of 8 slots at
// upstreamAddr, or, local, with a fixed 200.
func startProxy(t *testing.T, upstreamAddr string, local bool) (addr string) {
	t.Helper()
	if local {
		return startServer(t, proxy.Config{}, []proxy.Route{{Match: "/", Respond: &proxy.Respond{Status: 200, Body: []byte("local\n")}}})
	}
	lane := startLane(t, upstreamAddr, lanes.Config{Name: "web", Slots: 8, Queue: 512})
	return startServer(t, proxy.Config{}, []proxy.Route{{Match: "/", Lane: lane}})
}

// startLane makes a lane whose one target answers at addr already.
func startLane(t *testing.T, addr string, cfg lanes.Config) *lanes.Lane {
	t.Helper()
	up := upstream.New(upstream.Config{Name: "app",
		Targets: []upstream.Address{{Text: "http://" + addr, Network: "tcp", Addr: addr}}}, nil)
	up.Targets()[0].Answered() // raw upstreams of these tests are not asked first
	lane := lanes.New(cfg, up.Deal(cfg.Slots))
	t.Cleanup(func() { lane.Close(); up.Close() })
	return lane
}

// startServer serves the routes on a free port until the test ends.
func startServer(t *testing.T, cfg proxy.Config, routes []proxy.Route) (addr string) {
	t.Helper()
	server, err := proxy.New(cfg, routes, zap.NewNop(), nil)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		server.Shutdown(ctx)
		if err := <-served; err != nil {
			t.Error("serve:", err)
		}
	})
	return ln.Addr().String()
}
