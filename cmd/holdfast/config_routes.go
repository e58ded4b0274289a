package main

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"holdfast/proxy"
)

var (
	methodText = regexp.MustCompile(`^[A-Z]+ *$`)
	tokenText  = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")
	// escapeText is a percent escape, which a pattern means as the character that it stands for.
	escapeText = regexp.MustCompile(`(?:%[0-9A-Fa-f]{2})+`)

	// messageHeaders say how a message is framed or what its connection does: Holdfast writes them.
	messageHeaders = []string{"connection", "content-length", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"}
	// fileHeaders say what is known of a file, and how its type is to be taken: Holdfast writes them too.
	fileHeaders = []string{"accept-ranges", "content-range", "date", "etag", "last-modified", "x-content-type-options"}
	bodyless    = []int{204, 205, 304}
)

func (c *fileConfig) checkRoutes() {
	if len(c.Routes) == 0 {
		c.source.wrong("routes", "is an empty list (write at least one, as {match: /, lane: web})")
	}
	first := map[string]int{}
	for i, route := range c.Routes {
		path := item("routes", i)
		c.checkAction(path, route)
		p, err := parseMatch(route.Match)
		if err != nil {
			c.source.wrong(path+".match", "%s %v", quote(route.Match), err)
			continue
		}
		keys := []string{samePattern(p)}
		if route.Lane == nil && p.Method == "" { // then it is for GET
			p.Method = "GET"
			keys = append(keys, samePattern(p))
		}
		for _, key := range keys {
			if earlier, twice := first[key]; twice {
				c.wrongTwice(i, earlier)
				break
			}
		}
		for _, key := range keys {
			first[key] = i
		}
		c.checkLocalMatch(path, route, p)
	}
}

func (c *fileConfig) wrongTwice(route, earlier int) {
	match, other := c.Routes[route].Match, c.Routes[earlier].Match
	as := ""
	if other != match {
		as = " as " + quote(other)
	}
	at := item("routes", earlier)
	c.source.wrong(item("routes", route)+".match", "%s is matched twice, first by %s on line %d%s (take one out)", quote(match),
		at, c.source.place(at+".match").line, as)
}

// checkLocalMatch refuses patterns under which a route never has anything to answer.
func (c *fileConfig) checkLocalMatch(path string, route routeConfig, p proxy.Pattern) {
	kind := "files"
	if route.Grant != nil {
		kind = "grant"
	} else if route.Files == nil {
		return
	}
	if p.Method != "" && p.Method != "GET" && p.Method != "HEAD" {
		c.source.wrong(path+".match", "%s is for %s, and a %s route answers GET and HEAD alone (leave the method out)",
			quote(route.Match), p.Method, kind)
	}
	if route.Files != nil && strings.HasSuffix(p.Path, "/{$}") {
		c.source.wrong(path+".match", "%s stands for a directory, and a files route has no page for one (write %s)",
			quote(route.Match), quote(strings.TrimSuffix(route.Match, "{$}")))
	}
	if route.Grant != nil && !strings.HasSuffix(p.Path, "/") {
		c.source.wrong(path+".match", "%s has nothing below it, where a grant's stream and ws are (write %s)",
			quote(route.Match), quote(route.Match+"/"))
	}
}

func (c *fileConfig) checkAction(path string, route routeConfig) {
	var actions []string
	for _, action := range []struct {
		key   string
		given bool
	}{{"lane", route.Lane != nil}, {"files", route.Files != nil}, {"respond", route.Respond != nil}, {"grant", route.Grant != nil}} {
		if action.given {
			actions = append(actions, action.key)
		}
	}
	switch last := len(actions) - 1; {
	case last < 0:
		c.source.wrong(path, "matches %s and does nothing (write lane: NAME, or one of files, respond and grant)", quote(route.Match))
		return
	case last == 1:
		c.source.wrong(path, "matches %s with both %s and %s (a route does one thing: take one out)", quote(route.Match), actions[0], actions[1])
		return
	case last > 1:
		c.source.wrong(path, "matches %s with %s and %s (a route does one thing: keep one)", quote(route.Match),
			strings.Join(actions[:last], ", "), actions[last])
		return
	}
	if route.Lane != nil {
		if _, defined := c.Lanes[*route.Lane]; !defined {
			c.source.wrong(path+".lane", "%s is not among the lanes (%s)", quote(*route.Lane), meant(*route.Lane, c.laneNames()))
		}
		c.checkOverHTTP(path+".over_http", route)
		return
	}
	c.checkLocal(path, route)
}

// checkOverHTTP is for a route with a lane: only a WebSocket that GRIP holds can be spoken as HTTP to the application.
func (c *fileConfig) checkOverHTTP(path string, route routeConfig) {
	switch {
	case route.OverHTTP == nil:
	case c.Lanes[*route.Lane].isStream():
		c.source.wrong(path, "\"%v\" has no effect on a stream lane, where WebSockets go through as they are (take it out)", *route.OverHTTP)
	case !slices.Contains(c.Holds.Dialects, "grip"):
		c.source.wrong(path, "\"%v\" has no effect without grip among holds.dialects (take it out, or add grip there)", *route.OverHTTP)
	}
}

// fillOverHTTP gives the routes that say nothing what holds for them: with GRIP alone there is no other way to hold a
// WebSocket. What is filled in is what doctor shows.
func (c *fileConfig) fillOverHTTP() {
	if !slices.Equal(c.Holds.Dialects, []string{"grip"}) {
		return
	}
	for i := range c.Routes {
		route := &c.Routes[i]
		if route.OverHTTP == nil && route.Lane != nil && !c.Lanes[*route.Lane].isStream() {
			overHTTP := true
			route.OverHTTP = &overHTTP
		}
	}
}

// checkLocal is for a route that Holdfast answers: it takes no body, and has no view whose messages go somewhere.
func (c *fileConfig) checkLocal(path string, route routeConfig) {
	if route.BodyBytes != nil {
		c.source.wrong(path+".body_bytes", "%q has no effect on a route that responds by itself (take it out)", route.BodyBytes)
	}
	if c.source.isSet(path + ".message_path") {
		c.source.wrong(path+".message_path", "%s has no effect on a route that responds by itself (take it out)", quote(route.MessagePath))
	}
	if route.OverHTTP != nil {
		c.source.wrong(path+".over_http", "\"%v\" has no effect on a route that responds by itself (take it out)", *route.OverHTTP)
	}
	switch {
	case route.Files != nil:
		c.checkFiles(path+".files", route.Files)
	case route.Grant != nil:
		c.checkGrant(path+".grant", route.Grant)
	default:
		c.checkRespond(path+".respond", route.Respond)
	}
}

func (c *fileConfig) checkFiles(path string, files *filesConfig) {
	if files.Dir == "" || strings.ContainsFunc(files.Dir, isControl) {
		c.source.wrong(path+".dir", "%s is not a directory's path (write /srv/static)", quote(files.Dir))
	}
	if problem := notHeaderValue(files.CacheControl); problem != "" {
		c.source.wrong(path+".cache_control", "%s %s", quote(files.CacheControl), problem)
	}
	c.checkHeaders(path+".headers", files.Headers, fileHeaders...)
	set := c.source.isSet(path + ".cache_control")
	if set && files.Internal {
		c.source.wrong(path+".cache_control", "%s has no effect with internal: true, where the application's answer says it (take it out)",
			quote(files.CacheControl))
	}
	for _, name := range c.source.order[path+".headers"] {
		if set && strings.EqualFold(name, "cache-control") {
			c.source.wrongAt(c.source.keys[join(path+".headers", name)], "header %s in %s is what cache_control says (take one out)",
				quote(name), path+".headers")
		}
	}
}

// checkGrant needs the key now: without it every grant would be refused, and nobody would know why.
func (c *fileConfig) checkGrant(path string, grant *grantConfig) {
	switch value, set := c.source.env(grant.KeyEnv); {
	case !variableName.MatchString(grant.KeyEnv):
		// What is no name may be the key itself.
		c.source.wrong(path+".key_env", "is not the name of a variable (write GRANT_KEY, and set GRANT_KEY to the key)")
	case !set:
		c.source.wrong(path+".key_env", "%s is a variable that is not set (set it to the key that signs grants)", quote(grant.KeyEnv))
	case value == "":
		c.source.wrong(path+".key_env", "%s is a variable that is empty (set it to the key that signs grants)", quote(grant.KeyEnv))
	}
	if !tokenText.MatchString(grant.Cookie) {
		c.source.wrong(path+".cookie", "%s is not the name of a cookie (write sessionid)", quote(grant.Cookie))
	}
}

func (c *fileConfig) checkRespond(path string, respond *respondConfig) {
	if respond.Body != "" && slices.Contains(bodyless, respond.Status) {
		c.source.wrong(path+".body", "%s cannot be sent: an answer %d has no body (take it out, or write status: 200)",
			quote(respond.Body), respond.Status)
	}
	c.checkHeaders(path+".headers", respond.Headers)
}

// checkHeaders refuses what cannot be a header of an answer, and those that Holdfast writes itself: every answer's, and own.
func (c *fileConfig) checkHeaders(headers string, values map[string]string, own ...string) {
	first := map[string]string{}
	for _, name := range c.source.order[headers] {
		at, low := c.source.keys[join(headers, name)], strings.ToLower(name)
		switch {
		case !tokenText.MatchString(name):
			c.source.wrongAt(at, "header name %s in %s has characters that no header name has (write it as X-Name)", quote(name), headers)
		case slices.Contains(messageHeaders, low), slices.Contains(own, low):
			c.source.wrongAt(at, "header %s in %s is written by Holdfast itself (take it out)", quote(name), headers)
		case first[low] != "":
			c.source.wrongAt(at, "header %s in %s is the same header as %s (write it once)", quote(name), headers, quote(first[low]))
		}
		first[low] = name
		if problem := notHeaderValue(values[name]); problem != "" {
			c.source.wrong(join(headers, name), "%s %s", quote(values[name]), problem)
		}
	}
}

func notHeaderValue(value string) string {
	if strings.ContainsFunc(value, func(r rune) bool { return isControl(r) && r != '\t' }) || strings.Trim(value, " \t") != value {
		return "is not a header value (write one line without spaces around it)"
	}
	return ""
}

// parseMatch reads a route's pattern and refuses, besides what is none, what would match nothing or not what it seems
// to. It is compared with the decoded path, so that it is written decoded. The error goes on where the sentence's
// quoted pattern ends.
func parseMatch(pattern string) (p proxy.Pattern, err error) {
	switch {
	case pattern == "":
		return p, errors.New("is empty where a path is needed (write / for every path)")
	case strings.ContainsFunc(pattern, isControl):
		return p, errors.New("has a control character (take it out)")
	case strings.ContainsAny(pattern, "?#"):
		return p, errors.New("has a query or a fragment (a route matches the path alone: take it out)")
	case escapeText.MatchString(pattern):
		escape := escapeText.FindString(pattern)
		plain, _ := url.PathUnescape(escape)
		return p, fmt.Errorf("has the escape %s (a route matches the decoded path: write %s)", escape, quote(plain))
	case strings.HasSuffix(pattern, "*"):
		return p, fmt.Errorf("ends in a *, which stands for nothing (everything under a path is written with a / at the end: %s)",
			strings.TrimRight(pattern, "*"))
	}
	if methodText.MatchString(pattern) {
		return p, fmt.Errorf("is a method without a path (write %s /)", strings.TrimSpace(pattern))
	}
	if p, err = proxy.ParsePattern(pattern); err != nil {
		return p, err
	}
	if p.Method == "CONNECT" || p.Method == "TRACE" {
		return p, fmt.Errorf("is for %s, which is always refused (take the route out)", p.Method)
	}
	return p, nil
}

// samePattern is the same for two patterns that match the same requests: what a wildcard is called makes no difference,
// and {name...} at the end is what a / there is.
func samePattern(p proxy.Pattern) string {
	segments := strings.Split(p.Path, "/")
	last := len(segments) - 1
	for i, segment := range segments {
		switch {
		case segment == "{$}":
			segments[i] = "{$}"
		case i == last && (segment == "" || strings.HasSuffix(segment, "...}")):
			segments[i] = ""
		case strings.HasPrefix(segment, "{"):
			segments[i] = "{}"
		}
	}
	return p.Method + " " + p.Host + strings.Join(segments, "/")
}
