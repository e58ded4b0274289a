package holds

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxItems bounds the items of one publish call. GRIP's libraries send 1 to 10.
const maxItems = 10000

const itemsShape = `{"items": [{"channel": "name", "http-stream": {"content": "..."}}]}`

// IsItems reports whether the body of a publish call is JSON of GRIP's shape:
// an object with the key "items".
func IsItems(body []byte) bool {
	// Most bodies of the native shape are told apart here, unread: without an
	// escape the key is these bytes.
	if !bytes.Contains(body, []byte(`"items"`)) && !bytes.Contains(body, []byte(`\u`)) {
		return false
	}
	if !json.Valid(body) {
		return false
	}
	if body = bytes.TrimLeft(body, jsonSpace); body[0] != '{' {
		return false
	}
	for key := range members(body) {
		if keyText(key) == "items" {
			return true
		}
	}
	return false
}

// DecodeItems reads the body of GRIP's publish call:
//
//	{"items": [{"channel": "name", "id": "2", "prev-id": "1", "http-stream": {"content": "text"}}, ...]}
//
// The forms of an item (http-stream, http-response, ws-message) are in the item
// itself or in its "formats", not in both. Keys and forms that are not known
// have no effect, null is as good as absent, ids may be numbers, and *-bin wins
// over the text beside it. No items are no error: there is nothing to publish.
//
// What the libraries of GRIP's clients get wrong is put right: a close code
// that may not be sent becomes 1000, a reason that does not fit is cut, an
// http-response without a body has an empty one. Anything else that is wrong
// is an *InputError, whose Field is like "items[2].http-stream.content", and
// nothing of the call counts then; ErrTooLarge is inside it where a content is
// over MaxData. A call of more than maxItems is refused, and how large a body
// may be is the caller's to bound. What is decoded is no part of the body.
func DecodeItems(body []byte) ([]Item, error) {
	v, err := decodeObject(body, itemsShape, "items", "channel", "data", "base64")
	if err != nil {
		return nil, err
	}
	raw := v["items"]
	if raw == nil || raw[0] != '[' {
		return nil, inputError("items", "items is no list; send %s", itemsShape)
	}
	for _, key := range []string{"channel", "data", "base64"} {
		if v[key] != nil {
			return nil, inputError(key, "%s and items are both there; publish in one form a request, %s or %s", key, publicationShape, itemsShape)
		}
	}
	var items []Item
	for i, element := range elements(raw) {
		if i == maxItems {
			return nil, inputError("items", "items has more than %d elements; publish them in several requests", maxItems)
		}
		item, err := decodeItem(fmt.Sprintf("items[%d]", i), element)
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	return items, nil
}

var formKeys = []string{"http-stream", "http-response", "ws-message"}

func decodeItem(at string, raw json.RawMessage) (item Item, err error) {
	v, err := pick(at, raw, append([]string{"channel", "id", "prev-id", "formats", "meta", "no-seq"}, formKeys...)...)
	if err != nil {
		return Item{}, err
	}
	if item.Channel, err = decodeItemChannel(at+".channel", v["channel"]); err != nil {
		return Item{}, err
	}
	if item.ID, err = decodeID(at+".id", v["id"]); err != nil {
		return Item{}, err
	}
	if item.ID != nil && *item.ID == "" {
		item.ID = nil
	}
	if item.PrevID, err = decodeID(at+".prev-id", v["prev-id"]); err != nil {
		return Item{}, err
	}
	if item.Meta, err = decodeMeta(at+".meta", v["meta"]); err != nil {
		return Item{}, err
	}
	if item.NoSeq, err = decodeBool(at+".no-seq", v["no-seq"]); err != nil {
		return Item{}, err
	}
	if err := item.decodeForms(at, v); err != nil {
		return Item{}, err
	}
	return item, nil
}

// decodeForms decodes the forms of an item that has the values v.
func (item *Item) decodeForms(at string, v map[string]json.RawMessage) (err error) {
	if v["formats"] != nil {
		for _, key := range formKeys {
			if v[key] != nil {
				return inputError(at+"."+key, "%s.%s and %s.formats are both there; put all forms into one place", at, key, at)
			}
		}
		at += ".formats"
		if v, err = pick(at, v["formats"], formKeys...); err != nil {
			return err
		}
	}
	if raw := v["http-stream"]; raw != nil {
		if item.Stream, err = decodeStreamForm(at+".http-stream", raw); err != nil {
			return err
		}
	}
	if raw := v["http-response"]; raw != nil {
		if item.Answer, err = decodeAnswerForm(at+".http-response", raw); err != nil {
			return err
		}
	}
	if raw := v["ws-message"]; raw != nil {
		if item.Socket, err = decodeSocketForm(at+".ws-message", raw); err != nil {
			return err
		}
	}
	if item.Stream == nil && item.Answer == nil && item.Socket == nil {
		return inputError(at, "%s has nothing to publish; send one of %s", at, strings.Join(formKeys, ", "))
	}
	return nil
}

func decodeItemChannel(field string, raw json.RawMessage) (string, error) {
	if raw == nil {
		return "", inputError(field, "%s is missing; name the channel", field)
	}
	name, err := decodeString(field, raw)
	if err != nil {
		return "", err
	}
	if err := CheckChannel(name); err != nil {
		return "", inputError(field, "%s: %v", field, err)
	}
	return name, nil
}

func decodeBool(field string, raw json.RawMessage) (bool, error) {
	if raw != nil && raw[0] != 't' && raw[0] != 'f' {
		return false, inputError(field, "%s is neither true nor false; send one of them, or leave it out", field)
	}
	return raw != nil && raw[0] == 't', nil
}

// actionWords are the words of the actions, by their numbers.
var actionWords = []string{ActionSend: "send", ActionClose: "close", ActionHint: "hint", ActionRefresh: "refresh"}

// decodeAction decodes a form's action, which is to send if nothing is said.
// third is the form's own beside to send and to close.
func decodeAction(field string, raw json.RawMessage, third Action) (Action, error) {
	if raw == nil {
		return ActionSend, nil
	}
	word, err := decodeString(field, raw)
	if err != nil {
		return 0, err
	}
	action := Action(max(slices.Index(actionWords, word), 0))
	if word != actionWords[action] || action > ActionClose && action != third {
		return 0, inputError(field, "%s is %.40q; use send, close or %s", field, word, actionWords[third])
	}
	return action, nil
}

func decodeStreamForm(at string, raw json.RawMessage) (*StreamForm, error) {
	v, err := pick(at, raw, "action", "content", "content-bin", "content-filters")
	if err != nil {
		return nil, err
	}
	form := &StreamForm{}
	if form.Action, err = decodeAction(at+".action", v["action"], ActionHint); err != nil {
		return nil, err
	}
	if form.Filters, err = decodeFilters(at+".content-filters", v["content-filters"]); err != nil {
		return nil, err
	}
	if form.Action != ActionSend {
		return form, nil
	}
	if form.Content, err = decodeContent(at, "content", v); err != nil {
		return nil, err
	}
	if form.Content == nil {
		return nil, contentMissing(at)
	}
	return form, nil
}

func contentMissing(at string) error {
	return inputError(at+".content", "%s.content is missing; send content (a text) or content-bin (base64)", at)
}

func decodeAnswerForm(at string, raw json.RawMessage) (*AnswerForm, error) {
	v, err := pick(at, raw, "action", "code", "reason", "headers", "body", "body-bin", "body-patch", "content-filters")
	if err != nil {
		return nil, err
	}
	form := &AnswerForm{}
	if form.Action, err = decodeAction(at+".action", v["action"], ActionHint); err != nil {
		return nil, err
	}
	if form.Filters, err = decodeFilters(at+".content-filters", v["content-filters"]); err != nil {
		return nil, err
	}
	if form.Action != ActionSend {
		return form, nil
	}
	if v["body-patch"] != nil {
		return nil, inputError(at+".body-patch", "%s.body-patch is not supported; send the whole body", at)
	}
	form.Status = http.StatusOK
	if v["code"] != nil {
		if form.Status, err = decodeStatus(at+".code", v["code"]); err != nil {
			return nil, err
		}
	}
	if v["reason"] != nil {
		if form.Reason, err = decodeStatusReason(at+".reason", v["reason"]); err != nil {
			return nil, err
		}
	}
	if form.Fields, err = decodeFields(at+".headers", v["headers"]); err != nil {
		return nil, err
	}
	if form.Body, err = decodeContent(at, "body", v); err != nil {
		return nil, err
	}
	if err := checkBodiless(at, form.Status, form.Body); err != nil {
		return nil, err
	}
	return form, nil
}

func decodeSocketForm(at string, raw json.RawMessage) (*SocketForm, error) {
	v, err := pick(at, raw, "action", "type", "content", "content-bin", "code", "reason", "content-filters")
	if err != nil {
		return nil, err
	}
	form := &SocketForm{}
	if form.Action, err = decodeAction(at+".action", v["action"], ActionRefresh); err != nil {
		return nil, err
	}
	if form.Filters, err = decodeFilters(at+".content-filters", v["content-filters"]); err != nil {
		return nil, err
	}
	switch form.Action {
	case ActionSend:
		err = form.decodeMessage(at, v)
	case ActionClose:
		err = form.decodeClose(at, v)
	}
	if err != nil {
		return nil, err
	}
	return form, nil
}

var socketTypes = map[string]opcode{"text": opText, "binary": opBinary, "ping": opPing, "pong": opPong}

// decodeMessage decodes what is to be sent. Its type is as stated, else as the
// key of its content has it.
func (form *SocketForm) decodeMessage(at string, v map[string]json.RawMessage) (err error) {
	if form.Content, err = decodeContent(at, "content", v); err != nil {
		return err
	}
	form.Kind = opText
	if v["content-bin"] != nil {
		form.Kind = opBinary
	}
	if v["type"] != nil {
		word, err := decodeString(at+".type", v["type"])
		if err != nil {
			return err
		}
		var known bool
		if form.Kind, known = socketTypes[word]; !known {
			return inputError(at+".type", "%s.type is %.40q; send text, binary, ping or pong", at, word)
		}
	}
	switch {
	case form.Kind.isControl() && len(form.Content) > maxControl:
		return inputError(at+".content", "%s.content has %d bytes; a ping or a pong has room for %d", at, len(form.Content), maxControl)
	case !form.Kind.isControl() && form.Content == nil:
		return contentMissing(at)
	case form.Kind == opText && !utf8.Valid(form.Content):
		return inputError(at+".content-bin", "%s.content-bin is no UTF-8, which a text has to be; send it as type binary", at)
	}
	return nil
}

func (form *SocketForm) decodeClose(at string, v map[string]json.RawMessage) error {
	form.Code = closeCodeDefault
	if v["code"] != nil {
		code, err := decodeCode(at+".code", v["code"])
		if err != nil {
			return err
		}
		if closeCodeSendable(code) {
			form.Code = code
		}
	}
	if v["reason"] == nil {
		return nil
	}
	reason, err := decodeString(at+".reason", v["reason"])
	form.Reason = closeReason([]byte(reason))
	return err
}
