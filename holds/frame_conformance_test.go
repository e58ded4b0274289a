package holds

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// conformanceLimit is the limit of a message under which the cases are right.
const conformanceLimit = 128 << 10

// conformanceCase is a conversation with a server that sends every message
// back: all that its client sends, and all that it gets. The last thing it
// gets is a close, so that whoever plays a case over a connection knows when
// it is over. The sections are those of the Autobahn test suite.
type conformanceCase struct {
	section int
	name    string
	send    clientSends
	want    clientGets
}

var conformanceSections = map[int]string{1: "framing", 2: "pings and pongs", 3: "reserved bits", 4: "opcodes",
	5: "fragmentation", 6: "UTF-8", 7: "close", 9: "limits", 10: "miscellaneous"}

func TestFrames_EveryConformanceCaseIsAnsweredHoweverItsBytesCome(t *testing.T) {
	counts, names := map[int]int{}, map[string]bool{}
	for _, c := range conformanceCases() {
		name := fmt.Sprintf("%d %s/%s", c.section, conformanceSections[c.section], c.name)
		if names[name] || conformanceSections[c.section] == "" {
			t.Fatalf("the case %q is there twice, or its section is not known", name)
		}
		counts[c.section]++
		names[name] = true
		t.Run(name, func(t *testing.T) {
			if n := len(c.want); n == 0 || c.want[n-1].opcode != opClose {
				t.Fatal("the case does not end with a close")
			}
			c.play(t, func() int { return len(c.send) })
			c.play(t, func() int { return 1 })
			random := rand.New(rand.NewPCG(6455, uint64(len(c.send))))
			for range 10 {
				most := 1 + random.IntN(len(c.send))
				c.play(t, func() int { return 1 + random.IntN(most) })
				c.play(t, func() int { return 1 + random.IntN(8) })
			}
		})
	}
	for section := range 11 {
		if title := conformanceSections[section]; title != "" {
			t.Logf("section %2d, %-15s %4d cases", section, title, counts[section])
		}
	}
	t.Logf("%d cases in all", len(names))
}

// play plays a case in reads of such sizes. All go through one buffer.
func (c *conformanceCase) play(t *testing.T, size func() int) {
	t.Helper()
	var server echoServer
	var sent []byte
	buffer := make([]byte, len(c.send))
	for rest := c.send; len(rest) > 0; {
		read := buffer[:copy(buffer[:min(size(), len(rest))], rest)]
		rest = rest[len(read):]
		sent = append(sent, server.take(read, conformanceLimit)...)
		for i := range read { // as another connection's bytes would
			read[i] = 0xEE
		}
	}
	wantServerFrames(t, sent, c.want)
}

func conformanceCases() []conformanceCase {
	return slices.Concat(framingCases(), pingCases(), reservedBitCases(), opcodeCases(), fragmentCases(),
		utf8Cases(), closeCases(), limitCases(), otherCases())
}

// thenClose ends a case with the client's close.
func (c conformanceCase) thenClose() conformanceCase {
	c.send, c.want = c.send.close(1000, ""), c.want.close(1000)
	return c
}

func framingCases() (cases []conformanceCase) {
	for _, n := range []int{0, 1, 7, 8, 125, 126, 127, 128, 65535, 65536} {
		p := strings.Repeat("*", n)
		cases = append(cases,
			conformanceCase{1, fmt.Sprintf("text of %d", n), clientSends{}.text(p), clientGets{}.text(p)}.thenClose(),
			conformanceCase{1, fmt.Sprintf("binary of %d", n), clientSends{}.binary(p), clientGets{}.binary(p)}.thenClose())
	}
	for _, mask := range []uint32{0, 0xFFFFFFFF, 0x000000FF, 0xFF000000, 0x01020304} {
		p := "the mask is taken off whatever it is"
		cases = append(cases, conformanceCase{1, fmt.Sprintf("mask %08x", mask),
			clientSends{}.masked(0x81, p, mask), clientGets{}.text(p)}.thenClose())
	}
	for _, fault := range []struct{ name, frame string }{
		{"unmasked text", "\x81\x05hello"}, {"unmasked empty text", "\x81\x00"}, {"unmasked text of 126", "\x81\x7e\x00\x7e"},
		{"unmasked binary", "\x82\x01a"}, {"unmasked ping", "\x89\x00"}, {"unmasked close", "\x88\x02\x03\xe8"},
		{"length 0 in 2 bytes", "\x81\xfe\x00\x00"}, {"length 125 in 2 bytes", "\x82\xfe\x00\x7d"},
		{"length 0 in 8 bytes", "\x81\xff\x00\x00\x00\x00\x00\x00\x00\x00"},
		{"length 126 in 8 bytes", "\x82\xff\x00\x00\x00\x00\x00\x00\x00\x7e"},
		{"length 65535 in 8 bytes", "\x82\xff\x00\x00\x00\x00\x00\x00\xff\xff"},
		{"length 2^63", "\x82\xff\x80\x00\x00\x00\x00\x00\x00\x00"},
		{"length 2^64-1", "\x81\xff\xff\xff\xff\xff\xff\xff\xff\xff"},
	} {
		cases = append(cases,
			conformanceCase{1, fault.name, clientSends{}.raw(fault.frame), clientGets{}.close(1002)},
			conformanceCase{1, fault.name + " after a text", clientSends{}.text("a").raw(fault.frame), clientGets{}.text("a").close(1002)})
	}
	return cases
}

func pingCases() []conformanceCase {
	long := strings.Repeat("\xfe", 125)
	cases := []conformanceCase{
		{2, "ping without payload", clientSends{}.ping(""), clientGets{}.pong("")},
		{2, "ping with text", clientSends{}.ping("hello"), clientGets{}.pong("hello")},
		{2, "ping with what is not UTF-8", clientSends{}.ping("\x00\xff\xfe\xfd\xfc\xfb\x00\xff"), clientGets{}.pong("\x00\xff\xfe\xfd\xfc\xfb\x00\xff")},
		{2, "ping with 125 bytes", clientSends{}.ping(long), clientGets{}.pong(long)},
		{2, "pong without payload", clientSends{}.pong(""), nil},
		{2, "pong with payload", clientSends{}.pong("unasked"), nil},
		{2, "pong with 125 bytes", clientSends{}.pong(long), nil},
		{2, "pong, then ping", clientSends{}.pong("unasked").ping("ping"), clientGets{}.pong("ping")},
	}
	ten, pongs := clientSends{}, clientGets{}
	for i := range 10 {
		ten, pongs = ten.ping(fmt.Sprint("payload ", i)), pongs.pong(fmt.Sprint("payload ", i))
	}
	cases = append(cases, conformanceCase{2, "ten pings", ten, pongs})
	for i := range cases {
		cases[i] = cases[i].thenClose()
	}
	return append(cases,
		conformanceCase{2, "ping with 126 bytes", clientSends{}.ping(long + "a"), clientGets{}.close(1002)},
		conformanceCase{2, "ping with 65536 bytes", clientSends{}.head(0x89, 65536, 1), clientGets{}.close(1002)},
		conformanceCase{2, "pong with 126 bytes", clientSends{}.text("a").pong(long + "a"), clientGets{}.text("a").close(1002)})
}

// faultyFirstByte are the cases of a frame that its first byte makes wrong,
// wherever it comes and whatever it has for a payload.
func faultyFirstByte(section int, first byte) []conformanceCase {
	name := fmt.Sprintf("first byte %02x", first)
	return []conformanceCase{
		{section, name + ", empty", clientSends{}.frame(first, ""), clientGets{}.close(1002)},
		{section, name + ", with payload", clientSends{}.frame(first, "payload"), clientGets{}.close(1002)},
		{section, name + ", after a text and before a ping", clientSends{}.text("a").frame(first, "").ping(""), clientGets{}.text("a").close(1002)},
		{section, name + ", inside a message", clientSends{}.beginText("a").frame(first, "").end("b"), clientGets{}.close(1002)},
	}
}

