package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// What an app is told of GRIP, over the wire: the signature that it checks,
// and that nobody but Holdfast tells it.

// witness is an app that answers with the request that it was sent, and
// counts; below /ws it approves sockets.
type witness struct {
	ln   net.Listener
	seen atomic.Int64
}

func startWitness(t *testing.T) *witness {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &witness{ln: ln}
	server := &http.Server{Handler: w}
	go server.Serve(ln)
	t.Cleanup(func() { server.Close() })
	return w
}

func (w *witness) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodOptions { // Holdfast asks whether it is there
		return
	}
	w.seen.Add(1)
	io.Copy(io.Discard, r.Body)
	if r.URL.Path == "/ws" {
		out.Header().Set("M0-Hold", "websocket")
		out.Header().Set("M0-Channel", "news")
		return
	}
	r.Header.Write(out)
}

// signLanes has a lane of each kind, and two routes that are answered here.
const signLanes = `
upstreams:
  app:  {targets: ["http://%[1]s"]}
  away: {targets: ["http://%[1]s"]}
lanes:
  web:     {upstream: app, slots: 4}
  streams: {upstream: away, kind: stream, slots: 4}
routes:
  - {match: "/robots.txt", respond: {body: "User-agent: *\n"}}
  - {match: "POST /robots.txt", respond: {body: "posted\n"}}
  - {match: "/rt/", lane: streams}
  - {match: "/", lane: web}
`

// startSigned serves the witness with what the configuration says besides.
func startSigned(t *testing.T, yaml string) (*holdsSite, *witness) {
	t.Helper()
	w := startWitness(t)
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(holdsBase+fmt.Sprintf(signLanes, w.ln.Addr())+yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startHoldsFile(t, path)
	s.mustBecomeReady()
	return s, w
}

// changeSigned puts what the configuration says besides in force anew.
func (w *witness) changeSigned(s *holdsSite, yaml string) {
	s.t.Helper()
	replaceFile(s.t, s.path, holdsBase+fmt.Sprintf(signLanes, w.ln.Addr())+yaml)
	if _, err := s.reload(); err != nil {
		s.t.Fatal(err)
	}
}

// told asks for a path of the witness and gives the lines of that name that it was sent.
func (s *holdsSite) told(request, name string) (values []string) {
	s.t.Helper()
	answer := askRaw(s.t, s.addr, request+"Host: localhost\r\nConnection: close\r\n\r\n")
	if answer.code() != 200 {
		s.t.Fatalf("%q: %s %s", request, answer.status, answer.body)
	}
	for line := range strings.Lines(answer.body) {
		if value, ok := strings.CutPrefix(line, name+": "); ok {
			values = append(values, strings.TrimRight(value, "\r\n"))
		}
	}
	return values
}

// gripToken makes a token by hand: what is tested does not make what it is tested with.
func gripToken(key, header, claims string) string { return signedWith(sha256.New, key, header, claims) }

func signedWith(sum func() hash.Hash, key, header, claims string) string {
	signed := base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + base64.RawURLEncoding.EncodeToString([]byte(claims))
	mac := hmac.New(sum, []byte(key))
	mac.Write([]byte(signed))
	return signed + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// hs256 is the header of a token with that signature.
const hs256 = `{"alg":"HS256","typ":"JWT"}`

// wantSignature holds a Grip-Sig to its key, issuer and end, as an app would.
func wantSignature(t *testing.T, token, key, iss string) {
	t.Helper()
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		t.Fatalf("%q is no token", token)
	}
	header, _ := base64.RawURLEncoding.DecodeString(parts[0])
	claims, _ := base64.RawURLEncoding.DecodeString(parts[1])
	if token != gripToken(key, hs256, string(claims)) || string(header) != hs256 {
		t.Errorf("%q with the header %s is not signed with the key", token, header)
	}
	var said map[string]any
	if err := json.Unmarshal(claims, &said); err != nil || len(said) != 2 || said["iss"] != iss {
		t.Errorf("the claims are %s (%v), want iss %s and exp", claims, err, iss)
	}
	exp, _ := said["exp"].(float64)
	if life := int64(exp) - time.Now().Unix(); exp != float64(int64(exp)) || life > 3600 || life < 3600-60-10 {
		t.Errorf("%s is good for %d s more, want an hour less a minute at most", claims, life)
	}
}

const (
	askUpgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
	forgedGRIP = "Grip-Sig: forged\r\ngrip-feature: forged\r\nGRIP-Last: forged\r\nGrip_Sig: forged\r\nMeta-User: forged\r\n"
	features   = "status, link:next, filter:skip-self, filter:skip-users, filter:require-sub, filter:build-id, filter:var-subst"
)

func TestGripSign_EveryRequestToTheAppIsSignedByUsAlone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ yaml, key, iss string }{
		"a text":         {`grip: {key: "the key"}`, "the key", "holdfast"},
		"base64":         {`grip: {key: "base64:AP9z-_8", iss: "my proxy"}`, "\x00\xff\x73\xfb\xff", "my proxy"},
		"GRIP alone":     {"holds: {dialects: [grip]}\ngrip: {key: k}", "k", "holdfast"},
		"base64, padded": {`grip: {key: "base64:AP9z+/8="}`, "\x00\xff\x73\xfb\xff", "holdfast"},
	} {
		s, _ := startSigned(t, c.yaml+"\n")
		for _, request := range []string{
			"GET / HTTP/1.1\r\n", "POST /x?y HTTP/1.1\r\nContent-Length: 0\r\n", "DELETE / HTTP/1.1\r\n", "GET /rt/x HTTP/1.1\r\n", "PUT /rt/ HTTP/1.1\r\nContent-Length: 0\r\n",
			"GET / HTTP/1.1\r\n" + askUpgrade, "GET /rt/ HTTP/1.1\r\n" + askUpgrade,
		} {
			for _, forged := range []string{"", forgedGRIP} {
				sig := s.told(request+forged, "Grip-Sig")
				if len(sig) != 1 {
					t.Fatalf("%s: %q%q: the app was told %q", name, request, forged, sig)
				}
				wantSignature(t, sig[0], c.key, c.iss)
				for field, want := range map[string]string{"Grip-Feature": features, "Grip-Last": "", "Meta-User": "", "Grip_Sig": ""} {
					if told := s.told(request+forged, field); strings.Join(told, "|") != want {
						t.Errorf("%s: %q%q: the app was told %s %q, want %q", name, request, forged, field, told, want)
					}
				}
			}
		}
	}
}

