package holds

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestDecodePublication_TakesTheNativeShape(t *testing.T) {
	const big = 1 << 20
	for _, c := range []struct {
		body string
		want Publication
	}{
		{`{"channel":"news","data":"hello"}`, Publication{Channels: []string{"news"}, Data: []byte("hello"), Retry: -1}},
		{" {\n\"data\" : \"hello\" ,\t\"channel\" : \"news\" } \r\n", Publication{Channels: []string{"news"}, Data: []byte("hello"), Retry: -1}},
		{`{"channel":["a","b"],"data":"x","event":"tick","retry":1500}`,
			Publication{Channels: []string{"a", "b"}, Data: []byte("x"), Event: "tick", Retry: 1500}},
		{`{"channel":["a","b","a"],"data":""}`, Publication{Channels: []string{"a", "b"}, Data: []byte{}, Retry: -1}},
		{`{"channel":` + jsonList(64, "c%d") + `,"data":"x"}`, Publication{Channels: strings.Split(channelList(64), ","), Data: []byte("x"), Retry: -1}},
		{`{"channel":` + `["same"` + strings.Repeat(`,"same"`, 1000) + `]` + `,"data":"x"}`, Publication{Channels: []string{"same"}, Data: []byte("x"), Retry: -1}},
		{`{"ch\u0061nnel":"a,b %2C","data":"x"}`, Publication{Channels: []string{"a,b %2C"}, Data: []byte("x"), Retry: -1}}, // names are literal
		{`{"channel":"日本","data":"é\u00e9\ud83d\ude00\r\n\u0000\\ud800"}`,
			Publication{Channels: []string{"日本"}, Data: []byte("éé😀\r\n\x00\\ud800"), Retry: -1}},
		{`{"channel":"a","data":"x","event":""}`, Publication{Channels: []string{"a"}, Data: []byte("x"), Retry: -1}},
		{`{"channel":"a","data":"x","event":"a b\t\u001b"}`, Publication{Channels: []string{"a"}, Data: []byte("x"), Event: "a b\t\x1b", Retry: -1}},
		{`{"channel":"a","data":"x","retry":0}`, Publication{Channels: []string{"a"}, Data: []byte("x")}},
		{`{"channel":"a","data":"x","retry":2147483647}`, Publication{Channels: []string{"a"}, Data: []byte("x"), Retry: 1<<31 - 1}},

		{`{"channel":"a","data":null}`, Publication{Channels: []string{"a"}, Data: []byte("null"), Kind: DataJSON, Retry: -1}},
		{`{"channel":"a","data":false}`, Publication{Channels: []string{"a"}, Data: []byte("false"), Kind: DataJSON, Retry: -1}},
		{`{"channel":"a","data": 1.50 }`, Publication{Channels: []string{"a"}, Data: []byte("1.50"), Kind: DataJSON, Retry: -1}},
		{`{"channel":"a","data":123456789012345678901234567890e400}`,
			Publication{Channels: []string{"a"}, Data: []byte("123456789012345678901234567890e400"), Kind: DataJSON, Retry: -1}},
		{`{"channel":"a","data":[]}`, Publication{Channels: []string{"a"}, Data: []byte("[]"), Kind: DataJSON, Retry: -1}},
		{"{\"channel\":\"a\",\"data\":{ \"z\" : 1.0,\n\"a\" : [ 1e2, \"<b> & \\u003c\u2028\\ud800\" ], \"z\":-0 } }",
			Publication{Channels: []string{"a"}, Data: []byte("{\"z\":1.0,\"a\":[1e2,\"<b> & \\u003c\u2028\\ud800\"],\"z\":-0}"), Kind: DataJSON, Retry: -1}},

		{`{"channel":"a","base64":""}`, Publication{Channels: []string{"a"}, Data: []byte{}, Kind: DataBinary, Retry: -1}},
		{`{"channel":"a","base64":"/+8A"}`, Publication{Channels: []string{"a"}, Data: []byte{0xff, 0xef, 0}, Kind: DataBinary, Retry: -1}},
		{`{"channel":"a","base64":"\/w=="}`, Publication{Channels: []string{"a"}, Data: []byte{0xff}, Kind: DataBinary, Retry: -1}},

		{`{"channel":"a","data":"` + strings.Repeat("x", big) + `"}`, Publication{Channels: []string{"a"}, Data: bytes.Repeat([]byte("x"), big), Retry: -1}},
		{`{"channel":"a","data":"` + strings.Repeat(`\u0078`, big) + `"}`, Publication{Channels: []string{"a"}, Data: bytes.Repeat([]byte("x"), big), Retry: -1}},
		{`{"channel":"a","data":[` + strings.Repeat(" ", big) + `1]}`, Publication{Channels: []string{"a"}, Data: []byte("[1]"), Kind: DataJSON, Retry: -1}},
		{`{"channel":"a","base64":"` + base64.StdEncoding.EncodeToString(make([]byte, big)) + `"}`,
			Publication{Channels: []string{"a"}, Data: make([]byte, big), Kind: DataBinary, Retry: -1}},
	} {
		body := []byte(c.body)
		got, err := DecodePublication(body)
		for i := range body { // what was decoded is no part of it
			body[i] = '!'
		}
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%.100s\nis   %.200q, %v\nwant %.200q", c.body, fmt.Sprintf("%+v", got), err, fmt.Sprintf("%+v", c.want))
		}
	}
}

