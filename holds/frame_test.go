package holds

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
	"unsafe"
)

// wantNext reads what is to be one message, with nothing behind it.
func wantNext(t *testing.T, f *frames, in []byte, op opcode, payload string) message {
	t.Helper()
	used, m, fault := f.next(in, 1<<20)
	if used != len(in) || fault != nil || m.opcode != op || string(m.payload) != payload {
		t.Fatalf("next used %d of %d and gave %X %q, fault %v; want %X %q", used, len(in), m.opcode, m.payload, fault, op, payload)
	}
	return m
}

func wantIdle(t *testing.T, f *frames) {
	t.Helper()
	if f.partial != nil {
		t.Fatalf("an idle parser keeps %+v", *f.partial)
	}
}

func TestFrames_IdleIsOnePointerToNothing(t *testing.T) {
	if size := unsafe.Sizeof(frames{}); size != unsafe.Sizeof(uintptr(0)) {
		t.Fatalf("a parser is %d bytes", size)
	}
	var f frames
	for _, frame := range []clientSends{
		clientSends{}.text("hello"), clientSends{}.text(""), clientSends{}.ping("p"), clientSends{}.pong(""),
		clientSends{}.beginBinary("a").end(""), clientSends{}.text(strings.Repeat("é", 40_000)),
	} {
		want := frame
		for at := range min(len(want)-1, 20) { // first in one piece, then in two
			in := bytes.Clone(want)
			if at > 0 {
				if used, m, fault := f.next(in[:at], 1<<20); used != at || m.opcode != 0 || fault != nil {
					t.Fatalf("the first %d bytes of %x: %d, %v, %v", at, want, used, m, fault)
				}
				if f.partial == nil {
					t.Fatal("nothing is kept of the first part")
				}
			}
			if _, m, fault := f.next(in[at:], 1<<20); m.opcode == 0 || fault != nil {
				t.Fatalf("the rest behind %d bytes of %x: %v, %v", at, want, m, fault)
			}
			wantIdle(t, &f)
		}
	}
}

