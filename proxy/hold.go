package proxy

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"holdfast/holds"
	"holdfast/internal/http1"
	"holdfast/lanes"
	"holdfast/upstream"
)

const (
	holdBodyBytes   = 1 << 20          // of an answer that opens a hold
	holdBodyTimeout = 60 * time.Second // for it on a lane of streams, which has no bound for answers
)

// Why an answer that opens a hold is no use, besides what holds says.
var (
	errHoldTooLarge = errors.New("the answer that opens the hold has more than 1 MiB of body; send its first bytes there and publish the rest")
	errHoldLate     = errors.New("the answer that opens the hold was not whole within response_timeout; end it, a hold is fed by publishing")
	errUnread       = errors.New("the view answered with a hold before it had read its request; read the body first")
)

// Stamp notes where the events stand, as the last thing before the request
// goes to the app, and says so in its head: a hold that this request leads to is
// fed from there (lanes.Stamper).
func (c *clientConn) Stamp(head []byte) {
	if c.site.cfg.Holds == nil {
		return
	}
	c.position = c.site.cfg.Holds.Position()
	if c.positionAt > 0 {
		strconv.AppendInt(head[c.positionAt:c.positionAt], c.position, 10)
	}
}

// instruction reads what an answer says about a hold.
func (c *clientConn) instruction(res *upstream.Response) (holds.Instruction, error) {
	if c.site.cfg.Holds == nil {
		return holds.Instruction{}, nil
	}
	in, err := holds.ParseInstruction(res.Status, res.Fields, c.site.cfg.Dialects)
	if in.BadChannels > 0 {
		c.server.log.Warn("channel names that are none were left out of a hold",
			zap.String("route", c.record.route.Match), zap.Int("names", in.BadChannels))
	}
	return in, err
}

func badHold(err error, lane *lanes.Lane) *fault {
	return &fault{reason: reasonBadHold, lane: lane.Config().Name, cause: err, text: err.Error()}
}

// hold makes a hold of the client: the view's answer is read whole, which
// gives its slot back, and only then the client joins.
func (c *clientConn) hold(ex *lanes.Exchange, res *upstream.Response, rt *Route, in holds.Instruction) (keep bool, err error) {
	if in.Grip != nil {
		return c.holdGrip(ex, res, rt, in)
	}
	spec := holds.Spec{Kind: in.Mode, Channels: in.Channels, Position: c.position, Envelope: in.Envelope, Timeout: in.Timeout}
	switch in.Mode {
	case holds.ModeStream:
		spec.Head = c.streamHead(res)
	case holds.ModeWebSocket:
		spec.Head = c.socketHead(res)
		spec.Lane, spec.Path = rt.Lane.Config().Name, rt.MessagePath
	case holds.ModeResponse:
		spec.Head, spec.BodyFields = c.pollHead(res)
	}
	spec.Body, err = c.readHoldBody(ex, rt.Lane)
	if errors.Is(err, errLeft) {
		return false, err
	}
	if err != nil {
		ex.Close()
		return c.answerFault(badHold(err, rt.Lane))
	}
	if in.Mode == holds.ModeWebSocket {
		return c.openSocket(spec, c.site.cfg.Origins)
	}
	if c.req.isHEAD() {
		return c.answerHeadOnly(spec.Head)
	}
	return c.openHold(spec)
}

// answerHeadOnly answers a HEAD with the head that a hold would have.
func (c *clientConn) answerHeadOnly(head []byte) (keep bool, err error) {
	c.record.phase, c.record.status = phaseAnswering, cmp.Or(c.record.status, 200)
	keep = c.keepAlive()
	return keep, c.writeOnce(append(appendPersistence(head, keep, c.req.minor == 0), "\r\n"...))
}

