package main

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"holdfast/proxy"
)

// access decides who may ask one of Holdfast's own listeners.
type access struct {
	keys  [][sha256.Size]byte
	hosts map[string]bool // that may stand in Host, besides IP literals and localhost
	own   *certificates   // whose names may, too; nil: there is no TLS
}

func newAccess(keys []string, own *certificates, listen ...string) *access {
	a := &access{hosts: map[string]bool{"localhost": true}, own: own}
	for _, key := range keys {
		a.keys = append(a.keys, sha256.Sum256([]byte(key)))
	}
	for _, address := range listen {
		if host, _, err := net.SplitHostPort(address); err == nil && host != "" {
			a.hosts[strings.ToLower(host)] = true
		}
	}
	return a
}

// hasKey compares in constant time, with every key.
func (a *access) hasKey(asked *proxy.Asked) bool {
	given, ok := strings.CutPrefix(asked.Field("authorization"), "Bearer ")
	if !ok {
		return false
	}
	sum := sha256.Sum256([]byte(given))
	found := 0
	for _, key := range a.keys {
		found |= subtle.ConstantTimeCompare(sum[:], key[:])
	}
	return found == 1
}

// browser reports whether a web page may be behind the request: it names an
// origin, or a host that is only a name, which a page's author can point here.
func (a *access) browser(asked *proxy.Asked) bool {
	if asked.Field("origin") != "" {
		return true
	}
	host := asked.Field("host")
	if host == "" {
		return false
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return false
	}
	// A browser that a page's author sends here under another name finds a
	// certificate that is not for it, and asks nothing.
	return !a.hosts[strings.ToLower(host)] && (a.own == nil || !a.own.names(host))
}

// stands reports whether the client is as good as this machine: it is on it, or
// has shown a certificate that the listener asks for.
func stands(asked *proxy.Asked) bool { return asked.Near || asked.Verified }

// guard lets a request through to answer. Loopback and unix peers, and those with
// a verified certificate, may ask everything, others what is not local; whoever
// has a key may ask everything.
func (a *access) guard(local bool, answer func(*proxy.Asked) proxy.Respond) func(*proxy.Asked) proxy.Respond {
	return func(asked *proxy.Asked) proxy.Respond {
		switch {
		case a.hasKey(asked):
		case a.browser(asked):
			return proxy.Refuse("unauthorized", "a request with Origin, or whose Host is a name this listener does not have, needs a key: Authorization: Bearer KEY")
		case local && !stands(asked):
			return proxy.Refuse("unauthorized", "from another machine this needs a key: Authorization: Bearer KEY, one of admin.keys")
		}
		return answer(asked)
	}
}

// guardKeyed is guard where whoever asks needs a key as soon as there is one.
func (a *access) guardKeyed(answer func(*proxy.Asked) proxy.Respond) func(*proxy.Asked) proxy.Respond {
	if len(a.keys) == 0 {
		return a.guard(true, answer)
	}
	return func(asked *proxy.Asked) proxy.Respond {
		if !a.hasKey(asked) {
			return proxy.Refuse("unauthorized", "this needs a key: Authorization: Bearer KEY, one of publish.keys")
		}
		return answer(asked)
	}
}

// guardGrip is for what GRIP's publishers ask. As soon as there is a key, of publish.keys or grip.key, they need one, on
// this machine too: gripKey is the present one, "" for none.
func (a *access) guardGrip(publishKeys []string, gripKey func() string, answer func(*proxy.Asked) proxy.Respond) func(*proxy.Asked) proxy.Respond {
	open := a.guard(true, answer)
	return func(asked *proxy.Asked) proxy.Respond {
		ring := newKeyring(append(slices.Clone(publishKeys), gripKey())...)
		switch {
		case len(ring) == 0:
			return open(asked)
		case !ring.opens(asked.Field("authorization"), time.Now()):
			return proxy.Refuse("unauthorized", "this needs a key, one of publish.keys or grip.key: Authorization: Bearer KEY, or a token that it signed (HS256, with exp)")
		}
		return answer(asked)
	}
}

// newAdmin serves the dashboard, metrics, status, drain and reload.
func (h *holdfast) newAdmin(config *fileConfig) (*proxy.Server, error) {
	a := newAccess(config.Admin.Keys, h.certificatesOf("admin.listen"), config.Admin.Listen.Address)
	routes := []proxy.Route{
		{Match: "GET /{$}", Answer: dashboardAnswer},
		{Match: "GET /feed", Feed: &proxy.Feed{Open: func(asked *proxy.Asked) (string, proxy.Respond) { return h.feed.open(a, asked) }, Opened: h.feed.start}},
		{Match: "GET /metrics", Answer: a.guard(false, h.metricsAnswer)},
		{Match: "GET /status", Answer: a.guard(false, func(*proxy.Asked) proxy.Respond { return jsonAnswer(200, h.health.Status()) })},
		{Match: "GET /health", Answer: a.guard(false, func(*proxy.Asked) proxy.Respond { return jsonAnswer(200, h.health.Body(true)) })},
		{Match: "GET /ready", Answer: a.guard(false, h.readyAnswer)},
		{Match: "POST /drain", Answer: a.guard(true, h.drainAnswer)},
		{Match: "POST /reload", Answer: a.guard(true, h.reloadAnswer)},
		{Match: "GET /debug/pprof/", Answer: a.guard(true, profileAnswer)},
	}
	return proxy.New(proxy.Config{Holds: h.feed.holds}, routes, h.log, nil)
}

func (h *holdfast) metricsAnswer(*proxy.Asked) proxy.Respond {
	contentType, body, err := h.health.Metrics()
	if err != nil {
		panic(err)
	}
	return proxy.Respond{Status: 200, Body: body, Fields: []string{"Content-Type", contentType}}
}

func (h *holdfast) drainAnswer(*proxy.Asked) proxy.Respond {
	select {
	case h.drainNow <- struct{}{}:
	default: // asked before
	}
	return jsonAnswer(202, []byte(`{"state":"draining"}`+"\n"))
}

func (h *holdfast) reloadAnswer(*proxy.Asked) proxy.Respond {
	unchanged, err := h.reload()
	if err != nil {
		return proxy.Refuse("bad_request", "the old configuration stays: "+err.Error())
	}
	body, err := json.Marshal(struct {
		Result       string   `json:"result"`
		NeedsRestart []string `json:"needs_restart"`
	}{"ok", append([]string{}, unchanged...)})
	if err != nil {
		panic(err)
	}
	return jsonAnswer(200, append(body, '\n'))
}
