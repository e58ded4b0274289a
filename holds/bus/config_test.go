package bus

import (
	"os"
	"strings"
	"testing"
	"time"
)

func TestParse_UnderstandsEachKind(t *testing.T) {
	for _, c := range []struct{ url, kind, name, text string }{
		{"memory", "memory", "holdfast", "memory"},
		{"memory?keep=1h&entries=7", "memory", "holdfast", "memory"},
		{"redis://cache", "redis", "holdfast", "redis://cache:6379/0 log holdfast"},
		{"redis://user:s3cret@[::1]:7000/3?log=shop_2", "redis", "shop_2", "redis://[::1]:7000/3 log shop_2"},
		{"rediss://:s3cret@cache/", "redis", "holdfast", "rediss://cache:6379/0 log holdfast"},
		{"postgres://user:s3cret@db/app?sslmode=disable&log=a", "postgres", "a", "postgres://db:5432/app log a"},
		{"postgresql://user@/app?host=/run/postgresql&port=5433&password=s3cret", "postgres", "holdfast", "postgres://[/run/postgresql]:5433/app log holdfast"},
	} {
		got, err := Parse(c.url, Options{})
		if err != nil {
			t.Errorf("%s: %v", c.url, err)
			continue
		}
		if got.Kind != c.kind || got.Name != c.name || got.String() != c.text && !strings.Contains(c.text, "[/") {
			t.Errorf("%s is %s %s %q, want %s %s %q", c.url, got.Kind, got.Name, got, c.kind, c.name, c.text)
		}
		if strings.Contains(got.String(), "s3cret") {
			t.Errorf("%s shows its password: %s", c.url, got)
		}
	}
}

func TestParse_WhatIsKept(t *testing.T) {
	for _, c := range []struct {
		url     string
		o       Options
		keep    time.Duration
		entries int64
	}{
		{"memory", Options{}, 10 * time.Minute, 100_000},
		{"memory", Options{Keep: time.Hour, Entries: 5}, time.Hour, 5},
		{"redis://a?keep=90s&entries=12", Options{Keep: time.Hour, Entries: 5}, 90 * time.Second, 12},
	} {
		got, err := Parse(c.url, c.o)
		if err != nil || got.Keep != c.keep || got.Entries != c.entries {
			t.Errorf("%s: %+v, %v; want %s and %d", c.url, got, err, c.keep, c.entries)
		}
	}
}

func TestParse_RefusesTheRestAndNamesIt(t *testing.T) {
	t.Setenv("PGSERVICE", "")
	for url, want := range map[string]string{
		"":                             "none of them",
		"nats://a":                     "none of them",
		"memory://":                    "none of them",
		"s3cret":                       "none of them",
		"memory?kep=1m":                `no key "kep"; it may have log, keep, entries`,
		"redis://a?db=1":               `no key "db"`,
		"redis://a?ca=x":               `no key "ca"`,
		"postgres://a/b?search_path=x": `no key "search_path"`,
		"memory?keep=1m&keep=2m":       `"keep" is there 2 times`,
		"memory?keep=10":               "keep=10 is no duration",
		"memory?keep=1ms":              "1s to 720h",
		"memory?keep=721h":             "1s to 720h",
		"memory?entries=x":             "entries=x is no count",
		"memory?entries=0":             "1 to 10000000",
		"redis://a?log=":               `log=""`,
		"redis://a?log=Shop":           `log="Shop"`,
		"redis://a?log=pg_x":           `log="pg_x"`,
		"redis://a?log=a.b":            `log="a.b"`,
		"redis://a?log=" + strings.Repeat("a", 33): "at most 32",
		"redis:///1":                            "names no host",
		"redis:a":                               "no URL",
		"redis://a/x":                           `"x" is none`,
		"redis://a/-1":                          `"-1" is none`,
		"redis://:s3cret#x@a":                   "no URL",
		"redis://:s3c/ret@a":                    "",
		"redis://:a?s3cret@a":                   "percent-encode",
		"redis://:a?s3cret=1@a":                 "percent-encode",
		"redis://a:s3cret@b:port":               "no URL",
		"redis://a?log=a;b=c":                   "key=value",
		"redis://a?%zz=1":                       "key=value",
		"rediss://a?ca=/not/there":              "/not/there",
		"postgres://u:s3cret@a:b/c":             "no URL",
		"postgres://u:s3cret@a/c?sslmode=maybe": "no URL",
		"postgres://u:p@a/c?password=s3cret&sslmode=maybe": "no URL",
	} {
		_, err := Parse(url, Options{})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3c") {
			t.Errorf("%q: %v, want %q", url, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, url := range []string{"memory", "memory?keep=1m", "redis://u:S3CR3T@h:1/2?log=a", "rediss://:S3CR3T@h?ca=/x", "postgres://u:S3CR3T@h/d?sslmode=disable",
		"postgresql:///d?host=/run&password=S3CR3T", "redis://:S3C?R3T@h", "postgres://u:S3CR3T@a:1,b:2/d?target_session_attrs=any"} {
		f.Add(url)
	}
	f.Fuzz(func(t *testing.T, url string) {
		c, err := Parse(url, Options{})
		if err == nil {
			if c.String() == "" || !wellNamed.MatchString(c.Name) || c.Keep < time.Second || c.Entries < 1 {
				t.Errorf("%q is understood as %+v", url, c)
			}
			c.Open().Close()
			return
		}
		if strings.Contains(err.Error(), "S3CR3T") && !strings.Contains(err.Error(), `key "S3CR3T"`) {
			// It is quoted where it stands as a key or a value of ours, not as a password.
			for _, ours := range []string{"log=", "keep=", "entries=", "no key", "is there", "'s path", "ca: "} {
				if strings.Contains(err.Error(), ours) {
					return
				}
			}
			t.Errorf("%q: %v", url, err)
		}
	})
}

func TestRedis_TLSIsChecked(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "holdfast-tls") // which the server's user can read
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	ca, cert, key := selfSigned(t, dir)
	port := freePort()
	server := shared(t, func() (*server, error) {
		return newRedis("--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", ca, "--tls-auth-clients", "no")
	})
	b, err := Open("rediss://localhost:"+port+"?ca="+ca, Options{})
	must(t, err)
	defer b.Close()
	f, stop := followNow(t, b, 0)
	publishNow(t, b, "1")
	f.untilBody(t, "1")
	stop()
	for _, url := range []string{"rediss://localhost:" + port, "rediss://127.0.0.2:" + port + "?ca=" + ca, "redis://localhost:" + port} {
		other, err := Open(url, Options{})
		must(t, err)
		if _, err := other.Publish(ctxOf(t), byteBodies([]string{"x"})); err == nil {
			t.Errorf("%s publishes", url)
		}
		other.Close()
	}
	must(t, os.WriteFile(ca, []byte("none"), 0o644))
	if _, err := b.State(ctxOf(t)); err == nil || !strings.Contains(err.Error(), "no certificate in PEM form") {
		t.Errorf("a file without a certificate: %v", err)
	}
	server.stop()
}
