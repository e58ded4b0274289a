package proxy_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"testing"

	"holdfast/holds"
	"holdfast/lanes"
	"holdfast/proxy"
)

// Faults that users of other servers have met: WebSockets, held and tunnelled.

const (
	opText   = 0x1
	opBinary = 0x2
	opClose  = 0x8
)

// masked is a frame of up to 125 bytes as a client sends it.
func masked(first byte, payload string) string {
	frame := []byte{first, 0x80 | byte(len(payload)), 1, 2, 3, 4}
	for i := range len(payload) {
		frame = append(frame, payload[i]^frame[2+i%4])
	}
	return string(frame)
}

func clientText(payload string) string { return masked(0x80|opText, payload) }

func clientClose(code uint16, reason string) string {
	return masked(0x80|opClose, closing(code, reason))
}

// closing is the payload of a close frame; code 0: it has none.
func closing(code uint16, reason string) string {
	if code == 0 {
		return ""
	}
	return string(binary.BigEndian.AppendUint16(nil, code)) + reason
}

// serverFrame is a whole frame of up to 125 bytes as a server sends it.
func serverFrame(op byte, payload string) string {
	return string([]byte{0x80 | op, byte(len(payload))}) + payload
}

// approve is a view's answer that opens a socket in channel news.
const approve = "M0-Hold: websocket\r\nM0-Channel: news\r\n"

// startSockets is startHolds with messages of sockets going to the app.
func startSockets(t *testing.T, changes ...func(*proxy.Config)) *holdSite {
	t.Helper()
	s := startHolds(t, holdSetup{lane: lanes.Config{Queue: 8, QueueTimeout: patience}})
	s.takeBack()
	routes := []proxy.Route{{Match: "/", Lane: s.lane, MessagePath: "/ws/message"}}
	cfg := proxy.Config{Holds: s.holds, Dialects: holds.Dialects{M0: true}}
	for _, change := range changes {
		change(&cfg)
	}
	if err := s.server.Configure(cfg, routes); err != nil {
		t.Fatal(err)
	}
	return s
}

// openSocket opens a held one; with follows the handshake in the same write.
func (s *holdSite) openSocket(t *testing.T, with string) *wireClient {
	t.Helper()
	c := say(t, s.addr, handshake+with)
	s.view(t).answer(ok(approve, "not for sockets"))
	c.wantHead(t, 101)
	return c
}

// message waits for the app to have a socket's next message, and requires it.
func (s *holdSite) message(t *testing.T, payload string) *view {
	t.Helper()
	v := s.view(t)
	if body, whole := v.readUpload(v.fields); !whole || string(body) != payload || !strings.HasPrefix(v.line, "POST /ws/message ") {
		t.Fatalf("the app has %q with %q, want the message %q", v.line, body, payload)
	}
	return v
}

// ---- The handshake.

// Tokens stand in lists, in several fields, in any case; what the app gets is
// the one clean pair of fields, and the client is switched to that protocol.
func TestSocket_AHandshakeIsReadAsAListOfTokens(t *testing.T) {
	const rest = "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
	for name, fields := range map[string]string{
		"KeepAliveToo":    "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n",
		"LowerCase":       "connection: upgrade\r\nupgrade: websocket\r\n",
		"TwoConnections":  "Connection: keep-alive\r\nUpgrade: websocket\r\nConnection: upgrade\r\n",
		"CaseOfProtocol":  "Connection: Upgrade\r\nUpgrade: WebSocket\r\n",
		"AmongOthers":     "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c, websocket\r\nHTTP2-Settings: AAMAAABk\r\n",
		"TwoUpgrades":     "Connection: Upgrade\r\nUpgrade: h2c\r\nUpgrade: websocket\r\n",
		"NothingBetween":  "Connection: ,Upgrade,\r\nUpgrade: ,websocket\r\n",
		"BlanksAndCommas": "Connection:\t keep-alive ,\tUpgrade\r\nUpgrade:  websocket , x\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			request := "GET /ws HTTP/1.1\r\nHost: a.test\r\n" + fields + rest
			clean := func(fields [][2]string) {
				t.Helper()
				for name, want := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "HTTP2-Settings": ""} {
					if got := strings.Join(fieldValues(fields, name), " | "); got != want {
						t.Errorf("the app gets %s: %q, want %q", name, got, want)
					}
				}
			}
			switchedTo := func(fields [][2]string) {
				t.Helper()
				if got := strings.Join(fieldValues(fields, "Upgrade"), " | "); got != "websocket" {
					t.Errorf("the client is switched to %q", got)
				}
			}
			s := startSockets(t)
			c := say(t, s.addr, request)
			v := s.view(t)
			clean(v.fields)
			v.answer(ok(approve, ""))
			switchedTo(c.wantHead(t, 101))
			s.publish("news", "held")
			c.wantBytes(t, serverFrame(opText, "held"))

			got := make(chan [][2]string, 1)
			streams := startStreams(t, lanes.Config{}, proxy.Config{}, func(a *appConn) {
				if line, fields := a.head(); line != "" {
					got <- fields
					a.say(switched + "tunnelled")
					a.end()
				}
			})
			c = say(t, streams.addr, request)
			switchedTo(c.wantHead(t, 101))
			clean(take(t, "the app is asked", got))
			c.wantBytes(t, "tunnelled")
		})
	}
}

