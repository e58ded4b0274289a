package holds

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"holdfast/internal/http1"
)

// Grip is an instruction in GRIP's dialect: what an answer's Grip-* fields, or
// its body of application/grip-instruct, say.
type Grip struct {
	Channels  []GripChannel // in the answer's order, different names that each pass CheckChannel; at most MaxChannels
	Timeout   time.Duration // of a long poll: 55 s where nothing is said, 5 s at least, 24 h at most
	KeepAlive *KeepAlive    // nil: none
	Next      *Link         // where a stream's further bytes are; nil: nowhere
	Meta      map[string]string

	// Status and Reason replace those of the answer; Status 0: they are as they
	// are. Status is 200 to 599.
	Status int
	Reason string
	// Expose names, in lower case, the only fields that the client may see;
	// nil: all of them. Empty and not nil: none.
	Expose []string

	// JSON: the instruction is the body, which DecodeBody is to read.
	JSON bool
	// Response replaces the answer's status, fields and body; nil: they are as
	// they are.
	Response *GripResponse

	// BadChannels is how many listed names were no channels, for the log.
	BadChannels int

	mode Mode // what is to be done with the client, as far as it was read
}

// GripChannel is a channel that a GRIP hold joins.
type GripChannel struct {
	Name    string
	PrevID  *string  // the id of the last item that the answer accounts for; nil: nothing said
	Filters []string // in order, at most maxFilters; unknown ones too
}

// KeepAlive is what a quiet GRIP hold is sent.
type KeepAlive struct {
	Data     []byte        // 1 to maxKeepAlive bytes
	Interval bool          // each Timeout, also where something was sent since
	Timeout  time.Duration // 55 s where nothing is said, 1 s at least, 24 h at most
}

// Link is where a stream's further bytes are to be asked for.
type Link struct {
	URI     string        // as it stood between < and >
	Timeout time.Duration // ask when nothing came for so long, 24 h at most; 0: only where something is missing
}

// GripResponse is the answer of an instruction in JSON.
type GripResponse struct {
	Status int // 200 to 599; 200 where nothing is said
	Reason string
	Fields []http1.Field // they can stand in a head, and none of them frames the body
	Body   []byte
}

// Why a GRIP instruction cannot be followed.
var errGrip = errors.New("the GRIP instruction cannot be followed")

// The bounds of an instruction. A time that is said and is outside its bounds
// becomes the nearer one; the upper one is as for M0-Timeout.
const (
	gripTimeoutDefault = 55 * time.Second
	gripTimeoutLeast   = 5 * time.Second // of a long poll
	keepAliveLeast     = time.Second
	gripTimeoutMost    = pollTimeoutMost

	maxKeepAlive = 64 << 10 // of each hold, for as long as it is kept
	maxMeta      = 64 << 10 // names and values of a hold, or of an item; an id_format of 64 channels has room
	maxID        = 1024     // of a prev-id, and of an item's id
	maxFilter    = 255      // of a filter's name
)

// gripError is a sentence that names a field, what stood there, and the way
// out.
func gripError(field string, value []byte, format string, args ...any) error {
	return fmt.Errorf("%w: %s is %q; %s", errGrip, field, value[:min(len(value), 40)], fmt.Sprintf(format, args...))
}

// isGrip reports whether an answer speaks GRIP, so that none of it may reach
// the client as it is. It costs no allocation.
func isGrip(fields []http1.Field) bool {
	for _, f := range fields {
		if http1.HasPrefixFold(f.Name, "grip-") || isInstruct(f) {
			return true
		}
	}
	return false
}

// isInstruct reports whether the field says that the body is an instruction.
func isInstruct(f http1.Field) bool {
	if !http1.EqualFold(f.Name, "content-type") {
		return false
	}
	kind, _, _ := bytes.Cut(f.Value, []byte{';'})
	return http1.EqualFold(http1.TrimSpace(kind), "application/grip-instruct")
}

