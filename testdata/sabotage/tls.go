package main

import "time"

// tlsRules are those of TLS on the listeners.
var tlsRules = []rule{
	{
		name: "tls-handshake-in-the-accept-loop",
		file: "proxy/tls.go", find: "\treturn newSecured(nc, l.config), nil\n", replace: "\ts := newSecured(nc, l.config)\n\ts.Handshake()\n\treturn s, nil\n",
		pkg: "proxy", run: "^TestTLS_SilentHandshakesKeepNobodyOut$",
	},
	{
		name: "tls-handshake-without-a-bound",
		file: "proxy/tls.go", find: "\tc.setReadBy(c.idleAt.Add(within))\n", replace: "\tc.setReadBy(time.Time{})\n",
		pkg: "proxy", run: "^TestTLS_AHandshakeIsBoundedByHeaderTimeout$",
		timeout: 45 * time.Second, timeoutBites: true,
	},
	{
		name: "tls-handshake-makes-no-room",
		file: "proxy/tls.go", find: "c.idle, c.idleAt = true, time.Now()", replace: "c.idleAt = time.Now()",
		pkg: "proxy", run: "^TestTLS_SilentHandshakesMakeRoom$",
	},
	{
		name: "tls-plain-http-unanswered",
		file: "proxy/tls.go", find: "\tif isHTTP(err) {\n", replace: "\tif isHTTP(err) && false {\n",
		pkg: "proxy", run: "^TestTLS_PlainHTTPIsToldToUseHTTPSAndNothingIsLoggedOfIt$",
	},
	{
		name: "tls-failed-handshakes-in-the-log",
		file: "proxy/tls.go", find: "c.server.log.Debug(\"handshake failed\"", replace: "c.server.log.Warn(\"handshake failed\"",
		pkg: "proxy", run: "^TestTLS_PlainHTTPIsToldToUseHTTPSAndNothingIsLoggedOfIt$",
	},
	{
		name: "tls-truncation-taken-for-an-end",
		file: "proxy/tls.go", find: "\t\treturn 0, errTruncatedByClient\n", replace: "\t\treturn 0, io.EOF\n",
		pkg: "proxy", run: "^TestTLS_ARequestWithoutACloseNotifyBehindItIsNoWholeOne$",
	},
	{
		name: "tls-tunnel-cut-taken-for-an-end",
		file: "proxy/tls.go", find: "\t\treturn 0, errTruncatedByClient\n", replace: "\t\treturn 0, io.EOF\n",
		pkg: "proxy", run: "^TestTLS_ATunnelThatIsCutIsNotEnded$",
	},
	{
		name: "tls-cut-answer-ends-cleanly",
		file: "proxy/end.go", find: "\tendByReset(c.Conn)\n", replace: "",
		pkg: "proxy", run: "^TestTLS_AnAnswerThatIsCutDoesNotEndWithACloseNotify$",
	},
	{
		name: "tls-reset-behind-a-close-notify",
		file: "proxy/tls.go", find: "\tif s.plain.Load() || s.reset.Load() {\n", replace: "\tif s.plain.Load() {\n",
		pkg: "proxy", run: "^TestTLS_AnAnswerThatIsCutDoesNotEndWithACloseNotify$",
	},
	{
		name: "tls-no-close-notify",
		file: "proxy/tls.go", find: "\ts.wire.part()\n\treturn s.Conn.Close()\n", replace: "\treturn s.wire.Conn.Close()\n",
		pkg: "proxy", run: "^TestTLS_EachConnectionEndsWithACloseNotify$",
	},
	{
		name: "tls-end-waits-for-the-client",
		file: "proxy/tls_wire.go", find: "\t\tif w.parting {\n\t\t\tdefer", replace: "\t\tif w.parting && false {\n\t\t\tdefer",
		pkg: "proxy", run: "^TestTLSWire_WhatIsSaidLastWaitsForNobodyAndIsNotLost$",
	},
	{
		name: "tls-last-words-lost",
		file: "proxy/tls_wire.go", find: "\tw.rest = append(w.rest, p...)\n", replace: "\t_ = p\n",
		pkg: "proxy", run: "^TestTLSWire_WhatIsSaidLastWaitsForNobodyAndIsNotLost$",
	},
	{
		name: "tls-close-notify-behind-half-a-record",
		file: "proxy/tls_wire.go", find: "\t\t\tif w.failed || n > 0 {", replace: "\t\t\tif n > 0 {",
		pkg: "proxy", run: "^TestTLSWire_NothingFollowsAWriteThatWasGivenUp$",
	},
	{
		name: "tls-slow-client-cut",
		file: "proxy/tls_wire.go", find: "\treturn w.Conn.SetWriteDeadline(time.Now().Add(w.wait)) == nil\n", replace: "\treturn false\n",
		pkg: "proxy", run: "^TestTLS_ASlowClientGetsAllOfItAndOneThatTakesNothingIsCut$",
	},
	{
		name: "tls-stalled-client-kept",
		file: "proxy/tls_wire.go", find: "if took == 0 && (waiting < 0 || before >= 0 && waiting >= before) || !w.renew() {", replace: "if took == 0 && (waiting < 0 || before >= 0 && waiting >= before) && false || !w.renew() {",
		pkg: "proxy", run: "^TestTLS_ASlowClientGetsAllOfItAndOneThatTakesNothingIsCut$",
	},
	{
		name: "tls-close-notify-unseen-while-waiting",
		file: "proxy/forward.go", find: "\tc.beginAhead()\n", replace: "",
		pkg: "proxy", run: "^TestTLS_LeavingWhileWaitingRemovesTheRequest$",
	},
	{
		name: "tls-close-notify-unseen-by-a-stream",
		file: "proxy/stream.go", find: "\t\tc.beginAhead()\n", replace: "\t\t_ = c\n",
		pkg: "proxy", run: "^TestTLS_ACloseNotifyEndsAStreamsView$",
	},
	{
		name: "tls-read-ahead-and-lost",
		file: "proxy/ahead.go", find: "c.buf = append(c.buf[:c.w:c.w], a.got...)", replace: "c.buf = c.buf[:c.w:c.w]",
		pkg: "proxy", run: "^TestTLS_WhatIsReadAheadIsTheNextRequest$",
	},
	{
		name: "tls-app-told-http",
		file: "proxy/headers.go", find: "\tcase c.tls != nil:\n", replace: "\tcase c.tls != nil && false:\n",
		pkg: "proxy", run: "^TestTLS_TheAppIsToldThatItsClientCameByHTTPS$",
	},
	{
		name: "tls-page-of-another-scheme",
		file: "proxy/hold.go", find: "\t\t\tof.SameHost = false", replace: "\t\t\tof.SameHost = policy.SameHost",
		pkg: "proxy", run: "^TestTLSHold_APageWithoutTLSIsNotOfTheSameHost$",
	},
	{
		name: "tls-target-of-the-other-scheme",
		file: "proxy/wire.go", find: "\tcase r.secure:\n", replace: "\tcase r.secure && false:\n",
		pkg: "proxy", run: "^TestTLS_ATargetOfTheOtherSchemeIsMisdirected$",
	},
	{
		name: "tls-tunnel-passes-records",
		file: "proxy/tunnel.go", find: "\tif s, ok := from.(*secured); ok {\n", replace: "\tif s, ok := from.(*secured); ok && false {\n",
		pkg: "proxy", run: "^TestTLS_ATunnelPassesBytesAndEndsBothWays$",
	},
	{
		name: "tls-tunnel-fault-ends-cleanly",
		file: "proxy/tunnel.go", find: "\t\t\tendByReset(nc)\n", replace: "\t\t\t_ = nc\n",
		pkg: "proxy", run: "^TestTLS_ATunnelThatIsCutIsNotEnded$",
	},
	{
		name: "link-progress-by-pieces",
		file: "holds/link.go", find: "\t\treturn math.MaxInt - int(counts.Taken())\n", replace: "\t\t_, _ = counts, math.MaxInt\n",
		pkg: "holds", run: "^TestLink_WhatIsLeftGetsLessWithEachByteThatTheConnectionCounts$",
	},
	{
		name: "link-left-open-by-its-loop",
		file: "holds/link.go", find: "\tif k.last.Add(1) == 2 { // and", replace: "\tif k.last.Add(1) == 2 {\n\t\treturn\n\t}\n\tif false { // and",
		pkg: "holds", run: "^TestLink_AConnectionIsClosedBehindItsLastWriteThoughItsLoopIsGone$",
	},
	{
		name: "tls-older-versions",
		file: "cmd/holdfast/tls.go", find: "MinVersion: tls.VersionTLS12,", replace: "MinVersion: tls.VersionTLS10,",
		pkg: "cmd/holdfast", run: "^TestTLS_VersionsBelow12AndOtherProtocolsAreRefused$",
	},
	{
		name: "tls-any-protocol",
		file: "cmd/holdfast/tls.go", find: ", NextProtos: []string{\"http/1.1\"}", replace: "",
		pkg: "cmd/holdfast", run: "^TestTLS_VersionsBelow12AndOtherProtocolsAreRefused$",
	},
	{
		name: "tls-any-client-certificate",
		file: "cmd/holdfast/tls.go", find: "tls.RequireAndVerifyClientCert", replace: "tls.RequireAnyClientCert",
		pkg: "cmd/holdfast", run: "^TestTLS_AClientWithoutACertificateOfTheCAIsNotServed$",
	},
	{
		name: "tls-client-certificate-optional",
		file: "cmd/holdfast/tls.go", find: "tls.RequireAndVerifyClientCert", replace: "tls.VerifyClientCertIfGiven",
		pkg: "cmd/holdfast", run: "^TestTLS_AClientWithoutACertificateOfTheCAIsNotServed$",
	},
	{
		name: "tls-certificate-stands-for-nothing",
		file: "cmd/holdfast/admin.go", find: "return asked.Near || asked.Verified", replace: "return asked.Near",
		pkg: "cmd/holdfast", run: "^TestAccess_AVerifiedCertificateStandsWhereThisMachineStands$",
	},
	{
		name: "tls-certificate-as-a-key",
		file: "cmd/holdfast/admin.go", find: "\t\tif !a.hasKey(asked) {\n", replace: "\t\tif !a.hasKey(asked) && !asked.Verified {\n",
		pkg: "cmd/holdfast", run: "^TestAccess_AVerifiedCertificateStandsWhereThisMachineStands$",
	},
	{
		name: "tls-certificate-against-the-origin-rule",
		file: "cmd/holdfast/admin.go", find: "\t\tcase a.hasKey(asked):\n", replace: "\t\tcase a.hasKey(asked), asked.Verified:\n",
		pkg: "cmd/holdfast", run: "^TestTLS_AClientWithoutACertificateOfTheCAIsNotServed$",
	},
	{
		name: "tls-names-of-the-certificate-unknown",
		file: "cmd/holdfast/admin.go", find: " && (a.own == nil || !a.own.names(host))", replace: "",
		pkg: "cmd/holdfast", run: "^TestTLS_AClientWithoutACertificateOfTheCAIsNotServed$",
	},
	{
		name: "tls-publish-open-with-any-tls",
		file: "cmd/holdfast/config_listen.go", find: "!own.Listen.asksClients()", replace: "own.Listen.TLS == nil",
		pkg: "cmd/holdfast", run: "^TestConfig_EachInvalidFileIsRefusedWithItsSentences$",
	},
	{
		name: "tls-files-unread-at-the-start",
		file: "cmd/holdfast/main.go", find: ", config.certificateFaults()", replace: "",
		pkg: "cmd/holdfast", run: "^TestTLS_FilesThatCannotBeServedAreRefusedByTheirPlace$",
	},
	{
		name: "tls-file-that-is-none",
		file: "cmd/holdfast/tls_files.go", find: "!info.Mode().IsRegular() {", replace: "!info.Mode().IsRegular() && false {",
		pkg: "cmd/holdfast", run: "^TestTLS_FilesThatCannotBeServedAreRefusedByTheirPlace$",
	},
	{
		name: "tls-certificates-not-looked-at",
		file: "cmd/holdfast/tls.go", find: "\t\tcase <-ticker.C:\n\t\t\th.lookAtCertificates()\n", replace: "\t\tcase <-ticker.C:\n",
		pkg: "cmd/holdfast", run: "^TestTLS_ARenewedCertificateIsServedAndOpenConnectionsGoOn$",
	},
	{
		name: "tls-certificates-not-looked-at-by-a-reload",
		file: "cmd/holdfast/run.go", find: "\th.lookAtCertificates()\n", replace: "",
		pkg: "cmd/holdfast", run: "^TestTLS_ARenewedCertificateIsServedAndOpenConnectionsGoOn$",
	},
	{
		name: "tls-broken-files-told-each-time",
		file: "cmd/holdfast/tls.go", find: "s.looks == 2", replace: "s.looks >= 2",
		pkg: "cmd/holdfast", run: "^TestTLS_FilesThatAreWrongLeaveTheOldCertificateAndAreToldOnce$",
	},
	{
		name: "tls-files-told-while-they-are-written",
		file: "cmd/holdfast/tls.go", find: "s.looks == 2", replace: "s.looks == 1",
		pkg: "cmd/holdfast", run: "^TestTLS_FilesThatAreWrongLeaveTheOldCertificateAndAreToldOnce$",
	},
	{
		name: "tls-end-of-a-certificate-told-each-time",
		file: "cmd/holdfast/tls.go", find: "rest < soon && s.warned != leaf", replace: "rest < soon",
		pkg: "cmd/holdfast", run: "^TestTLS_TheEndOfACertificateIsToldOnce$",
	},
	{
		name: "tls-any-certificate-believed",
		file: "cmd/holdfast/tls_client.go", find: "\tif !bytes.Equal(state.PeerCertificates[0].Raw, list[0].Raw) {\n", replace: "\tif !bytes.Equal(state.PeerCertificates[0].Raw, list[0].Raw) && false {\n",
		pkg: "cmd/holdfast", run: "^TestTLS_ACommandBelievesNoOtherCertificateThanItsFiles$",
	},
	{
		name: "tls-renewed-certificate-not-waited-for",
		file: "cmd/holdfast/control.go", find: "|| time.Now().After(end) {", replace: "|| !end.IsZero() {",
		pkg: "cmd/holdfast", run: "^TestTLS_ACommandWaitsUntilTheNewCertificateIsServed$",
	},
	{
		name: "tls-doctor-expired-unseen",
		file: "cmd/holdfast/doctor_tls.go", find: "\t\tcase rest < 0:\n", replace: "\t\tcase false:\n",
		pkg: "cmd/holdfast", run: "^TestTLS_TheDoctorSaysHowLongACertificateIsGoodFor$",
	},
}
