package node

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// taintBackoff has the changes of taints that the API server has rejected, each with the time until which no node
// retries it. Losing it costs one attempt. Expired changes are dropped.
type taintBackoff struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	until map[string]time.Time
}

func newTaintBackoff(c clock.PassiveClock) *taintBackoff {
	return &taintBackoff{clock: c, until: map[string]time.Time{}}
}

// add holds the change back for this period.
func (b *taintBackoff) add(change string, period time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.until[change] = b.clock.Now().Add(period)
}

// remaining returns how long the change is still held back.
func (b *taintBackoff) remaining(change string) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.Now()
	for key, until := range b.until {
		if !now.Before(until) {
			delete(b.until, key)
		}
	}
	until, rejected := b.until[change]
	if !rejected {
		return 0
	}
	return until.Sub(now)
}
