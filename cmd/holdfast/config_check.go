package main

import (
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
)

// nameText is a lane's or upstream's name: it stands in log lines, metric labels and answers.
var nameText = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)

// check finds what no single value shows: names that nothing defines, bounds that contradict each other, keys without
// effect where they stand. What is wrong goes to the source, what is odd to warnings.
func (c *fileConfig) check() {
	c.checkInstance()
	c.checkListeners()
	c.checkTrustedProxies()
	for _, name := range c.upstreamNames() {
		c.checkUpstream(name)
	}
	c.checkLanes()
	c.checkSlots()
	c.checkRoutes()
	c.checkHolds()
	c.checkGrip()
	c.checkBus()
	c.checkSpool()
	c.checkHealthPaths()
	c.checkMessagePaths()
	c.checkDrain()
	if len(c.source.faults) == 0 {
		c.fillOverHTTP()
		c.warn()
	}
}

func (c *fileConfig) checkInstance() {
	if strings.ContainsFunc(c.Instance, isControl) || len(c.Instance) > 255 {
		c.source.wrong("instance", "%s is not a name for logs (write up to 255 bytes without control characters)", quote(c.Instance))
	}
}

func (c *fileConfig) checkName(section, name string) {
	if !nameText.MatchString(name) {
		c.source.wrongAt(c.source.keys[join(section, name)],
			"%s is not a name for one of the %s (write up to 64 of A-Z, a-z, 0-9, _, . and -)", quote(name), section)
	}
}

func (c *fileConfig) checkUpstream(name string) {
	c.checkName("upstreams", name)
	path := join("upstreams", name)
	upstream := c.Upstreams[name]
	if len(upstream.Targets) == 0 {
		c.source.wrong(path+".targets", "is an empty list (write at least one, as http://127.0.0.1:8000)")
	}
	first := map[endpoint]int{}
	for i, target := range upstream.Targets {
		at := item(path+".targets", i)
		e, err := parseTarget(target)
		if err != nil {
			c.source.wrong(at, "%s %v", quote(target), err)
			continue
		}
		if earlier, twice := first[e]; twice {
			c.source.wrong(at, "%s is the same target as %s (take one out; more at once on one target is concurrency)",
				quote(target), quote(upstream.Targets[earlier]))
			continue
		}
		first[e] = i
	}
	if p := upstream.Health.Path; p != "*" && (!strings.HasPrefix(p, "/") || strings.ContainsFunc(p, notInTarget)) {
		c.source.wrong(path+".health.path", `%s is not a request target (write "*" for OPTIONS *, or a path as /health/)`, quote(p))
	}
	if !validHost(upstream.Health.Host) {
		c.source.wrong(path+".health.host", "%s is not a Host header (write a name, as localhost)", quote(upstream.Health.Host))
	}
}

// notInTarget holds for what a request line has no room for: spaces, control characters, a fragment.
func notInTarget(r rune) bool { return r <= ' ' || r == 0x7f || r == '#' }

func validHost(s string) bool {
	if hostText.MatchString(s) {
		return true
	}
	if ip, bracketed := strings.CutPrefix(s, "["); bracketed && strings.HasSuffix(ip, "]") {
		return net.ParseIP(strings.TrimSuffix(ip, "]")) != nil
	}
	host, _, err := splitAddress(s, 1)
	return err == nil && host != ""
}

func (c *fileConfig) checkLanes() {
	if len(c.Lanes) == 0 {
		c.source.wrong("lanes", "has no lane (write web: {upstream: app, slots: 8})")
	}
	for _, name := range c.laneNames() {
		c.checkName("lanes", name)
		upstream := c.Lanes[name].Upstream
		if _, defined := c.Upstreams[upstream]; !defined {
			c.source.wrong(join("lanes", name)+".upstream", "%s is not among the upstreams (%s)",
				quote(upstream), meant(upstream, c.upstreamNames()))
		}
		c.checkKind(name)
	}
}

// checkKind refuses what only the other kind of lane heeds.
func (c *fileConfig) checkKind(name string) {
	kind, others, hint := "request", []string{"idle"}, "take it out, or write kind: stream"
	if c.Lanes[name].isStream() {
		kind, others = "stream", []string{"queue", "queue_timeout", "streaming"}
		hint = "take it out"
	}
	for _, key := range others {
		if path := join("lanes", name) + "." + key; c.source.isSet(path) {
			c.source.wrong(path, "has no effect on a %s lane (%s)", kind, hint)
		}
	}
}

