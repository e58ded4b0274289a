package main

import "time"

// rule is one guard, how to take it away, and the test that must notice.
type rule struct {
	name string // for -only
	// In file, from the module's root, find occurs exactly once and becomes
	// replace, and what comes of it still compiles.
	file, find, replace string
	// The test: a package, from the module's root, and a -run pattern.
	pkg, run string
	// timeoutBites: the test may notice by not ending within timeout.
	timeoutBites bool
	timeout      time.Duration // of the test; 0: defaultTimeout
}

const (
	lane     = "lanes/lane.go"
	park     = "lanes/park.go"
	slot     = "lanes/slot.go"
	exchange = "lanes/exchange.go"
	conn     = "upstream/conn.go"
	wire     = "proxy/wire.go"
	headers  = "proxy/headers.go"
)

// corpus is one case of the wire corpus on a forwarded route.
func corpus(name string) string {
	return "^TestWire_AForwardedRouteSeesEachRequestWholeOrNotAtAll$/^" + name + "$"
}

// rules are kept by subject. One guard each.
var rules = []rule{
	// ---- Slots: who may use the upstream.
	{
		name: "slot-released-twice",
		file: lane, find: "if slot.state == free {", replace: "if false {",
		pkg: "lanes", run: "^TestSlot_ReleasedTwicePanics$",
	},
	{
		name: "closed-lane-lets-wait",
		file: lane, find: "	if l.closed {\n\t\tdefer l.mu.Unlock()\n\t\treturn nil, l.refuse(Draining)\n\t}\n\treturn l.wait(ctx, giveUp, true)", replace: "\treturn l.wait(ctx, giveUp, true)",
		pkg: "lanes", run: "^TestSlot_WhoseTargetIsGoneIsRefusedByAClosedLane$",
		timeout: 30 * time.Second, timeoutBites: true,
	},
	{
		name: "slot-lost-at-release",
		file: lane, find: "slot.place.free = append(slot.place.free, slot)", replace: "",
		pkg: "lanes", run: "^TestLane_ASlotThatWasReleasedIsGivenOutAgain$",
	},
	{
		name: "slot-released-at-abort",
		file: exchange, find: "ex.slot.abandon()\n\t\tgo ex.drain()", replace: "ex.slot.closeConn()\n\t\tex.slot.Release()",
		pkg: "lanes", run: "^TestExchange_AnAbandonedSlotStaysTakenUntilTheLastByte$",
	},
	{
		name: "slot-released-at-the-head-of-an-abandoned-answer",
		file: exchange, find: "err := ex.skipAnswer()", replace: "err := io.EOF",
		pkg: "lanes", run: "^TestExchange_AnAbandonedSlotStaysTakenUntilTheLastByte$",
	},
	{
		name: "abandon-limit-ignored",
		file: exchange, find: "slot.deadline = time.Now().Add(slot.Target().AbandonLimit())", replace: "slot.deadline = time.Time{}",
		pkg: "lanes", run: "^TestExchange_AViewWhoseEndIsNotSeenKeepsItsSlotForASecondAfterTheClose$/^AbandonLimit$",
		timeout: 5 * time.Second, timeoutBites: true,
	},
	{
		name: "view-closed-without-its-second",
		file: slot, find: "time.AfterFunc(viewEnds, s.Release)", replace: "s.Release()",
		pkg: "lanes", run: "^TestExchange_AViewWhoseEndIsNotSeenKeepsItsSlotForASecondAfterTheClose$",
	},
	{
		name: "view-closed-and-not-counted",
		file: slot, find: "s.lane.closedOnView++", replace: "",
		pkg: "lanes", run: "^TestExchange_AViewWhoseEndIsNotSeenKeepsItsSlotForASecondAfterTheClose$",
	},

	// ---- Queues: who is next, and who need not wait.
	{
		name: "order-broken",
		file: lane, find: "l.queue.pushBack(w)", replace: "l.queue.pushFront(w)",
		pkg: "lanes", run: "^TestLane_ServesInTheOrderOfComing$",
	},
	{
		name: "order-broken-among-others",
		file: lane, find: "l.queue.pushBack(w)", replace: "l.queue.pushFront(w)",
		pkg: "lanes", run: "^TestLane_NoLostWakeUp$",
	},
	{
		name: "wake-up-lost-at-release",
		file: lane, find: "\tl.serve()\n", replace: "",
		pkg: "lanes", run: "^TestLane_NoLostWakeUp$",
	},
	{
		name: "wake-up-lost-when-a-target-is-back",
		file: park, find: "\tl.serve()\n", replace: "",
		pkg: "lanes", run: "^TestLane_NoLostWakeUp$",
	},
	{
		name: "wake-up-lost-with-a-client-that-left",
		file: lane, find: "if ctx.Err() != nil {\n\t\tslot.Release()\n", replace: "if ctx.Err() != nil {\n",
		pkg: "lanes", run: "^TestLane_TheSlotOfAClientThatLeftGoesToTheNext$",
	},
	{
		name: "slot-for-a-client-that-left",
		file: lane, find: "if ctx.Err() != nil {\n\t\tslot.Release()\n", replace: "if false {\n\t\tslot.Release()\n",
		pkg: "lanes", run: "^TestLane_TheSlotOfAClientThatLeftGoesToTheNext$",
	},
	{
		name: "queue-longer-by-one",
		file: lane, find: "l.queue.len >= l.cfg.Queue", replace: "l.queue.len > l.cfg.Queue",
		pkg: "lanes", run: "^TestLane_RefusesTheFirstRequestBeyondItsQueue$",
	},
	{
		name: "queue-shorter-by-one",
		file: lane, find: "l.queue.len >= l.cfg.Queue", replace: "l.queue.len+1 >= l.cfg.Queue",
		pkg: "lanes", run: "^TestLane_RefusesTheFirstRequestBeyondItsQueue$",
	},
	{
		name: "queue-timeout-ignored",
		file: lane, find: "time.NewTimer(time.Until(giveUp))", replace: "time.NewTimer(time.Hour)",
		pkg: "lanes", run: "^TestLane_WaitsForQueueTimeoutAndNoLonger$",
	},
	{
		name: "front-of-the-queue-lost",
		file: lane, find: "return l.wait(ctx, giveUp, true)", replace: "return l.wait(ctx, giveUp, false)",
		pkg: "lanes", run: "^TestSlot_WhoseTargetIsGoneWaitsInFront$",
	},
	{
		name: "draining-leaves-them-waiting",
		file: lane, find: "l.refuseAll(Draining)", replace: "",
		pkg: "lanes", run: "^TestLane_CloseRefusesWhoWaitsAndWhoeverComes$",
	},

	// ---- Targets that are down.
	{
		name: "park-ignored",
		file: park, find: "l.refuseAll(UpstreamDown)", replace: "",
		pkg: "lanes", run: "^TestLane_UpstreamDownAtParkAndFromThenOnAtOnce$",
	},
	{
		name: "slot-at-a-target-that-is-down",
		file: lane, find: "if p.up && len(p.free) > 0 &&", replace: "if len(p.free) > 0 &&",
		pkg: "lanes", run: "^TestLane_ATargetThatIsDownTakesItsSlotsOut$",
	},
	{
		name: "load-not-spread",
		file: lane, find: "len(p.slots)-len(p.free) < len(best.slots)-len(best.free)", replace: "false",
		pkg: "lanes", run: "^TestLane_TakesTheTargetThatHasLeastToDo$",
	},
	{
		name: "dealing-begins-anew-with-each-lane",
		file: "upstream/upstream.go", find: "dealt := make([]*Target, n)", replace: "u.next = 0\n\tdealt := make([]*Target, n)",
		pkg: "lanes", run: "^TestUpstream_DealsOnWhereItStopped$",
	},

	// ---- What is sent again, and on which connection.
	{
		name: "post-sent-again",
		file: exchange, find: "ex.request.Again && !ex.resent", replace: "!ex.resent",
		pkg: "lanes", run: "^TestExchange_APOSTIsNeverSentAgain$",
	},
	{
		name: "get-sent-again-and-again",
		file: exchange, find: "ex.request.Again && !ex.resent", replace: "ex.request.Again",
		pkg: "lanes", run: "^TestExchange_AGETIsNotSentAThirdTime$",
	},
	{
		name: "get-sent-again-after-long",
		file: exchange, find: "time.Since(ex.sentAt) < againWithin", replace: "true",
		pkg: "lanes", run: "^TestExchange_AGETThatRanForLongIsNotSentAgain$",
	},
	{
		name: "reuse-unchecked",
		file: slot, find: " && s.conn.Silent() {", replace: " {",
		pkg: "lanes", run: "^TestExchange_ADeadConnectionIsNotUsedAgain$",
	},
	{
		name: "post-on-an-old-connection",
		file: slot, find: "time.Since(s.conn.UsedAt()) < usedLately", replace: "true",
		pkg: "lanes", run: "^TestExchange_APOSTDoesNotGoOutOnAConnectionThatRestedForLong$",
	},

	// ---- Answers.
	{
		name: "surplus-bytes-ignored",
		file: conn, find: "!c.res.KeepAlive || c.r != c.w {", replace: "!c.res.KeepAlive {",
		pkg: "lanes", run: "^TestExchange_AConnectionWithMoreThanItsAnswerIsNotKept$",
	},
	{
		name: "keep-alive-not-offered",
		file: conn, find: "!c.res.KeepAlive || c.r != c.w {", replace: "c.r != c.w {",
		pkg: "lanes", run: "^TestExchange_AConnectionWithMoreThanItsAnswerIsNotKept$",
	},
	{
		name: "truncated-answer-ends-cleanly",
		file: conn, find: "return c.fail(ErrTruncated, err)", replace: "return io.EOF",
		pkg: "lanes", run: "^TestExchange_AGETOfWhichSomeAnswerCameIsNotSentAgain$/^Body$",
	},
	{
		name: "half-sent-connection-kept",
		file: conn, find: "\t\tdefault:\n\t\t\treturn false\n", replace: "\t\tdefault:\n\t\t\treturn true\n",
		pkg: "lanes", run: "^TestExchange_ALargeRequestMayBeAnsweredEarly$",
	},

	// ---- The wire check.
	{
		name: "wire-bare-lf",
		file: "internal/http1/http1.go", find: "if i == 0 || head[from+i-1] != '\\r' {", replace: "if i == 0 {",
		pkg: "proxy", run: corpus("value-lf-field"),
	},
	{
		name: "wire-two-hosts",
		file: wire, find: "*hosts > 1 {", replace: "false {",
		pkg: "proxy", run: corpus("host-twice"),
	},
	{
		name: "wire-two-framings",
		file: wire, find: "if r.chunked && r.length >= 0 {", replace: "if false {",
		pkg: "proxy", run: corpus("coding-with-length"),
	},
	{
		name: "wire-chunk-extensions",
		file: "internal/http1/chunked.go", find: "err := checkExtensions(line[i:]); err != nil", replace: "err := error(nil); err != nil",
		pkg: "proxy", run: corpus("ext-bad-name"),
	},
	{
		name: "wire-underscores",
		file: headers, find: "return kindUnderscore", replace: "return kindPlain",
		pkg: "proxy", run: corpus("drop-underscore"),
	},
	{
		name: "wire-own-fields",
		file: headers, find: `http1.HasPrefixFold(name, "m0-") || `, replace: "",
		pkg: "proxy", run: corpus("drop-own"),
	},
}
