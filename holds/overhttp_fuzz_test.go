package holds

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"holdfast/internal/http1"
)

// FuzzSocketEvents: what is read, written and read again is the same; a body
// that is cut has the same events up to there, or an error.
func FuzzSocketEvents(f *testing.F) {
	for _, body := range []string{"", "OPEN\r\n", "OPEN\r\nTEXT 5\r\nhello\r\nTEXT 0\r\n\r\nCLOSE 2\r\n\x03\xe8\r\n", "NEWS 1\r\nx\r\nPING\r\nPONG A\r\n0123456789\r\n",
		"TEXT 5\r\nhell", "TEXT f4241\r\n", "TEXT 0x1\r\nx\r\n", "OPEN\n", "TEXT 4\r\nhello\r\n", "BINARY 4\r\n\x00\r\n\xff\r\nDISCONNECT\r\n", " \r\n\r\n"} {
		f.Add([]byte(body), uint16(len(body)/2))
	}
	f.Fuzz(func(t *testing.T, body []byte, cut uint16) {
		before := bytes.Clone(body)
		events, err := decodeSocketEvents(body)
		if !bytes.Equal(body, before) {
			t.Fatal("it wrote into what it was given")
		}
		if err != nil {
			if events != nil || !errors.Is(err, errSocketEvents) || hasControl(err.Error()) {
				t.Fatalf("%q: %q and %v", body, said(events), err)
			}
			return
		}
		var written []byte
		bytesOf := 0
		for _, e := range events {
			if e.kind == eventUnknown || e.kind > eventDisconnect || e.null != (e.content == nil) || len(e.content) > maxSocketContent {
				t.Fatalf("%q has %v %v %q", body, e.kind, e.null, e.content)
			}
			bytesOf += len(e.content)
			written = appendSocketEvent(written, e)
		}
		if bytesOf > len(body) || len(events) > maxSocketEvents {
			t.Fatalf("%d bytes have %d events with %d", len(body), len(events), bytesOf)
		}
		if again, err := decodeSocketEvents(written); err != nil || !reflect.DeepEqual(again, events) {
			t.Fatalf("%q is %q, %v when it is written again", body, said(again), err)
		}
		part, err := decodeSocketEvents(body[:int(cut)%(len(body)+1)])
		if err == nil && (len(part) > len(events) || said(part) != said(events[:len(part)])) {
			t.Fatalf("%q is %q, cut it is %q", body, said(events), said(part))
		}
	})
}

// FuzzControl: a control message is what its bounds allow, or an error and
// nothing beside it.
func FuzzControl(f *testing.F) {
	for _, text := range []string{`{"type":"subscribe","channel":"a","filters":["skip-self"]}`, `{"type":"set-meta","name":"a","value":"b"}`,
		`{"type":"keep-alive","content-bin":"aGk=","timeout":5.5,"mode":"interval"}`, `{"type":"send-delayed","message-type":"pong","content":"x"}`,
		`{"type":"detach"}`, `{"type":"x"}`, `{"type":5}`, `[]`, `{`, "{\"type\":\"\xff\"}", `{"type":"unsubscribe","channel":"\u0000"}`,
		`{"type":"keep-alive","content":"x","timeout":1e999}`, `{"type":"subscribe","channel":"a","filters":[1,2,3,4,5,6]}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := decodeControl(text)
		if err != nil {
			checkRefusal(t, text, c, err)
			return
		}
		joins := c.kind == controlSubscribe || c.kind == controlUnsubscribe
		sends := c.kind == controlKeepAlive || c.kind == controlSendDelayed
		switch {
		case joins != (c.channel != "") || joins && CheckChannel(c.channel) != nil:
		case len(c.filters) > maxFilters || c.filters != nil && c.kind != controlSubscribe:
		case (c.kind == controlSetMeta) != (c.name != "") || len(c.name) > maxMetaName || c.value != nil && len(*c.value) > maxMetaValue:
		case sends != (c.opcode != 0) || sends != (c.timeout > 0) || c.timeout > gripTimeoutMost || c.content != nil && !sends:
		case len(c.content) > MaxData || c.kind == controlKeepAlive && len(c.content) > maxKeepAlive || c.opcode.isControl() && len(c.content) > maxControl || c.opcode == opText && !utf8.Valid(c.content):
		case c.word != "" && c.kind != controlUnknown || len(c.word) > maxControlWord || !utf8.ValidString(c.word):
		default:
			return
		}
		t.Fatalf("%q is %+v", text, c)
	})
}

// FuzzGripExtension: a prefix that is quoted is read as it was.
func FuzzGripExtension(f *testing.F) {
	for _, value := range []string{"grip", `grip; message-prefix="m:"`, `grip; message-prefix="a\"`, "x; y=\",\", grip; message-prefix=", ";;,,=\"\\"} {
		f.Add([]byte(value), value)
	}
	f.Fuzz(func(t *testing.T, value []byte, prefix string) {
		fields := []http1.Field{{Name: []byte("Sec-WebSocket-Extensions"), Value: value}}
		if on, read := gripExtension(fields); !on && read != "" || len(read) > max(len(value), len(messagePrefix)) {
			t.Fatalf("%q is %v, %q", value, on, read)
		}
		quoted := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(prefix)
		fields[0].Value = []byte(`other; a="` + quoted + `", grip; b="` + quoted + `"; message-prefix="` + quoted + `", grip`)
		if on, read := gripExtension(fields); !on || read != prefix {
			t.Fatalf("%q is read as %q, %v", prefix, read, on)
		}
	})
}
