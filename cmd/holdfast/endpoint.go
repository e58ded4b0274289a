package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"path"
	"regexp"
	"strconv"
	"strings"
)

// endpoint is an address to listen on or to dial, as net.Listen and net.Dial take it.
type endpoint struct {
	network string // "tcp" or "unix"
	address string // host:port, or the socket's absolute path
	mode    fs.FileMode
	hasMode bool
	group   string // name or number of the socket's group; "" = left as it is
}

// unixPathBytes is what sun_path holds on Linux, less its final NUL.
const unixPathBytes = 107

var (
	portText  = regexp.MustCompile(`^(0|[1-9][0-9]{0,4})$`)
	hostText  = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?$`)
	octalText = regexp.MustCompile(`^(0o)?[0-7]{1,4}$`)
	groupText = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*\$?$`)
)

// parseListen reads `host:port`, `:port` (every address) or `unix:/path?mode=0660&group=www-data`. Port 0 lets the
// system choose. The error goes on where the sentence's quoted address ends.
func parseListen(s string) (endpoint, error) {
	if rest, ok := strings.CutPrefix(s, "unix:"); ok {
		path, query, hasQuery := strings.Cut(rest, "?")
		e := endpoint{network: "unix", address: path}
		if err := checkSocketPath(path); err != nil {
			return e, err
		}
		if !hasQuery {
			return e, nil
		}
		return e, e.socketOptions(query)
	}
	if s == "" {
		return endpoint{}, errors.New("is empty where an address is needed (write :8080)")
	}
	if strings.Contains(s, "://") {
		return endpoint{}, errors.New("is a URL where an address is needed (write host:port, :port or unix:/path)")
	}
	if portText.MatchString(s) {
		return endpoint{}, fmt.Errorf("has no colon before the port (write :%s)", s)
	}
	host, port, err := splitAddress(s, 0)
	if err != nil {
		return endpoint{}, err
	}
	return endpoint{network: "tcp", address: net.JoinHostPort(host, port)}, nil
}

// socketOptions reads what follows the ? of a unix address. The mode is octal with or without its leading 0: 660 as
// a decimal number would be a mode that nobody means.
func (e *endpoint) socketOptions(query string) error {
	seen := map[string]bool{}
	for option := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(option, "=")
		if seen[name] {
			return fmt.Errorf("has %s twice (write it once)", name)
		}
		seen[name] = true
		switch name {
		case "mode":
			bits, err := strconv.ParseUint(strings.TrimPrefix(value, "0o"), 8, 16)
			if !octalText.MatchString(value) || err != nil || bits > 0o777 {
				return fmt.Errorf("has mode %s, which is not an octal file mode (write mode=0660)", quote(value))
			}
			e.mode, e.hasMode = fs.FileMode(bits), true
		case "group":
			if !groupText.MatchString(value) {
				return fmt.Errorf("has group %s, which is not the name or number of a group (write group=www-data)", quote(value))
			}
			e.group = value
		default:
			return fmt.Errorf("has the unknown option %s (%s)", quote(name), meant(name, []string{"mode", "group"}))
		}
	}
	return nil
}

// parseTarget reads `http://host[:port]` (80 when left out) or `unix:/path`.
func parseTarget(s string) (endpoint, error) {
	if path, ok := strings.CutPrefix(s, "unix:"); ok {
		if strings.Contains(path, "?") {
			return endpoint{}, errors.New("has options, which only a listen address takes (write unix:/path)")
		}
		return endpoint{network: "unix", address: path}, checkSocketPath(path)
	}
	if strings.HasPrefix(s, "https://") {
		return endpoint{}, errors.New("is https, which Holdfast does not speak to an upstream (write http://host:port or unix:/path)")
	}
	address, ok := strings.CutPrefix(s, "http://")
	if !ok {
		return endpoint{}, errors.New("is not a target (write http://host:port or unix:/path)")
	}
	if strings.Contains(address, "@") { // before anything is quoted: it ends a password
		return endpoint{}, errors.New("has a user name, which is not sent (write http://host:port)")
	}
	if end := strings.IndexAny(address, "/?#"); end >= 0 {
		return endpoint{}, fmt.Errorf("has a path, and requests keep their own (write http://%s)", address[:end])
	}
	if strings.LastIndexByte(address, ':') <= strings.LastIndexByte(address, ']') { // -1 <= -1: neither port nor brackets
		address += ":80"
	}
	host, port, err := splitAddress(address, 1)
	if err != nil {
		return endpoint{}, err
	}
	if host == "" {
		return endpoint{}, errors.New("has no host (write http://127.0.0.1:8000)")
	}
	return endpoint{network: "tcp", address: net.JoinHostPort(strings.ToLower(host), port)}, nil
}

// isLocal reports whether nothing but this machine reaches what listens there.
func (e endpoint) isLocal() bool {
	if e.network == "unix" {
		return true
	}
	host, _, _ := net.SplitHostPort(e.address) // parsed before
	ip, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && ip.Unmap().IsLoopback()
}

// overlaps reports whether two listeners cannot both be bound. One on every address takes the port of them all,
// those of the other IP version too. Port 0 is another port each time.
func (e endpoint) overlaps(other endpoint) bool {
	if e.network != other.network {
		return false
	}
	if e.network == "unix" {
		return path.Clean(e.address) == path.Clean(other.address)
	}
	host, port, every := e.bound()
	otherHost, otherPort, otherEvery := other.bound()
	return port == otherPort && port != "0" && (host == otherHost || every || otherEvery)
}

// bound is a TCP endpoint as the system sees it.
func (e endpoint) bound() (host, port string, everyAddress bool) {
	host, port, _ = net.SplitHostPort(strings.ToLower(e.address)) // parsed before
	if host == "localhost" {
		host = "127.0.0.1"
	}
	ip, err := netip.ParseAddr(host)
	if err == nil {
		host = ip.Unmap().String()
	}
	return host, port, host == "" || err == nil && ip.Unmap().IsUnspecified()
}

// splitAddress takes host:port apart and checks both; the least port is 0 where the system may choose.
func splitAddress(s string, leastPort int) (host, port string, err error) {
	host, port, err = net.SplitHostPort(s)
	if err != nil {
		return "", "", errors.New("is not host:port (an IPv6 host is written in brackets, as [::1]:8080)")
	}
	number, _ := strconv.Atoi(port)
	if !portText.MatchString(port) || number < leastPort || number > 65535 {
		hint := fmt.Sprintf("write digits from %d to 65535 without leading zeros", leastPort)
		if short := strings.TrimLeft(port, "0"); short != "" && short != port && portText.MatchString(short) {
			hint = "write " + short
		}
		return "", "", fmt.Errorf("has port %s, which is not a port number (%s)", quote(port), hint)
	}
	address, _, _ := strings.Cut(host, "%")
	if host != "" && !hostText.MatchString(host) && net.ParseIP(address) == nil {
		return "", "", fmt.Errorf("has host %s, which is neither a name nor an IP address (write host:port)", quote(host))
	}
	return host, port, nil
}

func checkSocketPath(path string) error {
	switch {
	case !strings.HasPrefix(path, "/"):
		return errors.New("is not an absolute socket path (write unix:/run/app.sock)")
	case strings.HasSuffix(path, "/"):
		return errors.New("names a directory where a socket is needed (write unix:/run/app.sock)")
	case len(path) > unixPathBytes:
		return fmt.Errorf("has a path of %d bytes, more than the %d that a socket may have (use a shorter directory)", len(path), unixPathBytes)
	case strings.ContainsFunc(path, isControl):
		return errors.New("has a control character in its path (take it out)")
	}
	return nil
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }
