package holds

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
	"unicode/utf8"
)

// FuzzDecodeItems: what is taken can be published as it is, and is what
// encoding/json finds in the body by itself; what is refused has a reason.
func FuzzDecodeItems(f *testing.F) {
	for _, body := range []string{
		``, `{}`, `{"items":[]}`, `{"items":[{"channel":"a","http-stream":{"content":"x"}}]}`,
		`{"items":[{"channel":"a","id":1,"prev-id":"0","formats":{"http-stream":{"action":"close","content":""},"http-response":{"code":"200","headers":{"A":["b"]},"body":"x"},"ws-message":{"type":"ping"}},"meta":{"a":1,"b":"c"}}]}`,
		`{"items":[{"channel":"a","http-response":{"headers":[["A","b"],["Connection","x"]],"body-bin":"/w=="},"no-seq":true}]}`,
		`{"items":[{"channel":"a","ws-message":{"action":"close","code":1005,"reason":"éééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééé"}}]}`,
		`{"items":[{"channel":"a","ws-message":{"type":"text","content-bin":"/w=="}}]}`, `{"items":[{"channel":"\ud800","http-stream":{"content":"\ud83d\ude00"}}]}`,
		"{\"it\\u0065ms\" \n: [ { \"channel\" : \"a\" , \"http-stream\" : { \"content\" : \"\\\"}]\\\\\" } } , {} ] , \"x\" : [ 1e5 , null , true ] }",
		`{"items":[{"channel":"a","http-stream":{"content":"x","content-filters":[]}}],"items":null}`, `{"channel":"a","data":{"items":1}}`, `[{"items":[]}]`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		before := bytes.Clone(body)
		is := IsItems(body)
		items, err := DecodeItems(body)
		if !bytes.Equal(body, before) {
			t.Fatal("it wrote into what it was given")
		}
		var loose map[string]json.RawMessage
		_, there := loose["items"]
		if json.Unmarshal(body, &loose) == nil {
			_, there = loose["items"]
		}
		if is != there {
			t.Fatalf("%q: IsItems %v", body, is)
		}
		if json.Valid(body) && utf8.Valid(body) {
			checkWalk(t, body)
		}
		if err != nil {
			checkRefusal(t, body, items, err)
			return
		}
		var list []map[string]json.RawMessage
		if !is || !utf8.Valid(body) || json.Unmarshal(loose["items"], &list) != nil || len(list) != len(items) {
			t.Fatalf("%q: %d items", body, len(items))
		}
		for i := range items {
			checkItem(t, list[i], &items[i])
		}
	})
}

// checkWalk requires that members and elements find what encoding/json finds.
func checkWalk(t *testing.T, body []byte) {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	var want any
	if err := dec.Decode(&want); err != nil {
		t.Fatal(err)
	}
	body = bytes.TrimLeft(body, jsonSpace)
	if got := walked(t, body[:valueEnd(body)]); !reflect.DeepEqual(got, want) {
		t.Fatalf("%q: %#v, want %#v", body, got, want)
	}
}

func walked(t *testing.T, raw []byte) any {
	switch raw[0] {
	case '{':
		object := map[string]any{}
		for key, value := range members(raw) {
			object[keyText(key)] = walked(t, value)
		}
		return object
	case '[':
		list := []any{}
		for i, value := range elements(raw) {
			if i != len(list) {
				t.Fatalf("element %d is numbered %d", len(list), i)
			}
			list = append(list, walked(t, value))
		}
		return list
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var value any
	if err := dec.Decode(&value); err != nil || dec.InputOffset() != int64(len(raw)) {
		t.Fatalf("%q: %v", raw, err)
	}
	return value
}

// checkItem requires what an Item promises; loose is what encoding/json has of
// it.
func checkItem(t *testing.T, loose map[string]json.RawMessage, item *Item) {
	t.Helper()
	var channel string
	if json.Unmarshal(loose["channel"], &channel) != nil || channel != item.Channel || CheckChannel(channel) != nil {
		t.Fatalf("channel %q, of %q", item.Channel, loose["channel"])
	}
	for _, id := range []*string{item.ID, item.PrevID} {
		if id != nil && (len(*id) > 1024 || hasControl(*id) || !utf8.ValidString(*id) || id == item.ID && *id == "") {
			t.Fatalf("id %q", *id)
		}
	}
	if metaBytes(item.Meta) > 64<<10 || item.Stream == nil && item.Answer == nil && item.Socket == nil {
		t.Fatalf("%+v", item)
	}
	if s := item.Stream; s != nil {
		checkForm(t, s.Action, ActionHint, s.Content, s.Filters)
		if (s.Action == ActionSend) != (s.Content != nil) {
			t.Fatalf("%+v", s)
		}
	}
	if a := item.Answer; a != nil {
		checkForm(t, a.Action, ActionHint, a.Body, a.Filters)
		if a.Action == ActionSend {
			checkAnswer(t, a.Status, a.Reason, a.Body)
		} else if a.Status != 0 || a.Reason != "" || a.Fields != nil || a.Body != nil {
			t.Fatalf("%+v", a)
		}
		for _, f := range a.Fields {
			checkHeadField(t, f[0], f[1])
		}
	}
	if s := item.Socket; s != nil {
		checkForm(t, s.Action, ActionRefresh, s.Content, s.Filters)
		checkSocketForm(t, s)
	}
}

func checkForm(t *testing.T, action, third Action, content []byte, filters []string) {
	t.Helper()
	if action > ActionClose && action != third || len(content) > MaxData || len(filters) > 5 {
		t.Fatalf("action %d, %d bytes, filters %q", action, len(content), filters)
	}
}

func checkSocketForm(t *testing.T, s *SocketForm) {
	t.Helper()
	bad := s.Action != ActionSend && (s.Kind != 0 || s.Content != nil) || s.Action != ActionClose && (s.Code != 0 || s.Reason != "")
	switch {
	case s.Action == ActionClose:
		bad = bad || !closeCodeSendable(s.Code) || len(s.Reason) > 123 || !utf8.ValidString(s.Reason)
	case s.Action != ActionSend:
	case s.Kind == opText:
		bad = bad || s.Content == nil || !utf8.Valid(s.Content)
	case s.Kind == opBinary:
		bad = bad || s.Content == nil
	default:
		bad = bad || s.Kind != opPing && s.Kind != opPong || len(s.Content) > 125
	}
	if bad {
		t.Fatalf("%+v", s)
	}
}
