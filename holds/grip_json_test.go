package holds

import (
	"errors"
	"holdfast/internal/http1"
	"strings"
	"testing"
	"time"
)

func TestDecodeBody_ReadsTheInstruction(t *testing.T) {
	ok := func() *GripResponse { return &GripResponse{Status: 200} }
	for _, c := range []struct {
		body string
		mode Mode
		want Grip
	}{
		{" {\"hold\" : null ,\n\"response\":{},\"more\":[{\"hold\":1}]}\r\n", ModeNone, Grip{Response: ok()}},
		{`{"hold":{"channels":[]}}`, ModeResponse, Grip{Response: ok()}},
		{`{"hold":{"mode":"response","channels":[{"name":"a"}]}}`, ModeResponse, Grip{Channels: gripChannels("a"), Response: ok()}},
		{`{"h\u006fld":{"channels":[{"name":"a"},{"name":"b"},{"name":"a"}],"mode":"stream"}}`, ModeStream, Grip{Channels: gripChannels("a", "b"), Response: ok()}},
		{`{"hold":{"mode":null,"channels":[{"name":"a,;\"b","prev-id":"1","filters":["build-id","x"]},{"prev-id":7,"name":"b","filters":[]},{"name":"c","prev-id":"","filters":null}]}}`,
			ModeResponse, Grip{Response: ok(), Channels: []GripChannel{{Name: `a,;"b`, PrevID: new("1"), Filters: []string{"build-id", "x"}},
				{Name: "b", PrevID: new("7"), Filters: []string{}}, {Name: "c", PrevID: new("")}}}},
		{`{"hold":{"channels":[{"name":""},{"name":"a"},{"name":"b\n"}]}}`, ModeResponse, Grip{Channels: gripChannels("a"), BadChannels: 2, Response: ok()}},
		{`{"hold":{"channels":[],"timeout":30}}`, ModeResponse, Grip{Timeout: 30 * time.Second, Response: ok()}},
		{`{"hold":{"channels":[],"timeout":"30"}}`, ModeResponse, Grip{Timeout: 30 * time.Second, Response: ok()}},
		{`{"hold":{"channels":[],"keep-alive":{"timeout":5}}}`, ModeResponse, Grip{Response: ok()}},
		{`{"hold":{"channels":[],"timeout":0}}`, ModeResponse, Grip{Timeout: 5 * time.Second, Response: ok()}},
		{`{"hold":{"channels":[],"timeout":1000000000000000000000}}`, ModeResponse, Grip{Timeout: 24 * time.Hour, Response: ok()}},
		{`{"hold":{"channels":[],"keep-alive":{"content":"\n"}}}`, ModeResponse,
			Grip{KeepAlive: &KeepAlive{Data: []byte("\n"), Timeout: 55 * time.Second}, Response: ok()}},
		{`{"hold":{"channels":[],"keep-alive":{"content":"x","content-bin":"/w==","timeout":0,"mode":"interval"}}}`, ModeResponse,
			Grip{KeepAlive: &KeepAlive{Data: []byte{0xff}, Timeout: time.Second}, Response: ok()}},
		{`{"hold":{"channels":[],"meta":{"user":"7","n":1.50,"gone":null,"é":""}}}`, ModeResponse,
			Grip{Meta: map[string]string{"user": "7", "n": "1.50", "é": ""}, Response: ok()}},

		{`{"response":{}}`, ModeNone, Grip{Response: ok()}},
		{`{"response":{"code":404,"reason":"Not Found","body":"é\u0000","body-bin":null}}`, ModeNone,
			Grip{Response: &GripResponse{Status: 404, Reason: "Not Found", Body: []byte("é\x00")}}},
		{`{"response":{"body-bin":"/w==","body":"x"}}`, ModeNone, Grip{Response: &GripResponse{Status: 200, Body: []byte{0xff}}}},
		{`{"response":{"code":204,"body":""}}`, ModeNone, Grip{Response: &GripResponse{Status: 204, Body: []byte{}}}},
		{`{"response":{"headers":{"X-B":"1","x-a":" é\t","X-B":["2","3"],"X-None":[]}}}`, ModeNone,
			Grip{Response: &GripResponse{Status: 200, Fields: []http1.Field{headField("X-B", "1"), headField("x-a", "é"), headField("X-B", "2"), headField("X-B", "3")}}}},
		{`{"response":{"headers":[["X-B","1"],["X-A",""]]}}`, ModeNone,
			Grip{Response: &GripResponse{Status: 200, Fields: []http1.Field{headField("X-B", "1"), headField("X-A", "")}}}},
		{`{"response":{"headers":{"Content-Length":5,"CONNECTION":"x","Transfer-Encoding":"chunked","Keep-Alive":"x","Content-Encoding":"gzip","Upgrade":"x",
			"Trailer":"x","TE":"x","Proxy-Connection":"x","Grip-Hold":"stream","M0-Hold":"stream","Content-Type":"a/b"}}}`, ModeNone,
			Grip{Response: &GripResponse{Status: 200, Fields: []http1.Field{headField("Content-Type", "a/b")}}}},
	} {
		c.want.JSON = true
		got, mode, err := decodeBody(t, "Server: x", c.body)
		if err != nil {
			t.Errorf("%s: %v", c.body, err)
			continue
		}
		wantGrip(t, c.body, got, mode, c.want, c.mode)
	}
}

