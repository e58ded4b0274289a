package proxy_test

import (
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/zap"

	"holdfast/lanes"
	"holdfast/proxy"
)

// Faults that users of other proxies have met: targets, fields and cookies that
// come out otherwise than they went in.

// startRecorded is a strict upstream behind one lane of either kind.
func startRecorded(t *testing.T, stream bool, cfg proxy.Config) (addr string, up *recordingUpstream) {
	t.Helper()
	up = newRecordingUpstream(t)
	lane := startLane(t, up.Addr(), lanes.Config{Name: "web", Slots: 4, Queue: 64, Stream: stream})
	return startServer(t, cfg, []proxy.Route{{Match: "/", Lane: lane, Stream: stream}}), up
}

// ---- Targets.

var targetsAsTheyAre = []string{
	// Empty and dot segments, and what looks like another URL.
	"//a", "/a//b", "/a///", "/redirect/https://x.test/y", "/./a", "/a/../b", "/a/%2e%2e/b", "/a;v=1/b", "/..;/admin",
	// Signed: an octet that changes breaks the signature.
	"/enc/Y%2BY%2FY%3D/x?sig=%2B%3d&b=a+b", "/%7E%7e~", "/!*'(),@:|{}^", "/%3A:%3a", "/a%20b+c",
	// The query is the app's.
	"/?b=2&a=1&b=3&uploads&sig=%E9%FF&s=1;2&q=hello%20world+x&%zz&=&&?x=/?y", "/?", "/??", "/a?", "/?/../..//", "/?%00%0d%0a",
	// Bytes and escapes that mean nothing to us.
	"/caf\xc3\xa9", "/?v=Fl%F6te", "/%00", "/a%0Ab", "/%", "/%G1", "/\xff", "/\xc3\x28", "/a%0d%0aX-Evil:%201",
}

func TestForward_ATargetIsTheClientsByteForByte(t *testing.T) {
	eachKind(t, func(t *testing.T, stream bool) {
		addr, up := startRecorded(t, stream, proxy.Config{})
		c := dialWire(t, addr)
		for i, target := range targetsAsTheyAre {
			for n, request := range []string{get(target), strings.Replace(get(target), "GET", "POST", 1)} {
				c.say(t, request)
				c.wantAnswer(t, "GET", 200, "*")
				if got := up.Since(2*i + n)[0]; got.Target != target {
					t.Errorf("%q is forwarded as %q", target, got.Target)
				}
			}
		}
		for _, fault := range up.Faults() {
			t.Error(fault)
		}
	})
}

// Where an app sends its client to is the app's to say.
func TestForward_ALocationIsTheAppsByteForByte(t *testing.T) {
	eachKind(t, func(t *testing.T, stream bool) {
		var count atomic.Int32
		s := startRaw(t, lanes.Config{Stream: stream}, proxy.Config{}, asked(&count, func(a *appConn, target string) bool {
			a.say("HTTP/1.1 302 Found\r\nLocation: " + target + "\r\nContent-Length: 0\r\n\r\n")
			return true
		}))
		c := dialWire(t, s.addr)
		for _, target := range targetsAsTheyAre {
			c.say(t, get(target))
			if answer := c.wantAnswer(t, "GET", 302, ""); answer.get("Location") != target {
				t.Errorf("Location: %q came as %q", target, answer.get("Location"))
			}
		}
	})
}

// A line break that a client has escaped is none to anybody: not in what is
// forwarded, not in what is answered here, not in an id that is kept.
func TestForward_AnEscapedLineBreakStaysEscaped(t *testing.T) {
	up := newRecordingUpstream(t)
	lane := startLane(t, up.Addr(), lanes.Config{Name: "web", Slots: 1})
	addr := startServer(t, proxy.Config{}, []proxy.Route{{Match: "/app/", Lane: lane}, {Match: "GET /only/", Lane: lane}})
	const evil = "%0d%0aSet-Cookie:a=b%0d%0a%0d%0a"
	wantNoCookie := func(answer wireAnswer) {
		t.Helper()
		if got := fieldValues(answer.fields, "Set-Cookie"); len(got) > 0 {
			t.Errorf("the client is given %q in %q", got, answer.fields)
		}
	}
	c := dialWire(t, addr)
	for _, ask := range []struct {
		line   string
		status int
	}{
		{"GET /app/" + evil + "?a=" + evil, 200}, {"GET /none" + evil + "?a=" + evil, 404}, {"POST /only/" + evil, 405},
	} {
		c.say(t, ask.line+" HTTP/1.1\r\nHost: a.test\r\nX-Request-ID: id"+evil+"\r\nLast-Event-ID: 1"+evil+"\r\nContent-Length: 0\r\n\r\n")
		wantNoCookie(c.wantAnswer(t, "GET", ask.status, "*"))
	}
	got := up.Since(0)
	if len(got) != 1 || got[0].Get("X-Request-ID") != "id"+evil || len(fieldValues(got[0].Fields, "Set-Cookie")) > 0 {
		t.Errorf("the app has %+v", got)
	}
	// Bare, the break or another control byte is refused with all of the request.
	for _, control := range []string{"\x0b", "\x00", "\r", "\n"} {
		c := say(t, addr, "GET /app/ HTTP/1.1\r\nHost: a.test\r\nX-Request-ID: id"+control+"Set-Cookie: a=b\r\n\r\n")
		wantNoCookie(c.wantReason(t, 400, "bad_request"))
	}
	if up.Count() != 1 {
		t.Errorf("the app has %d requests", up.Count())
	}
}

