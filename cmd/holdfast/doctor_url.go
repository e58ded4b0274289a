package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"holdfast/holds"
)

// publicStream is what --url asks for: an event stream to follow as a browser
// would, through whatever is in front of Holdfast.
type publicStream struct {
	address string
	channel string        // to publish to; "": nothing is published
	idle    time.Duration // how long the quiet stream is watched; 0: not at all
	headers []string      // "Name: value"
}

func newPublicStream(flags *pflag.FlagSet) *publicStream {
	p := new(publicStream)
	flags.StringVar(&p.address, "url", "", "the public `address` of an event stream to follow")
	flags.StringVar(&p.channel, "channel", "", "with --url: a `channel` of that stream, to publish three events to")
	flags.DurationVar(&p.idle, "idle", 0, "with --url: how long to watch the stream while it is quiet, as 60s")
	flags.StringArrayVar(&p.headers, "header", nil, "with --url: a `field` to send, as 'Cookie: sessionid=...'")
	return p
}

// problem is what is wrong with the flags.
func (p *publicStream) problem(given func(flag string) bool) string {
	if !given("url") {
		for _, flag := range []string{"channel", "idle", "header"} {
			if given(flag) {
				return "--" + flag + " is for a stream to follow: give --url too"
			}
		}
		return ""
	}
	u, err := url.Parse(p.address)
	switch {
	case err != nil, u.Host == "", u.Scheme != "http" && u.Scheme != "https":
		return "--url is not the address of a stream: write it as https://example.com/events"
	case p.idle < 0:
		return fmt.Sprintf("--idle %v is no time to watch: write 60s", p.idle)
	}
	if given("channel") {
		if err := holds.CheckChannel(p.channel); err != nil {
			return fmt.Sprintf("--channel %q: %v", p.channel, err)
		}
	}
	for _, header := range p.headers {
		name, value, ok := strings.Cut(header, ":")
		if !ok || !tokenText.MatchString(name) || notHeaderValue(strings.TrimSpace(value)) != "" {
			return "--header is not a field: write it as 'Cookie: sessionid=...'" // and its value is not shown
		}
	}
	return ""
}

const (
	unbuffered = "let it pass text/event-stream as it comes (nginx: proxy_buffering off, or heed X-Accel-Buffering; a CDN: no caching, no buffering for this path)"
	plain      = "take text/event-stream out of what is compressed (nginx: gzip_types; a CDN: heed no-transform)"
	unhurried  = "raise the idle time-out of what is in front above twice holds.heartbeat (nginx: proxy_read_timeout, HAProxy: timeout server and timeout tunnel), or lower holds.heartbeat below half of it"
)

// examine follows the stream. config, if not nil, says where to publish.
func (p *publicStream) examine(e *examination, config *fileConfig) {
	request, err := http.NewRequest(http.MethodGet, p.address, nil)
	if err != nil {
		e.fail(exitFailed, "url", "correct --url", "cannot be asked: %v", withoutAddress(err))
		return
	}
	e.ok("url", "%s://%s%s", request.URL.Scheme, request.URL.Host, request.URL.Path) // the query may be a grant
	request.Header.Set("Accept-Encoding", "gzip, br")                                // as browsers do: who compresses is to show it
	for _, header := range p.headers {
		name, value, _ := strings.Cut(header, ":")
		request.Header.Set(name, strings.TrimSpace(value))
		if strings.EqualFold(name, "host") {
			request.Host = strings.TrimSpace(value)
		}
	}
	var publisher *control
	if p.channel != "" && config.Publish.Listen.Address == "" {
		e.warn("events", "give publish.listen an address", "are not measured: publish.listen is off")
	} else if p.channel != "" {
		if publisher, err = controlOf(config.Publish, "", "--url", &e.over); err != nil {
			e.fail(exitFailed, "events", "correct the flag", "cannot be published: %v", err)
			return
		}
		publisher.client.Timeout = eventWait
	}
	over, err := e.over.config()
	if err != nil {
		e.fail(exitFailed, "url", "correct the flag", "cannot be asked: %v", err)
		return
	}
	var reached int
	stream, err := askStream(streamClient(nil, over), request, func() {
		if publisher != nil {
			reached, _ = publisher.offer(p.channel, newMark())
		}
	})
	switch {
	case errors.Is(err, errNoHead) && reached > 0:
		e.fail(exitFailed, "head", unbuffered, "did not come within %v, while the channel has a stream that is held: what is in front keeps it back", headWait)
		return
	case errors.Is(err, errNoHead):
		e.fail(exitFailed, "head", "ask Holdfast's own address for the same path: if that answers at once, "+unbuffered,
			"did not come within %v: what is in front keeps it back, or the view is that slow", headWait)
		return
	case err != nil:
		e.fail(exitFailed, "head", cmp.Or(hintTLS(err), "see that the address is the public one, and what is in front runs"), "cannot be had: %v", err)
		return
	}
	defer stream.Close()
	if e.streamHead(stream) && e.firstBytes(stream) && (publisher == nil || e.events(stream, publisher, p.channel)) {
		e.quiet(stream, p.idle, config)
	}
}

