package proxy

import (
	"bytes"
	"net/http"
	"time"

	"holdfast/internal/http1"
)

// conditions are the fields by which the answer to a request for a file depends
// on what its client has already (RFC 9110 §13.1), and the part that it wants.
type conditions struct {
	match, noneMatch                             [][]byte
	modifiedSince, unmodifiedSince, part, ifPart sole
}

// sole is the value of a field that may stand once. Twice it means nothing, and
// is left out of account.
type sole struct {
	value []byte
	times int
}

func (s *sole) note(value []byte) { s.value, s.times = value, s.times+1 }

// date is the value as a date; false: there is none that is well-formed.
func (s sole) date() (at time.Time, ok bool) {
	if s.times != 1 {
		return at, false
	}
	at, err := http.ParseTime(string(s.value))
	return at, err == nil
}

func (r *request) conditions() (k conditions) {
	for _, f := range r.fields {
		if f.kind != kindPlain {
			continue
		}
		switch is := func(name string) bool { return http1.EqualFold(f.Name, name) }; {
		case is("if-match"):
			k.match = append(k.match, f.Value)
		case is("if-none-match"):
			k.noneMatch = append(k.noneMatch, f.Value)
		case is("if-modified-since"):
			k.modifiedSince.note(f.Value)
		case is("if-unmodified-since"):
			k.unmodifiedSince.note(f.Value)
		case is("range"):
			k.part.note(f.Value)
		case is("if-range"):
			k.ifPart.note(f.Value)
		}
	}
	return k
}

// judge gives the status that the conditions make of an answer, in the order of
// RFC 9110 §13.2.2: 412, 304, or 0, none.
func (k *conditions) judge(v validators) (status int) {
	if k.match != nil {
		if !v.in(k.match, false) {
			return http.StatusPreconditionFailed
		}
	} else if at, ok := k.unmodifiedSince.date(); ok && !v.modified.IsZero() && v.modified.After(at) {
		return http.StatusPreconditionFailed
	}
	if k.noneMatch != nil {
		if v.in(k.noneMatch, true) {
			return http.StatusNotModified
		}
	} else if at, ok := k.modifiedSince.date(); ok && !v.modified.IsZero() && !v.modified.After(at) {
		return http.StatusNotModified
	}
	return 0
}

// ranges gives the ranges of a file that are asked for; false: all of it is, or
// nothing that can be read, or what the client has is of another content
// (If-Range). None: no range that is asked for is in the file. A file of no
// bytes has none, and then it is sent, whatever is asked for.
func (k *conditions) ranges(v validators, size int64) (ranges []byteRange, ok bool) {
	if k.part.times != 1 || size == 0 || k.ifPart.times > 0 && !k.ifPart.holds(v) {
		return nil, false
	}
	return parseRange(k.part.value, size)
}

// holds reports whether an If-Range is true: its tag is ours, or its date,
// exactly. A client may not send a date that is not a strong validator to it
// (RFC 9110 §13.1.5).
func (s sole) holds(v validators) bool {
	if s.times != 1 {
		return false
	}
	if at, ok := s.date(); ok {
		return !v.modified.IsZero() && at.Equal(v.modified)
	}
	return string(s.value) == v.etag // a weak tag is never ours
}

// in reports whether lists of entity tags have ours, or are "*". weakly: one
// that is marked as weak counts. Behind what is malformed nothing counts.
func (v validators) in(lists [][]byte, weakly bool) bool {
	for _, list := range lists {
		if string(list) == "*" {
			return true
		}
		for {
			tag, weak, rest, ok := cutTag(list)
			if !ok {
				break
			}
			if list = rest; string(tag) == v.etag && (weakly || !weak) {
				return true
			}
		}
	}
	return false
}

// cutTag cuts the first entity tag off a list (RFC 9110 §8.8.3): with its
// quotes, between which there may be commas, and without its W/.
func cutTag(list []byte) (tag []byte, weak bool, rest []byte, ok bool) {
	list = bytes.TrimLeft(list, " \t,")
	if list, weak = bytes.CutPrefix(list, []byte("W/")); len(list) == 0 || list[0] != '"' {
		return nil, false, nil, false
	}
	for i, c := range list[1:] {
		switch {
		case c == '"':
			tag, rest = list[:i+2], bytes.TrimLeft(list[i+2:], " \t")
			return tag, weak, rest, len(rest) == 0 || rest[0] == ','
		case c <= ' ' || c == 0x7f:
			return nil, false, nil, false
		}
	}
	return nil, false, nil, false
}
