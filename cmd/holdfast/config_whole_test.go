package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func wantWhole(t *testing.T, c *fileConfig) {
	wantEqual(t, "trusted_proxies", c.TrustedProxies, []string{"10.0.0.0/8", "192.168.1.7", "2001:db8::/32", "::1", "unix"})
	streams := c.Lanes["streams"]
	wantEqual(t, "lanes.streams", []any{streams.Kind, streams.Slots, streams.Idle}, []any{"stream", 1000, seconds(300)})
	wantEqual(t, "message paths", []string{c.Routes[0].MessagePath, c.Routes[2].MessagePath, c.Routes[3].MessagePath},
		[]string{"", "/chat/message/", "/rt/message"})
	wantEqual(t, "static", *c.Routes[4].Files, filesConfig{Dir: "/srv/static", CacheControl: "public, max-age=3600",
		Headers: map[string]string{"X-Frame-Options": "DENY"}})
	wantEqual(t, "protected", *c.Routes[5].Files, filesConfig{Dir: "/srv/private", Internal: true,
		Headers: map[string]string{"X-Robots-Tag": "none"}})
	wantEqual(t, "live", *c.Routes[7].Grant, grantConfig{KeyEnv: "GRANT_KEY", Cookie: "sid"})
	wantEqual(t, "open", *c.Routes[8].Grant, grantConfig{KeyEnv: "GRANT_KEY", Cookie: "sessionid"})
	wantEqual(t, "spool", c.Limits.Spool, spoolConfig{Dir: "/var/spool/holdfast"})
	wantEqual(t, "connections", c.Limits.Connections, 10000)
	wantEqual(t, "holds", c.Holds, holdsConfig{
		Dialects: []string{"grip"}, OutboxBytes: 131072, WriteStall: seconds(10), Limit: 5000, MaxAge: seconds(3600),
		Journal:     journalConfig{Events: 16, Bytes: 1048576, Age: seconds(30)},
		MessagePath: "/ws/in/", MessageBytes: 65536,
		Origins: oneOrList{"https://example.com", "http://localhost:3000", "http://[::1]:3000", "https://app.example.com:8443"},
	})
	wantEqual(t, "grip", c.Grip, gripConfig{Iss: "chat", Key: "base64:hunter2"})
	wantEqual(t, "publish", c.Publish, keyedListener{Listen: address{Address: ":5561"}, Keys: []string{"hunter2", "second"}})
	wantEqual(t, "admin", c.Admin, keyedListener{Listen: address{Address: "unix:/run/holdfast-admin.sock?mode=0600"}, Keys: []string{"third"}})
	wantEqual(t, "bus", c.Bus, busConfig{"rediss://app:hunter2@redis.internal:6380/2", "always"})
	wantEqual(t, "the secret of grip.key", string(c.Grip.secret()), "\x86\xe9\xedz\xbd")
	overHTTP := make([]any, len(c.Routes))
	for i, route := range c.Routes {
		if route.OverHTTP != nil {
			overHTTP[i] = *route.OverHTTP
		}
	}
	wantEqual(t, "over_http", overHTTP, []any{true, true, false, nil, nil, nil, nil, nil, nil})
	wantSentences(t, c, "warnings", c.warnings)
}

// wantSentences compares sentences, each without the file's name in front.
func wantSentences(t *testing.T, c *fileConfig, what string, got []string, want ...string) {
	t.Helper()
	var bare []string
	for _, sentence := range got {
		bare = append(bare, strings.TrimPrefix(sentence, c.source.file))
	}
	if !slices.Equal(bare, want) {
		t.Errorf("%s:\n%s\nwant\n%s", what, strings.Join(bare, "\n"), strings.Join(want, "\n"))
	}
}

func wantPatterns(t *testing.T, c *fileConfig) {
	wantEqual(t, "routes", len(c.Routes), 22)
}

func wantListeners(t *testing.T, c *fileConfig) {
	wantEqual(t, "publish", c.Publish.Listen.Address, "")
	wantEqual(t, "admin", c.Admin.Listen.Address, "[::ffff:127.0.0.1]:5562")
	wantEqual(t, "message_path", c.Holds.MessagePath, "/ws/message/")
}