func headField(name, value string) http1.Field {
	return http1.Field{Name: []byte(name), Value: []byte(value)}
}

func TestDecodeBody_StandsInPlaceOfTheFields(t *testing.T) {
	const lines = "Grip-Hold: stream\nGrip-Channel: a, b\nGrip-Timeout: 20\nGrip-Keep-Alive: k\nGrip-Set-Meta: a=1, b=2\nGrip-Status: 201 Made\nGrip-Link: </n>; rel=next"
	next, said := &Link{URI: "/n"}, &KeepAlive{Data: []byte("k"), Timeout: 55 * time.Second}
	meta := map[string]string{"a": "1", "b": "2"}
	for _, c := range []struct {
		body string
		mode Mode
		want Grip
	}{
		{`{}`, ModeStream, Grip{Channels: gripChannels("a", "b"), Timeout: 20 * time.Second, KeepAlive: said, Meta: meta,
			Response: &GripResponse{Status: 201, Reason: "Made"}}},
		{`{"hold":{"channels":[{"name":"c"}]},"response":{"body":"x"}}`, ModeStream, Grip{Channels: gripChannels("c"), Timeout: 20 * time.Second, KeepAlive: said, Meta: meta,
			Response: &GripResponse{Status: 201, Reason: "Made", Body: []byte("x")}}},
		{`{"hold":{"mode":"response","channels":[],"timeout":6,"meta":{"c":"3"},"keep-alive":{"content":"x"}},"response":{"code":400}}`, ModeResponse,
			Grip{Timeout: 6 * time.Second, KeepAlive: &KeepAlive{Data: []byte("x"), Timeout: 55 * time.Second}, Meta: map[string]string{"c": "3"},
				Response: &GripResponse{Status: 400}}},
		{`{"response":{"reason":"Own"}}`, ModeStream, Grip{Channels: gripChannels("a", "b"), Timeout: 20 * time.Second, KeepAlive: said, Meta: meta,
			Response: &GripResponse{Status: 201, Reason: "Own"}}},
	} {
		c.want.JSON, c.want.Next = true, next
		got, mode, err := decodeBody(t, lines, c.body)
		if err != nil {
			t.Errorf("%s: %v", c.body, err)
			continue
		}
		wantGrip(t, c.body, got, mode, c.want, c.mode)
	}
}

