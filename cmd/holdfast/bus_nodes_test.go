package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// node is a process of the built binary, one of several that share a bus.
type node struct {
	*command
	t                    *testing.T
	config               string // its file
	addr, admin, publish string // fixed, so that it comes back where it was
}

const busGrantKey = "the key of the nodes"

// newNode is a node that is not started. bus is the value of that key.
func newNode(t *testing.T, bus, more string) *node {
	t.Helper()
	n := &node{t: t, config: filepath.Join(t.TempDir(), "config.yaml"), addr: freeAddress(t), admin: freeAddress(t), publish: freeAddress(t)}
	text := fmt.Sprintf("listen: %q\nadmin: {listen: %q}\npublish: {listen: %q}\nbus: %s\n%s", n.addr, n.admin, n.publish, bus, more)
	if err := os.WriteFile(n.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return n
}

// run starts it, or starts it again, and waits until it listens.
func (n *node) run() {
	n.t.Helper()
	n.command = runBinary(n.t, n.config, "BUS_GRANT_KEY="+busGrantKey)
}

// killNow ends it as a crash does.
func (n *node) killNow() {
	n.Process.Kill()
	<-n.ended
}

// startNodes starts so many on an engine's bus, and waits until each is ready.
func startNodes(t *testing.T, e *engine, count int, more string) []*node {
	t.Helper()
	if e.kind == "postgres" {
		e.prepare()
	}
	nodes := make([]*node, count)
	for i := range nodes {
		nodes[i] = newNode(t, fmt.Sprintf("%q", e.url), more)
		nodes[i].run()
	}
	for _, n := range nodes {
		n.eventuallyReady()
	}
	return nodes
}

// busRoutes are a route that holds by grants, and an app for all others.
const busRoutes = `
upstreams: {app: {targets: [%q], park: 60s}}
lanes: {web: {upstream: app, slots: 4, queue_timeout: 60s}}
routes:
  - {match: "/live/", grant: {key_env: BUS_GRANT_KEY}}
  - {match: "/", lane: web}
`

// quick has an app, and heartbeats that a test can wait for.
func quick(t *testing.T) string {
	return "holds: {heartbeat: 200ms}\n" + fmt.Sprintf(busRoutes, "unix:"+startInstructor(t))
}

// startInstructor serves, on a socket that is there in every network, an app that
// answers with the query as header fields, and with ?body=.
func startInstructor(t *testing.T) (path string) {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "holdfast-app")
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, "app")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(instruct)}
	var served sync.WaitGroup
	served.Go(func() { server.Serve(ln) })
	t.Cleanup(func() { server.Close(); served.Wait(); os.RemoveAll(dir) })
	return path
}

func instruct(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain")
	query := r.URL.Query()
	for name, values := range query {
		if name != "body" {
			w.Header()[http.CanonicalHeaderKey(name)] = values
		}
	}
	io.WriteString(w, query.Get("body"))
}

// granted is where a node's grant route holds a channel.
func granted(channel string) string {
	return "/live/stream?g=" + newGrant(busGrantKey, channel, time.Now().Add(time.Hour))
}

// ready asks /ready.
func (n *node) ready() (status int, reasons []string) {
	status, body, err := get(context.Background(), onceClient(), "http://"+n.addr+"/ready")
	var answer struct{ Reasons []string }
	if err != nil {
		return 0, nil
	}
	json.Unmarshal(body, &answer)
	return status, answer.Reasons
}

func (n *node) eventuallyReady() {
	n.t.Helper()
	eventually(n.t, "the node to be ready", func() bool { status, _ := n.ready(); return status == 200 })
}

// eventuallyUnready waits until /ready gives one reason, which begins so.
func (n *node) eventuallyUnready(reason string) {
	n.t.Helper()
	eventually(n.t, "/ready to say "+reason, func() bool {
		status, said := n.ready()
		return status == 503 && len(said) == 1 && strings.HasPrefix(said[0], reason)
	})
}

// wantReady compares what /ready says; a reason begins so.
func (n *node) wantReady(status int, reasons ...string) {
	n.t.Helper()
	got, said := n.ready()
	if got != status || !slices.EqualFunc(said, reasons, func(said, begins string) bool { return strings.HasPrefix(said, begins) }) {
		n.t.Errorf("/ready: %d %q, want %d %q", got, said, status, reasons)
	}
}

// bus is what /status says of it.
func (n *node) bus() (kind string, connected bool) {
	n.t.Helper()
	var status struct {
		Bus struct {
			Kind      string
			Connected bool
		}
	}
	body := wantGet(n.t, onceClient(), "http://"+n.admin+"/status")
	if err := json.Unmarshal(body, &status); err != nil {
		n.t.Fatal(err)
	}
	return status.Bus.Kind, status.Bus.Connected
}

// wantConnected compares what /status and the metrics say.
func (n *node) wantConnected(want bool) {
	n.t.Helper()
	_, connected := n.bus()
	if gauge := metric(n.t, n.admin, "holdfast_bus_connected"); connected != want || (gauge == 1) != want {
		n.t.Errorf("/status says connected: %v, the gauge %v; want %v", connected, gauge, want)
	}
}

func (n *node) eventuallyConnected(want bool) {
	n.t.Helper()
	eventually(n.t, fmt.Sprintf("/status to say of the bus connected: %v", want), func() bool { _, is := n.bus(); return is == want })
}

// wantGaps compares how many gaps it has told since its start.
func (n *node) wantGaps(want int) {
	n.t.Helper()
	if told := int(metric(n.t, n.admin, "holdfast_gaps_told_total")); told != want {
		n.t.Errorf("%d gaps were told, want %d: all that was not could be had", told, want)
	}
}

// call makes a call of the publish API.
func (n *node) call(path, body string) (*http.Response, []byte, error) {
	response, err := onceClient().Post("http://"+n.publish+path, "application/json", strings.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response, text, err
}

// mustCall is call that must be answered with 200.
func (n *node) mustCall(path, body string) string {
	n.t.Helper()
	response, text, err := n.call(path, body)
	if err != nil || response.StatusCode != 200 {
		n.t.Fatalf("POST %s %.200s: %v %v %s", path, body, response, err, text)
	}
	return string(text)
}

// wantBusDown makes a call that the bus does not take, and says what has become of it.
func (n *node) wantBusDown(path, body string, says ...string) {
	n.t.Helper()
	response, text, err := n.call(path, body)
	if err != nil {
		n.t.Error(path, err)
		return
	}
	var p struct {
		Status         int
		Reason, Detail string
	}
	h := response.Header
	if json.Unmarshal(text, &p) != nil || response.StatusCode != 503 || p.Status != 503 || p.Reason != "bus_down" || h.Get("Holdfast-Reason") != "bus_down" ||
		h.Get("Retry-After") == "" || h.Get("Content-Type") != "application/problem+json" {
		n.t.Errorf("POST %s: %s %v %s, want 503, bus_down, Retry-After and a problem", path, response.Status, h, text)
	}
	if !slices.ContainsFunc(says, func(say string) bool { return strings.HasPrefix(p.Detail, say) }) {
		n.t.Errorf("POST %s: the detail is %q, want one that begins with one of %q", path, p.Detail, says)
	}
}