func (l laneConfig) isStream() bool { return l.Kind == "stream" }

// checkSlots holds the request lanes of an upstream to what its targets run at once: a slot beyond it would be a
// request that waits inside the application, where no lane sees it. A stream is not counted: it waits, and runs nothing.
func (c *fileConfig) checkSlots() {
	for _, name := range c.upstreamNames() {
		upstream := c.Upstreams[name]
		if upstream.Concurrency == nil {
			continue
		}
		slots, lanes := c.slotsOf(name)
		targets, each := len(upstream.Targets), *upstream.Concurrency
		if slots > targets*each {
			c.source.wrong(join("upstreams", name)+".concurrency",
				"\"%d\" is too low: %s have %d slots, more than %d targets x %d = %d (lower slots, or raise concurrency to what one target runs at once)",
				each, strings.Join(lanes, " + "), slots, targets, each, targets*each)
		}
	}
}

// slotsOf is how many requests the lanes of an upstream run at once in all, and those lanes with their slots. Stream
// lanes are not among them.
func (c *fileConfig) slotsOf(upstream string) (slots int, lanes []string) {
	for _, name := range c.laneNames() {
		if lane := c.Lanes[name]; lane.Upstream == upstream && !lane.isStream() {
			slots += lane.Slots
			lanes = append(lanes, fmt.Sprintf("lanes.%s (%d)", name, lane.Slots))
		}
	}
	return slots, lanes
}

func (c *fileConfig) checkHealthPaths() {
	for _, own := range []struct{ key, path string }{{"path", c.Health.Path}, {"ready_path", c.Health.ReadyPath}} {
		if own.path != "" && (!strings.HasPrefix(own.path, "/") || strings.ContainsFunc(own.path, notInTarget) || strings.ContainsAny(own.path, "?%")) {
			c.source.wrong("health."+own.key, `%s is not a path (write one as /health, or "" to leave it out)`, quote(own.path))
		}
	}
	if c.Health.Path != "" && c.Health.Path == c.Health.ReadyPath {
		path := "health.ready_path"
		if !c.source.isSet(path) {
			path = "health.path"
		}
		c.source.wrong(path, "%s is health.path and health.ready_path at once (give each its own)", quote(c.Health.Path))
	}
}

func (c *fileConfig) checkDrain() {
	if c.Drain.Delay < c.Drain.Bound {
		return
	}
	path, value := "drain.delay", c.Drain.Delay
	if !c.source.isSet(path) {
		path, value = "drain.bound", c.Drain.Bound
	}
	c.source.wrong(path, "%q leaves no time to finish requests: delay %s is not below bound %s (lower delay or raise bound)",
		value, c.Drain.Delay, c.Drain.Bound)
}

// warn tells what nothing uses, and targets that are bounded in two places or get no slot.
func (c *fileConfig) warn() {
	for _, name := range c.laneNames() {
		used := slices.ContainsFunc(c.Routes, func(r routeConfig) bool { return r.Lane != nil && *r.Lane == name })
		if !used {
			c.oddKey(join("lanes", name), "lane %s is used by no route (route to it or take it out)", name)
		}
	}
	owner := map[endpoint]string{}
	for _, name := range c.upstreamNames() {
		slots, lanes := 0, 0
		for _, lane := range c.Lanes {
			if lane.Upstream == name {
				slots, lanes = slots+lane.Slots, lanes+1
			}
		}
		targets := c.Upstreams[name].Targets
		switch {
		case lanes == 0:
			c.oddKey(join("upstreams", name), "upstream %s is used by no lane (give it a lane or take it out)", name)
		case slots < len(targets):
			c.oddKey(join("upstreams", name), "upstream %s has %d targets and %d slots, so some targets get no request (raise slots)",
				name, len(targets), slots)
		}
		for _, target := range targets {
			e, _ := parseTarget(target)
			if other, shared := owner[e]; shared && other != name {
				c.oddKey(join("upstreams", name), "upstream %s has the target %s of upstream %s too, and neither counts the other's requests (let its lanes use one upstream)",
					name, target, other)
			}
			owner[e] = name
		}
	}
}

func (c *fileConfig) oddKey(path, format string, args ...any) {
	c.warnings = append(c.warnings, c.source.sentence(c.source.keys[path], fmt.Sprintf(format, args...)))
}
