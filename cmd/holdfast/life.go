package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"

	"holdfast/proxy"
)

// The states of the process, never back.
const (
	stateStarting int32 = iota // a target has not answered yet
	stateReady
	stateDraining
	stateStopped
)

func (h *holdfast) stateWord() string {
	return [...]string{"starting", "ready", "draining", "stopped"}[h.state.Load()]
}

// signalSource is where the process hears that it is to stop or to reload.
type signalSource struct {
	end    chan os.Signal // SIGTERM and SIGINT
	reload chan os.Signal // SIGHUP
}

func watchSignals() *signalSource {
	s := &signalSource{make(chan os.Signal, 4), make(chan os.Signal, 1)}
	signal.Notify(s.end, syscall.SIGTERM, syscall.SIGINT)
	signal.Notify(s.reload, syscall.SIGHUP)
	return s
}

func (s *signalSource) stop() {
	signal.Stop(s.end)
	signal.Stop(s.reload)
}

// run serves until something ends it, and gives the exit code.
func (h *holdfast) run(signals *signalSource, stderr io.Writer) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ready := make(chan error, 1)
	go func() { ready <- h.awaitReady(ctx) }()
	for {
		select {
		case err := <-ready:
			if err != nil {
				h.stopAll(0)
				fmt.Fprintln(stderr, "holdfast:", err)
				return exitConfig
			}
			ready = nil
		case err := <-h.broken:
			h.stopAll(0)
			fmt.Fprintln(stderr, "holdfast:", err)
			return exitFailed
		case <-signals.reload:
			h.reload() // says in the log what came of it
		case s := <-signals.end:
			h.log.Info("draining", zap.String("by", s.String()))
			return h.drain(signals, 1, stderr)
		case <-h.drainNow:
			h.log.Info("draining", zap.String("by", "admin"))
			return h.drain(signals, 0, stderr)
		}
	}
}

// drain stops within drain.bound: exit 0. heard is how many signals to end
// have come; the second stops at once: exit 1.
func (h *holdfast) drain(signals *signalSource, heard int, stderr io.Writer) int {
	stopped := make(chan struct{})
	go h.stopGently(stopped)
	for {
		select {
		case <-stopped:
			h.log.Info("stopped")
			if heard == 0 {
				<-time.After(askedPause)
			}
			return exitOK
		case s := <-signals.end:
			if heard++; heard > 1 {
				fmt.Fprintf(stderr, "holdfast: stopped at once by a second signal (%v); wait for the drain, or lower drain.bound\n", s)
				return exitFailed
			}
		}
	}
}

// askedPause is between the end of the admin address and that of the process,
// where the drain was asked for there: who waits for it (drain --wait) may be in
// the same container, and would be killed with the process before it has seen
// the end. It is three looks of control.awaitEnd.
const askedPause = 300 * time.Millisecond

// stopGently is the drain: one clock for all of it.
func (h *holdfast) stopGently(stopped chan<- struct{}) {
	defer close(stopped)
	cfg := h.wiring.Load().config.Drain
	bound := time.Now().Add(time.Duration(cfg.Bound))
	h.state.Store(stateDraining)
	h.drainFrom.Store(time.Now().UnixNano())
	h.server.Drain()
	h.holds.EndConnections()
	if delay := time.Duration(cfg.Delay); delay > 0 {
		<-time.After(delay)
	}
	h.stopAll(time.Until(bound))
}

// stopAll stops accepting, lets what waits and runs finish within the bound,
// refuses and cuts what is left, and gives everything back.
func (h *holdfast) stopAll(bound time.Duration) {
	if h.unwatch != nil {
		h.unwatch()
	}
	h.server.Close()
	h.holds.Drain()
	select {
	case <-h.server.Closed():
	case <-time.After(bound):
	}
	w := h.wiring.Load()
	for _, lane := range w.lanes {
		lane.Close()
	}
	h.reloading.Lock()
	for _, lane := range h.retired {
		lane.Close()
	}
	h.reloading.Unlock()
	h.holds.Close()
	if h.feed != nil {
		h.feed.end() // its address waits for its clients
	}
	var ends sync.WaitGroup // all at once: each takes a moment to tell its clients
	ends.Go(h.server.Cut)
	for _, own := range []*proxy.Server{h.publisher, h.admin} {
		if own != nil {
			ends.Go(func() { shutdownSoon(own) })
		}
	}
	ends.Wait()
	for _, u := range w.upstreams {
		u.Close()
	}
	h.state.Store(stateStopped)
}

// shutdownSoon ends one of our own addresses.
func shutdownSoon(own *proxy.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	own.Shutdown(ctx)
}