func TestGripSign_WithoutTheDialectNothingOfGRIPIsTold(t *testing.T) {
	t.Parallel()
	for _, dialects := range []string{"[m0]", "[]"} {
		s, _ := startSigned(t, "holds: {dialects: "+dialects+"}\ngrip: {key: k}\n")
		for _, path := range []string{"/", "/rt/"} {
			for _, field := range []string{"Grip-Sig", "Grip-Feature"} {
				if told := s.told("GET "+path+" HTTP/1.1\r\n"+forgedGRIP, field); told != nil {
					t.Errorf("dialects %s: the app was told %s %q", dialects, field, told)
				}
			}
		}
	}
}

func TestGripSign_AReloadSignsWithTheNewKeyAndWithoutOneAsBefore(t *testing.T) {
	t.Parallel()
	s, w := startSigned(t, "")
	sig := func() string {
		t.Helper()
		told := s.told("GET / HTTP/1.1\r\n", "Grip-Sig")
		if len(told) != 1 {
			t.Fatalf("the app was told %q", told)
		}
		return told[0]
	}
	// claimed is what a token says, which two of the same minute agree about.
	claimed := func(token string) string { return token[:strings.LastIndexByte(token, '.')] }
	for {
		first := sig()
		w.changeSigned(s, `grip: {key: "first"}`+"\n")
		wantSignature(t, sig(), "first", "holdfast")
		w.changeSigned(s, `grip: {key: "second", iss: other}`+"\n")
		wantSignature(t, sig(), "second", "other")
		w.changeSigned(s, "holds: {dialects: [m0]}\n")
		if told := s.told("GET / HTTP/1.1\r\n", "Grip-Sig"); told != nil {
			t.Errorf("the app was told %q", told)
		}
		w.changeSigned(s, "")
		again := sig()
		if claimed(again) != claimed(first) {
			continue // the minute has ended meanwhile
		}
		if again != first {
			t.Errorf("%s, and %s before: the process's own key is another one", again, first)
		}
		for _, key := range []string{"", "first", "second", "holdfast", strings.Repeat("\x00", 32)} {
			if claims, _ := base64.RawURLEncoding.DecodeString(strings.Split(again, ".")[1]); again == gripToken(key, hs256, string(claims)) {
				t.Errorf("it is signed with %q", key)
			}
		}
		return
	}
}

