package proxy

import (
	"net/http"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"
)

// answer is what the proxy says itself.
type answer struct {
	status int
	reason string   // of a refusal; "" otherwise
	fields []string // name, value, …
	body   []byte
}

// local gives the answer of a route that is answered here.
func (c *clientConn) local(rt *Route) *answer {
	if !c.req.isGET() && !c.req.isHEAD() {
		return (&fault{reason: reasonMethodNotAllowed, allow: "GET, HEAD",
			text: "this path is answered by the proxy, for GET and HEAD only"}).answer()
	}
	respond := rt.Respond
	if respond == nil {
		r := rt.Answer(c.near)
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
	dst = append(dst, "Date: "...)
	dst = fasthttp.AppendHTTPDate(dst, time.Now())
	dst = append(dst, "\r\n"...)
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
