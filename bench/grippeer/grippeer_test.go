package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
)

func TestCases_HaveNamesOfTheirOwnAndSocketsTheirPaths(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range cases() {
		if seen[c.name] || c.name == "" || c.play == nil || strings.ContainsAny(c.name, " /?$,;\"") {
			t.Errorf("%q is there twice, or cannot be a path and a channel", c.name)
		}
		seen[c.name] = true
	}
	for _, list := range [][]testCase{socketCases(), endCases(), messageCases(), appMessageCases(), appFieldCases(), publishedCases(), controlCases(), socketFilterCases()} {
		for _, c := range list {
			if !strings.HasPrefix(c.name, "ws-") {
				t.Errorf("%s is a case of sockets, and Pushpin is not told so", c.name)
			}
		}
	}
	if _, err := choose("no-such-.*"); err == nil {
		t.Error("a pattern that no case matches is taken")
	}
}

func TestReport_SaysWhatDiffersAndForWhichReason(t *testing.T) {
	chosen := []testCase{{name: "alike"}, {name: "meant", why: "it is better"}, {name: "found"}}
	names := []string{rowPushpin, rowHoldfast}
	did := map[string][][]string{rowPushpin: {{"a"}, {"b"}, {"c", "d"}}, rowHoldfast: {{"a"}, {"B"}, {"c"}}}
	var out bytes.Buffer
	err := report(&out, chosen, names, did, false)
	want := `
alike                            same

meant                            differs: it is better
    pushpin   b
    holdfast  B

found                            DIFFERS
    pushpin   c
              d
    holdfast  c
`
	if !errors.Is(err, errDiffers) || out.String() != want {
		t.Errorf("%v, %s", err, out.String())
	}
	if err := report(io.Discard, chosen[:2], names, did, true); err != nil {
		t.Errorf("%v where a reason is stated for all that differs", err)
	}
}

func TestApp_ReadsNamesAsTheyAreAndFillsLengthsIn(t *testing.T) {
	a, err := startApp()
	if err != nil {
		t.Fatal(err)
	}
	defer a.close()
	p := &play{site: &site{app: a, listen: a.addr()}, name: "own"}
	p.says(plain("Grip-Channel: $c", "on $c"))
	conn, err := net.Dial("tcp", a.addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "POST /own/?q HTTP/1.1\r\nhOST: x\r\nX-A: 2\r\nx-a: 1\r\nContent-Length: 4\r\n\r\nbodyGET /own/ HTTP/1.1\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n")
	want := "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nGrip-Channel: own\r\nContent-Length: 6\r\n\r\non own"
	got := make([]byte, 2*len(want))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != want+want {
		t.Errorf("%q, %v", got, err)
	}
	seen := p.seen()
	if len(seen) != 2 || string(seen[0].body) != "body" || string(seen[1].body) != "hi" || seen[0].get("X-A") != "1 | 2" || seen[0].fields[0][0] != "hOST" {
		t.Errorf("%+v", seen)
	}
}

func TestReadMessage_JoinsFramesAndShowsCloses(t *testing.T) {
	for sent, want := range map[string]string{
		"\x01\x02ab\x00\x00\x80\x01c":                 `text "abc"`,
		"\x82\x7e\x00\x80" + strings.Repeat("x", 128): "binary of 128 bytes",
		"\x88\x04\x0f\xa0ok":                          `close 4000 "ok"`,
		"\x88\x00":                                    `close ""`,
		"\x89\x01p":                                   `ping "p"`,
		"\x83\x00":                                    "",
		"\x81\x7f\x7f\xff\xff\xff\xff\xff\xff\xff":    "",
		"\x81\x05ab":                                  "",
	} {
		got, err := readMessage(bufio.NewReader(strings.NewReader(sent)))
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v; want %q", sent, got, err, want)
		}
	}
}

func TestClient_TellsACutFromAnEndAndAPeersWordsFromTheApps(t *testing.T) {
	for sent, want := range map[string]string{
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab":                                            `200 OK "ab" ended`,
		"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab":                                            `200 OK "ab" cut`,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n":                 `200 OK "ab" ended`,
		"HTTP/1.1 502 Bad\r\nContent-Type: application/problem+json\r\nContent-Length: 2\r\n\r\n{}": "502 Bad",
		"HTTP/1.1 502 Bad\r\nContent-Length: 22\r\n\r\nError while proxying x":                      "502 Bad",
		"HTTP/1.1 404 None\r\nContent-Length: 2\r\n\r\nno":                                          `404 None "no" ended`,
		"": "no answer, cut",
	} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go answerOnce(listener, sent)
		c := send(listener.Addr().String(), "GET / HTTP/1.1\r\nHost: x\r\n\r\n").over(moment)
		if got := c.String(); got != want {
			t.Errorf("%q: %s; want %s", sent, got, want)
		}
		c.close()
		listener.Close()
	}
}

func answerOnce(listener net.Listener, text string) {
	conn, err := listener.Accept()
	if err != nil {
		return
	}
	defer conn.Close()
	bufio.NewReader(conn).ReadString('\n')
	io.WriteString(conn, text)
	conn.(*net.TCPConn).CloseWrite()
	io.Copy(io.Discard, conn)
}
