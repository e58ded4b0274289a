package proxy

import "holdfast/holds"

// Feed holds clients without asking the app, in a channel of Config.Holds: for
// what the process says of itself.
type Feed struct {
	// Open says what whoever asks gets: a hold in that channel, a stream with
	// the answer's fields, whose first bytes are its body; or, with the channel
	// "", the answer itself. What is published from then on follows.
	Open func(*Asked) (channel string, answer Respond)
	// Opened is called whenever a client was held; by then it may have left.
	Opened func()
}

// openFeed holds a client in the channel that its route says, or answers it.
func (c *clientConn) openFeed(rt *Route) (keep bool, err error) {
	if err := c.skipBody(); err != nil {
		return false, err
	}
	channel := ""
	a := c.local(&Route{Answer: func(asked *Asked) (answer Respond) {
		channel, answer = rt.Feed.Open(asked)
		return answer
	}})
	if channel == "" {
		keep = c.keepAlive()
		return keep, c.write(a.append(c.out[:0], c.req.isHEAD(), keep, c.req.minor == 0))
	}
	spec := holds.Spec{Kind: holds.ModeStream, Channels: []string{channel}, Body: a.body, Position: c.site.cfg.Holds.Position()}
	spec.Head = appendDate([]byte("HTTP/1.1 200 OK\r\n"))
	for i := 0; i < len(a.fields); i += 2 {
		spec.Head = append(spec.Head, a.fields[i]+": "+a.fields[i+1]+"\r\n"...)
	}
	if c.req.isHEAD() {
		return c.answerHeadOnly(spec.Head)
	}
	keep, err = c.openHold(spec)
	if c.handedOver {
		rt.Feed.Opened()
	}
	return keep, err
}
