package proxy

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/big"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/internal/http1"
)

// The grants of Python's hmac, hashlib and base64.
const (
	presentKey   = "present key"
	previousKey  = "previous key"
	grantSession = "k2f0mz8w1q9x4v7b6n5c3l0j2h8g4d1s"
	grantExpires = 1800000000

	openGrant     = "v1.8f9a02d3.1800000000.news.-.RFKgAZSAAoo6BQ17nCRldFSZYv8YSXwvXEJFp6BrDmM"
	boundGrant    = "v1.8f9a02d3.1800000000.user-42:inbox_A.FNgTRRqUs0iwFKprkd4cpw.0tFJ9442ZXrvevofeu4ht7_AJgWBEuPkfNb8iju3Juc"
	previousGrant = "v1.6cd64654.1800000000.news.-.zqhMIN0FedBPEZd7HAeAjZsXl2IR91X8eQEbPneSl48"
)

var beforeExpiry = time.Unix(grantExpires-1, 0)

func grantOf(keys ...string) *Grant {
	g := &Grant{Cookie: "sessionid"}
	for _, key := range keys {
		g.Keys = append(g.Keys, []byte(key))
	}
	return g
}

// cookies are the fields of a request with these Cookie fields among others.
func cookies(values ...string) (fields []field) {
	add := func(name, value string) {
		fields = append(fields, field{http1.Field{Name: []byte(name), Value: []byte(value)}, kindOf([]byte(name))})
	}
	add("Host", "a.test")
	for i, value := range values {
		add([...]string{"Cookie", "cookie", "COOKIE"}[i%3], value)
	}
	add("X-Cookie", "sessionid=other")
	return fields
}

// signGrant signs what comes before the last dot.
func signGrant(key, signed string) string {
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(signed))
	return signed + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

func kidOf(key string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(key)))[:8] }

func wantGrant(t *testing.T, g *Grant, token string, fields []field, now time.Time, channel string, want error) {
	t.Helper()
	if got, err := g.verify(token, fields, now); got != channel || err != want {
		t.Errorf("%q: %q, %v\nwant %q, %v", token, got, err, channel, want)
	}
}

// ---- The token.

func TestGrant_WhatPythonSignedOpensItsChannel(t *testing.T) {
	for _, v := range []struct {
		key, session, channel string
		expires               int64
		token                 string
	}{
		{presentKey, "", "news", grantExpires, openGrant},
		{presentKey, grantSession, "user-42:inbox_A", grantExpires, boundGrant},
		{strings.Repeat("\x00\xff", 50), "eyJ1IjoxfQ.ZxYw_-a.b-c", strings.Repeat("Z", 64), math.MaxInt64, // a key longer than a block
			"v1.4d5fd5b9.9223372036854775807." + strings.Repeat("Z", 64) + ".ewZNwUe5bNvkWJIwKVjJAg.8aqKE1Gt_N6cH-IRD7E7DwpsqG3OtGVcREpNsoseuVU"},
		{"cl\u00e9", "caf\u00e9", "-_:09azAZ", 1800000001,
			"v1.51cbcf30.1800000001.-_:09azAZ.hQ99xDkQ_4kPiHnA7Sb-aQ.HjZdduKJOZzeP80HH5JS1KO5njvsEacidX3VVOtuO30"},
	} {
		wantGrant(t, grantOf(v.key), v.token, cookies("a=b; sessionid="+v.session), time.Unix(v.expires-1, 0), v.channel, nil)
	}
}

// The Python client is held to the same list.
func TestGrant_WhatThePythonClientIssuesOpensItsChannel(t *testing.T) {
	text, err := os.ReadFile("../clients/python/tests/grant_vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []struct {
		Key, Channel, Token string
		Session             *string
		Exp                 int64
	}
	if err := json.Unmarshal(text, &vectors); err != nil || len(vectors) == 0 {
		t.Fatalf("%d vectors, %v", len(vectors), err)
	}
	for _, v := range vectors {
		before, fields, want, others := time.Unix(v.Exp-1, 0), cookies(), v.Channel, error(nil)
		if v.Session != nil {
			fields, want, others = cookies("sessionid="+*v.Session), "", errGrantSession
		}
		g := grantOf(presentKey, v.Key)
		wantGrant(t, g, v.Token, fields, before, v.Channel, nil)
		wantGrant(t, g, v.Token, cookies("sessionid="+grantSession), before, want, others)
		wantGrant(t, g, v.Token, fields, time.Unix(v.Exp, 0), "", errGrantExpired)
	}
}

