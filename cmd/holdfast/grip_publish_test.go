package main

import (
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// GRIP's form of publishing: what opens it, and what it answers.

func TestKeyring_TakesEachSpellingThatClientsSend(t *testing.T) {
	basic := func(pair string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(pair)) }
	plain, coded := newKeyring("the key"), newKeyring("base64:AP9z+/8=") // 00 ff 73 fb ff
	both := newKeyring("", "first", "base64:c2Vjb25k")                   // second
	for _, c := range []struct {
		name string
		ring keyring
		auth string
		want bool
	}{
		{"the text", plain, "Bearer the key", true},
		{"another scheme's case", plain, "bEARER the key", true},
		{"spaces around", plain, "Bearer   the key ", true},
		{"the text's base64", plain, "Bearer base64:dGhlIGtleQ==", true},
		{"less of it", plain, "Bearer the ke", false},
		{"more of it", plain, "Bearer the key2", false},
		{"another case", plain, "Bearer THE KEY", false},
		{"no scheme", plain, "the key", false},
		{"another scheme", plain, "Token the key", false},
		{"nothing", plain, "", false},
		{"no key", plain, "Bearer ", false},
		{"no key in base64", plain, "Bearer base64:", false},

		{"as configured", coded, "Bearer base64:AP9z+/8=", true},
		{"without padding", coded, "Bearer base64:AP9z+/8", true},
		{"the alphabet of URLs", coded, "Bearer base64:AP9z-_8=", true},
		{"a + that a URL made a space", coded, "Bearer base64:AP9z /8=", true},
		{"without the prefix", coded, "Bearer AP9z+/8=", true},
		{"the bytes", coded, "Bearer \x00\xff\x73\xfb\xff", true},
		{"other bytes", coded, "Bearer base64:AP9z+/4=", false},
		{"no base64", coded, "Bearer base64:!", false},

		{"the first", both, "Bearer first", true},
		{"the second, its bytes", both, "Bearer second", true},
		{"the second", both, "Bearer base64:c2Vjb25k", true},
		{"both", both, "Bearer first second", false},

		{"Basic, the password", plain, basic("me:the key"), true},
		{"Basic, the user", plain, basic("the key:"), true},
		{"Basic, the user and no colon", plain, basic("the key"), true},
		{"Basic, bytes", coded, basic("me:\x00\xff\x73\xfb\xff"), true},
		{"Basic, as configured", coded, basic("me:base64:AP9z+/8="), true},
		{"Basic, a wrong password beside the key", plain, basic("the key:x"), false},
		{"Basic, nothing", plain, basic(":"), false},
		{"Basic, no base64", plain, "Basic the key", false},
		{"Basic, empty", plain, "Basic ", false},

		{"no keys", newKeyring(), "Bearer ", false},
		{"no keys, Basic", newKeyring(""), basic(":"), false},
		{"an empty one in base64", newKeyring("base64:"), "Bearer base64:AA==", false},
	} {
		if got := c.ring.opens(c.auth, time.Unix(1800000000, 0)); got != c.want {
			t.Errorf("%s: %q opens: %v, want %v", c.name, c.auth, got, c.want)
		}
	}
}

