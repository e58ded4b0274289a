package lanes

import "time"

// waiter is one request in a lane's queue. It is in the queue, or it was
// given its outcome through ready, once: a slot, or nil with refusal set.
type waiter struct {
	ready   chan *Slot // buffered, so that giving never waits
	refusal *Refusal
	queued  bool
	patient bool // it takes no place of Queue
	since   time.Time

	prev, next *waiter
}

// queue is a FIFO of waiters from whose middle one can leave. Guarded by the
// lane's mu.
type queue struct {
	first, last *waiter
	len         int
	counted     int // those that take a place of Queue
}

func (q *queue) pushBack(w *waiter) {
	w.queued = true
	if w.prev = q.last; w.prev == nil {
		q.first = w
	} else {
		w.prev.next = w
	}
	q.last = w
	q.count(w, 1)
}

func (q *queue) pushFront(w *waiter) {
	w.queued = true
	if w.next = q.first; w.next == nil {
		q.last = w
	} else {
		w.next.prev = w
	}
	q.first = w
	q.count(w, 1)
}

func (q *queue) remove(w *waiter) {
	if w.prev == nil {
		q.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		q.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next, w.queued = nil, nil, false
	q.count(w, -1)
}

func (q *queue) count(w *waiter, n int) {
	q.len += n
	if !w.patient {
		q.counted += n
	}
}
