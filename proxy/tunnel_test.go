package proxy_test

import (
	"context"
	"testing"
	"time"

	"holdfast/lanes"
	"holdfast/proxy"
)

const (
	handshake = "GET /ws HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
	switched = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX-App: 1\r\n\r\n"
)

// openTunnel makes one, and both its ends.
func openTunnel(t *testing.T, cfg lanes.Config, server proxy.Config) (s streamLane, c *wireClient, app *appConn) {
	t.Helper()
	apps := make(chan *appConn, 1)
	s = startStreams(t, cfg, server, func(a *appConn) {
		if line, _ := a.head(); line == "" {
			return
		}
		a.say(switched)
		apps <- a
		<-t.Context().Done()
	})
	c = say(t, s.addr, handshake)
	c.wantHead(t, 101)
	app = take(t, "the app has its end", apps)
	app.SetDeadline(time.Now().Add(patience))
	return s, c, app
}

// wantBytes requires these to come next.
func (a *appConn) wantBytes(t *testing.T, want string) {
	t.Helper()
	if got := a.read(len(want)); got != want {
		t.Fatalf("%q came, want %q", got, want)
	}
}

func TestTunnel_AResetOfOneSideEndsTheOther(t *testing.T) {
	for name, idle := range map[string]time.Duration{"Unbounded": 0, "Idle": time.Hour} {
		t.Run(name+"/Client", func(t *testing.T) {
			s, c, app := openTunnel(t, lanes.Config{Idle: idle}, proxy.Config{})
			c.say(t, "up")
			app.wantBytes(t, "up")
			c.reset()
			if rest, err := app.end(); rest != "" || err != nil && !isReset(err) {
				t.Errorf("the app's end: %q, %v", rest, err)
			}
			s.wantFree(t)
		})
		t.Run(name+"/App", func(t *testing.T) {
			s, c, app := openTunnel(t, lanes.Config{Idle: idle}, proxy.Config{})
			c.say(t, "up")
			app.wantBytes(t, "up")
			app.SetLinger(0)
			app.Close()
			c.wantEnd(t, true)
			s.wantFree(t)
		})
	}
}

// A tunnel that begins while the process drains ends with it, too.
func TestTunnel_OneThatBeginsDuringADrainIsEnded(t *testing.T) {
	for name, idle := range map[string]time.Duration{"Unbounded": 0, "Idle": time.Hour} {
		t.Run(name, func(t *testing.T) {
			asked, gate := make(chan struct{}), make(chan struct{})
			s := startStreams(t, lanes.Config{Idle: idle}, proxy.Config{}, func(a *appConn) {
				if line, _ := a.head(); line == "" {
					return
				}
				close(asked)
				if opened(t, gate) {
					a.say(switched)
					a.end()
				}
			})
			c := say(t, s.addr, handshake)
			take(t, "the app is asked", asked)
			ctx, cancel := context.WithTimeout(context.Background(), patience/2)
			defer cancel()
			down := beginShutdown(t, s.server, s.addr, ctx)
			close(gate)
			c.wantHead(t, 101)
			if err := take(t, "the drain ends", down); err != nil {
				t.Errorf("the drain had to cut the tunnel: %v", err)
			}
		})
	}
}
