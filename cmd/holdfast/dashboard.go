package main

import (
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"go.uber.org/zap"

	"holdfast/health"
	"holdfast/holds"
	"holdfast/proxy"
)

// The dashboard: a page at the admin address, and the event stream that it is
// fed with.

// dashboardAnswer is the page. Whoever can connect gets it: it says nothing of
// this process, and asks for a key where its feed needs one.
func dashboardAnswer(*proxy.Asked) proxy.Respond {
	page := health.Dashboard()
	return proxy.Respond{Status: 200, Body: page.HTML, Fields: []string{"Content-Type", "text/html; charset=utf-8", "Cache-Control", "no-store",
		"Content-Security-Policy", page.Policy, "X-Content-Type-Options", "nosniff", "Referrer-Policy", "no-referrer",
		"X-Frame-Options", "DENY", "Cross-Origin-Opener-Policy", "same-origin", "Cross-Origin-Resource-Policy", "same-origin"}}
}

// feed holds the dashboard's watchers, in a hub of its own: what is published
// to it has no channel that anybody could name, counts in no metric and takes no
// id or journal from the app's events. Lanes have no part in it.
//
// Once a second, while somebody watches, one view goes to all watchers; a
// goroutine does that from the first one's coming to the last one's leaving.
type feed struct {
	// fixed
	watch *health.Watch
	holds *holds.Holds
	log   *zap.Logger
	ended chan struct{} // closed by end
	done  sync.WaitGroup

	mu      sync.Mutex
	running bool // the goroutine is there
	closed  bool // and none will be
}

const (
	feedPace     = time.Second
	feedWatchers = 64 // at a time; the next one is refused, too_many_holds
	feedOutbox   = 256 << 10

	// The two channels: only who may act is told the names of channels.
	feedNamed = "names"
	feedBare  = "counts"
)

// newFeed makes a feed that nobody watches yet. left is called for each watcher
// that leaves; end ends it.
func newFeed(watch *health.Watch, left func(), log *zap.Logger) (*feed, error) {
	kept := holds.JournalLimits{Events: 2, Bytes: 1 << 20, Age: time.Minute}
	// Its holds are no client's: that one was cut is nothing to tell.
	own, err := holds.New(holds.Config{Loops: 1, Limit: feedWatchers, OutboxBytes: feedOutbox, Journal: kept, Left: left}, zap.NewNop())
	if err != nil {
		return nil, err
	}
	return &feed{watch: watch, holds: own, log: log, ended: make(chan struct{})}, nil
}

// open says what whoever asks for the feed gets: the present view and those
// that follow, with channels' names if they may act here, or a refusal.
func (f *feed) open(a *access, asked *proxy.Asked) (channel string, answer proxy.Respond) {
	answer = a.guard(false, func(asked *proxy.Asked) proxy.Respond {
		channel = feedBare
		if stands(asked) || a.hasKey(asked) {
			channel = feedNamed
		}
		first := append([]byte("data: "), f.watch.Recent(time.Now()).JSON(channel == feedNamed)...)
		return proxy.Respond{Status: 200, Body: append(first, "\n\n"...), Fields: []string{"Content-Type", "text/event-stream",
			"Cache-Control", "no-store, no-transform", "X-Accel-Buffering", "no", "X-Content-Type-Options", "nosniff"}}
	})(asked)
	return channel, answer
}

// start has views published, if that is not done already. Somebody watches.
func (f *feed) start() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.running || f.closed {
		return
	}
	f.running = true
	f.done.Add(1)
	go f.run()
}

// run publishes a view a second until nobody watches, or the end.
func (f *feed) run() {
	defer f.done.Done()
	ticker := time.NewTicker(feedPace)
	defer ticker.Stop()
	for f.isWatched() {
		select {
		case <-ticker.C:
			f.publish()
		case <-f.ended:
			return
		}
	}
}

// isWatched reports whether somebody watches; where nobody does, the next one
// has to start the goroutine anew.
func (f *feed) isWatched() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.holds.Snapshot()
	f.running = s.Streams > 0
	return f.running
}

// publish gives the present view to all watchers. A fault in it ends no process.
func (f *feed) publish() {
	defer func() {
		if p := recover(); p != nil {
			f.log.Error("the dashboard's view could not be made", zap.String("panic", fmt.Sprint(p)), zap.ByteString("stack", debug.Stack()))
		}
	}()
	view := f.watch.Look(time.Now())
	for channel := range f.holds.Channels() {
		f.holds.Publish(holds.Publication{Channels: []string{channel}, Retry: -1, Data: view.JSON(channel == feedNamed), Kind: holds.DataText})
	}
}

// end gives watchers a last view and a clean end. Who does not take it is cut:
// nothing waits for a watcher. It may be called again.
func (f *feed) end() {
	f.mu.Lock()
	again := f.closed
	f.closed = true
	f.mu.Unlock()
	if again {
		return
	}
	close(f.ended)
	f.done.Wait()
	if f.holds.Snapshot().Streams > 0 {
		f.publish()
	}
	f.holds.Close()
}
