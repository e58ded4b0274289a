package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// Clients that are held and take nothing, or all there is, and those who
// publish to them: the same binary, the same others.

// quietChannel has followers who have nothing to do with the attack.
const quietChannel = "quiet"

// publisher publishes on a connection of its own, one event after the other.
func (b *besieged) publisher() (publish func(call string) error) {
	client := newClient(b.t)
	url := "http://" + b.publishAddr(b.t) + "/publish"
	return func(call string) error {
		response, err := client.Post(url, "application/json", strings.NewReader(call))
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if _, err := io.Copy(io.Discard, response.Body); err != nil || response.StatusCode != 200 {
			return fmt.Errorf("a publish was answered %d: %w", response.StatusCode, cmpErr(err))
		}
		return nil
	}
}

// mustPublish makes one call.
func (b *besieged) mustPublish(publish func(string) error, call string) {
	b.t.Helper()
	if err := publish(call); err != nil {
		b.t.Fatal(err)
	}
}

// withstandsHeld is withstands where there are followers beside the attack, who
// must get every event of their channel, in order.
func (b *besieged) withstandsHeld(attack func()) {
	b.t.Helper()
	followers := followMany(b.t, b.addr, "/events?channel="+quietChannel, 20)
	publish := b.publisher()
	deliver := func(phase string) {
		for i := range 20 {
			data := fmt.Sprint(phase, " ", i)
			b.mustPublish(publish, `{"channel": "`+quietChannel+`", "data": "`+data+`"}`)
			for _, f := range followers {
				f.wantEvent(data)
			}
		}
	}
	b.withstands(func() {
		deliver("before")
		attack()
		deliver("during")
	})
	deliver("after")
}

// deaf opens held streams whose clients read their head and then nothing more.
func (b *besieged) deaf(n int, channel func(i int) string) []net.Conn {
	return b.dialAll(n, func(i int, conn net.Conn) error {
		conn.(*net.TCPConn).SetReadBuffer(4 << 10)
		if _, err := fmt.Fprintf(conn, "GET /events?channel=%s HTTP/1.1\r\nHost: localhost\r\n\r\n", channel(i)); err != nil {
			return err
		}
		head := make([]byte, 0, 1024)
		for one := make([]byte, 1); !bytes.HasSuffix(head, []byte("id: ")); head = append(head, one[0]) { // in front of the position
			if _, err := conn.Read(one); err != nil {
				return fmt.Errorf("%q: %w", head, err)
			}
		}
		return nil
	})
}

