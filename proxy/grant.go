package proxy

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"iter"
	"strconv"
	"strings"
	"time"

	"holdfast/holds"
	"holdfast/internal/http1"
)

// Grant is what a route needs to hold clients without asking the app: the app
// signed a grant beforehand, and the client brings it.
//
//	v1.<kid>.<exp>.<channel>.<sb>.<sig>
//
//	kid      the first 8 hex digits, lower case, of SHA-256(key)
//	exp      unix seconds; at this second the grant is no longer good
//	channel  the one channel that it opens: 1 to 64 of A-Z a-z 0-9 _ : -
//	sb       base64url(SHA-256(session cookie)[:16]), or - for any session
//	sig      base64url(HMAC-SHA256(key, all before its dot))
//
// There is one spelling of a grant: numbers have no sign and no leading zero,
// base64url has no padding and no bits that are not used.
//
// A Grant is not changed once it serves.
type Grant struct {
	// Keys are believed: the one in use first, then the one before it. An
	// empty one is no key, or an unset variable would let everyone sign.
	Keys [][]byte
	// Cookie is the name of the session's cookie. "": there is none, and a
	// grant that is bound to a session is refused.
	Cookie string
	// Origins are the pages that may open one.
	Origins holds.Origins
}

// endOf is the one segment that a grant route's path has behind its pattern,
// which ends with a slash; "" if there is none, or more.
func (rt *Route) endOf(path []byte) string {
	decoded := decodePath(path)
	if bytes.Count(decoded, []byte("/")) != strings.Count(rt.Match, "/") {
		return ""
	}
	return string(decoded[bytes.LastIndexByte(decoded, '/')+1:])
}

// Why a grant is refused: a closed set, in the order of the checks. The texts
// are for the client.
var (
	errGrantMalformed  = errors.New("the query has no well-formed grant in g; send the one that the app made, as it is")
	errGrantUnknownKey = errors.New("the grant is signed with a key that is not known here; give the app and the grant route the same key")
	errGrantSignature  = errors.New("the grant's signature does not fit; send the grant that the app made, as it is")
	errGrantExpired    = errors.New("the grant has expired; ask the app for a new one")
	errGrantNoSession  = errors.New("the grant is bound to a session and the request has no session cookie; send it along")
	errGrantSession    = errors.New("the grant is bound to another session; ask the app for a new one")
)

// grantFault is the fault of an error of verify.
func grantFault(err error) *fault {
	reason := reasonGrantInvalid
	if errors.Is(err, errGrantExpired) {
		reason = reasonGrantExpired
	}
	return &fault{reason: reason, text: err.Error()}
}

// grantProblem is a problem that is read by who renews grants: error says
// whether to ask for a new one or to give up.
type grantProblem struct {
	problem
	Error string `json:"error"`
}

// grantAnswer renders a fault of grantFault. Reason and error in the body are
// "expired" or "invalid"; the word of the closed list is in Holdfast-Reason.
func grantAnswer(f *fault) *answer {
	a := f.answer()
	word := strings.TrimPrefix(f.reason, "grant_")
	a.body, _ = json.Marshal(grantProblem{f.problem(word), word})
	a.body = append(a.body, '\n')
	return a
}

// verify gives the channel that the grant opens to a request with these
// fields. The error is one of those above, the first that applies.
func (g *Grant) verify(token string, fields []field, now time.Time) (channel string, err error) {
	t, ok := parseGrant(token)
	if !ok {
		return "", errGrantMalformed
	}
	if err := g.checkSignature(&t); err != nil {
		return "", err
	}
	if now.Unix() >= t.expires { // as in RFC 7519 §4.1.4: not on or after it
		return "", errGrantExpired
	}
	if t.session == nil {
		return t.channel, nil
	}
	err = errGrantNoSession
	for cookie := range cookieValues(fields, g.Cookie) {
		if cookie == "" { // its hash is known to everyone
			continue
		}
		if session := sha256.Sum256([]byte(cookie)); subtle.ConstantTimeCompare(session[:sessionBytes], t.session) == 1 {
			return t.channel, nil
		}
		err = errGrantSession
	}
	return "", err
}