// What is no handshake is told so, or is an ordinary request; nobody is held by
// it, whatever the view says.
func TestSocket_WhatIsNoHandshakeOpensNone(t *testing.T) {
	const key, version = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n", "Sec-WebSocket-Version: 13\r\n"
	const both = "Connection: Upgrade\r\nUpgrade: websocket\r\n"
	for name, c := range map[string]struct {
		line, fields string
		status       int
		atOnce       bool // the app is not asked
	}{
		"ByPost":         {"POST /ws HTTP/1.1", both + key + version, 400, true},
		"OfHTTP10":       {"GET /ws HTTP/1.0", both + key + version, 400, true},
		"WithABody":      {"GET /ws HTTP/1.1", both + key + version + "Content-Length: 5\r\n", 400, true},
		"NoKey":          {"GET /ws HTTP/1.1", both + version, 400, false},
		"EmptyKey":       {"GET /ws HTTP/1.1", both + "Sec-WebSocket-Key:\r\n" + version, 400, false},
		"Version8":       {"GET /ws HTTP/1.1", both + key + "Sec-WebSocket-Version: 8\r\n", 426, false},
		"ListOfVersions": {"GET /ws HTTP/1.1", both + key + "Sec-WebSocket-Version: 13, 8\r\n", 426, false},
		"NotNamed":       {"GET /ws HTTP/1.1", "Connection: keep-alive\r\nUpgrade: websocket\r\n" + key + version, 426, false},
		"NoUpgrade":      {"GET /ws HTTP/1.1", "Connection: Upgrade\r\n" + key + version, 426, false},
		"OfAnotherName":  {"GET /ws HTTP/1.1", "Connection: Upgrade\r\nUpgrade: websocket/13\r\n" + key + version, 426, false},
		"OfAnother":      {"GET /ws HTTP/1.1", "Connection: Upgrade\r\nUpgrade: h2c\r\n" + key + version, 426, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := startSockets(t)
			client := say(t, s.addr, c.line+"\r\nHost: a.test\r\n"+c.fields+"\r\n")
			if !c.atOnce {
				s.view(t).answer(ok(approve, ""))
			}
			answer := client.wantAnswer(t, "GET", c.status, "*")
			wantNoInstruction(t, answer.fields)
			if versions := answer.get("Sec-WebSocket-Version"); c.status == 426 && (answer.get("Upgrade") != "websocket" || strings.Contains(name, "ersion") != (versions == "13")) {
				t.Errorf("426 comes with %q", answer.fields)
			}
			if n := s.holds.Snapshot().Sockets; n != 0 {
				t.Errorf("%d are held", n)
			}
			s.wantFree(t)
		})
	}
}

// We speak no extension: none is agreed on, whoever offers or answers one, and
// a frame that needs one is a fault.
func TestSocket_NoExtensionIsAgreedOn(t *testing.T) {
	s := startSockets(t)
	for _, answered := range []string{"", "Sec-WebSocket-Extensions: grip\r\n", "Sec-WebSocket-Extensions: grip, permessage-deflate; server_no_context_takeover\r\nsec-websocket-extensions: x\r\n"} {
		c := say(t, s.addr, strings.TrimSuffix(handshake, "\r\n")+"Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\nsec-websocket-extensions: permessage-bzip2\r\n\r\n")
		s.view(t).answer(ok(approve+answered, ""))
		if got := fieldValues(c.wantHead(t, 101), "Sec-WebSocket-Extensions"); len(got) > 0 {
			t.Errorf("agreed on %q", got)
		}
		c.say(t, masked(0x80|0x40|opText, "compressed?"))
		c.wantBytes(t, serverFrame(opClose, closing(1002, "protocol")))
		c.wantEnd(t, false)
	}
}