func TestGrant_OfThePreviousKeyIsGoodWhileTheKeyIsKept(t *testing.T) {
	for _, token := range []string{openGrant, previousGrant} {
		wantGrant(t, grantOf(presentKey, previousKey), token, nil, beforeExpiry, "news", nil)
	}
	wantGrant(t, grantOf(presentKey), previousGrant, nil, beforeExpiry, "", errGrantUnknownKey)
}

// The first 32 bits of both keys' SHA-256 are the same.
func TestGrant_TwoKeysMayHaveOneID(t *testing.T) {
	g := grantOf("key 5979", "key 77859")
	for _, token := range []string{
		"v1.72dfe4a0.1800000000.news.-.I3GBY_HCnjTKRJtGpWTLOfvMueZCS_kYvjJMnUEGYig",
		"v1.72dfe4a0.1800000000.news.-.NzF9tbeY4JmgCkBRklkd15nge-X9ain_S-8zHO9ORrw",
	} {
		wantGrant(t, g, token, nil, beforeExpiry, "news", nil)
	}
	wantGrant(t, g, signGrant("another", "v1.72dfe4a0.1800000000.news.-"), nil, beforeExpiry, "", errGrantSignature)
}

func TestGrant_AnEmptyKeySignsNothing(t *testing.T) {
	forged := signGrant("", "v1."+kidOf("")+".1800000000.news.-")
	wantGrant(t, grantOf(presentKey, ""), forged, nil, beforeExpiry, "", errGrantUnknownKey)
	wantGrant(t, grantOf(), openGrant, nil, beforeExpiry, "", errGrantUnknownKey)
}

func TestGrant_WithOneByteOtherMoreOrLessIsRefused(t *testing.T) {
	g, fields := grantOf(presentKey, previousKey), cookies("sessionid="+grantSession)
	for _, token := range []string{openGrant, boundGrant, previousGrant} {
		if _, err := g.verify(token, fields, beforeExpiry); err != nil {
			t.Fatal(err)
		}
		refused := func(altered string) {
			t.Helper()
			if channel, err := g.verify(altered, fields, beforeExpiry); err == nil || channel != "" {
				t.Errorf("%q opens %q, %v", altered, channel, err)
			}
		}
		for i := range len(token) + 1 {
			refused(token[:i] + "\x00" + token[i:])
			for b := 1; b < 256; b++ {
				refused(token[:i] + string([]byte{byte(b)}) + token[i:])
				if i < len(token) && byte(b) != token[i] {
					refused(token[:i] + string([]byte{byte(b)}) + token[i+1:])
				}
			}
			if i < len(token) {
				refused(token[:i])
				refused(token[:i] + token[i+1:])
				refused(token[i+1:])
			}
		}
	}
}