func jsonList(n int, format string) string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf(format, i)
	}
	list, _ := json.Marshal(names)
	return string(list)
}

// refused is a body that must be refused; the error is of field, and its text
// has all of says.
type refused struct {
	body, field string
	says        []string
}

func (c refused) check(t *testing.T, got any, err error) {
	t.Helper()
	input := checkRefusal(t, []byte(c.body), got, err)
	if input == nil {
		return
	}
	if input.Field != c.field || !strings.Contains(input.Text, c.field) {
		t.Errorf("%.100q: field %q, %q; want field %q", c.body, input.Field, input.Text, c.field)
	}
	for _, word := range c.says {
		if !strings.Contains(input.Text, word) {
			t.Errorf("%.100q: %q does not say %q", c.body, input.Text, word)
		}
	}
}

// checkRefusal requires what holds for every error: nothing beside it, and a
// text that is one line which can be shown.
func checkRefusal(t *testing.T, body []byte, got any, err error) *InputError {
	t.Helper()
	var input *InputError
	if !errors.As(err, &input) {
		t.Errorf("%.100q: error %v, want an InputError", body, err)
		return nil
	}
	if !reflect.ValueOf(got).IsZero() {
		t.Errorf("%.100q: an error and %+v", body, got)
	}
	if input.Text == "" || input.Error() != input.Text || len(input.Text) > 600 || len(input.Field) > 200 ||
		!utf8.ValidString(input.Text) || hasControl(input.Text) {
		t.Errorf("%.100q: field %q, text %q", body, input.Field, input.Text)
	}
	return input
}