// checkSignature tries every key with the grant's kid: 32 bits may be those of
// two keys.
func (g *Grant) checkSignature(t *grantToken) error {
	err := errGrantUnknownKey
	for _, key := range g.Keys {
		if len(key) == 0 || keyID(key) != t.kid {
			continue
		}
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(t.signed))
		if hmac.Equal(mac.Sum(nil), t.signature) {
			return nil
		}
		err = errGrantSignature
	}
	return err
}

func keyID(key []byte) string {
	sum := sha256.Sum256(key)
	return hex.EncodeToString(sum[:kidDigits/2])
}

const (
	kidDigits    = 8
	channelBytes = 64
	sessionBytes = 16
)

// grantToken is a well-formed grant, its signature not yet checked.
type grantToken struct {
	kid       string
	expires   int64 // unix seconds
	channel   string
	session   []byte // nil: of any session
	signed    string
	signature []byte
}

func parseGrant(token string) (t grantToken, ok bool) {
	parts := strings.SplitN(token, ".", 7)
	if len(parts) != 6 || parts[0] != "v1" {
		return t, false
	}
	t.kid, t.channel = parts[1], parts[3]
	t.signed = token[:len(token)-len(parts[5])-1]
	if len(t.kid) != kidDigits || strings.Trim(t.kid, "0123456789abcdef") != "" || !isGrantChannel(t.channel) {
		return t, false
	}
	if t.expires, ok = parseExpiry(parts[2]); !ok {
		return t, false
	}
	if parts[4] != "-" {
		if t.session, ok = decodeExactly(parts[4], sessionBytes); !ok {
			return t, false
		}
	}
	t.signature, ok = decodeExactly(parts[5], sha256.Size)
	return t, ok
}

// parseExpiry reads decimal digits that fit 63 bits. ParseInt alone would take
// a sign and leading zeros.
func parseExpiry(s string) (seconds int64, ok bool) {
	if !http1.IsDigits([]byte(s)) || len(s) > 1 && s[0] == '0' {
		return 0, false
	}
	seconds, err := strconv.ParseInt(s, 10, 64)
	return seconds, err == nil
}

// isGrantChannel is narrower than what a view may join: a grant's channel
// stands in a URL, between dots.
func isGrantChannel(s string) bool {
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && c != '_' && c != ':' && c != '-' {
			return false
		}
	}
	return len(s) >= 1 && len(s) <= channelBytes
}

// decodeExactly decodes base64url for n bytes. The length is looked at too:
// encoding/base64 skips line ends, Strict or not.
func decodeExactly(s string, n int) (b []byte, ok bool) {
	if len(s) != base64.RawURLEncoding.EncodedLen(n) {
		return nil, false
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	return b, err == nil && len(b) == n
}

// cookieValues are the values of a cookie in the request's Cookie fields (RFC
// 6265 §5.4), as an app sees them: without one pair of quotes around them,
// which Django and Werkzeug take off. There may be several, of different paths
// or domains; Django takes the last of them and Werkzeug the first, so each
// may be the session's. Names are case-sensitive.
func cookieValues(fields []field, name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		if name == "" {
			return
		}
		for _, f := range fields {
			if !http1.EqualFold(f.Name, "cookie") {
				continue
			}
			for pair := range bytes.SplitSeq(f.Value, []byte(";")) {
				key, v, ok := bytes.Cut(pair, []byte("="))
				if !ok || string(http1.TrimSpace(key)) != name {
					continue
				}
				v = http1.TrimSpace(v)
				if len(v) >= 2 && v[0] == '"' && v[len(v)-1] == '"' {
					v = v[1 : len(v)-1]
				}
				if !yield(string(v)) {
					return
				}
			}
		}
	}
}

// queryValue is the first parameter of a name in a query, which is without its
// "?". Escapes are decoded once and "+" is a space; a malformed escape stays
// as it is, as in paths. A parameter without "=" is empty and there.
func queryValue(query, name string) (value string, ok bool) {
	for pair := range strings.SplitSeq(query, "&") {
		key, v, _ := strings.Cut(pair, "=")
		if decodeQuery(key) == name {
			return decodeQuery(v), true
		}
	}
	return "", false
}

func decodeQuery(s string) string {
	if !strings.ContainsAny(s, "+%") {
		return s
	}
	return string(decodePath([]byte(strings.ReplaceAll(s, "+", " "))))
}
