package holds

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"holdfast/internal/http1"
)

// DecodeBody reads the instruction that is an answer's body, where g.JSON says
// so. status is the answer's, which has to be 200. The body is not kept; how
// large it may be is the caller's to bound.
//
// What the body says stands in place of what the Grip-* fields said, all of
// its channels and all of its meta at once; a link is only in the fields. The
// answer's own fields and body do not reach the client: Response is there from
// now on, without fields and body if nothing is said, and has the status and
// the reason that Grip-Status gave too.
//
// Keys that are not known have no effect, null is as good as absent, and an id
// may be a number. A keep-alive without content is none. Fields of the response that are about the connection, the
// length or the coding of the body, or a hold, are left out.
//
// The error wraps errGrip, except for ErrTooManyChannels; g is as it was then.
func (g *Grip) DecodeBody(status int, body []byte) (Mode, error) {
	if err := checkInstructStatus(status); err != nil {
		return ModeNone, err
	}
	decoded := *g
	switch err := decoded.decodeInstruct(body); {
	case errors.Is(err, ErrTooManyChannels), errors.Is(err, errGrip):
		return ModeNone, err
	case err != nil:
		return ModeNone, fmt.Errorf("%w: in its body, %v", errGrip, err)
	}
	*g = decoded
	return g.mode, nil
}

func checkInstructStatus(status int) error {
	if status != http.StatusOK {
		return fmt.Errorf("%w: the answer with application/grip-instruct has status %d; answer 200, and put the client's into response.code", errGrip, status)
	}
	return nil
}

func (g *Grip) decodeInstruct(body []byte) error {
	v, err := decodeObject(body, `{"hold": {"channels": [...]}}`, "hold", "response")
	if err != nil {
		return err
	}
	if v["hold"] == nil && v["response"] == nil && g.mode == ModeNone && g.Next == nil {
		return inputError("hold", "hold and response are both missing; send one of them")
	}
	if hold := v["hold"]; hold != nil {
		if err := g.decodeHold(hold); err != nil {
			return err
		}
	}
	if err := g.decodeResponse(v["response"]); err != nil {
		return err
	}
	return g.checkStream(g.Response.Status)
}

func (g *Grip) decodeHold(raw json.RawMessage) error {
	v, err := pick("hold", raw, "mode", "channels", "timeout", "keep-alive", "meta")
	if err != nil {
		return err
	}
	if g.mode == ModeNone {
		g.mode = ModeResponse
	}
	if v["mode"] != nil {
		word, err := decodeString("hold.mode", v["mode"])
		if err != nil {
			return err
		}
		if g.mode = gripMode(word); g.mode == ModeNone {
			return gripError("hold.mode", []byte(word), "send stream or response")
		}
	}
	if err := g.decodeChannels(v["channels"]); err != nil {
		return err
	}
	if v["timeout"] != nil {
		timeout, err := decodeSeconds("hold.timeout", v["timeout"])
		if err != nil {
			return err
		}
		g.Timeout = max(timeout, gripTimeoutLeast)
	}
	if v["keep-alive"] != nil {
		if err := g.decodeKeepAlive(v["keep-alive"]); err != nil {
			return err
		}
	}
	if v["meta"] != nil {
		g.Meta, err = decodeMeta("hold.meta", v["meta"])
	}
	return err
}

func (g *Grip) decodeChannels(raw json.RawMessage) error {
	if raw == nil {
		return inputError("hold.channels", "hold.channels is missing; send a list of them")
	}
	if raw[0] != '[' {
		return inputError("hold.channels", `hold.channels is no list; send [{"name": "..."}]`)
	}
	g.Channels = nil
	for i, element := range elements(raw) {
		field := fmt.Sprintf("hold.channels[%d]", i)
		v, err := pick(field, element, "name", "prev-id", "filters")
		if err != nil {
			return err
		}
		if v["name"] == nil {
			return inputError(field+".name", "%s.name is missing; name the channel", field)
		}
		var c GripChannel
		if c.Name, err = decodeString(field+".name", v["name"]); err != nil {
			return err
		}
		if c.PrevID, err = decodeID(field+".prev-id", v["prev-id"]); err != nil {
			return err
		}
		if c.Filters, err = decodeFilters(field+".filters", v["filters"]); err != nil {
			return err
		}
		if err := g.join(field, c); err != nil {
			return err
		}
	}
	return nil
}

func (g *Grip) decodeKeepAlive(raw json.RawMessage) error {
	const field = "hold.keep-alive"
	v, err := pick(field, raw, "content", "content-bin", "timeout")
	if err != nil {
		return err
	}
	k := &KeepAlive{Timeout: gripTimeoutDefault}
	if k.Data, err = decodeContent(field, "content", v); err != nil || k.Data == nil {
		return err
	}
	if v["timeout"] != nil {
		if k.Timeout, err = decodeSeconds(field+".timeout", v["timeout"]); err != nil {
			return err
		}
	}
	return g.keepAlive(field, raw, k)
}

