package node

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// refusals are the changes of taints that the API server has refused, each until when it is not tried again, on no node.
// They may be lost: that costs an attempt. Those that are over are dropped.
type taintBackoff struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	until map[string]time.Time
}

func newTaintBackoff(c clock.PassiveClock) *taintBackoff {
	return &taintBackoff{clock: c, until: map[string]time.Time{}}
}

// add has the change left alone for this time.
func (r *taintBackoff) add(change string, period time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.until[change] = r.clock.Now().Add(period)
}

// left is how long the change is still left alone.
func (r *taintBackoff) remaining(change string) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	for known, until := range r.until {
		if !now.Before(until) {
			delete(r.until, known)
		}
	}
	until, refused := r.until[change]
	if !refused {
		return 0
	}
	return until.Sub(now)
}
