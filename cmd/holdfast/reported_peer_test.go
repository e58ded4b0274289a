package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A client that is held and vanishes without a word, as one whose machine has
// lost its network.

const silentHolds = `
listen: "0.0.0.0:%d"
admin: {listen: ""}
publish: {listen: ""}
upstreams: {app: {targets: ["http://127.0.0.1:20083"]}}
lanes: {web: {upstream: app, slots: 4}}
routes: [{match: "/", lane: web}]
holds: {heartbeat: %s}
`

// holdingApp answers each path with the hold that it names.
func holdingApp(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("M0-Hold", map[string]string{"/events": "stream", "/ws": "websocket", "/poll": "response"}[r.URL.Path])
	w.Header().Set("M0-Channel", "news")
	w.Header().Set("M0-Timeout", "3600")
	w.Header().Set("Content-Length", "0")
}

// With heartbeats it is what was sent and not acknowledged that tells, without
// them, and of polls, which have none, the system's own questions.
func TestDeadPeer_AHeldClientThatIsSilentIsGoneWithinAMinute(t *testing.T) {
	if os.Getenv("HOLDFAST_FULL") == "" {
		t.Skip("takes a minute: set HOLDFAST_FULL=1")
	}
	t.Parallel()
	near, client := newNetns(t, "holder"), newNetns(t, "held")
	near.link(t, client, "10.231.3", "toheld")
	var listener net.Listener
	var err error
	near.run(t, func() { listener, err = net.Listen("tcp", "127.0.0.1:20083") })
	if err != nil {
		t.Fatal(err)
	}
	app := &http.Server{Handler: http.HandlerFunc(holdingApp)}
	go app.Serve(listener)
	t.Cleanup(func() { app.Close() })
	held := func(port int) (h holdsShown) {
		t.Helper()
		status, body, err := near.get(t, fmt.Sprintf("http://127.0.0.1:%d/health", port))
		if err != nil || status != 200 || json.Unmarshal(body, &h) != nil {
			t.Fatalf("%d %s %v", status, body, err)
		}
		return h
	}
	for port, heartbeat := range map[int]string{20084: "0", 20085: "3s"} {
		config := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(config, fmt.Appendf(nil, silentHolds, port, heartbeat), 0o600); err != nil {
			t.Fatal(err)
		}
		var c *command
		near.run(t, func() { c = runBinary(t, config) })
		c.eventuallySays(t, "ready")
		for path, fields := range map[string]string{"/events": "", "/ws": upgradeFields, "/poll": ""} {
			conn, err := client.dial(t, fmt.Sprintf("10.231.3.1:%d", port))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
			fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: here\r\n%s\r\n", path, fields)
		}
		// The negative arm: one whose network stays.
		conn, err := near.dial(t, fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		fmt.Fprint(conn, "GET /events HTTP/1.1\r\nHost: here\r\n\r\n")
		eventually(t, "all to be held", func() bool { return held(port) == holdsShown{2, 1, 1} })
	}
	cut := time.Now()
	client.ip(t, "link", "set", "toheld", "down")
	const slack = 10 * time.Second // of this machine, not of Holdfast
	for _, port := range []int{20084, 20085} {
		left := held(port)
		for ; left != (holdsShown{1, 0, 0}) && time.Since(cut) < time.Minute+slack; left = held(port) {
			poll()
		}
		t.Logf("port %d: %+v held %v after the cut", port, left, time.Since(cut).Round(time.Second))
		if left != (holdsShown{1, 0, 0}) {
			t.Errorf("port %d: still held are %+v, want the one whose network stays", port, left)
		}
	}
}
