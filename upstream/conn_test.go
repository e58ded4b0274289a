package upstream_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"holdfast/upstream"
)

const hello = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"

func TestConn_AnAnswerCutAtAnyByteIsNoAnswer(t *testing.T) {
	for _, c := range []struct {
		name, text string
		toClose    bool // the body ends with the connection
	}{
		{name: "Length", text: hello},
		{name: "Chunked", text: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n"},
		{name: "Close", text: "HTTP/1.1 200 OK\r\nX-A: b\r\n\r\nhello", toClose: true},
		{name: "Interim", text: "HTTP/1.1 103 Early Hints\r\n\r\n" + hello},
	} {
		t.Run(c.name, func(t *testing.T) {
			head := strings.Index(c.text, "\r\n\r\n") + 4
			for cut := range c.text {
				conn := dial(t, startRaw(t, answering(c.text[:cut], 0, true)))
				got := ask(t, conn, "GET", 64)
				switch {
				case cut == 0:
					wantKind(t, got.err, upstream.ErrClosed, true)
				case c.toClose && cut >= head:
					if got.err != nil || got.body != c.text[head:cut] {
						t.Errorf("cut at %d: %q, %v", cut, got.body, got.err)
					}
				default:
					wantKind(t, got.err, upstream.ErrTruncated, true)
				}
				if conn.Reusable() {
					t.Errorf("cut at %d it may be used again", cut)
				}
			}
		})
	}
}

func TestConn_AResetIsNoEndOfABodyThatEndsWithTheConnection(t *testing.T) {
	read := make(chan struct{})
	conn := dial(t, startRaw(t, func(conn *serverConn) {
		conn.Head()
		conn.WritePieces("HTTP/1.1 200 OK\r\n\r\nhello", 0)
		<-read
		conn.Conn.(*net.TCPConn).SetLinger(0)
	}))
	p := make([]byte, 5)
	conn.Send([]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), nil, nil)
	if _, err := conn.Head(false, nil); err != nil {
		t.Fatal(err)
	}
	for n := 0; n < 5; {
		m, err := conn.Read(p)
		if n += m; err != nil {
			t.Fatal(err)
		}
	}
	close(read)
	_, err := conn.Read(p)
	wantKind(t, err, upstream.ErrTruncated, true)
}

func TestConn_SurplusMakesItUnusable(t *testing.T) {
	for _, surplus := range []string{"x", "\r\n", hello, "HTTP/1.1 408 Request Timeout\r\n\r\n"} {
		// With the body in the buffer, and with the body read past the buffer.
		for _, n := range []int{5, 64} {
			conn := dial(t, startRaw(t, answering(hello+surplus, 0, false)))
			if got := ask(t, conn, "GET", n); got.err != nil || got.body != "hello" {
				t.Fatalf("answer %q, %v", got.body, got.err)
			}
			if conn.Reusable() || conn.Silent() {
				t.Errorf("with %q behind its answer it may be used again", surplus)
			}
		}
	}
}

func TestConn_WhatComesUnaskedEndsItsSilence(t *testing.T) {
	for name, unasked := range map[string]func(*serverConn){
		"Byte":    func(conn *serverConn) { conn.WritePieces("x", 0) },
		"Timeout": func(conn *serverConn) { conn.WritePieces("HTTP/1.1 408 Request Timeout\r\n\r\n", 0) },
		"FIN":     func(conn *serverConn) { conn.Conn.(*net.TCPConn).CloseWrite() },
		"Reset":   func(conn *serverConn) { conn.Conn.(*net.TCPConn).SetLinger(0); conn.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			do, done := make(chan struct{}), make(chan struct{})
			conn := dial(t, startRaw(t, func(conn *serverConn) {
				conn.Head()
				conn.WritePieces(hello, 0)
				<-do
				unasked(conn)
				close(done)
				conn.Head() // until the other side closes
			}))
			if got := ask(t, conn, "GET", 64); got.err != nil || !conn.Reusable() || !conn.Silent() {
				t.Fatalf("before: %v, reusable %v, silent %v", got.err, conn.Reusable(), conn.Silent())
			}
			close(do)
			await(t, "the server did it", done)
			until(t, "it is not silent any more", func() bool { return !conn.Silent() })
			for range 3 {
				if conn.Silent() {
					t.Fatal("it is silent again: the check took what came")
				}
			}
		})
	}
}