func reservedBitCases() (cases []conformanceCase) {
	for bits := byte(0x10); bits <= 0x70; bits += 0x10 {
		for _, first := range []byte{0x81, 0x82, 0x01, 0x00, 0x80, 0x88, 0x89, 0x8A} {
			cases = append(cases, faultyFirstByte(3, first|bits)...)
		}
	}
	return cases
}

func opcodeCases() (cases []conformanceCase) {
	for _, op := range []byte{0x3, 0x4, 0x5, 0x6, 0x7, 0xB, 0xC, 0xD, 0xE, 0xF} {
		cases = append(cases, faultyFirstByte(4, 0x80|op)...)
		cases = append(cases, faultyFirstByte(4, op)...)
	}
	return cases
}

func fragmentCases() []conformanceCase {
	cases := []conformanceCase{
		{5, "text in two", clientSends{}.beginText("frag").end("ment"), clientGets{}.text("fragment")},
		{5, "binary in three", clientSends{}.beginBinary("\xff").more("\xfe").end("\xfd"), clientGets{}.binary("\xff\xfe\xfd")},
		{5, "all fragments empty", clientSends{}.beginText("").more("").end(""), clientGets{}.text("")},
		{5, "only the last has bytes", clientSends{}.beginBinary("").more("").end("b"), clientGets{}.binary("b")},
		{5, "only the first has bytes", clientSends{}.beginText("a").more("").end(""), clientGets{}.text("a")},
		{5, "ping between", clientSends{}.beginText("a").ping("p").end("b"), clientGets{}.pong("p").text("ab")},
		{5, "pong between", clientSends{}.beginText("a").pong("p").end("b"), clientGets{}.text("ab")},
		{5, "pings between five", clientSends{}.beginText("a").ping("1").more("b").more("c").ping("2").ping("").more("d").end("e"),
			clientGets{}.pong("1").pong("2").pong("").text("abcde")},
		{5, "ping before the first byte of payload", clientSends{}.beginText("").ping("p").end("b"), clientGets{}.pong("p").text("b")},
		{5, "messages in turn", clientSends{}.beginText("a").end("b").binary("c").beginBinary("d").end("e").text("f"),
			clientGets{}.text("ab").binary("c").binary("de").text("f")},
		{5, "first fragment of 126, last of 65536", clientSends{}.beginText(strings.Repeat("a", 126)).end(strings.Repeat("b", 65536)),
			clientGets{}.text(strings.Repeat("a", 126) + strings.Repeat("b", 65536))},
	}
	for i := range cases {
		cases[i] = cases[i].thenClose()
	}
	for _, first := range []byte{0x08, 0x09, 0x0A} { // a control frame in parts
		cases = append(cases, faultyFirstByte(5, first)...)
	}
	return append(cases, []conformanceCase{
		{5, "last fragment of nothing", clientSends{}.end("a"), clientGets{}.close(1002)},
		{5, "empty last fragment of nothing", clientSends{}.end(""), clientGets{}.close(1002)},
		{5, "fragment of nothing", clientSends{}.more("a").text("b"), clientGets{}.close(1002)},
		{5, "fragment of nothing after a text", clientSends{}.text("a").more("b"), clientGets{}.text("a").close(1002)},
		{5, "fragment of nothing after a ping", clientSends{}.ping("a").end("b"), clientGets{}.pong("a").close(1002)},
		{5, "fragment after the last one", clientSends{}.beginText("a").end("b").end("c"), clientGets{}.text("ab").close(1002)},
		{5, "text inside a text", clientSends{}.beginText("a").text("b"), clientGets{}.close(1002)},
		{5, "text begins inside a text", clientSends{}.beginText("a").beginText("b"), clientGets{}.close(1002)},
		{5, "binary inside a text", clientSends{}.beginText("a").more("b").binary("c"), clientGets{}.close(1002)},
		{5, "text inside a binary", clientSends{}.beginBinary("a").ping("p").text("b"), clientGets{}.pong("p").close(1002)},
		{5, "text inside an empty fragment", clientSends{}.beginText("").text("b"), clientGets{}.close(1002)},
	}...)
}

