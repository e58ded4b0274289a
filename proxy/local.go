package proxy

import (
	"fmt"
	"net/http"
	"net/netip"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"holdfast/internal/http1"
)

// answer is what the proxy says itself.
type answer struct {
	status int
	reason string   // of a refusal; "" otherwise
	fields []string // name, value, …
	body   []byte
}

// Asked is a request for an answer of our own.
type Asked struct {
	Method string
	Path   string // without the query, as it was sent
	Query  string
	Body   []byte     // of a route with BodyBytes
	Client netip.Addr // invalid: a unix socket
	Near   bool       // the client is on this machine, or trusted
	// Verified: the client has shown a certificate that the listener's client CA
	// has signed.
	Verified bool
	fields   []field
}

// Field is the first value of a header field, "" if there is none. name is in
// lower case.
func (a *Asked) Field(name string) string {
	for _, f := range a.fields {
		if http1.EqualFold(f.Name, name) {
			return string(f.Value)
		}
	}
	return ""
}

func (c *clientConn) asked() *Asked {
	path, query, _ := strings.Cut(string(c.req.target), "?")
	client, _ := c.client()
	return &Asked{Method: string(c.req.method), Path: path, Query: query, Body: c.body,
		Client: client, Near: c.near(), Verified: c.tls != nil && c.tls.verified, fields: c.req.fields}
}

// local makes the answer of a route that is answered here. A fault of our own
// making is an answer too, and named in the log.
func (c *clientConn) local(rt *Route) (a *answer) {
	defer func() {
		if p := recover(); p != nil {
			f := &fault{reason: reasonInternal, text: "the answer could not be made; the log names the cause",
				cause: fmt.Errorf("panic: %v\n%s", p, debug.Stack())}
			c.logFault(f)
			a = f.answer()
		}
		c.record.status = a.status
	}()
	respond := rt.Respond
	if respond == nil {
		r := rt.Answer(c.asked())
		respond = &r
	}
	return &answer{status: respond.Status, fields: respond.Fields, body: respond.Body}
}

// fill hands the answer to fasthttp, which writes it.
func (a *answer) fill(res *fasthttp.Response) {
	res.SetStatusCode(a.status)
	res.Header.DisableNormalizing()
	for i := 0; i < len(a.fields); i += 2 {
		res.Header.Add(a.fields[i], a.fields[i+1])
	}
	res.SetBodyRaw(a.body)
}

// append renders the answer whole.
func (a *answer) append(dst []byte, head, keepAlive, oldClient bool) []byte {
	dst = appendStatusLine(dst, a.status, []byte(http.StatusText(a.status)))
	dst = appendDate(dst)
	for i := 0; i < len(a.fields); i += 2 {
		dst = append(dst, a.fields[i]...)
		dst = append(dst, ": "...)
		dst = append(dst, a.fields[i+1]...)
		dst = append(dst, "\r\n"...)
	}
	dst = appendPersistence(dst, keepAlive, oldClient)
	if a.status == http.StatusNoContent || a.status == http.StatusNotModified {
		return append(dst, "\r\n"...)
	}
	dst = append(dst, "Content-Length: "...)
	dst = strconv.AppendInt(dst, int64(len(a.body)), 10)
	dst = append(dst, "\r\n\r\n"...)
	if !head {
		dst = append(dst, a.body...)
	}
	return dst
}

// appendDate says when an answer was made (RFC 9110 §6.6.1).
func appendDate(dst []byte) []byte {
	return append(fasthttp.AppendHTTPDate(append(dst, "Date: "...), time.Now()), "\r\n"...)
}

// appendPersistence says whether the connection goes on (RFC 9112 §9.3).
func appendPersistence(dst []byte, keepAlive, oldClient bool) []byte {
	switch {
	case !keepAlive:
		return append(dst, "Connection: close\r\n"...)
	case oldClient:
		return append(dst, "Connection: keep-alive\r\n"...)
	}
	return dst
}
