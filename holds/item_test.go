package holds

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func TestIsItems_IsAnObjectWithTheKeyItems(t *testing.T) {
	for body, want := range map[string]bool{
		`{"items":[]}`: true,
		" \r\n\t{ \"a\":{\"b\":[]}, \"items\" :1}": true,
		`{"it\u0065ms":null}`:                      true,
		`{"a":"\"","items":[]}`:                    true,
		"{\"items\":\"\xff\"}":                     true, // DecodeItems says what is wrong
		`{"channel":"items","data":"items"}`:       false,
		`{"channel":"a","data":{"items":[]}}`:      false,
		`{"a":[{"items":[]}],"data":"\"items\""}`:  false,
		`{"Items":[]}`:                             false,
		`{"items ":[]}`:                            false,
		`{}`:                                       false,
		`[{"items":[]}]`:                           false,
		`["items"]`:                                false,
		`"items"`:                                  false,
		`{"items":[]`:                              false,
		`{"items":[]} x`:                           false,
		`{"items":[]}{}`:                           false,
		`{"a":"\u0041"}`:                           false,
		`"items"}`:                                 false,
		``:                                         false,
		` `:                                        false,
	} {
		if got := IsItems([]byte(body)); got != want {
			t.Errorf("%q: %v, want %v", body, got, want)
		}
	}
}

// itemCase is one item of a publish call, and what it is read as.
type itemCase struct {
	item string
	want Item
}

func (c itemCase) check(t *testing.T) {
	t.Helper()
	body := []byte(`{"items":[` + c.item + `]}`)
	items, err := DecodeItems(body)
	for i := range body { // what was decoded is no part of it
		body[i] = '!'
	}
	if err != nil || len(items) != 1 || !reflect.DeepEqual(items[0], c.want) {
		is, _ := json.Marshal(items)
		want, _ := json.Marshal(c.want)
		t.Errorf("%.300s\nis   %.300s, %v\nwant %.300s", c.item, is, err, want)
	}
}

func TestDecodeItems_TakesBothShapes(t *testing.T) {
	stream := func(content string) *StreamForm { return &StreamForm{Content: []byte(content)} }
	text := &SocketForm{Kind: opText, Content: []byte("t")}
	for _, c := range []itemCase{
		// pypubcontrol's: the forms are in the item.
		{`{"channel":"a","id":"2","prev-id":"1","http-stream":{"content":"x"},"ws-message":{"content":"t"}}`,
			Item{Channel: "a", ID: new("2"), PrevID: new("1"), Stream: stream("x"), Socket: text}},
		// @fanoutio/grip's: they are in formats.
		{`{"channel":"a","id":"2","formats":{"http-stream":{"content":"x"},"http-response":{"code":"201"},"ws-message":{"content":"t"}}}`,
			Item{Channel: "a", ID: new("2"), Stream: stream("x"), Answer: &AnswerForm{Status: 201}, Socket: text}},
		{`{"channel":"a,b %2C é","formats":{"http-stream":{"content":""},"sms":7},"size":3,"no-seq":true,"more":{"channel":1}}`,
			Item{Channel: "a,b %2C é", Stream: stream(""), NoSeq: true}},
		{`{ "ch\u0061nnel" : "a" , "http\u002dstream" : {"content":"x"} , "sms" : {} }`, Item{Channel: "a", Stream: stream("x")}},
		{`{"channel":"a","id":null,"prev-id":null,"meta":null,"no-seq":null,"formats":null,"http-response":null,"http-stream":{"action":null,"content":"x","content-bin":null,"content-filters":null}}`,
			Item{Channel: "a", Stream: stream("x")}},
		{`{"channel":"a","id":17,"prev-id":-1.50e400,"no-seq":false,"http-stream":{"content":"x"}}`,
			Item{Channel: "a", ID: new("17"), PrevID: new("-1.50e400"), Stream: stream("x")}},
		{`{"channel":"a","id":"","prev-id":"","http-stream":{"content":"x"}}`, Item{Channel: "a", PrevID: new(""), Stream: stream("x")}},
		{`{"channel":"a","id":"` + strings.Repeat("é", 512) + `","http-stream":{"content":"x"}}`, Item{Channel: "a", ID: new(strings.Repeat("é", 512)), Stream: stream("x")}},
		{`{"channel":"a","meta":{"sender":"7","n":1.0,"none":null,"":"e"},"http-stream":{"content":"x"}}`,
			Item{Channel: "a", Meta: map[string]string{"sender": "7", "n": "1.0", "": "e"}, Stream: stream("x")}},
		{`{"channel":"a","meta":{},"http-stream":{"content":"x"}}`, Item{Channel: "a", Meta: map[string]string{}, Stream: stream("x")}},
	} {
		c.check(t)
	}
}

