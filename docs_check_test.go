package holdfast_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// deadLinks names the links of a page that lead nowhere in this tree. Those to
// other sites are not followed.
func (p *page) deadLinks() (faults []string) {
	for _, l := range p.links() {
		fail := func(why string) {
			faults = append(faults, fmt.Sprintf("%s:%d: the link (%s) leads nowhere: %s", p.path, l.line, l.target, why))
		}
		target, err := url.Parse(l.target)
		if err != nil {
			fail(err.Error())
			continue
		}
		if target.IsAbs() {
			continue
		}
		to := p
		if target.Path != "" {
			path := filepath.Join(filepath.Dir(p.path), target.Path)
			if _, err := os.Stat(path); err != nil {
				fail("there is no " + path)
				continue
			}
			if target.Fragment == "" {
				continue
			}
			text, err := os.ReadFile(path)
			if err == nil {
				to, err = parsePage(path, string(text))
			}
			if err != nil {
				fail(err.Error())
				continue
			}
		}
		if !to.anchors()[target.Fragment] {
			fail("no heading there has the anchor #" + target.Fragment)
		}
	}
	return faults
}

// foreign are first keys of YAML that other programs read.
var foreign = []string{"apiVersion", "scrape_configs", "initContainers", "services"}

// frame is what a part of a configuration is completed with.
var frame = []struct{ key, text string }{
	{"upstreams", "upstreams:\n  app: {targets: [\"http://127.0.0.1:8000\"]}\n  asgi: {targets: [\"http://127.0.0.1:8001\"]}\n"},
	{"lanes", "lanes:\n  web: {upstream: app, slots: 6}\n  slow: {upstream: app, slots: 2}\n  streams: {upstream: asgi, kind: stream, slots: 10}\n"},
	{"routes", "routes: [{match: /, lane: web}]\n"},
}

var (
	variable  = regexp.MustCompile(`\$\{(\w+)\}|key_env: *(\w+)`)
	directory = regexp.MustCompile(`\bdir: *"?([\w/-]+)`)
)

// wantConfiguration: a block of YAML can be served, once completed if it is a
// part. Its variables are set, and its directories are there.
func (k *kit) wantConfiguration(dir, text string) error {
	var top yaml.Node
	if err := yaml.Unmarshal([]byte(text), &top); err != nil {
		return err
	}
	if len(top.Content) == 0 || top.Content[0].Kind != yaml.MappingNode {
		return errors.New("is no mapping: neither a configuration nor a part of one")
	}
	var keys []string
	for i := 0; i < len(top.Content[0].Content); i += 2 {
		keys = append(keys, top.Content[0].Content[i].Value)
	}
	if len(keys) > 0 && slices.Contains(foreign, keys[0]) {
		return nil
	}
	for _, part := range frame {
		if !slices.Contains(keys, part.key) {
			text += part.text
		}
	}
	env := append(os.Environ(), "LANG=C.UTF-8")
	for _, found := range variable.FindAllStringSubmatch(text, -1) {
		env = append(env, found[1]+found[2]+"=0123456789abcdef0123456789abcdef")
	}
	for _, found := range directory.FindAllStringSubmatch(text, -1) {
		there := filepath.Join(dir, found[1])
		if err := os.MkdirAll(there, 0o755); err != nil {
			return err
		}
		text = strings.ReplaceAll(text, found[0], strings.Replace(found[0], found[1], there, 1))
	}
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return err
	}
	doctor := exec.Command("unshare", "--net", filepath.Join(k.bin, "holdfast"), "doctor", "-c", file)
	doctor.Dir, doctor.Env = dir, env
	out, err := doctor.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 {
		return nil // something of this machine, and not of the file
	}
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

const debianPython = "/usr/bin/python3"

// namedBlock is a block of Python, and where it stands.
type namedBlock struct {
	Name, Text string
}

const compileAll = `
import json, sys, textwrap
for block in json.load(sys.stdin):
    try:
        compile(textwrap.dedent(block["Text"]), block["Name"], "exec")
    except SyntaxError as error:
        print(f'{block["Name"]}: line {error.lineno} of the block: {error.msg}')
`

// wantPython compiles blocks, without running them.
func wantPython(blocks []namedBlock) error {
	text, err := json.Marshal(blocks)
	if err != nil {
		return err
	}
	python := exec.Command(debianPython, "-c", compileAll)
	python.Stdin = strings.NewReader(string(text))
	out, err := python.CombinedOutput()
	if err == nil && len(out) > 0 {
		err = errors.New("does not compile")
	}
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}
