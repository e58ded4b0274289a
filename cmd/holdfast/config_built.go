package main

import "errors"

// The whole configuration is read and checked, also of what this version does not do yet, which is refused by name.

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
