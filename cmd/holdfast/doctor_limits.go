package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
)

// The budget: what the configuration may take, against what the doctor's own
// process is allowed. A service that is started with other limits has those.

// fewClients is below what a process that holds clients is likely to need.
const fewClients = 1000

// descriptors says how many clients the limit of open files leaves room for.
func (e *examination) descriptors(config *fileConfig) {
	soft, hard := descriptorLimits()
	if soft == 0 {
		return
	}
	const check, raise = "descriptors", "raise the limit (ulimit -n, LimitNOFILE=)"
	reserve, clients, held := config.descriptorReserve(), config.connections(), config.holdLimit()
	room := max(soft-reserve, 1)
	switch {
	case clients > room:
		e.warn(check, raise+fmt.Sprintf(", or lower limits.connections to %d", room), "limits.connections is %d, and of %d that may be open %d are for lanes and files: there is room for %d clients",
			clients, soft, reserve, room)
	case held > clients:
		e.warn(check, "lower holds.limit, or raise "+cmp.Or(clientsLimit(config), "the limit (ulimit -n, LimitNOFILE=)"),
			"holds.limit is %d, more than the %d clients that there can be at once", held, clients)
	case clients < fewClients && config.Limits.Connections == 0:
		e.warn(check, raise, "%d may be open, %d of them for lanes and files: %d clients at once, %d of them held", soft, reserve, clients, held)
	default:
		e.ok(check, "%d may be open, %d of them for lanes and files: %d clients at once, %d of them held", soft, reserve, clients, held)
	}
	e.with(numbers{"soft": float64(soft), "hard": float64(hard), "reserve": float64(reserve), "connections": float64(clients), "holds": float64(held)})
}

// clientsLimit names the key that bounds clients; "": descriptors do.
func clientsLimit(config *fileConfig) string {
	if config.Limits.Connections > 0 {
		return "limits.connections"
	}
	return ""
}

// holdCost is what a quiet hold is reckoned at: up to 2 KiB here, where a GRIP
// stream with its link is the dearest, and 4 KiB for the kernel's socket.
const holdCost = 6 << 10

// memory adds up what the configuration lets the process keep. What waits for
// slow clients is bounded for all of them together, by as much as the journal.
func (e *examination) memory(config *fileConfig) {
	limit, hard := memoryLimit("/")
	if limit > 0 {
		e.memoryWithin(config, limit, hard)
	}
}

func (e *examination) memoryWithin(config *fileConfig, limit int64, hard bool) {
	const check = "memory"
	journal := int64(config.Holds.Journal.Bytes)
	fixed := int64(config.Limits.Memory) + 2*journal + ownMemory
	held := int64(config.holdLimit())
	room := max(limit-fixed, 0) / holdCost
	of := shownBytes(limit) + " that this machine has available"
	if hard {
		of = shownBytes(limit) + " that the cgroup allows"
	}
	sum := fmt.Sprintf("limits.memory %s, holds.journal.bytes %s, as much again for slow clients and %s for the rest: %s of %s",
		shownBytes(int64(config.Limits.Memory)), shownBytes(journal), shownBytes(ownMemory), shownBytes(fixed), of)
	switch {
	case fixed > limit:
		e.warn(check, "lower limits.memory or holds.journal.bytes, or give the process more", "%s", sum)
	case held > room && (hard || config.Holds.Limit > 0):
		e.warn(check, fmt.Sprintf("set holds.limit to %d, or give the process more", room), "%s; what is left is room for %d quiet holds at about %s each, and there may be %d",
			sum, room, shownBytes(holdCost), held)
	default:
		e.ok(check, "%s; what is left is room for %d quiet holds at about %s each", sum, room, shownBytes(holdCost))
	}
	e.with(numbers{"limit": float64(limit), "fixed": float64(fixed), "hold": holdCost, "room": float64(room), "holds": float64(held)})
}

// spool says whether large bodies have the room that they are promised.
func (e *examination) spool(config *fileConfig) {
	limit := int64(config.Limits.Spool.Bytes)
	dir := cmp.Or(config.Limits.Spool.Dir, os.TempDir())
	check := "limits.spool " + dir
	if limit == 0 {
		e.ok("limits.spool", "is off: what memory has no room for goes at its client's pace, its slot held")
		return
	}
	free, inMemory, err := roomIn(dir)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return
	case err != nil:
		e.warn(check, "make the directory and let this user write there, or name another in limits.spool.dir", "cannot be used: %v; large bodies go at their client's pace, their slots held", err)
		return
	case inMemory:
		e.warn(check, "name a directory on a disk in limits.spool.dir, or lower limits.spool.bytes", "is a tmpfs: up to %s of large bodies there are memory, which no limit counts", shownBytes(min(limit, free)))
	case free < limit:
		e.warn(check, "make room, name another directory in limits.spool.dir, or lower limits.spool.bytes", "has %s free, and limits.spool.bytes is %s", shownBytes(free), shownBytes(limit))
	default:
		e.ok(check, "has %s free for up to %s of large bodies", shownBytes(free), shownBytes(limit))
	}
	e.with(numbers{"free": float64(free), "limit": float64(limit)})
}

// shownBytes rounds a size for reading.
func shownBytes(n int64) string {
	for _, unit := range []struct {
		name  string
		bytes int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= unit.bytes && n%unit.bytes == 0 {
			return fmt.Sprintf("%d%s", n/unit.bytes, unit.name)
		}
		if n >= unit.bytes {
			return fmt.Sprintf("%.1f%s", float64(n)/float64(unit.bytes), unit.name)
		}
	}
	return fmt.Sprintf("%dB", n)
}