// A publisher at full speed to a channel of which some clients read and some do
// not: those that do not are ended, the publisher waits for nobody, and those
// that read get every event in order, or come back for what they missed.
func TestStarvation_WhoNeverReadsIsEndedAndTheOthersOfTheChannelGetEveryEvent(t *testing.T) {
	const deaf, readers = 200, 5
	events := full(5000, 50000)
	b := startBesieged(t)
	var work sync.WaitGroup
	b.withstandsHeld(func() {
		b.deaf(deaf, func(int) string { return "flood" })
		for range readers {
			f := follow(t, b.addr, "/events?channel=flood")
			work.Go(func() {
				if err := f.readAllOf(b.addr, "/events?channel=flood", events); err != nil {
					t.Error(err)
				}
			})
		}
		publish := b.publisher()
		work.Go(func() {
			filler := strings.Repeat("x", 1000)
			for i := range events {
				if err := publish(fmt.Sprintf(`{"channel": "flood", "data": {"n": %d, "filler": "%s"}}`, i, filler)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	})
	work.Wait()
	eventually(t, "those that never read to be ended", func() bool {
		return b.metric(`holds_ended_total{kind="stream",reason="slow"}`) >= deaf
	})
	if n := b.metric("outbox_bytes"); n != 0 {
		t.Errorf("%v bytes wait in outboxes", n)
	}
}

// readAllOf reads numbered events, and comes back with its last id where the
// stream ends: none is missing, twice, or out of order. A gap is one that was
// told, and nothing before its head is looked for any more.
func (f *follower) readAllOf(addr, path string, events int) error {
	next, told, gaps, returns := 0, false, 0, 0
	defer func() { f.t.Logf("a reader came back %d times and was told of %d gaps", returns, gaps) }()
	for next < events {
		e, err := f.event()
		if err != nil { // ended as slow, perhaps
			id := f.id
			f.Close()
			back, err := dialEvents(addr, path, eventSource+"Last-Event-ID: "+id+"\r\n")
			if err != nil {
				return err
			}
			defer back.Close()
			back.t = f.t
			f = back
			f.id, returns = id, returns+1
			continue
		}
		if e.event == "m0-gap" {
			told, gaps = true, gaps+1
			continue
		}
		var got struct{ N int }
		if err := json.Unmarshal([]byte(e.data), &got); err != nil {
			return err
		}
		if got.N < next || got.N > next && !told {
			return fmt.Errorf("the event %d came where %d was next, and no gap was told", got.N, next)
		}
		next, told = got.N+1, false
	}
	return nil
}

// Events of 1 MiB, each to a channel of its own, whose clients do not read.
func TestStarvation_LargeEventsThatNobodyReadsStayWithinTheMemory(t *testing.T) {
	b := startBesieged(t)
	channel := func(i int) string { return fmt.Sprint("large-", i) }
	data := strings.Repeat("x", 1<<20-100)
	b.withstandsHeld(func() {
		deaf := b.deaf(full(600, 2000), channel)
		publish := b.publisher()
		for i := range deaf {
			b.mustPublish(publish, `{"channel": "`+channel(i)+`", "data": "`+data+`"}`)
		}
		b.logHeld()
	})
}

// logHeld tells what is kept for held clients.
func (b *besieged) logHeld() {
	b.t.Helper()
	b.t.Logf("in outboxes %.0f MiB, in the journal %.0f MiB", b.metric("outbox_bytes")/(1<<20), b.metric("journal_bytes")/(1<<20))
}

// Events of 1 MiB whose other forms are larger: a control character of a text
// is one byte to an event stream and six in a socket's JSON. All forms that the
// journal keeps are of the journal's bytes.
func TestStarvation_TheFormsOfLargeEventsStayWithinTheMemory(t *testing.T) {
	b := startBesieged(t)
	b.withstandsHeld(func() {
		plain, enveloped := openSocket(t, b.addr, "/ws?channel=forms"), openSocket(t, b.addr, "/ws?channel=forms&envelope=json")
		enveloped.wantOpen()
		publish := b.publisher()
		data := strings.Repeat(`\u0001`, 1<<20-100)
		for range 70 {
			b.mustPublish(publish, `{"channel": "forms", "data": "`+data+`"}`)
			for _, c := range []*socketClient{plain, enveloped} {
				if _, got, err := c.ReadMessage(); err != nil || len(got) < 1<<20-100 {
					t.Fatalf("%d bytes and %v, want the whole event", len(got), err)
				}
			}
		}
		b.logHeld()
	})
}

// A great many channels, each with an event and some with clients: the journal
// has its bound for what it keeps of them, and none becomes a series.
func TestStarvation_ManyChannelsStayWithinTheMemoryAndAddNoSeries(t *testing.T) {
	b := startBesieged(t)
	channels := full(10_000, 100_000)
	b.others()
	series := b.seriesNames()
	b.withstandsHeld(func() {
		var next atomic.Int64
		filler := strings.Repeat("x", 100<<20/channels) // more than the journal may have
		var publishing sync.WaitGroup
		for range 4 {
			publish := b.publisher()
			publishing.Go(func() {
				for n := next.Add(1); n <= int64(channels); n = next.Add(1) {
					if err := publish(fmt.Sprintf(`{"channel": "of-many-%d", "data": "%s"}`, n, filler)); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		publishing.Wait()
		// As many again, with clients in them.
		const each = 25
		b.deaf(channels/each, func(i int) string {
			names := make([]string, each)
			for n := range names {
				names[n] = fmt.Sprintf("held-%d-%d", i, n)
			}
			return strings.Join(names, "&channel=")
		})
		b.logHeld()
		if n := b.metric("journal_bytes"); n > 64<<20 {
			t.Errorf("%.1f MiB are in the journal, want 64 at most", n/(1<<20))
		}
	})
	for name := range b.seriesNames() {
		if !series[name] {
			t.Errorf("%s is new", name)
		}
	}
}

// frameOf is the beginning of a client's text frame that announces size bytes,
// masked with zeros.
func frameOf(size int) []byte {
	return append(binary.BigEndian.AppendUint64([]byte{0x81, 0x80 | 127}, uint64(size)), 0, 0, 0, 0)
}

// besiegers opens held sockets over connections of which every byte is ours.
func (b *besieged) besiegers(n int, channel string, sent []byte) []net.Conn {
	return b.dialAll(n, func(_ int, conn net.Conn) error {
		if _, err := fmt.Fprintf(conn, "GET /ws?channel=%s HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
			"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", channel); err != nil {
			return err
		}
		var head []byte
		for one := make([]byte, 1); !bytes.HasSuffix(head, []byte("\r\n\r\n")); head = append(head, one[0]) {
			if _, err := conn.Read(one); err != nil {
				return fmt.Errorf("%q: %w", head, err)
			}
		}
		if !bytes.HasPrefix(head, []byte("HTTP/1.1 101 ")) {
			return fmt.Errorf("the handshake was answered %q", head)
		}
		_, err := conn.Write(sent)
		return err
	})
}

// heapBytes is what lives on the heap. What is resident does not show memory
// that was taken and not written to yet.
func (b *besieged) heapBytes() (n int) {
	b.t.Helper()
	profile := string(wantGet(b.t, onceClient(), "http://"+b.admin(b.t)+"/debug/pprof/heap?debug=1&gc=1"))
	_, rest, found := strings.Cut(profile, "\n# HeapAlloc = ")
	if _, err := fmt.Sscan(rest, &n); !found || err != nil {
		b.t.Fatalf("no HeapAlloc: %v", err)
	}
	return n
}

// Sockets that send a byte a second, of a message that is announced as large as
// one may be: what a head announces costs nothing.
func TestStarvation_SocketsOfOneByteASecondTakeWhatTheySent(t *testing.T) {
	b := startBesieged(t)
	b.withstandsHeld(func() {
		before := b.heapBytes()
		slow := b.besiegers(full(500, 5000), "slow", frameOf(1<<20))
		b.drip(slow, func(int) byte { return 'x' })
		b.others() // the bytes are read meanwhile
		grown := (b.heapBytes() - before) / len(slow)
		t.Logf("%d sockets: %.1f KiB of heap each", len(slow), float64(grown)/(1<<10))
		if grown > 64<<10 {
			t.Errorf("%d bytes for each socket, which has sent a few", grown)
		}
	})
	if n := b.metric("lane_in_use{lane=\"web\"}"); n != 0 {
		t.Errorf("%v slots are in use", n)
	}
}

// Messages as large as one may be that are never whole: what has come of them
// is in memory, of each client that the app let in.
func TestStarvation_MessagesThatAreNeverWholeStayWithinTheMemory(t *testing.T) {
	b := startBesieged(t)
	b.withstandsHeld(func() {
		begun := append(frameOf(1<<20-1), bytes.Repeat([]byte("x"), 1<<20-1)...)
		begun[0] &^= 0x80 // more of it is to come
		// A ping may stand between a message's frames (RFC 6455 §5.4): its answer
		// says that all before it was taken in.
		slow := b.besiegers(full(600, 2000), "slow", append(begun, 0x89, 0x80, 0, 0, 0, 0))
		eachAtOnce(t, len(slow), func(i int) error {
			pong := make([]byte, 2)
			// Beyond what all may have together, they are ended.
			if _, err := io.ReadFull(slow[i], pong); err != nil || string(pong) != "\x8a\x00" && pong[0] != 0x88 {
				return fmt.Errorf("%q %w, want a pong, or a close frame", pong, cmpErr(err))
			}
			return nil
		})
	})
}