// ---- Fields of one connection.

// What Connection names is of this connection, whichever field it is; but
// framing, Host and what we add are not its to take away (RFC 9110 §7.6.1).
func TestForward_WhatConnectionNamesGoesNoFurther(t *testing.T) {
	eachKind(t, func(t *testing.T, stream bool) {
		addr, up := startRecorded(t, stream, proxy.Config{})
		say(t, addr, "POST / HTTP/1.1\r\nHost: a.test\r\nConnection:\r\nConnection: close, X-Forwarded-For, X-Real-IP, X-Custom-Hop\r\n"+
			"connection: Cookie ,,m0-hold, X-FORWARDED-PROTO,Last-Event-ID, Accept\r\n"+
			"X-Custom-Hop: 1\r\nx-custom-hop: 2\r\nX-Forwarded-For: 6.6.6.6\r\nX-Forwarded-Proto: https\r\nX-Real-IP: 6.6.6.6\r\nCookie: a=1\r\nM0-Hold: stream\r\n"+
			"Keep-Alive: 9\r\nProxy-Connection: x\r\nTE: trailers\r\nLast-Event-ID: 5\r\nAccept: */*\r\nX-Custom: 1\r\nContent-Length: 5\r\n\r\nhello").wantAnswer(t, "POST", 200, "0")
		got := up.Since(0)[0]
		for _, name := range []string{"X-Custom-Hop", "X-Real-IP", "Cookie", "M0-Hold", "Keep-Alive", "Proxy-Connection", "TE", "Connection", "Last-Event-ID", "Accept"} {
			if values := fieldValues(got.Fields, name); len(values) > 0 {
				t.Errorf("the app gets %s: %q", name, values)
			}
		}
		for name, want := range map[string]string{"Host": "a.test", "X-Forwarded-For": "127.0.0.1", "X-Forwarded-Proto": "http", "X-Custom": "1"} {
			if got.Get(name) != want {
				t.Errorf("the app gets %s: %q, want %q", name, fieldValues(got.Fields, name), want)
			}
		}
		if string(got.Body) != "hello" {
			t.Errorf("the app gets the body %q", got.Body)
		}
	})
}

func TestForward_AnAcceptEncodingThatConnectionNamesGoesNoFurther(t *testing.T) {
	eachKind(t, func(t *testing.T, stream bool) {
		addr, up := startRecorded(t, stream, proxy.Config{})
		say(t, addr, "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: Accept-Encoding\r\nAccept-Encoding: gzip\r\n\r\n").wantAnswer(t, "GET", 200, "0")
		if got := up.Since(0)[0].Get("Accept-Encoding"); got != "" {
			t.Errorf("the app gets Accept-Encoding: %s", got)
		}
	})
}

// Names that are another's to WSGI, which reads - and _ as one: none of them
// reaches an app, in a handshake neither.
func TestForward_NoNameWithAnUnderscoreReachesTheApp(t *testing.T) {
	eachKind(t, func(t *testing.T, stream bool) {
		addr, up := startRecorded(t, stream, proxy.Config{})
		const aliases = "X_Forwarded_For: 6.6.6.6\r\nX_Forwarded-Proto: https\r\nX-Auth_User: admin\r\nRemote_User: admin\r\nContent_Length: 3\r\nHost_: b.test\r\n" +
			"Grip_Sig: x\r\nM0_Channel: c\r\nTransfer_Encoding: chunked\r\nContent_Type: x\r\n_: x\r\n"
		for i, request := range []string{get("/"), "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nhello", handshake} {
			line, rest, _ := strings.Cut(request, "\r\n")
			say(t, addr, line+"\r\n"+aliases+rest).wantAnswer(t, "GET", 200, fmt.Sprint(i))
			got := up.Since(i)[0]
			if strings.Contains(namesIn(got), "_") {
				t.Errorf("the app gets %s", namesIn(got))
			}
			wantForwardedMarks(t, got)
		}
	})
}

func namesIn(request recordedRequest) string {
	var names []string
	for _, field := range request.Fields {
		names = append(names, field[0])
	}
	return strings.Join(names, " ")
}

