package holds

import (
	"errors"
	"net/http"
	"time"

	"holdfast/internal/http1"
)

// Mode is what an answer asks to be done with its client.
type Mode uint8

// The modes of an instruction.
const (
	ModeNone      Mode = iota // nothing: the answer is served as it is
	ModeStream                // keep the connection as an event stream
	ModeWebSocket             // approve the upgrade and keep the socket
	ModeResponse              // long poll: answer with the next event
)

// String is the word of the mode in fields, logs and metrics; "" for ModeNone.
func (m Mode) String() string {
	switch m {
	case ModeStream:
		return "stream"
	case ModeWebSocket:
		return "websocket"
	case ModeResponse:
		return "response"
	}
	return ""
}

// modeOf reads a mode's word, in any case; ModeNone if it is none of them.
func modeOf(word []byte) Mode {
	for mode := ModeStream; mode <= ModeResponse; mode++ {
		if http1.EqualFold(word, mode.String()) {
			return mode
		}
	}
	return ModeNone
}

// Instruction is what an answer says about a hold, in whichever dialect.
type Instruction struct {
	Mode     Mode
	Channels []string      // 1 to MaxChannels different names, each passing CheckChannel; none with ModeNone
	Envelope bool          // ModeWebSocket: events as JSON objects with their ids
	Timeout  time.Duration // ModeResponse: how long to wait for an event, 1 s to 24 h, 55 s where nothing is said; 0 otherwise

	// Grip is the instruction if it is GRIP's. With Grip.JSON the rest is zero
	// until the answer's body was given to Read. Mode may be ModeNone: then the
	// answer is served, with what Grip says of it, or there is more at Grip.Next
	// first. A GRIP hold may have no channel.
	Grip *Grip

	// BadChannels is how many listed names were no channels. It is for the
	// log, and counts also where none was left and Mode is ModeNone.
	BadChannels int
}

// Dialects are the dialects that are listened to. What an answer says in
// another one has no effect.
type Dialects struct{ M0, Grip bool }

// Why an instruction cannot be followed: a closed set. The client is
// answered bad_hold.
var (
	ErrMixed           = errors.New("the answer has both M0-Hold and Grip-Hold; send one of them")
	ErrTooManyChannels = errors.New("the answer names more than 64 channels for one hold; name fewer, or publish to one channel for the group")
	ErrEncoded         = errors.New("the answer opens a stream and has a Content-Encoding; events cannot be added to it: take compression off this view")
)

// ParseInstruction reads what an answer says about a hold. The field values
// are not kept. It costs no allocation unless there is a hold field.
//
// ModeNone without an error is no instruction, and the answer is served as it
// is: no hold field of a dialect that is on, a status other than 200, no
// channel, an unknown mode, or several hold fields that do not agree (which of
// them is meant cannot be known, and a client held in the wrong way waits
// where an answer served as it is shows the fault).
//
// Errors, in the order in which they are looked for: ErrMixed,
// ErrTooManyChannels, ErrEncoded; the instruction is then zero. They are of an
// instruction: an answer whose status is not 200 has none of them. In GRIP's
// dialect any status may have an instruction, and what cannot be read is an
// error.
func ParseInstruction(status int, fields []http1.Field, dialects Dialects) (Instruction, error) {
	var m0, grip bool
	for _, f := range fields {
		m0 = m0 || dialects.M0 && http1.EqualFold(f.Name, "m0-hold")
		grip = grip || dialects.Grip && http1.EqualFold(f.Name, "grip-hold")
	}
	switch {
	case m0 && status != http.StatusOK:
		return Instruction{}, nil
	case m0 && grip:
		return Instruction{}, ErrMixed
	case m0:
	case dialects.Grip && isGrip(fields):
		return readGrip(parseGrip(status, fields))
	default:
		return Instruction{}, nil
	}
	in := parseM0(fields)
	if len(in.Channels) > MaxChannels {
		return Instruction{}, ErrTooManyChannels
	}
	if in.Mode == ModeStream && encoded(fields) {
		return Instruction{}, ErrEncoded
	}
	return in, nil
}

// readGrip makes an instruction of GRIP's.
func readGrip(g *Grip, mode Mode, err error) (Instruction, error) {
	if err != nil {
		return Instruction{}, err
	}
	in := Instruction{Mode: mode, Timeout: g.Timeout, Grip: g, BadChannels: g.BadChannels}
	for _, c := range g.Channels {
		in.Channels = append(in.Channels, c.Name)
	}
	return in, nil
}

// Whole reports whether the answer is to be read whole before anything goes to
// the client: because it may hold it, or is not served as it is.
func (in *Instruction) Whole() bool {
	g := in.Grip
	return in.Mode != ModeNone || g != nil && (g.JSON || g.Next != nil || g.Status > 0 || g.Expose != nil || g.rewritesBody())
}

// Read reads an instruction that is the answer's body, without its codings.
func (in *Instruction) Read(status int, body []byte) (Instruction, error) {
	mode, err := in.Grip.DecodeBody(status, body)
	return readGrip(in.Grip, mode, err)
}

// encoded reports whether a body has a coding (RFC 9110 §8.4) that is not
// "identity", which some frameworks write although it is not to be sent.
func encoded(fields []http1.Field) bool {
	for _, f := range fields {
		if !http1.EqualFold(f.Name, "content-encoding") {
			continue
		}
		for list := f.Value; ; {
			coding, rest, ok := http1.NextElement(list)
			if !ok {
				break
			}
			if len(coding) > 0 && !http1.EqualFold(coding, "identity") {
				return true
			}
			list = rest
		}
	}
	return false
}