func TestConn_AfterATimeoutItGoesOnWhereItWas(t *testing.T) {
	next := make(chan struct{})
	text := "HTTP/1.1 103 Early Hints\r\nX-A: b\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
	conn := dial(t, startRaw(t, func(conn *serverConn) {
		conn.Head()
		for i := range text {
			<-next
			if _, err := io.WriteString(conn, text[i:i+1]); err != nil {
				return
			}
		}
		conn.Head()
	}))
	// Before each byte one read ends at its deadline.
	step := func() {
		conn.SetReadDeadline(time.Now().Add(deadline))
		next <- struct{}{}
	}
	conn.Send([]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), nil, nil)
	interim := 0
	var res *upstream.Response
	for res == nil {
		conn.SetReadDeadline(time.Unix(1, 0))
		_, err := conn.Head(false, func(*upstream.Response) { interim++ })
		wantKind(t, err, upstream.ErrTimeout, true)
		step()
		conn.SetReadDeadline(time.Now().Add(time.Millisecond))
		if res, err = conn.Head(false, func(*upstream.Response) { interim++ }); err != nil {
			wantKind(t, err, upstream.ErrTimeout, true)
		}
	}
	var body strings.Builder
	p := make([]byte, 64)
	for {
		conn.SetReadDeadline(time.Unix(1, 0))
		n, err := conn.Read(p)
		body.Write(p[:n])
		if err == io.EOF {
			break
		}
		if n == 0 {
			wantKind(t, err, upstream.ErrTimeout, true)
			step()
			conn.SetReadDeadline(time.Now().Add(time.Millisecond))
			n, err = conn.Read(p)
			body.Write(p[:n])
			if err == io.EOF {
				break
			}
		}
	}
	if res.Status != 200 || interim != 1 || body.String() != "hello" || !conn.Reusable() {
		t.Errorf("status %d, %d interim, body %q, reusable %v", res.Status, interim, body.String(), conn.Reusable())
	}
}

func TestConn_InterimAnswersAreGivenInTheirOrder(t *testing.T) {
	conn := dial(t, startRaw(t, answering("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: <a>\r\nLink: <b>\r\n\r\n"+hello, 1, false)))
	conn.Send([]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), nil, nil)
	var got []string
	res, err := conn.Head(false, func(res *upstream.Response) {
		line := fmt.Sprint(res.Status, " ", string(res.Reason))
		for _, f := range res.Fields {
			line += fmt.Sprintf(" %s=%s", f.Name, f.Value)
		}
		got = append(got, line)
	})
	if err != nil || res.Status != 200 || len(res.Fields) != 1 {
		t.Fatalf("%+v, %v", res, err)
	}
	if want := "100 Continue|103 Early Hints Link=<a> Link=<b>"; strings.Join(got, "|") != want {
		t.Errorf("interim: %q", got)
	}
}

func TestConn_TheHeadStaysGoodWhileALargeBodyIsRead(t *testing.T) {
	chunk := "8000\r\n" + strings.Repeat("x", 0x8000) + "\r\n"
	text := "HTTP/1.1 201 Made here\r\nX-A: first\r\nTransfer-Encoding: chunked\r\nX-B: last\r\n\r\n" + strings.Repeat(chunk, 20) + "0\r\n\r\n"
	got := ask(t, dial(t, startRaw(t, answering(text, 0, false))), "GET", 4096)
	if got.err != nil || len(got.body) != 20*0x8000 {
		t.Fatalf("%d bytes, %v", len(got.body), got.err)
	}
	f := got.res.Fields
	if string(got.res.Reason) != "Made here" || len(f) != 3 || string(f[0].Name)+string(f[0].Value) != "X-Afirst" ||
		string(f[2].Name)+string(f[2].Value) != "X-Blast" {
		t.Errorf("after the body the head is %q %q", got.res.Reason, f)
	}
}

