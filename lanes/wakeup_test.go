package lanes_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/lanes"
	"holdfast/upstream"
)

// The property: whatever comes, ends, leaves, expires, goes down or comes back,
// in whatever order and at once, then, as soon as nothing more happens by
// itself, no slot is free at a target that is up while a request waits (L4), no
// more slots are in use than there are (L1), whoever was served came before
// whoever waits, each refusal named the bound that ended first, and in the end
// nobody waits and nothing is in use.
//
// Each seed is a play of its own: -run 'TestLane_NoLostWakeUp/seed=17$' plays
// that one again. The actions are the seed's; how the goroutines of one step
// interleave is the scheduler's.
func TestLane_NoLostWakeUp(t *testing.T) {
	seeds := 200
	if os.Getenv("HOLDFAST_FULL") != "" {
		seeds = 5000
	}
	dir := t.TempDir()
	for seed := range seeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newPlay(t, uint64(seed), dir).run() })
		})
	}
}

const (
	playSteps = 80
	atOnce    = 5 // actions of one step, at most
)

// play is one lane and everything that happens to it.
type play struct {
	t       *testing.T
	seed    uint64
	rng     *rand.Rand
	up      *upstream.Upstream
	targets []*upstream.Target // those that were dealt to the lane
	lane    *lanes.Lane
	cfg     lanes.Config
	park    time.Duration
	trace   []string

	step      int
	now       time.Time
	turbulent bool // a target may have changed in this step, or a request been sent
	single    bool // this step has one action
	closed    bool
	before    lanes.Snapshot // as the step began
	guests    int            // that came so far
	requests  []*guest       // that wait or hold
	refused   map[lanes.Reason]uint64

	mu sync.Mutex // guards what the goroutines of a step write: outcome of guests
}

// guest is one request. The play owns it; its goroutine writes the outcome.
type guest struct {
	number  int
	ctx     context.Context
	leave   context.CancelFunc
	left    bool
	came    time.Time
	entered int // the step in which it began to wait
	holds   *lanes.Slot
	sentAt  time.Time // zero: it has not been sent
	pending bool      // its goroutine has not ended

	ended bool // the outcome is there
	slot  *lanes.Slot
	err   error
	at    time.Time
	down  bool      // at that moment, every target was
	since time.Time // of the last of them
}

func newPlay(t *testing.T, seed uint64, dir string) *play {
	rng := rand.New(rand.NewPCG(seed, 1))
	p := &play{t: t, seed: seed, rng: rng, refused: map[lanes.Reason]uint64{}}
	p.park = time.Duration(1+rng.IntN(4000)) * time.Millisecond
	p.cfg = lanes.Config{
		Name: "web", Slots: 1 + rng.IntN(4), Queue: rng.IntN(7),
		QueueTimeout: time.Duration(1+rng.IntN(4000)) * time.Millisecond,
	}
	p.up = nowhere(dir, 1+rng.IntN(3), upstream.Config{Park: p.park})
	p.lane = lanes.New(p.cfg, p.up.Deal(p.cfg.Slots))
	p.targets = p.up.Targets()[:min(p.cfg.Slots, len(p.up.Targets()))]
	if rng.IntN(4) > 0 {
		setUp(p.up)
	}
	return p
}

func (p *play) run() {
	defer p.up.Close()
	defer p.leaveNobody()
	p.notef("%d slots at %d targets, queue %d, queue_timeout %v, park %v", p.cfg.Slots, len(p.targets), p.cfg.Queue, p.cfg.QueueTimeout, p.park)
	for p.step = 1; p.step <= playSteps; p.step++ {
		p.begin()
		if p.rng.IntN(5) == 0 {
			p.passTime()
		} else {
			p.act()
		}
		p.settle()
	}
	p.clearOut()
}

func (p *play) notef(format string, values ...any) {
	p.trace = append(p.trace, fmt.Sprintf("%3d  ", p.step)+fmt.Sprintf(format, values...))
}

func (p *play) fail(format string, values ...any) {
	p.t.Helper()
	from := max(1, len(p.trace)-40)
	p.t.Fatalf("seed %d, step %d: %s\n%s", p.seed, p.step, fmt.Sprintf(format, values...), strings.Join(append(p.trace[:1:1], p.trace[from:]...), "\n"))
}