// without is an answer's head less some fields.
func without(res *upstream.Response, names ...string) *upstream.Response {
	rest := *res
	rest.Fields = slices.DeleteFunc(slices.Clone(res.Fields), func(f http1.Field) bool {
		return slices.ContainsFunc(names, func(name string) bool { return http1.EqualFold(f.Name, name) })
	})
	return &rest
}

// streamHead is the head of a held stream, up to what is said of the
// connection: the view's own fields but for those that describe its body.
func (c *clientConn) streamHead(res *upstream.Response) []byte {
	rest := without(res, "content-type", "content-length", "content-encoding", "cache-control", "x-accel-buffering", "x-accel-redirect", "etag")
	return append(c.responseHead(nil, rest), streamFields...)
}

const streamFields = "Content-Type: text/event-stream\r\nCache-Control: no-cache, no-transform\r\nX-Accel-Buffering: no\r\n"

// pollHead is the head of a long poll's answer, up to what is said of the body
// and the connection, and the view's fields that are true of its own body alone.
func (c *clientConn) pollHead(res *upstream.Response) (head, bodyFields []byte) {
	for _, f := range res.Fields {
		if http1.EqualFold(f.Name, "etag") || http1.EqualFold(f.Name, "content-encoding") {
			bodyFields = appendField(bodyFields, f)
		}
	}
	return c.responseHead(nil, without(res, "content-length", "content-encoding", "etag", "x-accel-redirect")), bodyFields
}

// readHoldBody reads the view's answer whole.
func (c *clientConn) readHoldBody(ex *lanes.Exchange, lane *lanes.Lane) ([]byte, error) {
	within := lane.Config().ResponseTimeout
	if within == 0 {
		within = holdBodyTimeout
	}
	var late atomic.Bool
	timer := time.AfterFunc(within, func() {
		late.Store(true)
		ex.Interrupt()
	})
	defer timer.Stop()
	var body []byte
	scratch := outPool.Get().(*[]byte)
	defer outPool.Put(scratch)
	for {
		n, err := ex.Read(*scratch)
		if len(body)+n > holdBodyBytes {
			return nil, errHoldTooLarge
		}
		body = append(body, (*scratch)[:n]...)
		switch {
		case err == io.EOF:
			return body, nil
		case err == nil:
		case late.Load(), errors.Is(err, upstream.ErrTimeout):
			return nil, errHoldLate
		case errors.Is(err, upstream.ErrInterrupted):
			return nil, errLeft
		default:
			return nil, fmt.Errorf("the answer that opens the hold was cut: %w", err)
		}
	}
}

// openHold hands the connection over. From then on nothing of it is this
// goroutine's. spec lacks what the request says.
func (c *clientConn) openHold(spec holds.Spec) (keep bool, err error) {
	c.detach()
	c.endAhead()
	c.mu.Lock()
	left := c.fin || c.left
	c.mu.Unlock()
	if left {
		return false, errLeft
	}
	if spec.Grip == nil && spec.Kind != holds.ModeWebSocket {
		c.record.status = 200
	}
	switch spec.Kind {
	case holds.ModeStream:
		if spec.Chunked = c.req.minor > 0; spec.Chunked {
			spec.Head = append(spec.Head, "Transfer-Encoding: chunked\r\n"...)
		}
		spec.Head = append(spec.Head, "Connection: close\r\n\r\n"...)
	case holds.ModeResponse:
		spec.KeepAlive, spec.HTTP10 = c.keepAlive(), c.req.minor == 0
	}
	spec.Last = c.lastEventID()
	if spec.Kind != holds.ModeStream {
		spec.Early = bytes.Clone(c.buf[c.r:c.w])
	}
	c.server.watch.forget(c)
	if err := c.site.cfg.Holds.Open(c.Conn, spec); err != nil {
		c.ticket = c.server.watch.add(c)
		return c.answerFault(holdFault(err))
	}
	c.handedOver = true
	c.record.held = true
	c.ended.Do(func() {
		c.done(nil)
		c.cancel()
		c.server.becomeHold(c)
	})
	return false, errHandedOver
}