func TestDecodeBody_RefusesWithTheKeyAndTheWayOut(t *testing.T) {
	for _, c := range []struct {
		body string
		says []string
	}{
		{``, []string{"not JSON"}},
		{`{}`, []string{"hold and response", "missing"}},
		{`{"hold":null}`, []string{"hold and response", "missing"}},
		{`[]`, []string{"not a JSON object", `"hold"`}},
		{`7`, []string{"not a JSON object"}},
		{`{"hold":{}`, []string{"not JSON"}},
		{`{} {}`, []string{"not JSON"}},
		{"{\"a\":\"\xff\"}", []string{"UTF-8"}},
		{`{"hold":{"channels":[]},"hold":null}`, []string{"hold", "twice"}},
		{`{"hold":null,"hold":{"channels":[]}}`, []string{"hold", "twice"}},
		{`{"hold":[]}`, []string{"hold is no object", "channels"}},
		{`{"hold":"stream"}`, []string{"hold is no object"}},
		{`{"hold":{}}`, []string{"hold.channels", "missing"}},
		{`{"hold":{"channels":null}}`, []string{"hold.channels", "missing"}},
		{`{"hold":{"channels":"a"}}`, []string{"hold.channels", "list"}},
		{`{"hold":{"channels":{"name":"a"}}}`, []string{"hold.channels", "list"}},
		{`{"hold":{"channels":["a"]}}`, []string{"hold.channels[0]", "object", "name"}},
		{`{"hold":{"channels":[{"name":"a"},{}]}}`, []string{"hold.channels[1].name", "missing"}},
		{`{"hold":{"channels":[{"name":7}]}}`, []string{"hold.channels[0].name", "text"}},
		{`{"hold":{"channels":[{"name":"\ud800"}]}}`, []string{"hold.channels[0].name", "surrogate"}},
		{`{"hold":{"channels":[{"name":"a","name":"b"}]}}`, []string{"hold.channels[0].name", "twice"}},
		{`{"hold":{"channels":[{"name":"a","prev-id":true}]}}`, []string{"hold.channels[0].prev-id", "text"}},
		{`{"hold":{"channels":[{"name":"a","prev-id":"1\r\nX: y"}]}}`, []string{"hold.channels[0].prev-id", "control byte"}},
		{`{"hold":{"channels":[{"name":"a","prev-id":"` + strings.Repeat("1", 1025) + `"}]}}`, []string{"hold.channels[0].prev-id", "1025", "1024"}},
		{`{"hold":{"channels":[{"name":"a","filters":"x"}]}}`, []string{"hold.channels[0].filters", "list"}},
		{`{"hold":{"channels":[{"name":"a","filters":[1]}]}}`, []string{"hold.channels[0].filters", "text"}},
		{`{"hold":{"channels":[{"name":"a","filters":["1","2","3","4","5","6"]}]}}`, []string{"hold.channels[0].filters", "more than 5"}},
		{`{"hold":{"channels":[{"name":"a","filters":["` + strings.Repeat("x", 256) + `"]}]}}`, []string{"hold.channels[0].filters", "255"}},
		{`{"hold":{"channels":[],"mode":"websocket"}}`, []string{`hold.mode is "websocket"`, "stream or response"}},
		{`{"hold":{"channels":[],"mode":1}}`, []string{"hold.mode", "text"}},
		{`{"hold":{"channels":[],"timeout":"30s"}}`, []string{"hold.timeout", "whole seconds"}},
		{`{"hold":{"channels":[],"timeout":""}}`, []string{"hold.timeout", "whole seconds"}},
		{`{"hold":{"channels":[],"timeout":-1}}`, []string{"hold.timeout", `"-1"`}},
		{`{"hold":{"channels":[],"timeout":1.5}}`, []string{"hold.timeout", `"1.5"`}},
		{`{"hold":{"channels":[],"keep-alive":"x"}}`, []string{"hold.keep-alive", "object"}},
		{`{"hold":{"channels":[],"keep-alive":{"content":""}}}`, []string{"hold.keep-alive", "no data"}},
		{`{"hold":{"channels":[],"keep-alive":{"content":"x","timeout":-1}}}`, []string{"hold.keep-alive.timeout", "whole seconds"}},
		{`{"hold":{"channels":[],"keep-alive":{"content-bin":"!"}}}`, []string{"hold.keep-alive.content-bin", "base64"}},
		{`{"hold":{"channels":[],"keep-alive":{"content":"` + strings.Repeat("x", 64<<10+1) + `"}}}`, []string{"hold.keep-alive", "65537"}},
		{`{"hold":{"channels":[],"meta":[]}}`, []string{"hold.meta", "object"}},
		{`{"hold":{"channels":[],"meta":{"a":{}}}}`, []string{"hold.meta", `"a"`}},
		{`{"hold":{"channels":[],"meta":{"a":true}}}`, []string{"hold.meta", `"a"`}},
		{`{"hold":{"channels":[],"meta":{"a":"` + strings.Repeat("x", 64<<10) + `"}}}`, []string{"hold.meta", "65536"}},
		{`{"response":7}`, []string{"response is no object"}},
		{`{"response":{"code":199}}`, []string{"response.code", "200 to 599"}},
		{`{"response":{"code":600}}`, []string{"response.code", "200 to 599"}},
		{`{"response":{"code":99999999999999999999}}`, []string{"response.code", "200 to 599"}},
		{`{"response":{"code":200.0}}`, []string{"response.code", "whole number"}},
		{`{"response":{"code":true}}`, []string{"response.code"}},
		{`{"response":{"reason":"a\r\nX: y"}}`, []string{"response.reason", "control byte"}},
		{`{"response":{"reason":"` + strings.Repeat("x", 256) + `"}}`, []string{"response.reason", "255"}},
		{`{"response":{"headers":"x"}}`, []string{"response.headers", "object"}},
		{`{"response":{"headers":{"X":7}}}`, []string{"response.headers", `"X"`, "text"}},
		{`{"response":{"headers":{"X":[["y"]]}}}`, []string{"response.headers", `"X"`, "text"}},
		{`{"response":{"headers":{"X Y":"a"}}}`, []string{"response.headers", `"X Y"`, "name"}},
		{`{"response":{"headers":{"":"a"}}}`, []string{"response.headers", `""`}},
		{`{"response":{"headers":{"X:\r\nY":"a"}}}`, []string{"response.headers", "name"}},
		{`{"response":{"headers":{"X":"a\r\nY: b"}}}`, []string{"response.headers", `"X"`, "control byte"}},
		{`{"response":{"headers":{"X":"a\u0000"}}}`, []string{"response.headers", `"X"`, "control byte"}},
		{`{"response":{"headers":[["X"]]}}`, []string{"response.headers", "pair"}},
		{`{"response":{"headers":[["X","y","z"]]}}`, []string{"response.headers", "pair"}},
		{`{"response":{"headers":["X"]}}`, []string{"response.headers", "pair"}},
		{`{"response":{"headers":[["X",["y"]]]}}`, []string{"response.headers", "text"}},
		{`{"response":{"headers":{"X":"` + strings.Repeat("x", 64<<10) + `"}}}`, []string{"response.headers", "65536"}},
		{`{"response":{"headers":{"TE":"` + strings.Repeat("x", 64<<10) + `"}}}`, []string{"response.headers", "65536"}},
		{`{"response":{"body":{"a":1}}}`, []string{"response.body", "text"}},
		{`{"response":{"body":"\ud800"}}`, []string{"response.body", "surrogate"}},
		{`{"response":{"body-bin":"x"}}`, []string{"response.body-bin", "base64"}},
		{`{"response":{"code":204,"body":"x"}}`, []string{"response.body", "204"}},
		{`{"response":{"code":304},"hold":{"mode":"stream","channels":[]}}`, []string{"304", "no body"}},
	} {
		_, _, err := decodeBody(t, "Server: x", c.body)
		checkGripError(t, c.body, false, err, c.says...)
	}
	if _, _, err := decodeBody(t, "Server: x", `{"hold":{"channels":[`+strings.Repeat(`{"name":"same"},`, 100)+channelObjects(64)+`]}}`); err != ErrTooManyChannels {
		t.Errorf("65 channels: %v", err)
	}
	if g, _, err := decodeBody(t, "Grip-Channel: "+channelList(64), `{"hold":{"channels":[`+channelObjects(64)+`]}}`); err != nil || len(g.Channels) != 64 {
		t.Errorf("64 channels: %v", err)
	}
	for _, status := range []int{199, 201, 204, 404} {
		if mode, err := new(Grip).DecodeBody(status, []byte(`{"response":{}}`)); !errors.Is(err, errGrip) || mode != ModeNone {
			t.Errorf("status %d: %v", status, err)
		}
	}
}
