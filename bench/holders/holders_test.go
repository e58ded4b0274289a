package holders

import (
	"encoding/json"
	"io"
	"testing"
	"time"

	"holdfast/bench/crowd"
	"holdfast/bench/peer"
)

func TestGripItem_HasTheOneFormThatItsClientsNeed(t *testing.T) {
	for socket, want := range map[bool]string{
		false: `{"items":[{"channel":"7","formats":{"http-stream":{"content":"data: a\"b\n\n"}}}]}`,
		true:  `{"items":[{"channel":"7","formats":{"ws-message":{"content":"a\"b"}}}]}`,
	} {
		got := gripItem(7, `a"b`, socket)
		if !json.Valid([]byte(got)) || got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// Each server holds streams and sockets, and brings each of them its event once.
func TestServers_HoldAndDeliver(t *testing.T) {
	bench, err := peer.New(io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bench.Close)
	bench.Short = true
	clients, err := crowd.Start(t.Context(), bench)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(clients.Close)
	for _, name := range Available() {
		for _, socket := range []bool{false, true} {
			t.Run(name+map[bool]string{false: "-streams", true: "-sockets"}[socket], func(t *testing.T) {
				holdAndDeliver(t, bench, clients, name, socket)
			})
		}
	}
}

func holdAndDeliver(t *testing.T, bench *peer.Bench, clients *crowd.Crowd, name string, socket bool) {
	server, err := Start(t.Context(), bench, name, Settings{Holds: 20, Socket: socket})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	open := crowd.Open{Group: "all", Address: server.Clients, Path: server.Path(socket), Socket: socket, Count: 20, Channels: 2, Within: 10 * time.Second}
	if _, err := clients.Open(open); err != nil {
		t.Fatal(err)
	}
	defer clients.Drop("all")
	if err := server.Joined(t.Context(), clients, "all", 20, 0, 2); err != nil {
		t.Fatal(err)
	}
	for _, channel := range []int{0, 1, 5} { // nobody is at 5
		if err := server.Publish(t.Context(), channel, crowd.Stamp(64)); err != nil {
			t.Fatal(err)
		}
	}
	if seen, err := clients.Wait("all", 20, 10*time.Second); err != nil {
		t.Fatalf("%+v: %v", seen, err)
	}
	if memory, err := server.Memory(); err != nil || memory.PSS <= 0 || memory.RSS < memory.PSS {
		t.Errorf("memory %+v, %v", memory, err)
	}
	if used, err := server.CPU(); err != nil || used < 0 {
		t.Errorf("CPU %s, %v", used, err)
	}
}
