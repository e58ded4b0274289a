package holds

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"testing"
)

// recorder is an app that writes down what messages it gets, by socket.
type recorder struct {
	mu       sync.Mutex
	messages map[string]clientGets
}

func (r *recorder) forward(_ context.Context, m *Request) (Answer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	got := r.messages[m.Target]
	if bytes.Contains(m.Fields, []byte("M0-Opcode: 2\r\n")) {
		got = got.binary(string(m.Body))
	} else {
		got = got.text(string(m.Body))
	}
	r.messages[m.Target] = got
	return Answer{Status: http.StatusNoContent}, nil
}

func (r *recorder) of(path string) clientGets {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.messages[path]
}

// The table's server sends every message back; a held socket gives them to
// the app. So what the client gets are the pongs and the close of a case, and the
// app gets the messages.
func TestSocket_EveryConformanceCaseHoldsOverAConnectionHoweverItsBytesCome(t *testing.T) {
	app := &recorder{messages: make(map[string]clientGets)}
	s := startStation(t, Config{Forward: app.forward, MessageBytes: conformanceLimit})
	counts, all := map[int]int{}, 0
	for i, c := range conformanceCases() {
		counts[c.section]++
		all++
		name := fmt.Sprintf("%d %s/%s", c.section, conformanceSections[c.section], c.name)
		random := rand.New(rand.NewPCG(6455, uint64(i)))
		for how, size := range map[string]func() int{
			"whole": func() int { return len(c.send) },
			"split": func() int { return 1 + random.IntN(1+len(c.send)/min(len(c.send), 50)) },
		} {
			path := fmt.Sprintf("/%d/%s", i, how)
			s.playCase(&c, name+", "+how, path, size)
			var messages clientGets
			for _, f := range c.want {
				if !f.opcode.isControl() {
					messages = append(messages, f)
				}
			}
			s.until("the app has the messages of "+name+", "+how, func() bool { return len(app.of(path)) >= len(messages) })
			if got := app.of(path); !slices.Equal(got, messages) {
				t.Errorf("%s, %s: the app got %v, want %v", name, how, got, messages)
			}
		}
	}
	for section := range 11 {
		if title := conformanceSections[section]; title != "" {
			t.Logf("section %2d, %-15s %4d cases, each whole and split", section, title, counts[section])
		}
	}
	t.Logf("%d cases in all", all)
	s.until("all have left", func() bool { return s.Snapshot().Sockets == 0 && s.counts.held.Load() == 0 })
}

// playCase plays a case's client, who sends in pieces and reads meanwhile.
func (s *station) playCase(c *conformanceCase, name, path string, size func() int) {
	s.t.Helper()
	client := s.openSocket(Spec{Path: path})
	defer client.conn.Close()
	sent := make(chan error, 1)
	go client.sendPieces(c.send, size, sent)
	var got clientGets
	for {
		op, payload, err := client.read()
		if err == io.EOF || errors.Is(err, syscall.ECONNRESET) && len(got) > 0 && got[len(got)-1].opcode == opClose {
			break
		}
		if err != nil {
			s.t.Errorf("%s: after %v the connection ends with %v", name, got, err)
			break
		}
		f := serverFrame{op, payload, 0}
		if op == opClose {
			f.payload, f.code = "", closeNoStatus
			if len(payload) >= 2 {
				f.code = uint16(payload[0])<<8 | uint16(payload[1])
			}
		}
		got = append(got, f)
	}
	want := slices.DeleteFunc(slices.Clone(c.want), func(f serverFrame) bool { return !f.opcode.isControl() })
	if !slices.Equal(got, want) {
		s.t.Errorf("%s: the client got %v, want %v", name, got, want)
	}
	// What a client sends behind its close may find the connection gone.
	if err := <-sent; err != nil && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		s.t.Errorf("%s: the client cannot send: %v", name, err)
	}
}

// sendPieces sends in pieces of such sizes.
func (c *socketClient) sendPieces(frames clientSends, size func() int, done chan<- error) {
	for len(frames) > 0 {
		n, err := c.conn.Write(frames[:min(size(), len(frames))])
		if err != nil {
			done <- err
			return
		}
		frames = frames[n:]
	}
	done <- nil
}
