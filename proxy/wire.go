package proxy

import (
	"bytes"

	"holdfast/internal/http1"
)

// Bounds of a request head beyond HeaderBytes.
const (
	maxFields   = 256
	maxHostPort = 65535
)

// request is one request's head: parsed and found unambiguous (RFC 9112).
// Everything in it is a slice of the connection's buffer and is good until
// the next head is read.
type request struct {
	method, target []byte // target in origin form, or "*"
	host           []byte // of the target where that has one, else of the Host field
	hasHost        bool
	minor          int // HTTP/1.minor; 0 or 1
	fields         []field

	length       int64 // of Content-Length; -1: none
	chunked      bool
	keepAlive    bool // the client expects another answer on this connection
	expect       bool // 100-continue
	upgrade      bool // to websocket
	formerTarget bool // the target was in absolute form: its host wins over the field
	secure       bool // it came by TLS
}

// field is a field line and what its name is to a proxy.
type field struct {
	http1.Field
	kind fieldKind
}

func (r *request) isHEAD() bool { return string(r.method) == "HEAD" }
func (r *request) isGET() bool  { return string(r.method) == "GET" }

// cutQuery parts the target at its first question mark, which belongs to neither.
func (r *request) cutQuery() (path []byte, query string) {
	path, rest, _ := bytes.Cut(r.target, []byte("?"))
	return path, string(rest)
}

// hasBody reports whether bytes may follow the head.
func (r *request) hasBody() bool { return r.chunked || r.length > 0 }

func tooManyFields() *fault {
	return &fault{reason: reasonHeadersTooLarge, text: "the head has more than 256 fields"}
}

func badRequest(text string) *fault { return &fault{reason: reasonBadRequest, text: text} }

// parseRequestLine reads method SP target SP version (RFC 9112 §3), given
// without its CRLF.
func (r *request) parseRequestLine(line []byte) *fault {
	method, rest, ok := bytes.Cut(line, []byte(" "))
	if !ok || !http1.IsToken(method) {
		return badRequest("the request line does not begin with a method and one space")
	}
	target, version, ok := bytes.Cut(rest, []byte(" "))
	if !ok || len(target) == 0 {
		return badRequest("the request line is not method, target and version with one space between them")
	}
	if f := r.parseVersion(version); f != nil {
		return f
	}
	r.method = method
	switch string(method) {
	case "CONNECT":
		return &fault{reason: reasonNotImplemented, text: "CONNECT is not served: this is a reverse proxy"}
	case "TRACE":
		return &fault{reason: reasonMethodNotAllowed, allow: allowAny,
			text: "TRACE is not forwarded: its answer would show fields that were added on the way"}
	}
	return r.parseTarget(target)
}

// parseVersion reads "HTTP/" DIGIT "." DIGIT (RFC 9112 §2.3). 1.x is taken
// as 1.1 for any x above 0; another major version is not supported.
func (r *request) parseVersion(v []byte) *fault {
	if len(v) != 8 || string(v[:5]) != "HTTP/" || v[6] != '.' || !http1.IsDigits(v[5:6]) || !http1.IsDigits(v[7:8]) {
		return badRequest("the request line does not end with an HTTP version")
	}
	if v[5] != '1' {
		return &fault{reason: reasonVersionNotSupported, text: "HTTP/1.1 and HTTP/1.0 are served"}
	}
	if v[7] != '0' {
		r.minor = 1
	}
	return nil
}