// leaveNobody ends what a failed play has left, so that the bubble can end.
func (p *play) leaveNobody() {
	p.lane.Close()
	for _, g := range p.requests {
		g.leave()
	}
}

func (p *play) begin() {
	p.now = time.Now()
	p.turbulent, p.single = false, false
	p.before = p.lane.Snapshot()
}

func (p *play) allDown() (down bool, since time.Time) {
	for _, target := range p.targets {
		state := target.State()
		if state.Up {
			return false, time.Time{}
		}
		if state.Since.After(since) {
			since = state.Since
		}
	}
	return true, since
}

// passTime lets time pass: any, or exactly until some bound.
func (p *play) passTime() {
	wait := time.Duration(1+p.rng.IntN(2500)) * time.Millisecond
	switch p.rng.IntN(3) {
	case 0:
		if waiting := p.those(func(g *guest) bool { return g.pending }); len(waiting) > 0 {
			wait = waiting[p.rng.IntN(len(waiting))].came.Add(p.cfg.QueueTimeout).Sub(p.now)
		}
	case 1:
		if down, since := p.allDown(); down {
			wait = since.Add(p.park).Sub(p.now)
		}
	}
	if wait < 0 {
		wait = time.Millisecond
	}
	p.notef("%v pass", wait)
	time.Sleep(wait)
	p.now = time.Now()
}

// act does one thing or several at once.
func (p *play) act() {
	n := 1
	if p.rng.IntN(5) < 2 {
		n = 2 + p.rng.IntN(atOnce-1)
	}
	p.single = n == 1
	var actions []func()
	for range n {
		if action := p.choose(); action != nil {
			actions = append(actions, action)
		}
	}
	for _, action := range actions {
		go perform(action, p.rng.IntN(4))
	}
}

// perform gives way a few times first, so that the order of a step's actions
// is not that of their starts.
func perform(action func(), yields int) {
	for range yields {
		runtime.Gosched()
	}
	action()
}

// choose draws an action. What it does to the play's own books is done now.
func (p *play) choose() func() {
	switch at := p.rng.IntN(100); {
	case at < 40:
		return p.come()
	case at < 70:
		if g := p.pick(func(g *guest) bool { return g.holds != nil }); g != nil {
			p.notef("#%d releases slot %d", g.number, g.holds.Number())
			slot := g.holds
			p.forget(g)
			return slot.Release
		}
	case at < 75:
		if g := p.pick(func(g *guest) bool { return g.holds != nil }); g != nil {
			return p.send(g)
		}
	case at < 85:
		if g := p.pick(func(g *guest) bool { return g.pending && !g.left }); g != nil {
			p.notef("#%d leaves", g.number)
			g.left = true
			return g.leave
		}
	case at < 90:
		target := p.target()
		p.notef("%s goes down", target)
		p.turbulent = true
		return func() { target.Fail(errGone) }
	case at < 99:
		target := p.target()
		p.notef("%s is up", target)
		p.turbulent = true
		return target.Answered
	case p.step > playSteps/2:
		p.notef("the lane closes")
		p.closed = true
		return p.lane.Close
	}
	return nil
}

func (p *play) target() *upstream.Target {
	return p.targets[p.rng.IntN(len(p.targets))]
}

// come: a request asks for a slot.
func (p *play) come() func() {
	p.guests++
	g := &guest{number: p.guests, came: p.now, entered: p.step, pending: true}
	g.ctx, g.leave = context.WithCancel(context.Background())
	p.requests = append(p.requests, g)
	p.notef("#%d comes", g.number)
	return func() {
		slot, err := p.lane.Acquire(g.ctx)
		p.outcome(g, slot, err)
	}
}

// send: a request that holds a slot is sent, which fails, since nothing listens:
// its target goes down, and it waits in front.
func (p *play) send(g *guest) func() {
	p.notef("#%d is sent on slot %d at %s", g.number, g.holds.Number(), g.holds.Target())
	slot := g.holds
	g.holds, g.pending, g.sentAt, g.entered = nil, true, p.now, p.step
	p.turbulent = true
	return func() {
		ex, err := slot.Do(g.ctx, get)
		if ex != nil {
			err = errors.New("it was sent to nowhere")
		}
		p.outcome(g, nil, err)
	}
}

// outcome is called by a guest's goroutine, as its last.
func (p *play) outcome(g *guest, slot *lanes.Slot, err error) {
	down, since := p.allDown()
	p.mu.Lock()
	defer p.mu.Unlock()
	g.ended, g.slot, g.err, g.at, g.down, g.since = true, slot, err, time.Now(), down, since
}

