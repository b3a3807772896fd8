// Package times compares times that may be zero, has the back-offs after failures, and formats durations. Later and
// Earlier differ in what the zero time means.
package times

import (
	"math/rand/v2"
	"strings"
	"time"
)

// Backoff is the pause after failures in a row, and when it ends; zero before the first.
type Backoff struct {
	Until time.Time
	Wait  time.Duration
}

// Next returns the back-off after another failure: it doubles from first to last.
func (b Backoff) Next(now time.Time, first, last time.Duration) Backoff {
	wait := min(max(2*b.Wait, first), last)
	return Backoff{Until: now.Add(wait), Wait: wait}
}

// Jittered returns a pause for a client that is one of many: at least half of first, which each earlier failure
// doubles up to last.
func Jittered(failures int, first, last time.Duration) time.Duration {
	longest := min(first, last)
	for range min(failures, 30) { // 30 doublings exceed any last.
		longest = min(2*longest, last)
	}
	return longest/2 + rand.N(longest/2+1)
}

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

// Short formats a duration without trailing zero units: 30m, not 30m0s.
func Short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