// validUTF8 and invalidUTF8 are in the order of Unicode 15 §3.9, table 3-7.
var validUTF8 = []string{
	"Hello-µ@ßöäüàá-UTF-8!!", "κόσμε", "\x00", "\x7f", "\u0080", "\u07ff", "\u0800", "\u0fff", "\u1000", "\ucfff", "\ud000", "\ud7ff",
	"\ue000", "\ufeff", "\ufffd", "\ufffe", "\uffff", "\U00010000", "\U0003ffff", "\U00040000", "\U000fffff", "\U00100000",
	"\U0010fffe", "\U0010ffff", "a\u0300\U0001F680z", strings.Repeat("€", 100), strings.Repeat("x", 9) + "\U0001F680",
}

// invalidUTF8 have the fault with their last byte, and what comes before it
// could still have become valid.
var invalidUTF8 = []string{
	"\x80", "\xbf", "\xc0", "\xc1", "\xf5", "\xf8", "\xfc", "\xfe", "\xff", // no byte that begins a rune
	"\xc2\x00", "\xc2\x7f", "\xc2\xc0", "\xdf\xff", "\xc2\x41", // no continuation where one has to be
	"\xe0\x9f", "\xe0\x80", "\xe1\x7f", "\xe1\x80\x7f", "\xef\xbf\xc0", // 3 bytes: overlong, or cut short
	"\xed\xa0", "\xed\xaf", "\xed\xb0", "\xed\xbf", // surrogates
	"\xf0\x8f", "\xf0\x80", "\xf0\x90\x7f", "\xf0\x90\x80\x7f", "\xf3\xbf\xbf\xc0", // 4 bytes: overlong, or cut short
	"\xf4\x90", "\xf4\xbf", // beyond U+10FFFF
	"κόσμε\xed\xa0", "κόσμε\xf4\x90", strings.Repeat("x", 200) + "\xff", "\U0010ffff\x80", "é\xc3\xc3",
}

// cutUTF8 are texts that end inside a rune.
var cutUTF8 = []string{"\xc2", "\xe0\xa0", "\xe1", "\xed\x9f", "\xf0\x90", "\xf0\x90\x80", "\xf4\x8f\xbf", "κόσμ\xce", strings.Repeat("x", 130) + "\xf1"}

func utf8Cases() (cases []conformanceCase) {
	for _, p := range append([]string{""}, validUTF8...) {
		good := func(how string, send clientSends) {
			cases = append(cases, conformanceCase{6, fmt.Sprintf("valid %.30q %s", p, how), send, clientGets{}.text(p)}.thenClose())
		}
		good("whole", clientSends{}.text(p))
		good("byte by fragment", clientSends{}.pieces(opText, p, 1))
		good("in three with pongs", clientSends{}.beginText(p[:len(p)/3]).pong("\xff").more(p[len(p)/3:len(p)/2]).pong("\xff").end(p[len(p)/2:]))
	}
	bad := func(p, how string, send clientSends) {
		cases = append(cases, conformanceCase{6, fmt.Sprintf("invalid %.40q %s", p[max(0, len(p)-8):], how), send, clientGets{}.close(1007)})
	}
	for _, p := range invalidUTF8 {
		bad(p, "whole", clientSends{}.text(p))
		bad(p, "before more", clientSends{}.text(p+" and more"))
		bad(p, "byte by fragment", clientSends{}.pieces(opText, p, 1))
		// What follows would be valid, and never comes.
		bad(p, "in a frame that does not end", clientSends{}.head(0x81, len(p)+100, 0).raw(p))
		bad(p, "in a message that does not end", clientSends{}.beginText(p))
		bad(p, "in the second frame, which does not end", clientSends{}.beginText(p[:len(p)-1]).head(0x80, 100, 0).raw(p[len(p)-1:]))
	}
	for _, p := range cutUTF8 {
		bad(p, "at the end", clientSends{}.text(p))
		bad(p, "at the end of two", clientSends{}.beginText(p).end(""))
		bad(p, "before another rune", clientSends{}.beginText(p).ping("").end("a"))
		cases[len(cases)-1].want = clientGets{}.pong("").close(1007)
	}
	for _, p := range slices.Concat(invalidUTF8, cutUTF8) {
		cases = append(cases, conformanceCase{6, fmt.Sprintf("binary %.40q", p[max(0, len(p)-8):]),
			clientSends{}.binary(p).pieces(opBinary, p, 1), clientGets{}.binary(p).binary(p)}.thenClose())
	}
	return cases
}