func (p *play) those(which func(*guest) bool) (some []*guest) {
	for _, g := range p.requests {
		if which(g) {
			some = append(some, g)
		}
	}
	return some
}

func (p *play) pick(which func(*guest) bool) *guest {
	if some := p.those(which); len(some) > 0 {
		return some[p.rng.IntN(len(some))]
	}
	return nil
}

func (p *play) forget(g *guest) {
	g.leave() // of no consequence any more
	p.requests = slices.DeleteFunc(p.requests, func(other *guest) bool { return other == g })
}

// settle waits until nothing more happens by itself, and checks everything.
func (p *play) settle() {
	p.t.Helper()
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	var served []*guest
	for _, g := range slices.Clone(p.requests) {
		if !g.ended {
			continue
		}
		g.ended, g.pending = false, false
		switch {
		case g.slot != nil:
			p.notef("  #%d has slot %d at %s", g.number, g.slot.Number(), g.slot.Target())
			g.holds, g.slot = g.slot, nil
			served = append(served, g)
		default:
			p.notef("  #%d: %v", g.number, g.err)
			p.checkRefused(g)
			p.forget(g)
		}
	}
	p.checkOrder(served)
	p.checkWaiting()
	p.checkLane()
}

// refusals is how many there were so far.
func (p *play) refusals() (n uint64) {
	for _, count := range p.refused {
		n += count
	}
	return n
}

// checkOrder: whoever was served began to wait no later than whoever still
// waits. A request that was sent stands in front and may have had its turn in
// vain; TestSlot_WhoseTargetIsGoneWaitsInFront is about those.
func (p *play) checkOrder(served []*guest) {
	p.t.Helper()
	for _, g := range served {
		for _, w := range p.requests {
			if w.pending && w.sentAt.IsZero() && w.entered < g.entered {
				p.fail("#%d was served and #%d, which came before it, waits", g.number, w.number)
			}
		}
	}
}

// checkWaiting: nobody waits whose wait should have ended.
func (p *play) checkWaiting() {
	p.t.Helper()
	now := time.Now()
	down, since := p.allDown()
	for _, g := range p.requests {
		if !g.pending {
			continue
		}
		switch {
		case g.left:
			p.fail("#%d left and waits still", g.number)
		case g.sentAt.IsZero() && now.After(g.came.Add(p.cfg.QueueTimeout)),
			!g.sentAt.IsZero() && now.After(g.sentAt.Add(p.cfg.QueueTimeout)):
			p.fail("#%d waits beyond queue_timeout", g.number)
		case down && now.After(since.Add(p.park)):
			p.fail("#%d waits beyond park", g.number)
		case p.closed:
			p.fail("#%d waits in a lane that is closed", g.number)
		}
	}
}

// checkLane: the lane's own books, and the two laws.
func (p *play) checkLane() {
	p.t.Helper()
	s := p.lane.Snapshot()
	holders := p.those(func(g *guest) bool { return g.holds != nil })
	waiting := p.those(func(g *guest) bool { return g.pending })
	if s.InUse != len(holders) || s.InUse > p.cfg.Slots || s.Abandoned != 0 {
		p.fail("%d slots in use, %d abandoned, %d of %d held", s.InUse, s.Abandoned, len(holders), p.cfg.Slots)
	}
	if s.Waiting != len(waiting) {
		p.fail("the lane says that %d wait, and %d do", s.Waiting, len(waiting))
	}
	states := map[string]int{}
	for _, slot := range s.SlotStates {
		states[slot.State]++
		if slot.State == "free" && s.Waiting > 0 {
			p.fail("slot %d at %s is free, and %d wait", slot.Number, slot.Target, s.Waiting)
		}
	}
	if states["busy"] != len(holders) || states["abandoned"] != 0 {
		p.fail("the slots are %v, and %d are held", states, len(holders))
	}
	held := map[int]*guest{}
	for _, g := range holders {
		if other := held[g.holds.Number()]; other != nil {
			p.fail("slot %d is held by #%d and #%d", g.holds.Number(), other.number, g.number)
		}
		held[g.holds.Number()] = g
	}
	for reason, n := range p.refused {
		if s.Refused[reason] != n {
			p.fail("%d refused with %s, and %d counted", n, reason, s.Refused[reason])
		}
	}
}

