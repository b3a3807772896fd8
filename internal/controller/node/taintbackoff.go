package node

import (
	"maps"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// taintBackoff has the changes of taints that the API server has rejected, each with the time until which no node
// retries it. Losing it costs one attempt.
type taintBackoff struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	until map[string]time.Time
}

func newTaintBackoff(c clock.PassiveClock) *taintBackoff {
	return &taintBackoff{clock: c, until: map[string]time.Time{}}
}

// add holds the change back for this period, and drops changes that have expired.
func (b *taintBackoff) add(change string, period time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.Now()
	maps.DeleteFunc(b.until, func(_ string, until time.Time) bool { return !now.Before(until) })
	b.until[change] = now.Add(period)
}

// remaining returns how long the change is still held back.
func (b *taintBackoff) remaining(change string) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(0, b.until[change].Sub(b.clock.Now()))
}
