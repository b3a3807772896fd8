// Package requeue has the event handlers and helpers by which controllers schedule their next pass or reconcile.
// It must not read or write objects.
package requeue

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

// Sleep waits until the period is over or ctx ends.
func Sleep(ctx context.Context, clk clock.Clock, period time.Duration) {
	select {
	case <-ctx.Done():
	case <-clk.After(period):
	}
}

// MinDelay returns the shorter of two delays; zero or less means none.
func MinDelay(a, b time.Duration) time.Duration {
	if a <= 0 || (b > 0 && b < a) {
		return b
	}
	return a
}
