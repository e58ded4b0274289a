package holds

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// gripPollHead is the head of an instruction's answer, as far as its view has a
// say in it.
const gripPollHead = "HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nset-cookie: a=1\r\nSet-Cookie: b=2\r\nX-View: y\r\n"

// pollGripOn makes a long poll of the server's end of a connection. Kind, Head
// and Channels are given, and what is said of the rest in pollSpec.
func (s *station) pollGripOn(server net.Conn, in *Grip, spec Spec) {
	s.t.Helper()
	spec = s.pollSpec(spec)
	spec.Head, spec.Grip, spec.Target, spec.Host = []byte(gripPollHead), in, "/poll", "app.example"
	spec.Channels = nil
	for _, c := range in.Channels {
		spec.Channels = append(spec.Channels, c.Name)
	}
	if err := s.Open(server, spec); err != nil {
		server.Close()
		s.t.Fatal(err)
	}
}

// openGripPoll has a long poll join on a stage, until deadline.
func (s *stage) openGripPoll(in *Grip, timeout time.Duration) (*hold, *pipe) {
	h, p := &hold{kind: ModeResponse, descriptor: -1}, &pipe{room: -1}
	h.poll = &poll{head: []byte("HTTP/1.1 200 OK\r\n"), body: []byte("own"), bare: true, keep: true, deadline: s.clock.at.Add(timeout)}
	h.more = &beyond{grip: newGrip(in, &Spec{Target: "/poll", Host: "app.example"})}
	s.loop.sockets.(*pipes).of[h] = p
	s.loop.counts.held.Add(1)
	var names []string
	for _, c := range in.Channels {
		names = append(names, c.Name)
	}
	s.hub.join(h, s.loop, names, &opening{from: s.hub.head.Load(), last: s.hub.head.Load()})
	s.rest()
	return h, p
}

const ownAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nown"