func TestDecodePublication_RefusesWithTheFieldAndTheWayOut(t *testing.T) {
	for _, c := range []refused{
		// The body.
		{``, "", []string{"not JSON", "end of JSON"}},
		{`   `, "", []string{"not JSON", "end of JSON"}},
		{`{"channel":"a","data":"x"`, "", []string{"not JSON", "end of JSON"}},
		{`{"channel":"a","data":"x`, "", []string{"not JSON", "end of JSON"}},
		{`{"channel":"a","data":`, "", []string{"not JSON", "end of JSON"}},
		{`hello`, "", []string{"not JSON", "byte 1"}},
		{`{channel:"a"}`, "", []string{"not JSON"}},
		{`{"channel":"a" "data":"x"}`, "", []string{"not JSON", "byte 16"}},
		{`{"channel":"a","data":"x",}`, "", []string{"not JSON"}},
		{`{,"channel":"a","data":"x"}`, "", []string{"not JSON"}},
		{`{"channel":"a","data":"x"]`, "", []string{"not JSON"}},
		{`{"channel":"a","data":[1}`, "", []string{"not JSON", "byte 25"}},
		{`{"channel":"a","data":01}`, "", []string{"not JSON"}},
		{`{"channel":"a","data":NaN}`, "", []string{"not JSON"}},
		{`{"channel":"a","data":'x'}`, "", []string{"not JSON"}},
		{"{\"channel\":\"a\",\"data\":\"a\nb\"}", "", []string{"not JSON"}},
		{`{"channel":"a","data":"\x41"}`, "", []string{"not JSON"}},
		{`{"channel":"a","data":"x"}/**/`, "", []string{"behind", "byte 26"}},
		{`{"channel":"a","data":"x"}{}`, "", []string{"behind", "byte 26"}},
		{"{\"channel\":\"a\",\"data\":\"x\"}\x00", "", []string{"behind"}},
		{"\ufeff" + `{"channel":"a","data":"x"}`, "", []string{"not JSON"}},
		{`[{"channel":"a","data":"x"}]`, "", []string{"not a JSON object", "channel"}},
		{`"a"`, "", []string{"not a JSON object"}},
		{`null`, "", []string{"not a JSON object"}},
		{`1` + strings.Repeat("0", 400), "", []string{"not a JSON object"}},
		{`{"channel":"a","data":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`, "", []string{"not JSON", "depth"}},

		// Keys.
		{`{}`, "channel", []string{"missing"}},
		{`{"data":"x"}`, "channel", []string{"missing"}},
		{`{"channel":"a"}`, "data", []string{"missing", "base64"}},
		{`{"channel":"a","event":"e"}`, "data", []string{"missing", "base64"}},
		{`{"channel":"a","data":"x","base64":"eA=="}`, "base64", []string{"data", "both"}},
		{`{"channel":"a","data":null,"base64":"eA=="}`, "base64", []string{"data", "both"}},
		{`{"chanel":"a","data":"x"}`, "chanel", []string{"channel, data, base64, event, retry"}},
		{`{"Channel":"a","data":"x"}`, "Channel", []string{"channel, data"}},
		{`{"":"a","channel":"a","data":"x"}`, "", []string{`""`}},
		{`{"channel":"a","data":"x","id":7}`, "id", nil},
		{`{"channel":"a","data":"x","` + strings.Repeat("k", 5000) + `":7}`, strings.Repeat("k", 40), nil},
		{`{"channel":"a","data":"x","channel":"a"}`, "channel", []string{"twice"}},
		{`{"channel":"a","data":null,"data":"x"}`, "data", []string{"twice"}},
		{`{"channel":"a","data":"x","d\u0061ta":"x"}`, "data", []string{"twice"}},
		{`{"channel":"a","base64":"","base64":""}`, "base64", []string{"twice"}},
		{`{"items":[{"channel":"a","formats":{}}]}`, "items", []string{"GRIP", `{"channel": "name", "data": "text"}`}},
		{`{"channel":"a","data":"x","items":null}`, "items", []string{"GRIP"}},

		// Channels.
		{`{"channel":1,"data":"x"}`, "channel", []string{"list of names"}},
		{`{"channel":null,"data":"x"}`, "channel", []string{"list of names"}},
		{`{"channel":{"name":"a"},"data":"x"}`, "channel", []string{"list of names"}},
		{`{"channel":[],"data":"x"}`, "channel", []string{"empty list"}},
		{`{"channel":["a",null],"data":"x"}`, "channel", []string{"list of names"}},
		{`{"channel":["a",["b"]],"data":"x"}`, "channel", []string{"list of names"}},
		{`{"channel":["a",1],"data":"x"}`, "channel", []string{"list of names"}},
		{`{"channel":"","data":"x"}`, "channel", []string{"empty"}},
		{`{"channel":["a",""],"data":"x"}`, "channel", []string{"empty"}},
		{`{"channel":"a\u0000","data":"x"}`, "channel", []string{"control byte"}},
		{`{"channel":"a\r\nX-Evil: 1","data":"x"}`, "channel", []string{"control byte"}},
		{`{"channel":"a\u007f","data":"x"}`, "channel", []string{"control byte"}},
		{`{"channel":"` + strings.Repeat("x", 256) + `","data":"x"}`, "channel", []string{"256 bytes", "255"}},
		{`{"channel":"\ud800","data":"x"}`, "channel", []string{"surrogate"}},
		{`{"channel":` + jsonList(65, "c%d") + `,"data":"x"}`, "channel", []string{"64"}},

		// Data.
		{"{\"channel\":\"a\",\"data\":\"\xff\"}", "", []string{"UTF-8", "base64"}},
		{"{\"channel\":\"a\",\"data\":[\"\xed\xa0\x80\"]}", "", []string{"UTF-8", "base64"}}, // a surrogate, encoded
		{`{"channel":"a","data":"x\ud83d"}`, "data", []string{"surrogate"}},
		{`{"channel":"a","data":"x\ud83d\ude0"}`, "", []string{"not JSON"}},
		{`{"channel":"a","data":"\ude00\ud83d"}`, "data", []string{"surrogate"}},
		{`{"channel":"a","data":"\ud83d\ud83d\ude00"}`, "data", []string{"surrogate"}},
		{`{"channel":"a","data":"\ud83dx\ude00"}`, "data", []string{"surrogate"}},
		{`{"channel":"a","data":"\ud83d\\ude00"}`, "data", []string{"surrogate"}},
		{`{"channel":"a","data":"\ud83d\u0041"}`, "data", []string{"surrogate"}},
		{`{"channel":"a","data":"\ud83d\ude00\uDC00"}`, "data", []string{"surrogate"}},
		{`{"channel":"a","data":"\\\uD800"}`, "data", []string{"surrogate"}},
		{`{"channel":"a","base64":"\ud800"}`, "base64", []string{"surrogate"}},
		{`{"channel":"a","base64":null}`, "base64", []string{"text"}},
		{`{"channel":"a","base64":["eA=="]}`, "base64", []string{"text"}},
		{`{"channel":"a","base64":"eA"}`, "base64", []string{"RFC 4648", "padding"}},
		{`{"channel":"a","base64":"eB=="}`, "base64", []string{"RFC 4648"}}, // bits that nothing holds
		{`{"channel":"a","base64":"_-8A"}`, "base64", []string{"RFC 4648"}},
		{`{"channel":"a","base64":"eHh4\neHh4"}`, "base64", []string{"RFC 4648", "line breaks"}},
		{`{"channel":"a","base64":" eA=="}`, "base64", []string{"RFC 4648"}},
		{`{"channel":"a","base64":"eA==eA=="}`, "base64", []string{"RFC 4648"}},

		// Event and retry.
		{`{"channel":"a","data":"x","event":null}`, "event", []string{"text"}},
		{`{"channel":"a","data":"x","event":7}`, "event", []string{"text"}},
		{`{"channel":"a","data":"x","event":"a\nid: 7"}`, "event", []string{"LF"}},
		{`{"channel":"a","data":"x","event":"a\r"}`, "event", []string{"CR"}},
		{`{"channel":"a","data":"x","event":"\u0000"}`, "event", []string{"NUL"}},
		{`{"channel":"a","data":"x","event":"\udfff"}`, "event", []string{"surrogate"}},
		{`{"channel":"a","data":"x","retry":null}`, "retry", []string{"whole number"}},
		{`{"channel":"a","data":"x","retry":"1500"}`, "retry", []string{"whole number"}},
		{`{"channel":"a","data":"x","retry":-1}`, "retry", []string{"whole number"}},
		{`{"channel":"a","data":"x","retry":-0}`, "retry", []string{"whole number"}},
		{`{"channel":"a","data":"x","retry":1.5}`, "retry", []string{"whole number"}},
		{`{"channel":"a","data":"x","retry":1e3}`, "retry", []string{"whole number"}},
		{`{"channel":"a","data":"x","retry":2147483648}`, "retry", []string{"2147483647"}},
		{`{"channel":"a","data":"x","retry":18446744073709551617}`, "retry", []string{"2147483647"}},
	} {
		got, err := DecodePublication([]byte(c.body))
		c.check(t, got, err)
		if errors.Is(err, ErrTooLarge) {
			t.Errorf("%.100q: is not too large", c.body)
		}
	}
}

