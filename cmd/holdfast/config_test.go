package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

const configFiles = "../../testdata/config"

// testVariables is the environment of the files under testdata/config.
func testVariables(name string) (string, bool) {
	value, ok := map[string]string{
		"NAME": "web-1", "LISTEN": "127.0.0.1:9000", "PORT": "8001", "SLOTS": "4", "FOUR": "4", "WAIT": "15s",
		"BYTES": "10MiB", "EMPTY": "", "WORD": "many", "NULL": "null", "GRANT_KEY": "hunter2", "YAML": "a: 1 # b\n- c: {d",
	}[name]
	return value, ok
}

// loadText loads a configuration that stands in a test.
func loadText(t *testing.T, yaml string) (*fileConfig, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	return loadConfig(path, testVariables)
}

func mustLoad(t *testing.T, path string) *fileConfig {
	t.Helper()
	config, err := loadConfig(path, testVariables)
	if err != nil {
		t.Fatalf("%s does not load:\n%v", path, err)
	}
	return config
}

// wantEqual names what differs.
func wantEqual[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s is %#v, want %#v", what, got, want)
	}
}

// Every file under invalid begins with the sentences that it is refused with, one a line: `# want: LINE:COL: sentence`.
func TestConfig_EachInvalidFileIsRefusedWithItsSentences(t *testing.T) {
	files, err := filepath.Glob(configFiles + "/invalid/*.yaml")
	if err != nil || len(files) < 100 {
		t.Fatalf("%d invalid files found (%v)", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var want []string
			for line := range bytes.Lines(data) {
				sentence, ok := strings.CutPrefix(strings.TrimRight(string(line), "\n"), "# want: ")
				if !ok {
					break
				}
				separator := ":"
				if sentence[0] < '0' || sentence[0] > '9' || !strings.Contains(sentence[:5], ":") {
					separator = ": " // a count of faults, which has no place
				}
				want = append(want, file+separator+sentence)
			}
			_, err = loadConfig(file, testVariables)
			var refused *configError
			if !errors.As(err, &refused) {
				t.Fatalf("loads with %v, want it refused", err)
			}
			if got := err.Error(); got != strings.Join(want, "\n") {
				t.Errorf("refused with\n%s\nwant\n%s", got, strings.Join(want, "\n"))
			}
		})
	}
}

func TestConfig_EachValidFileMeansWhatItSays(t *testing.T) {
	checks := map[string]func(t *testing.T, c *fileConfig){
		"minimal": wantMinimal, "crlf": wantMinimal, "strings": wantStrings,
		"numbers": wantNumbers, "variables": wantVariables, "blocks": wantBlocks,
		"whole": wantWhole, "patterns": wantPatterns, "listeners": wantListeners, "tls": wantTLS,
		"admin-open": func(t *testing.T, c *fileConfig) {
			if c.Admin.Listen.Address != "0.0.0.0:5562" || len(c.Admin.Keys) != 0 {
				t.Errorf("admin is %+v", c.Admin)
			}
		},
	}
	files, err := filepath.Glob(configFiles + "/valid/*.yaml")
	if err != nil || len(files) != len(checks) {
		t.Fatalf("%d valid files and %d checks (%v)", len(files), len(checks), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			c := mustLoad(t, file)
			if name != "whole" {
				wantEqual(t, "warnings", c.warnings, nil)
			}
			checks[name](t, c)
		})
	}
}

