package main

import "time"

// busRules are those of the bus, and of the nodes on it.
var busRules = []rule{
	{
		name: "bus-number-not-above-the-last",
		file: "holds/bus/memory.go", find: "at, next := l.now(), l.head+step", replace: "at, next := l.now(), int64(0)",
		pkg: "holds/bus", run: "^TestBus_WhatIsPublishedIsFollowedInOrderWithItsIDs$",
	},
	{
		name: "bus-number-twice-behind-a-copy",
		file: "holds/bus/publish.lua", find: "log.head % 1000 + LEAP", replace: "log.head % 1000 + 1000",
		pkg: "holds/bus", run: "^TestRedis_AnOldDumpThatRunsAheadOfTheClockGivesNoNumberTwice$",
	},
	{
		name: "bus-number-twice-behind-a-restored-table",
		file: "holds/bus/init.sql", find: "CASE WHEN mine THEN 1000 ELSE 1000000000 END", replace: "1000",
		pkg: "holds/bus", run: "^TestPostgres_ACopyThatWasPutBackGivesNoNumberTwice$",
	},
	{
		name: "bus-lost-position-in-silence",
		file: "holds/bus/follow.go", find: "case !l.known:\n\t\t\t// It", replace: "case false:\n\t\t\t// It",
		pkg: "holds/bus", run: "^TestFollow_APositionThatTheLogLostMakesItAnother$",
	},
	{
		name: "bus-gap-in-the-middle-in-silence",
		file: "holds/bus/follow.go", find: "l.state.Floor > f.last {", replace: "false {",
		pkg: "holds/bus", run: "^TestFollow_WhoFallsBehindTheFloorIsTold$",
	},
	{
		name: "bus-hole-in-silence",
		file: "holds/bus/follow.go", find: "f.begin(State{Start: l.state.Start, Floor: e.Prev, Head: l.state.Head})", replace: "f.last = e.Prev",
		pkg: "holds/bus", run: "^TestRedis_AnEntryThatWasTakenOutByHandIsToldAsAGap$",
	},
	{
		name: "bus-another-log-in-silence",
		file: "holds/bus/follow.go", find: "l.state.Start != f.start ||", replace: "",
		pkg: "holds/bus", run: "^TestFollow_AnotherLogThatHasThePositionTooIsTold$",
	},
	{
		name: "bus-unchecked-wake",
		file: "holds/bus/follow.go", find: "if f.joins(entries) {", replace: "if true {",
		pkg: "holds/bus", run: "^TestFollow_WhatComesWithTheWakingIsTakenOnlyIfItFollows$",
	},
	{
		name: "bus-commit-order-passed-over",
		file: "holds/bus/init.sql", find: "INSERT INTO holdfast.inbox (body) VALUES (bytes);", replace: "PERFORM holdfast.holdfast_enter(ARRAY[bytes], NULL);",
		pkg: "holds/bus", run: "^TestPostgres_ATransactionThatCommitsLateIsNotPassedOverAndDelaysNobody$",
	},
	{
		name: "bus-numbers-without-the-lock",
		file: "holds/bus/init.sql", find: "  PERFORM pg_advisory_xact_lock(1215261796::bigint << 32 | 'holdfast.meta'::regclass::oid::bigint);\n  -- What a node", replace: "  -- What a node",
		pkg: "holds/bus", run: "^TestPostgres_NumbersAreGivenOneAfterTheOther$",
	},
	{
		name: "bus-functions-open-to-all",
		file: "holds/bus/init.sql", find: "REVOKE ALL ON ALL FUNCTIONS IN SCHEMA holdfast FROM PUBLIC;", replace: "",
		pkg: "holds/bus", run: "^TestPostgres_ARoleWithExecuteAlonePublishesAndDoesNothingElse$",
	},
	{
		name: "bus-search-path-of-the-caller",
		file: "holds/bus/init.sql", find: "CREATE OR REPLACE FUNCTION holdfast.holdfast_publish(body jsonb) RETURNS void\nLANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS", replace: "CREATE OR REPLACE FUNCTION holdfast.holdfast_publish(body jsonb) RETURNS void\nLANGUAGE plpgsql SECURITY DEFINER AS",
		pkg: "holds/bus", run: "^TestPostgres_ARoleWithExecuteAlonePublishesAndDoesNothingElse$",
	},
	{
		name: "bus-no-look-without-notify",
		file: "holds/bus/postgres_link.go", find: "\t\tf.tend = true\n\t\treturn nil, nil", replace: "\t\treturn f.wait(ctx, 0)",
		pkg: "holds/bus", run: "^TestPostgres_ANotifyThatIsLostIsMadeUpForByALook$",
	},
	{
		name: "bus-isolation-of-the-database",
		file: "holds/bus/postgres_link.go", find: "set_config('default_transaction_isolation', 'read committed', false), ", replace: "",
		pkg: "holds/bus", run: "^TestPostgres_ADefaultOfAnotherIsolationChangesNothing$",
	},
	{
		name: "bus-retried-by-the-driver",
		file: "holds/bus/redis_link.go", find: "MaxRetries: -1", replace: "MaxRetries: 3",
		pkg: "holds/bus", run: "^TestBus_APublishWhoseAnswerIsLostMayHaveBeenAddedAndIsNotRepeated$",
	},
	{
		name: "bus-unknown-said-to-be-down",
		file: "holds/bus/redis.go", find: "return 0, &causedError{ErrUnknown, err}\n", replace: "return 0, &causedError{ErrDown, err}\n",
		pkg: "holds/bus", run: "^TestBus_APublishWhoseAnswerIsLostMayHaveBeenAddedAndIsNotRepeated$",
	},
	{
		name: "bus-functions-not-loaded-again",
		file: "holds/bus/redis_link.go", find: "if function != \"holdfast_version\" && isMissing(err) {", replace: "if false {",
		pkg: "holds/bus", run: "^TestRedis_FunctionsThatAreMissingAreLoaded$",
	},
	{
		name: "bus-count-not-kept",
		file: "holds/bus/publish.lua", find: "if length > log.entries then", replace: "if false then",
		pkg: "holds/bus", run: "^TestBus_OnlySoManyEntriesAreKept$",
	},
	{
		name: "bus-age-not-kept",
		file: "holds/bus/publish.lua", find: "while length > 0 and now - oldest > log.keep do", replace: "while false do",
		pkg: "holds/bus", run: "^TestBus_EntriesAreKeptForSoLong$",
	},
	{
		name: "bus-entries-of-others-taken",
		file: "holds/bus/publish.lua", find: "if not of.body or not tonumber(of.prev) or not tonumber(of.at) or string.sub(entry[1], -2) ~= '-0' then return nil end", replace: "",
		pkg: "holds/bus", run: "^TestRedis_WhatOthersPutIntoTheStreamIsPassedOver$",
	},
	{
		name: "bus-renewed-though-nothing-is-lost",
		file: "holds/bus/publish.lua", find: "if head < seen or", replace: "if true or",
		pkg: "holds/bus", run: "^TestBus_RenewMakesAnotherLogOnlyIfTheHeadIsBelow$",
	},
	{
		name: "bus-renewed-below-what-was-seen",
		file: "holds/bus/publish.lua", find: "another(k, math.max(seen, head), head % 1000)", replace: "another(k, 0, head % 1000)",
		pkg: "holds/bus", run: "^TestBus_RenewMakesAnotherLogOnlyIfTheHeadIsBelow$",
	},
	{
		name: "bus-left-on-the-way-is-down",
		file: "holds/bus/batch.go", find: "if p.onTheWay {\n\t\treturn false\n\t}", replace: "if p.onTheWay {\n\t\treturn true\n\t}",
		pkg: "holds/bus", run: "^TestBatch_ACallerThatLeavesIsToldWhetherItWasOnTheWay$",
	},
	{
		name: "bus-waiting-without-bound",
		file: "holds/bus/batch.go", find: "if len(b.waiting) >= waitingCalls || b.bytes+p.bytes > waitingBytes {", replace: "if false {",
		pkg: "holds/bus", run: "^TestBatch_OneMoreThanMayWaitIsRefused$",
	},
	{
		name: "bus-joined-without-bound",
		file: "holds/bus/batch.go", find: "if n > 0 && (bodies+len(p.bodies) > batchBodies || bytes+p.bytes > batchBytes) {", replace: "if false {",
		pkg: "holds/bus", run: "^TestBatch_OneWayCarriesSoMuchAndNoMore$",
	},
	{
		name: "bus-waits-for-an-engine-that-is-down",
		file: "holds/bus/batch.go", find: "settle(b.giveUp(), nil, err)", replace: "",
		pkg: "holds/bus", run: "^TestBatch_AnEngineThatIsDownRefusesAllThatWait$",
	},
	{
		name: "bus-too-large-let-through",
		file: "holds/bus/bus.go", find: "if len(b) > MaxBody {", replace: "if false {",
		pkg: "holds/bus", run: "^TestBus_WhatIsTooLargeIsRefusedWhole$",
	},
	{
		name: "bus-unknown-key-ignored",
		file: "holds/bus/config.go", find: "if !slices.Contains(known, key) {", replace: "if false {",
		pkg: "holds/bus", run: "^TestParse_RefusesTheRestAndNamesIt$",
	},
	{
		name: "bus-password-in-an-error",
		file: "holds/bus/config.go", find: "strings.ContainsAny(rawQuery, \"#@\")", replace: "strings.ContainsAny(rawQuery, \"#\")",
		pkg: "holds/bus", run: "^TestParse_RefusesTheRestAndNamesIt$",
	},
	{
		name: "bus-tls-unchecked",
		file: "holds/bus/redis_link.go", find: "MinVersion: tls.VersionTLS12}", replace: "MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}",
		pkg: "holds/bus", run: "^TestRedis_TLSIsChecked$",
	},
	{
		name: "node-gap-in-silence",
		file: "holds/node.go", find: "l.push(item{call: func() { l.breakAll(position, goOn, was) }})", replace: "l.push(item{call: func() { _ = was }})",
		pkg: "holds", run: "^TestNode_WhatTheBusHasLostIsAGapForEveryHold$",
		timeout: 40 * time.Second, timeoutBites: true,
	},
	{
		name: "node-gap-in-silence-for-bare-sockets",
		file: "holds/node.go", find: "case h.socket != nil && !h.socket.envelope: // it cannot be told", replace: "case false:",
		pkg: "holds", run: "^TestNode_WhatTheBusHasLostIsAGapForEveryHold$",
	},
	{
		name: "node-follows-what-was-let-go",
		file: "holds/node.go", find: "if last := n.position(); !n.begun || s.Floor > last {", replace: "if last := n.position(); !n.begun {",
		pkg: "holds", run: "^TestNode_WhatTheBusHasLostIsAGapForEveryHold$",
		timeout: 40 * time.Second, timeoutBites: true,
	},
	{
		name: "node-lost-position-taken",
		file: "holds/hub.go", find: "_, found := slices.BinarySearch(h.entries, position)\n\t\treturn found", replace: "return position >= h.start && position <= h.head.Load()",
		pkg: "holds", run: "^TestNode_APositionThatTheBusHasLostIsAGapThoughEveryNodeIsNew$",
	},
	{
		name: "node-client-that-is-ahead-told-of-a-gap",
		file: "holds/holds.go", find: "away = h.node.catchUp(max(last, spec.Position))", replace: "away = h.node.catchUp(0)",
		pkg: "holds", run: "^TestNode_AClientThatIsAheadOfTheNodeIsNotToldOfAGap$",
		timeout: 20 * time.Second, timeoutBites: true,
	},
	{
		name: "node-publishes-past-the-bus",
		file: "holds/holds.go", find: "\tif h.node != nil {\n\t\tid, reached, err = h.node.publish(p.appendBody(nil))\n\t} else {\n", replace: "\tif h.node != nil && h.node.position() < 0 {\n\t\tid, reached, err = h.node.publish(p.appendBody(nil))\n\t} else {\n",
		pkg: "holds", run: "^TestNode_AnEventReachesTheHoldsOfEveryNodeUnderOneNumber$",
	},
	{
		name: "node-ends-its-own-alone",
		file: "holds/api.go", find: "\tif h.node != nil {\n\t\t_, ended, err = h.node.publish(r.appendBody(nil))\n\t\treturn ended, err\n\t}\n", replace: "",
		pkg: "holds", run: "^TestNode_AnEndReachesTheHoldsOfEveryNode$",
	},
	{
		name: "node-items-of-one-entry-share-a-number",
		file: "holds/hub.go", find: "\tcase !e.isItem():\n", replace: "\tcase h.entry > 0:\n",
		pkg: "holds", run: "^TestNode_ItemsReachEveryNodeAndPositionsStayOnesThatAllKnow$",
	},
	{
		name: "node-position-of-its-own-told",
		file: "holds/hub.go", find: "func shown(position, tag int64) int64 { return position - (position-tag)%idStep }", replace: "func shown(position, tag int64) int64 { return position + 0*tag }",
		pkg: "holds", run: "^TestNode_ItemsReachEveryNodeAndPositionsStayOnesThatAllKnow$",
	},
	{
		name: "node-bus-down-is-a-success",
		file: "holds/node.go", find: "\tcase err != nil:\n\t\treturn 0, 0, fmt.Errorf(\"%w: %w\", ErrBusDown, err)", replace: "\tcase err != nil:\n\t\treturn 0, 0, nil",
		pkg: "holds", run: "^TestNode_WhileTheBusIsAwayPublishersAreToldAndHoldsGetWhatTheyMissed$",
	},
	{
		name: "bus-untold-to-ready",
		file: "health/ready.go", find: "if reason := h.cfg.Bus().Reason; reason != \"\" {", replace: "if reason := h.cfg.Bus().Reason; reason == \"-\" {",
		pkg: "health", run: "^TestBus_IsToldEverywhere$",
	},
	{
		name: "claim-of-nobody",
		file: "holds/hub.go", find: "if o.away == h.begins.Load()+1 && o.from > h.head.Load() {", replace: "if false {",
		pkg: "holds", run: "^TestNode_AHoldThatIsOpenedBeforeTheBusIsReachedGetsWhatItsClientHasNotHad$",
		timeout: 60 * time.Second, timeoutBites: true,
	},
	{
		name: "claim-for-ever",
		file: "holds/hub.go", find: "if o.away == h.begins.Load()+1 && o.from", replace: "if o.away > 0 && o.from",
		pkg: "holds", run: "^TestHub_AHoldOfANodeThatHas",
		timeout: 60 * time.Second, timeoutBites: true,
	},
	{
		name: "position-of-nobody-rounded",
		file: "holds/hub.go", find: "if h.head.Load() == 0 { // the bus was never", replace: "if false { // the bus was never",
		pkg: "holds", run: "^TestNode_AHoldThatIsOpenedBeforeTheBusIsReachedGetsWhatItsClientHasNotHad$",
		timeout: 60 * time.Second, timeoutBites: true,
	},
	{
		name: "past-of-the-bus-told-as-new",
		file: "holds/node.go", find: "goOn = s.Head //", replace: "goOn = s.Floor //",
		pkg: "holds", run: "^TestNode_AHoldThatIsOpenedBeforeTheBusIsReachedGetsWhatItsClientHasNotHad$",
		timeout: 60 * time.Second, timeoutBites: true,
	},
	{
		name: "claim-unjudged",
		file: "holds/node.go", find: "if !known {\n\t\t\tl.breakOff(h, last, head)", replace: "if false {\n\t\t\t_, _ = last, known\n\t\t\tl.breakOff(h, last, head)",
		pkg: "holds", run: "^TestNode_(AHoldIsFedNothing|APositionThatTheBusHasNot)",
		timeout: 60 * time.Second, timeoutBites: true,
	},
	{
		name: "claim-fed-before-its-gap",
		file: "holds/deliver.go", find: "h.outbox == nil && h.claim == 0 {", replace: "h.outbox == nil {",
		pkg: "holds", run: "^TestNode_AHoldIsFedNothing",
		timeout: 60 * time.Second, timeoutBites: true,
	},
	{
		name: "old-events-for-who-comes-while-a-node-reads",
		file: "holds/holds.go", find: "return max(h.hub.shown(h.hub.head.Load()), h.hub.target.Load())", replace: "return h.hub.shown(h.hub.head.Load())",
		pkg: "holds", run: "^TestNode_WhoComesWhileItStillReads",
		timeout: 60 * time.Second, timeoutBites: true,
	},
	{
		name: "ahead-of-the-bus-waited-for",
		file: "holds/node.go", find: "if err == nil && s.Head < position {", replace: "if err == nil && s.Head < 0 {",
		pkg: "holds", run: "^TestNode_APositionAheadOfTheBusIsAGap$",
		timeout: 60 * time.Second, timeoutBites: true,
	},
	{
		name: "node-skips-an-entry",
		file: "holds/node.go", find: "for _, e := range entries {\n\t\tn.followed", replace: "for _, e := range entries[min(1, len(entries)-1):] {\n\t\tn.followed",
		pkg: "cmd/holdfast", run: "^TestBus_EveryClientHas.*/^redis$",
		timeout: 3 * time.Minute, timeoutBites: true,
	},
	{
		name: "node-unsure-told-as-not-published",
		file: "holds/node.go", find: "return 0, 0, fmt.Errorf(\"%w: %w\", ErrBusUnknown, err)", replace: "return 0, 0, fmt.Errorf(\"%w: %w\", ErrBusDown, err)",
		pkg: "cmd/holdfast", run: "^TestBus_EveryClientHas.*/^redis$",
		timeout: 3 * time.Minute, timeoutBites: true,
	},
	{
		name: "node-loss-untold-to-clients",
		file: "holds/node.go", find: "l.push(item{call: func() { l.breakAll(position, goOn, was) }})", replace: "_, _, _ = goOn, was, l",
		pkg: "cmd/holdfast", run: "^TestBus_ARedisThatHasLost",
		timeout: 3 * time.Minute, timeoutBites: true,
	},
	{
		name: "bus-down-answered-200",
		file: "holds/node.go", find: "case err != nil:\n\t\treturn 0, 0, fmt.Errorf(\"%w: %w\", ErrBusDown, err)", replace: "case err != nil:\n\t\treturn 1, 0, nil",
		pkg: "cmd/holdfast", run: "^TestBus_WhileTheEngineIsAway.*/^redis$",
		timeout: 3 * time.Minute, timeoutBites: true,
	},
	{
		name: "bus-lost-unseen",
		file: "holds/node.go", find: "case n.connected.Swap(false):", replace: "case n.connected.Load():",
		pkg: "cmd/holdfast", run: "^TestBus_WhileTheEngineIsAway.*/^redis$",
		timeout: 3 * time.Minute, timeoutBites: true,
	},
	{
		name: "heartbeats-end-with-the-bus",
		file: "holds/tick.go", find: "(h.state == live || h.claim > 0)", replace: "h.state == live",
		pkg: "cmd/holdfast", run: "^TestBus_WhileTheEngineIsAway.*/^redis$",
		timeout: 3 * time.Minute, timeoutBites: true,
	},
	{
		name: "ready-before-the-bus-was-read",
		file: "cmd/holdfast/bus.go", find: "case ready == \"start\" && !s.Current:", replace: "case ready == \"start\" && false:",
		pkg: "cmd/holdfast", run: "^TestBus_WhileTheEngineIsAway.*/^redis$",
		timeout: 3 * time.Minute, timeoutBites: true,
	},
	{
		name: "ready-always-without-the-bus",
		file: "cmd/holdfast/bus.go", find: "case ready == \"always\" && !s.Connected:", replace: "case ready == \"always\" && false:",
		pkg: "cmd/holdfast", run: "^TestBus_WhileTheEngineIsAway.*/^redis$",
		timeout: 3 * time.Minute, timeoutBites: true,
	},
	{
		name: "unprepared-bus-untold",
		file: "cmd/holdfast/bus.go", find: "errors.Is(s.Trouble, bus.ErrUnprepared) &&", replace: "errors.Is(s.Trouble, bus.ErrClosed) &&",
		pkg: "cmd/holdfast", run: "^TestBus_ANodeOnAPostgres",
		timeout: 3 * time.Minute, timeoutBites: true,
	},
	{
		name: "end-of-this-node-alone",
		file: "holds/node.go", find: "\t\treturn h.end(r)\n", replace: "\t\treturn 0 * len(r.Channel)\n",
		pkg: "cmd/holdfast", run: "^TestBus_EveryKindOfHold.*/^redis$",
		timeout: 3 * time.Minute, timeoutBites: true,
	},
	{
		name: "events-of-this-node-alone",
		file: "holds/holds.go", find: "id, reached, err = h.node.publish(p.appendBody(nil))", replace: "id, reached = h.hub.publish(encode(&p), p.Channels)",
		pkg: "cmd/holdfast", run: "^TestBus_EveryKindOfHold.*/^redis$",
		timeout: 3 * time.Minute, timeoutBites: true,
	},
	{
		name: "published-before-the-commit",
		file: "holds/bus/init.sql", find: "INSERT INTO holdfast.inbox (body) VALUES (bytes);", replace: "PERFORM holdfast.holdfast_enter(ARRAY[bytes], NULL);",
		pkg: "cmd/holdfast", run: "^TestBus_WhatIsPublishedInATransaction",
		timeout: 3 * time.Minute, timeoutBites: true,
	},
}
