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
	lane      = "lanes/lane.go"
	park      = "lanes/park.go"
	slot      = "lanes/slot.go"
	exchange  = "lanes/exchange.go"
	resize    = "lanes/resize.go"
	ask       = "lanes/ask.go"
	conn      = "upstream/conn.go"
	wire      = "proxy/wire.go"
	headers   = "proxy/headers.go"
	route     = "proxy/route.go"
	peer      = "proxy/peer.go"
	client    = "proxy/client.go"
	local     = "proxy/local.go"
	run       = "cmd/holdfast/run.go"
	histogram = "internal/histogram/histogram.go"
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
		file: lane, find: "	if l.closed {\n\t\tdefer l.mu.Unlock()\n\t\treturn nil, l.refuse(Draining)\n\t}\n\tif l.cfg.Load().Stream", replace: "\tif l.cfg.Load().Stream",
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
		file: lane, find: "l.queue.counted >= l.cfg.Load().Queue {", replace: "l.queue.counted > l.cfg.Load().Queue {",
		pkg: "lanes", run: "^TestLane_RefusesTheFirstRequestBeyondItsQueue$",
	},
	{
		name: "queue-shorter-by-one",
		file: lane, find: "l.queue.counted >= l.cfg.Load().Queue {", replace: "l.queue.counted+1 >= l.cfg.Load().Queue {",
		pkg: "lanes", run: "^TestLane_RefusesTheFirstRequestBeyondItsQueue$",
	},
	{
		name: "queue-timeout-ignored",
		file: lane, find: "time.NewTimer(time.Until(giveUp))", replace: "time.NewTimer(time.Hour)",
		pkg: "lanes", run: "^TestLane_WaitsForQueueTimeoutAndNoLonger$",
	},
	{
		name: "front-of-the-queue-lost",
		file: lane, find: "return l.wait(ctx, &waiter{since: time.Now()}, giveUp, true)", replace: "return l.wait(ctx, &waiter{since: time.Now()}, giveUp, false)",
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

	// ---- A lane whose size and targets change.
	{
		name: "slot-taken-away-given-out-again",
		file: lane, find: "if slot.retired {", replace: "if false {",
		pkg: "lanes", run: "^TestConfigure_ASlotTakenAwayIsNotGivenOutAgain$",
	},
	{
		name: "slot-taken-away-given-out-again-among-others",
		file: lane, find: "if slot.retired {", replace: "if false {",
		pkg: "lanes", run: "^TestLane_NoLostWakeUpWhileItIsResized$",
	},
	{
		name: "busy-slots-never-taken-away",
		file: resize, find: "i >= 0 && staying > n; i-- {", replace: "false; i-- {",
		pkg: "lanes", run: "^TestLane_NoLostWakeUpWhileItIsResized$",
	},
	{
		name: "slot-to-go-replaced-in-vain",
		file: resize, find: "if staying < n && slot.retired {", replace: "if false {",
		pkg: "lanes", run: "^TestConfigure_WhatWasToGoStaysIfTheLaneGrowsInTime$",
	},
	{
		name: "slot-numbers-twice",
		file: resize, find: "for taken[n] {", replace: "for false {",
		pkg: "lanes", run: "^TestConfigure_NumbersAreOfOneSlotEach$",
	},
	{
		name: "wake-up-lost-when-a-lane-grows",
		file: resize, find: "\tl.serve()\n", replace: "",
		pkg: "lanes", run: "^TestConfigure_GrowingServesWhoWaitsInOrder$", timeoutBites: true,
	},
	{
		name: "connection-kept-of-a-slot-that-went",
		file: resize, find: "\tslot.closeConn()\n\tp := slot.place", replace: "\tp := slot.place",
		pkg: "lanes", run: "^TestConfigure_AConnectionGoesWithItsSlot$",
	},
	{
		name: "connections-kept-by-a-lane-that-went",
		file: resize, find: "p.closing = true", replace: "",
		pkg: "lanes", run: "^TestRetire_WhatWaitsRunsAndComesLateIsServedAndNothingIsKept$",
	},

	// ---- Asking whether a target answers.
	{
		name: "busy-is-sick",
		file: ask, find: "return NotAsked, nil", replace: "return Failed, nil",
		pkg: "lanes", run: "^TestAsk_WithoutAFreeSlotThereNobodyIsAsked$",
	},
	{
		name: "target-asked-through-anothers-slot",
		file: ask, find: "p.target == target && p.up", replace: "p.up",
		pkg: "lanes", run: "^TestAsk_WithoutAFreeSlotThereNobodyIsAsked$",
	},
	{
		name: "slot-free-though-its-target-is-silent",
		file: ask, find: "defer ex.Close()", replace: "defer slot.Release()\n\tdefer slot.closeConn()",
		pkg: "lanes", run: "^TestAsk_SilenceKeepsTheSlotUntilTheAnswer$",
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

	// ---- Routes.
	{
		name: "wildcard-beats-literal",
		file: route, find: "if next := n.literals[string(seg)]; next != nil {", replace: "if next := n.literals[string(seg)]; next != nil && n.wildcard == nil {",
		pkg: "proxy", run: "^TestMatch_TheMostSpecificRouteHasIt$/^Segments$",
	},
	{
		name: "wildcard-beats-literal-among-others",
		file: route, find: "if next := n.literals[string(seg)]; next != nil {", replace: "if next := n.literals[string(seg)]; next != nil && n.wildcard == nil {",
		pkg: "proxy", run: "^TestMatch_AgreesWithNetHTTP$",
	},
	{
		name: "wildcard-takes-nothing-too",
		file: route, find: "if n.wildcard != nil && len(seg) > 0 {", replace: "if n.wildcard != nil {",
		pkg: "proxy", run: "^TestMatch_TheMostSpecificRouteHasIt$/^Segments$",
	},
	{
		name: "host-ignored",
		file: route, find: "n := t.hosts[hostName(host)]; n != nil", replace: "n := t.hosts[\"\"]; n != nil",
		pkg: "proxy", run: "^TestMatch_TheMostSpecificRouteHasIt$/^Hosts$",
	},
	{
		name: "any-method-beats-its-own",
		file: route, find: "if rt := m[string(method)]; rt != nil && !slices.Contains(missed, rt) {", replace: "if rt := m[string(method)]; rt != nil && m[\"\"] == nil {",
		pkg: "proxy", run: "^TestMatch_TheMostSpecificRouteHasIt$/^Methods$",
	},
	{
		name: "no-way-back-to-a-wider-route",
		file: route, find: "if rt := s.at(next, after, more); rt != nil {", replace: "if rt := s.at(next, after, more); rt != nil || more {",
		pkg: "proxy", run: "^TestMatch_AgreesWithNetHTTP$",
	},
	{
		name: "allow-without-HEAD",
		file: route, find: "\t\t\tif method == \"GET\" {\n\t\t\t\tlist", replace: "\t\t\tif false {\n\t\t\t\tlist",
		pkg: "proxy", run: "^TestMatch_TheMostSpecificRouteHasIt$/^NotAllowed$",
	},
	{
		name: "allow-of-one-route-only",
		file: route, find: "s.passed = append(s.passed, m)", replace: "s.passed = []methods{m}",
		pkg: "proxy", run: "^TestMatch_TheMostSpecificRouteHasIt$/^NotAllowed$",
	},
	{
		name: "options-answered-for-the-app",
		file: route, find: "if search.options != nil {", replace: "if false {",
		pkg: "proxy", run: "^TestMatch_TheMostSpecificRouteHasIt$/^NotAllowed$",
	},
	{
		name: "route-twice",
		file: route, find: "if other, ok := seen[p.key()]; ok {", replace: "if other, ok := seen[p.key()]; ok && false {",
		pkg: "proxy", run: "^TestMatch_TwoRoutesForTheSameRequestsAreRefused$",
	},
	{
		name: "path-matched-as-it-was-sent",
		file: route, find: "if bytes.IndexByte(decoded, '%') >= 0 {", replace: "if false {",
		pkg: "proxy", run: "^TestMatch_APathIsOnTheLaneOfWhatTheAppSees$",
	},
	{
		name: "path-decoded-twice",
		file: route, find: "decoded = decodePath(decoded)", replace: "decoded = decodePath(decodePath(decoded))",
		pkg: "proxy", run: "^TestMatch_APathIsOnTheLaneOfWhatTheAppSees$",
	},
	{
		name: "path-cleaned",
		file: route, find: "\tsearch := search{method: method, missed: missed}", replace: "\tdecoded = []byte(path.Clean(string(decoded)))\n\tsearch := search{method: method, missed: missed}",
		pkg: "proxy", run: "^TestMatch_APathIsOnTheLaneOfWhatTheAppSees$",
	},
	{
		name: "guarded-path-compared-raw-only",
		file: route, find: "string(raw) == guarded || string(decoded) == guarded {", replace: "string(raw) == guarded {",
		pkg: "proxy", run: "^TestMatch_AGuardedPathIsReachedInNoSpelling$",
	},
	{
		name: "guarded-path-not-cleaned",
		file: route, find: "path.Clean(string(decoded)) == guarded {", replace: "string(decoded) == guarded {",
		pkg: "proxy", run: "^TestMatch_AGuardedPathIsReachedInNoSpelling$",
	},
	{
		name: "config-half-swapped",
		file: "proxy/proxy.go", find: "\tt, err := newTable(routes, guarded)",
		replace: "\tif old := s.site.Load(); old != nil {\n\t\ts.site.Store(&site{cfg, old.routes, old.lanes, old.signer})\n\t}\n\tt, err := newTable(routes, guarded)",
		pkg:     "proxy", run: "^TestConfigure_WhatIsRefusedChangesNothing$",
	},

	// ---- Peers, and what they say of the way.
	{
		name: "forwarded-fields-of-an-untrusted-peer",
		file: headers, find: "case !trusted:", replace: "case false:",
		pkg: "proxy", run: "^TestPeer_WhatIsSaidOfTheWayIsBelievedOfTrustedPeersOnly$",
	},
	{
		name: "proto-of-an-untrusted-peer-said-each-time",
		file: headers, find: "c.server.told.Do(c.tellUntrusted)", replace: "c.tellUntrusted()",
		pkg: "proxy", run: "^TestPeer_AnUntrustedPeersProtoIsSaidOnceInTheLog$",
	},
	{
		name: "client-as-an-untrusted-peer-says",
		file: peer, find: "if !c.peer.trusted {", replace: "if false {",
		pkg: "proxy", run: "^TestPeer_TheClientIsTheLastAddressThatIsNoProxyOfOurs$/^Untrusted$",
	},
	{
		name: "client-as-the-client-says",
		file: peer, find: "!c.site.cfg.Trusted.has(addr) {", replace: "false {",
		pkg: "proxy", run: "^TestPeer_TheClientIsTheLastAddressThatIsNoProxyOfOurs$/^SpoofedLoopback$",
	},
	{
		name: "unix-peers-all-trusted",
		file: peer, find: "return peer{trusted: t.Unix}", replace: "return peer{trusted: true}",
		pkg: "proxy", run: "^TestPeer_WhatIsSaidOfTheWayIsBelievedOfTrustedPeersOnly$/^UnixUntrusted$",
	},
	{
		name: "any-request-id-kept",
		file: headers, find: "f.kind == kindRequestID && wellFormedID(f.Value) {", replace: "f.kind == kindRequestID {",
		pkg: "proxy", run: "^TestRequestID_AWellFormedOneIsKeptAndAnyOtherMadeAnew$",
	},
	{
		name: "request-id-added-to-the-apps-own",
		file: headers, find: "\t\t\thasID = true\n", replace: "",
		pkg: "proxy", run: "^TestRequestID_TheAppsOwnInAnAnswerIsTheOnlyOne$",
	},

	// ---- Answers of our own, and the drain.
	{
		name: "wire-check-after-local-answers",
		file: "proxy/head.go", find: "return true, c.req.parseFields(fields)",
		replace: "f = c.req.parseFields(fields)\n\tif rt, _ := c.site.routes.find(&c.req); rt != nil && rt.Lane == nil {\n\t\tf = nil\n\t}\n\treturn true, f",
		pkg:     "proxy", run: "^TestWire_ALocalRouteRefusesWhatAForwardedOneRefuses$/^host-twice$",
	},
	{
		name: "panic-not-recovered",
		file: local, find: "if p := recover(); p != nil {", replace: "if p := any(nil); p != nil {",
		pkg: "proxy", run: "^TestLocal_APanicIsAnAnswerAndNamedInTheLog$/^TakenOver$",
	},
	{
		name: "panic-not-logged",
		file: local, find: "\t\t\tc.logFault(f)\n", replace: "",
		pkg: "proxy", run: "^TestLocal_APanicIsAnAnswerAndNamedInTheLog$",
	},
	{
		name: "told-to-send-what-nobody-takes",
		file: client, find: "if c.req.expect && c.req.hasBody() {", replace: "if false {",
		pkg: "proxy", run: "^TestLocal_AnExpectOfARouteThatTakesNoBodyIsToldNotToSend$",
	},
	{
		name: "drain-told-late",
		file: client, find: "c.server.state.Load() == serving", replace: "c.server.state.Load() != closing",
		pkg: "proxy", run: "^TestDrain_EveryAnswerIsTheLastOfItsConnection$",
	},
	{
		name: "health-onto-a-lane",
		file: run, find: "proxy.Route{Match: path, Answer: answer})", replace: "proxy.Route{Match: path, Lane: w.lanes[w.config.laneNames()[0]]})\n\t\t\t_ = answer",
		pkg: "cmd/holdfast", run: "^TestLoop_HealthAndFixedAnswersWhileEverySlotIsHeld$",
	},
	{
		name: "local-route-onto-a-lane",
		file: run, find: "route.Respond = r.Respond.respond()", replace: "route.Lane = w.lanes[w.config.laneNames()[0]]",
		pkg: "cmd/holdfast", run: "^TestLoop_HealthAndFixedAnswersWhileEverySlotIsHeld$",
	},
	{
		name: "bucket-without-its-bound",
		file: histogram, find: "d > Bounds[i] {", replace: "d >= Bounds[i] {",
		pkg: "internal/histogram", run: "^TestHistogram_ADurationCountsUpToItsBoundAndNotBelow$",
	},

	// ---- Bodies and streams.
	{
		name: "spool-file-keeps-its-name",
		file: "proxy/spool.go", find: "if err := os.Remove(file.Name()); err != nil {", replace: "if err := error(nil); err != nil {",
		pkg: "proxy", run: "^TestSpool_TakesWhatItsClientDoesNot$",
	},
	{
		name: "spool-room-not-given-back",
		file: "proxy/spool.go", find: "func (f *spooled) close() {\n\tf.spool.give(f.size)", replace: "func (f *spooled) close() {",
		pkg: "proxy", run: "^TestUpload_GoesToAFileWithoutAName$",
		timeout: 45 * time.Second, timeoutBites: true,
	},
	{
		name: "backlog-out-of-order",
		file: "proxy/relay.go", find: "fits := caughtUp && b.bytes", replace: "fits := b.bytes",
		pkg: "proxy", run: "^TestSpool_WhatComesLaterGoesBehindIt$",
	},
	{
		name: "written-at-once-before-what-waits",
		file: "proxy/relay.go", find: "if r.written == nil || r.backlog.rests() {", replace: "if true {",
		pkg: "proxy", run: "^(TestRelay_WhatGoesAtOnceGoesBehindWhatWaited|TestSpool_WhatComesLaterGoesBehindIt)$",
		timeout: 60 * time.Second, timeoutBites: true,
	},
	{
		name: "last-chunk-left-out",
		file: "proxy/relay.go", find: "if err == io.EOF && r.framing == framedChunked {", replace: "if false {",
		pkg: "proxy", run: "^TestRelay_WhatGoesAtOnceGoesBehindWhatWaited$/^Chunked$",
		timeout: 60 * time.Second, timeoutBites: true,
	},
	{
		name: "request-allocates-more",
		file: "upstream/conn.go", find: "c.pieces = c.both[:]", replace: "c.pieces = net.Buffers{head, body}",
		pkg: "proxy", run: "^TestAllocations_EachKindOfRequestStaysWithinItsBudget$",
	},
	{
		name: "leftovers-in-the-midst-of-a-burst",
		file: "holds/leftovers.go", find: "now != opened {", replace: "now < opened {",
		pkg: "holds", run: "^TestLeftovers_GoBackOnceManyHoldsWereOpenedAndNoMoreAre$",
	},
	{
		name: "leftovers-once-and-never-again",
		file: "holds/leftovers.go", find: "\t\tl.due.Store(false)\n", replace: "",
		pkg: "holds", run: "^TestLeftovers_GoBackOnceManyHoldsWereOpenedAndNoMoreAre$",
	},
	{
		name: "waits-not-noted",
		file: "cmd/holdfast/profile.go", find: "\truntime.SetBlockProfileRate(10_000) // ns: shorter waits are noted now and then\n", replace: "",
		pkg: "cmd/holdfast", run: "^TestProfile_WaitsAreNotedWhileTheyAreAskedForAndNoLonger$",
	},
	{
		name: "waits-noted-for-ever",
		file: "cmd/holdfast/profile.go", find: "\tdefer runtime.SetMutexProfileFraction(0)\n", replace: "",
		pkg: "cmd/holdfast", run: "^TestProfile_WaitsAreNotedWhileTheyAreAskedForAndNoLonger$",
	},
	{
		name: "full-spool-cuts",
		file: "proxy/relay.go", find: "b.server.tellSpool()\n\t\tb.change.Wait()", replace: "b.gone = true",
		pkg: "proxy", run: "^TestSpool_FullIsSlowerAndNothingElse$",
	},
	{
		name: "uploads-not-spooled",
		file: "proxy/body.go", find: "return b.file.append(piece) == nil", replace: "return false",
		pkg: "proxy", run: "^TestUpload_GoesToAFileWithoutAName$",
		timeout: 45 * time.Second, timeoutBites: true,
	},
	{
		name: "closed-side-of-a-stream-ignored",
		file: "proxy/stream.go", find: "c.attachEndless()", replace: "",
		pkg: "proxy", run: "^TestStream_AClientThatLeavesWithoutReadingIsLeft$",
		timeout: 45 * time.Second, timeoutBites: true,
	},
	{
		name: "trailers-unfiltered",
		file: "proxy/stream.go", find: "default:\n\t\t\tcontinue\n\t\t}\n\t\tif names(named, name) {", replace: "default:\n\t\t}\n\t\tif names(named, name) {",
		pkg: "proxy", run: "^TestStream_ATrailerIsNoWayAroundTheFieldsThatAreOurs$",
	},
	{
		name: "truncated-upload-ends-cleanly",
		file: "upstream/conn.go", find: "if err = c.source.Send(c.nc); err != nil && !isWriteError(err) {", replace: "if err = c.source.Send(c.nc); false {",
		pkg: "proxy", run: "^TestStream_AFaultInTheUploadIsNoCleanEndOfTheAnswer$",
		timeout: 45 * time.Second, timeoutBites: true,
	},
	{
		name: "tunnel-outlives-one-side",
		file: "proxy/tunnel.go", find: "	t.client.SetDeadline(past)\n\tt.app.SetDeadline(past)", replace: "",
		pkg: "proxy", run: "^TestTunnel_AResetOfOneSideEndsTheOther$",
		timeout: 45 * time.Second, timeoutBites: true,
	},
	{
		name: "tunnel-forgets-early-frames",
		file: "proxy/tunnel.go", find: "sent := c.buf[c.r:c.w]", replace: "sent := c.buf[c.w:c.w]",
		pkg: "cmd/holdfast", run: "^TestTunnel_FramesThatComeWithTheRequestAreNotLost$",
		timeout: 90 * time.Second, timeoutBites: true,
	},
	{
		name: "drain-bound-counted-from-the-delays-end",
		file: "cmd/holdfast/life.go", find: "h.stopAll(time.Until(bound))", replace: "h.stopAll(time.Duration(cfg.Bound) + time.Until(bound)*0)",
		pkg: "cmd/holdfast", run: "^TestDrain_",
		timeout: 120 * time.Second,
	},
}