// ---- Frames that come early, and in pieces.

// A client need not wait for the answer to its handshake, and its bytes may come
// one at a time: nothing is lost and nothing is doubled.
func TestSocket_FramesThatComeWithTheHandshakeAreTheSockets(t *testing.T) {
	frames := clientText("hi") + masked(opText, "in ") + masked(0x80, "two")
	t.Run("Held", func(t *testing.T) {
		s := startSockets(t)
		for range 20 {
			c := s.openSocket(t, frames)
			s.message(t, "hi").answer(ok("M0-Reply: text\r\n", "one"))
			s.message(t, "in two").answer(ok("M0-Reply: binary\r\n", "two"))
			c.wantBytes(t, serverFrame(opText, "one")+serverFrame(opBinary, "two"))
			c.reset()
		}
	})
	t.Run("HeldByteByByte", func(t *testing.T) {
		s := startSockets(t)
		c := dialWire(t, s.addr)
		c.Write([]byte(handshake+frames), 1)
		s.view(t).answer(ok(approve, ""))
		c.wantHead(t, 101)
		s.message(t, "hi").answer(ok("M0-Reply: text\r\n", "one"))
		s.message(t, "in two").answer(ok("", ""))
		c.wantBytes(t, serverFrame(opText, "one"))
	})
	for _, piece := range []int{0, 1} {
		t.Run(fmt.Sprint("Tunnelled/", piece), func(t *testing.T) {
			s := startStreams(t, lanes.Config{Slots: 4, Queue: 8, QueueTimeout: patience}, proxy.Config{}, func(a *appConn) {
				if line, _ := a.head(); line != "" {
					a.say(switched)
					io.Copy(a, a.reader)
				}
			})
			for range 20 {
				c := dialWire(t, s.addr)
				c.Write([]byte(handshake+frames), piece)
				c.wantHead(t, 101)
				c.wantBytes(t, frames)
				if err := c.Written(); err != nil {
					t.Fatal(err)
				}
				c.reset()
			}
		})
	}
}

// The clocks of a connection are not those of a socket: neither an event nor a
// message comes too late.
func TestSocket_AHeldOneOutlivesTheClocksOfItsConnection(t *testing.T) {
	t.Parallel()
	s := startSockets(t, shortClocks)
	c := s.openSocket(t, masked(opText, "half"))
	pass(t, s.addr)
	s.publish("news", "late")
	c.wantBytes(t, serverFrame(opText, "late"))
	c.say(t, masked(0x80, " and half"))
	s.message(t, "half and half").answer(ok("M0-Reply: text\r\n", "late, too"))
	c.wantBytes(t, serverFrame(opText, "late, too"))
}

// ---- The ends.

var longReason = strings.Repeat("\u00e9", 61) + "." // 123 bytes

// In a tunnel a close frame is bytes like any other, both ways.
func TestTunnel_CloseFramesPassWithTheirCodesAndReasons(t *testing.T) {
	for _, code := range []uint16{0, 1000, 1001, 3000, 4404} {
		reason := map[uint16]string{4404: longReason, 3000: "Document deleted"}[code]
		s, c, app := openTunnel(t, lanes.Config{}, proxy.Config{})
		c.say(t, clientClose(code, reason))
		app.wantBytes(t, clientClose(code, reason))
		app.say(serverFrame(opClose, closing(code, reason)))
		app.CloseWrite()
		c.wantBytes(t, serverFrame(opClose, closing(code, reason)))
		c.wantEnd(t, false)
		c.conn.CloseWrite()
		if rest, err := app.end(); rest != "" || err != nil {
			t.Errorf("the app's end: %q, %v", rest, err)
		}
		s.wantFree(t)
	}
}

