package holds

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fasthttp/websocket"

	"holdfast/internal/http1"
)

// sampleKey and what answers it are those of RFC 6455 §1.3.
const sampleKey = "dGhlIHNhbXBsZSBub25jZQ=="

func TestAcceptKey_AnswersTheSampleOfTheRFC(t *testing.T) {
	if got := AcceptKey([]byte(sampleKey)); got != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" {
		t.Fatal(got)
	}
}

func TestCheckHandshake_TakesWhatRFC6455AsksForAndNamesWhatIsMissing(t *testing.T) {
	const (
		upgrade = "Connection: Upgrade\nUpgrade: websocket\n"
		version = "Sec-WebSocket-Version: 13\n"
		key     = "Sec-WebSocket-Key: " + sampleKey + "\n"
	)
	for _, c := range []struct {
		name, request, fields string // request "": GET, HTTP/1.1
		err                   error
	}{
		{name: "as browsers send it", fields: "Host: a\n" + upgrade + version + key + "Origin: http://a\nSec-WebSocket-Extensions: permessage-deflate\n"},
		{name: "in any case", fields: "CONNECTION: UPGRADE\nupgrade: WebSocket\nsec-websocket-version: 13\nSEC-WEBSOCKET-KEY: " + sampleKey},
		{name: "as Firefox sends it", fields: "Connection: keep-alive, Upgrade\nUpgrade: websocket\n" + version + key},
		{name: "among other protocols", fields: "Connection: Upgrade\nUpgrade: h2c, websocket\n" + version + key},
		{name: "in several lines", fields: "Connection: close\nConnection: upgrade\nUpgrade: h2c\nUpgrade: websocket\n" + version + key},

		{name: "ordinary request", err: ErrNotUpgrade},
		{name: "POST", request: "POST", fields: upgrade + version + key, err: ErrNotUpgrade},
		{name: "method in small letters", request: "get", fields: upgrade + version + key, err: ErrNotUpgrade},
		{name: "HTTP/1.0", request: "1.0", fields: upgrade + version + key, err: ErrNotUpgrade},
		{name: "no Connection", fields: "Upgrade: websocket\n" + version + key, err: ErrNotUpgrade},
		{name: "no Upgrade", fields: "Connection: Upgrade\n" + version + key, err: ErrNotUpgrade},
		{name: "another Connection", fields: "Connection: keep-alive\nUpgrade: websocket\n" + version + key, err: ErrNotUpgrade},
		{name: "another protocol", fields: "Connection: Upgrade\nUpgrade: websockets\n" + version + key, err: ErrNotUpgrade},
		{name: "not letters of ASCII", fields: "Connection: Upgrade\nUpgrade: web\u017focket\n" + version + key, err: ErrNotUpgrade},
		{name: "nothing but an upgrade's key", fields: key, err: ErrNotUpgrade},

		{name: "no version", fields: upgrade + key, err: ErrVersion},
		{name: "version 8", fields: upgrade + "Sec-WebSocket-Version: 8\n" + key, err: ErrVersion},
		{name: "version 013", fields: upgrade + "Sec-WebSocket-Version: 013\n" + key, err: ErrVersion},
		{name: "list of versions", fields: upgrade + "Sec-WebSocket-Version: 13, 8\n" + key, err: ErrVersion},
		{name: "version twice", fields: upgrade + version + version + key, err: ErrVersion},
		{name: "version before key", fields: upgrade, err: ErrVersion},

		{name: "no key", fields: upgrade + version, err: ErrKey},
		{name: "empty key", fields: upgrade + version + "Sec-WebSocket-Key:\n", err: ErrKey},
		{name: "key twice", fields: upgrade + version + key + key, err: ErrKey},
		{name: "key of 15 bytes", fields: upgrade + version + "Sec-WebSocket-Key: MTIzNDU2Nzg5MDEyMzQ1\n", err: ErrKey},
		{name: "key of 17 bytes", fields: upgrade + version + "Sec-WebSocket-Key: MTIzNDU2Nzg5MDEyMzQ1Njc=\n", err: ErrKey},
		{name: "key of 18 bytes", fields: upgrade + version + "Sec-WebSocket-Key: MTIzNDU2Nzg5MDEyMzQ1Njc4\n", err: ErrKey},
		{name: "key of 36 bytes", fields: upgrade + version + "Sec-WebSocket-Key: " + strings.Repeat("MTIz", 12) + "\n", err: ErrKey},
		{name: "key without padding", fields: upgrade + version + "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ\n", err: ErrKey},
		{name: "key of another alphabet", fields: upgrade + version + "Sec-WebSocket-Key: -_hlIHNhbXBsZSBub25jZQ==\n", err: ErrKey},
		{name: "key with a space", fields: upgrade + version + "Sec-WebSocket-Key: dGhlIHNh XBsZSBub25jZQ==\n", err: ErrKey},
	} {
		method, minor := "GET", 1
		switch c.request {
		case "":
		case "1.0":
			minor = 0
		default:
			method = c.request
		}
		got, err := CheckHandshake(method, minor, fieldsOf(t, strings.FieldsFunc(c.fields, func(r rune) bool { return r == '\n' })...))
		want := ""
		if c.err == nil {
			want = sampleKey
		}
		if err != c.err || string(got) != want {
			t.Errorf("%s: key %q, %v; want %v", c.name, got, err, c.err)
		}
	}
}

