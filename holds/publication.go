package holds

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"holdfast/internal/http1"
)

// MaxData bounds an event's data, in bytes, as it is kept: text decoded, JSON
// compacted, base64 decoded.
const MaxData = 1 << 20

// DataKind is what an event's data was published as.
type DataKind uint8

// The kinds of data.
const (
	DataText   DataKind = iota // a JSON string, decoded: UTF-8
	DataJSON                   // any other JSON value, as published but for white space between its tokens
	DataBinary                 // what base64 held
)

// Publication is one event as it was published, checked.
type Publication struct {
	Channels []string // 1 to MaxChannels different names, each passing CheckChannel
	Event    string   // the event's name, without CR, LF and NUL; "" for none
	Retry    int      // milliseconds that an EventSource waits before it comes back; -1 for nothing said
	Data     []byte   // at most MaxData, no part of the body that it was decoded from
	Kind     DataKind
}

// InputError says what is wrong with a request to the publish API.
type InputError struct {
	Field string // the key of the JSON object; "" for the body as a whole
	Text  string // a sentence that names the field and the way out
	cause error
}

func (e *InputError) Error() string { return e.Text }

// Unwrap gives ErrTooLarge where that is the reason.
func (e *InputError) Unwrap() error { return e.cause }

// ErrTooLarge is inside the InputError of an event that is too large: it is
// to be answered 413 where any other is 400.
var ErrTooLarge = errors.New("the event is too large")

func tooLarge(field string) error {
	return &InputError{field, fmt.Sprintf("%s has more than %d bytes; publish where to find it instead", field, MaxData), ErrTooLarge}
}

func inputError(field, format string, args ...any) error {
	return &InputError{Field: field, Text: fmt.Sprintf(format, args...)}
}

// DecodePublication reads the body of POST /publish:
//
//	{"channel": "news" | ["a","b"], "data": "text" | any JSON, "base64": "…", "event": "name", "retry": ms}
//
// channel and one of data and base64 have to be there. "data": null is the
// JSON null; any other null is of the wrong type. It is strict, so that a slip
// of the publisher is told and not delivered: a key that is unknown (in another
// case too) or there twice, a wrong type, anything behind the object, base64
// that is not RFC 4648's standard alphabet with padding and without line
// breaks. retry ends at 2^31-1, the longest that a browser's timer can wait:
// beyond it comes back at once.
//
// The body has to be UTF-8 (RFC 8259 §8.1), and a string that is decoded must
// not have half a surrogate pair ("\ud83d"): what has no UTF-8 would be
// replaced in silence otherwise. Inside JSON data such an escape stays as it
// was published, like numbers and the order of keys. A channel named twice
// counts once.
//
// Errors are *InputError, and ErrTooLarge inside it where Data, or the event's
// name, is over MaxData. How large a body may be is the caller's to bound: six
// times MaxData, and a little, is enough for a text in which every byte is
// escaped.
func DecodePublication(body []byte) (Publication, error) {
	p := Publication{Retry: -1}
	var data, binary json.RawMessage
	err := eachMember(body, publicationKeys, func(key string, raw json.RawMessage) (err error) {
		switch key {
		case "channel":
			p.Channels, err = decodeChannels(raw)
		case "data":
			data = raw
		case "base64":
			binary = raw
		case "event":
			p.Event, err = decodeEvent(raw)
		case "retry":
			p.Retry, err = decodeInteger("retry", raw, math.MaxInt32)
		case "items":
			err = inputError("items", `items: publishing in GRIP's form is not in this version; publish %s`, publicationShape)
		}
		return err
	})
	switch {
	case err != nil:
	case p.Channels == nil:
		err = inputError("channel", "channel is missing; name one, or a list of them")
	case data == nil && binary == nil:
		err = inputError("data", "data is missing; send data (a text, or any JSON) or base64")
	case data != nil && binary != nil:
		err = inputError("base64", "base64 and data are both there; send one of them")
	case binary != nil:
		p.Kind = DataBinary
		p.Data, err = decodeBase64(binary)
	default:
		p.Data, p.Kind, err = decodeData(data)
	}
	if err != nil {
		return Publication{}, err
	}
	return p, nil
}

// Check looks at a publication that was not decoded from JSON. Channels and
// Kind are the caller's to see to. Errors are *InputError.
func (p *Publication) Check() error {
	if strings.ContainsAny(p.Event, "\r\n\x00") {
		return inputError("event", "event has a CR, LF or NUL; an event's name is one line, take it out")
	}
	if len(p.Event) > MaxData {
		return tooLarge("event")
	}
	if len(p.Data) > MaxData {
		return tooLarge("data")
	}
	return nil
}