// A held socket that is ended by a publisher or by its app has that code and
// reason; what its client says is said back before the connection ends.
func TestSocket_AHeldOneEndsWithTheCodeAndReasonThatWereGiven(t *testing.T) {
	s := startSockets(t)
	for _, code := range []uint16{1000, 1001, 3000, 4404} {
		published := s.openSocket(t, "")
		s.holds.End(holds.EndRequest{Channel: "news", Code: int(code), Reason: longReason})
		published.wantBytes(t, serverFrame(opClose, closing(code, longReason)))
		published.wantEnd(t, false)

		answered := s.openSocket(t, clientText("end it"))
		s.message(t, "end it").answer(ok(fmt.Sprintf("M0-Close: %d %s\r\n", code, longReason), ""))
		answered.wantBytes(t, serverFrame(opClose, closing(code, longReason)))
		answered.wantEnd(t, false)

		left := s.openSocket(t, clientClose(code, longReason))
		left.wantBytes(t, serverFrame(opClose, closing(code, "")))
		left.wantEnd(t, false)
	}
	empty := s.openSocket(t, clientClose(0, ""))
	empty.wantBytes(t, serverFrame(opClose, ""))
	empty.wantEnd(t, false)
	until(t, "nobody is held", func() bool { return s.holds.Snapshot().Sockets == 0 })
	ended := s.holds.Snapshot().Ended[holds.ModeWebSocket]
	if ended["published"] != 8 || ended["client"] != 5 {
		t.Errorf("the ends are %v", ended)
	}
}

// What must never be sent is a fault, whatever reason comes with it.
func TestSocket_ACloseThatMayNotBeSentIsAFault(t *testing.T) {
	s := startSockets(t)
	for _, c := range []struct {
		frame string
		code  uint16
	}{
		{masked(0x80|opClose, "\x03"), 1002}, {clientClose(999, ""), 1002}, {clientClose(1004, ""), 1002}, {clientClose(1005, "x"), 1002},
		{clientClose(1006, ""), 1002}, {clientClose(1015, ""), 1002}, {clientClose(2999, ""), 1002}, {clientClose(1000, "\xff\xfe"), 1007},
	} {
		client := s.openSocket(t, c.frame)
		client.wantBytes(t, serverFrame(opClose, closing(c.code, "protocol")))
		client.wantEnd(t, false)
	}
	until(t, "nobody is held", func() bool { return s.holds.Snapshot().Sockets == 0 })
	if ended := s.holds.Snapshot().Ended[holds.ModeWebSocket]; ended["protocol"] != 8 {
		t.Errorf("the ends are %v", ended)
	}
}

// A client that is gone without a word is gone at once, and its last message is
// the app's all the same.
func TestSocket_AClientThatIsGoneWithoutAWordIsLeft(t *testing.T) {
	for name, leave := range leaving {
		t.Run(name, func(t *testing.T) {
			s := startSockets(t)
			c := s.openSocket(t, clientText("the last"))
			v := s.message(t, "the last")
			leave(c)
			until(t, "nobody is in the channel", func() bool { return len(s.holds.Channels()) == 0 })
			v.answer(ok("M0-Reply: text\r\n", "to nobody"))
			s.wantFree(t)
			if ended := s.holds.Snapshot().Ended[holds.ModeWebSocket]; ended["client"] != 1 {
				t.Errorf("the ends are %v", ended)
			}
		})
	}
}

// ---- Backends that die.

// An app that goes takes its tunnels along at once, and no other's.
func TestTunnel_AnAppThatDiesEndsItsTunnelAndNoOther(t *testing.T) {
	for name, die := range map[string]func(*appConn){
		"Reset": func(a *appConn) { a.SetLinger(0); a.Close() }, "Closed": func(a *appConn) { a.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			apps := make(chan *appConn, 2)
			s := startStreams(t, lanes.Config{Slots: 2}, proxy.Config{}, func(a *appConn) {
				if line, _ := a.head(); line != "" {
					a.say(switched)
					apps <- a
					<-t.Context().Done()
				}
			})
			dying := say(t, s.addr, handshake)
			dying.wantHead(t, 101)
			die(take(t, "the app has its end", apps))
			stays := say(t, s.addr, handshake)
			stays.wantHead(t, 101)
			app := take(t, "the app has its end", apps)
			dying.wantEnd(t, true)
			dying.conn.CloseWrite()
			app.say("still here")
			stays.wantBytes(t, "still here")
			until(t, "its slot is free", func() bool { return s.lane.Snapshot().InUse == 1 })
		})
	}
}