func TestGripSign_AClientCannotSpeakAsHoldfastToTheApp(t *testing.T) {
	t.Parallel()
	s, w := startSigned(t, "grip: {key: k}\n")
	post := func(method, path, fields string) *rawAnswer {
		return askRaw(t, s.addr, method+" "+path+" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 6\r\n"+fields+"\r\nOPEN\r\n")
	}
	const own = "Content-Type: application/websocket-events\r\n"
	for _, fields := range []string{
		own, "content-type: Application/WebSocket-Events; charset=utf-8\r\n", "Content-Type: \xa0application/websocket-events\r\n",
		"Content-Type: text/plain\r\n" + own, own + "Content-Type: text/plain\r\n", own + "Connection-Id: 1\r\nAccept: application/websocket-events\r\nGrip-Sig: x\r\n",
		own + "Expect: 100-continue\r\n",
	} {
		for _, path := range []string{"/", "/a?b", "/rt/", "/ws"} {
			for _, method := range []string{"POST", "PUT", "GET"} {
				answer := post(method, path, fields)
				if answer.code() != 403 || !answer.has("Holdfast-Reason", "forbidden") || !answer.has("Content-Type", "application/problem+json") {
					t.Errorf("%s %s %q: %d %s, want 403 forbidden", method, path, fields, answer.code(), answer.body)
				}
			}
		}
	}
	if n := w.seen.Load(); n != 0 {
		t.Errorf("the app has seen %d of them", n)
	}
	// What no app is asked for, and what is not that type, are as ever.
	if answer := post("POST", "/robots.txt", own); answer.code() != 200 {
		t.Errorf("a fixed answer: %d", answer.code())
	}
	if answer := post("POST", "/nowhere-but-here", "Content-Type: text/plain; x=application/websocket-events\r\n"); answer.code() != 200 {
		t.Errorf("another type: %d", answer.code())
	}
	w.changeSigned(s, "holds: {dialects: [m0]}\n")
	for _, path := range []string{"/", "/rt/"} {
		if answer := post("POST", path, own); answer.code() != 200 {
			t.Errorf("%s without the dialect: %d", path, answer.code())
		}
	}
}

func TestGripSign_ARouteSaysHowItsSocketsAreSpokenToTheApp(t *testing.T) {
	t.Parallel()
	lanes := strings.Replace(signLanes, `{match: "/", lane: web}`, `{match: "/", lane: web}
  - {match: "/yes/", lane: web, over_http: true}
  - {match: "/no/", lane: web, over_http: false}`, 1)
	for dialects, want := range map[string]string{
		"[grip]":     "/ true, /no/ false, /robots.txt false, /rt/ false, /yes/ true",
		"[m0, grip]": "/ false, /no/ false, /robots.txt false, /rt/ false, /yes/ true",
	} {
		s := startHoldsFile(t, writeConfig(t, lanes+"holds: {dialects: "+dialects+"}\n", freeAddress(t)))
		over := make(map[string]bool)
		for _, route := range s.routes(s.wiring.Load()) {
			over[route.Match] = route.OverHTTP
		}
		var got []string
		for _, match := range []string{"/", "/no/", "/robots.txt", "/rt/", "/yes/"} {
			got = append(got, fmt.Sprintf("%s %v", match, over[match]))
		}
		if text := strings.Join(got, ", "); text != want {
			t.Errorf("dialects %s: %s, want %s", dialects, text, want)
		}
	}
}
