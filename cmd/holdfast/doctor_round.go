package main

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"
)

// roundTrip publishes an event to the Holdfast that runs and waits for it on
// a stream that it holds. Only a grant route opens one without asking the app.
// What it leaves is one event in the journal, on a channel of its own.
func (e *examination) roundTrip(config *fileConfig) {
	const check = "round trip"
	if config.Publish.Listen.Address == "" {
		e.ok(check, "is not measured: publish.listen is off")
		return
	}
	channel := newMark()
	publisher, err := controlOf(config.Publish, "", "--url", &e.over)
	if err != nil {
		e.ok(check, "is not measured: %v", err)
		return
	}
	publisher.client.Timeout = eventWait
	took, problem := publisher.isHoldfast(channel)
	if problem != "" {
		e.ok(check, "is not measured: %s", problem)
		return
	}
	route := config.grantRoute()
	to := config.reachable()
	if route == nil || to == nil {
		e.ok(check, "is not measured: it needs a stream that is held without the app, and so a grant route at an address with a port; %s answers within %v", config.Publish.Listen.Address, inMS(took))
		e.with(numbers{"publish_ms": ms(took)})
		return
	}
	scheme, over, why := e.overListen(config.Listen[0])
	if why != "" {
		e.ok(check, "is not measured: %s", why)
		return
	}
	p, _ := parseMatch(route.Match) // checked with the configuration
	key, _ := config.source.env(route.Grant.KeyEnv)
	request, err := http.NewRequest(http.MethodGet, scheme+cmp.Or(p.Host, "localhost")+grantPath(p.Path)+"stream?g="+newGrant(key, channel, time.Now().Add(time.Minute)), nil)
	if err != nil {
		e.ok(check, "is not measured: no address can be made of %s", quote(route.Match))
		return
	}
	stream, err := askStream(streamClient(to, over), request, nil)
	if err != nil {
		e.warn(check, "see Holdfast's log, and whether listen is where this configuration's Holdfast is", "no stream of grant route %s could be opened at %s: %v", quote(route.Match), config.Listen[0].Address, err)
		return
	}
	defer stream.Close()
	defer publisher.end(channel)
	e.publishRound(config, route, publisher, stream, channel)
}

// publishRound is roundTrip from the stream's head on.
func (e *examination) publishRound(config *fileConfig, route *routeConfig, publisher *control, stream *followed, channel string) {
	const check = "round trip"
	answer, reason := stream.response, stream.response.Header.Get("Holdfast-Reason")
	if answer.StatusCode != http.StatusOK || reason != "" {
		e.warn(check, "give the doctor the environment, and the file, of the Holdfast that runs", "a grant of this configuration is answered %d %s", answer.StatusCode, reason)
		return
	}
	if _, came, _ := stream.next(firstWait); !came {
		e.warn(check, "see Holdfast's log", "a held stream began and its first bytes did not come within %v", firstWait)
		return
	}
	began := time.Now()
	reached, err := publisher.offer(channel, channel)
	if err != nil {
		e.warn(check, "see Holdfast's log", "an event could not be published at %s: %v", config.Publish.Listen.Address, err)
		return
	}
	published := time.Since(began)
	at, err := stream.await(channel, eventWait)
	took := at.Sub(began)
	switch {
	case err != nil && reached == 0:
		e.warn(check, "name the listen and publish.listen of one Holdfast", "an event was published at %s and reached nobody, although %s holds a stream of its channel", config.Publish.Listen.Address, config.Listen[0].Address)
		return
	case err != nil:
		e.warn(check, "see Holdfast's log and the load of this machine", "an event was published and had not reached its stream after %v: %v", eventWait, err)
		return
	case took > slowEvent:
		e.warn(check, "see the load of this machine", "an event reached a held stream %v after its publishing began", inMS(took))
	default:
		e.ok(check, "an event reached a held stream %v after its publishing began (grant route %s at %s)", inMS(took), quote(route.Match), config.Listen[0].Address)
	}
	e.with(numbers{"head_ms": ms(stream.headAfter), "published_ms": ms(published), "arrived_ms": ms(took)})
}