// holdFault words why there is no hold.
func holdFault(err error) *fault {
	switch {
	case errors.Is(err, holds.ErrTooMany):
		return &fault{reason: reasonTooManyHolds, text: "as many clients are held as there may be; raise holds.limit, or the limit of open files"}
	case errors.Is(err, holds.ErrClosed):
		return &fault{reason: reasonDraining, text: "the process stops"}
	}
	return &fault{reason: reasonInternal, cause: err, text: "the connection could not be held; the log names the cause"}
}

// lastEventID is the position that the client comes back with: the field that
// an EventSource sends, or the parameter that a page sends the first time.
func (c *clientConn) lastEventID() string {
	for _, f := range c.req.fields {
		if http1.EqualFold(f.Name, "last-event-id") && len(f.Value) > 0 {
			return string(f.Value)
		}
	}
	_, query := c.req.cutQuery()
	id, _ := queryValue(query, "lastEventId")
	return id
}

// originAllowed reports whether the page that the request is of may open a hold.
func (c *clientConn) originAllowed(policy holds.Origins) bool {
	for _, f := range c.req.fields {
		if !http1.EqualFold(f.Name, "origin") {
			continue
		}
		of := policy
		if c.isHTTPS() && !http1.HasPrefixFold(f.Value, "https://") {
			of.SameHost = false // its pages came without TLS, or from elsewhere
		}
		if !holds.OriginAllowed(string(f.Value), string(c.req.host), of) {
			return false
		}
	}
	return true
}

// appendSharing lets a page of another origin read what it was let in to
// (the CORS protocol of the Fetch standard). Where any page is let in, none
// may bring its reader's cookies.
func (c *clientConn) appendSharing(dst []byte, policy holds.Origins) []byte {
	for _, f := range c.req.fields {
		if http1.EqualFold(f.Name, "origin") {
			dst = append(append(append(dst, "Access-Control-Allow-Origin: "...), f.Value...), "\r\nVary: Origin\r\n"...)
			if !policy.Any {
				dst = append(dst, "Access-Control-Allow-Credentials: true\r\n"...)
			}
			break
		}
	}
	return dst
}

// answerGrantFault is answerFault for a grant that is refused.
func (c *clientConn) answerGrantFault(f *fault) (keep bool, err error) {
	c.logFault(f)
	c.record.status = statusOf[f.reason]
	keep = c.keepAlive()
	return keep, c.write(grantAnswer(f).append(c.out[:0], c.req.isHEAD(), keep, c.req.minor == 0))
}

// openGrant holds a client that brings a grant.
func (c *clientConn) openGrant(rt *Route) (keep bool, err error) {
	if err := c.skipBody(); err != nil {
		return false, err
	}
	path, query := c.req.cutQuery()
	end := rt.endOf(path)
	if end != "stream" && end != "ws" {
		return c.answerFault(&fault{reason: reasonNoRoute, text: "below a grant route there are stream and ws, and nothing else"})
	}
	if !c.originAllowed(rt.Grant.Origins) {
		return c.answerFault(originDenied())
	}
	token, _ := queryValue(query, "g")
	channel, err := rt.Grant.verify(token, c.req.fields, time.Now())
	if err != nil {
		return c.answerGrantFault(grantFault(err))
	}
	spec := holds.Spec{Kind: holds.ModeStream, Channels: []string{channel}, Position: c.site.cfg.Holds.Position()}
	if end == "ws" {
		spec.Kind = holds.ModeWebSocket
		spec.Head = appendDate([]byte(switching))
		return c.openSocket(spec, rt.Grant.Origins)
	}
	spec.Head = append(c.appendSharing(appendDate([]byte("HTTP/1.1 200 OK\r\n")), rt.Grant.Origins), streamFields...)
	if c.req.isHEAD() {
		return c.answerHeadOnly(spec.Head)
	}
	return c.openHold(spec)
}
