package http1

import (
	"bytes"
	"errors"
)

// Faults of a chunked body (RFC 9112 §7.1).
var (
	ErrChunkSize       = errors.New("a chunk size is not one to sixteen hexadecimal digits")
	ErrChunkExtension  = errors.New("a chunk extension is malformed")
	ErrChunkLine       = errors.New("chunk extensions are too long")
	ErrChunkEnd        = errors.New("a chunk's data is not followed by CRLF")
	ErrTrailerField    = errors.New("a trailer has a field that does not belong there")
	ErrTrailerTooLarge = errors.New("the trailer section is too large")
)

const (
	chunkLineBytes = 4 << 10  // one size line with its extensions
	extensionSpare = 16 << 10 // extensions in all, beyond one byte for each byte of data
	trailerFields  = 64
)

type chunkState uint8

const (
	chunkSize chunkState = iota // a size line
	chunkData
	chunkCR // the CR, then the LF, behind a chunk's data
	chunkLF
	chunkTrailer // trailer lines and the empty line
	chunkDone
)

// Chunked reads a chunked body (RFC 9112 §7.1) as its bytes come: strictly,
// because two readers that differ about where a body ends are how one request
// becomes two. It accepts what the grammar allows and nothing else: CRLF at
// every line end, sizes of at most 16 digits, well-formed extensions (thrown
// away) of at most 4 KiB a line and, in all, 16 KiB more than there is data.
// The trailer section is checked, and thrown away unless it is to be kept.
//
// TrailerBytes bounds the trailer section; zero means 16 KiB. Set it before
// the first Next; Reset keeps it.
type Chunked struct {
	TrailerBytes int
	// KeepTrailer keeps the trailer section for Trailer, as it came.
	KeepTrailer bool

	state      chunkState
	left       uint64 // of the present chunk's data
	data       uint64 // bytes of data announced so far
	extensions uint64
	trailer    int // bytes of the trailer section so far
	fields     int
	partial    []byte // a line whose end has not come yet
	kept       []byte // the trailer section, if it is kept
}

// Reset makes c ready for another body.
func (c *Chunked) Reset() {
	*c = Chunked{TrailerBytes: c.TrailerBytes, KeepTrailer: c.KeepTrailer, partial: c.partial[:0]}
}

// Trailer is the trailer section's lines with their CRLFs, without the empty
// line; only if KeepTrailer is set.
func (c *Chunked) Trailer() []byte { return c.kept }

// Announced is how many bytes of data the sizes read so far add up to: the
// body is at least that long.
func (c *Chunked) Announced() uint64 { return c.data }

// Next consumes as much of in as belongs to one step: it returns the number
// of bytes consumed, the data among them (a slice of in, perhaps empty) and
// whether the body has ended; bytes behind the end are not consumed. Call it
// again while n > 0 and not done; n == 0 means that it needs more bytes.
func (c *Chunked) Next(in []byte) (n int, data []byte, done bool, err error) {
	for n < len(in) {
		switch c.state {
		case chunkData:
			data = in[n:]
			if uint64(len(data)) > c.left {
				data = data[:c.left]
			}
			c.left -= uint64(len(data))
			if c.left == 0 {
				c.state = chunkCR
			}
			return n + len(data), data, false, nil
		case chunkCR, chunkLF:
			if in[n] != "\r\n"[c.state-chunkCR] {
				return n, nil, false, ErrChunkEnd
			}
			n++
			if c.state++; c.state > chunkLF {
				c.state = chunkSize
			}
		case chunkSize, chunkTrailer:
			line, used, err := c.line(in[n:])
			n += used
			if err != nil || line == nil {
				return n, nil, false, err
			}
			if c.state == chunkSize {
				err = c.size(line)
			} else {
				err = c.trailerLine(line)
			}
			c.partial = c.partial[:0]
			if err != nil {
				return n, nil, false, err
			}
		case chunkDone:
			return n, nil, true, nil
		}
	}
	return n, nil, c.state == chunkDone, nil
}

