package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

var (
	methodText = regexp.MustCompile(`^[A-Z]+[ \t]+\S`)
	tokenText  = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")

	// messageHeaders say how a message is framed or what its connection does: Holdfast writes them.
	messageHeaders = []string{"connection", "content-length", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"}
	bodyless       = []int{204, 205, 304}
)

func (c *fileConfig) checkRoutes() {
	if len(c.Routes) == 0 {
		c.source.wrong("routes", "is an empty list (write at least one, as {match: /, lane: web})")
	}
	first := map[string]int{}
	for i, route := range c.Routes {
		path := item("routes", i)
		if err := checkPattern(route.Match); err != nil {
			c.source.wrong(path+".match", "%s %v", quote(route.Match), err)
		} else if earlier, twice := first[route.Match]; twice {
			c.source.wrong(path+".match", "%s is matched twice, first by %s on line %d (take one out)", quote(route.Match),
				item("routes", earlier), c.source.place(item("routes", earlier)+".match").line)
		} else {
			first[route.Match] = i
		}
		c.checkAction(path, route)
	}
}

func (c *fileConfig) checkAction(path string, route routeConfig) {
	switch {
	case route.Lane != nil && route.Respond != nil:
		c.source.wrong(path, "matches %s with both lane and respond (a route does one thing: take one out)", quote(route.Match))
	case route.Lane == nil && route.Respond == nil:
		c.source.wrong(path, "matches %s and does nothing (write lane: NAME or respond: {status: 200})", quote(route.Match))
	case route.Lane != nil:
		if _, defined := c.Lanes[*route.Lane]; !defined {
			c.source.wrong(path+".lane", "%s is not among the lanes (%s)", quote(*route.Lane), meant(*route.Lane, c.laneNames()))
		}
	default:
		c.checkRespond(path, route)
	}
}

func (c *fileConfig) checkRespond(path string, route routeConfig) {
	if route.BodyBytes != nil {
		c.source.wrong(path+".body_bytes", "%q has no effect on a route that responds by itself (take it out)", route.BodyBytes)
	}
	respond := route.Respond
	if respond.Body != "" && slices.Contains(bodyless, respond.Status) {
		c.source.wrong(path+".respond.body", "%s cannot be sent: an answer %d has no body (take it out, or write status: 200)",
			quote(respond.Body), respond.Status)
	}
	headers := path + ".respond.headers"
	first := map[string]string{}
	for _, name := range c.source.order[headers] {
		at, low := c.source.keys[join(headers, name)], strings.ToLower(name)
		switch {
		case !tokenText.MatchString(name):
			c.source.wrongAt(at, "header name %s in %s has characters that no header name has (write it as X-Name)", quote(name), headers)
		case slices.Contains(messageHeaders, low):
			c.source.wrongAt(at, "header %s in %s is written by Holdfast itself (take it out)", quote(name), headers)
		case first[low] != "":
			c.source.wrongAt(at, "header %s in %s is the same header as %s (write it once)", quote(name), headers, quote(first[low]))
		}
		first[low] = name
		value := respond.Headers[name]
		if strings.ContainsFunc(value, func(r rune) bool { return isControl(r) && r != '\t' }) || strings.Trim(value, " \t") != value {
			c.source.wrong(join(headers, name), "%s is not a header value (write one line without spaces around it)", quote(value))
		}
	}
}

// checkPattern takes an absolute path: itself alone, or with a / at its end everything under it. It is compared with
// the decoded path, so that it is written decoded. The error goes on where the sentence's quoted pattern ends.
func checkPattern(pattern string) error {
	const later = "not supported by this version"
	switch {
	case pattern == "":
		return errors.New("is empty where a path is needed (write / for every path)")
	case methodText.MatchString(pattern):
		return fmt.Errorf("begins with a method, which is %s (write the path alone)", later)
	case strings.ContainsAny(pattern, "{}"):
		return fmt.Errorf("has a wildcard, which is %s (write a path, or a subtree as /files/)", later)
	case !strings.HasPrefix(pattern, "/"):
		return fmt.Errorf("does not begin with a / (write a path as %s; a host is %s)", "/"+pattern, later)
	case strings.ContainsFunc(pattern, isControl):
		return errors.New("has a control character (take it out)")
	case strings.ContainsAny(pattern, "?#"):
		return errors.New("has a query or a fragment (a route matches the path alone: take it out)")
	case strings.Contains(pattern, "%"):
		return fmt.Errorf("has a percent sign, which is %s (a route matches the decoded path: write the character itself)", later)
	case strings.HasSuffix(pattern, "*"):
		return fmt.Errorf("ends in a *, which stands for nothing (everything under a path is written with a / at the end: %s)",
			strings.TrimRight(pattern, "*"))
	}
	return nil
}