func TestDecodeItems_TakesAnyNumberInTheirOrder(t *testing.T) {
	for _, body := range []string{`{"items":[]}`, `{"items" : [ ] , "more":1}`} {
		if items, err := DecodeItems([]byte(body)); len(items) != 0 || err != nil {
			t.Errorf("%s: %v, %v", body, items, err)
		}
	}
	const item = `{"channel":"c%d","http-stream":{"content":"x"}}`
	list := make([]string, 10001)
	for i := range list {
		list[i] = fmt.Sprintf(item, i)
	}
	items, err := DecodeItems([]byte(`{"items":[` + strings.Join(list[:10000], " , ") + `]}`))
	if err != nil || len(items) != 10000 {
		t.Fatalf("%d items, %v", len(items), err)
	}
	for i, item := range items {
		if item.Channel != fmt.Sprintf("c%d", i) {
			t.Fatalf("item %d: %+v", i, item)
		}
	}
	over := refused{`{"items":[` + strings.Join(list, ",") + `]}`, "items", []string{"10000", "several"}}
	items, err = DecodeItems([]byte(over.body))
	over.check(t, items, err)
}

func TestDecodeItems_ReadsStreamForms(t *testing.T) {
	const big = 1 << 20
	for _, c := range []struct {
		form string
		want StreamForm
	}{
		{`{"content":"data: é\ud83d\ude00\n\n"}`, StreamForm{Content: []byte("data: é😀\n\n")}},
		{`{"action":"send","content":"x","content-bin":"/+8A"}`, StreamForm{Content: []byte{0xff, 0xef, 0}}},
		{`{"content-bin":""}`, StreamForm{Content: []byte{}}},
		{`{"content-bin":"eHh4\neHh4\r\n"}`, StreamForm{Content: []byte("xxxxxx")}},
		{`{"action":"close","content":""}`, StreamForm{Action: ActionClose}},
		{`{"action":"close"}`, StreamForm{Action: ActionClose}},
		{`{"action":"hint","content":7}`, StreamForm{Action: ActionHint}},
		{`{"content":"x","content-filters":["build-id"],"more":1}`, StreamForm{Content: []byte("x"), Filters: []string{"build-id"}}},
		{`{"content":"x","content-filters":[]}`, StreamForm{Content: []byte("x"), Filters: []string{}}},
		{`{"action":"close","content-filters":["a","b","c","d","e"]}`, StreamForm{Action: ActionClose, Filters: []string{"a", "b", "c", "d", "e"}}},
		{`{"content":"` + strings.Repeat("x", big) + `"}`, StreamForm{Content: []byte(strings.Repeat("x", big))}},
		{`{"content":"` + strings.Repeat(`\u0078`, big) + `"}`, StreamForm{Content: []byte(strings.Repeat("x", big))}},
		{`{"content-bin":"` + base64.StdEncoding.EncodeToString(make([]byte, big)) + `"}`, StreamForm{Content: make([]byte, big)}},
	} {
		itemCase{`{"channel":"a","http-stream":` + c.form + `}`, Item{Channel: "a", Stream: &c.want}}.check(t)
	}
}

func TestDecodeItems_ReadsAnswerForms(t *testing.T) {
	for _, c := range []struct {
		form string
		want AnswerForm
	}{
		{`{"body":"x"}`, AnswerForm{Status: 200, Body: []byte("x")}},
		{`{}`, AnswerForm{Status: 200}}, // no body is an empty one
		{`{"body":"x","body-bin":"/w=="}`, AnswerForm{Status: 200, Body: []byte{0xff}}},
		{`{"code":404,"reason":"Not Found"}`, AnswerForm{Status: 404, Reason: "Not Found"}},
		{`{"code":"599"}`, AnswerForm{Status: 599}},
		{`{"code":204,"body":""}`, AnswerForm{Status: 204, Body: []byte{}}},
		{`{"headers":{"B":"1","A":"2","B":["3","4"],"Content-Length":7,"connection":null}}`,
			AnswerForm{Status: 200, Fields: [][2]string{{"B", "1"}, {"A", "2"}, {"B", "3"}, {"B", "4"}}}},
		{`{"headers":[["B","1"],["A"," é\t"],["Transfer-Encoding","chunked"]]}`, AnswerForm{Status: 200, Fields: [][2]string{{"B", "1"}, {"A", "é"}}}},
		{`{"headers":[]}`, AnswerForm{Status: 200}},
		{`{"action":"hint","code":"x"}`, AnswerForm{Action: ActionHint}},
		{`{"action":"close"}`, AnswerForm{Action: ActionClose}},
		{`{"content-filters":["var-subst"]}`, AnswerForm{Status: 200, Filters: []string{"var-subst"}}},
	} {
		itemCase{`{"channel":"a","formats":{"http-response":` + c.form + `}}`, Item{Channel: "a", Answer: &c.want}}.check(t)
	}
}

