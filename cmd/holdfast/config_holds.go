package main

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

var (
	schemeText = regexp.MustCompile(`^[a-z][a-z0-9+.-]*$`)
	// impliedPorts are left out by whoever writes an Origin.
	impliedPorts = map[string]string{"http": ":80", "https": ":443"}
)

func (c *fileConfig) checkHolds() {
	first := map[string]bool{}
	for i, dialect := range c.Holds.Dialects {
		if first[dialect] {
			c.source.wrong(item("holds.dialects", i), "%s is listed twice (take one out)", quote(dialect))
		}
		first[dialect] = true
	}
	if len(c.Holds.Origins) == 0 {
		c.source.wrong("holds.origins", "is an empty list (write same-host, any, or origins as https://example.com)")
	}
	for i, origin := range c.Holds.Origins {
		path := item("holds.origins", i)
		if !c.source.isSet(path) {
			path = "holds.origins"
		}
		if err := checkOrigin(origin, len(c.Holds.Origins) == 1); err != nil {
			c.source.wrong(path, "%s %v", quote(origin), err)
		}
	}
}

// checkOrigin takes an origin as a browser sends it, since it is compared with one; alone, also the words for two sets
// of them. The error goes on where the sentence's quoted text ends.
func checkOrigin(text string, alone bool) error {
	words := []string{"same-host", "any"}
	scheme, host, hasScheme := strings.Cut(text, "://")
	switch {
	case slices.Contains(words, text) && alone:
		return nil
	case slices.Contains(words, text):
		return fmt.Errorf("stands among others (write origins: %s alone, or a list of origins)", text)
	case text == "null":
		return errors.New("is no origin that can be let in: every sandboxed page has it (take it out)")
	case !hasScheme:
		hint := "write same-host, any, or an origin as https://example.com"
		if near := nearest(text, words); near != "" {
			hint += "; nearest: " + quote(near)
		}
		return fmt.Errorf("is not an origin (%s)", hint)
	}
	if strings.Contains(host, "@") { // before anything of it is quoted: it ends a password
		return errors.New("has a user name, which no origin has (write it as https://example.com)")
	}
	if end := strings.IndexAny(host, "/?#"); end >= 0 {
		return fmt.Errorf("has a path, which no origin has (write %s://%s)", scheme, host[:end])
	}
	if low := strings.ToLower(text); low != text {
		return fmt.Errorf("is not as browsers send it (write %s)", low)
	}
	if port := impliedPorts[scheme]; port != "" && strings.HasSuffix(host, port) {
		return fmt.Errorf("has the port that %s implies, which browsers leave out (write %s)", scheme, strings.TrimSuffix(text, port))
	}
	if !schemeText.MatchString(scheme) || !validHost(host) {
		return errors.New("is not an origin (write its scheme, host and port alone, as https://example.com:8443)")
	}
	return nil
}

// checkMessagePaths wants paths that have one spelling: the network must not reach them by another.
func (c *fileConfig) checkMessagePaths() {
	c.checkMessagePath("holds.message_path", c.Holds.MessagePath)
	for i, route := range c.Routes {
		if route.MessagePath != "" {
			c.checkMessagePath(item("routes", i)+".message_path", route.MessagePath)
		}
	}
}

func (c *fileConfig) checkMessagePath(at, text string) {
	clean := path.Clean(text)
	if len(clean) > 1 && strings.HasSuffix(text, "/") {
		clean += "/"
	}
	outside := func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`?#%\<>`, r) }
	switch {
	case !strings.HasPrefix(text, "/"), strings.ContainsFunc(text, outside):
		c.source.wrong(at, "%s is not a path in plain ASCII (write one as /ws/message)", quote(text))
	case text == "/":
		c.source.wrong(at, `"/" would shut every client out of the front page (write one as /ws/message)`)
	case clean != text:
		c.source.wrong(at, "%s has more than one spelling (write %s)", quote(text), clean)
	case text == c.Health.Path, text == c.Health.ReadyPath:
		c.source.wrong(at, "%s is one of the paths under health too, which clients could then not ask (give each its own)", quote(text))
	}
}

func (c *fileConfig) checkGrip() {
	if c.Grip.Iss == "" || strings.ContainsFunc(c.Grip.Iss, isControl) {
		c.source.wrong("grip.iss", "%s is not an issuer (write a name, as holdfast)", quote(c.Grip.Iss))
	}
	key, err := keySecret(c.Grip.Key)
	switch {
	case c.Grip.Key == "":
	case strings.HasPrefix(c.Grip.Key, "-----BEGIN "):
		c.source.wrong("grip.key", "%s is a key in PEM, and Grip-Sig is signed with a secret that the app has too (write that, as text or base64:...)", hidden)
	case strings.ContainsFunc(c.Grip.Key, isControl):
		c.source.wrong("grip.key", "%s has a control character (take it out)", hidden)
	case err != nil:
		c.source.wrong("grip.key", "%s is not base64 behind base64: (write what base64 makes of the secret, or the secret as text)", hidden)
	case len(key) == 0:
		c.source.wrong("grip.key", "%s has nothing behind base64: (write the secret, or leave the key out)", hidden)
	}
}

func (c *fileConfig) checkSpool() {
	if strings.ContainsFunc(c.Limits.Spool.Dir, isControl) {
		c.source.wrong("limits.spool.dir", "%s has a control character (take it out)", quote(c.Limits.Spool.Dir))
	}
}
