// Package times compares times that may be zero. Later and Earlier differ in what the zero time means.
package times

import "time"

// Later returns the later of two times. The zero time is before all others.
func Later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// Earlier returns the earlier of two times. The zero time means never, so that it is after all others.
func Earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
