package holds

import (
	"encoding/base64"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestDecodeControl_ReadsWhatAnAppAsksFor(t *testing.T) {
	bob, empty := "bob", ""
	name, value := strings.Repeat("n", 256), strings.Repeat("é", 2048)
	for _, c := range []struct {
		text string
		want control
	}{
		{`{"type":"subscribe","channel":"news"}`, control{kind: controlSubscribe, channel: "news"}},
		{" {\r\n\t\"channel\" : \"caf\\u00e9, \\\"%\" , \"type\":\"subscribe\"} \n", control{kind: controlSubscribe, channel: `café, "%`}},
		{`{"type":"subscribe","channel":"news","filters":["skip-self","unknown","skip-self","a","b"]}`,
			control{kind: controlSubscribe, channel: "news", filters: []string{"skip-self", "unknown", "skip-self", "a", "b"}}},
		{`{"type":"subscribe","channel":"news","filters":[]}`, control{kind: controlSubscribe, channel: "news"}},
		{`{"type":"subscribe","channel":"news","filters":null,"prev-id":5}`, control{kind: controlSubscribe, channel: "news"}},
		{`{"type":"subscribe","channel":"` + strings.Repeat("x", 255) + `"}`, control{kind: controlSubscribe, channel: strings.Repeat("x", 255)}},
		{`{"type":"unsubscribe","channel":"news"}`, control{kind: controlUnsubscribe, channel: "news"}},
		{`{"type":"unsubscribe","channel":"news","filters":5}`, control{kind: controlUnsubscribe, channel: "news"}},
		{`{"type":"detach"}`, control{kind: controlDetach}},
		{`{"type":"detach","channel":5}`, control{kind: controlDetach}},

		{`{"type":"set-meta","name":"user","value":"bob"}`, control{kind: controlSetMeta, name: "user", value: &bob}},
		{`{"type":"set-meta","name":"user","value":""}`, control{kind: controlSetMeta, name: "user", value: &empty}},
		{`{"type":"set-meta","name":"user"}`, control{kind: controlSetMeta, name: "user"}},
		{`{"type":"set-meta","name":"user","value":null}`, control{kind: controlSetMeta, name: "user"}},
		{`{"type":"set-meta","name":"user","value":"bob","value":null}`, control{kind: controlSetMeta, name: "user"}},
		{`{"type":"set-meta","name":"` + name + `","value":"` + value + `"}`, control{kind: controlSetMeta, name: name, value: &value}},

		{`{"type":"keep-alive","content":"ping"}`,
			control{kind: controlKeepAlive, opcode: opText, content: []byte("ping"), timeout: 55 * time.Second}},
		{`{"type":"keep-alive","message-type":"text","content":"é","timeout":30,"mode":"interval"}`,
			control{kind: controlKeepAlive, opcode: opText, content: []byte("é"), timeout: 30 * time.Second, interval: true}},
		{`{"type":"keep-alive","content":"","mode":"idle","timeout":0}`,
			control{kind: controlKeepAlive, opcode: opText, content: []byte{}, timeout: 55 * time.Second}},
		{`{"type":"keep-alive","content":"x","mode":"always","timeout":1}`,
			control{kind: controlKeepAlive, opcode: opText, content: []byte("x"), timeout: time.Second}},
		{`{"type":"keep-alive","message-type":"binary","content-bin":"/+8A","content":"no","timeout":86400}`,
			control{kind: controlKeepAlive, opcode: opBinary, content: []byte{0xff, 0xef, 0}, timeout: 24 * time.Hour}},
		{`{"type":"keep-alive","content":"x","timeout":86401}`,
			control{kind: controlKeepAlive, opcode: opText, content: []byte("x"), timeout: 24 * time.Hour}},
		{`{"type":"keep-alive","content":"` + strings.Repeat("x", maxKeepAlive) + `"}`,
			control{kind: controlKeepAlive, opcode: opText, content: []byte(strings.Repeat("x", maxKeepAlive)), timeout: 55 * time.Second}},
		{`{"type":"keep-alive","content-bin":"aGk=","timeout":55.9}`,
			control{kind: controlKeepAlive, opcode: opText, content: []byte("hi"), timeout: 55 * time.Second}},
		{`{"type":"keep-alive","content-bin":"","message-type":"ping"}`,
			control{kind: controlKeepAlive, opcode: opPing, content: []byte{}, timeout: 55 * time.Second}},
		{`{"type":"keep-alive","message-type":"pong","content":"` + strings.Repeat("x", 125) + `"}`,
			control{kind: controlKeepAlive, opcode: opPong, content: []byte(strings.Repeat("x", 125)), timeout: 55 * time.Second}},
		{`{"type":"keep-alive"}`, control{kind: controlKeepAlive, opcode: opText, timeout: 55 * time.Second}}, // off
		{`{"type":"keep-alive","content":null}`, control{kind: controlKeepAlive, opcode: opText, timeout: 55 * time.Second}},

		{`{"type":"send-delayed","content":"bye"}`, control{kind: controlSendDelayed, opcode: opText, content: []byte("bye"), timeout: time.Second}},
		{`{"type":"send-delayed","content":"bye","timeout":5,"mode":"interval"}`,
			control{kind: controlSendDelayed, opcode: opText, content: []byte("bye"), timeout: 5 * time.Second}},
		{`{"type":"send-delayed","message-type":"ping"}`, control{kind: controlSendDelayed, opcode: opPing, timeout: time.Second}},
		{`{"type":"flush-delayed"}`, control{kind: controlFlushDelayed}},

		{`{"type":"refresh"}`, control{word: "refresh"}},
		{`{"type":"session","id":5}`, control{word: "session"}},
		{`{"type":""}`, control{}},
		{`{"type":"Subscribe","channel":""}`, control{word: "Subscribe"}},
		{`{"type":"` + strings.Repeat("x", 39) + `é!"}`, control{word: strings.Repeat("x", 39)}},
	} {
		text := []byte(c.text)
		got, err := decodeControl(text)
		for i := range text { // what was decoded is no part of it
			text[i] = '!'
		}
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%.100s\nis   %.200q, %v\nwant %.200q", c.text, fmt.Sprintf("%+v", got), err, fmt.Sprintf("%+v", c.want))
		}
	}
}

