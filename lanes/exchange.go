package lanes

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"holdfast/upstream"
)

const (
	// againWithin: an upstream that closed without an answer later than this
	// may have worked on the request; it is not sent again.
	againWithin = 5 * time.Second
	// A process that is killed loses its connections some milliseconds before
	// its listener: a request that one of them took along is sent again after a
	// pause, or the listener would take it along too. takenAlong is how long
	// the request was out then; sooner, only its connection was stale.
	takenAlong  = 3 * time.Millisecond
	resendPause = 100 * time.Millisecond
	// soon is how long ReadSoon waits.
	soon       = 2 * time.Millisecond
	drainBytes = 16 << 10
)

// past is a deadline that ends a read at once.
var past = time.Unix(1, 0)

// Exchange is one request and its answer. It owns its slot and gives it back
// at the answer's last byte, or, where Close comes first, when the upstream is
// done. One goroutine calls everything but Interrupt.
type Exchange struct {
	slot    *Slot
	ctx     context.Context
	request Request
	sentAt  time.Time
	resent  bool
	res     *upstream.Response
	trailer []byte
	err     error // what ended it, if that was not its last byte

	mu          sync.Mutex // orders deadlines, Interrupt and the end
	interrupted bool
	away        bool // between two connections, or waiting for another slot
	ended       bool // the slot is no longer this exchange's
}

// Slot is where the exchange takes place.
func (ex *Exchange) Slot() *Slot { return ex.slot }

// Resent reports whether the request was sent a second time.
func (ex *Exchange) Resent() bool { return ex.resent }

// Interrupt ends a read in progress, and all later ones, with
// upstream.ErrInterrupted: the client left. Safe from any goroutine, at any
// time, also after the end.
func (ex *Exchange) Interrupt() {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	if ex.ended {
		return
	}
	ex.interrupted = true
	if !ex.away {
		ex.slot.deadline = past
		ex.slot.conn.SetReadDeadline(past)
	}
}

// send gets the request onto a connection.
func (ex *Exchange) send() error {
	for fresh := 0; ; {
		conn, err := ex.slot.connect(ex.request.Again)
		if err == nil {
			if ex.request.Stamp != nil {
				ex.request.Stamp.Stamp(ex.request.Head)
			}
			if err = conn.Send(ex.request.Head, ex.request.Body, ex.request.More); err == nil {
				ex.sentAt = time.Now()
				return nil
			}
			// Not a byte went out: any method may have another try.
			if conn.Served() == 0 {
				fresh++
			}
			ex.slot.closeConn()
			if fresh < 2 {
				continue
			}
			ex.slot.Release()
			return err
		}
		if errors.Is(err, upstream.ErrResources) {
			ex.slot.Release()
			return err
		}
		if err := ex.elsewhere(err); err != nil {
			return err
		}
	}
}

// elsewhere marks the slot's target down and waits for another slot.
func (ex *Exchange) elsewhere(cause error) error {
	slot := ex.slot
	giveUp := slot.giveUp
	if giveUp.IsZero() {
		giveUp = time.Now().Add(slot.lane.cfg.Load().QueueTimeout)
	}
	slot.Target().Fail(cause)
	slot.Release()
	slot, err := slot.lane.again(ex.ctx, giveUp)
	if err != nil {
		return err
	}
	ex.slot = slot
	return nil
}

// arm moves the read deadline to d from now on, if what is set is not near
// enough: moving it costs, and nobody waits for a timeout to the second.
func (ex *Exchange) arm(now time.Time, d time.Duration) error {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	if ex.interrupted {
		return ex.errInterrupted()
	}
	if d == 0 {
		if !ex.slot.deadline.IsZero() {
			ex.slot.deadline = time.Time{}
			ex.slot.conn.SetReadDeadline(time.Time{})
		}
		return nil
	}
	at := now.Add(d)
	if stale := at.Sub(ex.slot.deadline); stale < 0 || stale > min(time.Second, d/8) {
		ex.slot.deadline = at
		ex.slot.conn.SetReadDeadline(at)
	}
	return nil
}