// The defaults are written out a second time, by hand.
func wantMinimal(t *testing.T, c *fileConfig) {
	c.source = nil
	web := "web"
	wantEqual(t, "the configuration", c, &fileConfig{
		Listen: plainAddresses(":8080"),
		Upstreams: map[string]upstreamConfig{"app": {
			Targets: []string{"http://127.0.0.1:8000"}, StartTimeout: seconds(60), Park: seconds(10),
			AbandonLimit: seconds(600), ConnectTimeout: seconds(2), Keepalive: "auto",
			Health: targetHealth{Path: "*", Host: "localhost", Interval: seconds(2)},
		}},
		Lanes: map[string]laneConfig{"web": {
			Upstream: "app", Kind: "request", Slots: 8, Queue: 512, QueueTimeout: seconds(10), ResponseTimeout: seconds(60),
			Streaming: "refuse", Idle: 0,
		}},
		Routes: []routeConfig{{Match: "/", Lane: &web}},
		Limits: limitsConfig{
			HeaderBytes: 16384, HeaderTimeout: seconds(10), BodyBytes: 33554432, BodyTimeout: seconds(30),
			Memory: 268435456, Spool: spoolConfig{Dir: "", Bytes: 4294967296}, IdleTimeout: seconds(75), Connections: 0,
		},
		Holds: holdsConfig{
			Dialects: []string{"m0", "grip"}, Heartbeat: seconds(15), OutboxBytes: 65536, WriteStall: seconds(30),
			Limit: 0, MaxAge: 0, Journal: journalConfig{Events: 256, Bytes: 67108864, Age: seconds(600)},
			MessagePath: "/ws/message", MessageBytes: 1048576, Origins: oneOrList{"same-host"},
		},
		Grip:    gripConfig{Iss: "holdfast", Key: ""},
		Publish: keyedListener{Listen: address{Address: "127.0.0.1:5561"}},
		Admin:   keyedListener{Listen: address{Address: "127.0.0.1:5562"}},
		Bus:     busConfig{"memory", "start"},
		Drain:   drainConfig{Delay: 0, Bound: seconds(25)},
		Health:  healthConfig{Path: "/health", ReadyPath: "/ready"},
		Log:     logConfig{Level: "info", Access: false, Format: "json"},
	})
}

func seconds(n int) Duration { return Duration(time.Duration(n) * time.Second) }

func wantStrings(t *testing.T, c *fileConfig) {
	wantEqual(t, "instance", c.Instance, "007")
	var listen []endpoint
	for _, address := range c.Listen {
		e, err := parseListen(address.Address)
		if err != nil {
			t.Errorf("%s: %v", address, err)
		}
		listen = append(listen, e)
	}
	wantEqual(t, "listen", listen, []endpoint{
		{network: "tcp", address: "127.0.0.1:8080"},
		{network: "tcp", address: "[::1]:8080"},
		{network: "tcp", address: "localhost:0"},
		{network: "unix", address: "/run/a.sock", mode: 0o660, hasMode: true, group: "www-data"},
		{network: "unix", address: "/run/b.sock", mode: 0o600, hasMode: true},
		{network: "unix", address: "/run/c.sock", mode: 0o660, hasMode: true, group: "33"},
		{network: "unix", address: "/run/d.sock"},
	})
	var targets []endpoint
	for _, target := range c.Upstreams["no"].Targets {
		e, err := parseTarget(target)
		if err != nil {
			t.Errorf("%s: %v", target, err)
		}
		targets = append(targets, e)
	}
	wantEqual(t, "targets", targets, []endpoint{
		{network: "tcp", address: "[::1]:80"}, {network: "tcp", address: "app_1:8001"}, {network: "unix", address: "/run/app.sock"},
	})
	wantEqual(t, "lanes in file order", c.laneNames(), []string{"8", "api.v2"})
	wantEqual(t, "upstreams in file order", c.upstreamNames(), []string{"8", "no"})
	wantEqual(t, "match", c.Routes[1].Match, "/caffè/my file")
	wantEqual(t, "respond", *c.Routes[2].Respond, respondConfig{Status: 418, Body: "0123456",
		Headers: map[string]string{"X-Token": "0123456", "X-Float": "1e3", "X-Bool": "true", "X-Empty": ""}})
}

