// Package http1 is the grammar of HTTP/1.1 that both sides of a proxy need:
// tokens, field lines and the chunked coding, read strictly and without I/O.
// What a message means is not its business: proxy decides that for requests,
// upstream for answers.
//
//	field, err := http1.ParseField(line)   // one line, without its CRLF
//	n, data, done, err := chunked.Next(in) // as much as in holds
//
// Nothing is copied: names, values and data are slices of what was passed in.
package http1

import (
	"bytes"
	"errors"
)

// Field is one field line of a head (RFC 9110 §5): the name as it was
// written, the value without the white space around it. Both are slices of
// the buffer the line was read into.
type Field struct{ Name, Value []byte }

// Faults of a field line (RFC 9112 §5).
var (
	ErrFieldName  = errors.New("a field name is not a token directly followed by a colon")
	ErrFieldFold  = errors.New("a field line begins with white space")
	ErrFieldValue = errors.New("a field value has a control byte")
	ErrBareLF     = errors.New("a line ends with LF alone")
)

const (
	classToken = 1 << iota // tchar, RFC 9110 §5.6.2
	classValue             // field-vchar, SP, HTAB and obs-text, RFC 9110 §5.5
	classDigit
	classHex
)

var class = func() (t [256]byte) {
	for c := 0; c < 256; c++ {
		if c >= 0x20 && c != 0x7f || c == '\t' {
			t[c] |= classValue
		}
		switch {
		case c >= '0' && c <= '9':
			t[c] |= classToken | classDigit | classHex
		case c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F':
			t[c] |= classToken | classHex
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z':
			t[c] |= classToken
		}
	}
	for _, c := range "!#$%&'*+-.^_`|~" {
		t[c] |= classToken
	}
	return t
}()

// IsToken reports whether b is a token: one or more tchar.
func IsToken(b []byte) bool {
	for _, c := range b {
		if class[c]&classToken == 0 {
			return false
		}
	}
	return len(b) > 0
}

// IsValue reports whether b may stand in a field value: no control byte but HTAB.
func IsValue(b []byte) bool {
	for _, c := range b {
		if class[c]&classValue == 0 {
			return false
		}
	}
	return true
}

// IsDigits reports whether b is one or more decimal digits.
func IsDigits(b []byte) bool {
	for _, c := range b {
		if class[c]&classDigit == 0 {
			return false
		}
	}
	return len(b) > 0
}

// TrimSpace takes the optional white space (SP and HTAB, RFC 9110 §5.6.3) off
// both ends.
func TrimSpace(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	for len(b) > 0 && (b[len(b)-1] == ' ' || b[len(b)-1] == '\t') {
		b = b[:len(b)-1]
	}
	return b
}

// ParseField reads one field line, given without its CRLF.
func ParseField(line []byte) (Field, error) {
	i := 0
	for i < len(line) && class[line[i]]&classToken != 0 {
		i++
	}
	if i == 0 && len(line) > 0 && (line[0] == ' ' || line[0] == '\t') {
		return Field{}, ErrFieldFold
	}
	if i == 0 || i == len(line) || line[i] != ':' {
		return Field{}, ErrFieldName
	}
	value := TrimSpace(line[i+1:])
	if !IsValue(value) {
		return Field{}, ErrFieldValue
	}
	return Field{line[:i], value}, nil
}

// EqualFold reports whether b is lower, in any case of its ASCII letters.
// lower has no capital letters.
func EqualFold(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// HasPrefixFold reports whether b begins with lower, in any case.
func HasPrefixFold(b []byte, lower string) bool {
	return len(b) >= len(lower) && EqualFold(b[:len(lower)], lower)
}

// ContainsFold reports whether lower is in b, in any case.
func ContainsFold(b []byte, lower string) bool {
	for i := range len(b) - len(lower) + 1 {
		if HasPrefixFold(b[i:], lower) {
			return true
		}
	}
	return false
}

// NextElement cuts the first element off a comma-separated list
// (RFC 9110 §5.6.1) and returns it without white space around it. An empty
// list has no element; between and beside commas elements may be empty.
func NextElement(list []byte) (element, rest []byte, ok bool) {
	if len(list) == 0 {
		return nil, nil, false
	}
	for i, c := range list {
		if c == ',' {
			return TrimSpace(list[:i]), list[i+1:], true
		}
	}
	return TrimSpace(list), nil, true
}

// HasElement reports whether lower is an element of the list, in any case.
func HasElement(list []byte, lower string) bool {
	for {
		element, rest, ok := NextElement(list)
		if !ok {
			return false
		}
		if EqualFold(element, lower) {
			return true
		}
		list = rest
	}
}

// ParseLength reads a Content-Length: digits only (RFC 9110 §8.6). tooLarge
// says that the digits are right and the number is beyond 2^63-1.
func ParseLength(b []byte) (length int64, tooLarge, ok bool) {
	if !IsDigits(b) {
		return 0, false, false
	}
	for _, c := range b {
		if length > (1<<63-1-int64(c-'0'))/10 {
			return 0, true, true
		}
		length = length*10 + int64(c-'0')
	}
	return length, false, true
}

// ScanHead looks for the empty line that ends a head. from is the start of
// the first line not looked at yet: 0 at first, then the next of the call
// before. end is the offset behind the empty line, 0 while it has not come.
// A line that ends with LF alone is ErrBareLF (RFC 9112 §2.2 lets a recipient
// take it; two that differ about it see two different messages).
func ScanHead(head []byte, from int) (end, next int, err error) {
	for {
		i := bytes.IndexByte(head[from:], '\n')
		if i < 0 {
			return 0, from, nil
		}
		if i == 0 || head[from+i-1] != '\r' {
			return 0, from, ErrBareLF
		}
		if i == 1 {
			return from + 2, from + 2, nil
		}
		from += i + 1
	}
}
