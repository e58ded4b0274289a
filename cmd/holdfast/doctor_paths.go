package main

import (
	"slices"
	"strings"

	"holdfast/proxy"
)

// Paths that Holdfast keeps for itself, and what of the app's they hide.

// covers reports whether a pattern matches a path, whatever the method and
// host, and how specific it is there: of two ranks of one path the greater.
func covers(p proxy.Pattern, path string) (rank string, ok bool) {
	segments, asked := strings.Split(p.Path[1:], "/"), strings.Split(path[1:], "/")
	for i, segment := range segments {
		last := i == len(segments)-1
		switch {
		case last && (segment == "" || strings.HasSuffix(segment, "...}")):
			return rank + "0", i < len(asked)
		case i >= len(asked):
			return "", false
		case segment == "{$}":
			if asked[i] != "" {
				return "", false
			}
			rank += "2"
		case strings.HasPrefix(segment, "{"):
			if asked[i] == "" {
				return "", false
			}
			rank += "1"
		case segment != asked[i]:
			return "", false
		default:
			rank += "2"
		}
	}
	return rank, len(segments) == len(asked)
}

// routeOf is the most specific route of those that match a path and that which
// takes; -1: none. exact: its pattern is that path.
func (c *fileConfig) routeOf(path string, which func(proxy.Pattern) bool) (route int, exact bool) {
	route, most := -1, ""
	for i, r := range c.Routes {
		p, err := parseMatch(r.Match)
		if err != nil || !which(p) {
			continue
		}
		if rank, ok := covers(p, path); ok && (route < 0 || rank > most) {
			route, most, exact = i, rank, p.Path == path
		}
	}
	return route, exact
}

// forGET are the patterns that take a GET of any host: those that keep
// Holdfast's own answers from their paths.
func forGET(p proxy.Pattern) bool { return p.Host == "" && (p.Method == "" || p.Method == "GET") }

func (r routeConfig) isStream(c *fileConfig) bool {
	return r.Lane != nil && c.Lanes[*r.Lane].isStream()
}

// ownPaths says who answers under health.path and health.ready_path. Whether
// the app has a view there is not asked: each target is asked once.
func (e *examination) ownPaths(config *fileConfig) {
	for _, own := range []struct{ key, path string }{{"health.path", config.Health.Path}, {"health.ready_path", config.Health.ReadyPath}} {
		if own.path == "" {
			continue
		}
		check := own.key + " " + own.path
		i, exact := config.routeOf(own.path, forGET)
		switch {
		case i >= 0 && exact && config.Routes[i].Lane != nil:
			e.warn(check, "give "+own.key+" another path, or \"\" if the app is to answer",
				"is answered by the app, because %s is exactly it: a probe there waits in lane %s, and fails when that is full", item("routes", i), *config.Routes[i].Lane)
		case i >= 0 && exact:
			e.ok(check, "is answered by %s, which is exactly it, and not by Holdfast", item("routes", i))
		case i >= 0 && config.Routes[i].Lane != nil && config.Routes[i].Match != "/":
			e.warn(check, "give "+own.key+" a path of its own, or a route exactly that path if the app is to answer",
				"lies under %s %s, and Holdfast answers it: if the app has a view there, nobody reaches it", item("routes", i), quote(config.Routes[i].Match))
		case i >= 0 && config.Routes[i].Lane != nil:
			e.ok(check, "is answered by Holdfast, also where the app has a view of that path: that would need a route exactly it")
		default:
			e.ok(check, "is answered by Holdfast")
		}
	}
}

// messagePaths says what the guarded paths hide: to clients they are 404.
func (e *examination) messagePaths(config *fileConfig) {
	paths := config.messagePaths()
	slices.Sort(paths)
	for _, path := range slices.Compact(paths) {
		check := "message_path " + path
		i, exact := config.routeOf(path, func(p proxy.Pattern) bool { return p.Method == "" || p.Method == "POST" })
		switch {
		case i < 0:
			e.ok(check, "is asked by Holdfast alone, on the lane that approved the socket; no route has it, so that messages have nowhere to go if a reload takes that lane out")
		case config.Routes[i].isStream(config):
			e.warn(check, "give the messages another message_path",
				"lies under %s %s, whose lane is of streams: a socket or view that the app has there is 404 to clients", item("routes", i), quote(config.Routes[i].Match))
		case config.Routes[i].Lane == nil:
			e.warn(check, "give the messages another message_path, or a lane's route",
				"lies under %s %s, which no client reaches there, and which takes no messages", item("routes", i), quote(config.Routes[i].Match))
		case exact:
			e.ok(check, "is asked by Holdfast alone: to clients it is 404, although %s is exactly it", item("routes", i))
		default:
			e.ok(check, "is asked by Holdfast alone: to clients it is 404, also where the app has a view for them")
		}
	}
}