func TestKeyring_TakesATokenThatAKeySignedAndNoOther(t *testing.T) {
	ring := newKeyring("first", "base64:AP9z+/8=")
	const bytes = "\x00\xff\x73\xfb\xff"
	good := `{"iss":"x","exp":1800003600}`
	for _, c := range []struct {
		name, token string
		want        bool
	}{
		{"a text", gripToken("first", hs256, good), true},
		{"bytes", gripToken(bytes, hs256, good), true},
		{"the base64 as it stands", gripToken("base64:AP9z+/8=", hs256, good), true},
		{"no type", gripToken("first", `{"alg":"HS256"}`, good), true},
		{"another issuer", gripToken("first", hs256, `{"iss":"","exp":1800003600}`), true},
		{"no issuer", gripToken("first", hs256, `{"exp":1800003600}`), true},
		{"other claims", gripToken("first", hs256, `{"exp":1800003600,"aud":["a"],"sub":"s","x":{"y":[1]}}`), true},
		{"an end with a fraction", gripToken("first", hs256, `{"exp":1800000000.5}`), true},
		{"59 s past", gripToken("first", hs256, `{"exp":1799999941}`), true},
		{"60 s past", gripToken("first", hs256, `{"exp":1799999940}`), false},
		{"long past", gripToken("first", hs256, `{"exp":0}`), false},
		{"before time", gripToken("first", hs256, `{"exp":-1800003600}`), false},
		{"no end", gripToken("first", hs256, `{"iss":"x"}`), false},
		{"an end that is null", gripToken("first", hs256, `{"exp":null}`), false},
		{"an end that is none", gripToken("first", hs256, `{"exp":"tomorrow"}`), false},
		{"an end beyond numbers", gripToken("first", hs256, `{"exp":1e999}`), false},
		{"not yet", gripToken("first", hs256, `{"exp":1800003600,"nbf":1800000061}`), false},
		{"nearly", gripToken("first", hs256, `{"exp":1800003600,"nbf":1800000060}`), true},
		{"another key", gripToken("second", hs256, good), false},
		{"no key", gripToken("", hs256, good), false},
		{"not signed", gripToken("", `{"alg":"none","typ":"JWT"}`, good), false},
		{"not signed, with no signature", strings.TrimRight(gripToken("", `{"alg":"none"}`, good), "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"), false},
		{"another hash", signedWith(sha512.New, "first", `{"alg":"HS512"}`, good), false},
		{"another hash, called the right one", signedWith(sha512.New, "first", hs256, good), false},
		{"the right hash, called another", gripToken("first", `{"alg":"HS512"}`, good), false},
		{"RS256", gripToken("first", `{"alg":"RS256"}`, good), false},
		{"ES256", gripToken("first", `{"alg":"ES256"}`, good), false},
		{"lower case", gripToken("first", `{"alg":"hs256"}`, good), false},
		{"no alg", gripToken("first", `{"typ":"JWT"}`, good), false},
		{"claims that are none", gripToken("first", hs256, `[]`), false},
		{"claims that are no JSON", gripToken("first", hs256, `{`), false},
		{"without its signature", gripToken("first", hs256, good)[:strings.LastIndexByte(gripToken("first", hs256, good), '.')+1], false},
		{"half", gripToken("first", hs256, good)[:40], false},
		{"twice", gripToken("first", hs256, good) + "." + gripToken("first", hs256, good), false},
		{"dots", "..", false},
	} {
		if got := ring.opens("Bearer "+c.token, time.Unix(1800000000, 0)); got != c.want {
			t.Errorf("%s: %s opens: %v, want %v", c.name, c.token, got, c.want)
		}
	}
}

func FuzzKeyring(f *testing.F) {
	for _, seed := range []string{"", "Bearer ", "Basic Og==", "Bearer " + gripToken("other", hs256, `{"exp":1800003600}`), "Bearer ..", "Bearer base64:!", "basic =", "Bearer a.b.c.d",
		"Bearer " + gripToken("other", `{"alg":{}}`, `{"exp":[]}`), "Bearer eyJhbGciOiJIUzI1NiJ9.e30."} {
		f.Add(seed)
	}
	ring := newKeyring("correct horse battery staple", "base64:AP9z+/9yYW5kb20=")
	f.Fuzz(func(t *testing.T, auth string) {
		if ring.opens(auth, time.Unix(1800000000, 0)) {
			t.Errorf("%q opens", auth)
		}
	})
}

// gripItems is a call in GRIP's form.
const gripItems = `{"items": [{"channel": "news", "ws-message": {"content": "an item"}}]}`

// doors is what each credential gets at each of the publish address's calls, in one configuration.
type doors struct {
	name, yaml string
	// opens are the statuses of GRIP's form (also /recover and /), and of all else, by the fields that are sent.
	opens map[string][2]int
}

