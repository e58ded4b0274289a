// Holdapp is the null app of the benchmarks of held clients: every view is one
// write, so that what is measured in front of it is not the app.
//
//	holdapp -listen 127.0.0.1:9001 -heartbeat 15
//
//	GET  /m0/stream?c=NAME     an instruction: hold as an event stream, M0
//	GET  /m0/socket?c=NAME     as a WebSocket
//	GET  /grip/stream?c=NAME   as an event stream, GRIP
//	POST /grip/socket?c=NAME   as a WebSocket, GRIP: the answer to WebSocket-over-HTTP
//	anything else              a few bytes
//
// The channel's name is taken as it stands in the target. -heartbeat is for
// GRIP, where the app says how often: seconds, 0 for none.
//
// It is no web server: a body has to have a Content-Length, and a head is read
// for nothing else. Whoever sends what it does not understand is closed.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"os"
	"strconv"
	"strings"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:9001", "address to serve on")
	heartbeat := flag.Int("heartbeat", 0, "GRIP: `seconds` between heartbeats; 0: none")
	flag.Parse()
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		fmt.Fprintln(os.Stderr, "holdapp:", err)
		os.Exit(1)
	}
	for {
		client, err := listener.Accept()
		if err != nil {
			fmt.Fprintln(os.Stderr, "holdapp:", err)
			os.Exit(1)
		}
		go serve(client, *heartbeat)
	}
}

// serve runs until the client leaves or sends what is not understood.
func serve(client net.Conn, heartbeat int) {
	defer client.Close()
	reader := bufio.NewReader(client)
	text := textproto.NewReader(reader)
	for {
		line, err := text.ReadLine()
		if err != nil {
			return
		}
		fields, err := text.ReadMIMEHeader()
		if err != nil {
			return
		}
		body := ""
		if length := fields.Get("Content-Length"); length != "" {
			if body, err = readBody(reader, length); err != nil {
				return
			}
		}
		if _, err := io.WriteString(client, answer(line, body, heartbeat)); err != nil {
			return
		}
	}
}

const longestBody = 64 << 10

func readBody(reader io.Reader, length string) (string, error) {
	n, err := strconv.Atoi(length)
	if err != nil || n < 0 || n > longestBody {
		return "", fmt.Errorf("a Content-Length of %.40q; it may be from 0 to %d", length, longestBody)
	}
	body := make([]byte, n)
	_, err = io.ReadFull(reader, body)
	return string(body), err
}

// answer is the whole answer to a request line.
func answer(line, body string, heartbeat int) string {
	parts := strings.Split(line, " ")
	target := ""
	if len(parts) > 1 {
		target = parts[1]
	}
	path, name, _ := strings.Cut(target, "?c=")
	switch path {
	case "/m0/stream":
		return whole("Content-Type: text/event-stream\r\nM0-Hold: stream\r\nM0-Channel: "+name+"\r\n", "")
	case "/m0/socket":
		return whole("Content-Type: text/plain\r\nM0-Hold: websocket\r\nM0-Channel: "+name+"\r\n", "")
	case "/grip/stream":
		fields := "Content-Type: text/event-stream\r\nGrip-Hold: stream\r\nGrip-Channel: " + name + "\r\n"
		if heartbeat > 0 {
			fields += fmt.Sprintf("Grip-Keep-Alive: : heartbeat\\n\\n; format=cstring; timeout=%d\r\n", heartbeat)
		}
		return whole(fields, ": open\n\n")
	case "/grip/socket":
		return whole("Content-Type: application/websocket-events\r\nSec-WebSocket-Extensions: grip\r\n", socketEvents(name, body, heartbeat))
	}
	return whole("Content-Type: text/plain\r\n", "Hello, world.\n")
}

// socketEvents opens and subscribes a socket that is being opened; to anything
// else it says nothing, which keeps the socket.
func socketEvents(name, body string, heartbeat int) string {
	if !strings.HasPrefix(body, "OPEN\r\n") {
		return ""
	}
	events := "OPEN\r\n" + event(fmt.Sprintf(`c:{"type":"subscribe","channel":%q}`, name))
	if heartbeat > 0 {
		events += event(fmt.Sprintf(`c:{"type":"keep-alive","timeout":%d}`, heartbeat))
	}
	return events
}

func event(text string) string {
	return fmt.Sprintf("TEXT %x\r\n%s\r\n", len(text), text)
}

// whole offers keep-alive in words: a careful proxy reuses no other connection.
func whole(fields, body string) string {
	return "HTTP/1.1 200 OK\r\nConnection: keep-alive\r\n" + fields + "Content-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
}