func closeCases() []conformanceCase {
	reason := strings.Repeat("*", 123)
	cases := []conformanceCase{
		{7, "after a text", clientSends{}.text("a").close(1000, ""), clientGets{}.text("a").close(1000)},
		{7, "twice", clientSends{}.close(1000, "").close(1001, ""), clientGets{}.close(1000)},
		{7, "then ping", clientSends{}.close(1000, "").ping("p"), clientGets{}.close(1000)},
		{7, "then text", clientSends{}.close(1000, "").text("a"), clientGets{}.close(1000)},
		{7, "then a fault", clientSends{}.close(1000, "").raw("\xff\xff\xff"), clientGets{}.close(1000)},
		{7, "a fault, then close", clientSends{}.frame(0x83, "").close(1000, ""), clientGets{}.close(1002)},
		{7, "inside a message", clientSends{}.beginText("a").close(1000, "").end("b"), clientGets{}.close(1000)},
		{7, "after a long text", clientSends{}.text(strings.Repeat("a", 100_000)).close(1000, "").ping(""), clientGets{}.text(strings.Repeat("a", 100_000)).close(1000)},
		{7, "empty", clientSends{}.frame(0x88, ""), clientGets{}.close(closeNoStatus)},
		{7, "of one byte", clientSends{}.frame(0x88, "\x03"), clientGets{}.close(1002)},
		{7, "with a reason", clientSends{}.close(1000, "Auf Wiedersehen, κόσμε"), clientGets{}.close(1000)},
		{7, "with a reason of 123 bytes", clientSends{}.close(1000, reason), clientGets{}.close(1000)},
		{7, "with a reason of 124 bytes", clientSends{}.close(1000, reason+"*"), clientGets{}.close(1002)},
		{7, "in two", clientSends{}.frame(0x08, "\x03").end("\xe8"), clientGets{}.close(1002)},
	}
	for _, p := range slices.Concat(invalidUTF8, cutUTF8) {
		if len(p) <= 123 {
			cases = append(cases, conformanceCase{7, fmt.Sprintf("with the reason %q", p), clientSends{}.close(1000, p), clientGets{}.close(1007)})
		}
	}
	for _, p := range validUTF8 {
		if len(p) <= 123 {
			cases = append(cases, conformanceCase{7, fmt.Sprintf("with the reason %q", p), clientSends{}.close(1000, p), clientGets{}.close(1000)})
		}
	}
	valid := []uint16{1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 3000, 3001, 3999, 4000, 4001, 4999}
	codes := append(slices.Clone(valid), 0, 1, 999, 1004, 1005, 1006, 1016, 1100, 1999, 2000, 2999, 5000, 9999, 32768, 65535, 1015)
	for _, code := range codes {
		want := clientGets{}.close(1002)
		if slices.Contains(valid, code) {
			want = clientGets{}.close(code)
		}
		cases = append(cases, conformanceCase{7, fmt.Sprintf("code %d", code), clientSends{}.close(code, ""), want},
			conformanceCase{7, fmt.Sprintf("code %d with a reason", code), clientSends{}.close(code, "reason"), want})
	}
	return cases
}