// gripFields are the fields of an instruction and what reads them. Of those
// that take one value, the first counts.
var gripFields = []struct {
	name string
	one  bool
	read func(g *Grip, value []byte) error
}{
	{"grip-hold", true, (*Grip).readHold},
	{"grip-channel", false, (*Grip).readChannels},
	{"grip-timeout", true, (*Grip).readTimeout},
	{"grip-keep-alive", true, (*Grip).readKeepAlive},
	{"grip-link", false, (*Grip).readLinks},
	{"grip-status", true, (*Grip).readStatus},
	{"grip-set-meta", false, (*Grip).readMeta},
	{"grip-expose-headers", false, (*Grip).readExpose},
}

// parseGrip reads the Grip-* fields of an answer for which isGrip holds. The
// field values are not kept. Other Grip-* fields than those of GRIP's
// instructions have no effect.
//
// ModeNone is no hold; the answer may still have a Status, or with a Next a
// first page. With JSON the mode is DecodeBody's to say. A hold without a
// channel is taken: what it is good for is the caller's to decide.
//
// A channel's name is literal: as the app wrote it, without percent-decoding.
// One that is no channel is left out and counted; of a name that is there
// twice the first counts. A value that cannot be read (a quote without end) is
// passed over in a list, a channel counted.
//
// The error wraps errGrip, except for ErrTooManyChannels. The rest is then
// zero.
func parseGrip(status int, fields []http1.Field) (*Grip, Mode, error) {
	g := &Grip{Timeout: gripTimeoutDefault}
	var seen uint
	for _, f := range fields {
		g.JSON = g.JSON || isInstruct(f)
		if !http1.HasPrefixFold(f.Name, "grip-") {
			continue
		}
		for i, field := range gripFields {
			if !http1.EqualFold(f.Name, field.name) || field.one && seen&(1<<i) != 0 {
				continue
			}
			seen |= 1 << i
			if err := field.read(g, f.Value); err != nil {
				return nil, ModeNone, err
			}
		}
	}
	var err error
	if g.JSON {
		err = checkInstructStatus(status)
	} else {
		err = g.checkStream(status)
	}
	if err != nil {
		return nil, ModeNone, err
	}
	return g, g.mode, nil
}

// checkStream refuses a stream as an answer that has no body, or is not final.
func (g *Grip) checkStream(status int) error {
	if g.Status != 0 {
		status = g.Status
	}
	if g.mode == ModeStream && bodiless(status) {
		return fmt.Errorf("%w: a stream is to be opened by an answer with status %d, which has no body; answer 200", errGrip, status)
	}
	return nil
}

// bodiless reports whether an answer of that status ends with its head (RFC
// 9112 §6.3).
func bodiless(status int) bool {
	return status < 200 || status == http.StatusNoContent || status == http.StatusNotModified
}

func (g *Grip) readHold(value []byte) error {
	if g.mode = gripMode(string(value)); g.mode == ModeNone {
		return gripError("Grip-Hold", value, "send stream or response")
	}
	return nil
}

// gripMode reads GRIP's word for a mode, which is in lower case: ModeNone if
// it is none.
func gripMode(word string) Mode {
	switch word {
	case "stream":
		return ModeStream
	case "response":
		return ModeResponse
	}
	return ModeNone
}

func (g *Grip) readChannels(list []byte) error {
	for value := range gripList(list) {
		name, params, ok := parseGripValue(value)
		if !ok {
			g.BadChannels++
			continue
		}
		c := GripChannel{Name: string(name)}
		if id, ok := params.get("prev-id"); ok {
			c.PrevID = &id
		}
		for _, p := range params {
			if http1.EqualFold(p.name, "filter") {
				c.Filters = append(c.Filters, string(p.value))
			}
		}
		if err := g.join("Grip-Channel", c); err != nil {
			return err
		}
	}
	return nil
}