// Every one of these is signed well.
func TestGrant_ThatIsMalformedIsRefusedHoweverItIsSigned(t *testing.T) {
	g, fields := grantOf(presentKey), cookies("sessionid="+grantSession)
	kid := kidOf(presentKey)
	for _, signed := range []string{
		"", "v1", "v1..", "v1...", "v1....",
		"v2." + kid + ".1800000000.news.-", "V1." + kid + ".1800000000.news.-", "." + kid + ".1800000000.news.-", "v1 ." + kid + ".1800000000.news.-",
		"v1." + strings.ToUpper(kid) + ".1800000000.news.-", "v1." + kid[:7] + ".1800000000.news.-", "v1." + kid + "0.1800000000.news.-", "v1.8f9a02dg.1800000000.news.-",
		"v1." + kid + "..news.-", "v1." + kid + ".+1800000000.news.-", "v1." + kid + ".-1.news.-", "v1." + kid + ".01800000000.news.-", "v1." + kid + ".00.news.-",
		"v1." + kid + ".1800000000 .news.-", "v1." + kid + ".1_800_000_000.news.-", "v1." + kid + ".0x6b49d200.news.-", "v1." + kid + ".18e8.news.-",
		"v1." + kid + ".\u0661.news.-", "v1." + kid + ".9223372036854775808.news.-", "v1." + kid + "." + strings.Repeat("9", 100) + ".news.-",
		"v1." + kid + ".1800000000..-", "v1." + kid + ".1800000000." + strings.Repeat("a", 65) + ".-", "v1." + kid + ".1800000000.a b.-",
		"v1." + kid + ".1800000000.a,b.-", "v1." + kid + ".1800000000.a/b.-", "v1." + kid + ".1800000000.a%41.-", "v1." + kid + ".1800000000.caf\u00e9.-",
		"v1." + kid + ".1800000000.a\x00.-", "v1." + kid + ".1800000000.a\n.-", "v1." + kid + ".1800000000.a.b.-", "v1." + kid + ".1800000000.a@.-", "v1." + kid + ".1800000000.a[.-",
		"v1." + kid + ".1800000000.news", "v1." + kid + ".1800000000.news.", "v1." + kid + ".1800000000.news.-.-", "v1." + kid + ".1800000000.news.--",
		"v1." + kid + ".1800000000.news.FNgTRRqUs0iwFKprkd4cpw==", "v1." + kid + ".1800000000.news.FNgTRRqUs0iwFKprkd4cp", "v1." + kid + ".1800000000.news.FNgTRRqUs0iwFKprkd4cpx", // bits that are not used
		"v1." + kid + ".1800000000.news.FNgTRRqUs0iwFKprkd4c\npw", "v1." + kid + ".1800000000.news.\r\nFNgTRRqUs0iwFKprkd4c", "v1." + kid + ".1800000000.news.FNgTRRqUs0iwFKprkd4cpwA", "v1." + kid + ".1800000000.news.FNgTRRqUs0iwFKprkd4+pw",
	} {
		wantGrant(t, g, signGrant(presentKey, signed), fields, beforeExpiry, "", errGrantMalformed)
	}
	for _, token := range []string{"", ".", ".....", "......", strings.Repeat(".", 16<<10),
		openGrant + "=", openGrant + ".", openGrant + "\n", " " + openGrant, strings.TrimSuffix(openGrant, "M") + "N", strings.TrimSuffix(openGrant, "M") + "\n",
		strings.Replace(openGrant, ".", ",", 1), strings.Replace(boundGrant, "_AJ", "/AJ", 1), openGrant[:strings.LastIndexByte(openGrant, '.')]} {
		wantGrant(t, g, token, fields, beforeExpiry, "", errGrantMalformed)
	}
}

func TestGrant_ExpiresAtItsSecondAndNotAMomentEarlier(t *testing.T) {
	g := grantOf(presentKey)
	at := time.Unix(grantExpires, 0)
	wantGrant(t, g, openGrant, nil, time.Unix(0, 0), "news", nil)
	wantGrant(t, g, openGrant, nil, at.Add(-1), "news", nil)
	wantGrant(t, g, openGrant, nil, at, "", errGrantExpired)
	wantGrant(t, g, openGrant, nil, at.Add(1), "", errGrantExpired)
	wantGrant(t, g, openGrant, nil, at.AddDate(100, 0, 0), "", errGrantExpired)
	wantGrant(t, g, signGrant(presentKey, "v1."+kidOf(presentKey)+".0.news.-"), nil, beforeExpiry, "", errGrantExpired)
}

