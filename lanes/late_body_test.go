package lanes_test

import (
	"testing"

	"holdfast/lanes"
	"holdfast/upstream"
)

// Answers that have no body, whose app sends one all the same: gunicorn (20.1)
// sends to a HEAD what the view made for a GET, and to a 204 what its Content-Length
// says. It need not be there yet when the head is, and would be taken for the
// next request's answer.
var lateBodies = []struct {
	name, head string
	status     int
	request    lanes.Request
}{
	{"HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 44\r\n\r\n", 200, lanes.Request{Head: []byte("HEAD / HTTP/1.1\r\nHost: a.test\r\n\r\n"), ToHEAD: true, Again: true}},
	{"HEADWithoutLength", "HTTP/1.1 200 OK\r\nConnection: keep-alive\r\n\r\n", 200, lanes.Request{Head: []byte("HEAD / HTTP/1.1\r\nHost: a.test\r\n\r\n"), ToHEAD: true, Again: true}},
	{"NoContent", "HTTP/1.1 204 No Content\r\nContent-Length: 44\r\n\r\n", 204, get},
}

func TestExchange_ABodyThatComesLateWhereNoneMayBeIsNobodysAnswer(t *testing.T) {
	for _, c := range lateBodies {
		t.Run(c.name, func(t *testing.T) {
			app := startApp(t, func(conn *rawConn) {
				if conn.number > 0 {
					greet(conn)
					return
				}
				conn.read()
				conn.say(c.head)
				if conn.read() { // it is used again
					conn.say("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong")
				}
			})
			lane := startLane(t, one, upstream.Config{}, app.addr())
			wantAnswer(t, do(t, lane, c.request), c.status, "")
			wantAnswer(t, do(t, lane, get), 200, "hello")
		})
	}
}