// parseTarget reads the request target (RFC 9112 §3.2). An absolute form
// becomes the origin form and a host.
func (r *request) parseTarget(target []byte) *fault {
	for _, c := range target {
		if c <= ' ' || c == 0x7f || c == '#' || c == '\\' || c == '<' || c == '>' {
			return badRequest("the request target has a byte that cannot stand in it")
		}
	}
	if target[0] == '/' {
		r.target = target
		return nil
	}
	if string(target) == "*" {
		if string(r.method) != "OPTIONS" {
			return badRequest("the target * is for OPTIONS only")
		}
		r.target = target
		return nil
	}
	scheme, rest, ok := bytes.Cut(target, []byte("://"))
	if !ok {
		return badRequest("the request target is neither a path, nor *, nor an http URI")
	}
	isHTTPS := http1.EqualFold(scheme, "https")
	switch {
	case isHTTPS && !r.secure:
		return &fault{reason: reasonMisdirected, text: "the target is an https URI, and this connection is not https"}
	case isHTTPS:
	case !http1.EqualFold(scheme, "http"):
		return badRequest("the request target is not an http URI")
	case r.secure:
		return &fault{reason: reasonMisdirected, text: "the target is an http URI, and this connection is https"}
	}
	return r.parseAuthority(rest)
}

// parseAuthority reads what follows http:// or https:// in a target (RFC 9112 §3.2.2).
func (r *request) parseAuthority(rest []byte) *fault {
	end := bytes.IndexAny(rest, "/?")
	if end < 0 {
		end = len(rest)
	}
	if !validHost(rest[:end]) {
		return badRequest("the host in the request target is malformed") // user information too, RFC 9110 §4.2.4
	}
	r.host, r.hasHost, r.formerTarget = rest[:end], true, true
	switch path := rest[end:]; {
	case len(path) == 0 && string(r.method) == "OPTIONS":
		r.target = []byte("*")
	case len(path) == 0:
		r.target = []byte("/")
	case path[0] == '?':
		r.target = append([]byte("/"), path...)
	default:
		r.target = path
	}
	return nil
}

// parseFields reads the field lines of a head, from the end of the request
// line to the empty line, and decides how the body is framed (RFC 9112 §6.3).
func (r *request) parseFields(lines []byte) *fault {
	var connection connectionOptions
	hosts := 0
	for {
		end := bytes.IndexByte(lines, '\n')
		line := lines[:end-1]
		lines = lines[end+1:]
		if len(line) == 0 {
			break
		}
		if len(r.fields) == maxFields {
			return tooManyFields()
		}
		parsed, err := http1.ParseField(line)
		if err != nil {
			return badRequest("the head is malformed: " + err.Error())
		}
		f := field{parsed, kindOf(parsed.Name)}
		r.fields = append(r.fields, f)
		if fault := r.note(f, &connection, &hosts); fault != nil {
			return fault
		}
	}
	if hosts == 0 && r.minor > 0 {
		return badRequest("an HTTP/1.1 request needs a Host field")
	}
	r.keepAlive = !connection.close && (r.minor > 0 || connection.keepAlive)
	if r.chunked && r.length >= 0 {
		return badRequest("the head has both Transfer-Encoding and Content-Length")
	}
	return r.checkUpgrade(connection)
}

// note takes in one field that decides framing, routing or the connection's life.
func (r *request) note(f field, connection *connectionOptions, hosts *int) *fault {
	switch f.kind {
	case kindHost:
		if *hosts++; *hosts > 1 {
			return badRequest("the head has more than one Host field")
		}
		if !validHost(f.Value) {
			return badRequest("the Host field is malformed")
		}
		if !r.formerTarget {
			r.host, r.hasHost = f.Value, true
		}
	case kindContentLength:
		length, tooLarge, ok := http1.ParseLength(f.Value)
		if !ok || r.length >= 0 {
			return badRequest("the Content-Length is not one decimal number")
		}
		if tooLarge {
			return &fault{reason: reasonBodyTooLarge, text: "the Content-Length is beyond any limit"}
		}
		r.length = length
	case kindTransferEncoding:
		return r.noteTransferEncoding(f.Value)
	case kindExpect:
		if !http1.EqualFold(f.Value, "100-continue") {
			return &fault{reason: reasonExpectationFailed, text: "the only expectation served is 100-continue"}
		}
		r.expect = r.minor > 0 // RFC 9110 §10.1.1: ignored in HTTP/1.0
	case kindConnection:
		connection.note(f.Value)
	case kindUpgrade:
		r.upgrade = r.upgrade || http1.HasElement(f.Value, "websocket")
	}
	return nil
}

