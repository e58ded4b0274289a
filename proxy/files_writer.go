package proxy

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// errFileCut: the answer with a file has begun, or its head says so much, and
// the file has become shorter, or cannot be read on.
var errFileCut = errors.New("the file could not be read to the end that was announced")

// fileWriter sends pieces of memory and of a file: small ones are gathered and
// go out together, large ones pass through no memory of ours. It has a buffer
// only while there is something in it.
type fileWriter struct {
	client *clientConn
	file   *os.File
	buffer *[]byte // of outPool
	out    []byte  // what is in it
}

// add sends b, now or with what comes next.
func (w *fileWriter) add(b []byte) error {
	if len(w.out)+len(b) > outBytes {
		if err := w.flush(); err != nil {
			return err
		}
		if len(b) > outBytes {
			return w.client.writeOnce(b)
		}
	}
	w.needBuffer()
	w.out = append(w.out, b...)
	return nil
}

// addFile sends a part of the file: as much as the buffer has room for goes out
// with what is in it, the rest by itself.
func (w *fileWriter) addFile(r byteRange) error {
	w.needBuffer()
	n := int(min(r.length, int64(outBytes-len(w.out))))
	read, err := w.file.ReadAt(w.out[len(w.out):len(w.out)+n], r.at)
	w.out = w.out[:len(w.out)+read]
	if read < n {
		return fmt.Errorf("%w: %w", errFileCut, err)
	}
	if int64(n) == r.length {
		return nil
	}
	if err := w.flush(); err != nil {
		return err
	}
	return w.client.writeFile(w.file, byteRange{r.at + int64(n), r.length - int64(n)})
}

func (w *fileWriter) needBuffer() {
	if w.buffer == nil {
		w.buffer = outPool.Get().(*[]byte)
		w.out = (*w.buffer)[:0]
	}
}

// flush writes what was gathered, and gives the buffer back.
func (w *fileWriter) flush() error {
	if w.buffer == nil {
		return nil
	}
	err := w.client.writeOnce(w.out)
	outPool.Put(w.buffer)
	w.buffer, w.out = nil, nil
	return err
}

// writeFile is writeOnce for a part of a file: by sendfile on TCP, through
// memory where it is encrypted.
func (c *clientConn) writeFile(file *os.File, r byteRange) error {
	var through []byte
	if c.tls != nil {
		buffer := outPool.Get().(*[]byte)
		defer outPool.Put(buffer)
		through = *buffer
	}
	for waiting := -1; r.length > 0; {
		if _, err := file.Seek(r.at, io.SeekStart); err != nil {
			return fmt.Errorf("%w: %w", errFileCut, err)
		}
		c.extendWrite(c.site.cfg.BodyTimeout)
		n, err := io.CopyBuffer(c.Conn, &io.LimitedReader{R: file, N: r.length}, through)
		c.record.bytes += n
		r.at, r.length = r.at+n, r.length-n
		var unread *fs.PathError // on TCP it is an error of the connection, whichever side failed
		switch {
		case err == nil && r.length > 0:
			return fmt.Errorf("%w: %d bytes are missing", errFileCut, r.length)
		case errors.As(err, &unread), errors.Is(err, syscall.EIO):
			return fmt.Errorf("%w: %w", errFileCut, err)
		case err != nil && !c.takesStill(n, err, &waiting):
			return errLeft
		}
	}
	return nil
}
