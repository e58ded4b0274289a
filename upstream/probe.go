package upstream

import (
	"context"
	"time"
)

const (
	probeEvery     = 100 * time.Millisecond // while the target has not been down for long
	probeEveryLate = time.Second            // and later
	probeLate      = 10 * time.Second
	probeAnswer    = 10 * time.Second // one asking, before the first answer
)

// startProber starts the target's one prober, unless it is up or has one.
func (t *Target) startProber() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.up || t.probing || t.ctx.Err() != nil {
		return
	}
	t.probing = true
	t.prober.Add(1)
	go t.probe()
}

// probe asks until the target is up or closed. Until it has answered once, a
// whole exchange is asked for; later a connection is enough, since an app
// that accepts and is busy is not down.
func (t *Target) probe() {
	defer t.prober.Done()
	for {
		err := t.Ask(t.ctx)
		t.mu.Lock()
		if err == nil || t.ctx.Err() != nil {
			t.probing = false
			t.mu.Unlock()
			break
		}
		t.err = err
		wait := probeEvery
		if time.Since(t.since) > probeLate {
			wait = probeEveryLate
		}
		t.mu.Unlock()
		select {
		case <-t.ctx.Done():
		case <-time.After(wait):
		}
	}
	if t.ctx.Err() == nil {
		t.set(true, nil)
	}
}

// Ask makes one attempt: a connection, and, while the target has never
// answered, the exchange that Config.Health describes. Any answer is an
// answer for "*"; with a path, any below 500.
func (t *Target) Ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeAnswer)
	defer cancel()
	conn, err := t.Dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if t.State().Answered {
		return nil
	}
	t.setAsking(true)
	defer t.setAsking(false)
	stop := context.AfterFunc(ctx, func() { conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := conn.Send(t.HealthRequest(true), nil, nil); err != nil {
		return err
	}
	res, err := conn.Head(false, nil)
	if err != nil {
		return err
	}
	return t.JudgeHealth(res.Status)
}

// HealthRequest is the head of the request that asks whether the target
// answers. last: the connection ends with its answer.
func (t *Target) HealthRequest(last bool) []byte { return t.config().Health.request(last) }

// JudgeHealth is nil if an answer with this status to HealthRequest is a good
// one: any to "*", any below 500 to a path. Otherwise an *Error of ErrSick.
func (t *Target) JudgeHealth(status int) error {
	if t.config().Health.Path != "*" && status >= 500 {
		return &Error{Target: t.address.Text, Sent: true, Kind: ErrSick, Cause: statusError(status)}
	}
	return nil
}

func (t *Target) setAsking(asking bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.accepted, t.asking = true, asking
}

func (h Health) request(last bool) []byte {
	method := "GET"
	if h.Path == "*" {
		method = "OPTIONS"
	}
	head := method + " " + h.Path + " HTTP/1.1\r\nHost: " + h.Host + "\r\nUser-Agent: holdfast-health\r\n"
	if last {
		head += "Connection: close\r\n"
	}
	return []byte(head + "\r\n")
}
