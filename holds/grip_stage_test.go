package holds

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// The app of a stage: what it is asked waits here until the test answers.
type stageApp struct{ asked chan *stageCall }

type stageCall struct {
	*Request
	answered chan struct {
		Answer
		error
	}
}

func newStageApp() *stageApp { return &stageApp{make(chan *stageCall, 100)} }

func (a *stageApp) forward(ctx context.Context, r *Request) (Answer, error) {
	c := &stageCall{Request: r, answered: make(chan struct {
		Answer
		error
	}, 1)}
	a.asked <- c
	select {
	case got := <-c.answered:
		return got.Answer, got.error
	case <-ctx.Done():
		return Answer{}, ErrStopping
	}
}

// gripStage is a stage with an app.
func gripStage(t *testing.T, cfg Config) (*stage, *stageApp) {
	app := newStageApp()
	cfg.Forward = app.forward
	s := newStage(cfg)
	var cancel context.CancelFunc
	s.loop.home.ctx, cancel = context.WithCancel(context.Background())
	t.Cleanup(cancel)
	return s, app
}

// wantAsked takes what the app is asked, in a goroutine of its own, until
// deadline in real time.
func (s *stage) wantAsked(t *testing.T, app *stageApp) *stageCall {
	t.Helper()
	select {
	case c := <-app.asked:
		return c
	case <-time.After(deadline):
		t.Fatal("the app is not asked")
		return nil
	}
}

// reply answers, and has the loop go on when it has come.
func (s *stage) reply(t *testing.T, c *stageCall, a Answer) {
	t.Helper()
	if a.Status == 0 {
		a.Status = 200
	}
	if a.Position == 0 {
		a.Position = s.hub.head.Load()
	}
	c.answered <- struct {
		Answer
		error
	}{a, nil}
	links := &s.loop.home.links
	for end, told := time.Now().Add(deadline), false; !told; time.Sleep(time.Millisecond) {
		links.mu.Lock()
		told = links.asked[c.Target+"\r\n"+string(c.Fields)] == nil
		links.mu.Unlock()
		if time.Now().After(end) {
			t.Fatal("the answer does not come to the loop")
		}
	}
	s.rest()
}

func id(s string) *string { return &s }

// on names a channel of which a hold has the items up to prev; "": nothing is
// said of that.
func on(name, prev string, filters ...string) GripChannel {
	c := GripChannel{Name: name, Filters: filters}
	if prev != "" {
		c.PrevID = &prev
	}
	return c
}

// openGrip has a GRIP stream join, of which nothing is known but its channels.
func (s *stage) openGrip(in *Grip, body string) (*hold, *pipe) {
	return s.openGripSpec(in, Spec{Body: []byte(body), Target: "/events/?channel=a", Host: "app.example", Fields: []byte("Host: app.example\r\n"), Events: true})
}

func (s *stage) openGripSpec(in *Grip, spec Spec) (*hold, *pipe) {
	h, p := &hold{kind: ModeStream, descriptor: -1}, &pipe{room: -1}
	h.more = &beyond{grip: newGrip(in, &spec)}
	s.loop.sockets.(*pipes).of[h] = p
	names := make([]string, len(in.Channels))
	for i := range in.Channels {
		names[i] = in.Channels[i].Name
	}
	if spec.Position == 0 {
		spec.Position = s.hub.head.Load()
	}
	s.hub.join(h, s.loop, names, &opening{head: []byte("HEAD\n"), body: spec.Body, paging: spec.Paging, trust: spec.Asked, from: spec.Position, last: spec.Position})
	s.rest()
	return h, p
}

// publishItem publishes an item for streams; an id or prev-id "" is none.
func (s *stage) publishItem(channel, id, prev, content string) {
	i := &Item{Channel: channel, Stream: &StreamForm{Content: []byte(content)}}
	if id != "" {
		i.ID = &id
	}
	if prev != "" {
		i.PrevID = &prev
	}
	s.hub.publishItem(encodeItem(i))
	s.rest()
}

// want requires what a client was sent since the last time, and takes it.
func (p *pipe) want(t *testing.T, want string) {
	t.Helper()
	if got := string(p.bytes); got != want {
		t.Errorf("it is sent %q, want %q", got, want)
	}
	p.bytes = nil
}

func TestGrip_AStreamGetsItsBytesAndThenItemsAsTheyWerePublished(t *testing.T) {
	s, _ := gripStage(t, Config{})
	_, p := s.openGrip(&Grip{Channels: []GripChannel{on("a", ""), on("b", "")}}, "first\r\r")
	p.want(t, "HEAD\nfirst\r\r")
	s.publishItem("a", "", "", "data: one\n\n")
	s.publish("a native event", "a")
	s.publishItem("b", "", "", "\x00 any bytes")
	s.publishItem("c", "", "", "of another channel")
	s.publishItem("a", "", "", "")
	p.want(t, "data: one\n\n\x00 any bytes")
}

func TestGrip_AnItemWithoutBytesDoesNotEndAStreamInChunks(t *testing.T) {
	s, _ := gripStage(t, Config{})
	h, p := s.openGrip(&Grip{Channels: []GripChannel{on("a", "")}}, "")
	h.chunked = true
	p.want(t, "HEAD\n")
	s.publishItem("a", "", "", "")
	s.publishItem("a", "", "", "x")
	p.want(t, "1\r\nx\r\n")
}

func TestGrip_AnEmptyBodyDoesNotEndAStreamInChunks(t *testing.T) {
	s, _ := gripStage(t, Config{})
	h, p := &hold{kind: ModeStream, chunked: true, descriptor: -1, more: &beyond{grip: newGrip(&Grip{}, &Spec{})}}, &pipe{room: -1}
	s.loop.sockets.(*pipes).of[h] = p
	s.hub.join(h, s.loop, nil, &opening{head: []byte("HEAD\n"), from: s.hub.head.Load()})
	s.rest()
	p.want(t, "HEAD\n")
	if h.state != live {
		t.Errorf("a hold without a channel is in state %d", h.state)
	}
}