func (g *Grip) decodeResponse(raw json.RawMessage) error {
	r := &GripResponse{Status: http.StatusOK, Reason: g.Reason}
	if g.Status != 0 {
		r.Status = g.Status
	}
	g.Response, g.Status, g.Reason = r, 0, ""
	if raw == nil {
		return nil
	}
	v, err := pick("response", raw, "code", "reason", "headers", "body", "body-bin")
	if err != nil {
		return err
	}
	if v["code"] != nil {
		r.Reason = ""
		if r.Status, err = decodeStatus("response.code", v["code"]); err != nil {
			return err
		}
	}
	if v["reason"] != nil {
		if r.Reason, err = decodeStatusReason("response.reason", v["reason"]); err != nil {
			return err
		}
	}
	fields, err := decodeFields("response.headers", v["headers"])
	if err != nil {
		return err
	}
	for _, f := range fields {
		r.Fields = append(r.Fields, http1.Field{Name: []byte(f[0]), Value: []byte(f[1])})
	}
	if r.Body, err = decodeContent("response", "body", v); err != nil {
		return err
	}
	return checkBodiless("response", r.Status, r.Body)
}

// decodeSeconds decodes a number of seconds, which may be in quotation marks:
// Pushpin takes it, so that apps may send it.
func decodeSeconds(field string, raw json.RawMessage) (time.Duration, error) {
	seconds, ok := parseSeconds(bytes.Trim(raw, `"`))
	if !ok {
		return 0, inputError(field, "%s is %.40q; %s", field, raw, wholeSeconds)
	}
	return seconds, nil
}

// decodeObject reads a body that is to be one JSON object, of which only keys
// are known; shape is what an error tells to send.
func decodeObject(body []byte, shape string, keys ...string) (map[string]json.RawMessage, error) {
	if !utf8.Valid(body) {
		return nil, inputError("", "the body is not UTF-8; send binary data as base64")
	}
	if !json.Valid(body) {
		return nil, notJSON(body, nil)
	}
	if body = bytes.TrimLeft(body, jsonSpace); body[0] != '{' {
		return nil, inputError("", "the body is not a JSON object; send %s", shape)
	}
	return pick("", body, keys...)
}

const jsonSpace = " \t\r\n"

// pick gives the values of keys in an object, as parts of raw. Other keys have
// no effect, and a null is as good as absent.
func pick(field string, raw json.RawMessage, keys ...string) (map[string]json.RawMessage, error) {
	if raw[0] != '{' {
		return nil, inputError(field, "%s is no object; send one with %s", field, strings.Join(keys, ", "))
	}
	values := map[string]json.RawMessage{} // nil for a null
	for rawKey, value := range members(raw) {
		key := keyText(rawKey)
		if !slices.Contains(keys, key) {
			continue
		}
		if _, there := values[key]; there {
			path := strings.TrimPrefix(field+"."+key, ".")
			return nil, inputError(path, "%s is there twice; send it once", path)
		}
		if isNull(value) {
			value = nil
		}
		values[key] = value
	}
	return values, nil
}

func isNull(raw json.RawMessage) bool { return raw[0] == 'n' }

// keyText is a key as it is to be compared.
func keyText(raw json.RawMessage) (key string) {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1])
	}
	if json.Unmarshal(raw, &key) != nil {
		return ""
	}
	return key
}

// members gives the keys and the values of an object, elements the values of a
// list, as parts of raw without white space around them. raw is valid JSON and
// begins with the bracket. encoding/json would copy each at every depth, and
// lose the order.
func members(raw []byte) iter.Seq2[json.RawMessage, json.RawMessage] {
	return func(yield func(json.RawMessage, json.RawMessage) bool) {
		for rest := raw; ; {
			if rest = bytes.TrimLeft(rest[1:], jsonSpace); rest[0] == '}' { // behind { or ,
				return
			}
			end := valueEnd(rest)
			key := rest[:end:end]
			rest = bytes.TrimLeft(rest[end:], jsonSpace)
			rest = bytes.TrimLeft(rest[1:], jsonSpace) // behind the colon
			end = valueEnd(rest)
			if !yield(key, rest[:end:end]) {
				return
			}
			if rest = bytes.TrimLeft(rest[end:], jsonSpace); rest[0] == '}' {
				return
			}
		}
	}
}

func elements(raw []byte) iter.Seq2[int, json.RawMessage] {
	return func(yield func(int, json.RawMessage) bool) {
		rest := raw
		for i := 0; ; i++ {
			if rest = bytes.TrimLeft(rest[1:], jsonSpace); rest[0] == ']' { // behind [ or ,
				return
			}
			end := valueEnd(rest)
			if !yield(i, rest[:end:end]) {
				return
			}
			if rest = bytes.TrimLeft(rest[end:], jsonSpace); rest[0] == ']' {
				return
			}
		}
	}
}

// valueEnd is where the value ends that valid JSON begins with.
func valueEnd(raw []byte) int {
	depth := 0
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			for i++; raw[i] != '"'; i++ {
				if raw[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			depth++
			continue
		case '}', ']':
			depth--
		default:
			if depth > 0 {
				continue
			}
			// A number, true, false or null.
			if end := bytes.IndexAny(raw[i:], ",]}"+jsonSpace); end >= 0 {
				return i + end
			}
			return len(raw)
		}
		if depth == 0 {
			return i + 1
		}
	}
	return len(raw)
}
