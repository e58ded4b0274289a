package proxy

import "sync"

// budget counts bytes against a total that all answers share.
type budget struct {
	mu    sync.Mutex
	used  int64
	limit int64
}

// take counts n bytes, if they fit.
func (b *budget) take(n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used+int64(n) > b.limit {
		return false
	}
	b.used += int64(n)
	return true
}

// force counts n bytes even beyond the limit.
func (b *budget) force(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used += int64(n)
}

func (b *budget) give(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= int64(n)
}

// Used is how many bytes are counted now.
func (b *budget) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

func (b *budget) setLimit(limit int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.limit = limit
}
