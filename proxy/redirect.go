package proxy

import (
	"bytes"
	"net/http"
	"slices"

	"go.uber.org/zap"

	"holdfast/internal/http1"
	"holdfast/lanes"
	"holdfast/upstream"
)

// redirect is an answer of the app that names a file for its client, with
// X-Accel-Redirect: the view has checked who may have it and is done, and the
// file is sent without it.
type redirect struct {
	route *Route // of files, internal
	name  string // below its directory; "": what the app wrote can name none
	said  []http1.Field
}

// saidFields are those of such an answer that go out with the file, as nginx has
// them. The rest of them described a body that nobody gets.
var saidFields = []string{"content-type", "content-disposition", "accept-ranges", "set-cookie", "cache-control", "expires"}

// redirected reads an answer's X-Accel-Redirect, the first if there are several.
// to is nil where there is nothing to follow; rest is what is to be served then.
// A field that does not name an internal route is not ours to heed, and goes on;
// one that does goes no further, whatever comes of it. Only a 200 is followed: a
// view that answers with an error has not let its client in.
func (c *clientConn) redirected(res *upstream.Response) (to *redirect, rest *upstream.Response) {
	const name = "x-accel-redirect"
	if !c.site.routes.internal {
		return nil, res
	}
	i := slices.IndexFunc(res.Fields, func(f http1.Field) bool { return http1.EqualFold(f.Name, name) })
	if i < 0 {
		return nil, res
	}
	to = c.site.routes.redirect(res.Fields[i].Value, c.req.host)
	switch {
	case to == nil:
		return nil, res
	case res.Status != http.StatusOK:
		c.server.log.Warn("X-Accel-Redirect of an answer that is not 200 is not followed",
			zap.String("route", c.record.route.Match), zap.Int("status", res.Status))
		return nil, without(res, name)
	}
	to.said = saidBy(res, c.requestID)
	return to, res
}

// redirect finds the internal route and the file that a value names; nil: no
// such route. The value is a path, percent-encoded; a query behind it is left
// out. It is matched as a client's GET of it would be.
func (t *table) redirect(value, host []byte) *redirect {
	path, _, _ := bytes.Cut(value, []byte("?"))
	if len(path) == 0 || path[0] != '/' {
		return nil
	}
	decoded := decodePath(path)
	rt, _ := t.match([]byte("GET"), host, decoded)
	if rt == nil || rt.Files == nil || !rt.Files.Internal {
		return nil
	}
	to := &redirect{route: rt}
	if name, ok := rt.fileName(decoded); ok {
		to.name = name
	}
	return to
}

// saidBy copies from an answer what goes out with the file, and the request's
// id where the app has not given one.
func saidBy(res *upstream.Response, id []byte) (said []http1.Field) {
	named := answerNames(res)
	hasID := false
	for _, f := range res.Fields {
		isID := kindOf(f.Name) == kindRequestID
		if !isID && !slices.ContainsFunc(saidFields, func(name string) bool { return http1.EqualFold(f.Name, name) }) ||
			named != nil && names(named, f.Name) {
			continue
		}
		hasID = hasID || isID
		said = append(said, http1.Field{Name: bytes.Clone(f.Name), Value: bytes.Clone(f.Value)})
	}
	if !hasID && len(id) > 0 {
		said = append(said, http1.Field{Name: []byte("X-Request-ID"), Value: bytes.Clone(id)})
	}
	return said
}

// cookiesOf are the fields among them that a client must get whatever becomes
// of the file: name, value, ...
func cookiesOf(said []http1.Field) (fields []string) {
	for _, f := range said {
		if http1.EqualFold(f.Name, "set-cookie") || kindOf(f.Name) == kindRequestID {
			fields = append(fields, string(f.Name), string(f.Value))
		}
	}
	return fields
}

// follow answers with the file that the app names. The slot is given back first:
// the app's own body is thrown away. up is what the client still sends, on a
// lane of streams.
func (c *clientConn) follow(ex *lanes.Exchange, to *redirect, up *upload) (keep bool, err error) {
	throwAway(ex)
	c.detach()
	keep = c.keepAlive() && (up == nil || up.isWhole())
	var file *servedFile
	var f *fault
	if to.name != "" {
		file, f = c.openFile(to.route, to.name)
	}
	if f == nil && file == nil {
		c.server.log.Warn("a view named a file with X-Accel-Redirect that is not there",
			zap.String("route", c.record.route.Match), zap.String("files", to.route.Match), zap.String("file", to.name))
		f = &fault{reason: reasonNoRoute, text: "the file is not there"}
	}
	if f != nil {
		f.fields = append(f.fields, cookiesOf(to.said)...)
		return c.answerOrEnd(f, keep)
	}
	defer file.Close()
	return c.answerFile(to.route, file, to.said, keep)
}

// throwAway reads an answer's body as far as it comes at once, which gives the
// slot back in all but rare cases. What is longer, or comes later, is read when
// nobody waits for it, as the answer to a client that left.
func throwAway(ex *lanes.Exchange) {
	scratch := outPool.Get().(*[]byte)
	defer outPool.Put(scratch)
	for read := 0; read < inMemory; {
		n, err := ex.ReadSoon(*scratch)
		if read += n; n == 0 || err != nil {
			break
		}
	}
	ex.Close()
}