// checkRefused: the reason is the one that was true, at the moment it came true.
func (p *play) checkRefused(g *guest) {
	p.t.Helper()
	var refusal *lanes.Refusal
	if !errors.As(g.err, &refusal) {
		if !errors.Is(g.err, context.Canceled) || !g.left {
			p.fail("#%d (left: %v) ended with %v", g.number, g.left, g.err)
		}
		return
	}
	p.refused[refusal.Reason]++
	parkEnd := g.since.Add(p.park)
	parkedOut := g.down && !p.turbulent && parkEnd.Before(g.at)
	switch refusal.Reason {
	case lanes.LaneFull:
		if parkedOut {
			p.fail("#%d: %s, and the upstream had been down for longer than park", g.number, refusal.Reason)
		}
		if p.single && (p.before.Waiting < p.cfg.Queue || slices.ContainsFunc(p.before.SlotStates, isFree)) {
			p.fail("#%d: %s with %d of %d waiting and slots %v", g.number, refusal.Reason, p.before.Waiting, p.cfg.Queue, p.before.SlotStates)
		}
	case lanes.LaneTimeout:
		if parkedOut {
			p.fail("#%d: %s, and park ended first", g.number, refusal.Reason)
		}
		if !g.mayExpireAt(g.at, p.cfg.QueueTimeout) {
			p.fail("#%d: %s %v after it came", g.number, refusal.Reason, g.at.Sub(g.came))
		}
	case lanes.UpstreamDown:
		if p.turbulent {
			return // by the time it could ask, it may have been another state
		}
		if !g.down || parkEnd.After(g.at) && p.cfg.Queue > 0 {
			p.fail("#%d: %s, all targets down: %v, park ends in %v", g.number, refusal.Reason, g.down, parkEnd.Sub(g.at))
		}
		if g.sentAt.IsZero() && g.at.After(g.came.Add(p.cfg.QueueTimeout)) {
			p.fail("#%d: %s, and queue_timeout ended first", g.number, refusal.Reason)
		}
		if g.entered < p.step && g.at.After(parkEnd) {
			p.fail("#%d: %s, %v after park had ended", g.number, refusal.Reason, g.at.Sub(parkEnd))
		}
	case lanes.Draining:
		if !p.closed {
			p.fail("#%d: %s, and the lane is open", g.number, refusal.Reason)
		}
	}
}

func isFree(s lanes.SlotState) bool { return s.State == "free" }

// mayExpireAt reports whether its queue_timeout ends then. A request that was
// sent and must wait again has what is left of its time, if it waited before;
// else its time begins there.
func (g *guest) mayExpireAt(at time.Time, timeout time.Duration) bool {
	if at.Equal(g.came.Add(timeout)) {
		return true
	}
	return !g.sentAt.IsZero() && (at.Equal(g.sentAt.Add(timeout)) || at.Equal(g.sentAt) && at.After(g.came.Add(timeout)))
}

// clearOut ends the play as a good day ends: the targets are up, whoever has a
// slot gives it back, and so everybody must be served.
func (p *play) clearOut() {
	p.t.Helper()
	for _, g := range p.those(func(g *guest) bool { return !g.sentAt.IsZero() }) {
		g.left = true // nothing listens: it could not be served
		g.leave()
	}
	p.begin()
	p.settle()
	refusals := p.refusals()
	for round := 0; len(p.requests) > 0; round++ {
		if round > p.cfg.Queue+p.cfg.Slots+1 {
			p.fail("%d requests are left", len(p.requests))
		}
		p.begin()
		p.turbulent = true
		setUp(p.up)
		p.settle()
		for _, g := range p.those(func(g *guest) bool { return g.holds != nil }) {
			slot := g.holds
			p.forget(g)
			slot.Release()
		}
		p.settle()
	}
	if n := p.refusals() - refusals; n > 0 {
		p.fail("%d were refused who should have been served", n)
	}
	p.begin()
	p.closed = true
	p.lane.Close()
	p.single = true
	go p.come()()
	p.settle()
	s := p.lane.Snapshot()
	if s.InUse != 0 || s.Waiting != 0 || s.Abandoned != 0 || p.refused[lanes.Draining] == 0 || len(p.requests) > 0 {
		p.fail("in the end %+v, %v refused", s, p.refused)
	}
}