func (ex *Exchange) errInterrupted() error {
	return &upstream.Error{Target: ex.slot.Target().String(), Sent: true, Kind: upstream.ErrInterrupted}
}

// note keeps what ended the exchange. A timeout that Interrupt made is told as such.
func (ex *Exchange) note(err error) error {
	ex.mu.Lock()
	if ex.interrupted && errors.Is(err, upstream.ErrTimeout) {
		err = ex.errInterrupted()
	}
	ex.mu.Unlock()
	ex.err = err
	return err
}

// Head waits for the final answer's head, ResponseTimeout at most. Each 1xx
// before it is given to interim, unless that is nil. What it returns is good
// until Read returns io.EOF or Close is called.
//
// A GET, HEAD or OPTIONS is sent once more, on a new connection, if the
// upstream closed without a byte of answer within five seconds of sending;
// nothing else ever is.
func (ex *Exchange) Head(interim func(*upstream.Response)) (*upstream.Response, error) {
	for sent, now := int64(0), ex.sentAt; ; now = time.Now() {
		if err := ex.arm(now, ex.slot.lane.cfg.Load().ResponseTimeout); err != nil {
			return nil, ex.note(err)
		}
		res, err := ex.readHead(interim)
		if err == nil {
			ex.res = res
			return res, nil
		}
		err = ex.note(err)
		if now, waits := ex.slot.conn.Progress(); errors.Is(err, upstream.ErrTimeout) && (waits || now > sent) {
			sent = now // the request is still coming in
			continue
		}
		if !ex.mayResend(err) {
			return nil, err
		}
		ex.resent = true
		if err := ex.resend(); err != nil {
			return nil, err
		}
	}
}

func (ex *Exchange) readHead(interim func(*upstream.Response)) (*upstream.Response, error) {
	if ex.request.Upgrade {
		return ex.slot.conn.HeadOrSwitch(interim)
	}
	return ex.slot.conn.Head(ex.request.ToHEAD, interim)
}

// Tunnel gives the upstream connection to the caller, after a 101, and what
// was read from it already. Close ends it and frees the slot.
func (ex *Exchange) Tunnel() (nc net.Conn, early []byte) {
	nc, early = ex.slot.conn.Tunnel()
	nc.SetReadDeadline(time.Time{})
	return nc, early
}

// Trailer is the trailer section of the answer, once Read has said io.EOF; only
// on a lane of streams.
func (ex *Exchange) Trailer() []byte { return ex.trailer }

func (ex *Exchange) mayResend(err error) bool {
	return errors.Is(err, upstream.ErrClosed) && ex.request.Again && !ex.resent &&
		time.Since(ex.sentAt) < againWithin
}

// resend sends the request again on a new connection. The slot stays with the
// exchange, unless the target is down: then the slot is given back by send.
func (ex *Exchange) resend() error {
	ex.mu.Lock()
	ex.away = true
	ex.mu.Unlock()
	lane := ex.slot.lane
	lane.mu.Lock()
	lane.retried++
	lane.mu.Unlock()
	pause := ex.slot.conn.Served() == 0 || time.Since(ex.sentAt) > takenAlong
	ex.slot.closeConn()
	if pause {
		<-time.After(resendPause)
	}
	err := ex.send()
	ex.mu.Lock()
	ex.away, ex.ended = false, err != nil
	ex.mu.Unlock()
	if ex.err = err; err != nil {
		ex.requestDone()
	}
	return err
}

// Read hands out the answer's body without its framing. io.EOF comes with or
// after the last byte; the slot is free then. It waits at most
// ResponseTimeout for a further byte.
//
// On a lane of streams it waits Idle instead, or for ever.
func (ex *Exchange) Read(p []byte) (int, error) {
	cfg := ex.slot.lane.cfg.Load()
	if cfg.Stream {
		return ex.read(p, cfg.Idle)
	}
	return ex.read(p, cfg.ResponseTimeout)
}