// line returns the next line without its CRLF, nil while its end has not come.
func (c *Chunked) line(in []byte) (line []byte, used int, err error) {
	limit, tooLong := chunkLineBytes, ErrChunkLine
	if c.state == chunkTrailer {
		if limit = c.TrailerBytes; limit == 0 {
			limit = 16 << 10
		}
		limit, tooLong = limit-c.trailer, ErrTrailerTooLarge
	}
	end := bytes.IndexByte(in, '\n')
	if end < 0 {
		if len(c.partial)+len(in) > limit {
			return nil, 0, tooLong
		}
		c.partial = append(c.partial, in...)
		return nil, len(in), nil
	}
	line, used = in[:end+1], end+1
	if len(c.partial) > 0 {
		c.partial = append(c.partial, line...)
		line = c.partial
	}
	if len(line) > limit {
		return nil, used, tooLong
	}
	if len(line) < 2 || line[len(line)-2] != '\r' {
		return nil, used, ErrBareLF
	}
	return line[:len(line)-2], used, nil
}

// size reads a size line: 1*HEXDIG and its extensions.
func (c *Chunked) size(line []byte) error {
	i := 0
	var size uint64
	for ; i < len(line) && class[line[i]]&classHex != 0; i++ {
		if i == 16 {
			return ErrChunkSize
		}
		size = size<<4 | uint64(hexValue(line[i]))
	}
	if i == 0 || size >= 1<<63 {
		return ErrChunkSize
	}
	if err := checkExtensions(line[i:]); err != nil {
		return err
	}
	c.extensions += uint64(len(line) - i)
	c.data += size
	if c.data >= 1<<63 {
		return ErrChunkSize
	}
	if c.extensions > extensionSpare+c.data {
		return ErrChunkLine
	}
	c.left = size
	if c.state = chunkData; size == 0 {
		c.state = chunkTrailer
	}
	return nil
}

func hexValue(c byte) byte {
	switch {
	case c <= '9':
		return c - '0'
	case c <= 'F':
		return c - 'A' + 10
	}
	return c - 'a' + 10
}

// checkExtensions reads *( BWS ";" BWS name [ BWS "=" BWS ( token / quoted-string ) ] ).
func checkExtensions(b []byte) error {
	for len(b) > 0 {
		if b = skipSpace(b); len(b) == 0 || b[0] != ';' {
			return ErrChunkExtension // white space with nothing behind it, too
		}
		var ok bool
		if b, ok = skipToken(skipSpace(b[1:])); !ok {
			return ErrChunkExtension
		}
		value := skipSpace(b)
		if len(value) == 0 || value[0] != '=' {
			continue
		}
		if value = skipSpace(value[1:]); len(value) > 0 && value[0] == '"' {
			b, ok = skipQuoted(value)
		} else {
			b, ok = skipToken(value)
		}
		if !ok {
			return ErrChunkExtension
		}
	}
	return nil
}

func skipSpace(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	return b
}

func skipToken(b []byte) (rest []byte, ok bool) {
	i := 0
	for i < len(b) && class[b[i]]&classToken != 0 {
		i++
	}
	return b[i:], i > 0
}

// skipQuoted passes a quoted-string (RFC 9110 §5.6.4); b begins with its quote.
func skipQuoted(b []byte) (rest []byte, ok bool) {
	for i := 1; i < len(b); i++ {
		switch {
		case class[b[i]]&classValue == 0:
			return nil, false
		case b[i] == '"':
			return b[i+1:], true
		case b[i] == '\\':
			if i++; i == len(b) || class[b[i]]&classValue == 0 {
				return nil, false
			}
		}
	}
	return nil, false
}

// trailerLine checks one line of the trailer section; the empty one ends the body.
func (c *Chunked) trailerLine(line []byte) error {
	if len(line) == 0 {
		c.state = chunkDone
		return nil
	}
	c.trailer += len(line) + 2
	if c.fields++; c.fields > trailerFields {
		return ErrTrailerTooLarge
	}
	field, err := ParseField(line)
	if err != nil {
		return err
	}
	if forbiddenTrailer(field.Name) {
		return ErrTrailerField
	}
	if c.KeepTrailer {
		c.kept = append(append(c.kept, line...), "\r\n"...)
	}
	return nil
}

// forbiddenTrailer names fields of framing, routing and authentication: a
// recipient that merges trailers into the head would let them through behind
// every check (RFC 9110 §6.5.1).
func forbiddenTrailer(name []byte) bool {
	for _, f := range [...]string{"transfer-encoding", "content-length", "host", "connection",
		"authorization", "proxy-authorization", "cookie", "set-cookie", "content-encoding",
		"content-type", "content-range", "trailer", "te", "upgrade", "expect", "cache-control",
		"max-forwards", "range"} {
		if EqualFold(name, f) {
			return true
		}
	}
	return false
}
