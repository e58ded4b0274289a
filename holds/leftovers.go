package holds

import (
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
	"time"
)

// leftovers is what the opening of many holds leaves behind: garbage, which Go
// collects when the heap has doubled, and an idle heap does not grow; and the
// stacks of goroutines that have ended. It goes back to the system once no more
// holds are opened.
type leftovers struct {
	opened atomic.Uint64 // since it went back
	due    atomic.Bool   // it is to go back
	give   func()
}

const (
	leftoversOf   = 100         // holds opened; what fewer leave is not worth the work
	leftoversCalm = time.Second // without a hold being opened
	// leftoversHeap: a larger heap takes too long to look through for them.
	leftoversHeap = 64 << 20
)

// add counts a hold that is opened.
func (l *leftovers) add() {
	if opened := l.opened.Add(1); opened >= leftoversOf && l.due.CompareAndSwap(false, true) {
		l.wait(opened)
	}
}

// wait gives them back unless more than so many holds have been opened by then.
func (l *leftovers) wait(opened uint64) {
	time.AfterFunc(leftoversCalm, func() {
		if now := l.opened.Load(); now != opened {
			l.wait(now)
			return
		}
		l.give()
		l.opened.Store(0)
		l.due.Store(false)
	})
}

// giveBack collects garbage and gives to the system what is free then.
func giveBack() {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	if metrics.Read(live); live[0].Value.Kind() == metrics.KindUint64 && live[0].Value.Uint64() <= leftoversHeap {
		debug.FreeOSMemory()
	}
}
