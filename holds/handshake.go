package holds

import (
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"net/netip"
	"strconv"
	"strings"

	"holdfast/internal/http1"
)

// Why a request does not open a WebSocket (RFC 6455 §4.2.1): a closed set.
//
// ErrNotUpgrade is answered 426 with "Upgrade: websocket", ErrVersion 426 with
// that and "Sec-WebSocket-Version: 13" (RFC 6455 §4.4, RFC 9110 §15.5.22), ErrKey 400.
var (
	ErrNotUpgrade = errors.New("the request is not an upgrade to WebSocket (GET, HTTP/1.1, Connection: Upgrade, Upgrade: websocket)")
	ErrVersion    = errors.New("the request's Sec-WebSocket-Version is not 13")
	ErrKey        = errors.New("the request's Sec-WebSocket-Key is not 16 bytes in base64")
)

const (
	keyBytes  = 16
	keyLength = 24 // of 16 bytes in base64

	// acceptGUID is what RFC 6455 §1.3 puts behind a key.
	acceptGUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
)

// CheckHandshake checks a client's request to open a WebSocket, HTTP/1.minor,
// and gives its key for AcceptKey, a part of the field that has it. The
// errors, in the order in which they are looked for: ErrNotUpgrade,
// ErrVersion, ErrKey. A version or a key that is there twice is none (RFC 6455
// §11.3.1, §11.3.5). What RFC 9112 asks of any request, as a Host, is taken as
// checked.
func CheckHandshake(method string, minor int, fields []http1.Field) (key []byte, err error) {
	var upgrade, connection bool
	var version []byte
	versions, keys := 0, 0
	for _, f := range fields {
		switch {
		case http1.EqualFold(f.Name, "upgrade"):
			upgrade = upgrade || http1.HasElement(f.Value, "websocket")
		case http1.EqualFold(f.Name, "connection"):
			connection = connection || http1.HasElement(f.Value, "upgrade")
		case http1.EqualFold(f.Name, "sec-websocket-version"):
			version = f.Value
			versions++
		case http1.EqualFold(f.Name, "sec-websocket-key"):
			key = f.Value
			keys++
		}
	}
	switch {
	case method != "GET" || minor < 1 || !upgrade || !connection:
		return nil, ErrNotUpgrade
	case versions != 1 || string(version) != "13":
		return nil, ErrVersion
	case keys != 1 || !validKey(key):
		return nil, ErrKey
	}
	return key, nil
}

// validKey reports whether a key decodes to 16 bytes. The bits that base64
// has beyond them may be set, as RFC 4648 §3.5 leaves open: a client that
// draws 22 letters instead of 16 bytes harms nobody.
func validKey(key []byte) bool {
	if len(key) != keyLength {
		return false
	}
	var decoded [keyLength]byte
	n, err := base64.StdEncoding.Decode(decoded[:], key)
	return err == nil && n == keyBytes
}

// AcceptKey is the Sec-WebSocket-Accept that answers a key (RFC 6455 §4.2.2).
func AcceptKey(key []byte) string {
	sum := sha1.Sum(append(append(make([]byte, 0, keyLength+len(acceptGUID)), key...), acceptGUID...))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// Origins are the pages that may open a held WebSocket: those that any of its
// fields lets in. The zero value lets no page in.
type Origins struct {
	Any      bool     // whichever has an origin at all, so not "null"
	SameHost bool     // those whose host and port are the request's
	List     []string // those of these origins: scheme://host, or scheme://host:port
}

// OriginAllowed reports whether a page may open a WebSocket. origin is the
// request's Origin field, "" for none, which is let in: it is not a page's, for
// browsers have one in every handshake (RFC 6455 §4.1). "null" is refused under
// every policy: every sandboxed page has it, whoever wrote it.
//
// host is the Host that the client asked for, with its port if it has one. A
// port that is not written is the scheme's own, and for host the scheme is the
// origin's: where TLS ends in front of us, the request does not say which it
// was. Only http and https origins can be of the same host. A request with
// several Origin fields is to pass with each.
func OriginAllowed(origin, host string, policy Origins) bool {
	if origin == "" {
		return true
	}
	if strings.EqualFold(origin, "null") {
		return false
	}
	if policy.Any {
		return true
	}
	scheme, page, ok := splitOrigin(origin)
	if !ok {
		return false
	}
	if implied := impliedPort(scheme); policy.SameHost && implied != "" {
		if asked, ok := splitAuthority(host, implied); ok && asked.equal(page) {
			return true
		}
	}
	for _, entry := range policy.List {
		s, listed, ok := splitOrigin(entry)
		if ok && strings.EqualFold(s, scheme) && listed.equal(page) {
			return true
		}
	}
	return false
}

// authority is where an origin or a request points. port "" is not known.
type authority struct{ host, port string }

func (a authority) equal(b authority) bool {
	if a.port != b.port {
		return false
	}
	if strings.EqualFold(a.host, b.host) {
		return true
	}
	// One address of IPv6 can be written in many ways.
	first, err1 := netip.ParseAddr(strings.Trim(a.host, "[]"))
	second, err2 := netip.ParseAddr(strings.Trim(b.host, "[]"))
	return err1 == nil && err2 == nil && first == second
}

// splitOrigin takes an origin apart (RFC 6454 §6.2). A list of several is none.
func splitOrigin(origin string) (scheme string, a authority, ok bool) {
	scheme, rest, ok := strings.Cut(origin, "://")
	if !ok || !printable(scheme) {
		return "", authority{}, false
	}
	a, ok = splitAuthority(rest, impliedPort(scheme))
	return scheme, a, ok
}

// impliedPort is the port that a scheme has where none is written; "" for a
// scheme of which that is not known.
func impliedPort(scheme string) string {
	switch {
	case strings.EqualFold(scheme, "http"):
		return "80"
	case strings.EqualFold(scheme, "https"):
		return "443"
	}
	return ""
}

// splitAuthority takes a host apart from its port, which is implied if there
// is none.
func splitAuthority(s, implied string) (a authority, ok bool) {
	host, port := s, ""
	if i := strings.LastIndexByte(s, ':'); i > strings.LastIndexByte(s, ']') {
		host, port = s[:i], s[i+1:]
	}
	literal := strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]")
	if host == "" || !printable(host) || !literal && strings.ContainsAny(host, "[]:") {
		return authority{}, false
	}
	if port == "" {
		return authority{host, implied}, true
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return authority{}, false
	}
	return authority{host, strconv.FormatUint(n, 10)}, true
}

// printable reports whether s has nothing that cannot stand in a scheme or a
// host. Nor has it letters beyond ASCII: Unicode holds some to be equal to
// letters of ASCII (U+212A and k), and strings.EqualFold does as Unicode does.
func printable(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || strings.IndexByte(`/\?#@,"<>`, c) >= 0 {
			return false
		}
	}
	return true
}
