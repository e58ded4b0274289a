package lanes

import (
	"context"
	"errors"
	"time"

	"holdfast/upstream"
)

// Answer is what asking a target through a lane's slot showed.
type Answer uint8

// What asking shows.
const (
	NotAsked Answer = iota // no slot at the target is free: busy is not sick
	Answered
	Failed
	Silent // nothing came in time
)

// Ask asks the target whether it answers, through a free slot of the lane, and
// waits at most wait. It takes part in the lane's count like any request: a
// target that stays silent keeps the slot, abandoned, until it has answered.
func (l *Lane) Ask(target *upstream.Target, wait time.Duration) (Answer, error) {
	slot := l.takeAt(target)
	if slot == nil {
		return NotAsked, nil
	}
	ex := &Exchange{slot: slot, ctx: context.Background(),
		request: Request{Head: target.HealthRequest(!target.KeepAlive()), Done: target.Asked()}}
	slot.closeConn() // the app may just be closing the one there is, which would say nothing
	conn, err := slot.connect(true)
	if err == nil {
		err = conn.Send(ex.request.Head, nil, nil)
	}
	if err != nil {
		if errors.Is(err, upstream.ErrUnreachable) {
			target.Fail(err)
		}
		slot.closeConn()
		ex.requestDone()
		slot.Release()
		return Failed, err
	}
	defer ex.Close()
	if err := ex.arm(time.Now(), wait); err != nil {
		return Failed, err
	}
	res, err := conn.Head(false, nil)
	if err != nil {
		if ex.note(err); errors.Is(err, upstream.ErrTimeout) {
			return Silent, err
		}
		return Failed, err
	}
	ex.res = res
	if err := target.JudgeHealth(res.Status); err != nil {
		return Failed, err
	}
	scratch := make([]byte, drainBytes)
	for n := 1; err == nil && n > 0; {
		n, err = ex.ReadSoon(scratch) // the rest, if it is there; else it is abandoned
	}
	return Answered, nil
}

// takeAt takes a free slot at a target that is up, nil if there is none.
func (l *Lane) takeAt(target *upstream.Target) *Slot {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.places {
		if p.target == target && p.up && len(p.free) > 0 {
			return l.takeFrom(p)
		}
	}
	return nil
}
