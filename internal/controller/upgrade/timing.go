package upgrade

import "time"

// Timing has the delays of the Reconciler. Tests shorten them.
type Timing struct {
	// Debounce is the delay between an event and the pass. DebouncePerNode is added for each starting node, up to
	// MaxDebounce: they change all the time, and none of them is upgraded.
	Debounce, DebouncePerNode, MaxDebounce time.Duration
	// Assessment is how long a pass waits until all nodes are assessed by a new Basis. Afterwards only nodes that are not
	// assessed yet have to wait.
	Assessment time.Duration
	// RetryStale is the delay after a conflict, or while the cache does not show the last write to a Node.
	RetryStale time.Duration
	// FirstRetry and LastRetry bound the back-off after a failed call, for one node or for the pass.
	FirstRetry, LastRetry time.Duration
	// FirstEviction and LastEviction bound the back-off of a pod whose eviction the API server has rejected.
	FirstEviction, LastEviction time.Duration
	// FirstPoll is the delay before the pods of users are read again on nodes that wait for them, as these pods cause no
	// events here. It doubles up to LastPoll while they stay the same.
	FirstPoll, LastPoll time.Duration
	// RetryBusy is the delay before the pods are read again for which a MIG layout waits.
	RetryBusy time.Duration
	// KeepAnswer is how long the answer to a refused call is reported in place of later ones, which may have another text
	// each time.
	KeepAnswer time.Duration
	// Deadline is the timeout of one call.
	Deadline time.Duration
	// FirstRetryFailed and LastRetryFailed bound the back-off of a node whose upgrade has failed while its old driver
	// worked.
	FirstRetryFailed, LastRetryFailed time.Duration
}

// DefaultTiming returns the delays for production.
func DefaultTiming() Timing {
	return Timing{
		Debounce:         200 * time.Millisecond,
		DebouncePerNode:  2 * time.Millisecond,
		MaxDebounce:      3 * time.Second,
		Assessment:       10 * time.Second,
		RetryStale:       time.Second,
		FirstRetry:       time.Second,
		LastRetry:        30 * time.Second,
		FirstEviction:    5 * time.Second,
		LastEviction:     30 * time.Second,
		FirstPoll:        2 * time.Second,
		LastPoll:         15 * time.Second,
		RetryBusy:        30 * time.Second,
		KeepAnswer:       10 * time.Minute,
		Deadline:         5 * time.Second,
		FirstRetryFailed: 10 * time.Minute,
		LastRetryFailed:  3 * time.Hour,
	}
}
