package main

import (
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"holdfast/holds/bus"
)

// busConfig is how events reach other nodes: a text, its URL, or a mapping.
// Ready says when /ready asks for it: start, until it was reached once; always;
// never.
type busConfig struct {
	URL   string `yaml:"url" required:"redis://127.0.0.1:6379" secret:"true"`
	Ready string `yaml:"ready" oneof:"start always never"`
}

func (b *busConfig) setDefaults() { b.Ready = "start" }

// busSchemes are those of the engines there are.
var busSchemes = []string{"redis", "rediss", "postgres", "postgresql"}

// busNeed names what is needed, in a sentence.
const busNeed = "a URL"

// decodeBus reads a bus; false: into is none.
func (d *decoder) decodeBus(path string, node *yaml.Node, into reflect.Value, tag reflect.StructTag) bool {
	if into.Type() != reflect.TypeFor[busConfig]() {
		return false
	}
	d.textOrMapping(path, node, into, tag, busNeed)
	return true
}

// MarshalYAML writes a bus as it is read.
func (b busConfig) MarshalYAML() (any, error) {
	if b.Ready == "start" {
		return b.URL, nil
	}
	return map[string]string{"url": b.URL, "ready": b.Ready}, nil
}

// parse understands the URL. Where it says nothing of that, events are kept for
// as long as the journal keeps them, as far as an engine can; 0: the engine's
// default.
func (b busConfig) parse(journal time.Duration) (*bus.Config, error) {
	return bus.Parse(b.URL, b.options(journal))
}

func (b busConfig) options(journal time.Duration) bus.Options {
	if journal == 0 {
		return bus.Options{}
	}
	return bus.Options{Keep: min(max(journal, time.Second), 720*time.Hour)}
}

// checkBus never shows more of a URL than its scheme: where its password begins and ends is what may be wrong.
func (c *fileConfig) checkBus() {
	if c.Bus.URL == "memory" {
		return
	}
	scheme, rest, isURL := strings.Cut(c.Bus.URL, "://")
	if !isURL || !slices.Contains(busSchemes, scheme) {
		hint := "write memory, redis://HOST:PORT or postgres://HOST/NAME"
		if near := nearest(scheme, append([]string{"memory"}, busSchemes...)); near != "" && near != scheme && schemeText.MatchString(scheme) {
			hint += "; nearest: " + quote(near)
		}
		c.source.wrong(c.busPath(), "%s is not a bus (%s)", c.busShown(), hint)
		return
	}
	u, err := url.Parse(c.Bus.URL)
	if err != nil || strings.Contains(rest, "#") {
		c.source.wrong(c.busPath(), "%s is not a URL (write it as %s://user:password@host, what is special in a password percent-encoded)",
			c.busShown(), scheme)
		return
	}
	if port := u.Port(); port != "" {
		if number, err := strconv.Atoi(port); err != nil || number < 1 || number > 65535 {
			c.source.wrong(c.busPath(), "%s has a port that is none (write digits from 1 to 65535)", c.busShown())
		}
	}
	// PostgreSQL's own is a socket on this machine.
	if strings.HasPrefix(scheme, "redis") && u.Hostname() == "" {
		c.source.wrong(c.busPath(), "%s has no host (write %s://127.0.0.1:6379)", c.busShown(), scheme)
		return
	}
	if _, err := c.Bus.parse(0); err != nil { // it has no secret in it
		c.source.wrong(c.busPath(), "%s cannot be used: %s", c.busShown(), strings.TrimPrefix(err.Error(), "bus: "))
	}
}

// busPath is where the bus's URL stands: by itself, or in a mapping.
func (c *fileConfig) busPath() string {
	if c.source.isSet("bus.url") {
		return "bus.url"
	}
	return "bus"
}

func (c *fileConfig) busShown() string {
	scheme, _, isURL := strings.Cut(c.Bus.URL, "://")
	switch {
	case c.Bus.URL != "" && !schemeText.MatchString(strings.ToLower(scheme)):
		return hidden
	case isURL:
		return quote(scheme + "://…")
	}
	return quote(scheme)
}
