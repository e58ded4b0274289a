package main

import "time"

const (
	hub     = "holds/hub.go"
	journal = "holds/journal.go"
	loop    = "holds/loop.go"
	deliver = "holds/deliver.go"
	bury    = "holds/bury.go"
	tick    = "holds/tick.go"
	sse     = "holds/sse.go"

	// thousands opens two thousand holds while four publish.
	thousands = "^TestHolds_EveryClientHasEveryEventAfterItsPositionOnceInOrder$"
	// histories runs thousands of random histories against an oracle.
	histories = "^TestHub_EveryHistoryGivesEveryEventOnceInOrderOrAGap$"
)

// holdRules are those of holds: each is a way to lose an event in silence, to
// double one, or to hurt somebody who is not concerned.
var holdRules = []rule{
	// ---- Every event once, in order, or a gap.
	{
		name: "join-at-the-head", // not at the position of the request
		file: hub, find: "hd.cursor = o.from", replace: "hd.cursor = h.head.Load()",
		pkg: "holds", run: histories,
	},
	{
		name: "gap-not-told",
		file: hub, find: "o.gap = hd.claim == 0 && !h.known(o.from)", replace: "o.gap = false",
		pkg: "holds", run: histories,
	},
	{
		name: "position-of-another-run-taken-for-ours",
		file: hub, find: "position%idStep == h.tag.Load() && ", replace: "",
		pkg: "holds", run: histories,
	},
	{
		name: "floor-not-checked-while-catching-up",
		file: hub, find: "if hd.start(s) < s.room.floor {", replace: "if false {",
		pkg: "holds", run: histories,
	},
	{
		name: "floors-forgotten",
		file: journal, find: "j.floors[slot] = max(j.floors[slot], r.floor)", replace: "j.floors[slot] = 0",
		pkg: "holds", run: histories,
	},
	{
		name: "overflow-in-silence",
		file: loop, find: "if overflow {", replace: "if false && overflow {",
		pkg: "holds", run: histories,
	},
	{
		name: "event-overtakes-a-walk",
		file: deliver, find: "\tl.owed(h, e.id)\n", replace: "",
		pkg: "holds", run: histories,
	},
	{
		name: "position-before-the-gap",
		file: sse, find: "\tif o.gap {", replace: "\tbuf = appendPosition(buf, position)\n\tif o.gap {",
		pkg: "holds", run: histories,
	},
	{
		name: "replay-not-atomic", // an event between the last fetch and going live
		file: hub, find: "\tif len(into) == 0 {\n\t\thd.cursor", replace: "\tif len(into) == 0 {\n\t\th.mu.Unlock()\n\t\ttime.Sleep(time.Millisecond)\n\t\th.mu.Lock()\n\t\thd.cursor",
		pkg: "holds", run: thousands,
		timeout: 120 * time.Second, timeoutBites: true,
	},
	{
		name: "a-lock-for-each-step", // numbers and journal not under one, as with a lock for each channel
		file: hub, find: "\te.setID(id)\n", replace: "\te.setID(id)\n\th.head.Store(id)\n\th.mu.Unlock()\n\ttime.Sleep(time.Microsecond)\n\th.mu.Lock()\n",
		pkg: "holds", run: thousands,
		timeout: 120 * time.Second, timeoutBites: true,
	},

	// ---- Nobody is hurt who is not concerned.
	{
		name: "outboxes-unbounded-together",
		file: "holds/loop.go", find: "\tl.relieve()\n\tl.bury()\n", replace: "\tl.bury()\n",
		pkg: "holds", run: "^TestRelieve_OfClientsThatAreBehindThoseThatTookNothingForTheLongestAreEnded$",
	},
	{
		name: "those-behind-ended-latest-first",
		file: "holds/kept.go", find: "return a.since.Compare(b.since)", replace: "return b.since.Compare(a.since)",
		pkg: "holds", run: "^TestRelieve_OfClientsThatAreBehindThoseThatTookNothingForTheLongestAreEnded$",
	},
	{
		name: "kept-event-counted-for-each-hold",
		file: "holds/kept.go", find: "\tk.bytes -= s.bytes\n\ts.pieces++", replace: "\tk.own += s.bytes\n\ts.pieces++",
		pkg: "holds", run: "^TestRelieve_WhatManyWaitForCountsOnce$",
	},
	{
		name: "outbox-unbounded",
		file: deliver, find: "return h.state == live && h.outbox != nil && h.outbox.behind+more > l.limits.Load().OutboxBytes", replace: "return false",
		pkg: "holds", run: "^TestSlow_TheBoundIsOfWhatIsBehindTheFirstThatWaits$",
	},
	{
		name: "descriptor-without-generation",
		file: loop, find: " || l.table[slot].generation != generation {", replace: " {",
		pkg: "holds", run: "^TestLoop_LookupFindsNothingByThePlaceOfAHoldThatLeft$",
	},
	{
		name: "stalled-client-stays",
		file: tick, find: "if now.Sub(o.since) < bound {", replace: "if true {",
		pkg: "holds", run: "^TestStall_AClientThatTakesNoByteForTheBoundIsReset$",
	},
	{
		name: "no-heartbeat",
		file: tick, find: "if !quiet || !beat || h.poll != nil ||", replace: "if !quiet || !beat || true || h.poll != nil ||",
		pkg: "holds", run: "^TestHeartbeat_AQuietHoldGetsACommentAndEveryFourthTimeThePosition$",
	},
	{
		name: "closed-before-it-left-its-channels",
		file: bury, find: "\t\tl.depart(e.hold)\n", replace: "",
		pkg: "holds", run: histories,
	},
	{
		name: "line-endings-in-data-taken-as-they-are",
		file: "holds/event.go", find: "\t\tbuf = appendData(buf, p.Data)\n", replace: "\t\tbuf = append(append(append(buf, \"data: \"...), p.Data...), '\\n')\n",
		pkg: "holds", run: "^TestFrame_IsThePublicationInLines$",
	},
	{
		name: "poll-answered-with-the-last-event",
		file: bury, find: "	if h.poll == nil || h.poll.answer == nil {\n\t\tl.settle", replace: "	{\n\t\tl.settle",
		pkg: "holds", run: "^TestPoll_",
		timeout: 60 * time.Second, timeoutBites: true,
	},

	// ---- From an answer to a hold.
	{
		name: "position-taken-after-the-view",
		file: "proxy/hold.go", find: "Channels: in.Channels, Position: c.position,", replace: "Channels: in.Channels, Position: c.site.cfg.Holds.Position(),",
		pkg: "proxy", run: "^TestHold_",
		timeout: 90 * time.Second, timeoutBites: true,
	},
	{
		name: "position-not-taken-anew",
		file: "lanes/exchange.go", find: "if ex.request.Stamp != nil {", replace: "if ex.request.Stamp != nil && ex.sentAt.IsZero() && !ex.resent && ex.slot.giveUp.IsZero() {",
		pkg: "proxy", run: "^TestHold_ThePositionIsTakenAnewWhereTheTargetWasDown$",
		timeout: 60 * time.Second, timeoutBites: true,
	},
	{
		name: "held-before-the-answer-is-whole",
		file: "proxy/hold.go", find: "	spec.Body, err = c.readHoldBody(ex, rt.Lane)\n", replace: "	spec.Body, err = nil, nil\n",
		pkg: "proxy", run: "^TestHold_AnInstructionThatCannotBeFollowedIsBadHold$",
		timeout: 60 * time.Second, timeoutBites: true,
	},
	{
		name: "instruction-shown-to-clients",
		file: headers, find: "if http1.HasPrefixFold(f.Name, \"m0-\") || http1.HasPrefixFold(f.Name, \"grip-\") {\n\t\t\t\tcontinue", replace: "if http1.HasPrefixFold(f.Name, \"grip-\") {\n\t\t\t\tcontinue",
		pkg: "proxy", run: "^TestHold_NothingOfAnInstructionReachesAClient",
		timeout: 60 * time.Second, timeoutBites: true,
	},
	{
		name: "passing-reasons-as-errors-to-an-eventsource",
		file: "proxy/errors.go", find: "if !passes[f.reason] || !r.isEventSource() {", replace: "if true {",
		pkg: "proxy", run: "^TestPassing_",
		timeout: 60 * time.Second, timeoutBites: true,
	},
	{
		name: "origin-unchecked",
		file: "proxy/hold.go", find: "if !holds.OriginAllowed(string(f.Value), string(c.req.host), of) {", replace: "if len(f.Name) < 0 {",
		pkg: "proxy", run: "^TestGrantRoute_APageOfAnotherOriginIsDenied$",
		timeout: 60 * time.Second, timeoutBites: true,
	},
	{
		name: "publishing-without-the-key",
		file: "cmd/holdfast/admin.go", find: "\tif len(a.keys) == 0 {\n\t\treturn a.guard(true, answer)", replace: "\tif true {\n\t\treturn a.guard(true, answer)",
		pkg: "cmd/holdfast", run: "^TestPublish",
		timeout: 90 * time.Second, timeoutBites: true,
	},

	// ---- WebSockets.
	{
		name: "mask-not-required",
		file: "holds/frame.go", find: "if b[1]&bitMask == 0 {", replace: "if false {",
		pkg: "holds", run: "^TestFrames_",
	},
	{
		name: "text-unchecked-across-fragments",
		file: "holds/frame.go", find: "if p.message == opText && !p.checkText(last) {", replace: "if false {",
		pkg: "holds", run: "^TestFrames_",
	},
	{
		name: "message-to-the-first-lane",
		file: "proxy/inbound.go", find: "lane := site.lanes[r.Lane]", replace: "var lane *lanes.Lane\n\tfor _, lane = range site.lanes {\n\t\tbreak\n\t}",
		pkg: "cmd/holdfast", run: "^TestSocket_MessagesGoThroughTheLaneThatApprovedItAndFramesOfATunnelAreNotMessages$",
		timeout: 120 * time.Second, timeoutBites: true,
	},
	{
		name: "inbound-dropped-when-the-lane-is-full",
		file: lane, find: "return l.acquire(ctx, true) }", replace: "return l.acquire(ctx, false) }",
		pkg: "lanes", run: "^TestAwait_",
	},
}
