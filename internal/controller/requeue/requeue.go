// Package requeue is about when a controller comes back by itself.
package requeue

import "time"

// MinDelay is the shorter of two waits, of which zero or less is none.
func MinDelay(a, b time.Duration) time.Duration {
	if a <= 0 || (b > 0 && b < a) {
		return b
	}
	return a
}
