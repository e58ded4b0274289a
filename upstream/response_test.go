package upstream_test

import (
	"errors"
	"strings"
	"testing"

	"holdfast/upstream"
)

type framingCase struct {
	name, method, text string
	closes             bool // the server closes behind it
	status             int
	framing            upstream.Framing
	length             int64
	body               string
	keepAlive, endless bool
	unsure             bool // a body that must not be there may follow
}

var framingCases = []framingCase{
	{name: "Length", text: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
		status: 200, framing: upstream.FramingLength, length: 5, body: "hello", keepAlive: true},
	{name: "LengthZero", text: "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
		status: 200, framing: upstream.FramingLength, keepAlive: true},
	{name: "LengthTwiceTheSame", text: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: b\r\nContent-Length: 5\r\n\r\nhello",
		status: 200, framing: upstream.FramingLength, length: 5, body: "hello", keepAlive: true},
	{name: "Chunked", text: "HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n5\r\nhello\r\n6;a=b\r\n world\r\n0\r\nX-Sum: 1\r\n\r\n",
		status: 200, framing: upstream.FramingChunked, body: "hello world", keepAlive: true},
	{name: "ChunkedEmpty", text: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		status: 200, framing: upstream.FramingChunked, keepAlive: true},
	{name: "Close", text: "HTTP/1.1 200 OK\r\n\r\nhello", closes: true,
		status: 200, framing: upstream.FramingClose, body: "hello"},
	{name: "CloseEmpty", text: "HTTP/1.1 200 OK\r\nConnection: keep-alive\r\n\r\n", closes: true,
		status: 200, framing: upstream.FramingClose},
	{name: "CloseLooksLikeAnAnswer", text: "HTTP/1.0 200 OK\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", closes: true,
		status: 200, framing: upstream.FramingClose, body: "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"},
	{name: "HEAD", method: "HEAD", text: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", status: 200, keepAlive: true, unsure: true},
	{name: "HEADChunked", method: "HEAD", text: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", status: 200, keepAlive: true, unsure: true},
	{name: "204", text: "HTTP/1.1 204 No Content\r\n\r\n", status: 204, keepAlive: true},
	{name: "304", text: "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", status: 304, keepAlive: true, unsure: true},
	{name: "InterimFirst", text: "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
		status: 200, framing: upstream.FramingLength, length: 5, body: "hello", keepAlive: true},
	{name: "NoReason", text: "HTTP/1.1 404\r\nContent-Length: 0\r\n\r\n", status: 404, framing: upstream.FramingLength, keepAlive: true},

	{name: "SaysClose", text: "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello",
		status: 200, framing: upstream.FramingLength, length: 5, body: "hello"},
	{name: "SaysCloseInAList", text: "HTTP/1.1 200 OK\r\nConnection: X-A\r\nConnection: keep-alive, Close\r\nContent-Length: 5\r\n\r\nhello",
		status: 200, framing: upstream.FramingLength, length: 5, body: "hello"},
	{name: "Old", text: "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
		status: 200, framing: upstream.FramingLength, length: 5, body: "hello"},
	{name: "OldThatKeepsAlive", text: "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello",
		status: 200, framing: upstream.FramingLength, length: 5, body: "hello", keepAlive: true},

	{name: "EventsChunked", text: "HTTP/1.1 200 OK\r\nContent-Type: Text/Event-Stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n:a\n\r\n0\r\n\r\n",
		status: 200, framing: upstream.FramingChunked, body: ":a\n", keepAlive: true, endless: true},
	{name: "EventsToTheClose", text: "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n:a\n", closes: true,
		status: 200, framing: upstream.FramingClose, body: ":a\n", endless: true},
	{name: "EventsOfALength", text: "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 3\r\n\r\n:a\n",
		status: 200, framing: upstream.FramingLength, length: 3, body: ":a\n", keepAlive: true},
	{name: "EventsOnHEAD", method: "HEAD", text: "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
		status: 200, keepAlive: true, unsure: true},
}

func TestConn_ReadsEveryFramingHoweverItsBytesCome(t *testing.T) {
	for _, c := range framingCases {
		t.Run(c.name, func(t *testing.T) {
			if c.method == "" {
				c.method = "GET"
			}
			for _, piece := range []int{0, 1, 7} {
				server := startRaw(t, answering(c.text, piece, c.closes))
				for _, n := range []int{1, 3, 64} {
					c.want(t, server, n)
				}
			}
		})
	}
}

func (c framingCase) want(t *testing.T, server *rawServer, n int) {
	t.Helper()
	conn := dial(t, server)
	for exchange := range 3 {
		got := ask(t, conn, c.method, n)
		if got.err != nil || got.res.Status != c.status || got.res.Framing != c.framing || got.res.Length != c.length ||
			got.body != c.body || got.res.KeepAlive != c.keepAlive || got.res.Endless != c.endless {
			t.Fatalf("exchange %d: %+v; want %+v", exchange, got, c)
		}
		if conn.Served() != exchange+1 || !conn.Finished() {
			t.Fatalf("exchange %d: %d served, finished %v", exchange, conn.Served(), conn.Finished())
		}
		if conn.Reusable() != (c.keepAlive && !c.unsure) {
			t.Fatalf("reusable is %v", conn.Reusable())
		}
		if !c.keepAlive || c.unsure {
			return
		}
		if !conn.Silent() {
			t.Fatal("it is not silent")
		}
	}
}

func TestConn_AnAnswerThatCanBeReadInTwoWaysIsMalformed(t *testing.T) {
	for _, c := range []struct{ name, text string }{
		{"TwoLengths", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!"},
		{"TwoLengthsListed", "HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\nhello"},
		{"LengthSigned", "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nhello"},
		{"LengthEmpty", "HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\nhello"},
		{"LengthWraps", "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551621\r\n\r\nhello"},
		{"LengthAndChunks", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
		{"ChunksAndLength", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"},
		{"ChunksTwice", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
		{"ChunksListed", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"},
		{"CodingUnknown", "HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\nhello"},
		{"OldWithChunks", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
		{"LineFeedOnly", "HTTP/1.1 200 OK\nContent-Length: 0\n\n"},
		{"Folded", "HTTP/1.1 200 OK\r\nX-A: b\r\n c\r\n\r\n"},
		{"BlankBeforeTheColon", "HTTP/1.1 200 OK\r\nX-A : b\r\n\r\n"},
		{"CarriageReturnInAValue", "HTTP/1.1 200 OK\r\nX-A: b\rc\r\n\r\n"},
		{"NotHTTP", "220 mail.test ESMTP\r\n\r\n"},
		{"StatusOfTwoDigits", "HTTP/1.1 20 OK\r\n\r\n"},
		{"StatusOfFourDigits", "HTTP/1.1 2000 OK\r\n\r\n"},
		{"StatusBelow", "HTTP/1.1 099 OK\r\n\r\n"},
		{"StatusAbove", "HTTP/1.1 600 OK\r\n\r\n"},
		{"ReasonHasNUL", "HTTP/1.1 200 O\x00K\r\n\r\n"},
		{"VersionTwo", "HTTP/2.0 200 OK\r\n\r\n"},
		{"EmptyLineFirst", "\r\nHTTP/1.1 200 OK\r\n\r\n"},
		{"SwitchesProtocols", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n"},
		{"TooManyInterim", strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 33) + "HTTP/1.1 200 OK\r\n\r\n"},
		{"InterimWithABody", "HTTP/1.1 103 Early Hints\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\n\r\n"},
		{"HeadOver64KiB", "HTTP/1.1 200 OK\r\n" + strings.Repeat("X-A: "+strings.Repeat("v", 1017)+"\r\n", 64)},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := dial(t, startRaw(t, answering(c.text, 0, false)))
			wantKind(t, ask(t, conn, "GET", 64).err, upstream.ErrMalformed, true)
			if conn.Reusable() {
				t.Error("it may be used again")
			}
		})
	}
}

func TestConn_AMalformedChunkIsMalformed(t *testing.T) {
	for _, body := range []string{"x\r\n", "5\r\nhello!\r\n", "5\nhello", "10000000000000000\r\n", "0\r\nContent-Length: 5\r\n\r\n"} {
		conn := dial(t, startRaw(t, answering("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"+body, 0, false)))
		wantKind(t, ask(t, conn, "GET", 64).err, upstream.ErrMalformed, true)
		if conn.Reusable() || conn.Finished() {
			t.Errorf("after %q it may be used again", body)
		}
	}
}

func TestConn_AHeadOfAlmost64KiBIsRead(t *testing.T) {
	long := strings.Repeat("v", 65<<9)
	text := "HTTP/1.1 200 OK\r\nX-A: " + long + "\r\nX-B: " + long[:30<<10] + "\r\nContent-Length: 5\r\n\r\nhello"
	got := ask(t, dial(t, startRaw(t, answering(text, 0, false))), "GET", 64)
	if got.err != nil || len(got.res.Fields) != 3 || string(got.res.Fields[0].Value) != long || got.body != "hello" {
		t.Errorf("%d fields, body %q, %v", len(got.res.Fields), got.body, got.err)
	}
}

// A head over the limit is one however its bytes come: the buffer is larger
// than the limit behind an interim answer that needed the room.
func TestConn_AHeadOverTheLimitIsRefusedBehindALargeInterimToo(t *testing.T) {
	interim := "HTTP/1.1 103 x\r\nX: " + strings.Repeat("v", 40<<10) + "\r\n\r\n"
	final := "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX: " + strings.Repeat("v", 70<<10) + "\r\n\r\nhi"
	server := startRaw(t, answering(interim+final, 0, false))
	if got := ask(t, dial(t, server), "GET", 64); !errors.Is(got.err, upstream.ErrMalformed) {
		t.Errorf("status %d, %v; want a head that is too large", got.res.Status, got.err)
	}
}
