package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"

	"holdfast/internal/tcp"
)

// Files serves the regular files of a directory, and of those below it, to GET
// and HEAD. What is below the route's pattern names the file; a pattern without
// anything below it stands for the file of its last segment. A file that is
// not there is a miss: the next route that matches takes the request.
//
// There is no index page and no listing: a directory is a miss. So is whatever
// is no regular file, a name with a segment that is empty or begins with a dot,
// a symbolic link that is absolute or leads out of the directory, and a file
// that may not be read.
type Files struct {
	// Dir is opened anew for each request: where it is replaced, or is a link
	// that is turned to another release, the next request is of the new one.
	Dir string
	// CacheControl is the Cache-Control of its files; "": none.
	CacheControl string
	// Fields go out with its files: name, value, ... A Content-Type among them
	// is that of all files.
	Fields []string
	// Internal: only an app's answer leads there, with X-Accel-Redirect. To the
	// network it is 404, whatever the method and whether there is a file or not.
	Internal bool

	toldDir, toldFile sync.Once // that it cannot be opened, and that a file of it cannot
}

// servedFile is a file that is open to be sent. Its size is what it had when it
// was opened: what is added later is not sent.
type servedFile struct {
	*os.File
	name string // below the directory
	size int64
	validators
}

// Why a file is not served, besides what the system says.
var (
	errNoDirectory = errors.New("the directory cannot be opened")
	errNotRegular  = errors.New("it is no regular file")
)

// open opens a file by its name below the directory. No link leads out of it:
// the system opens the segments one by one, each in the directory before it.
// It never waits: a pipe opens at once, and is then found to be none.
func (f *Files) open(name string) (*servedFile, error) {
	root, err := os.OpenRoot(f.Dir)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoDirectory, err)
	}
	defer root.Close()
	file, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errNotRegular
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return &servedFile{file, name, info.Size(), validatorsOf(info.Size(), info.ModTime(), time.Now())}, nil
}

// isMiss reports whether an error of open is one of an ordinary miss, of which
// nobody need be told.
func isMiss(err error) bool {
	if errors.Is(err, errNoDirectory) {
		return false
	}
	// ENXIO is a socket's, ELOOP that of links in a circle.
	for _, miss := range []error{fs.ErrNotExist, errNotRegular, syscall.ENOTDIR, syscall.ENAMETOOLONG, syscall.ELOOP, syscall.ENXIO} {
		if errors.Is(err, miss) {
			return true
		}
	}
	return false
}

// fileName is the part of a decoded path that names a file below the route's
// directory; false: it can name none.
func (rt *Route) fileName(decoded []byte) (name string, ok bool) {
	rest := decoded[1:]
	for range rt.before {
		i := bytes.IndexByte(rest, '/')
		if i < 0 {
			return "", false
		}
		rest = rest[i+1:]
	}
	return string(rest), isFileName(rest)
}

// isFileName reports whether a name may be looked for. A dot in front hides a
// file, and such files (.git, .env) are not meant to be published; "." and ".."
// are among them. A backslash parts segments elsewhere, a NUL ends a name for
// the system.
func isFileName(name []byte) bool {
	for segment := range bytes.SplitSeq(name, []byte("/")) {
		if len(segment) == 0 || segment[0] == '.' || bytes.ContainsAny(segment, "\x00\\") {
			return false
		}
	}
	return true
}

// openFile opens a file of a route. Without an error there is either a file or
// a miss, nil. What cannot be read is a miss too, and said once for each route:
// a request can be repeated at will.
func (c *clientConn) openFile(rt *Route, name string) (*servedFile, *fault) {
	file, err := rt.Files.open(name)
	switch {
	case err == nil:
		return file, nil
	case tcp.OutOfResources(err), errors.Is(err, syscall.EIO):
		return nil, &fault{reason: reasonInternal, cause: err, text: "the file could not be opened; the log names the cause"}
	case errors.Is(err, errNoDirectory):
		rt.Files.toldDir.Do(func() {
			c.server.log.Warn("the directory of a files route cannot be opened, nothing of it is served", zap.String("route", rt.Match), zap.Error(err))
		})
	case !isMiss(err):
		rt.Files.toldFile.Do(func() {
			c.server.log.Warn("a file cannot be read, it is as if it were not there; the next ones of its route are not told", zap.String("route", rt.Match), zap.Error(err))
		})
	}
	return nil, nil
}

// findFile looks for the file that a request names: in the directory of the
// route that matched, then in that of the next that matches, and so on until
// one has it or is of another kind. next is the route that takes the request;
// nil: none does. That a path is of an internal route is not told.
func (c *clientConn) findFile(rt *Route) (next *Route, file *servedFile, f *fault) {
	path, _ := c.req.cutQuery()
	decoded := decodePath(path)
	var missed []*Route
	for rt != nil && rt.Files != nil {
		c.record.route = rt
		if rt.Files.Internal {
			return nil, nil, nil
		}
		if name, ok := rt.fileName(decoded); ok {
			if file, f = c.openFile(rt, name); file != nil || f != nil {
				return rt, file, f
			}
		}
		missed = append(missed, rt)
		rt, _ = c.site.routes.matchBeyond(c.req.method, c.req.host, decoded, missed)
	}
	if rt == nil {
		return nil, nil, &fault{reason: reasonNoRoute, text: "there is no such file, and no other route takes this path"}
	}
	c.record.route = rt
	return rt, nil, nil
}

// serveFile answers with a file of a route.
func (c *clientConn) serveFile(rt *Route, file *servedFile) (keep bool, err error) {
	defer file.Close()
	if err := c.skipBody(); err != nil {
		return false, err
	}
	return c.answerFile(rt, file, nil, c.keepAlive())
}

// validators are what a client may ask with whether its copy is still good
// (RFC 9110 §8.8).
type validators struct {
	etag string
	// modified has whole seconds, as the field has; zero: it is not said.
	modified time.Time
}

// validatorsOf makes them of a file's size and time. The tag is strong: the
// time is in nanoseconds, and the system moves it with each change of the
// content. Two contents have one tag only where they have one size and were
// written within one tick of the system's clock, some milliseconds, or where
// somebody sets the time; what such a tool writes (reproducible builds, rsync -t)
// belongs under names that change with the content. Neither inode nor change
// time are in it, so that several machines with the same files have the same tags.
func validatorsOf(size int64, modified, now time.Time) validators {
	tag := append(strconv.AppendInt([]byte{'"'}, modified.UnixNano(), 16), '-')
	v := validators{etag: string(append(strconv.AppendInt(tag, size, 16), '"'))}
	if modified.After(now) {
		modified = now // RFC 9110 §8.8.2.1
	}
	if modified.Unix() > 0 { // otherwise nobody has set it
		v.modified = modified.Truncate(time.Second).UTC()
	}
	return v
}
