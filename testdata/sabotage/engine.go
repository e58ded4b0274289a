package main

import "time"

// engineRules are those of GRIP's holds: sockets over HTTP, long polls, clocks,
// coded bodies, and what the proxy makes of an instruction.
var engineRules = []rule{
	{
		name: "over-batch-unbounded",
		file: "holds/overhttp.go", find: "(n == 0 || len(events)+len(s.inbound[n].payload) <= batchBytes)", replace: "true",
		pkg: "holds", run: "^TestOverHTTP_ARequestHas200000BytesOfEventsOrOneMessage$",
	},
	{
		name: "over-meta-unbounded",
		file: "holds/overhttp.go", find: "if len(f.Value) > 0 && len(o.meta) < metaMost {", replace: "if len(f.Value) > 0 {",
		pkg: "holds", run: "^TestOverHTTP_WhatTheAppHasKeptComesBackWithEachRequest$",
	},
	{
		name: "over-meta-kept-empty",
		file: "holds/overhttp.go", find: "if len(f.Value) > 0 && len(o.meta) < metaMost {", replace: "if len(o.meta) < metaMost {",
		pkg: "holds", run: "^TestOverHTTP_WhatTheAppHasKeptComesBackWithEachRequest$",
	},
	{
		name: "over-any-type",
		file: "holds/overhttp.go", find: "len(a.Body) > 0 && !a.hasEvents()", replace: "false",
		pkg: "holds", run: "^TestOverHTTP_AnAnswerThatIsNoneCutsTheSocket$",
	},
	{
		name: "over-any-status",
		file: "holds/overhttp.go", find: "case a.Status != 200 || len(a.Body)", replace: "case len(a.Body)",
		pkg: "holds", run: "^TestOverHTTP_AnAnswerThatIsNoneCutsTheSocket$",
	},
	{
		name: "over-part-taken-for-all",
		file: "holds/overhttp.go", find: "case acceptsPart(a.Fields):", replace: "case false:",
		pkg: "holds", run: "^TestOverHTTP_AnAnswerThatIsNoneCutsTheSocket$",
	},
	{
		name: "over-text-not-utf8",
		file: "holds/overhttp.go", find: "if op == opText && !utf8.Valid(content) {", replace: "if op == 0 && !utf8.Valid(content) {",
		pkg: "holds", run: "^TestOverHTTP_ATextThatIsNotUTF8IsNotSent$",
	},
	{
		name: "over-detached-app-asked",
		file: "holds/overhttp.go", find: "s.over.detached || len(s.inbound) > s.underWay", replace: "len(s.inbound) > s.underWay",
		pkg: "holds", run: "^TestOverHTTP_ADetachedSocketIsTheClientsAlone$",
	},
	{
		name: "over-detached-app-told",
		file: "holds/overhttp.go", find: "if o.told || o.detached || l.stopped {", replace: "if o.told || l.stopped {",
		pkg: "holds", run: "^TestOverHTTP_ADetachedSocketIsTheClientsAlone$",
	},
	{
		name: "over-told-twice",
		file: "holds/overhttp.go", find: "if o.told || o.detached || l.stopped {", replace: "if o.detached || l.stopped {",
		pkg: "holds", run: "^TestOverHTTP_(AClientsCloseIsTheAppsToAnswer|AClientThatGoesBehindItsCloseIsNoOtherEnd)$",
	},
	{
		name: "over-asked-after-stop",
		file: "holds/overhttp.go", find: "if o.told || o.detached || l.stopped {", replace: "if o.told || o.detached {",
		pkg: "holds", run: "^TestOverHTTP_AStopAsksTheAppNothing$",
	},
	{
		name: "over-close-told-as-gone",
		file: "holds/overhttp.go", find: "\tif o.closed {\n\t\tm = o.closing()\n\t}\n", replace: "",
		pkg: "holds", run: "^TestOverHTTP_TheAppsCloseIsFollowedByTheClientsCloseEvent$",
	},
	{
		name: "over-owed-lost-at-subscribe",
		file: "holds/overhttp.go", find: "\tif h.state == live {\n\t\tl.owed(h, l.hub.head.Load()+1) // a channel that it leaves next may have something on its way\n\t}\n", replace: "",
		pkg: "holds", run: "^TestOverHTTP_WhatWasPublishedBeforeAnUnsubscribeIsGivenAndNothingAfter$",
	},
	{
		name: "over-owed-lost-at-unsubscribe",
		file: "holds/overhttp.go", find: "l.owed(h, l.hub.head.Load()+1) // what was published before is on its way", replace: "_ = h",
		pkg: "holds", run: "^TestOverHTTP_WhatWasPublishedBeforeAnUnsubscribeIsGivenAndNothingAfter$",
	},
	{
		name: "over-first-filters-stay",
		file: "holds/overhttp.go", find: "\t\tc.Filters = channel.Filters\n", replace: "",
		pkg: "holds", run: "^TestOverHTTP_FiltersSayWhatASocketIsGivenAndHow$",
	},
	{
		name: "over-channels-unbounded",
		file: "holds/overhttp.go", find: "if h.seats() == MaxChannels {", replace: "if false {",
		pkg: "holds", run: "^TestOverHTTP_ASocketIsIn64ChannelsAtMost$",
	},
	{
		name: "over-six-filters",
		file: "holds/overhttp.go", find: "return !errors.Is(err, errTooManyFilters)", replace: "return !errors.Is(err, errTooManyFilters) || true",
		pkg: "holds", run: "^TestOverHTTP_MoreThanFiveFiltersEndTheSocket$",
	},
	{
		name: "over-subscribe-from-now",
		file: "holds/overhttp.go", find: "l.subscribe(h, []string{channel.Name}, position)", replace: "l.subscribe(h, []string{channel.Name}, l.hub.head.Load())",
		pkg: "holds", run: "^TestOverHTTP_ASubscribeIsFromWhenTheAppWasAsked$",
	},
	{
		name: "over-refresh-lost",
		file: "holds/overhttp.go", find: "|| len(s.inbound) > s.underWay && s.delivering {", replace: "|| s.delivering {",
		pkg: "holds", run: "^TestOverHTTP_ARefreshAsksTheApp$",
	},
	{
		name: "over-binary-is-control",
		file: "holds/overhttp.go", find: "case op == opBinary: // which says nothing to us", replace: "case op == opBinary && kind != prefixControl: // which says nothing to us",
		pkg: "holds", run: "^TestOverHTTP_ThePrefixSaysForWhomATextIs$",
	},
	{
		name: "over-filters-not-compared",
		file: "holds/overhttp.go", find: "case !sameContentFilters(filters, f.Filters):", replace: "case false:",
		pkg: "holds", run: "^TestOverHTTP_FiltersSayWhatASocketIsGivenAndHow$",
	},
	{
		name: "over-second-open",
		file: "holds/overhttp.go", find: "l.home.log.Warn(\"the app opened a socket that is open\", zap.String(\"hold\", l.connection(h)))\n\t\treturn false", replace: "return true",
		pkg: "holds", run: "^TestOverHTTP_AnAnswerThatIsNoneCutsTheSocket$",
	},
	{
		name: "over-gone-counted-as-message",
		file: "holds/inbound.go", find: "underWay + s.messages(len(s.inbound))", replace: "underWay + len(s.inbound)",
		pkg: "holds", run: "^TestOverHTTP_OnlyMessagesAreCountedAsInbound$",
	},
	{
		name: "over-failing-app-keeps-socket",
		file: "holds/inbound.go", find: "if result == inboundFailed && s.over != nil {", replace: "if false {",
		pkg: "holds", run: "^TestOverHTTP_AnAnswerThatIsNoneCutsTheSocket$",
	},
	{
		name: "missed-given-raw",
		file: "holds/inbound.go", find: "\tfor _, e := range missed { // the hold's cursor is beyond all of these\n\t\tif h.state < leaving {\n\t\t\tl.give(h, e)\n\t\t}\n\t}\n", replace: "\tif len(missed) > 0 {\n\t\tl.sendEvents(h, missed...)\n\t}\n",
		pkg: "holds", run: "WhatASubscribeFindsIsGivenAsAnyItem",
	},
	{
		name: "over-close-answered-unasked",
		file: "holds/websocket.go", find: "if l.askForClose(h, code) {", replace: "if false {",
		pkg: "holds", run: "^TestOverHTTP_AClientsCloseIsTheAppsToAnswer$",
	},
	{
		name: "over-detached-client-heard",
		file: "holds/websocket.go", find: "if s.over != nil && (s.over.detached || s.over.closed) {", replace: "if false {",
		pkg: "holds", run: "^TestOverHTTP_ADetachedSocketIsTheClientsAlone$",
	},
	{
		name: "over-app-not-told-of-end",
		file: "holds/bury.go", find: "if h.socket != nil && h.socket.over != nil {\n\t\tl.lastEvent(h)", replace: "if false {\n\t\tl.lastEvent(h)",
		pkg: "holds", run: "^TestOverHTTP_TheAppIsToldOfEachEndOnce$",
	},
	{
		name: "grip-farewell-to-all",
		file: "holds/bury.go", find: "(h.grip() == nil || h.grip().events)", replace: "true",
		pkg: "holds", run: "^TestGripEnds_MaxAge",
	},
	{
		name: "grip-alarms-pile-up",
		file: "holds/longpoll.go", find: "return h == nil || h.poll == nil && !a.at.Equal(h.grip().alarmAt)", replace: "return h == nil",
		pkg: "holds", run: "^TestAlarms_DoNotPileUp$",
	},
	{
		name: "grip-keep-alive-behind-outbox",
		file: "holds/grip_hold.go", find: "if h.outbox == nil { // whoever is behind is not quiet", replace: "if true { // whoever is behind is not quiet",
		pkg: "holds", run: "^TestKeepAlive_ThereIsNoneBehindWhatWaitsNorBehindTheEnd$",
	},
	{
		name: "grip-keep-alive-not-spread",
		file: "holds/grip_hold.go", find: "g.early = rand.N(min(keepAliveJitter, k.Timeout/4) + 1)", replace: "g.early = 0*rand.N(time.Second)",
		pkg: "holds", run: "^TestKeepAlive_ThoseOfManyAreSpreadOverASecond$",
	},
	{
		name: "grip-keep-alive-too-early",
		file: "holds/grip_hold.go", find: "rand.N(min(keepAliveJitter, k.Timeout/4) + 1)", replace: "rand.N(k.Timeout)",
		pkg: "holds", run: "^TestKeepAlive_AQuietStreamGetsItAtItsTime$",
	},
	{
		name: "grip-interval-is-idle",
		file: "holds/grip_hold.go", find: "if g.keepAlive.Interval {", replace: "if false {",
		pkg: "holds", run: "^TestKeepAlive_AnItemPutsOffAnIdleOneAlone$",
	},
	{
		name: "grip-idle-not-put-off",
		file: "holds/deliver.go", find: "\tif g := h.grip(); g != nil {\n\t\tg.wroteAt = l.hub.now()\n\t}\n", replace: "",
		pkg: "holds", run: "^TestKeepAlive_(AnItemPutsOff|WhatASocketIsSent)",
	},
	{
		name: "grip-nothing-puts-off",
		file: "holds/deliver.go", find: "\tif size == 0 {\n\t\treturn\n\t}\n", replace: "",
		pkg: "holds", run: "^TestKeepAlive_AnItemPutsOffAnIdleOneAlone$",
	},
	{
		name: "grip-stream-has-our-heartbeat",
		file: "holds/tick.go", find: "h.poll != nil || h.grip() != nil && h.socket == nil {", replace: "h.poll != nil {",
		pkg: "holds", run: "^TestHeartbeat_AGripStreamHasNoneAndItsSocketHas$",
	},
	{
		name: "grip-hint-of-other-kind",
		file: "holds/grip_hold.go", find: "return i.Stream == nil || i.Stream.Action == ActionSend", replace: "return (i.Stream == nil || i.Stream.Action == ActionSend) && (i.Answer == nil || i.Answer.Action == ActionSend)",
		pkg: "holds", run: "^TestGripPoll_EachKindHasItsOwnActionAndTheSameOrder$",
	},
	{
		name: "grip-native-answers-poll",
		file: "holds/grip_hold.go", find: ", g != nil && e.item == nil && h.socket == nil:", replace: ":",
		pkg: "holds", run: "^TestGripPoll_OnlyItemsForLongPollsAnswerIt$",
	},
	{
		name: "grip-poll-field-case",
		file: "holds/longpoll.go", find: "strings.EqualFold(field[0], string(name))", replace: "strings.EqualFold(field[0], string(name)) && field[0] == string(name)",
		pkg: "holds", run: "^TestGripPoll_AnItemIsTheAnswerWithTheInstructionsOtherFields$",
	},
	{
		name: "grip-poll-id-shown",
		file: "holds/longpoll.go", find: "\tif !p.bare {\n", replace: "\tif true {\n",
		pkg: "holds", run: "^TestGripPoll_WithoutAnItemInTimeItGetsItsOwnAnswer$",
	},
	{
		name: "grip-poll-filters-not-compared",
		file: "holds/longpoll.go", find: "case !sameContentFilters(filters, f.Filters):", replace: "case false:",
		pkg: "holds", run: "^TestGripPoll_FiltersSayWhatItIsAnsweredWith$",
	},
	{
		name: "grip-poll-all-at-once",
		file: "holds/next.go", find: "Add(missPause+rand.N(missSpan))", replace: "Add(missPause+0*rand.N(missSpan))",
		pkg: "holds", run: "^TestGripPoll_(AHint|WhatFollows)",
	},
	{
		name: "link-failed-is-forgotten",
		file: "holds/next.go", find: "func() { k.later(home, present) }", replace: "func() { _ = present; k.later(home, ask) }",
		pkg: "holds", run: "^TestLink_OneThatFailsIsAskedForAgain$",
	},
	{
		name: "links-unbounded",
		file: "holds/next.go", find: "if k.running == linksAtOnce {", replace: "if false {",
		pkg: "holds", run: "^TestLink_FewAreFollowedAtATime$",
	},
	{
		name: "decode-unbounded",
		file: "holds/decode.go", find: "io.ReadAll(io.LimitReader(r, maxDecoded+1))", replace: "io.ReadAll(r)",
		pkg: "holds", run: "^TestDecode_ASmallBodyDoesNotTakeTheMemoryOfALargeOne$",
	},
	{
		name: "decode-bound-not-told",
		file: "holds/decode.go", find: "case len(body) > maxDecoded:", replace: "case false:",
		pkg: "holds", run: "^TestDecode_MoreThan1MiBIsRefused$",
	},
	{
		name: "decode-from-the-first",
		file: "holds/decode.go", find: "for i := len(codings) - 1; i >= 0; i-- {", replace: "for i := range codings {",
		pkg: "holds", run: "^TestDecode_SeveralAreTakenOffFromTheLast$",
	},
	{
		name: "decode-codings-unbounded",
		file: "holds/decode.go", find: "len(codings) > maxCodings {", replace: "false {",
		pkg: "holds", run: "^TestDecode_SeveralAreTakenOffFromTheLast$",
	},
	{
		name: "decode-no-body-is-cut",
		file: "holds/decode.go", find: "\tif len(body) == 0 {\n", replace: "\tif false {\n",
		pkg: "holds", run: "^TestDecode_NoBytesAreNoBodyWhateverTheCoding$",
	},
	{
		name: "grip-expose-ignored",
		file: "proxy/grip.go", find: "case g.Expose == nil:", replace: "case true:",
		pkg: "proxy", run: "^TestGrip_OnlyExposedFieldsReachTheClient$",
	},
	{
		name: "grip-304-with-a-body",
		file: "proxy/grip.go", find: "\tif answer.Status == 204 || answer.Status == 304 {\n\t\tbody = nil\n", replace: "\tif false {\n\t\tbody = nil\n",
		pkg: "proxy", run: "^TestGrip_AStatusReplacesTheViews$",
	},
	{
		name: "grip-coding-left-on",
		file: "proxy/grip.go", find: "http1.EqualFold(f.Name, \"content-length\"), http1.EqualFold(f.Name, \"content-encoding\"), ", replace: "http1.EqualFold(f.Name, \"content-length\"), ",
		pkg: "proxy", run: "^TestGrip_ACodingIsTakenOffAnInstruction$",
	},
	{
		name: "grip-asked-for-ever",
		file: "proxy/grip.go", find: "if g.Next != nil || c.last != nil || ", replace: "if g.Next != nil || ",
		pkg: "proxy", run: "^TestGrip_TheAppIsAskedOnceMoreForWhatIsMissedAndThenItsWordIsTaken$",
		timeout: 90 * time.Second, timeoutBites: true,
	},
	{
		name: "grip-post-sent-again",
		file: "proxy/grip.go", find: "c.last != nil || !c.req.isGET() || c.req.hasBody() || ", replace: "c.last != nil || ",
		pkg: "proxy", run: "^TestGrip_TheAppIsNotAskedAgainForNothing$",
		timeout: 90 * time.Second, timeoutBites: true,
	},
	{
		name: "grip-asked-though-linked",
		file: "proxy/grip.go", find: "if g.Next != nil || c.last", replace: "if c.last",
		pkg: "proxy", run: "^TestGrip_TheAppIsNotAskedAgainForNothing$",
	},
	{
		name: "grip-last-of-another-request",
		file: "proxy/client.go", find: "\tc.last = nil\n", replace: "",
		pkg: "proxy", run: "^TestGrip_AnAppThatHoldsNobodyTheSecondTimeIsTakenAtItsWord$",
	},
	{
		name: "grip-head-of-json-is-bad",
		file: "proxy/grip.go", find: "case err == nil && in.Grip.JSON && c.req.isHEAD():", replace: "case false:",
		pkg: "proxy", run: "^TestGrip_HEADOfAnInstructionInJSONIsNoFailure$",
	},
	{
		name: "grip-head-logged-as-200",
		file: "proxy/hold.go", find: "cmp.Or(c.record.status, 200)", replace: "cmp.Or(0*c.record.status, 200)",
		pkg: "proxy", run: "^TestGrip_HEADHoldsNobody$",
	},
	{
		name: "over-any-origin",
		file: "proxy/overhttp.go", find: "if !c.originAllowed(c.site.cfg.Origins) {", replace: "if false {",
		pkg: "proxy", run: "^TestOverHTTP_ABadHandshakeDoesNotReachTheApp$",
		timeout: 90 * time.Second, timeoutBites: true,
	},
	{
		name: "over-key-checked-late",
		file: "proxy/overhttp.go", find: "if _, err := c.handshakeKey(); err != nil {", replace: "if _, err := c.handshakeKey(); false {",
		pkg: "proxy", run: "^TestOverHTTP_ABadHandshakeDoesNotReachTheApp$",
		timeout: 90 * time.Second, timeoutBites: true,
	},
	{
		name: "over-forged-fields-go-along",
		file: "proxy/overhttp.go", find: "if f.kind != kindPlain || named", replace: "if f.kind == kindHop || named",
		pkg: "proxy", run: "^TestOverHTTP_TheHandshakeGoesAsOpenToItsOwnAddress$",
	},
	{
		name: "over-clients-extensions-go-along",
		file: "proxy/overhttp.go", find: ", http1.EqualFold(f.Name, \"sec-websocket-extensions\"):", replace: ":",
		pkg: "proxy", run: "^TestOverHTTP_TheHandshakeGoesAsOpenToItsOwnAddress$",
	},
	{
		name: "over-meta-shown-to-client",
		file: "proxy/overhttp.go", find: "return http1.HasPrefixFold(f.Name, \"set-meta-\")", replace: "return false",
		pkg: "proxy", run: "^TestOverHTTP_TheHandshakeGoesAsOpenToItsOwnAddress$",
	},
	{
		name: "over-rejection-opens",
		file: "proxy/overhttp.go", find: "case !answer.Opens():", replace: "case false:",
		pkg: "proxy", run: "^TestOverHTTP_ARejectedHandshakeIsTheAppsAnswer$",
	},
	{
		name: "over-rejection-has-two-lengths",
		file: "proxy/overhttp.go", find: "rejection = *without(&rejection, \"content-length\")", replace: "",
		pkg: "proxy", run: "^TestOverHTTP_ARejectedHandshakeIsTheAppsAnswer$",
	},
	{
		name: "over-nobody-told-of-refused",
		file: "proxy/overhttp.go", find: "if !c.handedOver {", replace: "if false {",
		pkg: "proxy", run: "^TestOverHTTP_(OneHoldTooManyIsRefused|AClientThatLeavesIsLeft)$",
		timeout: 90 * time.Second, timeoutBites: true,
	},
}