func limitCases() (cases []conformanceCase) {
	most := strings.Repeat("0123456789abcdef", conformanceLimit/16)
	for _, size := range []int{64, 1000, 4096, 65535, 65536, conformanceLimit} {
		cases = append(cases,
			conformanceCase{9, fmt.Sprintf("text as long as may be in frames of %d", size), clientSends{}.pieces(opText, most, size), clientGets{}.text(most)}.thenClose(),
			conformanceCase{9, fmt.Sprintf("binary as long as may be in frames of %d", size), clientSends{}.pieces(opBinary, most, size), clientGets{}.binary(most)}.thenClose())
	}
	full := slices.Clip(clientSends{}.beginBinary(most))
	return append(cases, []conformanceCase{
		conformanceCase{9, "a full message, pings, its end", full.ping("p").more("").ping(most[:125]).end(""),
			clientGets{}.pong("p").pong(most[:125]).binary(most)}.thenClose(),
		conformanceCase{9, "two full messages", clientSends{}.text(most).text(most), clientGets{}.text(most).text(most)}.thenClose(),
		// Of what is too long, only the head is sent.
		{9, "text too long by one", clientSends{}.head(0x81, conformanceLimit+1, 1), clientGets{}.close(1009)},
		{9, "first fragment too long by one", clientSends{}.head(0x02, conformanceLimit+1, 1), clientGets{}.close(1009)},
		{9, "text of 2^63-1", clientSends{}.head(0x81, 1<<63-1, 1), clientGets{}.close(1009)},
		{9, "second fragment too long by one", clientSends{}.beginText("a").head(0x80, conformanceLimit, 1), clientGets{}.close(1009)},
		{9, "second fragment of 2^63-1", clientSends{}.beginText("a").head(0x00, 1<<63-1, 1), clientGets{}.close(1009)},
		{9, "one byte beyond a full message", full.ping("").head(0x80, 1, 1), clientGets{}.pong("").close(1009)},
		{9, "too long after a text", clientSends{}.text("a").head(0x82, conformanceLimit+1, 1), clientGets{}.text("a").close(1009)},
		{9, "too long, without the mask", clientSends{}.raw(string(binary.BigEndian.AppendUint64([]byte{0x82, 0xFF}, conformanceLimit+1))), clientGets{}.close(1009)},
	}...)
}

func otherCases() []conformanceCase {
	long := strings.Repeat("BAsd7&jh23", 6554)[:65536]
	many, all := clientSends{}, clientGets{}
	for i := range 200 {
		switch p := fmt.Sprint("message ", i); i % 3 {
		case 0:
			many, all = many.text(p), all.text(p)
		case 1:
			many, all = many.pieces(opBinary, p, 4), all.binary(p)
		case 2:
			many, all = many.ping(p), all.pong(p)
		}
	}
	empty := clientSends{}.beginText("a")
	for range 1000 {
		empty = empty.more("")
	}
	pings, pongs := clientSends{}.beginText(""), clientGets{}
	for i := range 100 {
		pings, pongs = pings.more("ab").ping(fmt.Sprint(i)), pongs.pong(fmt.Sprint(i))
	}
	cases := []conformanceCase{
		{10, "65536 bytes in frames of 1300", clientSends{}.pieces(opText, long, 1300), clientGets{}.text(long)},
		{10, "65536 bytes in frames of 997", clientSends{}.pieces(opBinary, long, 997), clientGets{}.binary(long)},
		{10, "200 messages and pings at once", many, all},
		{10, "1000 empty fragments", empty.end("b"), clientGets{}.text("ab")},
		{10, "100 pings inside a message", pings.end(""), pongs.text(strings.Repeat("ab", 100))},
		{10, "text that looks like frames", clientSends{}.text("\x01\x02\x08\x09\x0a"), clientGets{}.text("\x01\x02\x08\x09\x0a")},
	}
	for i := range cases {
		cases[i] = cases[i].thenClose()
	}
	return cases
}