func TestFrames_AWholeSmallMessageInOneReadCostsNoAllocation(t *testing.T) {
	var f frames
	sent := clientSends{}.text("hello, κόσμε").ping("p").binary(strings.Repeat("b", 1000)).pong("")
	in := make([]byte, len(sent))
	if n := testing.AllocsPerRun(100, func() {
		copy(in, sent)
		messages := 0
		for rest := in; len(rest) > 0; messages++ {
			used, m, fault := f.next(rest, 1<<20)
			if m.opcode == 0 || m.owned || fault != nil {
				t.Fatalf("next gave %v, %v", m, fault)
			}
			rest = rest[used:]
		}
		if messages != 4 {
			t.Fatalf("%d messages", messages)
		}
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func TestFrames_AQuietClientCostsWhatItSentAndNotWhatItAnnounced(t *testing.T) {
	for _, first := range []byte{0x81, 0x01, 0x82} {
		var f frames
		if _, m, fault := f.next(clientSends{}.head(first, 1<<20, 0).raw("x"), 1<<20); m.opcode != 0 || fault != nil {
			t.Fatal(m, fault)
		}
		if got := cap(f.partial.data); got > 64 {
			t.Fatalf("%d bytes are kept for one that came", got)
		}
		sent := 1
		for sent < 1<<20-1 {
			part := bytes.Repeat([]byte("y"), min(1000, 1<<20-1-sent))
			if _, m, fault := f.next(part, 1<<20); m.opcode != 0 || fault != nil {
				t.Fatal(m, fault)
			}
			sent += len(part)
			if got := cap(f.partial.data); len(f.partial.data) != sent || got > max(64, 2*sent) || got > 1<<20 && first != 0x01 {
				t.Fatalf("%d bytes are kept for %d that came", got, sent)
			}
		}
	}
	var f frames
	f.next(clientSends{}.head(0x89, 125, 0).raw("x"), 0)
	if got := cap(f.partial.control); got > 125 {
		t.Fatalf("%d bytes are kept of a ping", got)
	}
}

func TestFrames_APayloadIsThePartOfTheReadThatItCameIn(t *testing.T) {
	var f frames
	in := []byte(clientSends{}.text("first").text("second"))
	behind := bytes.Clone(in[11:])
	used, m, _ := f.next(in, 1<<20)
	if used != 11 || m.owned || &m.payload[0] != &in[6] || string(m.payload) != "first" {
		t.Fatalf("used %d, %+v", used, m)
	}
	_ = append(m.payload, "more"...)
	if !bytes.Equal(in[11:], behind) {
		t.Fatal("what is behind a message was written to")
	}
	wantNext(t, &f, in[11:], opText, "second")
}

func TestFrames_APayloadThatCameInPartsMayBeKept(t *testing.T) {
	for _, send := range []clientSends{
		clientSends{}.text("kept for good"),
		clientSends{}.beginText("kept ").end("for good"),
		clientSends{}.ping("kept for good"),
		clientSends{}.close(3000, "kept for good"),
	} {
		var f frames
		var got message
		in := make([]byte, 1)
		for _, c := range send {
			in[0] = c
			if _, m, _ := f.next(in, 1<<20); m.opcode != 0 {
				got = m
			}
		}
		if f.next([]byte(clientSends{}.head(0x81, 100, 0).raw("something else")), 1<<20); string(got.payload) != "kept for good" || !got.owned {
			t.Fatalf("%x: %q, owned %v", send, got.payload, got.owned)
		}
	}
}

func TestFrames_AFaultIsSaidWithTheByteThatMakesItCertain(t *testing.T) {
	type faulty struct {
		send  clientSends // up to the byte with which it is certain
		fault *frameFault
	}
	cases := []faulty{
		{clientSends{}.raw("\xc1"), faultReserved},
		{clientSends{}.raw("\xa1"), faultReserved},
		{clientSends{}.raw("\x91"), faultReserved},
		{clientSends{}.raw("\x83"), faultOpcode},
		{clientSends{}.raw("\x8b"), faultOpcode},
		{clientSends{}.raw("\x09"), faultControlFragment},
		{clientSends{}.raw("\x80"), faultNoMessage},
		{clientSends{}.beginText("a").ping("").raw("\x81"), faultInMessage},
		{clientSends{}.beginBinary("").raw("\x01"), faultInMessage},
		{clientSends{}.raw("\x81\x05"), faultUnmasked},
		{clientSends{}.raw("\x89\xfe"), faultControlLength},
		{clientSends{}.raw("\x88\xff"), faultControlLength},
		{clientSends{}.raw("\x81\xfe\x00\x7d"), faultLength},
		{clientSends{}.raw("\x81\xff\x00\x00\x00\x00\x00\x00\xff\xff"), faultLength},
		{clientSends{}.raw("\x81\xff\x80\x00\x00\x00\x00\x00\x00\x00"), faultLengthSign},
		{clientSends{}.frame(0x88, "\x03"), faultCloseLength},
		{clientSends{}.close(1006, ""), faultCloseCode},
		{clientSends{}.close(1000, "\xff"), faultReason},
	}
	for _, p := range invalidUTF8 {
		cases = append(cases, faulty{clientSends{}.head(0x81, 1000, 0).raw(p), faultText},
			faulty{clientSends{}.beginText("κ").head(0x00, 1000, 0).raw(p), faultText})
	}
	for _, p := range cutUTF8 {
		cases = append(cases, faulty{clientSends{}.text(p), faultText}, faulty{clientSends{}.beginText(p).end(""), faultText})
	}
	for _, c := range cases {
		var f frames
		for i, b := range c.send {
			_, m, fault := f.next([]byte{b}, 1<<20)
			if last := i == len(c.send)-1; m.opcode != 0 && m.opcode != opPing || last != (fault != nil) || last && fault != c.fault {
				t.Errorf("% x: byte %d of %d gives %v, fault %v; want %v with the last", c.send, i+1, len(c.send), m, fault, c.fault)
				break
			}
		}
		f = frames{}
		in := bytes.Clone(c.send)
		for len(in) > 0 {
			used, m, fault := f.next(in, 1<<20)
			if in = in[used:]; fault != nil && (fault != c.fault || m.opcode != 0 || len(in) > 0) || len(in) == 0 && fault == nil {
				t.Errorf("% x: at once: %d used, %v, fault %v; want %v", c.send, used, m, fault, c.fault)
			}
		}
	}
}

func TestFrames_TooBigNamesTheSizesAndTheKey(t *testing.T) {
	var f frames
	f.next(clientSends{}.beginText("12345"), 10)
	_, _, fault := f.next(clientSends{}.head(0x80, 6, 0), 10)
	const want = "a message of 11 bytes or more is over the limit of 10; raise holds.message_bytes or send less at once"
	if fault == nil || fault.code != 1009 || fault.Error() != want {
		t.Fatalf("fault %v", fault)
	}
}

func TestFrames_ALimitOfZeroLetsEmptyMessagesThrough(t *testing.T) {
	var f frames
	if _, m, fault := f.next(clientSends{}.text(""), 0); m.opcode != opText || fault != nil {
		t.Fatal(m, fault)
	}
	if _, m, fault := f.next(clientSends{}.ping("a ping is no message"), 0); m.opcode != opPing || fault != nil {
		t.Fatal(m, fault)
	}
	if _, _, fault := f.next(clientSends{}.text("a"), 0); fault == nil || fault.code != 1009 {
		t.Fatal(fault)
	}
}

func TestFrames_ALimitLoweredInsideAMessageHoldsForItsNextFrame(t *testing.T) {
	var f frames
	f.next(clientSends{}.beginText("12345"), 10)
	if _, m, fault := f.next(clientSends{}.more(""), 3); m.opcode != 0 || fault != nil {
		t.Fatal("an empty frame adds nothing: ", m, fault)
	}
	if _, _, fault := f.next(clientSends{}.end("6"), 3); fault == nil || fault.code != 1009 {
		t.Fatal(fault)
	}
}

func TestFrames_NothingCountsBehindACloseOrAFault(t *testing.T) {
	for _, send := range []clientSends{
		clientSends{}.close(1000, "").text("a").raw("\xff"),
		clientSends{}.beginText("a").close(1000, "").end("b"),
		clientSends{}.beginText("a").raw("\x83").text("a"),
	} {
		var f frames
		in := bytes.Clone(send)
		for over := false; !over; {
			used, m, fault := f.next(in, 1<<20)
			in, over = in[used:], m.opcode == opClose || fault != nil
		}
		for _, more := range []clientSends{in, clientSends{}.text("late"), clientSends{}.raw("\x83")} {
			if used, m, fault := f.next(more, 1<<20); used != len(more) || m.opcode != 0 || fault != nil {
				t.Fatalf("%x: %d, %v, %v", send, used, m, fault)
			}
		}
		if !finished.isZero() {
			t.Fatalf("what all finished parsers share was written to: %+v", *finished)
		}
	}
}

func (p *partial) isZero() bool {
	return p.rawLen == 0 && !p.inFrame && p.head == frameHead{} && p.message == 0 && p.control == nil && p.data == nil && p.checked == 0
}

func TestFrames_EveryCloseCodeIsTakenOrIsAFault(t *testing.T) {
	for code := range 1 << 16 {
		valid := code >= 3000 && code < 5000
		switch code {
		case 1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014:
			valid = true
		}
		var f frames
		_, m, fault := f.next(clientSends{}.close(uint16(code), "why"), 0)
		if valid && (fault != nil || m.opcode != opClose || int(m.code) != code || string(m.payload) != "why") || !valid && fault != faultCloseCode {
			t.Fatalf("close %d: %+v, fault %v", code, m, fault)
		}
	}
}

func TestUnmask_IsByteByByteTheMaskWhereverItBegins(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for length := range 70 {
		for cut := range length + 1 {
			mask := random.Uint32()
			key := binary.LittleEndian.AppendUint32(nil, mask)
			plain, masked := make([]byte, length), make([]byte, length+1)
			for i := range plain {
				plain[i] = byte(random.Uint32())
				masked[i] = plain[i] ^ key[i%4]
			}
			unmask(masked[cut:length], unmask(masked[:cut], mask))
			if !bytes.Equal(masked[:length], plain) || masked[length] != 0 {
				t.Fatalf("%d bytes cut at %d: %x, want %x", length, cut, masked, plain)
			}
		}
	}
}

func TestAppendFrame_WritesTheShortestHeadWithoutAMask(t *testing.T) {
	for _, c := range []struct {
		op     opcode
		length int
		head   string
	}{
		{opText, 0, "\x81\x00"},
		{opBinary, 125, "\x82\x7d"},
		{opText, 126, "\x81\x7e\x00\x7e"},
		{opText, 65535, "\x81\x7e\xff\xff"},
		{opBinary, 65536, "\x82\x7f\x00\x00\x00\x00\x00\x01\x00\x00"},
		{opPing, 0, "\x89\x00"},
		{opPong, 4, "\x8a\x04"},
		{opClose, 2, "\x88\x02"},
	} {
		payload := strings.Repeat("p", c.length)
		if got := appendFrame([]byte("before"), c.op, []byte(payload)); string(got) != "before"+c.head+payload {
			t.Errorf("%X of %d begins with % x", byte(c.op), c.length, got[:min(len(got), 20)])
		}
		if got := appendFrameHead([]byte("before"), c.op, c.length); string(got) != "before"+c.head {
			t.Errorf("the head of %X of %d is % x", byte(c.op), c.length, got)
		}
	}
}

func TestClosePayload_FitsAControlFrameAndIsWhatAClientMayGet(t *testing.T) {
	for _, c := range []struct {
		code         uint16
		reason, want string
	}{
		{1000, "", "\x03\xe8"},
		{1012, "draining", "\x03\xf4draining"},
		{4999, "κόσμε", "\x13\x87κόσμε"},
		{closeNoStatus, "unsaid", ""},
		{1006, "unsaid", ""},
		{1015, "unsaid", ""},
		{0, "unsaid", ""},
		{5000, "unsaid", ""},
		{1000, strings.Repeat("*", 124), "\x03\xe8" + strings.Repeat("*", 123)},
		{1000, strings.Repeat("*", 122) + "é", "\x03\xe8" + strings.Repeat("*", 122)},
		{1000, strings.Repeat("*", 121) + "éé", "\x03\xe8" + strings.Repeat("*", 121) + "é"},
		{1000, strings.Repeat("\U0001F680", 40), "\x03\xe8" + strings.Repeat("\U0001F680", 30)},
		{1000, "a\xff", "\x03\xe8a\uFFFD"},
		{1000, strings.Repeat("*", 122) + "\xff", "\x03\xe8" + strings.Repeat("*", 122)},
	} {
		got := closePayload(c.code, c.reason)
		if string(got) != c.want || len(got) > 125 || len(got) > 2 && !utf8.Valid(got[2:]) {
			t.Errorf("closePayload(%d, %q) is %q, want %q", c.code, c.reason, got, c.want)
		}
	}
}