const publicationShape = `{"channel": "name", "data": "text"}`

// publicationKeys has the keys in the order in which an error names them;
// "items" is known so that it is refused with a better reason.
var publicationKeys = []string{"channel", "data", "base64", "event", "retry", "items"}

func decodeChannels(raw json.RawMessage) ([]string, error) {
	const wrong = "channel is a name or a list of names (JSON strings)"
	list := []json.RawMessage{raw}
	if raw[0] == '[' {
		if err := json.Unmarshal(raw, &list); err != nil {
			return nil, inputError("channel", wrong)
		}
	}
	if len(list) == 0 {
		return nil, inputError("channel", "channel is an empty list; name at least one")
	}
	var names []string
	for _, element := range list {
		if element[0] != '"' {
			return nil, inputError("channel", wrong)
		}
		name, err := decodeChannelName(element)
		if err != nil {
			return nil, err
		}
		if names = appendChannel(names, name); len(names) > MaxChannels {
			return nil, inputError("channel", "channel names more than %d channels; publish to fewer at once", MaxChannels)
		}
	}
	return names, nil
}

func decodeChannelName(raw json.RawMessage) (string, error) {
	name, err := decodeString("channel", raw)
	if err != nil {
		return "", err
	}
	if err := CheckChannel(name); err != nil {
		return "", inputError("channel", "channel: %v", err)
	}
	return name, nil
}

func decodeEvent(raw json.RawMessage) (string, error) {
	name, err := decodeString("event", raw)
	if err != nil {
		return "", err
	}
	p := Publication{Event: name}
	return name, p.Check()
}

func decodeBase64(raw json.RawMessage) ([]byte, error) {
	text, err := decodeString("base64", raw)
	if err != nil {
		return nil, err
	}
	data, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || strings.ContainsAny(text, "\r\n") { // which Go's decoder skips
		return nil, inputError("base64", "base64 is not in the standard alphabet with padding and without line breaks (RFC 4648 section 4)")
	}
	if len(data) > MaxData {
		return nil, tooLarge("base64")
	}
	return data, nil
}

func decodeData(raw json.RawMessage) ([]byte, DataKind, error) {
	if raw[0] == '"' {
		text, err := decodeString("data", raw)
		if err == nil && len(text) > MaxData {
			err = tooLarge("data")
		}
		return []byte(text), DataText, err
	}
	compact := bytes.NewBuffer(make([]byte, 0, len(raw)))
	if err := json.Compact(compact, raw); err != nil {
		return nil, DataJSON, inputError("data", "data cannot be read: %v", err)
	}
	if compact.Len() > MaxData {
		return nil, DataJSON, tooLarge("data")
	}
	return compact.Bytes(), DataJSON, nil
}

// EndRequest is the body of POST /end: which holds to end, those that match
// all that is given, and what a socket's close frame says.
type EndRequest struct {
	Channel    string // "" for any
	Connection string // "" for any; not both
	Code       int    // one that a close frame may carry; 1000 where none was given
	Reason     string // at most 123 bytes of UTF-8 without control bytes
}

// DecodeEnd reads the body of POST /end:
//
//	{"channel": "name", "connection": "id", "code": 1000, "reason": "text"}
//
// channel or connection has to be there. It is as strict as
// DecodePublication: other than in M0-Close, a code that may not be sent and
// a reason that does not fit are refused, because here there is somebody to
// tell. Errors are *InputError.
func DecodeEnd(body []byte) (EndRequest, error) {
	r := EndRequest{Code: closeCodeDefault}
	err := eachMember(body, endKeys, func(key string, raw json.RawMessage) (err error) {
		switch key {
		case "channel":
			r.Channel, err = decodeChannelName(raw)
		case "connection":
			if r.Connection, err = decodeString("connection", raw); err == nil && r.Connection == "" {
				err = inputError("connection", "connection is empty; give a connection's id, or leave it out")
			}
		case "code":
			r.Code, err = decodeInteger("code", raw, closeCodeMost)
			if err == nil && !closeCodeSendable(r.Code) {
				err = inputError("code", "code %d may not be sent (RFC 6455 section 7.4); use 1000 to 1003, 1007 to 1014 or 3000 to 4999", r.Code)
			}
		case "reason":
			r.Reason, err = decodeReason(raw)
		}
		return err
	})
	if err == nil && r.Channel == "" && r.Connection == "" {
		err = inputError("channel", "channel and connection are both missing; name a channel or a connection whose holds are to end")
	}
	if err != nil {
		return EndRequest{}, err
	}
	return r, nil
}

var endKeys = []string{"channel", "connection", "code", "reason"}

