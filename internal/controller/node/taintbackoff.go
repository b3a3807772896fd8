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
func (r *taintBackoff) add(change string, period time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.until[change] = r.clock.Now().Add(period)
}

// remaining returns how long the change is still held back.
func (r *taintBackoff) remaining(change string) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	for key, until := range r.until {
		if !now.Before(until) {
			delete(r.until, key)
		}
	}
	until, rejected := r.until[change]
	if !rejected {
		return 0
	}
	return until.Sub(now)
}