// One fault after the other is mended; what is said is the next.
func TestGrant_TheFirstFaultInOrderIsTheOneThatIsSaid(t *testing.T) {
	g := grantOf(presentKey)
	late, fields := time.Unix(grantExpires, 0), cookies("other=x")
	bound := ".1800000000.news.FNgTRRqUs0iwFKprkd4cpw"
	wantGrant(t, g, signGrant("another", "v1."+kidOf("another")+bound+"=="), fields, late, "", errGrantMalformed)
	wantGrant(t, g, signGrant("a third", "v1."+kidOf("another")+bound), fields, late, "", errGrantUnknownKey)
	wantGrant(t, g, signGrant("a third", "v1."+kidOf(presentKey)+bound), fields, late, "", errGrantSignature)
	wantGrant(t, g, signGrant(presentKey, "v1."+kidOf(presentKey)+bound), fields, late, "", errGrantExpired)
	fields = cookies("sessionid=stolen")
	wantGrant(t, g, signGrant(presentKey, "v1."+kidOf(presentKey)+bound), fields, late, "", errGrantExpired)
	fields = cookies("other=x")
	wantGrant(t, g, signGrant(presentKey, "v1."+kidOf(presentKey)+bound), fields, beforeExpiry, "", errGrantNoSession)
	fields = cookies("sessionid=stolen")
	wantGrant(t, g, signGrant(presentKey, "v1."+kidOf(presentKey)+bound), fields, beforeExpiry, "", errGrantSession)
	fields = cookies("sessionid=" + grantSession)
	wantGrant(t, g, signGrant(presentKey, "v1."+kidOf(presentKey)+bound), fields, beforeExpiry, "news", nil)
}

// ---- The session.

func TestGrant_BoundToASessionIsForItsCookieAlone(t *testing.T) {
	for _, c := range []struct {
		fields []field
		want   error
	}{
		{cookies("sessionid=" + grantSession), nil},
		{cookies("csrftoken=x; sessionid=" + grantSession + "; theme=dark"), nil},
		{cookies("csrftoken=x", "sessionid="+grantSession), nil},
		{cookies(`sessionid="` + grantSession + `"`), nil},
		{nil, errGrantNoSession},
		{cookies(), errGrantNoSession},
		{cookies("Sessionid=" + grantSession), errGrantNoSession},
		{cookies("xsessionid=" + grantSession), errGrantNoSession},
		{cookies("sessionid=", "sessionid2="+grantSession), errGrantNoSession},
		{cookies("sessionid=" + grantSession[1:]), errGrantSession},
		{cookies("sessionid=" + grantSession + "x"), errGrantSession},
		{cookies("sessionid=" + strings.ToUpper(grantSession)), errGrantSession},
	} {
		channel := ""
		if c.want == nil {
			channel = "user-42:inbox_A"
		}
		wantGrant(t, grantOf(presentKey), boundGrant, c.fields, beforeExpiry, channel, c.want)
		wantGrant(t, grantOf(presentKey), openGrant, c.fields, beforeExpiry, "news", nil)
	}
}

// Whoever signs for a visitor without a session binds to the hash of nothing.
func TestGrant_BoundToAnEmptyCookieIsForNobody(t *testing.T) {
	const token = "v1.8254c329.1.a.47DEQpj8HBSa-_TImW-5JA.FV0F5JDUoygTjzIxqDTCUsAnO-2SXsQ2QifSkAiPCTA"
	for _, fields := range [][]field{cookies(), cookies("sessionid="), cookies(`sessionid=""`)} {
		wantGrant(t, grantOf("k"), token, fields, time.Unix(0, 0), "", errGrantNoSession)
	}
}

func TestGrant_WithoutASessionCookieToLookAtABoundOneIsRefused(t *testing.T) {
	g := &Grant{Keys: [][]byte{[]byte(presentKey)}}
	fields := cookies("="+grantSession, "sessionid="+grantSession)
	wantGrant(t, g, boundGrant, fields, beforeExpiry, "", errGrantNoSession)
	wantGrant(t, g, openGrant, fields, beforeExpiry, "news", nil)
}

