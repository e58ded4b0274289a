package bus

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// slowEngine answers when it is told to.
type slowEngine struct {
	came   chan []string // what comes
	answer chan error    // how it is answered
	last   int64
}

func newSlow(t *testing.T) (*slowEngine, *batcher) {
	e := &slowEngine{came: make(chan []string), answer: make(chan error)}
	b := &batcher{life: newLife()}
	b.add = func(_ context.Context, bodies [][]byte) (int64, error) {
		var all []string
		for _, body := range bodies {
			all = append(all, string(body))
		}
		select {
		case e.came <- all:
		case <-b.life.done.Done():
			return 0, ErrClosed
		}
		var err error
		select {
		case err = <-e.answer:
		case <-b.life.done.Done():
			return 0, ErrClosed
		}
		e.last += int64(len(bodies)) * step
		return e.last, err
	}
	t.Cleanup(func() { b.life.close() })
	return e, b
}

// next is what comes next, and none for long: nothing.
func (e *slowEngine) next(t *testing.T) []string {
	t.Helper()
	select {
	case all := <-e.came:
		return all
	case <-time.After(10 * time.Second):
		t.Fatal("nothing comes to the engine")
		return nil
	}
}

// reply answers what came.
func (e *slowEngine) reply(t *testing.T, err error) {
	t.Helper()
	select {
	case e.answer <- err:
	case <-time.After(10 * time.Second):
		t.Fatal("nobody waits for an answer")
	}
}

// soon is a context for what does not wait.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// waitFor waits until so many publishes wait.
func (b *batcher) waitFor(t *testing.T, n int) {
	t.Helper()
	for late := time.Now().Add(10 * time.Second); ; pause(t.Context()) {
		b.mu.Lock()
		waiting := len(b.waiting)
		b.mu.Unlock()
		if waiting == n {
			return
		}
		if time.Now().After(late) {
			t.Fatalf("%d wait, want %d", waiting, n)
		}
	}
}

func TestBatch_PublishesThatComeMeanwhileGoTogetherInTheirOrder(t *testing.T) {
	e, b := newSlow(t)
	var all sync.WaitGroup
	ids := make([][]int64, 6)
	for i := range 6 {
		bodies := byteBodies(slices.Repeat([]string{strconv.Itoa(i)}, 1+i%2))
		all.Go(func() { ids[i], _ = b.publish(t.Context(), bodies) })
		if i == 0 {
			if got := e.next(t); !slices.Equal(got, []string{"0"}) {
				t.Errorf("first came %q", got)
			}
			continue
		}
		b.waitFor(t, i)
	}
	e.reply(t, nil)
	if got, want := e.next(t), strings.Fields("1 1 2 3 3 4 5 5"); !slices.Equal(got, want) {
		t.Errorf("then came %q, want %q", got, want)
	}
	e.reply(t, nil)
	all.Wait()
	if want := [][]int64{{1000}, {2000, 3000}, {4000}, {5000, 6000}, {7000}, {8000, 9000}}; !slices.EqualFunc(ids, want, slices.Equal) {
		t.Errorf("ids %v, want %v", ids, want)
	}
}

func TestBatch_OneWayCarriesSoMuchAndNoMore(t *testing.T) {
	e, b := newSlow(t)
	var all sync.WaitGroup
	publish := func(bodies ...string) { all.Go(func() { b.publish(t.Context(), byteBodies(bodies)) }) }
	publish("first")
	e.next(t)
	big := strings.Repeat("x", batchBytes-10)
	for i, bodies := range [][]string{{big}, {"small"}, {strings.Repeat("y", batchBytes+1)}, numbers(1, batchBodies-1), {"a"}, {"b"}} {
		publish(bodies...)
		b.waitFor(t, i+1)
	}
	e.reply(t, nil)
	for _, want := range []int{2, 1, batchBodies, 1} {
		if got := e.next(t); len(got) != want {
			t.Errorf("%d bodies came, want %d", len(got), want)
		}
		e.reply(t, nil)
	}
	all.Wait()
}