// join takes a channel that field names.
func (g *Grip) join(field string, c GripChannel) error {
	if CheckChannel(c.Name) != nil {
		g.BadChannels++
		return nil
	}
	if slices.ContainsFunc(g.Channels, func(other GripChannel) bool { return other.Name == c.Name }) {
		return nil
	}
	switch {
	case len(g.Channels) == MaxChannels:
		return ErrTooManyChannels
	case len(c.Filters) > maxFilters:
		return gripError(field, []byte(c.Name), "it has %d filters, at most %d are run for a channel: name fewer", len(c.Filters), maxFilters)
	case slices.ContainsFunc(c.Filters, func(name string) bool { return len(name) > maxFilter }):
		return gripError(field, []byte(c.Name), "it has a filter whose name is over %d bytes: take it out", maxFilter)
	case c.PrevID != nil && (len(*c.PrevID) > maxID || hasControl(*c.PrevID)):
		return gripError(field, []byte(c.Name), "its prev-id has %d bytes: an id has at most %d, and no control byte", len(*c.PrevID), maxID)
	}
	g.Channels = append(g.Channels, c)
	return nil
}

func (g *Grip) readTimeout(value []byte) error {
	timeout, ok := parseSeconds(value)
	if !ok {
		return gripError("Grip-Timeout", value, wholeSeconds)
	}
	g.Timeout = max(timeout, gripTimeoutLeast)
	return nil
}

const wholeSeconds = "give whole seconds, digits only"

// parseSeconds reads a number of seconds. What is more than gripTimeoutMost
// becomes that.
func parseSeconds(value []byte) (time.Duration, bool) {
	seconds, tooLarge, ok := http1.ParseLength(value)
	if tooLarge || seconds > int64(gripTimeoutMost/time.Second) {
		return gripTimeoutMost, ok
	}
	return time.Duration(seconds) * time.Second, ok
}

// readKeepAlive reads a Grip-Keep-Alive, which is one value and no list: its
// data may have commas.
func (g *Grip) readKeepAlive(value []byte) error {
	const field = "Grip-Keep-Alive"
	data, params, ok := parseGripValue(value)
	if !ok {
		return gripError(field, value, `its parameters cannot be read: send data; format=cstring; timeout=20, and \x3b for a semicolon in the data`)
	}
	k := &KeepAlive{Timeout: gripTimeoutDefault}
	switch mode, ok := params.get("mode"); {
	case mode == "interval":
		k.Interval = true
	case ok && mode != "idle":
		return gripError(field+"'s mode", []byte(mode), "send idle or interval")
	}
	if timeout, ok := params.get("timeout"); ok {
		if k.Timeout, ok = parseSeconds([]byte(timeout)); !ok {
			return gripError(field+"'s timeout", []byte(timeout), wholeSeconds)
		}
	}
	switch format, ok := params.get("format"); {
	case !ok || format == "raw":
		k.Data = bytes.Clone(data)
	case format == "cstring":
		if k.Data, ok = decodeCString(data); !ok {
			return gripError(field, data, `it is no cstring: write \\ for a backslash, \r, \n, \t, or \xHH with two hexadecimal digits`)
		}
	case format == "base64":
		if k.Data, ok = decodeLooseBase64(data); !ok {
			return gripError(field, data, "it is not in base64 (RFC 4648 section 4)")
		}
	default:
		return gripError(field+"'s format", []byte(format), "send raw, cstring or base64")
	}
	return g.keepAlive(field, value, k)
}

// keepAlive takes a keep-alive whose bounds are not looked at yet.
func (g *Grip) keepAlive(field string, value []byte, k *KeepAlive) error {
	if len(k.Data) == 0 {
		return gripError(field, value, "it has no data, and nothing cannot be sent: give some, or leave it out")
	}
	if len(k.Data) > maxKeepAlive {
		return gripError(field, value, "its data has %d bytes, at most %d are kept for a hold: send less", len(k.Data), maxKeepAlive)
	}
	k.Timeout = max(k.Timeout, keepAliveLeast)
	g.KeepAlive = k
	return nil
}

