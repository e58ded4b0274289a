package holds

import (
	"container/heap"
	"net"
	"slices"
	"strconv"
	"time"
)

// poll is what a hold has beside others if it is a long poll: its view's own
// answer, which it gets when no event comes in time.
type poll struct {
	head []byte // status line and fields, without those of framing and connection
	body []byte
	// bodyFields are lines of the view's that are true of body alone.
	bodyFields []byte
	early      []byte // what the client sent behind its request
	keep       bool   // the connection goes back to HTTP
	old        bool   // … of version 1.0
	deadline   time.Time
	answer     []byte // to be sent when the hold has left its channels
}

// appendAnswer renders the answer to a long poll.
func (p *poll) appendAnswer(dst, fields, body []byte, id int64, gap bool) []byte {
	dst = append(append(dst, p.head...), fields...)
	dst = strconv.AppendInt(append(dst, "M0-Event-Id: "...), id, 10)
	if gap {
		dst = append(dst, "\r\nM0-Gap: true"...)
	}
	dst = strconv.AppendInt(append(dst, "\r\nContent-Length: "...), int64(len(body)), 10)
	switch {
	case !p.keep:
		dst = append(dst, "\r\nConnection: close"...)
	case p.old:
		dst = append(dst, "\r\nConnection: keep-alive"...)
	}
	return append(append(dst, "\r\n\r\n"...), body...)
}

// answerEvent ends a long poll with an event.
func (l *loop) answerEvent(h *hold, e *event) {
	h.cursor = e.id
	l.offered++
	h.poll.keep = h.poll.keep && !l.home.lastAnswers.Load()
	h.poll.answer = h.poll.appendAnswer(nil, nil, e.data, e.id, false)
	l.end(h, EndPublished)
}

// answerNothing is the answer of the view itself.
func (l *loop) answerNothing(h *hold, gap bool) []byte {
	h.poll.keep = h.poll.keep && !l.home.lastAnswers.Load()
	return h.poll.appendAnswer(nil, h.poll.bodyFields, h.poll.body, h.cursor, gap)
}

// giveBack makes a held connection one of HTTP again, once the answer is out.
func (l *loop) giveBack(h *hold) {
	p := h.poll
	if h.link != nil && h.link.busy {
		return // it is called again
	}
	giveBack := l.limits.Load().Return
	if !p.keep || giveBack == nil {
		l.close(h, false)
		return
	}
	l.vacate(h)
	conn, more, err := l.sockets.release(h)
	if err == nil {
		giveBack(conn, append(p.early, more...))
	}
	l.left()
}

// Return takes a connection back that a long poll was answered on, with what
// its client has sent since. It must not wait.
type Return func(conn net.Conn, early []byte)

// alarms are the long polls of a loop, the next to time out first.
type alarms []alarm

type alarm struct {
	at               time.Time
	slot, generation uint32
}

func (a alarms) Len() int           { return len(a) }
func (a alarms) Less(i, j int) bool { return a[i].at.Before(a[j].at) }
func (a alarms) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }
func (a *alarms) Push(x any)        { *a = append(*a, x.(alarm)) }
func (a *alarms) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
}

// alarmsLeast is how many are never looked through.
const alarmsLeast = 256

// timeOut answers the long polls whose time is over.
func (l *loop) timeOut(now time.Time) {
	for len(l.alarms) > 0 && !now.Before(l.alarms[0].at) {
		a := heap.Pop(&l.alarms).(alarm)
		if h := l.lookup(a.slot, a.generation); h != nil {
			l.end(h, EndExpired)
		}
	}
}

// setAlarm has a long poll answered at its deadline at the latest. Those of
// polls that were answered before are let go when they are the most of all.
func (l *loop) setAlarm(h *hold) {
	if len(l.alarms) > alarmsLeast && int64(len(l.alarms)) > 2*l.counts.open[ModeResponse].Load() {
		l.alarms = slices.DeleteFunc(l.alarms, func(a alarm) bool { return l.lookup(a.slot, a.generation) == nil })
		heap.Init(&l.alarms)
	}
	heap.Push(&l.alarms, alarm{h.poll.deadline, h.slot, h.generation})
}