func TestGripPublish_EachKeyOpensWhatItIsFor(t *testing.T) {
	t.Parallel()
	show := func(key string) string { return bearer + key + "\r\n" }
	sign := func(key string) string {
		return show(gripToken(key, hs256, fmt.Sprintf(`{"iss":"any","exp":%d}`, time.Now().Unix()+600)))
	}
	user := func(pair string) string {
		return "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(pair)) + "\r\n"
	}
	past := show(gripToken("grip-key", hs256, fmt.Sprintf(`{"exp":%d}`, time.Now().Unix()-3600)))
	for _, d := range []doors{
		{"no key", "publish: {listen: \"127.0.0.1:0\"}\n", map[string][2]int{
			"": {200, 200}, show("any"): {200, 200}, sign("any"): {200, 200}, user("a:b"): {200, 200},
			origin: {401, 401}, "Host: evil.example\r\n": {401, 401}, origin + show("any"): {401, 401},
		}},
		{"grip.key", "publish: {listen: \"127.0.0.1:0\"}\ngrip: {key: grip-key}\n", map[string][2]int{
			"": {401, 200}, show("any"): {401, 200}, sign("any"): {401, 200}, past: {401, 200},
			show("grip-key"): {200, 200}, sign("grip-key"): {200, 200}, user("me:grip-key"): {200, 200}, user("grip-key:"): {200, 200},
			// What a web page may have sent is refused where there is no key, and with one it is no web page.
			origin: {401, 401}, origin + show("grip-key"): {200, 401}, "Host: evil.example\r\n" + sign("grip-key"): {200, 401},
		}},
		{"grip.key in base64", "publish: {listen: \"127.0.0.1:0\"}\ngrip: {key: \"base64:AP9z+/8\"}\n", map[string][2]int{
			"": {401, 200}, show("base64:AP9z+/8"): {200, 200}, show("base64:AP9z /8="): {200, 200}, show("AP9z+/8"): {200, 200},
			sign("\x00\xff\x73\xfb\xff"): {200, 200}, sign("any"): {401, 200},
		}},
		{"publish.keys", "publish: {listen: \"127.0.0.1:0\", keys: [first, second]}\n", map[string][2]int{
			"": {401, 401}, show("first"): {200, 200}, show("second"): {200, 200}, sign("second"): {200, 401}, user("me:first"): {200, 401},
			sign("any"): {401, 401}, show("any"): {401, 401}, origin: {401, 401}, origin + show("first"): {200, 200},
		}},
		{"both", "publish: {listen: \"127.0.0.1:0\", keys: [first]}\ngrip: {key: grip-key}\n", map[string][2]int{
			"": {401, 401}, show("first"): {200, 200}, sign("first"): {200, 401}, show("grip-key"): {200, 401}, sign("grip-key"): {200, 401},
			user("me:grip-key"): {200, 401}, past: {401, 401}, origin + sign("grip-key"): {200, 401},
		}},
	} {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "config.yaml")
			text := "listen: \"127.0.0.1:0\"\nadmin: {listen: \"127.0.0.1:0\"}\n" + d.yaml + fmt.Sprintf(holdsLanes, freeAddress(t))
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			s := startHoldsFile(t, path)
			for fields, want := range d.opens {
				d.ask(t, s, "GRIP's form", "POST /publish", gripItems, fields, want[0])
				d.ask(t, s, "GRIP's form", "POST /publish/", gripItems, fields, want[0])
				d.ask(t, s, "GRIP's form", "POST /recover", "", fields, want[0])
				d.ask(t, s, "GRIP's form", "GET /", "", fields, want[0])
				for _, p := range publishPaths {
					d.ask(t, s, "our own", p.method+" "+p.path, p.body, fields, want[1])
				}
				// Items are GRIP's form wherever they stand, and there alone: nothing else in the body opens another door.
				d.ask(t, s, "both forms", "POST /publish", `{"channel": "news", "data": "x", "items": []}`, fields, want[0], 400)
			}
		})
	}
}

// ask makes a call that must be answered with one of these statuses.
func (d doors) ask(t *testing.T, s *holdsSite, form, what, body, fields string, want ...int) {
	t.Helper()
	host := ""
	if !strings.HasPrefix(fields, "Host: ") {
		host = "Host: " + s.publish + "\r\n"
	}
	answer := askRaw(t, s.publish, fmt.Sprintf("%s HTTP/1.1\r\n%s%sConnection: close\r\nContent-Length: %d\r\n\r\n%s", what, host, fields, len(body), body))
	refused := want[0] == 401
	for _, status := range want {
		if answer.code() == status && (status == 401) == refused && refused == answer.has("Holdfast-Reason", "unauthorized") {
			return
		}
	}
	t.Errorf("%s: %s %.40s %q: %d %.200s, want %d", form, what, body, fields, answer.code(), answer.body, want)
}

