package holds

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// controlKind is what a control message asks for.
type controlKind uint8

// The kinds of control messages. There is none to refresh, and session needs a
// service that is not here: it is unknown.
const (
	controlUnknown controlKind = iota // to be ignored
	controlSubscribe
	controlUnsubscribe
	controlDetach // let the app go, keep the client
	controlSetMeta
	controlKeepAlive
	controlSendDelayed
	controlFlushDelayed
)

var controlKinds = map[string]controlKind{
	"subscribe":     controlSubscribe,
	"unsubscribe":   controlUnsubscribe,
	"detach":        controlDetach,
	"set-meta":      controlSetMeta,
	"keep-alive":    controlKeepAlive,
	"send-delayed":  controlSendDelayed,
	"flush-delayed": controlFlushDelayed,
}

// control is a control message of GRIP for a socket, checked. What is not of
// its kind is zero.
type control struct {
	kind controlKind
	word string // controlUnknown: its type, for the log, at most 40 bytes

	// Subscribe and unsubscribe.
	channel string
	filters []string // subscribe: in order, at most maxFilters, unknown ones too

	// Set-meta: value nil takes the name away.
	name  string
	value *string

	// Keep-alive and send-delayed: what to send. Without content (nil; an empty
	// one is not) a keep-alive is off, and of a send-delayed there is nothing
	// but its opcode.
	opcode   opcode // opText, opBinary, opPing or opPong
	content  []byte
	timeout  time.Duration
	interval bool // keep-alive: each timeout, also where something was sent since
}

// The bounds of a set-meta, in bytes. Beyond each it is refused.
const (
	maxMetaName  = 256
	maxMetaValue = 4096
)

// maxControlWord is how much of an unknown type is shown.
const maxControlWord = 40

// Where a control message says no timeout, or 0.
const (
	keepAliveDefault   = 55 * time.Second
	sendDelayedDefault = time.Second
)

// errTooManyFilters is inside the error of a subscribe with more than
// maxFilters filters: the socket is to be closed for it. Any other message
// that cannot be read is only not followed.
var errTooManyFilters = errors.New("too many filters")

// decodeControl reads a control message, what is behind "c:" in a text of the
// app:
//
//	{"type": "subscribe", "channel": "name", "filters": ["skip-self"]}
//	{"type": "unsubscribe", "channel": "name"}
//	{"type": "detach"}
//	{"type": "set-meta", "name": "user", "value": "bob"}
//	{"type": "keep-alive", "message-type": "text", "content": "…", "timeout": 55, "mode": "idle"}
//	{"type": "send-delayed", "message-type": "text", "content-bin": "…", "timeout": 1}
//	{"type": "flush-delayed"}
//
// Keys that are not of the type are ignored, null is as good as not there, and
// of a key that is there twice the last counts: apps are not to break on what
// another proxy lets pass. A mode other than interval is idle. content-bin
// (base64) is taken rather than content.
//
// Errors are *InputError, errTooManyFilters inside it where that is the
// reason; the control is then zero. Nothing in it is a part of text.
func decodeControl(text []byte) (control, error) {
	members, err := controlMembers(text)
	if err != nil {
		return control{}, err
	}
	word, err := members.text("type", true)
	if err != nil {
		return control{}, err
	}
	c := control{kind: controlKinds[word]}
	switch c.kind {
	case controlUnknown:
		c.word = shownWord(word)
	case controlSubscribe:
		if c.channel, err = members.channel(); err == nil {
			c.filters, err = members.filters()
		}
	case controlUnsubscribe:
		c.channel, err = members.channel()
	case controlSetMeta:
		c.name, c.value, err = members.meta()
	case controlKeepAlive:
		var mode string
		if mode, err = members.text("mode", false); err == nil {
			c.interval = mode == "interval"
			err = members.sending(&c, keepAliveDefault)
		}
	case controlSendDelayed:
		err = members.sending(&c, sendDelayedDefault)
	}
	if err != nil {
		return control{}, err
	}
	return c, nil
}

// shownWord is as much of a text as a log line shows, ending between characters.
func shownWord(text string) string {
	if len(text) <= maxControlWord {
		return text
	}
	return strings.ToValidUTF8(text[:maxControlWord], "")
}

// jsonMembers are the members of a control message.
type jsonMembers map[string]json.RawMessage

// controlMembers reads the one object that text is.
func controlMembers(text []byte) (jsonMembers, error) {
	if !utf8.Valid(text) {
		return nil, inputError("", "the control message is not UTF-8; send binary data as content-bin")
	}
	if trimmed := bytes.TrimLeft(text, " \t\r\n"); len(trimmed) == 0 || trimmed[0] != '{' {
		return nil, inputError("", `the control message (%.40q) is not a JSON object; send {"type": …}`, text)
	}
	var members jsonMembers
	if err := json.Unmarshal(text, &members); err != nil {
		return nil, inputError("", "the control message (%.40q) is not JSON: %v; send one whole object", text, err)
	}
	for key, raw := range members {
		if string(raw) == "null" {
			delete(members, key)
		}
	}
	return members, nil
}

