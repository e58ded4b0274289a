package holds

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// typicalFields are what goes along with each message of a browser's socket.
var typicalFields = strings.ReplaceAll(`Host: app.example
Origin: https://app.example
User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0.0.0 Safari/537.36
Cookie: csrftoken=`+strings.Repeat("c", 32)+`; sessionid=`+strings.Repeat("s", 32)+`
X-Forwarded-For: 203.0.113.7
X-Forwarded-Proto: https
X-Forwarded-Host: app.example
`, "\n", "\r\n")

// bareSockets holds sockets whose clients have nothing of Go's about them that
// would be measured too.
func bareSockets(t *testing.T, s *station, n int, spec func(i int) Spec) {
	t.Helper()
	clients := make([]int, 0, n)
	t.Cleanup(func() {
		for _, fd := range clients {
			syscall.Close(fd)
		}
	})
	for i := range n {
		pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, pair[0])
		file := os.NewFile(uintptr(pair[1]), "socket")
		server, err := net.FileConn(file)
		file.Close()
		if err != nil {
			t.Fatal(err)
		}
		opened := spec(i)
		opened.Kind, opened.Head, opened.Position = ModeWebSocket, []byte(socketHead), s.Position()
		if err := s.Open(server, opened); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCost_AnIdleSocket(t *testing.T) {
	if testing.Short() {
		t.Skip("10,000 connections, in a short run")
	}
	const reserve = 300
	sockets := min(10_000, (descriptors(t)-reserve)/2)
	needDescriptors(t, 2*1000+reserve)
	for _, c := range []struct {
		what string
		most int64 // bytes of live heap
		spec func(i int) Spec
	}{
		{"that only receives, on a channel with others", 400, func(int) Spec { return Spec{Channels: []string{"a"}} }},
		{"that sends too", 400, func(int) Spec { return Spec{Channels: []string{"a"}, Lane: "web", Path: "/ws/message"} }},
		{fmt.Sprintf("that sends too, with %d bytes of fields", len(typicalFields)), 400 + 448,
			func(int) Spec {
				return Spec{Channels: []string{"a"}, Lane: "web", Path: "/ws/message", Fields: []byte(typicalFields)}
			}},
		{"that sends too, with these, on a channel of its own", 400 + 448 + 400,
			func(i int) Spec {
				return Spec{Channels: []string{fmt.Sprint("user-", i)}, Lane: "web", Path: "/ws/message", Fields: []byte(typicalFields)}
			}},
	} {
		t.Run(c.what, func(t *testing.T) {
			s := startStation(t, Config{})
			heap, stacks := liveMemory()
			bareSockets(t, s, sockets, c.spec)
			s.untilLive(sockets)
			nowHeap, nowStacks := liveMemory()
			each, eachStack := (nowHeap-heap)/int64(sockets), (nowStacks-stacks)/int64(sockets)
			t.Logf("%d idle sockets, each %s: %d bytes of live heap each, and %d of stacks; %d goroutines",
				sockets, c.what, each, eachStack, runtime.NumGoroutine())
			if runtime.NumGoroutine() > sockets { // it has a goroutine, and a buffer, where descriptors are not watched
				c.most += 8 << 10
			}
			if each > c.most {
				t.Errorf("an idle socket %s costs %d bytes, want %d at most", c.what, each, c.most)
			}
		})
	}
}
