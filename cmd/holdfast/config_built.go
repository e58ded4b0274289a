package main

import (
	"errors"
	"sort"
	"strings"
)

// The whole configuration is read and checked, also of what this version does not do yet. What it would be wrong to
// serve without is refused by name; what can wait is a warning.

// withoutEffect are the sections and keys that nothing heeds yet.
var withoutEffect = []string{"grip"}

// notBuilt names what the configuration asks for and this version does not do, one sentence with its place for each.
// A configuration with any cannot be served.
func (c *fileConfig) notBuilt() []string {
	asked := *c.source
	asked.faults = nil
	for i, route := range c.Routes {
		if route.Files != nil {
			asked.wrong(item("routes", i)+".files", "is not in this version (take the route out)")
		}
	}
	if c.Bus != "memory" {
		asked.wrong("bus", "%s is not in this version (write memory)", c.busShown())
	}
	var refused *configError
	if errors.As(asked.err(), &refused) {
		return refused.sentences
	}
	return nil
}

// warnWithoutEffect names the keys that were written and change nothing yet, a sentence for each section.
func (c *fileConfig) warnWithoutEffect() {
	for _, section := range withoutEffect {
		var keys []string
		for key := range c.source.keys {
			if (key == section || strings.HasPrefix(key, section+".")) && !c.source.hasKeys(key) {
				keys = append(keys, key)
			}
		}
		if len(keys) == 0 {
			continue
		}
		sort.Slice(keys, func(i, j int) bool { return c.source.keys[keys[i]].before(c.source.keys[keys[j]]) })
		has := "have"
		if len(keys) == 1 {
			has = "has"
		}
		c.oddKey(keys[0], "%s %s no effect in this version", strings.Join(keys, ", "), has)
	}
}