// ---- One way for all kinds of requests.

// A plain request, an event source's, a socket's handshake and an upload reach
// the app by the same target and with the same word of their way, whoever the
// peer is.
func TestForward_EveryKindOfRequestIsToldTheSameOfItsWay(t *testing.T) {
	const said = "X-Forwarded-For: 203.0.113.9\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: shop.test\r\nX-Forwarded-Port: 8443\r\n"
	for name, trusted := range map[string]proxy.Trusted{"Trusted": trust("127.0.0.1/32"), "Untrusted": trust()} {
		t.Run(name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, stream bool) {
				addr, up := startRecorded(t, stream, proxy.Config{Trusted: trusted})
				var first []string
				for i, kind := range []string{"", "Accept: text/event-stream\r\n", strings.SplitAfterN(strings.TrimSuffix(handshake, "\r\n"), "\r\n", 3)[2], "Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABk\r\n"} {
					say(t, addr, "GET /prod/foo?x=1 HTTP/1.1\r\nHost: shop.test:8443\r\n"+said+kind+"\r\n").wantAnswer(t, "GET", 200, fmt.Sprint(i))
					got := up.Since(i)[0]
					way := []string{got.Method, got.Target}
					for _, field := range got.Fields {
						if n := strings.ToLower(field[0]); n == "host" || strings.HasPrefix(n, "x-forwarded-") {
							way = append(way, field[0]+": "+field[1])
						}
					}
					if i == 0 {
						first = way
					}
					if !slices.Equal(way, first) {
						t.Errorf("of %q the app hears\n%q, of a plain one\n%q", kind, way, first)
					}
				}
				proto := map[string]string{"Trusted": "X-Forwarded-Proto: https", "Untrusted": "X-Forwarded-Proto: http"}[name]
				if !slices.Contains(first, "Host: shop.test:8443") || !slices.Contains(first, proto) {
					t.Errorf("the app hears %q", first)
				}
			})
		})
	}
}

// ---- Cookies.

func TestForward_CookiesAreTheClientsOctets(t *testing.T) {
	eachKind(t, func(t *testing.T, stream bool) {
		addr, up := startRecorded(t, stream, proxy.Config{})
		c := dialWire(t, addr)
		for i, cookies := range [][]string{
			{"a=1; a=2"}, {`a="x; y"`}, {"bare; k=v"}, {"k=v;k2=v2"}, {"k==v="}, {"a=1;"}, {";"}, {"a=1", "b=2"}, {"a=1", "a=1"}, {"a=\xe9"}, {"a=caf\u00e9; b=\xff"},
			{"a=1;\tb=2"}, {"  a=1 "}, {"sessionid=" + strings.Repeat("x", 12<<10)}, {""},
		} {
			text := "GET / HTTP/1.1\r\nHost: a.test\r\n"
			for _, cookie := range cookies {
				text += "Cookie: " + cookie + "\r\n"
			}
			c.say(t, text+"\r\n")
			c.wantAnswer(t, "GET", 200, "*")
			var want []string
			for _, cookie := range cookies {
				want = append(want, strings.Trim(cookie, " "))
			}
			if got := fieldValues(up.Since(i)[0].Fields, "Cookie"); !slices.Equal(got, want) {
				t.Errorf("%.100q is forwarded as %.100q", cookies, got)
			}
		}
	})
}

// Three of one answer, in their order, with the comma that a date has.
func TestForward_SetCookiesAreTheAppsLines(t *testing.T) {
	cookies := []string{"sessionid=1; HttpOnly; Path=/; SameSite=Lax", "csrftoken=2; expires=Mon, 01 Jan 2035 00:00:00 GMT; Max-Age=31449600; Path=/", "a=1,2; b"}
	eachKind(t, func(t *testing.T, stream bool) {
		var count atomic.Int32
		s := startRaw(t, lanes.Config{Stream: stream}, proxy.Config{}, asked(&count, func(a *appConn, target string) bool {
			a.say("HTTP/1.1 302 Found\r\nSet-Cookie: " + strings.Join(cookies, "\r\nSet-Cookie: ") + "\r\nContent-Length: 0\r\n\r\n")
			return true
		}))
		answer := say(t, s.addr, get("/login")).wantAnswer(t, "GET", 302, "")
		if got := fieldValues(answer.fields, "Set-Cookie"); !slices.Equal(got, cookies) {
			t.Errorf("the client gets %q", got)
		}
	})
}

// ---- Sizes.

