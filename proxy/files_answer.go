package proxy

import (
	"errors"
	"net/http"
	"slices"
	"strconv"

	"github.com/valyala/fasthttp"
	"go.uber.org/zap"

	"holdfast/internal/http1"
)

// answerFile answers with a file, or with what the request's conditions make of
// that: 206 and 416 for a range, 304, 412. said are the fields of the app's
// answer that go out with it, where an app named it. keep: the connection may
// go on. The caller closes the file.
func (c *clientConn) answerFile(rt *Route, file *servedFile, said []http1.Field, keep bool) (bool, error) {
	c.record.phase = phaseAnswering
	a := fileAnswer{client: c, files: rt.Files, file: file, said: said, keep: keep, status: http.StatusOK}
	if c.req.isGET() || c.req.isHEAD() {
		asked := c.req.conditions()
		if status := asked.judge(file.validators); status != 0 {
			return a.withoutBody(status)
		}
		if ranges, ok := asked.ranges(file.validators, file.size); ok && c.req.isGET() && a.hasRanges() {
			if len(ranges) == 0 {
				return c.answerOrEnd(rangeNotSatisfiable(file.size, said), keep)
			}
			a.status, a.ranges = http.StatusPartialContent, ranges
		}
	}
	err := a.send()
	if errors.Is(err, errFileCut) {
		c.server.log.Warn("a file could not be sent whole, its answer is cut", zap.String("route", rt.Match), zap.String("file", file.name), zap.Error(err))
	}
	return keep, err
}

func rangeNotSatisfiable(size int64, said []http1.Field) *fault {
	return &fault{reason: reasonRangeNotSatisfiable, text: "no range that is asked for is in the file",
		fields: append([]string{"Content-Range", "bytes */" + strconv.FormatInt(size, 10)}, cookiesOf(said)...)}
}

// answerOrEnd answers with a fault, and ends the connection behind it unless it
// may go on.
func (c *clientConn) answerOrEnd(f *fault, keep bool) (bool, error) {
	if keep {
		return c.answerFault(f)
	}
	return false, f
}

// fileAnswer is an answer with a file, or a part of one.
type fileAnswer struct {
	client *clientConn
	files  *Files
	file   *servedFile
	said   []http1.Field // by the app; nil: nobody has
	keep   bool
	status int
	ranges []byteRange // of a 206
}

// send sends head and body. What is small goes out in one write, with the file
// closed before it: a client that takes its time keeps no descriptor of ours.
func (a *fileAnswer) send() error {
	c, contentType := a.client, a.contentType()
	parts := []filePart{{byteRange: byteRange{0, a.file.size}}}
	length, tail := a.file.size, []byte(nil)
	if len(a.ranges) == 1 {
		parts[0].byteRange, length = a.ranges[0], a.ranges[0].length
	} else if len(a.ranges) > 1 {
		boundary := string(appendNewID(nil))
		parts, tail, length = multipart(a.ranges, boundary, contentType, a.file.size)
		contentType = "multipart/byteranges; boundary=" + boundary
	}
	c.record.status = a.status
	head := append(append(append(a.head(nil), "Content-Type: "...), contentType...), "\r\n"...)
	if len(a.ranges) == 1 {
		head = a.ranges[0].appendContentRange(head, a.file.size)
	}
	head = strconv.AppendInt(append(head, "Content-Length: "...), length, 10)
	w := &fileWriter{client: c, file: a.file.File}
	if err := w.add(append(head, "\r\n\r\n"...)); err != nil {
		return err
	}
	if c.req.isHEAD() {
		return w.flush()
	}
	for _, part := range parts {
		if err := w.add(part.head); err != nil {
			return err
		}
		if err := w.addFile(part.byteRange); err != nil {
			return err
		}
	}
	if err := w.add(tail); err != nil {
		return err
	}
	a.file.Close()
	return w.flush()
}

// withoutBody answers 304, or 412.
func (a *fileAnswer) withoutBody(status int) (keep bool, err error) {
	a.status, a.client.record.status = status, status
	head := a.head(nil)
	if status != http.StatusNotModified {
		head = append(head, "Content-Length: 0\r\n"...)
	}
	return a.keep, a.client.writeOnce(append(head, "\r\n"...))
}

// head is the answer's head but for what describes its body: the file's own
// fields, then the app's, then those of the route that the app has not said.
func (a *fileAnswer) head(dst []byte) []byte {
	dst = appendStatusLine(dst, a.status, []byte(http.StatusText(a.status)))
	dst = appendDate(dst)
	if !a.file.modified.IsZero() {
		dst = append(fasthttp.AppendHTTPDate(append(dst, "Last-Modified: "...), a.file.modified), "\r\n"...)
	}
	dst = append(append(append(dst, "ETag: "...), a.file.etag...), "\r\n"...)
	if a.hasRanges() {
		dst = append(dst, "Accept-Ranges: bytes\r\n"...)
	} else {
		dst = append(dst, "Accept-Ranges: none\r\n"...)
	}
	// The type is what the name says, or the app: no browser is to guess another.
	dst = append(dst, "X-Content-Type-Options: nosniff\r\n"...)
	for _, f := range a.said {
		if !http1.EqualFold(f.Name, "content-type") && !http1.EqualFold(f.Name, "accept-ranges") {
			dst = appendField(dst, f)
		}
	}
	if a.files.CacheControl != "" && !a.says("Cache-Control") {
		dst = append(append(append(dst, "Cache-Control: "...), a.files.CacheControl...), "\r\n"...)
	}
	for i := 0; i < len(a.files.Fields); i += 2 {
		if name := a.files.Fields[i]; !a.says(name) && !http1.EqualFold([]byte(name), "content-type") {
			dst = appendField(dst, http1.Field{Name: []byte(name), Value: []byte(a.files.Fields[i+1])})
		}
	}
	return appendPersistence(dst, a.keep, a.client.req.minor == 0)
}

// says reports whether the app has said a field.
func (a *fileAnswer) says(name string) bool {
	return slices.ContainsFunc(a.said, func(f http1.Field) bool { return len(f.Name) == len(name) && equalFold(f.Name, []byte(name)) })
}

// hasRanges: the app has not said that there are none.
func (a *fileAnswer) hasRanges() bool {
	return !slices.ContainsFunc(a.said, func(f http1.Field) bool {
		return http1.EqualFold(f.Name, "accept-ranges") && http1.HasElement(f.Value, "none")
	})
}

// contentType is what the app says, else the route, else the name.
func (a *fileAnswer) contentType() string {
	for _, f := range a.said {
		if http1.EqualFold(f.Name, "content-type") && len(f.Value) > 0 {
			return string(f.Value)
		}
	}
	for i := 0; i < len(a.files.Fields); i += 2 {
		if http1.EqualFold([]byte(a.files.Fields[i]), "content-type") {
			return a.files.Fields[i+1]
		}
	}
	return typeOf(a.file.name)
}
