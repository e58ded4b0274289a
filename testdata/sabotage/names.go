package main

// nameRules are those of targets' names, of the documentation, and of what answers explain.
var nameRules = []rule{
	{
		name: "name-asked-for-at-each-dial",
		file: "upstream/name.go", find: "if age < due {", replace: "if age < min(due, 0) {",
		pkg: "upstream", run: "^TestDial_AThousandMakeOneLookUp$",
	},
	{
		name: "look-ups-side-by-side",
		file: "upstream/name.go", find: "if n.asking == nil {", replace: "if true {",
		pkg: "upstream", run: "^TestDial_AThousandMakeOneLookUp$",
	},
	{
		name: "name-never-asked-for-again",
		file: "upstream/name.go", find: "if age < due {", replace: "if age < due || len(known.all) > 0 {",
		pkg: "upstream", run: "^TestTarget_ItsNameIsLookedUpAgain$",
	},
	{
		name: "old-address-used-during-the-look-up",
		file: "upstream/name.go", find: "if old := age >= cfg.LookUpEvery; !old && (!failed || known.err != nil) {", replace: "if true {",
		pkg: "upstream", run: "^TestTarget_ItsNameIsLookedUpAgain$",
	},
	{
		name: "every-look-up-waited-for",
		file: "upstream/name.go", find: "if old := age >= cfg.LookUpEvery; !old && (!failed || known.err != nil) {", replace: "if false {",
		pkg: "upstream", run: "^TestDial_UnderSteadyUseNobodyWaitsForALookUp$",
	},
	{
		name: "dial-that-failed-asks-nobody",
		file: "upstream/name.go", find: "now := n.current(ctx, true)", replace: "now := known",
		pkg: "upstream", run: "^TestDial_AsksAgainOnceAllAddressesHaveFailed$",
	},
	{
		name: "dials-that-fail-ask-each-time",
		file: "upstream/name.go", find: "due = askEvery", replace: "due = 0",
		pkg: "upstream", run: "^TestDial_FailingOnesAskTwiceASecondAtMost$",
	},
	{
		name: "first-address-only",
		file: "upstream/name.go", find: "addrs = addrs[:min(len(addrs), maxTried)]", replace: "addrs = addrs[:min(len(addrs), 1)]",
		pkg: "upstream", run: "^TestDial_TriesEachAddressInOrder$",
	},
	{
		name: "address-that-answered-forgotten",
		file: "upstream/name.go", find: "i > 0 {", replace: "i > len(all) {",
		pkg: "upstream", run: "^TestDial_TriesEachAddressInOrder$",
	},
	{
		name: "addresses-without-bound",
		file: "upstream/name.go", find: "addrs = addrs[:min(len(addrs), maxTried)]", replace: "addrs = addrs[:len(addrs)]",
		pkg: "upstream", run: "^TestDial_ItsErrorNamesEachAddressAndTheLookUp$",
	},
	{
		name: "black-hole-takes-all-the-time",
		file: "upstream/name.go", find: "time.Until(until)/time.Duration(left)", replace: "time.Until(until)/time.Duration(min(left, 1))",
		pkg: "upstream", run: "^TestDial_ABlackHoleLeavesTimeForTheOthers$",
	},
	{
		name: "addresses-lost-with-the-resolver",
		file: "upstream/name.go", find: "if err != nil && !isNotFound(err) {", replace: "if false {",
		pkg: "upstream", run: "^TestDial_TheLastAddressesStayWhileTheResolverFails$",
	},
	{
		name: "name-gone-at-the-first-miss",
		file: "upstream/name.go", find: "if isNotFound(err) && len(known.all) > 0 {", replace: "if false {",
		pkg: "upstream", run: "^TestDial_TheLastAddressesStayWhileTheResolverFails$",
	},
	{
		name: "silent-resolver-takes-all-the-time",
		file: "upstream/name.go", find: "patience /= 2", replace: "patience /= 1",
		pkg: "upstream", run: "^TestDial_TheLastAddressesStayWhileTheResolverFails$",
	},
	{
		name: "name-that-is-gone-is-dialled",
		file: "upstream/name.go", find: "if err != nil && !isNotFound(err) {", replace: "if err != nil {",
		pkg: "upstream", run: "^TestDial_ANameThatIsGoneIsNotDialled$",
	},
	{
		name: "shortage-though-one-could-be-asked",
		file: "upstream/name.go", find: "!slices.ContainsFunc(e.dials, func(err error) bool { return !tcp.OutOfResources(err) })", replace: "slices.ContainsFunc(e.dials, tcp.OutOfResources)",
		pkg: "upstream", run: "^TestDial_ShortageHereIsOnlyWhatEveryAddressMet$",
	},
	{
		name: "addresses-compared-in-their-order",
		file: "upstream/conn.go", find: "!slices.Contains(name.current(context.Background(), false).all, c.addr)", replace: "slices.Index(name.current(context.Background(), false).all, c.addr) != 0",
		pkg: "upstream", run: "^TestConn_HasMovedWhenItsNameHasLostItsAddress$",
	},
	{
		name: "connection-to-where-the-name-was",
		file: "lanes/slot.go", find: "!s.conn.Moved() && ", replace: "",
		pkg: "lanes", run: "^TestExchange_AConnectionToWhereTheNameWasIsNotUsedAgain$",
	},
	{
		name: "several-addresses-unsaid",
		file: "cmd/holdfast/doctor_target.go", find: "if four > 1 || len(all)-four > 1 {", replace: "if false {",
		pkg: "cmd/holdfast", run: "^TestDoctor_SaysWhereATargetsNameLeads$",
	},
	{
		name: "post-onto-a-connection-that-may-close",
		file: "lanes/slot.go", find: "again || s.conn.Kept() && time.Since", replace: "again || time.Since",
		pkg: "lanes", run: "^TestExchange_APOSTGoesOnAUsedConnectionOnlyWhereTheAppIsKnownToKeepOne$",
	},
	{
		name: "docs-errors-pass",
		file: "docs_run_test.go", find: "exec bash -euo pipefail ", replace: "exec bash -u ",
		pkg: ".", run: "^TestDocs_AWrongPageFailsAndARightOneDoesNot$",
	},
	{
		name: "docs-more-output-passes",
		file: "docs_shown_test.go", find: "strings.Trim(text[end[1]:], \"\\n\") != \"\" && !endsOpen(shown)", replace: "false",
		pkg: ".", run: "^TestDocs_AWrongPageFailsAndARightOneDoesNot$",
	},
	{
		name: "docs-ids-hide-numbers",
		file: "docs_shown_test.go", find: "`\\b1[0-9]{15}\\b`", replace: "`[0-9]+`",
		pkg: ".", run: "^TestDocs_AWrongPageFailsAndARightOneDoesNot$",
	},
	{
		name: "docs-left-running",
		file: "docs_run_test.go", find: "\"unshare\", \"--net\", \"--pid\", \"--fork\", \"--kill-child\", \"--mount-proc\", \"bash\"", replace: "\"unshare\", \"--net\", \"--fork\", \"bash\"",
		pkg: ".", run: "^TestDocs_NothingOfAPageIsLeftRunning$",
	},
	{
		name: "docs-any-language",
		file: "docs_page_test.go", find: "case !languages[b.lang]:", replace: "case false:",
		pkg: ".", run: "^TestDocs_ABlockThatNothingReadsIsNamed$",
	},
	{
		name: "docs-anchors-unchecked",
		file: "docs_check_test.go", find: "if !to.anchors()[target.Fragment] {", replace: "if to.anchors() == nil {",
		pkg: ".", run: "^TestDocs_ADeadLinkIsNamed$",
	},
	{
		name: "docs-configuration-unchecked",
		file: "docs_check_test.go", find: "exit.ExitCode() == 1 {", replace: "exit.ExitCode() > 0 {",
		pkg: ".", run: "^TestDocs_AWrongConfigurationIsNamed$",
	},
	{
		name: "docs-syntax-unchecked",
		file: "docs_check_test.go", find: "if err == nil && len(out) > 0 {", replace: "if false {",
		pkg: ".", run: "^TestDocs_PythonThatDoesNotCompileIsNamed$",
	},
	{
		name: "type-that-explains-nothing",
		file: "proxy/problem.go", find: "return problem{Explained(f.reason), ", replace: "return problem{\"about:blank\", ",
		pkg: "proxy", run: "^TestProblem_ItsTypeIsTheSectionOfItsReason$",
	},
	{
		name: "grants-type-of-another-word",
		file: "proxy/grant.go", find: "grantProblem{f.problem(word), word}", replace: "grantProblem{(&fault{reason: word, text: f.text}).problem(word), word}",
		pkg: "proxy", run: "^TestGrant_ARefusalSaysWhetherToAskForANewOne$",
	},
	{
		name: "docs-address-unescaped",
		file: "proxy/problem.go", find: "strings.IndexByte(inURI, c) >= 0 || ", replace: "true || ",
		pkg: "proxy", run: "^TestProblem_WhateverItIsBuiltWithTheTypeIsAURI$",
	},
	{
		name: "docs-address-half-escapes",
		file: "proxy/problem.go", find: "c == '%' && isEscape(docs[i:])", replace: "c == '%' && docs[i:] != \"\"",
		pkg: "proxy", run: "^TestProblem_WhateverItIsBuiltWithTheTypeIsAURI$",
	},
	{
		name: "reason-without-a-section",
		file: "docs/troubleshoot.md", find: "\n## lane_full\n", replace: "\n## lane_is_full\n",
		pkg: "proxy", run: "^TestProblem_EveryReasonAndEveryEndHasItsSectionAndEverySectionIsOfOne$",
	},
	{
		name: "section-of-another-status",
		file: "docs/troubleshoot.md", find: "\n## lane_full\n\n503.", replace: "\n## lane_full\n\n429.",
		pkg: "proxy", run: "^TestProblem_ASectionBeginsWithTheStatusOfItsReason$",
	},
	{
		name: "help-of-a-part-of-a-word",
		file: "cmd/holdfast/help.go", find: "if s.anchor == anchorOf(word) {", replace: "if strings.HasPrefix(s.anchor, anchorOf(word)) {",
		pkg: "cmd/holdfast", run: "^TestHelp_AnUnknownWordIsUsageAndNamesTheNearest$",
	},
	{
		name: "help-in-markdown",
		file: "cmd/holdfast/help.go", find: "markdownMark.ReplaceAllString(markdownLink.ReplaceAllString(markdown, \"$1\"), \"\")", replace: "markdownMark.ReplaceAllString(markdown, \"\")",
		pkg: "cmd/holdfast", run: "^TestHelp_PrintsTheSectionOfEachWordAsText$",
	},
	{
		name: "help-without-its-address",
		file: "cmd/holdfast/help.go", find: "plainText(s.text), proxy.Explained(s.anchor))", replace: "plainText(s.text), proxy.Explained(s.heading))",
		pkg: "cmd/holdfast", run: "^TestHelp_PrintsTheSectionOfEachWordAsText$",
	},
	{
		name: "upload-without-its-length",
		file: "proxy/headers.go", find: "} else if bodyLength >= 0 {", replace: "} else if bodyLength >= 0 && bodyLength < 1<<17 {",
		pkg: "cmd/holdfast", run: "^TestServers_EachRecipeOfThePageDoesWhatItSays$/sync_workers",
	},
	{
		name: "end-forgets-views-that-run",
		file: "holds/api.go", find: "r != nil && r.at > position", replace: "r != nil && r.at > position && position < 0",
		pkg: "holds", run: "^TestEnd_WhoWasLetInByAViewThatRanMeanwhileIsEndedAsItJoins$",
	},
	{
		name: "end-forgets-messages-that-run",
		file: "holds/inbound.go", find: "\tl.endIfRevoked(h, position)\n", replace: "",
		pkg: "holds", run: "^TestEnd_AMessageThatWasSentBeforeItJoinsNothingThatWasEnded$",
	},
	{
		name: "publish-body-of-any-size-named",
		file: "proxy/body.go", find: "large.text = fmt.Sprintf(\"the body has more than %d bytes, the bound of this call; send less at once\", limit)", replace: "_ = fmt.Sprint(large)",
		pkg: "cmd/holdfast", run: "^TestPublish_WhatIsWrongIsRefusedWithItsFieldAndNothingOfItIsPublished$",
	},
}