func TestConn_ALargeRequestArrivesWholeAndAnEarlyAnswerIsRead(t *testing.T) {
	body := []byte(strings.Repeat("0123456789abcdef", 8<<20/16))
	head := []byte(fmt.Sprintf("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", len(body)))
	t.Run("Whole", func(t *testing.T) {
		same := make(chan bool, 1)
		conn := dial(t, startRaw(t, func(conn *serverConn) {
			conn.Head()
			got := make([]byte, len(body))
			io.ReadFull(conn.reader, got)
			same <- string(got) == string(body)
			conn.WritePieces(hello, 0)
			conn.Head()
		}))
		if err := conn.Send(head, body, nil); err != nil {
			t.Fatal(err)
		}
		if res, err := conn.Head(false, nil); err != nil || res.Status != 200 {
			t.Fatal(res, err)
		}
		if got, err := readBody(conn, 64); err != nil || got != "hello" {
			t.Errorf("%q, %v", got, err)
		}
		if !take(t, same) {
			t.Error("the body arrived otherwise than it was sent")
		}
		until(t, "the connection may be used again", conn.Reusable)
	})
	t.Run("Early", func(t *testing.T) {
		conn := dial(t, startRaw(t, func(conn *serverConn) {
			conn.Head()
			conn.WritePieces(hello, 0)
			io.Copy(io.Discard, io.LimitReader(conn.reader, 1000))
			<-t.Context().Done()
		}))
		if err := conn.Send(head, body, nil); err != nil {
			t.Fatal(err)
		}
		if res, err := conn.Head(false, nil); err != nil || res.Status != 200 {
			t.Fatal(res, err)
		}
		if got, err := readBody(conn, 64); err != nil || got != "hello" {
			t.Errorf("%q, %v", got, err)
		}
		if conn.Reusable() {
			t.Error("half a request is out, and the connection may be used again")
		}
		conn.Close() // ends the writer: nobody reads body after this
		clear(body)
	})
}

func TestConn_CloseInterruptsARead(t *testing.T) {
	asked := make(chan struct{})
	conn := dial(t, startRaw(t, func(conn *serverConn) {
		conn.Head()
		close(asked)
		conn.Head()
	}))
	conn.Send([]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), nil, nil)
	failed := make(chan error, 1)
	go func() { _, err := conn.Head(false, nil); failed <- err }()
	await(t, "the request arrives", asked)
	conn.Close()
	wantKind(t, take(t, failed), upstream.ErrInterrupted, true)
}

func TestDial_SaysThatNothingWasSent(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close() // nobody listens there now
	target := newApp(t, "tcp", listener.Addr().String(), upstream.Config{}, nil)
	_, err = target.Dial(context.Background())
	wantKind(t, err, upstream.ErrUnreachable, false)
	if err == nil || !strings.Contains(err.Error(), "http://"+listener.Addr().String()) {
		t.Errorf("the error does not name the target: %v", err)
	}

	gone, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = target.Dial(gone)
	wantKind(t, err, upstream.ErrInterrupted, false)

	target = newApp(t, "unix", t.TempDir()+"/none.sock", upstream.Config{}, nil)
	_, err = target.Dial(context.Background())
	wantKind(t, err, upstream.ErrUnreachable, false)
}

func TestDial_ReachesAUnixSocket(t *testing.T) {
	conn := dial(t, startRawAt(t, "unix", t.TempDir()+"/app.sock", answering(hello, 0, false)))
	for range 2 {
		if got := ask(t, conn, "GET", 64); got.err != nil || got.body != "hello" || !conn.Reusable() || !conn.Silent() {
			t.Fatalf("%q, %v", got.body, got.err)
		}
	}
}
