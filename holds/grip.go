package holds

import (
	"errors"
	"time"

	"holdfast/internal/http1"
)

// Grip is an instruction in GRIP's dialect: what an answer's Grip-* fields, or
// its body of application/grip-instruct, say.
type Grip struct {
	Channels  []GripChannel // in the answer's order
	Timeout   time.Duration // of a long poll: 55 s where nothing is said, 5 s at least
	KeepAlive *KeepAlive    // nil: none
	Next      *Link         // where a stream's further bytes are; nil: nowhere
	Meta      map[string]string

	// Status and Reason replace those of the answer; Status 0: they are as they are.
	Status int
	Reason string
	// Expose names the only fields that the client may see; nil: all of them.
	Expose []string

	// JSON: the instruction is the body, which DecodeBody is to read.
	JSON bool
	// Response replaces the answer's fields and body; nil: they are as they are.
	Response *GripResponse
}

// GripChannel is a channel that a GRIP hold joins.
type GripChannel struct {
	Name    string
	PrevID  *string  // the id of the last item that the answer accounts for; nil: nothing said
	Filters []string // in order, at most maxFilters; unknown ones too
}

// KeepAlive is what a quiet GRIP hold is sent.
type KeepAlive struct {
	Data     []byte
	Interval bool // each Timeout, also where something was sent since
	Timeout  time.Duration
}

// Link is where a stream's further bytes are to be asked for.
type Link struct {
	URI     string
	Timeout time.Duration // ask when nothing came for so long; 0: only where something is missing
}

// GripResponse is the answer of an instruction in JSON.
type GripResponse struct {
	Status int
	Reason string
	Fields []http1.Field
	Body   []byte
}

// Why a GRIP instruction cannot be followed.
var errGrip = errors.New("the GRIP instruction cannot be followed")
