package main

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// listener is an address of the configuration that is to be bound.
type listener struct {
	path string
	text string
	endpoint
}

// checkListeners holds every address that is bound to its form, to what may reach it, and to a port of its own.
func (c *fileConfig) checkListeners() {
	if len(c.Listen) == 0 {
		c.source.wrong("listen", "is an empty list (write at least one address, as :8080)")
	}
	var bound []listener
	for i, address := range c.Listen {
		bound = c.checkAddress(bound, c.listenPath(i), address.Address)
		c.checkTLSFiles(c.listenPath(i), address.TLS)
	}
	for _, own := range []struct {
		section string
		keyedListener
	}{{"publish", c.Publish}, {"admin", c.Admin}} {
		c.checkKeys(own.section, own.keyedListener)
		path := own.section + ".listen"
		if own.Listen.Address == "" {
			if own.Listen.TLS != nil {
				c.source.wrong(path+".tls", "has no effect where the address is \"\" (take it out, or give an address)")
			}
			continue
		}
		before := len(bound)
		bound = c.checkAddress(bound, path, own.Listen.Address)
		c.checkTLSFiles(path, own.Listen.TLS)
		// Admin may be open: what it shows may be scraped from elsewhere, and
		// what it does it does for this machine, or for a key.
		if own.section == "publish" && len(bound) > before && len(own.Keys) == 0 && !bound[before].isLocal() && !own.Listen.asksClients() {
			c.source.wrong(c.addressPath(path), "%s can be reached from other machines and needs no key (write 127.0.0.1:PORT or unix:/path, give publish.keys one, or have it ask for certificates with tls.client_ca)",
				quote(own.Listen.Address))
		}
	}
}

// checkAddress adds an address to those that are bound, unless it is none.
func (c *fileConfig) checkAddress(bound []listener, path, text string) []listener {
	path = c.addressPath(path)
	e, err := parseListen(text)
	if err != nil {
		c.source.wrong(path, "%s %v", quote(text), err)
		return bound
	}
	now := listener{path, text, e}
	for _, earlier := range bound {
		if now.overlaps(earlier.endpoint) {
			c.wrongOverlap(now, earlier)
			break
		}
	}
	return append(bound, now)
}

func (c *fileConfig) wrongOverlap(l, earlier listener) {
	if l.network == earlier.network && l.address == earlier.address && isListen(l.path) && isListen(earlier.path) {
		c.source.wrong(l.path, "%s is listed twice (take one out)", quote(l.text))
		return
	}
	if _, flag := c.source.flags[earlier.path]; flag || !c.source.isSet(l.path) {
		l, earlier = earlier, l // the fault is in what was written, not in a default
	}
	c.source.wrong(l.path, "%s is taken by %s %s (give each an address of its own)", quote(l.text), c.source.subject(earlier.path), quote(earlier.text))
}

func isListen(path string) bool { return strings.HasPrefix(path, "listen") }

// listenPath is where an address stands: listen is one value or a list of them.
func (c *fileConfig) listenPath(i int) string {
	path := item("listen", i)
	if _, flag := c.source.flags[path]; flag || c.source.isSet(path) {
		return path
	}
	return "listen"
}

// checkKeys wants keys as an Authorization header carries them. An empty one, as from a variable that was meant to
// hold it, would open the door to everybody.
func (c *fileConfig) checkKeys(section string, own keyedListener) {
	for i, key := range own.Keys {
		path := item(section+".keys", i)
		switch {
		case key == "":
			c.source.wrong(path, "is empty where a key is needed (write one, or take it out)")
		case strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }):
			c.source.wrong(path, "%s has characters that no header carries (write visible ASCII without spaces)", hidden)
		}
	}
	if own.Listen.Address == "" && len(own.Keys) > 0 {
		c.source.wrong(section+".keys", "has no effect where %s.listen is \"\" (take it out, or give an address)", section)
	}
}

func (c *fileConfig) checkTrustedProxies() {
	for i, text := range c.TrustedProxies {
		if err := checkProxy(text); err != nil {
			c.source.wrong(item("trusted_proxies", i), "%s %v", quote(text), err)
		}
	}
}

// checkProxy takes a network, an address or the word unix. The error goes on where the sentence's quoted text ends.
func checkProxy(text string) error {
	if text == "unix" {
		return nil
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		address, err := netip.ParseAddr(text)
		if err != nil {
			hint := ""
			if near := nearest(text, []string{"unix"}); near != "" {
				hint = "; nearest: " + quote(near)
			}
			return fmt.Errorf("is neither a network nor an address (write 10.0.0.0/8, 10.1.2.3 or unix%s)", hint)
		}
		if address.Zone() != "" {
			return fmt.Errorf("has a zone, which no client's address is compared by (write %s)", address.WithZone(""))
		}
		if address.Is4In6() {
			return fmt.Errorf("is an IPv4 address written as one of IPv6 (write %s)", address.Unmap())
		}
		return nil
	}
	if prefix.Addr().Is4In6() {
		return errors.New("is an IPv4 network written as one of IPv6 (write it as 10.0.0.0/8)")
	}
	// Which of the two was meant is the difference between one proxy and a whole network.
	if prefix != prefix.Masked() {
		return fmt.Errorf("has bits set beyond its first %d (write %s for the network, %s for the one address)",
			prefix.Bits(), prefix.Masked(), prefix.Addr())
	}
	return nil
}