// streamHead judges the head; false: there is no stream to go on with.
func (e *examination) streamHead(stream *followed) bool {
	r := stream.response
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	isStream := strings.EqualFold(strings.TrimSpace(kind), "text/event-stream")
	switch reason := r.Header.Get("Holdfast-Reason"); {
	case reason != "":
		e.fail(exitFailed, "head", "see what Holdfast's documentation says of that reason", "Holdfast refuses, %s (status %d)", reason, r.StatusCode)
		return false
	case r.StatusCode != http.StatusOK:
		e.fail(exitFailed, "head", "give the address of a held stream (its cookie with --header); a view behind a login may need one", "the answer is %s", r.Status)
		return false
	case !isStream || r.ContentLength >= 0:
		e.fail(exitFailed, "head", "give the address of a view that answers with a held stream", "the answer is no event stream: its type is %s and its length %d", quote(r.Header.Get("Content-Type")), r.ContentLength)
		return false
	case stream.headAfter > slowEvent:
		e.warn("head", "compare with Holdfast's own address: the view may be slow, or wait for a slot", "came after %v", inMS(stream.headAfter))
	default:
		e.ok("head", "came after %v, over %s", inMS(stream.headAfter), r.Proto)
	}
	e.with(numbers{"took_ms": ms(stream.headAfter)})
	if front := strings.Join(append(r.Header.Values("Server"), r.Header.Values("Via")...), ", "); front != "" {
		e.ok("in front", "somebody names itself %s", quote(front))
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" {
		e.fail(exitFailed, "encoding", plain, "the stream is compressed on its way (%s): events wait until a block is full, and browsers' positions with them", quote(encoding))
	}
	if age := r.Header.Get("Age"); age != "" {
		e.warn("cache", "let the cache in front pass text/event-stream by", "the answer comes from a cache (Age: %s)", quote(age))
	}
	return true
}

// firstBytes waits for what every held stream begins with.
func (e *examination) firstBytes(stream *followed) bool {
	a, came, over := stream.next(firstWait)
	switch {
	case over:
		e.fail(exitFailed, "first bytes", "see Holdfast's log", "the stream %s before any", stream.endedWord())
		return false
	case !came:
		e.fail(exitFailed, "first bytes", unbuffered, "did not come within %v of the head: what is in front keeps them back", firstWait)
		return false
	}
	took := a.at.Sub(stream.headAt)
	e.ok("first bytes", "came %v after the head", inMS(took))
	e.with(numbers{"took_ms": ms(took)})
	return true
}

// eventsAsked is how many are published, one after the other has come.
const eventsAsked = 3