func TestDecodeControl_RefusesWithTheFieldAndTheWayOut(t *testing.T) {
	for _, c := range []refused{
		{"", "", []string{"not a JSON object"}},
		{"detach", "", []string{`"detach"`, "not a JSON object"}},
		{"null", "", []string{"not a JSON object"}},
		{`[{"type":"detach"}]`, "", []string{"not a JSON object"}},
		{`{"type":"detach"`, "", []string{"not JSON"}},
		{`{"type":"detach"} {}`, "", []string{"not JSON"}},
		{`{"type":"detach",}`, "", []string{"not JSON"}},
		{"{\"type\":\"detach\xff\"}", "", []string{"UTF-8"}},
		{"{}", "type", []string{"missing"}},
		{`{"type":null}`, "type", []string{"missing"}},
		{`{"Type":"detach"}`, "type", []string{"missing"}},
		{`{"type":5}`, "type", []string{"not a text"}},
		{`{"type":"\ud800"}`, "type", []string{"surrogate"}},

		{`{"type":"subscribe"}`, "channel", []string{"missing"}},
		{`{"type":"subscribe","channel":5}`, "channel", []string{"not a text"}},
		{`{"type":"subscribe","channel":["a"]}`, "channel", []string{"not a text"}},
		{`{"type":"subscribe","channel":""}`, "channel", []string{"empty"}},
		{`{"type":"subscribe","channel":"a\n"}`, "channel", []string{"control byte"}},
		{`{"type":"subscribe","channel":"` + strings.Repeat("x", 256) + `"}`, "channel", []string{"256 bytes"}},
		{`{"type":"unsubscribe","channel":""}`, "channel", []string{"empty"}},
		{`{"type":"unsubscribe"}`, "channel", []string{"missing"}},
		{`{"type":"subscribe","channel":"a","filters":"skip-self"}`, "filters", []string{"list"}},
		{`{"type":"subscribe","channel":"a","filters":{}}`, "filters", []string{"list"}},
		{`{"type":"subscribe","channel":"a","filters":["skip-self",5]}`, "filters[1]", []string{"not a text"}},
		{`{"type":"subscribe","channel":"a","filters":["skip-self",null]}`, "filters[1]", []string{"not a text"}},
		{`{"type":"subscribe","channel":"a","filters":["` + strings.Repeat("x", 256) + `"]}`, "filters[0]", []string{"256 bytes", "255 at most"}},

		{`{"type":"set-meta","value":"x"}`, "name", []string{"missing"}},
		{`{"type":"set-meta","name":""}`, "name", []string{"0 bytes", "1 to 256"}},
		{`{"type":"set-meta","name":"` + strings.Repeat("x", 257) + `"}`, "name", []string{"257 bytes"}},
		{`{"type":"set-meta","name":"x","value":5}`, "value", []string{"not a text"}},
		{`{"type":"set-meta","name":"x","value":"` + strings.Repeat("x", 4097) + `"}`, "value", []string{"4097 bytes", "4096"}},

		{`{"type":"keep-alive","message-type":"close","content":"x"}`, "message-type", []string{`"close"`, "text, binary, ping or pong"}},
		{`{"type":"keep-alive","message-type":5}`, "message-type", []string{"not a text"}},
		{`{"type":"keep-alive","content":5}`, "content", []string{"not a text"}},
		{`{"type":"keep-alive","content-bin":5,"content":"x"}`, "content-bin", []string{"not a text"}},
		{`{"type":"keep-alive","content-bin":"aGk"}`, "content-bin", []string{"base64"}},
		{`{"type":"keep-alive","content-bin":"_-8A"}`, "content-bin", []string{"base64"}},
		{`{"type":"keep-alive","content-bin":"/w=="}`, "content-bin", []string{"UTF-8", "binary"}},
		{`{"type":"keep-alive","message-type":"ping","content":"` + strings.Repeat("x", 126) + `"}`, "content", []string{"126 bytes", "125"}},
		{`{"type":"keep-alive","message-type":"pong","content-bin":"` + base64.StdEncoding.EncodeToString(make([]byte, 126)) + `"}`, "content-bin", []string{"125"}},
		{`{"type":"keep-alive","content":"` + strings.Repeat("x", maxKeepAlive+1) + `"}`, "content", []string{"65537 bytes", "65536 at most"}},
		{`{"type":"send-delayed","content":"` + strings.Repeat("x", MaxData+1) + `"}`, "content", []string{"1048576"}},
		{`{"type":"keep-alive","content":"x","timeout":-1}`, "timeout", []string{"-1", "not negative"}},
		{`{"type":"keep-alive","content":"x","timeout":1e999}`, "timeout", []string{"1e999"}},
		{`{"type":"keep-alive","content":"x","timeout":"55"}`, "timeout", []string{"a number"}},
		{`{"type":"keep-alive","content":"x","timeout":true}`, "timeout", []string{"true"}},
		{`{"type":"keep-alive","content":"x","mode":5}`, "mode", []string{"not a text"}},
		{`{"type":"send-delayed","content":"x","timeout":[]}`, "timeout", []string{"[]"}},
		{`{"type":"send-delayed","message-type":"x"}`, "message-type", []string{"text, binary"}},
	} {
		got, err := decodeControl([]byte(c.body))
		c.check(t, got, err)
		if errors.Is(err, errTooManyFilters) {
			t.Errorf("%.100q: it is not for its filters", c.body)
		}
	}
}

func TestDecodeControl_OfMoreThanFiveFiltersIsAnErrorOfItsOwn(t *testing.T) {
	list := strings.TrimSuffix(strings.Repeat(`"skip-self",`, maxFilters+1), ",")
	c := refused{`{"type":"subscribe","channel":"a","filters":[` + list + `]}`, "filters", []string{"6 names", "5 at most"}}
	got, err := decodeControl([]byte(c.body))
	c.check(t, got, err)
	if !errors.Is(err, errTooManyFilters) {
		t.Errorf("%v", err)
	}
}
