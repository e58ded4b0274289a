package main

import (
	"strings"
	"time"
)

// certificates says of each listener with TLS how long its certificate is good for.
func (e *examination) certificates(config *fileConfig) {
	now := time.Now()
	for _, a := range config.securedAddresses() {
		check := a.path + ".tls.cert " + a.TLS.Cert
		p, _, wrong := a.TLS.read()
		if wrong != nil { // it was right when the configuration was loaded
			e.fail(exitConfig, check, "correct the file", "%v", wrong)
			continue
		}
		leaf := p.certificate.Leaf
		rest, renew := left(leaf, now), "renew it: Holdfast reads the files again by itself"
		switch {
		case rest < 0:
			e.fail(exitOK, check, renew, "%s: clients refuse it", leftWord(leaf, now))
		case now.Before(leaf.NotBefore):
			e.warn(check, "correct the clock, or wait", "is not good before %s UTC", leaf.NotBefore.UTC().Format("2006-01-02 15:04"))
		case rest < soon:
			e.warn(check, renew, "%s", leftWord(leaf, now))
		default:
			e.ok(check, "%s, for %s", leftWord(leaf, now), hostsOf(leaf.DNSNames, len(leaf.IPAddresses)))
		}
		e.with(numbers{"days": float64(int(rest.Hours() / 24))})
	}
}

// hostsOf words whom a certificate is for.
func hostsOf(names []string, addresses int) string {
	switch {
	case len(names) > 0:
		return strings.Join(names, ", ")
	case addresses > 0:
		return "addresses alone"
	}
	return "no name, so that clients refuse it"
}
