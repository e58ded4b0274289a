package proxy

import (
	"bytes"
	"net"
	"net/netip"
	"strings"

	"holdfast/internal/http1"
)

// Trusted names the peers whose word about the client is believed: proxies
// that stand in front of us.
type Trusted struct {
	// Networks are believed by address.
	Networks []netip.Prefix
	// Unix: whoever connects through a unix socket is believed.
	Unix bool
}

func (t Trusted) has(addr netip.Addr) bool {
	addr = addr.WithZone("") // a network has its addresses whatever link they came by
	for _, network := range t.Networks {
		if network.Contains(addr) {
			return true
		}
	}
	return false
}

// peer is who is at the other end of a connection.
type peer struct {
	addr    netip.Addr // invalid on a unix socket
	text    string     // addr as written in X-Forwarded-For; "" on a unix socket
	trusted bool
}

func peerOf(nc net.Conn, t Trusted) peer {
	tcp, ok := nc.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return peer{trusted: t.Unix}
	}
	addr := tcp.AddrPort().Addr().Unmap()
	return peer{addr: addr, text: addr.WithZone("").String(), trusted: t.has(addr)}
}

// client is the address of the request's client: the peer's, or, behind
// trusted proxies, the last address of X-Forwarded-For that is not one of
// theirs. Invalid: it came through a unix socket and nobody said more.
// known is false where a proxy of ours has named it in a word that is none.
func (c *clientConn) client() (addr netip.Addr, known bool) {
	if !c.peer.trusted {
		return c.peer.addr, true
	}
	client := c.peer.addr
	for i := len(c.req.fields) - 1; i >= 0; i-- {
		f := c.req.fields[i]
		if f.kind != kindForwarded || !http1.EqualFold(f.Name, "x-forwarded-for") {
			continue
		}
		list := f.Value
		for len(list) > 0 {
			last := list
			if comma := bytes.LastIndexByte(list, ','); comma >= 0 {
				last, list = list[comma+1:], list[:comma]
			} else {
				list = nil
			}
			word := string(http1.TrimSpace(last))
			if word == "" {
				continue
			}
			addr, err := parseForwardedAddr(word)
			if err != nil {
				return client, false // nothing before a word that is none can be believed
			}
			if client = addr; !c.site.cfg.Trusted.has(addr) {
				return client, true
			}
		}
	}
	return client, true
}

// parseForwardedAddr reads an address as proxies write it, with or without a port.
func parseForwardedAddr(text string) (netip.Addr, error) {
	if addr, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]")); err == nil {
		return addr.Unmap(), nil
	}
	with, err := netip.ParseAddrPort(text)
	return with.Addr().Unmap(), err
}

// near reports whether the client is on this machine or is trusted itself.
func (c *clientConn) near() bool {
	client, known := c.client()
	if !known {
		return false
	}
	if !client.IsValid() {
		return true // a unix socket
	}
	return client.IsLoopback() || c.site.cfg.Trusted.has(client)
}