func TestGripPublish_AnswersAsItsClientsExpect(t *testing.T) {
	t.Parallel()
	s := startHoldsFile(t, writeConfig(t, holdsLanes, freeAddress(t)))
	const text, asJSON = "text/plain; charset=utf-8", "application/json"
	for accept, want := range map[string]string{
		"": text, "*/*": text, "text/plain": text, "text/*, application/json;q=0.9": text, "application/json, text/plain": text, "text/html": text,
		"application/json": asJSON, "APPLICATION/JSON; charset=utf-8": asJSON, "application/*": asJSON, "text/plain;q=0.5, application/json": asJSON,
		"application/json, */*;q=0.8": asJSON, "text/plain;q=0, */*": asJSON, "application/json;q=x": text, ",;,": text, "application/json;q=0": text, "application/json;q=NaN": text,
	} {
		answer := call(t, s.publish, "POST", "/publish/", "Content-Type: application/json\r\nAccept: "+accept+"\r\n", []byte(gripItems))
		body := map[string]string{text: "Published\n", asJSON: `{"message":"Published"}`}[want]
		if answer.code() != 200 || strings.Join(answer.get("Content-Type"), "|") != want || answer.body != body {
			t.Errorf("Accept %q: %d %v %q, want %s %q", accept, answer.code(), answer.get("Content-Type"), answer.body, want, body)
		}
	}
	if answer := call(t, s.publish, "POST", "/publish/", "", []byte(`{"items": []}`)); answer.code() != 200 || answer.body != "Published\n" {
		t.Errorf("no items: %d %q", answer.code(), answer.body)
	}
	var recovering struct{ Recovering *int }
	if wantJSON(t, call(t, s.publish, "POST", "/recover", "", nil), &recovering); recovering.Recovering == nil {
		t.Error("/recover does not say how many ask")
	}
	if answer := call(t, s.publish, "GET", "/", "", nil); answer.code() != 200 || !strings.Contains(answer.body, "POST /publish ") {
		t.Errorf("GET /: %d %s", answer.code(), answer.body)
	}
	for what, status := range map[string]int{"GET /subscriptions/items/": 404, "GET /subscriptions/stream/": 404, "GET /publish/": 405, "GET /recover": 405, "PUT /publish": 405} {
		method, path, _ := strings.Cut(what, " ")
		answer := call(t, s.publish, method, path, "", nil)
		if answer.code() != status || status == 405 && !answer.has("Allow", "POST") {
			t.Errorf("%s: %d %v, want %d", what, answer.code(), answer.get("Allow"), status)
		}
	}
}

func TestGripPublish_WhatIsWrongIsRefusedWithItsFieldAndNothingOfItReachesAnybody(t *testing.T) {
	t.Parallel()
	s, _ := startSigned(t, "")
	socket := openSocket(t, s.addr, "/ws")
	item := `{"channel": "news", "ws-message": {"content": "%s"}}`
	for _, wrong := range []struct {
		body   string
		status int
		names  string
	}{
		{`{"items": {}}`, 400, "items"},
		{`{"items": [{}]}`, 400, "items[0]"},
		{`{"items": [` + fmt.Sprintf(item, "first") + `, {"ws-message": {"content": "x"}}]}`, 400, "items[1]"},
		{`{"items": [` + fmt.Sprintf(item, "first") + `, {"channel": "a\nb", "ws-message": {"content": "x"}}]}`, 400, "items[1].channel"},
		{`{"items": [` + fmt.Sprintf(item, "first") + `, ` + fmt.Sprintf(item, tooLarge) + `]}`, 413, "items[1]"},
		{`{"items": [` + fmt.Sprintf(item, strings.Repeat("x", 9<<20)) + `]}`, 413, ""},
	} {
		answer := call(t, s.publish, "POST", "/publish/", "Accept: application/json\r\n", []byte(wrong.body))
		var problem struct{ Reason, Detail string }
		reason := map[int]string{400: "bad_request", 413: "body_too_large"}[wrong.status]
		if err := json.Unmarshal([]byte(answer.body), &problem); err != nil || answer.code() != wrong.status || problem.Reason != reason || !strings.Contains(problem.Detail, wrong.names) {
			t.Errorf("%.100q: %d %.300s (%v), want %d %s that names %s", wrong.body, answer.code(), answer.body, err, wrong.status, reason, wrong.names)
		}
	}
	if answer := call(t, s.publish, "POST", "/publish/", "", []byte(gripItems)); answer.code() != 200 {
		t.Fatalf("%d %s", answer.code(), answer.body)
	}
	socket.want("an item") // the first that it gets
}

func TestGripPublish_AReloadChangesTheKeyAndASocketFileIsNoWayRoundIt(t *testing.T) {
	t.Parallel()
	dir, w := t.TempDir(), startWitness(t)
	path := filepath.Join(dir, "config.yaml")
	file := func(key string) string {
		return "listen: \"127.0.0.1:0\"\nadmin: {listen: \"127.0.0.1:0\"}\npublish: {listen: \"unix:" + dir + "/publish.sock\"}\n" + fmt.Sprintf(signLanes, w.ln.Addr()) + "grip: {key: \"" + key + "\"}\n"
	}
	replaceFile(t, path, file("old"))
	s := startHoldsFile(t, path)
	send := func(key string) int {
		t.Helper()
		c, err := newControl("unix:"+dir+"/publish.sock", key, "", new(clientTLS), false)
		if err != nil {
			t.Fatal(err)
		}
		status, _, err := c.send("POST", "/publish/", []byte(gripItems))
		if err != nil {
			t.Fatal(err)
		}
		return status
	}
	for _, step := range []struct {
		key  string
		want map[string]int
	}{
		{"old", map[string]int{"": 401, "old": 200, "new": 401}},
		{"new", map[string]int{"": 401, "old": 401, "new": 200}},
		{"", map[string]int{"": 200, "old": 200}},
	} {
		replaceFile(t, path, file(step.key))
		if _, err := s.reload(); err != nil {
			t.Fatal(err)
		}
		for key, want := range step.want {
			if got := send(key); got != want {
				t.Errorf("with the key %q in force, %q is answered with %d, want %d", step.key, key, got, want)
			}
		}
	}
}

func TestGripPublish_KeysAndTokensAreToldNowhere(t *testing.T) {
	t.Parallel()
	s := startSecrets(t, secretsBase, secretsLanes)
	key := secretMark + "-grip-key"
	told := make(map[string]string)
	for name, shown := range map[string]string{
		"the key": "Bearer " + key, "a wrong one": "Bearer " + key + "x", "as a user": "Basic " + base64.StdEncoding.EncodeToString([]byte(key+":")),
		"a token": "Bearer " + gripToken(key, hs256, fmt.Sprintf(`{"exp":%d}`, time.Now().Unix()+60)) + "", "a token that is none": "Bearer " + secretMark + "." + secretMark + "." + secretMark,
		"a token with it": "Bearer " + gripToken("x", hs256, `{"iss":"`+secretMark+`"}`), "no base64": "Bearer base64:" + secretMark + "!",
	} {
		for _, body := range []string{gripItems, `{"items": [{}]}`, `{"items": 1}`} {
			answer := call(t, s.publish, "POST", "/publish/", "Authorization: "+shown+"\r\n", []byte(body))
			told[name+" "+body] = fmt.Sprint(answer.fields) + answer.body
			if answer.code() == 401 && strings.Contains(answer.body, "ey") && strings.Contains(answer.body, "eyJ") {
				t.Errorf("%s: a token is told: %s", name, answer.body)
			}
		}
	}
	if n := len(told); n != 21 {
		t.Fatalf("%d answers", n)
	}
	s.wantUntold(told)
	if log := s.log.String(); strings.Contains(log, "eyJ") {
		t.Error("the log has a token")
	}
}