func wantNumbers(t *testing.T, c *fileConfig) {
	app, web := c.Upstreams["app"], c.Lanes["web"]
	wantEqual(t, "concurrency", *app.Concurrency, 4)
	wantEqual(t, "start_timeout", app.StartTimeout, 0)
	wantEqual(t, "park", app.Park, 0)
	wantEqual(t, "abandon_limit", app.AbandonLimit, seconds(5400))
	wantEqual(t, "connect_timeout", app.ConnectTimeout, Duration(500*time.Millisecond))
	wantEqual(t, "queue", web.Queue, 0)
	wantEqual(t, "queue_timeout", web.QueueTimeout, Duration(1500*time.Millisecond))
	wantEqual(t, "response_timeout", web.ResponseTimeout, seconds(120))
	wantEqual(t, "response_timeout of a lane of streams", c.lane("streams").ResponseTimeout, 90*time.Second)
	wantEqual(t, "queue of a lane that names none", c.Lanes["slow"].Queue, 512)
	wantEqual(t, "body_bytes of /", *c.Routes[0].BodyBytes, 1)
	wantEqual(t, "body_bytes of /slow/", *c.Routes[1].BodyBytes, 1<<30)
	wantEqual(t, "body_bytes of /slow", c.Routes[2].BodyBytes, nil)
	wantEqual(t, "header_bytes", c.Limits.HeaderBytes, 65536)
	wantEqual(t, "limits.body_bytes", c.Limits.BodyBytes, 100)
	wantEqual(t, "memory", c.Limits.Memory, 2<<30)
	wantEqual(t, "drain", c.Drain, drainConfig{seconds(5), Duration(5001 * time.Millisecond)})
}

func wantVariables(t *testing.T, c *fileConfig) {
	wantEqual(t, "instance", c.Instance, "web-1-$-p$Q$x-^/a$")
	wantEqual(t, "listen", c.Listen, plainAddresses("127.0.0.1:9000", "127.0.0.1:9090", ":9091"))
	wantEqual(t, "targets", c.Upstreams["app"].Targets, []string{"http://127.0.0.1:8001"})
	web := c.Lanes["web"]
	wantEqual(t, "lane", []any{web.Upstream, web.Slots, web.Queue, web.QueueTimeout}, []any{"app", 4, 4, seconds(15)})
	wantEqual(t, "body_bytes", *c.Routes[0].BodyBytes, 10<<20)
	wantEqual(t, "respond", *c.Routes[1].Respond, respondConfig{Status: 200, Body: "a: 1 # b\n- c: {d|${NAME}||a$b"})
	wantEqual(t, "access", c.Log.Access, true)
}

func wantBlocks(t *testing.T, c *fileConfig) {
	wantEqual(t, "body", c.Routes[1].Respond.Body, "User-agent: *\nDisallow: /private/ # not for robots\n")
	wantEqual(t, "status left out", c.Routes[1].Respond.Status, 200)
	wantEqual(t, "respond", *c.Routes[2].Respond, respondConfig{Status: 410})
	wantEqual(t, "health", c.Health, healthConfig{})
}

func TestConfig_WhatNothingUsesIsAWarning(t *testing.T) {
	c, err := loadText(t, `upstreams:
  app: {targets: ["http://127.0.0.1:8000", "http://127.0.0.1:8001"]}
  spare: {targets: ["http://127.0.0.1:9000"]}
  again: {targets: ["http://127.0.0.1:8000"]}
lanes:
  web: {upstream: app, slots: 1}
  idle: {upstream: again, slots: 1}
routes: [{match: /, lane: web}]
`)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, warning := range c.warnings {
		got = append(got, strings.TrimPrefix(warning, c.source.file))
	}
	wantEqual(t, "warnings", got, []string{
		`:7:3: lane idle is used by no route (route to it or take it out)`,
		`:2:3: upstream app has 2 targets and 1 slots, so some targets get no request (raise slots)`,
		`:3:3: upstream spare is used by no lane (give it a lane or take it out)`,
		`:4:3: upstream again has the target http://127.0.0.1:8000 of upstream app too, and neither counts the other's requests (let its lanes use one upstream)`,
	})
}

