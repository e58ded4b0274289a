package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"holdfast/holds"
	"holdfast/internal/http1"
	"holdfast/lanes"
	"holdfast/upstream"
)

// replyBytes bounds the app's answer to what a hold asks.
const replyBytes = 1 << 20

// Forward sends what a hold asks to the app (holds.Forward): through the lane
// that it names; where a reload has taken that away, or none is named, through
// the one of the route that takes the request.
func (s *Server) Forward(ctx context.Context, r *holds.Request) (holds.Answer, error) {
	site := s.site.Load()
	lane := site.lanes[r.Lane]
	if lane == nil {
		path, _, _ := strings.Cut(r.Target, "?")
		if rt, _ := site.routes.match([]byte(r.Method), hostOf(r.Fields), []byte(path)); rt != nil {
			lane = rt.Lane
		}
	}
	if lane == nil {
		return holds.Answer{}, fmt.Errorf("no lane takes %s %s: the lane %q is gone, and no route with a lane takes the path", r.Method, r.Target, r.Lane)
	}
	began := time.Now()
	slot, err := lane.Await(ctx)
	if err != nil {
		return holds.Answer{}, unseen(err)
	}
	stamp := &messageStamp{holds: site.cfg.Holds}
	requestID := appendNewID(nil)
	head := site.holdHead(r, requestID, lane.KeepAlive(), stamp)
	ex, err := slot.Do(ctx, lanes.Request{Head: head, Body: r.Body, Stamp: stamp, Again: sendableAgain([]byte(r.Method))})
	if err != nil {
		return holds.Answer{}, unseen(err)
	}
	defer ex.Close()
	answer := holds.Answer{Position: stamp.position}
	answer.Status, answer.Fields, answer.Body, err = readReply(ex)
	if site.cfg.AccessLog {
		path, _, _ := strings.Cut(r.Target, "?")
		s.access.Info("message", zap.String("method", r.Method), zap.String("path", path), zap.Int("status", answer.Status),
			zap.Duration("took", time.Since(began)), zap.Duration("wait", slot.Waited()), zap.String("lane", lane.Config().Name),
			zap.Int("slot", ex.Slot().Number()), zap.Stringer("target", ex.Slot().Target()), zap.ByteString("request_id", requestID),
			zap.String("hold", r.Connection), zap.Error(err))
	}
	return answer, err
}

// hostOf is the Host of rendered fields, whose first it is.
func hostOf(fields []byte) []byte {
	line, _, _ := bytes.Cut(fields, []byte("\r\n"))
	return bytes.TrimPrefix(line, []byte("Host: "))
}

// unseen words for holds why the app has seen no byte of a message, or passes
// on that it may have.
func unseen(err error) error {
	var refusal *lanes.Refusal
	var failed *upstream.Error
	switch {
	case errors.As(err, &refusal) && refusal.Reason == lanes.UpstreamDown:
		return fmt.Errorf("%w: %w", holds.ErrDown, err)
	case errors.As(err, &refusal) && refusal.Reason == lanes.Draining, errors.Is(err, context.Canceled):
		return fmt.Errorf("%w: %w", holds.ErrStopping, err)
	case errors.As(err, &refusal), errors.As(err, &failed) && !failed.Sent:
		return fmt.Errorf("%w: %w", holds.ErrUnseen, err)
	}
	return err
}

// messageStamp notes where the events stand when a message is sent to the app
// (lanes.Stamper).
type messageStamp struct {
	holds    *holds.Holds
	at       int // where M0-Position's number is; 0: it is not there
	position int64
}

// Stamp notes the position, and writes it into the head.
func (s *messageStamp) Stamp(head []byte) {
	s.position = s.holds.Position()
	if s.at > 0 {
		strconv.AppendInt(head[s.at:s.at], s.position, 10)
	}
}

// holdHead is the head of what a hold asks, and stamp is told where in it the
// position goes.
func (s *site) holdHead(r *holds.Request, requestID []byte, keepAlive bool, stamp *messageStamp) (head []byte) {
	head = append(append(append(append(head, r.Method...), ' '), r.Target...), " HTTP/1.1\r\n"...)
	head = append(head, r.Fields...)
	if !keepAlive {
		head = append(head, "Connection: close\r\n"...)
	}
	head = append(append(append(head, "X-Request-ID: "...), requestID...), "\r\nX-Request-Start: t="...)
	head = append(strconv.AppendInt(head, time.Now().UnixMicro(), 10), "\r\n"...)
	head = s.signer.append(head)
	if r.Body != nil {
		head = append(strconv.AppendInt(append(head, "Content-Length: "...), int64(len(r.Body)), 10), "\r\n"...)
	}
	if s.cfg.Dialects.M0 {
		head = append(head, "M0-Position: "...)
		stamp.at = len(head)
		head = append(head, "0000000000000000\r\n"...)
	}
	return append(head, "\r\n"...)
}

// readReply reads the app's answer to what a hold asked, whole.
func readReply(ex *lanes.Exchange) (status int, fields []http1.Field, body []byte, err error) {
	res, err := ex.Head(nil)
	if err != nil {
		return 0, nil, nil, err
	}
	status, fields = res.Status, cloneFields(res.Fields) // they are gone with the last byte
	scratch := outPool.Get().(*[]byte)
	defer outPool.Put(scratch)
	for {
		n, err := ex.Read(*scratch)
		if len(body)+n > replyBytes {
			return status, nil, nil, fmt.Errorf("the answer to what a hold asked has more than %d bytes; publish what is for many", replyBytes)
		}
		body = append(body, (*scratch)[:n]...)
		if err == io.EOF {
			return status, fields, body, nil
		}
		if err != nil {
			return status, nil, nil, err
		}
	}
}

// cloneFields copies fields, in one piece of memory.
func cloneFields(fields []http1.Field) []http1.Field {
	size := 0
	for _, f := range fields {
		size += len(f.Name) + len(f.Value)
	}
	kept := make([]byte, 0, size)
	keep := func(b []byte) []byte {
		at := len(kept)
		kept = append(kept, b...)
		return kept[at:len(kept):len(kept)]
	}
	clones := make([]http1.Field, len(fields))
	for i, f := range fields {
		clones[i] = http1.Field{Name: keep(f.Name), Value: keep(f.Value)}
	}
	return clones
}