func itemAnswer(body string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// answerItem publishes an item for long polls; an id or prev-id "" is none.
func (s *stage) answerItem(channel, id, prev, body string) {
	i := &Item{Channel: channel, Answer: &AnswerForm{Status: 200, Body: []byte(body)}}
	if id != "" {
		i.ID = &id
	}
	if prev != "" {
		i.PrevID = &prev
	}
	s.hub.publishItem(encodeItem(i))
	s.rest()
}

// The item's status, reason and body are the answer's; its fields stand in
// place of all of the instruction's of the same names, whatever their case.
func TestGripPoll_AnItemIsTheAnswerWithTheInstructionsOtherFields(t *testing.T) {
	s, back := startReturning(t, Config{})
	for what, c := range map[string]struct {
		form AnswerForm
		want string // the head, but for the framing
	}{
		"nothing but a body": {AnswerForm{Status: 200}, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nset-cookie: a=1\r\nSet-Cookie: b=2\r\nX-View: y\r\n"},
		"fields of the same names": {AnswerForm{Status: 201, Fields: [][2]string{{"SET-COOKIE", "c=3"}, {"x-new", ""}, {"Set-Cookie", "d=4"}}},
			"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nX-View: y\r\nSET-COOKIE: c=3\r\nx-new: \r\nSet-Cookie: d=4\r\n"},
		"a reason": {AnswerForm{Status: 500, Reason: "Not Today", Fields: [][2]string{{"content-type", "text/plain"}, {"X-VIEW", "z"}}},
			"HTTP/1.1 500 Not Today\r\nset-cookie: a=1\r\nSet-Cookie: b=2\r\ncontent-type: text/plain\r\nX-VIEW: z\r\n"},
		"a status without a reason": {AnswerForm{Status: 299, Fields: [][2]string{{"Content-Type", "x"}, {"Set-Cookie", "x"}, {"X-View", "x"}}},
			"HTTP/1.1 299 \r\nContent-Type: x\r\nSet-Cookie: x\r\nX-View: x\r\n"},
	} {
		for _, how := range []struct {
			keep, old  bool
			connection string
		}{{true, false, ""}, {false, false, "\r\nConnection: close"}, {true, true, "\r\nConnection: keep-alive"}, {false, true, "\r\nConnection: close"}} {
			for _, body := range []string{"", "hello", "\x00\r\n\xff"} {
				client, server := s.pair(false)
				s.pollGripOn(server, &Grip{Channels: []GripChannel{on("room", "")}}, Spec{KeepAlive: how.keep, HTTP10: how.old, Body: []byte("own"), BodyFields: []byte("ETag: \"x\"\r\n")})
				form := c.form
				form.Body = []byte(body)
				if reached := s.PublishItems([]Item{{Channel: "room", Answer: &form}}); reached != 1 {
					t.Errorf("%s: it reached %d", what, reached)
				}
				want := c.want + fmt.Sprintf("Content-Length: %d%s\r\n\r\n%s", len(body), how.connection, body)
				got := make([]byte, len(want))
				if n, err := io.ReadFull(client, got); err != nil || string(got) != want {
					t.Fatalf("%s: it is answered %q, %v; want %q", what, got[:n], err, want)
				}
				if how.keep {
					(<-back).conn.Close()
				}
				if rest, err := io.ReadAll(client); len(rest) > 0 || err != nil {
					t.Errorf("%s: behind the answer comes %q, %v", what, rest, err)
				}
			}
		}
	}
}

// An answer of these statuses ends with its head, which says no length (RFC
// 9110 §8.6): bytes of a body would be taken for the next answer.
func TestGripPoll_AStatusWithoutABodyHasNoLengthEither(t *testing.T) {
	for _, status := range []int{204, 304} {
		s, _ := gripStage(t, Config{})
		_, p := s.openGripPoll(&Grip{Channels: []GripChannel{on("a", "")}}, time.Minute)
		s.hub.publishItem(encodeItem(&Item{Channel: "a", Answer: &AnswerForm{Status: status, Reason: "X", Fields: [][2]string{{"X-A", "b"}}}}))
		s.rest()
		p.want(t, fmt.Sprintf("HTTP/1.1 %d X\r\nX-A: b\r\n\r\n", status))
		h, p := s.openGripPoll(&Grip{Channels: []GripChannel{on("a", "")}}, time.Minute)
		h.poll.head = fmt.Appendf(nil, "HTTP/1.1 %d X\r\n", status)
		s.pass(time.Minute, time.Second)
		p.want(t, fmt.Sprintf("HTTP/1.1 %d X\r\n\r\n", status))
	}
}

// Its own answer has nothing of ours in it.
func TestGripPoll_WithoutAnItemInTimeItGetsItsOwnAnswer(t *testing.T) {
	eachConnection(t, func(t *testing.T, linked bool) {
		s, back := startReturning(t, Config{})
		client, server := s.pair(linked)
		s.pollGripOn(server, &Grip{Channels: []GripChannel{on("room", "5"), on("other", "")}}, Spec{KeepAlive: true, Body: []byte("own"), BodyFields: []byte("ETag: \"x\"\r\n"), Timeout: 50 * time.Millisecond})
		want := gripPollHead + "ETag: \"x\"\r\nContent-Length: 3\r\n\r\nown"
		got := make([]byte, len(want))
		if n, err := io.ReadFull(client, got); err != nil || string(got) != want {
			t.Fatalf("it is answered %q, %v; want %q", got[:n], err, want)
		}
		(<-back).conn.Close()
		if n := s.ended(ModeResponse, EndExpired); n != 1 {
			t.Errorf("%d ended expired", n)
		}
	})
}

func TestGripPoll_ItsTimeIsKeptToTheTick(t *testing.T) {
	s, _ := gripStage(t, Config{})
	_, p := s.openGripPoll(&Grip{Channels: []GripChannel{on("a", "")}}, 55*time.Second)
	s.pass(55*time.Second-10*time.Millisecond, 10*time.Millisecond)
	p.want(t, "")
	s.pass(10*time.Millisecond, 10*time.Millisecond)
	p.want(t, ownAnswer)
	if s.loop.counts.held.Load() != 0 {
		t.Error("it is held still")
	}
}

// The connection is one of HTTP again, with what its client has sent meanwhile.
func TestGripPoll_TheConnectionGoesBackWithWhatItsClientHasSent(t *testing.T) {
	eachConnection(t, func(t *testing.T, linked bool) {
		s, back := startReturning(t, Config{})
		client, server := s.pair(linked)
		s.pollGripOn(server, &Grip{Channels: []GripChannel{on("room", "")}}, Spec{KeepAlive: true, Early: []byte("GET /1 ")})
		io.WriteString(client, "HTTP/1.1\r\n\r\n")
		s.PublishItems([]Item{{Channel: "room", Answer: &AnswerForm{Status: 200, Body: []byte("one")}}})
		want := strings.Replace(gripPollHead, "404 Not Found", "200 OK", 1) + "Content-Length: 3\r\n\r\none"
		got := make([]byte, len(want))
		if n, err := io.ReadFull(client, got); err != nil || string(got) != want {
			t.Fatalf("it is answered %q, %v", got[:n], err)
		}
		r := <-back
		defer r.conn.Close()
		early := string(r.early)
		r.conn.SetReadDeadline(time.Now().Add(deadline))
		for rest := make([]byte, 64); early != "GET /1 HTTP/1.1\r\n\r\n"; { // what was not read yet is in the connection
			n, err := r.conn.Read(rest)
			if early += string(rest[:n]); err != nil || !strings.HasPrefix("GET /1 HTTP/1.1\r\n\r\n", early) {
				t.Fatalf("behind its request the client has sent %q, %v", early, err)
			}
		}
		s.PublishItems([]Item{{Channel: "room", Answer: &AnswerForm{Status: 200, Body: []byte("two")}}})
		if n := s.Snapshot(); n.Polls != 0 || s.counts.held.Load() != 0 || s.ended(ModeResponse, EndPublished) != 1 {
			t.Errorf("%d polls, held %d", n.Polls, s.counts.held.Load())
		}
	})
}

// Of all that is published the first item for long polls is the answer.
func TestGripPoll_OnlyItemsForLongPollsAnswerIt(t *testing.T) {
	s, _ := gripStage(t, Config{})
	_, p := s.openGripPoll(&Grip{Channels: []GripChannel{on("a", ""), on("b", "")}}, time.Hour)
	m0 := &hold{kind: ModeResponse, descriptor: -1, poll: &poll{head: []byte("HTTP/1.1 200 OK\r\n"), body: []byte("own"), keep: true, deadline: s.clock.at.Add(time.Hour)}}
	q := &pipe{room: -1}
	s.loop.sockets.(*pipes).of[m0] = q
	s.hub.join(m0, s.loop, []string{"a"}, &opening{from: s.hub.head.Load(), last: s.hub.head.Load()})
	s.rest()
	s.publishItem("a", "", "", "for streams")
	s.message("a", "for sockets")
	s.hub.publishItem(encodeItem(&Item{Channel: "a", Answer: &AnswerForm{Action: ActionClose}, Stream: &StreamForm{Action: ActionClose}, Socket: &SocketForm{Action: ActionClose}}))
	s.hub.publishItem(encodeItem(&Item{Channel: "a", Stream: &StreamForm{Action: ActionHint}}))
	s.answerItem("c", "", "", "of another channel")
	p.want(t, "")
	s.answerItem("b", "", "", "first")
	s.answerItem("a", "", "", "second")
	p.want(t, itemAnswer("first"))
	q.want(t, "")
	native := s.publish("native", "a", "b")
	s.rest()
	p.want(t, "")
	q.want(t, fmt.Sprintf("HTTP/1.1 200 OK\r\nM0-Event-Id: %d\r\nContent-Length: 6\r\n\r\nnative", native))
	h, p := s.openGripPoll(&Grip{Channels: []GripChannel{on("a", "")}}, time.Hour)
	s.publish("native", "a")
	s.rest()
	if p.want(t, ""); h.state != live {
		t.Errorf("a native event has it in state %d", h.state)
	}
}

// Its client asks the app anew, as it does after each answer; not all at once.
func TestGripPoll_AHintIsItsOwnAnswerSoon(t *testing.T) {
	s, app := gripStage(t, Config{})
	var pipes []*pipe
	for range 20 {
		_, p := s.openGripPoll(&Grip{Channels: []GripChannel{on("a", "")}, Next: &Link{URI: "/next"}}, time.Hour)
		pipes = append(pipes, p)
	}
	s.hub.publishItem(encodeItem(&Item{Channel: "a", Answer: &AnswerForm{Action: ActionHint}}))
	s.rest()
	s.wantSoon(t, pipes)
	s.wantUnasked(t, app)
}

// wantSoon requires that all get their own answers within missPause and
// missSpan behind that, and not all in the same moment.
func (s *stage) wantSoon(t *testing.T, pipes []*pipe) {
	t.Helper()
	s.pass(missPause-10*time.Millisecond, 10*time.Millisecond)
	for _, p := range pipes {
		p.want(t, "")
	}
	moments := 0
	for passed := missPause; passed <= missPause+missSpan+10*time.Millisecond; passed += 10 * time.Millisecond {
		before := len(pipes)
		s.pass(10*time.Millisecond, 10*time.Millisecond)
		for i := len(pipes) - 1; i >= 0; i-- {
			if len(pipes[i].bytes) > 0 {
				pipes[i].want(t, ownAnswer)
				pipes = append(pipes[:i], pipes[i+1:]...)
			}
		}
		if len(pipes) < before {
			moments++
		}
	}
	if len(pipes) > 0 || moments < 3 {
		t.Errorf("%d are not answered; the others were in %d moments", len(pipes), moments)
	}
}

// What the instruction has is followed by the item that the journal has, at
// once; where that is not there, its client asks the app.
func TestGripPoll_WhatFollowsItsPrevIDIsTheAnswerAndAGapIsItsOwn(t *testing.T) {
	s, app := gripStage(t, Config{})
	for n := 1; n <= 4; n++ {
		s.answerItem("a", fmt.Sprint(n), fmt.Sprint(n-1), fmt.Sprint("item ", n))
	}
	poll := func(prev string) *pipe {
		_, p := s.openGripPoll(&Grip{Channels: []GripChannel{on("a", prev)}}, time.Hour)
		return p
	}
	poll("1").want(t, itemAnswer("item 2"))
	poll("0").want(t, itemAnswer("item 1"))
	p, q := poll("4"), poll("")
	s.answerItem("a", "", "", "says nothing of its place") // a gap to who counts
	p.want(t, "")
	q.want(t, itemAnswer("says nothing of its place"))
	s.pass(time.Second, 10*time.Millisecond)
	p.want(t, ownAnswer)
	p = poll("8") // of a channel whose last id is not known any more
	s.pass(time.Second, 10*time.Millisecond)
	p.want(t, ownAnswer)
	s.answerItem("a", "8", "7", "item 8")
	var gaps []*pipe
	for range 20 {
		gaps = append(gaps, poll("2000")) // which the journal has no item behind
	}
	s.wantSoon(t, gaps)
	p = poll("8")
	s.answerItem("a", "10", "9", "item 10") // 9 may come yet
	p.want(t, "")
	s.answerItem("a", "9", "8", "item 9")
	p.want(t, itemAnswer("item 9"))
	if s.wantUnasked(t, app); s.loop.counts.held.Load() != 0 {
		t.Errorf("%d are held", s.loop.counts.held.Load())
	}
}

// What is for streams alone is an item of the channel all the same: what
// follows it follows.
func TestGripPoll_AnItemForOthersIsCountedInItsOrder(t *testing.T) {
	s, _ := gripStage(t, Config{})
	_, p := s.openGripPoll(&Grip{Channels: []GripChannel{on("a", "5")}}, time.Hour)
	h, q := s.openGrip(linked("5"), "")
	q.want(t, "HEAD\n")
	s.publishItem("a", "6", "5", "6 ")
	s.hub.publishItem(encodeItem(&Item{Channel: "a", ID: id("7"), PrevID: id("6"), Stream: &StreamForm{Content: []byte("7 ")}, Answer: &AnswerForm{Action: ActionClose}}))
	s.rest()
	p.want(t, "")
	q.want(t, "6 7 ")
	s.answerItem("a", "8", "7", "8")
	p.want(t, itemAnswer("8"))
	s.publishItem("a", "9", "8", "9 ")
	if q.want(t, "9 "); h.state != live {
		t.Errorf("the stream is in state %d", h.state)
	}
}

// An item may send to one kind of holds and do something else with another.
func TestGripPoll_EachKindHasItsOwnActionAndTheSameOrder(t *testing.T) {
	s, app := gripStage(t, Config{})
	_, p := s.openGripPoll(&Grip{Channels: []GripChannel{on("a", "5")}}, time.Hour)
	h, q := s.openGrip(linked("5"), "")
	q.want(t, "HEAD\n")
	s.hub.publishItem(encodeItem(&Item{Channel: "a", ID: id("6"), PrevID: id("5"), Stream: &StreamForm{Content: []byte("6 ")}, Answer: &AnswerForm{Action: ActionHint}}))
	s.rest()
	s.publishItem("a", "7", "6", "7 ")
	if q.want(t, "6 7 "); h.state != live {
		t.Errorf("the stream is in state %d", h.state)
	}
	s.pass(time.Second, 10*time.Millisecond)
	p.want(t, ownAnswer)
	s.wantUnasked(t, app)
	// One that ends streams and answers polls is still one that has to follow.
	_, p = s.openGripPoll(&Grip{Channels: []GripChannel{on("a", "5")}}, time.Hour)
	s.pass(time.Second, 10*time.Millisecond)
	p.want(t, ownAnswer)
	_, p = s.openGripPoll(&Grip{Channels: []GripChannel{on("a", "7")}}, time.Hour)
	s.hub.publishItem(encodeItem(&Item{Channel: "a", ID: id("9"), PrevID: id("8"), NoSeq: true, Stream: &StreamForm{Action: ActionClose}, Answer: &AnswerForm{Status: 200, Body: []byte("9, behind 8 that it has not")}}))
	s.rest()
	p.want(t, "")
	s.pass(time.Second, 10*time.Millisecond)
	p.want(t, ownAnswer)
}

func TestGripPoll_FiltersSayWhatItIsAnsweredWith(t *testing.T) {
	s, _ := gripStage(t, Config{})
	const other = "b" // whose items have an order
	send := func(body string, meta map[string]string, filters ...string) {
		s.hub.publishItem(encodeItem(&Item{Channel: "a", Meta: meta, Answer: &AnswerForm{Status: 200, Body: []byte(body), Filters: filters}}))
		s.rest()
	}
	in := func(filters ...string) *Grip {
		return &Grip{Channels: []GripChannel{on("a", "", filters...)}, Meta: map[string]string{"user": "bob"}}
	}
	_, p := s.openGripPoll(in("skip-self", "var-subst", "require-sub", "skip-users"), time.Hour)
	send("by itself", map[string]string{"sender": "bob"})
	send("not to bob", map[string]string{"skip_users": "bob"})
	send("to who is in b too", map[string]string{"require_sub": "b"})
	send("written for others", nil, "build-id")
	send("%(nobody)s", nil)
	p.want(t, "")
	send("for %(user)s", map[string]string{"sender": "alice", "require_sub": "a"}, "var-subst")
	p.want(t, itemAnswer("for bob"))
	// An item that was filtered out is one of the channel still.
	channel := in("skip-self", "build-id")
	channel.Channels[0].Name, channel.Channels[0].PrevID = other, id("1")
	channel.Meta["id_format"] = "%(" + other + ")s"
	_, p = s.openGripPoll(channel, time.Hour)
	for n := 2; n <= 3; n++ {
		s.hub.publishItem(encodeItem(&Item{Channel: other, ID: id(fmt.Sprint(n)), PrevID: id(fmt.Sprint(n - 1)), Meta: map[string]string{"sender": []string{"bob", "alice"}[n-2]},
			Answer: &AnswerForm{Status: 200, Body: []byte("id %I")}}))
		s.rest()
	}
	p.want(t, itemAnswer("id 3"))
}

// Without a channel nothing can answer it but its time.
func TestGripPoll_OneWithoutAChannelWaitsForItsTime(t *testing.T) {
	s, _ := gripStage(t, Config{})
	_, p := s.openGripPoll(&Grip{}, 5*time.Second)
	s.answerItem("a", "", "", "x")
	s.pass(4*time.Second, time.Second)
	p.want(t, "")
	s.pass(time.Second, time.Second)
	p.want(t, ownAnswer)
}