// events publishes and waits for what was published; false: nothing more can
// be learned.
func (e *examination) events(stream *followed, publisher *control, channel string) bool {
	var longest time.Duration
	for n := range eventsAsked {
		mark := newMark()
		began := time.Now()
		reached, err := publisher.offer(channel, mark)
		if err != nil {
			e.warn("events", "see that the Holdfast of this configuration runs here, with these keys", "cannot be published at %s: %v", publisher.base, err)
			return true
		}
		at, err := stream.await(mark, eventWait)
		switch {
		case err != nil && reached == 0:
			e.warn("events", "give the channel that the view of --url joins, and the file of the Holdfast that holds it", "an event on channel %s reached nobody", quote(channel))
			return errors.Is(err, errNoEvent)
		case errors.Is(err, errNoEvent):
			e.fail(exitFailed, "events", unbuffered+"; or the stream is not of that channel", "event %d was published to %d holds and did not come within %v: what is in front collects them", n+1, reached, eventWait)
			return false
		case err != nil:
			e.fail(exitFailed, "events", unhurried, "event %d did not come: the stream %s", n+1, stream.endedWord())
			return false
		}
		longest = max(longest, at.Sub(began))
	}
	if longest > slowEvent {
		e.warn("events", unbuffered, "%d came as they were published, the slowest after %v", eventsAsked, inMS(longest))
	} else {
		e.ok("events", "%d came as they were published, the slowest after %v", eventsAsked, inMS(longest))
	}
	e.with(numbers{"events": eventsAsked, "slowest_ms": ms(longest)})
	return true
}

// quiet watches the stream while nothing is published: heartbeats keep it.
func (e *examination) quiet(stream *followed, watch time.Duration, config *fileConfig) {
	if watch == 0 {
		e.ok("idle", "is not watched: give --idle 60s to see whether a quiet stream is cut")
		return
	}
	heartbeat := time.Duration(defaults().Holds.Heartbeat)
	if config != nil {
		heartbeat = time.Duration(config.Holds.Heartbeat)
	}
	began := time.Now()
	last, longest, arrivals := began, time.Duration(0), 0
	n := func() numbers {
		return numbers{"watched_ms": ms(time.Since(began)), "longest_silence_ms": ms(longest), "arrivals": float64(arrivals)}
	}
	for left := watch; left > 0; left = watch - time.Since(began) {
		a, came, over := stream.next(left)
		longest = max(longest, time.Since(last))
		if over {
			e.endOfQuiet(stream, time.Since(last))
			e.with(n())
			return
		}
		if came {
			last = a.at
			arrivals++
		}
	}
	most := 2*heartbeat + slowEvent
	switch {
	case heartbeat > 0 && longest > most && config == nil:
		e.warn("idle", "give -c, so that holds.heartbeat is known; if it is that, "+unbuffered, "not cut in %v, and nothing came for %v: heartbeats are kept back, or are not every %v", watch, inMS(longest), heartbeat)
	case heartbeat > 0 && longest > most:
		e.fail(exitFailed, "idle", unbuffered, "nothing came for %v, and a heartbeat is sent after %v at most: what is in front keeps them back", inMS(longest), 2*heartbeat)
	case heartbeat > 0 && watch <= most:
		e.ok("idle", "not cut in %v, which is shorter than the time that a heartbeat may take (%v): watch for longer to see one", watch, 2*heartbeat)
	default:
		e.ok("idle", "not cut in %v; the longest silence was %v", watch, inMS(longest))
	}
	e.with(n())
}

// endOfQuiet says who ended a quiet stream: Holdfast tells its clients first
// when to come back.
func (e *examination) endOfQuiet(stream *followed, silence time.Duration) {
	age := time.Since(stream.headAt)
	if strings.Contains(string(stream.tail), "\nretry:") {
		e.warn("idle", "ask again when Holdfast is not draining, and not near holds.max_age", "Holdfast itself ended the stream, %v after its head", inMS(age))
		return
	}
	e.fail(exitFailed, "idle", unhurried, "the stream %s after %v of silence, %v after its head", stream.endedWord(), inMS(silence), inMS(age))
}
