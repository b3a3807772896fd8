// Package requeue has the event handlers and helpers by which controllers schedule their next pass or reconcile.
// It must not read or write objects.
package requeue

import "time"

// MinDelay returns the shorter of two delays; zero or less means none.
func MinDelay(a, b time.Duration) time.Duration {
	if a <= 0 || (b > 0 && b < a) {
		return b
	}
	return a
}