// What the default limit takes it takes whole, beyond it there is an answer and
// no reset; and the log names the limit.
func TestForward_LargeHeadsAreTakenOrRefusedWithTheNameOfTheirLimit(t *testing.T) {
	up := newRecordingUpstream(t)
	lane := startLane(t, up.Addr(), lanes.Config{Name: "web", Slots: 1})
	addr, logs := startLogged(t, "tcp", proxy.Config{}, []proxy.Route{{Match: "/", Lane: lane}})
	for _, ask := range []struct {
		fields string
		status int
	}{
		{"Cookie: a=" + strings.Repeat("x", 7900) + "\r\n", 200}, {"Cookie: a=" + strings.Repeat("x", 8100) + "\r\n", 200},
		{"Cookie: a=" + strings.Repeat("x", 12<<10) + "\r\n", 200}, {"Cookie: a=" + strings.Repeat("x", 16<<10) + "\r\n", 431},
		{"Cookie: a=" + strings.Repeat("x", 64<<10) + "\r\n", 431}, {strings.Repeat("X-Small: 1\r\n", 200), 200}, {strings.Repeat("X-Small: 1\r\n", 300), 431},
	} {
		c := dialWire(t, addr)
		c.Write([]byte("GET / HTTP/1.1\r\nHost: a.test\r\n"+ask.fields+"\r\n"), 0)
		if ask.status == 200 {
			c.wantAnswer(t, "GET", 200, "*")
			continue
		}
		before := logs.FilterMessage("request refused").Len()
		c.wantReason(t, ask.status, "headers_too_large")
		c.wantEnd(t, true)
		until(t, "it is logged", func() bool { return logs.FilterMessage("request refused").Len() == before+1 })
		entry := logs.FilterMessage("request refused").All()[before].ContextMap()
		if detail, _ := entry["detail"].(string); !strings.Contains(detail, "limits.header_bytes") && !strings.Contains(detail, "256 fields") {
			t.Errorf("the log says %v", entry)
		}
	}
	if got := up.Count(); got != 4 {
		t.Errorf("the app has %d requests, want the four that were taken", got)
	}
}

func TestForward_AnAnswerWithTwentyLargeCookiesIsTakenAndOneBeyondTheLimitIsA502ThatNamesIt(t *testing.T) {
	eachKind(t, func(t *testing.T, stream bool) {
		cookie := "Set-Cookie: a=" + strings.Repeat("x", 1<<10) + "; Path=/\r\n"
		up := newScriptedUpstream(t, func(conn net.Conn, request recordedRequest) bool {
			n := 20
			if request.Target == "/many" {
				n = 80
			}
			_, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\n"+strings.Repeat(cookie, n)+"Content-Length: 2\r\n\r\nok")
			return err == nil
		})
		lane := startLane(t, up.Addr(), lanes.Config{Name: "web", Slots: 2, Queue: 8, QueueTimeout: patience, Stream: stream})
		addr, logs := startLogged(t, "tcp", proxy.Config{}, []proxy.Route{{Match: "/", Lane: lane, Stream: stream}})
		c := dialWire(t, addr)
		for range 2 {
			c.say(t, get("/few"))
			if got := len(fieldValues(c.wantAnswer(t, "GET", 200, "ok").fields, "Set-Cookie")); got != 20 {
				t.Errorf("%d cookies came", got)
			}
			c.say(t, get("/many"))
			c.wantReason(t, 502, "upstream_error")
		}
		entries := logs.FilterMessage("request refused").All()
		if len(entries) != 2 || entries[0].Level != zap.WarnLevel || !strings.Contains(fmt.Sprint(entries[0].ContextMap()), "over 64 KiB") {
			t.Errorf("the log says %v", entries)
		}
	})
}

// A trailer that Connection names goes no further than a field would (RFC 9110
// §7.6.1).
func TestForward_ATrailerThatConnectionNamesGoesNoFurther(t *testing.T) {
	got := make(chan string, 1)
	s := startStreams(t, lanes.Config{}, proxy.Config{}, func(a *appConn) {
		if line, _ := a.head(); line == "" {
			return
		}
		text := ""
		for !strings.HasSuffix(text, "\r\n\r\n") {
			line, err := a.reader.ReadString('\n')
			if text += line; err != nil {
				break
			}
		}
		got <- text
		a.say("HTTP/1.1 200 OK\r\nConnection: x-hop\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Hop: 1\r\nX-Sum: 2\r\n\r\n")
	})
	c := say(t, s.addr, post("Connection: X-Hop\r\nTransfer-Encoding: chunked")+"2\r\nhi\r\n0\r\nX-Sum: 1\r\nx-hop: 1\r\n\r\n")
	if text, want := take(t, "the body arrives", got), "2\r\nhi\r\n0\r\nX-Sum: 1\r\n\r\n"; text != want {
		t.Errorf("the app gets %q, want %q", text, want)
	}
	c.wantHead(t, 200)
	c.wantBytes(t, "2\r\nok\r\n0\r\nX-Sum: 2\r\n\r\n")
}