func TestDecodePublication_TellsWhatIsTooLarge(t *testing.T) {
	const over = 1<<20 + 1
	for _, c := range []refused{
		{`{"channel":"a","data":"` + strings.Repeat("x", over) + `"}`, "data", []string{"1048576 bytes"}},
		{`{"channel":"a","data":"` + strings.Repeat("é", over/2+1) + `"}`, "data", []string{"1048576 bytes"}},
		{`{"channel":"a","data":"` + strings.Repeat(`\n`, over) + `"}`, "data", []string{"1048576 bytes"}},
		{`{"channel":"a","data":["` + strings.Repeat("x", over-4) + `"]}`, "data", []string{"1048576 bytes"}},
		{`{"channel":"a","base64":"` + base64.StdEncoding.EncodeToString(make([]byte, over)) + `"}`, "base64", []string{"1048576 bytes"}},
		{`{"channel":"a","data":"x","event":"` + strings.Repeat("x", over) + `"}`, "event", []string{"1048576 bytes"}},
	} {
		got, err := DecodePublication([]byte(c.body))
		c.check(t, got, err)
		if !errors.Is(err, ErrTooLarge) {
			t.Errorf("%.100q: %v is not ErrTooLarge", c.body, err)
		}
	}
}

func TestDecodeEnd_TakesAChannelOrAConnection(t *testing.T) {
	for _, c := range []struct {
		body string
		want EndRequest
	}{
		{`{"channel":"user-42"}`, EndRequest{Channel: "user-42", Code: 1000}},
		{`{"connection":"c1"}`, EndRequest{Connection: "c1", Code: 1000}},
		{` {"reason":"bye","code":4404,"connection":"c1","channel":"a"} `, EndRequest{"a", "c1", 4404, "bye"}},
		{`{"channel":"a","code":1003,"reason":""}`, EndRequest{Channel: "a", Code: 1003}},
		{`{"channel":"a","code":1007}`, EndRequest{Channel: "a", Code: 1007}},
		{`{"channel":"a","code":1014}`, EndRequest{Channel: "a", Code: 1014}},
		{`{"channel":"a","code":3000}`, EndRequest{Channel: "a", Code: 3000}},
		{`{"channel":"a","code":4999}`, EndRequest{Channel: "a", Code: 4999}},
		{`{"channel":"a","reason":"` + strings.Repeat("é", 61) + `x"}`, EndRequest{Channel: "a", Code: 1000, Reason: strings.Repeat("é", 61) + "x"}},
	} {
		if got, err := DecodeEnd([]byte(c.body)); err != nil || got != c.want {
			t.Errorf("%s is %+v, %v; want %+v", c.body, got, err, c.want)
		}
	}
}

