package holds

import (
	"encoding/base64"
	"encoding/json"
	"iter"
	"slices"
	"strings"

	"holdfast/internal/http1"
)

// Item is one item of GRIP's publish call, checked.
type Item struct {
	Channel string // passes CheckChannel
	// ID and PrevID are at most 1024 bytes without control bytes; nil: not
	// given. An ID that was sent empty is not given, because it tells no item
	// from another; an empty PrevID is one.
	ID, PrevID *string
	// The forms for streams, long polls and sockets: one of them is there at least.
	Stream *StreamForm
	Answer *AnswerForm
	Socket *SocketForm
	Meta   map[string]string
	NoSeq  bool // not to be put in order
}

// Action is what an item asks to be done.
type Action uint8

// The actions of an item. Close has no effect on long polls. Hint: clients are
// to ask the app for what there is (streams and long polls). Refresh: the app
// is to be asked for what it has to say (sockets).
const (
	ActionSend Action = iota
	ActionClose
	ActionHint
	ActionRefresh
)

// StreamForm is what of an item goes to GRIP streams, its http-stream.
type StreamForm struct {
	Action  Action
	Content []byte   // ActionSend: the bytes as they are to go out, at most MaxData; maybe none
	Filters []string // content-filters; nil: nothing said
}

// AnswerForm is what of an item goes to GRIP long polls, its http-response.
// But for Action and Filters it is zero unless that is ActionSend.
type AnswerForm struct {
	Action  Action
	Status  int // 200 to 599; 200 where nothing is said
	Reason  string
	Fields  [][2]string // names and values, both checked: they can stand in a head
	Body    []byte      // at most MaxData, none for a status that has none
	Filters []string
}

// SocketForm is what of an item goes to sockets, its ws-message.
type SocketForm struct {
	Action  Action
	Kind    opcode // ActionSend: opText, opBinary, opPing or opPong
	Content []byte // ActionSend: UTF-8 for opText; at most MaxData, and what a control frame has room for
	Code    int    // ActionClose: one that may be sent; 1000 where none was given, or none that may be
	Reason  string // ActionClose: at most 123 bytes of UTF-8
	Filters []string
}

// The bounds of what goes into a head and is said in JSON.
const (
	maxHeadFields = 64 << 10 // names and values together, as they stand in the JSON
	maxReason     = 255      // of a status
	codeMost      = 99999    // more than any code
)

// decodeStatus decodes the status of an answer, a number or a text of digits.
func decodeStatus(field string, raw json.RawMessage) (int, error) {
	code, err := decodeCode(field, raw)
	if err == nil && (code < 200 || code > 599) {
		err = inputError(field, "%s is %.40q; give a status of an answer, 200 to 599", field, raw)
	}
	return code, err
}

// decodeCode decodes a whole number that may be in quotation marks, as one of
// the clients' libraries has it. What is more than codeMost becomes that.
func decodeCode(field string, raw json.RawMessage) (int, error) {
	text := string(raw)
	if raw[0] == '"' {
		var err error
		if text, err = decodeString(field, raw); err != nil {
			return 0, err
		}
	}
	n, tooLarge, ok := http1.ParseLength([]byte(text))
	if !ok {
		return 0, inputError(field, "%s is %.40q; give a whole number, without sign, point and exponent", field, text)
	}
	if tooLarge || n > codeMost {
		return codeMost, nil
	}
	return int(n), nil
}

// decodeStatusReason decodes the reason of a status.
func decodeStatusReason(field string, raw json.RawMessage) (string, error) {
	reason, err := decodeString(field, raw)
	if err == nil && (len(reason) > maxReason || hasControl(reason)) {
		err = inputError(field, "%s has %d bytes; it has at most %d, and no control byte", field, len(reason), maxReason)
	}
	return reason, err
}

// checkBodiless refuses a body of a status that has none: its bytes would be
// taken for the next answer.
func checkBodiless(field string, status int, body []byte) error {
	if len(body) > 0 && bodiless(status) {
		return inputError(field+".body", "%s.body is there and the status is %d, which has no body; leave one of them out", field, status)
	}
	return nil
}

// decodeID decodes an id, which may be a number: its text is the id then.
func decodeID(field string, raw json.RawMessage) (*string, error) {
	if raw == nil {
		return nil, nil
	}
	id := string(raw)
	if !isNumber(raw) {
		var err error
		if id, err = decodeString(field, raw); err != nil {
			return nil, err
		}
	}
	if len(id) > maxID || hasControl(id) {
		return nil, inputError(field, "%s has %d bytes; an id has at most %d, and no control byte", field, len(id), maxID)
	}
	return &id, nil
}

