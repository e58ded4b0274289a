package main

// benchRules are those of the benchmarks.
var benchRules = []rule{
	{
		name: "bench-stamp-cut-in-two-lost",
		file: "bench/crowd/load/stamp.go", find: "\t\t\treturn data[at:]\n\t\t}\n\t\tdata =", replace: "\t\t\treturn nil\n\t\t}\n\t\tdata =",
		pkg: "bench/crowd/load", run: "^TestStamps_AreFoundWhereverAReadEnds$",
	},
	{
		name: "bench-delivery-too-many-unseen",
		file: "bench/crowd/crowd.go", find: "\tcase seen.Deliveries > deliveries:", replace: "\tcase false:",
		pkg: "bench/crowd", run: "^TestCrowd_CountsDeliveriesAndTellsWhatIsMissingTooManyOrLost$",
	},
	{
		name: "bench-lost-client-unseen",
		file: "bench/crowd/crowd.go", find: "\tcase seen.Closed > 0:", replace: "\tcase false:",
		pkg: "bench/crowd", run: "^TestCrowd_CountsDeliveriesAndTellsWhatIsMissingTooManyOrLost$",
	},
	{
		name: "bench-ratio-of-medians",
		file: "bench/table/table.go", find: "\treturn peer.Median(ratios), len(ratios) > 0", replace: "\treturn peer.Median(row.Values(key)) / slices.Max(base.Values(key)), len(ratios) > 0",
		pkg: "bench/table", run: "^TestTable_ARatioIsTakenWithinARound$",
	},
	{
		name: "bench-failed-row-valid",
		file: "bench/table/table.go", find: "return r.Failure == \"\" && len(r.Rounds) > 0", replace: "return len(r.Rounds) > 0 || r.Failure != \"\"",
		pkg: "bench/table", run: "^TestTable_OneFailureMakesItInvalid$",
	},
	{
		name: "bench-holdfast-has-a-second-turn",
		file: "bench/table/measure.go", find: " && !strings.HasPrefix(name, holdfast)", replace: " && !strings.HasPrefix(name, holdfast+\"-never\")",
		pkg: "bench/table", run: "^TestMeasure_EachRowHasItsTurnAPeerUpToFourTimesAndHoldfastOnce$",
	},
	{
		name: "bench-second-turn-untold",
		file: "bench/table/measure.go", find: "t.Notes = append(t.Notes,", replace: "_ = append(t.Notes,",
		pkg: "bench/table", run: "^TestMeasure_EachRowHasItsTurnAPeerUpToFourTimesAndHoldfastOnce$",
	},
	{
		name: "bench-page-beyond-its-region",
		file: "bench/table/page.go", find: "\tout.Write(page[to:])", replace: "\tout.Write(page[to:to])",
		pkg: "bench/table", run: "^TestReplace_ChangesItsRegionAndNothingElse$",
	},
	{
		name: "bench-part-written-to-the-page",
		file: "bench/keep.go", find: "len(bench.Only) > 0 || len(bench.Cases) > 0", replace: "len(bench.Only) > 0 && len(bench.Cases) > 0",
		pkg: "bench", run: "^TestKeep_WritesNothingOfAPartOfAShortRunOrOfWhatFailed$",
	},
	{
		name: "bench-invalid-written-to-the-page",
		file: "bench/keep.go", find: "\tcase !r.Valid():", replace: "\tcase false:",
		pkg: "bench", run: "^TestKeep_WritesNothingOfAPartOfAShortRunOrOfWhatFailed$",
	},
	{
		name: "bench-memory-of-one-process",
		file: "bench/peer/cpu.go", find: "\t\tfamily = append(family, children[family[i]]...)", replace: "\t\t_ = append(family, children[family[i]]...)",
		pkg: "bench/peer", run: "^TestMemoryThreadsAndFiles_AreThoseOfTheWholeFamily$",
	},
	{
		name: "bench-errors-of-the-load-unseen",
		file: "bench/proxied/proxied.go", find: "\tif of.Errors != (load.Errors{}) {", replace: "\tif false {",
		pkg: "bench/proxied", run: "^TestFigures_OneErrorIsAFailure$",
	},
	{
		name: "bench-exponent-of-zeros",
		file: "bench/growth/growth.go", find: "\t\tif xs[i] <= 0 || ys[i] <= 0 {", replace: "\t\tif false {",
		pkg: "bench/growth", run: "^TestFit_OfFewerThanTwoPointsWithALogarithmIsNone$",
	},
	{
		name: "bench-floor-loses-in-silence",
		file: "bench/barewrites/main.go", find: "\t\t\tlost++", replace: "\t\t\treached++",
		pkg: "bench/barewrites", run: "^TestPublish_CountsWhatASocketDidNotTake$",
	},
	{
		name: "bench-bus-marks-in-any-order",
		file: "bench/bus/page.go", find: " || to < from", replace: "",
		pkg: "bench/bus", run: "^TestWritePage_ReplacesItsRegionAndNothingElse$",
	},
	{
		name: "bench-bus-writes-beyond-its-region",
		file: "bench/bus/page.go", find: "page[:from], bytes.TrimSpace(text), page[to:]", replace: "page[:from], bytes.TrimSpace(text), page[to:to+len(end)]",
		pkg: "bench/bus", run: "^TestWritePage_ReplacesItsRegionAndNothingElse$",
	},
	{
		name: "bench-bus-failure-unsaid",
		file: "bench/bus/bus.go", find: "of.Failure = row.Failure", replace: "_ = row.Failure",
		pkg: "bench/bus", run: "^TestPart_HasTheFiguresOfItsColumnsAndEachFailure$",
	},
}
