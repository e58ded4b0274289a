package main

import (
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// keyIsBase64 begins a key whose bytes are no text, as in the GRIP_URL of an app.
const keyIsBase64 = "base64:"

// keySecret is what a key is to an HMAC: its bytes as they are written, or, behind base64:, what that stands for.
func keySecret(key string) ([]byte, error) {
	encoded, ok := strings.CutPrefix(key, keyIsBase64)
	if !ok {
		return []byte(key), nil
	}
	return decodeKey(encoded)
}

// base64Spelling makes each alphabet of base64 the standard one: that of URLs, and + as a careless URL leaves it, a space.
var base64Spelling = strings.NewReplacer("-", "+", "_", "/", " ", "+")

// decodeKey reads base64 of either alphabet, with its padding or without: apps take them all.
func decodeKey(encoded string) ([]byte, error) {
	return base64.RawStdEncoding.DecodeString(base64Spelling.Replace(strings.TrimRight(encoded, "=")))
}

// secret is the key that signs; empty where none is configured. The key has been checked.
func (g gripConfig) secret() []byte {
	secret, _ := keySecret(g.Key)
	return secret
}

// keyring has the keys that open something to GRIP's publishers, each in every spelling that they send or sign with:
// as it is configured, and for one in base64 also that without its prefix, and the bytes.
type keyring [][]byte

func newKeyring(keys ...string) (ring keyring) {
	add := func(spelling []byte) {
		if len(spelling) > 0 { // nothing opens nothing
			ring = append(ring, spelling)
		}
	}
	for _, key := range keys {
		add([]byte(key))
		if encoded, ok := strings.CutPrefix(key, keyIsBase64); ok {
			add([]byte(encoded))
			if secret, err := decodeKey(encoded); err == nil {
				add(secret)
			}
		}
	}
	return ring
}

// opens reports whether an Authorization shows a key: Bearer with the key or with a token that it signed, or Basic with
// it as the password, or as the user where there is no password.
func (ring keyring) opens(authorization string, now time.Time) bool {
	scheme, shown, _ := strings.Cut(authorization, " ")
	shown = strings.Trim(shown, " ")
	switch strings.ToLower(scheme) {
	case "bearer":
		return ring.has(shown) || ring.signed(shown, now)
	case "basic":
		pair, err := base64.StdEncoding.DecodeString(shown)
		if err != nil {
			return false
		}
		user, password, _ := strings.Cut(string(pair), ":")
		return ring.has(cmp.Or(password, user))
	}
	return false
}

// has compares in constant time, with every spelling of every key. A key in base64 may be shown in another spelling
// of that than it is configured in.
func (ring keyring) has(shown string) bool {
	sums := [][sha256.Size]byte{sha256.Sum256([]byte(shown))}
	if secret, err := keySecret(shown); err == nil {
		sums = append(sums, sha256.Sum256(secret))
	}
	found := 0
	for _, key := range ring {
		own := sha256.Sum256(key)
		for _, sum := range sums {
			found |= subtle.ConstantTimeCompare(sum[:], own[:])
		}
	}
	return found == 1
}

// clockLeeway is how far a publisher's clock may differ.
const clockLeeway = time.Minute

// signed reports whether a token was signed with one of the keys (HS256, nothing else) and says until when it is good.
// Its issuer may be anybody: who signs it has the key.
func (ring keyring) signed(token string, now time.Time) bool {
	keys := make([]jwt.VerificationKey, len(ring))
	for i, key := range ring {
		keys[i] = key
	}
	parser := jwt.NewParser(jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}), jwt.WithExpirationRequired(),
		jwt.WithLeeway(clockLeeway), jwt.WithTimeFunc(func() time.Time { return now }))
	parsed, err := parser.ParseWithClaims(token, &jwt.RegisteredClaims{}, func(*jwt.Token) (any, error) {
		return jwt.VerificationKeySet{Keys: keys}, nil
	})
	return err == nil && parsed.Valid
}