// isNumber reports whether a JSON value is a number.
func isNumber(raw json.RawMessage) bool { return raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9' }

// decodeFilters decodes a list of filters' names: nil if there is none. Unknown
// names stay.
func decodeFilters(field string, raw json.RawMessage) ([]string, error) {
	if raw == nil {
		return nil, nil
	}
	if raw[0] != '[' {
		return nil, inputError(field, "%s is no list; send a list of filters' names", field)
	}
	names := []string{}
	for _, element := range elements(raw) {
		name, err := decodeString(field, element)
		switch {
		case err != nil:
			return nil, err
		case len(name) > maxFilter:
			return nil, inputError(field, "%s has a name of %d bytes; a filter's has at most %d", field, len(name), maxFilter)
		case len(names) == maxFilters:
			return nil, inputError(field, "%s has more than %d filters; name fewer", field, maxFilters)
		}
		names = append(names, name)
	}
	return names, nil
}

// decodeMeta decodes an object of texts, at most maxMeta as it stands in the
// JSON. A number is taken as its text; of a name that is there twice the last
// counts.
func decodeMeta(field string, raw json.RawMessage) (map[string]string, error) {
	if raw == nil {
		return nil, nil
	}
	if raw[0] != '{' {
		return nil, inputError(field, `%s is no object; send {"name": "value"}`, field)
	}
	meta, size := map[string]string{}, 0
	for rawName, rawValue := range members(raw) {
		if size += len(rawName) + len(rawValue); size > maxMeta {
			return nil, inputError(field, "%s has more than %d bytes of names and values; send less", field, maxMeta)
		}
		name, err := decodeString(field, rawName)
		if err != nil {
			return nil, err
		}
		if isNull(rawValue) {
			continue
		}
		value := string(rawValue)
		if !isNumber(rawValue) {
			if rawValue[0] != '"' {
				return nil, inputError(field, "%s has %.40q, which is neither a text nor a number; send a JSON string", field, name)
			}
			if value, err = decodeString(field, rawValue); err != nil {
				return nil, err
			}
		}
		meta[name] = value
	}
	return meta, nil
}

// decodeContent decodes what is under key: the base64 under key-bin where that
// is there, else the text, else nil.
func decodeContent(at, key string, v map[string]json.RawMessage) ([]byte, error) {
	field := at + "." + key
	raw, binary := v[key], v[key+"-bin"] != nil
	if binary {
		field, raw = field+"-bin", v[key+"-bin"]
	}
	if raw == nil {
		return nil, nil
	}
	text, err := decodeString(field, raw)
	content := []byte(text)
	if err == nil && binary {
		// Line breaks are taken: the encoders of some languages write them.
		if content, err = base64.StdEncoding.Strict().DecodeString(text); err != nil {
			err = inputError(field, "%s is not in base64's standard alphabet with padding (RFC 4648 section 4)", field)
		}
	}
	if err == nil && len(content) > MaxData {
		err = tooLarge(field)
	}
	if err != nil {
		return nil, err
	}
	return content, nil
}

// unwanted are fields that a head is not given, whoever asks for them: those of
// the connection, and those that would tell the body's length or coding anew.
var unwanted = []string{
	"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
	"content-length", "content-encoding",
}

func isUnwanted(name string) bool {
	b := []byte(name)
	return http1.HasPrefixFold(b, "grip-") || http1.HasPrefixFold(b, "m0-") ||
		slices.ContainsFunc(unwanted, func(lower string) bool { return http1.EqualFold(b, lower) })
}

// decodeFields decodes the fields of a head, an object or a list of pairs, in
// their order. In an object a field that is to be there several times has a
// list of texts.
func decodeFields(field string, raw json.RawMessage) (fields [][2]string, err error) {
	if raw == nil {
		return nil, nil
	}
	size := 0
	take := func(rawName, rawValue json.RawMessage) error {
		if size += len(rawName) + len(rawValue); size > maxHeadFields {
			return inputError(field, "%s has more than %d bytes of names and values; send less", field, maxHeadFields)
		}
		f, err := decodeField(field, rawName, rawValue)
		if err == nil && f[0] != "" {
			fields = append(fields, f)
		}
		return err
	}
	switch raw[0] {
	case '{':
		for name, value := range members(raw) {
			values := iter.Seq2[int, json.RawMessage](func(yield func(int, json.RawMessage) bool) { yield(0, value) })
			if value[0] == '[' {
				values = elements(value)
			}
			for _, value := range values {
				if err := take(name, value); err != nil {
					return nil, err
				}
			}
		}
	case '[':
		for _, element := range elements(raw) {
			var pair []json.RawMessage
			if element[0] == '[' {
				for i, part := range elements(element) {
					if pair = append(pair, part); i == 2 {
						break
					}
				}
			}
			if len(pair) != 2 {
				return nil, inputError(field, `%s has an element that is no pair; send [["name", "value"]]`, field)
			}
			if err := take(pair[0], pair[1]); err != nil {
				return nil, err
			}
		}
	default:
		return nil, inputError(field, `%s is neither an object nor a list; send {"name": "value"}`, field)
	}
	return fields, nil
}

// decodeField decodes one field: no name if it is unwanted.
func decodeField(at string, rawName, rawValue json.RawMessage) (f [2]string, err error) {
	name, err := decodeString(at, rawName)
	if err != nil {
		return f, err
	}
	if !http1.IsToken([]byte(name)) {
		return f, inputError(at, "%s has %.40q, which is no field's name (RFC 9110 section 5.1); use letters, digits and -", at, name)
	}
	if isUnwanted(name) {
		return f, nil
	}
	if rawValue[0] != '"' {
		return f, inputError(at, "%s has a value of %.40q that is no text; send a JSON string", at, name)
	}
	value, err := decodeString(at, rawValue)
	if err != nil {
		return f, err
	}
	if value = strings.Trim(value, " \t"); !http1.IsValue([]byte(value)) {
		return f, inputError(at, "%s has a value of %.40q with a control byte; take it out", at, name)
	}
	return [2]string{name, value}, nil
}
