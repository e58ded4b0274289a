package holds

import (
	"fmt"
	"testing"
)

// A view that ran while its user's holds were ended has let in whoever it let
// in by what is not true any more.
func TestEnd_WhoWasLetInByAViewThatRanMeanwhileIsEndedAsItJoins(t *testing.T) {
	s := startStation(t, Config{})
	asked := s.Position()
	if n := s.End(EndRequest{Channel: "user", Code: 4003, Reason: "left the team"}); n != 0 {
		t.Fatalf("%d were ended where nobody is", n)
	}
	late := s.open(Spec{Channels: []string{"news", "user"}, Position: asked})
	late.wantPosition()
	late.wantEnd()
	socket := s.openSocket(Spec{Channels: []string{"user"}, Position: asked})
	socket.wantClose(4003, "left the team")
	others := s.open(Spec{Channels: []string{"news"}, Position: asked})
	again := s.open(Spec{Channels: []string{"user"}})
	back := s.open(Spec{Channels: []string{"user"}, Last: fmt.Sprint(asked)}) // its view was asked behind the end
	s.untilLive(3)
	s.publish("goes on", "news", "user")
	for _, c := range []*streamClient{others, again, back} {
		c.wantPosition()
		c.wantEvent("goes on")
	}
	s.untilEnded(1, EndPublished)
}

func TestEnd_AMessageThatWasSentBeforeItJoinsNothingThatWasEnded(t *testing.T) {
	s, app := startApp(t, Config{})
	c := s.openSocket(Spec{Channels: []string{"lobby"}})
	c.send(clientSends{}.text("let me in"))
	call := app.wantMessage("let me in")
	s.End(EndRequest{Channel: "user", Code: 4003})
	call.ok("M0-Subscribe: user")
	c.wantClose(4003, "published")
}