// decodeCString undoes the escapes of a cstring. An escape that is not known
// is dropped, its letter too, as clients' libraries have come to expect;
// except for \t, which one of them writes and means.
func decodeCString(in []byte) (out []byte, ok bool) {
	for i := 0; i < len(in); i++ {
		if in[i] != '\\' {
			out = append(out, in[i])
			continue
		}
		if i++; i == len(in) {
			return nil, false
		}
		switch in[i] {
		case '\\':
			out = append(out, '\\')
		case 'r':
			out = append(out, '\r')
		case 'n':
			out = append(out, '\n')
		case 't':
			out = append(out, '\t')
		case 'x':
			if i+2 >= len(in) || unhex(in[i+1]) < 0 || unhex(in[i+2]) < 0 {
				return nil, false
			}
			out = append(out, byte(unhex(in[i+1])<<4|unhex(in[i+2])))
			i += 2
		}
	}
	return out, true
}

// decodeLooseBase64 decodes base64 with or without its padding, and as b'...':
// Python's way to show bytes, which django-grip sends.
func decodeLooseBase64(in []byte) ([]byte, bool) {
	if bytes.HasPrefix(in, []byte("b'")) && bytes.HasSuffix(in, []byte("'")) && len(in) > 2 {
		in = in[2 : len(in)-1]
	}
	out, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(string(in), "="))
	return out, err == nil
}

// readLinks reads a Grip-Link. Of several that are next the first counts. A
// link with rel=gone is read and has no effect: nothing is asked for a client
// that has left.
func (g *Grip) readLinks(list []byte) error {
	for value := range gripList(list) {
		uri, params, ok := parseGripValue(value)
		if !ok || len(params) == 0 {
			continue
		}
		if len(uri) < 3 || uri[0] != '<' || uri[len(uri)-1] != '>' {
			return gripError("Grip-Link", value, "send <URI>; rel=next, with %%2C and %%3B for a comma and a semicolon in the URI")
		}
		if rel, _ := params.get("rel"); rel != "next" {
			continue
		}
		next := &Link{URI: string(uri[1 : len(uri)-1])}
		if timeout, ok := params.get("timeout"); ok {
			if next.Timeout, ok = parseSeconds([]byte(timeout)); !ok {
				return gripError("Grip-Link's timeout", []byte(timeout), wholeSeconds)
			}
		}
		if g.Next == nil {
			g.Next = next
		}
	}
	return nil
}

func (g *Grip) readStatus(value []byte) error {
	code, reason, _ := bytes.Cut(value, []byte{' '})
	status, _, _ := http1.ParseLength(code)
	if status < 200 || status > 599 {
		return gripError("Grip-Status", value, "send a status of an answer, 200 to 599, and behind a space its reason")
	}
	if reason = http1.TrimSpace(reason); len(reason) > maxReason || hasControl(string(reason)) {
		return gripError("Grip-Status", value, "its reason has %d bytes: it has at most %d, and no control byte", len(reason), maxReason)
	}
	g.Status, g.Reason = int(status), string(reason)
	return nil
}

// readMeta reads a Grip-Set-Meta: of each entry the first parameter, if it is
// assigned. Of a name that is there twice the last counts: each sets it.
func (g *Grip) readMeta(list []byte) error {
	for value := range gripList(list) {
		params, ok := parseGripParams(value)
		if !ok || len(params) == 0 || !params[0].assigned {
			continue
		}
		if g.Meta == nil {
			g.Meta = map[string]string{}
		}
		g.Meta[string(params[0].name)] = string(params[0].value)
	}
	if size := metaBytes(g.Meta); size > maxMeta {
		return gripError("Grip-Set-Meta", list, "with all that is set it has %d bytes, at most %d are kept for a hold: set less", size, maxMeta)
	}
	return nil
}

// metaBytes is what a meta takes.
func metaBytes(meta map[string]string) (size int) {
	for name, value := range meta {
		size += len(name) + len(value)
	}
	return size
}

func (g *Grip) readExpose(list []byte) error {
	if g.Expose == nil {
		g.Expose = []string{}
	}
	for value := range gripList(list) {
		// What is no token is no field's name.
		if name, _, ok := parseGripValue(value); ok && http1.IsToken(name) {
			g.Expose = append(g.Expose, strings.ToLower(string(name)))
		}
	}
	return nil
}
