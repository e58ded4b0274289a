package fanout

import (
	"context"
	"errors"
	"sync"
	"time"

	"holdfast/bench/crowd"
	"holdfast/bench/holders"
)

// publishers are the connections over which channels and rates are published to.
const publishers = 4

// micros is CPU time by a number of things, in microseconds.
func micros(used time.Duration, by int) float64 {
	return float64(used.Nanoseconds()) / 1000 / float64(by)
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// cost is the server's CPU time while f runs.
func (s *session) cost(f func() error) (time.Duration, error) {
	before, err := s.server.CPU()
	if err != nil {
		return 0, err
	}
	if err := f(); err != nil {
		return 0, err
	}
	after, err := s.server.CPU()
	return after - before, err
}

// enough says whether a loop whose turns take a server long has gone on for long
// enough: what is counted is by turn.
func enough(n int, began time.Time) bool { return n >= 50 && time.Since(began) > longLoop }

const longLoop = 5 * time.Second

// publishingAlone is what an event costs that reaches nobody.
func (s *session) publishingAlone(ctx context.Context) (float64, error) {
	events, n, began := s.bench.Scaled(5000, 20), 0, time.Now()
	used, err := s.cost(func() error {
		for ; n < events && !enough(n, began); n++ {
			if err := s.server.Publish(ctx, nobody, crowd.Stamp(eventBytes)); err != nil {
				return err
			}
		}
		return nil
	})
	return micros(used, n), err
}

// playFanout publishes the next event when the last one has reached everybody.
func playFanout(ctx context.Context, s *session) (map[string]float64, error) {
	publish, err := s.publishingAlone(ctx)
	if err != nil {
		return nil, err
	}
	seen, lost, used, err := s.oneAtATime(ctx, "all", everybody, s.bench.Scaled(200, 3), s.of.Holds)
	if err != nil {
		return nil, err
	}
	return map[string]float64{
		"cpu_us_delivery": micros(used, seen.Deliveries), "cpu_us_event": float64(s.of.Holds) * micros(used, seen.Deliveries), "publish_us": publish,
		"p50_ms": millis(seen.P50), "p99_ms": millis(seen.P99), "lost_percent": lost,
	}, nil
}

// oneAtATime publishes events to one channel, each when the last one has reached
// all who are there; fewer of them where that takes long.
func (s *session) oneAtATime(ctx context.Context, group string, channel, events, holds int) (seen crowd.Seen, lost float64, used time.Duration, err error) {
	if err := s.clients.Arm(group); err != nil {
		return seen, 0, 0, err
	}
	published := 0
	used, err = s.cost(func() error {
		began := time.Now()
		for n := 0; n < events && !enough(n, began); n++ {
			if err := s.server.Publish(ctx, channel, crowd.Stamp(eventBytes)); err != nil {
				return err
			}
			if seen, err = s.come(group, seen, holds); err != nil {
				return err
			}
			published += holds
		}
		return nil
	})
	return seen, lostPercent(published, seen.Deliveries), used, err
}

// playSingle is an event to one client, among many others.
func playSingle(ctx context.Context, s *session) (map[string]float64, error) {
	publish, err := s.publishingAlone(ctx)
	if err != nil {
		return nil, err
	}
	seen, _, used, err := s.oneAtATime(ctx, "one", alone, s.bench.Scaled(5000, 20), 1)
	if err != nil {
		return nil, err
	}
	return map[string]float64{
		"cpu_us_event": micros(used, seen.Deliveries), "publish_us": publish,
		"p50_ms": millis(seen.P50), "p99_ms": millis(seen.P99),
	}, nil
}

// playBeside publishes to everybody, and a moment later, another one each time,
// to one client that is at a channel of its own.
func playBeside(ctx context.Context, s *session) (map[string]float64, error) {
	events := s.bench.Scaled(100, 5)
	quiet, _, _, err := s.oneAtATime(ctx, "one", alone, events, 1)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(s.clients.Arm("one"), s.clients.Arm("all")); err != nil {
		return nil, err
	}
	var one, all crowd.Seen
	for n := range events {
		published := make(chan error, 1)
		go func() { published <- s.server.Publish(ctx, everybody, crowd.Stamp(eventBytes)) }()
		time.Sleep(time.Duration(n%10) * 2 * time.Millisecond)
		err := s.server.Publish(ctx, alone, crowd.Stamp(eventBytes))
		if err := errors.Join(err, <-published); err != nil {
			return nil, err
		}
		if one, err = s.come("one", one, 1); err != nil {
			return nil, err
		}
		if all, err = s.come("all", all, s.of.Holds); err != nil {
			return nil, err
		}
	}
	published := events * (1 + s.of.Holds)
	return map[string]float64{
		"alone_p50_ms": millis(quiet.P50), "p50_ms": millis(one.P50), "p99_ms": millis(one.P99), "all_p99_ms": millis(all.P99),
		"lost_percent": lostPercent(published, one.Deliveries+all.Deliveries),
	}, nil
}

// come waits until so many more deliveries have come to a group than were seen.
func (s *session) come(group string, before crowd.Seen, more int) (crowd.Seen, error) {
	within := comeWithin
	if s.server.Name == holders.Pushpin {
		within = comeRateWithin
	}
	seen, err := s.clients.Wait(group, before.Deliveries+more, within)
	return seen, s.losses(seen, err)
}

// lostPercent is how many of what was published did not come.
func lostPercent(published, came int) float64 {
	return 100 * float64(published-came) / float64(published)
}

// playChannels publishes to every channel in turn, several at once.
func playChannels(ctx context.Context, s *session) (map[string]float64, error) {
	publish, err := s.publishingAlone(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.clients.Arm("all"); err != nil {
		return nil, err
	}
	passes := s.bench.Scaled(5, 2)
	var seen crowd.Seen
	used, err := s.cost(func() error {
		for n := range passes {
			err := inTurns(s.of.Channels, func(channel int) error {
				return s.server.Publish(ctx, channel, crowd.Stamp(eventBytes))
			})
			if err != nil {
				return err
			}
			if seen, err = s.clients.Wait("all", (n+1)*s.of.Holds, comeWithin); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return map[string]float64{
		"cpu_us_delivery": micros(used, seen.Deliveries), "cpu_us_event": micros(used, passes*s.of.Channels), "publish_us": publish,
		"p50_ms": millis(seen.P50), "p99_ms": millis(seen.P99),
	}, nil
}

// playRate publishes at a rate, whether or not the last event has arrived. Who
// cannot keep up is seen in the events that it took a second.
func playRate(ctx context.Context, s *session) (map[string]float64, error) {
	const pace = time.Millisecond
	events := s.bench.Scaled(int(s.bench.Length(5*time.Second)/pace), 200)
	if err := s.clients.Arm("all"); err != nil {
		return nil, err
	}
	var seen crowd.Seen
	var took time.Duration
	used, err := s.cost(func() error {
		began := time.Now()
		err := inTurns(events, func(n int) error {
			time.Sleep(time.Until(began.Add(time.Duration(n) * pace)))
			return s.server.Publish(ctx, everybody, crowd.Stamp(eventBytes))
		})
		took = time.Since(began)
		if err != nil {
			return err
		}
		seen, err = s.clients.Wait("all", events*s.of.Holds, comeRateWithin)
		return s.losses(seen, err)
	})
	if err != nil {
		return nil, err
	}
	return map[string]float64{
		"cpu_us_delivery": micros(used, seen.Deliveries), "events_per_s": float64(events) / took.Seconds(),
		"lost_percent": lostPercent(events*s.of.Holds, seen.Deliveries), "p50_ms": millis(seen.P50), "p99_ms": millis(seen.P99),
	}, nil
}

const comeRateWithin = 5 * time.Second

// losses is err unless all that it says is that Pushpin lost events: when they come
// fast it does, and a column says how many. From any other server a loss is an error.
func (s *session) losses(seen crowd.Seen, err error) error {
	if s.server.Name == holders.Pushpin && seen.Closed == 0 && seen.Deliveries > 0 {
		return nil
	}
	return err
}

// inTurns calls each for the numbers from 0 on; publishers of them run at once,
// and a publisher takes its numbers in order. At the first error it stops.
func inTurns(n int, each func(int) error) error {
	var running sync.WaitGroup
	failed := make(chan error, publishers)
	for first := range publishers {
		running.Go(func() {
			for number := first; number < n && len(failed) == 0; number += publishers {
				if err := each(number); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	running.Wait()
	close(failed)
	return <-failed
}