// text is a member that has to be a text; "" where it is not there and need
// not be.
func (m jsonMembers) text(key string, needed bool) (string, error) {
	raw, ok := m[key]
	if !ok && needed {
		return "", inputError(key, "%s is missing; send it as a JSON string", key)
	}
	if !ok {
		return "", nil
	}
	return decodeString(key, raw)
}

func (m jsonMembers) channel() (string, error) {
	name, err := m.text("channel", true)
	if err != nil {
		return "", err
	}
	if err := CheckChannel(name); err != nil {
		return "", inputError("channel", "channel: %v", err)
	}
	return name, nil
}

func (m jsonMembers) filters() (filters []string, err error) {
	raw, ok := m["filters"]
	if !ok {
		return nil, nil
	}
	var list []json.RawMessage
	if raw[0] != '[' || json.Unmarshal(raw, &list) != nil {
		return nil, inputError("filters", "filters is not a list; send a list of names (JSON strings), or leave it out")
	}
	if len(list) > maxFilters {
		return nil, &InputError{"filters", fmt.Sprintf("filters has %d names; a channel takes %d at most", len(list), maxFilters), errTooManyFilters}
	}
	for i, element := range list {
		field := fmt.Sprintf("filters[%d]", i)
		name, err := decodeString(field, element)
		if err != nil {
			return nil, err
		}
		if len(name) > maxFilter {
			return nil, inputError(field, "%s has %d bytes; a filter's name has %d at most", field, len(name), maxFilter)
		}
		filters = append(filters, name)
	}
	return filters, nil
}

func (m jsonMembers) meta() (name string, value *string, err error) {
	if name, err = m.text("name", true); err != nil {
		return "", nil, err
	}
	if name == "" || len(name) > maxMetaName {
		return "", nil, inputError("name", "name has %d bytes; the name of a meta value has 1 to %d", len(name), maxMetaName)
	}
	if _, ok := m["value"]; !ok {
		return name, nil, nil
	}
	text, err := m.text("value", true)
	if err != nil {
		return "", nil, err
	}
	if len(text) > maxMetaValue {
		return "", nil, inputError("value", "value has %d bytes; a meta value has %d at most", len(text), maxMetaValue)
	}
	return name, &text, nil
}

// messageTypes are the words of message-type; text is what is meant where there is none.
var messageTypes = map[string]opcode{"": opText, "text": opText, "binary": opBinary, "ping": opPing, "pong": opPong}

// sending reads what a keep-alive or a send-delayed is to send, and when.
func (m jsonMembers) sending(c *control, initial time.Duration) error {
	word, err := m.text("message-type", false)
	if err != nil {
		return err
	}
	var ok bool
	if c.opcode, ok = messageTypes[word]; !ok {
		return inputError("message-type", "message-type is %.40q; send text, binary, ping or pong", word)
	}
	if c.content, err = m.content(c.opcode); err != nil {
		return err
	}
	if c.kind == controlKeepAlive && len(c.content) > maxKeepAlive {
		return inputError("content", "content has %d bytes; a keep-alive has %d at most, because it is kept as long as the socket", len(c.content), maxKeepAlive)
	}
	seconds, err := m.seconds("timeout")
	if seconds == 0 {
		seconds = initial
	}
	c.timeout = seconds
	return err
}

// seconds is a member that has to be a number of seconds, of which what is
// behind the point does not count (55.0 is how Python writes a float), and no
// more than gripTimeoutMost; 0 where it is not there.
func (m jsonMembers) seconds(key string) (time.Duration, error) {
	raw, ok := m[key]
	if !ok {
		return 0, nil
	}
	n, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || n < 0 {
		return 0, inputError(key, "%s is %.40q; send seconds, a number that is not negative", key, raw)
	}
	return time.Duration(min(n, gripTimeoutMost.Seconds())) * time.Second, nil
}

// content reads content-bin or content, for a message that is such a one: a
// text has to be UTF-8 (RFC 6455 §5.6), and a ping or pong to fit into one
// frame (§5.5). nil: neither is there.
func (m jsonMembers) content(kind opcode) ([]byte, error) {
	field := "content"
	_, binary := m["content-bin"]
	if binary {
		field = "content-bin"
	} else if _, ok := m[field]; !ok {
		return nil, nil
	}
	text, err := m.text(field, true)
	if err != nil {
		return nil, err
	}
	content := []byte(text)
	if binary {
		if content, err = base64.StdEncoding.Strict().DecodeString(text); err != nil {
			return nil, inputError(field, "%s is not base64 in the standard alphabet with padding (RFC 4648 section 4)", field)
		}
	}
	switch {
	case len(content) > MaxData:
		return nil, tooLarge(field)
	case kind.isControl() && len(content) > maxControl:
		return nil, inputError(field, "%s has %d bytes; a ping or pong has room for %d", field, len(content), maxControl)
	case kind == opText && !utf8.Valid(content):
		return nil, inputError(field, "%s is not UTF-8, and a text has to be; send it with message-type binary", field)
	}
	return content, nil
}
