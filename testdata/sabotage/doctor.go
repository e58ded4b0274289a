package main

// doctorRules are those of the doctor, and of what the metrics say.
var doctorRules = []rule{
	{
		name: "doctor-publishes-to-anybody",
		file: "cmd/holdfast/doctor_round.go", find: "report.Channel != channel || report.Head == 0", replace: "false",
		pkg: "cmd/holdfast", run: "^TestDoctor_PublishesToNobodyButAHoldfast$",
	},
	{
		name: "doctor-leaves-its-hold",
		file: "cmd/holdfast/doctor_round.go", find: "\tdefer stream.Close()\n\tdefer publisher.end(channel)", replace: "\t_ = stream",
		pkg: "cmd/holdfast", run: "^TestDoctor_MeasuresARoundTripThroughAHoldAndLeavesNone$",
	},
	{
		name: "doctor-shows-the-query",
		file: "cmd/holdfast/doctor_url.go", find: "request.URL.Scheme, request.URL.Host, request.URL.Path)", replace: "request.URL.Scheme, request.URL.Host, request.URL.RequestURI())",
		pkg: "cmd/holdfast", run: "^TestDoctorURL_AStreamThatArrivesIsOk$",
	},
	{
		name: "doctor-errors-show-the-query",
		file: "cmd/holdfast/doctor_stream.go", find: "\t\treturn withURL.Err\n", replace: "\t\treturn err\n",
		pkg: "cmd/holdfast", run: "^TestDoctorURL_WhatIsNoStreamFails$",
	},
	{
		name: "doctor-buffering-unsaid",
		file: "cmd/holdfast/doctor_url.go", find: "\t\t\treached, _ = publisher.offer(p.channel, newMark())", replace: "\t\t\treached = 0",
		pkg: "cmd/holdfast", run: "^TestDoctorURL_AProxyThatBuffersFails$",
	},
	{
		name: "doctor-collected-events",
		file: "cmd/holdfast/doctor_url.go", find: "\tcase errors.Is(err, errNoEvent):\n\t\t\te.fail(exitFailed,", replace: "\tcase errors.Is(err, errNoEvent):\n\t\t\te.fail(exitOK,",
		pkg: "cmd/holdfast", run: "^TestDoctorURL_AProxyThatCollectsEventsFails$",
	},
	{
		name: "doctor-events-blame-the-proxy",
		file: "cmd/holdfast/doctor_url.go", find: "case err != nil && reached == 0:", replace: "case err != nil && reached < 0:",
		pkg: "cmd/holdfast", run: "^TestDoctorURL_AProxyThatCollectsEventsFails$",
	},
	{
		name: "doctor-heartbeats-kept-back",
		file: "cmd/holdfast/doctor_url.go", find: "case heartbeat > 0 && longest > most:", replace: "case heartbeat > 0 && longest > most && watch < 0:",
		pkg: "cmd/holdfast", run: "^TestDoctorURL_AProxyThatCollectsHeartbeatsFails$",
	},
	{
		name: "doctor-idle-cut-unseen",
		file: "cmd/holdfast/doctor_url.go", find: "\t\t\te.endOfQuiet(stream, time.Since(last))\n", replace: "\t\t\tbreak\n",
		pkg: "cmd/holdfast", run: "^TestDoctorURL_AProxyThatCutsQuietStreamsFails$",
	},
	{
		name: "doctor-own-end-blamed",
		file: "cmd/holdfast/doctor_url.go", find: "strings.Contains(string(stream.tail), \"\\nretry:\")", replace: "false",
		pkg: "cmd/holdfast", run: "^TestDoctorURL_HoldfastsOwnEndIsToldApart$",
	},
	{
		name: "doctor-compression-unsaid",
		file: "cmd/holdfast/doctor_url.go", find: "\trequest.Header.Set(\"Accept-Encoding\", \"gzip, br\")", replace: "\trequest.Header.Set(\"Accept-Encoding\", \"identity\")",
		pkg: "cmd/holdfast", run: "^TestDoctorURL_AProxyThatCompressesFails$",
	},
	{
		name: "doctor-refusal-taken-for-a-stream",
		file: "cmd/holdfast/doctor_url.go", find: "case reason != \"\":", replace: "case reason == \"?\":",
		pkg: "cmd/holdfast", run: "^TestDoctorURL_WhatIsNoStreamFails$",
	},
	{
		name: "doctor-workers-of-elsewhere",
		file: "cmd/holdfast/doctor_target.go", find: "if err != nil || !isOwnHost(host) {", replace: "if _ = host; err != nil {",
		pkg: "cmd/holdfast", run: "^TestDoctor_CountsWorkersOfThisMachineOnly$",
	},
	{
		name: "doctor-sync-slots",
		file: "cmd/holdfast/doctor_target.go", find: "case sync > 0 && slots > sync:", replace: "case sync < 0 && slots > sync:",
		pkg: "cmd/holdfast", run: "^TestDoctor_WarnsOfMoreSlotsThanSyncWorkers$",
	},
	{
		name: "doctor-unix-sockets-unseen",
		file: "cmd/holdfast/doctor_target.go", find: "\t\treturn workersOnSocket(address)", replace: "\t\treturn 0",
		pkg: "cmd/holdfast", run: "^TestDoctor_CountsWorkersOfThisMachineOnly$",
	},
	{
		name: "doctor-limit-above-unseen",
		file: "cmd/holdfast/doctor_linux.go", find: "\t\t\tif group == \"/\" {", replace: "\t\t\tif group != \"\" {",
		pkg: "cmd/holdfast", run: "^TestDoctor_KnowsTheMemoryThatACgroupAllows$",
	},
	{
		name: "doctor-slow-clients-memory",
		file: "cmd/holdfast/doctor_limits.go", find: "+ 2*journal +", replace: "+ journal +",
		pkg: "cmd/holdfast", run: "^TestDoctor_HoldsTheBudgetAgainstTheMemory$",
	},
	{
		name: "doctor-descriptors-by-choice",
		file: "cmd/holdfast/doctor_limits.go", find: "case clients > room:", replace: "case clients < 0:",
		pkg: "cmd/holdfast", run: "^TestDoctor_HoldsLimitsAgainstDescriptors$",
	},
	{
		name: "doctor-stream-lane-hidden",
		file: "cmd/holdfast/doctor_paths.go", find: "case config.Routes[i].isStream(config):", replace: "case i < -1:",
		pkg: "cmd/holdfast", run: "^TestDoctor_SaysWhoAnswersUnderHoldfastsOwnPaths$",
	},
	{
		name: "doctor-health-of-the-app",
		file: "cmd/holdfast/doctor_paths.go", find: "p.Host == \"\" && (p.Method == \"\" || p.Method == \"GET\")", replace: "true",
		pkg: "cmd/holdfast", run: "^TestDoctor_SaysWhoAnswersUnderHoldfastsOwnPaths$",
	},
	{
		name: "doctor-asks-twice",
		file: "cmd/holdfast/doctor_target.go", find: "\ta, err := askOnce(target)\n", replace: "\taskOnce(target)\n\ta, err := askOnce(target)\n",
		pkg: "cmd/holdfast", run: "^TestDoctor_AsksEachTargetOnce$",
	},
	{
		name: "series-that-come-late",
		file: "health/metrics.go", find: "range usualCodes {", replace: "range usualCodes[:1] {",
		pkg: "cmd/holdfast", run: "^TestMetrics_EverySeries",
	},
	{
		name: "limit-of-another",
		file: "health/metrics.go", find: "gauge(journalLimit, float64(limits.Journal))", replace: "gauge(journalLimit, float64(limits.Spool))",
		pkg: "health", run: "^TestMetrics_AreTheSnapshots",
	},
	{
		name: "limits-of-the-first-file",
		file: "cmd/holdfast/counts.go", find: "c := h.wiring.Load().config\n\treturn", replace: "c := h.first\n\treturn",
		pkg: "cmd/holdfast", run: "^TestMetrics_AReload",
	},
	{
		name: "metric-renamed",
		file: "health/metrics.go", find: "describe(\"reload_total\"", replace: "describe(\"reloads_total\"",
		pkg: "cmd/holdfast", run: "^TestExamples_Alerts",
	},
}