// ReadSoon is Read for bytes that are there or all but there: it returns 0
// and no error if none came within two milliseconds.
func (ex *Exchange) ReadSoon(p []byte) (int, error) {
	n, err := ex.read(p, soon)
	if n == 0 && errors.Is(err, upstream.ErrTimeout) {
		ex.err = nil
		return 0, nil
	}
	return n, err
}

func (ex *Exchange) read(p []byte, d time.Duration) (int, error) {
	conn := ex.slot.conn
	if !conn.Buffered() {
		if err := ex.arm(time.Now(), d); err != nil {
			return 0, ex.note(err)
		}
	}
	n, err := conn.Read(p)
	if err == io.EOF {
		ex.end()
	} else if err != nil {
		err = ex.note(err)
	}
	return n, err
}

// end gives the slot back after the answer's last byte.
func (ex *Exchange) end() {
	ex.mu.Lock()
	ex.ended = true
	ex.mu.Unlock()
	if ex.slot.lane.cfg.Load().Stream && ex.res.Framing == upstream.FramingChunked {
		ex.trailer = append([]byte(nil), ex.slot.conn.Trailer()...)
	}
	ended := ex.slot.conn.UsedAt()
	if !ex.slot.conn.Reusable() || !ex.slot.Target().KeepAlive() {
		ex.slot.closeConn()
	}
	ex.requestDone()
	ex.slot.releaseAt(ended)
}

// requestDone says that nothing of the request is needed any more: no writer
// of it is left.
func (ex *Exchange) requestDone() {
	if done := ex.request.Done; done != nil {
		ex.request.Done = nil
		done()
	}
}

// Close ends the client's part. After the last byte it does nothing. If the
// upstream ended the connection, the slot is free. An answer that cannot be
// read on (malformed, or endless) has its connection closed, and the slot is
// free one second later, counted. Anything else is abandoned: the slot stays
// taken while the answer is read and thrown away.
func (ex *Exchange) Close() {
	ex.mu.Lock()
	ended := ex.ended
	ex.ended = true
	ex.mu.Unlock()
	if ended {
		return
	}
	switch {
	case errors.Is(ex.err, upstream.ErrClosed), errors.Is(ex.err, upstream.ErrTruncated), ex.slot.lane.cfg.Load().Stream:
		ex.slot.closeConn()
		ex.requestDone()
		ex.slot.Release()
	case errors.Is(ex.err, upstream.ErrMalformed), ex.res != nil && ex.res.Endless:
		ex.slot.abandon()
		ex.closeUnderView()
	default:
		ex.slot.abandon()
		go ex.drain()
	}
}

// drain reads an abandoned answer to its end, which is when the slot is free;
// it gives up at the upstream's AbandonLimit.
func (ex *Exchange) drain() {
	slot := ex.slot
	slot.deadline = time.Now().Add(slot.Target().AbandonLimit())
	slot.conn.SetReadDeadline(slot.deadline)
	err := ex.skipAnswer()
	switch {
	case err == io.EOF:
		if !slot.conn.Reusable() || !slot.Target().KeepAlive() {
			slot.closeConn()
		}
		ex.requestDone()
		slot.Release()
	case errors.Is(err, upstream.ErrClosed), errors.Is(err, upstream.ErrTruncated):
		slot.closeConn()
		ex.requestDone()
		slot.Release()
	default: // the limit, or nothing that can be read on
		ex.closeUnderView()
	}
}

func (ex *Exchange) closeUnderView() {
	ex.slot.closeUnderView()
	ex.requestDone()
}

var errEndless = errors.New("the answer has no end")

// skipAnswer reads what is left of the answer; io.EOF is its end.
func (ex *Exchange) skipAnswer() error {
	conn := ex.slot.conn
	if ex.res == nil {
		res, err := conn.Head(ex.request.ToHEAD, nil)
		if err != nil {
			return err
		}
		ex.res = res
	}
	if ex.res.Endless {
		return errEndless
	}
	scratch := make([]byte, drainBytes)
	for {
		if _, err := conn.Read(scratch); err != nil {
			return err
		}
	}
}