// noteTransferEncoding accepts "chunked" and nothing else (RFC 9112 §6.1):
// well-formed codings that we do not have are 501, the rest is 400.
func (r *request) noteTransferEncoding(value []byte) *fault {
	if r.minor == 0 {
		return badRequest("Transfer-Encoding in an HTTP/1.0 request")
	}
	if r.chunked {
		return badRequest("the head has more than one Transfer-Encoding")
	}
	if http1.EqualFold(value, "chunked") {
		r.chunked = true
		return nil
	}
	var last []byte
	for list := value; ; {
		element, rest, ok := http1.NextElement(list)
		if !ok {
			break
		}
		if !http1.IsToken(element) || http1.EqualFold(last, "chunked") {
			return badRequest("the Transfer-Encoding is malformed")
		}
		last, list = element, rest
	}
	if last == nil || value[len(value)-1] == ',' {
		return badRequest("the Transfer-Encoding is malformed")
	}
	return &fault{reason: reasonNotImplemented, text: "the only transfer coding served is chunked"}
}

// checkUpgrade judges an upgrade to websocket (RFC 6455 §4.1). Other
// protocols are not upgraded to: their fields are left out and the request is
// an ordinary one.
func (r *request) checkUpgrade(connection connectionOptions) *fault {
	if !connection.upgrade {
		r.upgrade = false
	}
	if !r.upgrade {
		return nil
	}
	if !r.isGET() || r.minor == 0 || r.hasBody() {
		return badRequest("a WebSocket handshake is an HTTP/1.1 GET without a body")
	}
	return nil
}

// connectionOptions are the options of Connection fields that matter here.
type connectionOptions struct{ close, keepAlive, upgrade bool }

func (c *connectionOptions) note(value []byte) {
	c.close = c.close || http1.HasElement(value, "close")
	c.keepAlive = c.keepAlive || http1.HasElement(value, "keep-alive")
	c.upgrade = c.upgrade || http1.HasElement(value, "upgrade")
}

// validHost checks uri-host [ ":" port ] (RFC 9110 §7.2, RFC 3986 §3.2.2).
// It must not be empty.
func validHost(b []byte) bool {
	if len(b) == 0 {
		return false
	}
	host, port := b, []byte(nil)
	if b[0] == '[' {
		end := bytes.IndexByte(b, ']')
		if end < 0 || !validIPLiteral(b[1:end]) {
			return false
		}
		host = nil
		if rest := b[end+1:]; len(rest) > 0 {
			if rest[0] != ':' {
				return false
			}
			port = rest[1:]
		}
	} else if i := bytes.IndexByte(b, ':'); i >= 0 {
		if host, port = b[:i], b[i+1:]; len(host) == 0 {
			return false
		}
	}
	for _, c := range host {
		if !regName[c] {
			return false
		}
	}
	return validPort(port)
}

func validPort(b []byte) bool {
	n := 0
	for _, c := range b {
		if c < '0' || c > '9' {
			return false
		}
		if n = n*10 + int(c-'0'); n > maxHostPort {
			return false
		}
	}
	return true
}

func validIPLiteral(b []byte) bool {
	for _, c := range b {
		if !regName[c] && c != ':' {
			return false
		}
	}
	return len(b) > 0
}

// regName is unreserved, sub-delims and percent signs (RFC 3986 §3.2.2), but
// for the comma, which would make two hosts of one to whoever reads a list.
var regName = func() (t [256]bool) {
	for c := 'a'; c <= 'z'; c++ {
		t[c], t[c-'a'+'A'] = true, true
	}
	for c := '0'; c <= '9'; c++ {
		t[c] = true
	}
	for _, c := range "-._~!$&'()*+;=%" {
		t[c] = true
	}
	return t
}()
