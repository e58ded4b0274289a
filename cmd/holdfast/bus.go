package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"holdfast/health"
	"holdfast/holds/bus"
)

// openBus gives the bus that a configuration names; nil: it is memory, and this
// process the only one. No engine is asked yet.
func (c *fileConfig) openBus() (bus.Bus, error) {
	if c.Bus.URL == "memory" {
		return nil, nil
	}
	parsed, err := c.Bus.parse(time.Duration(c.Holds.Journal.Age))
	if err != nil {
		return nil, err
	}
	return parsed.Open(), nil
}

// busKind is the engine's name, as /status has it.
func (c *fileConfig) busKind() string {
	parsed, err := c.Bus.parse(0)
	if err != nil { // the check has refused it
		return ""
	}
	return parsed.Kind
}

// busCounts is what is said of the bus. The one in force is the one of the start.
func (h *holdfast) busCounts() health.Bus {
	s := h.holds.Bus()
	b := health.Bus{Kind: h.busKind, Connected: s.Connected, Entries: s.Entries}
	switch ready := h.wiring.Load().config.Bus.Ready; {
	case errors.Is(s.Trouble, bus.ErrUnprepared) && (ready == "always" || ready == "start" && !s.Current):
		b.Reason = "bus: it is not prepared, run holdfast bus init"
	case ready == "start" && !s.Current:
		b.Reason = "bus: it has not been reached yet, or not all of it was read"
	case ready == "always" && !s.Connected:
		b.Reason = "bus: it cannot be reached"
	}
	return b
}

// busWait is how long a command waits for an engine.
const busWait = 10 * time.Second

// busCommand prepares the engine that a configuration or a URL names.
func busCommand(args []string, stdout, stderr io.Writer) int {
	flags := newFlags("bus")
	file := flags.StringP("config", "c", "", "the configuration `file` that names the bus")
	url := flags.String("url", "", "the bus, instead of a file: postgres://… or redis://…")
	if done, code := parseFlagsAnd(flags, args, 1, usage, stdout, stderr); done {
		return code
	}
	if flags.Arg(0) != "init" {
		return usageError(stderr, "holdfast bus init is the one command for a bus")
	}
	if *file == "" {
		*file = os.Getenv("HOLDFAST_CONFIG")
	}
	asked := busConfig{URL: *url}
	var keep time.Duration
	switch {
	case *url != "":
	case *file == "":
		return usageError(stderr, "no bus: give -c config.yaml, HOLDFAST_CONFIG, or --url postgres://…")
	default:
		config, err := loadConfig(*file, os.LookupEnv)
		if err != nil {
			fmt.Fprintln(stderr, err)
			return exitConfig
		}
		asked, keep = config.Bus, time.Duration(config.Holds.Journal.Age)
	}
	if _, err := asked.parse(keep); err != nil {
		fmt.Fprintln(stderr, "holdfast:", err)
		return exitConfig
	}
	ctx, cancel := context.WithTimeout(context.Background(), busWait)
	defer cancel()
	lines, err := bus.Init(ctx, asked.URL, asked.options(keep))
	for _, line := range lines {
		fmt.Fprintln(stdout, line)
	}
	if err != nil {
		fmt.Fprintln(stderr, "holdfast:", err)
		return exitFailed
	}
	return exitOK
}

// bus asks the engine where its log stands, and says how long that took.
func (e *examination) bus(config *fileConfig) {
	if config.Bus.URL == "memory" {
		e.ok("bus", "is memory: events stay in the process that they were published to, and there is nothing to reach")
		return
	}
	parsed, err := config.Bus.parse(time.Duration(config.Holds.Journal.Age))
	if err != nil {
		e.fail(exitConfig, "bus", "correct the URL", "%v", err)
		return
	}
	opened := parsed.Open()
	defer opened.Close()
	ctx, cancel := context.WithTimeout(context.Background(), busWait)
	defer cancel()
	began := time.Now()
	_, err = opened.State(ctx)
	first := time.Since(began)
	if err != nil {
		e.fail(exitOK, "bus", "see that the engine runs and can be reached from here; PostgreSQL is prepared with holdfast bus init", "%s: %v", parsed, err)
		return
	}
	began = time.Now()
	s, err := opened.State(ctx)
	took := time.Since(began)
	if err != nil {
		e.fail(exitOK, "bus", "see the engine's own log", "%s answered once and then: %v", parsed, err)
		return
	}
	if took > slowBus {
		e.warn("bus", "place the engine nearer: each publish waits for it once", "%s answers in %v; connecting took %v", parsed, took.Round(time.Millisecond), first.Round(time.Millisecond))
		return
	}
	e.ok("bus", "%s answers in %v (connecting took %v); its log stands at %d", parsed, took.Round(10*time.Microsecond), first.Round(time.Millisecond), s.Head)
}

// slowBus is how long an engine may take before it is worth a word.
const slowBus = 50 * time.Millisecond
