package upstream

import "time"

// What the tests need to bring about exactly, and nobody else may.

// Age makes what is known of the target's name d older, once the look-up that
// is out has ended.
func (t *Target) Age(d time.Duration) {
	n := t.name
	n.mu.Lock()
	for n.asking != nil {
		q := n.asking
		n.mu.Unlock()
		<-q.done
		n.mu.Lock()
	}
	defer n.mu.Unlock()
	older := *n.known.Load()
	older.asked = older.asked.Add(-d)
	n.known.Store(&older)
}

// The product's own bounds.
const (
	LookUpEvery = lookUpEvery
	AskEvery    = askEvery
	MaxTried    = maxTried
)

// IsShortage reports whether dials to a name's addresses that failed so say
// nothing of the target.
func IsShortage(dials ...error) bool { return isShortage(&nameError{dials: dials}) }
