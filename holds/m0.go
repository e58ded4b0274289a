package holds

import (
	"bytes"
	"strings"
	"time"
	"unicode/utf8"

	"holdfast/internal/http1"
)

// The bounds of M0-Timeout. Below a second a long poll is a busy loop; the
// upper one only keeps a slip (milliseconds for seconds) from being for ever.
const (
	pollTimeoutDefault = 55 * time.Second
	pollTimeoutLeast   = time.Second
	pollTimeoutMost    = 24 * time.Hour
)

// parseM0 reads the M0-* fields of an answer that has an M0-Hold. It may
// return more than MaxChannels channels. Of a field that takes one value the
// first counts, except M0-Hold: see ParseInstruction.
func parseM0(fields []http1.Field) Instruction {
	var in Instruction
	var envelope, timeout []byte
	agree, modes := true, 0
	for _, f := range fields {
		if !http1.HasPrefixFold(f.Name, "m0-") {
			continue
		}
		switch {
		case http1.EqualFold(f.Name, "m0-hold"):
			mode := modeOf(f.Value)
			agree = agree && (modes == 0 || mode == in.Mode)
			in.Mode = mode
			modes++
		case http1.EqualFold(f.Name, "m0-channel") && len(in.Channels) <= MaxChannels:
			var bad int
			in.Channels, bad = ParseChannels(f.Value, in.Channels)
			in.BadChannels += bad
		case http1.EqualFold(f.Name, "m0-envelope") && envelope == nil:
			envelope = f.Value
		case http1.EqualFold(f.Name, "m0-timeout") && timeout == nil:
			timeout = f.Value
		}
	}
	if !agree || in.Mode == ModeNone || len(in.Channels) == 0 {
		return Instruction{BadChannels: in.BadChannels}
	}
	in.Envelope = in.Mode == ModeWebSocket && http1.EqualFold(envelope, "json")
	if in.Mode == ModeResponse {
		in.Timeout = pollTimeout(timeout)
	}
	return in
}

// pollTimeout reads an M0-Timeout: seconds ("25", and "2.5" because that is
// how Python writes a float) or a Go duration ("1m30s"). What is outside the
// bounds becomes the nearer bound, and what cannot be read (a sign is not) the
// default.
func pollTimeout(value []byte) time.Duration {
	if seconds, tooLarge, ok := http1.ParseLength(value); ok {
		if tooLarge || seconds > int64(pollTimeoutMost/time.Second) {
			return pollTimeoutMost
		}
		return max(time.Duration(seconds)*time.Second, pollTimeoutLeast)
	}
	text := string(value)
	if strings.Trim(text, "0123456789.") == "" {
		text += "s"
	}
	timeout, err := time.ParseDuration(text)
	if err != nil || text[0] == '-' || text[0] == '+' {
		return pollTimeoutDefault
	}
	return min(max(timeout, pollTimeoutLeast), pollTimeoutMost)
}

// Reply is what the app's answer to an inbound socket message asks for.
// Nothing of it is the zero Reply.
type Reply struct {
	// Opcode is how the answer's body goes to the socket: 1 text, 2 binary,
	// 0 not at all.
	Opcode int

	// Subscribe and Unsubscribe are channels to join and to leave, different
	// names that each pass CheckChannel. Either may be longer than
	// MaxChannels: a socket that would have more cannot join, and one may
	// leave channels that it is not in. Beyond MaxChannels there may be
	// duplicates.
	Subscribe, Unsubscribe []string

	// Close is the code to close the socket with, one that may be sent, 0 for
	// none; CloseReason is at most 123 bytes of UTF-8.
	Close       int
	CloseReason string

	BadChannels int // listed names that were no channels, for the log
}

// ParseReply reads the M0-* fields of an answer to an inbound socket message.
// The values are not kept; without such fields it costs no allocation. Of
// M0-Reply and M0-Close the first counts, lists add up.
//
// M0-Close is a code and, behind white space, a reason. An empty one closes
// nothing. Any other closes: the app wants the socket gone, and a slip in the
// code must not keep it. So a code that RFC 6455 §7.4 does not let a server
// send (1005, 1006, 9999) becomes 1000, with its reason; and where no number
// comes first, 1000 it is and the whole value is the reason. A reason that is
// no UTF-8 is read as Latin-1, which is what WSGI writes (PEP 3333), and one
// that is too long is cut between characters.
func ParseReply(fields []http1.Field) Reply {
	var r Reply
	var opcode, closing []byte
	for _, f := range fields {
		if !http1.HasPrefixFold(f.Name, "m0-") {
			continue
		}
		var bad int
		switch {
		case http1.EqualFold(f.Name, "m0-reply") && opcode == nil:
			opcode = f.Value
		case http1.EqualFold(f.Name, "m0-close") && closing == nil:
			closing = f.Value
		case http1.EqualFold(f.Name, "m0-subscribe"):
			r.Subscribe, bad = ParseChannels(f.Value, r.Subscribe)
		case http1.EqualFold(f.Name, "m0-unsubscribe"):
			r.Unsubscribe, bad = ParseChannels(f.Value, r.Unsubscribe)
		}
		r.BadChannels += bad
	}
	switch {
	case http1.EqualFold(opcode, "text"):
		r.Opcode = int(opText)
	case http1.EqualFold(opcode, "binary"):
		r.Opcode = int(opBinary)
	}
	if len(closing) > 0 {
		r.Close, r.CloseReason = parseClose(closing)
	}
	return r
}

// parseClose reads an M0-Close that is not empty: see ParseReply.
func parseClose(value []byte) (code int, reason string) {
	word, rest := value, []byte(nil)
	if i := bytes.IndexAny(value, " \t"); i >= 0 {
		word, rest = value[:i], http1.TrimSpace(value[i:])
	}
	number, _, ok := http1.ParseLength(word)
	if !ok {
		rest = value
	}
	code = closeCodeDefault
	if number <= closeCodeMost && closeCodeSendable(int(number)) {
		code = int(number)
	}
	return code, closeReason(rest)
}

const (
	closeCodeDefault = 1000 // a normal closure
	closeCodeMost    = 4999

	// maxCloseReason is what a close frame has room for behind its code:
	// control frames carry at most 125 bytes (RFC 6455 §5.5).
	maxCloseReason = 123
)

// closeCodeSendable reports whether a close frame of ours may carry the code:
// those that RFC 6455 §7.4.1 and IANA's registry define, and those that are
// libraries' (3000) and applications' (4000) to define. 1004 has no meaning,
// 1005, 1006 and 1015 must never be sent.
func closeCodeSendable(code int) bool {
	return code >= 1000 && code <= 1003 || code >= 1007 && code <= 1014 || code >= 3000 && code <= closeCodeMost
}

// closeReason makes of a field's bytes what a close frame can carry.
func closeReason(value []byte) string {
	reason := string(value)
	if !utf8.ValidString(reason) {
		runes := make([]rune, len(value))
		for i, c := range value {
			runes[i] = rune(c)
		}
		reason = string(runes)
	}
	if len(reason) <= maxCloseReason {
		return reason
	}
	end := maxCloseReason
	for !utf8.RuneStart(reason[end]) {
		end--
	}
	return reason[:end]
}
