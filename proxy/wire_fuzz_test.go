package proxy

import (
	"bufio"
	"bytes"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// ---- The targets.

// fuzzedRequests are the requests of the corpus that are small enough, and
// pairs of what is worth a pair.
func fuzzedRequests(f *testing.F, add func(sent []byte)) {
	path := filepath.Join("..", "testdata", "wire", "requests.txt")
	text, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	lets, sent := map[string]string{}, ""
	flush := func() {
		if sent != "" && len(sent) < 4*fuzzedHeaderBytes {
			add([]byte(sent))
		}
		sent = ""
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if name, value, ok := strings.Cut(strings.TrimPrefix(line, "let "), " = "); ok && strings.HasPrefix(line, "let ") {
			lets[`\<`+name+">"] = unescaped(value)
		}
		if piece, ok := strings.CutPrefix(line, "  | "); ok {
			for name, value := range lets {
				piece = strings.ReplaceAll(piece, name, "\x00"+name)
				piece = strings.ReplaceAll(piece, "\x00"+name, value)
			}
			sent += unescaped(piece)
		} else if line != "" && line[0] != ' ' {
			flush()
		}
	}
	flush()
}

var fuzzedEscapes = strings.NewReplacer(`\r`, "\r", `\n`, "\n", `\t`, "\t", `\\`, `\`, `\x00`, "\x00", `\x0b`, "\x0b", `\x20`, " ", `\x7f`, "\x7f", `\xff`, "\xff")

// unescaped takes the escapes that most seeds have; the others stand for
// themselves, which is as good a seed.
func unescaped(text string) string { return fuzzedEscapes.Replace(text) }

// cuts are the ways to read the same bytes.
func cuts(sent []byte, seed uint64) map[string]func() int {
	random := rand.New(rand.NewPCG(seed, 0))
	return map[string]func() int{
		"byte by byte": func() int { return 1 },
		"in bits":      func() int { return 1 + random.IntN(9) },
		"in pieces":    func() int { return 1 + random.IntN(len(sent)+1) },
	}
}

func atOnce() int { return 1 << 20 }

// FuzzRequests: whatever a client sends, and however it is cut, it is the same
// requests, and refused at the same one; and what the app gets is these
// requests, to a reader that knows nothing of ours and to net/http.
//
// For which fault bytes are refused may depend on the cut, where they have two:
// a line is judged when it is there, and a fault further on is seen only if it
// is there as well. That they are refused, and after which request, may not.
func FuzzRequests(f *testing.F) {
	server := fuzzedServer(f)
	fuzzedRequests(f, func(sent []byte) {
		f.Add(sent, uint64(len(sent)), false)
		f.Add(sent, uint64(len(sent)), true)
	})
	f.Fuzz(func(t *testing.T, sent []byte, seed uint64, stream bool) {
		whole := server.read(t, sent, stream, atOnce)
		for name, piece := range cuts(sent, seed) {
			got := server.read(t, sent, stream, piece)
			if got.String() != whole.String() {
				t.Fatalf("%q\n%s: %v\nwhole: %v", sent, name, got, whole)
			}
		}
		if got := readPlainly(t, whole.forwarded); !slices.Equal(got, whole.requests) {
			t.Fatalf("%q\nis read as %q\nthe app gets %q\nwhich is %q", sent, whole.requests, whole.forwarded, got)
		}
		compareRequests(t, "the app gets", whole.forwarded, whole.requests, true)
		compareRequests(t, "the client sends", sent, whole.requests, false)
	})
}

// compareRequests has net/http read the same bytes. Where it finds no fault it
// must find the same requests, all: every one that it would take for another is
// one that an app behind us could.
//
// It differs by intention and is not compared where
//   - a target has a malformed escape, which is the app's to judge; net/http
//     refuses it. Nor is anything behind it;
//   - an empty line stands before the first request line (RFC 9112 §2.2), which
//     its server does not take;
//   - in what clients send: net/http takes a bare LF, and more than one request
//     that is refused here, so that only what both have read is compared.
func compareRequests(t *testing.T, what string, sent []byte, want []readRequest, all bool) {
	t.Helper()
	reader := bufio.NewReader(bytes.NewReader(sent))
	for i, w := range want {
		if ahead, err := reader.Peek(2); err == nil && string(ahead) == "\r\n" {
			reader.Discard(2)
		}
		got, err := http.ReadRequest(reader)
		if err != nil {
			if all && !refusedEscape(w.target) {
				t.Fatalf("%s %q: net/http reads request %d as %v", what, sent, i, err)
			}
			return
		}
		body, err := io.ReadAll(got.Body)
		if err != nil {
			if all {
				t.Fatalf("%s %q: net/http reads the body of request %d as %v", what, sent, i, err)
			}
			return
		}
		g := readRequest{got.Method, got.RequestURI, got.Host, string(body)}
		if !all && got.URL.IsAbs() { // it is forwarded in origin form
			g.target = w.target
		}
		if !all && got.Host == "" { // HTTP/1.0; the app is told where the client came to
			g.host = w.host
		}
		if g != w {
			t.Fatalf("%s %q: request %d is %q, and to net/http %q", what, sent, i, w, g)
		}
	}
	if rest, _ := io.ReadAll(reader); all && len(rest) > 0 {
		t.Fatalf("%s %q: net/http has %q left", what, sent, rest)
	}
}

// refusedEscape reports whether net/http refuses the target for an escape.
func refusedEscape(target string) bool {
	for rest := target; ; {
		_, after, ok := strings.Cut(rest, "%")
		if !ok {
			return false
		}
		if _, err := strconv.ParseUint(after[:min(2, len(after))], 16, 8); err != nil || len(after) < 2 {
			return true
		}
		rest = after
	}
}

// FuzzPipeline: a request behind others is read as itself, or as no request:
// it is never part of one that was whole, and nothing is read behind a request
// that was refused or said it was the last.
func FuzzPipeline(f *testing.F) {
	server := fuzzedServer(f)
	fuzzedRequests(f, func(sent []byte) {
		f.Add(sent, uint64(len(sent)), false)
		f.Add(sent[:len(sent)-1], uint64(len(sent)), true)
	})
	const second = "DELETE /second HTTP/1.1\r\nHost: second.test\r\n\r\n"
	f.Fuzz(func(t *testing.T, first []byte, seed uint64, stream bool) {
		alone := server.read(t, first, stream, atOnce)
		both := append(bytes.Clone(first), second...)
		for name, piece := range cuts(both, seed) {
			got := server.read(t, both, stream, piece)
			want := alone
			switch {
			case alone.closes, alone.refused && !alone.cut: // nothing behind it is read
			case !alone.refused:
				want.requests = append(slices.Clone(want.requests), readRequest{method: "DELETE", target: "/second", host: "second.test"})
			case len(got.requests) < len(alone.requests) || !slices.Equal(got.requests[:len(alone.requests)], alone.requests):
				t.Fatalf("%q\nalone: %v\n%s, with a second one: %v", first, alone, name, got)
			default:
				continue // the second is the rest of one that was not whole
			}
			if !slices.Equal(got.requests, want.requests) || got.refused != want.refused || got.closes != want.closes {
				t.Fatalf("%q\nalone: %v\n%s, with a second one: %v\nwant %v", first, alone, name, got, want)
			}
		}
	})
}