func TestCookie_IsReadAsAnAppReadsIt(t *testing.T) {
	for _, c := range []struct {
		fields []string
		want   []string
	}{
		{nil, nil},
		{[]string{""}, nil},
		{[]string{"a"}, nil},
		{[]string{"a; b=c"}, nil},
		{[]string{"a="}, []string{""}},
		{[]string{"a=1"}, []string{"1"}},
		{[]string{"a=1=2=="}, []string{"1=2=="}},
		{[]string{"b=2; a=1; c=3"}, []string{"1"}},
		{[]string{"b=2;a=1;c=3"}, []string{"1"}},
		{[]string{" a =\t1 ;"}, []string{"1"}},
		{[]string{";;a=1"}, []string{"1"}},
		{[]string{"a=1; a=2", "a=3"}, []string{"1", "2", "3"}},
		{[]string{"b=2", "a=1", "a=3"}, []string{"1", "3"}},
		{[]string{"A=2; aa=3; b=a=4; a=1"}, []string{"1"}},
		{[]string{`a="1"`}, []string{"1"}},
		{[]string{`a=""`}, []string{""}},
		{[]string{`a="`}, []string{`"`}},
		{[]string{`a="1`}, []string{`"1`}},
		{[]string{`a=""1""`}, []string{`"1"`}},
		{[]string{`b="x; a=1"`}, []string{`1"`}}, // no quote holds a semicolon
		{[]string{"a=1 2,3"}, []string{"1 2,3"}},
		{[]string{"a=%31+"}, []string{"%31+"}}, // cookies have no escapes
		{[]string{"a=caf\xc3\xa9"}, []string{"caf\u00e9"}},
	} {
		if got := slices.Collect(cookieValues(cookies(c.fields...), "a")); !slices.Equal(got, c.want) {
			t.Errorf("%q: %q; want %q", c.fields, got, c.want)
		}
	}
}

// Two sessions may be there, of different paths: Django reads the last, Werkzeug the first.
func TestGrant_IsOpenedByAnyOfSeveralSessionCookies(t *testing.T) {
	g := grantOf(presentKey)
	wantGrant(t, g, boundGrant, cookies("sessionid=other; sessionid="+grantSession), beforeExpiry, "user-42:inbox_A", nil)
	wantGrant(t, g, boundGrant, cookies("sessionid="+grantSession+"; sessionid=other"), beforeExpiry, "user-42:inbox_A", nil)
	wantGrant(t, g, boundGrant, cookies("sessionid=; sessionid=other"), beforeExpiry, "", errGrantSession)
}

// ---- The query.

func TestQuery_GivesTheFirstOfANameDecodedOnce(t *testing.T) {
	for _, c := range []struct {
		query, want string
		ok          bool
	}{
		{"", "", false}, {"&&", "", false}, {"x=1", "", false}, {"G=1", "", false}, {"gg=1", "", false}, {"x=g=1", "", false}, {"=1", "", false},
		{"g", "", true}, {"g=", "", true}, {"g=1", "1", true}, {"g=1=2", "1=2", true}, {"x=2&g=1&y=3", "1", true},
		{"g=1&g=2", "1", true}, {"g&g=2", "", true}, {"%67=1&g=2", "1", true}, {"&g=1&", "1", true},
		{"g=a%2Eb%2e", "a.b.", true}, {"g=a+b", "a b", true}, {"g=a%2Bb", "a+b", true}, {"g=%2541", "%41", true}, {"g=a%26g%3Db", "a&g=b", true},
		{"g=%", "%", true}, {"g=%4", "%4", true}, {"g=%zz%41", "%zzA", true}, {"g=%00\xff", "\x00\xff", true},
		{"g=a;g=b", "a;g=b", true}, {"g=a?b/c", "a?b/c", true}, {"g=" + boundGrant, boundGrant, true},
	} {
		if got, ok := queryValue(c.query, "g"); got != c.want || ok != c.ok {
			t.Errorf("%q: %q, %v; want %q, %v", c.query, got, ok, c.want, c.ok)
		}
	}
}

// FuzzQueryValue agrees with net/url wherever that finds nothing to object to.
func FuzzQueryValue(f *testing.F) {
	for _, query := range []string{"", "g=1&g=2", "x&g=%2Bv+%31", "%67=", "lastEventId=1&g", "g=%zz", "g=a;b", "=&=g&&g=="} {
		f.Add(query)
	}
	f.Fuzz(func(t *testing.T, query string) {
		values, err := url.ParseQuery(query)
		got, ok := queryValue(query, "g")
		if err == nil && (ok != values.Has("g") || got != values.Get("g")) {
			t.Fatalf("%q: %q, %v; net/url has %q", query, got, ok, values["g"])
		}
	})
}

// ---- The answer.