func TestDecodeEnd_RefusesWithTheFieldAndTheWayOut(t *testing.T) {
	cases := []refused{
		{`{}`, "channel", []string{"connection", "both missing"}},
		{`{"code":1000,"reason":"x"}`, "channel", []string{"connection", "both missing"}},
		{`{"channel":""}`, "channel", []string{"empty"}},
		{`{"channel":["a"]}`, "channel", []string{"text"}},
		{`{"channel":null,"connection":"c1"}`, "channel", []string{"text"}},
		{`{"channel":"a\n"}`, "channel", []string{"control byte"}},
		{`{"connection":""}`, "connection", []string{"empty"}},
		{`{"connection":7}`, "connection", []string{"text"}},
		{`{"channel":"a","code":"1000"}`, "code", []string{"whole number"}},
		{`{"channel":"a","code":null}`, "code", []string{"whole number"}},
		{`{"channel":"a","code":1e3}`, "code", []string{"whole number"}},
		{`{"channel":"a","code":-1000}`, "code", []string{"whole number"}},
		{`{"channel":"a","code":5000}`, "code", []string{"4999"}},
		{`{"channel":"a","reason":7}`, "reason", []string{"text"}},
		{`{"channel":"a","reason":"` + strings.Repeat("x", 124) + `"}`, "reason", []string{"124 bytes", "123"}},
		{`{"channel":"a","reason":"a\nb"}`, "reason", []string{"control byte"}},
		{`{"channel":"a","reason":"\u007f"}`, "reason", []string{"control byte"}},
		{`{"channel":"a","reason":"\ud800"}`, "reason", []string{"surrogate"}},
		{"{\"channel\":\"a\",\"reason\":\"\xe9\"}", "", []string{"UTF-8"}},
		{`{"channel":"a","reason":"x","reason":"x"}`, "reason", []string{"twice"}},
		{`{"channel":"a","data":"x"}`, "data", []string{"channel, connection, code, reason"}},
		{`{"channel":"a"} {}`, "", []string{"behind"}},
		{`{"channel":"a"`, "", []string{"not JSON"}},
		{`[]`, "", []string{"not a JSON object"}},
	}
	for _, code := range []int{0, 999, 1004, 1005, 1006, 1015, 1016, 2999} {
		cases = append(cases, refused{fmt.Sprintf(`{"channel":"a","code":%d}`, code), "code", []string{fmt.Sprint(code), "RFC 6455", "3000 to 4999"}})
	}
	for _, c := range cases {
		got, err := DecodeEnd([]byte(c.body))
		c.check(t, got, err)
	}
}

