package main

import "time"

// dashboardRules are those of the dashboard and its feed.
var dashboardRules = []rule{
	{
		name: "feed-in-the-apps-hub",
		file: "cmd/holdfast/admin.go", find: "proxy.Config{Holds: h.feed.holds}", replace: "proxy.Config{Holds: h.holds}",
		pkg: "cmd/holdfast", run: "^TestFeed_IsInNoChannelNoMetricAndNoJournal$",
		timeout: 45 * time.Second, timeoutBites: true,
	},
	{
		name: "feed-without-a-guard",
		file: "cmd/holdfast/dashboard.go", find: "answer = a.guard(false, func(asked *proxy.Asked) proxy.Respond {", replace: "answer = (&access{keys: a.keys, hosts: map[string]bool{\"evil.example\": true}}).guard(false, func(asked *proxy.Asked) proxy.Respond {",
		pkg: "cmd/holdfast", run: "^TestFeed_NeedsAKeyWhereAWebPageMayAskAndThePageDoesNot$",
	},
	{
		name: "feed-names-channels-to-anybody",
		file: "cmd/holdfast/dashboard.go", find: "if stands(asked) || a.hasKey(asked) {", replace: "if true {",
		pkg: "cmd/holdfast", run: "^TestFeed_ChannelsAreNamedOnlyToWhoMayAct$",
	},
	{
		name: "feed-made-for-nobody",
		file: "cmd/holdfast/dashboard.go", find: "f.running = s.Streams > 0", replace: "f.running = s.Streams >= 0",
		pkg: "cmd/holdfast", run: "^TestFeed_IsMadeOnlyWhileSomebodyWatches$",
	},
	{
		name: "feed-watchers-without-bound",
		file: "cmd/holdfast/dashboard.go", find: "Limit: feedWatchers, ", replace: "",
		pkg: "cmd/holdfast", run: "^TestFeed_OneWatcherTooManyIsRefused$",
	},
	{
		name: "feed-holds-up-the-drain",
		file: "cmd/holdfast/life.go", find: "\t\th.feed.end() // its address waits for its clients\n", replace: "",
		pkg: "cmd/holdfast", run: "^TestFeed_EndsCleanlyBehindTheDrainAndHoldsNothingUp$",
		timeout: 45 * time.Second, timeoutBites: true,
	},
	{
		name: "feed-position-of-the-start",
		file: "proxy/feed.go", find: "Position: c.site.cfg.Holds.Position()}", replace: "Position: 1}",
		pkg: "proxy", run: "^TestFeed_HoldsWithoutAskingTheApp$",
	},
	{
		name: "feed-nobody-is-told",
		file: "proxy/feed.go", find: "\tif c.handedOver {\n\t\trt.Feed.Opened()\n\t}\n", replace: "",
		pkg: "proxy", run: "^TestFeed_HoldsWithoutAskingTheApp$",
	},
	{
		name: "feed-refusal-is-held",
		file: "proxy/feed.go", find: "if channel == \"\" {", replace: "if channel == \"\" && a.status == 200 {",
		pkg: "proxy", run: "^TestFeed_WhatIsNotHeldIsAnAnswer$",
	},
	{
		name: "refusals-are-the-apps-failures",
		file: "proxy/accesslog.go", find: "\t\t\ts.Failed -= min(n, s.Failed)\n", replace: "",
		pkg: "proxy", run: "^TestRoutes_CountRefusalsByReasonAndTheAppsFailures$",
	},
	{
		name: "reason-without-a-sentence",
		file: "health/dashboard/words.js", find: "  misdirected: \"", replace: "  elsewhere: \"",
		pkg: "proxy", run: "^TestReasons_EachIsExplainedOnTheDashboard$",
	},
	{
		name: "top-channels-first-come",
		file: "holds/api.go", find: "if len(top) == most && (most == 0 || larger(top[most-1], c) < 0) {", replace: "if len(top) == most {",
		pkg: "holds", run: "^TestTopChannels_AreTheLargestInOrder$",
	},
	{
		name: "loops-for-each-processor",
		file: "holds/holds.go", find: "cmp.Or(cfg.Loops, runtime.GOMAXPROCS(0))", replace: "cmp.Or(runtime.GOMAXPROCS(0), cfg.Loops)",
		pkg: "holds", run: "^TestHolds_HasAsManyLoopsAsItIsToldTo$",
	},
	{
		name: "dashboard-text-as-html",
		file: "health/dashboard/draw.js", find: "node.textContent = text;", replace: "node.innerHTML = text;",
		pkg: "health", run: "^TestDashboard_IsOneFileThatTakesNothingForHTML$",
	},
	{
		name: "dashboard-policy-lets-in-all",
		file: "health/dashboard.go", find: "\"default-src 'none'; script-src", replace: "\"default-src *; script-src",
		pkg: "health", run: "^TestDashboard_ThePolicyNamesWhatThePageHas$",
	},
	{
		name: "dashboard-policy-of-another-script",
		file: "health/dashboard.go", find: "hash(script) + \"'; style-src", replace: "hash(style) + \"'; style-src",
		pkg: "health", run: "^TestDashboard_ThePolicyNamesWhatThePageHas$",
	},
	{
		name: "view-routes-without-bound",
		file: "health/view.go", find: "left := max(len(routes)-viewRoutes, 0)", replace: "left := 0",
		pkg: "health", run: "^TestWatch_WhatIsBeyondTheBoundsIsCountedAndTheWorstIsShown$",
	},
	{
		name: "view-lanes-as-they-come",
		file: "health/view.go", find: "cmp.Compare(trouble(&all[b]), trouble(&all[a]))", replace: "0",
		pkg: "health", run: "^TestWatch_WhatIsBeyondTheBoundsIsCountedAndTheWorstIsShown$",
	},
	{
		name: "view-names-without-bound",
		file: "health/watch.go", find: "if len(text) <= viewText {", replace: "if true {",
		pkg: "health", run: "^TestShort_CutsBetweenCharacters$",
	},
	{
		name: "view-lately-is-for-ever",
		file: "health/watch.go", find: "now.Sub(m.at) > markAge || ", replace: "",
		pkg: "health", run: "^TestWatch_LatelyIsTheLastMinuteOrSo$",
	},
	{
		name: "view-names-told-to-anybody",
		file: "health/watch.go", find: "shown.Holds.Top, shown.Holds.Named = nil, false", replace: "shown.Holds.Named = false",
		pkg: "health", run: "^TestWatch_NamesOfChannelsAreLeftOutWhereTheyMayNotBeTold$",
	},
	{
		name: "view-made-for-each-who-asks",
		file: "health/watch.go", find: "age >= 0 && age < freshness", replace: "age >= 0 && age < 0",
		pkg: "health", run: "^TestWatch_RecentIsTheLastViewAsLongAsItIsFresh$",
	},
	{
		name: "view-counter-below-zero",
		file: "health/watch.go", find: "if now < before {", replace: "if false {",
		pkg: "health", run: "^TestWatch_LatelyIsTheLastMinuteOrSo$",
	},
	{
		name: "view-beyond-the-last-bound",
		file: "health/view.go", find: "return &value, true", replace: "return &value, false",
		pkg: "health", run: "^TestWatch_ARouteHasItsRateItsTimesAndItsErrors$",
	},
	{
		name: "dashboard-asks-elsewhere",
		file: "health/dashboard.go", find: "connect-src 'self'", replace: "connect-src http:",
		pkg: "cmd/holdfast", run: "^TestDashboard_AsksForItsFeedAndForNothingElse$",
		timeout: 45 * time.Second, timeoutBites: true,
	},
	{
		name: "dashboard-silent-when-lost",
		file: "health/dashboard/feed.js", find: "const QUIET = 3000;", replace: "const QUIET = 3e9;",
		pkg: "cmd/holdfast", run: "^TestDashboard_SaysWhenThereIsNoWordAndComesBackByItself$",
		timeout: 45 * time.Second, timeoutBites: true,
	},
	{
		name: "dashboard-gives-up",
		file: "health/dashboard/feed.js", find: "for (let tries = 0; ; tries++) {", replace: "for (let tries = 0; tries < 1; tries++) {",
		pkg: "cmd/holdfast", run: "^TestDashboard_SaysWhenThereIsNoWordAndComesBackByItself$",
		timeout: 45 * time.Second, timeoutBites: true,
	},
	{
		name: "dashboard-pause-that-is-none",
		file: "health/dashboard/feed.js", find: "if (!feed.view || feed.paused) return;", replace: "if (!feed.view) return;",
		pkg: "cmd/holdfast", run: "^TestDashboard_PausesAndIsUsedByKeyboard$",
		timeout: 45 * time.Second, timeoutBites: true,
	},
	{
		name: "dashboard-slots-drawn-once",
		file: "health/dashboard/sections.js", find: "if (row.drawn === lane.states) return;", replace: "if (row.drawn) return;",
		pkg: "cmd/holdfast", run: "^TestDashboard_ShowsWhatLanesTargetsAndTheProcessDo$",
		timeout: 45 * time.Second, timeoutBites: true,
	},
	{
		name: "dashboard-asks-for-no-key",
		file: "health/dashboard/feed.js", find: "if (answer.status === 401) return askForKey(", replace: "if (answer.status === 499) return askForKey(",
		pkg: "cmd/holdfast", run: "^TestDashboard_AsksForAKeyWhereItsFeedNeedsOne$",
		timeout: 45 * time.Second, timeoutBites: true,
	},
	{
		name: "dashboard-wider-than-a-phone",
		file: "health/dashboard/style.css", find: "  overflow-wrap: anywhere;\n", replace: "",
		pkg: "cmd/holdfast", run: "^TestDashboard_ShowsHostileNamesAsText$",
		timeout: 45 * time.Second, timeoutBites: true,
	},
}