func TestConfig_AFileThatCannotBeReadIsRefusedByName(t *testing.T) {
	large := filepath.Join(t.TempDir(), "large.yaml")
	if err := os.WriteFile(large, bytes.Repeat([]byte("#\n"), configBytes/2+1), 0o600); err != nil {
		t.Fatal(err)
	}
	missing, directory := filepath.Join(t.TempDir(), "none.yaml"), t.TempDir()
	for path, why := range map[string]string{
		missing: "no such file or directory", directory: "is a directory", large: "it is larger than 4MiB",
	} {
		_, err := loadConfig(path, testVariables)
		var refused *configError
		if !errors.As(err, &refused) {
			t.Fatalf("%s: %v, want a *configError", path, err)
		}
		wantEqual(t, "the sentence", err.Error(), path+": cannot be read: "+why+" (name the file with -c or HOLDFAST_CONFIG)")
	}
}

// yamlLineEnd is what ends a line to YAML 1.1 (§5.4), and so to its places.
var yamlLineEnd = regexp.MustCompile("\r\n|[\n\r\u0085\u2028\u2029]")

// FuzzConfig holds the loader to its promise for any text: a configuration or sentences with a place, never a panic.
func FuzzConfig(f *testing.F) {
	for _, pattern := range []string{"/valid/*.yaml", "/invalid/*.yaml"} {
		files, err := filepath.Glob(configFiles + pattern)
		if err != nil || len(files) == 0 {
			f.Fatalf("no files %s (%v)", pattern, err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	f.Add([]byte("# lines that end with CR alone\r\r\r\r\r\re"))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "c.yaml")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		config, err := loadConfig(path, testVariables)
		if err == nil {
			if len(config.Routes) == 0 || len(config.Lanes) == 0 {
				t.Fatal("loaded, and serves nothing")
			}
			return
		}
		var refused *configError
		if !errors.As(err, &refused) || len(refused.sentences) == 0 {
			t.Fatalf("refused with %v, want a *configError with sentences", err)
		}
		lines := len(yamlLineEnd.FindAllIndex(data, -1)) + 1
		for _, sentence := range refused.sentences {
			wantPlace(t, strings.TrimPrefix(sentence, path), lines)
		}
	})
}

func TestQuickConfig_IsOneForwardingLaneOnEveryPath(t *testing.T) {
	c, err := quickConfig("unix:/run/app.sock", nil, quickSlots)
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "listen", c.Listen, plainAddresses(":8080"))
	wantEqual(t, "lanes", c.Lanes, map[string]laneConfig{"default": {Upstream: "app", Slots: 8, Queue: 512,
		Kind: "request", QueueTimeout: seconds(10), ResponseTimeout: seconds(60), Streaming: "forward"}})
	wantEqual(t, "lanes in order", c.laneNames(), []string{"default"})
	wantEqual(t, "targets", c.Upstreams["app"].Targets, []string{"unix:/run/app.sock"})
	wantEqual(t, "route", []string{c.Routes[0].Match, *c.Routes[0].Lane}, []string{"/", "default"})
	wantEqual(t, "warnings", c.warnings, nil)

	c, err = quickConfig("http://127.0.0.1:8000", []string{"127.0.0.1:0", "unix:/run/h.sock"}, 3)
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "listen", c.Listen, plainAddresses("127.0.0.1:0", "unix:/run/h.sock"))
	wantEqual(t, "slots", c.Lanes["default"].Slots, 3)
}

func TestQuickConfig_FaultsNameTheFlag(t *testing.T) {
	_, err := quickConfig("127.0.0.1:8000", []string{":8080", ":08080"}, 0)
	var refused *configError
	if !errors.As(err, &refused) {
		t.Fatalf("%v, want a *configError", err)
	}
	slices.Sort(refused.sentences)
	wantEqual(t, "sentences", refused.sentences, []string{
		`--listen ":08080" has port "08080", which is not a port number (write 8080)`,
		`--slots "0" is below 1 (write 1 or more)`,
		`--upstream "127.0.0.1:8000" is not a target (write http://host:port or unix:/path)`,
	})
}