func TestCheckHandshake_TakesAKeyWithBitsBeyondSixteenBytes(t *testing.T) {
	fields := fieldsOf(t, "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: abcdefghijklmnopqrstuv==")
	if _, err := CheckHandshake("GET", 1, fields); err != nil {
		t.Fatal(err)
	}
}

func TestOriginAllowed_LetsInWhatThePolicyNamesAndNeverNull(t *testing.T) {
	none, anyone, same := Origins{}, Origins{Any: true}, Origins{SameHost: true}
	listed := Origins{List: []string{"https://a.example", "http://b.example:8080", "https://[2001:db8::1]", "moz-extension://4f"}}
	for _, c := range []struct {
		origin, host string
		policy       Origins
		want         bool
	}{
		{"", "a.example", none, true},
		{"", "a.example", same, true},
		{"", "a.example", listed, true},
		{"", "", anyone, true},
		{"null", "a.example", none, false},
		{"null", "a.example", same, false},
		{"null", "null", same, false},
		{"null", "a.example", listed, false},
		{"null", "a.example", Origins{List: []string{"null"}}, false},
		{"null", "a.example", anyone, false},
		{"http://a.example", "a.example", none, false},

		{"http://a.example", "b.example", anyone, true},
		{"moz-extension://4f", "b.example", anyone, true},

		{"http://a.example", "a.example", same, true},
		{"https://a.example", "a.example", same, true},
		{"http://a.example", "a.example:80", same, true},
		{"http://a.example:80", "a.example", same, true},
		{"https://a.example", "a.example:443", same, true},
		{"https://a.example:8443", "a.example:8443", same, true},
		{"http://a.example", "a.example:", same, true},
		{"HTTP://A.Example", "a.eXAMPLE:80", same, true},
		{"http://localhost:8000", "localhost:8000", same, true},
		{"http://127.0.0.1:8000", "127.0.0.1:8000", same, true},
		{"http://[::1]", "[::1]", same, true},
		{"http://[::1]:8000", "[::1]:8000", same, true},
		{"https://[::1]", "[::1]:443", same, true},
		{"http://[0:0:0:0:0:0:0:1]", "[::1]", same, true},
		{"http://[2001:DB8::1]:80", "[2001:db8::1]", same, true},

		{"http://a.example", "a.example:443", same, false},
		{"https://a.example", "a.example:80", same, false},
		{"http://a.example:8000", "a.example", same, false},
		{"http://a.example", "a.example:8000", same, false},
		{"http://a.example:8000", "a.example:8001", same, false},
		{"http://b.example", "a.example", same, false},
		{"http://sub.a.example", "a.example", same, false},
		{"http://a.example.evil.example", "a.example", same, false},
		{"http://a.example@evil.example", "evil.example", same, false},
		{"http://evil.example/a.example", "a.example", same, false},
		{"http://a.example/", "a.example", same, false},
		{"http://a.example?", "a.example", same, false},
		{"http://a.example http://b.example", "a.example", same, false},
		{"http://a.example, http://b.example", "a.example", same, false},
		{"http://", "", same, false},
		{"http://:80", ":80", same, false},
		{"a.example", "a.example", same, false},
		{"//a.example", "a.example", same, false},
		{"://a.example", "a.example", same, false},
		{"ftp://a.example", "a.example", same, false},
		{"moz-extension://a.example", "a.example", same, false},
		{"http://a.example:x", "a.example:x", same, false},
		{"http://a.example:65536", "a.example:65536", same, false},
		{"http://a.example:-1", "a.example:-1", same, false},
		{"http://::1", "::1", same, false},
		{"http://[::1", "[::1", same, false},
		{"http://[::1]x", "[::1]x", same, false},
		{"http://[::1]", "[::2]", same, false},
		{"http://127.0.0.1", "[::ffff:127.0.0.1]", same, false},
		{"http://k.example", "\u212a.example", same, false}, // the sign of Kelvin
		{"http\u017f://a.example", "a.example", same, false},

		{"https://a.example", "other", listed, true},
		{"https://A.EXAMPLE:443", "other", listed, true},
		{"http://b.example:8080", "other", listed, true},
		{"https://[2001:db8:0::1]:443", "other", listed, true},
		{"moz-extension://4f", "other", listed, true},
		{"http://a.example", "other", listed, false},
		{"https://a.example:8443", "other", listed, false},
		{"http://b.example", "other", listed, false},
		{"https://c.example", "c.example", listed, false},
		{"chrome-extension://4f", "other", listed, false},
		{"https://c.example", "c.example", Origins{SameHost: true, List: listed.List}, true},
		{"https://a.example", "c.example", Origins{SameHost: true, List: listed.List}, true},
	} {
		if got := OriginAllowed(c.origin, c.host, c.policy); got != c.want {
			t.Errorf("origin %q, host %q, %+v: %v", c.origin, c.host, c.policy, got)
		}
	}
}