func TestDecodeItems_ReadsSocketForms(t *testing.T) {
	for _, c := range []struct {
		form string
		want SocketForm
	}{
		{`{"content":"é"}`, SocketForm{Kind: opText, Content: []byte("é")}},
		{`{"content":""}`, SocketForm{Kind: opText, Content: []byte{}}},
		{`{"content-bin":"/w=="}`, SocketForm{Kind: opBinary, Content: []byte{0xff}}},
		{`{"content-bin":"/w==","content":"x"}`, SocketForm{Kind: opBinary, Content: []byte{0xff}}},
		{`{"type":"text","content-bin":"w6k="}`, SocketForm{Kind: opText, Content: []byte("é")}}, // what is stated counts
		{`{"type":"binary","content":"x"}`, SocketForm{Kind: opBinary, Content: []byte("x")}},
		{`{"type":"ping"}`, SocketForm{Kind: opPing}},
		{`{"type":"pong","content":"` + strings.Repeat("x", 125) + `"}`, SocketForm{Kind: opPong, Content: []byte(strings.Repeat("x", 125))}},
		{`{"action":"refresh","content":7}`, SocketForm{Action: ActionRefresh}},
		{`{"action":"close"}`, SocketForm{Action: ActionClose, Code: 1000}},
		{`{"action":"close","code":4404,"reason":"gone","type":7}`, SocketForm{Action: ActionClose, Code: 4404, Reason: "gone"}},
		{`{"action":"close","code":"3000"}`, SocketForm{Action: ActionClose, Code: 3000}},
		{`{"action":"close","code":1001,"reason":null}`, SocketForm{Action: ActionClose, Code: 1001}},
		{`{"action":"close","reason":"` + strings.Repeat("x", 123) + `y"}`, SocketForm{Action: ActionClose, Code: 1000, Reason: strings.Repeat("x", 123)}},
		{`{"action":"close","reason":"` + strings.Repeat("é", 62) + `"}`, SocketForm{Action: ActionClose, Code: 1000, Reason: strings.Repeat("é", 61)}},
		{`{"action":"send","content":"x","content-filters":["a"]}`, SocketForm{Kind: opText, Content: []byte("x"), Filters: []string{"a"}}},
	} {
		itemCase{`{"channel":"a","ws-message":` + c.form + `}`, Item{Channel: "a", Socket: &c.want}}.check(t)
	}
	for _, code := range []string{"0", "999", "1004", "1005", "1006", "1015", "2999", "5000", `"0"`, "99999999999999999999"} {
		itemCase{`{"channel":"a","ws-message":{"action":"close","code":` + code + `,"reason":"r"}}`,
			Item{Channel: "a", Socket: &SocketForm{Action: ActionClose, Code: 1000, Reason: "r"}}}.check(t)
	}
}

func TestDecodeItems_RefusesABodyWithTheFieldAndTheWayOut(t *testing.T) {
	for _, c := range []refused{
		{``, "", []string{"not JSON"}},
		{`{"items":[]`, "", []string{"not JSON"}},
		{`{"items":[]}{}`, "", []string{"not JSON"}},
		{"{\"items\":[\"\xff\"]}", "", []string{"UTF-8", "base64"}},
		{`{"items":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`, "", []string{"not JSON", "depth"}},
		{`[]`, "", []string{"not a JSON object", `"items"`}},
		{`{}`, "items", []string{"list"}},
		{`{"items":null}`, "items", []string{"list"}},
		{`{"items":{}}`, "items", []string{"list"}},
		{`{"items":[],"items":[]}`, "items", []string{"twice"}},
		{`{"items":[],"channel":"a","data":"x"}`, "channel", []string{"items", "both"}},
		{`{"items":[],"data":0}`, "data", []string{"items", "both"}},
		{`{"base64":"","items":[]}`, "base64", []string{"items", "both"}},
		{`{"items":[7]}`, "items[0]", []string{"object"}},
		{`{"items":[{"channel":"a","http-stream":{"content":"x"}},null]}`, "items[1]", []string{"object"}},
	} {
		got, err := DecodeItems([]byte(c.body))
		c.check(t, got, err)
	}
}

