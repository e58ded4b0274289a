package main

import "time"

// fileRules are those of file routes, and of answers that lead to them.
var fileRules = []rule{
	{
		name: "files-hidden-ones-served",
		file: "proxy/files.go", find: "len(segment) == 0 || segment[0] == '.' ||", replace: "len(segment) == 0 || string(segment) == \"..\" || string(segment) == \".\" ||",
		pkg: "proxy", run: "^TestFiles_NoTargetLeavesTheDirectoryOrShowsWhatIsHidden$",
	},
	{
		name: "files-empty-segments",
		file: "proxy/files.go", find: "len(segment) == 0 || segment[0] == '.' ||", replace: "len(segment) > 0 && segment[0] == '.' ||",
		pkg: "proxy", run: "^TestFileName_IsWhatIsBelowThePatternOrTheLastSegment$",
	},
	{
		name: "files-nul-and-backslash-in-names",
		file: "proxy/files.go", find: " || bytes.ContainsAny(segment, \"\\x00\\\\\")", replace: "",
		pkg: "proxy", run: "^TestFileName_IsWhatIsBelowThePatternOrTheLastSegment$",
	},
	{
		name: "files-links-lead-out",
		file: "proxy/files.go", find: "file, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)", replace: "file, err := os.OpenFile(f.Dir+\"/\"+name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)",
		pkg: "proxy", run: "^TestFiles_NoTargetLeavesTheDirectoryOrShowsWhatIsHidden$",
	},
	{
		name: "files-wait-for-a-pipe",
		file: "proxy/files.go", find: "os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY", replace: "os.O_RDONLY|syscall.O_NOCTTY",
		pkg: "proxy", run: "^TestFiles_WhatIsNoRegularFileIsAMissAndNobodyWaits$",
		timeout: 30 * time.Second, timeoutBites: true,
	},
	{
		name: "files-that-are-none",
		file: "proxy/files.go", find: "if err == nil && !info.Mode().IsRegular() {", replace: "if false {",
		pkg: "proxy", run: "^TestFiles_WhatIsNoRegularFileIsAMissAndNobodyWaits$",
	},
	{
		name: "files-left-open",
		file: "proxy/files.go", find: "\tdefer file.Close()\n\tif err := c.skipBody(); err != nil {", replace: "\tif err := c.skipBody(); err != nil {",
		pkg: "proxy", run: "^TestFiles_AClientThatLeavesInTheMiddleLeavesNothingOpen$",
	},
	{
		name: "files-told-each-time",
		file: "proxy/files.go", find: "\t\trt.Files.toldFile.Do(func() {", replace: "\t\t(&sync.Once{}).Do(func() {",
		pkg: "proxy", run: "^TestFiles_OneThatMayNotBeServedIsToldOnce$",
	},
	{
		name: "files-internal-served-to-the-network",
		file: "proxy/files.go", find: "\t\tif rt.Files.Internal {\n\t\t\treturn nil, nil, nil\n\t\t}\n", replace: "",
		pkg: "proxy", run: "^TestFiles_InternalOnesAreNotThereForTheNetwork$",
	},
	{
		name: "files-internal-open-to-other-methods",
		file: "proxy/route.go", find: "\t\tcase files != nil && files.Internal:\n\t\t\tt.internal = true // and closed to every method\n", replace: "\t\tcase files != nil && files.Internal && p.Method != \"\":\n",
		pkg: "proxy", run: "^TestFiles_InternalOnesAreNotThereForTheNetwork$",
	},
	{
		name: "files-a-miss-is-the-end",
		file: "proxy/files.go", find: "rt, _ = c.site.routes.matchBeyond(c.req.method, c.req.host, decoded, missed)", replace: "rt = nil",
		pkg: "proxy", run: "^TestFiles_AMissGoesToTheNextRouteThatMatches$",
	},
	{
		name: "files-body-of-a-miss-thrown-away",
		file: "proxy/files.go", find: "\t\tmissed = append(missed, rt)\n", replace: "\t\tmissed = append(missed, rt)\n\t\tc.skipBody()\n",
		pkg: "proxy", run: "^TestFiles_AMissIsForwardedAsIfTheFileRouteWereNotThere$",
	},
	{
		name: "files-conditions-in-another-order",
		file: "proxy/files_conditions.go", find: "\tif k.match != nil {", replace: "\tif k.noneMatch != nil && v.in(k.noneMatch, true) {\n\t\treturn http.StatusNotModified\n\t}\n\tif k.match != nil {",
		pkg: "proxy", run: "^TestConditions_AreJudgedInTheOrderOfTheRFC$",
	},
	{
		name: "files-weak-tag-matches-strongly",
		file: "proxy/files_conditions.go", find: "string(tag) == v.etag && (weakly || !weak)", replace: "string(tag) == v.etag && (weakly || !weakly || weak)",
		pkg: "proxy", run: "^TestConditions_AreJudgedInTheOrderOfTheRFC$",
	},
	{
		name: "files-date-beside-a-tag",
		file: "proxy/files_conditions.go", find: "\t} else if at, ok := k.modifiedSince.date(); ok && !v.modified.IsZero() && !v.modified.After(at) {", replace: "\t}\n\tif at, ok := k.modifiedSince.date(); ok && !v.modified.IsZero() && !v.modified.After(at) {",
		pkg: "proxy", run: "^TestConditions_AreJudgedInTheOrderOfTheRFC$",
	},
	{
		name: "files-range-of-another-content",
		file: "proxy/files_conditions.go", find: " || k.ifPart.times > 0 && !k.ifPart.holds(v) {", replace: " {",
		pkg: "proxy", run: "^TestFiles_ConditionsDecideTheStatus$",
	},
	{
		name: "files-ranges-without-number",
		file: "proxy/files_range.go", find: "if asked++; asked > rangesAtOnce {", replace: "if asked++; false {",
		pkg: "proxy", run: "^TestRange_SoManyAtOnceAndNoMore$",
	},
	{
		name: "files-ranges-sum-beyond-the-file",
		file: "proxy/files_range.go", find: "sum += part.length; sum > size {", replace: "sum += part.length; false {",
		pkg: "proxy", run: "^TestRange_IsReadAsTheRFCHasIt$",
	},
	{
		name: "files-range-beyond-the-end",
		file: "proxy/files_range.go", find: "case len(to) == 0 || lastHuge || last >= size:", replace: "case len(to) == 0 || lastHuge:",
		pkg: "proxy", run: "^TestRange_IsReadAsTheRFCHasIt$",
	},
	{
		name: "files-416-as-the-whole",
		file: "proxy/files_answer.go", find: "if len(ranges) == 0 {", replace: "if false {",
		pkg: "proxy", run: "^TestFiles_ARangeIsWhatIsSentOfTheFile$",
	},
	{
		name: "files-guessed-types",
		file: "proxy/files_answer.go", find: "\tdst = append(dst, \"X-Content-Type-Options: nosniff\\r\\n\"...)\n", replace: "",
		pkg: "proxy", run: "^TestFiles_AreServedByTheirNameWithTheirType$",
	},
	{
		name: "files-tag-of-seconds",
		file: "proxy/files.go", find: "strconv.AppendInt([]byte{'\"'}, modified.UnixNano(), 16)", replace: "strconv.AppendInt([]byte{'\"'}, modified.Unix(), 16)",
		pkg: "proxy", run: "^TestValidators_TellContentsApartAndAreTheSameOnEveryMachine$",
	},
	{
		name: "files-modified-in-the-future",
		file: "proxy/files.go", find: "\tif modified.After(now) {\n\t\tmodified = now // RFC 9110 §8.8.2.1\n\t}\n", replace: "",
		pkg: "proxy", run: "^TestValidators_TellContentsApartAndAreTheSameOnEveryMachine$",
	},
	{
		name: "files-small-ones-open-while-sent",
		file: "proxy/files_answer.go", find: "\ta.file.Close()\n\treturn w.flush()", replace: "\treturn w.flush()",
		pkg: "proxy", run: "^TestFiles_ASmallOneIsClosedBeforeItIsSent$",
	},
	{
		name: "files-short-one-looks-whole",
		file: "proxy/files_writer.go", find: "\t\tcase err == nil && r.length > 0:\n\t\t\treturn fmt.Errorf(\"%w: %d bytes are missing\", errFileCut, r.length)\n", replace: "\t\tcase err == nil:\n\t\t\treturn nil\n",
		pkg: "proxy", run: "^TestFiles_OneThatBecomesShorterCutsItsAnswer$",
	},
	{
		name: "files-read-into-memory",
		file: "proxy/files_writer.go", find: "n, err := io.CopyBuffer(c.Conn, &io.LimitedReader{R: file, N: r.length}, through)", replace: "_ = through\n\t\tall := make([]byte, r.length)\n\t\tfile.ReadAt(all, r.at)\n\t\tm, err := c.Conn.Write(all)\n\t\tn := int64(m)",
		pkg: "proxy", run: "^TestFiles_ALargeOneTakesNoMemory$",
	},
	{
		name: "files-deadline-of-the-whole",
		file: "proxy/files_writer.go", find: "case err != nil && !c.takesStill(n, err, &waiting):", replace: "case err != nil:\n\t\t\twaiting++",
		pkg: "proxy", run: "^TestFiles_ASlowClientGetsAllOfItAndOneThatTakesNothingIsCut$",
	},
	{
		name: "files-no-deadline",
		file: "proxy/files_writer.go", find: "\t\tc.extendWrite(c.site.cfg.BodyTimeout)\n", replace: "\t\tc.extendWrite(100*c.site.cfg.BodyTimeout)\n",
		pkg: "proxy", run: "^TestFiles_ASlowClientGetsAllOfItAndOneThatTakesNothingIsCut$",
	},
	{
		name: "redirect-slot-kept-while-the-file-is-sent",
		file: "proxy/redirect.go", find: "\tthrowAway(ex)\n", replace: "\tdefer throwAway(ex)\n",
		pkg: "proxy", run: "^TestRedirect_ASlowClientKeepsNoSlot$",
	},
	{
		name: "redirect-of-a-refusal-followed",
		file: "proxy/redirect.go", find: "case res.Status != http.StatusOK:", replace: "case res.Status > 5*http.StatusOK:",
		pkg: "proxy", run: "^TestRedirect_OfAnAnswerThatIsNot200IsNotFollowed$",
	},
	{
		name: "redirect-to-public-files",
		file: "proxy/redirect.go", find: " || !rt.Files.Internal {", replace: " {",
		pkg: "proxy", run: "^TestRedirect_ToWhatIsNotInternalGoesOn$",
	},
	{
		name: "redirect-shown-to-clients",
		file: "proxy/redirect.go", find: "return nil, without(res, name)", replace: "return nil, res",
		pkg: "proxy", run: "^TestRedirect_OfAnAnswerThatIsNot200IsNotFollowed$",
	},
	{
		name: "redirect-names-unchecked",
		file: "proxy/redirect.go", find: "if name, ok := rt.fileName(decoded); ok {", replace: "if name, _ := rt.fileName(decoded); name != \"\" {",
		pkg: "proxy", run: "^TestRedirect_ToAFileThatIsNotThereIsA404AndTold$",
	},
	{
		name: "redirect-all-fields-of-the-app",
		file: "proxy/redirect.go", find: "if !isID && !slices.ContainsFunc(saidFields, func(name string) bool { return http1.EqualFold(f.Name, name) }) ||", replace: "if http1.EqualFold(f.Name, \"content-length\") || http1.EqualFold(f.Name, \"connection\") ||",
		pkg: "proxy", run: "^TestRedirect_TheClientGetsTheFileWithWhatTheAppSaysOfIt$",
	},
	{
		name: "redirect-cookies-lost",
		file: "proxy/redirect.go", find: "f.fields = append(f.fields, cookiesOf(to.said)...)", replace: "",
		pkg: "proxy", run: "^TestRedirect_ToAFileThatIsNotThereIsA404AndTold$",
	},
	{
		name: "redirect-goes-on-behind-half-an-upload",
		file: "proxy/redirect.go", find: "keep = c.keepAlive() && (up == nil || up.isWhole())", replace: "keep = c.keepAlive()",
		pkg: "proxy", run: "^TestRedirect_OfAnUploadThatGoesOnEndsTheConnection$",
	},
	{
		name: "files-directory-not-looked-for",
		file: "cmd/holdfast/config_there.go", find: "if err := openable(route.Files.Dir); err != nil {", replace: "if err := openable(route.Files.Dir); false {",
		pkg: "cmd/holdfast", run: "^TestFiles_ADirectoryThatCannotBeOpenedIsRefusedAtTheStart$",
	},
	{
		name: "files-own-headers-configured",
		file: "cmd/holdfast/config_routes.go", find: ", slices.Contains(own, low):", replace: ":",
		pkg: "cmd/holdfast", run: "^TestConfig_EachInvalidFileIsRefusedWithItsSentences$",
	},
}
