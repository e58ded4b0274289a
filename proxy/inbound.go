package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"go.uber.org/zap"

	"holdfast/holds"
	"holdfast/internal/http1"
	"holdfast/lanes"
	"holdfast/upstream"
)

// replyBytes bounds the app's answer to an inbound message.
const replyBytes = 1 << 20

// Forward sends an inbound message to the app (holds.Forward): through the
// lane that approved its socket, by name; where a reload has taken that away,
// through the one that the message path's route has.
func (s *Server) Forward(ctx context.Context, m *holds.Inbound) (holds.Answer, error) {
	site := s.site.Load()
	lane := site.lanes[m.Lane]
	if lane == nil {
		if rt, _ := site.routes.match([]byte("POST"), hostOf(m.Fields), []byte(m.Path)); rt != nil {
			lane = rt.Lane
		}
	}
	if lane == nil {
		return holds.Answer{}, fmt.Errorf("no lane takes messages for %s: the lane %s is gone, and no route with a lane takes the path", m.Path, m.Lane)
	}
	began := time.Now()
	slot, err := lane.Await(ctx)
	if err != nil {
		return holds.Answer{}, unseen(err)
	}
	head, requestID, at := s.messageHead(m, lane.KeepAlive())
	stamp := &messageStamp{holds: site.cfg.Holds, at: at}
	ex, err := slot.Do(ctx, lanes.Request{Head: head, Body: m.Payload, Stamp: stamp})
	if err != nil {
		return holds.Answer{}, unseen(err)
	}
	defer ex.Close()
	answer := holds.Answer{Position: stamp.position}
	answer.Status, answer.Fields, answer.Body, err = readReply(ex)
	if site.cfg.AccessLog {
		s.access.Info("message", zap.String("method", "POST"), zap.String("path", m.Path), zap.Int("status", answer.Status),
			zap.Duration("took", time.Since(began)), zap.Duration("wait", slot.Waited()), zap.String("lane", lane.Config().Name),
			zap.Int("slot", ex.Slot().Number()), zap.Stringer("target", ex.Slot().Target()), zap.ByteString("request_id", requestID),
			zap.String("hold", m.Connection), zap.Error(err))
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
	at       int // where M0-Position's number is
	position int64
}

// Stamp notes the position, and writes it into the head.
func (s *messageStamp) Stamp(head []byte) {
	s.position = s.holds.Position()
	strconv.AppendInt(head[s.at:s.at], s.position, 10)
}

// messageHead is the head of a message's POST, and the place in it of the
// position, which is the stamp's.
func (s *Server) messageHead(m *holds.Inbound, keepAlive bool) (head, requestID []byte, positionAt int) {
	requestID = appendNewID(nil)
	head = append(append(append(head, "POST "...), m.Path...), " HTTP/1.1\r\n"...)
	head = append(head, m.Fields...)
	if !keepAlive {
		head = append(head, "Connection: close\r\n"...)
	}
	kind, op := "text/plain; charset=utf-8", "1"
	if m.Binary {
		kind, op = "application/octet-stream", "2"
	}
	for _, f := range [][2]string{
		{"Content-Type", kind}, {"M0-Channel", m.Channels}, {"M0-Connection", m.Connection}, {"M0-Slot", m.Connection}, {"M0-Opcode", op},
		{"X-Request-ID", string(requestID)},
		{"X-Request-Start", "t=" + strconv.FormatInt(time.Now().UnixMicro(), 10)}, {"Content-Length", strconv.Itoa(len(m.Payload))},
	} {
		head = append(append(append(append(head, f[0]...), ": "...), f[1]...), "\r\n"...)
	}
	head = append(head, "M0-Position: "...)
	return append(head, "0000000000000000\r\n\r\n"...), requestID, len(head)
}

// readReply reads the app's answer to a message whole.
func readReply(ex *lanes.Exchange) (status int, fields []http1.Field, body []byte, err error) {
	res, err := ex.Head(nil)
	if err != nil {
		return 0, nil, nil, err
	}
	status = res.Status
	for _, f := range res.Fields { // they are gone with the last byte
		if http1.HasPrefixFold(f.Name, "m0-") {
			fields = append(fields, http1.Field{Name: append([]byte(nil), f.Name...), Value: append([]byte(nil), f.Value...)})
		}
	}
	scratch := outPool.Get().(*[]byte)
	defer outPool.Put(scratch)
	for {
		n, err := ex.Read(*scratch)
		if len(body)+n > replyBytes {
			return status, nil, nil, fmt.Errorf("the answer to an inbound message has more than %d bytes; publish what is for many", replyBytes)
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