func TestBatch_ACallerThatLeavesIsToldWhetherItWasOnTheWay(t *testing.T) {
	e, b := newSlow(t)
	ctx, cancel := context.WithCancel(t.Context())
	results := make(chan error, 2)
	go func() { _, err := b.publish(ctx, byteBodies([]string{"on the way"})); results <- err }()
	e.next(t)
	cancel()
	if err := <-results; !errors.Is(err, ErrUnknown) || !errors.Is(err, context.Canceled) || errors.Is(err, ErrDown) {
		t.Errorf("on the way: %v", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	go func() { _, err := b.publish(ctx, byteBodies([]string{"waiting"})); results <- err }()
	b.waitFor(t, 1)
	go func() { _, err := b.publish(t.Context(), byteBodies([]string{"stays"})); results <- err }()
	b.waitFor(t, 2)
	cancel()
	if err := <-results; !errors.Is(err, ErrDown) || !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnknown) {
		t.Errorf("waiting: %v", err)
	}
	e.reply(t, nil)
	if got := e.next(t); !slices.Equal(got, []string{"stays"}) {
		t.Errorf("came %q", got)
	}
	e.reply(t, nil)
	if err := <-results; err != nil {
		t.Errorf("stays: %v", err)
	}
}

func TestBatch_OneMoreThanMayWaitIsRefused(t *testing.T) {
	e, b := newSlow(t)
	var all sync.WaitGroup
	publish := func(n int) {
		all.Go(func() { b.publish(t.Context(), [][]byte{make([]byte, n)}) })
	}
	publish(1)
	e.next(t)
	for i := range waitingBytes / MaxBody {
		publish(MaxBody)
		b.waitFor(t, i+1)
	}
	if _, err := b.publish(soon(t), [][]byte{{1}}); !errors.Is(err, ErrDown) || !strings.Contains(err.Error(), "8 publishes of 67108864 bytes wait") {
		t.Errorf("beyond the bytes: %v", err)
	}
	e.reply(t, errors.Join(ErrDown))
	all.Wait()
	publish(1)
	e.next(t)
	for range waitingCalls {
		publish(0)
	}
	b.waitFor(t, waitingCalls)
	if _, err := b.publish(soon(t), [][]byte{{}}); !errors.Is(err, ErrDown) {
		t.Errorf("beyond the count: %v", err)
	}
	e.reply(t, errors.Join(ErrDown))
	all.Wait()
}

func TestBatch_AnEngineThatIsDownRefusesAllThatWait(t *testing.T) {
	e, b := newSlow(t)
	results := make(chan error, 3)
	for i := range 3 {
		go func() { _, err := b.publish(t.Context(), byteBodies([]string{"x"})); results <- err }()
		if i == 0 {
			e.next(t)
		} else {
			b.waitFor(t, i)
		}
	}
	e.reply(t, downed(errors.New("refused")))
	for range 3 {
		select {
		case err := <-results:
			if !errors.Is(err, ErrDown) {
				t.Errorf("%v, want ErrDown", err)
			}
		case <-e.came:
			t.Fatal("one goes to the engine that is down")
		}
	}
	// One that was lost on the way says nothing of the next.
	for i := range 2 {
		go func() { _, err := b.publish(t.Context(), byteBodies([]string{"x"})); results <- err }()
		if i == 0 {
			e.next(t)
		} else {
			b.waitFor(t, i)
		}
	}
	e.reply(t, &causedError{ErrUnknown, errors.New("broken")})
	if err := <-results; !errors.Is(err, ErrUnknown) {
		t.Errorf("%v, want ErrUnknown", err)
	}
	e.next(t)
	e.reply(t, nil)
	if err := <-results; err != nil {
		t.Errorf("the next: %v", err)
	}
}
