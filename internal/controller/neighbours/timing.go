package neighbours

import "time"

// Timing has the intervals of a Watcher; tests shorten them.
type Timing struct {
	// Idle is how long to wait while there is no GPU node, and so nothing to look for. It costs no call.
	Idle time.Duration
	// Interval is the time between two looks, and FoundInterval that while a node reports what was found, so that its
	// removal shows soon, and after a failure. Up to a tenth is added, so that the operators of many clusters do not look
	// at once.
	Interval, FoundInterval time.Duration
	// Deadline bounds one call.
	Deadline time.Duration
}

// DefaultTiming returns the intervals for production.
func DefaultTiming() Timing {
	return Timing{
		Idle: 2 * time.Second, Interval: 10 * time.Minute, FoundInterval: time.Minute, Deadline: 10 * time.Second,
	}
}
