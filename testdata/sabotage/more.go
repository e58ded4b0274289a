package main

import "time"

const (
	inbound     = "holds/inbound.go"
	publication = "holds/publication.go"
	hold        = "proxy/hold.go"
	grant       = "proxy/grant.go"
	forward     = "proxy/forward.go"
	head        = "proxy/head.go"
	requestBody = "proxy/body.go"
	admin       = "cmd/holdfast/admin.go"
	config      = "cmd/holdfast/config_check.go"

	// invalid reads each file of testdata/config/invalid, which must be refused
	// with the sentences that stand in it.
	invalid = "^TestConfig_EachInvalidFileIsRefusedWithItsSentences$"
)

// moreRules are those of the invariants and of the contract's guards that the
// other two tables leave out.
var moreRules = []rule{
	// ---- Slots and holds (H1), and when a slot is free.
	{
		name: "slot-kept-by-a-hold",
		file: exchange, find: "\tex.requestDone()\n\tex.slot.releaseAt(ended)\n}\n\n// requestDone", replace: "\tex.requestDone()\n\t_ = ended\n}\n\n// requestDone",
		pkg: "proxy", run: "^TestHold_ASlotServesOthersWhileItsClientIsHeld$",
		timeout: 45 * time.Second, timeoutBites: true,
	},
	{
		name: "slot-kept-behind-the-last-byte",
		file: exchange, find: "\tex.requestDone()\n\tex.slot.releaseAt(ended)\n}\n\n// requestDone", replace: "\tex.requestDone()\n\t_ = ended\n}\n\n// requestDone",
		pkg: "lanes", run: "^TestExchange_TheSlotIsFreeAtTheLastByte$",
		timeout: 30 * time.Second, timeoutBites: true,
	},
	{
		name: "waits-though-its-client-has-left",
		file: client, find: "c.cancel() // of a wait for a slot", replace: "",
		pkg: "proxy", run: "^TestClient_LeavingWhileWaitingRemovesTheRequest$",
		timeout: 45 * time.Second, timeoutBites: true,
	},
	{
		name: "endless-answer-let-through",
		file: forward, find: "if res.Endless && !rt.ForwardStreams {", replace: "if false {",
		pkg: "proxy", run: "^TestRelay_AnEndlessAnswerIsRefusedWithBothWaysOut$",
		timeout: 45 * time.Second, timeoutBites: true,
	},
	{
		name: "any-method-sent-again",
		file: forward, find: `case "GET", "HEAD", "OPTIONS":`, replace: `case "GET", "HEAD", "OPTIONS", "POST":`,
		pkg: "proxy", run: "^TestRoute_AnUpstreamThatClosesWithoutAnAnswerIsAskedAgainOnlyWhereThatIsSafe$",
		timeout: 45 * time.Second, timeoutBites: true,
	},
	{
		name: "answer-in-two-framings",
		file: "upstream/response.go", find: "if f.chunked && (f.length >= 0 || minor == 0) {", replace: "if false {",
		pkg: "upstream", run: "^TestConn_AnAnswerThatCanBeReadInTwoWaysIsMalformed$",
	},
	{
		name: "switched-on-a-lane-that-does-not-tunnel",
		file: conn, find: "\t\tif c.res.Status == 101 {\n", replace: "\t\tif false {\n",
		pkg: "cmd/holdfast", run: "^TestUpgrade_A101OnARequestLaneIsAnUpstreamError$",
		timeout: 90 * time.Second, timeoutBites: true,
	},

	// ---- The limits of a client's request.
	{
		name: "head-larger-than-its-limit",
		file: head, find: "if c.w-c.r >= c.site.cfg.HeaderBytes {", replace: "if c.w-c.r > c.site.cfg.HeaderBytes {",
		pkg: "proxy", run: "^TestClient_TheHeadLimitIsExact$",
		timeout: 45 * time.Second, timeoutBites: true,
	},
	{
		name: "half-a-head-waited-for-without-end",
		file: head, find: "c.setReadBy(time.Now().Add(c.site.cfg.HeaderTimeout))", replace: "c.setReadBy(time.Now().Add(time.Hour))",
		pkg: "proxy", run: "^TestClient_APartialHeadIsCutWithoutAnAnswer$",
		timeout: 45 * time.Second, timeoutBites: true,
	},
	{
		name: "body-over-the-limit-taken",
		file: requestBody, find: "\tif r.length > limit {\n", replace: "\tif false {\n",
		pkg: "proxy", run: "^TestClient_ABodyOverTheLimitIsRefusedBeforeItIsSent$",
		timeout: 45 * time.Second, timeoutBites: true,
	},
	{
		name: "body-waited-for-without-end",
		file: requestBody, find: "c.extendRead(c.site.cfg.BodyTimeout)", replace: "c.extendRead(time.Hour)",
		pkg: "proxy", run: "^TestClient_ABodyThatStopsIsToldSo$",
		timeout: 45 * time.Second, timeoutBites: true,
	},
	{
		name: "idle-connections-keep-their-place",
		file: client, find: "\tif c.idle {\n\t\tc.Conn.SetReadDeadline(past)", replace: "\tif false {\n\t\tc.Conn.SetReadDeadline(past)",
		pkg: "proxy", run: "^TestLimit_AnIdleConnectionMakesRoomForTheNext$",
		timeout: 45 * time.Second, timeoutBites: true,
	},

	// ---- What is forwarded.
	{
		name: "wire-trace",
		file: wire, find: `case "TRACE":`, replace: `case "NOTRACE":`,
		pkg: "proxy", run: corpus("line-method-trace"),
	},
	{
		name: "named-fields-go-on",
		file: headers, find: " || named != nil && names(named, f.Name) {\n\t\t\t\tcontinue", replace: " || false && names(named, f.Name) {\n\t\t\t\tcontinue",
		pkg: "proxy", run: "^TestForward_WhatConnectionNamesGoesNoFurther$",
	},
	{
		name: "fields-of-one-connection-in-an-answer",
		file: headers, find: "\t\tif named != nil && names(named, f.Name) {\n", replace: "\t\tif false && names(named, f.Name) {\n",
		pkg: "proxy", run: "^TestRelay_FieldsOfOneConnectionStayThere$",
	},
	{
		name: "held-streams-encoded",
		file: headers, find: "noEncoding := r.upgrade || r.acceptsEvents()", replace: "noEncoding := r.upgrade",
		pkg: "proxy", run: "^TestHold_AStreamIsNeverEncodedWhateverItsClientAccepts$",
		timeout: 45 * time.Second, timeoutBites: true,
	},
	{
		name: "query-in-the-access-log",
		file: "proxy/accesslog.go", find: `path, _, _ := bytes.Cut(c.req.target, []byte("?"))`, replace: `path, _, _ := bytes.Cut(c.req.target, []byte("\x00"))`,
		pkg: "cmd/holdfast", run: "^TestAccessLog_HasALineForEachExchangeWithItsFields$",
		timeout: 90 * time.Second, timeoutBites: true,
	},

	// ---- Ids, the journal, and events once.
	{
		name: "ids-follow-the-clock",
		file: hub, find: "return max(head+idStep, h.stamp(now))", replace: "return h.stamp(now) + 0*head",
		pkg: "holds", run: "^TestHub_IdsGrowWhateverTheClockDoes$",
	},
	{
		name: "event-of-two-channels-twice",
		file: deliver, find: "if h.state != live || h.cursor >= e.id {", replace: "if h.state != live {",
		pkg: "holds", run: "^TestHolds_AnEventToSeveralChannelsReachesAHoldOnce$",
	},
	{
		name: "journal-bytes-unbounded",
		file: journal, find: "int64(j.bytes+room) <= j.limits.Bytes && now-e.at <= int64(j.limits.Age) {", replace: "now-e.at <= int64(j.limits.Age) {",
		pkg: "holds", run: "^TestJournal_ItsBytesAreBoundedOverheadIncluded$",
	},
	{
		name: "journal-events-unbounded",
		file: journal, find: "for len(r.ring) > j.limits.Events {", replace: "for false {",
		pkg: "holds", run: "^TestJournal_KeepsSoManyEventsOfEachChannel$",
	},
	{
		name: "old-events-kept",
		file: journal, find: "j.limits.Bytes && now-e.at <= int64(j.limits.Age) {", replace: "j.limits.Bytes {",
		pkg: "holds", run: "^TestJournal_WhatIsTooOldIsLostWhenTheNextEventComes$",
	},

	// ---- How a hold ends, and what time asks for.
	{
		name: "a-second-end", // both looks at whether there was a first
		file: bury,
		find: "	if h.state >= leaving {\n\t\treturn\n\t}\n\tif h.poll == nil || h.poll.answer == nil {\n\t\tl.settle(h, reason)\n\t}\n" +
			"\tif h.state >= leaving { // what it was owed was too much, or an answer\n\t\treturn\n\t}\n\th.state = leaving\n",
		replace: "\tif h.poll == nil || h.poll.answer == nil {\n\t\tl.settle(h, reason)\n\t}\n\th.state = leaving\n",
		pkg:     "holds", run: "^TestEnd_AHoldEndsOnceForTheFirstReason$",
		timeout: 45 * time.Second, timeoutBites: true,
	},
	{
		name: "holds-without-limit",
		file: "holds/counts.go", find: "limit > 0 && n > int64(limit) {", replace: "limit > 0 && n > int64(limit)+1000 {",
		pkg: "holds", run: "^TestOpen_OverTheLimitTheConnectionStaysTheCallers$",
	},
	{
		name: "max-age-ignored",
		file: tick, find: "if cfg.MaxAge > 0 && now.Sub(l.agedAt)", replace: "if false && now.Sub(l.agedAt)",
		pkg: "holds", run: "^TestMaxAge_EndsHoldsInItsLastQuarterAndNotAllAtOnce$",
	},
	{
		name: "position-while-an-event-is-on-its-way",
		file: tick, find: "h.beats%positionEvery == 0 && current && h.state == live {", replace: "h.beats%positionEvery == 0 && h.state == live {",
		pkg: "holds", run: "^TestHeartbeat_NoPositionGoesOutWhileAnEventIsOnItsWay$",
	},
	{
		name: "all-sent-away-at-once",
		file: tick, find: "float64(now.Sub(l.drainFrom))/float64(drainSpan))+1, l.toDrain)", replace: "float64(now.Sub(l.drainFrom))/float64(drainSpan))+1+l.toDrain, l.toDrain)",
		pkg: "holds", run: "^TestDrain_EndsAreSpreadOverTwoSecondsAndTellWhenToComeBack$",
	},
	{
		name: "held-though-it-has-left",
		file: hold, find: "\tif left {\n", replace: "\tif false && left {\n",
		pkg: "proxy", run: "^TestHold_AClientThatLeftBeforeItsHoldIsNotHeld$",
		timeout: 45 * time.Second, timeoutBites: true,
	},
	{
		name: "hold-of-any-status",
		file: "holds/instruction.go", find: "case m0 && status != http.StatusOK:", replace: "case m0 && status < http.StatusOK:",
		pkg: "holds", run: "^TestParseInstruction_IsNoneWhereTheAnswerIsServedAsItIs$",
	},

	// ---- Messages of sockets.
	{
		name: "unseen-message-given-up",
		file: inbound, find: "for errors.Is(err, ErrUnseen) && hm.ctx.Err() == nil {", replace: "for false {",
		pkg: "holds", run: "^TestInbound_AMessageThatTheAppHasNotSeenIsSentAgainBeforeTheNext$",
		timeout: 45 * time.Second, timeoutBites: true,
	},
	{
		name: "messages-of-one-socket-at-once",
		file: inbound, find: "\tif !s.delivering {\n", replace: "\tif true {\n",
		pkg: "holds", run: "^TestInbound_ASocketsMessagesAreAtTheAppOneAtATimeAndInOrder$",
		timeout: 45 * time.Second, timeoutBites: true,
	},
	{
		name: "failing-answer-obeyed",
		file: inbound, find: "case a.Status >= 300:", replace: "case a.Status >= 600:",
		pkg: "holds", run: "^TestInbound_AFailingAnswerIsNotObeyedAndTheSocketStays$",
		timeout: 45 * time.Second, timeoutBites: true,
	},
	{
		name: "read-on-while-the-app-is-slow",
		file: "holds/websocket.go", find: "if h.state < leaving && s.pending >= pendingBytes {", replace: "if false {",
		pkg: "holds", run: "^TestSocket_IsNotReadWhileTheAppIsSlowAndLosesNothing$",
		timeout: 45 * time.Second, timeoutBites: true,
	},
	{
		name: "message-over-the-limit",
		file: "holds/frame.go", find: "if length > uint64(max(limit-had, 0)) {", replace: "if false {",
		pkg: "holds", run: "^TestInbound_AMessageOverTheLimitClosesTheSocket$",
		timeout: 45 * time.Second, timeoutBites: true,
	},
	{
		name: "some-of-too-many-channels-joined",
		file: inbound, find: "\t\tjoins = nil\n", replace: "\t\tjoins = joins[:MaxChannels-h.seats()+len(leaves)]\n",
		pkg: "holds", run: "^TestSubscribe_WhatWouldBeMoreThanSixtyFourChannelsIsNotJoinedAtAll$",
	},
	{
		name: "joined-at-the-answer", // not at the position of the message's POST
		file: inbound, find: "l.subscribe(h, joins, position)", replace: "l.subscribe(h, joins, l.hub.head.Load())",
		pkg: "holds", run: "^TestSocket_EveryHistoryOfSubscriptionsGivesEveryEventOnceOrAGap$",
	},

	// ---- Grants.
	{
		name: "grant-signature-unchecked",
		file: grant, find: "if hmac.Equal(mac.Sum(nil), t.signature) {", replace: "if hmac.Equal(mac.Sum(nil), mac.Sum(nil)) {",
		pkg: "proxy", run: "^TestGrant_WithOneByteOtherMoreOrLessIsRefused$",
	},
	{
		name: "grant-never-expires",
		file: grant, find: "if now.Unix() >= t.expires {", replace: "if false {",
		pkg: "proxy", run: "^TestGrant_ExpiresAtItsSecondAndNotAMomentEarlier$",
	},
	{
		name: "grant-of-any-session",
		file: grant, find: "subtle.ConstantTimeCompare(session[:sessionBytes], t.session) == 1 {", replace: "subtle.ConstantTimeCompare(session[:sessionBytes], t.session) >= 0 {",
		pkg: "proxy", run: "^TestGrant_BoundToASessionIsForItsCookieAlone$",
	},
	{
		name: "grant-of-an-empty-key",
		file: grant, find: "if len(key) == 0 || keyID(key)", replace: "if keyID(key)",
		pkg: "proxy", run: "^TestGrant_AnEmptyKeySignsNothing$",
	},
	{
		name: "grant-of-an-empty-cookie",
		file: grant, find: `if cookie == "" {`, replace: "if false {",
		pkg: "proxy", run: "^TestGrant_BoundToAnEmptyCookieIsForNobody$",
	},
	{
		name: "grant-faults-in-another-order",
		file: grant, find: "g.checkSignature(&t); err != nil {", replace: "g.checkSignature(&t); err != nil && now.Unix() < t.expires {",
		pkg: "proxy", run: "^TestGrant_TheFirstFaultInOrderIsTheOneThatIsSaid$",
	},

	// ---- Publishing, and Holdfast's own listeners.
	{
		name: "event-name-of-two-lines",
		file: publication, find: `if strings.ContainsAny(p.Event, "\r\n\x00") {`, replace: "if false {",
		pkg: "holds", run: "^TestDecodePublication_RefusesWithTheFieldAndTheWayOut$",
	},
	{
		name: "event-too-large",
		file: publication, find: "\tif len(p.Data) > MaxData {\n\t\treturn tooLarge(\"data\")\n\t}\n\treturn nil\n}", replace: "\treturn nil\n}",
		pkg: "cmd/holdfast", run: "^TestPublish_WhatIsWrongIsRefusedWithItsFieldAndNothingOfItIsPublished$",
		timeout: 90 * time.Second, timeoutBites: true,
	},
	{
		name: "unknown-key-of-a-publication",
		file: publication, find: "\t\tif i < 0 {\n\t\t\t// It is", replace: "\t\tif i < 0 {\n\t\t\tvar skipped json.RawMessage\n\t\t\tif dec.Decode(&skipped) == nil {\n\t\t\t\tcontinue\n\t\t\t}\n\t\t\t// It is",
		pkg: "holds", run: "^TestDecodePublication_RefusesWithTheFieldAndTheWayOut$",
	},
	{
		name: "web-page-publishes",
		file: admin, find: "case a.browser(asked):", replace: "case false:",
		pkg: "cmd/holdfast", run: "^TestAdmin_AWebPageNeedsAKeyAndAProgramOfThisMachineDoesNot$",
		timeout: 90 * time.Second, timeoutBites: true,
	},
	{
		name: "drained-from-another-machine",
		file: admin, find: "case local && !stands(asked):", replace: "case false:",
		pkg: "cmd/holdfast", run: "^TestAdmin_FromAnotherMachineWhatIsLocalNeedsAKey$",
		timeout: 90 * time.Second, timeoutBites: true,
	},
	{
		name: "any-key-is-a-key",
		file: admin, find: "return found == 1", replace: "return found >= 0",
		pkg: "cmd/holdfast", run: "^TestPublish_OnceThereAreKeysEveryCallNeedsOne$",
		timeout: 90 * time.Second, timeoutBites: true,
	},
	{
		name: "everybody-is-near",
		file: "health/health.go", find: "\tif near {\n", replace: "\tif true {\n",
		pkg: "health", run: "^TestBody_TellsOnlyWhoIsNear$",
	},
	{
		name: "lost-lane-is-ready",
		file: "health/ready.go", find: "if l.Slots > 0 && l.Abandoned >= l.Slots {", replace: "if false {",
		pkg: "health", run: "^TestReady_ALaneWithNothingButAbandonedSlotsIsLost$",
	},

	// ---- The configuration, reloads and the end.
	{
		name: "more-slots-than-the-targets-run",
		file: config, find: "if slots > targets*each {", replace: "if false {",
		pkg: "cmd/holdfast", run: invalid,
	},
	{
		name: "config-key-twice",
		file: "cmd/holdfast/decode.go", find: "if first, twice := d.keys[full]; twice {", replace: "if first, twice := d.keys[full]; twice && false {",
		pkg: "cmd/holdfast", run: invalid,
	},
	{
		name: "config-key-that-is-not-known",
		file: "cmd/holdfast/decode.go", find: "\t\tif !ok {\n\t\t\tmistyped[d.unknownKey(path, keyNode, known)] = true\n", replace: "\t\tif !ok {\n",
		pkg: "cmd/holdfast", run: invalid,
	},
	{
		name: "config-key-without-effect",
		file: config, find: "c.source.isSet(path) {\n\t\t\tc.source.wrong(path, \"has no effect on a %s lane", replace: "false {\n\t\t\tc.source.wrong(path, \"has no effect on a %s lane",
		pkg: "cmd/holdfast", run: invalid,
	},
	{
		name: "published-from-anywhere-without-a-key",
		file: "cmd/holdfast/config_listen.go", find: "len(own.Keys) == 0 && !bound[before].isLocal() && !own.Listen.asksClients() {", replace: "false {",
		pkg: "cmd/holdfast", run: invalid,
	},
	{
		name: "same-pattern-twice",
		file: "cmd/holdfast/config_routes.go", find: "if earlier, twice := first[key]; twice {", replace: "if earlier, twice := first[key]; twice && false {",
		pkg: "cmd/holdfast", run: invalid,
	},
	{
		name: "drain-delay-beyond-its-bound",
		file: config, find: "if c.Drain.Delay < c.Drain.Bound {", replace: "if true {",
		pkg: "cmd/holdfast", run: invalid,
	},
	{
		name: "second-signal-ignored",
		file: "cmd/holdfast/life.go", find: "if heard++; heard > 1 {", replace: "if heard++; heard > 99 {",
		pkg: "cmd/holdfast", run: "^TestDrain_ASecondSignalStopsAtOnceWithExit1$",
		timeout: 90 * time.Second, timeoutBites: true,
	},
	{
		name: "ended-before-who-waits-has-seen-it",
		file: "cmd/holdfast/life.go", find: "if heard == 0 {\n\t\t\t\t<-time.After(askedPause)\n\t\t\t}", replace: "_ = askedPause",
		pkg: "cmd/holdfast", run: "^TestDrain_WhoWaitsForItSeesItsEndBeforeTheProcessHasEnded$",
	},
	{
		name: "failed-reload-not-counted",
		file: run, find: "\t\t\th.failed.Add(1)\n", replace: "",
		pkg: "cmd/holdfast", run: "^TestReload_AnInvalidFileKeepsTheOldOneAndSaysWhy$",
		timeout: 90 * time.Second, timeoutBites: true,
	},
}
