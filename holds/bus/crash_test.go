package bus

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
)

// ledger is what became of what one publisher published.
type ledger struct {
	mu    sync.Mutex
	acked []string // in their order
	maybe map[string]bool
	never map[string]bool
	ids   map[string]int64
}

// publishSteadily publishes one body after the other until stop is called. It tries none
// again.
func publishSteadily(t *testing.T, b Bus) (l *ledger, stop func()) {
	l = &ledger{maybe: map[string]bool{}, never: map[string]bool{}, ids: map[string]int64{}}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			body := strconv.Itoa(i)
			ids, err := b.Publish(t.Context(), [][]byte{[]byte(body)})
			l.mu.Lock()
			switch {
			case err == nil:
				l.acked = append(l.acked, body)
				l.ids[body] = ids[0]
			case errors.Is(err, ErrUnknown):
				l.maybe[body] = true
			case errors.Is(err, ErrDown):
				l.never[body] = true
			default:
				t.Errorf("Publish: %v", err)
			}
			l.mu.Unlock()
			if err != nil {
				pause(ctx)
			}
		}
	})
	stop = sync.OnceFunc(func() { cancel(); all.Wait() })
	t.Cleanup(stop)
	return l, stop
}

// untilAcked waits until so many more were acknowledged.
func (l *ledger) untilAcked(t *testing.T, more int) {
	l.mu.Lock()
	want := len(l.acked) + more
	l.mu.Unlock()
	ctx := ctxOf(t)
	for {
		l.mu.Lock()
		n := len(l.acked)
		l.mu.Unlock()
		if n >= want {
			return
		}
		if pause(ctx); ctx.Err() != nil {
			t.Fatalf("%d acknowledged, want %d", n, want)
		}
	}
}

// check compares a ledger with what was followed.
func (l *ledger) check(t *testing.T, f *seen) {
	t.Helper()
	bodies, ids := f.bodies(t), f.ids()
	times := map[string]int{}
	var acked []string
	for i, body := range bodies {
		times[body]++
		switch {
		case l.never[body]:
			t.Errorf("%s was refused with ErrDown, and is followed", body)
		case l.maybe[body]:
		default:
			acked = append(acked, body)
			if id, ok := l.ids[body]; ok && id != ids[i] {
				t.Errorf("%s was given the id %d, and is followed with %d", body, id, ids[i])
			}
		}
		if times[body] > 1 {
			t.Errorf("%s is followed %d times", body, times[body])
		}
	}
	if !slices.Equal(acked, l.acked) {
		t.Errorf("%d acknowledged bodies are followed, %d were acknowledged, or in another order", len(acked), len(l.acked))
	}
	t.Logf("%d acknowledged, %d may have been added, %d were not", len(l.acked), len(l.maybe), len(l.never))
}

func TestBus_AnEngineKilledUnderSteadyPublishingLosesNothingThatItAcknowledged(t *testing.T) {
	for _, e := range []struct {
		name  string
		start func() (*server, error)
		stage func(*testing.T, *server) *stage
	}{
		{"redis", func() (*server, error) { return newRedis("--appendonly", "yes", "--appendfsync", "everysec") }, redisStageOn},
		{"postgres", newPostgres, postgresStageOn},
	} {
		t.Run(e.name, func(t *testing.T) {
			server := shared(t, e.start)
			s := e.stage(t, server)
			b, other := s.open(t, ""), s.open(t, "")
			f, _ := followNow(t, b, 0)
			g, _ := followNow(t, other, 0)
			l, stop := publishSteadily(t, b)
			for range 3 {
				l.untilAcked(t, 30)
				server.kill()
				must(t, server.start())
			}
			l.untilAcked(t, 30)
			stop()
			last := l.acked[len(l.acked)-1]
			f.untilBody(t, last)
			g.untilBody(t, last)
			l.check(t, f)
			l.check(t, g)
			if f.gaps != 1 || g.gaps != 1 { // at 0
				t.Errorf("%d and %d gaps were told, nothing was missing", f.gaps-1, g.gaps-1)
			}
			server.stop()
		})
	}
}

func TestRedis_ARestartThatLosesAllIsToldAsAnotherLog(t *testing.T) {
	server := shared(t, func() (*server, error) { return newRedis() })
	s := redisStageOn(t, server)
	b := s.open(t, "")
	f, _ := followNow(t, b, 0)
	publishNow(t, b, numbers(1, 100)...) // ahead of the clock
	f.untilBody(t, "100")
	server.kill()
	must(t, server.start())
	f.until(t, "another log", func() bool { return f.begun[len(f.begun)-1].Start != f.begun[0].Start })
	for {
		if _, err := b.Publish(ctxOf(t), byteBodies([]string{"new"})); err == nil {
			break
		}
	}
	f.untilBody(t, "new")
	f.wantBodies(t, append(numbers(1, 100), "new"))
	server.stop()
}

func TestRedis_AnOldDumpThatRunsAheadOfTheClockGivesNoNumberTwice(t *testing.T) {
	server := shared(t, func() (*server, error) { return newRedis() })
	s := redisStageOn(t, server)
	b := s.open(t, "")
	f, stop := followNow(t, b, 0)
	publishNow(t, b, numbers(1, 5000)...)
	server.mustCLI(t, "SAVE")
	ids := publishNow(t, b, numbers(5001, 5004)...)
	f.untilBody(t, "5004")
	stop()
	server.kill()
	must(t, server.start())
	again := server.mustCLI(t, "FCALL", "holdfast_publish", "1", s.name, "again")
	if id, _ := strconv.ParseInt(again, 10, 64); id < ids[3]+leap/2 {
		t.Errorf("behind the restart %s is given, and %v were given before it", again, ids)
	}
	server.mustCLI(t, "FCALL", "holdfast_publish", "1", s.name, "again")
	followWith(t, b, f)
	f.until(t, "another log", func() bool { return f.begun[len(f.begun)-1].Start != f.begun[0].Start })
	server.stop()
}
