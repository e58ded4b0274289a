package bus

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Memory is the bus of one process alone, and the reference for the others: the
// same numbers, retention and errors.
type Memory struct {
	life *life
	log  *memoryLog
}

// memoryLog is what the Memories of one process share. All is guarded by mu.
type memoryLog struct {
	keep    time.Duration
	most    int64
	now     func() time.Time // the engine's clock
	mu      sync.Mutex
	start   int64
	floor   int64
	head    int64
	entries []Entry
	away    bool
	gone    int           // how often it went away
	doubted bool          // it may have had more than there is: as after another engine's restart
	changed chan struct{} // closed, and made anew, with each change
}

// NewMemory gives a bus with a log of its own.
func NewMemory(o Options) *Memory {
	l := &memoryLog{keep: o.Keep, most: o.Entries, now: time.Now, changed: make(chan struct{})}
	if l.keep == 0 {
		l.keep = defaultKeep
	}
	if l.most == 0 {
		l.most = defaultEntries
	}
	l.another(0, -1)
	return &Memory{life: newLife(), log: l}
}

// Another gives a further bus on the same log: another node, in a test.
func (m *Memory) Another() *Memory { return &Memory{life: newLife(), log: m.log} }

// Away has the engine be away, or back, for tests: calls fail with ErrDown,
// Follow ends with it.
func (m *Memory) Away(away bool) {
	m.log.mu.Lock()
	defer m.log.mu.Unlock()
	m.log.away = away
	if away {
		m.log.gone++
	}
	m.log.tell()
}

// Restore has the log be as it was when its head was at a position, for tests: an
// old copy of it.
func (m *Memory) Restore(head int64) {
	m.log.mu.Lock()
	defer m.log.mu.Unlock()
	n := len(m.log.entries)
	for n > 0 && m.log.entries[n-1].ID > head {
		n--
	}
	m.log.entries = slices.Clone(m.log.entries[:n])
	m.log.head = m.log.floor
	if n > 0 {
		m.log.head = m.log.entries[n-1].ID
	}
	m.log.doubted = true
	m.log.tell()
}

// Flush has the log be lost and made anew, for tests.
func (m *Memory) Flush() {
	m.log.mu.Lock()
	defer m.log.mu.Unlock()
	m.log.another(0, -1)
}

// Publish is Bus.Publish.
func (m *Memory) Publish(ctx context.Context, bodies [][]byte) ([]int64, error) {
	if err := fits(bodies); err != nil || len(bodies) == 0 {
		return nil, err
	}
	ctx, leave, err := m.life.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	if ctx.Err() != nil {
		return nil, downed(context.Cause(ctx))
	}
	l := m.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.away {
		return nil, downed(errAway)
	}
	at, next := l.now(), l.head+step
	if l.doubted {
		next, l.doubted = l.head+leap, false
	}
	for _, body := range bodies { // one instant: all but the first are exactly a step on
		id := max(next, at.UnixMicro()/step*step+l.head%step)
		l.entries = append(l.entries, Entry{ID: id, Prev: l.head, At: at, Body: body})
		l.head, next = id, id+step
	}
	l.trim(at)
	l.tell()
	return neighbours(l.head, len(bodies)), nil
}

// Follow is Bus.Follow.
func (m *Memory) Follow(ctx context.Context, after int64, to Follower) error {
	if err := positioned(after); err != nil {
		return err
	}
	ctx, leave, err := m.life.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	m.log.mu.Lock()
	f := &memoryFollower{m.log, m.log.gone}
	m.log.mu.Unlock()
	return follow(ctx, f, after, to)
}

// State is Bus.State.
func (m *Memory) State(ctx context.Context) (State, error) {
	ctx, leave, err := m.life.enter(ctx)
	if err != nil {
		return State{}, err
	}
	defer leave()
	if ctx.Err() != nil {
		return State{}, context.Cause(ctx)
	}
	l := m.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.away {
		return State{}, downed(errAway)
	}
	l.trim(l.now())
	return State{l.start, l.floor, l.head}, nil
}

// Renew is Bus.Renew.
func (m *Memory) Renew(ctx context.Context, seen int64) error {
	if err := positioned(seen); err != nil {
		return err
	}
	ctx, leave, err := m.life.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	l := m.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.away {
		return downed(errAway)
	}
	if l.head < seen {
		l.another(seen, l.head%step)
	}
	return nil
}

// Close is Bus.Close.
func (m *Memory) Close() error {
	m.life.close()
	return nil
}

// another makes the log another one, above what was seen, with another tag. mu is held.
func (l *memoryLog) another(seen, tag int64) {
	next := rand.Int64N(step)
	if next == tag {
		next = (next + 1) % step
	}
	l.head = max(l.now().UnixMicro()/step, seen/step+1, l.head/step+1)*step + next
	l.start, l.floor, l.entries = l.head, l.head, nil
	l.tell()
}

// trim lets go what is too old or too much. mu is held.
func (l *memoryLog) trim(now time.Time) {
	n := 0
	for n < len(l.entries) && (int64(len(l.entries)-n) > l.most || now.Sub(l.entries[n].At) > l.keep) {
		l.floor = l.entries[n].ID
		l.entries[n] = Entry{}
		n++
	}
	l.entries = l.entries[n:]
}

// tell wakes whoever waits. mu is held.
func (l *memoryLog) tell() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// place is where the entries after a position begin. mu is held.
func (l *memoryLog) place(after int64) (i int, known bool) {
	i, found := slices.BinarySearchFunc(l.entries, after, func(e Entry, at int64) int { return int(min(1, max(-1, e.ID-at))) })
	if found {
		i++
	}
	return i, found || after <= l.floor
}

// memoryFollower is a source.
type memoryFollower struct {
	*memoryLog
	gone int // the log's, as it began
}

// lost reports whether this follower's connection is. mu is held.
func (f *memoryFollower) lost() bool { return f.away || f.memoryLog.gone != f.gone }

func (f *memoryFollower) read(_ context.Context, after int64) (look, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lost() {
		return look{}, errAway
	}
	f.trim(f.now())
	i, known := f.place(after)
	end, size := i, 0
	for end < len(f.entries) && end-i < takeEntries && (end == i || size+len(f.entries[end].Body) <= takeBytes) {
		size += len(f.entries[end].Body)
		end++
	}
	return look{State{f.start, f.floor, f.head}, known, slices.Clone(f.entries[i:end])}, nil
}

func (f *memoryFollower) renew(_ context.Context, unknown int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lost() {
		return errAway
	}
	if _, known := f.place(unknown); !known {
		f.another(unknown, f.head%step)
	}
	return nil
}

// wait returns when the log has changed since the caller's last look.
func (f *memoryFollower) wait(ctx context.Context, after int64) ([]Entry, error) {
	f.mu.Lock()
	changed, now := f.changed, f.head != after || f.lost()
	f.mu.Unlock()
	if now {
		return nil, nil
	}
	select {
	case <-changed:
		return nil, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
