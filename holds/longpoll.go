package holds

import (
	"bytes"
	"cmp"
	"container/heap"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
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
	bare       bool   // GRIP: the answer has no id of ours
	deadline   time.Time
	answer     []byte // to be sent when the hold has left its channels
}

// appendAnswer renders the answer to a long poll.
func (p *poll) appendAnswer(dst, fields, body []byte, id int64, gap bool) []byte {
	dst = append(append(dst, p.head...), fields...)
	if !p.bare {
		dst = append(strconv.AppendInt(append(dst, "M0-Event-Id: "...), id, 10), "\r\n"...)
	}
	if gap && !p.bare {
		dst = append(dst, "M0-Gap: true\r\n"...)
	}
	return p.appendRest(dst, statusOf(p.head), body)
}

// statusOf is a head's status.
func statusOf(head []byte) int {
	line := bytes.TrimPrefix(head, []byte("HTTP/1.1 "))
	status, _ := strconv.Atoi(string(line[:min(3, len(line))]))
	return status
}

// appendRest ends a head and appends its body, where the status has one.
func (p *poll) appendRest(dst []byte, status int, body []byte) []byte {
	if bodiless(status) {
		body = nil
	} else {
		dst = append(strconv.AppendInt(append(dst, "Content-Length: "...), int64(len(body)), 10), "\r\n"...)
	}
	switch {
	case !p.keep:
		dst = append(dst, "Connection: close\r\n"...)
	case p.old:
		dst = append(dst, "Connection: keep-alive\r\n"...)
	}
	return append(append(dst, "\r\n"...), body...)
}

// appendItem renders the answer to a long poll that an item gives: its status,
// its fields in place of the instruction's of the same names, its body.
func (p *poll) appendItem(dst []byte, f *AnswerForm, body []byte) []byte {
	dst = fmt.Appendf(dst, "HTTP/1.1 %d %s\r\n", f.Status, cmp.Or(f.Reason, http.StatusText(f.Status)))
	_, rest, _ := bytes.Cut(p.head, []byte("\r\n"))
	for len(rest) > 0 {
		var line []byte
		line, rest, _ = bytes.Cut(rest, []byte("\r\n"))
		name, _, _ := bytes.Cut(line, []byte(":"))
		if !slices.ContainsFunc(f.Fields, func(field [2]string) bool { return strings.EqualFold(field[0], string(name)) }) {
			dst = append(append(dst, line...), "\r\n"...)
		}
	}
	for _, field := range f.Fields {
		dst = fmt.Appendf(dst, "%s: %s\r\n", field[0], field[1])
	}
	return p.appendRest(dst, f.Status, body)
}

// giveAnswer answers a GRIP long poll with an item.
func (l *loop) giveAnswer(h *hold, e *event, filters []string) {
	f := e.item.Answer
	h.cursor = e.id
	switch {
	case f == nil, f.Action == ActionClose:
	case f.Action == ActionHint:
		l.miss(h, true)
	case !sameContentFilters(filters, f.Filters):
		l.unfit(h, errOtherFilters)
	default:
		body, err := rewrite(filters, h.grip().subscriber(), f.Body)
		if err != nil {
			l.unfit(h, err)
			return
		}
		l.offered++
		h.poll.keep = h.poll.keep && !l.home.lastAnswers.Load()
		h.poll.answer = h.poll.appendItem(nil, f, body)
		l.end(h, EndPublished)
	}
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
	return h.poll.appendAnswer(nil, h.poll.bodyFields, h.poll.body, l.hub.shown(h.cursor), gap)
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

// isStale reports whether an alarm is of a hold that is no more, or that is to
// be looked at sooner.
func (l *loop) isStale(a alarm) bool {
	h := l.lookup(a.slot, a.generation)
	return h == nil || h.poll == nil && !a.at.Equal(h.grip().alarmAt)
}

// alarms are when holds of a loop are to be looked at: long polls, and GRIP
// holds that want something of their own.
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

// timeOut answers the long polls whose time is over, and looks at the GRIP
// holds that want something.
func (l *loop) timeOut(now time.Time) {
	for len(l.alarms) > 0 && !now.Before(l.alarms[0].at) {
		a := heap.Pop(&l.alarms).(alarm)
		switch h := l.lookup(a.slot, a.generation); {
		case h == nil:
		case h.poll != nil:
			l.end(h, EndExpired)
		default:
			l.strike(h, now)
		}
	}
}

// setAlarm has a hold looked at, at a time. The alarms of holds that are no
// more are let go when they are the most of all.
func (l *loop) setAlarm(h *hold, at time.Time) {
	if len(l.alarms) > alarmsLeast && len(l.alarms) > 2*(len(l.table)-len(l.vacant)) {
		l.alarms = slices.DeleteFunc(l.alarms, l.isStale)
		heap.Init(&l.alarms)
	}
	heap.Push(&l.alarms, alarm{at, h.slot, h.generation})
}