func TestConfig_AnEmptyVariableIsNoGrantKeyAndTheNextLoadMayHaveIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	text := minimalYAML + "  - {match: /live/, grant: {key_env: M0_GRANT_KEY}}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	const place = ":5:38: routes[1].grant.key_env \"M0_GRANT_KEY\" is a variable that is "
	for _, env := range []struct {
		value string
		set   bool
		want  string
	}{{"", false, "not set"}, {"", true, "empty"}, {"k", true, ""}} {
		_, err := loadConfig(path, func(name string) (string, bool) { return env.value, env.set && name == "M0_GRANT_KEY" })
		switch {
		case env.want == "" && err != nil:
			t.Errorf("with the key set: %v", err)
		case env.want != "" && (err == nil || err.Error() != path+place+env.want+" (set it to the key that signs grants)"):
			t.Errorf("%q (set: %v): %v", env.value, env.set, err)
		}
	}
}

const minimalYAML = `upstreams: {app: {targets: ["http://127.0.0.1:8000"]}}
lanes: {web: {upstream: app, slots: 2}}
routes:
  - {match: /, lane: web}
`

// Whatever is wrong with a secret or near it, no sentence shows it. Each text is a configuration's end with SECRET in it.
func TestConfig_NoFaultShowsASecret(t *testing.T) {
	const secret = "hunter2"
	for _, text := range []string{
		"grip: SECRET", "grip: [SECRET]", "grip: {key: [SECRET]}", "grip: {key: {a: SECRET}}", "grip: {key: *SECRET}", "grip: {key: &SECRET x}",
		"grip: {key: !SECRET x}", "grip: {key: \"SECRET${UNSET}\"}", "grip: {key: \"${SECRET x}\"}", "grip: {key: \"${UNSET:-SECRET${A}}\"}",
		"grip: {key: \"SECRET${\"}", "grip: {key: \"SECRET\\t\"}", "grip: {key: \"SECRET}", "grip: {key: SECRET: x}", "grip:\n  key: SECRET: x",
		"grip: {key: \"base64:SECRET!\"}", "grip: {key: \"base64:SECRET\\u00e9\"}", "grip: {key: \"-----BEGIN SECRET\"}", "grip:\n\tkey: SECRET", "grip:\n  key: \"a\n    SECRET", "grip:\n  key: @SECRET", "\"grip\": {\"key\": \"SECRET}", "grip: {kye: *SECRET, key: x}",
		"publish: SECRET", "publish: {keys: SECRET}", "publish: {keys: [[SECRET]]}", "publish: {keys: [{SECRET: x}]}", "publish: {keys: {a: SECRET}}",
		"publish: {keys: [\"SECRET a\"]}", "publish: {keys: [SECRETé]}", "publish: {listen: \"\", keys: [SECRET]}", "publish: {listen: x, keys: [SECRET]}",
		"publish:\n  keys:\n  - SECRET: x: y", "publish:\n  keys:\n    - \"SECRET", "publish:\n  keys: [a,\n    SECRET", "publish:\nkeys:\n- *SECRET",
		"admin: SECRET", "admin: {keys: SECRET}", "admin: {keys: [\"${UNSET}SECRET\"]}", "admin: {key: SECRET}", "admin: {keys: [SECRET], keys: [SECRET]}",
		"bus: SECRET@db", "bus: u:SECRET@db", "bus: redis:/:SECRET@db", "bus: redis://:SECRET@", "bus: redis://:SECRET@db:x", "bus: redis://:SECRET@db:70000",
		"bus: \"redis://:a#SECRET@db\"", "bus: redis://:a/SECRET@db:6379", "bus: \"redis://:a SECRET@db\"", "bus: redis://:%SECRET@db", "bus: amqp://:SECRET@db",
		"bus: [redis://:SECRET@db]", "bus: {redis: SECRET}", "bus: postgres://u:SECRET@db: 5432", "bus: \"postgres://u:${UNSET}SECRET@db\"",
		"bus: postgres://u@db:0/x?password=SECRET",
		"routes2: [\"http://u:SECRET@db\"", "listen: http://u:SECRET@db", "listen: [\"http://u:SECRET@db\"", "holds: {origins: [\"https://u:SECRET@example.com\"]}",
		"holds: {origins: [\"https://u:SECRET@Example.com/\"]}", "holds: {origins: [\"https://u:p/SECRET@example.com\"]}",
	} {
		path := filepath.Join(t.TempDir(), "c.yaml")
		if err := os.WriteFile(path, []byte(minimalYAML+strings.ReplaceAll(text, "SECRET", secret)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := loadConfig(path, testVariables)
		var refused *configError
		if !errors.As(err, &refused) {
			t.Errorf("%s: %v, want it refused", text, err)
		} else if strings.Contains(err.Error(), secret) {
			t.Errorf("%s is refused with\n%v", text, err)
		}
	}
	_, err := quickConfig("http://u:"+secret+"/@127.0.0.1:8000", nil, 1)
	if err == nil || strings.Contains(err.Error(), secret) {
		t.Errorf("--upstream is refused with %v", err)
	}
}

func TestConfig_ABusIsAWordOrAURL(t *testing.T) {
	for _, bus := range []string{
		"memory", "redis://127.0.0.1", "redis://:p%40ss@db:6379/2", "rediss://u:p@[::1]:6380", "postgres://u:p@db/app?sslmode=require",
		"postgresql:///app", "postgres://db:5432",
	} {
		for text, ready := range map[string]string{bus: "start", "{url: \"" + bus + "\", ready: never}": "never"} {
			c, err := loadText(t, minimalYAML+"bus: "+text+"\n")
			if err != nil {
				t.Errorf("%s: %v", text, err)
			} else if want := (busConfig{bus, ready}); c.Bus != want {
				t.Errorf("%s: %+v, want %+v", text, c.Bus, want)
			}
		}
	}
}

func TestConfig_EachOriginIsAsABrowserSendsIt(t *testing.T) {
	for _, origins := range []string{
		"same-host", "any", "[any]", "https://example.com", `["http://[::1]:8000", "https://a.example.com:8443"]`, "capacitor://localhost",
		"chrome-extension://abcdefghijklmnop",
	} {
		if _, err := loadText(t, minimalYAML+"holds: {origins: "+origins+"}\n"); err != nil {
			t.Errorf("%s: %v", origins, err)
		}
	}
}

func TestEndpoint_OverlapsWhereTheSystemWouldNotBindBoth(t *testing.T) {
	for _, pair := range []struct {
		a, b string
		want bool
	}{
		{":80", ":80", true}, {":80", "127.0.0.1:80", true}, {"0.0.0.0:80", "[::1]:80", true}, {"[::]:80", "127.0.0.1:80", true},
		{"localhost:80", "127.0.0.1:80", true}, {"[::ffff:127.0.0.1]:80", "127.0.0.1:80", true}, {"[0:0::1]:80", "[::1]:80", true},
		{"A.example:80", "a.example:80", true}, {"127.0.0.1:80", "127.0.0.2:80", false}, {"127.0.0.1:80", "[::1]:80", false},
		{":80", ":81", false}, {":0", ":0", false}, {"unix:/a", "unix:/b", false}, {"unix:/a?mode=0600", "unix:/./a", true}, {"unix:/a", ":80", false},
	} {
		a, errA := parseListen(pair.a)
		b, errB := parseListen(pair.b)
		if errA != nil || errB != nil {
			t.Fatal(errA, errB)
		}
		if a.overlaps(b) != pair.want || b.overlaps(a) != pair.want {
			t.Errorf("%s and %s overlap: %v and %v, want %v", pair.a, pair.b, a.overlaps(b), b.overlaps(a), pair.want)
		}
	}
}

func TestEndpoint_IsLocalWhenOnlyThisMachineReachesIt(t *testing.T) {
	for text, want := range map[string]bool{
		"127.0.0.1:1": true, "127.9.9.9:1": true, "[::1]:1": true, "localhost:1": true, "LocalHost:1": true, "unix:/a": true, "[::ffff:127.0.0.1]:1": true,
		":1": false, "0.0.0.0:1": false, "[::]:1": false, "10.0.0.1:1": false, "localhost.example.com:1": false, "[fe80::1%lo]:1": false,
	} {
		e, err := parseListen(text)
		if err != nil {
			t.Fatal(err)
		}
		if e.isLocal() != want {
			t.Errorf("%s is local: %v, want %v", text, e.isLocal(), want)
		}
	}
}

func TestQuickConfig_AListenAddressThatADefaultHasIsTheFlagsFault(t *testing.T) {
	_, err := quickConfig("http://127.0.0.1:8000", []string{":5562"}, 1)
	if want := `--listen ":5562" is taken by admin.listen "127.0.0.1:5562" (give each an address of its own)`; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