func TestDecodeItems_RefusesTheWholeCallForOneBadItem(t *testing.T) {
	const ok = `"channel":"a","http-stream":{"content":"x"}`
	for _, c := range []refused{ // body is the item's members; field is within it
		{`"http-stream":{"content":"x"}`, ".channel", []string{"missing"}},
		{`"channel":null,"http-stream":{"content":"x"}`, ".channel", []string{"missing"}},
		{`"channel":7,"http-stream":{"content":"x"}`, ".channel", []string{"text"}},
		{`"channel":"","http-stream":{"content":"x"}`, ".channel", []string{"empty"}},
		{`"channel":"a\u0000","http-stream":{"content":"x"}`, ".channel", []string{"control byte"}},
		{`"channel":"` + strings.Repeat("x", 256) + `","http-stream":{"content":"x"}`, ".channel", []string{"256", "255"}},
		{`"channel":"b",` + ok, ".channel", []string{"twice"}},
		{`"id":true,` + ok, ".id", []string{"text"}},
		{`"id":"a\n",` + ok, ".id", []string{"control byte"}},
		{`"id":"` + strings.Repeat("1", 1025) + `",` + ok, ".id", []string{"1025", "1024"}},
		{`"id":` + strings.Repeat("1", 1025) + `,` + ok, ".id", []string{"1025", "1024"}},
		{`"prev-id":[],` + ok, ".prev-id", []string{"text"}},
		{`"prev-id":"\u007f",` + ok, ".prev-id", []string{"control byte"}},
		{`"no-seq":1,` + ok, ".no-seq", []string{"true nor false"}},
		{`"meta":"x",` + ok, ".meta", []string{"object"}},
		{`"meta":{"user":["7"]},` + ok, ".meta", []string{`"user"`}},
		{`"meta":{"` + strings.Repeat("k", 64<<10) + `":"x"},` + ok, ".meta", []string{"65536"}},
		{`"meta":{"\ud800":"x"},` + ok, ".meta", []string{"surrogate"}},

		{`"channel":"a"`, "", []string{"nothing to publish", "http-stream, http-response, ws-message"}},
		{`"channel":"a","sms":{}`, "", []string{"nothing to publish"}},
		{`"channel":"a","http-stream":null`, "", []string{"nothing to publish"}},
		{`"channel":"a","formats":{"sms":{}}`, ".formats", []string{"nothing to publish"}},
		{`"channel":"a","formats":[]`, ".formats", []string{"object"}},
		{`"channel":"a","formats":{"http-stream":{"content":"x"},"http-stream":{"content":"y"}}`, ".formats.http-stream", []string{"twice"}},
		{`"formats":{"ws-message":{"content":"x"}},` + ok, ".http-stream", []string{"formats", "both"}},
		{`"channel":"a","http-stream":"x"`, ".http-stream", []string{"object", "content"}},

		{`"channel":"a","http-stream":{}`, ".http-stream.content", []string{"missing", "content-bin"}},
		{`"channel":"a","http-stream":{"content":null}`, ".http-stream.content", []string{"missing"}},
		{`"channel":"a","http-stream":{"content":7}`, ".http-stream.content", []string{"text"}},
		{`"channel":"a","http-stream":{"content":"\udc00"}`, ".http-stream.content", []string{"surrogate"}},
		{`"channel":"a","formats":{"http-stream":{"content-bin":"eA"}}`, ".formats.http-stream.content-bin", []string{"base64", "padding"}},
		{`"channel":"a","http-stream":{"content-bin":"_-8A"}`, ".http-stream.content-bin", []string{"base64"}},
		{`"channel":"a","http-stream":{"content":"x","action":"refresh"}`, ".http-stream.action", []string{`"refresh"`, "send, close or hint"}},
		{`"channel":"a","http-stream":{"content":"x","action":"Send"}`, ".http-stream.action", []string{`"Send"`}},
		{`"channel":"a","http-stream":{"content":"x","action":""}`, ".http-stream.action", []string{`""`}},
		{`"channel":"a","http-stream":{"content":"x","action":0}`, ".http-stream.action", []string{"text"}},
		{`"channel":"a","http-stream":{"content":"x","content-filters":"build-id"}`, ".http-stream.content-filters", []string{"list"}},
		{`"channel":"a","http-stream":{"action":"close","content-filters":["1","2","3","4","5","6"]}`, ".http-stream.content-filters", []string{"more than 5"}},

		{`"channel":"a","http-response":{"body":"x","body-patch":[]}`, ".http-response.body-patch", []string{"not supported", "whole body"}},
		{`"channel":"a","http-response":{"code":199}`, ".http-response.code", []string{"200 to 599"}},
		{`"channel":"a","http-response":{"code":"600"}`, ".http-response.code", []string{"200 to 599"}},
		{`"channel":"a","http-response":{"code":"abc"}`, ".http-response.code", []string{`"abc"`, "whole number"}},
		{`"channel":"a","http-response":{"code":""}`, ".http-response.code", []string{"whole number"}},
		{`"channel":"a","http-response":{"code":-200}`, ".http-response.code", []string{"whole number"}},
		{`"channel":"a","http-response":{"reason":"a\nb"}`, ".http-response.reason", []string{"control byte"}},
		{`"channel":"a","http-response":{"headers":{"X":"a\r\nY: b"}}`, ".http-response.headers", []string{`"X"`, "control byte"}},
		{`"channel":"a","http-response":{"headers":[["X Y","a"]]}`, ".http-response.headers", []string{`"X Y"`}},
		{`"channel":"a","http-response":{"headers":{"X":null}}`, ".http-response.headers", []string{`"X"`, "text"}},
		{`"channel":"a","http-response":{"code":304,"body":"x"}`, ".http-response.body", []string{"304"}},
		{`"channel":"a","http-response":{"action":"refresh"}`, ".http-response.action", []string{"send, close or hint"}},

		{`"channel":"a","ws-message":{}`, ".ws-message.content", []string{"missing"}},
		{`"channel":"a","ws-message":{"type":"binary"}`, ".ws-message.content", []string{"missing"}},
		{`"channel":"a","ws-message":{"type":"close"}`, ".ws-message.type", []string{`"close"`, "text, binary, ping or pong"}},
		{`"channel":"a","ws-message":{"type":"text","content-bin":"/w=="}`, ".ws-message.content-bin", []string{"UTF-8", "binary"}},
		{`"channel":"a","ws-message":{"content":"\ud800"}`, ".ws-message.content", []string{"surrogate"}},
		{`"channel":"a","ws-message":{"type":"ping","content":"` + strings.Repeat("x", 126) + `"}`, ".ws-message.content", []string{"126", "125"}},
		{`"channel":"a","ws-message":{"action":"hint"}`, ".ws-message.action", []string{"send, close or refresh"}},
		{`"channel":"a","ws-message":{"action":"close","code":-1}`, ".ws-message.code", []string{"whole number"}},
		{`"channel":"a","ws-message":{"action":"close","reason":7}`, ".ws-message.reason", []string{"text"}},
		{`"channel":"a","ws-message":{"action":"close","reason":"\ud800"}`, ".ws-message.reason", []string{"surrogate"}},
	} {
		c.body = `{"items":[{` + ok + `},{` + ok + `},{` + c.body + `}]}`
		c.field = "items[2]" + c.field
		got, err := DecodeItems([]byte(c.body))
		c.check(t, got, err)
		if errors.Is(err, ErrTooLarge) {
			t.Errorf("%.200q: is not too large", c.body)
		}
	}
}

func TestDecodeItems_TellsWhatIsTooLarge(t *testing.T) {
	over := strings.Repeat("x", 1<<20+1)
	binary := base64.StdEncoding.EncodeToString([]byte(over))
	for _, c := range []refused{
		{`"http-stream":{"content":"` + over + `"}`, "items[0].http-stream.content", []string{"1048576 bytes"}},
		{`"http-stream":{"content-bin":"` + binary + `"}`, "items[0].http-stream.content-bin", []string{"1048576 bytes"}},
		{`"http-response":{"body":"` + over + `"}`, "items[0].http-response.body", []string{"1048576 bytes"}},
		{`"ws-message":{"content-bin":"` + binary + `"}`, "items[0].ws-message.content-bin", []string{"1048576 bytes"}},
	} {
		c.body = `{"items":[{"channel":"a",` + c.body + `}]}`
		got, err := DecodeItems([]byte(c.body))
		c.check(t, got, err)
		if !errors.Is(err, ErrTooLarge) {
			t.Errorf("%.100q: %v is not ErrTooLarge", c.body, err)
		}
	}
}