func TestGrip_ItemsOfStreamsReachNoM0HoldAndItsPositionGoesOn(t *testing.T) {
	s, _ := gripStage(t, Config{})
	_, p := s.open(-1, "a")
	s.rest()
	p.bytes = nil
	s.publishItem("a", "1", "", "for GRIP")
	n := s.publish("native", "a")
	s.rest()
	p.want(t, fmt.Sprintf("id: %d\ndata: native\n\n", n))
	// Nor in a replay.
	_, back := s.openFrom(-1, &opening{from: s.hub.start, last: s.hub.start}, "a")
	s.rest()
	if got := string(back.bytes); strings.Contains(got, "GRIP") || !strings.HasSuffix(got, fmt.Sprintf("id: %d\ndata: native\n\n", n)) {
		t.Errorf("the replay is %q", got)
	}
}

// What is published between the app's answer and the join is what follows its
// prev-id, whatever has been published before.
func TestGrip_NothingIsMissedOrDoubledBetweenTheAnswerAndTheHold(t *testing.T) {
	s, _ := gripStage(t, Config{})
	position := s.hub.head.Load()
	for n := 1; n <= 9; n++ {
		s.publishItem("a", fmt.Sprint(n), fmt.Sprint(n-1), fmt.Sprint(n, " "))
	}
	for prev, want := range map[string]string{"0": "1 2 3 4 5 6 7 8 9 ", "4": "5 6 7 8 9 ", "9": ""} {
		for _, at := range []int64{position, s.hub.head.Load()} {
			h, p := s.openGripSpec(&Grip{Channels: []GripChannel{on("a", prev)}}, Spec{Position: at})
			if p.want(t, "HEAD\n"+want); h.state != live {
				t.Errorf("from %s it is in state %d", prev, h.state)
			}
		}
	}
	// The app has an item that has not come yet.
	h, p := s.openGripSpec(&Grip{Channels: []GripChannel{on("a", "10")}, Next: &Link{URI: "?next"}}, Spec{Target: "/", Host: "h"})
	p.want(t, "HEAD\n")
	s.publishItem("a", "10", "9", "10 ")
	s.pass(time.Second, 10*time.Millisecond)
	s.publishItem("a", "11", "10", "11 ")
	if p.want(t, "11 "); h.state != live {
		t.Errorf("it is in state %d", h.state)
	}
}

func TestGrip_ItemsThatOvertookOthersArePutInOrder(t *testing.T) {
	s, _ := gripStage(t, Config{})
	_, p := s.openGrip(&Grip{Channels: []GripChannel{on("a", "0")}}, "")
	p.want(t, "HEAD\n")
	for _, n := range []int{1, 4, 3, 5, 2, 6} {
		s.publishItem("a", fmt.Sprint(n), fmt.Sprint(n-1), fmt.Sprint(n, " "))
	}
	p.want(t, "1 2 3 4 5 6 ")
}

func TestGrip_AnItemIsTakenOnceInAMinuteButForOneThatEnds(t *testing.T) {
	s, _ := gripStage(t, Config{})
	_, p := s.openGrip(&Grip{Channels: []GripChannel{on("a", "")}}, "")
	p.bytes = nil
	s.publishItem("a", "x", "", "once ")
	s.publishItem("a", "x", "", "twice ")
	s.publishItem("b", "x", "", "elsewhere")
	s.clock.at = s.clock.at.Add(61 * time.Second)
	s.publishItem("a", "x", "", "a minute later ")
	p.want(t, "once a minute later ")
	for range 2 {
		h, _ := s.openGrip(&Grip{Channels: []GripChannel{on("user", "")}}, "")
		s.hub.publishItem(encodeItem(&Item{Channel: "user", ID: id("kick-1"), Stream: &StreamForm{Action: ActionClose}}))
		s.rest()
		if h.state != closed {
			t.Errorf("it is not ended: state %d", h.state)
		}
	}
}

func TestGrip_AnItemWhoseForerunnerDoesNotComeIsGivenAfterFiveSecondsToWhoCountsNothing(t *testing.T) {
	s, _ := gripStage(t, Config{})
	_, p := s.openGrip(&Grip{Channels: []GripChannel{on("a", "")}}, "")
	p.bytes = nil
	s.publishItem("a", "1", "0", "1 ")
	s.publishItem("a", "3", "2", "3 ")
	s.publishItem("a", "5", "4", "5 ")
	s.pass(4900*time.Millisecond, 100*time.Millisecond)
	p.want(t, "1 ")
	s.pass(1100*time.Millisecond, 100*time.Millisecond)
	p.want(t, "3 5 ")
	if s.hub.parked != 0 || s.hub.waits.Load() {
		t.Errorf("%d bytes wait still", s.hub.parked)
	}
}

func TestGrip_SoManyItemsWaitAndNoMore(t *testing.T) {
	s, _ := gripStage(t, Config{})
	_, p := s.openGrip(&Grip{Channels: []GripChannel{on("a", "")}}, "")
	p.bytes = nil
	s.publishItem("a", "first", "", "1 ")
	for n := range parkedItems + 1 {
		s.publishItem("a", fmt.Sprint("early ", n), fmt.Sprint("none ", n), ".")
	}
	p.want(t, "1 .")
	if n := len(s.hub.journal.rooms["a"].items.parked); n != parkedItems {
		t.Errorf("%d wait, want %d", n, parkedItems)
	}
}