// serveOne approves one connection's upgrade, and sends back its messages
// until either side closes.
func serveOne(listener net.Listener, limit int, done chan<- error) {
	done <- func() error {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(time.Minute))
		reader := bufio.NewReaderSize(conn, 1000)
		request, err := http.ReadRequest(reader)
		if err != nil {
			return err
		}
		var fields []http1.Field
		for name, values := range request.Header {
			for _, value := range values {
				fields = append(fields, http1.Field{Name: []byte(name), Value: []byte(value)})
			}
		}
		key, err := CheckHandshake(request.Method, request.ProtoMinor, fields)
		if err != nil {
			return err
		}
		if !OriginAllowed(request.Header.Get("Origin"), request.Host, Origins{SameHost: true}) {
			return errors.New("the origin is refused")
		}
		fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: %s\r\n\r\n", AcceptKey(key))
		var server echoServer
		in := make([]byte, 777)
		for !server.ended {
			n, err := reader.Read(in)
			if err != nil {
				return err
			}
			if _, err := conn.Write(server.take(in[:n], limit)); err != nil {
				return err
			}
		}
		// A close with bytes unread is a reset, which can take the last frame
		// from the client.
		io.Copy(io.Discard, reader)
		return nil
	}()
}

// dialOne connects a client of fasthttp/websocket to serveOne. Its messages
// beyond 500 bytes go out in fragments.
func dialOne(t *testing.T, limit int) (client *websocket.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go serveOne(listener, limit, done)
	t.Cleanup(func() {
		listener.Close()
		if err := <-done; err != nil {
			t.Error("the server: ", err)
		}
	})
	dialer := websocket.Dialer{WriteBufferSize: 500, HandshakeTimeout: time.Minute}
	client, _, err = dialer.Dial("ws://"+listener.Addr().String(), http.Header{"Origin": {"http://" + listener.Addr().String()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	client.SetReadDeadline(time.Now().Add(time.Minute))
	return client
}

func wantClosed(t *testing.T, client *websocket.Conn, code int) {
	t.Helper()
	_, p, err := client.ReadMessage()
	if closed := (*websocket.CloseError)(nil); !errors.As(err, &closed) || closed.Code != code {
		t.Fatalf("%q, %v, want a close with %d", p, err, code)
	}
}

func TestWebSocket_AnotherImplementationsClientIsUnderstoodAndUnderstands(t *testing.T) {
	client := dialOne(t, 1<<20)
	pongs := ""
	client.SetPongHandler(func(p string) error { pongs += p + " "; return nil })
	random := strings.Repeat("\x00\xff\x80 not UTF-8 ", 5000)
	for i, c := range []struct {
		kind    int
		payload string
	}{
		{websocket.TextMessage, ""}, {websocket.TextMessage, "hello"}, {websocket.BinaryMessage, "\xff\x00"},
		{websocket.TextMessage, strings.Repeat("a", 125)}, {websocket.TextMessage, strings.Repeat("a", 126)},
		{websocket.TextMessage, strings.Repeat("κόσμε ", 1000)}, {websocket.BinaryMessage, random},
		{websocket.TextMessage, strings.Repeat("\U0001F680", 20_000)}, {websocket.BinaryMessage, ""},
	} {
		if err := client.WriteControl(websocket.PingMessage, fmt.Append(nil, i), time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if err := client.WriteMessage(c.kind, []byte(c.payload)); err != nil {
			t.Fatal(err)
		}
		if kind, p, err := client.ReadMessage(); kind != c.kind || string(p) != c.payload || err != nil {
			t.Fatalf("message %d: %d, %.40q, %v", i, kind, p, err)
		}
	}
	if pongs != "0 1 2 3 4 5 6 7 8 " {
		t.Fatalf("pongs %q", pongs)
	}
	if err := client.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(4001, "enough"), time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	wantClosed(t, client, 4001)
}

func TestWebSocket_AnotherImplementationsClientIsToldWhatItBroke(t *testing.T) {
	for _, c := range []struct {
		payload string
		code    int
	}{
		{strings.Repeat("a", 1001), websocket.CloseMessageTooBig},
		{"\xff", websocket.CloseInvalidFramePayloadData},
		{strings.Repeat("\xc3\xa9", 499) + "\xc3", websocket.CloseInvalidFramePayloadData},
	} {
		client := dialOne(t, 1000)
		if err := client.WriteMessage(websocket.TextMessage, []byte(c.payload)); err != nil {
			t.Fatal(err)
		}
		wantClosed(t, client, c.code)
	}
}
