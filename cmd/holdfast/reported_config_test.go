package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Faults that users of other servers have met: a configuration that means
// something else than was written, and says nothing.

// aConfig is one that loads, with a place for a line of its lane, and for lines
// behind all.
const aConfig = "upstreams: {app: {targets: [\"http://127.0.0.1:8000\"]}}\nlanes:\n  web:\n    upstream: app\n    slots: 8\n%sroutes: [{match: /, lane: web}]\n%s"

// A word that is not known, or stands in the wrong place, is refused with the
// place, the word and the one that was meant.
func TestConfig_AWordThatIsNotKnownIsRefusedWithTheOneThatWasMeant(t *testing.T) {
	if _, err := loadText(t, fmt.Sprintf(aConfig, "    queue: 4\n", "")); err != nil {
		t.Fatal("what the others differ from does not load:", err)
	}
	for name, c := range map[string]struct {
		text  string
		names []string
	}{
		"lane for lanes":     {strings.Replace(fmt.Sprintf(aConfig, "", ""), "lanes:", "lane:", 1), []string{":2:1:", `"lane"`, "lanes"}},
		"a letter is gone":   {fmt.Sprintf(aConfig, "    queue_timout: 1s\n", ""), []string{":6:5:", "queue_timout", "queue_timeout"}},
		"another case":       {fmt.Sprintf(aConfig, "    Queue_Timeout: 1s\n", ""), []string{":6:5:", "Queue_Timeout", "queue_timeout"}},
		"in camel case":      {fmt.Sprintf(aConfig, "    queueTimeout: 1s\n", ""), []string{":6:5:", "queueTimeout", "queue_timeout"}},
		"too far out":        {fmt.Sprintf(aConfig, "  queue_timeout: 1s\n", ""), []string{":6:"}},
		"at the top":         {fmt.Sprintf(aConfig, "", "queue_timeout: 1s\n"), []string{":7:1:", "queue_timeout"}},
		"a list for a map":   {fmt.Sprintf(aConfig, "", "limits: [{header_bytes: 1KiB}]\n"), []string{":7:9:", "limits"}},
		"a key of elsewhere": {fmt.Sprintf(aConfig, "", "drain: {bound: 5s, timeout: 5s}\n"), []string{":7:20:", "timeout"}},
	} {
		_, err := loadText(t, c.text)
		if err == nil {
			t.Errorf("%s: it loads", name)
			continue
		}
		for _, word := range c.names {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: refused with %q, which does not say %q", name, err, word)
			}
		}
	}
}

// Nothing beside the file changes what it says: no variable by its name alone,
// and a flag that is not known is a fault of the call.
func TestServe_AFlagThatIsNotKnownIsRefusedWithItsName(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, fmt.Appendf(nil, aConfig, "", ""), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"serve", "-c", path, "--slot", "4"}, {"-c", path, "--queue-timeout=1s"}, {"serve", "-c", path, "-x"}, {"serv", "-c", path}, {"doctor", "-c", path, "--josn"}} {
		var stdout, stderr bytes.Buffer
		code := run(args, &stdout, &stderr)
		name := strings.Trim(args[len(args)-1], "-=1s4")
		if args[0] == "serv" {
			name = "serv"
		} else if len(args) == 5 && args[3] == "--slot" {
			name = "slot"
		}
		if code != exitUsage || !strings.Contains(stderr.String(), name) || stdout.Len() > 0 || strings.Count(strings.TrimSpace(stderr.String()), "\n") > 0 {
			t.Errorf("%q: exit %d, %q, %q; want %d and one sentence that names %q", args, code, stdout.String(), stderr.String(), exitUsage, name)
		}
	}
}

// A dollar is a dollar unless it is ${NAME}: in secrets, patterns and comments;
// and what comes out of the environment is text, whatever YAML would make of it.
func TestConfig_OnlyAWholeVariableIsFilledInAndItsValueIsText(t *testing.T) {
	text := "# A comment with $X, ${UNSET} and ${OPEN\n" + fmt.Sprintf(aConfig, "", "instance: '%s'\ngrip: {key: '%s'}\n")
	for in, want := range map[string]string{
		"p$Q$x": "p$Q$x", "$$": "$", "${UNSET:-d}": "d", "^/a$": "^/a$", "${NAME}": "web-1", "$NAME": "$NAME", "${EMPTY:-d}": "d", "a$": "a$",
	} {
		c, err := loadText(t, fmt.Sprintf(text, in, in))
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		if c.Instance != want || string(c.Grip.Key) != want {
			t.Errorf("%s is %q and %q, want %q", in, c.Instance, c.Grip.Key, want)
		}
	}
	for in, name := range map[string]string{"${UNSET}": "UNSET", "${OPEN": "${"} {
		if _, err := loadText(t, fmt.Sprintf(text, in, "x")); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, want it refused with %s", in, err, name)
		}
	}
	body := fmt.Sprintf(aConfig, "", "") // a value that has YAML's own signs, and lines
	body = strings.Replace(body, "routes: [", "routes: [{match: /text, respond: {body: \"${YAML}\"}}, ", 1)
	c, err := loadText(t, body)
	if err != nil || c.Routes[0].Respond.Body != "a: 1 # b\n- c: {d" {
		t.Errorf("%+v %v", c, err)
	}
}

// The mode of a socket is octal however it is written, and it is the socket's.
func TestListen_AUnixSocketHasTheModeThatIsWritten(t *testing.T) {
	for _, mode := range []string{"0660", "0o660", "660"} {
		dir, err := os.MkdirTemp("", "holdfast-mode-*") // a socket's path has to be short
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		path := filepath.Join(t.TempDir(), "c.yaml")
		text := fmt.Sprintf("listen: \"unix:%s/s?mode=%s\"\nadmin: {listen: \"unix:%[1]s/a?mode=0600\"}\npublish: {listen: \"127.0.0.1:0\"}\n", dir, mode) + fmt.Sprintf(aConfig, "", "")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		startHoldsFile(t, path)
		for name, want := range map[string]fs.FileMode{"s": 0o660, "a": 0o600} {
			info, err := os.Stat(filepath.Join(dir, name))
			if err != nil || info.Mode().Perm() != want || info.Mode().Type() != fs.ModeSocket {
				t.Errorf("mode=%s: %s is %v, %v; want %v", mode, name, info.Mode(), err, want)
			}
		}
	}
}
