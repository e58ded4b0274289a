package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"holdfast/bench/crowd"
)

// read feeds data in pieces as a connection would bring them.
func read(pieces ...string) (times []int64, rest string) {
	var left []byte
	for _, piece := range pieces {
		data := append(bytes.Clone(left), piece...)
		left = bytes.Clone(stamps(data, func(n int64) { times = append(times, n) }))
	}
	return times, string(left)
}

func TestStamps_AreFoundWhereverAReadEnds(t *testing.T) {
	text := "6b\r\nid: 7\ndata: ....T=1234567890123456789;\n\n\r\ndata: T=5;T=;T=x;TT=6;\n\nT="
	want := []int64{1234567890123456789, 5, 6}
	for at := range len(text) {
		for to := at; to < len(text); to++ {
			if got, _ := read(text[:at], text[at:to], text[to:]); !slices.Equal(got, want) {
				t.Fatalf("cut at %d and %d: %v, want %v", at, to, got, want)
			}
		}
	}
}

func TestStamps_KeepNoMoreThanAStampsBeginning(t *testing.T) {
	for text, want := range map[string]string{
		"data: T": "T", "T=12": "T=12", "T=": "T=", "T=12;": "", "Tx": "", "": "", "T=12x": "",
		"T=" + strings.Repeat("1", 40): "",
	} {
		if _, rest := read(text); rest != want {
			t.Errorf("%q: kept %q, want %q", text, rest, want)
		}
	}
}

func TestStamp_EndsTheDataAndIsRead(t *testing.T) {
	for _, size := range []int{0, 10, 64, 1000} {
		text := crowd.Stamp(size)
		times, rest := read(text)
		if len(times) != 1 || rest != "" || text[len(text)-1] != crowd.EndMark || size >= 64 && len(text) != size {
			t.Errorf("%d: %q, %v, rest %q", size, text, times, rest)
		}
	}
}

func TestRequestText_NamesTheChannelOnceAndAsksForItsKind(t *testing.T) {
	stream := requestText(crowd.Open{Address: "127.0.0.1:1", Path: "/events?c=%d"}, 12)
	if stream != "GET /events?c=12 HTTP/1.1\r\nHost: 127.0.0.1:1\r\nAccept: text/event-stream\r\n\r\n" {
		t.Errorf("%q", stream)
	}
	socket := requestText(crowd.Open{Address: "127.0.0.1:1", Path: "/ws", Socket: true}, 12)
	for _, want := range []string{"GET /ws HTTP/1.1\r\n", "\r\nUpgrade: websocket\r\n", "\r\nOrigin: http://127.0.0.1:1\r\n", "\r\nSec-WebSocket-Version: 13\r\n"} {
		if !strings.Contains(socket, want) {
			t.Errorf("no %q in %q", want, socket)
		}
	}
}

// What is found does not depend on where reads end, and what is kept is short.
func FuzzStamps(f *testing.F) {
	f.Add([]byte("data: ...T=17;\n\nT=18;T"), uint64(1))
	f.Add([]byte("T=T=T=1;T=99999999999999999999;"), uint64(2))
	f.Add([]byte("T=1234567890123456789;"), uint64(3))
	f.Fuzz(func(t *testing.T, data []byte, seed uint64) {
		whole, _ := read(string(data))
		random := rand.New(rand.NewPCG(seed, 0))
		var pieces []string
		for left := string(data); left != ""; {
			n := 1 + random.IntN(len(left))
			pieces, left = append(pieces, left[:n]), left[n:]
		}
		parts, rest := read(pieces...)
		if !slices.Equal(whole, parts) || len(rest) >= longestStamp+len(crowd.Mark) {
			t.Fatalf("%q in pieces %q: %v, whole %v, rest %q", data, pieces, parts, whole, rest)
		}
		if n := bytes.Count(data, []byte(crowd.Mark)); len(whole) > n {
			t.Fatal(fmt.Sprint(len(whole), " stamps of ", n, " marks"))
		}
	})
}