// overListen says how a listener of clients is asked; why it cannot be, if not "".
func (e *examination) overListen(a address) (scheme string, over *tls.Config, why string) {
	switch {
	case a.TLS == nil:
		return "http://", nil, ""
	case a.asksClients() && e.over.cert == "":
		return "", nil, a.Address + " asks for a certificate: give --cert and --cert-key"
	}
	over, err := e.over.of(a.TLS).config()
	if err != nil {
		return "", nil, err.Error()
	}
	return "https://", over, ""
}

// grantRoute is the first route with a grant; nil: none.
func (c *fileConfig) grantRoute() *routeConfig {
	for i := range c.Routes {
		if c.Routes[i].Grant != nil {
			return &c.Routes[i]
		}
	}
	return nil
}

// reachable is where the first listener is dialled; nil: not known, the system
// chose the port.
func (c *fileConfig) reachable() *endpoint {
	e, err := parseListen(c.Listen[0].Address)
	if err != nil {
		return nil
	}
	if e.network == "tcp" {
		host, port, _ := net.SplitHostPort(e.address) // parsed before
		if port == "0" {
			return nil
		}
		if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
			e.address = net.JoinHostPort("localhost", port)
		}
	}
	return &e
}

// grantPath is a path below which a grant route's stream is: something for
// each wildcard.
func grantPath(pattern string) string {
	segments := strings.Split(pattern, "/")
	for i, segment := range segments {
		switch {
		case strings.HasPrefix(segment, "{"):
			segments[i] = "doctor"
		default:
			segments[i] = url.PathEscape(segment)
		}
	}
	return strings.TrimSuffix(strings.Join(segments, "/"), "/") + "/"
}

// newGrant signs a grant as the app would, bound to no session.
func newGrant(key, channel string, expires time.Time) string {
	sum := sha256.Sum256([]byte(key))
	signed := fmt.Sprintf("v1.%s.%d.%s.-", hex.EncodeToString(sum[:4]), expires.Unix(), channel)
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(signed))
	return signed + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// isHoldfast asks a publish address for a channel that nobody has: nothing is
// published to what is none. problem is "" if it is one.
func (c *control) isHoldfast(channel string) (took time.Duration, problem string) {
	began := time.Now()
	status, body, err := c.ask(http.MethodGet, "/channels/"+channel)
	took = time.Since(began)
	var report struct {
		Channel string `json:"channel"`
		Head    int64  `json:"head"`
	}
	switch {
	case err != nil:
		return took, fmt.Sprintf("no Holdfast answers at %s", c.base)
	case status == http.StatusUnauthorized:
		return took, fmt.Sprintf("%s does not take the first of publish.keys", c.base)
	case status != http.StatusOK || json.Unmarshal(body, &report) != nil || report.Channel != channel || report.Head == 0:
		return took, fmt.Sprintf("what answers at %s is no Holdfast", c.base)
	}
	return took, ""
}

// offer publishes a text under an event name that no page listens to.
func (c *control) offer(channel, text string) (reached int, err error) {
	body, err := json.Marshal(map[string]string{"channel": channel, "data": text, "event": "holdfast-doctor"})
	if err != nil {
		return 0, err
	}
	status, answer, err := c.send(http.MethodPost, "/publish", body)
	if err != nil {
		return 0, withoutAddress(err)
	}
	var taken struct {
		Reached int `json:"reached"`
	}
	if status != http.StatusOK || json.Unmarshal(answer, &taken) != nil {
		return 0, fmt.Errorf("status %d", status)
	}
	return taken.Reached, nil
}

// end ends the holds of a channel; who cannot is rid of them when the
// connection closes.
func (c *control) end(channel string) {
	body, err := json.Marshal(map[string]string{"channel": channel})
	if err == nil {
		c.send(http.MethodPost, "/end", body)
	}
}
