package holders

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"holdfast/bench/crowd"
)

// gripItem is an event in the one form that its clients need.
func gripItem(channel int, data string, socket bool) string {
	formats := map[string]any{"http-stream": map[string]string{"content": "data: " + data + "\n\n"}}
	if socket {
		formats = map[string]any{"ws-message": map[string]string{"content": data}}
	}
	body, err := json.Marshal(map[string]any{"items": []any{map[string]any{"channel": fmt.Sprint(channel), "formats": formats}}})
	if err != nil {
		panic(err) // strings always can be
	}
	return string(body)
}

// Publish publishes one event over a kept connection and returns when the server
// has answered. It may be called by several goroutines, each of which then has a
// connection of its own.
func (s *Server) Publish(ctx context.Context, channel int, data string) error {
	url, body := s.publish(channel, data)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	response, err := s.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("publishing was answered %s: %.200s", response.Status, text)
	}
	if s.Name == Barewrites && !strings.Contains(string(text), `"lost":0}`) {
		return fmt.Errorf("barewrites lost events: %s", text)
	}
	return nil
}

// Joined publishes an event to each of some channels until all of a group's
// clients, deliveries of them, have read one: Pushpin answers a socket before it
// has subscribed it.
func (s *Server) Joined(ctx context.Context, clients *crowd.Crowd, group string, deliveries, first, channels int) (err error) {
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
		if err := clients.Arm(group); err != nil {
			return err
		}
		for channel := first; channel < first+channels; channel++ {
			if err := s.Publish(ctx, channel, crowd.Stamp(64)); err != nil {
				return err
			}
		}
		if _, err = clients.Wait(group, deliveries, 3*time.Second); err == nil {
			return clients.Arm(group)
		}
	}
	return fmt.Errorf("not everybody read an event within 30 s: %w", err)
}
