package proxy

import (
	"bytes"
	"errors"
	"net/http"
	"slices"
	"strconv"

	"holdfast/holds"
	"holdfast/internal/http1"
	"holdfast/lanes"
	"holdfast/upstream"
)

// holdGrip does what an answer's GRIP instruction says: it holds the client,
// or serves the answer as the instruction would have it.
func (c *clientConn) holdGrip(ex *lanes.Exchange, res *upstream.Response, rt *Route, in holds.Instruction) (keep bool, err error) {
	answer := *res
	answer.Reason = bytes.Clone(res.Reason)
	answer.Fields = cloneFields(res.Fields) // the exchange's are gone with the last byte
	body, err := c.readHoldBody(ex, rt.Lane)
	if err == nil && !c.req.isHEAD() { // whose answer has no body
		body, err = holds.Decode(answer.Fields, body)
	}
	switch {
	case err == nil && in.Grip.JSON && c.req.isHEAD():
		return c.answerWhole(without(&answer, "content-type", "content-length", "content-encoding"), nil)
	case err == nil && in.Grip.JSON:
		in, err = in.Read(answer.Status, body)
	}
	if errors.Is(err, errLeft) {
		return false, err
	}
	if err != nil {
		ex.Close()
		return c.answerFault(badHold(err, rt.Lane))
	}
	body = instructed(&answer, in.Grip, body)
	c.record.status = answer.Status
	spec := holds.Spec{Kind: in.Mode, Channels: in.Channels, Position: c.position, Timeout: in.Timeout, Body: body, Grip: in.Grip,
		Target: string(c.req.target), Host: string(c.req.host), Fields: c.linkFields()}
	switch {
	case in.Mode == holds.ModeResponse:
		spec.Head = c.responseHead(nil, &answer)
	case in.Mode == holds.ModeStream || in.Grip.Next != nil:
		spec.Kind, spec.Paging = holds.ModeStream, in.Mode == holds.ModeNone
		spec.Head, spec.Events = c.responseHead(nil, &answer), isEventStream(answer.Fields)
	default:
		return c.answerWhole(&answer, in.Grip.Rewrite(body))
	}
	if c.asksAgain(in.Grip, spec.Kind) {
		ex.Close()
		c.detach()
		return c.forward(rt)
	}
	spec.Asked = c.last != nil
	if c.req.isHEAD() {
		return c.answerHeadOnly(spec.Head)
	}
	return c.openHold(spec)
}

// asksAgain reports whether the app is to be asked once more: there are items
// behind those that its answer had, of which the journal has not all, and the
// instruction says no other way to get them. For a long poll it is told which
// its answer had, as it had nothing else to say; a stream's answer is thrown
// away, and the next is to be as good as the first.
func (c *clientConn) asksAgain(g *holds.Grip, kind holds.Mode) bool {
	if g.Next != nil || c.last != nil || !c.req.isGET() || c.req.hasBody() || !c.site.cfg.Holds.Misses(g, c.position) {
		return false
	}
	c.last = []byte{}
	if kind == holds.ModeResponse {
		c.last = g.LastFields()
	}
	return true
}

// instructed changes an answer as its instruction says, and gives its body.
func instructed(answer *upstream.Response, g *holds.Grip, body []byte) []byte {
	if r := g.Response; r != nil {
		answer.Status, answer.Reason, answer.Fields, body = r.Status, []byte(r.Reason), r.Fields, r.Body
	}
	if g.Status > 0 {
		answer.Status, answer.Reason = g.Status, []byte(g.Reason)
	}
	if len(answer.Reason) == 0 {
		answer.Reason = []byte(http.StatusText(answer.Status))
	}
	answer.Fields = slices.DeleteFunc(answer.Fields, func(f http1.Field) bool {
		switch {
		case http1.EqualFold(f.Name, "content-length"), http1.EqualFold(f.Name, "content-encoding"), http1.EqualFold(f.Name, "x-accel-redirect"):
			return true // the body has neither any more, and its client goes nowhere else
		case g.Expose == nil:
			return false
		}
		return !slices.ContainsFunc(g.Expose, func(name string) bool { return bytes.EqualFold(f.Name, []byte(name)) })
	})
	return body
}

// answerWhole sends an answer that was read whole. Some statuses have no body
// (RFC 9110 §6.4.1).
func (c *clientConn) answerWhole(answer *upstream.Response, body []byte) (keep bool, err error) {
	c.record.phase, c.record.status = phaseAnswering, answer.Status
	keep = c.keepAlive()
	head := c.responseHead(nil, answer)
	if answer.Status == 204 || answer.Status == 304 {
		body = nil
	} else {
		head = append(strconv.AppendInt(append(head, "Content-Length: "...), int64(len(body)), 10), "\r\n"...)
	}
	if c.req.isHEAD() {
		body = nil
	}
	return keep, c.writeOnce(append(append(appendPersistence(head, keep, c.req.minor == 0), "\r\n"...), body...))
}

func isEventStream(fields []http1.Field) bool {
	for _, f := range fields {
		if http1.EqualFold(f.Name, "content-type") {
			return http1.EqualFold(mediaType(f.Value), "text/event-stream")
		}
	}
	return false
}

// ofTheSite are those of an earlier proxy's fields that say nothing of the client.
var ofTheSite = []string{"x-forwarded-proto", "x-forwarded-host", "x-forwarded-port", "x-forwarded-prefix"}

// linkFields are what goes along with a request for a GRIP hold's next link:
// under which address the site was asked, and nothing of its client. Those who
// follow the same link can share what comes of it.
func (c *clientConn) linkFields() (lines []byte) {
	lines = append(append(append(lines, "Host: "...), c.req.host...), "\r\n"...)
	for rest := c.appendForwarded(nil); len(rest) > 0; {
		line, more, _ := bytes.Cut(rest, []byte("\r\n"))
		name, _, _ := bytes.Cut(line, []byte(":"))
		for _, of := range ofTheSite {
			if http1.EqualFold(name, of) {
				lines = append(append(lines, line...), "\r\n"...)
			}
		}
		rest = more
	}
	return lines
}