// FuzzDecodePublication: what is taken is JSON and can be published as it is,
// and what is refused has a reason.
func FuzzDecodePublication(f *testing.F) {
	for _, body := range []string{
		`{"channel":"news","data":"hello"}`, `{"channel":["a","b"],"data":{"x":[1.0,null]},"event":"e","retry":5}`,
		`{"channel":"a","base64":"/+8A"}`, `{"channel":"a","data":"\ud83d\ude00\ud83d"}`, `{"channel":"a","data":"\\ud83d"}`,
		`{"channel":"a","data":null}`, `{"channel":[],"data":1}`, `{"items":[]}`, `{}`, ``, `[]`, `{"channel":"a","data":"x"}x`,
		`{"channel":"a","data":"x",}`, `{"channel":"a\u0000","data":1e400}`, `{"channel":"a","code":1005,"reason":"x"}`,
		`{"connection":"c","code":4000}`, "{\"channel\":\"\xff\",\"data\":\"\xff\"}", `{"channel":"a","data":"x","data":"y"}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		before := bytes.Clone(body)
		p, err := DecodePublication(body)
		end, endErr := DecodeEnd(body)
		if !bytes.Equal(body, before) {
			t.Fatal("it wrote into what it was given")
		}
		if (err == nil || endErr == nil) && (!json.Valid(body) || !utf8.Valid(body)) {
			t.Fatalf("%q is taken", body)
		}
		if err != nil {
			checkRefusal(t, body, p, err)
		} else {
			checkPublication(t, body, p)
		}
		if endErr != nil {
			checkRefusal(t, body, end, endErr)
		} else {
			checkReply(t, Reply{Close: end.Code, CloseReason: end.Reason})
			if end.Code == 0 || end.Channel == "" && end.Connection == "" || end.Channel != "" && CheckChannel(end.Channel) != nil {
				t.Fatalf("%q is %+v", body, end)
			}
		}
	})
}

// checkPublication compares with what encoding/json makes of the body by
// itself, and requires what a Publication promises.
func checkPublication(t *testing.T, body []byte, p Publication) {
	t.Helper()
	var loose struct {
		Data   json.RawMessage
		Base64 *string
	}
	if err := json.Unmarshal(body, &loose); err != nil {
		t.Fatalf("%q is taken: %v", body, err)
	}
	if len(p.Channels) < 1 || len(p.Channels) > MaxChannels || len(p.Data) > MaxData || p.Retry < -1 || p.Retry > 1<<31-1 || strings.ContainsAny(p.Event, "\r\n\x00") {
		t.Fatalf("%q is %+v", body, p)
	}
	for i, name := range p.Channels {
		if CheckChannel(name) != nil || slices.Contains(p.Channels[:i], name) {
			t.Fatalf("%q: channels %q", body, p.Channels)
		}
	}
	switch p.Kind {
	case DataBinary:
		if loose.Base64 == nil || base64.StdEncoding.EncodeToString(p.Data) != *loose.Base64 {
			t.Fatalf("%q: data %q", body, p.Data)
		}
	case DataText:
		var text string
		if json.Unmarshal(loose.Data, &text) != nil || text != string(p.Data) || !utf8.Valid(p.Data) {
			t.Fatalf("%q: data %q", body, p.Data)
		}
		// What is replaced in silence shows as more of U+FFFD than were written.
		written := strings.Count(string(loose.Data), "\ufffd") + strings.Count(strings.ToLower(string(loose.Data)), `\ufffd`)
		if strings.Count(text, "\ufffd") > written {
			t.Fatalf("%q: replaced in %q", body, p.Data)
		}
	case DataJSON:
		var compact bytes.Buffer
		raw := loose.Data
		if raw == nil { // what Unmarshal makes of null
			raw = json.RawMessage("null")
		}
		if json.Compact(&compact, raw) != nil || !bytes.Equal(compact.Bytes(), p.Data) || bytes.ContainsAny(p.Data, "\r\n") {
			t.Fatalf("%q: data %q", body, p.Data)
		}
	}
}
