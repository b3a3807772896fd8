package healthaction

import "time"

// Timing has the delays of the Reconciler. Tests shorten them.
type Timing struct {
	// Debounce is the delay between an event and the pass. DebouncePerNode is added for each starting node, up to
	// MaxDebounce.
	Debounce, DebouncePerNode, MaxDebounce time.Duration
	// Assessment is how long a pass waits until all nodes are assessed by a new Basis. Afterwards only nodes that are not
	// assessed yet have to wait.
	Assessment time.Duration
	// RetryStale is the delay after a conflict, or while the cache does not show the last write to a Node.
	RetryStale time.Duration
	// FirstRetry and LastRetry bound the back-off after a failed call.
	FirstRetry, LastRetry time.Duration
	// RetryForbidden is the delay before a write is tried again that the API server has forbidden.
	RetryForbidden time.Duration
	// GiveUp is how long the API server may reject an action before the node gives up its place, and then how long the
	// action is not tried.
	GiveUp time.Duration
	// Deadline is the timeout of one call.
	Deadline time.Duration
}

// DefaultTiming returns the delays for production.
func DefaultTiming() Timing {
	return Timing{
		Debounce:        200 * time.Millisecond,
		DebouncePerNode: 2 * time.Millisecond,
		MaxDebounce:     3 * time.Second,
		Assessment:      10 * time.Second,
		RetryStale:      time.Second,
		FirstRetry:      time.Second,
		LastRetry:       30 * time.Second,
		RetryForbidden:  30 * time.Second,
		GiveUp:          5 * time.Minute,
		Deadline:        10 * time.Second,
	}
}