func decodeReason(raw json.RawMessage) (string, error) {
	reason, err := decodeString("reason", raw)
	if err != nil {
		return "", err
	}
	if len(reason) > maxCloseReason {
		return "", inputError("reason", "reason has %d bytes; a close frame has room for %d, shorten it", len(reason), maxCloseReason)
	}
	if hasControl(reason) {
		return "", inputError("reason", "reason has a control byte (0x00 to 0x1f, 0x7f); take it out")
	}
	return reason, nil
}

// eachMember calls take with the members of the one object that body is, in
// their order, until an error. raw is a copy and begins with its value's first
// byte.
func eachMember(body []byte, keys []string, take func(key string, raw json.RawMessage) error) error {
	if !utf8.Valid(body) {
		return inputError("", "the body is not UTF-8; send binary data as base64")
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber() // a body that is 1e999 is no object; as a float64 it would be out of range
	if first, err := dec.Token(); err != nil {
		return notJSON(body, err)
	} else if first != json.Delim('{') {
		return inputError("", "the body is not a JSON object; send %s", shapeOf(keys))
	}
	var seen uint
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return notJSON(body, err)
		}
		key, _ := token.(string) // where a key is due, nothing else is a token
		i := slices.Index(keys, key)
		if i < 0 {
			// It is the publisher's own text: as much of it as a line can show.
			return inputError(fmt.Sprintf("%.40s", key), "%.40q is no key that is known here; send %s", key, shapeOf(keys))
		}
		if seen&(1<<i) != 0 {
			return inputError(key, "%s is there twice; send it once", key)
		}
		seen |= 1 << i
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return notJSON(body, err)
		}
		if err := take(key, raw); err != nil {
			return err
		}
	}
	if _, err := dec.Token(); err != nil {
		return notJSON(body, err)
	}
	if end := dec.InputOffset(); len(bytes.TrimLeft(body[end:], " \t\r\n")) > 0 {
		return inputError("", "the body goes on behind its JSON object (byte %d); send one object a request", end)
	}
	return nil
}

// shapeOf lists keys as an error names them.
func shapeOf(keys []string) string {
	shown := slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return key == "items" })
	return "an object with " + strings.Join(shown, ", ")
}

// notJSON says where a body is not JSON. Of what a Decoder's errors say of
// that, the offset is wrong inside a value, so the fault is looked for again.
func notJSON(body []byte, err error) error {
	if again := json.Unmarshal(body, new(json.RawMessage)); again != nil {
		err = again
	}
	at := ""
	if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
		at = fmt.Sprintf(" (byte %d)", syntax.Offset)
	}
	return inputError("", "the body is not JSON: %v%s; send one whole object", err, at)
}

// decodeString decodes a JSON value that has to be a string.
func decodeString(field string, raw json.RawMessage) (s string, err error) {
	if raw[0] != '"' {
		return "", inputError(field, "%s is not a text; send a JSON string, or leave it out", field)
	}
	if halfPair(raw) {
		return "", inputError(field, `%s has half a surrogate pair (\ud800 to \udfff alone), which has no UTF-8; take it out`, field)
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", inputError(field, "%s cannot be read: %v", field, err)
	}
	return s, nil
}

// decodeInteger decodes a JSON value that has to be a whole number from 0 to
// most. 1e3 and 1.0 are not taken: they are slips more often than numbers.
func decodeInteger(field string, raw json.RawMessage, most int) (int, error) {
	n, err := strconv.Atoi(string(raw))
	if err != nil || n > most || !http1.IsDigits(raw) {
		return 0, inputError(field, "%s is not a whole number from 0 to %d, without point and exponent", field, most)
	}
	return n, nil
}

// halfPair reports whether a valid JSON string has a \u escape of a surrogate
// whose other half does not come with it: encoding/json would put U+FFFD in
// its place.
func halfPair(raw []byte) bool {
	for {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 {
			return false
		}
		first, ok := escapedUnit(raw[i:])
		switch {
		case !ok:
			raw = raw[i+2:] // \\ above all, whose second half begins no escape
		case !utf16.IsSurrogate(first):
			raw = raw[i+6:]
		default:
			second, _ := escapedUnit(raw[i+6:])
			if utf16.DecodeRune(first, second) == unicode.ReplacementChar {
				return true
			}
			raw = raw[i+12:]
		}
	}
}

// escapedUnit is the UTF-16 code unit of a \u escape at the start of raw.
func escapedUnit(raw []byte) (unit rune, ok bool) {
	if len(raw) < 6 || raw[0] != '\\' || raw[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(raw[2:6]), 16, 16)
	return rune(n), err == nil
}
