package node

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// calming remembers until when a node that others are writing to, or a change that is refused, is left alone. Losing it costs an
// attempt that may fail.
type calming struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	until map[string]time.Time
}

func newCalming(c clock.PassiveClock) *calming {
	return &calming{clock: c, until: map[string]time.Time{}}
}

func (c *calming) start(node string, period time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.until[node] = c.clock.Now().Add(period)
}

// left is how long the node is still left alone.
func (c *calming) left(node string) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	until, waits := c.until[node]
	if !waits {
		return 0
	}
	left := until.Sub(c.clock.Now())
	if left <= 0 {
		delete(c.until, node)
	}
	return left
}

func (c *calming) forget(node string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.until, node)
}
