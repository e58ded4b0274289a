package proxy

import (
	"bytes"
	"strconv"

	"holdfast/internal/http1"
)

// byteRange is a part of a file: length is above zero.
type byteRange struct{ at, length int64 }

// rangesAtOnce is how many ranges a request may ask for. Each is a part with a
// head of its own, and small or overlapping ones are how little is asked and
// much is sent (RFC 9110 §17.15). Readers of PDF files ask for some ten; who
// asks for more gets the whole file, and so does who asks for more bytes than
// there are.
const rangesAtOnce = 32

// parseRange reads a Range (RFC 9110 §14.2) for a file of size bytes, which is
// above zero. ok is false where the field is not heeded: another unit than
// bytes, malformed, or too many. Ranges that are not in the file are left out;
// with none left the answer is 416. Their order is the client's.
func parseRange(value []byte, size int64) (ranges []byteRange, ok bool) {
	unit, list, ok := bytes.Cut(value, []byte("="))
	if !ok || !http1.EqualFold(unit, "bytes") {
		return nil, false
	}
	asked, sum := 0, int64(0)
	for {
		element, rest, more := http1.NextElement(list)
		if !more {
			break
		}
		if list = rest; len(element) == 0 {
			continue // RFC 9110 §5.6.1.2
		}
		if asked++; asked > rangesAtOnce {
			return nil, false
		}
		part, inside, ok := parseOneRange(element, size)
		if !ok {
			return nil, false
		}
		if inside {
			if sum += part.length; sum > size {
				return nil, false
			}
			ranges = append(ranges, part)
		}
	}
	return ranges, asked > 0
}

// parseOneRange reads one of FIRST-LAST, FIRST- and -LENGTH (RFC 9110 §14.1.2).
// Numbers beyond 63 bits are beyond any file.
func parseOneRange(element []byte, size int64) (part byteRange, inside, ok bool) {
	from, to, ok := bytes.Cut(element, []byte("-"))
	if !ok {
		return part, false, false
	}
	last, lastHuge, lastOK := http1.ParseLength(to)
	if len(from) == 0 {
		if lastHuge || last > size {
			last = size
		}
		return byteRange{size - last, last}, last > 0, lastOK
	}
	first, firstHuge, firstOK := http1.ParseLength(from)
	switch {
	case !firstOK, len(to) > 0 && !lastOK:
		return part, false, false
	case len(to) > 0 && !lastHuge && (firstHuge || last < first):
		return part, false, false
	case firstHuge || first >= size:
		return part, false, true
	case len(to) == 0 || lastHuge || last >= size:
		last = size - 1
	}
	return byteRange{first, last - first + 1}, true, true
}

// appendContentRange says which part of a file this is (RFC 9110 §14.4).
func (r byteRange) appendContentRange(dst []byte, size int64) []byte {
	dst = strconv.AppendInt(append(dst, "Content-Range: bytes "...), r.at, 10)
	dst = strconv.AppendInt(append(dst, '-'), r.at+r.length-1, 10)
	return append(strconv.AppendInt(append(dst, '/'), size, 10), "\r\n"...)
}

// filePart is a range of a file with what goes before it.
type filePart struct {
	head []byte
	byteRange
}

// multipart makes the parts of a multipart/byteranges answer (RFC 9110 §14.6),
// and what comes behind the last; length is that of it all.
func multipart(ranges []byteRange, boundary, contentType string, size int64) (parts []filePart, tail []byte, length int64) {
	for i, r := range ranges {
		var head []byte
		if i > 0 {
			head = append(head, "\r\n"...)
		}
		head = append(append(append(head, "--"...), boundary...), "\r\nContent-Type: "...)
		head = r.appendContentRange(append(append(head, contentType...), "\r\n"...), size)
		parts = append(parts, filePart{append(head, "\r\n"...), r})
		length += int64(len(parts[i].head)) + r.length
	}
	tail = append(append(append(tail, "\r\n--"...), boundary...), "--\r\n"...)
	return parts, tail, length + int64(len(tail))
}