func TestGrant_ARefusalSaysWhetherToAskForANewOne(t *testing.T) {
	for err, word := range map[error]string{
		errGrantMalformed: "invalid", errGrantUnknownKey: "invalid", errGrantSignature: "invalid",
		errGrantExpired:   "expired",
		errGrantNoSession: "invalid", errGrantSession: "invalid",
	} {
		f := grantFault(err)
		a := grantAnswer(f)
		if reason := "grant_" + word; f.reason != reason || a.reason != reason || a.status != 401 {
			t.Errorf("%v: %s, answered %d %s", err, f.reason, a.status, a.reason)
		}
		want := []string{"Content-Type", "application/problem+json", "Cache-Control", "no-store", "Holdfast-Reason", "grant_" + word}
		if !slices.Equal(a.fields, want) {
			t.Errorf("%v: the fields are %q", err, a.fields)
		}
		var got map[string]any
		if err := json.Unmarshal(a.body, &got); err != nil {
			t.Fatal(err)
		}
		members := map[string]any{"type": "docs/troubleshoot.md#grant_" + word, "title": "Unauthorized", "status": 401.0, "detail": err.Error(), "reason": word, "error": word}
		if !maps.Equal(got, members) {
			t.Errorf("%v: the body is %v\nwant %v", err, got, members)
		}
	}
}

// ---- The rules, told anew.

// grantText is the one spelling of a grant. The last digits of base64url carry
// 2 bits of 16 bytes and 4 of 32.
var grantText = regexp.MustCompile(`\A(v1\.([0-9a-f]{8})\.(0|[1-9][0-9]*)\.([A-Za-z0-9_:-]{1,64})\.(-|[A-Za-z0-9_-]{21}[AQgw]))\.[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]\z`)

// judgeGrant makes every grant that would be good, and compares.
func judgeGrant(keys []string, token, cookie string, now time.Time) (channel string, err error) {
	parts := grantText.FindStringSubmatch(token)
	if parts == nil {
		return "", errGrantMalformed
	}
	expires, _ := new(big.Int).SetString(parts[3], 10)
	if expires.BitLen() > 63 {
		return "", errGrantMalformed
	}
	err = errGrantUnknownKey
	for _, key := range keys {
		if kidOf(key) != parts[2] || err == nil {
			continue
		}
		if err = errGrantSignature; signGrant(key, parts[1]) == token {
			err = nil
		}
	}
	sum := sha256.Sum256([]byte(cookie))
	bound := base64.RawURLEncoding.EncodeToString(sum[:16])
	switch {
	case err != nil:
		return "", err
	case expires.Cmp(big.NewInt(now.Unix())) <= 0:
		return "", errGrantExpired
	case parts[5] == "-":
		return parts[4], nil
	case cookie == "":
		return "", errGrantNoSession
	case parts[5] != bound:
		return "", errGrantSession
	}
	return parts[4], nil
}

// FuzzGrantVerify signs what it is given where signer names a key, so that
// what lies behind the signature is reached too.
func FuzzGrantVerify(f *testing.F) {
	keys := []string{presentKey, previousKey, "key 5979", "key 77859"}
	for _, token := range []string{openGrant, boundGrant, previousGrant} {
		f.Add(token, uint8(255), grantSession, int64(grantExpires-1))
		signed := token[:strings.LastIndexByte(token, '.')]
		f.Add(signed, uint8(0), grantSession, int64(grantExpires-1))
		f.Add(signed, uint8(1), "", int64(grantExpires))
		f.Add(token+"=", uint8(255), "x", int64(0))
		f.Add(signed, uint8(0), "other", int64(1))
	}
	f.Add("v1.72dfe4a0.9223372036854775808.a:b.-", uint8(3), "", int64(-1))
	f.Add("v1.72dfe4a0.00.a.FNgTRRqUs0iwFKprkd4cpx", uint8(2), "a", int64(math.MaxInt64))
	f.Fuzz(func(t *testing.T, token string, signer uint8, cookie string, at int64) {
		if int(signer) < len(keys) {
			token = signGrant(keys[signer], token)
		}
		if strings.ContainsAny(cookie, "; \t\"") {
			return
		}
		now := time.Unix(at, 0)
		channel, err := grantOf(keys...).verify(token, cookies("sessionid="+cookie), now)
		wantChannel, want := judgeGrant(keys, token, cookie, now)
		if channel != wantChannel || err != want {
			t.Fatalf("%q with the session %q at %d: %q, %v\nwant %q, %v", token, cookie, at, channel, err, wantChannel, want)
		}
	})
}
