package holds

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"holdfast/internal/http1"
)

// MaxChannels is how many channels one hold may join, and one event may be
// published to.
const MaxChannels = 64

// maxChannelBytes bounds a channel's name, decoded.
const maxChannelBytes = 255

// ParseChannels reads one field value that lists channels and appends their
// names to into: elements between commas, optional white space around them,
// percent-encoded. Several fields of one name add up by passing what came out
// as into. An empty element is skipped.
//
// An element is no channel, and counts as bad, if it has a broken escape, a
// byte as it is that has to be escaped (white space inside, anything beyond
// visible ASCII), or if CheckChannel refuses what it decodes to.
//
// A name is kept once, at its first place. More than MaxChannels names means
// that there are more than MaxChannels different ones; from there on
// duplicates stay, because looking for them would cost the square of the
// list. into grows no longer than the value has elements.
func ParseChannels(value []byte, into []string) (names []string, bad int) {
	names = into
	for {
		element, rest, ok := http1.NextElement(value)
		if !ok {
			return names, bad
		}
		value = rest
		if len(element) == 0 {
			continue
		}
		name, ok := decodeChannel(element)
		if !ok {
			bad++
			continue
		}
		names = appendChannel(names, name)
	}
}

// appendChannel keeps a name once, as far as ParseChannels promises it.
func appendChannel(names []string, name string) []string {
	if len(names) <= MaxChannels && slices.Contains(names, name) {
		return names
	}
	return append(names, name)
}

func decodeChannel(element []byte) (name string, ok bool) {
	var decoded [maxChannelBytes]byte
	n := 0
	for i := 0; i < len(element); i++ {
		c := element[i]
		if !visible(c) || n == len(decoded) {
			return "", false
		}
		if c == '%' {
			if i+2 >= len(element) {
				return "", false
			}
			high, low := unhex(element[i+1]), unhex(element[i+2])
			if high < 0 || low < 0 {
				return "", false
			}
			c = byte(high<<4 | low)
			i += 2
		}
		decoded[n] = c
		n++
	}
	name = string(decoded[:n])
	return name, CheckChannel(name) == nil
}

// EncodeChannels is the reverse of ParseChannels: one field value with the
// names in their order, separated by commas alone, so that an app that splits
// at them need not trim. What CheckChannel refuses is written too, but is not
// read back.
func EncodeChannels(names []string) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for i, name := range names {
		if i > 0 {
			b.WriteByte(',')
		}
		for _, c := range []byte(name) {
			if visible(c) && c != ',' && c != '%' {
				b.WriteByte(c)
				continue
			}
			b.Write([]byte{'%', digits[c>>4], digits[c&15]})
		}
	}
	return b.String()
}

// The faults of a channel's name.
var (
	errChannelEmpty   = errors.New("a channel's name is empty; it has 1 to 255 bytes")
	errChannelControl = errors.New("a channel's name has a control byte (0x00 to 0x1f, 0x7f); take it out")
)

// CheckChannel says what is wrong with a literal name, as JSON and grants
// have it: 1 to 255 bytes, none of them a control byte (0x00 to 0x1f, 0x7f).
// A name is bytes: it need not be UTF-8, and is compared as it stands.
func CheckChannel(name string) error {
	if name == "" {
		return errChannelEmpty
	}
	if len(name) > maxChannelBytes {
		return fmt.Errorf("a channel's name has %d bytes; it has 1 to %d", len(name), maxChannelBytes)
	}
	if hasControl(name) {
		return errChannelControl
	}
	return nil
}

// hasControl reports whether s has a control byte of ASCII.
func hasControl(s string) bool {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] == 0x7f {
			return true
		}
	}
	return false
}

// visible is RFC 5234's VCHAR.
func visible(c byte) bool { return c > 0x20 && c < 0x7f }

// unhex is the value of a hexadecimal digit, -1 if c is none.
func unhex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
