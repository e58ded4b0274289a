package proxy

import (
	"crypto/rand"
	"sync"
	"sync/atomic"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"holdfast/holds"
	"holdfast/internal/http1"
)

// Grip is how requests to the app are signed, by which it knows that they came
// through here (Grip-Sig).
type Grip struct {
	// Iss is the issuer that the signature names.
	Iss string
	// Key is the secret of its HMAC (HS256). Empty: one of this process's own,
	// which nobody knows, so that nobody can check it.
	Key []byte
}

const (
	signatureLife = time.Hour
	// gripFeatures are what of GRIP is done here, in its own words.
	gripFeatures = "status, link:next, filter:skip-self, filter:skip-users, filter:require-sub, filter:build-id, filter:var-subst"
)

// ownKey signs where no key is configured: the same one after a reload, so
// that what an app took for signed by us stays so.
var ownKey = sync.OnceValue(func() []byte {
	key := make([]byte, 32)
	rand.Read(key) // never fails
	return key
})

// signer makes the fields that tell the app of GRIP. One signature is good
// for an hour and made once a minute: a request costs one atomic load and a
// copy. Safe for concurrent use. A nil one adds nothing: GRIP is off.
type signer struct {
	iss string
	key []byte
	now func() time.Time
	// made is the present minute's signature.
	made atomic.Pointer[signature]
}

// signature is both fields, rendered.
type signature struct {
	minute int64 // of the wall clock, since 1970
	fields []byte
}

// newSigner gives nil where nobody is to be told of GRIP.
func newSigner(cfg Config) *signer {
	if !cfg.Dialects.Grip || cfg.Holds == nil {
		return nil
	}
	s := &signer{iss: cfg.Grip.Iss, key: cfg.Grip.Key, now: time.Now}
	if len(s.key) == 0 {
		s.key = ownKey()
	}
	return s
}

// append adds Grip-Sig and Grip-Feature to a request head.
func (s *signer) append(dst []byte) []byte {
	if s == nil {
		return dst
	}
	now := s.now()
	made := s.made.Load()
	// The wall clock decides, as it does for who checks: set back or forward,
	// it is another minute.
	if made == nil || made.minute != minuteOf(now) {
		made = s.sign(now)
	}
	return append(dst, made.fields...)
}

func minuteOf(t time.Time) int64 { return t.Unix() / 60 }

// sign makes the signature of this minute. Several goroutines may, at its
// beginning; theirs are all good.
func (s *signer) sign(now time.Time) *signature {
	claims := jwt.RegisteredClaims{Issuer: s.iss, ExpiresAt: jwt.NewNumericDate(now.Add(signatureLife))}
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString(s.key)
	if err != nil {
		panic(err) // a text and a number, and a key of the type that HS256 takes
	}
	made := &signature{minute: minuteOf(now), fields: []byte("Grip-Sig: " + token + "\r\nGrip-Feature: " + gripFeatures + "\r\n")}
	s.made.Store(made)
	return made
}

// forbiddenEvents refuses a client that speaks to the app as only we may.
func forbiddenEvents() *fault {
	return &fault{reason: reasonForbidden,
		text: holds.EventsType + " is what Holdfast tells the app of a held WebSocket; send the body under another Content-Type"}
}

// hasSocketEvents reports whether the body calls itself events of a WebSocket,
// as only we may send them: an app would believe them. Whatever an app makes of
// several Content-Type fields, or of a list in one, each is looked at; and so
// is one between bytes that a library may trim, a no-break space for example.
func (r *request) hasSocketEvents() bool {
	for _, f := range r.fields {
		if f.kind != kindPlain || !http1.EqualFold(f.Name, "content-type") {
			continue
		}
		for list := f.Value; ; {
			element, rest, ok := http1.NextElement(list)
			if !ok {
				break
			}
			if list = rest; http1.EqualFold(mediaType(element), holds.EventsType) {
				return true
			}
		}
	}
	return false
}

// mediaType is a Content-Type without its parameters, and without what is no
// visible ASCII around it.
func mediaType(value []byte) []byte {
	for i, c := range value {
		if c == ';' {
			value = value[:i]
			break
		}
	}
	for len(value) > 0 && !visible(value[0]) {
		value = value[1:]
	}
	for len(value) > 0 && !visible(value[len(value)-1]) {
		value = value[:len(value)-1]
	}
	return value
}

func visible(c byte) bool { return c > ' ' && c < 0x7f }
